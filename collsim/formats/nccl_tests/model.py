"""What a log of nccl-tests holds: tables of times, and what was measured on."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError
from collsim.formats.nccl_tests.operations import ELEMENTS, operation_of, possible_operations, ranks_by_factor

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MOST_ROWS", "Device", "Draft", "Drafts", "NcclTests", "Table"]

Array = npt.NDArray[Any]

MOST_ROWS = 1_000_000
MOST_DEVICES = 1 << 20
MOST_TABLES = 100_000
NAN = math.nan
MEASURES = ("time", "algbw", "busbw", "wrong")


@dataclass(frozen=True)
class Device:
    """A rank and the GPU that it had.

    Attributes
    ----------
    rank, group, pid, host, device
        As the log has them; the group is 0 in logs of versions that know none.
    bus_id
        ``0xa4`` in older versions, ``0000:a4:00`` in newer ones.
    name
        Such as ``NVIDIA A100-SXM4-80GB``.
    """

    rank: int
    group: int
    pid: int
    host: str
    device: int
    bus_id: str
    name: str


@dataclass(frozen=True, eq=False)
class Table:
    """One table: one run of one program.

    Attributes
    ----------
    number, line
        Its number in the log, from 0, and the line of its column names (0 in JSON).
    operation
        One of `collsim.collective.OPERATIONS`, if the log names it or only one fits the numbers; else None.
    program
        What the log calls it, such as ``all_reduce_perf``, or an empty text.
    ranks
        Number of ranks that took part, or None.
    devices
        One for each rank that the log lists.
    header
        How it was measured, under the names of nccl-tests' JSON: nthreads, ngpus, minimum_bytes, maximum_bytes,
        step_factor or step_bytes, warmup_iters, iterations, aggregated_iterations, validation, graph; what is there.
        And report_cputime (1) where the times are those that the CPU took to launch, as with nccl-tests' ``-C``.
    versions
        Of nccl-tests, nccl, rccl, ...; what is there.
    average_busbw
        The average that the log gives at its end, in bytes/s, or None.
    out_of_bounds
        The number of wrong values that it gives, or None.
    columns
        Arrays with an entry for each row, as in `NcclTests.columns`.
    possible
        The operations that the numbers allow.
    """

    number: int
    line: int
    operation: str | None
    program: str
    ranks: int | None
    devices: tuple[Device, ...]
    header: Mapping[str, int]
    versions: Mapping[str, str]
    average_busbw: float | None
    out_of_bounds: int | None
    columns: Mapping[str, Array]
    possible: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.columns["size"])

    def __repr__(self) -> str:
        what = self.operation or self.program or "an unnamed operation"
        on = "" if self.ranks is None else f" on {self.ranks} rank{'s' * (self.ranks != 1)}"
        return f"<Table {self.number} of {what}{on}: {len(self)} row{'s' * (len(self) != 1)}>"


@dataclass(frozen=True, eq=False)
class NcclTests:
    """What `read_nccl_tests` found.

    Attributes
    ----------
    name
        Path of the log.
    tables
        The tables in the order of the log; most logs have one.
    skipped
        Rows that were passed over because other output breaks them.

    The properties ``devices``, ``header``, ``versions``, ``average_busbw`` and ``out_of_bounds`` are those of the first
    table; ``operation`` and ``ranks`` are None where the tables differ.
    """

    name: str
    tables: tuple[Table, ...]
    skipped: int = 0

    @cached_property
    def columns(self) -> dict[str, Array]:
        """The rows of all tables as arrays.

        ``size`` (bytes), ``count`` (elements, -1 where not given), ``type``, ``redop`` (an empty text for none),
        ``root`` (-1 for none), then out of place ``time`` (seconds), ``algbw``, ``busbw`` (bytes/s) and ``wrong``
        (number of wrong values; in logs of old versions the greatest error), the same in place with ``_in_place``
        behind, then ``line`` and ``table``. What the log has not (``N/A``) is NaN.
        """
        names = self.tables[0].columns
        found = {name: np.concatenate([table.columns[name] for table in self.tables]) for name in names}
        found["table"] = np.repeat([table.number for table in self.tables], [len(table) for table in self.tables])
        return found

    @property
    def operation(self) -> str | None:
        """The operation of all tables, or None."""
        found = {table.operation for table in self.tables}
        return found.pop() if len(found) == 1 else None

    @property
    def ranks(self) -> int | None:
        """The number of ranks of all tables, or None."""
        found = {table.ranks for table in self.tables}
        return found.pop() if len(found) == 1 else None

    @property
    def devices(self) -> tuple[Device, ...]:
        """Ranks and their GPUs, in the order of ranks."""
        return self.tables[0].devices

    @property
    def header(self) -> Mapping[str, int]:
        """How it was measured."""
        return self.tables[0].header

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of what was run."""
        return self.tables[0].versions

    @property
    def average_busbw(self) -> float | None:
        """The average bus bandwidth that the log gives, in bytes/s."""
        return self.tables[0].average_busbw

    @property
    def out_of_bounds(self) -> int | None:
        """The number of wrong values that the log gives."""
        return self.tables[0].out_of_bounds

    def to_frame(self) -> pd.DataFrame:
        """Return the columns as a pandas frame.

        Raises
        ------
        CollsimError
            If pandas is not installed.
        """
        from collsim.engine.result import frame

        return frame(self.columns)

    def __iter__(self) -> Iterator[Any]:
        """Unpack as ``frame, devices = read_nccl_tests(path)``."""
        yield self.to_frame()
        yield self.devices

    def __len__(self) -> int:
        return sum(map(len, self.tables))

    def tables_of(self, operation: str) -> list[Table]:
        """Return the tables of an operation; where there is none, those of which nothing is known.

        Raises
        ------
        InputError
            If all tables are of other operations.
        """
        found = [table for table in self.tables if table.operation == operation]
        found = found or [
            table
            for table in self.tables
            if table.operation is None and not table.program and operation in table.possible
        ]
        if not found:
            there = dict.fromkeys(
                (table.operation or table.program or " or ".join(table.possible) or "one of another operation")
                + (f" (line {table.line})" if table.line else "")
                for table in self.tables[:20]
            )
            raise InputError(f"{self.name}: expected a table of {operation}, got {', '.join(there)}")
        return found

    def points(self, operation: str, *, in_place: bool = False) -> list[tuple[int, float]]:
        """Return (bytes, bytes/s of busbw) of each row of an operation that has both.

        Raises
        ------
        InputError
            If there is no table of it.
        """
        name = "busbw_in_place" if in_place else "busbw"
        return [
            (size, rate)
            for table in self.tables_of(operation)
            for size, rate in zip(table.columns["size"].tolist(), table.columns[name].tolist(), strict=True)
            if size > 0 and math.isfinite(rate)
        ]

    def __repr__(self) -> str:
        tables = ", ".join(map(repr, self.tables[:4])) + (", ..." if len(self.tables) > 4 else "")
        return f"<NcclTests {self.name!r}: {tables}>"


