"""NCCL's tuning formula: the time that it predicts for each algorithm and protocol, and what it would run.

``time = latency + bytes / bandwidth``, with a latency of hops and a bandwidth of channels, both by tables, corrected at
query time. Rules: NCCL, ``src/graph/tuning.cc`` of 2.18.3, 2.22.3 and 2.30.7; which pairs are allowed: the end of
``ncclTopoTuneModel`` there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from collsim.errors import InputError, one_of, shown
from collsim.nccl.graph import TREE, Graph, Search, graph_of
from collsim.nccl.machine import PATHS, Machine
from collsim.nccl.setting import Setting
from collsim.nccl.tables import PROTOCOLS, TREE_CORRECTION, Tables, tables_of

__all__ = ["COLLECTIVES", "Cell", "Choice", "cells", "choice", "predict"]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
"""What the formula knows; send and receive, and all_to_all made of them, have none."""

HALVES = ("all_gather", "reduce_scatter")
ROOTED = ("broadcast", "reduce")
_FEW = ("Ring", "CollNetDirect", "NVLS", "PAT")  # of all_gather and reduce_scatter
US = 1e-6
GB = 1e9


@dataclass(frozen=True)
class Cell:
    """One cell of NCCL's table, as it logs it with ``NCCL_DEBUG_SUBSYS=TUNING``.

    Attributes
    ----------
    latency
        Microseconds.
    bandwidth
        GB/s of the algorithm: bytes of nccl-tests over time.
    """

    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Choice:
    """What NCCL would run, and its own prediction in seconds."""

    algorithm: str
    protocol: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.algorithm}/{self.protocol}"


def cells(where: Graph | Machine, collective: str, setting: Setting | None = None) -> dict[tuple[str, str], Cell]:
    """Return latency and bandwidth of each algorithm and protocol that NCCL allows.

    Parameters
    ----------
    where
        The machine, or what the search found for it.
    collective
        One of `COLLECTIVES`.
    setting
        Release and environment; None for the newest release known, with nothing set.

    Raises
    ------
    InputError
        If NCCL's formula does not know the collective, there is one rank only, or the setting leaves nothing.

    Examples
    --------
    >>> node = Machine(sm=90, gpus=8, nvlink=370.8, switch=True, pcie=48.0)
    >>> found = cells(node, "all_reduce")["NVLS", "Simple"]
    >>> found.latency, round(found.bandwidth, 1)
    (25.0, 272.0)
    """
    setting = setting or Setting()
    found = graph_of(where, setting) if isinstance(where, Machine) else where
    return dict(_cells(found, one_of("collective", collective, COLLECTIVES), setting))


def predict(
    where: Graph | Machine, collective: str, size: int, setting: Setting | None = None
) -> dict[tuple[str, str], float]:
    """Return the seconds that NCCL predicts for each algorithm and protocol that it allows.

    Parameters
    ----------
    where
        The machine, or what the search found for it.
    collective
        One of `COLLECTIVES`.
    size
        Bytes, as nccl-tests counts them: the whole buffer of all_gather and reduce_scatter.
    setting
        Release and environment; None for the newest release known, with nothing set.

    Raises
    ------
    InputError
        As `cells`, and if the size is negative.

    Examples
    --------
    >>> node = Machine(sm=90, gpus=8, nvlink=370.8, switch=True, pcie=48.0)
    >>> times = predict(node, "all_reduce", 2**30)
    >>> round(times["NVLS", "Simple"] * 1e6), round(times["Ring", "Simple"] * 1e6)
    (3973, 5276)
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise InputError(f"size: expected a whole number of bytes from 0, got {shown(size)}")
    setting = setting or Setting()
    found = graph_of(where, setting) if isinstance(where, Machine) else where
    table = _cells(found, one_of("collective", collective, COLLECTIVES), setting)
    return {pair: _seconds(found, collective, pair, cell, size) for pair, cell in table}


def choice(where: Graph | Machine, collective: str, size: int, setting: Setting | None = None) -> Choice:
    """Return what NCCL would run: the least predicted time, the first in NCCL's order where two are equal.

    Parameters and errors are those of `predict`.

    Examples
    --------
    >>> pair = Machine(sm=80, gpus=8, nodes=2, nvlink=240.0, switch=True, pcie=24.0, nics=8, nic=25.0)
    >>> str(choice(pair, "all_reduce", 64)), str(choice(pair, "all_gather", 2**30))
    ('Tree/LL', 'Ring/Simple')
    """
    times = predict(where, collective, size, setting)
    algorithm, protocol = min(times, key=lambda pair: times[pair])
    return Choice(algorithm, protocol, times[algorithm, protocol])


