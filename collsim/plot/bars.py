"""The bars of a timeline: where each transfer is drawn, before anything is drawn."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError

if TYPE_CHECKING:
    from collsim.engine.result import Result

__all__ = ["Bars", "collect", "corners", "join"]

Array = npt.NDArray[Any]

MOST_BARS = 200_000  # above this neighbours that share a sliver of the picture are joined: they could not be told apart
REDUCE_HEIGHT, COPY_HEIGHT = 0.9, 0.5  # of a lane


@dataclass(frozen=True)
class Bars:
    """Columns of the bars (times in picoseconds); ``lane`` counts from 0 within the row."""

    row: Array
    start: Array
    end: Array
    value: Array
    chunk: Array
    reduce: Array
    lane: Array

    def take(self, which: Array) -> Bars:
        """Return some of the bars."""
        return Bars(*(column[which] for column in vars(self).values()))


def collect(result: Result, rows: str, color: str) -> tuple[Bars, list[str]]:
    """Return the bars of a run and the names of their rows."""
    records = result.records
    topology = result.topology
    if rows == "rank":
        transfer = np.arange(len(records["src"]))
        row, start, end = records["src"], records["start_ps"], records["end_ps"]
        names = [*topology.ranks, *result.schedule.places]
    else:
        visits = result.link_records()
        transfer, start, end = visits["transfer"], visits["start_ps"], visits["end_ps"]
        used, row = np.unique(visits["link"], return_inverse=True)
        names = [topology.link_name(int(link)) for link in used]
    if not len(transfer):
        what = "records no transfers" if rows == "rank" else "uses no links"
        raise InputError(f"timeline: nothing to draw, the run {what} ({result.schedule!r})")
    value, chunk, reduce = (records[name][transfer] for name in (color, "chunk", "reduce"))
    row, start, end = (np.asarray(column, dtype=np.int64) for column in (row, start, end))
    slack = int(end.max()) // 4000
    return Bars(row, start, end, value, chunk, reduce, _lanes(row, start, end, slack)), names


def _lanes(row: Array, start: Array, end: Array, slack: int = 0) -> Array:
    """Give each bar the lowest lane of its row that is free when it starts.

    Bars may overlap by ``slack``, so that a picosecond of rounding does not open a lane.
    """
    end = np.maximum(end - slack, start + 1)  # bars without duration must not cover each other either
    order = np.lexsort((end, start, row))
    of_row, first, last = row[order], start[order], end[order]
    clash = (of_row[1:] == of_row[:-1]) & (first[1:] < last[:-1])
    lane = np.zeros(len(row), dtype=np.int64)
    for crowded in np.unique(of_row[1:][clash]):
        lo, hi = np.searchsorted(of_row, (crowded, crowded + 1))
        busy: list[tuple[int, int]] = []
        free: list[int] = []
        taken = []
        for begin, finish in zip(first[lo:hi].tolist(), last[lo:hi].tolist(), strict=True):
            while busy and busy[0][0] <= begin:
                heapq.heappush(free, heapq.heappop(busy)[1])
            number = heapq.heappop(free) if free else len(busy)
            heapq.heappush(busy, (finish, number))
            taken.append(number)
        lane[order[lo:hi]] = taken
    return lane


def join(bars: Bars, lanes: Array) -> Bars:
    """Join bars of a lane that begin in the same sliver of time, if there are too many to be seen one by one."""
    if len(bars.row) <= MOST_BARS:
        return bars
    slivers = max(1, MOST_BARS // int(lanes.sum()))
    width = max(1, -(-int(bars.end.max()) // slivers))
    place = (np.cumsum(lanes) - lanes)[bars.row] + bars.lane
    key = place * (slivers + 1) + bars.start // width
    order = np.lexsort((bars.start, key))
    heads = np.flatnonzero(np.diff(key[order], prepend=-1))
    latest = np.maximum.reduceat(bars.end[order], heads)
    return replace(bars.take(order[heads]), end=latest)


def corners(bars: Bars, lanes: Array, span: int, unit: int, point: float, *, thin: bool) -> Array:
    """Return the corners of the bars, shaped (bars, 4, 2), in the unit of the axis and rows.

    Rows too thin for gaps fill up: gaps below a pixel would give stripes that are not in the data. No bar is less than
    a point tall.
    """
    lane_height = (1.0 if thin else 0.86) / lanes[bars.row]
    middle = bars.row + (bars.lane + 0.5 - lanes[bars.row] / 2) * lane_height
    share = 1.0 if thin else np.where(bars.reduce, REDUCE_HEIGHT, COPY_HEIGHT)
    half = np.maximum(lane_height * share, point) / 2
    left = bars.start / unit
    right = np.maximum(bars.end, bars.start + span / 2000) / unit  # the shortest is still a visible line
    xs = np.stack([left, left, right, right], axis=-1)
    ys = np.stack([middle - half, middle + half, middle + half, middle - half], axis=-1)
    return np.stack([xs, ys], axis=-1)
