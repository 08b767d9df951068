"""What the event queue needs to know before it starts: who waits for how many, and who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from collsim.compiling import kernel
from collsim.engine.compiled.queue_kernel import NODE, rank
from collsim.engine.loops import Loops
from collsim.engine.outcome import Pulse, budgets
from collsim.engine.program import COPY, LINK, Array

__all__ = ["Successors", "count_waits", "successors", "visits_of"]

MARK, COUNT, FILL = range(3)

FIRST_ROWS = 1_000_000
"""Rows of the first call of a kernel; the calls after it follow the clock."""


@dataclass(frozen=True, eq=False)
class Successors:
    """The edges of a program by predecessor.

    Attributes
    ----------
    groups
        1, or 2 if some edges of rows are ``issued``: then entry ``2 * row`` of `ptr` has those of a row and the entry
        after it those that wait for its end.
    ptr, offset, lag
        By row in CSR form: how much greater the number of the successor is, and the lag (empty if all are 0).
    word
        By 32 nodes: a bit for each that has edges between nodes, and above these 32 bits the number of such nodes
        before (empty if there are no such edges).
    edge_ptr, edge_node, edge_lag
        By node with such edges, in CSR form, two entries each as above: successor and lag.
    most
        The largest number of successors that one event can release.
    """

    groups: int
    ptr: Array
    offset: Array
    lag: Array
    word: Array
    edge_ptr: Array
    edge_node: Array
    edge_lag: Array
    most: int


@kernel
def spread(
    begin: int,
    end: int,
    count_only: bool,
    times: int,
    rows: int,
    groups: int,
    dep_ptr: Any,
    dep_row: Any,
    dep_distance: Any,
    dep_issued: Any,
    dep_lag: Any,
    ptr: Any,
    offset: Any,
    lag: Any,
) -> None:
    """Count the successors of rows, or write them down from the end of their places; backwards, so that they ascend."""
    for row in range(end - 1, begin - 1, -1):
        for dep in range(dep_ptr[row], dep_ptr[row + 1]):
            distance = dep_distance[dep] if len(dep_distance) else 0
            if distance >= times:  # there is no such iteration
                continue
            pred = dep_row[dep]
            at = groups * pred
            if groups == 2 and not dep_issued[dep]:
                at += 1
            if count_only:
                ptr[at] += 1
            else:
                ptr[at] -= 1
                offset[ptr[at]] = distance * rows + row - pred
                if len(lag):
                    lag[ptr[at]] = dep_lag[dep]


@kernel
def turn_round(
    stage: int,
    begin: int,
    end: int,
    edge_node: Any,
    edge_pred: Any,
    edge_issued: Any,
    edge_lag: Any,
    word: Any,
    ptr: Any,
    to: Any,
    lag: Any,
) -> None:
    """Mark the nodes that have edges between nodes, count these edges, or write them down as `spread` does."""
    for edge in range(end - 1, begin - 1, -1):
        pred = edge_pred[edge]
        if stage == MARK:
            word[pred >> 5] |= 1 << (pred & 31)
            continue
        at = 2 * rank(word[pred >> 5], pred & 31) + (not edge_issued[edge])
        if stage == COUNT:
            ptr[at] += 1
        else:
            ptr[at] -= 1
            to[ptr[at]], lag[ptr[at]] = edge_node[edge], edge_lag[edge]


@kernel
def wait(
    begin: int, end: int, first: int, low: int, rows: int, farthest: int, dep_ptr: Any, dep_distance: Any, nodes: Any
) -> None:
    """Count the predecessors that the nodes of a phase have inside it."""
    turn, place = (begin - first) // rows, (begin - first) % rows
    for node in range(begin, end):
        dep, after = dep_ptr[low + place], dep_ptr[low + place + 1]
        count = after - dep
        if turn < farthest:  # the first iterations look back to some that are not there
            count = 0
            for other in range(dep, after):
                if dep_distance[other] <= turn:
                    count += 1
        nodes[NODE * node + 2] = count
        place += 1
        if place == rows:
            turn, place = turn + 1, 0


def slices(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut a range into pieces that a kernel gets through in a moment."""
    for amount in budgets(FIRST_ROWS):
        if begin >= end:
            return
        yield begin, min(begin + amount, end)
        begin += amount


