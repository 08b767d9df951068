"""Breadth-first searches for the links that lie on shortest paths, many searches at a time in arrays.

A search is one backwards from a destination for all who ask for it (`towards`), or one from both ends of a pair that
stops where the two sides meet (`between`): on a large machine that looks at a few dozen links where the other would
look at a million. Both find the same. A node within a search is a *state*, ``search * nodes + node``.

Parallel links of one bandwidth are alike to a search: it looks at the *run* of them, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.topology.graph import Topology

__all__ = [
    "STATES", "Adjacency", "Tight", "adjacency", "between", "distances", "distinct", "hops_of", "into", "out_of",
    "spread", "towards",
]  # fmt: skip

Array = npt.NDArray[Any]
Step = Callable[["Adjacency", Array], tuple[Array, Array, Array]]

STATES = 2**22
"""Nodes and runs times searches that are held at a time: bounds the memory of a batch to some 200 MB."""

WIDEST = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Links in runs, by node.

    ``links`` has all links in the order of their source, neighbour and key. Run r is those of one source, neighbour and
    bandwidth that follow each other there, ``links[first[r]:first[r + 1]]``; runs ``out_ptr[v]:out_ptr[v + 1]`` leave
    node v, ``in_runs[in_ptr[v]:in_ptr[v + 1]]`` come into it (by source, then key). ``src``, ``dst`` and ``width``
    (bandwidth) are those of the runs. ``ordinal`` is the number of a link among all into its node, by source and key.
    ``passes`` tells the nodes that a shortest path may have in its middle: they forward, and lead somewhere else than
    back.
    """

    n: int
    src: Array
    dst: Array
    width: Array
    passes: Array
    links: Array
    first: Array
    out_ptr: Array
    in_ptr: Array
    in_runs: Array
    ordinal: Array

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self.src)


@dataclass(frozen=True, eq=False)
class Tight:
    """The links that lead one hop nearer to the destination of a search, by run, sorted.

    ``keys`` has ``search * runs + run``, ``width`` the bottleneck of the widest shortest path that goes on by this run.
    """

    graph: Adjacency
    keys: Array
    width: Array

    def range_of(self, search: Array, node: Array) -> tuple[Array, Array]:
        """Return where in ``keys`` the runs out of a node begin and end, for each search and node."""
        base = search * self.graph.runs
        low = np.searchsorted(self.keys, base + self.graph.out_ptr[node])
        return low, np.searchsorted(self.keys, base + self.graph.out_ptr[node + 1])

    @cached_property
    def _runs(self) -> Array:
        return np.asarray(self.keys % self.graph.runs)

    @cached_property
    def links_before(self) -> Array:
        """For each place in ``keys``, and for its end, how many links the runs before it have."""
        counts = np.zeros(len(self.keys) + 1, dtype=np.int64)
        np.cumsum(self.graph.first[self._runs + 1] - self.graph.first[self._runs], out=counts[1:])
        return counts

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

    def link(self, places: Array, number: Array) -> Array:
        """Return a link of the run at each place in ``keys``: that of the given number."""
        return np.asarray(self.graph.links[self.graph.first[self._runs[places]] + number])


