"""Two levels with any algorithms inside, leaders, rails, and the function that puts schedules on groups of ranks."""

from __future__ import annotations

import importlib
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest

from collsim import Collective, Schedule, ScheduleBuilder, algorithms, check, window
from collsim.algorithms.embed import assemble, embed
from collsim.engine.lowering.lower import lower
from collsim.engine.reference import run_reference
from collsim.errors import AlgorithmError
from collsim.schedule.dependencies import explicit_edges
from collsim.topology import Topology, rail_optimized
from tests.answers import run_both_ways
from tests.strategies import naive_rows

for module in ("all_pairs", "bruck", "circulant", "halving_doubling", "hierarchical", "recursive_doubling", "rooted"):
    importlib.import_module(f"collsim.algorithms.{module}")  # each puts its algorithms into the table

HALVES = ("all_reduce", "reduce_scatter", "all_gather")
ALL = [*((operation, name) for name in ("hierarchical", "rail") for operation in HALVES), ("all_reduce", "leader")]

WORKED = """\
all_reduce ranks=4 chunks=4
algorithm hierarchical {"nodes": 2, "inner": "ring", "outer": "ring"}
repeat 1 shift=-2 window=4
  step 0
    0 => 1  2+2
    1 => 0  0+2
    2 => 3  2+2
    3 => 2  0+2
repeat 1 shift=-1 window=2
  step 0
    0 => 2  1
    1 => 3  3
    2 => 0  0
    3 => 1  2
repeat 1 shift=-1 window=2
  step 0
    0 -> 2  0
    1 -> 3  2
    2 -> 0  1
    3 -> 1  3
repeat 1 shift=-2 window=4
  step 0
    0 -> 1  0+2
    1 -> 0  2+2
    2 -> 3  0+2
    3 -> 2  2+2"""


def proven(schedule: Schedule, elements: int | None = None) -> None:
    proof = check(schedule)
    assert (proof.complete, proof.unused, proof.warnings) == (True, (), ())
    assert Schedule.from_text(str(schedule)) == schedule
    n = schedule.ranks
    few = (0, 1, n - 1, 5 * n + 3) if n < 10 else (n - 1, 2 * n + 3)
    for number in few if elements is None else (elements,):
        run_both_ways(schedule, number)


def sent(schedule: Schedule) -> set[int]:
    counts: Counter[int] = Counter(dict.fromkeys(range(schedule.ranks), 0))
    for row in naive_rows(schedule):
        counts[row.src] += len(row.chunks)
    return set(counts.values())


def timed(schedule: Schedule, topology: Topology, size: int) -> int:
    return int(run_reference(lower(schedule, topology, size), "cut_through").end.max())


def test_worked_table() -> None:
    """Chunk 2i + j is sub-block j of segment i: two nodes of two ranks."""
    assert str(algorithms.build("all_reduce", "hierarchical", 4, nodes=2)) == WORKED


@pytest.mark.parametrize("ranks", range(1, 34))
@pytest.mark.parametrize(("operation", "name"), ALL)
def test_proven_and_executed(operation: str, name: str, ranks: int) -> None:
    proven(algorithms.build(operation, name, ranks))
    counts = [count for count in range(1, ranks + 1) if ranks % count == 0]
    proven(algorithms.build(operation, name, ranks, nodes=counts[ranks % len(counts)]))


@pytest.mark.parametrize("operation", HALVES)
@pytest.mark.parametrize(("ranks", "nodes"), [(8, 2), (12, 3), (12, 4), (6, [[0, 2, 4], [5, 3, 1]]), (5, 1), (5, 5)])
def test_any_algorithms_inside(operation: str, ranks: int, nodes: Any) -> None:
    inner = ["ring", "bidirectional_ring", "direct", "circulant", "bruck"]
    trees = ["tree", "double_binary_tree", "binomial_tree", "one_shot", "two_shot"]
    outer = [*(name for name in inner if name != "direct"), *trees] if operation == "all_reduce" else inner
    for number, (inside, between) in enumerate(product(inner, outer)):
        schedule = algorithms.build(operation, "hierarchical", ranks, nodes=nodes, inner=inside, outer=between)
        proven(schedule, 3 * ranks + number)


