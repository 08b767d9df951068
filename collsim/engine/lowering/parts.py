"""The parts of a lowered schedule: phases that stay rolled, and runs of phases that are written out.

Here are the dependencies of their transfers: inside a part, and on what the parts before it have written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collsim.engine.lowering.row_dependencies import Found, Rolled, rolled
from collsim.engine.lowering.written import Piece, Written, write_out
from collsim.engine.memory import refuse_beyond_memory
from collsim.schedule import Repeat, Schedule
from collsim.schedule.block import INT32
from collsim.schedule.dependencies import locations
from collsim.schedule.model import SCRATCH

__all__ = ["Part", "Waits", "chunks_read", "parts_of", "waits_of"]

Array = npt.NDArray[Any]

MOST_OPEN = 2**24
"""Reads of a phase that may look for their writers in earlier phases one by one; with more it is written out."""
WRITTEN_BYTES = 120
"""A transfer that is written out, besides its schedule, at the most."""


@dataclass(frozen=True, eq=False)
class Part:
    """A phase that stays rolled (``times`` iterations of its rows), or phases that are written out (once).

    ``first`` is the number of its first node, ``first_step`` of its first step, ``steps`` those of an iteration.
    """

    form: Rolled | Written
    inside: Found | None
    times: int
    rows: int
    first: int
    first_step: int
    steps: int

    def latest(self, address: Array) -> tuple[Array, Array, Array]:
        """Return (query, node, whether a copy was found by query) of the writers that count after the part."""
        found = self.form.latest(address)
        back = self.times - found.distance if isinstance(self.form, Rolled) else 0
        return found.query, self.first + back * self.rows + found.row, found.copied >= 0


class Waits(NamedTuple):
    """Predecessors that follow from data: of rows inside their part (rows counted from 0 in each), and of nodes."""

    dep_ptr: list[Array]
    dep_row: list[Array]
    dep_distance: list[Array]
    node: Array
    pred: Array


def parts_of(schedule: Schedule, sizes: Array, keep: bool) -> list[Part]:
    """Cut a schedule into parts; with ``keep`` phases stay rolled where they can.

    Raises
    ------
    InputError
        If there is not enough memory to write out the others.
    """
    plans: list[tuple[Rolled | list[Piece], Found | None, int, int]] = []  # form, inside, first node, first step
    node = step = written = 0
    for phase in schedule.phases:
        if not phase.transfers:
            continue
        form = rolled(schedule, phase) if keep and phase.times > 1 and _sizes_fit(phase, sizes) else None
        inside = form.inside() if form is not None else None
        if form is not None and inside is not None and (not node or _open_reads(phase, inside) <= MOST_OPEN):
            plans.append((form, inside, node, step))
        else:
            written += phase.transfers
            most = max(1, INT32 // phase.block.steps)
            for start in range(0, phase.times, most):
                piece = Piece(phase, start, min(start + most, phase.times))
                now = node + start * len(phase.block), step + start * phase.block.steps
                last = plans[-1] if plans else None
                end = now[1] + (piece.stop - start) * phase.block.steps
                if last is not None and isinstance(last[0], list) and end - last[3] <= INT32:
                    last[0].append(piece)
                else:
                    plans.append(([piece], None, *now))
        node, step = node + phase.transfers, step + phase.steps
    refuse_beyond_memory(
        written * WRITTEN_BYTES, f"{written:,} transfers, written out,", "expected fewer ranks, slices or channels"
    )
    parts = []
    for plan, inside, first, first_step in plans:
        if isinstance(plan, Rolled):
            block = plan.phase.block
            parts.append(Part(plan, inside, plan.phase.times, len(block), first, first_step, block.steps))
        else:
            out = write_out(schedule, plan)
            parts.append(Part(out, None, 1, len(out), first, first_step, int(out.step[-1]) + 1))
    return parts


def _sizes_fit(phase: Repeat, sizes: Array) -> bool:
    """Whether the size of a row in an iteration is that of its chunk."""
    block = phase.block
    if sizes.min() == sizes.max():
        return True
    return bool((block.count == 1).all() and (block.src_chunk == block.dst_chunk).all())


def _reach(phase: Repeat, inside: Found) -> Array:
    """Return for each row in how many iterations, from the first on, it reads what was there before the phase."""
    return np.where(inside.copied < 0, phase.times, inside.copied)


def _open_reads(phase: Repeat, inside: Found) -> int:
    return int((_reach(phase, inside) * phase.block.count).sum())


def chunks_read(schedule: Schedule, phase: Repeat, row: Array, k: Array) -> tuple[Array, Array]:
    """Return the chunks that rows read in iterations: (which of the rows, chunk)."""
    block = phase.block
    window = np.broadcast_to(np.asarray(phase.window, dtype=np.int64), (len(block),))[row]
    window = np.where(window == 0, schedule.chunks, window)
    shift = np.broadcast_to(np.asarray(phase.shift, dtype=np.int64), (len(block),))[row]
    chunk, count = block.src_chunk[row].astype(np.int64), block.count[row].astype(np.int64)
    base = chunk - chunk % window
    place = chunk - base + k * shift
    if (count == 1).all():
        return np.arange(len(row)), base + place % window
    query = np.repeat(np.arange(len(row)), count)
    number = np.arange(len(query)) - np.repeat(np.cumsum(count) - count, count)
    return query, base[query] + (place[query] + number * block.stride[row][query]) % window[query]


def waits_of(schedule: Schedule, parts: list[Part]) -> Waits | None:
    """Return who waits for whom; None if scratch is read that nobody has written."""
    waits = Waits([], [], [], *(np.zeros(0, dtype=np.int64),) * 2)
    nodes, preds = [waits.node], [waits.pred]
    for i, part in enumerate(parts):
        find = _rolled_waits if isinstance(part.form, Rolled) else _written_waits
        node, address, scratch, met = find(schedule, part, waits, i > 0)
        node, pred, unmet = _earlier(parts[:i], node, address, met)
        if (unmet & scratch).any():
            return None
        nodes.append(node)
        preds.append(pred)
    return waits._replace(node=np.concatenate(nodes), pred=np.concatenate(preds))


def _rolled_waits(schedule: Schedule, part: Part, waits: Waits, is_later: bool) -> tuple[Array, Array, Array, Array]:
    """Add the predecessors inside a part; return the reads of what was there before.

    These are (node, place in memory, whether that is scratch, whether something inside has written it).
    """
    assert isinstance(part.form, Rolled)
    assert part.inside is not None
    phase, inside = part.form.phase, part.inside
    block = phase.block
    waits.dep_ptr.append(np.concatenate(([0], np.cumsum(np.bincount(inside.query, minlength=part.rows)))))
    waits.dep_row.append(inside.row.astype(np.int32))
    waits.dep_distance.append(inside.distance.astype(np.int32))
    scratch = block.src_buffer == SCRATCH
    reach = _reach(phase, inside) if is_later else np.where(scratch, np.minimum(_reach(phase, inside), 1), 0)
    row = np.repeat(np.arange(part.rows), reach)
    k = np.arange(len(row)) - np.repeat(np.cumsum(reach) - reach, reach)
    nearest = np.full(part.rows, phase.times)
    np.minimum.at(nearest, inside.query, inside.distance)
    query, chunk = chunks_read(schedule, phase, row, k)
    row, k = row[query], k[query]
    address = locations(schedule, block.src[row], block.src_buffer[row], chunk)
    return part.first + k * part.rows + row, address, scratch[row], nearest[row] <= k


def _written_waits(schedule: Schedule, part: Part, waits: Waits, is_later: bool) -> tuple[Array, Array, Array, Array]:
    """Add the predecessors inside a part; return the reads of what was there before as `_rolled_waits` does."""
    from collsim.engine.lowering.last_writer import MET, OPEN

    assert isinstance(part.form, Written)
    form = part.form
    dep_ptr, dep_row, said = form.follow(schedule)
    waits.dep_ptr.append(dep_ptr)
    waits.dep_row.append(dep_row)
    waits.dep_distance.append(dep_row[:0])
    if is_later:
        entry = np.flatnonzero(said & OPEN)
    elif (form.src_buffer == SCRATCH).any():
        entry = np.flatnonzero(said == OPEN)
    else:
        entry = np.zeros(0, dtype=np.int64)
    row = form.owner(entry)
    address = form.address(schedule, "src", entry)
    return part.first + row, address, form.src_buffer[row] == SCRATCH, (said[entry] & MET) > 0


def _earlier(parts: list[Part], node: Array, address: Array, met: Array) -> tuple[Array, Array, Array]:
    """Match reads with the writers of earlier parts; return (node, predecessor), and which found none at all."""
    met = met.copy()
    nodes, preds = [node[:0]], [node[:0]]
    active = np.arange(len(node))
    for part in reversed(parts):
        if not len(active):
            break
        query, pred, copied = part.latest(address[active])
        nodes.append(node[active[query]])
        preds.append(pred)
        met[active[query]] = True
        active = active[~copied]
    found, pred = np.concatenate(nodes), np.concatenate(preds)
    order = np.lexsort((pred, found))
    found, pred = found[order], pred[order]
    new = np.ones(len(found), dtype=np.bool_)  # several chunks of a message may wait for one other message
    new[1:] = (np.diff(found) != 0) | (np.diff(pred) != 0)
    return found[new], pred[new], ~met
