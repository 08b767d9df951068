import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim.engine.program import NETWORKS, Program, Times
from collsim.engine.reference import run_reference
from collsim.errors import InputError
from tests.programs import B, Edge, Plan, programs, twin

FIFO = ("store_and_forward", "cut_through")
FIELDS = ("ready", "start", "end", "visit_start", "visit_end")


def lists(times: Times) -> dict[str, list[int]]:
    return {field: getattr(times, field).tolist() for field in FIELDS}


def ends(plan: Plan, network: str) -> list[int]:
    return run_reference(plan.program(), network).end.tolist()


# One transfer


@pytest.mark.parametrize("network", NETWORKS)
def test_alone_on_one_hop_all_models_agree(network: str) -> None:
    plan = Plan()
    # overhead 3, then 10 bytes at 1/3 byte/ps: ceil(10 * 10^12 / 333,333,333,333) = 31, latency 5, reduced in 10
    plan.transfer(10, plan.sender(3), plan.link(B // 3, 5), plan.reducer(B))
    times = run_reference(plan.program(), network)
    assert times.ready.tolist() == [0]
    assert times.start.tolist() == [0]
    assert times.end.tolist() == [3 + 31 + 5 + 10]
    assert times.makespan == 49


@settings(deadline=None)
@given(st.integers(0, 10**9), st.integers(10**3, 10**13), st.integers(0, 10**7), st.integers(0, 10**6), st.booleans())
def test_alone_on_one_hop_all_models_agree_on_any_numbers(
    size: int, bandwidth: int, latency: int, overhead: int, reduces: bool
) -> None:
    plan = Plan()
    stations = [plan.sender(overhead), plan.link(bandwidth, latency)] + [plan.reducer(B)] * reduces
    first = plan.transfer(size, *stations)
    plan.transfer(size, *stations, after=[first])  # the second finds everything free again
    one = overhead + -(-size * 10**12 // bandwidth) + latency + size * reduces
    for network in NETWORKS:
        assert ends(plan, network) == [one, 2 * one]


def test_three_hops_alone() -> None:
    plan = Plan()
    # busy 12, 24, 6; latencies 1, 2, 4
    plan.transfer(12, plan.link(B, 1), plan.link(B // 2, 2), plan.link(2 * B, 4))
    # cut-through: heads at 0, 1, 3; tails leave at 12, max(25, 12 + 1) = 25, max(9, 25 + 2) = 27; ends 27 + 4
    assert lists(run_reference(plan.program(), "cut_through")) == {
        "ready": [0],
        "start": [0],
        "end": [31],
        "visit_start": [0, 1, 3],
        "visit_end": [12, 25, 27],
    }
    # that is the sum of latencies and the longest serialisation
    assert lists(run_reference(plan.program(), "alpha_beta")) == lists(run_reference(plan.program(), "cut_through"))
    # store and forward: 0..12, 13..37, 39..45, ends 45 + 4: the sum of everything
    assert lists(run_reference(plan.program(), "store_and_forward")) == {
        "ready": [0],
        "start": [0],
        "end": [49],
        "visit_start": [0, 13, 39],
        "visit_end": [12, 37, 45],
    }
    # fluid: 7 of latency, then 24 at the slowest link
    assert lists(run_reference(plan.program(), "fluid")) == {
        "ready": [0],
        "start": [0],
        "end": [31],
        "visit_start": [7, 7, 7],
        "visit_end": [31, 31, 31],
    }


@settings(deadline=None)
@given(
    st.integers(0, 1000),
    st.lists(st.tuples(st.integers(1, 10 * B), st.integers(0, 100)), min_size=1, max_size=4),
    st.integers(0, 50),
)
def test_formulas_of_a_lone_route(size: int, route: list[tuple[int, int]], overhead: int) -> None:
    plan = Plan()
    plan.transfer(size, plan.sender(overhead), *[plan.link(*link) for link in route], plan.reducer(B))
    busy = [-(-size * 10**12 // bandwidth) for bandwidth, _ in route]
    fixed = overhead + sum(latency for _, latency in route) + size
    for network in ("alpha_beta", "cut_through", "fluid"):
        assert ends(plan, network) == [fixed + max(busy)]
    assert ends(plan, "store_and_forward") == [fixed + sum(busy)]


@pytest.mark.parametrize("network", NETWORKS)
def test_nothing_on_the_way(network: str) -> None:
    plan = Plan()
    first = plan.transfer(8, plan.link())
    local = plan.transfer(8, after=[first])
    plan.transfer(8, after=[Edge(local, 4, issued=True)])  # without stations: issued when it ends
    reduced = plan.transfer(8, plan.reducer(2 * B), after=[local])
    plan.transfer(8, after=[Edge(reduced, issued=True)])
    times = run_reference(plan.program(), network)
    assert times.ready.tolist() == times.start.tolist() == [0, 8, 12, 8, 12]
    assert times.end.tolist() == [8, 8, 12, 12, 12]


@pytest.mark.parametrize("network", NETWORKS)
def test_empty_program(network: str) -> None:
    times = run_reference(Plan().program(), network)
    assert [column.dtype for column in vars(times).values()] == [np.int64] * 5
    assert times.makespan == 0


@pytest.mark.parametrize("network", NETWORKS)
def test_zero_bytes_cost_overhead_and_latency_and_queue_for_the_sender(network: str) -> None:
    plan = Plan()
    sender, link = plan.sender(5), plan.link(B, 7)
    plan.transfer(0, sender, link)
    plan.transfer(0, sender, link)
    assert ends(plan, network) == ([12, 12] if network == "alpha_beta" else [12, 17])


# Sharing


@pytest.mark.parametrize("network", FIFO)
def test_a_link_serves_by_number_at_a_tie(network: str) -> None:
    plan = Plan()
    link = plan.link(B, 3)
    for size in (10, 4, 6):
        plan.transfer(size, link)
    # 0..10, 10..14, 14..20, each 3 later at the other end
    assert lists(run_reference(plan.program(), network)) == {
        "ready": [0, 0, 0],
        "start": [0, 10, 14],
        "end": [13, 17, 23],
        "visit_start": [0, 10, 14],
        "visit_end": [10, 14, 20],
    }


@pytest.mark.parametrize("network", FIFO)
def test_a_link_serves_by_arrival_before_number(network: str) -> None:
    plan = Plan()
    link, other = plan.link(), plan.link(B, 1)
    plan.transfer(10, other, link)  # arrives at `link` at 1 (its head) or at 11
    plan.transfer(5, link)
    # cut-through: head waits from 1 to 5, 5..15, tail from the first link is there at 11
    # store and forward: there at 11, 11..21
    assert ends(plan, network) == ([15, 5] if network == "cut_through" else [21, 5])


def test_a_waiting_head_holds_nothing_and_a_slow_sender_does_not_hold_a_fast_link() -> None:
    plan = Plan()
    slow, fast, busy = plan.link(B // 2), plan.link(2 * B), plan.link()
    plan.transfer(30, busy)  # holds `busy` until 30
    plan.transfer(20, slow, fast, busy)  # 0..40, 0..10 (tail 40), waits until 30, 30..50 (tail at least 40)
    plan.transfer(20, fast)  # 10..20, although the tail of the one before leaves at 40
    times = run_reference(plan.program(), "cut_through")
    assert times.visit_start.tolist() == [0, 0, 0, 30, 10]
    assert times.visit_end.tolist() == [30, 40, 40, 50, 20]
    assert times.end.tolist() == [30, 50, 20]


def trunk(parallel: bool) -> Plan:
    """Eight slow links into one link of eight times the rate (or eight of them) into eight slow links."""
    plan = Plan()
    trunks = [plan.link() for _ in range(8)] if parallel else [plan.link(8 * B)] * 8
    for middle in trunks:
        plan.transfer(800, plan.link(), middle, plan.link())
    return plan


def test_trunk() -> None:
    # message i: head on the trunk at 100 i, so on its last link at 100 i: 100 i + 800
    assert ends(trunk(parallel=False), "cut_through") == [800 + 100 * i for i in range(8)]
    # all in flight at 1/8 of the trunk, which is all that their own links can take
    assert ends(trunk(parallel=False), "fluid") == [800] * 8
    for network in ("cut_through", "fluid"):
        assert ends(trunk(parallel=True), network) == [800] * 8
    # one after the other: 800 + 100 (i + 1) + 800; with parallel links 3 * 800
    assert ends(trunk(parallel=False), "store_and_forward") == [1700 + 100 * i for i in range(8)]
    assert ends(trunk(parallel=True), "store_and_forward") == [2400] * 8


@pytest.mark.parametrize("network", FIFO)
def test_a_sender_serialises_and_is_free_before_its_links(network: str) -> None:
    plan = Plan()
    sender = plan.sender(4)
    for size in (10, 10, 1):
        plan.transfer(size, sender, plan.link(B, 2))
    # overheads 0..4, 4..8, 8..12, then each its own link: + size + 2
    times = run_reference(plan.program(), network)
    assert times.start.tolist() == [0, 4, 8]
    assert times.end.tolist() == [16, 20, 15]
    assert ends(plan, "alpha_beta") == [16, 16, 7]
    assert ends(plan, "fluid") == [16, 20, 15]


@pytest.mark.parametrize("network", NETWORKS)
def test_a_reducer_queues_and_takes_whole_messages(network: str) -> None:
    plan = Plan()
    reducer = plan.reducer(B // 2)
    plan.transfer(10, plan.link(B, 1), reducer)  # there at 11
    plan.transfer(6, plan.link(B, 1), reducer)  # there at 7, reduced 7..19
    plan.transfer(2, plan.link(B, 1), plan.link(B, 8), reducer)  # there at 11: 2 + 9, and 2 more if stored
    reduced = {
        # 7..19; then at 11 both wait and the lower number goes first: 19..39, 39..43
        "cut_through": [39, 19, 43],
        "fluid": [39, 19, 43],
        "store_and_forward": [39, 19, 43],  # the third is there at 13, still the last
        "alpha_beta": [31, 19, 15],  # nobody waits: 11 + 20, 7 + 12, 11 + 4
    }
    assert ends(plan, network) == reduced[network]


@pytest.mark.parametrize("network", FIFO)
def test_a_copy_engine_is_shared_by_its_channel(network: str) -> None:
    plan = Plan()
    engine = plan.copy_engine(B // 2)
    plan.transfer(10, engine, plan.link(B, 3))
    plan.transfer(10, engine, plan.link(B, 3))
    # the engine 0..20, 20..40; cut-through: tails leave the links with the engine's, + 3; stored: 10 more on the link
    assert ends(plan, network) == ([23, 43] if network == "cut_through" else [33, 53])
    assert ends(plan, "alpha_beta") == [23, 23]
    assert ends(plan, "fluid") == [43, 43]  # half of the engine each


# Edges


@pytest.mark.parametrize("network", FIFO)
def test_issued_edges_and_lags(network: str) -> None:
    plan = Plan()
    first = plan.transfer(10, plan.link(B, 100))
    plan.transfer(1, plan.link(), after=[Edge(first, issued=True)])  # the link is free at 10
    plan.transfer(1, plan.link(), after=[Edge(first, 7, issued=True)])  # 17
    plan.transfer(1, plan.link(), after=[Edge(first, 7)])  # 110 + 7
    paced = plan.transfer(10, plan.sender(3), plan.link(B, 100))
    plan.transfer(1, plan.link(), after=[Edge(paced, issued=True)])  # the sender is free at 3
    plan.transfer(1, plan.link(), after=[Edge(paced, issued=True), Edge(first, 2, issued=True)])  # the later: 12
    times = run_reference(plan.program(), network)
    assert times.ready.tolist() == [0, 10, 17, 117, 0, 3, 12]
    assert times.end.tolist() == [110, 11, 18, 118, 113, 4, 13]


@pytest.mark.parametrize("network", FIFO)
def test_issue_waits_for_a_queue(network: str) -> None:
    plan = Plan()
    link = plan.link(B, 100)
    plan.transfer(10, link)
    second = plan.transfer(5, link)
    plan.transfer(1, plan.link(), after=[Edge(second, issued=True)])
    assert run_reference(plan.program(), network).ready.tolist() == [0, 0, 15]
    assert run_reference(plan.program(), "alpha_beta").ready.tolist() == [0, 0, 5]


@pytest.mark.parametrize("network", NETWORKS)
def test_joins_take_the_latest_of_their_predecessors_and_no_time(network: str) -> None:
    plan = Plan()
    a = plan.transfer(10, plan.link())
    b = plan.transfer(4, plan.link(B, 1))
    barrier = plan.join([a, Edge(b, 2)])
    after = plan.join([Edge(barrier, 5, issued=True)])
    plan.transfer(1, plan.link(), after=[barrier])
    plan.transfer(1, plan.link(), after=[after])
    times = run_reference(plan.program(), network)
    assert times.ready.tolist() == [0, 0, 10, 15]
    assert len(times.end) == 4


def test_the_predecessor_handled_last_need_not_end_last() -> None:
    plan = Plan()
    early = plan.transfer(50, plan.link())  # handled at 0, ends at 50
    gate = plan.transfer(5, plan.link())
    late = plan.transfer(1, plan.link(), after=[gate])  # handled at 5, ends at 6
    plan.transfer(1, plan.link(), after=[early, late])
    assert run_reference(plan.program(), "cut_through").ready.tolist() == [0, 0, 5, 50]


def test_edges_against_the_numbering() -> None:
    plan = Plan()
    link = plan.link()
    plan.transfer(10, link)
    plan.transfer(4, link)
    plan.wait(0, Edge(1, 1))
    assert run_reference(plan.program(), "cut_through").start.tolist() == [5, 0]


def test_exact_record_of_ring_all_reduce_on_three_ranks() -> None:
    # Chunks of 4 bytes; links 0 -> 1, 1 -> 2, 2 -> 0 of 1 byte/ps and latency 2; adding takes 1 ps a byte. In step s
    # rank r sends what it got in step s - 1; two steps add, two copy: 4 + 2 + 4 = 10, twice, then 6, twice.
    plan = Plan()
    links, reducers = [plan.link(B, 2) for _ in range(3)], [plan.reducer(B) for _ in range(3)]
    for step in range(4):
        for src in range(3):
            dst = (src + 1) % 3
            got = [3 * (step - 1) + (src - 1) % 3] if step else []
            route = [links[src], reducers[dst]] if step < 2 else [links[src]]
            plan.transfer(4, *route, after=got, step=step, src=src, dst=dst, chunk=(src - step) % 3)
    for network in NETWORKS:
        times = run_reference(plan.program(), network)
        assert times.ready.tolist() == [0] * 3 + [10] * 3 + [20] * 3 + [26] * 3
        assert times.start.tolist() == times.ready.tolist()
        assert times.end.tolist() == [10] * 3 + [20] * 3 + [26] * 3 + [32] * 3


# Properties


@settings(deadline=None, max_examples=200)
@given(programs())
def test_twin_has_the_same_integers(program: Program) -> None:
    for network in FIFO:
        assert lists(run_reference(program, network)) == twin(program, network)


@settings(deadline=None, max_examples=200)
@given(programs())
def test_alpha_beta_is_a_lower_bound_of_every_transfer(program: Program) -> None:
    least = run_reference(program, "alpha_beta")
    for network in ("store_and_forward", "cut_through", "fluid"):
        times = run_reference(program, network)
        assert np.all(least.ready <= times.ready)
        assert np.all(least.end <= times.end)


@settings(deadline=None, max_examples=50)
@given(programs())
def test_runs_are_equal(program: Program) -> None:
    for network in NETWORKS:
        assert lists(run_reference(program, network)) == lists(run_reference(program, network))


@settings(deadline=None, max_examples=100)
@given(programs())
def test_records_are_consistent(program: Program) -> None:
    for network in NETWORKS:
        times = run_reference(program, network)
        assert np.all(times.ready <= times.start)
        assert np.all(times.start <= times.end)
        assert np.all(times.visit_start <= times.visit_end)
        if network != "fluid":
            assert np.all(times.visit_end - times.visit_start >= program.visit_busy)
        if network in FIFO:  # no two hold a station at once
            for station in set(program.visit_station.tolist()):
                here = np.flatnonzero(program.visit_station == station)
                here = here[np.lexsort((program.visit_busy[here], times.visit_start[here]))]
                assert np.all(np.diff(times.visit_start[here]) >= program.visit_busy[here][:-1])


# Bad input


def test_unknown_network_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"network: .*cut_through.*got 'cut-through'; did you mean 'cut_through'\?"):
        run_reference(Plan().program(), "cut-through")


@pytest.mark.parametrize("network", NETWORKS)
def test_times_beyond_64_bits_are_refused(network: str) -> None:
    plan = Plan()
    link = plan.link(1, 2**62)  # a byte takes a second
    plan.transfer(2**62 // 10**12, link)
    plan.transfer(1, plan.link(), after=[0])
    assert 2**62 < run_reference(plan.program(), network).makespan < 2**63
    plan.transfer(1, link, after=[1])
    with pytest.raises(InputError, match=r"at most 2\*\*63 - 1 ps \(106 days\), got \d+ ps; use a smaller size"):
        run_reference(plan.program(), network)
