"""A strict reader of YAML text: plain values, and the line and column of each of them.

PyYAML is used for its grammar only. Its events are walked here, because what it does above them is what bites in
configuration files: YAML 1.1 scalars (``no`` is false, ``22:22`` is 1342, ``1e9`` is text), the last of two equal keys
wins in silence, tags build objects, aliases grow without limit and deep nesting recurses. Scalars follow the core
schema of YAML 1.2; the rest is an error with its place. No step here recurses, and no alias is copied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from collsim.errors import TopologyError, did_you_mean
from collsim.topology.names import shown_text

__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_VALUES", "Loc", "Node", "parse", "read_text"]

MAX_BYTES = 16 * 2**20
MAX_DEPTH = 32
MAX_VALUES = 500_000

Loc = tuple[str | int, ...]

_NULL = re.compile(r"(?:|~|null|Null|NULL)\Z")
_TRUE = re.compile(r"(?:true|True|TRUE)\Z")
_FALSE = re.compile(r"(?:false|False|FALSE)\Z")
# Longer whole numbers than these mean nothing here and come out as floats.
_INT = re.compile(r"[-+]?[0-9]{1,30}\Z", re.ASCII)
_BASED = re.compile(r"0(?:o[0-7]{1,30}|x[0-9a-fA-F]{1,30})\Z", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z", re.ASCII)
_INFINITE = re.compile(r"(?:([-+]?)\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


@dataclass(slots=True, eq=False)
class Node:
    """One value of the file.

    Attributes
    ----------
    value
        The plain value: text, number, bool, None, a list or a dict.
    line, column
        Where it begins, counted from 1.
    text
        A scalar as it stands in the file, empty for lists and mappings.
    size, height
        Number of values in it with every alias written out, and levels of nesting.
    children
        The nodes of a list (by index) or of a mapping (by key).
    keys
        Line and column of the keys of a mapping.
    """

    value: Any
    line: int
    column: int
    text: str = ""
    size: int = 1
    height: int = 1
    children: dict[str | int, Node] | None = None
    keys: dict[str, tuple[int, int]] | None = None

    def find(self, loc: Loc) -> Node:
        """Return the node at ``loc``, or the nearest one around it that exists."""
        node = self
        for step in loc:
            child = (node.children or {}).get(step)
            if child is None:
                break
            node = child
        return node


@dataclass(slots=True)
class _Open:
    """A list or a mapping whose end has not been seen."""

    node: Node
    anchor: str | None
    key: str | None = None


def read_text(path: str | Path) -> str:
    """Return the text of a file, refusing what cannot be a topology before it is read.

    Raises
    ------
    TopologyError
        If the file is missing, a directory, not readable, larger than ``MAX_BYTES`` or not UTF-8.
    """
    name = str(path) if len(str(path)) <= 300 else str(path)[:297] + "..."
    try:
        file = Path(path)
        if file.is_dir():
            raise TopologyError("expected a file, got a directory; name the .yaml file in it", path=name)
        if file.exists() and not file.is_file():
            # A named pipe or a device would block or never end.
            raise TopologyError("expected a regular file, got a device or pipe", path=name)
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise TopologyError(f"expected a topology file, got no such file{_near(Path(path))}", path=name) from None
    except PermissionError:
        raise TopologyError("expected a readable file, got one without permission to read", path=name) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TopologyError(f"expected a readable file, got an error: {reason}", path=name) from None
    if len(data) > MAX_BYTES:
        limit = f"{MAX_BYTES // 2**20} MiB"
        raise TopologyError(
            f"expected at most {limit}, got a larger file; use ranges, modules or a generator", path=name
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        message = f"expected UTF-8 text, got the byte 0x{data[error.start]:02x}; is it a binary file?"
        raise TopologyError(message, path=name, line=line, column=column) from None


def _near(path: Path) -> str:
    """Return the topology file in the same directory that may be meant."""
    try:
        names = [entry.name for entry in islice(path.parent.iterdir(), 1000) if entry.suffix in (".yaml", ".yml")]
    except (OSError, ValueError):
        return ""
    return did_you_mean(path.name, names)


def parse(text: str, path: str = "<text>") -> Node:
    r"""Return the root node of YAML text.

    Parameters
    ----------
    text
        One YAML document.
    path
        The name to use in messages.

    Raises
    ------
    TopologyError
        With the line and column, for anything outside the subset that topologies use.

    Examples
    --------
    >>> root = parse("nodes:\n  - {name: no, kind: 1e9}")
    >>> root.value
    {'nodes': [{'name': 'no', 'kind': 1000000000.0}]}
    >>> root.find(("nodes", 0, "kind")).line
    2
    """
    if len(text) > MAX_BYTES:
        raise TopologyError(f"expected at most {MAX_BYTES // 2**20} MiB of text, got more", path=path)
    text = text.removeprefix("\ufeff")
    _check_characters(text, path)
    return _Walk(path).run(_events(text, path))


def _events(text: str, path: str) -> Iterator[Any]:
    """Yield the events of PyYAML (the C parser where it is built), its errors in our words."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        yield from yaml.parse(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        problem = " ".join(f"{error.context or ''}: {error.problem or 'something else'}".split())
        message = "expected YAML, got a mistake in its form"
        message += _form_hint(text, line, problem) or f" ({_in_words(problem)})"
        raise TopologyError(message, path=path, line=line, column=column) from None
    except yaml.YAMLError as error:
        raise TopologyError(f"expected YAML, got {' '.join(str(error).split())}", path=path) from None


