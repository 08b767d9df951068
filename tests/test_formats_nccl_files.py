"""Topologies of NCCL: partial files, files that are refused, and files that are damaged."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import collsim
from collsim.errors import InputError, TopologyError
from collsim.formats import read_topology
from collsim.formats.nccl import parse_nccl, read_nccl
from collsim.formats.source import Source
from collsim.formats.xmltree import MAX_DEPTH
from collsim.topology import load_topology, save_topology
from collsim.topology.graph import Topology
from tests.nccl_texts import GEN3, GEN5, cloud, cpu, dgx, gpu, mesh, net, nic, nvlinks, pci, rate, rccl, system, way

SAMPLES = Path(__file__).parents[2] / "shared" / "samples"
needs_samples = pytest.mark.skipif(not SAMPLES.exists(), reason="no samples here")


# Partial files


def test_a_partial_file_and_the_name_of_the_gpu() -> None:
    topology = parse_nccl(system(cloud(8)), gpu="a100", nodes=2)
    assert topology.n_ranks == 16
    assert rate(topology, "node[0].gpu[7]", "node[0].nvswitch") == [240]
    assert way(topology, 0, 1) == ["node[0].gpu[0]", "node[0].nvswitch", "node[0].gpu[1]"]  # not over PCIe
    assert way(topology, 2, 8)[2] == "node[0].nic.0000:10:1b.0"
    assert rate(topology, "node[0].nic.0000:10:1b.0", "network") == [12]
    for words in (
        "8 devices of class 0x03 are taken for A100",
        "all 12 of each A100 are taken to go to NVSwitches",
        "Adapters without a speed in the file (4) have that of their slot",
    ):
        assert words in topology.description


def test_partial_hosts_have_an_nvswitch_each() -> None:
    two = [cloud().replace("<cpu", f"<cpu host_hash='0x{h}'") for h in (1, 2)]
    topology = parse_nccl(system(*two), gpu="h100")
    assert way(topology, 0, 3) == ["node[0].gpu[0]", "node[0].nvswitch", "node[0].gpu[3]"]
    assert "network" in way(topology, 0, 4)


def test_what_the_name_of_the_gpu_does_not_tell() -> None:
    assert rate(parse_nccl(system(cloud(16)), gpu="v100"), "gpu[0]", "nvswitch") == [120]  # DGX-2
    for name in ("t4", "l40s", "rtx3090"):
        assert "nvswitch" not in parse_nccl(system(cloud()), gpu=name).nodes
    bridges = parse_nccl(system(cloud()), gpu="rtx3090").description
    assert "none are assumed: a RTX3090 has them only where bridges join two" in bridges
    whole = system(dgx())
    assert parse_nccl(whole, gpu="H200") == parse_nccl(whole)  # nothing to fill
    bare = "".join(f"<pci busid='0000:{i}7:00.0' class='0x030200' {GEN5}/>" for i in range(2))
    assert (
        "2 devices of class 0x03 without <gpu> are left out"
        in parse_nccl(system(cpu(gpu("0000:01:00.0", 0), bare))).description
    )


def test_what_was_read_can_be_written_as_a_topology_file(tmp_path: Path) -> None:
    path = tmp_path / "machine.yaml"
    for topology in (parse_nccl(system(mesh((0, 1, 2), (1, 2, 1)))), parse_nccl(rccl()), parse_nccl(system(dgx()))):
        save_topology(topology, path)
        assert load_topology(path) == topology
    copies = parse_nccl(system(dgx()), nodes=50)
    save_topology(copies, path)
    again = load_topology(path)
    assert again == copies
    assert again.structure == copies.structure
    text = path.read_text()
    assert '- {between: ["gpu[0-7]", nvswitch], bandwidth: 370.8GB/s, latency: 300ns, kind: nvlink}' in text
    assert len(text.splitlines()) < 80  # one copy is written, not fifty


# Samples of the real tools


@needs_samples
def test_a_real_h100() -> None:
    topology = read_nccl(SAMPLES / "nccl_topo_h100.xml")
    assert topology.n_ranks == 8
    assert topology.kinds.count("nic") == 16
    assert "nvswitch" in topology.nodes
    assert [rate(topology, f"gpu[{i}]", "nvswitch") for i in range(8)] == [[18 * 20.6]] * 8
    four = read_topology(SAMPLES / "nccl_topo_h100.xml", nodes=4)
    for rank in range(8):  # the card below the same switch as the GPU, on both sides
        path = way(four, rank, 8 + rank)
        assert len(path) == 9
        assert [node[8:] for node in path[:4]] == [node[8:] for node in path[:4:-1]]
    assert rate(four, "node[3].nic.mlx5_0", "network") == [22.5]
    assert way(four, 0, 8, 0)[3] != way(four, 0, 8, 1)[3]  # channels take both ports


@needs_samples
def test_a_real_dgx_a100() -> None:
    topology = read_nccl(SAMPLES / "nccl_topo_dgxa100.xml", nodes=2)
    assert topology.n_ranks == 16
    assert topology.kinds.count("nic") == 24
    assert topology.kinds.count("host") == 12
    assert rate(topology, "node[0].gpu[0]", "node[0].nvswitch") == [240]
    assert rate(topology, "node[1].nic.mlx5_9", "network") == [25]
    assert rate(topology, "node[1].nic.mlx5_11", "network") == [12.5]
    assert rate(topology, "node[0].cpu[3]", "node[0].cpu[1]") == [16]
    used = {way(topology, rank, rank ^ 8)[3] for rank in range(16)}
    assert len(used) == 16  # each GPU an adapter of its own, of the two below its switch
    assert all(path[2] == "node[0].pci.0000:01:00.0" for path in (way(topology, 0, 8), way(topology, 1, 9)))


@needs_samples
def test_a_real_p4d() -> None:
    path = SAMPLES / "nccl_topo_p4d.xml"
    with pytest.raises(TopologyError, match=r"p4d.xml:17:9: .*got 8 bare <pci>.*4 adapters.*--gpu, such as a100"):
        read_nccl(path)
    topology = read_nccl(path, gpu="a100")
    assert topology.n_ranks == 8
    assert topology.kinds.count("nic") == 4
    assert rate(topology, "cpu[0]", "cpu[1]") == [10]
    result = collsim.run("all_reduce", topology, size="1GiB", algorithm="ring")
    assert result.busbw == pytest.approx(240e9, rel=0.01)


# Files that are refused


def refusal(source: Source, **options: object) -> str:
    with pytest.raises(TopologyError) as caught:
        parse_nccl(source, **options)  # type: ignore[arg-type]
    assert caught.value.line is not None
    return str(caught.value)


def test_bare_gpus_of_amd_are_not_taken_for_others() -> None:
    amd = '<pci busid="%d" class="0x120000" vendor="0x1002"/>'
    bare = f'<cpu numaid="0">{amd % 1}{amd % 2}</cpu>'
    assert "expected GPUs as RCCL dumps them" in refusal(system(bare))
    assert "expected a GPU of NVIDIA, as the a100 that was given, got one of AMD" in refusal(system(bare), gpu="a100")


def test_a_full_dump_without_nvlinks_gets_none() -> None:
    pcie = cpu(gpu("0000:01:00.0", 0, ""), gpu("0000:11:00.0", 1, ""))
    assert parse_nccl(system(pcie), gpu="h100") == parse_nccl(system(pcie))
    assert "nvswitch" not in parse_nccl(system(pcie), gpu="h100").nodes


def test_the_form_of_a_gpu_decides_about_nvswitch() -> None:
    assert "nvswitch" in parse_nccl(system(cloud()), gpu="h100").nodes
    for form in ("H100 PCIe", "V100-PCIE-16GB"):
        assert "nvswitch" not in parse_nccl(system(cloud()), gpu=form).nodes


def test_a_partial_file_says_what_is_missing_and_what_to_give() -> None:
    assert refusal(system(cloud())) == (
        "machine.xml:3:80: pci: expected GPUs as NCCL dumps them (<gpu> with sm, rank and <nvlink>), got 4 bare <pci> "
        "of class 0x03: their compute capability, order and NVLinks are missing, and the speed of 2 adapters; name the "
        "GPU: gpu=, or collsim convert ... --gpu, such as a100"
    )
    assert "--gpu, such as h100" in refusal(system(cloud(more='device="0x2330"')))
    assert "expected the NVLinks of 8 V100, got none" in refusal(system(cloud(8)), gpu="v100")
    no_class = cpu(f'<pci busid="0000:1b:00.0" {GEN3}/>')
    assert "2 devices say no class" in refusal(
        system(no_class, no_class.replace('"0"', '"1"').replace("1b", "1c")), gpu="a10g"
    )


def test_a_gpu_that_is_not_the_one_of_the_file() -> None:
    message = "machine.xml:3:177: gpu.sm: expected sm 80, that of the a100 that was given, got sm 90"
    assert message in refusal(system(dgx()), gpu="a100")
    assert "got gcn 'gfx942'" in refusal(rccl(), gpu="h100")
    with pytest.raises(InputError, match="did you mean 'h100'"):
        parse_nccl(system(dgx()), gpu="h10")


@pytest.mark.parametrize("nodes", [0, -1, True, 2.0, "2", 10**30, None])
def test_copies_are_a_whole_number(nodes: object) -> None:
    with pytest.raises(InputError, match=r"nodes: expected a whole number from 1 to 100,000, got"):
        parse_nccl(system(dgx()), nodes=nodes)  # type: ignore[arg-type]


def test_copies_that_cannot_be() -> None:
    two = system(dgx("0x1"), dgx("0x2", first=8))
    assert "expected one host to make 3 copies of, got 2 by their host_hash" in refusal(two, nodes=3)
    alone = system(mesh((0, 1, 1)))
    assert "expected a network adapter (<nic> with <net>) to join the host to others, got none" in refusal(
        alone, nodes=2
    )
    assert "expected at most 2,000,000 nodes in all" in refusal(system(dgx()), nodes=100_000)


ONE = gpu("0000:01:00.0", 0)
TWO = gpu("0000:11:00.0", 1)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Source("x.xml", "<graphs/>"), "expected <system>, got <graphs>; that is the rings that NCCL chose"),
        (Source("x.xml", "<sys/>"), "expected <system>, got <sys>"),
        (system(cpu(ONE), version=3), "system.version: expected version 1 or 2, got '3'"),
        (system(), "expected <cpu> elements, got none"),
        (system(ONE), "expected no <pci> in <system>"),
        (system(cpu()), "expected GPUs, got none"),
        (system(cpu(ONE), cpu(TWO)), "cpu.numaid: expected each NUMA node of a host once, got 0 again"),
        (system(cpu(ONE, host="7g")), "cpu.host_hash: expected a whole number"),
        (system(cpu(ONE, ONE)), "pci: expected each address once in a host, got 0000:01:00.0 again (first in line 3)"),
        (system(cpu(gpu("1:zz", 0))), "pci.busid: expected a bus address such as 0000:0d:00.0, got '1:zz'"),
        (system(cpu("<pci/>")), "pci: expected an attribute 'busid', got none"),
        (
            system(cpu(gpu("0000:01:00.0", 0, link='link_width="33"'))),
            "pci.link_width: expected up to 32 lanes, got 33",
        ),
        (system(cpu(gpu("0000:01:00.0", 0, link='link_width="x16"'))), "pci.link_width: expected a whole number"),
        (system(cpu(ONE.replace("<gpu", "<gpu/><gpu", 1))), "expected one <gpu> in a <pci>, got another"),
        (system(cpu(pci("0000:01:00.0", TWO, kind="0x030200"))), "expected nothing else below a device, got <pci>"),
        (system(cpu("<gpu/>")), "expected no <gpu> in <cpu>"),
        (system(cpu(ONE, gpu("0000:11:00.0", 0))), "gpu.rank: expected each rank once in a host, got 0 again"),
        (system(cpu(ONE, nic("0000:21:00.0", net("a"), net("a")))), "net.name: expected each adapter once in a host"),
        (system(cpu(ONE, nic("0000:21:00.0", net("a" * 121)))), "net.name: expected a printable name of up to 120"),
        (
            system(cpu(ONE, nic("0000:21:00.0", net("a").replace("0.000000", "nan")))),
            "net.latency: expected microseconds",
        ),
        (
            system(cpu(ONE, nic("0000:21:00.0", net("a").replace("400000", "4e5")))),
            "net.speed: expected a whole number",
        ),
        (system(cpu(gpu("0000:01:00.0", 0, '<c2c bw="1"/>'))), "c2c: expected an attribute 'count', got none"),
        (
            system(cpu(gpu("0000:01:00.0", 0, nvlinks(("0000:11:00.0", 2))), TWO)),
            "nvlink.count: expected as many links to 0000:11:00.0 as it lists back, got 2 here and 0 in line 4",
        ),
        (
            system(cpu(gpu("0000:01:00.0", 0, nvlinks(("0000:01:00.0", 2))))),
            "nvlink.target: expected links to another GPU, got to itself",
        ),
        (
            system(cpu(gpu("0000:01:00.0", 0, nvlinks(("0000:11:00.0", 2), kind="")))),
            "nvlink.target: expected the address of a GPU, or a tclass",
        ),
        (
            system(cpu(gpu("0000:01:00.0", 0, nvlinks(("f", 0), kind="0x068000")))),
            "nvlink.count: expected a whole number",
        ),
        (
            system(cpu(gpu("0000:01:00.0", 0, nvlinks(("", 1), kind="0x068000")).replace('sm="90"', ""))),
            "gpu: expected an attribute 'sm', by which the rate of NVLinks is known",
        ),
        (
            system(cpu(gpu("0000:01:00.0", 0, '<c2c bw="10000000" count="600"/>' * 2))),
            "c2c.count: expected at most 1,024 links of a GPU, got 1,200",
        ),
        (rccl(gcn=""), "gpu: expected an attribute 'gcn' such as gfx942"),
        (
            system(cpu(*(gpu(f"{i:04x}:01:00.0", i) for i in range(577)))),
            "expected at most 576 of a kind in a host, as NCCL does, got more",
        ),
    ],
)
def test_files_that_are_refused(source: Source, message: str) -> None:
    assert message in refusal(source)


def test_entities_and_deep_files_are_refused() -> None:
    bomb = Source("b.xml", '<!DOCTYPE s [<!ENTITY a "aaaa">]>\n<system version="1">&a;</system>')
    assert "got an entity declaration" in refusal(bomb)
    inner = ONE
    for i in range(MAX_DEPTH):
        inner = pci(f"{i:04x}:02:00.0", inner)
    assert f"expected at most {MAX_DEPTH} levels" in refusal(system(cpu(inner)))


# Damaged files

TEXTS = [
    system(dgx("0x1", gpus=2), dgx("0x2", gpus=2, first=2)).text,
    system(mesh((0, 1, 2), (1, 2, 1)), cpu(nic("0000:41:00.0", net("a"), net("b")), numa=1)).text,
    system(cloud()).text,
    rccl(3).text,
]
NUMBERS = ["0", "-1", "1e400", "1" * 31, "nan", "inf", "0x", "\u0663", "", "a" * 2000, "18446744073709551616"]


def damaged(text: str, chance: random.Random) -> str:
    """Return a text with a piece cut, doubled or swapped, or a value replaced."""
    start, stop = sorted(chance.randrange(len(text) + 1) for _ in range(2))
    piece, way = text[start:stop], chance.randrange(6)
    if way == 0:
        return text[:start]
    if way == 1:
        return text[:start] + text[stop:]
    if way == 2:
        return text[:stop] + piece + text[stop:]
    if way == 3:
        return text[:start] + chr(chance.choice([0, 9, 34, 38, 60, 62, 228, 0x1F600])) + text[start + 1 :]
    lines = text.split("\n")
    if way == 4:
        chance.shuffle(lines)
        return "\n".join(lines)
    if text.count('"') < 2:
        return text * 2
    places = [i for i, letter in enumerate(text) if letter == '"']
    opening = chance.randrange(len(places) // 2) * 2
    return text[: places[opening] + 1] + chance.choice(NUMBERS) + text[places[opening + 1] :]


def read(text: str, gpu: str | None, nodes: int) -> Topology | None:
    """Read what may be damaged: a topology that can be used, or an error with its place, soon."""
    topology, refused = None, None
    try:
        topology = parse_nccl(Source("damaged.xml", text), gpu=gpu, nodes=nodes)
    except TopologyError as error:
        refused = error
    if topology is not None:
        assert topology.n_ranks >= 1
        for dst in range(1, min(topology.n_ranks, 5)):
            topology.route(0, dst)
    else:
        assert refused is not None
        assert refused.line is not None, str(refused)
        assert "\n" not in str(refused)
        assert len(str(refused)) < 600
    return topology


def test_damaged_files_are_read_or_refused_with_their_place() -> None:
    chance = random.Random(8)
    outcomes = []
    for _ in range(600):
        text = chance.choice(TEXTS)
        for _ in range(chance.choice([1, 1, 1, 2, 4])):
            text = damaged(text, chance)
        outcomes.append(read(text, chance.choice([None, None, "a100", "v100"]), chance.choice([1, 1, 2])) is None)
    assert any(outcomes)
    assert not all(outcomes)


@given(st.text(max_size=200), st.sampled_from([lambda t: t, lambda t: f"<system>{t}</system>"]))
def test_any_text_is_read_or_refused(text: str, wrap: Callable[[str], str]) -> None:
    assert read(wrap(text), None, 1) is None
