"""Two writes of one place must be ordered by dependencies, unless both add."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim import Collective, Schedule, ScheduleBuilder, algorithms, check
from collsim.errors import ProofError
from collsim.schedule import order
from collsim.schedule.cycles import all_predecessors, find_cycle
from collsim.schedule.dependencies import infer
from collsim.schedule.model import Edge
from collsim.schedule.order import refuse_unordered
from tests.strategies import make, naive_rows, naive_unordered, refused, schedules

REMEDY = "; let the second one depend on the first"


def test_two_copies_that_nothing_orders() -> None:
    refused(
        make("broadcast", 3, 1, "0 -> 1 0; 0 -> 2 0; 1 -> 2 0"),
        "rank 2, chunk 0: nothing orders two writes: step 1, 0 -> 2 and step 2, 1 -> 2" + REMEDY,
        rank=2, chunk=0, step=2,
    )  # fmt: skip
    refused(
        make("broadcast", 2, 1, "0 -> 1 0 & 0 -> 1 0"),
        "rank 1, chunk 0: nothing orders two writes: step 0, 0 -> 1 and step 0, 0 -> 1" + REMEDY,
    )


def test_a_copy_and_a_reduction_that_nothing_orders() -> None:
    refused(
        make("reduce", 3, 1, "1 -> 0 0 > s0; 2 => 0 0 > s0; 0 => 0 s0 > 0", head="scratch=1"),
        "rank 0, chunk 0: nothing orders two writes: step 0, 1 -> 0 and step 1, 2 => 0" + REMEDY,
    )  # fmt: skip


def test_a_copy_over_a_reduction() -> None:
    """The sum goes round by rank 2, but the copy back may overtake the reduction that came late."""
    schedule = make("all_reduce", 3, 1, "1 => 2 0 & 0 -> 1 0; 0 => 2 0; 2 -> 0 0; 2 => 1 0; 2 -> 1 0")
    refused(
        schedule,
        "rank 1, chunk 0: nothing orders two writes: step 0, 0 -> 1 and step 3, 2 => 1" + REMEDY,
    )
    late = make("all_reduce", 3, 1, "1 => 2 0; 0 => 2 0; 0 => 1 0; 2 -> 0 0; 2 -> 1 0")
    refused(
        late,
        "rank 1, chunk 0: nothing orders two writes: step 2, 0 => 1 and step 4, 2 -> 1" + REMEDY,
    )


def test_both_ways_in_one_step() -> None:
    """A copy and a reduction of one place in one step."""
    schedule = make("reduce", 3, 1, "1 => 0 0 & 2 -> 0 0", root=0)
    refused(
        schedule,
        "rank 0, chunk 0: contributions of ranks 0, 1 are missing; last written by step 0, 2 -> 0",
    )
    schedule = make("broadcast", 3, 2, "0 -> 1 0+2; 0 -> 2 0+2; 1 => 2 0 & 1 -> 2 0")
    refused(
        schedule,
        "rank 2, chunk 0: nothing orders two writes: step 1, 0 -> 2 and step 2, 1 => 2" + REMEDY,
    )


def test_edges_order_writes_if_they_wait_for_the_end() -> None:
    rows = "0 -> 1 0; 0 -> 2 0; 1 -> 2 0"
    assert check(make("broadcast", 3, 1, rows, edges=[Edge(0, 2, 0, 1)])).complete
    with pytest.raises(ProofError, match=r"nothing orders two writes: step 1, 0 -> 2 and step 2, 1 -> 2"):
        check(make("broadcast", 3, 1, rows, edges=[Edge(0, 2, 0, 1, at="issued")]))


def test_a_full_sum_over_a_switch() -> None:
    """What a switch adds up started from nothing there, so that the full sum comes back to it proves no order."""
    b = ScheduleBuilder(Collective("all_reduce", 2), 1, scratch=1, places=["sw"])
    b.reduce([0, 1], 2, dst_buffer="scratch")
    b.reduce(0, 1)
    b.copy(1, 0, step=1)
    b.copy(1, 2, dst_buffer="scratch", step=1)
    refused(
        b.build(), "switch sw, chunk 0: nothing orders two writes: step 0, 0 => 2 and step 1, 1 -> 2" + REMEDY, rank=2
    )


def test_edges_against_the_order_of_rows() -> None:
    rows = "0 -> 3 0 & 0 -> 2 0; 3 -> 2 0 & 3 -> 1 0"
    assert check(make("broadcast", 4, 1, rows, edges=[Edge(0, 0, 0, 1)])).complete
    refused(
        make("broadcast", 4, 1, rows),
        "rank 2, chunk 0: nothing orders two writes: step 0, 0 -> 2 and step 1, 3 -> 2" + REMEDY,
    )


def test_scratch_beyond_the_chunks() -> None:
    refused(
        make("reduce", 2, 1, "1 => 0 0; 0 -> 1 0 > s2; 1 -> 1 0 > s2", head="scratch=3"),
        "rank 1, chunk 2: nothing orders two writes: step 1, 0 -> 1 and step 2, 1 -> 1" + REMEDY,
    )


def test_data_orders_writes() -> None:
    # the second copy brings back what the first one brought
    schedule = make("broadcast", 2, 1, "0 -> 1 0; 1 -> 0 0; 0 -> 1 0")
    assert check(schedule).complete
    # two reductions need no order
    assert check(make("reduce", 3, 1, "1 => 0 0; 2 => 0 0")).complete


# cycles


def test_cycles_are_named() -> None:
    b = ScheduleBuilder(Collective("reduce", 3), 1)
    b.reduce([1, 2], 0)
    edges = [Edge(0, 0, 0, 1), Edge(0, 1, 0, 0)]
    refused(
        b.build(edges),
        "cycle: step 0, 1 => 0 waits for step 0, 2 => 0 waits for step 0, 1 => 0; remove one of the written edges",
        step=0,
    )
    refused(
        b.build([Edge(0, 1, 0, 1)]), "cycle: step 0, 2 => 0 waits for step 0, 2 => 0; remove one of the written edges"
    )
    assert check(b.build(edges[:1])).complete  # against the order of rows, but no cycle


def test_cycles_through_data_and_long_ones() -> None:
    b = ScheduleBuilder(Collective("broadcast", 9), 1)
    b.copy(np.arange(8), np.arange(1, 9), step=np.arange(8))
    refused(
        b.build([Edge(0, 0, 0, 7, at="issued", lag=5)]),
        "cycle: step 0, 0 -> 1 waits for step 7, 7 -> 8 waits for step 6, 6 -> 7 waits for step 5, 5 -> 6 waits for "
        "step 4, 4 -> 5 waits for step 3, 3 -> 4 waits for ... waits for step 0, 0 -> 1; remove one of the "
        "written edges",
    )


# the search itself


def test_searches_that_are_too_long_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = make("broadcast", 2, 1, "0 -> 1 0; 1 -> 0 0; 0 -> 1 0")
    monkeypatch.setattr(order, "MAX_VISITS", 0)
    assert check(schedule).warnings == ("the order of writes of 1 chunks was checked in part only",)
    monkeypatch.setattr(order, "MAX_TRANSFERS", 2)
    proof = check(schedule)
    assert proof.warnings == ("the order of writes of 1 chunks was not checked (over 2 transfers)",)
    assert str(proof) == "checked: all 1 chunks; " + proof.warnings[0]


@given(schedules())
@settings(max_examples=300)
def test_any_schedule(schedule: Schedule) -> None:
    """Whatever a schedule computes: a pair of writes is found exactly if nothing orders it."""
    rows = naive_rows(schedule)
    everything = set(range(max(schedule.chunks, schedule.scratch)))
    if naive_unordered(schedule, rows):
        with pytest.raises(ProofError, match=r"nothing orders two writes"):
            refuse_unordered(schedule, everything)
    else:
        assert refuse_unordered(schedule, everything) == ()
    assert refuse_unordered(schedule, set()) == ()


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20))
def test_find_cycle(edges: list[tuple[int, int]]) -> None:
    waits = [sorted({b for a, b in edges if a == i}) for i in range(8)]
    ptr = np.cumsum([0, *map(len, waits)])
    cycle = find_cycle(ptr, np.array([b for row in waits for b in row], dtype=np.int64))
    reach = [set(row) for row in waits]
    for _ in range(8):
        reach = [row.union(*(reach[b] for b in row)) for row in reach]
    assert bool(cycle) == any(i in row for i, row in enumerate(reach))
    assert all(b in waits[a] for a, b in zip(cycle, [*cycle[1:], *cycle[:1]], strict=True))
    assert len(set(cycle)) == len(cycle)


def test_predecessors_with_edges() -> None:
    schedule = make("broadcast", 3, 1, "0 -> 1 0; 0 -> 2 0; 1 -> 2 0",
                    edges=[Edge(0, 1, 0, 0, at="issued"), Edge(0, 2, 0, 1, lag=3)])  # fmt: skip
    t = schedule.expand()
    ptr, pred = all_predecessors(schedule, t)
    assert (ptr.tolist(), pred.tolist()) == ([0, 0, 1, 3], [0, 0, 1])
    ptr, pred = all_predecessors(schedule, t, ended=True)
    assert (ptr.tolist(), pred.tolist()) == ([0, 0, 0, 2], [0, 1])
    plain = algorithms.ring_all_reduce(3)
    assert [a.tolist() for a in all_predecessors(plain, plain.expand())] == [
        a.tolist() for a in infer(plain, plain.expand())
    ]
