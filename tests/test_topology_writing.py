"""Topology files that are written: what is read from them is the topology, and a person can read them too."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import collsim
import collsim.topology
from collsim.errors import InputError, TopologyError
from collsim.topology import GENERATORS, Topology, TopologyBuilder, shipped
from collsim.topology import writing as writing_module
from collsim.topology.file import loads
from collsim.topology.names import KINDS, parse_pattern
from collsim.topology.writing import format_topology, save_topology
from collsim.topology.writing.writable import writable_kinds, writable_names
from collsim.topology.yamltree import parse
from collsim.units import INT64_MAX

SCHEMA = json.loads((Path(__file__).parents[1] / "topologies" / "topology.schema.json").read_text(encoding="utf-8"))


def sections(text: str) -> Any:
    return parse(text).value


def said(topology: Topology, section: str) -> list[str]:
    """The entries of a section, as they stand in the file."""
    lines = format_topology(topology).splitlines()
    start = lines.index(f"{section}:") + 1
    found = []
    for line in lines[start:]:
        if not line.startswith("  - "):
            break
        found.append(line.removeprefix("  - "))
    return found


def renamed(topology: Topology) -> Topology:
    """The topology with the names that a file says."""
    kinds = writable_kinds(topology.link_kind_names)
    return replace(topology, nodes=tuple(writable_names(topology.nodes, topology.kinds)), link_kind_names=tuple(kinds))


def content(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def assert_kept(topology: Topology) -> str:
    text = format_topology(topology)
    again = loads(text)
    wanted = renamed(topology)
    assert again.nodes == wanted.nodes
    assert again.ranks == wanted.ranks
    assert [again.link_name(link) for link in range(again.n_links)] == [
        wanted.link_name(link) for link in range(wanted.n_links)
    ]
    assert again == wanted
    assert content(format_topology(again)) == content(text)
    return text


# Names of every sort: those of machines, those that look like YAML, and any text at all.
NAMES = st.one_of(
    st.sampled_from(
        ["gpu{0}", "gpu[{0}]", "node[0].gpu[{0}]", "node[1].gpu[{0}]", "node[{0}].gpu[0]", "sw", "a-"]
    ).flatmap(lambda text: st.integers(0, 5).map(lambda i: text.replace("{0}", str(i)))),
    st.sampled_from(
        [
            "",
            "0",
            "7",
            "(0, 1)",
            "gpu[0-3]",
            "gpu[007]",
            "gpu[99999999999]",
            "no",
            "true",
            "null",
            "~",
            "- x",
            "a: b",
            "a #b",
        ]
    ),
    st.sampled_from(
        [
            '"',
            "'",
            "}",
            "]}\n- {kind: gpu",
            "# x",
            "\u2028",
            "\x85",
            "\ufeff",
            "\ud800",
            "ß",
            "*a",
            "&a",
            "!a",
            "%",
            "@",
        ]
    ),
    st.text(max_size=12),
)
RATES = st.one_of(st.sampled_from([25 * 10**9, 50 * 10**9, 25 * 2**30]), st.integers(1, INT64_MAX))
TIMES = st.one_of(st.sampled_from([0, 500_000, 1_000_000]), st.integers(0, INT64_MAX))
LINK_KINDS = st.sampled_from(["", "nvlink", "pcie", "12", "PCIe 5", "no"])


@st.composite
def topologies(draw: Callable[..., Any]) -> Topology:
    builder = TopologyBuilder(draw(st.text(max_size=10)), draw(st.text(max_size=30)), draw(st.text(max_size=30)))
    names = draw(st.lists(NAMES, min_size=1, max_size=9, unique=True))
    some = {
        "rates": draw(st.lists(RATES, min_size=1, max_size=2)),
        "times": draw(st.lists(TIMES, min_size=1, max_size=2)),
    }
    for name in names:
        plain = draw(st.booleans())
        devices: dict[str, Any] = (
            {}
            if plain
            else {
                "send_overhead": draw(st.one_of(st.just(0), TIMES)),
                "reduce_bandwidth": draw(st.one_of(st.just(0), RATES)),
                "channel_bandwidth": draw(st.one_of(st.just(0), RATES)),
                "reduces": draw(st.booleans()),
                "multicasts": draw(st.booleans()),
                "forwards": draw(st.booleans()),
            }
        )
        builder.add_node(name, draw(st.sampled_from(KINDS if not plain else ("gpu",))), **devices)
    if len(names) > 1:
        for _ in range(draw(st.integers(0, 12))):
            a, b = draw(st.lists(st.sampled_from(names), min_size=2, max_size=2, unique=True))
            add = draw(st.sampled_from([builder.add_link, builder.add_duplex]))
            add(
                a,
                b,
                draw(st.sampled_from(some["rates"])),
                draw(st.sampled_from(some["times"])),
                kind=draw(LINK_KINDS),
                count=draw(st.integers(1, 3)),
            )
    ranks = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    bare = builder.build(ranks)
    return replace(bare, given_routes=draw(routes(bare)))


@st.composite
def routes(draw: Callable[..., Any], topology: Topology) -> dict[tuple[int, int], tuple[int, ...]]:
    """Walks along links that come to no node twice and pass none that does not forward."""
    found = {}
    for _ in range(draw(st.integers(0, 4)) if topology.n_links else 0):
        link = draw(st.integers(0, topology.n_links - 1))
        way, seen = [link], {int(topology.link_src[link]), int(topology.link_dst[link])}
        while draw(st.booleans()):
            here = int(topology.link_dst[way[-1]])
            on = [
                link
                for link in np.flatnonzero(topology.link_src == here).tolist()
                if topology.link_dst[link] not in seen
            ]
            if not on or not topology.forwards[here]:
                break
            way.append(draw(st.sampled_from(on)))
            seen.add(int(topology.link_dst[way[-1]]))
        found[int(topology.link_src[way[0]]), int(topology.link_dst[way[-1]])] = tuple(way)
    return found


@given(topologies())
@settings(max_examples=400)
def test_every_topology_is_kept(topology: Topology) -> None:
    text = assert_kept(topology)
    jsonschema.Draft202012Validator(SCHEMA).validate(sections(text))


@st.composite
def regular(draw: Callable[..., Any]) -> Topology:
    """Machines of the kind that joins well, with mistakes in them: entries of ranges, in any order of their links."""
    copies, gpus = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    builder = TopologyBuilder("regular")
    first = draw(st.booleans())
    if first:
        builder.add_node("top", "switch")
    nodes = [[*(f"gpu[{i}]" for i in range(gpus)), "sw", *(f"nic[{i}]" for i in range(gpus))]] * copies
    for copy, members in enumerate(nodes):
        for member in members:
            kind = {"g": "gpu", "s": "switch", "n": "nic"}[member[0]]
            builder.add_node(f"node[{copy}].{member}", kind, forwards=draw(st.integers(0, 15)) != 0)
    if not first:
        builder.add_node("top", "switch")
    links: list[tuple[str, str]] = []
    for copy in range(copies):
        links += [(f"node[{copy}].gpu[{i}]", f"node[{copy}].sw") for i in range(gpus)]
    links += [(f"node[{copy}].gpu[{i}]", f"node[{copy}].nic[{i}]") for copy in range(copies) for i in range(gpus)]
    links += [(f"node[{copy}].nic[{i}]", "top") for copy in range(copies) for i in range(gpus)]
    links += [
        (f"node[0].gpu[{i}]", f"node[0].gpu[{j}]") for i in range(gpus) for j in range(gpus) if draw(st.just(i < j))
    ]
    if draw(st.booleans()):
        at, to = draw(st.integers(0, len(links) - 1)), draw(st.integers(0, len(links) - 1))
        links.insert(to, links.pop(at))
    two_way, count = draw(st.booleans()), draw(st.integers(1, 2))
    add = builder.add_duplex if two_way else builder.add_link
    odd = draw(st.integers(-1, len(links)))
    for number, (a, b) in enumerate(links):
        add(a, b, 10**9 + (number == odd), 1000, count=count)
    return builder.build()


@given(regular())
@settings(max_examples=200)
def test_regular_machines_are_kept(topology: Topology) -> None:
    assert_kept(topology)


@pytest.mark.parametrize("name", shipped())
def test_shipped_machines_are_written_as_they_were(name: str) -> None:
    """As many entries as the author wrote, in the same sections, with the same labels."""
    original = shipped()[name].read_text(encoding="utf-8")
    topology = collsim.topology.load_topology(name)
    text = assert_kept(topology)
    again = loads(text)
    assert (again.name, again.description, again.source) == (topology.name, topology.description, topology.source)
    assert again.structure == topology.structure
    before, after = sections(original), sections(text)
    assert set(after) == set(before)
    for key in ("nodes", "links", "modules"):
        assert len(after.get(key, [])) <= len(before.get(key, []))
    assert text.splitlines()[0] == original.splitlines()[0]
    jsonschema.Draft202012Validator(SCHEMA).validate(after)


GENERATED: dict[str, dict[str, Any]] = {
    "ring": {"n": 5, "bandwidth": "25GiB/s", "send_overhead": "3us"},
    "bidirectional_ring": {"n": 2, "channel_bandwidth": "20GB/s"},
    "line": {"n": 1},
    "fully_connected": {"n": 4, "latency": 0},
    "switch": {"n": 3, "reduces": True},
    "mesh": {"dims": (2, 1, 3)},
    "torus": {"dims": (4, 3)},
    "hypercube": {"dimension": 3},
    "tree": {"branching": 2, "height": 3, "reduce_bandwidth": "1TB/s"},
    "fat_tree": {"gpus": 20, "gpus_per_leaf": 10, "spines": 3, "oversubscription": 10 / 3},
    "rail_optimized": {
        "nodes": 3,
        "gpus": 2,
        "nic_bandwidth": "200Gbps",
        "pcie_latency": "700ns",
        "oversubscription": 3,
    },
    "dragonfly": {"groups": 4, "routers": 2, "gpus_per_router": 2, "global_bandwidth": "10GB/s"},
}


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_are_one_line_and_kept(name: str) -> None:
    topology = GENERATORS[name](**GENERATED[name])
    text = assert_kept(topology)
    assert list(sections(text)) == ["name", "generator"]
    assert sections(text)["generator"]["name"] == name
    assert loads(text).structure == topology.structure
    # without the word of the maker it is written link by link, and is the same too
    plain = assert_kept(replace(topology, structure={}))
    assert "generator" not in sections(plain)


def test_a_changed_machine_is_not_written_as_that_of_its_generator() -> None:
    torus = collsim.topology.torus((4, 4))
    rates = torus.link_bandwidth.copy()
    rates[7] += 1
    text = assert_kept(replace(torus, link_bandwidth=rates))
    assert "generator" not in sections(text)
    assert sum("50.000000001GB/s" in line for line in text.splitlines()) == 1
    for structure in ({"kind": "torus"}, {"kind": "torus", "dims": "x"}, {"kind": "tree", "branching": 0}, {"kind": 3}):
        assert "generator" not in sections(assert_kept(replace(torus, structure=structure)))


def mapped(names: dict[str, str], topology: Topology) -> Topology:
    return replace(topology, nodes=tuple(names.get(node, node) for node in topology.nodes), structure={})


def with_brackets(topology: Topology) -> Topology:
    import re

    return mapped({node: re.sub(r"([a-z])([0-9]+)$", r"\1[\2]", node) for node in topology.nodes}, topology)


def test_1024_gpus_are_written_short() -> None:
    fat = collsim.topology.fat_tree(1024, 32, bandwidth="400Gbps")
    for topology, most in ((fat, 5), (with_brackets(fat), 300)):
        text = format_topology(topology)
        assert len(text.splitlines()) < most
        assert loads(text) == topology


ENTRIES = [
    '{from: "gpu[0-3]", to: sw, bandwidth: 1GB/s, latency: 1us}',
    '{between: ["gpu[0-3]", sw], bandwidth: 1GB/s, latency: 1us}',
    '{between: [sw, "gpu[0-3]"], bandwidth: 1GB/s, latency: 1us, count: 3}',
    '{between: ["gpu[0-1]", "gpu[2-3]"], bandwidth: 1GB/s, latency: 1us}',
    '{between: ["gpu[0-1]", "gpu[2-3]"], pairing: zip, bandwidth: 1GB/s, latency: 1us, kind: pcie}',
    '{from: "gpu[0-3]", to: "gpu[1-3,0]", pairing: zip, bandwidth: 1GB/s, latency: 1us}',
    '{between: ["gpu[0-3]", "gpu[0-3]"], bandwidth: 1GB/s, latency: 1us, count: 2}',
    '{from: "gpu[0-3]", to: "gpu[0-3]", bandwidth: 1GB/s, latency: 1us}',
    '{between: ["a[0-1].b[0-2]", "c[0-1].d[0-2]"], pairing: zip, bandwidth: 1GB/s, latency: 1us}',
    '{between: ["a[0-1].b[0-2]", "a[0-1].b[0-2]"], bandwidth: 1GB/s, latency: 1us}',
    '{from: "a[0-1].b[0-2]", to: "c[0,1].d[2]", bandwidth: 1GB/s, latency: 0s}'.replace("0,1", "0-1"),
    '{from: "gpu[0]", to: "gpu[1-3]", bandwidth: 25GiB/s, latency: 1.5ns}',
]


@pytest.mark.parametrize("entry", ENTRIES)
def test_links_are_joined_as_a_person_would_write_them(entry: str) -> None:
    nodes = '[{name: "gpu[0-3]", kind: gpu}, {name: sw, kind: switch}, {name: "a[0-1].b[0-2]", kind: nic}'
    nodes += ', {name: "c[0-1].d[0-2]", kind: nic}]'
    topology = loads(f"name: x\nnodes: {nodes}\nlinks:\n  - {entry}")
    assert said(topology, "links") == [entry]


def test_what_one_entry_cannot_say_in_order_is_several() -> None:
    nodes = 'name: x\nnodes: [{name: "g[0-2]", kind: gpu}, {name: "s[0-1]", kind: switch}]\nlinks:\n'
    link = "bandwidth: 1GB/s, latency: 1us}"
    # the switch runs slowest, and an entry has it run fastest
    text = nodes + "".join(f'  - {{from: "g[0-2]", to: "s[{i}]", {link}\n' for i in range(2))
    assert said(loads(text), "links") == [f'{{from: "g[0-2]", to: "s[{i}]", {link}' for i in range(2)]
    # two there and one back: one of them has no way back
    text = nodes + f'  - {{from: "g[0]", to: "g[1]", {link[:-1]}, count: 2}}\n  - {{from: "g[1]", to: "g[0]", {link}\n'
    assert said(loads(text), "links") == [
        f'{{from: "g[0]", to: "g[1]", {link}',
        f'{{between: ["g[0]", "g[1]"], {link}',
    ]
    assert_kept(loads(text))
    # two pairs that cross are no riddle of indices
    text = nodes + "".join(f'  - {{between: ["g[{i}]", "s[{1 - i}]"], {link}\n' for i in range(2))
    assert said(loads(text), "links") == [f'{{between: ["g[{i}]", "s[{1 - i}]"], {link}' for i in range(2)]


CLUSTER = """
name: cluster
{before}
modules:
  - name: rack
    count: 3
    nodes:
      - {{name: "gpu[0-3]", kind: gpu}}
      - {{name: sw, kind: switch}}
    links:
      - {{between: ["gpu[0-3]", sw], bandwidth: 450GB/s, latency: 300ns}}
{after}
links:
  - {{between: ["rack[0-2].sw", top], bandwidth: 50GB/s, latency: 1us, count: 2}}
