"""The set of nodes that has the greatest weight over the capacity that leaves it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.flows.network import LARGEST, Network

__all__ = ["greatest_ratio", "least_cut"]

Array = npt.NDArray[Any]


def greatest_ratio(
    network: Network, weights: dict[int, int], sinks: Iterable[int], start: Sequence[Array] = ()
) -> tuple[Fraction, Array]:
    """Return the greatest weight over leaving capacity of a set that lacks one of the sinks at least, and the set.

    Parameters
    ----------
    network
        The arcs.
    weights
        Whole weights of nodes, at least 1; other nodes have none.
    sinks
        Nodes, one of which is outside. If they are the weighted nodes, this is the bound of an all_gather.
    start
        Sets to start from, which lack a sink each.

    Raises
    ------
    ValueError
        If something of weight cannot reach a sink: no capacity leaves that set.

    Notes
    -----
    Newton's method on the ratio (Dinkelbach 1967): with r = p/q the greatest so far, a set without the sink that has
    ``q w(X) > p B+(X)`` exists if and only if not all supplies ``q w`` reach the sink over arcs of ``p B``; a minimum
    cut is such a set. All numbers are exact and each set is weighed anew, so this ends, and the set attains the ratio.
    Where ``p B`` outgrows 64 bits the flows are counted in Python's integers.

    Examples
    --------
    A ring of four with two arcs of 1 between neighbours: three nodes must get into the fourth over two arcs.

    >>> around = [(i, (i + way) % 4, 1) for i in range(4) for way in (1, -1)]
    >>> ratio, inside = greatest_ratio(Network(4, *zip(*around)), dict.fromkeys(range(4), 1), range(4))
    >>> ratio, inside.tolist()
    (Fraction(3, 2), [False, True, True, True])
    """
    nodes = np.array(list(weights), dtype=np.int64)
    amounts = np.array(list(weights.values()), dtype=np.int64)
    by_node = np.zeros(network.nodes, dtype=np.int64)
    by_node[nodes] = amounts

    def weighed(inside: Array) -> Fraction:
        weight, capacity = int(by_node[inside].sum()), network.leaving(inside)
        if weight and not capacity:
            raise ValueError("a set of some weight has no way out")
        return Fraction(weight, capacity) if weight else Fraction(0)

    ratio, best = Fraction(0), np.zeros(network.nodes, dtype=bool)
    sinks = list(sinks)
    alone = []
    if sinks:  # all but one sink: nearly always a good start
        alone = [np.arange(network.nodes) != sinks[0]]
    for inside in [*start, *alone]:
        if (found := weighed(inside)) > ratio:
            ratio, best = found, inside
    for sink in sinks:
        others = nodes != sink
        total = int(amounts[others].sum())
        while True:
            if ratio:
                p, q = ratio.numerator, ratio.denominator
            else:
                p, q = 1, int(network.capacity.sum()) + 1  # more than can arrive
            supply = amounts[others] * q if total * q < LARGEST else [a * q for a in amounts[others].tolist()]
            _, inside_ = network.cut((nodes[others], supply), sink, scale=p, limit=total * q)
            if inside_ is None or (found := weighed(inside_)) <= ratio:
                break
            ratio, best = found, inside_
    return ratio, best


def least_cut(network: Network, source: int, sinks: Iterable[int]) -> tuple[int, Array]:
    """Return the least capacity that leaves a set with the source and without one of the sinks, and the set.

    Examples
    --------
    >>> least, inside = least_cut(Network(3, [0, 0, 1], [1, 2, 2], [4, 2, 1]), 0, [1, 2])
    >>> least, inside.tolist()
    (3, [True, True, False])
    """
    least, best = -1, None
    for sink in sinks:
        flow, inside = network.cut({source: None}, sink, limit=least)
        if inside is not None:
            least, best = flow, inside
    if best is None:
        raise ValueError("sinks: expected at least one, got none")
    return least, best
