"""Closed forms of all_to_all and of the all-pairs algorithms: a time, its formula and why it may not be exact.

In all of them every rank does the same, and what a rank sends side by side goes to different receivers in every place
of the row: nothing but the own port makes a message wait, so it is enough to look at one rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isqrt
from typing import NamedTuple

from collsim.theory.costs import ZERO, Costs, Terms, added, times

__all__ = [
    "FORMS",
    "CostsOf",
    "Form",
    "Way",
    "bruck",
    "burst",
    "direct",
    "hierarchical",
    "nccl_p2p",
    "one_shot",
    "pairwise",
    "two_shot",
]


class Way(NamedTuple):
    """A time as counts: messages one after the other, blocks one after the other, and overheads waited for."""

    hops: int = 0
    blocks: float = 0
    waits: int = 0

    def __add__(self, other: Way) -> Way:  # type: ignore[override]
        return Way(self.hops + other.hops, self.blocks + other.blocks, self.waits + other.waits)

    def terms(self, costs: Costs) -> Terms:
        """Seconds."""
        return Terms(self.hops * costs.alpha + self.waits * costs.overhead, self.blocks * costs.wire)

    def text(self) -> str:
        """Write the formula."""
        return added(times(self.hops, "alpha"), times(self.blocks, "m beta"), times(self.waits, "overhead"))

    @staticmethod
    def latest(ways: Iterable[Way], costs: Costs) -> Way:
        """Return the one that takes longest."""
        return max(ways, key=lambda way: (way.terms(costs).total, way))


CostsOf = Callable[[float], Costs]
Form = tuple[Terms, str, str]


def burst(costs: Costs, count: int, *, reduces: bool = False) -> tuple[Terms, str]:
    """Time and formula of equal messages from every rank to as many others, all ready at once."""
    if count < 1:
        return ZERO, ""
    one = costs.ports == "one"
    hop = costs.reduce if reduces else costs.copy
    gap = costs.gap(sender=True, link=one, reducer=reduces)
    gap_text = costs.gap_text(sender=True, link=one, reducer=reduces)
    return hop + (count - 1) * gap, added(costs.text(reduces), times(count - 1, gap_text))


def direct(
    operation: str, ranks: int, costs_of: CostsOf, size: float, *, synchronous: bool = False, **_: object
) -> Form:
    """Time of everybody sending a block to everybody at once, in all_to_all, all_gather and reduce_scatter. Exact."""
    terms, text = burst(costs_of(size / ranks), ranks - 1, reduces=operation == "reduce_scatter")
    return terms, f"{text}, m = S/N", ""


def two_shot(
    operation: str, ranks: int, costs_of: CostsOf, size: float, *, synchronous: bool = False, **_: object
) -> Form:
    """Time of a direct reduce_scatter and a direct all_gather: a rank sends when its sum is complete. Exact."""
    costs = costs_of(size / ranks)
    (add, add_text), (copy, copy_text) = burst(costs, ranks - 1, reduces=True), burst(costs, ranks - 1)
    text = times(2, copy_text) if add_text == copy_text else added(add_text, copy_text)
    return add + copy, f"{text}, m = S/N", ""


def one_shot(
    operation: str, ranks: int, costs_of: CostsOf, size: float, *, synchronous: bool = False, **_: object
) -> Form:
    """Time of getting all vectors, and then adding all at once. Exact."""
    costs = costs_of(size)
    terms, text = burst(costs, ranks - 1)
    text = added(text, times(ranks - 1, "m gamma") if costs.adding else "")
    return terms + Terms(reduction=(ranks - 1) * costs.adding), f"{text}, m = S", ""


def pairwise(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool = False,
    window: int | None = 1,
    **_: object,
) -> Form:
    """Time of rounds of which so many are under way: shift, XOR and NCCL's order. Exact.

    Round i begins one gap after the round before it, and when round ``i - window`` has arrived; all are under way where
    the window is None or 0.
    """
    costs, rounds = costs_of(size / ranks), ranks - 1
    if synchronous or window == 1:
        return rounds * costs.copy, f"{times(rounds, costs.text())}, m = S/N", ""
    one = costs.ports == "one"
    gap, gap_text = costs.gap(sender=True, link=one), costs.gap_text(sender=True, link=one)
    jumps = max(rounds - 1, 0) // window if window else 0
    if not window or not jumps or costs.copy.total <= window * gap.total:
        return direct(operation, ranks, costs_of, size)
    left = rounds - 1 - jumps * window
    terms = (jumps + 1) * costs.copy + left * gap
    return terms, f"{added(times(jumps + 1, costs.text()), times(left, gap_text))}, m = S/N", ""


def nccl_p2p(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool = False,
    window: int | None = None,
    **_: object,
) -> Form:
    """Time of NCCL's rounds, which it posts all at once. Exact."""
    return pairwise(operation, ranks, costs_of, size, synchronous=synchronous, window=window)


