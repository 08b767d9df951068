"""The hardware catalogue: its data files, and names looked up in them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from collsim.errors import InputError
from collsim.formats.gpus import gpu_models, nvlink_bandwidth
from collsim.hardware import catalogue, gpu, gpu_names, nic, nic_names, node, node_names
from collsim.hardware.words import find_gpu, split_words
from collsim.topology.yamltree import parse, read_text

HERE = Path(catalogue.__file__).parent
GB = 10**9
DATA = {name: parse(read_text(HERE / f"{name}.yaml")).value for name in ("gpus", "nics", "nodes")}

# Name: compute capability or architecture, links, raw and effective GB/s of one, PCIe, GB, SMs, bf16 TFLOPS.
GPU_FACTS = {
    "p100": (60, 4, 20, 18, 3, 16, 56, None),
    "v100": (70, 6, 25, 20, 3, 32, 80, None),
    "t4": (75, 0, 0, 0, 3, 16, 40, None),
    "a100": (80, 12, 25, 20, 4, 80, 108, 312),
    "a800": (80, 8, 25, 20, 4, 80, 108, 312),
    "rtx3090": (86, 4, 14.0625, 12, 4, 24, 82, 71),
    "rtx4090": (89, 0, 0, 0, 4, 24, 128, 165.2),
    "l40s": (89, 0, 0, 0, 4, 48, 142, 362),
    "h100": (90, 18, 25, 20.6, 5, 80, 132, 989.4),
    "h200": (90, 18, 25, 20.6, 5, 141, 132, 989.4),
    "h20": (90, 18, 25, 20.6, 5, 96, 78, 148),
    "b200": (100, 18, 50, 40.1, 5, 180, 148, 2250),
    "gb200": (100, 18, 50, 40.1, 5, 186, 0, 2500),
    "mi250x": ("gfx90a", 8, 50, 36, 4, 64, 110, 191.5),
    "mi300x": ("gfx942", 7, 64, 48, 5, 192, 304, 1307.4),
}


@pytest.mark.parametrize("name", GPU_FACTS)
def test_facts_of_gpus(name):
    found = gpu(name)
    sm, links, raw, effective, pcie, memory, sms, bf16 = GPU_FACTS[name]
    assert (found.sm or found.gfx, found.links, found.pcie, found.sms) == (sm, links, pcie, sms)
    assert (found.link_bandwidth, found.link_effective) == (raw * GB, effective * GB)
    assert found.memory == memory * GB
    assert found.peak_flops.get("bf16") == (None if bf16 is None else round(bf16 * 10**12))


@pytest.mark.parametrize("name", gpu_models())
def test_what_formats_take_for_a_gpu(name):
    model, whole = gpu_models()[name], gpu(name)
    assert (model.name, model.sm, model.nvlinks, model.pcie) == (whole.family, whole.sm, whole.nvlinks, whole.pcie)
    if whole.nvlinks:  # a dump has the compute capability only
        assert whole.nvlink_bandwidth == nvlink_bandwidth(whole.sm)


@pytest.mark.parametrize("name", gpu_names())
def test_every_gpu_is_whole(name):
    found = gpu(name)
    assert found.name == name
    assert found.sources[""]
    assert found.vendor in ("nvidia", "amd")
    assert bool(found.sm) == (found.vendor == "nvidia") == (not found.gfx)
    assert (found.links > 0) == bool(found.link) == (found.link_bandwidth > 0) == (found.link_effective > 0)
    assert found.link_effective <= found.link_bandwidth
    assert found.nvlinks == (found.links if found.vendor == "nvidia" else 0)
    assert 3 <= found.pcie <= 6
    flops = found.peak_flops
    assert all(value > 0 for value in flops.values())
    order = [flops[kind] for kind in ("fp32", "tf32", "bf16", "fp8", "fp4") if kind in flops]
    assert order == sorted(order)
    assert hash(found) == hash(gpu(name))


def test_every_figure_of_a_generation_has_its_source():
    for name, entry in DATA["gpus"]["generations"].items():
        given = {key for key in entry if key not in ("vendor", "source", "link")}
        given |= {f"link.{key}" for key in entry.get("link", {}) if key != "kind"}
        assert given == set(entry.get("source", {})), name
    used = {entry["generation"] for entry in DATA["gpus"]["gpus"].values()}
    assert used == set(DATA["gpus"]["generations"])


def test_every_entry_has_a_source():
    for entries in (DATA["gpus"]["gpus"], DATA["nics"]["nics"], DATA["nodes"]["cpus"], DATA["nodes"]["nodes"]):
        assert all(len(entry["source"]) > 10 for entry in entries.values())


def test_data_files_have_no_field_that_nobody_reads():
    known = {
        "gpus": "family generation form sm gfx sms memory memory_bandwidth links pcie tflops p2p launch source also",
        "nics": "rate transports latency pcie lanes aliases source",
        "nodes": "gpu gpus join sharp boards trunk links per_pair cpu sockets switches nic nic_rate nics nics_on "
        "transport network per_host pcie board aliases source",
    }
    for name, words in known.items():
        for entry, fields in DATA[name][name].items():
            assert set(fields) <= set(words.split()), (entry, set(fields) - set(words.split()))


def test_no_name_means_two_things():
    for name in ("nics", "nodes"):
        entries = DATA[name][name]
        names = [*entries, *(other for entry in entries.values() for other in entry.get("aliases", ()))]
        assert [word for word, count in Counter(names).items() if count > 1] == []
        assert all(catalogue.plain(word) == word for word in names)
    assert not set(catalogue.nics()) & set(catalogue.transports())
    words = [word for entry in DATA["nics"]["transports"].values() for word in entry["words"]]
    assert len(words) == len(set(words))


@pytest.mark.parametrize("name", nic_names())
def test_every_adapter_is_whole(name):
    found = nic(name)
    assert found.bandwidth > GB
    assert set(found.transports) <= set(DATA["nics"]["transports"])
    assert (found.pcie > 0) == (found.lanes > 0)


@pytest.mark.parametrize("name", node_names())
def test_every_node_is_whole(name):
    found = node(name)
    assert found.name == name
    assert found.join in ("nvswitch", "mesh", "full", "pcie")
    assert found.network in ("rails", "flat")
    assert found.gpus % max(found.switches, 1) == 0
    assert found.cpu is not None
    assert found.nic is None or found.transport in found.nic.transports
    assert found.nic is None or found.nic_bandwidth <= found.nic.bandwidth
    if found.sharp:
        assert found.gpu.sm >= 90
    ends: Counter[int] = Counter()
    for a, b, count in found.links:
        assert 0 <= a < b < found.gpus
        ends[a] += count
        ends[b] += count
    assert len({(a, b) for a, b, _ in found.links}) == len(found.links)
    assert all(count <= found.gpu.links for count in ends.values())
    if found.join in ("mesh", "full"):
        assert len(ends) == found.gpus
        spare = {"mi250x": 3}.get(found.gpu.family, 0)  # links to the CPU, the adapter and none
        assert all(count >= found.gpu.links - spare for count in ends.values())


# Name: GPU, GPUs, join, adapters, Gb/s of each, transport.
NODE_FACTS = {
    "dgx-1-v100": ("v100", 8, "mesh", 4, 100, "infiniband"),
    "dgx-a100": ("a100", 8, "nvswitch", 8, 200, "infiniband"),
    "dgx-h100": ("h100", 8, "nvswitch", 8, 400, "infiniband"),
    "p3dn": ("v100", 8, "mesh", 1, 100, "efa1"),
    "p4d": ("a100-40gb", 8, "nvswitch", 4, 100, "efa1"),
    "p5": ("h100", 8, "nvswitch", 32, 100, "efa2"),
    "p5en": ("h200", 8, "nvswitch", 16, 200, "efa3"),
    "a3-high": ("h100", 8, "nvswitch", 4, 200, "tcpx"),
    "a3-mega": ("h100", 8, "nvswitch", 8, 200, "tcpxo"),
    "a3-ultra": ("h200", 8, "nvswitch", 8, 400, "roce"),
    "bm.gpu.h100.8": ("h100", 8, "nvswitch", 16, 200, "roce"),
    "nd-a100-v4": ("a100-40gb", 8, "nvswitch", 8, 200, "infiniband"),
    "gb200-nvl72": ("gb200", 72, "nvswitch", 72, 400, "infiniband"),
    "alps": ("gh200", 4, "full", 4, 200, "slingshot"),
    "perlmutter": ("a100-40gb", 4, "full", 4, 200, "slingshot"),
    "frontier": ("mi250x", 8, "mesh", 4, 200, "slingshot"),
}


@pytest.mark.parametrize("name", NODE_FACTS)
def test_facts_of_nodes(name):
    found = node(name)
    rate = found.nic_bandwidth * 8 // GB
    assert (found.gpu.name, found.gpus, found.join, found.nics, rate, found.transport) == NODE_FACTS[name]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("H100", "h100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("H100 SXM5 80 GB", "h100"),
        ("H100-PCIe", "h100-pcie"),
        ("h100 nvl", "h100-nvl"),
        ("A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("V100 SXM3 32GB", "v100-sxm3"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx2080ti"),
        ("RTX 4070 Ti SUPER", "rtx4070tisuper"),
        ("GH200 120GB", "gh200"),
        ("GH200 144GB", "gh200-144gb"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("H20-3e", "h20-3e"),
        ("RTX 6000 Ada", "rtx6000ada"),
    ],
)
def test_a_gpu_has_many_names(text, name):
    assert gpu(text).name == name


def test_words_that_say_nothing_of_the_gpu_are_told():
    found = find_gpu(split_words("V100 SXM3 32GB (DGX-2)"), catalogue.families())
    assert found is not None
    assert found[0].name == "v100-sxm3"
    assert found[1] == ["dgx", "2"]
    assert find_gpu(["no", "such"], catalogue.families()) is None


@pytest.mark.parametrize("text", ["h10", "", "h100 sxm 81gb", "t4 nvl", "a100x8", None, 5])
def test_a_gpu_that_is_not_there(text):
    with pytest.raises(InputError, match="gpu: expected a GPU such as h100 or a100-40gb, got "):
        gpu(text)


@pytest.mark.parametrize(
    ("call", "name", "message"),
    [
        (gpu, "h1000", "did you mean 'h100'?"),
        (nic, "connectx-9", "did you mean 'connectx-8'?"),
        (node, "dgx-h20", "did you mean 'dgx-h200'?"),
        (node, 8, "got 8"),
        (node, "a100x4", "write hgx-a100:4"),
        (node, "h100x16", "hgx-h100 has 8"),
        (node, "t4x2-bridge", "t4, which has none"),
        (node, "t4x2-gen4", "expected -gen3 to -gen3 for t4, got -gen4"),
        (node, "l40sx17", "expected 1 to 16 GPUs in a PCIe server, got 17"),
        (node, "dgx-h100[a100]", "expected a GPU like the h100 of dgx-h100, got a100"),
    ],
)
def test_names_that_are_wrong_get_a_remedy(call, name, message):
    with pytest.raises(InputError, match=re.escape(message)):
        call(name)


def test_a_server_says_what_it_is():
    found = node("h100-pciex4-bridge-gen4")
    assert (found.gpu.name, found.gpus, found.pcie, found.name) == ("h100-pcie", 4, 4, "h100-pciex4-bridge-gen4")
    assert found.links == ((0, 1, 12), (2, 3, 12))
    assert node("rtx4090x2").p2p is False
    assert node("t4x2").p2p is True
    assert node("t4x2-shm").p2p is False
    assert node("b200x8") == node("hgx-b200")
