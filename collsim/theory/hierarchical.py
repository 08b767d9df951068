"""Closed forms of hierarchical, multi-dimensional and synthesised algorithms: a time, its formula, why it is not exact.

All ranks do the same at the same time, and send one message after the other; so the stages add up, and the times are
the same whether ranks wait for each other after each step or not. Messages of a stage that share a rank's port queue,
which costs a gap each. Where copies or slices run side by side and share something, the form is an estimate.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

from collsim.theory import rings, trees
from collsim.theory.all_to_all import burst
from collsim.theory.costs import ZERO, Costs, Terms, added, largest, times

__all__ = [
    "FORMS", "blueconnect", "bucket", "hamiltonian", "hierarchical", "leader", "multitree", "primes", "rail", "themis",
]  # fmt: skip

CostsOf = Callable[[float], Costs]
Form = tuple[Terms, str, str]

NOTHING = "0 (one rank)"
SHARED = "copies that run side by side share the port of a rank"
SENDER = "copies that run side by side share the sender and the reducer of a rank"
UNEQUAL = "the stages of the copies end at different times"
SLICES = "slices share links, and wait for each other"


def bucket(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool,
    dims: Sequence[int] | None = None,
    ports: str = "one",
    **_: object,
) -> Form | None:
    """Rings along each dimension in turn, the last one first. Exact for one port.

    With all ports exact where each of the 2D copies has links of its own, all stages are equally long, and neither
    sending nor adding up costs time for which the copies would queue.
    """
    sizes = _kept(factors(ranks) if dims is None else dims)
    if ports == "one" or not sizes:
        return _rings(operation, sizes[::-1], costs_of, size)
    copies = 2 * len(sizes)
    orders = [sizes[::-1][j:] + sizes[::-1][:j] for j in range(len(sizes))]
    forms = [_rings(operation, order, costs_of, size / copies, "m") for order in orders]
    terms, text, _why = max(forms, key=lambda form: form[0].total)
    cut = f", m = S/{copies}"
    costs, unequal = costs_of(size), len(set(sizes)) > 1
    if costs.ports == "none":
        return terms, text + cut, UNEQUAL if synchronous and unequal else ""
    if costs.ports == "one":
        # what a rank sends goes out one message after the other
        queues = [_busy(operation, order, costs_of, size / copies) for order in orders]
        busy = 2 * sum((queue for queue, _ in queues), ZERO)
        share = 1 if not synchronous else Fraction(copies - 1, copies)
        queued = added(*(times(2 * share * count, name) for _, names in queues for count, name in names))
        if not synchronous:
            return largest(terms, busy), f"max({text}, {queued}){cut}", SHARED
        return terms + float(share) * busy, added(text, queued) + cut, UNEQUAL if unequal else ""
    if unequal or 2 in sizes:
        return terms, text + cut, UNEQUAL if unequal else SHARED
    alone = not costs.overhead and not (costs.adding and operation != "all_gather")
    return terms, text + cut, "" if alone else SENDER


def blueconnect(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool,
    levels: Sequence[int] | None = None,
    inner: str = "ring",
    **_: object,
) -> Form | None:
    """Rings through each factor in turn, the last one first. Exact; None for other algorithms inside."""
    if inner != "ring":
        return None
    return _rings(operation, _kept(primes(ranks) if levels is None else levels)[::-1], costs_of, size)


def hierarchical(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool,
    nodes: Any = None,
    inner: str = "ring",
    outer: str = "ring",
    **_: object,
) -> Form | None:
    """Rings inside nodes, then rings between them on the rest. Exact; None for other algorithms inside."""
    if (inner, outer) != ("ring", "ring"):
        return None
    n = _count(ranks, nodes)
    return _rings(operation, _kept((ranks // n, n)), costs_of, size)


def leader(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool,
    nodes: Any = None,
    inner: str = "binomial_tree",
    outer: str = "ring",
    **_: object,
) -> Form | None:
    """Binomial trees inside nodes and a ring between their first ranks. Exact; None for other algorithms inside."""
    if operation != "all_reduce" or (inner, outer) != ("binomial_tree", "ring"):
        return None
    n = _count(ranks, nodes)
    total, texts = ZERO, []
    for name in ("reduce", operation, "broadcast"):
        if name == operation and n > 1:
            terms, text, _why = _rings(name, (n,), costs_of, size)
        elif name != operation and n < ranks:
            terms, text, _why = trees.binomial(name, ranks // n, costs_of(size), synchronous=synchronous)
        else:
            continue
        total += terms
        texts.append(_of(text, "S"))
    return total, added(*texts) or NOTHING, ""


def rail(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool,
    nodes: Any = None,
    inner: str = "direct",
    slices: int = 4,
    **_: object,
) -> Form | None:
    """All pairs (or a ring) inside nodes, rings along rails. Exact for one slice; None for other algorithms inside."""
    if inner not in ("direct", "ring"):
        return None
    n = _count(ranks, nodes)
    g, share = ranks // n, size / slices
    letter, cut = ("S", "") if slices == 1 else ("m", f", m = S/{slices}")
    parts: list[tuple[Terms, str]] = []
    for reduces in _halves(operation):
        local, between = costs_of(share / g), costs_of(share / ranks)
        within = burst(local, g - 1, reduces=reduces) if inner == "direct" else _one_ring(reduces, g, local)
        across = _one_ring(reduces, n, between)
        rest = f"{letter}/{n}" if g == 1 else f"{letter}/({g} {n})"
        both = [(within[0], _of(within[1], f"{letter}/{g}")), (across[0], _of(across[1], rest))]
        parts += both if reduces else both[::-1]
    parts = [(terms, text) for terms, text in parts if text]
    one, text = sum((terms for terms, _ in parts), ZERO), _joined(text for _, text in parts)
    if not parts:
        return ZERO, NOTHING, ""
    if slices == 1 or synchronous:
        return slices * one, times(slices, text) + cut, ""
    names = list(dict.fromkeys(text for _, text in parts))
    slowest = f"max({', '.join(names)})" if len(names) > 1 else names[0]
    terms = one + (slices - 1) * largest(*(terms for terms, _ in parts))
    return terms, f"{text} + {times(slices - 1, slowest)}{cut}", SLICES


def hamiltonian(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool,
    dims: Sequence[int] | None = None,
    **_: object,
) -> Form | None:
    """Four rings side by side. Exact where they share one port, or share nothing (no size of 2, no costs of a rank)."""
    if ranks == 1:
        return ZERO, NOTHING, ""
    costs = costs_of(size / (4 * ranks))
    reducing, copying = (ranks - 1 if half in _halves(operation) else 0 for half in (True, False))
    one = costs.ports == "one"
    terms, text, why = rings.ring(reducing, copying, 4, costs, shares_link=one, synchronous=synchronous)
    if costs.ports == "each":
        if _has_two(ranks, dims):
            why = "two of the four rings meet the same neighbour"
        else:
            why = SENDER if costs.overhead or (costs.adding and reducing) else ""
    return terms, f"{text}, m = S/(C N), C = 4", why


def _has_two(ranks: int, dims: Sequence[int] | None) -> bool:
    """Whether the torus has a dimension of 2; without sizes the squarest one with two cycles."""
    if dims is not None:
        return 2 in dims
    for low in range(math.isqrt(ranks), 2, -1):
        if ranks % (low * low) == 0 and math.gcd(ranks // low, low - 1) == 1:
            return False
    return True


def multitree(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool,
    slots: int | None = None,
    routes: object = None,
    **_: object,
) -> Form | None:
    """Slots of one message a link each way; without routes all pairs at once.

    Without routes exact. With them (and the slots that they give) exact if ranks wait for each other after each slot,
    and a rank neither sends nor adds up several messages at a cost; otherwise messages leave early.
    """
    costs = costs_of(size / ranks)
    if ranks == 1:
        return ZERO, NOTHING, ""
    if routes is None and slots is None:
        parts = [burst(costs, ranks - 1, reduces=reduces) for reduces in _halves(operation)]
        return sum((terms for terms, _ in parts), ZERO), f"{_joined(text for _, text in parts)}, m = S/N", ""
    if slots is None:
        return None
    terms = sum((slots * (costs.reduce if reduces else costs.copy) for reduces in _halves(operation)), ZERO)
    text = f"{_ringed(operation, slots, costs, 'm')}, m = S/N"
    if not synchronous:
        return terms, text, "messages leave before their slot"
    if costs.overhead or (costs.adding and operation != "all_gather"):
        return terms, text, "messages of a slot queue at the sender or the reducer of a rank"
    return terms, text, ""


def themis(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool,
    levels: Sequence[int] | None = None,
    chunks: int = 32,
    **_: object,
) -> Form | None:
    """One chunk is a bucket algorithm. Exact for one, and if ranks wait after each step; else ports that never rest."""
    sizes = _kept(factors(ranks) if levels is None else levels)[::-1]
    if chunks == 1 or not sizes:
        return _rings(operation, sizes, costs_of, size)
    terms, text, why = _rings(operation, sizes, costs_of, size / chunks, "m")
    cut = f", m = S/{chunks}"
    if synchronous:
        return chunks * terms, times(chunks, text) + cut, why
    queue, names = _busy(operation, sizes, costs_of, size / chunks)
    if not names:
        return terms, text + cut, why
    share = Fraction(chunks, 1 if costs_of(size).ports == "one" else len(sizes))
    queued = added(*(times(share * count, name) for count, name in names))
    return largest(terms, float(share) * queue), f"max({text}, {queued}){cut}", SHARED


def factors(ranks: int) -> tuple[int, int]:
    """Return two factors as near to each other as can be, the smaller one first."""
    low = next(size for size in range(math.isqrt(ranks), 0, -1) if ranks % size == 0)
    return low, ranks // low


def primes(ranks: int) -> list[int]:
    """Return the prime factors, the smallest first."""
    found, factor = [], 2
    while ranks > 1:
        if factor * factor > ranks:
            factor = ranks
        while ranks % factor == 0:
            found.append(factor)
            ranks //= factor
        factor += 1
    return found


def _count(ranks: int, nodes: Any) -> int:
    if nodes is None:
        return factors(ranks)[0]
    return int(nodes) if isinstance(nodes, int) else len(nodes)


def _kept(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in sizes if size > 1)


def _halves(operation: str) -> list[bool]:
    """Whether each half of the operation reduces."""
    return [reduces for reduces in (True, False) if operation != ("all_gather" if reduces else "reduce_scatter")]


def _of(text: str, message: str) -> str:
    """Write a text of messages called m for others."""
    return re.sub(r"\bm\b", message, text)


def _joined(texts: Iterable[str]) -> str:
    """Write stages that follow each other, those that are alike in one."""
    count = Counter(filter(None, texts))
    return added(*(times(number, text) for text, number in count.items()))


def _stages(sizes: Sequence[int], size: float) -> list[tuple[int, float]]:
    """Ranks of each stage and bytes of its messages, in the order of a reduce_scatter."""
    stages = []
    for count in sizes:
        size /= count
        stages.append((count, size))
    return stages


def _rings(operation: str, sizes: Sequence[int], costs_of: CostsOf, size: float, letter: str = "S") -> Form:
    """One ring after the other; the sizes in the order of a reduce_scatter, the buffer called by a letter."""
    total, texts, over = ZERO, [], ""
    for count, message in _stages(sizes, size):
        over = f"{over} {count}".strip()
        costs = costs_of(message)
        total += sum((_one_ring(reduces, count, costs)[0] for reduces in _halves(operation)), ZERO)
        texts.append(_ringed(operation, count - 1, costs, f"{letter}/({over})" if " " in over else f"{letter}/{over}"))
    return total, " + ".join(texts) or NOTHING, ""


def _ringed(operation: str, rounds: int, costs: Costs, message: str) -> str:
    """Write rounds of a reduce_scatter, an all_gather, or both."""
    if operation != "all_reduce":
        return _of(times(rounds, costs.text(operation == "reduce_scatter")), message)
    adding = times(rounds, "m gamma") if costs.adding else ""
    return _of(added(times(2 * rounds, costs.text()), adding), message)


def _one_ring(reduces: bool, count: int, costs: Costs) -> tuple[Terms, str]:
    return (count - 1) * (costs.reduce if reduces else costs.copy), times(count - 1, costs.text(reduces))


def _busy(
    operation: str, sizes: Sequence[int], costs_of: CostsOf, size: float
) -> tuple[Terms, list[tuple[Fraction, str]]]:
    """For how long the messages of a bucket algorithm keep a rank's port busy, and how often what does; m is all."""
    total, names, over = ZERO, [], 1
    for count, message in _stages(sizes, size):
        costs, over = costs_of(message), over * count
        for reduces in _halves(operation):
            stations = {"sender": True, "link": True, "reducer": reduces}
            total += (count - 1) * costs.gap(**stations)
            name = costs.gap_text(**stations)
            if name == "m beta":
                names.append((Fraction(count - 1, over), name))
            elif name != "0":
                names.append((Fraction(count - 1), _of(name, f"m/{over}")))
    return total, names


FORMS: dict[str, Callable[..., Form | None]] = {
    "hierarchical": hierarchical,
    "leader": leader,
    "rail": rail,
    "torus": bucket,
    "blueconnect": blueconnect,
    "hamiltonian": hamiltonian,
    "multitree": multitree,
    "themis": themis,
}
"""Forms by the name of the algorithm."""
