"""Values of a document with their places, and what each of them ought to be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from itertools import islice
from typing import Any, NoReturn

from collsim.errors import did_you_mean
from collsim.formats.source import Source
from collsim.topology.names import field_text, shown_text
from collsim.topology.yamltree import Loc, Node, parse

__all__ = ["MAX_COUNT", "Value", "load", "nearest"]

MAX_COUNT = 2**31 - 1
"""The schema's counts are int32."""

LONGEST = 100
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint at the name that may be meant, looked for among some of those that there are.

    Examples
    --------
    >>> nearest("nvlsw", ["cpu", "nvsw"])
    "; did you mean 'nvsw'?"
    """
    return did_you_mean(name[:60], (other[:60] for other in islice(known, 1000)))


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the file.

    Attributes
    ----------
    node
        What stands there, with line and column.
    loc
        Where in the document.
    source
        The file.
    """

    node: Node
    loc: Loc
    source: Source

    def fail(self, message: str) -> NoReturn:
        """Refuse the value."""
        self.source.fail(message, self.node.line, self.node.column, field=field_text(self.loc) or None)

    def got(self) -> str:
        """Return what stands there, for messages."""
        if self.node.children is None:
            return shown_text(self.node.text)
        return "a list" if self.node.keys is None else "a mapping"

    def mapping(self, what: str) -> Value:
        """Refuse the value if it is no mapping."""
        if self.node.keys is None:
            self.fail(f"expected {what}, got {self.got()}")
        return self

    def get(self, key: str) -> Value | None:
        """Return the value of a key of a mapping, None where it is missing or empty."""
        child = (self.node.children or {}).get(key)
        return None if child is None or child.value is None else Value(child, (*self.loc, key), self.source)

    def need(self, key: str) -> Value:
        """Return the value of a key that must be there."""
        found = self.get(key)
        if found is None:
            self.fail(f"expected {key!r}, got none{nearest(key, self.node.keys or ())}")
        return found

    def items(self, key: str) -> Iterator[Value]:
        """Yield the items of the list of a key, none where it is missing."""
        found = self.get(key)
        if found is None:
            return
        if found.node.children is None or found.node.keys is not None:
            found.fail(f"expected a list, got {found.got()}")
        for number, child in found.node.children.items():
            yield Value(child, (*found.loc, number), self.source)

    def check_keys(self, *known: str) -> None:
        """Refuse keys that are likely misspelt; others may be those of another version, which cannot be known."""
        for key in self.node.keys or ():
            if key in known or not (near := get_close_matches(key[:60], known, n=1, cutoff=0.8)):
                continue
            line, column = (self.node.keys or {})[key]
            message = f"expected {near[0]!r}, got {shown_text(key)}"
            self.source.fail(message, line, column, field=field_text(self.loc) or None)

    def text(self) -> str:
        """Return a text; a number counts as it is written."""
        if self.node.children is not None or self.node.value is None or isinstance(self.node.value, bool):
            self.fail(f"expected text, got {self.got()}")
        return self.node.text

    def name(self, forbidden: str = "") -> str:
        """Return a name: printable and short."""
        name = self.text()
        if not name.strip() or len(name) > LONGEST or not name.isprintable():
            self.fail(f"expected a name of up to {LONGEST} printable letters, got {self.got()}")
        if wrong := next((letter for letter in name if letter in forbidden), None):
            self.fail(f"expected a name without {wrong!r}, which stands between names in connections, got {self.got()}")
        return name

    def words(self, key: str) -> str:
        """Return the text of a description in one line; empty where there is none."""
        found = self.get(key)
        if found is None:
            return ""
        line = " ".join(found.text()[:2000].split())
        return "".join(letter if letter.isprintable() else "?" for letter in line)

    def whole(self) -> int:
        """Return a count."""
        number = self.node.value
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAX_COUNT:
            self.fail(f"expected a whole number from 0 to {MAX_COUNT:,}, got {self.got()}")
        return number

    def number(self) -> Fraction:
        """Return a number just as it is written, without rounding."""
        value: Any = self.node.value
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not plain or len(self.node.text) > LONGEST or not _DECIMAL.fullmatch(self.node.text):
            self.fail(f"expected a number such as 100 or 0.5, got {self.got()}")
        return Fraction(self.node.text)


def load(source: Source) -> Value:
    """Return the root of a document in YAML or JSON, which is YAML to its reader.

    Raises
    ------
    TopologyError
        If it is neither, or no mapping.
    """
    root = Value(parse(source.text, source.name), (), source)
    return root.mapping("an InfraGraph document (devices, instances, links, edges)")
