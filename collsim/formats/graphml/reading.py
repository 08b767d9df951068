"""Graphs in GraphML as machines."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from collsim.errors import InputError, TopologyError, did_you_mean, shown
from collsim.formats.graphml.attributes import KEYS, LONGEST, RATES, SWITCHES, TIMES, is_name
from collsim.formats.source import Source, read_source
from collsim.formats.xmltree import Element, parse_xml
from collsim.topology.builder import TopologyBuilder
from collsim.topology.graph import Topology
from collsim.topology.names import KINDS
from collsim.units import parse_bandwidth, parse_time

__all__ = ["parse_graphml", "read_graphml"]

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
MAX_KEYS = 1000
"""Attributes that a file may declare."""

_NUMERIC = frozenset(["int", "long", "float", "double"])
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def read_graphml(path: str | os.PathLike[str]) -> Topology:
    """Read the topology of a GraphML file.

    Edges need the attributes ``bandwidth`` and ``latency``: texts with their unit (``50GB/s``, ``2us``) or, where the
    key is of a numeric type, bytes per second and seconds. They may have a ``kind``, and an ``index`` by which links
    are sorted if each edge has its own. Nodes may have a ``kind`` (``gpu`` where absent), a ``rank`` and the device
    attributes of `Topology`, as in `collsim.topology.from_networkx`; letters of attributes may be small or capital. An
    edge that has no direction is a link each way, edges with the same ends are parallel links. Nodes are called by
    their ids, but by their labels in files of yEd, which makes the ids up, if all labels differ.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    TopologyError
        With the place, for what is no GraphML or no machine.

    Examples
    --------
    >>> read_graphml("no/such.graphml")
    Traceback (most recent call last):
    collsim.errors.TopologyError: no/such.graphml: expected a GraphML graph, got no such file
    """
    return parse_graphml(read_source(path, "a GraphML graph"))


def parse_graphml(source: Source) -> Topology:
    """Return the topology of a GraphML text; see `read_graphml`.

    Examples
    --------
    >>> text = '''<graphml><key id="b" for="edge" attr.name="bandwidth" attr.type="string"/>
    ... <key id="l" for="edge" attr.name="latency" attr.type="double"><default>1e-6</default></key>
    ... <graph edgedefault="undirected"><node id="a"/><node id="b"/>
    ... <edge source="a" target="b"><data key="b">25GB/s</data></edge></graph></graphml>'''
    >>> parse_graphml(Source("pair.graphml", text))
    <Topology 'pair': 2 ranks, 2 nodes, 2 links of 25GB/s>
    """
    root = parse_xml(source)
    if root.tag != "graphml":
        root.fail(f"expected the root <graphml>, got {shown(root.tag)}")
    keys = _keys(root)
    graphs = list(root.all("graph"))
    if not graphs:
        root.fail("expected a <graph>, got none")
    if len(graphs) > 1:
        graphs[1].fail("expected one graph in a file, got a second one; keep one of them")
    graph = graphs[0]
    directed = _directed(graph, "edgedefault", None)
    labels = {key: data.text for key, data in _data(graph, "graph", keys).items() if data.text}
    nodes, edges = _elements(graph)
    names = _names(nodes)
    builder = TopologyBuilder(_line(labels.get("name", "")) or source.title)
    ranks: dict[int, str] = {}
    bare = 0
    for name, node in zip(names.values(), nodes, strict=True):
        data = _data(node, "node", keys)
        bare += "kind" not in data
        builder.add_node(name, _kind(data), **_devices(data))
        if "rank" in data:
            rank = data["rank"].whole()
            if rank in ranks:
                data["rank"].fail(f"expected each rank once, got {rank} of {shown(ranks[rank])} too")
            ranks[rank] = name
    _add_links(builder, edges, keys, names, directed)
    builder.source = labels.get("source", f"GraphML file {source.file}")
    builder.description = labels.get("description", "")
    if bare and not builder.description:
        which = "All nodes were" if bare == len(nodes) else f"{bare:,} nodes without a kind were"
        builder.description = f"{which} taken for GPUs, for the file gives no kind."
    try:
        return builder.build([ranks[rank] for rank in sorted(ranks)] if ranks else None)
    except TopologyError as error:
        graph.fail(str(error))


@dataclass(frozen=True)
class _Key:
    """What a ``<key>`` declares: an attribute of nodes, edges or graphs; without a name it is none that matters."""

    name: str
    numeric: bool


@dataclass(frozen=True)
class _Value:
    """The value that an element has of an attribute, and where it stands."""

    text: str
    key: _Key
    element: Element

    def fail(self, message: str) -> NoReturn:
        self.element.fail(message, self.key.name)

    def quantity(self, parse: Callable[[str], int], unit: str, zero: bool = False) -> int:
        """Return whole bytes a second or picoseconds; a number without a unit is decimal, and exact."""
        text = self.text
        if self.key.numeric:
            if not _NUMBER.fullmatch(text):
                self.fail(f"expected a number (of {unit}), got {shown(text)}")
            text += unit
        if zero and re.fullmatch(rf"[+-]?0+(?:\.0*)?(?:{unit})?", text):
            return 0
        try:
            return parse(text)
        except InputError as error:
            self.fail(str(error))

    def flag(self) -> bool:
        found = _FLAGS.get(self.text.lower())
        if found is None:
            self.fail(f"expected true or false, got {shown(self.text)}")
        return found

    def whole(self) -> int:
        match = re.fullmatch(r"\+?([0-9]{1,12})(?:\.0*)?", self.text, re.ASCII)
        if match is None:
            self.fail(f"expected a whole number from 0, got {shown(self.text)}")
        return int(match[1])


@dataclass(frozen=True)
class _Keys:
    """The keys for graphs, nodes or edges.

    Attributes
    ----------
    by_id
        All of the file.
    defaults
        Values by name that hold where nothing else is said.
    others
        Names of attributes that do not matter here.
    """

    by_id: dict[str, _Key]
    defaults: dict[str, _Value]
    others: set[str]


def _keys(root: Element) -> dict[str, _Keys]:
    """Return what keys declare, by what it is for."""
    found = {part: _Keys({}, {}, set()) for part in KEYS}
    seen: set[str] = set()
    for key in root.all("key"):
        number = key.get("id")
        if number in seen:
            key.fail(f"expected each key once, got {shown(number)} again", "id")
        if len(seen) == MAX_KEYS:
            key.fail(f"expected at most {MAX_KEYS:,} keys, got more")
        seen.add(number)
        name = key.attributes.get("attr.name", "").strip().lower()
        numeric = key.attributes.get("attr.type", "string") in _NUMERIC
        default = next((child.text for child in key.all("default")), None)
        what = key.attributes.get("for", "all")
        for part, known in found.items():
            if what in (part, "all") and name not in KEYS[part]:
                known.others.add(name[:60])
            declared = _Key(name if what in (part, "all") and name in KEYS[part] else "", numeric)
            known.by_id[number] = declared
            if declared.name and default is not None:
                known.defaults.setdefault(declared.name, _Value(default, declared, key))
    return found


def _data(element: Element, part: str, keys: dict[str, _Keys]) -> dict[str, _Value]:
    """Return the attributes of a node, an edge or the graph by name."""
    known = keys[part].by_id
    found: dict[str, _Value] = {}
    for data in element.all("data"):
        number = data.get("key")
        key = known.get(number)
        if key is None:
            data.fail(f"expected the id of a <key>, got {shown(number)}{did_you_mean(number[:60], known)}", "key")
        if not key.name:
            continue
        if key.name in found:
            data.fail(f"expected {key.name!r} once, got it again", "key")
        found[key.name] = _Value(data.text, key, data)
    return keys[part].defaults | found


def _directed(element: Element, attribute: str, otherwise: bool | None) -> bool:
    words = ("directed", "undirected") if otherwise is None else ("true", "false")
    text = element.attributes.get(attribute)
    if text is None and otherwise is not None:
        return otherwise
    if text is None or text.strip().lower() not in words:
        got = "nothing" if text is None else shown(text)
        element.fail(f"expected {attribute} to be {' or '.join(words)}, got {got}", attribute)
    return text.strip().lower() == words[0]


def _elements(graph: Element) -> tuple[list[Element], list[Element]]:
    """Return nodes and edges; refuse what would make another machine if it were passed over."""
    for child in graph.children:
        if child.tag == "hyperedge":
            child.fail("expected edges of two ends, got a hyperedge; write a node of kind switch and an edge to each")
        nested = next(child.all("graph"), None) if child.tag in ("node", "edge") else None
        if nested is not None:
            nested.fail("expected one plain graph, got a graph inside of it; ungroup its nodes")
    nodes, edges = list(graph.all("node")), list(graph.all("edge"))
    if not nodes:
        graph.fail("expected nodes, got none")
    return nodes, edges


def _names(nodes: list[Element]) -> dict[str, str]:
    """Return the name of each node by its id."""
    by_id: dict[str, Element] = {}
    for node in nodes:
        number = node.get("id")
        if number in by_id:
            node.fail(f"expected each node once, got {shown(number)} again (first in line {by_id[number].line})", "id")
        if not is_name(number):
            node.fail(f"expected an id of 1 to {LONGEST} printable letters, got {shown(number)}", "id")
        by_id[number] = node
    labels = [next((part.text for part in node.walk() if part.tag == "NodeLabel"), "") for node in nodes]
    labels = [" ".join(label.split()) for label in labels]
    if len(set(labels)) == len(labels) and all(map(is_name, labels)):
        return dict(zip(by_id, labels, strict=True))
    return {number: number for number in by_id}


def _line(text: str) -> str:
    """Return text as a label of one line."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:LONGEST]


