"""``collsim compare``: rank the algorithms that fit a machine, size by size."""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import TYPE_CHECKING, Any

from collsim import algorithms
from collsim.algorithms.registry import Maker
from collsim.cli.progress import progress, stages
from collsim.cli.run import root_of, sizes
from collsim.cli.user import user_function
from collsim.collective import OPERATIONS, ROOTED
from collsim.engine.compare import ALIKE, Comparison
from collsim.engine.compare import compare as compare_algorithms
from collsim.engine.program import NETWORKS
from collsim.engine.result import Result
from collsim.engine.simulate import DTYPES
from collsim.errors import AlgorithmError, InputError, one_of
from collsim.topology import load_topology
from collsim.units import format_size

if TYPE_CHECKING:
    from collsim.cli.measured import Measured

__all__ = ["WIDTH", "compare", "in_words", "note", "short", "us"]

WIDTH = 120
PLACES = ("fastest", "second", "third")
COLUMNS = 20
"""Sizes of a table of factors that fit side by side."""

Group = list[tuple[str, Result]]
"""Algorithms that take the same time."""


def compare(arguments: argparse.Namespace) -> int:
    """Time the algorithms and print the ranking of each size, or JSON."""
    operation = one_of("OPERATION", arguments.operation, OPERATIONS)
    dtype = one_of("-d", arguments.datatype, DTYPES)
    one_of("--network", arguments.network, NETWORKS)
    if arguments.plot is not None:
        from collsim.plot import check_picture_path

        check_picture_path(arguments.plot)
    if arguments.in_place and arguments.measured is None:
        raise InputError("--in-place: expected --measured beside it: it chooses between the times of a log")
    measured = None
    if arguments.measured is None:
        todo = sizes(arguments.minbytes, arguments.maxbytes, arguments.stepfactor, DTYPES[dtype])
    topology = load_topology(arguments.topology)
    root = root_of(arguments.root, topology.n_ranks)
    if arguments.measured is not None:
        from collsim.cli.measured import read_measured

        measured = read_measured(arguments, operation, topology)
        todo, dtype = list(measured.rows), measured.dtype
        if not 0 <= measured.root < topology.n_ranks:
            raise InputError(
                f"{arguments.measured}: expected a root from 0 to {topology.n_ranks - 1}, got {measured.root}"
            )
        root = measured.root
    makers = _makers(operation, arguments.algorithm)
    with progress(operation) as pulse, stages() as stage:
        found = compare_algorithms(
            operation, topology, todo, algorithms=makers, network=arguments.network, dtype=dtype, root=root,
            check=not arguments.no_check, progress=pulse, stage=stage,
        )  # fmt: skip
    if not found.results:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in found.unfit.items())
        raise AlgorithmError(f"no algorithm fits {topology.name}: {reasons}")
    if arguments.plot is not None:
        _plot(found, measured, arguments)
    if arguments.json:
        print(json.dumps(_document(found, arguments, measured), indent=2, allow_nan=False))
        return 0
    if measured is not None:
        from collsim.cli.measured_table import print_measured

        print_measured(found, measured, arguments)
    else:
        _print(found, arguments)
    if arguments.plot is not None:
        print(f"# plot     {arguments.plot}")
    return 0


def _plot(found: Comparison, measured: Measured | None, arguments: argparse.Namespace) -> None:
    from collsim.plot import bandwidth_curve, save_picture

    if measured is None:
        save_picture(bandwidth_curve(found), arguments.plot)
        return
    from collsim.cli.measured import curves_of

    curves = curves_of(found, measured, arguments.algorithm)
    save_picture(bandwidth_curve(curves, measured=measured.points), arguments.plot)


def _makers(operation: str, chosen: str | None) -> dict[str, Maker]:
    """Return the functions of the algorithms by the names under which they were asked for."""
    names = (
        algorithms.available().get(operation, []) if chosen is None else [name.strip() for name in chosen.split(",")]
    )
    if not all(names):
        raise InputError(f"-a: expected names such as ring,tree,my_variant.py:mine, got {chosen!r}")
    if not names:
        algorithms.find(operation, "ring")  # says which operations have algorithms
    return {name: user_function(name) if ":" in name else algorithms.find(operation, name) for name in names}


