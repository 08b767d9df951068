"""A loop in which each station is crossed by one row, once, run with what is left of its rows.

The order needs no check any more. Once all predecessors of an iteration lie in the phase, a row is ready at the latest
of some ends (or issues) plus lags, in the next iteration at the latest of those one iteration later. So if the ends
that can still be read are in order from iteration to iteration, so are all later ones, and the arrivals at every
station with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collsim.engine.compiled.jump import jump_ahead
from collsim.engine.compiled.row_kernel import (
    DELAY,
    KEPT,
    LANE_DELAY,
    LANE_OPEN,
    LANES,
    OPEN,
    PRED,
    run_lanes,
    shrink_rows,
)
from collsim.engine.compiled.sweep import Phase
from collsim.engine.compiled.sweep_kernel import FREE, ITERATION, PEAK, SLOT, WAIT
from collsim.engine.outcome import LARGEST_TIME, budgets
from collsim.engine.program import Array

__all__ = ["run_as_rows"]

FIRST_ROWS = 4_000_000
"""Transfers of the first call of the kernel; the calls after it follow the clock."""

SHORT = 16
"""Stretches of rows whose predecessors lie in line are worth the trouble from this length on."""


def run_as_rows(phase: Phase, start: int, stop: int, jump: bool) -> None:
    """Run a phase up to iteration ``stop`` (the last one must come after it); do nothing where that is not exact.

    Parameters
    ----------
    phase
        One with constant sizes and without a barrier, in which each station is crossed by one row, once.
    start, stop
        No single edge enters iterations in between, and nobody asks for their times later on; all predecessors of
        iteration ``start`` are there.
    jump
        Whether a period may be looked for.
    """
    phase.run(start + 1)  # the order of the first iterations, and nothing is left in the stations from before
    if phase.iteration >= stop or not _in_order(phase):
        return
    rows = _Rows(phase)
    if int(phase.ended.max()) + rows.growth * (stop - rows.iteration) >= LARGEST_TIME:
        return  # only a kernel that looks at each time can tell
    if jump:
        jump_ahead(rows, stop, stop)
    rows.run(stop)
    rows.give_back()


def _in_order(phase: Phase) -> bool:
    """Whether no end and no issue that is at hand is earlier than that of the iteration before."""
    slot = int(phase.sweep.cursor[SLOT])
    for ring in (phase.ended, phase.issued):
        oldest_first = np.roll(ring.reshape(phase.reach + 1, -1), -slot, axis=0)
        if (np.diff(oldest_first, axis=0) < 0).any():
            return False
    return True


@dataclass(frozen=True)
class _Snapshot:
    """A copy of the state."""

    at: Array
    ended: Array
    issued: Array
    lanes: Array
    kept: Array


class _Rows:
    """The rows of a phase and the stations that they keep: a `collsim.engine.compiled.jump.Track`."""

    def __init__(self, phase: Phase) -> None:
        self.phase = phase
        sweep, loops = phase.sweep, phase.sweep.loops
        lo, rows = phase.lo, phase.rows
        route = loops.route[lo : lo + rows]
        visits = int((loops.route_ptr[1:] - loops.route_ptr[:-1])[route].sum())
        self.kept_ptr = np.zeros(rows + 1, dtype=np.int64)
        kept_station, kept = np.zeros(visits, dtype=np.int64), np.zeros((visits, KEPT), dtype=np.int64)
        self.lanes = np.zeros((LANES, rows), dtype=np.int64)
        others, longest = np.zeros(rows, dtype=np.int64), np.zeros(2)
        n_others = shrink_rows(
            lo, sweep.shared, *phase.deps, loops.size_class[lo : lo + rows], route, *phase.routes, sweep.stations,
            self.kept_ptr, kept_station, kept, self.lanes, others, longest,
        )  # fmt: skip
        self.others = others[:n_others]
        visits = int(self.kept_ptr[-1])
        self.kept_station, self.kept = kept_station[:visits].copy(), kept[:visits].copy()
        # by how much the latest time can grow in an iteration
        self.growth = float(longest[1] if phase.within else longest[0])
        offset = self.lanes[PRED] - np.arange(rows)
        borders = np.flatnonzero(np.diff(offset)) + 1
        self.stretch, self.offset = np.array([0, *borders, rows]), offset[[0, *borders]]
        if len(self.offset) * SHORT > rows:
            self.stretch, self.offset = self.stretch[:0], self.offset[:0]
        self.at = np.array([*sweep.cursor[[ITERATION, SLOT]], -1])

    @property
    def iteration(self) -> int:
        """Number of the next iteration."""
        return int(self.at[0])

    def snapshot(self) -> _Snapshot:
        """Return a copy of the state."""
        phase = self.phase
        return _Snapshot(*(a.copy() for a in (self.at, phase.ended, phase.issued, self.lanes, self.kept)))

    def run(self, stop: int, then: _Snapshot | None = None) -> int:
        """Run up to an iteration, or until the state is ``then`` but later; return by how much, or -1."""
        phase, sweep = self.phase, self.phase.sweep
        state = then or _Snapshot(self.at, phase.ended, phase.issued, self.lanes, self.kept)
        if self.iteration >= stop:
            return -1
        for budget in budgets(max(1, FIRST_ROWS // phase.rows)):
            found = run_lanes(
                self.at, phase.lo, min(budget, stop - self.iteration),
                self.stretch, self.offset, self.lanes, self.others, *phase.deps,
                self.kept_ptr, self.kept, phase.ended, phase.issued,
                then is not None, state.at, state.ended, state.issued, state.lanes, state.kept,
            )  # fmt: skip
            if found:
                return int(self.at[2])
            if self.iteration >= stop:
                return -1
            sweep.pulse(phase.first + self.iteration * phase.rows, sweep.loops.nodes)
        raise AssertionError("budgets never end")

    def skip(self, iterations: int, shift: int) -> None:
        """Take iterations as done, adding ``shift`` to the state."""
        phase = self.phase
        for times in (phase.ended, phase.issued, self.lanes[LANE_OPEN], self.kept[:, OPEN]):
            times += shift
        self.at[0] += iterations
        phase.sweep.jumped += iterations * phase.rows

    def give_back(self) -> None:
        """Write what the stations that were kept have come to.

        At the others the next transfer arrives later than all before and finds them free, so the values of the first
        iterations do as well; running one more iteration makes them exact.
        """
        phase, sweep = self.phase, self.phase.sweep
        sweep.cursor[[ITERATION, SLOT]] = self.at[:2]
        sweep.cursor[PEAK] = max(int(sweep.cursor[PEAK]), int(phase.ended.max()))
        if not sweep.shared:
            return
        one = np.diff(self.kept_ptr) == 1
        one[self.others] = False
        first = self.kept_ptr[:-1][one]
        self.kept[first, OPEN], self.kept[first, DELAY] = self.lanes[LANE_OPEN][one], self.lanes[LANE_DELAY][one]
        sweep.stations[self.kept_station, FREE] = self.kept[:, OPEN]
        wait = sweep.stations[self.kept_station, WAIT]
        sweep.stations[self.kept_station, WAIT] = np.maximum(wait, self.kept[:, DELAY])
