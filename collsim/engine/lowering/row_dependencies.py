"""Dependencies between the rows of a repeat in closed form: (row, predecessor row, iterations back).

In iteration k a row visits the chunk ``base + (offset + k * shift) % window``. Where a reader and a writer have equal
shift and window they meet d iterations apart, ``d * shift = o_w - o_r (mod window)``. Offsets that differ by no
multiple of ``g = gcd(shift, window)`` never meet; the others lie on a circle of ``window / g`` places on which every
row goes one place further in each iteration. So the predecessors of a row are the writers that follow it on its circle,
nearest first, up to the first that copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collsim.schedule import Repeat, Schedule
from collsim.schedule.block import Block
from collsim.schedule.dependencies import locations
from collsim.schedule.expand import inverses

__all__ = ["Found", "Rolled", "rolled"]

Array = npt.NDArray[Any]

SHAPE = ("window", "width", "move", "unit", "start")


class Found(NamedTuple):
    """Writers that queries wait for, sorted by query, latest first.

    ``copied`` gives by query how many iterations back a copy was found, after which nothing earlier counts; or -1.
    """

    query: Array
    row: Array
    distance: Array
    copied: Array


@dataclass(frozen=True, eq=False)
class _Sets:
    """The chunks of each row on one side: every set is one of the equal parts into which its window is cut.

    Attributes
    ----------
    address
        Place in memory of the first chunk of the window.
    window, width, move
        Chunks of the window; number of parts; parts by which the set moves on in an iteration.
    unit, start
        Chunks of a part that lie side by side; where the first part begins.
    offset
        Number of the part in iteration 0.
    regular
        Whether this is so; if not, the other values mean nothing.
    """

    address: Array
    window: Array
    width: Array
    move: Array
    unit: Array
    start: Array
    offset: Array
    regular: Array


def _sets(schedule: Schedule, block: Block, side: str, window: Array, shift: Array) -> _Sets:
    end, buffer, chunk = (getattr(block, side + part) for part in ("", "_buffer", "_chunk"))
    offset = chunk % window
    address = locations(schedule, end, buffer, chunk - offset)
    one = np.ones(len(block), dtype=np.int64)
    if (block.count == 1).all():
        return _Sets(address, window, window, shift, one, 0 * one, offset, one > 0)
    count, stride = block.count.astype(np.int64), block.stride.astype(np.int64)
    # a run of chunks side by side, or all chunks that are a multiple of the stride apart
    run = (count > 1) & (np.abs(stride) == 1)
    apart = np.gcd(stride, window)
    even = (count > 1) & ~run & (count * apart == window)
    offset = np.where(run & (stride < 0), (offset - count + 1) % window, offset)
    unit = np.where(run, count, 1)
    width = np.where(run, window // unit, np.where(even, apart, window))
    start = offset % unit
    regular = (count == 1) | even | (run & (window % unit == 0) & (shift % unit == 0))
    return _Sets(address, window, width, shift // unit % width, unit, start, (offset - start) // unit % width, regular)


@dataclass(frozen=True, eq=False)
class Rolled:
    """A repeat whose dependencies are those of its rows.

    Frames are the distinct windows that are written to; ``period`` is the number of places on their circles, of which
    each has ``circles``, numbered from ``first_circle``. ``place`` sorts the writers by circle, place, and latest step
    first; it is ``(circle * span + place) * levels + levels - 1 - level``, circles counted as in ``known``.
    """

    phase: Repeat
    address: Array
    window: Array
    width: Array
    unit: Array
    start: Array
    circles: Array
    first_circle: Array
    inverse: Array
    period: Array
    known: Array
    known_ptr: Array
    span: int
    levels: int
    level: Array
    writer: Array
    place: Array
    spot: Array
    reads: Array
    read_frame: Array
    read_offset: Array

    def _circle(self, frame: Array, offset: Array) -> tuple[Array, Array]:
        """Return the circle and the place on it."""
        g = self.circles[frame]
        spot = offset // g * self.inverse[frame] % self.period[frame]
        return self.first_circle[frame] + offset % g, spot

    def _follow(self, frame: Array, circle: Array, spot: Array, level: Array | int) -> Found:
        """Return the writers met on circles from a place on; of that place only those of earlier steps than level."""
        times, queries = self.phase.times, len(frame)
        known = np.minimum(np.searchsorted(self.known, circle), len(self.known) - 1)
        there = self.known[known] == circle
        low, high = self.known_ptr[known], self.known_ptr[known + 1]
        key = (known * self.span + spot) * self.levels
        begin = np.searchsorted(self.place, key)
        at = np.searchsorted(self.place, key + self.levels - level)
        left = np.where(there, high - at + begin - low, 0)
        copied = np.full(queries, -1, dtype=np.int64)
        parts: list[tuple[Array, Array, Array]] = [(np.zeros(0, dtype=np.int64),) * 3]
        active = np.flatnonzero(left > 0)
        at, left = at[active], left[active]
        low, high, spot, period = low[active], high[active], spot[active], self.period[frame[active]]
        copies = ~self.phase.block.reduce
        while len(active):
            at = np.where(at == high, low, at)
            row = self.writer[at]
            distance = (self.spot[at] - spot) % period
            near = distance < times
            parts.append((active[near], row[near], distance[near]))
            last = near & copies[row]
            copied[active[last]] = distance[last]
            on = near & ~last & (left > 1)
            active, at, left = active[on], at[on] + 1, left[on] - 1
            low, high, spot, period = low[on], high[on], spot[on], period[on]
        query, row, distance = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(query, kind="stable")
        return Found(query[order], row[order], distance[order], copied)

    def inside(self) -> Found:
        """Return the predecessors of each row inside the repeat; queries are rows."""
        found = self._follow(self.read_frame, *self._circle(self.read_frame, self.read_offset), self.level[self.reads])
        copied = np.full(len(self.phase.block), -1, dtype=np.int64)
        copied[self.reads] = found.copied
        return Found(self.reads[found.query], found.row, found.distance, copied)

    def latest(self, address: Array) -> Found:
        """Return the writers of places in memory that count after the repeat; distance 1 is the last iteration."""
        frame = np.maximum(np.searchsorted(self.address, address, side="right") - 1, 0)
        offset = address - self.address[frame]
        touched = np.flatnonzero((offset >= 0) & (offset < self.window[frame]))
        frame, offset = frame[touched], offset[touched]
        offset = (offset - self.start[frame]) % self.window[frame] // self.unit[frame] % self.width[frame]
        circle, spot = self._circle(frame, offset)
        found = self._follow(frame, circle, (spot - (self.phase.times - 1)) % self.period[frame], self.levels)
        copied = np.full(len(address), -1, dtype=np.int64)
        copied[touched] = found.copied + (found.copied >= 0)
        return Found(touched[found.query], found.row, found.distance + 1, copied)


def rolled(schedule: Schedule, phase: Repeat) -> Rolled | None:
    """Return the form of a repeat on its rows, or None where it has to be written out.

    That is where a written chunk is visited twice by a row, where windows, shifts or sets of the rows that share memory
    differ (or sets overlap in part), and where chunk sets are lists.

    Examples
    --------
    In ring reduce_scatter each row reads what its left neighbour's row wrote one iteration ago:

    >>> from collsim.algorithms import ring_reduce_scatter
    >>> schedule = ring_reduce_scatter(4)
    >>> query, row, distance, copied = rolled(schedule, schedule.phases[0]).inside()
    >>> query.tolist(), row.tolist(), distance.tolist(), copied.tolist()
    ([0, 1, 2, 3], [3, 0, 1, 2], [1, 1, 1, 1], [-1, -1, -1, -1])
    """
    block = phase.block
    rows = len(block)
    if block.lists is not None:
        return None
    window = np.broadcast_to(np.where(np.asarray(phase.window) == 0, schedule.chunks, phase.window), (rows,))
    window = window.astype(np.int64)
    shift = np.broadcast_to(np.asarray(phase.shift, dtype=np.int64), (rows,)) % window
    writes, reads = (_sets(schedule, block, side, window, shift) for side in ("dst", "src"))
    address, first, frame = np.unique(writes.address, return_index=True, return_inverse=True)
    shape = {name: getattr(writes, name)[first] for name in SHAPE}
    if not writes.regular.all() or any((getattr(writes, name) != shape[name][frame]).any() for name in SHAPE):
        return None
    if (address[:-1] + shape["window"][:-1] > address[1:]).any():
        return None  # windows that overlap in part
    circles = np.gcd(shape["move"], shape["width"])
    period = shape["width"] // circles
    if (phase.times > period).any():
        return None  # a row visits a chunk twice
    seen = np.searchsorted(address, reads.address)
    same = address[np.minimum(seen, len(address) - 1)] == reads.address
    before = np.maximum(seen - 1, 0)
    overlap = (seen > 0) & (address[before] + shape["window"][before] > reads.address)
    overlap |= (seen < len(address)) & (address[np.minimum(seen, len(address) - 1)] < reads.address + reads.window)
    if (overlap & ~same).any():
        return None
    readers = np.flatnonzero(same)
    read_frame = seen[readers]
    if not reads.regular[readers].all():
        return None
    if any((getattr(reads, name)[readers] != shape[name][read_frame]).any() for name in SHAPE):
        return None
    first_circle = np.cumsum(circles) - circles
    inverse = inverses(shape["move"] // circles, period)
    circle = first_circle[frame] + writes.offset % circles[frame]
    spot = writes.offset // circles[frame] * inverse[frame] % period[frame]
    known, which, counts = np.unique(circle, return_inverse=True, return_counts=True)
    steps, level = np.unique(block.step, return_inverse=True)
    span, levels = int(period.max()), len(steps)
    if len(known) * span * levels >= 2**62:
        return None
    place = (which * span + spot) * levels + (levels - 1 - level)
    writer = rows - 1 - np.argsort(place[::-1], kind="stable")  # of equal ones the last row first
    return Rolled(
        phase, address, shape["window"], shape["width"], shape["unit"], shape["start"], circles, first_circle, inverse,
        period, known, np.concatenate(([0], np.cumsum(counts))), span, levels, level, writer, place[writer],
        spot[writer], readers, read_frame, reads.offset[readers],
    )  # fmt: skip
