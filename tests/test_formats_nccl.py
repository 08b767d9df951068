"""Topologies of NCCL: the machine that a file describes, its rates and its routes."""

from __future__ import annotations

import pytest

import collsim
from collsim.formats.nccl import parse_nccl
from collsim.formats.source import Source
from collsim.topology import load_topology
from collsim.topology.graph import Topology
from tests.nccl_texts import AMD, GEN4, INTEL, cpu, dgx, gpu, mesh, net, nic, nvlinks, pci, rate, rccl, system, way

GB = 10**9


def busbw(topology: Topology, size: str = "1GiB") -> float:
    return collsim.run("all_reduce", topology, size=size, algorithm="ring").busbw / GB


# NVSwitch


def test_a_host_with_nvswitch() -> None:
    topology = parse_nccl(system(dgx()))
    assert topology.name == "machine"
    assert topology.ranks == tuple(f"gpu[{i}]" for i in range(8))
    assert rate(topology, "gpu[3]", "nvswitch") == [18 * 20.6]
    assert rate(topology, "gpu[3]", "pci.0000:30:00.0") == [48]
    assert rate(topology, "cpu[0]", "cpu[1]") == [22]
    assert topology.link_kind(topology.links_between("cpu[0]", "cpu[1]")[0]) == "upi"
    assert way(topology, 0, 7) == ["gpu[0]", "nvswitch", "gpu[7]"]
    switch = topology.node_index("nvswitch")
    assert topology.reduces[switch]
    assert topology.multicasts[switch]
    assert not topology.forwards[topology.rank_nodes].any()
    assert [kind for kind in topology.kinds if kind == "nic"] == ["nic"] * 8
    assert "network" not in topology.nodes
    assert topology.description.startswith("8 GPUs (sm 90) and 8 network ports. Rates are those that NCCL reckons with")
    assert "18 NVLinks of a GPU go to NVSwitch, as one link of 370.8GB/s" in topology.description
    assert "No network is behind the adapters" in topology.description
    assert "machine.xml" in topology.source


def test_nvswitches_before_hopper_do_not_reduce() -> None:
    seen = nvlinks(("0000:c4:00.0", 18), kind="0x068000")
    mixed = parse_nccl(system(cpu(gpu("0000:01:00.0", 0, seen), gpu("0000:11:00.0", 1, seen, sm=80))))
    assert rate(mixed, "gpu[1]", "nvswitch") == [360]
    assert not mixed.reduces.any()
    links = nvlinks(("0000:c4:00.0", 6), ("0000:c5:00.0", 6), kind="0x068000")
    topology = parse_nccl(system(cpu(*(gpu(f"0000:{i}1:00.0", i, links, sm=80) for i in range(2)))))
    assert rate(topology, "gpu[0]", "nvswitch") == [240]
    assert not topology.reduces.any()
    assert not topology.multicasts.any()


def test_a_ring_is_as_much_slower_than_the_rated_machine_as_nccl_reckons() -> None:
    ours, rated = busbw(parse_nccl(system(dgx()))), busbw(load_topology("dgx-h100"))
    assert ours / rated == pytest.approx(20.6 / 25, rel=1e-3)


# Several hosts


def test_copies_on_one_network() -> None:
    topology = parse_nccl(system(dgx()), nodes=3)
    assert topology.n_ranks == 24
    assert topology.ranks[9] == "node[1].gpu[1]"
    assert way(topology, 0, 1) == ["node[0].gpu[0]", "node[0].nvswitch", "node[0].gpu[1]"]
    for src, dst in ((0, 8), (3, 20), (7, 16)):  # over the adapter next to each
        a, b = (f"node[{rank // 8}]" for rank in (src, dst))
        assert way(topology, src, dst) == [
            f"{a}.gpu[{src % 8}]",
            f"{a}.pci.0000:{src % 8}0:00.0",
            f"{a}.nic.mlx5_{src % 8}",
            "network",
            f"{b}.nic.mlx5_{dst % 8}",
            f"{b}.pci.0000:{dst % 8}0:00.0",
            f"{b}.gpu[{dst % 8}]",
        ]
    links = topology.route(0, 8)
    assert topology.link_latency[list(links)].sum() == 2_700_000  # NCCL's network hop
    assert rate(topology, "node[2].nic.mlx5_5", "network") == [50]
    assert topology.link_kind(topology.links_between("node[2].nic.mlx5_5", "network")[0]) == "infiniband"
    assert topology.ring_order()[:9] == tuple(range(9))
    assert "The host is there 3 times" in topology.description
    assert "one switch" in topology.description
    assert busbw(topology) == pytest.approx(48, rel=0.01)  # the PCIe of an adapter, below its 50 GB/s


