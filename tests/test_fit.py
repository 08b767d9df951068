"""What algorithms take from a machine."""

from __future__ import annotations

import pytest

import collsim
from collsim import algorithms
from collsim.algorithms.registry import _TABLE
from collsim.engine.fit import fitted, schedule_for
from collsim.errors import AlgorithmError, InputError
from collsim.topology import bidirectional_ring, fat_tree, load_topology, rail_optimized, ring, switch, torus


def takes_all(
    ranks, root=0, *, order=None, dims=None, levels=None, nodes=None, routes=None, bandwidths=None, slices=1
): ...


def must_have(ranks, *, nodes): ...


def test_a_torus_fills_in_dimensions_rates_and_routes():
    machine = torus((4, 4), bandwidth="50GB/s", latency="1us")
    found = fitted(takes_all, machine, {"slices": 2})
    assert found["dims"] == (4, 4)
    assert found["bandwidths"] == (50 * 10**9,) * 2
    assert found["slices"] == 2
    assert len(found["routes"]) == 64
    assert sorted(found["order"]) == list(range(16))
    assert "nodes" not in found
    assert "root" not in found


def test_a_cluster_fills_in_nodes_and_their_dimensions():
    found = fitted(takes_all, rail_optimized(4, 8), {})
    assert found["nodes"] == 4
    assert found["levels"] == (4, 8)
    assert found["bandwidths"] == (50 * 10**9, 450 * 10**9)


def test_nodes_that_a_number_does_not_tell_are_listed(monkeypatch):
    for groups in (((0, 2), (1, 3)), ((0, 1), (2,))):
        monkeypatch.setattr("collsim.engine.fit.node_groups", lambda topology, groups=groups: groups)
        assert fitted(must_have, switch(4), {}) == {"nodes": [list(group) for group in groups]}


def test_what_is_given_wins():
    given = {"order": [1, 0, 2, 3], "dims": (4, 1), "levels": (2, 2), "nodes": 2, "routes": {}, "bandwidths": (1, 2)}
    assert fitted(takes_all, fat_tree(2, 2), given) == given
    assert fitted(takes_all, ring(4), {"order": [0, 1, 2, 3]})["order"] == [0, 1, 2, 3]


def test_none_counts_as_not_given():
    assert fitted(must_have, rail_optimized(2, 2), {"nodes": None}) == {"nodes": 2}


def test_rates_of_the_machine_go_with_its_dimensions_only():
    machine = rail_optimized(4, 8)
    assert "bandwidths" not in fitted(takes_all, machine, {"levels": (8, 4)})
    for levels in ((4, 8), [4, 8]):
        assert "bandwidths" in fitted(takes_all, machine, {"levels": levels})


def test_nothing_is_filled_in_that_the_machine_does_not_have():
    found = fitted(takes_all, switch(8), {})
    assert list(found) == ["routes"]  # the order is that of the ranks, which need not be said


def test_what_is_not_taken_is_not_filled_in():
    assert fitted(lambda ranks: None, torus((3, 3)), {}) == {}
    assert fitted(lambda ranks, order: None, ring(3), {}) == {}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (must_have, "topology 'ring8' has no nodes; give -p nodes=2"),
        (lambda ranks, dims: None, "topology 'ring8' has no dimensions; give -p dims=2,4"),
        (lambda ranks, bandwidths: None, "topology 'ring8' has no levels; give -p bandwidths=... with levels=..."),
        (lambda ranks, levels: None, "topology 'ring8' has no levels; give -p levels=2,4"),
    ],
)
def test_what_is_needed_and_not_there_is_refused(function, message):
    with pytest.raises(AlgorithmError) as caught:
        fitted(function, load_topology("ring8"), {})
    assert str(caught.value) == message


def test_hints_for_a_prime_number_of_ranks():
    with pytest.raises(AlgorithmError, match=r"no nodes; give -p nodes=7$"):
        fitted(must_have, ring(7), {})
    with pytest.raises(AlgorithmError, match=r"no dimensions; give -p dims=7,1$"):
        fitted(lambda ranks, dims: None, ring(7), {})


def test_run_builds_the_schedule_that_fits():
    machine = load_topology("dgx-1-v100")
    schedule = schedule_for("all_reduce", "ring", machine, 0, {})
    assert schedule.parameters["order"] == list(machine.ring_order())
    assert collsim.run("all_reduce", machine, "1MiB").schedule == schedule
    assert "order" not in schedule_for("all_reduce", "ring", bidirectional_ring(5), 0, {}).parameters


def test_run_fills_in_for_functions_of_the_user():
    def by_nodes(ranks, *, nodes):
        return algorithms.ring_all_reduce(ranks, slices=nodes)

    algorithms.algorithm("all_reduce", "by_nodes")(by_nodes)
    try:
        result = collsim.run("all_reduce", rail_optimized(2, 2), "1MiB", algorithm="by_nodes")
        assert result.schedule.parameters == {"nodes": 2}
        assert result.schedule.chunks == 8
        with pytest.raises(AlgorithmError, match="topology 'ring' has no nodes; give -p nodes=2"):
            collsim.run("all_reduce", ring(4), "1MiB", algorithm="by_nodes")
        assert collsim.run("all_reduce", ring(4), "1MiB", algorithm="by_nodes", nodes=2).time > 0
    finally:
        del _TABLE["all_reduce", "by_nodes"]


def test_a_function_is_no_name():
    with pytest.raises(InputError, match="expected the name of an algorithm, got function"):
        schedule_for("all_reduce", must_have, ring(4), 0, {})
