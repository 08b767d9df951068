"""Swing and Bine: worked tables, blocks sent, odd numbers, tori, and the trees' bit rule."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from collsim import Schedule, algorithms, check, execute
from collsim.algorithms.bine import bine_all_gather, bine_all_reduce, bine_broadcast, bine_reduce, bine_reduce_scatter
from collsim.algorithms.swing import swing_all_gather, swing_all_reduce, swing_peers, swing_reduce_scatter
from collsim.errors import AlgorithmError
from tests.answers import run_both_ways
from tests.strategies import naive_rows
from tests.test_butterflies import parsed, sent, table
from tests.test_contention import contention

SWINGS = (swing_all_reduce, swing_reduce_scatter, swing_all_gather)
BINES = (bine_all_reduce, bine_reduce_scatter, bine_all_gather)
TREES = (bine_broadcast, bine_reduce)


def proven(schedule: Schedule) -> Schedule:
    proof = check(schedule)
    assert (proof.complete, proof.unused, proof.warnings) == (True, (), ())
    assert Schedule.from_text(str(schedule)) == schedule
    return schedule


# peers


def test_distances() -> None:
    rho = [(1 - (-2) ** (step + 1)) // 3 for step in range(7)]
    assert rho == [1, -1, 3, -5, 11, -21, 43]
    assert [sum((-2) ** i for i in range(step + 1)) for step in range(7)] == rho


@pytest.mark.parametrize("ranks", [2, 4, 6, 10, 16, 34, 128])
@pytest.mark.parametrize("mirrored", [False, True])
def test_peers_meet_in_pairs(ranks: int, mirrored: bool) -> None:
    rank = np.arange(ranks)
    for step, peer in enumerate(swing_peers(ranks, mirrored=mirrored)):
        assert (peer[peer] == rank).all()
        assert ((rank + peer) % 2 == 1).all()
        off = (peer - rank) % ranks
        hop = abs((1 - (-2) ** (step + 1)) // 3)
        assert (np.minimum(off, ranks - off) == min(hop % ranks, -hop % ranks)).all()
    assert len(swing_peers(ranks)) == (ranks - 1).bit_length()


def test_hops_of_swing_and_of_doubling() -> None:
    def hops(name: str, ranks: int) -> int:
        rows = naive_rows(algorithms.build("all_reduce", name, ranks))
        return sum(min((r.dst - r.src) % ranks, (r.src - r.dst) % ranks) for r in rows if r.src == 0)

    assert [hops("swing", 1 << levels) for levels in range(2, 7)] == [4, 10, 20, 42, 84]
    assert [hops("halving_doubling", 1 << levels) for levels in range(2, 7)] == [6, 14, 30, 62, 126]


# worked tables


def test_worked_tables_of_swing() -> None:
    assert table(swing_all_gather(6)) == parsed(
        """
        0->3:{0}; 1->4:{1}; 2->5:{2}; 3->0:{3}; 4->1:{4}; 5->2:{5}
        0->5:{0,3}; 1->2:{1,4}; 2->1:{2,5}; 3->4:{0,3}; 4->3:{1,4}; 5->0:{2,5}
        0->1:{0,3}; 1->0:{1,4}; 2->3:{2,5}; 3->2:{0,3}; 4->5:{1,4}; 5->4:{2,5}
        """
    )
    assert table(swing_reduce_scatter(8)) == parsed(
        """
        1=>0:{0,3,4,7}; 0=>1:{1,2,5,6}; 3=>2:{1,2,5,6}; 2=>3:{0,3,4,7}; 5=>4:{0,3,4,7}; 4=>5:{1,2,5,6}; 7=>6:{1,2,5,6}; 6=>7:{0,3,4,7}
        7=>0:{0,3}; 2=>1:{1,6}; 1=>2:{2,5}; 4=>3:{0,3}; 3=>4:{4,7}; 6=>5:{2,5}; 5=>6:{1,6}; 0=>7:{4,7}
        3=>0:{0}; 6=>1:{1}; 5=>2:{2}; 0=>3:{3}; 7=>4:{4}; 2=>5:{5}; 1=>6:{6}; 4=>7:{7}
        """  # noqa: E501
    )


def test_worked_tables_of_bine_trees() -> None:
    assert table(bine_broadcast(8)) == parsed(
        """
        0->3:{0}
        0->7:{0}; 3->4:{0}
        0->1:{0}; 3->2:{0}; 4->5:{0}; 7->6:{0}
        """
    )
    assert table(bine_broadcast(8, distance="doubling")) == parsed(
        """
        0->1:{0}
        0->7:{0}; 1->2:{0}
        0->3:{0}; 1->6:{0}; 2->5:{0}; 7->4:{0}
        """
    )


@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 32, 64])
def test_bine_trees_follow_the_bits_of_base_minus_two(ranks: int) -> None:
    """Rank v hears at the first mask m, high to low, at which its low bits are all equal; its sender flips them."""
    edges = {row.dst: (row.step, row.src) for row in naive_rows(bine_broadcast(ranks))}
    masks = [ranks >> (step + 1) for step in range(ranks.bit_length() - 1)]
    number = [((v + 0xAAAAAAAA) ^ 0xAAAAAAAA) & (ranks - 1) for v in range(ranks)]
    for v in range(1, ranks):
        step = next(i for i, m in enumerate(masks) if number[v] & (2 * m - 1) in (0, 2 * m - 1))
        assert edges[v] == (step, number.index(number[v] ^ (2 * masks[step] - 1)))


def test_bine_hops_are_a_third_shorter() -> None:
    def hops(schedule: Schedule) -> int:
        n = schedule.ranks
        return max(min((row.dst - row.src) % n, (row.src - row.dst) % n) for row in naive_rows(schedule))

    for levels in range(3, 9):
        ranks = 1 << levels
        longest = hops(bine_broadcast(ranks))
        assert hops(algorithms.binomial_tree_broadcast(ranks)) == ranks // 2
        assert longest == (ranks + 1) // 3
        assert longest <= Fraction(3, 4) * ranks // 2


# proof and execution


@pytest.mark.parametrize("make", SWINGS)
@pytest.mark.parametrize("ranks", range(1, 34))
def test_swing_is_proven_and_executed_for_any_number(make: Any, ranks: int) -> None:
    schedule = proven(make(ranks))
    phases = 2 if make is swing_all_reduce else 1
    assert schedule.steps == phases * (ranks - 1).bit_length()
    assert schedule.transfers > 0 or ranks == 1
    for elements in (0, 1, ranks - 1, 2 * ranks + 1):
        run_both_ways(schedule, elements, seed=ranks)


@pytest.mark.parametrize("ranks", [*range(2, 66, 2), 100, 254, 256])
def test_each_block_is_sent_once_for_even_numbers(ranks: int) -> None:
    for gather in (swing_all_gather(ranks), bine_all_gather(ranks, distance="doubling")):
        assert sent(gather) == [Fraction(ranks - 1, ranks)] * ranks
        if ranks > 66:
            continue
        assert check(gather).complete


@pytest.mark.parametrize("ranks", [3, 5, 7, 9, 17, 33])
def test_one_rank_more_takes_part_in_odd_numbers(ranks: int) -> None:
    gather = proven(swing_all_gather(ranks))
    assert sent(gather) == [Fraction(ranks - 1, ranks)] * ranks
    with_it = [row for row in naive_rows(gather) if ranks - 1 in (row.src, row.dst)]
    assert {len(row.chunks) for row in with_it} == {1}
    per_step = Counter(row.step for row in with_it if row.src == ranks - 1)
    assert list(per_step.values())[:-1] == [1 << step for step in range(len(per_step) - 1)]
    for make in SWINGS:
        order = [*range(2, ranks), 0, 1]
        run_both_ways(proven(make(ranks, order=order)), 2 * ranks + 1)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 32])
def test_latency_versions(ranks: int) -> None:
    for make in (swing_all_reduce, bine_all_reduce):
        schedule = proven(make(ranks, version="latency"))
        assert schedule.steps == ranks.bit_length() - 1
        assert sent(schedule) == [ranks.bit_length() - 1] * ranks
        run_both_ways(schedule, 5)


def test_bits_of_the_latency_versions() -> None:
    """Ranks that meet nearest first add up in different orders; farthest first, both of a pair have added up alike."""
    data = [np.float32(0.1) * np.arange(7, dtype=np.float32) ** rank for rank in range(16)]
    for schedule, same in (
        (bine_all_reduce(16, version="latency", distance="halving"), True),
        (bine_all_reduce(16, version="latency", distance="doubling"), False),
        (swing_all_reduce(16, version="latency"), False),
        (swing_all_reduce(16), True),
    ):
        first, *others = execute(schedule, data)
        assert all(other.tobytes() == first.tobytes() for other in others) == same
        assert all(np.allclose(other, first) for other in others)


@pytest.mark.parametrize("ranks", range(1, 34))
@pytest.mark.parametrize("distance", ["halving", "doubling"])
def test_bine_is_proven_and_executed(ranks: int, distance: str) -> None:
    for version, fold in (("bandwidth", "full"), ("bandwidth", "split"), ("latency", "full")):
        schedule = proven(bine_all_reduce(ranks, distance=distance, version=version, fold=fold))
        run_both_ways(schedule, 2 * ranks + 1)
    if ranks % 2 and ranks > 1:
        return
    for make in (bine_reduce_scatter, bine_all_gather):
        schedule = proven(make(ranks, distance=distance))
        assert schedule.steps == (ranks - 1).bit_length()
        run_both_ways(schedule, (ranks - 1, 2 * ranks + 1)[ranks % 4 == 0])
    for root in range(ranks) if ranks <= 9 else (0, ranks // 2, ranks - 1):
        for tree in TREES:
            schedule = proven(tree(ranks, root, distance=distance))
            assert (schedule.steps, schedule.transfers) == ((ranks - 1).bit_length(), ranks - 1)
            run_both_ways(schedule, 3, seed=root)


def test_bine_gathers_along_the_way_that_it_scattered() -> None:
    for distance, other in (("halving", "doubling"), ("doubling", "halving")):
        scatter, gather = bine_reduce_scatter(12, distance=distance), bine_all_gather(12, distance=other)
        turned = sorted((3 - row.step, row.dst, row.src) for row in naive_rows(scatter))
        assert turned == sorted((row.step, row.src, row.dst) for row in naive_rows(gather))


def test_swing_and_bine_that_doubles_are_one() -> None:
    for ranks in (8, 12):
        assert bine_reduce_scatter(ranks) == swing_reduce_scatter(ranks)
        assert bine_all_gather(ranks) == swing_all_gather(ranks)


# tori


@pytest.mark.parametrize(
    "dims", [(2,), (8,), (6,), (2, 2), (2, 4), (4, 4), (4, 6), (6, 2), (1, 4), (2, 2, 2), (4, 2, 6)]
)
def test_all_ports_of_a_torus(dims: tuple[int, ...]) -> None:
    ranks = int(np.prod(dims))
    copies = 2 * sum(size > 1 for size in dims)
    for make in SWINGS:
        schedule = proven(make(ranks, dims=dims))
        assert schedule.chunks == copies * ranks
        phases = 2 if make is swing_all_reduce else 1
        assert schedule.steps == phases * sum((size - 1).bit_length() for size in dims)
        assert sent(schedule) == [phases * Fraction(ranks - 1, ranks)] * ranks
        assert {row.channel for row in naive_rows(schedule)} == set(range(copies))
        run_both_ways(schedule, 2 * ranks + 1)
    if not ranks & (ranks - 1):
        schedule = proven(swing_all_reduce(ranks, dims=dims, version="latency"))
        assert schedule.chunks == copies
        assert schedule.steps == (ranks - 1).bit_length()


def test_steps_take_turns_over_the_dimensions() -> None:
    def dimension(schedule: Schedule, channel: int) -> list[str]:
        rows = [row for row in naive_rows(schedule) if row.channel == channel and row.src == 0]
        return ["column" if row.dst < 8 else "row" for row in rows]

    schedule = swing_reduce_scatter(32, dims=(4, 8))
    assert dimension(schedule, 0) == dimension(schedule, 1) == ["row", "column", "row", "column", "column"]
    assert dimension(schedule, 2) == dimension(schedule, 3) == ["column", "row", "column", "row", "column"]
    first = [row.dst for row in naive_rows(schedule) if row.step == 0 and row.src == 0]
    assert sorted(first) == [1, 7, 8, 24]  # all four neighbours at once


@pytest.mark.parametrize(
    ("dims", "ratio"),
    [
        ((4, 4), "1"), ((8, 8), "23/21"), ((16, 16), "97/85"), ((4, 4, 4), "1"), ((2, 4), "8/7"),
        ((8,), "9/7"), ((16,), "23/15"), ((32,), "57/31"), ((64,), "15/7"),
    ],
)  # fmt: skip
def test_contention_with_all_ports_against_the_ideal(dims: tuple[int, ...], ratio: str) -> None:
    """1.095 on 8 x 8, 1.141 on 16 x 16; on a ring it grows with log N: 1.29, 1.53, 1.84, 2.14."""
    ranks = int(np.prod(dims))
    ideal = Fraction(2 * (ranks - 1), ranks) / (2 * len(dims))
    assert contention(swing_all_reduce(ranks, dims=dims), dims) / ideal == Fraction(ratio)


def test_order_is_that_of_a_ring_only() -> None:
    order = [3, 1, 0, 2, 7, 5, 6, 4]
    for make in SWINGS:
        assert proven(make(8, order=order)) != make(8)
        assert make(8, order=order, dims=(2, 4)) == make(8, dims=(2, 4))
        run_both_ways(make(8, order=order, dims=(8,)), 17)
    assert swing_all_reduce(8, order=order, version="latency") != swing_all_reduce(8, version="latency")


# refusals


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (swing_all_reduce, {"ranks": 6, "version": "latency"},
         "ranks: swing with version='latency' takes a power of two, got 6; use version='bandwidth'"),
        (swing_all_reduce, {"ranks": 8, "version": "fast"}, "version: expected 'bandwidth' or 'latency', got 'fast'"),
        (swing_all_gather, {"ranks": 7, "ports": 2},
         "ranks: swing takes an odd number on a ring with ports=1 only, got 7"),
        (swing_all_gather, {"ranks": 15, "dims": (3, 5)},
         "ranks: swing takes an odd number on a ring with ports=1 only, got 15"),
        (swing_all_gather, {"ranks": 12, "dims": (4, 3)},
         "dims: swing takes dimensions of even size, got 3; use torus or circulant"),
        (swing_all_gather, {"ranks": 12, "dims": (4, 4)},
         "dims: expected sizes of dimensions whose product is 12 ranks, got (4, 4)"),
        (swing_all_gather, {"ranks": 12, "dims": 12},
         "dims: expected sizes of dimensions whose product is 12 ranks, got 12"),
        (swing_all_gather, {"ranks": 12, "dims": (2.0, 6)},
         "dims: expected sizes of dimensions whose product is 12 ranks, got (2.0, 6)"),
        (swing_all_gather, {"ranks": 12, "dims": (-2, -6)},
         "dims: expected sizes of dimensions whose product is 12 ranks, got (-2, -6)"),
        (swing_all_gather, {"ranks": 12, "dims": (2, 6), "ports": 5},
         "ports: expected at most 4, two a dimension, got 5"),
        (swing_all_gather, {"ranks": 12, "ports": 0}, "ports: expected a whole number of at least 1, got 0"),
        (bine_all_gather, {"ranks": 9},
         "ranks: bine takes an even number of ranks, got 9; use circulant, bruck or swing"),
        (bine_broadcast, {"ranks": 9}, "ranks: bine takes an even number of ranks, got 9; use binomial_tree"),
        (bine_reduce, {"ranks": 8, "distance": "near"}, "distance: expected 'halving' or 'doubling', got 'near'"),
        (bine_all_gather, {"ranks": 8, "distance": "near"}, "distance: expected 'halving' or 'doubling', got 'near'"),
        (bine_all_reduce, {"ranks": 8, "version": "near"}, "version: expected 'bandwidth' or 'latency', got 'near'"),
        (bine_all_reduce, {"ranks": 8, "fold": "near"}, "fold: expected 'full' or 'split', got 'near'"),
        (bine_all_reduce, {"ranks": 6, "fold": "split", "version": "latency"},
         "fold: 'split' adds up halves, expected at least one halving; use fold='full'"),
    ],
)  # fmt: skip
def test_refusals(make: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(AlgorithmError, match=f"^{re.escape(message)}$"):
        make(**arguments)


@pytest.mark.parametrize("distance", [["halving"], 2, None, np.array(["halving", "doubling"])])
@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce"])
def test_distances_that_are_no_text(operation: str, distance: object) -> None:
    with pytest.raises(AlgorithmError, match=r"^distance: expected 'halving' or 'doubling', got [^;]*$"):
        algorithms.build(operation, "bine", 8, distance=distance)
