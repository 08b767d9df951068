"""Topologies of ns-3 back ends: those of HPCC and ASTRA-sim, and those of SimAI."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import collsim
from collsim.errors import TopologyError
from collsim.formats.ns3 import lines, parse_ns3, parse_simai, read_ns3, read_simai
from collsim.formats.source import Source
from collsim.topology import Topology
from collsim.topology.structure import node_groups

SAMPLE = Path(__file__).parents[2] / "shared" / "samples" / "Spectrum-X_16g_8gps_100Gbps_A100"

NS3 = """\
6 2 6
4
5
0 4 100Gbps 1us 0
1 4 100Gbps 0.001ms 0
2 5 200Gbps 500ns 0
3 5 10Mbps 2s 0
4 5 400Gbps 1us 0
4 5 400Gbps 1us 0

First line: total node #, switch node #, link #
Second line: switch node IDs...
src0 dst0 rate delay error_rate
"""


def simai(servers: int = 2, per_server: int = 2, tors: int = 1) -> str:
    """Servers with an NVSwitch, each GPU on so many switches of its rail, and one spine above them."""
    gpus = servers * per_server
    rails = gpus + servers
    spine = rails + per_server * tors
    links = []
    for gpu in range(gpus):
        links.append(f"{gpu} {gpus + gpu // per_server} 2400Gbps 0.000025ms 0")
        links += [f"{gpu} {rails + gpu % per_server + per_server * tor} 100Gbps 0.0005ms 0" for tor in range(tors)]
    links += [f"{rail} {spine} 400Gbps 0.0005ms 0" for rail in range(rails, spine)]
    ids = " ".join(map(str, range(gpus, spine + 1)))
    head = f"{spine + 1} {per_server} {servers} {spine - rails + 1} {len(links)} A100"
    return "\n".join([head, ids + " ", *links]) + "\n"


def ns3(text: str) -> Topology:
    return parse_ns3(Source("net.txt", text))


def sim(text: str) -> Topology:
    return parse_simai(Source("net.topo", text))


def names(topology: Topology, src: int, dst: int) -> list[str]:
    return [topology.link_name(link) for link in topology.route(src, dst)]


# -------------------- ns-3


def test_nodes_are_numbered_as_in_the_file_and_what_is_no_switch_is_a_gpu():
    topology = ns3(NS3)
    assert topology.nodes == ("gpu[0]", "gpu[1]", "gpu[2]", "gpu[3]", "switch[4]", "switch[5]")
    assert topology.ranks == ("gpu[0]", "gpu[1]", "gpu[2]", "gpu[3]")
    assert topology.forwards.tolist() == [False] * 4 + [True] * 2
    assert topology.name == "net"


def test_a_line_is_a_link_each_way_with_its_rate_and_delay():
    topology = ns3(NS3)
    assert topology.n_links == 12
    assert topology.link_bandwidth.tolist() == [
        rate
        for rate in (12_500_000_000, 12_500_000_000, 25_000_000_000, 1_250_000, 50_000_000_000, 50_000_000_000)
        for _ in range(2)
    ]
    assert topology.link_latency[::2].tolist() == [10**6, 10**6, 500_000, 2 * 10**12, 10**6, 10**6]
    assert topology.link_latency[1::2].tolist() == topology.link_latency[::2].tolist()
    assert {topology.link_kind(link) for link in range(12)} == {"ethernet"}
    assert "ns-3" in topology.source


def test_repeated_lines_are_parallel_links():
    topology = ns3(NS3)
    assert len(topology.links_between("switch[4]", "switch[5]")) == 2
    assert topology.link_name(8) == "switch[4]->switch[5]#0"
    assert topology.link_name(10) == "switch[4]->switch[5]#1"


def test_gpus_do_not_forward():
    text = "4 1 3\n3\n0 3 1Gbps 1us 0\n0 1 1Gbps 1us 0\n1 2 1Gbps 1us 0\n"
    topology = ns3(text)
    assert names(topology, 0, 1) == ["gpu[0]->gpu[1]"]
    with pytest.raises(TopologyError, match="no route"):
        topology.route(0, 2)


def test_switches_may_come_first_and_in_any_order():
    topology = ns3("4 2 3\n2 0\n1 0 1Gbps 1us 0\n3 2 1Gbps 1us 0\n0 2 1Gbps 1us 0\n")
    assert topology.nodes == ("switch[0]", "gpu[1]", "switch[2]", "gpu[3]")
    assert topology.ranks == ("gpu[1]", "gpu[3]")
    assert names(topology, 0, 1) == ["gpu[1]->switch[0]", "switch[0]->switch[2]", "switch[2]->gpu[3]"]


def test_comments_blank_lines_and_tabs():
    text = "# made by hand\n\n3\t1  2 # head\n\n2 # the switch\n\n0 2 1Gbps 1us 0 # a\n#0 1 1Gbps 1us 0\n\n"
    text += " 1 2 1Gbps 1us 0"
    assert ns3(text) == ns3("3 1 2\n2\n0 2 1Gbps 1us 0\n1 2 1Gbps 1us 0\n")


def test_numbers_of_switches_wrap():
    ids = list(range(2, 40))
    links = "".join(f"{i % 2} {i} 1Gbps 1us 0\n" for i in ids)
    wrapped = "\n".join(" ".join(map(str, ids[i : i + 7])) for i in range(0, len(ids), 7))
    flat = " ".join(map(str, ids))
    assert ns3(f"40 38 38\n{wrapped}\n{links}") == ns3(f"40 38 38\n{flat}\n{links}")


@pytest.mark.parametrize(
    ("rate", "delay", "bandwidth", "latency"),
    [
        ("400Gbps", "1us", 50_000_000_000, 1_000_000),
        ("8bps", "1ps", 1, 1),
        ("100Mb/s", "5ms", 12_500_000, 5_000_000_000),
        ("25GB/s", "0s", 25_000_000_000, 0),
        ("1Gib/s", "0.000025ms", 2**30 // 8, 25_000),
        ("1000000000", "0.5", 125_000_000, 500_000_000_000),  # ns-3: bit/s and seconds
        ("0.1Gbps", "+1000.0ns", 12_500_000, 1_000_000),
    ],
)
def test_units(rate, delay, bandwidth, latency):
    topology = ns3(f"2 0 1\n\n0 1 {rate} {delay} 0\n")
    assert topology.link_bandwidth.tolist() == [bandwidth] * 2
    assert topology.link_latency.tolist() == [latency] * 2


def test_lost_packets_are_told_and_not_simulated():
    lossy = ns3(NS3.replace("0 4 100Gbps 1us 0", "0 4 100Gbps 1us 0.01").replace("10Mbps 2s 0", "10Mbps 2s 1e-3"))
    assert lossy == ns3(NS3)
    assert "packets are lost on 2 of the links (a share of 0.01 at most), here none" in lossy.description
    assert "lost" not in ns3(NS3).description


# -------------------- SimAI


def test_simai_has_nvswitches_first_and_servers_in_the_names():
    topology = sim(simai())
    assert topology.nodes[:4] == ("node[0].gpu[0]", "node[0].gpu[1]", "node[1].gpu[2]", "node[1].gpu[3]")
    assert topology.nodes[4:] == ("node[0].nvswitch[4]", "node[1].nvswitch[5]", "switch[6]", "switch[7]", "switch[8]")
    assert topology.kinds[4:] == ("switch",) * 5
    assert node_groups(topology) == ((0, 1), (2, 3))
    nvlinks = [link for link in range(topology.n_links) if topology.link_kind(link) == "nvlink"]
    assert len(nvlinks) == 8
    assert set(topology.link_bandwidth[nvlinks].tolist()) == {300_000_000_000}
    assert topology.link_kind(topology.route(0, 2)[0]) == "ethernet"
    assert "4 GPUs (A100), 2 a server, 2 NVSwitches and 3 switches" in topology.description


def test_simai_routes_stay_on_nvlink_inside_and_on_the_rail_between_servers():
    topology = sim(simai())
    assert names(topology, 0, 1) == ["node[0].gpu[0]->node[0].nvswitch[4]", "node[0].nvswitch[4]->node[0].gpu[1]"]
    assert names(topology, 1, 3) == ["node[0].gpu[1]->switch[7]", "switch[7]->node[1].gpu[3]"]
    assert len(topology.route(0, 3)) == 4  # over the spine: no GPU of another rail forwards
    assert topology.ring_order() == (0, 1, 3, 2)  # along the rails


def test_of_equally_short_ways_the_nvswitch_is_taken():
    text = "4 2 1 1 4 H800\n2 3\n0 3 400Gbps 1us 0\n1 3 400Gbps 1us 0\n0 2 1600Gbps 25ns 0\n1 2 1600Gbps 25ns 0\n"
    assert names(sim(text), 0, 1) == ["gpu[0]->nvswitch[2]", "nvswitch[2]->gpu[1]"]


def test_one_server_needs_no_server_in_its_names():
    text = "5 4 1 0 4 H20\n4\n" + "".join(f"{gpu} 4 3600Gbps 25ns 0\n" for gpu in range(4))
    topology = sim(text)
    assert topology.nodes == ("gpu[0]", "gpu[1]", "gpu[2]", "gpu[3]", "nvswitch[4]")
    assert "4 GPUs (H20), 4 a server, 1 NVSwitch and 0 switches" in topology.description


def test_nvswitches_that_join_several_servers_leave_servers_out():
    text = simai().replace("0 4 2400Gbps", "2 4 2400Gbps", 1)
    topology = sim(text)
    assert topology.nodes[:5] == ("gpu[0]", "gpu[1]", "gpu[2]", "gpu[3]", "nvswitch[4]")
    assert "join GPUs of several servers" in topology.description


def test_several_nvswitches_a_server():
    text = "8 2 4 0 8 H100\n4 5 6 7\n" + "".join(
        f"{gpu} {4 + gpu // 2 * 2 + plane} 900Gbps 25ns 0\n" for gpu in range(4) for plane in (0, 1)
    )
    topology = sim(text)
    assert topology.nodes[4:] == (
        "node[0].nvswitch[4]",
        "node[0].nvswitch[5]",
        "node[1].nvswitch[6]",
        "node[1].nvswitch[7]",
    )
    assert {
        names(topology, 0, 1)[0],
        *(topology.link_name(topology.route(0, 1, channel)[0]) for channel in (1, 2)),
    } == {
        "node[0].gpu[0]->node[0].nvswitch[4]",
        "node[0].gpu[0]->node[0].nvswitch[5]",
    }


def test_two_switches_a_rail_give_two_ways():
    topology = sim(simai(tors=2))
    ways = {topology.route(0, 2, channel) for channel in range(8)}
    assert len(ways) == 2
    assert {topology.nodes[topology.link_dst[way[0]]] for way in ways} == {"switch[6]", "switch[8]"}


def test_the_type_of_the_gpus_may_be_missing():
    assert sim(simai().replace(" A100", "")) == sim(simai())


def test_ring_over_two_servers_is_as_fast_as_one_adapter():
    result = collsim.run("all_reduce", sim(simai(per_server=4)), size="256MiB", algorithm="ring")
    assert result.busbw == pytest.approx(12.5e9, rel=1e-3)


# -------------------- sample


@pytest.mark.skipif(not SAMPLE.exists(), reason="the sample is not in this checkout")
def test_the_spectrum_x_sample():
    topology = read_simai(SAMPLE)
    assert (topology.n_nodes, topology.n_links, topology.n_ranks) == (90, 2 * 544, 16)
    assert topology.name == "Spectrum-X_16g_8gps_100Gbps_A100"
    assert [sum("nvswitch" in name for name in topology.nodes), sum("].switch" in name for name in topology.nodes)] == [
        2,
        0,
    ]
    columns = np.stack([topology.link_bandwidth, topology.link_latency], axis=1)
    rates, counts = np.unique(columns, axis=0, return_counts=True)
    assert rates.tolist() == [[12_500_000_000, 500_000], [50_000_000_000, 500_000], [300_000_000_000, 25_000]]
    assert counts.tolist() == [32, 1024, 32]
    assert [len(topology.route(0, rank)) for rank in (1, 8, 9)] == [2, 2, 4]
    # Eight adapters of 12.5 GB/s a server carry what the servers exchange: 2 (N - 1) / N of 1 / 8 each, so eight times.
    result = collsim.run("all_reduce", topology, size="1GiB", algorithm="hierarchical")
    assert 100e9 < result.busbw < 190e9


@pytest.mark.skipif(not SAMPLE.exists(), reason="the sample is not in this checkout")
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_a_sample_cut_short_says_where_it_ends(part):
    text = SAMPLE.read_text()
    text = text[: int(len(text) * part)]
    with pytest.raises(TopologyError) as caught:
        sim(text)
    assert caught.value.line >= text.count("\n")


# -------------------- in numbers


def test_half_a_million_links_are_read_in_seconds():
    rng = random.Random(1)
    n = 500_000
    ends = [(rng.randrange(20_000), 20_000 + i % 2, 100 + i % 7) for i in range(n)]
    text = f"20002 2 {n}\n20000 20001\n" + "".join(
        f"{a} {b} {rate}Gbps {i % 100}ns 0\n" for i, (a, b, rate) in enumerate(ends)
    )
    topology = ns3(text)
    assert topology.n_links == 2 * n
    where = rng.sample(range(n), 50)
    assert [(topology.link_src[2 * i], topology.link_dst[2 * i]) for i in where] == [ends[i][:2] for i in where]
    assert [topology.link_bandwidth[2 * i + 1] * 8 for i in where] == [ends[i][2] * 10**9 for i in where]
    assert [topology.link_latency[2 * i] for i in where] == [i % 100 * 1000 for i in where]


def test_more_different_rates_than_any_machine_has(monkeypatch):
    monkeypatch.setattr(lines, "MOST_DIFFERENT", 10)
    text = "3 1 {0}\n2\n" + "".join(f"0 2 {i + 1}Gbps 1us 0\n" for i in range(11))
    assert len(set(ns3(text.replace("11Gbps", "10Gbps").format(11)).link_bandwidth.tolist())) == 10
    with pytest.raises(TopologyError, match=r"^net.txt:13:5: expected at most 10 different rates, got more"):
        ns3(text.format(11))


def test_a_mistake_far_down_has_its_place():
    n = 200_000
    rows = [f"{i % 2} 2 1Gbps 1us 0" for i in range(n)]
    rows[150_000] = "0 2 1Gbps 1ms2 0"
    with pytest.raises(TopologyError, match=r"^net.txt:150003:11: expected the delay of a link"):
        ns3(f"3 1 {n}\n2\n" + "\n".join(rows))


# -------------------- mistakes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "net.txt:1:1: expected nodes, switches and links, got an empty file"),
        ("# only\n", "net.txt:1:1: expected nodes, switches and links, got an empty file"),
        ("3 1", "net.txt:1:1: expected three numbers (nodes, switches, links), got 2 words"),
        (
            simai(),
            "net.txt:1:1: expected three numbers (nodes, switches, links), got 6 words; is it a SimAI topology "
            "(--from simai)?",
        ),
        ("3 x 2\n", "net.txt:1:3: expected a whole number, got 'x'"),
        ("3 -1 2\n", "net.txt:1:3: expected a whole number, got '-1'"),
        ("3 ٣ 2\n", "net.txt:1:3: expected a whole number, got '٣'"),
        ("1e400 1 2\n", "net.txt:1:1: expected a whole number, got '1e400'"),
        ("9999999 1 2\n", "net.txt:1:1: expected at most 2,000,000 nodes, got 9,999,999"),
        ("3 1 1000000000000\n", "net.txt:1:1: expected at most 10,000,000 links each way, got 1,000,000,000,000"),
        ("3 3 2\n0 1 2\n", "net.txt:1:1: expected fewer switches than nodes, got 3 of 3"),
        ("2000000 0 2\n", "net.txt:1:1: expected a link at each of 2,000,000 nodes, got 2 links"),
        ("4 2 2\n2\n", "net.txt:2:2: expected as many switches as line 1 says (2), got 1; the file ends early"),
        (
            "4 2 2\n2\n0 2 1Gbps 1us 0\n",
            "net.txt:3:1: expected as many switches as line 1 says (2), got 1 before the first link",
        ),
        ("4 1 2\n2 3\n", "net.txt:2:3: expected as many switches as line 1 says (1), got more"),
        ("4 2 2\n2 2\n", "net.txt:2:3: expected each switch once, got 2 again (first in line 2)"),
        ("4 2 2\n2 4\n", "net.txt:2:3: expected the number of a node up to 3, got 4"),
        (
            "3 1 2\n2\n0 2 1Gbps 1us 0\n",
            "net.txt:3:16: expected as many links as line 1 says (2), got 1; the file ends early",
        ),
        ("3 1 2\n2\n0 2 1Gbps 1us\n", "net.txt:3:1: expected five words (src dst rate delay error_rate), got 4 words"),
        (
            "3 1 2\n2\n0 2 1bps 1us 0 0 0\n",
            "net.txt:3:1: expected five words (src dst rate delay error_rate), got more",
        ),
        (
            "3 1 2\n2\n0 2 1Gbps 1us 0\n1 2 1Gbps 1us 0\n\n1 2 1Gbps 1us 0\n",
            "net.txt:6:1: expected as many links as line 1 says (2), got more",
        ),
        ("3 1 2\n2\n0 3 1Gbps 1us 0\n", "net.txt:3:3: expected the number of a node up to 2, got 3"),
        ("3 1 2\n2\n1_0 2 1Gbps 1us 0\n", "net.txt:3:1: expected the number of a node, got '1_0'"),
        (
            "3 1 2\n2\n0 2 1Gbps 1us 0\n2 2 1Gbps 1us 0\n",
            "net.txt:4:3: expected a link between two nodes, got one from 2 to itself",
        ),
        ("3 1 2\n2\n0 2 1Gbps 1us 1.5\n", "net.txt:3:15: expected an error rate from 0 to 1, got '1.5'"),
        ("3 1 2\n2\n0 2 1Gbps 1us nan\n", "net.txt:3:15: expected an error rate from 0 to 1, got 'nan'"),
    ],
)
def test_mistakes(text, message):
    with pytest.raises(TopologyError) as caught:
        ns3(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("link", "message"),
    [
        (
            "0 2 100Gps 1us 0",
            r"net.txt:3:5: expected the rate of a link such as 100Gbps: '100Gps': 'Gps' is not a unit",
        ),
        ("0 2 0Gbps 1us 0", r"net.txt:3:5: .* expected a bandwidth of at least 1B/s"),
        ("0 2 1e30Gbps 1us 0", r"net.txt:3:5: .* too large"),
        ("0 2 nan 1us 0", r"net.txt:3:5: expected the rate"),
        ("0 2 infGbps 1us 0", r"net.txt:3:5: expected the rate"),
        ("0 2 1Gbps -1us 0", r"net.txt:3:11: .* got a negative one"),
        ("0 2 1Gbps 1fs 0", r"net.txt:3:11: expected the delay of a link"),
        ("0 2 1Gbps 0.1ps 0", r"net.txt:3:11: .* at least 1ps"),
        ("0 2 1Gbps 1e400s 0", r"net.txt:3:11: .* too large"),
        (f"0 2 {'x' * 10**6} 1us 0", r"net.txt:3:5: expected the rate"),
    ],
)
def test_rates_and_delays_that_cannot_be(link, message):
    with pytest.raises(TopologyError, match=message) as caught:
        ns3(f"3 1 2\n2\n{link}\n1 2 1Gbps 1us 0\n")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("9 2 2 3 10 A100", "9 2 10", "net.topo:1:1: expected five numbers .* got 3 words; is it an ns-3 topology"),
        ("9 2 2 3 10 A100", "9 0 2 3 10 A100", "net.topo:1:3: expected at least one GPU a server, got 0"),
        ("9 2 2 3 10 A100", "9 2 2 3 10 A\u00e9", "net.topo:1:12: expected a type of GPU such as H100"),
        (
            "9 2 2 3 10 A100",
            "9 2 3 3 10 A100",
            r"net.topo:3:1: expected as many switches as line 1 says \(3 and 3\), got 5",
        ),
        ("9 2 2 3 10 A100", "9 2 2 3 11 A100", "got 10; the file ends early"),
    ],
)
def test_mistakes_in_a_simai_file(old, new, message):
    assert old in simai()
    with pytest.raises(TopologyError, match=message):
        sim(simai().replace(old, new))


@pytest.mark.parametrize("reader", [read_ns3, read_simai])
def test_files_that_are_none(tmp_path, reader):
    with pytest.raises(TopologyError, match="got no such file"):
        reader(tmp_path / "none")
    with pytest.raises(TopologyError, match="got a directory"):
        reader(tmp_path)
    (tmp_path / "binary").write_bytes(b"3 1 2\n\xff\xfe")
    with pytest.raises(TopologyError, match=r"binary:2:1: .* UTF-8"):
        reader(tmp_path / "binary")


def test_the_name_is_that_of_the_file(tmp_path):
    for file, name in (
        ("a.txt", "a"),
        ("HPN_7.0_x", "HPN_7.0_x"),
        ("b.TOPO", "b"),
        ("DCN+SingleToR_8g", "DCN+SingleToR_8g"),
    ):
        (tmp_path / file).write_text(NS3)
        assert read_ns3(tmp_path / file).name == name


def outcome(parse: Callable[[str], Topology], text: str) -> Topology | TopologyError:
    try:
        return parse(text)
    except TopologyError as error:
        return error


ODD = (
    "",
    "0",
    "-1",
    "1e400",
    "1" + "0" * 30,
    "nan",
    "x" * 5000,
    "٣",
    "1_0",
    "#",
    "\t",
    "\n",
    "999999",
    "100Gbps",
    "\u2028",
)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_stands_there_is_a_topology_or_a_mistake_with_its_place(seed):
    rng = random.Random(seed)
    for _ in range(60):
        parse, text = rng.choice([(ns3, NS3), (sim, simai()), (sim, simai(tors=2))])
        for _ in range(rng.choice((1, 1, 2, 4))):
            start = rng.randrange(len(text) + 1)
            stop = min(len(text), start + rng.choice((1, 3, 20, 100)))
            words = list(re.finditer(r"\S+", text))
            kind = rng.randrange(5)
            if kind == 0:
                text = text[:start] + text[stop:]
            elif kind == 1:
                text = text[:start] + 2 * text[start:stop] + text[stop:]
            elif kind == 2:
                text = text[:start]
            elif kind == 3:
                text = text[:start] + rng.choice(ODD) + text[start:]
            elif words:
                word = rng.choice(words[:20] if rng.random() < 0.5 else words)
                text = text[: word.start()] + rng.choice(ODD) + text[word.end() :]
        found = outcome(parse, text)
        if isinstance(found, TopologyError):
            assert found.line
            assert found.column
            assert len(str(found)) < 500
