"""What a topology offers to an operation, whatever the size: rates of ranks and the worst cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.collective import Collective
from collsim.theory.candidates import Sets, candidate_sets, capacities
from collsim.theory.cuts import Network, classes, greatest_ratio, least_cut, leaving
from collsim.theory.paths import UNREACHED, least_latencies, rows_in_budget
from collsim.units import format_bandwidth

if TYPE_CHECKING:
    from collsim.topology import Topology

__all__ = ["Cut", "Limits", "demand", "least_time", "limits_of"]

Array = npt.NDArray[Any]
Offers = tuple[tuple[int, int], ...]

_KEPT = 16
_FLOW_RANKS = 128
_FLOW_WORK = 80_000


@dataclass(frozen=True, eq=False)
class Cut:
    """A set of nodes and what the links that leave it can carry.

    Attributes
    ----------
    topology, nodes, links
        The machine, by node whether it is in the set, and the links that are of use.
    inside
        By rank, whether it is in the set.
    offers
        ``(picoseconds, bytes a second)``: from when on, counted together with the time that the last byte needs to get
        from the link to a rank that wants it (in ``fluid`` all of the time before the first byte), a part of the links
        can carry data.
    """

    topology: Topology
    nodes: Array
    links: Array
    inside: Array
    offers: Offers

    @cached_property
    def where(self) -> str:
        """What it is in words, with direction and links: ``into gpu3 over 1 link of 50GB/s``."""
        return _where(self.topology, self.nodes, self.links)


@dataclass(frozen=True, eq=False)
class Limits:
    """What an operation finds on a topology.

    Attributes
    ----------
    latencies
        Least latencies in picoseconds, shape (pairs of interest).
    sources, sinks
        Ranks at the ends of ``latencies``.
    out_rate, in_rate
        By rank: bytes a second over all its links.
    out_start, in_start
        By rank: earliest use of those links plus least way on, in picoseconds.
    cuts
        The worst cuts, the worst first.
    method
        How the cuts were found.
    """

    latencies: Array
    sources: Array
    sinks: Array
    out_rate: Array
    in_rate: Array
    out_start: Array
    in_start: Array
    cuts: tuple[Cut, ...]
    method: str


def least_time(volume: int, offers: Offers) -> int:
    """Return the least time in picoseconds, rounded down, in which links can carry a number of bytes.

    The link group with offer (c, B) carries at most ``B (T - c)`` bytes by the time T.

    Examples
    --------
    >>> least_time(1000, ((10, 10**12),))
    1010
    >>> least_time(1000, ((10, 10**12), (400, 10**12)))
    705
    """
    carried = rate = 0
    best = UNREACHED
    for start, bandwidth in sorted(offers):
        if start >= best:
            break
        rate += bandwidth
        carried += bandwidth * start
        best = (volume * 10**12 + carried) // rate
    return best


def demand(collective: Collective, inside: Array, blocks: Array, size: int) -> int:
    """Return the bytes that must leave a set of ranks.

    Parameters
    ----------
    collective
        The operation.
    inside
        By rank, whether it is in the set.
    blocks
        Bytes of the block of each rank (all_to_all: for each rank), for operations that have blocks.
    size
        Bytes of the buffer.
    """
    op, ranks, root = collective.operation, collective.ranks, collective.root
    within = int(inside.sum())
    if not 0 < within < ranks:
        return 0
    if op == "all_gather":
        return int(blocks[inside].sum())
    if op == "reduce_scatter":
        return int(blocks[~inside].sum())
    if op == "all_reduce":
        return size
    if op == "broadcast":
        return size if inside[root] else 0
    if op == "reduce":
        return 0 if inside[root] else size
    if op == "gather":
        return 0 if inside[root] else int(blocks[inside].sum())
    if op == "scatter":
        return int(blocks[~inside].sum()) if inside[root] else 0
    if op == "all_to_all":
        return int(blocks[0]) * within * (ranks - within)
    if op == "send_recv":
        return size * int((inside & ~np.roll(inside, -1)).sum())
    return 0


def limits_of(collective: Collective, topology: Topology, network: str) -> Limits:
    """Return the limits of an operation in a network model, searched once for a topology and kept on it."""
    key = ("limits", collective, network == "fluid")
    if key not in topology.cache:
        topology.cache[key] = _search(collective, topology, fluid=network == "fluid")
    found: Limits = topology.cache[key]
    return found


def _search(collective: Collective, topology: Topology, *, fluid: bool) -> Limits:
    op, root = collective.operation, collective.root
    ranks = topology.rank_nodes[: collective.ranks]
    sources = ranks[[root]] if op in ("broadcast", "scatter") else ranks
    sinks = ranks[[root]] if op in ("reduce", "gather") else ranks
    offered = _offered(topology, sources, sinks, fluid=fluid)
    latencies, pair_sources, pair_sinks = _latencies(collective, topology, ranks)
    rates = []
    for ends in (topology.link_src, topology.link_dst):
        rate = np.zeros(topology.n_nodes, dtype=np.int64)
        first = np.full(topology.n_nodes, UNREACHED, dtype=np.int64)
        useful = offered < UNREACHED
        np.add.at(rate, ends[useful], topology.link_bandwidth[useful])
        np.minimum.at(first, ends, offered)
        rates += [rate[ranks], first[ranks]]
    sets = _candidates(collective, topology, ranks, rates[0], rates[2])
    found: list[Array] = []
    method = f"best of {2 * len(sets)} cuts that were tried"
    # without a path between two ranks there is no time to bound, and no flow
    connected = bool((latencies < UNREACHED).all())
    if len(sets) and connected and collective.ranks <= _FLOW_RANKS and 2 * topology.n_links <= _FLOW_WORK:
        start = [sets.inside(number) for number in range(len(sets))]
        found, flow_method = _by_flow(collective, topology, ranks, start + [~inside for inside in start])
        method = flow_method if found else method
    kept = []
    for inside in _worst(collective, topology, ranks, found, sets):
        links = leaving(topology, inside)
        links = links[offered[links] < UNREACHED]
        offers: dict[int, int] = {}
        for time, rate in zip(offered[links].tolist(), topology.link_bandwidth[links].tolist(), strict=True):
            offers[time] = offers.get(time, 0) + rate
        kept.append(Cut(topology, inside, links, inside[ranks], tuple(sorted(offers.items()))))
    return Limits(latencies, pair_sources, pair_sinks, rates[0], rates[2], rates[1], rates[3], tuple(kept), method)


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


def _candidates(collective: Collective, topology: Topology, ranks: Array, out_rate: Array, in_rate: Array) -> Sets:
    """Return sets of nodes that are worth a try; so are those that they leave out."""
    if collective.ranks == 1 or collective.operation == "barrier":
        return Sets(topology.n_nodes, np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64))
    alone = ranks[list({int(out_rate.argmin()), int(in_rate.argmin()), collective.root})]
    return candidate_sets(topology) + Sets(topology.n_nodes, np.arange(len(alone) + 1), alone)


def _worst(collective: Collective, topology: Topology, ranks: Array, found: list[Array], sets: Sets) -> list[Array]:
    """Return the cuts of the greatest volume over capacity, the worst first: of those found, the sets and the rest."""
    count = collective.ranks
    ones = np.full(count, count, dtype=np.int64)
    volumes = [np.array([demand(collective, inside[ranks], ones, count**2) for inside in found], dtype=np.int64)]
    rates = [
        np.array([int(topology.link_bandwidth[leaving(topology, inside)].sum()) for inside in found], dtype=np.int64)
    ]
    for turned, rate in enumerate(capacities(topology, sets)):
        volumes.append(_demands(collective, topology, ranks, sets, outside=bool(turned)))
        rates.append(rate)
    volume, rate = np.concatenate(volumes), np.concatenate(rates)
    worth = np.divide(volume, rate, out=np.zeros(len(rate)), where=rate > 0)
    worst = np.argsort(-worth, kind="stable")[:_KEPT]
    cuts = []
    for i in worst[volume[worst] > 0].tolist():
        if i < len(found):
            cuts.append(found[i])
        else:
            turned, number = divmod(i - len(found), len(sets))
            cuts.append(~sets.inside(number) if turned else sets.inside(number))
    return cuts


def _demands(collective: Collective, topology: Topology, ranks: Array, sets: Sets, *, outside: bool) -> Array:
    """Return the `demand` of each set, or of the nodes that it leaves out, with blocks of as many bytes as ranks."""
    op, count = collective.operation, collective.ranks
    takes_part = np.zeros(topology.n_nodes, dtype=bool)
    takes_part[ranks] = True
    root = np.arange(topology.n_nodes) == ranks[collective.root]
    within, has_root = sets.count(takes_part), sets.count(root) > 0
    if outside:
        within, has_root = count - within, ~has_root
    if op == "send_recv":
        rank = topology.rank_of_node[sets.members]
        own = np.flatnonzero((rank >= 0) & (rank < count))
        owner = sets.owners()[own]
        leaves = ~sets.have(owner, ranks[(rank[own] + 1) % count])
        volume = np.bincount(owner[leaves], minlength=len(sets)) * count**2  # as many come back round
    else:
        volume = {
            "all_gather": within * count,
            "reduce_scatter": (count - within) * count,
            "all_reduce": np.full(len(sets), count**2),
            "broadcast": has_root * count**2,
            "reduce": ~has_root * count**2,
            "gather": ~has_root * within * count,
            "scatter": has_root * (count - within) * count,
            "all_to_all": count * within * (count - within),
        }.get(op, np.zeros(len(sets), dtype=np.int64))
    return np.asarray(np.where((within > 0) & (within < count), volume, 0))


def _by_flow(collective: Collective, topology: Topology, ranks: Array, start: list[Array]) -> tuple[list[Array], str]:
    op, nodes = collective.operation, ranks.tolist()
    budget = max(2, _FLOW_WORK // topology.n_links)
    method = "by maximum flow"

    def some(special: Sequence[int]) -> list[int]:
        """One rank of each class, the special ones aside, as many as time allows."""
        nonlocal method
        colours = classes(topology, special)[ranks]
        first = np.sort(np.unique(colours, return_index=True)[1])
        chosen = [nodes[i] for i in first if nodes[i] not in special]
        if len(chosen) > budget:
            method = f"by maximum flow, tried for {budget} of {len(chosen)} ranks"
        return chosen[:budget]

    if op in ("all_gather", "reduce_scatter", "all_to_all"):
        backwards = op == "reduce_scatter"
        network = Network(topology, backwards=backwards)
        splits = [inside for inside in start if 0 < inside[ranks].sum() < len(ranks)]
        best = greatest_ratio(network, dict.fromkeys(nodes, 1), some([]), splits)
        return [~best if backwards else best], method
    if op in ("gather", "scatter"):
        root = nodes[collective.root]
        network = Network(topology, backwards=op == "scatter")
        weights = dict.fromkeys((node for node in nodes if node != root), 1)
        splits = [inside for inside in start if not inside[root] and inside[ranks].any()]
        best = greatest_ratio(network, weights, [root], splits)
        return [~best if op == "scatter" else best], method
    if op in ("broadcast", "reduce", "all_reduce"):
        root = nodes[collective.root]
        sinks = some([root])
        found = []
        if op != "reduce":
            found.append(least_cut(Network(topology), root, sinks))
        if op != "broadcast":
            found.append(~least_cut(Network(topology, backwards=True), root, sinks))
        return found, method
    return [], ""


def _where(topology: Topology, inside: Array, links: Array) -> str:
    """Say in words what a cut is: the smaller side, the direction, and the links."""
    groups = [np.flatnonzero(side[topology.rank_nodes]) for side in (inside, ~inside)]
    direction, group = ("out of", groups[0]) if len(groups[0]) <= len(groups[1]) else ("into", groups[1])
    rates = topology.link_bandwidth[links]
    count = f"{len(links)} link{'' if len(links) == 1 else 's'}"
    each = len(np.unique(rates)) == 1
    width = f"of {format_bandwidth(int(rates[0]))}" if each else f"of {format_bandwidth(int(rates.sum()))} in all"
    return f"{direction} {_named(topology, group)} over {count} {width}"


def _named(topology: Topology, group: Array) -> str:
    names = [topology.ranks[rank] for rank in group.tolist()]
    prefixes = {name.rpartition(".")[0] for name in names}
    if len(names) > 1 and len(prefixes) == 1:
        prefix: str = prefixes.pop()
        if len(names) == sum(name.startswith(prefix + ".") for name in topology.ranks):
            return prefix
    if len(names) <= 4:
        return ", ".join(names)
    return f"{names[0]}, {names[1]} and {len(names) - 2} more"
