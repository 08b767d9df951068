"""Random schedules, and the semantics of schedules once more in plain Python: slow and short."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

from collsim import Collective, Schedule, check
from collsim.errors import ProofError, ScheduleError
from collsim.schedule import Block, Repeat
from collsim.schedule.model import INPUT, OUTPUT, SCRATCH, ChunkLists, Transfers

OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce")


class Row(NamedTuple):
    """One transfer written out. Chunks are pairs of source and destination."""

    step: int
    src: int
    src_buffer: int
    dst: int
    dst_buffer: int
    reduce: bool
    channel: int
    via: int
    chunks: tuple[tuple[int, int], ...]

    def reads(self, schedule: Schedule) -> list[tuple[int, int, int]]:
        return [place(schedule, self.src, self.src_buffer, a) for a, _ in self.chunks]

    def writes(self, schedule: Schedule) -> list[tuple[int, int, int]]:
        return [place(schedule, self.dst, self.dst_buffer, b) for _, b in self.chunks]


def place(schedule: Schedule, end: int, buffer: int, chunk: int) -> tuple[int, int, int]:
    return (end, OUTPUT if buffer == INPUT and schedule.in_place else buffer, chunk)


def naive_rows(schedule: Schedule) -> list[Row]:
    """Write out a schedule by the formula of `Repeat`."""
    rows: list[Row] = []
    first = 0
    for phase in schedule.phases:
        b = phase.block
        for k in range(phase.times):
            for i in range(len(b)):
                window = int(phase.window[i] if np.ndim(phase.window) else phase.window) or schedule.chunks
                shift = int(phase.shift[i] if np.ndim(phase.shift) else phase.shift)
                sides = []
                for side in ("src", "dst"):
                    chunk = int(getattr(b, side + "_chunk")[i])
                    chunks = [
                        chunk - chunk % window + (chunk + j * int(b.stride[i])) % window for j in range(b.count[i])
                    ]
                    if b.lists is not None and b.lists.offsets[i] < b.lists.offsets[i + 1]:
                        chunks = getattr(b.lists, side)[b.lists.offsets[i] : b.lists.offsets[i + 1]].tolist()
                    sides.append([window * (c // window) + (c % window + k * shift) % window for c in chunks])
                rows.append(
                    Row(
                        first + k * b.steps + int(b.step[i]), int(b.src[i]), int(b.src_buffer[i]), int(b.dst[i]),
                        int(b.dst_buffer[i]), bool(b.reduce[i]), int(b.channel[i]),
                        -1 if b.via is None else int(b.via[i]), tuple(zip(*sides, strict=True)),
                    )
                )  # fmt: skip
        first += b.steps * phase.times
    return rows


def rows_of(t: Transfers) -> list[Row]:
    """Transfers as rows."""
    columns = (t.step, t.src, t.src_buffer, t.dst, t.dst_buffer, t.reduce, t.channel, t.via)
    pairs = list(zip(t.src_chunks.tolist(), t.dst_chunks.tolist(), strict=True))
    chunks = [tuple(pairs[a:b]) for a, b in zip(t.ptr[:-1].tolist(), t.ptr[1:].tolist(), strict=True)]
    return [Row(*values) for values in zip(*(c.tolist() for c in columns), chunks, strict=True)]


def schedule_of(like: Schedule, rows: Iterable[Row], edges: Sequence[Any] = ()) -> Schedule:
    """Build a schedule of one block from rows, for the collective and the buffers of another schedule."""
    rows = sorted(rows, key=lambda row: row.step)
    names = ("step", "src", "src_buffer", "dst", "dst_buffer", "reduce", "channel")
    columns: dict[str, Any] = {name: [getattr(row, name) for row in rows] for name in names}
    columns["src_chunk"] = [row.chunks[0][0] for row in rows]
    columns["dst_chunk"] = [row.chunks[0][1] for row in rows]
    columns["count"] = columns["stride"] = [1] * len(rows)
    lists = None
    if any(len(row.chunks) > 1 for row in rows):
        flat = np.array([pair for row in rows for pair in row.chunks])
        lists = ChunkLists(np.cumsum([0, *(len(row.chunks) for row in rows)]), flat[:, 0], flat[:, 1])
    block = Block(**columns, lists=lists, via=np.array([row.via for row in rows]))
    return Schedule(
        like.collective, like.chunks, (Repeat(block),) if rows else (), scratch=like.scratch, in_place=like.in_place,
        edges=tuple(edges), order=like.order, paths=like.paths, places=like.places,
    )  # fmt: skip


def naive_predecessors(schedule: Schedule, rows: Sequence[Row], *, zero_copy: bool = False) -> list[set[int]]:
    """The rule of dependencies, looked up backwards for every chunk that is read."""
    found: list[set[int]] = []
    for i, row in enumerate(rows):
        mine: set[int] = set()
        for source in row.reads(schedule):
            for j in range(i - 1, -1, -1):
                if rows[j].step < row.step and source in rows[j].writes(schedule):
                    mine.add(j)
                    if not rows[j].reduce:
                        break
        if zero_copy:
            for target in row.writes(schedule):
                for j in range(i - 1, -1, -1):
                    if rows[j].step < row.step:
                        if target in rows[j].reads(schedule):
                            mine.add(j)
                        if target in rows[j].writes(schedule) and not rows[j].reduce:
                            break
        found.append(mine)
    return found


def exchanges(schedule: Schedule, rows: Sequence[Row]) -> bool:
    """Whether a step reads and writes a place."""
    for step in {row.step for row in rows}:
        now = [row for row in rows if row.step == step]
        if {p for row in now for p in row.reads(schedule)} & {p for row in now for p in row.writes(schedule)}:
            return True
    return False


def naive_verdict(schedule: Schedule, rows: Sequence[Row]) -> str:
    """What a proof must find: 'read' or 'add' (of nothing), 'data', 'order', or nothing wrong ('')."""
    c, s = schedule.collective, schedule
    held: dict[tuple[int, int, int], Counter[tuple[int, int]]] = {}
    for rank in range(c.ranks):
        for chunk in range(s.chunks):
            if c.provides(np.array(rank), s.place_of(np.array(chunk)), s.chunks):
                held[place(s, rank, INPUT, chunk)] = Counter({(rank, chunk): 1})
    for step in sorted({row.step for row in rows}):
        now = [row for row in rows if row.step == step]
        if any(source not in held for row in now for source in row.reads(s)):
            return "read"
        moved = [(row, target, held[source]) for row in now
                 for source, target in zip(row.reads(s), row.writes(s), strict=True)]  # fmt: skip
        for row, target, data in moved:
            if row.reduce and target not in held and row.dst < c.ranks:
                return "add"
            held[target] = held.get(target, Counter()) + data if row.reduce else data
    places = [int(s.place_of(np.array(chunk))) for chunk in range(s.chunks)]
    for rank in range(c.ranks):
        for chunk, at in enumerate(places):
            if c.requires(np.array(rank), np.array(at), s.chunks):
                if c.reduces:
                    expected = Counter({(r, chunk): 1 for r in range(c.ranks)})
                else:
                    source, from_place = c.source(np.array(rank), np.array(at), s.chunks)
                    expected = Counter({(int(source), places.index(int(from_place))): 1})
                if held.get((rank, OUTPUT, chunk)) != expected:
                    return "data"
    return "order" if naive_unordered(s, rows) else ""


def naive_unordered(schedule: Schedule, rows: Sequence[Row]) -> bool:
    """Whether two writes of a place, not both reductions, wait for each other in no way."""
    before: list[set[int]] = []  # everything that a row waits for
    for preds in naive_predecessors(schedule, rows):
        before.append(preds.union(*(before[p] for p in preds)))
    writes = [(i, target) for i, row in enumerate(rows) for target in row.writes(schedule)]
    return any(
        a not in before[b] and not (rows[a].reduce and rows[b].reduce)
        for n, (b, target) in enumerate(writes)
        for a, other in writes[:n]
        if other == target
    )


def naive_unused(schedule: Schedule, rows: Sequence[Row]) -> list[int]:
    """Rows of whose chunks none reaches a result."""
    c, s = schedule.collective, schedule
    need = {
        (rank, OUTPUT, chunk)
        for rank in range(c.ranks)
        for chunk in range(s.chunks)
        if c.requires(np.array(rank), s.place_of(np.array(chunk)), s.chunks)
    }
    unused: list[int] = []
    for step in sorted({row.step for row in rows}, reverse=True):
        now = [(i, row) for i, row in enumerate(rows) if row.step == step]
        used = {i: [a for a, b in zip(row.reads(s), row.writes(s), strict=True) if b in need] for i, row in now}
        unused += [i for i, sources in used.items() if not sources]
        need -= {target for _, row in now if not row.reduce for target in row.writes(s)}
        need |= {source for sources in used.values() for source in sources}
    return sorted(unused)


@st.composite
def repeats(
    draw: st.DrawFn, ends: int, chunks: int, scratch: int, in_place: bool, paths: int = 0, times: int = 6
) -> Repeat:
    """A block of one to five rows with windows, shifts, strides that wrap, and lists."""
    runs = draw(st.integers(0, times))
    rows = draw(st.integers(1, 5))
    uniform = draw(st.booleans())
    shift, window = draw(st.integers(-9, 9)), draw(st.integers(0, chunks))
    columns: dict[str, list[Any]] = {name: [] for name in Block.__dataclass_fields__ if name not in ("lists", "via")}
    shifts, windows, listed = [], [], []
    for _ in range(rows):
        if not uniform:
            shift, window = draw(st.integers(-9, 9)), draw(st.integers(0, chunks))
        width = window or chunks
        buffers = [OUTPUT, INPUT, *([SCRATCH] if scratch >= width else [])]
        sides = [
            draw(st.sampled_from(buffers)),
            draw(st.sampled_from(buffers if in_place else [*buffers[:1], *buffers[2:]])),
        ]
        whole = [(scratch if side == SCRATCH else chunks) // width * width for side in sides]
        n = min(draw(st.sampled_from([0, 0, 0, 1, 2, 3])), whole[1])
        # no row writes one chunk twice
        targets = draw(st.lists(st.integers(0, whole[1] - 1), min_size=n, max_size=n, unique=True))
        listed.append([[draw(st.integers(0, whole[0] - 1)) for _ in range(n)], targets])
        stride = draw(st.integers(-3, 3))
        shifts.append(shift)
        windows.append(window)
        row = {
            "step": draw(st.integers(0, 3)), "src": draw(st.integers(0, ends - 1)), "src_buffer": sides[0],
            "src_chunk": draw(st.integers(0, whole[0] - 1)), "dst": draw(st.integers(0, ends - 1)),
            "dst_buffer": sides[1], "dst_chunk": draw(st.integers(0, whole[1] - 1)),
            "count": min(draw(st.sampled_from([1, 1, 2, 3])), width // math.gcd(stride, width)), "stride": stride,
            "reduce": draw(st.booleans()), "channel": draw(st.integers(0, 2)),
        }  # fmt: skip
        for name, value in row.items():
            columns[name].append(value)
    columns["step"].sort()
    lists = ChunkLists(
        np.cumsum([0, *(len(pair[0]) for pair in listed)]),
        np.array([c for pair in listed for c in pair[0]], np.int32),
        np.array([c for pair in listed for c in pair[1]], np.int32),
    )
    via = np.array([draw(st.integers(-1, paths - 1)) for _ in range(rows)])
    return Repeat(Block(**columns, lists=lists, via=via), runs, shifts, windows)


@st.composite
def schedules(draw: st.DrawFn, *, phases: int = 3, aligned: bool = False, times: int = 6) -> Schedule:
    """A well-formed schedule that need not implement anything."""
    ranks = draw(st.sampled_from([1, 2, 2, 3, 4]))
    chunks = draw(st.sampled_from([1, 2, 3, 4, 6, 8]))
    scratch = draw(st.integers(0, 8))
    in_place = draw(st.booleans())
    paths = draw(st.lists(st.lists(st.text(max_size=3), max_size=2).map(tuple), max_size=2, unique=True))
    parts = [
        draw(repeats(ranks, chunks, scratch, in_place, len(paths), times)) for _ in range(draw(st.integers(0, phases)))
    ]
    if aligned:
        parts = [_align(part) for part in parts]
    order = draw(st.none() | st.permutations(range(chunks)))
    return Schedule(
        Collective(draw(st.sampled_from(["all_reduce", "broadcast", "send_recv"])), ranks), chunks, tuple(parts),
        scratch=scratch, in_place=in_place, order=None if order is None else tuple(order), paths=tuple(paths),
    )  # fmt: skip


def _align(part: Repeat) -> Repeat:
    b = part.block
    columns = {name: getattr(b, name) for name in Block.__dataclass_fields__}
    lists = None if b.lists is None else ChunkLists(b.lists.offsets, b.lists.dst, b.lists.dst)
    return Repeat(
        Block(**{**columns, "src_chunk": b.dst_chunk, "src_buffer": b.dst_buffer, "lists": lists}),
        part.times, part.shift, part.window,
    )  # fmt: skip


def make(
    operation: str, ranks: int, chunks: int, rows: str, *, root: int = 0, edges: Any = (), head: str = ""
) -> Schedule:
    """Build a schedule from rows of text, one step each unless they are joined by ``&``."""
    lines = [f"{operation} ranks={ranks} chunks={chunks} {head} root={root}", "repeat 1"]
    for step, row in enumerate(rows.split(";")):
        lines += [f"step {step}", *row.split("&")]
    return replace(Schedule.from_text("\n".join(lines)), edges=tuple(edges))


def refused(schedule: Schedule, message: str, **place: int | None) -> None:
    """The proof fails with this message, and the error names the place."""
    with pytest.raises(ProofError) as caught:
        check(schedule)
    assert str(caught.value) == message
    assert isinstance(caught.value, ScheduleError)
    for name, value in place.items():
        assert getattr(caught.value, name) == value


def changed(draw: Callable[..., Any], rows: list[Row], schedule: Schedule) -> list[Row]:
    """Drop, repeat or alter a row."""
    rows = list(rows)
    at = draw(st.integers(0, len(rows) - 1))
    row = rows[at]
    how = draw(st.sampled_from(["drop", "again", "step", "reduce", "dst", "src", "chunk", "swap"]))
    ends = st.integers(0, schedule.ranks - 1)
    if how == "drop":
        del rows[at]
    elif how == "again":
        rows.insert(draw(st.integers(0, len(rows))), row._replace(step=draw(st.integers(0, rows[-1].step + 1))))
    elif how == "step":
        rows[at] = row._replace(step=draw(st.integers(0, rows[-1].step + 1)))
    elif how == "reduce":
        rows[at] = row._replace(reduce=not row.reduce)
    elif how == "dst" and row.dst < schedule.ranks:
        rows[at] = row._replace(dst=draw(ends))
    elif how == "src" and row.src < schedule.ranks:
        rows[at] = row._replace(src=draw(ends))
    elif how == "chunk":
        size = min(schedule.chunks, schedule.scratch or schedule.chunks)
        pair = (draw(st.integers(0, size - 1)), draw(st.integers(0, size - 1)))
        chunks = (pair, *row.chunks[1:])
        if len({b for _, b in chunks}) == len(chunks):  # a row that writes one chunk twice is not well formed
            rows[at] = row._replace(chunks=chunks)
    else:
        other = draw(st.integers(0, len(rows) - 1))
        rows[at], rows[other] = row._replace(step=rows[other].step), rows[other]._replace(step=row.step)
    return sorted(rows, key=lambda row: row.step)
