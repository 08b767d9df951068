"""NCCL's graph search and tuning formula: the formula by hand, channels and choices that logs report."""

from __future__ import annotations

import subprocess
import sys

import pytest

from collsim.errors import InputError
from collsim.nccl import COLLECTIVES, Machine, Setting, cells, choice, graph_of, parse_setting, predict, tables_of
from collsim.nccl.packing import cycles

H100 = Machine(sm=90, gpus=8, nvlink=370.8, switch=True, pcie=48.0)
H100X2 = Machine(sm=90, gpus=8, nodes=2, nvlink=370.8, switch=True, pcie=48.0, nics=8, nic=50.0)
A100 = Machine(sm=80, gpus=8, nvlink=240.0, switch=True, pcie=24.0, cpu="amd")
A100X2 = Machine(sm=80, gpus=8, nodes=2, nvlink=240.0, switch=True, pcie=24.0, nics=8, nic=25.0, cpu="amd")
A100X4 = Machine(sm=80, gpus=8, nodes=4, nvlink=240.0, switch=True, pcie=24.0, nics=8, nic=25.0, cpu="amd")
V216, V218, V222, V230 = (Setting(version=(2, minor)) for minor in (16, 18, 22, 30))

CUBE = (
    (0, 1, 1, 2, 2, 0, 0, 0),
    (1, 0, 2, 1, 0, 2, 0, 0),
    (1, 2, 0, 2, 0, 0, 1, 0),
    (2, 1, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 1, 1, 2),
    (0, 2, 0, 0, 1, 0, 2, 1),
    (0, 0, 1, 0, 1, 2, 0, 2),
    (0, 0, 0, 1, 2, 1, 2, 0),
)


def cube(gpus):
    return Machine(sm=70, gpus=gpus, mesh=tuple(row[:gpus] for row in CUBE[:gpus]))


@pytest.mark.parametrize("setting", [V218, V222, V230])
@pytest.mark.parametrize(
    ("machine", "channels"),
    [
        (A100, 24),  # logs of DGX A100
        (Machine(sm=80, gpus=2, nvlink=240.0, switch=True, pcie=24.0), 24),  # the log of a pair of A100: 24 channels
        (A100X2, 16),
        (H100, 24),
        (H100X2, 16),
        (cube(8), 12),  # DGX-1 V100
        (cube(2), 2),
        (Machine(sm=75, gpus=8, path="SYS"), 2),  # eight GPUs on PCIe 3
        (Machine(sm=86, gpus=8, pcie=24.0, cpu="amd"), 4),  # and on PCIe 4 of AMD
    ],
)
def test_channels_are_those_of_logs(machine, channels, setting):
    assert graph_of(machine, setting).channels == channels


def test_searches_are_those_of_logs():
    ring = graph_of(H100X2).ring  # Pattern 4, nChannels 8, bw 48.000000/48.000000, type NVL/PIX
    assert (ring.channels, ring.intra, ring.inter, ring.intra_path, ring.inter_path) == (8, 48, 48, "NVL", "PIX")
    slow = graph_of(Machine(sm=86, gpus=2, pcie=24.0, path="SYS", socket=10.0))  # nChannels 1, bw 10.0, type SYS
    assert (slow.ring.channels, slow.ring.intra, slow.ring.intra_path, slow.channels) == (1, 10, "SYS", 2)
    pair = Machine(sm=90, gpus=2, nodes=2, nvlink=370.8, switch=True, pcie=48.0, nics=2, nic=50.0)
    assert (graph_of(pair).ring.channels, graph_of(pair).ring.inter) == (4, 24)  # nChannels 4, bw 24.0/24.0


