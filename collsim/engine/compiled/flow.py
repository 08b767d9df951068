"""The fluid model, compiled: transfers in flight share links max-min fairly.

The rules are those of `collsim.engine.fluid`, and so are the roundings, but for one: a rate is a whole number of units
of 2^-k bytes/s, with the largest k for which all bandwidths stay below 2^62 units, rounded down (and at least 1). Sums
of rates are then exact, so that rates can be worked out again for a part of the flows. What a unit makes out of a
rate is less than `SLACK`, but for links that are ten thousand times slower than the fastest.

An event costs the logarithm of the events that wait, and each instant at which flows start or end one solution. That
costs a visit or three of each flow on each link that it has to look at: all links of equal flows that end together, a
few where changes stay local, nearly all where every flow between many ranks ends at another time, since there nearly
every rate does change. Memory is 40
bytes a transfer, 100 more for as many as are ever in flight together, and 4 a visit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collsim.engine.compiled.flow_kernel import (
    CELLS,
    DONE,
    GROUP,
    LATEST,
    TOO_LONG,
    WORKING,
    Fixed,
    Nodes,
    Records,
    run_events,
)
from collsim.engine.compiled.flow_rates import ANY_RATE, THRESHOLD, Flows, Links
from collsim.engine.deadlock import deadlock
from collsim.engine.fluid import SLACK
from collsim.engine.loops import Loops
from collsim.engine.outcome import LARGEST_TIME, Outcome, Pulse, TooLongError, budgets, no_pulse
from collsim.engine.program import COPY, LINK, SENDER, Array, Times
from collsim.errors import DeadlockError

__all__ = ["run_flow"]

SECOND = 10**12
FIRST_BUDGET = 1_000_000
LARGEST_EXPLAINED = 4_000_000
"""Nodes of a program that is written out to explain a deadlock."""


def run_flow(loops: Loops, *, records: bool, pulse: Pulse = no_pulse) -> Outcome:
    """Execute a program in the fluid model.

    Parameters
    ----------
    loops
        What to run.
    records
        Whether to keep the times of each transfer and visit.
    pulse
        Called about ten times a second.

    Returns
    -------
    Outcome
        ``longest_wait`` is that of senders and reducers; nobody waits for a link.

    Raises
    ------
    TooLongError
        If a time passes `LARGEST_TIME`.
    DeadlockError
        If transfers wait for each other.
    """
    fixed = _fixed(loops)
    if fixed.lead.max(initial=0) >= LARGEST_TIME:
        raise TooLongError
    scale = _scale(loops)
    nodes, flows, links = _nodes(loops), _flows(loops), _links(loops, fixed, scale)
    kept = (loops.nodes, loops.nodes, loops.visits(), loops.visits()) if records else (0, 0, 0, 0)
    record = Records(*(np.zeros(size, dtype=np.int64) for size in kept))
    cell = np.zeros(CELLS, dtype=np.int64)
    cell[THRESHOLD] = ANY_RATE
    for budget in budgets(FIRST_BUDGET):
        state = run_events(fixed, nodes, flows, links, record, cell, float(SECOND * scale), budget)
        if state != WORKING:
            break
        pulse(min(int(cell[DONE]), loops.transfers), loops.transfers)
    if state == TOO_LONG:
        raise TooLongError
    if cell[DONE] < loops.nodes:
        raise _deadlock(loops, nodes.at == 2, int(cell[GROUP]))
    n = loops.transfers
    times = None
    if records:
        times = Times(nodes.ready[:n], record.begin[:n], record.end[:n], record.visit_start, record.visit_end)
    return Outcome(makespan=int(cell[LATEST]), longest_wait=nodes.wait, times=times, shortcut="")


def _scale(loops: Loops) -> int:
    """Return how many units of rate make a byte/s."""
    return 1 << max(0, 62 - int(loops.station_bandwidth.max(initial=1)).bit_length())


def _fixed(loops: Loops) -> Fixed:
    """Lay out what does not change."""
    row = np.repeat(np.arange(loops.rows, dtype=np.int64), np.diff(loops.dep_ptr))
    by_pred = np.argsort(loops.dep_row, kind="stable")
    by_edge = np.argsort(loops.edge_pred, kind="stable")
    kind = loops.station_kind[loops.route_station]
    column, busy, wire = _sizes(loops)
    row_visits = np.concatenate(([0], np.cumsum(loops.row_visits())))
    at = row_visits[loops.row_ptr]
    return Fixed(
        first=loops.first,
        row_ptr=loops.row_ptr,
        varies=loops.varies,
        times=loops.times,
        route=loops.route,
        size_class=loops.size_class,
        chunk_base=loops.chunk_base,
        chunk_rel=loops.chunk_rel,
        chunk_shift=loops.chunk_shift,
        chunk_window=loops.chunk_window,
        chunk_class=loops.chunk_class,
        succ_ptr=_pointers(loops.dep_row, loops.rows),
        succ_row=row[by_pred],
        succ_distance=_filled(loops.dep_distance, row)[by_pred],
        succ_issued=_filled(loops.dep_issued, row)[by_pred],
        succ_lag=_filled(loops.dep_lag, row)[by_pred],
        edge_ptr=_pointers(loops.edge_pred, loops.nodes),
        edge_node=loops.edge_node[by_edge],
        edge_issued=loops.edge_issued[by_edge],
        edge_lag=loops.edge_lag[by_edge],
        route_ptr=loops.route_ptr,
        route_station=loops.route_station,
        route_column=column,
        sends=_route_sums(loops, kind == SENDER),
        carries=_route_sums(loops, _carries(kind)),
        lead=_route_sums(loops, np.where(_carries(kind), loops.route_latency, 0)),
        busy=busy,
        wire=wire,
        group_ptr=_groups(loops),
        visit_base=np.concatenate(([0], np.cumsum(np.diff(at) * loops.times)))[:-1],
        visit_rows=np.diff(at),
        visit_offset=row_visits[:-1] - np.repeat(at[:-1], np.diff(loops.row_ptr)),
        slack=SLACK,
    )


def _carries(kind: Array) -> Array:
    return np.asarray((kind == COPY) | (kind == LINK))


def _filled(column: Array, like: Array) -> Array:
    """Return a column that is left out where it is zero."""
    return column if len(column) else np.zeros(len(like), dtype=column.dtype)


def _pointers(numbers: Array, size: int) -> Array:
    """Return the CSR pointers of a list that is sorted by these numbers."""
    return np.concatenate(([0], np.cumsum(np.bincount(numbers, minlength=size)))).astype(np.int64)


def _route_sums(loops: Loops, values: Array) -> Array:
    """Return the sum over the visits of each route."""
    total = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
    return np.asarray(np.diff(total[loops.route_ptr]))


def _sizes(loops: Loops) -> tuple[Array, Array, Array]:
    """Return for each visit of a route its column in two tables by class of size: time, and bytes on the wire."""
    speeds, speed = np.unique(loops.station_bandwidth, return_inverse=True)
    code = loops.route_rate.astype(np.int64) * max(1, len(speeds)) + speed[loops.route_station]
    there = np.flatnonzero(np.bincount(code))
    column = np.searchsorted(there, code).astype(np.int32)
    busy = np.ascontiguousarray(loops.busy[:, there // max(1, len(speeds))])
    wire = busy.astype(object) * speeds[there % max(1, len(speeds))].astype(object) // SECOND  # beyond 64 bits
    return column, busy, np.ascontiguousarray(wire.astype(np.int64))


def _groups(loops: Loops) -> Array:
    """Return the ends of the groups of nodes that are released one after the other."""
    if not loops.barrier:
        return np.array([loops.nodes], dtype=np.int64)
    ends = []
    for p in range(loops.phases):
        step = loops.step[loops.row_ptr[p] : loops.row_ptr[p + 1]]
        last = np.flatnonzero(np.diff(step, append=-1)) + 1
        ends.append((loops.first[p] + np.arange(loops.times[p])[:, None] * len(step) + last).ravel())
    return np.concatenate(ends).astype(np.int64) if ends else np.array([0], dtype=np.int64)


def _nodes(loops: Loops) -> Nodes:
    n, stations = loops.nodes, len(loops.station_kind)
    waiting = np.ones(n, dtype=np.int32)  # for its group
    for p in range(loops.phases):
        first, rows, times = int(loops.first[p]), int(np.diff(loops.row_ptr)[p]), int(loops.times[p])
        ptr = loops.dep_ptr[loops.row_ptr[p] : loops.row_ptr[p + 1] + 1]
        table = waiting[first : first + rows * times].reshape(times, rows)
        table += np.diff(ptr).astype(np.int32)
        if len(loops.dep_distance):
            row = np.repeat(np.arange(rows), np.diff(ptr))
            distance = loops.dep_distance[ptr[0] : ptr[-1]]
            for k in range(min(times, int(distance.max(initial=0)))):  # what would lie before the phase
                table[k] -= np.bincount(row[distance > k], minlength=rows).astype(np.int32)
    waiting += np.bincount(loops.edge_node, minlength=n).astype(np.int32)
    return Nodes(
        at=np.zeros(n, dtype=np.uint8),
        waiting=waiting,
        ready=np.zeros(n, dtype=np.int64),
        slot=np.full(n, -1, dtype=np.int32),
        time=np.zeros(n, dtype=np.int64),
        number=np.zeros(n, dtype=np.int64),
        free=np.zeros(stations, dtype=np.int64),
        wait=np.zeros(stations, dtype=np.int64),
    )


def _flows(loops: Loops) -> Flows:
    """Make room for all transfers to be in flight at once; the system gives memory only for what is used."""
    kinds: dict[str, Any] = {
        "node": np.int64,
        "hops": np.int32,
        "bottleneck": np.int32,
        "spare": np.int32,
        "gone": np.int32,
    }
    kinds |= {"left": np.float64, "slack": np.float64}
    return Flows(*(np.zeros(loops.transfers, dtype=kinds.get(name, np.int64)) for name in Flows._fields))


def _links(loops: Loops, fixed: Fixed, scale: int) -> Links:
    stations = len(loops.station_kind)
    carries = _carries(loops.station_kind)
    often = np.bincount(loops.route, np.repeat(loops.times, np.diff(loops.row_ptr)), len(loops.route_ptr) - 1)
    visits = np.repeat(often, np.diff(loops.route_ptr))
    crossings = np.bincount(loops.route_station, visits, stations).astype(np.int64) * carries
    kinds: dict[str, Any] = {
        "users": np.int32,
        "joined": np.bool_,
        "place": np.int32,
        "order": np.int32,
        "dirty": np.int32,
    }
    kinds |= {"full": np.int32}
    columns: dict[str, Array] = {name: np.zeros(stations, dtype=kinds.get(name, np.int64)) for name in Links._fields}
    columns["capacity"] = np.where(carries, loops.station_bandwidth, 0) * scale
    columns["user_ptr"] = np.concatenate(([0], np.cumsum(crossings)))
    columns["users"] = np.zeros(int(crossings.sum()), dtype=np.int32)
    columns["place"] -= 1
    return Links(**columns)


def _deadlock(loops: Loops, done: Array, group: int) -> DeadlockError:
    if loops.nodes > LARGEST_EXPLAINED:
        first = int(np.flatnonzero(~done)[0])
        return DeadlockError(
            f"deadlock: {np.count_nonzero(~done)} of {loops.nodes} nodes never start, the first is number {first}; "
            "dependencies of data cannot do this, so remove or reverse an explicit edge"
        )
    flat = loops.flat()
    handled = np.concatenate((done, np.arange(flat.nodes - loops.nodes) < group))
    return deadlock(flat, handled)