@pytest.mark.parametrize(("ranks", "nodes"), [(8, 2), (12, 3), (6, [[0, 2, 4], [5, 3, 1]]), (5, 5)])
def test_any_algorithms_between_leaders(ranks: int, nodes: Any) -> None:
    for inside, between in product(
        ("ring", "tree", "linear", "binomial_tree", "double_binary_tree"), ("ring", "recursive_doubling", "two_shot")
    ):
        proven(algorithms.build("all_reduce", "leader", ranks, nodes=nodes, inner=inside, outer=between), 41)


@pytest.mark.parametrize("inner", ["direct", "ring", "bidirectional_ring"])
@pytest.mark.parametrize("operation", HALVES)
def test_rails_with_all_parameters(operation: str, inner: str) -> None:
    for slices, pacing, nodes in product((1, 2, 5), (0, 1, 2), (1, 2, 4, [[7, 1, 2, 3], [4, 5, 6, 0]])):
        proven(algorithms.build(operation, "rail", 8, nodes=nodes, inner=inner, slices=slices, window=pacing), 61)


@pytest.mark.parametrize(("ranks", "nodes"), [(8, 2), (12, 3), (12, 4), (9, 3)])
def test_steps_and_volume(ranks: int, nodes: int) -> None:
    n, g = nodes, ranks // nodes
    for operation in HALVES:
        phases = 2 if operation == "all_reduce" else 1
        schedule = algorithms.build(operation, "hierarchical", ranks, nodes=nodes)
        assert schedule.steps == phases * (g - 1 + n - 1)
        assert sent(schedule) == {phases * (ranks - 1)}  # blocks of 1/N
        rail = algorithms.build(operation, "rail", ranks, nodes=nodes, slices=3)
        assert sent(rail) == {phases * (ranks - 1) * 3}
    leader = algorithms.build("all_reduce", "leader", ranks, nodes=nodes)
    levels = (g - 1).bit_length()
    assert leader.steps == 2 * levels + 2 * (n - 1)


@pytest.mark.parametrize("name", ["hierarchical", "rail"])
@pytest.mark.parametrize("operation", HALVES)
def test_only_equal_places_talk_between_nodes(operation: str, name: str) -> None:
    for row in naive_rows(algorithms.build(operation, name, 24, nodes=4)):
        assert row.src // 6 == row.dst // 6 or row.src % 6 == row.dst % 6


def test_the_network_carries_a_share_and_never_the_spine() -> None:
    topology, size = rail_optimized(4, 8), 32 * 1000
    for name in ("hierarchical", "rail"):
        program = lower(algorithms.build("all_reduce", name, 32, nodes=4), topology, size)
        loads = np.bincount(
            program.visit_station, np.repeat(program.bytes, np.diff(program.visit_ptr)), topology.n_links
        )[: topology.n_links]
        names = [topology.link_name(link) for link in range(topology.n_links)]
        assert {load for link, load in zip(names, loads, strict=True) if "spine" in link} == {0}
        network = {load for link, load in zip(names, loads, strict=True) if link.startswith("leaf") and "nic" in link}
        assert network == {2 * 3 / 4 * size / 8}


def test_slices_overlap_the_levels() -> None:
    topology, size = rail_optimized(4, 8), 1 << 26
    flat = timed(algorithms.build("all_reduce", "hierarchical", 32, nodes=4), topology, size)
    one = timed(algorithms.build("all_reduce", "rail", 32, nodes=4, slices=1, inner="ring"), topology, size)
    assert one == flat
    for inner in ("ring", "direct"):
        times = [
            timed(algorithms.build("all_reduce", "rail", 32, nodes=4, slices=k, inner=inner), topology, size)
            for k in (1, 2, 4, 8)
        ]
        assert times == sorted(times, reverse=True)
        assert times[-1] < 0.65 * flat
    # without pacing all slices start at once, and none is done early
    loose = timed(algorithms.build("all_reduce", "rail", 32, nodes=4, slices=8, inner="ring", window=0), topology, size)
    assert loose > 1.4 * timed(
        algorithms.build("all_reduce", "rail", 32, nodes=4, slices=8, inner="ring"), topology, size
    )


