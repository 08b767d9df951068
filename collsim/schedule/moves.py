"""A schedule as moves between numbered places of memory, step by step: what the proof runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.schedule.block import Block, Repeat
from collsim.schedule.expand import Part, Plan, rows_of
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
    """The moves of one step, one entry a chunk, or a chain of moves in steps that follow each other.

    ``kind`` tells whether all add (True), all copy (False) or some (None). ``distinct`` tells that no two entries have
    the same destination; if it is False that has to be looked up. In a ``chain`` each move starts where the one before
    it ended, and none comes to a place where the chain was before.
    """

    src: Array
    dst: Array
    reduce: Array
    kind: bool | None
    distinct: bool
    ptr: Array
    transfers: Callable[[], Transfers]
    chain: bool = False


def all_moves(schedule: Schedule, places: Places, backwards: bool) -> Iterator[Moves]:
    """Yield the moves of all steps, without writing out the repeats."""
    way = -1 if backwards else 1
    first_step = schedule.steps if backwards else 0
    for phase in schedule.phases[::way]:
        first_step -= phase.steps if backwards else 0
        block = phase.block
        borders = np.flatnonzero(np.diff(block.step, prepend=-1, append=-1)).tolist() if len(block) else []
        movers: Iterable[_Mover] = (_Mover(phase, slice(*cut), places) for cut in [*pairwise(borders)][::way])
        if phase.times > 1:  # else each is made when its turn comes, so that only one is held at a time
            movers = list(movers)
        for k in range(phase.times)[::way]:
            for mover in movers:
                yield mover.moves(k, first_step + k * block.steps + mover.step)
        first_step += 0 if backwards else phase.steps


class _Mover:
    """Makes the moves of the rows of one step in any iteration, with as little arithmetic as can be."""

    def __init__(self, phase: Repeat, rows: slice, places: Places) -> None:
        self.phase, self.rows, self.chunks = phase, rows, places.schedule.chunks
        block = phase.block
        self.step = int(block.step[rows.start])
        both = (np.broadcast_to(np.asarray(column), (len(block),)) for column in (phase.window, phase.shift))
        window, shift = (column[rows].astype(np.int64) for column in both)
        window = np.where(window == 0, self.chunks, window)
        src_chunk, dst_chunk, self.ptr, owner = _chunks(block, rows)
        ends = {
            name: getattr(block, name)[rows][owner] for name in ("src", "src_buffer", "dst", "dst_buffer", "reduce")
        }
        self.reduce = ends["reduce"]
        self.kind = True if self.reduce.all() else None if self.reduce.any() else False
        self.shift, self.window = _scalar(shift[owner]), _scalar(window[owner])
        inside = src_chunk[0] % window[owner], dst_chunk[0] % window[owner]
        self.src_base = places.of(ends["src"], ends["src_buffer"], src_chunk[0] - inside[0])
        self.dst_base = places.of(ends["dst"], ends["dst_buffer"], dst_chunk[0] - inside[1])
        self.src_rel, self.dst_rel = inside[0] + src_chunk[1], inside[1] + dst_chunk[1]
        self.together = np.array_equal(self.src_rel, self.dst_rel)
        self.distinct = False
        if phase.times > 1:  # else it is looked up once when it has to be known
            # destinations that differ go on to differ where all move alike, or where each memory gets but one
            if np.ndim(self.shift) == 0 and np.ndim(self.window) == 0:
                targets = self.dst_base + self.dst_rel % self.window
            else:
                targets = places.of(ends["dst"], ends["dst_buffer"], np.zeros_like(self.dst_rel))
            targets.sort()
            self.distinct = bool((targets[1:] != targets[:-1]).all())

    def moves(self, k: int, now: int) -> Moves:
        step = k * self.shift
        src = (self.src_rel + step) % self.window
        dst = self.dst_base + (src if self.together else (self.dst_rel + step) % self.window)
        src += self.src_base
        written_out = partial(self._transfers, k, now)
        return Moves(src, dst, self.reduce, self.kind, self.distinct, self.ptr, written_out)

    def _transfers(self, k: int, now: int) -> Transfers:
        plan = Plan(self.phase, self.chunks)
        return Part(self.phase, plan, self.step, self.rows).transfers(k, now)


def _chunks(block: Block, rows: slice) -> tuple[tuple[Array, Any], tuple[Array, Any], Array, Any]:
    """Return first chunk and offset of each entry of some rows on both sides, where rows begin, and the row of each."""
    src, dst = (column[rows].astype(np.int64) for column in (block.src_chunk, block.dst_chunk))
    counts = block.count[rows].astype(np.int64)
    if block.lists is None and (counts == 1).all():
        return (src, 0), (dst, 0), np.arange(len(counts) + 1), slice(None)
    listed = np.zeros(len(counts), dtype=bool)
    if block.lists is not None:
        offsets = block.lists.offsets[rows.start : rows.stop + 1]
        listed = np.diff(offsets) > 0
        counts = np.where(listed, np.diff(offsets), counts)
    ptr = np.concatenate(([0], np.cumsum(counts)))
    owner = np.repeat(np.arange(len(counts)), counts)
    offset = (np.arange(ptr[-1]) - ptr[owner]) * block.stride[rows].astype(np.int64)[owner]
    src, dst = src[owner], dst[owner]
    if block.lists is not None:
        some = slice(int(offsets[0]), int(offsets[-1]))
        here = listed[owner]
        offset[here] = 0
        src[here], dst[here] = block.lists.src[some], block.lists.dst[some]
    return (src, offset), (dst, offset), ptr, owner


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
    cuts = list(zip(pairwise(borders.tolist()), adds, strict=True))
    for (lo, hi), reductions in reversed(cuts) if backwards else cuts:
        kind = None if 0 < reductions < hi - lo else reductions > 0
        yield Moves(
            src[lo:hi], dst[lo:hi], transfers.reduce[lo:hi], kind, False, np.arange(hi - lo + 1),
            partial(rows_of, transfers, lo, hi),
        )  # fmt: skip
