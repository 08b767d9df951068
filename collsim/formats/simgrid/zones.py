"""Zones with routes of the file: all of them given (Full), or the shortest (Floyd, Dijkstra), or a star (Cluster).

Full, Floyd and Dijkstra take the routes that SimGrid takes, ties included: a route costs the links that it crosses. Of
equal ones Floyd keeps the one that it found first when it tries the points of the zone in their order as stops,
Dijkstra the one over the point that is nearest and came first in the routes of the file.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from collsim.formats.simgrid.model import Route, Zone
from collsim.formats.xmltree import Element

__all__ = ["DijkstraZone", "FloydZone", "FullZone", "StarZone"]

MAX_FLOYD = 1000
"""Points of a Floyd zone: their tables hold the square of it, and take its cube in time."""


@dataclass(eq=False)
class FullZone(Zone):
    """A zone whose routes are all in the file.

    Attributes
    ----------
    routes
        Two points of the zone to the route between them, its real ends included.
    """

    routes: dict[tuple[int, int], Route] = field(default_factory=dict)

    def add(self, element: Element, src: int, dst: int, route: Route, back: Route | None) -> None:
        """Take a route of the file, from its first point to its last, and the way back if it holds for that too."""
        ways = [((src, dst), route)]
        if back is not None and src != dst:
            ways.append(((dst, src), back))
        for (a, b), way in ways:
            if (a, b) in self.routes:
                names = f"{self.platform.points[a].name!r} to {self.platform.points[b].name!r}"
                element.fail(
                    f"expected one route from {names}, got another; routes hold both ways unless symmetrical is NO"
                )
            self.routes[a, b] = way

    def local(self, src: int, dst: int) -> tuple[Route, int, int] | None:
        """Return the route of the file."""
        route = self.bypass.get((src, dst)) or self.routes.get((src, dst))
        return None if route is None else (route, route[0], route[-1])

    def segments(self, every: bool) -> Iterator[Route]:
        """Yield the routes of the file."""
        if every:
            yield from (route for route in self.routes.values() if route[0] != route[-1])

    def _joined(self, pieces: list[Route]) -> tuple[Route, int, int] | None:
        """Join routes of which one may end at another point than the next begins."""
        whole = list(pieces[0])
        for piece in pieces[1:]:
            if whole[-1] != piece[0]:
                between = self.platform.route(whole[-1], piece[0])
                if between is None:
                    return None
                whole += between
            whole += piece
        return whole, whole[0], whole[-1]


@dataclass(eq=False)
class FloydZone(FullZone):
    """A zone whose routes are joined to the shortest by Floyd's algorithm."""

    before: npt.NDArray[np.int64] | None = None
    place: dict[int, int] = field(default_factory=dict)

    forwards = True

    def local(self, src: int, dst: int) -> tuple[Route, int, int] | None:
        """Return the shortest route."""
        if (src, dst) in self.bypass:
            return super().local(src, dst)
        if self.before is None:
            self.before = self._table()
        pieces: list[Route] = []
        here = self.place[dst]
        while here != self.place[src] or not pieces:
            previous = int(self.before[self.place[src], here])
            if previous < 0 or len(pieces) > len(self.points):
                return None
            pieces.append(self.routes[self.points[previous], self.points[here]])
            here = previous
        return self._joined(pieces[::-1])

    def _table(self) -> npt.NDArray[np.int64]:
        n = len(self.points)
        if n > MAX_FLOYD:
            self.element.fail(
                f"expected at most {MAX_FLOYD:,} hosts and routers in a Floyd zone, got {n:,}; take Dijkstra"
            )
        self.platform.spend(n**3 // 300)  # of whole rows at once
        self.place = {point: place for place, point in enumerate(self.points)}
        far = 2**40
        cost = np.full((n, n), far)
        before = np.full((n, n), -1)
        for (a, b), route in self.routes.items():
            if a != b:
                cost[self.place[a], self.place[b]] = _links(route)
                before[self.place[a], self.place[b]] = self.place[a]
        np.fill_diagonal(cost, 1)  # the loopback
        for stop in range(n):
            over = cost[:, stop, None] + cost[stop]
            shorter = over < np.minimum(cost, far)
            cost[shorter] = over[shorter]
            before[shorter] = np.broadcast_to(before[stop], (n, n))[shorter]
        return before


@dataclass(eq=False)
class DijkstraZone(FullZone):
    """A zone whose routes are joined to the shortest by Dijkstra's algorithm."""

    edges: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    order: dict[int, int] = field(default_factory=dict)
    trees: dict[int, dict[int, int]] = field(default_factory=dict)

    forwards = True

    def local(self, src: int, dst: int) -> tuple[Route, int, int] | None:
        """Return the shortest route."""
        if (src, dst) in self.bypass:
            return super().local(src, dst)
        if not self.edges:
            for (a, b), route in self.routes.items():
                self.order.setdefault(a, len(self.order))
                self.order.setdefault(b, len(self.order))
                self.edges.setdefault(a, []).append((b, _links(route)))
        if src not in self.trees:
            if len(self.trees) > 1000:  # each is as large as the zone
                self.trees.clear()
            self.platform.spend(len(self.routes))
            self.trees[src] = self._tree(src)
        tree = self.trees[src]
        stops = [dst]
        while stops[-1] != src:
            if stops[-1] not in tree:
                return None
            stops.append(tree[stops[-1]])
        stops.reverse()
        if len(stops) == 1:
            return None
        return self._joined([self.routes[a, b] for a, b in pairwise(stops)])

    def _tree(self, src: int) -> dict[int, int]:
        """Return the point before each on the shortest way from one."""
        before: dict[int, int] = {}
        cost = {src: 0}
        done: set[int] = set()
        queue = [(0, self.order.get(src, 0), src)]
        while queue:
            spent, _, here = heapq.heappop(queue)
            if here in done:
                continue
            done.add(here)
            for there, links in self.edges.get(here, ()):
                if there not in cost or spent + links < cost[there]:
                    cost[there], before[there] = spent + links, here
                    heapq.heappush(queue, (cost[there], self.order[there], there))
        before.pop(src, None)
        return before


def _links(route: Route) -> int:
    return sum(token < 0 for token in route)


@dataclass(eq=False)
class StarZone(Zone):
    """A zone around a switch: a flat cluster, or one that cabinets and host links make up.

    Attributes
    ----------
    up, down
        Each point to what leads to the middle, and from there to it.
    middle
        What stands between: a switch, or a backbone between two of them. Every route crosses it.
    """

    up: dict[int, Route] = field(default_factory=dict)
    down: dict[int, Route] = field(default_factory=dict)
    middle: Route = field(default_factory=list)

    def local(self, src: int, dst: int) -> tuple[Route, int, int] | None:
        """Return the way up, over the middle and down; a link that is on both ways counts once, as in SimGrid."""
        if src == dst:
            return None
        if (src, dst) in self.bypass:
            return self.bypass[src, dst], src, dst
        up = [*self.up.get(src, ()), *self.middle]
        crossed = {~token // 2 for token in up if token < 0}
        down = [token for token in self.down.get(dst, ()) if token >= 0 or ~token // 2 not in crossed]
        return [src, *up, *down, dst], src, dst

    def segments(self, every: bool) -> Iterator[Route]:
        """Yield the way of each host to the middle, the middle, and the ways from it."""
        if every:
            for point in self.points:
                yield [point, *self.up.get(point, ()), self.middle[0]]
                yield [self.middle[-1], *self.down.get(point, ()), point]
            yield self.middle
