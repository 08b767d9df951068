"""send_recv: every rank sends its buffer to the next one."""

from __future__ import annotations

import numpy as np

from collsim.algorithms.common import refuse_rows
from collsim.algorithms.registry import algorithm
from collsim.collective import Collective
from collsim.schedule import Schedule, ScheduleBuilder

__all__ = ["ring_send_recv"]


@algorithm("send_recv", "ring")
def ring_send_recv(ranks: int) -> Schedule:
    """Rank r sends to r+1, all at once: ``alpha + S/B`` (``sendrecv_perf`` of nccl-tests).

    Parameters
    ----------
    ranks
        Any number from 1; a single rank sends nothing.

    Examples
    --------
    >>> print(ring_send_recv(3))
    send_recv ranks=3 chunks=1
    algorithm ring
    repeat 1
      step 0
        0 -> 1  0
        1 -> 2  0
        2 -> 0  0
    """
    refuse_rows(ranks)
    b = ScheduleBuilder(Collective("send_recv", ranks), 1)
    if ranks > 1:
        everyone = np.arange(ranks)
        b.copy(everyone, (everyone + 1) % ranks)
    return b.build()
