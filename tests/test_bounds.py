"""Lower bounds: worked examples, what they count, and that no simulated time is below them."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import collsim
import collsim.topology as machines
from collsim.collective import OPERATIONS, Collective
from collsim.errors import AlgorithmError, InputError, TopologyError
from collsim.theory import bounds, lower_bound
from collsim.theory.cuts import least_time

G = 10**9
SIZE = 4 * 10**6


def two_islands():
    """Section 6: a, b on w1 and c, d on w2 with 10 units each, and one unit from every GPU to w0."""
    builder = machines.TopologyBuilder("islands")
    for switch in ("w0", "w1", "w2"):
        builder.add_node(switch, "switch")
    for gpu, switch in (("a", "w1"), ("b", "w1"), ("c", "w2"), ("d", "w2")):
        builder.add_node(gpu, "gpu")
        builder.add_duplex(gpu, switch, 10 * G, 0)
        builder.add_duplex(gpu, "w0", G, 0)
    return builder.build()


@pytest.mark.parametrize(
    ("topology", "ratio"),
    [
        (two_islands(), 1),
        (machines.bidirectional_ring(4, bandwidth="1GB/s", latency=0), 3 / 2),
        (machines.ring(4, bandwidth="1GB/s", latency=0), 3),
        (machines.fully_connected(4, bandwidth="1GB/s", latency=0), 1),
    ],
)
@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter"])
def test_worked_ratios_of_section_6(topology, ratio, operation):
    bound = lower_bound(Collective(operation, 4), SIZE, topology)
    assert bound.cut == pytest.approx(ratio * SIZE / 4 / G, rel=1e-12)
    assert bound == bound.cut
    assert bound.reason.startswith("cut: ")


def test_the_worst_cut_is_the_island_not_the_gpu():
    bound = lower_bound(Collective("all_gather", 4), SIZE, two_islands())
    assert bound.injection == pytest.approx(3 / 11 * SIZE / 4 / G, rel=1e-12)
    assert bound.reason in (
        "cut: out of a and b: gpu -> switch, 2 x 1GB/s to the 2 GPUs outside (by maximum flow)",
        "cut: out of c and d: gpu -> switch, 2 x 1GB/s to the 2 GPUs outside (by maximum flow)",
    )
    cut = bound.binding
    assert sorted(cut.inside.tolist()) == [False, False, True, True]
    assert cut.volume == SIZE // 2
    assert [topology_link(cut.topology, link) for link in cut.links] in (
        [("a", "w0"), ("b", "w0")],
        [("c", "w0"), ("d", "w0")],
    )
    assert bound.method == "by maximum flow"
    assert bound.rate == pytest.approx(4 * G, rel=1e-12)


def topology_link(topology, link):
    return tuple(topology.nodes[end[link]] for end in (topology.link_src, topology.link_dst))


def test_each_operation_on_a_switch():
    """Port of 1 GB/s, 2 us from rank to rank: what one rank must send or receive, after or before that latency."""
    topology = machines.switch(8, bandwidth="1GB/s", latency="1us")
    port = SIZE / G
    volume = {
        "all_reduce": 14 / 8, "reduce_scatter": 7 / 8, "all_gather": 7 / 8, "broadcast": 1, "reduce": 1,
        "all_to_all": 7 / 8, "gather": 7 / 8, "scatter": 7 / 8, "send_recv": 1,
    }  # fmt: skip
    for operation in OPERATIONS:
        bound = lower_bound(Collective(operation, 8), 0 if operation == "barrier" else SIZE, topology)
        assert bound.latency == pytest.approx(2e-6, rel=1e-12)
        if operation == "barrier":
            assert bound == bound.latency
        else:
            assert bound == pytest.approx(2e-6 + volume[operation] * port, rel=1e-12), operation


def test_all_reduce_counts_both_ways_and_all_ranks():
    topology = machines.ring(8, bandwidth="1GB/s", latency="1us")
    bound = lower_bound(Collective("all_reduce", 8), SIZE, topology)
    assert bound.injection == pytest.approx(1e-6 + 14 / 8 * SIZE / G, rel=1e-12)
    assert bound.cut == pytest.approx(1e-6 + SIZE / G, rel=1e-12)
    assert bound.reason == "injection: all 8 ranks together at 8GB/s"
    # twice the bound of an all_gather is no bound: on a mesh the corners make it too high
    mesh = machines.mesh((4, 4), bandwidth="1GB/s", latency=0)
    gather = lower_bound(Collective("all_gather", 16), 16 * SIZE, mesh)
    both = lower_bound(Collective("all_reduce", 16), 16 * SIZE, mesh)
    assert both == pytest.approx(30 * 16 * SIZE / (48 * G), rel=1e-12)
    assert both < 2 * gather


def test_an_all_reduce_on_a_mesh_may_be_faster_than_two_halves():
    """48 links of 50 GB/s carry 30 times the size: 80 GB/s, where twice the bound of an all_gather would say 53."""
    mesh = machines.mesh((4, 4), bandwidth="50GB/s", latency="1us")
    rates = {op: lower_bound(Collective(op, 16), 2**30, mesh).rate / G for op in ("all_gather", "all_reduce")}
    assert rates["all_gather"] == pytest.approx(16 / 15 * 100, rel=1e-12)
    assert rates["all_reduce"] == pytest.approx(80, rel=1e-12)
    assert lower_bound(Collective("all_reduce", 16), 2**30, mesh).method == "best of 16 partitions that were tried"


def test_the_rate_is_what_a_large_size_comes_to():
    for topology in (two_islands(), machines.mesh((3, 3)), machines.rail_optimized(2, 4), machines.ring(5)):
        for operation in OPERATIONS:
            if operation == "barrier":
                continue
            bound = lower_bound(Collective(operation, topology.n_ranks), topology.n_ranks * 10**14, topology)
            assert bound.rate == pytest.approx(topology.n_ranks * 10**14 / bound, rel=1e-6), operation


def test_where_only_latency_counts_there_is_no_rate_and_no_cut():
    topology = machines.ring(4)
    for bound in (
        lower_bound(Collective("barrier", 4), 0, topology),
        lower_bound(Collective("all_gather", 4), 0, topology),
        lower_bound(Collective("all_gather", 4), 4000, topology, network="alpha_beta"),
    ):
        assert (bound.rate, bound.binding) == (float("inf"), None)
    small = lower_bound(Collective("all_gather", 4), 4, topology)
    assert small.reason == "latency: gpu0 to gpu3, 3us"
    assert (small.method, small.binding) == ("by shortest paths", None)
    assert small.rate == pytest.approx(4 / 3 * 50 * G)


def test_a_switch_that_reduces_lifts_the_count_of_messages():
    plain, sharp = (machines.switch(8, bandwidth="1GB/s", latency=0, reduces=flag) for flag in (False, True))
    assert lower_bound(Collective("all_reduce", 8), SIZE, plain) == pytest.approx(14 / 8 * SIZE / G, rel=1e-12)
    assert lower_bound(Collective("all_reduce", 8), SIZE, sharp) == pytest.approx(SIZE / G, rel=1e-12)


def test_reductions_take_time():
    topology = machines.switch(8, bandwidth="1GB/s", latency="1us", reduce_bandwidth="100MB/s")
    for operation in ("all_reduce", "reduce_scatter", "reduce"):
        bound = lower_bound(Collective(operation, 8), SIZE, topology)
        assert bound == pytest.approx(2e-6 + 7 * SIZE / (8 * 10**8), rel=1e-12)
        assert bound.reason == "injection: reduction on all 8 ranks together at 800MB/s"
    assert lower_bound(Collective("all_gather", 8), SIZE, topology) < 4e-3


def test_latency_respects_who_has_data():
    topology = machines.line(5, bandwidth="1GB/s", latency="1us")
    gather = Collective("all_gather", 5)
    far = lower_bound(gather, 5, topology)
    assert (round(far.latency * 1e6), far.reason.split(" (")[0]) == (4, "latency: gpu0 to gpu4, 4us")
    assert round(lower_bound(Collective("gather", 5, 2), 1, topology).latency * 1e6) == 2  # only rank 0 has an element
    assert round(lower_bound(Collective("scatter", 5, 4), 2, topology).latency * 1e6) == 4
    assert round(lower_bound(Collective("scatter", 5, 0), 2, topology).latency * 1e6) == 1  # only ranks 0 and 1 get one
    assert round(lower_bound(gather, 4, topology, element_size=4).latency * 1e6) == 4
    assert lower_bound(gather, 3, topology, element_size=4) == 0
    assert lower_bound(gather, 0, topology).reason == "no data has to travel"
    assert lower_bound(Collective("broadcast", 1), SIZE, topology) == 0
    assert lower_bound(Collective("all_to_all", 5), 4, topology) == 0  # blocks are rounded down to no element


def test_send_overhead_is_part_of_the_latency():
    topology = machines.line(3, bandwidth="1GB/s", latency="1us", send_overhead="5us")
    bound = lower_bound(Collective("broadcast", 3), SIZE, topology)
    assert bound.latency == pytest.approx(7e-6, rel=1e-12)
    assert bound == pytest.approx(7e-6 + SIZE / G, rel=1e-12)


def test_latency_is_cut_into_the_bandwidth_term():
    """A broadcast on a line: the last byte needs the latency of all links and the time of one of them."""
    topology = machines.line(6, bandwidth="1GB/s", latency="3us")
    bound = lower_bound(Collective("broadcast", 6), SIZE, topology)
    assert bound == pytest.approx(15e-6 + SIZE / G, rel=1e-12)
    slices = collsim.simulate(collsim.algorithms.ring_broadcast(6, slices=500), topology, SIZE)
    assert 0.97 < bound / slices.time <= 1


def test_links_with_unequal_starts_fill_up_one_after_the_other():
    assert least_time(0, ((5, 10**12),)) == 5
    assert least_time(1000, ((0, 10**12), (10**6, 10**15))) == 1000  # done before the second can begin
    assert least_time(3000, ((0, 10**12), (1000, 10**12))) == 2000
    assert least_time(1, ((0, 3 * 10**12),)) == 0  # rounded down


def test_alpha_beta_shares_no_links():
    topology = machines.ring(8, bandwidth="1GB/s", latency="1us")
    bound = lower_bound(Collective("all_gather", 8), SIZE, topology, network="alpha_beta")
    assert (bound, bound.injection, bound.cut) == (bound.latency, 0, 0)
    assert bound == pytest.approx(7e-6, rel=1e-12)


def test_uneven_blocks_are_exact():
    topology = machines.switch(4, bandwidth="1GB/s", latency=0)
    gather = Collective("all_gather", 4)
    # 6 bytes in blocks of 2, 2, 1, 1: ranks 2 and 3 receive 5
    assert lower_bound(gather, 6, topology) == pytest.approx(5e-9, rel=1e-12)
    assert lower_bound(gather, 6, topology, blocks=[0, 6, 0, 0]) == pytest.approx(6e-9, rel=1e-12)
    assert lower_bound(gather, 6, topology, element_size=4) == pytest.approx(4e-9, rel=1e-12)
    with pytest.raises(InputError, match=r"blocks: expected one a rank \(4\), got 3"):
        lower_bound(gather, 6, topology, blocks=[1, 2, 3])


def test_bad_input_is_refused():
    topology = machines.ring(4)
    with pytest.raises(InputError, match="size: expected at least 0 bytes, got -1"):
        lower_bound(Collective("all_gather", 4), -1, topology)
    with pytest.raises(InputError, match="has 4, got 5"):
        lower_bound(Collective("all_gather", 5), 1, topology)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_path_is_an_error_that_names_both_ends(operation):
    builder = machines.TopologyBuilder("parted")
    for name in "abcd":
        builder.add_node(name, "gpu")
    builder.add_duplex("a", "b", G, 1)
    builder.add_duplex("c", "d", G, 1)
    with pytest.raises(TopologyError, match=rf"no path from [a-d] to [a-d], so no {operation}"):
        lower_bound(Collective(operation, 4), 100, builder.build())


def test_modules_are_named_and_links_counted():
    topology = machines.rail_optimized(4, 8, nic_bandwidth="400Gbps")
    bound = lower_bound(Collective("all_to_all", 32), 2**30, topology)
    assert bound.reason.startswith("cut: out of node[0]: nic -> leaf, 8 x 50GB/s to the 24 GPUs outside (best of ")


def test_the_binding_links_of_a_rank_alone_are_told():
    """With little data it is the latency to the farthest rank that counts, so its own links bind."""
    bound = lower_bound(Collective("broadcast", 4), 10**6, machines.line(4, bandwidth="1GB/s", latency="3us"))
    assert bound.reason == "injection: into gpu3 at 1GB/s"
    assert bound.binding.inside.tolist() == [True, True, True, False]
    assert bound.binding.volume == 10**6
    assert [topology_link(bound.binding.topology, link) for link in bound.binding.links] == [("gpu2", "gpu3")]


def test_many_sizes_cost_one_search(monkeypatch):
    topology = machines.torus((3, 3))
    first = lower_bound(Collective("all_gather", 9), 9 * 2**20, topology)
    monkeypatch.setattr("collsim.theory.limits._search", None)
    second = lower_bound(Collective("all_gather", 9), 9 * 2**20, topology)
    assert (second, second.reason) == (first, first.reason)
    assert lower_bound(Collective("all_gather", 9), 9 * 2**21, topology) > first
    with pytest.raises(TypeError):
        lower_bound(Collective("all_reduce", 9), 2**20, topology)


def fitted_algorithms():
    """Algorithms that take links or switches from the machine, as (operation, name)."""
    return [
        (operation, name)
        for operation, names in collsim.algorithms.available().items()
        for name in names
        if {"wires", "switch", "switches", "tree", "head_trees"}
        & set(inspect.signature(collsim.algorithms.find(operation, name)).parameters)
    ]


@st.composite
def random_machines(draw, helpers=False):
    """Small machines with uneven links, switches, overheads and nodes that do not forward."""
    ranks = draw(st.integers(2, 6))
    builder = machines.TopologyBuilder("random")
    names = [f"gpu{r}" for r in range(ranks)]
    switched = draw(st.booleans())
    forwards = True if not switched else draw(st.booleans())
    devices = {
        "send_overhead": draw(st.sampled_from([0, 0, 500_000])),
        "reduce_bandwidth": draw(st.sampled_from([0, 0, 3 * G, 90 * G])),
        "forwards": forwards,
    }
    for name in names:
        builder.add_node(name, "gpu", **devices)
    rate, latency = st.integers(1, 60), st.integers(0, 3)

    def link(src, dst):
        builder.add_link(src, dst, draw(rate) * G, draw(latency) * 500_000)

    if switched:
        both = draw(st.sampled_from([(True, True), (True, True), (True, False), (False, True)])) if helpers else ()
        builder.add_node("sw", "switch", **dict(zip(("reduces", "multicasts"), both, strict=False)))
        for name in names:
            link(name, "sw")
            link("sw", name)
    else:
        for r in range(ranks):
            link(names[r], names[(r + 1) % ranks])
    ends = st.tuples(st.sampled_from(names), st.sampled_from(names)).filter(lambda pair: pair[0] != pair[1])
    for src, dst in draw(st.lists(ends, max_size=5)):
        link(src, dst)
    return builder.build()


def block_bytes(schedule, size):
    """What a rank's block holds, as the chunks of the schedule are cut."""
    if not schedule.collective.is_blocked:
        return None
    chunks = schedule.collective.chunk_elements(size, schedule.chunks)
    return np.asarray(chunks).reshape(schedule.ranks, -1).sum(axis=1)


