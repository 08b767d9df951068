"""Bucket algorithms on tori, BlueConnect on any product of groups, and rings on two Hamiltonian cycles."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collsim import Schedule, algorithms, check
from collsim.algorithms import blueconnect, hamiltonian, torus
from collsim.algorithms.hamiltonian import hamiltonian_cycles
from collsim.algorithms.torus import Lane, bucket
from collsim.engine.lowering.lower import lower
from collsim.engine.reference import run_reference
from collsim.errors import AlgorithmError
from collsim.topology import Topology
from collsim.topology import torus as torus_of
from tests.answers import run_both_ways
from tests.strategies import naive_rows

HALVES = ("all_reduce", "reduce_scatter", "all_gather")
DIMS = [(2, 3), (3, 2), (2, 3, 2), (4, 2), (3, 3, 3), (2, 2, 2, 2), (1, 5), (5, 1, 1), (1, 2, 1), (1, 1), (7,), (2,)]

WORKED = """\
0 0=>1:2,5 1=>2:0,3 2=>0:1,4 3=>4:2,5 4=>5:0,3 5=>3:1,4
1 0=>1:1,4 1=>2:2,5 2=>0:0,3 3=>4:1,4 4=>5:2,5 5=>3:0,3
2 0=>3:3 1=>4:4 2=>5:5 3=>0:0 4=>1:1 5=>2:2"""


def proven(schedule: Schedule) -> None:
    proof = check(schedule)
    assert (proof.complete, proof.unused, proof.warnings) == (True, (), ())
    assert Schedule.from_text(str(schedule)) == schedule
    n = schedule.ranks
    for number in (0, 1, n - 1, 5 * n + 3) if n < 10 else (n - 1, 2 * n + 3):
        run_both_ways(schedule, number)


def by_place(schedule: Schedule) -> str:
    """Write one line a step, with the places of chunks (the ranks that own them) instead of their numbers."""
    lines: dict[int, list[str]] = {}
    for row in sorted(naive_rows(schedule), key=lambda row: (row.step, row.src)):
        places = sorted(int(schedule.place_of(np.array(chunk))) for chunk, _ in row.chunks)
        text = f"{row.src}{'=>' if row.reduce else '->'}{row.dst}:{','.join(map(str, places))}"
        lines.setdefault(row.step, [str(row.step)]).append(text)
    return "\n".join(" ".join(line) for line in lines.values())


def sent(schedule: Schedule) -> set[int]:
    counts: Counter[int] = Counter(dict.fromkeys(range(schedule.ranks), 0))
    for row in naive_rows(schedule):
        counts[row.src] += len(row.chunks)
    return set(counts.values())


def loads(schedule: Schedule, topology: Topology, size: int) -> Any:
    """Bytes on each link."""
    program = lower(schedule, topology, size)
    carried = np.repeat(program.bytes, np.diff(program.visit_ptr))
    return np.bincount(program.visit_station, carried, topology.n_links)[: topology.n_links]


def timed(schedule: Schedule, topology: Topology, size: int) -> float:
    return int(run_reference(lower(schedule, topology, size), "cut_through").end.max()) * 1e-12


# bucket


def test_worked_table() -> None:
    assert by_place(torus.torus_reduce_scatter(6, dims=(2, 3))) == WORKED
    # an all_gather goes the way back: dimensions and steps in the other order
    there, back = (Counter(r.dst - r.src for r in naive_rows(getattr(torus, f"torus_{half}")(6, dims=(2, 3))))
                   for half in HALVES[1:])  # fmt: skip
    assert there == back


@pytest.mark.parametrize("ports", ["one", "all"])
@pytest.mark.parametrize("ranks", range(1, 34))
def test_proven_and_executed(ranks: int, ports: str) -> None:
    for operation in HALVES:
        proven(algorithms.build(operation, "torus", ranks, ports=ports))


@pytest.mark.parametrize("ports", ["one", "all"])
@pytest.mark.parametrize("dims", DIMS)
def test_any_dimensions(dims: tuple[int, ...], ports: str) -> None:
    n = math.prod(dims)
    longest = sum(size - 1 for size in dims)
    for operation in HALVES:
        phases = 2 if operation == "all_reduce" else 1
        schedule = algorithms.build(operation, "torus", n, dims=dims, ports=ports)
        proven(schedule)
        copies = schedule.chunks // n
        assert copies == (1 if ports == "one" else max(1, 2 * sum(size > 1 for size in dims)))
        # every rank sends (N-1)/N of the data in each half
        assert sent(schedule) == {phases * (n - 1) * copies}
        if ports == "one" or len(set(dims) - {1}) < 2:
            assert schedule.steps == phases * longest


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_any_order_of_dimensions_is_right(dims: list[int], data: st.DataObject) -> None:
    n = math.prod(dims)
    kept = [k for k, size in enumerate(dims) if size > 1]
    lanes = data.draw(
        st.lists(st.builds(Lane, st.permutations(kept).map(tuple), st.sampled_from([1, -1])), min_size=1, max_size=3)
    )
    for operation in HALVES:
        schedule = bucket(operation, dims, lanes)
        assert check(schedule).complete
        assert sent(schedule) == {(2 if operation == "all_reduce" else 1) * (n - 1) * len(lanes)}


@pytest.mark.parametrize("ports", ["one", "all"])
def test_messages_go_to_neighbours_only(ports: str) -> None:
    for dims in ((4, 4), (3, 5), (2, 3, 4), (5, 2)):
        topology = torus_of(dims)
        schedule = algorithms.build("all_reduce", "torus", topology.n_ranks, dims=dims, ports=ports)
        assert {len(topology.route(row.src, row.dst)) for row in naive_rows(schedule)} == {1}


def test_the_two_neighbours_along_a_dimension_of_two_are_two_links() -> None:
    """Where both neighbours are the same rank, direction must not get lost: two parallel links, two slots."""
    for dims in ((2, 2), (2, 4), (2,), (3, 2)):
        topology = torus_of(dims)
        n = topology.n_ranks
        schedule = torus.torus_all_reduce(n, dims=dims, ports="all")
        copies, size = 2 * len(dims), 9600 * n
        assert {row.channel for row in naive_rows(schedule)} == {0, 1}
        found = loads(schedule, topology, size)
        for axis, length in enumerate(dims):
            along = [
                load
                for link, load in enumerate(found)
                if abs(int(topology.link_dst[link]) - int(topology.link_src[link]))
                in (math.prod(dims[axis + 1 :]), math.prod(dims[axis + 1 :]) * (length - 1))
            ]
            assert len(set(along)) == 1, (dims, axis)  # all links of a dimension carry the same
        assert found.sum() == 2 * (n - 1) * size
        assert found.max() < 2 * size / copies * len(dims)


def test_dimensions_of_one_are_left_out() -> None:
    for ports in ("one", "all"):
        assert torus.torus_all_reduce(6, dims=(1, 2, 1, 3), ports=ports) == torus.torus_all_reduce(
            6, dims=(2, 3), ports=ports
        )
        assert torus.torus_all_gather(1, dims=(1, 1), ports=ports).transfers == 0


def test_bytes_on_the_links_of_8x8() -> None:
    """One port sends 1.00 times the optimum 2(N-1)/N S; four ports leave a quarter on every link."""
    topology, size = torus_of((8, 8)), 64 * 64
    best = 2 * 63 / 64 * size
    one = loads(torus.torus_all_reduce(64, dims=(8, 8)), topology, size)
    sent_by_rank = np.bincount(topology.link_src, one)
    assert set(sent_by_rank) == {best}
    assert one.max() == 2 * 7 / 8 * size  # the links of the dimension that comes first
    four = loads(torus.torus_all_reduce(64, dims=(8, 8), ports="all"), topology, size)
    assert set(four) == {best / 4}
    gather = loads(torus.torus_all_gather(64, dims=(8, 8), ports="all"), topology, size)
    assert set(gather) == {best / 8}


@pytest.mark.parametrize("dims", [(4, 4), (3, 3, 3), (5,), (3, 3)])
def test_time_with_all_ports(dims: tuple[int, ...]) -> None:
    """2 sum(d - 1) alpha + (N-1)/(N D) S/B on a torus of equal sizes."""
    topology = torus_of(dims, bandwidth="50GB/s", latency="1us")
    n, d = topology.n_ranks, len(dims)
    size = n * 2 * d * 5000
    time = timed(torus.torus_all_reduce(n, dims=dims, ports="all"), topology, size)
    assert time == pytest.approx(2 * sum(s - 1 for s in dims) * 1e-6 + (n - 1) / (n * d) * size / 50e9, rel=1e-9)
    time = timed(torus.torus_all_reduce(n, dims=dims), topology, size)
    assert time == pytest.approx(2 * sum(s - 1 for s in dims) * 1e-6 + 2 * (n - 1) / n * size / 50e9, rel=1e-9)


def test_a_large_torus_is_small() -> None:
    for ports, rows in (("one", 4096), ("all", 4 * 4096)):
        schedule = torus.torus_all_reduce(4096, dims=(64, 64), ports=ports)
        assert [(len(phase.block), phase.times) for phase in schedule.phases] == [(rows, 63)] * 4
        assert all(phase.block.lists is None for phase in schedule.phases)
    assert check(torus.torus_all_reduce(4096, dims=(64, 64)), full_cost=10**6).checked == 18


@pytest.mark.parametrize(("name", "parameter"), [("torus", "dims"), ("blueconnect", "levels"), ("themis", "levels")])
@pytest.mark.parametrize("dims", [(3, 5), (), 12, "34", (3, 4.0), (-3, -4), (True, 12), (12, 0), (3, 4, 2)])
def test_bad_dims(name: str, parameter: str, dims: Any) -> None:
    with pytest.raises(AlgorithmError) as caught:
        algorithms.build("all_reduce", name, 12, **{parameter: dims})
    assert str(caught.value) == (
        f"{parameter}: expected sizes whose product is the 12 ranks, such as (3, 4), got {dims!r}"
    )  # fmt: skip


def test_bad_ports() -> None:
    with pytest.raises(AlgorithmError, match=r"^ports: expected one of one, all, got 'two'$"):
        torus.torus_all_reduce(4, ports="two")


# BlueConnect


@pytest.mark.parametrize("ranks", range(1, 34))
def test_blueconnect_is_proven_and_executed(ranks: int) -> None:
    for operation in HALVES:
        schedule = algorithms.build(operation, "blueconnect", ranks)
        proven(schedule)
        assert sent(schedule) == {(2 if operation == "all_reduce" else 1) * (ranks - 1)}


@pytest.mark.parametrize("inner", ["ring", "bidirectional_ring"])
@pytest.mark.parametrize("dims", DIMS)
def test_blueconnect_takes_any_factors(dims: tuple[int, ...], inner: str) -> None:
    n = math.prod(dims)
    for operation in HALVES:
        schedule = algorithms.build(operation, "blueconnect", n, levels=dims, inner=inner)
        proven(schedule)
        assert schedule.steps == (2 if operation == "all_reduce" else 1) * sum(size - 1 for size in dims)


def test_blueconnect_is_the_others_in_general() -> None:
    for dims in ((2, 3), (3, 4), (2, 3, 2)):
        n = math.prod(dims)
        assert by_place(blueconnect.blueconnect_reduce_scatter(n, levels=dims)) == by_place(
            torus.torus_reduce_scatter(n, dims=dims)
        )
        assert blueconnect.blueconnect_all_reduce(n, levels=dims) == torus.torus_all_reduce(n, dims=dims)
    halving = blueconnect.blueconnect_all_reduce(16)
    assert halving.parameters["inner"] == "ring"
    assert (halving.steps, sent(halving)) == (8, {2 * 15})  # all factors 2


# Hamiltonian cycles

GOLDEN_A = "(0,0)(0,1)(0,2)(0,3)(1,3)(1,0)(1,1)(1,2)(2,2)(2,3)(2,0)(2,1)(3,1)(3,2)(3,3)(3,0)"
SIZES = [(k * columns, columns) for columns in range(3, 10) for k in range(1, 6)]


def undirected(cycle: Any) -> list[frozenset[int]]:
    return [frozenset(pair) for pair in zip(cycle.tolist(), np.roll(cycle, -1).tolist(), strict=True)]


def test_worked_cycle() -> None:
    first, second = hamiltonian_cycles(4, 4)
    assert "".join(f"({rank // 4},{rank % 4})" for rank in first.tolist()) == GOLDEN_A
    assert second.tolist() == [rank % 4 * 4 + rank // 4 for rank in first.tolist()]  # coordinates swapped


@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_two_cycles_if_and_only_if_there_is_no_common_factor(rows: int, columns: int) -> None:
    n = rows * columns
    if math.gcd(rows, columns - 1) == 1:
        for cycles in (hamiltonian_cycles(rows, columns), hamiltonian_cycles(columns, rows)):
            edges = [edge for cycle in cycles for edge in undirected(cycle)]
            assert all(sorted(cycle.tolist()) == list(range(n)) for cycle in cycles)
            assert len(set(edges)) == 2 * n
        topology = torus_of((rows, columns))
        first, second = hamiltonian_cycles(rows, columns)
        links = {frozenset((int(a), int(b))) for a, b in zip(topology.link_src, topology.link_dst, strict=True)}
        assert set(undirected(first)) | set(undirected(second)) == links
        return
    message = rf"^dims: expected {rows} and {columns} - 1 without a common factor, but both are multiples of"
    with pytest.raises(AlgorithmError, match=message):
        hamiltonian_cycles(rows, columns)
    # what the first cycle leaves over falls apart
    i = np.arange(n)
    first = i // columns * columns + (i % columns - i // columns) % columns
    used = set(undirected(first))
    near: dict[int, list[int]] = {rank: [] for rank in range(n)}
    for rank in range(n):
        x, y = divmod(rank, columns)
        for other in (x * columns + (y + 1) % columns, (x + 1) % rows * columns + y):
            if frozenset((rank, other)) not in used:
                near[rank].append(other)
                near[other].append(rank)
    seen, here = {0}, 0
    while rest := [other for other in near[here] if other not in seen]:
        here = rest[0]
        seen.add(here)
    assert len(seen) < n


@pytest.mark.parametrize("ranks", range(1, 34))
def test_hamiltonian_is_proven_and_executed(ranks: int) -> None:
    for operation in HALVES:
        if ranks not in (1, 4, 8, 9, 12, 16, 20, 24, 25, 27, 28, 32):
            with pytest.raises(AlgorithmError, match=r"; use bidirectional_ring$"):
                algorithms.build(operation, "hamiltonian", ranks)
            continue
        schedule = algorithms.build(operation, "hamiltonian", ranks)
        proven(schedule)
        phases = 2 if operation == "all_reduce" else 1
        assert schedule.steps == phases * (ranks - 1)
        assert sent(schedule) == {phases * (ranks - 1) * (4 if ranks > 1 else 1)}


@pytest.mark.parametrize("dims", [(4, 4), (3, 3), (2, 2), (4, 2), (2, 4), (6, 2), (9, 3), (3, 9), (5, 5), (1, 8, 1, 2)])
def test_hamiltonian_fills_all_links_alike(dims: tuple[int, ...]) -> None:
    topology = torus_of(dims, bandwidth="50GB/s", latency="1us")
    n = topology.n_ranks
    size = 4 * n * 5000
    schedule = hamiltonian.hamiltonian_all_reduce(n, dims=dims)
    proven(schedule)
    assert set(loads(schedule, topology, size)) == {2 * (n - 1) / n * size / 4}
    expected = 2 * (n - 1) * 1e-6 + 2 * (n - 1) / n * size / (4 * 50e9)
    assert timed(schedule, topology, size) == pytest.approx(expected, rel=1e-9)


def test_hamiltonian_refusals() -> None:
    for dims, reason in (
        ((3, 4), "expected two sizes of at least 2, one a multiple of the other, got 3 x 4; use torus or"),
        ((1, 12), "expected two sizes of at least 2, one a multiple of the other, got 12 x 1; use torus or"),
        ((2, 3, 2), "hamiltonian takes a torus of two dimensions, got (2, 3, 2); use torus"),
    ):
        with pytest.raises(AlgorithmError) as caught:
            hamiltonian.hamiltonian_all_reduce(12, dims=dims)
        assert str(caught.value).startswith(f"dims: {reason}")
    with pytest.raises(
        AlgorithmError, match=r"^ranks: hamiltonian takes R x C ranks .*, got 7; use bidirectional_ring$"
    ):
        hamiltonian.hamiltonian_all_reduce(7)


def test_directions_are_kept_apart_by_channel() -> None:
    rows = naive_rows(hamiltonian.hamiltonian_all_gather(8, dims=(4, 2)))
    uses = Counter((row.src, row.dst, row.channel) for row in rows)
    assert set(uses.values()) == {7}
    assert all(len({key[2] for key in uses if key[:2] == pair}) <= 2 for pair in product(range(8), repeat=2))
