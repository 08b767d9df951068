"""What a run of the compiled engine gives back, and how it lets others work (and Ctrl-C) in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter

from collsim.engine.program import Array, Times

__all__ = ["LARGEST_TIME", "SINGLE_TIME", "Outcome", "Pulse", "TooLongError", "budgets", "no_pulse"]

Pulse = Callable[[int, int], None]
"""Called now and then with the number of transfers that are done and the number of all."""

SLICE = 0.1
"""Seconds that compiled code may run before it comes back to Python, where Ctrl-C is heard."""

MOST_WORK = 2**40
"""An amount of work that no kernel does in a slice."""

SINGLE_TIME = 2**56
LARGEST_TIME = 2**62
"""Kernels work in 64 bits: each duration, latency and lag is below the former, all times are below the latter (ps)."""


class TooLongError(Exception):
    """A time passed `LARGEST_TIME`; the caller knows what can still be done."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """One run.

    Attributes
    ----------
    makespan
        Latest end in picoseconds.
    longest_wait
        By station: the longest time in picoseconds that a transfer waited for it (0 in ``alpha_beta``, and in ``fluid``
        for links and copy engines).
    times
        Records by transfer and by visit, or None if they were not asked for.
    shortcut
        ``""`` (event by event), ``"sweep"`` or ``"jump"``.
    jumped
        Transfers that were not run one by one because their times followed from a period.
    """

    makespan: int
    longest_wait: Array
    times: Times | None
    shortcut: str
    jumped: int = 0


def no_pulse(done: int, total: int) -> None:
    """Do nothing."""


def budgets(first: int) -> Iterator[int]:
    """Yield amounts of work for a kernel such that each call takes about `SLICE` seconds.

    Parameters
    ----------
    first
        The first amount; what it took decides about the next.

    Examples
    --------
    >>> next(budgets(1000))
    1000
    """
    amount = first
    while True:
        since = perf_counter()
        yield amount
        took = perf_counter() - since
        # a call may have come back early for reasons of its own, and often: amounts stay within 64 bits
        amount = min(MOST_WORK, max(1, int(amount * min(2.0, max(0.1, SLICE / max(took, 1e-6))))))
