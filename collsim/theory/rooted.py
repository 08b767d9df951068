"""Closed forms of linear and binomial scatters and gathers, of what is made from them, and of barriers.

As in `collsim.theory.trees` a time is counted: so many messages one after the other, so many blocks that had to pass
one after the other, so many times that a sender was busy with earlier messages. Which of two ways is the later one
depends on the costs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from collsim.theory.all_to_all import CostsOf, Form, Way
from collsim.theory.costs import ZERO, Costs, Terms, added, times
from collsim.theory.trees import _binomial_broadcast

__all__ = [
    "FORMS",
    "binomial_tree",
    "dissemination",
    "linear",
    "reduce_scatter_gather",
    "scatter_all_gather",
    "send_recv",
    "tree_barrier",
]


def send_recv(
    operation: str, ranks: int, costs_of: CostsOf, size: float, *, synchronous: bool = False, **_: object
) -> Form:
    """Time of one message from every rank. Exact."""
    costs = costs_of(size)
    return (costs.copy, f"{costs.text()}, m = S", "") if ranks > 1 else (ZERO, "", "")


def linear(
    operation: str, ranks: int, costs_of: CostsOf, size: float, *, synchronous: bool = False, **_: object
) -> Form:
    """Time of the root sending to all others, or receiving from them, in turn. Exact."""
    blocks = operation in ("scatter", "gather")
    costs, reduces = costs_of(size / ranks if blocks else size), operation == "reduce"
    hop, text = costs.reduce if reduces else costs.copy, costs.text(reduces)
    cut = "S/N" if blocks else "S"
    if synchronous:
        return (ranks - 1) * hop, f"{times(ranks - 1, text)}, m = {cut}", ""
    one = costs.ports == "one"
    stations = {"sender": operation in ("broadcast", "scatter"), "link": one, "reducer": reduces}
    gaps = max(ranks - 2, 0)
    terms = hop + gaps * costs.gap(**stations) if ranks > 1 else ZERO
    return terms, f"{added(text, times(gaps, costs.gap_text(**stations)))}, m = {cut}", ""


def binomial_tree(
    operation: str, ranks: int, costs_of: CostsOf, size: float, *, synchronous: bool = False, **_: object
) -> Form:
    """Time of a binomial scatter (farthest rank first) or gather (nearest first). Exact."""
    costs = costs_of(size / ranks)
    way = _binomial(operation, ranks, costs, synchronous)
    return way.terms(costs), f"{way.text()}, m = S/N", ""


def _binomial(operation: str, ranks: int, costs: Costs, synchronous: bool) -> Way:
    if synchronous:
        return _steps(ranks, costs)
    return (_scatter if operation == "scatter" else _gather)(ranks, costs)


def _steps(ranks: int, costs: Costs) -> Way:
    """Count step by step: the root's message is the longest one of each."""
    return Way((ranks - 1).bit_length(), costs.stores * (ranks - 1))


def _children(ranks: int) -> list[int]:
    """Blocks for each child of the root of a binomial tree, the farthest first."""
    return [min(1 << i, ranks - (1 << i)) for i in reversed(range((ranks - 1).bit_length()))]


def _scatter(ranks: int, costs: Costs) -> Way:
    """When every rank has its block.

    The message to child i has waited for those to children j to i - 1 at the port, and that to child j for j overheads
    of the sender before it. A subtree is a binomial tree again.
    """

    @cache
    def last(size: int) -> Way:
        ways, children = [Way()], _children(size)
        for i, child in enumerate(children):
            alone = last(child) + Way(1, costs.stores * child)
            if costs.ports == "one":
                ways += [alone + Way(0, sum(children[j:i]), j) for j in range(i + 1)]
            else:
                ways.append(alone + Way(waits=i if costs.ports == "each" else 0))
        return Way.latest(ways, costs)

    return last(ranks)


def _gather(ranks: int, costs: Costs) -> Way:
    """When the root has all blocks: those of a subtree arrive when it is complete, and queue at the port."""

    @cache
    def last(size: int) -> Way:
        # with their last passage, through the root's port, yet to come
        arrivals = [(last(child) + Way(1, (costs.stores - 1) * child), child) for child in _children(size)]
        ways, behind = [Way()], 0
        for arrival, child in sorted(arrivals, key=lambda pair: pair[0].terms(costs).total, reverse=True):
            behind = behind + child if costs.ports == "one" else child
            ways.append(arrival + Way(0, behind))
        return Way.latest(ways, costs)

    return last(ranks)


