"""Rooted collectives in which every rank has a block: linear and binomial, and what can be made from them.

A gather is a scatter run backwards. A long broadcast is a scatter of the message followed by an all_gather, a long
reduce a reduce_scatter followed by a gather: every rank sends about twice the message, however many ranks there are
(Barnett et al., "Interprocessor collective communication library", 1994; MPICH's and Open MPI's for long messages).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collsim.algorithms.common import from_root, rank_order
from collsim.algorithms.derive import rename, reverse, then
from collsim.algorithms.registry import algorithm, find
from collsim.collective import Collective
from collsim.schedule import Schedule, ScheduleBuilder

__all__ = [
    "binomial_tree_gather",
    "binomial_tree_scatter",
    "linear_broadcast",
    "linear_gather",
    "linear_reduce",
    "linear_scatter",
    "reduce_scatter_gather_reduce",
    "scatter_all_gather_broadcast",
]


@algorithm("broadcast", "linear")
def linear_broadcast(ranks: int, root: int = 0, *, order: Sequence[int] | None = None) -> Schedule:
    """One rank after the other hears from the root: ``(N-1) (alpha + S/B)``.

    Where the next message leaves before the one before it has arrived, alpha counts once.

    Parameters
    ----------
    ranks, root
        Any number from 1; any rank.
    order
        Ranks in the order in which the root turns to them, beginning with the one behind itself.

    Examples
    --------
    >>> print(linear_broadcast(3, root=1))
    broadcast ranks=3 chunks=1 root=1
    algorithm linear
    repeat 1
      step 0
        1 -> 2  0
      step 1
        1 -> 0  0
    """
    b = ScheduleBuilder(Collective("broadcast", ranks, root), 1)
    b.copy(root, from_root(ranks, root, order)[1:], step=np.arange(ranks - 1))
    return b.build()


@algorithm("reduce", "linear")
def linear_reduce(ranks: int, root: int = 0, *, order: Sequence[int] | None = None) -> Schedule:
    """One rank after the other sends its vector to the root, which adds it: the broadcast turned round.

    ``(N-1) (alpha + S/B + S gamma)``; where messages do not wait for each other they queue at the root, and alpha
    counts once. Parameters as in `linear_broadcast`.

    Examples
    --------
    >>> linear_reduce(6)
    <Schedule linear reduce ranks=6 chunks=1 steps=5 transfers=5>
    """
    return reverse(linear_broadcast(ranks, root, order=order), "reduce")


@algorithm("scatter", "linear")
def linear_scatter(ranks: int, root: int = 0, *, order: Sequence[int] | None = None) -> Schedule:
    """One rank after the other gets its block from the root: ``(N-1) alpha + (N-1)/N S/B``.

    Where the next message leaves before the one before it has arrived, alpha counts once. Parameters as in
    `linear_broadcast`.

    Examples
    --------
    >>> print(linear_scatter(3, root=1))
    scatter ranks=3 chunks=3 root=1
    algorithm linear
    repeat 1
      step 0
        1 -> 2  2
      step 1
        1 -> 0  0
    """
    b = ScheduleBuilder(Collective("scatter", ranks, root), ranks)
    others = from_root(ranks, root, order)[1:]
    b.copy(root, others, others, step=np.arange(ranks - 1))
    return b.build()


@algorithm("gather", "linear")
def linear_gather(ranks: int, root: int = 0, *, order: Sequence[int] | None = None) -> Schedule:
    """One rank after the other sends its block to the root: the scatter turned round.

    ``(N-1) alpha + (N-1)/N S/B``; where messages do not wait for each other they queue at the root, and alpha counts
    once. Parameters as in `linear_broadcast`.

    Examples
    --------
    >>> linear_gather(6)
    <Schedule linear gather ranks=6 chunks=6 steps=5 transfers=5>
    """
    return reverse(linear_scatter(ranks, root, order=order), "gather")


def _binomial_scatter(ranks: int, root: int, order: Sequence[int] | None, cuts: int) -> Schedule:
    """Binomial scatter of blocks that are cut into so many chunks."""
    name = rank_order(ranks, order)
    at = int(np.flatnonzero(name == root)[0])  # where the root stands
    b = ScheduleBuilder(Collective("scatter", ranks, at), ranks * cuts)
    child = np.arange(1, ranks)  # counted from the root
    lowest = child & -child  # a rank hears from the one without its lowest bit
    level = np.log2(lowest).astype(np.int64)
    # a rank gets the blocks of its subtree, which may be cut short, and may reach over the end of the buffer
    blocks = np.minimum(lowest, ranks - child)
    src, dst = (child - lowest + at) % ranks, (child + at) % ranks
    b.copy(src, dst, dst * cuts, count=blocks * cuts, step=(ranks - 1).bit_length() - 1 - level)
    return rename(b.build(), order)


@algorithm("scatter", "binomial_tree")
def binomial_tree_scatter(ranks: int, root: int = 0, *, order: Sequence[int] | None = None) -> Schedule:
    """Binomial tree, farthest rank first: with its block a rank gets those of all ranks below it.

    ``ceil(log2 N) alpha + (N-1)/N S/B`` for powers of two. Counted from the root, v sends to v + m the blocks v + m to
    v + 2m - 1, for m = ..., 4, 2, 1; the last subtree is cut short where N is no power of two.

    Parameters
    ----------
    ranks, root
        Any number from 1; any rank.
    order
        Ranks in the order in which the tree numbers them, starting at the root.

    Examples
    --------
    >>> print(binomial_tree_scatter(6))
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
        4 -> 5  5
    """
    return _binomial_scatter(ranks, root, order, 1)


@algorithm("gather", "binomial_tree")
def binomial_tree_gather(ranks: int, root: int = 0, *, order: Sequence[int] | None = None) -> Schedule:
    """Binomial gather: the scatter turned round. ``ceil(log2 N) alpha + (N-1)/N S/B`` for powers of two.

    Parameters as in `binomial_tree_scatter`.

    Examples
    --------
    >>> print(binomial_tree_gather(3, root=2))
    gather ranks=3 chunks=3 root=2
    algorithm binomial_tree
    repeat 1
      step 0
        0 -> 2  0
      step 1
        1 -> 2  1
    """
    return reverse(binomial_tree_scatter(ranks, root, order=order), "gather")


@algorithm("broadcast", "scatter_all_gather")
def scatter_all_gather_broadcast(
    ranks: int, root: int = 0, *, order: Sequence[int] | None = None, all_gather: str = "ring"
) -> Schedule:
    """Binomial scatter of the message, then an all_gather of its pieces.

    With a ring: ``(ceil(log2 N) + N-1) alpha + 2(N-1)/N S/B``; with an all_gather of ``ceil(log2 N)`` steps, such as
    ``circulant`` (any N) or ``recursive_doubling`` (powers of two): ``2 ceil(log2 N) alpha + 2(N-1)/N S/B``.

    Parameters
    ----------
    ranks, root
        Any number from 1 that the all_gather takes; any rank.
    order
        Ranks in the order in which tree and all_gather number them.
    all_gather
        Name of the algorithm that gathers.

    Examples
    --------
    >>> print(scatter_all_gather_broadcast(3))
    broadcast ranks=3 chunks=3 root=0
    algorithm scatter_all_gather {"all_gather": "ring"}
    repeat 1
      step 0
        0 -> 2  2
      step 1
        0 -> 1  1
    repeat 2 shift=-1 window=3
      step 0
        0 -> 1  0
        1 -> 2  1
        2 -> 0  2
    """
    gather = find("all_gather", all_gather)(ranks)
    scatter = _binomial_scatter(ranks, _position(ranks, root, order), None, gather.chunks // ranks)
    return rename(then(scatter, gather, "broadcast"), order)


@algorithm("reduce", "reduce_scatter_gather")
def reduce_scatter_gather_reduce(
    ranks: int, root: int = 0, *, order: Sequence[int] | None = None, reduce_scatter: str = "ring"
) -> Schedule:
    """Reduce_scatter, then a binomial gather of the sums.

    With a ring: ``(N-1 + ceil(log2 N)) alpha + 2(N-1)/N S/B + (N-1)/N S gamma``; with a reduce_scatter of
    ``ceil(log2 N)`` steps that many alphas in its place (Rabenseifner's reduce).

    Parameters
    ----------
    ranks, root
        Any number from 1 that the reduce_scatter takes; any rank.
    order
        Ranks in the order in which reduce_scatter and tree number them.
    reduce_scatter
        Name of the algorithm that reduces.

    Examples
    --------
    >>> reduce_scatter_gather_reduce(8)
    <Schedule reduce_scatter_gather reduce ranks=8 chunks=8 steps=10 transfers=63>
    """
    reduce = find("reduce_scatter", reduce_scatter)(ranks)
    scatter = _binomial_scatter(ranks, _position(ranks, root, order), None, reduce.chunks // ranks)
    return rename(then(reduce, reverse(scatter, "gather"), "reduce"), order)


def _position(ranks: int, root: int, order: Sequence[int] | None) -> int:
    return int(np.flatnonzero(rank_order(ranks, order) == root)[0])