@pytest.mark.parametrize("name", ["hierarchical", "leader", "rail"])
def test_eight_elements_in_nodes_of_six_are_not_padded_over_the_end(name: str) -> None:
    """A hierarchical all_reduce that padded to a multiple of the node's ranks once wrote beyond its buffer."""
    schedule = algorithms.build("all_reduce", name, 12, nodes=2)
    assert int(schedule.elements(8).sum()) == 8
    for elements in (8, 6, 5, 13):
        run_both_ways(schedule, elements)


def test_large_clusters_stay_small() -> None:
    for operation, phases in (("all_reduce", 4), ("reduce_scatter", 2), ("all_gather", 2)):
        schedule = algorithms.build(operation, "hierarchical", 100_000, nodes=12_500)
        assert [len(phase.block) for phase in schedule.phases] == [100_000] * phases
        assert all(phase.block.lists is None for phase in schedule.phases)
        columns = [value for phase in schedule.phases for part in (phase, phase.block) for value in vars(part).values()]
        assert sum(value.nbytes for value in columns if isinstance(value, np.ndarray)) < phases * 5_000_000
        assert schedule.steps == (2 if operation == "all_reduce" else 1) * (7 + 12_499)
    leaders = algorithms.build("all_reduce", "leader", 100_000, nodes=12_500)
    assert sum(len(phase.block) for phase in leaders.phases) < 250_000


@pytest.mark.parametrize("name", ["hierarchical", "leader", "rail"])
@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (5, r"^nodes: expected a divisor of the 12 ranks, got 5; use 4$"),
        (0, r"^nodes: expected a whole number of at least 1, got 0$"),
        (1.5, r"^nodes: expected a number, or the ranks of each node, got 1.5$"),
        (
            [[0, 1, 2], [3, 4]],
            r"^nodes: expected equally many ranks in each node, got 2, 3; use an algorithm of one level",
        ),
        ([], r"^nodes: expected equally many ranks in each node, got none;"),
        ([[0, 1], [1, 2]], r"^nodes: expected each of the ranks 0 to 11 once, got \[\[0, 1\], \[1, 2\]\]$"),
    ],
)
def test_bad_nodes(name: str, nodes: Any, message: str) -> None:
    with pytest.raises(AlgorithmError, match=message):
        algorithms.build("all_reduce", name, 12, nodes=nodes)


def test_other_refusals() -> None:
    with pytest.raises(AlgorithmError, match=r"^inner: algorithm: reduce_scatter has .*, got 'tree'"):
        algorithms.build("all_reduce", "hierarchical", 8, inner="tree")
    with pytest.raises(AlgorithmError, match=r"^outer: algorithm: all_reduce has .*, got 'rings'; did you mean 'ring'"):
        algorithms.build("all_reduce", "hierarchical", 8, outer="rings")
    with pytest.raises(AlgorithmError, match=r"^inner: "):
        algorithms.build("all_gather", "rail", 8, inner="tree")
    for value in (-1, 1.5, True, "2"):
        with pytest.raises(AlgorithmError, match=r"^window: expected a whole number of at least 0 \(0 for no pacing\)"):
            algorithms.build("all_reduce", "rail", 8, window=value)
    with pytest.raises(AlgorithmError, match=r"rows are more than the 67,108,864 that a schedule can have"):
        algorithms.build("all_reduce", "rail", 8, slices=10**12)


# putting schedules on groups


def on_groups(schedule: Schedule, groups: list[list[int]], k: int = 1, operation: str = "all_reduce") -> Schedule:
    """Return the schedule of groups that do not know of each other, each with chunks of its own."""
    ranks, own = np.array(groups), schedule.chunks * k
    pieces = np.arange(len(groups) * own).reshape(len(groups), schedule.chunks, k)
    part = embed(schedule, ranks, pieces, np.arange(len(groups)))
    return assemble(Collective(operation, ranks.size), len(groups) * own, [part])


