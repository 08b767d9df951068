"""Machines out of GraphML, and back: what other tools write, what is written for them, and what is refused."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim
import collsim.topology
from collsim.errors import InputError, TopologyError
from collsim.formats.graphml import format_graphml, parse_graphml, read_graphml, write_graphml
from collsim.formats.graphml import writing as writing_module
from collsim.formats.source import Source
from collsim.topology import GENERATORS, Topology, TopologyBuilder, from_networkx, shipped
from collsim.topology.names import KINDS
from collsim.units import INT64_MAX


def read(text: str) -> Topology:
    return parse_graphml(Source("x.graphml", text))


def fault(text: str) -> str:
    with pytest.raises(TopologyError) as caught:
        read(text)
    assert caught.value.line is not None
    return str(caught.value)


def sorted_links(topology: Topology) -> Topology:
    """The topology with its links in the order of the nodes that they leave, as NetworkX keeps them."""
    order = np.lexsort((topology.link_key, topology.link_dst, topology.link_src))
    columns = ("link_src", "link_dst", "link_bandwidth", "link_latency", "link_key", "link_kind_codes")
    return replace(topology, **{name: getattr(topology, name)[order] for name in columns})


NAME = st.text(min_size=1, max_size=8).filter(str.isprintable)


@st.composite
def topologies(draw: Callable[..., Any]) -> Topology:
    builder = TopologyBuilder(draw(NAME))
    names = draw(st.lists(NAME, min_size=1, max_size=6, unique=True))
    for name in names:
        builder.add_node(
            name,
            draw(st.sampled_from(KINDS)),
            send_overhead=draw(st.sampled_from([0, 1, 1_500_000, INT64_MAX])),
            reduce_bandwidth=draw(st.sampled_from([0, 1, 10**12, INT64_MAX])),
            channel_bandwidth=draw(st.sampled_from([0, 20 * 10**9])),
            reduces=draw(st.booleans()),
            multicasts=draw(st.booleans()),
            forwards=draw(st.booleans()),
        )
    for _ in range(draw(st.integers(0, 10)) if len(names) > 1 else 0):
        a, b = draw(st.lists(st.sampled_from(names), min_size=2, max_size=2, unique=True))
        add = draw(st.sampled_from([builder.add_link, builder.add_duplex]))
        kind = draw(st.sampled_from(["", "nvlink", "PCIe <5> & more"]))
        add(
            a,
            b,
            draw(st.integers(1, INT64_MAX)),
            draw(st.integers(0, INT64_MAX)),
            kind=kind,
            count=draw(st.integers(1, 3)),
        )
    return builder.build(draw(st.lists(st.sampled_from(names), min_size=1, unique=True)))


@given(topologies())
@settings(max_examples=200)
def test_what_is_written_is_read(topology: Topology) -> None:
    text = format_graphml(topology)
    assert read(text) == topology
    # and by NetworkX, which keeps all but the order of links from different nodes
    again = from_networkx(nx.parse_graphml(text, force_multigraph=True))
    assert sorted_links(again) == sorted_links(topology)
    assert sorted_links(from_networkx(nx.parse_graphml(text))) == sorted_links(topology)


@pytest.mark.parametrize("name", [*shipped(), *GENERATORS])
def test_machines_go_there_and_back(name: str, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "dims": (3, 2),
        "dimension": 3,
        "branching": 2,
        "height": 2,
        "gpus": 16,
        "nodes": 2,
        "groups": 3,
    }
    sizes |= {"routers": 2, "n": 5}
    if name in shipped():
        topology = collsim.topology.load_topology(name)
    else:
        from collsim.topology.schema import arguments

        topology = GENERATORS[name](**{key: sizes[key] for key, what in arguments(name).items() if what.required})
    path = tmp_path / "machine.graphml"
    write_graphml(topology, path)
    again = read_graphml(path)
    assert again == topology
    assert again.name == topology.name
    assert again.description == topology.description
    assert [again.link_kind(link) for link in range(again.n_links)] == [
        topology.link_kind(link) for link in range(topology.n_links)
    ]
    graph = nx.read_graphml(path)
    assert from_networkx(graph).name == topology.name
    assert sorted_links(from_networkx(graph)) == sorted_links(topology)
    # NetworkX writes in its own order and with seconds as numbers; the index of each link tells the order
    nx.write_graphml(topology.graph, path)
    assert read_graphml(path) == topology


def test_a_run_on_what_was_read_is_the_same(tmp_path: Path) -> None:
    topology = collsim.topology.load_topology("dgx-h100-x4")
    write_graphml(topology, tmp_path / "x.graphml")
    times = [
        collsim.run("all_reduce", machine, size="16MiB", algorithm="ring").time
        for machine in (topology, collsim.load_topology(tmp_path / "x.graphml"))
    ]
    assert times[0] == times[1]


GEPHI = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key attr.name="label" attr.type="string" for="node" id="label"/>
<key attr.name="Edge Label" attr.type="string" for="edge" id="edgelabel"/>
<key attr.name="weight" attr.type="double" for="edge" id="weight"/>
<key attr.name="r" attr.type="int" for="node" id="r"/>
<key attr.name="Bandwidth" attr.type="string" for="edge" id="bandwidth"/>
<key attr.name="Latency" attr.type="string" for="edge" id="latency"/>
<key attr.name="Kind" attr.type="string" for="node" id="kind"/>
<graph edgedefault="undirected">
<node id="gpu0"><data key="label">GPU 0</data><data key="r">153</data></node>
<node id="gpu1"><data key="label">GPU 1</data></node>
<node id="sw"><data key="kind">switch</data></node>
<edge id="e0" source="gpu0" target="sw"><data key="weight">1.0</data><data key="bandwidth">400 Gbps</data>
<data key="latency">1.5us</data></edge>
<edge id="e1" source="sw" target="gpu1" directed="true"><data key="bandwidth">25GiB/s</data>
<data key="latency">300ns</data></edge>
</graph>
</graphml>
"""


