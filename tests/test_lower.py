"""Lowering: bytes, routes, durations, dependencies, barriers."""

import numpy as np
import pytest

import collsim
from collsim import Collective, ScheduleBuilder, algorithms
from collsim.engine.lowering.lower import lower, serialisation
from collsim.engine.program import COPY, LINK, REDUCER, SENDER
from collsim.errors import InputError, ScheduleError, TopologyError
from collsim.topology import TopologyBuilder


def kinds(program, transfer):
    lo, hi = program.visit_ptr[transfer], program.visit_ptr[transfer + 1]
    return program.station_kind[program.visit_station[lo:hi]].tolist()


def test_serialisation_is_exact_where_int64_would_overflow():
    # 9.3 MB times 10^12 is beyond 2^63
    assert serialisation(10_000_000, 50 * 10**9) == 200_000_000
    assert serialisation(2**40, 3) == -(-(2**40) * 10**12 // 3)
    assert serialisation(0, 5) == 0
    assert serialisation(1, 3 * 10**12) == 1  # rounded up


def test_bytes_of_chunks_and_messages():
    topo = collsim.topology.ring(3, bandwidth="1GB/s", latency="1us")
    program = lower(algorithms.ring_all_reduce(3), topo, 10)
    # 10 bytes in 3 chunks: 4, 3, 3; step 0 sends chunks 2, 0, 1
    assert program.bytes[:3].tolist() == [3, 4, 3]
    assert program.chunk[:3].tolist() == [2, 0, 1]
    assert program.visit_busy[:3].tolist() == [3000, 4000, 3000]
    program = lower(algorithms.ring_all_reduce(3), topo, 11, element_size=4)
    # two whole elements of 4 bytes: 4, 4, 0; the rest is left out
    assert program.bytes[:3].tolist() == [0, 4, 4]


def test_one_message_with_several_chunks():
    b = ScheduleBuilder(Collective("broadcast", 2), chunks=4)
    b.copy(0, 1, count=2, stride=2)
    b.copy(0, 1, chunks=[1, 3])
    topo = collsim.topology.ring(2, bandwidth="1GB/s", latency="1us")
    program = lower(b.build(), topo, 10)  # chunks of 3, 3, 2, 2 bytes
    assert program.bytes.tolist() == [5, 5]
    assert program.transfers == 2


def test_scratch_chunks_have_the_size_of_what_they_hold():
    b = ScheduleBuilder(Collective("broadcast", 2), chunks=2, scratch=1)
    b.copy(0, 1, 1, dst_chunk=0, dst_buffer="scratch")
    b.copy(1, 1, 0, dst_chunk=1, src_buffer="scratch", step=1)
    b.copy(0, 1, 0, step=1)
    topo = collsim.topology.ring(2, bandwidth="1GB/s", latency="1us")
    schedule = b.build()
    assert collsim.check(schedule).complete
    program = lower(schedule, topo, 5)
    assert program.bytes.tolist() == [2, 2, 3]
    # the local copy out of scratch waits for what brings the data, crosses nothing and ends at once
    assert program.pred[program.pred_ptr[1] : program.pred_ptr[2]].tolist() == [0]
    assert kinds(program, 1) == []


def test_chunks_of_different_sizes_cannot_be_exchanged():
    b = ScheduleBuilder(Collective("send_recv", 2), chunks=2, in_place=False)
    b.copy([0, 1], [1, 0], [0, 0], dst_chunk=[1, 1], src_buffer="input")
    topo = collsim.topology.bidirectional_ring(2, bandwidth="1GB/s", latency="1us")
    assert lower(b.build(), topo, 4).bytes.tolist() == [2, 2]
    with pytest.raises(ScheduleError, match=r"step 0, 0 -> 1: chunk 0 has 3 elements, chunk 1 has 2; expected"):
        lower(b.build(), topo, 5)


def test_stations_of_a_route_in_order():
    topo = collsim.topology.switch(
        3, bandwidth="1GB/s", latency="1us", send_overhead="2us", reduce_bandwidth="4GB/s", channel_bandwidth="8GB/s"
    )
    program = lower(algorithms.ring_all_reduce(3), topo, 3000)
    assert kinds(program, 0) == [SENDER, COPY, LINK, LINK, REDUCER]
    assert kinds(program, 6) == [SENDER, COPY, LINK, LINK]  # all_gather part: no reduction
    assert program.visit_busy[:5].tolist() == [2_000_000, 125_000, 1_000_000, 1_000_000, 250_000]
    assert program.visit_latency[:5].tolist() == [0, 0, 1_000_000, 1_000_000, 0]


def test_copy_engines_belong_to_a_rank_and_a_channel():
    topo = collsim.topology.switch(2, bandwidth="1GB/s", latency="1us", channel_bandwidth="1GB/s")
    program = lower(algorithms.ring_all_reduce(2, channels=2), topo, 4000)
    engines = program.visit_station[program.station_kind[program.visit_station] == COPY]
    assert len(np.unique(engines)) == 4
    assert (program.station_bandwidth[engines] == 10**9).all()


def test_barriers_join_each_two_steps():
    topo = collsim.topology.ring(3, bandwidth="1GB/s", latency="1us")
    program = lower(algorithms.ring_all_reduce(3), topo, 3, synchronous=True)
    assert (program.transfers, program.joins, program.nodes) == (12, 3, 15)
    first_join = program.pred[program.pred_ptr[12] : program.pred_ptr[13]]
    assert first_join.tolist() == [0, 1, 2]
    assert 12 in program.pred[program.pred_ptr[3] : program.pred_ptr[4]]
    assert program.visit_ptr[12] == program.visit_ptr[15]


def test_written_edges_come_with_their_kind_and_lag():
    schedule = collsim.Schedule.from_text(
        "broadcast ranks=2 chunks=2 root=0\nrepeat 1\n  step 0\n    0 -> 1  0\n    0 -> 1  1\n"
        "edge 0.1 after 0.0 at=issued lag=7"
    )
    program = lower(schedule, collsim.topology.ring(2, bandwidth="1GB/s", latency="1us"), 2)
    assert program.pred.tolist() == [0]
    assert program.pred_issued.tolist() == [True]
    assert program.pred_lag.tolist() == [7]
    assert program.pred_ptr.tolist() == [0, 0, 1]


def test_via_names_the_path():
    builder = TopologyBuilder("two ways")
    for name in ("gpu0", "gpu1"):
        builder.add_node(name)
    for name in ("a", "b", "c"):
        builder.add_node(name, kind="switch")
    for src, dst in (("gpu0", "a"), ("a", "gpu1"), ("gpu0", "b"), ("b", "c"), ("c", "gpu1")):
        builder.add_link(src, dst, 10**9, 1000)
    topo = builder.build()
    b = ScheduleBuilder(Collective("broadcast", 2), chunks=2)
    b.copy(0, 1, 0)
    b.copy(0, 1, 1, via=("b",))
    program = lower(b.build(), topo, 2)
    names = [topo.link_name(i) for i in program.station_index[program.visit_station].tolist()]
    assert names == ["gpu0->a", "a->gpu1", "gpu0->b", "b->c", "c->gpu1"]


def test_a_place_must_be_a_switch_that_can():
    def nvls(**flags):
        builder = TopologyBuilder("star")
        for name in ("gpu0", "gpu1"):
            builder.add_node(name)
        builder.add_node("sw", kind="switch", **flags)
        for name in ("gpu0", "gpu1"):
            builder.add_duplex(name, "sw", 10**9, 1000)
        return builder.build()

    b = ScheduleBuilder(Collective("all_reduce", 2), chunks=1, scratch=1, places=["sw"])
    b.reduce([0, 1], 2, dst_buffer="scratch")
    b.copy(2, [0, 1], src_buffer="scratch", step=1)
    schedule = b.build()
    assert collsim.check(schedule).complete
    program = lower(schedule, nvls(reduces=True, multicasts=True), 100)
    assert program.bytes.tolist() == [100] * 4
    assert [kinds(program, i) for i in range(4)] == [[LINK]] * 4
    with pytest.raises(TopologyError, match="sw: the schedule reduces in it; expected `reduces: true`"):
        lower(schedule, nvls(multicasts=True), 100)
    with pytest.raises(TopologyError, match="sends a chunk from it more than once"):
        lower(schedule, nvls(reduces=True), 100)


def test_refusals():
    topo = collsim.topology.ring(3, bandwidth="1GB/s", latency="1us")
    with pytest.raises(InputError, match="ranks: the schedule has 4, topology 'ring' has 3"):
        lower(algorithms.ring_all_reduce(4), topo, 4)
    slow = collsim.topology.ring(3, bandwidth="1B/s", latency="1us")
    with pytest.raises(InputError, match="take over 106 days"):
        lower(algorithms.ring_all_reduce(3), slow, 2**30)


def test_zero_copy_adds_waits_for_reads():
    schedule = collsim.Schedule.from_text(
        "broadcast ranks=3 chunks=1 scratch=1 root=0\nrepeat 1\n"
        "  step 0\n    0 -> 1  0\n  step 1\n    1 -> 2  0\n  step 2\n    0 -> 1  0"
    )
    topo = collsim.topology.fully_connected(3, bandwidth="1GB/s", latency="1us")
    assert lower(schedule, topo, 1).pred_ptr.tolist() == [0, 0, 1, 1]
    program = lower(schedule, topo, 1, zero_copy=True)
    assert program.pred[program.pred_ptr[2] : program.pred_ptr[3]].tolist() == [1]


def test_a_place_is_one_switch_that_forwards():
    def star(kind="switch", forwards=True):
        builder = TopologyBuilder("star")
        for name in ("gpu0", "gpu1"):
            builder.add_node(name)
        builder.add_node("sw", kind=kind, forwards=forwards, reduces=True, multicasts=True)
        for name in ("gpu0", "gpu1"):
            builder.add_duplex(name, "sw", 10**9, 1000)
        return builder.build(ranks=["gpu0", "gpu1"])

    def through(*places):
        b = ScheduleBuilder(Collective("broadcast", 2), chunks=1, scratch=1, places=places)
        b.copy(0, 2, dst_buffer="scratch")
        b.copy(2, 1, src_buffer="scratch", step=1)
        return b.build()

    assert lower(through("sw"), star(), 10).transfers == 2
    with pytest.raises(TopologyError, match=r"^sw: a place must be a switch that forwards, got a nic$"):
        lower(through("sw"), star(kind="nic"), 10)
    with pytest.raises(TopologyError, match="a place must be a switch that forwards"):
        lower(through("sw"), star(forwards=False), 10)
    with pytest.raises(TopologyError, match=r"no node 'swi'.*did you mean 'sw'"):
        lower(through("swi"), star(), 10)