def test_groups_do_what_the_schedule_does() -> None:
    for schedule in (algorithms.ring_all_reduce(3, slices=2), algorithms.bidirectional_ring_all_reduce(3)):
        groups = [[0, 4, 2], [1, 3, 5]]
        whole = naive_rows(on_groups(schedule, groups, 3))
        for number, group in enumerate(groups):
            mine = [row for row in whole if row.src in group]
            small = naive_rows(schedule)
            assert len(mine) == len(small)
            for step in range(schedule.steps):
                expected = Counter(
                    (group[r.src], group[r.dst], frozenset(3 * c + i for c, _ in r.chunks for i in range(3)))
                    for r in small
                    if r.step == step
                )
                first = number * schedule.chunks * 3
                got = Counter((r.src, r.dst, frozenset(c - first for c, _ in r.chunks)) for r in mine if r.step == step)
                assert got == expected


def test_repeats_stay_repeats_where_windows_fit() -> None:
    ring = algorithms.ring_all_reduce(4)
    assert [phase.times for phase in on_groups(ring, [[0, 1, 2, 3], [4, 5, 6, 7]], 5).phases] == [3, 3]
    # a window of chunks that do not stand for neighbours would not wrap where it should
    scattered = np.array([[[0, 4], [2, 6], [1, 5], [3, 7]]])
    phases, _, _ = embed(ring, np.arange(4)[None, :], scattered)
    assert [(phase.times, phase.steps) for phase in phases] == [(1, 3), (1, 3)]
    proven(assemble(Collective("all_reduce", 4), 8, [(phases, (), 0)]), 29)


def test_windows_that_lie_across_those_of_the_whole_are_written_out() -> None:
    ring = algorithms.ring_all_reduce(4)
    for first, times in ((0, 3), (4, 3), (2, 1), (5, 1)):
        phases, _, _ = embed(ring, np.arange(4)[None, :], first + np.arange(4).reshape(1, 4, 1))
        assert [phase.times for phase in phases] == [times, times]
        moved = {chunk for phase in phases for part in (phase.block.src_chunk,) for chunk in part.tolist()}
        assert moved == set(range(first, first + 4))


@pytest.mark.parametrize("inner", ["ring", "direct"])
def test_a_slice_waits_for_the_last_message_of_the_one_before(inner: str) -> None:
    schedule = algorithms.build("all_reduce", "rail", 12, nodes=3, slices=3, window=1, inner=inner)
    t = schedule.expand()
    transfer, pred, issued, _ = explicit_edges(schedule)
    assert issued.all()
    # two slices wait, in two stages on rails and two inside nodes
    assert len(transfer) == 2 * 12 * (2 + 2 * (1 if inner == "ring" else 3))
    first = np.cumsum([0, *(phase.transfers for phase in schedule.phases)])
    for waits, before in zip(transfer.tolist(), pred.tolist(), strict=True):
        assert t.src[waits] == t.src[before]
        here, there = (int(np.searchsorted(first, number, side="right")) - 1 for number in (waits, before))
        assert len(schedule.phases[here].block) == len(schedule.phases[there].block)
        mine = np.flatnonzero(t.src[first[there] : first[there + 1]] == t.src[before]) + first[there]
        assert before == mine[-1]
        assert t.step[waits] == t.step[first[here]]


def test_pacing_goes_with_the_rows() -> None:
    paced = window(algorithms.ring_all_reduce(3, slices=3), 1)
    whole = on_groups(paced, [[0, 2, 4], [5, 3, 1]])
    assert len(whole.edges) == 2 * len(paced.edges)
    for edge in whole.edges:
        row, pred = whole.phases[edge.phase].block, whole.phases[edge.pred_phase].block
        assert (row.src[edge.row], row.dst[edge.row]) == (pred.src[edge.pred_row], pred.dst[edge.pred_row])
    with pytest.raises(AlgorithmError, match=r"^ring: expected an algorithm without pacing where windows of chunks"):
        embed(paced, np.arange(3)[None, :], np.arange(9).reshape(1, 9, 1)[:, ::-1])


