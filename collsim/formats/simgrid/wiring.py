"""Routes of a platform, which are lists of links, to a graph with nodes, which the links join.

A SimGrid route does not say what lies between its links. Here the end of a link and the beginning of the next one are
the same node wherever no route contradicts that; then a platform of switches comes out as the graph that it was.

- A link that all routes cross from the same node to the same node is one link of the topology.
- A link that is shared (SHARED) and crossed in both directions, or between different nodes, has one capacity for all:
  it stands between two nodes of its own, ``<id>.in`` and ``<id>.out``, to and from which connecting links lead.
- Where the routes contradict each other (two hosts would be one node, a route would come to a node twice), the links
  concerned are taken out of the graph, and each gets such nodes of its own.

Connecting links have no latency and 10^18 bytes/s. What the links hold and which of them a pair of hosts crosses are
the same in all three cases, so that rates in the fluid model are too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from collsim.formats.simgrid.model import Link, Platform, Route, crossing

__all__ = ["CONNECTOR", "Graph", "connect"]

CONNECTOR = "connector"
"""Kind of the links that only connect."""

UNLIMITED = 10**18
"""Their bytes/s."""

TRIES = 20
"""Times that links are taken out before all are."""


@dataclass(eq=False)
class Graph:
    """Nodes and links, and the links of each route.

    Attributes
    ----------
    nodes
        Names; those of the points come first, by their numbers.
    links
        From, to, and what the link is.
    routes
        For each route the links that it crosses, as numbers.
    """

    nodes: list[str] = field(default_factory=list)
    links: list[tuple[int, int, Link]] = field(default_factory=list)
    routes: list[list[int]] = field(default_factory=list)


class _Sets:
    """Disjoint sets of whole numbers, made when first asked for."""

    def __init__(self) -> None:
        self.parent: dict[int, int] = {}

    def find(self, item: int) -> int:
        parent = self.parent
        root = item
        while parent.setdefault(root, root) != root:
            root = parent[root]
        while parent[item] != root:
            parent[item], item = root, parent[item]
        return root

    def join(self, a: int, b: int) -> None:
        self.parent[self.find(a)] = self.find(b)


def connect(platform: Platform, routes: list[Route]) -> Graph:
    """Return the graph of some routes, each from a point to a point.

    Raises
    ------
    TopologyError
        If a route crosses a link twice.
    """
    loose: set[int] = set()
    plain = [_once(route) for route in routes]
    for attempt in range(TRIES + 1):
        if attempt == TRIES:
            loose = set(range(len(platform.links)))
        sets = _merged(platform, plain, loose)
        wrong = _conflicts(platform, plain, sets, loose)
        if not wrong:
            graph = _built(platform, plain, sets, loose)
            again = {i for i, links in enumerate(graph.routes) if _repeats(graph, links)}
            if not again:
                return graph
            # What lies between the links of these routes is of no help; their links stand alone.
            for i in again:
                if not any(token >= 0 for token in plain[i][1:-1]) and _links(plain[i]) <= loose:
                    _refuse(platform, plain[i])
                plain[i] = [plain[i][0], *(token for token in plain[i] if token < 0), plain[i][-1]]
                wrong |= _links(plain[i])
        loose |= wrong
    raise AssertionError("links that all stand alone contradict nothing")  # pragma: no cover


def _once(route: Route) -> Route:
    """Leave out points that follow themselves."""
    return route[:1] + [token for before, token in pairwise(route) if token < 0 or token != before]


def _links(route: Route) -> set[int]:
    return {~token // 2 for token in route if token < 0}


def _refuse(platform: Platform, route: Route) -> None:
    double = next((token for token, times in Counter(route).items() if token < 0 and times > 1), None)
    if double is None:
        crossed = Counter(~token // 2 for token in route if token < 0)
        double = crossing(max(crossed, key=crossed.__getitem__))
    platform.fail(
        f"expected routes that cross a link once, got one from {platform.points[route[0]].name!r} to "
        f"{platform.points[route[-1]].name!r} over {platform.links[~double // 2].name!r} twice"
    )


def _ends(platform: Platform, token: int) -> tuple[int, int]:
    """Return what stands for the beginning and the end of a link, crossed one way."""
    first = len(platform.points) + 2 * ~token
    return first, first + 1


def _merged(platform: Platform, routes: list[Route], loose: set[int]) -> _Sets:
    sets = _Sets()
    seen: set[tuple[int, int]] = set()
    for route in routes:
        for before, after in pairwise(route):
            if (before, after) in seen or (before >= 0 and after >= 0):
                continue
            seen.add((before, after))
            a, b = before, after
            if before < 0:
                if ~before // 2 in loose:
                    continue
                a = _ends(platform, before)[1]
            if after < 0:
                if ~after // 2 in loose:
                    continue
                b = _ends(platform, after)[0]
            sets.join(a, b)
    return sets


def _conflicts(platform: Platform, routes: list[Route], sets: _Sets, loose: set[int]) -> set[int]:
    """Return the links at nodes that would be two points, and those that would lead from a node to itself."""
    points = Counter(sets.find(point) for point in range(len(platform.points)))
    wrong = set()
    for token in {token for route in routes for token in route if token < 0}:
        if ~token // 2 not in loose:
            a, b = (sets.find(end) for end in _ends(platform, token))
            if a == b or points[a] > 1 or points[b] > 1:
                wrong.add(~token // 2)
    return wrong


def _built(platform: Platform, routes: list[Route], sets: _Sets, loose: set[int]) -> Graph:
    graph = Graph([point.name for point in platform.points])
    node_of = {sets.find(point): point for point in range(len(platform.points))}
    taken = set(graph.nodes)

    def add(name: str) -> int:
        while name in taken:
            name += "'"
        taken.add(name)
        graph.nodes.append(name)
        return len(graph.nodes) - 1

    def node(end: int) -> int:
        root = sets.find(end)
        if root not in node_of:
            node_of[root] = add(f"junction[{len(graph.nodes) - len(platform.points)}]")
        return node_of[root]

    sides: dict[int, dict[tuple[int, int], None]] = {}  # by link: from where to where it is crossed
    places: dict[int, tuple[int, int] | None] = {}  # by token: its nodes, if it has any
    for token in dict.fromkeys(token for route in routes for token in route if token < 0):
        if ~token // 2 in loose:
            places[token] = None
        else:
            a, b = _ends(platform, token)
            places[token] = ends = node(a), node(b)
            sides.setdefault(~token // 2, {})[ends] = None
    single = {link for link, ways in sides.items() if len(ways) == 1}
    number: dict[int, int] = {}  # by link: its number in the graph
    boxes: dict[int, tuple[int, int]] = {}
    for link in sorted({~token // 2 for token in places}):
        if link in single:
            a, b = next(iter(sides[link]))
        else:
            what = platform.links[link]
            a, b = boxes[link] = add(f"{what.name}.in"), add(f"{what.name}.out")
        number[link] = len(graph.links)
        graph.links.append((a, b, platform.links[link]))
    wires: dict[tuple[int, int], int] = {}

    def wire(a: int, b: int) -> list[int]:
        if a == b:
            return []
        if (a, b) not in wires:
            wires[a, b] = len(graph.links)
            graph.links.append((a, b, Link(CONNECTOR, UNLIMITED, 0, kind=CONNECTOR)))
        return [wires[a, b]]

    for route in routes:
        crossed: list[int] = []
        here = route[0]
        for token in route[1:]:
            if token >= 0:
                crossed += wire(here, token)
                here = token
                continue
            link = ~token // 2
            sides_here = places[token]
            if link in boxes:
                if sides_here is not None:
                    crossed += wire(here, sides_here[0])
                    here = sides_here[0]
                crossed += wire(here, boxes[link][0])
                here = boxes[link][1]
                crossed.append(number[link])
                if sides_here is not None:
                    crossed += wire(here, sides_here[1])
                    here = sides_here[1]
            else:
                assert sides_here is not None
                crossed += wire(here, sides_here[0])
                crossed.append(number[link])
                here = sides_here[1]
        graph.routes.append(crossed)
    return graph


def _repeats(graph: Graph, links: list[int]) -> bool:
    """Say whether a route comes to a node twice."""
    visited = [graph.links[link][1] for link in links]
    return len(set(visited)) < len(visited) or (bool(links) and graph.links[links[0]][0] in visited)
