"""Experiments: what is advised is what a simulation of one's own gives, within a budget, on unchanged machines."""

from __future__ import annotations

import numpy as np
import pytest

import collsim
from collsim import algorithms
from collsim.collective import Collective
from collsim.engine.explain import explain
from collsim.engine.link_classes import faster_links, link_classes
from collsim.engine.program import NETWORKS
from collsim.errors import InputError
from collsim.schedule import ScheduleBuilder
from collsim.topology import load_topology, ring, switch

US = 10**6
"""Picoseconds."""


def flat(why):
    """The text in one line."""
    return " ".join(str(why).split())


def incast(senders=3):
    """All send a message of 1 us to the last rank over a switch, 1 GB/s and 1 us a link."""
    b = ScheduleBuilder(Collective("gather", senders + 1, senders), chunks=senders + 1)
    b.copy(range(senders), senders, range(senders))
    return b.build(), switch(senders + 1, bandwidth="1GB/s", latency="1us")


def test_what_is_advised_is_what_a_simulation_of_ones_own_gives():
    machine = ring(8, "50GB/s", "1us")
    result = collsim.run("all_reduce", machine, 2**20)
    why = result.explain()
    by_what = {one.what: one for one in why.experiments}
    links = "of the 8 links gpu -> gpu (50GB/s, 1us)"
    faster = collsim.run("all_reduce", ring(8, "100GB/s", "1us"), 2**20)
    nearer = collsim.run("all_reduce", ring(8, "50GB/s", "500ns"), 2**20)
    assert by_what[f"twice the bandwidth (100GB/s) {links}"].time_ps == faster.time_ps
    assert by_what[f"half the latency (500ns) {links}"].time_ps == nearer.time_ps
    two = collsim.run("all_reduce", machine, 2**20, channels=2)
    assert by_what["channels=2 instead of 1"].time_ps == two.time_ps
    tree = collsim.run("all_reduce", machine, 2**20, "tree")
    assert by_what["tree instead of ring"].time_ps == tree.time_ps
    assert by_what["tree instead of ring"].saved_ps == result.time_ps - tree.time_ps
    assert [one.saved_ps for one in why.experiments] == sorted((o.saved_ps for o in why.experiments), reverse=True)
    assert why.best is why.experiments[0]
    assert f"the best is {why.best.what}: " in why.advice
    assert f"{100 * why.best.saved_ps / result.time_ps:.1f} % less" in why.advice
    assert why.advice in flat(why)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    ("machine", "operation", "algorithm", "options"),
    [
        ("pcie-4gpu", "all_reduce", "ring", {}),
        ("pcie-4gpu", "all_reduce", "ring", {"synchronous": True, "zero_copy": True}),
        ("dgx-1-v100", "broadcast", "tree", {"root": 5}),
        ("dgx-h100", "all_reduce", "nvls", {}),
    ],
)
def test_every_experiment_can_be_repeated(machine, operation, algorithm, options, network):
    topology = load_topology(machine)
    result = collsim.run(operation, topology, 30_000, algorithm, network=network, dtype="float", **options)
    why = explain(result, budget=200_000)
    assert len(why.experiments) > 5
    for one in why.experiments:
        again = collsim.simulate(
            one.schedule, one.topology, 30_000, network=network, dtype="float", check=False,
            synchronous=one.synchronous, zero_copy=options.get("zero_copy", False),
        )  # fmt: skip
        assert again.time_ps == one.time_ps == result.time_ps - one.saved_ps, one.what


def test_the_one_slow_link_is_found():
    machine = ring(8, "50GB/s", "1us")
    others = np.delete(np.arange(8), machine.link_index("gpu3->gpu4"))
    why = explain(collsim.run("all_reduce", faster_links(machine, others, bandwidth=4), 8 * 10**6), budget=10_000)
    best = next(one for one in why.experiments if one.on_the_machine)
    assert best.what == "twice the bandwidth (100GB/s) of the link gpu3->gpu4 (50GB/s, 1us)"
    assert why.links[0].name == why.busiest[0].name == "gpu3->gpu4"
    assert why.links[0].part > 0.8


def test_a_single_link_of_many_alike_is_tried_alone_where_the_time_lies_on_it():
    schedule, machine = incast(8)
    why = explain(collsim.simulate(schedule, machine, 9 * 10**6), budget=10_000)
    alone = next(one for one in why.experiments if "the link sw0->gpu8" in one.what)
    assert alone.saved_ps > 0.4 * why.result.time_ps
    rates = alone.topology.link_bandwidth
    assert np.flatnonzero(rates != machine.link_bandwidth).tolist() == [machine.link_index("sw0->gpu8")]


