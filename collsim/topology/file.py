"""The topology file: YAML text to a `Topology`, every mistake told with its line and column.

Read, parse (:mod:`collsim.topology.yamltree`), validate field by field (:mod:`collsim.topology.model`), count nodes and
links before any is made, then write ranges and modules out into arrays: no Python object a link. The format is
described in ``topologies/README.md`` and ``topologies/topology.schema.json``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from collsim.errors import did_you_mean
from collsim.topology.builder import assemble
from collsim.topology.file_routes import given_routes
from collsim.topology.graph import Topology
from collsim.topology.names import MAX_LINKS, MAX_NODES, MAX_ROUTES, Pattern, member_name, shown_text
from collsim.topology.yamltree import Loc, Node, parse

if TYPE_CHECKING:
    from collsim.topology.model import LinkModel, ModuleModel, NodeModel, TopologyModel

__all__ = ["loads"]

Array = npt.NDArray[Any]

_DEVICE = ("send_overhead", "reduce_bandwidth", "channel_bandwidth")
_FLAGS = ("reduces", "multicasts", "forwards")


def loads(text: str, path: str = "<text>") -> Topology:
    """Read a topology from YAML text.

    Parameters
    ----------
    text
        The content of a topology file.
    path
        Its name in messages.

    Raises
    ------
    TopologyError
        As `load_topology`.

    Examples
    --------
    >>> topology = loads('''
    ... name: small
    ... nodes:
    ...   - {name: "gpu[0-3]", kind: gpu}
    ...   - {name: sw, kind: switch}
    ... links:
    ...   - {between: ["gpu[0-3]", sw], bandwidth: 450GB/s, latency: 300ns}
    ... ''')
    >>> topology
    <Topology 'small': 4 ranks, 5 nodes, 8 links of 450GB/s>
    >>> topology.link_name(0)
    'gpu[0]->sw'
    """
    from collsim.topology.model import validate

    root = parse(text, path)
    model = validate(root, path)
    if model.generator is not None:
        from collsim.topology.schema import generate

        return generate(model, root, path)
    return _Expansion(model, root, path).topology()


@dataclass(frozen=True)
class _Scope:
    """Nodes that links may name: those of the file, or those of one copy of a module."""

    index: dict[str, int]
    patterns: tuple[str, ...]


class _Expansion:
    """Writes a valid model out; each step checks what relates its entries to others."""

    def __init__(self, model: TopologyModel, root: Node, path: str) -> None:
        self.model, self.root, self.path = model, root, path
        # Sections count in file order, for the order of nodes decides the order of ranks.
        self.sections = [str(key) for key in root.value]
        self.names: list[str] = []
        self.kinds: list[str] = []
        self.columns: dict[str, list[Array]] = {key: [] for key in (*_DEVICE, *_FLAGS)}
        self.places: list[tuple[int, Loc]] = []
        self.first_node: dict[int, int] = {}
        self.links: list[tuple[Array, Array, LinkModel]] = []

    def fail(self, loc: Loc, message: str) -> NoReturn:
        from collsim.topology.model import fail

        fail(self.root, self.path, loc, message)

    def topology(self) -> Topology:
        """Return the topology."""
        if not self.model.nodes and not self.model.modules:
            self.fail((), "expected nodes, modules or a generator, got none of them")
        self.check_size()
        for section in self.sections:
            if section == "nodes":
                self.add_nodes(self.model.nodes, ("nodes",))
            elif section == "modules":
                for number, module in enumerate(self.model.modules):
                    self.add_module(number, module)
        scope = self.scope()
        for section in self.sections:
            if section == "links":
                for number, link in enumerate(self.model.links):
                    self.links.append((*self.ends(link, scope, ("links", number)), link))
            elif section == "modules":
                for number, module in enumerate(self.model.modules):
                    self.add_module_links(number, module)
        ranks = self.ranks(scope)
        topology = self.assemble(ranks)
        routes = given_routes(self.model.routes, topology, lambda name, loc: self.find(name, scope, loc), self.fail)
        return replace(topology, given_routes=routes) if routes else topology

    # Sizes first: a range costs nothing until it is written out.

    def node_entries(self) -> Iterator[tuple[Loc, NodeModel, int]]:
        for number, node in enumerate(self.model.nodes):
            yield ("nodes", number), node, 1
        for index, module in enumerate(self.model.modules):
            for number, node in enumerate(module.nodes):
                yield ("modules", index, "nodes", number), node, module.count

    def link_entries(self) -> Iterator[tuple[Loc, LinkModel, int]]:
        for number, link in enumerate(self.model.links):
            yield ("links", number), link, 1
        for index, module in enumerate(self.model.modules):
            for number, link in enumerate(module.links):
                yield ("modules", index, "links", number), link, module.count

    def check_size(self) -> None:
        """Refuse what would not fit, from the counts alone."""
        total = 0
        for loc, node, copies in self.node_entries():
            total += node.name.count * copies
            if total > MAX_NODES:
                where: Loc = (*loc[:2], "count") if copies > node.name.count else (*loc, "name")
                self.fail(where, f"expected at most {MAX_NODES:,} nodes in all, got {total:,}")
        total = 0
        for loc, link, copies in self.link_entries():
            start, end = _patterns(link)
            if link.pairing == "zip" and start.count != end.count:
                got = f"{shown_text(start.text)} with {start.count:,} and {shown_text(end.text)} with {end.count:,}"
                self.fail((*loc, "pairing"), f"expected two names that stand for equally many nodes, got {got}")
            total += (each := _links_of(link)) * copies
            if total > MAX_LINKS:
                field = "count" if link.count > 1 else "pairing" if each > 1 else "latency"
                where = (*loc, field) if field in self.root.find(loc).value else loc
                where = where if copies <= each else (*loc[:2], "count")
                self.fail(where, f"expected at most {MAX_LINKS:,} links in all, got {total:,}")
        total = 0
        for number, route in enumerate(self.model.routes):
            total += route.start.count * route.end.count
            if total > MAX_ROUTES:
                self.fail(("routes", number), f"expected at most {MAX_ROUTES:,} routes in all, got {total:,}")

    def add_nodes(self, nodes: list[NodeModel], loc: Loc, module: ModuleModel | None = None, copy: int = 0) -> None:
        for number, node in enumerate(nodes):
            names = node.name.names
            self.places.append((len(self.names), (*loc, number, "name")))
            self.names += names if module is None else [member_name(module.name, copy, name) for name in names]
            self.kinds += [node.kind] * len(names)
            for key, column in self.columns.items():
                column.append(np.full(len(names), getattr(node, key)))

    def add_module(self, number: int, module: ModuleModel) -> None:
        self.first_node[number] = len(self.names)
        for copy in range(module.count):
            self.add_nodes(module.nodes, ("modules", number, "nodes"), module, copy)

    def scope(self) -> _Scope:
        """Return the nodes of the file, all of different names."""
        index = {name: number for number, name in enumerate(self.names)}
        if len(index) != len(self.names):
            seen: set[str] = set()
            for number, name in enumerate(self.names):
                if name in seen:
                    entry = bisect_right(self.places, number, key=lambda place: place[0]) - 1
                    self.fail(self.places[entry][1], f"expected each node once, got {shown_text(name)} again")
                seen.add(name)
        patterns = [node.name.text for node in self.model.nodes]
        for module in self.model.modules:
            patterns += [f"{module.name}[0-{module.count - 1}].{node.name.text}" for node in module.nodes]
        return _Scope(index, tuple(patterns))

    def find(self, pattern: Pattern, scope: _Scope, loc: Loc) -> Array:
        """Return the node indices of a name with ranges."""
        index = scope.index
        if pattern.count <= len(index):
            try:
                return np.array([index[name] for name in pattern.names], dtype=np.int64)
            except KeyError as error:
                name = str(error.args[0])
        else:
            # More names than nodes: the first that is missing comes soon, and the range is never written out.
            name = next(name for name in map(pattern.name, range(pattern.count)) if name not in index)
        known = tuple(text for text in scope.patterns[:1000] if len(text) <= 60)
        hint = did_you_mean(pattern.text[:60], known) or did_you_mean(name[:60], known) or _listed(known)
        self.fail(loc, f"expected the name of a node, got {shown_text(name)}{hint}")

    def ends(self, link: LinkModel, scope: _Scope, loc: Loc) -> tuple[Array, Array]:
        """Return the ends of the links of one entry, without their parallels."""
        start, end = _patterns(link)
        two_way = link.between is not None
        start_loc: Loc = (*loc, "between", 0) if two_way else (*loc, "from")
        end_loc: Loc = (*loc, "between", 1) if two_way else (*loc, "to")
        src = self.find(start, scope, start_loc)
        dst = self.find(end, scope, end_loc)
        if link.pairing == "zip" or len(src) == len(dst) == 1:
            if (src == dst).any():
                name = start.names[int(np.argmax(src == dst))]
                self.fail(end_loc, f"expected another node at the other end, got {shown_text(name)} at both")
        else:
            common = bool(np.isin(src, dst).any())
            src, dst = np.repeat(src, len(dst)), np.tile(dst, len(src))
            if common:
                # gpu[0-7] with gpu[0-7] means every pair once, and no node with itself.
                src, dst = _different(src, dst, duplex=two_way)
                if not len(src):
                    self.fail(end_loc, f"expected another node at the other end, got {shown_text(start.text)} at both")
        if not two_way:
            return src, dst
        return np.stack((src, dst), axis=1).reshape(-1), np.stack((dst, src), axis=1).reshape(-1)

    def add_module_links(self, number: int, module: ModuleModel) -> None:
        """Add the links inside a module: found in one copy, shifted to the others."""
        names = [name for node in module.nodes for name in node.name.names]
        scope = _Scope({name: index for index, name in enumerate(names)}, tuple(n.name.text for n in module.nodes))
        shifts = self.first_node[number] + len(names) * np.arange(module.count, dtype=np.int64)[:, None]
        for place, link in enumerate(module.links):
            src, dst = self.ends(link, scope, ("modules", number, "links", place))
            self.links.append(((src + shifts).reshape(-1), (dst + shifts).reshape(-1), link))

    def ranks(self, scope: _Scope) -> Array:
        if self.model.ranks is None:
            found = np.flatnonzero(np.array([kind == "gpu" for kind in self.kinds], dtype=bool))
            if not len(found):
                self.fail((), "expected a node of kind gpu, got none; name the ranks with ranks: [...]")
            return found
        seen: set[int] = set()
        parts = []
        for number, pattern in enumerate(self.model.ranks):
            part = self.find(pattern, scope, ("ranks", number))
            for node in part.tolist():
                if node in seen:
                    self.fail(("ranks", number), f"expected each rank once, got {shown_text(self.names[node])} again")
                seen.add(node)
            parts.append(part)
        if not parts:
            self.fail(("ranks",), "expected at least one rank, got an empty list; leave ranks out to take the GPUs")
        return np.concatenate(parts)

    def structure(self, ranks: Array) -> dict[str, Any]:
        """Return the module that holds all ranks, copy after copy, if there is one."""
        for number, module in enumerate(self.model.modules):
            size = sum(node.name.count for node in module.nodes)
            copy = (ranks - self.first_node[number]) // size
            each, rest = divmod(len(ranks), module.count)
            if not rest and np.array_equal(copy, np.repeat(np.arange(module.count), each)):
                return {"kind": "modules", "module": module.name, "count": module.count, "ranks_per_module": each}
        return {}

    def assemble(self, ranks: Array) -> Topology:
        """Return the topology of the nodes and links collected so far."""

        def column(values: list[Array]) -> Array:
            return np.concatenate(values) if values else np.zeros(0, dtype=np.int64)

        kinds = tuple(dict.fromkeys(link.kind for _, _, link in self.links)) or ("",)
        parts: dict[str, list[Array]] = {key: [] for key in ("src", "dst", "bandwidth", "latency", "kind")}
        for src, dst, link in self.links:
            number = len(src) * link.count
            parts["src"].append(np.repeat(src, link.count))
            parts["dst"].append(np.repeat(dst, link.count))
            parts["bandwidth"].append(np.full(number, link.bandwidth, dtype=np.int64))
            parts["latency"].append(np.full(number, link.latency, dtype=np.int64))
            parts["kind"].append(np.full(number, kinds.index(link.kind), dtype=np.int32))
        return assemble(
            self.model.name,
            self.names,
            self.kinds,
            column(parts["src"]),
            column(parts["dst"]),
            column(parts["bandwidth"]),
            column(parts["latency"]),
            link_kinds=kinds,
            link_kind_codes=column(parts["kind"]),
            ranks=ranks,
            structure=self.structure(ranks),
            description=self.model.description,
            source=self.model.source,
            devices={key: np.concatenate(values) for key, values in self.columns.items()},
        )


def _patterns(link: LinkModel) -> tuple[Pattern, Pattern]:
    if link.between is not None:
        return link.between[0], link.between[1]
    assert link.start is not None
    assert link.end is not None
    return link.start, link.end


def _links_of(link: LinkModel) -> int:
    """Return how many links an entry makes (more than that where ranges on its ends overlap in part)."""
    start, end = _patterns(link)
    directions = 1 if link.between is None else 2
    if link.pairing == "zip":
        return directions * start.count * link.count
    if start.parts == end.parts:
        # Each pair once and no link of a node to itself, which is as many links both ways as from each to each.
        return start.count * (start.count - 1) * link.count
    return directions * start.count * end.count * link.count


def _different(src: Array, dst: Array, duplex: bool) -> tuple[Array, Array]:
    """Return the pairs of different nodes, each pair once if the link goes both ways."""
    apart = src != dst
    src, dst = src[apart], dst[apart]
    if duplex:
        low, high = np.minimum(src, dst), np.maximum(src, dst)
        _, first = np.unique(low * (1 + high.max(initial=0)) + high, return_index=True)
        first.sort()
        src, dst = src[first], dst[first]
    return src, dst


def _listed(patterns: tuple[str, ...]) -> str:
    """Return the nodes that there are, for a name that is near none of them."""
    if not patterns:
        return ""
    return f"; there are {', '.join(patterns[:6])}{' and more' if len(patterns) > 6 else ''}"
