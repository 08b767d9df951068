"""Text files of strangers: read whole but never beyond a limit, UTF-8 or refused, every mistake told with its place."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import NoReturn

from collsim.errors import TopologyError, shown

__all__ = ["MAX_BYTES", "Source", "read_source"]

MAX_BYTES = 64 * 2**20
"""Files above this are refused before they are read: no description of a machine needs more."""

_ODD = re.compile("[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f\ufffe\uffff]")  # \x1b begins the colours of a terminal


_ENDS = re.compile(
    r"(?:\.(?:astra|infragraph|simgrid|platform))?\.(?:xml|ya?ml|json|topo|txt|graphml|simai|ns3|log)$", re.I
)


@dataclass(frozen=True)
class Source:
    r"""A text and the name that messages give it.

    Attributes
    ----------
    name
        Path of the file, as the user gave it.
    text
        Its content, every line ended by ``\n``.

    Examples
    --------
    >>> Source("here/torus.simgrid.xml", "").title, Source("HPN_7.0_topo", "").title
    ('torus', 'HPN_7.0_topo')
    >>> Source("machine.topo", "Nodes 8\nTiers many\n").fail("expected a number of tiers, got 'many'", 2, 7)
    Traceback (most recent call last):
    collsim.errors.TopologyError: machine.topo:2:7: expected a number of tiers, got 'many'
    """

    name: str
    text: str

    @property
    def file(self) -> str:
        """The name of the file without its folders, as text that can be shown."""
        name = PurePath(self.name).name[-150:]
        return "".join(letter if letter.isprintable() else "?" for letter in name)

    @property
    def title(self) -> str:
        """The name of the file without the ends that say its format: a name for the machine."""
        return _ENDS.sub("", self.file).strip() or "machine"

    def fail(
        self, message: str, line: int | None = None, column: int | None = None, *, field: str | None = None
    ) -> NoReturn:
        """Refuse the file, with the place (both count from 1)."""
        raise TopologyError(message, path=self.name, line=line, column=column, field=field)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the number of each line, from 1, and the line without its end."""
        yield from enumerate(self.text.split("\n"), start=1)

    def words(self, line: str, number: int) -> Iterator[tuple[str, int, int]]:
        """Yield each word of a line with the number of the line and its column."""
        for found in re.finditer(r"\S+", line):
            yield found[0], number, found.start() + 1


def read_source(path: str | os.PathLike[str], what: str, *, limit: int = MAX_BYTES) -> Source:
    """Return the text of a file.

    Parameters
    ----------
    path
        A regular file in UTF-8, with or without byte order mark.
    what
        What it ought to be, for messages: ``"an NCCL topology"``.
    limit
        Most bytes that are read.

    Raises
    ------
    TopologyError
        If there is no such file, it cannot be read, is too large, a directory, a device or pipe, not UTF-8 or not text.
    """
    try:
        name = os.fsdecode(path)
        file = Path(name)
        if file.is_dir():
            raise TopologyError(f"expected {what}, got a directory; name the file in it", path=name)
        if file.exists() and not file.is_file():
            raise TopologyError(f"expected {what}, got a device or a pipe; save it to a file first", path=name)
        with file.open("rb") as stream:
            data = stream.read(limit + 1)
    except FileNotFoundError:
        raise TopologyError(f"expected {what}, got no such file", path=name) from None
    except OSError as error:
        raise TopologyError(f"expected {what}, got an error: {error.strerror}", path=name) from None
    except (TypeError, ValueError):
        raise TopologyError(f"expected the path of {what}, got {shown(path)}") from None
    if len(data) > limit:
        raise TopologyError(f"expected at most {limit // 2**20} MiB, got a larger file", path=name)
    return Source(name, _decoded(data, name, what))


def _decoded(data: bytes, name: str, what: str) -> str:
    def fail(start: int, before: bytes, got: str) -> NoReturn:
        line, column = before.count(b"\n") + 1, start - (before.rfind(b"\n") + 1) + 1
        raise TopologyError(f"expected {what} in UTF-8, got {got}", path=name, line=line, column=column)

    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        fail(0, b"", "UTF-16; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        fail(error.start, data[: error.start], f"the byte 0x{data[error.start]:02x}; is it a binary file?")
    if odd := _ODD.search(text):
        before = text[: odd.start()].encode()
        fail(len(before), before, f"the character U+{ord(odd[0]):04X}; is it a binary file?")
    return text.replace("\r\n", "\n").replace("\r", "\n")