def _check_characters(text: str, path: str) -> None:
    """Refuse what YAML does not allow in a text (it would allow a byte order mark inside, which nobody means)."""
    found = _UNPRINTABLE.search(text)
    if found:
        start = found.start()
        message = f"expected printable text, got the character U+{ord(found[0]):04X}; is it a binary file?"
        line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
        raise TopologyError(message, path=path, line=line, column=column)


# What libyaml and PyYAML say, and what it means for who writes a topology.
_PROBLEMS = {
    "block collection": "a list goes on with - in the same column, and its end goes back to that of its key",
    "block mapping": "the indentation does not fit the lines above, or a text needs quotes",
    "mapping values are not allowed": "a ': ' too many; check the indentation, and put text with ': ' in quotes",
    "could not find expected ':'": "a key without ': '",
    r"',' or '\}'": "a { without its }, or a comma is missing",
    r"',' or '\]'": "a [ without its ], or a comma is missing",
    "unexpected end of stream": "a quote that is not closed",
    "cannot start any token": "text cannot begin with this character; put it in quotes",
}


def _in_words(problem: str) -> str:
    """Return the problem in the words of `_PROBLEMS`, or as the parser told it."""
    own = problem.partition(": ")[2]
    return next((words for pattern, words in _PROBLEMS.items() if re.search(pattern, problem)), own)


def _form_hint(text: str, line: int, problem: str) -> str:
    """Return the remedy for the two mistakes of form that topology files invite."""
    lines = text.splitlines()
    near = lines[line - 1] if 0 < line <= len(lines) else ""
    bare = re.sub(r"\"[^\"]*\"|'[^']*'", "''", near)
    if re.search(r"[\[{,:]\s*[\w.:-]*\w\[", bare) and re.search(r"',' or '[\]}]'", problem):
        return '; a name with [ ] needs quotes inside [ ] and { }: "gpu[0-7]"'
    if "\t" in near[: len(near) - len(near.lstrip())] or "'\\t'" in problem:
        return "; indent with spaces instead of tabs"
    return ""