@lru_cache(maxsize=1024)
def _cells(found: Graph, collective: str, setting: Setting) -> tuple[tuple[tuple[str, str], Cell], ...]:
    machine, known = found.machine, tables_of(setting.version)
    if machine.ranks < 2:
        raise InputError("machine: expected at least 2 ranks, got 1; NCCL copies then")
    algorithms = [name for name in setting.algorithms(collective) if _possible(found, known, name, collective, setting)]
    table = []
    for algorithm in algorithms:
        for protocol in PROTOCOLS:
            if _allowed(found, known, algorithm, protocol, collective, setting):
                rate = _bandwidth(found, known, algorithm, protocol, collective)
                if rate > 0:
                    latency = _latency(found, known, algorithm, protocol, collective, setting)
                    table.append(((algorithm, protocol), Cell(latency, rate)))
    if table:
        return tuple(table)
    if known.version < (2, 30) and "Ring" not in algorithms:  # older releases keep the ring then
        return _cells(found, collective, Setting(version=setting.version, proto=setting.proto, algo="ring"))
    raise InputError(
        f"setting: NCCL_ALGO={setting.algo or ''} NCCL_PROTO={setting.proto or ''} leave no algorithm to {collective}; "
        "allow Ring and Simple"
    )


def _search(found: Graph, algorithm: str) -> Search:
    if algorithm in ("Ring", "PAT"):
        return found.ring
    if algorithm in ("Tree", "CollNetChain"):
        return found.tree
    return (found.collnet or found.ring) if algorithm == "CollNetDirect" else found.nvls


def _possible(found: Graph, known: Tables, algorithm: str, collective: str, setting: Setting) -> bool:
    """Whether the algorithm exists for the collective on this machine."""
    machine = found.machine
    several = machine.nodes > 1
    if collective in ROOTED and algorithm != "Ring":
        return False
    if collective in HALVES and algorithm not in _FEW:
        return False
    reduces = setting.collnet and found.collnet is not None
    if algorithm == "PAT":
        lone = machine.gpus == 1 and several
        return known.pat and collective in HALVES and (lone if setting.pat is None else setting.pat)
    if algorithm in ("CollNetDirect", "CollNetChain"):
        return reduces and (algorithm == "CollNetChain" or machine.switch)
    if algorithm == "NVLS":
        # Of all_gather and reduce_scatter on several nodes it is left out: that takes a plug-in with these collectives.
        return found.nvls.channels >= 2 and (not several or (reduces and collective == "all_reduce"))
    if algorithm == "NVLSTree":
        return several and found.nvls.channels >= 2 and collective == "all_reduce"
    return True


def _allowed(found: Graph, known: Tables, algorithm: str, protocol: str, collective: str, setting: Setting) -> bool:
    """Whether the protocol may be used."""
    listed = setting.protocols(collective)
    if listed is not None:
        if protocol not in listed:
            return False
    elif protocol == "LL128" and not _verified(found, known, algorithm):
        return False
    return protocol == "Simple" or algorithm in ("Tree", "Ring")


def _verified(found: Graph, known: Tables, algorithm: str) -> bool:
    """Whether stores of 128 bytes are known to arrive whole, so that LL128 is on by default."""
    search, sm = _search(found, algorithm), found.machine.sm
    if known.ll128_sm is not None:
        if sm not in known.ll128_sm:
            return False
    elif sm < 70:
        return False
    farthest = "PXN" if sm >= 90 else "PXB"
    near = PATHS.index(search.inter_path) <= PATHS.index(farthest)
    return near and PATHS.index(search.intra_path) <= PATHS.index("NVB")


def _generation(sm: int) -> int:
    return 3 if sm >= 100 else 2 if sm >= 90 else 1 if sm >= 80 else 0


def _bandwidth(found: Graph, known: Tables, algorithm: str, protocol: str, collective: str) -> float:
    """Return GB/s of the algorithm; 0 where it does not work."""
    machine, search = found.machine, _search(found, algorithm)
    nodes, column, row = machine.nodes, min(machine.nodes, 3) - 1, _generation(machine.sm)
    ll = known.ll[row if nodes == 1 else 1 if machine.cpu == "amd" else 0][column]
    steps = _steps(collective, machine.ranks)
    channels = search.channels
    bus = channels * (search.intra if nodes <= 2 or algorithm.startswith("CollNet") else search.inter)
    if algorithm in ("NVLS", "NVLSTree"):
        bus = channels * _nvls_rate(found, known, algorithm, collective)
        if collective in HALVES:
            return bus if known.nvls_by_rank else bus * 5 / 6
        return bus * (machine.ranks / steps if known.nvls_by_rank else 5 / 6)
    if algorithm == "Ring":
        if protocol == "LL":
            common = nodes > 1 or collective in ("all_reduce", "reduce")
            bus = min(ll, bus * known.ring_ll[0 if common else 1])
        elif protocol == "LL128":
            part = known.lone_ll128 if machine.gpus < 2 else 0.92
            bus = min(bus * part, channels * known.ring_ll128[row][column])
        return bus * machine.ranks / steps
    if algorithm == "PAT":
        return bus * 0.75
    if algorithm == "CollNetDirect":
        if collective in HALVES:
            heads = machine.gpus <= search.channels  # needs a NIC a GPU
            return machine.gpus * min(search.intra, search.inter * 0.9) if heads else 0.0
        factor = machine.gpus / channels
        bus /= factor - (factor - 1) / 2
        return bus * (0.85 if machine.sm >= 90 else 1) / 2
    if algorithm == "Tree":
        bus = min(bus * 0.92, channels * known.tree[row][column])
        if protocol == "LL":
            bus = min(bus / 3.8, ll)
        elif protocol == "LL128":
            bus = min(bus * (7 / 9 if nodes == 1 else 120 / 128), channels * known.tree_ll128[row][column])
        bus *= 0.85 if search.pattern == TREE else 1
    return bus / 2


