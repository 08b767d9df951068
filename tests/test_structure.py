"""What algorithms read off a topology: dimensions, nodes, neighbours; told by the maker, or found in the links."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collsim.topology import (
    Topology,
    TopologyBuilder,
    bidirectional_ring,
    dragonfly,
    fat_tree,
    fully_connected,
    hypercube,
    line,
    load_topology,
    mesh,
    rail_optimized,
    ring,
    switch,
    torus,
    tree,
)
from collsim.topology.structure import dimension_bandwidths, node_groups, product_dims, rank_routes, torus_dims

# machine: sizes of the torus, ranks of each node
SHIPPED = {
    "dgx-2": (None, [8, 8]),
    "dgx-a100-x2": (None, [8, 8]),
    "dgx-h100-x4": (None, [8, 8, 8, 8]),
    "fat-tree-16": (None, [4, 4, 4, 4]),
    "pcie-4gpu": (None, [2, 2]),
    "torus-4x4": ((4, 4), None),
    "tpu-v4-4x4x4": ((4, 4, 4), None),
}
LOOKED_AT = sorted({*SHIPPED, "dgx-1-v100", "dgx-h100", "gb200-nvl72", "line8", "mi300x", "pcie-4gpu", "ring8"})
"""The others have neither dimensions nor nodes."""


def unlabelled(topology: Topology) -> Topology:
    """Return the same machine from a maker that says nothing of its structure."""
    return replace(topology, structure={}, nodes=tuple(f"n{i}" for i in range(topology.n_nodes)))


@pytest.mark.parametrize("name", LOOKED_AT)
def test_shipped_machines(name: str) -> None:
    topology = load_topology(name)
    dims, nodes = SHIPPED.get(name, (None, None))
    groups = node_groups(topology)
    assert torus_dims(topology) == dims
    assert (groups and [len(group) for group in groups]) == nodes
    assert torus_dims(unlabelled(topology)) == dims
    if name != "dgx-2":  # its halves are baseboards, one more level than hops tell
        assert node_groups(unlabelled(topology)) == groups


@pytest.mark.parametrize(
    "dims", [(5,), (2, 3), (3, 4, 2), (2, 2, 2), (8, 3), (4, 4), (2, 2), (3, 3, 3), (2,), (16, 2, 3)]
)
def test_a_torus_is_found_in_its_links(dims: tuple[int, ...]) -> None:
    assert torus_dims(torus(dims)) == torus_dims(unlabelled(torus(dims))) == dims


def test_sizes_of_one_cannot_be_seen_but_are_told() -> None:
    assert torus_dims(torus((1, 4, 1))) == (1, 4, 1)
    assert torus_dims(unlabelled(torus((1, 4, 1)))) == (4,)


@pytest.mark.parametrize(
    "topology",
    [
        mesh((3, 3)), line(5), ring(5), fully_connected(4), switch(6), fat_tree(8, 4), tree(2, 2), switch(1),
        replace(torus((3, 4)), structure={}, rank_nodes=np.array([1, 0, *range(2, 12)])),
    ],
)  # fmt: skip
def test_no_torus(topology: Topology) -> None:
    assert torus_dims(topology) is None
    assert torus_dims(unlabelled(topology)) is None


def test_small_machines_that_are_a_torus() -> None:
    assert torus_dims(unlabelled(hypercube(4))) == (2, 2, 2, 2)
    assert torus_dims(unlabelled(mesh((2, 2)))) == (2, 2)  # one link where a torus has two
    assert torus_dims(unlabelled(fully_connected(3))) == (3,)
    assert torus_dims(bidirectional_ring(1)) == (1,)


@pytest.mark.parametrize(
    ("topology", "size"),
    [(fat_tree(16, 4), 4), (tree(3, 2), 3), (tree(2, 3), 2), (rail_optimized(3, 4), 4), (dragonfly(5, 2, 2), 4)],
)
def test_nodes_are_consecutive(topology: Topology, size: int) -> None:
    n = topology.n_ranks
    expected = tuple(tuple(range(first, first + size)) for first in range(0, n, size))
    assert node_groups(topology) == expected
    if topology.structure["kind"] != "dragonfly":  # the ranks of one router are nearer still
        assert node_groups(unlabelled(topology)) == expected
    assert product_dims(topology) == (n // size, size)


@pytest.mark.parametrize(
    "topology",
    [switch(8), torus((4, 4)), mesh((3, 3)), fully_connected(5), ring(4), fat_tree(8, 1), switch(1), line(2)],
)
def test_one_level(topology: Topology) -> None:
    assert node_groups(topology) is None
    assert node_groups(unlabelled(topology)) is None


def cluster(sizes: list[int], order: list[int] | None = None) -> Topology:
    """Nodes of fully connected GPUs of unequal number; an adapter for each GPU, one switch for all."""
    builder = TopologyBuilder("cluster")
    names = [[f"g{node}_{i}" for i in range(size)] for node, size in enumerate(sizes)]
    builder.add_node("core", "switch")
    for node in names:
        for name in node:
            builder.add_node(name, forwards=False)
            builder.add_node(f"nic_{name}", "nic")
            builder.add_duplex(name, f"nic_{name}", 60 * 10**9, 1000)
            builder.add_duplex(f"nic_{name}", "core", 50 * 10**9, 1000)
    for node in names:
        for i, j in product(range(len(node)), repeat=2):
            if i < j:
                builder.add_duplex(node[i], node[j], 300 * 10**9, 1000)
    flat = [name for node in names for name in node]
    return builder.build(ranks=[flat[i] for i in order] if order else None)


def test_nodes_of_a_machine_without_modules() -> None:
    assert node_groups(cluster([3, 3])) == ((0, 1, 2), (3, 4, 5))
    assert node_groups(cluster([3, 2])) == ((0, 1, 2), (3, 4))  # unequal: an algorithm may refuse that
    assert product_dims(cluster([3, 2])) is None
    dealt = cluster([2, 2], [0, 2, 1, 3])
    assert node_groups(dealt) == ((0, 2), (1, 3))
    assert product_dims(dealt) is None  # not consecutive


@given(st.lists(st.integers(2, 5), min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_nodes_are_found_whatever_the_order(sizes: list[int], random: object) -> None:
    order = list(range(sum(sizes)))
    random.shuffle(order)  # type: ignore[attr-defined]
    node_of = [node for node, size in enumerate(sizes) for _ in range(size)]
    groups = node_groups(cluster(sizes, order))
    assert groups is not None
    assert sorted(rank for group in groups for rank in group) == list(range(sum(sizes)))
    assert all(len({node_of[order[rank]] for rank in group}) == 1 for group in groups)
    assert len(groups) == len(sizes)


def test_bandwidths_of_dimensions() -> None:
    assert dimension_bandwidths(rail_optimized(4, 8)) == (50 * 10**9, 450 * 10**9)
    assert dimension_bandwidths(torus((1, 3), bandwidth="7GB/s")) == (0, 7 * 10**9)
    assert dimension_bandwidths(switch(4)) is None
    slow = torus((3, 3), bandwidth="10GB/s")
    rates = np.array(slow.link_bandwidth)
    rates[slow.links_between("gpu4", "gpu5")[0]] = 10**9
    assert dimension_bandwidths(replace(slow, link_bandwidth=rates)) == (10**10, 10**9)


def test_routes_of_neighbours_are_the_links_between_them() -> None:
    for topology in (torus((3, 4)), mesh((2, 3)), hypercube(3), ring(5), line(3)):
        routes = rank_routes(topology)
        assert len(routes) == topology.n_links
        assert sorted(link for route in routes.values() for link in route) == list(range(topology.n_links))
        for (src, dst, *_), (link,) in routes.items():
            assert topology.rank_of_node[[topology.link_src[link], topology.link_dst[link]]].tolist() == [src, dst]


def test_parallel_links_are_further_channels() -> None:
    routes = rank_routes(torus((2, 3)))
    assert {key for key in routes if key[:2] == (0, 3)} == {(0, 3), (0, 3, 1)}
    assert sorted(link for route in routes.values() for link in route) == list(range(torus((2, 3)).n_links))
    topology = load_topology("dgx-1-v100")
    assert sorted(link for route in rank_routes(topology).values() for link in route) == list(range(topology.n_links))


def test_routes_over_switches_pass_no_rank() -> None:
    for topology in (switch(5), fat_tree(8, 4), load_topology("dgx-h100-x4"), load_topology("pcie-4gpu")):
        n = topology.n_ranks
        routes = rank_routes(topology)
        assert set(routes) == {(a, b) for a, b in product(range(n), repeat=2) if a != b}
        assert all(route == topology.route(*pair) for pair, route in routes.items())
    # where GPUs forward, the way to a rank of another place may lead over the GPU of that place
    topology = rail_optimized(2, 3)
    routes = rank_routes(topology)
    for a, b in product(range(6), repeat=2):
        inner = [topology.rank_of_node[topology.link_dst[link]] for link in topology.route(a, b)[:-1]]
        assert ((a, b) in routes) == (a != b and max(inner) < 0)
    assert len(routes) < 30


def test_large_machines_do_not_take_long() -> None:
    big = torus((64, 64))
    assert torus_dims(unlabelled(big)) == (64, 64)
    assert len(rank_routes(big)) == big.n_links
    groups = node_groups(unlabelled(fat_tree(8192, 32)))
    assert groups is not None
    assert {len(group) for group in groups} == {32}
    assert math.prod(product_dims(fat_tree(8192, 32)) or ()) == 8192
