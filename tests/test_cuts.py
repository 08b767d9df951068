"""Cuts found by flow against all subsets of small machines, and what relays make of them."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim
import collsim.topology as machines
from collsim.collective import Collective
from collsim.schedule import ScheduleBuilder
from collsim.theory import candidates, limits, lower_bound, paths
from collsim.theory.candidates import Sets, candidate_sets, capacities
from collsim.theory.cuts import Network, classes, greatest_ratio, least_cut, leaving
from collsim.theory.paths import UNREACHED, least_latencies

G = 10**9
OPERATIONS = (
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all", "gather", "scatter", "send_recv",
    "barrier",
)  # fmt: skip


@st.composite
def topologies(draw, most=5):
    """A ring with chords, perhaps a switch, uneven bandwidths; every rank reaches every other."""
    ranks = draw(st.integers(2, most))
    builder = machines.TopologyBuilder("random")
    names = [f"gpu{r}" for r in range(ranks)]
    for name in names:
        builder.add_node(name, "gpu")
    if draw(st.booleans()):
        builder.add_node("sw", "switch")
        names.append("sw")
    rate, latency = st.integers(1, 9), st.integers(0, 3)
    for i in range(len(names)):
        builder.add_link(names[i], names[(i + 1) % len(names)], draw(rate) * 25 * 10**9, draw(latency) * 10**6)
    ends = st.tuples(st.sampled_from(names), st.sampled_from(names)).filter(lambda pair: pair[0] != pair[1])
    for src, dst in draw(st.lists(ends, max_size=6)):
        builder.add_link(src, dst, draw(rate) * 25 * 10**9, draw(latency) * 10**6)
    return builder.build()


def subsets(topology):
    for size in range(1, topology.n_nodes):
        for members in combinations(range(topology.n_nodes), size):
            inside = np.zeros(topology.n_nodes, dtype=bool)
            inside[list(members)] = True
            yield inside


def capacity(topology, inside):
    return sum(topology.link_bandwidth[leaving(topology, inside)].tolist())


def alone(topology, node):
    inside = np.zeros(topology.n_nodes, dtype=bool)
    inside[node] = True
    return inside


@settings(max_examples=40)
@given(topologies())
def test_greatest_ratio_is_that_of_all_subsets(topology):
    ranks = topology.rank_nodes
    network = Network(topology)
    found = greatest_ratio(network, dict.fromkeys(ranks.tolist(), 1), ranks.tolist(), [alone(topology, int(ranks[0]))])
    best = max(
        Fraction(int(inside[ranks].sum()), capacity(topology, inside))
        for inside in subsets(topology)
        if inside[ranks].any() and not inside[ranks].all()
    )
    assert not found[ranks].all()
    assert Fraction(int(found[ranks].sum()), capacity(topology, found)) == best


@settings(max_examples=40)
@given(topologies())
def test_least_cut_is_that_of_all_subsets(topology):
    root, *others = topology.rank_nodes.tolist()
    for backwards in (False, True):
        found = least_cut(Network(topology, backwards=backwards), root, others)
        assert found[root]
        assert not found[others].all()
        sets = [inside for inside in subsets(topology) if inside[root] and not inside[others].all()]
        if backwards:
            assert capacity(topology, ~found) == min(capacity(topology, ~inside) for inside in sets)
        else:
            assert capacity(topology, found) == min(capacity(topology, inside) for inside in sets)


def test_capacities_beyond_32_bits_are_exact():
    topology = machines.line(3, bandwidth="1GB/s", latency="1us")
    wide = machines.TopologyBuilder("wide")
    for name in topology.nodes:
        wide.add_node(name, "gpu")
    odd = 25 * 10**12 + 1
    wide.add_duplex("gpu0", "gpu1", odd, 0, count=3)
    wide.add_duplex("gpu1", "gpu2", 3 * odd - 1, 0)
    machine = wide.build()
    network = Network(machine)
    assert least_cut(network, 0, [2]).tolist() == [True, True, False]
    assert network.capacity(np.array([True, True, False])) == 3 * odd - 1
    assert network.capacity(np.array([True, False, False])) == 3 * odd


def test_common_factors_of_bandwidths_change_no_cut():
    narrow, wide = (machines.torus((3, 3), bandwidth=rate, latency="1us") for rate in ("1B/s", "50GB/s"))
    assert Network(narrow).links == Network(wide).links


@pytest.mark.parametrize(
    ("topology", "count"),
    [
        (machines.ring(7), 1),
        (machines.switch(9), 2),
        (machines.torus((4, 4)), 1),
        (machines.line(6), 3),
        (machines.mesh((3, 3)), 3),
        (machines.fat_tree(16, 4), 3),
    ],
)
def test_classes_follow_the_symmetry(topology, count):
    assert len(set(classes(topology).tolist())) == count


def test_classes_keep_a_special_node_apart():
    topology = machines.bidirectional_ring(6)
    assert len(set(classes(topology, [0]).tolist())) == 4  # by distance from node 0: 0, 1, 2, 3
    assert len(set(classes(machines.ring(6), [0]).tolist())) == 6  # one way round all differ


def masks(sets):
    return [sets.inside(number) for number in range(len(sets))]


def test_candidates_are_modules_islands_and_subtrees():
    topology = machines.rail_optimized(3, 4)
    found = masks(candidate_sets(topology))
    sides = {tuple(inside[topology.rank_nodes].tolist()) for inside in found}
    for node in range(3):
        assert tuple(node * 4 <= r < node * 4 + 4 for r in range(12)) in sides
        module = np.array([name.startswith(f"node[{node}].") for name in topology.nodes])
        assert any(np.array_equal(inside, module) for inside in found)
    for leaf in range(4):  # a rail: the leaf switch, and the GPUs and NICs below it
        assert tuple(r % 4 == leaf for r in range(12)) in sides
    leaves = masks(candidate_sets(machines.fat_tree(16, 4)))
    held = sorted(int(inside[:16].sum()) for inside in leaves)
    assert held == [4, 4, 4, 4]


def test_no_candidate_holds_all_ranks_or_one_and_none_comes_twice():
    for topology in (machines.rail_optimized(2, 4), machines.tree(2, 3), machines.dragonfly(3, 2, 2)):
        found = masks(candidate_sets(topology))
        assert found
        assert len({inside.tobytes() for inside in found}) == len(found)
        for inside in found:
            assert 1 < inside[topology.rank_nodes].sum() < topology.n_ranks


def test_large_machines_have_as_many_candidates_as_there_is_room_for(monkeypatch):
    topology = machines.tree(2, 4, bandwidth="1GB/s")
    held = [int(inside[:16].sum()) for inside in masks(candidate_sets(topology))]
    assert held == [2] * 8 + [4] * 4 + [8] * 2
    monkeypatch.setattr(candidates, "MEMBERS", 16 + 8 * 3 + 4 * 7)
    topology.cache.clear()
    assert [int(inside[:16].sum()) for inside in masks(candidate_sets(topology))] == held[:12]


@settings(max_examples=60, deadline=None)
@given(topologies(), st.data())
def test_sets_are_weighed_all_at_once_as_one_by_one(topology, data):
    n = topology.n_nodes
    sets = [sorted(members) for members in data.draw(st.lists(st.sets(st.integers(0, n - 1), min_size=1), max_size=6))]
    ptr = np.concatenate(([0], np.cumsum([len(members) for members in sets]))).astype(np.int64)
    made = Sets(n, ptr, np.array([node for members in sets for node in members], dtype=np.int64))
    ranks = data.draw(st.integers(2, topology.n_ranks))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "LOOKS", data.draw(st.sampled_from([1, 5, 2**22])))
        out, into = capacities(topology, made)
    for number, inside in enumerate(masks(made)):
        assert out[number] == capacity(topology, inside)
        assert into[number] == capacity(topology, ~inside)
    ones = np.full(ranks, ranks)
    for operation in OPERATIONS:
        root = data.draw(st.integers(0, ranks - 1)) if operation in ("broadcast", "reduce", "gather", "scatter") else 0
        collective = Collective(operation, ranks, root)
        nodes = topology.rank_nodes[:ranks]
        for outside in (False, True):
            sides = [~inside if outside else inside for inside in masks(made)]
            expected = [limits.demand(collective, inside[nodes], ones, ranks**2) for inside in sides]
            assert limits._demands(collective, topology, nodes, made, outside=outside).tolist() == expected


@settings(max_examples=60, deadline=None)
@given(topologies(), st.booleans())
def test_latencies_on_long_ways_are_the_same(topology, backwards):
    start = np.full((2, topology.n_nodes), UNREACHED)
    start[[0, 1], topology.rank_nodes[:2]] = 5, 0
    whole = least_latencies(topology, start, backwards=backwards)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "_ROUNDS", 1)
        assert np.array_equal(least_latencies(topology, start, backwards=backwards), whole)


def test_latencies_pass_ranks_but_no_other_node_that_does_not_forward():
    builder = machines.TopologyBuilder("gates")
    for name, kind in (("a", "gpu"), ("b", "gpu"), ("c", "gpu"), ("x", "nic")):
        builder.add_node(name, kind, forwards=name in ("a", "c"), send_overhead=700_000)
    builder.add_link("a", "b", 10**9, 10**6)
    builder.add_link("b", "c", 10**9, 10**6)
    builder.add_link("a", "x", 10**9, 1)
    builder.add_link("x", "c", 10**9, 1)
    topology = builder.build()
    start = np.full((1, 4), UNREACHED)
    start[0, 0] = 0
    times = least_latencies(topology, start)[0]
    # b does not forward, but it is a rank: it may send the data anew, at the cost of its overhead; x may not
    assert times.tolist() == [0, 10**6, 2 * 10**6 + 700_000, 1]
    end = np.full((1, 4), UNREACHED)
    end[0, 2] = 0
    assert least_latencies(topology, end, backwards=True)[0].tolist() == [2 * 10**6 + 700_000, 1_700_000, 0, UNREACHED]


def relayed(operation, topology, size, network):
    """Some of rank 0's data goes to rank 1 over rank 2 (or over the switch), and some straight."""
    collective = Collective(operation, topology.n_ranks, 0 if operation == "broadcast" else 1)
    layout = ((1, size // 10), (1, 9 * size // 10))
    if topology.n_ranks == 2:
        builder = ScheduleBuilder(
            collective, 2, scratch=1, places=("sw",), layout=((1, size // 10), (1, 9 * size // 10))
        )
        builder.copy(0, 2, 0, dst_buffer="scratch")
        builder.copy(0, 1, 1)
        builder.copy(2, 1, 0, src_buffer="scratch", step=1)
    elif operation == "gather":
        builder = ScheduleBuilder(collective, 6)
        builder.copy(0, 2, 0)
        builder.copy(0, 1, 1)
        builder.copy(2, 1, 4, count=2)
        builder.copy(2, 1, 0, step=1)
    else:
        builder = ScheduleBuilder(collective, 2, layout=layout)
        send = builder.reduce if operation == "reduce" else builder.copy
        send(0, 2, 0)
        send(0, 1, 1)
        send(2, 1, 0, step=1)
        send(2, 1, 1) if operation == "reduce" else send(1, 2, 1, step=1)
    return collsim.simulate(builder.build(), topology, size, network=network)


def star(ranks, rates, latencies):
    """Each rank has a link up to a switch and one down from it; rates in GB/s, latencies in ns."""
    builder = machines.TopologyBuilder("star")
    builder.add_node("sw", "switch")
    wires = iter(zip(rates, latencies, strict=False))
    for rank in range(ranks):
        for ends in ((f"g{rank}", "sw"), ("sw", f"g{rank}")):
            builder.add_node(f"g{rank}", "gpu") if ends[1] == "sw" else None
            rate, latency = next(wires)
            builder.add_link(*ends, rate * G, latency * 1000)
    return builder.build()


@pytest.mark.parametrize(
    ("operation", "ranks", "size", "fluid_bound"),
    [("gather", 3, 120_000, 40), ("reduce", 3, 100_000, 100), ("broadcast", 2, 100_000, 100)],
)
def test_a_flow_pays_its_latency_first(operation, ranks, size, fluid_bound):
    """Rank 0's link is narrow, the one to rank 1 is 10 us long; in fluid what is relayed keeps the narrow one busy."""
    topology = star(ranks, (1, 1, 100, 100, 100, 100), (0, 10_000, 0, 10_000, 0, 0))
    for network, least in (("fluid", fluid_bound), ("cut_through", fluid_bound + 10)):
        result = relayed(operation, topology, size, network)
        assert result.bound == pytest.approx(least * 1e-6, rel=1e-9)
        assert result.bound <= result.time <= 1.01 * result.bound
    # one bound does not stand for the other, though both are kept on the topology
    assert relayed(operation, topology, size, "fluid").bound < result.bound


@settings(max_examples=60, deadline=None)
@given(
    operation=st.sampled_from(["gather", "reduce", "broadcast"]),
    place=st.booleans(),
    rates=st.lists(st.sampled_from([1, 5, 100]), min_size=6, max_size=6),
    latencies=st.lists(st.sampled_from([0, 0, 500, 10_000]), min_size=6, max_size=6),
    network=st.sampled_from(["store_and_forward", "cut_through", "fluid"]),
)
def test_no_relay_beats_the_bound(operation, place, rates, latencies, network):
    place = place and operation == "broadcast"
    result = relayed(operation, star(2 if place else 3, rates, latencies), 120_000, network)
    assert result.bound <= result.time


def test_a_flow_ends_at_no_node_that_is_neither_rank_nor_switch():
    """Behind a NIC the latency of the next link still comes before the first byte; behind a switch it need not."""
    times = {}
    for kind in ("nic", "switch"):
        builder = machines.TopologyBuilder(kind)
        builder.add_node("a", "gpu")
        builder.add_node("b", "gpu")
        builder.add_node("x", kind)
        builder.add_link("a", "x", G, 10**6)
        builder.add_link("x", "b", 100 * G, 5 * 10**6)
        builder.add_link("b", "a", G, 10**6)
        times[kind] = lower_bound(Collective("broadcast", 2), 1_000_000, builder.build(), network="fluid")
    assert times["nic"] == pytest.approx(1006e-6, rel=1e-9)
    assert times["switch"] == pytest.approx(1001e-6, rel=1e-9)
