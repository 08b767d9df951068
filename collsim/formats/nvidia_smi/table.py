"""From the text to names and cells, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from collsim.errors import did_you_mean, shown
from collsim.formats.source import Source

__all__ = ["LEVELS", "Table", "parse_table"]

LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Distances on PCIe, the nearest first."""

MAX_DEVICES = 512
"""GPUs and NICs of one machine."""

MAX_NAME = 200
MAX_LINE = 200_000
"""Letters of a line that are looked at; no table has longer ones."""

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ONE = r"(?:X|NV[1-9][0-9]{0,2}|PIX|PXB|PHB|NODE|SYS|SOC)"
_CELL = re.compile(_ONE)
_CELLS = re.compile(f"{_ONE}+")
_GPU = re.compile(r"GPU(0|[1-9][0-9]{0,5})")
_PEER = {"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"}
_AMD = re.compile(r"XGMI|PCIE|[0-9]{1,4}|True|False")

AMD = (
    "expected a table of nvidia-smi topo -m, got one of rocm-smi or amd-smi, which is not read; write a topology file "
    "such as topologies/mi300x.yaml"
)
Word = tuple[str, int, int]


@dataclass
class Table:
    """What the text says.

    Attributes
    ----------
    source
        The text.
    names
        Devices in the order of the columns.
    gpus
        Indices of the GPUs.
    cells
        Row by row: ``X``, ``NV<n>`` or one of ``LEVELS``.
    places
        Line and column of each cell.
    cpus, numas
        Affinities of a device as written, empty where there are none.
    """

    source: Source
    names: list[str]
    gpus: list[int]
    cells: list[list[str]] = field(default_factory=list)
    places: list[list[tuple[int, int]]] = field(default_factory=list)
    cpus: list[str] = field(default_factory=list)
    numas: list[str] = field(default_factory=list)

    def fail(self, a: int, b: int, message: str) -> NoReturn:
        """Refuse the cell of two devices."""
        self.source.fail(message, *self.places[a][b], field=f"{self.names[a]}, {self.names[b]}")


def parse_table(source: Source) -> Table:
    """Return the first table of a text.

    Raises
    ------
    TopologyError
        If there is none, or it is not complete and symmetric.
    """
    if "ROCm System Management" in source.text:
        source.fail(AMD, 1, 1)
    rows = _lines(source)
    names, titles = _header(source, rows)
    table = Table(source, names, [index for index, name in enumerate(names) if _GPU.fullmatch(name)])
    _rows(table, rows, titles)
    _check(table)
    _rename(table, rows)
    return table


def _lines(source: Source) -> Iterator[tuple[int, list[Word]]]:
    """Yield the words of each line that has some, with blanks in place of colours, so that columns stay right."""
    for number, line in source.lines():
        plain = _ESCAPE.sub(lambda found: " " * len(found[0]), line[:MAX_LINE])
        if words := list(source.words(plain, number)):
            yield number, words


def _header(source: Source, rows: Iterator[tuple[int, list[Word]]]) -> tuple[list[str], list[str]]:
    """Return the names of the columns, and the titles of those that follow, from the first row."""
    words = next((words for _, words in rows if words[0][0] == "GPU0"), None)
    if words is None:
        source.fail("expected a table of nvidia-smi topo -m with a first row GPU0 GPU1 ..., got none", 1, 1)
    if len(words) > 1 and words[1][0] == "X":
        source.fail("expected the row with the names of the columns before that of GPU0, got none", *words[0][1:])
    devices = words
    for place, (text, _, _) in enumerate(words):
        if text in ("CPU", "NUMA", "GPU"):
            devices = words[:place]
            break
    if len(devices) > MAX_DEVICES:
        source.fail(f"expected at most {MAX_DEVICES} columns, got {len(devices)}", *words[0][1:])
    seen: set[str] = set()
    gpus = 0
    for text, line, column in devices:
        if len(text) > MAX_NAME or not text.isprintable():
            source.fail(f"expected a name of up to {MAX_NAME} printable letters, got {shown(text)}", line, column)
        if text in seen:
            source.fail(f"expected each column once, got {text} twice", line, column)
        if text.startswith("GPU"):
            if text != f"GPU{gpus}":
                source.fail(f"expected GPU{gpus}, the GPUs being numbered from 0, got {shown(text)}", line, column)
            gpus += 1
        seen.add(text)
    return [text for text, _, _ in devices], [text for text, _, _ in words[len(devices) :]]


