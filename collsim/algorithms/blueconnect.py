"""BlueConnect: an all_reduce cut into one stage for each factor of the number of ranks.

A hierarchy (GPUs of a socket, sockets of a node, nodes of a rack, racks) is a product of groups. The reduce_scatter
goes through the levels from the fastest to the slowest, each on the share that the levels before have left; the
all_gather goes back (Cho, Finkler, Serrano, Kung and Hunter, "BlueConnect: Decomposing all-reduce for deep learning on
heterogeneous network hierarchy", 2019). With two factors it is the hierarchical algorithm, on a torus the bucket one,
with all factors 2 halving and doubling.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collsim.algorithms.common import refuse_rows
from collsim.algorithms.embed import Level, Nest, named
from collsim.algorithms.registry import algorithm
from collsim.algorithms.torus import sizes
from collsim.schedule import Schedule

__all__ = ["blueconnect_all_gather", "blueconnect_all_reduce", "blueconnect_reduce_scatter"]


def _primes(ranks: int) -> tuple[int, ...]:
    """Prime factors, the smallest first."""
    found, rest, factor = [], ranks, 2
    while factor * factor <= rest:
        while rest % factor == 0:
            found.append(factor)
            rest //= factor
        factor += 1
    return (*found, rest) if rest > 1 or not found else tuple(found)


def _blueconnect(operation: str, ranks: int, levels: Sequence[int] | None, inner: str) -> Schedule:
    refuse_rows(ranks)
    found = [size for size in sizes(ranks, _primes(ranks) if levels is None else levels, "levels") if size > 1] or [1]
    nested = [
        Level(
            axis,
            None if operation == "all_gather" else named("inner", "reduce_scatter", inner, found[axis]),
            None if operation == "reduce_scatter" else named("inner", "all_gather", inner, found[axis]),
        )
        for axis in reversed(range(len(found)))
    ]
    return Nest(np.arange(ranks).reshape(found), nested).build(operation)


@algorithm("all_reduce", "blueconnect")
def blueconnect_all_reduce(ranks: int, *, levels: Sequence[int] | None = None, inner: str = "ring") -> Schedule:
    """Reduce_scatter through all factors of the ranks, the last (fastest) one first, then all_gather the way back.

    With rings and factors p_1 (the fastest), p_2, ...: ``sum_i 2(p_i - 1) (alpha_i + S/(p_1 ... p_i B_i))``, plus
    ``(N-1)/N S gamma``.

    Parameters
    ----------
    ranks
        Any number from 1.
    levels
        Factors whose product is ``ranks``, numbered row-major: the last one counts neighbouring ranks, the fastest
        level. The prime factors if not given (`collsim.run` takes the topology's).
    inner
        Name of the algorithm of all levels; it needs a reduce_scatter and an all_gather.

    Examples
    --------
    Racks of two nodes of two GPUs:

    >>> print(blueconnect_all_reduce(4, levels=(2, 2)))
    all_reduce ranks=4 chunks=4
    algorithm blueconnect {"levels": [2, 2], "inner": "ring"}
    repeat 1 shift=-2 window=4
      step 0
        0 => 1  2+2
        1 => 0  0+2
        2 => 3  2+2
        3 => 2  0+2
    repeat 1 shift=-1 window=2
      step 0
        0 => 2  1
        1 => 3  3
        2 => 0  0
        3 => 1  2
    repeat 1 shift=-1 window=2
      step 0
        0 -> 2  0
        1 -> 3  2
        2 -> 0  1
        3 -> 1  3
    repeat 1 shift=-2 window=4
      step 0
        0 -> 1  0+2
        1 -> 0  2+2
        2 -> 3  0+2
        3 -> 2  2+2
    """
    return _blueconnect("all_reduce", ranks, levels, inner)


@algorithm("reduce_scatter", "blueconnect")
def blueconnect_reduce_scatter(ranks: int, *, levels: Sequence[int] | None = None, inner: str = "ring") -> Schedule:
    """Reduce_scatter through all factors of the ranks, the last (fastest) one first.

    Parameters as in `blueconnect_all_reduce`.

    Examples
    --------
    >>> blueconnect_reduce_scatter(24, levels=(3, 2, 4))
    <Schedule blueconnect reduce_scatter ranks=24 chunks=24 steps=6 transfers=144>
    """
    return _blueconnect("reduce_scatter", ranks, levels, inner)


@algorithm("all_gather", "blueconnect")
def blueconnect_all_gather(ranks: int, *, levels: Sequence[int] | None = None, inner: str = "ring") -> Schedule:
    """All_gather through all factors of the ranks, the first (slowest) one first.

    Parameters as in `blueconnect_all_reduce`.

    Examples
    --------
    >>> blueconnect_all_gather(24, levels=(3, 2, 4))
    <Schedule blueconnect all_gather ranks=24 chunks=24 steps=6 transfers=144>
    """
    return _blueconnect("all_gather", ranks, levels, inner)