def count_waits(loops: Loops, nodes: Array, pulse: Pulse) -> None:
    """Fill in for how many predecessors each node waits."""
    for p in range(loops.phases):
        low, high, first = int(loops.row_ptr[p]), int(loops.row_ptr[p + 1]), int(loops.first[p])
        farthest = int(np.max(loops.dep_distance[loops.dep_ptr[low] : loops.dep_ptr[high]], initial=0))
        for begin, end in slices(first, int(loops.first[p + 1])):
            wait(begin, end, first, low, high - low, farthest, loops.dep_ptr, loops.dep_distance, nodes)
            pulse(0, loops.nodes)
    node, count = np.unique(loops.edge_node, return_counts=True)
    nodes[NODE * node + 2] += count


def successors(loops: Loops, pulse: Pulse) -> Successors:
    """Turn all edges round."""
    groups = 2 if loops.dep_issued.any() else 1
    ptr = np.zeros(groups * loops.rows + 1, dtype=np.int32)
    offset = lag = np.zeros(0, dtype=np.int32)
    lag = np.zeros(0, dtype=np.int64)
    for count_only in (True, False):
        for p in range(loops.phases):
            low, high = int(loops.row_ptr[p]), int(loops.row_ptr[p + 1])
            for begin, end in slices(0, high - low):
                spread(
                    high - end, high - begin, count_only, int(loops.times[p]), high - low, groups, loops.dep_ptr,
                    loops.dep_row, loops.dep_distance, loops.dep_issued, loops.dep_lag, ptr, offset, lag,
                )  # fmt: skip
                pulse(0, loops.nodes)
        if count_only:
            np.cumsum(ptr, dtype=np.int32, out=ptr)
            offset = np.zeros(ptr[-1], dtype=np.int32)
            lag = np.zeros(ptr[-1] if len(loops.dep_lag) else 0, dtype=np.int64)
    most = int(np.max(ptr[groups::groups] - ptr[:-1:groups], initial=0))
    word, edge_ptr, edge_node, edge_lag = _edges(loops, pulse)
    most += int(np.max(edge_ptr[2::2] - edge_ptr[:-1:2], initial=0))
    return Successors(groups, ptr, offset, lag, word, edge_ptr, edge_node, edge_lag, most)


def _edges(loops: Loops, pulse: Pulse) -> tuple[Array, Array, Array, Array]:
    """Sort the edges between nodes by predecessor."""
    if not len(loops.edge_node):
        none = np.zeros(0, dtype=np.int64)
        return none, np.zeros(1, dtype=np.int64), none, none
    edges = len(loops.edge_node)
    word = np.zeros((loops.nodes >> 5) + 1, dtype=np.int64)
    to, lag = np.zeros(edges, dtype=np.int64), np.zeros(edges, dtype=np.int64)
    ptr = np.zeros(1, dtype=np.int64)
    for stage in (MARK, COUNT, FILL):
        for begin, end in slices(0, edges):
            turn_round(
                stage, edges - end, edges - begin, loops.edge_node, loops.edge_pred, loops.edge_issued, loops.edge_lag,
                word, ptr, to, lag,
            )  # fmt: skip
            pulse(0, loops.nodes)
        if stage == MARK:
            here = np.bitwise_count(word).astype(np.int64)
            word |= (np.cumsum(here) - here) << 32
            ptr = np.zeros(2 * int(here.sum()) + 1, dtype=np.int64)
        elif stage == COUNT:
            np.cumsum(ptr, out=ptr)
    return word, ptr, to, lag


def visits_of(loops: Loops, network: str) -> Array:
    """Return two words for each visit of a route: what `run` looks up, packed, and the latency.

    Notes
    -----
    Lowest bit: it is the last of its route. The next: the head goes on before the tail is there. Then 31 bits for the
    station and the rest for the column in ``busy``.
    """
    last = np.zeros(len(loops.route_station), dtype=np.bool_)
    last[loops.route_ptr[1:][np.diff(loops.route_ptr) > 0] - 1] = True
    carries = np.isin(loops.station_kind[loops.route_station], (COPY, LINK))
    cuts = np.zeros_like(last)
    if network != "store_and_forward":
        cuts[:-1] = carries[:-1] & carries[1:]  # true across the border of two routes, where nobody asks
    packed = loops.route_rate.astype(np.int64) << 33 | loops.route_station.astype(np.int64) << 2 | cuts << 1 | last
    return np.column_stack([packed, loops.route_latency]).ravel()
