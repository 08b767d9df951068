"""The elements of a platform file to a `Platform`."""

from __future__ import annotations

import os
import re
from pathlib import PurePath

from collsim.errors import did_you_mean, shown
from collsim.formats.simgrid.build import build
from collsim.formats.simgrid.clusters import DragonflyZone, FatTreeZone, ShapedZone, TorusZone
from collsim.formats.simgrid.model import MAX_HOSTS, Platform, Route, Zone, crossing
from collsim.formats.simgrid.units import bandwidth, latency, policy, radicals
from collsim.formats.simgrid.zones import DijkstraZone, FloydZone, FullZone, StarZone
from collsim.formats.source import Source, read_source
from collsim.formats.xmltree import Element, parse_xml
from collsim.topology.graph import Topology

__all__ = ["parse_simgrid", "read_simgrid"]

ROUTINGS: dict[str, type[Zone]] = {
    "full": FullZone,
    "floyd": FloydZone,
    "dijkstra": DijkstraZone,
    "dijkstracache": DijkstraZone,
    "none": Zone,
    "cluster": StarZone,
}
SHAPES: dict[str, type[ShapedZone]] = {"TORUS": TorusZone, "FAT_TREE": FatTreeZone, "DRAGONFLY": DragonflyZone}

IGNORED = frozenset(
    {
        "config",
        "random",
        "prop",
        "actor",
        "process",
        "argument",
        "storage",
        "storage_type",
        "mount",
        "disk",
        "model_prop",
    }
    | {"trace", "trace_connect"}
)
"""Elements that change nothing about the machine that a collective sees, or are told of otherwise."""

MAX_KIND = 40
"""Letters of the kind of a link."""

PROFILES = ("bandwidth_file", "latency_file", "state_file", "speed_file", "availability_file")


def read_simgrid(path: str | os.PathLike[str]) -> Topology:
    """Read a SimGrid platform, version 4 or 4.1.

    Parameters
    ----------
    path
        The XML file. Nothing else is opened: neither its DTD, nor profiles, nor other files that it names.

    Returns
    -------
    Topology
        Hosts are the ranks, of kind ``gpu``, in the order of the file (SimGrid itself lists them by name: ``node-10``
        comes before ``node-2``). Routes are SimGrid's for each pair, up to some 200 hosts; beyond that only those that
        the file lists, the rest take the shortest path, and the description says so. See
        `collsim.formats.simgrid` for what is read and how links are shared.

    Raises
    ------
    TopologyError
        If it is no such file, describes no machine, or one that collsim cannot model; with the place.

    Examples
    --------
    >>> read_simgrid("no/such.xml")
    Traceback (most recent call last):
    collsim.errors.TopologyError: no/such.xml: expected a SimGrid platform, got no such file
    """
    return parse_simgrid(read_source(path, "a SimGrid platform"))


def parse_simgrid(source: Source) -> Topology:
    """Return the topology of the text of a platform.

    Examples
    --------
    >>> topology = parse_simgrid(Source("pair.xml", '''<platform version="4.1"><zone id="z" routing="Full">
    ...   <host id="a" speed="1Gf"/> <host id="b" speed="1Gf"/> <link id="l" bandwidth="1GBps" latency="5us"/>
    ...   <route src="a" dst="b"><link_ctn id="l"/></route> </zone></platform>'''))
    >>> topology.ranks, [topology.link_name(link) for link in topology.route(1, 0)]
    (('a', 'b'), ['b->l.in', 'l.in->l.out', 'l.out->a'])
    """
    root = parse_xml(source)
    if root.tag != "platform":
        root.fail(f"expected a SimGrid platform, got the element {shown(root.tag)}")
    _version(root)
    platform = Platform(source)
    tops = [child for child in root.children if child.tag not in IGNORED]
    for child in root.children:
        if child.tag in ("trace", "trace_connect"):
            platform.note("Profiles over time are not followed: rates are those of the start.")
    if len(tops) != 1:
        root.fail(f"expected one zone around all others, got {len(tops)}")
    _zone(platform, tops[0], None)
    return build(platform, PurePath(source.name).name.partition(".")[0] or "platform")


