"""Link lengths for all_to_all against cuts, a plain program of flows, and values worked out by hand."""

from __future__ import annotations

import sys
from fractions import Fraction
from itertools import combinations, permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import collsim.topology as machines
from collsim.theory import multicommodity
from collsim.theory.multicommodity import worst_lengths

G = 10**9
RATE = {"bandwidth": "1GB/s", "latency": 0}


def ask(topology, terminals=None):
    ends = topology.rank_nodes if terminals is None else np.array(terminals)
    return worst_lengths(topology.n_nodes, topology.link_src, topology.link_dst, topology.link_bandwidth, ends)


def bound(topology, terminals=None):
    """The bound of the lengths that are found, in seconds for 10**9 bytes a pair, by Dijkstra in whole numbers."""
    lengths, method = ask(topology, terminals)
    assert method == "by a linear program"
    assert lengths.dtype == np.int64
    assert (lengths >= 0).all()
    assert len(lengths) == topology.n_links
    return value(topology, lengths, topology.rank_nodes if terminals is None else terminals)


def value(topology, lengths, terminals):
    graph = nx.DiGraph()
    links = zip(topology.link_src.tolist(), topology.link_dst.tolist(), lengths.tolist(), strict=True)
    for src, dst, length in sorted(links, key=lambda link: -link[2]):  # of parallel links the shortest is the last
        graph.add_edge(src, dst, length=length)
    total = 0
    for source in map(int, terminals):
        distances = nx.single_source_dijkstra_path_length(graph, source, weight="length")
        total += sum(distances[int(sink)] for sink in terminals)
    taken = sum(a * b for a, b in zip(lengths.tolist(), topology.link_bandwidth.tolist(), strict=True))
    return Fraction(total * G, taken)


def plain(topology):
    """The same by flows: the most bytes a second that every pair can send at once, one commodity a source."""
    ranks, links, nodes = topology.rank_nodes.tolist(), topology.n_links, topology.n_nodes
    rate = np.zeros(len(ranks) * links + 1)
    rate[-1] = -1
    keeps = np.zeros((len(ranks) * nodes, len(rate)))
    for i, source in enumerate(ranks):
        for link, (src, dst) in enumerate(zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True)):
            keeps[i * nodes + src, i * links + link] += 1
            keeps[i * nodes + dst, i * links + link] -= 1
        for node in ranks:
            keeps[i * nodes + node, -1] += 1 if node != source else 1 - len(ranks)
    full = np.hstack([np.tile(np.eye(links), len(ranks)), np.zeros((links, 1))])
    answer = linprog(rate, full, topology.link_bandwidth / G, keeps, np.zeros(len(keeps)), method="highs")
    assert answer.status == 0
    return -1 / answer.fun


def worst_cut(topology):
    """The greatest bound of all cuts, every set of nodes tried."""
    best, ranks = Fraction(0), topology.rank_of_node >= 0
    for size in range(1, topology.n_nodes):
        for members in combinations(range(topology.n_nodes), size):
            inside = np.zeros(topology.n_nodes, dtype=bool)
            inside[list(members)] = True
            rate = int(topology.link_bandwidth[inside[topology.link_src] & ~inside[topology.link_dst]].sum())
            pairs = int((inside & ranks).sum()) * int((~inside & ranks).sum())
            best = max(best, Fraction(pairs * G, rate)) if pairs else best
    return best


def duplex(edges, ranks, rate=G):
    """Two links for each edge of a graph whose first nodes are ranks."""
    builder = machines.TopologyBuilder("graph")
    for node in range(1 + max(map(max, edges))):
        builder.add_node(f"n{node}", "gpu" if node < ranks else "switch")
    for one, two in edges:
        builder.add_duplex(f"n{one}", f"n{two}", rate, 0)
    return builder.build()


def islands():
    """Two GPUs on each of two switches with 10 units, and one unit from each GPU to a common switch."""
    builder = machines.TopologyBuilder("islands")
    for switch in ("w0", "w1", "w2"):
        builder.add_node(switch, "switch")
    for gpu, switch in (("a", "w1"), ("b", "w1"), ("c", "w2"), ("d", "w2")):
        builder.add_node(gpu, "gpu")
        builder.add_duplex(gpu, switch, 10 * G, 0)
        builder.add_duplex(gpu, "w0", G, 0)
    return builder.build()


