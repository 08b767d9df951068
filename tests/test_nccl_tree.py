"""NCCL's trees, and rings that differ by channel."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import collsim
from collsim import algorithms
from collsim.algorithms import nccl_tree_all_reduce
from collsim.algorithms.nccl_tree import nccl_tree_parents
from collsim.errors import AlgorithmError
from collsim.schedule.check import check


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 8, 12, 24])
def test_every_rank_hangs_on_one_root(ranks: int) -> None:
    for nodes in (n for n in range(1, ranks + 1) if ranks % n == 0):
        for parents in nccl_tree_parents(ranks, nodes):
            assert parents.count(-1) == 1
            for rank in range(ranks):
                hops = 0
                while parents[rank] >= 0:
                    rank, hops = parents[rank], hops + 1
                    assert hops < ranks
        assert check(nccl_tree_all_reduce(ranks, nodes=nodes, slices=2))


def test_nodes_are_chains_and_only_heads_speak_across() -> None:
    first, second = nccl_tree_parents(12, 3)
    for parents in (first, second):
        inside = [rank for rank in range(12) if rank % 4]
        assert [parents[rank] for rank in inside] == [rank - 1 for rank in inside]
        assert all(parents[head] in (-1, 0, 4, 8) for head in (0, 4, 8))
    assert first != second


@given(st.data())
def test_any_trees_that_are_given_all_reduce(data: st.DataObject) -> None:
    ranks = data.draw(st.integers(1, 9))
    trees = []
    for _ in range(data.draw(st.integers(1, 3))):
        order = data.draw(st.permutations(range(ranks)))
        parents = [-1] * ranks
        for place in range(1, ranks):
            parents[order[place]] = order[data.draw(st.integers(0, place - 1))]
        trees.append(parents)
    schedule = nccl_tree_all_reduce(ranks, parents=trees, slices=2)
    assert check(schedule)
    assert schedule.chunks == 2 * len(trees)
    links = {
        (channel, child, parent)
        for channel, tree in enumerate(trees)
        for child, parent in enumerate(tree)
        if parent >= 0
    }
    block = schedule.phases[0].block if schedule.phases else None
    if block is not None:
        up = block.reduce
        seen = set(zip(block.channel[up].tolist(), block.src[up].tolist(), block.dst[up].tolist(), strict=True))
        assert seen == links


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        ([[0, 1, 2]], "channel 0: expected one root (-1), got 0"),
        ([[-1, 0, 1], [-1, 2, 1]], "channel 1: expected a tree, got a circle through rank 1"),
        ([[-1, 0]], "expected the parent of each of the 3 ranks"),
        ([[-1, 0, 3]], "expected the parent of each of the 3 ranks"),
        ([[-1, -1, 0]], "expected one root (-1), got 2"),
        ([[-1, "a", 0]], "expected the parent of each of the 3 ranks"),
        ([], "expected a list of parents for each channel, got []"),
        (7, "expected a list of parents for each channel, got 7"),
    ],
)
def test_what_is_no_tree_is_refused(parents: object, message: str) -> None:
    with pytest.raises(AlgorithmError, match=re.escape(message)):
        nccl_tree_all_reduce(3, parents=parents)  # type: ignore[arg-type]


@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter", "all_gather"])
@pytest.mark.parametrize("name", ["ring", "bidirectional_ring"])
def test_each_channel_may_have_its_own_ring(operation: str, name: str) -> None:
    orders = [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [0, 2, 4, 1, 3]]
    schedule = algorithms.build(operation, name, 5, order=orders, channels=3)
    assert check(schedule)
    forward = {(channel, ring[i], ring[(i + 1) % 5]) for channel, ring in enumerate(orders) for i in range(5)}
    block = schedule.phases[0].block
    seen = set(zip(block.channel.tolist(), block.src.tolist(), block.dst.tolist(), strict=True))
    back = {(channel, dst, src) for channel, src, dst in forward}
    assert seen == (forward if name == "ring" else forward | back)
    data = np.arange(5 * 30).reshape(5, 30) if operation != "all_gather" else np.arange(5 * 6).reshape(5, 6)
    found = collsim.execute(schedule, list(data))
    if operation == "all_reduce":
        assert all((out == data.sum(axis=0)).all() for out in found)


def test_one_ring_for_each_channel_is_what_the_same_ring_for_all_is() -> None:
    one = algorithms.build("all_reduce", "ring", 4, order=[0, 2, 1, 3], channels=2)
    two = algorithms.build("all_reduce", "ring", 4, order=[[0, 2, 1, 3]] * 2, channels=2)
    assert replace(two, parameters=one.parameters) == one


def test_rings_that_do_not_fit_the_channels_are_refused() -> None:
    with pytest.raises(
        AlgorithmError, match=r"a ring for each of the 1 channels, or one for all, got 2; give channels=2"
    ):
        algorithms.build("all_reduce", "ring", 3, order=[[0, 1, 2], [2, 1, 0]])
    with pytest.raises(AlgorithmError, match="expected each of the ranks 0 to 2 once"):
        algorithms.build("all_reduce", "ring", 3, order=[[0, 1, 2], [2, 1, 1]], channels=2)


def test_opposite_rings_use_both_directions_of_the_links() -> None:
    topology = collsim.topology.bidirectional_ring(6, bandwidth="50GB/s", latency="1us")
    both = collsim.run(
        "all_reduce",
        topology,
        size="64MiB",
        algorithm="ring",
        order=[[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0]],
        channels=2,
    )
    one = collsim.run("all_reduce", topology, size="64MiB", algorithm="ring", channels=2)
    assert one.time / both.time == pytest.approx(2, rel=0.01)
