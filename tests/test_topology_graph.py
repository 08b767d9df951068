from __future__ import annotations

import pickle
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest

import collsim.topology as topology_room
from collsim.errors import TopologyError
from collsim.topology import Topology, TopologyBuilder, from_networkx
from collsim.topology.describe import describe


def pair(**link):
    builder = TopologyBuilder("pair", "two of them", "made up")
    builder.add_node("a", reduce_bandwidth=10**12)
    builder.add_node("s", "switch", reduces=True, forwards=True)
    builder.add_node("b", forwards=False)
    values = {"bandwidth": 10, "latency": 3} | link
    builder.add_duplex("a", "s", **values)
    builder.add_duplex("s", "b", **values)
    return builder


def test_arrays_of_a_small_machine():
    topology = pair(kind="wire", count=2).build()
    assert topology.nodes == ("a", "s", "b")
    assert topology.kinds == ("gpu", "switch", "gpu")
    assert topology.ranks == ("a", "b")
    assert topology.rank_nodes.tolist() == [0, 2]
    assert topology.rank_of_node.tolist() == [0, -1, 1]
    assert topology.link_src.tolist() == [0, 0, 1, 1, 1, 1, 2, 2]
    assert topology.link_dst.tolist() == [1, 1, 0, 0, 2, 2, 1, 1]
    assert topology.link_key.tolist() == [0, 1] * 4
    assert topology.link_bandwidth.tolist() == [10] * 8
    assert topology.link_latency.tolist() == [3] * 8
    assert [topology.link_name(link) for link in (0, 1, 4)] == ["a->s#0", "a->s#1", "s->b#0"]
    assert topology.link_kind(5) == "wire"
    assert topology.links_between("s", "b") == (4, 5)
    assert topology.reduce_bandwidth.tolist() == [10**12, 0, 0]
    assert topology.reduces.tolist() == [False, True, False]
    assert topology.forwards.tolist() == [True, True, False]
    assert repr(topology) == "<Topology 'pair': 2 ranks, 3 nodes, 8 links of 10B/s>"


def test_arrays_cannot_be_written():
    topology = pair().build()
    for copy in (topology, pickle.loads(pickle.dumps(topology))):
        with pytest.raises(ValueError, match="read-only"):
            copy.link_bandwidth[0] = 5
        with pytest.raises(ValueError, match="read-only"):
            copy.rank_nodes[0] = 5
    with pytest.raises(AttributeError):
        topology.name = "other"


def test_equality_is_by_content_and_not_by_label():
    one, same = pair().build(), pair().build()
    assert one == same
    assert hash(one) == hash(same)
    assert pickle.loads(pickle.dumps(one)) == one
    renamed = pair()
    renamed.name, renamed.description = "other", ""
    assert renamed.build() == one
    for other in (
        pair(bandwidth=11).build(),
        pair(latency=4).build(),
        pair(count=2).build(),
        pair(kind="x").build(),
        pair().build(ranks=["b", "a"]),
        pair().build(routes={("a", "b"): ["a->s", "s->b"]}),
    ):
        assert other != one
    assert one != "pair"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b.add_node("a"), "node 'a': there are two of this name"),
        (lambda b: b.add_link("a", "bb", 1, 0), "link to 'bb': no such node; did you mean 'b'"),
        (lambda b: b.add_link("a", "a", 1, 0), "link a->a: a link joins two different nodes"),
        (lambda b: b.add_link("a", "b", 0, 0), "expected link bandwidth in bytes/s of at least 1 .*, got 0"),
        (lambda b: b.add_link("a", "b", 2**63, 0), "64-bit"),
        (lambda b: b.add_link("a", "b", 1.5, 0), "whole"),
        (lambda b: b.add_link("a", "b", 1, -1), "expected link latency in ps of at least 0 .*, got -1"),
        (lambda b: b.add_link("a", "b", 1, 0, count=0), "expected count of at least 1"),
        (lambda b: b.add_link("a", "b", 1, 0, count=10**9), "expected at most .* links"),
    ],
)
def test_what_the_builder_refuses(change, message):
    builder = pair()
    change(builder)
    with pytest.raises(TopologyError, match=message):
        builder.build()


def test_ranks_can_be_chosen_but_must_exist():
    assert pair().build(ranks=["b", "s"]).ranks == ("b", "s")
    with pytest.raises(TopologyError, match="rank 'c': no such node"):
        pair().build(ranks=["c"])
    with pytest.raises(TopologyError, match="rank 'a': named twice"):
        pair().build(ranks=["a", "a"])
    with pytest.raises(TopologyError, match="at least one rank"):
        pair().build(ranks=[])
    builder = TopologyBuilder("none")
    builder.add_node("s", "switch")
    with pytest.raises(TopologyError, match="no node of kind 'gpu'"):
        builder.build()