def test_nvls_has_a_head_for_each_gpu_and_its_own_channels():
    found = graph_of(H100)
    assert (found.nvls.channels, found.nvls.intra, found.nvls_channels) == (8, 40, 16)
    assert 9 * found.nvls.intra <= 370.8 < 9 * 50  # each GPU carries all heads, and its own twice
    assert graph_of(Machine(sm=90, gpus=6, nvlink=370.8, switch=True, pcie=48.0)).nvls.intra == 50  # 7 * 60 is too much
    several = graph_of(H100X2)
    assert (several.nvls.channels, several.nvls.intra, several.nvls.inter) == (8, 40, 48)
    assert graph_of(H100, parse_setting("NCCL_NVLS_ENABLE=0")).nvls_channels == 0
    assert graph_of(A100).nvls.channels == 0
    blackwell = {"sm": 100, "gpus": 8, "nvlink": 721.8, "switch": True, "pcie": 48.0}
    assert graph_of(Machine(**blackwell)).nvls_channels == 24
    assert graph_of(Machine(**blackwell, nodes=2, nics=8, nic=50.0)).nvls_channels == 32


def test_trees_may_be_faster_inside_a_node():
    few = Machine(sm=80, gpus=8, nodes=2, nvlink=240.0, switch=True, pcie=24.0, nics=4, nic=12.5)
    tree = graph_of(few).tree
    assert (tree.channels, tree.inter, tree.intra, tree.pattern) == (4, 12, 24, "balanced")
    assert graph_of(H100X2).tree.pattern == "tree"  # one GPU a NIC, Hopper
    assert graph_of(A100X2).tree.pattern == "balanced"


def test_few_fast_channels_of_hopper_are_doubled_once_more():
    few = {"sm": 90, "nodes": 2, "nvlink": 370.8, "switch": True, "pcie": 48.0}
    assert graph_of(Machine(gpus=6, nics=6, nic=50.0, **few)).channels == 24  # six found, 12 made, 24 run
    assert graph_of(Machine(gpus=8, nics=4, nic=12.5, **few)).channels == 8


def test_intels_root_complex_costs_a_sixth():
    assert graph_of(Machine(sm=75, gpus=2)).ring.intra == 10  # 12 would take 14.4 of 12
    assert graph_of(Machine(sm=75, gpus=2, cpu="amd")).ring.intra == 12


def test_limits_to_channels():
    assert graph_of(A100, parse_setting("NCCL_MAX_NCHANNELS=8")).channels == 8
    assert graph_of(A100, parse_setting("NCCL_MIN_CTAS=32")).channels == 32
    assert graph_of(A100, parse_setting("NCCL_MIN_CTAS=64", "2.18.3")).channels == 32  # MAXCHANNELS
    assert graph_of(A100, parse_setting("NCCL_MIN_CTAS=26 NCCL_MIN_NCHANNELS=30")).channels == 30
    assert graph_of(A100, parse_setting("NCCL_MAX_CTAS=4 NCCL_MIN_NRINGS=6")).channels == 6


def test_rings_packed_into_a_mesh():
    assert [cycles(cube(gpus).mesh) for gpus in (2, 4, 8)] == [1, 4, 6]
    assert cycles(((0, 1, 0), (1, 0, 1), (0, 1, 0))) == 0  # a chain has no ring
    assert cycles(((0,),)) == 0


def test_ring_cells_by_hand_on_eight_h100():
    found = cells(H100, "all_reduce")
    bus = 12 * 30.0
    assert found["Ring", "Simple"].bandwidth == pytest.approx(bus * 8 / 14)
    assert found["Ring", "Simple"].latency == pytest.approx(8.4 + 14 * 3.4)
    assert found["Ring", "LL"].bandwidth == pytest.approx(min(141, bus / 2) * 8 / 14)
    assert found["Ring", "LL"].latency == pytest.approx(6.6 + 14 * 0.6)
    assert found["Ring", "LL128"].bandwidth == pytest.approx(min(0.92 * bus, 12 * 36.7) * 8 / 14)
    assert found["Ring", "LL128"].latency == pytest.approx(14 + 14 * 1.9)
    assert found["NVLS", "Simple"].bandwidth == pytest.approx(8 * 40 * 0.85 * 7 / 8 * 2 * 8 / 14)
    assert found["NVLS", "Simple"].latency == 25
    assert ("NVLSTree", "Simple") not in found
    tree = min(0.92 * bus, 12 * 38.7)
    assert found["Tree", "Simple"].bandwidth == pytest.approx(tree / 2)
    assert found["Tree", "LL"].bandwidth == pytest.approx(min(tree / 3.8, 141) / 2)
    assert found["Tree", "LL128"].bandwidth == pytest.approx(min(tree * 7 / 9, 12 * 36.7) / 2)
    assert found["Tree", "Simple"].latency == pytest.approx(8.4 + 2 * 7 * 4)


