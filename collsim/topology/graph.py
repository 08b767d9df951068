"""The topology: devices and one-directional links, as arrays inside and a NetworkX graph as its face."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.errors import TopologyError, did_you_mean
from collsim.units import format_bandwidth

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Topology"]

Array = npt.NDArray[Any]


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass(frozen=True, eq=False, repr=False)
class Topology:
    """Devices, links and ranks of a machine; a frozen value.

    Made by the generators of `collsim.topology`, by `load_topology`, by `from_networkx` or with a `TopologyBuilder`.
    Ranks are nodes of kind ``gpu`` unless the maker said otherwise. Links go one way; full duplex is two of them.

    Attributes
    ----------
    name, description, source
        Labels; they do not count in comparisons.
    nodes, kinds
        Name and kind (``gpu``, ``switch``, ``nic``, ``host``, ...) of each node.
    rank_nodes
        Node index of each rank.
    link_src, link_dst
        Node indices of the ends of each link.
    link_bandwidth, link_latency
        Bytes per second and picoseconds of each link.
    link_key
        Number of the link among the parallel links that have the same ends.
    link_kind_names, link_kind_codes
        Names of the kinds of links, and which of them each link has.
    send_overhead
        Picoseconds that a node takes to send a transfer (0 = none).
    reduce_bandwidth, channel_bandwidth
        Bytes per second that a node reduces, or that its copy engine of a channel moves (0 = at no cost, none).
    reduces, multicasts
        Whether a switch adds up, or copies, what passes it.
    forwards
        Whether routes may pass through the node (without it the node is only ever an end of a route).
    given_routes
        ``(source, destination)`` node indices to the links of routes that override the shortest paths.
    structure
        What the maker knew, for `ring_order` and descriptions: ``{"kind": "torus", "dims": (4, 4)}``.
    cache
        For things that are computed once for a topology; not part of its value.

    Examples
    --------
    >>> import collsim.topology
    >>> topology = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    >>> topology
    <Topology 'ring': 4 ranks, 4 nodes, 4 links of 50GB/s>
    >>> [topology.link_name(link) for link in topology.route(0, 2)]
    ['gpu0->gpu1', 'gpu1->gpu2']
    """

    name: str
    description: str
    source: str
    nodes: tuple[str, ...]
    kinds: tuple[str, ...]
    rank_nodes: Array
    link_src: Array
    link_dst: Array
    link_bandwidth: Array
    link_latency: Array
    link_key: Array
    link_kind_names: tuple[str, ...]
    link_kind_codes: Array
    send_overhead: Array
    reduce_bandwidth: Array
    channel_bandwidth: Array
    reduces: Array
    multicasts: Array
    forwards: Array
    given_routes: Mapping[tuple[int, int], tuple[int, ...]]
    structure: Mapping[str, Any]
    cache: dict[Hashable, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._freeze()

    def _freeze(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.nodes)

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return len(self.rank_nodes)

    @property
    def n_links(self) -> int:
        """Number of one-directional links."""
        return len(self.link_src)

    @cached_property
    def ranks(self) -> tuple[str, ...]:
        """Name of each rank's node."""
        return tuple(self.nodes[node] for node in self.rank_nodes.tolist())

    @cached_property
    def rank_of_node(self) -> Array:
        """Rank of each node, -1 where it is none."""
        ranks = np.full(self.n_nodes, -1, dtype=np.int64)
        ranks[self.rank_nodes] = np.arange(self.n_ranks)
        ranks.flags.writeable = False
        return ranks

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.nodes)}

    @cached_property
    def _parallels(self) -> Array:
        """By link: how many links have the same ends."""
        ends = self.link_src.astype(np.int64) * self.n_nodes + self.link_dst
        _, inverse, counts = np.unique(ends, return_inverse=True, return_counts=True)
        return np.asarray(counts[inverse.reshape(-1)])

    def node_index(self, name: str) -> int:
        """Return the index of a node.

        Raises
        ------
        TopologyError
            No node has this name.
        """
        try:
            return self._indices[name]
        except (KeyError, TypeError):
            known = self.nodes if self.n_nodes <= 10_000 else ()
            hint = did_you_mean(str(name)[:60], known)
            raise TopologyError(f"no node {_shown(name)} in topology {self.name!r}{hint}") from None

    def link_name(self, link: int) -> str:
        """Return the name of a link: ``gpu0->sw0``, or ``gpu0->gpu1#1`` where there are parallel ones."""
        name = f"{self.nodes[self.link_src[link]]}->{self.nodes[self.link_dst[link]]}"
        return f"{name}#{self.link_key[link]}" if self._parallels[link] > 1 else name

    def link_index(self, name: str) -> int:
        """Return the number of the link that `link_name` gives this name.

        Raises
        ------
        TopologyError
            No link has this name.
        """
        from collsim.topology.paths import link_index

        return link_index(self, name)

    def link_kind(self, link: int) -> str:
        """Return the kind of a link as its maker named it (``nvlink``), or an empty text."""
        return self.link_kind_names[int(self.link_kind_codes[link])]

    def route(self, src_rank: int, dst_rank: int, channel: int = 0) -> tuple[int, ...]:
        """Return the links that a transfer between two ranks crosses, in order; none from a rank to itself.

        The rule is in `collsim.topology.routing`.

        Raises
        ------
        TopologyError
            No such rank, or no route between the two.
        """
        src_rank, dst_rank = self._rank(src_rank), self._rank(dst_rank)
        try:
            channel = operator.index(channel)
        except TypeError:
            raise TopologyError(f"channel: expected a whole number, got {_shown(channel)}") from None
        _, links = self.routes(np.array([src_rank]), np.array([dst_rank]), np.array([channel]))
        return tuple(links.tolist())

    def _rank(self, rank: int) -> int:
        try:
            return operator.index(rank)
        except TypeError:
            hint = ""
            if isinstance(rank, str) and rank in self.ranks:
                hint = f"; {_shown(rank)} is rank {self.ranks.index(rank)}"
            raise TopologyError(f"expected a rank (a whole number), got {_shown(rank)}{hint}") from None

    def routes(self, src: Array, dst: Array, channel: Array | int = 0) -> tuple[Array, Array]:
        """Return the routes between many ranks in CSR form.

        Parameters
        ----------
        src, dst
            Arrays of ranks.
        channel
            Array of channels, or one for all.

        Returns
        -------
        ptr, links
            Row i crosses ``links[ptr[i]:ptr[i + 1]]``.

        Raises
        ------
        TopologyError
            No such rank, or no route between two.
        """
        src, dst = np.asarray(src), np.asarray(dst)
        for ranks in (src, dst):
            if ranks.size and ranks.dtype.kind not in "iu":
                raise TopologyError(f"expected ranks (whole numbers), got {_shown(ranks.flat[0])}")
            if ranks.size and not (ranks.min() >= 0 and ranks.max() < self.n_ranks):
                wrong = ranks[(ranks < 0) | (ranks >= self.n_ranks)][0]
                raise TopologyError(f"no rank {wrong}: topology {self.name!r} has ranks 0 to {self.n_ranks - 1}")
        src, dst = (ranks if ranks.size else ranks.astype(np.int64) for ranks in (src, dst))
        return self.route_nodes(self.rank_nodes[src], self.rank_nodes[dst], channel)

    def route_nodes(self, src: Array, dst: Array, channel: Array | int = 0) -> tuple[Array, Array]:
        """Return the routes between many nodes, given by index, in CSR form like `routes`."""
        from collsim.topology.routing import find_routes

        return find_routes(self, src, dst, channel)

    def route_via(self, src_node: int, dst_node: int, via: Sequence[str], channel: int = 0) -> tuple[int, ...]:
        """Return the links from one node to another past the named nodes and over the named links.

        Between each two of them it is the shortest way; see `collsim.topology.paths`.

        Raises
        ------
        TopologyError
            A name that is neither node nor link, a node on the way that does not forward, or no route between two.
        """
        from collsim.topology.paths import routes_along

        _, links = routes_along(self, np.array([src_node]), np.array([dst_node]), channel, np.array([0]), [via])
        return tuple(links.tolist())

    def routes_via(self, src: Array, dst: Array, via: Sequence[int], channel: int = 0) -> tuple[Array, Array]:
        """Return the routes between many nodes past the same others, all by index, in CSR form like `routes`.

        Raises
        ------
        TopologyError
            No route between two of the nodes.
        """
        src, dst = np.asarray(src, dtype=np.int64), np.asarray(dst, dtype=np.int64)
        stops = [src, *(np.full(len(src), stop, dtype=np.int64) for stop in via), dst]
        ptr, links = self.route_nodes(np.concatenate(stops[:-1]), np.concatenate(stops[1:]), channel)
        # The legs stand one after the other, each for all routes; a stable sort by route puts them in a row.
        owner = np.repeat(np.tile(np.arange(len(src)), len(stops) - 1), np.diff(ptr))
        joined = np.zeros(len(src) + 1, dtype=np.int64)
        np.cumsum(np.bincount(owner, minlength=len(src)), out=joined[1:])
        return joined, links[np.argsort(owner, kind="stable")]

    @cached_property
    def graph(self) -> nx.MultiDiGraph[str]:
        """The topology as a frozen ``networkx.MultiDiGraph``, made when first asked for.

        Nodes have ``kind``, ``rank`` (where they are one) and the device attributes that they use; edges are keyed by
        ``link_key`` and have ``bandwidth`` (bytes/s), ``latency`` (seconds), ``kind`` and ``index`` (the number of the
        link). ``graph.copy()`` can be changed, and given back to `from_networkx`.
        """
        from collsim.topology.networkx_face import to_networkx

        return to_networkx(self)

    @staticmethod
    def from_networkx(graph: nx.Graph[Any], ranks: Sequence[Any] | None = None, name: str | None = None) -> Topology:
        """Return the topology of a NetworkX graph; see `collsim.topology.from_networkx`."""
        from collsim.topology.networkx_face import from_networkx

        return from_networkx(graph, ranks, name)

    def ring_order(self) -> tuple[int, ...]:
        """Return the order of the ranks that suits a ring: along links, and through one module after the other.

        The identity where the file's order does so already. See `collsim.topology.ring_order`.
        """
        from collsim.topology.ring_order import ring_order

        if "ring_order" not in self.cache:
            self.cache["ring_order"] = ring_order(self)
        return self.cache["ring_order"]  # type: ignore[no-any-return]

    def describe(self) -> str:
        """Return a text of some lines about the machine, as ``collsim topology show`` prints it."""
        from collsim.topology.describe import describe

        return describe(self)

    def __repr__(self) -> str:
        rates = np.unique(self.link_bandwidth)
        text = (
            " to ".join(dict.fromkeys(format_bandwidth(int(rate)) for rate in (rates[0], rates[-1])))
            if len(rates)
            else ""
        )
        ranks, nodes, links = (
            f"{count:,} {noun}{'' if count == 1 else 's'}"
            for count, noun in ((self.n_ranks, "rank"), (self.n_nodes, "node"), (self.n_links, "link"))
        )
        return f"<Topology {self.name!r}: {ranks}, {nodes}, {links}{' of ' + text if text else ''}>"

    def _content(self) -> tuple[tuple[Any, ...], tuple[Array, ...]]:
        kinds = np.array(self.link_kind_names, dtype=object)[self.link_kind_codes]
        arrays = (self.rank_nodes, self.link_src, self.link_dst, self.link_bandwidth, self.link_latency, kinds)
        devices = (self.send_overhead, self.reduce_bandwidth, self.channel_bandwidth)
        flags = (self.reduces, self.multicasts, self.forwards)
        return (self.nodes, self.kinds, dict(self.given_routes)), arrays + devices + flags

    def __eq__(self, other: object) -> bool:
        """Compare nodes, links (in order), devices, ranks and given routes; not the labels, not the structure."""
        if not isinstance(other, Topology):
            return NotImplemented
        if self is other:
            return True
        plain, arrays = self._content()
        other_plain, other_arrays = other._content()
        return plain == other_plain and all(map(np.array_equal, arrays, other_arrays))

    def __hash__(self) -> int:
        return hash((self.n_nodes, self.n_ranks, self.link_src.tobytes(), self.link_bandwidth.tobytes()))

    def __getstate__(self) -> dict[str, Any]:
        # Neither the caches (large, made again when asked for) nor cached properties go to another process.
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "cache"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, cache={})
        self._freeze()

    def links_between(self, src: str, dst: str) -> tuple[int, ...]:
        """Return the links from one node to another, by key; none where they are not neighbours."""
        ends = (self.link_src == self.node_index(src)) & (self.link_dst == self.node_index(dst))
        found = np.flatnonzero(ends)
        return tuple(map(operator.index, found[np.argsort(self.link_key[found])]))
