"""MultiTree on any topology, and Themis, which balances the dimensions of a torus."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collsim import Schedule, algorithms, check
from collsim.algorithms import multitree, themis, torus
from collsim.algorithms.themis import themis_orders
from collsim.engine.lowering.lower import lower
from collsim.engine.reference import run_reference
from collsim.errors import AlgorithmError
from collsim.topology import (
    Topology,
    bidirectional_ring,
    fully_connected,
    line,
    load_topology,
    mesh,
    rail_optimized,
    ring,
    switch,
)
from collsim.topology import torus as torus_of
from collsim.topology.structure import dimension_bandwidths, rank_routes
from tests.answers import run_both_ways
from tests.strategies import naive_rows

HALVES = ("all_reduce", "reduce_scatter", "all_gather")

WORKED = """\
all_gather ranks=4 chunks=4
repeat 1
  step 0
    0 -> 1  0
    0 -> 2  0
    1 -> 0  1
    1 -> 3  1
    2 -> 0  2
    2 -> 3  2
    3 -> 1  3
    3 -> 2  3
  step 1
    1 -> 3  0
    0 -> 2  1
    0 -> 1  2
    1 -> 0  3"""


def proven(schedule: Schedule) -> None:
    proof = check(schedule)
    assert (proof.complete, proof.unused, proof.warnings) == (True, (), ())
    assert Schedule.from_text(str(schedule)) == schedule
    n = schedule.ranks
    for number in (0, 1, n - 1, 5 * n + 3) if n < 10 else (n - 1, 2 * n + 3):
        run_both_ways(schedule, number)


def timed(schedule: Schedule, topology: Topology, size: int, **options: Any) -> float:
    return int(run_reference(lower(schedule, topology, size, **options), "cut_through").end.max()) * 1e-12


def rows_by_step(schedule: Schedule) -> dict[int, set[tuple[Any, ...]]]:
    steps: dict[int, set[tuple[Any, ...]]] = {}
    for row in naive_rows(schedule):
        steps.setdefault(row.step, set()).add((row.src, row.dst, row.reduce, row.chunks))
    return steps


# MultiTree

MACHINES = {
    "mesh": mesh((2, 2)),
    "torus3": torus_of((3, 3)),
    "torus4": torus_of((4, 4)),
    "torus2": torus_of((2, 4)),
    "one way": ring(5),
    "ring": bidirectional_ring(6),
    "line": line(4),
    "switch": switch(6),
    "pairs": fully_connected(5),
    "dgx-1": load_topology("dgx-1-v100"),
    "pcie": load_topology("pcie-4gpu"),
    "cluster": rail_optimized(2, 3),
}
SLOTS = {"mesh": 2, "torus3": 3, "one way": 4, "ring": 3, "line": 3, "switch": 5, "pairs": 1, "dgx-1": 2}


def test_worked_table() -> None:
    schedule = multitree.multitree_all_gather(4, routes=rank_routes(MACHINES["mesh"]))
    assert rows_by_step(schedule) == rows_by_step(Schedule.from_text(WORKED))


@pytest.mark.parametrize("ranks", range(1, 34))
def test_without_routes_all_pairs_talk_at_once(ranks: int) -> None:
    for operation in HALVES:
        schedule = algorithms.build(operation, "multitree", ranks)
        proven(schedule)
        assert schedule.steps == (2 if operation == "all_reduce" else 1) * (ranks > 1)


@pytest.mark.parametrize("name", MACHINES)
def test_no_link_carries_two_messages_in_a_slot(name: str) -> None:
    topology = MACHINES[name]
    n, routes = topology.n_ranks, rank_routes(topology)
    for operation in HALVES:
        schedule = algorithms.build(operation, "multitree", n, routes=routes)
        proven(schedule)
        used: Counter[tuple[int, int]] = Counter()
        sent: Counter[int] = Counter()
        for row in naive_rows(schedule):
            assert len(row.chunks) == 1
            sent[row.chunks[0][0]] += 1
            used.update((row.step, link) for link in topology.route(row.src, row.dst, row.channel))
        assert set(used.values()) == {1}
        phases = 2 if operation == "all_reduce" else 1
        assert set(sent.values()) == {phases * (n - 1)}  # a tree a chunk
        if name in SLOTS:
            assert schedule.steps == phases * SLOTS[name]


@pytest.mark.parametrize("name", ["mesh", "torus3", "torus4", "ring", "switch", "dgx-1"])
def test_time_is_that_of_the_slots(name: str) -> None:
    topology = MACHINES[name]
    n = topology.n_ranks
    schedule = multitree.multitree_all_reduce(n, routes=rank_routes(topology))
    size = n * 100_000
    hop = int(topology.link_latency[list(topology.route(0, 1))].sum()) * 1e-12 + size / n / float(
        topology.link_bandwidth[0]
    )
    assert timed(schedule, topology, size, synchronous=True) == pytest.approx(schedule.steps * hop, rel=1e-9)
    assert timed(schedule, topology, size) <= schedule.steps * hop * (1 + 1e-9)


def test_a_reduce_scatter_goes_the_way_of_the_links() -> None:
    """On a ring of one direction the reversed graph is another one."""
    routes = rank_routes(ring(5))
    for row in naive_rows(multitree.multitree_all_reduce(5, routes=routes)):
        assert row.dst == (row.src + 1) % 5
    # two ways of different lengths
    lopsided = {(0, 1): "a", (1, 2): "b", (2, 0): "c", (1, 0): "d"}
    for row in naive_rows(multitree.multitree_reduce_scatter(3, routes=lopsided)):
        assert (row.src, row.dst) in lopsided


def test_parallel_links_are_all_used() -> None:
    topology = MACHINES["torus2"]
    schedule = multitree.multitree_all_gather(8, routes=rank_routes(topology))
    assert {row.channel for row in naive_rows(schedule)} == {0, 1}
    single = {key: route for key, route in rank_routes(topology).items() if len(key) == 2}
    slower = multitree.multitree_all_gather(8, routes=single)
    assert {row.channel for row in naive_rows(slower)} == {0}
    assert schedule.steps <= slower.steps


@given(st.integers(2, 7), st.data())
def test_any_connected_graph(ranks: int, data: st.DataObject) -> None:
    around = {(rank, (rank + 1) % ranks) for rank in range(ranks)}
    more = data.draw(st.sets(st.tuples(st.integers(0, ranks - 1), st.integers(0, ranks - 1)), max_size=12))
    pairs = sorted(around | {(a, b) for a, b in more if a != b})
    # some share links
    routes = {pair: data.draw(st.sets(st.integers(0, 9), min_size=1, max_size=3).map(tuple)) for pair in pairs}
    schedule = multitree.multitree_all_reduce(ranks, routes=routes)
    assert check(schedule).complete
    for step in range(schedule.steps):
        links = [link for row in naive_rows(schedule) if row.step == step for link in routes[row.src, row.dst]]
        assert len(links) == len(set(links))


def test_multitree_refusals() -> None:
    with pytest.raises(
        AlgorithmError, match=r"^routes: expected a way from each rank to each other, got none from rank 1"
    ):
        multitree.multitree_all_gather(2, routes={(0, 1): "a"})
    for key in ((0, 5), (0,), "01", (-1, 0), (0, 1, 2, 3)):
        with pytest.raises(AlgorithmError, match=r"^routes: expected \(source, destination\) of ranks 0 to 3, got "):
            multitree.multitree_all_gather(4, routes={key: "a"})  # type: ignore[dict-item]
    with pytest.raises(AlgorithmError, match=r"^routes: expected links by \(source, destination\), got list$"):
        multitree.multitree_all_gather(4, routes=[1])  # type: ignore[arg-type]
    with pytest.raises(AlgorithmError, match=r"rows are more than the 67,108,864"):
        multitree.multitree_all_gather(10_000)


# Themis


@pytest.mark.parametrize("ranks", range(1, 34))
def test_themis_is_proven_and_executed(ranks: int) -> None:
    for operation in HALVES:
        phases = 2 if operation == "all_reduce" else 1
        for chunks, ports in ((1, "one"), (3, "all"), (4, "one")):
            schedule = algorithms.build(operation, "themis", ranks, chunks=chunks, ports=ports)
            proven(schedule)
            sent: Counter[int] = Counter(dict.fromkeys(range(ranks), 0))
            for row in naive_rows(schedule):
                sent[row.src] += len(row.chunks)
            assert set(sent.values()) == {phases * (ranks - 1) * chunks}


@pytest.mark.parametrize("pacing", [0, 1, 3])
@pytest.mark.parametrize("dims", [(2, 3, 2), (1, 4), (4, 2), (3, 3, 3)])
def test_themis_on_any_dimensions(dims: tuple[int, ...], pacing: int) -> None:
    n = int(np.prod(dims))
    for operation in HALVES:
        proven(
            algorithms.build(
                operation, "themis", n, levels=dims, chunks=6, window=pacing, bandwidths=[3.0, 1.0, 2.0][: len(dims)]
            )
        )


def test_one_chunk_is_the_bucket_algorithm() -> None:
    for dims in ((2, 3), (4, 4), (2, 3, 2)):
        n = int(np.prod(dims))
        assert themis.themis_all_reduce(n, levels=dims, chunks=1) == torus.torus_all_reduce(n, dims=dims)


def test_loads_are_balanced() -> None:
    for dims, rates in (((4, 4), (1, 1)), ((8, 2), (1, 1)), ((4, 8), (1, 3)), ((4, 4, 4), (1, 2, 3))):
        load = dict.fromkeys(range(len(dims)), 0.0)
        worst = 0.0
        for order in themis_orders(dims, rates, 64, 0.0):
            size = 1.0
            for k in order:
                load[k] += (dims[k] - 1) / dims[k] * size / rates[k]
                size /= dims[k]
            worst = max(worst, max(load.values()) - min(load.values()))
        total = sum((d - 1) / d / r for d, r in zip(dims, rates, strict=True))
        assert worst < 1.5 * total, (dims, worst)
        assert worst < 0.1 * max(load.values())


def test_a_slow_dimension_comes_late() -> None:
    """Nothing to balance where the fixed order gives the slow dimension the small share already."""
    assert set(themis_orders((4, 8), (50, 450), 12)) == {(1, 0)}
    assert set(themis_orders((4, 8), (1, 1), 12, threshold=1e9)) == {(1, 0)}
    orders = Counter(themis_orders((4, 8), (450, 50), 16))
    assert orders[0, 1] > orders[1, 0]
    assert themis_orders((1, 1), (0, 0), 2) == [(), ()]


@pytest.mark.parametrize(("dims", "chunks"), [((4, 4), 16), ((8, 2), 64), ((4, 4, 4), 24)])
def test_themis_comes_near_the_bound_of_all_dimensions(dims: tuple[int, ...], chunks: int) -> None:
    topology = torus_of(dims, bandwidth="50GB/s", latency="1us")
    n, d, size = topology.n_ranks, len(dims), 1 << 28
    bound = 2 * (n - 1) / n * size / (d * 50e9)
    schedule = themis.themis_all_reduce(n, levels=dims, chunks=chunks)
    assert bound < timed(schedule, topology, size) < 1.2 * bound
    both = themis.themis_all_reduce(n, levels=dims, chunks=chunks, ports="all")
    assert bound / 2 < timed(both, topology, size) < 1.3 * bound / 2


def test_themis_on_two_levels() -> None:
    topology, size = rail_optimized(4, 8), 1 << 28
    rates = dimension_bandwidths(topology)
    bucket = timed(torus.torus_all_reduce(32, dims=(4, 8)), topology, size)
    paced = timed(themis.themis_all_reduce(32, levels=(4, 8), bandwidths=rates, chunks=64), topology, size)
    loose = timed(themis.themis_all_reduce(32, levels=(4, 8), bandwidths=rates, chunks=64, window=0), topology, size)
    assert paced < 0.6 * bucket
    assert loose > 1.4 * paced


def test_themis_refusals() -> None:
    for bandwidths in ((1,), (1, 2, 3), (1, 0), (1, -1), "12", 5, (1, "2")):
        with pytest.raises(
            AlgorithmError, match=r"^bandwidths: expected a number above 0 for each of the dimensions \(3, 4\)"
        ):
            themis.themis_all_reduce(12, bandwidths=bandwidths)  # type: ignore[arg-type]
    for name in ("chunks", "window", "threshold"):
        for value in (-1, "2", True):
            with pytest.raises(AlgorithmError, match=rf"^{name}: expected a "):
                algorithms.build("all_reduce", "themis", 12, **{name: value})
    with pytest.raises(AlgorithmError, match=r"^ports: expected one of one, all, got 2$"):
        algorithms.build("all_reduce", "themis", 12, ports=2)
    with pytest.raises(AlgorithmError, match=r"rows are more than the 67,108,864"):
        algorithms.build("all_reduce", "themis", 12, chunks=10**12)


def test_a_dimension_without_links_needs_no_bandwidth() -> None:
    assert themis.themis_all_reduce(4, levels=(1, 4), bandwidths=(0, 5)).transfers == 32 * 6 * 4
    assert replace(torus_of((1, 4))).n_ranks == 4


def test_multitree_refuses_what_would_take_minutes() -> None:
    topology = switch(12)
    routes = rank_routes(topology)
    with pytest.raises(AlgorithmError, match=r"^ranks: multitree .* 12 ranks .*; expected at most 8; use rail or hier"):
        multitree.multitree_all_reduce(12, routes=routes, limit=8)
    assert multitree.multitree_all_reduce(12, routes=routes, limit=12).ranks == 12
    with pytest.raises(AlgorithmError, match=r"^limit: expected a whole number of at least 1, got 0$"):
        multitree.multitree_all_reduce(12, limit=0)


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ({(0, 1): 5}, "routes: expected the names of the links from 0 to 1, got 5"),
        ({(0, 1): ([],)}, "routes: expected the names of the links from 0 to 1, got ([],)"),
        *(
            ({key: ("a",)}, f"routes: expected (source, destination) of ranks 0 to 3, got {key}")
            for key in ((0, 1.5), (0, 4), ((0,), 1), 1)
        ),
        *(
            ({key: ("a",)}, f"routes: expected (source, destination, channel) of ranks 0 to 3, got {key}")
            for key in ((0, 1, -1), (0, 1, 10**12), (0, 4, 0))
        ),
    ],
)
def test_routes_that_are_none(routes: dict[Any, Any], message: str) -> None:
    with pytest.raises(AlgorithmError) as caught:
        multitree.multitree_all_gather(4, routes=routes)
    assert str(caught.value) == message


def test_a_threshold_that_is_no_number_is_refused() -> None:
    with pytest.raises(AlgorithmError, match=r"^threshold: expected a number of at least 0, got nan$"):
        themis.themis_all_reduce(4, threshold=float("nan"))
