"""Double binary trees, in NCCL's construction: two trees, half of the message on each.

Inner ranks of one tree are leaves of the other, so every rank sends about the size of the message once up and once
down: the full bandwidth of a port, at a latency of log2 N (Sanders, Speck and Traeff, "Two-tree algorithms for full
bandwidth broadcast, reduction and scan", 2009; the tree of NCCL's ``src/graph/trees.cc``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.algorithms.common import at_least_one, from_root, rank_order, refuse_rows
from collsim.algorithms.pacing import queued
from collsim.algorithms.registry import algorithm
from collsim.collective import Collective
from collsim.schedule import Schedule, ScheduleBuilder

__all__ = [
    "double_binary_tree_all_reduce",
    "double_binary_tree_broadcast",
    "double_binary_tree_parents",
    "double_binary_tree_reduce",
]

Array = npt.NDArray[Any]


def double_binary_tree_parents(ranks: int) -> tuple[list[int], list[int]]:
    """Parent of each rank in the first and in the second tree (-1 for the root).

    In the first tree rank 0 is the root and has one child; the parent of r with lowest set bit b is ``(r - b) | 2b``,
    or ``r - b`` if there is no such rank. The second one is its mirror image (even N) or the first shifted by one (odd
    N).

    Examples
    --------
    >>> double_binary_tree_parents(5)
    ([-1, 2, 4, 2, 0], [1, -1, 3, 0, 3])
    >>> double_binary_tree_parents(4)
    ([-1, 2, 0, 2], [1, 3, 1, -1])
    """
    first = [-1]
    for r in range(1, ranks):
        b = r & -r
        up = (r - b) | (2 * b)
        first.append(up if up < ranks else r - b)
    if ranks % 2 == 0:
        second = [-1 if first[ranks - 1 - r] < 0 else ranks - 1 - first[ranks - 1 - r] for r in range(ranks)]
    else:
        second = [-1 if (p := first[(r - 1) % ranks]) < 0 else (p + 1) % ranks for r in range(ranks)]
    return first, second


def _tree_edges(ranks: int, *, rooted: bool) -> list[tuple[Array, Array, Array]]:
    """For each tree: child, parent, and depth of the child.

    For operations with a root, rank 0 is the root of the second tree too: it leaves its place there (its child moves
    up) and takes the old root as its child. No rank has more than two children over both trees.
    """
    trees = []
    for parents in double_binary_tree_parents(ranks):
        parents = list(parents)
        top = parents.index(-1)
        if rooted and top != 0:
            parents = [parents[0] if p == 0 else p for p in parents]
            parents[0], parents[top] = -1, 0
        depth = np.full(ranks, -1)
        depth[parents.index(-1)] = 0
        waiting = [r for r in range(ranks) if parents[r] >= 0]
        while waiting:
            for r in waiting:
                if depth[parents[r]] >= 0:
                    depth[r] = depth[parents[r]] + 1
            waiting = [r for r in waiting if depth[r] < 0]
        child = np.array([r for r in range(ranks) if parents[r] >= 0], dtype=np.int64)
        trees.append((child, np.array(parents)[child], depth[child]))
    return trees


def _build(collective: Collective, name: Array, slices: int, window: int | None) -> Schedule:
    at_least_one(slices=slices)
    refuse_rows(4 * collective.ranks * slices)
    ranks = collective.ranks
    b = ScheduleBuilder(collective, 2 * slices)
    trees = _tree_edges(ranks, rooted=collective.is_rooted)
    height = max((int(depth.max(initial=0)) for _, _, depth in trees), default=0)
    for number, (child, parent, depth) in enumerate(trees):
        edge, part = (a.ravel() for a in np.indices((len(child), slices)))
        chunk = number * slices + part
        if collective.reduces:
            b.reduce(name[child[edge]], name[parent[edge]], chunk, step=height - depth[edge] + part)
        if collective.operation != "reduce":
            start = height if collective.reduces else 0
            b.copy(name[parent[edge]], name[child[edge]], chunk, step=start + depth[edge] - 1 + part)
    return queued(b.build(), window)


@algorithm("all_reduce", "double_binary_tree")
def double_binary_tree_all_reduce(
    ranks: int, *, order: Sequence[int] | None = None, slices: int = 32, window: int | None = None
) -> Schedule:
    """Reduce up and broadcast down both trees at once, slice after slice.

    Latency 2 ceil(log2 N) hops, bandwidth term towards ``2 S/B``.

    Parameters
    ----------
    ranks
        Any number from 1.
    order
        Ranks in the order in which the trees number them.
    slices
        Pieces of each tree's half of the message.
    window
        Slices for one peer (up and down apart) that may wait in the queue of a rank's port: the next one enters it once
        the one so many before it has left. None or 0 for no pacing: all that is ready enters at once, so that slices of
        leaves hold up those that inner ranks pass on. A window of 1 makes a large reduce or all_reduce up to a third
        faster, and in the fluid network short messages slower (see ``docs/pacing.md``).

    Examples
    --------
    >>> print(double_binary_tree_all_reduce(2, slices=1))
    all_reduce ranks=2 chunks=2
    algorithm double_binary_tree {"slices": 1}
    repeat 1
      step 0
        1 => 0  0
        0 => 1  1
      step 1
        0 -> 1  0
        1 -> 0  1
    """
    return _build(Collective("all_reduce", ranks), rank_order(ranks, order), slices, window)


@algorithm("broadcast", "double_binary_tree")
def double_binary_tree_broadcast(
    ranks: int, root: int = 0, *, order: Sequence[int] | None = None, slices: int = 32, window: int | None = None
) -> Schedule:
    """Broadcast down both trees; the root feeds the root of the second one. Parameters as in the all_reduce.

    Examples
    --------
    >>> double_binary_tree_broadcast(5, root=2, slices=2)
    <Schedule double_binary_tree broadcast ranks=5 chunks=4 steps=4 transfers=16>
    """
    return _build(Collective("broadcast", ranks, root), from_root(ranks, root, order), slices, window)


@algorithm("reduce", "double_binary_tree")
def double_binary_tree_reduce(
    ranks: int, root: int = 0, *, order: Sequence[int] | None = None, slices: int = 32, window: int | None = None
) -> Schedule:
    """Reduce up both trees to the root: the broadcast turned round. Parameters as in the all_reduce.

    Examples
    --------
    >>> double_binary_tree_reduce(5, root=2, slices=2)
    <Schedule double_binary_tree reduce ranks=5 chunks=4 steps=4 transfers=16>
    """
    return _build(Collective("reduce", ranks, root), from_root(ranks, root, order), slices, window)
