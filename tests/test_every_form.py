"""Every form of every algorithm: its text gives its value, and where it holds it is the simulated time."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import collsim
from collsim import algorithms
from collsim.collective import Collective
from collsim.errors import AlgorithmError
from collsim.theory import closed_form
from collsim.theory.closed_forms import FORMS
from tests.test_closed_forms import CASES, value_of

PAIRS = sorted({*FORMS, *((operation, algorithm) for algorithm, operation in CASES)})


@st.composite
def factors(draw: st.DrawFn, ranks: int) -> list[int]:
    """Draw numbers whose product is the ranks."""
    found, left = [], ranks
    while left > 1:
        found.append(draw(st.sampled_from([d for d in range(2, left + 1) if left % d == 0])))
        left //= found[-1]
    return draw(st.permutations([*found, 1]))


def values(name: str, algorithm: str, ranks: int) -> st.SearchStrategy[Any]:
    """Draw what a parameter of an algorithm may be; nothing where no form depends on it."""
    inner = {"leader": ["binomial_tree"], "rail": ["direct", "ring"]}.get(algorithm, ["ring"])
    return {
        "channels": st.integers(1, 3),
        "slices": st.integers(1, 5),
        "k": st.integers(1, 4),
        "dims": factors(ranks),
        "levels": factors(ranks),
        "nodes": st.sampled_from([d for d in range(1, ranks + 1) if ranks % d == 0]),
        "inner": st.sampled_from([*inner, "circulant"]),
        "ports": st.integers(1, 2) if algorithm == "swing" else st.sampled_from(["one", "all"]),
        "window": st.sampled_from([None, 0, 1, 2, 3]),
        "radix": st.integers(2, 5),
        "aggregation": st.sampled_from([1, 2, 4]),
        "halvings": st.integers(0, 2),
        "fold": st.sampled_from(["full", "split"]),
        "version": st.sampled_from(["latency", "bandwidth"]),
        "chunks": st.sampled_from([1, 2, 7]),
        "first": st.sampled_from(["intra", "inter"]),
        "all_gather": st.sampled_from(["ring", "circulant", "recursive_doubling", "bruck"]),
        "reduce_scatter": st.sampled_from(["ring", "circulant", "bruck", "pat"]),
    }.get(name, st.nothing())


@st.composite
def parameters(draw: st.DrawFn, operation: str, algorithm: str, ranks: int) -> dict[str, Any]:
    """Draw some parameters of an algorithm."""
    names = list(inspect.signature(algorithms.find(operation, algorithm)).parameters)
    drawn = {name: values(name, algorithm, ranks) for name in names}
    return {name: draw(value) for name, value in drawn.items() if not value.is_empty and draw(st.booleans())}


@settings(max_examples=600)
@given(
    data=st.data(),
    pair=st.sampled_from(PAIRS),
    ranks=st.integers(2, 24),
    size=st.integers(0, 10**8),
    gamma=st.sampled_from([0.0, 1e-12, 1e-10]),
    overhead=st.sampled_from([0.0, 1e-6, 5e-6]),
    ports=st.sampled_from(["one", "each", "none"]),
    stores=st.sampled_from([1.0, 2.0, 1 + 50 / 450]),
    synchronous=st.booleans(),
)
def test_the_text_gives_the_value(
    data: st.DataObject, pair: tuple[str, str], ranks: int, size: int, ports: str, **costs: Any
) -> None:
    operation, algorithm = pair
    options = data.draw(parameters(operation, algorithm, ranks))
    if "ports" in options:
        options["algorithm_ports"] = options.pop("ports")
    if algorithm == "multitree":
        options["slots"] = data.draw(st.sampled_from([None, 1, 7]))
    alpha = costs["overhead"] + 1e-6
    p = closed_form(algorithm, Collective(operation, ranks), size, alpha, 2e-11, ports=ports, **costs, **options)
    assume(p is not None)
    assert p is not None
    assert p.latency + p.bandwidth + p.reduction == pytest.approx(p, rel=1e-12)
    known = {"alpha": alpha, "beta": 2e-11, "gamma": costs["gamma"], "overhead": costs["overhead"]}
    assert value_of(p.formula, size, ranks, **known) == pytest.approx(p, rel=1e-9, abs=1e-20), p.formula
    assert p.formula.isascii()
    # no zeros, no ones, nothing twice in a row
    assert not re.search(r"(?<![\w.])0(?![\w.])|(?<![\w./=(-])1 [a-zS(]|(?<![\w.=/])1(?= \()", p.formula), p.formula
    assert not re.search(r"(?<![\w)] )\b([a-zS][\w/]* (?:beta|gamma)) \+ \1(?!\w)", p.formula), p.formula


MACHINES = {
    "switch": collsim.topology.switch,
    "fully_connected": collsim.topology.fully_connected,
    "ring": collsim.topology.ring,
    "bidirectional_ring": collsim.topology.bidirectional_ring,
}


@settings(max_examples=500)
@given(
    data=st.data(),
    pair=st.sampled_from(PAIRS),
    machine=st.sampled_from([*MACHINES, "torus", "switch", "fully_connected"]),
    ranks=st.sampled_from([2, 3, 4, 6, 7, 8, 9, 12, 16]),
    size=st.one_of(st.integers(1, 20_000), st.integers(1, 60).map(lambda m: m * 5040 * 16)),
    network=st.sampled_from(["cut_through", "cut_through", "store_and_forward", "alpha_beta", "fluid"]),
    latency=st.sampled_from(["0s", "50ns", "5us"]),
    overhead=st.sampled_from(["0s", "0s", "300ns", "3us"]),
    rate=st.sampled_from([0, 0, 10**9, 200 * 10**9]),
    synchronous=st.booleans(),
)
def test_a_prediction_that_holds_is_the_simulated_time(
    data: st.DataObject,
    pair: tuple[str, str],
    machine: str,
    ranks: int,
    size: int,
    network: str,
    latency: str,
    overhead: str,
    rate: int,
    synchronous: bool,
) -> None:
    operation, algorithm = pair
    make, shape = (
        (collsim.topology.torus, tuple(data.draw(factors(ranks)))) if machine == "torus" else (MACHINES[machine], ranks)
    )
    topology = make(shape, bandwidth="7GB/s", latency=latency, send_overhead=overhead, reduce_bandwidth=rate)
    options = data.draw(parameters(operation, algorithm, ranks))
    try:
        result = collsim.run(
            operation, topology, size, algorithm, dtype="int8", network=network, synchronous=synchronous, check=False,
            **options,
        )  # fmt: skip
    except AlgorithmError:
        assume(False)
        raise
    if result.theory is not None and result.theory.holds:
        rounding = 1e-12 * (8 * result.schedule.steps + 8)
        assert result.theory == pytest.approx(result.time, rel=1e-9, abs=rounding), result.theory


@pytest.mark.parametrize(
    ("ranks", "parameters", "time"),
    [(32, {}, 50.63), (16, {"levels": [4, 4], "inner": "direct"}, None), (24, {}, None), (7, {}, None)],
)
def test_blueconnect_by_its_own_factors(ranks: int, parameters: dict[str, Any], time: float | None) -> None:
    for operation in ("all_reduce", "reduce_scatter", "all_gather"):
        topology = collsim.topology.switch(ranks)
        result = collsim.run(operation, topology, ranks << 15, "blueconnect", **parameters)
        if "inner" in parameters:
            assert result.theory is None
            continue
        assert result.theory is not None
        assert result.theory.holds
        assert result.theory == pytest.approx(result.time, rel=1e-6)
        if time and operation == "all_reduce":
            assert result.time * 1e6 == pytest.approx(time, abs=0.01)


@pytest.mark.parametrize("algorithm", algorithms.available()["all_to_all"])
def test_blocks_of_all_to_all_that_do_not_divide(algorithm: str) -> None:
    ranks = 8
    topology = collsim.topology.switch(ranks)
    for size, even in ((ranks * 4 * 21, True), (ranks * 4 * 21 + 4, False), (4, False), (0, True)):
        theory = collsim.run("all_to_all", topology, size, algorithm, dtype="float").theory
        assert theory is not None
        assert ("not cut into equal chunks" in theory.why) is not even
        if not even:
            assert not theory.holds
    assert collsim.run("barrier", topology, 5, "dissemination", dtype="int8").theory.holds


@pytest.mark.parametrize("algorithm", ["pairwise", "pairwise_xor", "nccl_p2p"])
@pytest.mark.parametrize("window", [None, 0])
def test_no_window_is_no_pacing(algorithm: str, window: int | None) -> None:
    collective = Collective("all_to_all", 8)
    at_once = closed_form("direct", collective, 8000, 1e-6, 1e-9)
    assert closed_form(algorithm, collective, 8000, 1e-6, 1e-9, window=window) == at_once
    result = collsim.run("all_to_all", collsim.topology.switch(8), 8000, algorithm, window=window)
    assert result.theory is not None
    assert result.theory.holds
    assert result.theory == pytest.approx(result.time, rel=1e-9)
    assert str(result.theory.formula) == "alpha + 7 m beta, m = S/N"
