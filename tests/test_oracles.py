"""Facts that hold for all algorithms, and worked numbers from papers and software, that no other file asks for."""

from __future__ import annotations

from collections import Counter, defaultdict

import networkx as nx
import numpy as np
import pytest

from collsim import Topology, algorithms, check, simulate, topology
from collsim.algorithms.double_binary_tree import _tree_edges
from collsim.engine.lowering.lower import lower
from collsim.engine.program import NETWORKS
from collsim.errors import ProofError
from collsim.schedule.model import Edge
from collsim.topology import TopologyBuilder
from tests.in_network import without_switches
from tests.strategies import make, naive_rows

ALL = without_switches()
MACHINES = [
    topology.ring(8, bandwidth="1GB/s", latency="1us"),
    topology.bidirectional_ring(8, bandwidth="1GB/s", latency="1us"),
    topology.torus((2, 4), bandwidth="1GB/s", latency="1us"),
    topology.fat_tree(8, 4, bandwidth="1GB/s", latency="1us", spines=1, oversubscription=2),
    topology.switch(8, bandwidth="1GB/s", latency="1us", send_overhead="100ns"),
]


@pytest.mark.parametrize(("operation", "name"), ALL)
def test_bytes_on_links_are_bytes_of_messages_times_hops(operation: str, name: str) -> None:
    schedule = algorithms.build(operation, name, 8)
    size = 24 * schedule.chunks
    for machine in MACHINES:
        program = lower(schedule, machine, size)
        hops = [len(machine.route(int(a), int(b), int(c))) if a != b else 0
                for a, b, c in zip(program.src, program.dst, program.channel, strict=True)]  # fmt: skip
        result = simulate(schedule, machine, size, check=False)
        assert int(result.link_bytes.sum()) == int((program.bytes * np.array(hops)).sum())
        remote = program.src != program.dst
        assert int(result.bytes_sent_per_rank.sum()) == int(program.bytes[remote].sum())


def islands() -> Topology:
    """Two pairs of GPUs: 10 units within a pair, one unit each to all others (ForestColl's example)."""
    builder = TopologyBuilder("islands")
    for switch in ("w0", "w1", "w2"):
        builder.add_node(switch, "switch")
    for gpu, switch in (("a", "w1"), ("b", "w1"), ("c", "w2"), ("d", "w2")):
        builder.add_node(gpu, "gpu")
        builder.add_duplex(gpu, switch, 10**10, 0)
        builder.add_duplex(gpu, "w0", 10**9, 0)
    return builder.build()


@pytest.mark.parametrize(
    ("machine", "ratio"),
    [
        (islands(), 1),
        (topology.bidirectional_ring(4, bandwidth="1GB/s", latency=0), 3 / 2),
        (topology.ring(4, bandwidth="1GB/s", latency=0), 3),
        (topology.fully_connected(4, bandwidth="1GB/s", latency=0), 1),
    ],
    ids=["islands", "both ways", "one way", "all pairs"],
)
def test_no_all_gather_beats_the_worst_cut(machine: Topology, ratio: float) -> None:
    """(S/N) times the greatest ratio of ranks in a set to what leaves it."""
    size = 4 * 24 * 1000
    least = size / 4 * ratio / 1e9
    best = {}
    for name in [name for operation, name in ALL if operation == "all_gather"]:
        schedule = algorithms.build("all_gather", name, 4)
        for network in NETWORKS[1:]:  # alpha_beta shares no links
            time = simulate(schedule, machine, size, network=network).time
            assert time >= least * (1 - 1e-9), (name, network)
            best[name] = min(time, best.get(name, time))
    if ratio == 3:
        assert best["ring"] == pytest.approx(least, rel=1e-9)
    if machine.name == "fully_connected":
        assert best["direct"] == pytest.approx(least, rel=1e-9)
    if machine.name == "islands":  # a flat ring crosses the thin link with 3 S/4
        assert best["ring"] == pytest.approx(3 * least, rel=1e-9)


def test_double_binary_trees_have_two_children_and_two_colours() -> None:
    """NCCL's trees: at most two children over both together, and no rank gets or sends twice in one colour.

    The edges of both trees can have two colours such that at every rank the two that lead to parents differ, and no
    two that lead to children are alike (what makes full bandwidth possible).
    """
    for ranks in [*range(2, 130), *range(130, 600, 9)]:
        children: Counter[int] = Counter()
        graph: nx.Graph[tuple[int, int]] = nx.Graph()
        up: dict[int, list[tuple[int, int]]] = defaultdict(list)
        down: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for number, (child, parent, _) in enumerate(_tree_edges(ranks, rooted=False)):
            children.update(parent.tolist())
            for a, b in zip(child.tolist(), parent.tolist(), strict=True):
                graph.add_node((number, a))
                up[a].append((number, a))
                down[b].append((number, a))
        assert max(children.values()) <= 2
        graph.add_edges_from((edges[0], edges[1]) for side in (up, down) for edges in side.values() if len(edges) > 1)
        assert nx.is_bipartite(graph)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 32, 64, 3, 6, 12, 48])
def test_deltas_of_nccl_p2p_are_a_permutation(ranks: int) -> None:
    """delta += step, modulo the next power of two, meets every distance once; for powers of two without a gap."""
    rows = [row for row in naive_rows(algorithms.build("all_to_all", "nccl_p2p", ranks)) if row.src != row.dst]
    power, deltas, delta = 1 << (ranks - 1).bit_length(), [], 0
    for turn in range(power):
        delta = (delta + turn) % power
        deltas.append(delta)
    assert sorted(deltas) == list(range(power))
    for rank in range(ranks):
        found = [(row.dst - rank) % ranks for row in rows if row.src == rank]
        assert found == [delta for delta in deltas if 0 < delta < ranks]


def test_a_dropped_dependency_is_a_race() -> None:
    """A copy through scratch whose second use waits for the first, and the same without that edge."""
    text = "0 -> 1 0 > s0; 1 -> 1 s0 > 0; 0 -> 1 1 > s0; 1 -> 1 s0 > 1"
    waits = make("broadcast", 2, 2, text, head="scratch=1", edges=[Edge(0, 2, 0, 1)])
    assert check(waits).complete
    with pytest.raises(ProofError, match="nothing orders two writes: step 0, 0 -> 1 and step 2, 0 -> 1"):
        check(make("broadcast", 2, 2, text, head="scratch=1"))
