"""The shipped topology files: what holds for all, and what is public about the systems that they describe.

Every file of the folder is tested, a new one too. Facts about it are checked once they are written here.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import collsim
from collsim.topology import GENERATORS, Topology, load_topology
from collsim.topology.file import loads
from collsim.topology.schema import arguments

FILES = Path(__file__).parent.parent / "topologies"
NAMES = sorted(file.stem for file in FILES.glob("*.yaml"))
README = (FILES / "README.md").read_text(encoding="utf-8")
GB = 10**9
NS = 10**3


@cache
def shipped(name: str) -> Topology:
    return load_topology(FILES / f"{name}.yaml")


# Name: GPUs, bytes/s that a GPU can send to other GPUs of its node or torus, the most links between two GPUs.
FACTS = {
    "ring8": (8, 50 * GB, 7),
    "line8": (8, 100 * GB, 7),
    "torus-4x4": (16, 200 * GB, 4),
    "dgx-1-v100": (8, 150 * GB, 2),
    "dgx-2": (16, 150 * GB, 3),
    "dgx-a100": (8, 300 * GB, 2),
    "dgx-a100-x2": (16, 300 * GB, 4),
    "dgx-h100": (8, 450 * GB, 2),
    "dgx-h100-x4": (32, 450 * GB, 6),
    "gb200-nvl72": (72, 900 * GB, 2),
    "tpu-v4-4x4x4": (64, 300 * GB, 6),
    "fat-tree-16": (16, 50 * GB, 4),
    "pcie-4gpu": (4, 15_750_000_000, 5),
    "mi300x": (8, 448 * GB, 1),
}


def pairs(topology: Topology, most: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of ranks, or of ``most`` ranks from all over a large machine."""
    few = np.unique(np.linspace(0, topology.n_ranks - 1, min(most, topology.n_ranks)).astype(int))
    src, dst = np.repeat(few, len(few)), np.tile(few, len(few))
    return src[src != dst], dst[src != dst]


def names(topology: Topology, src: int, dst: int) -> list[str]:
    return [topology.link_name(link).split("#")[0] for link in topology.route(src, dst)]


def latency(topology: Topology, src: int, dst: int) -> int:
    return int(topology.link_latency[list(topology.route(src, dst))].sum())


