"""Packing of trees: what it promises on small machines by brute force, on large ones by its own rules."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim.topology
from collsim.errors import AlgorithmError
from collsim.flows import Network, greatest_ratio
from collsim.forests import Wires, pack, pack_both, refuse_wrong, turned
from collsim.forests.growing import grow
from collsim.forests.rates import candidate_rates
from collsim.forests.spanning import centre, spanning_trees
from collsim.forests.web import units_at


def wires_of(topology):
    return Wires(
        topology.nodes,
        topology.rank_nodes,
        topology.forwards & (topology.rank_of_node < 0),
        topology.link_src,
        topology.link_dst,
        topology.link_bandwidth,
        [topology.link_name(link) for link in range(topology.n_links)],
    )


def random_wires(seed, ranks, switches=0, both_ways=False):
    """Return a machine round which there is a way, with links of random bandwidths between random nodes."""
    draw = random.Random(seed)
    n = ranks + switches
    around = draw.sample(range(n), n)
    links = [(a, b, draw.randint(1, 100)) for a, b in zip(around, around[1:] + around[:1], strict=True)]
    links += [(*draw.sample(range(n), 2), draw.randint(1, 100)) for _ in range(draw.randint(n, 3 * n))]
    if both_ways:
        links += [(b, a, rate) for a, b, rate in links]
    src, dst, rate = zip(*links, strict=True)
    passes = [node >= ranks for node in range(n)]
    names = [f"link {i}" for i in range(len(links))]
    return Wires([f"n{i}" for i in range(n)], range(ranks), passes, src, dst, np.array(rate) * 10**9, names)


def optimum(wires, root=None):
    net = Network(len(wires.nodes), wires.src, wires.dst, wires.bandwidth)
    weights = {node: 1 for rank, node in enumerate(wires.ranks.tolist()) if root in (None, rank)}
    return net.unit / greatest_ratio(net, weights, wires.ranks.tolist())[0]


def per_root(forest, root=None):
    return forest.rate * forest.units / (forest.ranks if root is None else 1)


@pytest.mark.parametrize("seed", range(12))
def test_random_asymmetric_machines_come_within_two_per_cent_of_the_optimum(seed):
    wires = random_wires(seed, 16)
    for given_wires, root in ((wires, None), (turned(wires), None), (wires, 3)):
        forest = pack(given_wires, root=root)
        refuse_wrong(forest, given_wires)
        assert Fraction(98, 100) * optimum(given_wires, root) <= per_root(forest, root) <= optimum(given_wires, root)


@pytest.mark.parametrize("seed", range(8))
def test_random_machines_with_switches_too(seed):
    wires = random_wires(seed, 8, switches=4, both_ways=True)
    forest = pack(wires)
    refuse_wrong(forest, wires)
    assert per_root(forest) >= Fraction(97, 100) * optimum(wires)


@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(0, 3), st.booleans())
@settings(max_examples=40, deadline=None)
def test_whatever_the_machine_a_forest_is_one_of_it_and_no_faster_than_its_cuts_allow(seed, ranks, switches, both):
    wires = random_wires(seed, ranks, switches, both)
    for root in (None, ranks - 1):
        forest = pack(wires, root=root)
        refuse_wrong(forest, wires)
        assert 0 < per_root(forest, root) <= optimum(wires, root)
        counts = forest.units_of()
        assert len(set(counts.tolist())) == 1 if root is None else counts.tolist()[root] == forest.units
    up, down = pack_both(wires)
    refuse_wrong(up, turned(wires))
    refuse_wrong(down, wires)
    assert up.units_of().tolist() == down.units_of().tolist()


@pytest.mark.parametrize(
    ("make", "units", "depth"),
    [
        (lambda: collsim.topology.load_topology("mi300x"), 8, 1),
        (lambda: collsim.topology.load_topology("dgx-h100"), 8, 1),
        (lambda: collsim.topology.rail_optimized(8, 8), 64, 2),
        (lambda: collsim.topology.torus((4, 4)), 64, 5),
    ],
)
def test_symmetric_machines_reach_the_optimum_with_shallow_trees(make, units, depth):
    wires = wires_of(make())
    forest = pack(wires)
    refuse_wrong(forest, wires)
    assert per_root(forest) == optimum(wires)
    assert forest.units == units
    assert forest.depth <= depth


def test_fewer_units_than_the_optimum_needs_may_be_given():
    wires = wires_of(collsim.topology.load_topology("dgx-1-v100"))
    best, one = pack(wires), pack(wires, trees=1)
    assert best.units == 48
    assert one.units == 8
    refuse_wrong(one, wires)
    # 6 links of 25 GB/s into each GPU: 7 units of which need 25/2 GB/s each where one link carries two
    assert per_root(best) == Fraction(150 * 10**9, 7)
    assert one.rate < per_root(best)


def test_a_broadcast_from_one_port_branches():
    """One unit would have to go along a chain of 7."""
    wires = wires_of(collsim.topology.load_topology("dgx-h100"))
    forest = pack(wires, root=2)
    assert per_root(forest, 2) == 450 * 10**9
    assert forest.depth <= 3
    assert pack(wires, root=2, trees=1).depth == 7


@pytest.mark.parametrize(("make", "algbw"), [
    (lambda: collsim.topology.mesh((4, 4), bandwidth="50GB/s"), 80),  # 24 ways for 15 of a tree
    (lambda: collsim.topology.line(8, bandwidth="50GB/s"), 50),
    (lambda: collsim.topology.torus((4, 4), bandwidth="50GB/s"), Fraction(320, 3)),  # 32 ways
])  # fmt: skip
def test_an_all_reduce_goes_along_undirected_trees_where_ranks_differ(make, algbw):
    wires = wires_of(make())
    up, down = pack_both(wires)
    refuse_wrong(up, turned(wires))
    refuse_wrong(down, wires)
    if up.trees[0].root == down.trees[0].root and up.load().keys() and make().structure["kind"] != "torus":
        # both directions at once
        together = Counter(up.load()) + Counter(down.load())
        rate = dict(zip(wires.links, wires.bandwidth.tolist(), strict=True))
        assert all(units * down.rate <= rate[name] for name, units in together.items())
        assert down.units * down.rate == algbw * 10**9
    else:
        assert down.units / (1 / down.rate + 1 / up.rate) == algbw * 10**9


def test_a_rank_that_cannot_be_reached_is_refused():
    wires = Wires(("a", "b"), [0, 1], [False, False], [0], [1], [5], ("a->b",))
    assert pack(wires, root=0).units >= 1
    with pytest.raises(AlgorithmError, match="a way from each root to every rank"):
        pack(wires)


def test_a_link_into_a_node_that_does_not_pass_is_of_no_use():
    # 0 -> host -> 1 would be the better way
    ends = [(0, 2), (2, 1), (0, 1), (1, 0)]
    wires = Wires(("a", "b", "host"), [0, 1], [False] * 3, *zip(*ends, strict=True), [90, 90, 10, 10], "wxyz")
    forest = pack(wires)
    assert per_root(forest) == 10
    assert set(forest.load()) == {"y", "z"}


def test_parallel_links_are_told_apart():
    wires = Wires(("a", "b"), [0, 1], [False] * 2, [0, 0, 1], [1, 1, 0], [30, 10, 40], ("fast", "slow", "back"))
    forest = pack(wires, root=0)
    refuse_wrong(forest, wires)
    assert per_root(forest, 0) == 40
    assert {name: units * forest.rate for name, units in forest.load().items()} == {"fast": 30, "slow": 10}


@given(st.integers(0, 2**32), st.integers(2, 5), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_trees_grow_if_and_only_if_all_units_reach_every_rank(seed, ranks, units):
    draw = random.Random(seed)
    capacity = {(a, b): draw.randint(0, 3) for a in range(ranks) for b in range(ranks) if a != b}
    roots = {rank: draw.randint(0, units) for rank in range(ranks)}
    roots[0] = max(1, roots[0])
    total = sum(roots.values())
    enough = all(
        sum(c for (a, b), c in capacity.items() if a not in inside and b in inside)
        >= total - sum(roots[rank] for rank in inside)
        for size in range(1, ranks)
        for inside in combinations(range(ranks), size)
    )
    if not enough:
        with pytest.raises(AlgorithmError):
            grow(ranks, capacity, roots)
        return
    grown = grow(ranks, capacity, roots)
    used = Counter()
    for tree in grown:
        used.update(dict.fromkeys(tree.branches, 0))
        for branch in tree.branches:
            used[branch] += tree.units
        assert nx.is_arborescence(nx.DiGraph(tree.branches)) or ranks == 1
        assert {b for _, b in tree.branches} == set(range(ranks)) - {tree.root}
    assert all(units <= capacity[pair] for pair, units in used.items())
    assert {rank: sum(t.units for t in grown if t.root == rank) for rank in range(ranks)} == roots


def parts_of(items):
    if not items:
        yield []
        return
    for rest in parts_of(items[1:]):
        yield [[items[0]], *rest]
        for i in range(len(rest)):
            yield [*rest[:i], [items[0], *rest[i]], *rest[i + 1 :]]


@given(st.integers(0, 2**32), st.integers(2, 5))
@settings(max_examples=60, deadline=None)
def test_there_are_as_many_spanning_trees_as_nash_williams_and_tutte_say(seed, ranks):
    draw = random.Random(seed)
    capacity = {pair: draw.randint(0, 4) for pair in combinations(range(ranks), 2)}
    most = min(
        sum(c for (a, b), c in capacity.items() if not any(a in part and b in part for part in parts))
        // (len(parts) - 1)
        for parts in parts_of(list(range(ranks)))
        if len(parts) > 1
    )
    assert spanning_trees(ranks, capacity, most + 1) is None
    trees = spanning_trees(ranks, capacity, most)
    assert len(trees) == most
    used = Counter(pair for tree in trees for pair in tree)
    assert all(units <= capacity[pair] for pair, units in used.items())
    for tree in trees:
        graph = nx.Graph(tree)
        assert len(graph) == ranks
        assert nx.is_tree(graph)
        root, ways = centre(ranks, tree)
        assert nx.eccentricity(graph, root) == nx.radius(graph)
        assert nx.is_arborescence(nx.DiGraph(ways))
        assert ways[0][0] == root


def test_rates_at_which_links_carry_one_more_unit():
    assert candidate_rates(np.array([30, 20, 30]), Fraction(15), Fraction(7), 9) == [15, 10, Fraction(15, 2)]
    assert candidate_rates(np.array([30, 20, 30]), Fraction(15), Fraction(7), 3) == [15, 10]
    assert units_at(np.array([30, 20, 7]), Fraction(15, 2)).tolist() == [4, 2, 0]


def test_links_of_rates_far_apart_cost_no_more_than_others():
    """A link of 10**15 bytes/s carries 10**15 units of a link of 1; nobody counts them."""
    ends = [(0, 1), (1, 0), (1, 2), (2, 1)]
    wires = Wires(("a", "b", "c"), range(3), [False] * 3, *zip(*ends, strict=True), [10**15, 10**15, 1, 1], "wxyz")
    forest = pack(wires)
    refuse_wrong(forest, wires)
    assert per_root(forest) == optimum(wires) == Fraction(1, 2)


def test_a_switch_at_which_trees_cannot_be_parted_is_named():
    """More leads out of y than into it, and more into x than out of it: a minimum cut does not see who copies."""
    names = "abcdexyz"
    links = ["az", "za", "bx", "xb", "cx", "dy", "yd", "ex", "xe", "xy", "yx", "yz", "zy", "yc"]

    def machine(*more):
        all_links = [*links, *more]
        ends = [[names.index(link[side]) for link in all_links] for side in (0, 1)]
        passes = [name in "xyz" for name in names]
        return Wires(tuple(names), range(5), passes, *ends, [100] * len(all_links), all_links)

    hint = (
        "whose links in and out differ in bandwidth; make them equal, try -p trees=1, 2 or 3, or use another algorithm"
    )
    with pytest.raises(AlgorithmError, match=f"forest: found no way to part the trees at 'y', {hint}"):
        pack(machine())
    with pytest.raises(AlgorithmError, match=f"forest: found no way to part the trees at 'x', {hint}"):
        pack(turned(machine()))
    # and that helps
    refuse_wrong(pack(machine(), trees=3), machine())
    even = machine("xc", "cy")
    refuse_wrong(pack(even), even)
    refuse_wrong(pack(turned(even)), turned(even))
