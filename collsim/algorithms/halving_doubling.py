"""Recursive halving and doubling (Rabenseifner): halve the vector while reducing, double it while copying.

Optimal in bandwidth and, but for a factor of two, in steps on any network without contention (Rabenseifner,
"Optimization of collective reduction operations", 2004; Thakur, Rabenseifner and Gropp, 2005).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collsim.algorithms import butterfly
from collsim.algorithms.derive import rename, reverse
from collsim.algorithms.registry import algorithm
from collsim.errors import AlgorithmError
from collsim.schedule import Schedule

__all__ = ["halving_doubling_all_reduce", "halving_doubling_reduce_scatter"]

DISTANCES = ("doubling", "halving")


@algorithm("all_reduce", "halving_doubling")
def halving_doubling_all_reduce(
    ranks: int,
    *,
    order: Sequence[int] | None = None,
    distance: str = "doubling",
    fold: str = "full",
    halvings: int | None = None,
) -> Schedule:
    """Reduce_scatter by halves, then all_gather back over the same peers.

    With p = 2^l the greatest power of two up to N: ``2 l alpha + 2 (p-1)/p S/B + (p-1)/p S gamma``, and for other N
    what the fold adds: ``2 alpha + 2 S/B + S gamma`` (full), ``3 alpha + 2 S/B + S/2 gamma`` (split). With t halvings
    only: ``(l+t) alpha + (2 (1 - 2^-t) + (l-t) 2^-t) S/B``.

    Parameters
    ----------
    ranks
        Any number from 1.
    order
        Ranks in the order in which the algorithm numbers them.
    distance
        Of the peers while reducing: ``"doubling"`` sends the largest messages to neighbours, ``"halving"`` to the rank
        half way round.
    fold
        What the ranks above the power of two do: ``"full"``: the even ones of the first 2 (N - p) ranks hand all to
        their right neighbours; ``"split"`` (as in Open MPI): both of such a pair add up one half, and the even one goes
        on. Written edges let it have the other half back before others add to that.
    halvings
        How many of the l levels halve; the others exchange what is left, as in recursive doubling (0: nothing but
        that). Fewer steps for more bytes. All if not given.

    Examples
    --------
    >>> print(halving_doubling_all_reduce(4))
    all_reduce ranks=4 chunks=4
    algorithm halving_doubling {"distance": "doubling", "fold": "full"}
    repeat 1
      step 0
        0 => 1  2+2
        1 => 0  0+2
        2 => 3  2+2
        3 => 2  0+2
      step 1
        0 => 2  1
        1 => 3  3
        2 => 0  0
        3 => 1  2
      step 2
        0 -> 2  0
        1 -> 3  2
        2 -> 0  1
        3 -> 1  3
      step 3
        0 -> 1  0+2
        1 -> 0  2+2
        2 -> 3  0+2
        3 -> 2  2+2
    """
    butterfly.choice("distance", distance, DISTANCES)
    levels = ranks.bit_length() - 1
    if halvings is None:
        halvings = levels
    elif not isinstance(halvings, (int, np.integer)) or isinstance(halvings, bool) or not 0 <= halvings <= levels:
        raise AlgorithmError(f"halvings: expected a whole number from 0 to {levels}, got {halvings!r}")

    def core(power: int) -> Schedule:
        return butterfly.all_reduce(power, [butterfly.xor_peers(power, distance)], halvings)

    return rename(butterfly.folded(ranks, core, fold), order)


@algorithm("reduce_scatter", "halving_doubling")
def halving_doubling_reduce_scatter(
    ranks: int, *, order: Sequence[int] | None = None, distance: str = "halving"
) -> Schedule:
    """Recursive halving: each rank sends its peer the half of its blocks that the peer is to own.

    ``log2(N) (alpha) + (N-1)/N S (1/B + gamma)``.

    Parameters
    ----------
    ranks
        A power of two.
    order
        Ranks in the order in which the algorithm numbers them.
    distance
        Of the peers, from step to step: ``"halving"`` sends ranges of blocks; with ``"doubling"`` the large messages
        stay near, and their blocks are those whose numbers have the same last bits (rank r owns block r all the same).

    Examples
    --------
    >>> print(halving_doubling_reduce_scatter(4))
    reduce_scatter ranks=4 chunks=4
    algorithm halving_doubling {"distance": "halving"}
    repeat 1
      step 0
        0 => 2  2+2
        1 => 3  2+2
        2 => 0  0+2
        3 => 1  0+2
      step 1
        0 => 1  1
        1 => 0  0
        2 => 3  3
        3 => 2  2
    """
    butterfly.choice("distance", distance, DISTANCES)
    butterfly.refuse_other_than_powers(ranks, "recursive halving", "circulant")
    gather = butterfly.all_gather(ranks, [butterfly.xor_peers(ranks, distance)])
    return rename(reverse(gather, "reduce_scatter"), order)