@settings(max_examples=150, deadline=None)
@given(
    topology=random_machines(),
    data=st.data(),
    size=st.one_of(st.integers(0, 40), st.integers(10**5, 10**7)),
    network=st.sampled_from(["store_and_forward", "cut_through", "fluid", "alpha_beta"]),
    synchronous=st.booleans(),
)
def test_no_simulated_time_beats_the_bound(topology, data, size, network, synchronous):
    table = [(op, name) for op, names in collsim.algorithms.available().items() for name in names]
    operation, name = data.draw(st.sampled_from(table))
    taken = inspect.signature(collsim.algorithms.find(operation, name)).parameters
    options = {key: data.draw(st.integers(1, 4)) for key in ("channels", "slices", "k") if key in taken}
    if "order" in taken:
        options["order"] = data.draw(st.permutations(range(topology.n_ranks)))
    root = data.draw(st.integers(0, topology.n_ranks - 1)) if "root" in taken else 0
    try:
        schedule = collsim.algorithms.build(operation, name, topology.n_ranks, root, **options)
    except AlgorithmError:  # an algorithm may refuse a number of ranks
        reject()
    if schedule.places:  # see the test below
        reject()
    result = collsim.simulate(schedule, topology, size, network=network, synchronous=synchronous, check=False)
    bound = lower_bound(schedule.collective, size, topology, network=network, blocks=block_bytes(schedule, size))
    assert bound <= result.time


