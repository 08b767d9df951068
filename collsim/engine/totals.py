"""Exact totals of a program that keeps its repeats: bytes by rank, bytes and busy time by station."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.engine.loops import Loops
from collsim.engine.lowering.stations import places_along
from collsim.schedule.expand import inverses

__all__ = ["rates_used", "sent_per_rank", "station_totals"]

Array = npt.NDArray[Any]

PART = 2**20
"""Rows that are worked on at a time."""
ORBIT = 2**24
"""Chunks of windows that are worked on at a time."""


def sent_per_rank(loops: Loops, ranks: int) -> Array:
    """Return the payload bytes that each rank sends to others.

    Examples
    --------
    >>> import collsim
    >>> from collsim.engine.lowering.roll import roll
    >>> topology = collsim.topology.ring(3, bandwidth="1GB/s", latency="1us")
    >>> loops = roll(collsim.algorithms.ring_all_reduce(3), topology, 3000)
    >>> sent_per_rank(loops, 3).tolist()
    [4000, 4000, 4000]
    """
    sent = np.zeros(ranks, dtype=np.int64)
    for phase, rows in _some_rows(loops):
        src = loops.src[rows]
        away = (src != loops.dst[rows]) & (src < ranks)
        np.add.at(sent, src[away], _row_sums(loops, phase, rows, loops.class_bytes)[away])
    return sent


def station_totals(loops: Loops) -> tuple[Array, Array]:
    """Return by station the payload bytes that cross it and the picoseconds that it is held."""
    stations, classes = len(loops.station_kind), len(loops.class_bytes)
    carried, held = np.zeros(stations, dtype=np.int64), np.zeros(stations, dtype=np.int64)
    for phase, rows in _some_rows(loops):
        route, size, times = loops.route[rows], loops.size_class[rows], int(loops.times[phase])
        if loops.varies[phase]:
            _, visits = places_along(loops.route_ptr, route)
            visitor = np.repeat(np.arange(len(route)), np.diff(loops.route_ptr)[route])
            station, rate = loops.route_station[visits], loops.route_rate[visits]
            np.add.at(carried, station, _row_sums(loops, phase, rows, loops.class_bytes)[visitor])
            used = np.unique(rate)
            if len(used) <= classes:
                for one in used.tolist():
                    chosen = rate == one
                    busy = _row_sums(loops, phase, rows, loops.busy[:, one])
                    np.add.at(held, station[chosen], busy[visitor[chosen]])
            else:
                for one in range(classes):
                    often = _row_sums(loops, phase, rows, np.arange(classes) == one)
                    np.add.at(held, station, often[visitor] * loops.busy[one, rate])
            continue
        # the rows of one route and size are alike
        pair, often = np.unique(route.astype(np.int64) * classes + size, return_counts=True)
        route, size = np.divmod(pair, classes)
        _, visits = places_along(loops.route_ptr, route)
        visitor = np.repeat(np.arange(len(route)), np.diff(loops.route_ptr)[route])
        station, size, often = loops.route_station[visits], size[visitor], often[visitor] * times
        np.add.at(carried, station, often * loops.class_bytes[size])
        np.add.at(held, station, often * loops.busy[size, loops.route_rate[visits]])
    return carried, held


def rates_used(loops: Loops) -> Array:
    """Return, by class of size and by rate, whether some transfer visits a station of that rate."""
    used = np.zeros(loops.busy.shape, dtype=np.bool_)
    classes = len(loops.class_bytes)
    for phase, rows in _some_rows(loops):
        route = loops.route[rows]
        _, visits = places_along(loops.route_ptr, route)
        visitor = np.repeat(np.arange(len(route)), np.diff(loops.route_ptr)[route])
        rate = loops.route_rate[visits]
        if loops.varies[phase]:
            for one in range(classes):
                visited = _row_sums(loops, phase, rows, np.arange(classes) == one) > 0
                used[one, rate[visited[visitor]]] = True
        else:
            used[loops.size_class[rows][visitor], rate] = True
    return used


def _some_rows(loops: Loops) -> Iterator[tuple[int, slice]]:
    """Yield (phase, rows) until all rows have come."""
    for phase in range(loops.phases):
        low, high = int(loops.row_ptr[phase]), int(loops.row_ptr[phase + 1])
        for start in range(low, high, PART):
            yield phase, slice(start, min(start + PART, high))


def _row_sums(loops: Loops, phase: int, rows: slice, values: Array) -> Array:
    """Return for each row the sum over all iterations of a value by class of size."""
    values = values.astype(np.int64)
    times = int(loops.times[phase])
    if not loops.varies[phase]:
        return np.asarray(values[loops.size_class[rows]] * times)
    base, rel, shift, window = (
        getattr(loops, "chunk_" + name)[rows].astype(np.int64) for name in ("base", "rel", "shift", "window")
    )
    # Rows go round circles: through the window in steps of the shift. A sum along a circle is a difference of prefixes.
    ways, way = np.unique(np.stack([base, window, shift % window], axis=1), axis=0, return_inverse=True)
    way = way.reshape(-1)  # NumPy 2.0 returns a column
    order = np.argsort(way, kind="stable")
    lengths = np.cumsum(ways[:, 1])
    sums = np.zeros(len(base), dtype=np.int64)
    first = 0
    while first < len(ways):
        last = max(first + 1, int(np.searchsorted(lengths, lengths[first] - ways[first, 1] + ORBIT)))
        chosen = order[np.searchsorted(way[order], first) : np.searchsorted(way[order], last)]
        prefix, start, g, period, inverse = _prefixes(ways[first:last], values[loops.chunk_class])
        which = way[chosen] - first
        g, period, start = g[which], period[which], start[which]
        spot = rel[chosen] // g * inverse[which] % period
        start = start + rel[chosen] % g * period
        end = spot + times % period
        sums[chosen] = (
            prefix[start + np.minimum(end, period)] - prefix[start + spot]
            + prefix[start + np.maximum(end - period, 0)] - prefix[start]
            + times // period * (prefix[start + period] - prefix[start])
        )  # fmt: skip
        first = last
    return sums


def _prefixes(ways: Array, values: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Sum up values by chunk along the circles of some (base, window, shift), one circle after the other.

    Returns the prefix sums, where the circles of each begin in them, how many it has, how many places each of them has,
    and the factor that turns a chunk's number on the circle into a place.
    """
    base, window, shift = ways.T
    g = np.gcd(shift, window)
    period = window // g
    start = np.cumsum(window) - window
    which = np.repeat(np.arange(len(ways)), window)
    circle, spot = np.divmod(np.arange(len(which)) - start[which], period[which])
    chunk = base[which] + circle + g[which] * (spot * (shift // g)[which] % period[which])
    prefix = np.concatenate(([0], np.cumsum(values[chunk])))
    return prefix, start, g, period, inverses(shift // g, period)
