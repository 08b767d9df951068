"""Machines of many thousand GPUs: what is done past hubs is what is done node by node, and it stays small."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim.topology as t
from collsim import Collective, algorithms, check
from collsim.schedule import order
from collsim.theory import lower_bound, predict
from collsim.topology import TopologyBuilder, hubs, routing
from collsim.topology.search import adjacency, distances, into, out_of


def pairs(topology, count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, topology.n_ranks, count), rng.integers(0, topology.n_ranks, count), rng.integers(0, 4, count)


def pairwise(topology, monkeypatch, src, dst, channel, **settings):
    """Routes with a search for each pair, from both ends and past hubs."""
    with monkeypatch.context() as patch:
        patch.setattr(routing, "WHOLE", -1)
        patch.setattr(routing, "MANY", len(src) + 1)
        for name, value in settings.items():
            patch.setattr(routing if hasattr(routing, name) else hubs, name, value)
        topology.cache.clear()
        return topology.routes(src, dst, channel)


MACHINES = {
    "rails": lambda: t.rail_optimized(64, 4),
    "narrow rails": lambda: t.rail_optimized(48, 2, oversubscription=4, spines=3),
    "fat tree": lambda: t.fat_tree(128, 16, oversubscription=2),
    "dragonfly": lambda: t.dragonfly(9, 4, 2),
    "switch": lambda: t.switch(64),
    "tree": lambda: t.tree(4, 3),
    "shipped": lambda: t.load_topology("dgx-h100-x4"),
}


@pytest.mark.parametrize("degree", [3, 8, 40, 10**6])
@pytest.mark.parametrize("name", MACHINES)
def test_routes_past_hubs_are_those_from_every_destination(name, degree, monkeypatch):
    topology = MACHINES[name]()
    src, dst, channel = pairs(topology, 600)
    ptr, links = topology.routes(src, dst, channel)
    for batch in (4096, 7):
        found = pairwise(topology, monkeypatch, src, dst, channel, DEGREE=degree, BATCH=batch)
        assert np.array_equal(found[0], ptr)
        assert np.array_equal(found[1], links)
        assert (hubs.hubs_of(topology) is None) == (np.diff(adjacency(topology).out_ptr).max() < degree)


@st.composite
def clusters(draw):
    """Nodes of GPUs on switches with links of different widths, some of them parallel, some of one direction."""
    builder = TopologyBuilder("cluster")
    width = st.integers(1, 3)
    switches = [f"sw{i}" for i in range(draw(st.integers(1, 4)))]
    for switch in switches:
        builder.add_node(switch, "switch", forwards=draw(st.sampled_from([True, True, True, False])))
    nodes = draw(st.integers(2, 5))
    forwards = draw(st.booleans())
    for node in range(nodes):
        names = [f"node[{node}].gpu[{g}]" for g in range(draw(st.integers(1, 3)))]
        for name in names:
            builder.add_node(name, forwards=forwards)
            for _ in range(draw(st.integers(1, 2))):
                builder.add_duplex(name, draw(st.sampled_from(switches)), draw(width), 1, count=draw(width))
        for one, other in itertools.pairwise(names):
            builder.add_duplex(one, other, draw(width), 1)
    for one, other in itertools.pairwise(switches):
        add = draw(st.sampled_from([builder.add_duplex, builder.add_duplex, builder.add_link]))
        for _ in range(draw(st.integers(1, 2))):
            add(one, other, draw(width), 1, count=draw(width))
    return builder.build()


@settings(deadline=None, max_examples=250)
@given(clusters(), st.sampled_from([2, 3, 4, 6]), st.sampled_from([1, 4096]), st.integers(0, 3))
def test_any_node_may_be_a_hub(topology, degree, batch, channel):
    everyone = np.arange(topology.n_nodes)
    hops = distances(topology, everyone)
    dst, src = np.nonzero(hops > 0)
    ptr, links = topology.route_nodes(src, dst, channel)
    assert np.diff(ptr).tolist() == hops[dst, src].tolist()
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in (
            (routing, "WHOLE", -1), (routing, "MANY", 10**6), (routing, "BATCH", batch), (hubs, "DEGREE", degree),
        ):  # fmt: skip
            patch.setattr(module, name, value)
        topology.cache.clear()
        again = topology.route_nodes(src, dst, channel)
    assert np.array_equal(again[0], ptr)
    assert np.array_equal(again[1], links)


def test_batches_that_look_at_too_much_are_halved(monkeypatch):
    topology = t.rail_optimized(32, 4)
    src, dst, channel = pairs(topology, 300)
    ptr, links = topology.routes(src, dst, channel)
    monkeypatch.setattr(routing, "STATES", 20)
    monkeypatch.setattr(hubs, "LISTED", 3)
    found = pairwise(topology, monkeypatch, src, dst, channel, DEGREE=16)
    assert np.array_equal(found[0], ptr)
    assert np.array_equal(found[1], links)


def test_too_many_links_of_hubs_are_not_written_out(monkeypatch):
    monkeypatch.setattr(hubs, "DEGREE", 16)
    topology = t.fat_tree(64, 16)  # each leaf has 16 links up, to 16 spines
    graph, known = adjacency(topology), hubs.hubs_of(topology)
    src, dst = np.array([0, 1]), np.array([40, 50])
    assert hubs.around(graph, known, src, dst, 31) is None
    tight = hubs.around(graph, known, src, dst, 32)
    assert len(tight.keys) == 2 * (1 + 16 + 16 + 1)


def test_the_largest_hubs_are_kept_where_there_is_no_room_for_all(monkeypatch):
    topology = t.rail_optimized(40, 4)
    src, dst, channel = pairs(topology, 300)
    expected = topology.routes(src, dst, channel)[1]
    room = 2 * topology.n_nodes
    found = pairwise(topology, monkeypatch, src, dst, channel, DEGREE=4, FIELDS=room)
    assert np.array_equal(found[1], expected)
    kept = np.flatnonzero(hubs.hubs_of(topology).number >= 0)
    assert [topology.nodes[node] for node in kept] == ["leaf0", "leaf1"]


def test_ways_too_long_for_short_numbers_have_no_hubs(monkeypatch):
    monkeypatch.setattr(hubs, "FAR", 6)
    topology = t.line(8)
    src, dst, channel = pairs(topology, 60)
    expected = topology.routes(src, dst, channel)[1]
    assert np.array_equal(pairwise(topology, monkeypatch, src, dst, channel, DEGREE=2)[1], expected)
    assert hubs.hubs_of(topology) is None


def test_parallel_links_of_one_bandwidth_are_looked_at_once():
    topology = t.rail_optimized(1024, 2)
    graph = adjacency(topology)
    leaf = topology.node_index("leaf0")
    assert np.count_nonzero(topology.link_src == leaf) == 2048
    assert len(out_of(graph, np.array([leaf]))[1]) == len(into(graph, np.array([leaf]))[1]) == 1024 + 2


@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.lists(
    st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40
))))  # fmt: skip
def test_components(case):
    n, links = case
    src, dst = np.array([*links, (0, 0)]).T
    least = list(range(n))
    for _ in range(n):
        for a, b in links:
            least[a] = least[b] = min(least[a], least[b])
    assert hubs.components(n, src, dst).tolist() == least


@pytest.fixture(scope="module")
def cluster():
    return t.rail_optimized(4096, 4)  # 16,384 GPUs on leaf switches of over 4,000 ports


def memory(function, *arguments):
    """Most megabytes held at once by a call, and what it returns."""
    tracemalloc.start()
    try:
        result = function(*arguments)
        return tracemalloc.get_traced_memory()[1] / 2**20, result
    finally:
        tracemalloc.stop()


def test_a_ring_on_a_large_cluster(cluster):
    used, ranks = memory(cluster.ring_order)
    assert used < 200
    assert ranks[:12] == (0, 1, 2, 3, 7, 6, 5, 4, 8, 9, 10, 11)
    ring = np.array(ranks)
    used, (ptr, links) = memory(cluster.routes, ring, np.roll(ring, -1))
    assert used < 200
    assert ptr[-1] == 4096 * (3 * 2 + 4)
    assert len(np.unique(links)) == len(links)  # no link is shared


def test_pairs_that_cross_rails_on_a_large_cluster(cluster):
    last = np.arange(3, cluster.n_ranks, 4)
    used, (ptr, links) = memory(cluster.routes, last, (last + 1) % cluster.n_ranks)
    assert used < 200
    assert set(np.diff(ptr).tolist()) == {6}
    hops = links.reshape(-1, 6)
    assert np.array_equal(cluster.link_src[hops[:, 0]], cluster.rank_nodes[last])
    assert np.array_equal(cluster.link_dst[hops[:, :-1]], cluster.link_src[hops[:, 1:]])
    assert np.array_equal(cluster.link_dst[hops[:, -1]], cluster.rank_nodes[(last + 1) % cluster.n_ranks])


def test_random_pairs_of_large_machines_have_routes_of_the_right_length(cluster):
    for topology in (cluster, t.fat_tree(16384, 8), t.dragonfly(65, 16, 8)):
        src, dst, channel = pairs(topology, 300)
        ptr, links = topology.routes(src, dst, channel)
        few = np.arange(0, 300, 60)
        hops = distances(topology, topology.rank_nodes[dst[few]])
        assert np.diff(ptr)[few].tolist() == hops[np.arange(len(few)), topology.rank_nodes[src[few]]].tolist()
        for row in np.flatnonzero(np.diff(ptr)).tolist():
            way = links[ptr[row] : ptr[row + 1]]
            assert topology.link_src[way[0]] == topology.rank_nodes[src[row]]
            assert topology.link_dst[way[-1]] == topology.rank_nodes[dst[row]]
            assert np.array_equal(topology.link_dst[way[:-1]], topology.link_src[way[1:]])


def test_words_and_values_of_a_large_cluster(cluster):
    assert repr(cluster) == (
        "<Topology 'rail_optimized': 16,384 ranks, 36,872 nodes, 131,072 links of 50GB/s to 450GB/s>"
    )
    used, text = memory(cluster.describe)
    assert used < 300
    assert "  diameter   6 hops at least (from all to 99 ranks)" in text.splitlines()
    assert "16,384: node[0].gpu[0] to node[4095].gpu[3]" in text
    assert cluster == t.rail_optimized(4096, 4)
    assert cluster != t.rail_optimized(4096, 4, nic_latency="1us")


def test_the_bound_of_a_large_cluster(cluster):
    collective = Collective("all_gather", cluster.n_ranks)
    size = cluster.n_ranks * 10**5
    used, bound = memory(lower_bound, collective, size, cluster)
    assert used < 500
    # what a node lacks comes in over its four adapters; at the least six links of 500 ns, of which the NIC's is one
    into_node = (4096 - 1) * 4 * 10**5 / (4 * 50e9)
    assert bound.cut == pytest.approx(into_node, rel=1e-3)
    assert bound.cut >= into_node
    assert bound.reason == (
        "cut: into node[0]: leaf -> nic, 4 x 50GB/s for the 16,380 GPUs outside "
        "(by maximum flow, for one GPU as all are alike)"
    )
    assert bound.latency == pytest.approx(3e-6)


def test_the_theory_of_a_large_cluster(cluster):
    ring = np.array(cluster.ring_order())
    collective = Collective("all_reduce", cluster.n_ranks)
    size = cluster.n_ranks * 10**6
    used, prediction = memory(predict, "ring", collective, size, cluster, (ring, np.roll(ring, -1)))
    assert used < 300
    hop = 2e-6 + 10**6 / 50e9
    assert prediction == pytest.approx(2 * (cluster.n_ranks - 1) * hop)
    assert "pairs differ in latency, the slowest is taken" in prediction.why
    assert "shared by" not in prediction.why


def test_theory_names_the_first_link_that_pairs_share():
    topology = t.rail_optimized(16, 4, spines=1, oversubscription=16)
    ring = np.arange(64)
    prediction = predict("ring", Collective("all_reduce", 64), 64000, topology, (ring, np.roll(ring, -1)))
    assert "link leaf3->spine0 is shared by 8 pairs that talk" in prediction.why


def test_the_first_link_is_the_one_of_the_first_pair():
    builder = TopologyBuilder("two trunks")
    for rank in range(8):
        builder.add_node(f"gpu{rank}")
    for switch in "pqrs":
        builder.add_node(switch, "switch")
    builder.add_link("p", "q", 10**9, 1)  # the lower number
    builder.add_link("r", "s", 10**9, 1)
    for rank, switch in enumerate("rrppqqss"):
        builder.add_duplex(f"gpu{rank}", switch, 10**9, 1)
    pairs = (np.array([3, 0, 2, 1]), np.array([4, 6, 5, 7]))
    prediction = predict("ring", Collective("all_reduce", 8), 8000, builder.build(), pairs)
    assert prediction.why == "link r->s is shared by 2 pairs that talk"


def test_a_chain_of_a_thousand_ranks_has_its_latency():
    assert lower_bound(Collective("broadcast", 1000), 1, t.line(1000, latency="1us")).latency == pytest.approx(999e-6)
    one_way = lower_bound(Collective("all_reduce", 1500), 1, t.ring(1500, latency="1us"))
    assert one_way.latency == pytest.approx(1499e-6)


def test_a_ring_of_many_ranks_is_proven_in_little_memory():
    schedule = algorithms.ring_all_reduce(16_384)
    used, proof = memory(check, schedule)
    assert used < 64
    assert str(proof) == "checked: 64 of 16,384 chunks"
    assert proof.moves == 64 * 2 * 16_383


def test_a_block_that_is_run_once_is_proven_step_by_step(monkeypatch):
    monkeypatch.setattr(order, "MAX_TRANSFERS", 1000)  # writes are not searched for an order that is in doubt
    schedule = algorithms.build("all_reduce", "double_binary_tree", 4096, slices=16)
    rows = sum(len(phase.block) for phase in schedule.phases)
    used, proof = memory(check, schedule)
    assert proof.complete
    assert proof.moves == rows == 2 * 2 * 4095 * 16
    assert used < 20  # not more than some numbers a row