def test_no_facts_are_left_over() -> None:
    assert set(FACTS) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_file_says_what_it_is_and_where_its_figures_come_from(name: str) -> None:
    text = (FILES / f"{name}.yaml").read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=topology.schema.json\n")
    assert "\t" not in text
    topology = shipped(name)
    assert topology.name == name
    assert len(topology.description) > 20
    assert len(topology.source) > 20
    assert {"gpu", "switch", "nic", "host"} >= set(topology.kinds)
    assert (topology.link_latency > 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_every_rank_reaches_every_other(name: str) -> None:
    topology = shipped(name)
    ptr, links = topology.routes(*pairs(topology))
    assert np.diff(ptr).min(initial=1) >= 1
    assert len(links) == ptr[-1]


@pytest.mark.parametrize("name", NAMES)
def test_the_default_ring_is_valid(name: str) -> None:
    topology = shipped(name)
    assert sorted(topology.ring_order()) == list(range(topology.n_ranks))


@pytest.mark.parametrize("name", NAMES)
def test_a_collective_runs_on_it(name: str) -> None:
    topology = shipped(name)
    result = collsim.run("all_reduce", topology, "1MiB", "binomial_tree")
    assert result.transfers == 2 * (topology.n_ranks - 1)
    assert 0 < result.bound <= result.time


# facts


@pytest.mark.parametrize(("name", "ranks", "injection", "diameter"), [(name, *fact) for name, fact in FACTS.items()])
def test_size_injection_and_diameter(name: str, ranks: int, injection: int, diameter: int) -> None:
    topology = shipped(name)
    assert topology.n_ranks == ranks
    assert {topology.kinds[node] for node in topology.rank_nodes} == {"gpu"}
    out: dict[int, int] = defaultdict(int)
    for link in range(topology.n_links):
        if topology.kinds[topology.link_dst[link]] != "nic":
            out[int(topology.link_src[link])] += int(topology.link_bandwidth[link])
    sent = [out[int(node)] for node in topology.rank_nodes]
    assert max(sent) == injection
    assert set(sent) == ({50 * GB, 100 * GB} if name == "line8" else {injection})
    ptr, _ = topology.routes(*pairs(topology))
    assert np.diff(ptr).max() == diameter


@pytest.mark.parametrize("name", FACTS)
def test_full_duplex_but_for_the_ring(name: str) -> None:
    topology = shipped(name)
    there, back = defaultdict(list), defaultdict(list)
    for src, dst, *rest in zip(
        topology.link_src.tolist(),
        topology.link_dst.tolist(),
        topology.link_bandwidth.tolist(),
        topology.link_latency.tolist(),
        strict=True,
    ):
        there[src, dst].append(rest)
        back[dst, src].append(rest)
    assert (there == back) == (name != "ring8")


@pytest.mark.parametrize("name", ["ring8", "torus-4x4", "dgx-1-v100", "tpu-v4-4x4x4", "mi300x"])
def test_the_default_ring_follows_the_links(name: str) -> None:
    topology = shipped(name)
    order = topology.ring_order()
    following = [len(topology.route(a, b)) for a, b in zip(order, (*order[1:], order[0]), strict=True)]
    assert set(following) == {1}


# What nvidia-smi topo -m prints for the GPUs of a DGX-1 V100; SYS is no NVLink.
NVIDIA_SMI = """
 X  NV1 NV1 NV2 NV2 SYS SYS SYS
NV1  X  NV2 NV1 SYS NV2 SYS SYS
NV1 NV2  X  NV2 SYS SYS NV1 SYS
NV2 NV1 NV2  X  SYS SYS SYS NV1
NV2 SYS SYS SYS  X  NV1 NV1 NV2
SYS NV2 SYS SYS NV1  X  NV2 NV1
SYS SYS NV1 SYS NV1 NV2  X  NV2
SYS SYS SYS NV1 NV2 NV1 NV2  X
"""


def test_each_nvlink_of_dgx_1_is_where_it_really_is() -> None:
    topology = shipped("dgx-1-v100")
    for a, row in enumerate(NVIDIA_SMI.strip().splitlines()):
        for b, cell in enumerate(row.split()):
            found = topology.links_between(f"gpu[{a}]", f"gpu[{b}]")
            assert len(found) == {"NV1": 1, "NV2": 2}.get(cell, 0), (a, b)
    assert set(topology.link_bandwidth.tolist()) == {25 * GB}
    order = topology.ring_order()
    widths = [
        len(topology.links_between(f"gpu[{a}]", f"gpu[{b}]"))
        for a, b in zip(order, (*order[1:], order[0]), strict=True)
    ]
    assert widths == [2] * 8  # a ring over double links only, which is the one that NCCL takes


def test_dgx_2_has_the_bisection_of_its_48_links() -> None:
    topology = shipped("dgx-2")
    trunk = list(topology.links_between("nvswitch[0]", "nvswitch[1]"))
    assert topology.link_bandwidth[trunk].sum() == 48 * 25 * GB
    # All GPUs of a board can send to the other board at once without sharing a link.
    assert {topology.route(gpu, gpu + 8)[1] for gpu in range(8)} == set(trunk)


@pytest.mark.parametrize(
    ("name", "src", "dst", "hop"),
    [
        ("dgx-1-v100", 0, 1, 600),
        ("dgx-2", 0, 1, 600),
        ("dgx-a100", 0, 7, 600),
        ("dgx-h100", 0, 7, 600),
        ("gb200-nvl72", 0, 71, 600),
        ("dgx-a100-x2", 0, 15, 2700),
        ("dgx-h100-x4", 0, 1, 600),
        ("dgx-h100-x4", 0, 8, 2700),
        ("dgx-h100-x4", 0, 9, 3300),
        ("pcie-4gpu", 0, 1, 1000),
        ("pcie-4gpu", 0, 2, 2300),
        ("mi300x", 3, 4, 800),
        ("fat-tree-16", 0, 3, 1000),
        ("fat-tree-16", 0, 4, 2000),
    ],
)
def test_the_latency_of_a_hop_is_the_one_that_the_source_names(name: str, src: int, dst: int, hop: int) -> None:
    assert latency(shipped(name), src, dst) == hop * NS


def test_switches_that_reduce() -> None:
    reducing = {name for name in FACTS if shipped(name).reduces.any()}
    assert reducing == {"dgx-h100", "dgx-h100-x4", "gb200-nvl72"}
    for name in reducing:
        topology = shipped(name)
        assert (topology.reduces == topology.multicasts).all()
        assert all("nvswitch" in topology.nodes[node] for node in np.flatnonzero(topology.reduces))


def test_rails_of_the_h100_cluster() -> None:
    topology = shipped("dgx-h100-x4")
    assert topology.structure == {"kind": "modules", "module": "node", "count": 4, "ranks_per_module": 8}
    for rail in range(8):
        assert names(topology, rail, 24 + rail) == [
            f"node[0].gpu[{rail}]->node[0].nic[{rail}]",
            f"node[0].nic[{rail}]->leaf[{rail}]",
            f"leaf[{rail}]->node[3].nic[{rail}]",
            f"node[3].nic[{rail}]->node[3].gpu[{rail}]",
        ]
        leaf = topology.node_index(f"leaf[{rail}]")
        ups = topology.links_between(f"leaf[{rail}]", "spine")
        down = topology.link_bandwidth[topology.link_src == leaf].sum() - topology.link_bandwidth[list(ups)].sum()
        assert topology.link_bandwidth[list(ups)].sum() == down == 4 * 50 * GB
    # GPUs do not forward, so another rail is reached over the spine.
    assert [name.split("->")[1] for name in names(topology, 0, 9)][1:4] == ["leaf[0]", "spine", "leaf[1]"]
    nic = topology.links_between("node[0].nic[0]", "leaf[0]")
    pcie = topology.links_between("node[0].gpu[0]", "node[0].nic[0]")
    assert topology.link_bandwidth[[*nic, *pcie]].tolist() == [50 * GB, 63 * GB]


def test_network_of_the_a100_pair() -> None:
    topology = shipped("dgx-a100-x2")
    nic = topology.links_between("node[1].nic[3]", "leaf")
    pcie = topology.links_between("node[1].gpu[3]", "node[1].nic[3]")
    assert topology.link_bandwidth[[*nic, *pcie]].tolist() == [25 * GB, 31_500_000_000]
    assert topology.kinds.count("nic") == 16


def test_the_fat_tree_is_oversubscribed_two_to_one() -> None:
    topology = shipped("fat-tree-16")
    for number in range(4):
        leaf = topology.node_index(f"leaf{number}")
        rates: dict[str, int] = defaultdict(int)
        for link in np.flatnonzero(topology.link_src == leaf):
            rates[topology.kinds[topology.link_dst[link]]] += int(topology.link_bandwidth[link])
        assert rates == {"gpu": 200 * GB, "switch": 100 * GB}


def test_sockets_of_the_pcie_server() -> None:
    topology = shipped("pcie-4gpu")
    assert names(topology, 0, 1) == ["gpu[0]->pcisw[0]", "pcisw[0]->gpu[1]"]
    assert names(topology, 1, 2)[1:4] == ["pcisw[0]->cpu[0]", "cpu[0]->cpu[1]", "cpu[1]->pcisw[1]"]
    upi = topology.links_between("cpu[0]", "cpu[1]")
    assert topology.link_bandwidth[list(upi)].sum() == 2 * 20_800_000_000


def test_tpu_and_mi300x_links() -> None:
    torus, full = shipped("tpu-v4-4x4x4"), shipped("mi300x")
    assert np.bincount(torus.link_src).tolist() == [6] * 64
    assert set(torus.link_bandwidth.tolist()) == {50 * GB}
    assert np.bincount(full.link_src).tolist() == [7] * 8
    assert set(full.link_bandwidth.tolist()) == {64 * GB}


def test_the_examples_of_the_readme_load() -> None:
    examples = {t.name: t for t in map(loads, re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))}
    assert {name: (t.n_ranks, t.n_links) for name, t in examples.items()} == {
        "small": (8, 32),
        "full": (8, 56),
        "ring": (4, 5),
        "torus": (64, 384),
    }
    ring = examples["ring"]
    assert ring.ranks[0] == "host[3]"
    assert names(ring, ring.ranks.index("host[0]"), ring.ranks.index("host[2]")) == [
        "host[0]->host[1]",
        "host[1]->host[2]",
    ]


