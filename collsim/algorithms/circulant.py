"""Circulant graphs with roughly halving skips: any number of ranks in ceil(log2 N) steps and not a byte too many.

Rank r keeps its blocks by their distance: R[i] is block (r+i) mod N. The skips are N, ceil(N/2), ceil(N/4), ... down to
1 (5, 3, 2, 1); while gathering they ascend. For powers of two this is recursive halving and doubling on shifted peers
(Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from collsim.algorithms.common import refuse_rows
from collsim.algorithms.derive import rename, reverse, then
from collsim.algorithms.registry import algorithm
from collsim.collective import Collective
from collsim.schedule import Schedule, ScheduleBuilder

__all__ = ["circulant_all_gather", "circulant_all_reduce", "circulant_reduce_scatter"]


def _all_gather(ranks: int) -> Schedule:
    refuse_rows(ranks * (ranks - 1).bit_length())
    skips = [ranks]
    while skips[-1] > 1:
        skips.append((skips[-1] + 1) // 2)
    b = ScheduleBuilder(Collective("all_gather", ranks), ranks)
    rank = np.arange(ranks)
    for step, (skip, next_skip) in enumerate(pairwise(skips[::-1])):
        b.copy(rank, (rank - skip) % ranks, rank, count=next_skip - skip, step=step)
    return b.build()


@algorithm("all_gather", "circulant")
def circulant_all_gather(ranks: int, *, order: Sequence[int] | None = None) -> Schedule:
    """For skips b, a ascending from 1 to N, each rank sends R[0] to R[a-b-1] to the rank b before it.

    ``ceil(log2 N) alpha + (N-1)/N S/B``; a rank sends N-1 blocks.

    Parameters
    ----------
    ranks
        Any number from 1.
    order
        Ranks in ring order.

    Examples
    --------
    >>> print(circulant_all_gather(5))
    all_gather ranks=5 chunks=5
    algorithm circulant
    repeat 1
      step 0
        0 -> 4  0
        1 -> 0  1
        2 -> 1  2
        3 -> 2  3
        4 -> 3  4
      step 1
        0 -> 3  0
        1 -> 4  1
        2 -> 0  2
        3 -> 1  3
        4 -> 2  4
      step 2
        0 -> 2  0+2
        1 -> 3  1+2
        2 -> 4  2+2
        3 -> 0  3+2
        4 -> 1  4+2
    """
    return rename(_all_gather(ranks), order)


@algorithm("reduce_scatter", "circulant")
def circulant_reduce_scatter(ranks: int, *, order: Sequence[int] | None = None) -> Schedule:
    """For skips a, b descending from N to 1, each rank sends R[b] to R[a-1] to the rank b behind it, which adds them.

    ``ceil(log2 N) alpha + (N-1)/N S (1/B + gamma)``; a rank sends N-1 blocks. Parameters as in `circulant_all_gather`.

    Examples
    --------
    >>> print(circulant_reduce_scatter(3))
    reduce_scatter ranks=3 chunks=3
    algorithm circulant
    repeat 1
      step 0
        0 => 2  2
        1 => 0  0
        2 => 1  1
      step 1
        0 => 1  1
        1 => 2  2
        2 => 0  0
    """
    return rename(reverse(_all_gather(ranks), "reduce_scatter"), order)


@algorithm("all_reduce", "circulant")
def circulant_all_reduce(ranks: int, *, order: Sequence[int] | None = None) -> Schedule:
    """Circulant reduce_scatter, then circulant all_gather.

    ``2 ceil(log2 N) alpha + (N-1)/N S (2/B + gamma)``. Parameters as in `circulant_all_gather`.

    Examples
    --------
    >>> circulant_all_reduce(7).steps
    6
    """
    gather = _all_gather(ranks)
    return rename(then(reverse(gather, "reduce_scatter"), gather, "all_reduce"), order)
