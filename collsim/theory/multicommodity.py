"""How slow the links of a machine must be for an all_to_all: link lengths that prove it, by a linear program.

Give every link a length. A byte from s to t takes up at least dist(s, t) of length, whatever way it goes, and a link of
bandwidth B offers length * B of it a second. So one byte from each to each takes at least

    sum of dist(s, t) over ordered pairs / sum of length * bandwidth over links

seconds, for *any* lengths. Cuts are the lengths of 0 and 1. The greatest value over all lengths is the least time of
the maximum concurrent flow (linear programming duality), so no cut can be better, and on some machines all are worse.

Sources: Shahrokhi and Matula, "The maximum concurrent flow problem" (1990), for the pair of programs; Leighton and Rao
(1999) for how far cuts may be from it; Grohe, Kersting, Mladenov and Selman, "Dimension reduction via colour
refinement" (2014), for the symmetries; HiGHS (Huangfu and Hall, 2018) through SciPy solves it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.flows.classes import mixed

__all__ = ["MOST_TERMINALS", "worst_lengths"]

IntArray = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

MOST_TERMINALS = 64

MOST_LINKS = 100_000
"""Links of machines that are looked at."""

MOST_ROWS = 60_000
"""Rows of a program that is solved; more take minutes."""

ROUNDS = 10
"""How often rows are added to a program before all of them are."""

SECONDS = 60.0
"""What HiGHS may take."""

LOSS = 1e-6
"""What rounding the lengths to whole numbers may cost, as a part of the bound."""

SLOWEST = 1e-8
"""What a link counts at least in a program, as a part of the rate at which links must be to join all terminals."""

SMALLEST = 1e-7
"""Least number in a program; HiGHS takes those up to 1e-9 for 0."""

FAR = 2**61
"""Farther than any node."""

SOLVED, OUT_OF_TIME = 0, 1
"""What SciPy answers."""

DENOMINATORS = 840
"""Up to here lengths are tried as exact fractions of the least one."""


def worst_lengths(
    nodes: int, src: IntArray, dst: IntArray, bandwidth: IntArray, terminals: IntArray
) -> tuple[IntArray, str] | None:
    """Return the lengths of links that prove the greatest least time of an all_to_all.

    Parameters
    ----------
    nodes
        Number of nodes.
    src, dst, bandwidth
        Ends and bytes/s of each link; parallel links are welcome.
    terminals
        Nodes of which each sends as much to every other. Data may pass through any node.

    Returns
    -------
    lengths, method
        A whole number >= 0 for each link, and in words how they were found. One byte for each ordered pair takes at
        least the sum of their distances over the sum of length times bandwidth, in seconds; that is within 1e-6 of the
        greatest such bound, or near it where links are much too slow to be of use. None if there are fewer than 2 or
        more than 64 terminals, the program is too large to be solved in about a minute, some terminal cannot reach
        another, or SciPy is missing.

    Examples
    --------
    Four GPUs in a one-directional ring: all links count alike, and pairs are 1, 2 and 3 links apart.

    >>> import numpy as np
    >>> ends = np.arange(4)
    >>> worst_lengths(4, ends, (ends + 1) % 4, np.full(4, 10**9), ends)
    (array([1, 1, 1, 1]), 'by a linear program')
    """
    lengths = np.zeros(len(src), dtype=np.int64)
    ends = [int(node) for node in terminals]
    if not 2 <= len(ends) <= MOST_TERMINALS or len(src) > MOST_LINKS:
        return None
    graph = _Graph.of(nodes, src, dst, bandwidth, ends)
    if graph is None:
        return None
    try:
        found = _solve(graph)
    except ImportError:
        return None
    if found is None:
        return None
    whole = _whole(graph, *found)
    for length, members in zip(whole.tolist(), graph.members, strict=True):
        lengths[members] = length
    return lengths, "by a linear program"


@dataclass(frozen=True, eq=False)
class _Graph:
    """The part of a machine that matters, strongly connected and without parallel edges.

    ``members`` are the links of the machine that have the length of an edge; those that have none are never full. The
    first ``terminals`` nodes are the terminals.
    """

    nodes: int
    terminals: int
    src: IntArray
    dst: IntArray
    capacity: tuple[int, ...]
    members: tuple[list[int], ...]

    @classmethod
    def of(cls, nodes: int, src: IntArray, dst: IntArray, bandwidth: IntArray, ends: list[int]) -> _Graph | None:
        """Join parallel links, drop what leads nowhere, and join the two links of a node that has two neighbours."""
        fixed = set(ends)
        useful = _reached(nodes, src, dst, ends[0]) & _reached(nodes, dst, src, ends[0])
        if len(fixed) < len(ends) or not useful[ends].all():
            return None
        edges: dict[tuple[int, int], tuple[int, list[int]]] = {}
        around: dict[int, set[int]] = defaultdict(set)

        def add(tail: int, head: int, capacity: int, members: list[int]) -> None:
            old, joined = edges.get((tail, head), (0, []))
            edges[tail, head] = (old + capacity, joined + members)
            around[tail].add(head)
            around[head].add(tail)

        kept = np.flatnonzero(useful[src] & useful[dst] & (src != dst))
        for link, tail, head, rate in zip(
            kept.tolist(), src[kept].tolist(), dst[kept].tolist(), bandwidth[kept].tolist(), strict=True
        ):
            add(tail, head, rate, [link])
        todo = [node for node in around if node not in fixed]
        while todo:
            node = todo.pop()
            if node in fixed or node not in around or len(around[node]) > 2:
                continue
            beside = list(around.pop(node))
            into = {other: edges.pop((other, node), (0, [])) for other in beside}
            out = {other: edges.pop((node, other), (0, [])) for other in beside}
            for other in beside:
                around[other].discard(node)
            for one, two in (beside, beside[::-1]) if len(beside) == 2 else ():
                capacity, members = min(into[one], out[two])  # what is wider is never full
                if capacity:
                    add(one, two, capacity, members)
            todo += beside
        number = {node: i for i, node in enumerate(dict.fromkeys([*ends, *around]))}
        named = sorted((number[tail], number[head], *held) for (tail, head), held in edges.items())
        tails, heads = (np.array([edge[side] for edge in named], dtype=np.int64) for side in (0, 1))
        return cls(
            len(number), len(ends), tails, heads, tuple(edge[2] for edge in named), tuple(edge[3] for edge in named)
        )

    def distances(self, lengths: IntArray) -> IntArray:
        """Return the distance of each node from each terminal."""
        order = np.argsort(self.dst, kind="stable")
        first = np.searchsorted(self.dst[order], np.arange(self.nodes))
        found = np.full((self.terminals, self.nodes), FAR, dtype=np.int64)
        found[np.arange(self.terminals), np.arange(self.terminals)] = 0
        while True:
            ways = (found[:, self.src] + lengths)[:, order]
            nearer = np.minimum(found, np.minimum.reduceat(ways, first, axis=1))
            if np.array_equal(nearer, found):
                return found
            found = nearer

    def levels(self) -> tuple[npt.NDArray[np.float64], int]:
        """Return capacities as programs take them, none far off, and their unit: the rate that joins all terminals.

        Of the links faster than some rate T, all slower ones being left out, not every terminal reaches all others: so
        m links of T at most are all that n - 1 pairs have, and no link is asked for more than n (n - 1) times as much
        as a pair gets. The length of a link that has twice that or more is 0. Links of less than 1e-8 T count as that:
        they carry next to nothing.
        """
        rates = np.array(self.capacity, dtype=object)
        steps = sorted(set(self.capacity))
        low, high = 0, len(steps) - 1
        while low < high:
            middle = (low + high + 1) // 2
            fast = np.asarray(rates >= steps[middle], dtype=bool)
            ways = ((self.src[fast], self.dst[fast]), (self.dst[fast], self.src[fast]))
            joined = all(_reached(self.nodes, *way, 0)[: self.terminals].all() for way in ways)
            low, high = (middle, high) if joined else (low, middle - 1)
        found = np.array([rate / steps[low] for rate in self.capacity])
        return np.clip(found, SLOWEST, 2.0 * len(rates) * self.terminals), steps[low]

    def bound(self, lengths: IntArray) -> Fraction:
        """Return the bound that lengths of edges prove, in seconds for a byte a pair, exactly."""
        total = sum(self.distances(lengths)[:, : self.terminals].ravel().tolist())
        taken = sum(length * rate for length, rate in zip(lengths.tolist(), self.capacity, strict=True))
        return Fraction(total, taken) if taken else Fraction(0)


def _reached(nodes: int, src: IntArray, dst: IntArray, start: int) -> npt.NDArray[np.bool_]:
    reached = np.zeros(nodes, dtype=bool)
    reached[start] = True
    count = 0
    while count != (count := int(reached.sum())):
        reached[dst[reached[src]]] = True
    return reached


@dataclass(frozen=True, eq=False)
class _Program:
    """The least program: maximise what all distances sum up to, with lengths of a mean of 1.

    The variables are distances d(s, v), of s a terminal, and lengths; the rows d(s, v) <= d(s, u) + length(u, v). Where
    colour refinement of rows and variables cannot tell two variables apart, some best solution has them equal: so there
    is a variable and a row a class. Distances come first; ``farther``, ``nearer`` (-1: s itself) and ``link`` are the
    variables of the rows, ``short`` says whether u is nearer to s than v in hops. What links offer is in proportion to
    ``offered``, ``whole`` in all, which stands for ``total`` bytes a second; those that are ``wide`` have length 0.
    """

    variables: int
    distances: int
    edge: IntArray
    farther: IntArray
    nearer: IntArray
    link: IntArray
    short: npt.NDArray[np.bool_]
    gain: npt.NDArray[np.float64]
    offered: npt.NDArray[np.float64]
    whole: float
    total: float
    wide: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, graph: _Graph) -> _Program:
        """Return the program of a graph, in which no number is too small or too large for HiGHS."""
        far, edge, row = _colours(graph)
        sources, edges = np.arange(graph.terminals), len(graph.src)
        far[sources, sources] = -1
        distances = int(far.max()) + 1
        source, link = np.divmod(np.unique(row, return_index=True)[1], edges)
        kept = far[source, graph.dst[link]] >= 0
        source, link = source[kept], link[kept]
        tail, head = graph.src[link], graph.dst[link]
        hops = graph.distances(np.ones(edges, dtype=np.int64))
        variables = distances + int(edge.max()) + 1
        offered, gain = np.zeros(variables), np.zeros(variables)
        levels, unit = graph.levels()
        np.add.at(offered, distances + edge, levels)
        total = float(offered.sum())
        whole = max(1.0, SMALLEST * total / float(offered[distances:].min()))
        wanted = far[:, : graph.terminals]
        np.add.at(gain, wanted[wanted >= 0], 1.0 / graph.terminals**2)
        return cls(
            variables, distances, edge, far[source, head], far[source, tail], distances + edge[link],
            hops[source, tail] < hops[source, head], gain, offered * (whole / total), whole,
            total * unit, levels >= 2 * edges * graph.terminals,
        )  # fmt: skip

    def solve(self, rows: IntArray) -> Any:
        """Return what SciPy says of the program with some of the rows, by interior points or else by the simplex."""
        from scipy.optimize import linprog
        from scipy.sparse import coo_array

        number = np.arange(len(rows))
        beyond = self.nearer[rows] >= 0
        signs = [np.ones(len(rows)), np.full(len(rows), -1.0), np.full(int(beyond.sum()), -1.0)]
        variables = [self.farther[rows], self.link[rows], self.nearer[rows][beyond]]
        places = (np.concatenate([number, number, number[beyond]]), np.concatenate(variables))
        matrix = coo_array((np.concatenate(signs), places), shape=(len(rows), self.variables)).tocsr()
        for method in ("highs-ipm", "highs-ds"):
            answer = linprog(
                -self.gain, A_ub=matrix, b_ub=np.zeros(len(rows)), A_eq=self.offered[None, :], b_eq=[self.whole],
                method=method, options={"time_limit": SECONDS},
            )  # fmt: skip
            if answer.status in (SOLVED, OUT_OF_TIME):
                break
        return answer

    def broken(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Return which rows some values of the variables break."""
        near = np.where(self.nearer >= 0, values[self.nearer], 0.0)
        return np.asarray(values[self.farther] - near - values[self.link] > 1e-8 * values.max())


