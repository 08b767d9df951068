"""PAT, parallel aggregated trees: Bruck's binomial trees with the dimensions turned round, far hops first.

While a rank holds few blocks they go far, and what goes near is much. All blocks that a rank moves in a step go to one
peer in one message (Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", 2025; in
NCCL from 2.23, whose direction is the other way round).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collsim.algorithms.common import at_least_one, refuse_rows
from collsim.algorithms.derive import rename, reverse, then
from collsim.algorithms.registry import algorithm
from collsim.collective import Collective
from collsim.errors import AlgorithmError
from collsim.schedule import Schedule, ScheduleBuilder

__all__ = ["pat_all_gather", "pat_all_reduce", "pat_reduce_scatter"]


def _hops(offset: int, distance: int) -> list[tuple[int, int]]:
    """Walk down a binomial tree, far child first, each subtree to its end: (offset, hop) of each edge."""
    found = []
    while distance:
        found.append((offset, distance))
        found += _hops(offset + distance, distance // 2)
        distance //= 2
    return found


def _all_gather(ranks: int, aggregation: int | None) -> Schedule:
    levels = (ranks - 1).bit_length()
    if aggregation is None:
        aggregation = 1 << levels
    at_least_one(aggregation=aggregation)
    if aggregation & (aggregation - 1):
        raise AlgorithmError(f"aggregation: expected a power of two, got {aggregation}")
    size = 1 << levels
    aggregated = min(aggregation.bit_length() - 1, levels)
    walked = size >> aggregated  # ranks that lie between two of those reached in the aggregated steps
    refuse_rows(ranks * (aggregated + walked))
    b = ScheduleBuilder(Collective("all_gather", ranks), ranks)
    rank = np.arange(ranks)
    # (offset from the owner, hop, distance between the blocks of a message)
    steps = [(0, size >> (level + 1), size >> level) for level in range(aggregated)]
    steps += [(offset, hop, walked) for offset, hop in _hops(0, walked // 2)]
    steps = [(offset, hop, stride) for offset, hop, stride in steps if offset + hop < ranks]
    for step, (offset, hop, stride) in enumerate(steps):
        count = len(range(offset + hop, ranks, stride))
        b.copy(rank, (rank + hop) % ranks, (rank - offset) % ranks, count=count, stride=-stride, step=step)
    return b.build()


@algorithm("all_gather", "pat")
def pat_all_gather(ranks: int, *, order: Sequence[int] | None = None, aggregation: int | None = None) -> Schedule:
    """Each block goes down a binomial tree of the ranks behind its owner; a rank that far off sends it half as far on.

    All in ``ceil(log2 N)`` steps: ``ceil(log2 N) alpha + (N-1)/N S/B``. With messages of at most A blocks the first
    log2(A) steps are as before, and the rest of the trees is walked one hop a step, so that a rank keeps few blocks at
    a time: ``log2(A) + N/A - 1`` steps for powers of two. A rank sends N-1 blocks in any case.

    Parameters
    ----------
    ranks
        Any number from 1.
    order
        Ranks in ring order.
    aggregation
        Most blocks of a message, a power of two; as many as there are if not given.

    Examples
    --------
    >>> print(pat_all_gather(5))
    all_gather ranks=5 chunks=5
    algorithm pat
    repeat 1
      step 0
        0 -> 4  0+1*-8
        1 -> 0  1+1*-8
        2 -> 1  2+1*-8
        3 -> 2  3+1*-8
        4 -> 3  4+1*-8
      step 1
        0 -> 2  0+1*-4
        1 -> 3  1+1*-4
        2 -> 4  2+1*-4
        3 -> 0  3+1*-4
        4 -> 1  4+1*-4
      step 2
        0 -> 1  0+2*-2
        1 -> 2  1+2*-2
        2 -> 3  2+2*-2
        3 -> 4  3+2*-2
        4 -> 0  4+2*-2

    >>> [pat_all_gather(16, aggregation=a).steps for a in (1, 2, 4, 8)]
    [15, 8, 5, 4]
    """
    return rename(_all_gather(ranks, aggregation), order)


@algorithm("reduce_scatter", "pat")
def pat_reduce_scatter(ranks: int, *, order: Sequence[int] | None = None, aggregation: int | None = None) -> Schedule:
    """Run the all_gather backwards: near hops with much data first, far hops with little last.

    ``ceil(log2 N) alpha + (N-1)/N S (1/B + gamma)``. Parameters as in `pat_all_gather`.

    Examples
    --------
    >>> pat_reduce_scatter(5).steps
    3
    """
    return rename(reverse(_all_gather(ranks, aggregation), "reduce_scatter"), order)


@algorithm("all_reduce", "pat")
def pat_all_reduce(ranks: int, *, order: Sequence[int] | None = None, aggregation: int | None = None) -> Schedule:
    """Reduce_scatter, then all_gather: ``2 ceil(log2 N) alpha + (N-1)/N S (2/B + gamma)``.

    Parameters as in `pat_all_gather`.

    Examples
    --------
    >>> pat_all_reduce(5).steps
    6
    """
    gather = _all_gather(ranks, aggregation)
    return rename(then(reverse(gather, "reduce_scatter"), gather, "all_reduce"), order)
