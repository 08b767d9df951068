"""YAML that a person likes to read: plain words bare, all others in quotes, long text folded, an entry a line.

What is written here is read back by :mod:`collsim.topology.yamltree` and by readers of YAML 1.1 to the same values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["flow", "label", "scalar"]

WIDTH = 120

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_./+-]*|[0-9]+(?:\.[0-9]+)?[A-Za-z]{1,3}(?:/s)?", re.ASCII)
_SENTENCE = re.compile(r"[A-Za-z][A-Za-z0-9_./+()';=%-]*(?:,? [A-Za-z0-9_./+()';=%-]+)*,?", re.ASCII)
# some readers of YAML take these for something else than text
_RESERVED = frozenset(["true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"])
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}


def scalar(value: Any) -> str:
    r"""Return a text, number or switch as it stands in a list or a mapping in one line.

    Examples
    --------
    >>> scalar("gpu0"), scalar("gpu[0-7]"), scalar("no"), scalar("450GB/s"), scalar(8), scalar(False)
    ('gpu0', '"gpu[0-7]"', '"no"', '450GB/s', '8', 'false')
    >>> print(scalar('a"b\n- {kind: gpu} # \x07'))
    "a\"b\n- {kind: gpu} # \x07"
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    if _BARE.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    return '"' + "".join(map(_escaped, value)) + '"'


def _escaped(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if letter.isprintable():
        return letter
    code = ord(letter)
    if 0xD800 <= code < 0xE000:  # half of a pair, which no text in UTF-8 has
        return "\ufffd"
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def flow(value: Any) -> str:
    """Return a value in one line.

    Examples
    --------
    >>> flow({"between": ["gpu[0-7]", "sw"], "bandwidth": "450GB/s"})
    '{between: ["gpu[0-7]", sw], bandwidth: 450GB/s}'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(flow, value)) + "]"
    return scalar(value)


def label(key: str, text: str) -> str:
    r"""Return the lines of a key and a text that may be long: folded, as it is, or in quotes.

    Examples
    --------
    >>> print(label("source", "Round figures, not those of a product."))
    source: Round figures, not those of a product.
    >>> print(label("source", "Not known: see there"))
    source: "Not known: see there"
    >>> print(label("description", "First line: this.\nSecond line."))
    description: |-
      First line: this.
      Second line.
    >>> len(label("description", "word " * 99 + "end").splitlines())
    6
    """
    if _SENTENCE.fullmatch(text) and text.lower() not in _RESERVED and len(key) + 2 + len(text) <= WIDTH:
        return f"{key}: {text}"
    lines = text.split("\n")
    printable = all(line.isprintable() and line == line.strip() for line in lines)
    if printable and len(lines) > 1 and lines[0] and lines[-1]:
        return f"{key}: |-\n" + "\n".join("  " + line if line else "" for line in lines)
    words = text.split(" ")
    if not printable or len(lines) > 1 or "" in words or len(key) + 4 + len(text) <= WIDTH:
        return f"{key}: {scalar(text)}"
    folded = [words[0]]
    for word in words[1:]:
        if len(folded[-1]) + 1 + len(word) <= WIDTH - 2:
            folded[-1] += " " + word
        else:
            folded.append(word)
    return f"{key}: >-\n" + "\n".join("  " + line for line in folded)
