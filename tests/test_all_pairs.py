"""All-pairs algorithms: one and two shots, and direct gathers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import collsim.topology as machines
from collsim import Collective, Schedule, ScheduleBuilder, check, execute
from collsim.algorithms.all_pairs import (
    direct_all_gather,
    direct_reduce_scatter,
    one_shot_all_reduce,
    two_shot_all_reduce,
)
from collsim.engine.lowering.lower import lower
from collsim.engine.reference import run_reference
from collsim.errors import ProofError
from tests.answers import run_both_ways
from tests.strategies import naive_rows

ALL = [direct_all_gather, direct_reduce_scatter, one_shot_all_reduce, two_shot_all_reduce]
SHOTS = [one_shot_all_reduce, two_shot_all_reduce]


@pytest.mark.parametrize("ranks", range(1, 34))
@pytest.mark.parametrize("function", ALL)
def test_proven_and_executed(function: Any, ranks: int) -> None:
    schedule = function(ranks)
    proof = check(schedule)
    assert (proof.complete, proof.unused, proof.warnings) == (True, (), ())
    assert Schedule.from_text(str(schedule)) == schedule
    for elements in (0, 1, ranks - 1, 3 * ranks + 1):
        run_both_ways(schedule, elements)
    assert not function(1).transfers


@pytest.mark.parametrize("ranks", [2, 3, 8, 13])
def test_steps_and_volume(ranks: int) -> None:
    def most_sent(schedule: Schedule) -> float:
        sent: Counter[int] = Counter()
        for row in naive_rows(schedule):
            sent[row.src] += len(row.chunks) if row.src != row.dst else 0
        assert len(set(sent.values())) == 1
        return max(sent.values()) / schedule.chunks

    assert direct_all_gather(ranks).steps == direct_reduce_scatter(ranks).steps == 1
    assert two_shot_all_reduce(ranks).steps == 2
    assert most_sent(direct_all_gather(ranks)) == most_sent(direct_reduce_scatter(ranks)) == (ranks - 1) / ranks
    assert most_sent(one_shot_all_reduce(ranks)) == ranks - 1
    assert most_sent(two_shot_all_reduce(ranks)) == 2 * (ranks - 1) / ranks


@pytest.mark.parametrize("function", ALL)
def test_destinations_are_staggered(function: Any) -> None:
    """Incast: if all ranks began with rank 0, its port would be late and all others idle."""
    rows = [row for row in naive_rows(function(7)) if row.src != row.dst and row.step == 0]
    for turn in range(6):
        nth = [[row.dst for row in rows if row.src == rank][turn] for rank in range(7)]
        assert sorted(nth) == list(range(7))


@pytest.mark.parametrize("function", SHOTS)
def test_all_ranks_have_the_same_bits(function: Any) -> None:
    """Sums of floats depend on their order: ranks that begin with their own vector get different bits."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(100).astype(np.float32) for _ in range(7)]
    results = execute(function(7), arrays)
    assert len({result.tobytes() for result in results if result is not None}) == 1
    naive = ScheduleBuilder(Collective("all_reduce", 7), 1)
    src, dst = np.nonzero(~np.eye(7, dtype=bool))
    naive.reduce(src, dst)
    results = execute(naive.build(), arrays)
    assert len({result.tobytes() for result in results if result is not None}) > 1


def test_one_shot_adds_in_the_order_of_ranks() -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(50).astype(np.float32) for _ in range(6)]
    total = arrays[0].copy()
    for array in arrays[1:]:
        total += array
    for result in execute(one_shot_all_reduce(6), arrays):
        np.testing.assert_array_equal(result, total)


def test_one_shot_must_wait_for_the_vector_that_the_sum_begins_with() -> None:
    schedule = one_shot_all_reduce(3)
    with pytest.raises(ProofError, match="nothing orders two writes"):
        check(replace(schedule, edges=()))


def time(schedule: Schedule, topology: Any, size: int) -> float:
    return int(run_reference(lower(schedule, topology, size), "cut_through").end.max()) * 1e-12


ALPHA, BETA = 2e-6, 1e-10
SWITCH = {"bandwidth": "10GB/s", "latency": "1us"}


@pytest.mark.parametrize("ranks", [2, 4, 7, 8])
def test_times_on_a_crossbar(ranks: int) -> None:
    size = 1000 * ranks
    topology = machines.switch(ranks, **SWITCH, reduce_bandwidth="20GB/s")
    gamma = 5e-11
    one, two = (time(shot(ranks), topology, size) for shot in SHOTS)
    assert one == pytest.approx(ALPHA + (ranks - 1) * size * (BETA + gamma), rel=1e-9)
    # all but the last addition hide behind receiving
    assert two == pytest.approx(2 * ALPHA + 2 * (ranks - 1) * 1000 * BETA + 1000 * gamma, rel=1e-9)


@pytest.mark.parametrize("ranks", [2, 4, 7])
def test_times_with_a_link_for_each_pair(ranks: int) -> None:
    size = 1000 * ranks
    topology = machines.fully_connected(ranks, "10GB/s", "1us")
    one, two = (time(shot(ranks), topology, size) for shot in SHOTS)
    assert one == pytest.approx(1e-6 + size * BETA, rel=1e-9)
    assert two == pytest.approx(2e-6 + 2 * size / ranks * BETA, rel=1e-9)


@pytest.mark.parametrize("ranks", [4, 8])
def test_two_shots_win_from_the_crossover_on(ranks: int) -> None:
    crossover = ALPHA / (BETA * (ranks - 1) * (ranks - 2) / ranks)
    topology = machines.switch(ranks, **SWITCH)
    for factor, winner in ((0.9, 0), (1.1, 1)):
        size = int(crossover * factor) // ranks * ranks
        times = [time(shot(ranks), topology, size) for shot in SHOTS]
        assert times.index(min(times)) == winner


def test_texts() -> None:
    assert str(direct_reduce_scatter(4)) == (
        "reduce_scatter ranks=4 chunks=4\n"
        "algorithm direct\n"
        "repeat 1\n"
        "  step 0\n"
        "    0 => 3  3\n"
        "    0 => 2  2\n"
        "    0 => 1  1\n"
        "    1 => 0  0\n"
        "    1 => 3  3\n"
        "    1 => 2  2\n"
        "    2 => 1  1\n"
        "    2 => 0  0\n"
        "    2 => 3  3\n"
        "    3 => 2  2\n"
        "    3 => 1  1\n"
        "    3 => 0  0"
    )
    assert two_shot_all_reduce(4).phases[1].block.reduce.sum() == 0
