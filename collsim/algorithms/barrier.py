"""Barriers: no rank leaves before it has heard of all others. Messages are empty, so they cost their latency."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collsim.algorithms.binomial_tree import binomial_tree_all_reduce
from collsim.algorithms.common import refuse_rows
from collsim.algorithms.registry import algorithm
from collsim.collective import Collective
from collsim.schedule import Schedule, ScheduleBuilder

__all__ = ["dissemination_barrier", "tree_barrier"]


@algorithm("barrier", "dissemination")
def dissemination_barrier(ranks: int) -> Schedule:
    """In round k rank r tells r + 2^k whom it has heard of: ``ceil(log2 N) alpha``.

    (Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", 1988.)

    Parameters
    ----------
    ranks
        Any number from 1.

    Examples
    --------
    >>> print(dissemination_barrier(3))
    barrier ranks=3 chunks=1
    algorithm dissemination
    repeat 1
      step 0
        0 => 1  0
        1 => 2  0
        2 => 0  0
      step 1
        0 => 2  0
        1 => 0  0
        2 => 1  0
    """
    refuse_rows(ranks * (ranks - 1).bit_length())
    b = ScheduleBuilder(Collective("barrier", ranks), 1)
    number, src = (a.ravel() for a in np.indices(((ranks - 1).bit_length(), ranks)))
    b.reduce(src, (src + (1 << number)) % ranks, step=number)
    return b.build()


@algorithm("barrier", "tree")
def tree_barrier(ranks: int) -> Schedule:
    """All report to rank 0 along a binomial tree, and it lets them go: ``2 ceil(log2 N) alpha`` for powers of two.

    Half as many messages as ranks in every step, 2(N-1) in all; dissemination sends ``N ceil(log2 N)``.

    Parameters
    ----------
    ranks
        Any number from 1.

    Examples
    --------
    >>> print(tree_barrier(3))
    barrier ranks=3 chunks=1
    algorithm tree
    repeat 1
      step 0
        1 => 0  0
      step 1
        2 => 0  0
    repeat 1
      step 0
        0 -> 2  0
      step 1
        0 -> 1  0
    """
    return replace(binomial_tree_all_reduce(ranks), collective=Collective("barrier", ranks))