@settings(max_examples=60, deadline=None)
@given(
    topology=random_machines(helpers=True),
    data=st.data(),
    size=st.one_of(st.integers(0, 40), st.integers(10**5, 10**7)),
    network=st.sampled_from(["store_and_forward", "cut_through", "fluid"]),
)
def test_no_algorithm_that_fits_the_machine_beats_the_bound(topology, data, size, network):
    """Algorithms that take links, nodes or switches from the machine; switches may reduce, multicast, or both."""
    operation, name = data.draw(st.sampled_from(fitted_algorithms()))
    taken = inspect.signature(collsim.algorithms.find(operation, name)).parameters
    root = data.draw(st.integers(0, topology.n_ranks - 1)) if "root" in taken else 0
    few = {"slices": data.draw(st.integers(1, 20))} | ({"trees": 2} if name == "forest" else {})
    try:
        result = collsim.run(operation, topology, size, name, root=root, network=network, check=False, **few)
    except (AlgorithmError, TopologyError):  # no such switch
        reject()
    assert result.bound <= result.time
    if not result.schedule.places:
        assert result.bound.without_switches <= result.time


@pytest.mark.parametrize(("operation", "name"), fitted_algorithms())
def test_no_algorithm_on_a_cluster_whose_switches_take_part_beats_the_bound(operation, name):
    builder = machines.TopologyBuilder("cluster")
    builder.add_node("top", "switch", reduces=True, multicasts=True)
    for node in range(2):
        builder.add_node(f"node[{node}].sw", "switch", reduces=True, multicasts=True)
        for gpu in range(3):
            builder.add_node(f"node[{node}].gpu[{gpu}]", "gpu")
            builder.add_node(f"node[{node}].nic[{gpu}]", "nic")
            builder.add_duplex(f"node[{node}].gpu[{gpu}]", f"node[{node}].sw", (5 + gpu) * G, 10**5, kind="nvlink")
            builder.add_duplex(f"node[{node}].gpu[{gpu}]", f"node[{node}].nic[{gpu}]", 4 * G, 10**5)
            builder.add_duplex(f"node[{node}].nic[{gpu}]", "top", (1 + node) * G, 10**6)
    topology = builder.build()
    for size, network in (
        (60, "cut_through"),
        (6 * 10**6, "cut_through"),
        (10**6, "fluid"),
        (10**6, "store_and_forward"),
    ):
        if name == "nvls":
            with pytest.raises(AlgorithmError, match="no switch that joins all ranks"):
                collsim.run(operation, topology, size, name)
            continue
        few = {"trees": 2} if name == "forest" else {}
        result = collsim.run(operation, topology, size, name, network=network, check=False, **few)
        assert result.bound <= result.time
        if not result.schedule.places:
            assert result.bound.without_switches <= result.time


