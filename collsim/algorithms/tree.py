"""Pipelined k-ary trees: slices of the message follow each other down (or up) a complete tree in level order.

k = 1 is a chain (best for large messages), larger k has fewer levels and a bandwidth term k times as large.
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

__all__ = ["tree_all_reduce", "tree_broadcast", "tree_reduce"]

Array = npt.NDArray[Any]


class _Steps:
    """Steps of a broadcast in which each rank sends one message a step: slice after slice, child after child.

    Child i of a rank that starts at step t gets slice j at step ``t + k j + i`` and starts itself one later.
    """

    def __init__(self, ranks: int, k: int, slices: int) -> None:
        k = min(k, max(1, ranks - 1))  # the root has no more children than that
        child = np.arange(1, ranks)
        parent = (child - 1) // k
        start = np.zeros(ranks, dtype=np.int64)
        lo = 1
        while lo < ranks:  # level by level: the parents' starts are known
            hi = min(ranks, lo * k + 1)
            level = np.arange(lo, hi)
            start[level] = start[(level - 1) // k] + (level - 1) % k + 1
            lo = hi
        edge, self.slice = (a.ravel() for a in np.indices((ranks - 1, slices)))
        self.parent, self.child = parent[edge], child[edge]
        self.down = start[self.child] - 1 + k * self.slice
        self.steps = int(self.down.max()) + 1 if ranks > 1 else 0
        # the way up is the way down turned round, slices in ascending order again
        self.up = self.steps - 1 - (start[self.child] - 1 + k * (slices - 1 - self.slice))
        # step from which the root holds slice 0
        self.turn = self.steps - k * (slices - 1)


@algorithm("broadcast", "tree")
def tree_broadcast(
    ranks: int,
    root: int = 0,
    *,
    order: Sequence[int] | None = None,
    k: int = 2,
    slices: int = 32,
    window: int | None = None,
) -> Schedule:
    """Pipelined broadcast on a k-ary tree.

    On a perfect tree of height h, one message at a time a rank: ``h alpha + k (h + slices - 1) S/(slices B)``.

    Parameters
    ----------
    ranks, root
        Any number from 1; any rank.
    order
        Ranks in level order of the tree, starting at the root.
    k
        Children of a rank.
    slices
        Pieces of the message.
    window
        Slices for one peer that may wait in the queue of a rank's port: the next one enters it once the one so many
        before it has left (see ``docs/pacing.md``). None or 0 for no pacing: all that is ready enters at once.

    Examples
    --------
    >>> print(tree_broadcast(3, slices=2))
    broadcast ranks=3 chunks=2 root=0
    algorithm tree {"k": 2, "slices": 2}
    repeat 1
      step 0
        0 -> 1  0
      step 1
        0 -> 2  0
      step 2
        0 -> 1  1
      step 3
        0 -> 2  1
    """
    at_least_one(k=k, slices=slices)
    refuse_rows(2 * ranks * slices)
    name, t = from_root(ranks, root, order), _Steps(ranks, k, slices)
    b = ScheduleBuilder(Collective("broadcast", ranks, root), slices)
    b.copy(name[t.parent], name[t.child], t.slice, step=t.down)
    return queued(b.build(), window)


@algorithm("reduce", "tree")
def tree_reduce(
    ranks: int,
    root: int = 0,
    *,
    order: Sequence[int] | None = None,
    k: int = 2,
    slices: int = 32,
    window: int | None = None,
) -> Schedule:
    """Pipelined reduce on a k-ary tree: the broadcast turned round. Parameters as in `tree_broadcast`.

    Examples
    --------
    >>> tree_reduce(7, slices=4)
    <Schedule tree reduce ranks=7 chunks=4 steps=10 transfers=24>
    """
    at_least_one(k=k, slices=slices)
    refuse_rows(2 * ranks * slices)
    name, t = from_root(ranks, root, order), _Steps(ranks, k, slices)
    b = ScheduleBuilder(Collective("reduce", ranks, root), slices)
    b.reduce(name[t.child], name[t.parent], t.slice, step=t.up)
    return queued(b.build(), window)


@algorithm("all_reduce", "tree")
def tree_all_reduce(
    ranks: int, *, order: Sequence[int] | None = None, k: int = 2, slices: int = 32, window: int | None = None
) -> Schedule:
    """Pipelined reduce up a k-ary tree and broadcast down it; a slice turns round once the root has it.

    Parameters as in `tree_broadcast`; the first of ``order`` is the root.

    Examples
    --------
    >>> tree_all_reduce(7, slices=4)
    <Schedule tree all_reduce ranks=7 chunks=4 steps=14 transfers=48>
    """
    at_least_one(k=k, slices=slices)
    refuse_rows(2 * ranks * slices)
    name, t = rank_order(ranks, order), _Steps(ranks, k, slices)
    b = ScheduleBuilder(Collective("all_reduce", ranks), slices)
    b.reduce(name[t.child], name[t.parent], t.slice, step=t.up)
    b.copy(name[t.parent], name[t.child], t.slice, step=t.turn + t.down)
    return queued(b.build(), window)
