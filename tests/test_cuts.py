"""Cuts against all subsets and all partitions of small machines, and what relays make of them."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim
import collsim.topology as machines
from collsim.collective import Collective
from collsim.schedule import ScheduleBuilder
from collsim.theory import candidates, lower_bound, paths, search
from collsim.theory.candidates import Sets, candidate_sets, capacities
from collsim.theory.cuts import demand, leaving, offers_of
from collsim.theory.lengths import distance_of
from collsim.theory.limits import limits_of
from collsim.theory.paths import UNREACHED, least_latencies
from collsim.theory.search import demands, worst_sets

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


def ranks_of(collective, topology):
    return topology.rank_nodes[: collective.ranks]


def ratio(collective, topology, inside):
    """Bytes that must leave a set for a buffer of one byte a rank, over what its links carry in a second."""
    volume = demand(
        collective, inside[ranks_of(collective, topology)], np.ones(collective.ranks, dtype=int), collective.ranks
    )
    return Fraction(volume, capacity(topology, inside)) if volume else Fraction(0)


BY_FLOW = ("all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_reduce")


def a_collective(data, topology):
    operation = data.draw(st.sampled_from(BY_FLOW))
    ranks = data.draw(st.integers(2, topology.n_ranks))
    rooted = operation in ("broadcast", "reduce", "gather", "scatter")
    return Collective(operation, ranks, data.draw(st.integers(0, ranks - 1)) if rooted else 0)


@settings(max_examples=150, deadline=None)
@given(topologies(), st.data())
def test_the_worst_set_is_that_of_all_subsets(topology, data):
    collective = a_collective(data, topology)
    limit = limits_of(collective, topology, "cut_through")
    worst = max(ratio(collective, topology, inside) for inside in subsets(topology))
    ones = np.ones(collective.ranks, dtype=int)
    cuts = [cut for cut in limit.cuts if cut.demand(collective, ones, collective.ranks)]
    assert Fraction(cuts[0].demand(collective, ones, collective.ranks), cuts[0].capacity) == worst
    assert cuts[0].method == "by maximum flow"
    for cut in cuts:
        assert ratio(collective, topology, cut.nodes) == Fraction(
            cut.demand(collective, ones, collective.ranks), cut.capacity
        )
        assert cut.links.tolist() == leaving(topology, cut.nodes).tolist()


@pytest.mark.parametrize(
    ("topology", "root", "method"),
    [
        (machines.ring(7), None, "by maximum flow, for one GPU as all are alike"),
        (machines.switch(9), 0, "by maximum flow, for one GPU as all others are alike"),
        (machines.line(6), None, "by maximum flow, one GPU of each of 3 kinds"),
        (machines.mesh((3, 3)), None, "by maximum flow, one GPU of each of 3 kinds"),
        (machines.fat_tree(16, 4), 0, "by maximum flow, one GPU of each of 2 kinds"),
        (machines.bidirectional_ring(6), 0, "by maximum flow, one GPU of each of 3 kinds"),  # by distance from rank 0
        (machines.ring(9), 0, "by maximum flow, tried for 4 of 8 GPUs"),  # one way round all differ
    ],
)
def test_one_rank_of_each_kind_is_searched_and_said_so(topology, root, method, monkeypatch):
    collective = Collective("all_gather" if root is None else "broadcast", topology.n_ranks)
    links = np.arange(topology.n_links)
    exact, how = worst_sets(collective, topology, topology.rank_nodes, links)
    assert how == "by maximum flow"
    monkeypatch.setattr(search, "ALL", 0)
    monkeypatch.setattr(search, "SINKS", dict.fromkeys(search.SINKS, 4 * topology.n_links))
    topology.cache.clear()
    sets, how = worst_sets(collective, topology, topology.rank_nodes, links)
    assert how == method
    assert ratio(collective, topology, sets[0]) == ratio(collective, topology, exact[0])


def test_ranks_that_are_no_gpus_are_called_ranks(monkeypatch):
    builder = machines.TopologyBuilder("hosts")
    for name in "abc":
        builder.add_node(name, "host")
    for a, b in ("ab", "bc", "ca"):
        builder.add_duplex(a, b, G, 0)
    topology = builder.build(ranks=["a", "b", "c"])
    monkeypatch.setattr(search, "ALL", 0)
    bound = lower_bound(Collective("all_gather", 3), 3 * 10**6, topology)
    assert bound.method == "by maximum flow, for one rank as all are alike"


def partitions(items):
    """All partitions of a list."""
    if not items:
        yield []
        return
    for rest in partitions(items[1:]):
        for i in range(len(rest)):
            yield [*rest[:i], [items[0], *rest[i]], *rest[i + 1 :]]
        yield [[items[0]], *rest]


def labels(topology, collective):
    """All ways to put the ranks into two parts or more, and each other node into one of them or none."""
    ranks = ranks_of(collective, topology).tolist()
    others = [node for node in range(topology.n_nodes) if node not in ranks]
    for parts in partitions(ranks):
        if len(parts) < 2:
            continue
        label = np.full(topology.n_nodes, -1)
        for number, part in enumerate(parts):
            label[part] = number
        for chosen in product(range(-1, len(parts)), repeat=len(others)):
            label[others] = chosen
            yield len(parts), label.copy()


@settings(max_examples=60, deadline=None)
@given(topologies(4), st.sampled_from(["all_reduce", "broadcast"]), st.data())
def test_no_cut_into_parts_is_worse_than_the_worst_of_all_partitions(topology, operation, data):
    collective = Collective(operation, data.draw(st.integers(2, topology.n_ranks)))
    found = limits_of(collective, topology, "cut_through").parts
    assert {cut.into for cut in found} == {False, True}
    bandwidth = topology.link_bandwidth
    for into in (False, True):
        best = Fraction(0)
        for count, label in labels(topology, collective):
            tail, head = label[topology.link_src], label[topology.link_dst]
            crossing = (tail != head) & ((head if into else tail) >= 0)
            best = max(best, Fraction(count - 1, int(bandwidth[crossing].sum())))
        (cut,) = (cut for cut in found if cut.into == into)
        assert not cut.ranks_only
        part = cut.parts
        tail, head = part[topology.link_src], part[topology.link_dst]
        assert cut.links.tolist() == np.flatnonzero((tail != head) & ((head if into else tail) >= 0)).tolist()
        assert cut.capacity == int(bandwidth[cut.links].sum())
        assert len(set(part[ranks_of(collective, topology)].tolist())) == cut.part_count
        assert Fraction(cut.part_count - 1, cut.capacity) <= best


def named(counts, rate=G, *, fabric=G, **switch):
    """Nodes of GPUs on a switch each; NICs join the GPUs to another switch."""
    builder = machines.TopologyBuilder("named")
    builder.add_node("fabric", "switch")
    for node, count in enumerate(counts):
        builder.add_node(f"node[{node}].sw", "switch", **switch)
        for gpu in range(count):
            builder.add_node(f"node[{node}].gpu[{gpu}]", "gpu")
            builder.add_node(f"node[{node}].nic[{gpu}]", "nic")
            builder.add_duplex(f"node[{node}].gpu[{gpu}]", f"node[{node}].sw", rate, 0)
            builder.add_duplex(f"node[{node}].gpu[{gpu}]", f"node[{node}].nic[{gpu}]", 2 * fabric, 0)
            builder.add_duplex(f"node[{node}].nic[{gpu}]", "fabric", fabric, 0)
    return builder.build()


def test_parts_are_nodes_of_a_cluster_and_adapters_go_with_their_gpus():
    topology = named([4, 4, 4], rate=10 * G)
    size = 12 * 10**6
    bound = lower_bound(Collective("all_reduce", 12), size, topology)
    # 2 (3 - 1) S over three nodes of 4 GB/s; the GPUs alone would make it 22 S / (12 * 11) GB/s
    assert bound == pytest.approx(4 * size / (12 * G), rel=1e-12)
    assert bound.reason == (
        "cut: between node[0] and 2 other parts, 12GB/s in all (best of 8 partitions that were tried)"
    )
    assert bound.binding.part_count == 3
    # with less inside it is the GPUs, with their NICs: 1 GB/s is less than the 2 GB/s of the link to the NIC
    slow = lower_bound(Collective("all_reduce", 12), size, named([4, 4, 4], rate=G // 10))
    assert slow == pytest.approx(22 * size / (12 * 11 * G // 10), rel=1e-12)
    assert slow.reason == "injection: all 12 ranks together at 13.2GB/s"


def test_switches_that_take_part_count_as_ranks_inside_a_part_and_spoil_it_outside():
    size = 12 * 10**6
    collective = Collective("all_reduce", 12)
    inside = lower_bound(collective, size, named([4, 4, 4], rate=10 * G, reduces=True, multicasts=True))
    assert inside == pytest.approx(4 * size / (12 * G), rel=1e-12)
    assert inside.without_switches == inside
    helped = lower_bound(collective, size, named([4, 4, 4], rate=G // 10, reduces=True, multicasts=True))
    assert helped == pytest.approx(size / (11 * G // 10), rel=1e-12)  # the cut around one GPU
    assert helped.without_switches == pytest.approx(22 * size / (12 * 11 * G // 10), rel=1e-12)


def test_a_switch_that_only_multicasts_does_not_spare_links_into_parts():
    size = 8 * 10**6
    for reduces, multicasts, share in ((False, True, 14 / 8), (True, False, 1), (True, True, 1)):
        topology = machines.switch(8, bandwidth="1GB/s", latency=0, reduces=reduces, multicasts=multicasts)
        bound = lower_bound(Collective("all_reduce", 8), size, topology)
        assert bound == pytest.approx(share * size / G, rel=1e-12)
        assert bound.without_switches == pytest.approx(14 / 8 * size / G, rel=1e-12)


def test_ranks_must_send_what_a_switch_cannot_copy():
    """A switch that has more bandwidth out than in: the cut allows S in a second, the ranks send it twice."""
    for multicasts in (False, True):
        builder = machines.TopologyBuilder("funnel")
        builder.add_node("sw", "switch", multicasts=multicasts)
        for name in "abc":
            builder.add_node(name, "gpu")
            builder.add_link("sw", name, G, 0)
        builder.add_link("a", "sw", G, 0)
        builder.add_link("b", "a", 1, 0)
        builder.add_link("c", "a", 1, 0)
        bound = lower_bound(Collective("broadcast", 3), 10**6, builder.build())
        assert bound == pytest.approx(1e-3 if multicasts else 2e-3, rel=1e-8)
        assert bound.without_switches == pytest.approx(2e-3, rel=1e-8)


def test_ranks_join_where_they_share_the_most():
    """A ring with one wide link: with its ends as one part there is a message less to count, and no wide link."""
    builder = machines.TopologyBuilder("wide")
    for name in "abcdef":
        builder.add_node(name, "gpu")
    for a, b in ("ab", "bc", "cd", "de", "ef", "fa"):
        builder.add_duplex(a, b, (9 if a == "c" else 1) * G, 0)
    bound = lower_bound(Collective("all_reduce", 6), 10**6, builder.build())
    assert bound == pytest.approx(8 * 10**6 / (10 * G), rel=1e-12)  # 10 messages over 28 GB/s would be less
    assert bound.binding.part_count == 5
    assert bound.reason == "cut: between a and 4 other parts, 10GB/s in all (best of 8 partitions that were tried)"


@pytest.mark.parametrize(
    ("topology", "rate"),
    [
        (machines.ring(6, bandwidth="1GB/s"), 6 * 6 * 1 / (6 * 15)),  # 15 links from a rank to all others
        (machines.bidirectional_ring(6, bandwidth="1GB/s"), 6 * 12 / (6 * 9)),
        (machines.fully_connected(5, bandwidth="1GB/s"), 5.0),
        (machines.torus((4, 4), bandwidth="1GB/s"), 16 * 64 / (16 * 32)),
        (machines.torus((2, 8), bandwidth="1GB/s"), 16 * 4 / (8 * 8)),  # four links from one half to the other
    ],
)
@pytest.mark.parametrize("exact", [False, True])
def test_all_to_all_on_machines_of_known_limits(topology, rate, exact):
    ranks = topology.n_ranks
    bound = lower_bound(Collective("all_to_all", ranks), ranks * 10**6, topology, exact=exact)
    assert bound.rate == pytest.approx(rate * G, rel=1e-9)
    if exact:
        assert bound.method == "by a linear program"
    else:
        assert re.fullmatch(r"best of \d+ cuts that were tried", bound.method)


def test_a_send_recv_on_a_line_counts_the_way_back():
    topology = machines.line(4, bandwidth="1GB/s", latency=0)
    bound = lower_bound(Collective("send_recv", 4), 10**6, topology)
    assert bound == pytest.approx(10**6 / G, rel=1e-12)
    ring = machines.ring(4, bandwidth="1GB/s", latency=0)
    turned = [ring.ranks[rank] for rank in (0, 2, 1, 3)]
    builder = machines.TopologyBuilder("turned")
    for name in turned:
        builder.add_node(name, "gpu")
    for i in range(4):
        builder.add_link(ring.ranks[i], ring.ranks[(i + 1) % 4], G, 0)
    # 0 -> 2 -> 1 -> 3 -> 0 are 2, 3, 2 and 1 links on four of 1 GB/s
    bound = lower_bound(Collective("send_recv", 4), 10**6, builder.build())
    assert bound == pytest.approx(8 * 10**6 / (4 * G), rel=1e-12)
    assert "over 4 links by the distances between ranks" in bound.reason


@settings(max_examples=40, deadline=None)
@given(topologies())
def test_no_set_of_nodes_bounds_an_all_to_all_better_than_the_best_lengths(topology):
    collective = Collective("all_to_all", topology.n_ranks)
    size = 10**6 * topology.n_ranks
    exact, tried = (lower_bound(collective, size, topology, exact=flag).rate for flag in (True, False))
    worst = max(ratio(collective, topology, inside) for inside in subsets(topology))
    assert exact <= tried * (1 + 1e-9)
    assert exact <= float(topology.n_ranks / worst) * (1 + 2e-6)


@settings(max_examples=40, deadline=None)
@given(topologies(), st.data())
def test_distances_are_those_of_the_shortest_ways(topology, data):
    import networkx as nx

    links = np.arange(topology.n_links)
    lengths = np.array(data.draw(st.lists(st.integers(0, 9), min_size=topology.n_links, max_size=topology.n_links)))
    graph = nx.DiGraph()
    for link in links.tolist():
        src, dst = int(topology.link_src[link]), int(topology.link_dst[link])
        old = graph.get_edge_data(src, dst, {"weight": 10})["weight"]
        graph.add_edge(src, dst, weight=min(old, int(lengths[link])))
    away = dict(nx.all_pairs_dijkstra_path_length(graph))
    ranks = topology.rank_nodes.tolist()
    for operation, pairs in (
        ("all_to_all", [(a, b) for a in ranks for b in ranks]),
        ("send_recv", list(zip(ranks, [*ranks[1:], ranks[0]], strict=True))),
    ):
        expected = sum(away[a][b] for a, b in pairs)
        collective = Collective(operation, len(ranks))
        assert distance_of(topology, topology.rank_nodes, links, lengths, collective) == expected


def test_sums_of_wide_links_are_exact():
    builder = machines.TopologyBuilder("wide")
    for name in "ab":
        builder.add_node(name, "gpu")
    rate = 2**43 - 1
    builder.add_duplex("a", "b", rate, 0, count=5)
    topology = builder.build()
    links = np.flatnonzero(topology.link_src == 0)
    assert offers_of(topology, links, np.zeros(10, dtype=int)) == ((0, 5 * rate),)
    lengths = np.full(5, 2**40)
    assert offers_of(topology, links, np.zeros(10, dtype=int), lengths) == ((0, 5 * rate * 2**40),)


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
            expected = [demand(collective, inside[nodes], ones, ranks**2) for inside in sides]
            assert demands(collective, topology, nodes, made, outside=outside).tolist() == expected


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
