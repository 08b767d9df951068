"""Clusters in the shapes that SimGrid knows, with the routes that it takes in them.

- Torus: hosts are numbered with the first dimension fastest; a route goes along one dimension after the other, in each
  the shorter way round.
- Fat tree (``levels;down;up;parallel``): up by destination modulo the ports (D-mod-k) as far as needed, then down.
- Dragonfly (``groups,links;chassis,links;routers,links;nodes``): the minimal route. Only router i of the first chassis
  of a group has a link to group i. A link is as wide as its number in ``topo_parameters`` times the bandwidth. From
  hosts outside the first chassis to others of their group SimGrid 3.32 counts links that do not join; these routes
  are minimal here too.

Facts from SimGrid's documentation ("XML reference", "Modeling hierarchical networks") and the behaviour of its version
3.32, against which the tests hold them where that is installed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from collsim.formats.simgrid.model import MAX_HOSTS, MAX_LINKS, Route, Zone
from collsim.formats.simgrid.units import count, counts

__all__ = ["DragonflyZone", "FatTreeZone", "ShapedZone", "TorusZone"]

Wire = tuple[int, int]
"""What the way up and the way down of a link cross."""


@dataclass(eq=False)
class ShapedZone(Zone, ABC):
    """What the three shapes have in common.

    Attributes
    ----------
    rate, delay, policy, limit
        Of each link, and the rate of what limits each host or switch (0 without).
    hosts
        Points of the hosts by their number in the cluster.
    """

    rate: int = 1
    delay: int = 0
    policy: str = "SPLITDUPLEX"
    limit: int = 0
    hosts: list[int] = field(default_factory=list)
    place: dict[int, int] = field(default_factory=dict)
    limiters: dict[int, int] = field(default_factory=dict)

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of hosts."""

    def build(self) -> None:
        """Make links and switches, once the hosts are there."""
        self.place = {point: place for place, point in enumerate(self.hosts)}

    @abstractmethod
    def walk(self, src: int, dst: int) -> Route:
        """Return the route between two hosts by their numbers, the hosts included, limiters left out."""

    @abstractmethod
    def wires(self) -> Iterator[tuple[int, int, Wire]]:
        """Yield the lower end of each link, the upper one, and the link."""

    def local(self, src: int, dst: int) -> tuple[Route, int, int] | None:
        """Return SimGrid's route between two hosts."""
        if (src, dst) in self.bypass:
            return self.bypass[src, dst], src, dst
        if src == dst or src not in self.place or dst not in self.place:
            return None
        route = self.walk(self.place[src], self.place[dst])
        return (self._limited(route) if self.limit else route), src, dst

    def segments(self, every: bool) -> Iterator[Route]:
        """Yield every link in both directions."""
        for lower, upper, (up, down) in self.wires():
            for route in ([lower, up, upper], [upper, down, lower]):
                yield self._limited(route) if self.limit else route

    def link(self, name: str, times: int = 1) -> Wire:
        """Add a link."""
        rate = min(self.rate * times, 2**63 - 1)
        return self.platform.add_link(self.element, f"{self.name}_{name}", rate, self.delay, self.policy)

    def _limited(self, route: Route) -> Route:
        """Put the limiter of each point of a route beside it: after the first, before all others."""
        limited: Route = []
        for token in route:
            if token >= 0:
                if token not in self.limiters:
                    name = f"{self.platform.points[token].name}_limiter"
                    self.limiters[token] = self.platform.add_link(self.element, name, self.limit, 0)[0]
                limited.append(self.limiters[token])
            else:
                limited.append(token)
        return [route[0], *limited, route[-1]]

    def check(self, hosts: int, links: int) -> None:
        """Refuse what is too large before it is made."""
        if hosts > MAX_HOSTS or links > MAX_LINKS:
            self.element.fail(
                f"expected at most {MAX_HOSTS:,} hosts and {MAX_LINKS:,} links, got {hosts:,} and {links:,}",
                "topo_parameters",
            )


@dataclass(eq=False)
class TorusZone(ShapedZone):
    """A torus of any number of dimensions."""

    dims: list[int] = field(default_factory=list)
    links: list[list[Wire | None]] = field(default_factory=list)

    forwards = True

    def __post_init__(self) -> None:
        text = self.element.get("topo_parameters")
        self.dims = counts(self.element, text, "sizes of dimensions", min(text.count(",") + 1, 32))
        self.check(math.prod(self.dims), math.prod(self.dims) * len(self.dims) * 2)

    @property
    def size(self) -> int:  # noqa: D102
        return math.prod(self.dims)

    def build(self) -> None:  # noqa: D102
        super().build()
        strides = [math.prod(self.dims[:axis]) for axis in range(len(self.dims))]
        self.links = [
            [
                self.link(f"link_from_{node}_to_{_next(node, size, stride)}") if size > 1 else None
                for size, stride in zip(self.dims, strides, strict=True)
            ]
            for node in range(self.size)
        ]

    def wires(self) -> Iterator[tuple[int, int, Wire]]:  # noqa: D102
        for node, links in enumerate(self.links):
            stride = 1
            for size, link in zip(self.dims, links, strict=True):
                if link is not None:
                    yield self.hosts[node], self.hosts[_next(node, size, stride)], link
                stride *= size

    def walk(self, src: int, dst: int) -> Route:  # noqa: D102
        route = [self.hosts[src]]
        here, stride = src, 1
        for axis, size in enumerate(self.dims):
            start, end = src // stride % size, dst // stride % size
            # The shorter way; of two equal ones, up from the lower half of the dimension, down from the upper.
            up = start < end <= start + size // 2 or (start > size // 2 and (start + size // 2) % size >= end)
            while here // stride % size != end:
                if up:
                    link, there = self.links[here][axis], _next(here, size, stride)
                else:
                    there = here - stride if here // stride % size else here + (size - 1) * stride
                    link = self.links[there][axis]
                assert link is not None
                route += [link[0] if up else link[1], self.hosts[there]]
                here = there
            stride *= size
        return route


