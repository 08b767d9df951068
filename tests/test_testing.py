"""The battery: it takes what is right, and says of what is wrong for which N and why."""

from __future__ import annotations

import itertools
from importlib.util import find_spec

import numpy as np
import pytest

import collsim
from collsim import Collective, ScheduleBuilder, algorithms, testing, topology
from collsim.collective import ROOTED
from collsim.errors import AlgorithmError, DeadlockError, InputError, ProofError
from collsim.schedule import compare
from collsim.testing import Case, check_algorithm, check_ranks, check_topology, wrong_elements
from tests.in_network import without_switches

SHIPPED = without_switches()


def star(ranks, root=0):
    b = ScheduleBuilder(Collective("broadcast", ranks, root), chunks=1)
    b.copy(root, [rank for rank in range(ranks) if rank != root], 0)
    return b.build()


@pytest.mark.parametrize(("operation", "name"), SHIPPED, ids=[f"{operation}-{name}" for operation, name in SHIPPED])
def test_shipped_algorithms_pass(operation, name):
    # an algorithm may refuse some numbers of ranks, but not all; test_algorithms.py knows which ones take all
    report = check_algorithm(algorithms.find(operation, name), ranks=(1, 2, 3, 4, 8, 11))
    taken = [case for case in report.cases if case.refused is None]
    assert all(case.chunks >= 1 and case.volume is not None for case in taken)
    assert all(bool(case.roots) == (operation in ROOTED) for case in taken)


def test_the_report():
    report = check_algorithm(algorithms.ring_all_reduce, ranks=[1, 4])
    assert report.name == "ring_all_reduce"
    assert report.cases == (Case(1, (), 1, 0, 0, 0.0), Case(4, (), 4, 6, 24, 1.5))
    assert (
        str(report).splitlines()[2]
        == "  N=4     ok            4 chunks       6 steps        24 transfers, a rank sends at most 1.5 S"
    )


def test_every_root_is_tried_up_to_nine_ranks():
    tried = []

    def spy(ranks, root=0):
        tried.append((ranks, root))
        return star(ranks, root)

    report = check_algorithm(spy, ranks=[9, 20])
    assert report.cases[0].roots == tuple(range(9))
    assert report.cases[1].roots == (0, 1, 10, 19)
    assert set(tried) == {(9, root) for root in range(9)} | {(20, root) for root in (0, 1, 10, 19)}
    assert check_algorithm(spy, ranks=[4], roots=[2, 7]).cases[0].roots == (2,)


def test_default_ranks_are_1_to_17():
    assert check_algorithm(algorithms.ring_all_gather).accepted == tuple(range(1, 18))


def test_a_schedule_that_is_wrong_for_one_n_only():
    def wrong_from_5(ranks):
        schedule = algorithms.ring_all_reduce(ranks)
        if ranks < 5:
            return schedule
        b = ScheduleBuilder(Collective("all_reduce", ranks), chunks=1)
        b.reduce([1, 2], 0, 0)
        return b.build()

    with pytest.raises(ProofError, match=r"^N=5: rank 0, chunk 0: contributions? of ranks 3, 4") as caught:
        check_algorithm(wrong_from_5)
    assert (caught.value.rank, caught.value.chunk) == (0, 0)


def test_a_wrong_root_is_named():
    def forgets_root_2(ranks, root=0):
        return star(ranks, root) if root != 2 else ScheduleBuilder(Collective("broadcast", ranks, 2), chunks=1).build()

    with pytest.raises(ProofError, match=r"^N=3, root 2: rank 0, chunk 0: "):
        check_algorithm(forgets_root_2, ranks=[2, 3])


def test_a_schedule_that_cannot_be_built_names_n():
    def out_of_range(ranks):
        b = ScheduleBuilder(Collective("all_reduce", ranks), chunks=1)
        b.reduce(0, ranks, 0)
        return b.build()

    with pytest.raises(ProofError, match=r"^N=2: .*dst: expected a rank below 2"):
        check_algorithm(out_of_range, ranks=[2])


def test_refusals():
    def even(ranks):
        if ranks % 2:
            raise AlgorithmError("even: expected an even number")
        return algorithms.ring_all_reduce(ranks)

    report = check_algorithm(even, ranks=[2, 3])
    assert report.accepted == (2,)
    assert str(report.cases[1]) == "N=3     refused  even: expected an even number"
    with pytest.raises(AlgorithmError, match="even: refuses every number of ranks; N=3: even: expected"):
        check_algorithm(even, ranks=[3, 5])
    with pytest.raises(InputError, match="at least one"):
        check_algorithm(even, ranks=[])


