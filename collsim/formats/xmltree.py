"""XML of strangers as plain values: no entities, nothing fetched, limits on depth and number, a place for each element.

The parser is that of `defusedxml`, which refuses entity declarations and external references; a DOCTYPE is passed over
unread. Elements come out as values without behaviour, made without recursion.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from collsim.errors import TopologyError, did_you_mean, shown
from collsim.formats.source import Source

__all__ = ["MAX_DEPTH", "MAX_ELEMENTS", "Element", "parse_xml"]

MAX_DEPTH = 64
MAX_ELEMENTS = 1_000_000
MAX_ATTRIBUTES = 64
MAX_LENGTH = 1_000_000
MAX_MIXED = 10_000
"""Letters of text between elements that are kept; nothing has more there but blanks."""


@dataclass(slots=True, eq=False)
class Element:
    """An element of an XML file.

    Attributes
    ----------
    tag
        Its name.
    attributes
        Texts by name.
    children
        The elements in it, in order.
    text
        The text directly in it, without blanks at its ends.
    line, column
        Where it begins, counted from 1.
    source
        The file that it stands in.
    """

    tag: str
    attributes: dict[str, str]
    line: int
    column: int
    source: Source = field(repr=False)
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def fail(self, message: str, attribute: str | None = None) -> NoReturn:
        """Refuse the element, or an attribute of it."""
        name = self.tag if attribute is None else f"{self.tag}.{attribute}"
        self.source.fail(message, self.line, self.column, field=name[:100])

    def get(self, attribute: str, otherwise: str | None = None) -> str:
        """Return an attribute, or what is given instead; refuse the element if it has none and nothing is given.

        Raises
        ------
        TopologyError
            With the place of the element and the attribute of it that is most like the one that is missing.
        """
        value = self.attributes.get(attribute, otherwise)
        if value is None:
            self.fail(f"expected an attribute {attribute!r}, got none{did_you_mean(attribute, self.attributes)}")
        return value

    def whole(self, attribute: str, *, least: int = 0, most: int = 2**31) -> int:
        """Return an attribute as a whole number, decimal or hexadecimal after 0x.

        Raises
        ------
        TopologyError
            If it is missing, no whole number, or not from ``least`` to ``most``.
        """
        text = self.get(attribute).strip()
        try:
            value = int(text, 16 if text[:2].lower() == "0x" else 10) if len(text) <= 40 else None
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            self.fail(f"expected a whole number from {least:,} to {most:,}, got {shown(text)}", attribute)
        return value

    def all(self, tag: str) -> Iterator[Element]:
        """Yield the elements of a name directly in this one."""
        return (child for child in self.children if child.tag == tag)

    def walk(self) -> Iterator[Element]:
        """Yield this element and all below it, in the order of the file."""
        todo = [self]
        while todo:
            element = todo.pop()
            yield element
            todo.extend(reversed(element.children))


def parse_xml(source: Source) -> Element:
    r"""Return the root element of an XML text.

    Raises
    ------
    TopologyError
        For what is not well formed, entities and external references, more than ``MAX_DEPTH`` levels or
        ``MAX_ELEMENTS`` elements; with the place.

    Examples
    --------
    >>> root = parse_xml(Source("a.xml", "<system>\n  <cpu numaid='0'/>\n</system>"))
    >>> root.children[0].tag, root.children[0].line, root.children[0].column, root.children[0].whole("numaid")
    ('cpu', 2, 3, 0)
    >>> parse_xml(Source("b.xml", "<system>"))
    Traceback (most recent call last):
    collsim.errors.TopologyError: b.xml:1:9: expected XML, got a mistake in its form: no element found
    """
    from xml.etree.ElementTree import ParseError

    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import DefusedXMLParser

    target = _Target(source)
    parser: Any = DefusedXMLParser(target=target, forbid_dtd=False, forbid_entities=True, forbid_external=True)
    target.expat = parser.parser
    try:
        parser.feed(source.text)  # at once: in pieces an unfinished token would be looked at again with each
        parser.close()
    except ParseError as error:
        line, column = error.position
        problem = str(error).partition(": line")[0]
        source.fail(f"expected XML, got a mistake in its form: {problem}", line, column + 1)
    except DefusedXmlException as error:
        what = "an external reference" if "External" in type(error).__name__ else "an entity declaration"
        source.fail(f"expected plain XML, got {what}; write its text out", *target.place())
    except (ValueError, LookupError, AssertionError) as error:  # an encoding that is declared and that there is not
        if isinstance(error, TopologyError):
            raise
        source.fail(f"expected XML in UTF-8, got an error: {error}", *target.place())
    if target.root is None:
        source.fail("expected XML, got an empty file", 1, 1)
    return target.root


class _Target:
    """Receives what the parser finds; the open elements are a list, so that no depth recurses."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.expat: Any = None
        self.root: Element | None = None
        self.open: list[Element] = []
        self.pieces: list[str] = []
        self.length = self.count = 0

    def place(self) -> tuple[int, int]:
        return self.expat.CurrentLineNumber, self.expat.CurrentColumnNumber + 1

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.flush()
        self.count += 1
        if self.count > MAX_ELEMENTS:
            self.source.fail(f"expected at most {MAX_ELEMENTS:,} elements, got more", *self.place())
        if len(self.open) >= MAX_DEPTH:
            self.source.fail(f"expected at most {MAX_DEPTH} levels of elements, got more", *self.place())
        if len(attributes) > MAX_ATTRIBUTES:
            self.source.fail(f"expected at most {MAX_ATTRIBUTES} attributes, got {len(attributes)}", *self.place())
        tag = tag.rpartition("}")[2]  # without its namespace
        element = Element(
            tag, {key.rpartition("}")[2]: text for key, text in attributes.items()}, *self.place(), self.source
        )
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.root = element
        self.open.append(element)

    def data(self, text: str) -> None:
        if self.open and self.length < MAX_LENGTH:  # what is longer is no value, and many short pieces must stay cheap
            self.length += len(text)
            self.pieces.append(text)

    def flush(self) -> None:
        """Give the open element the text that has come since its last child."""
        if self.pieces:
            element = self.open[-1]
            if not element.children or len(element.text) < MAX_MIXED:
                element.text += "".join(self.pieces)
        self.pieces.clear()
        self.length = 0

    def end(self, tag: str) -> None:
        self.flush()
        element = self.open.pop()
        element.text = element.text[:MAX_LENGTH].strip()

    def close(self) -> None:
        return None