def _version(root: Element) -> None:
    text = root.get("version", "0").strip()
    found = re.fullmatch(r"(\d{1,4})(?:\.\d{1,4})?", text, re.ASCII)
    if found is None:
        root.fail(f"expected the version 4.1, got {shown(text)}", "version")
    if int(found[1]) < 4:
        root.fail(f"expected the version 4 or 4.1, got {text}; run simgrid_update_xml on the file", "version")
    if int(found[1]) > 4:
        root.fail(f"expected the version 4 or 4.1, got {text}, which is newer than what collsim knows", "version")


def _zone(platform: Platform, element: Element, parent: Zone | None) -> None:
    """Take a zone with all that is in it: first what routes speak of, then the routes."""
    if element.tag == "cluster":
        _cluster(platform, element, parent)
        return
    if element.tag not in ("zone", "AS"):
        _unknown(element)
    routing = element.get("routing").strip().lower()
    if routing in ("vivaldi", "wifi"):
        element.fail(
            f"expected routes over links, got the routing {routing.capitalize()}, which collsim does not model; "
            "write the links out in a zone with the routing Full, Floyd or Dijkstra",
            "routing",
        )
    if routing not in ROUTINGS:
        known = ("Full", "Floyd", "Dijkstra", "DijkstraCache", "None", "Cluster")
        hint = did_you_mean(routing[:40].capitalize(), known)
        element.fail(f"expected one of {', '.join(known)}, got {shown(element.get('routing'))}{hint}", "routing")
    zone = _added(platform, ROUTINGS[routing](platform, element, element.get("id"), parent))
    late = []
    for child in element.children:
        if child.tag in ("route", "zoneRoute", "ASroute", "bypassRoute", "host_link", "cabinet", "backbone"):
            late.append(child)
        elif child.tag in ("zone", "AS", "cluster"):
            _zone(platform, child, zone)
        else:
            _simple(platform, child, zone)
    if isinstance(zone, StarZone):
        _star(platform, zone, late)
        late = [child for child in late if child.tag == "bypassRoute"]
    for child in late:
        _route(platform, child, zone)


def _added(platform: Platform, zone: Zone) -> Zone:
    zone.number = platform.add_point(zone.element, zone.name, "zone", zone.parent)
    platform.points[zone.number].inside = zone
    platform.zones.append(zone)
    return zone


def _simple(platform: Platform, element: Element, zone: Zone) -> None:
    """Take a host, a router or a link."""
    if any(element.attributes.get(key) for key in PROFILES) or element.tag in ("trace", "trace_connect"):
        platform.note("Profiles over time are not followed: rates are those of the start.")
    if element.tag == "host":
        platform.add_point(element, element.get("id"), "host", zone)
    elif element.tag == "router":
        platform.add_point(element, element.get("id"), "router", zone)
    elif element.tag == "link":
        _link(platform, element)
    elif element.tag == "prop":
        if zone.parent is None:
            platform.properties[element.get("id")] = element.get("value")
    elif element.tag not in IGNORED:
        _unknown(element)


def _link(platform: Platform, element: Element) -> None:
    rate, delay = bandwidth(element, "bandwidth"), latency(element, "latency", "0")
    links = platform.named_link(element, element.get("id"), rate, delay, policy(element, "sharing_policy", "SHARED"))
    if "collsim" not in platform.properties or len(links) > 1 or links[0].fat:
        return
    # What `write_simgrid` says of its links: their kind, and the nodes that they join.
    told = {prop.get("id"): prop.get("value") for prop in element.all("prop")}
    if told.get("kind", "").isprintable():
        links[0].kind = told.get("kind", "")[:MAX_KIND]
    ends = told.get("src", ""), told.get("dst", "")
    if ends[0] != ends[1] and all(end in platform.names and platform.names[end].kind != "zone" for end in ends):
        links[0].ends = ends