def test_cells_by_hand_on_four_nodes_of_a100():
    found = cells(A100X4, "all_reduce")
    bus = 8 * 24.0
    assert found["Ring", "Simple"].bandwidth == pytest.approx(bus * 32 / 62)
    assert found["Ring", "Simple"].latency == pytest.approx(8.4 + 56 * max(3.4, 2 * 3) + 6 * 14)
    assert found["Ring", "LL"].bandwidth == pytest.approx(min(19.0, bus / 2) * 32 / 62)  # row of AMD, four nodes
    assert found["Ring", "LL"].latency == pytest.approx(6.6 + 56 * max(0.6, 2) + 6 * 2.7)
    assert found["Tree", "LL"].latency == pytest.approx(6.8 + 2 * (7 * 0.6 + 2 * 5))
    assert found["Tree", "Simple"].bandwidth == pytest.approx(min(0.92 * bus, 8 * 17.8) / 2)
    assert ("Tree", "LL128") not in found  # the second GPU of the tree reaches the NIC over another one
    assert found["Ring", "LL128"].bandwidth == pytest.approx(min(0.92 * bus, 8 * 20) * 32 / 62)
    halves = cells(A100X4, "all_gather")
    assert halves["Ring", "Simple"].bandwidth == pytest.approx(bus * 32 / 31)
    assert halves["Ring", "Simple"].latency == pytest.approx(8.4 + 28 * 6 + 3 * 14)
    assert halves == cells(A100X4, "reduce_scatter")
    assert cells(A100X4, "broadcast")["Ring", "Simple"].latency == pytest.approx(8.4 + 14)  # one hop, same rings


def test_cells_by_hand_on_two_nodes_of_h100():
    found = cells(H100X2, "all_reduce")
    nvls = min(40 * 0.85 * 7 / 8 * 2, 2 * 48, 57.7)
    assert found["NVLSTree", "Simple"].bandwidth == pytest.approx(8 * nvls * 16 / 30)
    assert found["NVLSTree", "Simple"].latency == pytest.approx(25 + 2 * 20.9)
    assert ("NVLS", "Simple") not in found  # without SHARP
    assert found["Tree", "Simple"].bandwidth == pytest.approx(min(0.92 * 8 * 48, 8 * 41.4) * 0.85 / 2)
    older = cells(H100X2, "all_reduce", V222)["NVLSTree", "Simple"]
    assert older.bandwidth == pytest.approx(8 * 40 * 5 / 6)
    assert older.latency == pytest.approx(23 + 2 * 14)
    oldest = cells(H100X2, "all_reduce", V218)
    assert oldest["NVLSTree", "Simple"].latency == pytest.approx(23 + 2 * 19)
    assert oldest["Ring", "LL"].bandwidth == pytest.approx(min(39, 8 * 48 / 4) * 16 / 30)


def test_corrections_when_asked():
    size = 64 << 10  # factor 10 of the table: LL 0.6
    tree = cells(A100X2, "all_reduce")["Tree", "LL"]
    expected = tree.latency + size / (1000 * tree.bandwidth * 0.6)
    assert predict(A100X2, "all_reduce", size)["Tree", "LL"] == pytest.approx(expected * 1e-6)
    ring = cells(A100X2, "all_reduce")["Ring", "Simple"]
    times = [predict(A100X2, "all_reduce", edge)["Ring", "Simple"] for edge in (64 * 16 * 16 - 1, 64 * 16 * 16)]
    for time, edge, factor in zip(times, (16383, 16384), (1, 1.4), strict=True):
        assert time == pytest.approx((ring.latency * factor + edge / (1000 * ring.bandwidth)) * 1e-6)
    assert predict(A100X2, "all_reduce", 0)["Tree", "LL"] == pytest.approx(tree.latency * 1e-6)


