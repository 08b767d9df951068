"""All errors that collsim raises on purpose.

Every message is one line that says where, what was expected, what was got and the nearest remedy. The command line
prints it after ``error:`` and exits with code 2 (1 for a schedule that failed its proof).
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "AlgorithmError",
    "CollsimError",
    "DeadlockError",
    "InputError",
    "ProofError",
    "ScheduleError",
    "TopologyError",
    "did_you_mean",
    "one_of",
    "shown",
]


class CollsimError(Exception):
    """Base of all errors of this library; lines of a message become one (a value of a user may be shown in several)."""

    def __init__(self, message: object = "", /) -> None:
        super().__init__(" ".join(message.split()) if isinstance(message, str) and "\n" in message else message)


class InputError(CollsimError, ValueError):
    """A value that a user gave (a size, a unit, a root, a flag) is not one that can be used."""


class TopologyError(CollsimError):
    """A topology or its file is wrong, or two nodes have no route.

    Attributes
    ----------
    path, line, column
        Where in the file, if it came from one (line and column count from 1).
    field
        The field, as ``links[0].bandwidth``.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        line: int | None = None,
        column: int | None = None,
        field: str | None = None,
    ) -> None:
        where = ""
        if path is not None:
            where = path if line is None else f"{path}:{line}:{column or 1}"
            where += ": "
        if field:
            where += f"{field}: "
        super().__init__(where + message)
        self.path, self.line, self.column, self.field = path, line, column, field


class AlgorithmError(CollsimError):
    """No such algorithm, or one that cannot take these ranks, root or parameters."""


class ScheduleError(CollsimError):
    """A schedule that is not well formed: an index out of range, a cycle, an exchange without a buffer."""


class ProofError(ScheduleError):
    """A schedule that does not implement its collective.

    Attributes
    ----------
    rank, chunk
        The place that is wrong, where there is one.
    step
        The step to look at.
    """

    def __init__(
        self, message: str, *, rank: int | None = None, chunk: int | None = None, step: int | None = None
    ) -> None:
        super().__init__(message)
        self.rank, self.chunk, self.step = rank, chunk, step


class DeadlockError(CollsimError):
    """A program that cannot finish.

    Attributes
    ----------
    cycle
        The numbers of the transfers that wait for each other.
    """

    def __init__(self, message: str, *, cycle: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.cycle = cycle


def shown(value: object) -> str:
    """Return a value that a user gave as text of one line, cut where it is long.

    Examples
    --------
    >>> shown("ring"), shown([1, 2]), len(shown(list(range(1000))))
    ("'ring'", '[1, 2]', 200)
    """
    try:
        text = " ".join(line.strip() for line in repr(value).splitlines())
    except Exception:  # numbers of thousands of digits, things that cannot be shown
        text = f"<{type(value).__name__}>"
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."


MOST_SHOWN = 200
"""Letters of a value that messages show."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest of ``known``, or an empty text.

    Examples
    --------
    >>> did_you_mean("rnig", ["ring", "tree"])
    "; did you mean 'ring'?"
    >>> did_you_mean("zzz", ["ring", "tree"])
    ''
    """
    names = sorted(set(known))
    close = get_close_matches(word, names, n=1, cutoff=0.5) or get_close_matches(word.lower(), names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def one_of(what: str, value: object, known: Iterable[str]) -> str:
    """Return a value that must be one of some names.

    Raises
    ------
    InputError
        With what there is, and the nearest name.

    Examples
    --------
    >>> one_of("network", "fluid", ["fluid", "alpha_beta"])
    'fluid'
    >>> one_of("network", "flued", ["fluid", "alpha_beta"])
    Traceback (most recent call last):
    collsim.errors.InputError: network: expected one of fluid, alpha_beta, got 'flued'; did you mean 'fluid'?
    """
    names = list(known)
    if isinstance(value, str) and value in names:
        return value
    hint = did_you_mean(value, names) if isinstance(value, str) else ""
    raise InputError(f"{what}: expected one of {', '.join(names)}, got {shown(value)}{hint}")
