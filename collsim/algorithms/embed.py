"""Algorithms inside algorithms: a schedule for few ranks, run by many groups of ranks at once on shares of the data.

`embed` puts the phases of a small schedule on groups that run it side by side; `Nest` numbers the chunks of a product
of groups (nodes and the ranks of a node, the dimensions of a torus) so that the repeats of every level stay repeats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.algorithms.common import refuse_rows, refuse_window
from collsim.algorithms.registry import build
from collsim.collective import Collective
from collsim.errors import AlgorithmError
from collsim.schedule import Block, Edge, Repeat, Schedule
from collsim.schedule.block import SCRATCH, ChunkLists
from collsim.schedule.expand import Plan

__all__ = ["Level", "Nest", "Part", "assemble", "embed", "named", "paced", "refuse_window"]

Array = npt.NDArray[Any]


def named(what: str, operation: str, name: str, ranks: int, root: int = 0) -> Schedule:
    """Build an algorithm by name; what cannot be had is put down to the parameter ``what``."""
    try:
        return build(operation, name, ranks, root)
    except AlgorithmError as error:
        raise AlgorithmError(f"{what}: {error}") from error


Part = tuple[tuple[Repeat, ...], tuple[Edge, ...], int]
"""Phases, written edges between them, and the scratch chunks of each rank up to here."""


def embed(schedule: Schedule, groups: Array, pieces: Array, which: Array | None = None, scratch: int = 0) -> Part:
    """Return the phases of a schedule for g ranks, run by many groups of g ranks side by side.

    Parameters
    ----------
    schedule
        What each group runs, in place, on C chunks.
    groups
        Ranks of each group, shape (groups, g). No rank is in two groups.
    pieces
        Which chunks of the whole each chunk of the schedule stands for, shape (tables, C, K): one of ``tables`` for
        each group, K chunks for each chunk.
    which
        Table of each group; the first one for all if not given.
    scratch
        Scratch chunks that are in use already.

    Returns
    -------
    phases, edges, scratch
        Rows of a step are sorted by their sender. Scratch chunks that are in use now.

    Notes
    -----
    A repeat stays one where its windows stay windows: the chunks of a window must stand for windows of the whole that
    are as many times wider everywhere. `Nest` numbers chunks so. Then N = 100,000 in nodes of 8 has N rows a step of
    the small schedule. A message is one run of chunks where K chunks follow each other and the small schedule's do;
    otherwise the row has a list. Where windows do not fit the phase is written out, with a row for each transfer.

    Raises
    ------
    AlgorithmError
        For schedules that name parts of a machine, fix the sizes of their chunks, do not work in place, or are paced
        and would have to be written out.
    """
    for reason, found in (
        ("names parts of a machine", schedule.paths or schedule.places),
        ("fixes the sizes of its chunks", schedule.layout),
        ("does not work in place", not schedule.in_place),
    ):
        if found:
            raise AlgorithmError(
                f"{schedule.algorithm or 'schedule'}: expected an algorithm that can be part of another one, got one "
                f"that {reason}"
            )
    which = np.zeros(len(groups), dtype=np.int64) if which is None else which
    k = pieces.shape[2]
    unit = k * schedule.chunks
    start = -(-scratch // unit) * unit  # so that windows lie in scratch as they do elsewhere
    held = start + np.arange(schedule.scratch * k).reshape(-1, k)
    tables = _Tables(pieces, held, which)
    phases, rows = [], []
    for phase in schedule.phases:
        if not tables.fit(phase, schedule.chunks):
            if schedule.edges:
                raise AlgorithmError(
                    f"{schedule.algorithm}: expected an algorithm without pacing where windows of chunks do not fit"
                )
            phase = _written_out(schedule, phase)
        side_by_side, place = _side_by_side(phase, schedule.chunks, groups, tables)
        phases.append(side_by_side)
        rows.append(place.reshape(-1, len(groups)))
    edges = tuple(
        replace(edge, row=row, pred_row=pred)
        for edge in schedule.edges
        for row, pred in zip(
            rows[edge.phase][edge.row].tolist(), rows[edge.pred_phase][edge.pred_row].tolist(), strict=True
        )
    )
    return tuple(phases), edges, start + held.size if held.size else scratch


@dataclass(frozen=True, eq=False)
class _Tables:
    """What the chunks of the small schedule stand for, in its buffers and in its scratch."""

    pieces: Array
    scratch: Array
    which: Array

    def fit(self, phase: Repeat, chunks: int) -> bool:
        """Whether a phase can stay a repeat."""
        moving = phase.times > 1 and bool(np.any(phase.shift))
        return not moving or all(self.scale(w) for w in _windows(phase, chunks))

    def scale(self, window: int) -> int:
        """By how much wider a window of the small schedule is in the whole; 0 if it does not fit."""
        tables, chunks, k = self.pieces.shape
        if chunks % window:
            return 0
        rows = self.pieces.reshape(tables, chunks // window, window, k)
        first = rows[:, :, 0, :]
        width = int(rows[0, 0, 1, 0] - first[0, 0, 0]) if window > 1 else k
        if width < 1 or (self.scratch.size and width != k):
            return 0
        fits = (rows == first[:, :, None, :] + width * np.arange(window)[:, None]).all()
        return width if fits and (first % (window * width) < width).all() else 0

    @cached_property
    def are_runs(self) -> bool:
        """Whether each chunk stands for chunks that follow each other."""
        return bool((np.diff(self.pieces, axis=2) == 1).all())

    def of(self, buffer: Array, chunk: Array, first: bool = False) -> Array:
        """Return what chunks stand for in each group, shape (chunks, groups, K), or only the first of the K."""
        held = buffer == SCRATCH
        some = slice(1) if first else slice(None)
        found = self.pieces[:, :, some][self.which[None, :], np.where(held, 0, chunk)[:, None]]
        found[held] = self.scratch[chunk[held], some][:, None, :]
        return found


def _windows(phase: Repeat, chunks: int) -> list[int]:
    found = np.unique(np.asarray(phase.window))
    return [int(window) or chunks for window in found]


def _side_by_side(phase: Repeat, chunks: int, groups: Array, tables: _Tables) -> tuple[Repeat, Array]:
    """Return a phase of all groups, and the place that row r of group i got in it, for each ``r * groups + i``."""
    block, rows, g, k = phase.block, len(phase.block), len(groups), tables.pieces.shape[2]
    plan = Plan(phase, chunks)
    window = np.broadcast_to(np.where(np.asarray(phase.window) == 0, chunks, phase.window), (rows,))
    scale = np.zeros(rows, dtype=np.int64)
    for size in np.unique(window).tolist():
        scale[window == size] = tables.scale(size)
    regular = np.ones(rows, dtype=bool) if block.lists is None else np.diff(block.lists.offsets) == 0
    if k == 1:
        count, stride = block.count.astype(np.int64), block.stride * scale
        regular &= (scale > 0) | (count == 1)
    else:
        count, stride = block.count.astype(np.int64) * k, np.ones(rows, dtype=np.int64)
        regular &= tables.are_runs & ((block.count == 1) | ((block.stride == 1) & (scale == k)))
    alone = ~regular | (count == 1)
    src = groups[:, block.src].T.ravel()
    order = np.lexsort((src, np.repeat(block.step, g)))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    columns = {"src": src, "dst": groups[:, block.dst].T.ravel()}
    for side, chunk in (("src", plan.src(0)), ("dst", plan.dst(0))):
        columns[f"{side}_chunk"] = tables.of(getattr(block, f"{side}_buffer"), chunk[plan.ptr[:-1]], first=True).ravel()
    for name in ("step", "src_buffer", "dst_buffer", "reduce", "channel"):
        columns[name] = np.repeat(getattr(block, name), g)
    columns["count"] = np.repeat(np.where(regular, count, 1), g)
    columns["stride"] = np.repeat(np.where(alone, 1, stride), g)
    columns = {name: column[order] for name, column in columns.items()}
    lists = None if regular.all() else _lists(block, plan, ~regular, place.reshape(rows, g), tables)
    shift = np.broadcast_to(np.asarray(phase.shift), (rows,)) * scale
    moved = [np.repeat(values, g)[order] for values in (shift, window * scale)]
    return Repeat(Block(**columns, lists=lists), phase.times, *moved), place


def _lists(block: Block, plan: Plan, listed: Array, place: Array, tables: _Tables) -> ChunkLists:
    """Return the chunks of the listed rows of all groups, by the place of the row."""
    rows, g = place.shape
    k = tables.pieces.shape[2]
    entries = np.flatnonzero(listed[plan.row])
    row = plan.row[entries]
    lengths = np.zeros(rows * g, dtype=np.int64)
    lengths[place] = np.where(listed, np.diff(plan.ptr) * k, 0)[:, None]
    order = np.argsort(place[row].ravel(), kind="stable")
    sides = [
        tables.of(buffer[row], chunk[entries]).reshape(-1, k)[order].ravel()
        for buffer, chunk in ((block.src_buffer, plan.src(0)), (block.dst_buffer, plan.dst(0)))
    ]
    return ChunkLists(np.concatenate(([0], np.cumsum(lengths))), *sides)


def _written_out(schedule: Schedule, phase: Repeat) -> Repeat:
    """Return a phase without repetition, a list of chunks for each transfer."""
    t = replace(schedule, phases=(phase,), edges=()).expand()
    ones = np.ones(len(t), dtype=np.int64)
    names = ("step", "src", "src_buffer", "dst", "dst_buffer", "reduce", "channel")
    first = t.ptr[:-1]
    block = Block(
        **{name: getattr(t, name) for name in names},
        src_chunk=t.src_chunks[first], dst_chunk=t.dst_chunks[first], count=ones, stride=ones,
        lists=ChunkLists(t.ptr, t.src_chunks, t.dst_chunks),
    )  # fmt: skip
    return Repeat(block)


@dataclass(frozen=True, eq=False)
class Level:
    """One level of a `Nest`: what the ranks along one axis do.

    Attributes
    ----------
    axis
        Axis of the grid of ranks along which they talk.
    there
        What they do on the way in: a reduce_scatter, or the all_reduce of the innermost share; None in an all_gather.
    back
        The all_gather on the way back; None in a reduce_scatter, or where ``there`` is an all_reduce.
    """

    axis: int
    there: Schedule | None
    back: Schedule | None


class Nest:
    """Levels of a collective on a grid of ranks, each on the share that the levels before have left.

    The number of a chunk has a digit for each level, the first level's being the most significant: which chunk of the
    level's schedule it is in. A rank works on a level with the chunks whose earlier digits are its own.
    """

    def __init__(self, grid: Array, levels: Sequence[Level]) -> None:
        self.grid, self.levels = grid, tuple(levels)
        self.digits = [_digits(level) for level in levels]
        self.chunks = math.prod(len(digits.owner) for digits in self.digits)
        refuse_rows(self.chunks)

    def phases(self, number: int, back: bool, scratch: int = 0, first: int = 0) -> Part:
        """Return what a level does on the way there, or back (see `embed`), with its chunks from ``first`` on."""
        level, digits = self.levels[number], self.digits[number]
        schedule = level.back if back else level.there
        assert schedule is not None
        before = [other.axis for other in self.levels[:number]]
        mine = np.zeros((1, 1), dtype=np.int64)  # chunk numbers of the digits before: one row for each way to own them
        for earlier in self.digits[:number]:
            more = mine[:, None, :, None] * len(earlier.owner) + earlier.owned[None, :, None, :]
            mine = more.reshape(mine.shape[0] * earlier.owned.shape[0], -1)
        here = digits.back if back else digits.there
        rest = math.prod(len(later.owner) for later in self.digits[number + 1 :])
        pieces = mine[:, None, :, None] * len(digits.owner) + here[None, :, None, :]
        pieces = first + pieces[..., None] * rest + np.arange(rest)
        groups = np.moveaxis(self.grid, level.axis, -1).reshape(-1, self.grid.shape[level.axis])
        places = np.indices(self.grid.shape)
        which = np.zeros(self.grid.shape, dtype=np.int64)
        for axis in before:
            which = which * self.grid.shape[axis] + places[axis]
        which = np.moveaxis(which, level.axis, -1).reshape(groups.shape)[:, 0]
        return embed(schedule, groups, pieces.reshape(len(mine), len(here), -1), which, scratch)

    def order(self) -> list[int]:
        """Return the place of each chunk in a buffer of one block a rank."""
        places = np.unravel_index(np.arange(self.chunks), [len(digits.owner) for digits in self.digits])
        where = [np.zeros(0, dtype=np.int64)] * self.grid.ndim
        for level, digits, digit in zip(self.levels, self.digits, places, strict=True):
            where[level.axis] = digits.owner[digit]
        order = np.empty(self.chunks, dtype=np.int64)
        order[np.argsort(self.grid[tuple(where)], kind="stable")] = np.arange(self.chunks)
        return order.tolist()

    def way(self) -> list[tuple[int, bool]]:
        """Return (level, back) in the order in which they follow each other: there, then back."""
        numbers = range(len(self.levels))
        there = [(number, False) for number in numbers if self.levels[number].there]
        return there + [(number, True) for number in reversed(numbers) if self.levels[number].back]

    def build(self, operation: str) -> Schedule:
        """Return the schedule: all levels there, then all of them back."""
        parts: list[Part] = []
        for number, back in self.way():
            parts.append(self.phases(number, back, parts[-1][2] if parts else 0))
        order = None if operation == "all_reduce" else self.order()
        return assemble(Collective(operation, self.grid.size), self.chunks, parts, order)


def assemble(
    collective: Collective,
    chunks: int,
    parts: Sequence[Part],
    order: Sequence[int] | None = None,
    edges: Sequence[Edge] = (),
) -> Schedule:
    """Return the schedule of embedded parts, one after the other; ``edges`` are those between them."""
    phases: list[Repeat] = []
    moved = list(edges)
    for part, paced, _ in parts:
        moved += [replace(e, phase=e.phase + len(phases), pred_phase=e.pred_phase + len(phases)) for e in paced]
        phases += part
    scratch = parts[-1][2] if parts else 0
    places = None if order is None else tuple(order)
    return Schedule(collective, chunks, tuple(phases), scratch=scratch, order=places, edges=tuple(moved))


def paced(phases: Sequence[Repeat], pred: int, here: int) -> list[Edge]:
    """Return edges that let each rank start with a phase once it has issued its last message of an earlier one."""
    distance = sum(phase.times for phase in phases[pred + 1 : here]) + 1
    last = {rank: row for row, rank in enumerate(phases[pred].block.src.tolist())}
    block = phases[here].block
    return [
        Edge(here, row, pred, last[rank], distance, "issued")
        for row, rank in enumerate(block.src[block.step == 0].tolist())
        if rank in last
    ]


@dataclass(frozen=True, eq=False)
class _Digits:
    """The digits of a level: whose they are, those of each place, and which each chunk of its schedules stands for."""

    owner: Array
    owned: Array
    there: Array
    back: Array


def _digits(level: Level) -> _Digits:
    shares = [_blocks(schedule) for schedule in (level.there, level.back) if schedule is not None]
    if level.there is not None and not level.there.collective.is_blocked:
        chunks = np.arange(level.there.chunks)
        return _Digits(chunks * 0, chunks[None, :], chunks[:, None], chunks[:, None])
    per = math.lcm(*(blocks.shape[1] for blocks in shares))
    # digits are numbered as the chunks of the first schedule are, cut finer where the other has more of them
    blocks = shares[0]
    fine = per // blocks.shape[1]
    owned = (blocks[:, :, None] * fine + np.arange(fine)).reshape(len(blocks), per)
    owner = np.empty(owned.size, dtype=np.int64)
    owner[owned] = np.arange(len(owned))[:, None]
    tables = []
    for blocks in shares:
        table = np.empty((blocks.size, per // blocks.shape[1]), dtype=np.int64)
        table[blocks] = owned.reshape(*blocks.shape, -1)
        tables.append(table)
    return _Digits(owner, owned, tables[0], tables[-1])


def _blocks(schedule: Schedule) -> Array:
    """Chunks of each rank's block, by place: shape (ranks, chunks of a block)."""
    if not schedule.collective.is_blocked:
        return np.zeros((1, 1), dtype=np.int64)
    chunks = np.empty(schedule.chunks, dtype=np.int64)
    chunks[schedule.place_of(np.arange(schedule.chunks))] = np.arange(schedule.chunks)
    return chunks.reshape(schedule.ranks, -1)
