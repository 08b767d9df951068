"""InfraGraph documents, read and written."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import collsim
from collsim.errors import InputError, TopologyError
from collsim.formats.gpus import gpu_model
from collsim.formats.infragraph import format_infragraph, parse_infragraph, read_infragraph, write_infragraph
from collsim.formats.infragraph.standards import nvlink_rate, standard_of
from collsim.formats.registry import sniff_text
from collsim.formats.source import Source
from collsim.topology import Topology, TopologyBuilder, dragonfly, fat_tree, load_topology, rail_optimized, shipped

SAMPLE = Path(__file__).parents[2] / "shared" / "samples" / "infragraph_dgxa100.yaml"

SERVERS = """\
name: two servers
description: Two servers and a leaf.
devices:
  - name: server
    components:
      - {name: cpu, count: 1, choice: cpu}
      - {name: xpu, count: 4, choice: xpu, description: Some GPU}
      - {name: sw, count: 1, choice: switch}
      - {name: slot, count: 2, choice: custom, custom: {type: pcie_slot}}
      - {name: mgmt, count: 1, choice: custom, custom: {type: mgmt-nic}}
      - {name: ssd, count: 2, choice: custom, custom: {type: nvme}}
      - {name: dram, count: 8, choice: memory}
      - {name: card, count: 2, choice: device, description: NIC}
    links:
      - name: fast
        physical:
          bandwidth: {choice: gigabytes_per_second, gigabytes_per_second: 300}
          latency: {choice: ns, ns: 250}
      - name: pcie
        description: PCI Express Gen 4 x16
      - {name: ddr, description: DDR5}
    edges:
      - {ep1: {component: "xpu[0:4]"}, ep2: {component: sw}, scheme: many2many, link: fast}
      - {ep1: {component: "xpu[0:4:2]"}, ep2: {component: "slot"}, scheme: one2one, link: pcie}
      - {ep1: {component: "xpu[1:4:2]"}, ep2: {component: "slot[:]"}, scheme: one2one, link: pcie}
      - {ep1: {component: cpu}, ep2: {component: "slot[0:]"}, scheme: many2many, link: pcie}
      - {ep1: {component: cpu}, ep2: {component: mgmt}, scheme: one2one, link: pcie}
      - {ep1: {component: cpu}, ep2: {component: ssd}, scheme: many2many, link: pcie}
      - {ep1: {component: cpu}, ep2: {component: dram}, scheme: many2many, link: ddr}
      - {ep1: {device: "card[0:2]", component: "edge[0]"}, ep2: {component: "slot[0:2]"}, scheme: one2one, link: pcie}
  - name: card
    description: A NIC of 400 Gb/s
    components:
      - {name: edge, count: 1, choice: custom, custom: {type: pcie_endpoint}}
      - {name: chip, count: 1, choice: cpu}
      - {name: port, count: 1, choice: port}
    links: [{name: inner, description: PCIe 4.0}, {name: wire}]
    edges:
      - {ep1: {component: edge}, ep2: {component: chip}, scheme: one2one, link: inner}
      - {ep1: {component: chip}, ep2: {component: port}, scheme: many2many, link: wire}
  - name: box
    components:
      - {name: asic, count: 1, choice: cpu}
      - {name: port, count: 8, choice: port}
    links: [{name: ic}]
    edges: [{ep1: {component: asic}, ep2: {component: port}, scheme: many2many, link: ic}]
instances:
  - {name: server, device: server, count: 2}
  - {name: leaf, device: box, count: 1}
links:
  - name: eth
    physical: {bandwidth: {choice: gigabits_per_second, gigabits_per_second: 400}, latency: {choice: us, us: 0.5}}
edges:
  - ep1: {instance: "server[0:2]", component: "card[0:2].port[0]"}
    ep2: {instance: leaf, component: "port[0:4]"}
    scheme: one2one
    link: eth
"""

DOTTED = """\
infrastructure:
  devices:
    - name: host
      components: [{name: npu, type: npu}, {name: nic, type: nic, external: true}, {name: hub, type: crossbar}]
      links:
        - {name: up, bandwidth: {choice: g_bytes_per_second, g_bytes_per_second: 50}}
      connections: [npu.0.up.hub.0, npu.1.up.hub.0, nic.0.up.npu.0, nic.1.up.npu.1]
  instances: [{name: a, device: host}]
  links: [{name: eth, bandwidth: {choice: giga_bits_per_second, giga_bits_per_second: 100}}]
  connections: [a.0.nic.0.eth.a.1.nic.0, a.0.nic.1.eth.a.1.nic.1]
