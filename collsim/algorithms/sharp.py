"""SHARP: a tree of switches in the network adds up what comes from below and copies what comes from above.

Each switch of the tree waits for a slice of all its children, adds them up and sends one slice on; the root sends the
sum back down, and every switch copies it to its children. A rank sends S and receives S, whatever the number of ranks:
half of what a ring does. Sources: Graham et al., "Scalable Hierarchical Aggregation Protocol (SHARP): a hardware
architecture for efficient data reduction" (COMHPC 2016) and "Scalable Hierarchical Aggregation and Reduction Protocol
(SHARP) Streaming-Aggregation hardware design and evaluation" (ISC 2020).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.algorithms.registry import algorithm
from collsim.algorithms.stages import Stage, pipeline, refuse_slices
from collsim.collective import Collective
from collsim.errors import AlgorithmError, shown
from collsim.schedule import Schedule

__all__ = ["Trees", "sharp_all_reduce", "sharp_broadcast", "sharp_reduce"]

Array = npt.NDArray[Any]
Tree = str | Sequence[tuple[str, Sequence[int | str]]]
"""Switches from the bottom up, each with its children (ranks, and switches before it); or one switch over all ranks."""


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees of switches as arrays: one row for each way from a child to its parent.

    Attributes
    ----------
    names
        The switches of all trees; switch i is the endpoint ``first + i``.
    number, child, parent
        Tree of each row, and its ends.
    level
        Steps after the slice has left the ranks at which it goes from the child to the parent.
    depth
        Steps after the root has the sum at which it comes back.
    height
        Level of the root by tree, as many steps up as down.
    ranks
        Ranks of each tree, as they are named in it.
    """

    names: tuple[str, ...]
    number: Array
    child: Array
    parent: Array
    level: Array
    depth: Array
    height: Array
    ranks: tuple[tuple[int, ...], ...]
    first: int

    @classmethod
    def of(cls, name: str, trees: Sequence[Tree], groups: Sequence[Iterable[int]], first: int, ranks: int) -> Trees:
        """Read trees.

        Parameters
        ----------
        name
            What the parameter is called.
        trees
            One tree a group.
        groups
            Ranks that each tree joins, where it is one switch only.
        first
            Endpoint of the first switch.
        ranks
            Number of ranks.

        Raises
        ------
        AlgorithmError
            If one is no tree of switches from the bottom up.
        """
        names: dict[str, int] = {}
        rows: list[tuple[int, int, int, int, int]] = []
        heights, members = [], []
        for number, (tree, group) in enumerate(zip(trees, groups, strict=True)):
            found, height = _read(name, [(tree, list(group))] if isinstance(tree, str) else tree, ranks)
            for switch in (parent for _, parent, _, _ in found):
                names.setdefault(switch, first + len(names))
            rows += [
                (number, child if isinstance(child, int) else names[child], names[parent], level, depth)
                for child, parent, level, depth in found
            ]
            heights.append(height)
            members.append(tuple(child for child, *_ in found if isinstance(child, int)))
        columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
        number_of, child, parent, level_of, depth_of = columns
        levels = np.array(heights, dtype=np.int64)
        return cls(tuple(names), number_of, child, parent, level_of, depth_of, levels, tuple(members), first)

    def up(
        self, step: int, segment: int, rows: Array | None = None, *, adds: bool = True, **source: Any
    ) -> list[Stage]:
        """Return the stages of the way up, from ``step`` on; ``segment`` chunks belong to each tree.

        ``source`` says where a rank has what it sends.
        """
        chosen = np.ones(len(self.child), dtype=np.bool_) if rows is None else rows
        below, stages = self.child < self.first, []
        for some, columns in ((below & chosen, source), (~below & chosen, {"src_buffer": "scratch"})):
            if some.any():
                chunk = self.number[some] * segment
                where = {"dst_buffer": "scratch", **columns}
                stages.append(Stage(step + self.level[some], self.child[some], self.parent[some], chunk, adds, where))
        return stages

    def down(self, step: int, segment: int, beyond: int, rows: Array | None = None, **target: Any) -> list[Stage]:
        """Return the stages of the way down, from the step on at which the first slice of the lowest tree is up.

        What comes down lies ``beyond`` chunks further on in scratch, but for the sum in the root. ``target`` says where
        a rank wants it.
        """
        chosen = np.ones(len(self.child), dtype=np.bool_) if rows is None else rows
        below, stages = self.child < self.first, []
        for some, columns in ((~below & chosen, {"dst_buffer": "scratch"}), (below & chosen, target)):
            if some.any():
                chunk = self.number[some] * segment
                held = chunk + np.where(self.depth[some] > 0, beyond, 0)
                put = chunk + (beyond if columns.get("dst_buffer") == "scratch" else 0)
                start = step + self.height[self.number[some]] + self.depth[some]
                where = {"src_buffer": "scratch", "dst_chunk": put, **columns}
                stages.append(Stage(start, self.parent[some], self.child[some], held, columns=where))
        return stages

    @property
    def steps(self) -> int:
        """Steps of the way up of the highest tree, and as many down."""
        return int(self.height.max(initial=0))


