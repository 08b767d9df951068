"""Explanations: pieces that tile the time, shares that sum to it, a short text, and advice that is simulated."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

import collsim
from collsim import algorithms
from collsim.collective import Collective
from collsim.engine.critical import PARTS, critical_path
from collsim.engine.explain import explain
from collsim.engine.program import LINK, NETWORKS
from collsim.engine.reference import run_reference
from collsim.engine.stretches import MOST, stretches
from collsim.schedule import ScheduleBuilder
from collsim.topology import load_topology, rail_optimized, ring, switch
from tests.programs import programs

US = 10**6
"""Picoseconds."""


def pieces_of(result):
    """The pieces of the critical path as rows (start, end, cause, transfer, link, behind)."""
    columns = result.critical_path.pieces
    names = ("start_ps", "end_ps", "cause", "transfer", "link", "behind")
    return [(a, b, PARTS[c], *rest) for a, b, c, *rest in zip(*(columns[n].tolist() for n in names), strict=True)]


def flat(why):
    """The text in one line."""
    return " ".join(str(why).split())


def assert_exact(why):
    """All shares sum to the time, and nothing of the time is missing or told twice."""
    result, columns = why.result, why.result.critical_path.pieces
    assert columns["end_ps"][:-1].tolist() == columns["start_ps"][1:].tolist()
    assert (columns["end_ps"] > columns["start_ps"]).all()
    if result.time_ps:
        assert (columns["start_ps"][0], columns["end_ps"][-1]) == (0, result.time_ps)
    assert sum(why.causes.values()) == result.time_ps
    for shares in (why.links, why.classes):
        assert sum(share.ps for share in shares) == result.time_ps
        assert [share.ps for share in shares] == sorted((share.ps for share in shares), reverse=True)
    took = dict.fromkeys(PARTS, 0)
    for start, end, cause, *_ in pieces_of(result):
        took[cause] += end - start
    assert took == result.breakdown_ps
    assert len(why.path) <= MOST
    assert sum(one.end_ps - one.start_ps for one in why.path) == result.time_ps
    assert [one.end_ps for one in why.path[:-1]] == [one.start_ps for one in why.path[1:]]
    for one in why.path:
        assert sum(one.causes.values()) == sum(one.places.values()) == one.end_ps - one.start_ps


CASES = [
    ("ring8", "all_reduce", "ring", {}), ("dgx-1-v100", "all_reduce", "ring", {"order": [0, 2, 4, 6, 1, 3, 5, 7]}),
    ("dgx-h100-x4", "all_reduce", "nvls_tree", {}), ("fat-tree-16", "all_to_all", "direct", {}),
    ("fat-tree-16", "all_reduce", "double_binary_tree", {}), ("torus-4x4", "broadcast", "tree", {"window": 1}),
    ("pcie-4gpu", "all_reduce", "ring", {"synchronous": True}), ("line8", "reduce", "ring", {"root": 3}),
    ("dgx-h100-x4", "broadcast", "tree", {"zero_copy": True}),
]  # fmt: skip


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("machine", "operation", "algorithm", "options"), CASES)
def test_shares_sum_to_the_time_exactly(machine, operation, algorithm, options, network):
    topology = load_topology(machine)
    result = collsim.run(operation, topology, 100_003, algorithm, network=network, **options)
    assert_exact(explain(result, budget=0))


def test_both_engines_explain_alike():
    topology = load_topology("fat-tree-16")
    for network in NETWORKS:
        one, two = (
            collsim.run("all_reduce", topology, 50_000, "double_binary_tree", network=network, engine=engine)
            for engine in ("reference", "compiled")
        )
        assert pieces_of(one) == pieces_of(two)
        assert str(explain(one, budget=0)) == str(explain(two, budget=0))


@settings(max_examples=60)
@given(programs())
def test_pieces_of_any_program_tile_its_time(program):
    for network in NETWORKS:
        times = run_reference(program, network)
        path = critical_path(program, times, network)
        start, end = path.pieces["start_ps"], path.pieces["end_ps"]
        assert (end > start).all()
        assert [0, *end.tolist()] == [*start.tolist(), times.makespan]
        assert int((end - start).sum()) == sum(path.parts.values()) == times.makespan
        on_link = path.pieces["link"] >= 0
        station = path.pieces["station"][on_link]
        assert (program.station_kind[station] == LINK).all()
        assert (program.station_index[station] == path.pieces["link"][on_link]).all()
        queues = path.pieces["cause"] == PARTS.index("queueing")
        if network in ("cut_through", "store_and_forward"):
            assert (path.pieces["behind"][queues] >= 0).all()  # behind whom is known
        found = stretches(path, program, np.arange(64))
        assert sum(one.ps for one in found) == times.makespan


def incast(senders=3):
    """All send a message of 1 us to the last rank over a switch, 1 GB/s and 1 us a link."""
    b = ScheduleBuilder(Collective("gather", senders + 1, senders), chunks=senders + 1)
    b.copy(range(senders), senders, range(senders))
    return b.build(), switch(senders + 1, bandwidth="1GB/s", latency="1us")


def test_it_is_told_behind_whom_and_on_which_link_a_message_queued():
    schedule, machine = incast()
    result = collsim.simulate(schedule, machine, 4000)  # 1 us a block
    port = machine.link_index("sw0->gpu3")
    first = machine.link_index("gpu0->sw0")
    assert pieces_of(result) == [
        (0, 1 * US, "latency", 0, first, -1),
        (1 * US, 2 * US, "queueing", 2, port, 0),
        (2 * US, 3 * US, "queueing", 2, port, 1),
        (3 * US, 4 * US, "serialisation", 2, port, -1),
        (4 * US, 5 * US, "latency", 2, port, -1),
    ]
    why = explain(result, budget=0)
    assert_exact(why)
    assert [(share.name, share.ps) for share in why.links] == [("sw0->gpu3", 4 * US), ("gpu0->sw0", 1 * US)]
    assert why.path[-1].behind == {(0, 3): 1, (1, 3): 1}
    assert "2 -> 3: queueing 2.00 behind 0 -> 3, 1 -> 3, serialisation 1.00, latency 1.00" in flat(why)


def test_waiting_for_ones_own_messages_is_serialisation_and_said_so():
    machine = ring(2, bandwidth="1GB/s", latency="10us")
    why = explain(collsim.run("broadcast", machine, 4000, "ring", slices=4), budget=0)
    assert why.causes == {"latency": 10 * US, "serialisation": 4 * US}
    assert (why.path[0].own, why.path[0].ahead) == (3 * US, 3)
    assert "of which 3.00 for 3 earlier messages of the same sender" in flat(why)


def test_overhead_reduction_copy_engines_and_pacing_have_a_place():
    machine = ring(4, "50GB/s", "1us", send_overhead="2us", reduce_bandwidth="100GB/s", channel_bandwidth="25GB/s")
    why = explain(collsim.run("all_reduce", machine, 4_000_000), budget=0)
    assert_exact(why)
    names = {share.name: share for share in why.links}
    for name in ("sending on gpu0", "reducing on gpu1", "copy engine of gpu0"):
        assert names[name].link == -1
        assert names[name].ps > 0
    assert {"sending", "reducing", "copy engine"} <= {share.name for share in why.classes}

    chain = collsim.window(algorithms.ring_broadcast(2, slices=4), 1, at="issued")
    why = explain(collsim.simulate(chain, ring(2, bandwidth="1GB/s", latency="10us"), 4000), budget=0)
    assert_exact(why)
    assert why.causes == {"latency": 10 * US, "pacing": 3 * US, "serialisation": 1 * US}
    assert [(share.name, share.ps) for share in why.links] == [("gpu0->gpu1", 11 * US), ("pacing", 3 * US)]
    assert ", 21.4 % pacing;" in str(why)


def test_a_long_ring_is_told_in_two_lines():
    result = collsim.run("all_reduce", ring(400, "50GB/s", "1us"), 400 * 2**16)
    why = explain(result, budget=0)
    assert len(result.critical_path.transfers) == 798
    assert [(one.count, one.reduces, one.times) for one in why.path] == [(399, True, 1), (399, False, 1)]
    assert why.path[0].causes == {"serialisation": 399 * 1_310_720, "latency": 399 * US}
    assert len(str(why).splitlines()) < 20
    assert "399 reducing transfers of 64KiB over gpu -> gpu" in str(why)


def test_a_pattern_that_comes_again_is_told_once():
    machine = rail_optimized(12, 4)
    why = explain(collsim.run("all_gather", machine, 48 * 64, "ring"), budget=0)
    assert_exact(why)
    again = [one for one in why.path if one.times > 1]
    assert again
    assert again[0].times >= 8
    assert sum(part.count for part in again[0].parts) == again[0].count
    assert sum(part.ps for part in again[0].parts) == again[0].ps
    assert re.search(rf"{again[0].times} times .*, then ", flat(why))


def test_where_nothing_is_alike_the_heaviest_are_kept_and_the_rest_summed_up():
    machine = ring(40, "50GB/s", "1us")
    rates = machine.link_bandwidth // np.arange(1, 41)
    uneven = replace(machine, link_bandwidth=rates)
    why = explain(collsim.run("broadcast", uneven, 10**6, "linear"), budget=0)
    assert_exact(why)
    result = collsim.run("all_gather", uneven, 40 * 8)  # latency and a little more: another class a hop
    why = explain(result, budget=0)
    assert_exact(why)
    mixed = [one for one in why.path if one.parts and one.times == 1]
    assert mixed
    assert "transfers of several sorts" in str(why)
    assert sum(one.count for one in why.path) == len(result.critical_path.transfers)


def test_without_records_it_says_how_to_get_them_and_still_finds_what_helps():
    machine = ring(8, "50GB/s", "1us", send_overhead="2us", reduce_bandwidth="20GB/s")
    whole, bare = (
        collsim.run("all_reduce", machine, 2**20, engine="compiled", records=records) for records in (True, False)
    )
    why = explain(bare, budget=10_000)
    assert (why.causes, why.links, why.classes, why.path) == (None, None, None, None)
    text = flat(why)
    assert "no records were kept of the 112 transfers" in text
    assert "records=True (on the command line --records) keeps them" in text
    assert "busiest gpu0->gpu1 (50GB/s) and 7 more links" in text
    assert "bound " in text
    with_records = {one.what: one.time_ps for one in explain(whole, budget=10_000).experiments}
    assert {one.what: one.time_ps for one in why.experiments} == with_records


@pytest.mark.parametrize("network", NETWORKS)
def test_nothing_to_do_and_nothing_to_carry(network):
    alone = explain(collsim.run("all_reduce", switch(1, "1GB/s", "1us"), 100, network=network))
    assert_exact(alone)
    assert (alone.causes, alone.path, alone.busiest, alone.best) == ({}, (), (), None)
    assert str(alone).splitlines()[1:] == ["why      no transfer is needed"]
    empty = explain(collsim.run("broadcast", ring(4, "1GB/s", "1us"), 0, "tree", network=network))
    assert_exact(empty)
    assert set(empty.causes) == {"latency"}
    assert empty.best.kind in ("latency", "algorithm", "parameter")
    barrier = explain(collsim.run("barrier", ring(4, "1GB/s", "1us"), 0, "dissemination", network=network))
    assert_exact(barrier)
    free = explain(collsim.run("broadcast", ring(4, "1GB/s", "0s"), 0, "tree", network=network))
    assert str(free).splitlines()[1] == "why      no transfer takes any time here"


def test_a_schedule_of_ones_own_gets_no_parameters_but_advice():
    b = ScheduleBuilder(Collective("broadcast", 4), chunks=1)
    b.copy(0, [1, 2, 3])
    why = explain(collsim.simulate(b.build(), ring(4, "1GB/s", "1us"), 4000), budget=10_000)
    assert str(why).startswith("a schedule broadcast of 4kB on ring, cut_through network: 15.00 us")
    assert {one.kind for one in why.experiments} == {"bandwidth", "latency", "algorithm"}
    assert repr(why) == f"<Explanation of schedule broadcast: {len(why.experiments)} experiments; print it>"


def test_the_whole_text():
    result = collsim.run("all_reduce", ring(8, "50GB/s", "1us"), 2**20)
    assert (
        str(explain(result, budget=0))
        == """\
