"""Who waits for whom: both ways of finding it against the rule looked up chunk by chunk."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim import Collective, Schedule, ScheduleBuilder, algorithms
from collsim.errors import ScheduleError
from collsim.schedule import dependencies
from collsim.schedule.dependencies import explicit_edges, infer, locations
from collsim.schedule.model import Edge
from tests.strategies import exchanges, naive_predecessors, naive_rows, schedules


def found(ptr: Any, pred: Any) -> list[list[int]]:
    return [pred[a:b].tolist() for a, b in pairwise(ptr.tolist())]


def one_way(schedule: Schedule, way: str) -> list[set[int]]:
    """Predecessors by one of the two ways of `infer`, whichever it would choose itself."""
    t = schedule.expand()
    owner = np.repeat(np.arange(len(t)), np.diff(t.ptr))
    src = locations(schedule, t.src[owner], t.src_buffer[owner], t.src_chunks)
    dst = locations(schedule, t.dst[owner], t.dst_buffer[owner], t.dst_chunks)
    steps = np.flatnonzero(np.diff(t.step, prepend=-1))
    if way == "few":
        reader, pred = dependencies._infer_few(t, owner, src, dst, steps, False)
    else:
        reader, pred = dependencies._infer_many(schedule, t, owner, src, dst, steps)
    result: list[set[int]] = [set() for _ in range(len(t))]
    for a, b in zip(reader.tolist(), pred.tolist(), strict=True):
        result[a].add(b)
    return result


@given(schedules(), st.sampled_from(["few", "many"]))
@settings(max_examples=200)
def test_both_ways_follow_the_rule(schedule: Schedule, way: str) -> None:
    assert one_way(schedule, way) == naive_predecessors(schedule, naive_rows(schedule))


@given(schedules())
def test_infer_is_sorted_and_follows_the_rule(schedule: Schedule) -> None:
    expected = naive_predecessors(schedule, naive_rows(schedule))
    assert found(*infer(schedule, schedule.expand())) == [sorted(preds) for preds in expected]


@given(schedules())
@settings(max_examples=200)
def test_zero_copy(schedule: Schedule) -> None:
    rows, t = naive_rows(schedule), schedule.expand()
    if exchanges(schedule, rows):
        with pytest.raises(ScheduleError, match=r"^zero_copy: step \d+: "):
            infer(schedule, t, zero_copy=True)
    else:
        expected = naive_predecessors(schedule, rows, zero_copy=True)
        assert found(*infer(schedule, t, zero_copy=True)) == [sorted(preds) for preds in expected]


def test_many_rows_a_step_take_the_array_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "_infer_few", None)
    schedule = algorithms.ring_all_reduce(32)
    expected = naive_predecessors(schedule, naive_rows(schedule))
    assert found(*infer(schedule, schedule.expand())) == [sorted(preds) for preds in expected]


def test_the_rule_by_hand() -> None:
    b = ScheduleBuilder(Collective("all_reduce", 4), chunks=1)
    b.reduce(1, 0, step=0)  # 0
    b.copy(2, 0, step=1)  # 1: a copy, so the reduction before it no longer counts
    b.reduce(3, 0, step=2)  # 2: waits for nothing, neither for the copy
    b.reduce(1, 0, step=3)  # 3
    b.copy(0, 1, step=3)  # 4: reads the state before step 3
    b.copy(0, 2, step=4)  # 5
    schedule = b.build()
    for way in ("few", "many"):
        assert one_way(schedule, way) == [set(), set(), set(), set(), {1, 2}, {1, 2, 3}]


@pytest.mark.parametrize("way", ["few", "many"])
def test_several_writes_in_a_step(way: str) -> None:
    b = ScheduleBuilder(Collective("all_reduce", 4), chunks=1)
    b.reduce([1, 2, 3], 0)
    b.copy(0, 1, step=1)
    b.reduce(2, 0, step=2)  # 4: no longer counts after the copy behind it
    b.copy(3, 0, step=2)
    b.reduce([1, 2], 0, step=2)
    b.copy(0, 1, step=3)
    schedule = b.build()
    expected: list[set[int]] = [set()] * 9
    expected[3] = {0, 1, 2}
    expected[6], expected[8] = {3}, {5, 6, 7}
    assert one_way(schedule, way) == expected


def test_input_and_output_are_one_memory_in_place_only() -> None:
    for in_place, expected in ((True, [[], [0]]), (False, [[], []])):
        b = ScheduleBuilder(Collective("all_reduce", 2), chunks=1, in_place=in_place)
        b.copy(0, 1, src_buffer="input")
        b.copy(1, 0, src_buffer="input", step=1)
        schedule = b.build()
        assert found(*infer(schedule, schedule.expand())) == expected


def test_zero_copy_names_the_exchange() -> None:
    b = ScheduleBuilder(Collective("all_reduce", 2), chunks=4)
    b.reduce([0, 1], [1, 0], step=1, chunks=[[0, 2], [1, 2]])
    schedule = b.build()
    with pytest.raises(ScheduleError) as caught:
        infer(schedule, schedule.expand(), zero_copy=True)
    assert str(caught.value) == (
        "zero_copy: step 1: 1 -> 0 reads chunk 2 that 0 -> 1 overwrites in the same step; expected a scratch buffer "
        "between them, or zero_copy=False"
    )


def test_zero_copy_waits_for_readers() -> None:
    schedule = algorithms.ring_all_gather(3)
    assert found(*infer(schedule, schedule.expand(), zero_copy=True)) == [[], [], [], [2], [0], [1]]
    schedule = algorithms.ring_all_reduce(3)
    plain = found(*infer(schedule, schedule.expand()))
    # the copy over the partial sum waits until that has been sent on
    assert plain[6:9] == [[5], [3], [4]]
    assert found(*infer(schedule, schedule.expand(), zero_copy=True))[6:9] == [[1, 5], [2, 3], [0, 4]]


def test_explicit_edges_within_a_phase_and_across_borders() -> None:
    b = ScheduleBuilder(Collective("all_reduce", 2), chunks=1)
    for times in (3, 2, 4):
        with b.repeat(times):
            b.reduce([0, 1], [1, 0])
    edges = [
        Edge(2, 1, 2, 0, distance=2, at="issued", lag=7),
        Edge(2, 0, 1, 1, distance=2),  # over the border, to both iterations
        Edge(2, 0, 0, 0, distance=4),  # two borders back
        Edge(1, 0, 1, 1),  # same iteration
        Edge(0, 0, 0, 0, distance=3),  # there is no such iteration
    ]
    schedule = b.build(edges)
    transfer, pred, issued, lag = (column.tolist() for column in explicit_edges(schedule))
    assert list(zip(transfer, pred, issued, lag, strict=True)) == [
        (15, 10, True, 7), (17, 12, True, 7),
        (10, 7, False, 0), (12, 9, False, 0),
        (10, 2, False, 0), (12, 4, False, 0),
        (6, 7, False, 0), (8, 9, False, 0),
    ]  # fmt: skip


def test_no_edges() -> None:
    assert [len(column) for column in explicit_edges(algorithms.ring_all_reduce(3))] == [0, 0, 0, 0]
