"""Lower bounds of large machines: exact where symmetry allows it, soon found, and truthful about how."""

from __future__ import annotations

import time

import pytest

import collsim.topology as machines
from collsim.collective import Collective
from collsim.theory import lower_bound, search

G = 10**9
ROOTED = ("broadcast", "reduce", "gather", "scatter")
OPERATIONS = ("all_gather", "reduce_scatter", *ROOTED, "all_reduce", "all_to_all", "send_recv")


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    """Compiled flows are loaded once a process; that is not what is timed here."""
    lower_bound(Collective("all_gather", 1024), 2**20, machines.fat_tree(1024))


def rates(topology, operations=OPERATIONS):
    """GB/s that the bound comes to, and seconds that the slowest search took."""
    found, slowest = {}, 0.0
    for operation in operations:
        start = time.perf_counter()
        bound = lower_bound(Collective(operation, topology.n_ranks), topology.n_ranks * 2**20, topology)
        slowest = max(slowest, time.perf_counter() - start)
        found[operation] = bound.rate / G
    return found, slowest


def test_a_fat_tree_of_1024_gpus():
    found, seconds = rates(machines.fat_tree(1024))
    port = pytest.approx(50 * 1024 / 1023, rel=1e-12)
    assert found["all_gather"] == found["reduce_scatter"] == found["gather"] == found["scatter"] == port
    assert found["all_to_all"] == port
    assert found["broadcast"] == found["reduce"] == found["send_recv"] == 50
    assert found["all_reduce"] == pytest.approx(25 * 1024 / 1023, rel=1e-12)
    assert seconds < 8  # under 1 on a machine that has nothing else to do


def test_an_oversubscribed_fat_tree_is_limited_by_its_leaves():
    topology = machines.fat_tree(1024, 32, oversubscription=4)
    found, _ = rates(topology, ("all_gather", "all_to_all", "all_reduce"))
    assert found["all_gather"] == pytest.approx(50 * 1024 / 1023, rel=1e-12)  # that of a GPU: 32 of them share 400
    assert found["all_to_all"] == pytest.approx(400 * 1024 / (32 * 992), rel=1e-12)
    assert found["all_reduce"] == pytest.approx(25 * 1024 / 1023, rel=1e-12)
    bound = lower_bound(Collective("all_to_all", 1024), 2**30, topology)
    assert bound.reason.startswith("cut: out of gpu0 to gpu31: leaf -> spine, 8 x 50GB/s to the 992 GPUs outside")


def test_128_nodes_of_8_gpus_on_rails():
    topology = machines.rail_optimized(128, 8)
    found, seconds = rates(topology)
    node = pytest.approx(8 * 50 * 1024 / 1016, rel=1e-12)
    assert found["all_gather"] == found["reduce_scatter"] == found["gather"] == found["scatter"] == node
    assert found["all_to_all"] == pytest.approx(8 * 50 * 1024 / (8 * 1016), rel=1e-12)
    assert found["broadcast"] == found["reduce"] == found["send_recv"] == 400
    assert found["all_reduce"] == pytest.approx(400 * 128 / (2 * 127), rel=1e-12)  # by nodes
    assert seconds < 8
    bound = lower_bound(Collective("all_gather", 1024), 2**30, topology)
    assert bound.method == "by maximum flow, for one GPU as all are alike"
    assert bound.reason == f"cut: into node[0]: leaf -> nic, 8 x 50GB/s for the 1,016 GPUs outside ({bound.method})"
    bound = lower_bound(Collective("broadcast", 1024), 2**30, topology)
    assert bound.method == "by maximum flow, one GPU of each of 3 kinds"


def test_16384_gpus():
    topology = machines.rail_optimized(4096, 4)
    found, seconds = rates(topology)
    assert found["all_gather"] == pytest.approx(200 * 16384 / 16380, rel=1e-12)
    assert found["all_reduce"] == pytest.approx(200 * 4096 / (2 * 4095), rel=1e-12)
    assert seconds < 15


@pytest.mark.slow
def test_131072_gpus():
    topology = machines.rail_optimized(16384, 8)
    found, seconds = rates(topology, ("all_gather", "all_reduce", "all_to_all", "broadcast"))
    assert found["all_gather"] == pytest.approx(400 * 131072 / 131064, rel=1e-12)
    assert found["all_reduce"] == pytest.approx(400 * 16384 / (2 * 16383), rel=1e-12)
    assert found["all_to_all"] == pytest.approx(50 * 131072 / 131064, rel=1e-12)
    assert found["broadcast"] == 400
    assert seconds < 60


def test_a_machine_without_symmetry_is_searched_as_far_as_time_allows(monkeypatch):
    """A ring on which each link is slower than the one before; rank 30's is the last."""
    builder = machines.TopologyBuilder("slower")
    for rank in range(31):
        builder.add_node(f"gpu{rank}", "gpu")
    for rank in range(31):
        builder.add_link(f"gpu{rank}", f"gpu{(rank + 1) % 31}", (100 - rank) * G, 0)
    topology = builder.build()
    collective = Collective("all_gather", 31)
    whole = lower_bound(collective, 31 * 10**6, topology)
    assert whole.method == "by maximum flow"
    assert whole.rate == pytest.approx(31 / 30 * 70 * G, rel=1e-12)
    monkeypatch.setattr(search, "ALL", 0)
    monkeypatch.setattr(search, "SINKS", {"greatest ratio": 5 * 31})
    topology.cache.clear()
    some = lower_bound(collective, 31 * 10**6, topology)
    assert some.method == "by maximum flow, tried for 5 of 31 GPUs"
    assert some <= whole