"""


@pytest.mark.parametrize("where", ["before", "after"])
def test_copies_are_modules(where: str) -> None:
    nodes = "nodes:\n  - {name: top, kind: switch}"
    parts = {"before": "", "after": "", where: nodes}
    topology = loads(CLUSTER.format(**parts))
    text = assert_kept(topology)
    assert text.split("\n", 1)[1].split() == CLUSTER.format(**parts).split()
    assert loads(text).structure == {"kind": "modules", "module": "rack", "count": 3, "ranks_per_module": 4}


def test_modules_only_where_the_order_of_the_links_is_theirs() -> None:
    builder = TopologyBuilder("by rack")
    for rack in range(3):
        for name, kind in (("gpu[0]", "gpu"), ("gpu[1]", "gpu"), ("sw", "switch")):
            builder.add_node(f"rack[{rack}].{name}", kind)
    for rack in range(3):
        builder.add_duplex(f"rack[{rack}].gpu[0]", f"rack[{rack}].sw", 10**9, 1000)
        builder.add_duplex(f"rack[{rack}].gpu[1]", f"rack[{rack}].sw", 2 * 10**9, 1000)
    found = sections(assert_kept(builder.build()))
    assert [sorted(module) for module in found["modules"]] == [["count", "name", "nodes"]]
    assert len(found["links"]) == 6
    # one odd node of a copy, and they are none
    odd = builder.build()
    flags = odd.forwards.copy()
    flags[3] = False
    text = assert_kept(replace(odd, forwards=flags))
    assert "modules" not in sections(text)


def test_names_that_files_cannot_say_are_changed_and_told() -> None:
    builder = TopologyBuilder("odd")
    for name in ("GPU 0", "GPU_0", "7", "(0, 1)", "", "gpu[0-1]", "evil\n- {name: x, kind: gpu} #", "3com", "gpu[7]"):
        builder.add_node(name)
    builder.add_link("GPU 0", "7", 1, 0, kind="PCIe gen 5")
    topology = builder.build()
    text = assert_kept(topology)
    assert loads(text).nodes == (
        "GPU_0_2", "GPU_0", "gpu[7]_2", "gpu[0][1]", "gpu", "gpu_0-1_", "evil_-__name:_x__kind:_gpu___", "gpu_3com",
        "gpu[7]",
    )  # fmt: skip
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert '#   "GPU 0" is GPU_0_2' in comments
    assert '#   "7" is "gpu[7]_2"' in comments
    assert r'#   "evil\n- {name: x, kind: gpu} #" is "evil_-__name:_x__kind:_gpu___"' in comments
    assert '#   "PCIe gen 5" is PCIe_gen_5' in comments
    assert not any("GPU_0 is" in line or '"gpu[7]" is' in line for line in comments)


@given(st.lists(st.one_of(NAMES, st.sampled_from(["a", "a_2", "a_3", "a b", "a\tb", "a_b"])), unique=True, max_size=12))
@example(["a b", "a\tb", "a_b", "a_b_2", "a\nb"])
def test_written_names_are_those_of_files_and_different(names: list[str]) -> None:
    written = writable_names(names, ["gpu"] * len(names))
    assert len(set(written)) == len(names)
    for old, new in zip(names, written, strict=True):
        assert parse_pattern(new).names == (new,)
        try:
            fits = parse_pattern(old).names == (old,)
        except InputError:
            fits = False
        assert (old == new) == fits
    assert writable_names(names, ["gpu"] * len(names)) == written


def test_thousands_of_equal_names_are_told_apart_soon() -> None:
    names = [f"n{chr(0x2000 + i)}" for i in range(3000) if not chr(0x2000 + i).isalnum()]
    written = writable_names(names, ["gpu"] * len(names))
    assert len(set(written)) == len(names)
    assert (written[0], written[1]) == ("n_", "n__2")


@given(st.text(), st.text(), st.text())
@example("a: b", "x\n\n  y", " z")
@example("true", "- a", "# b")
@example("12", "word " * 60 + "end", "word  " * 60)
@example("x", "first: line\n\nthird", "trailing\n")
@example("DGX A100", 'a \\ b " c', "\ud83d\ude00 😀 \x07 \x85 \u2028")
def test_labels_are_kept_whatever_they_hold(name: str, description: str, source: str) -> None:
    topology = replace(collsim.topology.ring(3), name=name, description=description, source=source)
    for like in (topology, replace(topology, structure={})):
        again = loads(format_topology(like))
        assert again == like

        def whole(text: str) -> str:
            return "".join("\ufffd" if "\ud800" <= letter < "\ue000" else letter for letter in text)

        assert (again.description, again.source) == (whole(description), whole(source))
        if name.isprintable() and name.strip() and len(name) <= 200:
            assert again.name == name


def square(**given: Any) -> TopologyBuilder:
    builder = TopologyBuilder("square")
    for i in range(4):
        builder.add_node(f"gpu[{i}]", **given)
    for i in range(4):
        builder.add_duplex(f"gpu[{i}]", f"gpu[{(i + 1) % 4}]", 10**9, 1000, count=2)
    builder.add_link("gpu[0]", "gpu[2]", 10**9, 1000)
    return builder


def test_given_routes_pass_nodes_and_where_needed_links() -> None:
    plain = square().build()
    dealt = [plain.link_name(plain.route(a, b)[0]) for a, b in ((0, 1), (1, 2))]
    other = dealt[0][:-1] + {"0": "1", "1": "0"}[dealt[0][-1]]
    by_nodes = square().build(routes={("gpu[0]", "gpu[2]"): dealt})
    assert said(by_nodes, "routes") == ['{from: "gpu[0]", to: "gpu[2]", via: ["gpu[1]"]}']
    by_links = square().build(routes={("gpu[0]", "gpu[2]"): [other, dealt[1]], ("gpu[0]", "gpu[1]"): [other]})
    assert said(by_links, "routes") == [
        f'{{from: "gpu[0]", to: "gpu[1-2]", via: ["{other}"]}}',
    ]
    direct = square().build(routes={("gpu[0]", "gpu[2]"): ["gpu[0]->gpu[2]"]})
    assert said(direct, "routes") == ['{from: "gpu[0]", to: "gpu[2]", via: ["gpu[0]->gpu[2]"]}']
    for topology in (by_nodes, by_links, direct):
        assert_kept(topology)


@pytest.mark.parametrize(
    ("via", "message"),
    [
        ('"gpu[0]->gpu[1]#2"', "via[0]: expected the name of a link, got 'gpu[0]->gpu[1]#2'; there are 2, "),
        ('"gpu[0]->gpu[1]"', "via[0]: expected the name of a link, got 'gpu[0]->gpu[1]'; there are 2, "),
        ('"gpu[0]->gpu[9]"', "via[0]: expected the name of a link, got 'gpu[0]->gpu[9]'; there is no node 'gpu[9]'"),
        ('"gpu[0]->gpu[1-2]"', "via[0]: expected the name of one node, got 'gpu[1-2]', which is 2"),
        ('"gpu[0]->gpu[1]#x"', "via[0]: expected a name such as "),
        ('"gpu[3]->gpu[0]#0"', "via: expected each node once on the way from 'gpu[0]' to 'gpu[2]', got 'gpu[0]' twice"),
        ('"gpu[1]->gpu[2]#0", "gpu[2]->gpu[3]#0"', "via: expected each node once on the way"),
    ],
)
def test_links_on_the_way_that_cannot_be_are_told(via: str, message: str) -> None:
    text = format_topology(square().build()) + f'routes:\n  - {{from: "gpu[0]", to: "gpu[2]", via: [{via}]}}\n'
    with pytest.raises(TopologyError) as caught:
        loads(text, "f.yaml")
    assert f"routes[0].{message}" in str(caught.value)
    assert caught.value.line == len(text.splitlines())


def test_given_routes_that_pass_the_same_are_one_entry() -> None:
    text = """
