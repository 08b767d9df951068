"""Closed forms against textbook numbers, and their texts against their values."""

from __future__ import annotations

import pickle
import re
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import collsim
from collsim.collective import Collective
from collsim.errors import InputError
from collsim.theory import closed_form, predict

ALPHA, BETA, GAMMA = 3e-6, 2e-11, 1e-11
OPERATIONS = {
    "ring": ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce"),
    "bidirectional_ring": ("all_reduce", "reduce_scatter", "all_gather"),
    "binomial_tree": ("all_reduce", "broadcast", "reduce"),
    "tree": ("all_reduce", "broadcast", "reduce"),
    "double_binary_tree": ("all_reduce", "broadcast", "reduce"),
}
CASES = [(algorithm, op) for algorithm, ops in OPERATIONS.items() for op in ops]


def form(algorithm, op, ranks, size, gamma=0.0, **options):
    return closed_form(algorithm, Collective(op, ranks), size, ALPHA, BETA, gamma, **options)


@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 64])
@pytest.mark.parametrize("synchronous", [False, True])
def test_ring_is_the_textbook_formula(ranks, synchronous):
    m = 1_000_000
    p = form("ring", "all_reduce", ranks, m * ranks, GAMMA, synchronous=synchronous)
    assert p.holds
    assert p.latency == pytest.approx(2 * (ranks - 1) * ALPHA, rel=1e-12)
    assert p.bandwidth == pytest.approx(2 * (ranks - 1) * m * BETA, rel=1e-12)
    assert p.reduction == pytest.approx((ranks - 1) * m * GAMMA, rel=1e-12)
    half = form("ring", "all_gather", ranks, m * ranks, GAMMA, synchronous=synchronous)
    assert half == pytest.approx((ranks - 1) * (ALPHA + m * BETA), rel=1e-12)
    assert half.reduction == 0


def test_bidirectional_ring_takes_half_the_bandwidth_on_two_ports():
    p = form("bidirectional_ring", "all_reduce", 8, 16_000_000, ports="each")
    assert p == pytest.approx(14 * (ALPHA + 1_000_000 * BETA), rel=1e-12)
    assert form("bidirectional_ring", "all_reduce", 8, 16_000_000, ports="one", synchronous=True) == pytest.approx(
        14 * (ALPHA + 2_000_000 * BETA), rel=1e-12
    )


def test_channels_on_one_link_hide_the_latency():
    m = 1_000_000  # 20 us on the wire, 3 us of latency: four pieces keep the link busy
    p = form("ring", "all_gather", 5, 5 * 4 * m, channels=4)
    assert p == pytest.approx(4 * 4 * m * BETA + ALPHA, rel=1e-12)
    small = form("ring", "all_gather", 5, 5 * 4 * 100, channels=4)  # 2 ns on the wire: each piece waits for itself
    assert small == pytest.approx(4 * (ALPHA + 100 * BETA) + 3 * 100 * BETA, rel=1e-12)


def test_chain_of_section_1_has_its_best_number_of_slices_at_28():
    def time(slices):
        return closed_form("ring", Collective("broadcast", 8), 64_000_000, 5e-6, 1e-11, slices=slices, synchronous=True)

    assert min(range(1, 65), key=time) == 28
    assert time(28) == pytest.approx(947.14e-6, rel=1e-5)  # the optimum over real k, 27.71, is 947.13 us
    assert time(28) == pytest.approx((8 - 2 + 28) * (5e-6 + 64e6 / 28 * 1e-11), rel=1e-12)


@pytest.mark.parametrize("slices", [1, 4, 16])
def test_asynchronous_chain_pays_alpha_once_a_hop(slices):
    m = 1_000_000
    p = form("ring", "broadcast", 6, m * slices, slices=slices)
    assert p == pytest.approx(5 * (ALPHA + m * BETA) + (slices - 1) * m * BETA, rel=1e-12)
    assert p.latency == pytest.approx(5 * ALPHA, rel=1e-12)


@pytest.mark.parametrize(("k", "height"), [(2, 1), (2, 3), (3, 2), (4, 3)])
@pytest.mark.parametrize("slices", [1, 5])
def test_perfect_trees(k, height, slices):
    ranks, m = (k ** (height + 1) - 1) // (k - 1), 1_000_000
    p = form("tree", "broadcast", ranks, m * slices, k=k, slices=slices)
    assert p == pytest.approx(height * ALPHA + k * (height + slices - 1) * m * BETA, rel=1e-12)
    one_port = form("tree", "broadcast", ranks, m * slices, k=k, slices=slices, synchronous=True)
    assert one_port == pytest.approx((k * height + k * (slices - 1)) * (ALPHA + m * BETA), rel=1e-12)
    two_ports = form("tree", "broadcast", ranks, m * slices, k=k, slices=slices, ports="each")
    assert two_ports == pytest.approx(height * (ALPHA + m * BETA) + (slices - 1) * m * BETA, rel=1e-12)


