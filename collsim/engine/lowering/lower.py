"""Lowering: schedule + topology + size -> `Program`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.engine.program import COPY, LINK, REDUCER, SENDER, Program
from collsim.errors import InputError, ScheduleError, TopologyError
from collsim.schedule.dependencies import explicit_edges, infer, locations
from collsim.schedule.model import SCRATCH, Schedule, Transfers
from collsim.topology import Topology

__all__ = ["lower", "serialisation"]

Array = npt.NDArray[Any]

INT64_MAX = 2**63 - 1
PICOSECONDS = 10**12


def lower(
    schedule: Schedule,
    topology: Topology,
    size: int,
    *,
    element_size: int = 1,
    synchronous: bool = False,
    zero_copy: bool = False,
) -> Program:
    """Lower a schedule on a topology to a program.

    Parameters
    ----------
    schedule, topology
        The topology must have as many ranks as the schedule.
    size
        Bytes, in the convention of `Collective`; a remainder that is no whole element is left out.
    element_size
        Bytes of an element; chunks are cut between elements.
    synchronous
        Put a barrier (a join without duration) between steps.
    zero_copy
        Let a write wait for every earlier read of its chunk.

    Raises
    ------
    ScheduleError, TopologyError, InputError
        If ranks do not match, a route is missing, or a time does not fit 64 bits.
    """
    if schedule.ranks != topology.n_ranks:
        raise InputError(
            f"ranks: the schedule has {schedule.ranks}, topology {topology.name!r} has {topology.n_ranks}; "
            "expected as many"
        )
    transfers = schedule.expand()
    payload = _payload(schedule, transfers, size // element_size) * element_size
    routes = _Routes(schedule, topology, transfers)
    ptr, pred = infer(schedule, transfers, zero_copy=zero_copy)
    owner = np.repeat(np.arange(len(transfers)), np.diff(ptr))
    edges = [owner, pred, np.zeros(len(pred), dtype=bool), np.zeros(len(pred), dtype=np.int64)]
    if schedule.edges:
        edges = [np.concatenate(pair) for pair in zip(edges, explicit_edges(schedule), strict=True)]
    joins = 0
    if synchronous:
        joins, barrier = _barriers(transfers)
        edges = [np.concatenate(pair) for pair in zip(edges, barrier, strict=True)]
    nodes = len(transfers) + joins
    order = np.argsort(edges[0], kind="stable")
    pred_ptr = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(edges[0], minlength=nodes), out=pred_ptr[1:])
    visit_ptr = np.concatenate([routes.visit_ptr, np.full(joins, routes.visit_ptr[-1])])
    visitor = np.repeat(np.arange(nodes), np.diff(visit_ptr))
    return Program(
        step=transfers.step,
        src=transfers.src,
        dst=transfers.dst,
        channel=transfers.channel,
        chunk=transfers.dst_chunks[transfers.ptr[:-1]] if len(transfers) else np.zeros(0, dtype=np.int64),
        bytes=payload,
        reduce=transfers.reduce,
        joins=joins,
        pred_ptr=pred_ptr,
        pred=edges[1][order],
        pred_issued=edges[2][order],
        pred_lag=edges[3][order],
        visit_ptr=visit_ptr,
        visit_station=routes.visit_station,
        visit_busy=_busy(topology, routes, payload[visitor]),
        visit_latency=routes.visit_latency,
        station_kind=routes.station_kind,
        station_bandwidth=routes.station_bandwidth,
        station_index=routes.station_index,
    )


def serialisation(size: int, bandwidth: int) -> int:
    """Picoseconds that a number of bytes takes at a bandwidth (bytes/s), rounded up, in exact integers.

    Examples
    --------
    >>> serialisation(1000, 3 * 10**9)
    333334
    """
    return -(-size * PICOSECONDS // bandwidth)


def _payload(schedule: Schedule, t: Transfers, elements: int) -> Array:
    """Elements of each transfer."""
    sizes = schedule.elements(elements)
    owner = np.repeat(np.arange(len(t)), np.diff(t.ptr))
    src_scratch, dst_scratch = (buffer[owner] == SCRATCH for buffer in (t.src_buffer, t.dst_buffer))
    if not (src_scratch.any() or dst_scratch.any()):
        entries = sizes[t.src_chunks]
        _refuse_unequal(t, owner, entries, sizes[t.dst_chunks])
    else:
        entries = _through_scratch(schedule, t, owner, sizes)
    if len(entries) == len(t):
        return entries
    payload: Array = np.bincount(owner, weights=entries, minlength=len(t)).astype(np.int64)
    if len(entries) and int(sizes.max()) * int(np.diff(t.ptr).max()) > 2**52:  # beyond the exact range of weights
        payload = np.zeros(len(t), dtype=np.int64)
        np.add.at(payload, owner, entries)
    return payload


def _refuse_unequal(t: Transfers, owner: Array, entries: Array, wanted: Array) -> None:
    bad = entries != wanted
    if bad.any():
        at = int(np.argmax(bad))
        row = owner[at]
        raise ScheduleError(
            f"step {t.step[row]}, {t.src[row]} -> {t.dst[row]}: chunk {t.src_chunks[at]} has {entries[at]} elements, "
            f"chunk {t.dst_chunks[at]} has {wanted[at]}; expected a number of elements that the chunks divide"
        )


def _through_scratch(schedule: Schedule, t: Transfers, owner: Array, sizes: Array) -> Array:
    """Elements of each entry where scratch takes part: a scratch chunk has the size of what was written into it."""
    src = locations(schedule, t.src[owner], t.src_buffer[owner], t.src_chunks).tolist()
    dst = locations(schedule, t.dst[owner], t.dst_buffer[owner], t.dst_chunks).tolist()
    from_scratch = (t.src_buffer[owner] == SCRATCH).tolist()
    to_scratch = (t.dst_buffer[owner] == SCRATCH).tolist()
    src_size, dst_size = sizes[np.where(from_scratch, 0, t.src_chunks)], sizes[np.where(to_scratch, 0, t.dst_chunks)]
    held: dict[int, int] = {}
    entries = np.zeros(len(owner), dtype=np.int64)
    steps = t.step[owner]
    borders = np.flatnonzero(np.diff(steps, prepend=-1, append=-1)).tolist() if len(steps) else []
    for lo, hi in pairwise(borders):
        for e in range(lo, hi):
            entries[e] = held.get(src[e], 0) if from_scratch[e] else src_size[e]
        for e in range(lo, hi):
            if to_scratch[e]:
                held[dst[e]] = int(entries[e])
    inside = ~np.array(to_scratch)
    wanted = np.where(inside, dst_size, entries)
    _refuse_unequal(t, owner, entries, wanted)
    return entries


class _Routes:
    """Stations of each transfer: found once for each distinct (src, dst, channel, path, reduces), then dealt out."""

    def __init__(self, schedule: Schedule, topology: Topology, t: Transfers) -> None:
        ranks, nodes, links = schedule.ranks, topology.n_nodes, topology.n_links
        node_of = topology.rank_nodes
        if schedule.places:
            node_of = np.concatenate([node_of, _bind_places(schedule, topology, t)])
        keys = np.stack([t.src, t.dst, t.channel, t.via, t.reduce], axis=0).astype(np.int64)
        code, at = np.zeros(len(t), dtype=np.int64), 1
        for column in keys:  # one number a combination: sorting numbers is much quicker than sorting rows
            low = int(column.min(initial=0))
            code = code + (column - low) * at
            at *= int(column.max(initial=0)) - low + 1
        _, first, which = np.unique(code, return_index=True, return_inverse=True)
        src, dst, channel, via, reduce = keys[:, first]
        route_ptr, route_links = self._routes(schedule, topology, node_of, src, dst, channel, via)
        engines: dict[tuple[int, int], int] = {}
        stations: list[int] = []
        latencies: list[int] = []
        ptr = [0]
        overhead, engine_rate, reduce_rate = (
            getattr(topology, name).tolist() for name in ("send_overhead", "channel_bandwidth", "reduce_bandwidth")
        )
        latency = topology.link_latency.tolist()
        # stations: links, then senders and reducers of nodes, then copy engines
        rows = zip(src.tolist(), dst.tolist(), channel.tolist(), reduce.tolist(), strict=True)
        for i, (a, b, c, reduces) in enumerate(rows):
            source, sink = int(node_of[a]), int(node_of[b])
            if a != b:
                if overhead[source]:
                    stations.append(links + source)
                    latencies.append(0)
                if engine_rate[source]:
                    number = engines.setdefault((source, c), len(engines))
                    stations.append(links + 2 * nodes + number)
                    latencies.append(0)
                route = route_links[route_ptr[i] : route_ptr[i + 1]].tolist()
                stations += route
                latencies += [latency[link] for link in route]
            if reduces and b < ranks and reduce_rate[sink]:
                stations.append(links + nodes + sink)
                latencies.append(0)
            ptr.append(len(stations))
        starts, counts = np.array(ptr[:-1], dtype=np.int64)[which], np.diff(ptr).astype(np.int64)[which]
        self.visit_ptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        pick = np.repeat(starts - self.visit_ptr[:-1], counts) + np.arange(self.visit_ptr[-1])
        self.visit_station = np.array(stations, dtype=np.int64)[pick]
        self.visit_latency = np.array(latencies, dtype=np.int64)[pick]
        owners = [source for source, _ in engines]
        self.station_kind = np.repeat([LINK, SENDER, REDUCER, COPY], [links, nodes, nodes, len(engines)])
        self.station_index = np.concatenate(
            [np.arange(links), np.arange(nodes), np.arange(nodes), np.arange(len(engines))]
        )
        self.station_bandwidth = np.concatenate(
            [topology.link_bandwidth, np.zeros(nodes, dtype=np.int64), topology.reduce_bandwidth,
             topology.channel_bandwidth[np.array(owners, dtype=np.int64)]]
        )  # fmt: skip

    def _routes(
        self, schedule: Schedule, topology: Topology, node_of: Array, src: Array, dst: Array, channel: Array, via: Array
    ) -> tuple[Array, Array]:
        if (via < 0).all():
            return topology.route_nodes(node_of[src], node_of[dst], channel)
        parts: list[tuple[int, ...]] = []
        for a, b, c, v in zip(src.tolist(), dst.tolist(), channel.tolist(), via.tolist(), strict=True):
            stops = schedule.paths[v] if v >= 0 else ()
            parts.append(topology.route_via(int(node_of[a]), int(node_of[b]), stops, c) if a != b else ())
        ptr = np.concatenate(([0], np.cumsum([len(part) for part in parts])))
        return ptr, np.array([link for part in parts for link in part], dtype=np.int64)


def _bind_places(schedule: Schedule, topology: Topology, t: Transfers) -> Array:
    """Topology nodes of the places; they must be able to do what the schedule asks of them."""
    nodes = np.array([topology.node_index(name) for name in schedule.places], dtype=np.int64)
    for i, node in enumerate(nodes.tolist()):
        place = schedule.ranks + i
        if topology.kinds[node] != "switch" or not topology.forwards[node]:
            raise TopologyError(
                f"{topology.nodes[node]}: a place must be a switch that forwards, got a {topology.kinds[node]}"
            )
        if node in nodes[:i]:
            raise TopologyError(
                f"{topology.nodes[node]}: named twice among the places of the schedule; expected it once"
            )
        if not topology.reduces[node] and (t.reduce & (t.dst == place)).any():
            raise TopologyError(
                f"{topology.nodes[node]}: the schedule reduces in it; expected `reduces: true` on that node"
            )
        if not topology.multicasts[node]:
            owner = np.repeat(np.arange(len(t)), np.diff(t.ptr))
            sent = t.src_chunks[t.src[owner] == place]
            if len(np.unique(sent)) != len(sent):
                raise TopologyError(
                    f"{topology.nodes[node]}: the schedule sends a chunk from it more than once; expected "
                    "`multicasts: true` on that node"
                )
    return nodes


def _busy(topology: Topology, routes: _Routes, payload: Array) -> Array:
    """Picoseconds that each visit holds its station: a table of the distinct (bytes, bandwidth)."""
    kind, rate = routes.station_kind[routes.visit_station], routes.station_bandwidth[routes.visit_station]
    sizes, size_index = np.unique(payload, return_inverse=True)
    rates, rate_index = np.unique(rate, return_inverse=True)
    table = np.zeros((len(sizes), len(rates)), dtype=np.int64)
    needed = np.zeros(table.shape, dtype=bool)
    needed[size_index, rate_index] = True
    for i, j in np.argwhere(needed).tolist():
        if rates[j]:
            value = serialisation(int(sizes[i]), int(rates[j]))
            if value > INT64_MAX:
                raise InputError(
                    f"size: {sizes[i]:,} bytes at {rates[j]:,} bytes/s take over 106 days, which 64 bits of "
                    "picoseconds do not hold; expected a smaller size"
                )
            table[i, j] = value
    busy: Array = table[size_index, rate_index]
    is_sender = kind == SENDER
    if is_sender.any():
        busy[is_sender] = topology.send_overhead[routes.station_index[routes.visit_station[is_sender]]]
    return busy


def _barriers(t: Transfers) -> tuple[int, list[Array]]:
    """Join each two steps: the join waits for all transfers of one, all transfers of the next wait for the join."""
    n = len(t)
    borders = np.flatnonzero(np.diff(t.step, prepend=-1)) if n else np.zeros(0, dtype=np.int64)
    joins = max(0, len(borders) - 1)
    group = np.cumsum(np.isin(np.arange(n), borders)) - 1
    early, late = np.flatnonzero(group < joins), np.flatnonzero(group > 0)
    owner = np.concatenate([n + group[early], late])
    pred = np.concatenate([early, n + group[late] - 1])
    return joins, [owner, pred, np.zeros(len(owner), dtype=bool), np.zeros(len(owner), dtype=np.int64)]