def test_nvlstree_of_blackwell_is_corrected_up_to_a_gibibyte():
    pair = Machine(sm=100, gpus=8, nodes=2, nvlink=721.8, switch=True, pcie=48.0, nics=8, nic=50.0)
    cell = cells(pair, "all_reduce")["NVLSTree", "Simple"]
    for size, factor in ((2**29, 0.9), (2**30, 1)):
        time = cell.latency + size / (1000 * cell.bandwidth * factor)
        assert predict(pair, "all_reduce", size)["NVLSTree", "Simple"] == pytest.approx(time * 1e-6)


def test_ll128_of_a_tree_over_the_network():
    slow = Machine(sm=90, gpus=8, nodes=2, nvlink=370.8, switch=True, pcie=48.0, nics=4, nic=12.5)
    assert cells(slow, "all_reduce")["Tree", "LL128"].bandwidth == pytest.approx(0.92 * 4 * 24 * 120 / 128 / 2)


def test_an_older_gpu_has_the_higher_plateau():
    old = Machine(sm=70, gpus=8, nodes=2, mesh=CUBE, nics=1, nic=12.5, nic_path="PHB")
    cell = cells(old, "all_reduce")["Ring", "Simple"]
    expected = cell.latency * 1.9 + 2**20 / (1000 * cell.bandwidth)
    assert predict(old, "all_reduce", 2**20)["Ring", "Simple"] == pytest.approx(expected * 1e-6)


def test_what_the_plug_in_declares_counts_twice_for_simple():
    far = Machine(sm=80, gpus=8, nodes=2, nvlink=240.0, switch=True, pcie=24.0, nics=4, nic=12.5, nic_latency=75.0)
    found = cells(far, "all_reduce")
    assert found["Tree", "LL"].latency == pytest.approx(6.8 + 2 * (7 * 0.6 + 5 + 75))
    assert found["Tree", "Simple"].latency == pytest.approx(8.4 + 2 * (7 * 4 + 14 + 150))


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
def test_pat_needs_one_gpu_a_node(collective):
    lone = Machine(sm=90, gpus=1, nodes=4, nics=1, nic=50.0, pcie=48.0)
    found = cells(lone, collective)
    ring = graph_of(lone).ring
    assert found["PAT", "Simple"].bandwidth == pytest.approx(0.75 * ring.channels * ring.inter)
    assert found["PAT", "Simple"].latency == pytest.approx(8 + 2 * 14 / 3.5 + 4 * 2.8)
    assert ("PAT", "Simple") not in cells(H100X2, collective)
    assert ("PAT", "Simple") not in cells(lone, collective, V222)
    assert ("PAT", "Simple") not in cells(lone, collective, parse_setting("NCCL_PAT_ENABLE=0"))
    assert ("PAT", "Simple") in cells(H100X2, collective, parse_setting("NCCL_PAT_ENABLE=1"))


def test_one_gpu_a_node_sees_the_hop_of_the_tree():
    lone = Machine(sm=90, gpus=1, nodes=2, nics=1, nic=50.0, pcie=48.0)
    assert cells(lone, "all_reduce")["Ring", "LL"].latency == pytest.approx(6.6 + 2 * 5.0)
    assert cells(lone, "all_reduce", V222)["Ring", "LL128"].bandwidth == pytest.approx(0.7 * 48)