def test_a_graph_of_gephi() -> None:
    topology = read(GEPHI)
    assert topology.name == "x"
    assert topology.ranks == ("gpu0", "gpu1")
    assert topology.kinds == ("gpu", "gpu", "switch")
    assert [topology.link_name(link) for link in range(3)] == ["gpu0->sw", "sw->gpu0", "sw->gpu1"]
    assert topology.link_bandwidth.tolist() == [50 * 10**9, 50 * 10**9, 25 * 2**30]
    assert topology.link_latency.tolist() == [1_500_000, 1_500_000, 300_000]
    assert topology.description == "2 nodes without a kind were taken for GPUs, for the file gives no kind."
    assert topology.source == "GraphML file x.graphml"


YED = """<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:y="http://www.yworks.com/xml/graphml">
  <key for="port" id="d0" yfiles.type="portgraphics"/>
  <key attr.name="url" attr.type="string" for="node" id="d4"/>
  <key for="node" id="d6" yfiles.type="nodegraphics"/>
  <key attr.name="bandwidth" attr.type="string" for="edge" id="d7"><default>64GB/s</default></key>
  <key attr.name="latency" attr.type="double" for="edge" id="d8"><default>8.0E-7</default></key>
  <key for="edge" id="d10" yfiles.type="edgegraphics"/>
  <key for="graphml" id="d9" yfiles.type="resources"/>
  <graph edgedefault="directed" id="G">
    <node id="n0"><data key="d6"><y:ShapeNode><y:Geometry height="30.0"/>
      <y:NodeLabel alignment="center">left <y:LabelModel/></y:NodeLabel></y:ShapeNode></data></node>
    <node id="n1"><data key="d6"><y:ShapeNode><y:NodeLabel>right</y:NodeLabel></y:ShapeNode></data>
      <port name="p"/></node>
    <edge id="e0" source="n0" target="n1" sourceport="p"><data key="d10"><y:PolyLineEdge/></data></edge>
    <edge id="e1" source="n1" target="n0"><data key="d7">32GB/s</data></edge>
    <edge id="e2" source="n1" target="n0"/>
  </graph>
  <data key="d9"><y:Resources/></data>
</graphml>
"""


