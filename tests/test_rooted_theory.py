"""Closed forms of all_to_all, all-pairs and rooted algorithms: equal to the simulated time where they say so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import collsim
import collsim.topology as machines
from collsim.algorithms import (  # noqa: F401  they register
    all_pairs,
    all_to_all,
    barrier,
    bruck,
    bruck_all_to_all,
    circulant,
    recursive_doubling,
    rooted,
    send_recv,
)
from collsim.algorithms.registry import build
from collsim.engine.lowering.lower import lower
from collsim.engine.reference import run_reference
from collsim.errors import AlgorithmError
from collsim.theory import all_to_all as forms_of_pairs
from collsim.theory import rooted as forms_of_roots
from collsim.theory.costs import Costs
from tests.test_closed_forms import value_of

FORMS: dict[tuple[str, str], Any] = {**forms_of_pairs.FORMS, **forms_of_roots.FORMS}
PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "pairwise": [{}, {"window": 2}, {"window": 5}, {"window": None}],
    "pairwise_xor": [{}, {"window": 3}],
    "nccl_p2p": [{}, {"window": 1}, {"window": 2}, {"nodes": "all"}],
    "hierarchical": [{}, {"first": "inter"}, {"nodes": 1}, {"nodes": "all"}],
    "bruck": [{}, {"radix": 3}, {"radix": 4}, {"radix": 99}],
    "scatter_all_gather": [{"all_gather": name} for name in ("ring", "circulant", "recursive_doubling", "bruck")],
    "reduce_scatter_gather": [{"reduce_scatter": name} for name in ("ring", "circulant", "bruck")],
}
CASES = [(*pair, options) for pair in FORMS for options in PARAMETERS.get(pair[1], [{}])]
BANDWIDTH = 10**10


def both(
    operation: str, name: str, options: dict[str, Any], ranks: int, block: int, *, machine: str, network: str,
    latency: int, overhead: int, rate: int, synchronous: bool,
) -> tuple[float, Any, Costs]:  # fmt: skip
    """Simulated time, the form, and the costs of one byte; latency and overhead in nanoseconds."""
    options = {key: ranks if value == "all" else value for key, value in options.items()}
    try:
        schedule = build(operation, name, ranks, **options)
    except AlgorithmError:
        assume(False)
        raise
    topology = getattr(machines, machine)(
        ranks, bandwidth=BANDWIDTH, latency=latency * 1e-9, send_overhead=overhead * 1e-9, reduce_bandwidth=rate
    )
    size = block * ranks
    program = lower(schedule, topology, size, synchronous=synchronous)
    time = int(run_reference(program, network).end.max(initial=0)) * 1e-12
    hops = 2 if machine == "switch" else 1

    def costs_of(size: float) -> Costs:
        return Costs(
            alpha=hops * latency * 1e-9 + overhead * 1e-9,
            wire=size / BANDWIDTH,
            adding=size / rate if rate else 0.0,
            overhead=overhead * 1e-9,
            stores=float(hops) if network == "store_and_forward" else 1.0,
            ports="none" if network == "alpha_beta" else "one" if machine == "switch" or ranks == 2 else "each",
        )

    form = FORMS[operation, name](operation, ranks, costs_of, size, synchronous=synchronous, **options)
    return time, form, costs_of(1)


@settings(max_examples=400, deadline=None)
@given(
    case=st.sampled_from(CASES),
    ranks=st.integers(2, 17),
    block=st.sampled_from([0, 1, 50, 1000, 100_000]),
    machine=st.sampled_from(["switch", "fully_connected"]),
    network=st.sampled_from(["cut_through", "store_and_forward", "alpha_beta"]),
    latency=st.sampled_from([0, 1, 50, 500, 5000]),
    overhead=st.sampled_from([0, 0, 100, 3000]),
    rate=st.sampled_from([0, BANDWIDTH // 5, BANDWIDTH * 2]),
    synchronous=st.booleans(),
)
def test_forms_are_the_simulated_time(
    case: tuple[str, str, dict[str, Any]], ranks: int, block: int, **conditions: Any
) -> None:
    operation, name, options = case
    time, form, byte = both(operation, name, options, ranks, block, **conditions)
    terms, text, why = form
    assert text.isascii()
    if not why:
        assert time == pytest.approx(terms.total, rel=1e-9, abs=2e-11)  # a picosecond for each step
        if terms.total:
            known = {"alpha": byte.alpha, "beta": byte.wire, "gamma": byte.adding, "overhead": byte.overhead}
            assert value_of(text, block * ranks, ranks, **known) == pytest.approx(terms.total, rel=1e-9), text


@pytest.mark.parametrize(("operation", "name"), FORMS)
def test_one_rank_takes_no_time(operation: str, name: str) -> None:
    for parameters in PARAMETERS.get(name, [{}]):
        if "all" not in parameters.values():
            terms, _, why = FORMS[operation, name](operation, 1, lambda m: Costs(1e-6, m), 100, **parameters)
            assert (terms.total, why) == (0, "")


CONDITIONS: dict[str, Any] = {
    "machine": "switch", "network": "cut_through", "latency": 500, "overhead": 0, "rate": 0, "synchronous": False,
}  # fmt: skip
ALPHA, M = 1e-6, 1e-7  # a message, and a block of 1000 bytes


@pytest.mark.parametrize(
    ("operation", "name", "options", "ranks", "time"),
    [
        ("all_to_all", "direct", {}, 8, ALPHA + 7 * M),
        ("all_to_all", "pairwise", {}, 8, 7 * ALPHA + 7 * M),
        ("all_to_all", "pairwise_xor", {}, 8, 7 * ALPHA + 7 * M),
        ("all_to_all", "nccl_p2p", {}, 6, ALPHA + 5 * M),
        ("all_to_all", "bruck", {}, 8, 3 * ALPHA + 12 * M),
        ("all_to_all", "bruck", {"radix": 3}, 9, 2 * ALPHA + 12 * M),
        ("all_to_all", "hierarchical", {"nodes": 2}, 8, 2 * ALPHA + (3 * 2 + 1 * 4) * M),
        ("scatter", "linear", {}, 6, ALPHA + 5 * M),
        ("gather", "linear", {}, 6, ALPHA + 5 * M),
        ("broadcast", "linear", {}, 4, ALPHA + 3 * 4 * M),
        ("scatter", "binomial_tree", {}, 8, 3 * ALPHA + 7 * M),
        ("gather", "binomial_tree", {}, 16, 4 * ALPHA + 15 * M),
        ("broadcast", "scatter_all_gather", {}, 8, 10 * ALPHA + 14 * M),
        ("broadcast", "scatter_all_gather", {"all_gather": "recursive_doubling"}, 8, 6 * ALPHA + 14 * M),
        ("reduce", "reduce_scatter_gather", {"reduce_scatter": "circulant"}, 8, 6 * ALPHA + 14 * M),
        ("send_recv", "ring", {}, 5, ALPHA + 5 * M),
        ("barrier", "dissemination", {}, 9, 4 * ALPHA),
        ("barrier", "tree", {}, 8, 6 * ALPHA),
    ],
)
def test_the_textbook(operation: str, name: str, options: dict[str, Any], ranks: int, time: float) -> None:
    simulated, (terms, _, why), _ = both(operation, name, options, ranks, 1000, **CONDITIONS)
    assert simulated == pytest.approx(time, rel=1e-9)
    assert terms.total == pytest.approx(time, rel=1e-9)
    assert why == ""


@pytest.mark.parametrize("ranks", range(2, 20))
def test_synchronous_steps_of_any_number_of_ranks(ranks: int) -> None:
    levels = (ranks - 1).bit_length()
    conditions = {**CONDITIONS, "synchronous": True}
    ones = sum(j.bit_count() for j in range(ranks))
    for operation, name, time in (
        ("all_to_all", "bruck", levels * ALPHA + ones * M),
        ("scatter", "binomial_tree", levels * ALPHA + (ranks - 1) * M),
        ("gather", "binomial_tree", levels * ALPHA + (ranks - 1) * M),
        ("broadcast", "scatter_all_gather", (levels + ranks - 1) * ALPHA + 2 * (ranks - 1) * M),
        ("reduce", "reduce_scatter_gather", (levels + ranks - 1) * ALPHA + 2 * (ranks - 1) * M),
        ("scatter", "linear", (ranks - 1) * (ALPHA + M)),
        ("barrier", "tree", 2 * levels * ALPHA),
    ):
        simulated, (terms, _, why), _ = both(operation, name, {}, ranks, 1000, **conditions)
        assert simulated == pytest.approx(time, rel=1e-9)
        assert terms.total == pytest.approx(time, rel=1e-9)
        assert why == ""


def test_forms_that_do_not_hold_say_why() -> None:
    for operation, name, ranks, why in (
        ("all_to_all", "bruck", 5, "blocks of the last round"),
        ("broadcast", "scatter_all_gather", 6, "the all_gather begins"),
    ):
        simulated, (terms, _, reason), _ = both(operation, name, {}, ranks, 1000, **CONDITIONS)
        assert reason.startswith(why)
        assert simulated < terms.total
    for name in ("bruck", "circulant"):
        options = {"reduce_scatter": name}
        simulated, (terms, _, reason), _ = both("reduce", "reduce_scatter_gather", options, 6, 1000, **CONDITIONS)
        assert reason.startswith("blocks that no step before has touched")
        assert simulated < terms.total


def test_others_have_no_form() -> None:
    for name, key in (("scatter_all_gather", "all_gather"), ("reduce_scatter_gather", "reduce_scatter")):
        form = getattr(forms_of_roots, name)
        assert form("broadcast", 4, lambda m: Costs(1e-6, m), 100, **{key: "pat"}) is None


def test_texts() -> None:
    def text(operation: str, name: str, ranks: int, **options: Any) -> str:
        return str(FORMS[operation, name](operation, ranks, lambda m: Costs(1e-6, m, m), 840, **options)[1])

    assert text("all_to_all", "direct", 8) == "alpha + 7 m beta, m = S/N"
    assert text("all_to_all", "pairwise", 8) == "7 (alpha + m beta), m = S/N"
    assert text("all_to_all", "hierarchical", 12, nodes=3) == "2 alpha + 3 m beta + 2 m' beta, m = S/4, m' = S/3"
    assert text("all_to_all", "bruck", 8) == "3 alpha + 12 m beta, m = S/N"
    assert text("all_reduce", "one_shot", 4) == "alpha + 3 m beta + 3 m gamma, m = S"
    assert text("gather", "binomial_tree", 8) == "3 alpha + 7 m beta, m = S/N"
    assert text("barrier", "tree", 8) == "6 alpha"


@pytest.mark.parametrize(
    ("operation", "name", "parameters"),
    [
        ("all_to_all", "pairwise", {}),
        ("all_to_all", "pairwise", {"window": 3}),
        ("all_to_all", "pairwise_xor", {}),
        ("all_to_all", "nccl_p2p", {"window": 2}),
        ("all_reduce", "one_shot", {}),
    ],
)
def test_edges_of_an_algorithm_are_part_of_its_form_and_others_are_not(operation, name, parameters) -> None:
    machine = collsim.topology.switch(8, bandwidth="50GB/s", latency="1us")
    result = collsim.run(operation, machine, 8 << 17, name, **parameters)
    assert result.theory is not None
    assert result.theory.holds, result.theory.why
    assert result.time == pytest.approx(float(result.theory), rel=1e-9, abs=1e-10)
    paced = collsim.simulate(collsim.window(result.schedule, 1), machine, 8 << 17, check=False)
    if paced.schedule.edges != result.schedule.edges:
        assert paced.theory is not None
        assert not paced.theory.holds
