"""Build a schedule from calls whose arguments are numbers or arrays: Python's cost grows with the calls only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.collective import Collective
from collsim.errors import ScheduleError, did_you_mean
from collsim.schedule.block import BUFFERS, COLUMNS, Block, ChunkLists, Repeat, items, names, short, whole
from collsim.schedule.edges import Edge, Edges
from collsim.schedule.model import Schedule

__all__ = ["ScheduleBuilder"]

Array = npt.NDArray[Any]


class ScheduleBuilder:
    """Collects transfers into blocks and repeats.

    Parameters
    ----------
    collective
        What the schedule shall implement.
    chunks
        Number of chunks of the input and output buffers.
    scratch, in_place, order, layout, places
        As in `Schedule`.

    Examples
    --------
    Ring reduce_scatter: in step s rank r sends chunk r-1-s to its right neighbour, which adds it.

    >>> import numpy as np
    >>> from collsim import Collective, check
    >>> b = ScheduleBuilder(Collective("reduce_scatter", 4), chunks=4)
    >>> r = np.arange(4)
    >>> with b.repeat(3, shift=-1):
    ...     b.reduce(r, (r + 1) % 4, (r - 1) % 4)
    >>> print(b.build())
    reduce_scatter ranks=4 chunks=4
    repeat 3 shift=-1
      step 0
        0 => 1  3
        1 => 2  0
        2 => 3  1
        3 => 0  2
    >>> check(b.build()).complete
    True
    """

    def __init__(
        self,
        collective: Collective,
        chunks: int,
        *,
        scratch: int = 0,
        in_place: bool = True,
        order: Sequence[int] | None = None,
        layout: Sequence[tuple[int, int]] | None = None,
        places: Sequence[str] = (),
    ) -> None:
        self._collective, self._chunks = collective, chunks
        self._scratch, self._in_place = scratch, in_place
        self._order = None if order is None else items("order", order, "places of chunks")
        self._layout = None if layout is None else items("layout", layout, "runs of (count, elements)")
        self._places = names("places", places)
        self._phases: list[Repeat] = []
        self._calls: list[dict[str, Any]] = []
        self._paths: dict[tuple[str, ...], int] = {}
        self._repeat: tuple[int, int, int] | None = None

    def copy(self, src: Any, dst: Any, chunk: Any = 0, **columns: Any) -> None:
        """Add transfers that copy.

        Parameters
        ----------
        src, dst
            Ranks (places count on after the ranks). Scalars or arrays; all arguments are broadcast together.
        chunk
            First chunk, on both sides unless ``dst_chunk`` is given.
        step
            Step within the block, from 0 (default 0). Outside `repeat` it counts from the end of the last repeat.
        count, stride
            The chunks are ``chunk + i * stride`` for ``i < count`` (default one chunk); one row is one message.
        channel
            Number that deals out equal paths and parallel links (default 0).
        dst_chunk, src_buffer, dst_buffer
            The other side's first chunk; names of buffers (default ``"output"``).
        chunks, dst_chunks
            Irregular sets: one list of chunks for a single row, or one a row.
        via
            Path, as a tuple of names on the way: of topology nodes, or of links (``"gpu0->gpu1#1"``) that it takes.
        shift, window
            How the chunks of these rows move on in each iteration, where it differs from the repeat's.
        """
        self._add(src, dst, chunk, False, columns)

    def reduce(self, src: Any, dst: Any, chunk: Any = 0, **columns: Any) -> None:
        """Add transfers that the receiver adds to its own chunk; arguments as in `copy`."""
        self._add(src, dst, chunk, True, columns)

    @contextmanager
    def repeat(self, times: int, *, shift: int = 0, window: int = 0) -> Iterator[None]:
        """Collect what is added inside as one block that is run ``times`` times.

        Parameters
        ----------
        times
            Number of iterations (0 leaves the block out).
        shift
            By how much each chunk moves on from one iteration to the next.
        window
            Chunks wrap inside windows of this many; 0 stands for all chunks.
        """
        if self._repeat is not None:
            raise ScheduleError("repeat: repeats do not nest; write the inner one out")
        self._close(1, 0, 0)
        self._repeat = (whole("repeat: times", times), whole("repeat: shift", shift), whole("repeat: window", window))
        try:
            yield
            self._close(*self._repeat)
        finally:
            self._repeat = None
            self._calls.clear()

    def build(self, edges: Iterable[Edge] = ()) -> Schedule:
        """Return the schedule.

        Raises
        ------
        ScheduleError
            If a row names a rank, chunk or buffer that does not exist.
        """
        self._close(1, 0, 0)
        return Schedule(
            self._collective,
            self._chunks,
            tuple(self._phases),
            scratch=self._scratch,
            in_place=self._in_place,
            edges=Edges.of(edges),
            order=self._order,
            layout=self._layout,
            paths=tuple(self._paths),
            places=self._places,
        )

    def _add(self, src: Any, dst: Any, chunk: Any, reduce: bool, given: dict[str, Any]) -> None:
        known = {"step", "count", "stride", "channel", "dst_chunk", "src_buffer", "dst_buffer", "chunks", "dst_chunks",
                 "via", "shift", "window"}  # fmt: skip
        for name in given:
            if name not in known:
                raise ScheduleError(f"builder: no column {name!r}" + did_you_mean(name, known))
        lists = _as_lists(given.pop("chunks", None))
        dst_lists = _as_lists(given.pop("dst_chunks", None)) or lists
        if lists is not None:
            regular = sorted({"count", "stride", "dst_chunk"} & set(given))
            if regular:
                raise ScheduleError(f"builder: chunks: expected lists only, got {', '.join(regular)} too")
            chunk = 0  # the lists tell
        elif dst_lists is not None:
            raise ScheduleError("builder: dst_chunks: expected chunks too, for the side of the sender")
        via = given.pop("via", None)
        path = None if via is None else names("builder: via", via)
        call: dict[str, Any] = {
            "step": 0, "src": src, "src_buffer": "output", "src_chunk": chunk, "dst": dst, "dst_buffer": "output",
            "dst_chunk": chunk, "count": 1, "stride": 1, "reduce": reduce, "channel": 0, "shift": None, "window": None,
        }  # fmt: skip
        call.update(given)
        for side in ("src_buffer", "dst_buffer"):
            if not isinstance(call[side], str) or call[side] not in BUFFERS:
                raise ScheduleError(
                    f"builder: {side}: expected one of {', '.join(BUFFERS)}, got {short(call[side])}"
                    + did_you_mean(str(call[side]), BUFFERS)
                )
            call[side] = BUFFERS.index(call[side])
        for name, value in call.items():
            if value is None and name not in ("shift", "window"):
                raise ScheduleError(f"builder: {name}: expected a number or a row of them, got None")
        shapes = {name: _shape(name, value) for name, value in call.items() if value is not None}
        if max(map(len, shapes.values())) > 1:
            name = max(shapes, key=lambda name: len(shapes[name]))
            raise ScheduleError(f"builder: {name}: expected a number or a row of them, got {shapes[name]}; use ravel()")
        try:
            rows = int(np.broadcast_shapes((1,), *shapes.values())[0])
        except ValueError:
            lengths = ", ".join(f"{name} {shape[0]}" for name, shape in shapes.items() if shape)
            raise ScheduleError(f"builder: expected rows of one length, got {lengths}") from None
        if not rows:
            return
        if lists is not None and (len(lists) != rows or list(map(len, dst_lists or [])) != list(map(len, lists))):
            raise ScheduleError(f"builder: chunks: expected {rows} lists, of equal lengths on both sides")
        call["rows"], call["lists"], call["dst_lists"] = rows, lists, dst_lists
        call["via"] = -1 if path is None else self._paths.setdefault(path, len(self._paths))
        self._calls.append(call)

    def _close(self, times: int, shift: int, window: int) -> None:
        """Turn the rows collected so far into a block."""
        calls, self._calls = self._calls, []
        if not calls or not times:
            return
        order = _order(calls)
        columns = {name: _gathered(calls, name, 0, kind, order) for name, kind in COLUMNS.items()}
        shifts, windows = (
            _gathered(calls, name, value, np.int32, order) for name, value in (("shift", shift), ("window", window))
        )
        via = None
        if any(call["via"] >= 0 for call in calls):
            via = _gathered(calls, "via", 0, np.int32, order)
        lists = None
        if any(call["lists"] is not None for call in calls):
            lists = _gather(calls)
            lists = lists if order is None else [lists[i] for i in order]
        calls.clear()  # their columns may be large
        chunk_lists = None
        if lists is not None:
            flat_src = [c for part in lists for c in part[0]]
            flat_dst = [c for part in lists for c in part[1]]
            offsets = np.concatenate(([0], np.cumsum([len(part[0]) for part in lists])))
            chunk_lists = ChunkLists(offsets, np.asarray(flat_src), np.asarray(flat_dst))
        block = Block(**columns, lists=chunk_lists, via=via)
        self._phases.append(Repeat(block, times, shifts, windows))


def _order(calls: list[dict[str, Any]]) -> Array | None:
    """Return the rows of all calls in the order of their steps, None if they have it."""
    if all(np.ndim(call["step"]) == 0 for call in calls) and all(a["step"] <= b["step"] for a, b in pairwise(calls)):
        return None
    steps = _gathered(calls, "step", 0, np.int32, None)
    if not (np.diff(steps) < 0).any():
        return None
    if steps.dtype.kind == "i" and steps.min() >= 0 and steps.max() < 2**15:
        steps = steps.astype(np.int16)  # numbers of 16 bits are sorted by counting
    return np.argsort(steps, kind="stable")


def _gathered(calls: list[dict[str, Any]], name: str, default: int, kind: Any, order: Array | None) -> Array:
    """Return a column of all calls in order, as narrow as it will be in the block; it refuses what does not fit."""
    values = [np.asarray(default if call[name] is None else call[name]) for call in calls]
    first = values[0]
    if all(value.ndim == 0 and value.dtype == first.dtype and value == first for value in values):
        return np.broadcast_to(first, (sum(call["rows"] for call in calls),))
    low, high = (0, 1) if kind is np.bool_ else (np.iinfo(kind).min, np.iinfo(kind).max)
    fits = all(value.dtype.kind in "iub" and low <= value.min() and value.max() <= high for value in values)
    parts = [np.broadcast_to(value, (call["rows"],)) for value, call in zip(values, calls, strict=True)]
    column = np.concatenate(parts, dtype=kind, casting="unsafe") if fits else np.concatenate(parts)
    return column if order is None else column[order]


def _shape(name: str, value: Any) -> tuple[int, ...]:
    try:
        return np.shape(value)
    except ValueError:  # rows of different lengths
        raise ScheduleError(f"builder: {name}: expected a number or a row of them, got {short(value)}") from None


def _as_lists(value: Any) -> list[list[int]] | None:
    """Turn one list of chunks, or one a row, into a list of lists."""
    if value is None:
        return None
    what = "a list of chunks, or one a row"
    parts = [*items("builder: chunks", value, what)]
    if parts and not np.iterable(parts[0]):
        parts = [parts]
    parts = [items("builder: chunks", part, what) for part in parts]
    if not parts or any(not len(part) for part in parts):
        raise ScheduleError("builder: chunks: expected at least one chunk a row")
    return [[whole("builder: chunks", c) for c in part] for part in parts]


def _gather(calls: list[dict[str, Any]]) -> list[tuple[list[int], list[int]]]:
    """Chunk lists of all rows; empty ones for regular rows."""
    rows: list[tuple[list[int], list[int]]] = []
    for call in calls:
        if call["lists"] is None:
            rows += [([], [])] * call["rows"]
        else:
            rows += list(zip(call["lists"], call["dst_lists"], strict=True))
    return rows
