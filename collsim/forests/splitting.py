"""Taking the switches out: what goes in and out of one is joined pairwise, until only ranks are left.

A switch may go as long as all units still reach every rank; a minimum cut says whether they do. First those go that
nothing needs. Of the others the ways in and out are joined as evenly as possible, since a rank that reaches many others
directly makes shallow trees, but first those that are far apart without the switch: who needs it most has it first.

Source: splitting off with cuts preserved, as in "ForestColl" (Zhao et al., arXiv 2402.06787), after Bang-Jensen, Frank
and Jackson (1995).
"""

from __future__ import annotations

from itertools import product

from collsim.errors import AlgorithmError
from collsim.forests.web import Web

__all__ = ["Unparted", "prune", "split_off"]

Pair = tuple[int, int]

FAR = 1 << 30
ROUNDS = 30
"""Rounds of proportional fitting, after which shares are even enough."""


class Unparted(AlgorithmError):
    """Units could not be parted among the ways of a switch, ``node``."""

    def __init__(self, node: int) -> None:
        super().__init__(f"forest: units of this size cannot be parted at node {node}")
        self.node = node


def prune(web: Web, switches: list[int]) -> list[int]:
    """Take out the switches that nothing needs, then links between switches, and return the switches that stay.

    What goes in and what goes out must stay equal at each switch: one that sends on more than it gets would have to
    copy, and a minimum cut cannot tell.
    """

    def take_out(pairs: list[Pair], of: set[int]) -> bool:
        balanced = all(web.capacity((a, b)) == web.capacity((b, a)) for a, b in pairs if (a in of) and (b in of))
        if not balanced or not web.suffices(without=pairs):
            return False
        for pair in pairs:
            del web.pieces[pair]
        return True

    kept = []
    for node in switches:
        own = [pair for pair in web.pieces if node in pair]
        if own and not take_out(own, set(switches)):
            kept.append(node)
    staying = set(kept)
    for a, b in [(a, b) for a, b in web.pieces if a < b and a in staying and b in staying]:
        take_out([(a, b), (b, a)], staying)
    return kept


def split_off(web: Web, node: int, turn: int) -> None:
    """Take out a switch, its ways in and out joined.

    Parameters
    ----------
    web
        The working graph; all units reach every rank, before and after.
    node
        The switch.
    turn
        Where ways are alike, the ones that this number points at are joined: different switches then join different
        ones.

    Raises
    ------
    Unparted
        If units of this size cannot be parted among the ways.
    """
    ins, outs = web.at(node)
    if len(ins) == len(outs) == 2 and ins.keys() == outs.keys():  # a way through
        a, b = ins
        for src, dst in ((a, b), (b, a)):
            web.join(src, node, dst, min(web.capacity((src, node)), web.capacity((node, dst))))
        _drop(web, node)
        return
    away = {a: web.hops([a], without=node) for a in ins}
    groups: dict[int, list[Pair]] = {}
    for a, b in product(ins, outs):
        if a != b:
            groups.setdefault(away[a].get(b, FAR), []).append((a, b))
    for far in sorted(groups, reverse=True):
        ins, outs = web.at(node)
        shares = _even(ins, outs, groups[far], turn)
        before = web.saved()
        for (a, b), units in shares.items():
            web.join(a, node, b, units)
        if not web.suffices():
            web.restore(before)
            _one_by_one(web, node, groups[far], shares)
    _one_by_one(web, node, [pair for far in sorted(groups, reverse=True) for pair in groups[far]], {})
    _drop(web, node)
    if not web.suffices():
        raise Unparted(node)


def _drop(web: Web, node: int) -> None:
    for pair in [pair for pair in web.pieces if node in pair]:
        del web.pieces[pair]


def _one_by_one(web: Web, node: int, pairs: list[Pair], shares: dict[Pair, int]) -> None:
    """Join as many units of each pair, its share at most where it has one, as leave all ranks with all units."""
    for a, b in pairs:
        most = min(web.capacity((a, node)), web.capacity((node, b)), shares.get((a, b), 0) if shares else FAR)
        if not most:
            continue
        low, high, before = 0, most, web.saved()
        while low < high:
            units = high if low == 0 and high == most else (low + high + 1) // 2
            web.join(a, node, b, units)
            if web.suffices():
                low = units
            else:
                high = units - 1
            web.restore(before)
        if low:
            web.join(a, node, b, low)


def _even(ins: dict[int, int], outs: dict[int, int], pairs: list[Pair], turn: int) -> dict[Pair, int]:
    """Part the units in and out among pairs in proportion to both, in whole numbers."""
    pairs = [(a, b) for a, b in pairs if ins.get(a) and outs.get(b)]
    share = {(a, b): float(ins[a]) * outs[b] for a, b in pairs}
    for _ in range(ROUNDS):
        for side, most in ((0, ins), (1, outs)):
            sums: dict[int, float] = {}
            for pair, amount in share.items():
                sums[pair[side]] = sums.get(pair[side], 0.0) + amount
            for pair in pairs:
                share[pair] *= most[pair[side]] / sums[pair[side]]
    # a little below, since the last round kept to one side only
    found = {pair: int(share[pair] * (1 - 1e-9) + 1e-6) for pair in pairs}
    left_in, left_out = dict(ins), dict(outs)
    for (a, b), units in found.items():
        left_in[a] -= units
        left_out[b] -= units
    for a, b in pairs:  # the same, where rounding gave too many
        over = max(0, -left_in[a], -left_out[b])
        if over and found[a, b]:
            less = min(over, found[a, b])
            found[a, b] -= less
            left_in[a] += less
            left_out[b] += less
    place = {node: i for i, node in enumerate(sorted({*ins, *outs}))}
    size = len(place)

    def order(pair: Pair) -> tuple[float, int]:
        rest = round(share[pair] - int(share[pair]), 6)
        return -rest, (place[pair[1]] - place[pair[0]] - 1 - turn) % size

    todo = sorted(pairs, key=order)
    while todo:
        still = []
        for a, b in todo:
            if left_in[a] and left_out[b]:
                found[a, b] += 1
                left_in[a] -= 1
                left_out[b] -= 1
                still.append((a, b))
        todo = still
    return {pair: units for pair, units in found.items() if units}
