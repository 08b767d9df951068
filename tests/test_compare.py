"""`collsim.compare`: its times are those of `run`, and what it says of them."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import collsim
from collsim import Collective, ScheduleBuilder, algorithms
from collsim.collective import ROOTED
from collsim.engine import compare as room
from collsim.engine.compare import Comparison, resize
from collsim.engine.loops import Loops, loops_of
from collsim.engine.lowering.lower import lower
from collsim.engine.lowering.roll import roll
from collsim.errors import AlgorithmError, InputError, ProofError, ScheduleError
from collsim.topology import bidirectional_ring, load_topology, ring, switch

compare = collsim.compare
SIZES = [8, 1000, 4096, 1 << 20, (1 << 20) + 4]


@pytest.fixture(params=["reference", "compiled"])
def engine(request, monkeypatch):
    if request.param == "compiled":
        pytest.importorskip("numba")
        monkeypatch.setattr(room, "FEW_TRANSFERS", 0)
    else:
        monkeypatch.setattr(room, "find_spec", lambda name: None)
    return request.param


@pytest.mark.parametrize("network", ["cut_through", "store_and_forward", "fluid", "alpha_beta"])
def test_times_are_those_of_run(engine, network):
    machine = load_topology("dgx-1-v100")
    names = ["ring", "tree", "double_binary_tree", "bidirectional_ring"]
    found = compare("all_reduce", machine, SIZES, algorithms=names, network=network, dtype="float")
    assert list(found.results) == names
    assert not found.unfit
    for name, by_size in found.results.items():
        assert list(by_size) == SIZES
        for size, result in by_size.items():
            alone = collsim.run("all_reduce", machine, size, name, network=network, dtype="float", engine="reference")
            assert (result.time_ps, result.schedule) == (alone.time_ps, alone.schedule)
            assert (result.engine, result.network, result.size, result.element_size) == (engine, network, size, 4)
            assert float(result.bound) == float(alone.bound)
            assert (result.link_bytes == alone.link_bytes).all()
            assert not result.has_records
            assert result.checked is not None


@pytest.mark.parametrize("operation", sorted(algorithms.available()))
def test_each_operation_and_no_efficiency_above_one(operation):
    machine = load_topology("torus-4x4")
    found = compare(operation, machine, [64, 4096, 1 << 20], root=3 if operation in ROOTED else 0)
    assert set(found.results) | set(found.unfit) == set(algorithms.available()[operation])
    for size in found.sizes:
        ranking = found.ranking(size)
        assert [r.time_ps for _, r in ranking] == sorted(r.time_ps for _, r in ranking)
        assert all(r.time >= float(r.bound) - 1e-12 * (1 + r.schedule.steps) for _, r in ranking)
        assert all(
            r.schedule.collective == Collective(operation, 16, 3 if operation in ROOTED else 0) for _, r in ranking
        )


def test_each_schedule_is_built_and_proven_once(engine, monkeypatch):
    made, proven, rolled = [], [], []

    def mine(ranks):
        made.append(ranks)
        return algorithms.ring_all_reduce(ranks)

    monkeypatch.setattr(room, "check_room", lambda schedule: proven.append(schedule))
    real = roll
    monkeypatch.setattr("collsim.engine.lowering.roll.roll", lambda *a, **k: rolled.append(a) or real(*a, **k))
    compare("all_reduce", ring(4), [4**k for k in range(1, 10)], algorithms=[mine])
    assert (made, len(proven)) == ([4], 1)
    assert len(rolled) == (engine == "compiled")
    compare("all_reduce", ring(4), [64], algorithms=[mine], check=False)
    assert len(proven) == 1


def columns(loops: Loops) -> dict[str, object]:
    return {item.name: getattr(loops, item.name) for item in fields(Loops)}


@pytest.mark.parametrize("name", ["ring", "tree", "double_binary_tree"])
@pytest.mark.parametrize("make", [roll, lambda *a, **k: loops_of(lower(*a, **k))], ids=["rolled", "flat"])
def test_resizing_is_lowering_again(name, make):
    machine = switch(8, bandwidth="450GB/s", latency="350ns", send_overhead="1us", reduce_bandwidth="2TB/s")
    schedule = algorithms.build("all_reduce", name, 8)
    chunks = schedule.chunks
    before = make(schedule, machine, 3 * chunks)
    for each in (1, 3, 7, 1 << 20):
        again = resize(before, 3, each)
        expected = columns(make(schedule, machine, each * chunks))
        for column, value in columns(again).items():
            if column != "busy":
                assert np.array_equal(value, expected[column]), column
        visited = expected["busy"] > 0
        assert np.array_equal(again.busy[visited], expected["busy"][visited])


def test_resizing_gives_up_beyond_64_bits_and_on_large_tables(monkeypatch):
    loops = roll(algorithms.ring_all_reduce(4), ring(4, bandwidth="1B/s"), 4)
    assert resize(loops, 1, 2) is not None
    assert resize(loops, 1, 2**40) is None
    monkeypatch.setattr(room, "FEW_TIMES", 0)
    assert resize(loops, 1, 2) is None


def test_schedules_of_many_phases_are_written_out(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(room, "FEW_TRANSFERS", 0)

    def many(ranks):
        b = ScheduleBuilder(Collective("all_gather", ranks), chunks=40 * ranks)
        r = np.arange(ranks)
        for piece in range(40):
            with b.repeat(ranks - 1, shift=-40):
                b.copy(r, (r + 1) % ranks, 40 * r + piece)
        return b.build()

    machine = ring(4, bandwidth="1GB/s", latency="1us")
    found = compare("all_gather", machine, [160, 16000], algorithms=[many])
    result = found.results["many"][16000]
    assert result.lowered.phases == 1
    assert result.time_ps == collsim.simulate(many(4), machine, 16000, engine="reference").time_ps


def refuses(ranks):
    raise AlgorithmError("ranks: expected an odd number")


def needs_nodes(ranks, *, nodes): ...


def detour(ranks):
    """Takes only sizes that its two chunks divide."""
    b = ScheduleBuilder(Collective("broadcast", ranks), chunks=2)
    b.copy(0, 2, 1)
    b.copy(0, 1, 0, dst_chunk=1)
    b.copy(1, 2, 1, dst_chunk=0, step=1)
    b.copy(2, 1, 0, count=2, step=2)
    return b.build()


def test_what_does_not_fit_is_listed_with_the_reason():
    found = compare("all_reduce", ring(4), 64, algorithms=["ring", refuses, needs_nodes])
    assert list(found.results) == ["ring"]
    assert found.unfit == {
        "refuses": "ranks: expected an odd number",
        "needs_nodes": "topology 'ring' has no nodes; give -p nodes=2",
    }
    assert repr(found) == "<Comparison of all_reduce on 'ring': 1 algorithm at 1 size, 2 unfit>"


def test_sizes_that_do_not_fit_are_listed(engine):
    found = compare("broadcast", ring(3), [2, 3, 5, 7, 8], algorithms=[detour, "ring"])
    assert list(found.results["detour"]) == [2, 8]
    assert list(found.results["ring"]) == [2, 3, 5, 7, 8]
    assert found.unfit["detour"].startswith("at 3B and 2 more sizes: ")
    assert [name for name, _ in found.ranking(3)] == ["ring"]
    nothing = compare("broadcast", ring(3), [3], algorithms=[detour])
    assert not nothing.results
    assert not nothing.unfit["detour"].startswith("at")
    assert nothing.crossovers() == []


def test_what_is_too_large_is_listed(monkeypatch):
    monkeypatch.setattr("collsim.engine.simulate.MAX_TRANSFERS", 10)
    monkeypatch.setattr(room, "find_spec", lambda name: None)
    found = compare("all_reduce", ring(4), 64, algorithms=["ring", "binomial_tree"])
    assert list(found.results) == ["binomial_tree"]
    assert found.unfit["ring"].startswith("schedule: 24 transfers would need about")


def test_functions_and_other_names_for_them():
    slow = partial(algorithms.tree_all_reduce, slices=1)
    found = compare("all_reduce", switch(8), "1MiB", algorithms={"tree of 1": slow, "ring": algorithms.ring_all_reduce})
    assert list(found.results) == ["tree of 1", "ring"]
    assert compare("all_reduce", switch(8), "1MiB", algorithms="ring").results.keys() == {"ring"}
    assert list(compare("all_reduce", switch(8), 8, algorithms=["ring", "ring"]).results) == ["ring"]


def test_roots_are_passed_on():
    found = compare("broadcast", ring(4), 64, root=2, algorithms=["ring", algorithms.tree_broadcast])
    assert {r.schedule.collective.root for by_size in found.results.values() for r in by_size.values()} == {2}


def ring_too(ranks):
    return algorithms.ring_all_reduce(ranks)


ring_too.__name__ = "ring"


def forgets(ranks):
    b = ScheduleBuilder(Collective("all_reduce", ranks), chunks=1)
    b.reduce(0, 1)
    return b.build()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"operation": "all_redcue"}, InputError, "operation: expected one of .*; did you mean 'all_reduce'"),
        ({"topology": "ring8"}, InputError, r"topology: expected a Topology \(see load_topology\), got str"),
        ({"network": "flued"}, InputError, "network: expected one of .*; did you mean 'fluid'"),
        ({"dtype": "int"}, InputError, "dtype: expected one of "),
        ({"sizes": []}, InputError, "sizes: expected at least one, got none"),
        ({"sizes": ["1 furlong"]}, InputError, "1 furlong"),
        ({"operation": "broadcast", "root": 4}, InputError, "root"),
        ({"algorithms": ["rnig"]}, AlgorithmError, "got 'rnig'; did you mean 'ring'"),
        ({"algorithms": [3]}, InputError, "algorithms: expected names or functions that have one, got 3"),
        ({"algorithms": [partial(forgets)]}, InputError, "algorithms: expected names or functions that have one"),
        ({"algorithms": ["ring", ring_too]}, InputError, "algorithms: two are called 'ring'; expected a mapping"),
        ({"algorithms": [lambda ranks: 3]}, AlgorithmError, "<lambda>: expected it to return a Schedule, got int"),
        (
            {"algorithms": [algorithms.ring_all_gather]},
            AlgorithmError,
            "ring_all_gather: expected a schedule of all_reduce on 4 ranks, got one of all_gather on 4 ranks",
        ),
        ({"algorithms": [forgets]}, ProofError, "^forgets: rank "),
    ],
)
def test_what_is_wrong_with_the_call_is_told(arguments, error, message):
    call = {"operation": "all_reduce", "topology": ring(4), "sizes": [64], **arguments}
    with pytest.raises(error, match=message):
        compare(**call)


def test_schedules_that_are_not_well_formed_are_named(monkeypatch):
    def racing(schedule):
        raise ScheduleError("two writes meet")

    monkeypatch.setattr(room, "check_room", racing)
    with pytest.raises(ScheduleError, match=r"^ring: two writes meet$"):
        compare("all_reduce", ring(4), [64], algorithms=["ring"])


def test_operations_without_algorithms_are_told(monkeypatch):
    monkeypatch.setattr(room.room.registry, "_TABLE", {("all_reduce", "ring"): algorithms.ring_all_reduce})
    with pytest.raises(AlgorithmError, match="collsim has none for barrier yet; it has some for all_reduce"):
        compare("barrier", ring(4), [64])


def test_progress_counts_the_transfers_of_all_runs(engine):
    seen: list[tuple[int, int]] = []
    compare("all_reduce", ring(8), [64, 6400], progress=lambda *pulse: seen.append(pulse), algorithms=["ring", "tree"])
    total = 2 * sum(algorithms.build("all_reduce", name, 8).transfers for name in ("ring", "tree"))
    assert {of for _, of in seen} == {total}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (total, total)


def test_sizes_are_sorted_and_each_taken_once():
    found = compare("all_reduce", ring(4), ["1MiB", 64, 1 << 20], algorithms=["ring"])
    assert found.sizes == (64, 1 << 20)
    with pytest.raises(InputError, match="size: expected one of those that were compared, 64B, 1MiB, got 65"):
        found.ranking(65)


def test_a_frame_has_a_row_for_each_run():
    pytest.importorskip("pandas")
    found = compare("all_reduce", bidirectional_ring(4), [64, "1GiB"], algorithms=["ring", "bidirectional_ring"])
    frame = found.to_frame()
    assert list(frame["size"]) == [64, 64, 1 << 30, 1 << 30]
    assert frame["algorithm"][2] == "bidirectional_ring"
    assert frame["efficiency"].between(0, 1).all()
    assert frame["time"][3] == found.results["ring"][1 << 30].time


def test_frames_need_pandas(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(collsim.errors.CollsimError, match="expected pandas to be installed"):
        compare("all_reduce", ring(4), [64], algorithms=["ring"]).to_frame()


def of_times(times: dict[str, list[int]]) -> Comparison:
    sizes = tuple(2**k for k in range(max(map(len, times.values()))))
    results = {
        name: {size: SimpleNamespace(time_ps=ps) for size, ps in zip(sizes, column, strict=True)}
        for name, column in times.items()
    }
    return Comparison("all_reduce", ring(2), "cut_through", sizes, results, {})


def test_crossovers_are_few():
    found = of_times({"a": [1, 5, 5, 9], "b": [2, 5, 5, 5], "c": [2, 6, 5, 5]})
    assert found.crossovers() == [(1, 4, "a"), (8, 8, "b")]
    assert found.best(4) == ["a", "b", "c"]
    assert of_times({"a": [5, 9, 9], "b": [5, 5, 9], "c": [5, 5, 5]}).crossovers() == [(1, 4, "c")]


def test_times_that_are_nearly_equal_count_as_equal():
    found = of_times({"a": [100_000, 200_009], "b": [100_009, 200_000], "c": [100_011, 200_021]})
    assert found.crossovers() == [(1, 2, "a")]
    assert found.crossovers(within=0) == [(1, 1, "a"), (2, 2, "b")]
    assert found.best(1) == ["a", "b"]


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.lists(st.integers(0, 4), min_size=n, max_size=n), min_size=1)))
def test_crossovers_cover_all_sizes(times):
    found = of_times({f"a{i}": column for i, column in enumerate(times)})
    spans = found.crossovers(within=0)
    covered = [size for first, last, _ in spans for size in found.sizes if first <= size <= last]
    assert covered == list(found.sizes)
    for first, last, name in spans:
        assert all(name in found.best(size, within=0) for size in found.sizes if first <= size <= last)
    assert all(a[2] != b[2] for a, b in pairwise(spans))


def test_all_of_four_dgx_in_a_few_seconds():
    pytest.importorskip("numba")
    machine = load_topology("dgx-h100-x4")
    found = compare("all_reduce", machine, [2**k for k in range(3, 31)], dtype="float")
    assert len(found.results) >= 5
    assert all(result.efficiency <= 1 + 1e-9 for by_size in found.results.values() for result in by_size.values())


@pytest.mark.parametrize(("able", "runs"), [("reduces", "reduce_scatter"), ("multicasts", "all_gather")])
def test_a_switch_that_can_do_one_thing_only_is_no_reason_to_stop(able, runs):
    topology = collsim.topology.switch(4, bandwidth="50GB/s", latency="1us", **{able: True})
    for operation in ("all_reduce", "reduce_scatter", "all_gather"):
        found = collsim.compare(operation, topology, "1MiB", algorithms=["ring", "nvls"])
        assert list(found.results) == (["ring", "nvls"] if operation == runs else ["ring"])
        assert (operation == runs) == ("nvls" not in found.unfit)
