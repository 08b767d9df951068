"""Machines out of htsim's ``.topo`` files."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import collsim
from collsim.errors import TopologyError
from collsim.formats.htsim import parse_htsim, read_htsim
from collsim.formats.source import Source
from collsim.topology import Topology

SAMPLE = Path(__file__).parents[2] / "shared" / "samples" / "htsim_8nodes.topo"

THREE = """# three tiers, bundles at the top
Nodes 16
Tiers 3
Podsize 8

Tier 0
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 4
Queue_Up 1000
Queue_Down 1000
Downlink_Latency_ns 1000
Switch_Latency_ns 10

Tier 1
Downlink_speed_Gbps 200
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 2000
Switch_Latency_ns 200
Bundle 2

Tier 2
Downlink_speed_Gbps 200
Radix_Down 4
Downlink_Latency_ns 3000
Switch_Latency_ns 3000
Bundle 2
"""
"""Two pods of two ToRs and two aggregation switches, four cores; the ToR has twice as much up as down."""

TWO = """nodes 32
tiers 2
podsize 32
tier 0
downlink_speed_gbps 100
radix_down 8
radix_up 2     # to two spines
downlink_latency_ns 1000
oversubscribed 4
tier 1
downlink_speed_gbps 100
radix_down 4
downlink_latency_ns 500
"""


def read(text: str) -> Topology:
    return parse_htsim(Source("x.topo", text))


def fault(text: str) -> str:
    with pytest.raises(TopologyError) as caught:
        read(text)
    assert caught.value.line is not None
    return str(caught.value)


def joined(topology: Topology) -> Counter[tuple[str, str]]:
    """Return how many links there are from each node to each."""
    return Counter(
        (topology.nodes[a], topology.nodes[b])
        for a, b in zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True)
    )


def equal_speeds(text: str) -> str:
    return text.replace("Gbps 200", "Gbps 100")


def test_three_tiers() -> None:
    topology = read(equal_speeds(THREE))
    assert topology.ranks == tuple(f"host[{i}]" for i in range(16))
    assert Counter(name.partition("[")[0] for name in topology.nodes) == {"host": 16, "tor": 4, "agg": 4, "core": 4}
    wanted: Counter[tuple[str, str]] = Counter()
    for host in range(16):
        wanted[f"host[{host}]", f"tor[{host // 4}]"] = 1
    for pod in range(2):
        for tor in range(2):
            for agg in range(2):
                wanted[f"tor[{2 * pod + tor}]", f"agg[{2 * pod + agg}]"] = 2
        for agg in range(2):
            for core in (agg, agg + 2):  # every second core
                wanted[f"agg[{2 * pod + agg}]", f"core[{core}]"] = 2
    wanted += Counter({(b, a): count for (a, b), count in wanted.items()})
    assert joined(topology) == wanted
    assert not topology.forwards[topology.rank_nodes].any()
    assert "2 pods" in topology.description


def test_latency_of_a_route_is_that_of_its_links_and_switches() -> None:
    topology = read(equal_speeds(THREE))

    def latency(a: int, b: int) -> int:
        return int(topology.link_latency[list(topology.route(a, b))].sum()) // 1000

    assert latency(0, 1) == 2 * 1000 + 10
    assert latency(0, 4) == 2 * (1000 + 2000) + 2 * 10 + 200
    assert latency(0, 8) == 2 * (1000 + 2000 + 3000) + 2 * 10 + 2 * 200 + 3000
    assert "latency of a switch is part of that of the links that leave it" in topology.description


def test_tiers_of_different_speeds() -> None:
    # what htsim takes: it reckons in bandwidth, 16 hosts of 100 need 8 links of 200, so 2 for each aggregation switch
    text = THREE.replace("Gbps 200\nRadix_Down 4\nRadix_Up 4", "Gbps 200\nRadix_Down 2\nRadix_Up 2")
    text = text.replace("Gbps 200\nRadix_Down 4", "Gbps 200\nRadix_Down 2")
    topology = read(text[: text.rindex("Bundle")])
    ends = (topology.link_src.tolist(), topology.link_dst.tolist())
    kinds = [[topology.nodes[node].partition("[")[0] for node in nodes] for nodes in ends]
    rates = dict(zip(zip(*kinds, strict=True), topology.link_bandwidth.tolist(), strict=True))
    assert rates["host", "tor"] == rates["tor", "host"] == 12_500_000_000
    assert rates["tor", "agg"] == rates["agg", "tor"] == rates["core", "agg"] == 25_000_000_000
    links = joined(topology)
    assert links["tor[0]", "agg[1]"] == links["agg[1]", "tor[0]"] == 2
    assert links["agg[3]", "core[1]"] == links["core[3]", "agg[3]"] == 1
    assert sum(links.values()) == 2 * (16 + 16 + 8)


def test_two_tiers() -> None:
    topology = read(TWO)
    assert Counter(name.partition("[")[0] for name in topology.nodes) == {"host": 32, "tor": 4, "agg": 2}
    assert topology.n_links == 2 * (32 + 8)
    assert set(topology.link_latency.tolist()) == {1_000_000, 500_000}
    assert "Switch" not in topology.description
    assert topology.link_name(topology.route(0, 9)[-1]) == "tor[1]->host[9]"
    result = collsim.run("all_reduce", topology, size="64MiB", algorithm="ring")
    assert result.busbw / 1e9 == pytest.approx(12.5, rel=0.05)


def test_larger_trees_that_htsim_ships() -> None:
    # the figures of its zrs.topo (432 hosts, bundles of 3) and fat_tree_1024.topo
    tier = "Downlink_speed_Gbps 100\nRadix_Down {}\n{}Downlink_Latency_ns 1000\n"
    bundled = "Nodes 432\nTiers 3\nPodsize 36\nTier 0\n" + tier.format(6, "Radix_Up 6\n")
    bundled += "Tier 1\n" + tier.format(6, "Radix_Up 6\n") + "Tier 2\n" + tier.format(36, "Bundle 3\n")
    topology = read(bundled)
    assert Counter(name.partition("[")[0] for name in topology.nodes) == {"host": 432, "tor": 72, "agg": 72, "core": 12}
    assert topology.n_links == 6 * 432
    assert int(topology.link_key.max()) == 2
    full = "Nodes 1024\nTiers 3\nPodsize 64\nTier 0\n" + tier.format(8, "Radix_Up 8\n")
    full += "Tier 1\n" + tier.format(8, "Radix_Up 8\n") + "Tier 2\n" + tier.format(16, "")
    assert Counter(name.partition("[")[0] for name in read(full).nodes) == {
        "host": 1024,
        "tor": 128,
        "agg": 128,
        "core": 64,
    }


@pytest.mark.skipif(not SAMPLE.exists(), reason="no samples here")
def test_the_sample() -> None:
    topology = read_htsim(SAMPLE)
    assert (topology.n_ranks, topology.n_nodes, topology.n_links) == (8, 20, 64)
    assert joined(topology)["agg[0]", "core[2]"] == 2
    assert sorted(set(topology.link_bandwidth.tolist())) == [12_500_000_000, 25_000_000_000]
    hops, _ = topology.routes(np.zeros(8, dtype=int), np.arange(8))
    assert np.diff(hops).tolist() == [0, 2, 4, 4, 6, 6, 6, 6]


@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3),
    st.integers(1, 3), st.integers(1, 3),
)  # fmt: skip
def test_switches_have_the_ports_of_their_radix(
    hosts: int, tors: int, aggs: int, pods: int, fans: int, low: int, top: int, speed: int
) -> None:
    down, up, ups = hosts * aggs * low, aggs * low, fans * top
    ratio, left = divmod(tors * low, ups * speed)
    tier = "Tier {}\nDownlink_speed_Gbps {}\nDownlink_Latency_ns 1\nRadix_Down {}\n"
    text = f"Nodes {pods * tors * down}\nTiers 3\nPodsize {tors * down}\n"
    text += tier.format(0, 100, down) + f"Radix_Up {up}\nOversubscribed {hosts}\n"
    text += tier.format(1, 100, tors * low) + f"Radix_Up {ups}\nBundle {low}\nOversubscribed {ratio or 1}\n"
    text += tier.format(2, 100 * speed, pods * top) + f"Bundle {top}\n"
    if left:
        assert "Tier 1, Radix_Up: expected a whole number of times the bandwidth up to go down" in fault(text)
        return
    topology = read(text)
    ports = Counter(topology.nodes[node] for node in topology.link_src.tolist())
    radix = {"host": 1, "tor": down + up, "agg": tors * low + ups, "core": pods * top}
    assert all(count == radix[name.partition("[")[0]] for name, count in ports.items())
    assert topology.n_ranks == pods * tors * down
    assert len(ports) == topology.n_nodes


ONE_TO_MANY = "expected a whole number from 1 to 2,000,000, got"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("nodes 32", "node 32",
         "1:1: expected a keyword such as Nodes or Radix_Down, got 'node'; did you mean 'Nodes'?"),
        ("nodes 32", "", "1:1: expected Nodes before the first Tier, got none"),
        ("nodes 32", "nodes", "1:6: expected a whole number after Nodes, got none"),
        ("nodes 32", "nodes 32 hosts", "1:10: Nodes: expected one number after Nodes, got 'hosts' too"),
        ("nodes 32", "nodes 33", "3:9: Podsize: expected a divisor of the 33 Nodes, got 32"),
        ("nodes 32", "nodes 64", "3:9: Podsize: expected all 64 Nodes in one pod, there being 2 Tiers, got 32"),
        ("nodes 32", "nodes 1000000000000", f"1:7: Nodes: {ONE_TO_MANY} '1000000000000'"),
        ("nodes 32", "nodes -8", f"1:7: Nodes: {ONE_TO_MANY} '-8'"),
        ("nodes 32", "nodes 3e1", f"1:7: Nodes: {ONE_TO_MANY} '3e1'"),
        ("nodes 32", "nodes \u0663", f"1:7: Nodes: {ONE_TO_MANY} '\u0663'"),
        ("gbps 100", "gbps 12.5", "5:21: Downlink_speed_Gbps: expected a whole number from 1"),
        ("tiers 2", "tiers 4", "2:7: Tiers: expected a whole number from 2 to 3, got '4'"),
        ("tiers 2", "tiers 3", "13:1: expected Tier 2, Tiers being 3, got none"),
        ("tiers 2", "tiers 2\ntiers 2", "3:1: expected one Tiers, got a second one (the first is in line 2)"),
        ("tier 0", "tier 0\nnodes 4", "5:1: expected Nodes before the first Tier, got it here"),
        ("tiers 2", "tiers 2\nBundle 2", "3:1: expected Bundle after a line such as Tier 0, got it here"),
        ("radix_up 2", "", "4:1: expected Radix_Up in Tier 0, got none"),
        ("radix_up 2", "radix_up 3",
         "7:10: Tier 0, Radix_Up: expected a whole number of times the bandwidth up to go down, "
         "got 8 x 100 Gb/s going down and 3 x 100 Gb/s up"),
        ("oversubscribed 4", "",
         "4:1: Tier 0, Oversubscribed: expected 4, 8 x 100 Gb/s going down and 2 x 100 Gb/s up, "
         "got 1, which it is if left out"),
        ("radix_down 8", "radix_down 7", "6:12: Tier 0, Radix_Down: expected a divisor of the Podsize 32, got 7"),
        ("radix_down 4", "radix_down 8",
         "12:12: Tier 1, Radix_Down: expected 4, for 4 ToRs of a pod and Bundle 1, got 8"),
        ("radix_down 4", "radix_down 4\nbundle 4",
         "7:10: Tier 0, Radix_Up: expected a multiple of the Bundle 4 of Tier 1, got 2"),
        ("radix_down 8", "radix_down 8\nbundle 2", "7:8: Tier 0, Bundle: expected 1, hosts having one link, got 2"),
    ],
)  # fmt: skip
def test_mistakes(old: str, new: str, message: str) -> None:
    assert old in TWO
    assert fault(TWO.replace(old, new, 1)).startswith(f"x.topo:{message}")


def test_mistakes_of_three_tiers() -> None:
    text = equal_speeds(THREE)
    assert fault(text.replace("Radix_Down 4\nDownlink_Latency_ns 3000", "Radix_Down 8\nDownlink_Latency_ns 3000")) == (
        "x.topo:25:12: Tier 2, Radix_Down: expected 4, for 2 pods and Bundle 2, got 8"
    )
    assert "Radix_Up: expected no links up from the highest tier" in fault(text + "Radix_Up 4\n")


def leaves(nodes: int, down: int, up: int) -> str:
    """Write a tree of two tiers without oversubscription."""
    tier = "Tier {}\nDownlink_speed_Gbps 1\nDownlink_Latency_ns 1\nRadix_Down {}\n"
    text = f"Nodes {nodes}\nTiers 2\nPodsize {nodes}\n" + tier.format(0, down) + f"Radix_Up {up}\n"
    return text + f"Oversubscribed {down // up}\n" + tier.format(1, nodes // down)


def test_sizes_are_refused_before_they_are_made() -> None:
    assert "Nodes: expected at most 2,000,000 nodes in all, got 3,000,001" in fault(leaves(1_500_000, 1, 1))
    trunk = leaves(40_000, 4, 4).replace("Tiers 2", "Tiers 3").replace("Gbps 1", "Gbps 1000") + "Radix_Up 10000000\n"
    trunk += "Tier 2\nDownlink_speed_Gbps 1\nDownlink_Latency_ns 1\nRadix_Down 10000000\nBundle 10000000\n"
    assert "Nodes: expected at most 20,000,000 links in all, got 80,160,000" in fault(trunk)
    huge = leaves(1000, 1, 1).replace("Radix_Up 1", "Radix_Up 1000000000\nBundle 1")
    assert "expected a whole number of times" in fault(huge)
    bundle = leaves(6000, 6000, 6000) + "Bundle 6000\n"  # a switch of 6000 parallel links to another
    assert read(bundle.replace("Radix_Down 1\n", "Radix_Down 6000\n")).n_links == 4 * 6000


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "leaf spine.topo"
    path.write_bytes(b"\xef\xbb\xbf" + TWO.replace("\n", "\r\n").encode())
    assert read_htsim(path) == read(TWO)
    assert read_htsim(path).name == "leaf spine"
    path.write_text("# long\n" * 2**18)
    with pytest.raises(TopologyError, match="expected at most 1 MiB, got a larger file"):
        read_htsim(path)


ODD = (
    "0",
    "-1",
    "1e400",
    "9" * 30,
    "9" * 5000,
    "nan",
    "1000000000",
    "2000000",
    "x" * 10**6,
    "Tier",
    "#",
    "\u0663",
    "+4",
    "0x10",
)


def mutated(text: str, dice: random.Random) -> str:
    """Cut, double, swap or replace something."""
    words = re.split(r"(\s+)", text)
    for _ in range(dice.randint(1, 4)):
        kind, place = dice.randrange(5), dice.randrange(len(words))
        if kind == 0:
            words = words[:place] if dice.random() < 0.3 and place else words[:place] + words[place + 1 :]
        elif kind == 1:
            words[place:place] = words[place : place + dice.randint(1, 12)]
        elif kind == 2:
            other = dice.randrange(len(words))
            words[place], words[other] = words[other], words[place]
        else:
            words[place] = dice.choice(ODD)
        words = words or [""]
    return "".join(words)


def attempt(text: str) -> TopologyError | None:
    """Read a text; return why it was refused."""
    try:
        assert read(text).n_ranks
    except TopologyError as error:
        return error
    return None


def test_garbage_is_refused_with_its_place() -> None:
    dice = random.Random(6)
    errors = [attempt(mutated((TWO, equal_speeds(THREE))[n % 2], dice)) for n in range(500)]
    refused = [error for error in errors if error is not None]
    assert all(error.line is not None and len(str(error)) < 500 for error in refused)
    assert 200 < len(refused) < 490
