"""From a machine to a forest: units, switches out, trees grown, and a path for each unit.

Source: "ForestColl: Throughput-Optimal Collective Communications on Heterogeneous Network Fabrics" (Zhao et al., arXiv
2402.06787), whose steps these are; the switches are parted and the trees grown by rules of our own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from math import log2

import numpy as np

from collsim.errors import AlgorithmError
from collsim.forests.growing import grow
from collsim.forests.model import Branch, Forest, Tree, Wires, turned
from collsim.forests.rates import Machine, fastest
from collsim.forests.spanning import centre, spanning_trees
from collsim.forests.splitting import Unparted, prune, split_off
from collsim.forests.web import Pair, Web, useful_bandwidth

__all__ = ["pack", "pack_both"]

CLOSE = Fraction(995, 1000)
"""Part of the optimum that is near enough: no more units are tried."""
BRANCHES = 16_384
"""Branches of all trees up to which more units a root are tried."""
MOST_UNITS = 32
SHALLOW = 2048
"""Branches up to which more units of a single root are tried for the sake of shallow trees."""


def pack(wires: Wires, *, root: int | None = None, trees: int | None = None) -> Forest:
    """Return trees that carry as much as the machine allows from every rank, or from one, to all ranks.

    Parameters
    ----------
    wires
        The machine.
    root
        The only rank that sends, as in a broadcast; all send equally much if not given, as in an all_gather.
    trees
        Units a root. If not given, the fewest that come within half a per cent of the optimum, or the best that are
        tried: up to 32, on large machines fewer (4 on 64 ranks).

    Raises
    ------
    AlgorithmError
        If some rank cannot be reached, or no way is found to part the units at a switch.

    Examples
    --------
    Three ranks in a ring of links of 10 both ways: each root sends at 10, one unit each way or one around.

    >>> ends = [(i, (i + way) % 3) for i in range(3) for way in (1, -1)]
    >>> names = [f"{a}->{b}" for a, b in ends]
    >>> wires = Wires(("a", "b", "c"), range(3), [False] * 3, *zip(*ends), [10] * 6, names)
    >>> forest = pack(wires)
    >>> forest.units, forest.rate, forest.depth
    (3, Fraction(10, 1), 1)
    """
    machine = _machine(wires)
    if len(machine.ranks) == 1:
        return Forest(1, (Tree(0, 1, ()),), Fraction(1))
    weights = {node: 1 for rank, node in enumerate(machine.ranks) if root in (None, rank)}
    rate, supplies, web = _best(wires, machine, weights, trees)
    forest = _forest(wires, machine, rate, supplies, web)
    units = forest.units
    # one unit that a rank can send once makes a chain; of two, a rank can send the one twice and the other never
    most, deep = min(MOST_UNITS, SHALLOW // len(machine.ranks)), log2(len(machine.ranks)) + 1
    while root is not None and trees is None and units * 2 <= most and forest.depth > deep:
        units *= 2
        rate, supplies, web = _best(wires, machine, weights, units)
        shallower = _forest(wires, machine, rate, supplies, web)
        if shallower.depth < forest.depth and rate * units >= forest.rate * forest.units:
            forest = shallower
    return forest


def pack_both(wires: Wires, *, trees: int | None = None) -> tuple[Forest, Forest]:
    """Return trees for an all_reduce: those to reduce along, on links turned round, and those to broadcast along.

    Parameters
    ----------
    wires, trees
        As in `pack`.

    Returns
    -------
    up, down
        Forests with as many units at each root. ``up`` is one of ``turned(wires)``: what it sends from the root to all
        is, run backwards, what all send to the root. If both have equal rates, and the trees of one are those of the
        other, they use no link beyond its bandwidth together; otherwise one after the other.

    Notes
    -----
    The better of two: trees from every rank as for a reduce_scatter and an all_gather, and undirected spanning trees
    (`collsim.forests.spanning`), where it does not matter in which rank what is reduced comes together. The latter are
    better where ranks differ: in the corner of a mesh, or at the end of a line.
    """
    back, machine = turned(wires), _machine(wires)
    n = len(machine.ranks)
    if n == 1:
        return pack(back), pack(wires)
    rate, supplies, web = _best(wires, machine, dict.fromkeys(machine.ranks, 1), trees)
    split = web.saved()
    down = _forest(wires, machine, rate, supplies, web)
    up = _mirrored(wires, down) or pack(back, trees=down.units // n)
    best = down.units / (1 / down.rate + 1 / up.rate)
    enough = machine.most_at_all() / 2 * CLOSE
    most = n * trees if trees is not None else min(MOST_UNITS, max(1, BRANCHES // n))
    web.restore(split)
    found: tuple[Fraction, Web, dict[tuple[Pair, ...], int]] | None = None
    for number, piece in _pieces(machine, web, rate, most):
        if best >= enough:
            break
        if trees_found := _spanning(machine, piece, int(best // number), most):
            found = number, piece, trees_found
            best = number * sum(trees_found.values())
    if found is None:
        return up, down
    rate, web, spanning = found
    up = _spread(wires, machine, web, spanning, rate, backwards=True)
    return up, _spread(wires, machine, web, spanning, rate, backwards=False)


def _pieces(machine: Machine, web: Web, rate: Fraction, most: int) -> Iterator[tuple[Fraction, Web]]:
    """Yield rates, and graphs without switches of units of that rate."""
    nodes = set(machine.ranks)
    useful = machine.bandwidth > 0
    if not nodes.issuperset(machine.src[useful].tolist() + machine.dst[useful].tolist()):
        yield rate, web
        return
    least = int(machine.bandwidth[useful].min())
    for units in range(1, most + 1):
        yield Fraction(least, units), machine.web(Fraction(least, units), {})


def _spanning(machine: Machine, web: Web, more_than: int, most: int) -> dict[tuple[Pair, ...], int] | None:
    """Return as many undirected spanning trees as there are, with their units; None if not more than so many."""
    number = {node: rank for rank, node in enumerate(machine.ranks)}
    capacity = {}
    for a, b in web.pieces:
        if number[a] < number[b] and (units := min(web.capacity((a, b)), web.capacity((b, a)))):
            capacity[number[a], number[b]] = units
    n = len(machine.ranks)
    ways = [sum(units for pair, units in capacity.items() if rank in pair) for rank in range(n)]
    low, high, best = more_than, min(most, sum(ways) // 2 // (n - 1), *ways), None
    while low < high:
        middle = (low + high + 1) // 2 if best is not None else low + 1
        found = spanning_trees(n, capacity, middle)
        if found is None and best is None:
            return None
        low, high, best = (middle, high, found) if found is not None else (low, middle - 1, best)
    return None if best is None else dict(Counter(map(tuple, best)))


def _spread(
    wires: Wires, machine: Machine, web: Web, found: dict[tuple[Pair, ...], int], rate: Fraction, backwards: bool
) -> Forest:
    """Return the trees from their centres, with paths down from there, or up to it on links turned round."""
    trees = []
    for ways, units in found.items():
        root, branches = centre(len(machine.ranks), list(ways))
        trees.append(_tree(wires, machine, web, root, units, branches, backwards))
    return Forest(len(machine.ranks), tuple(trees), rate)


def _mirrored(wires: Wires, forest: Forest) -> Forest | None:
    """Return the same forest on links turned round; None if a link that is used has no fellow the other way."""
    by_ends: dict[Pair, list[int]] = {}
    for link, ends in enumerate(zip(wires.src.tolist(), wires.dst.tolist(), strict=True)):
        by_ends.setdefault(ends, []).append(link)
    fellow: dict[str, str] = {}
    for (a, b), links in by_ends.items():
        back = by_ends.get((b, a), [])
        if wires.bandwidth[links].tolist() == wires.bandwidth[back].tolist():
            fellow.update((wires.links[one], wires.links[other]) for one, other in zip(links, back, strict=True))
    if not forest.load().keys() <= fellow.keys():
        return None
    trees = (
        Tree(
            tree.root, tree.units, tuple(b._replace(path=tuple(fellow[name] for name in b.path)) for b in tree.branches)
        )
        for tree in forest.trees
    )
    return Forest(forest.ranks, tuple(trees), forest.rate)


def _machine(wires: Wires) -> Machine:
    """Leave out what no unit can cross."""
    ranks = wires.ranks.tolist()
    takes_part = wires.passes.copy()
    takes_part[wires.ranks] = True
    bandwidth = np.where(takes_part[wires.src] & takes_part[wires.dst], wires.bandwidth, 0)
    bandwidth = useful_bandwidth(len(wires.nodes), wires.src, wires.dst, bandwidth, ranks)
    return Machine(len(wires.nodes), wires.src, wires.dst, bandwidth, ranks)


def _choices(machine: Machine, weights: dict[int, int], trees: int | None) -> list[tuple[Fraction, dict[int, int]]]:
    """Return rates and units at each root that can be packed, the best first."""
    optimum = machine.optimum(weights)
    useful = machine.bandwidth[machine.bandwidth > 0]
    most = max(1, min(MOST_UNITS * (1 + (len(weights) == 1)), BRANCHES // (len(weights) * len(machine.ranks))))
    best: list[tuple[Fraction, dict[int, int]]] = []
    for units in range(1, most + 1) if trees is None else [trees]:
        supplies = dict.fromkeys(weights, units)
        rates = fastest(useful, optimum / units, sum(supplies.values()), partial(_suffices, machine, supplies))
        if not best or rates[0] * units > best[0][0] * best[0][1][next(iter(weights))]:
            best = [(rate, supplies) for rate in rates]
        if rates[0] * units >= optimum * CLOSE:
            break
    return best


def _suffices(machine: Machine, supplies: dict[int, int], rate: Fraction) -> bool:
    return machine.web(rate, supplies).suffices()


def _best(
    wires: Wires, machine: Machine, weights: dict[int, int], trees: int | None
) -> tuple[Fraction, dict[int, int], Web]:
    """Return the best rate and units at each root whose switches can be taken out, and the graph without them."""
    for rate, supplies in _choices(machine, weights, trees):
        web = machine.web(rate, supplies)
        try:
            _without_switches(machine, web)
        except Unparted as error:
            node = error.node
        else:
            return rate, supplies, web
    one, other = (int(machine.bandwidth[ends == node].sum()) for ends in (machine.src, machine.dst))
    # the machine may be turned round, so it is not said which of the two is more
    why = "; " if one == other else ", whose links in and out differ in bandwidth; make them equal, "
    raise AlgorithmError(
        f"forest: found no way to part the trees at {wires.nodes[node]!r}{why}try -p trees=1, 2 or 3, or use another "
        "algorithm"
    )


def _without_switches(machine: Machine, web: Web) -> None:
    """Take all switches out, those that are far from ranks first, after those that are only passed through."""
    away = web.hops(machine.ranks)
    nodes = {node for pair in web.pieces for node in pair} - set(machine.ranks)
    switches = prune(web, sorted(nodes, key=lambda node: (-away.get(node, 0), node)))
    through = {node for node in switches if len(web.at(node)[0]) == 2}
    for turn, node in enumerate(sorted(switches, key=lambda node: node not in through)):
        split_off(web, node, turn)


def _forest(wires: Wires, machine: Machine, rate: Fraction, supplies: dict[int, int], web: Web) -> Forest:
    """Grow the trees of some units on a graph without switches, which is used up."""
    number = {node: rank for rank, node in enumerate(machine.ranks)}
    capacity = {(number[a], number[b]): web.capacity((a, b)) for a, b in web.pieces}
    grown = grow(
        len(machine.ranks), capacity, {number[node]: units for node, units in supplies.items() if units}, machine.effort
    )
    trees = (
        _tree(wires, machine, web, growth.root, growth.units, growth.branches)
        for growth in sorted(grown, key=lambda growth: growth.root)
    )
    return Forest(len(machine.ranks), tuple(trees), rate)


def _tree(
    wires: Wires, machine: Machine, web: Web, root: int, units: int, ways: list[Pair], backwards: bool = False
) -> Tree:
    """Give each branch of a tree the paths of its units; ``backwards`` those that lead from child to parent."""
    branches = []
    for a, b in ways:
        ends = (machine.ranks[a], machine.ranks[b])
        first = 0
        for some, path in web.taken(ends[::-1] if backwards else ends, units):
            names = [wires.links[link] for link in path]
            branches.append(Branch(a, b, first, some, tuple(names[::-1] if backwards else names)))
            first += some
    return Tree(root, units, tuple(branches))
