"""The table that nccl-tests prints, out of whatever stands around it.

A line may be indented, quoted, or begin with what mpirun, srun, kubectl or a logger put there; what stands before the
part that is understood tells streams of several processes apart. NCCL's own lines may stand between rows, and within
them, as both go through one buffer: what NCCL printed is cut off, a row that goes on in a later line is put together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from sys import intern

from collsim.formats.nccl_tests.model import MEASURES, NAN, NONE, Device, Draft, Drafts, Measures
from collsim.formats.nccl_tests.operations import ELEMENTS, PROGRAM
from collsim.units import INT64_MAX

__all__ = ["read_text"]

MOST_STREAMS = 10_000
MOST_GUESSES = 20

_MARK = re.compile(r"busbw|Rank +\d|nThread|Avg bus|Out of bounds|Collective test|[a-z]_perf|[Vv]ersion|-place")
_NCCL = (
    r"(?:\[\d{4}-\d\d-\d\d[ T][\d:.]{1,20}\] ?)?(?:[A-Za-z][^\s:]{0,255}|(?<![^\s>:\]])\d%s)"
    r":\d{1,10}:\d{1,10} \[-?\d{1,4}\](?: \S{1,80}:\d{1,6})?$"
)
_NCCL_LINE = re.compile(_NCCL % r"[^\s:]{0,255}")
_NCCL_IN_ROW = re.compile(_NCCL % r"[\d.-]{0,60}")  # there a digit before a letter belongs to the row
_WHEN = re.compile(r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?")
_ROW = re.compile(r"(?<![\w.,+-])(\d{1,19})[ \t]{1,64}(\d{1,19})[ \t]{1,64}([A-Za-z]\w{1,15})(?![\w.:])", re.ASCII)
_BARE_ROW = re.compile(r"[\s#>|:]{0,64}(\d{1,19})(?![\w.])", re.ASCII)  # of a table without the columns count and type
_NUMBER = re.compile(
    r"(-?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?)\*?|N/A|[+-]?nan|[+-]?inf", re.ASCII
)
_ROOT = re.compile(r"-?\d{1,9}", re.ASCII)
_WORD = re.compile(r"[a-z]\w{1,15}", re.ASCII)
_RANK = re.compile(
    r"Rank +(\d{1,9}) +(?:Group +(\d{1,9}) +)?Pid +(\d{1,12}) +on +([^\s\x00-\x1f\x7f]{1,256}) +device +(\d{1,9}) "
    r"\[([0-9A-Za-z:.x]{1,40})\] ?([^\n]{0,200})",
    re.ASCII,
)
_OUT_OF_BOUNDS = re.compile(r"Out of bounds values *: *(\d{1,18})", re.ASCII)
_AVERAGE = re.compile(r"Avg bus bandwidth *: *(\d[\d.e+-]{0,40})", re.ASCII)
_COLLECTIVE = re.compile(r"Collective test (starting|concluded): *([\w./+-]{1,100})", re.ASCII)
_STEP = re.compile(r"step: (\d{1,19})\((factor|bytes)\)", re.ASCII)
_SETTINGS = {
    "nthreads": re.compile(r"nThread (\d{1,9})", re.ASCII),
    "ngpus": re.compile(r"nGpus (\d{1,9})", re.ASCII),
    "minimum_bytes": re.compile(r"minBytes (\d{1,19})", re.ASCII),
    "maximum_bytes": re.compile(r"maxBytes (\d{1,19})", re.ASCII),
    "warmup_iters": re.compile(r"warmup iters: (\d{1,9})", re.ASCII),
    "iterations": re.compile(r"(?<!warmup )(?<!agg )iters: (\d{1,9})", re.ASCII),
    "aggregated_iterations": re.compile(r"agg iters: (\d{1,9})", re.ASCII),
    "validation": re.compile(r"validation: (\d{1,9})", re.ASCII),
    "graph": re.compile(r"graph: (\d{1,9})", re.ASCII),
}
_VERSIONS = {
    "nccl-tests": re.compile(r"nccl-tests version ([\w.+()-]{1,60})", re.ASCII),
    "nccl-headers": re.compile(r"nccl-headers=(\d{1,9})", re.ASCII),
    "nccl-library": re.compile(r"nccl-library=(\d{1,9})", re.ASCII),
    "rccl-tests": re.compile(r"rccl-tests:? [Vv]ersion ([\w.+:()-]{1,60})", re.ASCII),
    "nccl": re.compile(r"(?<!R)NCCL version *:? *(\d[\w.+-]{0,60})", re.ASCII),
    "rccl": re.compile(r"RCCL version *:? *(\d[\w.+:-]{0,60})", re.ASCII),
    "hip": re.compile(r"HIP version *: *(\d[\w.+-]{0,60})", re.ASCII),
    "rocm": re.compile(r"ROCm version *: *(\d[\w.+-]{0,60})", re.ASCII),
}
_TITLES = {
    "size", "count", "type", "redop", "root", "time", "cputime", "algbw", "busbw", "#wrong", "wrong", "error",
    "#bitdiff", "i_min", "i_max", "i_p99", "i_cv%", "timestamp", "algo", "proto", "nchannels",
}  # fmt: skip
_SIZE = re.compile(r"(?<![\w-])size(?=[ \t]+(?:count|type|time|cputime)[ \t])")
_FIELDS = {"cputime": "time", "#wrong": "wrong", "error": "wrong"}


@dataclass
class _Broken:
    """A row of which the end has not come yet."""

    line: int
    size: int
    count: int
    type_: str
    words: list[str]


@dataclass
class _Stream:
    """One process that prints."""

    next: Draft = field(default_factory=Draft)
    """What has been said of the table to come."""
    table: Draft | None = None
    titles: tuple[str, ...] = ()
    """The columns of that table."""
    numbers: tuple[str, ...] = ()
    """Those behind size, count, type, redop and root."""
    in_place_only: bool = False
    broken: _Broken | None = None


def read_text(lines: Iterable[tuple[int, str]], name: str) -> Drafts:
    """Return the tables of the lines of a log.

    Parameters
    ----------
    lines
        Numbers and lines, as `collsim.formats.loglines.log_lines` yields them.
    name
        What messages call the log.

    Examples
    --------
    >>> log = ["#  size  count   type  time  algbw  busbw  error  time  algbw  busbw  error",
    ...        "1048576  16384  float  30.5  34.38  32.23    N/A  30.1  34.84  32.66    N/A"]
    >>> read_text(enumerate(log, start=1), "log").finish()
    <NcclTests 'log': <Table 0 of an unnamed operation on 16 ranks: 1 row>>
    """
    reader = _Reader(name)
    for number, line in lines:
        reader.feed(number, line)
    for stream in reader.streams.values():
        reader.give_up(stream)
    return reader.drafts


class _Reader:
    def __init__(self, name: str) -> None:
        self.drafts = Drafts(name)
        self.streams: dict[str, _Stream] = {}
        self.latest: _Stream | None = None
        self.guesses: set[str] = set()
        self.guessed: set[str] = set()
        self.versions: dict[str, str] = {}

    def feed(self, number: int, line: str) -> None:
        """Take the next line."""
        is_cut = False
        at = line.find(" NCCL ")
        if at >= 0 and line.startswith(("INFO", "WARN", "TRACE", "VERSION"), at + 6):
            start = max(at - 600, 0)
            found = _NCCL_LINE.search(line[start:at])
            if found is not None and re.search(r"\d[ \t]", line[: start + found.start()]):
                found = _NCCL_IN_ROW.search(line[start:at]) or found
            if found is not None:
                if "NCCL version" in line[at:]:
                    self._versions(line[at:])
                line, is_cut = line[: start + found.start()], True
        if not line or line.isspace():
            return
        is_taken = _MARK.search(line) is not None and self._marked(number, line)
        if not is_taken and self.latest is not None:
            self._row(number, line, is_cut)

    def give_up(self, stream: _Stream) -> None:
        """Count a row whose end has not come."""
        if stream.broken is not None:
            self.drafts.skip(stream.broken.line)
            stream.broken = None

    def _stream(self, prefix: str) -> _Stream:
        key = "" if len(prefix) > 300 or not prefix else _WHEN.sub("", prefix).strip(" \t#>|:*`")
        found = self.streams.get(key)
        if found is None:
            found = self.streams.setdefault(key if len(self.streams) < MOST_STREAMS else "", _Stream())
        return found

    def _marked(self, number: int, line: str) -> bool:
        """Take a line that has one of the words of the header, the names of columns or the footer; or leave it."""
        if "busbw" in line and self._titles(number, line):
            return True
        if "Rank" in line and (found := _RANK.search(line)):
            device = Device(
                int(found[1]), int(found[2] or 0), int(found[3]), found[4], int(found[5]), found[6],
                "".join(c for c in found[7].strip() if c.isprintable()),
            )  # fmt: skip
            self.drafts.count_device(device, number)
            self._stream(line[: found.start()]).next.devices.setdefault(device.rank, device)
            return True
        if "nThread" in line:
            self._settings(line)
        if found := _COLLECTIVE.search(line):
            stream = self._stream(line[: found.start()])
            draft = stream.next if found[1] == "starting" else stream.table
            if draft is not None and not draft.program:
                draft.program = found[2]
        elif "_perf" in line and len(self.guesses) < MOST_GUESSES:
            self.guesses.update(PROGRAM.findall(line)[:MOST_GUESSES])
        if "place" in line:
            where = self._stream(line[: line.find("out-of-place" if "out-of-place" in line else "in-place")])
            where.in_place_only = "in-place" in line and "out-of-place" not in line
        if "ersion" in line:
            self._versions(line)
        if found := _OUT_OF_BOUNDS.search(line):
            table = self._stream(line[: found.start()]).table
            if table is not None and table.out_of_bounds is None:
                table.out_of_bounds = int(found[1])
        if found := _AVERAGE.search(line):
            table = self._stream(line[: found.start()]).table
            if table is not None and table.average_busbw is None:
                average = _number(found[1], "e9")
                table.average_busbw = None if average is None or math.isnan(average) else average
        return "#" in line  # else it may be a row, with one of these words in what stands before it

    def _versions(self, line: str) -> None:
        for name, pattern in _VERSIONS.items():
            if found := pattern.search(line):
                self.versions.setdefault(name, found[1])

    def _settings(self, line: str) -> None:
        """Take the line that says how it is measured: the beginning of a run."""
        stream = self._stream(line[: line.find("nThread")])
        stream.next = Draft(program=stream.next.program)
        for name, pattern in _SETTINGS.items():
            if found := pattern.search(line):
                stream.next.header[name] = int(found[1])
        if found := _STEP.search(line):
            stream.next.header[f"step_{found[2]}"] = int(found[1])

    def _titles(self, number: int, line: str) -> bool:
        """Take the names of columns: the beginning of a table."""
        found = _SIZE.search(line)
        at = found.start() if found is not None else 0
        words = line[at:].split(maxsplit=40) if found is not None else []
        titles = []
        for word in words:
            if word not in _TITLES:
                break
            titles.append(word)
        if "busbw" not in titles or not {"time", "cputime"} & set(titles):
            return False
        first = next(i for i, title in enumerate(titles) if title in ("time", "cputime"))
        if not {*titles[:first]} <= {"size", "count", "type", "redop", "root"}:
            return False
        stream = self._stream(line[:at])
        self.give_up(stream)
        stream.titles, numbers = tuple(titles[:first]), titles[first:]
        last = max(i for i, title in enumerate(numbers) if title in MEASURES or title in _FIELDS)
        stream.numbers = tuple(_FIELDS.get(title, title) for title in numbers[: last + 1])
        if not self.guesses and stream is not self.latest:  # another process of the same run
            self.guesses = self.guessed
        fresh = stream.next
        if stream.table is not None and not fresh.header and not fresh.devices:
            # the same run goes on, or nothing was said: what is known of it stays true
            fresh.devices, fresh.header, fresh.ranks = stream.table.devices, stream.table.header, stream.table.ranks
            fresh.program = fresh.program or stream.table.program
        fresh.names = stream.titles
        fresh.line, fresh.guesses, fresh.versions = number, self.guesses, dict(self.versions)
        if "cputime" in titles:
            fresh.header = {**fresh.header, "report_cputime": 1}
        self.guessed, self.guesses = self.guesses, set()
        stream.table, stream.next = self.drafts.open(fresh), Draft()
        self.latest = stream
        return True

    def _row(self, number: int, line: str, is_cut: bool) -> None:
        found = _ROW.search(line)
        if found is None:
            self._rest(number, line)
            return
        stream = self._stream(line[: found.start()])
        if stream.table is None:
            stream = self.latest or stream
        if not {"count", "type"} <= set(stream.titles):
            return
        size, count, type_ = int(found[1]), int(found[2]), found[3]
        tail = line[found.end() :]
        row = _Broken(number, size, count, type_, tail.split(maxsplit=64))
        if size > INT64_MAX or count > INT64_MAX:
            self.drafts.skip(number)
        elif self._complete(stream, row, is_gap=not is_cut and " " * 28 in tail):
            self.give_up(stream)
        elif type_ in ELEMENTS:
            self.give_up(stream)
            stream.broken = row
            if not is_cut and not all(_NUMBER.fullmatch(word) or _WORD.fullmatch(word) for word in row.words):
                self.give_up(stream)  # what breaks it is in the midst of it

    def _rest(self, number: int, line: str) -> None:
        """Take a line that may be the rest of a row, or a row of a table with fewer columns."""
        for key, stream in self.streams.items():
            if stream.broken is not None:
                at = line.find(key) if key else 0
                words = line[at + len(key) :].lstrip(" \t:").split(maxsplit=64) if at >= 0 else []
                if words and all(map(_NUMBER.fullmatch, words)):
                    stream.broken.words += words
                    if self._complete(stream, stream.broken):
                        stream.broken = None
                    elif len(stream.broken.words) > 64:
                        self.give_up(stream)
                    return
        for key, stream in self.streams.items():
            if stream.table is not None and not {"count", "type"} <= set(stream.titles):
                at = line.find(key) if key else 0
                bare = _BARE_ROW.match(line, at + len(key)) if at >= 0 else None
                if bare is not None and int(bare[1]) <= INT64_MAX:
                    self._complete(stream, _Broken(number, int(bare[1]), -1, "", line[bare.end() :].split(maxsplit=64)))

    def _complete(self, stream: _Stream, row: _Broken, *, is_gap: bool = False) -> bool:
        """Add a row if it has all its words, and say whether it had."""
        table, words, count, type_ = stream.table, row.words, row.count, row.type_
        assert table is not None
        at, redop, root = 0, "", -1
        if count < 0:  # a table with fewer columns
            if "count" in stream.titles and words and words[0].isdecimal():
                count, at = int(words[0][:18]), 1
            if "type" in stream.titles and len(words) > at and _WORD.fullmatch(words[at]):
                type_, at = words[at], at + 1
        if len(words) > at and _WORD.fullmatch(words[at]) and words[at] not in ("nan", "inf"):
            redop, at = words[at], at + 1
        if "root" in stream.titles:
            if len(words) <= at or not _ROOT.fullmatch(words[at]):
                return False
            root, at = max(int(words[at]), -1), at + 1
        names = stream.numbers
        second = names.index("time", 1) if "time" in names[1:] else len(names)
        if is_gap and second < len(names) and len(words) - at == len(names) - second:
            groups = [NONE, self._measures(table, names[second:], words[at:])]  # only in place is measured
        else:
            if len(words) - at < len(names):
                return False
            groups = [self._measures(table, names[:second], words[at:])]
            groups.append(self._measures(table, names[second:], words[at + second :]) if second < len(names) else NONE)
            if second == len(names) and stream.in_place_only:
                groups.reverse()
        out, within = groups
        if out is None or within is None:
            return False
        if not (_agrees(row.size, out) and _agrees(row.size, within)):
            self.drafts.skip(row.line)  # other text was printed into one of its numbers
            return True
        self.drafts.count_row(row.line)
        table.add(row.line, row.size, count, intern(type_), intern(redop), root, out, within)
        return True

    def _measures(self, table: Draft, names: tuple[str, ...], words: list[str]) -> Measures | None:
        """Return time, algbw, busbw and wrong in seconds and bytes/s, or None where a word is no number."""
        found = {}
        texts = dict(zip(names, words, strict=False))
        for name in names:
            unit = {"time": "e-6", "algbw": "e9", "busbw": "e9"}.get(name, "")
            number = _number(texts[name], unit)
            if number is None or (name in MEASURES and number < 0):
                return None
            found[name] = number
        if {"algbw", "busbw"} <= set(found):
            texts = {name: texts[name] for name in ("algbw", "busbw")}
            table.narrow(found["algbw"], found["busbw"], max(map(_rounding, texts.values())))
        return tuple(found.get(name, NAN) for name in MEASURES)  # type: ignore[return-value]


def _agrees(size: int, measures: Measures) -> bool:
    """Return whether size, time and algbw of a row belong together, as far as they are rounded."""
    time, algbw = measures[:2]
    if not (size > 0 and time > 0 and algbw > 0):  # none of it, or too little to tell
        return True
    expected = size / time
    # the last digits that are printed: 0.1 us in old versions, 0.01 GB/s
    return abs(algbw - expected) <= (0.02 + 0.1e-6 / time) * expected + 1e7


def _number(text: str, unit: str) -> float | None:
    """Return a number times a power of ten, NaN for ``N/A``, and None for what is no number.

    Examples
    --------
    >>> _number("857.6", "e-6"), _number("1.2e+07", "e-6"), _number("N/A", ""), _number("12ms", "")
    (0.0008576, 12.0, nan, None)
    """
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    if found[1] is None:
        return NAN
    value = float(found[1]) * float(f"1{unit}") if "e" in found[1].lower() else float(found[1] + unit)
    return value if math.isfinite(value) else None


def _rounding(text: str) -> float:
    """Return by how much rounding may have changed a bandwidth, in bytes/s."""
    found = _NUMBER.fullmatch(text)
    if found is None or found[1] is None:
        return math.inf
    mantissa, _, exponent = found[1].lower().partition("e")
    return 0.5 * 10.0 ** (9 - len(mantissa.partition(".")[2]) + int(exponent or 0))
