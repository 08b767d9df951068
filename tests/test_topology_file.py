"""The topology file: what each feature means in nodes and links, and what each mistake is told as."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collsim.topology
from collsim.errors import TopologyError
from collsim.topology import Topology, load_topology
from collsim.topology.file import loads

LINK = "bandwidth: 50GB/s, latency: 1us"


def links(topology: Topology) -> list[str]:
    return [topology.link_name(link) for link in range(topology.n_links)]


def test_every_value_arrives_exactly() -> None:
    topology = loads(
        """
name: two
description: Two GPUs
source: nowhere
nodes:
  - name: gpu[0-1]
    kind: gpu
    send_overhead: 1.5us
    reduce_bandwidth: 1TB/s
    channel_bandwidth: 20 GB/s
    forwards: false
  - {name: sw, kind: switch, reduces: true, multicasts: true}
links:
  - {from: "gpu[0]", to: sw, bandwidth: 400Gbps, latency: 500 ns, kind: ib}
  - {from: sw, to: "gpu[1]", bandwidth: 25GiB/s, latency: 0s, count: 2}
"""
    )
    assert (topology.name, topology.description, topology.source) == ("two", "Two GPUs", "nowhere")
    assert topology.nodes == ("gpu[0]", "gpu[1]", "sw")
    assert topology.kinds == ("gpu", "gpu", "switch")
    assert topology.send_overhead.tolist() == [1_500_000, 1_500_000, 0]
    assert topology.reduce_bandwidth.tolist() == [10**12, 10**12, 0]
    assert topology.channel_bandwidth.tolist() == [20 * 10**9, 20 * 10**9, 0]
    assert topology.forwards.tolist() == [False, False, True]
    assert topology.reduces.tolist() == topology.multicasts.tolist() == [False, False, True]
    assert links(topology) == ["gpu[0]->sw", "sw->gpu[1]#0", "sw->gpu[1]#1"]
    assert topology.link_bandwidth.tolist() == [50 * 10**9, 25 * 2**30, 25 * 2**30]
    assert topology.link_latency.tolist() == [500_000, 0, 0]
    assert [topology.link_kind(link) for link in range(3)] == ["ib", "", ""]
    assert topology.ranks == ("gpu[0]", "gpu[1]")
    assert topology.structure == {}


def one_link(link: str) -> list[str]:
    nodes = '[{name: "gpu[0-3]", kind: gpu}, {name: "sw[0-1]", kind: switch}]'
    return links(loads(f"name: x\nnodes: {nodes}\nlinks:\n  - {{{link}, {LINK}}}"))


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ('between: ["gpu[0]", "gpu[2]"]', "0-2 2-0"),
        ('from: "gpu[0]", to: "gpu[2]"', "0-2"),
        ('from: "gpu[0-1]", to: "gpu[2-3]"', "0-2 0-3 1-2 1-3"),
        ('from: "gpu[0-1]", to: "gpu[2-3]", pairing: zip', "0-2 1-3"),
        ('between: ["gpu[0,3]", "gpu[1-2]"], pairing: zip', "0-1 1-0 3-2 2-3"),
        ('from: "gpu[0-3]", to: "gpu[1,2,3,0]", pairing: zip', "0-1 1-2 2-3 3-0"),
        ('between: ["gpu[0-2]", "gpu[0-2]"]', "0-1 1-0 0-2 2-0 1-2 2-1"),
        ('between: ["gpu[0-1]", "gpu[1-2]"]', "0-1 1-0 0-2 2-0 1-2 2-1"),
        ('from: "gpu[0-1]", to: "gpu[0-1]"', "0-1 1-0"),
    ],
)
def test_pairing(link: str, expected: str) -> None:
    wanted = [f"gpu[{a}]->gpu[{b}]" for a, b in (pair.split("-") for pair in expected.split())]
    assert one_link(link) == wanted


def test_entries_that_join_the_same_nodes_are_parallel_links() -> None:
    assert one_link('from: "gpu[0]", to: "sw[0]", count: 3') == [f"gpu[0]->sw[0]#{key}" for key in range(3)]
    twice = f"- {{between: [a, b], {LINK}}}\n  - {{between: [b, a], {LINK}}}"
    topology = loads(f"name: x\nnodes: [{{name: a, kind: gpu}}, {{name: b, kind: gpu}}]\nlinks:\n  {twice}")
    assert links(topology) == ["a->b#0", "b->a#0", "b->a#1", "a->b#1"]


MODULES = """
name: cluster
modules:
  - name: node
    count: %d
    nodes:
      - {name: "gpu[0-7]", kind: gpu, send_overhead: 1us}
      - {name: sw, kind: switch}
      - {name: "nic[0-7]", kind: nic}
    links:
      - {between: ["gpu[0-7]", sw], bandwidth: 450GB/s, latency: 300ns, kind: nvlink}
      - {between: ["gpu[0-7]", "nic[0-7]"], pairing: zip, bandwidth: 63GB/s, latency: 500ns, count: 2}
