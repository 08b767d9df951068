"""Maximum flow, ratios of cuts and classes against NetworkX and brute force."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collsim.flows import Network, classes, greatest_ratio, least_cut
from collsim.flows.arcs import PATIENCE


@st.composite
def arcs(draw, most_nodes=7, most=9):
    nodes = draw(st.integers(2, most_nodes))
    node = st.integers(0, nodes - 1)
    return nodes, draw(st.lists(st.tuples(node, node, st.integers(0, most)), min_size=1, max_size=24))


def capacity(found, inside):
    return sum(c for a, b, c in found if inside[a] and not inside[b])


@given(arcs(), st.booleans())
def test_flow_and_cut_are_those_of_networkx(case, compiled):
    nodes, found = case
    net = Network(nodes, *zip(*found, strict=True))
    net.effort.looks = PATIENCE + 1 if compiled else 0
    graph = nx.DiGraph()
    graph.add_nodes_from(range(nodes))
    for a, b, c in found:
        if a != b:
            graph.add_edge(a, b, capacity=c + (graph[a][b]["capacity"] if graph.has_edge(a, b) else 0))
    for sink in range(1, nodes):
        flow, inside = net.cut({0: None}, sink)
        assert flow * net.unit == nx.maximum_flow_value(graph, 0, sink)
        assert inside[0]
        assert not inside[sink]
        assert capacity(found, inside) == flow * net.unit == net.leaving(inside) * net.unit


@given(arcs(), st.data())
def test_python_and_numba_find_the_same_cut_from_many_supplies(case, data):
    nodes, found = case
    supplies = {node: data.draw(st.integers(0, 20)) for node in range(1, nodes)}
    outcome = []
    for looks in (0, PATIENCE + 1):
        net = Network(nodes, *zip(*found, strict=True))
        net.effort.looks = looks
        flow, inside = net.cut(supplies, 0, scale=3)
        outside = [node for node in supplies if not inside[node]]
        assert flow == 3 * net.leaving(inside) + sum(supplies[node] for node in outside)
        outcome.append((flow, inside.tolist(), net.cut(supplies, 0, scale=3, limit=1)[1] is None))
    assert outcome[0] == outcome[1]
    assert outcome[0][2] == (outcome[0][0] >= 1)


def test_numbers_beyond_64_bits_are_counted_in_python():
    net = Network(3, [0, 1], [1, 2], [2**61, 2**61 - 1])
    net.effort.looks = PATIENCE + 1
    flow, inside = net.cut({0: None}, 2, scale=2**10)
    assert flow == (2**61 - 1) * 2**10
    assert inside.tolist() == [True, True, False]


@given(arcs())
def test_the_greatest_ratio_is_that_of_all_sets(case):
    nodes, found = case
    # a way round, so that every set has a way out
    found = [*found, *((i, (i + 1) % nodes, 1) for i in range(nodes))]
    net = Network(nodes, *zip(*found, strict=True))
    ranks = range((nodes + 1) // 2, nodes)
    ratio, inside = greatest_ratio(net, dict.fromkeys(ranks, 1), ranks)
    best = Fraction(0)
    for size in range(1, nodes):
        for members in combinations(range(nodes), size):
            mask = np.isin(np.arange(nodes), members)
            held = sum(bool(mask[rank]) for rank in ranks)
            if held < len(ranks):
                best = max(best, Fraction(held * net.unit, capacity(found, mask)))
    assert ratio == best
    if ratio:
        assert ratio == Fraction(sum(bool(inside[rank]) for rank in ranks), net.leaving(inside))


def test_what_has_no_way_out_is_refused():
    with pytest.raises(ValueError, match="no way out"):
        greatest_ratio(Network(2, [0], [1], [5]), {0: 1, 1: 1}, [0, 1])


def test_the_least_cut_of_several_sinks():
    net = Network(4, [0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0], [6, 4, 8, 9, 9, 9])
    least, inside = least_cut(net, 0, [1, 2, 3])
    assert least == 4
    assert inside.tolist() == [True, True, False, True]


def test_parallel_arcs_are_joined_and_divided_by_their_common_divisor():
    net = Network(3, [1, 0, 0, 2], [2, 1, 1, 2], [30, 10, 20, 7])
    assert (net.src.tolist(), net.dst.tolist(), net.capacity.tolist(), net.unit) == ([0, 1], [1, 2], [30, 30], 1)
    turned = Network(2, [0, 0], [1, 1], [10, 20]).reversed()
    assert (turned.src.tolist(), turned.dst.tolist(), turned.capacity.tolist(), turned.unit) == ([1], [0], [1], 30)


def test_classes_of_a_torus_a_line_and_two_kinds_of_links():
    ring = [(i, (i + way) % 6) for i in range(6) for way in (1, -1)]
    assert set(classes(6, *zip(*ring, strict=True), [1] * 12, [0] * 6).tolist()) == {0}
    weights = [2 if 0 in arc else 1 for arc in ring]
    assert classes(6, *zip(*ring, strict=True), weights, [0] * 6).tolist() == [0, 1, 2, 3, 2, 1]
    assert classes(6, *zip(*ring, strict=True), [1] * 12, [0, 0, 0, 1, 0, 0]).tolist() == [0, 1, 2, 3, 2, 1]


def test_classes_see_the_direction_of_arcs():
    assert classes(3, [0, 1], [1, 2], [1, 1], [0, 0, 0]).tolist() == [0, 1, 2]
    assert classes(3, [1, 1], [0, 2], [1, 1], [0, 0, 0]).tolist() == [0, 1, 0]


def test_the_ratio_of_a_single_source():
    ratio, inside = greatest_ratio(Network(3, [0, 1], [1, 2], [10, 4]), {0: 3}, [0, 1, 2])
    assert ratio * 2 == Fraction(3)  # capacities are 5 and 2 in units of 2
    assert inside.tolist() == [True, True, False]
