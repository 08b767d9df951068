"""What a collective must compute, straight from NumPy, and the comparison of an execution with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from collsim import Schedule, execute

UFUNCS: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def block_bounds(elements: int, ranks: int, chunks: int) -> list[tuple[int, int]]:
    """First and last + 1 element of each rank's block, by the uneven rule on chunks."""
    sizes = [elements // chunks + (i < elements % chunks) for i in range(chunks)]
    cuts = chunks // ranks
    ends = np.cumsum([0, *sizes]).tolist()
    return [(ends[r * cuts], ends[(r + 1) * cuts]) for r in range(ranks)]


def answer(schedule: Schedule, inputs: Sequence[Any], op: str = "sum") -> list[Any]:
    """What every rank must hold, straight from NumPy. ``inputs`` are whole buffers."""
    c = schedule.collective
    n = c.ranks
    bounds = block_bounds(inputs[0].size, n, schedule.chunks) if c.is_blocked else []
    nothing: list[Any] = [None] * n
    if c.operation in ("all_reduce", "reduce", "reduce_scatter"):
        total = inputs[0].copy()
        for array in inputs[1:]:
            total = UFUNCS[op](total, array).astype(total.dtype)
        if c.operation == "reduce_scatter":
            return [total[lo:hi] for lo, hi in bounds]
        return [total] * n if c.operation == "all_reduce" else [*nothing[: c.root], total, *nothing[c.root + 1 :]]
    if c.operation in ("all_gather", "gather"):
        whole = np.concatenate([array[lo:hi] for array, (lo, hi) in zip(inputs, bounds, strict=True)])
        return [whole] * n if c.operation == "all_gather" else [*nothing[: c.root], whole, *nothing[c.root + 1 :]]
    if c.operation == "scatter":
        return [inputs[c.root][lo:hi] for lo, hi in bounds]
    if c.operation == "all_to_all":
        size = inputs[0].size // n
        return [np.concatenate([array[r * size : (r + 1) * size] for array in inputs]) for r in range(n)]
    if c.operation == "send_recv":
        return [inputs[(r - 1) % n] for r in range(n)]
    return [inputs[c.root]] * n if c.operation == "broadcast" else list(inputs)


def inputs_for(schedule: Schedule, elements: int, dtype: Any = np.int64, seed: int = 0) -> list[Any]:
    """Whole buffers of random data; what a rank does not provide is there too, as garbage to be overwritten."""
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 100, elements).astype(dtype) for _ in range(schedule.ranks)]


def run_both_ways(schedule: Schedule, elements: int, dtype: Any = np.int64, op: str = "sum", seed: int = 0) -> None:
    """Execute on data, out of place and in place, and compare with `answer`."""
    c = schedule.collective
    whole = inputs_for(schedule, elements, dtype, seed)
    expected = answer(schedule, [array.copy() for array in whole], op)
    given = [array.copy() for array in whole]
    if c.operation in ("all_gather", "gather"):
        bounds = block_bounds(elements, c.ranks, schedule.chunks)
        given = [array[lo:hi].copy() for array, (lo, hi) in zip(whole, bounds, strict=True)]
    kept = [array.copy() for array in given]
    results = execute(schedule, given, op=op)
    _compare(results, expected)
    _compare(given, kept)  # out of place the inputs are as they were
    assert not any(np.shares_memory(a, b) for a in results if a is not None for b in given)
    results = execute(schedule, whole, op=op, in_place=True)
    _compare(results, expected)
    for array, result in zip(whole, results, strict=True):
        assert result is None or not result.size or c.operation == "barrier" or np.shares_memory(array, result)


def _compare(results: Sequence[Any], expected: Sequence[Any]) -> None:
    assert len(results) == len(expected)
    for result, right in zip(results, expected, strict=True):
        if right is None:
            assert result is None
        else:
            assert result.dtype == right.dtype
            np.testing.assert_array_equal(result, right)
