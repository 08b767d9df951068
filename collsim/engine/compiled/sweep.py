"""The sweep: a program run in program order, without an event queue, for as long as that is the order of events.

Where every edge leads to a higher number, events are handled in ascending (time, number). So if at every station the
arrivals, taken in program order, are never earlier than the one before, then program order is the order of events at
every station, and the integers are those of the queue. At the first arrival out of order the sweep is given up.

Loops are not written out. A phase has a ring buffer of the ends of its last iterations; other nodes whose ends are
wanted later on (`Loops.edge_pred`) have a place each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collsim.engine.compiled.jump import jump_ahead
from collsim.engine.compiled.sweep_kernel import (
    BARRIER,
    CURSOR,
    DISORDER,
    FREE,
    ITERATION,
    LAST,
    MATCHED,
    PEAK,
    ROW,
    SHIFT,
    SLOT,
    STEP,
    STEP_PEAK,
    TOO_LONG,
    WAIT,
    count_crossings,
    run_rows,
)
from collsim.engine.loops import Loops
from collsim.engine.outcome import LARGEST_TIME, Outcome, Pulse, TooLongError, budgets, no_pulse
from collsim.engine.program import COPY, LINK, Array, Times

__all__ = ["OutOfOrder", "Phase", "Sweep", "run_sweep"]

SEARCH = 31
"""Iterations in which a period is looked for before rows are made ready for a faster kernel, which goes on looking."""

ROWS_FROM = 200_000
"""Transfers that must remain for that."""


FIRST_ROWS = 1_000_000
"""Transfers of the first call of the kernel; the calls after it follow the clock."""


class OutOfOrder(Exception):
    """An arrival at a station was earlier than the one before."""


@dataclass(frozen=True)
class Snapshot:
    """A copy of the state of a loop."""

    cursor: Array
    ended: Array
    issued: Array
    stations: Array


def run_sweep(
    loops: Loops, network: str, *, records: bool, jump: bool = True, pulse: Pulse = no_pulse
) -> Outcome | None:
    """Run a program in program order.

    Parameters
    ----------
    loops
        The program.
    network
        ``"alpha_beta"``, ``"store_and_forward"`` or ``"cut_through"``.
    records
        Whether to give back the times of all transfers; all of them are then run.
    jump
        Whether iterations that repeat earlier ones, only later, may be skipped.
    pulse
        Called about ten times a second.

    Returns
    -------
    Outcome or None
        None if program order is not the order of events, as far as can be seen.

    Raises
    ------
    TooLongError
        If a time passes what 64 bits hold.
    """
    if loops.joins or not loops.is_forward:
        return None
    sweep = Sweep(loops, network, records, pulse)
    try:
        for phase in range(loops.phases):
            sweep.run_phase(phase, jump and not records)
    except OutOfOrder:
        return None
    return sweep.outcome()


class Sweep:
    """A sweep that is under way: what its kernels read, and the arrays in which they keep what they are at."""

    def __init__(self, loops: Loops, network: str, records: bool, pulse: Pulse) -> None:
        self.loops = loops
        self.pulse = pulse
        self.shared = network != "alpha_beta"
        self.records = records
        carries = np.isin(loops.station_kind[loops.route_station], (COPY, LINK))
        self.cuts = np.zeros(len(carries), dtype=np.bool_)
        if network != "store_and_forward":
            self.cuts[:-1] = carries[:-1] & carries[1:]  # true across the border of two routes, where nobody asks
        self.wanted = np.unique(loops.edge_pred)
        self.edge_slot = np.searchsorted(self.wanted, loops.edge_pred)
        self.wanted_ended, self.wanted_issued = (np.zeros(len(self.wanted), dtype=np.int64) for _ in range(2))
        self.stations = np.zeros((len(loops.station_kind), 3), dtype=np.int64)
        self.cursor = np.zeros(CURSOR, dtype=np.int64)
        self.cursor[STEP] = -1
        self.makespan = 0
        self.jumped = 0
        nodes, visits = (loops.transfers, loops.visits()) if records else (0, 0)
        self.times = Times(*(np.zeros(n, dtype=np.int64) for n in (nodes, nodes, nodes, visits, visits)))

    def outcome(self) -> Outcome:
        """Return what came out."""
        return Outcome(
            makespan=self.makespan,
            longest_wait=np.ascontiguousarray(self.stations[:, WAIT]),
            times=self.times if self.records else None,
            shortcut="jump" if self.jumped else "sweep",
            jumped=self.jumped,
        )

    def run_phase(self, number: int, jump: bool) -> None:
        """Run all iterations of a phase, by the quickest way that is exact."""
        phase = Phase(self, number)
        if not phase.rows:
            return
        start, stop = phase.quiet() if not phase.varies and not self.records else (0, 0)
        start = max(start, phase.reach)  # from here on all predecessors are there
        if stop - start > 3:
            phase.run(start)
            phase.cross()
            rows = phase.alone and (stop - start) * phase.rows >= ROWS_FROM
            found = jump and phase.keeps_time and jump_ahead(phase, stop, SEARCH if rows else stop)
            if rows and not found:
                from collsim.engine.compiled.row_sweep import run_as_rows

                run_as_rows(phase, start, min(stop, phase.times - 1), jump and phase.keeps_time)
        phase.run(phase.times)
        self.note_peak()
        self.pulse(int(self.loops.first[number + 1]), self.loops.nodes)

    def note_peak(self) -> None:
        """Take the latest end so far into account, and begin anew."""
        self.makespan = max(self.makespan, int(self.cursor[PEAK]))
        self.cursor[PEAK] = 0


class Phase:
    """A phase of a sweep that is being run: a `collsim.engine.compiled.jump.Track`."""

    def __init__(self, sweep: Sweep, number: int) -> None:
        loops = sweep.loops
        self.sweep, self.number = sweep, number
        lo, hi = int(loops.row_ptr[number]), int(loops.row_ptr[number + 1])
        self.lo, self.rows, self.times, self.first = lo, hi - lo, int(loops.times[number]), int(loops.first[number])
        self.varies = bool(loops.varies[number])
        dep_ptr = loops.dep_ptr[lo : hi + 1]
        deps = slice(int(dep_ptr[0]), int(dep_ptr[-1]))
        dep_issued = loops.dep_issued if loops.dep_issued[deps].any() else loops.dep_issued[:0]
        self.reach = min(int(loops.dep_distance[deps].max(initial=0)), max(self.times - 1, 0))
        """Iterations that predecessors lie back, at the most."""
        self.within = deps.stop > deps.start and int(loops.dep_distance[deps].min(initial=self.reach)) == 0
        """Whether some row waits for another one of the same iteration."""
        self.keeps_time = loops.barrier or bool(np.diff(dep_ptr).all())
        """Whether every row waits for something inside the phase, once all predecessors are there."""
        self.ended = np.zeros((self.reach + 1) * self.rows, dtype=np.int64)
        self.issued = np.zeros(len(self.ended) if len(dep_issued) else 0, dtype=np.int64)
        self.block = np.zeros(0, dtype=np.int64)
        self.alone = False
        sweep.cursor[[ITERATION, ROW, SLOT]] = 0
        self.constants = np.array(
            [lo, self.rows, self.reach + 1, self.first, loops.first_step[number], loops.block_steps[number],
             self.varies, loops.barrier, sweep.shared, sweep.records], dtype=np.int64,
        )  # fmt: skip
        self.deps = (dep_ptr, loops.dep_row, loops.dep_distance, dep_issued, loops.dep_lag)
        self.routes = (
            loops.route_ptr, loops.route_station, loops.route_latency, loops.route_rate, sweep.cuts, loops.busy,
        )  # fmt: skip
        base, rel, shift, window = (
            column[lo:hi] if self.varies else column[:0]
            for column in (loops.chunk_base, loops.chunk_rel, loops.chunk_shift, loops.chunk_window)
        )
        self.columns = (
            *self.deps, loops.edge_node, sweep.edge_slot, loops.edge_issued, loops.edge_lag,
            sweep.wanted, sweep.wanted_ended, sweep.wanted_issued,
            loops.step[lo:hi], loops.route[lo:hi], loops.size_class[lo:hi],
            base, rel % window, shift % window, window, loops.chunk_class, *self.routes,
            sweep.stations, self.ended, self.issued,
        )  # fmt: skip

    def quiet(self) -> tuple[int, int]:
        """Return the longest range of iterations that no single edge enters and that nobody asks for later on."""
        events = [np.array([-1, self.times])]
        for nodes in (self.sweep.loops.edge_node, self.sweep.wanted):
            inside = slice(*np.searchsorted(nodes, [self.first, self.first + self.times * self.rows]))
            events.append((nodes[inside] - self.first) // self.rows)
        bounds = np.unique(np.concatenate(events))
        longest = int(np.argmax(np.diff(bounds)))
        return int(bounds[longest]) + 1, int(bounds[longest + 1])

    def cross(self) -> None:
        """Find the stations of the phase, and whether each is crossed by one row only, once."""
        loops, shared = self.sweep.loops, self.sweep.shared
        if shared:
            count = np.zeros(len(loops.station_kind), dtype=np.int64)
            count_crossings(count, loops.route[self.lo : self.lo + self.rows], loops.route_ptr, loops.route_station)
            self.block = np.flatnonzero(count)
            self.alone = int(count.max(initial=0)) <= 1
        self.alone = (self.alone or not shared) and not loops.barrier

    @property
    def iteration(self) -> int:
        """Number of the next iteration."""
        return int(self.sweep.cursor[ITERATION])

    def snapshot(self) -> Snapshot:
        """Return a copy of the state."""
        self.sweep.note_peak()
        cursor, stations = self.sweep.cursor.copy(), np.ascontiguousarray(self.sweep.stations[self.block, :WAIT])
        return Snapshot(cursor, self.ended.copy(), self.issued.copy(), stations)

    def run(self, stop: int, then: Snapshot | None = None) -> int:
        """Run up to an iteration, or until the state is ``then`` but later; return by how much, or -1."""
        sweep, cursor = self.sweep, self.sweep.cursor
        state = then or Snapshot(cursor, self.ended, self.issued, sweep.stations)
        times = sweep.times
        if cursor[ITERATION] >= stop:
            return -1
        for budget in budgets(FIRST_ROWS):
            answer = run_rows(
                cursor, self.constants, stop, budget, *self.columns,
                then is not None, self.block, state.cursor, state.ended, state.issued, state.stations,
                times.ready, times.start, times.end, times.visit_start, times.visit_end,
            )  # fmt: skip
            if answer == DISORDER:
                raise OutOfOrder
            if answer == TOO_LONG:
                raise TooLongError
            if answer == MATCHED:
                return int(cursor[SHIFT])
            if cursor[ITERATION] >= stop:
                return -1
            sweep.pulse(int(self.first + cursor[ITERATION] * self.rows + cursor[ROW]), sweep.loops.nodes)
        raise AssertionError("budgets never end")

    def skip(self, iterations: int, shift: int) -> None:
        """Take iterations as done, adding ``shift`` to the state."""
        sweep, cursor = self.sweep, self.sweep.cursor
        if int(self.ended.max()) + shift >= LARGEST_TIME:
            raise TooLongError
        self.ended += shift
        self.issued += shift
        sweep.stations[self.block, FREE] += shift
        sweep.stations[self.block, LAST] += shift
        if sweep.loops.barrier:
            cursor[[BARRIER, STEP_PEAK]] += shift
        cursor[PEAK] += shift
        cursor[ITERATION] += iterations
        sweep.jumped += iterations * self.rows
