"""Closed forms of hierarchical, multi-dimensional and synthesised algorithms: a time, its formula, why it is not exact.

All ranks do the same at the same time, and send one message after the other; so the stages add up, and the times are
the same whether ranks wait for each other after each step or not. Messages of a stage that share a rank's port queue,
which costs a gap each. Where copies or slices run side by side and share something, the form is an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from collsim.theory import rings, trees
from collsim.theory.costs import ZERO, Costs, Terms, largest

__all__ = ["FORMS", "bucket", "hamiltonian", "hierarchical", "leader", "multitree", "rail", "themis"]

CostsOf = Callable[[float], Costs]
Form = tuple[Terms, str, str]

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
    levels: Sequence[int] | None = None,
    ports: str = "one",
    **_: object,
) -> Form | None:
    """Rings along each dimension in turn, the last one first. Exact for one port.

    With all ports exact where each of the 2D copies has links of its own, all stages are equally long, and neither
    sending nor adding up costs time for which the copies would queue.
    """
    given = dims if levels is None else levels
    sizes = _kept(factors(ranks) if given is None else given)
    if ports == "one" or not sizes:
        return _rings(operation, sizes[::-1], costs_of, size, synchronous)
    copies = 2 * len(sizes)
    orders = [sizes[::-1][j:] + sizes[::-1][:j] for j in range(len(sizes))]
    forms = [_rings(operation, order, costs_of, size / copies, synchronous) for order in orders]
    terms, text, _why = max(forms, key=lambda form: form[0].total)
    text += f", S in {copies} copies"
    costs, unequal = costs_of(size), len(set(sizes)) > 1
    if costs.ports == "none":
        return terms, text, UNEQUAL if synchronous and unequal else ""
    if costs.ports == "one":
        # what a rank sends goes out one message after the other
        busy = sum((2 * _busy(operation, order, costs_of, size / copies) for order in orders), ZERO)
        if not synchronous:
            return largest(terms, busy), text, SHARED
        return terms + (copies - 1) / copies * busy, f"{text} that queue in each step", UNEQUAL if unequal else ""
    if unequal or 2 in sizes:
        return terms, text, UNEQUAL if unequal else SHARED
    alone = not costs.overhead and not (costs.adding and operation != "all_gather")
    return terms, text, "" if alone else SENDER


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
    return _rings(operation, _kept((ranks // n, n)), costs_of, size, synchronous)


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
    parts: list[tuple[Terms, str]] = []
    for name in ("reduce", operation, "broadcast"):
        if name == operation and n > 1:
            terms, text, _why = _rings(name, (n,), costs_of, size, synchronous)
        elif name != operation and n < ranks:
            terms, text, _why = trees.binomial(name, ranks // n, costs_of(size), synchronous=synchronous)
            text = text.replace("m ", "S ")
        else:
            terms, text = ZERO, ""
        parts.append((terms, text))
    return *_added(parts), ""


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
    inside = _direct if inner == "direct" else _one_ring
    parts: list[tuple[Terms, str]] = []
    for reduces in _halves(operation):
        both = [(inside, g, costs_of(share / g)), (_one_ring, n, costs_of(share / ranks))]
        parts += [stage(reduces, count, costs) for stage, count, costs in (both if reduces else both[::-1])]
    terms, text = _added(parts)
    if slices == 1 or synchronous:
        return slices * terms, text if slices == 1 else f"{slices} ({text})", ""
    slowest = largest(*(part for part, _ in parts))
    return terms + (slices - 1) * slowest, f"{text} + {slices - 1} (slowest of these)", SLICES


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
        return ZERO, "0 (one rank)", ""
    costs = costs_of(size / (4 * ranks))
    reducing, copying = (ranks - 1 if half in _halves(operation) else 0 for half in (True, False))
    form = rings.ring(reducing, copying, 4, costs, shares_link=costs.ports == "one", synchronous=synchronous)
    if costs.ports != "each":
        return form
    if _has_two(ranks, dims):
        return form[0], form[1], "two of the four rings meet the same neighbour"
    alone = not costs.overhead and not (costs.adding and reducing)
    return form if alone else (form[0], form[1], SENDER)


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
    if routes is None and slots is None:
        parts = [_direct(reduces, ranks, costs) for reduces in _halves(operation)]
        return *_added(parts), ""
    if slots is None:
        return None
    terms = sum((slots * (costs.reduce if reduces else costs.copy) for reduces in _halves(operation)), ZERO)
    text = " + ".join(f"slots ({costs.text(reduces)})" for reduces in _halves(operation))
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
    sizes = _kept(factors(ranks) if levels is None else levels)
    terms, text, why = _rings(operation, sizes[::-1], costs_of, size / chunks, synchronous)
    if chunks == 1 or not sizes:
        return terms, text, why
    if synchronous:
        return chunks * terms, f"{chunks} ({text})", ""
    busy = chunks * _busy(operation, sizes[::-1], costs_of, size / chunks)
    if costs_of(size).ports != "one":
        busy = (1 / len(sizes)) * busy
    return largest(terms, busy), f"{text}, S in {chunks} chunks", SHARED


def factors(ranks: int) -> tuple[int, int]:
    """Return two factors as near to each other as can be, the smaller one first."""
    low = next(size for size in range(math.isqrt(ranks), 0, -1) if ranks % size == 0)
    return low, ranks // low


def _count(ranks: int, nodes: Any) -> int:
    if nodes is None:
        return factors(ranks)[0]
    return int(nodes) if isinstance(nodes, int) else len(nodes)


def _kept(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in sizes if size > 1)


def _halves(operation: str) -> list[bool]:
    """Whether each half of the operation reduces."""
    return [reduces for reduces in (True, False) if operation != ("all_gather" if reduces else "reduce_scatter")]


def _added(parts: Sequence[tuple[Terms, str]]) -> tuple[Terms, str]:
    """Add stages that follow each other."""
    text = " + ".join(text for _, text in parts if text)
    return sum((terms for terms, _ in parts), ZERO), text or "0 (one rank)"


def _stages(sizes: Sequence[int], size: float) -> list[tuple[int, float]]:
    """Ranks of each stage and bytes of its messages, in the order of a reduce_scatter."""
    stages = []
    for count in sizes:
        size /= count
        stages.append((count, size))
    return stages


def _rings(operation: str, sizes: Sequence[int], costs_of: CostsOf, size: float, synchronous: bool) -> Form:
    """One ring after the other; the sizes in the order of a reduce_scatter."""
    parts, over = [], ""
    for count, message in _stages(sizes, size):
        over = f"{over} {count}".strip()
        for reduces in _halves(operation):
            terms, text = _one_ring(reduces, count, costs_of(message))
            parts.append((terms, text.replace("m ", f"S/({over}) " if " " in over else f"S/{over} ")))
    return *_added(parts), ""


def _one_ring(reduces: bool, count: int, costs: Costs) -> tuple[Terms, str]:
    if count == 1:
        return ZERO, ""
    return (count - 1) * (costs.reduce if reduces else costs.copy), f"{count - 1} ({costs.text(reduces)})"


def _direct(reduces: bool, count: int, costs: Costs) -> tuple[Terms, str]:
    """Messages to all others at once."""
    if count == 1:
        return ZERO, ""
    one = costs.ports == "one"
    gap = costs.gap(sender=True, link=one, reducer=reduces)
    hop, name = costs.reduce if reduces else costs.copy, costs.gap_text(sender=True, link=one, reducer=reduces)
    text = costs.text(reduces)
    return hop + (count - 2) * gap, text if count == 2 or name == "0" else f"{text} + {count - 2} {name}"


def _busy(operation: str, sizes: Sequence[int], costs_of: CostsOf, size: float) -> Terms:
    """For how long the messages of a bucket algorithm keep a rank's port busy."""
    total = ZERO
    for count, message in _stages(sizes, size):
        costs = costs_of(message)
        for reduces in _halves(operation):
            total += (count - 1) * costs.gap(sender=True, link=True, reducer=reduces)
    return total


FORMS: dict[str, Callable[..., Form | None]] = {
    "hierarchical": hierarchical,
    "leader": leader,
    "rail": rail,
    "torus": bucket,
    "blueconnect": bucket,
    "hamiltonian": hamiltonian,
    "multitree": multitree,
    "themis": themis,
}
"""Forms by the name of the algorithm."""
