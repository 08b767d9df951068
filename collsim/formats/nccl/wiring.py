"""One host as nodes and links: GPUs, NVLinks, the PCI tree, adapters and CPUs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from collsim.errors import shown
from collsim.formats.gpus import nvlink_bandwidth
from collsim.formats.nccl.parts import Cpu, Fabric, Gpu, Host, Nic, Pci
from collsim.formats.nccl.rates import LOCAL, xgmi_bandwidth
from collsim.hardware.hops import NVLINK, PCIE, PORT, SOCKET, XGMI

__all__ = ["PORT", "Link", "Wired", "wire"]

# As in topologies/*.yaml: NCCL's hops (tuning.cc, LL) of 0.6 us over NVLink, 1 us between two GPUs on a PCIe switch and
# 2.7 us over the network, each parted over its links; so an adapter's own PCIe link has none. RCCL: 0.8 us over xGMI.

SHARP = 90
"""From this compute capability on NVSwitches add up and copy."""


@dataclass(frozen=True)
class Link:
    """Parallel links from one node of a host to another, by index; rate in bytes/s, latency in ps.

    Links of one ``group`` come in a row, those of all copies of a host before those of the next group: a topology file
    has such an order, and says a group in one line.
    """

    src: int
    dst: int
    rate: int
    latency: int
    kind: str
    count: int = 1
    group: int = 0


@dataclass
class Wired:
    """A host: name, kind, ``forwards`` and ``sharp`` of each node, its links; GPUs are the first nodes.

    Attributes
    ----------
    ports
        Node, rate (bytes/s), more latency (ps), kind and whether it says ``coll``, of each port to a network.
    hidden
        Bytes/s of the NVLinks of each GPU that go to an NVSwitch out of the host.
    diverted, lost
        Ports whose traffic goes past a CPU; NVLinks to GPUs that are not in the file.
    """

    nodes: list[tuple[str, str, bool, bool]] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    ports: list[tuple[int, int, int, str, bool]] = field(default_factory=list)
    hidden: dict[int, int] = field(default_factory=dict)
    switched: Counter[tuple[int, int]] = field(default_factory=Counter)
    direct: int = 0
    striped: bool = False
    diverted: int = 0
    lost: int = 0

    def add(self, name: str, kind: str, *, forwards: bool = True, sharp: bool = False) -> int:
        """Add a node and return its index."""
        self.nodes.append((name, kind, forwards, sharp))
        return len(self.nodes) - 1

    def join(self, a: int, b: int, rate: int, latency: int, kind: str, count: int = 1, *, same: bool = False) -> None:
        """Join two nodes by links in both directions, of the same group as the last ones or of one of their own."""
        group = self.links[-1].group + (not same) if self.links else 0
        self.links += (Link(a, b, rate, latency, kind, count, group), Link(b, a, rate, latency, kind, count, group))


def wire(host: Host, filled: int, share: bool) -> Wired:
    """Return the nodes and links of a host.

    Parameters
    ----------
    host
        With its GPUs in order.
    filled
        NVLinks of each GPU to an NVSwitch that the file does not show.
    share
        Whether NVSwitches without an address on the PCI of the host are out of it, and left to the caller.

    Raises
    ------
    TopologyError
        NVLinks of two sides that do not agree, that lead nowhere, or of a GPU of unknown rate.
    """
    wired = Wired()
    direct = _direct(host, wired)
    forwarding = _forwarding(direct)
    for index in range(len(host.gpus)):
        wired.add(f"gpu[{index}]", "gpu", forwards=index in forwarding)
    rates: dict[int, int] = {}
    for index, gpu in enumerate(host.gpus):
        fabric = [item for item in gpu.fabric if item.target == "switch"]
        count = sum(item.count for item in fabric) or filled
        if not count:
            continue
        rates[index] = count * (_rate(gpu, fabric[0]) if fabric else nvlink_bandwidth(gpu.sm))
        wired.switched[count, rates[index]] += 1
    hidden = share and all(item.hidden for gpu in host.gpus for item in gpu.fabric if item.target == "switch")
    if hidden and not filled:
        wired.hidden = rates
    elif rates:
        switch = wired.add("nvswitch", "switch", sharp=is_sharp(host))
        for index, rate in rates.items():
            same = bool(wired.links) and wired.links[-1].rate == rate
            wired.join(index, switch, rate, NVLINK // 2, "nvlink", same=same)
    # the hardware stripes over links of one pair; in a mesh of unequal pairs NCCL's rings take one link each
    wired.striped = len({count for count, _, _ in direct.values()}) == 1
    for (a, b), (count, rate, kind) in direct.items():
        wired.direct += count
        rate, count = (count * rate, 1) if wired.striped else (rate, count)
        wired.join(a, b, rate, XGMI if kind == "xgmi" else NVLINK, kind, count)
    _Tree(host, wired).plant()
    return wired


def is_sharp(host: Host) -> bool:
    """Return whether NVSwitches of these GPUs add up and copy (NVLink SHARP)."""
    return all(gpu.sm >= SHARP for gpu in host.gpus)


def _rate(gpu: Gpu, fabric: Fabric) -> int:
    """Return the rate of one NVLink or xGMI link of a GPU."""
    if fabric.element.tag == "xgmi":
        if not gpu.gcn:
            gpu.element.fail("expected an attribute 'gcn' such as gfx942, by which the rate of xGMI is known, got none")
        return xgmi_bandwidth(gpu.gcn)
    if not gpu.sm:
        gpu.element.fail(
            "expected an attribute 'sm', by which the rate of NVLinks is known, got none; give gpu (--gpu)"
        )
    return nvlink_bandwidth(gpu.sm)


def _direct(host: Host, wired: Wired) -> dict[tuple[int, int], tuple[int, int, str]]:
    """Return the links between two GPUs: number, rate and kind by pair. Both sides list them and must agree."""
    index = {gpu.pci.key: number for number, gpu in enumerate(host.gpus)}
    listed: dict[tuple[int, int], list[Fabric]] = {}
    for number, gpu in enumerate(host.gpus):
        for item in gpu.fabric:
            if item.target not in ("gpu", ""):
                continue
            other = index.get(item.key)
            if other is None and not item.target:
                got = shown(item.element.get("target"))
                item.element.fail(
                    f"expected the address of a GPU, or a tclass that says what it is, got {got}", "target"
                )
            if other is None:
                wired.lost += item.count
            elif other == number:
                item.element.fail("expected links to another GPU, got to itself", "target")
            else:
                listed.setdefault((number, other), []).append(item)
    pairs: dict[tuple[int, int], tuple[int, int, str]] = {}
    for (a, b), items in listed.items():
        there, back = (sum(item.count for item in listed.get(pair, [])) for pair in ((a, b), (b, a)))
        if there != back:
            target = host.gpus[b].pci
            got = f"{there} here and {back} in line {target.element.line}"
            items[0].element.fail(f"expected as many links to {target.busid} as it lists back, got {got}", "count")
        if a < b:
            rate = min(_rate(host.gpus[a], items[0]), _rate(host.gpus[b], listed[b, a][0]))
            pairs[a, b] = (there, rate, items[0].element.tag)
    return pairs


def _forwarding(direct: dict[tuple[int, int], tuple[int, int, str]]) -> set[int]:
    """Return the GPUs that join two others which have no links to each other: NCCL goes through one such GPU."""
    near: dict[int, set[int]] = {}
    for a, b in direct:
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)
    return {gpu for gpu, others in near.items() if any(others - near[other] - {other} for other in others)}


class _Tree:
    """Plants the PCI tree with its adapters below the CPUs; bridges without anything below them are left out."""

    def __init__(self, host: Host, wired: Wired) -> None:
        self.host, self.wired = host, wired
        self.at: dict[Cpu | Pci, int] = {}
        self.names = Counter(port.name for nic in host.nics for port in nic.ports)
        self.numbered = Counter((port.name, port.number) for nic in host.nics for port in nic.ports)
        self.taken: set[str] = set()
        self.blind = all(not gpu.gdr for gpu in host.gpus)

    def plant(self) -> None:
        host, wired = self.host, self.wired
        ports = [[wired.add(self._name(nic, i), "nic") for i in range(len(nic.ports))] for nic in host.nics]
        places = [gpu.pci.above for gpu in host.gpus]
        places += [nic.above.above for nic in host.nics if isinstance(nic.above, Pci) and not self._is_diverted(nic)]
        used = {pci for place in places for pci in _bridges(place)}
        for pci in host.bridges:
            if pci in used:
                self.at[pci] = wired.add(f"pci.{pci.busid}", "switch")
        for cpu in host.cpus:
            self.at[cpu] = wired.add(cpu.name, "host")
        for index, gpu in enumerate(host.gpus):
            wired.join(index, self.at[gpu.pci.above], gpu.pci.rate, PCIE, "pcie")
            self._to_cpu(index, gpu)
        for nic, nodes in zip(host.nics, ports, strict=True):
            self._nic(nic, nodes)
        for pci in host.bridges:
            if pci in used:
                wired.join(self.at[pci], self.at[pci.above], pci.rate, PCIE, "pcie")
        beside = {(self.at[pci], other) for pci in used for other in self._beside(pci)}
        for a, b in sorted({(min(pair), max(pair)) for pair in beside}):
            wired.join(a, b, LOCAL, 0, "pcie")
        for first, one in enumerate(host.cpus):
            for other in host.cpus[first + 1 :]:
                for cpu, peer in ((one, other), (other, one)):
                    kind = "upi" if cpu.intel else "socket"
                    last = wired.links[-1]  # there is at least that of a GPU
                    group = last.group + ((last.rate, last.kind) != (cpu.rate, kind))
                    wired.links.append(Link(self.at[cpu], self.at[peer], cpu.rate, SOCKET, kind, group=group))

    def _is_diverted(self, nic: Nic) -> bool:
        """Return whether there is no GPU Direct RDMA: all goes through the memory of the CPU, whatever is nearer."""
        return self.blind or any(not port.gdr for port in nic.ports)

    def _beside(self, pci: Pci) -> list[int]:
        """Return the bridges that a bridge is joined to beside the tree (``pcilink``)."""
        if pci not in self.at:
            return []
        others = (self.host.addresses.get(key) for key in pci.links)
        return [self.at[other] for other in others if other is not None and other in self.at and other is not pci]

    def _to_cpu(self, index: int, gpu: Gpu) -> None:
        count = sum(item.count for item in gpu.fabric if item.target == "cpu")
        rate = gpu.c2c
        if count:
            rate += count * _rate(gpu, next(item for item in gpu.fabric if item.target == "cpu"))
        if rate:
            kind = "c2c" if not count else "nvlink"
            self.wired.join(index, self.at[gpu.pci.cpu], rate, NVLINK, kind)

    def _nic(self, nic: Nic, nodes: list[int]) -> None:
        wired = self.wired
        if isinstance(nic.above, Cpu):
            place, rate, kind = self.at[nic.above], LOCAL, "local"
        elif self._is_diverted(nic):
            wired.diverted += len(nodes)
            place, rate, kind = self.at[nic.above.cpu], nic.above.rate_to_cpu, "pcie"
        else:
            place, rate, kind = self.at[nic.above.above], nic.above.rate, "pcie"
        if len(nodes) > 1 and isinstance(nic.above, Pci):  # its ports share the slot
            card = wired.add(f"pci.{nic.above.busid}", "switch")
            wired.join(card, place, rate, 0, kind)
            place, rate, kind = card, LOCAL, "local"
        for node, port in zip(nodes, nic.ports, strict=True):
            wired.join(node, place, rate, 0, kind)
            network = "infiniband" if nic.infiniband else "ethernet"
            wired.ports.append((node, port.rate, port.latency, network, port.collectives))

    def _name(self, nic: Nic, index: int) -> str:
        """Return the name of a port; NCCL calls all ports of a device alike, and tells them apart as ``mlx5_0:1``."""
        port = nic.ports[index]
        name = f"nic.{port.name}"
        if self.names[port.name] > 1:
            name += f":{port.number}"
        if self.numbered[port.name, port.number] > 1:
            name += f".{port.dev}"
        if not name.isprintable():
            port.element.fail(f"expected printable letters, got {shown(port.number)}", "port")
        if name in self.taken:
            port.element.fail(f"expected each adapter once in a host, got {name[4:]!r} again", "name")
        self.taken.add(name)
        return name


def _bridges(place: Pci | Cpu) -> list[Pci]:
    """Return the bridges from a place up to its CPU."""
    bridges = []
    while isinstance(place, Pci):
        bridges.append(place)
        place = place.above
    return bridges