def test_unknown_nodes_and_ranks_are_named():
    topology = pair().build()
    with pytest.raises(TopologyError, match="no node 'sw' in topology 'pair'; did you mean 's'"):
        topology.node_index("sw")
    with pytest.raises(TopologyError, match="no rank 2: topology 'pair' has ranks 0 to 1"):
        topology.route(0, 2)
    with pytest.raises(TopologyError, match="no rank -1"):
        topology.route(-1, 0)


def test_graph_has_everything_and_is_frozen():
    topology = pair(kind="wire", count=2).build(ranks=["b", "a"])
    graph = topology.graph
    assert isinstance(graph, nx.MultiDiGraph)
    assert graph is topology.graph
    assert list(graph.nodes) == ["a", "s", "b"]
    assert graph.nodes["a"] == {"kind": "gpu", "rank": 1, "reduce_bandwidth": 10**12}
    assert graph.nodes["s"] == {"kind": "switch", "reduces": True}
    assert graph.edges["s", "b", 1] == {"bandwidth": 10, "latency": 3e-12, "kind": "wire", "index": 5}
    assert graph.number_of_edges() == topology.n_links
    with pytest.raises(nx.NetworkXError, match=r"[Ff]rozen"):
        graph.add_node("c")
    back = from_networkx(graph)
    assert back.name == "pair"
    assert back.ranks == ("b", "a")
    # NetworkX lists edges by source, so only the order of the links may differ.
    ends = [sorted(map(t.link_name, range(t.n_links))) for t in (topology, back)]
    assert ends[0] == ends[1]
    assert (back.link_latency == 3).all()
    assert back.reduce_bandwidth.tolist() == topology.reduce_bandwidth.tolist()
    assert back.forwards.tolist() == topology.forwards.tolist()


def test_from_networkx_takes_undirected_directed_and_parallel_edges():
    graph = nx.path_graph(3)
    nx.set_edge_attributes(graph, "25GB/s", "bandwidth")
    nx.set_edge_attributes(graph, 1e-6, "latency")
    before = {node: dict(data) for node, data in graph.nodes(data=True)}
    topology = Topology.from_networkx(graph, name="path")
    assert topology.nodes == ("0", "1", "2")
    assert [topology.link_name(link) for link in range(4)] == ["0->1", "1->0", "1->2", "2->1"]
    assert topology.link_bandwidth.tolist() == [25 * 10**9] * 4
    assert topology.link_latency.tolist() == [10**6] * 4
    assert {node: dict(data) for node, data in graph.nodes(data=True)} == before
    assert not nx.is_frozen(graph)
    assert from_networkx(nx.DiGraph(graph)).n_links == 4
    assert from_networkx(graph.to_directed(as_view=True).edge_subgraph([(0, 1)])).n_links == 1
    double = nx.MultiDiGraph(graph)
    double.add_edge(0, 1, bandwidth=5, latency="2us", kind="slow")
    topology = from_networkx(double, ranks=[2, 0])
    assert topology.ranks == ("2", "0")
    assert [topology.link_kind(link) for link in topology.links_between("0", "1")] == ["", "slow"]


@pytest.mark.parametrize(
    ("edge", "message"),
    [
        ({"latency": 0}, "edge 'x' - 'y': attribute 'bandwidth' is missing"),
        ({"bandwidth": 1}, "edge 'x' - 'y': attribute 'latency' is missing"),
        ({"bandwidth": "5", "latency": 0}, "edge 'x' - 'y': attribute 'bandwidth': '5': expected a unit"),
        ({"bandwidth": 1, "latency": "fast"}, "edge 'x' - 'y': attribute 'latency': 'fast': expected a time"),
    ],
)
def test_from_networkx_names_the_edge_and_the_attribute(edge, message):
    graph = nx.Graph()
    graph.add_edge("x", "y", **edge)
    with pytest.raises(TopologyError, match=message):
        from_networkx(graph)


