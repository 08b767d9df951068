"""Packing undirected spanning trees: along each of them is reduced and broadcast at the same time.

A way between two ranks carries what is reduced one way and what is broadcast the other way, so that a tree takes one
unit of it whichever rank is the root. K trees exist if and only if for each partition of the ranks into p parts K (p -
1) units of ways lie between the parts (Nash-Williams 1961, Tutte 1961). They are found by matroid partition (Edmonds
1965): a unit that closes a circle in all trees takes the place of another one, which goes to another tree.
"""

from __future__ import annotations

from collections import deque

__all__ = ["centre", "spanning_trees"]

Pair = tuple[int, int]
Unit = tuple[int, int, int]


def spanning_trees(ranks: int, capacity: dict[Pair, int], trees: int) -> list[list[Pair]] | None:
    """Return so many spanning trees that together use no pair beyond its units; None if there are none.

    Parameters
    ----------
    ranks
        Number of ranks.
    capacity
        Units between ranks a < b.
    trees
        How many.

    Examples
    --------
    Each of two trees over three ranks takes two of the three pairs:

    >>> spanning_trees(3, {(0, 1): 1, (0, 2): 1, (1, 2): 2}, 2)
    [[(0, 1), (1, 2)], [(0, 2), (1, 2)]]
    >>> spanning_trees(3, {(0, 1): 1, (0, 2): 1, (1, 2): 1}, 2) is None
    True
    """
    forests = [_Tree(ranks) for _ in range(trees)]
    home: dict[Unit, int] = {}
    todo = sorted(pair for pair, units in capacity.items() if units)
    missing = trees * (ranks - 1)
    # a unit of each pair at a time, so that the first trees do not get all units of the first pairs
    for copy in range(trees):
        found = []
        for a, b in todo:
            # where one unit of a pair finds no place in any tree, no further one does
            if missing and copy < capacity[a, b] and _insert(forests, home, (a, b, copy)):
                missing -= 1
                found.append((a, b))
        todo = found
    if missing:
        return None
    return [sorted(tree.pairs()) for tree in forests]


def centre(ranks: int, tree: list[Pair]) -> tuple[int, list[Pair]]:
    """Return the rank from which a tree is the shallowest, and its ways as (parent, child), parents first.

    Examples
    --------
    >>> centre(4, [(0, 1), (1, 2), (2, 3)])
    (1, [(1, 0), (1, 2), (2, 3)])
    """
    near: list[list[int]] = [[] for _ in range(ranks)]
    for a, b in tree:
        near[a].append(b)
        near[b].append(a)

    def from_(root: int) -> list[Pair]:
        found, seen = [], {root}
        todo = deque([root])
        while todo:
            a = todo.popleft()
            for b in near[a]:
                if b not in seen:
                    seen.add(b)
                    found.append((a, b))
                    todo.append(b)
        return found

    one_end = from_(0)[-1][1] if tree else 0
    longest = from_(one_end)
    above = {b: a for a, b in longest}
    way = [longest[-1][1] if longest else 0]
    while way[-1] in above:
        way.append(above[way[-1]])
    root = min(way[(len(way) - 1) // 2], way[len(way) // 2])
    return root, from_(root)


class _Tree:
    """A forest of units of pairs: by rank, the neighbours and the units that lead to them."""

    def __init__(self, ranks: int) -> None:
        self.near: list[dict[int, Unit]] = [{} for _ in range(ranks)]

    def put(self, unit: Unit) -> None:
        a, b, _ = unit
        self.near[a][b] = self.near[b][a] = unit

    def drop(self, unit: Unit) -> None:
        a, b, _ = unit
        del self.near[a][b], self.near[b][a]

    def pairs(self) -> list[Pair]:
        return [(a, b) for a, near in enumerate(self.near) for b in near if a < b]

    def way(self, a: int, b: int) -> list[Unit] | None:
        """Return the units on the way from one rank to another; None if there is none."""
        near = self.near
        if not near[a] or not near[b]:
            return None
        came = {a: a}
        todo = [a]
        for rank in todo:
            for other in near[rank]:
                if other not in came:
                    came[other] = rank
                    todo.append(other)
            if b in came:
                break
        else:
            return None
        found = []
        while b != a:
            found.append(near[b][came[b]])
            b = came[b]
        return found


def _insert(forests: list[_Tree], home: dict[Unit, int], new: Unit) -> bool:
    """Put a unit into one of the forests, others moving on to make room; tell whether that was possible."""
    before: dict[Unit, Unit | None] = {new: None}
    todo = [new]
    for unit in todo:
        for number, forest in enumerate(forests):
            if home.get(unit) == number:
                continue
            way = forest.way(unit[0], unit[1])
            if way is None:
                _move(forests, home, before, unit, number)
                return True
            for other in way:
                if other not in before:
                    before[other] = unit
                    todo.append(other)
    return False


def _move(
    forests: list[_Tree], home: dict[Unit, int], before: dict[Unit, Unit | None], unit: Unit, target: int
) -> None:
    """Put a unit into a forest, the one that asked for its place where it was, and so on."""
    moving: Unit | None = unit
    while moving is not None:
        left = home.get(moving)
        if left is not None:
            forests[left].drop(moving)
        forests[target].put(moving)
        home[moving] = target
        moving = before[moving]
        if left is not None:
            target = left
