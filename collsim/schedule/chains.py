"""One chunk followed through a long schedule: its moves in order, and chains of them that are done at once.

In a ring a chunk makes a move in each of 2(N-1) steps, and each move reads what the one before it wrote. Such a row of
moves is a *chain*: all add or all copy, and no place comes twice. What each move brings is then a running sum, or the
first value, so that the whole chain is a few operations on arrays instead of thousands of steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.schedule.expand import Plan, inverses, rows_of, select
from collsim.schedule.model import Repeat, Schedule, Transfers
from collsim.schedule.moves import Moves, Places

__all__ = ["Visits"]

Array = npt.NDArray[Any]


class Visits:
    """The moves of single chunks of a schedule whose rows all move chunks to the same place.

    What does not depend on the chunk is worked out once for all chunks.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.phases = [_Phase(phase, schedule.chunks) for phase in schedule.phases]

    def of(self, chunk: int, places: Places) -> list[Moves]:
        """Return the moves of a chunk in program order, as chains where they are some, else step by step."""
        parts, first_step = [], 0
        for phase in self.phases:
            step, row = phase.visits(chunk)
            block = phase.block
            ends = [
                places.of(end[row], buffer[row], np.array(chunk))
                for end, buffer in ((block.src, block.src_buffer), (block.dst, block.dst_buffer))
            ]
            parts.append((first_step + step, *ends, block.reduce[row]))
            first_step += phase.steps
        step, src, dst, reduce = (np.concatenate(column) for column in zip(*parts, strict=True))
        return list(self._cut(chunk, step, src, dst, reduce))

    def _cut(self, chunk: int, step: Array, src: Array, dst: Array, reduce: Array) -> Iterator[Moves]:
        # a step of several moves, and a move from a place to itself, are no part of a chain
        together = step[1:] == step[:-1]
        apart = src == dst
        apart[1:] |= together
        apart[:-1] |= together
        linked = (dst[:-1] == src[1:]) & (reduce[1:] == reduce[:-1]) & ~apart[1:] & ~apart[:-1]
        borders = [*(np.flatnonzero(~(linked | together)) + 1).tolist(), len(step)] if len(step) else []
        for lo, hi in pairwise([0, *borders]):
            is_chain = not apart[lo]
            pieces = _pieces(np.append(src[lo], dst[lo:hi])) if is_chain else [0, hi - lo]
            for start, end in pairwise(pieces):
                some = slice(lo + start, lo + end)
                adds = int(reduce[some].sum())
                yield Moves(
                    src[some],
                    dst[some],
                    reduce[some],
                    None if 0 < adds < end - start else adds > 0,
                    is_chain,
                    np.arange(end - start + 1),
                    partial(_written_out, self.schedule, chunk, some),
                    is_chain,
                )


def _written_out(schedule: Schedule, chunk: int, some: slice) -> Transfers:
    return rows_of(select(schedule, np.array([chunk])), some.start, some.stop)


def _pieces(way: Array) -> list[int]:
    """Cut a way from place to place so that no piece comes to a place twice; return where its moves are cut.

    Examples
    --------
    >>> _pieces(np.array([0, 1, 2, 0, 1, 2, 3]))
    [0, 2, 4, 6]
    """
    order = np.argsort(way, kind="stable")
    same = way[order[1:]] == way[order[:-1]]
    moves = len(way) - 1
    if not same.any():
        return [0, moves]
    before = np.full(len(way), -1)  # where a place came last
    before[order[1:][same]] = order[:-1][same]
    cuts, look = [0], 16
    while cuts[-1] < moves:
        start = cuts[-1]
        again = before[start + 1 : start + 1 + look] >= start
        if again.any():
            cuts.append(start + int(np.argmax(again)))
        elif start + look >= moves:
            cuts.append(moves)
        else:
            look *= 2
    return cuts


class _Phase:
    """Which iterations of which rows move a chunk: those with ``rel + k * shift = chunk (mod window)``."""

    def __init__(self, phase: Repeat, chunks: int) -> None:
        self.block, self.steps, self.times = phase.block, phase.steps, phase.times
        plan = Plan(phase, chunks)
        shift = plan.shift % plan.window
        common = np.gcd(shift, plan.window)
        period = plan.window // common
        self.row, self.start = plan.row, plan.src_base + plan.src_rel
        self.base, self.window, self.common, self.period, self.inverse = (
            _one(column) for column in (plan.src_base, plan.window, common, period, inverses(shift // common, period))
        )

    def visits(self, chunk: int) -> tuple[Array, Array]:
        """Return the step (within the phase) and the row of each move of a chunk, in program order."""
        ahead = chunk - self.start
        fits = (self.base <= chunk) & (chunk < self.base + self.window) & (ahead % self.common == 0)
        entry = np.flatnonzero(fits)
        common, inverse, period = (_some(column, entry) for column in (self.common, self.inverse, self.period))
        k = ahead[entry] // common * inverse % period
        entries, ks = [entry], [k]
        while len(entry):  # a row comes back to a chunk after its period
            k = k + period
            again = k < self.times
            entry, k, period = entry[again], k[again], _some(period, again)
            entries.append(entry)
            ks.append(k)
        entry, k = np.concatenate(entries), np.concatenate(ks)
        inside = k < self.times
        entry, k = entry[inside], k[inside]
        row = self.row[entry]
        step = k * self.block.steps + self.block.step[row]
        order = _sorted(step, entry, self.steps)
        return step[order], row[order]


def _one(values: Array) -> Any:
    """Return a number for a column of equal numbers."""
    return int(values[0]) if len(values) and (values == values[0]).all() else values


def _some(values: Any, entries: Array) -> Any:
    return values[entries] if np.ndim(values) else values


def _sorted(step: Array, entry: Array, steps: int) -> Array:
    """Return the order by step, then entry."""
    if steps <= 8 * len(step):
        place = np.full(steps, -1)
        number = np.arange(len(step))
        place[step] = number
        if np.array_equal(place[step], number):  # no step twice: each is put where it belongs
            return place[place >= 0]
    return np.lexsort((entry, step))
