"""What nccl-tests writes with ``-J`` and rccl-tests with ``-Z csv`` and ``-Z json``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from collsim.errors import InputError, TopologyError, shown
from collsim.formats.nccl_tests.model import NAN, NONE, Device, Draft, Drafts, Measures
from collsim.formats.nccl_tests.operations import operation_of
from collsim.formats.source import read_source
from collsim.units import INT64_MAX

__all__ = ["is_record", "read_csv", "read_document", "read_records", "strict_json"]

ROUNDING = 500.0
"""What JSON's six decimals of GB/s may be off, in bytes/s."""
_CONFIG = (
    "nthreads", "ngpus", "minimum_bytes", "maximum_bytes", "step_factor", "step_bytes", "warmup_iters", "iterations",
    "aggregated_iterations", "validation", "graph",
)  # fmt: skip
_CSV_TAIL = ("size", "type", "redop", "inplace", "time", "algbw", "busbw", "wrong")


def strict_json(text: str, name: str, line: int = 1) -> Any:
    """Return the value of a JSON text; names given twice, NaN, infinity and endless nesting are refused.

    Raises
    ------
    InputError
        With the place.

    Examples
    --------
    >>> strict_json('{"size": 8', "log.json")
    Traceback (most recent call last):
    collsim.errors.InputError: log.json:1:11: expected JSON, got: Expecting ',' delimiter
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise InputError(f"{name}:{line}:1: expected each name once in an object, got {shown(twice)} twice")
        return found

    def refuse(word: str) -> NoReturn:
        raise InputError(f"{name}:{line}:1: expected finite numbers, got {word}")

    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=refuse)
    except json.JSONDecodeError as error:
        place = f"{name}:{line + error.lineno - 1}:{error.colno}"
        raise InputError(f"{place}: expected JSON, got: {error.msg}") from None
    except RecursionError:
        raise InputError(f"{name}:{line}:1: expected JSON, got lists within lists without end") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name}:{line}:1: expected JSON, got a number of thousands of digits") from None


class _Fields:
    """An object of a JSON text, with the way to it for messages."""

    def __init__(self, value: Any, drafts: Drafts, where: str, line: int = 0) -> None:
        self.drafts, self.where, self.line = drafts, where, line
        if not isinstance(value, dict):
            self.fail("", "an object", value)
        self.value: dict[str, Any] = value

    def fail(self, key: str, expected: str, got: Any) -> NoReturn:
        where = ".".join(filter(None, (self.where, key)))
        self.drafts.fail(f"{where}: expected {expected}, got {shown(got)}" if where else
                         f"expected {expected}, got {shown(got)}", self.line)  # fmt: skip

    def whole(self, key: str, default: int | None = None, least: int = 0) -> int:
        value = self.value.get(key, default)
        if isinstance(value, str) and re.fullmatch(r" *-?\d{1,18}", value, re.ASCII):
            value = int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value) if abs(value) < INT64_MAX else value
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= INT64_MAX:
            self.fail(key, f"a whole number from {least}", value)
        return value

    def number(self, key: str, unit: float, *, default: Any = None) -> float:
        """Return a number times a unit, NaN for null, ``"nan"`` and ``"N/A"``."""
        value = self.value.get(key, default)
        if isinstance(value, str) and re.fullmatch(r"\d{1,18}", value, re.ASCII):
            value = int(value)
        if value is None or (isinstance(value, str) and value.lower() in ("nan", "n/a", "-nan")):
            return NAN
        try:
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if is_number and value >= 0 and math.isfinite(value * unit):
                return float(value / round(1 / unit) if unit < 1 else value * unit)
        except OverflowError:
            pass
        self.fail(key, "a number from 0", value)

    def text(self, key: str, default: str | None = None, longest: int = 200) -> str:
        value = self.value.get(key, default)
        if not isinstance(value, str) or len(value) > longest or not value.isprintable():
            self.fail(key, f"a text of up to {longest} letters", value)
        return value

    def list_of(self, key: str) -> Iterator[_Fields]:
        value = self.value.get(key, [])
        if not isinstance(value, list):
            self.fail(key, "a list", value)
        where = f"{self.where}.{key}" if self.where else key
        for i, item in enumerate(value):
            yield _Fields(item, self.drafts, f"{where}[{i}]", self.line)


def read_document(path: Any, name: str) -> Drafts:
    """Return the tables of one or several documents of nccl-tests, or of the records of rccl-tests in a list."""
    try:
        text = read_source(path, "the JSON of nccl-tests").text
    except TopologyError as error:
        raise InputError(str(error)) from None
    value, drafts = strict_json(text, name), Drafts(name)
    if isinstance(value, list) and value and all(map(is_record, value)):
        return read_records(((0, record) for record in value), name)
    several = value if isinstance(value, list) else [value]
    for i, item in enumerate(several):
        document = _Fields(item, drafts, f"[{i}]" if isinstance(value, list) else "")
        if "results" not in document.value:
            known = ", ".join(map(shown, list(document.value)[:6]))
            document.fail("", "a document of nccl-tests, with the field 'results'", {"fields": known} if known else {})
        _document(document, drafts)
    return drafts


def _document(document: _Fields, drafts: Drafts) -> None:
    draft = drafts.open(Draft())
    config = _Fields(document.value.get("config") or {}, drafts, "config")
    draft.header = {key: config.whole(key) for key in _CONFIG if key in config.value}
    for device in config.list_of("devices"):
        found = Device(
            device.whole("rank"), device.whole("group", 0), device.whole("pid", 0), device.text("hostname", "", 1100),
            device.whole("device", 0), device.text("device_hex", ""), device.text("device_info", "", 1100),
        )  # fmt: skip
        drafts.count_device(found, 0)
        draft.devices.setdefault(found.rank, found)
    if "nccl_version" in document.value:
        draft.versions["nccl"] = _version(document.whole("nccl_version"))
    arguments = document.value.get("args")
    if isinstance(arguments, list) and arguments and isinstance(arguments[0], str):
        draft.program = arguments[0].rsplit("/", 1)[-1][:100]
    average = document.value.get("average_bus_bandwidth")
    if isinstance(average, dict):
        value = _Fields(average, drafts, "average_bus_bandwidth").number("bandwidth", 1e9)
        draft.average_busbw = None if math.isnan(value) else value
    bounds = document.value.get("out_of_bounds")
    if isinstance(bounds, dict) and "count" in bounds:
        draft.out_of_bounds = _Fields(bounds, drafts, "out_of_bounds").whole("count")
    names = set()
    for result in document.list_of("results"):
        places = [_place(result, key, draft) for key in ("out_of_place", "in_place")]
        names.add(result.text("experiment_name", "", 100))
        size, count = result.whole("size"), result.whole("count", -1, -1)
        type_, redop, root = result.text("type", "", 16), result.text("redop", "", 16), result.whole("root", -1, -1)
        drafts.count_row(0)
        draft.add(0, size, count, type_, redop, root, *places)
    if operation_of(draft.program) is None and len(names) == 1 and (name := names.pop()):
        draft.program = name


def _place(result: _Fields, key: str, draft: Draft) -> Measures:
    value = result.value.get(key)
    if value is None:
        return NONE
    fields = _Fields(value, result.drafts, f"{result.where}.{key}")
    is_cpu = "time" not in fields.value and "cpu_time" in fields.value
    if is_cpu:
        draft.header["report_cputime"] = 1
    time = fields.number("cpu_time" if is_cpu else "time", 1e-6)
    algbw, busbw = fields.number("alg_bw", 1e9), fields.number("bus_bw", 1e9)
    draft.narrow(algbw, busbw, ROUNDING)
    return time, algbw, busbw, fields.number("nwrong", 1)


def _version(code: int) -> str:
    """Return NCCL's version from its number: 22005 is 2.20.5, 2804 was 2.8.4."""
    major, rest = divmod(code, 10000 if code >= 10000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def is_record(value: Any) -> bool:
    """Whether a value is what rccl-tests writes for a row."""
    return isinstance(value, dict) and {"size", "busBw", "inPlace"} <= set(value)


def read_records(records: Iterable[tuple[int, Any]], name: str) -> Drafts:
    """Return the tables of rows of rccl-tests: (line or 0, object)."""
    drafts = Drafts(name)
    tables: dict[tuple[str, int | None], Draft] = {}
    last: tuple[Any, tuple[Any, ...]] | None = None  # a row out of place, which the same in place follows

    def flush() -> None:
        if last is not None:
            last[1][0].add(*last[1][1:], NONE)

    for line, value in records:
        row = _Fields(value, drafts, "", line)
        program, size, place = row.text("name", "", 100), row.whole("size"), row.whole("inPlace")
        ranks = row.whole("ranks", 1, 1) * row.whole("gpusPerRank", 1, 1) if "ranks" in row.value else None
        ranks = row.whole("gpus", 1, 1) if "gpus" in row.value else ranks
        draft = tables.get((program, ranks))
        if draft is None:
            draft = tables[program, ranks] = drafts.open(Draft(line=line, program=program, ranks=ranks))
        time, algbw, busbw = row.number("time", 1e-6), row.number("algBw", 1e9), row.number("busBw", 1e9)
        wrong = row.number("wrong", 1)
        draft.narrow(algbw, busbw, ROUNDING)
        if ranks and operation_of(program) in ("reduce_scatter", "scatter"):
            size = _whole_size(size, ranks, time, algbw)
        type_, redop = row.text("type", "", 16), row.text("redop", "", 16)
        key = (program, ranks, size, type_, redop, row.value.get("numCycle"))
        measures = (time, algbw, busbw, wrong)
        if place and last is not None and last[0] == key:
            last[1][0].add(*last[1][1:], measures)
            last = None
            continue
        flush()
        last = None
        drafts.count_row(line)
        if place:
            draft.add(line, size, -1, type_, redop, -1, NONE, measures)
        else:
            last = key, (draft, line, size, -1, type_, redop, -1, measures)
    flush()
    return drafts


def _whole_size(size: int, ranks: int, time: float, algbw: float) -> int:
    """Return the bytes of the whole buffer.

    For reduce_scatter and scatter rccl-tests writes what one rank receives, but reckons the bandwidth of the whole:
    where bandwidth times time says so, the size is that of a block.
    """
    moved = algbw * time
    return size * ranks if size * ranks <= INT64_MAX and 0.9 < moved / (size * ranks or 1) < 1.1 else size


def read_csv(lines: Iterable[tuple[int, str]], name: str) -> Drafts:
    """Return the tables of rows that rccl-tests wrote with ``-Z csv``."""
    return read_records(_csv_records(lines, Drafts(name)), name)


def _csv_records(lines: Iterable[tuple[int, str]], drafts: Drafts) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows under the names that they have in JSON.

    Rows have the number of nodes behind the name, where the line of names has not: so columns count from the end.
    """
    head: list[str] = []
    for line, text in lines:
        if not text.strip():
            continue
        words = [word.strip().strip('"') for word in text.split(",", maxsplit=64)]
        if not head:
            head = [word.lstrip("#").lower() for word in words]
            if tuple(head[-len(_CSV_TAIL) :]) != _CSV_TAIL or "collective" not in head:
                drafts.fail(f"expected the columns collective, ..., {', '.join(_CSV_TAIL)}, got {shown(text)}", line)
            continue
        first, tail = words[: -len(_CSV_TAIL)], words[-len(_CSV_TAIL) :]
        before = head[: -len(_CSV_TAIL)]
        if len(first) == len(before) + 1 and "ranks" in before and "nodes" not in before:
            before = [*before[: before.index("ranks")], "nodes", *before[before.index("ranks") :]]
        if len(first) != len(before):
            drafts.fail(f"expected {len(before) + len(_CSV_TAIL)} columns, got {len(words)}", line)
        found: dict[str, Any] = dict(zip(before, first, strict=True)) | dict(zip(_CSV_TAIL, tail, strict=True))
        record = {"name": found["collective"], "type": found["type"], "redop": found["redop"], "wrong": found["wrong"]}
        keys = {"size": "size", "inplace": "inPlace", "ranks": "ranks", "gpusperrank": "gpusPerRank", "gpus": "gpus"}
        record |= {keys[key]: found[key] for key in keys if key in found}
        for key, ours in (("time", "time"), ("algbw", "algBw"), ("busbw", "busBw")):
            if not re.fullmatch(r"\d{1,30}(\.\d{0,30})?([eE][+-]?\d{1,3})?", found[key], re.ASCII):
                drafts.fail(f"{key}: expected a number from 0, got {shown(found[key])}", line)
            record[ours] = float(found[key])
        yield line, record
