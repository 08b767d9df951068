"""The order of the ranks that suits a ring.

Where GPUs are joined directly (DGX-1, torus, mesh, hypercube) it is a Hamiltonian cycle along their links, tried in
this order:

1. the file's order, if it is such a cycle;
2. what the generator knows: the snake through a mesh, a torus or a hypercube;
3. a backtracking search that takes the widest bundles of parallel links it can (the narrowest bundle of the cycle is
   as wide as possible), within a budget, so that it always ends.

Otherwise modules (the nodes of a cluster) come one after the other in the order of the file, each with such a cycle
inside where it has one: GPUs of one node stay together. Each is gone through forwards or backwards, whichever makes the
ring the fewest hops long, and forwards where it makes no difference. So on rails (each GPU of a node on a leaf switch
of its own) every other node is gone through backwards, and each hop between nodes stays on a rail; NCCL comes to the
same by exchanging channels on every other node (``src/graph/connect.cc``: rings alternate so as not to cross rails).
With an odd number of nodes the hop from the last to the first one crosses. It is the identity for most files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import TopologyError
from collsim.topology.graph import Topology
from collsim.topology.search import distinct

__all__ = ["ring_order"]

Array = npt.NDArray[Any]

BUDGET = 100_000
"""Nodes that all searches of one topology may visit."""

THRESHOLDS = 12
"""Widths of bundles that are tried, from the widest down."""

FAR = 2**62
"""Hops that no ring has."""

Widths = dict[int, dict[int, int]]
"""Bytes/s of the bundle of direct links from a rank to another."""


def ring_order(topology: Topology) -> tuple[int, ...]:
    """Return the ranks in the order of the ring; see the module. Never fails.

    Examples
    --------
    >>> from collsim.topology import mesh, rail_optimized, switch
    >>> ring_order(mesh((2, 3)))
    (0, 1, 2, 5, 4, 3)
    >>> ring_order(switch(4))
    (0, 1, 2, 3)
    >>> ring_order(rail_optimized(2, 4))
    (0, 1, 2, 3, 7, 6, 5, 4)
    """
    n = topology.n_ranks
    identity = tuple(range(n))
    if n < 3:
        return identity
    widths = _direct_widths(topology)
    modules = _modules(topology)
    if widths:
        if _is_cycle(widths, identity):
            return identity
        if (snake := _snake(topology)) is not None and _is_cycle(widths, snake):
            return snake
        if len(modules) == 1:
            found = _search(widths, identity, BUDGET)
            return identity if found is None else found
        found = _search(widths, identity, BUDGET // 2)
        if found is not None:
            return found
        budget = BUDGET // 2 // len(modules)
        inner = [_search(widths, module, budget) if len(module) > 2 else None for module in modules]
        modules = [order or module for order, module in zip(inner, modules, strict=True)]
    return tuple(rank for module in _turned(topology, modules) for rank in module)


def _direct_widths(topology: Topology) -> Widths:
    ranks = topology.rank_of_node
    src, dst = ranks[topology.link_src], ranks[topology.link_dst]
    direct = np.flatnonzero((src >= 0) & (dst >= 0))
    widths: Widths = {}
    columns = (src[direct], dst[direct], topology.link_bandwidth[direct])
    for a, b, bandwidth in zip(*(column.tolist() for column in columns), strict=True):
        row = widths.setdefault(a, {})
        row[b] = row.get(b, 0) + bandwidth
    return widths


def _modules(topology: Topology) -> list[tuple[int, ...]]:
    """Return the ranks of each module, in file order: by the part of the node's name before its last dot."""
    modules: dict[str, list[int]] = {}
    for rank, name in enumerate(topology.ranks):
        modules.setdefault(name.rpartition(".")[0], []).append(rank)
    return [tuple(module) for module in modules.values()]


