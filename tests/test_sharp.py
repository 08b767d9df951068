"""Trees of switches in the network, alone and with nodes below: found, proven, timed, and refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim
from collsim import algorithms, check, execute
from collsim.engine.program import NETWORKS
from collsim.errors import AlgorithmError, TopologyError
from collsim.topology import Topology, fat_tree, load_topology, rail_optimized, reducing, switch, tree
from tests.in_network import able
from tests.test_nvls import bytes_of

MIB = 2**20
SHARP = load_topology("dgx-h100-x4-sharp")
WITH_NODES = ("collnet_chain", "collnet_direct", "nvls_collnet", "nvls_tree")


def leaves(machine: Topology) -> Topology:
    """Only switches next to ranks reduce."""
    near = np.zeros(machine.n_nodes, dtype=bool)
    near[machine.link_dst[machine.rank_of_node[machine.link_src] >= 0]] = True
    return replace(able(machine), reduces=near, multicasts=near)


def test_trees_are_found_by_the_switches_that_are_able():
    two = able(fat_tree(8, 4, spines=2))
    assert reducing.rank_tree(two) == (
        ("leaf0", (0, 1, 2, 3)), ("leaf1", (4, 5, 6, 7)), ("spine0", ("leaf0", "leaf1")),
    )  # fmt: skip
    rails = reducing.rail_trees(two)
    assert rails is not None
    assert [rail[-1][0] for rail in rails] == ["spine0", "spine1", "spine0", "spine1"]  # roots by turns
    assert rails[1][:2] == (("leaf0", (1,)), ("leaf1", (5,)))
    deep = able(tree(2, 3))
    found = reducing.rank_tree(deep)
    assert found is not None
    assert found[-1] == ("sw0", ("sw1", "sw2"))
    assert len(found) == 7
    assert reducing.rank_tree(able(switch(4))) == (("sw0", (0, 1, 2, 3)),)
    # a switch that is not able is passed through
    top = np.array([name.startswith("spine") for name in two.nodes])
    assert reducing.rank_tree(replace(two, reduces=top, multicasts=top)) == (("spine0", tuple(range(8))),)
    assert reducing.rank_tree(leaves(two)) == (("leaf1", (4, 5, 6, 7)), ("leaf0", (0, 1, 2, 3, "leaf1")))
    assert reducing.rank_tree(switch(4)) is None


def test_the_shipped_machine_has_a_tree_for_each_rail_and_one_for_all():
    rails = reducing.rail_trees(SHARP)
    assert rails == tuple(((f"leaf[{i}]", (i, i + 8, i + 16, i + 24)),) for i in range(8))
    whole = reducing.rank_tree(SHARP)
    assert whole is not None
    assert whole[-1] == ("spine", tuple(f"leaf[{i}]" for i in range(8)))
    assert not any(name.endswith("nvswitch") for name, _ in whole)  # NVLink's reduce loads only
    plain = load_topology("dgx-h100-x4")
    same = [np.array_equal(getattr(SHARP, name), getattr(plain, name)) for name in ("link_src", "link_bandwidth")]
    assert all(same)
    assert (SHARP.reduces.sum(), plain.reduces.sum()) == (13, 4)
    assert reducing.node_switches(able(rail_optimized(2, 3))) == (
        ("node[0].nvswitch", (0, 1, 2)), ("node[1].nvswitch", (3, 4, 5)),
    )  # fmt: skip


@st.composite
def trees(draw, ranks: int):
    """A tree of switches over all ranks, of unequal depth."""
    parts: list = list(draw(st.permutations(range(ranks))))
    rows = []
    while len(parts) > 1 or not rows:
        count = draw(st.integers(1 if not rows and len(parts) == 1 else 2, len(parts))) if len(parts) > 1 else 1
        name = f"s{len(rows)}"
        rows.append((name, tuple(parts[:count])))
        parts = [*parts[count:], name]
    return tuple(rows)


@given(st.sampled_from(["all_reduce", "reduce", "broadcast"]), st.integers(1, 9), st.integers(1, 4), st.data())
@settings(max_examples=60, deadline=None)
def test_any_tree_is_proven_and_executed(operation, ranks, slices, data):
    root = data.draw(st.integers(0, ranks - 1)) if operation != "all_reduce" else 0
    schedule = algorithms.build(operation, "sharp", ranks, root, tree=data.draw(trees(ranks)), slices=slices)
    proof = check(schedule)
    assert proof.complete
    assert not proof.warnings
    inputs = [np.arange(data.draw(st.just(7)), dtype=np.float64) * (rank + 1) for rank in range(ranks)]
    results = execute(schedule, inputs)
    wanted = inputs[root] if operation == "broadcast" else sum(inputs)
    for rank, found in enumerate(results):
        if operation != "reduce" or rank == root:
            assert found.tolist() == wanted.tolist()


@given(
    st.integers(1, 5), st.integers(1, 5), st.integers(1, 5), st.sampled_from([None, 1, 2]), st.sampled_from(WITH_NODES)
)
@settings(max_examples=60, deadline=None)
def test_nodes_below_are_proven_and_executed(nodes, gpus, slices, window, name):
    ranks = nodes * gpus
    grid = np.arange(ranks).reshape(nodes, gpus)
    rails = [[("leaf", tuple(rail[:1])), ("top", ("leaf", *rail[1:]))] for rail in grid.T.tolist()]
    options = {"slices": slices, "window": window}
    if name.startswith("nvls"):
        options["switches"] = [(f"sw{i}", tuple(row)) for i, row in enumerate(grid.tolist())]
    else:
        options["nodes"] = nodes
    if name != "nvls_tree":
        options["head_trees"] = rails
    schedule = algorithms.build("all_reduce", name, ranks, **options)
    proof = check(schedule)
    assert proof.complete
    assert not proof.unused
    assert not proof.warnings
    inputs = [np.arange(11.0) + rank for rank in range(ranks)]
    for found in execute(schedule, inputs):
        assert found.tolist() == sum(inputs).tolist()


def test_fewer_heads_than_gpus():
    trees_ = [[("leaf", (0, 4))], [("leaf", (2, 6))]]
    for name, options in (
        ("collnet_direct", {"nodes": 2}),
        ("collnet_chain", {"nodes": 2}),
        ("nvls_collnet", {"switches": [("a", (0, 1, 2, 3)), ("b", (4, 5, 6, 7))]}),
    ):
        schedule = algorithms.build("all_reduce", name, 8, head_trees=trees_, slices=3, **options)
        assert schedule.chunks == 6
        assert check(schedule).complete


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", ["sharp", *WITH_NODES])
def test_engines_agree(name, network):
    for size in (0, 31, MIB):
        one, other = (
            collsim.run("all_reduce", SHARP, size, name, slices=3, network=network, engine=engine)
            for engine in ("reference", "compiled")
        )
        assert one.time_ps == other.time_ps
        assert one.link_bytes.tolist() == other.link_bytes.tolist()
        assert one.efficiency <= 1 or network == "alpha_beta"


def test_bytes_of_a_tree_are_the_message_once_each_way():
    size = 64 * 640
    up, down = bytes_of(collsim.run("all_reduce", SHARP, size, "sharp"))
    assert up == down == [size] * 32
    result = collsim.run("all_reduce", SHARP, size, "sharp")
    names = {result.topology.link_name(link): int(b) for link, b in enumerate(result.link_bytes)}
    assert sum(b for name, b in names.items() if name.startswith("leaf[3]->spine")) == size
    assert sum(b for name, b in names.items() if name.startswith("spine->leaf[3]")) == size


def test_bytes_with_nvls_in_the_nodes():
    size = 8 * 64 * 100
    for name in ("nvls_collnet", "nvls_tree"):
        result = collsim.run("all_reduce", SHARP, size, name)
        links = {result.topology.link_name(link): int(b) for link, b in enumerate(result.link_bytes)}
        assert links["node[1].gpu[3]->node[1].nvswitch"] == size + size // 8
        assert links["node[1].nvswitch->node[1].gpu[3]"] == size // 8 + size
        if name == "nvls_collnet":
            assert links["node[1].nic[3]->leaf[3]"] == links["leaf[3]->node[1].nic[3]"] == size // 8


def test_switches_in_the_network_make_a_large_all_reduce_faster():
    times = {
        name: collsim.run("all_reduce", SHARP, 2**30, name) for name in ("nvls_collnet", "nvls_tree", "collnet_direct")
    }
    assert times["nvls_collnet"].efficiency > 0.95
    assert times["nvls_collnet"].time < times["collnet_direct"].time < times["nvls_tree"].time
    assert times["nvls_collnet"].busbw > 450e9


@pytest.mark.parametrize(
    ("name", "topology", "message"),
    [
        ("sharp", load_topology("dgx-h100"), "no switches in a network between nodes; use nvls"),
        ("sharp", load_topology("ring8"), "no switches"),
        ("sharp", switch(4), "no tree of switches that reduce and multicast; expected `reduces: true` and "
         "`multicasts: true` on sw0"),
        ("sharp", able(switch(4), multicasts=False), "no tree of switches that reduce and multicast; expected "
         "`reduces: true` and `multicasts: true` on sw0"),
        ("sharp", able(switch(4), reduces=False), "no tree of switches that reduce and multicast; expected "
         "`reduces: true` and `multicasts: true` on sw0"),
        ("collnet_direct", load_topology("dgx-h100-x4"), "no tree of switches that reduce and multicast; expected "
         "`reduces: true` and `multicasts: true` on leaf[0], leaf[1], leaf[2] and 6 more"),
        ("collnet_chain", able(switch(4)), "no nodes of several ranks; use sharp"),
        ("nvls_tree", load_topology("dgx-h100"), "no nodes with a switch of their own, one switch joins all ranks; "
         "use nvls"),
        ("nvls_tree", load_topology("dgx-a100-x2"), "no switch in each node that reduces and multicasts; expected "
         "`reduces: true` and `multicasts: true` on node[0].nvswitch, node[1].nvswitch"),
        ("nvls_tree", load_topology("ring8"), "no switches that join the ranks of a node"),
    ],
)  # fmt: skip
def test_machines_that_cannot_are_refused_in_one_line(name, topology, message):
    with pytest.raises(AlgorithmError) as caught:
        collsim.run("all_reduce", topology, 4096, name)
    assert str(caught.value) == f"topology {topology.name!r} has {message}"


def test_a_switch_in_a_node_and_in_a_tree_is_refused():
    machine = able(fat_tree(4, 2))
    with pytest.raises(
        AlgorithmError, match="head_trees: leaf0 is the switch of a node already; use nvls_tree or collnet_direct"
    ):
        collsim.run("all_reduce", machine, 4096, "nvls_collnet")
    for name in ("nvls_tree", "collnet_direct", "sharp"):
        assert 0 < collsim.run("all_reduce", machine, 4096, name).efficiency <= 1


def test_a_given_tree_wins_and_must_be_able():
    machine = load_topology("dgx-h100-x4")
    with pytest.raises(
        TopologyError, match=r"spine: the schedule reduces in it; expected `reduces: true` on that node"
    ):
        collsim.run("all_reduce", machine, 4096, "sharp", tree="spine")


@pytest.mark.parametrize(
    ("name", "parameter"),
    [("nvls_tree", "switches"), ("nvls_collnet", "switches"), ("sharp", "tree"), ("nvls", "switch")],
)
def test_one_switch_for_all_that_some_ranks_do_not_reach_is_refused_by_the_parameter(name, parameter):
    message = rf"^{parameter}: expected .*, got 'node\[0\].nvswitch', which is out of reach of 'node\[1\].gpu\[0\]'$"
    with pytest.raises(AlgorithmError, match=message):
        collsim.run("all_reduce", load_topology("dgx-h100-x4"), 4096, name, **{parameter: "node[0].nvswitch"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tree": 3}, r"tree: expected switches with their children such as .*, got 3"),
        ({"tree": [["a", [0, 1]]]}, r"tree: expected each of the ranks 0 to 3 once, got"),
        ({"tree": [["a", [0, 1, 2, 3, 4]]]}, r"tree: a: expected children that are ranks 0 to 3 or switches before it"),
        ({"tree": [["a", [0, 1, 2, 3, "b"]], ["b", [0]]]}, r"tree: a: expected children that are .*, got 'b'"),
        ({"tree": [["a", [0, 1]], ["b", [2, 3]]]}, r"tree: expected one root, got a, b"),
        ({"tree": [["a", []]]}, r"tree: expected each switch once by its name, with children, got 'a'"),
        ({"tree": []}, r"tree: expected one root, got none"),
        ({"slices": 0}, r"slices: expected a whole number"),
    ],
)  # fmt: skip
def test_trees_that_are_none(options, message):
    with pytest.raises(AlgorithmError, match=message):
        algorithms.build("all_reduce", "sharp", 4, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_trees": [[["a", [0, 1]]]]}, "head_trees: expected one rank of each of the 2 nodes in a tree"),
        ({"head_trees": [[["a", [0, 2]]], [["a", [0, 2]]]]}, "head_trees: expected a head of its own in each node"),
        ({"head_trees": []}, "head_trees: expected a head of its own"),
        (
            {"head_trees": ["a", "a", "a"]},
            "head_trees: expected a switch for each of the 2 ranks of a node, or one for",
        ),
        ({"head_trees": 7}, "head_trees: expected a tree of switches for each head, got 7"),
    ],
)
def test_trees_that_do_not_go_with_the_nodes(options, message):
    with pytest.raises(AlgorithmError, match=message):
        algorithms.build("all_reduce", "collnet_direct", 4, nodes=2, **options)


def test_switches_that_do_not_go_with_the_ranks():
    for given_, message in (
        (5, "switches: expected the switch of each node"),
        ([("a", (0, 1))], "nodes: expected each"),
    ):
        with pytest.raises(AlgorithmError, match=message):
            algorithms.build("all_reduce", "nvls_tree", 4, switches=given_)
