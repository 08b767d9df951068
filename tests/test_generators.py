from __future__ import annotations

import inspect
import itertools

import networkx as nx
import numpy as np
import pytest

import collsim.topology as t
from collsim.errors import InputError, TopologyError
from collsim.topology.generators import direct, switched, wires

SMALL = {
    "ring": (5,),
    "bidirectional_ring": (5,),
    "line": (5,),
    "fully_connected": (5,),
    "switch": (5,),
    "mesh": ((2, 3),),
    "torus": ((2, 3),),
    "hypercube": (3,),
    "tree": (2, 3),
    "fat_tree": (16, 4),
    "rail_optimized": (3, 2),
    "dragonfly": (4, 2, 2),
}


def simple(topology):
    return nx.DiGraph(topology.graph)


def same_shape(topology, graph):
    return nx.is_isomorphic(nx.Graph(simple(topology)), graph)


def test_table_of_generators_is_complete():
    assert set(t.GENERATORS) == set(SMALL)
    assert all(t.GENERATORS[name] is getattr(t, name) for name in SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_every_generator(name):
    generator = t.GENERATORS[name]
    topology = generator(
        *SMALL[name], "30GB/s", "2us", send_overhead="1us", reduce_bandwidth="1TB/s", channel_bandwidth=20e9
    )
    assert topology.name == topology.structure["kind"] == name
    assert 30 * 10**9 in topology.link_bandwidth
    assert 2_000_000 in topology.link_latency
    assert nx.is_strongly_connected(simple(topology))
    gpus = np.array([kind == "gpu" for kind in topology.kinds])
    assert topology.rank_nodes.tolist() == np.flatnonzero(gpus).tolist()
    for column, value in (("send_overhead", 10**6), ("reduce_bandwidth", 10**12), ("channel_bandwidth", 20 * 10**9)):
        assert getattr(topology, column).tolist() == np.where(gpus, value, 0).tolist()
    assert topology == generator(
        *SMALL[name], 30e9, 2e-6, send_overhead=1e-6, reduce_bandwidth=1e12, channel_bandwidth=20e9
    )
    default = generator(*SMALL[name])
    assert default.n_links == topology.n_links
    assert not default.send_overhead.any()
    if name != "ring":
        ends = sorted(zip(topology.link_src, topology.link_dst, strict=True))
        assert ends == sorted(zip(topology.link_dst, topology.link_src, strict=True))
    parameters = list(inspect.signature(generator).parameters)
    assert parameters.index("bandwidth") + 1 == parameters.index("latency")
    with pytest.raises(InputError, match="unit"):
        generator(*SMALL[name], bandwidth="30")
    with pytest.raises(TopologyError, match=f"^{name}: "):
        generator(-1, *SMALL[name][1:])
    with pytest.raises(TopologyError, match=f"^{name}: "):
        generator(2.5, *SMALL[name][1:])
    with pytest.raises(TopologyError, match=f"^{name}: "):
        generator(10**30, *SMALL[name][1:])


@pytest.mark.parametrize("n", range(1, 7))
def test_rows_and_rings(n):
    assert t.ring(n).n_links == (n if n > 1 else 0)
    assert t.bidirectional_ring(n).n_links == (2 * n if n > 1 else 0)
    assert t.line(n).n_links == 2 * (n - 1)
    assert t.fully_connected(n).n_links == n * (n - 1)
    assert t.switch(n).n_links == 2 * n
    if n > 1:
        assert nx.is_isomorphic(simple(t.ring(n)), nx.cycle_graph(n, create_using=nx.DiGraph))
        assert same_shape(t.line(n), nx.path_graph(n))
        assert same_shape(t.fully_connected(n), nx.complete_graph(n))
        assert same_shape(t.switch(n), nx.star_graph(n))
    if n > 2:
        assert same_shape(t.bidirectional_ring(n), nx.cycle_graph(n))


@pytest.mark.parametrize("dims", [(1,), (2,), (5,), (2, 2), (3, 4), (1, 3), (4, 4, 4), (2, 3, 2)])
def test_grids_are_those_of_networkx(dims):
    mesh, torus = t.mesh(dims), t.torus(dims)
    assert mesh.n_ranks == torus.n_ranks == np.prod(dims)
    assert same_shape(mesh, nx.grid_graph(dims[::-1]))
    assert torus.n_links == 2 * sum(np.prod(dims) for size in dims if size > 1)
    if min(dims) > 2:
        assert same_shape(torus, nx.grid_graph(dims[::-1], periodic=True))
    out = np.bincount(torus.link_src, minlength=torus.n_ranks)
    assert (out == 2 * sum(size > 1 for size in dims)).all()


def test_a_torus_of_two_has_two_cables():
    topology = t.torus((2, 3))
    assert len(topology.links_between("gpu0", "gpu3")) == len(topology.links_between("gpu3", "gpu0")) == 2
    assert len(topology.links_between("gpu0", "gpu1")) == 1
    assert t.torus(2) == t.bidirectional_ring(2)


def test_places_of_a_grid_move_last_dimension_first():
    topology = t.mesh((2, 3))
    places = list(itertools.product(range(2), range(3)))
    for a, b in itertools.permutations(range(6), 2):
        apart = sum(abs(x - y) for x, y in zip(places[a], places[b], strict=True))
        assert bool(topology.links_between(f"gpu{a}", f"gpu{b}")) == (apart == 1)


@pytest.mark.parametrize("dimension", range(6))
def test_hypercube_links_differ_in_one_bit(dimension):
    topology = t.hypercube(dimension)
    assert topology.n_ranks == 2**dimension
    assert topology.n_links == dimension * 2**dimension
    assert all(int(a ^ b).bit_count() == 1 for a, b in zip(topology.link_src, topology.link_dst, strict=True))


@pytest.mark.parametrize(("branching", "height"), [(1, 1), (2, 1), (2, 3), (3, 2), (4, 2)])
def test_tree_is_balanced_with_gpus_as_leaves(branching, height):
    topology = t.tree(branching, height)
    assert topology.n_ranks == branching**height
    assert same_shape(topology, nx.balanced_tree(branching, height))
    degree = np.bincount(topology.link_src, minlength=topology.n_nodes)
    assert (degree[topology.rank_nodes] == 1).all()
    assert topology.kinds.count("gpu") + topology.kinds.count("switch") == topology.n_nodes
    if branching > 1:
        assert len(topology.route(0, topology.n_ranks - 1)) == 2 * height
        assert len(topology.route(0, 1)) == 2


@pytest.mark.parametrize(
    ("spines", "oversubscription", "cables"), [(None, 1, 1), (2, 1, 4), (4, 2, 1), (1, 4, 2), (None, 8, 1)]
)
def test_fat_tree_trunks(spines, oversubscription, cables):
    topology = t.fat_tree(32, 8, spines=spines, oversubscription=oversubscription)
    tops = [node for node in topology.nodes if node.startswith("spine")]
    assert len(tops) == (spines or 8 // oversubscription)
    for leaf, spine in itertools.product(range(4), tops):
        assert len(topology.links_between(f"leaf{leaf}", spine)) == cables
        assert len(topology.links_between(spine, f"leaf{leaf}")) == cables
    assert {len(topology.route(0, rank)) for rank in range(1, 8)} == {2}
    assert {len(topology.route(0, rank)) for rank in range(8, 32)} == {4}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gpus": 20}, "gpus: expected a multiple of gpus_per_leaf = 8, got 20"),
        ({"gpus": 16, "oversubscription": 3}, "expected gpus_per_leaf = 8 to be a multiple of it"),
        ({"gpus": 16, "oversubscription": 0.5}, "oversubscription: expected 1 to gpus_per_leaf = 8"),
        ({"gpus": 16, "oversubscription": float("nan")}, "oversubscription: expected 1 to gpus_per_leaf = 8"),
        ({"gpus": 16, "oversubscription": 16}, "oversubscription: expected 1 to gpus_per_leaf = 8"),
        ({"gpus": 16, "spines": 3}, "spines: expected a divisor of the 8 links up of a leaf, got 3"),
    ],
)
def test_fat_tree_refuses_what_does_not_divide(arguments, message):
    with pytest.raises(TopologyError, match=message):
        t.fat_tree(**arguments)