class _Walk:
    """Builds the nodes from the events with a stack of its own."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.stack: list[_Open] = []
        self.anchors: dict[str, Node] = {}
        self.root: Node | None = None
        self.total = 0

    def run(self, events: Iterator[Any]) -> Node:
        documents = 0
        handlers: dict[str, Callable[[Any], None]] = {
            "ScalarEvent": self.scalar,
            "AliasEvent": self.alias,
            "SequenceStartEvent": self.open_list,
            "MappingStartEvent": self.open_mapping,
            "SequenceEndEvent": self.close,
            "MappingEndEvent": self.close,
        }
        for event in events:
            name = type(event).__name__
            if name in handlers:
                handlers[name](event)
            elif name == "DocumentStartEvent":
                documents += 1
                if documents > 1:
                    self.fail(event, "expected one document, got a second one after '---'")
        if self.root is None:
            raise TopologyError("expected a topology, got an empty file", path=self.path, line=1, column=1)
        return self.root

    def fail(self, event: Any, message: str) -> NoReturn:
        mark = event.start_mark
        raise TopologyError(message, path=self.path, line=mark.line + 1, column=mark.column + 1)

    def expects_key(self) -> bool:
        top = self.stack[-1] if self.stack else None
        return top is not None and top.node.keys is not None and top.key is None

    def begin(self, event: Any) -> Node:
        """Check what a scalar, list and mapping have in common and return its node."""
        if event.tag is not None:
            self.fail(event, f"expected a plain value, got the tag {shown_text(event.tag)}; leave tags out")
        return Node(None, event.start_mark.line + 1, event.start_mark.column + 1)

    def scalar(self, event: Any) -> None:
        node = self.begin(event)
        node.text = event.value
        plain = event.implicit[0]
        node.value = _resolve(event.value) if plain else event.value
        if self.expects_key():
            self.key(event, node)
        else:
            if event.anchor is not None:
                self.anchors[event.anchor] = node
            self.put(event, node)

    def key(self, event: Any, node: Node) -> None:
        top = self.stack[-1]
        if not isinstance(node.value, str):
            got = shown_text(node.text)[1:-1] or "nothing"
            self.fail(event, f"expected text as a key, got {got}; put it in quotes if it is a name")
        assert top.node.keys is not None
        if node.value == "<<" and event.implicit[0]:
            self.fail(
                event, "expected a plain key, got the merge key '<<'; write the fields out, or alias whole values"
            )
        if node.value in top.node.keys:
            line, column = top.node.keys[node.value]
            self.fail(event, f"expected each key once, got {shown_text(node.value)} again (first at {line}:{column})")
        top.key = node.value
        top.node.keys[node.value] = (node.line, node.column)

    def alias(self, event: Any) -> None:
        if self.expects_key():
            self.fail(event, "expected text as a key, got an alias")
        target = self.anchors.get(event.anchor)
        if target is None:
            name = shown_text(event.anchor)[1:-1]
            self.fail(event, f"expected an anchor &{name} that is complete before it is used, got only *{name}")
        self.put(event, target)

    def open_list(self, event: Any) -> None:
        node = self.begin(event)
        node.value, node.children = [], {}
        self.open(event, node)

    def open_mapping(self, event: Any) -> None:
        node = self.begin(event)
        node.value, node.children, node.keys = {}, {}, {}
        self.open(event, node)

    def open(self, event: Any, node: Node) -> None:
        if self.expects_key():
            self.fail(event, "expected text as a key, got a list or a mapping")
        self.stack.append(_Open(node, event.anchor))
        if len(self.stack) > MAX_DEPTH:
            self.fail(event, f"expected at most {MAX_DEPTH} levels of nesting, got more")

    def close(self, event: Any) -> None:
        done = self.stack.pop()
        if done.anchor is not None:
            # Only now, so that a value cannot contain itself.
            self.anchors[done.anchor] = done.node
        self.put(event, done.node)

    def put(self, event: Any, node: Node) -> None:
        """Hang a finished node into the list or mapping around it."""
        # An alias counts in full each time, though its value is shared: what reads the tree later sees it in full.
        self.total += 1 if node.children is not None and event.__class__.__name__ != "AliasEvent" else node.size
        if self.total > MAX_VALUES:
            self.fail(event, f"expected at most {MAX_VALUES:,} values, got more; use ranges, modules or a generator")
        if not self.stack:
            self.root = node
            return
        top = self.stack[-1]
        parent = top.node
        parent.size += node.size
        parent.height = max(parent.height, node.height + 1)
        if len(self.stack) + parent.height - 1 > MAX_DEPTH:
            self.fail(event, f"expected at most {MAX_DEPTH} levels of nesting, got more")
        assert parent.children is not None
        if parent.keys is None:
            parent.children[len(parent.value)] = node
            parent.value.append(node.value)
        else:
            assert top.key is not None
            parent.children[top.key] = node
            parent.value[top.key] = node.value
            top.key = None


def _resolve(text: str) -> str | int | float | bool | None:
    """Return the value of an unquoted scalar by the core schema of YAML 1.2."""
    if _NULL.match(text):
        return None
    if _TRUE.match(text):
        return True
    if _FALSE.match(text):
        return False
    if _INT.match(text):
        return int(text)
    if _BASED.match(text):
        return int(text[2:], 8 if text[1] == "o" else 16)
    if _FLOAT.match(text):
        return float(text)
    infinite = _INFINITE.match(text)
    if infinite:
        return float("nan") if infinite.group(1) is None else float(f"{infinite.group(1)}inf")
    return text
