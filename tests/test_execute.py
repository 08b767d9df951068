"""Schedules on real arrays: operations without an algorithm of their own, shapes, places, scratch, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collsim import Collective, Schedule, ScheduleBuilder, algorithms, check, execute
from collsim.errors import InputError, ProofError, ScheduleError
from collsim.schedule.model import Edge
from tests.answers import answer, inputs_for, run_both_ways


def tree_of(ranks: int) -> tuple[Any, Any, Any]:
    """Child, parent and step of a far-first binomial tree."""
    child = np.arange(1, ranks)
    lowest = child & -child
    return child, child - lowest, (ranks - 1).bit_length() - 1 - np.log2(lowest).astype(int)


def binomial_scatter(ranks: int, root: int) -> Schedule:
    b = ScheduleBuilder(Collective("scatter", ranks, root), ranks)
    child, parent, step = tree_of(ranks)
    for c, p, s in zip(child.tolist(), parent.tolist(), step.tolist(), strict=True):
        last = min(c + (c & -c), ranks)  # the subtree of c, wrapping round where the root is not 0
        b.copy((p + root) % ranks, (c + root) % ranks, (c + root) % ranks, count=last - c, step=s)
    return b.build()


def linear_gather(ranks: int, root: int) -> Schedule:
    b = ScheduleBuilder(Collective("gather", ranks, root), 3 * ranks)
    others = np.array([r for r in range(ranks) if r != root])
    b.copy(others, root, 3 * others, count=3)
    return b.build()


def pairwise_all_to_all(ranks: int, in_place: bool) -> Schedule:
    r, other = (a.ravel() for a in np.indices((ranks, ranks)))
    if not in_place:  # straight from the input of one rank to the output of the other, own block included
        b = ScheduleBuilder(Collective("all_to_all", ranks), ranks, in_place=False)
        b.copy(r, other, other, dst_chunk=r, src_buffer="input", step=(other - r) % ranks)
        return b.build()
    b = ScheduleBuilder(Collective("all_to_all", ranks), ranks, scratch=ranks)
    r, other = r[r != other], other[r != other]
    b.copy(r, other, other, dst_chunk=r, dst_buffer="scratch", step=(other - r) % ranks - 1)
    b.copy(other, other, r, src_buffer="scratch", dst_chunk=r, step=ranks)  # local
    return b.build()


def bruck_all_to_all(ranks: int, *, paced: bool = True) -> Schedule:
    """Rotate into scratch, exchange blocks by the bits of their distance, rotate back.

    No data orders what arrives in a slot after what was there before: edges do.
    """
    b = ScheduleBuilder(Collective("all_to_all", ranks), ranks, scratch=ranks, in_place=False)
    r, slot = (a.ravel() for a in np.indices((ranks, ranks)))
    b.copy(r, r, (r + slot) % ranks, dst_chunk=slot, src_buffer="input", dst_buffer="scratch")
    for bit in range((ranks - 1).bit_length()):
        moved = [j for j in range(ranks) if j >> bit & 1]
        for rank in range(ranks):
            peer = (rank + (1 << bit)) % ranks
            b.copy(rank, peer, chunks=moved, src_buffer="scratch", dst_buffer="scratch", step=1 + bit)
    b.copy(r, r, slot, dst_chunk=(r - slot) % ranks, src_buffer="scratch", step=40)
    edges = []
    for bit in range((ranks - 1).bit_length()) if paced else ():
        for rank in range(ranks):
            peer, row = (rank + (1 << bit)) % ranks, ranks * (ranks + bit) + rank
            edges += [Edge(0, row, 0, peer * ranks + j) for j in range(ranks) if (j & -j) == 1 << bit]
            edges += [Edge(0, row, 0, ranks * (ranks + i) + (peer - (1 << i)) % ranks) for i in range(bit)]
    return b.build(edges)


def bruck_all_gather(ranks: int) -> Schedule:
    """Relative blocks in scratch; the rotation at the end is a local copy."""
    b = ScheduleBuilder(Collective("all_gather", ranks), ranks, scratch=ranks, in_place=False)
    r = np.arange(ranks)
    b.copy(r, r, r, dst_chunk=0, src_buffer="input", dst_buffer="scratch")
    m, step = 1, 1
    while m < ranks:
        count = min(m, ranks - m)
        many = count > 1
        if many:
            b.copy(r, (r - m) % ranks, chunks=[range(count)] * ranks, dst_chunks=[range(m, m + count)] * ranks,
                   src_buffer="scratch", dst_buffer="scratch", step=step)  # fmt: skip
        else:
            b.copy(r, (r - m) % ranks, 0, dst_chunk=m, src_buffer="scratch", dst_buffer="scratch", step=step)
        m, step = 2 * m, step + 1
    rank, slot = (a.ravel() for a in np.indices((ranks, ranks)))
    b.copy(rank, rank, slot, dst_chunk=(rank + slot) % ranks, src_buffer="scratch", step=step)
    return b.build()


def send_recv_ring(ranks: int) -> Schedule:
    b = ScheduleBuilder(Collective("send_recv", ranks), 2)
    b.copy(np.arange(ranks), (np.arange(ranks) + 1) % ranks, count=2)
    return b.build()


def dissemination_barrier(ranks: int, rounds: int | None = None) -> Schedule:
    b = ScheduleBuilder(Collective("barrier", ranks), 1)
    r = np.arange(ranks)
    for k in range((ranks - 1).bit_length() if rounds is None else rounds):
        b.reduce(r, (r + 2**k) % ranks, step=k)
    return b.build()


def switch_all_reduce(ranks: int, chunks: int = 4) -> Schedule:
    """As NVLS does it: all reduce into a switch, which sends the sum back to all."""
    b = ScheduleBuilder(Collective("all_reduce", ranks), chunks, scratch=chunks, places=["nvswitch"])
    r = np.arange(ranks)
    b.reduce(r, ranks, 0, count=chunks, dst_buffer="scratch")
    b.copy(ranks, r, 0, count=chunks, src_buffer="scratch", step=1)
    return b.build()


def direct_reduce_scatter(ranks: int, *, paced: bool = True) -> Schedule:
    """Out of place: every block goes straight to its owner's output, which starts from the owner's own."""
    b = ScheduleBuilder(Collective("reduce_scatter", ranks), ranks, in_place=False)
    r, other = (a.ravel() for a in np.indices((ranks, ranks)))
    b.copy(np.arange(ranks), np.arange(ranks), np.arange(ranks), src_buffer="input")
    r, other = r[r != other], other[r != other]
    order = np.argsort((other - r) % ranks, kind="stable")
    r, other = r[order], other[order]
    b.reduce(r, other, other, src_buffer="input", step=(other - r) % ranks)
    # the sums must wait for the copy that they add to
    edges = [Edge(0, ranks + i, 0, owner) for i, owner in enumerate(other.tolist())]
    return b.build(edges if paced else ())


@pytest.mark.parametrize("ranks", range(1, 10))
def test_operations_without_an_algorithm(ranks: int) -> None:
    made = [
        *(binomial_scatter(ranks, root) for root in range(ranks)),
        *(linear_gather(ranks, root) for root in range(ranks)),
        pairwise_all_to_all(ranks, True),
        pairwise_all_to_all(ranks, False),
        bruck_all_to_all(ranks),
        bruck_all_gather(ranks),
        send_recv_ring(ranks),
        dissemination_barrier(ranks),
        switch_all_reduce(ranks),
        direct_reduce_scatter(ranks),
    ]
    for seed, schedule in enumerate(made):
        proof = check(schedule)
        assert (proof.complete, proof.unused, proof.warnings) == (True, (), ()), str(schedule)
        assert Schedule.from_text(str(schedule)) == schedule
        elements = (5 * ranks + 2, 3 * ranks, 0, ranks - 1)[seed % 4]
        if schedule.collective.operation == "all_to_all":
            elements = ranks * (seed % 3)
        run_both_ways(schedule, elements, seed=seed)


def test_exchanges_in_place_need_edges() -> None:
    message = (
        "^rank 1, chunk 1: nothing orders two writes: step 0, 1 -> 1 and step 1, 0 -> 1; let the second one depend "
    )
    with pytest.raises(ProofError, match=message):
        check(bruck_all_to_all(2, paced=False))
    message = (
        "^rank 1, chunk 1: nothing orders two writes: step 0, 1 -> 1 and step 1, 0 => 1; let the second one depend "
    )
    with pytest.raises(ProofError, match=message):
        check(direct_reduce_scatter(2, paced=False))


def test_only_the_root_of_a_broadcast_or_scatter_gives_data() -> None:
    data = np.arange(7)
    for schedule in (algorithms.ring_broadcast(3, 1, slices=2), binomial_scatter(3, 1)):
        results = execute(schedule, [None, data, None])
        whole = [np.zeros(7, int), data, np.zeros(7, int)]
        for result, right in zip(results, answer(schedule, whole), strict=True):
            np.testing.assert_array_equal(result, right)


def test_shapes() -> None:
    arrays = [np.arange(6).reshape(2, 3) * (r + 1) for r in range(3)]
    results = execute(algorithms.ring_all_reduce(3), arrays)
    assert all(result is not None and result.shape == (2, 3) for result in results)
    np.testing.assert_array_equal(results[1], np.arange(6).reshape(2, 3) * 6)
    scalars = execute(algorithms.ring_all_reduce(3), [1, 2, 3])
    assert [np.shape(result) for result in scalars] == [()] * 3
    assert scalars[0] == 6
    # blocks are flat, whatever the shape of the whole
    blocks = execute(algorithms.ring_reduce_scatter(3), arrays)
    assert [block.tolist() for block in blocks if block is not None] == [[0, 6], [12, 18], [24, 30]]
    gathered = execute(algorithms.ring_all_gather(3), [array[:1] for array in arrays])
    assert gathered[0] is not None
    assert gathered[0].tolist() == [0, 1, 2, 0, 2, 4, 0, 3, 6]


def test_in_place_returns_the_arrays() -> None:
    arrays = [np.arange(6).reshape(2, 3) for _ in range(3)]
    results = execute(algorithms.ring_all_reduce(3), arrays, in_place=True)
    assert all(
        np.shares_memory(a, b) and b.shape == (2, 3) for a, b in zip(arrays, results, strict=True) if b is not None
    )
    np.testing.assert_array_equal(arrays[2], 3 * np.arange(6).reshape(2, 3))
    # a rank that gets nothing keeps what it has
    arrays = [np.arange(4) for _ in range(3)]
    assert [result is None for result in execute(algorithms.ring_reduce(3, 1), arrays, in_place=True)] == [
        True,
        False,
        True,
    ]
    assert [array.tolist() for array in arrays] == [[0, 1, 2, 3], [0, 3, 6, 9], [0, 1, 2, 3]]


def test_strided_views_out_of_place() -> None:
    arrays = [np.arange(10)[::2], np.arange(10)[::-2]]
    results = execute(algorithms.ring_all_reduce(2), arrays)
    assert results[0] is not None
    assert results[0].tolist() == [9] * 5


def test_order_of_the_sum_is_the_ring() -> None:
    """Floating point shows the order: chunk c is summed up from rank c+1 round to rank c."""
    values = [np.array([1.0, 1.0, 1.0]), np.array([1e16, 1e16, 1e16]), np.array([-1e16, -1e16, -1e16])]
    results = execute(algorithms.ring_all_reduce(3), values)
    expected = [(values[(c + 1) % 3][c] + values[(c + 2) % 3][c]) + values[c][c] for c in range(3)]
    assert results[0] is not None
    assert results[0].tolist() == expected
    assert len(set(expected)) == 2


def test_a_step_reads_the_state_before_it() -> None:
    b = ScheduleBuilder(Collective("send_recv", 3), 1)
    b.copy([0, 1, 2], [1, 2, 0])
    results = execute(b.build(), [np.array([r]) for r in range(3)])
    assert [int(result[0]) for result in results if result is not None] == [2, 0, 1]
    b = ScheduleBuilder(Collective("all_reduce", 2), 1)
    b.reduce([0, 1], [1, 0])
    results = execute(b.build(), [np.array([1]), np.array([10])])
    assert [int(result[0]) for result in results if result is not None] == [11, 11]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5)), min_size=1, max_size=5), st.data())
def test_layout(runs: list[tuple[int, int]], data: st.DataObject) -> None:
    """Chunks of sizes of their own, in any order."""
    chunks = sum(count for count, _ in runs)
    order = data.draw(st.permutations(range(chunks)))
    elements = sum(count * size for count, size in runs)
    b = ScheduleBuilder(Collective("all_reduce", 2), chunks, layout=runs, order=order)
    b.reduce(0, 1, np.arange(chunks))
    b.copy(1, 0, np.arange(chunks), step=1)
    schedule = b.build()
    run_both_ways(schedule, elements)
    with pytest.raises(ScheduleError, match=rf"^layout: made for {elements} elements, got {elements + 1}$"):
        execute(schedule, inputs_for(schedule, elements + 1))


# refusals

RING, GATHER, CAST = algorithms.ring_all_reduce(2), algorithms.ring_all_gather(2), algorithms.ring_broadcast(2, 1)
A, B = np.arange(4), np.arange(4)
WRITABLE = "arrays: rank 1: in place expects a contiguous array that can be written to"


@pytest.mark.parametrize(
    ("schedule", "arrays", "options", "message"),
    [
        (RING, [A], {}, "arrays: expected one array a rank, 2 in all, got 1"),
        (RING, [A, None], {}, "arrays: rank 1: expected an array, got None"),
        (CAST, [A, None], {}, "arrays: rank 1: expected an array, got None"),
        (CAST, [None, A], {"in_place": True}, "arrays: rank 0: expected an array, got None"),
        (RING, [A, np.arange(5)], {}, "arrays: rank 1: expected 4 elements as rank 0 has, got 5"),
        (CAST, [np.arange(5), A], {}, "arrays: rank 0: expected 4 elements as rank 1 has, got 5"),
        (RING, [A, A.astype(float)], {}, "arrays: expected one dtype, got float64, int64"),
        (RING, [A, "text"], {}, "arrays: rank 1: expected numbers, got <U4"),
        (RING, [A, [0, 1, 2, 3]], {"in_place": True}, "arrays: rank 1: in place expects a NumPy array, got list"),
        (RING, [A, np.arange(8)[::2]], {"in_place": True}, WRITABLE),
        (RING, [A, np.broadcast_to(0, 4)], {"in_place": True}, WRITABLE),
        (RING, [A, B], {"op": "mean"}, "op: expected one of sum, prod, max, min, got 'mean'; did you mean 'min'?"),
        (GATHER, [A, np.arange(2)], {}, "arrays: rank 0: expected 3 of the 6 elements as its block, got 4"),
        (GATHER, [A, np.arange(5)], {}, "arrays: rank 0: expected 5 of the 9 elements as its block, got 4"),
        (GATHER, [A, np.arange(5)], {"in_place": True}, "arrays: rank 1: expected 4 elements as rank 0 has, got 5"),
        (
            pairwise_all_to_all(2, True), [np.arange(3)] * 2, {},
            "arrays: all_to_all expects a multiple of the 2 ranks, got 3 elements",
        ),
    ],
)  # fmt: skip
def test_refusals(schedule: Schedule, arrays: list[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        execute(schedule, arrays, **options)
    assert str(caught.value) == message


def test_chunks_of_different_sizes_do_not_fit() -> None:
    b = ScheduleBuilder(Collective("broadcast", 2), 2, scratch=1)
    b.copy(0, 1, 0, dst_chunk=1)
    with pytest.raises(ScheduleError) as caught:
        execute(b.build(), [np.arange(3), np.arange(3)])
    assert str(caught.value) == (
        "rank 1, chunk 1 has 1 elements and gets 2; expected a number of elements that the chunks divide"
    )
    b = ScheduleBuilder(Collective("broadcast", 2), 2, scratch=1)
    b.copy(0, 1, 1, dst_chunk=0, dst_buffer="scratch")
    b.reduce(0, 1, 0, dst_buffer="scratch", step=1)
    with pytest.raises(ScheduleError, match=r"^rank 1, chunk 0 has 1 elements and gets 2; expected "):
        execute(b.build(), [np.arange(3), np.arange(3)])


def test_scratch_must_be_written_first() -> None:
    b = ScheduleBuilder(Collective("all_reduce", 2), 1, scratch=1, places=["sw"])
    b.copy(2, 0, src_buffer="scratch")
    with pytest.raises(ScheduleError) as caught:
        execute(b.build(), [np.arange(3), np.arange(3)])
    assert str(caught.value) == "switch sw, chunk 0: it is read in its scratch before anything was written there"


# memory of its own


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        (((0, 4), (0, 4), (8, 12)), "ranks 0 and 1"),
        (((8, 12), (0, 4), (9, 13)), "ranks 0 and 2"),
        (((3, 7), (8, 12), (0, 4)), "ranks 0 and 2"),
        (((0, 4), (4, 8), (8, 12)), None),
        (((8, 12), (4, 8), (0, 4)), None),
    ],
)
def test_in_place_each_rank_has_memory_of_its_own(spans: Any, message: str | None) -> None:
    memory = np.arange(16)
    arrays = [memory[lo:hi] for lo, hi in spans]
    expected = sum(array.copy() for array in arrays)
    schedule = algorithms.ring_all_reduce(3)
    assert all((result == expected).all() for result in execute(schedule, arrays))  # they are only read
    if message is None:
        execute(schedule, arrays, in_place=True)
        assert all((array == expected).all() for array in arrays)
        return
    before = memory.copy()
    with pytest.raises(InputError) as caught:
        execute(schedule, arrays, in_place=True)
    assert str(caught.value) == (
        f"arrays: {message}: in place expects memory of its own for each rank, these arrays share some; "
        "copy one of them"
    )
    assert (memory == before).all()


def test_empty_arrays_share_nothing() -> None:
    empty = np.zeros(4)[2:2]
    assert [len(a) for a in execute(algorithms.ring_all_reduce(2), [empty, empty], in_place=True)] == [0, 0]


def test_in_place_results_are_views() -> None:
    arrays = [np.ones((2, 3)), np.ones((2, 3))]
    results = execute(algorithms.ring_all_reduce(2), arrays, in_place=True)
    assert [result.shape for result in results] == [(2, 3)] * 2
    blocks = execute(algorithms.ring_reduce_scatter(2), arrays, in_place=True)
    assert [block.shape for block in blocks] == [(3,)] * 2
    assert all(np.shares_memory(a, b) for a, b in zip(results + blocks, arrays * 2, strict=True))


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        (None, {}, "arrays: expected one array a rank, got NoneType"),
        (([1, 2] for _ in range(3)), {}, "arrays: expected one array a rank, 2 in all, got 3"),
        ([[1, 2], [[1], [1, 2]]], {}, "arrays: rank 1: expected an array, got rows of different lengths"),
        ([[1, 2], [1, 2]], {"op": None}, "op: expected one of sum, prod, max, min, got None"),
        (
            [[1, 2], [1, 2]],
            {"op": ["sum"]},
            "op: expected one of sum, prod, max, min, got ['sum']",
        ),
    ],
)
def test_what_is_no_row_of_arrays_is_refused(arrays: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        execute(algorithms.ring_all_reduce(2), arrays, **options)
    assert str(caught.value) == message


def test_arrays_may_come_one_by_one() -> None:
    results = execute(algorithms.ring_all_reduce(2), (np.full(2, rank) for rank in (1, 2)))  # type: ignore[arg-type]
    assert [result.tolist() for result in results] == [[3, 3], [3, 3]]


@pytest.mark.parametrize("call", [check, lambda schedule: execute(schedule, [])])
def test_what_is_no_schedule_is_refused(call: Any) -> None:
    with pytest.raises(ScheduleError, match=r"^schedule: expected a Schedule, got NoneType$"):
        call(None)