def test_a_drawing_of_yed_has_labels_for_names_and_defaults() -> None:
    topology = read(YED)
    assert topology.nodes == ("left", "right")
    assert [topology.link_name(link) for link in range(3)] == ["left->right", "right->left#0", "right->left#1"]
    assert topology.link_bandwidth.tolist() == [64 * 10**9, 32 * 10**9, 64 * 10**9]
    assert topology.link_latency.tolist() == [800_000] * 3
    assert topology.description.startswith("All nodes were taken for GPUs")
    # two nodes of one label are told apart by their ids
    assert read(YED.replace(">right<", ">left<")).nodes == ("n0", "n1")


def graph(
    edges: str = "", nodes: str = '<node id="a"/><node id="b"/>', head: str = "", default: str = "directed"
) -> str:
    keys = "".join(
        f'<key id="{key}" for="{what}" attr.name="{name}" attr.type="{kind}"/>\n'
        for key, what, name, kind in (
            ("B", "edge", "bandwidth", "string"),
            ("b", "edge", "bandwidth", "double"),
            ("L", "edge", "latency", "string"),
            ("l", "edge", "latency", "double"),
            ("k", "node", "kind", "string"),
            ("r", "node", "rank", "double"),
            ("f", "node", "forwards", "boolean"),
            ("o", "node", "send_overhead", "double"),
            ("d", "node", "reduce_bandwidth", "long"),
            ("x", "edge", "colour", "string"),
            ("n", "edge", "kind", "string"),
        )
    )
    return f'<graphml>\n{keys}{head}<graph edgedefault="{default}">\n{nodes}\n{edges}\n</graph></graphml>'


def edge(**data: str) -> str:
    return (
        '<edge source="a" target="b">'
        + "".join(f'<data key="{key}">{text}</data>' for key, text in data.items())
        + "</edge>"
    )


@pytest.mark.parametrize(
    ("bandwidth", "latency", "wanted"),
    [
        ({"B": "50GB/s"}, {"L": "2us"}, (50 * 10**9, 2_000_000)),
        ({"b": "5E10"}, {"l": "2e-06"}, (50 * 10**9, 2_000_000)),
        ({"b": " 50000000000.0 "}, {"l": "0"}, (50 * 10**9, 0)),
        # decimal to the last digit, where doubles are not
        ({"b": "9007199254740993"}, {"l": "9007.199254740993"}, (9007199254740993, 9007199254740993)),
        ({"b": "+.5e1"}, {"l": "1.e-12"}, (5, 1)),
    ],
)
def test_quantities_are_texts_or_si_numbers(bandwidth: Any, latency: Any, wanted: tuple[int, int]) -> None:
    topology = read(graph(edge(**bandwidth, **latency)))
    assert (topology.link_bandwidth[0], topology.link_latency[0]) == wanted


def test_ranks_and_devices() -> None:
    nodes = """<node id="a"><data key="r">1.0</data><data key="o">1e-6</data><data key="d">0</data></node>
    <node id="b"><data key="r">0</data><data key="k">host</data><data key="f">False</data><data key="d">7</data></node>
    <node id="c"/>"""
    topology = read(graph(edge(B="1GB/s", L="1us"), nodes))
    assert topology.ranks == ("b", "a")
    assert topology.send_overhead.tolist() == [1_000_000, 0, 0]
    assert topology.reduce_bandwidth.tolist() == [0, 7, 0]
    assert topology.forwards.tolist() == [True, False, True]


