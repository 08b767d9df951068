"""Routes: fewest hops, then the greatest bottleneck bandwidth, then dealt out.

The rule, for a transfer on some channel from one node to another:

1. Only paths with the fewest links count, and of these only those whose narrowest link is the widest. Nodes that do not
   forward (``forwards`` false) may be the ends of a path, never in its middle. GPUs forward unless told otherwise.
2. At each node the links that continue such a path are put in order by neighbour (its index), then key. Of k
   links the source takes number ``destination % k``, where the destination counts by its rank (by its node index where
   it is no rank). Any later node takes number ``ordinal of the link come in by % k``, the ordinal being that among all
   links into the node, ordered by source node index, then key. The first node of the route that gives a choice adds the
   channel to its number; further on channels stay apart by the links that they come in by.
3. A route that the topology file gives for the pair comes before all this, on every channel.

So routes are deterministic and spread over parallel links and equal paths, and two channels of a pair part at the first
node that gives a choice.

Examples
--------
GPUs 0 and 1 are on one leaf of a fat tree, 2 and 3 on the other, with two spines above. At GPU 0 there is no choice. At
its leaf there are two equal links up; the route came in by the leaf's link number 0 (from GPU 0), so channel 0 takes
the first and channel 1 the second. From GPU 1 it is the other way round.

>>> from collsim.topology import fat_tree
>>> topology = fat_tree(4, 2, spines=2)
>>> for rank, channel in ((0, 0), (0, 1), (1, 0)):
...     print(rank, channel, [topology.link_name(link) for link in topology.route(rank, 2, channel)[1:3]])
0 0 ['leaf0->spine0', 'spine0->leaf1']
0 1 ['leaf0->spine1', 'spine1->leaf1']
1 0 ['leaf0->spine1', 'spine1->leaf1']

How it is found: `collsim.topology.search` collects the links that lie on shortest paths by breadth-first searches,
many at a time in arrays; then all routes are walked from source to destination at once, a hop at a time.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import TopologyError
from collsim.topology.graph import Topology
from collsim.topology.hubs import Hubs, around, hubs_of
from collsim.topology.search import STATES, Adjacency, Tight, adjacency, between, distances, spread, towards

__all__ = ["find_routes"]

Array = npt.NDArray[Any]

WHOLE = 2**24
"""Up to so many nodes and links times destinations, every destination is searched from; beyond that only those that
many sources ask for are, and single pairs from both ends."""

MANY = 64
"""How many sources are many."""

LOOKS = 256
"""Nodes and links that the search for a single pair past hubs looks at, about."""

BATCH = 2**12
"""Pairs that are searched from both ends at a time."""

KEPT_LINKS = 2**23
"""Links of routes that are kept for the next call (64 MB)."""


def find_routes(topology: Topology, src: Array, dst: Array, channel: Array | int = 0) -> tuple[Array, Array]:
    """Return the routes between nodes, by index, in CSR form: row i crosses ``links[ptr[i]:ptr[i + 1]]``.

    Parameters
    ----------
    topology
        The machine.
    src, dst
        Arrays of node indices.
    channel
        Array of channels, or one for all.

    Raises
    ------
    TopologyError
        There is no route between two of the nodes.
    """
    src, dst, channel = (
        np.ascontiguousarray(column)
        for column in np.broadcast_arrays(*(np.asarray(column, dtype=np.int64) for column in (src, dst, channel)))
    )
    kept: OrderedDict[bytes, tuple[Array, Array]] = topology.cache.setdefault("routes", OrderedDict())
    digest = hashlib.blake2b(digest_size=16)
    for column in (src, dst, channel):
        digest.update(column.data)
    key = digest.digest()
    if key not in kept:
        found = _find_routes(topology, src, dst, channel)
        for array in found:
            array.flags.writeable = False
        kept[key] = found
        topology.cache["routes kept"] = topology.cache.get("routes kept", 0) + _weight(found)
        while len(kept) > 1 and topology.cache["routes kept"] > KEPT_LINKS:
            topology.cache["routes kept"] -= _weight(kept.popitem(last=False)[1])
    kept.move_to_end(key)
    return kept[key]


def _weight(found: tuple[Array, Array]) -> int:
    return len(found[0]) + len(found[1]) + 64  # about the size of the objects themselves


def _find_routes(topology: Topology, src: Array, dst: Array, channel: Array) -> tuple[Array, Array]:
    n = topology.n_nodes
    pairs, pair_of_row = np.unique(src * n + dst, return_inverse=True)
    pair_src, pair_dst = np.divmod(pairs, n)
    given, given_ptr, given_links = _given(topology)
    place = np.searchsorted(given, pairs)
    is_given = (given[np.minimum(place, len(given) - 1)] == pairs) if len(given) else np.zeros(len(pairs), dtype=bool)
    wanted = np.flatnonzero((pair_src != pair_dst) & ~is_given)

    graph = adjacency(topology)
    ranks = topology.rank_of_node
    deal = np.where(ranks < 0, np.arange(n), ranks)
    row_parts, link_parts = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    by_pair = np.argsort(pair_of_row, kind="stable")
    starts = np.searchsorted(pair_of_row[by_pair], np.arange(len(pairs) + 1))
    for some, search, tight in _searches(topology, graph, pair_src, pair_dst, wanted):
        places, owner = spread(starts[some], starts[some + 1] - starts[some])
        rows = by_pair[places]
        _check(topology, tight, search, pair_src[some], pair_dst[some])
        for walked, links in _walk(graph, tight, search[owner], rows, src[rows], dst[rows], channel[rows], deal):
            row_parts.append(walked)
            link_parts.append(links)
    taking = np.flatnonzero(is_given[pair_of_row])
    where = place[pair_of_row[taking]]
    places, owner = spread(given_ptr[where], given_ptr[where + 1] - given_ptr[where])
    row_parts.append(taking[owner])
    link_parts.append(given_links[places])

    # The parts were made hop by hop, so a stable sort by row leaves the hops of a row in order.
    all_rows, all_links = np.concatenate(row_parts), np.concatenate(link_parts)
    ptr = np.zeros(len(src) + 1, dtype=np.int64)
    np.cumsum(np.bincount(all_rows, minlength=len(src)), out=ptr[1:])
    return ptr, all_links[np.argsort(all_rows, kind="stable")]


def _given(topology: Topology) -> tuple[Array, Array, Array]:
    """Return the given routes in CSR form, sorted by source times nodes plus destination, made once."""
    if "given routes" not in topology.cache:
        routes = sorted(topology.given_routes.items())
        keys = np.array([src * topology.n_nodes + dst for (src, dst), _ in routes], dtype=np.int64)
        ptr = np.cumsum([0, *(len(links) for _, links in routes)], dtype=np.int64)
        flat = np.array([link for _, links in routes for link in links], dtype=np.int64)
        topology.cache["given routes"] = keys, ptr, flat
    return topology.cache["given routes"]  # type: ignore[no-any-return]


def _searches(
    topology: Topology, graph: Adjacency, pair_src: Array, pair_dst: Array, wanted: Array
) -> Iterator[tuple[Array, Array, Tight]]:
    """Yield some of the wanted pairs, the search that each belongs to, and what was found, until all are done."""
    asked = np.bincount(pair_dst[wanted], minlength=graph.n)
    size = graph.n + graph.runs
    least, hubs = 1, None
    if np.count_nonzero(asked) * size > WHOLE:
        hubs = hubs_of(topology)
        least = MANY if hubs is None else max(MANY, size // LOOKS)
    shared = asked[pair_dst[wanted]] >= least
    by_dst = wanted[shared][np.argsort(pair_dst[wanted[shared]], kind="stable")]
    destinations, firsts = np.unique(pair_dst[by_dst], return_index=True)
    firsts = np.append(firsts, len(by_dst))
    step = max(1, STATES // size)
    for first in range(0, len(destinations), step):
        ends = firsts[first : first + step + 1]
        some = by_dst[ends[0] : ends[-1]]
        search = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        tight = towards(graph, destinations[first : first + step], search * graph.n + pair_src[some])
        yield some, search, tight
    # Pairs that turn out to be far apart take more memory: such a batch is halved and searched again.
    batches = [wanted[~shared][first : first + BATCH] for first in range(0, int((~shared).sum()), BATCH)][::-1]
    while batches:
        some = batches.pop()
        found = _pairs(graph, hubs, pair_src[some], pair_dst[some], STATES if len(some) > 1 else None)
        if found is None:
            batches += [some[len(some) // 2 :], some[: len(some) // 2]]
        else:
            yield some, np.arange(len(some)), found


def _pairs(graph: Adjacency, hubs: Hubs | None, src: Array, dst: Array, limit: int | None) -> Tight | None:
    if hubs is not None:
        return around(graph, hubs, src, dst, limit)
    found = between(graph, src, dst, limit)
    return None if found is None else found[0]


def _check(topology: Topology, tight: Tight, search: Array, src: Array, dst: Array) -> None:
    low, high = tight.range_of(search, src)
    if (low < high).all():
        return
    worst = int(np.argmax(low == high))
    start, end = int(src[worst]), int(dst[worst])
    reaching = int((distances(topology, np.array([end])) > 0).sum())
    raise TopologyError(
        f"no route from {topology.nodes[start]!r} to {topology.nodes[end]!r}: links lead to the latter from {reaching} "
        f"of the other {topology.n_nodes - 1} nodes; add a link or a switch that joins the two"
        + ("" if topology.forwards.all() else ", or let the nodes between them forward")
    )


def _walk(
    graph: Adjacency, tight: Tight, search: Array, rows: Array, node: Array, end: Array, turn: Array, deal: Array
) -> Iterator[tuple[Array, Array]]:
    """Yield (rows, link of each) hop by hop until every row has come to its end."""
    number = deal[end]
    best: Array | None = None
    while len(rows):
        low, high = tight.range_of(search, node)
        before = tight.links_before[low]
        options = tight.links_before[high] - before
        if best is None:
            best = tight.width_of_best(low, high)
        chosen = before + (number + turn) % options
        # Where the links on differ in width those that are too narrow have to be told apart first.
        mixed = np.flatnonzero(tight.last_alike[low] < high)
        if len(mixed):
            places, owner = spread(low[mixed], (high - low)[mixed])
            good = tight.width[places] >= best[mixed][owner]
            places, owner = places[good], owner[good]
            counts = tight.links_before[places + 1] - tight.links_before[places]
            past = np.cumsum(counts) - counts  # links of this row and those before it that come before a run
            starts = past[np.searchsorted(owner, np.arange(len(mixed)))]
            options[mixed] = np.bincount(owner, counts, len(mixed)).astype(np.int64)
            wanted = starts + (number + turn)[mixed] % options[mixed]
            run = np.searchsorted(past, wanted, side="right") - 1
            chosen[mixed] = tight.links_before[places[run]] + wanted - past[run]
        turn = np.where(options > 1, 0, turn)  # a channel counts once: added twice it could undo itself
        run = np.searchsorted(tight.links_before, chosen, side="right") - 1
        taken = tight.link(run, chosen - tight.links_before[run])
        yield rows, taken
        node = graph.dst[tight.keys[run] % graph.runs]
        number = graph.ordinal[taken]
        going = node != end
        rows, search, best, turn = rows[going], search[going], best[going], turn[going]
        node, end, number = node[going], end[going], number[going]