# the tables of generators in the README

COMMON = ("send_overhead", "reduce_bandwidth", "channel_bandwidth")


def rows(header: str) -> list[list[str]]:
    """The cells of the table with this header."""
    body = README.partition(header + "\n")[2]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body.split("\n\n")[0].splitlines()[1:]]


def written(parameter: inspect.Parameter) -> str:
    """An argument as the README writes it."""
    if parameter.default is inspect.Parameter.empty:
        return f"`{parameter.name}`"
    if parameter.default is None:
        return f"[`{parameter.name}`]"
    return f"`{parameter.name}: {str(parameter.default).lower() if parameter.default is False else parameter.default}`"


def test_the_readme_has_every_generator_with_its_arguments() -> None:
    table = {row[0].strip("`"): row[1] for row in rows("| `generator` | arguments | machine |")}
    expected = {
        name: ", ".join(written(p) for p in inspect.signature(make).parameters.values() if p.name not in COMMON)
        for name, make in GENERATORS.items()
    }
    assert table == expected
    for make in GENERATORS.values():
        assert [inspect.signature(make).parameters[key].default for key in COMMON] == [0, 0, 0]


def test_the_readme_has_every_argument_with_its_type() -> None:
    words = {
        "whole": "whole number",
        "wholes": "whole number or list of them",
        "number": "number",
        "flag": "`true` or `false`",
        "bandwidth": "bandwidth",
        "time": "time",
    }
    table = {name: row[1] for row in rows("| argument | type | meaning |") for name in re.findall(r"`(\w+)`", row[0])}
    taken = {key: words[argument.kind] for name in GENERATORS for key, argument in arguments(name).items()}
    assert table == taken


