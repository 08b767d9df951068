"""Refuse a schedule that is not well formed, with the row that is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError, ScheduleError
from collsim.schedule.block import short
from collsim.schedule.edges import MOST_LAG, Edges
from collsim.schedule.model import BUFFERS, INPUT, SCRATCH, Repeat, Schedule

__all__ = ["MOST_CHUNKS", "PartError", "validate"]

Array = npt.NDArray[Any]

MOST_CHUNKS = 1 << 26
"""Chunks of a buffer, at the most: as many as a schedule can have rows, half a gigabyte for one number each."""


class PartError(ScheduleError):
    """A schedule that is not well formed, and which part of it: what the text form turns into a line.

    Attributes
    ----------
    part
        ``("head",)``, ``("order",)``, ``("layout",)``, ``("row", phase, row)`` or ``("edge", number)``.
    """

    def __init__(self, message: str, *part: Any) -> None:
        super().__init__(message)
        self.part = part


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
        raise PartError(str(error), "head") from None
    if schedule.scratch < 0:
        raise PartError(f"scratch: expected at least 0 chunks, got {schedule.scratch}", "head")
    for name in ("chunks", "scratch"):
        if getattr(schedule, name) > MOST_CHUNKS:
            raise PartError(f"{name}: expected at most {MOST_CHUNKS}, got {getattr(schedule, name)}", "head")
    _validate_order(schedule)
    if schedule.layout is not None:
        if sum(count for count, _ in schedule.layout) != schedule.chunks:
            raise PartError(f"layout: expected {schedule.chunks} chunks in all, got {short(schedule.layout)}", "layout")
        if min(min(run) for run in schedule.layout) < 0:
            raise PartError(
                f"layout: expected runs of (count, elements) of at least 0, got {short(schedule.layout)}", "layout"
            )
        elements = sum(count * size for count, size in schedule.layout)
        if elements > MOST_LAG:
            raise PartError(f"layout: expected at most {MOST_LAG} elements in all, got {elements}", "layout")
    for number, phase in enumerate(schedule.phases):
        _validate_phase(schedule, number, phase)
    _validate_edges(schedule)


def _validate_edges(schedule: Schedule) -> None:
    edges = Edges.of(schedule.edges)
    if not len(edges):
        return
    rows = np.array([len(phase.block) for phase in schedule.phases] + [0])  # the last one stands for any other number
    bad = []
    for side in ("", "pred_"):
        phase, row = edges.columns[side + "phase"], edges.columns[side + "row"]
        known = (phase >= 0) & (phase < len(schedule.phases))
        bad.append((row < 0) | (row >= rows[np.where(known, phase, -1)]))
    wrong = bad[0] | bad[1]
    if wrong.any():
        index = int(np.argmax(wrong))
        edge = edges[index]
        where = (edge.phase, edge.row) if bad[0][index] else (edge.pred_phase, edge.pred_row)
        raise PartError(f"edge: there is no row {where[1]} in phase {where[0]}: {edge}", "edge", index)


def _validate_order(schedule: Schedule) -> None:
    order, chunks = schedule.order, schedule.chunks
    # the lengths first: a list of all chunks takes gigabytes where there are many
    if order is None or (len(order) == chunks and sorted(order) == list(range(chunks))):
        return
    known = set(order)
    missing = next(place for place in range(chunks + 1) if place not in known)
    raise PartError(
        f"order: expected each of the places 0 to {chunks - 1} once, got {len(order)} places"
        + ("" if missing == chunks else f" without {missing}"),
        "order",
    )


def _validate_phase(schedule: Schedule, number: int, phase: Repeat) -> None:
    block = phase.block

    def refuse(bad: Array, what: str, rows: Array | None = None) -> None:
        if bad.any():
            row = int(np.argmax(bad)) if rows is None else int(rows[bad].min())
            raise PartError(
                f"phase {number}, row {row} (step {block.step[row]}, {block.src[row]} -> {block.dst[row]}): {what}",
                "row",
                number,
                row,
            )

    if not len(block):
        return
    for side in ("src", "dst"):
        end, buffer, chunk = (getattr(block, side + part) for part in ("", "_buffer", "_chunk"))
        refuse((end < 0) | (end >= schedule.endpoints), f"{side}: expected a rank below {schedule.endpoints}")
        refuse((buffer < 0) | (buffer >= len(BUFFERS)), f"{side}_buffer: expected 0, 1 or 2")
        if schedule.places:
            refuse((end >= schedule.ranks) & (buffer != SCRATCH), f"{side}: a switch has a scratch buffer only")
        moves = (np.asarray(phase.shift != 0) & (phase.times > 1)) | (block.count > 1)
        window = np.asarray(phase.window)
        rows = None
        if block.lists is not None:  # one entry for each chunk that is listed
            rows = np.arange(len(block))
            rows = np.concatenate([rows, np.repeat(rows, np.diff(block.lists.offsets))])
            chunk, buffer, moves = np.concatenate([chunk, getattr(block.lists, side)]), buffer[rows], moves[rows]
            window = window[rows] if window.ndim else window
        size = np.where(buffer == SCRATCH, np.int32(schedule.scratch), np.int32(schedule.chunks))
        refuse((chunk < 0) | (chunk >= size), f"{side}_chunk: beyond the chunks of its buffer", rows)
        refuse(np.broadcast_to(window < 0, chunk.shape), "window: expected at least 1, or 0 for all chunks", rows)
        if moves.any():
            window = np.where(window == 0, schedule.chunks, window).astype(np.int64)
            beyond = moves & ((chunk // window + 1) * window > size)
            refuse(beyond, f"{side}_chunk: its window reaches beyond its buffer; give a smaller window", rows)
    refuse(block.count < 1, "count: expected at least 1")
    refuse(_repeats_a_chunk(schedule, phase), "it writes one chunk twice; give each chunk of a message once")
    if not schedule.in_place:
        refuse(block.dst_buffer == INPUT, "dst_buffer: the input is read only when input and output are not the same")
    if block.via is not None:
        refuse((block.via < -1) | (block.via >= len(schedule.paths)), f"via: there are {len(schedule.paths)} paths")


def _repeats_a_chunk(schedule: Schedule, phase: Repeat) -> Array:
    """Rows that copy two chunks into one, or that add one chunk to another twice."""
    block = phase.block
    bad = np.zeros(len(block), dtype=bool)
    many = np.flatnonzero(block.count > 1)
    if len(many):
        window = np.broadcast_to(np.asarray(phase.window), (len(block),))[many].astype(np.int64)
        window[window == 0] = schedule.chunks
        # chunk + i * stride comes round to where it began after this many
        bad[many] = block.count[many] > window // np.gcd(block.stride[many].astype(np.int64), window)
    if block.lists is not None:
        row = np.repeat(np.arange(len(block)), np.diff(block.lists.offsets))
        # a reduction may add different chunks to one (partial sums in scratch)
        src = np.where(block.reduce[row], block.lists.src, 0)
        order = np.lexsort((src, block.lists.dst, row))
        keys = np.stack([row, block.lists.dst, src])[:, order]
        bad[row[order][1:][(keys[:, 1:] == keys[:, :-1]).all(axis=0)]] = True
    return bad
