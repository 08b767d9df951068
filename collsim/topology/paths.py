"""Paths that are named: past nodes and over links, the shortest way between each two.

An entry of a path that is a link's name, as `Topology.link_name` writes it (``gpu[3]->gpu[0]#1``), is that very link;
any other is a node. So parallel links of different widths can each be taken, and a path can be given link by link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import TopologyError, did_you_mean, shown
from collsim.topology.graph import Topology

__all__ = ["link_index", "routes_along"]

Array = npt.NDArray[Any]

ARROW = "->"
FEW = 4
"""Links that a message names."""


def link_index(topology: Topology, name: str) -> int:
    """Return the number of the link of a name.

    Raises
    ------
    TopologyError
        No link has this name; with the nearest that there is.
    """
    known: dict[str, int] = topology.cache.setdefault("links by name", {})
    if name not in known:
        known[name] = _search(topology, name)
    return known[name]


def _search(topology: Topology, name: str) -> int:
    if not isinstance(name, str) or ARROW not in name:
        raise TopologyError(f"expected the name of a link such as 'a->b' or 'a->b#1', got {shown(name)}")
    hints = []
    for start, end, key in _splits(topology, name):
        links = _between(topology, start, end)
        exact = [link for link in links if topology.link_name(link) == name]
        if exact:
            return exact[0]
        ends = f"{topology.nodes[start]}{ARROW}{topology.nodes[end]}"
        if len(links) == 1:
            hints.append(f"it is called {ends!r}, there is only one")
        elif links:
            names = [topology.link_name(link) for link in links]
            hints.append(f"there are {len(links)}, {names[0]!r} to {names[-1]!r}" + ("" if key else "; name one"))
        else:
            hints.append(_instead(topology, start, end))
    text = f"no link {shown(name)} in topology {topology.name!r}"
    if not hints:
        first, _, last = name.partition(ARROW)
        last = last if last in topology._indices else last.rpartition("#")[0] or last
        unknown = next((node for node in (first, last) if node not in topology._indices), first)
        known = topology.nodes if topology.n_nodes <= 10_000 else ()
        hints = [f"there is no node {shown(unknown)}{did_you_mean(unknown[:60], known)}"]
    raise TopologyError(f"{text}; {hints[0]}")


def _splits(topology: Topology, name: str) -> list[tuple[int, int, str]]:
    """Return what a name can mean: two nodes that there are, and the number of the link as text."""
    found = []
    at = name.find(ARROW)
    while at >= 0:
        start, rest = name[:at], name[at + len(ARROW) :]
        bare, sign, key = rest.rpartition("#")
        for end, number in ((rest, ""), *([(bare, key)] if sign else [])):
            if start in topology._indices and end in topology._indices:
                found.append((topology._indices[start], topology._indices[end], number))
        at = name.find(ARROW, at + 1)
    return found


def _between(topology: Topology, start: int, end: int) -> list[int]:
    """Return the links from one node to another, by their key."""
    if "links by ends" not in topology.cache:
        ends = topology.link_src.astype(np.int64) * topology.n_nodes + topology.link_dst
        order = np.lexsort((topology.link_key, ends))
        topology.cache["links by ends"] = order, ends[order]
    order, ends = topology.cache["links by ends"]
    low, high = np.searchsorted(ends, start * topology.n_nodes + end + np.arange(2))
    found: list[int] = order[low:high].tolist()
    return found


def _instead(topology: Topology, start: int, end: int) -> str:
    back = _between(topology, end, start)
    if back:
        return f"there is one the other way, {topology.link_name(back[0])!r}"
    links = np.flatnonzero(topology.link_src == start)[:FEW].tolist()
    if not links:
        return f"no link leaves {topology.nodes[start]!r}"
    more = ", ..." if np.count_nonzero(topology.link_src == start) > FEW else ""
    return f"from {topology.nodes[start]!r} there are {', '.join(map(topology.link_name, links))}{more}"


def _entry(topology: Topology, name: str) -> tuple[int, int, int]:
    """Return an entry of a path: where it is entered and left, and the link (-1 for a node)."""
    if isinstance(name, str) and ARROW in name:
        try:
            link = link_index(topology, name)
        except TopologyError:
            if name not in topology._indices:
                raise
        else:
            return int(topology.link_src[link]), int(topology.link_dst[link]), link
    node = topology.node_index(name)
    return node, node, -1


def routes_along(
    topology: Topology,
    src: Array,
    dst: Array,
    channel: Array | int,
    path: Array,
    paths: Sequence[Sequence[str]],
) -> tuple[Array, Array]:
    """Return the routes between nodes along named paths, in CSR form: row i crosses ``links[ptr[i]:ptr[i + 1]]``.

    Parameters
    ----------
    topology
        The machine.
    src, dst
        Arrays of node indices.
    channel
        Array of channels, or one for all.
    path
        By row: which path it takes; -1 for the shortest way, as in `find_routes`.
    paths
        Names of the nodes and links on the way, in order. Between two of them the shortest way is taken.

    Raises
    ------
    TopologyError
        A name that is neither node nor link, a node on the way that does not forward, or no route between two entries.

    Examples
    --------
    Two links lead from GPU 0 to GPU 3 of a DGX-1; a message to GPU 7 takes the second and goes on by the shortest way.

    >>> import numpy as np
    >>> from collsim.topology import load_topology
    >>> topology = load_topology("dgx-1-v100")
    >>> _, links = routes_along(topology, [0], [7], 0, np.array([0]), [["gpu[0]->gpu[3]#1"]])
    >>> [topology.link_name(link) for link in links]
    ['gpu[0]->gpu[3]#1', 'gpu[3]->gpu[7]']
    """
    src, dst, channel, path = (
        np.asarray(column)
        for column in np.broadcast_arrays(*(np.asarray(c, np.int64) for c in (src, dst, channel, path)))
    )
    path = np.where(src == dst, -1, path)
    used, which = np.unique(path[path >= 0], return_inverse=True)
    entries = [[_entry(topology, name) for name in paths[number]] for number in used.tolist()]
    flat = np.array([entry for row in entries for entry in row], dtype=np.int64).reshape(-1, 3)
    lengths = np.array([len(row) for row in entries], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    # a row of n entries has n + 1 legs, each but the last with an entry at its end
    counts = np.zeros(len(src), dtype=np.int64)
    counts[path >= 0] = lengths[which]
    row = np.repeat(np.arange(len(src)), counts)
    first = np.zeros(len(src), dtype=np.int64)
    first[path >= 0] = starts[which]
    number = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    enter, leave, link = flat[first[row] + number].T
    _refuse_what_stays(topology, src[row], dst[row], number == 0, number == counts[row] - 1, enter, leave, link)
    legs = np.cumsum(counts + 1) - counts - 1  # first leg of each row
    owner = np.repeat(np.arange(len(src)), counts + 1)
    begin, end, over = src[owner], dst[owner], np.full(len(owner), -1)
    at = legs[row] + number
    end[at], over[at], begin[at + 1] = enter, link, leave
    walked = np.flatnonzero(begin != end)
    leg_ptr, leg_links = topology.route_nodes(begin[walked], end[walked], channel[owner[walked]])
    hops = np.zeros(len(owner), dtype=np.int64)
    hops[walked] = np.diff(leg_ptr)
    total = hops + (over >= 0)
    after = np.cumsum(total)
    links = np.empty(after[-1] if len(after) else 0, dtype=np.int64)
    links[(after - 1)[over >= 0]] = over[over >= 0]
    place = np.repeat((after - total)[walked] - leg_ptr[:-1], np.diff(leg_ptr)) + np.arange(len(leg_links))
    links[place] = leg_links
    ptr = np.concatenate(([0], after[legs + counts])).astype(np.int64)
    return ptr, links


def _refuse_what_stays(
    topology: Topology, src: Array, dst: Array, first: Array, last: Array, enter: Array, leave: Array, link: Array
) -> None:
    """Refuse the first node on the way that does not forward; the ends of a path need not."""
    forwards = topology.forwards
    stays = np.where(first & (link >= 0) & (enter == src), False, ~forwards[enter])
    stays_after = np.where(last & (link >= 0) & (leave == dst), False, ~forwards[leave])
    bad = stays | stays_after
    if not bad.any():
        return
    at = int(np.argmax(bad))
    if link[at] < 0:
        raise TopologyError(
            f"route via {topology.nodes[enter[at]]!r}: the node does not forward; leave it out of 'via'"
        )
    node = topology.nodes[(enter if stays[at] else leave)[at]]
    ends = f"from {topology.nodes[src[at]]!r} to {topology.nodes[dst[at]]!r}"
    raise TopologyError(
        f"route via {topology.link_name(int(link[at]))!r} {ends}: {node!r} does not forward; take links past it"
    )