def test_sizes_of_numpy_do_not_wrap_round():
    topology = machines.switch(4, bandwidth="1GB/s", latency="1us")
    for operation in OPERATIONS:
        collective = Collective(operation, 4)
        plain = lower_bound(collective, 100_000_000, topology)
        assert lower_bound(collective, np.int32(100_000_000), topology) == plain
        assert lower_bound(Collective(operation, np.int8(4)), np.int64(10**8), topology) == plain
        if operation != "barrier":
            largest = lower_bound(collective, 2**63 - 1, topology)
            assert largest == pytest.approx(lower_bound(collective, 2**53, topology) * 2**10, rel=1e-9)
    gather = Collective("all_gather", 4)
    sixes = lower_bound(gather, 6, topology, blocks=np.array([0, 6, 0, 0], dtype=np.int8))
    assert sixes == lower_bound(gather, 6, topology, blocks=[0, 6, 0, 0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 2**70}, r"size: expected less than 2\*\*63 bytes"),
        ({"size": 1.5}, "size: expected a whole number of bytes, got 1.5"),
        ({"element_size": 0}, "element_size: expected at least 1 bytes, got 0"),
        ({"blocks": [1, -1, 0, 0]}, "blocks: expected at least 0 bytes, got -1"),
    ],
)
def test_numbers_that_are_no_bytes_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        lower_bound(Collective("all_gather", 4), topology=machines.ring(4), **{"size": 4, **changes})