def test_hosts_by_their_hash_and_ranks_over_them() -> None:
    topology = parse_nccl(system(dgx("0xb", first=8), dgx("0xa")))
    assert topology.ranks == tuple(f"node[{h}].gpu[{g}]" for h in (0, 1) for g in range(8))
    assert way(topology, 0, 8)[3] == "network"
    # each sees NVSwitches of its own
    assert way(topology, 8, 15) == ["node[1].gpu[0]", "node[1].nvswitch", "node[1].gpu[7]"]


def test_ranks_may_alternate_between_hosts() -> None:
    def host(name: str, ranks: tuple[int, int]) -> str:
        return cpu(
            *(gpu(f"0000:{i}1:00.0", rank) for i, rank in enumerate(ranks)), nic("0000:51:00.0", net("a")), host=name
        )

    topology = parse_nccl(system(host("0x1", (0, 2)), host("0x2", (1, 3))))
    assert topology.ranks == ("node[0].gpu[0]", "node[1].gpu[0]", "node[0].gpu[1]", "node[1].gpu[1]")
    topology = parse_nccl(system(host("0x1", (0, 1)), host("0x2", (0, 1))))
    assert topology.ranks == ("node[0].gpu[0]", "node[0].gpu[1]", "node[1].gpu[0]", "node[1].gpu[1]")
    assert "Hosts number their ranks each for itself" in topology.description


def test_multi_node_nvlink() -> None:
    """NVSwitches that no host sees join all of them, without any adapter."""
    hidden = ("fffffff:ffff:ff",)
    one, two = dgx("0x1", switches=hidden), dgx("0x2", first=8, switches=hidden)
    topology = parse_nccl(system(one, two))
    assert way(topology, 0, 15) == ["node[0].gpu[0]", "nvswitch", "node[1].gpu[7]"]
    assert topology.reduces[topology.node_index("nvswitch")]
    assert "join the GPUs of all of them (multi-node NVLink)" in topology.description
    assert parse_nccl(system(one)).nodes[8] == "nvswitch"  # of one host it is its own
    some = [dgx(f"0x{h}", first=8 * h, switches=("fffffff:ffff:ff", "0000:1a:00.0")) for h in (0, 1)]
    assert "node[1].nvswitch" in parse_nccl(system(*some)).nodes  # one that is seen is enough
    links = nvlinks(("fffffff:ffff:ff", 18), kind="0x068000")
    bare = [cpu(gpu("0000:01:00.0", h, links), host=f"0x{h}") for h in (0, 1)]
    assert way(parse_nccl(system(*bare)), 0, 1) == ["node[0].gpu[0]", "nvswitch", "node[1].gpu[0]"]


def test_a_ring_of_hosts_without_nvlink_stays_in_the_host() -> None:
    """Where PCIe trees are deep, the way over two adapters would have fewer hops."""

    def deep(i: int) -> str:
        inner = (gpu(f"0000:{i}2:00.0", i, sm=89), nic(f"0000:{i}3:00.0", net(f"mlx5_{i}", more='coll="1"')))
        return pci(f"0000:{i}0:00.0", pci(f"0000:{i}1:00.0", *inner))

    text = system(cpu(deep(0), deep(1)), cpu(deep(2), deep(3), numa=1))
    topology = parse_nccl(text, nodes=2)
    for src, dst in ((0, 3), (7, 4)):
        assert len(way(topology, src, dst)) == 8
        assert way(topology, src, dst)[0] == f"node[{src // 4}].gpu[{src % 4}]"
        assert "network" not in way(topology, src, dst)
    assert "network" in way(topology, 0, 4)
    assert topology.reduces[topology.node_index("network")]  # all ports say coll
    one = parse_nccl(Source("one.xml", text.text.replace('coll="1"', "", 1)), nodes=2)
    assert not one.reduces.any()


