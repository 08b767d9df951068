"""SimGrid platforms written, and read again."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim
from collsim import load_topology
from collsim.errors import InputError, TopologyError
from collsim.formats import read_topology, write_topology
from collsim.formats.simgrid import format_simgrid, parse_simgrid, write_simgrid
from collsim.formats.source import Source
from collsim.topology import Topology, TopologyBuilder, ring, switch, torus

SHIPPED = sorted(Path(__file__).parents[1].glob("topologies/*.yaml"))


def again(topology: Topology) -> Topology:
    return parse_simgrid(Source("again.xml", format_simgrid(topology)))


def routes(topology: Topology) -> list[list[str]]:
    pairs = permutations(range(topology.n_ranks), 2)
    return [[topology.link_name(link) for link in topology.route(a, b)] for a, b in pairs]


def time_of(topology: Topology, size: int = 2**20) -> float:
    options: dict[str, Any] = {"algorithm": "ring", "order": tuple(range(topology.n_ranks)), "channels": 1}
    return collsim.run("all_reduce", topology, size=size, network="fluid", **options).time


def same_machine(a: Topology, b: Topology) -> None:
    """Assert that all but the routes on other channels is the same."""
    assert (a.nodes, a.kinds, a.ranks) == (b.nodes, b.kinds, b.ranks)
    assert [a.link_kind(link) for link in range(a.n_links)] == [b.link_kind(link) for link in range(b.n_links)]
    for column in ("link_src", "link_dst", "link_key", "link_bandwidth", "link_latency", "forwards"):
        assert np.array_equal(getattr(a, column), getattr(b, column)), column
    assert routes(a) == routes(b)


@pytest.mark.parametrize("path", [path for path in SHIPPED if "nvl72" not in path.name and "4x4x4" not in path.name],
                         ids=lambda path: path.stem)  # fmt: skip
def test_shipped_machines_come_back(path: Path) -> None:
    topology = load_topology(path)
    back = again(topology)
    same_machine(topology, back)
    assert time_of(topology) == time_of(back)


def test_files(tmp_path: Path) -> None:
    topology = torus((2, 3), bandwidth="50GB/s", latency="1us")
    path = tmp_path / "small.simgrid.xml"
    assert write_topology(topology, path) == "simgrid"
    back = read_topology(path)
    same_machine(topology, back)
    assert back.name == "small"
    with pytest.raises(InputError, match=re.escape("expected a name that ends in .xml")):
        write_simgrid(topology, tmp_path / "small.txt")


def test_text() -> None:
    builder = TopologyBuilder("a<b")
    builder.add_node("x & y")
    builder.add_node('z"')
    builder.add_node("mid", "nic", forwards=True)
    builder.add_link("x & y", "mid", 25 * 2**30, 1_500, kind="pcie")
    builder.add_link("mid", 'z"', 123_456_789_012_345_678, 0)
    builder.add_duplex('z"', "x & y", 1, 2**62)
    topology = builder.build()
    text = format_simgrid(topology)
    assert '<zone id="a_b" routing="Full">' in text
    assert '<link id="x &amp; y-&gt;mid" bandwidth="25GiBps" latency="1.5ns">' in text
    assert text.count("<route ") == 2
    assert 'symmetrical="NO"' in text
    same_machine(topology, again(topology))


def test_idle_parallel_links_stay() -> None:
    builder = TopologyBuilder("parallel")
    builder.add_node("a")
    builder.add_node("b", forwards=False)
    builder.add_duplex("a", "b", 10**9, 1000, count=3)
    topology = builder.build()
    same_machine(topology, again(topology))
    assert again(topology).n_links == 6


def test_a_route_decides_what_forwards() -> None:
    # Found by mutation: a property said that a node does not forward, a route of the file passed it all the same.
    text = format_simgrid(ring(3)).replace(
        '<prop id="collsim"', '<prop id="forwards.gpu1" value="no"/><prop id="collsim"'
    )
    back = parse_simgrid(Source("again.xml", text))
    assert back.forwards.all()
    same_machine(ring(3), back)


def test_ranks_out_of_order_stay_ranks() -> None:
    builder = TopologyBuilder("turned")
    for name in ("a", "b", "c"):
        builder.add_node(name, "host")
    builder.add_duplex("a", "b", 10**9, 1000)
    builder.add_duplex("b", "c", 10**9, 1000)
    topology = builder.build(["c", "a"])
    back = again(topology)
    assert back.ranks == ("c", "a")
    assert set(back.kinds) == {"host"}
    assert routes(back) == routes(topology)


def test_without_the_properties_the_graph_is_found_all_the_same() -> None:
    topology = load_topology("dgx-1-v100")
    text = re.sub(r"\s*<prop [^>]*>", "", format_simgrid(topology))
    back = parse_simgrid(Source("bare.xml", text))
    assert back.ranks == topology.ranks
    for a, b in permutations(range(8), 2):
        one, other = list(topology.route(a, b)), list(back.route(a, b))
        assert topology.link_bandwidth[one].tolist() == back.link_bandwidth[other].tolist()
        assert topology.link_latency[one].sum() == back.link_latency[other].sum()
    assert time_of(topology) == time_of(back)


def test_refusals() -> None:
    with pytest.raises(TopologyError, match="no word for the send overhead of 'gpu0'"):
        format_simgrid(ring(4, send_overhead="1us"))
    with pytest.raises(TopologyError, match="no word for the rate of reduction of 'gpu0'"):
        format_simgrid(ring(4, reduce_bandwidth="1GB/s"))
    with pytest.raises(TopologyError, match="no word for the rate of a channel"):
        format_simgrid(ring(4, channel_bandwidth="1GB/s"))
    with pytest.raises(TopologyError, match="here 249,500 routes, beyond what"):
        format_simgrid(switch(500))
    with pytest.raises(TopologyError, match="here 159,600 routes over 31,920,000 links"):
        format_simgrid(ring(400))
    builder = TopologyBuilder("apart")
    builder.add_node("a")
    builder.add_node("b\n")
    builder.add_duplex("a", "b\n", 1, 0)
    with pytest.raises(TopologyError, match="expected printable names"):
        format_simgrid(builder.build())
    lonely = TopologyBuilder("lonely")
    lonely.add_node("a")
    lonely.add_node("b")
    with pytest.raises(TopologyError, match="no route from"):
        format_simgrid(lonely.build())


NAMES = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=8)


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    names = draw(st.lists(NAMES, min_size=2, max_size=7, unique=True))
    builder = TopologyBuilder(draw(NAMES))
    ranks = draw(st.integers(1, len(names)))
    for number, name in enumerate(names):
        builder.add_node(name, "gpu" if number < ranks else draw(st.sampled_from(["switch", "nic", "host"])))
    rates, times = st.integers(1, 2**53), st.integers(0, 2**50)
    for number in range(1, len(names)):  # a tree, and some links more
        other = draw(st.integers(0, number - 1))
        builder.add_duplex(names[number], names[other], draw(rates), draw(times), count=draw(st.integers(1, 2)))
    for _ in range(draw(st.integers(0, 5))):
        a, b = draw(st.permutations(names))[:2]
        builder.add_link(a, b, draw(rates), draw(times), kind=draw(st.sampled_from(["", "nvlink", "a & b"])))
    return builder.build()


@settings(max_examples=60)
@given(machines())
def test_what_is_written_is_read(topology: Topology) -> None:
    try:
        text = format_simgrid(topology)
    except TopologyError as error:
        assert "two links have the name" in str(error)  # noqa: PT017 - names such as "a" and "a#1" can meet
        return
    back = parse_simgrid(Source("again.xml", text))
    used = {link for links in routes(topology) for link in links}
    assert back.ranks == topology.ranks
    assert routes(back) == routes(topology)
    for a, b in permutations(range(topology.n_ranks), 2):
        one, other = list(topology.route(a, b)), list(back.route(a, b))
        assert topology.link_bandwidth[one].tolist() == back.link_bandwidth[other].tolist()
        assert topology.link_latency[one].tolist() == back.link_latency[other].tolist()
    assert used <= {back.link_name(link) for link in range(back.n_links)}
    assert dict(zip(topology.nodes, topology.kinds, strict=True)) == dict(zip(back.nodes, back.kinds, strict=True))
    if topology.n_ranks > 1 and topology.link_bandwidth.min() > 1000:
        assert time_of(topology, 64) == time_of(back, 64)
