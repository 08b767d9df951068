"""Closed forms of butterflies and of dissemination: a time, its formula and why it may not be exact.

All ranks do the same at the same time, so one rank is looked at. It sends one message a step, and a step takes
``alpha + m beta`` (and ``m gamma`` more where the receiver adds up). The sum over the steps is exact if ranks wait for
each other after each step, and also if no rank waits for any other as long as each message needs something of the one
that came just before; otherwise some leave early, and the sum is an estimate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise

from collsim.theory.costs import Costs, Terms, added, times

__all__ = [
    "FORMS", "bine", "bruck", "circulant", "halving_doubling", "neighbour_exchange", "pat", "recursive_doubling",
    "swing",
]  # fmt: skip

CostsOf = Callable[[float], Costs]
Form = tuple[Terms, str, str]

EARLY = "some messages do not need what came last, and leave early"
MULTIPLE = re.compile(r"(?:(\d+(?:/\d+)?) )?\bm\b")
FOLD = "ranks that take no part in the fold start early"

GATHERING = ("reduce_scatter", "all_gather", "all_reduce")


def recursive_doubling(
    operation: str, ranks: int, costs_of: CostsOf, size: float, *, synchronous: bool, **_: object
) -> Form | None:
    """All_reduce of whole vectors, and all_gather of a power of two. Exact for powers of two."""
    if operation == "all_gather":
        return _gathering(operation, ranks, _doubling(ranks), costs_of, size, "")
    return _folded(operation, ranks, 0, "full", costs_of, size, synchronous)


def halving_doubling(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool,
    fold: str = "full",
    halvings: int | None = None,
    **_: object,
) -> Form | None:
    """All_reduce, and reduce_scatter of a power of two. Exact for powers of two, and where steps wait."""
    if operation == "reduce_scatter":
        return _gathering(operation, ranks, _doubling(ranks), costs_of, size, "")
    return _folded(operation, ranks, halvings, fold, costs_of, size, synchronous)


def circulant(
    operation: str, ranks: int, costs_of: CostsOf, size: float, *, synchronous: bool, **_: object
) -> Form | None:
    """Any number of ranks. Without waiting exact where each message is larger than the one before the last skip."""
    skips = [ranks]
    while skips[-1] > 1:
        skips.append((skips[-1] + 1) // 2)
    blocks = [a - b for a, b in pairwise(skips)][::-1]
    # what came last lies behind the last skip but one
    chained = all(count > skip for count, skip in zip(blocks[1:], skips[::-1], strict=False))
    return _gathering(operation, ranks, blocks, costs_of, size, "" if synchronous or chained else EARLY)


def bruck(
    operation: str, ranks: int, costs_of: CostsOf, size: float, *, synchronous: bool, radix: int = 2, **_: object
) -> Form | None:
    """Any number of ranks. Exact above 3/4 of a power of two or where steps wait; other radices: for their powers."""
    rounds: list[list[int]] = []
    held = 1
    while held < ranks:
        rounds.append([min(held, ranks - distance) for distance in range(held, min(ranks, radix * held), held)])
        held *= radix
    if radix == 2:
        why = "" if synchronous or _last_needed(ranks) else EARLY
        return _gathering(operation, ranks, [blocks for (blocks,) in rounds], costs_of, size, why)
    why = "" if held == ranks else "the messages of the last round differ in size"
    terms, texts = Terms(), []
    for reduces in _ways(operation):
        for blocks in rounds:
            costs = costs_of(max(blocks) * size / ranks)
            one = costs.ports == "one"
            gap = costs.gap(sender=True, link=one, reducer=reduces)
            terms += (costs.reduce if reduces else costs.copy) + (len(blocks) - 1) * gap
            more = times(len(blocks) - 1, costs.gap_text(sender=True, link=one, reducer=reduces)) if gap.total else ""
            texts.append(MULTIPLE.sub(partial(_blocks, max(blocks)), added(costs.text(reduces), more)))
    return terms, added(*texts) + ", b = S/N", why


def _blocks(count: int, found: re.Match[str]) -> str:
    """Write a multiple of m, a message, as one of b, of which a message has so many."""
    return times(count * Fraction(found[1] or 1), "b")


def pat(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool,
    aggregation: int | None = None,
    **_: object,
) -> Form | None:
    """Any number of ranks. Without waiting exact above 3/4 of a power of two, if all is aggregated."""
    levels = (ranks - 1).bit_length()
    aggregated = levels if aggregation is None else min(aggregation.bit_length() - 1, levels)
    walked = (1 << levels) >> aggregated
    blocks = [len(range(1 << (levels - 1 - i), ranks, 1 << (levels - i))) for i in range(aggregated)]
    blocks += [len(range(place, ranks, walked)) for place in range(1, min(walked, ranks))]
    # the last level alone is walked as it would be aggregated
    chained = walked <= 2 and _last_needed(ranks)
    return _gathering(operation, ranks, blocks, costs_of, size, "" if synchronous or chained else EARLY)


def neighbour_exchange(
    operation: str, ranks: int, costs_of: CostsOf, size: float, *, synchronous: bool, **_: object
) -> Form | None:
    """Even numbers of ranks. Exact."""
    return _gathering(operation, ranks, [1] + [2] * (ranks // 2 - 1), costs_of, size, "")


def swing(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool,
    dims: Sequence[int] | None = None,
    ports: int | None = None,
    version: str = "bandwidth",
    **_: object,
) -> Form | None:
    """One copy on an even number of ranks. Exact for powers of two and where steps wait for each other."""
    if ranks % 2 or (ports or (1 if dims is None else 2 * len(dims))) > 1:
        return None
    sizes = [d for d in dims or [ranks] if d > 1]
    if version == "latency":
        return _folded(operation, ranks, 0, "full", costs_of, size, synchronous)
    if len(sizes) > 1 and ranks & (ranks - 1):
        return None
    why = "" if synchronous or not ranks & (ranks - 1) else EARLY
    return _gathering(operation, ranks, _doubling(ranks), costs_of, size, why)


def bine(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool,
    version: str = "bandwidth",
    fold: str = "full",
    **_: object,
) -> Form | None:
    """Trees and butterflies. Exact for powers of two and where steps wait for each other."""
    power = not ranks & (ranks - 1)
    if operation in ("broadcast", "reduce"):
        costs, levels = costs_of(size), (ranks - 1).bit_length()
        reduces = operation == "reduce"
        text = times(levels, costs.text(reduces)) + ", m = S"
        return levels * (costs.reduce if reduces else costs.copy), text, "" if power or synchronous else EARLY
    if version == "latency" or ranks % 2:
        return _folded(operation, ranks, 0 if version == "latency" else None, fold, costs_of, size, synchronous)
    return _gathering(operation, ranks, _doubling(ranks), costs_of, size, "" if power or synchronous else EARLY)


def _doubling(ranks: int) -> list[int]:
    """Blocks of the messages of a butterfly; of what is no power of two, numbers that add up to the same."""
    return [min(1 << level, ranks - (1 << level)) for level in range((ranks - 1).bit_length())]


def _last_needed(ranks: int) -> bool:
    """Whether the messages of a dissemination over 1, 2, 4, ... all need what came just before."""
    return ranks <= 2 or 4 * ranks > 3 << (ranks - 1).bit_length()


def _ways(operation: str) -> list[bool]:
    """For each phase: whether it reduces."""
    return [operation != "all_gather"] * (operation != "all_gather") + [False] * (operation != "reduce_scatter")


def _gathering(
    operation: str, ranks: int, blocks: Sequence[int], costs_of: CostsOf, size: float, why: str
) -> Form | None:
    """Sum of the steps of an all_gather, its mirror image, or both."""
    if operation not in GATHERING:
        return None
    parts = [(Fraction(count, ranks), reduces) for reduces in _ways(operation) for count in blocks]
    return _sum(parts, costs_of, size, why)


def _folded(
    operation: str,
    ranks: int,
    halvings: int | None,
    fold: str,
    costs_of: CostsOf,
    size: float,
    synchronous: bool,
) -> Form | None:
    """Sum of the steps of an all_reduce of a power of two, and of the fold of what is above it."""
    if operation != "all_reduce":
        return None
    levels = ranks.bit_length() - 1
    halved = levels if halvings is None else halvings
    whole, half = Fraction(1), Fraction(1, 2)
    pieces = [half ** (level + 1) for level in range(halved)]
    core = [(piece, True) for piece in pieces] + [(half**halved, True)] * (levels - halved)
    core += [(piece, False) for piece in reversed(pieces)]
    if not ranks & (ranks - 1):
        return _sum(core, costs_of, size, "")
    before = [(whole, True)] if fold == "full" else [(half, True), (half, False)]
    return _sum([*before, *core, (whole, False)], costs_of, size, "" if synchronous else FOLD)


def _sum(parts: Sequence[tuple[Fraction, bool]], costs_of: CostsOf, size: float, why: str) -> Form:
    """Sum of messages one after the other, each a share of the size, some of which are added up."""
    terms = Terms()
    for share, reduces in parts:
        costs = costs_of(float(share) * size)
        terms += costs.reduce if reduces else costs.copy
    costs = costs_of(size)
    moved = sum((share for share, _ in parts), Fraction(0))
    reduced = sum((share for share, reduces in parts if reduces), Fraction(0))
    stores = Fraction(costs.stores).limit_denominator(10**6)
    texts = [times(len(parts), "alpha"), times(stores * moved, "S beta")]
    texts += [times(reduced, "S gamma")] if costs.adding else []
    return terms, " + ".join(filter(None, texts)), why


BUTTERFLIES = (circulant, bruck, pat, neighbour_exchange, swing, bine)

FORMS: dict[tuple[str, str], Callable[..., Form | None]] = {
    **{(operation, form.__name__): form for form in BUTTERFLIES for operation in GATHERING},
    ("all_reduce", "recursive_doubling"): recursive_doubling,
    ("all_gather", "recursive_doubling"): recursive_doubling,
    ("all_reduce", "halving_doubling"): halving_doubling,
    ("reduce_scatter", "halving_doubling"): halving_doubling,
    ("broadcast", "bine"): bine,
    ("reduce", "bine"): bine,
}
"""The form of each operation and algorithm."""
