"""Topologies from NetworkX graphs, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from collsim.errors import InputError, TopologyError, did_you_mean
from collsim.topology.builder import TopologyBuilder
from collsim.topology.graph import Topology
from collsim.topology.names import KINDS
from collsim.units import parse_bandwidth, parse_time

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["from_networkx", "to_networkx"]

PICOSECONDS = 10**12


def from_networkx(graph: nx.Graph[Any], ranks: Sequence[Any] | None = None, name: str | None = None) -> Topology:
    """Return the topology of a NetworkX graph, which is not changed.

    Parameters
    ----------
    graph
        A ``Graph`` or ``MultiGraph`` (each edge becomes a link in both directions), ``DiGraph`` or ``MultiDiGraph``.
        Edges have ``bandwidth`` and ``latency``, texts or numbers in bytes/s and seconds, and may have a ``kind``.
        Nodes may have a ``kind`` (``gpu`` where absent, or ``switch``, ``nic`` or ``host``) and the device attributes
        of `Topology`.
    ranks
        The nodes that are ranks, in order. By default the nodes with an attribute ``rank``, sorted by it (whole
        numbers from 0, each once), or without any the nodes of kind ``gpu`` in the order of the graph.
    name
        Name of the topology; by default that of the graph.

    Raises
    ------
    TopologyError
        An edge without bandwidth or latency, or with one that cannot be read; a kind that there is not; ranks that are
        not whole numbers or not different; whatever `TopologyBuilder` refuses.

    Examples
    --------
    >>> import networkx as nx
    >>> link = {"bandwidth": "25GB/s", "latency": "1us"}
    >>> graph = nx.Graph((a, b, link) for a, b in nx.cycle_graph(4).edges)
    >>> from_networkx(graph, name="square")
    <Topology 'square': 4 ranks, 4 nodes, 8 links of 25GB/s>
    """
    if not all(hasattr(graph, part) for part in ("nodes", "edges", "is_directed")):
        raise TopologyError(f"expected a NetworkX graph, got a {type(graph).__name__}")
    builder = TopologyBuilder(name or str(graph.name) or "graph")
    numbered: dict[int, str] = {}
    for node, attributes in graph.nodes(data=True):
        where = f"node {str(node)!r}"
        builder.add_node(
            str(node),
            _kind(where, attributes.get("kind", "gpu")),
            send_overhead=_read(where, attributes, "send_overhead", parse_time, 0),
            reduce_bandwidth=_read(where, attributes, "reduce_bandwidth", parse_bandwidth, 0),
            channel_bandwidth=_read(where, attributes, "channel_bandwidth", parse_bandwidth, 0),
            reduces=bool(attributes.get("reduces", False)),
            multicasts=bool(attributes.get("multicasts", False)),
            forwards=bool(attributes.get("forwards", True)),
        )
        if "rank" in attributes:
            rank = _rank(where, attributes["rank"])
            if rank in numbered:
                raise TopologyError(
                    f"{where}: attribute 'rank': expected each once, got {rank} of {numbered[rank]!r} too"
                )
            numbered[rank] = str(node)
    add = builder.add_link if graph.is_directed() else builder.add_duplex
    for src, dst, attributes in graph.edges(data=True):
        where = f"edge {str(src)!r} -> {str(dst)!r}" if graph.is_directed() else f"edge {str(src)!r} - {str(dst)!r}"
        bandwidth = _read(where, attributes, "bandwidth", parse_bandwidth)
        latency = _read(where, attributes, "latency", parse_time)
        add(str(src), str(dst), bandwidth, latency, kind=str(attributes.get("kind", "")))
    names: list[str] | None = None
    if ranks is not None:
        if isinstance(ranks, str) or not isinstance(ranks, Iterable):
            raise TopologyError(f"ranks: expected a list of nodes, got {ranks!r}")
        names = [str(node) for node in ranks]
    elif numbered:
        names = [numbered[rank] for rank in sorted(numbered)]
    return builder.build(ranks=names)


def to_networkx(topology: Topology) -> nx.MultiDiGraph[str]:
    """Return the topology as a new frozen ``MultiDiGraph``; see `Topology.graph`."""
    import networkx as nx

    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=topology.name)
    ranks = topology.rank_of_node.tolist()
    for index, (node, kind) in enumerate(zip(topology.nodes, topology.kinds, strict=True)):
        attributes: dict[str, Any] = {"kind": kind}
        if ranks[index] >= 0:
            attributes["rank"] = ranks[index]
        if topology.send_overhead[index]:
            attributes["send_overhead"] = int(topology.send_overhead[index]) / PICOSECONDS
        for key in ("reduce_bandwidth", "channel_bandwidth"):
            if rate := int(getattr(topology, key)[index]):
                attributes[key] = rate
        for key, default in {"reduces": False, "multicasts": False, "forwards": True}.items():
            if (flag := bool(getattr(topology, key)[index])) != default:
                attributes[key] = flag
        graph.add_node(node, **attributes)
    columns = (topology.link_src, topology.link_dst, topology.link_key, topology.link_bandwidth, topology.link_latency)
    for link, (src, dst, key, bandwidth, latency) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        graph.add_edge(
            topology.nodes[src],
            topology.nodes[dst],
            key=key,
            bandwidth=bandwidth,
            latency=latency / PICOSECONDS,
            kind=topology.link_kind(link),
            index=link,
        )
    nx.freeze(graph)
    return graph


def _kind(where: str, kind: object) -> str:
    if kind not in KINDS:
        hint = did_you_mean(str(kind)[:60], KINDS)
        raise TopologyError(f"{where}: attribute 'kind': expected one of {', '.join(KINDS)}, got {kind!r}{hint}")
    return str(kind)


def _rank(where: str, rank: object) -> int:
    # Graphs that were read from a table have whole numbers as floats.
    value = float(rank) if isinstance(rank, Real) and not isinstance(rank, bool) else -1.0
    if value < 0 or not value.is_integer():
        raise TopologyError(f"{where}: attribute 'rank': expected a whole number from 0, got {rank!r}")
    return int(value)


def _read(where: str, attributes: Mapping[str, Any], key: str, parse: Any, default: int | None = None) -> int:
    value = attributes.get(key, default)
    if value is None:
        raise TopologyError(f"{where}: attribute {key!r} is missing; every edge needs 'bandwidth' and 'latency'")
    if default is not None and value == default:
        return default
    try:
        return int(parse(value))
    except InputError as error:
        raise TopologyError(f"{where}: attribute {key!r}: {error}") from None