def _print(found: Comparison, arguments: argparse.Namespace) -> None:
    ranks = f"{found.topology.n_ranks} rank{'s' * (found.topology.n_ranks > 1)}"
    root = f" from root {arguments.root}" if found.operation in ROOTED else ""
    print(
        f"# {found.operation}{root} on {found.topology.name}: {ranks}, {found.network} network, "
        f"{arguments.datatype}; {_count(len(found.results), 'algorithm')}"
    )
    print("#")
    lead = {size: name for first, last, name in found.crossovers() for size in found.sizes if first <= size <= last}
    rows = [(size, _groups(found, size, lead.get(size))) for size in found.sizes]
    shown = [[_label(group) for group in groups[: len(PLACES)]] for _, groups in rows]
    widths = [
        max(len(place), *(len(labels[i]) for labels in shown if len(labels) > i))
        for i, place in enumerate(PLACES[: max(map(len, shown))])
    ]
    # where the line would be too long, the bound over the time is shown of the fastest only
    wide = len("#") + 16 + sum(widths) + len(widths) * 16 <= WIDTH
    head, units = f"#{'size':>7} {'bound':>8}", f"#{'':>7} {'(us)':>8}"
    for i, (place, width) in enumerate(zip(PLACES, widths, strict=False)):
        head += f"  {place:<{width}} {'time':>7}" + (f" {'eff.':>5}" if wide or not i else "")
        units += f"  {'':<{width}} {'(us)':>7}" + (f" {'(%)':>5}" if wide or not i else "")
    print(f"{head}\n{units}")
    for (size, groups), labels in zip(rows, shown, strict=True):
        line = f"{format_size(size):>8} " + (f"{us(groups[0][0][1].bound):>8}" if groups else f"{'N/A':>8}")
        for i, (label, width) in enumerate(zip(labels, widths, strict=False)):
            result = groups[i][0][1]
            line += f"  {label:<{width}} {us(result.time):>7}"
            line += f" {100 * result.efficiency:>5.1f}" if wide or not i else ""
        print(line.rstrip())
    if arguments.all:
        _print_factors(found)
    print("#")
    if any(" +" in label for labels in shown for label in labels):
        note("+n", "n more algorithms take the same time, within 0.01 %")
    note("fastest", in_words(found))
    by_reason: dict[str, list[str]] = {}
    for name, reason in found.unfit.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        note("unfit", f"{', '.join(names)}: {reason}")
    if not arguments.all and len(found.results) > len(PLACES):
        note("all", "how much longer each of the others takes is shown with --all, everything with --json")


def _groups(found: Comparison, size: int, lead: str | None) -> list[Group]:
    """Join what takes the same time; the algorithm that leads over most sizes comes first in its group."""
    groups: list[Group] = []
    for name, result in found.ranking(size):
        if not groups or result.time_ps > groups[-1][0][1].time_ps * (1 + ALIKE):
            groups.append([])
        groups[-1].append((name, result))
    return [sorted(group, key=lambda item: item[0] != lead) for group in groups]


def _label(group: Group) -> str:
    return group[0][0] + (f" +{len(group) - 1}" if len(group) > 1 else "")


def _print_factors(found: Comparison) -> None:
    """Print how many times as long as the fastest each algorithm takes, a row an algorithm."""
    factors: dict[str, dict[int, float]] = {name: {} for name in found.results}
    for size in found.sizes:
        ranking = found.ranking(size)
        for name, result in ranking:
            factors[name][size] = result.time_ps / ranking[0][1].time_ps if ranking[0][1].time_ps else 1.0

    def place(name: str) -> tuple[float, int, float, str]:
        """Put those first that are the fastest somewhere, by where, then the others by how near they come."""
        best = min(factors[name].values())
        somewhere = next(size for size, factor in factors[name].items() if factor <= best * (1 + ALIKE))
        return (best, 0, 0.0, name) if best > 1 + ALIKE else (1, somewhere, sum(factors[name].values()), name)

    order = sorted(factors, key=place)
    width = max(map(len, order))
    print("#\n# times the time of the fastest:")
    for start in range(0, len(found.sizes), COLUMNS):
        part = found.sizes[start : start + COLUMNS]
        print(f"#{'':<{width}} " + "".join(f"{short(size):>5}" for size in part))
        for name in order:
            print(f"  {name:<{width}}" + "".join(f"{_factor(factors[name].get(size)):>5}" for size in part))


def _factor(factor: float | None) -> str:
    if factor is None:
        return "-"
    if factor < 9.995:
        return f"{factor:.2f}" if factor > 1 + ALIKE else "1"
    return f"{factor:.0f}" if factor < 999.5 else ">999"


