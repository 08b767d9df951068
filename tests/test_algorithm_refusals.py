"""Every algorithm, for ranks and parameters that it cannot take: one line, at once, and no memory is used."""

from __future__ import annotations

import tracemalloc
from itertools import product
from typing import Any

import numpy as np
import pytest

from collsim import Schedule, algorithms
from collsim.collective import ROOTED
from collsim.errors import AlgorithmError, InputError, ScheduleError
from tests.test_algorithms import ALL, COMMON, accepted, parameters_of


@pytest.mark.parametrize(("operation", "name"), ALL)
def test_bad_ranks(operation: str, name: str) -> None:
    function = algorithms.find(operation, name)
    for ranks in (0, -1, 2.5, True, "4", None):
        with pytest.raises(InputError, match=rf"^ranks: expected a whole number of at least 1, got {ranks!r}$"):
            function(ranks)


@pytest.mark.parametrize(("operation", "name"), [pair for pair in ALL if pair[0] in ROOTED])
def test_bad_roots(operation: str, name: str) -> None:
    function = algorithms.find(operation, name)
    for root in (4, -1):
        with pytest.raises(InputError, match=rf"^root: expected a rank from 0 to 3, got {root}$"):
            function(4, root=root)
    with pytest.raises(InputError, match=r"^root: expected a rank \(a whole number\), got 1.5$"):
        function(4, root=1.5)


@pytest.mark.parametrize(("operation", "name"), ALL)
def test_bad_parameters(operation: str, name: str) -> None:
    ranks = min(accepted(operation, name), key=lambda ranks: abs(ranks - 4))
    for parameter in COMMON.keys() & parameters_of(operation, name):
        for value in (0, -1, 1.5, True, "2"):
            with pytest.raises(
                AlgorithmError, match=rf"^{parameter}: expected a whole number of at least 1, got {value!r}$"
            ):
                algorithms.build(operation, name, ranks, **{parameter: value})
    if "order" not in parameters_of(operation, name):
        return
    right = list(range(ranks))
    wrong = [right[1:], [*right, 0], [rank + 1 for rank in right], [*right[1:], 0.0], "0123", 5, [[0], right]]
    for order in wrong:
        with pytest.raises(AlgorithmError) as caught:
            algorithms.build(operation, name, ranks, order=order)
        assert str(caught.value) == f"order: expected each of the ranks 0 to {ranks - 1} once, got {order!r}"


@pytest.mark.parametrize(("operation", "name"), ALL)
def test_absurd_parameters_are_refused_before_memory_is_used(operation: str, name: str) -> None:
    ranks = min(accepted(operation, name), key=lambda ranks: abs(ranks - 8))
    for parameter in {"slices", "channels"} & set(parameters_of(operation, name)):
        with pytest.raises(AlgorithmError, match=r"rows are more than the 67,108,864 that a schedule can have"):
            algorithms.build(operation, name, ranks, **{parameter: 10**12})


@pytest.mark.parametrize("ranks", [10**9, 10**9 + 7, 2**30, 2**70])
@pytest.mark.parametrize(("operation", "name"), ALL)
def test_absurd_ranks_are_refused_before_memory_is_used(operation: str, name: str, ranks: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises((AlgorithmError, InputError), match="ranks") as caught:
            algorithms.build(operation, name, ranks)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert "\n" not in str(caught.value)


STRANGE = [
    2, [2], None, (), "", "x", 2.5, True, b"x", {}, {1: 2}, [[1]], [None], [0, [1]], -1, 10**12, 2**70, [2**70],
    float("nan"), object, np.zeros(0), np.ones(8), np.zeros((2, 2)), np.array("ring"), np.array([1, 2]), "a\nb",
    {(0, 1): 5}, {(0, 1.5): (1,)}, {(0, 1): ([],)}, {(0, 1): None}, {(0, 1, 2.5): (1,)}, {(0, 1, -1): (1,)},
    {(0, 1, 10**12): (1,)}, {1: (1,), (0, 1): (2,)}, {((0,), 1): (1,)},
]  # fmt: skip


@pytest.mark.parametrize(("operation", "name"), ALL)
def test_parameters_of_other_types_are_taken_or_refused_in_one_line(operation: str, name: str) -> None:
    ranks = min(accepted(operation, name), key=lambda ranks: abs(ranks - 8))
    for parameter, value in product(parameters_of(operation, name)[1:], STRANGE):
        message, schedule = taken_or_refused(algorithms.find(operation, name), ranks, parameter, value)
        if schedule is not None:
            assert Schedule.from_text(str(schedule)) == schedule
            continue
        assert "\n" not in message
        assert len(message) < 500
        assert any(word in message for word in ("expected", " has ", "takes")), (parameter, value)


def taken_or_refused(function: Any, ranks: int, parameter: str, value: Any) -> tuple[str, Schedule | None]:
    """Message of the refusal, or the schedule."""
    wrong: tuple[type[Exception], ...] = (InputError,) if parameter == "root" else (AlgorithmError,)
    if parameter == "window":  # one that the columns of a schedule cannot hold
        wrong = (AlgorithmError, ScheduleError)
    try:
        return "", function(ranks, **{parameter: value})
    except wrong as error:
        return str(error), None