def test_strides_and_scratch_go_along() -> None:
    b = ScheduleBuilder(Collective("all_reduce", 2), chunks=4, scratch=4)
    with b.repeat(2, shift=1):
        b.copy([0, 1], [1, 0], 0, count=2, stride=2, dst_buffer="scratch", dst_chunk=0)
        b.reduce([0, 1], [0, 1], 0, count=2, stride=2, src_buffer="scratch", step=1)
    small = b.build()
    proven(small, 12)
    for k in (1, 3):
        pieces = np.arange(4 * k).reshape(1, 4, k)
        phases, edges, scratch = embed(small, np.array([[1, 0]]), pieces, None, 5)
        assert phases[0].times == 2
        assert (phases[0].block.lists is None) == (k == 1)
        assert scratch == 12 if k == 1 else scratch >= 5 + 4 * k
        proven(assemble(Collective("all_reduce", 2), 4 * k, [(phases, edges, scratch)]), 12 * k)


def test_what_cannot_be_part_of_another_algorithm() -> None:
    b = ScheduleBuilder(Collective("all_reduce", 1), chunks=1, in_place=False)
    b.copy(0, 0, 0, src_buffer="input")
    with pytest.raises(AlgorithmError, match=r"^schedule: .*, got one that does not work in place$"):
        embed(b.build(), np.array([[0]]), np.zeros((1, 1, 1), dtype=np.int64))
    layout = ScheduleBuilder(Collective("all_reduce", 1), chunks=1, layout=[(1, 7)]).build()
    with pytest.raises(AlgorithmError, match=r"^schedule: .*, got one that fixes the sizes of its chunks$"):
        embed(layout, np.array([[0]]), np.zeros((1, 1, 1), dtype=np.int64))


# nodes that cannot be, and windows


@pytest.mark.parametrize(
    ("operation", "name"),
    [("all_reduce", "hierarchical"), ("all_reduce", "leader"), ("all_gather", "rail"), ("all_to_all", "hierarchical")],
)
@pytest.mark.parametrize(("nodes", "near"), [(10**12, 12), (2**70, 12), (11, 6), (5, 4), (np.int64(7), 6)])
def test_the_nearest_number_of_nodes_is_found_at_once(operation: str, name: str, nodes: int, near: int) -> None:
    with pytest.raises(AlgorithmError) as caught:
        algorithms.build(operation, name, 12, nodes=nodes)
    assert str(caught.value) == f"nodes: expected a divisor of the 12 ranks, got {nodes}; use {near}"


@pytest.mark.parametrize("count", range(1, 40))
def test_the_nearest_number_of_nodes_is_the_greatest_divisor_below(count: int) -> None:
    for ranks in range(1, 40):
        if ranks % count:
            near = max(size for size in range(1, count + 1) if ranks % size == 0)
            with pytest.raises(AlgorithmError, match=f"; use {near}$"):
                algorithms.build("all_reduce", "hierarchical", ranks, nodes=count)


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        *((operation, name) for operation in ("all_reduce", "all_gather") for name in ("rail", "themis")),
        *(("all_to_all", name) for name in ("pairwise", "pairwise_xor", "nccl_p2p")),
    ],
)
def test_none_and_0_are_no_pacing(operation: str, name: str) -> None:
    loose = algorithms.build(operation, name, 8, window=0)
    assert algorithms.build(operation, name, 8, window=None) == loose
    assert len(loose.edges) == 0
    assert len(algorithms.build(operation, name, 8, window=1).edges) > 0
    for value in (-1, 1.5, True, "2"):
        with pytest.raises(AlgorithmError, match=r"^window: expected a whole number of at least 0 \(0 for no pacing\)"):
            algorithms.build(operation, name, 8, window=value)
