"""Machines out of what ``nvidia-smi topo -m`` prints."""

from __future__ import annotations

import random
import re
from itertools import combinations, pairwise
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import collsim
from collsim.errors import InputError, TopologyError
from collsim.formats.gpus import gpu_models
from collsim.formats.nvidia_smi import parse_nvidia_smi, read_nvidia_smi
from collsim.formats.source import Source
from collsim.topology import Topology

SAMPLE = Path(__file__).parents[2] / "shared" / "samples" / "nvidia_smi_topo_dgx1.txt"
LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")


def table_of(names: list[str], cells: dict[tuple[str, str], str], affinity: dict[str, str] | None = None) -> str:
    """Write a table as the tool does, with tabs."""
    lines = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity"]
    for a in names:
        row = [" X " if a == b else cells.get((a, b)) or cells[b, a] for b in names]
        lines.append("\t".join([a, *row, (affinity or {}).get(a, "")]))
    return "\n".join(lines) + "\n"


def read(text: str, gpu: str | None = None) -> Topology:
    return parse_nvidia_smi(Source("topo.txt", text), gpu=gpu)


def fault(text: str, gpu: str | None = None) -> str:
    with pytest.raises(TopologyError) as caught:
        read(text, gpu)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.line is not None
    return message


def matrix_of(topology: Topology, rate: int = 1) -> dict[tuple[str, str], str]:
    """Find the cells of a machine again, from its links alone."""
    graph = topology.graph
    devices = [node for node in graph if graph.nodes[node]["kind"] in ("gpu", "nic")]
    pcie = nx.Graph((a, b) for a, b, data in graph.edges(data=True) if data["kind"] in ("pcie", "upi", "socket"))
    cells = {}
    for a, b in combinations(devices, 2):
        direct = [data for data in (graph.get_edge_data(a, b) or {}).values() if data["kind"] == "nvlink"]
        shared = [
            int(graph[a][switch][0]["bandwidth"]) // rate
            for switch in graph
            if switch.startswith("nvswitch") and graph.has_edge(a, switch) and graph.has_edge(b, switch)
        ]
        if direct or shared:
            cells[a, b] = f"NV{len(direct) or shared[0]}"
            continue
        path = nx.shortest_path(pcie, a, b)
        kinds = [graph.nodes[node]["kind"] for node in path[1:-1]]
        hosts, switches = kinds.count("host"), kinds.count("switch")
        sockets = any(graph[x][y][0]["kind"] in ("upi", "socket") for x, y in pairwise(path))
        if not hosts:
            cells[a, b] = "PIX" if switches == 1 else "PXB"
        else:
            cells[a, b] = "SYS" if sockets else "PHB" if hosts == 1 else "NODE"
    return cells


