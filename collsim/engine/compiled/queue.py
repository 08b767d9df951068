"""The event queue of the compiled engine: any program, event by event, with the same integers as the reference."""

from __future__ import annotations

import numpy as np

from collsim.engine.compiled.queue_kernel import (
    DELAYS,
    DONE,
    FULL,
    HANDLED,
    LATEST,
    LEFT,
    LIMIT,
    LIST,
    NODE,
    NUMBERS,
    SIZE,
    TOO_LONG,
    WAITED,
    end_of_step,
    run,
)
from collsim.engine.compiled.queue_setup import count_waits, successors, visits_of
from collsim.engine.deadlock import deadlock
from collsim.engine.loops import Loops
from collsim.engine.outcome import Outcome, Pulse, TooLongError, budgets, no_pulse
from collsim.engine.program import Array, Times
from collsim.errors import DeadlockError, InputError

__all__ = ["run_queue"]

FIRST_EVENTS = 100_000
"""Events of the first call of the kernel; the calls after it follow the clock."""

FIRST_HEAP = 1024
"""Entries that the heap has room for at first; it grows when an event could need more."""

LARGEST_NUMBER = 2**31
"""Numbers of nodes and positions of edges have 32 bits."""

EXPLAINED = 4_000_000
"""Nodes up to which a deadlock is explained by its cycle; for that the program is written out."""


def run_queue(loops: Loops, network: str, *, records: bool, pulse: Pulse = no_pulse) -> Outcome:
    """Execute a program event by event.

    Parameters
    ----------
    loops
        What to run; it is not written out. About 24 bytes are needed for each transfer.
    network
        ``"alpha_beta"``, ``"store_and_forward"`` or ``"cut_through"``.
    records
        Whether to keep the times of each transfer and of each visit of a station.
    pulse
        Called about ten times a second.

    Raises
    ------
    InputError
        If there are more transfers than 32 bits can number.
    DeadlockError
        If transfers wait for each other.
    TooLongError
        If a time passes what the kernel can hold.

    Examples
    --------
    >>> import collsim
    >>> from collsim.engine.loops import loops_of
    >>> from collsim.engine.lowering.lower import lower
    >>> topology = collsim.topology.ring(3, bandwidth="1GB/s", latency="1us")
    >>> loops = loops_of(lower(collsim.algorithms.ring_all_reduce(3), topology, 3000))
    >>> run_queue(loops, "cut_through", records=False).makespan  # four steps of 1 us for 1000 bytes and 1 us latency
    8000000
    """
    n = loops.nodes
    if max(n, len(loops.dep_row)) >= LARGEST_NUMBER:
        raise InputError(
            f"event queue: expected less than 2**31 transfers and dependencies, got {max(n, len(loops.dep_row))}; "
            "use fewer ranks or slices"
        )
    after = successors(loops, pulse)
    nodes = np.zeros(NODE * n, dtype=np.int64)
    count_waits(loops, nodes, pulse)
    lists = np.zeros(LIST * (DELAYS + len(loops.station_kind) + 2), dtype=np.int64)
    lists[::LIST] = -1
    numbers = np.zeros(NUMBERS, dtype=np.int64)
    numbers[LIMIT] = numbers[LEFT] = n
    if loops.barrier and n:
        numbers[LIMIT] = numbers[LEFT] = end_of_step(0, loops.first, loops.row_ptr, loops.step)
    times, row_visit, phase_visit = _records(loops, records)
    visits = visits_of(loops, network)
    heap = np.zeros(2 * FIRST_HEAP, dtype=np.int64)
    for budget in budgets(FIRST_EVENTS):
        code = run(
            budget, network != "alpha_beta", loops.barrier, loops.transfers, numbers, nodes, heap, lists,
            loops.first, loops.row_ptr, loops.step, loops.varies, loops.size_class,
            loops.chunk_base, loops.chunk_rel, loops.chunk_shift, loops.chunk_window, loops.chunk_class,
            loops.busy, loops.route, loops.route_ptr, visits,
            after.groups, after.most, after.ptr, after.offset, after.lag,
            after.word, after.edge_ptr, after.edge_node, after.edge_lag,
            row_visit, phase_visit, times.ready, times.start, times.end, times.visit_start, times.visit_end,
        )  # fmt: skip
        pulse(int(numbers[HANDLED]), n)
        if code == DONE:
            break
        if code == TOO_LONG:
            raise TooLongError
        if code == FULL:
            wider = np.zeros(2 * max(len(heap), int(numbers[SIZE]) + after.most + 2), dtype=np.int64)
            wider[: len(heap)] = heap
            heap = wider
    if numbers[HANDLED] < n:
        raise _stuck(loops, nodes, int(numbers[LIMIT]))
    waits = lists.reshape(-1, LIST)[DELAYS:-2, WAITED].copy()
    return Outcome(int(numbers[LATEST]), waits, _of_transfers(times, loops.transfers) if records else None, "")


def _records(loops: Loops, records: bool) -> tuple[Times, Array, Array]:
    """Return room for the records, and where those of the visits are: first of each row, and of each phase."""
    if not records:
        none = np.zeros(0, dtype=np.int64)
        return Times(none, none, none, none, none), none, none
    by_row = np.concatenate(([0], np.cumsum(loops.row_visits()))).astype(np.int64)
    by_phase = loops.times * (by_row[loops.row_ptr[1:]] - by_row[loops.row_ptr[:-1]])
    by_phase = np.concatenate(([0], np.cumsum(by_phase))).astype(np.int64)
    room = [np.zeros(int(size), dtype=np.int64) for size in (*[loops.nodes] * 3, by_phase[-1], by_phase[-1])]
    return Times(*room), by_row, by_phase


def _of_transfers(times: Times, transfers: int) -> Times:
    """Leave out the joins."""
    ready, start, end = (column[:transfers] for column in (times.ready, times.start, times.end))
    return Times(ready, start, end, times.visit_start, times.visit_end)


def _stuck(loops: Loops, nodes: Array, limit: int) -> DeadlockError:
    """Return the error for a program in which some nodes never became ready."""
    handled = nodes[2::NODE] == -1
    if loops.nodes <= EXPLAINED or handled[: loops.transfers].all():  # the latter: joins that wait for joins
        program = loops.flat()
        joins = program.nodes - loops.nodes  # those of a barrier: of all groups below the limit but the last
        if joins:
            opened = np.count_nonzero(np.diff(program.step[:limit]))
            handled = np.append(handled, np.arange(joins) < opened)
        return deadlock(program, handled)
    missing = np.flatnonzero(~handled[: loops.transfers])
    p = int(np.searchsorted(loops.first, missing[0], side="right")) - 1
    low, high = int(loops.row_ptr[p]), int(loops.row_ptr[p + 1])
    turn, place = divmod(int(missing[0] - loops.first[p]), high - low)
    step = int(loops.first_step[p] + turn * loops.block_steps[p] + loops.step[low + place])
    row = low + place
    return DeadlockError(
        f"deadlock: {len(missing)} of {loops.transfers} transfers never start, the first of them in step {step}, "
        f"{loops.src[row]} -> {loops.dst[row]}; dependencies of data cannot do this, so remove or reverse an explicit "
        "edge"
    )
