"""Execute a schedule on random arrays and compare with NumPy, by the definition of the operation."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.collective import Collective
from collsim.errors import InputError
from collsim.schedule.execute import execute
from collsim.schedule.model import Schedule, refuse_other

__all__ = ["wrong_elements"]

Array = npt.NDArray[Any]


def wrong_elements(
    schedule: Schedule, elements: int, dtype: npt.DTypeLike = np.int32, *, in_place: bool = False
) -> int:
    """Execute a schedule on random arrays and count the elements, over all ranks, that are not what NumPy says.

    Parameters
    ----------
    schedule
        What to execute; its reductions add up.
    elements
        Elements of the whole buffer, as nccl-tests counts them (for all_gather and the like ranks times the block). For
        all_to_all they are rounded down to a multiple of the ranks, as nccl-tests does.
    dtype
        Type of the elements. Whole numbers are used whose sums are exact in the type, or wrap round alike.
    in_place
        Whether results are written over the inputs.

    Raises
    ------
    InputError
        If the elements are not a whole number of at least 0, or the type is not one of integers, floats or complex
        numbers (sums of bools hide a missing contribution).
    ScheduleError
        If the schedule cannot take this number of elements.

    Examples
    --------
    >>> from collsim.algorithms import ring_all_reduce
    >>> wrong_elements(ring_all_reduce(4), 10)
    0
    """
    refuse_other(schedule)
    c = schedule.collective
    if not isinstance(elements, (int, np.integer)) or isinstance(elements, bool) or elements < 0:
        raise InputError(f"elements: expected a whole number of at least 0, got {elements!r}")
    elements = int(elements)
    try:
        kind = np.dtype(dtype)
    except TypeError:
        raise InputError(f"dtype: expected a NumPy type, got {dtype!r}") from None
    if kind.kind not in "iufc":
        raise InputError(f"dtype: expected integers, floats or complex numbers, got {kind}")
    if c.operation == "all_to_all":
        elements -= elements % c.ranks
    rng = np.random.default_rng(0)
    full = [_numbers(rng, elements, kind, c.ranks) for _ in range(c.ranks)]
    owner = _owners(schedule, elements)
    expected = [_expected(c, full, owner, rank) for rank in range(c.ranks)]
    given = [array.copy() for array in full]
    if c.operation in ("all_gather", "gather") and not in_place:
        given = [array[owner == rank] for rank, array in enumerate(given)]
    outputs = execute(schedule, given, in_place=in_place)
    wrong = 0
    for output, right in zip(outputs, expected, strict=True):
        if right is not None:
            fits = output is not None and output.shape == right.shape
            wrong += int(np.count_nonzero(output != right)) if fits else right.size
    return wrong


def _numbers(rng: np.random.Generator, elements: int, dtype: np.dtype[Any], ranks: int) -> Array:
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, elements, dtype=dtype, endpoint=True)
    # at least 1, so that a contribution that is missing always shows
    highest = max(1, 2 ** (np.finfo(dtype).nmant + 1) // ranks)
    return rng.integers(1, highest, elements, endpoint=True).astype(dtype)


def _owners(schedule: Schedule, elements: int) -> Array:
    """Rank whose block each element of the buffer belongs to (0 where the operation has no blocks)."""
    c = schedule.collective
    if not c.is_blocked:
        return np.zeros(elements, dtype=np.int64)
    blocks = c.block_of(schedule.place_of(np.arange(schedule.chunks)), schedule.chunks)
    order = np.argsort(schedule.offsets(elements), kind="stable")
    return np.asarray(np.repeat(blocks[order], schedule.elements(elements)[order]))


def _expected(c: Collective, full: list[Array], owner: Array, rank: int) -> Array | None:
    """Return what a rank must hold at the end, by the definition of the operation; None for nothing."""
    if c.operation in ("reduce", "gather") and rank != c.root:
        return None
    if c.reduces:
        total: Array = np.sum(full, axis=0, dtype=full[0].dtype)
        return np.asarray(total[owner == rank]) if c.operation == "reduce_scatter" else total
    if c.operation == "broadcast":
        return full[c.root]
    if c.operation == "scatter":
        return np.asarray(full[c.root][owner == rank])
    if c.operation == "send_recv":
        return full[(rank - 1) % c.ranks]
    if c.operation == "barrier":
        return full[rank]
    mine = rank if c.operation == "all_to_all" else None
    return np.concatenate([array[owner == (i if mine is None else mine)] for i, array in enumerate(full)])
