"""LogGP: the processor and the network interface of each rank instead of links, by LogGOPSim's rules.

A message takes the processor of its sender for the overhead, crosses the network in the latency, and takes the
processor of its receiver for the overhead and the bytes. All sends and receives of a rank share its processor; nothing
else is shared. That is a `Program` like any other, with other stations, so either engine runs it. See docs/loggp.md.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.engine.lowering.lower import lower
from collsim.engine.outcome import TooLongError
from collsim.engine.program import LINK, SENDER, Program, Times
from collsim.errors import InputError, one_of
from collsim.schedule import Schedule
from collsim.topology import switch
from collsim.units import INT64_MAX, PICOSECONDS, TIMES, Quantity, _exact, parse_size, parse_time

__all__ = ["host_times", "loggp", "loggp_program"]

Array = npt.NDArray[Any]


def loggp(
    schedule: Schedule,
    size: Quantity,
    *,
    latency: Quantity,
    overhead: Quantity,
    gap: Quantity,
    gap_per_byte: Quantity,
    overhead_per_byte: Quantity = 0,
    element_size: int = 1,
    engine: str = "reference",
) -> Array:
    """Return the time at which the processor of each rank has done its last send or receive, in picoseconds.

    Parameters
    ----------
    schedule, size, latency, overhead, gap, gap_per_byte, overhead_per_byte, element_size
        As in `loggp_program`.
    engine
        ``"reference"`` or ``"compiled"``: the same integers.

    Raises
    ------
    InputError
        If a rank would begin two receives in less than the gap. That can happen only where the gap is longer than the
        overhead, and the program does not keep it; whatever is returned keeps all rules.

    Examples
    --------
    The example of LogGOPSim: a binomial reduction of 1024 bytes on eight ranks, the farthest first.

    >>> import collsim
    >>> from collsim.algorithms import binomial_tree_reduce
    >>> times = loggp(
    ...     binomial_tree_reduce(8, order=[0, 4, 2, 6, 1, 5, 3, 7]), 1024,
    ...     latency="2500ns", overhead="1500ns", gap="1000ns", gap_per_byte="6ns",
    ... )
    >>> (times // 1000).tolist()
    [34914, 24776, 13138, 13138, 1500, 1500, 1500, 1500]
    """
    one_of("engine", engine, ("reference", "compiled"))
    given: dict[str, Any] = {"gap": gap, "overhead": overhead, "gap_per_byte": gap_per_byte}
    program = loggp_program(
        schedule, size, latency=latency, overhead_per_byte=overhead_per_byte, element_size=element_size, **given
    )
    times = _run(program, engine)
    if parse_time(gap) > parse_time(overhead):
        _refuse_near_receives(program, times, parse_time(gap), _per_byte("gap_per_byte", gap_per_byte))
    return host_times(schedule, program, times)


def loggp_program(
    schedule: Schedule,
    size: Quantity,
    *,
    latency: Quantity,
    overhead: Quantity,
    gap: Quantity,
    gap_per_byte: Quantity,
    overhead_per_byte: Quantity = 0,
    element_size: int = 1,
) -> Program:
    """Lower a schedule to a program of LogGP: a processor and a wire for each rank.

    Parameters
    ----------
    schedule
        Any schedule without places and paths. Its data dependencies and its written edges hold.
    size
        Message size as in `collsim.simulate`.
    latency, overhead, gap
        L, o and g: time through the network, time of a processor for each send and each receive, and the least time
        between two sends of a rank, and between two receives.
    gap_per_byte, overhead_per_byte
        G and O: a time for each byte after the first, on the network interface and on the processor. A text such as
        ``"6ns"``, or seconds.
    element_size
        Bytes of an element; chunks are cut between elements.

    Returns
    -------
    Program
        To be run in ``cut_through`` or ``store_and_forward`` (they are the same here). The gap between receives is not
        in it; it holds by itself where it is no longer than the overhead.

    Raises
    ------
    InputError, ScheduleError
        If the schedule has places or paths, or a number is not what it should be.

    Examples
    --------
    >>> from collsim.algorithms import ring_broadcast
    >>> from collsim.engine.reference import run_reference
    >>> program = loggp_program(
    ...     ring_broadcast(2, slices=1), 1024, latency="2500ns", overhead="1500ns", gap="1000ns", gap_per_byte="6ns"
    ... )
    >>> run_reference(program, "cut_through").end.tolist()  # o + L + o + 1023 G
    [11638000]
    """
    if schedule.places or schedule.paths:
        raise InputError("schedule: LogGP knows ranks only; expected no switches that take part, and no paths")
    ranks = schedule.ranks
    wire, o, g = parse_time(latency), parse_time(overhead), parse_time(gap)
    per_byte, cpu_per_byte = _per_byte("gap_per_byte", gap_per_byte), _per_byte("overhead_per_byte", overhead_per_byte)
    # what depends on the data only is that of any machine
    machine = switch(ranks, bandwidth="1GB/s", latency=0)
    program = lower(schedule, machine, parse_size(size), element_size=element_size)
    sends = np.flatnonzero(program.src != program.dst)
    src, dst = program.src[sends].astype(np.int64), program.dst[sends].astype(np.int64)
    sizes, which = np.unique(program.bytes[sends], return_inverse=True)
    sending = _by_size(sizes, o, cpu_per_byte)[which]
    receiving = _by_size(sizes, o, max(per_byte, cpu_per_byte))[which]
    interface = _by_size(sizes, g, per_byte)[which]
    # a send waits until the interface has done with the one before it, which may be after the processor has
    order = np.argsort(src, kind="stable")
    same = src[order[1:]] == src[order[:-1]]
    before, after = order[:-1][same], order[1:][same]
    owner = np.concatenate([np.repeat(np.arange(program.nodes), np.diff(program.pred_ptr)), sends[after]])
    by_owner = np.argsort(owner, kind="stable")
    pred = np.concatenate([program.pred, sends[before]])
    issued = np.concatenate([program.pred_issued, np.ones(len(before), dtype=np.bool_)])
    lag = np.concatenate([program.pred_lag, np.maximum(interface - sending, 0)[before]])
    pred_ptr = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=program.nodes))]).astype(np.int64)
    visits = np.zeros(program.nodes, dtype=np.int64)
    visits[sends] = 3
    return replace(
        program,
        pred_ptr=pred_ptr,
        pred=pred[by_owner],
        pred_issued=issued[by_owner],
        pred_lag=lag[by_owner],
        visit_ptr=np.concatenate([[0], np.cumsum(visits)]).astype(np.int64),
        visit_station=np.column_stack([src, ranks + src, dst]).ravel(),
        visit_busy=np.column_stack([sending, np.zeros_like(sending), receiving]).ravel(),
        visit_latency=np.tile(np.array([0, wire, 0], dtype=np.int64), len(sends)),
        station_kind=np.repeat([SENDER, LINK], ranks),
        station_bandwidth=np.repeat([0, INT64_MAX], ranks),
        station_index=np.tile(np.arange(ranks), 2),
    )


def host_times(schedule: Schedule, program: Program, times: Times) -> Array:
    """Return by rank when its processor has done its last send or receive, in picoseconds (0 if it never had any)."""
    last = np.zeros(schedule.ranks, dtype=np.int64)
    on_cpu = program.station_kind[program.visit_station] == SENDER
    np.maximum.at(last, program.visit_station[on_cpu], times.visit_end[on_cpu])
    return last


def _run(program: Program, engine: str) -> Times:
    if engine == "compiled":
        from collsim.engine.compiled.run import run_compiled
        from collsim.engine.loops import loops_of

        try:
            times = run_compiled(loops_of(program), "cut_through", records=True).times
        except TooLongError:  # the reference says by how much, if it is too long at all
            times = None
        if times is not None:
            return times
    from collsim.engine.reference import run_reference

    return run_reference(program, "cut_through")


def _refuse_near_receives(program: Program, times: Times, gap: int, per_byte: Fraction) -> None:
    """Refuse a run in which the interface of a receiver was not yet free."""
    receives = np.arange(2, len(program.visit_station), 3)
    rank, begin = program.visit_station[receives], times.visit_start[receives]
    sizes, which = np.unique(program.bytes[program.src != program.dst], return_inverse=True)
    free = begin + _by_size(sizes, gap, per_byte)[which]
    order = np.lexsort((begin, rank))
    early = (rank[order[1:]] == rank[order[:-1]]) & (begin[order[1:]] < free[order[:-1]])
    if early.any():
        at = order[1:][early][0]
        raise InputError(
            f"gap: rank {rank[at]} would begin a receive before the gap after another one has passed, which is kept "
            "only where the gap is no longer than the overhead; expected such a gap, or fewer messages at once"
        )


def _by_size(sizes: Array, fixed: int, per_byte: Fraction) -> Array:
    """Picoseconds for messages of some sizes: a fixed time, and one for each byte after the first, rounded up."""
    values = [fixed + ceil(max(0, size - 1) * per_byte) for size in sizes.tolist()]
    if max(values, default=0) > INT64_MAX // 4:
        raise InputError("size: a message would take more than 26 days; use a smaller size")
    return np.array(values, dtype=np.int64)


def _per_byte(name: str, value: Quantity) -> Fraction:
    """Picoseconds a byte; what is left of binary fractions (6e-9 is none) is taken out."""
    exact = _exact(value, TIMES, Fraction(PICOSECONDS), f"{name}: a time a byte such as '6ns'", "time")
    return exact.limit_denominator(10**6)
