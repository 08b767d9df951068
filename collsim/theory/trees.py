"""Closed forms of binomial, k-ary and double binary trees: a time, its formula and why it may not be exact.

On a tree the time is ``a`` messages one after the other on the way of some rank (each costs a hop) and ``b`` messages
that had to be waited for on the way (each costs a gap). The forms are pairs (a, b); which of two pairs is the later one
depends on the costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np

from collsim.theory.costs import Costs, Terms, added, times

__all__ = ["binomial", "double_binary", "kary"]

Way = tuple[int, int]
Later = Callable[[Iterable[Way]], Way]
Form = tuple[Terms, str, str]


def _later(hop: Terms, gap: Terms) -> Later:
    return lambda ways: max(ways, key=lambda way: (way[0] * hop.total + way[1] * gap.total, way))


def _sum(*parts: tuple[float, str]) -> str:
    """Write a sum of multiples, without those that are nothing."""
    return added(*(times(count, text) for count, text in parts))


def binomial(op: str, ranks: int, costs: Costs, *, synchronous: bool) -> Form:
    """Binomial broadcast (farthest rank first), reduce (nearest first), or one after the other. Exact."""
    one = costs.ports == "one"
    total, texts = Terms(), []
    for reduces in (True, False):
        if op == ("broadcast" if reduces else "reduce"):
            continue
        hop = costs.reduce if reduces else costs.copy
        gap = costs.gap(link=one, reducer=True) if reduces else costs.gap(link=one, sender=True)
        name = costs.gap_text(link=one, reducer=True) if reduces else costs.gap_text(link=one, sender=True)
        if synchronous:
            way = ((ranks - 1).bit_length(), 0)
        else:
            way = (_binomial_reduce if reduces else _binomial_broadcast)(ranks, _later(hop, gap))
        total += way[0] * hop + way[1] * gap
        texts.append(_sum((way[0], costs.text(reduces)), (way[1], name)))
    return total, " + ".join(texts), ""


def _binomial_broadcast(ranks: int, later: Later) -> Way:
    """Count messages and waits: a subtree is a binomial tree again, and so is what is left of the tree.

    ``T(N) = max(hop + T(N - p), gap + T(p))`` with p the greatest power of two below N and ``T(2^i) = i hop``: the
    subtree of the farthest child, and the near half, a full tree that starts one gap later.
    """
    if ranks == 1:
        return (0, 0)
    levels = (ranks - 1).bit_length()
    hops, gaps = _binomial_broadcast(ranks - (1 << (levels - 1)), later)
    return later([(hops + 1, gaps)] + [(levels - 1, 1)] * (levels > 1))


def _binomial_reduce(ranks: int, later: Later) -> Way:
    """Full subtrees are ready one hop after the other; the last one, cut short, at its own time."""
    if ranks == 1:
        return (0, 0)
    levels = (ranks - 1).bit_length()
    rest = _binomial_reduce(ranks - (1 << (levels - 1)), later)
    return _merged([(level, 0) for level in range(levels - 1)] + [rest], later)


def _merged(ready: list[Way], later: Later) -> Way:
    """When the last of several messages to one rank is done, given when they are ready."""
    order: list[Way] = []
    left = list(ready)
    while left:
        order.append(later(left))
        left.remove(order[-1])
    hops, gaps = later((a, b + waits) for waits, (a, b) in enumerate(order))
    return hops + 1, gaps


@lru_cache(maxsize=64)
def _levels(ranks: int, k: int) -> tuple[int, ...]:
    """Ranks on each level of a complete k-ary tree in level order."""
    if k == 1:
        return (1,) * ranks
    sizes, left = [1], ranks - 1
    while left > 0:
        sizes.append(min(left, sizes[-1] * k))
        left -= sizes[-1]
    return tuple(sizes)


@lru_cache(maxsize=64)
def _steps(ranks: int, k: int, slices: int) -> tuple[int, int]:
    """Count the steps of one way, and those of the way down of an all_reduce in which nothing goes up.

    Every rank sends one message a step: child i of a rank that starts at step t hears slice j in step ``t + k j + i``
    and starts one later. Up is down turned round; the way down begins when the root has the first slice.
    """
    start = np.zeros(ranks, dtype=np.int64)
    first = 1
    for size in _levels(ranks, k)[1:]:
        level = np.arange(first, first + size)
        start[level] = start[(level - 1) // k] + (level - 1) % k + 1
        first += size
    down = np.unique(np.unique(start[1:] - 1)[:, None] + k * np.arange(slices))
    up, turned = down[-1] - down, down + down[-1] + 1 - k * (slices - 1)
    return len(down), len(np.setdiff1d(turned, up))


def kary(op: str, ranks: int, k: int, slices: int, costs: Costs, *, synchronous: bool) -> Form:
    """Pipelined complete tree in level order: slice after slice, each to all children in order.

    The root is the busiest rank and sets the pace of a broadcast. A reduce is exact for one slice, for trees without a
    level that is cut short, and where messages of different children never queue. An all_reduce is exact for one slice,
    on a tree of one level, and where the ways up and down share nothing.
    """
    up, down, one = op != "broadcast", op != "reduce", costs.ports == "one"
    k = min(k, ranks - 1)  # no rank has more children
    levels = _levels(ranks, k)
    height = len(levels) - 1
    piped = slices > 1 and height > 1 and costs.ports != "none"
    queues = bool(one or costs.adding or (down and costs.overhead))
    why = ""
    if piped and up and down and (one or costs.overhead or (costs.adding and not synchronous)):
        why = "slices on the way up and down share a rank's ports"
    elif piped and up and queues and not synchronous and levels[-1] != k**height:
        why = "the last level is cut short, so slices of different children meet out of step"
    if synchronous:
        steps, alone = _steps(ranks, k, slices)
        rest = alone if up and down else 0
        if not up:
            return steps * costs.copy, _sum((steps, costs.text())), ""
        return (steps * costs.reduce + rest * costs.copy, _sum((steps, costs.text(True)), (rest, costs.text())), why)
    total, texts = Terms(), []
    paces: list[tuple[Terms, str]] = []
    for reduces in [True] * up + [False] * down:
        hop = costs.reduce if reduces else costs.copy
        shared = {"link": one, "reducer": reduces, "sender": not reduces}
        own = {"link": True, "reducer": reduces, "sender": True}
        gap, gap_text = costs.gap(**shared), costs.gap_text(**shared)
        if reduces:
            hops, gaps = _kary_reduce(height, levels[-1], k, _later(hop, gap))
        else:
            hops, gaps = _kary_broadcast(ranks, k, _later(hop, gap))
        total += hops * hop + gaps * gap
        texts.append(_sum((hops, costs.text(reduces)), (gaps, gap_text)))
        # an inner rank of an all_reduce sends to its children and its parent
        most = k + (up and down and height > 1 and not reduces)
        paces += [(most * gap, _sum((most, gap_text))), (costs.gap(**own), costs.gap_text(**own))]
    pace, pace_text = max(paces, key=lambda term: term[0].total)
    if slices > 1 and pace.total:
        total += (slices - 1) * pace
        texts.append(f"(slices-1) {pace_text}")
    return total, " + ".join(texts), why


def _kary_broadcast(ranks: int, k: int, later: Later) -> Way:
    """When one slice has reached every rank.

    A rank of the last level at place x has waited, over all levels, for as many earlier sends as the digits of x in
    base k add up to. The greatest sum of digits up to x is that of x, or comes from lowering one of its digits and
    taking the highest ones behind it.
    """
    height, width = len(_levels(ranks, k)) - 1, _levels(ranks, k)[-1]
    if k == 1 or height == 0:
        return (height, 0)
    digits = [(width - 1) // k**i % k for i in reversed(range(height))]
    lowered = [sum(digits[:i]) + d - 1 + (height - 1 - i) * (k - 1) for i, d in enumerate(digits) if d]
    return later([(height, max([sum(digits), *lowered])), (height - 1, (height - 1) * (k - 1))])


def _kary_reduce(height: int, width: int, k: int, later: Later) -> Way:
    """When the root has one slice of all ranks (``width`` ranks on the last level)."""
    if k == 1 or height == 0:
        return (height, 0)
    full = k ** (height - 1)
    if width == k * full:
        return height, height * (k - 1)
    ready: list[Way] = []
    for child in range(k):
        below = min(max(width - child * full, 0), full)
        if height == 1:
            ready += [(0, 0)] * below
        elif below:
            ready.append(_kary_reduce(height - 1, below, k, later))
        else:
            ready.append(_kary_reduce(height - 2, full // k, k, later))
    return _merged(ready, later)


def double_binary(op: str, ranks: int, slices: int, costs: Costs, *, synchronous: bool, paced: bool = False) -> Form:
    """Two binary trees with half of the data each: an estimate.

    Each level costs a hop and one message waited for. Every rank sends and receives two messages a slice; Sanders,
    Speck and Traff show that with a colouring of the edges ``2 h + 2 (k - 1)`` messages one after the other are enough.
    Queues in order of arrival come close to that on the way down, and lose about half as much again on the way up;
    not so if slices are ``paced``, few of them waiting at a port.
    """
    one = costs.ports == "one" or ranks == 2
    # with a root, the root of the second tree hangs below it, which adds a level unless N - 1 is a power of two
    height = (ranks - 1).bit_length() + (op != "all_reduce" and (ranks - 1) & (ranks - 2) != 0)
    total, texts = Terms(), []
    for reduces in (True, False):
        if op == ("broadcast" if reduces else "reduce"):
            continue
        hop = costs.reduce if reduces else costs.copy
        shared = {"link": one, "reducer": reduces, "sender": True}
        gap, name = costs.gap(**shared), costs.gap_text(**shared)
        own = costs.gap(link=True, reducer=reduces, sender=True)
        if synchronous:
            steps = height + slices - 1
            total += steps * (hop + gap)
            texts.append(times(steps, _sum((1, costs.text(reduces)), (1, name))))
            continue
        # slices of leaves are ready at once and hold up those that inner ranks pass on, in the ports of both
        messages = 1 if ranks == 2 and op == "all_reduce" else 3 if reduces and ranks > 2 and not paced else 2
        pace, pace_text = messages * gap, times(messages, name)
        if own.total > pace.total:
            pace, pace_text = own, costs.gap_text(link=True, reducer=reduces, sender=True)
        total += height * (hop + gap) + (slices - 1) * pace
        texts.append(times(height, _sum((1, costs.text(reduces)), (1, name))))
        if slices > 1 and pace.total:
            texts.append(f"(slices-1) {pace_text}")
    return total, " + ".join(texts), "an estimate: the two trees share the ports of a rank in order of arrival"