def _cluster(platform: Platform, element: Element, parent: Zone | None) -> None:
    shape = element.get("topology", "FLAT").strip().upper()
    if shape not in ("FLAT", *SHAPES):
        hint = did_you_mean(shape[:40], ["FLAT", *SHAPES])
        element.fail(
            f"expected one of FLAT, {', '.join(SHAPES)}, got {shown(element.get('topology'))}{hint}", "topology"
        )
    numbers = radicals(element, MAX_HOSTS)
    kind = SHAPES.get(shape, StarZone)
    zone = _added(platform, kind(platform, element, element.get("id"), parent))
    if isinstance(zone, ShapedZone) and zone.size != len(numbers):
        element.fail(f"expected {zone.size:,} hosts, as topo_parameters has them, got {len(numbers):,}", "radical")
    prefix, suffix = element.get("prefix", ""), element.get("suffix", "")
    hosts = [platform.add_point(element, f"{prefix}{number}{suffix}", "host", zone) for number in numbers]
    rate, delay = bandwidth(element, "bw"), latency(element, "lat")
    sharing = policy(element, "sharing_policy", "SPLITDUPLEX")
    limit = bandwidth(element, "limiter_link") if element.attributes.get("limiter_link") else 0
    if isinstance(zone, ShapedZone):
        zone.hosts, zone.rate, zone.delay, zone.policy, zone.limit = hosts, rate, delay, sharing, limit
        zone.build()
        return
    assert isinstance(zone, StarZone)
    router = element.get("router_id", "") or f"{prefix}{element.get('id')}_router{suffix}"
    middle = platform.add_point(element, router, "router", zone)
    zone.middle = [middle]
    if element.attributes.get("bb_bw") or latency(element, "bb_lat", "0"):
        what = bandwidth(element, "bb_bw"), latency(element, "bb_lat", "0")
        _backbone(platform, element, zone, *what, policy(element, "bb_sharing_policy", "SHARED"))
    for number, host in zip(numbers, hosts, strict=True):
        name = f"{zone.name}_link_{number}"
        up, down = platform.add_link(element, name, rate, delay, sharing)
        zone.up[host], zone.down[host] = [up], [down]
        if limit:
            limiter = platform.add_link(element, f"{name}_limiter", limit, 0)
            zone.up[host], zone.down[host] = [limiter[0], up], [down, limiter[1]]


def _backbone(platform: Platform, element: Element, zone: StarZone, rate: int, delay: int, sharing: str) -> None:
    first, last = (platform.add_inner(f"{zone.name}.{side}", zone) for side in ("up", "down"))
    zone.middle = [first, platform.add_link(element, f"{zone.name}_backbone", rate, delay, sharing)[0], last]


def _star(platform: Platform, zone: StarZone, elements: list[Element]) -> None:
    """Take what makes up a zone with the routing Cluster: its backbone, cabinets, and links of hosts."""
    zone.middle = [platform.add_inner(f"{zone.name}.switch", zone)]
    for element in elements:
        if element.tag == "backbone":
            rate, delay = bandwidth(element, "bandwidth"), latency(element, "latency")
            _backbone(platform, element, zone, rate, delay, "SHARED")
        elif element.tag == "cabinet":
            rate, delay = bandwidth(element, "bw"), latency(element, "lat")
            for number in radicals(element, MAX_HOSTS):
                name = f"{element.get('prefix', '')}{number}{element.get('suffix', '')}"
                host = platform.add_point(element, name, "host", zone)
                up, down = platform.add_link(element, f"link_{name}", rate, delay, "SPLITDUPLEX")
                zone.up[host], zone.down[host] = [up], [down]
        elif element.tag == "host_link":
            host = platform.point(element, "id", ("host", "router")).number
            if platform.points[host].zone is not zone:
                element.fail(f"expected a host of zone {shown(zone.name)}, got {shown(element.get('id'))}", "id")
            zone.up[host] = [_crossed(platform, element, "up", "NONE")]
            zone.down[host] = [_crossed(platform, element, "down", "NONE")]
        elif element.tag != "bypassRoute":
            element.fail("expected host_link, cabinet and backbone in a zone with the routing Cluster, got a route")


