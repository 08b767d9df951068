"""Machines as graphs in GraphML."""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape
from typing import Any, NoReturn

import numpy as np

from collsim.errors import TopologyError, shown
from collsim.formats.graphml.attributes import KEYS, RATES, SWITCHES, is_name
from collsim.formats.source import MAX_BYTES
from collsim.formats.xmltree import MAX_ELEMENTS
from collsim.outputs import output_path, write_whole
from collsim.topology.graph import Topology
from collsim.topology.names import KINDS
from collsim.units import format_time

__all__ = ["format_graphml", "write_graphml"]


def write_graphml(topology: Topology, path: str | os.PathLike[str]) -> None:
    """Write a topology as a GraphML graph; see `format_graphml`.

    Parameters
    ----------
    topology
        The topology.
    path
        A name that ends in ``.graphml`` or ``.xml``. What is there is replaced, at once or not at all.

    Raises
    ------
    TopologyError
        As `format_graphml`.
    InputError
        If the path cannot be written.

    Examples
    --------
    >>> from collsim.topology import ring
    >>> write_graphml(ring(8), "ring8.txt")
    Traceback (most recent call last):
    collsim.errors.InputError: graph: ring8.txt: expected a name that ends in .graphml or .xml
    """
    target = output_path(path, "graph", (".graphml", ".xml"))
    write_whole(target, format_graphml(topology).encode(), "graph")


def format_graphml(topology: Topology) -> str:
    """Return the GraphML text of a topology: a directed graph with an edge for each link, in their order.

    Attributes are those of `Topology.graph`, only that times are texts with their unit (``1.5us``), which are exact.
    `read_graphml` returns an equal topology. So does `collsim.topology.from_networkx` of what ``networkx.read_graphml``
    reads, but for the order of links from different nodes, which a NetworkX graph does not keep.
    `Topology.structure` is left out.

    Raises
    ------
    TopologyError
        Given routes, a kind of node that is not known, names that XML cannot say, or more than the reader takes.

    Examples
    --------
    >>> from collsim.topology import line
    >>> print(format_graphml(line(2)).partition("<graph ")[2])
    edgedefault="directed">
        <data key="graph_name">line</data>
        <node id="gpu0">
          <data key="node_kind">gpu</data>
          <data key="node_rank">0</data>
        </node>
        <node id="gpu1">
          <data key="node_kind">gpu</data>
          <data key="node_rank">1</data>
        </node>
        <edge id="0" source="gpu0" target="gpu1">
          <data key="edge_bandwidth">50000000000</data>
          <data key="edge_latency">1us</data>
          <data key="edge_index">0</data>
        </edge>
        <edge id="1" source="gpu1" target="gpu0">
          <data key="edge_bandwidth">50000000000</data>
          <data key="edge_latency">1us</data>
          <data key="edge_index">1</data>
        </edge>
      </graph>
    </graphml>
    <BLANKLINE>
    """
    _refuse(topology)
    if 2 * topology.n_nodes + 4 * topology.n_links > MAX_ELEMENTS:  # elements at the least
        _refuse_size(topology)
    labels = {key: _clean(getattr(topology, key)) for key in KEYS["graph"]}
    body = list(_lines("    ", "graph", {key: text for key, text in labels.items() if text}))
    count = len(body)
    for attributes, start in (*_node_elements(topology), *_edge_elements(topology)):
        count += 1 + len(attributes)
        part = start[1:5]
        body += [f"    {start}>", *_lines("      ", part, attributes), f"    </{part}>"]
    head = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
        *(
            f'  <key id="{part}_{key}" for="{part}" attr.name="{key}" attr.type="{kind}"/>'
            for part, keys in KEYS.items()
            for key, kind in keys.items()
        ),
        '  <graph edgedefault="directed">',
    ]
    text = "\n".join([*head, *body, "  </graph>", "</graphml>"]) + "\n"
    if count + 50 > MAX_ELEMENTS or len(text.encode()) > MAX_BYTES:
        _refuse_size(topology)
    return text


def _refuse_size(topology: Topology) -> NoReturn:
    raise TopologyError(
        f"topology {shown(topology.name)}: GraphML of {topology.n_links:,} links is more than {MAX_ELEMENTS:,} "
        f"elements or {MAX_BYTES // 2**20} MiB, which nothing reads; write a topology file (.yaml) instead"
    )


def _refuse(topology: Topology) -> None:
    """Refuse what GraphML cannot say, or only for us."""

    def fail(what: str, instead: str) -> NoReturn:
        raise TopologyError(f"topology {shown(topology.name)}: GraphML cannot say {what}; {instead}")

    if topology.given_routes:
        fail("given routes", "write a topology file (.yaml), which can")
    for name, kind in zip(topology.nodes, topology.kinds, strict=True):
        if kind not in KINDS:
            fail(f"the kind {shown(kind)} of {shown(name)}", f"expected one of {', '.join(KINDS)}")
        if not is_name(name):
            fail(f"the name {shown(name)}", "write a topology file (.yaml), which changes such names")
    for kind in topology.link_kind_names:
        if kind and (not is_name(kind) or kind != kind.strip()):
            fail(f"the kind {shown(kind)} of links", "take a word such as nvlink")


def _clean(text: str) -> str:
    """Return a label without the characters that XML does not have."""
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text).strip()


def _lines(indent: str, part: str, attributes: dict[str, Any]) -> Iterator[str]:
    for key, value in attributes.items():
        yield f'{indent}<data key="{part}_{key}">{escape(str(value), quote=False)}</data>'


def _node_elements(topology: Topology) -> Iterator[tuple[dict[str, Any], str]]:
    ranks = topology.rank_of_node.tolist()
    for number, (name, kind) in enumerate(zip(topology.nodes, topology.kinds, strict=True)):
        attributes: dict[str, Any] = {"kind": kind}
        if ranks[number] >= 0:
            attributes["rank"] = ranks[number]
        if overhead := int(topology.send_overhead[number]):
            attributes["send_overhead"] = format_time(overhead)
        attributes |= {key: rate for key in RATES if (rate := int(getattr(topology, key)[number]))}
        for key, otherwise in SWITCHES.items():
            if (flag := bool(getattr(topology, key)[number])) != otherwise:
                attributes[key] = "true" if flag else "false"
        yield attributes, f'<node id="{escape(name)}"'


def _edge_elements(topology: Topology) -> Iterator[tuple[dict[str, Any], str]]:
    ends = [escape(name) for name in topology.nodes]
    times = {time: format_time(time) for time in np.unique(topology.link_latency).tolist()}
    columns = (topology.link_src, topology.link_dst, topology.link_bandwidth, topology.link_latency)
    for link, (src, dst, bandwidth, latency) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        attributes: dict[str, Any] = {"bandwidth": bandwidth, "latency": times[latency]}
        if kind := topology.link_kind(link):
            attributes["kind"] = kind
        yield attributes | {"index": link}, f'<edge id="{link}" source="{ends[src]}" target="{ends[dst]}"'
