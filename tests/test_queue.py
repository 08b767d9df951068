"""The compiled event queue gives the integers of the reference engine, whatever the program."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim
from collsim.engine.compiled import queue, queue_kernel, queue_setup
from collsim.engine.compiled.queue import run_queue
from collsim.engine.loops import Loops, loops_of
from collsim.engine.lowering.lower import lower
from collsim.engine.outcome import LARGEST_TIME, Outcome, TooLongError
from collsim.engine.program import COPY, LINK, Program, Times
from collsim.engine.reference import run_reference
from collsim.errors import DeadlockError, InputError
from tests.loop_programs import loops_programs
from tests.programs import B, Edge, Plan, programs

NETWORKS = ("alpha_beta", "store_and_forward", "cut_through")

each_network = pytest.mark.parametrize("network", NETWORKS)
any_loops = st.one_of(loops_programs(), loops_programs(forward_only=True), programs().map(loops_of))


def longest_waits(program: Program, times: Times, network: str) -> list[int]:
    """Find from the records how long transfers waited for each station at the most."""
    kind = program.station_kind[program.visit_station].tolist()
    waits = [0] * len(program.station_kind)
    for node in range(program.transfers):
        arrival = int(times.ready[node])
        for visit in range(program.visit_ptr[node], program.visit_ptr[node + 1]):
            start, station = int(times.visit_start[visit]), program.visit_station[visit]
            waits[station] = max(waits[station], start - arrival)
            more = visit + 1 < program.visit_ptr[node + 1]
            heads = network != "store_and_forward" and kind[visit] in (COPY, LINK)
            cuts = more and heads and kind[visit + 1] in (COPY, LINK)
            left = start if cuts else int(times.visit_end[visit])
            arrival = left + int(program.visit_latency[visit])
    return waits


def assert_same_times(got: Times | None, expected: Times) -> None:
    assert got is not None
    for column in fields(Times):
        np.testing.assert_array_equal(getattr(got, column.name), getattr(expected, column.name), column.name)


def assert_same(got: Outcome, again: Outcome) -> None:
    assert got.makespan == again.makespan
    np.testing.assert_array_equal(got.longest_wait, again.longest_wait)


def message(loops: Loops, network: str = "cut_through", records: bool = False) -> str:
    """Run a program that cannot finish."""
    with pytest.raises(DeadlockError) as caught:
        run_queue(loops, network, records=records)
    return f"{caught.value} {caught.value.cycle}"


def assert_as_reference(loops: Loops, network: str) -> bool:
    """Compare all that comes out, or the message if nothing does; return whether something did."""
    program = loops.flat()
    try:
        expected = run_reference(program, network)
    except DeadlockError as error:
        cause = f"{error} {error.cycle}"
    else:
        cause = ""
    if cause:
        assert message(loops, network, records=True) == cause
        assert message(loops, network, records=False) == cause
        return False
    outcome = run_queue(loops, network, records=True)
    assert_same_times(outcome.times, expected)
    assert outcome.makespan == expected.makespan
    assert outcome.longest_wait.tolist() == longest_waits(program, expected, network)
    assert (outcome.shortcut, outcome.jumped) == ("", 0)
    lean = run_queue(loops, network, records=False)
    assert lean.times is None
    assert_same(lean, outcome)
    return True


@each_network
@settings(max_examples=200)
@given(loops=loops_programs())
def test_repeats(loops: Loops, network: str) -> None:
    assert_as_reference(loops, network)


@each_network
@settings(max_examples=120)
@given(loops=loops_programs(forward_only=True))
def test_repeats_without_deadlock(loops: Loops, network: str) -> None:
    assert_as_reference(loops, network)


@each_network
@settings(max_examples=100)
@given(program=programs(transfers=14))
def test_transfers_written_out(program: Program, network: str) -> None:
    assert_as_reference(loops_of(program), network)


@contextmanager
def tiny_pieces() -> Iterator[None]:
    """Let each call of a kernel do a single piece of work, and the heap start with no room at all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue, "budgets", lambda first: itertools.repeat(1))
        patch.setattr(queue_setup, "budgets", lambda first: itertools.repeat(1))
        patch.setattr(queue, "FIRST_HEAP", 1)
        yield


