"""Speed and memory of bounds and of forests: ``python -m benchmarks.bounds``.

Prints a table and writes it to ``benchmarks/results/``. Run by hand on a quiet machine; each row runs in a process of
its own and searches its machine anew. Imports, and making the machine, are not counted; loading compiled code from the
cache is.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from benchmarks.machine import own_process, peak_mib, slope, write

GIB = 1 << 30


def fat_tree(n: int) -> Any:
    import collsim

    return collsim.topology.fat_tree(n, 32)


def nodes_of_8(n: int) -> Any:
    import collsim

    return collsim.topology.rail_optimized(n // 8, 8)


def torus(n: int) -> Any:
    import collsim

    side = round(n ** (1 / 3))
    return collsim.topology.torus((side,) * 3)


def bound(operation: str) -> Callable[[Any], str]:
    """The lower bound of an operation of 1 GiB."""

    def work(topology: Any) -> str:
        from collsim import Collective
        from collsim.theory import lower_bound

        found = lower_bound(Collective(operation, topology.n_ranks), GIB, topology)
        return f"{found * 1e3:.3f} ms, {found.method}"

    return work


def forest(operation: str) -> Callable[[Any], str]:
    """Trees packed, the schedule of 1 GiB built, proven and simulated."""

    def work(topology: Any) -> str:
        import collsim

        result = collsim.run(operation, topology, GIB, "forest")
        return f"{result.efficiency:.1%} of the bound, {result.transfers:,} transfers"

    return work


Row = tuple[str, Callable[[int], Any], Callable[[Any], str], list[int]]
ROWS: list[Row] = [
    ("all_gather, fat tree", fat_tree, bound("all_gather"), [1024]),
    ("all_reduce, fat tree", fat_tree, bound("all_reduce"), [1024]),
    ("all_gather, nodes of 8", nodes_of_8, bound("all_gather"), [1024, 16384, 131072]),
    ("reduce_scatter, nodes of 8", nodes_of_8, bound("reduce_scatter"), [1024, 16384, 131072]),
    ("all_reduce, nodes of 8", nodes_of_8, bound("all_reduce"), [1024, 16384, 131072]),
    ("broadcast, nodes of 8", nodes_of_8, bound("broadcast"), [1024, 16384, 131072]),
    ("all_to_all, nodes of 8", nodes_of_8, bound("all_to_all"), [1024, 16384, 131072]),
    ("forest all_gather, nodes of 8", nodes_of_8, forest("all_gather"), [16, 32, 64, 128]),
    ("forest all_reduce, nodes of 8", nodes_of_8, forest("all_reduce"), [16, 32, 64]),
    ("forest broadcast, nodes of 8", nodes_of_8, forest("broadcast"), [16, 32, 64]),
    ("forest all_gather, torus", torus, forest("all_gather"), [27, 64]),
]
HEAD = ("| work | GPUs | time (s) | peak memory (MiB) | result |", "|---|---|---|---|---|")


def run(index: int, n: int) -> dict[str, Any]:
    """Run a row."""
    import collsim
    from collsim.theory import lower_bound

    _, machine, work, _ = ROWS[index]
    lower_bound(collsim.Collective("all_gather", 4), GIB, collsim.topology.ring(4))  # imports
    collsim.run("all_gather", collsim.topology.ring(4), GIB, "forest")
    topology = machine(n)
    start = time.perf_counter()
    result = work(topology)
    return {"seconds": time.perf_counter() - start, "mib": peak_mib(), "result": result}


def main() -> None:
    """Run all rows, or those whose title contains a text, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="?", default="", help="text that the titles of the rows must contain")
    parser.add_argument("--note", default="one core; best of two runs", help="what is said of the machine")
    parser.add_argument("--row", nargs=2, metavar=("INDEX", "N"), help="run one row and print JSON")
    arguments = parser.parse_args()
    if arguments.row:
        print(json.dumps(run(*map(int, arguments.row))))
        return
    lines = list(HEAD)
    print(*lines, sep="\n")
    for index, (title, _, _, sizes) in enumerate(ROWS):
        if arguments.only not in title:
            continue
        points = []
        for n in sizes:
            tried = [own_process("benchmarks.bounds", str(index), str(n)) for _ in range(2)]
            row = min(tried, key=lambda one: one["seconds"])
            points.append((n, row["seconds"]))
            lines.append(f"| {title} | {n:,} | {row['seconds']:.2f} | {row['mib']:.0f} | {row['result']} |")
            print(lines[-1], flush=True)
        if len(points) > 1:
            lines.append(f"| growth: time goes with GPUs to the power of | {slope(points):.2f} | | | |")
            print(lines[-1], flush=True)
    if not arguments.only:
        write("bounds", "Bounds and forests", arguments.note, lines)


if __name__ == "__main__":
    main()
