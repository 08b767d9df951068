"""Repeats written out: at once, step by step both ways, and for some chunks only, against a plain expansion."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collsim import Collective, Schedule, ScheduleBuilder, algorithms
from collsim.schedule import Block, Repeat
from collsim.schedule.expand import expand, iter_steps, select, steps_of
from tests.strategies import naive_rows, rows_of, schedules


@given(schedules())
def test_expand_follows_the_formula(schedule: Schedule) -> None:
    assert rows_of(expand(schedule)) == naive_rows(schedule)
    assert len(expand(schedule)) == schedule.transfers


@given(schedules(), st.booleans())
def test_iter_steps_equals_expand(schedule: Schedule, backwards: bool) -> None:
    rows = naive_rows(schedule)
    steps = list(iter_steps(schedule, backwards=backwards))
    assert [step for step, _ in steps] == sorted({row.step for row in rows}, reverse=backwards)
    for step, transfers in steps:
        assert rows_of(transfers) == [row for row in rows if row.step == step]


@given(schedules())
def test_steps_of_cuts_what_is_written_out(schedule: Schedule) -> None:
    cut = [(step, rows_of(t)) for step, t in steps_of(expand(schedule))]
    assert cut == [(step, rows_of(t)) for step, t in iter_steps(schedule)]


@given(schedules(aligned=True), st.data())
def test_select_filters_expand(schedule: Schedule, data: st.DataObject) -> None:
    chunks = data.draw(st.lists(st.integers(0, max(schedule.chunks, schedule.scratch) - 1), unique=True).map(sorted))
    single = [row._replace(chunks=(pair,)) for row in naive_rows(schedule) for pair in row.chunks if pair[0] in chunks]
    assert rows_of(select(schedule, np.array(chunks, dtype=np.int64))) == single


def test_select_of_a_long_ring() -> None:
    schedule = algorithms.bidirectional_ring_all_reduce(11, channels=2, slices=3)
    chunks = np.array([0, 5, 40, 131])
    expected = [row for row in naive_rows(schedule) if row.chunks[0][0] in chunks]
    assert rows_of(select(schedule, chunks)) == expected
    assert len(expected) == 4 * 20


def test_steps_without_transfers_cost_nothing() -> None:
    b = ScheduleBuilder(Collective("broadcast", 2), chunks=1)
    b.copy(0, 1, step=2_000_000_000)
    schedule = b.build()
    assert schedule.steps == 2_000_000_001
    assert [step for step, _ in schedule.iter_steps()] == [2_000_000_000]


def test_windows_by_hand() -> None:
    b = ScheduleBuilder(Collective("all_gather", 1), chunks=6, scratch=3)
    with b.repeat(3, shift=-1, window=3):
        b.copy(0, 0, 4, count=2, stride=2)
        b.copy(0, 0, 0, dst_chunk=2, dst_buffer="scratch", shift=1)
    t = b.build().expand()
    assert t.src_chunks.tolist() == [4, 3, 0, 3, 5, 1, 5, 4, 2]
    assert t.dst_chunks.tolist() == [4, 3, 2, 3, 5, 0, 5, 4, 1]


def test_no_phases() -> None:
    schedule = algorithms.ring_all_reduce(1)
    assert schedule.phases == ()
    assert len(schedule.expand()) == 0
    assert list(schedule.iter_steps()) == []
    assert len(select(schedule, np.array([0]))) == 0


@pytest.mark.parametrize("times", [0, 1])
def test_empty_blocks(times: int) -> None:
    block = Block(*[[]] * 11)
    schedule = Schedule(Collective("all_reduce", 1), 1, (Repeat(block, times, shift=[], window=[]),))
    assert (schedule.steps, schedule.transfers, len(schedule.expand())) == (0, 0, 0)
    assert list(schedule.iter_steps()) == []
