"""What algorithms need to know of the structure of a machine: dimensions, nodes of a cluster, neighbours.

Each function reads what the generator or the file says (`Topology.structure`, names of modules) and otherwise looks at
the links. None of them guesses: what is found holds for every rank, and where nothing is found the answer is None.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.topology.graph import Topology

__all__ = ["dimension_bandwidths", "node_groups", "product_dims", "rank_routes", "torus_dims"]

Array = npt.NDArray[Any]

ONE_LEVEL = frozenset({"ring", "bidirectional_ring", "line", "fully_connected", "switch", "mesh", "torus", "hypercube"})
"""Generators of machines without levels."""

MOST_CHANNELS = 16
"""Parallel links between two ranks that are told apart."""


def torus_dims(topology: Topology) -> tuple[int, ...] | None:
    """Return the sizes of the dimensions of a torus whose ranks are numbered row-major; None for other machines.

    A hypercube is a torus whose sizes are 2, a ring of both directions one of a single dimension. Where the maker said
    nothing, the direct links between ranks must be those of a torus and no others.

    Examples
    --------
    >>> from collsim.topology import bidirectional_ring, hypercube, mesh, torus
    >>> torus_dims(torus((4, 1, 2))), torus_dims(hypercube(3)), torus_dims(bidirectional_ring(5))
    ((4, 1, 2), (2, 2, 2), (5,))
    >>> torus_dims(mesh((4, 4))) is None
    True
    """
    kind, n = topology.structure.get("kind"), topology.n_ranks
    if kind in ("torus", "hypercube"):
        dims = tuple(int(size) for size in topology.structure.get("dims", ()))
        if math.prod(dims) == n:
            return dims
    if kind == "bidirectional_ring":
        return (n,)
    if "torus dims" not in topology.cache:
        topology.cache["torus dims"] = _detected_torus(topology)
    return topology.cache["torus dims"]  # type: ignore[no-any-return]


def _detected_torus(topology: Topology) -> tuple[int, ...] | None:
    n, ranks = topology.n_ranks, topology.rank_of_node
    src, dst = ranks[topology.link_src], ranks[topology.link_dst]
    direct = (src >= 0) & (dst >= 0)
    if n < 2 or not direct.any():
        return None
    found = np.unique(src[direct] * n + dst[direct])
    ahead = {int(key) for key in found[found < n]}  # neighbours of rank 0
    for dims in _candidates(n, 1, ahead):
        if np.array_equal(np.unique(np.concatenate([a * n + b for a, b in _neighbours(dims)])), found):
            return dims
    return None


def _candidates(n: int, stride: int, ahead: set[int]) -> Iterator[tuple[int, ...]]:
    """Yield sizes whose neighbours of rank 0 are among those that it has; the last dimension has the least stride."""
    if stride == n:
        yield ()
        return
    if stride not in ahead:
        return
    for size in range(2, n // stride + 1):
        if n % (stride * size) == 0 and stride * (size - 1) in ahead:
            for outer in _candidates(n, stride * size, ahead):
                yield (*outer, size)


def _neighbours(dims: tuple[int, ...]) -> Iterator[tuple[Array, Array]]:
    """Yield (rank, neighbour) of all ranks for each dimension and direction."""
    places = np.arange(math.prod(dims)).reshape(dims)
    for axis in range(len(dims)):
        for way in (-1, 1):
            yield places.ravel(), np.roll(places, way, axis).ravel()


def node_groups(topology: Topology) -> tuple[tuple[int, ...], ...] | None:
    """Return the ranks of each node of a cluster, in local order; None where there is only one level.

    Nodes are the modules of a file or generator, by the part of a rank's name before its last dot. Where names tell
    nothing they are the ranks that reach each other in the fewest hops: those on one leaf of a fat tree, or those that
    NVLink joins where the way to others passes adapters. Nodes may come out unequal; an algorithm may refuse that.

    Examples
    --------
    >>> from collsim.topology import fat_tree, rail_optimized, switch
    >>> node_groups(rail_optimized(2, 3)), node_groups(fat_tree(4, 2))
    (((0, 1, 2), (3, 4, 5)), ((0, 1), (2, 3)))
    >>> node_groups(switch(8)) is None
    True
    """
    if "node groups" not in topology.cache:
        modules: dict[str, list[int]] = {}
        for rank, name in enumerate(topology.ranks):
            modules.setdefault(name.rpartition(".")[0], []).append(rank)
        groups = list(modules.values())
        if not 1 < len(groups) < topology.n_ranks:
            groups = [] if topology.structure.get("kind") in ONE_LEVEL else _nearest(topology)
        levels = 1 < len(groups) < topology.n_ranks
        topology.cache["node groups"] = tuple(map(tuple, groups)) if levels else None
    return topology.cache["node groups"]  # type: ignore[no-any-return]


def _nearest(topology: Topology) -> list[list[int]]:
    """Join the ranks that are the fewest hops apart.

    All ranks search at once, a hop a round. Before any two meet no node is found from two of them, so one owner a node
    will do; the round in which some meet tells all pairs that are nearest.
    """
    n, src, dst = topology.n_ranks, topology.link_src.astype(np.int64), topology.link_dst.astype(np.int64)
    owner = np.full(topology.n_nodes, -1)
    owner[topology.rank_nodes] = np.arange(n)
    reached = owner >= 0
    while True:
        a, b = owner[src], owner[dst]
        meet = (a >= 0) & (b >= 0) & (a != b)
        if meet.any():
            return _components(n, a[meet], b[meet])
        step = reached[src] & (owner[dst] < 0)
        if not step.any():
            return []
        node, by = dst[step], owner[src[step]]
        owner[node] = by
        if (owner[node] != by).any():
            return _components(n, owner[node], by)
        reached = np.zeros_like(reached)
        reached[node] = topology.forwards[node]


def _components(n: int, a: Array, b: Array) -> list[list[int]]:
    """Return the connected components of a graph, each in ascending order."""
    label = _labels(n, a, b)
    order = np.argsort(label, kind="stable")
    borders = np.flatnonzero(np.diff(label[order])) + 1
    return [part.tolist() for part in np.split(order, borders)]


def _labels(n: int, a: Array, b: Array) -> Array:
    """Return the least node of the connected component of each node."""
    label = np.arange(n)
    while True:
        low = np.minimum(label[a], label[b])
        new = label.copy()
        np.minimum.at(new, label[a], low)
        np.minimum.at(new, label[b], low)
        while (new[new] != new).any():
            new = new[new]
        if np.array_equal(new, label):
            return label
        label = new


def product_dims(topology: Topology) -> tuple[int, ...] | None:
    """Return sizes whose product is the ranks, numbered row-major: those of a torus, or (nodes, ranks of a node).

    None where the machine has neither, or its nodes are not equally many consecutive ranks.

    Examples
    --------
    >>> from collsim.topology import rail_optimized, torus
    >>> product_dims(rail_optimized(4, 8)), product_dims(torus((3, 5)))
    ((4, 8), (3, 5))
    """
    dims = torus_dims(topology)
    if dims is not None:
        return dims
    groups = node_groups(topology)
    if groups is None or len({len(group) for group in groups}) > 1:
        return None
    flat = [rank for group in groups for rank in group]
    return (len(groups), len(groups[0])) if flat == list(range(topology.n_ranks)) else None


def dimension_bandwidths(topology: Topology) -> tuple[int, ...] | None:
    """Return the bytes a second that a rank sends to its next one along each of the `product_dims`.

    It is the narrowest link of the route, at the worst rank; 0 for a dimension of one rank. None where there are no
    dimensions.

    Examples
    --------
    >>> from collsim.topology import rail_optimized
    >>> [rate // 10**9 for rate in dimension_bandwidths(rail_optimized(4, 8))]
    [50, 450]
    """
    dims = product_dims(topology)
    if dims is None:
        return None
    places = np.arange(topology.n_ranks).reshape(dims)
    rates = []
    for axis, size in enumerate(dims):
        if size == 1:
            rates.append(0)
            continue
        _, links = topology.routes(places.ravel(), np.roll(places, -1, axis).ravel())
        rates.append(int(topology.link_bandwidth[links].min()))
    return tuple(rates)


def rank_routes(topology: Topology) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Return the routes between neighbours: pairs of ranks whose route passes no other rank.

    Returns
    -------
    dict
        ``(source, destination)`` to the links of the route, by ascending pairs; where two ranks have parallel links
        also ``(source, destination, channel)`` for each channel whose route shares no link with those before it.

    Examples
    --------
    >>> from collsim.topology import bidirectional_ring, switch
    >>> rank_routes(bidirectional_ring(3))
    {(0, 1): (0,), (0, 2): (5,), (1, 0): (3,), (1, 2): (1,), (2, 0): (2,), (2, 1): (4,)}
    >>> rank_routes(bidirectional_ring(2))
    {(0, 1): (3,), (0, 1, 1): (0,), (1, 0): (1,), (1, 0, 1): (2,)}
    >>> len(rank_routes(switch(8)))
    56
    """
    pairs = _near_pairs(topology)
    routes: dict[tuple[int, ...], tuple[int, ...]] = {}
    taken: dict[tuple[int, int], set[int]] = {}
    for channel in range(MOST_CHANNELS):
        if not len(pairs):
            break
        ptr, links = topology.routes(pairs[:, 0], pairs[:, 1], channel)
        owner = np.repeat(np.arange(len(pairs)), np.diff(ptr))
        at_rank = topology.rank_of_node[topology.link_dst[links]] >= 0
        passes = np.bincount(owner[at_rank], minlength=len(pairs)) > 1  # more than the end of the route
        more = []
        for i, (src, dst) in enumerate(pairs.tolist()):
            route = links[ptr[i] : ptr[i + 1]].tolist()
            known = taken.setdefault((src, dst), set())
            if not passes[i] and known.isdisjoint(route):
                routes[(src, dst, channel) if channel else (src, dst)] = tuple(route)
                known.update(route)
                more.append(i)
        # another channel may give another route only where links on the way are parallel or paths equal
        pairs = pairs[more]
    return dict(sorted(routes.items()))


def _near_pairs(topology: Topology) -> Array:
    """Pairs of ranks that have a link, or a part of the machine without ranks, between them."""
    n, ranks = topology.n_ranks, topology.rank_of_node
    src, dst = topology.link_src.astype(np.int64), topology.link_dst.astype(np.int64)
    a, b = ranks[src], ranks[dst]
    direct = (a >= 0) & (b >= 0)
    keys = [a[direct] * n + b[direct]]
    through = (a < 0) & (b < 0)
    label = _labels(topology.n_nodes, src[through], dst[through])
    into, out = (a >= 0) & (b < 0), (a < 0) & (b >= 0)
    senders = _by_label(label[dst[into]], a[into])
    receivers = _by_label(label[src[out]], b[out])
    for part in senders.keys() & receivers.keys():
        keys.append((senders[part][:, None] * n + receivers[part]).ravel())
    joined = np.unique(np.concatenate(keys))
    pairs = np.stack(np.divmod(joined, n), axis=1)
    return np.asarray(pairs[pairs[:, 0] != pairs[:, 1]])


def _by_label(label: Array, ranks: Array) -> dict[int, Array]:
    """Ranks of each label."""
    order = np.argsort(label, kind="stable")
    names, first = np.unique(label[order], return_index=True)
    parts = np.split(ranks[order], first[1:]) if len(names) else []
    return {name: np.unique(part) for name, part in zip(names.tolist(), parts, strict=True)}