@settings(max_examples=120)
@given(loops=any_loops, network=st.sampled_from(NETWORKS))
def test_interrupted_after_each_event(loops: Loops, network: str) -> None:
    calls = []
    with tiny_pieces():
        if not assert_as_reference(loops, network):
            return
        run_queue(loops, network, records=False, pulse=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (loops.nodes, loops.nodes)
    assert calls == sorted(calls)
    assert len({done for done, _ in calls}) == loops.nodes + 1  # never two transfers in one call


@settings(max_examples=60)
@given(loops=loops_programs(forward_only=True), network=st.sampled_from(NETWORKS))
def test_never_written_out(loops: Loops, network: str) -> None:
    expected = run_reference(loops.flat(), network)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loops, "flat", None)
        first, second = (run_queue(loops, network, records=True) for _ in range(2))
    assert_same_times(first.times, expected)
    assert_same_times(second.times, expected)
    assert_same(first, second)


def crowd(seed: int, most: int, transfers: int = 1200, stations: int = 9) -> Program:
    """Write a program whose queues are long: times up to ``most``, so that ties are frequent or rare."""
    rng = random.Random(seed)
    plan = Plan()
    kinds = (plan.link, plan.link, plan.link, plan.copy_engine, plan.reducer)
    places = [rng.choice(kinds)(rng.choice((B, B // 2, B // 3))) for _ in range(stations - 3)]
    places += [plan.link(B, rng.randrange(most)) for _ in range(3)]
    for node in range(transfers):
        back = [rng.randrange(max(0, node - 400), node) for _ in range(rng.choice((0, 0, 0, 1, 3)) if node else 0)]
        after = [Edge(pred, rng.choice((0, 0, rng.randrange(most))), rng.random() < 0.3) for pred in back]
        plan.transfer(rng.randrange(most), *rng.sample(places, rng.randrange(4)), after=after)
    plan.join([Edge(node) for node in range(transfers)])
    return plan.program()


@each_network
@pytest.mark.parametrize(("seed", "most"), [(1, 3), (2, 40), (3, 10**6)])
def test_long_queues(seed: int, most: int, network: str) -> None:
    loops = loops_of(crowd(seed, most))
    assert assert_as_reference(loops, network)
    whole = run_queue(loops, network, records=True)
    with tiny_pieces():
        pieces = run_queue(loops, network, records=True)
    assert whole.times is not None
    assert_same_times(pieces.times, whole.times)
    assert_same(pieces, whole)


@each_network
def test_one_releases_many_in_any_order(network: str) -> None:
    """More successors than the heap has room for, each with another lag, and on stations that they share."""
    plan = Plan()
    links = [plan.link(B, latency) for latency in (0, 3, 5)]
    root = plan.transfer(4, links[0])
    lags = random.Random(5).sample(range(3000), 1500)
    for i, lag in enumerate(lags):
        plan.transfer(i % 7, *links[i % 3 :], after=[Edge(root, lag, issued=i % 2 == 0)])
    assert assert_as_reference(loops_of(plan.program()), network)


@pytest.mark.parametrize("barrier", [False, True])
@each_network
def test_a_ring(network: str, barrier: bool) -> None:
    topology = collsim.topology.switch(6, bandwidth="3GB/s", latency="1us")
    loops = loops_of(lower(collsim.algorithms.ring_all_reduce(6), topology, 100_003))
    assert assert_as_reference(replace(loops, barrier=barrier), network)


def endless(times: int, hold: int = 1, **columns: Any) -> Loops:
    """Return one transfer that waits for itself of the iteration before."""
    values = {
        "times": [times], "row_ptr": [0, 1], "first_step": [0], "block_steps": [1], "varies": [False],
        "step": [0], "src": [0], "dst": [1], "channel": [0], "reduce": [False],
        "chunk_base": [0], "chunk_rel": [0], "chunk_shift": [0], "chunk_window": [1],
        "size_class": [0], "class_bytes": [1], "chunk_class": [],
        "dep_ptr": [0, 1], "dep_row": [0], "dep_distance": [1], "dep_issued": [], "dep_lag": [],
        "edge_node": [], "edge_pred": [], "edge_issued": [], "edge_lag": [],
        "route": [0], "route_ptr": [0, 1], "route_station": [0], "route_latency": [0], "route_rate": [0],
        "busy": [[hold]], "station_kind": [LINK], "station_bandwidth": [1], "station_index": [0],
    } | columns  # fmt: skip
    return Loops(joins=0, barrier=False, **{name: np.array(column) for name, column in values.items()})


@pytest.mark.parametrize("rows", [*range(1, 12), 49, 98, 103, 107, 161])
def test_row_of_a_node(rows: int) -> None:
    """Where ``1 / rows`` is rounded down, the product with ``rows`` is less than 1."""
    each = list(range(rows))
    zeros = [0] * rows
    loops = endless(
        7, row_ptr=[0, rows], step=zeros, src=zeros, dst=each, channel=zeros, reduce=zeros, chunk_base=zeros,
        chunk_rel=each, chunk_shift=each, chunk_window=[rows] * rows, chunk_class=each, varies=[True],
        size_class=zeros, class_bytes=each, dep_ptr=[0, *(r + 1 for r in each)], dep_row=[*each[1:], 0],
        dep_distance=[1] * rows, route=zeros, busy=[[5 * size] for size in each],
    )  # fmt: skip
    assert assert_as_reference(loops, "cut_through")


@each_network
@pytest.mark.parametrize(
    ("times", "busy", "columns"),
    [
        (128, 2**55, {}),
        (128, 2**55, {"dep_issued": [True]}),
        (128, 0, {"route_latency": [2**55]}),
        (129, 0, {"dep_lag": [2**55]}),  # the first waits for nobody
        (129, 0, {"dep_lag": [2**55], "route_ptr": [0, 0]}),
    ],
)
def test_times_that_are_too_long(times: int, busy: int, columns: dict[str, list[int]], network: str) -> None:
    too_long = endless(times, busy, **columns)
    with pytest.raises(TooLongError):
        run_queue(too_long, network, records=True)
    fits = endless(times - 1, busy, **columns)
    assert assert_as_reference(fits, network)
    assert run_queue(fits, network, records=False).makespan == LARGEST_TIME - 2**55


def test_a_station_that_is_busy_for_too_long() -> None:
    none: dict[str, list[int]] = {"dep_ptr": [0, 0], "dep_row": [], "dep_distance": []}
    assert run_queue(endless(127, 2**55, **none), "cut_through", records=False).longest_wait.tolist() == [126 * 2**55]
    with pytest.raises(TooLongError):
        run_queue(endless(128, 2**55, **none), "cut_through", records=False)
    assert run_queue(endless(128, 2**55, **none), "alpha_beta", records=False).makespan == 2**55


def test_more_transfers_than_can_be_numbered() -> None:
    with pytest.raises(InputError, match=rf"expected less than 2\*\*31 transfers and dependencies, got {2**31}"):
        run_queue(endless(2**31, 1), "cut_through", records=False)


def test_no_transfers() -> None:
    for barrier in (False, True):
        loops = replace(endless(0, 1), barrier=barrier)
        outcome = run_queue(loops, "cut_through", records=True)
        assert outcome.makespan == 0
        assert outcome.longest_wait.tolist() == [0]
        assert_same_times(outcome.times, run_reference(loops.flat(), "cut_through"))


@pytest.mark.parametrize("barrier", [False, True])
def test_a_large_deadlock_names_how_many_and_the_first(monkeypatch: pytest.MonkeyPatch, barrier: bool) -> None:
    """Iteration 3 of 5 waits for the last one; what comes before is done."""
    edge = {"edge_node": [3], "edge_pred": [4], "edge_issued": [False], "edge_lag": [0]}
    loops = replace(endless(5, 1, first_step=[10], block_steps=[2], **edge), barrier=barrier)
    assert not assert_as_reference(loops, "cut_through")
    monkeypatch.setattr(queue, "EXPLAINED", 0)
    assert message(loops).startswith("deadlock: 2 of 5 transfers never start, the first of them in step 16, 0 -> 1; ")


@settings(max_examples=100)
@given(loops=loops_programs())
def test_deadlocks_large_and_small_count_the_same(loops: Loops) -> None:
    if assert_as_reference(loops, "cut_through"):
        return
    counts = []
    for explained in (queue.EXPLAINED, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(queue, "EXPLAINED", explained)
            counts += re.findall(r"\d+ of \d+ transfers never start", message(loops))
    assert len(counts) == 2
    assert counts[0] == counts[1]


def test_joins_that_wait_for_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    """No transfer is stuck, so that there is none to name: the cycle is shown whatever the size."""
    plan = Plan()
    plan.transfer(3, plan.link())
    plan.join([Edge(-2)])
    plan.join([Edge(-1)])
    monkeypatch.setattr(queue, "EXPLAINED", 0)
    assert message(loops_of(plan.program())).startswith("deadlock: 2 joins wait for each other")


def test_an_exception_of_the_pulse_ends_the_run() -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_queue(endless(5, 1), "cut_through", records=False, pulse=stop)


def test_compiled_once() -> None:
    for loops in (endless(5, 1), loops_of(crowd(4, 9, transfers=50))):
        for network, records in itertools.product(NETWORKS, (False, True)):
            run_queue(loops, network, records=records)
    for kernel in (queue_kernel.run, queue_setup.spread, queue_setup.turn_round, queue_setup.wait):
        assert len(kernel.signatures) <= 1  # type: ignore[attr-defined]
    assert len(queue_kernel.run.signatures) == 1  # type: ignore[attr-defined]
