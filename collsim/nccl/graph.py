"""What NCCL's graph search finds for a machine: channels, GB/s a channel and kinds of path, for each algorithm.

NCCL searches paths link by link. Machines here are regular (NVSwitches, a mesh of NVLinks, or PCIe, and NICs dealt out
evenly), so that the search comes down to counting: at each speed of a list, how many channels fit; the most channels
times speed wins, and the search stops at what uses the whole link. Channels of a fast link are doubled, and once more
when the communicator is made. Rules: NCCL, ``src/graph/search.cc``, ``connect.cc`` and ``src/transport/nvls.cc``.

Left out: paths over the NVLinks of a third GPU (NVB), and nodes in which GPUs or NICs differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from collsim.nccl.machine import PATHS, Machine
from collsim.nccl.packing import cycles
from collsim.nccl.setting import Setting
from collsim.nccl.tables import Tables, tables_of

__all__ = ["Graph", "Search", "graph_of"]

TREE, BALANCED = "tree", "balanced"
NVLS_SINCE = (2, 17)
"""The release that brought NVLS (release notes of NCCL 2.17.1)."""
EPSILON = 1e-6
"""Rates are sums of decimals such as 20.6; NCCL rounds to thousandths."""


@dataclass(frozen=True)
class Search:
    """What was found for one algorithm.

    Attributes
    ----------
    pattern
        ``ring``, ``nvls``, ``direct``, and for trees which GPUs of a node use the NIC: ``tree`` (one for all),
        ``balanced`` (two share it).
    channels
        Channels found; 0 if it does not fit.
    intra, inter
        GB/s of a channel inside a node and between nodes.
    intra_path, inter_path
        NCCL's kinds of path, NVL to SYS; LOC for one GPU.
    same
        Whether all channels take the same way.
    """

    pattern: str
    channels: int
    intra: float
    inter: float
    intra_path: str
    inter_path: str
    same: bool = True


@dataclass(frozen=True)
class Graph:
    """What NCCL's tuning formula needs of a machine.

    Attributes
    ----------
    machine
        The machine it is for: nodes, GPUs, NICs, CPU, compute capability.
    ring, tree, nvls
        Results of the search.
    collnet
        Heads of CollNet, if the network reduces.
    channels
        Channels of the communicator for rings and trees, as logs count them (coll channels).
    nvls_channels
        Channels of NVLS (nvls channels); 0 without.
    version
        Release whose tables were used.
    """

    machine: Machine
    ring: Search
    tree: Search
    nvls: Search
    collnet: Search | None
    channels: int
    nvls_channels: int
    version: tuple[int, int]


def graph_of(machine: Machine, setting: Setting | None = None) -> Graph:
    """Return what NCCL's search finds for a machine.

    Parameters
    ----------
    machine
        The machine.
    setting
        Release and limits to channels; None for the newest release known, without limits.

    Examples
    --------
    >>> found = graph_of(Machine(sm=80, gpus=8, nvlink=240.0, switch=True, pcie=24.0))
    >>> found.ring.channels, found.ring.intra, found.channels
    (12, 20.0, 24)
    >>> found = graph_of(Machine(sm=90, gpus=8, nodes=2, nvlink=370.8, switch=True, pcie=48.0, nics=8, nic=50.0))
    >>> found.ring.channels, found.ring.inter, found.tree.pattern, found.nvls.channels, found.nvls_channels
    (8, 48.0, 'tree', 8, 16)
    """
    return _graph(machine, setting or Setting())


@lru_cache(maxsize=256)
def _graph(machine: Machine, setting: Setting) -> Graph:
    known = tables_of(setting.version)
    ring = _ring(machine, known)
    tree = _tree(machine, known, ring)
    nvls = _nvls(machine, known, setting)
    channels = min(known.channels, 2 * min(ring.channels, tree.channels))
    if machine.sm >= 90 and machine.nodes > 1 and ring.intra > 45 and channels < 16:
        channels *= 2
    channels = min(channels, setting.max_channels or known.channels)
    return Graph(
        machine=machine,
        ring=ring,
        tree=tree,
        nvls=nvls,
        collnet=_collnet(machine, known),
        channels=max(channels, min(setting.min_channels, known.channels)),
        nvls_channels=_nvls_channels(machine, known, setting, nvls),
        version=known.version,
    )


def _over_nvlink(machine: Machine) -> bool:
    """Whether all GPUs of a node can be visited over NVLinks alone."""
    if machine.gpus == 1:
        return False
    return machine.switch or (machine.mesh is not None and cycles(machine.mesh) > 0)


def _total(machine: Machine) -> float:
    """GB/s of a GPU that the search tries to fill."""
    if machine.switch:
        return max(machine.pcie, machine.nvlink)
    if machine.mesh is not None:
        return max(machine.pcie, machine.link * max(sum(row) for row in machine.mesh))
    return machine.pcie


def _direct(machine: Machine) -> float:
    """GB/s of the best path between two GPUs of a node."""
    if machine.switch:
        return machine.nvlink
    if machine.mesh is not None and _over_nvlink(machine):
        return machine.link * max(max(row) for row in machine.mesh)
    return min(machine.pcie, machine.socket) if machine.path == "SYS" else machine.pcie


def _fastest(machine: Machine) -> float:
    """GB/s above which no speed is tried."""
    return _direct(machine) if machine.nodes == 1 else min(machine.nic, machine.pcie)


def _inside(machine: Machine, speed: float, hops: int) -> int:
    """Return how many channels of a speed fit into a node if each makes so many hops between its GPUs."""
    if machine.gpus == 1:
        return 1_000_000
    if machine.switch:
        return int(machine.nvlink * machine.gpus / (hops * speed) + EPSILON)
    if machine.mesh is not None and _over_nvlink(machine):
        return _on_mesh(machine, speed)
    overhead = 6 / 5 if machine.cpu == "intel" and machine.path == "PHB" else 1  # Intel's root complex, topo.h
    return int(_direct(machine) / (speed * overhead) + EPSILON)


def _on_mesh(machine: Machine, speed: float) -> int:
    assert machine.mesh is not None
    scale = tuple(tuple(int(links * machine.link / speed + EPSILON) for links in row) for row in machine.mesh)
    return cycles(scale)


def _outside(machine: Machine, speed: float) -> int:
    """Return how many channels of a speed fit through the NICs of a node."""
    if machine.nodes == 1:
        return 1_000_000
    each = min(int(machine.nic / int(max(speed, 1)) + EPSILON), int(machine.pcie / speed + EPSILON))
    if machine.nic + EPSILON < speed:
        return 0
    return min(machine.nics * each, machine.gpus * int(machine.pcie / speed + EPSILON))


def _paths(machine: Machine) -> tuple[str, str]:
    intra = "LOC" if machine.gpus == 1 else "NVL" if _over_nvlink(machine) else machine.path
    return intra, machine.nic_path if machine.nodes > 1 else "PIX"


def _ring(machine: Machine, known: Tables) -> Search:
    speeds = [speed for speed in known.speeds(machine.sm, machine.nodes) if speed <= _fastest(machine) + EPSILON]
    hops = machine.gpus if machine.nodes == 1 else max(1, machine.gpus - 1)
    most = known.channels // 2
    intra_path, inter_path = _paths(machine)

    def fit(speed: float) -> int:
        return min(most, _inside(machine, speed, hops), _outside(machine, speed))

    channels, best = 0, 0.0
    for speed in speeds:
        if channels and speed / best <= 0.49:
            break
        found = fit(speed)
        if found * speed > channels * best + EPSILON:
            channels, best = found, speed
        if channels == most or (channels and channels * best >= _total(machine) - EPSILON):
            break
    if not channels:  # NCCL falls back to the order of the GPUs and says so
        return Search("ring", 1, 0.1, 0.1, "SYS", "SYS")
    channels, best = _doubled(machine, channels, best, most)
    best = next((speed for speed in speeds if speed > best and fit(speed) >= channels), best)
    return Search("ring", channels, best, best, intra_path, inter_path, same=machine.mesh is None)


def _doubled(machine: Machine, channels: int, speed: float, most: int) -> tuple[int, float]:
    """Return channels and speed after NCCL has split channels that are fast enough for two."""
    if speed < 25 or (machine.sm > 80 and speed < 50 and channels > 4):
        return channels, speed
    doubled = min(2 * channels, most)
    return doubled, speed / -(-doubled // channels)


def _tree(machine: Machine, known: Tables, ring: Search) -> Search:
    """Return the tree, which has the channels of the ring, and inside a node up to twice the speed of outside."""
    hops = max(1, machine.gpus - 1)
    speeds = [speed for speed in known.speeds(machine.sm, machine.nodes) if speed <= _fastest(machine) + EPSILON]

    def inside(speed: float) -> bool:
        return speed <= _direct(machine) + EPSILON and _inside(machine, speed, hops) >= ring.channels

    fitting = (speed for speed in speeds if inside(speed) and _outside(machine, speed) >= ring.channels)
    inter = next(fitting, ring.inter)
    intra = inter
    if machine.gpus > 1:
        for speed in sorted(speed for speed in known.speeds(machine.sm, machine.nodes) if speed > inter):
            if intra >= 2 * inter or not inside(speed):
                break
            intra = speed
    intra_path, inter_path = (ring.intra_path, ring.inter_path)
    if machine.nodes > 1 and machine.gpus > 1 and not _shared_nic(machine) and machine.sm < 90:
        inter_path = max(inter_path, "PXN" if machine.switch else "PHB", key=PATHS.index)
    return Search(_tree_pattern(machine), ring.channels, intra, inter, intra_path, inter_path, same=ring.same)


def _shared_nic(machine: Machine) -> bool:
    """Whether two GPUs are equally near to each NIC."""
    return 2 * machine.nics <= machine.gpus or machine.nic_path in ("PHB", "SYS")


def _tree_pattern(machine: Machine) -> str:
    if machine.gpus == 1:
        return TREE
    if machine.nodes == 1 or machine.sm < 90:
        return BALANCED
    return BALANCED if _shared_nic(machine) else TREE  # Hopper takes the simpler tree before a longer path


def _nvls(machine: Machine, known: Tables, setting: Setting) -> Search:
    intra_path, inter_path = _paths(machine)
    none = Search("nvls", 0, 0.0, 0.0, intra_path, inter_path, same=False)
    if not (setting.nvls and machine.reduces) or machine.gpus < known.nvls_gpus or setting.version < NVLS_SINCE:
        return none
    speeds = [speed for speed in known.speeds(machine.sm, machine.nodes) if speed <= _fastest(machine) + EPSILON]
    heads = min(known.nvls_heads, machine.gpus)
    if machine.nodes == 1:  # each head pulls from all GPUs, and twice over its own link
        speed = next((speed for speed in speeds if (heads + 1) * speed <= machine.nvlink + EPSILON), 0.0)
        outside = _raised(known.speeds(machine.sm, 1), speed)  # no NIC says no
        return Search("nvls", heads, speed, outside, intra_path, inter_path, same=False) if speed else none
    heads = min(heads, machine.nics)
    channels, best = 0, 0.0
    for speed in speeds:
        if channels == heads or (channels and speed / best <= 0.49):
            break
        found = min(heads, int(machine.nvlink / speed + EPSILON) - 1)
        if found > channels or found * speed > channels * best + EPSILON:
            channels, best = max(found, 0), speed
    if not channels:
        return none
    return Search("nvls", channels, best, _raised(speeds, best), intra_path, inter_path, same=False)


def _raised(speeds: Iterable[float], speed: float) -> float:
    """Return the speed to which NCCL raises the outer side of NVLS: step by step, until it is twice the inner one."""
    found = speed
    for faster in sorted(other for other in speeds if other > speed):
        if found >= 2 * speed:
            break
        found = faster
    return found


def _nvls_channels(machine: Machine, known: Tables, setting: Setting, nvls: Search) -> int:
    if not nvls.channels:
        return 0
    channels = 16
    if machine.sm >= 100 and known.version >= (2, 30):
        single = machine.nodes == 1 or (machine.nic >= 48 and machine.nodes > 2 and machine.gpus <= 8)
        channels = 24 if single else 32
    return max(setting.min_channels, min(setting.max_channels or channels, channels))


def _collnet(machine: Machine, known: Tables) -> Search | None:
    if not machine.sharp or machine.nodes == 1:
        return None
    speeds = known.speeds(machine.sm, machine.nodes)
    speed = next((speed for speed in speeds if speed <= _fastest(machine) + EPSILON), speeds[-1])
    intra_path, inter_path = _paths(machine)
    return Search("direct", min(machine.gpus, machine.nics, 8), speed, speed, intra_path, inter_path)
