"""Pacing of pipelines: how many slices for one peer may wait at a port of the sender."""

from __future__ import annotations

from collsim.algorithms.common import refuse_window
from collsim.schedule import Schedule
from collsim.schedule.window import window as waits

__all__ = ["QUEUE", "queued"]

QUEUE = ("src", "dst", "channel", "reduce")
"""Messages that are alike in these follow each other: what a rank sends up a tree does not wait for what it sends
down."""


def queued(schedule: Schedule, window: int | None) -> Schedule:
    """Return a pipeline in which a message enters the queue once the one so many before it, to that peer, has left.

    Parameters
    ----------
    schedule
        Pipeline of slices.
    window
        Messages for one peer that may wait; with 1 the peers of a rank get theirs in turn. None or 0: all that is ready
        waits.

    Raises
    ------
    AlgorithmError
        If ``window`` is no whole number of at least 0.
    """
    if window is None:
        return schedule
    refuse_window(window)
    return waits(schedule, int(window), per=QUEUE, at="issued") if window else schedule