def _read(name: str, tree: Any, ranks: int) -> tuple[list[tuple[int | str, str, int, int]], int]:
    """Return (child, parent, level, depth) of all ways of a tree, the lowest first, and the height of its root."""
    try:
        rows = [(switch, list(children)) for switch, children in tree]
    except (TypeError, ValueError):
        raise AlgorithmError(
            f"{name}: expected switches with their children such as [[leaf0, [0, 1]], [leaf1, [2, 3]], [spine, [leaf0, "
            f"leaf1]]], got {shown(tree)}"
        ) from None
    height: dict[int | str, int] = {}
    parent: dict[int | str, str] = {}
    for switch, children in rows:
        if not isinstance(switch, str) or switch in height or not children:
            raise AlgorithmError(f"{name}: expected each switch once by its name, with children, got {shown(switch)}")
        for child in children:
            is_rank = isinstance(child, (int, np.integer)) and not isinstance(child, bool)
            known = 0 <= child < ranks if is_rank else child in height
            if not known or child in parent:
                raise AlgorithmError(
                    f"{name}: {switch}: expected children that are ranks 0 to {ranks - 1} or switches before it, each "
                    f"once, got {shown(child)}"
                )
            parent[int(child) if is_rank else child] = switch
        height[switch] = 1 + max(height.get(child, 0) for child in children)
    roots = [switch for switch in height if switch not in parent]
    if len(roots) != 1:
        raise AlgorithmError(f"{name}: expected one root, got {', '.join(map(str, roots)) or 'none'}")
    depth: dict[int | str, int] = {roots[0]: 0}
    for switch, children in reversed(rows):
        depth.update((child, depth[switch] + 1) for child in children)
    ways = [(child, up, height.get(child, 0), depth[child] - 1) for child, up in parent.items()]
    return ways, height[roots[0]]


def _sharp(collective: Collective, tree: Tree, slices: int, window: int | None) -> Schedule:
    ranks = collective.ranks
    refuse_slices(ranks, slices, window)
    trees = Trees.of("tree", [tree], [range(ranks)], ranks, ranks)
    if sorted(trees.ranks[0]) != list(range(ranks)):
        raise AlgorithmError(f"tree: expected each of the ranks 0 to {ranks - 1} once, got {shown(trees.ranks[0])}")
    if ranks == 1:
        return pipeline(collective, 1, slices, (), window=window)
    passed = np.zeros(len(trees.child), dtype=np.bool_)  # ways between the root rank and the root of the tree
    at = collective.root
    while len(row := np.flatnonzero(trees.child == at)):
        passed[row] = True
        at = int(trees.parent[row[0]])
    if collective.operation == "broadcast":
        stages = trees.up(0, slices, passed, adds=False)
        stages += trees.down(0, slices, slices, trees.child != collective.root)
    else:
        stages = trees.up(0, slices)
        stages += trees.down(0, slices, slices, passed if collective.operation == "reduce" else None)
    return pipeline(collective, 1, slices, stages, window=window, places=trees.names)


@algorithm("all_reduce", "sharp")
def sharp_all_reduce(ranks: int, *, tree: Tree = "sw0", slices: int = 64, window: int | None = 2) -> Schedule:
    """Add up on the way up the tree and copy on the way down: ``2 d alpha + S/B``, and ``2 d S/(k B)`` to fill it.

    d is the number of switches on the way up, alpha the latency of a hop to the next one, k the number of slices.

    Parameters
    ----------
    ranks
        Any number from 1.
    tree
        Switches from the bottom up, each with its children: ranks, and switches that come before it (`collsim.run`
        takes the topology's); or the name of one switch that joins all ranks. They must reduce and multicast.
    slices
        Pieces of the message.
    window
        Slices that may wait in the queue of a rank's port. None or 0 for no pacing. It only matters in the fluid
        network: without it slices share a link and all come late, while a small window lets small messages wait for
        the latency again and again.

    Examples
    --------
    >>> print(sharp_all_reduce(3, tree=[["leaf", [0, 1]], ["spine", ["leaf", 2]]], slices=1))
    all_reduce ranks=3 chunks=1 scratch=2
    algorithm sharp {"tree": [["leaf", [0, 1]], ["spine", ["leaf", 2]]], "slices": 1, "window": 2}
    places ["leaf", "spine"]
    repeat 1
      step 0
        0 => 3  0 > s0
        1 => 3  0 > s0
        2 => 4  0 > s0
      step 1
        3 => 4  s0
      step 2
        4 -> 2  s0 > 0
        4 -> 3  s0 > s1
      step 3
        3 -> 0  s1 > 0
        3 -> 1  s1 > 0
    """
    return _sharp(Collective("all_reduce", ranks), tree, slices, window)


@algorithm("reduce", "sharp")
def sharp_reduce(
    ranks: int, root: int = 0, *, tree: Tree = "sw0", slices: int = 64, window: int | None = 2
) -> Schedule:
    """Add up on the way up the tree, and send the sum down to the root: ``2 d alpha + S/B``, and what fills it.

    Parameters as in `sharp_all_reduce`; the switches must reduce.

    Examples
    --------
    >>> sharp_reduce(8, root=3)
    <Schedule sharp reduce ranks=8 chunks=64 steps=65 transfers=576>
    """
    return _sharp(Collective("reduce", ranks, root), tree, slices, window)


@algorithm("broadcast", "sharp")
def sharp_broadcast(
    ranks: int, root: int = 0, *, tree: Tree = "sw0", slices: int = 64, window: int | None = 2
) -> Schedule:
    """Send the message up the tree, and copy it on the way down to all others: ``2 d alpha + S/B``, and what fills it.

    Parameters as in `sharp_all_reduce`; the switches must multicast.

    Examples
    --------
    >>> sharp_broadcast(8, root=3)
    <Schedule sharp broadcast ranks=8 chunks=64 steps=65 transfers=512>
    """
    return _sharp(Collective("broadcast", ranks, root), tree, slices, window)
