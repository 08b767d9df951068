"""NVLS: bytes up and down a GPU, both engines, defaults, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim
from collsim import Result, algorithms, check, execute
from collsim.cli.notes import notes
from collsim.cli.table import Row
from collsim.engine.program import NETWORKS
from collsim.errors import AlgorithmError, TopologyError
from collsim.topology import Topology, load_topology, switch
from tests.in_network import able

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")
MIB = 2**20


def machine(ranks: int, **flags: bool) -> Topology:
    return switch(ranks, bandwidth="100GB/s", latency="250ns", **(flags or {"reduces": True, "multicasts": True}))


def bytes_of(result: Result) -> tuple[list[int], list[int]]:
    """Bytes up and down each rank."""
    topology = result.topology
    up, down = np.zeros((2, topology.n_nodes), dtype=np.int64)
    np.add.at(up, topology.link_src, result.link_bytes)
    np.add.at(down, topology.link_dst, result.link_bytes)
    return up[topology.rank_nodes].tolist(), down[topology.rank_nodes].tolist()


@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 13])
@pytest.mark.parametrize(
    ("operation", "up", "down"),
    [
        ("all_reduce", lambda size, n: size + size // n, lambda size, n: size // n + size),
        ("all_gather", lambda size, n: size // n, lambda size, n: size),
        ("reduce_scatter", lambda size, n: size, lambda size, n: size // n),
    ],
)
def test_bytes_up_and_down_a_gpu_are_exact(operation, up, down, ranks):
    size = ranks * 64 * 37
    result = collsim.run(operation, machine(ranks), size, algorithm="nvls")
    assert bytes_of(result) == ([up(size, ranks)] * ranks, [down(size, ranks)] * ranks)


@given(
    st.sampled_from(OPERATIONS), st.integers(1, 9), st.integers(1, 5), st.sampled_from([None, 0, 1, 2, 7]), st.data()
)
@settings(max_examples=40, deadline=None)
def test_proven_and_executed_for_any_number_of_ranks_and_elements(operation, ranks, slices, window, data):
    schedule = algorithms.build(operation, "nvls", ranks, slices=slices, window=window)
    proof = check(schedule)
    assert proof.complete
    assert not proof.unused
    assert not proof.warnings
    elements = data.draw(st.integers(0, 40))  # fewer than ranks, and not divided by them
    rng = np.random.default_rng(elements)
    inputs = [rng.integers(-99, 99, elements).astype(np.float32) for _ in range(ranks)]
    ends = schedule.collective.chunk_elements(elements, ranks).cumsum() if ranks > 1 else np.array([elements])
    if operation == "all_reduce":
        for found in execute(schedule, inputs):
            assert found.tolist() == sum(inputs).tolist()
    elif operation == "reduce_scatter":
        found = execute(schedule, inputs)
        assert np.concatenate(found).tolist() == sum(inputs).tolist()
    else:
        # blocks of a buffer whose chunks differ by an element
        sizes = schedule.elements(elements).reshape(ranks, -1).sum(axis=1)
        blocks = np.split(np.arange(elements, dtype=np.float32), sizes.cumsum()[:-1])
        assert len(ends)
        for found in execute(schedule, blocks):
            assert found.tolist() == list(range(elements))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_engines_agree(operation, network):
    for ranks, size in ((2, 0), (3, 1), (5, 1003), (4, 4 * MIB)):
        schedule = algorithms.build(operation, "nvls", ranks, slices=6)
        one, other = (
            collsim.simulate(schedule, machine(ranks), size, network=network, engine=engine)
            for engine in ("reference", "compiled")
        )
        assert one.time_ps == other.time_ps
        assert one.link_bytes.tolist() == other.link_bytes.tolist()
        assert (one.times.end == other.times.end).all()
        assert one.efficiency <= 1 or network == "alpha_beta"


def test_a_large_all_reduce_comes_near_its_closed_form():
    """(N+1)/N S/B and 2 alpha; the bound, S/B, cannot be reached."""
    topology, size = load_topology("dgx-h100"), 2**30
    result = collsim.run("all_reduce", topology, size, algorithm="nvls")
    form = 1.2e-6 + 9 / 8 * size / 450e9
    assert 0.97 < form / result.time <= 1
    assert 0.86 < result.efficiency < 8 / 9
    unpaced = collsim.run("all_reduce", topology, size, algorithm="nvls", window=0)
    assert form / unpaced.time < 0.57  # all loads go before any store
    small = collsim.run("all_reduce", topology, 1024, algorithm="nvls")
    assert small.time == pytest.approx(1.2e-6, rel=0.01)


def test_bus_bandwidth_beyond_the_link_is_explained():
    topology = load_topology("dgx-h100")

    def text(operation: str, size: int, **options: object) -> str:
        result = collsim.run(operation, topology, size, **options)
        lines = notes([Row(result, 0, 0, "proof")], result.checked)
        return " ".join(" ".join(lines).split())

    large = text("all_reduce", 2**30, algorithm="nvls")
    assert "682.08 GB/s = algbw x 2(N-1)/N, more than the 450GB/s of the slowest link" in large
    assert "switches add up and copy for them" in large
    assert "at most 700.00 GB/s = 2B(N-1)/(N+1)" in large
    for other in (
        text("all_reduce", 1024, algorithm="nvls"),
        text("all_reduce", 2**30, algorithm="ring"),
        text("all_gather", 2**30, algorithm="nvls"),
    ):
        assert "add up and copy" not in other
        assert "hold it against the rate of the slowest link" in other


def test_the_machine_names_the_switch():
    assert collsim.run("all_reduce", load_topology("gb200-nvl72"), 72, algorithm="nvls").schedule.places == (
        "nvswitch",
    )
    assert algorithms.build("all_reduce", "nvls", 4, switch="a").places == ("a",)


@pytest.mark.parametrize(
    ("operation", "flags", "message"),
    [
        (
            "all_reduce",
            {"reduces": True},
            "sw0: the schedule sends a chunk from it more than once; expected `multicasts",
        ),
        (
            "all_gather",
            {"reduces": True},
            "sw0: the schedule sends a chunk from it more than once; expected `multicasts",
        ),
        ("reduce_scatter", {"multicasts": True}, "sw0: the schedule reduces in it; expected `reduces: true`"),
        ("all_reduce", {"multicasts": True}, "sw0: the schedule reduces in it; expected `reduces: true`"),
    ],
)
def test_switches_that_can_do_half_of_it_refuse(operation, flags, message):
    with pytest.raises(TopologyError, match=message):
        collsim.run(operation, machine(4, **flags), 4096, algorithm="nvls")


def test_half_is_enough_where_half_is_needed():
    for operation, flags in (("all_gather", {"multicasts": True}), ("reduce_scatter", {"reduces": True})):
        result = collsim.run(operation, machine(4, **flags), MIB, algorithm="nvls")
        assert 0 < result.efficiency <= 1
        assert result.theory.holds


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        (
            "dgx-a100",
            "no switch that reduces or multicasts; expected `reduces: true` and `multicasts: true` on nvswitch",
        ),
        ("ring8", "no switch that joins all ranks"),
        (
            "dgx-h100-x4",
            "no switch that joins all ranks, only one in each node; for several nodes there is nvls_tree (all_reduce)",
        ),
    ],
)
def test_machines_without_such_a_switch_are_refused_in_one_line(topology, message):
    for operation in OPERATIONS:
        with pytest.raises(AlgorithmError) as caught:
            collsim.run(operation, load_topology(topology), 4096, algorithm="nvls")
        assert str(caught.value) == f"topology {topology!r} has {message}"
    found = collsim.compare("all_reduce", load_topology(topology), "1MiB", algorithms=["ring", "nvls"])
    assert found.unfit == {"nvls": f"topology {topology!r} has {message}"}


def test_compare_ranks_it_where_it_fits():
    found = collsim.compare("all_reduce", load_topology("dgx-h100"), ["1KiB", "1GiB"], algorithms=["ring", "nvls"])
    assert [name for name, _ in found.ranking("1GiB")] == ["nvls", "ring"]
    assert not found.unfit


def test_parameters_that_cannot_be():
    for options, message in (
        ({"switch": 3}, "switch: expected the name of a switch such as nvswitch, got 3"),
        ({"switch": ""}, "switch: expected the name of a switch"),
        ({"slices": 0}, "slices: expected a whole number of at least 1, got 0"),
        ({"slices": 10**30}, "more than the"),
        ({"window": -1}, "window: expected a whole number of at least 0"),
    ):
        for ranks in (1, 4):
            if ranks > 1 or "switch" not in options:
                with pytest.raises(AlgorithmError, match=message):
                    algorithms.build("all_reduce", "nvls", ranks, **options)


def test_any_crossbar_will_do_if_it_is_able():
    topology = able(load_topology("dgx-a100"))
    assert collsim.run("all_reduce", topology, 16 * MIB, algorithm="nvls").busbw > 0
