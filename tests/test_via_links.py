"""Paths that name links: ``via`` entries such as ``gpu[0]->gpu[3]#1``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import collsim.topology
from collsim import Collective, Schedule, ScheduleBuilder, simulate
from collsim.errors import TopologyError
from collsim.topology import Topology, TopologyBuilder, load_topology
from collsim.topology.paths import routes_along
from tests.test_roll import agree

GB = 10**9


def names(topology: Topology, links: Any) -> list[str]:
    return [topology.link_name(int(link)) for link in links]


def two_widths() -> Topology:
    """Two ranks joined by a wide and a narrow link, and by a switch; one end does not forward."""
    b = TopologyBuilder("two widths")
    for name in ("gpu[0]", "gpu[1]", "gpu[2]"):
        b.add_node(name, forwards=name != "gpu[2]")
    b.add_node("sw", kind="switch")
    b.add_link("gpu[0]", "gpu[1]", 40 * GB, 1000)
    b.add_link("gpu[0]", "gpu[1]", 10 * GB, 1000)
    for name in ("gpu[0]", "gpu[1]", "gpu[2]"):
        b.add_duplex(name, "sw", 20 * GB, 1000)
    b.add_link("gpu[1]", "gpu[2]", 20 * GB, 1000)
    b.add_link("gpu[2]", "gpu[1]", 20 * GB, 1000)
    return b.build()


def sent(*via: str, dst: int = 1, repeats: int = 1) -> Schedule:
    b = ScheduleBuilder(Collective("broadcast", 3), chunks=4)
    with b.repeat(repeats, shift=1):
        b.copy(0, dst, 0, via=via or None)
    return b.build()


@pytest.mark.parametrize(
    ("via", "microseconds"),
    [((), 25), (("gpu[0]->gpu[1]#0",), 25), (("gpu[0]->gpu[1]#1",), 100), (("sw",), 50), (("sw->gpu[1]",), 50),
     (("gpu[0]->sw",), 50), (("gpu[0]->sw", "sw->gpu[1]"), 50), (("gpu[0]->sw", "sw"), 50)],
)  # fmt: skip
def test_each_of_parallel_links_can_be_taken(via, microseconds):
    result = simulate(sent(*via), two_widths(), 4_000_000, check=False)
    hops = 1 if microseconds in (25, 100) else 2
    assert result.time_ps == microseconds * 10**6 + hops * 1000


def test_links_and_nodes_in_one_path_are_joined_by_the_shortest_ways():
    topology = load_topology("dgx-1-v100")
    node = topology.node_index
    way = topology.route_via(node("gpu[3]"), node("gpu[7]"), ("gpu[3]->gpu[0]#1", "gpu[4]", "gpu[4]->gpu[7]#0"))
    assert names(topology, way)[0] == "gpu[3]->gpu[0]#1"
    assert names(topology, way)[1] in ("gpu[0]->gpu[4]#0", "gpu[0]->gpu[4]#1")
    assert names(topology, way)[2:] == ["gpu[4]->gpu[7]#0"]
    # a link that does not begin at the source is led to
    way = topology.route_via(node("gpu[1]"), node("gpu[3]"), ("gpu[0]->gpu[3]#1",))
    assert names(topology, way) == ["gpu[1]->gpu[0]", "gpu[0]->gpu[3]#1"]
    assert topology.route_via(node("gpu[3]"), node("gpu[3]"), ("gpu[0]",)) == ()


def test_every_link_is_found_by_its_name():
    for name in ("dgx-1-v100", "dgx-h100-x4", "torus-4x4"):
        topology = load_topology(name)
        assert [topology.link_index(topology.link_name(link)) for link in range(topology.n_links)] == list(
            range(topology.n_links)
        )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu[0]->gpu[1]", "there are 2, 'gpu[0]->gpu[1]#0' to 'gpu[0]->gpu[1]#1'; name one"),
        ("gpu[0]->gpu[1]#2", "there are 2, 'gpu[0]->gpu[1]#0' to 'gpu[0]->gpu[1]#1'"),
        ("gpu[0]->sw#0", "it is called 'gpu[0]->sw', there is only one"),
        ("gpu[1]->gpu[0]", "there is one the other way, 'gpu[0]->gpu[1]#0'"),
        ("gpu[0]->gpu[2]", "from 'gpu[0]' there are gpu[0]->gpu[1]#0, gpu[0]->gpu[1]#1, gpu[0]->sw"),
        ("gpu[0]->gpu[9]", "there is no node 'gpu[9]'; did you mean 'gpu["),
        ("gpu[0]->gpu[9]#1", "there is no node 'gpu[9]'; did you mean 'gpu["),
        ("gqu[0]->sw", "there is no node 'gqu[0]'; did you mean 'gpu[0]'?"),
        ("->", "there is no node ''"),
    ],
)  # fmt: skip
def test_wrong_names_are_refused_with_the_nearest(name, message):
    topology = two_widths()
    with pytest.raises(TopologyError) as refused:
        agree(sent(name), topology, 4)
    text = str(refused.value)
    assert text.startswith(f"no link {name!r} in topology 'two widths'; ")
    assert message in text
    assert "\n" not in text
    with pytest.raises(TopologyError) as again:
        topology.link_index(name)
    assert str(again.value) == text


def test_what_is_no_name_of_a_link_is_one_of_a_node():
    topology = two_widths()
    with pytest.raises(TopologyError, match=r"no node 'gpu\[0\]-gpu\[1\]'"):
        agree(sent("gpu[0]-gpu[1]"), topology, 4)
    for name in ("sw", 3):
        with pytest.raises(TopologyError, match="expected the name of a link such as 'a->b'"):
            topology.link_index(name)


def test_ends_need_not_forward_but_what_is_between_them():
    topology = two_widths()
    loops = agree(sent("gpu[0]->gpu[1]#1", "gpu[1]->gpu[2]", dst=2), topology, 4)
    assert names(topology, loops.route_station) == ["gpu[0]->gpu[1]#1", "gpu[1]->gpu[2]"]
    for via in (("sw->gpu[2]",), ("sw->gpu[2]", "gpu[2]->gpu[1]"), ("gpu[2]->gpu[1]",)):
        with pytest.raises(TopologyError, match=r"route via '.*' from 'gpu\[0\]' to 'gpu\[1\]': 'gpu\[2\]' does not"):
            agree(sent(*via), topology, 4)
    with pytest.raises(TopologyError, match=r"route via 'gpu\[2\]': the node does not forward; leave it out of 'via'"):
        agree(sent("gpu[2]", dst=2), topology, 4)


def test_link_names_are_written_and_read_again():
    for via in (("gpu[0]->gpu[1]#1",), ("gpu[0]->gpu[1]#1", "sw", 'a "quoted" # name->b\\c#3')):
        schedule = sent(*via, repeats=3)
        assert f"path {via[0]!r}".replace("'", '"').replace("path ", "path [") in str(schedule)
        assert Schedule.from_text(str(schedule)) == schedule


def test_both_lowerings_take_the_same_links():
    topology = two_widths()
    b = ScheduleBuilder(Collective("broadcast", 3), chunks=12)
    ways = (("gpu[0]->gpu[1]#0",), ("gpu[0]->gpu[1]#1",), ("sw",), None, ("gpu[0]->sw", "sw->gpu[1]"))
    with b.repeat(4, shift=1, window=4):
        for channel, via in enumerate(ways):
            b.copy(0, 1, 4 * (channel % 3), via=via, channel=channel, step=channel)
        b.copy(1, 2, 4, via=("gpu[1]->gpu[2]",), step=5)
    b.copy(2, 1, 8, via=("gpu[2]->gpu[1]",))
    loops = agree(b.build(), topology, 120)
    assert loops.times.tolist() == [4, 1]
    assert len(loops.route_ptr) - 1 == 7


def test_a_name_of_both_kinds_means_the_link():
    graph = collsim.topology.ring(3).graph.copy()
    graph.add_node("gpu0->gpu1", kind="switch")
    for end in ("gpu0", "gpu1"):
        graph.add_edge(end, "gpu0->gpu1", bandwidth=GB, latency=0)
        graph.add_edge("gpu0->gpu1", end, bandwidth=GB, latency=0)
    topology = collsim.topology.from_networkx(graph)
    assert names(topology, topology.route_via(0, 1, ["gpu0->gpu1"])) == ["gpu0->gpu1"]
    assert names(topology, topology.route_via(0, 1, ["gpu0->gpu0->gpu1"])) == ["gpu0->gpu0->gpu1", "gpu0->gpu1->gpu1"]
    node = topology.node_index("gpu0->gpu1")
    assert names(topology, topology.route_nodes(np.array([0]), np.array([node]))[1]) == ["gpu0->gpu0->gpu1"]
    lonely = graph.copy()
    lonely.remove_edge("gpu0", "gpu1", 0)
    topology = collsim.topology.from_networkx(lonely)
    assert names(topology, topology.route_via(0, 1, ["gpu0->gpu1"])) == ["gpu0->gpu0->gpu1", "gpu0->gpu1->gpu1"]


def test_paths_given_link_by_link_need_no_search(monkeypatch):
    topology = collsim.topology.fully_connected(72)
    src, dst = (a.ravel() for a in np.indices((72, 72)))
    src, dst = src[src != dst], dst[src != dst]
    paths = [(f"gpu{a}->gpu{b}",) for a, b in zip(src, dst, strict=True)]
    asked = []
    found = Topology.route_nodes

    def counted(self, src, dst, channel=0):
        asked.append(len(src))
        return found(self, src, dst, channel)

    monkeypatch.setattr(Topology, "route_nodes", counted)
    ptr, links = routes_along(topology, src, dst, 0, np.arange(len(paths)), paths)
    assert len(paths) == 5112
    assert sum(asked) == 0
    assert (np.diff(ptr) == 1).all()
    assert (topology.link_src[links] == src).all()
    assert (topology.link_dst[links] == dst).all()
    # with a node on the way both halves of all of them are searched for together
    asked.clear()
    relay = np.flatnonzero((src > 0) & (dst > 0))
    ptr, links = routes_along(topology, src[relay], dst[relay], 0, np.zeros(len(relay), np.int64), [["gpu0"]])
    assert asked == [2 * len(relay)]
    assert (topology.link_dst[links[::2]] == 0).all()
    assert (topology.link_src[links[1::2]] == 0).all()
    assert (topology.link_dst[links[1::2]] == dst[relay]).all()
