"""Network files of ASTRA-sim's analytical back end, read and written."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim
from collsim.errors import InputError, TopologyError
from collsim.formats.astra_sim import format_astra_sim, parse_astra_sim, read_astra_sim, write_astra_sim
from collsim.formats.source import Source
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
from collsim.topology.structure import node_groups, torus_dims

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT.parent / "shared" / "samples" / "astra_net_h100.yml"
GB = 2**30


def text_of(blocks: Sequence[str], counts: Sequence[int], rates: Sequence[object], latencies: Sequence[object]) -> str:
    rows = zip(("topology", "npus_count", "bandwidth", "latency"), (blocks, counts, rates, latencies), strict=True)
    return "".join(f"{key}: [ {', '.join(map(str, values))} ]\n" for key, values in rows)


def parse(text: str) -> Topology:
    return parse_astra_sim(Source("net.yml", text))


def net(blocks: str, *counts: int, rate: object = 50.0, latency: object = 500.0) -> Topology:
    names = blocks.split()
    return parse(text_of(names, counts, [rate] * len(names), [latency] * len(names)))


def links(topology: Topology) -> Counter[tuple[int, ...]]:
    """The links by rank, a switch being a number below 0 by the ranks that it joins."""
    joined: dict[int, set[int]] = {}
    rank = topology.rank_of_node.tolist()
    ends = list(zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True))
    for src, dst in ends:
        if rank[dst] < 0:
            joined.setdefault(dst, set()).add(rank[src])
    known = {node: -1 - hash(tuple(sorted(ranks))) % 10**9 for node, ranks in joined.items()}
    values = zip(topology.link_bandwidth.tolist(), topology.link_latency.tolist(), strict=True)
    name = [known[node] if rank[node] < 0 else rank[node] for node in range(topology.n_nodes)]
    return Counter((name[src], name[dst], *value) for (src, dst), value in zip(ends, values, strict=True))


# -------------------- reading


def test_ring_is_bidirectional_with_the_whole_rate_each_way():
    topology = net("Ring", 4)
    expected = Counter((a, b, 50 * GB, 500_000) for a in range(4) for b in ((a + 1) % 4, (a - 1) % 4))
    assert links(topology) == expected
    assert topology.nodes == ("gpu[0]", "gpu[1]", "gpu[2]", "gpu[3]")
    assert torus_dims(topology) == (4,)


def test_ring_of_two_is_one_link_each_way():
    assert net("Ring", 2).n_links == 2


def test_fully_connected_has_a_link_for_each_pair():
    topology = net("FullyConnected", 5, rate=12.5, latency=0)
    assert links(topology) == Counter((a, b, 25 * GB // 2, 0) for a in range(5) for b in range(5) if a != b)


def test_switch_is_a_node_and_pays_its_latency_twice():
    topology = net("Switch", 8, rate=400, latency=936.25)
    assert topology.nodes[8:] == ("switch",)
    assert topology.n_links == 16
    route = topology.route(0, 5)
    assert [topology.link_name(link) for link in route] == ["gpu[0]->switch", "switch->gpu[5]"]
    assert topology.link_latency[list(route)].sum() == 2 * 936_250
    assert set(topology.link_bandwidth.tolist()) == {400 * GB}


def test_the_first_dimension_is_innermost():
    topology = parse(
        text_of(["Ring", "FullyConnected", "Switch"], [2, 8, 4], [200.0, 100.0, 50.0], [50.0, 500.0, 2000.0])
    )
    assert topology.n_ranks == 64
    assert topology.structure["dims"] == (4, 8, 2)
    near = {}
    for src, dst, rate in zip(
        topology.link_src.tolist(), topology.link_dst.tolist(), topology.link_bandwidth.tolist(), strict=True
    ):
        near.setdefault((src, rate), set()).add(dst)
    # NPU 47 is at (1, 7, 2): 1 + 7 * 2 + 2 * 16.
    assert near[47, 200 * GB] == {46}
    assert near[47, 100 * GB] == {33 + 2 * i for i in range(7)}
    (centre,) = near[47, 50 * GB]
    assert near[centre, 50 * GB] == {15, 31, 47, 63}
    assert topology.n_nodes == 64 + 16


def test_rings_only_are_a_torus():
    topology = net("Ring Ring Ring", 4, 3, 5)
    ours = torus((5, 3, 4), bandwidth="50GiB/s", latency="500ns")
    assert links(topology) == links(ours)
    assert torus_dims(topology) == (5, 3, 4)
    assert topology.ring_order() == ours.ring_order()
    assert topology.nodes[-1] == "gpu[59]"


def test_otherwise_the_first_dimension_is_a_node_of_a_cluster():
    topology = net("Switch Ring", 4, 3)
    assert topology.ranks[4:8] == ("node[1].gpu[0]", "node[1].gpu[1]", "node[1].gpu[2]", "node[1].gpu[3]")
    assert topology.nodes[12:] == ("node[0].switch", "node[1].switch", "node[2].switch")
    assert node_groups(topology) == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))
    assert net("Ring Switch", 2, 3).nodes[6:] == ("dim[1].switch[0]", "dim[1].switch[1]")


def test_messages_pass_through_npus_as_many_hops_as_in_astra_sim():
    blocks, counts = ("Ring", "Switch", "FullyConnected"), (5, 3, 4)
    topology = net(" ".join(blocks), *counts)

    def hops(src: int, dst: int) -> int:
        total = 0
        for block, size in zip(blocks, counts, strict=True):
            (src, a), (dst, b) = divmod(src, size), divmod(dst, size)
            away = (b - a) % size
            total += 0 if not away else {"Ring": min(away, size - away), "Switch": 2, "FullyConnected": 1}[block]
        return total

    pairs = [(src, dst) for src in range(0, 60, 7) for dst in range(60)]
    assert [len(topology.route(src, dst)) for src, dst in pairs] == [hops(src, dst) for src, dst in pairs]


@pytest.mark.parametrize("network", ["cut_through", "store_and_forward", "fluid", "alpha_beta"])
def test_ring_all_reduce_takes_the_closed_form_with_binary_gigabytes(network):
    result = collsim.run("all_reduce", net("Ring", 4), size="1MiB", algorithm="ring", network=network)
    piece = math.ceil(2**18 * 10**12 / (50 * 2**30))
    assert piece == 4_882_813  # with decimal gigabytes it would be 5,242,880
    assert result.time == pytest.approx(6 * (500_000 + piece) / 10**12, abs=1e-13)


@pytest.mark.skipif(not SAMPLE.exists(), reason="the sample is not in this checkout")
def test_the_validated_hgx_h100():
    topology = read_astra_sim(SAMPLE)
    assert topology == net("Switch", 8, rate=400.0, latency=936.25)
    assert topology.name == "astra_net_h100"
    assert collsim.run("all_reduce", topology, size="1GiB", algorithm="ring").busbw == pytest.approx(400 * GB, rel=0.01)
    assert parse(format_astra_sim(topology)) == topology


def test_other_ways_to_write_yaml():
    text = "%YAML 1.1\n---\n# comment\ntopology: \n  - Ring\n  - 'Switch'\nnpus_count: [4, 2]\n"
    text += 'bandwidth: [5e1, "50."]\nlatency: [500, +500.0]\n'
    assert parse(text) == net("Ring Switch", 4, 2)


def test_rates_are_read_exactly():
    assert net("Ring", 2, rate="23.283064365386962890625").link_bandwidth[0] == 25 * 10**9
    assert net("Ring", 2, rate="0.0000000009").link_bandwidth[0] == 1
    assert net("Ring", 2, latency="0.001").link_latency[0] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "net.yml:1:1: expected a topology, got an empty file"),
        ("[1]", "net.yml:1:1: expected the keys topology, npus_count, bandwidth, latency, got something else"),
        (text_of(["Ring"], [4], [50], [500])[:-17], "net.yml:1:1: expected the keys .*, got no latency"),
        (text_of(["ring"], [4], [50], [500]), r"net.yml:1:13: topology\[0\]: .*, got 'ring'; did you mean 'Ring'\?"),
        (
            text_of(["Ring", "Swich"], [4, 2], [50, 1], [5, 5]),
            r"net.yml:1:19: topology\[1\]: .* did you mean 'Switch'\?",
        ),
        (text_of(["Torus2D"], [4], [50], [500]), r"got 'Torus2D'; write Ring, Ring"),
        (
            text_of(["Ring"], [1], [50], [500]),
            r"net.yml:2:15: npus_count\[0\]: expected a whole number of NPUs from 2, got '1'",
        ),
        (text_of(["Ring"], [-4], [50], [500]), "expected a whole number of NPUs from 2, got '-4'"),
        (text_of(["Ring"], [4.5], [50], [500]), "expected a whole number of NPUs from 2, got '4.5'"),
        (
            text_of(["Ring"], [4, 2], [50], [500]),
            "net.yml:2:13: npus_count: expected 1 values, as many as in topology, got 2",
        ),
        (
            text_of(["Ring", "Ring"], [4, 2], [50, 1], [500]),
            "net.yml:4:10: latency: expected 2 values, as many as in topology, got 1",
        ),
        ("topology: Ring\n", r"net.yml:1:11: topology: expected a list .*, got 'Ring'; write topology: \[ Ring \]"),
        ("topology: []\n", "net.yml:1:11: topology: expected 1 to 20 dimensions, got 0"),
        (text_of(["Ring"] * 21, [2] * 21, [1] * 21, [1] * 21), "topology: expected 1 to 20 dimensions, got 21"),
        (
            text_of(["Ring"], [4], ["50GB/s"], [500]),
            r"net.yml:3:14: bandwidth\[0\]: .* got '50GB/s'; leave out the unit",
        ),
        (text_of(["Ring"], [4], [0], [500]), "expected a bandwidth of at least 1B/s"),
        (
            text_of(["Ring"], [4], [-1], [500]),
            r"bandwidth\[0\]: expected a number of GB/s \(of 2\^30 bytes\), got '-1'",
        ),
        (text_of(["Ring"], [4], ["1e400"], [500]), "too large"),
        (text_of(["Ring"], [4], [".inf"], [500]), "got '.inf'"),
        (text_of(["Ring"], [4], ["[50]"], [500]), "got a list"),
        (text_of(["Ring"], [4], [50], [".nan"]), r"net.yml:4:12: latency\[0\]: expected a number of ns, got '.nan'"),
        (text_of(["Ring"], [4], [50], ["1e-9"]), "expected 0 or at least 1ps"),
        (
            text_of(["Ring"], [10**12], [50], [5]),
            "net.yml:2:13: npus_count: expected at most 2,000,000 nodes in all, got 1,000,000,000,000",
        ),
        (
            text_of(["FullyConnected"], [10**5], [50], [5]),
            "expected at most 20,000,000 links in all, got 9,999,900,000",
        ),
        (text_of(["Ring"] * 20, [10**17] * 20, [50] * 20, [5] * 20), "expected at most 2,000,000 nodes"),
        (
            text_of(["Ring"], [4], [50], [5]) + "bandwith: [1]\n",
            r"net.yml:5:1: .*, got 'bandwith'; did you mean 'bandwidth'\?",
        ),
        (text_of(["Ring"], [4], [50], [5]) + "links: [1]\n", "net.yml:5:1: .* got 'links'; leave out what"),
        (text_of(["Ring"], [4], [50], [5]) + "latency: [1]\n", "net.yml:5:1: expected each key once"),
    ],
)
def test_mistakes(text, message):
    with pytest.raises(TopologyError, match=message) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("block", ["Ring", "FullyConnected", "Switch"])
def test_too_large_a_machine_is_refused_before_it_is_made(block):
    for counts in ([10**9], [999_999_999, 2, 3], [10**18 - 1] * 20):
        with pytest.raises(TopologyError, match="expected at most 2,000,000 nodes in all"):
            net(" ".join([block] * len(counts)), *counts)


# -------------------- writing


@st.composite
def products(draw: st.DrawFn) -> Topology:
    sizes = draw(st.lists(st.integers(2, 6), min_size=1, max_size=4).filter(lambda sizes: math.prod(sizes) <= 400))
    blocks = [draw(st.sampled_from(["Ring", "FullyConnected", "Switch"])) for _ in sizes]
    base = parse(text_of(blocks, sizes, range(1, len(sizes) + 1), [1] * len(sizes)))
    # Rates and latencies that no text chose: any whole number of bytes/s and picoseconds.
    rates = [draw(st.integers(1, 10**13)) for _ in sizes]
    latencies = [draw(st.integers(0, 10**9)) for _ in sizes]
    dim = base.link_bandwidth // GB - 1
    return replace(base, link_bandwidth=np.array(rates)[dim], link_latency=np.array(latencies)[dim])


@settings(deadline=None, max_examples=150)
@given(products())
def test_what_is_written_reads_back_the_same(topology):
    text = format_astra_sim(topology)
    back = parse(text)
    assert back == topology
    assert format_astra_sim(back).splitlines()[1:] == text.splitlines()[1:]


@settings(deadline=None, max_examples=60)
@given(products(), st.randoms(use_true_random=False))
def test_found_by_the_links_alone(topology, rng):
    """Names, kinds of links, the order of links and what the maker said count for nothing."""
    nodes = list(range(topology.n_nodes))
    rng.shuffle(nodes)
    order = list(range(topology.n_links))
    rng.shuffle(order)
    builder = TopologyBuilder("other")
    for node in nodes:
        builder.add_node(f"n{node}", topology.kinds[node])
    for link in order:
        ends = (f"n{topology.link_src[link]}", f"n{topology.link_dst[link]}")
        builder.add_link(*ends, int(topology.link_bandwidth[link]), int(topology.link_latency[link]), kind="x")
    other = builder.build(ranks=[f"n{node}" for node in topology.rank_nodes.tolist()])
    assert links(parse(format_astra_sim(other))) == links(topology)


@settings(deadline=None, max_examples=60)
@given(products(), st.data())
def test_one_link_less_or_other_is_no_product(topology, data):
    link = data.draw(st.integers(0, topology.n_links - 1))
    slower = topology.link_bandwidth.copy()
    slower[link] += 1
    alone = int((topology.link_bandwidth == topology.link_bandwidth[link]).sum()) == 1
    assert not alone  # a dimension has two links at least
    with pytest.raises(TopologyError, match="where a dimension has one bandwidth"):
        format_astra_sim(replace(topology, link_bandwidth=slower))
    keep = np.arange(topology.n_links) != link
    columns = ("link_src", "link_dst", "link_bandwidth", "link_latency", "link_key", "link_kind_codes")
    with pytest.raises(TopologyError, match="cannot say"):
        format_astra_sim(replace(topology, **{name: getattr(topology, name)[keep] for name in columns}))


@pytest.mark.parametrize(
    ("topology", "blocks", "counts"),
    [
        (bidirectional_ring(5), "Ring", "5"),
        (fully_connected(3), "FullyConnected", "3"),
        (fully_connected(7), "FullyConnected", "7"),
        (switch(8), "Switch", "8"),
        (tree(4, 1), "Switch", "4"),
        (torus((4, 5, 3)), "Ring, Ring, Ring", "3, 5, 4"),
        (hypercube(3), "Ring, Ring, Ring", "2, 2, 2"),
    ],
)
def test_generated_machines(topology, blocks, counts):
    text = format_astra_sim(topology)
    assert f"topology: [ {blocks} ]\nnpus_count: [ {counts} ]\n" in text
    assert links(parse(text)) == links(topology)


def test_rails_without_spines_are_two_switches():
    builder = TopologyBuilder("rails")
    for node in range(3):
        for gpu in range(4):
            builder.add_node(f"node[{node}].gpu[{gpu}]")
    for name in (*(f"node[{node}].nvswitch" for node in range(3)), *(f"rail{gpu}" for gpu in range(4))):
        builder.add_node(name, "switch")
    for node in range(3):
        for gpu in range(4):
            builder.add_duplex(f"node[{node}].gpu[{gpu}]", f"node[{node}].nvswitch", 450 * 10**9, 300_000)
            builder.add_duplex(f"node[{node}].gpu[{gpu}]", f"rail{gpu}", 50 * 10**9, 2_000_000)
    topology = builder.build()
    text = format_astra_sim(topology)
    assert text.splitlines()[1:3] == ["topology: [ Switch, Switch ]", "npus_count: [ 4, 3 ]"]
    assert links(parse(text)) == links(topology)


def test_the_text():
    assert format_astra_sim(torus((3, 4), bandwidth="25GB/s", latency="1.5ns")) == (
        "# torus: 12 NPUs\n"
        "topology: [ Ring, Ring ]\n"
        "npus_count: [ 4, 3 ]\n"
        "bandwidth: [ 23.2830643654, 23.2830643654 ]  # GB/s of 2^30 bytes\n"
        "latency: [ 1.5, 1.5 ]  # ns\n"
    )


def test_shipped_machines_that_can_be_said():
    said = {}
    for path in sorted((ROOT / "topologies").glob("*.yaml")):
        topology = load_topology(path)
        try:
            text = format_astra_sim(topology)
        except TopologyError:
            continue
        said[path.stem] = text.splitlines()[-4] + text.splitlines()[-3]
        assert links(parse(text)) == links(topology)
    assert said["dgx-h100"] == "topology: [ Switch ]npus_count: [ 8 ]"
    assert said["mi300x"] == "topology: [ FullyConnected ]npus_count: [ 8 ]"
    assert said["tpu-v4-4x4x4"] == "topology: [ Ring, Ring, Ring ]npus_count: [ 4, 4, 4 ]"
    assert not {"dgx-1-v100", "line8", "fat-tree-16", "dgx-h100-x4"} & set(said)


def test_what_devices_do_is_left_out_and_said_so():
    text = format_astra_sim(switch(4, reduces=True))
    assert "# left out, for want of a place: reduces\n" in text
    assert parse(text).n_ranks == 4
    with pytest.raises(TopologyError, match="devices have a reduce_bandwidth; write it as YAML or GraphML instead"):
        format_astra_sim(switch(4, reduce_bandwidth="1TB/s"))


@pytest.mark.parametrize(
    ("topology", "why"),
    [
        (ring(4), "gpu0->gpu1 has no link back, where ASTRA-sim's go both ways; a bidirectional_ring could be said"),
        (bidirectional_ring(2), "gpu1 has 2 links to gpu0, where a dimension has one"),
        (line(4), r"its links are no product .* in the order of the ranks \(a mesh has ends, its rings have none\)"),
        (mesh((3, 3)), r"its links are no product .* \(a mesh has ends"),
        (fat_tree(16, 4), "leaf0->spine0 joins two switches, where a switch of a dimension has NPUs only"),
        (tree(2, 3), "sw1->sw0 joins two switches"),
        (rail_optimized(2, 4), r"node\[0\].nic\[0\] is a nic that is no rank"),
        (dragonfly(5, 2, 2), r"group\[0\].router\[0\]->group\[0\].router\[1\] joins two switches"),
        (ring(1), "it has one rank, where ASTRA-sim takes two or more"),
    ],
)
def test_why_not(topology, why):
    with pytest.raises(
        TopologyError, match=f"^an ASTRA-sim network cannot say '.*': {why}.*; write it as YAML, SimGrid"
    ):
        format_astra_sim(topology)


def test_why_not_for_single_links_and_nodes():
    topology = net("Switch Ring", 4, 4)
    still = replace(topology, forwards=np.arange(topology.n_nodes) >= 4)
    with pytest.raises(TopologyError, match=r"node\[0\].gpu\[0\] does not forward, where messages pass through NPUs"):
        format_astra_sim(still)
    assert format_astra_sim(replace(switch(4), forwards=np.arange(5) == 4))  # no message passes there
    latency = bidirectional_ring(4).link_latency.copy()
    latency[3] = 7
    with pytest.raises(TopologyError, match="gpu0->gpu1 has 1us and gpu3->gpu0 7ps, where a dimension has one latency"):
        format_astra_sim(replace(bidirectional_ring(4), link_latency=latency))
    swapped = replace(bidirectional_ring(5), rank_nodes=np.array([0, 2, 1, 3, 4]))
    with pytest.raises(TopologyError, match=r"no product .* in the order of the ranks"):
        format_astra_sim(swapped)
    routed = replace(bidirectional_ring(4), given_routes={(0, 2): (0, 1)})
    with pytest.raises(TopologyError, match="it has routes of its own"):
        format_astra_sim(routed)


def test_two_switches_for_the_same_npus():
    builder = TopologyBuilder("planes")
    for name in ("g0", "g1", "g2"):
        builder.add_node(name)
    for plane in ("p0", "p1"):
        builder.add_node(plane, "switch")
        for name in ("g0", "g1", "g2"):
            builder.add_duplex(name, plane, 10**9, 0)
    with pytest.raises(TopologyError, match="p0 and p1 join the same NPUs, where a dimension has one switch for them"):
        format_astra_sim(builder.build())


@pytest.mark.parametrize(("extra", "why"), [(0, "lone joins no NPUs"), (1, "lone joins one NPU only")])
def test_switches_that_join_nobody(extra, why):
    builder = TopologyBuilder("x")
    for name in ("g0", "g1"):
        builder.add_node(name)
    builder.add_node("lone", "switch")
    builder.add_duplex("g0", "g1", 10**9, 0)
    if extra:
        builder.add_duplex("g0", "lone", 10**9, 0)
    with pytest.raises(TopologyError, match=why):
        format_astra_sim(builder.build())


def test_files(tmp_path):
    topology = torus((4, 3), bandwidth="50GB/s", latency="1us")
    path = tmp_path / "torus.astra.yml"
    write_astra_sim(topology, path)
    back = read_astra_sim(path)
    assert links(back) == links(topology)
    assert back.name == "torus"
    with pytest.raises(InputError, match=r"expected a name that ends in \.yml or \.yaml"):
        write_astra_sim(topology, tmp_path / "torus.txt")
    with pytest.raises(TopologyError):
        write_astra_sim(line(4), tmp_path / "line.yml")
    assert [file.name for file in tmp_path.iterdir()] == ["torus.astra.yml"]
    with pytest.raises(TopologyError, match="got no such file"):
        read_astra_sim(tmp_path / "none.yml")


def test_large_machines():
    topology = net("Switch FullyConnected Ring", 8, 16, 512)
    assert topology.n_ranks == 65_536
    assert parse(format_astra_sim(topology)) == topology


# -------------------- whatever stands there

FIXTURE = (
    "topology: [ FullyConnected, Ring, Switch ]  # a comment\n"
    + text_of(["x"], [4, 2, 3], [50.0, 25, "1e2"], [500.0, 0, 936.25]).partition("\n")[2]
)
ODD = (
    "",
    "0",
    "-1",
    "1e400",
    "1" + "0" * 30,
    ".nan",
    "x" * 5000,
    "٣",
    "1_0",
    "#",
    "\t",
    "\n",
    "[",
    "]",
    "{",
    "}",
    "&a",
    "*a",
    "!!python/object:os.system",
    "'",
    '"',
    ": ",
    ",",
    "- ",
    "|",
    "999999",
    "2000000",
    "~",
    "\u2028",
    "%",
    "? ",
)


def outcome(text: str) -> Topology | TopologyError:
    try:
        return parse(text)
    except TopologyError as error:
        return error


def test_the_fixture_is_right():
    assert parse(FIXTURE).n_ranks == 24


def mutated(rng: random.Random, text: str) -> str:
    start = rng.randrange(len(text) + 1)
    stop = min(len(text), start + rng.choice((1, 3, 20, 60)))
    words = list(re.finditer(r"[^\s,\[\]:]+", text))
    changes: list[Callable[[], str]] = [
        lambda: text[:start] + text[stop:],
        lambda: text[:start] + 2 * text[start:stop] + text[stop:],
        lambda: text[:start],
        lambda: text[:start] + rng.choice(ODD) + text[start:],
    ]
    if words:
        word = rng.choice(words)
        changes.append(lambda: text[: word.start()] + rng.choice(ODD) + text[word.end() :])
    return rng.choice(changes)()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_stands_there_is_a_topology_or_a_mistake_with_its_place(seed):
    rng = random.Random(seed)
    for _ in range(100):
        text = FIXTURE
        for _ in range(rng.choice((1, 1, 2, 4))):
            text = mutated(rng, text)
        found = outcome(text)
        if isinstance(found, TopologyError):
            assert found.line
            assert found.column
            assert len(str(found)) < 500
        elif found.n_nodes < 1000:
            assert parse(format_astra_sim(found)) == found
