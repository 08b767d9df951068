"""LogGP: LogGOPSim's published vector, its rules on all algorithms, and what the usual model agrees on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim import Collective, Schedule, ScheduleBuilder, algorithms, simulate, topology, window
from collsim.engine.loggp import loggp, loggp_program
from collsim.engine.lowering.lower import lower
from collsim.engine.reference import run_reference
from collsim.errors import AlgorithmError, InputError
from tests.in_network import without_switches
from tests.loggopsim import loggopsim
from tests.strategies import make

PUBLISHED = {"latency": "2500ns", "overhead": "1500ns", "gap": "1000ns", "gap_per_byte": "6ns"}
ALL = without_switches()
SETS = [(2500, 1500, 1000, 6, 0), (700, 300, 300, 3, 5), (10, 7, 0, 2, 0), (0, 0, 0, 1, 0), (2500, 500, 4000, 6, 0)]
"""L, o, g, G, O in picoseconds; in the last the gap is longer than the overhead."""


def given_in_ps(L: int, o: int, g: int, G: int, O: int = 0) -> dict[str, Any]:  # noqa: E741
    names = ("latency", "overhead", "gap", "gap_per_byte", "overhead_per_byte")
    return {name: f"{value}ps" for name, value in zip(names, (L, o, g, G, O), strict=True)}


def far_first(ranks: int) -> Schedule:
    """Binomial reduction to 0 as in LogGOPSim's example: 4 => 0, 5 => 1, ...; then 2 => 0, 3 => 1; then 1 => 0."""
    b = ScheduleBuilder(Collective("reduce", ranks), 1)
    step, half = 0, ranks // 2
    while half:
        b.reduce(np.arange(half, 2 * half), np.arange(half), step=step)
        step, half = step + 1, half // 2
    return b.build()


@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_published_vector(engine: str) -> None:
    times = loggp(far_first(8), 1024, **PUBLISHED, engine=engine)
    assert (times / 1000).tolist() == [34914, 24776, 13138, 13138, 1500, 1500, 1500, 1500]


@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_single_message(engine: str) -> None:
    times = loggp(make("broadcast", 2, 1, "0 -> 1 0"), 1024, **PUBLISHED, engine=engine)
    assert (times / 1000).tolist() == [1500, 11638]  # o; o + L + o + 1023 G


@pytest.mark.parametrize(("o", "g", "G"), [(300, 1000, 6), (1000, 300, 0), (1000, 300, 6), (0, 0, 1), (5, 2000, 0)])
def test_back_to_back_sends(o: int, g: int, G: int) -> None:
    """Sends leave every max(o, g + (m-1) G), also where the gap is longer than the overhead."""
    m, L, ranks = 101, 2500, 6
    times = loggp(algorithms.linear_broadcast(ranks), m, **given_in_ps(L, o, g, G))
    every = max(o, g + (m - 1) * G)
    assert times.tolist() == [
        (ranks - 2) * every + o, *(k * every + o + L + o + (m - 1) * G for k in range(ranks - 1))
    ]  # fmt: skip


def test_receives_take_the_processor_one_after_the_other() -> None:
    m, ranks, (L, o, g, G) = 101, 6, (2500, 300, 200, 6)
    schedule = make("reduce", ranks, 1, "&".join(f"{r} => 0 0" for r in range(1, ranks)))
    times = loggp(schedule, m, **given_in_ps(L, o, g, G))
    assert times.tolist() == [o + L + (ranks - 1) * (o + (m - 1) * G), *[o] * (ranks - 1)]


def test_the_processor_does_one_thing_at_a_time() -> None:
    """Rank 1: a send, two receives, a send, 100 ps each without a break."""
    schedule = make("all_gather", 3, 3, "0 -> 1 0 & 2 -> 1 2 & 1 -> 0 1 & 1 -> 2 1")
    assert loggp(schedule, 3, **given_in_ps(0, 100, 0, 0)).tolist() == [200, 400, 500]


