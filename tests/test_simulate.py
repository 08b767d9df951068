"""Simulated times against what is known: formulas, exact records, relations between models."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import collsim
from collsim import algorithms
from collsim.engine.program import NETWORKS
from collsim.errors import AlgorithmError, DeadlockError, InputError, ProofError
from tests.in_network import without_switches

TOPOLOGIES = Path(__file__).parents[1] / "topologies"
ALL = without_switches()
BLOCKED = ("reduce_scatter", "all_gather")


def takes(operation, name, n):
    """Whether an algorithm takes a number of ranks; those that are here do, others may refuse some."""
    try:
        return algorithms.build(operation, name, n).ranks == n
    except AlgorithmError:
        return False


def some_ranks(operation, name):
    """12 ranks, or as many as an algorithm takes that refuses 12."""
    return next(n for n in (12, 16, *range(4, 64, 4)) if takes(operation, name, n))


def ring(n, **more):
    return collsim.topology.ring(n, bandwidth="50GB/s", latency="1us", **more)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("operation", ["all_reduce", *BLOCKED])
def test_ring_takes_the_textbook_time(operation, network):
    phases = 2 if operation == "all_reduce" else 1
    for n in range(2, 65):
        size = n * 100_000
        result = collsim.run(operation, ring(n), size, network=network, check=n < 9)
        assert result.time_ps == phases * (n - 1) * (1_000_000 + 2_000_000)
        assert result.time == pytest.approx(phases * (n - 1) * (1e-6 + size / n / 50e9), rel=1e-12)
        assert result.theory == pytest.approx(result.time, rel=1e-12)
        assert result.theory.holds
        assert result.bytes_sent_per_rank.tolist() == [phases * (n - 1) * size // n] * n


@pytest.mark.parametrize("n", [3, 5, 7, 8])
def test_bytes_sent_are_exact_where_ranks_do_not_divide(n):
    size = 1003
    sizes = [size // n + (i < size % n) for i in range(n)]
    sent = collsim.run("all_reduce", ring(n), size).bytes_sent_per_rank.tolist()
    # a rank sends every chunk but its own one while reducing, and every chunk but its right neighbour's while copying
    assert sent == [2 * size - sizes[r] - sizes[(r + 1) % n] for r in range(n)]
    assert sum(sent) == 2 * (n - 1) * size
    scattered = collsim.run("reduce_scatter", ring(n), size).bytes_sent_per_rank.tolist()
    assert scattered == [size - sizes[r] for r in range(n)]


def test_exact_records_of_a_ring_of_three():
    topo = collsim.topology.ring(3, bandwidth="1GB/s", latency="1ns")
    r = collsim.run("reduce_scatter", topo, 7).records  # chunks of 3, 2, 2 bytes; 1 ns a byte
    rows = list(
        zip(
            *(r[k].tolist() for k in ("step", "src", "dst", "chunk", "bytes", "ready_ps", "start_ps", "end_ps")),
            strict=True,
        )
    )
    assert rows == [
        (0, 0, 1, 2, 2, 0, 0, 3000),
        (0, 1, 2, 0, 3, 0, 0, 4000),
        (0, 2, 0, 1, 2, 0, 0, 3000),
        (1, 0, 1, 1, 2, 3000, 3000, 6000),  # 0 -> 1 is free since 2000, chunk 1 came at 3000
        (1, 1, 2, 2, 2, 3000, 3000, 6000),  # 1 -> 2 is free at 3000
        (1, 2, 0, 0, 3, 4000, 4000, 8000),
    ]


def test_reduction_and_overhead_add_up():
    topo = collsim.topology.ring(4, bandwidth="1GB/s", latency="1us", reduce_bandwidth="2GB/s", send_overhead="300ns")
    result = collsim.run("all_reduce", topo, 4000)
    # six hops of 0.3 + 1 + 1 us, three reductions of 0.5 us
    assert result.time_ps == 6 * 2_300_000 + 3 * 500_000
    assert result.breakdown_ps == {
        "latency": 6_000_000, "serialisation": 6_000_000, "queueing": 0, "reduction": 1_500_000, "overhead": 1_800_000,
        "pacing": 0,
    }  # fmt: skip


@pytest.mark.parametrize(("operation", "name"), ALL)
def test_breakdown_sums_to_the_time(operation, name):
    topo = collsim.topology.fat_tree(
        some_ranks(operation, name), 4, spines=2, bandwidth="10GB/s", latency="500ns", send_overhead="100ns",
        reduce_bandwidth="40GB/s",
    )  # fmt: skip
    for network in NETWORKS:
        for synchronous in (False, True):
            result = collsim.run(operation, topo, 10_007, name, network=network, synchronous=synchronous)
            assert sum(result.breakdown_ps.values()) == result.time_ps
            assert min(result.breakdown_ps.values()) >= 0
            if network == "alpha_beta":
                assert result.breakdown_ps["queueing"] == 0


@pytest.mark.parametrize(("operation", "name"), ALL)
def test_alpha_beta_is_never_slower_transfer_by_transfer(operation, name):
    n = next(n for n in (16, 12) if takes(operation, name, n))
    topologies = [
        collsim.topology.fat_tree(n, 4, spines=2, bandwidth="10GB/s", latency="500ns"),
        collsim.topology.torus(
            (n // 4, 4), bandwidth="10GB/s", latency="1us", reduce_bandwidth="20GB/s", send_overhead="50ns"
        ),
    ]
    for topo in topologies:
        free = collsim.run(operation, topo, 100_003, name, network="alpha_beta").records["end_ps"]
        for network in NETWORKS[1:]:
            assert (free <= collsim.run(operation, topo, 100_003, name, network=network).records["end_ps"]).all()


@pytest.mark.parametrize(("operation", "name"), ALL)
def test_nothing_beats_the_bound(operation, name):
    for n in (n for n in (1, 2, 3, 6, 8) if takes(operation, name, n)):
        topologies = [
            collsim.topology.switch(n, bandwidth="10GB/s", latency="1us", reduce_bandwidth="30GB/s"),
            collsim.topology.line(n, bandwidth="10GB/s", latency="1us"),
            collsim.topology.fully_connected(n, bandwidth="10GB/s", latency="1us", send_overhead="200ns"),
        ]
        for topo in topologies:
            for size in (1, n - 1, 1000, 1_000_003):
                for network in NETWORKS:
                    result = collsim.run(operation, topo, size, name, network=network, check=False)
                    assert result.bound <= result.time * (1 + 1e-12), (n, topo, size, network)
                    assert 0 <= result.efficiency <= 1 + 1e-12


@given(
    n=st.integers(2, 9),
    name=st.sampled_from(ALL),
    size=st.integers(0, 10**6),
    factor=st.integers(2, 5),
    latency=st.integers(0, 2000),
)
@settings(max_examples=60)
def test_monotone_without_sharing(n, name, size, factor, latency):
    def time(size, rate, latency):
        topo = collsim.topology.fully_connected(n, bandwidth=f"{rate}GB/s", latency=f"{latency}ns")
        return collsim.run(name[0], topo, size, name[1], network="alpha_beta", check=False).time_ps

    assume(takes(*name, n))
    base = time(size, 10, latency)
    assert time(size, 10 * factor, latency) <= base
    assert time(size * factor, 10, latency) >= base
    assert time(size, 10, latency * factor) >= base


@given(n=st.integers(2, 9), seed=st.integers(0, 1000), operation=st.sampled_from(["all_reduce", *BLOCKED]))
@settings(max_examples=40)
def test_relabelling_ranks_changes_nothing_without_sharing(n, seed, operation):
    order = np.random.default_rng(seed).permutation(n).tolist()
    topo = collsim.topology.fully_connected(n, bandwidth="10GB/s", latency="1us")
    for network in NETWORKS:
        times = {
            collsim.run(operation, topo, 1000 * n, network=network, order=given_order, check=False).time_ps
            for given_order in (list(range(n)), order)
        }
        assert len(times) == 1


def test_dgx1_ring_order_matters_and_the_result_says_why():
    topo = collsim.load_topology(TOPOLOGIES / "dgx-1-v100.yaml")
    good = collsim.run("all_reduce", topo, "64MiB")
    naive = collsim.simulate(algorithms.ring_all_reduce(8), topo, "64MiB")
    assert good.time < 0.6 * naive.time
    assert good.shared == []
    assert good.waits == []
    assert good.breakdown_ps["queueing"] == 0
    assert [name for name, _, _ in naive.waits] == ["gpu[3]->gpu[0]#1"]
    # two pairs take turns at that link, so half of its 28 messages are in the way of the other half
    assert naive.breakdown_ps["queueing"] == naive.breakdown_ps["serialisation"]
    assert not naive.theory.holds
    assert "shared" in naive.theory.why


def parts_of(result):
    return {name: value for name, value in result.breakdown_ps.items() if value}


def test_the_parts_of_a_pipeline_are_those_of_its_formula():
    topo = collsim.topology.switch(7, bandwidth="1GB/s", latency="500ns", send_overhead="10ns")
    # a chain of 6 hops, 8 slices of 1 us: the first one pays the latency of every hop, the other seven follow
    chain = collsim.run("broadcast", topo, 8000, "ring", slices=8)
    assert parts_of(chain) == {"latency": 6_000_000, "serialisation": 6_000_000 + 7_000_000, "overhead": 60_000}
    # two levels, two children: the root's port sends 16 slices, then one message of the next level behind another one
    tree = collsim.run("broadcast", topo, 8000, "tree", slices=8)
    assert parts_of(tree) == {"latency": 2_000_000, "serialisation": 18_000_000, "overhead": 20_000}


def test_waiting_for_others_is_queueing():
    topo = collsim.topology.switch(4, bandwidth="1GB/s", latency="500ns", reduce_bandwidth="2GB/s")
    b = collsim.ScheduleBuilder(collsim.Collective("reduce", 4), chunks=1)
    b.reduce([1, 2, 3], 0)
    incast = collsim.simulate(b.build(), topo, 1000)
    # three messages of 1 us come in by one link; reducing takes 0.5 us and is done before the next one is there
    assert parts_of(incast) == {
        "latency": 1_000_000, "serialisation": 1_000_000, "queueing": 2_000_000, "reduction": 500_000,
    }  # fmt: skip
    assert incast.waits == [("sw0->gpu0", 2, 3_000_000)]
    slow = collsim.topology.switch(4, bandwidth="1GB/s", latency="500ns", reduce_bandwidth="500MB/s")
    incast = collsim.simulate(b.build(), slow, 1000)
    # now the reducer is what they wait for: 1 us on the wire, then 2 us each
    assert parts_of(incast) == {
        "latency": 1_000_000, "serialisation": 1_000_000, "queueing": 4_000_000, "reduction": 2_000_000,
    }  # fmt: skip


def test_a_slow_link_before_a_fast_one_is_where_a_message_is_serialised():
    builder = collsim.topology.TopologyBuilder("funnel")
    for name, kind in (("gpu0", "gpu"), ("sw", "switch"), ("gpu1", "gpu")):
        builder.add_node(name, kind)
    builder.add_link("gpu0", "sw", 10**9, 1000)
    builder.add_link("sw", "gpu1", 4 * 10**9, 2000)
    topo = builder.build()
    one = collsim.Schedule.from_text("broadcast ranks=2 chunks=1 root=0\nrepeat 1\n  step 0\n    0 -> 1  0")
    assert parts_of(collsim.simulate(one, topo, 1000)) == {"latency": 3000, "serialisation": 1_000_000}
    stored = collsim.simulate(one, topo, 1000, network="store_and_forward")
    assert parts_of(stored) == {"latency": 3000, "serialisation": 1_250_000}


def test_synchronous_steps_wait_for_the_slowest():
    topo = collsim.topology.ring(4, bandwidth="1GB/s", latency="1us")
    chain = algorithms.ring_broadcast(4, slices=5)
    # asynchronous slices follow each other at the rate of the link; textbook steps pay the latency each time
    assert collsim.simulate(chain, topo, 5000).time_ps == 3 * 2_000_000 + 4 * 1_000_000
    assert collsim.simulate(chain, topo, 5000, synchronous=True).time_ps == (4 - 2 + 5) * 2_000_000


def test_size_zero_and_one_rank():
    for network in NETWORKS:
        result = collsim.run("all_reduce", ring(4), 0, network=network)
        assert result.time_ps == 6 * 1_000_000
        assert result.algbw == 0
        alone = collsim.run(
            "all_reduce", collsim.topology.switch(1, bandwidth="1GB/s", latency="1us"), 100, network=network
        )
        assert (alone.time_ps, alone.transfers, alone.busbw, alone.efficiency) == (0, 0, 0.0, 1.0)
        assert alone.critical_path.transfers == ()


def test_busbw_of_an_ideal_ring_is_the_rate_of_a_link():
    topo = collsim.topology.ring(8, bandwidth="50GB/s", latency="0s")
    for operation in ("all_reduce", *BLOCKED):
        assert collsim.run(operation, topo, 8 * 10**6).busbw == pytest.approx(50e9, rel=1e-9)


def test_the_same_integers_every_time():
    topo = collsim.load_topology(TOPOLOGIES / "fat-tree-16.yaml")
    for network in NETWORKS:
        a, b = (collsim.run("all_reduce", topo, 10**6, "double_binary_tree", network=network) for _ in range(2))
        for name in a.records:
            assert (a.records[name] == b.records[name]).all()
        assert (a.times.visit_start == b.times.visit_start).all()


def test_result_as_a_frame_and_by_link():
    result = collsim.run("all_reduce", ring(4), 4_000_000)
    frame = result.to_frame()
    assert list(frame.columns) == [
        "transfer", "step", "channel", "src", "dst", "chunk", "bytes", "reduce", "ready", "start", "end",
    ]  # fmt: skip
    assert len(frame) == result.transfers == 24
    assert frame.end.max() == pytest.approx(result.time)
    assert frame.bytes.sum() == result.bytes_sent_per_rank.sum()
    links = result.link_records()
    assert sorted(links) == ["end_ps", "link", "start_ps", "transfer"]
    assert np.bincount(links["link"]).tolist() == [6] * 4
    assert (links["end_ps"] - links["start_ps"] == 20_000_000).all()
    # on a switch a message crosses two links
    switched = collsim.run("all_reduce", collsim.topology.switch(4, bandwidth="1GB/s", latency="1us"), 4000)
    assert len(switched.link_records()["link"]) == 48


def test_critical_path_is_a_chain_of_dependent_transfers():
    result = collsim.run("all_reduce", ring(5), 5000)
    path = result.critical_path.transfers
    assert len(path) == 8
    assert [int(result.records["step"][i]) for i in path] == list(range(8))
    ends, starts = result.records["end_ps"], result.records["start_ps"]
    assert all(ends[a] == starts[b] for a, b in pairwise(path))


def test_window_paces_and_the_wait_is_called_pacing_or_latency():
    topo = collsim.topology.ring(2, bandwidth="1GB/s", latency="10us")
    chain = algorithms.ring_broadcast(2, slices=4)
    free = collsim.simulate(chain, topo, 4000)
    paced = collsim.simulate(collsim.window(chain, 1), topo, 4000)
    assert free.time_ps == 4 * 1_000_000 + 10_000_000
    assert paced.time_ps == 4 * 11_000_000  # each slice waits for the end of the one before


def test_unknown_and_wrong_arguments():
    topo = ring(4)
    with pytest.raises(InputError, match=r"network: expected one of .* got 'cut_thru'; did you mean 'cut_through'\?"):
        collsim.run("all_reduce", topo, 8, network="cut_thru")
    with pytest.raises(InputError, match="engine: expected one of auto, reference, compiled, got 'warp'"):
        collsim.run("all_reduce", topo, 8, engine="warp")
    with pytest.raises(InputError, match="dtype: expected one of"):
        collsim.run("all_reduce", topo, 8, dtype="float32")
    with pytest.raises(InputError, match=r"dtype: expected one of .* got \['float'\]"):
        collsim.run("all_reduce", topo, 8, dtype=["float"])
    with pytest.raises(InputError, match="topology: expected a Topology"):
        collsim.run("all_reduce", "ring8.yaml", 8)
    with pytest.raises(InputError, match="schedule: expected a Schedule"):
        collsim.simulate("ring", topo, 8)
    with pytest.raises(InputError):
        collsim.run("all_reduce", topo, -1)
    with pytest.raises(InputError, match="transfers would need about"):
        collsim.simulate(
            algorithms.ring_all_reduce(100_000), collsim.topology.switch(100_000), 8, check=False, engine="reference"
        )


def test_simulate_proves_first_unless_told_not_to():
    wrong = collsim.Schedule.from_text("broadcast ranks=3 chunks=1 root=0\nrepeat 1\n  step 0\n    0 -> 1  0")
    topo = collsim.topology.fully_connected(3, bandwidth="1GB/s", latency="1us")
    with pytest.raises(
        ProofError, match=r"rank 2, chunk 0: chunk 0 of rank 0 is missing; nothing was ever written there"
    ):
        collsim.simulate(wrong, topo, 8)
    assert collsim.simulate(wrong, topo, 8, check=False).time_ps == 1_008_000
    assert collsim.simulate(wrong, topo, 8, check=False).checked is None


def test_a_circle_of_written_edges_is_a_deadlock():
    schedule = collsim.Schedule.from_text(
        "broadcast ranks=3 chunks=1 root=0\nrepeat 1\n  step 0\n    0 -> 1  0\n    0 -> 2  0\n"
        "edge 0.0 after 0.1\nedge 0.1 after 0.0"
    )
    topo = collsim.topology.fully_connected(3, bandwidth="1GB/s", latency="1us")
    with pytest.raises(ProofError, match=r"cycle: step 0, 0 -> [12] waits for step 0, 0 -> [12] waits for"):
        collsim.simulate(schedule, topo, 8)
    for network in NETWORKS:
        with pytest.raises(DeadlockError, match="0 -> 1") as caught:
            collsim.simulate(schedule, topo, 8, check=False, network=network)
        assert sorted(caught.value.cycle) == [0, 1]


def test_time_is_a_float_of_seconds_and_the_repr_says_it():
    result = collsim.run("all_reduce", ring(4), "1MiB", algorithm="ring")
    assert math.isclose(result.time, result.time_ps * 1e-12)
    assert repr(result).startswith("<Result ring all_reduce of 1MiB on 'ring': 37.457 us, theory 37.457 us")


def test_what_is_too_large_is_refused_before_it_is_proven(monkeypatch):
    def proven(schedule):
        raise AssertionError("the proof of a large schedule takes long, and is for nothing")

    monkeypatch.setattr("collsim.schedule.check.check", proven)
    topo = collsim.topology.switch(44_711, bandwidth="1GB/s", latency="1us")
    with pytest.raises(InputError, match="3,998,057,620 transfers would need about 10,395 GB"):
        collsim.simulate(algorithms.ring_all_reduce(44_711), topo, 8, engine="reference")


def test_a_function_is_no_name_of_an_algorithm():
    with pytest.raises(InputError, match=r"algorithm: expected the name of an algorithm, got function; put @algorithm"):
        collsim.run("all_reduce", ring(4), 8, algorithm=algorithms.ring_all_reduce)


def test_a_user_algorithm_may_have_any_parameters():
    try:

        @collsim.algorithm("all_reduce", "odd_names")
        def odd_names(ranks, *, size=3, alpha=1, order=None):
            return algorithms.ring_all_reduce(ranks)

        result = collsim.run("all_reduce", ring(4), 4000, algorithm="odd_names", alpha=2)
        assert result.theory is None
        assert "theory none" in repr(result)
    finally:
        algorithms.registry._TABLE.pop(("all_reduce", "odd_names"), None)


def test_a_tree_of_more_children_than_ranks_is_a_star():
    topo = collsim.topology.switch(5, bandwidth="1GB/s", latency="1us")
    star, more = (collsim.run("broadcast", topo, 4000, "tree", k=k, slices=2) for k in (4, 10**20))
    assert star.schedule == more.schedule
    assert star.time_ps == more.time_ps
    assert star.theory == more.theory == pytest.approx(star.time, rel=1e-12)
