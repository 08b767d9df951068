"""Cuts of a topology: what a set of nodes must send over the links that leave it.

A cut is a set X of nodes. If V bytes that start in X are wanted outside, they cross the links that leave X, of capacity
B+(X), so any collective that needs this takes at least V / B+(X). The worst cuts are found by maximum flow; every cut
that is found is weighed again in exact integers, so none overstates.

Sources: Edmonds (1973) for broadcast; "ForestColl" (arXiv 2402.06787) for all_gather and reduce_scatter; Dinkelbach
(1967) for the search of the greatest ratio.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import networkx as nx

    from collsim.topology import Topology

__all__ = ["Network", "candidate_cuts", "classes", "greatest_ratio", "least_cut", "leaving"]

Array = npt.NDArray[Any]

_SOURCE = -1


def leaving(topology: Topology, inside: Array) -> Array:
    """Return the links that leave a set of nodes.

    Parameters
    ----------
    topology
        The machine.
    inside
        Boolean, by node.

    Examples
    --------
    >>> import numpy as np
    >>> import collsim.topology
    >>> topology = collsim.topology.ring(4, bandwidth="1GB/s", latency="1us")
    >>> leaving(topology, np.array([True, True, False, False])).tolist()
    [1]
    """
    return np.flatnonzero(inside[topology.link_src] & ~inside[topology.link_dst])


class Network:
    """The links of a topology as a flow network in exact integers, parallel links joined.

    Bandwidths are divided by their greatest common divisor, which changes no cut.

    Parameters
    ----------
    topology
        The machine.
    backwards
        Turn all links round.
    """

    def __init__(self, topology: Topology, *, backwards: bool = False) -> None:
        import networkx as nx

        self.nodes = topology.n_nodes
        unit = gcd(*np.unique(topology.link_bandwidth).tolist()) or 1
        joined: Counter[tuple[int, int]] = Counter()
        ends = (topology.link_src.tolist(), topology.link_dst.tolist())
        for src, dst, bandwidth in zip(*ends, topology.link_bandwidth.tolist(), strict=True):
            joined[(dst, src) if backwards else (src, dst)] += bandwidth // unit
        self.links = dict(joined)
        self.graph: nx.DiGraph[int] = nx.DiGraph()
        self.graph.add_nodes_from([_SOURCE, *range(self.nodes)])
        self.graph.add_edges_from(self.links, capacity=0)

    def capacity(self, inside: Array) -> int:
        """Return the capacity that leaves a set, in units of the network."""
        return sum(c for (src, dst), c in self.links.items() if inside[src] and not inside[dst])

    def least_cut(self, source: int, sink: int) -> Array:
        """Return a set with ``source`` and without ``sink`` that the least capacity leaves."""
        return self._cut({source: 0}, 1, sink)[1]

    def _cut(self, supply: dict[int, int], scale: int, sink: int) -> tuple[int, Array]:
        """Flow from all suppliers (0: without limit) to a sink over links ``scale`` times as wide, and a least cut."""
        import networkx as nx
        from networkx.algorithms.flow import edmonds_karp

        graph = self.graph
        for (src, dst), capacity in self.links.items():
            graph[src][dst]["capacity"] = capacity * scale
        graph.remove_edges_from(list(graph.out_edges(_SOURCE)))
        graph.add_edges_from((_SOURCE, node, {"capacity": most} if most else {}) for node, most in supply.items())
        flow, (near, _) = nx.minimum_cut(graph, _SOURCE, sink, flow_func=edmonds_karp)
        inside = np.zeros(self.nodes, dtype=bool)
        inside[[node for node in near if node != _SOURCE]] = True
        return int(flow), inside


def greatest_ratio(network: Network, weights: dict[int, int], sinks: Iterable[int], start: Sequence[Array]) -> Array:
    """Return the set X with the greatest sum of weights over capacity that leaves it, one sink at least outside.

    Parameters
    ----------
    network
        The links.
    weights
        Weight of nodes, at least 1; the others have none.
    sinks
        Nodes, one of which is outside. If the weighted nodes are all of them, this is the bound of an all_gather.
    start
        Sets to start from (each leaves some weighted node or sink outside).

    Notes
    -----
    Newton's method on the ratio (Dinkelbach): with r = p/q the best so far, a set that avoids the sink and has
    ``q w(X) > p B+(X)`` exists if and only if not all supplies ``q w`` reach the sink over links ``p B``; then the
    minimum cut is such a set. Ratios are exact fractions, so this ends.
    """
    best = max(start, key=lambda inside: _ratio(network, weights, inside))
    ratio = _ratio(network, weights, best)
    for sink in sinks:
        while True:
            supply = {node: weight * ratio.denominator for node, weight in weights.items() if node != sink}
            flow, inside = network._cut(supply, ratio.numerator, sink)
            better = _ratio(network, weights, inside)
            if flow == sum(supply.values()) or better <= ratio:
                break
            best, ratio = inside, better
    return best


def _ratio(network: Network, weights: dict[int, int], inside: Array) -> Fraction:
    capacity = network.capacity(inside)
    weight = sum(weight for node, weight in weights.items() if inside[node])
    return Fraction(weight, capacity) if capacity else Fraction(0)


def least_cut(network: Network, source: int, sinks: Iterable[int]) -> Array:
    """Return the set of least capacity with the source inside and one of the sinks (at least one) outside."""
    return min((network.least_cut(source, sink) for sink in sinks), key=network.capacity)


def classes(topology: Topology, special: Iterable[int] = ()) -> Array:
    """Return a colour for each node; nodes that a symmetry exchanges have the same.

    Colours are refined by those of the neighbours and the bandwidths of the links to them until nothing changes. Nodes
    of ``special`` have colours of their own, so that only symmetries count that leave them in place. Two nodes of one
    colour need not be symmetric; searching only one of them then misses cuts but never invents any.

    Examples
    --------
    >>> import collsim.topology
    >>> classes(collsim.topology.line(5, bandwidth="1GB/s", latency="1us")).tolist()
    [0, 1, 2, 1, 0]
    """
    colour = [0] * topology.n_nodes
    for node in topology.rank_nodes.tolist():
        colour[node] = 1
    for number, node in enumerate(special):
        colour[node] = 2 + number
    links = list(
        zip(topology.link_src.tolist(), topology.link_dst.tolist(), topology.link_bandwidth.tolist(), strict=True)
    )
    count = len(set(colour))
    while True:
        around: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for src, dst, bandwidth in links:
            around[src].append((1, bandwidth, colour[dst]))
            around[dst].append((0, bandwidth, colour[src]))
        names: dict[tuple[Any, ...], int] = {}
        colour = [
            names.setdefault((colour[node], tuple(sorted(Counter(around[node]).items()))), len(names))
            for node in range(topology.n_nodes)
        ]
        if len(names) == count:
            return np.array(colour)
        count = len(names)


def candidate_cuts(topology: Topology, limit: int = 4096) -> dict[str, Array]:
    """Return sets of nodes that are likely to be bottlenecks, by name: modules, islands of fast links, subtrees.

    Parameters
    ----------
    topology
        The machine.
    limit
        At most so many sets.

    Examples
    --------
    >>> import collsim.topology
    >>> topology = collsim.topology.line(4, bandwidth="1GB/s", latency="1us")
    >>> {name: inside.tolist() for name, inside in candidate_cuts(topology).items()}
    {'the first 2 ranks': [True, True, False, False]}
    """
    found: dict[bytes, tuple[str, Array]] = {}
    ranks = np.zeros(topology.n_nodes, dtype=bool)
    ranks[topology.rank_nodes] = True

    def add(name: str, inside: Array) -> None:
        held = int(inside[ranks].sum())
        if 1 < held < topology.n_ranks and len(found) < limit:
            found.setdefault(inside.tobytes(), (name, inside))

    for module, members in _modules(topology).items():
        add(module, _mask(topology, members))
    rates = np.unique(topology.link_bandwidth)
    for rate in rates[1:].tolist():
        for joined in _islands(topology, topology.link_bandwidth >= rate):
            add("", _mask(topology, joined))
    for switch, below in _subtrees(topology, ranks):
        add(f"the ranks below {topology.nodes[switch]}", _mask(topology, below))
    if ranks.all() and topology.n_ranks > 2:
        half = topology.n_ranks // 2
        add(f"the first {half} ranks", _mask(topology, topology.rank_nodes[:half].tolist()))
    return {name or f"island {i}": inside for i, (name, inside) in enumerate(found.values())}


def _mask(topology: Topology, members: Iterable[int]) -> Array:
    inside = np.zeros(topology.n_nodes, dtype=bool)
    inside[list(members)] = True
    return inside


def _modules(topology: Topology) -> dict[str, list[int]]:
    """Nodes by what stands before the last dot of their name: node[3].gpu[0] is of node[3]."""
    modules: dict[str, list[int]] = defaultdict(list)
    for index, name in enumerate(topology.nodes):
        prefix, dot, _ = name.rpartition(".")
        if dot:
            modules[prefix].append(index)
    return modules


def _islands(topology: Topology, links: Array) -> list[list[int]]:
    """Return the sets of nodes that are joined by the given links, direction aside."""
    parent = list(range(topology.n_nodes))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for src, dst in zip(topology.link_src[links].tolist(), topology.link_dst[links].tolist(), strict=True):
        parent[root(src)] = root(dst)
    islands: dict[int, list[int]] = defaultdict(list)
    for node in range(topology.n_nodes):
        islands[root(node)].append(node)
    return list(islands.values())


def _subtrees(topology: Topology, ranks: Array) -> Iterable[tuple[int, set[int]]]:
    """Yield each node that is no rank with all that lies below it: nearer to the ranks, link by link."""
    level = np.where(ranks, 0, topology.n_nodes)
    src, dst = topology.link_src, topology.link_dst
    while True:
        lower = level.copy()
        np.minimum.at(lower, src, level[dst] + 1)
        if np.array_equal(lower, level):
            break
        level = lower
    below: dict[int, set[int]] = {}
    downs: dict[int, set[int]] = defaultdict(set)
    for a, b in zip(src.tolist(), dst.tolist(), strict=True):
        if level[b] < level[a]:
            downs[a].add(b)
    if sum(map(len, downs.values())) * int(level.max(initial=0)) > 2_000_000:
        return
    for node in np.argsort(level, kind="stable").tolist():
        below[node] = {node}.union(*(below[child] for child in downs[node]))
        if not ranks[node]:
            yield node, below[node]
