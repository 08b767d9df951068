"""What stands in an NCCL topology, as plain values: hosts with CPUs, PCI bridges, GPUs and adapters."""

from __future__ import annotations

from dataclasses import dataclass, field

from collsim.formats.xmltree import Element

__all__ = ["Cpu", "Fabric", "Gpu", "Host", "Nic", "Pci", "Port"]


@dataclass(eq=False)
class Cpu:
    """A NUMA node: its name, the rate to others of its host (bytes/s) and whether NCCL knows it."""

    element: Element
    name: str
    rate: int
    intel: bool
    known: bool


@dataclass(eq=False)
class Pci:
    """A PCI device or bridge and its link (bytes/s) up to another one or to a CPU.

    Attributes
    ----------
    key
        The bus address as a number.
    device
        Vendor, device and those of the subsystem, 16 bits each.
    links
        Addresses of bridges that are joined beside the tree.
    """

    element: Element
    busid: str
    key: int
    above: Pci | Cpu
    rate: int
    device: int = 0
    links: list[int] = field(default_factory=list)

    @property
    def cpu(self) -> Cpu:
        """The CPU at the root of its tree."""
        above = self.above
        while isinstance(above, Pci):
            above = above.above
        return above

    @property
    def rate_to_cpu(self) -> int:
        """The least rate (bytes/s) on the way to that CPU."""
        rate, above = self.rate, self.above
        while isinstance(above, Pci):
            rate, above = min(rate, above.rate), above.above
        return rate


@dataclass(eq=False)
class Fabric:
    """NVLinks or xGMI links of a GPU to one target: ``gpu`` or unknown (with its address), ``switch`` or ``cpu``.

    A switch is ``hidden`` if it has no address on the PCI of the host.
    """

    element: Element
    target: str
    key: int
    count: int
    hidden: bool


@dataclass(eq=False)
class Gpu:
    """A GPU; ``sm`` 0 and ``gcn`` empty are unknown, ``rank`` and ``dev`` -1 not given, ``bare`` without ``<gpu>``."""

    element: Element
    pci: Pci
    bare: bool
    sm: int = 0
    gcn: str = ""
    rank: int = -1
    dev: int = -1
    gdr: bool = True
    fabric: list[Fabric] = field(default_factory=list)
    c2c: int = 0


@dataclass(eq=False)
class Port:
    """A port of a network adapter: rate in bytes/s, latency of half a hop in ps."""

    element: Element
    name: str
    number: str
    dev: str
    rate: int
    latency: int
    gdr: bool
    collectives: bool


@dataclass(eq=False)
class Nic:
    """A network adapter: a device on PCI, or something virtual on a CPU."""

    element: Element
    above: Pci | Cpu
    infiniband: bool
    ports: list[Port] = field(default_factory=list)


@dataclass(eq=False)
class Host:
    """What has the same ``host_hash``."""

    cpus: list[Cpu] = field(default_factory=list)
    bridges: list[Pci] = field(default_factory=list)
    gpus: list[Gpu] = field(default_factory=list)
    nics: list[Nic] = field(default_factory=list)
    addresses: dict[int, Pci] = field(default_factory=dict)
