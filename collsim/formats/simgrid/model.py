"""A SimGrid platform in memory: points, links, zones that know routes between their points.

A route is a row of whole numbers. A number from 0 is a point that it passes (`Point.number`), a negative one a link
that it crosses: ``~(2 * link)`` the way that the file lists it, ``~(2 * link + 1)`` the other way, when a symmetrical
route is turned round. A full duplex link is two links, and the other way of one is the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from collsim.errors import did_you_mean, shown
from collsim.formats.source import Source
from collsim.formats.xmltree import Element

__all__ = ["MAX_HOSTS", "MAX_LINKS", "Link", "Platform", "Point", "Route", "TooMuch", "Zone", "crossing"]

MAX_HOSTS = 100_000
MAX_LINKS = 1_000_000
"""More than these are refused before any is made: each is a Python object for a while."""

MAX_NAME = 200
MAX_ROUTE = 10_000
"""Links and points of a route: zones in zones could double its length with every level."""

MAX_WORK = 10_000_000
"""Steps of looking for shortest routes: some seconds."""

Route = list[int]


class TooMuch(Exception):
    """Finding the routes of all pairs would take too long."""


@dataclass(slots=True, eq=False)
class Point:
    """What routes lead to: a host, a router, a zone, or a switch inside a cluster that has no name in the file.

    Attributes
    ----------
    name, kind
        As in the file; ``host``, ``router``, ``zone`` or ``inner``.
    zone
        What it is in.
    number
        Its number in the platform.
    inside
        The zone that it stands for, if it does.
    """

    name: str
    kind: str
    zone: Zone | None
    number: int
    inside: Zone | None = None


@dataclass(slots=True, eq=False)
class Link:
    """A link, or one direction of a full duplex link.

    Attributes
    ----------
    name, bandwidth, latency
        Bytes/s, picoseconds.
    fat
        Whether no two routes share it (FATPIPE).
    other
        The opposite direction, if it is one of two.
    kind
        Kind of the link in the topology, where the file has it.
    ends
        Names of the nodes that it joins, where the file has them.
    """

    name: str
    bandwidth: int
    latency: int
    fat: bool = False
    other: int | None = None
    kind: str = ""
    ends: tuple[str, str] | None = None


@dataclass(eq=False)
class Zone:
    """A zone without routes of its own (``None``); those that have some are in ``zones`` and ``clusters``."""

    platform: Platform
    element: Element
    name: str
    parent: Zone | None
    number: int = -1
    points: list[int] = field(default_factory=list)
    bypass: dict[tuple[int, int], Route] = field(default_factory=dict)

    forwards = False
    """Whether routes may pass through its hosts."""

    def local(self, src: int, dst: int) -> tuple[Route, int, int] | None:
        """Return the route between two points directly in the zone, and where it really begins and ends."""
        return None

    def segments(self, every: bool) -> Iterator[Route]:
        """Yield pieces of routes, each from a point to a point, that tell what joins what.

        All of them if ``every`` is wanted, otherwise those that the routes between hosts may miss.
        """
        return iter(())

    def path(self) -> list[Zone]:
        """Return the zones from this one to the outermost."""
        zones: list[Zone] = []
        zone: Zone | None = self
        while zone is not None:
            zones.append(zone)
            zone = zone.parent
        return zones


@dataclass(eq=False)
class Platform:
    """All that a file describes."""

    source: Source
    points: list[Point] = field(default_factory=list)
    names: dict[str, Point] = field(default_factory=dict)
    hosts: list[int] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    link_names: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    zones: list[Zone] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    gateways: set[int] = field(default_factory=set)
    fat_tree_hosts: int = 0
    work: int = 0

    def fail(self, message: str) -> NoReturn:
        """Refuse the platform as a whole."""
        if self.zones:
            self.zones[0].element.fail(message)
        self.source.fail(message, 1, 1)

    def spend(self, steps: int) -> None:
        """Count steps of looking for routes.

        Raises
        ------
        TooMuch
            If they are more than ``MAX_WORK``.
        """
        self.work += steps
        if self.work > MAX_WORK:
            raise TooMuch

    def note(self, sentence: str) -> None:
        """Keep a sentence for the description, once."""
        self.notes[sentence] = None

    def add_point(self, element: Element, name: str, kind: str, zone: Zone | None) -> int:
        """Add a point, and return its number."""
        checked(element, name)
        if name in self.names:
            element.fail(f"expected a name that is not yet taken, got {shown(name)} again")
        number = len(self.points)
        point = Point(name, kind, zone, number)
        self.points.append(point)
        self.names[name] = point
        if zone is not None:
            zone.points.append(number)
        if kind == "host":
            if len(self.hosts) >= MAX_HOSTS:
                element.fail(f"expected at most {MAX_HOSTS:,} hosts, got more")
            self.hosts.append(number)
        return number

    def add_inner(self, name: str, zone: Zone) -> int:
        """Add a switch that the file has no name for."""
        self.points.append(Point(name, "inner", zone, len(self.points)))
        return len(self.points) - 1

    def add_link(self, element: Element, name: str, rate: int, delay: int, policy: str = "SHARED") -> tuple[int, int]:
        """Add a link, and return what the way up and the way down cross."""
        if len(self.links) + 2 > MAX_LINKS:
            element.fail(f"expected at most {MAX_LINKS:,} links, got more")
        first = len(self.links)
        if policy == "SPLITDUPLEX":
            self.links.append(Link(f"{name}_UP", rate, delay, other=first + 1))
            self.links.append(Link(f"{name}_DOWN", rate, delay, other=first))
            return ~(2 * first), ~(2 * first + 2)
        self.links.append(Link(name, rate, delay, fat=policy == "FATPIPE"))
        return ~(2 * first), ~(2 * first + 1)

    def named_link(self, element: Element, name: str, rate: int, delay: int, policy: str) -> list[Link]:
        """Add a link that routes of the file can name, and return it, or both its directions."""
        checked(element, name)
        first = len(self.links)
        self.add_link(element, name, rate, delay, policy)
        double = policy == "SPLITDUPLEX"
        new: dict[str, tuple[int, int | None]] = {name: (first, first + 1 if double else None)}
        if double:
            new |= {f"{name}_UP": (first, None), f"{name}_DOWN": (first + 1, None)}
        for key in new:
            if key in self.link_names:
                element.fail(f"expected a name that is not yet taken, got the link {shown(key)} again")
        self.link_names |= new
        return self.links[first:]

    def point(self, element: Element, attribute: str, kinds: tuple[str, ...]) -> Point:
        """Return the point that an attribute names."""
        name = element.get(attribute)
        point = self.names.get(name)
        if point is None or point.kind not in kinds:
            known = (name for name, point in self.names.items() if point.kind in kinds)
            hint = did_you_mean(name[:60], known) if len(self.names) <= 10_000 else ""
            element.fail(f"expected a {' or '.join(kinds)}, got {shown(name)}{hint}", attribute)
        return point

    def route(self, src: int, dst: int) -> Route | None:
        """Return the route that SimGrid takes from a host or router to another, ends included; None without one."""
        done: Route = []
        todo: list[Route | tuple[int, int, int]] = [(src, dst, 0)]
        while todo:  # legs that are not yet known, the next one last
            leg = todo.pop()
            if isinstance(leg, list):
                done += leg
            else:
                here, there, depth = leg
                if here == there:
                    continue
                zone, a, b = self._meeting(here, there)
                found = zone.local(a, b)
                if found is None or depth > 64:
                    return None
                links, first, last = found
                todo += [(last, there, depth + 1), links, (here, first, depth + 1)]
            if len(done) > MAX_ROUTE:
                self.fail(
                    f"expected routes of at most {MAX_ROUTE:,} links, got more from {self.points[src].name!r} to "
                    f"{self.points[dst].name!r}"
                )
        return [src, *(token for token in done if token not in (src, dst)), dst]

    def _meeting(self, src: int, dst: int) -> tuple[Zone, int, int]:
        """Return the innermost zone around both points, and what is directly in it: the points or zones around them."""
        a, b = self.points[src], self.points[dst]
        assert a.zone is not None
        assert b.zone is not None
        if a.zone is b.zone:
            return a.zone, src, dst
        above, beside = a.zone.path(), b.zone.path()
        while len(above) > 1 and len(beside) > 1 and above[-2] is beside[-2]:
            above.pop()
            beside.pop()
        return above[-1], above[-2].number if len(above) > 1 else src, beside[-2].number if len(beside) > 1 else dst


def checked(element: Element, name: str) -> str:
    """Refuse a name that cannot be shown."""
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        element.fail(f"expected a name of 1 to {MAX_NAME} printable letters, got {shown(name)}")
    return name


def crossing(link: int) -> int:
    """Return what stands in a route for a link, crossed as listed."""
    return ~(2 * link)