@pytest.mark.parametrize(("operation", "name"), ALL)
def test_all_algorithms_follow_the_rules(operation: str, name: str) -> None:
    built = 0
    for number, ranks in enumerate((1, 2, 5, 8)):
        try:
            schedule = algorithms.build(operation, name, ranks)
        except AlgorithmError:
            continue
        size = 4 * schedule.chunks
        for costs in SETS[number::2] if ranks > 2 else SETS:
            expected, near = loggopsim(schedule, size, *costs)
            if near:  # only where the gap is longer than the overhead
                assert costs[2] > costs[1]
                with pytest.raises(InputError, match=r"^gap: rank \d+ would begin a receive before the gap"):
                    loggp(schedule, size, **given_in_ps(*costs))
            else:
                assert loggp(schedule, size, **given_in_ps(*costs)).tolist() == expected
                built += 1
    assert built


@pytest.mark.parametrize(
    "schedule",
    [
        algorithms.ring_all_reduce(7), algorithms.binomial_tree_broadcast(13, 2), algorithms.binomial_tree_reduce(16),
        algorithms.linear_gather(9), algorithms.recursive_doubling_all_reduce(8), algorithms.dissemination_barrier(8),
        algorithms.ring_broadcast(6, slices=1), algorithms.circulant_all_gather(8),
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("costs", SETS[:3])
def test_where_no_order_is_contested_it_is_loggopsim_to_the_letter(schedule: Schedule, costs: tuple[int, ...]) -> None:
    """With ties broken by the order in which events entered the queue."""
    size = 8 * schedule.chunks
    expected, _ = loggopsim(schedule, size, *costs, inserted=True)
    assert loggp(schedule, size, **given_in_ps(*costs)).tolist() == expected


@given(st.data(), st.tuples(*[st.integers(0, 50)] * 2, st.integers(0, 50), st.integers(0, 4), st.integers(0, 4)))
@settings(max_examples=60, deadline=None)
def test_both_engines_and_written_edges(data: st.DataObject, costs: tuple[int, ...]) -> None:
    operation, name = data.draw(st.sampled_from([("all_reduce", "ring"), ("all_gather", "circulant"),
                                                 ("broadcast", "tree"), ("all_to_all", "direct")]))  # fmt: skip
    schedule = algorithms.build(operation, name, data.draw(st.integers(1, 9)))
    if data.draw(st.booleans()):
        schedule = window(schedule, 1, at=data.draw(st.sampled_from(["end", "issued"])))
    costs = (costs[0], costs[1], min(costs[1], costs[2]), *costs[3:])  # the gap no longer than the overhead
    size = data.draw(st.integers(0, 40)) * schedule.chunks
    expected, near = loggopsim(schedule, size, *costs)
    assert not near
    for engine in ("reference", "compiled"):
        assert loggp(schedule, size, **given_in_ps(*costs), engine=engine).tolist() == expected
    program = loggp_program(schedule, size, **given_in_ps(*costs))
    through, forward = (run_reference(program, network).end for network in ("cut_through", "store_and_forward"))
    assert through.tolist() == forward.tolist()


# what the usual model agrees on


def test_one_message_a_step_is_alpha_and_beta() -> None:
    """A rank that has one message in and one out a step: alpha = 2 o + L - G, beta = G."""
    L, o, g, G, ranks, m = 2500, 1500, 1000, 6, 8, 1000
    machine = topology.fully_connected(ranks, bandwidth=10**12 / G, latency=(2 * o + L - G) * 1e-12)
    for name in ("ring", "recursive_doubling", "circulant"):
        schedule = algorithms.build("all_gather", name, ranks)
        result = simulate(schedule, machine, ranks * m)
        time = max(loggp(schedule, ranks * m, **given_in_ps(L, o, g, G)))
        assert result.time == pytest.approx(time * 1e-12, rel=1e-6)  # G = 6 ps is no whole number of bytes a second
    assert max(loggp(algorithms.ring_all_reduce(ranks), ranks * m, **given_in_ps(L, o, g, G))) == 2 * (ranks - 1) * (
        2 * o + L + (m - 1) * G
    )


@pytest.mark.parametrize("o", [0, 100, 30_000])
def test_sends_back_to_back_are_those_of_a_port_where_the_gap_is_that_of_a_byte(o: int) -> None:
    """With g = G: sender overhead o, latency L + o - G, bandwidth 1/G."""
    L, G, ranks, m = 2500, 5, 7, 1000
    schedule = algorithms.linear_scatter(ranks)
    half = (L + o - G) // 2
    machine = topology.switch(ranks, bandwidth=10**12 // G, latency=half * 1e-12, send_overhead=o * 1e-12)
    time = max(loggp(schedule, ranks * m, **given_in_ps(L, o, G, G)))
    lowered = run_reference(lower(schedule, machine, ranks * m), "cut_through").makespan
    assert time - lowered == (L + o - G) % 2


def test_a_receiver_of_many_is_not_the_same() -> None:
    """In LogGP each receive costs its overhead, one after the other; a port only the bytes."""
    L, o, G, ranks, m = 2500, 400, 5, 7, 10
    schedule = make("reduce", ranks, 1, "&".join(f"{r} => 0 0" for r in range(1, ranks)))
    machine = topology.switch(ranks, bandwidth=10**12 // G, latency=1450e-12, send_overhead=o * 1e-12)
    port = run_reference(lower(schedule, machine, m), "cut_through").makespan
    assert port == o + (L + o) + (ranks - 1) * m * G
    assert max(loggp(schedule, m, **given_in_ps(L, o, G, G))) == o + L + (ranks - 1) * (o + (m - 1) * G) > 1.5 * port


# numbers


def test_bytes_may_take_fractions_of_a_picosecond() -> None:
    schedule = make("broadcast", 2, 1, "0 -> 1 0")
    for value, expected in ((6e-9, 6_000_000), (1 / 450e9, 2223), ("0.25ps", 250), (0, 0)):
        times = loggp(schedule, 1001, latency=0, overhead=0, gap=0, gap_per_byte=value)
        assert times.tolist() == [0, expected]


def test_no_bytes_are_like_one() -> None:
    for size in (0, 1):
        assert loggp(make("broadcast", 2, 1, "0 -> 1 0"), size, **PUBLISHED).tolist() == [1_500_000, 5_500_000]


def test_times_beyond_the_compiled_engine() -> None:
    schedule = make("broadcast", 2, 1, "0 -> 1 0")
    for engine in ("reference", "compiled"):
        assert loggp(schedule, 1, latency="72000s", overhead=0, gap=0, gap_per_byte=0, engine=engine)[1] == 72 * 10**15


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gap_per_byte": "6"}, "'6': expected a unit of time"),
        ({"gap_per_byte": "6GB/s"}, "'6GB/s': 'GB/s' is not a unit of time"),
        ({"overhead_per_byte": None}, "None: expected overhead_per_byte: a time a byte such as '6ns'"),
        ({"latency": -1}, "-1: expected a time"),
        ({"engine": "auto"}, "engine: expected one of reference, compiled, got 'auto'"),
        ({"gap_per_byte": "1000s"}, "size: a message would take more than 26 days; use a smaller size"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        loggp(far_first(4), 1_000_000, **PUBLISHED | changes)
    assert str(caught.value).startswith(message)


def test_switches_and_paths_are_refused() -> None:
    b = ScheduleBuilder(Collective("reduce", 2), 1, scratch=1, places=["sw"])
    b.reduce([0, 1], 2, dst_buffer="scratch")
    b.copy(2, 0, src_buffer="scratch", step=1)
    with pytest.raises(InputError, match=r"^schedule: LogGP knows ranks only; expected no switches"):
        loggp(b.build(), 8, **PUBLISHED)
