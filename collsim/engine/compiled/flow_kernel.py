"""The fluid model event by event, in compiled code: arrivals, ends of flows, dependencies.

An event is a node at a time: it comes to its sender, its flow starts, its flow ends, or it comes to its reducer. Events
are handled by (time, node). Flows that end are put among them only when their time has come, since until then every
change of rates may move them. When all events of an instant are handled, the rates are solved once.
"""

from __future__ import annotations

from typing import NamedTuple

from collsim.compiling import kernel
from collsim.engine.compiled.flow_rates import (
    DIRTY,
    ENDS,
    FLYING,
    Flows,
    Links,
    join,
    leave,
    rise,
    set_end,
    sink,
    solve,
)
from collsim.engine.outcome import LARGEST_TIME
from collsim.engine.program import Array

__all__ = ["CELLS", "DONE", "FINISHED", "GROUP", "LATEST", "SOLVED", "TOO_LONG", "WORKING", "Fixed", "Nodes", "Records",
           "run_events"]  # fmt: skip

DONE, GROUP, LATEST, NOW, QUEUED, RELEASED, SINCE, SOLVED = range(10, 18)
"""Further numbers in ``cell``: nodes that are done, the last group to be released, the latest end, the present, the
length of the queue, the next node to release, the end of the group before, and how often rates were solved."""
CELLS = 18

WORKING, FINISHED, TOO_LONG = range(3)

OVER = 2
"""In ``at``: the node is done."""

NEVER = LARGEST_TIME
RELEASE, EVENT = 30, 100
"""What they cost, compared with a flow that is looked at when rates are solved."""


class Fixed(NamedTuple):
    """What does not change; columns as in `Loops` unless described."""

    first: Array
    row_ptr: Array
    varies: Array
    times: Array
    route: Array
    size_class: Array
    chunk_base: Array
    chunk_rel: Array
    chunk_shift: Array
    chunk_window: Array
    chunk_class: Array
    succ_ptr: Array
    """By row: who waits for it inside the phase, as for ``dep_*``."""
    succ_row: Array
    succ_distance: Array
    succ_issued: Array
    succ_lag: Array
    edge_ptr: Array
    """By node: who else waits for it."""
    edge_node: Array
    edge_issued: Array
    edge_lag: Array
    route_ptr: Array
    route_station: Array
    route_column: Array
    """By visit: column of ``busy`` and ``wire``."""
    sends: Array
    """By route: number of senders on it (0 or 1)."""
    carries: Array
    """By route: number of copy engines and links, which follow."""
    lead: Array
    """By route: sum of latencies."""
    busy: Array
    wire: Array
    """Bytes that a message of this class has on the wire, by the time that it takes."""
    group_ptr: Array
    """Ends of groups of nodes; each is released when the one before is done: all nodes, or steps with a barrier."""
    visit_base: Array
    """By phase: its first visit among all."""
    visit_rows: Array
    """By phase: visits of one iteration."""
    visit_offset: Array
    """By row: its first visit in an iteration."""
    slack: float
    """Fraction of its size that a flow may lack when it ends."""


class Nodes(NamedTuple):
    """State by node, and by station for senders and reducers."""

    at: Array
    """Visits of senders that lie behind it, or `OVER`."""
    waiting: Array
    """Number of predecessors that are not done, and one for the group."""
    ready: Array
    slot: Array
    """Slot of its flow, or -1."""
    time: Array
    number: Array
    """Heap of events by (``time``, ``number``)."""
    free: Array
    wait: Array


class Records(NamedTuple):
    """By node and by visit; all empty if nobody asked."""

    begin: Array
    end: Array
    visit_start: Array
    visit_end: Array


