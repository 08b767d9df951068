"""What the families share: checks of parameters and the order of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import AlgorithmError, shown

__all__ = ["MOST_ROWS", "at_least_one", "from_root", "rank_order", "refuse_rows", "refuse_window"]

Array = npt.NDArray[Any]


def at_least_one(**parameters: int) -> None:
    """Refuse parameters that are not whole numbers of at least 1."""
    for name, value in parameters.items():
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
            raise AlgorithmError(f"{name}: expected a whole number of at least 1, got {shown(value)}")


MOST_ROWS = 1 << 26
"""Rows of one schedule, at the most: over two gigabytes of columns."""


def refuse_rows(rows: int) -> None:
    """Refuse a schedule with more rows than memory is likely to hold, before any is used."""
    if rows > MOST_ROWS:
        raise AlgorithmError(
            f"ranks, channels and slices: {rows:,} rows are more than the {MOST_ROWS:,} that a schedule can have; "
            "expected fewer ranks, slices or channels"
        )


def refuse_window(window: int | None) -> None:
    """Refuse a window that is neither None nor a whole number of at least 0."""
    if window is None:
        return
    if not isinstance(window, (int, np.integer)) or isinstance(window, bool) or window < 0:
        raise AlgorithmError(f"window: expected a whole number of at least 0 (0 for no pacing), got {shown(window)}")


def rank_order(ranks: int, order: Sequence[int] | None) -> Array:
    """Ranks in the order of their positions; the identity where none is given."""
    refuse_rows(ranks)  # each rank has a row at least
    if order is None:
        return np.arange(ranks)
    try:
        array = np.asarray(order) if len(order) == ranks else np.zeros(0)
    except (ValueError, TypeError):  # no list, or one of lists of different lengths
        array = np.zeros(0)
    if array.dtype.kind not in "iu" or array.shape != (ranks,) or (np.sort(array) != np.arange(ranks)).any():
        raise AlgorithmError(f"order: expected each of the ranks 0 to {ranks - 1} once, got {shown(order)}")
    return array.astype(np.int64)


def from_root(ranks: int, root: int, order: Sequence[int] | None) -> Array:
    """Ranks in order, turned so that the root comes first."""
    array = rank_order(ranks, order)
    return np.roll(array, -int(np.flatnonzero(array == root)[0]))