nodes:
  - {name: top, kind: switch}
links:
  - {between: ["node[0-%d].nic[0-7]", top], bandwidth: 400Gbps, latency: 1us}
"""


def test_modules_repeat_nodes_and_links() -> None:
    topology = loads(MODULES % (3, 2))
    assert topology.nodes[:2] == ("node[0].gpu[0]", "node[0].gpu[1]")
    assert topology.nodes[17:19] == ("node[1].gpu[0]", "node[1].gpu[1]")
    assert topology.nodes[-1] == "top"
    assert topology.n_ranks == 24
    assert topology.send_overhead[topology.node_index("node[2].gpu[7]")] == 1_000_000
    names = links(topology)
    assert names[:2] == ["node[0].gpu[0]->node[0].sw", "node[0].sw->node[0].gpu[0]"]
    assert "node[2].gpu[7]->node[2].nic[7]#1" in names
    # No link of a module leaves its copy; those of the file join the copies.
    inner = [name for name in names if "top" not in name]
    assert len(inner) == 3 * (16 + 32)
    assert all(re.fullmatch(r"node\[(\d)\]\..*->node\[\1\]\..*", name) for name in inner)
    assert len(names) - len(inner) == 2 * 24
    assert topology.structure == {"kind": "modules", "module": "node", "count": 3, "ranks_per_module": 8}
    ends = [topology.link_name(link).split("#")[0] for link in topology.route(0, 9)]
    assert ends == [
        "node[0].gpu[0]->node[0].nic[0]",
        "node[0].nic[0]->top",
        "top->node[1].nic[1]",
        "node[1].nic[1]->node[1].gpu[1]",
    ]


def test_a_hundred_and_twenty_eight_nodes_are_written_once() -> None:
    topology = loads(MODULES % (128, 127))
    assert (topology.n_ranks, topology.n_nodes, topology.n_links) == (1024, 128 * 17 + 1, 128 * 48 + 2 * 1024)
    degrees = Counter(topology.link_src.tolist())
    assert degrees[topology.node_index("top")] == 1024
    assert {degrees[topology.node_index(f"node[{i}].sw")] for i in range(128)} == {8}


def test_file_order_decides_the_ranks() -> None:
    modules = "modules: [{name: m, count: 2, nodes: [{name: g, kind: gpu}]}]"
    nodes = "nodes: [{name: g, kind: gpu}]"
    assert loads(f"name: x\n{modules}\n{nodes}").ranks == ("m[0].g", "m[1].g", "g")
    assert loads(f"name: x\n{nodes}\n{modules}").ranks == ("g", "m[0].g", "m[1].g")
    # Ranks outside of the modules, or modules with none: not a structure of modules.
    assert loads(f"name: x\n{modules}\n{nodes}").structure == {}
    assert loads("name: x\nmodules: [{name: m, count: 2, nodes: [{name: s, kind: nic}]}]\n" + nodes).structure == {}


def test_ranks_may_be_named() -> None:
    text = MODULES % (2, 1) + 'ranks: ["node[1].gpu[0,2]", "node[0].gpu[0,2]"]\n'
    assert loads(text).ranks == ("node[1].gpu[0]", "node[1].gpu[2]", "node[0].gpu[0]", "node[0].gpu[2]")
    assert loads(text).structure == {}
    text = MODULES % (2, 1) + 'ranks: ["node[0].gpu[0,2]", "node[1].gpu[0,2]"]\n'
    assert loads(text).structure == {"kind": "modules", "module": "node", "count": 2, "ranks_per_module": 2}
    assert loads("name: x\nnodes: [{name: 'cpu[0-3]', kind: host}]\nranks: ['cpu[0-3]']").n_ranks == 4


SQUARE = f"""
name: square
nodes: [{{name: "gpu[0-3]", kind: gpu}}]
links:
  - {{between: ["gpu[0-3]", "gpu[1,2,3,0]"], pairing: zip, {LINK}}}
