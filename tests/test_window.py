"""Pacing: a transfer waits for the n-th one before it."""

from __future__ import annotations

from collections import defaultdict
from contextlib import nullcontext, suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim import Collective, Schedule, ScheduleBuilder, algorithms, check, window
from collsim.errors import ScheduleError
from collsim.schedule.dependencies import explicit_edges
from collsim.schedule.model import Edge
from tests.strategies import naive_rows, schedules

PER = ("src", "dst", "channel")


def waits(schedule: Schedule) -> set[tuple[int, int]]:
    transfer, pred, _, _ = explicit_edges(schedule)
    pairs = list(zip(transfer.tolist(), pred.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    return set(pairs)


def naive_waits(schedule: Schedule, n: int, per: tuple[str, ...]) -> set[tuple[int, int]]:
    queues: dict[tuple[int, ...], list[int]] = defaultdict(list)
    result = set()
    for i, row in enumerate(naive_rows(schedule)):
        queue = queues[tuple(getattr(row, name) for name in per)]
        if len(queue) >= n:
            result.add((i, queue[-n]))
        queue.append(i)
    return result


@given(schedules(), st.integers(1, 9), st.sampled_from([PER, ("src",), ("dst", "channel"), ()]))
@settings(max_examples=300)
def test_waits_for_the_nth_before(schedule: Schedule, n: int, per: tuple[str, ...]) -> None:
    counts = defaultdict(set)  # rows a phase has for each window
    for phase in schedule.phases:
        columns = [getattr(phase.block, name).tolist() for name in per]
        keys = [tuple(column[row] for column in columns) for row in range(len(phase.block))]
        for key in keys:
            counts[key].add(keys.count(key))
    refusal = nullcontext()
    if any(len(numbers) > 1 for numbers in counts.values()):
        refusal = suppress(ScheduleError)  # refused only if the window reaches over the border
    with refusal:
        assert waits(window(schedule, n, per=per)) == naive_waits(schedule, n, per)


@pytest.mark.parametrize("n", [1, 2, 5, 100])
@pytest.mark.parametrize(
    "schedule",
    [
        algorithms.ring_all_reduce(4, channels=2, slices=3),
        algorithms.bidirectional_ring_all_reduce(3),
        algorithms.double_binary_tree_all_reduce(5, slices=4),
        algorithms.ring_broadcast(4, slices=6),
    ],
    ids=repr,
)
def test_algorithms_under_a_window(schedule: Schedule, n: int) -> None:
    paced = window(schedule, n, at="issued")
    assert waits(paced) == naive_waits(schedule, n, PER)
    assert {edge.at for edge in paced.edges} <= {"issued"}
    assert all(edge.lag == 0 for edge in paced.edges)
    assert check(paced).complete
    assert Schedule.from_text(str(paced)) == paced


def test_other_edges_are_kept() -> None:
    schedule = algorithms.ring_all_gather(2)
    first = Edge(0, 0, 0, 1, 1, lag=5)
    assert window(replace(schedule, edges=(first,)), 1).edges == (first,)  # one iteration: there is nothing to add


def test_phases_with_other_rows_are_refused() -> None:
    b = ScheduleBuilder(Collective("all_reduce", 2), chunks=2)
    with b.repeat(2):
        b.copy(0, 1, [0, 1])
    with b.repeat(2):
        b.copy(0, 1)
    schedule = b.build()
    with pytest.raises(ScheduleError) as caught:
        window(schedule, 2)
    assert str(caught.value) == (
        "window: {'src': 0, 'dst': 1, 'channel': 0} has 1 rows in phase 1 and 2 in phase 0; expected as many, write "
        "them as one block"
    )


@pytest.mark.parametrize(
    ("n", "more", "message"),
    [
        (0, {}, "window: expected at least 1 transfer in flight, got 0"),
        (1.5, {}, r"window: expected a whole number, got 1\.5"),
        (True, {}, "window: expected a whole number, got True"),
        (1, {"per": ("src", "chanel")}, r"window: per: no column 'chanel'; did you mean 'channel'\?"),
        (1, {"at": "start"}, "edge: at: expected 'end' or 'issued', got 'start'"),
    ],
)
def test_refusals(n: int, more: dict[str, object], message: str) -> None:
    with pytest.raises(ScheduleError, match=rf"^{message}$"):
        window(algorithms.ring_all_reduce(3), n, **more)  # type: ignore[arg-type]
