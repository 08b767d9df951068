import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim.engine.fluid import max_min, run_fluid
from collsim.engine.reference import run_reference
from tests.programs import B, Edge, Plan


def ends(plan: Plan) -> list[int]:
    return run_fluid(plan.program()).end.tolist()


# Rates


def test_max_min_of_the_worked_example() -> None:
    assert max_min({0: [0], 1: [0, 1], 2: [1]}, [10, 6]) == {0: 7.0, 1: 3.0, 2: 3.0}


def test_max_min_of_nobody() -> None:
    assert max_min({}, [10]) == {}


def test_max_min_counts_a_link_that_is_crossed_twice() -> None:
    assert max_min({0: [0, 0], 1: [0]}, [9]) == {0: 3.0, 1: 3.0}


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True), min_size=1, max_size=8),
    st.lists(st.integers(1, 1000), min_size=5, max_size=5),
)
def test_max_min_gives_each_flow_a_full_link_on_which_nobody_has_more(
    routes: list[list[int]], capacity: list[int]
) -> None:
    capacity = [bandwidth << 40 for bandwidth in capacity]  # in units so small that rounding down is no matter
    rates = max_min(dict(enumerate(routes)), capacity)
    on = [[rates[flow] for flow, links in enumerate(routes) if link in links] for link in range(5)]
    assert all(sum(users) <= capacity[link] * (1 + 1e-9) for link, users in enumerate(on))
    for flow, links in enumerate(routes):  # this is what makes the allocation the max-min fair one
        assert any(
            sum(on[link]) == pytest.approx(capacity[link]) and rates[flow] >= max(on[link]) * (1 - 1e-9)
            for link in links
        )


# Times


def test_worked_example_as_times() -> None:
    plan = Plan()
    wide, narrow = plan.link(10 * B), plan.link(6 * B)
    plan.transfer(70, wide)
    plan.transfer(60, wide, narrow)
    plan.transfer(30, narrow)
    # rates 7, 3, 3: the first and the third end at 10, when the second has 60 - 30 left and goes on at 6: 10 + 5
    assert ends(plan) == [10, 15, 10]


def test_equal_messages_from_one_port_end_together() -> None:
    plan = Plan()
    port = plan.link(B, 5)
    for _ in range(4):
        plan.transfer(100, port, plan.link(B))
    assert ends(plan) == [405] * 4


def test_rates_change_when_a_flow_joins_and_when_one_ends() -> None:
    plan = Plan()
    link = plan.link(2 * B)
    gate = plan.transfer(20, plan.link(B))
    plan.transfer(100, link)  # alone 0..20: 40 bytes; then 1 byte/ps each
    plan.transfer(40, link, after=[gate])  # 20..60
    # at 60 the first has 100 - 40 - 40 = 20 left, at 2 bytes/ps: 70
    assert ends(plan) == [20, 70, 60]


def test_a_flow_that_ends_frees_others_beyond_its_own_links() -> None:
    plan = Plan()
    a, b = plan.link(2 * B), plan.link(4 * B)
    plan.transfer(20, a)  # a: 1 each until 20
    plan.transfer(60, a, b)  # 1 until 20, then 2 until it ends: 20 + 40 / 2 = 40
    plan.transfer(100, b)  # 4 - 1 = 3 until 20 (60 bytes), then 2: 20 + 40 / 2 = 40
    assert ends(plan) == [20, 40, 40]