ring all_reduce of 1MiB on ring, cut_through network: 50.70 us, busbw 36.19 GB/s
why      72.4 % serialisation (36.70 us, bytes going through links), 27.6 % latency (14.00 us, the way along links)
where    100.0 % on gpu -> gpu (50GB/s, 1us); the most on one link: 14.3 % on gpu0->gpu1
path     the 14 transfers that determine the time, one after the other (from, takes):
                 0     25.35 us  7 reducing transfers of 128KiB over gpu -> gpu, 3 -> 4 ... 1 -> 2: serialisation
                      18.35, latency 7.00
             25.35     25.35 us  7 transfers of 128KiB over gpu -> gpu, 2 -> 3 ... 0 -> 1: serialisation 18.35,
                      latency 7.00
busiest  gpu0->gpu1 (50GB/s) and 7 more links, busy 72.4 % of the time; 8 of 8 links are used
bound    37.70 us at least, whatever the algorithm, which is 74.4 % of the time: injection: all 8 ranks together at
         400GB/s
theory   50.70 us, from 2(N-1) (alpha + m beta), m = S/N
helps    nothing was tried"""
    )


def test_links_are_not_called_busy_where_they_are_not_shared():
    result = collsim.run("all_to_all", switch(4, "50GB/s", "1us"), 2**20, "direct", network="alpha_beta")
    assert "busiest" not in str(explain(result, budget=0))
    fluid = collsim.run("gather", switch(4, "50GB/s", "1us"), 2**20, "linear", network="fluid")
    assert "share links" in str(explain(fluid, budget=0))


def test_pieces_of_a_message_as_a_whole_stand_in_order_of_time():
    machine = switch(2, bandwidth="1GB/s", latency="1us", send_overhead="2us", reduce_bandwidth="1GB/s")
    up, down = machine.link_index("gpu1->sw0"), machine.link_index("sw0->gpu0")
    for network in ("alpha_beta", "fluid"):
        result = collsim.run("reduce", machine, 1000, "linear", network=network)
        assert [(cause, end - start, link) for start, end, cause, _, link, _ in pieces_of(result)] == [
            ("overhead", 2 * US, -1), ("latency", US, up), ("latency", US, down), ("serialisation", US, up),
            ("reduction", US, -1),
        ]  # fmt: skip
