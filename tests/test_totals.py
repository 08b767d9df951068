"""Totals without writing out, against sums over all transfers; exact integers."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim
from collsim import Collective, Schedule, ScheduleBuilder, algorithms
from collsim.engine import totals
from collsim.engine.loops import Loops, loops_of
from collsim.engine.lowering.lower import lower
from collsim.engine.lowering.roll import roll
from collsim.engine.totals import rates_used, sent_per_rank, station_totals
from collsim.errors import CollsimError
from tests.programs import programs
from tests.rolled import star, uniform_repeats, without_paths
from tests.strategies import schedules


def assert_totals(loops: Loops, ranks: int) -> None:
    program = loops.flat()
    sent = [0] * ranks
    carried, held = [0] * len(program.station_kind), [0] * len(program.station_kind)
    for i in range(program.transfers):
        size = int(program.bytes[i])
        if program.src[i] != program.dst[i] and program.src[i] < ranks:
            sent[program.src[i]] += size
        for visit in range(program.visit_ptr[i], program.visit_ptr[i + 1]):
            carried[program.visit_station[visit]] += size
            held[program.visit_station[visit]] += int(program.visit_busy[visit])
    assert sent_per_rank(loops, ranks).tolist() == sent
    assert [column.tolist() for column in station_totals(loops)] == [carried, held]


@given(
    uniform_repeats() | schedules(times=4).map(without_paths), st.sampled_from([0, 24, 25]),
    st.sampled_from([(1, 1), (3, 7), (totals.PART, totals.ORBIT)]),
)  # fmt: skip
@settings(max_examples=200)
def test_totals_of_repeats(schedule: Schedule, size: int, pieces: tuple[int, int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(totals, "PART", pieces[0])
        patch.setattr(totals, "ORBIT", pieces[1])
        with suppress(CollsimError):
            assert_totals(roll(schedule, star(schedule.ranks, 2), size), schedule.ranks)


@given(programs())
def test_totals_of_programs_with_joins(program) -> None:
    assert_totals(loops_of(program), 2)


@pytest.mark.parametrize("size", [0, 3, 1000, 1001, 1237])
def test_totals_of_rings(size: int) -> None:
    for schedule in (
        algorithms.ring_all_reduce(7), algorithms.ring_reduce_scatter(7, channels=2, slices=3),
        algorithms.bidirectional_ring_all_reduce(7, channels=2, slices=2),
    ):  # fmt: skip
        loops = roll(schedule, star(7, 3), size)
        assert (loops.times == 6).all()
        assert_totals(loops, 7)


def test_many_sizes_on_few_rates_and_few_sizes_on_many_rates() -> None:
    ring = [(1, 3), (2, 5), (1, 0), (1, 8), (2, 1)]
    for layout, topology in (
        (ring, collsim.topology.ring(7, bandwidth="1GB/s", latency="1us")),
        ([(4, 3), (3, 5)], star(7)),
    ):
        b = ScheduleBuilder(Collective("all_gather", 7), chunks=7, layout=layout)
        r = np.arange(7)
        with b.repeat(6, shift=-1):
            b.copy(r, (r + 1) % 7, r)
        loops = roll(b.build(), topology, sum(count * size for count, size in layout))
        assert loops.varies.all()
        assert_totals(loops, 7)


def test_sums_beyond_the_exact_range_of_floats() -> None:
    topology = collsim.topology.ring(3, bandwidth="1TB/s", latency="1us")
    sent = sent_per_rank(roll(algorithms.ring_all_reduce(3), topology, 3 * (2**53 + 1)), 3)
    assert sent.tolist() == [4 * (2**53 + 1)] * 3


def test_places_and_local_copies_are_not_sent_by_ranks() -> None:
    b = ScheduleBuilder(Collective("all_reduce", 2), chunks=2, scratch=2, places=["sw"])
    with b.repeat(2, shift=1):
        b.reduce([0, 1], 2, 0, dst_buffer="scratch")
        b.copy(2, [0, 1], 0, src_buffer="scratch", step=1)
        b.copy(0, 0, 1, dst_chunk=1, step=1)
    loops = roll(b.build(), star(2), 10)
    assert sent_per_rank(loops, 2).tolist() == [10, 10]
    assert_totals(loops, 2)


@given(uniform_repeats(), st.sampled_from([24, 25]))
@settings(max_examples=100)
def test_rates_that_are_used(schedule: Schedule, size: int) -> None:
    with suppress(CollsimError):
        loops = roll(schedule, star(schedule.ranks), size)
        expected = np.zeros(loops.busy.shape, dtype=bool)
        for p in range(loops.phases):
            for k in range(loops.times[p]):
                classes = loops.classes(p, np.array([[k]]))[0]
                for row, number in enumerate(classes, loops.row_ptr[p]):
                    visits = slice(*loops.route_ptr[loops.route[row] : loops.route[row] + 2])
                    expected[number, loops.route_rate[visits]] = True
        assert np.array_equal(rates_used(loops), expected)


def test_nothing() -> None:
    topology = collsim.topology.ring(2, bandwidth="1GB/s", latency="1us")
    b = ScheduleBuilder(Collective("barrier", 2), chunks=1)
    loops = roll(b.build(), topology, 0)
    assert sent_per_rank(loops, 2).tolist() == [0, 0]
    assert [column.sum() for column in station_totals(loops)] == [0, 0]
    assert lower(b.build(), topology, 0).transfers == loops.transfers == 0