def test_a_slower_link_of_its_own_is_no_slowing() -> None:
    plan = Plan()
    shared = plan.link(3 * B)
    plan.transfer(7, shared, plan.link(B // 3))  # 7 * 10^12 / 333,333,333,333 = 21.00000000002: exactly the ceil
    plan.transfer(30, shared)  # 3 - 1/3 bytes/ps until 12: ceil(30 / 2.666..) = ceil(11.25)
    assert ends(plan) == [22, 12]


def test_prediction_is_rounded_up_and_float_noise_is_not() -> None:
    plan = Plan()
    link = plan.link(B // 2)
    for size in (1, 1, 1):
        plan.transfer(size, link)  # a sixth of a byte each ps
    assert ends(plan) == [6, 6, 6]
    plan = Plan()
    link = plan.link(3 * 10**11)
    plan.transfer(3000, link)
    plan.transfer(2000, link)
    # 0.15 bytes/ps each: the second ends at ceil(13333.3); then 999.9 bytes at 0.3 take 3333, in floats a bit more
    assert ends(plan) == [13334 + 3333, 13334]


def test_no_flow_beats_its_own_serialisation() -> None:
    plan = Plan()
    shared = plan.link(B - 2)
    for _ in range(3):
        plan.transfer(7, plan.link(B // 3), shared)
    # slowed from 333,333,333,333 bytes/s to 333,333,333,332.67, so the end is predicted: 21.00000000004, which the
    # slack makes 21; but alone each takes ceil(21.00000000002) = 22
    assert ends(plan) == run_reference(plan.program(), "alpha_beta").end.tolist() == [22, 22, 22]


def test_a_flow_holds_its_share_until_its_integer_end() -> None:
    plan = Plan()
    link = plan.link(B)
    plan.transfer(1, link)
    plan.transfer(2, link, after=[plan.join()])
    plan.transfer(2, link, plan.link(B // 4))
    # 3/8, 3/8 and 1/4 byte/ps: the first is through at 2.67 and leaves at 3; then 2 - 9/8 = 7/8 are left at 3/4:
    # 3 + 1.17, so 5 (had it left at 2.67: 2.67 + 1.33 = 4); the third is slowed by nobody: 8
    assert ends(plan) == [3, 5, 8]


def test_latency_passes_before_the_flow() -> None:
    plan = Plan()
    link = plan.link(B)
    plan.transfer(10, link, plan.link(B, 6))  # in flight from 6, alone on `link` at first
    plan.transfer(5, link)  # 0..5: gone before
    times = run_fluid(plan.program())
    assert times.ready.tolist() == times.start.tolist() == [0, 0]
    assert times.end.tolist() == [16, 5]
    assert times.visit_start.tolist() == [6, 6, 0]
    assert times.visit_end.tolist() == [16, 16, 5]


def test_exact_record_with_sender_copy_engine_and_reducer() -> None:
    plan = Plan()
    sender, engine, reducer = plan.sender(3), plan.copy_engine(B), plan.reducer(2 * B)
    for _ in range(2):
        plan.transfer(10, sender, engine, plan.link(B, 4), reducer)
    # overhead 0..3, 3..6; in flight from 7 and from 10; the first has 3 bytes through by 10, then half the engine:
    # 7 more at 1/2 = 14, ends at 24; the second has 7 through by then, 3 left: 27; reduced 24..29 and 29..34
    times = run_fluid(plan.program())
    assert times.ready.tolist() == [0, 0]
    assert times.start.tolist() == [0, 3]
    assert times.end.tolist() == [29, 34]
    assert times.visit_start.tolist() == [0, 7, 7, 24, 3, 10, 10, 29]
    assert times.visit_end.tolist() == [3, 24, 24, 29, 6, 27, 27, 34]


def test_a_flow_is_issued_when_it_ends_and_a_sender_when_it_is_free() -> None:
    plan = Plan()
    link = plan.link(B, 9)
    first = plan.transfer(10, link)  # two flows: 9..29
    second = plan.transfer(10, plan.sender(0), link)
    plan.transfer(1, plan.link(), after=[Edge(first, 2, issued=True)])
    plan.transfer(1, plan.link(), after=[Edge(second, 2, issued=True)])
    times = run_fluid(plan.program())
    assert times.ready.tolist() == [0, 0, 31, 2]
    assert times.end.tolist() == [29, 29, 32, 3]


def test_an_empty_flow_ends_at_once_and_slows_nobody() -> None:
    plan = Plan()
    link = plan.link(B, 2)
    plan.transfer(10, link)
    plan.transfer(0, link)
    plan.transfer(0, link, plan.reducer(B), after=[1])
    times = run_fluid(plan.program())
    assert times.end.tolist() == [12, 2, 4]
    assert times.visit_start.tolist() == [2, 2, 4, 4]
    assert times.visit_end.tolist() == [12, 2, 4, 4]


def test_an_empty_flow_ends_before_the_rates_are_solved() -> None:
    plan = Plan()
    link, sender = plan.link(), plan.sender(4)
    plan.transfer(0, link)
    plan.transfer(0, sender, after=[0])  # ready at 0 as the last one is, and its number is lower
    plan.transfer(0, sender)
    assert ends(plan) == [0, 4, 8]


def test_incast_of_two_hundred() -> None:
    plan = Plan()
    port = plan.link(B)
    gates = [plan.transfer(1 + i, plan.link()) for i in range(200)]
    flows = [plan.transfer(1000, plan.link(), port, after=[gate]) for gate in gates]
    times = run_fluid(plan.program())
    starts, finish = times.visit_start[200::2], times.end[flows]
    assert starts.tolist() == list(range(1, 201))
    # the port is never idle from 1 on, but for the picosecond that each end may be rounded up by, and whoever started
    # first is served as well as anybody
    assert 200_001 <= times.makespan <= 200_001 + len(np.unique(finish))
    assert np.all(np.diff(finish) >= 0)
    assert finish[0] < finish[-1]


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 400),
    st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 3000)), min_size=1, max_size=12),
)
def test_one_link_is_processor_sharing(gigabytes: int, flows: list[tuple[int, int]]) -> None:
    plan = Plan()
    link = plan.link(gigabytes * 10**9)
    order = sorted(range(len(flows)), key=lambda i: flows[i][1])
    for size, _ in flows:
        plan.transfer(size, link)
    for i, (_, arrival) in enumerate(flows):
        plan.wait(i, Edge(-1, arrival))
    plan.join()
    # a clock that counts bytes for everybody: a flow of m bytes that joins at v leaves at v + m
    expected: dict[int, float] = {}
    now, virtual, inside, rate = 0.0, 0.0, {}, gigabytes / 1000
    while order or inside:
        arrival = flows[order[0]][1] if order else float("inf")
        leaving = min(inside, key=inside.__getitem__, default=None)
        leave = now + (inside[leaving] - virtual) * len(inside) / rate if leaving is not None else float("inf")
        then = min(arrival, leave)
        virtual += (then - now) * rate / len(inside) if inside else 0.0
        now = then
        if leave <= arrival:
            expected[leaving] = now
            del inside[leaving]
        else:
            joining = order.pop(0)
            inside[joining] = virtual + flows[joining][0]
    for flow, end in enumerate(ends(plan)):
        # integer ends leave a flow on the link for up to 1 ps after its last byte, which may hold up each of the others
        assert expected[flow] - 1 <= end <= expected[flow] + len(flows)


def test_rates_are_solved_once_an_instant_and_only_for_those_concerned(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = []

    def watched(routes: dict[int, list[int]], capacity: list[int]) -> dict[int, int]:
        solved.append(list(routes))
        return max_min(routes, capacity)

    monkeypatch.setattr("collsim.engine.fluid.max_min", watched)
    plan = Plan()
    one, other = plan.link(), plan.link()
    for size, link in ((9, one), (4, other), (9, one), (3, other), (1, plan.link())):
        plan.transfer(size, link)
    # all start at 0; 4 ends at 1, 3 at 6, 1 at 7 and 0 and 2 at 18
    assert ends(plan) == [18, 7, 18, 6, 1]
    assert solved == [[0, 1, 2, 3, 4], [], [1], [], []]


def test_flows_without_a_shared_link_do_not_touch_each_other() -> None:
    plan = Plan()
    for size in (30, 10, 20):
        plan.transfer(size, plan.link(), plan.link(2 * B))
    assert ends(plan) == [30, 10, 20]
    assert ends(plan) == run_reference(plan.program(), "cut_through").end.tolist()
