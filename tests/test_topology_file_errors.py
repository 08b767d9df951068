"""What a mistake in a topology file is told as: one line, its place, what was expected, what was got, the remedy."""

from __future__ import annotations

import re

import pytest

from collsim.errors import TopologyError
from collsim.topology import file as topology_file
from collsim.topology.file import loads

LINK = "bandwidth: 50GB/s, latency: 1us"
SQUARE = f"""
name: square
nodes: [{{name: "gpu[0-3]", kind: gpu}}]
links:
  - {{between: ["gpu[0-3]", "gpu[1,2,3,0]"], pairing: zip, {LINK}}}
"""


def fault(text: str) -> str:
    with pytest.raises(TopologyError) as caught:
        loads(text, "f.yaml")
    message = str(caught.value)
    assert "\n" not in message
    return message


NODES = 'name: x\nnodes:\n  - {name: "gpu[0-3]", kind: gpu}\n  - {name: sw, kind: switch}\n'
BANDWIDTH = "expected a bandwidth with its unit such as 450GB/s or 400Gbps"
TIME = "expected a time with its unit such as 2us or 500ns"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # Units.
        (
            NODES + 'links:\n  - {between: ["gpu[0-3]", sw], bandwidth: 450, latency: 1us}',
            f"f.yaml:6:44: links[0].bandwidth: {BANDWIDTH}, got 450; the unit is missing, did you mean 450GB/s?",
        ),
        (
            NODES + 'links:\n  - {between: ["gpu[0-3]", sw], bandwidth: 1e9, latency: 1us}',
            f"f.yaml:6:44: links[0].bandwidth: {BANDWIDTH}, got 1e9; the unit is missing, did you mean 1e9GB/s?",
        ),
        (
            NODES + 'links:\n  - {between: ["gpu[0-3]", sw], bandwidth: "450", latency: 1us}',
            f"f.yaml:6:44: links[0].bandwidth: {BANDWIDTH}, got '450'; the unit is missing, did you mean 450GB/s?",
        ),
        (
            NODES + 'links:\n  - {between: ["gpu[0-3]", sw], bandwidth: 450GB/s, latency: 2}',
            f"f.yaml:6:62: links[0].latency: {TIME}, got 2; the unit is missing, did you mean 2us?",
        ),
        (
            NODES + 'links:\n  - {between: ["gpu[0-3]", sw], bandwidth: 25GT/s, latency: 1us}',
            f"f.yaml:6:44: links[0].bandwidth: {BANDWIDTH}, got '25GT/s'; GT/s counts transfers of a lane, not bytes",
        ),
        (
            NODES + 'links:\n  - {between: ["gpu[0-3]", sw], bandwidth: 25gbps, latency: 1us}',
            f"f.yaml:6:44: links[0].bandwidth: {BANDWIDTH}, got '25gbps'; 'gbps' is not a unit",
        ),
        (
            NODES + 'links:\n  - {between: ["gpu[0-3]", sw], bandwidth: 25GB/s, latency: -1us}',
            f"f.yaml:6:61: links[0].latency: {TIME}, got '-1us'; it is negative",
        ),
        (
            NODES + 'links:\n  - {between: ["gpu[0-3]", sw], bandwidth: 0GB/s, latency: 1us}',
            f"f.yaml:6:44: links[0].bandwidth: {BANDWIDTH}, got '0GB/s'; it has to be a bandwidth of at least 1B/s",
        ),
        (
            NODES + 'links:\n  - {between: ["gpu[0-3]", sw], bandwidth: fast, latency: 1us}',
            f"f.yaml:6:44: links[0].bandwidth: {BANDWIDTH}, got 'fast'",
        ),
        (
            NODES + 'links:\n  - {between: ["gpu[0-3]", sw], bandwidth: [1GB/s], latency: 1us}',
            f"f.yaml:6:44: links[0].bandwidth: {BANDWIDTH}, got a list of 1",
        ),
        (
            NODES + 'links:\n  - {between: ["gpu[0-3]", sw], bandwidth: , latency: {a: b}}',
            f"f.yaml:6:44: links[0].bandwidth: {BANDWIDTH}, got nothing (and 1 more)",
        ),
        # Fields.
        (
            NODES + 'links:\n  - {between: ["gpu[0-3]", sw], bandwith: 450GB/s, latency: 1us}',
            "f.yaml:6:33: links[0].bandwith: expected one of between, from, to, pairing, bandwidth, latency, count, "
            "kind, got 'bandwith'; did you mean 'bandwidth'?",
        ),
        (
            NODES + "links:\n  - {between: [sw, sw], latency: 1us, colour: red}",
            f"f.yaml:6:5: links[0].bandwidth: {BANDWIDTH}, got nothing (and 1 more)",
        ),
        (
            "nam: x\nnodes: []",
            "f.yaml:1:1: nam: expected one of name, description, source, nodes, modules, links, ranks, routes, "
            "generator, got 'nam'; did you mean 'name'?",
        ),
        ("nodes: []", "f.yaml:1:1: name: expected a name in one line of text, got nothing"),
        ("name: 8\nnodes: []", "f.yaml:1:7: name: expected a name in one line of text, got 8; put it in quotes"),
        ('name: "a\\nb"\nnodes: []', "f.yaml:1:7: name: expected a name in one line of text, got 'a\\nb'"),
        ("- x", "f.yaml:1:1: expected a mapping with name, nodes and links, got a list of 1"),
        ("just words", "f.yaml:1:1: expected a mapping with name, nodes and links, got 'just words'"),
        ("name: x", "f.yaml:1:1: expected nodes, modules or a generator, got none of them"),
        (
            "name: x\nnodes: {a: b}",
            "f.yaml:2:8: nodes: expected a list of nodes such as - {name: gpu[0-7], kind: gpu}, got a",
        ),
        (
            "name: x\nnodes: [gpu]",
            "f.yaml:2:9: nodes[0]: expected a node such as {name: gpu[0-7], kind: gpu}, got 'gpu'",
        ),
        ("name: x\nnodes: [{name: a, kind: gpuu}]", "got 'gpuu'; did you mean 'gpu'?"),
        (
            "name: x\nnodes: [{name: a, kind: GPU}]",
            "expected one of gpu, switch, nic, host, got 'GPU'; did you mean 'gpu'?",
        ),
        ("name: x\nnodes: [{name: a, kind: gpu, reduces: no}]", "nodes[0].reduces: expected true or false, got 'no'"),
        ("name: x\nnodes: [{name: a, kind: gpu, reduces: 1}]", "nodes[0].reduces: expected true or false, got 1"),
        (
            "name: x\nmodules: [{name: 'n[0-2]', count: 2, nodes: [{name: a, kind: gpu}]}]",
            "give the number of copies as",
        ),
        (
            "name: x\nmodules: [{name: n, count: 0, nodes: [{name: a, kind: gpu}]}]",
            "expected a whole number of at least 1",
        ),
        ("name: x\nmodules: [{name: n, count: 1, nodes: []}]", "modules[0].nodes: expected a list of nodes"),
        (
            "name: x\nmodules: [{name: n, count: 1, nodes: [{name: a, kid: gpu}]}]",
            "f.yaml:2:49: modules[0].nodes[0].kid: expected one of name, kind, send_overhead",
        ),
        # Names and ranges.
        (NODES + f"links:\n  - {{between: ['gpu[0-3', sw], {LINK}}}", "got 'gpu[0-3'; close each [ with a ]"),
        (NODES + f"links:\n  - {{between: ['gpu[3-0]', sw], {LINK}}}", "expected a range from low to high, got [3-0]"),
        (NODES + f"links:\n  - {{between: ['gpu[1,0-2]', sw], {LINK}}}", "expected each index once, got 1 twice"),
        (NODES + f"links:\n  - {{between: ['gpu[00-03]', sw], {LINK}}}", "write indices without leading zeros"),
        (
            NODES + f"links:\n  - {{between: ['gpu 0', sw], {LINK}}}",
            "use letters, digits, _ . : / + - and ranges in [ ]",
        ),
        (NODES + f"links:\n  - {{between: ['0gpu', sw], {LINK}}}", "got '0gpu'; begin with a letter"),
        (
            NODES + f"links:\n  - {{between: ['gpu[0-4]', sw], {LINK}}}",
            "f.yaml:6:16: links[0].between[0]: expected the name of a node, got 'gpu[4]'; did you mean 'gpu[0-3]'?",
        ),
        (
            NODES + f"links:\n  - {{from: gpu0, to: sw, {LINK}}}",
            "f.yaml:6:12: links[0].from: expected the name of a node, got 'gpu0'; did you mean 'gpu[0-3]'?",
        ),
        (
            NODES + f"links:\n  - {{from: sw, to: xyz, {LINK}}}",
            "links[0].to: expected the name of a node, got 'xyz'; there are",
        ),
        (
            NODES + "  - {name: 'gpu[3-5]', kind: gpu}",
            "f.yaml:5:12: nodes[2].name: expected each node once, got 'gpu[3]' again",
        ),
        (
            "name: x\nmodules: [{name: n, count: 2, nodes: [{name: a, kind: gpu}]}]\n"
            "nodes: [{name: 'n[1].a', kind: gpu}]",
            "f.yaml:3:16: nodes[0].name: expected each node once, got 'n[1].a' again",
        ),
        # Links.
        (
            NODES + f"links:\n  - {{between: [sw, sw], {LINK}}}",
            "links[0].between[1]: expected another node at the other end",
        ),
        (
            NODES + f"links:\n  - {{between: ['gpu[0-1]', 'gpu[2,1]'], pairing: zip, {LINK}}}",
            "expected another node at the other end, got 'gpu[1]' at both",
        ),
        (
            NODES + f"links:\n  - {{between: ['gpu[0-3]', sw], pairing: zip, {LINK}}}",
            "f.yaml:6:42: links[0].pairing: expected two names that stand for equally many nodes, got 'gpu[0-3]' with "
            "4 and 'sw' with 1",
        ),
        (
            NODES + f"links:\n  - {{between: [sw], {LINK}}}",
            'expected two names such as ["gpu[0-7]", sw], got a list of 1',
        ),
        (NODES + f"links:\n  - {{from: sw, {LINK}}}", "expected between: [a, b], or from: and to:, got only from"),
        (NODES + f"links:\n  - {{{LINK}}}", "links[0]: expected between: [a, b], or from: and to:, got neither"),
        (NODES + f"links:\n  - {{between: [sw, a], to: sw, {LINK}}}", "from: and to:, got both; keep one of them"),
        (NODES + f"links:\n  - {{between: [sw, a], pairing: any, {LINK}}}", "pairing: expected all or zip, got 'any'"),
        (
            NODES + f"links:\n  - {{between: [sw, a], count: 1.5, {LINK}}}",
            "count: expected a whole number of at least 1, got 1.5",
        ),
        (
            NODES + f"links:\n  - {{between: [sw, a], count: true, {LINK}}}",
            "expected a whole number of at least 1, got true",
        ),
        (
            f"{NODES}modules: [{{name: n, count: 1, nodes: [{{name: a, kind: gpu}}], "
            f"links: [{{between: [a, sw], {LINK}}}]}}]",
            "modules[0].links[0].between[1]: expected the name of a node, got 'sw'; there are a",
        ),
        # Ranks and routes.
        (
            "name: x\nnodes: [{name: a, kind: host}]",
            "expected a node of kind gpu, got none; name the ranks with ranks: [...]",
        ),
        (NODES + "ranks: []", "f.yaml:5:8: ranks: expected at least one rank, got an empty list"),
        (NODES + "ranks: ['gpu[0-1]', 'gpu[1]']", "f.yaml:5:21: ranks[1]: expected each rank once, got 'gpu[1]' again"),
        (NODES + "ranks: ['gpu[0-1]', gpu9]", "f.yaml:5:21: ranks[1]: expected the name of a node, got 'gpu9'"),
        (NODES + "ranks: gpu", "ranks: expected a list of names such as [host0, host1], got 'gpu'"),
        (
            SQUARE + "routes: [{from: 'gpu[0]', to: 'gpu[1]', via: ['gpu[2-3]']}]",
            "via[0]: expected the name of one node, got",
        ),
        (
            SQUARE + "routes: [{from: 'gpu[0]', to: 'gpu[1]', via: [sw]}]",
            "routes[0].via[0]: expected the name of a node",
        ),
        (
            SQUARE + "routes: [{from: 'gpu[0]', to: 'gpu[1]', via: []}]",
            "routes[0].via: expected a list of the nodes on the way",
        ),
        (
            SQUARE + "routes: [{from: 'gpu[0]', to: 'gpu[0]', via: ['gpu[1]']}]",
            "expected another node at the other end",
        ),
        (
            SQUARE + "routes:\n  - &r {from: 'gpu[0]', to: 'gpu[2]', via: ['gpu[1]']}\n  - *r",
            "expected one route from 'gpu[0]' to 'gpu[2]', got a second one",
        ),
        (
            NODES + "routes: [{from: 'gpu[0]', to: 'gpu[1]', via: [sw]}]",
            "f.yaml:5:46: routes[0].via: expected nodes on a way from 'gpu[0]' to 'gpu[1]', got none: ",
        ),
        # Generators.
        ("name: x\ngenerator: {name: rnig, n: 8}", "f.yaml:2:19: generator.name: expected one of bidirectional_ring"),
        ("name: x\ngenerator: {name: rnig, n: 8}", "got 'rnig'; did you mean 'ring'?"),
        ("name: x\ngenerator: ring", "f.yaml:2:12: generator: expected a generator such as {name: torus, dims: [4, 4]"),
        (
            "name: x\ngenerator: {n: 8}",
            "f.yaml:2:12: generator.name: expected the name of a generator such as torus, got nothing",
        ),
        (
            "name: x\ngenerator:\n  name: ring\n  n: 8\n  bandwith: 1GB/s",
            "f.yaml:5:3: generator.bandwith: expected one of name, n, bandwidth, latency, send_overhead, "
            "reduce_bandwidth, channel_bandwidth, got 'bandwith'; did you mean 'bandwidth'?",
        ),
        (
            "name: x\ngenerator: {name: ring}",
            "f.yaml:2:12: generator.n: expected a whole number, got nothing; ring needs it",
        ),
        ("name: x\ngenerator: {name: ring, n: eight}", "generator.n: expected a whole number, got 'eight'"),
        ("name: x\ngenerator: {name: ring, n: true}", "generator.n: expected a whole number, got true"),
        ("name: x\ngenerator: {name: ring, n: 0}", "f.yaml:2:28: generator.n: expected 1 to"),
        (
            "name: x\ngenerator: {name: ring, n: 8, latency: 2}",
            f"generator.latency: {TIME}, got 2; the unit is missing",
        ),
        (
            "name: x\ngenerator: {name: ring, n: 8, bandwidth: 2GT/s}",
            f"generator.bandwidth: {BANDWIDTH}, got '2GT/s'; GT/s",
        ),
        (
            "name: x\ngenerator: {name: torus, dims: [4, x]}",
            "f.yaml:2:36: generator.dims[1]: expected a whole number, got 'x'",
        ),
        ("name: x\ngenerator: {name: torus, dims: [4, 0]}", "f.yaml:2:36: generator.dims[1]: expected 1 to"),
        ("name: x\ngenerator: {name: switch, n: 4, reduces: 1}", "generator.reduces: expected true or false, got 1"),
        (
            "name: x\ngenerator: {name: fat_tree, gpus: 9, gpus_per_leaf: 4}",
            "f.yaml:2:35: generator.gpus: expected a multiple of gpus_per_leaf = 4, got 9",
        ),
        (
            "name: x\ngenerator: {name: ring, n: 8}\nlinks: []",
            "f.yaml:3:1: links: expected either a generator or links, got both",
        ),
    ],
)
def test_mistakes_are_told_with_their_place(text: str, message: str) -> None:
    found = fault(text)
    assert message in found
    assert re.match(r"f\.yaml:\d+:\d+: ", found)
    assert re.search(r"expected .*, got ", found)
    for word in ("Input should", "pydantic", "validation error", "Extra inputs", "For further"):
        assert word not in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "nodes: [{name: 'gpu[0-999999999]', kind: gpu}]",
            "2:16: nodes[0].name: expected at most 2,000,000 nodes in all",
        ),
        ("nodes: [{name: 'g[0-99999][0-99999][0-99999][0-99999]', kind: gpu}]", "got 100,000,000,000,000,000,000"),
        ("nodes: [{name: 'gpu[0-9999999999]', kind: gpu}]", "expected an index up to 1,000,000,000, got 9999999999"),
        ("modules: [{name: n, count: 999999999, nodes: [{name: a, kind: gpu}]}]", "nodes in all, got 999,999,999"),
        (
            f"nodes: [{{name: 'g[0-1]', kind: gpu}}]\nlinks: [{{from: 'g[0]', to: 'g[1]', count: 1000000000, {LINK}}}]",
            "links[0].count: expected at most 20,000,000 links in all, got 1,000,000,000",
        ),
        (
            f"nodes: [{{name: 'g[0-1]', kind: gpu}}]\nlinks: [{{from: 'g[0]', to: 'g[1]', count: {'9' * 99}, {LINK}}}]",
            "links[0].count: expected a whole number of at least 1, got 999",
        ),
        (
            f"nodes: [{{name: 'g[0-9999]', kind: gpu}}]\nlinks: [{{between: ['g[0-9999]', 'g[0-9999]'], {LINK}}}]",
            "200,000,000",
        ),
        (
            "modules: [{name: n, count: 200000, nodes: [{name: 'g[0-9]', kind: gpu}], "
            f"links: [{{between: ['g[0-9]', 'g[0-9]'], {LINK}}}]}}]",
            "modules[0].links[0]: expected at most 20,000,000 links in all, got 40,000,000",
        ),
        # Found by mutation: a range that no node needs was written out before it was looked up.
        (
            "nodes: [{name: a, kind: gpu}]\nranks: ['gpu[0-999999999]']",
            "ranks[0]: expected the name of a node, got 'gpu[0]'",
        ),
        (f"nodes: [{{name: a, kind: gpu}}]\nlinks: [{{from: 'b[0-999999]', to: a, {LINK}}}]", "got 'b[0]'"),
        (
            "nodes: [{name: a, kind: gpu}]\nroutes: [{from: 'b[0-99999]', to: 'c[0-99999]', via: [a]}]",
            "at most 2,000,000 routes",
        ),
        ("generator: {name: ring, n: 1000000000}", "generator.n: expected 1 to"),
        ("generator: {name: torus, dims: [100000, 100000]}", "generator.dims: expected at most"),
        ("generator: {name: hypercube, dimension: 60}", "generator.dimension: expected 0 to"),
        (
            "generator: {name: fully_connected, n: 8000}",
            "generator: expected at most 20,000,000 links in all, got about 64,000,000",
        ),
        (
            "generator: {name: dragonfly, groups: 1000, routers: 4000}",
            "generator: expected at most 20,000,000 links in all",
        ),
    ],
)
def test_absurd_counts_are_refused_before_they_are_made(
    text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_arrays(*_: object, **__: object) -> None:
        raise AssertionError("arrays were made")

    monkeypatch.setattr(topology_file, "assemble", no_arrays)
    monkeypatch.setattr("collsim.topology.generators.wires.assemble", no_arrays)
    found = fault(f"name: x\n{text}")
    assert message in found
    assert len(found) < 400


def test_long_names_do_not_make_long_messages() -> None:
    long = "n" * 5_000
    for text in (
        f"name: x\nnodes: [{{name: {long}, kind: gpu}}]\nlinks: [{{from: {long}, to: sw, {LINK}}}]",
        f"name: x\nnodes: [{{name: {long}, kind: gpu}}, {{name: {long}, kind: gpu}}]",
        f"name: x\nnodes: [{{name: {long}, kind: {long}}}]",
        # Found by mutation: digits without end took a time that grows with their square.
        f"name: x\nnodes: [{{name: a, kind: gpu, send_overhead: {'9' * 1_000_000}us}}]",
        f"name: x\nnodes: [{{name: a, kind: gpu, reduce_bandwidth: {'9' * 1_000_000}}}]",
        f"name: x\nnodes: [{{{long}: 1}}]",
        f"name: x\ngenerator: {{name: {long}}}",
        f"name: {long}\nnodes: []",
    ):
        assert len(fault(text)) < 500