@pytest.mark.parametrize("ranks", range(2, 40))
def test_binomial_broadcast_is_the_worst_path_over_virtual_ranks(ranks):
    levels = (ranks - 1).bit_length()
    sent = {}
    for child in range(1, ranks):
        low = child & -child
        parent = child - low
        # sends of the parent to farther children that exist come first
        top = (parent & -parent).bit_length() - 1 if parent else levels
        ahead = sum(1 for bit in range(low.bit_length(), top) if parent + (1 << bit) < ranks)
        sent[child] = sent.get(parent, 0) + ahead + 1
    size = 1_000_000
    worst = max(child.bit_count() * ALPHA + sends * size * BETA for child, sends in sent.items())
    assert form("binomial_tree", "broadcast", ranks, size) == pytest.approx(worst, rel=1e-12)
    if ranks == 1 << levels:
        assert worst == pytest.approx(levels * (ALPHA + size * BETA), rel=1e-12)


def test_binomial_reduce_and_all_reduce_of_a_power_of_two():
    size = 1_000_000
    up = 3 * (ALPHA + size * BETA + size * GAMMA)
    assert form("binomial_tree", "reduce", 8, size, GAMMA) == pytest.approx(up, rel=1e-12)
    both = form("binomial_tree", "all_reduce", 8, size, GAMMA)
    assert both == pytest.approx(up + 3 * (ALPHA + size * BETA), rel=1e-12)


def test_double_binary_tree_is_an_estimate_that_tends_to_the_full_bandwidth():
    size = 2**30
    p = form("double_binary_tree", "broadcast", 16, size, slices=4096)
    assert not p.holds
    assert "estimate" in p.why
    assert p.bandwidth == pytest.approx(size * BETA, rel=1e-2)


@pytest.mark.parametrize(("algorithm", "op"), CASES)
def test_one_rank_and_no_bytes(algorithm, op):
    assert form(algorithm, op, 1, 2**20) == 0
    assert form(algorithm, op, 1, 2**20).holds
    empty = form(algorithm, op, 5, 0, GAMMA)
    assert (empty.bandwidth, empty.reduction) == (0, 0)
    assert empty.latency == empty > 0


def test_sizes_that_cannot_be_cut_are_said_not_to_hold():
    p = form("ring", "all_reduce", 3, 1_000_000)
    assert not p.holds
    assert "1000000 elements cannot be cut into 3 equal chunks" in p.why
    assert p == pytest.approx(4 * (ALPHA + 1_000_000 / 3 * BETA), rel=1e-12)
    assert form("ring", "all_reduce", 3, 6).holds
    assert not form("ring", "all_reduce", 3, 6, element_size=4).holds
    assert form("ring", "all_reduce", 3, 24, element_size=4).holds


def test_unknown_algorithms_and_operations_have_no_formula():
    assert form("ring", "all_to_all", 4, 100) is None
    assert form("binomial_tree", "all_gather", 4, 100) is None
    assert form("nonesuch", "all_reduce", 4, 100) is None
    assert form("nonesuch", "all_reduce", 1, 100) is None


def test_numbers_of_numpy_are_python_s():
    assert form("ring", "all_reduce", 4, np.int32(2**30), channels=np.int8(2)) == form(
        "ring", "all_reduce", 4, 2**30, channels=2
    )
    p = form("binomial_tree", "broadcast", 4, np.int32(7), element_size=np.int8(4))
    assert p.why == "1 elements cannot be cut into 1 equal chunks"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 2**70}, r"size: expected less than 2\*\*63 bytes"),
        ({"size": 1e6}, "size: expected a whole number of bytes, got 1000000.0"),
        ({"element_size": 0}, "element_size: expected at least 1 bytes, got 0"),
        ({"slices": 0}, "slices: expected at least 1, got 0"),
        ({"channels": -1}, "channels: expected at least 1, got -1"),
        ({"k": "two"}, "k: expected a whole number, got 'two'"),
    ],
)
def test_numbers_that_count_nothing_are_refused(changes, message):
    arguments = {"size": 100, "alpha": ALPHA, "beta": BETA, **changes}
    for algorithm, operation in CASES:
        with pytest.raises(InputError, match=message):
            closed_form(algorithm, Collective(operation, 4), **arguments)