def test_ll128_only_where_stores_arrive_whole():
    assert ("Ring", "LL128") in cells(A100, "all_reduce")
    assert ("Ring", "LL128") not in cells(Machine(sm=86, gpus=8, pcie=24.0), "all_reduce")
    through_host = Machine(
        sm=90, gpus=8, nodes=2, nvlink=370.8, switch=True, pcie=48.0, nics=8, nic=50.0, nic_path="PHB"
    )
    assert ("Ring", "LL128") not in cells(through_host, "all_reduce")
    assert ("Ring", "LL128") in cells(through_host, "all_reduce", parse_setting("NCCL_PROTO=LL128,Simple"))
    rails = {"gpus": 8, "nodes": 2, "switch": True, "nics": 8, "nic": 25.0, "nic_path": "PXN"}
    assert ("Ring", "LL128") in cells(Machine(sm=90, nvlink=370.8, pcie=48.0, **rails), "all_reduce")
    assert ("Ring", "LL128") not in cells(Machine(sm=80, nvlink=240.0, pcie=24.0, **rails), "all_reduce")
    blackwell = Machine(sm=100, gpus=8, nvlink=721.8, switch=True, pcie=48.0)
    assert ("Ring", "LL128") in cells(blackwell, "all_reduce")
    assert ("Ring", "LL128") not in cells(blackwell, "all_reduce", V222)


def test_collnet_needs_sharp_and_the_users_word():
    sharp = Machine(sm=90, gpus=8, nodes=4, nvlink=370.8, switch=True, pcie=48.0, nics=8, nic=50.0, sharp=True)
    allowed = parse_setting("NCCL_COLLNET_ENABLE=1")
    found = cells(sharp, "all_reduce", allowed)
    assert {"CollNetDirect", "CollNetChain", "NVLS"} <= {algorithm for algorithm, _ in found}
    assert found["CollNetDirect", "Simple"].latency == pytest.approx(2 * (3.7 + 7 * 0.4) + 31)
    assert found["NVLS", "Simple"].latency == pytest.approx(25 + 18)
    assert not {"CollNetDirect", "NVLS"} & {algorithm for algorithm, _ in cells(sharp, "all_reduce")}
    assert ("CollNetDirect", "Simple") not in cells(H100X2, "all_reduce", allowed)


def test_eight_h100_run_ll_up_to_one_mebibyte_and_nvls_from_two():
    picked = {2**power: str(choice(H100, "all_reduce", 2**power)) for power in range(3, 34)}
    assert all(pair == "Ring/LL" for size, pair in picked.items() if size <= 2**20)
    assert all(pair == "NVLS/Simple" for size, pair in picked.items() if size >= 2**21)
    assert choice(H100, "all_reduce", 2**33).seconds == pytest.approx(2**33 / 272e9, rel=0.01)


def test_halves_on_one_node_are_rings():
    for collective in ("all_gather", "reduce_scatter"):
        assert str(choice(H100, collective, 2**30)) == "Ring/Simple"


def test_two_nodes_run_nvlstree_and_more_run_rings():
    assert str(choice(H100X2, "all_reduce", 2**30)) == "NVLSTree/Simple"
    assert str(choice(A100X4, "all_reduce", 2**33)) == "Ring/Simple"


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("machine", [H100, H100X2, A100X4, cube(8)])
def test_the_choice_is_the_least_time_that_is_predicted(collective, machine):
    for size in (8, 4096, 2**20, 2**28):
        times = predict(machine, collective, size)
        found = choice(machine, collective, size)
        assert found.seconds == times[found.algorithm, found.protocol] == min(times.values()) > 0


def test_lists_of_algorithms_and_protocols():
    assert set(predict(H100, "all_reduce", 1, parse_setting("NCCL_ALGO=tree,RING NCCL_PROTO=^LL128"))) == {
        (algorithm, protocol) for algorithm in ("Tree", "Ring") for protocol in ("LL", "Simple")
    }
    only = parse_setting("NCCL_ALGO=ring;allreduce:tree NCCL_PROTO=Simple;allgather:^Simple")
    assert {algorithm for algorithm, _ in predict(H100, "all_reduce", 1, only)} == {"Tree"}
    assert {protocol for _, protocol in predict(H100, "all_gather", 1, only)} == {"LL", "LL128"}
    single = parse_setting("NCCL_ALGO=allreduce:tree,ring")
    assert {algorithm for algorithm, _ in predict(H100, "all_reduce", 1, single)} == {"Tree", "Ring"}
    assert ("NVLS", "Simple") in predict(H100, "all_gather", 1, single)


