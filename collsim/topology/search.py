"""Breadth-first searches for the links that lie on shortest paths, many searches at a time in arrays.

A search is one backwards from a destination for all who ask for it (`towards`), or one from both ends of a pair that
stops where the two sides meet (`between`): on a large machine that looks at a few dozen links where the other would
look at a million. Both find the same. A node within a search is a *state*, ``search * nodes + node``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.topology.graph import Topology

__all__ = ["STATES", "Adjacency", "Tight", "adjacency", "between", "distances", "spread", "towards"]

Array = npt.NDArray[Any]

STATES = 2**22
"""Nodes and links times searches that are held at a time: bounds the memory of a batch to some 200 MB."""

WIDEST = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Links by node: those out of it in order of neighbour and key, those into it in order of source and key.

    ``out_links[out_ptr[v]:out_ptr[v + 1]]`` leave node v; ``out_place`` and ``in_place`` are the places of each link in
    the two lists. ``src``, ``dst`` and ``width`` (bandwidth) are those of the links, ``forwards`` that of the nodes.
    """

    n: int
    src: Array
    dst: Array
    width: Array
    forwards: Array
    out_ptr: Array
    out_links: Array
    out_place: Array
    in_ptr: Array
    in_links: Array
    in_place: Array


@dataclass(frozen=True, eq=False)
class Tight:
    """The links that lead one hop nearer to the destination of a search, sorted.

    ``keys`` has ``search * links + place`` (the `Adjacency.out_place` of the link), ``width`` the bottleneck of the
    widest shortest path that goes on by this link.
    """

    graph: Adjacency
    keys: Array
    width: Array

    def range_of(self, search: Array, node: Array) -> tuple[Array, Array]:
        """Return where in ``keys`` the links out of a node begin and end, for each search and node."""
        base = search * len(self.graph.src)
        low = np.searchsorted(self.keys, base + self.graph.out_ptr[node])
        return low, np.searchsorted(self.keys, base + self.graph.out_ptr[node + 1])

    @cached_property
    def last_alike(self) -> Array:
        """For each place, where the row of equal widths that it is in ends."""
        ends = np.append(np.flatnonzero(np.diff(self.width)) + 1, len(self.width))
        return np.asarray(np.repeat(ends, np.diff(ends, prepend=0)))

    def width_of_best(self, low: Array, high: Array) -> Array:
        """Return the greatest width between places."""
        best = self.width[low]
        mixed = np.flatnonzero(self.last_alike[low] < high)
        places, owner = spread(low[mixed], (high - low)[mixed])
        np.maximum.at(best, mixed[owner], self.width[places])
        return best

    def link(self, places: Array) -> Array:
        """Return the links at places in ``keys``."""
        return np.asarray(self.graph.out_links[self.keys[places] % len(self.graph.src)])


def adjacency(topology: Topology) -> Adjacency:
    """Return the adjacency of a topology, made once."""
    if "adjacency" not in topology.cache:
        src, dst, n = topology.link_src.astype(np.int64), topology.link_dst.astype(np.int64), topology.n_nodes
        tables: list[Array] = []
        for near, far in ((src, dst), (dst, src)):
            links = np.lexsort((topology.link_key, far, near))
            ptr = np.zeros(n + 1, dtype=np.int64)
            np.cumsum(np.bincount(near, minlength=n), out=ptr[1:])
            place = np.empty(len(links), dtype=np.int64)
            place[links] = np.arange(len(links))
            tables += [ptr, links, place]
        topology.cache["adjacency"] = Adjacency(n, src, dst, topology.link_bandwidth, topology.forwards, *tables)
    return topology.cache["adjacency"]  # type: ignore[no-any-return]


