"""Loops written by hand, and the sweep run in all its ways."""

from __future__ import annotations

from collections.abc import Sequence
from unittest import mock

import numpy as np
import numpy.typing as npt

from collsim.engine.compiled import sweep
from collsim.engine.compiled.sweep import Sweep
from collsim.engine.loops import Loops, loops_of
from collsim.engine.lowering.lower import serialisation
from collsim.engine.program import COPY, LINK, REDUCER, SENDER
from collsim.topology import Topology
from tests.programs import Plan

Array = npt.NDArray[np.int64]


FIFO = ("alpha_beta", "store_and_forward", "cut_through")
WAYS = [(jump, rows, search) for jump in (False, True) for rows, search in ((False, 31), (True, 0), (True, 31))]


def finish(loops: Loops, network: str, jump: bool = False, rows: bool = False, search: int = 31) -> Sweep:
    """Run a sweep without records and return it as it stands at the end, with the state of its stations."""
    with mock.patch.multiple(sweep, ROWS_FROM=0 if rows else 2**62, SEARCH=search):
        swept = Sweep(loops, network, False, lambda done, total: None)
        for phase in range(loops.phases):
            swept.run_phase(phase, jump)
    return swept


def ring_loops(topology: Topology, size: int, order: Sequence[int] | None = None, barrier: bool = False) -> Loops:
    """Write ring all_reduce on a topology as two phases of N rows: row p sends from position p to p + 1."""
    n = topology.n_ranks
    src = np.arange(n) if order is None else np.array(order)
    dst = np.roll(src, -1)
    ptr, links = topology.routes(src, dst)
    nodes, n_links = topology.n_nodes, topology.n_links
    station: list[int] = []
    route_ptr = [0]
    for reduces in (True, False):
        for p in range(n):
            a, b = int(topology.rank_nodes[src[p]]), int(topology.rank_nodes[dst[p]])
            if topology.send_overhead[a]:
                station.append(n_links + a)
            if topology.channel_bandwidth[a]:
                station.append(n_links + 2 * nodes + a)
            station += links[ptr[p] : ptr[p + 1]].tolist()
            if reduces and topology.reduce_bandwidth[b]:
                station.append(n_links + nodes + b)
            route_ptr.append(len(station))
    zeros = np.zeros(nodes, dtype=np.int64)
    return ring_over(
        n,
        size,
        np.array(route_ptr),
        np.array(station, dtype=np.int64),
        kind=np.repeat([LINK, SENDER, REDUCER, COPY], [n_links, nodes, nodes, nodes]),
        bandwidth=np.concatenate(
            [topology.link_bandwidth, zeros, topology.reduce_bandwidth, topology.channel_bandwidth]
        ),
        latency=np.concatenate([topology.link_latency, zeros, zeros, zeros]),
        overhead=np.concatenate([np.zeros(n_links, dtype=np.int64), topology.send_overhead, zeros, zeros]),
        barrier=barrier,
    )


def ring_over(
    n: int,
    size: int,
    route_ptr: Array,
    station: Array,
    *,
    kind: Array,
    bandwidth: Array,
    latency: Array,
    overhead: Array,
    barrier: bool = False,
) -> Loops:
    """Write a ring over stations: N routes of rows that reduce and N of rows that copy (or N for both)."""
    speeds = np.where(kind == SENDER, -overhead, bandwidth)[station]
    rates, rate = np.unique(speeds, return_inverse=True)
    least, more = divmod(size, n)
    sizes = [least, least + 1] if more else [least]
    busy = [[serialisation(b, int(r)) if r > 0 else -int(r) for r in rates] for b in sizes]
    p = np.arange(n)
    two = np.concatenate([p, p])
    ones = np.ones(2 * n)
    return Loops(
        joins=0,
        barrier=barrier,
        times=np.array([n - 1, n - 1]),
        row_ptr=np.array([0, n, 2 * n]),
        first_step=np.array([0, n - 1]),
        block_steps=np.array([1, 1]),
        varies=np.array([bool(more)] * 2),
        step=0 * ones,
        src=two,
        dst=(two + 1) % n,
        channel=0 * ones,
        reduce=np.repeat([True, False], n),
        chunk_base=0 * ones,
        chunk_rel=np.concatenate([(p - 1) % n, p]),
        chunk_shift=-ones,
        chunk_window=n * ones,
        size_class=0 * ones,
        class_bytes=np.array(sizes),
        chunk_class=(p < more) * 1 if more else np.zeros(0),
        dep_ptr=np.arange(2 * n + 1),
        dep_row=np.concatenate([(p - 1) % n, n + (p - 1) % n]),
        dep_distance=ones,
        dep_issued=np.zeros(0),
        dep_lag=np.zeros(0),
        edge_node=(n - 1) * n + p,
        edge_pred=(n - 2) * n + (p - 1) % n,
        edge_issued=np.zeros(n),
        edge_lag=np.zeros(n),
        route=np.arange(2 * n) if len(route_ptr) > n + 1 else two,
        route_ptr=route_ptr,
        route_station=station,
        route_latency=latency[station],
        route_rate=rate,
        busy=np.array(busy),
        station_kind=kind,
        station_bandwidth=bandwidth,
        station_index=np.arange(len(kind)),
    )


def looped(plan: Plan, iterations: int, after: list[int], latency: list[int] | None = None) -> Loops:
    """Repeat the transfers of a plan; each waits for one of the iteration before."""
    once = loops_of(plan.program())
    rows = once.rows
    names = [name for name in Loops.__dataclass_fields__ if not name.startswith(("dep_", "edge_"))]
    columns = {name: getattr(once, name) for name in names}
    columns |= {"times": np.array([iterations]), "block_steps": np.array([1])}
    if latency is not None:
        columns["route_latency"] = np.array(latency)
    none = np.zeros(0)
    return Loops(
        **columns, dep_ptr=np.arange(rows + 1), dep_row=np.array(after), dep_distance=np.ones(rows), dep_issued=none,
        dep_lag=none, edge_node=none, edge_pred=none, edge_issued=none, edge_lag=none,
    )  # fmt: skip
