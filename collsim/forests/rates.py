"""How fast trees can be: the optimum from cuts, and the best rate for whole numbers of units.

If every unit gets a rate, a link of some bandwidth carries ``bandwidth // rate`` units. The trees exist if and only if,
on links of so many units, all units reach every rank (Edmonds 1973). What is lost by rounding down shrinks as units
become more and smaller; more units are more trees, and more messages.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from collsim.errors import AlgorithmError
from collsim.flows import Network, greatest_ratio
from collsim.flows.arcs import Effort
from collsim.forests.web import Array, Web, units_at

__all__ = ["Machine", "candidate_rates", "fastest"]

SLOWER = (99, 97, 94, 90, 85, 80, 70, 60, 50, 40, 30, 20)
"""Per cent of the greatest rate that are tried one after the other where it proves too fast for whole units."""


class Machine:
    """Ranks and the links between them, those that nothing can use left out.

    Parameters
    ----------
    nodes, src, dst, bandwidth
        Number of nodes, and the links.
    ranks
        Node of each rank.
    """

    def __init__(self, nodes: int, src: Array, dst: Array, bandwidth: Array, ranks: list[int]) -> None:
        self.nodes, self.src, self.dst, self.bandwidth, self.ranks = nodes, src, dst, bandwidth, ranks
        self.effort = Effort()

    def optimum(self, weights: dict[int, int]) -> Fraction:
        """Return the greatest rate at which each root can send one unit a weight to all ranks, in bytes/s.

        Raises
        ------
        AlgorithmError
            If a rank cannot be reached.
        """
        network = Network(self.nodes, self.src, self.dst, self.bandwidth, self.effort)
        try:
            ratio, _ = greatest_ratio(network, weights, self.ranks)
        except ValueError:
            raise AlgorithmError("forest: expected a way from each root to every rank, got none for some") from None
        return network.unit / ratio

    def web(self, rate: Fraction, supplies: dict[int, int]) -> Web:
        """Return the units that links carry at a rate, no more than there are where that is known."""
        units = units_at(self.bandwidth, rate)
        if supplies:
            units = np.minimum(units, sum(supplies.values()))
        return Web(self.nodes, self.src, self.dst, units, supplies, self.ranks, self.effort)

    def most_at_all(self) -> Fraction:
        """Return what all roots together can send at most, however the units are spread: what all ranks receive."""
        into = np.isin(self.dst, self.ranks)
        return Fraction(int(self.bandwidth[into].sum()), max(1, len(self.ranks) - 1))


def candidate_rates(bandwidth: Array, most: Fraction, least: Fraction, units: int) -> list[Fraction]:
    """Return the rates at which some link carries a unit more than just above, from ``most`` down to ``least``.

    A link that carries all ``units`` there are is wide enough at any rate below.
    """
    found = {most}
    for number in np.unique(bandwidth).tolist():
        first, last = -(-number // most), min(number // least, units)
        found.update(Fraction(number, j) for j in range(int(first), int(last) + 1) if j)
    return sorted((rate for rate in found if least <= rate <= most), reverse=True)


def fastest(bandwidth: Array, most: Fraction, units: int, works: Callable[[Fraction], bool]) -> list[Fraction]:
    """Return the greatest rate for some units that works, ``most`` at the most, and slower ones."""
    above = most
    for _ in range(64):
        below = above / 2
        rates = candidate_rates(bandwidth, above, below, units)
        if works(rates[-1]):
            low, high = 0, len(rates) - 1  # the first that works is among low to high
            while low < high:
                middle = (low + high) // 2
                low, high = (low, middle) if works(rates[middle]) else (middle + 1, high)
            return [rates[low], *(rates[low] * Fraction(part, 100) for part in SLOWER)]
        above = below
    raise AlgorithmError("forest: expected links of comparable bandwidths, found no size for units that fits them")
