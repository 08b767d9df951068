"""Mistakes that other libraries shipped: who waits for whom, and what a time or a bandwidth means.

Each test is named after the mistake and says where it was made. Those about data are in tests/test_known_mistakes.py.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from collsim import Collective, Schedule, ScheduleBuilder, algorithms, check, execute, run, simulate, topology, window
from collsim.engine.loops import loops_of
from collsim.engine.lowering.lower import lower
from collsim.engine.lowering.roll import roll
from collsim.engine.reference import run_reference
from collsim.errors import AlgorithmError, DeadlockError, InputError, ProofError
from collsim.schedule.dependencies import infer
from collsim.schedule.model import SCRATCH, Edge
from tests.answers import run_both_ways

ENGINES = ("reference", "compiled")
ALL_REDUCES = algorithms.available()["all_reduce"]


def built(operation: str, name: str, ranks: int, **parameters: Any) -> Schedule | None:
    try:
        return algorithms.build(operation, name, ranks, **parameters)
    except AlgorithmError:
        return None


# 11


@pytest.mark.parametrize("dims", [(2,), (1, 2), (2, 2), (2, 1, 3), (1, 1), (2, 2, 2)])
def test_torus_dimensions_of_one_and_two(dims: tuple[int, ...]) -> None:
    """pmodels/mpich 2194: both neighbours are the same rank, and the slots of the two directions change places.

    CliMA/Oceananigans 5843: two ranks that are each other's neighbour on both sides deadlock.
    """
    machine = topology.torus(dims, bandwidth="1GB/s", latency="1us")
    for ports in ("one", "all"):
        schedule = algorithms.build("all_reduce", "torus", machine.n_ranks, dims=dims, ports=ports)
        assert check(schedule).complete
        run_both_ways(schedule, 7)
        times = {simulate(schedule, machine, 9600, engine=engine).time_ps for engine in ENGINES}
        assert len(times) == 1
    halves = simulate(schedule, machine, 9600)
    if machine.n_links:  # all ports: both of the parallel links between two neighbours carry the same
        between: dict[tuple[int, int], set[int]] = {}
        for link in range(machine.n_links):
            ends = (int(machine.link_src[link]), int(machine.link_dst[link]))
            between.setdefault(ends, set()).add(int(halves.link_bytes[link]))
        assert all(len(loads) == 1 and 0 not in loads for loads in between.values())


# 12


def calls_through_scratch(ranks: int, calls: int, sets: int) -> Schedule:
    """All_reduces one after the other (of one chunk each), all vectors through scratch; no barrier at the end of any.

    A rank begins the next one when it has done its own additions, as a kernel does. ``sets``: of scratch, in turn.
    """
    b = ScheduleBuilder(Collective("all_reduce", ranks), calls, scratch=sets * ranks)
    src, dst = (a.ravel() for a in np.nonzero(~np.eye(ranks, dtype=bool)))
    for call in range(calls):
        slot = call % sets * ranks + src
        b.copy(src, dst, call, dst_chunk=slot, dst_buffer="scratch", step=2 * call)
        b.reduce(dst, dst, slot, dst_chunk=call, src_buffer="scratch", step=2 * call + 1)
    n = len(src)
    edges = [
        Edge(0, 2 * n * (call + 1) + later, 0, 2 * n * call + n + earlier)
        for call in range(calls - 1)
        for later in range(n)
        for earlier in range(n)
        if src[later] == dst[earlier]
    ]
    return b.build(edges)


def test_a_missing_barrier_at_the_end_of_an_all_pairs_kernel() -> None:
    """pytorch/pytorch 137257, vllm-project/vllm 2760, 8404 and 57059: the next call overwrites what is being read.

    Two calls written one after the other as one schedule: nothing orders their writes into the same scratch.
    """
    with pytest.raises(ProofError, match=r"nothing orders two writes: step 0, \d -> \d and step 2, \d -> \d"):
        check(calls_through_scratch(3, calls=2, sets=1))


def test_two_sets_that_alternate_are_enough() -> None:
    """vllm-project/vllm 8558 and apache/tvm 16797: one set of flags is not enough; two in turn are."""
    for calls in (2, 3, 5):
        schedule = calls_through_scratch(3, calls, sets=2)
        assert check(schedule).complete
        run_both_ways(schedule, 2 * calls)
    with pytest.raises(ProofError, match="nothing orders two writes"):
        check(replace(calls_through_scratch(3, 3, sets=2), edges=()))


def test_without_receive_buffers_a_write_waits_for_the_reads_before_it() -> None:
    """pytorch/pytorch 137257 again: with zero_copy a write into scratch waits for all earlier reads of it."""
    schedule = calls_through_scratch(3, calls=3, sets=2)
    t = schedule.expand()
    ptr, pred = infer(schedule, t, zero_copy=True)
    waits = [set(pred[a:b].tolist()) for a, b in pairwise(ptr.tolist())]
    place = {i: (int(t.dst[i]), int(t.dst_chunks[t.ptr[i]])) for i in range(len(t)) if t.dst_buffer[i] == SCRATCH}
    reads = {(int(t.src[i]), int(t.src_chunks[t.ptr[i]])): i for i in range(len(t) // 3) if t.src_buffer[i] == SCRATCH}
    third = [i for i in place if t.step[i] == 4]
    assert third
    assert all(reads[place[i]] in waits[i] for i in third)
    machine = topology.switch(3, bandwidth="1GB/s", latency="1us", reduce_bandwidth="10MB/s")
    times = [simulate(schedule, machine, 3000, zero_copy=flag).time_ps for flag in (False, True)]
    assert times[0] <= times[1]


# 13


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_blocking_send_before_receive(ranks: int) -> None:
    """NVIDIA/nccl 479, 584, 784, 1233 and 2057: everybody sends, then receives, and no send ends without its receive.

    Data alone cannot deadlock here; waiting that is written down can, and then both the proof and the engines say so.
    """
    schedule = algorithms.ring_all_gather(ranks)
    (phase,) = schedule.phases
    # rank r's send ends only when its receiver has got round to receiving: after the receiver's own send
    blocked = replace(schedule, edges=tuple(Edge(0, r, 0, (r + 1) % ranks) for r in range(ranks)))
    with pytest.raises(ProofError, match=r"^cycle: step 0, \d -> \d waits for step 0, \d -> \d waits for"):
        check(blocked)
    machine = topology.ring(ranks)
    for engine in ENGINES:
        with pytest.raises(DeadlockError, match="transfers wait for each other"):
            simulate(blocked, machine, 100 * ranks, engine=engine, check=False)
        assert simulate(schedule, machine, 100 * ranks, engine=engine).time > 0  # posted together, as in a group
    assert len(phase.block) == ranks


# 14


def test_counts_that_differ_between_ranks() -> None:
    """NVIDIA/nccl 1417 and 531: a hang, or tails that are silently wrong. Here they are refused, by rank."""
    for operation, name in (("all_reduce", "ring"), ("broadcast", "tree"), ("reduce_scatter", "ring"),
                            ("all_to_all", "direct")):  # fmt: skip
        schedule = algorithms.build(operation, name, 3)
        for in_place in (False, True):
            with pytest.raises(InputError, match=r"^arrays: rank 2: expected 6 elements as rank 0 has, got 9"):
                execute(schedule, [np.ones(6), np.ones(6), np.ones(9)], in_place=in_place)
    with pytest.raises(InputError, match=r"^arrays: rank 1: expected 2 of the 6 elements as its block, got 3"):
        execute(algorithms.ring_all_gather(3), [np.ones(2), np.ones(3), np.ones(1)])
    with pytest.raises(InputError, match=r"^arrays: expected one dtype, got float32, float64"):
        execute(algorithms.ring_all_reduce(2), [np.ones(2), np.ones(2, dtype=np.float32)])
    with pytest.raises(InputError, match=r"^arrays: expected one array a rank, 3 in all, got 2"):
        execute(algorithms.ring_all_reduce(3), [np.ones(2), np.ones(2)])
    with pytest.raises(InputError, match=r"^ranks: the schedule has 3, topology 'ring' has 4"):
        simulate(algorithms.ring_all_reduce(3), topology.ring(4), 12)


# 15


@pytest.mark.parametrize("name", ALL_REDUCES)
def test_all_ranks_have_the_same_bits(name: str) -> None:
    """open-mpi/ompi 12258: each rank adds up in an order of its own, and replicas drift apart.

    And the error is no larger than the depth of the sum allows (NVIDIA/nccl 157, 855, 1055: least precise in a ring).
    """
    rng = np.random.default_rng(15)
    for ranks in (7, 8):
        schedule = built("all_reduce", name, ranks)
        if schedule is None:
            continue
        arrays = [rng.standard_normal(schedule.chunks * 3).astype(np.float32) for _ in range(ranks)]
        results = [result for result in execute(schedule, arrays) if result is not None]
        assert len({result.tobytes() for result in results}) == 1
        again = execute(schedule, arrays)
        assert all(np.array_equal(a, b) for a, b in zip(results, again, strict=True))
        exact = np.sum([array.astype(np.float64) for array in arrays], axis=0)
        most = (ranks - 1) * np.finfo(np.float32).eps / 2 * np.sum(np.abs(arrays), axis=0, dtype=np.float64)
        assert (np.abs(results[0] - exact) <= most * (1 + 1e-6)).all()


def test_bits_differ_between_algorithms_and_channels() -> None:
    """NVIDIA/nccl 157 and 1055, ROCm/rocm-systems 11661: results depend on algorithm, size and channels. They must."""
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(720).astype(np.float32) for _ in range(8)]
    found = {execute(algorithms.build("all_reduce", name, 8, **parameters), arrays)[0].tobytes()  # type: ignore[union-attr]
             for name, parameters in (("ring", {}), ("ring", {"channels": 3}), ("recursive_doubling", {}))}  # fmt: skip
    assert len(found) == 3
    # with few bits a ring, which adds one after the other, loses more than a tree
    ones = [np.full(64, 1 + rank / 64, dtype=np.float16) for rank in range(64)]
    exact = sum(float(array[0]) for array in ones)
    errors = [np.abs(execute(algorithms.build("all_reduce", name, 64), ones)[0] - exact).max()  # type: ignore[operator]
              for name in ("ring", "recursive_doubling")]  # fmt: skip
    assert errors[0] > errors[1]


# 16


def fused_ring(ranks: int, depth: int) -> Schedule:
    """Ring all_gather whose step is one operation (receive, copy, send) over a queue of ``depth`` messages.

    A message can be sent when the receiver has passed on the one that was sent ``depth`` messages before.
    """
    schedule = algorithms.ring_all_gather(ranks)
    return replace(schedule, edges=tuple(Edge(0, r, 0, (r + 1) % ranks, distance=depth - 1) for r in range(ranks)))


def test_queues_of_finite_depth_stall() -> None:
    """ROCm/rccl 1600: what a pipeline assumes about the depth of its queues. A fused ring needs two, not one."""
    for ranks in (3, 4, 5):
        machine = topology.ring(ranks, bandwidth="1GB/s", latency="10us")
        with pytest.raises(ProofError, match=r"^cycle: "):
            check(fused_ring(ranks, 1))
        for engine in ENGINES:
            with pytest.raises(DeadlockError):
                simulate(fused_ring(ranks, 1), machine, 1000 * ranks, check=False, engine=engine)
        free = simulate(algorithms.ring_all_gather(ranks), machine, 1000 * ranks).time_ps
        times = [simulate(fused_ring(ranks, depth), machine, 1000 * ranks).time_ps for depth in (2, 3, ranks)]
        assert times == sorted(times, reverse=True)
        assert times[-1] == free


def test_credits_by_window() -> None:
    """ROCm/rccl 1600 again: few messages in flight cost time, and none of it is lost when there are enough."""
    schedule = algorithms.ring_broadcast(4, slices=12)
    machine = topology.ring(4, bandwidth="1GB/s", latency="10us")
    for engine in ENGINES:
        free = simulate(schedule, machine, 12_000, engine=engine).time_ps
        times = [simulate(window(schedule, n), machine, 12_000, engine=engine).time_ps for n in (1, 2, 4, 8, 12)]
        assert times == sorted(times, reverse=True)
        assert times[0] > 2 * free
        assert times[-1] == free
    assert check(window(schedule, 1)).complete


# 17


def test_mistakes_that_need_a_second_iteration_of_a_loop() -> None:
    """microsoft/msccl 25, 26, 27 and 38, ROCm/rccl 821: right for small sizes, wrong as soon as a loop turns twice."""
    for times in (1, 2, 5):
        for shift in (1, 0):  # 0: a counter that does not go on
            b = ScheduleBuilder(Collective("broadcast", 3), times)
            with b.repeat(times, shift=shift):
                b.copy(0, 1)
                b.copy(1, 2, step=1)
            if shift or times == 1:
                assert check(b.build()).complete
                continue
            with pytest.raises(ProofError, match="rank 1, chunk 1: "):
                check(b.build())


@pytest.mark.parametrize("name", ["ring", "tree", "double_binary_tree"])
def test_dependencies_reach_over_iterations(name: str) -> None:
    """microsoft/msccl 38: an order that held by chance in one iteration. Repeats kept and written out are the same."""
    machine = topology.switch(5, bandwidth="1GB/s", latency="3us", send_overhead="1us", reduce_bandwidth="2GB/s")
    for slices in (1, 2, 7):
        schedule = window(algorithms.build("all_reduce", name, 5, slices=slices), 2) if name == "ring" else (
            algorithms.build("all_reduce", name, 5, slices=slices)
        )  # fmt: skip
        size = schedule.chunks * 1000
        written = lower(schedule, machine, size)
        kept = roll(schedule, machine, size).flat()
        expected = run_reference(written, "cut_through").end.tolist()
        assert run_reference(kept, "cut_through").end.tolist() == expected
        assert run_reference(loops_of(written).flat(), "cut_through").end.tolist() == expected
        assert simulate(schedule, machine, size, engine="compiled").times.end.tolist() == expected


# 18


def nvls(ranks: int, slices: int = 1) -> Schedule:
    """The switch adds up shard i for rank i, which stores it by multicast; slice by slice, two of them under way."""
    b = ScheduleBuilder(Collective("all_reduce", ranks), ranks * slices, scratch=2 * ranks * slices, places=["sw0"])
    r, chunks = np.arange(ranks), ranks * slices
    src, shard = (a.ravel() for a in np.indices((ranks, ranks)))
    for part in range(slices):
        mine, theirs = r * slices + part, shard * slices + part
        b.reduce(src, ranks, theirs, dst_buffer="scratch", step=4 * part)
        b.copy(ranks, r, mine, src_buffer="scratch", step=4 * part + 1)
        b.copy(r, ranks, mine, dst_chunk=chunks + mine, dst_buffer="scratch", step=4 * part + 2)
        b.copy(ranks, src, chunks + theirs, dst_chunk=theirs, src_buffer="scratch", step=4 * part + 3)
    per = ranks * ranks * 2 + 2 * ranks
    edges = [  # a rank adds to slice k + 2 when it has sent the sum of slice k
        Edge(0, per * (part + 2) + row, 0, per * part + ranks * ranks + ranks + int(src[row]), at="issued")
        for part in range(slices - 2)
        for row in range(ranks * ranks)
    ]
    return b.build(edges)


@pytest.mark.parametrize("ranks", [4, 8])
def test_bus_bandwidth_above_the_rate_of_a_link(ranks: int) -> None:
    """NVIDIA/nccl-tests 212, 153, 366: taken for an error. With a switch that adds up it may be 2 (N-1)/(N+1) of it.

    A ring stays below the rate of its links, and nothing is better than the bound.
    """
    slices = 64
    machine = topology.switch(ranks, bandwidth="1GB/s", latency=0, reduces=True, multicasts=True)
    size = ranks * slices * 10_000
    schedule = nvls(ranks, slices)
    assert check(schedule).complete
    result = simulate(schedule, machine, size)
    assert set(result.link_bytes.tolist()) == {size * (ranks + 1) // ranks}
    ideal = (ranks + 1) / ranks * size / 1e9
    assert ideal <= result.time < 1.1 * ideal
    assert 1e9 < result.busbw <= 2 * (ranks - 1) / (ranks + 1) * 1e9
    assert result.efficiency <= 1
    for name in ALL_REDUCES:
        if name in ("ring", "bidirectional_ring"):
            other = run("all_reduce", machine, size, algorithm=name)
            assert other.busbw <= 1e9 * (1 + 1e-9)
            assert other.efficiency <= 1


def test_ring_order_is_that_of_the_machine_not_of_chance() -> None:
    """Rings over nodes in turn and rings over ranks at random differ by the load on the uplinks."""
    machine = topology.fat_tree(8, 4, bandwidth="10GB/s", latency="1us", oversubscription=4)
    size = 8 * 10**6
    straight = simulate(algorithms.ring_all_reduce(8), machine, size)
    to_and_fro = simulate(algorithms.ring_all_reduce(8, order=[0, 4, 1, 5, 2, 6, 3, 7]), machine, size)
    assert to_and_fro.time > 3.9 * straight.time
    assert run("all_reduce", machine, size).time == straight.time  # by itself collsim takes the order of the machine