def test_faster_devices_no_barriers_and_no_pacing_are_tried():
    machine = ring(4, "50GB/s", "1us", send_overhead="2us", reduce_bandwidth="20GB/s", channel_bandwidth="25GB/s")
    result = collsim.run("all_reduce", machine, 4_000_000, synchronous=True)
    found = {one.kind: one for one in explain(result).experiments}
    better = ring(4, "50GB/s", "1us", reduce_bandwidth="20GB/s", channel_bandwidth="25GB/s")
    assert found["overhead"].time_ps == collsim.run("all_reduce", better, 4_000_000, synchronous=True).time_ps
    better = ring(4, "50GB/s", "1us", send_overhead="2us", reduce_bandwidth="40GB/s", channel_bandwidth="25GB/s")
    assert found["reduction"].time_ps == collsim.run("all_reduce", better, 4_000_000, synchronous=True).time_ps
    better = ring(4, "50GB/s", "1us", send_overhead="2us", reduce_bandwidth="20GB/s", channel_bandwidth="50GB/s")
    assert found["copy engines"].time_ps == collsim.run("all_reduce", better, 4_000_000, synchronous=True).time_ps
    assert found["barrier"].time_ps == collsim.run("all_reduce", machine, 4_000_000).time_ps

    free, plain = algorithms.ring_broadcast(2, slices=4), ring(2, bandwidth="1GB/s", latency="10us")
    paced = collsim.simulate(collsim.window(free, 1, at="issued"), plain, 4000)
    found = {one.kind: one for one in explain(paced).experiments}
    assert found["pacing"].time_ps == collsim.simulate(free, plain, 4000).time_ps
    assert not found["pacing"].schedule.edges


def test_the_machines_own_order_is_tried_where_another_was_given():
    machine = load_topology("dgx-1-v100")
    bad = collsim.run("all_reduce", machine, 2**20, order=[0, 1, 2, 3, 4, 5, 6, 7])
    good = collsim.run("all_reduce", machine, 2**20)
    why = explain(bad, budget=10_000)
    found = next(one for one in why.experiments if one.what.startswith("the machine's own order"))
    assert found.time_ps == good.time_ps < bad.time_ps


def test_topologies_and_their_caches_stay_as_they_are():
    machine = load_topology("dgx-h100-x4")
    rates, latencies = machine.link_bandwidth.copy(), machine.link_latency.copy()
    why = explain(collsim.run("all_reduce", machine, 2**20), budget=100_000)
    assert why.experiments
    assert (machine.link_bandwidth == rates).all()
    assert (machine.link_latency == latencies).all()

    # two ways of two hops, of which the wider one is taken: on the changed machine that is the other one
    from collsim.topology import TopologyBuilder

    b = TopologyBuilder("fork")
    for node, kind in (("a", "gpu"), ("b", "gpu"), ("s", "switch"), ("t", "switch")):
        b.add_node(node, kind)
    for middle, rate in (("s", 10 * 10**9), ("t", 8 * 10**9)):
        b.add_link("a", middle, rate, US)
        b.add_link(middle, "b", rate, US)
    fork = b.build()
    assert [fork.link_name(link) for link in fork.route(0, 1)] == ["a->s", "s->b"]
    slow = [fork.link_index("a->t"), fork.link_index("t->b")]
    wider = faster_links(fork, np.array(slow), bandwidth=2)
    assert [wider.link_name(link) for link in wider.route(0, 1)] == ["a->t", "t->b"]
    assert [fork.link_name(link) for link in fork.route(0, 1)] == ["a->s", "s->b"]
    with pytest.raises(ValueError, match="read-only"):
        wider.link_bandwidth[0] = 1


def test_links_are_classed_by_ends_rate_and_latency():
    machine = load_topology("dgx-h100-x4")
    number, groups = link_classes(machine)
    assert sorted(np.concatenate([group.links for group in groups]).tolist()) == list(range(machine.n_links))
    for i, group in enumerate(groups):
        assert (number[group.links] == i).all()
        assert len(set(machine.link_bandwidth[group.links].tolist())) == 1
        assert len(set(machine.link_latency[group.links].tolist())) == 1
    with pytest.raises(InputError, match=r"^factor: expected at least 1, got 0$"):
        faster_links(machine, number, bandwidth=0)
    with pytest.raises(InputError, match=r"^bandwidth: .* is beyond 64 bits$"):
        faster_links(machine, np.arange(3), bandwidth=10**9)


