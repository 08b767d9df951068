"""Mistakes that other libraries shipped: what data ends where, and how much of it moves.

Each test is named after the mistake and says where it was made; it would fail if collsim made it too. Those about who
waits for whom and how long it takes are in tests/test_known_mistakes_in_time.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collsim import Collective, Schedule, ScheduleBuilder, algorithms, check, execute, simulate, topology
from collsim.errors import AlgorithmError, InputError, ProofError, ScheduleError
from tests.answers import answer, block_bounds, inputs_for, run_both_ways
from tests.strategies import make

REDUCE_SCATTERS = algorithms.available()["reduce_scatter"]
ALL = [(operation, name) for operation, names in algorithms.available().items() for name in names]


def accepted(operation: str, name: str, *ranks: int) -> Iterator[Schedule]:
    """The schedules of an algorithm for those of some numbers of ranks that it takes."""
    for n in ranks:
        try:
            yield algorithms.build(operation, name, n)
        except AlgorithmError:
            continue


def fitting(schedule: Schedule, elements: int) -> int:
    """A number of elements near the one given that the schedule can move."""
    if schedule.collective.operation == "all_to_all":
        return elements - elements % schedule.ranks
    try:
        execute(schedule, [np.zeros(n, int) for n in _given(schedule, elements)])
    except ScheduleError:
        return schedule.chunks * max(1, elements // schedule.chunks)
    return elements


def _given(schedule: Schedule, elements: int) -> list[int]:
    if schedule.collective.operation in ("all_gather", "gather"):
        return [high - low for low, high in block_bounds(elements, schedule.ranks, schedule.chunks)]
    return [elements] * schedule.ranks


# 1


@pytest.mark.parametrize("ranks", [2, 3, 5, 6, 7, 11, 13])
def test_receive_size_of_a_truncated_subtree(ranks: int) -> None:
    """open-mpi/ompi 7410 and 7523, pmodels/mpich 5503: a wrong or negative count where a subtree is cut short.

    All roots, counts that the ranks do not divide, and counts below the number of ranks.
    """
    pairs = [("broadcast", "scatter_all_gather"), ("scatter", "binomial_tree"), ("gather", "binomial_tree"),
             ("reduce", "reduce_scatter_gather")]  # fmt: skip
    for operation, name in pairs:
        for root in range(ranks):
            schedule = algorithms.build(operation, name, ranks, root)
            assert check(schedule).complete
            for elements in (1, ranks - 1, 2 * ranks + 1):
                run_both_ways(schedule, elements, seed=root)
    # no rank receives more than the message, whatever the tree looks like
    schedule = algorithms.build("scatter", "binomial_tree", ranks, ranks - 1)
    t = schedule.expand()
    received = np.bincount(t.dst, weights=np.diff(t.ptr), minlength=ranks)
    assert received[ranks - 1] == 0
    assert received.max() <= 2 ** ((ranks - 1).bit_length() - 1)


# 2


def test_xor_butterfly_of_another_width_than_a_power_of_two() -> None:
    """tile-ai/tilelang 2611: partners beyond the end are left out, and 1 + ... + 48 is 528 instead of 1176."""
    b = ScheduleBuilder(Collective("all_reduce", 48), 1)
    ranks = np.arange(48)
    for step in range(6):
        there = ranks ^ (1 << step)
        b.reduce(ranks[there < 48], there[there < 48], step=step)
    unfolded = b.build()
    assert execute(unfolded, [np.array([rank + 1]) for rank in range(48)])[31] == 528
    with pytest.raises(ProofError, match=r"contributions of ranks .* are missing"):
        check(unfolded)
    for name in ("recursive_doubling", "halving_doubling", "circulant", "swing", "bine"):
        schedule = algorithms.build("all_reduce", name, 48)
        ones = [np.full(schedule.chunks, rank + 1) for rank in range(48)]
        assert {int(x) for result in execute(schedule, ones) if result is not None for x in result} == {1176}
    for operation, name in (("all_gather", "recursive_doubling"), ("reduce_scatter", "halving_doubling"),
                            ("all_to_all", "pairwise_xor")):  # fmt: skip
        with pytest.raises(AlgorithmError, match="power of two, got 48"):
            algorithms.build(operation, name, 48)


# 3


def test_operators_that_do_not_commute_are_not_taken() -> None:
    """open-mpi/ompi 8010, 8019, 8021, 5151, 1754: halving and rings change the order of the operands.

    collsim takes only operators that commute, and the order in which it rounds is that of the schedule.
    """
    schedule = algorithms.ring_all_reduce(2)
    for op in ("matmul", "subtract", "first", np.subtract, None):
        with pytest.raises(InputError, match=r"^op: expected one of sum, prod, max, min, got "):
            execute(schedule, [np.ones(2), np.ones(2)], op=op)  # type: ignore[arg-type]
    rng = np.random.default_rng(3)
    ranks = 5
    arrays = [rng.standard_normal(ranks).astype(np.float32) for _ in range(ranks)]
    ring = execute(algorithms.ring_all_reduce(ranks), arrays)[0]
    in_order = execute(algorithms.one_shot_all_reduce(ranks), arrays)[0]
    assert ring is not None
    for chunk in range(ranks):  # chunk c starts on its way at rank c + 1, and that is the order of its sum
        total = arrays[(chunk + 1) % ranks][chunk]
        for hop in range(2, ranks + 1):
            total = arrays[(chunk + hop) % ranks][chunk] + total
        assert ring[chunk] == total
    np.testing.assert_array_equal(in_order, np.add.reduce(arrays))


# 4


@pytest.mark.parametrize(("operation", "name"), ALL)
def test_in_place(operation: str, name: str) -> None:
    """open-mpi/ompi 9385, 9482 and 9648, microsoft/ark 253, LLNL/Aluminum 22: right at N = 2, wrong in place from 3 on.

    In an all_gather and a gather in place a rank's block lies at its offset in the whole buffer, amid garbage.
    """
    for schedule in accepted(operation, name, 2, 3, 4):
        elements = fitting(schedule, 4 * schedule.ranks + 3)
        whole = inputs_for(schedule, elements)
        expected = answer(schedule, [array.copy() for array in whole])
        results = execute(schedule, whole, in_place=True)
        for result, right in zip(results, expected, strict=True):
            if right is not None:
                np.testing.assert_array_equal(result, right)


# 5


@pytest.mark.parametrize(("operation", "name"), ALL)
def test_out_of_place_the_send_buffer_is_not_written(operation: str, name: str) -> None:
    """openucx/ucc 1288 (a ring that accumulates into the source), E3SM 3106 (an input that a library corrupted)."""
    for schedule in accepted(operation, name, 4):
        given = [np.arange(1, n + 1) * (rank + 1) for rank, n in enumerate(_given(schedule, fitting(schedule, 32)))]
        for array in given:
            array.setflags(write=False)  # a write would raise
        results = execute(schedule, given)
        for rank, array in enumerate(given):
            assert array.tolist() == [(rank + 1) * (i + 1) for i in range(len(array))]
        assert not any(np.shares_memory(a, b) for a in results if a is not None for b in given)


def test_a_schedule_that_writes_its_input_is_refused() -> None:
    """openucx/ucc 1288 again, as a schedule: with in_place=False the input is read only."""
    b = ScheduleBuilder(Collective("reduce_scatter", 2), 2, in_place=False)
    b.reduce([0, 1], [1, 0], [1, 0], src_buffer="input", dst_buffer="input")
    with pytest.raises(ScheduleError, match="the input is read only when input and output are not the same"):
        b.build()


# 6


@pytest.mark.parametrize(("operation", "name"), ALL)
def test_fewer_elements_than_ranks_and_a_single_rank(operation: str, name: str) -> None:
    """ROCm/rocm-systems 3213 (no segment), open-mpi/ompi 3451 and 5644 (count below 2^l), Xilinx/ACCL 58 (one rank)."""
    for schedule in accepted(operation, name, 1, 7, 8):
        for elements in (0, 1, schedule.ranks - 1):
            run_both_ways(schedule, fitting(schedule, elements))
    machine = topology.switch(8, bandwidth="1GB/s", latency="1us")
    for schedule in accepted(operation, name, 8):
        if schedule.places or schedule.paths:
            continue
        for size in (0, schedule.chunks * (operation == "all_to_all") or 1):
            times = {simulate(schedule, machine, size, engine=engine, check=False).time_ps
                     for engine in ("reference", "compiled")}  # fmt: skip
            assert len(times) == 1  # empty messages cost their latency, in both engines
            assert min(times) >= 2_000_000


# 7


@pytest.mark.parametrize("name", ["hierarchical", "leader", "rail", "blueconnect"])
def test_padding_of_a_hierarchical_all_reduce(name: str) -> None:
    """horovod/horovod 411: 8 elements, 6 ranks a node, and a padded write beyond the end."""
    parameters: dict[str, Any] = {"levels": (6, 2)} if name == "blueconnect" else {"nodes": 2}
    schedule = algorithms.build("all_reduce", name, 12, **parameters)
    for elements in (8, 6, 5, 1, 13):
        sizes, offsets = schedule.elements(elements), schedule.offsets(elements)
        assert int(sizes.sum()) == elements
        assert int((offsets + sizes).max()) == elements
        guarded = [np.full(elements + 2, -7) for _ in range(12)]  # a guard on each side
        for array in guarded:
            array[1:-1] = 1
        execute(schedule, [array[1:-1] for array in guarded], in_place=True)
        assert all(array.tolist() == [-7, *[12] * elements, -7] for array in guarded)


def test_elements_are_not_bytes() -> None:
    """horovod/horovod 1604: a count of elements taken for one of bytes."""
    machine = topology.ring(4, bandwidth="1GB/s", latency="1us")
    schedule = algorithms.ring_all_reduce(4)
    for dtype, element in (("uint8", 1), ("half", 2), ("float", 4), ("double", 8)):
        result = simulate(schedule, machine, 8 * 6, dtype=dtype)  # 48, 24, 12 and 6 elements
        assert all(bytes_ % element == 0 for bytes_ in result.program.bytes.tolist())
        whole = 48 // element * element
        assert sum(result.bytes_sent_per_rank) == 2 * 3 * whole
        sizes = schedule.elements(48 // element) * element
        assert sorted(set(result.program.bytes.tolist())) == sorted(set(sizes.tolist()))
    # what is no whole element is left out, not rounded up
    assert sum(simulate(schedule, machine, 47, dtype="double").bytes_sent_per_rank) == 2 * 3 * 40


# 8


@pytest.mark.parametrize("slices", [1, 2, 3, 8])
@pytest.mark.parametrize("channels", [1, 2])
def test_segments_do_not_change_the_volume(slices: int, channels: int) -> None:
    """pytorch/gloo 192 and 169: a loop over two segments where there were more; right data, up to twice the bytes."""
    machine = topology.ring(4, bandwidth="1GB/s", latency="1us")
    size = 4 * 8 * 2 * 3 * 100
    for operation, times in (("all_reduce", 2), ("reduce_scatter", 1), ("all_gather", 1)):
        schedule = algorithms.build(operation, "ring", 4, slices=slices, channels=channels)
        assert simulate(schedule, machine, size).bytes_sent_per_rank.tolist() == [times * 3 * size // 4] * 4


def test_bytes_that_nobody_needs_are_found_though_the_data_is_right() -> None:
    """pytorch/gloo 192 again, as a schedule: each block is sent twice. Only the proof of use and the volume tell."""
    right = make("all_gather", 2, 2, "0 -> 1 0 & 1 -> 0 1")
    twice = make("all_gather", 2, 2, "0 -> 1 0 & 1 -> 0 1; 1 -> 0 0 & 0 -> 1 1")
    for schedule in (right, twice):
        run_both_ways(schedule, 6)
    assert not check(right).unused
    assert simulate(right, topology.ring(2), 6).bytes_sent_per_rank.tolist() == [3, 3]
    assert simulate(twice, topology.ring(2), 6).bytes_sent_per_rank.tolist() == [6, 6]
    dead = make("all_gather", 2, 2, "0 -> 1 0 > s0 & 0 -> 1 0 & 1 -> 0 1", head="scratch=1")
    assert check(dead).unused == ("nobody uses what step 0, 0 -> 1 moves",)


# 9


def test_integers_of_32_bits_do_not_overflow() -> None:
    """open-mpi/ompi 10093-10095, 9616, 9942 and 14256: count x extent, and sums of counts, beyond 2^31.

    NumPy's small integers wrap round: they must not get in by a parameter, nor be used for bytes.
    """
    machine = topology.ring(4, bandwidth="100GB/s", latency="1us")
    size = 2**40
    for engine in ("reference", "compiled"):
        result = simulate(algorithms.ring_all_reduce(np.int32(4)), machine, size, dtype="double", engine=engine)
        assert result.bytes_sent_per_rank.tolist() == [2 * 3 * size // 4] * 4
        assert result.time == pytest.approx(6 * (1e-6 + size / 4 / 100e9), rel=1e-12)
        assert result.link_bytes.tolist() == [2 * 3 * size // 4] * 4
    schedule = algorithms.build("all_to_all", "direct", np.int16(64))
    sizes, offsets = schedule.elements(2**42), schedule.offsets(2**42)
    assert (int(sizes.sum()), int(offsets.max())) == (2**42, 2**42 - 2**36)
    for kind in (np.int8, np.uint8, np.int16):
        assert algorithms.build("all_gather", "bruck", kind(100)) == algorithms.build("all_gather", "bruck", 100)


def test_masks_of_many_ranks_do_not_overflow() -> None:
    """open-mpi/ompi 14429: 1 << k for large N."""
    ranks = 70_001
    schedule = algorithms.binomial_tree_broadcast(ranks)
    t = schedule.expand()
    assert sorted(t.dst.tolist()) == list(range(1, ranks))
    assert schedule.steps == 17
    assert algorithms.build("barrier", "dissemination", 70_001).steps == 17


# 10


@pytest.mark.parametrize(("operation", "name"), ALL)
def test_an_early_return_still_copies(operation: str, name: str) -> None:
    """pmodels/mpich 6374: one rank, nothing to send, and the output out of place is left as it was."""
    for schedule in accepted(operation, name, 1):
        given = np.arange(1, 6)
        (result,) = execute(schedule, [given])
        assert result is not None
        assert result.tolist() == [1, 2, 3, 4, 5]
        assert not np.shares_memory(result, given)


def test_a_root_finds_its_own_block_at_its_displacement() -> None:
    """pmodels/mpich 6374: the displacement was forgotten on the short path, where nobody sends."""
    for name in ("binomial_tree", "linear"):
        for root in range(3):
            gathered = execute(
                algorithms.build("gather", name, 3, root), [np.array([10]), np.array([20]), np.array([30])]
            )
            assert [None if a is None else a.tolist() for a in gathered] == [
                [10, 20, 30] if rank == root else None for rank in range(3)
            ]
            parts = execute(algorithms.build("scatter", name, 3, root), [np.array([10, 20, 30])] * 3)
            assert [a.tolist() for a in parts if a is not None] == [[10], [20], [30]]


# 19


@pytest.mark.parametrize("name", REDUCE_SCATTERS)
def test_owners_of_a_reduce_scatter(name: str) -> None:
    """Bit-reversed owners after distance doubling, rings that end one rank late: right in an all_reduce, wrong here."""
    for schedule in accepted("reduce_scatter", name, 4, 6, 7, 8, 16):
        ranks = schedule.ranks
        block = np.repeat(np.arange(ranks), schedule.chunks // ranks)
        results = execute(schedule, [block * 1000 + rank for rank in range(ranks)])
        total = ranks * (ranks - 1) // 2
        assert [set(result.tolist()) for result in results if result is not None] == [
            {ranks * 1000 * rank + total} for rank in range(ranks)
        ]


def test_the_first_half_of_an_all_reduce_is_no_reduce_scatter() -> None:
    """The same mistakes as schedules: the proof refuses them, though the all_reduce is right."""
    ranks = 8
    r = np.arange(ranks)
    b = ScheduleBuilder(Collective("reduce_scatter", ranks), ranks)
    with b.repeat(ranks - 1, shift=-1):
        b.reduce(r, (r + 1) % ranks, r)  # offset 0: rank r ends with block r + 1
    with pytest.raises(ProofError, match=r"^rank 0, chunk 0: contributions? of ranks? .* missing"):
        check(b.build())
    b = ScheduleBuilder(Collective("reduce_scatter", ranks), ranks)
    width = ranks
    for step in range(3):  # distance doubling, the lower half of the window to the lower rank: owners are bit-reversed
        width //= 2
        base = sum(((r >> i & 1) * (ranks >> (i + 1)) for i in range(step)), np.zeros(ranks, dtype=int))
        there = r ^ (1 << step)
        b.reduce(r, there, base + (there >> step & 1) * width, count=width, step=step)
    reversed_ = b.build()
    with pytest.raises(ProofError, match=r"^rank 1, chunk 1: contributions of ranks .* are missing"):
        check(reversed_)
    owners = tuple(int(f"{rank:03b}"[::-1], 2) for rank in range(ranks))
    assert check(replace(reversed_, order=owners)).complete


# 20


def test_odd_numbers_of_ranks() -> None:
    """Neighbour exchange and Swing for odd N: refused, or right."""
    for ranks in (3, 5, 9):
        for operation in ("all_gather", "reduce_scatter", "all_reduce"):
            with pytest.raises(AlgorithmError, match=f"takes an even number of ranks, got {ranks}; use ring"):
                algorithms.build(operation, "neighbour_exchange", ranks)
            schedule = algorithms.build(operation, "swing", ranks)
            assert check(schedule).complete
            run_both_ways(schedule, 3 * ranks)
        with pytest.raises(AlgorithmError, match="swing takes dimensions of even size"):
            algorithms.build("all_reduce", "swing", 2 * ranks, dims=(2, ranks))


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_the_last_rotation_of_bruck(ranks: int) -> None:
    """The block of rank r - j ends in slot j, out[(r - j) % N]; out[(r + j) % N] is the usual slip."""
    for radix in (2, 3):
        results = execute(
            algorithms.build("all_to_all", "bruck", ranks, radix=radix),
            [np.arange(ranks) + 100 * rank for rank in range(ranks)],
        )
        for rank, result in enumerate(results):
            assert result is not None
            assert result.tolist() == [100 * other + rank for other in range(ranks)]
        gathered = execute(
            algorithms.build("all_gather", "bruck", ranks, radix=radix), [np.array([r]) for r in range(ranks)]
        )
        assert all(a is not None and a.tolist() == list(range(ranks)) for a in gathered)


def test_a_rotation_the_wrong_way_is_refused() -> None:
    """The slip itself, for three ranks; for two both ways are the same."""
    right = make("all_to_all", 2, 2, "0 -> 1 1 > s0 & 1 -> 0 0 > s0; 0 -> 0 s0 > 1 & 1 -> 1 s0 > 0", head="scratch=1")
    assert check(right).complete
    rows = [f"{r} -> {(r + j) % 3} {(r + j) % 3} > s{j}" for r in range(3) for j in (1, 2)]
    for sign in (-1, 1):
        last = [f"{r} -> {r} s{j} > {(r + sign * j) % 3}" for r in range(3) for j in (1, 2)]
        schedule = make("all_to_all", 3, 3, "&".join(rows) + ";" + "&".join(last), head="scratch=3")
        if sign < 0:
            assert check(schedule).complete
        else:
            with pytest.raises(
                ProofError, match=r"^rank 0, chunk 1: expected chunk 0 of rank 1, got chunk 0 of rank 2"
            ):
                check(schedule)
