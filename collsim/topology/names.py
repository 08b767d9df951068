"""Names with ranges: ``gpu[0-7]``, ``gpu[0,2,4-6]``, ``node[0-3].nic[2]``.

An index stays in its brackets when a range is written out: ``gpu[0-1]`` is ``gpu[0]`` and ``gpu[1]``, and the name of
one node is a range of one. What is written in a file, in ``via`` and in a message is the same text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise, product
from typing import Literal, get_args

from collsim.errors import InputError

__all__ = [
    "KINDS",
    "MAX_LINKS",
    "MAX_NODES",
    "MAX_ROUTES",
    "NAME_REGEX",
    "Kind",
    "Pattern",
    "field_text",
    "member_name",
    "parse_pattern",
    "shown_text",
]

Kind = Literal["gpu", "switch", "nic", "host"]
KINDS: tuple[str, ...] = get_args(Kind)
"""What a device can be, in files and in NetworkX graphs."""

MAX_NODES = 2_000_000
MAX_LINKS = 20_000_000
"""More than these in one topology, from a file or a generator, are refused before any is made."""

MAX_ROUTES = 200_000
"""More routes than these are refused in a file: each is kept as a Python object."""

MAX_LENGTH = 10_000
MAX_INDEX = 10**9

_INDEX = r"(?:0|[1-9][0-9]{0,9})"
_RANGE = rf"{_INDEX}(?:-{_INDEX})?"
NAME_REGEX = rf"^[A-Za-z_](?:[\w.:/+-]|\[{_RANGE}(?:, ?{_RANGE})*\])*$"
_NAME = re.compile(NAME_REGEX)
_SPLIT = re.compile(r"\[([^\]]*)\]")


@dataclass(frozen=True)
class Pattern:
    """A name with ranges, not written out.

    Attributes
    ----------
    text
        As the user wrote it.
    parts
        Literal text and tuples of (low, high) in turn.
    count
        Number of names that it stands for, known without writing them out.
    """

    text: str
    parts: tuple[str | tuple[tuple[int, int], ...], ...]
    count: int

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names, the last range running fastest."""
        choices = [
            [part] if isinstance(part, str) else [f"[{i}]" for low, high in part for i in range(low, high + 1)]
            for part in self.parts
        ]
        return tuple("".join(pieces) for pieces in product(*choices))

    def name(self, number: int) -> str:
        """Return one of the names without writing the others out."""
        pieces: list[str] = []
        for part in reversed(self.parts):
            if isinstance(part, str):
                pieces.append(part)
                continue
            number, place = divmod(number, sum(high - low + 1 for low, high in part))
            for low, high in part:
                if place <= high - low:
                    pieces.append(f"[{low + place}]")
                    break
                place -= high - low + 1
        return "".join(reversed(pieces))


@lru_cache(maxsize=4096)
def parse_pattern(text: str) -> Pattern:
    """Read a name with ranges.

    Raises
    ------
    InputError
        If it is not a name, or a range runs backwards or names an index twice.

    Examples
    --------
    >>> parse_pattern("gpu[0,2,4-6]").names
    ('gpu[0]', 'gpu[2]', 'gpu[4]', 'gpu[5]', 'gpu[6]')
    >>> parse_pattern("node[0-1].nic[2]").names
    ('node[0].nic[2]', 'node[1].nic[2]')
    >>> parse_pattern("gpu[0-999999999]").count
    1000000000
    """
    shown = shown_text(text)
    if len(text) > MAX_LENGTH or not _NAME.match(text) or text.endswith("\n"):
        raise InputError(f"expected a name such as gpu[0-7] or node[0-3].nic[2], got {shown}{_remedy(text)}")
    parts: list[str | tuple[tuple[int, int], ...]] = []
    count = 1
    for number, piece in enumerate(_SPLIT.split(text)):
        if number % 2 == 0:
            if piece:
                parts.append(piece)
            continue
        ranges = []
        for item in piece.split(","):
            low, _, high = item.strip().partition("-")
            ranges.append((int(low), int(high or low)))
        for low_index, high_index in ranges:
            if high_index < low_index:
                raise InputError(
                    f"expected a range from low to high, got [{low_index}-{high_index}] in {shown}; "
                    f"write [{high_index}-{low_index}]"
                )
            if high_index > MAX_INDEX:
                raise InputError(f"expected an index up to {MAX_INDEX:,}, got {high_index} in {shown}")
        in_order = sorted(ranges)
        for (_, before), (after, _) in pairwise(in_order):
            if after <= before:
                raise InputError(f"expected each index once, got {after} twice in {shown}")
        count *= sum(high_index - low_index + 1 for low_index, high_index in ranges)
        parts.append(tuple(ranges))
    return Pattern(text, tuple(parts), count)


def _remedy(text: str) -> str:
    """Return what to change in a name that cannot be read."""
    if not text:
        return ""
    if text.count("[") != text.count("]"):
        return "; close each [ with a ]"
    if re.search(r"\[0[0-9]|[-,] ?0[0-9]", text):
        return "; write indices without leading zeros"
    if not re.match(r"[A-Za-z_]", text):
        return "; begin with a letter"
    return "; use letters, digits, _ . : / + - and ranges in [ ]"


def shown_text(text: str) -> str:
    """Return text in quotes, in one line and not too long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def field_text(loc: tuple[str | int, ...]) -> str:
    """Return a place as ``links[0].bandwidth``.

    Examples
    --------
    >>> field_text(("modules", 0, "links", 2, "between", 1))
    'modules[0].links[2].between[1]'
    """
    text = ""
    for step in loc:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            word = step if re.fullmatch(r"[\w-]{1,60}", step) else shown_text(step)
            text += f".{word}" if text else word
    return text


def member_name(module: str, index: int, name: str) -> str:
    """Return the name of a node inside a module.

    Examples
    --------
    >>> member_name("node", 3, "gpu[0]")
    'node[3].gpu[0]'
    """
    return f"{module}[{index}].{name}"