def test_experiments_keep_to_their_budget_and_say_what_they_left_out():
    result = collsim.run("all_reduce", ring(8, "50GB/s", "1us"), 2**20)
    why = explain(result, budget=225)  # two runs of 112 transfers
    assert [one.kind for one in sorted(why.experiments, key=lambda one: one.kind)] == ["bandwidth", "latency"]
    assert sum(one.schedule.transfers for one in why.experiments) <= 225
    assert why.untried["tree instead of ring"].endswith(" transfers are more than is left of the budget")
    assert "not tried, for the budget of 225 transfers was used up: channels=2 instead of 1" in " ".join(
        str(why).split()
    )
    nothing = explain(result, budget=0)
    assert (nothing.experiments, nothing.best, nothing.advice) == ((), None, "nothing was tried")
    for wrong in (-1, 1.5, "many", True):
        with pytest.raises(InputError, match=r"^budget: expected a whole number of transfers from 0, got "):
            explain(result, budget=wrong)


def test_a_program_that_repeats_costs_only_what_is_not_skipped():
    result = collsim.run("all_reduce", ring(1100, "50GB/s", "1us"), 1100 * 2**14, records=False)
    assert result.shortcut == "jump"
    assert result.transfers > 2_000_000
    why = explain(result, budget=1_000_000)
    assert {one.kind for one in why.experiments} >= {"bandwidth", "latency"}
    assert why.untried["other algorithms"] == "they are tried up to 512 ranks"


def test_a_schedule_that_is_wrong_is_never_advised():
    @algorithms.algorithm("broadcast", "too_good")
    def too_good(ranks, root=0):
        b = ScheduleBuilder(Collective("broadcast", ranks, root), chunks=1)
        b.copy(root, (root + 1) % ranks)
        return b.build()

    try:
        why = explain(collsim.run("broadcast", ring(4, "1GB/s", "1us"), 10**6, "linear"), budget=100_000)
    finally:
        del algorithms.registry._TABLE["broadcast", "too_good"]
    assert why.best is not None
    assert all("too_good" not in one.what for one in why.experiments)
    assert "rank" in why.untried["too_good instead of linear"]


def test_where_the_bound_is_reached_no_algorithm_is_tried():
    schedule, machine = incast()
    why = explain(collsim.simulate(schedule, machine, 4000))
    assert {one.kind for one in why.experiments} == {"bandwidth", "latency"}
    assert "other algorithms: none can be faster by more than 0.1 %, for that is all that the bound leaves" in flat(why)


def test_gains_that_nobody_would_notice_are_not_advised():
    result = collsim.run("broadcast", ring(3, "50GB/s", "1ns"), 10**9, "ring", slices=5000)
    why = explain(result, budget=200_000)
    tiny = [one for one in why.experiments if 0 < one.saved_ps <= 1e-3 * result.time_ps]
    assert tiny
    assert not set(tiny) & set(why.helpful)
    assert all(one.what not in flat(why) for one in tiny)
    assert why.best.kind == "bandwidth"


def test_all_links_of_a_kind_are_tried_where_one_class_hides_the_next():
    """GPUs, PCIe switches and CPUs: twice the rate of either class alone leaves the other one as slow as before."""
    result = collsim.run("all_reduce", collsim.load_topology("pcie-4gpu"), "256MiB", "ring")
    found = {one.what: one.saved_ps / result.time_ps for one in result.explain().experiments}
    alone = [saved for what, saved in found.items() if "links gpu <-> pcisw" in what or "links cpu <-> pcisw" in what]
    assert max(alone) < 0.01
    assert found["twice the bandwidth of all 12 pcie links"] > 0.49


def test_what_is_busy_nearly_all_the_time_is_tried_though_the_path_goes_elsewhere():
    result = collsim.run("all_reduce", collsim.load_topology("dgx-h100-x4"), "1GiB", "forest", slices=64)
    tried = [one.what for one in result.explain().experiments if one.kind == "bandwidth"]
    for name in ("gpu <-> nvswitch", "leaf <-> nic"):
        assert any(name in what for what in tried)


def test_transfers_that_cross_many_links_count_for_more():
    """On a ring of 64 a direct all_to_all crosses 32 links a transfer."""
    ring = collsim.topology.ring(64, bandwidth="50GB/s", latency="1us")
    result = collsim.run("all_to_all", ring, "1MiB", "bruck")
    transfers = collsim.algorithms.build("all_to_all", "direct", 64).transfers
    tried = {one.what for one in result.explain(budget=100 * transfers).experiments}
    assert "direct instead of bruck" in tried
    few = result.explain(budget=5 * transfers)
    assert "direct instead of bruck" in few.untried
