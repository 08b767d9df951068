"""Binomial trees: the number of ranks that hold the data doubles in every step.

Least latency for small messages (log2 N steps); every step moves the whole message. Far-first order, as in MPICH: the
first message of the root goes to the rank half way round.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collsim.algorithms.common import from_root, rank_order
from collsim.algorithms.derive import reverse, then
from collsim.algorithms.registry import algorithm
from collsim.collective import Collective
from collsim.schedule import Schedule, ScheduleBuilder

__all__ = ["binomial_tree_all_reduce", "binomial_tree_broadcast", "binomial_tree_reduce"]


@algorithm("broadcast", "binomial_tree")
def binomial_tree_broadcast(ranks: int, root: int = 0, *, order: Sequence[int] | None = None) -> Schedule:
    """Whoever has the message sends it on: ``ceil(log2 N) (alpha + S/B)`` for powers of two.

    Parameters
    ----------
    ranks, root
        Any number from 1; any rank.
    order
        Ranks in the order in which the tree numbers them, starting at the root.

    Examples
    --------
    >>> print(binomial_tree_broadcast(6))
    broadcast ranks=6 chunks=1 root=0
    algorithm binomial_tree
    repeat 1
      step 0
        0 -> 4  0
      step 1
        0 -> 2  0
      step 2
        0 -> 1  0
        2 -> 3  0
        4 -> 5  0
    """
    name = from_root(ranks, root, order)
    child = np.arange(1, ranks)
    lowest = child & -child  # a rank hears from the one without its lowest bit
    step = (ranks - 1).bit_length() - 1 - np.log2(lowest).astype(np.int64)
    b = ScheduleBuilder(Collective("broadcast", ranks, root), 1)
    b.copy(name[child - lowest], name[child], step=step)
    return b.build()


@algorithm("reduce", "binomial_tree")
def binomial_tree_reduce(ranks: int, root: int = 0, *, order: Sequence[int] | None = None) -> Schedule:
    """Binomial reduce: the broadcast with all arrows and steps turned round.

    ``ceil(log2 N) (alpha + S/B + S gamma)`` for powers of two. Parameters as in `binomial_tree_broadcast`.

    Examples
    --------
    >>> binomial_tree_reduce(6)
    <Schedule binomial_tree reduce ranks=6 chunks=1 steps=3 transfers=5>
    """
    return reverse(binomial_tree_broadcast(ranks, root, order=order), "reduce")


@algorithm("all_reduce", "binomial_tree")
def binomial_tree_all_reduce(ranks: int, *, order: Sequence[int] | None = None) -> Schedule:
    """Binomial reduce to the first rank, then binomial broadcast from it.

    ``2 ceil(log2 N) (alpha + S/B) + ceil(log2 N) S gamma`` for powers of two. Parameters as in
    `binomial_tree_broadcast`.

    Examples
    --------
    >>> binomial_tree_all_reduce(6)
    <Schedule binomial_tree all_reduce ranks=6 chunks=1 steps=6 transfers=10>
    """
    down = binomial_tree_broadcast(ranks, int(rank_order(ranks, order)[0]), order=order)
    return then(reverse(down, "reduce"), down, "all_reduce")
