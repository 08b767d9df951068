"""What NCCL sees of a cluster of the hardware catalogue."""

from __future__ import annotations

from collsim.errors import InputError
from collsim.hardware import Cluster
from collsim.nccl.machine import CPUS, Machine

__all__ = ["machine_of"]

GB = 1e9
LANES = 12.0
"""GB/s that NCCL takes for 16 lanes of PCIe 3; twice that for each generation after it (topo.cc)."""
HOST = ("tcp", "slingshot", "tcpx", "efa1")
"""Transports whose adapters reach GPU memory through the host bridge or the host's memory."""


def machine_of(cluster: Cluster) -> Machine:
    """Return a cluster as NCCL's graph search looks at it.

    EFA: the plug-in joins the adapters of a GPU to one device (aws-ofi-nccl, its RDMA protocol).

    Raises
    ------
    InputError
        If its GPUs are not of NVIDIA: RCCL has tables of its own.

    Examples
    --------
    >>> from collsim.hardware import cluster
    >>> found = machine_of(cluster("2 x dgx-h100"))
    >>> found.ranks, found.nvlink, found.nics, found.nic
    (16, 370.8, 8, 50.0)
    >>> machine_of(cluster("mi300x-8"))
    Traceback (most recent call last):
    collsim.errors.InputError: mi300x-8: expected GPUs of NVIDIA, got mi300x; RCCL has tables of its own
    """
    node, gpu = cluster.node, cluster.node.gpu
    if gpu.vendor != "nvidia":
        raise InputError(f"{node.name}: expected GPUs of NVIDIA, got {gpu.name}; RCCL has tables of its own")
    switched = node.join == "nvswitch" and cluster.gpus > 1
    slots = [slot for slot in cluster.slots if slot.gpus]
    nics, rate = (cluster.nics, cluster.nic_bandwidth / GB) if cluster.nodes > 1 else (0, 0.0)
    if cluster.transport.startswith("efa") and nics > cluster.gpus > 1 and nics % cluster.gpus == 0:
        nics, rate = cluster.gpus, rate * nics / cluster.gpus
    vendor = "arm" if node.cpu and node.cpu.arch == "arm64" else node.cpu.vendor if node.cpu else "intel"
    return Machine(
        sm=gpu.sm,
        gpus=cluster.gpus,
        nodes=cluster.nodes,
        nvlink=gpu.links * gpu.link_effective / GB if switched else 0.0,
        switch=switched,
        mesh=None if switched or cluster.gpus == 1 else _mesh(cluster),
        link=gpu.link_effective / GB or 20.0,
        pcie=LANES * 2 ** (node.pcie - 3),
        path="PIX" if len(slots) == 1 and slots[0].switch else "PHB",
        socket=node.cpu.socket_bandwidth / GB if node.cpu and node.cpu.socket_bandwidth else 10.0,
        cpu=vendor if vendor in CPUS else "other",
        nics=nics,
        nic=rate,
        nic_path="PHB" if cluster.transport in HOST else "PIX",
        nic_latency=cluster.nic.latency / 1e6 if cluster.nic is not None and nics else 0.0,
        transport=cluster.transport or "none",
        multicast=node.sharp,
    )


def _mesh(cluster: Cluster) -> tuple[tuple[int, ...], ...] | None:
    """Return the direct links of each pair of the GPUs used, None if there are none."""
    used = range(cluster.gpus)
    links = {(a, b): count for a, b, count in cluster.node.links if a in used and b in used}
    if not links:
        return None
    return tuple(tuple(links.get((min(a, b), max(a, b)), 0) for b in used) for a in used)