SMALL = {"n": 5, "dims": [2, 3], "dimension": 3, "branching": 2, "height": 3, "gpus": 16, "nodes": 2, "groups": 3,
         "routers": 2}  # fmt: skip


@pytest.mark.parametrize("name", GENERATORS)
def test_defaults_of_the_readme_can_be_written_into_a_file(name: str) -> None:
    row = next(row for row in rows("| `generator` | arguments | machine |") if row[0] == f"`{name}`")
    needed = {key: SMALL[key] for key, argument in arguments(name).items() if argument.required}
    given = [f"{key}: {value}" for key, value in needed.items()] + re.findall(r"`(\w+: [^`]+)`", row[1])
    topology = loads(f"name: {name}\ngenerator: {{name: {name}, {', '.join(given)}}}\n")
    assert topology == GENERATORS[name](**needed)


def test_names_are_as_the_readme_says() -> None:
    made = {
        name: GENERATORS[name](**{k: SMALL[k] for k, a in arguments(name).items() if a.required}) for name in GENERATORS
    }
    for name, node in re.findall(r"`([\w\[\].]+)` \(`(\w+)`\)", README):
        assert name in made[node].nodes
    trunk = shipped("dgx-1-v100")
    links = [trunk.link_name(link) for link in trunk.links_between("gpu[3]", "gpu[0]")]
    assert links == re.findall(r"`(gpu\[3\]->gpu\[0\]#\d)`", README)
