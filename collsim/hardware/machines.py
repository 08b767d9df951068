"""The machine of a cluster: what `collsim.topology.load_topology` reads for the shipped files, made from the catalogue.

A GPU has one link to NVSwitch, for the hardware stripes over all of its NVLinks; direct NVLinks are links of their own.
Where NVLink joins all GPUs of a node, PCIe carries what leaves the node and nothing else. Up to two nodes hang on one
switch; more have a leaf switch for each place of an adapter (a rail), and a spine with as much bandwidth up as down, or
one network without bottleneck where the node says ``flat``. GPUs of a mesh in which some pairs have no link forward for
others, to an adapter too.

Rates are those of the data sheets, latencies those of `collsim.hardware.hops`; between two boards of NVSwitches 0.3 us
are assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError
from collsim.hardware.hops import NVLINK, PCIE, PORT, SOCKET, SPINE, XGMI
from collsim.hardware.model import Cluster, Node
from collsim.topology.builder import assemble
from collsim.topology.graph import Topology

__all__ = ["machine", "pcie_bandwidth"]

_X16 = {3: 15_750_000_000, 4: 31_500_000_000, 5: 63_000_000_000, 6: 121_000_000_000}
"""PCI-SIG: 8, 16, 32 GT/s a lane with 128/130 of it data; 64 GT/s with 242/256 of it."""

Array = npt.NDArray[np.int64]


def pcie_bandwidth(generation: int, lanes: int = 16) -> int:
    """Return the bytes/s of a PCIe slot in one direction.

    Examples
    --------
    >>> pcie_bandwidth(5), pcie_bandwidth(3, 8)
    (63000000000, 7875000000)
    """
    return _X16[generation] * lanes // 16


def machine(cluster: Cluster) -> Topology:
    """Return the topology of a cluster.

    Parameters
    ----------
    cluster
        Of `collsim.hardware.cluster` or `collsim.hardware.from_case`.

    Returns
    -------
    Topology
        Ranks are GPUs, node by node. Nodes are called as in the shipped files: ``gpu[0]`` of one node, else
        ``node[1].gpu[0]``. One node has no network.

    Raises
    ------
    InputError
        If traffic crosses sockets and no public source has the rate between them.

    Examples
    --------
    >>> from collsim.hardware.clusters import cluster
    >>> machine(cluster("dgx-h100"))
    <Topology '1 x dgx-h100 @ 8x400Gb infiniband': 8 ranks, 9 nodes, 16 links of 450GB/s>
    >>> two = machine(cluster("2 x p4d"))
    >>> [two.link_name(link) for link in two.route(0, 8)][1:3]
    ['node[0].pcisw[0]->node[0].nic[0]', 'node[0].nic[0]->network']
    """
    plan = _Plan()
    _gpus(plan, cluster)
    if cluster.nodes > 1 or not _is_joined(cluster):
        _pcie(plan, cluster)
    return _assembled(plan, cluster)


@dataclass
class _Plan:
    """One node: names and flags of its devices, and links in the order of a topology file."""

    names: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    forwards: list[bool] = field(default_factory=list)
    sharp: list[bool] = field(default_factory=list)
    links: list[tuple[int, int, int, int, str, int]] = field(default_factory=list)
    at: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, kind: str, *, forwards: bool = True, sharp: bool = False) -> None:
        self.at[name] = len(self.names)
        self.names.append(name)
        self.kinds.append(kind)
        self.forwards.append(forwards)
        self.sharp.append(sharp)

    def join(self, a: str, b: str, rate: int, latency: int, kind: str, count: int = 1) -> None:
        self.links.append((self.at[a], self.at[b], rate, latency, kind, count))


def _gpus(plan: _Plan, cluster: Cluster) -> None:
    """Add the GPUs and what joins them directly."""
    node, gpu = cluster.node, cluster.node.gpu
    pairs = [(a, b, count) for a, b, count in node.links if b < cluster.gpus]
    complete = len(pairs) == cluster.gpus * (cluster.gpus - 1) // 2
    through = node.join == "mesh" and not complete and _is_joined(cluster)
    for index in range(cluster.gpus):
        plan.add(f"gpu[{index}]", "gpu", forwards=through)
    kind, latency = ("xgmi", XGMI) if gpu.link == "xgmi" else ("nvlink", NVLINK)
    for a, b, count in pairs:
        plan.join(f"gpu[{a}]", f"gpu[{b}]", gpu.link_bandwidth, latency, kind, count)
    if node.join != "nvswitch":
        return
    rate = gpu.links * gpu.link_bandwidth
    each = node.gpus // node.boards
    boards = range((cluster.gpus - 1) // each + 1)
    names = [f"nvswitch[{board}]" if node.boards > 1 else "nvswitch" for board in boards]
    for name in names:
        plan.add(name, "switch", sharp=node.sharp)
    for index in range(cluster.gpus):
        plan.join(f"gpu[{index}]", names[index // each], rate, latency // 2, kind)
    for one, other in combinations(names, 2):
        plan.join(one, other, rate, latency // 2, kind, node.trunk)


def _is_joined(cluster: Cluster) -> bool:
    """Whether NVLink or xGMI joins all GPUs that are used."""
    if cluster.gpus == 1 or cluster.node.join == "nvswitch":
        return True
    reached, more = {0}, True
    while more:
        new = {end for a, b, _ in cluster.node.links for end in (a, b) if (a in reached or b in reached)}
        new = {end for end in new if end < cluster.gpus} | reached
        more, reached = new != reached, new
    return len(reached) == cluster.gpus


def _pcie(plan: _Plan, cluster: Cluster) -> None:
    """Add the PCIe tree, as much of it as GPUs and adapters need to reach each other."""
    node, slots = cluster.node, cluster.slots
    rate = pcie_bandwidth(node.pcie)
    networked = cluster.nodes > 1
    joined = _is_joined(cluster)
    nics = range(cluster.nics if networked else 0)
    port = min(rate, pcie_bandwidth(cluster.nic.pcie, cluster.nic.lanes)) if cluster.nic and cluster.nic.pcie else rate
    if networked and joined and all(len(slot.gpus) == len(slot.nics) for slot in slots):
        for nic in nics:
            plan.add(f"nic[{nic}]", "nic")
        for slot in slots:
            for gpu, nic in zip(slot.gpus, slot.nics, strict=True):
                plan.join(f"gpu[{gpu}]", f"nic[{nic}]", port, PCIE, "pcie")
        return
    to_cpu = not joined or any(not slot.nics or not slot.gpus or not slot.switch for slot in slots)
    switched = [slot for slot in slots if slot.switch]
    for index in range(len(switched)):
        plan.add(f"pcisw[{index}]", "switch")
    sockets = sorted({slot.cpu for slot in slots if slot.gpus or networked}) if to_cpu else []
    for socket in sockets:
        plan.add(f"cpu[{socket}]", "host")
    for nic in nics:
        plan.add(f"nic[{nic}]", "nic")
    above = {id(slot): f"pcisw[{index}]" for index, slot in enumerate(switched)}
    places = [(slot, above.get(id(slot), f"cpu[{slot.cpu}]")) for slot in slots]
    for slot, place in places:
        for gpu in slot.gpus:
            plan.join(f"gpu[{gpu}]", place, rate, PCIE, "pcie")
    for slot, place in places:
        if to_cpu and slot.switch:
            plan.join(place, f"cpu[{slot.cpu}]", rate, PCIE, "pcie")
    _sockets(plan, node, sockets)
    for slot, place in places:
        for nic in slot.nics if networked else ():
            plan.join(place, f"nic[{nic}]", port, 0, "pcie")


def _sockets(plan: _Plan, node: Node, sockets: list[int]) -> None:
    if len(sockets) < 2:
        return
    if node.cpu is None or not node.cpu.socket_bandwidth:
        raise InputError(f"node: expected a CPU whose rate between sockets is known, got {node.name} without one")
    for one, other in combinations(sockets, 2):
        kind = "upi" if node.cpu.vendor == "intel" else "socket"
        plan.join(f"cpu[{one}]", f"cpu[{other}]", node.cpu.socket_bandwidth, SOCKET, kind)


def _assembled(plan: _Plan, cluster: Cluster) -> Topology:
    """Return the topology of all nodes, whole arrays at a time."""
    copies, size = cluster.nodes, len(plan.names)
    many = copies > 1
    names = [f"node[{copy}].{name}" for copy in range(copies) for name in plan.names] if many else list(plan.names)
    kinds = plan.kinds * copies
    forwards, sharp = plan.forwards * copies, plan.sharp * copies
    links = _Links()
    for group in _grouped(plan.links):
        ends = np.array([link[:2] for link in group])
        at = (np.arange(copies) * size)[:, None]
        _, _, rate, latency, kind, _ = group[0]
        counts = np.tile([link[5] for link in group], copies)
        links.add((at + ends[:, 0]).ravel(), (at + ends[:, 1]).ravel(), rate, latency, kind, counts)
    if many:
        switches = _network(cluster, links, size, plan.at["nic[0]"], len(names))
        names += switches
        kinds += ["switch"] * len(switches)
        forwards += [True] * len(switches)
        sharp += [False] * len(switches)
    flags = np.array(sharp, dtype=bool)
    structure = {"kind": "modules", "module": "node", "count": copies, "ranks_per_module": cluster.gpus} if many else {}
    src, dst, rates, latencies, codes = links.columns()
    return assemble(
        str(cluster),
        names,
        kinds,
        src,
        dst,
        rates,
        latencies,
        link_kinds=links.kinds or [""],
        link_kind_codes=codes.astype(np.int32),
        structure=structure,
        description=_description(cluster),
        source=f"{cluster.node.source}. {cluster.node.gpu.name}: {cluster.node.gpu.sources['']}.",
        devices={"forwards": np.array(forwards, dtype=bool), "reduces": flags, "multicasts": flags},
    )


class _Links:
    """Links in order, as columns."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self._parts: list[tuple[Array, Array, int, int, int]] = []

    def add(self, a: Array, b: Array, rate: int, latency: int, kind: str, counts: Array) -> None:
        """Add ``counts`` links there and back for each pair, those of a pair one after the other."""
        if kind not in self.kinds:
            self.kinds.append(kind)
        both = np.repeat(counts, 2)
        src = np.repeat(np.stack([a, b], axis=1).ravel(), both)
        dst = np.repeat(np.stack([b, a], axis=1).ravel(), both)
        self._parts.append((src, dst, rate, latency, self.kinds.index(kind)))

    def columns(self) -> tuple[Array, Array, Array, Array, Array]:
        """Return source, destination, rate, latency and code of the kind of each link."""
        sizes = [len(part[0]) for part in self._parts]
        values = np.array([part[2:] for part in self._parts], dtype=np.int64).reshape(-1, 3)
        rates, latencies, codes = (np.repeat(values[:, column], sizes) for column in range(3))
        empty = np.zeros(0, dtype=np.int64)
        src, dst = (np.concatenate([empty, *(part[column] for part in self._parts)]) for column in (0, 1))
        return src, dst, rates, latencies, codes


