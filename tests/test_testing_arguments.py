"""The battery: what it can be asked to try, and what it says of volumes."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

import collsim
from collsim import Collective, ScheduleBuilder, algorithms, topology
from collsim.errors import AlgorithmError, InputError, ProofError
from collsim.testing import check_algorithm, check_ranks, check_topology
from collsim.testing.sanity import least_share
from tests.test_testing import star


def by_dims(ranks, *, dims):
    return algorithms.torus_all_reduce(ranks, dims=dims)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (star, {"ranks": [3], "roots": [7]}, "roots: expected one from 0 to 2 where N=3, got [7]"),
        (star, {"ranks": [3], "roots": 7}, "roots: expected whole numbers such as [1, 3], got 7"),
        (star, {"ranks": [3], "roots": ["a"]}, "roots: expected whole numbers of at least 0, got 'a'"),
        (
            star,
            {"ranks": [], "topologies": "ring8", "roots": [8]},
            "roots: expected one from 0 to 7 where N=8, got [8]",
        ),
        (
            algorithms.ring_all_reduce,
            {"roots": [2]},
            "roots: expected none, the function has no parameter root, got [2]",
        ),
        (star, {"ranks": 5}, "ranks: expected whole numbers such as [2, 4], got 5"),
        (star, {"ranks": "5"}, "ranks: expected whole numbers such as [2, 4], got '5'"),
        (star, {"ranks": ["a"]}, "ranks: expected whole numbers of at least 1, got 'a'"),
        (star, {"ranks": [0]}, "ranks: expected whole numbers of at least 1, got 0"),
        (star, {"ranks": [2], "topologies": [5]}, "topologies: expected topologies or their names, got 5"),
        (star, {"ranks": [2], "topologies": 5}, "topologies: expected topologies or their names, got 5"),
        (star, {"ranks": [2], "elements": 4}, "elements: expected whole numbers such as [1, 3], got 4"),
        (5, {}, "function: expected a function that returns a schedule, got 5"),
    ],
)
def test_what_cannot_be_tried_is_refused_in_one_line(function, arguments, message):
    with pytest.raises(InputError) as caught:
        check_algorithm(function, **arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize("one", ["ring8", Path(collsim.__file__).parent.parent / "topologies" / "ring8.yaml"])
def test_one_machine_by_itself(one):
    report = check_algorithm(algorithms.ring_all_reduce, ranks=[2], topologies=one)
    assert [(timing.topology, timing.case.ranks) for timing in report.timings] == [("ring8", 8)]
    machine = topology.switch(3)
    assert check_algorithm(algorithms.ring_all_reduce, ranks=[], topologies=machine).timings[0].case.ranks == 3


def test_roots_are_tried_on_machines_as_well():
    tried = []

    def spy(ranks, root):
        tried.append(root)
        return star(ranks, root)

    timing = check_topology(spy, "ring8")
    assert timing.case.roots == (0, 4, 7)
    assert sorted(set(tried)) == [0, 4, 7]
    assert "; 3 roots" in str(timing)
    assert check_topology(spy, "ring8", roots=[1, 9]).case.roots == (1,)
    assert check_algorithm(spy, ranks=[], topologies=topology.switch(2)).timings[0].case.roots == (0, 1)
    # the least of all: on a line a star at the end has to go through one link
    line = topology.line(5, bandwidth="1GB/s", latency="1us")
    ends = [check_topology(star, line, roots=[root]).efficiency for root in (0, 2)]
    assert check_topology(star, line, roots=[0, 2]).efficiency == {
        size: min(end[size] for end in ends) for size in ends[0]
    }

    def forgets_the_last(ranks, root):
        return star(ranks, root) if root < 7 else ScheduleBuilder(Collective("broadcast", ranks, root), 1).build()

    with pytest.raises(ProofError, match=r"^ring8, root 7: rank 0, chunk 0: "):
        check_topology(forgets_the_last, "ring8")


def test_parameters_that_numbers_of_ranks_do_not_have():
    why = (
        "dims: expected a default; name a machine that has some in topologies, or give one by functools.partial("
        "function, dims=...)"
    )
    assert check_ranks(by_dims, 4).refused == why
    with pytest.raises(AlgorithmError) as caught:
        check_algorithm(by_dims, ranks=[4])
    assert str(caught.value) == f"by_dims: refuses every number of ranks; N=4: {why}"
    assert check_algorithm(functools.partial(by_dims, dims=(2, 2)), ranks=[4]).accepted == (4,)
    report = check_algorithm(by_dims, ranks=[4], topologies="torus-4x4")
    assert report.timings[0].case.refused is None

    def other(ranks, *, spread):
        return algorithms.ring_all_reduce(ranks)

    assert check_topology(other, "ring8").case.refused == (
        "spread: expected a default; give one by functools.partial(function, spread=...)"
    )
    assert check_ranks(lambda ranks, order: algorithms.ring_all_reduce(ranks, order=order), 3).volume is not None
    assert check_topology(lambda ranks, order: algorithms.ring_all_reduce(ranks, order=order), "ring8").efficiency


# data that travels twice


def test_twice_the_bytes_are_said():
    def twice(ranks):
        b = ScheduleBuilder(Collective("all_gather", ranks), chunks=2)
        b.copy([0, 1], [1, 0], [0, 1], step=0)
        b.copy([1, 0], [0, 1], [0, 1], step=1)  # and back again
        return b.build()

    right, wrong = check_ranks(algorithms.direct_all_gather, 2), check_ranks(twice, 2)
    assert (right.volume, right.excess) == (0.5, None)
    assert (wrong.volume, wrong.excess) == (1.0, 2.0)
    assert ", a rank sends at most 1 S (2 times what any algorithm must)" in str(wrong)
    assert "times what" not in str(right)
    assert str(check_ranks(star, 3, roots=[1])).endswith("at most 2 S (2 times what any algorithm must), 1 root")


@pytest.mark.parametrize(
    ("operation", "name"),
    [("all_reduce", "ring"), ("all_to_all", "direct"), ("scatter", "linear"), ("gather", "linear"),
     ("send_recv", "ring"), ("reduce", "ring"), ("broadcast", "scatter_all_gather")],
)  # fmt: skip
@pytest.mark.parametrize("ranks", [2, 5, 8])
def test_what_sends_the_least_has_no_excess(operation, name, ranks):
    schedule = algorithms.build(operation, name, ranks)
    case = check_ranks(algorithms.find(operation, name), ranks)
    assert case.excess is None
    if name != "scatter_all_gather":
        assert case.volume == pytest.approx(least_share(schedule.collective))


def test_a_barrier_sends_nothing():
    assert check_ranks(algorithms.dissemination_barrier, 8).excess is None
