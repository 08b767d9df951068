"""Mirror images and concatenations, against proof, execution and the schedules written by hand."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collsim import Collective, Schedule, ScheduleBuilder, algorithms, check
from collsim.algorithms import derive
from collsim.algorithms.derive import rename, reverse, then
from collsim.errors import AlgorithmError
from collsim.schedule import Edge
from tests.answers import run_both_ways
from tests.strategies import naive_rows

ON_TREES = (
    "bidirectional_ring", "bine", "bruck", "circulant", "neighbour_exchange", "pat", "recursive_doubling", "ring",
    "swing",
)  # fmt: skip
for module in ON_TREES:
    importlib.import_module(f"collsim.algorithms.{module}")  # puts its algorithms into the table

GATHERS = algorithms.available()["all_gather"]
MIRRORED = [(op, name) for op in ("all_gather", "broadcast", "scatter") for name in algorithms.available().get(op, [])]
PAIRS = {"broadcast": "reduce", "all_gather": "reduce_scatter", "scatter": "gather", "gather": "scatter"}


def built(operation: str, name: str, ranks: int, root: int = 0, **parameters: Any) -> Schedule | None:
    try:
        return algorithms.build(operation, name, ranks, root, **parameters)
    except AlgorithmError:
        return None


def moves(schedule: Schedule, *, turned: bool = False) -> list[tuple[int, int, int, tuple[int, ...]]]:
    """(step, src, dst, chunks) of all rows; the mirror image of them if turned."""
    rows = naive_rows(schedule)
    last = max((row.step for row in rows), default=0)
    flat = [(row.step, row.src, row.dst, tuple(sorted(a for a, _ in row.chunks))) for row in rows]
    return sorted([(last - step, dst, src, chunks) for step, src, dst, chunks in flat] if turned else flat)


@pytest.mark.parametrize("name", GATHERS)
def test_every_all_gather_has_a_mirror_image(name: str) -> None:
    turned = 0
    for ranks in range(1, 34):
        given = built("all_gather", name, ranks)
        if given is None:
            continue
        try:
            mirrored = reverse(given, "reduce_scatter")
        except AlgorithmError:
            assert name not in ON_TREES
            continue
        turned += 1
        proof = check(mirrored)
        assert (proof.complete, proof.unused, proof.warnings) == (True, (), ())
        assert moves(mirrored) == moves(given, turned=True)
        assert mirrored.transfers == given.transfers
        both = then(mirrored, given, "all_reduce")
        assert check(both).complete
        assert both.steps == mirrored.steps + given.steps
        for elements in (ranks - 1, 2 * ranks + 1):
            run_both_ways(mirrored, elements)
            run_both_ways(both, elements)
    assert turned > 4 or name not in ON_TREES


@pytest.mark.parametrize(("operation", "name"), [pair for pair in MIRRORED if pair[0] != "all_gather"])
def test_every_broadcast_and_scatter_has_a_mirror_image(operation: str, name: str) -> None:
    for ranks, root in ((1, 0), (2, 1), (5, 3), (8, 0), (8, 5), (16, 7)):
        given = built(operation, name, ranks, root)
        if given is None:
            continue
        try:
            mirrored = reverse(given, PAIRS[operation])
        except AlgorithmError:
            assert name not in ("binomial_tree", "ring", "tree", "bine")
            continue
        assert mirrored.collective.root == root
        assert check(mirrored).complete
        assert moves(mirrored) == moves(given, turned=True)
        run_both_ways(mirrored, 2 * ranks + 1)


@pytest.mark.parametrize("name", ["ring", "bidirectional_ring"])
@pytest.mark.parametrize("parameters", [{}, {"channels": 2, "slices": 3}, {"order": [2, 0, 3, 1, 4, 6, 5]}])
def test_repeats_stay_repeats(name: str, parameters: dict[str, Any]) -> None:
    given = algorithms.build("all_gather", name, 7, **parameters)
    mirrored = reverse(given, "reduce_scatter")
    assert [(len(phase.block), phase.times) for phase in mirrored.phases] == [(len(given.phases[0].block), 6)]
    assert np.array_equal(np.sort(np.ravel(mirrored.phases[0].shift)), np.sort(-np.ravel(given.phases[0].shift)))
    assert moves(mirrored) == moves(given, turned=True)
    assert check(mirrored).complete


def test_chunks_begin_where_the_last_iteration_had_them() -> None:
    assert str(reverse(algorithms.ring_all_gather(4), "reduce_scatter")) == (
        "reduce_scatter ranks=4 chunks=4\n"
        "repeat 3 shift=1 window=4\n"
        "  step 0\n"
        "    0 => 3  1\n"
        "    1 => 0  2\n"
        "    2 => 1  3\n"
        "    3 => 2  0"
    )


def lists_in_a_repeat() -> Schedule:
    """All_gather in which each rank hands its pair of chunks round a ring of three, by lists."""
    b = ScheduleBuilder(Collective("all_gather", 3), chunks=6)
    rank = np.arange(3)
    with b.repeat(2, shift=-2, window=6):
        b.copy(rank, (rank + 1) % 3, chunks=[[2 * r + 1, 2 * r] for r in range(3)])
    return b.build()


def steps_and_phases() -> Schedule:
    """All_gather of several phases whose blocks have several steps and whose first rows are lists, sets and windows."""
    b = ScheduleBuilder(Collective("all_gather", 4), chunks=8)
    rank = np.arange(4)
    b.copy(rank, rank ^ 1, 2 * rank, step=0)
    b.copy(rank, rank ^ 1, 2 * rank + 1, step=2)
    b.copy(rank, rank ^ 2, chunks=[[4 * (r // 2) + c for c in (0, 3)] for r in range(4)], step=3)
    with b.repeat(2, shift=1, window=4):
        b.copy(rank, rank ^ 2, 4 * (rank // 2) + 1)
    return b.build()


@pytest.mark.parametrize("make", [lists_in_a_repeat, steps_and_phases])
def test_lists_steps_and_phases(make: Any) -> None:
    given = make()
    assert check(given).complete
    mirrored = reverse(given, "reduce_scatter")
    assert check(mirrored).complete
    assert [phase.times for phase in mirrored.phases] == [phase.times for phase in given.phases][::-1]
    assert moves(mirrored) == moves(given, turned=True)
    run_both_ways(mirrored, 23)


def test_channels_layout_and_paths_are_kept_and_paths_turned() -> None:
    b = ScheduleBuilder(Collective("broadcast", 3, 1), chunks=2, layout=[(1, 4), (1, 7)])
    b.copy(1, 0, [0, 1], channel=[3, 4], via=("a", "b"))
    b.copy(1, 2, 0, step=1, count=2)
    mirrored = reverse(b.build(), "reduce")
    assert mirrored.paths == (("b", "a"),)
    assert mirrored.layout == ((1, 4), (1, 7))
    last = mirrored.phases[0].block
    assert (last.step.tolist(), last.channel.tolist()) == ([0, 1, 1], [0, 3, 4])
    assert last.via is not None
    assert last.via.tolist() == [-1, 0, 0]


def test_a_scatter_becomes_a_gather_that_copies() -> None:
    b = ScheduleBuilder(Collective("scatter", 4, 2), chunks=4)
    b.copy(2, 0, 0, count=2)
    b.copy([0, 2], [1, 3], [1, 3], step=1)
    gather = reverse(b.build(), "gather")
    assert check(gather).complete
    assert not any(phase.block.reduce.any() for phase in gather.phases)
    run_both_ways(gather, 9)
    assert check(reverse(gather, "scatter")).complete


# refusals


def broadcast(*rows: tuple[int, int, int], **more: Any) -> Schedule:
    b = ScheduleBuilder(Collective("broadcast", 3), chunks=1, scratch=more.pop("scratch", 0), **more)
    for step, src, dst in rows:
        b.copy(src, dst, step=step)
    return b.build()


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (broadcast((0, 0, 1), (0, 0, 2), (1, 1, 2)), "rank 2 receives chunk 0 more than once"),
        (broadcast((0, 0, 1), (0, 0, 2), (1, 1, 0)), "rank 0 receives chunk 0 more than once or had it from the start"),
        (broadcast((0, 1, 2), (1, 0, 1)), "rank 1 sends chunk 0 in step 0 before it has got it"),
        (broadcast((0, 0, 1), (0, 1, 2)), "rank 1 sends chunk 0 in step 0 before it has got it"),
        (broadcast((0, 0, 1), (0, 0, 2), scratch=1), "a schedule with scratch"),
        (broadcast((0, 0, 1), (0, 0, 2), in_place=False), r"an input of its own \(in_place=False\)"),
        (broadcast((0, 0, 1), (0, 0, 2), places=["sw"]), "switches that take part"),
        (replace(broadcast((0, 0, 1), (1, 0, 2)), edges=(Edge(0, 1, 0, 0),)), "written edges"),
        (lambda: algorithms.ring_reduce(3), "expected all_gather to reduce_scatter, broadcast to reduce, "),
    ],
)
def test_what_has_no_mirror_image(schedule: Any, message: str) -> None:
    schedule = schedule() if callable(schedule) else schedule
    with pytest.raises(AlgorithmError, match=message):
        reverse(schedule, "reduce")


def test_reductions_and_moved_chunks_have_no_mirror_image() -> None:
    b = ScheduleBuilder(Collective("broadcast", 2), chunks=1)
    b.reduce(0, 1)
    with pytest.raises(AlgorithmError, match="a schedule with reductions"):
        reverse(b.build(), "reduce")
    b = ScheduleBuilder(Collective("broadcast", 2), chunks=2)
    b.copy(0, 1, [0, 1], dst_chunk=[1, 0])
    with pytest.raises(AlgorithmError, match="chunks that change their place"):
        reverse(b.build(), "reduce")


def test_large_schedules_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derive, "WRITTEN_OUT", 0)
    assert check(reverse(algorithms.ring_all_gather(5), "reduce_scatter")).complete
    with pytest.raises(AlgorithmError, match="rank 2 receives 2 chunks, more than the 1 that it does not hold"):
        reverse(broadcast((0, 0, 1), (0, 0, 2), (1, 1, 2)), "reduce")
    with pytest.raises(AlgorithmError, match="rank 0 receives 1 chunks, more than the 0 that it does not hold"):
        reverse(broadcast((0, 0, 1), (0, 0, 2), (1, 1, 0)), "reduce")
    b = ScheduleBuilder(Collective("all_gather", 2), chunks=2)
    b.copy([0, 1], [1, 0], [0, 1])
    b.copy(0, 1, 0, step=1)
    with pytest.raises(AlgorithmError, match="rank 1 receives 2 chunks, more than the 1"):
        reverse(b.build(), "reduce_scatter")


def test_the_mirror_image_of_a_large_ring_is_small() -> None:
    mirrored = reverse(algorithms.ring_all_gather(100_000), "reduce_scatter")
    assert [(len(phase.block), phase.times) for phase in mirrored.phases] == [(100_000, 99_999)]


# one after the other


def test_order_of_chunks_is_reconciled() -> None:
    first = algorithms.ring_reduce_scatter(7, order=[3, 1, 0, 2, 4, 6, 5])
    for second in (algorithms.ring_all_gather(7), algorithms.ring_all_gather(7, order=[0, 6, 5, 1, 2, 3, 4])):
        both = then(first, second, "all_reduce")
        assert check(both).complete
        assert both.order is None
        run_both_ways(both, 17)


def test_other_pairs() -> None:
    for first, second, operation in (
        (algorithms.binomial_tree_reduce(6, 2), algorithms.binomial_tree_broadcast(6, 2), "all_reduce"),
        (reverse(algorithms.ring_all_gather(4), "reduce_scatter"), algorithms.ring_all_gather(4), "all_reduce"),
    ):
        assert check(then(first, second, operation)).complete
    b = ScheduleBuilder(Collective("scatter", 5, 3), chunks=5)
    b.copy(3, [0, 1, 2, 4], [0, 1, 2, 4])
    both = then(b.build(), algorithms.ring_all_gather(5), "broadcast")
    assert both.collective.root == 3
    assert check(both).complete
    back = then(algorithms.ring_reduce_scatter(5), reverse(b.build(), "gather"), "reduce")
    assert back.collective.root == 3
    assert check(back).complete


def test_paths_edges_and_buffers_of_the_second() -> None:
    def gather(**more: Any) -> ScheduleBuilder:
        return ScheduleBuilder(Collective("all_gather", 2), chunks=2, **more)

    first = gather(in_place=False)
    first.copy(0, [0, 1], 0, src_buffer="input", via=("a",))
    second = gather()
    second.copy(1, [0, 1], 1, src_buffer="input")
    second.copy(1, 0, 0, step=1, via=("b",))
    both = then(first.build(), second.build([Edge(0, 1, 0, 0)]), "all_gather")
    assert both.paths == (("a",), ("b",))
    assert both.edges == (Edge(1, 1, 1, 0),)
    assert not both.in_place
    assert [(row.via, row.src_buffer) for row in naive_rows(both)] == [(0, 0), (0, 0), (-1, 1), (-1, 1), (1, 1)]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (algorithms.ring_all_gather(4), "as many ranks in both, got 3 and 4"),
        (algorithms.ring_all_gather(3, slices=2), "as many chunks in both, got 3 and 6"),
        (ScheduleBuilder(Collective("all_gather", 3), chunks=3, in_place=False).build(), "works in place"),
        (ScheduleBuilder(Collective("all_gather", 3), chunks=3, layout=[(3, 2)]).build(), "same layout"),
    ],
)
def test_what_does_not_fit_together(second: Schedule, message: str) -> None:
    with pytest.raises(AlgorithmError, match=message):
        then(algorithms.ring_reduce_scatter(3), second, "all_reduce")


def test_roots_scratch_places_and_edges_that_do_not_fit() -> None:
    with pytest.raises(AlgorithmError, match=r"same root in both, got \[0, 1\]"):
        then(algorithms.binomial_tree_reduce(3, 0), algorithms.binomial_tree_broadcast(3, 1), "all_reduce")
    with pytest.raises(AlgorithmError, match="scratch in one of the two only"):
        then(broadcast((0, 0, 1), scratch=1), broadcast((0, 0, 2), scratch=1), "broadcast")
    with pytest.raises(AlgorithmError, match="same places in both"):
        then(broadcast((0, 0, 1), places=["a"]), broadcast((0, 0, 2), places=["b"]), "broadcast")
    edged = replace(algorithms.ring_all_gather(3, order=[1, 0, 2]), edges=(Edge(0, 1, 0, 0, distance=1),))
    with pytest.raises(AlgorithmError, match="chunks in the order of the first, or no written edges"):
        then(algorithms.ring_reduce_scatter(3), edged, "all_reduce")


# other names for ranks


@pytest.mark.parametrize(("operation", "name"), [pair for pair in MIRRORED if pair[1] == "ring"])
def test_renamed_is_what_the_algorithm_makes_of_the_order(operation: str, name: str) -> None:
    order = [3, 1, 4, 0, 2]
    straight = algorithms.build(operation, name, 5)
    assert rename(straight, None) is straight
    renamed = rename(straight, order)
    root = 3 if operation == "broadcast" else 0
    assert renamed == algorithms.build(operation, name, 5, root, order=order)
    assert check(renamed).complete
    with pytest.raises(AlgorithmError, match="each of the ranks 0 to 4 once"):
        rename(straight, [0, 1, 2, 3, 3])


def test_names_can_be_changed_twice() -> None:
    slices = algorithms.ring_reduce_scatter(4, slices=3)
    twice = rename(rename(slices, [1, 2, 3, 0]), [1, 2, 3, 0])
    assert twice == algorithms.ring_reduce_scatter(4, slices=3, order=[2, 3, 0, 1])
    assert list(inspect.signature(rename).parameters) == ["schedule", "order"]