Measures = tuple[float, float, float, float]
NONE: Measures = (NAN, NAN, NAN, NAN)


@dataclass
class Draft:
    """A table while it is read."""

    line: int = 0
    names: tuple[str, ...] = ("redop", "root")
    """The columns before those of numbers."""
    program: str = ""
    guesses: set[str] = field(default_factory=set)
    """Programs that the text before the table names, on command lines for example."""
    ranks: int | None = None
    devices: dict[int, Device] = field(default_factory=dict)
    header: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    average_busbw: float | None = None
    out_of_bounds: int | None = None
    factor: tuple[float, float] = (0.0, math.inf)
    whole: list[array[int]] = field(default_factory=lambda: [array("q") for _ in range(4)])
    texts: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    measured: list[array[float]] = field(default_factory=lambda: [array("d") for _ in range(8)])

    def __len__(self) -> int:
        return len(self.whole[0])

    def add(
        self, line: int, size: int, count: int, type_: str, redop: str, root: int, out: Measures, within: Measures
    ) -> None:
        """Add a row, with what was measured out of place and in place."""
        for whole, value in zip(self.whole, (size, count, root, line), strict=True):
            whole.append(value)
        for texts, text in zip(self.texts, (type_, "" if redop == "none" else redop), strict=True):
            texts.append(text)
        for column, number in zip(self.measured, (*out, *within), strict=True):
            column.append(number)

    def narrow(self, algbw: float, busbw: float, rounding: float) -> None:
        """Learn from two bandwidths of a row what their quotient can be, with what rounding may have changed."""
        if algbw > 100 * rounding:
            low, high = self.factor
            self.factor = (
                max(low, (busbw - rounding) / (algbw + rounding)),
                min(high, (busbw + rounding) / (algbw - rounding)),
            )

    def table(self, number: int) -> Table:
        """Return what was read."""
        size, count, root, line = (np.array(column, dtype=np.int64) for column in self.whole)
        types, redops = (np.array(texts, dtype=np.str_) for texts in self.texts)
        columns: dict[str, Array] = {"size": size, "count": count, "type": types, "redop": redops, "root": root}
        for name, column in zip([*MEASURES, *(f"{name}_in_place" for name in MEASURES)], self.measured, strict=True):
            columns[name] = np.array(column, dtype=np.float64)
        columns["line"] = line
        ranks = self.ranks or _ranks(self.devices, self.header.get("nthreads", 1) * self.header.get("ngpus", 1))
        operation, program, ranks, possible = self._named(columns, ranks)
        devices = tuple(self.devices[rank] for rank in sorted(self.devices))
        return Table(
            number, self.line, operation, program, ranks, devices, self.header, self.versions, self.average_busbw,
            self.out_of_bounds, columns, possible,
        )  # fmt: skip

    def _named(
        self, columns: Mapping[str, Array], ranks: int | None
    ) -> tuple[str | None, str, int | None, tuple[str, ...]]:
        """Return operation, program and number of ranks, as far as they are certain, and what is possible."""
        blocks = _blocks(columns)
        low, high = self.factor
        factor = self.factor if low <= high else (0.0, math.inf)
        ranks = ranks or (blocks if blocks and blocks > 1 else None)
        possible = possible_operations(
            # old versions have the columns that an operation needs, reduced tables have neither
            reduction=bool((columns["redop"] != "").any()) if {"redop", "root"} & {*self.names} else None,
            root=bool((columns["root"] >= 0).any()) if {"redop", "root"} & {*self.names} else None,
            blocks=None if blocks is None or ranks == 1 else blocks > 1,
            ranks=ranks,
            factor=factor,
        )
        program = self.program
        if not program and len(self.guesses) == 1:
            (guess,) = self.guesses
            if operation_of(guess) is None or operation_of(guess) in possible:
                program = guess
        certain = possible[0] if len(possible) == 1 else None
        operation = operation_of(program) if program else certain
        return operation, program, ranks or ranks_by_factor(operation, factor), tuple(possible)


