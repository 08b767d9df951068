"""Least latencies between the nodes of a topology, over all paths that data could take."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collsim.topology import Topology

__all__ = ["UNREACHED", "least_latencies", "least_sums", "rows_in_budget"]

Array = npt.NDArray[Any]

UNREACHED = 2**61
"""Picoseconds, for nodes that no path reaches."""

_WORK = 20_000_000
_ROUNDS = 128
"""Times that all links are gone through, before paths are searched node by node."""


def least_latencies(topology: Topology, start: Array, *, backwards: bool = False) -> Array:
    """Return the least sum of latencies from sets of nodes to all nodes.

    Parameters
    ----------
    topology
        The machine.
    start
        Picoseconds at which data is at each node, `UNREACHED` where it is not; one row a set, shape (rows, nodes).
    backwards
        Go against the links: latencies from all nodes to a set.

    Returns
    -------
    numpy.ndarray
        Picoseconds, shape (rows, nodes).

    Notes
    -----
    Data may be passed on by any rank, which sends it anew; so a rank that does not forward may be on the way, at the
    cost of its send overhead, while another node that does not forward may not.

    Examples
    --------
    >>> import numpy as np
    >>> import collsim.topology
    >>> topology = collsim.topology.ring(4, bandwidth="1GB/s", latency="1us")
    >>> least_latencies(topology, np.array([[0, UNREACHED, UNREACHED, UNREACHED]])).tolist()
    [[0, 1000000, 2000000, 3000000]]
    """
    src, dst = topology.link_src.astype(np.int64), topology.link_dst.astype(np.int64)
    blocked = ~topology.forwards[src]
    cost = topology.link_latency + np.where(blocked, topology.send_overhead[src], 0)
    if not topology.given_routes:
        passable = ~blocked | (topology.rank_of_node[src] >= 0)
        src, dst, cost = src[passable], dst[passable], cost[passable]
    if backwards:
        src, dst = dst, src
    return least_sums(start, src, dst, cost)


def least_sums(start: Array, src: Array, dst: Array, cost: Array) -> Array:
    """Return the least sum of a start and the costs of links on the way to each node.

    Parameters
    ----------
    start
        Whole numbers below `UNREACHED`, which stands for none; shape (rows, nodes).
    src, dst, cost
        Ends and cost of each link, at least 0.

    Examples
    --------
    >>> import numpy as np
    >>> least_sums(np.array([[0, UNREACHED, UNREACHED]]), np.array([0, 1]), np.array([1, 2]), np.array([3, 4])).tolist()
    [[0, 3, 7]]
    """
    order = np.argsort(dst, kind="stable")
    src, dst, cost = src[order], dst[order], cost[order]
    ends, first = np.unique(dst, return_index=True)
    times = np.array(start, dtype=np.int64)
    if not len(ends):
        return np.minimum(times, UNREACHED)
    for _ in range(_ROUNDS):
        reached = np.minimum.reduceat(times[:, src] + cost, first, axis=1)
        nearer = np.minimum(times[:, ends], reached)
        if np.array_equal(nearer, times[:, ends]):
            break
        times[:, ends] = nearer
    else:
        for row in times:
            _go_on(row, src, dst, cost)
    return np.minimum(times, UNREACHED)


def _go_on(times: Array, src: Array, dst: Array, cost: Array) -> None:
    """Bring times that are too late down to the least, node after node (Dijkstra): for machines of long paths."""
    order = np.argsort(src, kind="stable")
    first = np.searchsorted(src[order], np.arange(len(times) + 1)).tolist()
    ends, costs, best = dst[order].tolist(), cost[order].tolist(), times.tolist()
    heap = [(time, node) for node, time in enumerate(best) if time < UNREACHED]
    heapify(heap)
    while heap:
        time, node = heappop(heap)
        if time > best[node]:
            continue
        for link in range(first[node], first[node + 1]):
            then = time + costs[link]
            if then < best[ends[link]]:
                best[ends[link]] = then
                heappush(heap, (then, ends[link]))
    times[:] = best


def rows_in_budget(topology: Topology, node: int) -> int:
    """Return how many rows `least_latencies` can do in well under a second, by the hops from a node to the farthest."""
    least = 4
    seen = np.zeros(topology.n_nodes, dtype=bool)
    seen[node] = True
    hops = 0
    while _WORK // max(1, topology.n_links * (hops + 1)) > least:
        reached = topology.link_dst[seen[topology.link_src]]
        new = reached[~seen[reached]]
        if not len(new):
            break
        seen[new] = True
        hops += 1
    return max(least, _WORK // max(1, topology.n_links * (hops + 1)))