def test_what_breaks_is_passed_on():
    def breaks(ranks):
        return 1 / 0

    with pytest.raises(ZeroDivisionError):
        check_algorithm(breaks)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda ranks: [ranks], "expected it to return a Schedule, got list"),
        (lambda ranks: algorithms.ring_all_reduce(ranks + 1), "expected a schedule of 2 ranks, root 0, got 3, root 0"),
        (lambda ranks, root=0: star(ranks), "expected a schedule of 2 ranks, root 1, got 2, root 0"),
    ],
)
def test_what_is_no_schedule_for_the_call(function, message):
    with pytest.raises(AlgorithmError, match=message):
        check_algorithm(function, ranks=[2])


def test_functions_that_make_another_schedule_each_time():
    made = itertools.count()

    def fickle(ranks):
        return algorithms.ring_all_reduce(ranks, channels=1 + next(made) % 2)

    with pytest.raises(ProofError, match="N=4: the function makes another schedule when it is called again"):
        check_algorithm(fickle, ranks=[4])


def test_text_that_does_not_read_back(monkeypatch):
    monkeypatch.setattr(testing.Schedule, "from_text", classmethod(lambda cls, text: algorithms.ring_all_reduce(2)))
    with pytest.raises(ProofError, match="N=3: the text form does not read back"):
        check_algorithm(algorithms.ring_all_reduce, ranks=[3])


def test_data_is_compared_with_numpy(monkeypatch):
    # a checker that sees nothing: the data must show the mistake by itself
    monkeypatch.setattr(testing, "check", lambda schedule: collsim.Proof(1, 1, 0))

    def forgets(ranks):
        b = ScheduleBuilder(Collective("all_reduce", ranks), chunks=1)
        b.reduce(0, 1, 0)
        return b.build()

    with pytest.raises(ProofError, match="N=2: 1 of the results on 1 elements are wrong, executed out of place"):
        check_algorithm(forgets, ranks=[2])
    with pytest.raises(ProofError, match="N=2: 6 of the results on 6 elements are wrong"):
        check_algorithm(forgets, ranks=[2], elements=[6])


def test_less_than_any_algorithm_must_send_is_noticed(monkeypatch):
    monkeypatch.setattr(testing, "check", lambda schedule: collsim.Proof(1, 1, 0))
    monkeypatch.setattr(testing, "wrong_elements", lambda *arguments, **more: 0)

    def half(ranks):
        b = ScheduleBuilder(Collective("all_gather", ranks), chunks=ranks)
        b.copy(0, 1, 0)
        return b.build()

    with pytest.raises(ProofError, match="N=2: rank 0 receives 0 bytes of 128; no algorithm can do with less than 64"):
        check_algorithm(half, ranks=[2])


def test_a_time_below_the_bound_is_noticed(monkeypatch):
    real = testing.simulate

    class TooFast:
        def __init__(self, result):
            self.result = result

        def __getattr__(self, name):
            return getattr(self.result, name)

        @property
        def time(self):
            return float(self.result.bound) * 0.999

    monkeypatch.setattr(testing, "simulate", lambda *arguments, **more: TooFast(real(*arguments, **more)))
    with pytest.raises(ProofError, match=r"N=3: takes .* us on '.*', below the bound of .* us: "):
        check_algorithm(algorithms.ring_all_reduce, ranks=[3])


def test_both_ways_of_execution_are_tried(monkeypatch):
    tried = []

    def spy(schedule, elements, *, in_place):
        tried.append((elements, in_place))
        return 0

    monkeypatch.setattr(testing, "wrong_elements", spy)
    check_ranks(algorithms.ring_all_reduce, 4)
    assert set(tried) == {(elements, in_place) for elements in (0, 1, 3, 4, 17) for in_place in (False, True)}
    monkeypatch.setattr(testing, "wrong_elements", lambda schedule, elements, *, in_place: int(in_place))
    with pytest.raises(ProofError, match="are wrong, executed in place"):
        check_ranks(algorithms.ring_all_reduce, 4)


def test_a_deadlock_names_n(monkeypatch):
    def stuck(*arguments, **more):
        raise DeadlockError("rank 0 waits for rank 1")

    monkeypatch.setattr(testing, "simulate", stuck)
    with pytest.raises(ProofError, match=r"^N=3: rank 0 waits for rank 1$"):
        check_ranks(algorithms.ring_all_reduce, 3)


