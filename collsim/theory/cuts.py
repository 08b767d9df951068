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

__all__ = ["Network", "classes", "greatest_ratio", "least_cut", "leaving"]

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
