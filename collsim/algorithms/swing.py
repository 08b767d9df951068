"""Swing: in step s rank r meets the rank 1, 1, 3, 5, 11, 21, ... off, to the left and to the right in turn.

The peer is ``r + rho(s)`` for even r and ``r - rho(s)`` for odd r, with rho(s) = (1 - (-2)^(s+1)) / 3 = 1, -1, 3, -5,
...: a third less far than with recursive doubling, so that a ring or torus carries less (De Sensi, Bonato, Saam and
Hoefler, "Swing: short-cutting rings for higher bandwidth allreduce", 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.algorithms import butterfly
from collsim.algorithms.common import at_least_one, refuse_rows
from collsim.algorithms.derive import rename, reverse, then
from collsim.algorithms.registry import algorithm
from collsim.collective import Collective
from collsim.errors import AlgorithmError
from collsim.schedule import Schedule, ScheduleBuilder

__all__ = ["swing_all_gather", "swing_all_reduce", "swing_peers", "swing_reduce_scatter"]

Array = npt.NDArray[Any]


def swing_peers(ranks: int, *, mirrored: bool = False) -> list[Array]:
    """Peers of all ranks of a ring of even size, nearest first; mirrored: even and odd ranks change places.

    Examples
    --------
    >>> [peer.tolist() for peer in swing_peers(6)]
    [[1, 0, 3, 2, 5, 4], [5, 2, 1, 4, 3, 0], [3, 4, 5, 0, 1, 2]]
    """
    refuse_rows(ranks * (ranks - 1).bit_length())
    rank = np.arange(ranks)
    way = np.where(rank % 2 == mirrored, 1, -1)
    return [(rank + way * (1 - (-2) ** (step + 1)) // 3) % ranks for step in range((ranks - 1).bit_length())]


def _lanes(ranks: int, dims: Sequence[int] | None, ports: int | None) -> list[list[Array]]:
    """Peers of each copy of the algorithm on a grid: copy i starts with dimension i // 2, every other one mirrored."""
    sizes = _sizes(ranks, dims)
    used = [axis for axis, size in enumerate(sizes) if size > 1]
    most = 2 * max(1, len(used))
    if ports is None:
        ports = 1 if dims is None else most
    at_least_one(ports=ports)
    if ports > most:
        raise AlgorithmError(f"ports: expected at most {most}, two a dimension, got {ports}")
    refuse_rows(ranks * ports * (ranks - 1).bit_length())
    place = np.unravel_index(np.arange(ranks), sizes)
    lanes = []
    for lane in range(ports):
        turn = used[lane // 2 :] + used[: lane // 2]
        left = {axis: swing_peers(sizes[axis], mirrored=bool(lane % 2)) for axis in turn}
        peers = []
        while any(left.values()):
            for axis in turn:
                if left[axis]:
                    there = [*place]
                    there[axis] = left[axis].pop(0)[place[axis]]
                    peers.append(np.ravel_multi_index(there, sizes))
        lanes.append(peers)
    return lanes


def _sizes(ranks: int, dims: Sequence[int] | None) -> list[int]:
    if dims is None:
        return [ranks]
    try:
        sizes = [*dims]
    except TypeError:
        sizes = []
    whole = all(isinstance(d, (int, np.integer)) and not isinstance(d, bool) and d > 0 for d in sizes)
    if not sizes or not whole or prod(map(int, sizes)) != ranks:
        raise AlgorithmError(f"dims: expected sizes of dimensions whose product is {ranks} ranks, got {dims!r}")
    for size in sizes:
        if size % 2 and size > 1:
            raise AlgorithmError(f"dims: swing takes dimensions of even size, got {size}; use torus or circulant")
    return [int(size) for size in sizes]


def _all_gather(ranks: int, order: Sequence[int] | None, dims: Sequence[int] | None, ports: int | None) -> Schedule:
    if ranks % 2 and ranks > 1:
        if ports not in (None, 1) or (dims is not None and len(dims) > 1):
            raise AlgorithmError(f"ranks: swing takes an odd number on a ring with ports=1 only, got {ranks}")
        return rename(_with_one_more(butterfly.all_gather(ranks - 1, _lanes(ranks - 1, None, 1))), order)
    straight = butterfly.all_gather(ranks, _lanes(ranks, dims, ports))
    return straight if dims is not None and len(dims) > 1 else rename(straight, order)


def _with_one_more(core: Schedule) -> Schedule:
    """Let one more rank take part: in each step it swaps single blocks with as many ranks as a message has blocks."""
    ranks, extra = core.ranks + 1, core.ranks
    b = ScheduleBuilder(
        Collective("all_gather", ranks), ranks, order=[*core.place_of(np.arange(extra)).tolist(), extra]
    )
    number = np.argsort(core.place_of(np.arange(extra)))  # chunk of each rank
    other = np.arange(extra)
    step = np.log2(other + 1).astype(np.int64)  # one rank in step 0, two in step 1, four in step 2
    b.copy(extra, other, extra, step=step)
    b.copy(other, extra, number, step=step)
    return butterfly.side_by_side(b.build(), core)


@algorithm("all_gather", "swing")
def swing_all_gather(
    ranks: int,
    *,
    order: Sequence[int] | None = None,
    dims: Sequence[int] | None = None,
    ports: int | None = None,
) -> Schedule:
    """Farthest peer first, each rank sends its peer the blocks that the peer lacks.

    ``ceil(log2 N) alpha + (N-1)/N S/B`` through one port; a rank sends N-1 blocks.

    Parameters
    ----------
    ranks
        Any number from 1. With an odd one, one rank more takes part in a swing of N-1: it swaps single blocks with all
        others, with 1, 2, 4, ... of them in the steps.
    order
        Ranks in ring order (one dimension only; on a torus the ranks lie row by row).
    dims
        Sizes of the dimensions of a torus, even ones; steps take turns over the dimensions. One ring if not given.
    ports
        Copies that run side by side, each with its share of every block: two a dimension, one of them mirrored, and
        each pair starting with its own dimension. All of them on the ``dims`` given, else 1.

    Examples
    --------
    >>> print(swing_all_gather(6))
    all_gather ranks=6 chunks=6
    algorithm swing
    repeat 1
      step 0
        0 -> 3  {0}
        1 -> 4  {1}
        2 -> 5  {2}
        3 -> 0  {3}
        4 -> 1  {4}
        5 -> 2  {5}
      step 1
        0 -> 5  {0,3}
        1 -> 2  {1,4}
        2 -> 1  {2,5}
        3 -> 4  {0,3}
        4 -> 3  {1,4}
        5 -> 0  {2,5}
      step 2
        0 -> 1  {0,3}
        1 -> 0  {1,4}
        2 -> 3  {2,5}
        3 -> 2  {0,3}
        4 -> 5  {1,4}
        5 -> 4  {2,5}
    """
    return _all_gather(ranks, order, dims, ports)


@algorithm("reduce_scatter", "swing")
def swing_reduce_scatter(
    ranks: int,
    *,
    order: Sequence[int] | None = None,
    dims: Sequence[int] | None = None,
    ports: int | None = None,
) -> Schedule:
    """Nearest peer first, with the most data: ``ceil(log2 N) alpha + (N-1)/N S (1/B + gamma)``.

    Where N is a power of two, chunks are numbered so that each message is a range. Parameters as in `swing_all_gather`.

    Examples
    --------
    >>> print(swing_reduce_scatter(4))
    reduce_scatter ranks=4 chunks=4
    algorithm swing
    order 0 3 1 2
    repeat 1
      step 0
        0 => 1  2+2
        1 => 0  0+2
        2 => 3  0+2
        3 => 2  2+2
      step 1
        0 => 3  1
        1 => 2  3
        2 => 1  2
        3 => 0  0
    """
    return reverse(_all_gather(ranks, order, dims, ports), "reduce_scatter")


@algorithm("all_reduce", "swing")
def swing_all_reduce(
    ranks: int,
    *,
    order: Sequence[int] | None = None,
    dims: Sequence[int] | None = None,
    ports: int | None = None,
    version: str = "bandwidth",
) -> Schedule:
    """Reduce_scatter, nearest peer first, then all_gather, farthest first.

    ``2 ceil(log2 N) alpha + (N-1)/N S (2/B + gamma)`` through one port; on a ring the most loaded link carries
    ``S sum over s of (d(s)+1) / 2^(s+1)`` with d = 1, 1, 3, 5, 11, ...

    Parameters
    ----------
    ranks, order, dims, ports
        As in `swing_all_gather`.
    version
        ``"bandwidth"``, or ``"latency"``: whole vectors are exchanged, ``log2(N) (alpha + S/B + S gamma)``, for powers
        of two. In the latter ranks add up in different orders, so sums of floats may differ in their last bits.

    Examples
    --------
    >>> swing_all_reduce(8), swing_all_reduce(8, version="latency").steps, swing_all_reduce(16, dims=(4, 4)).chunks
    (<Schedule swing all_reduce ranks=8 chunks=8 steps=6 transfers=48>, 3, 64)
    """
    butterfly.choice("version", version, ("bandwidth", "latency"))
    if version == "bandwidth":
        gather = _all_gather(ranks, order, dims, ports)
        return then(reverse(gather, "reduce_scatter"), gather, "all_reduce")
    butterfly.refuse_other_than_powers(ranks, "swing with version='latency'", "version='bandwidth'")
    straight = butterfly.all_reduce(ranks, _lanes(ranks, dims, ports), 0)
    return straight if dims is not None and len(dims) > 1 else rename(straight, order)
