"""Closed forms of butterflies and dissemination, against the reference engine and against textbook formulas."""

from __future__ import annotations

import importlib
import inspect
import re
from itertools import product
from typing import Any

import pytest

from collsim import algorithms
from collsim.engine.lowering.lower import lower
from collsim.engine.reference import run_reference
from collsim.errors import AlgorithmError
from collsim.theory import butterflies
from collsim.theory.costs import Costs
from collsim.topology import Topology, fully_connected, switch
from tests.test_closed_forms import value_of

NAMES = sorted({name for _, name in butterflies.FORMS})
for module in NAMES:  # each puts its algorithms into the table
    importlib.import_module(f"collsim.algorithms.{module}")

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "halving_doubling": [
        {}, {"fold": "split"}, {"distance": "halving"}, {"halvings": 0}, {"halvings": 1}, {"halvings": 2},
        {"halvings": 1, "fold": "split"},
    ],
    "bruck": [{}, {"radix": 3}, {"radix": 4}],
    "pat": [{}, {"aggregation": 1}, {"aggregation": 2}, {"aggregation": 4}],
    "swing": [{}, {"version": "latency"}, {"dims": (4, 4), "ports": 1}],
    "bine": [{}, {"distance": "halving"}, {"distance": "doubling"}, {"version": "latency"}, {"fold": "split"}],
}  # fmt: skip
CASES = [
    (*pair, parameters)
    for pair in butterflies.FORMS
    for parameters in VARIANTS.get(pair[1], [{}])
    if set(parameters) <= set(inspect.signature(algorithms.find(*pair)).parameters)
]
COUNTS = [2, 3, 4, 6, 7, 8, 9, 12, 13, 16]


def costs_on(topology: Topology, ports: str) -> Any:
    """Costs of a message of so many bytes, read off the way from rank 0 to rank 1."""
    _, links = topology.routes([0], [1], [0])
    overhead = int(topology.send_overhead[0]) * 1e-12
    alpha = int(topology.link_latency[links].sum()) * 1e-12 + overhead
    beta = 1 / int(topology.link_bandwidth[links[0]])
    rate = int(topology.reduce_bandwidth[0])

    def costs_of(size: float) -> Costs:
        return Costs(alpha, size * beta, size / rate if rate else 0.0, overhead, 1.0, ports)

    return costs_of


def built(operation: str, name: str, ranks: int, parameters: dict[str, Any]) -> Any:
    try:
        return algorithms.build(operation, name, ranks, **parameters)
    except AlgorithmError:
        return None


MACHINES = list(
    product(
        (switch, fully_connected), (("0s", 0), ("700ns", 0), ("0s", "2GB/s"), ("700ns", "2GB/s"), ("2us", "500MB/s"))
    )
)


@pytest.mark.parametrize("synchronous", [False, True])
@pytest.mark.parametrize(("operation", "name", "parameters"), CASES)
def test_time_is_the_form(operation: str, name: str, parameters: dict[str, Any], synchronous: bool) -> None:
    exact = 0
    for number, ranks in enumerate(COUNTS):
        schedule = built(operation, name, ranks, parameters)
        if schedule is None:
            continue
        for make, (overhead, adding) in (
            MACHINES[number % 10],
            MACHINES[(number + 4) % 10],
            MACHINES[(number + 7) % 10],
        ):
            topology = make(ranks, "1GB/s", "1us", send_overhead=overhead, reduce_bandwidth=adding)
            costs_of = costs_on(topology, "one" if make is switch else "each")
            size = 16 * ranks * (16, 16_000)[number % 2]
            form = butterflies.FORMS[operation, name](
                operation, ranks, costs_of, size, synchronous=synchronous, **parameters
            )
            if form is None:
                assert name == "swing"
                assert ranks % 2
                continue
            terms, _, why = form
            if why:
                assert ranks & (ranks - 1) or "radix" in parameters or "aggregation" in parameters
                continue
            time = run_reference(lower(schedule, topology, size, synchronous=synchronous), "cut_through").makespan
            assert time * 1e-12 == pytest.approx(terms.total, rel=1e-9, abs=1e-11), (ranks, size)
            exact += 1
    assert exact >= 3


@pytest.mark.parametrize("ranks", range(2, 18))
def test_where_messages_leave_early_the_sum_is_an_upper_bound(ranks: int) -> None:
    topology = switch(ranks, "1GB/s", "1us")
    costs_of = costs_on(topology, "one")
    below = 0
    for operation, name, parameters in CASES:
        schedule = built(operation, name, ranks, parameters)
        form = butterflies.FORMS[operation, name](
            operation, ranks, costs_of, 960 * ranks, synchronous=False, **parameters
        )
        if schedule is None or form is None or form[2] != butterflies.EARLY:
            continue
        time = run_reference(lower(schedule, topology, 960 * ranks), "cut_through").makespan
        assert time * 1e-12 <= form[0].total * (1 + 1e-9), (operation, name, parameters)
        below += time * 1e-12 < form[0].total * (1 - 1e-6)
    assert below or ranks in (2, 4)


