"""The lowering that keeps repeats, held against the flat one: written out they are the same program."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim
from collsim import Collective, Schedule, ScheduleBuilder, algorithms, window
from collsim.engine import memory
from collsim.engine.loops import KINDS, Loops
from collsim.engine.lowering import parts, written
from collsim.engine.lowering import roll as rolling
from collsim.engine.lowering.lower import lower
from collsim.engine.lowering.roll import roll
from collsim.engine.program import Program
from collsim.errors import AlgorithmError, CollsimError, InputError, ScheduleError, TopologyError
from collsim.schedule.model import Edge
from collsim.topology import Topology, TopologyBuilder
from tests.in_network import without_switches
from tests.rolled import star, uniform_repeats, without_paths
from tests.strategies import schedules

PREDECESSORS = ("pred", "pred_issued", "pred_lag")


def sorted_edges(program: Program) -> np.ndarray:
    node = np.repeat(np.arange(program.nodes), np.diff(program.pred_ptr))
    rows = np.stack([node, *(getattr(program, name).astype(np.int64) for name in PREDECESSORS)])
    return rows[:, np.lexsort(rows[::-1])]


def assert_same(loops: Loops, program: Program) -> None:
    flat = loops.flat()
    for item in fields(Program):
        if item.name not in PREDECESSORS:
            assert np.array_equal(getattr(flat, item.name), getattr(program, item.name)), item.name
    assert np.array_equal(sorted_edges(flat), sorted_edges(program))
    assert (np.diff(loops.edge_node) >= 0).all()


def agree(schedule: Schedule, topology: Topology, size: int, **options: Any) -> Loops:
    """Lower in both ways, rolled and all written out; they agree, or refuse it alike. Returns the rolled one."""
    program, refusal = None, None
    try:
        program = lower(schedule, topology, size, **options)
    except CollsimError as error:
        refusal = error
    for keep in (False, True):
        if refusal is not None:
            with pytest.raises(type(refusal)) as caught:
                roll(schedule, topology, size, **options, keep=keep)
            assert str(caught.value) == str(refusal)
        else:
            assert program is not None
            loops = roll(schedule, topology, size, **options, keep=keep)
            assert_same(loops, program)
    if refusal is not None:
        raise refusal
    return loops


SHIPPED = without_switches()


@pytest.mark.parametrize(("operation", "name"), SHIPPED)
def test_shipped_algorithms(operation: str, name: str) -> None:
    taken = 0
    for ranks in range(1, 18):
        topology = star(ranks, 2)
        try:
            schedule = algorithms.build(operation, name, ranks)
        except AlgorithmError:
            continue  # it does not take so many
        taken += 1
        for size in (0, ranks - 1, 64 * ranks, 1001):
            agree(schedule, topology, size, synchronous=size % 2 > 0, element_size=1 + size % 3)
    assert taken >= 4


@pytest.mark.parametrize(
    ("operation", "name", "root", "parameters"),
    [
        ("all_reduce", "ring", 0, {"channels": 3, "slices": 2}),
        ("reduce_scatter", "ring", 0, {"channels": 2, "order": [3, 0, 4, 1, 2]}),
        ("all_gather", "ring", 0, {"slices": 3, "order": [3, 0, 4, 1, 2]}),
        ("all_reduce", "bidirectional_ring", 0, {"channels": 2, "slices": 2}),
        ("broadcast", "ring", 3, {"channels": 2, "slices": 5}),
        ("reduce", "ring", 1, {"slices": 5}),
        ("all_reduce", "double_binary_tree", 0, {"slices": 3}),
        ("reduce", "double_binary_tree", 2, {"slices": 4}),
        ("all_reduce", "tree", 0, {"k": 3, "slices": 4}),
        ("broadcast", "binomial_tree", 4, {}),
    ],
)
def test_parameters_pacing_and_zero_copy(operation: str, name: str, root: int, parameters: dict[str, Any]) -> None:
    schedule = algorithms.build(operation, name, 5, root, **parameters)
    paced = [schedule]
    with suppress(ScheduleError):  # windows that reach over the border of phases with other rows
        paced += [window(schedule, n, at=at) for n, at in ((1, "end"), (3, "issued"))]
    for one in paced:
        for size in (0, 3, 7 * schedule.chunks, 997):
            agree(one, star(5, 3), size)
            agree(one, star(5, 3), size, synchronous=True)
    with suppress(ScheduleError):  # exchanges
        agree(schedule, star(5), 100, zero_copy=True)


@pytest.mark.parametrize("ranks", [2, 3, 8, 9])
@pytest.mark.parametrize("size", [0, 720, 721])
def test_rings_stay_rolled(ranks: int, size: int) -> None:
    for make, lanes in ((algorithms.ring_all_reduce, 1), (algorithms.bidirectional_ring_all_reduce, 2)):
        for channels, slices in ((1, 1), (3, 1), (2, 2)):
            schedule = make(ranks, channels=channels, slices=slices)
            rows = ranks * lanes * channels * slices
            for one in (schedule, window(schedule, 2)):
                loops = agree(one, star(ranks), size)
                assert loops.rows == 2 * rows
                if ranks == 2:  # a phase that is run once has nothing to keep
                    assert loops.times.tolist() == [1]
                    continue
                assert loops.times.tolist() == [ranks - 1] * 2
                assert loops.varies.tolist() == [size % schedule.chunks > 0] * 2
                # only the first iterations of the second phase reach back into the first
                assert len(loops.edge_node) <= (1 if one is schedule else 3) * rows


def test_big_rings_take_no_more_than_their_rows() -> None:
    ranks = 4096
    topology = collsim.topology.switch(ranks, bandwidth="50GB/s", latency="1us")
    loops = roll(window(algorithms.ring_all_reduce(ranks), 2), topology, 2**20 + 1)
    assert (loops.phases, loops.rows, loops.transfers) == (2, 2 * ranks, 2 * ranks * (ranks - 1))
    assert len(loops.dep_row) == 4 * ranks
    assert len(loops.edge_node) == 3 * ranks


@given(schedules(times=4), st.sampled_from([0, 5, 24, 25]), st.booleans())
@settings(max_examples=200)
def test_any_schedule(schedule: Schedule, size: int, synchronous: bool) -> None:
    with suppress(CollsimError):
        agree(without_paths(schedule), star(schedule.ranks), size, synchronous=synchronous)


@given(uniform_repeats(), st.sampled_from([0, 5, 24, 24, 25]), st.booleans())
@settings(max_examples=500)
def test_repeats_with_many_collisions(schedule: Schedule, size: int, synchronous: bool) -> None:
    with suppress(CollsimError):
        agree(schedule, star(schedule.ranks), size, synchronous=synchronous)


@given(uniform_repeats() | schedules(times=4).map(without_paths), st.sampled_from([24, 25]))
@settings(max_examples=200)
def test_in_small_pieces(schedule: Schedule, size: int) -> None:
    """Tables of the places that are written only, buffers that are too short, kernels that come back at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(written, "PART", 1)
        patch.setattr(written, "DENSE", 0)
        patch.setattr(rolling, "FEW", 0)
        patch.setattr(parts, "INT32", 4)  # steps of a part
        with suppress(CollsimError):
            agree(schedule, star(schedule.ranks), size)