def hierarchical(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool = False,
    nodes: int | Sequence[Sequence[int]] | None = None,
    **_: object,
) -> Form:
    """Time of two phases, the second of which waits for all messages of the first. Exact where all links are alike."""
    if nodes is None:
        n = next(count for count in range(isqrt(ranks), 0, -1) if ranks % count == 0)
    else:
        n = nodes if isinstance(nodes, int) else len(nodes)
    g = ranks // n
    (within, one), (between, two) = burst(costs_of(size / g), g - 1), burst(costs_of(size / n), n - 1)
    if not one or not two:
        return within + between, f"{one or two}, m = S/N", ""
    text = added(one, two.replace("m ", "m' "))  # both are of messages called m
    return within + between, f"{text}, m = S/{g}, m' = S/{n}", ""


def bruck(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool = False,
    radix: int = 2,
    **_: object,
) -> Form:
    """Time of Bruck's rounds, one after the other.

    Exact if steps wait for each other; else where blocks of all messages of the last round have moved in all messages
    of the round before it, which is so if the second digit of N - 1 is the greatest one (for radix 2: more than 3/4 of
    the next power of two).
    """
    costs, way, weight = costs_of(size / ranks), Way(), 1
    while weight < ranks:
        digits = [j // weight % radix for j in range(ranks)]
        way += _side_by_side([digits.count(d) for d in range(1, max(digits) + 1)], costs)
        weight *= radix
    why, before = "", weight // radix**2
    if not synchronous and before and (ranks - 1) // before % radix != radix - 1:
        why = "blocks of the last round that no round before it has moved leave at once"
    return way.terms(costs), f"{way.text()}, m = S/N", why


def _side_by_side(blocks: Sequence[int], costs: Costs) -> Way:
    """Time of messages of so many blocks from one rank, the greatest first.

    Message i has waited at the port for messages j to i - 1, and message j for as many overheads of the sender.
    """
    ways = []
    for i, count in enumerate(blocks):
        if costs.ports == "one":
            ways += [Way(1, sum(blocks[j : i + 1]) + (costs.stores - 1) * blocks[j], j) for j in range(i + 1)]
        else:
            ways.append(Way(1, costs.stores * count, i if costs.ports == "each" else 0))
    return Way.latest(ways, costs)


FORMS: dict[tuple[str, str], Callable[..., Form]] = {
    ("all_gather", "direct"): direct,
    ("reduce_scatter", "direct"): direct,
    ("all_reduce", "one_shot"): one_shot,
    ("all_reduce", "two_shot"): two_shot,
    ("all_to_all", "direct"): direct,
    ("all_to_all", "pairwise"): pairwise,
    ("all_to_all", "pairwise_xor"): pairwise,
    ("all_to_all", "nccl_p2p"): nccl_p2p,
    ("all_to_all", "hierarchical"): hierarchical,
    ("all_to_all", "bruck"): bruck,
}
"""The form of each operation and algorithm."""
