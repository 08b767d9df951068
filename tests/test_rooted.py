"""Scatter, gather, what is made from them, barriers and send_recv."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collsim import Schedule, algorithms, check
from collsim.algorithms import bruck, circulant, hierarchical, recursive_doubling  # noqa: F401  they register
from collsim.algorithms.barrier import dissemination_barrier, tree_barrier
from collsim.algorithms.derive import reverse, then
from collsim.algorithms.registry import available, build
from collsim.algorithms.rooted import (
    binomial_tree_gather,
    binomial_tree_scatter,
    linear_broadcast,
    linear_gather,
    linear_reduce,
    linear_scatter,
    reduce_scatter_gather_reduce,
    scatter_all_gather_broadcast,
)
from collsim.algorithms.send_recv import ring_send_recv
from collsim.errors import AlgorithmError, ProofError
from tests.answers import run_both_ways
from tests.strategies import naive_rows

ROOTED = [
    binomial_tree_gather, binomial_tree_scatter, linear_broadcast, linear_gather, linear_reduce, linear_scatter,
    reduce_scatter_gather_reduce, scatter_all_gather_broadcast,
]  # fmt: skip
UNROOTED = [ring_send_recv, dissemination_barrier, tree_barrier]


def proven(schedule: Schedule, *sizes: int) -> None:
    proof = check(schedule)
    assert (proof.complete, proof.unused, proof.warnings) == (True, (), ())
    assert Schedule.from_text(str(schedule)) == schedule
    for elements in sizes:
        run_both_ways(schedule, elements)


@pytest.mark.parametrize("ranks", range(1, 34))
@pytest.mark.parametrize("function", ROOTED)
def test_truncated_subtrees_of_every_root(function: Any, ranks: int) -> None:
    """Open MPI 7410 and MPICH 5503: wrong counts where N is no power of two and a subtree is cut short.

    Sizes that N does not divide, sizes below N, and blocks that reach over the end of the buffer.
    """
    for root in range(ranks) if ranks <= 9 else (0, ranks // 2, ranks - 1):
        schedule = function(ranks, root)
        assert schedule.collective.root == root
        proven(schedule, *((0, ranks - 1, 3 * ranks + 1) if root in (0, ranks - 1) else (2 * ranks - 1,)))
    assert not function(1).transfers


@pytest.mark.parametrize("ranks", range(1, 34))
@pytest.mark.parametrize("function", UNROOTED)
def test_without_root(function: Any, ranks: int) -> None:
    proven(function(ranks), 0, ranks)
    assert not function(1).transfers


@pytest.mark.parametrize("function", ROOTED)
def test_orders(function: Any) -> None:
    for ranks in (2, 5, 8, 11):
        order = np.random.default_rng(ranks).permutation(ranks)
        for root in (0, 1, ranks - 1):
            proven(function(ranks, root, order=order.tolist()), 2 * ranks + 1)
            assert function(ranks, root, order=list(range(ranks))) == function(ranks, root)
    with pytest.raises(AlgorithmError, match=r"order: expected each of the ranks 0 to 2 once, got \[0, 1\]"):
        function(3, order=[0, 1])


# worked tables

SCATTER_OF_SIX = """\
scatter ranks=6 chunks=6 root=0
algorithm binomial_tree
repeat 1
  step 0
    0 -> 4  4+2
  step 1
    0 -> 2  2+2
  step 2
    0 -> 1  1
    2 -> 3  3
    4 -> 5  5"""

GATHER_OF_SIX_TO_THREE = """\
gather ranks=6 chunks=6 root=3
algorithm binomial_tree
repeat 1
  step 0
    0 -> 5  0
    2 -> 1  2
    4 -> 3  4
  step 1
    5 -> 3  5+2
  step 2
    1 -> 3  1+2"""

BROADCAST_OF_FOUR = """\
broadcast ranks=4 chunks=4 root=2
algorithm scatter_all_gather {"all_gather": "ring"}
repeat 1
  step 0
    2 -> 0  0+2
  step 1
    2 -> 3  3
    0 -> 1  1