def _kind(data: dict[str, _Value]) -> str:
    kind = data["kind"].text if "kind" in data else "gpu"
    if kind not in KINDS:
        data["kind"].fail(f"expected one of {', '.join(KINDS)}, got {shown(kind)}{did_you_mean(kind[:60], KINDS)}")
    return kind


def _devices(data: dict[str, _Value]) -> dict[str, Any]:
    found: dict[str, Any] = {key: data[key].quantity(parse_time, "s") for key in TIMES if key in data}
    found |= {key: data[key].quantity(parse_bandwidth, "B/s", zero=True) for key in RATES if key in data}
    return found | {key: data[key].flag() for key in SWITCHES if key in data}


def _add_links(
    builder: TopologyBuilder,
    edges: list[Element],
    keys: dict[str, _Keys],
    names: dict[str, str],
    directed: bool,
) -> None:
    indexed: dict[int, Callable[[], None]] = {}
    adds: list[Callable[[], None]] = []
    for edge in edges:
        ends = []
        for end in ("source", "target"):
            number = edge.get(end)
            if number not in names:
                known = names if len(names) <= 10_000 else ()
                edge.fail(f"expected the id of a node, got {shown(number)}{did_you_mean(number[:60], known)}", end)
            ends.append(number)
        if ends[0] == ends[1]:
            edge.fail(f"expected another node at the other end, got {shown(ends[0])} at both", "target")
        data = _data(edge, "edge", keys)
        for key, such in (("bandwidth", "50GB/s"), ("latency", "2us")):
            if key not in data:
                hint = did_you_mean(key, keys["edge"].others)
                edge.fail(f"expected an attribute {key!r} such as {such}, got none{hint}")
        kind = data["kind"].text if "kind" in data else ""
        if kind and not is_name(kind):
            data["kind"].fail(f"expected a word such as nvlink, got {shown(kind)}")
        link = (
            names[ends[0]],
            names[ends[1]],
            data["bandwidth"].quantity(parse_bandwidth, "B/s"),
            data["latency"].quantity(parse_time, "s"),
        )
        one_way = _directed(edge, "directed", directed)
        adds.append(_adding(builder.add_link if one_way else builder.add_duplex, link, kind))
        if "index" in data and re.fullmatch(r"[0-9]{1,12}", data["index"].text, re.ASCII):
            indexed[int(data["index"].text)] = adds[-1]
    if len(indexed) == len(adds):
        adds = [indexed[number] for number in sorted(indexed)]
    for add in adds:
        add()


def _adding(add: Callable[..., None], link: tuple[str, str, int, int], kind: str) -> Callable[[], None]:
    return lambda: add(*link, kind=kind)
