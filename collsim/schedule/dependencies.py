"""Who waits for whom: dependencies from the data that transfers read, never written by the author.

A transfer is ready when, for each chunk that it reads, the last copy into it by an earlier step and every reduction
into it since that copy have ended. A reduction does not wait for other writes of its destination, and since receives
are buffered a write does not wait for reads, unless ``zero_copy`` asks for it.

`infer` works on the transfers written out. On the rows of a repeat a dependency is (row, distance in iterations), which
the compiled engine uses (`collsim.engine.lowering.row_dependencies`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import ScheduleError
from collsim.schedule.edges import Edges
from collsim.schedule.model import INPUT, SCRATCH, Schedule, Transfers

__all__ = ["edge_columns", "explicit_edges", "infer", "locations"]

Array = npt.NDArray[Any]


def locations(schedule: Schedule, end: Array, buffer: Array, chunk: Array) -> Array:
    """Return the number of a place in memory, (endpoint, buffer, chunk), with input and output alike when in place."""
    chunks = schedule.chunks
    per_end = chunks * (1 if schedule.in_place else 2) + schedule.scratch
    offset = np.zeros(3, dtype=np.int64)
    offset[INPUT] = 0 if schedule.in_place else chunks
    offset[SCRATCH] = per_end - schedule.scratch
    result: Array = end.astype(np.int64) * per_end + offset[buffer] + chunk
    return result


def infer(schedule: Schedule, transfers: Transfers, *, zero_copy: bool = False) -> tuple[Array, Array]:
    """Return the predecessors of each transfer in CSR form ``(ptr, pred)``, ascending.

    With ``zero_copy`` a write also waits for the reads, by earlier steps, of what it overwrites or adds to.

    Raises
    ------
    ScheduleError
        With ``zero_copy``, if a step both reads and writes a chunk: the exchange needs a buffer.

    Examples
    --------
    >>> from collsim.algorithms import ring_all_reduce
    >>> s = ring_all_reduce(3)
    >>> ptr, pred = infer(s, s.expand())
    >>> [pred[a:b].tolist() for a, b in zip(ptr[:-1], ptr[1:])][3:6]
    [[2], [0], [1]]
    """
    n = len(transfers)
    counts = np.diff(transfers.ptr)
    owner = np.repeat(np.arange(n), counts)
    src = locations(schedule, transfers.src[owner], transfers.src_buffer[owner], transfers.src_chunks)
    dst = locations(schedule, transfers.dst[owner], transfers.dst_buffer[owner], transfers.dst_chunks)
    steps = np.flatnonzero(np.diff(transfers.step, prepend=-1)) if n else np.zeros(0, dtype=np.int64)
    if zero_copy or len(steps) * 16 > n:
        reader, pred = _infer_few(transfers, owner, src, dst, steps, zero_copy)
    else:
        reader, pred = _infer_many(schedule, transfers, owner, src, dst, steps)
    order = np.lexsort((pred, reader))
    reader, pred = reader[order], pred[order]
    if len(reader):
        new = np.ones(len(reader), dtype=bool)
        new[1:] = (reader[1:] != reader[:-1]) | (pred[1:] != pred[:-1])
        reader, pred = reader[new], pred[new]
    ptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(reader, minlength=n), out=ptr[1:])
    return ptr, pred


def _infer_few(
    transfers: Transfers, owner: Array, src: Array, dst: Array, steps: Array, zero_copy: bool
) -> tuple[Array, Array]:
    """Entry by entry: for schedules with few transfers a step."""
    writers: dict[int, tuple[int, ...]] = {}
    readers: dict[int, list[int]] = {}
    reader_out: list[int] = []
    pred_out: list[int] = []
    owners, sources, targets = owner.tolist(), src.tolist(), dst.tolist()
    reduces = transfers.reduce.tolist()
    borders = [*transfers.ptr[steps].tolist(), len(owners)]
    for lo, hi in pairwise(borders):
        for entry in range(lo, hi):
            for writer in writers.get(sources[entry], ()):
                reader_out.append(owners[entry])
                pred_out.append(writer)
        if zero_copy:
            read_now = {sources[e]: e for e in range(lo, hi)}
            for entry in range(lo, hi):
                other = read_now.get(targets[entry])
                if other is not None:
                    raise ScheduleError(_exchange(transfers, owners[other], owners[entry], other))
                for reader in readers.get(targets[entry], ()):
                    if reader != owners[entry]:
                        reader_out.append(owners[entry])
                        pred_out.append(reader)
        for entry in range(lo, hi):
            loc, transfer = targets[entry], owners[entry]
            if reduces[transfer]:
                writers[loc] = (*writers.get(loc, ()), transfer)
            else:
                writers[loc] = (transfer,)
                readers.pop(loc, None)
        if zero_copy:
            for entry in range(lo, hi):
                readers.setdefault(sources[entry], []).append(owners[entry])
    return np.array(reader_out, dtype=np.int64), np.array(pred_out, dtype=np.int64)


def _exchange(transfers: Transfers, reads: int, writes: int, entry: int) -> str:
    step, chunk = transfers.step[reads], transfers.src_chunks[entry]
    return (
        f"zero_copy: step {step}: {transfers.src[reads]} -> {transfers.dst[reads]} reads chunk {chunk} that "
        f"{transfers.src[writes]} -> {transfers.dst[writes]} overwrites in the same step; expected a scratch buffer "
        "between them, or zero_copy=False"
    )


def _infer_many(
    schedule: Schedule, transfers: Transfers, owner: Array, src: Array, dst: Array, steps: Array
) -> tuple[Array, Array]:
    """Step by step on arrays: ``last`` is the last writer of each place, ``before`` links reductions since a copy."""
    per_end = schedule.chunks * (1 if schedule.in_place else 2) + schedule.scratch
    last = np.full(schedule.endpoints * per_end, -1, dtype=np.int64)
    before = np.full(len(owner), -1, dtype=np.int64)
    reduce = transfers.reduce[owner]
    readers: list[Array] = []
    preds: list[Array] = []
    borders = np.append(transfers.ptr[steps], len(owner)).tolist()
    for lo, hi in pairwise(borders):
        reader, entry = owner[lo:hi], last[src[lo:hi]]
        while True:
            found = entry >= 0
            if not found.any():
                break
            reader, entry = reader[found], entry[found]
            readers.append(reader)
            preds.append(owner[entry])
            entry = before[entry]
        loc, entries = dst[lo:hi], np.arange(lo, hi)
        order = np.argsort(loc, kind="stable")
        loc, entries = loc[order], entries[order]
        first = np.ones(len(loc), dtype=bool)
        first[1:] = loc[1:] != loc[:-1]
        chain = np.where(first, last[loc], np.roll(entries, 1))
        before[entries] = np.where(reduce[entries], chain, -1)
        final = np.ones(len(loc), dtype=bool)
        final[:-1] = first[1:]
        last[loc[final]] = entries[final]
    empty = np.zeros(0, dtype=np.int64)
    return np.concatenate([empty, *readers]), np.concatenate([empty, *preds])


def edge_columns(schedule: Schedule) -> dict[str, Array]:
    """Return the written edges as columns named like the attributes of `Edge`, and ``issued`` for ``at``."""
    return Edges.of(schedule.edges).columns


def explicit_edges(schedule: Schedule, edges: dict[str, Array] | None = None) -> tuple[Array, Array, Array, Array]:
    """Written edges in terms of transfer numbers: (transfer, predecessor, issued, lag in ps).

    ``edges`` are the `edge_columns` of some of them; all if not given.
    """
    edges = edge_columns(schedule) if edges is None else edges
    times = np.array([phase.times for phase in schedule.phases], dtype=np.int64)
    rows = np.array([len(phase.block) for phase in schedule.phases], dtype=np.int64)
    first = np.concatenate(([0], np.cumsum(times * rows)))
    begun = np.concatenate(([0], np.cumsum(times)))  # iterations of all phases before
    phase, pred_phase = edges["phase"], edges["pred_phase"]
    # iteration k of the one waits for iteration k - late of the other
    late = edges["distance"] - begun[phase] + begun[pred_phase]
    low, high = np.maximum(late, 0), np.minimum(times[phase], times[pred_phase] + late)
    counts = np.maximum(high - low, 0)
    edge = np.repeat(np.arange(len(phase)), counts)
    k = np.arange(len(edge)) - np.repeat(np.cumsum(counts) - counts - low, counts)
    transfer = first[phase[edge]] + k * rows[phase[edge]] + edges["row"][edge]
    pred = first[pred_phase[edge]] + (k - late[edge]) * rows[pred_phase[edge]] + edges["pred_row"][edge]
    return transfer, pred, edges["issued"][edge], edges["lag"][edge]
