"""A topology to a SimGrid platform of version 4.1: one zone, the routes of all pairs of ranks."""

from __future__ import annotations

import os
import re
from collections import Counter
from xml.sax.saxutils import quoteattr

import numpy as np

from collsim.errors import TopologyError, shown
from collsim.formats.simgrid.model import MAX_NAME
from collsim.formats.xmltree import MAX_ELEMENTS
from collsim.outputs import output_path, write_whole
from collsim.topology.graph import Topology
from collsim.topology.names import MAX_ROUTES
from collsim.units import format_bandwidth, format_time

__all__ = ["format_simgrid", "write_simgrid"]


def write_simgrid(topology: Topology, path: str | os.PathLike[str]) -> None:
    """Write a topology as a platform that SimGrid 3.32 and later load.

    Ranks become hosts of 1 Gf/s, other nodes routers of the same name. Each link goes one way, as here: it is a SHARED
    link that routes cross in one direction only. SimGrid has one route for a pair of hosts, so each pair has that of
    channel 0; parallel links stay links of their own, and those that channel 0 does not take lie idle. Rates and
    latencies are exact. What `read_simgrid` needs to find nodes, kinds and idle links again stands in properties, which
    SimGrid passes over. That switches reduce or copy is not written: SimGrid has no such devices, and single messages
    take the same time with and without.

    Parameters
    ----------
    topology
        Up to some 400 ranks: all pairs must be joined, and their routes are written out.
    path
        A name that ends in ``.xml``.

    Raises
    ------
    TopologyError
        If there are too many routes, two ranks have none, a name cannot be written, or a device has a send overhead, a
        rate of reduction or a rate of a channel, for which SimGrid has no word.
    InputError
        If the file cannot be written.

    Examples
    --------
    >>> import collsim.topology
    >>> ring = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    >>> write_simgrid(ring, "no/such/ring.xml")
    Traceback (most recent call last):
    collsim.errors.InputError: SimGrid platform: no/such/ring.xml: no such directory; make it first
    """
    target = output_path(path, "SimGrid platform", (".xml",))
    write_whole(target, format_simgrid(topology).encode(), "SimGrid platform")


def format_simgrid(topology: Topology) -> str:
    r"""Return the text of the platform; see `write_simgrid`.

    Examples
    --------
    >>> import collsim.topology
    >>> text = format_simgrid(collsim.topology.ring(3, bandwidth="50GB/s", latency="1us"))
    >>> [line.strip() for line in text.split("\n") if "<link id" in line][0]
    '<link id="gpu0-&gt;gpu1" bandwidth="50GBps" latency="1us">'
    """
    _check(topology)
    n = topology.n_ranks
    src, dst = (ends.ravel() for ends in np.nonzero(~np.eye(n, dtype=bool)))
    if len(src) > MAX_ROUTES:
        _too_many(topology, f"{len(src):,} routes")
    ptr, links = topology.routes(src, dst, 0)
    if len(src) + len(links) + 4 * topology.n_links + 2 * topology.n_nodes > MAX_ELEMENTS:
        _too_many(topology, f"{len(src):,} routes over {len(links):,} links")
    names = [quoteattr(node) for node in topology.nodes]
    link_names = [quoteattr(topology.link_name(link)) for link in range(topology.n_links)]
    nodes = topology.rank_nodes.tolist()
    lines = [
        '<?xml version="1.0"?>',
        '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
        '<platform version="4.1">',
        f'  <zone id={quoteattr(_zone_name(topology))} routing="Full">',
        '    <prop id="collsim" value="1"/>',
        *_properties(topology),
    ]
    # Hosts stand in the order of the ranks, and if that allows it all nodes in their own.
    others = np.flatnonzero(topology.rank_of_node < 0).tolist()
    ranks = set(nodes)
    for node in sorted(nodes + others) if sorted(nodes) == nodes else nodes + others:
        lines.append(
            f'    <host id={names[node]} speed="1Gf"/>' if node in ranks else f"    <router id={names[node]}/>"
        )
    for link in range(topology.n_links):
        rate = format_bandwidth(int(topology.link_bandwidth[link])).replace("B/s", "Bps")
        time = format_time(int(topology.link_latency[link]))
        kind = topology.link_kind(link)
        ends = ("src", topology.link_src[link]), ("dst", topology.link_dst[link])
        lines.append(f'    <link id={link_names[link]} bandwidth="{rate}" latency="{time}">')
        lines += [f'      <prop id="{key}" value={names[end]}/>' for key, end in ends]
        if kind:
            lines.append(f'      <prop id="kind" value={quoteattr(kind)}/>')
        lines.append("    </link>")
    for route in range(len(src)):
        a, b = (names[nodes[int(end[route])]] for end in (src, dst))
        lines.append(f'    <route src={a} dst={b} symmetrical="NO">')
        lines += [f"      <link_ctn id={link_names[link]}/>" for link in links[ptr[route] : ptr[route + 1]].tolist()]
        lines.append("    </route>")
    return "\n".join([*lines, "  </zone>", "</platform>", ""])


def _properties(topology: Topology) -> list[str]:
    """Return what the elements cannot say of nodes."""
    ranks = topology.rank_of_node
    told = []
    for node, (name, kind) in enumerate(zip(topology.nodes, topology.kinds, strict=True)):
        if kind != ("switch" if ranks[node] < 0 else "gpu"):
            told.append((f"kind.{name}", kind))
        if not topology.forwards[node]:
            told.append((f"forwards.{name}", "no"))
    return [f"    <prop id={quoteattr(key)} value={quoteattr(value)}/>" for key, value in told]


def _zone_name(topology: Topology) -> str:
    name = re.sub(r"[^\w.-]", "_", topology.name)[:100] or "platform"
    while name in topology.nodes:
        name += "_"
    return name


def _check(topology: Topology) -> None:
    """Refuse what SimGrid has no word for."""
    for attribute, what in (
        ("send_overhead", "send overhead"),
        ("reduce_bandwidth", "rate of reduction"),
        ("channel_bandwidth", "rate of a channel"),
    ):
        found = np.flatnonzero(getattr(topology, attribute))
        if len(found):
            raise TopologyError(
                f"topology {topology.name!r}: SimGrid has no word for the {what} of {shown(topology.nodes[found[0]])}; "
                "write YAML, or a topology without it"
            )
    links = (topology.link_name(link) for link in range(topology.n_links))
    for name in (*topology.nodes, *links):
        if not name.isprintable() or len(name) > 2 * MAX_NAME:
            raise TopologyError(
                f"topology {topology.name!r}: expected printable names in a platform, got {shown(name)}"
            )
    if (double := Counter(topology.link_name(link) for link in range(topology.n_links)).most_common(1)) and double[0][
        1
    ] > 1:
        raise TopologyError(f"topology {topology.name!r}: two links have the name {shown(double[0][0])}; rename a node")


def _too_many(topology: Topology, what: str) -> None:
    raise TopologyError(
        f"topology {topology.name!r}: a SimGrid platform lists the route of every pair of ranks, here {what}, beyond "
        "what is sensible in a file; write YAML or GraphML, or a smaller machine"
    )
