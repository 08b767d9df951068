"""What the test battery is asked to try: refused in one line where it cannot be tried."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np

from collsim.engine.fit import FITTED
from collsim.errors import InputError, shown
from collsim.topology import Topology

__all__ = ["machines", "missing", "numbers", "roots_of", "signature_of", "with_order"]

ALL_ROOTS = 9
"""Up to this many ranks every root is tried, above the first two, the middle one and the last."""


def numbers(name: str, given: object, least: int) -> list[int]:
    """Return whole numbers of at least ``least``, given as a list or anything else that is gone through once."""
    try:
        found = list(given) if not isinstance(given, str) else None  # type: ignore[call-overload]
    except TypeError:
        found = None
    if found is None:
        raise InputError(f"{name}: expected whole numbers such as [{least + 1}, {least + 3}], got {shown(given)}")
    for number in found:
        if not isinstance(number, (int, np.integer)) or isinstance(number, bool) or number < least:
            raise InputError(f"{name}: expected whole numbers of at least {least}, got {shown(number)}")
    return [int(number) for number in found]


def machines(given: object) -> list[Topology | str]:
    """Return topologies and their names; one by itself counts as a list of one."""
    found: list[Any] | None = [given] if isinstance(given, (Topology, str, PathLike)) else None
    if found is None and isinstance(given, Iterable):
        found = list(given)
    for machine in [given] if found is None else found:
        if found is None or not isinstance(machine, (Topology, str, PathLike)):
            raise InputError(f"topologies: expected topologies or their names, got {shown(machine)}")
    return [fspath(machine) if isinstance(machine, PathLike) else machine for machine in found or ()]


def signature_of(function: object) -> dict[str, inspect.Parameter]:
    """Return the parameters of what must be a function."""
    if not callable(function):
        raise InputError(f"function: expected a function that returns a schedule, got {shown(function)}")
    return dict(inspect.signature(function).parameters)


def roots_of(function: Callable[..., Any], ranks: int, roots: Sequence[int] | None, *, few: bool) -> tuple[int, ...]:
    """Return the roots to try with so many ranks; none where the function takes no root.

    Parameters
    ----------
    function, ranks
        What is tried.
    roots
        Those that the caller wants; the ones below the number of ranks are taken.
    few
        Only the first, the middle and the last one, where none are given.

    Raises
    ------
    InputError
        If none of those that were given could be tried.
    """
    takes = "root" in signature_of(function)
    wanted = None if roots is None else numbers("roots", roots, 0)
    if not takes:
        if wanted and any(wanted):
            raise InputError(f"roots: expected none, the function has no parameter root, got {shown(wanted)}")
        return ()
    if wanted is None:
        every = range(ranks) if ranks <= ALL_ROOTS and not few else (0, *(() if few else (1,)), ranks // 2, ranks - 1)
        return tuple(dict.fromkeys(every))
    tried = tuple(root for root in wanted if root < ranks)
    if not tried:
        raise InputError(f"roots: expected one from 0 to {ranks - 1} where N={ranks}, got {shown(wanted)}")
    return tried


def with_order(function: Callable[..., Any], ranks: int, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with the order 0, 1, 2, ... where the function must be given one and has none."""
    order = signature_of(function).get("order")
    needed = order is not None and order.default is order.empty and "order" not in arguments
    return {**arguments, "order": list(range(ranks))} if needed else arguments


def missing(function: Callable[..., Any], arguments: dict[str, Any]) -> str | None:
    """Return why a function cannot be called as ``function(ranks, **arguments)``; None if it can."""
    kinds = inspect.Parameter
    for name, parameter in list(signature_of(function).items())[1:]:
        fills = parameter.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD) or parameter.default is not kinds.empty
        if not fills and name not in arguments:
            machine = "name a machine that has some in topologies, or " if name in FITTED else ""
            return f"{name}: expected a default; {machine}give one by functools.partial(function, {name}=...)"
    return None
