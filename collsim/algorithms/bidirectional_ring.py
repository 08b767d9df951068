"""Two rings at once, one each way round: half of every chunk goes clockwise, half the other way.

Uses both directions of full-duplex neighbour links, so it takes half the time of a ring where those are the bottleneck.
"""

from __future__ import annotations

from collsim.algorithms.registry import algorithm
from collsim.algorithms.ring import Order, rings
from collsim.schedule import Schedule

__all__ = ["bidirectional_ring_all_gather", "bidirectional_ring_all_reduce", "bidirectional_ring_reduce_scatter"]

WAYS = (1, -1)


@algorithm("all_reduce", "bidirectional_ring")
def bidirectional_ring_all_reduce(ranks: int, *, order: Order = None, channels: int = 1, slices: int = 1) -> Schedule:
    """Two rings of opposite direction, each with half of the message.

    Time on links of latency alpha and bandwidth B a direction: ``2(N-1)(alpha + S/(2 N B))``.

    Parameters
    ----------
    ranks
        Any number from 1.
    order
        Ranks in ring order, or one such order for each channel; ``range(ranks)`` if not given (`collsim.run` takes the
        topology's).
    channels, slices
        As in `collsim.algorithms.ring_all_reduce`.

    Examples
    --------
    >>> print(bidirectional_ring_all_reduce(3))
    all_reduce ranks=3 chunks=6
    algorithm bidirectional_ring {"channels": 1, "slices": 1}
    repeat 2 window=3
      step 0
        0 => 1  2 shift=-1
        1 => 2  0 shift=-1
        2 => 0  1 shift=-1
        0 => 2  4 shift=1
        1 => 0  5 shift=1
        2 => 1  3 shift=1
    repeat 2 window=3
      step 0
        0 -> 1  0 shift=-1
        1 -> 2  1 shift=-1
        2 -> 0  2 shift=-1
        0 -> 2  3 shift=1
        1 -> 0  4 shift=1
        2 -> 1  5 shift=1
    """
    return rings("all_reduce", ranks, order, WAYS, channels, slices)


@algorithm("reduce_scatter", "bidirectional_ring")
def bidirectional_ring_reduce_scatter(
    ranks: int, *, order: Order = None, channels: int = 1, slices: int = 1
) -> Schedule:
    """Two rings of opposite direction: ``(N-1)(alpha + S/(2 N B))``. Parameters as in the all_reduce.

    Examples
    --------
    >>> bidirectional_ring_reduce_scatter(4)
    <Schedule bidirectional_ring reduce_scatter ranks=4 chunks=8 steps=3 transfers=24>
    """
    return rings("reduce_scatter", ranks, order, WAYS, channels, slices)


@algorithm("all_gather", "bidirectional_ring")
def bidirectional_ring_all_gather(ranks: int, *, order: Order = None, channels: int = 1, slices: int = 1) -> Schedule:
    """Two rings of opposite direction: ``(N-1)(alpha + S/(2 N B))``. Parameters as in the all_reduce.

    Examples
    --------
    >>> bidirectional_ring_all_gather(4)
    <Schedule bidirectional_ring all_gather ranks=4 chunks=8 steps=3 transfers=24>
    """
    return rings("all_gather", ranks, order, WAYS, channels, slices)
