"""The routes that a topology file gives, found for all the pairs of an entry at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from collsim.errors import TopologyError
from collsim.topology.graph import Topology
from collsim.topology.names import Pattern, shown_text
from collsim.topology.paths import routes_along
from collsim.topology.yamltree import Loc

if TYPE_CHECKING:
    from collsim.topology.model import RouteModel

__all__ = ["given_routes"]

Array = npt.NDArray[Any]


def given_routes(
    routes: Sequence[RouteModel],
    topology: Topology,
    find: Callable[[Pattern, Loc], Array],
    fail: Callable[[Loc, str], NoReturn],
) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return the links of the routes of a file, by the indices of the nodes at their ends.

    Parameters
    ----------
    routes
        The entries of the file.
    topology
        The machine, without given routes.
    find, fail
        What looks names up, and what refuses a place of the file with a message.
    """
    given: dict[tuple[int, int], tuple[int, ...]] = {}
    for number, route in enumerate(routes):
        loc: Loc = ("routes", number)
        stops = [_stop(topology, stop, (*loc, "via", place), find, fail) for place, stop in enumerate(route.via)]
        start, end = find(route.start, (*loc, "from")), find(route.end, (*loc, "to"))
        src, dst = np.repeat(start, len(end)), np.tile(end, len(start))

        def ends(place: int, src: Array = src, dst: Array = dst) -> str:
            names = (shown_text(topology.nodes[nodes[place]]) for nodes in (src, dst))
            return "from {} to {}".format(*names)

        if (src == dst).any():
            place = int(np.argmax(src == dst))
            fail((*loc, "to"), f"expected another node at the other end, got a route {ends(place)}")
        for place, stop in enumerate(stops):
            if isinstance(stop, str):
                continue
            twice = np.full(len(src), True) if stop in stops[:place] else (src == stop) | (dst == stop)
            if twice.any():
                _fail_twice(fail, (*loc, "via", place), ends(int(np.argmax(twice))), topology.nodes[stop])
            if not topology.forwards[stop]:
                name = shown_text(topology.nodes[stop])
                fail((*loc, "via", place), f"expected a node that forwards, got {name}; leave it out of via")
        try:
            ptr, links = _routes(topology, src, dst, stops)
        except TopologyError as error:
            pair = ends(0) if len(src) == 1 else f"from {shown_text(route.start.text)} to {shown_text(route.end.text)}"
            fail((*loc, "via"), f"expected nodes on a way {pair}, got none: {error}")
        again = _entered_twice(topology, src, ptr, links)
        if again is not None:
            row, node = again
            _fail_twice(fail, (*loc, "via"), ends(row), topology.nodes[node])
        bounds, way = ptr.tolist(), links.tolist()
        for row, pair_of_nodes in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
            if pair_of_nodes in given:
                fail(loc, f"expected one route {ends(row)}, got a second one")
            given[pair_of_nodes] = tuple(way[bounds[row] : bounds[row + 1]])
    return given


def _stop(
    topology: Topology,
    stop: Pattern | str,
    loc: Loc,
    find: Callable[[Pattern, Loc], Array],
    fail: Callable[[Loc, str], NoReturn],
) -> int | str:
    """Return the index of a node on the way, or the name of a link that there is."""
    if isinstance(stop, Pattern):
        return int(find(stop, loc)[0])
    try:
        topology.link_index(stop)
    except TopologyError as error:
        fail(loc, f"expected the name of a link, got {shown_text(stop)}; {str(error).partition('; ')[2] or error}")
    return stop


def _routes(topology: Topology, src: Array, dst: Array, stops: Sequence[int | str]) -> tuple[Array, Array]:
    nodes = [stop for stop in stops if isinstance(stop, int)]
    if len(nodes) == len(stops):
        return topology.routes_via(src, dst, nodes)
    names = [topology.nodes[stop] if isinstance(stop, int) else stop for stop in stops]
    return routes_along(topology, src, dst, 0, np.zeros(len(src), dtype=np.int64), [names])


def _fail_twice(fail: Callable[[Loc, str], NoReturn], loc: Loc, ends: str, node: str) -> NoReturn:
    fail(loc, f"expected each node once on the way {ends}, got {shown_text(node)} twice")


def _entered_twice(topology: Topology, src: Array, ptr: Array, links: Array) -> tuple[int, int] | None:
    """Return a route and a node that it comes to twice (or starts from and comes back to), if there is one."""
    row = np.repeat(np.arange(len(src)), np.diff(ptr))
    visits = np.concatenate(
        (np.arange(len(src)) * topology.n_nodes + src, row * topology.n_nodes + topology.link_dst[links])
    )
    visits.sort()
    same = np.flatnonzero(visits[1:] == visits[:-1])
    if not len(same):
        return None
    found = divmod(int(visits[same[0]]), topology.n_nodes)
    return found[0], found[1]
