"""Recursive doubling: in step k rank r meets rank r XOR 2^k, and both leave with what the two had.

Fewest steps of all for an all_reduce, at the price of the whole vector in every step: for small messages (Thakur,
Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005).
"""

from __future__ import annotations

from collections.abc import Sequence

from collsim.algorithms import butterfly
from collsim.algorithms.derive import rename
from collsim.algorithms.registry import algorithm
from collsim.schedule import Schedule

__all__ = ["recursive_doubling_all_gather", "recursive_doubling_all_reduce"]


@algorithm("all_reduce", "recursive_doubling")
def recursive_doubling_all_reduce(ranks: int, *, order: Sequence[int] | None = None) -> Schedule:
    """Whole vectors are exchanged with rank r XOR 1, 2, 4, ...; both sides add them up.

    ``l (alpha + S/B + S gamma)`` for N = 2^l. Other N, with p = 2^l below N: in one step before, the even ones of the
    first 2 (N - p) ranks hand their vectors to their right neighbours, and get the result in one step after:
    ``(l+2) (alpha + S/B) + (l+1) S gamma``. A rank sends ``l S``, or up to ``(l+1) S``.

    Parameters
    ----------
    ranks
        Any number from 1.
    order
        Ranks in the order in which the algorithm numbers them.

    Examples
    --------
    >>> print(recursive_doubling_all_reduce(6))
    all_reduce ranks=6 chunks=1
    algorithm recursive_doubling
    repeat 1
      step 0
        0 => 1  0
        2 => 3  0
    repeat 1
      step 0
        1 => 3  0
        3 => 1  0
        4 => 5  0
        5 => 4  0
      step 1
        1 => 4  0
        3 => 5  0
        4 => 1  0
        5 => 3  0
    repeat 1
      step 0
        1 -> 0  0
        3 -> 2  0
    """

    def core(power: int) -> Schedule:
        return butterfly.all_reduce(power, [butterfly.xor_peers(power, "doubling")], 0)

    return rename(butterfly.folded(ranks, core, "full"), order)


@algorithm("all_gather", "recursive_doubling")
def recursive_doubling_all_gather(ranks: int, *, order: Sequence[int] | None = None) -> Schedule:
    """Each rank sends all the blocks that it holds to rank r XOR 1, 2, 4, ...

    ``log2(N) alpha + (N-1)/N S/B``. The blocks are contiguous, and the largest messages go farthest.

    Parameters
    ----------
    ranks
        A power of two.
    order
        Ranks in the order in which the algorithm numbers them.

    Examples
    --------
    >>> print(recursive_doubling_all_gather(4))
    all_gather ranks=4 chunks=4
    algorithm recursive_doubling
    repeat 1
      step 0
        0 -> 1  0
        1 -> 0  1
        2 -> 3  2
        3 -> 2  3
      step 1
        0 -> 2  0+2
        1 -> 3  0+2
        2 -> 0  2+2
        3 -> 1  2+2
    """
    butterfly.refuse_other_than_powers(ranks, "recursive doubling", "bruck or circulant")
    return rename(butterfly.all_gather(ranks, [butterfly.xor_peers(ranks, "halving")]), order)
