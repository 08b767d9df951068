"""Columns of transfers, and their repetition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import ScheduleError

__all__ = [
    "BUFFERS", "COLUMNS", "INPUT", "INT32", "OUTPUT", "SCRATCH", "Block", "ChunkLists", "Repeat",
    "items", "names", "short", "whole",
]  # fmt: skip

Array = npt.NDArray[Any]

BUFFERS = ("input", "output", "scratch")
INPUT, OUTPUT, SCRATCH = range(3)

INT32 = 2**31 - 1

COLUMNS: dict[str, Any] = {
    "step": np.int32,
    "src": np.int32,
    "src_buffer": np.int8,
    "src_chunk": np.int32,
    "dst": np.int32,
    "dst_buffer": np.int8,
    "dst_chunk": np.int32,
    "count": np.int32,
    "stride": np.int32,
    "reduce": np.bool_,
    "channel": np.int32,
}


def short(value: Any) -> str:
    """Text of a value in one line that is not too long for a message."""
    try:
        text = " ".join(line.strip() for line in repr(value).splitlines())
    except Exception:  # numbers of thousands of digits, things that cannot be shown
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else text[:77] + "..."


def whole(name: str, value: Any, limit: int = INT32) -> int:
    """Return a whole number as an int, or refuse it."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ScheduleError(f"{name}: expected a whole number, got {short(value)}")
    if abs(int(value)) > limit:
        raise ScheduleError(f"{name}: expected a whole number up to {limit}, got {short(value)}")
    return int(value)


def items(name: str, values: Any, what: str) -> tuple[Any, ...]:
    """Return what can be iterated as a tuple, or refuse it; a text is one thing."""
    try:
        if isinstance(values, (str, bytes)):
            raise TypeError
        return tuple(values)
    except TypeError:
        raise ScheduleError(f"{name}: expected {what}, got {short(values)}") from None


def names(name: str, values: Any) -> tuple[str, ...]:
    """Return names as a tuple, or refuse what is none."""
    found = items(name, values, "a list of names")
    for value in found:
        if not isinstance(value, str):
            raise ScheduleError(f"{name}: expected names of nodes, got {short(value)}")
    return tuple(map(str, found))


def _column(name: str, values: Any, dtype: Any, rows: int) -> Array:
    """Return a column of its own (nobody else can write to it), with every value as it was given."""
    try:
        given = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise ScheduleError(f"{name}: expected one value a row, got {short(values)}") from None
    if given.shape != (rows,):
        raise ScheduleError(f"{name}: expected one value a row ({rows}), got {given.shape}")
    if given.dtype.kind not in "iub" and rows:
        raise ScheduleError(f"{name}: expected whole numbers, got {given.dtype}")
    column = np.array(given, dtype=dtype)
    if (column != given).any():
        bad = given[column != given][0]
        raise ScheduleError(f"{name}: expected numbers that fit {np.dtype(dtype).name}, got {bad}")
    return column


@dataclass(frozen=True, eq=False)
class ChunkLists:
    """Irregular chunk sets of the rows of a block, in CSR form.

    Row i has the chunks ``src[offsets[i]:offsets[i + 1]]`` (and ``dst`` alike); a row with an empty range is regular
    and described by its ``chunk``, ``count`` and ``stride``.
    """

    offsets: Array
    src: Array
    dst: Array

    def __post_init__(self) -> None:
        for name, dtype in (("offsets", np.int64), ("src", np.int32), ("dst", np.int32)):
            values = _column(f"lists: {name}", getattr(self, name), dtype, len(getattr(self, name)))
            values.flags.writeable = False
            object.__setattr__(self, name, values)
        ends = [] if not len(self.offsets) else [self.offsets[0], self.offsets[-1] - len(self.src)]
        if len(self.src) != len(self.dst) or ends != [0, 0] or (np.diff(self.offsets) < 0).any():
            raise ScheduleError(
                "lists: expected offsets that ascend from 0 to the number of chunks, alike on both sides"
            )


