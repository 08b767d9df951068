"""Neighbour exchange: each rank talks to its left and its right neighbour in turn, two blocks at a time.

Half the steps of a ring for all_gather, with both directions of a link in use (Chen, Zhang and Yuan, "Performance
evaluation of allgather algorithms on terascale Linux cluster with fast Ethernet", 2005; in Open MPI).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collsim.algorithms.common import refuse_rows
from collsim.algorithms.derive import rename, reverse, then
from collsim.algorithms.registry import algorithm
from collsim.collective import Collective
from collsim.errors import AlgorithmError
from collsim.schedule import Schedule, ScheduleBuilder

__all__ = ["neighbour_exchange_all_gather", "neighbour_exchange_all_reduce", "neighbour_exchange_reduce_scatter"]


def _all_gather(ranks: int) -> Schedule:
    if ranks % 2 and ranks > 1:
        raise AlgorithmError(f"ranks: neighbour exchange takes an even number of ranks, got {ranks}; use ring")
    refuse_rows(5 * ranks)
    b = ScheduleBuilder(Collective("all_gather", ranks), ranks)
    rank = np.arange(ranks)
    pair = rank & ~1
    # even ranks pass on pairs that come from the right in the steps to the left, odd ones the other way round
    turn = np.where(rank % 2, -2, 2)
    outer, inner = (rank + np.where(rank % 2, 1, -1)) % ranks, rank ^ 1
    if ranks > 1:
        b.copy(rank, inner, rank)
    steps = max(ranks // 2 - 1, 0)
    with b.repeat(steps // 2):
        b.copy(rank, outer, pair, count=2, shift=turn)
        b.copy(rank, inner, (pair - turn) % ranks, count=2, shift=-turn, step=1)
    if steps % 2:
        b.copy(rank, outer, (pair + steps // 2 * turn) % ranks, count=2)
    return b.build()


@algorithm("all_gather", "neighbour_exchange")
def neighbour_exchange_all_gather(ranks: int, *, order: Sequence[int] | None = None) -> Schedule:
    """Neighbours swap their blocks; then each rank hands the two blocks that came last to its other neighbour.

    ``N/2 alpha + (N-1)/N S/B``; a rank sends N-1 blocks, to two neighbours only.

    Parameters
    ----------
    ranks
        Any even number, or 1.
    order
        Ranks in ring order.

    Examples
    --------
    >>> print(neighbour_exchange_all_gather(4))
    all_gather ranks=4 chunks=4
    algorithm neighbour_exchange
    repeat 1
      step 0
        0 -> 1  0
        1 -> 0  1
        2 -> 3  2
        3 -> 2  3
    repeat 1
      step 0
        0 -> 3  0+2
        1 -> 2  0+2
        2 -> 1  2+2
        3 -> 0  2+2
    """
    return rename(_all_gather(ranks), order)


@algorithm("reduce_scatter", "neighbour_exchange")
def neighbour_exchange_reduce_scatter(ranks: int, *, order: Sequence[int] | None = None) -> Schedule:
    """Run the all_gather backwards: ``N/2 alpha + (N-1)/N S (1/B + gamma)``.

    Parameters as in `neighbour_exchange_all_gather`.

    Examples
    --------
    >>> neighbour_exchange_reduce_scatter(6).steps
    3
    """
    return rename(reverse(_all_gather(ranks), "reduce_scatter"), order)


@algorithm("all_reduce", "neighbour_exchange")
def neighbour_exchange_all_reduce(ranks: int, *, order: Sequence[int] | None = None) -> Schedule:
    """Reduce_scatter, then all_gather: ``N alpha + (N-1)/N S (2/B + gamma)``.

    Parameters as in `neighbour_exchange_all_gather`.

    Examples
    --------
    >>> neighbour_exchange_all_reduce(6).steps
    6
    """
    gather = _all_gather(ranks)
    return rename(then(reverse(gather, "reduce_scatter"), gather, "all_reduce"), order)
