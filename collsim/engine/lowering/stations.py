"""Routes as rows of stations, found for all distinct pairs at once and laid out on arrays.

Both lowerings use it. Stations are numbered: the links of the topology, then the senders and the reducers of its nodes,
then the copy engines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.engine.memory import refuse_beyond_memory
from collsim.engine.program import COPY, LINK, REDUCER, SENDER
from collsim.errors import InputError, TopologyError
from collsim.schedule import Schedule
from collsim.topology import Topology
from collsim.topology.paths import routes_along

__all__ = ["Stations", "bind_places", "busy_table", "places_along", "serialisation", "stations_of"]

Array = npt.NDArray[Any]

INT64_MAX = 2**63 - 1
PICOSECONDS = 10**12


MANY_ROUTES, SAMPLED = 50_000, 64
"""Of more routes than this so many are looked at first."""
CROSSED = 200
"""Bytes that a link of a route takes from here to the records, and to what is told of them."""


@dataclass(frozen=True, eq=False)
class Stations:
    """Routes in CSR form, and the stations that they lead through.

    Attributes
    ----------
    route_ptr, route_station, route_latency
        Route i visits ``route_station[route_ptr[i]:route_ptr[i + 1]]`` in order; the latency after each in picoseconds.
    station_kind, station_bandwidth, station_index
        As in `Program`.
    overhead
        By station: picoseconds that a sender takes for a message, 0 for the others.
    """

    route_ptr: Array
    route_station: Array
    route_latency: Array
    station_kind: Array
    station_bandwidth: Array
    station_index: Array
    overhead: Array

    def rates(self) -> tuple[Array, Array]:
        """Return the distinct rates, and the number of the rate of each station.

        A rate is a bandwidth, or for senders ``-1 - overhead``.
        """
        key = np.where(self.station_kind == SENDER, -1 - self.overhead, self.station_bandwidth)
        rates, number = np.unique(key, return_inverse=True)
        return rates, number.astype(np.int32)


def stations_of(
    schedule: Schedule,
    topology: Topology,
    node_of: Array,
    src: Array,
    dst: Array,
    channel: Array,
    via: Array,
    reduces: Array,
) -> Stations:
    """Return the routes of distinct combinations of sender, receiver, channel, path and whether it reduces.

    Parameters
    ----------
    schedule, topology
        What is lowered.
    node_of
        Topology node of each rank and place.
    src, dst, channel, via, reduces
        One value a route.

    Raises
    ------
    TopologyError
        If a route is missing, or a path cannot be taken.
    """
    n_nodes, n_links = topology.n_nodes, topology.n_links
    source, sink = node_of[src], node_of[dst]
    link_ptr, links = _links(schedule, topology, source, sink, channel, via)
    remote = src != dst
    sends = remote & (topology.send_overhead[source] != 0)
    copies = remote & (topology.channel_bandwidth[source] != 0)
    adds = reduces.astype(np.bool_) & (dst < schedule.ranks) & (topology.reduce_bandwidth[sink] != 0)
    counts = np.diff(link_ptr) + sends + copies + adds
    ptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    station = np.zeros(ptr[-1], dtype=np.int32)
    latency = np.zeros(ptr[-1], dtype=np.int64)
    station[ptr[:-1][sends]] = n_links + source[sends]
    # one copy engine a (node, channel)
    low, high = (int(f(channel[copies], initial=0)) for f in (np.min, np.max))
    engines, engine = np.unique(source[copies] * (high - low + 1) + channel[copies] - low, return_inverse=True)
    station[(ptr[:-1] + sends)[copies]] = n_links + 2 * n_nodes + engine
    at = np.repeat(ptr[:-1] + sends + copies - link_ptr[:-1], np.diff(link_ptr)) + np.arange(len(links))
    station[at] = links
    latency[at] = topology.link_latency[links]
    station[ptr[1:][adds] - 1] = n_links + n_nodes + sink[adds]
    none = np.zeros(n_nodes, dtype=np.int64)
    return Stations(
        ptr,
        station,
        latency,
        station_kind=np.repeat([LINK, SENDER, REDUCER, COPY], [n_links, n_nodes, n_nodes, len(engines)]),
        station_bandwidth=np.concatenate(
            [topology.link_bandwidth, none, topology.reduce_bandwidth,
             topology.channel_bandwidth[engines // (high - low + 1)]]
        ),
        station_index=np.concatenate(
            [np.arange(n_links), np.arange(n_nodes), np.arange(n_nodes), np.arange(len(engines))]
        ),
        overhead=np.concatenate(
            [np.zeros(n_links, dtype=np.int64), topology.send_overhead, none, np.zeros(len(engines), dtype=np.int64)]
        ),
    )  # fmt: skip


def _links(
    schedule: Schedule, topology: Topology, source: Array, sink: Array, channel: Array, via: Array
) -> tuple[Array, Array]:
    """Links of the routes in CSR form."""
    if not len(via) or (via < 0).all():
        _refuse_long(topology, source, sink, channel)
        return topology.route_nodes(source, sink, channel)
    return routes_along(topology, source, sink, channel, via, schedule.paths)


def _refuse_long(topology: Topology, source: Array, sink: Array, channel: Array) -> None:
    """Refuse routes that memory could not hold, by the length of some of them."""
    if len(source) <= MANY_ROUTES:
        return
    some = np.linspace(0, len(source) - 1, SAMPLED).astype(np.int64)
    ptr, _ = topology.route_nodes(source[some], sink[some], channel[some])
    hops = int(ptr[-1]) / SAMPLED
    refuse_beyond_memory(
        int(len(source) * hops * CROSSED), f"the routes of {len(source):,} pairs, over some {hops:,.0f} links each,",
        "expected fewer ranks, or an algorithm in which each talks to fewer others",
    )  # fmt: skip


def bind_places(
    schedule: Schedule, topology: Topology, reduces: Callable[[int], bool], sends_twice: Callable[[int], bool]
) -> Array:
    """Return the topology node of each rank and place.

    Parameters
    ----------
    schedule, topology
        What is lowered.
    reduces, sends_twice
        Tell of a place (by endpoint) whether the schedule reduces in it, and whether it sends a chunk from it more than
        once.

    Raises
    ------
    TopologyError
        If the node of a place cannot do what the schedule asks of it.
    """
    nodes = [topology.node_index(name) for name in schedule.places]
    for i, node in enumerate(nodes):
        name, place = topology.nodes[node], schedule.ranks + i
        if topology.kinds[node] != "switch" or not topology.forwards[node]:
            raise TopologyError(f"{name}: a place must be a switch that forwards, got a {topology.kinds[node]}")
        if node in nodes[:i]:
            raise TopologyError(f"{name}: named twice among the places of the schedule; expected it once")
        if not topology.reduces[node] and reduces(place):
            raise TopologyError(f"{name}: the schedule reduces in it; expected `reduces: true` on that node")
        if not topology.multicasts[node] and sends_twice(place):
            raise TopologyError(
                f"{name}: the schedule sends a chunk from it more than once; expected `multicasts: true` on that node"
            )
    return np.concatenate([topology.rank_nodes, np.array(nodes, dtype=np.int64)]).astype(np.int64)


def places_along(ptr: Array, chosen: Array) -> tuple[Array, Array]:
    """Return the CSR form of some rows: their own pointer, and where in the old one each entry was.

    Examples
    --------
    >>> import numpy as np
    >>> places_along(np.array([0, 2, 3, 5]), np.array([2, 0]))
    (array([0, 2, 4]), array([3, 4, 0, 1]))
    """
    counts = np.diff(ptr)[chosen]
    own = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return own, np.repeat(ptr[:-1][chosen] - own[:-1], counts) + np.arange(own[-1])


def serialisation(size: int, bandwidth: int) -> int:
    """Picoseconds that a number of bytes takes at a bandwidth (bytes/s), rounded up, in exact integers.

    Examples
    --------
    >>> serialisation(1000, 3 * 10**9)
    333334
    """
    return -(-size * PICOSECONDS // bandwidth)


def busy_table(sizes: Array, rates: Array, needed: Array) -> Array:
    """Return the picoseconds that a size takes at a rate (see `Stations.rates`), where it is needed.

    Parameters
    ----------
    sizes, rates
        Both ascending.
    needed
        By size, by rate.

    Raises
    ------
    InputError
        If a time does not fit 64 bits.
    """
    table = np.zeros(needed.shape, dtype=np.int64)
    overhead = rates < 0
    table[:, overhead] = -1 - rates[overhead]
    for i, j in np.argwhere(needed & (rates > 0)).tolist():
        value = serialisation(int(sizes[i]), int(rates[j]))
        if value > INT64_MAX:
            raise InputError(
                f"size: {sizes[i]:,} bytes at {rates[j]:,} bytes/s take over 106 days, which 64 bits of "
                "picoseconds do not hold; expected a smaller size"
            )
        table[i, j] = value
    return table
