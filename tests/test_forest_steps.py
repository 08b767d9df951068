"""Ranks keep step in a forest: wide and narrow ports on one switch, several switches, and what it costs."""

from __future__ import annotations

import numpy as np
import pytest

import collsim.topology
from collsim import check, run, simulate
from collsim.forests import Branch, Tree
from collsim.topology import Topology, TopologyBuilder
from tests.test_forest_schedule import OPERATIONS, build, machine, planted

GB = 10**9


def star(*rates: int) -> Topology:
    """GPUs on one switch, each by a link of so many GB/s both ways; 0.1 us each."""
    b = TopologyBuilder("star")
    for i in range(len(rates)):
        b.add_node(f"gpu{i}", kind="gpu")
    b.add_node("sw", kind="switch")
    for i, rate in enumerate(rates):
        b.add_duplex(f"gpu{i}", "sw", rate * GB, 10**5)
    return b.build()


@pytest.mark.parametrize(
    "rates", [(1, 1, 3, 3, 3), (1, 1, 1, 2, 2), (1, 1, 1, 3, 3), (2, 2, 2, 3, 3), (1, 3, 2, 3, 1, 3)], ids=str
)
@pytest.mark.parametrize("operation", ["reduce", "reduce_scatter", "all_gather", "broadcast"])
def test_stars_of_wide_and_narrow_ports_come_within_three_per_cent(operation, rates):
    result = run(operation, star(*rates), 2**34, "forest")
    assert result.checked.complete
    assert 0.97 <= result.efficiency <= 1


def test_wide_ports_wait_for_what_has_arrived_from_a_narrow_one():
    """Ranks 1, 3 and 4 send to 2, and that to the root; 1 sends at a third of the rate of the others."""
    topology = star(1, 1, 3, 3, 3)

    def branch(parent, child):
        return Branch(parent, child, 0, 1, (f"sw->gpu{parent}", f"gpu{child}->sw"))

    tree = Tree(0, 1, (branch(0, 2), branch(2, 1), branch(2, 3), branch(2, 4)))
    planted(topology, tree, up=True, root=0, rate=GB)
    schedule = build("reduce", topology)
    block = schedule.phases[0].block
    assert check(schedule).complete
    waits = {(int(block.src[e.row]), int(block.src[e.pred_row]), e.distance) for e in schedule.edges if e.at == "end"}
    assert waits == {(3, 1, 2), (4, 1, 2)}
    size = 8 * GB
    assert size / GB <= simulate(schedule, topology, size).time <= 1.03 * size / GB
    without = build("reduce", topology, window=0)
    assert simulate(without, topology, size).time > 1.3 * size / GB


def test_ranks_wait_for_one_row_that_waits_for_nobody_but_itself():
    for name, operation in (
        ("fat-tree-16", "reduce_scatter"),
        ("dgx-h100-x4", "reduce"),
        ("dgx-a100-x2", "all_reduce"),
    ):
        schedule = build(operation, machine(name))
        columns = schedule.edges.columns
        ends = ~columns["issued"]
        lead = set(columns["pred_row"][ends].tolist())
        assert len(lead) == 1
        assert set(columns["pred_row"][np.isin(columns["row"], list(lead))].tolist()) == lead
        block = schedule.phases[0].block
        # what waits for it is ready from the start: no earlier step brings it
        for row in np.unique(columns["row"][ends]).tolist():
            earlier = (block.dst == block.src[row]) & (block.src_chunk == block.src_chunk[row])
            assert not (earlier & (block.step < block.step[row])).any()
            assert block.src[row] not in block.src[list(lead)]


@pytest.mark.parametrize("name", ["dgx-1-v100", "torus-4x4", "mi300x", "dgx-h100"])
def test_ports_that_are_equally_busy_wait_for_no_arrival(name):
    for operation in OPERATIONS:
        assert build(operation, machine(name)).edges.columns["issued"].all()


def test_what_goes_up_to_one_switch_goes_to_another_receiver_from_each_sender():
    schedule = build("reduce_scatter", collsim.topology.switch(5))
    block = schedule.phases[0].block
    first = [int(block.dst[np.flatnonzero(block.src == rank)[0]]) for rank in range(5)]
    assert sorted(first) == list(range(5))
    assert run("reduce_scatter", collsim.topology.switch(5), 2**34, "forest").efficiency > 0.999


@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter", "broadcast", "reduce"])
def test_97_per_cent_of_the_bound_on_a_fat_tree(operation):
    assert run(operation, machine("fat-tree-16"), "1GiB", "forest").efficiency >= 0.97


def test_a_reduce_on_four_nodes_comes_within_eight_per_cent():
    assert run("reduce", machine("dgx-h100-x4"), "1GiB", "forest").efficiency >= 0.92


@pytest.mark.parametrize("name", ["dgx-1-v100", "dgx-a100-x2", "dgx-h100-x4", "torus-4x4", "fat-tree-16", "dgx-h100"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_small_messages_pay_one_latency_at_most(operation, name):
    topology = machine(name)
    ranks = range(topology.n_ranks)
    longest = max(int(topology.link_latency[topology.route(a, b),].sum()) for a in ranks for b in ranks if a != b)
    with_window, without = (run(operation, topology, "64KiB", "forest", window=n).time_ps for n in (1, 0))
    assert with_window <= 1.1 * (without + longest)
