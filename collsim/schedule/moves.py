"""A schedule as moves between numbered places of memory, step by step: what the proof runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.schedule.expand import Part, iter_parts, rows_of
from collsim.schedule.model import Schedule, Transfers

__all__ = ["Moves", "Places", "all_moves", "moves_of"]

Array = npt.NDArray[Any]


class Places:
    """Numbers the places (endpoint, buffer, chunk) of some chunks; an endpoint's places follow each other."""

    def __init__(self, schedule: Schedule, chunks: Array) -> None:
        self.schedule, self.chunks = schedule, chunks
        whole = len(chunks) == schedule.chunks
        self.index = None
        if not whole:
            self.index = np.full(max(schedule.chunks, schedule.scratch), -1, dtype=np.int64)
            self.index[chunks] = np.arange(len(chunks))
        self.m = len(chunks)
        self.scratch = schedule.scratch if whole else (self.m if schedule.scratch else 0)
        self.per_end = self.m * (1 if schedule.in_place else 2) + self.scratch
        # input, output, scratch
        self.base = np.array([0 if schedule.in_place else self.m, 0, self.per_end - self.scratch], dtype=np.int64)
        self.size = schedule.endpoints * self.per_end

    def of(self, end: Array, buffer: Array, chunk: Array) -> Array:
        """Return the numbers of places."""
        if self.index is not None:
            chunk = self.index[chunk]
        result: Array = end.astype(np.int64) * self.per_end + self.base[buffer] + chunk
        return result

    def end(self, place: Array) -> Array:
        """Rank (or switch) of places."""
        return place // self.per_end

    def chunk(self, place: Array) -> Array:
        """Chunk of places; those of scratch are numbered on their own."""
        inside = place % self.per_end
        is_scratch = inside >= self.base[2]
        inside = np.where(is_scratch, inside - self.base[2], inside % self.m)
        return inside if self.index is None else self.chunks[inside]

    def view(self, values: Array, buffer: int) -> Array:
        """Return the values of all ranks' inputs or outputs as a table of rank and chunk, which can be written to."""
        base = int(self.base[buffer])
        return values.reshape(-1, self.per_end)[: self.schedule.ranks, base : base + self.m]


@dataclass(slots=True)
class Moves:
    """The moves of one step, one entry a chunk.

    ``kind`` tells whether all add (True), all copy (False) or some (None). ``distinct`` tells that no two entries have
    the same destination; if it is False that has to be looked up.
    """

    step: int
    src: Array
    dst: Array
    reduce: Array
    kind: bool | None
    distinct: bool
    ptr: Array
    transfers: Callable[[], Transfers]


def all_moves(schedule: Schedule, places: Places, backwards: bool) -> Iterator[Moves]:
    """Yield the moves of all steps, without writing out the repeats."""
    movers: dict[Part, _Mover] = {}
    for now, k, part in iter_parts(schedule, backwards=backwards):
        if part not in movers:
            movers[part] = _Mover(part, places)
        yield movers[part].moves(k, now)


class _Mover:
    """Makes the moves of any iteration of a part with as little arithmetic as can be."""

    def __init__(self, part: Part, places: Places) -> None:
        self.part = part
        plan, entries = part.plan, part.entries
        owner = np.repeat(np.arange(len(part.ptr) - 1), np.diff(part.ptr))
        columns = {name: column[owner] for name, column in part.columns.items()}
        self.reduce = columns["reduce"]
        self.kind = True if self.reduce.all() else None if self.reduce.any() else False
        self.src_base = places.of(columns["src"], columns["src_buffer"], plan.src_base[entries])
        self.dst_base = places.of(columns["dst"], columns["dst_buffer"], plan.dst_base[entries])
        self.src_rel, self.dst_rel = plan.src_rel[entries], plan.dst_rel[entries]
        self.together = np.array_equal(self.src_rel, self.dst_rel)
        self.shift, self.window = _scalar(plan.shift[entries]), _scalar(plan.window[entries])
        # destinations that differ go on to differ where all move alike, or where each memory gets but one
        if np.ndim(self.shift) == 0 and np.ndim(self.window) == 0:
            targets = places.of(columns["dst"], columns["dst_buffer"], plan.dst(0, entries))
        else:
            targets = places.of(columns["dst"], columns["dst_buffer"], np.zeros_like(self.dst_rel))
        self.distinct = len(np.unique(targets)) == len(targets)

    def moves(self, k: int, now: int) -> Moves:
        step = k * self.shift
        src = (self.src_rel + step) % self.window
        dst = self.dst_base + (src if self.together else (self.dst_rel + step) % self.window)
        src += self.src_base
        part = self.part
        return Moves(now, src, dst, self.reduce, self.kind, self.distinct, part.ptr, partial(part.transfers, k, now))


def _scalar(values: Array) -> Any:
    return int(values[0]) if (values == values[0]).all() else values


def moves_of(transfers: Transfers, places: Places, backwards: bool) -> Iterator[Moves]:
    """Yield the moves of transfers that are written out, each of one chunk."""
    src = places.of(transfers.src, transfers.src_buffer, transfers.src_chunks)
    dst = places.of(transfers.dst, transfers.dst_buffer, transfers.dst_chunks)
    borders = np.flatnonzero(np.diff(transfers.step, prepend=-1, append=-1))
    if not len(src):
        return
    adds = np.add.reduceat(transfers.reduce, borders[:-1], dtype=np.int64).tolist()
    cuts = list(zip(pairwise(borders.tolist()), transfers.step[borders[:-1]].tolist(), adds, strict=True))
    for (lo, hi), step, reductions in reversed(cuts) if backwards else cuts:
        kind = None if 0 < reductions < hi - lo else reductions > 0
        yield Moves(
            step, src[lo:hi], dst[lo:hi], transfers.reduce[lo:hi], kind, False, np.arange(hi - lo + 1),
            partial(rows_of, transfers, lo, hi),
        )  # fmt: skip