TWO = edge(B="1GB/s", L="1us")
FAULTS = [
    ("<nodes/>", "x.graphml:1:1: nodes: expected the root <graphml>, got 'nodes'"),
    ("<graphml/>", "expected a <graph>, got none"),
    (graph().replace("</graphml>", "<graph edgedefault='directed'/></graphml>"), "got a second one"),
    (graph(default="both"), "expected edgedefault to be directed or undirected, got 'both'"),
    (graph().replace(' edgedefault="directed"', ""), "expected edgedefault to be directed or undirected, got nothing"),
    (graph(nodes=""), "expected nodes, got none"),
    (graph(nodes="<node/>"), "expected an attribute 'id'"),
    (graph(nodes='<node id="a"/>\n<node id="a"/>'), "expected each node once, got 'a' again (first in line 14)"),
    (graph(nodes='<node id=""/>'), "expected an id of 1 to 200 printable letters, got ''"),
    (graph(nodes='<node id="a&#9;b"/>'), "printable letters, got 'a\\tb'"),
    (graph(nodes=f'<node id="{"a" * 201}"/>'), "1 to 200 printable letters"),
    (graph(nodes='<node id="a"><data key="k">gpux</data></node>'),
     "data.kind: expected one of gpu, switch, nic, host, got 'gpux'; did you mean 'gpu'?"),
    (graph(nodes='<node id="a"><data key="q">gpu</data></node>'), "data.key: expected the id of a <key>, got 'q'"),
    (graph(nodes='<node id="a"><graph edgedefault="directed"/></node>'), "ungroup its nodes"),
    (graph("<hyperedge/>"), "got a hyperedge"),
    (graph(nodes='<node id="a"><data key="r">0</data></node>\n<node id="b"><data key="r">0</data></node>'),
     "x.graphml:15:14: data.rank: expected each rank once, got 0 of 'a' too"),
    (graph(nodes='<node id="a"><data key="r">1.5</data></node>'), "expected a whole number from 0, got '1.5'"),
    (graph(nodes='<node id="a"><data key="r">-1</data></node>'), "expected a whole number from 0, got '-1'"),
    (graph(nodes='<node id="a"><data key="f">maybe</data></node>'), "expected true or false, got 'maybe'"),
    (graph(nodes='<node id="a"><data key="k">switch</data></node>'), "no node of kind 'gpu', so no rank"),
    (graph('<edge source="a" target="c"/>'), "edge.target: expected the id of a node, got 'c'"),
    (graph('<edge source="a"/>'), "expected an attribute 'target', got none"),
    (graph('<edge source="a" target="a"/>'), "expected another node at the other end, got 'a' at both"),
    (graph(edge(L="1us")), "x.graphml:15:1: edge: expected an attribute 'bandwidth' such as 50GB/s, got none"),
    (graph(edge(B="1GB/s")), "expected an attribute 'latency' such as 2us, got none"),
    (graph(edge(B="50", L="1us")), "data.bandwidth: '50': expected a unit of bytes/s or bits/s"),
    (graph(edge(b="fast", L="1us")), "expected a number (of B/s), got 'fast'"),
    (graph(edge(b="nan", L="1us")), "expected a number (of B/s), got 'nan'"),
    (graph(edge(b="0", L="1us")), "expected a bandwidth of at least 1B/s"),
    (graph(edge(b="1e400", L="1us")), "too large"),
    (graph(edge(b="1" * 90, L="1us")), "data.bandwidth: "),
    (graph(edge(B="1GB/s", l="-1")), "got a negative one"),
    (graph(edge(B="1GB/s", L="1us", b="3")), "expected 'bandwidth' once, got it again"),
    (graph(edge(B="1GB/s", L="1us", n="a&#9;b")), "expected a word such as nvlink"),
    (graph(TWO.replace("<edge", '<edge directed="perhaps"')), "expected directed to be true or false, got 'perhaps'"),
    (graph(head='<key id="B" for="node"/>'), "key.id: expected each key once, got 'B' again"),
    ('<!DOCTYPE x [<!ENTITY e "aaaa">]><graphml>&e;</graphml>', "an entity declaration"),
    ("<graphml><graph>", "expected XML"),
    ("", "expected XML"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FAULTS, ids=[str(number) for number in range(len(FAULTS))])
def test_mistakes_are_told_with_their_place(text: str, message: str) -> None:
    assert message in fault(text)


def test_a_file_that_declares_much_is_refused_soon() -> None:
    """A default for each of many keys, looked up for each of many nodes, would take hours."""
    keys = "".join(f'<key id="{i}" for="node" attr.name="{i}"><default>x</default></key>' for i in range(20_000))
    nodes = "".join(f'<node id="{i}"/>' for i in range(20_000))
    assert "expected at most 1,000 keys, got more" in fault(graph(nodes=nodes, head=keys))


def test_a_misspelt_attribute_is_told() -> None:
    text = graph(edge(B="1GB/s", L="1us")).replace('attr.name="bandwidth"', 'attr.name="bandwith"')
    assert "expected an attribute 'bandwidth' such as 50GB/s, got none; did you mean 'bandwith'?" in fault(text)


def test_the_index_orders_links_only_where_each_has_its_own() -> None:
    key = '<key id="i" for="edge" attr.name="index" attr.type="long"/>'
    edges = [TWO.replace("</edge>", f'<data key="i">{i}</data></edge>') for i in (1, 0)]
    back = [text.replace('"a"', '"c"').replace('"b"', '"a"').replace('"c"', '"b"') for text in edges]
    assert read(graph(edges[0] + back[1], head=key)).link_src.tolist() == [1, 0]
    assert read(graph(edges[0] + back[0], head=key)).link_src.tolist() == [0, 1]


def test_what_graphml_cannot_say_is_refused() -> None:
    ring = collsim.topology.ring(3)
    routed = replace(ring, given_routes={(0, 1): (0,)})
    for topology, message in (
        (routed, r"GraphML cannot say given routes; write a topology file \(.yaml\)"),
        (replace(ring, nodes=("a", "b", "c\n")), r"the name 'c\\n'; write a topology file"),
        (replace(ring, kinds=("gpu", "gpu", "cpu")), "the kind 'cpu' of 'gpu2'; expected one of gpu"),
        (replace(ring, link_kind_names=("a\tb",)), "of links; take a word"),
    ):
        with pytest.raises(TopologyError, match=message):
            format_graphml(topology)


def test_more_than_is_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing_module, "MAX_ELEMENTS", 100)
    assert format_graphml(collsim.topology.ring(3))
    with pytest.raises(TopologyError, match="GraphML of 30 links is more than 100 elements"):
        format_graphml(collsim.topology.ring(30))


