from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import collsim
from collsim.engine.compiled import flow
from collsim.engine.compiled.flow import run_flow
from collsim.engine.compiled.flow_kernel import SOLVED
from collsim.engine.compiled.flow_rates import DIRTY, FLOOD, Flows, Links
from collsim.engine.fluid import max_min
from collsim.engine.loops import Loops, loops_of
from collsim.engine.lowering.lower import lower
from collsim.engine.outcome import Outcome, TooLongError
from collsim.engine.program import COPY, LINK, Program
from collsim.engine.reference import run_reference
from collsim.errors import DeadlockError
from collsim.schedule import ScheduleBuilder
from tests.loop_programs import loops_programs
from tests.programs import B, Edge, Plan, programs

COLUMNS = ("ready", "start", "end", "visit_start", "visit_end")


def run(plan: Plan) -> Outcome:
    return run_flow(loops_of(plan.program()), records=True)


def ends(plan: Plan) -> list[int]:
    times = run(plan).times
    assert times is not None
    return times.end.tolist()


def assert_agrees(loops: Loops) -> None:
    """Both engines: the same times, or the same deadlock."""
    try:
        truth = run_reference(loops.flat(), "fluid")
    except DeadlockError as error:
        with pytest.raises(DeadlockError, match=f"^{re.escape(str(error))}$"):
            run_flow(loops, records=True)
        return
    outcome = run_flow(loops, records=True)
    assert outcome.times is not None
    for name in COLUMNS:
        got, expected = getattr(outcome.times, name), getattr(truth, name)
        assert got.dtype == expected.dtype
        assert (got == expected).all(), name
    assert outcome.makespan == outcome.times.makespan
    assert outcome.shortcut == ""


