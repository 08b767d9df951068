"""all_to_all: proofs with all parameters, worked tables, known mistakes, and what links must carry."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import collsim.topology as machines
from collsim import Schedule, check
from collsim.algorithms.all_to_all import (
    direct_all_to_all,
    hierarchical_all_to_all,
    nccl_p2p_all_to_all,
    pairwise_all_to_all,
    pairwise_xor_all_to_all,
)
from collsim.algorithms.bruck_all_to_all import bruck_all_to_all
from collsim.engine.lowering.lower import lower
from collsim.engine.program import LINK
from collsim.engine.reference import run_reference
from collsim.errors import AlgorithmError, ProofError
from collsim.schedule import Block, Repeat
from collsim.schedule.model import OUTPUT, SCRATCH, ChunkLists
from tests.answers import run_both_ways
from tests.strategies import naive_rows

CASES: list[tuple[Any, dict[str, Any]]] = [
    (direct_all_to_all, {}),
    (pairwise_all_to_all, {}),
    (pairwise_all_to_all, {"window": 3}),
    (pairwise_all_to_all, {"window": None}),
    (pairwise_xor_all_to_all, {}),
    (nccl_p2p_all_to_all, {}),
    (nccl_p2p_all_to_all, {"window": 2}),
    (hierarchical_all_to_all, {}),
    (hierarchical_all_to_all, {"first": "inter"}),
    (bruck_all_to_all, {}),
    (bruck_all_to_all, {"radix": 3}),
    (bruck_all_to_all, {"radix": 4}),
    (bruck_all_to_all, {"radix": 100}),
]
STRAIGHT = [case for case in CASES if case[0] not in (hierarchical_all_to_all, bruck_all_to_all)]


def takes(function: Any, ranks: int) -> bool:
    return function is not pairwise_xor_all_to_all or ranks & (ranks - 1) == 0


def proven(schedule: Schedule, elements: int) -> None:
    proof = check(schedule)
    assert (proof.complete, proof.unused, proof.warnings) == (True, (), ())
    assert Schedule.from_text(str(schedule)) == schedule
    run_both_ways(schedule, elements)


def messages(schedule: Schedule) -> list[Any]:
    return [row for row in naive_rows(schedule) if row.src != row.dst]


@pytest.mark.parametrize("ranks", [*range(1, 18), 24, 27, 32, 33])
@pytest.mark.parametrize(("function", "parameters"), CASES)
def test_proven_and_executed(function: Any, parameters: dict[str, Any], ranks: int) -> None:
    if takes(function, ranks):
        proven(function(ranks, **parameters), ranks * (ranks % 4))


@pytest.mark.parametrize("nodes", [1, 2, 3, 6, [[0, 3], [5, 1], [2, 4]], [[5, 4, 3], [0, 1, 2]], [[3, 1, 4, 0, 5, 2]]])
def test_nodes_of_any_shape(nodes: Any) -> None:
    for first in ("intra", "inter"):
        proven(hierarchical_all_to_all(6, nodes=nodes, first=first), 12)
    proven(nccl_p2p_all_to_all(6, nodes=nodes), 12)


def test_no_rank_sends_more_than_its_blocks_or_twice_to_one_rank() -> None:
    for function, parameters in STRAIGHT:
        for ranks in (2, 5, 8, 16):
            if takes(function, ranks):
                rows = messages(function(ranks, **parameters))
                assert Counter((row.src, row.dst) for row in rows) == Counter(
                    (a, b) for a in range(ranks) for b in range(ranks) if a != b
                )
                assert all(row.chunks == ((row.dst, row.src),) for row in rows)


@pytest.mark.parametrize("ranks", [2, 5, 8, 16])
def test_in_every_round_each_rank_sends_once_and_receives_once(ranks: int) -> None:
    """What two ranks do with each other is in the same round on both sides: nobody waits for a wrong partner."""
    for function in (pairwise_all_to_all, pairwise_xor_all_to_all, nccl_p2p_all_to_all):
        if not takes(function, ranks):
            continue
        schedule = function(ranks)
        assert schedule.steps == ranks - 1
        rows = messages(schedule)
        for step in range(ranks - 1):
            assert sorted(row.src for row in rows if row.step == step) == list(range(ranks))
            assert sorted(row.dst for row in rows if row.step == step) == list(range(ranks))
    started = [row.dst for row in messages(direct_all_to_all(ranks))[:ranks]]
    assert sorted(started) == list(range(ranks))  # no two ranks start with one receiver


# worked tables


def test_pairwise_of_four() -> None:
    assert str(pairwise_all_to_all(4, window=None)) == (
        "all_to_all ranks=4 chunks=4 in_place=no\n"
        'algorithm pairwise {"window": null}\n'
        "repeat 1\n"
        "  step 0\n"
        "    0 -> 0  i0 > 0\n"
        "    1 -> 1  i1 > 1\n"
        "    2 -> 2  i2 > 2\n"
        "    3 -> 3  i3 > 3\n"
        "    0 -> 1  i1 > 0\n"
        "    1 -> 2  i2 > 1\n"
        "    2 -> 3  i3 > 2\n"
        "    3 -> 0  i0 > 3\n"
        "  step 1\n"
        "    0 -> 2  i2 > 0\n"
        "    1 -> 3  i3 > 1\n"
        "    2 -> 0  i0 > 2\n"
        "    3 -> 1  i1 > 3\n"
        "  step 2\n"
        "    0 -> 3  i3 > 0\n"
        "    1 -> 0  i0 > 1\n"
        "    2 -> 1  i1 > 2\n"
        "    3 -> 2  i2 > 3"
    )


def test_bruck_of_five() -> None:
    rows = messages(bruck_all_to_all(5))
    # at first slot j holds the block for r + j; then it lies at j in each region of the scratch
    moved = {step: {(row.dst - row.src) % 5 for row in rows if row.step == step} for step in range(3)}
    assert moved == {0: {1}, 1: {2}, 2: {4}}
    assert {(row.src, tuple((a - row.src) % 5 for a, _ in row.chunks)) for row in rows if row.step == 0} == {
        (rank, (1, 3)) for rank in range(5)
    }
    assert {(row.src, tuple(a % 5 for a, _ in row.chunks)) for row in rows if row.step == 1} == {
        (rank, (2, 3)) for rank in range(5)
    }
    assert {tuple(a % 5 for a, _ in row.chunks) for row in rows if row.step == 2} == {(4,)}
    assert {((row.dst - b) % 5) for row in rows if row.step == 2 for _, b in row.chunks} == {4}


@pytest.mark.parametrize(("ranks", "steps", "blocks"), [(4, 2, 4), (5, 3, 5), (6, 3, 7), (8, 3, 12)])
def test_rounds_and_blocks_of_bruck(ranks: int, steps: int, blocks: int) -> None:
    schedule = bruck_all_to_all(ranks)
    sent = Counter({rank: 0 for rank in range(ranks)})
    for row in messages(schedule):
        sent[row.src] += len(row.chunks)
    assert (schedule.steps, set(sent.values())) == (steps, {blocks})


@pytest.mark.parametrize("radix", [2, 3, 4, 7])
def test_bruck_sends_a_block_once_for_each_digit_of_its_way(radix: int) -> None:
    for ranks in (2, 9, 16, 39):
        digits, power = 0, 1
        while power < ranks:
            digits += sum(1 for j in range(ranks) if j // power % radix)
            power *= radix
        rows = messages(bruck_all_to_all(ranks, radix=radix))
        assert sum(len(row.chunks) for row in rows) == ranks * digits
        assert max(Counter((row.src, row.step) for row in rows).values()) <= radix - 1


def test_order_of_nccl() -> None:
    def deltas(ranks: int, **parameters: Any) -> list[int]:
        return [row.dst for row in messages(nccl_p2p_all_to_all(ranks, **parameters)) if row.src == 0]

    assert deltas(16) == [1, 3, 6, 10, 15, 5, 12, 4, 13, 7, 2, 14, 11, 9, 8]
    assert deltas(6) == [1, 3, 2, 5, 4]  # 0, 1, 3, 6, 2, 7, 5, 4 without 6 and 7
    assert deltas(8, nodes=2) == [1, 3, 2, 4, 5, 7, 6]


def test_hierarchical_sends_one_message_to_each_node_on_its_rail() -> None:
    n, g = 3, 4
    for first in ("intra", "inter"):
        schedule = hierarchical_all_to_all(n * g, nodes=n, first=first)
        assert schedule.steps == 2
        between = [row for row in messages(schedule) if row.src // g != row.dst // g]
        within = [row for row in messages(schedule) if row.src // g == row.dst // g]
        assert {row.src % g == row.dst % g for row in between} == {True}
        assert set(Counter(row.src for row in between).values()) == {n - 1}
        assert {len(row.chunks) for row in between} == {g}
        assert set(Counter(row.src for row in within).values()) == {g - 1}
        assert {len(row.chunks) for row in within} == {n}


# known mistakes


def test_bruck_rotated_the_wrong_way_is_refused() -> None:
    """The block of r - j ends in slot j; ``out[r + j]`` is the usual slip, which N = 2 does not show."""
    for ranks in (2, 5):
        schedule = bruck_all_to_all(ranks)
        block = schedule.phases[0].block
        assert block.lists is not None
        row = np.repeat(np.arange(len(block)), np.diff(block.lists.offsets))
        there = block.dst[row]
        turned = np.where(block.dst_buffer[row] == OUTPUT, (2 * there - block.lists.dst) % ranks, block.lists.dst)
        wrong = with_lists(schedule, replace(block.lists, dst=turned))
        if ranks == 2:
            assert wrong == schedule
        else:
            with pytest.raises(ProofError, match="rank 0, chunk 1: expected chunk 0 of rank 1, got chunk 0 of rank 4"):
                check(wrong)


def test_one_scratch_for_all_rounds_is_refused() -> None:
    """A message of one round could overtake that of the round before: nothing orders their writes."""
    schedule = bruck_all_to_all(8)
    block = schedule.phases[0].block
    assert block.lists is not None
    row = np.repeat(np.arange(len(block)), np.diff(block.lists.offsets))
    src, dst = (
        np.where(buffer[row] == SCRATCH, chunks % 8, chunks)
        for buffer, chunks in ((block.src_buffer, block.lists.src), (block.dst_buffer, block.lists.dst))
    )
    with pytest.raises(ProofError, match="nothing orders two writes"):
        check(with_lists(schedule, replace(block.lists, src=src, dst=dst)))


def with_lists(schedule: Schedule, lists: ChunkLists) -> Schedule:
    (phase,) = schedule.phases
    block: Block = replace(phase.block, lists=lists)
    return replace(schedule, phases=(Repeat(block),))


def test_xor_of_ranks_that_are_no_power_of_two_is_refused() -> None:
    for ranks in (3, 6, 48):
        with pytest.raises(AlgorithmError) as caught:
            pairwise_xor_all_to_all(ranks)
        assert str(caught.value) == f"ranks: pairwise_xor takes a power of two, got {ranks}; use pairwise"


@pytest.mark.parametrize(
    ("function", "parameters", "message"),
    [
        (bruck_all_to_all, {"radix": 1}, "radix: bruck takes at least 2, got 1"),
        (bruck_all_to_all, {"radix": 2.0}, "radix: expected a whole number of at least 1, got 2.0"),
        (
            pairwise_all_to_all,
            {"window": -1},
            "window: expected a whole number of at least 0 (0 for no pacing)",
        ),
        (hierarchical_all_to_all, {"nodes": 4}, "nodes: expected a divisor of the 6 ranks, got 4"),
        (nccl_p2p_all_to_all, {"nodes": [[0, 1], [2, 3, 4, 5]]}, "nodes: expected equally many ranks in each node"),
    ],
)
def test_refusals(function: Any, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(AlgorithmError) as caught:
        function(6, **parameters)
    assert str(caught.value).startswith(message)


def test_an_unknown_phase_is_refused() -> None:
    with pytest.raises(AlgorithmError, match=r"^first: expected 'intra' or 'inter', got 'outer'; did you mean"):
        hierarchical_all_to_all(4, first="outer")
    with pytest.raises(AlgorithmError, match=r"^first: expected 'intra' or 'inter', got \['inter'\]$"):
        hierarchical_all_to_all(4, first=["inter"])  # type: ignore[arg-type]


def test_inputs_are_never_written() -> None:
    for function, parameters in CASES:
        assert not function(4, **parameters).in_place  # validated: rows that write the input are refused


# pacing


@pytest.mark.parametrize("window", [1, 2, 5, None])
def test_a_window_bounds_what_a_rank_has_under_way(window: int | None) -> None:
    program = lower(pairwise_all_to_all(8, window=window), machines.fully_connected(8, "1GB/s", "1us"), 8000)
    times = run_reference(program, "cut_through")
    remote = program.src != program.dst
    for side in (program.src, program.dst):
        mine = remote & (side == 3)
        begin, end = times.start[mine], times.end[mine]
        under_way = [int(((begin <= at) & (at < end)).sum()) for at in begin]
        assert max(under_way) == (window or 7)


def test_nobody_writes_edges_where_nothing_is_paced() -> None:
    assert not direct_all_to_all(9).edges
    assert not pairwise_all_to_all(9, window=8).edges
    assert len(pairwise_all_to_all(9).edges) == 2 * 9 * 7


# what links must carry


def link_bytes(schedule: Schedule, topology: Any, size: int) -> tuple[Any, int]:
    """Bytes over each link that is used, and the time in picoseconds."""
    program = lower(schedule, topology, size)
    visitor = np.repeat(np.arange(program.nodes), np.diff(program.visit_ptr))
    carried = np.zeros(len(program.station_kind), dtype=np.int64)
    np.add.at(carried, program.visit_station, program.bytes[visitor])
    links = carried[program.station_kind == LINK]
    return links, int(run_reference(program, "cut_through").end.max())


BLOCK = 1000
PS = 1000  # a byte at 1 GB/s


def limits() -> list[tuple[str, Any, float]]:
    """Machines, and the blocks that some link of theirs has to carry in any all_to_all."""
    ring = [(f"ring {n}", machines.bidirectional_ring(n, "1GB/s", 0), (n * n // 4) / 2) for n in (4, 5, 8, 9)]
    # half of the ranks to the other half: (N/2)^2 blocks over 2k links; N S/(8B) and k S/(8B)
    torus = [(f"torus {k}x{k}", machines.torus((k, k), "1GB/s", 0), (k * k / 2) ** 2 / (2 * k)) for k in (2, 4)]
    tree = [(f"fat tree {o}", machines.fat_tree(8, 4, "1GB/s", 0, oversubscription=o), o * 8 / 2) for o in (1, 2, 4)]
    return [*ring, *torus, *tree]


@pytest.mark.parametrize(("name", "topology", "blocks"), limits(), ids=[name for name, *_ in limits()])
def test_no_algorithm_beats_the_narrowest_cut(name: str, topology: Any, blocks: float) -> None:
    ranks = topology.n_ranks
    injection = ranks - 1
    for function, parameters in CASES:
        if takes(function, ranks):
            schedule = function(ranks, **parameters)
            carried, time = link_bytes(schedule, topology, ranks * BLOCK)
            assert carried.max() >= blocks * BLOCK
            assert time >= blocks * BLOCK * PS
            if "tree" in name:
                assert time >= injection * BLOCK * PS


def test_direct_on_a_ring_of_odd_size_loads_all_links_alike() -> None:
    for ranks in (3, 5, 9):
        carried, _ = link_bytes(direct_all_to_all(ranks), machines.bidirectional_ring(ranks, "1GB/s", 0), ranks * BLOCK)
        assert set(carried.tolist()) == {(ranks**2 - 1) // 8 * BLOCK}
        assert len(carried) == 2 * ranks


def test_direct_on_a_fat_tree_crosses_once() -> None:
    topology = machines.fat_tree(8, 4, "1GB/s", 0, spines=1, oversubscription=2)
    carried, time = link_bytes(direct_all_to_all(8), topology, 8 * BLOCK)
    # 8 GPUs in and out, 2 leaves with 2 links up and 2 down
    assert sorted(carried.tolist()) == [7 * BLOCK] * 16 + [8 * BLOCK] * 8
    assert time >= 8 * BLOCK * PS


def test_bytes_on_links_are_bytes_of_messages_times_hops() -> None:
    topology = machines.torus((3, 4), "1GB/s", 0)
    for function, parameters in CASES:
        if takes(function, 12):
            schedule = function(12, **parameters)
            carried, _ = link_bytes(schedule, topology, 12 * BLOCK)
            hops = sum(len(topology.route(row.src, row.dst)) * len(row.chunks) for row in messages(schedule))
            assert carried.sum() == hops * BLOCK


def test_a_radix_beyond_all_numbers_is_one_round() -> None:
    assert bruck_all_to_all(5, radix=2**70) == bruck_all_to_all(5, radix=5)
