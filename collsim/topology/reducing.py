"""Switches that add up and copy: those that join GPUs, and the trees that they form in the network.

What is returned are plain names and ranks, so that algorithms need no topology. Where there is nothing to return, the
``why_not`` functions say in a clause what the machine would need.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.topology.graph import Topology
from collsim.topology.structure import node_groups

__all__ = [
    "joining_switch", "node_switches", "rail_trees", "rank_tree", "why_not_joined", "why_not_nodes", "why_not_tree",
]  # fmt: skip

Array = npt.NDArray[Any]
Tree = tuple[tuple[str, tuple[int | str, ...]], ...]
"""Switches from the bottom up, each with its children: ranks, and switches that came before."""

BOTH = "`reduces: true` and `multicasts: true`"
NAMED = 3
"""Switches that a message names."""


def joining_switch(topology: Topology) -> str | None:
    """Return the switch with links to and from all ranks that reduces and multicasts, or else does one of both.

    Examples
    --------
    >>> from collsim.topology import switch
    >>> joining_switch(switch(8, reduces=True, multicasts=True)), joining_switch(switch(8))
    ('sw0', None)
    """
    able = topology.reduces.astype(np.int64) + topology.multicasts
    joining = [node for node, ranks in _joined(topology).items() if len(ranks) == topology.n_ranks and able[node]]
    return topology.nodes[max(joining, key=lambda node: (able[node], -node))] if joining else None


def node_switches(topology: Topology) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    """Return the switches that reduce and multicast and between them join each rank once: (name, ranks); several.

    Examples
    --------
    >>> from collsim.topology import load_topology
    >>> node_switches(load_topology("dgx-h100-x4"))[1]
    ('node[1].nvswitch', (8, 9, 10, 11, 12, 13, 14, 15))
    """
    able = topology.reduces & topology.multicasts
    found: list[tuple[str, tuple[int, ...]]] = []
    taken: set[int] = set()
    joined = {node: ranks for node, ranks in _joined(topology).items() if able[node]}
    for node, ranks in sorted(joined.items(), key=lambda item: (-len(item[1]), item[0])):
        if taken.isdisjoint(ranks):
            found.append((topology.nodes[node], tuple(ranks)))
            taken.update(ranks)
    found.sort(key=lambda item: item[1])
    return tuple(found) if len(taken) == topology.n_ranks and len(found) > 1 else None


def rank_tree(topology: Topology) -> Tree | None:
    """Return the tree of switches in the network that joins all ranks, where they reduce and multicast.

    Each rank hangs on the nearest such switch, and the root is the switch that all of these reach in the fewest hops.
    Switches that GPUs reach by links of the kind ``nvlink`` are left out: they reduce what a GPU loads and do not pass
    it on.

    Returns
    -------
    tuple or None
        Switches from the bottom up, each with its children: ranks, and names of switches before it.

    Examples
    --------
    >>> from collsim.topology import load_topology
    >>> rank_tree(load_topology("dgx-h100-x4-sharp"))[-2:]  # doctest: +ELLIPSIS
    (('leaf[7]', (7, 15, 23, 31)), ('spine', ('leaf[0]', 'leaf[1]', ..., 'leaf[7]')))
    """
    network = _Network(topology)
    return network.tree(range(topology.n_ranks))


def rail_trees(topology: Topology) -> tuple[Tree, ...] | None:
    """Return a tree for each network port of a node, over the first rank of each node that has this port.

    As `rank_tree`; nodes are those of `node_groups`. None where there are none, or with differently many ports.

    Examples
    --------
    >>> from collsim.topology import load_topology
    >>> rail_trees(load_topology("dgx-h100-x4-sharp"))[2]
    (('leaf[2]', (2, 10, 18, 26)),)
    """
    network = _Network(topology)
    heads = []
    for group in node_groups(topology) or ():
        ports: dict[tuple[int, int], int] = {}
        for rank in group:
            port = network.attached(rank)
            if port is not None:
                ports.setdefault(port, rank)
        heads.append(list(ports.values()))
    if len({len(ranks) for ranks in heads}) != 1 or not heads[0]:
        return None
    trees = [network.tree(rail, turn) for turn, rail in enumerate(zip(*heads, strict=True))]
    found = tuple(tree for tree in trees if tree is not None)
    return found if len(found) == len(trees) else None


def why_not_joined(topology: Topology) -> str:
    """Say what a machine without `joining_switch` has instead."""
    joined = _joined(topology)
    all_joined = [node for node, ranks in joined.items() if len(ranks) == topology.n_ranks]
    if all_joined:
        return f"no switch that reduces or multicasts; expected {BOTH} on {_named(topology, all_joined)}"
    if node_switches(topology) is not None:
        other = "nvls_tree" if rail_trees(topology) is None else "nvls_collnet"
        return f"no switch that joins all ranks, only one in each node; for several nodes there is {other} (all_reduce)"
    return "no switch that joins all ranks"


def why_not_nodes(topology: Topology) -> str:
    """Say what a machine without `node_switches` has instead."""
    joined = _joined(topology)
    if any(len(ranks) == topology.n_ranks for ranks in joined.values()):
        return f"no nodes with a switch of their own, one switch joins all ranks{_instead(topology)}"
    if joined:
        return f"no switch in each node that reduces and multicasts; expected {BOTH} on {_named(topology, joined)}"
    return "no switches that join the ranks of a node"


def why_not_tree(topology: Topology) -> str:
    """Say what a machine without `rank_tree` has instead."""
    network = _Network(topology)
    lacking = [node for node in network.switches if not network.able[node]]
    if lacking:
        return f"no tree of switches that reduce and multicast; expected {BOTH} on {_named(topology, lacking)}"
    if network.switches and node_groups(topology) is None:
        return "no nodes of several ranks; use sharp"
    if network.switches:
        return "no tree of switches over equally many ports of each node"
    if _joined(topology):
        return f"no switches in a network between nodes{_instead(topology)}"
    return "no switches"


def _joined(topology: Topology) -> dict[int, list[int]]:
    """Ranks with links to and from each switch that forwards, by its node."""
    src, dst, rank = topology.link_src.astype(np.int64), topology.link_dst.astype(np.int64), topology.rank_of_node
    into, out = (rank[src] >= 0) & (rank[dst] < 0), (rank[dst] >= 0) & (rank[src] < 0)
    n = topology.n_ranks
    up, down = dst[into] * n + rank[src[into]], src[out] * n + rank[dst[out]]
    found: dict[int, list[int]] = {}
    for key in np.intersect1d(up, down).tolist():
        node, number = divmod(key, n)
        if topology.kinds[node] == "switch" and topology.forwards[node]:
            found.setdefault(node, []).append(number)
    return found


def _instead(topology: Topology) -> str:
    return "; use nvls" if joining_switch(topology) is not None else ""


def _named(topology: Topology, nodes: Iterable[int]) -> str:
    names = [topology.nodes[node] for node in nodes]
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


class _Network:
    """The switches between ranks that could form trees, those that can, and what lies next to what."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        src, dst, n = topology.link_src.astype(np.int64), topology.link_dst.astype(np.int64), topology.n_nodes
        both = np.unique(np.intersect1d(src * n + dst, dst * n + src))
        start, end = np.divmod(both, n)
        self.first = np.searchsorted(start, np.arange(n + 1)).tolist()
        self.ends = end.tolist()
        self.rank = topology.rank_of_node.tolist()
        self.forwards = topology.forwards.tolist()
        nvlink = np.array([name == "nvlink" for name in topology.link_kind_names])[topology.link_kind_codes]
        at_gpu = nvlink & ((topology.rank_of_node[src] >= 0) | (topology.rank_of_node[dst] >= 0))
        loads = np.zeros(n, dtype=np.bool_)
        loads[src[at_gpu]] = loads[dst[at_gpu]] = True
        switch = np.array([kind == "switch" for kind in topology.kinds]) & topology.forwards & ~loads
        self.switches: list[int] = np.flatnonzero(switch).tolist()
        self.able: list[bool] = (switch & topology.reduces & topology.multicasts).tolist()

    def attached(self, rank: int) -> tuple[int, int] | None:
        """Return the nearest switch that is able, and the node before it: the port where messages leave the node."""
        start = int(self.topology.rank_nodes[rank])
        reached = self.next_able(start)
        return (reached[0][0], reached[0][1]) if reached else None

    def next_able(self, start: int) -> list[tuple[int, int]]:
        """Return the switches that are able and can be reached past no other one and no rank: (switch, node before)."""
        found: dict[int, int] = {}
        seen, todo = {start}, [start]
        while todo:
            later = []
            for node in todo:
                for end in self.ends[self.first[node] : self.first[node + 1]]:
                    if end in seen or self.rank[end] >= 0 or not self.forwards[end]:
                        continue
                    if self.able[end]:
                        found.setdefault(end, node)
                    else:
                        seen.add(end)
                        later.append(end)
            if found and self.rank[start] >= 0:
                break  # the nearest will do
            todo = later
        return sorted(found.items())

    def tree(self, ranks: Iterable[int], turn: int = 0) -> Tree | None:
        """Return the tree over some ranks; of several roots that would do, the one whose turn it is."""
        hanging: dict[int, list[int]] = {}
        for rank in ranks:
            port = self.attached(rank)
            if port is None:
                return None
            hanging.setdefault(port[0], []).append(rank)
        near = {node: [end for end, _ in self.next_able(node)] for node in self.switches if self.able[node]}
        bottom = sorted(hanging)
        # whose data has come how far: a bit for each switch with ranks
        reached = dict.fromkeys(near, 0) | {node: 1 << i for i, node in enumerate(bottom)}
        everything = (1 << len(bottom)) - 1
        while not (roots := [node for node, bits in reached.items() if bits == everything]):
            further = {node: bits | _any(reached[end] for end in near[node]) for node, bits in reached.items()}
            if further == reached:
                return None
            reached = further
        root = roots[turn % len(roots)]
        parent, todo = {root: root}, [root]
        order: list[int] = []  # from the bottom up
        while todo:
            order = todo + order
            later = []
            for node in todo:
                for end in near[node]:
                    if end not in parent:
                        parent[end] = node
                        later.append(end)
            todo = later
        children: dict[int, list[int | str]] = {}
        tree: list[tuple[str, tuple[int | str, ...]]] = []
        for node in order:
            below = hanging.get(node, []) + children.get(node, [])
            if not below:
                continue
            tree.append((self.topology.nodes[node], tuple(below)))
            children.setdefault(parent[node], []).append(self.topology.nodes[node])
        return tuple(tree)


def _any(bits: Iterable[int]) -> int:
    found = 0
    for more in bits:
        found |= more
    return found
