"""What a topology offers to an operation, whatever the size: latencies, rates of ranks, and the worst cuts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.collective import Collective
from collsim.theory.cuts import CROSSINGS, Cut, leaving, offers_of
from collsim.theory.lengths import best_lengths, distance_of, likely_lengths
from collsim.theory.partitions import worst_parts
from collsim.theory.paths import UNREACHED, least_latencies, rows_in_budget
from collsim.theory.search import worst_sets

if TYPE_CHECKING:
    from collsim.topology import Topology

__all__ = ["Limits", "limits_of"]

Array = npt.NDArray[Any]

LOSS = Fraction(1, 10**6)
"""By so little the lengths that a linear program finds may miss the best."""


@dataclass(frozen=True, eq=False)
class Limits:
    """What an operation finds on a topology.

    Attributes
    ----------
    topology
        The machine.
    latencies
        Least latencies in picoseconds, shape (pairs of interest).
    sources, sinks
        Ranks at the ends of ``latencies``.
    offered
        By link: from when on it can carry data, plus the time that its last byte still needs; `UNREACHED` if useless.
    out_rate, in_rate
        By rank: bytes a second over all its links.
    out_start, in_start
        By rank: least ``offered`` of those links.
    cuts
        The worst cuts by sets of nodes and by lengths, the worst sets first.
    parts
        The worst cuts into parts.
    """

    topology: Topology
    latencies: Array
    sources: Array
    sinks: Array
    offered: Array
    out_rate: Array
    in_rate: Array
    out_start: Array
    in_start: Array
    cuts: tuple[Cut, ...]
    parts: tuple[Cut, ...]

    def alone(self, rank: int, *, into: bool) -> Cut:
        """Return the cut of the links out of a rank, or into it."""
        inside = np.arange(self.topology.n_nodes) == self.topology.rank_nodes[rank]
        return self.cut(~inside if into else inside)

    def cut(self, inside: Array) -> Cut:
        """Return the cut of a set of nodes."""
        links = leaving(self.topology, inside)
        links = links[self.offered[links] < UNREACHED]
        by_rank = inside[self.topology.rank_nodes[: len(self.out_rate)]]
        return Cut(self.topology, inside, links, by_rank, offers_of(self.topology, links, self.offered))


def limits_of(collective: Collective, topology: Topology, network: str, *, exact: bool = False) -> Limits:
    """Return the limits of an operation in a network model, searched once for a topology and kept on it.

    Parameters
    ----------
    collective, topology, network
        As for `collsim.theory.lower_bound`.
    exact
        Whether to look for the best lengths of links by a linear program (all_to_all).
    """
    exact = exact and collective.operation == "all_to_all"
    key = ("limits", collective, network == "fluid", exact)
    if key not in topology.cache:
        topology.cache[key] = _search(collective, topology, fluid=network == "fluid", exact=exact)
    found: Limits = topology.cache[key]
    return found


def _search(collective: Collective, topology: Topology, *, fluid: bool, exact: bool) -> Limits:
    op, root = collective.operation, collective.root
    ranks = topology.rank_nodes[: collective.ranks]
    sources = ranks[[root]] if op in ("broadcast", "scatter") else ranks
    sinks = ranks[[root]] if op in ("reduce", "gather") else ranks
    offered = _offered(topology, sources, sinks, fluid=fluid)
    latencies, pair_sources, pair_sinks = _latencies(collective, topology, ranks)
    links = np.flatnonzero(offered < UNREACHED)
    rates = []
    for ends in (topology.link_src, topology.link_dst):
        rate = np.zeros(topology.n_nodes, dtype=np.int64)
        first = np.full(topology.n_nodes, UNREACHED, dtype=np.int64)
        np.add.at(rate, ends[links], topology.link_bandwidth[links])
        np.minimum.at(first, ends, offered)
        rates += [rate[ranks], first[ranks]]
    limits = Limits(
        topology, latencies, pair_sources, pair_sinks, offered, rates[0], rates[2], rates[1], rates[3], (), ()
    )
    # without a path between two ranks there is no time to bound, and no flow
    if op == "barrier" or collective.ranks == 1 or not _connected(collective, topology, latencies, ranks):
        return limits
    sets, method = worst_sets(collective, topology, ranks, links)
    cuts = [replace(limits.cut(inside), method=method) for inside in sets]
    if op in ("all_to_all", "send_recv"):
        cuts += [
            _weighed(collective, limits, ranks, lengths, method) for lengths in likely_lengths(topology, ranks, links)
        ]
    if exact and (best := best_lengths(topology, ranks, links)) is not None:
        cuts = _proven(collective, cuts, _weighed(collective, limits, ranks, *best))
    return replace(limits, cuts=tuple(cuts), parts=tuple(_by_parts(collective, limits, ranks, links)))


def _connected(collective: Collective, topology: Topology, latencies: Array, ranks: Array) -> bool:
    if (latencies >= UNREACHED).any():
        return False
    if len(latencies) == collective.ranks**2 or collective.operation in ("broadcast", "scatter", "reduce", "gather"):
        return True
    # of many ranks only some were looked at: all reach the first one, and it reaches all
    for backwards in (False, True):
        start = np.full((1, topology.n_nodes), UNREACHED, dtype=np.int64)
        start[0, ranks[0]] = 0
        if (least_latencies(topology, start, backwards=backwards)[0, ranks] >= UNREACHED).any():
            return False
    return True


def _weighed(collective: Collective, limits: Limits, ranks: Array, lengths: Array, method: str) -> Cut:
    """Return the cut that lengths of the links of use make."""
    topology, links = limits.topology, np.flatnonzero(limits.offered < UNREACHED)
    used = lengths > 0
    return Cut(
        topology,
        np.ones(topology.n_nodes, dtype=bool),
        links[used],
        np.ones(len(ranks), dtype=bool),
        offers_of(topology, links[used], limits.offered, lengths[used]),
        lengths=lengths[used],
        distance=distance_of(topology, ranks, links, lengths, collective),
        method=method,
    )


def _proven(collective: Collective, cuts: list[Cut], best: Cut) -> list[Cut]:
    """Return the cuts with the best one; of those as good, easier to read, it tells that they are."""

    def worth(cut: Cut) -> Fraction:
        return Fraction(
            cut.demand(collective, np.ones(collective.ranks, dtype=np.int64), collective.ranks), cut.capacity
        )

    equal = [worth(cut) >= (1 - LOSS) * worth(best) for cut in cuts]
    marked = [replace(cut, method=best.method) if same else cut for cut, same in zip(cuts, equal, strict=True)]
    return marked if any(equal) else [best, *cuts]


def _by_parts(collective: Collective, limits: Limits, ranks: Array, links: Array) -> list[Cut]:
    if collective.operation not in CROSSINGS:
        return []
    topology = limits.topology
    found, tried = worst_parts(topology, ranks, links, every=collective.operation == "all_reduce")
    cuts = []
    for label, into, ranks_only in found:
        near, far = label[topology.link_src[links]], label[topology.link_dst[links]]
        own = far if into else near
        crossing = links[(own >= 0) & (near != far)]
        cut = Cut(
            topology,
            label >= 0,
            crossing,
            np.ones(len(ranks), dtype=bool),
            offers_of(topology, crossing, limits.offered),
            parts=label,
            into=into,
            ranks_only=ranks_only,
            method=f"best of {tried:,} partitions that were tried",
        )
        cuts.append(cut)
    return cuts


def _offered(topology: Topology, sources: Array, sinks: Array, *, fluid: bool) -> Array:
    """By link: from when on it can carry data, plus the time that its last byte still needs; `UNREACHED` if useless."""

    def least(nodes: Array, times: Array | int, *, backwards: bool) -> Array:
        start = np.full((1, topology.n_nodes), UNREACHED, dtype=np.int64)
        start[0, nodes] = times
        return np.asarray(least_latencies(topology, start, backwards=backwards)[0])

    since = least(sources, _sent(topology, sources), backwards=False)
    until = least(sinks, 0, backwards=True)
    early = since[topology.link_src] + topology.link_latency
    offered = np.minimum(early + until[topology.link_dst], UNREACHED)
    if not fluid:
        return np.asarray(offered)
    # There a transfer pays all its latency before its first byte, and nothing after the last. So one that a nearer rank
    # or switch passes on may use a link early, and one that goes straight to its rank late: only the latency up to the
    # nearest end of a transfer counts for both.
    switches = (np.array(topology.kinds) == "switch") & topology.forwards
    ends = np.union1d(topology.rank_nodes, np.flatnonzero(switches))
    nearest = least(ends, 0, backwards=True)
    return np.asarray(np.where(offered < UNREACHED, early + nearest[topology.link_dst], UNREACHED))


def _sent(topology: Topology, nodes: Array) -> Array:
    """When data can leave a source: after its overhead, which a node that does not forward pays on its links."""
    return np.where(topology.forwards[nodes], topology.send_overhead[nodes], 0)


def _latencies(collective: Collective, topology: Topology, ranks: Array) -> tuple[Array, Array, Array]:
    """Least latencies between the pairs whose data must travel, or between as many of them as time allows."""
    op, root, count = collective.operation, collective.root, collective.ranks
    everyone = np.arange(count)

    def rows(chosen: Array, *, backwards: bool = False) -> Array:
        start = np.full((len(chosen), topology.n_nodes), UNREACHED, dtype=np.int64)
        start[np.arange(len(chosen)), ranks[chosen]] = 0 if backwards else _sent(topology, ranks[chosen])
        return least_latencies(topology, start, backwards=backwards)[:, ranks]

    if op in ("broadcast", "scatter"):
        return rows(np.array([root]))[0], np.full(count, root), everyone
    if op in ("reduce", "gather"):
        # what a sender adds before its first link
        ways = rows(np.array([root]), backwards=True)[0] + _sent(topology, ranks)
        ways[root] = 0
        return ways, everyone, np.full(count, root)
    nearest = rows(np.array([0]))[0]
    chosen = everyone
    if count > (limit := rows_in_budget(topology, int(ranks[0]))):
        chosen = np.unique(np.append(np.linspace(0, count - 1, limit).astype(np.int64), nearest.argmax()))
    ways = rows(chosen)
    if op == "send_recv":
        following = (chosen + 1) % count
        return ways[np.arange(len(chosen)), following], chosen, following
    return ways.ravel(), np.repeat(chosen, count), np.tile(everyone, len(chosen))