def short(size: int) -> str:
    """Return a size as nccl-tests takes it."""
    return format_size(size).removesuffix("B").removesuffix("i")


def in_words(found: Comparison) -> str:
    """Return the crossovers in plain words.

    Examples
    --------
    >>> import collsim
    >>> topo = collsim.topology.switch(8, bandwidth="50GB/s", latency="1us")
    >>> in_words(collsim.compare("all_reduce", topo, [2**k for k in range(10, 31)], algorithms=["ring", "tree"]))
    'up to 256KiB: tree; from 512KiB: ring'
    """
    spans = found.crossovers()
    words = []
    for i, (first, last, name) in enumerate(spans):
        if len(spans) == 1:
            where = "at all sizes" if len(found.sizes) > 1 else f"at {format_size(first)}"
        elif i == 0:
            where = f"up to {format_size(last)}"
        elif i == len(spans) - 1:
            where = f"from {format_size(first)}"
        else:
            where = format_size(first) + (f" to {format_size(last)}" if first != last else "")
        equal = ", ".join(as_fast(found, first, last, name))
        words.append(f"{where}: {name}" + (f" (and as fast {equal})" if equal else ""))
    return "; ".join(words)


def as_fast(found: Comparison, first: int, last: int, name: str) -> list[str]:
    """Return the algorithms that are as fast as one at all sizes of a range."""
    best = [found.best(size) for size in found.sizes if first <= size <= last]
    return [other for other in best[0] if other != name and all(other in names for names in best)]


def us(seconds: float) -> str:
    """Return microseconds in seven characters (more from ten seconds on), as ``run`` prints them."""
    us = seconds * 1e6
    if us >= 9999.95:
        return f"{us:.0f}"
    return f"{us:.1f}" if us >= 99.995 else f"{us:.2f}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def note(label: str, text: str) -> None:
    """Print a note below a table."""
    indent = "#" + " " * 10
    lines = textwrap.wrap(text, WIDTH - len(indent), break_long_words=False, break_on_hyphens=False)
    print(f"# {label:<9}{lines[0]}")
    for line in lines[1:]:
        print(f"{indent}{line}")


def _document(found: Comparison, arguments: argparse.Namespace, measured: Measured | None) -> dict[str, Any]:
    given: dict[str, Any] = {} if arguments.plot is None else {"plot": arguments.plot}
    if measured is not None:
        from collsim.cli.measured import document

        given["measured"] = document(found, measured)

    def fields(size: int, name: str, result: Result) -> dict[str, Any]:
        if measured is None:
            return _fields(name, result)
        return {**_fields(name, result), "error": result.time / measured.rows[size].time - 1}

    root = int(arguments.root) if measured is None else measured.root
    return {
        "topology": found.topology.name,
        "operation": found.operation,
        "network": found.network,
        "ranks": found.topology.n_ranks,
        "datatype": arguments.datatype if measured is None else measured.dtype,
        **({"root": root} if found.operation in ROOTED else {}),
        **given,
        "parameters": {name: _parameters(by_size) for name, by_size in found.results.items()},
        "results": [
            {"size": size, "ranking": [fields(size, name, result) for name, result in found.ranking(size)]}
            for size in found.sizes
        ],
        "crossovers": [
            {"first": first, "last": last, "algorithm": name, "as_fast": as_fast(found, first, last, name)}
            for first, last, name in found.crossovers()
        ],
        "unfit": dict(found.unfit),
    }


def _parameters(by_size: Any) -> dict[str, Any]:
    """Parameters of a schedule, but for tables that JSON cannot hold."""
    given = next(iter(by_size.values())).schedule.parameters
    return {key: value for key, value in given.items() if isinstance(value, (int, float, str, list, tuple))}


def _fields(name: str, r: Result) -> dict[str, Any]:
    return {
        "algorithm": name,
        "time_us": r.time * 1e6,
        "algbw_GBps": r.algbw / 1e9,
        "busbw_GBps": r.busbw / 1e9,
        "theory_us": None if r.theory is None else float(r.theory) * 1e6,
        "theory_holds": None if r.theory is None else r.theory.holds,
        "bound_us": float(r.bound) * 1e6,
        "efficiency": r.efficiency,
        "transfers": r.transfers,
        "engine": r.engine,
        "shortcut": r.shortcut or None,
    }