"""


def read(text: str, rates: dict[str, str] | None = None) -> Topology:
    return parse_infragraph(Source("doc.yaml", text), rates)


def device(components: str, edges: str, links: str = "", words: str = "", count: int = 1) -> str:
    """Return a document of one device."""
    rate = "physical: {bandwidth: {choice: gigabytes_per_second, gigabytes_per_second: 50}}"
    return (
        f"devices:\n- name: m\n  description: '{words}'\n  components: [{components}]\n"
        f"  links: [{links or '{name: l, ' + rate + '}, {name: k, ' + rate + '}'}]\n  edges:\n"
        + "".join(f"  - {{{edge}}}\n" for edge in edges.split("; "))
        + f"instances: [{{name: m, device: m, count: {count}}}]\n"
    )


def edge(one: str, other: str, scheme: str = "many2many", link: str = "l") -> str:
    return f'ep1: {{component: "{one}"}}, ep2: {{component: "{other}"}}, scheme: {scheme}, link: {link}'


XPUS = "{name: xpu, count: 4, choice: xpu}"


def pairs(topology: Topology) -> list[str]:
    return sorted(topology.link_name(link) for link in range(0, topology.n_links, 2))


def facts(topology: Topology) -> tuple[object, ...]:
    """Return what a document keeps: ranks, kinds, and the links by what they join."""
    columns = (topology.link_bandwidth, topology.link_latency, topology.link_src, topology.link_dst)
    links = Counter(
        (rate, latency, topology.kinds[src], topology.kinds[dst])
        for rate, latency, src, dst in zip(*(column.tolist() for column in columns), strict=True)
    )
    return topology.n_ranks, Counter(topology.kinds), links


# -------------------- reading


def test_devices_in_devices_ports_and_instances():
    topology = read(SERVERS)
    assert topology.name == "two servers"
    assert topology.ranks == tuple(f"server[{i}].xpu[{j}]" for i in range(2) for j in range(4))
    kinds = dict(zip(topology.nodes, topology.kinds, strict=True))
    assert (
        kinds["server[1].card[0].edge[0]"] == kinds["server[1].card[0].chip[0]"] == kinds["server[0].mgmt[0]"] == "nic"
    )
    assert kinds["leaf[0]"] == kinds["server[0].sw[0]"] == kinds["server[0].slot[1]"] == "switch"
    assert kinds["server[0].cpu[0]"] == "host"
    assert Counter(topology.kinds) == {"gpu": 8, "switch": 7, "nic": 10, "host": 2}
    assert "20 components that are memory or disks are left out" in topology.description


def test_rates_and_latencies_of_the_file():
    topology = read(SERVERS)
    (nvlink,) = topology.links_between("server[0].xpu[2]", "server[0].sw[0]")
    assert (topology.link_bandwidth[nvlink], topology.link_latency[nvlink]) == (300 * 10**9, 250_000)
    (eth,) = topology.links_between("server[1].card[1].chip[0]", "leaf[0]")
    assert (topology.link_bandwidth[eth], topology.link_latency[eth]) == (50 * 10**9, 500_000)
    assert topology.link_kind(eth) == "ethernet"
    (pcie,) = topology.links_between("server[0].slot[1]", "server[0].xpu[3]")
    assert (topology.link_bandwidth[pcie], topology.link_latency[pcie]) == (31_500_000_000, 500_000)
    assert "pcie is PCIe 4.0 x16, 31.5 GB/s" in topology.description
    assert "Latencies are assumed where the file gives none: pcie 500ns." in topology.description


def test_slices_are_those_of_python():
    names = pairs(read(SERVERS))
    assert [name for name in names if "slot" in name and "[0].xpu" in name] == [
        "server[0].xpu[0]->server[0].slot[0]",
        "server[0].xpu[1]->server[0].slot[0]",
        "server[0].xpu[2]->server[0].slot[1]",
        "server[0].xpu[3]->server[0].slot[1]",
    ]
    assert sum("leaf" in name for name in names) == 4


def test_routes_stay_inside_and_go_over_the_cards():
    topology = read(SERVERS)
    assert [topology.link_name(link) for link in topology.route(0, 3)] == [
        "server[0].xpu[0]->server[0].sw[0]",
        "server[0].sw[0]->server[0].xpu[3]",
    ]
    assert topology.link_name(topology.route(0, 4)[3]) == "server[0].card[0].chip[0]->leaf[0]"
    assert collsim.run("all_reduce", topology, size="64MiB", algorithm="ring").busbw > 30e9


def test_dotted_connections_and_counts_by_the_highest_index():
    topology = read(DOTTED)
    assert topology.name == "doc"
    assert topology.ranks == ("a[0].npu[0]", "a[0].npu[1]", "a[1].npu[0]", "a[1].npu[1]")
    assert Counter(topology.kinds) == {"gpu": 4, "nic": 4, "switch": 2}
    assert Counter(topology.link_bandwidth.tolist()) == {50 * 10**9: 16, 12_500_000_000: 4}
    assert "Where the file gives no count" in topology.description


def test_json_is_the_same():
    document = yaml.safe_load(SERVERS)
    for text in (json.dumps(document), json.dumps(document, indent="\t"), json.dumps({"infrastructure": document})):
        assert read(text) == read(SERVERS)
    wrapped = {"infragraph": {"infrastructure": document, "annotations": {"nodes": [{"name": "server"}]}}}
    assert read(json.dumps(wrapped)) == read(SERVERS)


def test_a_device_alone_and_a_document_without_instances():
    text = device(XPUS, edge("xpu", "xpu"))
    alone = "\n".join(line[2:] for line in text.split("\n")[1:-2])
    assert read(alone).nodes == read(text).nodes == ("m[0].xpu[0]", "m[0].xpu[1]", "m[0].xpu[2]", "m[0].xpu[3]")
    topology = read(text[: text.index("instances")])
    assert topology.n_links == 12
    assert "lists no instances: one of each device" in topology.description


@pytest.mark.parametrize(
    ("scheme", "one", "other", "expected"),
    [
        ("many2many", "xpu", "xpu", ["0-1", "0-2", "0-3", "1-2", "1-3", "2-3"]),
        ("many2many", "xpu[0:2]", "xpu[1:3]", ["0-1", "0-2", "1-2"]),
        ("many2many", "xpu[0]", "xpu", ["0-1", "0-2", "0-3"]),
        ("one2one", "xpu[0:2]", "xpu[2:4]", ["0-2", "1-3"]),
        ("one2one", "xpu", "xpu[1:4]", ["0-1", "1-2", "2-3"]),
        ("one2one", "xpu", "xpu", []),
        ("ring", "xpu", "xpu", ["0-1", "1-2", "2-3", "3-0"]),
        ("ring", "xpu[0:2]", "xpu[0:2]", ["0-1"]),
    ],
)
def test_schemes(scheme, one, other, expected):
    found = pairs(read(device(XPUS, edge(one, other, scheme))))
    assert sorted("-".join(re.findall(r"xpu\[(\d)\]", name)) for name in found) == expected


def test_an_older_scheme_and_none_where_it_does_not_matter():
    both = edge("xpu[0:2]", "xpu[2:4]")
    assert len(pairs(read(device(XPUS, both.replace("scheme: many2many", "many2many: true"))))) == 4
    assert len(pairs(read(device(XPUS, both.replace("scheme: many2many", "many2many: false"))))) == 2
    assert len(pairs(read(device(XPUS, edge("xpu[0]", "xpu").replace("scheme: many2many, ", ""))))) == 3


def test_one_to_one_of_unlike_ends_and_repeated_edges_are_told():
    topology = read(device(XPUS, "; ".join([edge("xpu", "xpu[1:4]", "one2one"), edge("xpu[1]", "xpu[0]")])))
    assert topology.n_links == 6
    assert "join as many as the shorter has" in topology.description
    assert "count once" in topology.description


def test_links_of_different_names_are_parallel():
    topology = read(device(XPUS, "; ".join([edge("xpu", "xpu"), edge("xpu[0]", "xpu[1]", link="k")])))
    assert len(topology.links_between("m[0].xpu[0]", "m[0].xpu[1]")) == 2


def test_cables_between_different_ports_are_parallel():
    box = "{name: port, count: 4, choice: port}"
    text = device(f"{XPUS}, {{name: box, count: 2, choice: device}}", edge("xpu", "box[0].port[0]")).replace(
        "instances:", f"- name: box\n  components: [{box}]\n  links: []\n  edges: []\ninstances:"
    )
    text = text.replace(
        "  edges:\n", f"  edges:\n  - {{{edge('box[0].port[1:4]', 'box[1].port[1:4]', 'one2one')}}}\n", 1
    )
    topology = read(text)
    assert topology.nodes[4:] == ("m[0].box[0]", "m[0].box[1]")
    assert len(topology.links_between("m[0].box[0]", "m[0].box[1]")) == 3
    assert "server" not in topology.description


def test_a_port_with_a_rate_of_its_own_stays():
    text = device(f"{XPUS}, {{name: nic, count: 1, choice: nic}}, {{name: port, count: 2, choice: port}}",
                  "; ".join([edge("xpu", "nic"), edge("nic", "port", link="k")]))  # fmt: skip
    assert read(text).n_nodes == 7


def test_a_wire_without_rate_never_joins_gpus():
    text = device(f"{XPUS}, {{name: port, count: 2, choice: port}}", edge("xpu", "port"), "{name: l}")
    with pytest.raises(TopologyError, match=r"doc.yaml:7:5: devices\[0\].edges\[0\]: expected a bandwidth of link 'l'"):
        read(text)
    text = text.replace('"xpu"', '"xpu[0:2]"').replace("many2many", "one2one")
    assert read(text).nodes == tuple(f"m[0].xpu[{i}]" for i in range(4))


def test_gpus_forward_only_in_meshes_that_are_not_full():
    assert not read(device(XPUS, edge("xpu", "xpu"))).forwards.any()
    assert read(device(XPUS, edge("xpu", "xpu", "ring"))).forwards.all()
    topology = read(SERVERS)
    assert {topology.kinds[node] for node in range(topology.n_nodes) if not topology.forwards[node]} == {"gpu", "nic"}
    assert topology.forwards[topology.node_index("server[0].card[0].chip[0]")]


@pytest.mark.parametrize(
    ("choice", "kind"),
    [
        ("choice: npu", "gpu"), ("type: gpu", "gpu"), ("choice: custom, custom: {type: tpu}", "gpu"),
        ("choice: custom, custom: {type: front_end_nic}", "nic"), ("choice: custom, description: ConnectX-7", "nic"),
        ("choice: custom, custom: {type: retimer}", "switch"), ("choice: custom", "switch"),
        ("choice: custom, custom: {type: soc}", "host"), ("choice: cpu", "host"), ("type: pciesw", "switch"),
        ("cpu: {}", "host"),
    ],
)  # fmt: skip
def test_kinds_by_type_and_words(choice, kind):
    topology = read(device(f"{XPUS}, {{name: thing, count: 1, {choice}}}", edge("xpu", "thing")))
    assert topology.kinds[4] == kind


# -------------------- what is not in the file


def test_a_device_that_is_only_named_is_one_node_if_it_passes_messages_on():
    text = SERVERS.replace("instances:\n", "instances:\n  - {name: spine, device: big-router, count: 2}\n").replace(
        "edges:\n  - ep1",
        'edges:\n  - {ep1: {instance: leaf, component: "port[6:8]"}, ep2: {instance: spine, component: "p[3]"}, '
        "scheme: one2one, link: eth}\n  - ep1",
    )
    topology = read(text)
    assert topology.nodes[:2] == ("spine[0]", "spine[1]")
    assert len(topology.links_between("spine[1]", "leaf[0]")) == 1
    assert "Device big-router is not in the file: each is one switch." in topology.description
    with pytest.raises(
        TopologyError, match=r"instances\[0\]: expected a device that the file describes, got 'big-machine'"
    ):
        read(text.replace("big-router", "big-machine").replace("spine", "thing"))


def test_an_instance_that_is_not_listed_is_that_of_the_device_that_fits():
    text = DOTTED.replace("  instances: [{name: a, device: host}]\n", "")
    topology = read(text)
    assert topology.nodes == read(DOTTED).nodes
    assert "a is not among the instances: taken for device host." in topology.description
    with pytest.raises(TopologyError, match=r"doc.yaml:9:17: .*connections\[0\]: expected an instance .* got 'a'"):
        read(text.replace("connections: [a.0.nic.0", "connections: [a.0.port.0"))


@pytest.mark.parametrize(
    ("physical", "words", "rate"),
    [
        ("gigabits_per_second: 400", "", 50_000_000_000),
        ("gigabits_per_second: 0.1", "", 12_500_000),
        ("gigabytes_per_second: 12.345678901", "", 12_345_678_901),
        ("gigabytes_per_second: 9223372036.854775807", "", 2**63 - 1),
        ("giga_bytes_per_second: 8e2", "", 800_000_000_000),
        ("gigatransfers_per_second: 8", "", 15_750_000_000),
        ("gigatransfers_per_second: 32", "pcie x8", 31_500_000_000),
        ("gigatransfers_per_second: 10.4", "UPI", 20_800_000_000),
        ("gigatransfers_per_second: 25", "4 lanes", 12_500_000_000),
    ],
)
def test_units_of_bandwidth_are_exact(physical, words, rate):
    unit = physical.split(":")[0]
    for value in (f"{{choice: {unit}, {physical}}}", f"{{{physical}}}"):
        text = device(
            XPUS, edge("xpu", "xpu"), f"{{name: l, description: '{words}', physical: {{bandwidth: {value}}}}}"
        )
        assert set(read(text).link_bandwidth.tolist()) == {rate}


@pytest.mark.parametrize(("value", "time"), [("ms: 1", 10**9), ("us: 0.25", 250_000), ("ns: 0.001", 1), ("ns: 0", 0)])
def test_units_of_latency(value, time):
    unit = value.split(":")[0]
    physical = f"bandwidth: {{gigabits_per_second: 1}}, latency: {{choice: {unit}, {value}}}"
    topology = read(device(XPUS, edge("xpu", "xpu"), f"{{name: l, physical: {{{physical}}}}}"))
    assert set(topology.link_latency.tolist()) == {time}


@pytest.mark.parametrize(
    ("words", "kind", "rate"),
    [
        ("PCIe 3.0", "pcie", 15_750_000_000), ("PCI Express PCIE_GEN5 x16", "pcie", 63_000_000_000),
        ("Internal PCIe GEN3 fabric x4", "pcie", 3_937_500_000), ("pcie_gen4", "pcie", 31_500_000_000),
        ("PCI Express Gen 5.0 x16", "pcie", 63_000_000_000), ("PCIe 6.0", "pcie", 121_000_000_000),
        ("400G Ethernet", "ethernet", 50_000_000_000), ("Ethernet port (100GbE)", "ethernet", 12_500_000_000),
        ("InfiniBand NDR", "infiniband", 50_000_000_000), ("nvlink_c2c", "nvlink", 450_000_000_000),
        ("backplane of 64 GB/s", "", 64_000_000_000), ("cable, 800Gbps", "", 100_000_000_000),
    ],
)  # fmt: skip
def test_standards_by_their_names(words, kind, rate):
    found = standard_of(words)
    assert found is not None
    assert (found.kind, found.rate) == (kind, rate)


@pytest.mark.parametrize(
    "words", ["pcie", "PCI Express Switch", "DDR5", "CPU Fabric", "64 GB/s bidirectional", "", "pcie_2 link"]
)
def test_words_that_say_no_rate(words):
    assert standard_of(words) is None


@pytest.mark.parametrize(
    ("gpu", "link", "switches", "rate", "told"),
    [
        ("NVIDIA A100 SXM4", "NVLINK 3.0", 6, 50_000_000_000, "the 12 NVLinks of A100 shared by 6 edges"),
        ("NVIDIA H100 / H200 SXM5", "nvlink_4", 4, 112_500_000_000, "the 18 NVLinks of H100 shared by 4 edges"),
        ("V100", "NVLink", 6, 25_000_000_000, "the 6 NVLinks of V100 shared by 6 edges"),
        ("a GPU", "nvlink_2", 3, 25_000_000_000, "one NVLink 2 an edge"),
    ],
)
def test_the_nvlinks_of_a_gpu_are_shared_by_its_edges(gpu, link, switches, rate, told):
    text = device(
        f"{{name: xpu, count: 8, choice: xpu, description: {gpu}}}, {{name: nvsw, count: {switches}, choice: switch}}",
        edge("xpu", "nvsw"), f"{{name: l, description: {link}}}",
    )  # fmt: skip
    topology = read(text)
    assert set(topology.link_bandwidth.tolist()) == {rate}
    assert topology.link_kind(0) == "nvlink"
    assert told in topology.description
    assert f"{switches} channels use them all" in topology.description


def test_links_of_gpus_and_of_cpus_of_amd():
    text = device(
        "{name: xpu, count: 3, choice: xpu, description: AMD INSTINCT MI300X OAM}, {name: cpu, count: 2, choice: cpu}",
        "; ".join([edge("xpu", "xpu"), edge("cpu", "cpu")]), "{name: l, description: AMD Infinity Fabric}",
    )  # fmt: skip
    topology = read(text)
    assert Counter(topology.link_bandwidth.tolist()) == {64 * 10**9: 6, 16 * 10**9: 2}
    assert set(topology.link_latency.tolist()) == {800_000, 300_000}


def test_rates_that_the_user_gives():
    text = device(XPUS, "; ".join([edge("xpu", "xpu"), edge("xpu[0]", "xpu[1]", link="k")]), "{name: l}, {name: k}")
    message = (
        r"doc.yaml:5:11: devices\[0\].links\[0\]: expected a bandwidth of link 'l' .*--rate l=50GB/s; .* goes for 'k'$"
    )
    with pytest.raises(TopologyError, match=message):
        read(text)
    topology = read(text, {"l": "600GB/s", "m.k": 10**9})
    assert Counter(topology.link_bandwidth.tolist()) == {600 * 10**9: 12, 10**9: 2}
    assert set(read(device(XPUS, edge("xpu", "xpu")), {"l": "7GB/s"}).link_bandwidth.tolist()) == {7 * 10**9}
    with pytest.raises(InputError, match=r"rates: expected a link of doc.yaml, got 'll'; did you mean 'l'\?"):
        read(text, {"ll": "600GB/s"})
    with pytest.raises(InputError, match=r"rates: 'l': '16GT/s': GT/s counts transfers"):
        read(text, {"l": "16GT/s"})
    with pytest.raises(InputError, match="rates: expected bandwidths by the names of links"):
        read(text, ["l"])


# -------------------- mistakes


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("choice: xpu,", "choice: xqu,", r"7:39: .*\[1\].choice: expected one of custom, .*'xpu'\?"),
        ("count: 4", "count: -1", r"7:28: .*count: expected a whole number from 0 to 2,147,483,647, got '-1'"),
        ("count: 4", "count: 1000000000", r"7:9: devices\[0\].components\[1\]: expected at most 2,000,000 components"),
        ("count: 4", "count: 4.5", r"got '4.5'"),
        ("name: xpu", "name: 'x.u'", r"expected a name without '\.', which stands between names"),
        ("name: sw,", "name: xpu,", r"8:16: .*expected each component once, got 'xpu' again"),
        ("component: sw}", "component: sv}", r"23:57: .*ep2.component: expected a component of device .*'sw'"),
        ("xpu[0:4]", "xpu[0:5]", r"23:27: .*ep1.component: expected indices of 'xpu', of which .* 4, got \[0:5\]"),
        ("xpu[0:4]", "xpu[4]", r"expected indices of 'xpu', of which there are 4, got \[4\]"),
        ("xpu[0:4]", "xpu[2:1]", r"got \[2:1\]"),
        ("xpu[0:4]", "xpu[-1]", r"expected an index or a slice that counts up"),
        ("xpu[0:4]", "xpu[0:4:0]", r"expected an index or a slice that counts up"),
        ("xpu[0:4]", "xpu[٣]", r"expected an index or a slice that counts up"),
        ("xpu[0:4]", "xpu[0:4", r"expected a name with indices such as xpu\[0:8\]"),
        ("xpu[0:4]", "xpu[0].core[0]", r"expected nothing in component 'xpu', got 'xpu\[0\].core\[0\]'"),
        ("scheme: many2many, link: fast", "scheme: all2all, link: fast", r"expected one of one2one, many2many, ring"),
        ("scheme: many2many, link: fast", "link: fast, scheme: ring", r"expected the same components at both ends"),
        ("link: fast}", "lnik: fast}", r"23:9: devices\[0\].edges\[0\]: expected 'link', got none; .* 'lnik'"),
        ("link: fast}", "}", r"devices\[0\].edges\[0\]: expected 'link', got none"),
        ("gigabytes_per_second, gigabytes_per_second", "gigabytes, gigabytes", r"expected one of gigabits_per_second"),
        ("gigabytes_per_second: 300", "gigabytes_per_second: nan", r"expected a number such as 100 or 0.5, got 'nan'"),
        ("gigabytes_per_second: 300", "gigabytes_per_second: .inf", r"expected a number such as 100 or 0.5, got"),
        ("gigabytes_per_second: 300", "gigabytes_per_second: 1e999", r"expected a bandwidth above 0 that 64 bits hold"),
        ("gigabytes_per_second: 300", "gigabytes_per_second: 0", r"expected a bandwidth above 0 .* '0'"),
        ("gigabytes_per_second: 300", "gigabytes_per_second: 1e-10", r"expected a bandwidth of 1 byte/s to 2\^63 - 1"),
        ("gigabytes_per_second: 300", "gigabytes_per_second: '300'", r"expected a number such as 100 or 0.5"),
        ("ns: 250", "ns: -1", r"expected a latency from 0"),
        ("ns: 250", "ns: 1e-9", r"expected 0 or at least a picosecond"),
        ("choice: ns, ns", "choice: fs, fs", r"expected one of ms, us, ns, got 'fs'"),
        ("gigabytes_per_second, gigabytes_per_second: 300", "gigatransfers_per_second, gigatransfers_per_second: 25",
         r"expected a bandwidth in gigabytes_per_second, or the lanes"),
        ("device: box, count: 1", "device: server2, count: 1", r"instances\[1\]: expected a device .*'server'\?"),
        ("name: leaf", "name: server", r"expected each instance once, got 'server' again"),
        ("instance: leaf", 'instance: "server[2]"', r"expected indices of 'server', of which there are 2, got \[2\]"),
        ("devices:", "devises:", r"1:1: .*|expected 'devices', got 'devises'"),
        ("  - name: card", "  - name: server", r"expected each device once, got 'server' again"),
        ("choice: device, description: NIC", "choice: device, components: []", r"expected no components in components"),
        ("{name: chip, count: 1, choice: cpu}", "{name: server, count: 1, choice: device}", r"would contain itself"),
        ("card[0:2].port[0]", "card[0:2]", r"expected a component of 'card' too, such as edge, chip, port"),
        ("choice: xpu, description: Some GPU", "choice: cpu", r"expected at least one component of choice xpu"),
        ("{name: chip", "{nam: chip", r"expected 'name', got 'nam'"),
        ("Some GPU}", "Some GPU", r"expected YAML, got a mistake in its form"),
    ],
)  # fmt: skip
def test_mistakes(old, new, message):
    assert old in SERVERS
    with pytest.raises(TopologyError, match=f"^doc.yaml:.*{message}") as caught:
        read(SERVERS.replace(old, new, 1))
    assert caught.value.line
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a topology, got an empty file"),
        ("[]", "expected an InfraGraph document .* got a list"),
        ("name: x", "expected devices, got none"),
        ("devices: 3", "devices: expected a list, got '3'"),
        ("devices: [3]", r"devices\[0\]: expected a device .* got '3'"),
        ("infrastructure: []", "expected an infrastructure .* got a list"),
        (DOTTED.replace("npu.1.up.hub.0", "npu.1.up.hub"), r"connections\[1\]: expected a connection such as"),
        (DOTTED.replace("npu.1.up.hub.0", "npu.up.hub.0"), "expected a connection such as"),
        (DOTTED.replace("npu.1.up.hub.0", "npu.1.up.hub.0.x"), "expected a connection such as"),
        (DOTTED.replace("npu.1.up.hub.0", "npu.9999999999.up.hub.0"), "expected at most 2,000,000 components"),
        (
            DOTTED.replace("a.0.nic.0.eth.a.1.nic.0", "a.0.eth.a.1"),
            "expected a component after the instance|an instance",
        ),
    ],
)
def test_documents_that_are_none(text, message):
    with pytest.raises(TopologyError, match=f"^doc.yaml:[0-9]+:[0-9]+: .*{message}"):
        read(text)


def test_what_would_be_too_large_is_refused_before_it_is_made():
    many = "{name: xpu, count: 2000000, choice: xpu}"
    for text in (
        device(many, edge("xpu", "xpu")),
        device(many, "; ".join([edge("xpu", "xpu[0]")] * 30)),
        device(XPUS, edge("xpu", "xpu"), count=2_000_000_000),
        device("{name: xpu, count: 1400000, choice: xpu}", edge("xpu", "xpu", "ring"), count=2),
    ):
        with pytest.raises(TopologyError, match="expected at most"):
            read(text)
    deep = "".join(
        f"- {{name: d{i}, components: [{{name: d{i + 1}, count: 1, choice: device}}], links: [], edges: []}}\n"
        for i in range(40)
    )
    last = f"- {{name: d40, components: [{XPUS}], links: [], edges: []}}\n"
    with pytest.raises(TopologyError, match="more than 16 devices deep"):
        read(f"devices:\n{deep}{last}instances: [{{name: a, device: d0}}]")


# -------------------- writing


@pytest.mark.parametrize("name", sorted(set(shipped()) - {"ring8"}))
def test_machines_that_come_with_collsim(name):
    topology = load_topology(name)
    for as_json in (False, True):
        again = read(format_infragraph(topology, as_json=as_json))
        assert facts(again) == facts(topology)
        assert Counter(map(again.link_kind, range(again.n_links))) == Counter(
            map(topology.link_kind, range(again.n_links))
        )
    assert (again.name, again.description) == (topology.name, topology.description) or len(topology.description) > 500


def test_copies_become_instances_and_ranges_slices():
    text = format_infragraph(load_topology("dgx-h100-x4"))
    assert text.startswith("# left out, for want of a place: reduces, multicasts\nname: dgx-h100-x4\n")
    assert "  - {name: node, device: node, count: 4}\n" in text
    assert '      - {ep1: {component: "gpu[0:8]"}, ep2: {component: "nic[0:8]"}, scheme: one2one, link: pcie}\n' in text
    assert text.count("ep1") == 2 + 8 + 4
    assert read(text).nodes[:2] == ("node[0].gpu[0]", "node[0].gpu[1]")
    assert sniff_text(text) == sniff_text(format_infragraph(load_topology("dgx-h100"), as_json=True)) == "infragraph"


@pytest.mark.parametrize("make", [lambda: rail_optimized(3, 4), lambda: dragonfly(4, 3, 2), lambda: fat_tree(32, 4)])
def test_generated_machines(make):
    topology = make()
    text = format_infragraph(topology)
    assert len(text.splitlines()) < 60
    assert facts(read(text)) == facts(topology)
    assert format_infragraph(read(text)) == text


def test_copies_that_differ_and_ranks_in_another_order():
    builder = TopologyBuilder("odd")
    for i, gpus in enumerate((2, 2, 3)):
        builder.add_node(f"node[{i}].sw", "switch")
        for j in range(gpus):
            builder.add_node(f"node[{i}].gpu[{j}]")
            builder.add_duplex(f"node[{i}].gpu[{j}]", f"node[{i}].sw", 10**9 + i, j)
    builder.add_duplex("node[0].sw", "node[2].sw", 7, 0, count=3)
    names = [f"node[{i}].gpu[{j}]" for i, j in ((2, 2), (0, 1), (1, 0), (0, 0), (2, 0), (1, 1), (2, 1))]
    topology = builder.build(ranks=names)
    again = read(format_infragraph(topology))
    assert facts(again) == facts(topology)
    first = [int(topology.link_latency[topology.link_src == node][0]) for node in topology.rank_nodes.tolist()]
    assert [int(again.link_latency[again.link_src == node][0]) for node in again.rank_nodes.tolist()] == first


def test_names_that_are_numbers_stay_text():
    builder = TopologyBuilder("0")
    for name in ("1", "2", "no"):
        builder.add_node(name)
    builder.add_duplex("1", "no", 10**9, 0)
    text = format_infragraph(builder.build())
    assert all(isinstance(name, str) for name in names_in(yaml.safe_load(text)))
    assert read(text).nodes == ("0[0].xpu[0]", "0[0].xpu[1]", "0[0].no[0]")


def test_what_a_document_cannot_say():
    with pytest.raises(
        TopologyError, match=r"cannot say 'ring8': its links go both ways alike, .* no gpu1->gpu0; write it"
    ):
        format_infragraph(load_topology("ring8"))
    builder = TopologyBuilder("pair")
    for i in range(2):
        builder.add_node(f"gpu{i}")
    builder.add_link("gpu0", "gpu1", 10**9, 0)
    builder.add_link("gpu1", "gpu0", 2 * 10**9, 0)
    with pytest.raises(TopologyError, match=r"these do not: gpu0->gpu1 1GB/s 0s, gpu1->gpu0 2GB/s 0s"):
        format_infragraph(builder.build())
    with pytest.raises(TopologyError, match="its ranks are its xpus, and gpu1 is a GPU that is no rank"):
        format_infragraph(builder.build(ranks=["gpu0"]))
    with pytest.raises(TopologyError, match="it has no routes, and one is given from gpu0 to gpu1"):
        format_infragraph(builder.build(routes={("gpu0", "gpu1"): [0]}))
    builder.add_node("disk", "storage")
    with pytest.raises(TopologyError, match="it knows nodes of kind gpu, switch, nic, host, got 'storage' of disk"):
        format_infragraph(builder.build())


def test_files_are_written_and_read_back(tmp_path):
    topology = load_topology("dgx-a100-x2")
    for name in ("a.infragraph.yaml", "b.yml", "c.json"):
        write_infragraph(topology, tmp_path / name)
        assert facts(read_infragraph(tmp_path / name)) == facts(topology)
        assert read_infragraph(tmp_path / name, rates={"pcie": "1GB/s"}).link_bandwidth.min() == 10**9
    assert json.loads((tmp_path / "c.json").read_text())["instances"][0]["count"] == 2
    with pytest.raises(InputError, match=r"expected a name that ends in \.yaml, \.yml or \.json"):
        write_infragraph(topology, tmp_path / "d.txt")


RATES = st.one_of(st.integers(1, 2**63 - 1), st.sampled_from([1, 10**9, 12_500_000_000]))
NAMES = st.one_of(
    st.sampled_from(
        ["gpu[0]", "gpu0", "node[0].gpu[0]", "node[1].gpu[0]", "node[0].sw", "node[1].sw", "rack 1", "1", "é", "[3]"]
    ),
    st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8),
)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    names = draw(st.lists(NAMES, min_size=1, max_size=10, unique=True))
    builder = TopologyBuilder(draw(st.text(max_size=5)))
    kinds = ["gpu", *draw(st.lists(st.sampled_from(["gpu", "gpu", "switch", "nic", "host"]), min_size=9, max_size=9))]
    for name, kind in zip(names, kinds, strict=False):
        builder.add_node(name, kind)
    for _ in range(draw(st.integers(0, 12)) if len(names) > 1 else 0):
        a, b = draw(st.lists(st.sampled_from(names), min_size=2, max_size=2, unique=True))
        kind = draw(st.sampled_from(["", "nvlink", "pcie", "my fabric"]))
        builder.add_duplex(a, b, draw(RATES), draw(st.integers(0, 2**62)), kind=kind, count=draw(st.integers(1, 3)))
    gpus = [name for name, kind in zip(names, kinds, strict=False) if kind == "gpu"]
    return builder.build(ranks=draw(st.permutations(gpus)))


def names_in(value: Any) -> list[str]:
    """Return the names that a document gives to things."""
    if isinstance(value, list):
        return [name for item in value for name in names_in(item)]
    if not isinstance(value, dict):
        return []
    own = [value["name"]] if "name" in value else []
    return own + [name for item in value.values() for name in names_in(item)]


@given(topologies(), st.booleans())
def test_any_topology_is_read_back_as_it_was(topology, as_json):
    text = format_infragraph(topology, as_json=as_json)
    again = read(text)
    assert facts(again) == facts(topology)
    for name in names_in(yaml.safe_load(text)):
        assert re.fullmatch(r"[\w-]+", name, re.ASCII), name  # as the schema has names, and without brackets
    degree = Counter(topology.link_src.tolist())
    ranks = again.rank_nodes.tolist()
    assert [Counter(again.link_src.tolist())[node] for node in ranks] == [
        degree[node] for node in topology.rank_nodes.tolist()
    ]


# -------------------- strangers


BAD = [
    b"0",
    b"-1",
    b"1e400",
    b"1" + b"0" * 30,
    b"nan",
    b".inf",
    b"x" * 5000,
    b"100000",
    b"null",
    b"[]",
    b"{}",
    b'""',
    b"\xff",
    b"a.b",
]


def mutated(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    to = min(len(data), at + rng.randrange(1, 100))
    numbers = [found for found in re.finditer(rb"[0-9.]+|\w+", data)]
    word = rng.choice(numbers)
    other = rng.choice(numbers)[0]
    return rng.choice(
        [
            data[:at],
            data[:at] + data[to:],
            data[:to] + data[at:],
            data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :],
            data[: word.start()] + rng.choice(BAD) + data[word.end() :],
            data[: word.start()] + other + data[word.end() :],
        ]
    )


@pytest.mark.parametrize("text", [SERVERS, DOTTED])
def test_mutations_are_read_or_refused_with_a_place(text, tmp_path):
    rng = random.Random(7)
    path = tmp_path / "m.yaml"
    for _ in range(300):
        data = mutated(text.encode(), rng)
        path.write_bytes(data)
        refused = None
        try:
            assert isinstance(read_infragraph(path), Topology)
        except TopologyError as error:
            refused = error
        assert refused is None or (refused.line is not None and "\n" not in str(refused)), refused


def test_files_that_are_no_text(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\x00\x01name: x")
    with pytest.raises(TopologyError, match="is it a binary file"):
        read_infragraph(path)
    with pytest.raises(TopologyError, match="expected an InfraGraph document, got a directory"):
        read_infragraph(tmp_path)


# -------------------- sample


@pytest.mark.skipif(not SAMPLE.exists(), reason="the sample is not in this checkout")
def test_the_dgx_a100_sample():
    topology = read_infragraph(SAMPLE)
    assert (topology.name, topology.n_ranks) == ("infragraph_dgxa100", 8)
    assert topology.ranks == tuple(f"server[0].xpu[{i}]" for i in range(8))
    assert Counter(topology.kinds) == {"gpu": 8, "switch": 4 + 8, "nic": 8, "host": 2}
    links = Counter((topology.link_kind(link), int(topology.link_bandwidth[link])) for link in range(topology.n_links))
    # 12 NVLinks of 25 GB/s, shared by 8 edges; 12 PCIe links below and at the CPUs, 8 to the NICs
    assert links == {("nvlink", 37_500_000_000): 128, ("pcie", 15_750_000_000): 40, ("xgmi", 16 * 10**9): 2}
    for text in (
        "server is not among the instances: taken for device dgx-a100.",
        "Device cx5 is not in the file: each is one NIC.",
        "pcie is PCIe 3.0 x16, 15.75 GB/s",
        "nvlink is the 12 NVLinks of A100 shared by 8 edges, 37.5 GB/s",
    ):
        assert text in topology.description
    assert topology.links_between("server[0].pciesw[3]", "server-nic[7]")
    assert [len(topology.route(0, rank)) for rank in (1, 4, 7)] == [2, 2, 2]
    result = collsim.run("all_reduce", topology, size="1GiB", algorithm="ring", channels=8)
    assert result.busbw == pytest.approx(300e9, rel=0.01)
    assert facts(read(format_infragraph(topology))) == facts(topology)
    faster = read_infragraph(SAMPLE, rates={"pcie": "12GB/s"})
    assert faster.link_bandwidth.min() == 12 * 10**9


@pytest.mark.parametrize(("gpu", "rate"), [("h100", 25), ("a100", 25), ("p100", 20), ("b200", 50), ("rtx3090", 14)])
def test_an_nvlink_without_a_generation_is_that_of_its_gpu(gpu: str, rate: int) -> None:
    standard = standard_of("NVLink")
    assert standard is not None
    assert round(nvlink_rate(standard, gpu_model(gpu)) / 1e9) == rate


def test_gpus_that_do_not_forward_among_direct_links_are_refused():
    builder = TopologyBuilder("odd")
    for i in range(4):
        builder.add_node(f"gpu[{i}]", forwards=False)
    builder.add_node("sw", "switch")
    for a, b in ((0, 1), (1, 2)):
        builder.add_duplex(f"gpu[{a}]", f"gpu[{b}]", 50 * 10**9, 10**6)
    for i in range(4):
        builder.add_duplex(f"gpu[{i}]", "sw", 10 * 10**9, 5 * 10**6)
    with pytest.raises(TopologyError, match=r"gpu\[0\], which does not, would"):
        format_infragraph(builder.build())