def test_runs_that_differ_are_noticed(monkeypatch):
    real, calls = testing.simulate, itertools.count()

    def fickle(schedule, machine, size, **more):
        return real(schedule, machine, size + 64 * schedule.chunks * (next(calls) % 2), **more)

    monkeypatch.setattr(testing, "simulate", fickle)
    with pytest.raises(ProofError, match=r"^N=3: two runs on '.*' differ$"):
        check_ranks(algorithms.ring_all_reduce, 3)


def test_large_schedules_are_proven_and_the_rest_is_left_out_and_said(monkeypatch):
    monkeypatch.setattr(testing, "MOST_MOVES", 10)
    case = check_ranks(algorithms.ring_all_reduce, 4)
    assert case.volume is None
    assert case.notes == ("24 transfers are too many to execute on data",)


def test_chunks_that_move_need_sizes_that_they_divide():
    def detour(ranks):
        if ranks != 3:
            raise AlgorithmError("detour: expected 3 ranks")
        b = ScheduleBuilder(Collective("broadcast", ranks), chunks=2)
        b.copy(0, 2, 1)
        b.copy(0, 1, 0, dst_chunk=1)  # chunk 0 rests where chunk 1 belongs
        b.copy(1, 2, 1, dst_chunk=0, step=1)
        b.copy(2, 1, 0, count=2, step=2)
        return b.build()

    assert check_ranks(detour, 3).notes == ("takes only sizes that its 2 chunks divide",)
    with pytest.raises(ProofError, match="N=3: rank 1, chunk 1 has 1 elements and gets 2"):
        check_algorithm(detour, ranks=[3], elements=[3])


OPERATIONS = {
    "all_reduce": algorithms.ring_all_reduce,
    "reduce_scatter": algorithms.ring_reduce_scatter,
    "all_gather": algorithms.ring_all_gather,
    "broadcast": algorithms.ring_broadcast,
    "reduce": algorithms.ring_reduce,
}


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_wrong_elements_counts_what_is_wrong(operation, in_place):
    schedule = OPERATIONS[operation](5)
    assert wrong_elements(schedule, 23, in_place=in_place) == 0
    nothing_moves = ScheduleBuilder(schedule.collective, schedule.chunks).build()
    expected = {"all_reduce": 5 * 23, "reduce_scatter": 23, "all_gather": 4 * 23, "broadcast": 4 * 23, "reduce": 23}
    assert wrong_elements(nothing_moves, 23, np.int64, in_place=in_place) == expected[operation]


def copies(operation, ranks, pairs):
    """A schedule without reductions: (src, dst, chunk, dst_chunk) copied from input to output."""
    b = ScheduleBuilder(Collective(operation, ranks), chunks=ranks, in_place=False)
    for src, dst, chunk, dst_chunk in pairs:
        b.copy(src, dst, chunk, src_buffer="input", dst_buffer="output", dst_chunk=dst_chunk)
    return b.build()


@pytest.mark.parametrize(
    ("operation", "pairs"),
    [
        ("all_to_all", [(r, p, p, r) for r in range(3) for p in range(3)]),
        ("gather", [(r, 0, r, r) for r in range(3)]),
        ("scatter", [(0, r, r, r) for r in range(3)]),
        ("send_recv", [(r, (r + 1) % 3, c, c) for r in range(3) for c in range(3)]),
    ],
)
def test_operations_that_only_copy(operation, pairs):
    assert check_ranks(lambda ranks: copies(operation, ranks, pairs), 3).volume is not None
    assert wrong_elements(copies(operation, 3, pairs), 12) == 0
    assert wrong_elements(copies(operation, 3, pairs[:-1]), 12, np.int64) == 4


def test_numbers_are_exact_and_never_hide_a_missing_one():
    rng = np.random.default_rng(1)
    for dtype, ranks in (("float16", 1000), ("float32", 64), ("float64", 3)):
        numbers = compare._numbers(rng, 1000, np.dtype(dtype), ranks)
        assert numbers.min() >= 1
        assert numbers.max() * ranks <= 2 ** (np.finfo(dtype).nmant + 1)
    assert np.ptp(compare._numbers(rng, 1000, np.dtype("uint8"), 3)) > 200


def test_all_to_all_rounds_down_as_its_collective_does():
    b = ScheduleBuilder(Collective("all_to_all", 2), 2, in_place=False)
    b.copy([0, 1, 0, 1], [0, 1, 1, 0], [0, 1, 1, 0], dst_chunk=[0, 1, 0, 1], src_buffer="input")
    right = b.build()
    wrong = ScheduleBuilder(Collective("all_to_all", 2), 2)
    for elements in (0, 1, 2, 3, 7):
        assert wrong_elements(right, elements) == 0
        # what stays where it was is wrong in one block a rank
        assert wrong_elements(wrong.build(), elements, np.int64) == elements // 2 * 2


