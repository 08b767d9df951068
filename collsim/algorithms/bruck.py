"""Bruck's algorithm: everybody sends what it has to the rank m before it, m = 1, 2, 4, ...

Fewest steps for any number of ranks; blocks travel far when they are many, so it is one for small messages (Bruck, Ho,
Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications in multiport message-passing systems",
1997). Software keeps rank r's blocks in the order r, r+1, ... and turns them at the end, block (r+i) mod N from place
i: a local copy, which is not charged here, as the chunks of a schedule are where they belong from the start.
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

__all__ = ["bruck_all_gather", "bruck_all_reduce", "bruck_reduce_scatter"]


def _all_gather(ranks: int, radix: int) -> Schedule:
    at_least_one(radix=radix)
    if radix < 2:
        raise AlgorithmError(f"radix: expected at least 2, got {radix}")
    refuse_rows(ranks * (min(radix, ranks) - 1) * (ranks - 1).bit_length())
    b = ScheduleBuilder(Collective("all_gather", ranks), ranks)
    rank = np.arange(ranks)
    held, step = 1, 0
    while held < ranks:
        for distance in range(held, min(ranks, radix * held), held):
            b.copy(rank, (rank - distance) % ranks, rank, count=min(held, ranks - distance), step=step)
        held, step = held * radix, step + 1
    return b.build()


@algorithm("all_gather", "bruck")
def bruck_all_gather(ranks: int, *, order: Sequence[int] | None = None, radix: int = 2) -> Schedule:
    """In round i a rank sends its first radix^i blocks to the ranks j radix^i before it, 0 < j < radix.

    ``ceil(log_radix N)`` rounds of up to radix - 1 messages at once; ``ceil(log2 N) alpha + (N-1)/N S/B`` for radix 2.
    A rank sends N-1 blocks. The rotation at the end is not charged.

    Parameters
    ----------
    ranks
        Any number from 1.
    order
        Ranks in ring order.
    radix
        By how much the blocks that a rank holds are multiplied in a round, at least 2.

    Examples
    --------
    >>> print(bruck_all_gather(5))
    all_gather ranks=5 chunks=5
    algorithm bruck {"radix": 2}
    repeat 1
      step 0
        0 -> 4  0
        1 -> 0  1
        2 -> 1  2
        3 -> 2  3
        4 -> 3  4
      step 1
        0 -> 3  0+2
        1 -> 4  1+2
        2 -> 0  2+2
        3 -> 1  3+2
        4 -> 2  4+2
      step 2
        0 -> 1  0
        1 -> 2  1
        2 -> 3  2
        3 -> 4  3
        4 -> 0  4
    """
    return rename(_all_gather(ranks, radix), order)


@algorithm("reduce_scatter", "bruck")
def bruck_reduce_scatter(ranks: int, *, order: Sequence[int] | None = None, radix: int = 2) -> Schedule:
    """Run the all_gather backwards: ``ceil(log2 N) alpha + (N-1)/N S (1/B + gamma)``.

    Parameters as in `bruck_all_gather`.

    Examples
    --------
    >>> bruck_reduce_scatter(9, radix=3).steps
    2
    """
    return rename(reverse(_all_gather(ranks, radix), "reduce_scatter"), order)


@algorithm("all_reduce", "bruck")
def bruck_all_reduce(ranks: int, *, order: Sequence[int] | None = None, radix: int = 2) -> Schedule:
    """Reduce_scatter, then all_gather: ``2 ceil(log2 N) alpha + (N-1)/N S (2/B + gamma)``.

    Parameters as in `bruck_all_gather`.

    Examples
    --------
    >>> bruck_all_reduce(5).steps
    6
    """
    gather = _all_gather(ranks, radix)
    return rename(then(reverse(gather, "reduce_scatter"), gather, "all_reduce"), order)