@dataclass(frozen=True, eq=False)
class Block:
    """Columns of transfers, one row each, sorted by ``step`` (which counts from 0 within the block).

    The chunks of a row are ``chunk + i * stride`` for ``i < count``, or its list; one row is one message. ``src ==
    dst`` is a local operation. All rows of a step read the state before the step. ``via`` gives the index of a path in
    `Schedule.paths`, or -1.
    """

    step: Array
    src: Array
    src_buffer: Array
    src_chunk: Array
    dst: Array
    dst_buffer: Array
    dst_chunk: Array
    count: Array
    stride: Array
    reduce: Array
    channel: Array
    lists: ChunkLists | None = None
    via: Array | None = None

    def __post_init__(self) -> None:
        rows = len(self.step)
        columns = {name: _column(f"block: {name}", getattr(self, name), kind, rows) for name, kind in COLUMNS.items()}
        if rows and (columns["step"][0] < 0 or (np.diff(columns["step"]) < 0).any()):
            raise ScheduleError("block: rows must be sorted by step, and steps count from 0; use ScheduleBuilder")
        # one spelling for each block: equal blocks have equal columns
        if self.lists is not None:
            if len(self.lists.offsets) != rows + 1:
                raise ScheduleError(f"block: lists: expected {rows + 1} offsets, got {len(self.lists.offsets)}")
            listed = np.diff(self.lists.offsets) > 0
            first = self.lists.offsets[:-1][listed]
            columns["src_chunk"][listed], columns["dst_chunk"][listed] = self.lists.src[first], self.lists.dst[first]
            columns["count"][listed] = columns["stride"][listed] = 1
            if not listed.any():
                object.__setattr__(self, "lists", None)
        if self.via is not None:
            columns["via"] = _column("block: via", self.via, np.int32, rows)
            if (columns["via"] == -1).all():
                object.__setattr__(self, "via", None)
                del columns["via"]
        for name, column in columns.items():
            column.flags.writeable = False
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.step)

    @property
    def steps(self) -> int:
        """Number of steps of one run of the block."""
        return int(self.step[-1]) + 1 if len(self.step) else 0

    @property
    def is_aligned(self) -> bool:
        """Whether every row moves chunks to the same place of the same buffer."""
        return (
            (self.lists is None or np.array_equal(self.lists.src, self.lists.dst))
            and bool((self.src_chunk == self.dst_chunk).all())
            and bool((self.src_buffer == self.dst_buffer).all())
        )


@dataclass(frozen=True, eq=False)
class Repeat:
    """A block run ``times`` times; in iteration k chunk c stands for ``w * (c // w) + (c % w + k * shift) % w``.

    Parameters
    ----------
    block
        What is repeated.
    times
        How often, at least 0.
    shift, window
        One value, or an array with one value a row. A window of 0 stands for the number of chunks of the schedule.
        Chunk sets (``count``, ``stride``) wrap inside their window too.
    """

    block: Block
    times: int = 1
    shift: Any = 0
    window: Any = 0

    def __post_init__(self) -> None:
        if not isinstance(self.block, Block):
            raise ScheduleError(f"repeat: block: expected a Block, got {type(self.block).__name__}")
        object.__setattr__(self, "times", whole("repeat: times", self.times))
        if self.times < 0:
            raise ScheduleError(f"repeat: times: expected at least 0, got {self.times}")
        for name in ("shift", "window"):
            value = getattr(self, name)
            if np.ndim(value):
                array = _column(f"repeat: {name}", value, np.int32, len(self.block))
                array.flags.writeable = False
                uniform = not len(array) or bool((array == array[0]).all())
                value = int(array[0]) if uniform and len(array) else 0 if uniform else array
            else:
                value = whole(f"repeat: {name}", value)
            object.__setattr__(self, name, value)

    @property
    def steps(self) -> int:
        """Number of steps that all iterations take."""
        return self.block.steps * self.times

    @property
    def transfers(self) -> int:
        """Number of transfers of all iterations."""
        return len(self.block) * self.times