def _ranks(devices: Mapping[int, Device], each: int) -> int | None:
    """Return the number of ranks of the group that was measured, ``each`` of them in a process."""
    if not devices:
        return None
    first = devices[min(devices)].group
    if any(device.group != first for device in devices.values()):
        return sum(device.group == first for device in devices.values())
    greatest = max(devices) + 1
    # JSON lists only the first GPU of each process; long lists of a process are cut
    return greatest if each < 1 or each > MOST_DEVICES else -(-greatest // each) * each


def _blocks(columns: Mapping[str, Array]) -> int | None:
    """Return how many times the bytes of ``count`` elements a size is, where all rows agree."""
    found = set()
    for size, count, type_ in zip(columns["size"].tolist(), columns["count"].tolist(), columns["type"], strict=True):
        width = ELEMENTS.get(str(type_))
        if size > 0 and count > 0 and width is not None:
            times, rest = divmod(size, count * width)
            found.add(0 if rest else times)
            if len(found) > 1:
                return None
    return found.pop() or None if found else None


class Drafts:
    """The tables of a log while it is read, within limits."""

    def __init__(self, name: str) -> None:
        self.name, self.rows, self.devices, self.skipped, self.broken = name, 0, 0, 0, 0
        self.drafts: list[Draft] = []

    def fail(self, message: str, line: int = 0, column: int = 1) -> NoReturn:
        """Refuse the log."""
        raise InputError(f"{self.name}:{line}:{column}: {message}" if line else f"{self.name}: {message}")

    def open(self, draft: Draft) -> Draft:
        """Begin a table."""
        if len(self.drafts) >= MOST_TABLES:
            self.fail(f"expected at most {MOST_TABLES:,} tables, got more", draft.line)
        self.drafts.append(draft)
        return draft

    def count_row(self, line: int) -> None:
        """Refuse more rows than fit."""
        self.rows += 1
        if self.rows > MOST_ROWS:
            self.fail(f"expected at most {MOST_ROWS:,} rows, got more; keep the table of one run", line)

    def count_device(self, device: Device, line: int) -> None:
        """Refuse more devices than fit."""
        self.devices += 1
        if self.devices > MOST_DEVICES or device.rank >= MOST_DEVICES:
            self.fail(f"expected at most {MOST_DEVICES:,} ranks, got more", line)

    def skip(self, line: int) -> None:
        """Pass over a row that is broken."""
        self.broken = self.broken or line
        self.skipped += 1

    def finish(self) -> NcclTests:
        """Return what was read."""
        filled = [draft for draft in self.drafts if len(draft)]
        if not filled:
            what = "a table of nccl-tests (a line that names the columns, size to busbw, and rows below it)"
            if not self.drafts:
                self.fail(f"expected {what} or its JSON, got none; keep what the program prints on its standard output")
            if self.broken:
                self.fail(f"expected {what}, got only rows that other output breaks, such as this one", self.broken)
            self.fail(f"expected {what}, got no row", self.drafts[0].line)
        return NcclTests(self.name, tuple(draft.table(i) for i, draft in enumerate(filled)), self.skipped)