# Direct links


def test_direct_nvlinks_are_one_link_where_pairs_are_alike_and_counted_once() -> None:
    topology = parse_nccl(system(mesh((0, 1, 2), (0, 2, 2), (0, 3, 2), (1, 2, 2), (1, 3, 2), (2, 3, 2))))
    assert rate(topology, "gpu[0]", "gpu[1]") == [40] == rate(topology, "gpu[1]", "gpu[0]")
    assert "those of a pair as one" in topology.description
    unequal = parse_nccl(system(mesh((0, 1, 1), (0, 2, 2), (1, 2, 2))))
    assert rate(unequal, "gpu[0]", "gpu[2]") == [20, 20]
    assert "parallel where a pair has several (channels use them)" in unequal.description
    assert not topology.forwards[topology.rank_nodes].any()
    assert topology.link_latency[topology.links_between("gpu[0]", "gpu[1]")[0]] == 600_000
    newer = gpu("0000:01:00.0", 0, nvlinks(("0000:11:00.0", 1)))
    older = gpu("0000:11:00.0", 1, nvlinks(("0000:01:00.0", 1)), sm=80)
    assert rate(parse_nccl(system(cpu(newer, older))), "gpu[0]", "gpu[1]") == [20]  # that of the slower


def test_gpus_forward_only_between_those_that_are_not_joined() -> None:
    topology = parse_nccl(system(mesh((0, 1, 2), (1, 2, 1), (2, 3, 2), (0, 3, 1))))  # a square
    assert topology.forwards[topology.rank_nodes].all()
    assert way(topology, 0, 2) in (["gpu[0]", "gpu[1]", "gpu[2]"], ["gpu[0]", "gpu[3]", "gpu[2]"])
    bridges = parse_nccl(system(mesh((0, 1, 4), (2, 3, 4), sm=80)))
    assert not bridges.forwards[bridges.rank_nodes].any()
    assert way(bridges, 0, 2) == ["gpu[0]", "cpu[0]", "gpu[2]"]


def test_the_hybrid_cube_mesh_of_dgx_1() -> None:
    ones = ((0, 1), (0, 2), (1, 3), (4, 5), (4, 6), (5, 7), (2, 6), (3, 7))
    twos = ((0, 3), (1, 2), (2, 3), (4, 7), (5, 6), (6, 7), (0, 4), (1, 5))
    pairs = [(a, b, 1) for a, b in ones] + [(a, b, 2) for a, b in twos]
    topology, shipped = parse_nccl(system(mesh(*pairs, n=8))), load_topology("dgx-1-v100")
    for a in range(8):
        for b in range(8):
            names = (f"gpu[{a}]", f"gpu[{b}]")
            if a != b:
                assert len(topology.links_between(*names)) == len(shipped.links_between(*names))
                assert all(node.startswith("gpu") for node in way(topology, a, b))
    assert topology.ring_order() == shipped.ring_order()
    assert busbw(topology, "256MiB") / busbw(shipped, "256MiB") == pytest.approx(20 / 25, rel=0.01)


