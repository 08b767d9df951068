"""Bandwidths and times in topology files: texts that must have their unit, and the hint at one that is missing."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from collsim.errors import InputError
from collsim.topology.names import shown_text
from collsim.units import BANDWIDTHS, PREFIXES, TIMES, format_bandwidth, format_time, parse_bandwidth, parse_time

__all__ = [
    "A_BANDWIDTH",
    "A_TIME",
    "BANDWIDTH_SCHEMA",
    "TIME_SCHEMA",
    "bandwidth_value",
    "time_value",
    "unit_remedy",
]

_BARE_NUMBER = re.compile(r"\s*[-+]?(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*\Z", re.ASCII)
_SHORT_UNIT = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{0,20})?)\s*((?:[kKMGTPE]|[KMGTPE]i))\s*\Z", re.ASCII)


def _with_unit(unit: str, number: str = "") -> dict[str, Any]:
    """Return the JSON Schema of a text that is a number and a unit, as `collsim.units` reads it."""
    digits = r"(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?"
    # The white space of ASCII, for \s is more than that in JavaScript.
    return {"type": "string", "pattern": rf"^[\t-\r ]*\+?{number}{digits}[\t-\r ]*{unit}[\t-\r ]*$"}


_RATES = "|".join(unit for unit in BANDWIDTHS if unit[0] in "Bb")
_SCALES = "|".join(prefix for prefix in PREFIXES if prefix)
#: A bandwidth of 0 is refused, so one of its digits is not 0.
BANDWIDTH_SCHEMA = _with_unit(f"(?:{_SCALES})?(?:{_RATES})", "(?=[0-9.]*[1-9])") | {"examples": ["450GB/s", "400Gbps"]}
TIME_SCHEMA = _with_unit(f"(?:{'|'.join(TIMES)})") | {"examples": ["2us", "500ns"]}

A_BANDWIDTH = "a bandwidth with its unit such as 450GB/s or 400Gbps"
A_TIME = "a time with its unit such as 2us or 500ns"


def bandwidth_value(value: str) -> int:
    """Return bytes per second of a text with its unit (InputError, worded as ``expected ..., got ...``)."""
    return _unit_value(value, A_BANDWIDTH, parse_bandwidth)


def time_value(value: str) -> int:
    """Return picoseconds of a text with its unit (InputError, worded as ``expected ..., got ...``)."""
    return _unit_value(value, A_TIME, parse_time)


@lru_cache(maxsize=1024)
def _unit_value(value: str, expected: str, parse: Callable[[str], int]) -> int:
    if _BARE_NUMBER.match(value):
        raise InputError(f"expected {expected}, got {shown_text(value)}; {_add_unit(value, expected)}")
    short = _SHORT_UNIT.match(value) if expected == A_BANDWIDTH else None
    if short:
        # A byte or a bit: only who wrote it knows.
        meant = " or ".join(f"{short[1]}{short[2]}{unit}" for unit in ("bps", "B/s"))
        raise InputError(f"expected {expected}, got {shown_text(value)}; did you mean {meant}?")
    try:
        return parse(value)
    except InputError as error:
        reason = str(error).removeprefix(f"{value!r}: ") if len(value) <= 60 else "it is too long"
    if "negative" in reason:
        reason = "it is negative"
    # What the units module expects is said already, with the examples that suit a file.
    reason = reason.split("expected " + expected.split(" with")[0] + " such as")[0].rstrip("; ")
    if reason.startswith("expected "):
        reason = "it has to be " + reason.removeprefix("expected ")
    raise InputError(f"expected {expected}, got {shown_text(value)}" + (f"; {reason}" if reason else ""))


def _add_unit(number: str, expected: str) -> str:
    """Return the hint at the unit that a bare number lacks: the value in SI units where it looks like that."""
    text = number.strip().replace("_", "").removeprefix("+")
    value = float(text) if len(text) <= 40 else 0.0
    meant = ""
    if expected == A_BANDWIDTH and 1e6 <= value <= 1e18:
        meant = format_bandwidth(round(value))
    elif expected == A_TIME and 1e-12 <= value < 1e-2:
        meant = format_time(round(value * 1e12))
    elif (plain := re.fullmatch(r"0*([0-9]+(?:\.[0-9]+)?)", text)) and (value > 0 or expected == A_TIME):
        meant = plain[1] + ("GB/s" if expected == A_BANDWIDTH else "us")
    return "the unit is missing" + (f", did you mean {meant}?" if meant else "")


def unit_remedy(text: str, expected: str) -> str:
    """Return the hint at the unit that a bare number lacks, or an empty text."""
    if expected not in (A_BANDWIDTH, A_TIME) or not _BARE_NUMBER.match(text):
        return ""
    return "; " + _add_unit(text, expected)
