from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim.topology as t
from collsim.topology import TopologyBuilder, load_topology, shipped

NVLINKS = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip


def along_links(topology, order):
    pairs = zip(order, (*order[1:], order[0]), strict=True)
    return all(topology.links_between(topology.ranks[a], topology.ranks[b]) for a, b in pairs)


def machine(n, links, names=None):
    builder = TopologyBuilder("made")
    names = names or [f"gpu{i}" for i in range(n)]
    for name in names:
        builder.add_node(name)
    for (a, b), count in links.items():
        builder.add_duplex(names[a], names[b], 25 * 10**9, 1, count=count)
    return builder.build()


def test_dgx1_takes_the_double_links():
    topology = machine(8, NVLINKS)
    order = topology.ring_order()
    assert order == (0, 3, 2, 1, 5, 6, 7, 4)
    widths = [NVLINKS[min(a, b), max(a, b)] for a, b in zip(order, (*order[1:], order[0]), strict=True)]
    assert widths == [2] * 8


def test_single_links_are_taken_where_double_ones_make_no_cycle():
    links = {(0, 2): 2, (2, 1): 2, (1, 3): 2, (3, 0): 1, (0, 1): 1}
    assert machine(4, links).ring_order() == (0, 2, 1, 3)


@pytest.mark.parametrize("generator", [t.torus, t.mesh])
@pytest.mark.parametrize("dims", [d for k in (1, 2, 3) for d in itertools.product((1, 2, 3, 4, 5), repeat=k)])
def test_grids_have_a_cycle_wherever_there_can_be_one(generator, dims):
    topology = generator(dims)
    order = topology.ring_order()
    assert sorted(order) == list(range(topology.n_ranks))
    real = [size for size in dims if size > 1]
    possible = generator is t.torus or (len(real) > 1 and any(size % 2 == 0 for size in real))
    if topology.n_ranks > 2:
        assert along_links(topology, order) == possible


@pytest.mark.parametrize("dims", [(3, 3, 3, 3), (7, 3, 5), (9, 11), (2, 2, 2, 2, 2), (16, 16)])
def test_larger_tori(dims):
    topology = t.torus(dims)
    assert along_links(topology, topology.ring_order())


@pytest.mark.parametrize("dimension", range(2, 9))
def test_hypercubes(dimension):
    topology = t.hypercube(dimension)
    assert along_links(topology, topology.ring_order())


@pytest.mark.parametrize(
    "topology",
    [
        t.ring(8),
        t.bidirectional_ring(7),
        t.line(6),
        t.fully_connected(8),
        t.switch(8),
        t.tree(2, 3),
        t.fat_tree(16, 4),
        t.rail_optimized(1, 4),
        t.rail_optimized(6, 1),
        t.ring(1),
        t.ring(2),
    ],
)
def test_file_order_is_kept_where_it_is_good_already(topology):
    assert topology.ring_order() == tuple(range(topology.n_ranks))


def hops(topology, order):
    ranks = np.array(order)
    return int(topology.routes(ranks, np.roll(ranks, -1))[0][-1])


@pytest.mark.parametrize("gpus", [2, 3, 8])
@pytest.mark.parametrize("nodes", [2, 3, 4, 7, 8])
def test_every_other_node_is_gone_through_backwards_on_rails(nodes, gpus):
    topology = t.rail_optimized(nodes, gpus)
    forwards = list(range(gpus))
    expected = [node * gpus + gpu for node in range(nodes) for gpu in (forwards[::-1] if node % 2 else forwards)]
    assert topology.ring_order() == tuple(expected)
    ranks = np.array(expected)
    ptr, _ = topology.routes(ranks, np.roll(ranks, -1))
    between_nodes = np.diff(ptr)[gpus - 1 :: gpus].tolist()
    # all on a rail but, with an odd number of nodes, the last
    assert between_nodes[:-1] == [4] * (nodes - 1)
    assert between_nodes[-1] == (6 if nodes % 2 else 4)


def test_the_shipped_cluster_on_rails_has_no_hop_over_the_spine():
    topology = load_topology("dgx-h100-x4")
    order = topology.ring_order()
    assert order == (*range(8), *range(15, 7, -1), *range(16, 24), *range(31, 23, -1))
    spine = topology.node_index("spine")
    ranks = np.array(order)
    _, links = topology.routes(ranks, np.roll(ranks, -1))
    assert spine not in topology.link_dst[links]
    assert (hops(topology, order), hops(topology, range(32))) == (72, 80)
    # with one switch between the nodes every port is as near as every other
    assert load_topology("dgx-a100-x2").ring_order() == tuple(range(16))


def test_groups_of_a_dragonfly_are_turned_to_where_their_links_are():
    topology = t.dragonfly(9, 4, 2)
    order = topology.ring_order()
    assert hops(topology, order) < hops(topology, range(72))
    # the last router of a group has the link from the group before
    assert len(topology.route(order[7], order[8])) == 3


