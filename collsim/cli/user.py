"""Functions of the user: loaded from a file, and what goes wrong in them told in one line with its place."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from collsim import algorithms
from collsim.algorithms.registry import line_in
from collsim.errors import AlgorithmError, CollsimError, ScheduleError
from collsim.schedule import Schedule

__all__ = ["user_function"]


def user_function(reference: str) -> Callable[..., Schedule]:
    """Return the function that ``FILE.py:NAME`` refers to, made safe to call.

    What it prints goes to stderr, so that stdout stays a table or JSON.

    Raises
    ------
    CollsimError
        From here or from the function that is returned, with file and line, for anything that goes wrong in the file.
        An `AlgorithmError` that the function raises to refuse its arguments is passed on as it is.
    """
    path, _, name = reference.rpartition(":")
    with _told(path):
        function = algorithms.load_function(reference)
    try:
        inspect.signature(function)
    except (TypeError, ValueError):
        raise CollsimError(f"{path}: {name}: expected a function, got {function!r}") from None
    code = getattr(inspect.unwrap(function), "__code__", None)
    first_line = code.co_firstlineno if code else None

    @functools.wraps(function)
    def safe(ranks: int, **parameters: Any) -> Schedule:
        with _told(path, f"with {ranks} ranks: ", first_line):
            schedule = function(ranks, **parameters)
        if not isinstance(schedule, Schedule):
            raise CollsimError(
                f"{_place(path, first_line)}: {name}: expected it to return a Schedule, got {type(schedule).__name__}"
            )
        return schedule

    return safe


@contextlib.contextmanager
def _told(path: str, when: str = "", first_line: int | None = None) -> Iterator[None]:
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except AlgorithmError:
        raise  # the function refuses, or load_function has said what is wrong with the file
    except (Exception, SystemExit) as error:
        where = _place(path, line_in(error, path) or first_line)
        if isinstance(error, ScheduleError):
            raise type(error)(f"{where}: {error}") from error
        name = "" if isinstance(error, CollsimError) else f"{type(error).__name__}: "
        raise CollsimError(f"{where}: {when}{name}{error}") from error


def _place(path: str, line: int | None) -> str:
    return path if line is None else f"{path}:{line}"