@given(uniform_repeats())
@settings(max_examples=100)
def test_phases_with_too_many_reads_from_before_are_written_out(schedule: Schedule) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "MOST_OPEN", 0)
        with suppress(CollsimError):
            loops = agree(schedule, star(schedule.ranks), 24)
            later = np.searchsorted(loops.first, loops.edge_node, side="right") - 1
            assert (loops.times[later] == 1).all()


def test_reads_from_before_in_every_iteration() -> None:
    """The second phase adds to what it reads, so all of its reads wait for the first phase too."""
    b = ScheduleBuilder(Collective("all_reduce", 4), chunks=4)
    r = np.arange(4)
    with b.repeat(4, shift=1):
        b.copy(r, (r + 1) % 4, r)
    with b.repeat(3, shift=-1):
        b.reduce(r, (r + 1) % 4, (r - 1) % 4)
    loops = agree(b.build(), star(4), 4)
    assert loops.times.tolist() == [4, 3]
    assert len(loops.edge_node) == 12


def test_written_edges_between_and_inside_parts() -> None:
    b = ScheduleBuilder(Collective("all_reduce", 2), chunks=4)
    b.reduce([0, 1], [1, 0], [0, 1], step=[0, 1])
    b.copy(0, 1, 3, step=2)
    with b.repeat(3, shift=1):
        b.reduce([0, 1], [1, 0], [2, 0])
    with b.repeat(2):  # no shift: written out
        b.copy([0, 1], [1, 0])
    edges = [
        Edge(0, 0, 0, 2, at="issued"), Edge(0, 2, 0, 1, lag=3),  # in a part that is written out, one backwards
        Edge(1, 1, 1, 0, 1, at="issued", lag=9), Edge(1, 0, 1, 0, 3), Edge(1, 0, 1, 1),  # in one that is rolled
        Edge(2, 0, 1, 1, 2), Edge(2, 1, 0, 0, 4), Edge(2, 1, 2, 0, 1),  # from one to another
    ]  # fmt: skip
    loops = agree(b.build(edges), star(2), 8)
    assert loops.times.tolist() == [1, 3, 1]
    assert loops.dep_distance.max() == 2  # an edge over three iterations never applies and is left out