def test_labels_that_xml_does_not_have_are_cleaned() -> None:
    ring = replace(collsim.topology.ring(3), name="a\x00<b>", description="one\ntwo \x07 & \ud800", source="]]>")
    again = read(format_graphml(ring))
    assert again == ring
    assert (again.name, again.description, again.source) == ("a <b>", "one\ntwo   &", "]]>")


def test_only_the_named_file_is_written(tmp_path: Path) -> None:
    ring = collsim.topology.ring(3)
    for wrong in ("x.txt", "no/x.graphml"):
        with pytest.raises(InputError, match="graph: "):
            write_graphml(ring, tmp_path / wrong)
    write_graphml(ring, tmp_path / "x.xml")
    assert [file.name for file in tmp_path.iterdir()] == ["x.xml"]
    with pytest.raises(TopologyError, match="no such file"):
        read_graphml(tmp_path / "y.graphml")


def test_1024_gpus(tmp_path: Path) -> None:
    topology = collsim.topology.fat_tree(1024, 32)
    write_graphml(topology, tmp_path / "x.graphml")
    assert read_graphml(tmp_path / "x.graphml") == topology


WORDS = ["0", "-1", "1e400", str(10**30), "nan", "n" * 100_000, "", "true", "<", "&", "gpu", "\u0663", "1e-400"]


def mutated(text: str, rng: random.Random) -> str:
    what = rng.randrange(5)
    at, to = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    if what == 0:
        return text[:at]
    if what == 1:
        return text[:to] + text[at:to] + text[to:]
    if what == 2 and at < len(text):
        return text[:at] + chr(rng.choice([*range(32, 127), 0x663, 0x1F600])) + text[at + 1 :]
    places = list(re.finditer(r'(?<=>)[^<>]+(?=<)|(?<=")[^"<>]*(?=")', text))
    if not places:
        return text
    place = rng.choice(places)
    new = rng.choice([rng.choice(WORDS), rng.choice(places)[0]])
    return text[: place.start()] + new + text[place.end() :]


@pytest.mark.parametrize("sample", ["gephi", "yed", "ours"])
def test_damaged_files_are_refused_with_a_place(sample: str) -> None:
    text = {"gephi": GEPHI, "yed": YED, "ours": format_graphml(collsim.topology.load_topology("pcie-4gpu"))}[sample]
    rng = random.Random(sample)
    outcomes: Counter[bool] = Counter()
    for _ in range(250):
        damaged = text
        for _ in range(rng.randint(1, 3)):
            damaged = mutated(damaged, rng)
        try:
            topology = read(damaged)
        except TopologyError as error:
            outcomes[False] += 1
            told = error.line is not None and len(str(error)) < 1000
        else:
            outcomes[True] += 1
            told = topology.n_ranks > 0
        assert told, damaged
    assert min(outcomes.values()) > 10