def distances(topology: Topology, destinations: Array) -> Array:
    """Return the hops from every node to each destination: an array (destination, node), -1 where there is no route.

    Examples
    --------
    >>> from collsim.topology import ring
    >>> distances(ring(4), [0])
    array([[0, 3, 2, 1]], dtype=int32)
    """
    graph = adjacency(topology)
    destinations = np.asarray(destinations, dtype=np.int64)
    step = max(1, STATES // (graph.n + len(graph.src)))
    parts = [np.zeros((0, graph.n), dtype=np.int32)]
    for first in range(0, len(destinations), step):
        _, hops = towards(graph, destinations[first : first + step])
        parts.append(hops.reshape(-1, graph.n))
    return np.concatenate(parts)


def spread(first: Array, counts: Array) -> tuple[Array, Array]:
    """Return the numbers from ``first[i]`` on, ``counts[i]`` of them, for all i in a row, and the i of each."""
    owner = np.repeat(np.arange(len(first)), counts)
    return np.arange(len(owner)) + np.repeat(first - np.cumsum(counts) + counts, counts), owner


def towards(graph: Adjacency, destinations: Array, sources: Array | None = None) -> tuple[Tight, Array]:
    """Search backwards from each destination until the source states are found (or, without any, to the end).

    Returns
    -------
    tight, hops
        The links that lead nearer, and by state the hops to the destination (-1: not found).
    """
    n, n_links = graph.n, len(graph.src)
    hops = np.full(len(destinations) * n, -1, dtype=np.int32)
    width = np.zeros(len(hops), dtype=np.int64)
    tight = np.zeros(len(destinations) * n_links, dtype=np.int64)  # by key; 0 where the link does not lead nearer
    latest = np.empty(len(hops), dtype=np.int64)
    frontier = np.arange(len(destinations)) * n + destinations
    hops[frontier], width[frontier] = 0, WIDEST
    level = 0
    while len(frontier):
        if sources is not None:
            sources = sources[hops[sources] < 0]
            searching = np.zeros(len(destinations), dtype=bool)
            searching[sources // n] = True
            frontier = frontier[searching[frontier // n]]
        level += 1
        states, links, owner = _into(graph, frontier)
        new = hops[states] < 0
        states, links, owner = states[new], links[new], owner[new]
        through = np.minimum(graph.width[links], width[frontier[owner]])
        hops[states] = level
        np.maximum.at(width, states, through)
        tight[states // n * n_links + graph.out_place[links]] = through
        # Each state once: the one that was written last, which needs no sorting.
        places = np.arange(len(states))
        latest[states] = places
        frontier = states[latest[states] == places]
        frontier = frontier[graph.forwards[frontier % n]]
    keys = np.flatnonzero(tight)
    return Tight(graph, keys, tight[keys]), hops


def between(graph: Adjacency, src: Array, dst: Array, limit: int | None = None) -> Tight | None:
    """Search between the ends of each pair, from both sides until these meet.

    A level is taken whole, on the side whose frontier has fewer links. When the sides first meet, after i hops from the
    source and j hops from the destination, shortest paths have i + j links and each crosses a node where the sides
    meet. The links from there to the destination are known by then; those from the source to there are found by going
    through the source's levels once more, from the last to the first.

    Returns None when more than ``limit`` links would be looked at in a level.
    """
    n, pairs = graph.n, len(src)
    in_degree, out_degree = np.diff(graph.in_ptr), np.diff(graph.out_ptr)
    passable = _Passable(graph, src, dst)
    back, front = np.arange(pairs) * n + dst, np.arange(pairs) * n + src
    behind = _Seen(back, np.zeros(pairs, dtype=np.int64), np.full(pairs, WIDEST))
    ahead = _Seen(front, np.zeros(pairs, dtype=np.int64), np.full(pairs, WIDEST))
    length = np.full(pairs, -2)  # links of the shortest path, once the sides have met
    keys, widths, expanded = [back[:0]], [back[:0]], [front[:0]]
    while True:
        # An empty frontier on either side without a meeting: the pair has no route.
        searching = (length < 0) & _any(back, n, pairs) & _any(front, n, pairs)
        back, front = back[searching[back // n]], front[searching[front // n]]
        cost_back = np.bincount(back // n, in_degree[back % n], pairs)
        cost_front = np.bincount(front // n, out_degree[front % n], pairs)
        if not len(back):
            break
        if limit is not None and np.minimum(cost_back, cost_front).sum() > limit:
            return None
        by_back = cost_back <= cost_front

        now = back[by_back[back // n]]
        states, links, owner = _into(graph, now)
        new = ~behind.has(states)
        states, links, owner = states[new], links[new], owner[new]
        through = np.minimum(graph.width[links], behind.of(now, "width")[owner])
        keys.append(states // n * len(graph.src) + graph.out_place[links])
        widths.append(through)
        found_back = behind.add(states, behind.of(now, "hops")[owner] + 1, through)

        then = front[~by_back[front // n]]
        expanded.append(then)
        states, _, owner = _out_of(graph, then)
        new = ~ahead.has(states)
        states, owner = states[new], owner[new]
        found_front = ahead.add(states, ahead.of(then, "hops")[owner] + 1, np.full(len(states), WIDEST))

        found = np.concatenate([found_back, found_front])
        met = found[behind.has(found) & ahead.has(found) & passable(found)]
        length[met // n] = behind.of(met, "hops") + ahead.of(met, "hops")
        back = np.concatenate([back[~by_back[back // n]], found_back[graph.forwards[found_back % n]]])
        front = np.concatenate([front[by_back[front // n]], found_front[graph.forwards[found_front % n]]])

    states = np.concatenate(expanded)
    levels = ahead.of(states, "hops")
    for level in range(int(levels.max(initial=-1)), -1, -1):
        now = states[levels == level]
        targets, links, owner = _out_of(graph, now)
        known = behind.has(targets) & passable(targets)
        targets, links, owner = targets[known], links[known], owner[known]
        nearer = behind.of(targets, "hops") == length[targets // n] - level - 1
        targets, links, owner = targets[nearer], links[nearer], owner[nearer]
        through = np.minimum(graph.width[links], behind.of(targets, "width"))
        keys.append(targets // n * len(graph.src) + graph.out_place[links])
        widths.append(through)
        behind.add(now[owner], length[targets // n] - level, through)
    joined = np.concatenate(keys)
    order = np.argsort(joined)
    return Tight(graph, joined[order], np.concatenate(widths)[order])


class _Seen:
    """States in order with their hops and width, for searches whose states are too many for an array over all."""

    def __init__(self, states: Array, hops: Array, width: Array) -> None:
        self.states, self.columns = states, {"hops": hops, "width": width}

    def has(self, states: Array) -> Array:
        places = np.minimum(np.searchsorted(self.states, states), len(self.states) - 1)
        return np.asarray(self.states[places] == states)

    def of(self, states: Array, column: str) -> Array:
        return np.asarray(self.columns[column][np.searchsorted(self.states, states)])

    def add(self, states: Array, hops: Array, width: Array) -> Array:
        """Add states that are not here yet, the widest of each, and return them once each, sorted."""
        order = np.lexsort((-width, states))
        states, hops, width = states[order], hops[order], width[order]
        first = np.ones(len(states), dtype=bool)
        first[1:] = states[1:] != states[:-1]
        states, new = states[first], {"hops": hops[first], "width": width[first]}
        places = np.searchsorted(self.states, states)
        self.states = np.insert(self.states, places, states)
        self.columns = {key: np.insert(column, places, new[key]) for key, column in self.columns.items()}
        return states


class _Passable:
    """Whether a path may come to a state: it forwards, or it is the destination, or the source where it starts."""

    def __init__(self, graph: Adjacency, src: Array, dst: Array) -> None:
        self.graph, self.src, self.dst = graph, src, dst

    def __call__(self, states: Array) -> Array:
        pair, node = np.divmod(states, self.graph.n)
        return np.asarray(self.graph.forwards[node] | (node == self.dst[pair]) | (node == self.src[pair]))


def _any(states: Array, n: int, searches: int) -> Array:
    return np.bincount(states // n, minlength=searches) > 0


def _into(graph: Adjacency, states: Array) -> tuple[Array, Array, Array]:
    """Return where the links into states come from, the links, and the place in states of each."""
    node = states % graph.n
    places, owner = spread(graph.in_ptr[node], graph.in_ptr[node + 1] - graph.in_ptr[node])
    links = graph.in_links[places]
    return (states - node)[owner] + graph.src[links], links, owner


def _out_of(graph: Adjacency, states: Array) -> tuple[Array, Array, Array]:
    """Return where the links out of states go, the links, and the place in states of each."""
    node = states % graph.n
    places, owner = spread(graph.out_ptr[node], graph.out_ptr[node + 1] - graph.out_ptr[node])
    links = graph.out_links[places]
    return (states - node)[owner] + graph.dst[links], links, owner
