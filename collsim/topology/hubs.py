"""Searches past hubs: nodes with so many neighbours that a search must not list them for each pair anew.

A leaf switch of a large cluster has links to thousands of nodes. From each hub all nodes are searched once, in both
directions, and only the hops are kept. Then the shortest way between two nodes over some hub is the least sum of two
numbers, and at a node on the way the links that go on are those whose far end is one hop nearer by the same sum. Of a
hub's many links these depend on the destination only through its distances from the hubs: they are picked out once for
each such row of distances. Ways that pass no hub are found from both ends, and no farther than the way over a hub.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from collsim.topology.graph import Topology
from collsim.topology.search import (
    STATES,
    Adjacency,
    Array,
    Tight,
    adjacency,
    between,
    distinct,
    hops_of,
    into,
    out_of,
    spread,
)  # fmt: skip

__all__ = ["Hubs", "around", "components", "hubs_of"]

DEGREE = 256
"""From so many neighbours on a node is a hub."""

FIELDS = 2**24
"""Distances that are kept in each direction (32 MB): what hubs times nodes may be."""

LISTED = 2**22
"""Links of hubs that are kept for the next pairs."""

FAR = 2**14 - 1
"""No way; twice as much is still a number of 16 bits."""


@dataclass(frozen=True, eq=False)
class Hubs:
    """Hubs of a machine and the hops from and to them.

    ``number`` has for each node which hub it is, or -1; ``away[v]`` the hops from every hub to node v, ``back[v]``
    those from v to every hub. ``rest`` is the machine in which no path passes a hub, ``part`` the number of the part of
    it that a node is in: nodes of two parts are joined over hubs only. ``listed`` keeps links of hubs.
    """

    number: Array
    away: Array
    back: Array
    rest: Adjacency
    part: Array
    listed: dict[bytes, Array]


def hubs_of(topology: Topology) -> Hubs | None:
    """Return the hubs of a topology, searched once; None where there are none."""
    if "hubs" not in topology.cache:
        topology.cache["hubs"] = _hubs(adjacency(topology))
    return topology.cache["hubs"]  # type: ignore[no-any-return]


def _hubs(graph: Adjacency) -> Hubs | None:
    degree = np.maximum(np.diff(graph.out_ptr), np.diff(graph.in_ptr))
    nodes = np.flatnonzero(graph.passes & (degree >= DEGREE))
    nodes = np.sort(nodes[np.argsort(-degree[nodes], kind="stable")][: FIELDS // graph.n])
    if not len(nodes):
        return None
    fields = []
    for step in (out_of, into):
        hops = hops_of(graph, nodes, step).T
        if hops.max() >= FAR:
            return None
        fields.append(np.ascontiguousarray(np.where(hops < 0, FAR, hops), dtype=np.int16))
    number = np.full(graph.n, -1, dtype=np.int32)
    number[nodes] = np.arange(len(nodes))
    rest = replace(graph, passes=graph.passes & (number < 0))
    near = (number[graph.src] < 0) & (number[graph.dst] < 0)
    away, back = fields
    return Hubs(number, away, back, rest, components(graph.n, graph.src[near], graph.dst[near]), {})


def components(n: int, src: Array, dst: Array) -> Array:
    """Return for each of n nodes the least node that it is joined with, by links in whatever direction.

    Examples
    --------
    >>> components(5, np.array([4, 0]), np.array([1, 3])).tolist()
    [0, 1, 2, 0, 1]
    """
    least = np.arange(n)
    while len(src):
        a, b = least[src], least[dst]
        apart = a != b
        src, dst, a, b = src[apart], dst[apart], a[apart], b[apart]
        np.minimum.at(least, np.maximum(a, b), np.minimum(a, b))
        while not np.array_equal(nearer := least[least], least):
            least = nearer
    return least


def around(graph: Adjacency, hubs: Hubs, src: Array, dst: Array, limit: int | None = None) -> Tight | None:
    """Return the links on the shortest paths of each pair, as `between` finds them; None beyond the limit."""
    total = (hubs.back[src] + hubs.away[dst]).min(axis=1).astype(np.int64)
    near = np.flatnonzero((hubs.part[src] == hubs.part[dst]) & (hubs.number[src] < 0) & (hubs.number[dst] < 0))
    found = between(hubs.rest, src[near], dst[near], limit, total[near])
    if found is None:
        return None
    tight, length = found
    total[near[(length >= 0) & (length < total[near])]] = FAR  # a way past no hub is shorter
    pair, run = np.divmod(tight.keys, graph.runs)
    good = length[pair] >= 0
    over = _over(graph, hubs, src, dst, total, STATES if limit is None else limit)
    if over is None:
        return None
    keys = np.concatenate([near[pair[good]] * graph.runs + run[good], over[0]])
    keys, place = np.unique(keys, return_inverse=True)
    width = np.zeros(len(keys), dtype=np.int64)
    np.maximum.at(width, place, np.concatenate([tight.width[good], over[1]]))
    return Tight(graph, keys, width)


def _over(graph: Adjacency, hubs: Hubs, src: Array, dst: Array, total: Array, limit: int) -> tuple[Array, Array] | None:
    """Return keys and widths of the links on all paths of ``total`` hops that have a hub on them, ends included.

    From the source on those are followed that have a hub at their far end or behind it; from the destination back to
    the first hub, those that have one at their near end or before it. Together these are all.
    """
    to_hubs, from_hubs = hubs.back[src], hubs.away[dst]
    joined = np.flatnonzero(total < FAR)
    keys, left = [joined[:0]], [joined[:0]]  # and how many hops are left behind each link

    def keep(pair: Array, runs: Array, hops: Array) -> None:
        keys.append(pair * graph.runs + runs)
        left.append(hops)

    states, level = joined * graph.n + src[joined], 0
    while len(states):
        level += 1
        at_hub = hubs.number[states % graph.n] >= 0
        ends, runs, _ = out_of(graph, states[~at_hub])
        pair, node = np.divmod(ends, graph.n)
        rest = (hubs.back[node] + from_hubs[pair]).min(axis=1)
        good = graph.passes[node] & (rest == total[pair] - level)
        keep(pair[good], runs[good], total[pair[good]] - level)
        states = states[at_hub]
        listed = _listed(graph, hubs, states % graph.n, from_hubs[states // graph.n], limit)
        if listed is None:
            return None
        runs, owner = listed
        pair = states[owner] // graph.n
        keep(pair, runs, total[pair] - level)
        states = distinct(np.concatenate([ends[good], pair * graph.n + graph.dst[runs]]))

    joined = joined[hubs.number[dst[joined]] < 0]
    states, level = joined * graph.n + dst[joined], 0
    while len(states):
        ends, runs, _ = into(graph, states)
        pair, node = np.divmod(ends, graph.n)
        rest = (to_hubs[pair] + hubs.away[node]).min(axis=1)
        good = graph.passes[node] & (rest == total[pair] - level - 1)
        keep(pair[good], runs[good], np.full(np.count_nonzero(good), level))
        states = distinct(ends[good & (hubs.number[node] < 0)])
        level += 1

    key, first = np.unique(np.concatenate(keys), return_index=True)
    return key, _widths(graph, key, np.concatenate(left)[first])


def _listed(graph: Adjacency, hubs: Hubs, nodes: Array, rows: Array, limit: int) -> tuple[Array, Array] | None:
    """Return the links that lead from hubs towards the next hub on the way, and the place in ``nodes`` of each.

    ``rows`` has the hops from every hub to the destination.
    """
    if len(hubs.listed) and sum(map(len, hubs.listed.values())) > LISTED:
        hubs.listed.clear()
    kinds = np.ascontiguousarray(np.column_stack([hubs.number[nodes].astype(np.int16), rows]))
    names = kinds.view(np.dtype((np.void, kinds.itemsize * kinds.shape[1]))).ravel()
    _, first, kind = np.unique(names, return_index=True, return_inverse=True)
    lists = [np.zeros(0, dtype=np.int64)]
    for place in first.tolist():
        name = names[place].tobytes()
        if name not in hubs.listed:
            hub, row = nodes[place], rows[place]
            runs = np.arange(graph.out_ptr[hub], graph.out_ptr[hub + 1])
            ends = graph.dst[runs]
            nearer = (hubs.back[ends] + row).min(axis=1) == row[hubs.number[hub]] - 1
            hubs.listed[name] = runs[nearer & graph.passes[ends]]
        lists.append(hubs.listed[name])
    counts = np.array([len(runs) for runs in lists])
    if counts[1:][kind].sum() > limit:
        return None
    places, owner = spread(np.cumsum(counts)[:-1][kind], counts[1:][kind])
    return np.concatenate(lists)[places], owner


def _widths(graph: Adjacency, keys: Array, left: Array) -> Array:
    """Return the bottleneck of the widest path on from each link, given the hops that are left behind it."""
    pair, run = np.divmod(keys, graph.runs)
    width = graph.width[run]
    states, near = np.unique(pair * graph.n + graph.src[run], return_inverse=True)
    far = np.searchsorted(states, pair * graph.n + graph.dst[run])
    best = np.zeros(len(states), dtype=np.int64)
    for level in range(int(left.max(initial=-1)) + 1):
        now = np.flatnonzero(left == level)
        if level:
            width[now] = np.minimum(width[now], best[far[now]])
        np.maximum.at(best, near[now], width[now])
    return np.asarray(width)
