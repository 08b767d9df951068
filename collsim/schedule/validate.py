"""Refuse a schedule that is not well formed, with the row that is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError, ScheduleError
from collsim.schedule.model import BUFFERS, INPUT, SCRATCH, Repeat, Schedule

__all__ = ["validate"]

Array = npt.NDArray[Any]


def validate(schedule: Schedule) -> None:
    """Check every index of a schedule.

    Raises
    ------
    ScheduleError
        Naming the phase, the row and the column that is wrong.
    """
    try:
        schedule.collective.check_chunks(schedule.chunks)
    except InputError as error:
        raise ScheduleError(str(error)) from None
    if schedule.scratch < 0:
        raise ScheduleError(f"scratch: expected at least 0 chunks, got {schedule.scratch}")
    if schedule.order is not None and sorted(schedule.order) != list(range(schedule.chunks)):
        missing = min(set(range(schedule.chunks)) - set(schedule.order), default=None)
        raise ScheduleError(
            f"order: expected each of the places 0 to {schedule.chunks - 1} once, got {len(schedule.order)} places"
            + ("" if missing is None else f" without {missing}")
        )
    if schedule.layout is not None:
        if sum(count for count, _ in schedule.layout) != schedule.chunks:
            raise ScheduleError(f"layout: expected {schedule.chunks} chunks in all, got {schedule.layout}")
        if min(min(run) for run in schedule.layout) < 0:
            raise ScheduleError(f"layout: expected runs of (count, elements) of at least 0, got {schedule.layout}")
    for number, phase in enumerate(schedule.phases):
        _validate_phase(schedule, number, phase)
    for edge in schedule.edges:
        for phase_index, row in ((edge.phase, edge.row), (edge.pred_phase, edge.pred_row)):
            if not 0 <= phase_index < len(schedule.phases) or not 0 <= row < len(schedule.phases[phase_index].block):
                raise ScheduleError(f"edge: there is no row {row} in phase {phase_index}: {edge}")


def _validate_phase(schedule: Schedule, number: int, phase: Repeat) -> None:
    block = phase.block

    def refuse(bad: Array, what: str, rows: Array | None = None) -> None:
        if bad.any():
            row = int(np.argmax(bad)) if rows is None else int(rows[bad].min())
            raise ScheduleError(
                f"phase {number}, row {row} (step {block.step[row]}, {block.src[row]} -> {block.dst[row]}): {what}"
            )

    if not len(block):
        return
    for side in ("src", "dst"):
        end, buffer, chunk = (getattr(block, side + part) for part in ("", "_buffer", "_chunk"))
        refuse((end < 0) | (end >= schedule.endpoints), f"{side}: expected a rank below {schedule.endpoints}")
        refuse((buffer < 0) | (buffer >= len(BUFFERS)), f"{side}_buffer: expected 0, 1 or 2")
        if schedule.places:
            refuse((end >= schedule.ranks) & (buffer != SCRATCH), f"{side}: a switch has a scratch buffer only")
        rows = np.arange(len(block))
        if block.lists is not None:  # one entry for each chunk that is listed
            lengths = np.diff(block.lists.offsets)
            listed = np.repeat(rows, lengths)
            rows = np.concatenate([rows, listed])
            chunk, buffer = np.concatenate([chunk, getattr(block.lists, side)]), buffer[rows]
        size = np.where(buffer == SCRATCH, schedule.scratch, schedule.chunks)
        refuse((chunk < 0) | (chunk >= size), f"{side}_chunk: beyond the chunks of its buffer", rows)
        window = np.broadcast_to(np.asarray(phase.window), (len(block),))[rows]
        refuse(window < 0, "window: expected at least 1, or 0 for all chunks", rows)
        window = np.where(window == 0, schedule.chunks, window).astype(np.int64)
        moves = (np.broadcast_to(np.asarray(phase.shift) != 0, (len(block),)) & (phase.times > 1)) | (block.count > 1)
        beyond = (chunk // window + 1) * window > size
        refuse(moves[rows] & beyond, f"{side}_chunk: its window reaches beyond its buffer; give a smaller window", rows)
    refuse(block.count < 1, "count: expected at least 1")
    if not schedule.in_place:
        refuse(block.dst_buffer == INPUT, "dst_buffer: the input is read only when input and output are not the same")
    if block.via is not None:
        refuse((block.via < -1) | (block.via >= len(schedule.paths)), f"via: there are {len(schedule.paths)} paths")