@settings(max_examples=60, deadline=None)
@given(
    topology=random_machines(),
    operation=st.sampled_from(OPERATIONS),
    sizes=st.lists(st.integers(0, 10**7), min_size=2, max_size=6),
)
def test_bounds_grow_with_the_size(topology, operation, sizes):
    collective = Collective(operation, topology.n_ranks)
    times = [lower_bound(collective, size, topology) for size in sorted(sizes)]
    assert times == sorted(times)
    for bound in times:
        assert bound == max(bound.latency, bound.injection, bound.cut) >= 0


def test_the_bound_is_reached():
    """Where an algorithm is the best there is, the bound is its time; so no term is left out."""
    for algorithm, topology, share in (
        ("ring", machines.ring(8, bandwidth="50GB/s", latency=0), 1.0),
        ("bidirectional_ring", machines.bidirectional_ring(8, bandwidth="50GB/s", latency=0), 1.0),
        ("ring", machines.switch(8, bandwidth="450GB/s", latency=0), 1.0),
    ):
        for operation in ("all_gather", "reduce_scatter", "all_reduce"):
            result = collsim.run(operation, topology, 8 * 2**20, algorithm=algorithm)
            assert result.bound / result.time == pytest.approx(share, rel=1e-6), (algorithm, operation)


@pytest.mark.parametrize("exact", [False, True])
def test_on_few_nodes_no_cut_is_worse_than_the_one_that_is_told(exact):
    """No name and no rate sets {a, c} and {b, d} apart; 7 bytes/s are next to nothing, and x leads nowhere."""
    builder = machines.TopologyBuilder("odd")
    for name in "abcd":
        builder.add_node(name, "gpu")
    builder.add_node("x", "switch", forwards=False)
    for ends in ("ac", "ca", "bd", "db", "bx"):
        builder.add_link(*ends, 9 * G, 0)
    for ends, rate in (("ab", 7), ("cd", G), ("ba", G)):
        builder.add_link(*ends, rate, 0)
    topology = builder.build()
    bound = lower_bound(Collective("all_to_all", 4), 4 * 10**6, topology, exact=exact)
    assert bound.rate == pytest.approx(G, rel=1e-8)
    assert bound.method == ("by a linear program" if exact else "best of 14 cuts that were tried")
    assert "".join(np.array(topology.nodes)[bound.binding.nodes]).strip("x") in ("ac", "bd")


