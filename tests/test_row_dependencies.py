"""Dependencies on the rows of a repeat, against the rule looked up chunk by chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim import Collective, Schedule, ScheduleBuilder, algorithms
from collsim.engine.lowering.row_dependencies import rolled
from collsim.schedule.dependencies import locations
from tests.rolled import uniform_repeats
from tests.strategies import naive_predecessors, naive_rows, schedules


def within(schedule: Schedule, index: int) -> list[set[int]]:
    """Predecessors inside a phase, numbered from its first transfer."""
    first = sum(phase.transfers for phase in schedule.phases[:index])
    last = first + schedule.phases[index].transfers
    rows = naive_predecessors(schedule, naive_rows(schedule))[first:last]
    return [{p - first for p in preds if p >= first} for preds in rows]


def written_out(schedule: Schedule, index: int) -> list[set[int]] | None:
    phase = schedule.phases[index]
    form = rolled(schedule, phase)
    if form is None:
        return None
    d = form.inside()
    result: list[set[int]] = [set() for _ in range(phase.transfers)]
    for row, pred, distance in zip(d.query.tolist(), d.row.tolist(), d.distance.tolist(), strict=True):
        for k in range(distance, phase.times):
            result[k * len(phase.block) + row].add((k - distance) * len(phase.block) + pred)
    return result


KNOWN = [
    algorithms.ring_all_reduce(5),
    algorithms.ring_reduce_scatter(6, channels=2, slices=3),
    algorithms.ring_all_gather(4, order=[2, 0, 3, 1], slices=2),
    algorithms.bidirectional_ring_all_reduce(5),
    algorithms.bidirectional_ring_all_reduce(4, channels=2, slices=2),
    algorithms.bidirectional_ring_all_gather(2),
    algorithms.binomial_tree_all_reduce(6),
    algorithms.double_binary_tree_all_reduce(6, slices=2),
    algorithms.tree_broadcast(7, slices=3),
]


@pytest.mark.parametrize("schedule", KNOWN, ids=repr)
def test_repeats_of_the_algorithms(schedule: Schedule) -> None:
    for index in range(len(schedule.phases)):
        assert written_out(schedule, index) == within(schedule, index)


@given(schedules(phases=2, times=4))
@settings(max_examples=300)
def test_repeats_of_any_kind(schedule: Schedule) -> None:
    for index in range(len(schedule.phases)):
        result = written_out(schedule, index)
        assert result is None or result == within(schedule, index)


@st.composite
def one_block(draw: st.DrawFn) -> Schedule:
    """A repeat with one shift and windows that do not overlap in part, which mostly has dependencies on its rows."""
    window = draw(st.integers(2, 7))
    frames = draw(st.integers(1, 2))
    ranks, in_place = draw(st.integers(1, 3)), draw(st.booleans())
    b = ScheduleBuilder(Collective("all_reduce", ranks), chunks=window * frames, in_place=in_place)
    with b.repeat(draw(st.integers(1, window)), shift=draw(st.integers(-8, 8)), window=window):
        for _ in range(draw(st.integers(1, 5))):
            put = draw(st.sampled_from([b.copy, b.reduce]))
            chunk, other = (draw(st.integers(0, window * frames - 1)) for _ in range(2))
            ends = st.integers(0, ranks - 1)
            put(draw(ends), draw(ends), chunk, dst_chunk=other, step=draw(st.integers(0, 2)),
                src_buffer=draw(st.sampled_from(["input", "output"])))  # fmt: skip
    return b.build()


@given(one_block())
@settings(max_examples=300)
def test_repeats_with_one_shift(schedule: Schedule) -> None:
    result = written_out(schedule, 0)
    assert result is None or result == within(schedule, 0)
    phase = schedule.phases[0]
    period = phase.window // np.gcd(phase.shift, phase.window)
    # with one chunk a row and one shift there is no other reason to give up
    assert (result is None) == (phase.times > period)


def test_copied_rows_read_nothing_from_before() -> None:
    schedule = algorithms.ring_all_reduce(4)
    reducing, copying = (rolled(schedule, phase) for phase in schedule.phases)
    assert reducing is not None
    assert copying is not None
    assert (reducing.inside().copied == -1).all()
    assert (copying.inside().copied == 1).all()
    preds = naive_predecessors(schedule, naive_rows(schedule))
    # iteration 0 of the copies reads the last sums, later iterations only what was copied
    assert all(max(preds[12 + row]) < 12 for row in range(4))
    assert all(min(preds[row]) >= 12 for row in range(16, 24))


def build_block(times: int, **kw: Any) -> Schedule:
    b = ScheduleBuilder(Collective("all_reduce", 2), chunks=6)
    with b.repeat(times, shift=kw.pop("shift", 1), window=kw.pop("window", 0)):
        b.copy(0, 1, **kw.pop("first", {"chunk": 0}))
        b.copy(1, 0, **kw.pop("second", {"chunk": 1}), step=1)
    return b.build()


@pytest.mark.parametrize(
    ("why", "schedule"),
    [
        ("a row visits a chunk twice", build_block(7)),
        ("a row visits a chunk twice in its window", build_block(4, window=3)),
        ("no shift", build_block(2, shift=0)),
        ("shifts differ", build_block(2, second={"chunk": 1, "shift": 2})),
        ("windows differ", build_block(2, second={"chunk": 1, "window": 3})),
        ("windows overlap in part", build_block(2, second={"chunk": 4, "window": 3})),
        ("windows overlap in part the other way", build_block(2, first={"chunk": 4, "window": 3}, second={"chunk": 1})),
        ("written windows overlap in part", build_block(2, first={"chunk": [0, 4], "window": [6, 3]})),
        ("sets overlap in part", build_block(2, first={"chunk": 0, "count": 2}, second={"chunk": 1, "count": 2})),
        ("lists", build_block(1, first={"chunks": [0]}, second={"chunks": [0]})),
    ],
)
def test_repeats_that_have_to_be_written_out(why: str, schedule: Schedule) -> None:
    assert rolled(schedule, schedule.phases[0]) is None


def test_repeats_that_need_not() -> None:
    for schedule in (build_block(6), build_block(3, window=3), build_block(1, shift=0), build_block(3, shift=2)):
        assert written_out(schedule, 0) == within(schedule, 0)


@given(uniform_repeats())
@settings(max_examples=300)
def test_what_was_written_last(schedule: Schedule) -> None:
    """For every place in memory: the latest copy of a phase and the reductions since."""
    for phase in schedule.phases:
        form = rolled(schedule, phase)
        if form is None:
            continue
        chunks = np.arange(schedule.chunks)
        ends = np.repeat(np.arange(schedule.ranks), schedule.chunks)
        address = locations(schedule, ends, np.ones_like(ends), np.tile(chunks, schedule.ranks))
        found = form.latest(address)
        got: list[list[int]] = [[] for _ in ends]
        for query, row, distance in zip(found.query, found.row, found.distance, strict=True):
            got[query].append((phase.times - distance) * len(phase.block) + row)
        alone = Schedule(
            schedule.collective, schedule.chunks, (phase,), scratch=schedule.scratch, in_place=schedule.in_place
        )
        rows = naive_rows(alone)
        for query, (end, chunk) in enumerate(zip(ends.tolist(), np.tile(chunks, schedule.ranks).tolist(), strict=True)):
            expected, copied = [], False
            for i in reversed(range(len(rows))):
                if (end, 1, chunk) in rows[i].writes(alone):
                    expected.append(i)
                    if not rows[i].reduce:
                        copied = True
                        break
            assert got[query] == expected
            assert (found.copied[query] >= 0) == copied
