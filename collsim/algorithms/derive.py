"""Mirror images and concatenations: algorithms that are made from others instead of being written.

An all_gather run backwards, with every arrow turned round and every copy made an addition, is a reduce_scatter if each
chunk travels along a tree (Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice,
and experience", 2007, call the two duals). A reduce_scatter followed by an all_gather is an all_reduce.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.algorithms.common import rank_order
from collsim.collective import Collective
from collsim.errors import AlgorithmError
from collsim.schedule import Block, Repeat, Schedule
from collsim.schedule.block import OUTPUT, SCRATCH, ChunkLists

__all__ = ["lists_of", "rename", "reverse", "then"]

Array = npt.NDArray[Any]

MIRRORS = {"all_gather": "reduce_scatter", "broadcast": "reduce", "scatter": "gather", "gather": "scatter"}

WRITTEN_OUT = 1 << 20
"""Chunks of all ranks up to which trees are looked at chunk by chunk; above, what each rank receives is counted."""


def reverse(schedule: Schedule, operation: str) -> Schedule:
    """Return the mirror image of a schedule: time and arrows run backwards.

    Repeats stay repeats: their iterations run backwards, so a chunk begins where the last iteration had it and moves
    on the other way. Rows of one step are sorted by their sender. What a path names is kept, in the opposite order:
    nodes, or links that must lead the other way.

    Parameters
    ----------
    schedule
        An all_gather, broadcast, scatter or gather that only copies, each chunk along a tree: no rank receives a chunk
        twice, or one that it had from the start, or sends one that it has not got yet.
    operation
        What the mirror image implements: reduce_scatter, reduce, gather or scatter, in the same order.

    Raises
    ------
    AlgorithmError
        If the schedule has no mirror image, with the first reason.

    Examples
    --------
    >>> from collsim import Collective, ScheduleBuilder
    >>> b = ScheduleBuilder(Collective("broadcast", 4), chunks=1)
    >>> b.copy(0, 2, step=0)
    >>> b.copy([0, 2], [1, 3], step=1)
    >>> print(reverse(b.build(), "reduce"))
    reduce ranks=4 chunks=1 root=0
    repeat 1
      step 0
        1 => 0  0
        3 => 2  0
      step 1
        2 => 0  0
    """
    given = schedule.collective
    if MIRRORS.get(given.operation) != operation:
        raise AlgorithmError(
            f"reverse: expected {', '.join(f'{a} to {b}' for a, b in MIRRORS.items())}, "
            f"got {given.operation} to {operation}"
        )
    _refuse_what_is_no_tree(schedule)
    mirrored = Collective(operation, given.ranks, given.root)
    return Schedule(
        mirrored,
        schedule.chunks,
        tuple(_backwards(phase, schedule.chunks, mirrored.reduces) for phase in reversed(schedule.phases)),
        order=schedule.order,
        layout=schedule.layout,
        paths=tuple(path[::-1] for path in schedule.paths),
    )


def then(first: Schedule, second: Schedule, operation: str) -> Schedule:
    """Return one schedule that runs two, one after the other, on the same buffer.

    Phases stay as they are. Where the two number their chunks in different orders, those of the second are renumbered
    (its repeats are then written out). Whether the two together implement the operation is for the proof to say.

    Parameters
    ----------
    first, second
        Schedules of the same ranks with equally many chunks; the second works in place on what the first left.
    operation
        What both together implement, such as all_reduce for a reduce_scatter and an all_gather.

    Raises
    ------
    AlgorithmError
        If they do not fit together.

    Examples
    --------
    >>> from collsim.algorithms import ring_all_gather, ring_all_reduce, ring_reduce_scatter
    >>> then(ring_reduce_scatter(5), ring_all_gather(5), "all_reduce") == ring_all_reduce(5)
    True
    """
    for what in ("ranks", "chunks"):
        if getattr(first, what) != getattr(second, what):
            raise AlgorithmError(
                f"then: expected as many {what} in both, got {getattr(first, what)} and {getattr(second, what)}"
            )
    roots = {schedule.collective.root for schedule in (first, second) if schedule.collective.is_rooted}
    if len(roots) > 1:
        raise AlgorithmError(f"then: expected the same root in both, got {sorted(roots)}")
    if not second.in_place:
        raise AlgorithmError("then: second: expected a schedule that works in place on what the first left")
    if first.scratch and second.scratch:
        raise AlgorithmError("then: expected scratch in one of the two only, got some in both")
    if first.places and second.places and first.places != second.places:
        raise AlgorithmError(f"then: expected the same places in both, got {first.places} and {second.places}")
    if first.layout != second.layout:
        raise AlgorithmError("then: expected the same layout in both")
    collective = Collective(operation, first.ranks, roots.pop() if roots and _is_rooted(operation) else 0)
    if first.order != second.order:
        second = _renumbered(second, first.order)
    moved = tuple(
        replace(edge, phase=edge.phase + len(first.phases), pred_phase=edge.pred_phase + len(first.phases))
        for edge in second.edges
    )
    return Schedule(
        collective,
        first.chunks,
        first.phases + tuple(_after(phase, len(first.paths), first.in_place) for phase in second.phases),
        scratch=max(first.scratch, second.scratch),
        in_place=first.in_place,
        edges=first.edges + moved,
        # without blocks of ranks any order of chunks will do
        order=first.order if collective.is_blocked or first.layout is not None else None,
        layout=first.layout,
        paths=first.paths + second.paths,
        places=first.places or second.places,
    )


def rename(schedule: Schedule, order: Sequence[int] | None) -> Schedule:
    """Return the same schedule on ranks that lie in another order.

    Parameters
    ----------
    schedule
        Any schedule without switches that take part.
    order
        Rank that does what rank i did, for each i; None leaves all as it is. Its root moves along, and so do the
        blocks of ranks.

    Raises
    ------
    AlgorithmError
        If ``order`` does not hold each rank once.

    Examples
    --------
    >>> from collsim.algorithms import ring_all_gather
    >>> rename(ring_all_gather(4), [2, 0, 3, 1]) == ring_all_gather(4, order=[2, 0, 3, 1])
    True
    """
    if order is None:
        return schedule
    name = rank_order(schedule.ranks, order)
    c, chunks = schedule.collective, np.arange(schedule.chunks)
    places = schedule.order
    if c.is_blocked:
        cuts = schedule.chunks // c.ranks
        place = schedule.place_of(chunks)
        places = tuple((name[place // cuts] * cuts + place % cuts).tolist())
    phases = tuple(
        replace(phase, block=replace(phase.block, src=name[phase.block.src], dst=name[phase.block.dst]))
        for phase in schedule.phases
    )
    root = int(name[c.root]) if c.is_rooted else 0
    return replace(schedule, collective=Collective(c.operation, c.ranks, root), phases=phases, order=places)


def _is_rooted(operation: str) -> bool:
    return Collective(operation, 1).is_rooted


def _refuse_what_is_no_tree(schedule: Schedule) -> None:
    for what, found in (
        ("written edges", schedule.edges),
        ("scratch", schedule.scratch),
        ("switches that take part", schedule.places),
        ("an input of its own (in_place=False)", not schedule.in_place),
        ("reductions", any(phase.block.reduce.any() for phase in schedule.phases)),
        ("chunks that change their place", not all(phase.block.is_aligned for phase in schedule.phases)),
    ):
        if found:
            raise AlgorithmError(f"reverse: expected copies along a tree for each chunk, got a schedule with {what}")
    c, chunks = schedule.collective, schedule.chunks
    moves = [(phase.block, _lengths(phase.block) * phase.times) for phase in schedule.phases]
    if max(c.ranks * chunks, sum(int(entries.sum()) for _, entries in moves)) <= WRITTEN_OUT:
        return _refuse_chunk_by_chunk(schedule)
    received = np.zeros(c.ranks, dtype=np.int64)
    for block, entries in moves:
        np.add.at(received, block.dst, entries)
    most = np.full(c.ranks, chunks)
    if c.operation == "all_gather":
        most -= chunks // c.ranks
    elif c.operation in ("broadcast", "scatter"):
        most[c.root] = 0
    if (received > most).any():
        rank = int(np.argmax(received > most))
        raise AlgorithmError(
            f"reverse: expected a tree for each chunk, but rank {rank} receives {received[rank]} chunks, more than the "
            f"{most[rank]} that it does not hold"
        )


def _refuse_chunk_by_chunk(schedule: Schedule) -> None:
    c, chunks, t = schedule.collective, schedule.chunks, schedule.expand()
    row = np.repeat(np.arange(len(t)), np.diff(t.ptr))
    src, dst, step = t.src[row].astype(np.int64), t.dst[row].astype(np.int64), t.step[row].astype(np.int64)
    sent, got = src * chunks + t.src_chunks, dst * chunks + t.src_chunks
    rank, chunk = np.divmod(np.arange(c.ranks * chunks), chunks)
    never = np.iinfo(np.int64).max
    since = np.where(c.provides(rank, schedule.place_of(chunk), chunks), -1, never)  # step after which it is there
    visits = np.bincount(got, minlength=len(since)) + (since < 0)
    since[got] = step
    bad = np.flatnonzero(visits > 1)
    if len(bad):
        raise AlgorithmError(
            f"reverse: expected a tree for each chunk, but rank {bad[0] // chunks} receives chunk {bad[0] % chunks} "
            "more than once or had it from the start"
        )
    early = np.flatnonzero(since[sent] >= step)
    if len(early):
        i = early[0]
        raise AlgorithmError(
            f"reverse: expected a tree for each chunk, but rank {src[i]} sends chunk {t.src_chunks[i]} in step "
            f"{step[i]} before it has got it"
        )


def _lengths(block: Block) -> Array:
    """Count the chunks of each row."""
    count = block.count.astype(np.int64)
    if block.lists is not None:
        listed = np.diff(block.lists.offsets)
        count = np.where(listed > 0, listed, count)
    return count


def _backwards(phase: Repeat, chunks: int, reduces: bool) -> Repeat:
    block = phase.block
    step = max(block.steps - 1, 0) - block.step
    row = np.lexsort((block.dst, step))  # by the new sender; equal ones keep their order
    shift = np.broadcast_to(np.asarray(phase.shift, dtype=np.int64), (len(block),))[row]
    given = np.broadcast_to(np.asarray(phase.window, dtype=np.int64), (len(block),))[row]
    window = np.where(given == 0, chunks, given)
    way = shift * (max(phase.times, 1) - 1)

    def last(chunk: Array, rows: Any = slice(None)) -> Array:
        """Where a chunk is in the last iteration."""
        w = window[rows]
        return np.asarray(chunk - chunk % w + (chunk % w + way[rows]) % w)

    lists = None
    if block.lists is not None:
        lists = lists_of(block.lists, row)
        rows = np.repeat(np.arange(len(row)), np.diff(lists.offsets))
        moved = last(lists.src.astype(np.int64), rows)
        lists = ChunkLists(lists.offsets, moved, moved)
    first = last(block.src_chunk[row].astype(np.int64))
    turned = Block(
        step=step[row],
        src=block.dst[row],
        src_buffer=block.dst_buffer[row],
        src_chunk=first,
        dst=block.src[row],
        dst_buffer=block.src_buffer[row],
        dst_chunk=first,
        count=block.count[row],
        stride=block.stride[row],
        reduce=np.full(len(row), reduces),
        channel=block.channel[row],
        lists=lists,
        via=None if block.via is None else block.via[row],
    )
    return Repeat(turned, phase.times, -shift, given)


def lists_of(lists: ChunkLists, row: Array) -> ChunkLists:
    """Return the lists of some rows, in that order."""
    lengths = np.diff(lists.offsets)[row]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    entry = np.arange(offsets[-1]) + np.repeat(lists.offsets[:-1][row] - offsets[:-1], lengths)
    return ChunkLists(offsets, lists.src[entry], lists.dst[entry])


def _after(phase: Repeat, paths: int, in_place: bool) -> Repeat:
    """Let a phase read what was left in the output, and find its paths behind those of the first schedule."""
    block = phase.block
    if block.via is not None and paths:
        block = replace(block, via=np.where(block.via < 0, -1, block.via + paths))
    if not in_place:
        source, target = (np.where(b == SCRATCH, b, OUTPUT) for b in (block.src_buffer, block.dst_buffer))
        block = replace(block, src_buffer=source, dst_buffer=target)
    return phase if block is phase.block else replace(phase, block=block)


def _renumbered(schedule: Schedule, order: tuple[int, ...] | None) -> Schedule:
    """Write a schedule out in chunk numbers of another order."""
    if schedule.edges:
        raise AlgorithmError("then: second: expected chunks in the order of the first, or no written edges")
    place = schedule.place_of(np.arange(schedule.chunks))
    there = place if order is None else np.argsort(np.asarray(order))[place]
    t = schedule.expand()
    row = np.repeat(np.arange(len(t)), np.diff(t.ptr))

    def named(chunk: Array, buffer: Array) -> Array:
        scratch = buffer[row] == SCRATCH
        return np.where(scratch, chunk, there[np.where(scratch, 0, chunk)])

    src, dst = named(t.src_chunks, t.src_buffer), named(t.dst_chunks, t.dst_buffer)
    ones = np.ones(len(t), dtype=np.int64)
    block = Block(
        t.step, t.src, t.src_buffer, src[t.ptr[:-1]], t.dst, t.dst_buffer, dst[t.ptr[:-1]], ones, ones, t.reduce,
        t.channel, ChunkLists(t.ptr, src, dst), t.via,
    )  # fmt: skip
    return replace(schedule, phases=(Repeat(block),) if len(t) else (), order=order)
