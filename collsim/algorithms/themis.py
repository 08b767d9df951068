"""Themis: chunks go through the dimensions in different orders, so that all dimensions are busy.

In a fixed order the first dimension carries most of the data and the others wait. Here the data is cut in chunks, and
each chunk visits the dimensions from the least to the most loaded one at that moment; what it adds to each is known
from the bandwidths (Rashidi, Won, Srinivasan, Sridharan and Krishna, "Themis: A network bandwidth-aware collective
scheduling policy for distributed training of DL models", 2022). Each order is a bucket algorithm on its share. Its
stages are numbered one after the other, in the order in which they would start; they run at the same time (but not with
``synchronous=True``, which waits after each step).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from numbers import Real
from typing import Any

import numpy as np

from collsim.algorithms.common import at_least_one, refuse_rows, refuse_window
from collsim.algorithms.embed import paced
from collsim.algorithms.registry import algorithm
from collsim.algorithms.torus import PORTS, Lane, bucket, sizes
from collsim.collective import Collective
from collsim.errors import AlgorithmError, shown
from collsim.schedule import Edge, Repeat, Schedule

__all__ = ["themis_all_gather", "themis_all_reduce", "themis_orders", "themis_reduce_scatter"]


def themis_orders(
    levels: Sequence[int], bandwidths: Sequence[float], chunks: int, threshold: float = 0.0625
) -> list[tuple[int, ...]]:
    """Return the order in which the reduce_scatter of each chunk visits the dimensions (all_gather: backwards).

    Parameters
    ----------
    levels, bandwidths
        Sizes of the dimensions, and bytes a second that a rank sends along each.
    chunks
        Number of chunks.
    threshold
        Imbalance of the loads up to which the fixed order is kept (last dimension first), in units of the time that a
        chunk takes in its slowest dimension.

    Examples
    --------
    >>> themis_orders((4, 4), (1, 1), 4)
    [(1, 0), (0, 1), (1, 0), (0, 1)]
    """
    kept = [k for k in reversed(range(len(levels))) if levels[k] > 1]
    load = dict.fromkeys(kept, 0.0)
    alone = max(((levels[k] - 1) / levels[k] / bandwidths[k] for k in kept), default=0.0)
    orders = []
    for _ in range(chunks):
        fixed = not kept or max(load.values()) - min(load.values()) <= threshold * alone
        order = tuple(kept if fixed else sorted(kept, key=lambda k: load[k]))
        size = 1.0
        for k in order:
            load[k] += (levels[k] - 1) / levels[k] * size / bandwidths[k]
            size /= levels[k]
        orders.append(order)
    return orders


def _themis(
    operation: str,
    ranks: int,
    levels: Sequence[int] | None,
    bandwidths: Sequence[float] | None,
    chunks: int,
    ports: str,
    threshold: float,
    window: int | None,
) -> Schedule:
    at_least_one(chunks=chunks)
    refuse_rows(ranks * chunks)
    if not isinstance(ports, str) or ports not in PORTS:
        raise AlgorithmError(f"ports: expected one of {', '.join(PORTS)}, got {shown(ports)}")
    if isinstance(threshold, bool) or not isinstance(threshold, Real) or not threshold >= 0:
        raise AlgorithmError(f"threshold: expected a number of at least 0, got {shown(threshold)}")
    refuse_window(window)
    found = sizes(ranks, levels, "levels")
    rates = _rates(found, bandwidths)
    ways = (1, -1) if ports == "all" else (1,)
    lanes: list[Any] = [None] * chunks
    for i, way in enumerate(ways):  # the two directions have links of their own, and are balanced each for itself
        mine = range(i, chunks, len(ways))
        for chunk, order in zip(mine, themis_orders(found, rates, len(mine), float(threshold)), strict=True):
            lanes[chunk] = Lane(order, way, i)
    alone = {lane: bucket(operation, found, [lane]) for lane in set(lanes)}
    phases: list[Repeat] = []
    edges: list[Edge] = []
    busy: dict[tuple[int, int], list[int]] = {}  # phases of each dimension and direction
    for number, stage, k in _sequence(operation, lanes, found, rates):
        phases.append(_moved(alone[lanes[number]].phases[stage], number * ranks))
        queue = busy.setdefault((k, lanes[number].way), [])
        if window and len(queue) >= window:
            edges += paced(phases, queue[-window], len(phases) - 1)
        queue.append(len(phases) - 1)
    order = None
    if operation != "all_reduce":
        places = [alone[lane].place_of(np.arange(ranks)) * chunks + number for number, lane in enumerate(lanes)]
        order = np.concatenate(places).tolist()
    return Schedule(Collective(operation, ranks), chunks * ranks, tuple(phases), order=order, edges=tuple(edges))


def _sequence(
    operation: str, lanes: Sequence[Lane], levels: Sequence[int], rates: Sequence[float]
) -> list[tuple[int, int, int]]:
    """Return (lane, stage, dimension) in the order in which stages start, each dimension serving one at a time."""
    ready = [(0.0, number, 0) for number, lane in enumerate(lanes) if lane.visits]
    free: dict[tuple[int, int], float] = {}
    starts: list[tuple[float, int, int, int]] = []
    while ready:
        now, number, stage = heappop(ready)
        lane = lanes[number]
        there = list(lane.visits) if operation != "all_gather" else []
        visits = there + (list(reversed(lane.visits)) if operation != "reduce_scatter" else [])
        k = visits[stage]
        before = lane.visits[: lane.visits.index(k)]
        share = (levels[k] - 1) / math.prod(levels[other] for other in (*before, k))
        start = max(now, free.get((k, lane.way), 0.0))
        free[k, lane.way] = start + share / rates[k]
        starts.append((start, number, stage, k))
        if stage + 1 < len(visits):
            heappush(ready, (start + share / rates[k], number, stage + 1))
    return [(number, stage, k) for _, number, stage, k in sorted(starts)]


def _moved(phase: Repeat, chunks: int) -> Repeat:
    """Return a phase on chunks that begin further on."""
    block = phase.block
    return replace(phase, block=replace(block, src_chunk=block.src_chunk + chunks, dst_chunk=block.dst_chunk + chunks))


def _rates(levels: tuple[int, ...], bandwidths: Sequence[float] | None) -> tuple[float, ...]:
    if bandwidths is None:
        return (1.0,) * len(levels)
    rates = tuple(bandwidths) if isinstance(bandwidths, Sequence) and not isinstance(bandwidths, str) else ()
    good = all(isinstance(rate, Real) and (rate > 0 or size == 1) for rate, size in zip(rates, levels, strict=False))
    if len(rates) != len(levels) or not good:
        raise AlgorithmError(
            f"bandwidths: expected a number above 0 for each of the dimensions {levels}, got {shown(bandwidths)}"
        )
    return tuple(map(float, rates))


@algorithm("all_reduce", "themis")
def themis_all_reduce(
    ranks: int,
    *,
    levels: Sequence[int] | None = None,
    bandwidths: Sequence[float] | None = None,
    chunks: int = 32,
    ports: str = "one",
    threshold: float = 0.0625,
    window: int | None = 3,
) -> Schedule:
    """Bucket all_reduce in chunks, each of which visits the dimensions from the least to the most loaded one.

    At best all dimensions are busy all the time: ``2(N-1)/N S/(B_1 + B_2 + ...)``.

    Parameters
    ----------
    ranks
        Any number from 1.
    levels
        As in `torus_all_reduce`.
    bandwidths
        Bytes a second that a rank sends along each dimension; equal ones if not given (`collsim.run` takes the
        topology's). Only their ratios count.
    chunks
        Into how many shares the data is cut; more balance better, and each message has its latency.
    ports
        ``"all"``: every other chunk goes round the other way.
    threshold
        As in `themis_orders`.
    window
        Chunks that a rank has in one dimension (and direction) at a time, in the order in which they would start if
        each dimension served one at a time: a chunk starts there once the one so many before it has been issued. None
        or 0 for no pacing: then all chunks start at once and hold each other up.

    Examples
    --------
    >>> themis_all_reduce(16, levels=(4, 4), chunks=2)
    <Schedule themis all_reduce ranks=16 chunks=32 steps=24 transfers=384>
    """
    return _themis("all_reduce", ranks, levels, bandwidths, chunks, ports, threshold, window)


@algorithm("reduce_scatter", "themis")
def themis_reduce_scatter(
    ranks: int,
    *,
    levels: Sequence[int] | None = None,
    bandwidths: Sequence[float] | None = None,
    chunks: int = 32,
    ports: str = "one",
    threshold: float = 0.0625,
    window: int | None = 3,
) -> Schedule:
    """Bucket reduce_scatter in chunks that visit the dimensions in different orders; see `themis_all_reduce`.

    Examples
    --------
    >>> themis_reduce_scatter(16, levels=(4, 4), chunks=2)
    <Schedule themis reduce_scatter ranks=16 chunks=32 steps=12 transfers=192>
    """
    return _themis("reduce_scatter", ranks, levels, bandwidths, chunks, ports, threshold, window)


@algorithm("all_gather", "themis")
def themis_all_gather(
    ranks: int,
    *,
    levels: Sequence[int] | None = None,
    bandwidths: Sequence[float] | None = None,
    chunks: int = 32,
    ports: str = "one",
    threshold: float = 0.0625,
    window: int | None = 3,
) -> Schedule:
    """Bucket all_gather in chunks that visit the dimensions in different orders; see `themis_all_reduce`.

    Examples
    --------
    >>> themis_all_gather(16, levels=(4, 4), chunks=2)
    <Schedule themis all_gather ranks=16 chunks=32 steps=12 transfers=192>
    """
    return _themis("all_gather", ranks, levels, bandwidths, chunks, ports, threshold, window)