def test_edges_in_one_phase_that_comes_twice_and_in_none() -> None:
    b = ScheduleBuilder(Collective("all_reduce", 2), chunks=4)
    with b.repeat(3, shift=1):
        b.reduce([0, 1], [1, 0], [2, 0])
    once = b.build()
    (phase,) = once.phases
    twice = replace(
        once,
        phases=(replace(phase, times=0), phase, phase),
        edges=(Edge(2, 0, 2, 1, 1), Edge(1, 1, 1, 0), Edge(0, 0, 0, 1)),
    )
    loops = agree(twice, star(2), 8)
    assert loops.times.tolist() == [3, 3]
    never = replace(once, phases=(replace(phase, times=0),), edges=(Edge(0, 0, 0, 1),))
    assert agree(never, star(2), 8).transfers == 0


def test_scratch_that_holds_other_sizes_or_nothing() -> None:
    for prime, kept in ((True, 1), (False, 0)):
        b = ScheduleBuilder(Collective("all_reduce", 2), chunks=4, scratch=4)
        if prime:
            b.copy(0, 1, [0, 1, 2, 3], dst_buffer="scratch")
        with b.repeat(3, shift=1):
            b.copy(1, 1, dst_chunk=1, src_buffer="scratch")
        for size in (8, 9) if prime else (0,):
            if size == 9:
                with pytest.raises(ScheduleError, match="chunk 0 has 3 elements, chunk 1 has 2"):
                    agree(b.build(), star(2), size)
            else:
                assert (agree(b.build(), star(2), size).times > 1).sum() == kept
        if not prime:  # a chunk that nobody has written holds nothing
            with pytest.raises(ScheduleError, match="chunk 0 has 0 elements, chunk 1 has 2"):
                agree(b.build(), star(2), 8)


def test_scratch_that_is_reduced_into_within_its_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    b = ScheduleBuilder(Collective("all_reduce", 2), chunks=4, scratch=4)
    with b.repeat(3, shift=1):
        b.reduce(0, 1, dst_buffer="scratch")
        b.copy(1, 1, src_buffer="scratch", step=1)
    loops = agree(b.build(), star(2), 8)
    assert loops.times.tolist() == [3]
    monkeypatch.setattr(rolling, "lower", None)  # it is not needed for that
    assert roll(b.build(), star(2), 8, keep=False).times.tolist() == [1]


def two_ways() -> Topology:
    b = TopologyBuilder("two ways")
    for name in ("gpu0", "gpu1"):
        b.add_node(name, forwards=False)
    for name in ("a", "b", "c"):
        b.add_node(name, kind="switch")
    for src, dst in (("gpu0", "a"), ("a", "gpu1"), ("gpu0", "b"), ("b", "c"), ("c", "gpu1"), ("gpu1", "gpu0")):
        b.add_link(src, dst, 10**9, 1000)
    return b.build()


def test_paths() -> None:
    def through(*paths: str) -> Schedule:
        b = ScheduleBuilder(Collective("broadcast", 2), chunks=6)
        with b.repeat(3, shift=1):
            b.copy([0, 1], [1, 0], 0)
            for channel, path in enumerate(paths):
                b.copy(0, 1, 3, via=(path,), channel=channel, dst_chunk=4)
        b.copy(0, 1, 1, via=("c",))
        return b.build()

    loops = agree(through("b", "a"), two_ways(), 6)
    assert loops.times.tolist() == [3, 1]
    assert len(loops.route_ptr) - 1 == 5
    with pytest.raises(TopologyError, match="no node 'd'"):
        agree(through("d"), two_ways(), 6)
    with pytest.raises(TopologyError, match="route via 'gpu1': the node does not forward"):
        agree(through("gpu1"), two_ways(), 6)