def test_rail_optimized_cables():
    topology = t.rail_optimized(
        4, 8, "450GB/s", "300ns", spines=2, oversubscription=2, nic_latency="1us", pcie_latency="700ns"
    )
    assert topology.ranks[9] == "node[1].gpu[1]"
    assert [topology.kinds.count(kind) for kind in ("gpu", "nic", "switch")] == [32, 32, 4 + 8 + 2]
    inside = topology.route(0, 7)
    assert [topology.link_name(link) for link in inside] == [
        "node[0].gpu[0]->node[0].nvswitch",
        "node[0].nvswitch->node[0].gpu[7]",
    ]
    assert topology.link_bandwidth[list(inside)].tolist() == [450 * 10**9] * 2
    rail = topology.route(3, 11)
    assert [topology.link_name(link) for link in rail] == [
        "node[0].gpu[3]->node[0].nic[3]",
        "node[0].nic[3]->leaf3",
        "leaf3->node[1].nic[3]",
        "node[1].nic[3]->node[1].gpu[3]",
    ]
    assert topology.link_bandwidth[list(rail)].tolist() == [63 * 10**9, 50 * 10**9, 50 * 10**9, 63 * 10**9]
    assert topology.link_latency[list(rail)].tolist() == [700_000, 10**6, 10**6, 700_000]
    assert [topology.link_kind(link) for link in rail] == ["pcie", "network", "network", "pcie"]
    assert topology.link_kind(inside[0]) == "nvlink"
    assert all(
        len(topology.links_between(f"leaf{leaf}", f"spine{spine}")) == 1 for leaf in range(8) for spine in range(2)
    )


