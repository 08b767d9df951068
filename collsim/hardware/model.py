"""What the catalogue speaks of: GPUs, adapters, CPUs, nodes and clusters of them, as frozen values.

Rates are bytes/s of one direction, times picoseconds, memory bytes: whole numbers. 0 (or an empty text) where no public
source has a figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from collsim.units import format_bandwidth

__all__ = ["Cluster", "Cpu", "Gpu", "Nic", "Node", "Slot"]

GB = 10**9


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Attributes
    ----------
    name, family
        As the catalogue has it (``a100-40gb``), and without form and memory (``a100``).
    vendor, generation
        ``nvidia`` or ``amd``; ``volta``, ``hopper``, ``cdna3`` ...: the class to which its constants belong.
    form
        ``sxm``, ``sxm3``, ``pcie``, ``nvl``, ``superchip`` or ``oam``.
    sm, gfx
        Compute capability, 90 for 9.0; architecture of AMD. The other one is 0 or empty.
    sms
        Multiprocessors, or compute units.
    memory, memory_bandwidth
        Bytes and bytes/s.
    link, links
        Kind of its links to other GPUs (``nvlink4``, ``xgmi``) and their number; empty and 0 for none.
    link_bandwidth, link_effective
        Of one link in one direction: what the data sheet says, and what NCCL (RCCL) reckons with.
    pcie
        Generation of its PCIe x16.
    peak_flops
        Operations a second by type (``bf16``), dense.
    ll128_channel
        What NCCL lets one channel move by LL128.
    sm_copy, sm_reduce
        What one SM copies, and reads, adds and writes, over NVLink, by NCCL's model of symmetric kernels.
    nvls_bandwidth
        What it moves through an NVSwitch that reduces and multicasts, at best.
    launch
        Time to launch an empty kernel.
    p2p
        Whether GPUs reach each other over PCIe; False for those that go through host memory.
    sources
        Where the figures come from, by field; ``""`` for all others.
    """

    name: str
    family: str
    vendor: str
    generation: str
    form: str
    sm: int
    gfx: str
    sms: int
    memory: int
    memory_bandwidth: int
    link: str
    links: int
    link_bandwidth: int
    link_effective: int
    pcie: int
    peak_flops: Mapping[str, int] = field(hash=False)
    ll128_channel: int
    sm_copy: int
    sm_reduce: int
    nvls_bandwidth: int
    launch: int
    p2p: bool
    sources: Mapping[str, str] = field(hash=False, repr=False)

    @property
    def nvlinks(self) -> int:
        """Number of NVLinks; 0 for a GPU of AMD."""
        return self.links if self.vendor == "nvidia" else 0

    @property
    def nvlink_bandwidth(self) -> int:
        """Bytes/s of one NVLink in one direction, as NCCL reckons; 0 without NVLink."""
        return self.link_effective if self.nvlinks else 0


@dataclass(frozen=True)
class Nic:
    """A network adapter, one port of it.

    Attributes
    ----------
    name
        As the catalogue has it.
    bandwidth
        Line rate, bytes/s.
    transports
        Classes of transport that it can do; the first is meant where nothing is said.
    latency
        Picoseconds that its NCCL plugin adds to a hop; 0 where none is told.
    pcie, lanes
        Generation and lanes of its slot; 0 where it is not known.
    source
        Where the figures come from.
    """

    name: str
    bandwidth: int
    transports: tuple[str, ...]
    latency: int
    pcie: int
    lanes: int
    source: str = field(repr=False)


@dataclass(frozen=True)
class Cpu:
    """A CPU, as NCCL tells them apart.

    Attributes
    ----------
    name, vendor, arch
        ``xeon-skylake``, ``intel``, ``x86_64``.
    model
        Model number of the processor family; 0 where it does not matter.
    socket_bandwidth
        Bytes/s from a socket to the other.
    source
        Where the figures come from.
    """

    name: str
    vendor: str
    arch: str
    model: int
    socket_bandwidth: int
    source: str = field(repr=False)


