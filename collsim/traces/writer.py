"""Lines of JSON out of columns: formatted in batches by NumPy, so that no event is ever a Python object."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError
from collsim.outputs import part_of

__all__ = ["Rows", "Template", "document", "in_order", "written_whole"]

Array = npt.NDArray[Any]

BATCH = 20_000
"""Events that are formatted at once."""
QUICK = 1
"""Of gzip's levels the first: traces repeat themselves, and the others take several times as long for a little less."""
FOUR = np.frombuffer("".join(f"{n:04d}" for n in range(10_000)).encode(), dtype=np.uint32)
"""Four digits as one word, for each number that has no more."""


def _number(values: Array) -> Array:
    r"""Return the decimal digits of whole numbers from 0 as a matrix of bytes, flush right, zero bytes before them.

    Examples
    --------
    >>> [bytes(row) for row in _number(np.array([7, 1234]))]
    [b'\x00\x00\x007', b'1234']
    """
    rest = np.ascontiguousarray(values, dtype=np.int64)
    wide = len(str(int(rest.max(initial=0))))
    words = -(-wide // 4)
    digits = np.empty((len(rest), words), dtype=np.uint32)
    for word in range(words - 1, 0, -1):
        rest, last = np.divmod(rest, 10_000)
        digits[:, word] = FOUR[last]
    digits[:, 0] = FOUR[rest]
    found = digits.view(np.uint8)[:, 4 * words - wide :]
    for place in range(1, wide):
        found[values < 10**place, wide - 1 - place] = 0
    return found


def _fixed(values: Array, places: int) -> Array:
    """Return numbers with a point before the last ``places`` digits: 1234 is ``1.234`` with three."""
    whole, part = np.divmod(values, 10**places)
    digits = FOUR[part].view(np.uint8).reshape(-1, 4)[:, 4 - places :]
    point = np.full((len(values), 1), ord("."), dtype=np.uint8)
    return np.hstack([_number(whole), point, digits])


FORMS: dict[str, Callable[[Array], Array]] = {
    "": _number,
    "us": lambda ns: _fixed(ns, 3),
    "percent": lambda hundredths: _fixed(hundredths, 2),
}
"""What a column holds: whole numbers; nanoseconds, written as microseconds; hundredths of a per cent."""


class Template:
    r"""Text with columns in it: ``<name>`` for whole numbers, ``<name:form>`` for one of `FORMS` or a list of texts.

    Parameters
    ----------
    text
        The text; ``<name>`` must not stand in it for anything else.
    **texts
        Lists of texts: ``<name:list>`` writes the one whose number the column holds.

    Examples
    --------
    >>> template = Template('{"ts":<start:us>,"to":"<to:who>"}', who=["gpu0", "switch"])
    >>> template.lines({"start": np.array([1500, 20]), "to": np.array([0, 1])}).tobytes().replace(b"\0", b"")
    b'{"ts":1.500,"to":"gpu0"}{"ts":0.020,"to":"switch"}'
    """

    def __init__(self, text: str, **texts: Sequence[str]) -> None:
        self.parts: list[tuple[Array, str, Callable[[Array], Array]]] = []
        forms = {**FORMS, **{name: _choice(words) for name, words in texts.items()}}
        at = 0
        for field in re.finditer(r"<(\w+)(?::(\w+))?>", text):
            self.parts.append((_bytes(text[at : field.start()]), field[1], forms[field[2] or ""]))
            at = field.end()
        self.tail = _bytes(text[at:])

    def lines(self, columns: Mapping[str, Array]) -> Array:
        """Return a matrix of bytes, a row for each entry of the columns; zero bytes in it are not part of the text."""
        rows = len(next(iter(columns.values())))
        made: list[Array] = []
        cache: dict[tuple[str, int], Array] = {}
        for before, name, form in self.parts:
            if (name, id(form)) not in cache:
                cache[name, id(form)] = form(columns[name])
            made += [np.broadcast_to(before, (rows, len(before))), cache[name, id(form)]]
        made.append(np.broadcast_to(self.tail, (rows, len(self.tail))))
        return np.hstack(made)


def _bytes(text: str) -> Array:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def _choice(words: Sequence[str]) -> Callable[[Array], Array]:
    coded = [word.encode() for word in words]
    wide = max(map(len, coded), default=0)
    table = np.frombuffer(b"".join(word.ljust(wide, b"\0") for word in coded), dtype=np.uint8).reshape(len(coded), wide)
    return lambda numbers: table[numbers]


@dataclass(frozen=True, eq=False)
class Rows:
    """Events of one kind: when (picoseconds), the text, and a function that gives the columns of some of them."""

    at: Array
    template: Template
    columns: Callable[[Array], Mapping[str, Array]]


def in_order(kinds: Sequence[Rows]) -> Iterator[bytes]:
    """Yield the text of all events in order of time; of events of one time, earlier kinds come first.

    Examples
    --------
    >>> a = Rows(np.array([5, 1]), Template("a<n> "), lambda some: {"n": some})
    >>> b = Rows(np.array([3, 5]), Template("b<n> "), lambda some: {"n": some})
    >>> b"".join(in_order([a, b]))
    b'a1 b0 a0 b1 '
    """
    border = np.cumsum([0, *(len(kind.at) for kind in kinds)])
    order = np.argsort(np.concatenate([kind.at for kind in kinds]), kind="stable") if kinds else np.empty(0, np.int64)
    for low in range(0, len(order), BATCH):
        part = order[low : low + BATCH]
        found = []
        for number, kind in enumerate(kinds):
            places = np.flatnonzero((part >= border[number]) & (part < border[number + 1]))
            if len(places):
                found.append((places, kind.template.lines(kind.columns(part[places] - border[number]))))
        page = np.zeros((len(part), max(lines.shape[1] for _, lines in found)), dtype=np.uint8)
        for places, lines in found:
            page[places, : lines.shape[1]] = lines
        yield page.tobytes().translate(None, b"\0")


def document(
    out: IO[bytes], head: Mapping[str, Any], first: Sequence[Mapping[str, Any]], rest: Iterator[bytes]
) -> None:
    """Write a trace: fields, then the list of events, one a line.

    Parameters
    ----------
    out
        Where to write.
    head
        What stands beside the events.
    first
        Events that come first (names).
    rest
        Text of further events, each of which begins with ``,`` and a new line.
    """
    # a line a field: Holistic Trace Analysis looks for the rank line by line before it reads the JSON
    fields = "".join(f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
    out.write(f'{{\n{fields}"traceEvents": [\n'.encode())
    out.write(",\n".join(json.dumps(event) for event in first).encode())
    for text in rest:
        out.write(text)
    out.write(b"\n]\n}\n")


@contextmanager
def written_whole(paths: Sequence[Path], what: str) -> Iterator[Iterator[IO[bytes]]]:
    """Give a file to write for each path, in turn; when all are written they take their names, or none does.

    Parameters
    ----------
    paths
        The files; those that end in ``.gz`` are compressed.
    what
        Begins the message of an error.

    Raises
    ------
    InputError
        If one cannot be written.
    """
    parts = [part_of(path) for path in paths]
    files = _opened(parts, [path.name.lower().endswith(".gz") for path in paths])
    try:
        yield files
        files.close()
        for path in paths:
            if path.is_dir():
                raise InputError(f"{what}: {path}: cannot be written: it is a folder")
        for part, path in zip(parts, paths, strict=True):
            os.replace(part, path)
    except OSError as error:
        raise InputError(f"{what}: cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # closing writes what is left, which a full disk refuses a second time
            files.close()
        for part in parts:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _opened(parts: Sequence[Path], packed: Sequence[bool]) -> Any:
    """Open one file after the other, each closed before the next."""
    for part, zipped in zip(parts, packed, strict=True):
        with open(part, "wb") as plain:
            if zipped:
                # without name and time, so that the same run gives the same bytes
                with (
                    gzip.GzipFile(filename="", mode="wb", compresslevel=QUICK, fileobj=plain, mtime=0) as thin,
                    io.BufferedWriter(thin, 1 << 16) as out,
                ):
                    yield out
            else:
                yield plain
