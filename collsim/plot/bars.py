"""The bars of a timeline: where each transfer is drawn, before anything is drawn."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError
from collsim.units import format_time

if TYPE_CHECKING:
    from collsim.engine.result import Result

__all__ = ["KINDS", "Bars", "collect", "corners", "join", "sample", "values_of"]

Array = npt.NDArray[Any]

MOST_BARS = 200_000  # above this neighbours that share a sliver of the picture are joined: they could not be told apart
REDUCE_HEIGHT, COPY_HEIGHT = 0.9, 0.5  # of a lane
KINDS = ("reduce", "copy", "local copy")


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


def collect(result: Result, rows: str, colour: str, window: tuple[int, int] | None = None) -> tuple[Bars, list[str]]:
    """Return the bars of a run, those within a window of picoseconds if one is given, and the names of their rows."""
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
    value, chunk, reduce = values_of(result, colour)[transfer], records["chunk"][transfer], records["reduce"][transfer]
    row, start, end = (np.asarray(column, dtype=np.int64) for column in (row, start, end))
    span = int(end.max())
    bars = Bars(row, start, end, value, chunk, reduce, np.zeros_like(row))
    if window is not None:
        lo, hi = window
        bars = bars.take((start <= hi) & (end >= lo) & ((end > lo) | (start == end)) & ((start < hi) | (start == end)))
        span = hi - lo
        if not len(bars.row):
            raise InputError(
                f"timeline: nothing to draw, no transfer is under way from {format_time(lo)} to {format_time(hi)} "
                f"(the run takes {format_time(result.time_ps)})"
            )
    return replace(bars, lane=_lanes(bars.row, bars.start, bars.end, span // 4000)), names


def values_of(result: Result, colour: str) -> Array:
    """Return by transfer the number that its colour stands for."""
    records = result.records
    if colour == "kind":
        return np.where(records["src"] == records["dst"], 2, np.where(records["reduce"], 0, 1))
    if colour == "critical":
        on_path = np.zeros(len(records["src"]), dtype=np.int64)
        on_path[list(result.critical_path.transfers)] = 1
        return on_path
    return records[colour]


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


def join(bars: Bars, lanes: Array, *, keep_greatest: bool = False) -> Bars:
    """Join bars of a lane that begin in the same sliver of time, if there are too many to be seen one by one.

    The value of joined bars is that of the first, or the greatest.
    """
    if len(bars.row) <= MOST_BARS:
        return bars
    slivers = max(1, MOST_BARS // int(lanes.sum()))
    first = int(bars.start.min())
    width = max(1, -(-(int(bars.end.max()) - first) // slivers))
    place = (np.cumsum(lanes) - lanes)[bars.row] + bars.lane
    key = place * (slivers + 1) + (bars.start - first) // width
    order = np.lexsort((bars.start, key))
    heads = np.flatnonzero(np.diff(key[order], prepend=-1))
    latest = np.maximum.reduceat(bars.end[order], heads)
    found = replace(bars.take(order[heads]), end=latest)
    return replace(found, value=np.maximum.reduceat(bars.value[order], heads)) if keep_greatest else found


def sample(bars: Bars, rows: int, most: float, keep: Array | None = None) -> tuple[Bars, int]:
    """Return the bars of every k-th row where there are more rows than can be drawn side by side, and k.

    It is odd, since what ranks do often goes by powers of two. Bars to keep are there whatever their row.
    """
    every = max(1, -(-rows // max(1, int(most))))
    if every == 1:
        return bars, 1
    every |= 1
    chosen = bars.row % every == 0
    return bars.take(chosen if keep is None else chosen | keep), every


def corners(bars: Bars, lanes: Array, span: int, unit: int, point: float, *, thin: bool, every: int = 1) -> Array:
    """Return the corners of the bars, shaped (bars, 4, 2), in the unit of the axis and rows.

    Where only every k-th row is drawn, each takes the room of k.

    Rows too thin for gaps fill up: gaps below a pixel would give stripes that are not in the data. No bar is less than
    a point tall.
    """
    lane_height = (1.0 if thin else 0.86) * every / lanes[bars.row]
    middle = bars.row + (every - 1) / 2 + (bars.lane + 0.5 - lanes[bars.row] / 2) * lane_height
    share = 1.0 if thin else np.where(bars.reduce, REDUCE_HEIGHT, COPY_HEIGHT)
    half = np.maximum(lane_height * share, point) / 2
    left = bars.start / unit
    right = np.maximum(bars.end, bars.start + span / 2000) / unit  # the shortest is still a visible line
    xs = np.stack([left, left, right, right], axis=-1)
    ys = np.stack([middle - half, middle + half, middle + half, middle - half], axis=-1)
    return np.stack([xs, ys], axis=-1)