"""


def test_routes_may_be_given() -> None:
    topology = loads(SQUARE + 'routes: [{from: "gpu[0-1]", to: "gpu[3]", via: ["gpu[2-2]"]}]')
    assert [topology.link_name(link) for link in topology.route(0, 3)] == [
        "gpu[0]->gpu[1]",
        "gpu[1]->gpu[2]",
        "gpu[2]->gpu[3]",
    ]
    assert [topology.link_name(link) for link in topology.route(1, 3)] == ["gpu[1]->gpu[2]", "gpu[2]->gpu[3]"]
    assert len(topology.route(3, 0)) == 1
    assert len(loads(SQUARE).route(0, 3)) == 1


def test_anchors_share_what_links_have_in_common() -> None:
    topology = loads(
        "name: x\nnodes: [{name: a, kind: gpu}, {name: b, kind: gpu}]\n"
        f"links:\n  - &one {{between: [a, b], {LINK}}}\n  - *one"
    )
    assert topology.n_links == 4


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("ring, n: 8, bandwidth: 50GB/s, latency: 1us", lambda t: t.ring(8, "50GB/s", "1us")),
        ("torus, dims: [4, 2], bandwidth: 400Gbps, latency: 1us", lambda t: t.torus((4, 2), 50e9, 1e-6)),
        ("torus, dims: 4, bandwidth: 400Gbps, latency: 1us", lambda t: t.torus(4, 50e9, 1e-6)),
        ("switch, n: 4, reduces: true", lambda t: t.switch(4, reduces=True)),
        (
            "fat_tree, gpus: 16, gpus_per_leaf: 4, oversubscription: 2.0",
            lambda t: t.fat_tree(16, 4, oversubscription=2),
        ),
        ("hypercube, dimension: 3, send_overhead: 2us", lambda t: t.hypercube(3, send_overhead="2us")),
        ("rail_optimized, nodes: 2, gpus: 4, nic_latency: 1us", lambda t: t.rail_optimized(2, 4, nic_latency="1us")),
    ],
)
def test_generators_have_the_arguments_of_their_functions(text: str, same: Any) -> None:
    topology = loads(f"name: mine\ndescription: d\nsource: s\ngenerator: {{name: {text}}}")
    expected = same(collsim.topology)
    assert topology == expected
    assert topology.structure == expected.structure
    assert (topology.name, topology.description, topology.source) == ("mine", "d", "s")


def test_load_topology_reads_a_file_and_names_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SQUARE, encoding="utf-8")
    assert load_topology(file) == load_topology(str(file)) == loads(SQUARE)
    file.write_text("name: x\nnodes: [{name: a}]", encoding="utf-8")
    with pytest.raises(TopologyError) as caught:
        load_topology(file)
    assert str(caught.value).startswith(
        f"{file}:2:9: nodes[0].kind: expected one of gpu, switch, nic, host, got nothing"
    )
    assert (caught.value.path, caught.value.line, caught.value.column) == (str(file), 2, 9)
    assert caught.value.field == "nodes[0].kind"


def test_reading_is_lazy() -> None:
    code = (
        "import sys, collsim.topology as t; t.load_topology; t.ring(4);"
        "assert not {'pydantic', 'yaml', 'networkx'} & set(sys.modules), sorted(sys.modules);"
        "from collsim.topology.file import loads; loads('name: x\\nnodes: [{name: a, kind: gpu}]');"
        "assert 'networkx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_arrays_are_frozen_and_typed() -> None:
    topology = loads(SQUARE)
    assert topology.link_bandwidth.dtype == np.int64
    assert not topology.link_bandwidth.flags.writeable


def test_routes_of_ranges_are_those_of_their_pairs() -> None:
    """They are found together: each has to be what it would be alone."""
    leaves = """
