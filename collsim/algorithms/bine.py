"""Bine (binomial negabinary) trees and butterflies: binomial ones whose hops are a third shorter.

The partner of rank r at distance s is ``r + rho(s)`` for even r and ``r - rho(s)`` for odd r, rho(s) = 1, -1, 3, -5,
11, ...: what the numbers of ranks in base -2 differ by (De Sensi, Saha, Bonato and Hoefler, "Bine trees: enhancing
collective operations by optimizing communication locality", 2025). Swing is the butterfly of these trees on a torus.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.algorithms import butterfly
from collsim.algorithms.common import from_root
from collsim.algorithms.derive import rename, reverse, then
from collsim.algorithms.registry import algorithm
from collsim.algorithms.swing import swing_peers
from collsim.collective import Collective
from collsim.errors import AlgorithmError
from collsim.schedule import Schedule, ScheduleBuilder

__all__ = ["bine_all_gather", "bine_all_reduce", "bine_broadcast", "bine_reduce", "bine_reduce_scatter"]

Array = npt.NDArray[Any]

DISTANCES = ("halving", "doubling")


def _peers(ranks: int, distance: str, instead: str) -> list[Array]:
    """Peers of all ranks, nearest first for doubling, farthest first for halving."""
    butterfly.choice("distance", distance, DISTANCES)
    if ranks % 2 and ranks > 1:
        raise AlgorithmError(f"ranks: bine takes an even number of ranks, got {ranks}; use {instead}")
    peers = swing_peers(ranks)
    return peers if distance == "doubling" else peers[::-1]


def _broadcast(ranks: int, distance: str) -> Schedule:
    peers = _peers(ranks, distance, "binomial_tree")  # refuses too many ranks
    b = ScheduleBuilder(Collective("broadcast", ranks), 1)
    has_it = np.arange(ranks) == 0
    for step, peer in enumerate(peers):
        holders = np.flatnonzero(has_it)
        holders = holders[~has_it[peer[holders]]]
        b.copy(holders, peer[holders], step=step)
        has_it[peer[holders]] = True
    return b.build()


@algorithm("broadcast", "bine")
def bine_broadcast(
    ranks: int, root: int = 0, *, order: Sequence[int] | None = None, distance: str = "halving"
) -> Schedule:
    """Whoever has the message sends it to its partner: ``ceil(log2 N) (alpha + S/B)``.

    Parameters
    ----------
    ranks, root
        Any even number, or 1; any rank.
    order
        Ranks in the order in which the tree numbers them, starting at the root.
    distance
        ``"halving"``: farthest partner first; ``"doubling"``: nearest first.

    Examples
    --------
    >>> print(bine_broadcast(8))
    broadcast ranks=8 chunks=1 root=0
    algorithm bine {"distance": "halving"}
    repeat 1
      step 0
        0 -> 3  0
      step 1
        0 -> 7  0
        3 -> 4  0
      step 2
        0 -> 1  0
        3 -> 2  0
        4 -> 5  0
        7 -> 6  0
    """
    return rename(_broadcast(ranks, distance), from_root(ranks, root, order).tolist())


@algorithm("reduce", "bine")
def bine_reduce(
    ranks: int, root: int = 0, *, order: Sequence[int] | None = None, distance: str = "halving"
) -> Schedule:
    """Run the broadcast backwards: ``ceil(log2 N) (alpha + S/B + S gamma)``. Parameters as in `bine_broadcast`.

    Examples
    --------
    >>> bine_reduce(8, root=3)
    <Schedule bine reduce ranks=8 chunks=1 steps=3 transfers=7>
    """
    return rename(reverse(_broadcast(ranks, distance), "reduce"), from_root(ranks, root, order).tolist())


def _all_gather(ranks: int, distance: str) -> Schedule:
    return butterfly.all_gather(ranks, [_peers(ranks, distance, "circulant, bruck or swing")])


@algorithm("all_gather", "bine")
def bine_all_gather(ranks: int, *, order: Sequence[int] | None = None, distance: str = "halving") -> Schedule:
    """Each rank sends its partner the blocks that the partner lacks: ``ceil(log2 N) alpha + (N-1)/N S/B``.

    Parameters
    ----------
    ranks
        Any even number, or 1.
    order
        Ranks in the order in which the algorithm numbers them.
    distance
        ``"halving"``: farthest partner first, so that much data stays near; ``"doubling"``: nearest first.

    Examples
    --------
    >>> print(bine_all_gather(4, distance="doubling"))
    all_gather ranks=4 chunks=4
    algorithm bine {"distance": "doubling"}
    repeat 1
      step 0
        0 -> 1  0
        1 -> 0  1
        2 -> 3  2
        3 -> 2  3
      step 1
        0 -> 3  0+2
        1 -> 2  0+2
        2 -> 1  2+2
        3 -> 0  2+2
    """
    return rename(_all_gather(ranks, _other(distance)), order)


@algorithm("reduce_scatter", "bine")
def bine_reduce_scatter(ranks: int, *, order: Sequence[int] | None = None, distance: str = "doubling") -> Schedule:
    """Run the all_gather backwards: ``ceil(log2 N) alpha + (N-1)/N S (1/B + gamma)``.

    Parameters
    ----------
    ranks, order
        As in `bine_all_gather`.
    distance
        ``"doubling"``: nearest partner first, so that much data stays near; ``"halving"``: farthest first.

    Examples
    --------
    >>> bine_reduce_scatter(8).steps
    3
    """
    return rename(reverse(_all_gather(ranks, distance), "reduce_scatter"), order)


@algorithm("all_reduce", "bine")
def bine_all_reduce(
    ranks: int,
    *,
    order: Sequence[int] | None = None,
    distance: str = "doubling",
    version: str = "bandwidth",
    fold: str = "full",
) -> Schedule:
    """Reduce_scatter, then all_gather: ``2 ceil(log2 N) alpha + (N-1)/N S (2/B + gamma)`` for even N.

    Parameters
    ----------
    ranks
        Any number from 1. The bandwidth version of odd N and the latency version of what is no power of two run on the
        greatest power of two below.
    order
        Ranks in the order in which the algorithm numbers them.
    distance
        Of the partners while reducing, as in `bine_reduce_scatter`.
    version
        ``"bandwidth"``, or ``"latency"``: whole vectors are exchanged, ``log2(N) (alpha + S/B + S gamma)``. In that
        one ranks add up in different orders if the distance doubles: sums of floats may differ in their last bits.
    fold
        What the ranks above a power of two do, as in `collsim.algorithms.halving_doubling` (``"split"``: bandwidth
        only).

    Examples
    --------
    >>> bine_all_reduce(8).steps, bine_all_reduce(8, version="latency").steps, bine_all_reduce(9).steps
    (6, 3, 8)
    """
    butterfly.choice("version", version, ("bandwidth", "latency"))
    butterfly.choice("distance", distance, DISTANCES)

    def core(power: int) -> Schedule:
        if version == "latency":
            return butterfly.all_reduce(power, [_peers(power, distance, "")], 0)
        gather = _all_gather(power, distance)
        return then(reverse(gather, "reduce_scatter"), gather, "all_reduce")

    butterfly.choice("fold", fold, butterfly.FOLDS)
    if version == "bandwidth" and ranks % 2 == 0:
        return rename(core(ranks), order)
    return rename(butterfly.folded(ranks, core, fold), order)


def _other(distance: str) -> str:
    """Distance while reducing of what gathers with this one."""
    butterfly.choice("distance", distance, DISTANCES)
    return "halving" if distance == "doubling" else "doubling"