@pytest.mark.parametrize(
    ("algorithm", "op", "options", "text"),
    [
        ("binomial_tree", "broadcast", {"ports": "each"}, "2 (alpha + m beta), m = S"),
        ("tree", "reduce", {"ports": "none", "slices": 3}, "2 (alpha + m beta), m = S/slices, slices = 3"),
        ("ring", "broadcast", {"ports": "none", "slices": 3}, "(N-1) (alpha + m beta), m = S/k, k = 3"),
        (
            "double_binary_tree", "broadcast", {"ports": "none", "slices": 3},
            "3 (alpha + m beta), m = S/(2 slices), slices = 3",
        ),
    ],
)  # fmt: skip
def test_texts_leave_out_zeros_and_ones(algorithm, op, options, text):
    assert form(algorithm, op, 4, 600, **options).formula == text


def test_predictions_can_be_sent_to_another_process():
    p = form("ring", "all_reduce", 3, 100)
    copy = pickle.loads(pickle.dumps(p))
    assert (copy, vars(copy)) == (p, vars(p))


def test_bad_costs_are_refused():
    with pytest.raises(InputError, match="at least 0"):
        closed_form("ring", Collective("all_reduce", 4), -1, ALPHA, BETA)
    with pytest.raises(InputError, match="expected one of one, each, none, got 'two'"):
        form("ring", "all_reduce", 4, 100, ports="two")


def value_of(formula: str, size: int, ranks: int, **known: float) -> float:
    """Evaluate the text of a formula, in which products are written side by side."""
    if formula == "0 (one rank)":
        return 0.0
    body, *definitions = re.split(r", (?=[A-Za-z]\w*'? = )", formula)
    names = {"S": size, "N": ranks, "max": max, **known}

    def evaluate(text: str) -> float:
        tokens = re.findall(r"[A-Za-z]\w*'?|[\d.]+|\S", text)
        parts: list[str] = []
        for token in tokens:
            starts = token[0].isalnum() or token == "("
            ends = bool(parts) and (parts[-1][-1].isalnum() or parts[-1][-1] in ")'")
            if starts and ends and parts[-1] != "max":
                parts.append("*")
            parts.append(token)
        return eval("".join(parts).replace("'", "_"), {"__builtins__": {}}, names)

    for definition in sorted(definitions, key=lambda text: "= S" in text):
        name, text = definition.split(" = ")
        if text[0].isdigit():
            names[name.replace("'", "_")] = float(text)
    for definition in reversed(definitions):
        name, text = definition.split(" = ")
        names[name.replace("'", "_")] = evaluate(text)
    return evaluate(body)


@example(
    case=("bidirectional_ring", "all_gather"),
    ranks=3,
    m=1,
    gamma=1e-12,
    overhead=0.0,
    ports="each",
    stores=1.0,
    synchronous=False,
    channels=1,
    slices=1,
    k=1,
)  # only copies: the gap of reducing does not count
@given(
    case=st.sampled_from(CASES),
    ranks=st.integers(2, 40),
    m=st.integers(0, 3_000_000),
    gamma=st.sampled_from([0.0, 1e-12, 1e-10]),
    overhead=st.sampled_from([0.0, 1e-6, 5e-6]),
    ports=st.sampled_from(["one", "each", "none"]),
    stores=st.sampled_from([1.0, 2.0]),
    synchronous=st.booleans(),
    channels=st.integers(1, 3),
    slices=st.integers(1, 4),
    k=st.integers(1, 4),
)
def test_terms_and_text_give_the_value(
    case, ranks, m, gamma, overhead, ports, stores, synchronous, channels, slices, k
):
    size, alpha = m * ranks * channels * slices * 2, overhead + 1e-6
    p = closed_form(
        case[0], Collective(case[1], ranks), size, alpha, BETA, gamma, synchronous=synchronous, overhead=overhead,
        ports=ports, stores=stores, channels=channels, slices=slices, k=k,
    )  # fmt: skip
    assert p.latency + p.bandwidth + p.reduction == pytest.approx(p, rel=1e-12)
    known = {"alpha": alpha, "beta": BETA, "gamma": gamma, "overhead": overhead, "slices": slices}
    assert not re.search(r"(?<![\w.])0(?![\w.])|(?<![\w.])1 [a-z(]", p.formula), p.formula
    assert value_of(p.formula, size, ranks, **known) == pytest.approx(p, rel=1e-9), p.formula
    assert p.formula.isascii()


RING = [(r, (r + 1) % 4) for r in range(4)]


def pairs(edges):
    return [src for src, _ in edges], [dst for _, dst in edges]


def test_predict_reads_costs_off_the_routes():
    topology = collsim.topology.switch(
        4, bandwidth="1GB/s", latency="1us", send_overhead="500ns", reduce_bandwidth="2GB/s"
    )
    p = predict("ring", Collective("all_reduce", 4), 4000, topology, pairs(RING))
    assert p.holds, p.why
    assert p.latency == pytest.approx(6 * 2.5e-6, rel=1e-12)
    assert p.bandwidth == pytest.approx(6 * 1e-6, rel=1e-12)
    assert p.reduction == pytest.approx(3 * 0.5e-6, rel=1e-12)
    stored = predict("ring", Collective("all_gather", 4), 4000, topology, pairs(RING), network="store_and_forward")
    assert stored == pytest.approx(3 * (2.5e-6 + 2e-6), rel=1e-12)


