"""Write out the repeats of a schedule: all at once, step by step, or for some chunks only."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.schedule.model import Repeat, Schedule, Transfers

__all__ = ["Part", "Plan", "expand", "inverses", "iter_parts", "iter_steps", "rows_of", "select", "steps_of"]

Array = npt.NDArray[Any]

ENDS = ("src", "src_buffer", "dst", "dst_buffer", "reduce", "channel")


class Plan:
    """The chunk sets of a repeat, prepared so that those of any iteration cost one addition and one modulo.

    Entry e of row i (``ptr[i] <= e < ptr[i + 1]``) is in iteration k the chunk ``base + (rel + k * shift) % window``.
    """

    def __init__(self, phase: Repeat, chunks: int) -> None:
        block = phase.block
        rows = len(block)
        counts = block.count.astype(np.int64)
        if block.lists is not None:
            listed = np.diff(block.lists.offsets)
            counts = np.where(listed > 0, listed, counts)
        self.ptr = np.concatenate(([0], np.cumsum(counts)))
        self.row = np.arange(rows)
        window = np.broadcast_to(np.asarray(phase.window, dtype=np.int64), (rows,))
        window = np.where(window == 0, chunks, window)
        shift = np.broadcast_to(np.asarray(phase.shift, dtype=np.int64), (rows,))
        src, dst = block.src_chunk.astype(np.int64), block.dst_chunk.astype(np.int64)
        offset = np.zeros(rows, dtype=np.int64)
        if block.lists is not None or (counts != 1).any():
            self.row = np.repeat(self.row, counts)
            offset = (np.arange(self.ptr[-1]) - self.ptr[self.row]) * block.stride.astype(np.int64)[self.row]
            src, dst, window, shift = src[self.row], dst[self.row], window[self.row], shift[self.row]
            if block.lists is not None:
                is_listed = np.diff(block.lists.offsets)[self.row] > 0
                offset[is_listed] = 0
                src[is_listed], dst[is_listed] = block.lists.src, block.lists.dst
        self.window, self.shift = window, shift
        self.src_base, self.src_rel = src - src % window, src % window + offset
        self.dst_base, self.dst_rel = dst - dst % window, dst % window + offset
        self.is_aligned = block.is_aligned

    def src(self, k: Any, entries: slice = slice(None)) -> Array:
        """Source chunks in iteration k (a number, or a column of numbers) of some entries."""
        moved = (self.src_rel[entries] + k * self.shift[entries]) % self.window[entries]
        result: Array = self.src_base[entries] + moved
        return result

    def dst(self, k: Any, entries: slice = slice(None)) -> Array:
        """Destination chunks in iteration k of some entries."""
        moved = (self.dst_rel[entries] + k * self.shift[entries]) % self.window[entries]
        result: Array = self.dst_base[entries] + moved
        return result


class Part:
    """The rows of one step of a block: what all iterations of the step have in common."""

    def __init__(self, phase: Repeat, plan: Plan, step: int, rows: slice) -> None:
        block = phase.block
        self.plan, self.step = plan, step
        self.entries = slice(int(plan.ptr[rows.start]), int(plan.ptr[rows.stop]))
        self.ptr = plan.ptr[rows.start : rows.stop + 1] - plan.ptr[rows.start]
        self.columns = {name: getattr(block, name)[rows] for name in ENDS}
        self.columns["via"] = np.full(len(self.ptr) - 1, -1, np.int32) if block.via is None else block.via[rows]

    def transfers(self, k: int, now: int) -> Transfers:
        """Return the transfers of iteration k, as those of step ``now``."""
        src = self.plan.src(k, self.entries)
        dst = src if self.plan.is_aligned else self.plan.dst(k, self.entries)
        step = np.full(len(self.ptr) - 1, now)
        return Transfers(step=step, ptr=self.ptr, src_chunks=src, dst_chunks=dst, **self.columns)


def parts_of(schedule: Schedule, phase: Repeat) -> list[Part]:
    """Return the steps of a block that have transfers."""
    plan = Plan(phase, schedule.chunks)
    steps, first = np.unique(phase.block.step, return_index=True)
    borders = pairwise([*first.tolist(), len(phase.block)])
    return [Part(phase, plan, step, slice(lo, hi)) for step, (lo, hi) in zip(steps.tolist(), borders, strict=True)]


def expand(schedule: Schedule) -> Transfers:
    """Write out all repeats.

    Examples
    --------
    >>> from collsim.algorithms import ring_all_reduce
    >>> transfers = expand(ring_all_reduce(3))
    >>> transfers.step.tolist()
    [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    >>> transfers.src_chunks.tolist()
    [2, 0, 1, 1, 2, 0, 0, 1, 2, 2, 0, 1]
    """
    columns: dict[str, list[Array]] = {name: [] for name in Transfers.__dataclass_fields__}
    first_step = 0
    entries = 0
    for phase in schedule.phases:
        block, times = phase.block, phase.times
        plan = Plan(phase, schedule.chunks)
        iteration = np.arange(times, dtype=np.int64)[:, None]
        columns["step"].append((first_step + iteration * block.steps + block.step).ravel())
        for name in ENDS:
            columns[name].append(np.tile(getattr(block, name), times))
        via = np.full(len(block), -1, dtype=np.int32) if block.via is None else block.via
        columns["via"].append(np.tile(via, times))
        per_run = plan.ptr[-1]
        columns["ptr"].append((entries + iteration * per_run + plan.ptr[:-1]).ravel())
        columns["src_chunks"].append(plan.src(iteration).ravel())
        columns["dst_chunks"].append(columns["src_chunks"][-1] if plan.is_aligned else plan.dst(iteration).ravel())
        entries += int(per_run) * times
        first_step += phase.steps
    columns["ptr"].append(np.array([entries], dtype=np.int64))
    empty = np.zeros(0, dtype=np.int64)
    return Transfers(**{name: np.concatenate(parts) if parts else empty for name, parts in columns.items()})


def iter_steps(schedule: Schedule, *, backwards: bool = False) -> Iterator[tuple[int, Transfers]]:
    """Yield (step, transfers of that step) in order, or last first; steps without transfers are left out."""
    for now, k, part in iter_parts(schedule, backwards=backwards):
        yield now, part.transfers(k, now)


def iter_parts(schedule: Schedule, *, backwards: bool = False) -> Iterator[tuple[int, int, Part]]:
    """Yield (step, iteration, part of a block); the parts are made once for all iterations."""
    way = -1 if backwards else 1
    first_step = schedule.steps if backwards else 0
    for phase in schedule.phases[::way]:
        first_step -= phase.steps if backwards else 0
        parts = parts_of(schedule, phase)[::way]
        for k in range(phase.times)[::way]:
            for part in parts:
                yield first_step + k * phase.block.steps + part.step, k, part
        first_step += 0 if backwards else phase.steps


def steps_of(transfers: Transfers) -> Iterator[tuple[int, Transfers]]:
    """Cut transfers that are written out into steps."""
    for lo, hi in pairwise(np.flatnonzero(np.diff(transfers.step, prepend=-1, append=-1)).tolist()):
        yield int(transfers.step[lo]), rows_of(transfers, lo, hi)


def rows_of(transfers: Transfers, lo: int, hi: int) -> Transfers:
    """Return the transfers lo to hi - 1."""
    entries = slice(int(transfers.ptr[lo]), int(transfers.ptr[hi]))
    columns = {name: getattr(transfers, name)[lo:hi] for name in ("step", *ENDS, "via")}
    chunks = {name: getattr(transfers, name)[entries] for name in ("src_chunks", "dst_chunks")}
    return Transfers(ptr=transfers.ptr[lo : hi + 1] - transfers.ptr[lo], **columns, **chunks)


def inverses(numbers: Array, moduli: Array) -> Array:
    """Return the inverse of each number modulo another that it has no divisor in common with; all are below 2^31.

    Examples
    --------
    >>> inverses(np.array([3, 3, 0]), np.array([7, 10, 1])).tolist()
    [5, 7, 0]
    """
    # each distinct one is found once; one number sorts faster than a pair
    keys, index = np.unique((numbers << 32) + moduli, return_inverse=True)
    pairs = zip((keys >> 32).tolist(), (keys & (2**32 - 1)).tolist(), strict=True)
    return np.array([pow(a, -1, m) if m > 1 else 0 for a, m in pairs], dtype=np.int64)[index]


def select(schedule: Schedule, chunks: Array) -> Transfers:
    """Return the transfers that move some chunks, without writing out the rest.

    Only for schedules whose rows move chunks to the same place (`Block.is_aligned`); each chunk of a message becomes a
    transfer of its own. For each row and chunk the iterations solve ``rel + k * shift = chunk (mod window)``.
    """
    columns: dict[str, list[Array]] = {name: [np.zeros(0, dtype=np.int64)] for name in ("step", *ENDS, "via", "chunk")}
    first_step = 0
    for phase in schedule.phases:
        block = phase.block
        plan = Plan(phase, schedule.chunks)
        entry, k, chunk = _visits(phase, plan, chunks)
        row = plan.row[entry]
        step = first_step + k * block.steps + block.step[row]
        order = np.lexsort((entry, step))
        row = row[order]
        columns["step"].append(step[order])
        columns["chunk"].append(chunk[order])
        for name in ENDS:
            columns[name].append(getattr(block, name)[row])
        columns["via"].append(np.full(len(row), -1) if block.via is None else block.via[row])
        first_step += phase.steps
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    joined["reduce"] = joined["reduce"].astype(bool)
    moved = joined.pop("chunk")
    return Transfers(ptr=np.arange(len(moved) + 1), src_chunks=moved, dst_chunks=moved, **joined)


def _visits(phase: Repeat, plan: Plan, chunks: Array) -> tuple[Array, Array, Array]:
    """(entry, iteration, chunk) of all visits of a repeat to some chunks."""
    found = [(np.zeros(0, np.int64),) * 3]
    width, shift = plan.window, plan.shift % plan.window
    g = np.gcd(shift, width)
    period = width // g
    inverse = inverses(shift // g, period)
    for chunk in chunks.tolist():
        difference = chunk - plan.src_base - plan.src_rel
        in_window = (plan.src_base <= chunk) & (chunk < plan.src_base + width) & (difference % g == 0)
        entry = np.flatnonzero(in_window)
        k = (difference[entry] // g[entry]) * inverse[entry] % period[entry]
        while len(entry):
            inside = k < phase.times
            entry, k = entry[inside], k[inside]
            found.append((entry, k, np.full(len(entry), chunk)))
            k = k + period[entry]
    entry, k, chunk_ = (np.concatenate(column) for column in zip(*found, strict=True))
    return entry, k, chunk_
