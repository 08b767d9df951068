"""How near each algorithm comes to the bound of each shipped machine: ``python -m benchmarks.efficiency``.

Writes ``docs/efficiency.md``. Nothing is measured: the same code gives the same file.
"""

from __future__ import annotations

from pathlib import Path

import collsim
from collsim import algorithms
from collsim.collective import OPERATIONS
from collsim.topology import load_topology, shipped

SIZE = "1GiB"
FILE = Path(__file__).parents[1] / "docs" / "efficiency.md"
HEAD = f"""\
# Efficiency at {SIZE}

The least time that any algorithm could take, over the simulated time, in per cent: for each operation, each algorithm
and each shipped machine that it fits, at {SIZE} (float) in the cut_through network, from root 0, with the parameters
that `collsim run` takes if none are given. A dash: it does not fit the machine; the reason is below the table.

At 100 nothing can be faster. That need not be possible: on machines with switches that reduce or multicast the bound
assumes that they do, which halves what a ring can reach (`collsim run` says so in its line `bound`).

Written by `python -m benchmarks.efficiency`.
"""


def table(operation: str) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, str]]]:
    """Return the efficiencies by algorithm and machine, and the reasons where one does not fit.

    Examples
    --------
    >>> found, reasons = table("all_gather")
    >>> round(found["ring"]["ring8"], 2)
    1.0
    """
    found: dict[str, dict[str, float]] = {name: {} for name in algorithms.available().get(operation, [])}
    reasons: dict[str, dict[str, str]] = {name: {} for name in found}
    for machine in shipped():
        if not found:
            break
        comparison = collsim.compare(operation, load_topology(machine), SIZE, dtype="float")
        for name, result in comparison.ranking(SIZE):
            found[name][machine] = result.efficiency
        for name, reason in comparison.unfit.items():
            reasons[name][machine] = reason
    return found, reasons


def text() -> str:
    """Return the whole document."""
    parts = [HEAD]
    for operation in OPERATIONS:
        if operation == "barrier":  # has no size
            continue
        found, reasons = table(operation)
        if found:
            parts.append(f"## {operation}\n\n{_rows(found)}")
            parts += [_reasons(reasons)] if any(reasons.values()) else []
    return "\n".join(parts)


def _rows(found: dict[str, dict[str, float]]) -> str:
    machines = shipped()
    lines = ["| algorithm | " + " | ".join(machines) + " |", "|---|" + "---:|" * len(machines)]
    for name, by_machine in found.items():
        cells = (f"{100 * by_machine[m]:.2f}" if m in by_machine else "-" for m in machines)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _reasons(reasons: dict[str, dict[str, str]]) -> str:
    lines = []
    for name, by_machine in reasons.items():
        for reason in dict.fromkeys(by_machine.values()):
            machines = ", ".join(machine for machine, other in by_machine.items() if other == reason)
            lines.append(f"- {name} on {machines}: {reason}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the document."""
    FILE.write_text(text())
    print(FILE)


if __name__ == "__main__":
    main()