@pytest.mark.parametrize(
    ("elements", "dtype", "message"),
    [
        (4, bool, "dtype: expected integers, floats or complex numbers, got bool"),
        (4, "U3", "dtype: expected integers, floats or complex numbers, got <U3"),
        (4, "nothing", "dtype: expected a NumPy type, got 'nothing'"),
        (-1, int, "elements: expected a whole number of at least 0, got -1"),
        (2.5, int, "elements: expected a whole number of at least 0, got 2.5"),
    ],
)
def test_what_cannot_be_compared_is_refused(elements, dtype, message):
    with pytest.raises(InputError) as caught:
        wrong_elements(algorithms.ring_all_reduce(2), elements, dtype)
    assert str(caught.value) == message


@pytest.mark.parametrize("dtype", ["uint8", "float16", "complex64"])
def test_numbers_of_all_kinds_are_compared(dtype):
    assert wrong_elements(algorithms.ring_all_reduce(3), np.int64(10), dtype) == 0
    nothing = ScheduleBuilder(Collective("all_reduce", 3), 1).build()
    assert wrong_elements(nothing, 10, dtype) >= 29


def test_machines_are_tried_as_well():
    report = check_algorithm(algorithms.ring_all_reduce, ranks=[2], topologies=["ring8", topology.switch(3)])
    ring8, small = report.timings
    assert (ring8.topology, ring8.case.ranks, small.case.ranks) == ("ring8", 8, 3)
    assert list(ring8.efficiency) == [512, 1 << 20, 1 << 30]
    assert all(0 < part <= 1 for timing in report.timings for part in timing.efficiency.values())
    if find_spec("numba"):
        assert ring8.engines == ("reference", "compiled")
        assert str(ring8).endswith("99.97 % of the bound at 1GiB; reference and compiled engine agree")
    assert str(report).splitlines()[2].startswith("  ring8: ok  49.94 % of the bound at 512B, ")


def test_machines_give_what_the_function_takes():
    tried = []

    def by_nodes(ranks, *, nodes, order=None):
        tried.append((ranks, nodes, order))
        if nodes % 2:
            raise AlgorithmError("nodes: expected an even number")
        return algorithms.ring_all_reduce(ranks, order=order)

    odd, none = topology.rail_optimized(3, 2), topology.switch(4)
    report = check_algorithm(by_nodes, ranks=[], topologies=[topology.rail_optimized(2, 2), odd, none])
    assert [ranks for ranks, _, _ in tried] == [4, 4, 6]
    assert tried[0] == tried[1]
    assert [timing.case.refused for timing in report.timings] == [
        None, "nodes: expected an even number", "topology 'switch' has no nodes; give -p nodes=2",
    ]  # fmt: skip
    assert str(report.timings[1]).endswith(": refused  nodes: expected an even number")
    with pytest.raises(AlgorithmError, match="by_nodes: refuses every number of ranks; N=6: nodes: expected an even"):
        check_algorithm(by_nodes, ranks=[], topologies=[odd])
    with pytest.raises(InputError, match="expected at least one number of ranks, got none"):
        check_algorithm(by_nodes, ranks=[])


def test_what_is_wrong_on_a_machine_names_it(monkeypatch):
    def forgets(ranks, order=None):
        b = ScheduleBuilder(Collective("all_reduce", ranks), chunks=1)
        b.reduce(0, 1, 0)
        return b.build()

    with pytest.raises(ProofError, match=r"^ring8: rank 1, chunk 0: "):
        check_algorithm(forgets, ranks=[], topologies=["ring8"])
    with pytest.raises(AlgorithmError, match="expected a schedule of 8 ranks, root 0, got 3"):
        check_topology(lambda ranks: star(3), "ring8")
    real = testing.simulate

    def drifts(schedule, machine, size, *, engine="auto", **more):
        return real(schedule, machine, size + schedule.chunks * (engine == "compiled"), engine="reference", **more)

    monkeypatch.setattr(testing, "simulate", drifts)
    monkeypatch.setattr(testing, "find_spec", lambda name: True)
    with pytest.raises(ProofError, match=r"^ring8: the engines differ in alpha_beta$"):
        check_topology(algorithms.ring_all_reduce, "ring8")


def test_large_schedules_are_timed_by_one_engine(monkeypatch):
    monkeypatch.setattr(testing, "MOST_MOVES", 10)
    timing = check_topology(algorithms.ring_all_reduce, topology.ring(4, bandwidth="1GB/s", latency="1us"))
    assert len(timing.engines) == 1
    assert timing.case.notes == ("24 transfers are too many to execute on data",)
