"""Lengths of links that bound an all_to_all: those that are worth a try, and the best ones by a linear program."""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.theory.multicommodity import worst_lengths
from collsim.theory.paths import UNREACHED, least_sums, rows_in_budget

if TYPE_CHECKING:
    from collsim.collective import Collective
    from collsim.topology import Topology

__all__ = ["best_lengths", "distance_of", "likely_lengths"]

Array = npt.NDArray[Any]

LONGEST = 2**40
"""Lengths that are inverse to the bandwidths are left out if whole ones would be greater."""


def likely_lengths(topology: Topology, ranks: Array, links: Array) -> list[Array]:
    """Return lengths of links that are worth a try: all alike, and inverse to the bandwidth.

    With lengths 1 the bound counts the links that messages must cross at the least, with lengths 1 / bandwidth the time
    that they take up on them. None for machines on which finding all distances would take long.

    Examples
    --------
    >>> import collsim.topology
    >>> topology = collsim.topology.ring(3, bandwidth="1GB/s", latency="1us")
    >>> [lengths.tolist() for lengths in likely_lengths(topology, topology.rank_nodes, np.arange(3))]
    [[1, 1, 1]]
    """
    if rows_in_budget(topology, int(ranks[0])) < len(ranks):
        return []
    found = [np.ones(len(links), dtype=np.int64)]
    rates, place = np.unique(topology.link_bandwidth[links], return_inverse=True)
    if len(rates) > 1 and (common := lcm(*rates.tolist())) // int(rates[0]) <= LONGEST:
        inverse = np.array([common // rate for rate in rates.tolist()], dtype=np.int64)
        found.append(inverse[place.reshape(-1)])
    return found


def best_lengths(topology: Topology, ranks: Array, links: Array) -> tuple[Array, str] | None:
    """Return the lengths that prove the greatest bound, by a linear program, and how; None where it is too large."""
    return worst_lengths(
        topology.n_nodes,
        topology.link_src[links].astype(np.int64),
        topology.link_dst[links].astype(np.int64),
        topology.link_bandwidth[links],
        ranks,
    )


def distance_of(topology: Topology, ranks: Array, links: Array, lengths: Array, collective: Collective) -> int:
    """Return the sum of the distances between all ordered pairs of ranks that talk, exactly.

    Parameters
    ----------
    topology
        The machine.
    ranks
        Nodes of the ranks.
    links
        Numbers of the links that are of use.
    lengths
        Length of each of the links.
    collective
        An all_to_all, or a send_recv, in which each rank talks to the next.
    """
    start = np.full((len(ranks), topology.n_nodes), UNREACHED, dtype=np.int64)
    start[np.arange(len(ranks)), ranks] = 0
    away = least_sums(start, topology.link_src[links], topology.link_dst[links], lengths)[:, ranks]
    if collective.operation == "send_recv":
        return sum(away[np.arange(len(ranks)), (np.arange(len(ranks)) + 1) % len(ranks)].tolist())
    return sum(sum(row) for row in away.tolist())
