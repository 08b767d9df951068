"""Closed forms of hierarchical, multi-dimensional and synthesised algorithms against the reference engine."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest

from collsim import algorithms
from collsim.engine.lowering.lower import lower
from collsim.engine.reference import run_reference
from collsim.theory import hierarchical as forms
from collsim.theory.costs import Costs
from collsim.topology import Topology, fully_connected, rail_optimized, switch, torus
from collsim.topology.structure import rank_routes

for module in ("all_pairs", "blueconnect", "hamiltonian", "hierarchical", "multitree", "themis", "torus"):
    importlib.import_module(f"collsim.algorithms.{module}")  # each puts its algorithms into the table

HALVES = ("all_reduce", "reduce_scatter", "all_gather")
DEVICES = ((0, 0), (300_000, 20 * 10**9), (3_000_000, 30 * 10**9), (0, 100 * 10**9))
"""Send overhead in picoseconds, reduction in bytes/s."""

TWO = [(1, {}), (4, {"nodes": 2}), (12, {"nodes": 3}), (12, {"nodes": 1}), (12, {"nodes": 12}), (8, {}),
       (6, {"nodes": [[0, 2, 4], [1, 3, 5]]})]  # fmt: skip
BUCKET = [(1, {}), (12, {}), (12, {"dims": (2, 2, 3)}), (12, {"dims": (1, 12)}), (8, {"dims": (2, 2, 2)})]
CASES: dict[str, list[tuple[int, dict[str, Any]]]] = {
    "hierarchical": TWO,
    "leader": [*TWO, (10, {"nodes": 2}), (14, {"nodes": 2})],
    "rail": [(n, {**p, "slices": 1, "inner": inner}) for n, p in TWO for inner in ("direct", "ring")],
    "torus": BUCKET,
    "blueconnect": [(n, {"levels": p["dims"]} if p else p) for n, p in BUCKET] + [(n, {}) for n in (7, 9, 16, 30)],
    "hamiltonian": [(n, {}) for n in (1, 4, 8, 9, 12, 16)],
    "multitree": [(n, {}) for n in (1, 2, 3, 7, 12)],
    "themis": [(12, {"chunks": 1}), (12, {"chunks": 1, "levels": (2, 3, 2)})],
}
ALL = [(operation, name) for name in CASES for operation in (HALVES if name != "leader" else HALVES[:1])]


def costs_on(topology: Topology, ports: str) -> Any:
    """Costs of a message of so many bytes, read off the way from rank 0 to rank 1."""
    overhead, rate = int(topology.send_overhead[0]) * 1e-12, int(topology.reduce_bandwidth[0])
    links = list(topology.route(0, 1)) if topology.n_ranks > 1 else [0]
    alpha = int(topology.link_latency[links].sum()) * 1e-12 + overhead
    beta = 1 / int(topology.link_bandwidth[links[0]])

    def costs_of(size: float) -> Costs:
        return Costs(alpha, size * beta, size / rate if rate else 0.0, overhead, 1.0, ports)

    return costs_of


def timed(schedule: Any, topology: Topology, size: int, synchronous: bool = False) -> float:
    times = run_reference(lower(schedule, topology, size, synchronous=synchronous), "cut_through")
    return int(times.end.max(initial=0)) * 1e-12


def agree(form: float, time: float, steps: int) -> bool:
    return abs(form - time) <= 1e-9 * time + 1e-12 * (8 * steps + 8)


@pytest.mark.parametrize("synchronous", [False, True])
@pytest.mark.parametrize(("operation", "name"), ALL)
def test_forms_are_the_simulated_time(operation: str, name: str, synchronous: bool) -> None:
    held = 0
    for ranks, parameters in CASES[name]:
        schedule = algorithms.build(operation, name, ranks, **parameters)
        for overhead, rate in DEVICES:
            options = {"send_overhead": f"{overhead}ps", "reduce_bandwidth": rate} if overhead else {}
            if rate and not overhead:
                options = {"reduce_bandwidth": rate}
            machines = [(switch, "one")] + ([(fully_connected, "each")] if ranks > 1 else [])
            for machine, ports in machines:
                topology = machine(ranks, bandwidth="50GB/s", latency="1us", **options)
                for size in (schedule.chunks * 40, schedule.chunks * 30_000):
                    form = forms.FORMS[name](
                        operation, ranks, costs_on(topology, ports), size, synchronous=synchronous, **parameters
                    )
                    assert form is not None
                    terms, text, why = form
                    assert text
                    if ports == "one" and (name != "hamiltonian" or not rate):
                        assert not why  # four rings may overtake each other where reducing is slow
                    if not why:
                        held += 1
                        time = timed(schedule, topology, size, synchronous)
                        assert agree(terms.total, time, schedule.steps), (
                            ranks,
                            parameters,
                            ports,
                            overhead,
                            rate,
                            size,
                        )
    assert held > 8


@pytest.mark.parametrize("operation", HALVES)
@pytest.mark.parametrize("dims", [(3, 3), (4, 4), (5,), (3, 3, 3)])
def test_all_ports_of_a_torus(operation: str, dims: tuple[int, ...]) -> None:
    topology = torus(dims, bandwidth="50GB/s", latency="1us")
    n = topology.n_ranks
    schedule = algorithms.build(operation, "torus", n, dims=dims, ports="all")
    for synchronous in (False, True):
        for size in (schedule.chunks * 40, schedule.chunks * 30_000):
            form = forms.bucket(
                operation, n, costs_on(topology, "each"), size, synchronous=synchronous, dims=dims, ports="all"
            )
            assert form is not None
            assert form[2] == ""
            assert agree(form[0].total, timed(schedule, topology, size, synchronous), schedule.steps)


@pytest.mark.parametrize("operation", HALVES)
def test_what_waits_after_each_step_is_exact(operation: str) -> None:
    topology = switch(12, bandwidth="50GB/s", latency="1us")
    for name, parameters in (
        ("rail", {"nodes": 3, "slices": 3}),
        ("themis", {"levels": (3, 4), "chunks": 5}),
        ("themis", {"levels": (2, 6), "chunks": 4}),
    ):
        schedule = algorithms.build(operation, name, 12, **parameters)
        size = schedule.chunks * 1000
        form = forms.FORMS[name](operation, 12, costs_on(topology, "one"), size, synchronous=True, **parameters)
        assert form is not None
        assert form[2] == ""
        assert agree(form[0].total, timed(schedule, topology, size, True), schedule.steps)
    nine = switch(9, bandwidth="50GB/s", latency="1us", send_overhead="2us", reduce_bandwidth="40GB/s")
    schedule = algorithms.build(operation, "torus", 9, ports="all")
    form = forms.bucket(operation, 9, costs_on(nine, "one"), 36_000, synchronous=True, ports="all")
    assert form is not None
    assert form[2] == ""
    assert agree(form[0].total, timed(schedule, nine, 36_000, True), schedule.steps)


@pytest.mark.parametrize("operation", HALVES)
def test_slots_of_multitree(operation: str) -> None:
    for topology, ports in ((torus((3, 3)), "each"), (switch(6), "one")):
        n, routes = topology.n_ranks, rank_routes(topology)
        schedule = algorithms.build(operation, "multitree", n, routes=routes)
        slots = schedule.steps // (2 if operation == "all_reduce" else 1)
        size = n * 90_000
        given = {"routes": routes, "slots": slots}
        form = forms.multitree(operation, n, costs_on(topology, ports), size, synchronous=True, **given)
        assert form is not None
        assert form[2] == ""
        assert agree(form[0].total, timed(schedule, topology, size, True), schedule.steps)
        early = forms.multitree(operation, n, costs_on(topology, ports), size, synchronous=False, **given)
        assert early is not None
        assert early[2]
        assert timed(schedule, topology, size) <= early[0].total * (1 + 1e-9)


def test_estimates_are_near_and_say_why() -> None:
    topology = switch(12, bandwidth="50GB/s", latency="1us")
    for name, parameters in (
        ("rail", {"nodes": 3, "slices": 2}),
        ("torus", {"dims": (3, 4), "ports": "all"}),
        ("torus", {"dims": (12,), "ports": "all"}),
        ("themis", {"levels": (3, 4), "chunks": 8}),
    ):
        schedule = algorithms.build("all_reduce", name, 12, **parameters)
        size = schedule.chunks * 30_000
        form = forms.FORMS[name]("all_reduce", 12, costs_on(topology, "one"), size, synchronous=False, **parameters)
        assert form is not None
        assert form[2]
        assert form[0].total / timed(schedule, topology, size) == pytest.approx(1, abs=0.2), (name, parameters)


def test_other_algorithms_inside_have_no_form() -> None:
    costs = costs_on(switch(8), "one")
    for name, inside in (("hierarchical", {"inner": "direct"}), ("hierarchical", {"outer": "tree"}),
                         ("leader", {"inner": "ring"}), ("rail", {"inner": "circulant"}),
                         ("multitree", {"routes": {}}), ("blueconnect", {"inner": "direct"})):  # fmt: skip
        assert forms.FORMS[name]("all_reduce", 8, costs, 800, synchronous=False, **inside) is None


def test_formula_of_two_levels() -> None:
    """2(g-1) alpha + 2(g-1)/g S beta + 2(n-1) alpha + 2(n-1)/n S/g beta, and (N-1)/N S gamma."""
    alpha, beta, gamma, size = 1e-6, 2e-11, 1e-11, 24_000_000.0
    form = forms.hierarchical(
        "all_reduce", 24, lambda m: Costs(alpha, m * beta, m * gamma), size, synchronous=False, nodes=4
    )
    assert form is not None
    terms, text, _ = form
    assert terms.latency == pytest.approx((2 * 5 + 2 * 3) * alpha)
    assert terms.bandwidth == pytest.approx((2 * 5 / 6 + 2 * 3 / 4 / 6) * size * beta)
    assert terms.reduction == pytest.approx(23 / 24 * size * gamma)
    assert text == "10 (alpha + S/6 beta) + 5 S/6 gamma + 6 (alpha + S/(6 4) beta) + 3 S/(6 4) gamma"


@pytest.mark.parametrize(
    ("name", "ranks", "options", "text"),
    [
        ("torus", 12, {"ports": "all"},
         "max(6 (alpha + m/4 beta) + 4 (alpha + m/(4 3) beta), 22/3 m beta), m = S/4"),
        ("torus", 9, {"ports": "all", "synchronous": True},
         "4 (alpha + m/3 beta) + 4 (alpha + m/(3 3) beta) + 16/3 m beta, m = S/4"),
        ("themis", 12, {},
         "max(6 (alpha + m/4 beta) + 4 (alpha + m/(4 3) beta), 176/3 m beta), m = S/32"),
        ("themis", 12, {"synchronous": True, "chunks": 5},
         "5 (6 (alpha + m/4 beta) + 4 (alpha + m/(4 3) beta)), m = S/5"),
        ("rail", 12, {"nodes": 3, "slices": 1}, "2 (alpha + 3 S/4 beta) + 4 (alpha + S/(4 3) beta)"),
        ("rail", 12, {"nodes": 3, "slices": 5},
         "2 (alpha + 3 m/4 beta) + 4 (alpha + m/(4 3) beta) + 4 max(alpha + 3 m/4 beta, 2 (alpha + m/(4 3) beta)), "
         "m = S/5"),
        ("rail", 2, {"nodes": 2, "slices": 4, "synchronous": True}, "8 (alpha + m/2 beta), m = S/4"),
        ("hamiltonian", 16, {"synchronous": True},
         "(N-1) (alpha + m beta + (C-1) m beta) + (N-1) (alpha + m beta + (C-1) m beta), m = S/(C N), C = 4"),
        ("multitree", 6, {}, "2 (alpha + 5 m beta), m = S/N"),
        ("multitree", 6, {"routes": {}, "slots": 3}, "6 (alpha + m beta), m = S/N"),
        ("leader", 12, {"nodes": 4}, "2 alpha + 4 S beta + 6 (alpha + S/4 beta)"),
        ("blueconnect", 8, {}, "2 (alpha + S/2 beta) + 2 (alpha + S/(2 2) beta) + 2 (alpha + S/(2 2 2) beta)"),
    ],
)  # fmt: skip
def test_texts_are_short(name: str, ranks: int, options: dict[str, Any], text: str) -> None:
    given = {"synchronous": False, **options}
    form = forms.FORMS[name]("all_reduce", ranks, lambda m: Costs(1e-6, m * 1e-11), 1e6, **given)
    assert form is not None
    assert form[1] == text


def test_prime_factors() -> None:
    for n in range(1, 200):
        found = forms.primes(n)
        assert math.prod(found) == n
        assert found == sorted(found)
        assert all(p > 1 and all(p % d for d in range(2, p)) for p in found)


def test_a_pipeline_on_rails_takes_its_slowest_stage() -> None:
    """Where levels have links of their own: all stages of one slice, then the slowest of them for each further one."""
    topology, size, k = rail_optimized(4, 8), 1 << 28, 8
    schedule = algorithms.build("all_reduce", "rail", 32, nodes=4, slices=k)
    rail = [3 * (2e-6 + size / k / 32 / 50e9)] * 2  # PCIe, adapter, adapter, PCIe
    inside = [1e-6 + 7 * size / k / 8 / 450e9] * 2
    # a slice may gather on the rail while the next one reduces there: together they take no longer than one by one
    time = sum(rail) + sum(inside) + (k - 1) * sum(rail)
    assert 2 * k * 3 * size / k / 32 / 50e9 < timed(schedule, topology, size) <= time * (1 + 1e-9)
