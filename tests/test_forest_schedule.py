"""From a forest to a schedule: chunks and paths, pacing, proofs, and how near it comes to the bound."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim.topology
from collsim import Schedule, algorithms, check, compare, run, simulate
from collsim.algorithms.derive import reverse
from collsim.algorithms.forest import _PACKED
from collsim.engine.fit import wires_of
from collsim.engine.lowering.roll import roll
from collsim.errors import AlgorithmError, InputError
from collsim.forests import Branch, Forest, Tree, Wires, refuse_wrong, turned
from collsim.topology import Topology, TopologyBuilder, load_topology
from tests.answers import run_both_ways
from tests.test_roll import agree

GB = 10**9
BLOCKED = ("all_gather", "reduce_scatter")
OPERATIONS = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce")


def machine(name: str) -> Topology:
    if name == "mesh-4x4":
        return collsim.topology.mesh((4, 4), bandwidth="50GB/s", latency="1us")
    return load_topology(name)


def random_machine(seed: int, ranks: int, switches: int = 0) -> Topology:
    """One-directional links of different widths at random, round which there is a way; 1 us each."""
    draw = random.Random(seed)
    b = TopologyBuilder(f"random {seed}")
    names = [f"gpu{i}" for i in range(ranks)] + [f"sw{i}" for i in range(switches)]
    for name in names:
        b.add_node(
            name, kind="switch" if name.startswith("sw") else "gpu", forwards=draw.random() < 0.7 or name[0] == "s"
        )
    around = draw.sample(names, len(names))
    links = list(zip(around, around[1:] + around[:1], strict=True))
    links += [tuple(draw.sample(names, 2)) for _ in range(draw.randint(1, 3) * ranks)]
    for src, dst in links:
        b.add_link(src, dst, draw.choice([10, 20, 25, 40, 50]) * GB, 10**6)
    return b.build()


def build(operation: str, topology: Topology, root: int = 0, **parameters) -> Schedule:
    return algorithms.build(operation, "forest", topology.n_ranks, root, wires=wires_of(topology), **parameters)


def planted(topology: Topology, *trees: Tree, up: bool = False, root: int | None = None, rate: int = 1) -> Forest:
    """Let the algorithms take these trees for the machine."""
    forest = Forest(topology.n_ranks, trees, Fraction(rate))
    refuse_wrong(forest, turned(wires_of(topology)) if up else wires_of(topology))
    _PACKED.setdefault(wires_of(topology), {})[up, root, None] = forest
    return forest


def line() -> Topology:
    """Three ranks in a row, two links between the first two."""
    b = TopologyBuilder("line")
    for name in ("a", "b", "c"):
        b.add_node(name, kind="gpu")
    b.add_duplex("a", "b", 10 * GB, 1000, count=2)
    b.add_duplex("b", "c", 20 * GB, 1000)
    return b.build()


TWO_WAYS = Tree(0, 3, (Branch(0, 1, 0, 2, ("a->b#0",)), Branch(0, 1, 2, 1, ("a->b#1",)), Branch(1, 2, 0, 3, ("b->c",))))
"""Three units from the first rank: two over one of the parallel links, one over the other."""


def test_chunks_of_a_slice_lie_side_by_side_and_move_together():
    topology = line()
    planted(topology, TWO_WAYS, root=0)
    schedule = build("broadcast", topology, slices=2, window=0)
    assert str(schedule) == (
        "broadcast ranks=3 chunks=6 root=0\n"
        'algorithm forest {"wires": "given", "slices": 2, "window": 0, "limit": 128}\n'
        'path ["a->b#0"]\npath ["b->c"]\npath ["a->b#1"]\n'
        "repeat 2\n"
        "  step 0\n"
        "    0 -> 1  0+2 shift=2 window=4 via=0\n"
        "    0 -> 1  4 shift=1 window=2 via=2\n"
        "  step 1\n"
        "    1 -> 2  0+2 shift=2 window=4 via=1\n"
        "    1 -> 2  4 shift=1 window=2 via=1"
    )
    assert Schedule.from_text(str(schedule)) == schedule
    assert check(schedule).complete
    loops = agree(schedule, topology, 600)
    assert loops.times.tolist() == [2]
    assert sorted(set(simulate(schedule, topology, 600).records["bytes"].tolist())) == [100, 200]


def test_a_window_waits_for_the_branch_itself_and_for_the_busiest_of_its_level():
    topology = line()
    planted(topology, TWO_WAYS, root=0)
    schedule = build("broadcast", topology, slices=5, window=2)
    found = {(edge.row, edge.pred_row, edge.distance) for edge in schedule.edges}
    assert {edge.at for edge in schedule.edges} == {"issued"}
    # a->b#0 carries two units and leads; both of rank 1 leave by the same port
    assert found == {(0, 0, 2), (1, 1, 2), (2, 2, 2), (3, 3, 2), (1, 0, 3), (3, 2, 3)}
    for slices, window in ((2, 2), (5, 0), (5, None), (1, 1)):
        assert not build("broadcast", topology, slices=slices, window=window).edges
    # with units that are parted otherwise windows would not begin at multiples of their size
    odd = Tree(0, 3, (Branch(0, 1, 0, 1, ("a->b#1",)), Branch(0, 1, 1, 2, ("a->b#0",)), Branch(1, 2, 0, 3, ("b->c",))))
    planted(topology, odd, root=0)
    schedule = build("broadcast", topology, slices=4)
    assert schedule.phases[0].window == 0
    assert check(schedule).complete
    agree(schedule, topology, 1200)


def test_levels_keep_step_and_what_has_the_longest_way_to_go_is_sent_first():
    topology = collsim.topology.fully_connected(4)

    def branch(parent, child):
        return Branch(parent, child, 0, 1, (f"gpu{parent}->gpu{child}",))

    trees = [Tree(0, 1, (branch(0, 2), branch(0, 1), branch(1, 3)))]
    trees += [Tree(root, 1, tuple(branch(root, (root + i) % 4) for i in (1, 2, 3))) for root in (1, 2, 3)]
    planted(topology, *trees)
    schedule = build("all_gather", topology, slices=9)
    block = schedule.phases[0].block
    moves = list(zip(block.step.tolist(), block.src.tolist(), block.dst.tolist(), strict=True))
    assert moves[:2] == [(0, 0, 1), (0, 0, 2)]
    assert moves[-1] == (1, 1, 3)
    # two units leave rank 1 for rank 3, one each for the others: the former lead the first level, and that the second
    leads = moves.index((0, 1, 3))
    assert [(edge.pred_row, edge.distance) for edge in schedule.edges if edge.row == len(moves) - 1] == [
        (11, 1),
        (leads, 2),
    ]
    assert [edge.pred_row for edge in schedule.edges if edge.row == moves.index((0, 1, 2))][1:] == [leads]
    assert len(schedule.edges) == 12 + 12 - 4  # one leads at each of the four ranks


def test_blocks_of_ranks_are_in_place():
    schedule = build("all_gather", machine("dgx-1-v100"), slices=3)
    assert schedule.order is None
    block = schedule.phases[0].block
    roots = block.src[block.step == 0]
    cuts = schedule.chunks // 8
    assert (block.src_chunk[block.step == 0] // cuts == roots).all()


@pytest.mark.parametrize("name", ["mi300x", "dgx-1-v100", "dgx-a100-x2", "torus-4x4", "mesh-4x4"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_97_per_cent_of_the_bound_at_1_gib(operation, name):
    topology = machine(name)
    result = run(operation, topology, "1GiB", "forest", root=0)
    assert result.checked.complete
    assert result.efficiency >= 0.97
    assert result.efficiency <= 1


@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter", "broadcast"])
def test_97_per_cent_of_the_bound_on_four_nodes(operation):
    assert run(operation, machine("dgx-h100-x4"), "1GiB", "forest").efficiency >= 0.97


def test_small_messages_wait_for_latency_only_once_a_level():
    topology = machine("dgx-a100-x2")
    for operation in OPERATIONS:
        result = run(operation, topology, 64, "forest")
        longest = max(int(topology.link_latency[topology.route(a, b),].sum()) for a in range(16) for b in range(16))
        levels = result.schedule.phases[0].block.steps
        assert result.time_ps <= 1.02 * levels * longest  # however many slices there are, most of no bytes


def test_without_pacing_what_is_passed_on_waits_behind_what_was_ready_at_the_start():
    topology = machine("dgx-1-v100")
    with_window, without = (run("all_gather", topology, "1GiB", "forest", window=n) for n in (1, 0))
    assert with_window.efficiency > 0.97
    assert without.efficiency < 0.9


def test_branches_of_a_rank_keep_step_so_that_none_fills_the_links_behind_a_wide_port():
    """Rank 1 could send at 40 over the switch; beyond it only 20 are left for that and for what rank 0 sends."""
    b = TopologyBuilder("wide port")
    for name in ("gpu0", "gpu1", "gpu2", "sw"):
        b.add_node(name, kind="gpu" if name[0] == "g" else "switch")
    for src, dst, rate in (
        ("gpu0", "sw", 10), ("gpu1", "sw", 40), ("sw", "gpu2", 20), ("gpu2", "gpu0", 10), ("gpu1", "gpu0", 10),
        ("gpu0", "gpu1", 20), ("gpu2", "gpu1", 20),
    ):  # fmt: skip
        b.add_link(src, dst, rate * GB, 10**6)
    topology = b.build()
    planted(
        topology,
        Tree(0, 1, (Branch(0, 2, 0, 1, ("gpu0->sw", "sw->gpu2")), Branch(0, 1, 0, 1, ("gpu0->gpu1",)))),
        Tree(1, 1, (Branch(1, 2, 0, 1, ("gpu1->sw", "sw->gpu2")), Branch(1, 0, 0, 1, ("gpu1->gpu0",)))),
        Tree(2, 1, (Branch(2, 1, 0, 1, ("gpu2->gpu1",)), Branch(2, 0, 0, 1, ("gpu2->gpu0",)))),
        rate=10 * GB,
    )
    schedule = build("all_gather", topology, slices=50)
    third = 3 * 10**9
    result = simulate(schedule, topology, 3 * third)
    assert third / 10e9 <= result.time <= 1.03 * third / 10e9
    block = schedule.phases[0].block
    wide = np.flatnonzero((block.src == 1) & (block.dst == 2))[0]
    ends = result.records["end_ps"].reshape(50, -1)[:, wide]
    # without a narrow branch to keep step with it would be done in a quarter of the time or so
    assert ends[-1] > 0.9 * result.time_ps


@pytest.mark.parametrize("operation", OPERATIONS)
def test_any_number_of_ranks_with_and_without_a_machine(operation):
    for ranks in (1, 2, 3, 7):
        root = ranks // 2 if operation in ("broadcast", "reduce") else 0
        plain = algorithms.build(operation, "forest", ranks, root)
        assert check(plain).complete
        assert not plain.paths
        run_both_ways(algorithms.build(operation, "forest", ranks, root, slices=2, trees=3), 41)
        topology = random_machine(ranks, ranks, 1) if ranks > 1 else collsim.topology.switch(1)
        schedule = build(operation, topology, root, slices=3)
        assert check(schedule).complete
        run_both_ways(schedule, 97)
        assert simulate(schedule, topology, 97).transfers == schedule.transfers


@pytest.mark.parametrize("operation", OPERATIONS)
def test_fewer_bytes_than_chunks_and_both_engines(operation):
    topology = machine("dgx-1-v100")
    schedule = build(operation, topology, slices=4)
    for size in (0, 3, 1000, 100_003):
        for network in ("cut_through", "store_and_forward", "fluid"):
            times = {
                simulate(schedule, topology, size, network=network, engine=engine).time_ps
                for engine in ("reference", "compiled")
            }
            assert len(times) == 1
    run_both_ways(schedule, 1001)


def test_the_way_up_is_the_way_down_of_the_machine_turned_round():
    topology = random_machine(5, 8, 2)
    wires = wires_of(topology)
    for operation, mirror, root in (("all_gather", "reduce_scatter", 0), ("broadcast", "reduce", 3)):
        down = algorithms.build(operation, "forest", 8, root, wires=turned(wires), slices=1, window=0)
        up = algorithms.build(mirror, "forest", 8, root, wires=wires, slices=1, window=0)
        moves = []
        for schedule in (reverse(down, mirror), up):
            b = schedule.phases[0].block
            paths = [schedule.paths[i] for i in b.via]
            moves.append(sorted(zip(b.step, b.src, b.dst, b.src_chunk, b.count, paths, strict=True)))
        assert moves[0] == moves[1]
        assert simulate(up, topology, 8000).time_ps > 0  # its paths are those of real links


def test_all_reduce_turns_round_slice_by_slice_and_may_gather_elsewhere():
    topology = machine("mesh-4x4")
    result = run("all_reduce", topology, "1GiB", "forest", records=True)
    # 24 links both ways: 2 x 15 bytes have to cross them for each byte
    assert 0.97 * 80 * GB < result.algbw < 80 * GB
    twice = sum(run(operation, topology, "1GiB", "forest").time for operation in BLOCKED)
    assert result.time < 0.75 * twice
    block, slices = result.schedule.phases[0].block, result.schedule.phases[0].times
    ends = result.records["end_ps"].reshape(slices, -1)
    down = np.flatnonzero(~block.reduce)
    assert ends[0, down].max() < 0.1 * result.time_ps
    assert block.reduce[: len(block) // 2].all()


def test_repeats_stay_and_every_rank_receives_each_byte_once():
    topology = machine("dgx-h100-x4")
    schedule = build("all_gather", topology, slices=8)
    loops = roll(schedule, topology, schedule.chunks * 10)
    assert loops.times.tolist() == [8]
    assert loops.rows == len(schedule.phases[0].block)
    topology = machine("torus-4x4")
    schedule = build("all_gather", topology, slices=8)
    received = np.zeros(16, dtype=np.int64)
    block = schedule.phases[0].block
    np.add.at(received, block.dst, block.count * 8)
    assert (received == schedule.chunks - schedule.chunks // 16).all()


def test_slices_by_default_grow_with_the_levels_and_stop_at_many_transfers():
    one, two = algorithms.build("all_gather", "forest", 8), algorithms.build("all_reduce", "forest", 8)
    assert (one.phases[0].times, two.phases[0].times) == (16, 80)
    assert algorithms.build("all_reduce", "forest", 64).phases[0].times == 64
    large = algorithms.build("all_gather", "forest", 1024)
    assert large.transfers <= 2**22


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"wires": "wires"}, "wires: expected a Wires, as collsim.run takes it from the topology, got 'wires'"),
        ({"wires": wires_of(line())}, "wires: expected those of a machine of 8 ranks, got 3"),
        (
            {"wires": wires_of(machine("mi300x")), "limit": 7},
            "into a machine of 8 ranks would take .* expected at most 7",
        ),
        ({"limit": 0}, "limit: expected a whole number of at least 1, got 0"),
        ({"trees": 0}, "trees: expected a whole number of at least 1, got 0"),
        ({"slices": 0}, "slices: expected a whole number of at least 1, got 0"),
        ({"window": -1}, "window: expected a whole number of at least 0"),
        ({"slices": 2**30}, "rows are more than"),
        ({"trees": 2**70}, "rows are more than"),
    ],
)
def test_refusals(parameters, message):
    for operation in OPERATIONS:
        with pytest.raises(AlgorithmError, match=message):
            algorithms.build(operation, "forest", 8, **parameters)


def test_the_machine_is_taken_from_the_topology_and_not_printed():
    result = run("all_gather", line(), "1MiB", "forest")
    assert dict(result.schedule.parameters) == {"wires": "given", "window": 1, "limit": 128}
    assert result.theory is None
    found = compare("broadcast", line(), ["1MiB"], algorithms=["forest", "ring"])
    assert found.results["forest"][2**20].schedule.paths


A = ("a", "b", "sw"), [0, 1], [False, False, True]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ranks": [0, 3]}, "wires: ranks: expected nodes 0 to 2, got 0 to 3"),
        ({"ranks": [0, 0]}, r"wires: ranks: expected at least one node, each once, got \[0, 0\]"),
        ({"ranks": []}, "wires: ranks: expected at least one node"),
        ({"passes": [True]}, r"wires: passes: expected 3 values in a row, got a shape of \(1,\)"),
        ({"src": [0, 1]}, r"wires: src: expected 3 values in a row"),
        ({"bandwidth": [1, 0, 1]}, "wires: bandwidth: expected at least 1 byte/s, got 0"),
        ({"dst": [0, 2, 1]}, "wires: expected links between two nodes, got 'x'"),
    ],
)
def test_wires_that_are_none(change, message):
    given = {
        "nodes": ("a", "b", "sw"), "ranks": [0, 1], "passes": [True, False, True], "src": [0, 1, 2], "dst": [2, 2, 1],
        "bandwidth": [3, 3, 3], "links": ("x", "y", "z"),
    }  # fmt: skip
    assert Wires(**given).passes.tolist() == [False, False, True]
    with pytest.raises(InputError, match=message):
        Wires(**{**given, **change})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tree(0, 0, ()), "tree: expected a root and at least one unit, got root 0, 0 units"),
        (lambda: Tree(0, 1, (Branch(1, 2, 0, 1, ()),)), "1 sends units 0 to 0 to 2 before it has them"),
        (lambda: Tree(0, 1, (Branch(0, 1, 0, 1, ()), Branch(0, 1, 0, 1, ()))), "1 gets a unit of 0 to 0 twice"),
        (lambda: Tree(0, 1, (Branch(0, 0, 0, 1, ()),)), "0 gets a unit of 0 to 0 twice"),
        (lambda: Tree(0, 1, (Branch(0, 1, 0, 2, ()),)), "some of the units 0 to 0"),
        (lambda: Forest(2, (Tree(0, 1, ()),), Fraction(1)), "to reach all 2 ranks, got 0 arrivals where 1 are needed"),
        (lambda: Forest(1, (Tree(0, 1, (Branch(0, 1, 0, 1, ()),)),), Fraction(1)), "expected ranks below 1, got 1"),
        (lambda: Forest(1, (Tree(0, 1, ()),), Fraction(0)), "rate: expected more than 0 bytes/s"),
        (lambda: Forest(1, (), Fraction(1)), "expected ranks and trees, got 1 ranks, 0 trees"),
    ],
)
def test_trees_that_are_none(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("path", "rate", "message"),
    [
        (
            ("a->b#0",),
            11 * GB,
            "link 'a->b#0' carries 1 units of 11000000000 bytes/s; expected at most its 10000000000",
        ),
        (("a->b",), 1, "branch 0 -> 1: no link 'a->b'"),
        (("b->c",), 1, "link 'b->c' does not begin at 'a', where it has come to"),
        ((), 1, "the path ends at 'a', not at 'b'"),
        (("a->b#0", "b->a#0", "a->b#1"), 1, "nothing passes 'b'; expected the path to end there"),
    ],
)
def test_forests_that_the_machine_does_not_have(path, rate, message):
    tree = Tree(0, 1, (Branch(0, 1, 0, 1, path), Branch(1, 2, 0, 1, ("b->c",))))
    with pytest.raises(InputError, match=message):
        refuse_wrong(Forest(3, (tree,), Fraction(rate)), wires_of(line()))
    with pytest.raises(InputError, match="3 ranks, wires of 8; expected as many"):
        refuse_wrong(Forest(3, (tree,), Fraction(rate)), wires_of(machine("mi300x")))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), operation=st.sampled_from(["all_gather", "reduce_scatter", "broadcast", "reduce"]))
def test_random_asymmetric_machines_come_within_five_per_cent(seed, operation):
    topology = random_machine(seed, 16)
    result = run(operation, topology, "4GiB", "forest", root=seed % 16 if operation in ("broadcast", "reduce") else 0)
    assert result.checked.complete
    assert 0.95 < result.efficiency <= 1
