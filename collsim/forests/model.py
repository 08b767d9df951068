"""A machine as forests see it, and a forest: trees that carry a message from their roots to all ranks.

A tree has units: equal shares of what its root has to say, which may go different ways. Each unit of each tree is an
out-tree over all ranks, along paths of the machine, and no link carries more units than its bandwidth allows at the
rate that one unit gets (Edmonds, "Edge-disjoint branchings", 1973; Zhao et al., "ForestColl: throughput-optimal
collective communications on heterogeneous network fabrics", 2024).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError, shown

__all__ = ["Branch", "Forest", "Tree", "Wires", "turned"]

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Wires:
    """A machine as forests see it: nodes and one-directional links, plain arrays.

    Attributes
    ----------
    nodes
        Names of the nodes.
    ranks
        Node of each rank.
    passes
        By node: whether a message may pass through it. A rank's node never does: a rank receives, and sends on.
    src, dst, bandwidth
        Nodes at the ends of each link, and its bytes per second.
    links
        Name of each link, as `Topology.link_name` writes it and ``via`` takes it.

    Examples
    --------
    >>> wires = Wires(("a", "b"), [0, 1], [False, False], [0, 1], [1, 0], [10, 20], ("a->b", "b->a"))
    >>> wires
    <Wires: 2 ranks, 2 nodes, 2 links>
    >>> turned(wires).dst.tolist(), turned(wires).links
    ([0, 1], ('a->b', 'b->a'))
    """

    nodes: tuple[str, ...]
    ranks: IntArray
    passes: BoolArray
    src: IntArray
    dst: IntArray
    bandwidth: IntArray
    links: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        object.__setattr__(self, "links", tuple(self.links))
        n, links = len(self.nodes), len(self.links)
        for name, length in (("ranks", None), ("passes", n), ("src", links), ("dst", links), ("bandwidth", links)):
            kind: Any = np.bool_ if name == "passes" else np.int64
            column = np.array(getattr(self, name), dtype=kind)
            if column.ndim != 1 or (length is not None and len(column) != length):
                raise InputError(f"wires: {name}: expected {length} values in a row, got a shape of {column.shape}")
            if name in ("ranks", "src", "dst") and len(column) and not 0 <= column.min() <= column.max() < n:
                raise InputError(f"wires: {name}: expected nodes 0 to {n - 1}, got {column.min()} to {column.max()}")
            if name == "bandwidth" and len(column) and column.min() < 1:
                raise InputError(f"wires: bandwidth: expected at least 1 byte/s, got {column.min()}")
            column.flags.writeable = False
            object.__setattr__(self, name, column)
        if not len(self.ranks) or len(np.unique(self.ranks)) < len(self.ranks):
            raise InputError(f"wires: ranks: expected at least one node, each once, got {shown(self.ranks.tolist())}")
        if (self.src == self.dst).any():
            link = int(np.argmax(self.src == self.dst))
            raise InputError(f"wires: expected links between two nodes, got {shown(self.links[link])}")
        if self.passes[self.ranks].any():
            passes = self.passes.copy()
            passes[self.ranks] = False
            passes.flags.writeable = False
            object.__setattr__(self, "passes", passes)

    def __repr__(self) -> str:
        return f"<Wires: {len(self.ranks):,} ranks, {len(self.nodes):,} nodes, {len(self.links):,} links>"


def turned(wires: Wires) -> Wires:
    """Return the machine with every link turned round; names stay, so that they name the links as they are."""
    return Wires(wires.nodes, wires.ranks, wires.passes, wires.dst, wires.src, wires.bandwidth, wires.links)


class Branch(NamedTuple):
    """Some units of a tree on their way from one rank to the next.

    Attributes
    ----------
    parent, child
        Ranks.
    first, units
        Units ``first`` to ``first + units - 1`` of the tree go this way.
    path
        Names of the links on the way, from parent to child.
    """

    parent: int
    child: int
    first: int
    units: int
    path: tuple[str, ...]


class Part(NamedTuple):
    """Units of a tree that go the same way everywhere: the first, how many, and the branches that they take."""

    first: int
    units: int
    branches: tuple[Branch, ...]


@dataclass(frozen=True)
class Tree:
    """Units that go from a root to all ranks, each along an out-tree.

    Attributes
    ----------
    root
        Rank.
    units
        How many units start there.
    branches
        Parents before children. A child has one branch for each unit; a branch may carry several.

    Examples
    --------
    Two units go from 0 to 1 together and reach 2 on different ways:

    >>> tree = Tree(0, 2, (Branch(0, 1, 0, 2, ("a",)), Branch(0, 2, 0, 1, ("b",)), Branch(1, 2, 1, 1, ("c",))))
    >>> tree.depth, [(part.first, part.units) for part in tree.parts()]
    (2, [(0, 1), (1, 1)])
    """

    root: int
    units: int
    branches: tuple[Branch, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "branches", tuple(self.branches))
        if self.root < 0 or self.units < 1:
            raise InputError(f"tree: expected a root and at least one unit, got root {self.root}, {self.units} units")
        held = {self.root: (1 << self.units) - 1}  # units that a rank has, one bit each
        for branch in self.branches:
            parent, child, first, units, _ = branch
            if min(parent, child, first) < 0 or units < 1 or first + units > self.units:
                raise InputError(
                    f"tree of root {self.root}: expected ranks, and some of the units 0 to {self.units - 1}, "
                    f"got {shown(tuple(branch))}"
                )
            moved = ((1 << units) - 1) << first
            if held.get(parent, 0) & moved != moved:
                raise InputError(
                    f"tree of root {self.root}: {parent} sends units {first} to {first + units - 1} to {child} before "
                    "it has them; expected parents before children"
                )
            if held.get(child, 0) & moved:
                raise InputError(
                    f"tree of root {self.root}: {child} gets a unit of {first} to {first + units - 1} twice"
                )
            held[child] = held.get(child, 0) | moved

    def parts(self) -> list[Part]:
        """Return the units in runs, each as long as all its units take the same branches."""
        borders = {0, self.units}
        for branch in self.branches:
            borders.update((branch.first, branch.first + branch.units))
        if len(borders) == 2:
            return [Part(0, self.units, self.branches)]
        return [
            Part(low, high - low, tuple(b for b in self.branches if b.first <= low and high <= b.first + b.units))
            for low, high in pairwise(sorted(borders))
        ]

    @cached_property
    def depth(self) -> int:
        """Branches on the longest way from the root."""
        deepest = 0
        for part in self.parts():
            level = {self.root: 0}
            for branch in part.branches:
                level[branch.child] = level[branch.parent] + 1
            deepest = max(deepest, *level.values())
        return deepest


@dataclass(frozen=True, repr=False)
class Forest:
    """Trees that all send at once.

    Attributes
    ----------
    ranks
        Number of ranks; every unit of every tree reaches all of them.
    trees
        The trees.
    rate
        Bytes per second that one unit gets, when all have started: no link carries more units than its bandwidth over
        this.
    """

    ranks: int
    trees: tuple[Tree, ...]
    rate: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "trees", tuple(self.trees))
        if self.ranks < 1 or not self.trees:
            raise InputError(f"forest: expected ranks and trees, got {self.ranks} ranks, {len(self.trees)} trees")
        if self.rate <= 0:
            raise InputError(f"forest: rate: expected more than 0 bytes/s, got {self.rate}")
        for tree in self.trees:
            # a rank gets no unit twice, so that counting them tells whether all have come
            got = sum(branch.units for branch in tree.branches)
            ends = {tree.root, *(branch.child for branch in tree.branches)}
            if max(ends) >= self.ranks:
                raise InputError(f"forest: expected ranks below {self.ranks}, got {max(ends)}")
            if got != tree.units * (self.ranks - 1):
                raise InputError(
                    f"forest: expected each of {tree.units} units of root {tree.root} to reach all {self.ranks} ranks, "
                    f"got {got} arrivals where {tree.units * (self.ranks - 1)} are needed"
                )

    @property
    def units(self) -> int:
        """Units of all trees."""
        return sum(tree.units for tree in self.trees)

    @property
    def depth(self) -> int:
        """Branches on the longest way from a root."""
        return max(tree.depth for tree in self.trees)

    def units_of(self) -> IntArray:
        """Return the units that start at each rank."""
        counts = np.zeros(self.ranks, dtype=np.int64)
        for tree in self.trees:
            counts[tree.root] += tree.units
        return counts

    def load(self) -> dict[str, int]:
        """Return the units that cross each link that is used, by its name."""
        counts: dict[str, int] = {}
        for branch in self._branches():
            for link in branch.path:
                counts[link] = counts.get(link, 0) + branch.units
        return counts

    def _branches(self) -> Iterable[Branch]:
        return (branch for tree in self.trees for branch in tree.branches)

    def __repr__(self) -> str:
        units = f"{self.units} units of {float(self.rate):.6g} bytes/s"
        return f"<Forest: {self.ranks} ranks, {len(self.trees)} trees, {units}>"