def _next(node: int, size: int, stride: int) -> int:
    """Return the neighbour up along a dimension."""
    return node + stride if node // stride % size < size - 1 else node - (size - 1) * stride


@dataclass(eq=False)
class FatTreeZone(ShapedZone):
    """A fat tree of any number of levels, with parallel links."""

    down: list[int] = field(default_factory=list)
    ups: list[int] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    first: int = 0
    nodes: list[list[int]] = field(default_factory=list)
    links: list[list[list[Wire]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        parts = self.element.get("topo_parameters").split(";")
        if len(parts) != 4:
            self._wrong(f"{len(parts)} parts")
        levels = count(self.element, parts[0], "a number of levels")
        if levels > 32:
            self._wrong(f"{levels} levels")
        self.down = counts(self.element, parts[1], "children of each level", levels)
        self.ups = counts(self.element, parts[2], "parents of each level", levels)
        self.ports = counts(self.element, parts[3], "parallel links of each level", levels)
        sizes = [self._level(level) for level in range(levels + 1)]
        links = sum(sizes[level] * self.ups[level] * self.ports[level] for level in range(levels))
        self.check(sum(sizes), links * 2)

    def _wrong(self, got: str) -> None:
        self.element.fail(
            f"expected levels;children;parents;parallel links with up to 32 levels, as in 2;4,4;1,2;1,2, got {got}",
            "topo_parameters",
        )

    def _level(self, level: int) -> int:
        return math.prod(self.ups[:level]) * math.prod(self.down[level:])

    @property
    def size(self) -> int:  # noqa: D102
        return math.prod(self.down)

    def build(self) -> None:  # noqa: D102
        super().build()
        # In SimGrid 3.32 the places that D-mod-k looks at go on from one fat tree of a platform to the next.
        self.first = self.platform.fat_tree_hosts
        self.platform.fat_tree_hosts += self.size
        self.nodes = [self.hosts] + [
            [self.platform.add_inner(f"{self.name}.switch[{level}][{i}]", self) for i in range(self._level(level))]
            for level in range(1, len(self.down) + 1)
        ]
        self.links = [
            [
                [self.link(f"link_{level}_{node}_{port}") for port in range(self.ups[level] * self.ports[level])]
                for node in range(len(self.nodes[level]))
            ]
            for level in range(len(self.down))
        ]

    def label(self, level: int, node: int, axis: int) -> int:
        """Return one digit of the place of a switch: which of its parents' children it is, or which parent."""
        for i in range(axis):
            node //= self.ups[i] if i < level else self.down[i]
        return node % (self.ups[axis] if axis < level else self.down[axis])

    def neighbour(self, level: int, node: int, digit: int, step: int) -> int:
        """Return the number, in the level above (step 1) or below (-1), of the node with another digit."""
        axis = level if step > 0 else level - 1
        below = math.prod(self.ups[:axis])  # nodes for each value of the digit
        old, new = (self.down[axis], self.ups[axis]) if step > 0 else (self.ups[axis], self.down[axis])
        return node % below + below * (digit + new * (node // below // old))

    def wires(self) -> Iterator[tuple[int, int, Wire]]:  # noqa: D102
        for level, nodes in enumerate(self.links):
            for node, links in enumerate(nodes):
                for port, link in enumerate(links):
                    above = self.neighbour(level, node, port % self.ups[level], 1)
                    yield self.nodes[level][node], self.nodes[level + 1][above], link

    def walk(self, src: int, dst: int) -> Route:  # noqa: D102
        level, node = 0, src
        route = [self.hosts[src]]
        while (
            any(self.label(level, node, i) != self.label(0, dst, i) for i in range(level, len(self.down))) or not level
        ):
            port = self.first + dst
            for i in range(level):
                port //= self.ups[i]  # as 3.32 does it; later versions divide by the parallel links too
            port %= self.ups[level] * self.ports[level]
            link = self.links[level][node][port]
            level, node = level + 1, self.neighbour(level, node, port % self.ups[level], 1)
            route += [link[0], self.nodes[level][node]]
        while level:
            # Of parallel links one by the source; SimGrid 3.32 looks for the next level from there on, not anew.
            port = (self.first + src) % self.ports[level - 1] * self.down[level - 1]
            while level and port < self.down[level - 1] * self.ports[level - 1]:
                if port % self.down[level - 1] == self.label(0, dst, level - 1):
                    above = self.label(level, node, level - 1)
                    below = self.neighbour(level, node, port % self.down[level - 1], -1)
                    cable = port // self.down[level - 1]
                    link = self.links[level - 1][below][above + cable * self.ups[level - 1]]
                    level, node = level - 1, below
                    route += [link[1], self.nodes[level][node]]
                port += 1
        return route


@dataclass(eq=False)
class DragonflyZone(ShapedZone):
    """Groups of chassis of routers, as in a Cray XC."""

    shape: tuple[int, int, int, int] = (1, 1, 1, 1)
    widths: tuple[int, int, int] = (1, 1, 1)
    routers: list[int] = field(default_factory=list)
    links: dict[tuple[int, int], Wire] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = self.element.get("topo_parameters").split(";")
        if len(parts) != 4:
            self.element.fail(
                f"expected groups,links;chassis,links;routers,links;hosts, as in 3,4;4,3;5,1;2, got {len(parts)} parts",
                "topo_parameters",
            )
        groups, blue = counts(self.element, parts[0], "groups and the links between two", 2)
        chassis, black = counts(self.element, parts[1], "chassis of a group and the links between two", 2)
        blades, green = counts(self.element, parts[2], "routers of a chassis and the links between two", 2)
        self.shape = groups, chassis, blades, count(self.element, parts[3], "hosts of a router")
        self.widths = blue, black, green
        if groups > blades and groups > 1:
            self.element.fail(
                f"expected at least as many routers in a chassis as groups, got {blades} and {groups}; SimGrid has no "
                "routes in such a dragonfly either",
                "topo_parameters",
            )
        if chassis > 1 and blades > 1:
            self.platform.note(
                "Routes inside a group of the dragonfly are minimal; from hosts outside its first chassis SimGrid 3.32 "
                "counts links that do not join."
            )
        routers = groups * chassis * blades
        links = self.size + routers * (blades + chassis) + groups * groups
        self.check(self.size, links)

    @property
    def size(self) -> int:  # noqa: D102
        return math.prod(self.shape)

    def build(self) -> None:  # noqa: D102
        super().build()
        groups, chassis, blades, nodes = self.shape
        blue, black, green = self.widths
        self.routers = [
            self.platform.add_inner(f"{self.name}.router[{group}][{cage}][{blade}]", self)
            for group in range(groups)
            for cage in range(chassis)
            for blade in range(blades)
        ]
        for node, host in enumerate(self.hosts):
            # SimGrid crosses the first half of the link of a host upwards, so the host is its lower end.
            self.links[host, self.routers[node // nodes]] = self.link(f"host_{node}")
        number = {router: i for i, router in enumerate(self.routers)}

        def join(a: int, b: int, colour: str, width: int) -> None:
            lower, upper = self.routers[a], self.routers[b]
            self.links[lower, upper] = self.link(f"{colour}_{number[lower]}_{number[upper]}", width)

        for router in range(len(self.routers)):
            cage, blade = divmod(router, blades)
            for other in range(blade + 1, blades):
                join(router, cage * blades + other, "green", green)
            group, cage = divmod(cage, chassis)
            for other in range(cage + 1, chassis):
                join(router, (group * chassis + other) * blades + blade, "black", black)
        for group in range(groups):
            for other in range(group + 1, groups):
                join(group * chassis * blades + other, other * chassis * blades + group, "blue", blue)

    def wires(self) -> Iterator[tuple[int, int, Wire]]:  # noqa: D102
        for (lower, upper), link in self.links.items():
            yield lower, upper, link

    def walk(self, src: int, dst: int) -> Route:  # noqa: D102
        _, chassis, blades, nodes = self.shape
        stops = [src // nodes]
        end = dst // nodes

        def to(group: int, cage: int, blade: int) -> None:
            router = (group * chassis + cage) * blades + blade
            if router != stops[-1]:
                stops.append(router)

        group, cage, _ = _split(src // nodes, chassis, blades)
        there, high, wide = _split(end, chassis, blades)
        if group != there:
            to(group, cage, there)  # to the router of our chassis that has the number of the group
            to(group, 0, there)  # to its like in the first chassis, which has the link
            to(there, 0, group)
            cage = 0
        to(there, cage, wide)
        to(there, high, wide)
        points = [self.hosts[src], *(self.routers[stop] for stop in stops), self.hosts[dst]]
        route = points[:1]
        for a, b in pairwise(points):
            route += [self.links[a, b][0] if (a, b) in self.links else self.links[b, a][1], b]
        return route


def _split(router: int, chassis: int, blades: int) -> tuple[int, int, int]:
    return router // blades // chassis, router // blades % chassis, router % blades
