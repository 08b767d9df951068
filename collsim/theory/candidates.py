"""Sets of nodes that are likely to be bottlenecks: modules, islands of fast links, what lies below a switch, halves.

There may be tens of thousands of them, so they are kept as lists of their members, and weighed all at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.topology.hubs import components
from collsim.topology.search import adjacency, distinct, spread

if TYPE_CHECKING:
    from collsim.topology import Topology

__all__ = ["Sets", "candidate_sets", "capacities", "every_set", "islands"]

Array = npt.NDArray[Any]

MEMBERS = 2**22
"""Members of the sets below switches, and of the islands, that are listed; those of larger machines are left out."""

PAIRED = 32
"""Modules up to which the unions of any two are sets too."""

FEW = 12
"""Nodes up to which every set of them is tried."""

LOOKS = 2**22
"""Links that are looked at at a time."""


@dataclass(frozen=True, eq=False)
class Sets:
    """Sets of nodes: set i has ``members[ptr[i]:ptr[i + 1]]``, in ascending order."""

    nodes: int
    ptr: Array
    members: Array

    def __len__(self) -> int:
        return len(self.ptr) - 1

    def inside(self, number: int) -> Array:
        """Return by node whether it is in a set."""
        mask = np.zeros(self.nodes, dtype=bool)
        mask[self.members[self.ptr[number] : self.ptr[number + 1]]] = True
        return mask

    def owners(self) -> Array:
        """Return the set of each member."""
        return np.repeat(np.arange(len(self)), np.diff(self.ptr))

    def count(self, marked: Array) -> Array:
        """Return how many nodes of each set are marked."""
        return np.bincount(self.owners(), marked[self.members], len(self)).astype(np.int64)

    def have(self, sets: Array, nodes: Array) -> Array:
        """Whether each set has the node beside it."""
        wanted, keys = sets * self.nodes + nodes, self._keys
        return np.asarray(keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted)

    @cached_property
    def _keys(self) -> Array:
        return np.asarray(self.owners() * self.nodes + self.members)

    def some(self, chosen: Array) -> Sets:
        """Return the sets of some numbers."""
        sizes = np.diff(self.ptr)[chosen]
        places, _ = spread(self.ptr[chosen], sizes)
        return Sets(self.nodes, np.concatenate(([0], np.cumsum(sizes))), self.members[places])

    def __add__(self, other: Sets) -> Sets:
        ptr = np.concatenate([self.ptr, self.ptr[-1] + other.ptr[1:]])
        return Sets(self.nodes, ptr, np.concatenate([self.members, other.members]))


def candidate_sets(topology: Topology) -> Sets:
    """Return sets of nodes that are likely to be bottlenecks, each once, with at least two ranks and not all of them.

    Examples
    --------
    >>> import collsim.topology
    >>> sets = candidate_sets(collsim.topology.line(4, bandwidth="1GB/s", latency="1us"))
    >>> [sets.inside(i).tolist() for i in range(len(sets))]
    [[True, True, False, False]]
    """
    if "candidate sets" not in topology.cache:
        topology.cache["candidate sets"] = _candidates(topology)
    return topology.cache["candidate sets"]  # type: ignore[no-any-return]


def _candidates(topology: Topology) -> Sets:
    ranks = topology.rank_of_node >= 0
    names = np.random.default_rng(0).integers(0, 2**64, topology.n_nodes, dtype=np.uint64)
    found = Sets(topology.n_nodes, np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64))
    for sets in _families(topology, ranks):
        held = sets.count(ranks)
        found += sets.some(np.flatnonzero((held > 1) & (held < topology.n_ranks)))
    # sets are told apart by sums of random numbers
    sums = np.zeros(len(found), dtype=np.uint64)
    np.add.at(sums, found.owners(), names[found.members])
    return found.some(np.sort(np.unique(sums, return_index=True)[1]))


def every_set(topology: Topology, links: Array) -> tuple[Sets, Array]:
    """Return every set of the nodes of some links, and the bytes a second that leave each; none if they are many.

    Examples
    --------
    >>> import collsim.topology
    >>> sets, rates = every_set(collsim.topology.ring(3, bandwidth="1GB/s", latency="1us"), np.arange(3))
    >>> [sets.inside(i).nonzero()[0].tolist() for i in range(len(sets))], rates.tolist()
    ([[0], [1], [0, 1], [2], [0, 2], [1, 2]], [1000000000, 1000000000, 1000000000, 1000000000, 1000000000, 1000000000])
    """
    nodes, place = np.unique(np.stack([topology.link_src[links], topology.link_dst[links]]), return_inverse=True)
    if not 0 < len(nodes) <= FEW:
        return Sets(topology.n_nodes, np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64)), np.zeros(0, np.int64)
    inside = (np.arange(1, 2 ** len(nodes) - 1)[:, None] >> np.arange(len(nodes)) & 1).astype(bool)
    joined = np.zeros((len(nodes), len(nodes)), dtype=np.int64)
    np.add.at(joined, tuple(place.reshape(2, -1)), topology.link_bandwidth[links])
    ptr = np.concatenate(([0], np.cumsum(inside.sum(axis=1))))
    rates = ((inside @ joined) * ~inside).sum(axis=1)
    return Sets(topology.n_nodes, ptr, nodes[np.nonzero(inside)[1]]), rates


def capacities(topology: Topology, sets: Sets) -> tuple[Array, Array]:
    """Return the bytes a second that leave each set, and those that come into it."""
    graph = adjacency(topology)
    width = graph.width * np.diff(graph.first)
    owner = sets.owners()
    found = []
    for ptr, runs, far in ((graph.out_ptr, np.arange(graph.runs), graph.dst), (graph.in_ptr, graph.in_runs, graph.src)):
        degree = np.diff(ptr)[sets.members]
        total = np.zeros(len(sets), dtype=np.int64)
        looks = np.cumsum(degree)
        start = 0
        while start < len(looks):
            stop = max(start + 1, int(np.searchsorted(looks, (looks[start - 1] if start else 0) + LOOKS)))
            places, member = spread(ptr[sets.members[start:stop]], degree[start:stop])
            run, own = runs[places], owner[start:stop][member]
            outside = ~sets.have(own, far[run])
            np.add.at(total, own[outside], width[run[outside]])
            start = stop
        found.append(total)
    return found[0], found[1]


def _families(topology: Topology, ranks: Array) -> Iterator[Sets]:
    modules = _parts(_modules(topology))
    yield modules
    for label in islands(topology):
        yield _parts(label)
    yield _below(topology, ranks)
    if ranks.all() and topology.n_ranks > 2:
        yield from _halves(topology)
    yield from _unions(modules)


def islands(topology: Topology) -> Iterator[Array]:
    """Yield the parts of the machine that links of some bandwidth or more join: by node, the number of its part."""
    rates = np.unique(topology.link_bandwidth)[1:]
    most = max(1, MEMBERS // topology.n_nodes)
    if len(rates) > most:
        rates = rates[np.linspace(0, len(rates) - 1, most).astype(np.int64)]
    for rate in rates:
        fast = topology.link_bandwidth >= rate
        yield components(topology.n_nodes, topology.link_src[fast], topology.link_dst[fast])


def _halves(topology: Topology) -> Iterator[Sets]:
    """Yield one half of a machine of ranks only: the first ranks, and those along each dimension."""
    dims = topology.structure.get("dims", ())
    if math.prod(dims) != topology.n_ranks:
        dims = (topology.n_ranks,)
    places = np.arange(topology.n_ranks).reshape(dims)
    for axis, size in enumerate(dims):
        if size > 1:
            half = np.sort(topology.rank_nodes[np.take(places, np.arange(size // 2), axis).ravel()])
            yield Sets(topology.n_nodes, np.array([0, len(half)]), half)


def _unions(modules: Sets) -> Iterator[Sets]:
    """Yield the unions of any two modules, and of the first ones in order by eighths."""
    count, sizes = len(modules), np.diff(modules.ptr)
    rows = [np.array(pair) for pair in combinations(range(count), 2)] if count <= PAIRED else []
    rows += [np.arange(first) for first in sorted({count * i // 8 for i in range(1, 8)}) if 2 <= first < count]
    if not rows:
        return
    chosen, owner = np.concatenate(rows), np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    places, row = spread(modules.ptr[chosen], sizes[chosen])
    above, members = np.divmod(distinct(owner[row] * modules.nodes + modules.members[places]), modules.nodes)
    yield Sets(modules.nodes, np.searchsorted(above, np.arange(len(rows) + 1)), members)


def _parts(label: Array) -> Sets:
    """Return the sets of nodes of equal label, those of labels below 0 aside."""
    order = np.argsort(label, kind="stable")
    order = order[label[order] >= 0]
    borders = np.flatnonzero(np.diff(label[order], prepend=-1))
    return Sets(len(label), np.append(borders, len(order)), order)


def _modules(topology: Topology) -> Array:
    """Return numbers of nodes by the part of the name before the last dot (node[3] of node[3].gpu[0]); -1 without."""
    numbers: dict[str, int] = {}
    return np.array(
        [numbers.setdefault(name.rpartition(".")[0], len(numbers)) if "." in name else -1 for name in topology.nodes]
    )


def _below(topology: Topology, ranks: Array) -> Sets:
    """Return for each node that is no rank all that lies below it: nearer to the ranks, link by link."""
    graph, n = adjacency(topology), topology.n_nodes
    level = np.where(ranks, 0, n)
    for _ in range(max(1, 2**28 // max(1, graph.runs))):
        lower = level.copy()
        np.minimum.at(lower, graph.src, level[graph.dst] + 1)
        if np.array_equal(lower, level):
            break
        level = lower
    down = np.flatnonzero(level[graph.dst] < level[graph.src])
    first = np.searchsorted(graph.src[down], np.arange(n + 1))
    # below a rank is the rank; the sets of the other nodes follow, level by level
    start, size = np.full(n, -1), np.zeros(n, dtype=np.int64)
    start[topology.rank_nodes], size[topology.rank_nodes] = np.arange(topology.n_ranks), 1
    members = [topology.rank_nodes]
    numbers: list[Array] = []
    total = topology.n_ranks
    for height in range(1, int(level[level < n].max(initial=0)) + 1):
        nodes = np.flatnonzero(level == height)
        links, owner = spread(first[nodes], np.diff(first)[nodes])
        child = graph.dst[down[links]]
        if size[child].sum() + total > MEMBERS:
            break
        places, link = spread(start[child], size[child])
        keys = [owner[link] * n + np.concatenate(members)[places], np.arange(len(nodes)) * n + nodes]
        above, below = np.divmod(distinct(np.concatenate(keys)), n)
        size[nodes] = np.bincount(above, minlength=len(nodes))
        start[nodes] = total + np.cumsum(size[nodes]) - size[nodes]
        total += len(below)
        members.append(below)
        numbers.append(nodes)
    chosen = np.concatenate([np.zeros(0, dtype=np.int64), *numbers])
    places, _ = spread(start[chosen], size[chosen])
    return Sets(n, np.concatenate(([0], np.cumsum(size[chosen]))), np.concatenate(members)[places])
