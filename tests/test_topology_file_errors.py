"""What a mistake in a topology file is told as: one line, its place, what was expected, what was got, the remedy."""

from __future__ import annotations

import re

import pytest

from collsim.errors import TopologyError
from collsim.topology import file as topology_file
from collsim.topology import model
from collsim.topology.file import loads
from collsim.topology.yamltree import parse

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
            f"f.yaml:6:44: links[0].bandwidth: {BANDWIDTH}, got 1e9; the unit is missing, did you mean 1GB/s?",
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
            "f.yaml:6:39: links[0].colour: expected one of between, from, to, pairing, bandwidth, latency, count, "
            "kind, got 'colour'; did you mean 'count'? (and 1 more)",
        ),
        (
            NODES + 'links:\n  - {between: ["gpu[0-3]", sw], speed: 50GB/s, latency: 1us}',
            "f.yaml:6:33: links[0].speed: expected one of between, from, to, pairing, bandwidth, latency, count, "
            "kind, got 'speed' (and 1 more)",
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
            'f.yaml:2:8: nodes: expected a list of nodes such as - {name: "gpu[0-7]", kind: gpu}, got a',
        ),
        (
            "name: x\nnodes: [gpu]",
            "f.yaml:2:9: nodes[0]: expected a node such as {name: \"gpu[0-7]\", kind: gpu}, got 'gpu'",
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
        (
            "modules: [{name: n, count: 1000000000, nodes: [{name: 'gpu[0-1]', kind: gpu}]}]",
            "2:28: modules[0].count: expected at most 2,000,000 nodes in all, got 2,000,000,000",
        ),
        (
            "modules: [{name: n, count: 2, nodes: [{name: 'gpu[0-1999999]', kind: gpu}]}]",
            "modules[0].nodes[0].name: expected at most 2,000,000 nodes in all, got 4,000,000",
        ),
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
            "links[0]: expected at most 20,000,000 links in all, got 99,990,000",
        ),
        (
            "modules: [{name: n, count: 200000, nodes: [{name: 'g[0-9]', kind: gpu}], "
            f"links: [{{between: ['g[0-9]', 'g[0-9]'], count: 2, {LINK}}}]}}]",
            "modules[0].count: expected at most 20,000,000 links in all, got 36,000,000",
        ),
        # Found by mutation: a range that no node needs was written out before it was looked up.
        (
            "nodes: [{name: a, kind: gpu}]\nranks: ['gpu[0-999999999]']",
            "ranks[0]: expected the name of a node, got 'gpu[0]'",
        ),
        (f"nodes: [{{name: a, kind: gpu}}]\nlinks: [{{from: 'b[0-999999]', to: a, {LINK}}}]", "got 'b[0]'"),
        (
            "nodes: [{name: a, kind: gpu}]\nroutes: [{from: 'b[0-99999]', to: 'c[0-99999]', via: [a]}]",
            "at most 200,000 routes",
        ),
        ("generator: {name: ring, n: 1000000000}", "generator.n: expected 1 to"),
        ("generator: {name: torus, dims: [100000, 100000]}", "generator.dims: expected at most"),
        ("generator: {name: hypercube, dimension: 60}", "generator.dimension: expected 0 to"),
        (
            "generator: {name: fully_connected, n: 8000}",
            "generator: expected at most 20,000,000 links in all, got 63,992,000",
        ),
        (
            "generator: {name: dragonfly, groups: 1024, routers: 138}",
            "generator: expected at most 20,000,000 links in all, got 20,689,920",
        ),
        # Found by trying: these were loaded, with gigabytes.
        ("generator: {name: rail_optimized, nodes: 524288}", "generator: nodes x gpus: expected 1 to 2,000,000"),
        (
            "generator: {name: rail_optimized, nodes: 125000}",
            "generator: expected at most 2,000,000 nodes in all, got 2,125,016",
        ),
        (
            "generator: {name: dragonfly, groups: 1, routers: 4096, gpus_per_router: 1024}",
            "generator: groups x routers x gpus_per_router: expected 1 to 2,000,000, got 4,194,304",
        ),
        ("generator: {name: fat_tree, gpus: 4194304}", "generator.gpus: expected 1 to 2,000,000, got 4,194,304"),
        (
            "generator: {name: fat_tree, gpus: 2000000, gpus_per_leaf: 20}",
            "generator: expected at most 2,000,000 nodes in all, got 2,100,020",
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


def test_the_largest_full_mesh_is_counted_as_what_it_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair once: 4 x 3 links of 4 nodes, where each with each would be 32 both ways."""
    text = f"name: x\nnodes: [{{name: 'g[0-3]', kind: gpu}}]\nlinks: [{{%s, {LINK}}}]"
    for ends, links in (
        ("between: ['g[0-3]', 'g[0-3]']", 12),
        ("from: 'g[0-3]', to: 'g[0-3]'", 12),
        ("between: ['g[0-1]', 'g[2-3]']", 8),
        ("between: ['g[0-3]', 'g[1,2,3,0]'], pairing: zip", 8),
        ("from: 'g[0-3]', to: 'g[1,2,3,0]', pairing: zip", 4),
        ("from: 'g[0-1]', to: 'g[2-3]', count: 3", 12),
    ):
        monkeypatch.setattr(topology_file, "MAX_LINKS", links)
        assert loads(text % ends).n_links == links
        monkeypatch.setattr(topology_file, "MAX_LINKS", links - 1)
        assert f"expected at most {links - 1} links in all, got {links}" in fault(text % ends)


@pytest.mark.parametrize(
    ("field", "value", "hint"),
    [
        ("bandwidth", "400G", "did you mean 400Gbps or 400GB/s?"),
        ("bandwidth", "25 Gi", "did you mean 25Gibps or 25GiB/s?"),
        ("bandwidth", "50e9", "the unit is missing, did you mean 50GB/s?"),
        ("bandwidth", "25000000000", "the unit is missing, did you mean 25GB/s?"),
        ("bandwidth", "010", "the unit is missing, did you mean 10GB/s?"),
        ("bandwidth", "1e3", "the unit is missing"),
        ("bandwidth", "-5", "the unit is missing"),
        ("bandwidth", "0", "the unit is missing"),
        ("latency", "1e-6", "the unit is missing, did you mean 1us?"),
        ("latency", "0.0000005", "the unit is missing, did you mean 500ns?"),
        ("latency", "0", "the unit is missing, did you mean 0us?"),
        ("latency", "1.5", "the unit is missing, did you mean 1.5us?"),
        ("latency", "1e9", "the unit is missing"),
    ],
)
def test_hints_at_units_are_values_that_can_be_meant(field: str, value: str, hint: str) -> None:
    given = {"bandwidth": "1GB/s", "latency": "1us", field: value}
    link = ", ".join(f"{key}: {text}" for key, text in given.items())
    found = fault(NODES + f'links:\n  - {{between: ["gpu[0-3]", sw], {link}}}')
    assert found.endswith(f"; {hint}")


def test_examples_in_messages_are_yaml() -> None:
    """Found by trying: the example for nodes was copied, and was not YAML."""
    examples = [text.partition(" such as ")[2] for text in model._EXPECTED.values()]
    mappings = [example for example in examples if example.startswith(("{", "- {", "["))]
    assert len(mappings) >= 9
    for example in mappings:
        parse(example)
    assert "gpu[0-7]" in model._EXPECTED["nodes"]


@pytest.mark.parametrize(
    ("route", "message"),
    [
        ("via: ['gpu[1]', 'gpu[1]']", "via[1]: expected each node once on the way from 'gpu[0]' to 'gpu[2]', got"),
        ("via: ['gpu[0]']", "via[0]: expected each node once on the way from 'gpu[0]' to 'gpu[2]', got 'gpu[0]' twice"),
        ("via: ['gpu[2]']", "via[0]: expected each node once on the way from 'gpu[0]' to 'gpu[2]', got 'gpu[2]' twice"),
        ("via: ['gpu[1]', 'gpu[3]']", "routes[0].via: expected each node once on the way from 'gpu[0]' to 'gpu[2]'"),
        ("via: [silent]", "routes[0].via[0]: expected a node that forwards, got 'silent'; leave it out of via"),
    ],
)
def test_a_given_route_visits_no_node_twice(route: str, message: str) -> None:
    text = SQUARE + "  - {between: [silent, 'gpu[0]'], bandwidth: 1GB/s, latency: 1us}\n"
    text = text.replace("kind: gpu}]", "kind: gpu}, {name: silent, kind: host, forwards: false}]")
    assert message in fault(text + f"routes: [{{from: 'gpu[0]', to: 'gpu[2]', {route}}}]")


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
