"""Who waits for whom: dependencies from the data that transfers read, never written by the author.

A transfer is ready when, for each chunk that it reads, the last copy into it by an earlier step and every reduction
into it since that copy have ended. A reduction does not wait for other writes of its destination, and since receives
are buffered a write does not wait for reads, unless ``zero_copy`` asks for it.

Two forms: `infer` works on the transfers written out, `repeat_dependencies` on the rows of a repeat, where a dependency
is (row, distance in iterations).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import ScheduleError, did_you_mean
from collsim.schedule.block import COLUMNS, whole
from collsim.schedule.expand import Plan
from collsim.schedule.model import INPUT, OUTPUT, SCRATCH, Edge, Schedule, Transfers

__all__ = ["RowDependencies", "explicit_edges", "infer", "locations", "repeat_dependencies", "window"]

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


@dataclass(frozen=True, eq=False)
class RowDependencies:
    """Dependencies inside one repeat: iteration k of ``row`` waits for iteration ``k - distance`` of ``pred``.

    ``copied`` tells for each row whether a copy inside the repeat is among its predecessors, in which case the
    iterations from its distance on read nothing from before the repeat.
    """

    row: Array
    pred: Array
    distance: Array
    copied: Array


def repeat_dependencies(schedule: Schedule, index: int) -> RowDependencies | None:
    """Dependencies of a phase as (row, distance), or None where it has to be written out.

    For a reader and a writer of equal shift and window it is the d with ``d * shift = o_w - o_r (mod window)``. None is
    returned where shifts or windows of such a pair differ, chunk sets overlap in part, or a row visits a chunk twice.

    Examples
    --------
    In ring reduce_scatter each row reads what its left neighbour's row wrote one iteration ago:

    >>> from collsim.algorithms import ring_reduce_scatter
    >>> d = repeat_dependencies(ring_reduce_scatter(4), 0)
    >>> d.row.tolist(), d.pred.tolist(), d.distance.tolist()
    ([0, 1, 2, 3], [3, 0, 1, 2], [1, 1, 1, 1])
    """
    phase = schedule.phases[index]
    block, times = phase.block, phase.times
    rows = len(block)
    shift = np.broadcast_to(np.asarray(phase.shift, np.int64), (rows,))
    width = np.broadcast_to(np.where(np.asarray(phase.window) == 0, schedule.chunks, phase.window), (rows,))
    period = width // np.gcd(shift, width)
    if (times > period).any() or block.lists is not None:
        return None  # a row visits a chunk twice, or an irregular set
    plan = Plan(phase, schedule.chunks)
    reads, writes = (_sets(schedule, block, plan, side) for side in ("src", "dst"))
    writers: dict[int, dict[tuple[int, int], list[int]]] = {}  # memory -> window -> rows
    for row, (memory, frame, _) in enumerate(writes):
        writers.setdefault(memory, {}).setdefault(frame, []).append(row)
    out: list[tuple[int, int, int]] = []
    copied = np.zeros(rows, dtype=bool)
    step, reduce, shifts = block.step.tolist(), block.reduce.tolist(), shift.tolist()
    for row, (memory, frame, chunks) in enumerate(reads):
        found: list[tuple[int, int, int, int]] = []  # distance, -step, -row: latest first; and the row
        for other, candidates in writers.get(memory, {}).items():
            if other != frame:
                if other[0] < frame[1] and frame[0] < other[1]:
                    return None  # windows that overlap in part
                continue
            for writer in candidates:
                if shifts[writer] != shifts[row]:
                    return None
                distance = _distance(chunks, writes[writer][2], shifts[row], frame[1] - frame[0], times)
                if distance is None:
                    return None
                if distance > 0 or (distance == 0 and step[writer] < step[row]):
                    found.append((distance, -step[writer], -writer, writer))
        for distance, _, _, writer in sorted(found):
            out.append((row, writer, distance))
            if not reduce[writer]:
                copied[row] = True
                break
    columns = np.array(sorted(out), dtype=np.int64).reshape(-1, 3)
    return RowDependencies(columns[:, 0], columns[:, 1], columns[:, 2], copied)


def _sets(schedule: Schedule, block: Any, plan: Plan, side: str) -> list[tuple[int, tuple[int, int], frozenset[int]]]:
    """For each row: (memory it is in, first and last + 1 of its window, positions of its chunks inside the window)."""
    buffer = getattr(block, side + "_buffer").astype(np.int64)
    if schedule.in_place:
        buffer = np.where(buffer == INPUT, OUTPUT, buffer)
    memory = (getattr(block, side).astype(np.int64) * 3 + buffer).tolist()
    base, rel = (plan.src_base, plan.src_rel) if side == "src" else (plan.dst_base, plan.dst_rel)
    width = np.broadcast_to(plan.window, base.shape)
    positions, ptr, start, width = (rel % width).tolist(), plan.ptr.tolist(), base.tolist(), width.tolist()
    return [
        (memory[i], (start[ptr[i]], start[ptr[i]] + width[ptr[i]]), frozenset(positions[ptr[i] : ptr[i + 1]]))
        for i in range(len(block))
    ]


def _distance(mine: frozenset[int], theirs: frozenset[int], shift: int, width: int, times: int) -> int | None:
    """Return the d in 0..times-1 with mine = theirs - d * shift (mod width); -1 if they never meet, None if in part."""
    if times == 1:
        return 0 if mine == theirs else (None if mine & theirs else -1)
    g = int(np.gcd(shift, width))
    period, inverse = width // g, pow(shift // g, -1, width // g) if width > g else 0
    best = -1
    for a in mine:
        for b in theirs:
            if (b - a) % g:
                continue
            d = (b - a) // g * inverse % period
            if d >= times or d == best:
                continue
            if best >= 0 or frozenset((c - d * shift) % width for c in theirs) != mine:
                return None
            best = d
    return best


def explicit_edges(schedule: Schedule) -> tuple[Array, Array, Array, Array]:
    """Written edges in terms of transfer numbers: (transfer, predecessor, issued, lag in ps)."""
    parts: list[tuple[Array, Array, Array, Array]] = []
    first = np.concatenate(([0], np.cumsum([phase.transfers for phase in schedule.phases]))).astype(np.int64)
    for e in schedule.edges:
        phase, pred = schedule.phases[e.phase], schedule.phases[e.pred_phase]
        back = sum(schedule.phases[p].times for p in range(e.pred_phase, e.phase))
        k = np.arange(phase.times, dtype=np.int64)
        q = k - e.distance + back
        fits = (q >= 0) & (q < pred.times)
        k, q = k[fits], q[fits]
        parts.append(
            (
                first[e.phase] + k * len(phase.block) + e.row,
                first[e.pred_phase] + q * len(pred.block) + e.pred_row,
                np.full(len(k), e.at == "issued"),
                np.full(len(k), e.lag, dtype=np.int64),
            )
        )
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty, np.zeros(0, dtype=bool), empty
    transfer, pred_, issued, lag = (np.concatenate(column) for column in zip(*parts, strict=True))
    return transfer, pred_, issued, lag


def window(
    schedule: Schedule, n: int, *, per: tuple[str, ...] = ("src", "dst", "channel"), at: str = "end"
) -> Schedule:
    """Return the schedule paced: a transfer waits for the n-th one before it of the same sender, receiver, channel.

    Parameters
    ----------
    schedule
        Any schedule; it keeps its other edges.
    n
        Transfers in flight at most, at least 1.
    per
        Columns of the block that tell windows apart.
    at
        What is waited for: ``"end"`` or ``"issued"``.

    Raises
    ------
    ScheduleError
        If n is less than 1, or phases have different numbers of rows for one window (write them as one block).

    Examples
    --------
    >>> from collsim.algorithms import ring_all_reduce
    >>> paced = window(ring_all_reduce(3), 1)
    >>> paced.edges[0]
    Edge(phase=0, row=0, pred_phase=0, pred_row=0, distance=1, at='end', lag=0)
    """
    if whole("window", n) < 1:
        raise ScheduleError(f"window: expected at least 1 transfer in flight, got {n}")
    for name in per:
        if name not in COLUMNS:
            raise ScheduleError(f"window: per: no column {name!r}{did_you_mean(name, COLUMNS)}")
    edges = list(schedule.edges)
    keyed: list[dict[tuple[int, ...], list[int]]] = []
    for phase in schedule.phases:
        keys: dict[tuple[int, ...], list[int]] = {}
        columns = [getattr(phase.block, name).tolist() for name in per]
        for row in range(len(phase.block)):
            keys.setdefault(tuple(column[row] for column in columns), []).append(row)
        keyed.append(keys)
    for number, keys in enumerate(keyed):
        times = schedule.phases[number].times
        for key, rows in keys.items():
            m = len(rows)
            for position, row in enumerate(rows):
                distance, ordinal = -((position - n) // m), (position - n) % m
                if distance < times:
                    edges.append(Edge(number, row, number, rows[ordinal], distance, at))
                # over the borders: iterations count on backwards, until the window is filled
                with_key = without_key = 0
                for earlier in range(number - 1, -1, -1):
                    if distance <= with_key:
                        break
                    theirs = keyed[earlier].get(key)
                    if theirs is None:
                        without_key += schedule.phases[earlier].times
                        continue
                    if len(theirs) != m:
                        raise ScheduleError(
                            f"window: {dict(zip(per, key, strict=True))} has {m} rows in phase {number} and "
                            f"{len(theirs)} in phase {earlier}; expected as many, write them as one block"
                        )
                    with_key += schedule.phases[earlier].times
                    if distance < times + with_key:
                        edges.append(Edge(number, row, earlier, theirs[ordinal], distance + without_key, at))
    return replace(schedule, edges=tuple(edges))
