from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import collsim
from collsim.engine.loops import loops_of
from collsim.engine.lowering.lower import lower
from collsim.engine.reference import run_reference
from collsim.engine.traffic import link_users, longest_waits, visit_waits
from tests.programs import Plan, programs


def test_who_uses_which_link():
    topology = collsim.topology.line(3, bandwidth="1GB/s", latency="1us")
    program = lower(collsim.algorithms.ring_all_gather(3), topology, 3000)
    links, src, dst = link_users(program)
    names = [topology.link_name(link) for link in links]
    assert links.tolist() == sorted(links)
    assert sorted(zip(names, src.tolist(), dst.tolist(), strict=True)) == [
        ("gpu0->gpu1", 0, 1),
        ("gpu1->gpu0", 2, 0),
        ("gpu1->gpu2", 1, 2),
        ("gpu2->gpu1", 2, 0),
    ]


@given(programs())
def test_users_are_the_same_in_both_forms(program):
    for ours, theirs in zip(link_users(program), link_users(loops_of(program)), strict=True):
        assert (ours == theirs).all()


@given(programs(), st.sampled_from(["store_and_forward", "cut_through", "fluid"]))
def test_who_waits_starts_when_another_lets_the_station_go(program, network):
    times = run_reference(program, network)
    waits = visit_waits(program, times, network)
    assert (waits >= 0).all()
    busy_until = times.visit_start + program.visit_busy
    for visit in np.flatnonzero(waits):
        here = program.visit_station == program.visit_station[visit]
        here[visit] = False
        assert times.visit_start[visit] in busy_until[here]


def test_waits_by_hand():
    plan = Plan()
    sender, first, second, reducer = plan.sender(4), plan.link(latency=2), plan.link(10**12 // 2), plan.reducer(10**12)
    plan.transfer(3, sender, first, second, reducer)  # 0-4, 4-7 (head on at 6), 6-12, 12-15
    plan.transfer(3, sender, first, second, reducer)  # 4-8, 8-11 (head on at 10), 12-18, 18-21
    program = plan.program()
    for network in ("cut_through", "store_and_forward"):
        times = run_reference(program, network)
        assert visit_waits(program, times, network).tolist() == [0, 0, 0, 0, 4, 0, 2, 0], network
    assert longest_waits(program, run_reference(program, "cut_through"), "cut_through").tolist() == [4, 0, 2, 0]
    assert not longest_waits(program, run_reference(program, "alpha_beta"), "alpha_beta").any()


def test_flows_wait_for_senders_and_reducers_only():
    plan = Plan()
    sender, link, reducer = plan.sender(4), plan.link(latency=2), plan.reducer(10**12)
    plan.transfer(6, sender, link, reducer)  # 0-4, flow 6-12, 12-18
    plan.transfer(3, sender, link, reducer)  # 4-8, flow 10-15, shared from 10 on
    times = run_reference(plan.program(), "fluid")
    assert visit_waits(plan.program(), times, "fluid")[[0, 1, 3, 4]].tolist() == [0, 0, 4, 0]
    assert longest_waits(plan.program(), times, "fluid")[link] == 0


@pytest.mark.parametrize("network", ["store_and_forward", "cut_through"])
def test_waits_at_shared_links_name_the_link(network):
    topology = collsim.topology.line(4, bandwidth="1GB/s", latency="1us")
    result = collsim.run("all_reduce", topology, 4000, "ring", order=[0, 2, 1, 3], network=network)
    longest = result.link_longest_wait_ps
    names = {name for name, _, _ in result.waits}
    assert names
    assert names <= {topology.link_name(link) for link in np.flatnonzero(longest)}
