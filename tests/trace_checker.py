"""A strict reader of Chrome traces: it accepts less than any viewer does, and says what is wrong with which event."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema

NUMBER = {"type": "integer", "minimum": 0}
TIME = {"type": "number", "minimum": 0}
PLACE = {"pid": NUMBER, "tid": NUMBER, "ts": TIME}
NAMED = {"name": {"type": "string", "minLength": 1}, "cat": {"type": "string", "minLength": 1}}


def _event(phase: str, properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    found = {"ph": {"const": phase}, **properties}
    return {"type": "object", "properties": found, "required": ["ph", *required], "additionalProperties": False}


SCHEMAS = {
    "X": _event("X", {**NAMED, **PLACE, "dur": TIME, "args": {"type": "object"}}),
    "s": _event("s", {**NAMED, **PLACE, "id": NUMBER}),
    "f": _event("f", {**NAMED, **PLACE, "id": NUMBER, "bp": {"const": "e"}}),
    "C": _event(
        "C",
        {**NAMED, "pid": NUMBER, "ts": TIME,
         "args": {"type": "object", "minProperties": 1, "additionalProperties": {"type": "number"}}},
    ),
    "M": _event(
        "M",
        {"name": {"enum": ["process_name", "process_sort_index", "process_labels", "thread_name", "thread_sort_index"]},
         **PLACE, "args": {"type": "object", "minProperties": 1, "maxProperties": 1}},
    ),
}  # fmt: skip
CHECKS = {phase: jsonschema.Draft202012Validator(schema) for phase, schema in SCHEMAS.items()}


class WrongTraceError(AssertionError):
    """A trace that a viewer would draw wrong, or not at all."""


@dataclass
class Trace:
    """What a trace holds, checked. Times are whole nanoseconds."""

    head: dict[str, Any]
    slices: list[dict[str, Any]] = field(default_factory=list)
    flows: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    counters: dict[tuple[int, str], list[tuple[int, Decimal]]] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)

    def on(self, process: str, thread: str) -> list[dict[str, Any]]:
        """Return the slices of one track."""
        pid = next(pid for pid, name in self.processes.items() if name == process)
        tid = next(tid for (of, tid), name in self.threads.items() if (of, name) == (pid, thread))
        return [event for event in self.slices if (event["pid"], event["tid"]) == (pid, tid)]


def nanoseconds(time: Decimal | int) -> int:
    found = Decimal(time) * 1000
    if found != found.to_integral_value():
        raise WrongTraceError(f"{time} us is not a whole number of nanoseconds, so Perfetto rounds it")
    return int(found)


def check_trace(path: Path) -> Trace:
    """Read a trace and check the form of each event, the order, nesting, arrows and names."""
    raw = path.read_bytes()
    return check_text(gzip.decompress(raw) if path.name.endswith(".gz") else raw)


def check_text(raw: bytes) -> Trace:
    """Check the text of a trace."""
    document = json.loads(raw, parse_float=Decimal, parse_constant=_refuse)  # numbers as they are written
    events = document.pop("traceEvents")
    if document.get("displayTimeUnit") not in ("ns", "ms"):
        raise WrongTraceError(f"displayTimeUnit: {document.get('displayTimeUnit')!r}")
    trace = Trace(document)
    opened: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    top: dict[tuple[int, int], dict[str, Any]] = {}
    pending: dict[tuple[str, str, int], dict[str, Any]] = {}
    now, named = -1, True
    for number, event in enumerate(events):
        where = f"event {number} ({event!r})"
        if event.get("ph") not in CHECKS:
            raise WrongTraceError(f"{where}: unknown phase")
        for problem in CHECKS[event["ph"]].iter_errors(event):
            raise WrongTraceError(f"{where}: {problem.message}")
        event["ts"] = nanoseconds(event["ts"])
        if event["ph"] == "M":
            if not named:
                raise WrongTraceError(f"{where}: a name after the first event")
            _take_name(trace, event, where)
            continue
        named = False
        if event["ts"] < now:
            raise WrongTraceError(f"{where}: earlier than the event before")
        now = event["ts"]
        if event["pid"] not in trace.processes:
            raise WrongTraceError(f"{where}: a process without a name")
        if event["ph"] == "C":
            for key, value in event["args"].items():
                trace.counters.setdefault((event["pid"], f"{event['name']} {key}"), []).append((now, value))
            continue
        track = event["pid"], event["tid"]
        if track not in trace.threads:
            raise WrongTraceError(f"{where}: a track without a name")
        if event["ph"] == "X":
            event["dur"] = nanoseconds(event["dur"])
            _open(opened[track], now, now + event["dur"], where)
            top[track] = event
            trace.slices.append(event)
        else:
            _flow(trace, pending, top.get(track), event, where)
    if pending:
        raise WrongTraceError(f"{len(pending)} arrows that end nowhere, such as {next(iter(pending))}")
    return trace


def _refuse(text: str) -> Any:
    raise WrongTraceError(f"{text} is not JSON")


def _take_name(trace: Trace, event: dict[str, Any], where: str) -> None:
    if event["name"] == "process_name":
        if event["pid"] == 0 and "schemaVersion" not in trace.head:
            raise WrongTraceError(f"{where}: process 0 is the idle process of Perfetto")
        if trace.processes.setdefault(event["pid"], event["args"]["name"]) != event["args"]["name"]:
            raise WrongTraceError(f"{where}: a second name")
    if event["name"] == "thread_name":
        track = event["pid"], event["tid"]
        if track in trace.threads:
            raise WrongTraceError(f"{where}: a second name")
        if event["args"]["name"] in {name for (pid, _), name in trace.threads.items() if pid == event["pid"]}:
            raise WrongTraceError(f"{where}: two tracks of that name")
        trace.threads[track] = event["args"]["name"]


def _open(stack: list[tuple[int, int]], start: int, end: int, where: str) -> None:
    """Put a slice on a track: it begins after the last one there ended, or lies within it."""
    if stack and stack[-1] == (start, start):
        raise WrongTraceError(f"{where}: begins together with a slice without duration, so either may hold the other")
    while stack and stack[-1][1] <= start:
        stack.pop()
    if stack and end > stack[-1][1]:
        raise WrongTraceError(f"{where}: overlaps with the slice {stack[-1]} of the same track")
    stack.append((start, end))


def _flow(
    trace: Trace, pending: dict[tuple[str, str, int], dict[str, Any]], top: dict[str, Any] | None,
    event: dict[str, Any], where: str,
) -> None:  # fmt: skip
    """Bind an arrow to the slice that is open on its track, which is the last one there that began."""
    key = event["cat"], event["name"], event["id"]
    if top is None or not top["ts"] <= event["ts"] <= top["ts"] + top["dur"]:
        raise WrongTraceError(f"{where}: no slice to bind to")
    if event["ph"] == "s":
        if key in pending:
            raise WrongTraceError(f"{where}: a second start")
        pending[key] = top
    else:
        if key not in pending:
            raise WrongTraceError(f"{where}: no start before it")
        trace.flows.append((pending.pop(key), top))
