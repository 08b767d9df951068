"""What a proof refuses before it begins: schedules that would take hours, or more memory than there is."""

from __future__ import annotations

import numpy as np
import pytest

from collsim import Collective, Schedule, ScheduleBuilder, algorithms, check
from collsim.errors import ProofError, ScheduleError
from collsim.schedule import check as check_module
from collsim.schedule import cycles
from collsim.schedule.model import Edge


def repeated(times: int, *, shift: int = 0, window: int = 0, chunks: int = 4) -> Schedule:
    b = ScheduleBuilder(Collective("broadcast", 2), chunks)
    with b.repeat(times, shift=shift, window=window):
        b.copy(0, 1, 0)
    return b.build()


@pytest.mark.parametrize(
    ("schedule", "visits"),
    [
        (repeated(2**31 - 1, shift=1), "536,870,912"),
        (repeated(2**31 - 1), "2,147,483,647"),
        (repeated(2**31 - 1, shift=2), "1,073,741,824"),
        (repeated(300_001, shift=1, window=3, chunks=6), "100,001"),
    ],
)
def test_a_row_that_comes_back_for_ever_is_refused(schedule: Schedule, visits: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        check(schedule)
    assert str(caught.value) == (
        f"phase 0: a row visits one chunk {visits} times, at most 100,000 are followed; expected fewer repeats than "
        f"{schedule.phases[0].times:,}, or a shift that visits more chunks"
    )


def test_rows_of_more_chunks_than_memory_are_refused() -> None:
    b = ScheduleBuilder(Collective("all_reduce", 2), 1 << 26)
    b.reduce(0, 1, 0, count=1 << 26)
    b.copy(1, 0, 0, count=1 << 26, step=1)
    with pytest.raises(ScheduleError) as caught:
        check(b.build())
    assert str(caught.value) == (
        "phase 0: its rows move 134,217,728 chunks in one run, at most 67,108,864 are followed; expected fewer rows or "
        "chunks"
    )


def test_long_messages_make_a_sample_smaller() -> None:
    b = ScheduleBuilder(Collective("broadcast", 2), 1000)
    b.copy(0, 1, 0, count=1000)
    assert [check(b.build(), full_cost=cost).checked for cost in (1000, 999, 500, 50)] == [1000, 9, 5, 1]


def test_the_slowest_row_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "MOST_VISITS", 3)
    b = ScheduleBuilder(Collective("broadcast", 2), 4)
    with b.repeat(13):
        b.copy(0, 1, [0, 1], shift=[1, 3])
    with pytest.raises(ScheduleError, match=r"^phase 0: a row visits one chunk 4 times, at most 3 are followed; "):
        check(b.build())
    with pytest.raises(ProofError, match="nothing orders two writes"):  # it was followed
        check(repeated(12, shift=1))
    b = ScheduleBuilder(Collective("broadcast", 2), 4)
    with b.repeat(12):
        b.copy(0, 1, [0, 1], shift=[1, 2])
    with pytest.raises(ScheduleError, match=r"^phase 0: a row visits one chunk 6 times, at most 3 are followed; "):
        check(b.build())


def test_work_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = algorithms.ring_all_reduce(8)  # 112 moves in 14 steps
    monkeypatch.setattr(check_module, "MOST_WORK", 112 + 1400)
    assert check(schedule).complete
    monkeypatch.setattr(check_module, "MOST_WORK", 112 + 1399)
    assert check(schedule).complete  # FULL_COST moves were asked for
    with pytest.raises(ScheduleError) as caught:
        check(schedule, full_cost=200)
    assert str(caught.value) == (
        "schedule: the proof would follow 112 chunk moves in 14 steps, at most 1,511 with 100 for each step are "
        "followed; expected fewer repeats, steps or chunks (or simulate with check=False)"
    )
    # a sample is less work: one chunk, of 14 moves
    assert check(schedule, full_cost=100).checked == 1


def test_places_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = algorithms.ring_all_reduce(8)
    monkeypatch.setattr(check_module, "MOST_PLACES", 64)
    assert check(schedule).complete
    monkeypatch.setattr(check_module, "MOST_PLACES", 63)
    with pytest.raises(ScheduleError) as caught:
        check(schedule)
    assert str(caught.value) == (
        "schedule: the proof would hold 64 chunks of all ranks at once, at most 63 are held; expected fewer chunks, "
        "scratch chunks or ranks (or simulate with check=False)"
    )


@pytest.mark.parametrize("operation", ["broadcast", "all_to_all", "barrier"])
def test_scratch_beyond_memory_is_refused(operation: str) -> None:
    schedule = ScheduleBuilder(Collective(operation, 1000), 1000, scratch=1 << 26).build()
    with pytest.raises(ScheduleError, match=r"^schedule: the proof would hold 67,[\d,]+ chunks of all ranks at once, "):
        check(schedule)


def test_a_barrier_is_limited_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    b = ScheduleBuilder(Collective("barrier", 8), 1)
    r = np.arange(8)
    for k in range(3):
        b.reduce(r, (r + 2**k) % 8, step=k)
    monkeypatch.setattr(check_module, "MOST_PLACES", 16 * 64)
    assert check(b.build()).complete
    monkeypatch.setattr(check_module, "MOST_PLACES", 16 * 64 - 1)
    with pytest.raises(ScheduleError, match=r"would hold 16 chunks of all ranks at once, at most 15 are held"):
        check(b.build())


def test_numpy_ranks_of_a_barrier_are_counted_right() -> None:
    b = ScheduleBuilder(Collective("barrier", np.int64(70)), 1)  # sets of ranks of over 64 bits
    r = np.arange(70)
    for k in range(6):
        b.reduce(r, (r + 2**k) % 70, step=k)
    with pytest.raises(ProofError, match=r"^rank 0 leaves the barrier without having heard of rank 1$"):
        check(b.build())
    b.reduce(r, (r + 64) % 70, step=6)
    assert check(b.build()).complete


def test_edges_in_a_step_of_a_long_schedule_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    b = ScheduleBuilder(Collective("broadcast", 3), 1)
    b.copy(0, [1, 2])
    schedule = b.build([Edge(0, 0, 0, 1)])
    assert check(schedule).complete
    monkeypatch.setattr(cycles, "MOST_TRANSFERS", 1)
    with pytest.raises(ScheduleError) as caught:
        check(schedule)
    assert str(caught.value) == (
        "edges: 2 transfers are too many to look for cycles of written edges, at most 1 are searched; expected fewer "
        "transfers, or edges to earlier rows only"
    )
