"""Closed forms of algorithms with switches against both engines, and what they say where they are not exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import collsim
from collsim import Collective, algorithms
from collsim.theory import closed_form
from collsim.topology import TopologyBuilder, load_topology, switch
from tests.in_network import able

G = 10**9


def agrees(result: collsim.Result) -> bool:
    """Up to the picosecond by which each message may be rounded up."""
    return abs(result.time - result.theory) <= 1e-12 * (2 + 2 * result.schedule.steps) + 1e-9 * result.time


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("slices", [1, 2, 3, 8])
@pytest.mark.parametrize("window", [None, 1, 2, 4])
def test_nvls_holds_where_it_says_so(ranks, slices, window):
    topology = switch(ranks, bandwidth="1GB/s", latency="500ns", reduces=True, multicasts=True)
    held = 0
    for operation in ("all_reduce", "all_gather", "reduce_scatter"):
        for power in range(2, 24, 3):
            size = ranks * slices * 2**power
            for network in ("cut_through", "store_and_forward", "alpha_beta"):
                result = collsim.run(
                    operation, topology, size, "nvls", slices=slices, window=window, network=network, check=False
                )
                if result.theory.holds:
                    held += 1
                    assert agrees(result), (operation, size, network, result.theory)
                else:  # the turns of loads and stores shift it by a few messages
                    assert operation == "all_reduce"
                    assert "take turns" in result.theory.why
                    assert abs(result.time - result.theory) < ((window or 0) + 2) * 1e-9 * size / slices
    assert held >= 8 * 3 * 3 - 2 * 3 * 3


def test_the_formula_of_nvls_and_its_parts():
    topology = load_topology("dgx-h100")
    large = collsim.run("all_reduce", topology, 2**30, "nvls").theory
    assert large.formula == "alpha + (N+1)/N S beta + 15 m beta, m = S/(N k), k = 64"
    assert large.holds
    assert large.bandwidth == pytest.approx((9 / 8 + 15 / 512) * 2**30 / 450e9)
    small = collsim.run("all_reduce", topology, 8192, "nvls").theory
    assert small.formula == "2 alpha + S beta + 10 m beta, m = S/(N k), k = 64"
    assert small.holds
    assert small.latency == pytest.approx(1.2e-6)
    form = closed_form("nvls", Collective("all_gather", 4), 4000, 1e-6, 1e-9, slices=10)
    assert float(form) == pytest.approx(1e-6 + 4.1e-6)
    assert closed_form("nvls", Collective("all_reduce", 1), 4000, 1e-6, 1e-9) == 0
    assert closed_form("nvls", Collective("broadcast", 4), 4000, 1e-6, 1e-9) is None


@pytest.mark.parametrize("operation", ["all_reduce", "reduce", "broadcast"])
@pytest.mark.parametrize("window", [None, 1, 3])
def test_sharp_is_exact(operation, window):
    topology = load_topology("dgx-h100-x4-sharp")
    for slices, size in ((1, 4096), (4, 2**20), (64, 2**22)):
        result = collsim.run(operation, topology, size, "sharp", slices=slices, window=window, check=False)
        assert result.theory.holds
        assert agrees(result)
        assert result.theory.latency == pytest.approx(3.3e-6)
        assert result.theory.formula == f"4 alpha + {3 + slices} m beta, m = S/{slices}"


def test_sharp_on_a_tree_whose_ways_differ():
    b = TopologyBuilder("crooked")
    for rank in range(4):
        b.add_node(f"g{rank}")
    for name in ("a", "b", "top"):
        b.add_node(name, kind="switch", reduces=True, multicasts=True)
    for child, parent, rate, latency in (
        ("g0", "a", 4, 900), ("g1", "a", 2, 100), ("g2", "b", 3, 5000), ("a", "b", 1, 700), ("b", "top", 5, 200),
        ("g3", "top", 1, 9000),
    ):  # fmt: skip
        b.add_duplex(child, parent, rate * G, latency * 1000)
    topology = b.build()
    for size in (64, 6400, 64 * 10**5):
        for network in ("cut_through", "store_and_forward"):
            result = collsim.run("all_reduce", topology, size, "sharp", slices=64, network=network)
            assert result.theory.holds, result.theory.why
            assert agrees(result), size


def test_what_keeps_a_form_from_being_exact():
    topology = switch(4, bandwidth="1GB/s", latency="500ns", reduces=True, multicasts=True)

    def why(machine=topology, size=2**20, **options) -> str:
        theory = collsim.run("all_gather", machine, size, "nvls", **options).theory
        assert not theory.holds
        return theory.why

    assert "fluid model" in why(network="fluid")
    assert "wait for each other" in why(synchronous=True)
    assert "not cut into equal chunks" in why(size=1001)
    assert "sender that takes time" in why(replace(topology, send_overhead=np.full(5, 1000)))
    assert "differ in latency" in why(replace(topology, link_latency=topology.link_latency + np.arange(8)))
    slower = topology.link_bandwidth.copy()
    slower[0] //= 2
    assert "differ in bandwidth" in why(replace(topology, link_bandwidth=slower))
    paced = collsim.window(algorithms.nvls_all_gather(4), 1, at="end")
    assert "written edges pace it" in collsim.simulate(paced, topology, 2**20).theory.why


def test_no_form_for_what_has_none():
    sharp = load_topology("dgx-h100-x4-sharp")
    assert collsim.run("all_reduce", sharp, 4096, "collnet_direct", slices=2).theory is None
    # the label of another schedule
    odd = algorithms.sharp_all_reduce(4).labelled("sharp", tree=(("x", (0, 1, 2, 3)),), slices=64, window=2)
    assert collsim.simulate(odd, able(switch(4)), 4096).theory is None
