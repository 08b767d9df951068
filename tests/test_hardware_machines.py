"""Clusters as lines of text, and the machines that are made of them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from collsim.errors import InputError
from collsim.hardware import Cluster, cluster, machine, node_names, part
from collsim.hardware.machines import pcie_bandwidth
from collsim.topology import load_topology

GB = 10**9

SHIPPED = {
    "dgx-1-v100": "dgx-1-v100",
    "dgx-2": "dgx-2",
    "dgx-a100": "dgx-a100",
    "2 x dgx-a100": "dgx-a100-x2",
    "dgx-h100": "dgx-h100",
    "4 x dgx-h100 @ 8x400Gb": "dgx-h100-x4",
    "gb200-nvl72": "gb200-nvl72",
    "mi300x-8": "mi300x",
    "t4x4": "pcie-4gpu",
}


@pytest.mark.parametrize("text", SHIPPED)
def test_a_machine_is_the_shipped_one_where_there_is_one(text):
    made, shipped = machine(cluster(text)), load_topology(SHIPPED[text])
    assert made == shipped
    assert made.structure == shipped.structure


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("name", [*node_names(), "l40sx8", "rtx4090x2", "h100-nvlx4-bridge", "rtx2080tix2-bridge"])
def test_every_node_makes_a_machine(name, nodes):
    has_nics = bool(cluster(name).nics)
    text = f"{nodes} x {name}" + ("" if has_nics or nodes == 1 else " @ 2x200Gb roce")
    made = cluster(text)
    topology = machine(made)
    assert topology.n_ranks == made.ranks == nodes * made.node.gpus
    src = np.repeat(np.arange(made.ranks), made.ranks)
    dst = np.tile(np.arange(made.ranks), made.ranks)
    keep = (src != dst) & ((src * 7 + dst * 3) % max(1, made.ranks // 24) == 0)
    offsets, links = topology.routes(src[keep], dst[keep])
    assert np.diff(offsets).min() >= 1
    per_node = made.node.gpus
    same = src[keep] // per_node == dst[keep] // per_node
    kinds = np.array(topology.link_kind_names)[topology.link_kind_codes[links]]
    over_network = np.add.reduceat(kinds == (made.transport or "none"), offsets[:-1]) > 0
    assert np.array_equal(over_network, ~same)
    names = [f"node[{i}].gpu[{g}]" for i in range(nodes) for g in range(per_node)]
    assert topology.ranks == (tuple(names) if nodes > 1 else tuple(f"gpu[{g}]" for g in range(per_node)))


@pytest.mark.parametrize("name", node_names())
def test_slots_hold_every_gpu_and_adapter_once(name):
    for gpus in {1, 2, cluster(name).node.gpus}:
        some = part(cluster(name), gpus)
        assert sorted(gpu for slot in some.slots for gpu in slot.gpus) == list(range(gpus))
        assert sorted(nic for slot in some.slots for nic in slot.nics) == list(range(some.nics))
        assert all(0 <= slot.cpu < some.node.sockets for slot in some.slots)


@pytest.mark.parametrize(
    "text",
    [
        "2 x dgx-h100",
        "2 x p4d",
        "2 x p5",
        "2 x bm.gpu.h100.8",
        "8 x nd-h100-v5",
        "2 x alps",
        "2 x dgx-2",
        "4 x a3-mega",
    ],
)
def test_the_next_node_is_one_network_hop_of_nccl_away(text):
    made = cluster(text)
    topology = machine(made)
    route = list(topology.route(0, made.gpus))
    assert topology.link_latency[route].sum() == 2_700_000
    assert topology.link_bandwidth[route].min() == made.nic_bandwidth


def test_p5_shares_the_slot_of_a_gpu_among_four_adapters():
    topology = machine(cluster("2 x p5"))
    assert [topology.link_name(link) for link in topology.route(0, 8)] == [
        "node[0].gpu[0]->node[0].pcisw[0]",
        "node[0].pcisw[0]->node[0].nic[0]",
        "node[0].nic[0]->network",
        "network->node[1].nic[0]",
        "node[1].nic[0]->node[1].pcisw[0]",
        "node[1].pcisw[0]->node[1].gpu[0]",
    ]
    adapters = {
        topology.nodes[end] for end in topology.link_dst[topology.link_src == topology.node_index("node[0].pcisw[0]")]
    }
    assert {f"node[0].nic[{i}]" for i in range(4)} <= adapters


def test_an_adapter_on_a_cpu_is_reached_over_the_cpu():
    topology = machine(cluster("2 x p3dn"))
    route = [topology.nodes[node] for node in topology.link_dst[list(topology.route(0, 8))]]
    assert route[:3] == ["node[0].pcisw[0]", "node[0].cpu[0]", "node[0].nic[0]"]
    assert topology.link_bandwidth[topology.links_between("node[0].cpu[0]", "node[0].cpu[1]")[0]] == 62_400_000_000


def test_bridged_pairs_reach_each_other_over_pcie():
    topology = machine(cluster("h100-nvlx4-bridge"))
    assert len(topology.links_between("gpu[0]", "gpu[1]")) == 12
    assert not topology.links_between("gpu[1]", "gpu[2]")
    kinds = {topology.link_kind(link) for link in topology.route(0, 3)}
    assert kinds == {"pcie", "upi"}
    assert [topology.link_kind(link) for link in topology.route(2, 3)] == ["nvlink"]


def test_gpus_of_a_mesh_forward_only_where_they_must():
    for text, through in [("dgx-1-v100", True), ("dgx-1-v100:4", False), ("mi300x-8", False), ("frontier", True)]:
        topology = machine(cluster(text))
        assert topology.forwards[topology.rank_nodes].all() == through, text


def test_nvlink_sharp_is_where_the_node_has_it():
    assert machine(cluster("dgx-h100:2")).reduces.any()
    assert not machine(cluster("dgx-a100")).reduces.any()


def test_two_boards_are_one_where_one_is_enough():
    assert "nvswitch[1]" not in machine(cluster("dgx-2:8")).nodes
    assert "nvswitch[1]" in machine(cluster("dgx-2:9")).nodes


def test_many_nodes_are_made_at_once():
    topology = machine(cluster("128 x dgx-a100"))
    assert topology.n_ranks == 1024
    up = topology.links_between("leaf[0]", "spine")
    assert len(up) == 128
    assert topology.link_bandwidth[list(up)].sum() == 128 * 25 * GB


def test_one_gpu_is_a_machine_too():
    assert machine(cluster("rtx4090x1")).n_ranks == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dgx-h100", "1 x dgx-h100 @ 8x400Gb infiniband"),
        ("2 x dgx-h100 @ 8x400Gb", "2 x dgx-h100 @ 8x400Gb infiniband"),
        ("2xdgx-h100@8x400Gb roce", "2 x dgx-h100 @ 8x400Gb roce"),
        ("2×DGX H100 @ 8×400Gbps RoCEv2", "2 x dgx-h100 @ 8x400Gb roce"),
        ("4 x p4d", "4 x p4d.24xlarge @ 4x100Gb efa1"),
        ("2 x p5.48xlarge", "2 x p5.48xlarge @ 32x100Gb efa2"),
        ("2 x h100x8", "2 x hgx-h100 @ 8x400Gb infiniband"),
        ("2 x dgx-a100:4", "2 x dgx-a100:4 @ 4x200Gb infiniband"),
        ("2 x dgx-a100 : 3 gpus", "2 x dgx-a100:3 @ 4x200Gb infiniband"),
        ("2 x dgx-a100:1 @ 200Gb", "2 x dgx-a100:1 @ 1x200Gb infiniband"),
        ("2 x l40sx4 @ 2 x connectx-6 roce", "2 x l40sx4 @ 2x200Gb roce connectx-6"),
        ("2 x l40sx4 @ 1x100Gb tcp", "2 x l40sx4 @ 1x100Gb tcp"),
        ("2 x dgx-h100 @ 4x25GB/s", "2 x dgx-h100 @ 4x200Gb infiniband"),
        ("2 x dgx-h100 @ 8 x bf3", "2 x dgx-h100 @ 8x400Gb infiniband bluefield-3"),
        ("2 x dgx-h100 @ 8x200Gb cx7 roce", "2 x dgx-h100 @ 8x200Gb roce"),
        ("dgx-h100 @ none", "1 x dgx-h100"),
        ("1,024 x dgx-h100", "1024 x dgx-h100 @ 8x400Gb infiniband"),
        ("2 x dgx-1-v100[v100-16gb]", "2 x dgx-1-v100[v100-16gb] @ 4x100Gb infiniband"),
        ("2 x dgx-h100 @ 8x2.5Gb", "2 x dgx-h100 @ 8x2.5Gb infiniband"),
    ],
)
def test_clusters_are_read(text, expected):
    assert str(cluster(text)) == expected


@pytest.mark.parametrize("name", node_names())
def test_a_cluster_writes_what_reads_back(name):
    for text in (name, f"3 x {name}:2 @ 2x100Gb roce", f"2 x {name} @ 3 x connectx-8 tcp"):
        made = cluster(text)
        again = cluster(str(made))
        assert again == made
        assert isinstance(again, Cluster)


def test_fewer_gpus_keep_the_adapters_that_were_asked_for():
    assert str(part(cluster("2 x dgx-h100 @ 4x100Gb"), 2)) == "2 x dgx-h100:2 @ 4x100Gb infiniband"
    assert str(part(cluster("2 x dgx-h100"), 2)) == "2 x dgx-h100:2 @ 2x400Gb infiniband"
    with pytest.raises(InputError, match="gpus: expected 1 to the 8 of dgx-h100, got 9"):
        part(cluster("dgx-h100"), 9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cluster: expected a text such as '2 x dgx-h100 @ 8x400Gb', got ''"),
        (7, "cluster: expected a text such as '2 x dgx-h100 @ 8x400Gb', got 7"),
        (
            "2 x dgx-h10",
            "column 5: expected a node such as dgx-h100, p5 or l40sx4, got 'dgx-h10'; did you mean 'dgx-h100'?",
        ),
        ("2 dgx-h100", "column 3: expected 'x' after the number of nodes; write 2 x dgx-h100"),
        ("0 x dgx-h100", "column 1: expected 1 to 200,000 nodes, got 0"),
        ("2 x ", "column 5: expected a node such as dgx-h100, got nothing"),
        ("1 x dgx-h100 / 4 gpus", "column 14: expected '@' or ':', got '/'; GPUs used of a node are written NODE:4"),
        ("dgx-h100:9", "column 10: expected 1 to the 8 GPUs of dgx-h100 after ':', got '9'"),
        ("dgx-h100:", "column 10: expected 1 to the 8 GPUs of dgx-h100 after ':', got ''"),
        ("dgx-h100 @", "column 11: expected the rate of an adapter, such as 8x400Gb, after '@'"),
        ("2 x dgx-h100 @ 8x400", "column 18: expected a rate such as 400Gb and a transport, got '400'; write 400Gb"),
        (
            "2 x dgx-h100 @ 8x400Gb rocee",
            "column 24: expected a transport such as infiniband or roce, or an adapter, got 'rocee'; did you mean",
        ),
        ("2 x dgx-h100 @ 8x400Gb roce tcp", "column 29: expected one transport, got 'tcp' after roce"),
        ("2 x dgx-h100 @ 8x0Gb", "column 18: expected the rate of an adapter, such as 400Gb, got 0Gb"),
        ("2 x dgx-h100 @ 8 x cx7 efa2", "expected a transport of connectx-7 (infiniband, roce, tcp), got efa2"),
        ("2 x dgx-h100 @ 8x400Gb @ 4", "column 24: expected one '@', got a second"),
        ("2 x dgx-h100 @ none", "expected adapters to join 2 nodes, got none"),
        ("2 x l40sx4", "expected adapters to join 2 x l40sx4; add them, such as '@ 1x100Gb roce'"),
        ("2 x l40sx4 @ 1x100Gb", "expected a transport after the rate, for l40sx4 has none"),
    ],
)
def test_clusters_that_are_wrong_say_where(text, message):
    with pytest.raises(InputError, match=re.escape(message)):
        cluster(text)


def test_slots_of_pcie():
    assert [pcie_bandwidth(generation) for generation in (3, 4, 5)] == [15_750_000_000, 31_500_000_000, 63_000_000_000]