def adjacency(topology: Topology) -> Adjacency:
    """Return the adjacency of a topology, made once."""
    if "adjacency" not in topology.cache:
        src, dst, n = topology.link_src, topology.link_dst, topology.n_nodes
        links = np.lexsort((topology.link_key, dst, src))
        columns = [column[links] for column in (src, dst, topology.link_bandwidth)]
        starts = np.ones(len(links), dtype=bool)
        starts[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
        first = np.flatnonzero(starts)
        run_src, run_dst, width = (column[first] for column in columns)
        in_runs = np.lexsort((run_src, run_dst))  # stable: by key
        nodes = np.arange(n + 1)
        into = np.lexsort((topology.link_key, src, dst))
        ordinal = np.empty(len(links), dtype=np.int32)
        ordinal[into] = np.arange(len(links)) - np.searchsorted(dst[into], nodes)[dst[into]]
        topology.cache["adjacency"] = Adjacency(
            n=n,
            src=run_src,
            dst=run_dst,
            width=width,
            passes=topology.forwards & _leads_on(n, run_src, run_dst),
            links=links.astype(np.int32),
            first=np.append(first, len(links)),
            out_ptr=np.searchsorted(run_src, nodes),
            in_ptr=np.searchsorted(run_dst[in_runs], nodes),
            in_runs=in_runs.astype(np.int32),
            ordinal=ordinal,
        )
    return topology.cache["adjacency"]  # type: ignore[no-any-return]


def _leads_on(n: int, src: Array, dst: Array) -> Array:
    """Whether a node has a link in from one node and a link out to another."""
    least_in, most_in, least_out, most_out = (np.full(n, start) for start in (n, -1, n, -1))
    np.minimum.at(least_in, dst, src)
    np.maximum.at(most_in, dst, src)
    np.minimum.at(least_out, src, dst)
    np.maximum.at(most_out, src, dst)
    alone = (least_in == most_out) & (most_in == least_out)  # one neighbour, the same for both
    return np.asarray((most_in >= 0) & (most_out >= 0) & ~alone)


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
    step = max(1, STATES // (graph.n + graph.runs))
    parts = [np.zeros((0, graph.n), dtype=np.int32)]
    parts += [hops_of(graph, destinations[first : first + step], into) for first in range(0, len(destinations), step)]
    return np.concatenate(parts)


def hops_of(graph: Adjacency, starts: Array, step: Step) -> Array:
    """Return the hops of a search from each node: an array (start, node), -1 where it does not come to.

    ``step`` is `out_of` for the hops from the starts, `into` for those to them.
    """
    hops = np.full(len(starts) * graph.n, -1, dtype=np.int32)
    latest = np.empty(len(hops), dtype=np.int32)
    frontier = np.arange(len(starts)) * graph.n + starts
    hops[frontier] = level = 0
    while len(frontier):
        level += 1
        states, _, _ = step(graph, frontier)
        states = states[hops[states] < 0]
        hops[states] = level
        frontier = _once(states, latest)
        frontier = frontier[graph.passes[frontier % graph.n]]
    return hops.reshape(-1, graph.n)


def _once(states: Array, latest: Array) -> Array:
    """Return each state once: where it was written last, which needs no sorting."""
    places = np.arange(len(states), dtype=latest.dtype)
    latest[states] = places
    return np.asarray(states[latest[states] == places])


def distinct(values: Array) -> Array:
    """Return the values in order, each once (`numpy.unique` may hash, which is slow for many)."""
    values = np.sort(values)
    new = np.ones(len(values), dtype=bool)
    new[1:] = values[1:] != values[:-1]
    return np.asarray(values[new])


def spread(first: Array, counts: Array) -> tuple[Array, Array]:
    """Return the numbers from ``first[i]`` on, ``counts[i]`` of them, for all i in a row, and the i of each."""
    owner = np.repeat(np.arange(len(first)), counts)
    return np.arange(len(owner)) + np.repeat(first - np.cumsum(counts) + counts, counts), owner


def towards(graph: Adjacency, destinations: Array, sources: Array) -> Tight:
    """Search backwards from each destination until the source states are found, for the links that lead nearer."""
    n = graph.n
    hops = np.full(len(destinations) * n, -1, dtype=np.int32)
    width = np.zeros(len(hops), dtype=np.int64)
    tight = np.zeros(len(destinations) * graph.runs, dtype=np.int64)  # by key; 0 where the run does not lead nearer
    latest = np.empty(len(hops), dtype=np.int32)
    frontier = np.arange(len(destinations)) * n + destinations
    hops[frontier], width[frontier] = 0, WIDEST
    level = 0
    while len(frontier):
        sources = sources[hops[sources] < 0]
        searching = np.zeros(len(destinations), dtype=bool)
        searching[sources // n] = True
        frontier = frontier[searching[frontier // n]]
        level += 1
        states, runs, owner = into(graph, frontier)
        new = hops[states] < 0
        states, runs, owner = states[new], runs[new], owner[new]
        through = np.minimum(graph.width[runs], width[frontier[owner]])
        hops[states] = level
        np.maximum.at(width, states, through)
        tight[states // n * graph.runs + runs] = through
        frontier = _once(states, latest)
        frontier = frontier[graph.passes[frontier % n]]
    keys = np.flatnonzero(tight)
    return Tight(graph, keys, tight[keys])


def between(
    graph: Adjacency, src: Array, dst: Array, limit: int | None = None, most: Array | None = None
) -> tuple[Tight, Array] | None:
    """Search between the ends of each pair, from both sides until these meet.

    A level is taken whole, on the side whose frontier has fewer runs. When the sides first meet, after i hops from the
    source and j hops from the destination, shortest paths have i + j links and each crosses a node where the sides
    meet. The links from there to the destination are known by then; those from the source to there are found by going
    through the source's levels once more, from the last to the first.

    Parameters
    ----------
    graph
        The machine.
    src, dst
        Nodes at the ends of each pair, which differ.
    limit
        Runs to look at in a level, at the most.
    most
        Hops of a path that is looked for, by pair.

    Returns
    -------
    tight, length
        The links on the paths, and the hops of each pair (below 0: no path); None beyond the limit.
    """
    n, pairs = graph.n, len(src)
    in_degree, out_degree = np.diff(graph.in_ptr), np.diff(graph.out_ptr)
    back, front = np.arange(pairs) * n + dst, np.arange(pairs) * n + src
    behind = _Seen(back, np.zeros(pairs, dtype=np.int64), np.full(pairs, WIDEST))
    ahead = _Seen(front, np.zeros(pairs, dtype=np.int64), np.full(pairs, WIDEST))
    length = np.full(pairs, -2)  # links of the shortest path, once the sides have met
    keys, widths, expanded = [back[:0]], [back[:0]], [front[:0]]
    levels = 0
    while True:
        # An empty frontier on either side without a meeting: the pair has no route.
        searching = (length < 0) & _any(back, n, pairs) & _any(front, n, pairs)
        if most is not None:
            searching &= levels < most
        levels += 1
        back, front = back[searching[back // n]], front[searching[front // n]]
        cost_back = np.bincount(back // n, in_degree[back % n], pairs)
        cost_front = np.bincount(front // n, out_degree[front % n], pairs)
        if not len(back):
            break
        if limit is not None and np.minimum(cost_back, cost_front).sum() > limit:
            return None
        by_back = cost_back <= cost_front

        now = back[by_back[back // n]]
        states, runs, owner = into(graph, now)
        new, met_back = _new(states, graph.passes[graph.src[runs]], src, n, behind, ahead)
        states, runs, owner = states[new], runs[new], owner[new]
        through = np.minimum(graph.width[runs], behind.of(now, "width")[owner])
        keys.append(states // n * graph.runs + runs)
        widths.append(through)
        found_back = behind.add(states, behind.of(now, "hops")[owner] + 1, through)

        then = front[~by_back[front // n]]
        expanded.append(then)
        states, runs, owner = out_of(graph, then)
        new, met_front = _new(states, graph.passes[graph.dst[runs]], dst, n, ahead, behind)
        states, owner = states[new], owner[new]
        found_front = ahead.add(states, ahead.of(then, "hops")[owner] + 1, np.full(len(states), WIDEST))

        length[met_back | met_front] = levels
        back = np.concatenate([back[~by_back[back // n]], found_back])
        front = np.concatenate([front[by_back[front // n]], found_front])

    states = np.concatenate(expanded)
    depths = ahead.of(states, "hops")
    for depth in range(int(depths.max(initial=-1)), -1, -1):
        now = states[depths == depth]
        targets, runs, owner = out_of(graph, now)
        known = behind.has(targets)
        targets, runs, owner = targets[known], runs[known], owner[known]
        nearer = behind.of(targets, "hops") == length[targets // n] - depth - 1
        targets, runs, owner = targets[nearer], runs[nearer], owner[nearer]
        through = np.minimum(graph.width[runs], behind.of(targets, "width"))
        keys.append(targets // n * graph.runs + runs)
        widths.append(through)
        behind.add(now[owner], length[targets // n] - depth, through)
    joined = np.concatenate(keys)
    order = np.argsort(joined)
    return Tight(graph, joined[order], np.concatenate(widths)[order]), length


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


def _new(states: Array, passes: Array, ends: Array, n: int, mine: _Seen, other: _Seen) -> tuple[Array, Array]:
    """Return which of the states that a level comes to are to be kept, and which pairs have met the other side.

    A path may come to a state if it passes there or ends there. Once the sides have met, only where they did matters.
    """
    pair = states // n
    new = np.flatnonzero(passes | (states - pair * n == ends[pair]))
    states, pair = states[new], pair[new]
    hit = other.has(states)  # such a state is new: the sides would have met there before
    met = np.zeros(len(ends), dtype=bool)
    met[pair[hit]] = True
    alone = np.flatnonzero(~met[pair])
    hit[alone] = ~mine.has(states[alone])
    return new[hit], met


def _any(states: Array, n: int, searches: int) -> Array:
    return np.bincount(states // n, minlength=searches) > 0


def into(graph: Adjacency, states: Array) -> tuple[Array, Array, Array]:
    """Return where the runs into states come from, the runs, and the place in states of each."""
    node = states % graph.n
    places, owner = spread(graph.in_ptr[node], graph.in_ptr[node + 1] - graph.in_ptr[node])
    runs = graph.in_runs[places]
    return (states - node)[owner] + graph.src[runs], runs, owner


def out_of(graph: Adjacency, states: Array) -> tuple[Array, Array, Array]:
    """Return where the runs out of states go, the runs, and the place in states of each."""
    node = states % graph.n
    runs, owner = spread(graph.out_ptr[node], graph.out_ptr[node + 1] - graph.out_ptr[node])
    return (states - node)[owner] + graph.dst[runs], runs, owner
