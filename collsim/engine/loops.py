"""A program that keeps its repeats: what the compiled engine runs, in memory that grows with rows, not with transfers.

A `Program` has a column entry for each transfer. Here a phase is a table of rows that is run ``times`` times, so ring
all_reduce on N ranks is two phases of N rows instead of 2N(N-1) transfers. What repeats is written once for a row: its
route, the predecessors in terms of (row, iterations back), and the chunk, which moves on by a shift. What does not is
written out as edges between single nodes. A phase that is run once is a list of transfers, so that every program has
this form.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from collsim.engine.program import SENDER, Array, Program

__all__ = ["Loops", "barriers", "loops_of"]

KINDS = {
    "times": np.int64, "row_ptr": np.int64, "first_step": np.int64, "block_steps": np.int64, "varies": np.bool_,
    "step": np.int32, "src": np.int32, "dst": np.int32, "channel": np.int32, "reduce": np.bool_,
    "chunk_base": np.int32, "chunk_rel": np.int32, "chunk_shift": np.int32, "chunk_window": np.int32,
    "size_class": np.int32, "class_bytes": np.int64, "chunk_class": np.int32,
    "dep_ptr": np.int64, "dep_row": np.int32, "dep_distance": np.int32, "dep_issued": np.bool_, "dep_lag": np.int64,
    "edge_node": np.int64, "edge_pred": np.int64, "edge_issued": np.bool_, "edge_lag": np.int64,
    "route": np.int32, "route_ptr": np.int64, "route_station": np.int32, "route_latency": np.int64,
    "route_rate": np.int32, "busy": np.int64,
    "station_kind": np.int64, "station_bandwidth": np.int64, "station_index": np.int64,
}  # fmt: skip
"""Types of the columns: one each, so that a kernel is compiled once."""


@dataclass(frozen=True, eq=False)
class Loops:
    """A program in the form of its repeats; all times are integer picoseconds, all sizes bytes.

    Row r of phase p is in iteration k the node ``first[p] + k * rows of p + (r - row_ptr[p])``, which is the number
    that it has in the `Program` written out. Nodes are transfers, but for joins, which only a phase that is run once
    has and which come last.

    Attributes
    ----------
    joins
        Number of joins: the last rows of the last phase.
    barrier
        Each step waits for all transfers of the one before (``synchronous``); there are no joins for it.
    times, row_ptr, first_step, block_steps, varies
        By phase: iterations; the rows ``row_ptr[p]:row_ptr[p + 1]``; number of the first step; steps of one iteration;
        whether the sizes of the rows change from iteration to iteration (then ``chunk_class`` has them).
    step, src, dst, channel, reduce
        By row; ``step`` counts from 0 within the block and ascends within a phase.
    chunk_base, chunk_rel, chunk_shift, chunk_window
        By row: the first destination chunk is ``base + (rel + k * shift) % window`` (a window is at least 1).
    size_class, class_bytes, chunk_class
        By row: its class of size, where the phase does not vary; bytes by class; class by chunk (empty if no phase
        varies).
    dep_ptr, dep_row, dep_distance, dep_issued, dep_lag
        Predecessors of each row inside its phase, in CSR form: in iteration k it waits for row ``dep_row`` (counted
        through all phases) of iteration ``k - dep_distance``, if there is one: for its end, or where ``dep_issued``
        until its first station is free again; plus the lag. ``dep_distance``, ``dep_issued`` and ``dep_lag`` are empty
        where all their values are 0.
    edge_node, edge_pred, edge_issued, edge_lag
        All other predecessors, node by node, sorted by ``edge_node``.
    route
        By row: the number of its route.
    route_ptr, route_station, route_latency, route_rate
        By route, in CSR form: the stations in order, the latency after each (links only), and its column in ``busy``.
    busy
        Picoseconds that a station is held: by class of size, by rate.
    station_kind, station_bandwidth, station_index
        As in `Program`.
    """

    joins: int
    barrier: bool
    times: Array
    row_ptr: Array
    first_step: Array
    block_steps: Array
    varies: Array
    step: Array
    src: Array
    dst: Array
    channel: Array
    reduce: Array
    chunk_base: Array
    chunk_rel: Array
    chunk_shift: Array
    chunk_window: Array
    size_class: Array
    class_bytes: Array
    chunk_class: Array
    dep_ptr: Array
    dep_row: Array
    dep_distance: Array
    dep_issued: Array
    dep_lag: Array
    edge_node: Array
    edge_pred: Array
    edge_issued: Array
    edge_lag: Array
    route: Array
    route_ptr: Array
    route_station: Array
    route_latency: Array
    route_rate: Array
    busy: Array
    station_kind: Array
    station_bandwidth: Array
    station_index: Array

    def __post_init__(self) -> None:
        for item in fields(self):
            if item.name in KINDS:
                column: Array = np.ascontiguousarray(getattr(self, item.name), dtype=KINDS[item.name]).view()
                column.flags.writeable = False  # to Numba, arrays that can be written are of another type
                object.__setattr__(self, item.name, column)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    @property
    def phases(self) -> int:
        """Number of phases."""
        return len(self.times)

    @property
    def rows(self) -> int:
        """Number of rows of all phases."""
        return len(self.step)

    @cached_property
    def first(self) -> Array:
        """Number of the first node of each phase, and of all nodes at the end."""
        return np.concatenate(([0], np.cumsum(self.times * np.diff(self.row_ptr)))).astype(np.int64)

    @property
    def nodes(self) -> int:
        """Number of transfers and joins."""
        return int(self.first[-1])

    @property
    def transfers(self) -> int:
        """Number of transfers."""
        return self.nodes - self.joins

    @property
    def is_forward(self) -> bool:
        """Whether each predecessor has a lower number than the node that waits for it."""
        later = self.dep_row >= np.repeat(np.arange(self.rows), np.diff(self.dep_ptr))
        if len(self.dep_distance):
            later &= self.dep_distance == 0
        return not later.any() and bool((self.edge_pred < self.edge_node).all())

    def visits(self) -> int:
        """Return the number of visits of stations of all transfers."""
        return int((self.row_visits() * np.repeat(self.times, np.diff(self.row_ptr))).sum())

    def row_visits(self) -> Array:
        """Return the number of stations on the route of each row."""
        return np.asarray(np.diff(self.route_ptr)[self.route])

    def classes(self, phase: int, iteration: Array) -> Array:
        """Return the class of size of each row of a phase in some iterations (a column of numbers)."""
        rows = slice(self.row_ptr[phase], self.row_ptr[phase + 1])
        if not self.varies[phase]:
            return np.broadcast_to(self.size_class[rows], np.broadcast_shapes(iteration.shape, self.step[rows].shape))
        return np.asarray(self.chunk_class[self.chunks(phase, iteration)])

    def chunks(self, phase: int, iteration: Array) -> Array:
        """Return the first destination chunk of each row of a phase in some iterations (a column of numbers)."""
        rows = slice(self.row_ptr[phase], self.row_ptr[phase + 1])
        base, rel, shift, window = (
            column[rows].astype(np.int64)
            for column in (self.chunk_base, self.chunk_rel, self.chunk_shift, self.chunk_window)
        )
        return np.asarray(base + (rel + iteration * shift) % window)

    def flat(self) -> Program:
        """Return the program written out, a column entry for each transfer."""
        columns: dict[str, list[Array]] = {name: [] for name in ("step", "src", "dst", "channel", "reduce", "chunk")}
        classes: list[Array] = []
        routes: list[Array] = []
        edges: list[tuple[Array, Array, Array, Array]] = [
            (self.edge_node, self.edge_pred, self.edge_issued, self.edge_lag)
        ]
        for p in range(self.phases):
            times, lo, hi = int(self.times[p]), int(self.row_ptr[p]), int(self.row_ptr[p + 1])
            k = np.arange(times, dtype=np.int64)[:, None]
            columns["step"].append((self.first_step[p] + k * self.block_steps[p] + self.step[lo:hi]).ravel())
            for name in ("src", "dst", "channel", "reduce"):
                columns[name].append(np.tile(getattr(self, name)[lo:hi], times))
            columns["chunk"].append(self.chunks(p, k).ravel())
            classes.append(self.classes(p, k).ravel())
            routes.append(np.tile(self.route[lo:hi], times))
            edges.append(self._phase_edges(p, k))
        flat = {name: np.concatenate([np.zeros(0, dtype=np.int64), *parts]) for name, parts in columns.items()}
        n = self.transfers
        route = np.concatenate([np.zeros(0, dtype=np.int64), *routes]).astype(np.int64)
        size_class = np.concatenate([np.zeros(0, dtype=np.int64), *classes]).astype(np.int64)
        joins = self.joins
        if self.barrier:
            joins, barrier = barriers(flat["step"])
            edges.append(barrier)
        node, pred, issued, lag = (np.concatenate(column) for column in zip(*edges, strict=True))
        order = np.argsort(node, kind="stable")
        counts = np.diff(self.route_ptr)[route]
        counts = np.concatenate([counts, np.zeros(n + joins - len(counts), dtype=np.int64)])
        visit_ptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        route = np.concatenate([route, np.zeros(n + joins - len(route), dtype=np.int64)])
        at = np.repeat(self.route_ptr[route] - visit_ptr[:-1], counts) + np.arange(visit_ptr[-1])
        visitor = np.repeat(np.arange(len(counts)), counts)
        return Program(
            **{name: column[:n] for name, column in flat.items() if name != "reduce"},
            reduce=flat["reduce"][:n].astype(np.bool_),
            bytes=self.class_bytes[size_class[:n]],
            joins=joins,
            pred_ptr=np.concatenate(([0], np.cumsum(np.bincount(node, minlength=n + joins)))).astype(np.int64),
            pred=pred[order],
            pred_issued=issued[order],
            pred_lag=lag[order],
            visit_ptr=visit_ptr,
            visit_station=self.route_station[at].astype(np.int64),
            visit_busy=self.busy[size_class[visitor], self.route_rate[at]],
            visit_latency=self.route_latency[at],
            station_kind=self.station_kind,
            station_bandwidth=self.station_bandwidth,
            station_index=self.station_index,
        )

    def _phase_edges(self, p: int, k: Array) -> tuple[Array, Array, Array, Array]:
        """Return the edges inside a phase between nodes."""
        lo, hi, first = int(self.row_ptr[p]), int(self.row_ptr[p + 1]), int(self.first[p])
        edges = slice(int(self.dep_ptr[lo]), int(self.dep_ptr[hi]))
        rows = hi - lo
        row = np.repeat(np.arange(rows), np.diff(self.dep_ptr[lo : hi + 1]))
        pred = self.dep_row[edges].astype(np.int64) - lo
        distance = self.dep_distance[edges].astype(np.int64) if len(self.dep_distance) else np.zeros_like(pred)
        there = (k >= distance).ravel()
        issued = self.dep_issued[edges] if len(self.dep_issued) else np.zeros(len(pred), dtype=np.bool_)
        lag = self.dep_lag[edges] if len(self.dep_lag) else np.zeros(len(pred), dtype=np.int64)
        return (
            (first + k * rows + row).ravel()[there],
            (first + (k - distance) * rows + pred).ravel()[there],
            np.tile(issued, len(k))[there],
            np.tile(lag, len(k))[there],
        )


def barriers(step: Array) -> tuple[int, tuple[Array, Array, Array, Array]]:
    """Join each two steps: the join waits for all transfers of one, all transfers of the next wait for the join."""
    n = len(step)
    group = np.cumsum(np.diff(step, prepend=step[:1]) != 0)
    joins = int(group[-1]) if n else 0
    early, late = np.flatnonzero(group < joins), np.flatnonzero(group > 0)
    node = np.concatenate([n + group[early], late])
    pred = np.concatenate([early, n + group[late] - 1])
    return joins, (node, pred, np.zeros(len(node), dtype=np.bool_), np.zeros(len(node), dtype=np.int64))


def loops_of(program: Program) -> Loops:
    """Return a program as one phase that is run once.

    Examples
    --------
    >>> import collsim
    >>> from collsim.engine.lowering.lower import lower
    >>> topology = collsim.topology.ring(3, bandwidth="1GB/s", latency="1us")
    >>> loops = loops_of(lower(collsim.algorithms.ring_all_reduce(3), topology, 3000))
    >>> loops.phases, loops.rows, loops.nodes
    (1, 12, 12)
    """
    n, nodes = program.transfers, program.nodes
    none = np.zeros(0, dtype=np.int64)

    def column(values: Array) -> Array:
        return np.concatenate([values, np.zeros(program.joins, dtype=np.asarray(values).dtype)])

    visitor = np.repeat(np.arange(nodes), np.diff(program.visit_ptr))
    # what a visit takes depends on the size and, but for senders, on the bandwidth
    sends = program.station_kind[program.visit_station] == SENDER
    rate_key = np.where(sends, -1 - program.visit_busy, program.station_bandwidth[program.visit_station])
    rates, rate = np.unique(rate_key, return_inverse=True)
    class_bytes, size_class = np.unique(column(program.bytes), return_inverse=True)
    busy = np.zeros((len(class_bytes), len(rates)), dtype=np.int64)
    busy[size_class[visitor], rate] = program.visit_busy
    if (busy[size_class[visitor], rate] != program.visit_busy).any():  # or on more: then each node is its own class
        class_bytes, size_class = column(program.bytes), np.arange(nodes)
        busy = np.zeros((nodes, len(rates)), dtype=np.int64)
        busy[visitor, rate] = program.visit_busy
    ones, zeros = np.ones(nodes, dtype=np.int32), np.zeros(nodes, dtype=np.int32)
    return Loops(
        joins=program.joins,
        barrier=False,
        times=np.array([1]),
        row_ptr=np.array([0, nodes]),
        first_step=np.array([0]),
        block_steps=np.array([int(program.step[-1]) + 1 if n else 0]),
        varies=np.array([False]),
        step=column(program.step),
        src=column(program.src),
        dst=column(program.dst),
        channel=column(program.channel),
        reduce=column(program.reduce),
        chunk_base=column(program.chunk),
        chunk_rel=zeros,
        chunk_shift=zeros,
        chunk_window=ones,
        size_class=size_class,
        class_bytes=class_bytes,
        chunk_class=none,
        dep_ptr=program.pred_ptr,
        dep_row=program.pred,
        dep_distance=none,
        dep_issued=program.pred_issued if program.pred_issued.any() else none,
        dep_lag=program.pred_lag if program.pred_lag.any() else none,
        edge_node=none,
        edge_pred=none,
        edge_issued=none,
        edge_lag=none,
        route=np.arange(nodes),
        route_ptr=program.visit_ptr,
        route_station=program.visit_station,
        route_latency=program.visit_latency,
        route_rate=rate,
        busy=busy,
        station_kind=program.station_kind,
        station_bandwidth=program.station_bandwidth,
        station_index=program.station_index,
    )
