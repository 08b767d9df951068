"""Making topologies: `TopologyBuilder` for single nodes and links, `assemble` for whole arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import TopologyError, did_you_mean
from collsim.topology.graph import Topology
from collsim.topology.names import MAX_LINKS
from collsim.units import INT64_MAX

__all__ = ["TopologyBuilder", "assemble"]

Array = npt.NDArray[Any]


class TopologyBuilder:
    """Collects nodes and links; `build` checks them and returns the `Topology`.

    Values are integers already: bytes/s and picoseconds (`collsim.units` reads texts).

    Examples
    --------
    >>> builder = TopologyBuilder("pair")
    >>> builder.add_node("gpu0")
    >>> builder.add_node("gpu1", reduce_bandwidth=10**12)
    >>> builder.add_duplex("gpu0", "gpu1", 25 * 10**9, 700_000, kind="nvlink", count=2)
    >>> builder.build()
    <Topology 'pair': 2 ranks, 2 nodes, 4 links of 25GB/s>
    """

    def __init__(self, name: str, description: str = "", source: str = "") -> None:
        self.name, self.description, self.source = name, description, source
        self._nodes: list[str] = []
        self._kinds: list[str] = []
        self._devices: dict[str, list[int]] = {
            key: []
            for key in ("send_overhead", "reduce_bandwidth", "channel_bandwidth", "reduces", "multicasts", "forwards")
        }
        self._ends: list[str] = []
        self._bandwidths: list[int] = []
        self._latencies: list[int] = []
        self._link_kinds: list[str] = []
        self._counts: list[int] = []

    def add_node(
        self,
        name: str,
        kind: str = "gpu",
        *,
        send_overhead: int = 0,
        reduce_bandwidth: int = 0,
        channel_bandwidth: int = 0,
        reduces: bool = False,
        multicasts: bool = False,
        forwards: bool = True,
    ) -> None:
        """Add a node; the attributes are those of `Topology`."""
        self._nodes.append(name)
        self._kinds.append(kind)
        values = (send_overhead, reduce_bandwidth, channel_bandwidth, reduces, multicasts, forwards)
        for column, value in zip(self._devices.values(), values, strict=True):
            column.append(value)

    def add_link(self, src: str, dst: str, bandwidth: int, latency: int, *, kind: str = "", count: int = 1) -> None:
        """Add ``count`` parallel links in one direction, each of ``bandwidth`` bytes/s and ``latency`` picoseconds."""
        self._ends += (src, dst)
        self._bandwidths.append(bandwidth)
        self._latencies.append(latency)
        self._link_kinds.append(kind)
        self._counts.append(count)

    def add_duplex(self, a: str, b: str, bandwidth: int, latency: int, *, kind: str = "", count: int = 1) -> None:
        """Add ``count`` parallel links in each direction."""
        self.add_link(a, b, bandwidth, latency, kind=kind, count=count)
        self.add_link(b, a, bandwidth, latency, kind=kind, count=count)

    def build(
        self,
        ranks: Sequence[str] | None = None,
        routes: Mapping[tuple[str, str], Sequence[int | str]] | None = None,
        structure: Mapping[str, Any] | None = None,
    ) -> Topology:
        """Check everything and return the topology.

        Parameters
        ----------
        ranks
            Names of the nodes that are ranks, in order; by default all of kind ``gpu``.
        routes
            ``(source node, destination node)`` to the route between them, as numbers or names of links, for pairs that
            do not take the shortest path. Holds for every channel.
        structure
            See `Topology`.

        Raises
        ------
        TopologyError
            A duplicate or unknown name, a link to itself, a bandwidth below 1, a negative latency, no rank, a route
            whose links do not join, that comes to a node twice or that passes one that does not forward.
        """
        index = {name: number for number, name in enumerate(self._nodes)}
        for end in self._ends:
            if end not in index:
                raise TopologyError(f"link to {end!r}: no such node{did_you_mean(end, index)}")
        if ranks is not None:
            for name in ranks:
                if name not in index:
                    raise TopologyError(f"rank {name!r}: no such node{did_you_mean(name, index)}")
        counts = _integers(self._counts, "count", 1)
        if counts.sum() > MAX_LINKS:
            raise TopologyError(f"expected at most {MAX_LINKS:,} links, got {int(counts.sum()):,}; check 'count'")
        ends = np.array([index[end] for end in self._ends], dtype=np.int32).reshape(-1, 2)
        kinds = tuple(dict.fromkeys(self._link_kinds)) or ("",)
        codes = np.array([kinds.index(kind) for kind in self._link_kinds], dtype=np.int32)
        devices = {
            key: np.array(column, dtype=bool) if key in FLAGS else _integers(column, key, 0)
            for key, column in self._devices.items()
        }
        topology = assemble(
            self.name,
            self._nodes,
            self._kinds,
            np.repeat(ends[:, 0], counts),
            np.repeat(ends[:, 1], counts),
            np.repeat(_integers(self._bandwidths, "link bandwidth in bytes/s", 1), counts),
            np.repeat(_integers(self._latencies, "link latency in ps", 0), counts),
            link_kinds=kinds,
            link_kind_codes=np.repeat(codes, counts),
            ranks=None if ranks is None else np.array([index[name] for name in ranks], dtype=np.int64),
            structure=structure,
            description=self.description,
            source=self.source,
            devices=devices,
        )
        return replace(topology, given_routes=_given_routes(topology, routes)) if routes else topology


FLAGS = ("reduces", "multicasts", "forwards")


def assemble(
    name: str,
    nodes: Sequence[str],
    kinds: Sequence[str],
    link_src: Array,
    link_dst: Array,
    link_bandwidth: Array,
    link_latency: Array,
    *,
    link_kinds: Sequence[str] = ("",),
    link_kind_codes: Array | None = None,
    ranks: Array | None = None,
    structure: Mapping[str, Any] | None = None,
    description: str = "",
    source: str = "",
    devices: Mapping[str, Array] | None = None,
) -> Topology:
    """Return the topology of whole arrays (see `Topology` for each), checked; no Python work for a link.

    Raises
    ------
    TopologyError
        As `TopologyBuilder.build`.
    """
    nodes, kinds = tuple(nodes), tuple(kinds)
    if len(set(nodes)) != len(nodes):
        seen: set[str] = set()
        double = next(node for node in nodes if node in seen or seen.add(node))  # type: ignore[func-returns-value]
        raise TopologyError(f"node {double!r}: there are two of this name; names must be unique")
    link_src, link_dst = (np.ascontiguousarray(ends, dtype=np.int32) for ends in (link_src, link_dst))
    link_bandwidth, link_latency = (
        np.ascontiguousarray(column, dtype=np.int64) for column in (link_bandwidth, link_latency)
    )
    for wrong, text in (
        (link_src == link_dst, "a link joins two different nodes"),
        (link_bandwidth < 1, "expected a bandwidth of at least 1 byte/s"),
        (link_latency < 0, "expected a latency of at least 0"),
    ):
        if wrong.any():
            link = int(np.argmax(wrong))
            ends = f"{nodes[link_src[link]]}->{nodes[link_dst[link]]}"
            got = f"bandwidth {link_bandwidth[link]} bytes/s, latency {link_latency[link]} ps"
            raise TopologyError(f"link {ends}: {text}, got {got}")
    if ranks is None:
        ranks = np.array([index for index, kind in enumerate(kinds) if kind == "gpu"], dtype=np.int64)
        if not len(ranks):
            raise TopologyError(f"topology {name!r}: no node of kind 'gpu', so no rank; name the ranks or set the kind")
    rank_nodes = np.ascontiguousarray(ranks, dtype=np.int64)
    if not len(rank_nodes):
        raise TopologyError(f"topology {name!r}: expected at least one rank, got none")
    order = np.sort(rank_nodes)
    if (order[1:] == order[:-1]).any():
        double = nodes[order[1:][order[1:] == order[:-1]][0]]
        raise TopologyError(f"rank {double!r}: named twice; a node is one rank")
    columns = dict(devices or {})
    for key in ("send_overhead", "reduce_bandwidth", "channel_bandwidth"):
        columns.setdefault(key, np.zeros(len(nodes), dtype=np.int64))
    for key in FLAGS:
        columns.setdefault(key, np.full(len(nodes), key == "forwards"))
    codes = np.zeros(len(link_src), dtype=np.int32) if link_kind_codes is None else link_kind_codes
    return Topology(
        name=name,
        description=description,
        source=source,
        nodes=nodes,
        kinds=kinds,
        rank_nodes=rank_nodes,
        link_src=link_src,
        link_dst=link_dst,
        link_bandwidth=link_bandwidth,
        link_latency=link_latency,
        link_key=_parallel_numbers(link_src, link_dst, len(nodes)),
        link_kind_names=tuple(link_kinds),
        link_kind_codes=np.ascontiguousarray(codes, dtype=np.int32),
        given_routes={},
        structure=dict(structure or {}),
        **columns,
    )


def _integers(values: Sequence[int], what: str, least: int) -> Array:
    for value in values:
        if isinstance(value, bool) or int(value) != value or not least <= value <= INT64_MAX:
            raise TopologyError(f"expected {what} of at least {least} (a whole 64-bit number), got {value!r}")
    return np.array(values, dtype=np.int64)


def _parallel_numbers(src: Array, dst: Array, n_nodes: int) -> Array:
    """Return the number of each link among those of the same ends, in link order."""
    ends = src.astype(np.int64) * n_nodes + dst
    order = np.argsort(ends, kind="stable")
    places = np.arange(len(ends))
    first = np.ones(len(ends), dtype=bool)
    first[1:] = ends[order[1:]] != ends[order[:-1]]
    keys = np.empty(len(ends), dtype=np.int32)
    keys[order] = places - np.maximum.accumulate(np.where(first, places, 0))
    return keys


def _given_routes(
    topology: Topology, routes: Mapping[tuple[str, str], Sequence[int | str]]
) -> dict[tuple[int, int], tuple[int, ...]]:
    names: dict[str, int] = {}
    if any(isinstance(link, str) for route in routes.values() for link in route):
        names = {topology.link_name(link): link for link in range(topology.n_links)}
    given: dict[tuple[int, int], tuple[int, ...]] = {}
    for (src, dst), route in routes.items():
        where = f"route from {src!r} to {dst!r}"
        ends = (topology.node_index(src), topology.node_index(dst))
        links = []
        here = ends[0]
        for item in route:
            link = names.get(item, -1) if isinstance(item, str) else int(item)
            if not 0 <= link < topology.n_links:
                raise TopologyError(f"{where}: no link {item!r}{did_you_mean(str(item), names)}")
            if topology.link_src[link] != here:
                raise TopologyError(
                    f"{where}: link {topology.link_name(link)} does not start at {topology.nodes[here]!r}, where the "
                    "route has come to"
                )
            here = int(topology.link_dst[link])
            links.append(link)
        if here != ends[1] or not links:
            raise TopologyError(f"{where}: its links end at {topology.nodes[here]!r}, not at {dst!r}")
        visited = [ends[0], *topology.link_dst[links].tolist()]
        if len(set(visited)) < len(visited):
            double = next(node for node in visited if visited.count(node) > 1)
            raise TopologyError(f"{where}: it comes to {topology.nodes[double]!r} twice")
        for node in visited[1:-1]:
            if not topology.forwards[node]:
                raise TopologyError(f"{where}: {topology.nodes[node]!r} does not forward; take links past it")
        given[ends] = tuple(links)
    return given