def web(seed: int, links: int = 10, flows: int = 40, chains: int = 12) -> Program:
    """Return flows of random routes over links of few speeds; some start together, others one after the other."""
    random = np.random.default_rng(seed)
    plan = Plan()
    mesh = [
        plan.link(int(random.choice([B, 2 * B, B // 2, 7 * B // 8])), int(random.integers(0, 4))) for _ in range(links)
    ]
    for i in range(flows):
        route = random.choice(links, size=random.integers(1, 5), replace=False)
        after = [Edge(i - chains, int(random.integers(0, 9)))] if i >= chains and random.random() < 0.8 else []
        plan.transfer(int(random.integers(1, 400)), *(mesh[link] for link in route), after=after)
    return plan.program()


def exchange(ranks: int, topology: collsim.Topology) -> Loops:
    """Return an all_to_all in one step."""
    src, dst = np.divmod(np.arange(ranks * ranks), ranks)
    src, dst = src[src != dst], dst[src != dst]
    builder = ScheduleBuilder(collsim.Collective("all_to_all", ranks), chunks=ranks, in_place=False)
    builder.copy(src, dst, dst, dst_chunk=src, src_buffer="input")
    return loops_of(lower(builder.build(), topology, ranks * 10_000))


def with_sizes(loops: Loops, sizes: np.ndarray) -> Loops:
    """Give each row of a program that runs over links only a size of its own."""
    speed = np.zeros(loops.busy.shape[1], dtype=np.int64)
    speed[loops.route_rate] = loops.station_bandwidth[loops.route_station]
    return replace(
        loops, size_class=np.arange(loops.rows), class_bytes=sizes, busy=-(-sizes[:, None] * 10**12 // speed)
    )


# Against the reference


@settings(deadline=None, max_examples=300)
@given(loops_programs())
def test_loops_take_the_times_of_the_reference(loops: Loops) -> None:
    assert_agrees(loops)


@settings(deadline=None, max_examples=150)
@given(programs(transfers=14))
def test_programs_take_the_times_of_the_reference(program: Program) -> None:
    assert_agrees(loops_of(program))


@pytest.mark.parametrize("seed", range(40))
def test_crowded_links_take_the_times_of_the_reference(seed: int) -> None:
    assert_agrees(loops_of(web(seed)))


@pytest.mark.parametrize(
    "topology",
    [
        collsim.topology.switch(9, bandwidth="50GB/s", latency="1us"),
        collsim.topology.fat_tree(16, 4, bandwidth="50GB/s", latency="500ns", oversubscription=4),
        collsim.topology.rail_optimized(2, 4),
        collsim.topology.dragonfly(3, 2, 2),
    ],
    ids=lambda topology: topology.name,
)
def test_exchanges_take_the_times_of_the_reference(topology: collsim.Topology) -> None:
    loops = exchange(topology.n_ranks, topology)
    assert_agrees(loops)
    sizes = np.random.default_rng(1).integers(1, 10**6, loops.rows)
    assert_agrees(with_sizes(loops, sizes))


# Rates


def test_rates_are_max_min_fair_after_every_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def look(nodes: Any, flows: Flows, links: Links, records: Any, cell: np.ndarray, unit: float) -> None:
        if cell[DIRTY]:
            return  # it is still to be solved
        users = [links.users[at : at + used].tolist() for at, used in zip(links.user_ptr, links.used, strict=False)]
        routes = {
            slot: station[flows.at[slot] : flows.at[slot] + flows.hops[slot]].tolist()
            for slot in sorted({slot for link in users for slot in link})
        }
        rates = max_min(routes, links.capacity.tolist())
        assert {slot: int(flows.rate[slot]) for slot in routes} == pytest.approx(rates, rel=1e-9)
        used = [sum(int(flows.rate[slot]) for slot in link) for link in users]
        assert all(total <= capacity for total, capacity in zip(used, links.capacity.tolist(), strict=True))  # exactly
        seen.append((len(routes), bool(cell[FLOOD])))

    watch(monkeypatch, look, budget=1)
    for seed in range(3):
        loops = loops_of(web(100 + seed, links=16, flows=60))
        station = loops.route_station
        run_flow(loops, records=False)
    assert max(count for count, _ in seen) >= 10
    assert {flood for _, flood in seen} == {False, True}  # both ways of solving were taken


def watch(monkeypatch: pytest.MonkeyPatch, look: Callable[..., None], budget: int | None = None) -> None:
    """Call ``look`` with the state after each slice of the kernel."""
    real = flow.run_events

    def watched(*arguments: Any) -> int:
        state = real(*arguments[:-1], budget or arguments[-1])
        look(*arguments[1:-1])
        return state

    monkeypatch.setattr(flow, "run_events", watched)


def test_what_stays_as_it_is_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan()
    hub = plan.link(B)
    crowd = []
    for i in range(30):
        own = plan.link(50 * B)
        crowd.append(plan.transfer(1000, own, hub))  # the hub holds all of them
        for size in (1000 + 90 * i, 2000 + 110 * i):  # at rates that change when one of the two ends
            plan.transfer(size, own)
    looked_at, solved = set(), []

    def look(nodes: Any, flows: Flows, links: Links, records: Any, cell: np.ndarray, unit: float) -> None:
        looked_at.add(int(links.stamp[hub]))
        solved.append(int(cell[SOLVED]))

    watch(monkeypatch, look, budget=1)
    times = run(plan).times
    assert times is not None
    assert times.end[crowd].tolist() == [30_000] * 30
    assert solved[-1] > 50
    assert looked_at == {0, 1, solved[-1]}  # when all start, and when the crowd has ended


def test_rates_are_solved_once_an_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = []
    watch(monkeypatch, lambda nodes, flows, links, records, cell, unit: solved.append(int(cell[SOLVED])))
    loops = exchange(32, collsim.topology.switch(32, bandwidth="50GB/s", latency="1us"))
    run_flow(loops, records=False)
    assert solved[-1] == 2  # 992 flows start, and end, together


# Closed forms


@pytest.mark.parametrize("count", [1, 7, 1000])
def test_incast_ends_when_the_port_has_carried_all(count: int) -> None:
    plan = Plan()
    port = plan.link(B, 5)
    for _ in range(count):
        plan.transfer(1000, plan.link(B), port)
    assert ends(plan) == [5 + 1000 * count] * count


def test_incast_of_growing_messages() -> None:
    plan = Plan()
    port = plan.link(B)
    for i in range(60):
        plan.transfer(100 * (i + 1), plan.link(B), port)
    # while n flows are left each of them has 1/n: the i-th ends 100 * (60 - i) after the one before
    assert ends(plan) == np.cumsum(100 * np.arange(60, 0, -1)).tolist()


def test_exchange_over_a_switch_is_bound_by_the_ports() -> None:
    ranks = 24
    loops = exchange(ranks, collsim.topology.switch(ranks, bandwidth="50GB/s", latency="1us"))
    outcome = run_flow(loops, records=True)
    assert outcome.times is not None
    # blocks of 10 kB at 20 ps a byte, 23 of them through each port; a route is two links of 1 us
    assert outcome.times.end.tolist() == [2_000_000 + 23 * 200_000] * (ranks * (ranks - 1))


@pytest.mark.parametrize("size", [1, 7, 1000, 10**6 + 1])
@pytest.mark.parametrize("bandwidth", [B // 3, 3 * B, 50 * 10**9, 12_345_678_901])
def test_a_flow_that_never_shares_ends_at_the_ceil(size: int, bandwidth: int) -> None:
    plan = Plan()
    shared = plan.link(4 * bandwidth, 3)
    for _ in range(3):
        plan.transfer(size, shared, plan.link(bandwidth, 4))  # who share a link, but nobody is slowed by that
    assert ends(plan) == [7 - (-size * 10**12 // bandwidth)] * 3


def test_a_link_that_is_crossed_twice_gives_half() -> None:
    plan = Plan()
    link = plan.link(B)
    plan.transfer(10, link, link)
    assert ends(plan) == [20]
    plan.transfer(10, link)
    assert_agrees(loops_of(plan.program()))


# Empty flows, no links, senders and reducers


def test_empty_flows_end_at_once_and_slow_nobody() -> None:
    plan = Plan()
    link = plan.link(B, 2)
    plan.transfer(10, link)
    plan.transfer(0, link)
    plan.transfer(0, link, plan.reducer(B), after=[1])
    assert ends(plan) == [12, 2, 4]


def test_local_reductions_queue_at_the_reducer_without_links() -> None:
    plan = Plan()
    sender, reducer = plan.sender(4), plan.reducer(B)
    plan.transfer(10, reducer)
    plan.transfer(10, sender, reducer)
    plan.transfer(5)
    outcome = run(plan)
    assert outcome.times is not None
    assert outcome.times.start.tolist() == [0, 0, 0]
    assert outcome.times.end.tolist() == [10, 20, 0]
    assert outcome.longest_wait.tolist() == [0, 6]  # there from 4, taken at 10


def test_longest_wait_is_that_of_senders_and_reducers() -> None:
    plan = Plan()
    sender, engine, link, reducer = plan.sender(3), plan.copy_engine(B), plan.link(B, 4), plan.reducer(2 * B)
    for _ in range(2):
        plan.transfer(10, sender, engine, link, reducer)
    outcome = run(plan)
    assert outcome.times is not None
    assert outcome.times.visit_start.tolist() == [0, 7, 7, 24, 3, 10, 10, 29]
    assert outcome.times.visit_end.tolist() == [3, 24, 24, 29, 6, 27, 27, 34]
    assert outcome.longest_wait.tolist() == [3, 0, 0, 2]
    assert outcome.makespan == 34


def test_a_join_is_no_transfer() -> None:
    plan = Plan()
    first = plan.transfer(10, plan.link())
    plan.join([Edge(first, 100)])
    assert run(plan).makespan == 10


# Slots, budgets


def test_slots_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan()
    link = plan.link(B)
    last: list[int] = []
    for _ in range(50):
        last = [plan.transfer(10, link, after=last[:1]), plan.transfer(10, link, after=last[:1])]
    used = []
    watch(monkeypatch, lambda nodes, flows, *_: used.append(np.count_nonzero(flows.least)))
    assert ends(plan)[-1] == 50 * 20
    assert used[-1] <= 4


@pytest.mark.parametrize("amount", [1, 3, 700])
def test_the_budget_does_not_change_the_times(amount: int, monkeypatch: pytest.MonkeyPatch) -> None:
    loops = loops_of(web(7))
    whole = run_flow(loops, records=True)
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(flow, "budgets", lambda first: repeat(amount))
    parts = run_flow(loops, records=True, pulse=lambda done, total: told.append((done, total)))
    assert whole.times is not None
    assert parts.times is not None
    for name in COLUMNS:
        assert np.array_equal(getattr(whole.times, name), getattr(parts.times, name)), name
    assert len(told) > 3
    assert {total for _, total in told} == {40}
    assert told == sorted(told)


@settings(deadline=None, max_examples=30)
@given(loops_programs(forward_only=True))
def test_runs_are_equal_with_and_without_records(loops: Loops) -> None:
    first, second, bare = (run_flow(loops, records=records) for records in (True, True, False))
    assert first.times is not None
    assert second.times is not None
    assert all(np.array_equal(getattr(first.times, name), getattr(second.times, name)) for name in COLUMNS)
    assert bare.times is None
    assert bare.makespan == first.makespan
    assert np.array_equal(bare.longest_wait, first.longest_wait)


@settings(deadline=None, max_examples=30)
@given(loops_programs(barrier=True, forward_only=True))
def test_waits_are_those_of_the_records(loops: Loops) -> None:
    outcome = run_flow(loops, records=True)
    program = loops.flat()
    queued = ~np.isin(program.station_kind, (COPY, LINK))
    assert not outcome.longest_wait[~queued].any()
    assert outcome.times is not None
    wait = np.zeros(len(queued), dtype=np.int64)
    for node in range(program.transfers):
        arrival = outcome.times.ready[node]
        for visit in range(program.visit_ptr[node], program.visit_ptr[node + 1]):
            station = program.visit_station[visit]
            if queued[station]:
                wait[station] = max(wait[station], outcome.times.visit_start[visit] - arrival)
            arrival = outcome.times.visit_end[visit]
    assert np.array_equal(outcome.longest_wait, wait)


def test_nothing_to_do() -> None:
    plan = Plan()
    plan.link()
    assert run(plan).makespan == 0


def test_deadlock_of_a_large_program_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan()
    plan.transfer(1, plan.link())
    plan.transfer(1, after=[2])
    plan.transfer(1, after=[1])
    loops = loops_of(plan.program())
    with pytest.raises(DeadlockError, match=r"2 transfers wait for each other.*2 of 3 transfers never start"):
        run_flow(loops, records=False)
    monkeypatch.setattr(flow, "LARGEST_EXPLAINED", 2)
    with pytest.raises(DeadlockError, match=r"^deadlock: 2 of 3 nodes never start, the first is number 1; [^\n]*$"):
        run_flow(loops, records=False)


def test_times_beyond_the_limit_are_refused() -> None:
    plan = Plan()
    link = plan.link(1)
    for _ in range(70):
        plan.transfer(72_000, link)  # 7.2 * 10^16 ps each, together beyond 2^62
    with pytest.raises(TooLongError):
        run(plan)


@pytest.mark.parametrize("kind", ["sender", "reducer", "lag", "latency"])
def test_other_times_beyond_the_limit_are_refused(kind: str) -> None:
    plan, large = Plan(), 2**56 - 1
    sender, reducer, link = plan.sender(large), plan.reducer(1), plan.link(latency=large)
    last: list[int | Edge] = []
    for _ in range(70):
        if kind == "lag":
            last = [Edge(plan.transfer(0, after=last), large)]
        else:
            route, size = {"sender": (sender, 0), "reducer": (reducer, 72_000), "latency": (link, 0)}[kind]
            last = [plan.transfer(size, route, after=last if kind == "latency" else [])]
    with pytest.raises(TooLongError):
        run(plan)