@dataclass(frozen=True)
class Node:
    """GPUs that NVLink, or a mainboard, makes one machine.

    Attributes
    ----------
    name, gpu, gpus
        Its name, its GPU, and their number.
    join
        ``nvswitch``, ``mesh``, ``full`` or ``pcie``.
    sharp
        Whether its NVSwitches add up and copy.
    boards, trunk
        Crossbars of NVSwitch, and links of a GPU's rate between two of them.
    links
        ``(a, b, n)``: n direct links between GPUs a and b.
    cpu, sockets
        Its CPU (None if nobody says) and their number.
    switches
        PCIe switches, over which GPUs are dealt out evenly; 0 where GPUs hang on the CPUs.
    nic, nic_bandwidth, nics
        Adapter, bytes/s and number; None and 0 for a node without.
    nics_on_cpu
        Whether adapters hang on the CPUs and not on the switches of the GPUs.
    transport
        Class of its network; empty without adapters.
    network
        ``rails`` or ``flat``.
    per_host
        GPUs of one operating system; less than ``gpus`` for NVLink across hosts.
    pcie
        Generation of the slots of its GPUs.
    p2p
        Whether GPUs reach each other over PCIe; otherwise through host memory.
    board
        Whether it stands for servers of many makers.
    source
        Where the figures come from.
    """

    name: str
    gpu: Gpu
    gpus: int
    join: str
    sharp: bool
    boards: int
    trunk: int
    links: tuple[tuple[int, int, int], ...]
    cpu: Cpu | None
    sockets: int
    switches: int
    nic: Nic | None
    nic_bandwidth: int
    nics: int
    nics_on_cpu: bool
    transport: str
    network: str
    per_host: int
    pcie: int
    p2p: bool
    board: bool
    source: str = field(repr=False)


@dataclass(frozen=True)
class Slot:
    """What shares one place of the PCIe tree.

    Attributes
    ----------
    cpu
        Number of the socket above.
    gpus, nics
        Numbers of the GPUs and adapters in it.
    switch
        Whether a PCIe switch joins them; otherwise they hang on the CPU.
    """

    cpu: int
    gpus: tuple[int, ...]
    nics: tuple[int, ...]
    switch: bool


@dataclass(frozen=True)
class Cluster:
    """Equal nodes on one network; what ``"2 x dgx-h100 @ 8x400Gb"`` says.

    Attributes
    ----------
    node, nodes
        The node, and how many.
    gpus
        GPUs used of each node, the first ones.
    nic, nic_bandwidth, nics
        Adapter (None if only its rate is known), bytes/s of one, and number a node.
    transport
        Class of the network; empty without adapters.
    notes
        What was taken for granted, in words; not part of its value.
    """

    node: Node
    nodes: int
    gpus: int
    nic: Nic | None
    nic_bandwidth: int
    nics: int
    transport: str
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def ranks(self) -> int:
        """Number of ranks, one a GPU."""
        return self.nodes * self.gpus

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The PCIe tree of one node, as far as the GPUs used and the adapters are in it.

        Adapters of a node that has them on its CPUs are in slots without a GPU.
        """
        node = self.node
        places = node.switches or node.gpus
        gpus: list[list[int]] = [[] for _ in range(places)]
        for gpu in range(self.gpus):
            gpus[gpu * places // node.gpus].append(gpu)
        used = [place for place in range(places) if gpus[place]]
        on_cpu = node.nics_on_cpu and self.nics == node.nics
        nics: dict[int, list[int]] = {place: [] for place in used}
        for nic in range(0 if on_cpu else self.nics):
            nics[used[nic * len(used) // self.nics]].append(nic)
        slots = [
            Slot(place * node.sockets // places, tuple(gpus[place]), tuple(nics[place]), node.switches > 0)
            for place in used
        ]
        if on_cpu:
            slots += [Slot(nic * node.sockets // self.nics, (), (nic,), False) for nic in range(self.nics)]
        return tuple(slots)

    def __str__(self) -> str:
        """Return the text that `collsim.hardware.cluster` reads back."""
        text = f"{self.nodes} x {self.node.name}"
        if self.gpus != self.node.gpus:
            text += f":{self.gpus}"
        if self.nics:
            text += f" @ {self.nics}x{rate_text(self.nic_bandwidth)} {self.transport}"
            if self.nic is not None and self.nic != self.node.nic:
                text += f" {self.nic.name}"
        return text


def rate_text(bandwidth: int) -> str:
    """Return the rate of an adapter as people write it.

    Examples
    --------
    >>> rate_text(50 * 10**9), rate_text(312_500_000), rate_text(1234567)
    ('400Gb', '2.5Gb', '1.234567MB/s')
    """
    bits = Fraction(8 * bandwidth, GB)
    return f"{float(bits):g}Gb" if (bits * 10).denominator == 1 else format_bandwidth(bandwidth)
