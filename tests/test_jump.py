"""The jump is taken where it is exact, with periods of any length, and refused elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collsim import algorithms, topology
from collsim.collective import Collective
from collsim.engine.compiled.jump import jump_ahead
from collsim.engine.compiled.queue import run_queue
from collsim.engine.compiled.sweep import run_sweep
from collsim.engine.loops import Loops
from collsim.engine.lowering.roll import roll
from collsim.engine.outcome import Outcome
from collsim.engine.reference import run_reference
from collsim.schedule import ScheduleBuilder
from tests.programs import Plan
from tests.sweeps import FIFO, finish, looped, ring_loops


class Dial:
    """A track whose state is one number: it advances by a list of amounts, again and again, after another list."""

    def __init__(self, transient: list[int], period: list[int]) -> None:
        self.step: Callable[[int], int] = lambda k: (
            transient[k] if k < len(transient) else period[(k - len(transient)) % len(period)]
        )
        self.size = len(period)
        self.start = len(transient)
        self.iteration = self.time = self.ran = self.skipped = 0

    def state(self) -> tuple[int, int]:
        return self.time, (self.iteration - self.start) % self.size if self.iteration >= self.start else -1 - self.start

    def snapshot(self) -> tuple[int, int]:
        return self.state()

    def run(self, stop: int, then: tuple[int, int] | None) -> int:
        while self.iteration < stop:
            self.time += self.step(self.iteration)
            self.iteration += 1
            self.ran += 1
            time, phase = self.state()
            if then is not None and phase == then[1] >= 0:
                return time - then[0]
        return -1

    def skip(self, iterations: int, shift: int) -> None:
        self.iteration += iterations
        self.skipped += iterations
        self.time += shift


@given(
    st.lists(st.integers(0, 9), max_size=20), st.lists(st.integers(0, 9), min_size=1, max_size=100), st.integers(0, 700)
)
def test_any_period_is_found_and_whole_ones_are_skipped(transient: list[int], period: list[int], horizon: int) -> None:
    dial = Dial(transient, period)
    jump_ahead(dial, horizon, horizon)
    assert dial.time == sum(dial.step(k) for k in range(dial.iteration))
    assert dial.iteration <= horizon
    assert dial.skipped % len(period) == 0
    assert dial.ran <= 4 * (len(transient) + len(period)) + 2
    if horizon > 4 * (len(transient) + len(period)) + len(period):
        assert horizon - dial.iteration < len(period)
        assert dial.skipped


def test_a_state_that_matches_once_by_chance_is_not_taken_for_a_period() -> None:
    class Chance(Dial):
        def run(self, stop: int, then: tuple[int, int] | None) -> int:
            shift = super().run(stop, then)
            return 1 if then is not None and self.iteration == 1 else shift  # as if nothing else were in the state

    dial = Chance([1, 2, 3, 4, 5, 6], [7])
    jump_ahead(dial, 100, 100)
    assert dial.skipped
    assert dial.time == sum(dial.step(k) for k in range(dial.iteration))


def jumped(loops: Loops, network: str = "cut_through") -> Outcome:
    outcome = run_sweep(loops, network, records=False)
    assert outcome is not None
    queue = run_queue(loops, network, records=False)
    assert outcome.makespan == queue.makespan
    assert np.array_equal(outcome.longest_wait, queue.longest_wait)
    assert (outcome.shortcut == "jump") == (outcome.jumped > 0)
    return outcome


@pytest.mark.parametrize("network", FIFO)
def test_a_ring_over_a_switch_skips_nearly_all(network: str) -> None:
    loops = ring_loops(topology.switch(100), 100 * 50_000)
    outcome = jumped(loops, network)
    assert outcome.shortcut == "jump"
    assert outcome.jumped > 0.9 * loops.transfers
    assert outcome.jumped % 100 == 0
    kept = run_sweep(loops, network, records=False, jump=False)
    assert kept is not None
    assert (kept.shortcut, kept.jumped, kept.makespan) == ("sweep", 0, outcome.makespan)
    recorded = run_sweep(loops, network, records=True)
    assert recorded is not None
    assert (recorded.shortcut, recorded.jumped) == ("sweep", 0)


@pytest.mark.parametrize("gpus", [3, 8, 72])
def test_latency_bound_rings_on_nodes_repeat_with_the_size_of_a_node(gpus: int) -> None:
    n = gpus * (-(-6 // gpus) + 300 // gpus)
    loops = ring_loops(topology.rail_optimized(n // gpus, gpus), n * 8)
    outcome = jumped(loops)
    assert outcome.jumped
    assert outcome.jumped % (gpus * n) == 0
    for search in (0, 31):  # found by the general kernel and by that for rows
        for rows in (False, True):
            assert finish(loops, "cut_through", True, rows, search).jumped


def test_one_slow_link_has_a_transient_of_a_whole_phase() -> None:
    where = topology.ring(60, bandwidth="50GB/s", latency="1us")
    slow = where.link_bandwidth.copy()
    slow[0] //= 3
    loops = ring_loops(replace(where, link_bandwidth=slow), 60 * 100_000)
    outcome = jumped(loops)
    assert outcome.jumped < loops.transfers * 0.6


def test_two_loops_that_share_a_link_do_not_jump() -> None:
    """B advances by 22 an iteration while A runs beside it and by 21 after A has finished ahead."""
    plan = Plan()
    link = plan.link()
    plan.transfer(4, link)
    plan.transfer(6, link)
    loops = looped(plan, 60, after=[0, 1], latency=[7, 15])
    outcome = run_sweep(loops, "cut_through", records=False)
    truth = run_reference(loops.flat(), "cut_through").makespan
    assert truth == 1293
    assert outcome is None or (outcome.makespan, outcome.jumped) == (truth, 0)
    assert run_queue(loops, "cut_through", records=False).makespan == truth


def test_a_size_that_the_ranks_do_not_divide_does_not_jump() -> None:
    where = topology.switch(50)
    assert jumped(ring_loops(where, 50 * 1000)).jumped
    assert not jumped(ring_loops(where, 50 * 1000 + 1)).jumped
    whole, broken = (roll(algorithms.ring_all_reduce(50), where, 50 * 1000 + more) for more in (0, 1))
    assert jumped(whole).jumped
    assert not jumped(broken).jumped


@pytest.mark.parametrize("network", FIFO)
def test_a_root_that_reads_at_time_0_does_not_jump(network: str) -> None:
    b = ScheduleBuilder(Collective("broadcast", 3, 0), 40)
    with b.repeat(40, shift=1):
        b.copy([0, 1], [1, 2], [0, 0], step=[0, 1])
    loops = roll(b.build(), topology.line(3), 40 * 50_000)
    assert loops.phases == 1
    assert not jumped(loops, network).jumped


def test_a_row_that_is_fed_from_outside_in_every_iteration_does_not_jump() -> None:
    plan = Plan()
    plan.transfer(5, plan.link())
    plan.transfer(5, plan.link())
    alone = looped(plan, 40, after=[0, 1])
    assert jumped(alone).jumped
    every = np.arange(1, 40)
    fed = replace(alone, edge_node=2 * every + 1, edge_pred=0 * every, edge_issued=every < 0, edge_lag=20 * every)
    outcome = jumped(fed)
    assert not outcome.jumped
    assert outcome.makespan > 40 * 5


def test_iterations_that_are_asked_for_later_on_are_run() -> None:
    plan = Plan()
    plan.transfer(5, plan.link())
    loops = looped(plan, 100, after=[0])
    asked = replace(
        loops,
        edge_node=np.array([60]),
        edge_pred=np.array([50]),
        edge_issued=np.array([False]),
        edge_lag=np.array([99]),
    )
    assert run_reference(asked.flat(), "cut_through").makespan == 51 * 5 + 99 + 40 * 5
    assert 0 < jumped(asked).jumped < 51
