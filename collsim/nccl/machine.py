"""The few numbers of a machine that NCCL's graph search looks at."""

from __future__ import annotations

import math
from dataclasses import dataclass

from collsim.errors import InputError, one_of, shown

__all__ = ["CPUS", "PATHS", "Machine"]

PATHS = ("LOC", "NVL", "NVB", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
"""NCCL's kinds of path, the nearest first (``src/graph/topo.h``)."""

CPUS = ("intel", "amd", "arm", "power", "other")
MOST = 100_000
_RATES = (("nvlink", 0.0), ("link", 0.1), ("pcie", 0.1), ("socket", 0.1), ("nic", 0.0), ("nic_latency", 0.0))


@dataclass(frozen=True)
class Machine:
    """A cluster of equal nodes, as NCCL describes it. Rates are NCCL's, in GB/s (10**9 bytes/s) and one direction.

    Parameters
    ----------
    sm
        Compute capability of the GPUs, 90 for 9.0.
    gpus
        GPUs of a node that take part. One NVLink domain over several hosts is one node.
    nodes
        Nodes.
    nvlink
        GB/s of all NVLinks of a GPU together (20 a link for V100 and A100, 20.6 for H100, 40.1 for B200); 0 for none.
    switch
        Whether the NVLinks lead to NVSwitches.
    mesh
        NVLinks of each pair of GPUs where there is no switch: a square of whole numbers, the GPUs that take part only.
    link
        GB/s of one NVLink of the mesh.
    pcie
        GB/s of the PCIe link of a GPU: 12 for generation 3 with 16 lanes, 24 for 4, 48 for 5.
    path
        How GPUs reach each other without NVLink: PIX, PXB, PHB or SYS.
    socket
        GB/s between the CPUs of a node, which a SYS path crosses.
    cpu
        Vendor: one of `CPUS`.
    nics
        Network devices of a node.
    nic
        GB/s of each: rated Mb/s over 8000.
    nic_path
        How a GPU reaches its NIC: PIX or PXB where RDMA reads its memory, PHB or SYS through the host.
    nic_latency
        Microseconds that the network plug-in declares (0 for NCCL's own InfiniBand and sockets).
    transport
        Name of the network, for whoever reads it.
    sharp
        Whether the network reduces (CollNet).
    multicast
        Whether the NVSwitches multicast and reduce (NVLS); None for: from Hopper on.

    Raises
    ------
    InputError
        If a number is out of range, a word unknown, the mesh not a square of the GPUs, or nodes have no network.

    Examples
    --------
    >>> Machine(sm=80, gpus=8, nodes=2, nvlink=240.0, switch=True, pcie=24.0, nics=8, nic=25.0).ranks
    16
    >>> Machine(sm=80, gpus=8, nodes=2)
    Traceback (most recent call last):
    collsim.errors.InputError: nics: expected at least 1 for 2 nodes, got 0; give the NICs of a node
    """

    sm: int
    gpus: int
    nodes: int = 1
    nvlink: float = 0.0
    switch: bool = False
    mesh: tuple[tuple[int, ...], ...] | None = None
    link: float = 20.0
    pcie: float = 12.0
    path: str = "PHB"
    socket: float = 10.0
    cpu: str = "intel"
    nics: int = 0
    nic: float = 0.0
    nic_path: str = "PIX"
    nic_latency: float = 0.0
    transport: str = "ib"
    sharp: bool = False
    multicast: bool | None = None

    def __post_init__(self) -> None:
        for name, least in (("sm", 30), ("gpus", 1), ("nodes", 1), ("nics", 0)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= MOST:
                raise InputError(f"{name}: expected a whole number from {least} to {MOST}, got {shown(value)}")
        for name, lowest in _RATES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not lowest <= value < math.inf:
                raise InputError(f"{name}: expected a number of at least {lowest:g}, got {shown(value)}")
        one_of("cpu", self.cpu, CPUS)
        one_of("path", self.path, PATHS)
        one_of("nic_path", self.nic_path, PATHS)
        if self.nodes > 1 and not self.nics:
            raise InputError(f"nics: expected at least 1 for {self.nodes} nodes, got 0; give the NICs of a node")
        if self.nodes > 1 and not self.nic:
            raise InputError("nic: expected the GB/s of a NIC, got 0; it is the rated Mb/s over 8000")
        if self.switch and not self.nvlink:
            raise InputError("nvlink: expected the GB/s of a GPU's NVLinks to the switch, got 0")
        if self.mesh is not None and (
            len(self.mesh) != self.gpus
            or any(len(row) != self.gpus for row in self.mesh)
            or any(type(links) is not int or not 0 <= links <= 64 for row in self.mesh for links in row)
        ):
            raise InputError(
                f"mesh: expected {self.gpus} rows of {self.gpus} numbers of NVLinks, got {shown(self.mesh)}"
            )

    @property
    def ranks(self) -> int:
        """GPUs of the whole machine."""
        return self.gpus * self.nodes

    @property
    def reduces(self) -> bool:
        """Whether the NVSwitches can do NVLS."""
        return self.switch and (self.sm >= 90 if self.multicast is None else self.multicast)