def test_links_to_the_cpu() -> None:
    power = 'arch="ppc64" vendor="IBM"'
    links = nvlinks(("0000:21:00.0", 3), kind="0x068001")
    topology = parse_nccl(system(cpu(gpu("0000:01:00.0", 0, links, sm=70), make=power), cpu(numa=8, make=power)))
    assert rate(topology, "gpu[0]", "cpu[0]") == [48, 60]
    assert rate(topology, "cpu[8]", "cpu[0]") == [32]
    topology = parse_nccl(system(cpu(gpu("0000:01:00.0", 0, '<c2c bw="44712" count="10"/>'), make='arch="arm64"')))
    assert rate(topology, "gpu[0]", "cpu[0]") == [48, 447.12]
    assert topology.link_kind(topology.links_between("gpu[0]", "cpu[0]")[1]) == "c2c"


@pytest.mark.parametrize(
    ("gcn", "gbs"), [("gfx942", 48), ("942", 48), ("gfx90a", 36), ("910", 36), ("gfx906", 24), ("gfx950:sramecc+", 48)]
)
def test_xgmi(gcn: str, gbs: int) -> None:
    topology = parse_nccl(rccl(gcn=gcn))
    assert rate(topology, "gpu[0]", "gpu[3]") == [gbs]
    link = topology.links_between("gpu[0]", "gpu[3]")[0]
    assert (topology.link_kind(link), topology.link_latency[link]) == ("xgmi", 800_000)
    assert not topology.forwards[topology.rank_nodes].any()


# PCI, adapters, CPUs


@pytest.mark.parametrize(
    ("link", "gbs"),
    [
        ('link_speed="8 GT/s" link_width="16"', 12),
        ('link_speed="8.0 GT/s PCIe" link_width="8"', 6),
        ('link_speed="2.5 GT/s PCIe" link_width="1"', 0.1875),
        ('link_speed="32 GT/s PCIe/s" link_width="16"', 48),
        ('link_speed="64.0 GT/s PCIe" link_width="16"', 96),
        ('link_speed="Unknown speed" link_width="255"', 12),
        ('link_speed="" link_width=""', 12),
        ('link_speed="16 GT/s" link_width="0"', 24),
        ("", 12),
    ],
)
def test_rates_of_pcie(link: str, gbs: float) -> None:
    topology = parse_nccl(system(cpu(gpu("0000:01:00.0", 0, link=link))))
    assert rate(topology, "gpu[0]", "cpu[0]") == [gbs]
    unknown = "PCI links without a known speed (1) have 8 GT/s" in topology.description
    assert unknown == ("GT/s" not in link)
    filled = parse_nccl(system(cpu(gpu("0000:01:00.0", 0, link=link))), gpu="h100")
    if unknown:
        assert rate(filled, "gpu[0]", "cpu[0]") == [48]
    else:
        assert filled == topology


def test_two_levels_of_a_broadcom_switch_are_one() -> None:
    outer = 'vendor="0x1000" device="0xc030" subsystem_vendor="0x1000" subsystem_device="0x0072"'
    inner = outer.replace("0x0072", "0x1003")
    slow = 'link_speed="5.0 GT/s PCIe" link_width="16"'
    gpus = pci("0000:0d:00.0", gpu("0000:0f:00.0", 0), more=inner)
    nics = pci("0000:0a:00.0", nic("0000:0c:00.0", net("mlx5_0")), more=inner)
    topology = parse_nccl(system(cpu(pci("0000:08:00.0", gpus, nics, more=outer, link=slow))))
    assert [node for node in topology.nodes if node.startswith("pci")] == ["pci.0000:08:00.0"]
    assert rate(topology, "gpu[0]", "pci.0000:08:00.0") == [48] == rate(topology, "nic.mlx5_0", "pci.0000:08:00.0")
    assert rate(topology, "pci.0000:08:00.0", "cpu[0]") == [6]
    beside = pci("0000:0b:00.0", '<pcilink target="0000:10:00.0"/>', pci("0000:0c:00.0"), more=inner)
    far = pci("0000:10:00.0", gpu("0000:11:00.0", 1))
    linked = parse_nccl(system(cpu(pci("0000:08:00.0", gpus, beside, more=outer)), cpu(far, numa=1)))
    assert way(linked, 0, 1) == ["gpu[0]", "pci.0000:08:00.0", "pci.0000:10:00.0", "gpu[1]"]
    other = parse_nccl(system(cpu(pci("0000:08:00.0", gpus, nics, more=outer.replace("0xc030", "0xc031")))))
    assert len([node for node in other.nodes if node.startswith("pci")]) == 3


