"""Values of SimGrid platforms: rates and times with units, radicals, lists of numbers; exact, and refused with a place.

Units and their spelling are those of SimGrid's documentation ("XML reference") and of the comment in its DTD. A value
without a unit is deprecated there, but still read: bytes per second, and seconds.
"""

from __future__ import annotations

import re
from fractions import Fraction

from collsim.errors import did_you_mean, shown
from collsim.formats.xmltree import Element
from collsim.units import INT64_MAX

__all__ = ["bandwidth", "count", "counts", "latency", "policy", "radicals"]

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("KMGTPE", start=1)}
RATES = {f"{prefix}Bps": Fraction(factor) for prefix, factor in (_DECIMAL | _BINARY).items()} | {
    f"{prefix}bps": Fraction(factor, 8) for prefix, factor in (_DECIMAL | _BINARY).items()
}
TIMES = {
    unit: Fraction(number) * 10**power
    for unit, number, power in (
        ("w", 604_800, 12),
        ("d", 86_400, 12),
        ("h", 3600, 12),
        ("m", 60, 12),
        ("s", 1, 12),
        ("ms", 1, 9),
        ("us", 1, 6),
        ("ns", 1, 3),
        ("ps", 1, 0),
    )
}

# Exponents have three digits at most: 1e999999999 must not build a number of a billion digits.
_VALUE = re.compile(r"([+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?)([A-Za-z/]{0,10})", re.ASCII)

POLICIES = ("SHARED", "SPLITDUPLEX", "FATPIPE")


def bandwidth(element: Element, attribute: str, otherwise: str | None = None) -> int:
    """Return an attribute in whole bytes/s, rounded to the nearest.

    Raises
    ------
    TopologyError
        If it is missing with nothing given instead, no rate, below 1 byte/s or beyond 64 bits.
    """
    exact = _value(element, attribute, element.get(attribute, otherwise), RATES, "Bps", "a bandwidth such as 125MBps")
    rate = round(exact)
    if not 1 <= rate <= INT64_MAX:
        element.fail(
            f"expected from 1Bps to {INT64_MAX:,}Bps, got {shown(element.get(attribute, otherwise))}", attribute
        )
    return rate


def latency(element: Element, attribute: str, otherwise: str | None = None) -> int:
    """Return an attribute in whole picoseconds, rounded to the nearest.

    Raises
    ------
    TopologyError
        If it is missing with nothing given instead, no time, negative or beyond 106 days.
    """
    exact = _value(element, attribute, element.get(attribute, otherwise), TIMES, "s", "a time such as 50us")
    time = round(exact)
    if exact < 0 or time > INT64_MAX:
        element.fail(f"expected from 0 to 106 days, got {shown(element.get(attribute, otherwise))}", attribute)
    return time


def _value(
    element: Element, attribute: str, text: str, units: dict[str, Fraction], default: str, expected: str
) -> Fraction:
    text = text.strip()
    found = _VALUE.fullmatch(text) if len(text) <= 100 else None
    if found is None:
        hint = "; a list of values is for Wi-Fi, which collsim does not model" if "," in text else ""
        element.fail(f"expected {expected}, got {shown(text)}{hint}", attribute)
    unit = found[2] or default
    if unit not in units:
        hint = did_you_mean(unit.replace("/s", "ps"), units)
        element.fail(f"expected {expected}, got {shown(text)} with the unit {unit!r}{hint}", attribute)
    return Fraction(found[1]) * units[unit]


def policy(element: Element, attribute: str, otherwise: str) -> str:
    """Return how a link is shared: ``SHARED``, ``SPLITDUPLEX`` or ``FATPIPE``."""
    value = element.get(attribute, otherwise).strip().upper()
    if value == "FULLDUPLEX":  # its name until SimGrid 3.19
        return "SPLITDUPLEX"
    if value == "WIFI":
        element.fail(
            "expected a link with wires, got Wi-Fi, whose rate depends on who sends; give it a fixed rate", attribute
        )
    if value not in POLICIES:
        hint = did_you_mean(value[:40], POLICIES)
        element.fail(f"expected one of {', '.join(POLICIES)}, got {shown(value)}{hint}", attribute)
    return value


def radicals(element: Element, most: int) -> list[int]:
    """Return the numbers that a ``radical`` such as ``0-11,20`` stands for, counted before they are made."""
    ranges: list[tuple[int, int]] = []
    total = 0
    for piece in element.get("radical").split(",", most):
        found = re.fullmatch(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?", piece, re.ASCII)
        if found is None:
            element.fail(f"expected numbers and ranges such as 0-11,20, got {shown(piece)}", "radical")
        low, high = int(found[1]), int(found[2] or found[1])
        if high < low:
            element.fail(f"expected a range from low to high, got {low}-{high}; write {high}-{low}", "radical")
        total += high - low + 1
        if total > most:
            element.fail(f"expected at most {most:,} hosts, got more", "radical")
        ranges.append((low, high))
    numbers = [number for low, high in ranges for number in range(low, high + 1)]
    if len(set(numbers)) < len(numbers):
        seen: set[int] = set()
        double = next(number for number in numbers if number in seen or seen.add(number))  # type: ignore[func-returns-value]
        element.fail(f"expected each number once, got {double} twice", "radical")
    return numbers


def count(element: Element, text: str, what: str) -> int:
    """Return a number of ``topo_parameters``, at least 1."""
    if not re.fullmatch(r"\s*\d{1,9}\s*", text, re.ASCII) or int(text) < 1:
        element.fail(f"expected {what} (a whole number from 1), got {shown(text)}", "topo_parameters")
    return int(text)


def counts(element: Element, text: str, what: str, number: int) -> list[int]:
    """Return a list of so many numbers of ``topo_parameters``, each at least 1."""
    pieces = text.split(",")
    if len(pieces) != number:
        element.fail(f"expected {what} ({number} of them), got {len(pieces)} in {shown(text)}", "topo_parameters")
    return [count(element, piece, what) for piece in pieces]