def random_machine(ranks, degree, seed, least=1, most=9):
    """Some rings through all ranks in random order."""
    random = np.random.default_rng(seed)
    builder = machines.TopologyBuilder("random")
    for rank in range(ranks):
        builder.add_node(f"gpu{rank}", "gpu")
    for _ in range(degree):
        order = random.permutation(ranks).tolist()
        for one, two in zip(order, order[1:] + order[:1], strict=True):
            builder.add_link(f"gpu{one}", f"gpu{two}", int(random.integers(least, most + 1)) * G, 0)
    return builder.build()


@st.composite
def topologies(draw, most=5):
    """A ring with chords, switches on the way, parallel links, dead ends, uneven bandwidths."""
    ranks, switches = draw(st.integers(2, most)), draw(st.integers(0, 2))
    builder = machines.TopologyBuilder("drawn")
    names = draw(st.permutations([f"gpu{r}" for r in range(ranks)] + [f"sw{s}" for s in range(switches)]))
    for name in names:
        builder.add_node(name, "gpu" if name.startswith("gpu") else "switch")
    rate = st.integers(1, 9) | st.just(2)
    for i in range(len(names)):
        builder.add_link(names[i], names[(i + 1) % len(names)], draw(rate) * G, 0)
    ends = st.tuples(st.sampled_from(names), st.sampled_from(names)).filter(lambda pair: pair[0] != pair[1])
    for src, dst in draw(st.lists(ends, max_size=7)):
        builder.add_link(src, dst, draw(rate) * G, 0)
    if draw(st.booleans()):
        builder.add_node("end", "switch")
        builder.add_duplex(names[0], "end", G, 0)
    return builder.build()


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (machines.ring(4, **RATE), 6),  # 4 (1 + 2 + 3) over 4 links
        (machines.ring(9, **RATE), 36),
        (machines.bidirectional_ring(8, **RATE), 8),  # 4 x 4 pairs cross 2 links
        (machines.bidirectional_ring(5, **RATE), 3),  # 5 (1 + 1 + 2 + 2) over 10 links
        (machines.line(5, **RATE), 6),  # 2 x 3 pairs cross one link
        (machines.line(2, **RATE), 1),
        (machines.mesh((4, 4), **RATE), 16),  # 8 x 8 pairs cross 4 links
        (machines.mesh((3, 3), **RATE), 6),  # 3 x 6 pairs cross 3 links
        (machines.torus((4, 4), **RATE), 8),
        (machines.hypercube(4, **RATE), 8),
        (machines.fully_connected(7, **RATE), 1),
        (machines.switch(9, **RATE), 8),
        (machines.tree(2, 3, **RATE), 16),  # 4 x 4 pairs cross the one link on top
        (islands(), 2),  # 2 x 2 pairs cross 2 links
        (machines.load_topology("dgx-h100"), Fraction(7, 450)),
        (machines.load_topology("mi300x"), Fraction(1, 64)),
        (machines.load_topology("dgx-h100-x4"), Fraction(8 * 24, 8 * 50)),
        (machines.rail_optimized(8, 8), Fraction(8 * 56, 8 * 50)),
        (machines.load_topology("tpu-v4-4x4x4"), Fraction(32 * 32, 32 * 50)),
    ],
    ids=lambda topology: getattr(topology, "name", None),
)
def test_exact_values(topology, expected):
    assert bound(topology) == expected


def test_a_machine_of_which_no_cut_tells_all():
    """K(2,3): the best cut allows 2 s, but three pairs and one pair are two links apart: (6 + 8) x 2 over 12 links."""
    topology = duplex([(a, b) for a in (0, 1) for b in (2, 3, 4)], 5)
    assert worst_cut(topology) == 2
    assert bound(topology) == Fraction(7, 3)


def test_a_random_machine_of_which_no_cut_tells_all():
    topology = random_machine(9, 3, seed=2)
    assert worst_cut(topology) == Fraction(9, 7)
    assert bound(topology) == Fraction(21, 13)
    assert plain(topology) == pytest.approx(21 / 13, rel=1e-9)


