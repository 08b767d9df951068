"""Packing trees: out-trees from given roots that reach all ranks and share out the units between them.

All trees grow together, the smallest first, from their shallowest ranks. A tree may take a way only if the others can
still be completed: for each set of ranks that a tree has not reached there must be a unit of its own into the set. How
much of a way may be taken is the least such slack over all sets, and one maximum flow finds it.

Source: Edmonds (1973) for the condition; Schrijver, "Combinatorial Optimization" (2003), section 53, and Berczi and
Frank (2010) for trees with multiplicities that grow by flows, as "ForestColl" (arXiv 2402.06787) uses them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import AlgorithmError
from collsim.flows.arcs import Arcs, Effort

__all__ = ["Growth", "grow"]

Array = npt.NDArray[Any]
Pair = tuple[int, int]


@dataclass
class Growth:
    """Some units of one root that grow alike.

    Attributes
    ----------
    root, units
        The rank that they start from, and how many they are.
    branches
        ``(parent, child)`` in the order in which they were taken.
    depth
        Branches from the root to each rank that was reached.
    """

    root: int
    units: int
    branches: list[Pair]
    depth: dict[int, int]
    todo: list[tuple[int, int, int, int]] = field(default_factory=list)

    def split(self, units: int) -> Growth:
        """Return so many of the units as a growth of its own, and keep the rest."""
        self.units -= units
        return Growth(self.root, units, list(self.branches), dict(self.depth), list(self.todo))


def grow(ranks: int, capacity: dict[Pair, int], roots: dict[int, int], effort: Effort | None = None) -> list[Growth]:
    """Return trees that span all ranks and together use no pair of ranks beyond its units.

    Parameters
    ----------
    ranks
        Number of ranks.
    capacity
        Units that may go directly from rank to rank.
    roots
        Units that start at each root. All of them must be able to reach every rank.
    effort
        What tells when flows are worth compiling.

    Raises
    ------
    AlgorithmError
        If the units cannot reach every rank.

    Examples
    --------
    >>> ring = {(i, (i + way) % 3): 1 for i in range(3) for way in (1, -1)}
    >>> [(tree.root, tree.units, tree.branches) for tree in grow(3, ring, {0: 2})]
    [(0, 1, [(0, 1), (1, 2)]), (0, 1, [(0, 2), (2, 1)])]
    """
    growing = [Growth(root, units, [], {root: 0}) for root, units in roots.items() if units]
    slack = _Slack(ranks, capacity, growing, Effort() if effort is None else effort)
    near: dict[int, list[int]] = {}
    for a, b in sorted(capacity):
        near.setdefault(a, []).append(b)
    for tree in growing:
        _reach(tree, tree.root, near, ranks)
    queue = [(1, i) for i in range(len(growing))]
    while queue:
        size, number = heappop(queue)
        tree = growing[number]
        if size == ranks:
            continue
        if not tree.todo:
            raise AlgorithmError("forest: expected units that reach every rank, got some that cannot")
        _, _, a, b = heappop(tree.todo)
        most = min(slack.left(a, b), tree.units) if b not in tree.depth else 0
        units = slack.of(number, a, b, most) if most else 0
        if 0 < units < tree.units:  # the rest of the units has to find another way
            heappush(queue, (size, len(growing)))
            growing.append(tree.split(tree.units - units))
            slack.add(growing[-1], number)
        if units:
            tree.branches.append((a, b))
            tree.depth[b] = tree.depth[a] + 1
            slack.took(number, a, b, units)
            _reach(tree, b, near, ranks)
        heappush(queue, (len(tree.depth), number))
    return growing


def _reach(tree: Growth, rank: int, near: dict[int, list[int]], ranks: int) -> None:
    """Put the ways on from a rank that was just reached on the list."""
    depth = tree.depth[rank]
    for b in near.get(rank, ()):
        if b not in tree.depth:
            heappush(tree.todo, (depth, (b - rank) % ranks, rank, b))


class _Slack:
    """How much of a way a tree may take."""

    def __init__(self, ranks: int, capacity: dict[Pair, int], growing: list[Growth], effort: Effort) -> None:
        self.ranks, self.growing, self.effort = ranks, growing, effort
        self.pairs = {pair: i for i, pair in enumerate(sorted(capacity))}
        self.cap = np.repeat(np.array([capacity[pair] for pair in sorted(capacity)], dtype=np.int64), 2)
        self.tight: list[int] = []
        self.members = [1 << tree.root for tree in growing]
        self._room(2 * len(growing))

    def _room(self, trees: int) -> None:
        """Lay out the arcs for so many trees: between ranks, from the source to both, from trees to ranks."""
        n = self.ranks
        self.trees, self.source = trees, n + trees
        of_tree, rank = (part.ravel() for part in np.indices((trees, n)))
        ends = np.array(sorted(self.pairs), dtype=np.int64).reshape(-1, 2)
        heads = [ends[:, 1], np.arange(n), n + np.arange(trees), rank]
        tails = [ends[:, 0], np.full(n, self.source), np.full(trees, self.source), n + of_tree]
        sizes = np.cumsum([0, *map(len, heads)])
        self.from_source, self.to_tree, self.from_tree = sizes[1:4].tolist()
        head, tail = np.concatenate(heads), np.concatenate(tails)
        self.arcs = Arcs(self.source + 1, tail, head)
        left = self.cap[: 2 * len(self.pairs) : 2]
        self.endless = int(left.sum()) + sum(tree.units for tree in self.growing) + 1
        self.cap = np.zeros(2 * len(head), dtype=np.int64)
        self.cap[: 2 * len(self.pairs) : 2] = left
        for number, tree in enumerate(self.growing):
            if len(tree.depth) < n:
                self.cap[2 * (self.to_tree + number)] = tree.units
            for reached in tree.depth:
                self.cap[2 * (self.from_tree + number * n + reached)] = self.endless

    def left(self, a: int, b: int) -> int:
        """Return the units from a to b that nobody has taken."""
        return int(self.cap[2 * self.pairs[a, b]])

    def add(self, tree: Growth, like: int) -> None:
        """Take in a tree that was split from another."""
        number = len(self.growing) - 1
        self.members.append(self.members[like])
        if number >= self.trees:
            self._room(2 * self.trees)
            return
        n = self.ranks
        row = slice(2 * (self.from_tree + like * n), 2 * (self.from_tree + (like + 1) * n))
        mine = slice(2 * (self.from_tree + number * n), 2 * (self.from_tree + (number + 1) * n))
        self.cap[mine] = self.cap[row]
        self.cap[2 * (self.to_tree + number)] = tree.units
        self.cap[2 * (self.to_tree + like)] -= tree.units

    def of(self, number: int, a: int, b: int, most: int) -> int:
        """Return how many units, ``most`` at most, a tree may take from a to b."""
        members, enters, leaves = self.members[number], 1 << b, 1 << a
        for inside in self.tight:
            # every unit into such a set is for a tree that has none of it yet
            if inside & enters and not inside & leaves and inside & members:
                return 0
        others = int(self.cap[2 * self.to_tree : 2 * self.from_tree : 2].sum()) - self.growing[number].units
        limit = others + most
        cap = self.cap.copy()
        cap[2 * (self.from_source + a)] = self.endless
        cap[2 * (self.to_tree + number)] = 0
        flow, hops = self.arcs.push(cap, self.source, b, limit, self.effort)
        units = max(0, min(most, flow - others))
        if units == 0:
            self.tight.append(sum(1 << rank for rank in np.flatnonzero(hops[: self.ranks] >= 0).tolist()))
        return units

    def took(self, number: int, a: int, b: int, units: int) -> None:
        """Take note that a tree has taken units of a way."""
        self.cap[2 * self.pairs[a, b]] -= units
        self.cap[2 * (self.from_tree + number * self.ranks + b)] = self.endless
        self.members[number] |= 1 << b
        if len(self.growing[number].depth) == self.ranks:
            self.cap[2 * (self.to_tree + number)] = 0
