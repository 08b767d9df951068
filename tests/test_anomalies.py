"""Under sharing nothing is monotone (Graham's anomalies): the smallest example found of each, with its integers.

In every pair the second run has less to do, or faster hardware, and is later. The arithmetic is beside each: `a 0..9`
says that a holds its link from 0 to 9. Bandwidths are bytes/ps (`B` is one), times ps, latencies 0 where none is given.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim.engine.program import Program
from collsim.engine.reference import run_reference
from tests.programs import BANDWIDTHS, B, Edge, Plan, programs

FIFO = ("store_and_forward", "cut_through")


def makespan(plan: Plan, network: str) -> int:
    return run_reference(plan.program(), network).makespan


# A faster link, a smaller message


def two_chains(bandwidth: int = 2 * B, size: int = 18) -> Plan:
    """a, then b, then c; d, then e. a, b and e share a link, c and d another."""
    plan = Plan()
    chain, side = plan.link(2 * B, 1), plan.link(bandwidth, 1)
    a = plan.transfer(18, chain)
    d = plan.transfer(size, side)
    b = plan.transfer(18, chain, after=[a], step=1)
    plan.transfer(6, chain, after=[d], step=1)
    plan.transfer(6, side, after=[b], step=2)
    return plan


@pytest.mark.parametrize("network", FIFO)
def test_a_faster_link_can_be_slower(network: str) -> None:
    # a and d 0..9, there at 10; b 10..19, there at 20; e 19..22; c 20..23, there at 24
    assert makespan(two_chains(), network) == 24
    # d 0..6, so e is ready at 7 and takes the link from a, 9..12; b 12..21, there at 22; c 22..24, there at 25
    assert makespan(two_chains(bandwidth=3 * B), network) == 25


@pytest.mark.parametrize("network", FIFO)
def test_a_smaller_message_can_be_slower(network: str) -> None:
    # as above, but c still takes 3: 22..25, there at 26
    assert makespan(two_chains(), network) == 24
    assert makespan(two_chains(size=12), network) == 26


def fluid_chains(bandwidth: int = B, size: int = 3) -> Plan:
    """a, then d; b, then c. b and d share a link with a latency of 2; a and c have their own."""
    plan = Plan()
    shared = plan.link(B, 2)
    a = plan.transfer(size, plan.link(bandwidth))
    b = plan.transfer(6, shared)
    plan.transfer(6, plan.link(), after=[b], step=1)
    plan.transfer(4, shared, after=[a], step=1)
    return plan


def test_a_faster_link_and_a_smaller_message_can_be_slower_when_fluid() -> None:
    # b is alone from 2 to 5 and has 3 left when d comes; they halve the link until b ends at 11; c 11..17
    assert makespan(fluid_chains(), "fluid") == 17
    # d comes at 4, when b has 4 left, as d has: both end at 12; c 12..18
    assert makespan(fluid_chains(bandwidth=3 * B // 2), "fluid") == 18
    assert makespan(fluid_chains(size=2), "fluid") == 18


# A shorter latency


def test_a_shorter_latency_can_be_slower() -> None:
    def plan(latency: int) -> Plan:
        plan = Plan()
        shared = plan.link()
        plan.transfer(1, plan.link(B, latency), shared)
        plan.transfer(4, shared, plan.link(B, 1))
        return plan

    # the second arrives first: 0..4, there at 5; the first 4..5
    assert makespan(plan(1), "cut_through") == 5
    # a tie, so the first is first: 0..1, then the second 1..5, there at 6
    assert makespan(plan(0), "cut_through") == 6


# Asynchrony


def with_barrier(plan: Plan, synchronous: bool, steps: list[list[int]]) -> Plan:
    if synchronous:
        barrier = plan.join(steps[0])
        for node in steps[1]:
            plan.wait(node, Edge(barrier))
    return plan


@pytest.mark.parametrize(("network", "together", "alone"), [("store_and_forward", 10, 12), ("cut_through", 9, 11)])
def test_a_program_without_barriers_can_be_slower(network: str, together: int, alone: int) -> None:
    def plan(synchronous: bool) -> Plan:
        plan = Plan()
        shared = plan.link()
        a, d = plan.transfer(3, shared), plan.transfer(1, plan.link())
        b = plan.transfer(1, shared, plan.link(B, 5), after=[a], step=1)
        e = plan.transfer(2, shared, after=[d], step=1)
        return with_barrier(plan, synchronous, [[a, d], [b, e]])

    # at 3 b and e are ready: b 3..4 goes first, then 5 (and 1 more if stored); e 4..6
    assert makespan(plan(synchronous=True), network) == together
    # e waits from 1 on, so it is first: 3..5, and b 5..6
    assert makespan(plan(synchronous=False), network) == alone


def test_a_program_without_barriers_can_be_slower_when_fluid() -> None:
    def plan(synchronous: bool) -> Plan:
        plan = Plan()
        one, other = plan.link(), plan.link()
        a, d = plan.transfer(4, one), plan.transfer(2, other)
        e = plan.transfer(2, one, after=[d], step=1)
        b = plan.transfer(1, other, after=[a], step=1)
        return with_barrier(plan, synchronous, [[a, d], [b, e]])

    # a 0..4, d 0..2; then e 4..6 and b 4..5
    assert makespan(plan(synchronous=True), "fluid") == 6
    # e comes at 2, when a has 2 left, as e has: both end at 6; b 6..7
    assert makespan(plan(synchronous=False), "fluid") == 7


# Cut-through


def test_cut_through_can_be_slower_than_store_and_forward() -> None:
    plan = Plan()
    shared = plan.link()
    plan.transfer(4, plan.link(), shared)
    plan.transfer(1, shared, plan.link(B, 5))
    # stored, the first arrives at 4, so the second has the shared link 0..1, its own 1..2, is there at 7; first 4..8
    assert makespan(plan, "store_and_forward") == 8
    # cut through, both heads arrive at 0 and the first is first: 0..4; the second 4..5, there at 10
    assert makespan(plan, "cut_through") == 10


# Relabelling


@pytest.mark.parametrize(("network", "first", "second"), [("store_and_forward", 7, 10), ("cut_through", 6, 9)])
def test_relabelling_changes_ties(network: str, first: int, second: int) -> None:
    def plan(long_first: bool) -> Plan:
        plan = Plan()
        shared, far = plan.link(), plan.link(B, 5)
        routes = [(1, shared, far), (3, shared)]
        for size, *route in reversed(routes) if long_first else routes:
            plan.transfer(size, *route)
        return plan

    # the short one 0..1, then 5 (and 1 more if stored); the long one 1..4
    assert makespan(plan(long_first=False), network) == first
    # the long one 0..3, so all of that 3 later
    assert makespan(plan(long_first=True), network) == second


# Why a queue cannot be skipped ahead


def test_a_loop_that_runs_ahead_changes_the_period_of_another() -> None:
    # A (busy 4, latency 7) takes 11 an iteration, B (busy 6, latency 15) would take 21, but A comes every 11, so also
    # every 22: B waits for it each time, until A has finished at 60 * 11. B ends first at 4 + 6 + 15, then 29 times 22
    # later and 30 times 21 later: 1293. (To go on as the first iterations do would give 25 + 59 * 22 = 1323.)
    plan = Plan()
    shared = plan.link()
    loops = [(4, plan.link(B, 7)), (6, plan.link(B, 15))]
    last: dict[int, list[int]] = {4: [], 6: []}
    for step in range(60):
        for size, way in loops:
            last[size] = [plan.transfer(size, shared, way, after=last[size], step=step)]
    times = run_reference(plan.program(), "cut_through")
    assert times.end[-2:].tolist() == [660, 1293]
    periods = np.diff(times.end[1::2])
    assert periods.tolist() == [22] * 29 + [21] * 30


# Where monotony does hold


@settings(deadline=None, max_examples=100)
@given(programs(), st.data())
def test_alpha_beta_is_monotone_in_every_station(program: Program, data: st.DataObject) -> None:
    visits = len(program.visit_busy)
    less = data.draw(st.lists(st.integers(0, 3), min_size=visits, max_size=visits))
    before = run_reference(program, "alpha_beta")
    for column in (program.visit_busy, program.visit_latency):
        column -= np.minimum(column, np.array(less, dtype=np.int64))
    after = run_reference(program, "alpha_beta")
    assert np.all(after.end <= before.end)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 12), st.sampled_from(BANDWIDTHS), st.integers(0, 5)), min_size=1, max_size=8))
def test_every_model_is_monotone_where_nothing_is_shared(chain: list[tuple[int, int, int]]) -> None:
    def ends(faster: int) -> list[list[int]]:
        plan = Plan()
        for i, (size, bandwidth, latency) in enumerate(chain):
            plan.transfer(
                size, plan.link(faster * bandwidth, latency), plan.link(B, latency), after=[i // 2] if i else []
            )
        return [run_reference(plan.program(), network).end.tolist() for network in (*FIFO, "fluid")]

    for slow, fast in zip(ends(1), ends(2), strict=True):
        assert all(second <= first for first, second in zip(slow, fast, strict=True))