name: x
nodes: [{name: "gpu[0-7]", kind: gpu}, {name: "leaf[0-1]", kind: switch}, {name: "spine[0-2]", kind: switch}]
links:
  - {between: ["gpu[0-3]", "leaf[0]"], bandwidth: 1GB/s, latency: 1us, count: 2}
  - {between: ["gpu[4-7]", "leaf[1]"], bandwidth: 1GB/s, latency: 1us}
  - {between: ["leaf[0-1]", "spine[0-2]"], bandwidth: 1GB/s, latency: 1us, count: 2}
"""
    plain = loads(leaves)
    given = loads(leaves + 'routes: [{from: "gpu[0-3]", to: "gpu[4-7]", via: ["leaf[0]", "spine[2]"]}]')
    assert len(given.given_routes) == 16
    for src in range(4):
        for dst in range(4, 8):
            alone = plain.route_via(src, dst, ("leaf[0]", "spine[2]"))
            assert given.given_routes[src, dst] == given.route(src, dst) == given.route(src, dst, 1) == alone
            assert len(alone) == 4
            assert plain.link_name(alone[1]).startswith("leaf[0]->spine[2]")
    ptr, found = given.routes(np.array([0, 4, 3, 0]), np.array([4, 0, 7, 1]))
    for row, (src, dst) in enumerate(((0, 4), (4, 0), (3, 7), (0, 1))):
        wanted = given.given_routes.get((src, dst), plain.route(src, dst))
        assert tuple(found[ptr[row] : ptr[row + 1]].tolist()) == wanted


def test_routes_of_ranges_are_searched_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = []
    searched = Topology.route_nodes

    def counting(self: Topology, src: Any, dst: Any, channel: Any = 0) -> Any:
        searches.append(len(src))
        return searched(self, src, dst, channel)

    monkeypatch.setattr(Topology, "route_nodes", counting)
    topology = loads(
        "name: x\nnodes: [{name: 'gpu[0-199]', kind: gpu}, {name: sw, kind: switch}]\n"
        f"links: [{{between: ['gpu[0-199]', sw], {LINK}}}]\n"
        "routes: [{from: 'gpu[0-99]', to: 'gpu[100-199]', via: [sw]}]"
    )
    assert len(topology.given_routes) == 10_000
    assert searches == [20_000]


def test_a_machine_goes_by_its_name_next_to_a_directory_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring8").mkdir()
    assert load_topology("ring8").n_ranks == 8
    (tmp_path / "mine").mkdir()
    for name, message in (
        ("mine", "mine: expected a file, got a directory; name the .yaml file in it"),
        ("dgx-h10", "; did you mean 'dgx-h100'?"),
        (
            "dgx-h100.yaml",
            "dgx-h100.yaml: expected a topology file, got no such file; did you mean the shipped machine 'dgx-h100'?",
        ),
        (
            "topologies/dgx-h100.yaml",
            "topologies/dgx-h100.yaml: expected a topology file, got no such file; "
            "did you mean the shipped machine 'dgx-h100'?",
        ),
        ("a" * 5000, "aaa...: expected a topology file or a shipped machine ("),
        ("a" * 5000 + ".yaml", "aaa...: expected a readable file, got an error: "),
    ):
        with pytest.raises(TopologyError) as caught:
            load_topology(name)
        assert message in str(caught.value)
        assert len(str(caught.value)) < 600
    (tmp_path / "ring8").rmdir()
    (tmp_path / "ring8").write_text("name: x\nnodes: [{name: mine, kind: gpu}]")
    assert load_topology("ring8").nodes == ("mine",)
