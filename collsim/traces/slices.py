"""What a run is drawn as: who is busy with which transfer, from when to when, and on which track."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.engine.program import LINK, REDUCER

if TYPE_CHECKING:
    from collsim.engine.result import Result

__all__ = ["DIRECTIONS", "NANO", "Slices", "Tracks", "lanes", "of_links", "of_ranks", "ticks"]

Array = npt.NDArray[Any]

NANO = 1000
"""Picoseconds of a nanosecond."""

DIRECTIONS = ("send", "receive", "reduce", "copy")
"""What an endpoint does; ``copy`` is a transfer to itself, which crosses no link."""


@dataclass(frozen=True, eq=False)
class Slices:
    """Columns of slices, times in picoseconds; each is of a transfer and belongs to an owner (an endpoint or link)."""

    transfer: Array
    owner: Array
    start: Array
    end: Array

    @classmethod
    def of(cls, transfer: Array, owner: Array, start: Array, end: Array) -> Slices:
        """Return slices with the numbers of transfers and owners in four bytes: a run with records has fewer."""
        return cls(transfer.astype(np.int32), owner.astype(np.int32), start, end)

    def take(self, which: Array) -> Slices:
        """Return some of the slices."""
        return Slices(self.transfer[which], self.owner[which], self.start[which], self.end[which])


@dataclass(frozen=True, eq=False)
class Tracks:
    """Tracks of slices: each (owner, channel, direction) has as many lanes as it needs.

    Attributes
    ----------
    owner, channel, direction, lane
        Columns of the tracks, sorted by these; ``direction`` is a number in `DIRECTIONS`.
    of
        By direction: the track of each slice.
    """

    owner: Array
    channel: Array
    direction: Array
    lane: Array
    of: tuple[Array, ...]

    @cached_property
    def crowded(self) -> Array:
        """Whether each track has company: another lane of the same owner, channel and direction."""
        same = np.zeros(len(self.owner), dtype=bool)
        further = self.lane > 0
        same[further] = True
        same[np.flatnonzero(further) - self.lane[further]] = True
        return same

    def name(self, track: int) -> str:
        """Return what a track is called: ``channel 0 send``, and which lane where there are several."""
        lane = f", lane {self.lane[track]}" if self.crowded[track] else ""
        return f"channel {self.channel[track]} {DIRECTIONS[self.direction[track]]}{lane}"

    @classmethod
    def lay(cls, groups: tuple[Slices, ...], channels: Array, scale: int = 1) -> Tracks:
        """Lay out groups of slices (one a direction) on tracks.

        Parameters
        ----------
        groups
            The slices of each direction.
        channels
            The channel of each transfer.
        scale
            By how much times are stretched before they are written.
        """
        many = int(channels.max(initial=0)) + 1
        keys, laid = [], []
        for direction, group in enumerate(groups):
            row = group.owner.astype(np.int64) * many + channels[group.transfer]
            keys.append(row * len(groups) + direction)
            laid.append(lanes(row, ticks(group.start, scale), ticks(group.end, scale)))
        most = max(int(lane.max(initial=0)) for lane in laid) + 1
        for key, lane in zip(keys, laid, strict=True):
            key *= most
            key += lane
        tracks = np.unique(np.concatenate([np.unique(key) for key in keys]))
        of = tuple(np.searchsorted(tracks, key).astype(np.int32) for key in keys)
        row = tracks // most
        place = row // len(groups)
        return cls(place // many, place % many, row % len(groups), tracks % most, of)


def of_ranks(result: Result) -> tuple[Slices, ...]:
    """Return what the endpoints of a run do, a `Slices` for each of `DIRECTIONS`.

    A rank sends from the moment when its first station (overhead, copy engine, first link) takes the transfer until the
    tail has left it on the first link. The other receives from the moment when the head leaves the last link until the
    whole message is there, and may then reduce it. (In ``fluid`` latency passes before the first byte moves.)

    Raises
    ------
    CollsimError
        If the run kept no records.
    """
    program, times = result.program, result.times
    n = program.transfers
    low, high = program.visit_ptr[:n], program.visit_ptr[1 : n + 1]
    kind = program.station_kind[program.visit_station]
    late = np.zeros_like(program.visit_latency) if result.network == "fluid" else program.visit_latency
    reduces = high > low
    reduces[reduces] = kind[high[reduces] - 1] == REDUCER
    last = high - reduces - 1  # the last station before the reducer
    moved = last >= low

    # links stand together on a route, just before the reducer
    on_link = np.concatenate([[0], np.cumsum(kind == LINK)])
    links = on_link[high] - on_link[low]
    remote = np.flatnonzero(links > 0)
    here = np.flatnonzero(links == 0)

    arrived = times.end.copy()
    arrived[reduces] = times.start[reduces]  # nothing before the reducer: it is there when the reducer takes it
    through = reduces & moved
    arrived[through] = times.visit_end[last[through]] + late[last[through]]

    first_link = (last - links + 1)[remote]
    head = times.visit_start[last[remote]] + late[last[remote]]
    reduced = np.flatnonzero(reduces)
    work = high[reduced] - 1
    return (
        Slices.of(remote, program.src[remote], times.start[remote], times.visit_end[first_link]),
        Slices.of(remote, program.dst[remote], head, arrived[remote]),
        Slices.of(reduced, program.dst[reduced], times.visit_start[work], times.visit_end[work]),
        Slices.of(here, program.src[here], times.start[here], arrived[here]),
    )


def of_links(result: Result) -> tuple[Slices, Array, Array]:
    """Return what the links of a run do, from head in to tail out.

    Returns
    -------
    Slices
        Their owners are numbers in the second array.
    numpy.ndarray
        The links of the topology that are used.
    numpy.ndarray
        By slice, the picoseconds that its bytes need.

    Raises
    ------
    CollsimError
        If the run kept no records.
    """
    program, records = result.program, result.link_records()
    used = np.unique(records["link"])
    owner = np.searchsorted(used, records["link"])
    busy = program.visit_busy[program.station_kind[program.visit_station] == LINK]
    return Slices.of(records["transfer"], owner, records["start_ps"], records["end_ps"]), used, busy


def ticks(time: Array, scale: int = 1) -> Array:
    """Return picoseconds on the clock of the trace: whole nanoseconds, which is what viewers count in.

    Finer fractions would be rounded by them, into slices that overlap. Rounded down, what was apart stays so.
    """
    return time * scale // NANO if scale > 1 else time // NANO


def lanes(row: Array, start: Array, end: Array) -> Array:
    """Give each slice the lowest lane of its row that is free when it starts.

    Slices without duration hold their lane for one tick, so that no two of a lane begin at once: viewers would put one
    into the other, and not know at which an arrow ends.

    Examples
    --------
    >>> lanes(np.array([0, 0, 0, 1]), np.array([0, 5, 9, 5]), np.array([9, 12, 20, 6])).tolist()
    [0, 1, 0, 0]
    """
    order = np.lexsort((start, row))
    of_row, first, last = row[order], start[order], end[order]
    last = np.maximum(last, first + 1)
    clash = (of_row[1:] == of_row[:-1]) & (first[1:] < last[:-1])
    lane = np.zeros(len(row), dtype=np.int32)
    for crowded in np.unique(of_row[1:][clash]):
        low, high = np.searchsorted(of_row, (crowded, crowded + 1))
        busy: list[tuple[int, int]] = []
        free: list[int] = []
        taken = []
        for begin, finish in zip(first[low:high].tolist(), last[low:high].tolist(), strict=True):
            while busy and busy[0][0] <= begin:
                heapq.heappush(free, heapq.heappop(busy)[1])
            number = heapq.heappop(free) if free else len(busy)
            heapq.heappush(busy, (finish, number))
            taken.append(number)
        lane[order[low:high]] = taken
    return lane