@settings(max_examples=60)
@given(topologies())
def test_it_is_that_of_flows_and_no_cut_is_greater(topology):
    found = bound(topology)
    assert found >= worst_cut(topology) * (1 - Fraction(1, 10**6))
    assert float(found) == pytest.approx(plain(topology), rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_uneven_machines_and_rows_that_are_added_later(seed, monkeypatch):
    """Bandwidths of 1 to 500: the shortest way is often not that of the fewest links."""
    solve, rows = multicommodity._Program.solve, []
    monkeypatch.setattr(
        multicommodity._Program, "solve", lambda self, chosen: (rows.append(len(chosen)), solve(self, chosen))[1]
    )
    topology = random_machine(10, 5, seed, 1, 500)
    found = bound(topology)
    assert float(found) == pytest.approx(plain(topology), rel=1e-6)
    assert len(rows) > 1
    # all of them at once from the second time on gives the same
    monkeypatch.setattr(multicommodity, "ROUNDS", 1)
    assert float(bound(topology)) == pytest.approx(float(found), rel=1e-6)


@pytest.mark.parametrize("graph", [nx.frucht_graph(), nx.diamond_graph(), nx.bull_graph(), nx.moebius_kantor_graph()])
def test_equal_degrees_are_not_taken_for_symmetry(graph):
    """All nodes of Frucht's graph have three neighbours, and no two of them are alike."""
    topology = duplex(list(graph.edges), len(graph))
    assert float(bound(topology)) == pytest.approx(plain(topology), rel=1e-6)


def test_symmetries_make_it_small():
    def variables(topology):
        ends = topology.rank_nodes.tolist()
        graph = multicommodity._Graph.of(
            topology.n_nodes, topology.link_src, topology.link_dst, topology.link_bandwidth, ends
        )
        return multicommodity._Program.of(graph).variables

    # to GPUs and switches of the own node, the own rail, others; six kinds of edges once the adapters are joined
    assert variables(machines.rail_optimized(8, 8)) == variables(machines.rail_optimized(4, 8)) == 14
    assert variables(machines.fully_connected(64)) == 2
    assert variables(random_machine(8, 3, 0, 1, 500)) > 8 * 7


def test_links_that_are_joined_share_their_length():
    """A chain of two links has the length at the narrower one; parallel ones are as long as each other."""
    builder = machines.TopologyBuilder("chain")
    for name, kind in (("a", "gpu"), ("nic", "nic"), ("b", "gpu"), ("dead", "switch")):
        builder.add_node(name, kind)
    builder.add_duplex("a", "nic", 3 * G, 0)
    builder.add_duplex("nic", "b", G, 0, count=2)
    builder.add_duplex("b", "dead", 7 * G, 0)
    topology = builder.build()
    lengths, _ = ask(topology)
    narrow = np.array([{"nic", "b"} == {topology.nodes[a], topology.nodes[b]} for a, b in zip(
        topology.link_src.tolist(), topology.link_dst.tolist(), strict=True)])  # fmt: skip
    assert lengths[narrow].tolist() == [1, 1, 1, 1]
    assert not lengths[~narrow].any()
    assert bound(topology) == Fraction(1, 2)


def test_only_the_terminals_count():
    topology = machines.line(6, **RATE)
    assert bound(topology, [0, 5]) == 1
    assert bound(topology, [0, 1, 5]) == 2
    lengths, _ = ask(topology, [2, 3])
    assert sorted(lengths.tolist()) == [0] * 8 + [1, 1]


def test_bandwidths_without_a_common_measure():
    topology = machines.line(4, **RATE)
    builder = machines.TopologyBuilder("odd")
    for name in topology.nodes:
        builder.add_node(name, "gpu")
    rates = [2**61 - 1, 10**15 + 37, 99_999_999_999_971]
    for i, rate in enumerate(rates):
        builder.add_duplex(f"gpu{i}", f"gpu{i + 1}", rate, 0)
    assert bound(builder.build()) == Fraction(3 * G, rates[2])


def of_rates(ranks, rates):
    """A machine of the links of each pair of names and GB/s, 7e-9 for 7 bytes/s."""
    builder = machines.TopologyBuilder("odd")
    for name in dict.fromkeys(end for ends in rates for end in ends.split()):
        builder.add_node(name, "gpu" if name in ranks else "switch")
    for ends, rate in rates.items():
        builder.add_link(*ends.split(), round(rate * G), 0)
    return builder.build(ranks=ranks)


SLOW = 7e-9
NAMES = [f"g{i}" for i in range(6)]


@pytest.mark.parametrize(
    ("topology", "seconds"),
    [
        # all that goes to c has one link
        (of_rates(["a", "b", "c"], {"a b": 10, "b a": 10, "b c": 1, "c b": 1, "c a": SLOW}), 2.0),
        # HiGHS took the share of the slow link for nothing, and said that there was no greatest bound; flows say 9
        (
            of_rates(
                NAMES,
                {
                    "g0 g5": 2, "g5 g3": 8, "g3 g4": 4, "g4 s0": 2, "s0 g2": 1, "g2 g1": 1, "g1 g0": 3, "g0 s0": 3,
                    "s0 g0": 3, "g4 g3": 1, "g4 g5": 2, "g5 g4": 2, "g5 g0": SLOW, "g3 g5": 5, "g5 s0": 3, "s0 g5": 3,
                    "s0 g4": 1,
                },
            ),
            9.0,
        ),
        # the slow links are what counts: between {a, b} and {c, d}, 4 pairs on 7 bytes/s each way
        (
            of_rates(
                ["a", "b", "c", "d"],
                {"a b": 900, "b a": 900, "c d": 900, "d c": 900, "a c": SLOW, "d b": SLOW, "c b": 1e-9},
            ),
            4 / SLOW,
        ),
        # and so they are where nothing is as fast as 1e-9 of the fastest
        (of_rates(["a", "b", "c"], {"a b": 9e8, "b a": 9e8, "b c": 1e-9, "c b": 1e-9, "a c": 1e-9}), 2e9),
    ],
)  # fmt: skip
def test_links_that_are_much_slower_than_others(topology, seconds):
    assert float(bound(topology)) == pytest.approx(seconds, rel=2e-8)
    assert bound(topology) >= worst_cut(topology) * (1 - Fraction(1, 10**6))


@pytest.mark.parametrize("seed", range(12))
def test_no_cut_is_greater_whatever_the_rates(seed):
    """Rates from 1 to 10**16 bytes/s."""
    random = np.random.default_rng(seed)
    count = int(random.integers(3, 7))
    names = [f"g{i}" for i in range(count)]
    ways = {f"{a} {b}" for a, b in zip(names, [*names[1:], names[0]], strict=True)}
    ways |= {f"{a} {b}" for a, b in permutations(names, 2) if random.random() < 0.4}
    topology = of_rates(names, {way: max(1e-9, 10.0 ** random.uniform(-9, 7)) for way in sorted(ways)})
    assert bound(topology) >= worst_cut(topology) * (1 - Fraction(1, 10**6))


def test_a_program_that_one_method_does_not_solve_is_solved_by_the_other(monkeypatch):
    import scipy.optimize

    asked = []

    def stubborn(*args, method, **options):
        asked.append(method)
        answer = linprog(*args, method=method, **options)
        if method == "highs-ipm":
            answer.status = 4
        return answer

    monkeypatch.setattr(scipy.optimize, "linprog", stubborn)
    assert bound(machines.ring(4, **RATE)) == 6
    assert set(asked) == {"highs-ipm", "highs-ds"}


def test_the_same_twice():
    topology = random_machine(12, 3, 7)
    assert ask(topology)[0].tolist() == ask(topology)[0].tolist()


def test_what_is_not_answered(monkeypatch):
    assert ask(machines.switch(65)) is None
    assert ask(machines.switch(64)) is not None
    assert ask(machines.switch(4), [0]) is None
    assert ask(machines.switch(4), []) is None
    builder = machines.TopologyBuilder("one way")
    for name in ("a", "b"):
        builder.add_node(name, "gpu")
    builder.add_link("a", "b", G, 0)
    assert ask(builder.build()) is None
    with monkeypatch.context() as patch:
        patch.setattr(multicommodity, "MOST_ROWS", 10)
        assert ask(machines.ring(4)) is not None
        assert ask(machines.mesh((4, 4))) is None
    with monkeypatch.context() as patch:
        patch.setattr(multicommodity, "MOST_LINKS", 10)
        assert ask(machines.mesh((4, 4))) is None
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    assert ask(machines.ring(4)) is None


def test_any_lengths_are_a_bound():
    """What the caller relies on: the value of lengths drawn at random is never above that of the program."""
    topology = random_machine(7, 2, 3)
    best = bound(topology)
    random = np.random.default_rng(0)
    for _ in range(50):
        lengths = random.integers(0, 5, topology.n_links)
        if lengths.any():
            assert value(topology, lengths, topology.rank_nodes) <= best
    for order in permutations(range(3)):
        assert value(topology, np.resize(np.array(order), topology.n_links), topology.rank_nodes) <= best