repeat 3 shift=-1 window=4
  step 0
    0 -> 1  0
    1 -> 2  1
    2 -> 3  2
    3 -> 0  3"""


def test_worked_tables() -> None:
    assert str(binomial_tree_scatter(6)) == SCATTER_OF_SIX
    assert str(binomial_tree_gather(6, 3)) == GATHER_OF_SIX_TO_THREE
    # from 5 to 0 the blocks of the subtree reach over the end of the buffer
    rows = naive_rows(binomial_tree_gather(6, 3))
    assert [row.chunks for row in rows if (row.src, row.dst) == (5, 3)] == [((5, 5), (0, 0))]
    assert str(scatter_all_gather_broadcast(4, 2)) == BROADCAST_OF_FOUR


def test_gather_is_scatter_turned_round() -> None:
    for scatter, gather in ((linear_scatter, linear_gather), (binomial_tree_scatter, binomial_tree_gather)):
        for ranks, root in ((6, 2), (9, 0), (8, 7)):
            down, up = naive_rows(scatter(ranks, root)), naive_rows(gather(ranks, root))
            last = scatter(ranks, root).steps - 1
            assert sorted((r.src, r.dst, r.chunks, r.step) for r in down) == sorted(
                (r.dst, r.src, r.chunks, last - r.step) for r in up
            )


# steps and volume


def sent(schedule: Schedule) -> list[int]:
    counts: Counter[int] = Counter()
    for row in naive_rows(schedule):
        counts[row.src] += len(row.chunks)
    return [counts[rank] for rank in range(schedule.ranks)]


@pytest.mark.parametrize("ranks", [2, 3, 6, 8, 13, 33])
def test_steps_and_volume(ranks: int) -> None:
    levels = (ranks - 1).bit_length()
    for root in (0, ranks - 1):
        for function in (linear_broadcast, linear_reduce, linear_gather, linear_scatter):
            assert function(ranks, root).steps == ranks - 1
        for function in (binomial_tree_scatter, binomial_tree_gather):
            assert function(ranks, root).steps == levels
            assert function(ranks, root).transfers == ranks - 1
        assert sent(linear_scatter(ranks, root))[root] == sent(binomial_tree_scatter(ranks, root))[root] == ranks - 1
        assert max(sent(binomial_tree_gather(ranks, root))) <= max(ranks // 2, ranks - (1 << (levels - 1)))
        for function in (scatter_all_gather_broadcast, reduce_scatter_gather_reduce):
            schedule = function(ranks, root)
            assert schedule.steps == levels + ranks - 1
            assert max(sent(schedule)) <= 2 * (ranks - 1)
    for name, steps in (("circulant", levels), ("bruck", levels)):
        assert scatter_all_gather_broadcast(ranks, all_gather=name).steps == levels + steps
        assert reduce_scatter_gather_reduce(ranks, reduce_scatter=name).steps == levels + steps


@pytest.mark.parametrize("ranks", [2, 3, 6, 8, 13, 33])
def test_barriers_and_send_recv_move_little(ranks: int) -> None:
    levels = (ranks - 1).bit_length()
    assert (dissemination_barrier(ranks).steps, tree_barrier(ranks).steps) == (levels, 2 * levels)
    assert dissemination_barrier(ranks).transfers == ranks * levels
    assert tree_barrier(ranks).transfers == 2 * (ranks - 1)
    assert dissemination_barrier(ranks).elements(1000).tolist() == [0]
    assert ring_send_recv(ranks).steps == 1
    assert sent(ring_send_recv(ranks)) == [1] * ranks


def test_one_port_suffices() -> None:
    for function in (*ROOTED, *UNROOTED):
        schedule = function(13)
        rows = naive_rows(schedule)
        for side in ("src", "dst"):
            assert max(Counter((row.step, getattr(row, side)) for row in rows).values()) == 1


# made from others


OTHERS = [
    (function, operation, name)
    for function, operation in (
        (scatter_all_gather_broadcast, "all_gather"),
        (reduce_scatter_gather_reduce, "reduce_scatter"),
    )
    for name in available()[operation]
]


@pytest.mark.parametrize(("function", "operation", "name"), OTHERS)
def test_any_other_algorithm_will_do(function: Any, operation: str, name: str) -> None:
    for ranks in (1, 4, 8, 12):
        try:
            other = build(operation, name, ranks)
        except AlgorithmError:  # it does not take so many
            continue
        for root in (0, ranks - 1):
            # edges name rows, and those change where chunks have to be numbered anew
            if other.edges and operation == "all_gather" and other.order is not None:
                with pytest.raises(AlgorithmError, match="expected chunks in the order of the first, or no written"):
                    function(ranks, root, **{operation: name})
                continue
            proven(function(ranks, root, **{operation: name}), 2 * ranks + 1)


def test_names_that_do_not_exist_are_refused() -> None:
    with pytest.raises(AlgorithmError, match=r"algorithm: all_gather has .*, got 'rong'; did you mean 'ring'"):
        scatter_all_gather_broadcast(4, all_gather="rong")
    with pytest.raises(AlgorithmError, match=r"algorithm: reduce_scatter has .*, got 'one_shot'"):
        reduce_scatter_gather_reduce(4, reduce_scatter="one_shot")


# known mistakes


def test_a_barrier_that_is_a_round_short_is_refused() -> None:
    for ranks in (2, 5, 8, 9):
        (phase,) = dissemination_barrier(ranks).phases
        kept = phase.block.step < phase.block.steps - 1
        columns = {name: value[kept] for name, value in vars(phase.block).items() if value is not None}
        short = replace(dissemination_barrier(ranks), phases=(replace(phase, block=replace(phase.block, **columns)),))
        with pytest.raises(ProofError, match="leaves the barrier without having heard of rank"):
            check(short)


def test_a_subtree_that_is_not_cut_short_is_refused() -> None:
    """With N = 6 the rank at 4 has two blocks below it; a count of 4 would reach over the end into other blocks."""
    schedule = binomial_tree_scatter(6)
    (phase,) = schedule.phases
    count = np.where(phase.block.count == 2, 1, phase.block.count)
    with pytest.raises(ProofError, match="before anything was written there"):
        check(replace(schedule, phases=(replace(phase, block=replace(phase.block, count=count)),)))
    count = np.array([4, 2, 1, 1, 1])
    wasteful = replace(schedule, phases=(replace(phase, block=replace(phase.block, count=count)),))
    assert check(wasteful).complete  # right, but not what it should send: volume is counted on its own
    assert (sent(wasteful)[0], sent(schedule)[0]) == (7, 5)


@pytest.mark.parametrize("ranks", [1, 2, 3, 6, 13, 16])
def test_binomial_reductions_are_mirror_images(ranks: int) -> None:
    order = list(range(ranks))[::-1]
    down = algorithms.binomial_tree_broadcast(ranks, ranks - 1, order=order)
    up = reverse(down, "reduce")
    assert algorithms.binomial_tree_reduce(ranks, ranks - 1, order=order) == up
    assert algorithms.binomial_tree_all_reduce(ranks, order=order) == then(up, down, "all_reduce")