def _rows(table: Table, rows: Iterator[tuple[int, list[Word]]], titles: list[str]) -> None:
    source, names = table.source, table.names
    index = {name: number for number, name in enumerate(names)}
    found: dict[int, tuple[list[str], list[tuple[int, int]], list[str]]] = {}
    end = (source.text.count("\n") + 1, 1)
    for number, words in rows:
        end = (number, 1)
        name, line, column = words[0]
        if name not in index:
            missing = next(other for place, other in enumerate(names) if place not in found)
            hint = did_you_mean(name[:60], names)
            source.fail(f"expected the row of {missing}, got {shown(name[:60])}{hint}", line, column)
        if index[name] in found:
            source.fail(f"expected one row of {name}, got a second one", line, column)
        found[index[name]] = _row(table, words)
        if len(found) == len(names):
            break
    else:
        missing = next(other for place, other in enumerate(names) if place not in found)
        source.fail(f"expected the row of {missing}, got the end of the table", *end)
    for place in range(len(names)):
        cells, places, rest = found[place]
        table.cells.append(cells)
        table.places.append(places)
        lists = [text for text in rest if re.fullmatch(r"[0-9][0-9,-]*", text)] if rest and rest[0][0].isdigit() else []
        table.cpus.append(lists[0][:MAX_NAME] if lists and "CPU" in titles else "")
        numa = lists[1:2] if "CPU" in titles else lists[:1]
        table.numas.append(numa[0][:MAX_NAME] if numa and "NUMA" in titles else "")


def _row(table: Table, words: list[Word]) -> tuple[list[str], list[tuple[int, int]], list[str]]:
    """Return the cells of a row with their places, and the words after them."""
    source, n = table.source, len(table.names)
    cells: list[str] = []
    places: list[tuple[int, int]] = []
    for number, (text, line, column) in enumerate(words[1:], start=2):
        if len(text) > MAX_NAME * 8 or not _CELLS.fullmatch(text):
            _refuse_cell(source, text, line, column, len(cells), n)
        for cell in _CELL.finditer(text):
            cells.append("SYS" if cell[0] == "SOC" else cell[0])
            places.append((line, column + cell.start()))
        if len(cells) > n:
            source.fail(f"expected {n} cells, one a column, got more", *places[n])
        if len(cells) == n:
            return cells, places, [text for text, _, _ in words[number:]]
    last = words[-1]
    source.fail(f"expected {n} cells, one a column, got {len(cells)}", last[1], last[2] + len(last[0]))


def _refuse_cell(source: Source, text: str, line: int, column: int, count: int, n: int) -> NoReturn:
    if text in _PEER:
        source.fail("expected the table of nvidia-smi topo -m, got that of nvidia-smi topo -p2p", line, column)
    if _AMD.fullmatch(text) and count <= 1:
        source.fail(AMD, line, column)
    if re.fullmatch(r"[0-9][0-9,-]*|N/A", text):
        source.fail(f"expected {n} cells, one a column, got {count} before {shown(text[:60])}", line, column)
    hint = did_you_mean(text[:60].upper(), ("X", *LEVELS))
    source.fail(f"expected one of X, NV<n>, {', '.join(LEVELS)}, got {shown(text[:60])}{hint}", line, column)


def _check(table: Table) -> None:
    cells, names, gpus = table.cells, table.names, set(table.gpus)
    for a in range(len(names)):
        for b in range(len(names)):
            cell = cells[a][b]
            if (a == b) != (cell == "X"):
                wanted = "X in the cell of a device and itself" if a == b else "a distance between two devices"
                table.fail(a, b, f"expected {wanted}, got {cell}")
            if b < a and cell != cells[b][a]:
                line, column = table.places[b][a]
                table.fail(a, b, f"expected {cells[b][a]}, as in line {line}, column {column}, got {cell}")
            if cell.startswith("NV") and not {a, b} <= gpus:
                table.fail(a, b, f"expected NVLinks between GPUs only, got {cell}")


def _rename(table: Table, rows: Iterator[tuple[int, list[Word]]]) -> None:
    """Give the NICs the names of the legend, and refuse a second table."""
    index = {name: number for number, name in enumerate(table.names)}
    in_legend = False
    renamed: set[int] = set()
    for _, words in rows:
        texts = [text for text, _, _ in words]
        if texts[:2] == ["GPU0", "X"] and len(texts) > 2 and _CELLS.fullmatch(texts[2]):
            table.source.fail("expected one table, got a second one; keep one of them", *words[0][1:])
        if texts[:2] == ["NIC", "Legend:"]:
            in_legend = True
        elif in_legend and len(texts) == 2 and texts[0].endswith(":") and texts[0][:-1] in index:
            place, (name, line, column) = index[texts[0][:-1]], words[1]
            if place in renamed or place in table.gpus:
                table.source.fail(f"expected one name for {texts[0][:-1]}, got a second one", line, column)
            if name in table.names and table.names[place] != name:
                table.source.fail(
                    f"expected a name of its own for {texts[0][:-1]}, got {shown(name[:60])}", line, column
                )
            if len(name) > MAX_NAME or not name.isprintable():
                table.source.fail(f"expected a name of up to {MAX_NAME} letters, got {shown(name)}", line, column)
            table.names[place] = name
            renamed.add(place)
