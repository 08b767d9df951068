"""Phases that are written out: their columns, and the dependencies of their transfers by a table of last writers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collsim.engine.lowering.row_dependencies import Found
from collsim.engine.outcome import budgets
from collsim.schedule import Repeat, Schedule
from collsim.schedule.dependencies import locations
from collsim.schedule.expand import Plan

__all__ = ["EMPTY", "Piece", "Written", "frozen", "joined", "slices", "write_out"]

Array = npt.NDArray[Any]

COLUMNS = ("src", "src_buffer", "dst", "dst_buffer", "reduce", "channel")
PART = 2**20
"""Rows that are worked on at a time where intermediate columns are wider than the result."""
DENSE = 4
"""A table of all places in memory may be so many times as long as there are entries."""


class Piece(NamedTuple):
    """Iterations ``start`` to ``stop - 1`` of a phase."""

    phase: Repeat
    start: int
    stop: int


def slices(length: int, part: int = PART) -> Iterable[slice]:
    """Cut a column into parts."""
    return (slice(lo, min(lo + part, length)) for lo in range(0, length, part))


@dataclass(frozen=True, eq=False)
class Written:
    """Transfers in program order; columns as in `Block`, ``src_chunk`` and ``dst_chunk`` by entry.

    ``ptr`` has the entries of each row; it is empty where each row has one.
    """

    step: Array
    src: Array
    src_buffer: Array
    dst: Array
    dst_buffer: Array
    reduce: Array
    channel: Array
    via: Array
    ptr: Array
    src_chunk: Array
    dst_chunk: Array
    table: dict[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.step)

    def first_chunk(self) -> Array:
        """Return the first destination chunk of each row."""
        return self.dst_chunk[self.ptr[:-1]] if len(self.ptr) else self.dst_chunk

    def owner(self, entry: Any) -> Any:
        """Return the rows of entries."""
        if not len(self.ptr):
            return entry
        if isinstance(entry, slice):
            entry = np.arange(len(self.src_chunk))[entry]
        return np.searchsorted(self.ptr, entry, side="right") - 1

    def address(self, schedule: Schedule, side: str, entry: Array | slice) -> Array:
        """Return the place in memory of some entries."""
        row = self.owner(entry)
        end, buffer = (getattr(self, side + name)[row] for name in ("", "_buffer"))
        return locations(schedule, end, buffer, getattr(self, side + "_chunk")[entry])

    def follow(self, schedule: Schedule) -> tuple[Array, Array, Array]:
        """Return the predecessors of each row in CSR form, and by entry what its search said (see `last_writer`)."""
        from collsim.engine.lowering.last_writer import FOUND, LOW, SHORT, follow

        rows, entries = len(self), len(self.src_chunk)
        src, dst, places = self._places(schedule)
        owner = np.repeat(np.arange(rows, dtype=np.int32), np.diff(self.ptr)) if len(self.ptr) else EMPTY
        head, before = np.full(places, -1, dtype=np.int32), np.empty(entries, dtype=np.int32)
        seen = np.zeros(rows if len(self.ptr) else 0, dtype=np.int64)
        said = np.zeros(entries, dtype=np.int8)
        dep_ptr = np.zeros(rows + 1, dtype=np.int64)
        parts: list[Array] = []
        gone, state = 0, np.zeros(7, dtype=np.int64)
        buffer = np.empty(min(max(2 * entries, 64), 4 * PART), dtype=np.int32)
        for budget in budgets(PART):
            follow(
                frozen(self.step), frozen(self.ptr), owner, src, dst, frozen(self.reduce), head, before, seen, said,
                dep_ptr, buffer, gone, state, budget,
            )  # fmt: skip
            if state[SHORT] and state[FOUND] == 0:
                buffer = np.empty(2 * len(buffer), dtype=np.int32)
            elif state[SHORT] or state[LOW] == rows:
                parts.append(buffer[: state[FOUND]].copy())
                gone += int(state[FOUND])
                state[FOUND] = 0
                if state[SHORT] and len(buffer) < 4 * PART:  # many predecessors a row
                    buffer = np.empty(2 * len(buffer), dtype=np.int32)
            if state[LOW] == rows and not state[SHORT]:
                break
        self.table.update(head=head, before=before)
        return dep_ptr, parts[0] if len(parts) == 1 else np.concatenate([EMPTY, *parts]), said

    def _places(self, schedule: Schedule) -> tuple[Array, Array, int]:
        """Return the number of the place that each entry reads (-1: never written) and writes, and how many there are.

        All places are numbered, or where they are too many only those that are written.
        """
        entries = len(self.src_chunk)
        per_end = schedule.chunks * (1 if schedule.in_place else 2) + schedule.scratch
        src, dst = np.empty(entries, dtype=np.int32), np.empty(entries, dtype=np.int32)
        if schedule.endpoints * per_end <= max(DENSE * entries, PART):
            for part in slices(entries):
                src[part] = self.address(schedule, "src", part)
                dst[part] = self.address(schedule, "dst", part)
            return src, dst, schedule.endpoints * per_end
        known, number = np.unique(self.address(schedule, "dst", slice(None)), return_inverse=True)
        dst[:] = number
        for part in slices(entries):
            src[part] = _find(known, self.address(schedule, "src", part))
        self.table["known"] = known
        return src, dst, len(known)

    def latest(self, address: Array) -> Found:
        """Return the writers of places in memory that count at the end; distances mean nothing."""
        place = _find(self.table["known"], address) if "known" in self.table else address
        head, before = self.table["head"], self.table["before"]
        active = np.flatnonzero(place >= 0)
        entry = head[place[active]]
        copied = np.full(len(address), -1, dtype=np.int64)
        queries, rows = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        while len(active):
            active, entry = active[entry >= 0], entry[entry >= 0]
            row = self.owner(entry)
            queries.append(active)
            rows.append(row)
            copied[active[~self.reduce[row]]] = 0
            entry = before[entry]
        query, row = np.concatenate(queries), np.concatenate(rows)
        order = np.argsort(query, kind="stable")
        return Found(query[order], row[order], row[order], copied)


EMPTY = np.zeros(0, dtype=np.int32)


def frozen(column: Array) -> Array:
    """Return a view that cannot be written to: kernels are compiled for one sort of array."""
    view = np.ascontiguousarray(column).view()
    view.flags.writeable = False
    return view


def _find(known: Array, address: Array) -> Array:
    place = np.minimum(np.searchsorted(known, address), len(known) - 1)
    return np.where(known[place] == address, place, -1)


def write_out(schedule: Schedule, pieces: Sequence[Piece]) -> Written:
    """Write out iterations of phases that follow each other; what is there once is not copied."""
    columns: dict[str, list[Any]] = {name: [] for name in ("step", *COLUMNS, "via", "counts", "src_chunk", "dst_chunk")}
    first_step = 0
    has_via = any(piece.phase.block.via is not None for piece in pieces)
    for piece in pieces:
        block, times = piece.phase.block, piece.stop - piece.start
        step = block.step
        if times > 1 or first_step:
            start = first_step + np.arange(times, dtype=np.int32)[:, None] * block.steps
            step = (start + block.step).astype(np.int32).ravel()
        columns["step"].append(step)
        for name in COLUMNS:
            column = getattr(block, name)
            columns[name].append(np.tile(column, times) if times > 1 else column)
        if has_via:
            via = np.full(len(block), -1, dtype=np.int32) if block.via is None else block.via
            columns["via"].append(np.tile(via, times))
        counts, src, dst = _chunks(schedule, piece)
        columns["counts"].append(counts)
        columns["src_chunk"].append(src)
        columns["dst_chunk"].append(dst)
        first_step += block.steps * times
    ptr = EMPTY.astype(np.int64)
    if any(len(counts) for counts in columns["counts"]):
        lengths = [
            counts if len(counts) else np.ones(len(step), dtype=np.int64)
            for counts, step in zip(columns["counts"], columns["step"], strict=True)
        ]
        ptr = np.concatenate([[0], *lengths]).cumsum(dtype=np.int64)
    del columns["counts"]
    return Written(ptr=ptr, **{name: joined(parts) for name, parts in columns.items()})


def joined(parts: list[Any]) -> Any:
    """Join columns; one alone is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else EMPTY


def _chunks(schedule: Schedule, piece: Piece) -> tuple[Array, Array, Array]:
    """Return the entries of each row in all iterations (none where each has one), and the chunks of the entries."""
    block = piece.phase.block
    single = block.lists is None and bool((block.count == 1).all())
    if single and piece.stop == 1:
        return EMPTY, block.src_chunk, block.dst_chunk
    plan = Plan(piece.phase, schedule.chunks)
    src = _filled(plan.src, piece, int(plan.ptr[-1]))
    dst = src if plan.is_aligned else _filled(plan.dst, piece, int(plan.ptr[-1]))
    return EMPTY if single else np.tile(np.diff(plan.ptr), piece.stop - piece.start), src, dst


def _filled(chunks: Callable[[Any], Array], piece: Piece, per_run: int) -> Array:
    times = piece.stop - piece.start
    column = np.empty((times, per_run), dtype=np.int32)
    for part in slices(times, max(1, PART // max(per_run, 1))):
        column[part] = chunks(np.arange(piece.start + part.start, piece.start + part.stop, dtype=np.int64)[:, None])
    return column.ravel()
