"""``#wrong``: how many elements are not what they should be, and how that is known."""

from __future__ import annotations

import numpy as np

from collsim.engine.simulate import DTYPES
from collsim.schedule import Schedule
from collsim.testing import wrong_elements

__all__ = ["count_wrong"]

MOST_BYTES = 64 << 20
"""Executed on data up to this many bytes over all ranks; above, the proof counts."""
MOST_TRANSFERS = 20_000

# What NumPy names otherwise, or does not have: sums of whole numbers are as exact in the wider type.
NUMPY = {"float": "float32", "bfloat16": "float32"}
HALF_RANKS = 2048
"""More ranks than this, and sums of ones are no longer exact in half precision."""


def count_wrong(schedule: Schedule, size: int, dtype: str) -> tuple[int, str]:
    """Count the wrong elements over all ranks of a schedule that has been proven.

    Returns
    -------
    int, str
        The number, and ``"data"`` if the schedule was executed on arrays of this size, or ``"proof"`` where that would
        be too much: then it is 0, since a proof that fails ends the run.
    """
    c = schedule.collective
    too_much = size * c.ranks > MOST_BYTES or schedule.transfers > MOST_TRANSFERS
    if too_much or c.operation == "barrier" or (dtype == "half" and c.ranks > HALF_RANKS):
        return 0, "proof"
    elements = size // DTYPES[dtype]
    if c.operation == "all_to_all":
        elements -= elements % c.ranks
    return wrong_elements(schedule, elements, np.dtype(NUMPY.get(dtype, dtype))), "data"