def _solve(graph: _Graph) -> tuple[npt.NDArray[np.float64], float] | None:
    """Return the best lengths and their bound.

    Nearly all rows that matter are those of edges that lead away from the terminal. So these come first, then those
    that the solution breaks, a few times over, and then all.
    """
    program = _Program.of(graph)
    chosen = program.short
    for turn in range(ROUNDS + 1):
        if chosen.sum() > MOST_ROWS:
            return None
        answer = program.solve(np.flatnonzero(chosen))
        if answer.status != SOLVED:
            return None
        broken = program.broken(answer.x) & ~chosen
        if not broken.any():
            break
        chosen = chosen | (broken if turn < ROUNDS - 1 else True)
    lengths = np.maximum(answer.x[program.distances :][program.edge], 0.0)
    lengths[program.wide] = 0.0
    return lengths, -float(answer.fun) * graph.terminals**2 / program.total


def _colours(graph: _Graph) -> tuple[IntArray, IntArray, IntArray]:
    """Return numbers of classes: of distances (terminal, node), of lengths by edge, of rows (terminal, edge).

    Two variables of one class are in equally many rows of each class, and two rows have variables of the same classes:
    the mean over each class of a solution is then a solution as well. Classes are told apart by 64-bit hashes.
    """
    src, dst = graph.src, graph.dst
    orders = [np.argsort(ends, kind="stable") for ends in (src, dst)]
    firsts = [
        np.searchsorted(ends[order], np.arange(graph.nodes)) for ends, order in zip((src, dst), orders, strict=True)
    ]
    near: Hashes = np.zeros((graph.terminals, graph.nodes), dtype=np.uint64)
    near[:, : graph.terminals] = 1
    near[np.arange(graph.terminals), np.arange(graph.terminals)] = 2
    rates = {rate: number for number, rate in enumerate(sorted(set(graph.capacity)))}
    edge: Hashes = np.array([rates[rate] for rate in graph.capacity], dtype=np.uint64)
    count = 0
    while True:
        row = mixed(mixed(near[:, src], 1) + mixed(near[:, dst], 2) + mixed(edge, 3), 4)
        classes = len(np.unique(near)) + len(np.unique(edge)) + len(np.unique(row))
        if classes == count:
            break
        count = classes
        sums = [np.add.reduceat(row[:, order], first, axis=1) for order, first in zip(orders, firsts, strict=True)]
        near = mixed(mixed(near, 5) + mixed(sums[0], 6) + mixed(sums[1], 7), 8)
        edge = mixed(mixed(edge, 9) + mixed(row.sum(axis=0, dtype=np.uint64), 10), 11)
    # distances from a terminal to itself come last, so that the others are numbered from 0
    own = np.unique(near[np.arange(graph.terminals), np.arange(graph.terminals)])
    names = np.unique(near)
    names = np.concatenate([names[~np.isin(names, own, kind="sort")], own])
    order = np.argsort(names)
    return (
        order[np.searchsorted(names, near, sorter=order)].astype(np.int64),
        np.unique(edge, return_inverse=True)[1].reshape(-1),
        np.unique(row, return_inverse=True)[1].reshape(-1),
    )


def _whole(graph: _Graph, lengths: npt.NDArray[np.float64], best: float) -> IntArray:
    """Return whole numbers in proportion: small ones that are exact if there are any, or large ones."""
    least = float(lengths[lengths > 1e-7 * lengths.max()].min())
    for denominator in range(1, DENOMINATORS + 1):
        scaled = lengths / least * denominator
        whole = np.rint(scaled).astype(np.int64)
        if np.abs(scaled - whole).max() < 1e-5 * denominator and float(graph.bound(whole)) >= best * (1 - 1e-9):
            return np.asarray(whole // np.gcd.reduce(whole))
    scale = 2.0**16 / float(lengths.max())
    while True:
        whole = np.rint(lengths * scale).astype(np.int64)
        if float(graph.bound(whole)) >= best * (1 - LOSS) or whole.max() * graph.nodes > FAR // 16:
            return whole
        scale *= 16
