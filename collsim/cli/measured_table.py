"""``collsim compare --measured``: measured times beside simulated ones, with the errors."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

from collsim.cli.compare import WIDTH, in_words, note, short, us
from collsim.cli.measured import NEAREST, Measured, Row, bands_of, error_of, errors_of, spread_of
from collsim.collective import ROOTED
from collsim.engine.compare import Comparison
from collsim.engine.result import Result
from collsim.units import format_size

__all__ = ["print_measured"]

MOST_LINES = 8
"""Algorithms of the summary without --all."""
SIZE_COLUMNS = 12
"""Sizes of the errors of all algorithms that fit side by side."""
MODEL = (
    "simulated times are those of links, latencies and the algorithm: no launch of kernels (some us at any size), no "
    "protocols (LL, LL128), no limits of GPUs that the topology does not name; short messages measure mostly those"
)


def print_measured(found: Comparison, measured: Measured, arguments: argparse.Namespace) -> None:
    """Print the table, the summary and the notes."""
    root = f" from root {measured.root}" if found.operation in ROOTED else ""
    ranks, count = _count(found.topology.n_ranks, "rank"), _count(len(found.results), "algorithm")
    where = f"{found.topology.name}: {ranks}, {found.network} network"
    print(f"# {found.operation}{root} on {where}, {measured.dtype}; {count}")
    print("#")
    errors = errors_of(found, measured)
    chosen = None if arguments.algorithm is None else list(found.results)
    names = [name for name in errors if name != "fastest"][:NEAREST] if chosen is None else chosen
    _table(found, measured, names, with_fastest=len(found.results) > 1)
    _summary(errors, measured, everything=arguments.all or chosen is not None)
    if arguments.all:
        _all(errors, found.sizes)
    print("#")
    note("measured", _source(measured))
    for text in _remarks(measured):
        note("", text)
    note("error", "simulated / measured time - 1: below 0 the simulation is faster")
    if len(found.results) > 1:
        near = f"; beside it the {len(names)} that come nearest to what was measured, by their median errors"
        note("columns", "fastest: whichever that is at each size" + (near if chosen is None else ""))
    note("model", MODEL)
    if len(found.results) > 1:
        note("fastest", in_words(found))
    by_reason: dict[str, list[str]] = {}
    for name, reason in found.unfit.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, unfit in by_reason.items():
        note("unfit", f"{', '.join(unfit)}: {reason}")
    if not arguments.all and len(errors) > MOST_LINES and chosen is None:
        note("all", "the errors of all algorithms at each size are shown with --all, everything with --json")


def _table(found: Comparison, measured: Measured, names: Sequence[str], *, with_fastest: bool) -> None:
    """Print a line a size; algorithms that do not fit side by side follow in further blocks."""
    head = [
        f"#{'size':>7} {'measured':>17}",
        f"#{'':>7} {'time':>9} {'busbw':>7}",
        f"#{'':>7} {'(us)':>9} {'(GB/s)':>7}",
    ]
    lines = {
        size: f"{format_size(size):>8} {us(row.time):>9} {row.busbw / 1e9:>7.2f}" for size, row in measured.rows.items()
    }
    blocks: list[tuple[list[str], dict[int, str]]] = [(list(head), dict(lines))]
    if with_fastest:
        best = {size: found.ranking(size)[:1] for size in found.sizes}
        width = max([7, *(len(name) for rank in best.values() for name, _ in rank)])
        titles, cells = blocks[0]
        for i, text in enumerate((f"{'fastest':<{width}}", "", "")):
            titles[i] += (
                f"  {text:<{width}} " + (f"{'':>16}", f"{'time':>8} {'error':>7}", f"{'(us)':>8} {'(%)':>7}")[i]
            )
        for size, rank in best.items():
            name, result = rank[0] if rank else ("N/A", None)
            cells[size] += f"  {name:<{width}} " + _cell(result, measured.rows[size])
    for name in names:
        width = max(16, len(name))
        if len(blocks[-1][0][0]) + 2 + width > WIDTH:
            blocks.append((list(head), dict(lines)))
        titles, cells = blocks[-1]
        for i, text in enumerate((name, f"{'time':>8} {'error':>7}", f"{'(us)':>8} {'(%)':>7}")):
            titles[i] += f"  {text:>{width}}"
        for size in found.sizes:
            cells[size] += f"  {_cell(found.results[name].get(size), measured.rows[size]):>{width}}"
    for i, (titles, cells) in enumerate(blocks):
        if i:
            print("#")
        for line in [*titles, *cells.values()]:
            print(line.rstrip())


def _cell(result: Result | None, row: Row) -> str:
    if result is None:
        return f"{'N/A':>8} {'':>7}"
    return f"{us(result.time):>8} {_percent(error_of(result, row)):>7}"


def _percent(error: float) -> str:
    return f"{100 * error:+.1f}" if abs(error) < 99.995 else f"{100 * error:+.0f}" if abs(error) < 9999.5 else ">999999"


def _summary(errors: dict[str, dict[int, float]], measured: Measured, *, everything: bool) -> None:
    bands = bands_of(measured.rows)
    shown = list(errors) if everything else list(errors)[: MOST_LINES + 1]
    if len(errors) == 2:  # the fastest is the only one
        shown = shown[1:]
    width = max(7, *map(len, shown))
    print("#\n# |error| in %, median and 90th percentile of the sizes")
    heads = [f"{label}, {_count(len(sizes), 'size')}" for label, sizes in bands.items()]
    wide = [max(len(head), 15) for head in heads]
    print(f"#{'':<{width}} " + "".join(f"  {head:>{w}}" for head, w in zip(heads, wide, strict=True)))
    for name in shown:
        cells = []
        for sizes, w in zip(bands.values(), wide, strict=True):
            spread = spread_of(errors[name], sizes)
            text = "-" if spread is None else f"{100 * spread[0]:>7.1f} {100 * spread[1]:>7.1f}"
            cells.append(f"  {text:>{w}}")
        print(f"  {name:<{width}}" + "".join(cells))
    if len(shown) < len(errors) - 1:
        print(f"# and {len(errors) - len(shown)} more that come less near")


def _all(errors: dict[str, dict[int, float]], sizes: Sequence[int]) -> None:
    """Print the errors of all algorithms, a row an algorithm."""
    width = max(map(len, errors))
    print("#\n# error (%):")
    for start in range(0, len(sizes), SIZE_COLUMNS):
        part = sizes[start : start + SIZE_COLUMNS]
        print(f"#{'':<{width}} " + "".join(f"{short(size):>8}" for size in part))
        for name, by_size in errors.items():
            print(f"  {name:<{width}}" + "".join(f"{_percent(by_size[s]) if s in by_size else '-':>8}" for s in part))


def _source(measured: Measured) -> str:
    """Say in a line what was measured, on what, with what."""
    table = measured.tables[0]
    words = [f"{measured.log.name}: {'in place' if measured.in_place else 'out of place'}"]
    gpus = Counter(device.name for device in table.devices if device.name)
    if gpus:
        hosts = len({device.host for device in table.devices})
        listed = " and ".join(f"{number} x {name}" for name, number in gpus.most_common(2))
        words.append(f"{listed} on {_count(hosts, 'host')}")
    words += [f"{name.upper()} {table.versions[name]}" for name in ("nccl", "rccl") if name in table.versions]
    kinds = [measured.type_, measured.redop]
    words.append(" ".join(filter(None, kinds)))
    if "iterations" in table.header:
        words.append(f"{table.header['iterations']} iterations")
    return ", ".join(filter(None, words))


def _remarks(measured: Measured) -> list[str]:
    """Return what one should know of the log."""
    found = []
    if all(table.operation is None for table in measured.tables):
        found.append("the log does not say which operation it is of")
    if all(table.ranks is None for table in measured.tables):
        found.append("the log does not say how many ranks took part")
    if any("report_cputime" in table.header for table in measured.tables):
        found.append("the times are those that the CPU took to launch (-C of nccl-tests), not those of the messages")
    most = max(row.times for row in measured.rows.values())
    if most > 1:
        found.append(f"sizes occur up to {most} times in the log: medians of them")
    if measured.log.skipped:
        found.append(f"{_count(measured.log.skipped, 'row')} of the log left out: other output breaks it")
    if measured.wrong:
        found.append(f"the log counts wrong values at {', '.join(map(format_size, measured.wrong[:8]))}")
    return found


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