@kernel
def run_events(
    fixed: Fixed, nodes: Nodes, flows: Flows, links: Links, records: Records, cell: Array, unit: float, budget: int
) -> int:
    """Handle events until the budget is spent or none is left.

    Parameters
    ----------
    fixed, nodes, flows, links, records, cell
        The program and the state.
    unit
        Picoseconds in a second times units of rate in a byte/s.
    budget
        About how many flows of links may be looked at.

    Returns
    -------
    int
        `WORKING`, `FINISHED` or `TOO_LONG`.
    """
    work = 0
    while work < budget:
        if cell[RELEASED] < fixed.group_ptr[cell[GROUP]]:
            node = cell[RELEASED]
            cell[RELEASED] += 1
            _, _, row = _place(fixed.first, fixed.row_ptr, node)
            _settle(fixed, nodes, cell, node, row, cell[SINCE])
            work += RELEASE
            continue
        now = cell[NOW]
        arrival = nodes.time[0] if cell[QUEUED] else NEVER
        if cell[DIRTY] and arrival > now:
            work += solve(flows, links, cell, fixed.route_station, now, unit)
            cell[SOLVED] += 1
            continue
        ending = links.end[links.order[0]] if cell[ENDS] else NEVER
        if min(arrival, ending) >= NEVER or cell[LATEST] >= NEVER:
            return TOO_LONG if cell[QUEUED] or cell[FLYING] or cell[LATEST] >= NEVER else FINISHED
        if ending <= arrival:
            work += _end_flows(nodes, flows, links, cell, ending)
        else:
            node = nodes.number[0]
            _pop(nodes.time, nodes.number, cell)
            cell[NOW] = arrival
            _arrive(node, arrival, fixed, nodes, flows, links, records, cell)
            work += EVENT
    return WORKING


@kernel
def _end_flows(nodes: Nodes, flows: Flows, links: Links, cell: Array, ending: int) -> int:
    """Put the flows that end next among the events, those of one bottleneck."""
    link = links.order[0]
    first = links.user_ptr[link]
    for i in range(first, first + links.used[link]):
        slot = links.users[i]
        if flows.bottleneck[slot] == link and flows.end[slot] == ending and flows.node[slot] >= 0:
            flows.end[slot] = NEVER  # it may cross its bottleneck twice, but ends once
            rise(nodes.time, nodes.number, cell[QUEUED], ending, flows.node[slot])
            cell[QUEUED] += 1
    set_end(links.end, links.order, links.place, cell, link, NEVER)  # until rates are solved
    return int(links.used[link])


@kernel
def _arrive(
    node: int, now: int, fixed: Fixed, nodes: Nodes, flows: Flows, links: Links, records: Records, cell: Array
) -> None:
    """Handle one event."""
    phase, k, row = _place(fixed.first, fixed.row_ptr, node)
    route = fixed.route[row]
    first, last = fixed.route_ptr[route], fixed.route_ptr[route + 1]
    low = first + fixed.sends[route]
    high = low + fixed.carries[route]
    size = fixed.size_class[row]
    if fixed.varies[phase]:
        chunk = (fixed.chunk_rel[row] + k * fixed.chunk_shift[row]) % fixed.chunk_window[row]
        size = fixed.chunk_class[fixed.chunk_base[row] + chunk]
    keep = len(records.end) > 0
    base = fixed.visit_base[phase] + k * fixed.visit_rows[phase] + fixed.visit_offset[row] - first
    visit = first + nodes.at[node]
    if keep and visit == first:
        records.begin[node] = nodes.ready[node]
    if visit == low < high:
        slot = nodes.slot[node]
        started = now
        if slot < 0:
            slot = join(
                flows,
                links,
                cell,
                fixed.route_station,
                fixed.route_column,
                fixed.busy[size],
                fixed.wire[size],
                node,
                now,
                low,
                high,
                fixed.slack,
            )
            nodes.slot[node] = slot
            if slot >= 0:
                return
        else:
            started = flows.start[slot]
            nodes.slot[node] = -1
            leave(flows, links, cell, fixed.route_station, slot)
        if keep:
            records.visit_start[base + low : base + high] = started
            records.visit_end[base + low : base + high] = now
        if visit == first:
            _tell(fixed, nodes, cell, node, phase, k, row, True, now)
        visit = high
    if visit < last:  # the sender or the reducer
        station = fixed.route_station[visit]
        start = max(now, nodes.free[station])
        nodes.wait[station] = max(nodes.wait[station], start - now)
        now = start + fixed.busy[size, fixed.route_column[visit]]
        nodes.free[station] = now
        cell[LATEST] = max(cell[LATEST], now)
        if keep:
            records.visit_start[base + visit], records.visit_end[base + visit] = start, now
        if visit == first:
            if keep:
                records.begin[node] = start
            _tell(fixed, nodes, cell, node, phase, k, row, True, now)
        visit += 1
        if visit < last:
            nodes.at[node] = 1
            _send(fixed, nodes, cell, node, route, now)
            return
    elif first == last:
        _tell(fixed, nodes, cell, node, phase, k, row, True, now)
    if keep:
        records.end[node] = now
    nodes.at[node] = OVER
    if node < len(flows.node):  # joins are no transfers
        cell[LATEST] = max(cell[LATEST], now)
    cell[DONE] += 1
    _tell(fixed, nodes, cell, node, phase, k, row, False, now)
    if cell[DONE] == fixed.group_ptr[cell[GROUP]] and cell[GROUP] + 1 < len(fixed.group_ptr):
        cell[GROUP] += 1
        cell[SINCE] = cell[LATEST]


