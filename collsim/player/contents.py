"""What every rank holds after each transfer, as changes of the cells of a grid: ranks and switches by chunks.

Transfers are run twice on sets of contributors. In program order it is found what each one carries, for a transfer
reads what the steps before it left (receives are buffered, so what a later step writes sooner does not count). In order
of time it is found what a cell holds when a transfer has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from collsim.engine.program import Array
from collsim.schedule import Schedule
from collsim.schedule.model import INPUT, OUTPUT, SCRATCH
from collsim.schedule.moves import Places, all_moves

__all__ = ["MOST_COLUMNS", "OTHER", "WHOLE", "Contents", "contents_of"]

MOST_COLUMNS = 64
"""Columns of the grid; more chunks are put together in groups."""
WHOLE = 1000
"""The level of a cell that holds all that it can."""
OTHER = -1
"""The level of a cell that holds only what is no part of a result there."""

Held = tuple[int, int, bool]  # whose contributions (a bit a rank), of which chunk, whether one counts twice
NOTHING: Held = (0, -1, False)


@dataclass(frozen=True)
class Contents:
    """The cells of the grid and how they change; a cell is ``row * columns + column``.

    Attributes
    ----------
    rows, columns
        Ranks, then places; groups of chunks, then groups of scratch chunks.
    first, scratch_first
        First chunk of each column, with the number of chunks at the end; the same for scratch.
    sets
        Sets of ranks as numbers with a bit a rank.
    start, goal
        By cell: [level, set] at time 0 (set -1: several chunks), and whether the rank must hold it at the end.
    changes
        In order of time: (transfer, cell, level, set).
    carried
        By transfer: the set that all its chunks carry, or -1.
    """

    rows: int
    columns: int
    first: list[int]
    scratch_first: list[int]
    sets: list[int]
    start: list[tuple[int, int]]
    goal: list[int]
    changes: list[tuple[int, int, int, int]]
    carried: list[int]


def contents_of(schedule: Schedule, ends: Array) -> Contents:
    """Follow what every rank holds.

    Parameters
    ----------
    schedule
        What was run.
    ends
        Picoseconds at which each transfer has ended, in program order.

    Returns
    -------
    Contents
        Cells, and their changes in order of time.

    Examples
    --------
    >>> from collsim.algorithms import ring_all_reduce
    >>> schedule = ring_all_reduce(2)
    >>> found = contents_of(schedule, np.array([5, 5, 9, 9]))
    >>> found.start, found.goal
    ([(500, 0), (500, 0), (500, 1), (500, 1)], [1, 1, 1, 1])
    >>> found.changes[0]  # transfer 0 brings the other half of chunk 1 to rank 1
    (0, 3, 1000, 2)
    """
    return _Grid(schedule).run(ends)


class _Grid:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.places = schedule, Places(schedule, np.arange(schedule.chunks))
        self.sets: dict[int, int] = {}
        self.hears = schedule.collective.operation == "barrier"
        self.begin = self._start()
        self._columns()

    def _start(self) -> list[Held]:
        """Return what each place holds at time 0."""
        schedule, ranks = self.schedule, self.schedule.ranks
        rank, chunk = np.indices((ranks, schedule.chunks))
        provided = schedule.collective.provides(rank, schedule.place_of(chunk), schedule.chunks)
        held = [NOTHING] * self.places.size
        places = self.places.of(rank, np.full_like(rank, OUTPUT if schedule.in_place else INPUT), chunk)
        columns = (column[provided].tolist() for column in (places, rank, chunk))
        for place, r, c in zip(*columns, strict=True):
            held[place] = (1 << r, c, False)
        return held

    def _columns(self) -> None:
        """Find which cell each place belongs to, what it must hold, and how much a cell can hold."""
        schedule, places, ranks = self.schedule, self.places, self.schedule.ranks
        self.rows = schedule.endpoints
        data = 1 if self.hears else min(schedule.chunks, MOST_COLUMNS)
        uses = self._uses_scratch()
        scratch = min(schedule.scratch, MOST_COLUMNS) if uses and not self.hears else 0
        self.columns = data + scratch
        self.first = [-(-i * schedule.chunks // data) for i in range(data + 1)]
        self.scratch_first = [-(-i * schedule.scratch // scratch) for i in range(scratch + 1)] if scratch else []
        place = np.arange(places.size)
        end, inside = place // places.per_end, place % places.per_end
        in_output, in_scratch = inside < schedule.chunks, inside >= places.base[2]
        column = np.where(in_output, inside * data // schedule.chunks, -1)
        view = place
        if schedule.scratch and not self.hears:
            number = inside - places.base[2]
            if scratch:
                by_scratch = data + number * scratch // schedule.scratch
            else:  # only switches have some: a cell shows what came last, on the way up or on the way down
                by_scratch = np.where(number < schedule.chunks, number * data // schedule.chunks, -1)
                view = np.where(in_scratch, place - number + number % schedule.chunks, place)
            column = np.where(in_scratch & ((end >= ranks) | (scratch > 0)), by_scratch, column)
        column = np.where((end >= ranks) & ~in_scratch, -1, column)  # switches have scratch only
        self.view = view.tolist()
        self.cell = np.where(column >= 0, end * self.columns + column, -1).tolist()
        self.goal, self.wanted = self._goals()
        cells = self.rows * self.columns
        self.alone = np.bincount([c for c in self.cell if c >= 0], minlength=cells) == 1
        self.can: list[int] = [0] * cells
        # of a group of chunks some of which must be there, only those count
        self.counts = [
            cell >= 0 and (want is not None or not self.goal[cell])
            for cell, want in zip(self.cell, self.wanted, strict=True)
        ]
        for cell, counts in zip(self.cell, self.counts, strict=True):
            self.can[cell] += self.whole if counts else 0
        if self.hears:
            self.can = [ranks] * cells
            self.alone[:] = True

    def _uses_scratch(self) -> bool:
        """Whether ranks write into scratch."""
        blocks = [phase.block for phase in self.schedule.phases]
        return any(bool(((b.dst_buffer == SCRATCH) & (b.dst < self.schedule.ranks)).any()) for b in blocks)

    @cached_property
    def whole(self) -> int:
        """Contributions of a chunk that is complete."""
        return self.schedule.ranks if self.schedule.collective.reduces or self.hears else 1

    def _goals(self) -> tuple[list[int], list[tuple[int, int] | None]]:
        """Return by cell whether something must be there at the end, and by place the (set, chunk) that must be."""
        schedule, collective = self.schedule, self.schedule.collective
        ranks, chunks, order = schedule.ranks, schedule.chunks, schedule.order
        rank, chunk = np.indices((ranks, chunks))
        place = schedule.place_of(chunk)
        must = collective.requires(rank, place, chunks)
        places = self.places.of(rank, np.full_like(rank, OUTPUT), chunk)
        goal = [0] * (self.rows * self.columns)
        wanted: list[tuple[int, int] | None] = [None] * self.places.size
        everybody = (1 << ranks) - 1
        if collective.reduces or self.hears:
            expected: list[Any] = [(everybody, c) for c in chunk[must].tolist()]
        else:
            source, source_place = collective.source(rank, place, chunks)
            chunk_at = np.arange(chunks)
            if order is not None:
                chunk_at[np.asarray(order)] = np.arange(chunks)
            pairs = zip(source[must].tolist(), chunk_at[source_place[must]].tolist(), strict=True)
            expected = [(1 << s, c) for s, c in pairs]
        for number, want in zip(places[must].tolist(), expected, strict=True):
            goal[self.cell[number]] = 1
            wanted[number] = want
        return goal, wanted

    def _share(self, place: int, held: Held) -> int:
        """Return how much of what a place can hold it does hold; `OTHER` if it is something else."""
        who, chunk, twice = held
        if not who or not self.counts[place]:
            return 0
        want = self.wanted[place]
        if self.whole > 1:
            right = not twice and (want is None or chunk == want[1])
            return who.bit_count() if right else OTHER
        return (1 if not twice else OTHER) if want is None else 1 if (who, chunk) == want else OTHER

    def _set(self, who: int) -> int:
        return self.sets.setdefault(who, len(self.sets))

    def run(self, ends: Array) -> Contents:
        """Run all transfers."""
        entries, carried = self._carried()
        times = ends.tolist()
        # of two that end together the lower number was the first; chunks of a transfer stay in order
        entries.sort(key=lambda entry: (times[entry[0]], entry[0]))
        held = list(self.begin)
        shown = list(self.begin)
        right, other = [0] * len(self.can), [0] * len(self.can)

        def put(place: int, value: Held, sign: int) -> None:
            share, cell = self._share(place, value), self.cell[place]
            if share > 0:
                right[cell] += sign * share
            elif share == OTHER:
                other[cell] += sign

        def level(cell: int) -> int:
            if right[cell] > 0:
                return max(1, right[cell] * WHOLE // self.can[cell])
            return OTHER if other[cell] else 0

        known = [1 << (cell // self.columns) for cell in range(len(self.can))]
        if self.hears:
            right = [who.bit_count() for who in known]
            start = [(level(cell), self._set(known[cell])) for cell in range(len(self.can))]
        else:
            for place, value in enumerate(held):
                if self.cell[place] >= 0:
                    put(place, value, 1)
            start = [(level(cell), self._set(0) if self.alone[cell] else -1) for cell in range(len(self.can))]
            for place, value in enumerate(held):
                cell = self.cell[place]
                if cell >= 0 and self.alone[cell]:
                    start[cell] = (start[cell][0], self._set(value[0]))
        changes = []
        for transfer, place, value, reduces in entries:
            after = _sum(held[place], value, self.hears) if reduces else value
            held[place], seen = after, self.view[place]
            cell = self.cell[seen]
            if cell >= 0 and self.hears:
                known[cell] |= after[0]
                right[cell] = known[cell].bit_count()
                changes.append((transfer, cell, level(cell), self._set(known[cell])))
            elif cell >= 0:
                put(seen, shown[seen], -1)
                put(seen, after, 1)
                shown[seen] = after
                changes.append((transfer, cell, level(cell), self._set(after[0]) if self.alone[cell] else -1))
        return Contents(
            self.rows, self.columns, self.first, self.scratch_first, list(self.sets), start, self.goal,
            _last_of_each(changes), carried,
        )  # fmt: skip

    def _carried(self) -> tuple[list[tuple[int, int, Held, bool]], list[int]]:
        """Run in program order: (transfer, place, what it brings, whether it adds) a chunk; and by transfer its set."""
        held = list(self.begin)
        entries: list[tuple[int, int, Held, bool]] = []
        carried: list[int] = []
        for moves in all_moves(self.schedule, self.places, False):
            brought = [held[place] for place in moves.src.tolist()]
            destination, reduces = moves.dst.tolist(), np.broadcast_to(moves.reduce, moves.dst.shape).tolist()
            borders = moves.ptr.tolist()
            for row in range(len(borders) - 1):
                lo, hi = borders[row], borders[row + 1]
                sets = {value[0] for value in brought[lo:hi]}
                transfer = len(carried)
                carried.append(self._set(sets.pop()) if len(sets) == 1 else -1)
                entries += [(transfer, destination[i], brought[i], reduces[i]) for i in range(lo, hi)]
            for place, value, adds in zip(destination, brought, reduces, strict=True):
                held[place] = _sum(held[place], value, self.hears) if adds else value
        return entries, carried


def _sum(there: Held, brought: Held, hears: bool) -> Held:
    """Add what is brought to what is there; two contributions of a rank, or two chunks, are no part of any result."""
    if not there[0]:  # a switch starts from nothing
        return brought
    if hears:
        return (there[0] | brought[0], there[1], False)
    mixed = bool(there[0] & brought[0]) or (brought[0] > 0 and there[1] != brought[1])
    return (there[0] | brought[0], there[1], there[2] or brought[2] or mixed)


def _last_of_each(changes: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Leave one change for a transfer and cell: the last."""
    kept: dict[tuple[int, int], tuple[int, int, int, int]] = {}
    for change in changes:
        kept[change[:2]] = change
    return list(kept.values())