def _grouped(links: list[tuple[int, int, int, int, str, int]]) -> list[list[tuple[int, int, int, int, str, int]]]:
    """Return links of equal rate, latency and kind that follow each other as one group."""
    groups: list[list[tuple[int, int, int, int, str, int]]] = []
    for link in links:
        if groups and groups[-1][0][2:5] == link[2:5]:
            groups[-1].append(link)
        else:
            groups.append([link])
    return groups


def _network(cluster: Cluster, links: _Links, size: int, first_nic: int, n_nodes: int) -> list[str]:
    """Join the adapters of all nodes, and return the names of the switches that do it."""
    nics = first_nic + np.arange(cluster.nodes)[:, None] * size + np.arange(cluster.nics)
    rate, kind, ones = cluster.nic_bandwidth, cluster.transport, np.ones(nics.size, dtype=np.int64)
    flat = cluster.node.network == "flat"
    if flat or cluster.nodes <= 2 or cluster.nics == 1:
        links.add(nics.ravel(), np.full(nics.size, n_nodes), rate, PORT, kind, ones)
        return ["network" if flat else "leaf"]
    leaves = n_nodes + np.arange(cluster.nics)
    links.add(nics.T.ravel(), np.repeat(leaves, cluster.nodes), rate, PORT, kind, ones)
    spine = np.full(len(leaves), n_nodes + len(leaves))
    links.add(leaves, spine, rate, SPINE, kind, np.full(len(leaves), cluster.nodes))
    return [*(f"leaf[{rail}]" for rail in range(cluster.nics)), "spine"]


def _description(cluster: Cluster) -> str:
    node = cluster.node
    text = f"{cluster.nodes} of {node.name}, {cluster.gpus} {node.gpu.name} of each"
    if cluster.nodes > 1:
        text += f", joined by {cluster.nics} adapters a node"
    text += "."
    if not node.p2p:
        text += " GPUs reach each other through host memory only."
    return " ".join([text, *cluster.notes])
