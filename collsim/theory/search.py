"""The search for the sets of nodes that limit an operation: likely ones, and the worst by maximum flow.

With w(X) the ranks in a set of nodes X and B+(X) the capacity of the links that leave it:

- **all_gather** is limited by the greatest w(X) / B+(X) of all X that leave a rank out. That is attained (Zhao et al.,
  "ForestColl", arXiv 2402.06787), up to latency. reduce_scatter is the same on the reversed links.
- **broadcast** is limited by the least B+(X) of the X that hold the root and not all ranks (Edmonds 1973), reduce by
  the same on the reversed links, and an **all_reduce** by the least B+(X) of the X that hold some ranks and not
  all: such a set holds a given rank or not, so the cuts from and to one rank are enough.
- **gather** is limited by w(X) / B+(X) of the X without the root, scatter by the same on the reversed links.

For an **all_to_all** and a **send_recv** there is no such method; on machines of few nodes all sets are tried.

A greatest ratio is found by Newton's method for one sink at a time (`collsim.flows.greatest_ratio`). If the worst set
leaves out a rank, then its image under a symmetry leaves out the image of that rank: one sink of each class that
symmetries make is enough. Colour refinement gives classes that are too coarse if anything; so small machines, where
there is time for it, are searched with every rank as a sink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.collective import Collective
from collsim.flows import Network, classes, greatest_ratio, least_cut
from collsim.theory.candidates import Sets, candidate_sets, capacities, every_set
from collsim.theory.cuts import demand
from collsim.theory.lengths import distance_of, likely_lengths

if TYPE_CHECKING:
    from collsim.topology import Topology

__all__ = ["worst_sets"]

Array = npt.NDArray[Any]

NEAR = 1e-9
"""What counts as equal, as a part; floats are compared."""
KEPT = 16
"""Worst sets that are kept."""
ALL = 2**18
"""Links times ranks up to which every rank is a sink."""
SINKS = {"greatest ratio": 2**20, "least cut": 2**22}
"""Links times sinks of a search where one rank of each kind is a sink; minimum cuts are found faster."""


def worst_sets(collective: Collective, topology: Topology, ranks: Array, links: Array) -> tuple[list[Array], str]:
    """Return the sets of nodes of the greatest demand over leaving capacity, the worst first, and how they were found.

    Parameters
    ----------
    collective
        The operation.
    topology
        The machine; what is found is kept in its ``cache``.
    ranks
        Nodes of the ranks, which all reach each other if the operation needs it.
    links
        Numbers of the links that are of use.
    """
    key = ("worst sets", collective)
    if key not in topology.cache:
        topology.cache[key] = _search(collective, topology, ranks, links)
    return topology.cache[key]  # type: ignore[no-any-return]


def _search(collective: Collective, topology: Topology, ranks: Array, links: Array) -> tuple[list[Array], str]:
    sets = candidate_sets(topology) + _alone(topology, ranks, links, collective.root)
    worths = _worths(collective, topology, ranks, sets)
    found: list[Array] = []
    method = ""
    if collective.operation == "all_to_all":  # a good one, though not the best
        gathered, _ = worst_sets(Collective("all_gather", collective.ranks), topology, ranks, links)
        found = gathered[:1]
    if collective.operation in ("all_to_all", "send_recv"):
        best, tried = _of_all(collective, topology, ranks, links, float(worths.max(initial=0.0)))
        found = found + best
        if tried:
            method = f"best of {tried:,} cuts that were tried"
    else:
        start = _worst(collective, topology, ranks, links, [], sets, worths)[:1]
        found, method = _by_flow(collective, topology, ranks, links, start)
    method = method or f"best of {2 * len(sets) + len(found):,} cuts that were tried"
    return _worst(collective, topology, ranks, links, found, sets, worths), method


def _of_all(
    collective: Collective, topology: Topology, ranks: Array, links: Array, least: float
) -> tuple[list[Array], int]:
    """Return the worst of all sets, and how many they are, if nodes are few.

    Only if it is worse than ``least``, and proves more than likely lengths of links do: those are tried in any case.
    """
    sets, rate = every_set(topology, links)
    if not len(sets):
        return [], 0
    for lengths in likely_lengths(topology, ranks, links):
        offered = sum((lengths.astype(object) * topology.link_bandwidth[links]).tolist())
        distance = distance_of(topology, ranks, links, lengths, collective)
        each = collective.ranks if collective.operation == "all_to_all" else collective.ranks**2
        least = max(least, distance * each / offered * (1 + NEAR))
    volume = demands(collective, topology, ranks, sets, outside=False)
    worth = np.divide(volume, rate, out=np.zeros(len(rate)), where=rate > 0)
    worst = int(worth.argmax())
    return [sets.inside(worst)] if worth[worst] > least else [], len(sets)


def _alone(topology: Topology, ranks: Array, links: Array, root: int) -> Sets:
    """Return the ranks that have the least bandwidth out and in, and the root, each for itself."""
    chosen = {root}
    for ends in (topology.link_src, topology.link_dst):
        rate = np.zeros(topology.n_nodes, dtype=np.int64)
        np.add.at(rate, ends[links], topology.link_bandwidth[links])
        chosen.add(int(rate[ranks].argmin()))
    return Sets(topology.n_nodes, np.arange(len(chosen) + 1), ranks[sorted(chosen)])


def _worths(collective: Collective, topology: Topology, ranks: Array, sets: Sets) -> Array:
    """Return volume over capacity of each set, and then of the nodes that each leaves out."""
    found = []
    for turned, rate in enumerate(capacities(topology, sets)):
        volume = demands(collective, topology, ranks, sets, outside=bool(turned))
        found.append(np.divide(volume, rate, out=np.zeros(len(rate)), where=rate > 0))
    return np.concatenate(found)


def _worst(
    collective: Collective,
    topology: Topology,
    ranks: Array,
    links: Array,
    found: list[Array],
    sets: Sets,
    worths: Array,
) -> list[Array]:
    """Return the cuts of the greatest volume over capacity, the worst first: of those found, the sets and the rest."""
    count = collective.ranks
    ones = np.full(count, count, dtype=np.int64)
    own = []
    for inside in found:
        crossing = inside[topology.link_src[links]] & ~inside[topology.link_dst[links]]
        rate = int(topology.link_bandwidth[links][crossing].sum())
        own.append(demand(collective, inside[ranks], ones, count**2) / rate if rate else 0.0)
    worth = np.concatenate([np.array(own, dtype=np.float64), worths])
    worst = np.argsort(-worth, kind="stable")[:KEPT]
    cuts = []
    for i in worst[worth[worst] > 0].tolist():
        if i < len(found):
            cuts.append(found[i])
        else:
            turned, number = divmod(i - len(found), len(sets))
            cuts.append(~sets.inside(number) if turned else sets.inside(number))
    return cuts


def demands(collective: Collective, topology: Topology, ranks: Array, sets: Sets, *, outside: bool) -> Array:
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


def _by_flow(
    collective: Collective, topology: Topology, ranks: Array, links: Array, start: list[Array]
) -> tuple[list[Array], str]:
    """Return the worst set by maximum flow (for an all_reduce in both directions), and how far the search went."""
    op, root = collective.operation, int(ranks[collective.root])
    backwards = op in ("reduce_scatter", "scatter", "reduce")
    network = _network(topology, links)
    if op in ("all_gather", "reduce_scatter", "gather", "scatter"):
        rooted = op in ("gather", "scatter")
        sinks, method = ([root], "by maximum flow") if rooted else _sinks(topology, ranks, links, None)
        weights = {node: 1 for node in ranks.tolist() if not (rooted and node == root)}
        begin = [~inside if backwards else inside for inside in start]
        _, best = greatest_ratio(network.reversed() if backwards else network, weights, sinks, begin)
        return [~best if backwards else best], method
    sinks, method = _sinks(topology, ranks, links, root)
    found = []
    if op != "reduce":
        found.append(least_cut(network, root, sinks)[1])
    if op != "broadcast":
        found.append(~least_cut(network.reversed(), root, sinks)[1])
    return found, method


def _network(topology: Topology, links: Array) -> Network:
    key = ("network", len(links), links.tobytes() if len(links) < topology.n_links else b"")
    if key not in topology.cache:
        src, dst, rate = (column[links] for column in (topology.link_src, topology.link_dst, topology.link_bandwidth))
        topology.cache[key] = Network(topology.n_nodes, src, dst, rate)
    return topology.cache[key]  # type: ignore[no-any-return]


def _sinks(topology: Topology, ranks: Array, links: Array, root: int | None) -> tuple[list[int], str]:
    """Return the nodes of the ranks to be searched as sinks, and in words which these are."""
    others = [node for node in ranks.tolist() if node != root]
    if len(others) * len(links) <= ALL or len(others) == 1:
        return others, "by maximum flow"
    colour = np.zeros(topology.n_nodes, dtype=np.int64)
    colour[ranks] = 1
    if root is not None:
        colour[root] = 2
    src, dst, rate = (column[links] for column in (topology.link_src, topology.link_dst, topology.link_bandwidth))
    kinds = classes(topology.n_nodes, src, dst, rate, colour)[others]
    chosen = [others[i] for i in np.sort(np.unique(kinds, return_index=True)[1]).tolist()]
    noun = "GPU" if all(topology.kinds[node] == "gpu" for node in ranks.tolist()) else "rank"
    budget = max(2, SINKS["greatest ratio" if root is None else "least cut"] // len(links))
    if len(chosen) > budget:
        chosen = [chosen[i * len(chosen) // budget] for i in range(budget)]
        return chosen, f"by maximum flow, tried for {budget:,} of {len(others):,} {noun}s"
    if len(chosen) == 1:
        return chosen, f"by maximum flow, for one {noun} as all{' others' * (root is not None)} are alike"
    return chosen, f"by maximum flow, one {noun} of each of {len(chosen):,} kinds"
