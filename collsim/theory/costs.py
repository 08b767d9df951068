"""Cost terms: what a message costs, and what it costs to queue behind another one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from operator import index

from collsim.errors import InputError

__all__ = ["PORTS", "ZERO", "Costs", "Prediction", "Terms", "added", "largest", "number", "times", "whole"]

PORTS = ("one", "each", "none")


@dataclass(frozen=True)
class Terms:
    """A time in seconds, split into latency, bandwidth and reduction.

    Examples
    --------
    >>> (2 * Terms(1.0, 0.5) + Terms(reduction=0.25)).total
    3.25
    """

    latency: float = 0.0
    bandwidth: float = 0.0
    reduction: float = 0.0

    @property
    def total(self) -> float:
        """Sum of the terms."""
        return self.latency + self.bandwidth + self.reduction

    def __add__(self, other: Terms) -> Terms:
        return Terms(self.latency + other.latency, self.bandwidth + other.bandwidth, self.reduction + other.reduction)

    def __sub__(self, other: Terms) -> Terms:
        return self + (-1) * other

    def __rmul__(self, factor: float) -> Terms:
        return Terms(factor * self.latency, factor * self.bandwidth, factor * self.reduction)


ZERO = Terms()


def whole(name: str, value: int, *, least: int = 0, unit: str = " bytes") -> int:
    """Return a number, of bytes or what the unit says, as a Python integer, which never overflows.

    Raises
    ------
    InputError
        If it is no whole number from ``least`` to 2**63 - 1.

    Examples
    --------
    >>> import numpy as np
    >>> whole("size", np.int32(1024))
    1024
    """
    try:
        number = index(value)
    except TypeError:
        raise InputError(f"{name}: expected a whole number{' of' if unit else ''}{unit}, got {value!r}") from None
    if number < least:
        raise InputError(f"{name}: expected at least {least}{unit}, got {number}")
    if number >= 2**63:
        raise InputError(f"{name}: expected less than 2**63{unit}, got {number}")
    return number


def number(value: float | Fraction) -> str:
    """Write a number such that nothing is lost: as a whole one or a fraction where it is one.

    Examples
    --------
    >>> number(2.0), number(1234567), number(1 + 50 / 450)
    ('2', '1234567', '10/9')
    """
    fraction = Fraction(value).limit_denominator(10**6)
    return str(fraction) if abs(fraction - Fraction(value)) <= abs(float(value)) * 1e-14 else f"{value:.15g}"


def times(count: float | Fraction, text: str) -> str:
    """Write a multiple of what a formula names; empty where it is nothing.

    Examples
    --------
    >>> times(2, "alpha + m beta"), times(1, "m beta"), times(2, "3 m beta"), times(3, "0")
    ('2 (alpha + m beta)', 'm beta', '6 m beta', '')
    """
    if not count or text in ("", "0"):
        return ""
    if count == 1:
        return text
    if len(_summands(text)) > 1:
        return f"{number(count)} ({text})"
    already, name = _counted(text)
    return f"{number(Fraction(count) * already)} {name}"


def added(*texts: str) -> str:
    """Write a sum, in which what is named several times is counted.

    Examples
    --------
    >>> added("alpha + m beta", "", "2 m beta"), added("2 (alpha + m beta)", "alpha + m beta")
    ('alpha + 3 m beta', '2 (alpha + m beta) + alpha + m beta')
    """
    counts: dict[str, Fraction] = {}
    for part in _summands(" + ".join(filter(None, texts))):
        count, name = _counted(part)
        counts[name] = counts.get(name, Fraction(0)) + count
    return " + ".join(f"{count} {name}" if count != 1 else name for name, count in counts.items())


def _counted(text: str) -> tuple[Fraction, str]:
    """Take a multiple apart."""
    found = re.fullmatch(r"(\d+(?:/\d+)?) (.+)", text)
    return (Fraction(found[1]), found[2]) if found else (Fraction(1), text)


def _summands(text: str) -> list[str]:
    """Split a sum where no bracket is open."""
    parts, depth = [""], 0
    for piece in re.split(r"( \+ |[()])", text):
        depth += (piece == "(") - (piece == ")")
        if piece == " + " and not depth:
            parts.append("")
        else:
            parts[-1] += piece
    return [part for part in parts if part]


def largest(*terms: Terms) -> Terms:
    """Return the terms of the greatest total."""
    return max(terms, key=lambda t: t.total)


@dataclass(frozen=True)
class Costs:
    """Seconds a message of ``m`` bytes spends at each station of its way.

    Attributes
    ----------
    alpha
        Latency of a message, the overhead of its sender included.
    wire, stores
        Seconds on a link (``m beta``), and how often they are paid one after the other (2 for ``store_and_forward``
        through a switch, else 1).
    adding
        Seconds in the reducer (``m gamma``).
    overhead
        The part of alpha for which the sender is busy.
    ports
        ``"one"``: a rank has one link out and one in, whoever the peer; ``"each"``: a link of its own for every peer;
        ``"none"``: nothing ever queues (`alpha_beta`).
    """

    alpha: float
    wire: float
    adding: float = 0.0
    overhead: float = 0.0
    stores: float = 1.0
    ports: str = "one"

    @property
    def copy(self) -> Terms:
        """A message alone."""
        return Terms(self.alpha, self.stores * self.wire)

    @property
    def reduce(self) -> Terms:
        """A message alone that the receiver adds up."""
        return self.copy + Terms(reduction=self.adding)

    def gap(self, *, sender: bool = False, link: bool = False, reducer: bool = False) -> Terms:
        """How much later the next message is done that shares these stations with the one before it.

        Stations in a row that serve equal messages in order are as slow as the slowest of them.
        """
        if self.ports == "none":
            return ZERO
        return largest(
            Terms(latency=self.overhead if sender else 0.0),
            Terms(bandwidth=self.wire if link else 0.0),
            Terms(reduction=self.adding if reducer else 0.0),
        )

    def text(self, reduces: bool = False) -> str:
        """Write the formula of a message alone."""
        wire = "m beta" if self.stores == 1 else f"{number(self.stores)} m beta"
        return f"alpha + {wire}" + (" + m gamma" if reduces and self.adding else "")

    def gap_text(self, *, sender: bool = False, link: bool = False, reducer: bool = False) -> str:
        """Write the formula of `gap`."""
        if self.ports == "none":
            return "0"
        names = ["m beta"] if link else []
        names += ["m gamma"] if reducer and self.adding else []
        names += ["overhead"] if sender and self.overhead else []
        if len(names) > 1:
            return f"max({', '.join(names)})"
        return names[0] if names else "0"


class Prediction(float):
    """A time in seconds that a formula gives, with the terms that it is the sum of.

    Attributes
    ----------
    latency, bandwidth, reduction
        Seconds; their sum is the value.
    formula
        The formula in plain text.
    holds
        Whether the simulated time must be equal, but for the rounding of picoseconds.
    why
        Why it need not, where `holds` is false.

    Examples
    --------
    >>> p = Prediction.of(Terms(2e-6, 1e-6), "2 alpha + m beta")
    >>> float(p), p.latency, p.holds
    (3e-06, 2e-06, True)
    """

    latency: float
    bandwidth: float
    reduction: float
    formula: str
    holds: bool
    why: str

    @classmethod
    def of(cls, terms: Terms, formula: str, why: str = "") -> Prediction:
        """Make a prediction; it holds where there is no ``why``."""
        new = cls(terms.total)
        new.latency, new.bandwidth, new.reduction = terms.latency, terms.bandwidth, terms.reduction
        new.formula, new.holds, new.why = formula, not why, why
        return new

    def but(self, why: str) -> Prediction:
        """Return the same prediction, not exact for one more reason."""
        terms = Terms(self.latency, self.bandwidth, self.reduction)
        return Prediction.of(terms, self.formula, "; ".join(text for text in (self.why, why) if text))

    def __repr__(self) -> str:
        return f"<Prediction {float(self):.6g} s = {self.formula}{'' if self.holds else f' ({self.why})'}>"
