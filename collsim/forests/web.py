"""The working graph of a packing: how many units may go from node to node, and over which links each of them goes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.flows import Network
from collsim.flows.arcs import Effort

__all__ = ["Pair", "Web", "units_at", "useful_bandwidth"]

Array = npt.NDArray[Any]
Path = tuple[int, ...]
Pair = tuple[int, int]


class Web:
    """Units between nodes, each with the links that it crosses.

    Parameters
    ----------
    nodes, src, dst
        The machine's nodes and the ends of its links.
    units
        Units that each link can carry.
    supplies
        Units that start at nodes.
    ranks
        Nodes, each of which must be able to receive them all.
    effort
        What tells when flows are worth compiling.

    Attributes
    ----------
    pieces
        By pair of nodes: ``[units, links]``, in order of use.
    """

    def __init__(
        self,
        nodes: int,
        src: Array,
        dst: Array,
        units: Array,
        supplies: dict[int, int],
        ranks: Sequence[int],
        effort: Effort,
    ) -> None:
        self.nodes, self.supplies, self.effort = nodes, supplies, effort
        self.total = sum(supplies.values())
        self.pieces: dict[Pair, list[tuple[int, Path]]] = {}
        for link in np.flatnonzero((units > 0) & (src != dst)).tolist():
            self.pieces.setdefault((int(src[link]), int(dst[link])), []).append((int(units[link]), (link,)))
        self._suspects = list(ranks)

    def capacity(self, pair: Pair) -> int:
        """Return the units between two nodes."""
        return sum(units for units, _ in self.pieces.get(pair, ()))

    def network(self, without: Iterable[Pair] = ()) -> Network:
        """Return the units as a flow network."""
        left_out = set(without)
        pairs = [pair for pair in self.pieces if pair not in left_out]
        ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return Network(self.nodes, ends[:, 0], ends[:, 1], [self.capacity(pair) for pair in pairs], self.effort)

    def suffices(self, without: Iterable[Pair] = ()) -> bool:
        """Whether all units can reach every rank (Edmonds' condition for the trees to exist)."""
        network = self.network(without)
        for place, sink in enumerate(self._suspects):
            if network.cut(self.supplies, sink, scale=network.unit, limit=self.total)[1] is not None:
                # it is likely to be the one that lacks something the next time too
                self._suspects.insert(0, self._suspects.pop(place))
                return False
        return True

    def at(self, node: int) -> tuple[dict[int, int], dict[int, int]]:
        """Return the units from each neighbour to a node, and from it to each."""
        ins = {a: self.capacity((a, b)) for a, b in self.pieces if b == node}
        outs = {b: self.capacity((a, b)) for a, b in self.pieces if a == node}
        return ins, outs

    def taken(self, pair: Pair, units: int) -> list[tuple[int, Path]]:
        """Take units between two nodes away and return their pieces."""
        found: list[tuple[int, Path]] = []
        pieces = self.pieces[pair]
        while units:
            most, path = pieces.pop(0)
            some = min(most, units)
            found.append((some, path))
            units -= some
            if most > some:
                pieces.insert(0, (most - some, path))
        if not pieces:
            del self.pieces[pair]
        return found

    def join(self, a: int, over: int, b: int, units: int) -> None:
        """Turn units from a to a node and on to b into units from a to b."""
        first, second = self.taken((a, over), units), self.taken((over, b), units)
        joined = self.pieces.setdefault((a, b), [])
        while first:
            (m, before), (n, after) = first.pop(0), second.pop(0)
            some = min(m, n)
            joined.append((some, before + after))
            if m > some:
                first.insert(0, (m - some, before))
            if n > some:
                second.insert(0, (n - some, after))

    def saved(self) -> dict[Pair, list[tuple[int, Path]]]:
        """Return what `restore` takes."""
        return {pair: list(pieces) for pair, pieces in self.pieces.items()}

    def restore(self, saved: dict[Pair, list[tuple[int, Path]]]) -> None:
        """Go back to an earlier state."""
        self.pieces = {pair: list(pieces) for pair, pieces in saved.items()}

    def hops(self, sources: Iterable[int], without: int = -1) -> dict[int, int]:
        """Return the pairs on the shortest way from the nearest of some nodes to each, past all others but one."""
        after: dict[int, list[int]] = {}
        for a, b in self.pieces:
            if without not in (a, b):
                after.setdefault(a, []).append(b)
        found = dict.fromkeys(sources, 0)
        todo = deque(found)
        while todo:
            a = todo.popleft()
            for b in after.get(a, ()):
                if b not in found:
                    found[b] = found[a] + 1
                    todo.append(b)
        return found


def useful_bandwidth(nodes: int, src: Array, dst: Array, bandwidth: Array, ends: Sequence[int]) -> Array:
    """Return of each link's bandwidth what it can be of use: past a node no more than what leads on, or comes in.

    Parameters
    ----------
    nodes, src, dst, bandwidth
        The links.
    ends
        Nodes that data comes from and goes to: there all is of use.

    Examples
    --------
    A link of 9 into a switch that only 4 and 3 lead out of, one of them back:

    >>> import numpy as np
    >>> src, dst = np.array([0, 2, 1, 2]), np.array([2, 0, 2, 1])
    >>> useful_bandwidth(3, src, dst, np.array([9, 3, 5, 4]), [0, 1]).tolist()
    [4, 3, 3, 4]
    """
    useful = bandwidth.astype(np.int64).copy()
    is_end = np.zeros(nodes, dtype=bool)
    is_end[list(ends)] = True
    while True:
        before = useful.copy()
        for one, other in ((src, dst), (dst, src)):
            # what goes on from (or comes to) the node at the end of a link, the way back aside
            on = np.zeros(nodes, dtype=np.int64)
            np.add.at(on, one, useful)
            key, back_key = one * nodes + other, other * nodes + one
            pairs, place = np.unique(np.concatenate([key, back_key]), return_inverse=True)
            between = np.zeros(len(pairs), dtype=np.int64)
            np.add.at(between, place[: len(key)], useful)
            room = on[other] - between[place[len(key) :]]
            # parallel links have it together: the first ones first
            order = np.argsort(key, kind="stable")
            total = np.cumsum(useful[order])
            start = np.searchsorted(key[order], key[order])
            ahead = total - useful[order] - (total - useful[order])[start]
            left = np.clip(room[order] - ahead, 0, useful[order])
            useful[order] = np.where(is_end[other[order]], useful[order], left)
        if np.array_equal(before, useful):
            return useful


def units_at(bandwidth: Array, rate: Fraction) -> Array:
    """Return how many units of a rate each link carries."""
    numbers, place = np.unique(bandwidth, return_inverse=True)
    found = [number * rate.denominator // rate.numerator for number in numbers.tolist()]
    return np.array(found, dtype=np.int64)[place.reshape(-1)]
