"""The window of pipelined algorithms, and docs/pacing.md."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import pytest

import collsim
from collsim import Schedule, algorithms, check, simulate, window
from collsim.errors import AlgorithmError
from collsim.schedule import Edge
from collsim.topology import fully_connected, switch

ROOTED = ("broadcast", "reduce")
PIPELINES = [
    *((operation, name) for operation in (*ROOTED, "all_reduce") for name in ("tree", "double_binary_tree")),
    *((operation, "ring") for operation in ROOTED),
]
IN_TURN = [(operation, name) for operation, name in PIPELINES if name != "double_binary_tree"]
MACHINE = {"bandwidth": "50GB/s", "latency": "1us"}


@pytest.mark.parametrize(("operation", "name"), PIPELINES)
def test_the_parameter_is_a_window_of_the_queue_of_a_peer(operation: str, name: str) -> None:
    for ranks in (1, 2, 5, 8):
        bare = algorithms.build(operation, name, ranks, slices=6)
        assert not bare.edges
        assert bare == algorithms.build(operation, name, ranks, slices=6, window=None)
        assert bare == algorithms.build(operation, name, ranks, slices=6, window=0)
        for n in (1, 4, 12):
            paced = algorithms.build(operation, name, ranks, slices=6, window=n)
            assert paced == window(bare, n, per=("src", "dst", "channel", "reduce"), at="issued")
            assert bool(paced.edges) == (ranks > 1 and n < 12)
            assert Schedule.from_text(str(paced)) == paced
            assert check(paced).complete
            assert paced.parameters["window"] == n


@pytest.mark.parametrize(("operation", "name"), PIPELINES)
@pytest.mark.parametrize("value", [-1, 1.5, True, "2"])
def test_other_windows_are_refused(operation: str, name: str, value: Any) -> None:
    with pytest.raises(AlgorithmError) as caught:
        algorithms.build(operation, name, 4, window=value)
    assert str(caught.value) == f"window: expected a whole number of at least 0 (0 for no pacing), got {value!r}"


@pytest.mark.parametrize(("operation", "name"), PIPELINES)
def test_the_default_is_no_pacing(operation: str, name: str) -> None:
    """Told in the docs, with numbers: no window is right in every network."""
    assert inspect.signature(algorithms.find(operation, name)).parameters["window"].default is None


@pytest.mark.parametrize("operation", ["reduce", "all_reduce"])
def test_double_trees_are_faster_with_a_window(operation: str) -> None:
    """S/B up and S/B down are the least; unpaced it is 1.5 times that up, and 2.3 times up and down."""
    topology, least = switch(8, **MACHINE), 2**26 / 50e9
    times = {
        n: collsim.run(operation, topology, 2**26, "double_binary_tree", window=n).time / least for n in (None, 1, 2, 4)
    }
    before, now = (1.53, 1.11) if operation == "reduce" else (2.5, 2.06)
    assert times[None] == pytest.approx(before, abs=0.01)
    assert times[1] == pytest.approx(now, abs=0.01)
    assert times[1] <= times[2] <= times[4] < times[None]


@pytest.mark.parametrize("size", ["1KiB", "64KiB", "1MiB", "64MiB"])
@pytest.mark.parametrize(("operation", "name"), PIPELINES)
def test_a_window_costs_nothing_where_ports_have_queues(operation: str, name: str, size: str) -> None:
    for ranks in (5, 8):
        topology = switch(ranks, **MACHINE)
        for network in ("cut_through", "store_and_forward"):
            bare, paced = (collsim.run(operation, topology, size, name, network=network, window=n) for n in (None, 1))
            assert paced.time <= 1.001 * bare.time


def test_slices_that_share_a_link_need_a_window() -> None:
    """In the fluid network, a chain of 8: with all slices under way each hop takes nearly as long as the message."""
    times = {
        n: collsim.run("reduce", switch(8, **MACHINE), "16MiB", "ring", network="fluid", window=n) for n in (None, 1)
    }
    assert times[1].time < times[None].time / 4.9
    small = {
        n: collsim.run("reduce", switch(8, **MACHINE), "1KiB", "ring", network="fluid", window=n) for n in (None, 1)
    }
    assert small[1].time > 3 * small[None].time  # with a latency for each slice


@pytest.mark.parametrize(("operation", "name"), IN_TURN)
def test_closed_forms_of_chains_and_trees_hold_with_a_window(operation: str, name: str) -> None:
    held = 0
    for make in (switch, fully_connected):
        for ranks in (2, 3, 7, 8):
            topology = make(ranks, **MACHINE)
            for more in ({"k": 1}, {"k": 2}) if name == "tree" else ({"channels": 1}, {"channels": 2}):
                for network in ("cut_through", "store_and_forward"):
                    for n in (1, 2):
                        for synchronous in (False, True):
                            result = collsim.run(
                                operation, topology, 2_400_000, name, network=network, synchronous=synchronous,
                                slices=6, window=n, **more,
                            )  # fmt: skip
                            assert result.schedule.edges
                            assert result.theory is not None
                            assert "written edges pace it" not in result.theory.why
                            if result.theory.holds:
                                held += 1
                                assert float(result.theory) == pytest.approx(result.time, rel=1e-9, abs=1e-10)
    assert held > 20


@pytest.mark.parametrize(
    ("schedule", "network"),
    [
        (algorithms.ring_broadcast(4, slices=8, window=2), "alpha_beta"),
        (algorithms.ring_broadcast(4, slices=8, window=2), "fluid"),
        (window(algorithms.ring_broadcast(4, slices=8), 2), "cut_through"),
        (replace(algorithms.ring_broadcast(4, slices=8, window=2), edges=(Edge(0, 1, 0, 0),)), "cut_through"),
        (algorithms.double_binary_tree_broadcast(4, slices=8, window=2), "cut_through"),
        (algorithms.tree_broadcast(4, slices=8, window=2).labelled("ring", window="wide"), "cut_through"),
    ],
)
def test_other_edges_may_change_the_time(schedule: Schedule, network: str) -> None:
    theory = simulate(schedule, switch(4, **MACHINE), 2**20, network=network).theory
    assert theory is not None
    assert not theory.holds
    assert "written edges pace it" in theory.why


@pytest.mark.parametrize("operation", [*ROOTED, "all_reduce"])
def test_the_estimate_of_a_double_tree_knows_the_window(operation: str) -> None:
    for ranks in (4, 5, 8, 16):
        for n in (1, 2):
            result = collsim.run(operation, switch(ranks, **MACHINE), 2**26, "double_binary_tree", window=n)
            assert result.theory == pytest.approx(result.time, rel=0.15)


def test_the_document_is_what_is_simulated_now(monkeypatch: pytest.MonkeyPatch) -> None:
    pacing = pytest.importorskip("benchmarks.pacing", reason="the benchmarks are not here, nor is what they wrote")
    monkeypatch.setattr(pacing, "MACHINES", ("dgx-h100",))
    monkeypatch.setattr(pacing, "SIZES", ("64KiB", "1GiB"))
    monkeypatch.setattr(pacing, "CASES", (("reduce", "double_binary_tree"), ("reduce", "ring")))
    now = [line for line in pacing.text().splitlines() if line]
    assert len([line for line in now if line.startswith("| ")]) == 2 * 5
    written = pacing.FILE.read_text(encoding="utf-8").splitlines()
    assert [line for line in now if line not in written] == [], "run python -m benchmarks.pacing"


def test_the_generator_writes_the_document(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: Any) -> None:
    pacing = pytest.importorskip("benchmarks.pacing", reason="the benchmarks are not here, nor is what they wrote")
    monkeypatch.setattr(pacing, "CASES", ())
    monkeypatch.setattr(pacing, "FILE", tmp_path / "pacing.md")
    pacing.main()
    assert (tmp_path / "pacing.md").read_text(encoding="utf-8") == pacing.text()
    assert capsys.readouterr().out.endswith("pacing.md\n")
