"""The text form of a schedule: what it prints as, and what it is read from.

::

    all_reduce ranks=4 chunks=4        # operation, then root=, scratch=, in_place=no where they are not the default
    algorithm ring {"channels": 1}     # optional: name and parameters
    repeat 3 shift=-1                  # a block: repeat TIMES [shift=] [window=]
      step 0
        0 => 1  3                      # rank 0 sends chunk 3, rank 1 adds it to its own
        1 -> 2  0+2*4                  # copies chunks 0 and 4 (count 2, stride 4)
        2 -> 3  i{0,3} > s{1,2}        # from input to scratch, irregular sets; channel=, shift=, window=, via=
    edge 0.3 after 0.2 distance=1 at=issued lag=500

Further header lines are ``order``, ``layout COUNTxELEMENTS``, ``path`` and ``places`` (names as JSON). Text after ``#``
is a comment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from collsim.collective import OPERATIONS, Collective
from collsim.errors import CollsimError, ScheduleError, did_you_mean
from collsim.schedule.block import COLUMNS, INT32, OUTPUT, Block, ChunkLists, Repeat, short
from collsim.schedule.dependencies import edge_columns
from collsim.schedule.edges import MOST_LAG, Edge
from collsim.schedule.model import Schedule
from collsim.schedule.validate import PartError

__all__ = ["from_text", "to_text"]

LETTERS = "ios"
DEEPEST = 50  # levels of lists in a parameter that are written
COMMENT = re.compile(r'("(?:[^"\\]|\\.)*"?)|#.*')  # not inside JSON text, be it closed or not
SET = re.compile(r"([ios]?)(?:(\d+)(?:\+(\d+)(?:\*(-?\d+))?)?|\{(\d+(?:,\d+)*)\})")
ROW = re.compile(r"(\d+)\s+(->|=>)\s+(\d+)\s+(\S+)(?:\s+>\s+(\S+))?((?:\s+\w+=-?\d+)*)")


def to_text(schedule: Schedule) -> str:
    """Return the text form of a schedule."""
    c = schedule.collective
    head = f"{c.operation} ranks={c.ranks} chunks={schedule.chunks}"
    head += f" root={c.root}" if c.is_rooted else ""
    head += f" scratch={schedule.scratch}" if schedule.scratch else ""
    head += "" if schedule.in_place else " in_place=no"
    lines = [head]
    if schedule.algorithm:
        given = dict(schedule.parameters)
        name = schedule.algorithm if re.fullmatch(r"[\w.-]+", schedule.algorithm) else json.dumps(schedule.algorithm)
        lines.append(f"algorithm {name}" + (f" {json.dumps(_plain(given))}" if given else ""))
    if schedule.order is not None:
        lines.append("order " + " ".join(map(str, schedule.order)))
    if schedule.layout is not None:
        lines.append("layout " + " ".join(f"{count}x{size}" for count, size in schedule.layout))
    lines += [f"path {json.dumps(list(path))}" for path in schedule.paths]
    if schedule.places:
        lines.append(f"places {json.dumps(list(schedule.places))}")
    for phase in schedule.phases:
        lines += _phase_lines(phase)
    lines += _edge_lines(schedule)
    return "\n".join(lines)


def _edge_lines(schedule: Schedule) -> Iterator[str]:
    names = ("phase", "row", "pred_phase", "pred_row", "distance", "issued", "lag")
    columns = edge_columns(schedule)
    for phase, row, pred_phase, pred_row, distance, issued, lag in zip(
        *(columns[name].tolist() for name in names), strict=True
    ):
        yield (
            f"edge {phase}.{row} after {pred_phase}.{pred_row}"
            + (f" distance={distance}" if distance else "")
            + (" at=issued" if issued else "")
            + (f" lag={lag}" if lag else "")
        )


def _plain(value: Any, inside: tuple[int, ...] = ()) -> Any:
    """Stand-in for a parameter that JSON can write: NumPy's as numbers and lists, what it does not know as text."""
    if isinstance(value, int) and value.bit_length() > 10_000:  # Python writes it in no other way
        return hex(value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    if id(value) in inside or len(inside) > DEEPEST:  # it contains itself, or goes on and on
        return "..."
    inside = (*inside, id(value))
    if isinstance(value, Mapping):
        return {_key(key): _plain(item, inside) for key, item in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [_plain(item, inside) for item in value]
    try:
        return _plain(value.tolist(), inside) if hasattr(value, "tolist") else str(value)
    except Exception:  # a label must never be the reason that a schedule cannot be printed
        return f"<{type(value).__name__}>"


def _key(key: Any) -> Any:
    if key is None or isinstance(key, (str, int, float)):
        return key
    return key.item() if isinstance(key, (np.number, np.bool_)) and key.dtype.kind in "biuf" else str(key)


def _phase_lines(phase: Repeat) -> list[str]:
    block = phase.block
    head = f"repeat {phase.times}"
    per_row = {}
    for name in ("shift", "window"):
        value = getattr(phase, name)
        if np.ndim(value):
            per_row[name] = value.tolist()
        elif value:
            head += f" {name}={value}"
    lines = [head]
    step = -1
    columns = {name: getattr(block, name).tolist() for name in COLUMNS}
    for row in range(len(block)):
        if columns["step"][row] != step:
            step = columns["step"][row]
            lines.append(f"  step {step}")
        arrow = "=>" if columns["reduce"][row] else "->"
        src, dst = (_set_text(block, columns, row, side) for side in ("src", "dst"))
        line = f"    {columns['src'][row]} {arrow} {columns['dst'][row]}  {src}" + (f" > {dst}" if dst != src else "")
        if columns["channel"][row]:
            line += f" channel={columns['channel'][row]}"
        line += "".join(f" {name}={values[row]}" for name, values in per_row.items())
        if block.via is not None and block.via[row] >= 0:
            line += f" via={block.via[row]}"
        lines.append(line)
    return lines


def _set_text(block: Block, columns: dict[str, list[Any]], row: int, side: str) -> str:
    buffer = columns[side + "_buffer"][row]
    letter = "" if buffer == OUTPUT else LETTERS[buffer]
    if block.lists is not None:
        lo, hi = block.lists.offsets[row], block.lists.offsets[row + 1]
        if hi > lo:
            return letter + "{" + ",".join(map(str, getattr(block.lists, side)[lo:hi].tolist())) + "}"
    count, stride = columns["count"][row], columns["stride"][row]
    more = "" if count == 1 and stride == 1 else f"+{count}" + ("" if stride == 1 else f"*{stride}")
    return f"{letter}{columns[side + '_chunk'][row]}{more}"


class _Reader:
    """Reads line by line; keeps where it is for its errors."""

    def __init__(self) -> None:
        self.number = 0
        self.lines: dict[tuple[Any, ...], int] = {}  # of the parts of the schedule
        self.head: dict[str, Any] | None = None
        self.more: dict[str, Any] = {"paths": [], "edges": [], "places": [], "order": None, "layout": None}
        self.label: tuple[str, dict[str, Any]] = ("", {})
        self.blocks: list[dict[str, Any]] = []

    def fail(self, expected: str, got: str, hint: str = "") -> NoReturn:
        raise ScheduleError(f"schedule text, line {self.number}: expected {expected}, got {short(got)}{hint}")

    def line(self, line: str) -> None:
        text = line.strip()
        word, rest = (*text.split(None, 1), "")[:2]
        if self.head is None:
            self.read_head(word, rest)
        elif re.match(r"\d+\s+[-=]>", text):
            self.read_row(text)
        elif word in ("repeat", "step", "algorithm", "order", "layout", "path", "places", "edge"):
            getattr(self, "read_" + word)(rest)
        else:
            known = ("repeat", "step", "algorithm", "order", "layout", "path", "places", "edge")
            self.fail("a row such as '0 -> 1  3' or one of " + ", ".join(known), text)

    def options(self, words: list[str], known: dict[str, Any]) -> dict[str, Any]:
        result = dict(known)
        for word in words:
            key, equals, value = word.partition("=")
            if not equals or key not in known:
                self.fail("one of " + ", ".join(k + "=" for k in known), word, did_you_mean(key, known))
            limit = MOST_LAG if key == "lag" else INT32
            result[key] = value if isinstance(known[key], str) else self.integer(value, limit)
        return result

    def integer(self, text: str, limit: int = INT32) -> int:
        if not re.fullmatch(r"-?\d{1,19}", text) or abs(int(text)) > limit:
            self.fail(f"a whole number up to {limit}", text)
        return int(text)

    def read_head(self, word: str, rest: str) -> None:
        if word not in OPERATIONS:
            self.fail("an operation such as all_reduce", word, did_you_mean(word, OPERATIONS))
        given = self.options(rest.split(), {"ranks": 0, "chunks": 0, "root": 0, "scratch": 0, "in_place": "yes"})
        if given["in_place"] not in ("yes", "no"):
            self.fail("in_place=yes or in_place=no", given["in_place"])
        self.lines["head",] = self.number
        collective = self.made(Collective, word, given["ranks"], given["root"])
        self.head = {"collective": collective, **given}

    def made(self, make: Any, *args: Any, **more: Any) -> Any:
        """Return what ``make`` returns; what it refuses is an error of this line."""
        try:
            return make(*args, **more)
        except CollsimError as error:
            raise ScheduleError(f"schedule text, line {self.number}: {error}") from None

    def read_algorithm(self, rest: str) -> None:
        match = re.fullmatch(r'("(?:[^"\\]|\\.)*"|[\w.-]+)\s*(\{.*\})?', rest)
        if not match:
            self.fail("'algorithm NAME {PARAMETERS}'", rest)
        name = self.json(match[1], str) if match[1].startswith('"') else match[1]
        self.label = (name, self.json(match[2], dict) if match[2] else {})

    def json(self, text: str, kind: type) -> Any:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):  # no JSON, or too many levels of it
            self.fail("JSON", text)
        if not isinstance(value, kind):
            self.fail(f"a JSON {kind.__name__}", text)
        return value

    def names(self, text: str) -> list[str]:
        names: list[str] = self.json(text, list)
        if not all(isinstance(name, str) for name in names):
            self.fail("a JSON list of names", text)
        return names

    def read_order(self, rest: str) -> None:
        self.lines["order",] = self.number
        self.more["order"] = tuple(self.integer(word) for word in rest.split())

    def read_layout(self, rest: str) -> None:
        self.lines["layout",] = self.number
        runs = [re.fullmatch(r"(\d+)x(\d+)", word) or self.fail("COUNTxELEMENTS", word) for word in rest.split()]
        self.more["layout"] = tuple((self.integer(run[1]), self.integer(run[2], MOST_LAG)) for run in runs)

    def read_path(self, rest: str) -> None:
        self.more["paths"].append(self.names(rest))

    def read_places(self, rest: str) -> None:
        self.more["places"] = self.names(rest)

    def read_edge(self, rest: str) -> None:
        match = re.fullmatch(r"(\d+)\.(\d+)\s+after\s+(\d+)\.(\d+)((?:\s+\w+=\w+)*)", rest)
        if not match:
            self.fail("'edge PHASE.ROW after PHASE.ROW [distance=] [at=] [lag=]'", rest)
        options = self.options(match[5].split(), {"distance": 0, "at": "end", "lag": 0})
        self.lines["edge", len(self.more["edges"])] = self.number
        self.more["edges"].append(self.made(Edge, *(self.integer(match[i]) for i in (1, 2, 3, 4)), **options))

    def read_repeat(self, rest: str) -> None:
        times, *words = rest.split() or [""]
        options = self.options(words, {"shift": 0, "window": 0})
        if self.integer(times) < 0:
            self.fail("a repeat of at least 0 times", times)
        self.blocks.append({"times": self.integer(times), "step": -1, "rows": [], **options})

    def read_step(self, rest: str) -> None:
        if not self.blocks:
            self.fail("'repeat' before the first step", "step " + rest)
        step = self.integer(rest)
        if step <= self.blocks[-1]["step"]:
            self.fail(f"a step after {self.blocks[-1]['step']}", rest)
        self.blocks[-1]["step"] = step

    def read_row(self, text: str) -> None:
        match = ROW.fullmatch(text)
        if not match:
            self.fail("a row such as '0 -> 1  3+2*4' or '0 => 1  i{0,3} > s{1,2} channel=1'", text)
        if not self.blocks or self.blocks[-1]["step"] < 0:
            self.fail("'repeat' and 'step' before the first row", text)
        block = self.blocks[-1]
        src = self.chunk_set(match[4])
        dst = self.chunk_set(match[5]) if match[5] else src
        if (src["count"], src["stride"], len(src["list"])) != (dst["count"], dst["stride"], len(dst["list"])):
            self.fail("as many chunks on both sides, with one stride", text)
        self.lines["row", len(self.blocks) - 1, len(block["rows"])] = self.number
        options = {"channel": 0, "shift": block["shift"], "window": block["window"], "via": -1}
        block["rows"].append(
            {
                "step": block["step"],
                "src": self.integer(match[1]),
                "src_buffer": src["buffer"],
                "src_chunk": src["chunk"],
                "dst": self.integer(match[3]),
                "dst_buffer": dst["buffer"],
                "dst_chunk": dst["chunk"],
                "count": src["count"],
                "stride": src["stride"],
                "reduce": match[2] == "=>",
                "lists": (src["list"], dst["list"]),
                **self.options(match[6].split(), options),
            }
        )

    def chunk_set(self, text: str) -> dict[str, Any]:
        match = SET.fullmatch(text)
        if not match:
            self.fail("chunks such as 3, i0+2, s0+2*4 or {0,3}", text)
        chunks = [self.integer(c) for c in match[5].split(",")] if match[5] else []
        return {
            "buffer": LETTERS.index(match[1]) if match[1] else OUTPUT,
            "chunk": chunks[0] if chunks else self.integer(match[2]),
            "count": self.integer(match[3] or "1"),
            "stride": self.integer(match[4] or "1"),
            "list": chunks,
        }

    def schedule(self) -> Schedule:
        if self.head is None:
            self.number = max(self.number, 1)
            self.fail("an operation such as 'all_reduce ranks=4 chunks=4'", "")
        h = self.head
        try:
            return Schedule(
                h["collective"],
                h["chunks"],
                tuple(_repeat(block) for block in self.blocks),
                scratch=h["scratch"],
                in_place=h["in_place"] == "yes",
                algorithm=self.label[0],
                parameters=self.label[1],
                **self.more,
            )
        except PartError as error:  # what only the whole schedule can tell
            raise ScheduleError(f"schedule text, line {self.lines[error.part]}: {error}") from None


def _repeat(block: dict[str, Any]) -> Repeat:
    rows = block["rows"]
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in COLUMNS}
    lists = None
    if any(row["lists"][0] for row in rows):
        offsets = np.concatenate(([0], np.cumsum([len(row["lists"][0]) for row in rows])))
        src, dst = ([c for row in rows for c in row["lists"][side]] for side in (0, 1))
        lists = ChunkLists(offsets, np.array(src), np.array(dst))
    via = np.array([row["via"] for row in rows])
    shift, window = ([row[name] for row in rows] if rows else 0 for name in ("shift", "window"))
    return Repeat(Block(**columns, lists=lists, via=via), block["times"], shift, window)


def from_text(text: str) -> Schedule:
    """Read the text form of a schedule.

    Raises
    ------
    ScheduleError
        With the number of the line that could not be read.

    Examples
    --------
    >>> s = from_text('''broadcast ranks=2 chunks=1 root=0
    ... repeat 1
    ...   step 0
    ...     0 -> 1  0''')
    >>> s
    <Schedule schedule broadcast ranks=2 chunks=1 steps=1 transfers=1>
    """
    if not isinstance(text, str):
        raise ScheduleError(f"schedule text: expected a text, got {type(text).__name__}")
    reader = _Reader()
    for line in text.splitlines():
        reader.number += 1
        bare = COMMENT.sub(lambda match: match[1] or "", line)
        if bare.strip():
            reader.line(bare)
    return reader.schedule()