def test_predict_takes_the_slowest_and_says_so():
    builder = collsim.topology.TopologyBuilder("lame")
    for r in range(4):
        builder.add_node(f"gpu{r}", "gpu")
    for r in range(4):
        builder.add_link(f"gpu{r}", f"gpu{(r + 1) % 4}", 10**9 if r else 10**8, 10**6)
    p = predict("ring", Collective("all_gather", 4), 4000, builder.build(), pairs(RING))
    assert not p.holds
    assert "differ in bandwidth" in p.why
    assert p.bandwidth == pytest.approx(3 * 1e-5, rel=1e-12)


def test_predict_names_a_shared_link():
    topology = collsim.topology.line(4, bandwidth="1GB/s", latency="1us")
    order = [0, 2, 1, 3]
    edges = [(order[i], order[(i + 1) % 4]) for i in range(4)]
    p = predict("ring", Collective("all_gather", 4), 4000, topology, pairs(edges))
    assert not p.holds
    assert re.search(r"link gpu\d->gpu\d is shared by \d pairs that talk", p.why)


def test_predict_knows_one_port_from_many():
    star = [(0, r) for r in (1, 2, 3)]
    size = 3_000_000
    for topology, ways in (("switch", 3), ("fully_connected", 1)):
        machine = getattr(collsim.topology, topology)(4, bandwidth="1GB/s", latency="1us")
        hop = 2e-6 if topology == "switch" else 1e-6
        p = predict("tree", Collective("broadcast", 4), size, machine, pairs(star), parameters={"k": 3, "slices": 1})
        assert p.holds
        assert p == pytest.approx(hop + ways * 3e-3, rel=1e-12)


def test_predict_sees_channels_that_take_links_of_their_own():
    builder = collsim.topology.TopologyBuilder("trunks")
    for r in range(2):
        builder.add_node(f"gpu{r}", "gpu")
    builder.add_duplex("gpu0", "gpu1", 10**9, 10**6, count=2)
    topology, collective = builder.build(), Collective("all_gather", 2)
    ends = list(product([0, 1], [0, 1]))
    columns = [src for src, _ in ends], [1 - src for src, _ in ends], [channel for _, channel in ends]
    p = predict("ring", collective, 8000, topology, columns, parameters={"channels": 2})
    assert not p.holds
    assert "channels of one pair take different links" in p.why
    assert predict("ring", collective, 8000, topology, columns[:2], parameters={"channels": 2}).holds


def test_predict_takes_only_the_parameters_that_it_knows():
    topology, collective = collsim.topology.ring(4), Collective("all_reduce", 4)
    plain = predict("ring", collective, 4000, topology, pairs(RING))
    others = ("size", "alpha", "beta", "gamma", "overhead", "ports", "stores", "synchronous", "element_size")
    odd = dict.fromkeys((*others, "algorithm", "collective", "network"), 7)
    assert predict("ring", collective, 4000, topology, pairs(RING), parameters=odd) == plain
    two = predict("ring", collective, 4000, topology, pairs(RING), parameters={**odd, "channels": np.int64(2)})
    assert two == predict("ring", collective, 4000, topology, pairs(RING), parameters={"channels": 2})
    assert two != plain
    for value in (True, "2", 2.0, None, 0, -1):
        for name in ("channels", "slices", "k"):
            assert predict("ring", collective, 4000, topology, pairs(RING), parameters={name: value}) is None


def test_predict_looks_for_a_form_before_it_looks_at_the_pairs():
    topology = collsim.topology.ring(4)
    assert predict("nonesuch", Collective("all_reduce", 4), 4000, topology, ([0], [8])) is None
    assert predict("ring", Collective("gather", 4), 4000, topology, ([0], [8])) is None


def test_alpha_beta_and_fluid_have_forms_of_their_own():
    topology, m = collsim.topology.line(4, bandwidth="1GB/s", latency="1us"), 1_000_000
    ends, collective = pairs([(0, 1), (1, 2), (2, 3)]), Collective("broadcast", 4)
    free = predict("ring", collective, 4 * m, topology, ends, network="alpha_beta", parameters={"slices": 4})
    assert free.holds
    assert free == pytest.approx(3 * (1e-6 + m * 1e-9), rel=1e-12)
    fluid = predict("ring", collective, 4 * m, topology, ends, network="fluid", parameters={"slices": 4})
    assert not fluid.holds
    assert "fluid" in fluid.why
    assert predict("ring", collective, 4 * m, topology, ends, network="fluid", parameters={"slices": 1}).holds
