"""Lowering: schedule + topology + size -> `Program`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.engine.loops import barriers
from collsim.engine.lowering.stations import bind_places, busy_table, places_along, serialisation, stations_of
from collsim.engine.program import Program
from collsim.errors import InputError, ScheduleError
from collsim.schedule.dependencies import explicit_edges, infer, locations
from collsim.schedule.model import SCRATCH, Schedule, Transfers
from collsim.topology import Topology

__all__ = ["lower", "refuse_other_ranks", "refuse_unequal", "serialisation"]

Array = npt.NDArray[Any]


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
    refuse_other_ranks(schedule, topology)
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
        joins, barrier = barriers(transfers.step)
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
        visit_busy=_busy(routes, payload[visitor]),
        visit_latency=routes.visit_latency,
        station_kind=routes.stations.station_kind,
        station_bandwidth=routes.stations.station_bandwidth,
        station_index=routes.stations.station_index,
    )


def refuse_other_ranks(schedule: Schedule, topology: Topology) -> None:
    """Refuse a schedule for another number of ranks than the topology has."""
    if schedule.ranks != topology.n_ranks:
        raise InputError(
            f"ranks: the schedule has {schedule.ranks}, topology {topology.name!r} has {topology.n_ranks}; "
            "expected as many"
        )


def _payload(schedule: Schedule, t: Transfers, elements: int) -> Array:
    """Elements of each transfer."""
    sizes = schedule.elements(elements)
    owner = np.repeat(np.arange(len(t)), np.diff(t.ptr))
    src_scratch, dst_scratch = (buffer[owner] == SCRATCH for buffer in (t.src_buffer, t.dst_buffer))
    if not (src_scratch.any() or dst_scratch.any()):
        entries = sizes[t.src_chunks]
        refuse_unequal(t, owner, t.src_chunks, t.dst_chunks, entries, sizes[t.dst_chunks])
    else:
        entries = _through_scratch(schedule, t, owner, sizes)
    if len(entries) == len(t):
        return entries
    payload: Array = np.bincount(owner, weights=entries, minlength=len(t)).astype(np.int64)
    if len(entries) and int(sizes.max()) * int(np.diff(t.ptr).max()) > 2**52:  # beyond the exact range of weights
        payload = np.zeros(len(t), dtype=np.int64)
        np.add.at(payload, owner, entries)
    return payload


def refuse_unequal(
    t: Any, owner: Any, src_chunk: Array, dst_chunk: Array, entries: Array, wanted: Array, first_step: int = 0
) -> None:
    """Refuse the first message whose chunks differ in size on its two sides.

    ``t`` has the columns ``step`` (from ``first_step``), ``src`` and ``dst`` by transfer. The others have a value for
    each chunk of a message, ``owner`` its transfer (or is the slice of transfers, where each has one chunk).
    """
    bad = entries != wanted
    if bad.any():
        at = int(np.argmax(bad))
        step, src, dst = (getattr(t, name)[owner][at] for name in ("step", "src", "dst"))
        raise ScheduleError(
            f"step {first_step + step}, {src} -> {dst}: chunk {src_chunk[at]} has {entries[at]} elements, "
            f"chunk {dst_chunk[at]} has {wanted[at]}; expected a number of elements that the chunks divide"
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
    refuse_unequal(t, owner, t.src_chunks, t.dst_chunks, entries, wanted)
    return entries


class _Routes:
    """Stations of each transfer: found once for each distinct (src, dst, channel, path, reduces), then dealt out."""

    def __init__(self, schedule: Schedule, topology: Topology, t: Transfers) -> None:
        node_of = topology.rank_nodes
        if schedule.places:
            owner = np.repeat(np.arange(len(t)), np.diff(t.ptr))

            def sends_twice(place: int) -> bool:
                sent = t.src_chunks[t.src[owner] == place]
                return len(np.unique(sent)) != len(sent)

            node_of = bind_places(
                schedule, topology, lambda place: bool((t.reduce & (t.dst == place)).any()), sends_twice
            )
        keys = np.stack([t.src, t.dst, t.channel, t.via, t.reduce], axis=0).astype(np.int64)
        code, at = np.zeros(len(t), dtype=np.int64), 1
        for column in keys:  # one number a combination: sorting numbers is much quicker than sorting rows
            low = int(column.min(initial=0))
            code = code + (column - low) * at
            at *= int(column.max(initial=0)) - low + 1
        _, first, which = np.unique(code, return_index=True, return_inverse=True)
        self.stations = stations_of(schedule, topology, node_of, *keys[:, first])
        self.visit_ptr, pick = places_along(self.stations.route_ptr, which)
        self.visit_station = self.stations.route_station[pick].astype(np.int64)
        self.visit_latency = self.stations.route_latency[pick]


def _busy(routes: _Routes, payload: Array) -> Array:
    """Picoseconds that each visit holds its station: a table of the distinct (bytes, rate)."""
    rates, rate_of = routes.stations.rates()
    sizes, size_index = np.unique(payload, return_inverse=True)
    rate_index = rate_of[routes.visit_station]
    needed = np.zeros((len(sizes), len(rates)), dtype=np.bool_)
    needed[size_index, rate_index] = True
    busy: Array = busy_table(sizes, rates, needed)[size_index, rate_index]
    return busy