name: two leaves
nodes:
  - {name: "gpu[0-7]", kind: gpu}
  - {name: "leaf[0-1]", kind: switch}
  - {name: "spine[0-1]", kind: switch}
links:
  - {between: ["gpu[0-3]", "leaf[0]"], bandwidth: 1GB/s, latency: 1us}
  - {between: ["gpu[4-7]", "leaf[1]"], bandwidth: 1GB/s, latency: 1us}
  - {between: ["leaf[0-1]", "spine[0-1]"], bandwidth: 1GB/s, latency: 1us}
routes:
  - {from: "gpu[0-3]", to: "gpu[4-7]", via: ["leaf[0]", "spine[1]", "leaf[1]"]}
"""
    assert assert_kept(loads(text)).split("\n", 1)[1].split() == text.split()


def test_ranks_stand_only_where_they_are_not_the_gpus() -> None:
    assert "ranks" not in sections(format_topology(square().build()))
    topology = square().build(ranks=["gpu[3]", "gpu[0]", "gpu[1]"])
    assert sections(assert_kept(topology))["ranks"] == ["gpu[3,0-1]"]
    hosts = square(kind="host").build(ranks=[f"gpu[{i}]" for i in range(4)])
    assert sections(assert_kept(hosts))["ranks"] == ["gpu[0-3]"]


def test_what_no_file_can_say_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = TopologyBuilder("odd")
    builder.add_node("a")
    builder.add_node("b", "cpu")
    with pytest.raises(
        TopologyError, match=r"a file knows nodes of kind gpu, switch, nic, host, got 'cpu' of 'b'; did"
    ):
        format_topology(builder.build())
    hosts = [("MAX_VALUES", 60, "values"), ("MAX_BYTES", 300, "bytes"), ("MAX_NODES", 3, "3 nodes")]
    for name, most, what in [*hosts, ("MAX_LINKS", 9, "9 links")]:
        with monkeypatch.context() as patch:
            patch.setattr(writing_module, name, most)
            with pytest.raises(TopologyError, match=what):
                format_topology(replace(collsim.topology.fully_connected(4), structure={}))


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    topology = collsim.topology.load_topology("dgx-h100-x4")
    path = tmp_path / "machine.yaml"
    path.write_text("old")
    save_topology(topology, path)
    assert collsim.topology.load_topology(path) == topology
    assert [file.name for file in tmp_path.iterdir()] == ["machine.yaml"]
    for wrong, message in (("x.txt", "ends in .yaml or .yml"), ("no/x.yaml", "no such directory")):
        with pytest.raises(InputError, match=message):
            save_topology(topology, tmp_path / wrong)
    path.write_text("old")
    odd = replace(topology, kinds=("cpu", *topology.kinds[1:]))
    with pytest.raises(TopologyError, match="cpu"):
        save_topology(odd, path)
    assert path.read_text() == "old"


def test_a_run_on_what_was_written_is_the_same(tmp_path: Path) -> None:
    topology = collsim.topology.load_topology("dgx-1-v100")
    collsim.topology.save_topology(topology, tmp_path / "again.yml")
    times = [
        collsim.run("all_reduce", machine, size="16MiB", algorithm="ring").time
        for machine in (topology, collsim.topology.load_topology(tmp_path / "again.yml"))
    ]
    assert times[0] == times[1]
