"""What ``collsim compare --measured`` takes of a log of nccl-tests, and how far from it the simulated times are."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from collsim.collective import ROOTED, Collective
from collsim.engine.compare import Comparison
from collsim.engine.result import Result
from collsim.engine.simulate import DTYPES
from collsim.errors import InputError
from collsim.formats.nccl_tests import NcclTests, Table, read_nccl_tests
from collsim.topology import Topology
from collsim.units import format_size, parse_nccl_size

__all__ = [
    "Measured",
    "Row",
    "bands_of",
    "curves_of",
    "document",
    "error_of",
    "errors_of",
    "read_measured",
    "spread_of",
]

LARGEST = 1 << 50
MOST_SIZES = 1000
"""Every algorithm is simulated at every size."""
BANDS = ((1 << 16, "up to 64KiB"), (1 << 24, "to 16MiB"), (1 << 29, "to 512MiB"), (LARGEST, "above"))
NEAREST = 3
"""Algorithms that are shown beside the fastest if none are chosen."""
MOST_CURVES = 8

SHORTEST, LONGEST = 1e-12, 1e9
"""Seconds between which a time can have been measured."""


@dataclass(frozen=True)
class Row:
    """What was measured at a size: seconds and bytes/s, medians where the size occurs several times."""

    time: float
    busbw: float
    times: int


@dataclass(frozen=True)
class Measured:
    """The rows of a log that a comparison takes.

    Attributes
    ----------
    log, tables
        The log and the tables of it that fit.
    in_place
        Whether these are the times in place.
    rows, other
        By size, ascending; the same for the other place, where it was measured.
    type_, dtype, redop, root
        Type in the log, the one that is simulated (of as many bytes), reduction and root of the rows.
    wrong
        Sizes of which the log counts wrong values.
    """

    log: NcclTests
    tables: tuple[Table, ...]
    in_place: bool
    rows: dict[int, Row]
    other: dict[int, Row]
    type_: str
    dtype: str
    redop: str
    root: int
    wrong: tuple[int, ...]

    @property
    def points(self) -> list[tuple[int, float]]:
        """(bytes, bytes/s of busbw), for the plot."""
        return [(size, row.busbw) for size, row in self.rows.items()]


def read_measured(arguments: argparse.Namespace, operation: str, topology: Topology) -> Measured:
    """Return the rows of the log that ``--measured`` names, of one operation on as many ranks as a machine has.

    Raises
    ------
    InputError
        If there are none, saying what there is.
    """
    if arguments.stepfactor != "2":
        raise InputError("-f: with --measured the sizes are those of the log; leave it out")
    low, high = _limit("-b", arguments.minbytes, 1), _limit("-e", arguments.maxbytes, LARGEST)
    if high < low:
        raise InputError(f"-e: expected at least the {low:,} bytes of -b, got {high:,}")
    log = read_nccl_tests(arguments.measured)
    tables = _fitting(log, operation, topology)
    columns = {name: np.concatenate([table.columns[name] for table in tables]) for name in tables[0].columns}
    taken = np.ones(len(columns["size"]), dtype=bool)
    type_ = _one("type", columns, taken, arguments.datatype, log.name)
    redop = _one("redop", columns, taken, "sum", log.name)
    root = _one("root", columns, taken, int(arguments.root), log.name) if operation in ROOTED else -1
    dtype = _simulated(type_)
    sizes = columns["size"]
    taken &= (sizes >= max(low, DTYPES[dtype])) & (sizes <= high)
    in_place = arguments.in_place or not _timed(columns, taken, "").any()
    factor = Collective(operation, topology.n_ranks).busbw_factor
    rows, other = (_rows(columns, taken, suffix, factor) for suffix in ("_in_place", "")[:: 1 if in_place else -1])
    if not rows:
        what = "with a time" + (" in place" if arguments.in_place else "")
        spans = f"from {format_size(int(sizes.min()))} to {format_size(int(sizes.max()))}"
        raise InputError(
            f"{log.name}: expected rows {what} between -b and -e, got none; the sizes of the log go {spans}"
        )
    if len(rows) > MOST_SIZES:
        raise InputError(f"{log.name}: expected at most {MOST_SIZES:,} sizes, got {len(rows):,}; give -b and -e")
    wrong = columns["wrong_in_place" if in_place else "wrong"] >= 1  # old versions print the greatest error
    return Measured(
        log, tuple(tables), in_place, rows, other, type_, dtype, redop, max(root, 0),
        tuple(sorted({int(size) for size in sizes[taken & wrong]})),
    )  # fmt: skip


def _limit(flag: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    try:
        size = parse_nccl_size(text)
    except InputError as error:
        raise InputError(f"{flag}: {error}") from None
    if not 0 < size <= LARGEST:
        raise InputError(f"{flag}: expected a size from 1 byte to 1 PiB, got {text!r}")
    return size


def _fitting(log: NcclTests, operation: str, topology: Topology) -> list[Table]:
    """Return the tables of an operation on the ranks of a machine."""
    tables, ranks = log.tables_of(operation), topology.n_ranks
    found = [table for table in tables if table.ranks == ranks] or [table for table in tables if table.ranks is None]
    if not found:
        there = sorted({table.ranks for table in tables if table.ranks is not None})
        remedy = f"give the topology of the machine that was measured, or a log of {ranks} ranks"
        if there == [1]:
            remedy = "each process measured by itself: build nccl-tests with MPI=1, or start one with -g"
        at = f"{log.name}:{tables[0].line}" if tables[0].line else log.name
        raise InputError(
            f"{at}: expected {ranks} ranks, as {topology.name} has, got {' and '.join(map(str, there[:8]))}; {remedy}"
        )
    return found


def _one(name: str, columns: dict[str, Any], taken: Any, wanted: Any, log: str) -> Any:
    """Keep the rows of one type, reduction or root: that of all, or the wanted one of several."""
    there = np.unique(columns[name][taken]).tolist()
    if not there:
        return wanted
    value = there[0] if len(there) == 1 else wanted
    if value not in there:
        flag = {"type": "; give -d", "root": "; give -r"}.get(name, "")
        raise InputError(f"{log}: expected rows of {name} {wanted}, got {', '.join(map(str, there))}{flag}")
    taken &= columns[name] == value
    return value


def _simulated(type_: str) -> str:
    """Return a type that collsim knows and that has as many bytes (reductions of all types take the same time)."""
    if type_ in DTYPES:
        return type_
    return {"int": "int32", "char": "int8"}.get(type_, "float" if not type_ else "uint8")


def _timed(columns: dict[str, Any], taken: Any, suffix: str) -> Any:
    with np.errstate(invalid="ignore"):
        time = columns["time" + suffix]
        return taken & (time > SHORTEST) & (time < LONGEST)


def _rows(columns: dict[str, Any], taken: Any, suffix: str, factor: float) -> dict[int, Row]:
    kept = _timed(columns, taken, suffix)
    found: dict[int, list[tuple[float, float]]] = {}
    for size, time, busbw in zip(
        *(columns[name][kept].tolist() for name in ("size", "time" + suffix, "busbw" + suffix)), strict=True
    ):
        found.setdefault(size, []).append((time, busbw if math.isfinite(busbw) else size / time * factor))
    return {
        size: Row(median(time for time, _ in rows), median(busbw for _, busbw in rows), len(rows))
        for size, rows in sorted(found.items())
    }


def error_of(result: Result, row: Row) -> float:
    """Return simulated over measured time, less one."""
    return result.time / row.time - 1


def errors_of(found: Comparison, measured: Measured) -> dict[str, dict[int, float]]:
    """Return the errors by algorithm and size, the fastest at each size first, then by their median."""
    fastest = {size: found.ranking(size)[0][1] for size in found.sizes if found.ranking(size)}
    by_name = {
        name: {size: error_of(result, measured.rows[size]) for size, result in results.items()}
        for name, results in found.results.items()
    }
    order = sorted(by_name, key=lambda name: (median(map(abs, by_name[name].values())), name))
    first = {size: error_of(result, measured.rows[size]) for size, result in fastest.items()}
    return {"fastest": first} | {name: by_name[name] for name in order}


def curves_of(found: Comparison, measured: Measured, chosen: str | None) -> Any:
    """Return what is drawn: all chosen algorithms, else those that are the fastest somewhere and the nearest ones."""
    if chosen is not None:
        return found
    best = [found.ranking(size)[0][0] for size in found.sizes if found.ranking(size)]
    names = [*dict.fromkeys(best), *list(errors_of(found, measured))[1 : NEAREST + 1]]
    return {name: list(found.results[name].values()) for name in list(dict.fromkeys(names))[:MOST_CURVES]}


def bands_of(sizes: Any) -> dict[str, list[int]]:
    """Return the sizes of each band that has some."""
    found: dict[str, list[int]] = {}
    for size in sizes:
        found.setdefault(next(label for most, label in BANDS if size <= most), []).append(size)
    return found


def spread_of(errors: dict[int, float], sizes: Sequence[int]) -> tuple[float, float] | None:
    """Return median and 90th percentile of the absolute errors of some sizes."""
    known = [abs(errors[size]) for size in sizes if size in errors]
    return (float(np.median(known)), float(np.percentile(known, 90))) if known else None


def document(found: Comparison, measured: Measured) -> dict[str, Any]:
    """Return what JSON has of the log, and a summary of the errors (parts of the measured time)."""
    table, errors, bands = measured.tables[0], errors_of(found, measured), bands_of(measured.rows)

    def summary(by_size: dict[int, float]) -> dict[str, Any]:
        spreads = {label: (spread_of(by_size, sizes), len(sizes)) for label, sizes in bands.items()}
        return {
            label: {"sizes": number, "median": spread[0], "p90": spread[1]}
            for label, (spread, number) in spreads.items()
            if spread is not None
        }

    return {
        "log": measured.log.name,
        "tables": [table.number for table in measured.tables],
        "in_place": measured.in_place,
        "type": measured.type_,
        "redop": measured.redop or None,
        "ranks": table.ranks,
        "devices": [vars(device) for device in table.devices],
        "versions": dict(table.versions),
        "header": dict(table.header),
        "skipped": measured.log.skipped,
        "results": [
            {
                "size": size, "time_us": row.time * 1e6, "busbw_GBps": row.busbw / 1e9, "times": row.times,
                "other_place": None if size not in measured.other else {
                    "time_us": measured.other[size].time * 1e6, "busbw_GBps": measured.other[size].busbw / 1e9,
                },
            }
            for size, row in measured.rows.items()
        ],
        "absolute_errors": {name: summary(by_size) for name, by_size in errors.items()},
    }  # fmt: skip
