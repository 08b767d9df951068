from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim.topology as t
from collsim.topology import TopologyBuilder

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
        t.rail_optimized(3, 4),
        t.dragonfly(4, 2, 2),
        t.ring(1),
        t.ring(2),
    ],
)
def test_file_order_is_kept_where_it_is_good_already(topology):
    assert topology.ring_order() == tuple(range(topology.n_ranks))


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
