"""Hosts to one machine: copies of them, the network between them, and the order of the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import TopologyError
from collsim.formats.nccl.wiring import Link, Wired
from collsim.formats.xmltree import Element
from collsim.hardware.hops import NVLINK, PORT
from collsim.topology.builder import assemble
from collsim.topology.graph import Topology
from collsim.topology.names import MAX_LINKS, MAX_NODES, MAX_ROUTES, member_name

__all__ = ["join_hosts"]

Array = npt.NDArray[Any]

MOST_PAIRS = 2**16
MOST_GPUS = 128
"""With more pairs of GPUs in hosts, or GPUs in a host, their routes are not looked at."""


@dataclass(frozen=True)
class _Table:
    """Links as columns: ends, rate, latency, kind, group."""

    columns: tuple[Array, ...]

    def __len__(self) -> int:
        return len(self.columns[0])


def join_hosts(
    root: Element,
    name: str,
    hosts: Sequence[Wired],
    places: Sequence[tuple[int, int]],
    nodes: int,
    *,
    sharp: bool,
    description: str,
    source: str,
) -> Topology:
    """Return the topology of some hosts.

    Parameters
    ----------
    root
        The file's root, for messages.
    hosts
        As wired; their links to an NVSwitch that they share, and to the network, are made here.
    places
        (host, GPU) of each rank.
    nodes
        Copies of the one host.
    sharp
        Whether the shared NVSwitch adds up and copies.

    Raises
    ------
    TopologyError
        Too many nodes or links.
    """
    wholes = list(range(len(hosts))) * nodes
    networked = len(wholes) > 1 and any(host.ports for host in hosts)
    shared = any(host.hidden for host in hosts)
    n_nodes = sum(len(hosts[h].nodes) for h in wholes) + networked + shared
    counts = [sum(link.count for link in host.links) for host in hosts]
    n_links = sum(counts[h] + 2 * len(hosts[h].ports) * networked + 2 * len(hosts[h].hidden) for h in wholes)
    for what, count, most in (("nodes", n_nodes, MAX_NODES), ("links", n_links, MAX_LINKS)):
        if count > most:
            root.fail(f"expected at most {most:,} {what} in all, got {count:,}; give fewer nodes")
    kinds = tuple(dict.fromkeys(kind for host in hosts for kind in _kinds(host, networked))) or ("",)
    tables = [_table(host.links, kinds) for host in hosts]
    starts = np.cumsum([0, *(len(hosts[h].nodes) for h in wholes)])
    firsts = np.cumsum([0, *(len(tables[h]) for h in wholes)])
    end = int(starts[-1])
    devices = [node for h in wholes for node in hosts[h].nodes]
    names = [
        member_name("node", number, node[0]) if len(wholes) > 1 else node[0]
        for number, h in enumerate(wholes)
        for node in hosts[h].nodes
    ]
    local, places_of_links = _in_groups(
        [_moved(tables[h], int(start)) for h, start in zip(wholes, starts, strict=False)]
    )
    parts = [local]
    if shared:
        rates = [(h, gpu, rate) for h in range(len(hosts)) for gpu, rate in hosts[h].hidden.items()]
        links = (_both(int(starts[h]) + gpu, end, rate, NVLINK // 2, "nvlink") for h, gpu, rate in rates)
        parts.append(_table([link for pair in links for link in pair], kinds))
        names.append("nvswitch")
        devices.append(("", "switch", True, sharp))
    if networked:
        ports = [(h, port) for h, host in enumerate(hosts) for port in host.ports]
        parts.append(_table([link for port in ports for link in _cables(port, starts, nodes, len(names))], kinds))
        names.append("network")
        everywhere = all(port[4] for _, port in ports)  # they say coll: SHARP in the switches
        devices.append(("", "switch", True, everywhere))
    columns = [np.concatenate(column) for column in zip(*(part.columns for part in parts), strict=True)]
    flags = np.array([node[3] for node in devices], dtype=bool)
    order = places if nodes == 1 else [(number, gpu) for number in range(nodes) for _, gpu in places]
    topology = assemble(
        name,
        names,
        [node[1] for node in devices],
        *columns[:4],
        link_kinds=kinds,
        link_kind_codes=columns[4],
        ranks=np.array([starts[number] + gpu for number, gpu in order], dtype=np.int64),
        structure=_structure(nodes, len(places)),
        description=description,
        source=source,
        devices={
            "reduces": flags,
            "multicasts": flags,
            "forwards": np.array([node[2] for node in devices], dtype=bool),
        },
    )
    if not networked:
        return topology
    return _stay_inside(topology, wholes, hosts, tables, kinds, starts, np.split(places_of_links, firsts[1:-1]))


def _structure(nodes: int, gpus: int) -> dict[str, Any]:
    """Return what a topology file of copies says of itself."""
    return {"kind": "modules", "module": "node", "count": nodes, "ranks_per_module": gpus} if nodes > 1 else {}


def _in_groups(copies: Sequence[_Table]) -> tuple[_Table, Array]:
    """Return the links of all copies of a host, group after group, and the new place of each."""
    columns = tuple(np.concatenate(column) for column in zip(*(copy.columns for copy in copies), strict=True))
    order = np.argsort(columns[5], kind="stable")
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return _Table(tuple(column[order] for column in columns)), places


def _cables(port: tuple[int, tuple[int, int, int, str, bool]], starts: Array, nodes: int, network: int) -> list[Link]:
    """Return the links of a port of a host, or of all its copies, to the network."""
    h, (node, rate, more, kind, _) = port
    starts = starts[:nodes] if nodes > 1 else starts[h : h + 1]
    return [link for at in starts.tolist() for link in _both(at + node, network, rate, PORT + more, kind)]


def _kinds(host: Wired, networked: bool) -> list[str]:
    kinds = [link.kind for link in host.links] + ["nvlink"] * bool(host.hidden)
    return kinds + [port[3] for port in host.ports] * networked


def _both(a: int, b: int, rate: int, latency: int, kind: str) -> tuple[Link, Link]:
    return Link(a, b, rate, latency, kind), Link(b, a, rate, latency, kind)


def _table(links: Sequence[Link], kinds: tuple[str, ...]) -> _Table:
    codes = {kind: code for code, kind in enumerate(kinds)}
    rows = [(link.src, link.dst, link.rate, link.latency, codes[link.kind], link.group) for link in links]
    repeats = np.array([link.count for link in links], dtype=np.int64)
    rowed = np.array(rows, dtype=np.int64).reshape(-1, 6).repeat(repeats, axis=0)
    return _Table(tuple(rowed.T))


def _moved(table: _Table, start: int) -> _Table:
    src, dst, *rest = table.columns
    return _Table((src + start, dst + start, *rest))


def _stay_inside(
    topology: Topology,
    wholes: Sequence[int],
    hosts: Sequence[Wired],
    tables: Sequence[_Table],
    kinds: tuple[str, ...],
    starts: Array,
    places: Sequence[Array],
) -> Topology:
    """Give the routes inside a host that would be no shorter than over the network, where PCIe trees are deep."""
    pairs = [_pairs(host) for host in hosts]
    if not sum(map(len, pairs)) or sum(map(len, pairs)) > MOST_PAIRS:
        return topology
    # wholes begins with each host once
    src, dst = np.concatenate([found + int(start) for found, start in zip(pairs, starts, strict=False)]).T
    ptr, links = topology.route_nodes(src, dst)
    passes = topology.link_dst[links] == topology.n_nodes - 1  # the network is the last node
    stray = np.add.reduceat(passes, ptr[:-1]) > 0
    given: dict[tuple[int, int], tuple[int, ...]] = {}
    owner = np.repeat(np.arange(len(hosts)), [len(found) for found in pairs])
    inside: dict[int, list[tuple[int, int, Array]]] = {}
    for h in np.unique(owner[stray]).tolist():
        inside[h] = _inside(hosts[h], tables[h], kinds, pairs[h][stray[owner == h]])
    for number, h in enumerate(wholes):
        for a, b, way in inside.get(h, ()):
            given[int(starts[number]) + a, int(starts[number]) + b] = tuple(places[number][way].tolist())
        if len(given) > MAX_ROUTES:  # no more than a topology file could say
            raise TopologyError(
                f"expected at most {MAX_ROUTES:,} routes of GPUs that would be no farther from each other over the "
                f"network than inside their host, got more; give fewer nodes, at most {max(1, number)}"
            )
    return replace(topology, given_routes=given) if given else topology


def _pairs(host: Wired) -> Array:
    """Return the pairs of GPUs of a host that no NVSwitch and no direct link joins."""
    gpus = [node for node, (_, kind, _, _) in enumerate(host.nodes) if kind == "gpu"]
    if len(gpus) > MOST_GPUS or sum(host.switched.values()) == len(gpus):
        return np.zeros((0, 2), dtype=np.int64)
    joined = {(link.src, link.dst) for link in host.links}
    found = [(a, b) for a in gpus for b in gpus if a != b and (a, b) not in joined]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _inside(host: Wired, table: _Table, kinds: tuple[str, ...], pairs: Array) -> list[tuple[int, int, Array]]:
    """Return the routes of pairs of GPUs in a host that is alone."""
    alone = assemble(
        "host",
        [node[0] for node in host.nodes],
        [node[1] for node in host.nodes],
        *table.columns[:4],
        link_kinds=kinds,
        devices={"forwards": np.array([node[2] for node in host.nodes], dtype=bool)},
    )
    ptr, links = alone.route_nodes(*pairs.T)
    ends = zip(pairs.tolist(), ptr[:-1].tolist(), ptr[1:].tolist(), strict=True)
    return [(a, b, links[first:last]) for (a, b), first, last in ends]
