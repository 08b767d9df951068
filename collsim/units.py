"""Texts such as ``400Gbps``, ``2us`` and ``1GiB`` to whole bytes/s, picoseconds and bytes, and back.

This is the only place that knows units. Case matters where it tells things apart: ``b`` is a bit and ``B`` a byte,
``M`` is mega and ``m`` is milli. ``k`` and ``K`` both are 1000. A number without a text is in SI units (bytes per
second, seconds, bytes). A text needs its unit; only a size may be plain digits (bytes).

=========  ====================================================================
bandwidth  ``450GB/s`` ``450GBps`` ``400Gbps`` ``400Gb/s`` ``400Gbit/s`` ``25GiB/s``
time       ``1s`` ``5ms`` ``2us`` ``2µs`` ``500 ns`` ``10ps``
size       ``4096`` ``64KiB`` ``1MB`` ``1.5GiB``
=========  ====================================================================
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from numbers import Integral, Real

from collsim.errors import InputError, did_you_mean

__all__ = [
    "Quantity",
    "format_bandwidth",
    "format_size",
    "format_time",
    "parse_bandwidth",
    "parse_nccl_size",
    "parse_size",
    "parse_time",
]

Quantity = str | int | float
"""A text with a unit, or a number in SI units."""

INT64_MAX = 2**63 - 1
PICOSECONDS = 10**12

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
PREFIXES = {**_DECIMAL, "K": 10**3, **_BINARY}

_SIZES = {f"{prefix}B": Fraction(factor) for prefix, factor in PREFIXES.items()}
BANDWIDTHS = {f"{prefix}{unit}": Fraction(factor) for prefix, factor in PREFIXES.items() for unit in ("B/s", "Bps")} | {
    f"{prefix}{unit}": Fraction(factor, 8)
    for prefix, factor in PREFIXES.items()
    for unit in ("b/s", "bps", "bit/s", "bits/s")
}
_SHOWN_TIMES = {"s": 10**12, "ms": 10**9, "us": 10**6, "ns": 10**3, "ps": 1}
TIMES = {unit: Fraction(factor) for unit, factor in _SHOWN_TIMES.items()} | {
    "µs": Fraction(10**6),  # micro sign
    "μs": Fraction(10**6),  # Greek letter mu
}

# Exponents have three digits at most: 1e999999999 must not build a number of a billion digits.
_TEXT = re.compile(
    r"\s*([+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?)\s*([^\d\s.+-][^\s]*)?\s*", re.ASCII
)

_BANDWIDTH_HELP = "a bandwidth such as '50GB/s', '400Gbps' or '25GiB/s'"
_TIME_HELP = "a time such as '2us', '500ns' or '1.5ms'"
_SIZE_HELP = "a size such as '1GiB', '64KiB', '1MB' or a whole number of bytes"


def parse_bandwidth(value: Quantity) -> int:
    """Return a bandwidth in whole bytes per second, rounded to the nearest.

    Parameters
    ----------
    value
        Text with a unit of bits or bytes per second, or a number of bytes/s.

    Raises
    ------
    InputError
        Not a bandwidth, without a unit, or below 1 byte/s.

    Examples
    --------
    >>> parse_bandwidth("400Gbps"), parse_bandwidth("50 GB/s"), parse_bandwidth(50e9)
    (50000000000, 50000000000, 50000000000)
    >>> parse_bandwidth("16GT/s")
    Traceback (most recent call last):
    ...
    collsim.errors.InputError: '16GT/s': GT/s counts transfers of a lane, not bytes; write GB/s (32GT/s x16 is 63GB/s)
    """
    if isinstance(value, str) and re.search(r"[0-9\s][kKMG]?T/s", value):
        raise InputError(f"{value!r}: GT/s counts transfers of a lane, not bytes; write GB/s (32GT/s x16 is 63GB/s)")
    exact = _exact(value, BANDWIDTHS, Fraction(1), _BANDWIDTH_HELP, "bytes/s or bits/s")
    rate = round(exact)
    if rate < 1:
        raise InputError(f"{value!r}: expected a bandwidth of at least 1B/s")
    return _int64(rate, value)


def parse_time(value: Quantity) -> int:
    """Return a time in whole picoseconds, rounded to the nearest.

    Parameters
    ----------
    value
        Text with a unit of time, or a number of seconds.

    Raises
    ------
    InputError
        Not a time, without a unit, negative, longer than 106 days, or so short that it would round to 0.

    Examples
    --------
    >>> parse_time("2us"), parse_time("500 ns"), parse_time(1e-6), parse_time(0)
    (2000000, 500000, 1000000, 0)
    >>> parse_time("5")
    Traceback (most recent call last):
    ...
    collsim.errors.InputError: '5': expected a unit of time after the number, as in '5us' or '5ns'
    """
    exact = _exact(value, TIMES, Fraction(PICOSECONDS), _TIME_HELP, "time")
    time = round(exact)
    if time == 0 and exact > 0:
        raise InputError(f"{value!r}: expected 0 or at least 1ps, which is the resolution of the clock")
    return _int64(time, value)


def parse_size(value: Quantity) -> int:
    """Return a size in whole bytes.

    Parameters
    ----------
    value
        Text with a unit of bytes (``1MB`` is 10**6, ``1MiB`` is 2**20), or a number of bytes.

    Raises
    ------
    InputError
        Not a size, negative, or not a whole number of bytes.

    Examples
    --------
    >>> parse_size("1GiB"), parse_size("1.5kB"), parse_size(2**20), parse_size("4096")
    (1073741824, 1500, 1048576, 4096)
    >>> parse_size("128M")
    Traceback (most recent call last):
    ...
    collsim.errors.InputError: '128M': 'M' is not a unit of bytes; did you mean '128MiB' (2**20) or '128MB' (10**6)?
    """
    if isinstance(value, str) and (match := re.fullmatch(r"\s*([\d.]+)\s*([kKmMgGtT])(i?)\s*", value, re.ASCII)):
        number, letter, _ = match.groups()
        upper = letter.upper()
        power = "KMGT".index(upper) + 1
        raise InputError(
            f"{value!r}: {match[2] + match[3]!r} is not a unit of bytes; did you mean '{number}{upper}iB' "
            f"(2**{10 * power}) or '{number}{'k' if upper == 'K' else upper}B' (10**{3 * power})?"
        )
    exact = _exact(value, _SIZES | {"": Fraction(1)}, Fraction(1), _SIZE_HELP, "bytes")
    if exact.denominator != 1:
        raise InputError(f"{value!r}: expected a whole number of bytes")
    return _int64(int(exact), value)


def parse_nccl_size(text: str) -> int:
    """Return a size as nccl-tests reads it: ``K``, ``M`` and ``G`` in either case are 2**10, 2**20 and 2**30.

    Where nccl-tests ignores what follows the letter, this refuses it (``1MB`` could mean either), except for the
    spellings ``KiB``, ``MiB`` and ``GiB`` that mean the same.

    Raises
    ------
    InputError
        Not such a size.

    Examples
    --------
    >>> [parse_nccl_size(text) for text in ("8", "1K", "128m", "1G", "1GiB")]
    [8, 1024, 134217728, 1073741824, 1073741824]
    """
    match = re.fullmatch(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*(?:([kKmMgG])|([KMG])iB|B)?\s*", text, re.ASCII)
    if match is None:
        raise InputError(
            f"{text!r}: expected a size as nccl-tests takes it, such as 8, 128K, 1M or 1G (powers of 1024)"
        )
    number, letter, longer = match.groups()
    exact = Fraction(number) * 2 ** (10 * " KMG".index((letter or longer or " ").upper()))
    if exact.denominator != 1:
        raise InputError(f"{text!r}: expected a whole number of bytes")
    return _int64(int(exact), text)


def format_bandwidth(bandwidth: int) -> str:
    """Return a short text for bytes/s that `parse_bandwidth` reads back exactly.

    Examples
    --------
    >>> format_bandwidth(50_000_000_000), format_bandwidth(312_500_000), format_bandwidth(25 * 2**30)
    ('50GB/s', '312.5MB/s', '25GiB/s')
    """
    return _scaled(bandwidth) + "B/s"


def format_time(picoseconds: int) -> str:
    """Return a short text for picoseconds that `parse_time` reads back exactly.

    Examples
    --------
    >>> format_time(1_000_000), format_time(1_500), format_time(0)
    ('1us', '1.5ns', '0s')
    """
    number = int(picoseconds)
    for unit, factor in _SHOWN_TIMES.items():
        if abs(number) >= factor:
            return _decimal(Fraction(number, factor)) + unit
    return "0s"


def format_size(size: int) -> str:
    """Return a short text for bytes that `parse_size` reads back exactly.

    Examples
    --------
    >>> format_size(2**30), format_size(1536), format_size(1_000_000), format_size(7), format_size(0)
    ('1GiB', '1.5KiB', '1MB', '7B', '0B')
    """
    return _scaled(size) + "B"


def _exact(value: Quantity, units: dict[str, Fraction], number_unit: Fraction, expected: str, unit: str) -> Fraction:
    """Return the value in target units (a bare number is in SI units, ``number_unit`` of them) as an exact fraction."""
    if isinstance(value, bool) or not isinstance(value, (str, Real)):
        raise InputError(f"{value!r}: expected {expected}")
    if not isinstance(value, str):
        if not math.isfinite(value):
            raise InputError(f"{value!r}: expected {expected}, or a finite number")
        exact = Fraction(int(value) if isinstance(value, Integral) else float(value)) * number_unit
    else:
        match = _TEXT.fullmatch(value) if len(value) <= 100 else None
        if match is None:
            raise InputError(f"{value if len(value) <= 100 else value[:97] + '...'!r}: expected {expected}")
        number, name = match[1], match[2] or ""
        if name not in units:
            if not name:
                example = "'{0}us' or '{0}ns'" if unit == "time" else "'{0}GB/s' (bytes) or '{0}Gbps' (bits)"
                raise InputError(
                    f"{value!r}: expected a unit of {unit} after the number, as in " + example.format(number)
                )
            bits = unit == "bytes" and re.fullmatch(r"([kKMGTPE]i?)?(b|bit|bits)", name)
            hint = "; 'b' is a bit, and sizes are in bytes ('B')" if bits else _case_hint(name, units)
            raise InputError(f"{value!r}: {name!r} is not a unit of {unit}{hint}; expected {expected}")
        exact = Fraction(number) * units[name]
    if exact < 0:
        raise InputError(f"{value!r}: expected {expected}, got a negative one")
    return exact


def _case_hint(name: str, units: dict[str, Fraction]) -> str:
    # Of the spellings that differ in case only, the one with the same last letters is meant: gbps is Gbps, not GBps.
    same = [known for known in units if known.lower() == name.lower()]
    if same:
        best = max(same, key=lambda known: sum(a == b for a, b in zip(known, name, strict=True)))
        return f"; did you mean {best!r}?"
    return did_you_mean(name, (known for known in units if known))


def _int64(number: int, value: object) -> int:
    if number > INT64_MAX:
        raise InputError(f"{value!r}: too large, beyond what 64 bits hold")
    return number


def _decimal(value: Fraction) -> str:
    """Write a fraction whose denominator has only the factors 2 and 5, without loss."""
    places = 0
    while (value * 10**places).denominator != 1:
        places += 1
    digits = str(abs(int(value * 10**places))).rjust(places + 1, "0")
    text = f"{digits[: len(digits) - places]}.{digits[len(digits) - places :]}" if places else digits
    return ("-" if value < 0 else "") + text


def _scaled(number: int) -> str:
    """Write a whole number with the decimal prefix that fits, or with the binary one where that is shorter."""
    number = int(number)

    def fitting(prefixes: dict[str, int]) -> str | None:
        for prefix, factor in reversed(prefixes.items()):
            if abs(number) >= factor:
                return _decimal(Fraction(number, factor)) + prefix
        return None

    decimal, binary = fitting(_DECIMAL) or "0", fitting(_BINARY)
    return binary if binary is not None and len(binary) < len(decimal) else decimal