@pytest.mark.parametrize(("operation", "name", "parameters"), CASES)
def test_terms_and_text_give_the_value(operation: str, name: str, parameters: dict[str, Any]) -> None:
    for ranks, adding, stores, synchronous in product((2, 4, 6, 16), (0.0, 3e-10), (1.0, 2.0), (False, True)):
        if built(operation, name, ranks, parameters) is None:
            continue
        known = {"alpha": 3e-6, "beta": 1e-9, "gamma": adding, "overhead": 1e-6}

        def costs_of(size: float, adding: float = adding, stores: float = stores) -> Costs:
            return Costs(3e-6, size * 1e-9, size * adding, 1e-6, stores)

        form = butterflies.FORMS[operation, name](
            operation, ranks, costs_of, 96_000, synchronous=synchronous, **parameters
        )
        assert form is not None
        terms, text, _ = form
        assert value_of(text, 96_000, ranks, **known) == pytest.approx(terms.total, rel=1e-9), text
        assert not re.search(r"(?<![\w.])0(?![\w.])|(?<![\w./])1 [a-z(]", text), text
        assert text.isascii()


def costs(size: float) -> Costs:
    """Alpha 5 us, 1 GB/s, 4 GB/s to add up."""
    return Costs(5e-6, size * 1e-9, size * 0.25e-9)


def test_rows_of_the_summary() -> None:
    """Latency, bandwidth and reduction as in the textbooks, for N = 6 and 8."""
    size = 3_000_000.0

    def found(operation: str, name: str, ranks: int, **parameters: Any) -> tuple[float, float, float]:
        form = butterflies.FORMS[operation, name](operation, ranks, costs, size, synchronous=True, **parameters)
        assert form is not None
        terms = form[0]
        return terms.latency / 5e-6, terms.bandwidth / (size * 1e-9), terms.reduction / (size * 0.25e-9)

    for (operation, name, ranks, parameters), row in (
        (("all_reduce", "recursive_doubling", 8, {}), (3, 3, 3)),
        (("all_reduce", "recursive_doubling", 6, {}), (4, 4, 3)),
        (("all_gather", "recursive_doubling", 8, {}), (3, 7 / 8, 0)),
        (("all_reduce", "halving_doubling", 8, {}), (6, 14 / 8, 7 / 8)),
        (("all_reduce", "halving_doubling", 6, {}), (6, 6 / 4 + 2, 3 / 4 + 1)),
        (("all_reduce", "halving_doubling", 6, {"fold": "split"}), (7, 6 / 4 + 2, 3 / 4 + 1 / 2)),
        (("all_reduce", "halving_doubling", 8, {"halvings": 1}), (4, 2 * (1 - 1 / 2) + 2 / 2, 1 / 2 + 2 / 2)),
        (("all_reduce", "halving_doubling", 8, {"halvings": 0}), (3, 3, 3)),
        (("reduce_scatter", "circulant", 6, {}), (3, 5 / 6, 5 / 6)),
        (("all_reduce", "circulant", 6, {}), (6, 10 / 6, 5 / 6)),
        (("all_gather", "bruck", 6, {}), (3, 5 / 6, 0)),
        (("all_gather", "pat", 6, {}), (3, 5 / 6, 0)),
        (("all_gather", "pat", 8, {"aggregation": 2}), (4, 7 / 8, 0)),
        (("all_gather", "neighbour_exchange", 6, {}), (3, 5 / 6, 0)),
        (("all_reduce", "swing", 6, {}), (6, 10 / 6, 5 / 6)),
        (("all_reduce", "swing", 8, {"version": "latency"}), (3, 3, 3)),
        (("broadcast", "bine", 8, {}), (3, 3, 0)),
        (("reduce", "bine", 8, {}), (3, 3, 3)),
    ):
        assert found(operation, name, ranks, **parameters) == pytest.approx(row), (name, ranks)


def test_recursive_doubling_crosses_halving_and_doubling_where_the_formulas_meet() -> None:
    def without_adding(size: float) -> Costs:
        return Costs(5e-6, size * 1e-9)

    for levels in (2, 3, 6):
        ranks = 1 << levels
        meet = levels * 5e-6 / ((levels - 2 * (ranks - 1) / ranks) * 1e-9)
        times = [
            form("all_reduce", ranks, without_adding, meet, synchronous=False)
            for form in (butterflies.recursive_doubling, butterflies.halving_doubling)
        ]
        assert times[0] is not None
        assert times[1] is not None
        assert times[0][0].total == pytest.approx(times[1][0].total, rel=1e-12)


def test_without_a_form() -> None:
    assert butterflies.swing("all_reduce", 7, costs, 7.0, synchronous=True) is None
    assert butterflies.swing("all_reduce", 16, costs, 16.0, synchronous=True, dims=(4, 4)) is None
    assert butterflies.swing("all_reduce", 36, costs, 36.0, synchronous=True, dims=(6, 6), ports=1) is None
    assert butterflies.circulant("broadcast", 4, costs, 4.0, synchronous=True) is None
    assert butterflies.recursive_doubling("reduce", 4, costs, 4.0, synchronous=True) is None
