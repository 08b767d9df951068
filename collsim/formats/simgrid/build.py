"""A platform to a topology: which routes are given, what is said about them, nodes and links."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from collsim.errors import TopologyError
from collsim.formats.simgrid.model import Link, Platform, Point, Route, TooMuch
from collsim.formats.simgrid.wiring import Graph, connect
from collsim.formats.simgrid.zones import FullZone
from collsim.topology.builder import TopologyBuilder
from collsim.topology.graph import Topology
from collsim.topology.names import KINDS, MAX_LINKS, MAX_ROUTES
from collsim.units import INT64_MAX

__all__ = ["MAX_PAIRS", "build"]

MAX_PAIRS = 40_000
"""Up to so many pairs of hosts each gets the very route that SimGrid takes."""

MAX_LENGTH = 4_000_000
"""Links and points of all these routes together."""


def build(platform: Platform, name: str) -> Topology:
    """Return the topology of a platform.

    Raises
    ------
    TopologyError
        If there is no host, more routes or links than fit, or a route that crosses a link twice.
    """
    hosts = platform.hosts
    if not hosts:
        platform.fail("expected hosts, got a platform without any")
    given, missing = _all_pairs(platform)
    exact = given is not None
    if given is None:
        given = _listed(platform)
    if len(given) > MAX_ROUTES:
        platform.fail(f"expected at most {MAX_ROUTES:,} routes between hosts, got {len(given):,}")
    segments = [
        route
        for zone in platform.zones
        for route in zone.segments(not exact)
        if exact or (route[0], route[-1]) not in given
    ]
    segments += _hinted(platform)
    routes = _without_sharing(platform, [*given.values(), *segments], len(given))
    graph = connect(platform, routes)
    if len(graph.links) > MAX_LINKS:
        platform.fail(f"expected at most {MAX_LINKS:,} links, got {len(graph.links):,}")
    return _topology(platform, name, graph, list(given), exact, missing)


def _all_pairs(platform: Platform) -> tuple[dict[tuple[int, int], Route] | None, int]:
    """Return SimGrid's route of each pair of hosts, and how many pairs have none; None where that is too much."""
    given: dict[tuple[int, int], Route] = {}
    missing = length = 0
    if len(platform.hosts) * (len(platform.hosts) - 1) > MAX_PAIRS:
        return None, 0
    try:
        for src, dst in permutations(platform.hosts, 2):
            route = platform.route(src, dst)
            if route is None:
                missing += 1
                continue
            given[src, dst] = route
            length += len(route)
            if length > MAX_LENGTH:
                return None, 0
    except TooMuch:
        return None, 0
    return given, missing


def _listed(platform: Platform) -> dict[tuple[int, int], Route]:
    """Return the routes between hosts that stand in the file as such."""
    return {
        (src, dst): route
        for zone in platform.zones
        if type(zone) is FullZone
        for (src, dst), route in (zone.routes | zone.bypass).items()
        if src != dst and platform.points[src].kind == platform.points[dst].kind == "host"
    }


def _hinted(platform: Platform) -> list[Route]:
    """Return a piece of a route for each link of which the file says what it joins."""
    found = []
    for number, link in enumerate(platform.links):
        if link.ends is not None:
            src, dst = (platform.names[end].number for end in link.ends)
            found.append([src, ~(2 * number), dst])
    return found


def _without_sharing(platform: Platform, routes: list[Route], given: int) -> list[Route]:
    """Give each route its own copy of the links that no two routes share."""
    if not any(link.fat for link in platform.links):
        return routes
    links = platform.links
    originals = len(links)
    wide: dict[int, int] = {}
    done = []
    for number, route in enumerate(routes):
        new = []
        for token in route:
            old = ~token // 2
            if token < 0 and links[old].fat:
                if number < given:
                    links.append(_copy(platform, old, 1))
                    token = ~(2 * (len(links) - 1))
                else:  # no pair of hosts: all may cross it, so it holds what all of them could send
                    if old not in wide:
                        links.append(_copy(platform, old, len(platform.hosts)))
                        wide[old] = len(links) - 1
                    token = ~(2 * wide[old] + ~token % 2)
            new.append(token)
        done.append(new)
        if len(links) > MAX_LINKS:
            platform.fail(f"expected at most {MAX_LINKS:,} links, got more: each route has its own of FATPIPE links")
    copies = len(links) - originals - len(wide)
    if copies:
        platform.note("No two pairs of hosts share a FATPIPE link: each has its own copy of it.")
    if wide:
        platform.note("FATPIPE links, which nobody shares, are here as wide as all hosts together need.")
    return done


def _copy(platform: Platform, number: int, times: int) -> Link:
    link = platform.links[number]
    return replace(link, bandwidth=min(link.bandwidth * times, INT64_MAX), fat=False)


def _topology(
    platform: Platform, name: str, graph: Graph, pairs: list[tuple[int, int]], exact: bool, missing: int
) -> Topology:
    points = platform.points
    touched = {end for a, b, _ in graph.links for end in (a, b)} | set(platform.hosts)
    passed = {graph.links[link][1] for links in graph.routes for link in links[:-1]}
    builder = TopologyBuilder(name, _description(platform, exact, missing), _source(platform))
    for number, node in enumerate(graph.nodes):
        if number in touched or _told(platform, node):
            kind, forwards = "switch", True
            if number < len(points):
                kind, forwards = _device(platform, points[number], number in passed, exact)
            builder.add_node(node, kind, forwards=forwards)
    for a, b, link in graph.links:
        builder.add_link(graph.nodes[a], graph.nodes[b], link.bandwidth, link.latency, kind=link.kind)
    routes = {
        (points[src].name, points[dst].name): links for (src, dst), links in zip(pairs, graph.routes, strict=False)
    }
    try:
        return builder.build([points[host].name for host in platform.hosts], routes or None)
    except TopologyError as error:
        platform.fail(str(error))


def _told(platform: Platform, name: str) -> bool:
    return f"kind.{name}" in platform.properties


def _device(platform: Platform, point: Point, passed: bool, exact: bool) -> tuple[str, bool]:
    """Return the kind of a point, and whether routes may pass it."""
    kind = "gpu" if point.kind == "host" else "switch"
    if "collsim" in platform.properties:
        told = platform.properties.get(f"kind.{point.name}")
        forwards = passed or platform.properties.get(f"forwards.{point.name}") != "no"
        return told if told in KINDS else kind, forwards
    if point.kind != "host":
        return kind, True
    assert point.zone is not None
    return kind, passed or (not exact and (point.zone.forwards or point.number in platform.gateways))


def _source(platform: Platform) -> str:
    return f"The SimGrid platform {platform.source.file}"


def _description(platform: Platform, exact: bool, missing: int) -> str:
    sentences = ["A SimGrid platform; its hosts are the ranks, in the order of the file."]
    if not exact:
        sentences.append(
            "There are too many routes between hosts to find and keep all: those that the file does not list take the "
            "shortest path, dealt out among equal ones, which need not be SimGrid's."
        )
    if missing:
        sentences.append(
            f"SimGrid has no route for {missing:,} pairs of hosts; those that are joined at all take the shortest path."
        )
    return " ".join([*sentences, *platform.notes])