def dgx1(gpus: int = 8, *, nics: bool = True) -> tuple[list[str], dict[tuple[str, str], str]]:
    """Return the table of a DGX-1 with V100, from its hybrid cube mesh and its four PCIe switches."""
    quads = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2}
    links = {**quads, (0, 4): 2, (1, 5): 2, (2, 6): 1, (3, 7): 1}
    links |= {(4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2}
    names = [f"GPU{i}" for i in range(gpus)] + ([f"mlx5_{i}" for i in range(4)] if nics else [])
    home = [i // 2 for i in range(gpus)] + list(range(4))
    cells = {}
    for (i, a), (j, b) in combinations(enumerate(names), 2):
        near = "PIX" if home[i] == home[j] else "PHB" if home[i] // 2 == home[j] // 2 else "SYS"
        cells[a, b] = f"NV{links[i, j]}" if j < gpus and (i, j) in links else near
    return names, cells


def all_to_all(n: int, cell: str, nics: dict[str, list[str]] | None = None) -> str:
    names = [f"GPU{i}" for i in range(n)]
    cells = dict.fromkeys(combinations(names, 2), cell)
    for nic, row in (nics or {}).items():
        cells |= {(name, nic): distance for name, distance in zip([*names], row, strict=False)}
    cells |= dict.fromkeys(combinations(list(nics or {}), 2), "SYS")
    return table_of([*names, *(nics or {})], cells)


def test_dgx1() -> None:
    topology = read(table_of(*dgx1()))
    assert topology.ranks == tuple(f"GPU{i}" for i in range(8))
    assert matrix_of(topology) == dgx1()[1]
    shipped = collsim.load_topology("dgx-1-v100")
    for a, b in combinations(range(8), 2):
        ours = [data for data in (topology.graph.get_edge_data(f"GPU{a}", f"GPU{b}") or {}).values()]
        theirs = [data for data in (shipped.graph.get_edge_data(f"gpu[{a}]", f"gpu[{b}]") or {}).values()]
        assert len(ours) == len(theirs)
        assert {data["bandwidth"] for data in ours} <= {20 * 10**9}
        assert {data["latency"] for data in ours} == {data["latency"] for data in theirs}
    assert "taken for V100 by their NVLinks" in topology.description
    assert "generation 3 x16, 12GB/s; between sockets 10GB/s" in topology.description
    assert "NVLinks hide how near" in topology.description
    assert "no network is behind them" in topology.description
    assert [kind for kind in topology.kinds].count("nic") == 4
    assert bool(topology.forwards[topology.rank_nodes].all())
    assert not topology.forwards[topology.node_index("mlx5_0")]
    # over two NVLinks, never over PCIe
    assert len(topology.route(0, 7)) == 2
    assert {topology.link_kind(link) for a in range(8) for b in range(8) for link in topology.route(a, b)} == {"nvlink"}


@pytest.mark.skipif(not SAMPLE.exists(), reason="no samples here")
def test_the_sample() -> None:
    topology = read_nvidia_smi(SAMPLE)
    rows = [line.split("\t") for line in SAMPLE.read_text().splitlines()[:13]]
    names = rows[0][1:-1]
    wanted = {(a, b): rows[i + 1][j + 1] for (i, a), (j, b) in combinations(enumerate(names), 2)}
    assert matrix_of(topology) == wanted
    result = collsim.run("all_reduce", topology, size="64MiB", algorithm="ring")
    assert result.busbw / 1e9 == pytest.approx(20, rel=0.01)  # one of the NVLinks of the narrowest pair


@pytest.mark.skipif(not SAMPLE.exists(), reason="no samples here")
def test_rates_are_those_of_the_reader_of_nccls_files() -> None:
    theirs = collsim.load_topology(SAMPLE.with_name("nccl_topo_dgxa100.xml"))
    rows = {f"NIC{i}": ["PXB" if gpu // 2 == i else "SYS" for gpu in range(8)] for i in range(4)}
    ours = read(all_to_all(8, "NV12", rows))

    def links(topology: Topology) -> set[tuple[str, int, int]]:
        columns = (topology.link_bandwidth.tolist(), topology.link_latency.tolist())
        return {(topology.link_kind(link), *pair) for link, pair in enumerate(zip(*columns, strict=True))}

    assert links(ours) == {link for link in links(theirs) if link[0] != "local"}


def test_nvswitch() -> None:
    topology = read(all_to_all(8, "NV18"), gpu="H100")
    shipped = collsim.load_topology("dgx-h100")
    assert topology.n_nodes == shipped.n_nodes
    assert topology.kinds == shipped.kinds
    assert set(topology.link_bandwidth.tolist()) == {18 * 20_600_000_000}
    assert set(topology.link_latency.tolist()) == set(shipped.link_latency.tolist())
    switch = topology.node_index("nvswitch")
    assert topology.reduces[switch]
    assert topology.multicasts[switch]
    assert not topology.forwards[topology.rank_nodes].any()
    assert "18 NVLinks as one link of 370.8GB/s" in topology.description
    assert "PCIe is left out" in topology.description
    older = read(all_to_all(8, "NV12"))
    assert set(older.link_bandwidth.tolist()) == {240 * 10**9}
    assert not older.reduces.any()
    assert "taken for A100" in older.description


def test_nvswitch_with_nics_routes_gpus_over_nvlink() -> None:
    rows = {"NIC0": ["PXB", "PXB", "SYS", "SYS"], "NIC1": ["SYS", "SYS", "PXB", "PIX"]}
    topology = read(all_to_all(4, "NV12", rows))
    assert matrix_of(topology, 20 * 10**9) == {
        **dict.fromkeys(combinations([f"GPU{i}" for i in range(4)], 2), "NV12"),
        **{(f"GPU{i}", nic): row[i] for nic, row in rows.items() for i in range(4)},
        ("NIC0", "NIC1"): "SYS",
    }
    assert {topology.link_kind(link) for a in range(4) for b in range(4) for link in topology.route(a, b)} == {"nvlink"}
    assert "generation 4 x16, 24GB/s" in topology.description


@pytest.mark.parametrize(
    ("n", "cell", "gpu", "switch", "rate"),
    [
        (16, "NV6", None, True, 6 * 20), (4, "NV4", None, False, 4 * 20), (3, "NV12", None, True, 240),
        (8, "NV8", "h800", True, 8 * 20.6), (8, "NV8", "a100", True, 8 * 20), (4, "NV6", "h100", False, 6 * 20.6),
        (2, "NV18", "h200", True, 18 * 20.6), (2, "NV12", "h100", False, 12 * 20.6),
        (8, "NV18", "b200", True, 18 * 40.1), (4, "NV2", None, False, 2 * 20), (5, "NV1", None, False, 18),
    ],
)  # fmt: skip
def test_generations(n: int, cell: str, gpu: str | None, switch: bool, rate: float) -> None:
    topology = read(all_to_all(n, cell), gpu)
    assert (topology.n_nodes == n + 1) is switch
    assert set(topology.link_bandwidth.tolist()) == {round(rate * 1e9)}
    links = n if switch else n * (n - 1) // 2  # the hardware stripes over those of a pair
    assert topology.n_links == 2 * links
    assert not topology.forwards[topology.rank_nodes].any()  # each has its own link to each


@pytest.mark.parametrize(("n", "cell"), [(8, "NV18"), (4, "NV6"), (2, "NV12"), (8, "NV8"), (2, "NV4"), (3, "NV1")])
def test_generations_that_cannot_be_told(n: int, cell: str) -> None:
    message = fault(all_to_all(n, cell))
    assert re.match(r"topo\.txt:\d+:\d+: GPU1, GPU0: expected to be told which GPU this is", message)
    assert f"several can have {cell} here; name it with gpu=, or collsim convert ... --gpu, one of" in message
    assert ("h100" in message) == (cell != "NV0")


def test_every_gpu_with_nvlink_can_be_given() -> None:
    for name, model in gpu_models().items():
        if model.nvlinks >= 4:
            assert read(all_to_all(2, "NV4", {"NIC0": ["PIX", "SYS"]}), name).n_ranks == 2


def test_part_of_a_dgx1() -> None:
    assert "V100" in read(table_of(*dgx1(4, nics=False))).description  # as clouds rent it: five NVLinks a GPU


def test_pairs_with_a_bridge() -> None:
    names = [f"GPU{i}" for i in range(4)]
    cells = dict.fromkeys(combinations(names, 2), "SYS")
    cells["GPU0", "GPU1"] = cells["GPU2", "GPU3"] = "NV4"
    topology = read(table_of(names, cells, {"GPU0": "0-7\t0", "GPU1": "0-7\t0", "GPU2": "8-15\t1", "GPU3": "8-15\t1"}),
                    "rtx3090")  # fmt: skip
    assert [topology.link_name(link) for link in topology.route(0, 1)] == ["GPU0->GPU1"]
    assert topology.graph.nodes["cpu[0]"]["kind"] == "host"
    assert not topology.forwards[topology.rank_nodes].any()
    assert topology.link_kind(topology.route(0, 2)[1]) == "socket"


def test_pcie_only() -> None:
    names = ["GPU0", "GPU1", "GPU2", "GPU3"]
    cells = dict.fromkeys(combinations(names, 2), "SYS") | {("GPU0", "GPU1"): "PIX", ("GPU2", "GPU3"): "PIX"}
    topology = read(table_of(names, cells, {"GPU0": "0-7\t1", "GPU2": "8-15\t0"}))
    shipped = collsim.load_topology("pcie-4gpu")
    assert topology.n_nodes == shipped.n_nodes
    assert topology.n_links == shipped.n_links
    assert sorted(topology.link_latency.tolist()) == sorted(shipped.link_latency.tolist())
    assert [topology.link_name(link) for link in topology.route(0, 3)] == [
        "GPU0->pcisw[0]", "pcisw[0]->cpu[1]", "cpu[1]->cpu[0]", "cpu[0]->pcisw[1]", "pcisw[1]->GPU3",
    ]  # fmt: skip
    assert "assumed, since the GPU was not given" in topology.description
    assert set(topology.link_bandwidth.tolist()) == {12 * 10**9, 10 * 10**9}
    newer = read(table_of(names, cells), gpu="l40s")
    assert set(newer.link_bandwidth.tolist()) == {24 * 10**9, 16 * 10**9}
    result = collsim.run("all_reduce", topology, size="64MiB", algorithm="ring")
    assert result.busbw / 1e9 == pytest.approx(10, rel=0.01)  # the link between the sockets


def test_host_bridges_are_no_bottleneck() -> None:
    names = [f"GPU{i}" for i in range(6)]
    home = [0, 0, 0, 1, 1, 1]
    cells = {(a, b): "PHB" if home[i] == home[j] else "NODE" for (i, a), (j, b) in combinations(enumerate(names), 2)}
    topology = read(table_of(names, cells), "l40s")
    assert matrix_of(topology) == cells
    assert [topology.link_name(link) for link in topology.route(0, 5)] == [
        "GPU0->bridge[0,0]", "bridge[0,0]->cpu[0]", "cpu[0]->bridge[0,1]", "bridge[0,1]->GPU5",
    ]  # fmt: skip
    assert topology.link_bandwidth[list(topology.route(0, 5))].tolist() == [
        24 * 10**9,
        72 * 10**9,
        72 * 10**9,
        24 * 10**9,
    ]


def test_only_gpus_between_others_forward() -> None:
    names = ["GPU0", "GPU1", "GPU2"]
    topology = read(
        table_of(names, {("GPU0", "GPU1"): "NV2", ("GPU1", "GPU2"): "NV2", ("GPU0", "GPU2"): "SYS"}), "v100"
    )
    assert topology.forwards[topology.rank_nodes].tolist() == [False, True, False]
    assert len(topology.route(0, 2)) == 2


def test_one_gpu() -> None:
    assert read("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n").n_links == 0
    topology = read("GPU0 NIC0 CPU Affinity\nGPU0 X PHB 0-251 0 N/A\nNIC0 PHB X\n\nNIC Legend:\n\n  NIC0: mlx5_0\n")
    assert topology.nodes == ("GPU0", "mlx5_0", "cpu[0]")


def test_gpus_whose_distance_stands_nowhere_go_by_affinity() -> None:
    names = ["GPU0", "GPU1", "GPU2", "NIC0"]
    cells = dict.fromkeys(combinations(names[:3], 2), "NV12") | {("GPU0", "NIC0"): "PIX"}
    cells |= {("GPU1", "NIC0"): "PIX", ("GPU2", "NIC0"): "SYS"}
    topology = read(table_of(names, cells, {"GPU0": "0-7\t0", "GPU1": "0-7\t0", "GPU2": "8-15\t3"}))
    assert topology.graph.has_edge("GPU2", "cpu[3]")
    assert topology.graph.has_edge("GPU1", "pcisw[0]")
    # two pairs that know nothing of each other, all joined by NVLinks
    cells = dict.fromkeys(combinations(["GPU0", "GPU1", "GPU2", "GPU3"], 2), "NV1")
    cells |= {("GPU0", "GPU1"): "PHB", ("GPU2", "GPU3"): "PHB"}
    apart = {"GPU0": "0-7\t0", "GPU1": "0-7\t0", "GPU2": "8-15\t1", "GPU3": "8-15\t1"}
    assert read(table_of(["GPU0", "GPU1", "GPU2", "GPU3"], cells, apart), "v100").kinds.count("host") == 2
    assert read(table_of(["GPU0", "GPU1", "GPU2", "GPU3"], cells), "v100").kinds.count("host") == 1


FORUM = """
Here is what I get:

    user@node:~$ nvidia-smi topo -m
            \x1b[4mGPU0    GPU1    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID\x1b[0m
    GPU0     X      SOC     PIXNODE     0-31,64-95    0               N/A
    GPU1    SOC      X      SYS     SYS     32-63   1               N/A

    NIC0    PIX     SYS      X      NODE
    NIC1    NODE    SYS     NODE     X

    Legend:

      X    = Self
      PIX  = Connection traversing at most a single PCIe bridge

    NIC Legend:

      NIC0: mlx5_0
      NIC1: rdmap16s27

Thanks!
"""


def test_forum_paste() -> None:
    topology = read(FORUM, gpu="a10")
    assert topology.nodes[:4] == ("GPU0", "GPU1", "mlx5_0", "rdmap16s27")
    cells = matrix_of(topology)
    assert cells["GPU0", "GPU1"] == "SYS"
    assert cells["GPU0", "mlx5_0"] == "PIX"
    assert cells["mlx5_0", "rdmap16s27"] == "NODE"
    pair = "GPU0\tGPU1\nGPU0\tX\tSOC\nGPU1\tSOC\tX\n"  # of an older version, without affinities
    assert matrix_of(read(pair)) == {("GPU0", "GPU1"): "SYS"}
    tabs = re.sub(r" {2,}", "\t", FORUM.replace("PIXNODE", "PIX\tNODE").replace("    ", "\t"))
    assert read(tabs.replace("\n", "\r\n").replace("\r\n", "\n"), gpu="a10") == topology


Tree = list[list[list[list[str]]]]


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Draw nested groups: NUMA nodes of host bridges of outer switches of switches of devices."""

    def level(depth: int) -> object:
        if depth == 0:
            return draw(st.sampled_from("GN"))
        return [level(depth - 1) for _ in range(draw(st.integers(1, 3 if depth > 1 else 2)))]

    return [level(4) for _ in range(draw(st.integers(1, 2)))]


@given(trees(), st.booleans(), st.randoms(use_true_random=False))
def test_the_matrix_of_the_machine_is_the_table(tree: Tree, linked: bool, order: random.Random) -> None:
    places = [
        ((i, j, k, m), device)
        for i, numa in enumerate(tree)
        for j, bridge in enumerate(numa)
        for k, outer in enumerate(bridge)
        for m, devices in enumerate(outer)
        for device in devices
    ]
    order.shuffle(places)
    places = [((0, 0, 0, 0), "G"), *places[:40]]
    counts = {"G": 0, "N": 0}
    home: dict[str, tuple[int, ...]] = {}
    for place, kind in places:
        home[f"{'GPU' if kind == 'G' else 'mlx5_'}{counts[kind]}"] = place
        counts[kind] += 1
    cells = {}
    for a, b in combinations(home, 2):
        shared = next((n for n in range(4) if home[a][n] != home[b][n]), 4)
        cells[a, b] = "NV18" if linked and a[0] == b[0] == "G" else LEVELS[4 - shared]
    topology = read(table_of(list(home), cells), gpu="h100")
    assert {tuple(sorted(pair)): cell for pair, cell in matrix_of(topology, 20_600_000_000).items()} == {
        tuple(sorted(pair)): cell for pair, cell in cells.items()
    }
    if not linked:
        for a, b in combinations(range(topology.n_ranks), 2):
            kinds = {topology.link_kind(link) for link in topology.route(a, b)}
            assert kinds <= {"pcie", "upi"}


PAIR = "\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV4\tPIX\nGPU1\tNV4\t X \tPIX\nNIC0\tPIX\tPIX\t X \n"


AMD = "expected a table of nvidia-smi topo -m, got one of rocm-smi or amd-smi, which is not read; write a topology file"


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        (PAIR, "", "1:1", "expected a table of nvidia-smi topo -m with a first row GPU0 GPU1 ..., got none"),
        ("\tGPU0\tGPU1\tNIC0\n", "", "1:1",
         "expected the row with the names of the columns before that of GPU0, got none"),
        ("GPU1\tNV4", "GPU1\tNV2", "3:6", "GPU1, GPU0: expected NV4, as in line 2, column 10, got NV2"),
        ("X \tNV4", "NV4\tNV4", "2:7", "GPU0, GPU0: expected X in the cell of a device and itself, got NV4"),
        ("GPU1\tNV4", "GPU1\tX", "3:6", "GPU1, GPU0: expected a distance between two devices, got X"),
        ("PIX", "NV2", "2:14", "GPU0, NIC0: expected NVLinks between GPUs only, got NV2"),
        ("X \tPIX\n", "X\t\n", "3:12", "expected 3 cells, one a column, got 2"),
        ("X \tPIX\n", "X \t0-7\n", "3:14", "expected 3 cells, one a column, got 2 before '0-7'"),
        ("X \tPIX\n", "X \tPIXX\n", "3:17", "expected 3 cells, one a column, got more"),
        ("X \tPIX\n", "X \tPHP\n", "3:14",
         "expected one of X, NV<n>, PIX, PXB, PHB, NODE, SYS, got 'PHP'; did you mean 'PHB'?"),
        ("NIC0\tPIX", "NIC1\tPIX", "4:1", "expected the row of NIC0, got 'NIC1'; did you mean 'NIC0'?"),
        ("NIC0\tPIX", "GPU1\tPIX", "4:1", "expected one row of GPU1, got a second one"),
        ("NIC0\tPIX\tPIX\t X \n", "", "3:1", "expected the row of NIC0, got the end of the table"),
        ("GPU1\tNIC0", "GPU2\tNIC0", "1:7", "expected GPU1, the GPUs being numbered from 0, got 'GPU2'"),
        ("GPU1\tNIC0", "GPU1\tGPU1", "1:12", "expected each column once, got GPU1 twice"),
        ("NIC0\n", "NIC0" + "x" * 200 + "\n", "1:12", "expected a name of up to 200 printable letters, got 'NIC0"),
        (PAIR, PAIR + PAIR, "6:1", "expected one table, got a second one; keep one of them"),
        (PAIR, "\tGPU0\tGPU1\nGPU0\tX\tGNS\nGPU1\tGNS\tX\n", "2:8",
         "expected the table of nvidia-smi topo -m, got that of nvidia-smi topo -p2p"),
        (PAIR, "=== ROCm System Management Interface ===\n   GPU0  GPU1\nGPU0  0  XGMI\nGPU1  XGMI  0\n", "1:1", AMD),
        (PAIR, "   GPU0  GPU1\nGPU0  0  XGMI\nGPU1  XGMI  0\n", "2:7", AMD),
        (PAIR, PAIR + "NIC Legend:\n NIC0: GPU1\n", "6:8", "expected a name of its own for NIC0, got 'GPU1'"),
        (PAIR, PAIR + "NIC Legend:\n NIC0: a\n NIC0: b\n", "7:8", "expected one name for NIC0, got a second one"),
    ],
)  # fmt: skip
def test_mistakes(old: str, new: str, place: str, message: str) -> None:
    assert old in PAIR
    assert fault(PAIR.replace(old, new)).startswith(f"topo.txt:{place}: {message}")


def test_too_many_columns() -> None:
    names = " ".join(f"GPU{i}" for i in range(600))
    assert fault(names) == "topo.txt:1:1: expected at most 512 columns, got 600"


def test_distances_that_are_no_tree_name_three_devices() -> None:
    names = ["GPU0", "GPU1", "GPU2"]
    cells = {("GPU0", "GPU1"): "PIX", ("GPU1", "GPU2"): "PIX", ("GPU0", "GPU2"): "SYS"}
    assert fault(table_of(names, cells)) == (
        "topo.txt:2:14: GPU0, GPU2: expected distances that make a tree, got SYS between GPU0 and GPU2, though both "
        "are nearer to GPU1 (PIX and PIX)"
    )
    for near, far in pairwise(LEVELS):
        cells = {("GPU0", "GPU1"): near, ("GPU1", "GPU2"): near, ("GPU0", "GPU2"): far}
        assert f"got {far} between GPU0 and GPU2" in fault(table_of(names, cells))
    names = ["GPU0", "GPU1", "GPU2", "GPU3"]
    cells = dict.fromkeys(combinations(names, 2), "NV1")
    cells |= {("GPU0", "GPU1"): "PIX", ("GPU1", "GPU2"): "PXB", ("GPU2", "GPU3"): "PIX", ("GPU0", "GPU3"): "NODE"}
    assert fault(table_of(names, cells), "v100") == (
        "topo.txt:2:18: GPU0, GPU3: expected distances that make a tree, got NODE between GPU0 and GPU3, though GPU0 "
        "is nearer to GPU1 (PIX), and others lead from there to GPU3 by no more than PXB"
    )


def test_gpus_that_cannot_have_these_nvlinks() -> None:
    assert "GPU1, GPU0: expected the NVLinks of a t4, which has no NVLink, got NV1" in fault(table_of(*dgx1()), "t4")
    assert "expected the NVLinks of a v100, which has 6 NVLinks, got NV12" in fault(all_to_all(8, "NV12"), "v100")
    assert "expected at most 4 NVLinks of GPU0, a p100, got 6" in fault(table_of(*dgx1()), "p100")
    with pytest.raises(InputError, match="gpu: expected a GPU such as"):
        read(PAIR, "h1000")


def test_names_do_not_collide() -> None:
    topology = read(PAIR.replace("NIC0", "cpu[0]").replace("NV4", "NV12"), "a100")
    assert "cpu[0]_" in topology.nodes


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "my machine.txt"
    path.write_text(PAIR)
    topology = read_nvidia_smi(path, gpu="rtx3090")
    assert topology.name == "my machine"
    assert "my machine.txt" in topology.source
    with pytest.raises(TopologyError, match="expected a table of nvidia-smi topo -m, got a directory"):
        read_nvidia_smi(tmp_path)
    path.write_text("log\n" * 2**22)
    with pytest.raises(TopologyError, match="expected at most 8 MiB, got a larger file"):
        read_nvidia_smi(path)


def test_the_largest_machine() -> None:
    assert read(all_to_all(512, "SYS")).kinds.count("host") == 512


SEEDS = (table_of(*dgx1()), FORUM, PAIR, all_to_all(4, "NV12", {"NIC0": ["PXB", "PIX", "SYS", "SYS"]}))


ODD = ("0", "-1", "1e400", "9" * 30, "nan", "NV0", "NV999", "NV" + "9" * 40, "X", "SYS", "GPU0", "\x1b[4m", "n" * 10**6)
ODD += ("PIX" * 1000, "GPU\u0661", "NIC0:", "\u202e", "None", "GPU99999999999")


def mutated(text: str, dice: random.Random) -> str:
    """Cut, double, swap or replace something."""
    words = re.split(r"(\s+)", text)
    for _ in range(dice.randint(1, 4)):
        kind, place = dice.randrange(6), dice.randrange(len(words))
        if kind == 0:
            words = words[:place] if dice.random() < 0.3 and place else words[:place] + words[place + 1 :]
        elif kind == 1:
            words[place:place] = words[place : place + dice.randint(1, 30)]
        elif kind == 2:
            other = dice.randrange(len(words))
            words[place], words[other] = words[other], words[place]
        elif kind == 3:
            words[place] = dice.choice(ODD)
        elif kind == 4 and words[place]:
            spot = dice.randrange(len(words[place]))
            words[place] = words[place][:spot] + chr(dice.choice((0, 9, 32, 88, 233, 8232))) + words[place][spot + 1 :]
        else:
            words[place] = words[place] * 2
        words = words or [""]
    return "".join(words)


def attempt(text: str, gpu: str | None) -> TopologyError | None:
    """Read a text; return why it was refused."""
    try:
        assert read(text, gpu).n_ranks
    except TopologyError as error:
        return error
    return None


def test_garbage_is_refused_with_its_place() -> None:
    dice = random.Random(8)
    errors = [attempt(mutated(SEEDS[n % len(SEEDS)], dice), dice.choice((None, "a100", "v100"))) for n in range(500)]
    refused = [error for error in errors if error is not None]
    assert all(error.line is not None and len(str(error)) < 1500 for error in refused)
    assert 200 < len(refused) < 490