def _turned(topology: Topology, modules: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the modules, those reversed that make the ring the shortest (of equally short ones, the last forwards)."""
    if len(modules) < 2 or max(map(len, modules)) < 2:
        return modules
    first, last = (np.array([module[end] for module in modules]) for end in (0, -1))
    try:
        # from a module (forwards, backwards) to the next one (forwards, backwards)
        between = np.stack([_hops(topology, a, np.roll(b, -1)) for a in (last, first) for b in (first, last)])
        inside = _inside(topology, modules)
    except TopologyError:  # no route
        return modules
    if (between == between[0]).all() and (inside == inside[0]).all():
        return modules
    hops = between.T.reshape(-1, 2, 2).tolist()
    within = inside.T.tolist()
    _, way = min(_ways(hops, within, start) for start in (0, 1))
    return [module[::-1] if backwards else module for module, backwards in zip(modules, way, strict=True)]


def _hops(topology: Topology, src: Array, dst: Array) -> Array:
    return np.diff(topology.routes(src, dst)[0])


def _inside(topology: Topology, modules: list[tuple[int, ...]]) -> Array:
    """Return the hops inside each module, forwards and backwards; 0 for both where they are alike."""
    n = topology.n_nodes
    there = topology.link_src.astype(np.int64) * n + topology.link_dst
    back = topology.link_dst.astype(np.int64) * n + topology.link_src
    if not topology.given_routes and np.array_equal(distinct(there), distinct(back)):
        return np.zeros((2, len(modules)), dtype=np.int64)
    src = np.array([rank for module in modules for rank in module[:-1]])
    dst = np.array([rank for module in modules for rank in module[1:]])
    owner = np.repeat(np.arange(len(modules)), [len(module) - 1 for module in modules])
    ways = (_hops(topology, src, dst), _hops(topology, dst, src))
    return np.stack([np.bincount(owner, way, len(modules)).astype(np.int64) for way in ways])


def _ways(between: list[list[list[int]]], inside: list[list[int]], start: int) -> tuple[int, list[int]]:
    """Return the least hops of a ring whose first module is gone through as ``start`` says, and the way of each."""
    best = [inside[0][way] if way == start else FAR for way in (0, 1)]
    chosen: list[list[int]] = []  # by module after the first and its way: the best way of the module before
    for step, own in zip(between, inside[1:], strict=False):
        choices = [min((best[a] + step[a][b], a) for a in (0, 1)) for b in (0, 1)]
        chosen.append([a for _, a in choices])
        best = [choices[b][0] + own[b] for b in (0, 1)]
    hops, way = min((best[a] + between[-1][a][start], a) for a in (0, 1))
    ways = [way]
    for choice in reversed(chosen):
        ways.append(choice[ways[-1]])
    return hops, ways[::-1]


def _is_cycle(widths: Widths, order: Sequence[int]) -> bool:
    return all(b in widths.get(a, ()) for a, b in zip(order, (*order[1:], order[0]), strict=True))


def _snake(topology: Topology) -> tuple[int, ...] | None:
    """Return a Hamiltonian cycle of a mesh, torus or hypercube if its structure is known and has one."""
    kind, dims = topology.structure.get("kind"), tuple(topology.structure.get("dims", ()))
    if kind not in ("mesh", "torus", "hypercube") or math.prod(dims) != topology.n_ranks:
        return None
    places = np.arange(topology.n_ranks).reshape([size for size in dims if size > 1])
    cycle = _mesh_cycle(places)
    if cycle is None and kind == "torus":
        cycle = _torus_cycle(places)
    return None if cycle is None else tuple(cycle.tolist())


def _mesh_cycle(places: Array) -> Array | None:
    """Return a cycle through a grid: along the teeth of a comb over an even dimension, and back along its spine."""
    even = [axis for axis, size in enumerate(places.shape) if size % 2 == 0]
    if not even or places.ndim < 2:
        return None
    rows = np.array([_mesh_path(row) for row in np.moveaxis(places, even[0], 0)])
    rows[1::2, 1:] = rows[1::2, :0:-1].copy()
    return np.concatenate([rows[:1, 0], rows[:, 1:].ravel(), rows[:0:-1, 0]])


def _mesh_path(places: Array) -> Array:
    """Return a path through a grid that turns at the end of each row."""
    if places.ndim == 1:
        return places
    rows = [_mesh_path(row) for row in places]
    return np.concatenate([row[::-1] if i % 2 else row for i, row in enumerate(rows)])


def _torus_cycle(places: Array) -> Array:
    """Return a cycle through a torus of odd sizes: its first dimension times a cycle through the rest.

    Each row is walked round once and left for the next row where the walk ends, which is one column to the left of its
    start, or to the right when walked the other way. The last row must end where the first began, so as many rows go
    left as right, except for one full round more to the left: there are an odd number of rows, and of columns.
    """
    if places.ndim == 1:
        return places
    table = np.array([_torus_cycle(row) for row in places])
    if table.shape[0] < table.shape[1]:
        table = table.T
    rows, columns = table.shape
    start, parts = 0, []
    for row in range(rows):
        turn = 1 if row < (rows + columns) // 2 else -1
        parts.append(table[row, (start + turn * np.arange(columns)) % columns])
        start -= turn
    return np.concatenate(parts)


def _search(widths: Widths, ranks: Sequence[int], budget: int) -> tuple[int, ...] | None:
    """Return a Hamiltonian cycle of the ranks whose narrowest bundle is as wide as the budget finds, or None."""
    members = set(ranks)
    inside = {a: {b: width for b, width in widths.get(a, {}).items() if b in members} for a in ranks}
    levels = sorted({width for row in inside.values() for width in row.values()}, reverse=True)
    if len(levels) > THRESHOLDS:
        levels = [*levels[: THRESHOLDS - 1], levels[-1]]
    for level in levels:
        onward = {a: [b for b, width in row.items() if width >= level] for a, row in inside.items()}
        reached = {b for row in onward.values() for b in row}
        if all(onward.values()) and len(reached) == len(ranks):
            found = _backtrack(onward, inside, ranks, budget // len(levels))
            if found is not None:
                return found
    return None


def _backtrack(
    onward: dict[int, list[int]], width: Widths, ranks: Sequence[int], budget: int
) -> tuple[int, ...] | None:
    """Search depth first, those with the fewest ways on before others, then the wider bundle, then file order."""
    start = ranks[0]
    place = {rank: i for i, rank in enumerate(ranks)}
    path, used = [start], {start}

    def choices(here: int) -> list[int]:
        free = [b for b in onward[here] if b not in used]
        ways = {b: sum(c not in used for c in onward[b]) for b in free}
        return sorted(free, key=lambda b: (ways[b], -width[here][b], place[b]), reverse=True)

    stack = [choices(start)]
    while stack and budget > 0:
        if not stack[-1]:
            stack.pop()
            used.discard(path.pop())
            continue
        here = stack[-1].pop()
        budget -= 1
        path.append(here)
        used.add(here)
        if len(path) == len(ranks) and start in onward[here]:
            return tuple(path)
        stack.append(choices(here))
    return None