def test_a_setting_that_leaves_nothing():
    tree = parse_setting("NCCL_ALGO=Tree")
    with pytest.raises(InputError, match=r"leave no algorithm to broadcast; allow Ring and Simple"):
        predict(H100, "broadcast", 1, tree)
    older = parse_setting("NCCL_ALGO=Tree", "2.22.3")
    assert {algorithm for algorithm, _ in predict(H100, "broadcast", 1, older)} == {"Ring"}


def test_versions_take_the_next_lower_tables():
    assert [tables_of((2, minor)).version[1] for minor in (4, 18, 21, 22, 29, 30, 99)] == [18, 18, 18, 22, 22, 30, 30]
    older, known = (predict(H100, "all_reduce", 4096, version) for version in (V216, V218))
    assert known.pop(("NVLS", "Simple")) > 0  # which came with 2.17
    assert older == known


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NCCL_ALGO=rnig", "NCCL_ALGO: expected names of Tree, .*, got 'rnig'; did you mean 'Ring'"),
        ("NCCL_PROTO=LL64", "NCCL_PROTO: expected names of LL, LL128, Simple, got 'LL64'"),
        ("NCCL_ALGO=ring;tree", "NCCL_ALGO: expected a collective before each list but the first, got 'tree'"),
        ("NCCL_ALGO=allredcue:ring", "NCCL_ALGO: expected one of .*; did you mean 'allreduce'"),
        ("NCCL_MIN_CTAS=many", "NCCL_MIN_CTAS: expected a whole number from 0, got 'many'"),
        ("NCCL_MIN_CTAS=9999", "min_channels: expected a whole number from 0"),
        ("NCCL_ALGO", "environment: expected words NAME=value, got 'NCCL_ALGO'"),
        ("NCCL_ALGO=Ring NCCL_ALGO=Tree", "environment: NCCL_ALGO is given twice"),
    ],
)
def test_environments_that_cannot_be_read(text, message):
    with pytest.raises(InputError, match=message):
        parse_setting(text)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"gpus": 0}, "gpus: expected a whole number from 1"),
        ({"nodes": 2}, "nics: expected at least 1 for 2 nodes"),
        ({"nodes": 2, "nics": 1}, "nic: expected the GB/s of a NIC"),
        ({"cpu": "imd"}, "cpu: expected one of intel, .*, got 'imd'; did you mean 'amd'"),
        ({"mesh": ((0, 1),)}, "mesh: expected 8 rows of 8 numbers"),
        ({"switch": True}, "nvlink: expected the GB/s of a GPU's NVLinks"),
        ({"pcie": float("nan")}, "pcie: expected a number of at least 0.1, got nan"),
    ],
)
def test_machines_that_cannot_be(wrong, message):
    with pytest.raises(InputError, match=message):
        Machine(**{"sm": 90, "gpus": 8, **wrong})


def test_what_the_formula_does_not_know():
    with pytest.raises(InputError, match=r"collective: expected one of all_reduce, .*, got 'all_to_all'"):
        predict(H100, "all_to_all", 1)
    with pytest.raises(InputError, match="size: expected a whole number of bytes from 0, got -1"):
        predict(H100, "all_reduce", -1)
    with pytest.raises(InputError, match="machine: expected at least 2 ranks, got 1"):
        predict(Machine(sm=90, gpus=1), "all_reduce", 1)


def test_nothing_is_loaded_before_it_is_used():
    code = "import sys, collsim.nccl; print([name for name in sys.modules if name.startswith('collsim.nccl.')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