def _nvls_rate(found: Graph, known: Tables, algorithm: str, collective: str) -> float:
    """Return GB/s of a channel of NVLS."""
    machine, search = found.machine, found.nvls
    row, column = _generation(machine.sm), min(machine.nodes, 3) - 1
    if known.nvls_efficiency is None:
        halved = algorithm == "NVLSTree" and machine.nodes > 2
        return min(search.intra, search.inter / 2 if halved else search.inter)
    intra = search.intra * known.nvls_efficiency[row] * (search.channels - 1) / search.channels
    intra *= 2 if collective == "all_reduce" else (machine.gpus - 1) / machine.gpus
    if algorithm == "NVLS":
        return min(intra, search.inter)
    limit = known.nvls_tree[row][column] or math.inf
    return min(intra, search.inter * (2 if machine.nodes == 2 else 1), limit)


def _steps(collective: str, ranks: int) -> int:
    return 2 * (ranks - 1) if collective == "all_reduce" else ranks - 1 if collective in HALVES else ranks


def _latency(found: Graph, known: Tables, algorithm: str, protocol: str, collective: str, setting: Setting) -> float:
    """Return microseconds."""
    machine, search = found.machine, _search(found, algorithm)
    nodes, ranks, gpus, column = machine.nodes, machine.ranks, machine.gpus, PROTOCOLS.index(protocol)
    kind = "nvlink" if search.intra_path == "NVL" else "pci"
    base, intra = known.base[algorithm][column], known.hop[kind][algorithm][column]
    outside = "Tree" if known.lone_tree_hop and gpus == 1 else algorithm
    inter = known.hop["net"][outside][column] + machine.nic_latency * (2 if protocol == "Simple" else 1)
    depth = int(math.log2(nodes))
    if algorithm == "Ring":
        steps = _steps(collective, ranks)
        if collective in ROOTED:
            hop = known.hop[kind if nodes == 1 else "net"]
            if search.same:
                return base + hop["Ring"][column]
            return base + steps * hop["Tree" if protocol == "Simple" else "Ring"][column]
        if nodes == 1:
            return base + steps * intra
        overhead = setting.net_overhead if setting.net_overhead is not None else 2.0 if machine.cpu == "amd" else 1.0
        intra = max(intra, overhead * (3 if protocol == "Simple" else 1))
        net = nodes - 1 if collective != "all_reduce" else 2 * (nodes - known.net_steps)
        return base + (steps - net) * intra + net * inter
    if algorithm == "Tree":
        return base + 2 * ((gpus - 1) * intra + depth * inter)
    if algorithm == "CollNetDirect":
        return base + 2 * (min(1, gpus - 1) * intra + (gpus - 1) * 0.4) + inter
    if algorithm == "CollNetChain":
        return base + 2 * (gpus - 1) * intra + inter
    if algorithm == "NVLS":
        return base + intra + (inter if nodes > 1 else 0)
    if algorithm == "NVLSTree":
        return base + intra + 2 * depth * inter
    return base + depth * inter / 3.5 + ranks * 2.8  # PAT


def _seconds(found: Graph, collective: str, pair: tuple[str, str], cell: Cell, size: int) -> float:
    """Return the time of a size, with the corrections of the moment of choosing."""
    machine, (algorithm, protocol) = found.machine, pair
    rate, latency = cell.bandwidth, cell.latency
    power = (size >> 6).bit_length() - 1
    last = 24 if algorithm == "NVLSTree" else 23
    blackwell = machine.sm >= 100 and machine.cpu in ("intel", "amd") and found.version >= (2, 30)
    corrected = algorithm == "Tree" or (algorithm == "NVLSTree" and blackwell)
    if corrected and collective == "all_reduce" and 0 <= power < last:
        rate *= TREE_CORRECTION[protocol][power]
    plateau = algorithm == "Ring" and protocol == "Simple" and collective == "all_reduce" and machine.nodes > 1
    if plateau and size // (found.channels * machine.ranks) >= 64:
        latency *= 1.9 if machine.sm < 80 else 1.4
    return latency * US + size / (rate * GB)
