"""Rings: each rank talks to its two neighbours only.

Bandwidth-optimal for any number of ranks: every rank sends 2(N-1)/N of the size in an all_reduce (Patarasuk and Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009; NCCL's ring). Chunks are ring positions,
as in NCCL: position p first sends chunk p-1, so that rank r ends a reduce_scatter with chunk r.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.algorithms.common import at_least_one, from_root, rank_order, refuse_rows
from collsim.algorithms.pacing import queued
from collsim.algorithms.registry import algorithm
from collsim.collective import Collective
from collsim.errors import AlgorithmError
from collsim.schedule import Schedule, ScheduleBuilder

__all__ = ["ring_all_gather", "ring_all_reduce", "ring_broadcast", "ring_reduce", "ring_reduce_scatter", "rings"]

Array = npt.NDArray[Any]
Order = Sequence[int] | Sequence[Sequence[int]] | None


def rings(
    operation: str,
    ranks: int,
    order: Order,
    directions: Sequence[int],
    channels: int,
    slices: int,
) -> Schedule:
    """Rings side by side, one for each channel and direction; each has a share of the chunks for its own.

    Chunk ``(lane * N + position) * slices + slice`` belongs to a ring position of one lane. In every iteration all
    chunks move on by one position, which is a shift by ``slices`` inside the lane's window.
    """
    at_least_one(channels=channels, slices=slices)
    refuse_rows(ranks * channels * slices * len(directions))
    orders = _orders(ranks, order, channels)
    collective = Collective(operation, ranks)
    lanes = channels * len(directions)
    window = ranks * slices
    if operation == "all_reduce":
        places = None
    else:
        # a block belongs to a rank: position -> rank, then lane, then slice
        lane, position, part = (a.ravel() for a in np.indices((lanes, ranks, slices)))
        places = ((orders[lane // len(directions), position] * lanes + lane) * slices + part).tolist()
    b = ScheduleBuilder(collective, lanes * window, order=places)
    position = np.arange(ranks)
    with b.repeat(ranks - 1 if operation != "all_gather" else 0, window=window):
        for part in range(slices):
            for lane in range(lanes):
                way = directions[lane % len(directions)]
                channel = lane // len(directions)
                chunk = (lane * ranks + (position - way) % ranks) * slices + part
                ring = orders[channel]
                b.reduce(ring, np.roll(ring, -way), chunk, channel=channel, shift=-way * slices)
    with b.repeat(ranks - 1 if operation != "reduce_scatter" else 0, window=window):
        for part in range(slices):
            for lane in range(lanes):
                way = directions[lane % len(directions)]
                channel = lane // len(directions)
                chunk = (lane * ranks + position) * slices + part
                ring = orders[channel]
                b.copy(ring, np.roll(ring, -way), chunk, channel=channel, shift=-way * slices)
    return b.build()


def _orders(ranks: int, order: Order, channels: int) -> Array:
    """Return the ring of each channel, one row a channel."""
    try:
        nested = order is not None and all(len(ring) == ranks for ring in order)  # type: ignore[arg-type]
    except TypeError:  # ranks, or no list at all
        nested = False
    if order is None or not nested or not len(order):
        return np.tile(rank_order(ranks, order), (channels, 1))  # type: ignore[arg-type]
    if len(order) != channels:
        raise AlgorithmError(
            f"order: expected a ring for each of the {channels} channels, or one for all, got {len(order)}; "
            f"give channels={len(order)}"
        )
    return np.stack([rank_order(ranks, ring) for ring in order])  # type: ignore[arg-type]


@algorithm("all_reduce", "ring")
def ring_all_reduce(ranks: int, *, order: Order = None, channels: int = 1, slices: int = 1) -> Schedule:
    """Ring all_reduce: N-1 steps that reduce, then N-1 steps that copy.

    Time on links of latency alpha and bandwidth B: ``2(N-1)(alpha + S/(N B))``, plus ``(N-1) S/N gamma`` for reducing.

    Parameters
    ----------
    ranks
        Any number from 1.
    order
        Ranks in ring order; ``range(ranks)`` if not given (`collsim.run` takes the topology's). Or one such order for
        each channel, as NCCL builds its rings (`collsim.formats.read_nccl_log` reads them).
    channels
        Rings side by side, each with its share of the message.
    slices
        Pieces into which a chunk is cut, so that a rank forwards one while the next arrives.

    Examples
    --------
    >>> print(ring_all_reduce(3))
    all_reduce ranks=3 chunks=3
    algorithm ring {"channels": 1, "slices": 1}
    repeat 2 shift=-1 window=3
      step 0
        0 => 1  2
        1 => 2  0
        2 => 0  1
    repeat 2 shift=-1 window=3
      step 0
        0 -> 1  0
        1 -> 2  1
        2 -> 0  2
    """
    return rings("all_reduce", ranks, order, (1,), channels, slices)


@algorithm("reduce_scatter", "ring")
def ring_reduce_scatter(ranks: int, *, order: Order = None, channels: int = 1, slices: int = 1) -> Schedule:
    """Ring reduce_scatter: in step s position p sends chunk p-1-s, which the next one adds to its own.

    Time: ``(N-1)(alpha + S/(N B) + S/N gamma)``. Parameters as in `ring_all_reduce`.

    Examples
    --------
    >>> ring_reduce_scatter(5)
    <Schedule ring reduce_scatter ranks=5 chunks=5 steps=4 transfers=20>
    """
    return rings("reduce_scatter", ranks, order, (1,), channels, slices)


@algorithm("all_gather", "ring")
def ring_all_gather(ranks: int, *, order: Order = None, channels: int = 1, slices: int = 1) -> Schedule:
    """Ring all_gather: in step s position p sends chunk p-s.

    Time: ``(N-1)(alpha + S/(N B))``. Parameters as in `ring_all_reduce`.

    Examples
    --------
    >>> ring_all_gather(5)
    <Schedule ring all_gather ranks=5 chunks=5 steps=4 transfers=20>
    """
    return rings("all_gather", ranks, order, (1,), channels, slices)


@algorithm("broadcast", "ring")
def ring_broadcast(
    ranks: int,
    root: int = 0,
    *,
    order: Sequence[int] | None = None,
    channels: int = 1,
    slices: int = 32,
    window: int | None = None,
) -> Schedule:
    """Pipelined chain along the ring, from the root (NCCL's ring broadcast).

    With k slices of m = S/k bytes: ``(N-1)(alpha + m/B) + (k-1) m/B``.

    Parameters
    ----------
    ranks, root
        Any number from 1; any rank.
    order
        Ranks in ring order; ``range(ranks)`` if not given (`collsim.run` takes the topology's).
    channels
        Chains side by side, each with its share of the message.
    slices
        Pieces of the message of a channel that follow each other down the chain.
    window
        Slices that may wait in the queue of a rank's port: the next one enters it once the one so many before it has
        left. None or 0 for no pacing. Where ports have queues that changes nothing; in the fluid network it keeps
        slices from sharing a link (see ``docs/pacing.md``).

    Examples
    --------
    >>> print(ring_broadcast(3, slices=2))
    broadcast ranks=3 chunks=2 root=0
    algorithm ring {"channels": 1, "slices": 2}
    repeat 1
      step 0
        0 -> 1  0
      step 1
        0 -> 1  1
        1 -> 2  0
      step 2
        1 -> 2  1
    """
    chain = from_root(ranks, root, order)
    return _chain(Collective("broadcast", ranks, root), chain, channels, slices, window)


@algorithm("reduce", "ring")
def ring_reduce(
    ranks: int,
    root: int = 0,
    *,
    order: Sequence[int] | None = None,
    channels: int = 1,
    slices: int = 32,
    window: int | None = None,
) -> Schedule:
    """Pipelined chain along the ring that ends at the root (NCCL's ring reduce).

    With k slices of m = S/k bytes: ``(N-1)(alpha + m/B + m gamma) + (k-1) max(m/B, m gamma)``. Parameters as in
    `ring_broadcast`.

    Examples
    --------
    >>> ring_reduce(4, root=1, slices=2)
    <Schedule ring reduce ranks=4 chunks=2 steps=4 transfers=6>
    """
    chain = np.roll(from_root(ranks, root, order), -1)
    return _chain(Collective("reduce", ranks, root), chain, channels, slices, window)


def _chain(collective: Collective, chain: Array, channels: int, slices: int, window: int | None) -> Schedule:
    at_least_one(channels=channels, slices=slices)
    refuse_rows(len(chain) * channels * slices)
    b = ScheduleBuilder(collective, channels * slices)
    add = b.reduce if collective.reduces else b.copy
    hop, part = (a.ravel() for a in np.indices((len(chain) - 1, slices)))
    for channel in range(channels):
        add(chain[hop], chain[hop + 1], channel * slices + part, step=hop + part, channel=channel)
    return queued(b.build(), window)
