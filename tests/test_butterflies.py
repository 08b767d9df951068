"""Butterflies and dissemination: worked tables, steps, volume, contention, and mistakes that others made."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from collsim import Schedule, algorithms, check, execute
from collsim.errors import AlgorithmError, ProofError
from tests.answers import run_both_ways
from tests.strategies import naive_rows

for module in (
    "recursive_doubling", "halving_doubling", "circulant", "bruck", "pat", "neighbour_exchange", "swing", "bine",
):  # fmt: skip
    importlib.import_module(f"collsim.algorithms.{module}")  # puts its algorithms into the table

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "recursive_doubling": [{}],
    "halving_doubling": [
        {}, {"fold": "split"}, {"distance": "halving"}, {"distance": "halving", "fold": "split"}, {"halvings": 0},
        {"halvings": 1}, {"halvings": 2, "distance": "halving"}, {"halvings": 1, "fold": "split"},
    ],
    "circulant": [{}],
    "bruck": [{}, {"radix": 3}, {"radix": 5}, {"radix": 40}],
    "pat": [{}, {"aggregation": 1}, {"aggregation": 2}, {"aggregation": 8}, {"aggregation": 64}],
    "neighbour_exchange": [{}],
}  # fmt: skip
ANY = ["bruck", "circulant", "pat"]
CASES = [
    (operation, name, parameters)
    for operation in ("all_reduce", "reduce_scatter", "all_gather")
    for name in algorithms.available()[operation]
    for parameters in VARIANTS.get(name, [])
    if operation == "all_reduce" or not {"fold", "halvings"} & set(parameters)
]


def built(operation: str, name: str, ranks: int, **parameters: Any) -> Schedule | None:
    try:
        return algorithms.build(operation, name, ranks, **parameters)
    except AlgorithmError:
        return None


def table(schedule: Schedule) -> list[set[str]]:
    """Moves of each step, chunks by their place: ``0->1:{2,3}`` copies, ``0=>1:{2,3}`` reduces."""
    steps: list[set[str]] = [set() for _ in range(schedule.steps)]
    for row in naive_rows(schedule):
        places = sorted(int(schedule.place_of(np.asarray(a))) for a, _ in row.chunks)
        arrow = "=>" if row.reduce else "->"
        steps[row.step].add(f"{row.src}{arrow}{row.dst}:{{{','.join(map(str, places))}}}")
    return steps


def parsed(text: str) -> list[set[str]]:
    """Read a worked table with a line for each step; chunks of a set in any order."""
    lines = [line.strip() for line in text.strip().splitlines()]

    def tidy(move: str) -> str:
        head, chunks = move.split(":")
        return f"{head}:{{{','.join(sorted(chunks.strip('{}').split(','), key=int))}}}"

    return [{tidy(move.strip()) for move in line.split(";")} for line in lines]


WORKED: dict[tuple[str, str, int], tuple[dict[str, Any], str]] = {
    ("all_reduce", "recursive_doubling", 6): (
        {},
        """
        0=>1:{0}; 2=>3:{0}
        1=>3:{0}; 3=>1:{0}; 4=>5:{0}; 5=>4:{0}
        1=>4:{0}; 3=>5:{0}; 4=>1:{0}; 5=>3:{0}
        1->0:{0}; 3->2:{0}
        """,
    ),
    ("all_reduce", "halving_doubling", 4): (
        {},
        """
        0=>1:{2,3}; 1=>0:{0,1}; 2=>3:{2,3}; 3=>2:{0,1}
        0=>2:{1}; 1=>3:{3}; 2=>0:{0}; 3=>1:{2}
        0->2:{0}; 1->3:{2}; 2->0:{1}; 3->1:{3}
        0->1:{0,1}; 1->0:{2,3}; 2->3:{0,1}; 3->2:{2,3}
        """,
    ),
    ("all_reduce", "halving_doubling", 6): (
        {"fold": "split"},
        """
        1=>0:{0,1}; 3=>2:{0,1}; 0=>1:{2,3}; 2=>3:{2,3}
        1->0:{2,3}; 3->2:{2,3}
        0=>2:{2,3}; 2=>0:{0,1}; 4=>5:{2,3}; 5=>4:{0,1}
        0=>4:{1}; 2=>5:{3}; 4=>0:{0}; 5=>2:{2}
        0->4:{0}; 2->5:{2}; 4->0:{1}; 5->2:{3}
        0->2:{0,1}; 2->0:{2,3}; 4->5:{0,1}; 5->4:{2,3}
        0->1:{0,1,2,3}; 2->3:{0,1,2,3}
        """,
    ),
    ("reduce_scatter", "circulant", 5): (
        {},
        """
        0=>3:{3,4}; 1=>4:{4,0}; 2=>0:{0,1}; 3=>1:{1,2}; 4=>2:{2,3}
        0=>2:{2}; 1=>3:{3}; 2=>4:{4}; 3=>0:{0}; 4=>1:{1}
        0=>1:{1}; 1=>2:{2}; 2=>3:{3}; 3=>4:{4}; 4=>0:{0}
        """,
    ),
    ("all_gather", "circulant", 5): (
        {},
        """
        0->4:{0}; 1->0:{1}; 2->1:{2}; 3->2:{3}; 4->3:{4}
        0->3:{0}; 1->4:{1}; 2->0:{2}; 3->1:{3}; 4->2:{4}
        0->2:{0,1}; 1->3:{1,2}; 2->4:{2,3}; 3->0:{3,4}; 4->1:{4,0}
        """,
    ),
    ("all_gather", "bruck", 5): (
        {},
        """
        0->4:{0}; 1->0:{1}; 2->1:{2}; 3->2:{3}; 4->3:{4}
        0->3:{0,1}; 1->4:{1,2}; 2->0:{2,3}; 3->1:{3,4}; 4->2:{4,0}
        0->1:{0}; 1->2:{1}; 2->3:{2}; 3->4:{3}; 4->0:{4}
        """,
    ),
    ("all_gather", "pat", 5): (
        {},
        """
        0->4:{0}; 1->0:{1}; 2->1:{2}; 3->2:{3}; 4->3:{4}
        0->2:{0}; 1->3:{1}; 2->4:{2}; 3->0:{3}; 4->1:{4}
        0->1:{0,3}; 1->2:{1,4}; 2->3:{2,0}; 3->4:{3,1}; 4->0:{4,2}
        """,
    ),
    ("all_gather", "neighbour_exchange", 6): (
        {},
        """
        0->1:{0}; 1->0:{1}; 2->3:{2}; 3->2:{3}; 4->5:{4}; 5->4:{5}
        0->5:{0,1}; 1->2:{0,1}; 2->1:{2,3}; 3->4:{2,3}; 4->3:{4,5}; 5->0:{4,5}
        0->1:{4,5}; 1->0:{2,3}; 2->3:{0,1}; 3->2:{4,5}; 4->5:{2,3}; 5->4:{0,1}
        """,
    ),
}


@pytest.mark.parametrize(("operation", "name", "ranks"), WORKED)
def test_worked_tables(operation: str, name: str, ranks: int) -> None:
    parameters, text = WORKED[operation, name, ranks]
    assert table(algorithms.build(operation, name, ranks, **parameters)) == parsed(text)


@pytest.mark.parametrize(("operation", "name", "parameters"), CASES)
def test_proven_and_executed(operation: str, name: str, parameters: dict[str, Any]) -> None:
    accepted = 0
    for ranks in range(1, 34):
        schedule = built(operation, name, ranks, **parameters)
        if schedule is None:
            assert name not in ANY
            continue
        accepted += 1
        proof = check(schedule)
        assert (proof.complete, proof.unused, proof.warnings) == (True, (), ())
        assert Schedule.from_text(str(schedule)) == schedule
        # fewer elements than ranks (Rabenseifner needs as many as chunks elsewhere), and numbers that N does not divide
        for elements in ((0, 3 * ranks), (1, 2 * ranks + 1), (ranks - 1, 5 * ranks + 3))[ranks % 3]:
            run_both_ways(schedule, elements, seed=ranks)
        if ranks == 1:
            assert schedule.transfers == 0
    assert accepted >= 5


@pytest.mark.parametrize(("operation", "name", "parameters"), CASES)
def test_other_orders(operation: str, name: str, parameters: dict[str, Any]) -> None:
    for order in ([2, 0, 3, 1], [7, 1, 4, 0, 5, 2, 3, 6]):
        straight = built(operation, name, len(order), **parameters)
        if straight is None:
            continue
        schedule = algorithms.build(operation, name, len(order), order=order, **parameters)
        assert check(schedule).complete
        run_both_ways(schedule, 2 * len(order) + 1)
        assert sorted((order[row.src], order[row.dst]) for row in naive_rows(straight)) == sorted(
            (row.src, row.dst) for row in naive_rows(schedule)
        )


# steps, and blocks that each rank sends


def sent(schedule: Schedule) -> list[Fraction]:
    """Share of the vector that each rank sends."""
    counts: Counter[int] = Counter()
    for row in naive_rows(schedule):
        counts[row.src] += len(row.chunks)
    return [Fraction(counts[rank], schedule.chunks) for rank in range(schedule.ranks)]


@pytest.mark.parametrize("ranks", range(2, 34))
def test_steps_and_volume_of_those_that_take_any_number(ranks: int) -> None:
    levels, rest = (ranks - 1).bit_length(), Fraction(ranks - 1, ranks)
    for name, operation in product(ANY, ("reduce_scatter", "all_gather", "all_reduce")):
        phases = 2 if operation == "all_reduce" else 1
        schedule = algorithms.build(operation, name, ranks)
        assert schedule.steps == phases * levels
        assert sent(schedule) == [phases * rest] * ranks


@pytest.mark.parametrize("ranks", [2, 4, 6, 8, 14, 32])
def test_steps_and_volume_of_neighbour_exchange(ranks: int) -> None:
    gather = algorithms.build("all_gather", "neighbour_exchange", ranks)
    assert gather.steps == ranks // 2
    assert sent(gather) == [Fraction(ranks - 1, ranks)] * ranks
    talks = {frozenset((row.src, row.dst)) for row in naive_rows(gather)}
    assert talks <= {frozenset((r, (r + 1) % ranks)) for r in range(ranks)}
    assert algorithms.build("all_reduce", "neighbour_exchange", ranks).steps == ranks


@pytest.mark.parametrize("ranks", range(2, 34))
def test_steps_and_volume_of_folds(ranks: int) -> None:
    levels = ranks.bit_length() - 1
    power, folded = 1 << levels, ranks & (ranks - 1) > 0
    schedule = algorithms.build("all_reduce", "recursive_doubling", ranks)
    assert schedule.steps == levels + 2 * folded
    assert max(sent(schedule)) == levels + folded
    for fold, more in (("full", 2), ("split", 3)):
        schedule = algorithms.build("all_reduce", "halving_doubling", ranks, fold=fold)
        assert schedule.steps == 2 * levels + more * folded
        core = Fraction(2 * (power - 1), power)
        assert max(sent(schedule)) == core + (0 if not folded else Fraction(3, 2) if fold == "split" else 1)


@pytest.mark.parametrize("levels", [1, 2, 3, 4, 5])
def test_steps_and_volume_of_the_hybrid(levels: int) -> None:
    for halvings, distance in product(range(levels + 1), ("doubling", "halving")):
        schedule = algorithms.build("all_reduce", "halving_doubling", 1 << levels, halvings=halvings, distance=distance)
        assert schedule.steps == levels + halvings
        part = Fraction(1, 1 << halvings)
        assert sent(schedule) == [2 * (1 - part) + (levels - halvings) * part] * (1 << levels)
        assert check(schedule).complete


@pytest.mark.parametrize("ranks", [2, 5, 9, 16, 27, 33])
@pytest.mark.parametrize("radix", [2, 3, 4, 7])
def test_rounds_of_bruck(ranks: int, radix: int) -> None:
    rounds = next(i for i in range(10) if radix**i >= ranks)
    schedule = algorithms.build("all_gather", "bruck", ranks, radix=radix)
    assert schedule.steps == rounds
    assert sent(schedule) == [Fraction(ranks - 1, ranks)] * ranks
    assert max(Counter((row.step, row.src) for row in naive_rows(schedule)).values()) <= radix - 1


@pytest.mark.parametrize("ranks", [4, 7, 8, 13, 16, 32, 33])
def test_aggregation_of_pat(ranks: int) -> None:
    size = 1 << (ranks - 1).bit_length()
    for aggregation in (1, 2, 4, 8, 16, 32, 64):
        schedule = algorithms.build("all_gather", "pat", ranks, aggregation=aggregation)
        assert max(len(row.chunks) for row in naive_rows(schedule)) <= aggregation
        assert sent(schedule) == [Fraction(ranks - 1, ranks)] * ranks
        part = min(aggregation, size)
        assert schedule.steps <= part.bit_length() - 1 + size // part - 1
        if ranks == size:
            assert schedule.steps == part.bit_length() - 1 + size // part - 1


@pytest.mark.parametrize("ranks", [8, 16, 32])
def test_pat_with_little_aggregation_keeps_few_blocks_to_pass_on(ranks: int) -> None:
    """A rank has log2 N blocks of others at the most that it has yet to send on."""
    schedule = algorithms.build("all_gather", "pat", ranks, aggregation=1)
    last: dict[tuple[int, int], int] = {}
    got: dict[tuple[int, int], int] = {}
    for row in naive_rows(schedule):
        last[row.src, row.chunks[0][0]] = row.step
        got[row.dst, row.chunks[0][0]] = row.step
    waiting = [
        sum(got[key] <= step < last.get(key, -1) for key in got if key[0] == 0) for step in range(schedule.steps)
    ]
    assert max(waiting) <= ranks.bit_length() - 1


def test_large_schedules_stay_small() -> None:
    ranks = 100_000
    for operation, name, steps in (
        ("all_reduce", "circulant", 34),
        ("all_reduce", "bruck", 34),
        ("all_reduce", "pat", 34),
        ("all_reduce", "halving_doubling", 34),
        ("all_gather", "neighbour_exchange", 50_000),
    ):
        schedule = algorithms.build(operation, name, ranks)
        assert schedule.steps == steps
        assert sum(len(phase.block) for phase in schedule.phases) <= steps * ranks


# mistakes that others made


@pytest.mark.parametrize("ranks", [3, 5, 6, 7, 12, 48])
def test_xor_butterflies_on_other_numbers_than_powers_of_two_are_folded_or_refused(ranks: int) -> None:
    """A butterfly of width 48 once summed 528 where 1176 was right."""
    for parameters in ({}, {"fold": "split"}, {"distance": "halving"}):
        schedule = algorithms.build("all_reduce", "halving_doubling", ranks, **parameters)
        results = execute(schedule, [np.full(3, rank + 1) for rank in range(ranks)])
        assert all((result == ranks * (ranks + 1) // 2).all() for result in results)
    for operation, name, instead in (
        ("all_gather", "recursive_doubling", "bruck or circulant"),
        ("reduce_scatter", "halving_doubling", "circulant"),
    ):
        with pytest.raises(AlgorithmError, match=f"^ranks: recursive .* power of two, got {ranks}; use {instead}$"):
            algorithms.build(operation, name, ranks)


@pytest.mark.parametrize("distance", ["halving", "doubling"])
def test_bit_reversed_owners_are_put_right_in_a_reduce_scatter(distance: str) -> None:
    """With the distance doubling, window by window, rank 1 of 8 would own block 4."""
    schedule = algorithms.build("reduce_scatter", "halving_doubling", 8, distance=distance)
    inputs = [np.arange(8) + 100 * rank for rank in range(8)]
    results = execute(schedule, inputs)
    assert [result.tolist() for result in results] == [[2800 + 8 * rank] for rank in range(8)]
    assert (schedule.order is None) == (distance == "halving")
    if distance == "doubling":
        assert schedule.order == (0, 4, 2, 6, 1, 5, 3, 7)


@pytest.mark.parametrize("ranks", [3, 5, 33])
def test_neighbour_exchange_refuses_odd_numbers(ranks: int) -> None:
    for operation in ("all_gather", "reduce_scatter", "all_reduce"):
        with pytest.raises(
            AlgorithmError, match=f"^ranks: neighbour exchange takes an even number of ranks, got {ranks}; use ring$"
        ):
            algorithms.build(operation, "neighbour_exchange", ranks)


def test_bruck_turns_its_blocks_the_right_way() -> None:
    """What rank r gets i-th is block (r + i) mod N."""
    for ranks in (5, 6, 8):
        got: dict[int, list[int]] = {rank: [rank] for rank in range(ranks)}
        for row in naive_rows(algorithms.build("all_gather", "bruck", ranks)):
            got[row.dst] += [chunk for chunk, _ in row.chunks]
        assert got == {rank: [(rank + i) % ranks for i in range(ranks)] for rank in range(ranks)}


@pytest.mark.parametrize(("operation", "name", "parameters"), [case for case in CASES if case[0] == "all_reduce"])
def test_all_ranks_get_the_same_bits(operation: str, name: str, parameters: dict[str, Any]) -> None:
    rng = np.random.default_rng(7)
    for ranks in (6, 8, 13):
        schedule = built(operation, name, ranks, **parameters)
        if schedule is not None:
            first, *others = execute(schedule, [rng.standard_normal(29).astype(np.float32) for _ in range(ranks)])
            assert all(other.tobytes() == first.tobytes() for other in others)


def test_windows_that_no_power_divides_have_the_counts_of_the_peer() -> None:
    schedule = algorithms.build("all_reduce", "halving_doubling", 8)
    sizes = schedule.elements(13)
    for row in naive_rows(schedule):
        if row.step == 0:
            assert sum(int(sizes[chunk]) for chunk, _ in row.chunks) == (8 if row.src % 2 else 5)
    run_both_ways(schedule, 13)


def test_what_a_split_fold_gives_back_is_there_before_others_add_to_it() -> None:
    """No data leads from the half that an odd rank returns to what others add to it: an edge has to."""
    schedule = algorithms.build("all_reduce", "halving_doubling", 6, fold="split")
    assert len(schedule.edges) == 2
    assert check(schedule).complete
    with pytest.raises(
        ProofError, match="rank 2, chunk 2: nothing orders two writes: step 1, 3 -> 2 and step 2, 0 => 2"
    ):
        check(replace(schedule, edges=()))


# refusals


@pytest.mark.parametrize(
    ("operation", "name", "ranks", "parameters", "message"),
    [
        ("all_reduce", "halving_doubling", 6, {"fold": "half"}, "fold: expected 'full' or 'split', got 'half'"),
        (
            "all_reduce", "halving_doubling", 4, {"distance": "halfing"},
            "distance: expected 'doubling' or 'halving', got 'halfing'; did you mean 'halving'?",
        ),
        ("all_reduce", "halving_doubling", 4, {"fold": 2}, "fold: expected 'full' or 'split', got 2"),
        ("all_reduce", "halving_doubling", 4, {"halvings": 3}, "halvings: expected a whole number from 0 to 2, got 3"),
        ("all_reduce", "halving_doubling", 2, {"halvings": 2}, "halvings: expected a whole number from 0 to 1, got 2"),
        (
            "all_reduce", "halving_doubling", 6, {"halvings": 0, "fold": "split"},
            "fold: 'split' adds up halves, expected at least one halving; use fold='full'",
        ),
        ("all_gather", "bruck", 4, {"radix": 1}, "radix: expected at least 2, got 1"),
        ("all_gather", "bruck", 4, {"radix": 0}, "radix: expected a whole number of at least 1, got 0"),
        ("all_gather", "pat", 4, {"aggregation": 3}, "aggregation: expected a power of two, got 3"),
        ("all_gather", "pat", 4, {"aggregation": 0.5}, "aggregation: expected a whole number of at least 1, got 0.5"),
    ],
)  # fmt: skip
def test_refusals(operation: str, name: str, ranks: int, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(AlgorithmError, match=f"^{re.escape(message)}$"):
        algorithms.build(operation, name, ranks, **parameters)


@pytest.mark.parametrize(
    "name", [*ANY, "recursive_doubling", "halving_doubling", "neighbour_exchange", "swing", "bine"]
)
def test_absurd_numbers_are_refused_before_memory_is_used(name: str) -> None:
    with pytest.raises(AlgorithmError, match="rows are more than the"):
        algorithms.build("all_reduce", name, 1 << 40)
