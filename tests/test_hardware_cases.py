"""Hardware blocks of files of measurements, read as clusters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collsim.errors import InputError
from collsim.hardware import cluster, from_case, machine
from collsim.hardware.fabrics import transport_of
from collsim.topology.yamltree import parse, read_text

MEASURED = Path(__file__).parents[2] / "shared" / "truth" / "measured.yaml"


def block(gpu, gpus, nodes, link=None, nics=None, each=None, fabric=None, **more):
    fields = {"gpu": gpu, "gpus_per_node": gpus, "nodes": nodes, "intra_link": link, "nic_count_per_node": nics}
    return {**fields, "nic_Gbps_each": each, "fabric": fabric, **more}


@pytest.mark.parametrize(
    ("hardware", "expected"),
    [
        (
            block("H100 SXM5 80GB", 8, 2, "NVLink4 + NVSwitch", 8, 400, "InfiniBand NDR"),
            "2 x hgx-h100 @ 8x400Gb infiniband",
        ),
        (
            block("NVIDIA H100 80GB HBM3", 8, 2, "NV18", 8, "400", "Azure ND H100 v5"),
            "2 x nd-h100-v5 @ 8x400Gb infiniband",
        ),
        (
            block("H100 SXM", 8, 4, "NVLink4 + NVSwitch", 8, 200, "GCP A3 Mega, GPUDirect-TCPXO"),
            "4 x a3-mega @ 8x200Gb tcpxo",
        ),
        (block("H100 SXM", 8, 4, "NVLink4 + NVSwitch", 4, 200, "GPUDirect-TCPX"), "4 x hgx-h100 @ 4x200Gb tcpx"),
        (block("H100 SXM", 8, 2, "NVLink4", 8, 400, "RDMA over Ethernet"), "2 x hgx-h100 @ 8x400Gb roce"),
        (block("H100 SXM", 8, 2, "NVSwitch", 32, 100, "AWS EFA"), "2 x hgx-h100 @ 32x100Gb efa2"),
        (
            block("H200", 8, 2, "NVLink4 + NVSwitch", 16, 200, "EFA v3 (p5en.48xlarge)"),
            "2 x p5en.48xlarge @ 16x200Gb efa3",
        ),
        (block("A100 SXM4 40GB", 8, 2, "NVSwitch", 4, 100, "AWS EFA"), "2 x hgx-a100[a100-40gb] @ 4x100Gb efa1"),
        (block("A100 SXM4 40GB", 8, 2, "NVSwitch", fabric="AWS p4d.24xlarge"), "2 x p4d.24xlarge @ 4x100Gb efa1"),
        (
            block("A100 40GB", 4, 2, "all-to-all, 4 links per pair", 4, 200, "Slingshot 11"),
            "2 x hgx-a100-4[a100-40gb] @ 4x200Gb slingshot slingshot-11",
        ),
        (block("H100 PCIe", 4, 1, "PCIe Gen4"), "1 x h100-pciex4-gen4"),
        (
            block("L40S", 4, 2, "PCIe Gen4 x16", 1, 100, "RoCEv2, ConnectX-6 Dx"),
            "2 x l40sx4 @ 1x100Gb roce connectx-6-dx",
        ),
        (block("RTX 4090", 2, 1, "PCIe through host memory (no P2P)"), "1 x rtx4090x2"),
        (block("Tesla T4", 2, 1, "PCIe via SHM"), "1 x t4x2-shm"),
        (block("RTX 3090", 2, 1, "NVLink (NV4)", intra_GBps_per_gpu_unidir=56), "1 x rtx3090x2-bridge"),
        (block("H100 NVL", 4, 1, "two NVLink-bridge pairs joined by PCIe"), "1 x h100-nvlx4-bridge"),
        (block("Tesla P100-SXM2-16GB", 8, 1, "NVLink1 hybrid cube mesh"), "1 x dgx-1-p100 @ 4x100Gb infiniband"),
        (block("V100 SXM2", 4, 1, "NVLink2"), "1 x dgx-1-v100:4 @ 2x100Gb infiniband"),
        (block("V100 32GB", 12, 1, "NVLink2 + NVSwitch"), "1 x dgx-2:12 @ 6x100Gb infiniband"),
        (block("V100 PCIe", 1, 2, nics=1, each=10, fabric="TCP over 10 GbE"), "2 x v100-pciex1 @ 1x10Gb tcp"),
        (
            block("GB200", 4, 18, "NVLink5 NVL72 (MNNVL)", 0, 0, "all traffic on NVLink"),
            "1 x gb200-nvl72 @ 72x400Gb infiniband",
        ),
        (block("GB200", 4, 36, "NVL72", 4, 400, "InfiniBand NDR"), "2 x gb200-nvl72 @ 72x400Gb infiniband"),
        (
            block("GB200", 8, 3, "NVLink5 partition of 8 GPUs", 8, 400, "partitions joined by InfiniBand"),
            "3 x gb200-nvl72:8 @ 8x400Gb infiniband",
        ),
        (block("GH200 120GB", 4, 2, "NVLink4 quad", 4, 200, "Slingshot-11 (Alps)"), "2 x alps @ 4x200Gb slingshot"),
        (
            block("MI300X", 8, 2, "xGMI fully connected", 8, 400, "RoCE, Broadcom Thor2"),
            "2 x mi300x-8 @ 8x400Gb roce thor-2",
        ),
        (
            block("MI250X", 8, 2, "Infinity Fabric", 4, 200, "Slingshot-11 (Frontier)"),
            "2 x frontier @ 4x200Gb slingshot",
        ),
    ],
)
def test_words_of_people_are_understood(hardware, expected):
    found = from_case(hardware)
    assert str(found) == expected
    assert machine(found).n_ranks == found.ranks == hardware["gpus_per_node"] * hardware["nodes"]
    assert cluster(str(found)) == found


def test_what_can_be_told_need_not_be_stated():
    base = {"gpu": "H100", "intra_link": "NVSwitch", "fabric": "IB"}
    expected = "2 x hgx-h100 @ 8x400Gb infiniband"
    assert (
        str(from_case({**base, "ranks": 16, "nodes": 2, "nic_count_per_node": 8, "nic_Gbps_per_node": 3200}))
        == expected
    )
    assert (
        str(from_case({**base, "ranks": 16, "gpus_per_node": 8, "nic_Gbps_each": 400, "nic_Gbps_per_node": 3200}))
        == expected
    )


def test_what_was_taken_for_granted_is_told():
    assert from_case(block("H100 NVL/PCIe", 2, 1, "PCIe")).notes == ("H100 NVL or PCIe is taken as h100-nvl.",)
    assert "No h100 of 81gb is known; h100 is taken." in from_case(block("H100 81GB", 8, 1, "NVSwitch")).notes
    assert "taken for" not in machine(from_case(block("H100 81GB", 8, 1, "NVSwitch"))).name


TWO = block("H100", 8, 2, "NVSwitch", 8, 400, "InfiniBand")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpu": None}, "hardware.gpu: expected a GPU such as H100 SXM 80GB, got nothing"),
        ({"gpu": "H10"}, "hardware.gpu: expected a GPU such as h100 or a100-40gb, got 'H10'; did you mean 'h100'?"),
        ({"gpus_per_node": 0}, "hardware.gpus_per_node: expected a whole number from 1, got 0"),
        ({"nodes": None}, "hardware.nodes: expected the number of nodes, got nothing, and ranks is not stated either"),
        ({"nodes": None, "ranks": 12}, "hardware.ranks: expected a multiple of gpus_per_node = 8, got 12"),
        ({"ranks": 8}, "hardware.ranks: expected nodes x gpus_per_node = 2 x 8 = 16, got 8"),
        ({"gpus_per_node": 16}, "hardware.gpus_per_node: expected at most the 8 GPUs of hgx-h100, got 16"),
        (
            {"intra_link": None},
            "hardware.intra_link: expected words such as NVLink4 + NVSwitch or PCIe Gen4 for what joins",
        ),
        ({"intra_link": "PCIe Gen5"}, "hardware.intra_link: expected nvswitch of nvlink4 for h100, got 'pcie gen5'"),
        ({"intra_GBps_per_gpu_unidir": 900}, "expected about 450 for h100 (18 links of 25 GB/s), got 900"),
        ({"intra_GBps_per_gpu_unidir": "fast"}, "expected a number of GB/s, got 'fast'"),
        (
            {"nic_count_per_node": None},
            "hardware.nic_count_per_node: expected the number of adapters of a node, got nothing",
        ),
        ({"nic_Gbps_each": None}, "hardware.nic_Gbps_each: expected the rate of an adapter in Gb/s, got nothing"),
        ({"nic_Gbps_each": "quick"}, "hardware.nic_Gbps_each: expected a rate in Gb/s, got 'quick'"),
        ({"nic_Gbps_per_node": 1600}, "expected nic_count_per_node x nic_Gbps_each = 8 x 400 Gb/s, got 1600 Gb/s"),
        ({"fabric": None}, "hardware.fabric: expected words for the network such as InfiniBand NDR, RoCE, EFA v2"),
        ({"fabric": "ConnectX-7"}, "hardware.fabric: expected words for the network"),
    ],
)
def test_what_is_not_known_is_refused_in_words(change, message):
    with pytest.raises(InputError, match=re.escape(message)):
        from_case({**TWO, **change})


@pytest.mark.parametrize(
    ("hardware", "message"),
    [
        ([], "hardware: expected a mapping with gpu, nodes and ranks, got []"),
        (block("A100 PCIe", 4, 1, "NVLink"), "expected which a100-pcie an NVLink bridge joins, got 'nvlink'"),
        (block("H200 NVL", 4, 1, "4-way NVLink bridge"), "wider ones are not known here"),
        (block("L4", 4, 1, "PCIe Gen4 x8"), "expected PCIe x16 slots, got 'pcie gen4 x8'"),
        (
            block("GB200", 4, 20, "NVL72", 4, 400, "InfiniBand"),
            "expected a multiple of the 18 hosts of gb200-nvl72, got 20",
        ),
    ],
)
def test_blocks_that_are_refused(hardware, message):
    with pytest.raises(InputError, match=re.escape(message)):
        from_case(hardware)


@pytest.mark.parametrize(
    ("text", "transport"),
    [
        ("InfiniBand HDR, ConnectX-6", "infiniband"),
        ("IB EDR", "infiniband"),
        ("RoCE bonds", "roce"),
        ("GCP A3 Mega, GPUDirect-TCPXO (FasTrak)", "tcpxo"),
        ("GPUDirect-TCPX", "tcpx"),
        ("EFAv2", "efa2"),
        ("AWS EFA", "efa"),
        ("Slingshot-11 (Alps)", "slingshot"),
        ("TCP (about 1 GB/s: 10 GbE)", "tcp"),
        ("25GbE", "tcp"),
        ("a cable", ""),
    ],
)
def test_transports_out_of_words(text, transport):
    assert transport_of(text) == transport


@pytest.mark.skipif(not MEASURED.exists(), reason="the file of measurements is not here")
def test_the_measured_file_is_read():
    refused = {}
    for case in parse(read_text(MEASURED)).value:
        hardware = case["hardware"]
        try:
            found = from_case(hardware)
        except InputError as error:
            refused[case["id"]] = str(error)
            continue
        assert found.ranks == hardware["ranks"], case["id"]
        assert machine(found).n_ranks == hardware["ranks"]
        if hardware.get("nic_Gbps_per_node"):
            assert found.nics * found.nic_bandwidth * 8 == hardware["nic_Gbps_per_node"] * 10**9
    assert all(
        "nic_Gbps_each: expected the rate of an adapter in Gb/s, got nothing" in text for text in refused.values()
    )
    assert len(refused) <= 2