@pytest.mark.parametrize(
    ("groups", "routers", "gpus"), [(1, 1, 1), (1, 4, 1), (2, 3, 1), (5, 2, 2), (9, 4, 2), (4, 5, 1)]
)
def test_dragonfly_joins_every_two_groups_once(groups, routers, gpus):
    topology = t.dragonfly(groups, routers, gpus, "50GB/s", "500ns", global_bandwidth="25GB/s", global_latency="2us")
    assert topology.n_ranks == groups * routers * gpus
    wide = [link for link in range(topology.n_links) if topology.link_kind(link) == "global"]
    group = [node.split(".")[0] for node in topology.nodes]
    ends = sorted((group[topology.link_src[link]], group[topology.link_dst[link]]) for link in wide)
    assert ends == sorted(itertools.permutations({*group}, 2))
    assert (topology.link_bandwidth[wide] == 25 * 10**9).all()
    assert (topology.link_latency[wide] == 2_000_000).all()
    per_router = np.bincount(topology.link_src[wide], minlength=topology.n_nodes)
    assert per_router.max() <= max(1, -(-(groups - 1) // routers))
    assert max(len(topology.route(0, rank)) for rank in range(topology.n_ranks)) <= 5


def test_switch_can_reduce_and_multicast():
    topology = t.switch(3, reduces=True)
    assert topology.reduces.tolist() == [False, False, False, True]
    assert not topology.multicasts.any()
    assert t.switch(3, multicasts=True).multicasts.tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    "make",
    [
        lambda: t.torus((10**6, 10**6)),
        lambda: t.tree(1000, 30),
        lambda: t.fully_connected(10**6),
        lambda: t.fully_connected(8192),
        lambda: t.hypercube(60),
        lambda: t.rail_optimized(10**6, 1000),
        lambda: t.rail_optimized(125_000, 8),
        lambda: t.dragonfly(4096, 4096),
        lambda: t.dragonfly(1024, 4096, 1),
        lambda: t.dragonfly(256, 4096, 1),
        lambda: t.fat_tree(2**22, 2**11),
        lambda: t.fat_tree(2 * 10**6, 20),
        lambda: t.torus((11,) * 6),
        lambda: t.tree(2, 20),
    ],
)
def test_absurd_sizes_are_refused_before_memory_is_used(make, monkeypatch):
    monkeypatch.setattr(wires.Wires, "add", lambda *_: pytest.fail("nodes were made"))
    with pytest.raises(TopologyError, match=r"expected (at most|[01] to)"):
        make()


def test_what_is_counted_beforehand_is_what_is_made(monkeypatch):
    counted = []

    class Counted(wires.Wires):
        def __init__(self, *sizes):
            super().__init__(*sizes)
            counted.append(self.sizes)

    for module in (direct, switched):
        monkeypatch.setattr(module, "Wires", Counted)
    for make, sizes in (
        (t.torus, ((4, 1, 2, 3),)),
        (t.mesh, ((4, 1, 2, 3),)),
        (t.hypercube, (0,)),
        (t.ring, (1,)),
        (t.line, (1,)),
        (t.tree, (1, 3)),
        (t.fat_tree, (32, 8, "1GB/s", "1us")),
        (t.dragonfly, (7, 3, 2)),
        (t.dragonfly, (1, 4, 3)),
        *((t.GENERATORS[name], given) for name, given in SMALL.items()),
    ):
        topology = make(*sizes)
        assert counted[-1] == (topology.n_nodes, topology.n_links)


def test_sizes_that_are_no_list_are_no_bandwidth():
    for make, sizes, meant in (
        (t.torus, (4, 4), "torus((4, 4), ...), or bandwidth='4B/s'"),
        (t.mesh, (4, 4), "mesh((4, 4), ...)"),
        (t.torus, (2, 3, 4), "torus((2, 3, 4), ...)"),
        (t.torus, (np.int64(4), np.int64(4)), "torus((4, 4), ...)"),
    ):
        with pytest.raises(TopologyError) as caught:
            make(*sizes)
        assert f"write {meant}" in str(caught.value)
    assert t.torus(4, "4B/s").link_bandwidth.tolist() == [4] * 8
    assert t.torus(4, 25 * 10**9) == t.torus((4,), "25GB/s")
    assert t.torus((4, 4), 4).link_bandwidth[0] == 4


def test_sizes_may_be_of_numpy():
    assert t.torus(np.array([4, 4])) == t.torus((4, 4))
    assert t.mesh(np.int32(3)) == t.mesh(3) == t.mesh(np.array(3))
    assert t.fully_connected(np.int16(300)).n_links == 300 * 299
    assert t.rail_optimized(np.int8(100), np.int8(8)) == t.rail_optimized(100, 8)
    for dims in (np.array([2.0, 2.0]), np.ones((2, 2), dtype=int), (), "44", (x for x in (2, 2)), np.arange(99)):
        with pytest.raises(TopologyError, match=r"^torus: dims(\[0\])?: expected .*whole number") as caught:
            t.torus(dims)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 150


def test_a_machine_of_131072_gpus_makes_no_graph():
    topology = t.rail_optimized(16384, 8)
    assert (topology.n_ranks, topology.n_links) == (131_072, 2**20)
    assert "graph" not in vars(topology)
    ranks = np.arange(0, topology.n_ranks, 997)
    ptr, links = topology.routes(ranks, ranks ^ 8)
    assert (np.diff(ptr) == 4).all()
    assert (topology.link_src[links[ptr[:-1]]] == topology.rank_nodes[ranks]).all()
    assert (topology.link_dst[links[ptr[1:] - 1]] == topology.rank_nodes[ranks ^ 8]).all()