@kernel
def _place(first: Array, row_ptr: Array, node: int) -> tuple[int, int, int]:
    """Return the phase, the iteration and the row of a node."""
    low, high = 0, len(first) - 1  # first[low] <= node < first[high]
    while high - low > 1:
        middle = (low + high) >> 1
        if first[middle] <= node:
            low = middle
        else:
            high = middle
    k, row = divmod(node - first[low], row_ptr[low + 1] - row_ptr[low])
    return low, int(k), int(row_ptr[low] + row)


@kernel
def _tell(
    fixed: Fixed, nodes: Nodes, cell: Array, node: int, phase: int, k: int, row: int, issued: bool, time: int
) -> None:
    """Tell the nodes that wait for the issue or the end of a node."""
    first, low = fixed.first[phase], fixed.row_ptr[phase]
    rows = fixed.row_ptr[phase + 1] - low
    for i in range(fixed.succ_ptr[row], fixed.succ_ptr[row + 1]):
        then = k + fixed.succ_distance[i]
        if fixed.succ_issued[i] == issued and then < fixed.times[phase]:
            other = fixed.succ_row[i]
            _settle(fixed, nodes, cell, first + then * rows + other - low, other, time + fixed.succ_lag[i])
    for i in range(fixed.edge_ptr[node], fixed.edge_ptr[node + 1]):
        if fixed.edge_issued[i] == issued:
            _, _, other = _place(fixed.first, fixed.row_ptr, fixed.edge_node[i])
            _settle(fixed, nodes, cell, fixed.edge_node[i], other, time + fixed.edge_lag[i])


@kernel
def _settle(fixed: Fixed, nodes: Nodes, cell: Array, node: int, row: int, time: int) -> None:
    """Count down what a node waits for, and send it when that was the last."""
    nodes.ready[node] = max(nodes.ready[node], time)
    nodes.waiting[node] -= 1
    if not nodes.waiting[node]:
        _send(fixed, nodes, cell, node, fixed.route[row], nodes.ready[node])


@kernel
def _send(fixed: Fixed, nodes: Nodes, cell: Array, node: int, route: int, time: int) -> None:
    """Put in the next arrival of a node; before a flow all its latencies pass."""
    lead = fixed.lead[route] if nodes.at[node] == fixed.sends[route] else 0
    rise(nodes.time, nodes.number, cell[QUEUED], time + lead, node)
    cell[QUEUED] += 1


@kernel
def _pop(time: Array, number: Array, cell: Array) -> None:
    cell[QUEUED] -= 1
    size = cell[QUEUED]
    if size:
        sink(time, number, size, 0, time[size], number[size])