_PARTNERS = ("ring", "circulant", "recursive_doubling", "bruck")


def scatter_all_gather(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool = False,
    all_gather: str = "ring",
    **_: object,
) -> Form | None:
    """Time of a binomial scatter and an all_gather of N - 1 blocks, one message a step.

    Exact if steps wait for each other, and for powers of two if the all_gather keeps to one peer a step (ring and
    recursive doubling; others too where every peer has a port): the rank that gets its block last has it by the
    longest messages only, and all others wait for it.
    """
    if all_gather not in _PARTNERS:
        return None
    costs = costs_of(size / ranks)
    rounds = ranks - 1 if all_gather == "ring" else (ranks - 1).bit_length()
    way = _steps(ranks, costs) + Way(rounds, costs.stores * (ranks - 1))
    paired = all_gather in ("ring", "recursive_doubling") or costs.ports != "one" or ranks <= 2
    exact = synchronous or (paired and ranks & (ranks - 1) == 0)
    why = "" if exact else "the all_gather begins on some ranks while the scatter goes on"
    return way.terms(costs), f"{way.text()}, m = S/N", why


def reduce_scatter_gather(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool = False,
    reduce_scatter: str = "ring",
    **_: object,
) -> Form | None:
    """Time of a reduce_scatter of N - 1 blocks, one message a step, and of a binomial gather.

    All sums are complete at once, so the two follow each other. Exact if steps wait for each other, for a ring, and for
    powers of two; else a step of the reduce_scatter may send what none before it has touched.
    """
    if reduce_scatter not in _PARTNERS:
        return None
    costs, levels = costs_of(size / ranks), (ranks - 1).bit_length()
    ring = reduce_scatter == "ring"
    way = _binomial("gather", ranks, costs, synchronous)
    way += Way(ranks - 1 if ring else levels, costs.stores * (ranks - 1))
    exact = synchronous or ring or ranks == 1 << levels
    why = "" if exact else "blocks that no step before has touched leave at once"
    text = added(way.text(), times(ranks - 1, "m gamma") if costs.adding else "")
    return way.terms(costs) + Terms(reduction=(ranks - 1) * costs.adding), f"{text}, m = S/N", why


def dissemination(
    operation: str, ranks: int, costs_of: CostsOf, size: float, *, synchronous: bool = False, **_: object
) -> Form:
    """Time of rounds of empty messages that wait for each other. Exact."""
    way = Way((ranks - 1).bit_length())
    return way.terms(costs_of(0)), way.text(), ""


def tree_barrier(
    operation: str, ranks: int, costs_of: CostsOf, size: float, *, synchronous: bool = False, **_: object
) -> Form:
    """Time of empty messages up and down a binomial tree. Exact."""
    costs, steps = costs_of(0), (ranks - 1).bit_length()
    if synchronous:
        way = Way(2 * steps)
    else:
        gap = costs.gap(sender=True)
        down = _binomial_broadcast(
            ranks, lambda ways: max(ways, key=lambda way: (way[0] * costs.alpha + way[1] * gap.total, way))
        )
        # on the way up nothing queues: as long as the longest way in the tree
        way = Way(ranks.bit_length() - 1 + down[0], waits=down[1] if gap.total else 0)
    return way.terms(costs), way.text(), ""


FORMS: dict[tuple[str, str], Callable[..., Form | None]] = {
    ("broadcast", "linear"): linear,
    ("reduce", "linear"): linear,
    ("scatter", "linear"): linear,
    ("gather", "linear"): linear,
    ("scatter", "binomial_tree"): binomial_tree,
    ("gather", "binomial_tree"): binomial_tree,
    ("broadcast", "scatter_all_gather"): scatter_all_gather,
    ("reduce", "reduce_scatter_gather"): reduce_scatter_gather,
    ("send_recv", "ring"): send_recv,
    ("barrier", "dissemination"): dissemination,
    ("barrier", "tree"): tree_barrier,
}
"""The form of each operation and algorithm."""