def four(**attributes):
    """A cycle of four whose nodes have these attributes, one of each list by node."""
    graph = nx.cycle_graph(4)
    nx.set_edge_attributes(graph, "25GB/s", "bandwidth")
    nx.set_edge_attributes(graph, 0, "latency")
    for key, values in attributes.items():
        nx.set_node_attributes(graph, dict(enumerate(values)), key)
    return graph


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"rank": [0, 1, 1, 2]}, "node '2': attribute 'rank': expected each once, got 1 of '1' too"),
        ({"rank": [-1, 0, 1, 2]}, "node '0': attribute 'rank': expected a whole number from 0, got -1"),
        ({"rank": [0, float("nan"), 1, 2]}, "node '1': attribute 'rank': expected a whole number from 0, got nan"),
        ({"rank": [0, 1, 2, float("inf")]}, "node '3': attribute 'rank': expected a whole number from 0, got inf"),
        ({"rank": [0, 1.5]}, "expected a whole number from 0, got 1.5"),
        ({"rank": [None]}, "expected a whole number from 0, got None"),
        ({"rank": [0, "a"]}, "expected a whole number from 0, got 'a'"),
        ({"rank": [False, True]}, "expected a whole number from 0, got False"),
        ({"kind": [None]}, "node '0': attribute 'kind': expected one of gpu, switch, nic, host, got None"),
        ({"kind": ["gpu", "swich"]}, "node '1': attribute 'kind': .*got 'swich'; did you mean 'switch'"),
        ({"kind": [["gpu"]]}, r"node '0': attribute 'kind': .*got \['gpu'\]"),
    ],
)
def test_from_networkx_names_the_node_and_the_attribute(attributes, message):
    with pytest.raises(TopologyError, match=message):
        from_networkx(four(**attributes))


def test_from_networkx_takes_ranks_in_their_order():
    assert from_networkx(four(rank=[3, np.int64(0), 2.0, 9])).ranks == ("1", "2", "0", "3")
    assert from_networkx(four(rank=[1, 0])).ranks == ("1", "0")
    assert from_networkx(four(kind=["gpu", "nic", "gpu", "host"])).ranks == ("0", "2")


@pytest.mark.parametrize(
    ("graph", "ranks", "message"),
    [
        ([(0, 1)], None, "expected a NetworkX graph, got a list"),
        (None, None, "expected a NetworkX graph, got a NoneType"),
        (four(), 4, "ranks: expected a list of nodes, got 4"),
        (four(), "01", "ranks: expected a list of nodes, got '01'"),
        (four(), [0, 9], "rank '9': no such node"),
    ],
)
def test_from_networkx_refuses_what_is_no_graph_and_no_ranks(graph, ranks, message):
    with pytest.raises(TopologyError, match=message):
        from_networkx(graph, ranks)


def test_from_networkx_refuses_names_that_become_equal():
    graph = nx.Graph()
    graph.add_nodes_from([1, "1"])
    with pytest.raises(TopologyError, match="node '1': there are two"):
        from_networkx(graph)


def test_describe_counts_what_is_there():
    builder = TopologyBuilder("box", "Two GPUs,\nand a switch.", "a data sheet")
    builder.add_node("a", send_overhead=2_000_000)
    builder.add_node("b", send_overhead=2_000_000, forwards=False)
    builder.add_node("s", "switch")
    builder.add_duplex("a", "s", 25 * 10**9, 500_000, kind="nvlink", count=2)
    builder.add_duplex("b", "s", 10**9, 500_000, kind="pcie")
    text = describe(builder.build())
    assert text.splitlines() == [
        "box",
        "  about      Two GPUs, and a switch.",
        "  source     a data sheet",
        "  nodes      3: 2 gpu, 1 switch",
        "  ranks      2: a to b",
        "  links      6 in one direction, up to 2 in parallel",
        "             4 x nvlink 25GB/s 500ns",
        "             2 x pcie    1GB/s 500ns",
        "  injection  1GB/s to 50GB/s out of and 1GB/s to 50GB/s into every rank",
        "  diameter   2 hops",
        "  overhead   2us to send a transfer (2 nodes)",
        "  ends       no route passes through (1 node)",
    ]


def test_describe_names_the_structure():
    assert "  structure  torus, 2 x 3\n" in describe(topology_room.torus((2, 3)))
    assert "  ring       0 1 2 5 4 3" in describe(topology_room.torus((2, 3)))
    text = describe(pair().build(structure={"kind": "modules", "module": "node", "count": 2, "ranks_per_module": 1}))
    assert "  structure  modules, 2 x node, 1 ranks per module\n" in text


def test_describe_says_when_it_sampled_and_when_ranks_are_apart():
    assert "at least (from all to 256 ranks)" in describe(topology_room.switch(300))
    builder = TopologyBuilder("apart")
    for name in "abc":
        builder.add_node(name)
    builder.add_duplex("a", "b", 1, 1)
    assert "1 hop; not every rank has a route to every other" in describe(builder.build())


def test_importing_the_room_is_light():
    code = (
        "import sys, collsim.topology as t; t.ring(4).route(0, 2); "
        "print([m for m in ('networkx', 'yaml', 'pydantic', 'simpy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there():
    for name in topology_room.__all__:
        assert getattr(topology_room, name) is not None
        assert name in dir(topology_room)
    with pytest.raises(AttributeError, match="no attribute 'rnig'"):
        topology_room.rnig  # noqa: B018
    assert np.all(topology_room.ring(3).reduce_bandwidth == 0)