def test_ports_of_a_card_share_its_slot() -> None:
    ports = (net("mlx5_0", 200_000), net("mlx5_0", 100_000, 'port="2"'))
    link = 'link_speed="16 GT/s" link_width="8"'
    topology = parse_nccl(system(cpu(gpu("0000:01:00.0", 0), nic("0000:61:00.0", *ports, link=link))), nodes=2)
    names = [node for node in topology.nodes if node.startswith("node[0].nic")]
    assert names == ["node[0].nic.mlx5_0:1", "node[0].nic.mlx5_0:2"]  # NCCL calls both alike
    assert rate(topology, "node[0].pci.0000:61:00.0", "node[0].cpu[0]") == [12]
    assert [rate(topology, name, "network") for name in names] == [[25], [12.5]]
    assert way(topology, 0, 1, 0) != way(topology, 0, 1, 1)
    functions = (nic("0000:61:00.0", net("a")), nic("0000:61:00.1", net("b")))
    topology = parse_nccl(system(cpu(gpu("0000:01:00.0", 0), *functions)))
    assert rate(topology, "pci.0000:61:00.0", "cpu[0]") == [48]
    assert "pci.0000:61:00.1" not in topology.nodes
    assert {"nic.a", "nic.b"} < set(topology.nodes)


def test_adapters_without_gpu_direct_are_reached_through_the_cpu() -> None:
    box = pci("0000:00:00.0", gpu("0000:01:00.0", 0), nic("0000:02:00.0", net("a", more='gdr="0"')), link=GEN4)
    topology = parse_nccl(system(cpu(box)), nodes=2)
    assert way(topology, 0, 1)[:4] == ["node[0].gpu[0]", "node[0].pci.0000:00:00.0", "node[0].cpu[0]", "node[0].nic.a"]
    assert rate(topology, "node[0].nic.a", "node[0].cpu[0]") == [24]
    assert "Ports without GPU Direct RDMA (1) are joined to the CPU" in topology.description
    alone = pci("0000:10:00.0", nic("0000:12:00.0", net("a", more='gdr="0"'), link=GEN4))
    assert "pci.0000:10:00.0" not in parse_nccl(system(cpu(gpu("0000:01:00.0", 0), alone))).nodes
    blind = pci("0000:00:00.0", gpu("0000:01:00.0", 0, more='gdr="0"'), nic("0000:02:00.0", net("a")))
    assert len(way(parse_nccl(system(cpu(blind)), nodes=2), 0, 1)) == 9


def test_adapters_of_odd_speeds_and_places() -> None:
    nets = (net("slow", 0), net("unknown", -1, 'port="2"'))
    virtual = '<nic><net name="eth0" dev="0" speed="25000"/></nic>'
    far = nic("0000:62:00.0", net("far", 100_000, 'latency2="1"').replace("0.000000", "3.000000"), kind="0x020000")
    topology = parse_nccl(system(cpu(gpu("0000:01:00.0", 0), nic("0000:61:00.0", *nets), virtual, far)), nodes=2)
    for name, gbs in (("slow", 1.25), ("unknown", 1.25), ("eth0", 3.125), ("far", 12.5)):
        assert rate(topology, f"node[0].nic.{name}", "network") == [gbs]
    link = topology.links_between("node[1].nic.far", "network")[0]
    assert topology.link_latency[link] == 850_000 + 1_500_000  # half of it at each end
    assert topology.link_kind(link) == "ethernet"
    assert rate(topology, "node[0].nic.eth0", "node[0].cpu[0]") == [5000]


