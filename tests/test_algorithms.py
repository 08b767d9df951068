"""Every algorithm, for every number of ranks: proven, executed on data, and counted.

What is asked of all algorithms is read from the table and from their signatures, so that a new one is tested without a
line here. What is known of some is asked of those.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from collsim import Schedule, algorithms, check
from collsim.algorithms.double_binary_tree import _tree_edges, double_binary_tree_parents
from collsim.collective import OPERATIONS
from collsim.collective import ROOTED as HAVE_A_ROOT
from collsim.errors import AlgorithmError, ScheduleError
from tests.answers import run_both_ways
from tests.strategies import naive_rows

ALL = [(operation, name) for operation, names in algorithms.available().items() for name in names]
ROOTED = ("broadcast", "reduce")
TREES = ["binomial_tree", "double_binary_tree", "ring", "tree"]
GATHERING = ["bidirectional_ring", "bruck", "circulant", "pat", "ring", "swing"]
ANY_RANKS = {
    "all_reduce": [*GATHERING, "bine", "binomial_tree", "double_binary_tree", "halving_doubling", "one_shot",
                   "recursive_doubling", "tree", "two_shot"],
    "reduce_scatter": [*GATHERING, "direct"],
    "all_gather": [*GATHERING, "direct"],
    "broadcast": [*TREES, "linear", "scatter_all_gather"],
    "reduce": [*TREES, "linear", "reduce_scatter_gather"],
    "scatter": ["binomial_tree", "linear"],
    "gather": ["binomial_tree", "linear"],
    "all_to_all": ["bruck", "direct", "hierarchical", "nccl_p2p", "pairwise"],
    "barrier": ["dissemination", "tree"],
    "send_recv": ["ring"],
}  # fmt: skip
"""These take any number of ranks and elements; others may refuse some."""

COMMON = {"channels": (1, 3), "slices": (1, 4), "k": (1, 2, 3, 5)}
"""Parameters that mean the same wherever they are found, and values to try; others keep their default."""


def parameters_of(operation: str, name: str) -> list[str]:
    return list(inspect.signature(algorithms.find(operation, name)).parameters)


def variants(operation: str, name: str) -> list[dict[str, Any]]:
    """Parameters to try for an algorithm, the defaults first."""
    given = [key for key in parameters_of(operation, name) if key in COMMON]
    more = (dict(zip(given, values, strict=True)) for values in product(*(COMMON[key] for key in given)))
    return [{}, *(parameters for parameters in more if parameters)]


def roots(operation: str, ranks: int) -> list[int]:
    if operation not in HAVE_A_ROOT:
        return [0]
    return list(range(ranks)) if ranks <= 9 else [0, ranks // 2, ranks - 1]


def built_or_refused(operation: str, name: str, ranks: int, root: int = 0, **parameters: Any) -> Schedule | None:
    try:
        return algorithms.build(operation, name, ranks, root, **parameters)
    except AlgorithmError:
        assert name not in ANY_RANKS.get(operation, ())
        return None


@cache
def accepted(operation: str, name: str) -> list[int]:
    """Numbers of ranks that an algorithm takes."""
    return [ranks for ranks in range(1, 34) if built_or_refused(operation, name, ranks) is not None]


def built(operation: str, name: str, ranks: int) -> Iterator[Schedule]:
    """All variants and roots for few ranks; one variant after the other for many."""
    all_variants = variants(operation, name)
    for root in roots(operation, ranks):
        for parameters in all_variants if ranks <= 9 else [all_variants[(ranks + root) % len(all_variants)]]:
            schedule = built_or_refused(operation, name, ranks, root, **parameters)
            if schedule is not None:
                yield schedule


def executed(schedule: Schedule, elements: int, *arguments: Any, **more: Any) -> None:
    """Execute on data; a schedule in which data changes its chunk takes only what its chunks divide."""
    operation, name = schedule.collective.operation, schedule.algorithm
    if operation == "all_to_all":
        elements -= elements % schedule.ranks
    try:
        run_both_ways(schedule, elements, *arguments, **more)
    except ScheduleError:
        assert elements % schedule.chunks
        assert name not in ANY_RANKS.get(operation, ())
        run_both_ways(schedule, schedule.chunks * max(1, elements // schedule.chunks), *arguments, **more)


def test_the_table() -> None:
    table = algorithms.available()
    assert list(table) == [operation for operation in OPERATIONS if operation in table]
    assert all(names == sorted(names) for names in table.values())
    assert all(set(names) <= set(table[operation]) for operation, names in ANY_RANKS.items())


@pytest.mark.parametrize(("operation", "name"), ALL)
def test_some_ranks_are_accepted_and_the_root_is_a_parameter(operation: str, name: str) -> None:
    assert len(accepted(operation, name)) > 1
    assert ("root" in parameters_of(operation, name)) == (operation in HAVE_A_ROOT)
    assert variants(operation, name)[0] == {}


def test_variants_are_read_from_the_signature() -> None:
    assert variants("broadcast", "binomial_tree") == [{}]
    assert variants("all_reduce", "double_binary_tree") == [{}, {"slices": 1}, {"slices": 4}]
    assert {"channels": 3, "slices": 4} in variants("all_reduce", "ring")
    assert {"k": 5, "slices": 1} in [dict(sorted(each.items())) for each in variants("reduce", "tree")]


@pytest.mark.parametrize("ranks", range(1, 34))
@pytest.mark.parametrize(("operation", "name"), ALL)
def test_proven_and_executed(operation: str, name: str, ranks: int) -> None:
    sizes = [0, 1, ranks - 1, 2 * ranks + 1, 5 * ranks + 3]
    for number, schedule in enumerate(built(operation, name, ranks)):
        proof = check(schedule)
        assert (proof.complete, proof.unused, proof.warnings) == (True, (), ())
        assert str(proof) == f"checked: all {schedule.chunks:,} chunks"
        executed(schedule, sizes[number % len(sizes)], seed=number)
        executed(schedule, 8 * schedule.chunks if schedule.chunks < 40 else 37, seed=number)


@pytest.mark.parametrize(("operation", "name"), ALL)
@pytest.mark.parametrize(
    ("dtype", "op"),
    [
        ("float32", "sum"), ("float16", "max"), ("int8", "min"), ("uint64", "prod"), ("complex128", "sum"),
        ("int32", "max"), ("bool", "max"),
    ],
)  # fmt: skip
def test_dtypes_and_operators(operation: str, name: str, dtype: str, op: str) -> None:
    ranks = min(accepted(operation, name), key=lambda ranks: abs(ranks - 5))
    # float sums of small whole numbers are exact
    executed(algorithms.build(operation, name, ranks), 23, np.dtype(dtype), op)


@given(st.sampled_from([pair for pair in ALL if "order" in parameters_of(*pair)]), st.data())
def test_random_orders(which: tuple[str, str], data: st.DataObject) -> None:
    operation, name = which
    ranks = data.draw(st.sampled_from([ranks for ranks in accepted(operation, name) if ranks <= 12]))
    root = data.draw(st.sampled_from(roots(operation, ranks)))
    order = data.draw(st.permutations(range(ranks)))
    parameters = data.draw(st.sampled_from(variants(operation, name)))
    schedule = built_or_refused(operation, name, ranks, root, order=order, **parameters)
    assume(schedule is not None)
    assert schedule is not None
    assert check(schedule).complete
    executed(schedule, data.draw(st.integers(0, 40)))
    if ranks > 1 and name in ("ring", "bidirectional_ring"):
        neighbours = {frozenset((order[i], order[i - 1])) for i in range(ranks)}
        assert {frozenset((row.src, row.dst)) for row in naive_rows(schedule)} <= neighbours


@pytest.mark.parametrize("ranks", range(1, 10))
@pytest.mark.parametrize(("operation", "name"), ALL)
def test_text_equality_and_hash(operation: str, name: str, ranks: int) -> None:
    seen: dict[Schedule, str] = {}
    for schedule in built(operation, name, ranks):
        again = Schedule.from_text(str(schedule))
        assert again == schedule
        assert hash(again) == hash(schedule)
        assert (again.algorithm, str(again)) == (name, str(schedule))
        seen.setdefault(schedule, str(schedule))
    assert len(seen) == len({text.split("\n", 2)[0] + text.split("\n", 2)[-1] for text in seen.values()})


@pytest.mark.parametrize("name", ["binomial_tree", "double_binary_tree", "tree"])
def test_reduction_is_broadcast_turned_round(name: str) -> None:
    for ranks, root in ((6, 2), (9, 0)):
        down = naive_rows(algorithms.build("broadcast", name, ranks, root))
        up = naive_rows(algorithms.build("reduce", name, ranks, root))
        assert sorted((r.src, r.dst, r.chunks) for r in down) == sorted((r.dst, r.src, r.chunks) for r in up)
        assert max(r.step for r in down) == max(r.step for r in up)


# steps, and blocks that each rank sends


def sent(schedule: Schedule) -> list[int]:
    """Chunks that each rank sends."""
    counts: Counter[int] = Counter()
    for row in naive_rows(schedule):
        counts[row.src] += len(row.chunks)
    return [counts[rank] for rank in range(schedule.ranks)]


@pytest.mark.parametrize("name", ["ring", "bidirectional_ring"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("parameters", [{}, {"channels": 2, "slices": 3}])
def test_rings_take_2n_minus_2_steps(name: str, ranks: int, parameters: dict[str, int]) -> None:
    cuts = (2 if name == "bidirectional_ring" else 1) * (6 if parameters else 1)
    for operation, phases in (("all_reduce", 2), ("reduce_scatter", 1), ("all_gather", 1)):
        schedule = algorithms.build(operation, name, ranks, **parameters)
        assert schedule.steps == phases * (ranks - 1)
        assert schedule.chunks == ranks * cuts
        assert sent(schedule) == [phases * (ranks - 1) * cuts] * ranks


@pytest.mark.parametrize("ranks", [2, 5, 8])
def test_rings_send_exactly_2n_minus_2_over_n(ranks: int) -> None:
    schedule = algorithms.ring_all_reduce(ranks)
    for elements in (ranks * 12, ranks * 12 + 1, ranks - 1):
        sizes = schedule.elements(elements)
        elements_sent = [0] * ranks
        for row in naive_rows(schedule):
            elements_sent[row.src] += sum(int(sizes[a]) for a, _ in row.chunks)
        # the chunks that a rank does not send are its own while reducing, and the next one's while copying
        assert elements_sent == [2 * elements - int(sizes[r]) - int(sizes[(r + 1) % ranks]) for r in range(ranks)]
        if elements % ranks == 0:
            assert elements_sent == [2 * (ranks - 1) * elements // ranks] * ranks


def test_the_two_ways_round_carry_half_each() -> None:
    rows = naive_rows(algorithms.bidirectional_ring_all_reduce(5, channels=2))
    assert Counter((row.dst - row.src) % 5 for row in rows) == {1: 2 * 5 * 8, 4: 2 * 5 * 8}
    assert {row.channel for row in rows} == {0, 1}


@pytest.mark.parametrize(("ranks", "k"), list(product((2, 3, 8, 17), (1, 2, 7))))
def test_chain_takes_n_minus_2_plus_k_steps(ranks: int, k: int) -> None:
    for operation in ROOTED:
        schedule = algorithms.build(operation, "ring", ranks, 1, slices=k)
        assert schedule.steps == ranks - 2 + k
        assert max(sent(schedule)) == k


@pytest.mark.parametrize("ranks", range(1, 40))
def test_binomial_takes_log2_steps(ranks: int) -> None:
    levels = (ranks - 1).bit_length()
    assert algorithms.binomial_tree_broadcast(ranks).steps == levels
    assert algorithms.binomial_tree_reduce(ranks).steps == levels
    assert algorithms.binomial_tree_all_reduce(ranks).steps == 2 * levels
    assert algorithms.binomial_tree_broadcast(ranks).transfers == ranks - 1


@pytest.mark.parametrize(("d", "h", "k"), list(product((1, 2, 3), (1, 2, 3), (1, 2, 6))))
def test_perfect_trees_take_dh_plus_dk_minus_d_steps(d: int, h: int, k: int) -> None:
    ranks = sum(d**level for level in range(h + 1))
    for operation in ROOTED:
        schedule = algorithms.build(operation, "tree", ranks, 0, k=d, slices=k)
        assert schedule.steps == d * h + d * (k - 1)
    # one slice goes up and comes down; the others follow on both ways
    assert algorithms.tree_all_reduce(ranks, k=d, slices=k).steps == 2 * d * h + d * (k - 1)


@pytest.mark.parametrize("name", ["ring", "binomial_tree", "tree"])
@pytest.mark.parametrize("ranks", [2, 5, 12, 33])
def test_one_port_schedules(name: str, ranks: int) -> None:
    """In a step no rank sends more than one message, or receives more than one (a reduce: turned round)."""
    for operation in ROOTED:
        for step_rows in by_step(algorithms.build(operation, name, ranks, 1)):
            assert max(Counter(row.src for row in step_rows).values()) == 1
            assert max(Counter(row.dst for row in step_rows).values()) == 1


def by_step(schedule: Schedule) -> list[list[Any]]:
    steps: dict[int, list[Any]] = {}
    for row in naive_rows(schedule):
        steps.setdefault(row.step, []).append(row)
    return list(steps.values())


# double binary trees: the facts of NCCL's construction

PARENTS = {
    2: ([-1, 0], [1, -1]),
    3: ([-1, 2, 0], [1, -1, 0]),
    4: ([-1, 2, 0, 2], [1, 3, 1, -1]),
    5: ([-1, 2, 4, 2, 0], [1, -1, 3, 0, 3]),
    6: ([-1, 2, 4, 2, 0, 4], [1, 5, 3, 1, 3, -1]),
    7: ([-1, 2, 4, 2, 0, 6, 4], [5, -1, 3, 5, 3, 1, 0]),
    8: ([-1, 2, 4, 2, 0, 6, 4, 6], [1, 3, 1, 7, 5, 3, 5, -1]),
}


def test_double_binary_tree_parents() -> None:
    assert {ranks: double_binary_tree_parents(ranks) for ranks in PARENTS} == PARENTS
    assert double_binary_tree_parents(1) == ([-1], [-1])


@pytest.mark.parametrize("rooted", [False, True])
def test_no_rank_has_more_than_two_children(rooted: bool) -> None:
    for ranks in range(1, 300):
        children: Counter[int] = Counter()
        for child, parent, depth in _tree_edges(ranks, rooted=rooted):
            children.update(parent.tolist())
            assert sorted([*child.tolist(), *(set(range(ranks)) - set(child.tolist()))]) == list(range(ranks))
            assert len(child) == ranks - 1
            if rooted and ranks > 1:
                assert 0 not in child  # the root is that of both trees
            assert depth.max(initial=0) <= (ranks - 1).bit_length() + rooted
        assert max(children.values(), default=0) <= 2


def test_depth_of_the_trees() -> None:
    for ranks in range(2, 300):
        depths = [int(depth.max()) for _, _, depth in _tree_edges(ranks, rooted=False)]
        assert max(depths) == (ranks - 1).bit_length()


def test_inner_ranks_of_one_tree_are_leaves_of_the_other() -> None:
    for ranks in range(2, 300):
        first, second = (set(parents) - {-1} for parents in double_binary_tree_parents(ranks))
        assert first & second <= (set() if ranks % 2 == 0 else {0})


@pytest.mark.parametrize("ranks", [2, 3, 8, 9, 30])
def test_double_binary_trees_send_twice_the_message_at_most(ranks: int) -> None:
    schedule = algorithms.double_binary_tree_all_reduce(ranks, slices=3)
    assert max(sent(schedule)) <= 2 * schedule.chunks
    for operation in ROOTED:
        schedule = algorithms.build(operation, "double_binary_tree", ranks, 1, slices=3)
        assert max(sent(schedule)) <= schedule.chunks


# large rings


@pytest.mark.parametrize("name", ["ring", "bidirectional_ring"])
def test_large_rings_stay_small(name: str) -> None:
    ranks = 100_000
    schedule = algorithms.build("all_reduce", name, ranks)
    ways = 2 if name == "bidirectional_ring" else 1
    assert [(len(phase.block), phase.times) for phase in schedule.phases] == [(ways * ranks, ranks - 1)] * 2
    assert schedule.transfers == 2 * ways * ranks * (ranks - 1)
    columns = [value for phase in schedule.phases for part in (phase, phase.block) for value in vars(part).values()]
    size = sum(value.nbytes for value in columns if isinstance(value, np.ndarray))
    assert ways * 6_000_000 < size < ways * 10_000_000