@pytest.mark.parametrize(
    "topology",
    [
        *(load_topology(name) for name in shipped()),
        *(t.rail_optimized(nodes, gpus) for nodes in (1, 2, 3, 6) for gpus in (1, 2, 5)),
        *(t.dragonfly(*sizes) for sizes in ((4, 2, 2), (5, 2, 1), (9, 4, 2), (2, 3, 3))),
        t.fat_tree(32, 4, spines=2, oversubscription=2),
        t.tree(3, 3),
    ],
    ids=lambda topology: f"{topology.name}-{topology.n_ranks}",
)
def test_never_longer_than_in_file_order(topology):
    assert hops(topology, topology.ring_order()) <= hops(topology, range(topology.n_ranks))


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_no_other_way_through_the_modules_is_shorter(data):
    """Modules on random networks, also with links of one direction and routes given in the file."""
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    names = [f"node[{i}].gpu[{g}]" for i, size in enumerate(sizes) for g in range(size)]
    builder = TopologyBuilder("random")
    for name in names:
        builder.add_node(name)
    switches = [f"sw{i}" for i in range(data.draw(st.integers(1, 3)))]
    for i, switch in enumerate(switches):
        builder.add_node(switch, "switch")
        if i:
            builder.add_duplex(switches[i - 1], switch, 1, 1)
    for name in names:
        out, back = (data.draw(st.sampled_from(switches)) for _ in range(2))
        builder.add_link(name, out, 1, 1)
        builder.add_link(back, name, 1, 1)
    topology = builder.build()
    if data.draw(st.booleans()):  # a detour
        way = [topology.link_name(link) for link in topology.route(len(names) - 1, 0)]
        topology = builder.build(routes={(names[-1], names[0]): way})
    order = topology.ring_order()
    starts = np.cumsum([0, *sizes])
    modules = [list(range(a, b)) for a, b in itertools.pairwise(starts.tolist())]
    ways = [
        hops(topology, [rank for module, step in zip(modules, steps, strict=True) for rank in module[::step]])
        for steps in itertools.product((1, -1), repeat=len(modules))
    ]
    assert hops(topology, order) == min(ways)
    if ways[0] == min(ways) == max(ways):
        assert order == tuple(range(len(names)))


def test_modules_without_a_route_between_them_are_left_as_they_are():
    builder = TopologyBuilder("apart")
    for node in range(2):
        builder.add_node(f"sw{node}", "switch")
        for gpu in range(2):
            builder.add_node(f"node[{node}].gpu[{gpu}]")
            builder.add_duplex(f"node[{node}].gpu[{gpu}]", f"sw{node}", 1, 1)
    assert builder.build().ring_order() == (0, 1, 2, 3)


def test_modules_are_kept_together():
    builder = TopologyBuilder("mixed")
    names = ["node[1].gpu[0]", "node[0].gpu[0]", "node[1].gpu[1]", "node[0].gpu[1]"]
    builder.add_node("sw", "switch")
    for name in names:
        builder.add_node(name)
        builder.add_duplex(name, "sw", 1, 1)
    assert builder.build().ring_order() == (0, 2, 1, 3)


def test_modules_with_links_inside_have_a_cycle_each():
    names = [f"node[{i}].gpu[{g}]" for i in range(2) for g in range(8)]
    builder = TopologyBuilder("two")
    builder.add_node("sw", "switch")
    for name in names:
        builder.add_node(name)
        builder.add_duplex(name, "sw", 10**9, 1)
    for node in range(2):
        for (a, b), count in NVLINKS.items():
            builder.add_duplex(names[8 * node + a], names[8 * node + b], 25 * 10**9, 1, count=count)
    cycle = (0, 3, 2, 1, 5, 6, 7, 4)
    assert builder.build().ring_order() == (*cycle, *(8 + rank for rank in cycle))


def test_links_of_one_direction_are_followed():
    builder = TopologyBuilder("one way")
    for rank in range(5):
        builder.add_node(f"gpu{rank}")
    for rank in range(5):
        builder.add_link(f"gpu{rank}", f"gpu{(rank + 3) % 5}", 1, 1)
    assert builder.build().ring_order() == (0, 3, 1, 4, 2)


def test_a_machine_without_a_cycle_ends_in_file_order():
    # Two cliques that share one GPU: every GPU has links enough, and yet there is no cycle through all.
    half = 12
    left, right = range(half), range(half - 1, 2 * half - 1)
    links = {pair: 1 for side in (left, right) for pair in itertools.combinations(side, 2)}
    links.pop((0, 1))
    topology = machine(2 * half - 1, links)
    assert topology.ring_order() == tuple(range(2 * half - 1))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 9).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.dictionaries(
                st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda p: p[0] != p[1]),
                st.integers(1, 3),
            ),
        )
    )
)
def test_small_machines_have_their_cycle_found(case):
    n, links = case
    topology = machine(n, links)
    order = topology.ring_order()
    assert sorted(order) == list(range(n))
    assert order == machine(n, links).ring_order()
    linked = {pair for a, b in links for pair in ((a, b), (b, a))}
    exists = n > 2 and any(
        all(pair in linked for pair in zip((0, *rest), (*rest, 0), strict=True))
        for rest in (itertools.permutations(range(1, n)) if n < 8 else ())
    )
    if exists:
        assert along_links(topology, order)