def test_places_must_be_able_to() -> None:
    def machine(**flags: bool) -> Topology:
        b = TopologyBuilder("star")
        for name in ("gpu0", "gpu1"):
            b.add_node(name)
        b.add_node("sw", kind="switch", reduce_bandwidth=10**9, **flags)
        for name in ("gpu0", "gpu1"):
            b.add_duplex(name, "sw", 10**9, 1000)
        return b.build()

    def through(*sent: int) -> Schedule:
        b = ScheduleBuilder(Collective("all_reduce", 2), chunks=4, scratch=4, places=["sw"])
        b.copy(0, 2, [0, 1, 2, 3], dst_buffer="scratch")
        with b.repeat(2, shift=1):
            b.reduce([0, 1], 2, 0, dst_buffer="scratch")
            for rank, chunk in enumerate(sent):
                b.copy(2, rank % 2, chunk, src_buffer="scratch", step=1)
        return b.build()

    everything = {"reduces": True, "multicasts": True}
    # switches reduce at the rate of their links
    assert set(np.diff(roll(through(0, 0), machine(**everything), 8).route_ptr)) == {1}
    assert agree(through(0, 0), machine(**everything), 8).times.tolist() == [1, 2]
    assert agree(through(0), machine(reduces=True), 8).times.tolist() == [1, 2]
    for sent in ((0, 0), (0, 1), (0, 3, 0)):  # in one iteration, in two, more often than there are chunks
        with pytest.raises(TopologyError, match="sends a chunk from it more than once"):
            agree(through(*sent), machine(reduces=True), 8)
    assert agree(through(0, 2), machine(reduces=True), 8).times.tolist() == [1, 2]
    with pytest.raises(TopologyError, match="the schedule reduces in it"):
        agree(through(0, 0), machine(multicasts=True), 8)


def test_refusals() -> None:
    ring = collsim.topology.ring(3, bandwidth="1GB/s", latency="1us")
    with pytest.raises(InputError, match="ranks: the schedule has 4, topology 'ring' has 3"):
        agree(algorithms.ring_all_reduce(4), ring, 4)
    slow = collsim.topology.ring(3, bandwidth="1B/s", latency="1us")
    with pytest.raises(InputError, match="take over 106 days"):
        agree(algorithms.ring_all_reduce(3), slow, 2**30)
    b = ScheduleBuilder(Collective("send_recv", 2), chunks=2, in_place=False)
    with b.repeat(2, shift=1):
        b.copy([0, 1], [1, 0], 0, dst_chunk=1, src_buffer="input")
    assert agree(b.build(), star(2), 4).times.tolist() == [2]
    with pytest.raises(ScheduleError, match=r"step 0, 0 -> 1: chunk 0 has 3 elements, chunk 1 has 2; expected"):
        agree(b.build(), star(2), 5)
    assert agree(algorithms.ring_all_reduce(3), ring, 5).varies.all()


@pytest.mark.parametrize("times", [2, 4])
def test_a_time_is_refused_where_it_occurs_only(times: int) -> None:
    """The last chunk would take too long, and is sent in the fourth iteration."""
    b = ScheduleBuilder(Collective("broadcast", 2), chunks=4, layout=[(3, 1), (1, 2**40)])
    with b.repeat(times, shift=1):
        b.copy(0, 1)
    slow = collsim.topology.ring(2, bandwidth="1B/s", latency="1us")
    if times == 2:
        assert agree(b.build(), slow, 3 + 2**40).varies.tolist() == [True]
    else:
        with pytest.raises(InputError, match="take over 106 days"):
            agree(b.build(), slow, 3 + 2**40)


def test_too_large_to_write_out(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = algorithms.tree_all_reduce(9)
    topology = star(9)
    monkeypatch.setattr(memory, "ALWAYS", 0)
    monkeypatch.setattr(memory, "free_memory", lambda: 1000)
    with pytest.raises(InputError, match=r"^memory: 512 transfers, written out, need about .*; expected fewer ranks"):
        roll(schedule, topology, 100)
    with pytest.raises(InputError, match=r"^memory: 72 transfers, written out, need about"):
        roll(algorithms.ring_all_gather(9), topology, 100, zero_copy=True)
    assert roll(algorithms.ring_all_reduce(9), topology, 100).times.tolist() == [8, 8]


def test_kernels_are_compiled_once() -> None:
    from collsim.engine.lowering.last_writer import follow, number_routes

    topology = star(4)
    for schedule in (
        algorithms.ring_all_reduce(4, channels=2), algorithms.tree_all_reduce(4), algorithms.ring_broadcast(4)
    ):  # fmt: skip
        for keep in (True, False):
            loops = roll(schedule, topology, 1001, keep=keep)
            assert len({getattr(loops, name).flags.writeable for name in KINDS}) == 1  # else it is another type
    assert len(follow.signatures) == len(number_routes.signatures) == 1  # type: ignore[attr-defined]
