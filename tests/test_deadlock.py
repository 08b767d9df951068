import pytest

from collsim.engine.program import NETWORKS
from collsim.engine.reference import run_reference
from collsim.errors import DeadlockError
from tests.programs import B, Edge, Plan


def stuck(plan: Plan, network: str = "cut_through") -> DeadlockError:
    with pytest.raises(DeadlockError) as caught:
        run_reference(plan.program(), network)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("network", NETWORKS)
def test_two_wait_for_each_other(network: str) -> None:
    plan = Plan()
    link = plan.link()
    plan.transfer(1, link)
    a = plan.transfer(1, link, src=0, dst=1, chunk=2)
    b = plan.transfer(1, link, after=[0, a], step=1, src=1, dst=0, chunk=0)
    plan.wait(a, Edge(b, 4, issued=True))
    error = stuck(plan, network)
    assert error.cycle == (1, 2)
    assert str(error) == (
        "deadlock: 2 transfers wait for each other: "
        "step 0, 0 -> 1 (chunk 2) waits for step 1, 1 -> 0 (chunk 0) to be issued; "
        "step 1, 1 -> 0 (chunk 0) waits for step 0, 0 -> 1 (chunk 2) to end; "
        "2 of 3 transfers never start; dependencies of data cannot do this, so remove or reverse an explicit edge"
    )


def test_one_waits_for_itself() -> None:
    plan = Plan()
    plan.transfer(1, plan.link(), step=3, src=5, dst=6, chunk=7)
    plan.wait(0, Edge(0))
    error = stuck(plan)
    assert error.cycle == (0,)
    assert "1 transfer waits for itself: step 3, 5 -> 6 (chunk 7) waits for step 3, 5 -> 6 (chunk 7) to end;" in str(
        error
    )


def test_those_behind_a_cycle_are_counted_but_not_in_it() -> None:
    plan = Plan()
    link = plan.link(B)
    behind = plan.transfer(1, link, src=9)  # the first that never starts, but only for another's sake
    nodes = [plan.transfer(1, link, src=i) for i in range(3)]
    plan.wait(behind, Edge(nodes[1]))
    for i in range(3):
        plan.wait(nodes[i], Edge(nodes[(i + 2) % 3]))
    error = stuck(plan)
    assert error.cycle == (1, 3, 2)  # 1 waits for 3, 3 for 2, 2 for 1
    assert "3 transfers wait for each other" in str(error)
    assert "4 of 4 transfers never start" in str(error)
    assert "9 ->" not in str(error)


def test_the_shortest_cycle_through_a_transfer_is_shown() -> None:
    plan = Plan()
    for _ in range(6):
        plan.transfer(1, plan.link())
    for i in range(6):
        plan.wait(i, Edge((i + 1) % 6))
    plan.wait(2, Edge(0))
    assert stuck(plan).cycle == (0, 1, 2)


def test_long_cycles_are_cut_in_the_message_only() -> None:
    plan = Plan()
    for i in range(50):
        plan.transfer(1, plan.link(), src=i)
    for i in range(50):
        plan.wait(i, Edge((i + 1) % 50))
    error = stuck(plan)
    assert error.cycle == tuple(range(50))
    assert "3 -> 1 (chunk 0) waits for step 0, 4 -> 1 (chunk 0) to end; 46 more; 50 of 50" in str(error)


def test_a_barrier_in_the_cycle_is_said_and_not_named() -> None:
    plan = Plan()
    a = plan.transfer(1, plan.link(), src=0)
    b = plan.transfer(1, plan.link(), src=1, after=[a])
    barrier = plan.join([b])
    plan.wait(a, Edge(barrier))
    error = stuck(plan)
    assert error.cycle == (0, 1)
    assert "0 -> 1 (chunk 0) waits for step 0, 1 -> 1 (chunk 0) to end, through a barrier; step 0, 1 -> 1" in str(error)
    assert "step 0, 0 -> 1 (chunk 0) to end; 2 of 2" in str(error)


def test_joins_alone() -> None:
    plan = Plan()
    plan.transfer(1, plan.link())
    plan.join([0, -2])
    plan.join([-1])
    error = stuck(plan)
    assert error.cycle == (1, 2)
    assert "2 joins wait for each other: join 0 waits for join 1 to end; join 1 waits for join 0 to end; 0 of 1" in str(
        error
    )


def test_an_edge_on_both_events_waits_for_the_end() -> None:
    plan = Plan()
    plan.transfer(1, plan.link())
    plan.wait(0, Edge(0, issued=True))
    plan.wait(0, Edge(0))
    assert "to end" in str(stuck(plan))
