"""From the text to values that are what they ought to be, each refused with its place."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NoReturn

from collsim.errors import InputError, did_you_mean, shown
from collsim.formats.source import Source
from collsim.units import INT64_MAX, format_size, parse_nccl_size

__all__ = ["Document", "as_written", "read_document"]

KNOWN = (
    "name", "gpus_per_node", "alpha", "links", "betas", "invbws", "node_betas_list", "node_invbws_list",
    "nics_per_node", "remote_alpha", "remote_beta", "remote_invbw",
)  # fmt: skip

MICROSECOND = 10**6
"""Picoseconds."""


@dataclass
class Document:
    """What the file says, and how to refuse a part of it.

    Attributes
    ----------
    source
        The text.
    values
        Its values by key.
    scale
        Factor by which the costs were multiplied.
    size
        Bytes of the message that betas are for.
    name
        Name of the machine.
    """

    source: Source
    values: dict[str, Any]
    scale: Fraction = field(default_factory=lambda: Fraction(1))
    size: int = 2**20
    name: str = ""

    def fail(self, key: str, message: str, *places: int) -> NoReturn:
        """Refuse a value: the line is that of its key."""
        line, column = _place(self.source, _key(self.source, key))
        self.source.fail(message, line, column, field=key + "".join(f"[{place}]" for place in places))

    def need(self, key: str) -> Any:
        """Return a value that must be there."""
        if key not in self.values:
            others = [other for other in self.values if other not in KNOWN]
            self.source.fail(f"expected {key!r}, got none{did_you_mean(key, [o[:60] for o in others])}", 1, 1)
        return self.values[key]

    def whole(self, key: str, least: int, most: int) -> int:
        """Return a whole number."""
        value = self.need(key)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.fail(key, f"expected a whole number from {least:,} to {most:,}, got {as_written(value)}")
        return value

    def cost(self, key: str, value: object, *places: int) -> Fraction:
        """Return a cost in microseconds as written."""
        if isinstance(value, bool) or not isinstance(value, (int, Fraction)) or value < 0:
            self.fail(key, f"expected microseconds, 0 or more, got {as_written(value)}", *places)
        return Fraction(value)

    def latency(self, key: str) -> int:
        """Return an alpha in picoseconds."""
        cost = self.cost(key, self.need(key)) / self.scale * MICROSECOND
        if cost > INT64_MAX // 4:
            self.fail(key, f"expected at most {INT64_MAX // 4 // 10**12:,} seconds, got more")
        return round(cost)

    def rate(self, key: str, value: object, *places: int) -> int:
        """Return bytes/s of a beta."""
        cost = self.cost(key, value, *places)
        rate = self.size * self.scale * MICROSECOND / cost if cost else Fraction(0)
        if not 1 <= rate <= INT64_MAX:
            got = (
                "0"
                if not cost
                else f"{as_written(value)}, which is {'under 1 byte/s' if rate < 1 else 'beyond 64 bits'}"
            )
            self.fail(key, f"expected the microseconds of a message of {format_size(self.size)}, got {got}", *places)
        return round(rate)

    def check_sum(self, key: str, value: object, alpha: Fraction, beta: Fraction, *places: int) -> None:
        """Refuse a total that is not alpha and beta: it is not read, but which of them is wrong, nobody can tell."""
        total = self.cost(key, value, *places)
        if abs(total - alpha - beta) > 1 + (alpha + beta) / 20:
            self.fail(key, f"expected alpha and beta, {as_written(alpha + beta)}, got {as_written(value)}", *places)


def read_document(source: Source, size: str | int | None, scale: float) -> Document:
    """Return the values of a text.

    Raises
    ------
    TopologyError, InputError
        If it is not JSON, or nothing of TACCL; if the size of the message is neither given nor 1 MiB.
    """
    document = Document(source, _load(source), _scale(scale))
    name = document.need("name")
    if not isinstance(name, str) or not name or len(name) > 200 or not name.isprintable():
        document.fail("name", f"expected a name of up to 200 printable letters, got {as_written(name)}")
    document.name, document.size = name, _size(document, name, size)
    return document


def _load(source: Source) -> dict[str, Any]:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(items)
        if len(values) < len(items):
            seen: set[str] = set()
            double = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            again = _key(source, double, _key(source, double) + 1)
            source.fail(f"expected each key once, got {shown(double[:60])} twice", *_place(source, again))
        return values

    def constant(text: str) -> NoReturn:
        source.fail(f"expected a number, got {text}", *_place(source, max(source.text.find(text), 0)))

    def whole(text: str) -> int:
        return int(text) if len(text) <= 40 else too_long(text)

    def decimal(text: str) -> Fraction:
        # exponents have three digits at most: 1e999999999 must not build a number of a billion digits
        found = re.fullmatch(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?", text)
        return Fraction(text) if found else too_long(text)

    def too_long(text: str) -> NoReturn:
        place = _place(source, max(source.text.find(text), 0))
        source.fail(f"expected a number of up to 40 digits, got {shown(text[:60])}", *place)

    try:
        values = json.loads(
            source.text, object_pairs_hook=pairs, parse_constant=constant, parse_int=whole, parse_float=decimal
        )
    except json.JSONDecodeError as error:
        source.fail(f"expected JSON, got a mistake in its form: {error.msg}", error.lineno, error.colno)
    except RecursionError:
        source.fail("expected JSON, got values in each other a thousand deep", 1, 1)
    if not isinstance(values, dict):
        source.fail("expected a TACCL topology in { }, got something else", 1, 1)
    if {"sccl_type", "msccl_type"} & values.keys():
        source.fail("expected a TACCL topology, got an SCCL object, whose links have no rate", 1, 1)
    for key in ("switches", "dims", "wrap"):
        if key in values:
            Document(source, values).fail(key, "expected the links of each GPU ('links'), which is what TACCL reads")
    return values


def _key(source: Source, key: str, start: int = 0) -> int:
    """Return where a key stands in the text; the beginning if it is written with escapes."""
    found = re.compile(rf'"{re.escape(key)}"\s*:').search(source.text, start)
    return found.start() if found else 0


def _place(source: Source, start: int) -> tuple[int, int]:
    return source.text.count("\n", 0, start) + 1, start - (source.text.rfind("\n", 0, start) + 1) + 1


def _scale(scale: float) -> Fraction:
    if isinstance(scale, bool) or not isinstance(scale, (int, float, Fraction)) or not 0 < scale <= 10**12:
        raise InputError(f"scale: expected a number above 0, got {shown(scale)}")
    return Fraction(scale)


def _size(document: Document, name: str, size: str | int | None) -> int:
    if size is None:
        found = re.search(r"([0-9]{1,6}) ?([KMG]?)(?:i?B|b)$", name)
        if found and (said := parse_nccl_size(found[1] + found[2])) != 2**20:
            document.fail(
                "name",
                f"expected to be told of which message these are the costs, since the name ends in {found[0]}; give "
                f"size={said} and, if all costs were multiplied by a factor as in TACCL's own files, scale",
            )
        return 2**20
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise InputError(f"size: expected bytes or a text such as '32K', got {shown(size)}")
    number = parse_nccl_size(size) if isinstance(size, str) else size
    if not 1 <= number <= 2**50:
        raise InputError(f"size: expected 1 to {2**50:,} bytes, got {number:,}")
    return number


def as_written(value: object) -> str:
    """Return a value as it may have been written."""
    if isinstance(value, Fraction):
        return f"{float(value):g}" if abs(value) < 10**300 else "a number beyond 10**300"
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else f"a list of {len(value)}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else shown(value)
