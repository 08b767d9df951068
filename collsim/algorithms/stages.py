"""Slices of a message that follow each other through stages, as algorithms with switches that take part have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.algorithms.common import at_least_one, refuse_rows, refuse_window
from collsim.collective import Collective
from collsim.schedule import Schedule, ScheduleBuilder
from collsim.schedule.edges import Edges

__all__ = ["Stage", "pipeline", "refuse_slices"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Stage:
    """What happens to each slice at one point of its way.

    Attributes
    ----------
    step
        How many steps after its first one a slice is there: one number, or one a row.
    src, dst, chunk
        Senders, receivers and first chunks of slice 0, one a row or one for all. Slice j has the chunk j further on.
    reduce
        Whether the receivers add it up.
    columns
        Other arguments of `ScheduleBuilder.copy`. ``dst_chunk`` moves on as the chunk does.
    only
        The slices that come here; all of them if not given.
    waits
        ``(stage, rows)``: a row also waits for the end of a row of that stage, one for each row of this one. What adds
        to a chunk must not be there before the copy that it adds to.
    """

    step: int | Array
    src: Any
    dst: Any
    chunk: Any
    reduce: bool = False
    columns: dict[str, Any] | None = None
    only: Array | None = None
    waits: tuple[Stage, Array] | None = None


def refuse_slices(heads: int, slices: int, window: int | None) -> None:
    """Refuse numbers of slices and windows that cannot be, before anything is made of them."""
    at_least_one(slices=slices)
    refuse_window(window)
    refuse_rows(2 * heads * int(slices))


def pipeline(
    collective: Collective,
    heads: int,
    slices: int,
    stages: Sequence[Stage],
    *,
    window: int | None,
    places: Sequence[str] = (),
) -> Schedule:
    """Return the schedule in which slice j is in a stage j steps after slice 0.

    Chunk ``h * slices + j`` is slice j of the segment of head h. Scratch has two chunks for each: of what goes up, and
    ``heads * slices`` further on of what comes down.

    Parameters
    ----------
    collective
        What it implements.
    heads, slices
        Segments of the message, and slices of each.
    stages
        In the order in which a slice comes through. Rows of a step are in the opposite order: what has come furthest
        goes first where several could.
    window
        How many messages of the first stage for one receiver may wait at a sender. The next one enters the queue once
        the one so many before it has left. None or 0 for no pacing.
    places
        Switches that take part.

    Raises
    ------
    AlgorithmError
        If ``slices`` or ``window`` is no whole number, or there would be too many rows.
    """
    refuse_slices(heads, slices, window)
    b = ScheduleBuilder(collective, heads * slices, scratch=2 * heads * slices, places=places)
    steps: list[Array] = []
    found: dict[int, _Rows] = {}
    total = 0
    for stage in reversed(stages):
        names = {"src": stage.src, "dst": stage.dst, "chunk": stage.chunk, "step": stage.step, **(stage.columns or {})}
        texts = {name: value for name, value in names.items() if isinstance(value, str)}
        numbers = {name: np.asarray(value) for name, value in names.items() if name not in texts}
        rows = int(np.broadcast_shapes((1,), *(value.shape for value in numbers.values()))[0])
        own = np.arange(slices) if stage.only is None else stage.only
        found[id(stage)] = _Rows(total, rows, own)
        total += rows * len(own)
        refuse_rows(total)
        columns = {name: np.tile(np.broadcast_to(value, (rows,)), len(own)) for name, value in numbers.items()}
        for name in ("step", "chunk", "dst_chunk"):
            if name in columns:
                columns[name] = columns[name] + np.repeat(own, rows)
        (b.reduce if stage.reduce else b.copy)(**columns, **texts)
        steps.append(columns["step"])
    if not stages:
        return b.build()
    place = np.empty(total, dtype=np.int64)  # of the rows as they were added, in the block
    place[np.argsort(np.concatenate(steps), kind="stable")] = np.arange(total)
    edges = []
    if window and slices > window:
        first = found[id(stages[0])]
        waiting, going = (place[first.of(some)] for some in (first.slices[window:], first.slices[:-window]))
        edges.append(_edges(waiting, going, issued=True))
    for stage in stages:
        if stage.waits is not None:
            rows_of, pred = found[id(stage)], found[id(stage.waits[0])]
            waiting, going = place[rows_of.of(rows_of.slices)], place[pred.of(rows_of.slices, stage.waits[1])]
            edges.append(_edges(waiting, going, issued=False))
    return b.build(Edges.joined(edges))


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of a stage: as many for each of its slices, one slice after the other."""

    first: int
    each: int
    slices: Array

    def of(self, slices: Array, rows: Array | None = None) -> Array:
        """Return the numbers of rows of some slices, all rows of each if not given."""
        start = self.first + np.searchsorted(self.slices, slices) * self.each
        return np.asarray((start[:, None] + (np.arange(self.each) if rows is None else rows)).ravel())


def _edges(row: Array, pred: Array, *, issued: bool) -> Edges:
    return Edges.from_columns(phase=0, row=row, pred_phase=0, pred_row=pred, issued=issued)