def _route(platform: Platform, element: Element, zone: Zone) -> None:
    if element.tag in ("host_link", "cabinet", "backbone"):
        element.fail("expected it in a zone with the routing Cluster, got it in another")
    between = element.tag in ("zoneRoute", "ASroute")
    kinds = ("zone",) if between else ("host", "router")
    src, dst = (platform.point(element, key, kinds) for key in ("src", "dst"))
    for key, point in (("src", src), ("dst", dst)):
        if point.zone is not zone:
            element.fail(f"expected a {'zone' if between else 'host or router'} directly in {shown(zone.name)}, got "
                         f"{shown(point.name)}, which is elsewhere", key)  # fmt: skip
    first, last = src, dst
    if between:
        first, last = (platform.point(element, key, ("host", "router")) for key in ("gw_src", "gw_dst"))
        for key, gate, around in (("gw_src", first, src), ("gw_dst", last, dst)):
            if gate.zone is None or around.inside not in gate.zone.path():
                element.fail(f"expected a host or router of {shown(around.name)}, got {shown(gate.name)}", key)
            platform.gateways.add(gate.number)
    crossed = list(element.all("link_ctn"))
    links = [_crossed(platform, child, "id", child.get("direction", "NONE")) for child in crossed]
    for child in element.children:
        if child.tag != "link_ctn":
            _unknown(child)
    route = [first.number, *_with_ends(platform, links), last.number]
    if element.tag == "bypassRoute":
        if (src.number, dst.number) in zone.bypass:
            element.fail(f"expected one bypass from {shown(src.name)} to {shown(dst.name)}, got another")
        zone.bypass[src.number, dst.number] = route
        return
    if not isinstance(zone, FullZone):
        element.fail("expected routes in a zone that has some, got one where the routing is None", "src")
    word = element.get("symmetrical", "YES").strip().upper()
    if word not in ("YES", "NO"):
        element.fail(f"expected YES or NO, got {shown(word)}", "symmetrical")
    returning = {token: _returning(platform, child, token) for child, token in zip(crossed, links, strict=True)}
    back = [returning.get(token, token) for token in reversed(route)]
    zone.add(element, src.number, dst.number, route, back if word == "YES" else None)


def _returning(platform: Platform, element: Element, token: int) -> int:
    """Return what crosses a link on the way back.

    Of a full duplex link that is its other direction, but a direction that is named by itself is one link both ways.
    """
    link, way = divmod(~token, 2)
    _, down = platform.link_names[element.get("id")]
    other = platform.links[link].other
    return crossing(other) if down is not None and other is not None else ~(2 * link + 1 - way)


def _crossed(platform: Platform, element: Element, attribute: str, direction: str) -> int:
    """Return what crosses the link that an attribute names."""
    name = element.get(attribute)
    found = platform.link_names.get(name)
    if found is None:
        hint = did_you_mean(name[:60], platform.link_names) if len(platform.link_names) <= 10_000 else ""
        element.fail(f"expected a link, got {shown(name)}{hint}", attribute)
    up, down = found
    if down is None:
        return crossing(up)
    way = direction.strip().upper()
    if way not in ("UP", "DOWN"):
        element.fail(
            f"expected the direction UP or DOWN for the full duplex link {shown(name)}, got {shown(direction)}",
            attribute,
        )
    return crossing(up if way == "UP" else down)


def _with_ends(platform: Platform, links: Route) -> Route:
    """Put the nodes beside the links of which the file says what they join."""
    route: Route = []
    for token in links:
        ends = platform.links[~token // 2].ends
        route += [token] if ends is None else [platform.names[ends[0]].number, token, platform.names[ends[1]].number]
    return route


def _unknown(element: Element) -> None:
    remedies = {
        "include": "put what it includes in its place",
        "peer": "it is for the routing Vivaldi, which collsim does not model; write hosts and links out",
        "bypassZoneRoute": "give the way in a zoneRoute, or a route between hosts in one zone",
        "bypassASroute": "give the way in a zoneRoute, or a route between hosts in one zone",
    }
    known = (
        "zone",
        "cluster",
        "host",
        "router",
        "link",
        "route",
        "zoneRoute",
        "link_ctn",
        "cabinet",
        "host_link",
        "backbone",
    )
    remedy = f"; {remedies[element.tag]}" if element.tag in remedies else did_you_mean(element.tag[:40], known)
    element.fail(f"expected an element of a platform, got {shown(element.tag)}{remedy}")