@pytest.mark.parametrize("exact", [False, True])
def test_a_link_of_7_bytes_a_second_hides_no_cut(exact):
    """Out of g0 and g5 there is 1 GB/s, and g0 alone has 2 GB/s: 8 blocks of a sixth of the size go there."""
    builder = machines.TopologyBuilder("odd")
    for name in "012345":
        builder.add_node(name, "gpu")
    for ends, rate in {
        "42": 5, "20": 3, "05": 2, "53": 1, "31": 8, "14": 2, "13": 10, "15": 15, "21": 5, "32": 2, "35": 5, "40": 1,
        "45": 2, "50": 10,
    }.items():  # fmt: skip
        builder.add_link(*ends, rate * G, 0)
    builder.add_link("0", "4", 7, 0)
    topology = builder.build()
    bound = lower_bound(Collective("all_to_all", 6), 10**6, topology, exact=exact)
    assert bound.rate == pytest.approx((G + 7) * 6 / 8, rel=1e-12)
    assert bound.reason.startswith("cut: out of 0 and 5: gpu -> gpu, 1 x 1GB/s + 1 x 7B/s to the 4 GPUs outside")
    assert bound.method == ("by a linear program" if exact else "best of 62 cuts that were tried")


def test_bound_shows_its_value_and_reason():
    calls = []
    bound = bounds.Bound.of(1e-6, 3e-6, 2e-6, lambda: calls.append(1) or "injection: somewhere")
    assert not calls  # words are found when they are asked for, and once
    copy = pickle.loads(pickle.dumps(bound))
    assert (copy, copy.cut, copy.reason) == (3e-6, 2e-6, "injection: somewhere")
    assert bound == 3e-6
    assert repr(bound) == "<Bound 3e-06 s, injection: somewhere>"
    assert calls == [1]
    found = lower_bound(Collective("all_gather", 4), SIZE, machines.ring(4))
    copy = pickle.loads(pickle.dumps(found))
    assert (copy, copy.reason, copy.rate, copy.method) == (found, found.reason, found.rate, found.method)
    assert copy.binding.links.tolist() == found.binding.links.tolist()
