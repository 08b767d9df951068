"""Least latencies between the nodes of a topology, over all paths that data could take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collsim.topology import Topology

__all__ = ["UNREACHED", "least_latencies", "rows_in_budget"]

Array = npt.NDArray[Any]

UNREACHED = 2**61
"""Picoseconds, for nodes that no path reaches."""

_WORK = 20_000_000


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
    order = np.argsort(dst, kind="stable")
    src, dst, cost = src[order], dst[order], cost[order]
    ends, first = np.unique(dst, return_index=True)
    times = np.array(start, dtype=np.int64)
    while len(ends):
        reached = np.minimum.reduceat(times[:, src] + cost, first, axis=1)
        nearer = np.minimum(times[:, ends], reached)
        if np.array_equal(nearer, times[:, ends]):
            break
        times[:, ends] = nearer
    return np.minimum(times, UNREACHED)


def rows_in_budget(topology: Topology, hops: int) -> int:
    """Return how many rows `least_latencies` can do in well under a second on paths of so many hops."""
    return max(4, _WORK // max(1, topology.n_links * (hops + 1)))
