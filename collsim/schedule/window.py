"""Pacing by windows: a transfer waits for the n-th one before it of its queue."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import ScheduleError, did_you_mean
from collsim.schedule.block import COLUMNS, whole
from collsim.schedule.edges import Edge, Edges
from collsim.schedule.model import Schedule

__all__ = ["window"]

Array = npt.NDArray[Any]


def window(
    schedule: Schedule, n: int, *, per: tuple[str, ...] = ("src", "dst", "channel"), at: str = "end"
) -> Schedule:
    """Return the schedule paced: a transfer waits for the n-th one before it of the same sender, receiver, channel.

    Parameters
    ----------
    schedule
        Any schedule; it keeps its other edges.
    n
        Transfers in flight at most, at least 1.
    per
        Columns of the block that tell windows apart.
    at
        What is waited for: ``"end"`` or ``"issued"``.

    Raises
    ------
    ScheduleError
        If n is less than 1, or phases have different numbers of rows for one window (write them as one block).

    Examples
    --------
    >>> from collsim.algorithms import ring_all_reduce
    >>> paced = window(ring_all_reduce(3), 1)
    >>> paced.edges[0]
    Edge(phase=0, row=0, pred_phase=0, pred_row=0, distance=1, at='end', lag=0)
    """
    if whole("window", n) < 1:
        raise ScheduleError(f"window: expected at least 1 transfer in flight, got {n}")
    for name in per:
        if name not in COLUMNS:
            raise ScheduleError(f"window: per: no column {name!r}{did_you_mean(name, COLUMNS)}")
    Edge(0, 0, 0, 0, at=at)  # refuses what `at` cannot be
    queues = _queues(schedule, per)
    edges = [_waits(schedule, queues, number, n, per, at == "issued") for number in range(len(queues))]
    return replace(schedule, edges=Edges.joined([Edges.of(schedule.edges), *edges]))


@dataclass(frozen=True)
class _Queues:
    """The rows of a block by queue: ``order[first:first + size]`` are those of one, ``name`` is its number."""

    name: Array
    first: Array
    size: Array
    order: Array


def _queues(schedule: Schedule, per: tuple[str, ...]) -> list[_Queues]:
    """Return the queues of each phase; a queue has the same number in all of them."""
    blocks = [phase.block for phase in schedule.phases]
    rows = [len(block) for block in blocks]
    code = np.zeros(sum(rows), dtype=np.int64)
    span = 1
    for column in per:
        values = np.concatenate([getattr(block, column) for block in blocks]) if blocks else code
        low, high = int(values.min(initial=0)), int(values.max(initial=0))
        if span * (high - low + 1) >= 2**62:
            code = np.unique(code, return_inverse=True)[1]
            span = len(code)
        span *= high - low + 1
        code = code * (high - low + 1) + values - low
    found = []
    for part in np.split(code, np.cumsum(rows)[:-1]) if blocks else []:
        order = np.argsort(part, kind="stable")
        by_queue = part[order]
        first = np.flatnonzero(np.diff(by_queue, prepend=-1))
        found.append(_Queues(by_queue[first], first, np.diff(first, append=len(part)), order))
    return found


def _waits(schedule: Schedule, queues: list[_Queues], number: int, n: int, per: tuple[str, ...], issued: bool) -> Edges:
    """Return the edges of one phase, in the order of its rows."""
    here, times = queues[number], schedule.phases[number].times
    size, place = (np.repeat(column, here.size) for column in (here.size, here.first))
    before = np.arange(len(here.order)) - place - n  # of the row that is waited for, counted from here
    distance = -(before // size)
    before += distance * size
    inside = distance < times
    row = here.order[inside]
    columns = {"row": [row], "pred_row": [here.order[(place + before)[inside]]], "distance": [distance[inside]]}
    phases = [np.full(len(row), number)]
    # over the borders: iterations count on backwards, until the window is filled
    open_, queue = np.arange(len(here.order)), np.repeat(np.arange(len(here.size)), here.size)
    having, lacking = np.zeros((2, len(here.size)), dtype=np.int64)  # iterations with and without the queue
    for earlier in range(number - 1, -1, -1):
        open_ = open_[distance[open_] > having[queue[open_]]]
        if not len(open_):
            break
        there, more = queues[earlier], schedule.phases[earlier].times
        at = np.minimum(np.searchsorted(there.name, here.name), max(0, len(there.name) - 1))
        known = there.name[at] == here.name if len(there.name) else np.zeros(len(here.name), dtype=np.bool_)
        chosen = open_[known[queue[open_]]]
        other = there.first[at[queue[chosen]]], there.size[at[queue[chosen]]]
        if (other[1] != size[chosen]).any():
            wrong = int(np.argmax(other[1] != size[chosen]))
            block, first = schedule.phases[number].block, here.order[chosen[wrong]]
            name = {column: int(getattr(block, column)[first]) for column in per}
            raise ScheduleError(
                f"window: {name} has {size[chosen[wrong]]} rows in phase {number} and {other[1][wrong]} in phase "
                f"{earlier}; expected as many, write them as one block"
            )
        having[known] += more
        reached = distance[chosen] < times + having[queue[chosen]]
        chosen, place_there = chosen[reached], other[0][reached]
        columns["row"].append(here.order[chosen])
        columns["pred_row"].append(there.order[place_there + before[chosen]])
        columns["distance"].append(distance[chosen] + lacking[queue[chosen]])
        phases.append(np.full(len(chosen), earlier))
        lacking[~known] += more
    found = {name: np.concatenate(parts) for name, parts in columns.items()}
    order = np.argsort(found["row"], kind="stable")
    pred_phase = np.concatenate(phases)[order] if len(phases) > 1 else number
    return Edges.from_columns(
        phase=number, pred_phase=pred_phase, issued=issued, **{name: column[order] for name, column in found.items()}
    )