def test_all_cpus_of_a_host_are_joined() -> None:
    old = INTEL.replace("143", "85")
    cpus = [cpu(gpu(f"0000:{i}1:00.0", i), numa=i, make=old if i else AMD) for i in range(3)]
    topology = parse_nccl(system(*cpus))
    assert rate(topology, "cpu[0]", "cpu[2]") == [16]
    assert rate(topology, "cpu[2]", "cpu[0]") == [10]
    assert topology.link_latency[topology.links_between("cpu[2]", "cpu[0]")[0]] == 300_000
    assert way(topology, 0, 2) == ["gpu[0]", "cpu[0]", "cpu[2]", "gpu[2]"]
    strange = [cpu(gpu(f"0000:{i}1:00.0", i), numa=i - 1, make="") for i in range(2)]
    topology = parse_nccl(system(*strange))
    assert rate(topology, "cpu.-1", "cpu[0]") == [5000]
    assert "CPUs that NCCL does not know" in topology.description


def test_bridges_joined_beside_the_tree() -> None:
    boxes = [
        pci(f"0000:{i}0:00.0", gpu(f"0000:{i}1:00.0", i), f'<pcilink target="0000:{1 - i}0:00.0"/>') for i in (0, 1)
    ]
    topology = parse_nccl(system(cpu(boxes[0]), cpu(boxes[1], numa=1)))
    assert way(topology, 0, 1) == ["gpu[0]", "pci.0000:00:00.0", "pci.0000:10:00.0", "gpu[1]"]


# Order, what is left out


def test_gpus_that_take_no_part() -> None:
    links = nvlinks(("0000:11:00.0", 1), ("0000:91:00.0", 2))
    boxes = (
        gpu("0000:01:00.0", 9, links),
        gpu("0000:11:00.0", 8, nvlinks(("0000:01:00.0", 1))),
        pci("0000:21:00.0", '<gpu dev="2" sm="90"/>', kind="0x030200"),
        pci("0000:31:00.0", '<gpu dev="3" sm="90" rank="3" keep="0"/>', kind="0x030200"),
        pci("0000:41:00.0", kind="0x030000", more='vendor="0x1a03"'),
        pci("0000:42:00.0", kind="0x060400"),
        pci("0000:43:00.0", kind="0x010802"),
    )
    topology = parse_nccl(system(cpu(*boxes, '<cxl width="1"/>')))
    assert topology.nodes == ("gpu[0]", "gpu[1]", "cpu[0]")
    assert rate(topology, "gpu[0]", "gpu[1]") == [20.6]
    for words in (
        "1 GPU without a rank is left out",
        "2 links of GPUs to others",
        "1 device with keep=0",
        "passed over: cxl",
    ):
        assert words in topology.description


def test_more_that_takes_no_part() -> None:
    adapters = (
        nic("0000:21:00.0", net("a", more='keep="0"')),
        nic("0000:22:00.0", net("b")).replace("<nic", "<nic keep='0'"),
    )
    bare = pci("0000:41:00.0", kind="0x030200", more='keep="0"')
    text = system(cpu(gpu("0000:01:00.0", 0), *adapters, bare, host="0x1"), cpu(host="0x2"))
    topology = parse_nccl(text, gpu="h100")
    assert topology.nodes == ("gpu[0]", "cpu[0]")
    assert "2 devices with keep=0 are left out" in topology.description
    assert "Hosts without GPUs are left out" in topology.description


def test_without_ranks_the_order_is_that_of_dev_or_of_the_file() -> None:
    def host(*devs: str) -> Topology:
        speeds = ("2.5", "5", "8")
        boxes = (
            pci(f"0000:{i}1:00.0", f"<gpu {dev} sm='90'/>", kind="0x030200", link=f'link_speed="{speeds[i]} GT/s"')
            for i, dev in enumerate(devs)
        )
        return parse_nccl(system(cpu(*boxes)))

    assert [rate(host('dev="2"', 'dev="0"', 'dev="1"'), f"gpu[{i}]", "cpu[0]") for i in range(3)] == [[6], [12], [3]]
    assert [rate(host('dev="2"', "", 'dev="1"'), f"gpu[{i}]", "cpu[0]") for i in range(3)] == [[3], [6], [12]]
