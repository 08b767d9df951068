"""The table of algorithms: a plain function that returns a schedule, and one line that names it."""

from __future__ import annotations

import importlib.util
import inspect
import os.path
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from collsim.algorithms.common import refuse_rows
from collsim.collective import OPERATIONS, ROOTED, Collective
from collsim.errors import AlgorithmError, CollsimError, did_you_mean, one_of, shown
from collsim.forests import Wires
from collsim.schedule import Schedule

__all__ = ["algorithm", "available", "build", "find", "line_in", "load_function"]

Maker = Callable[..., Schedule]

_TABLE: dict[tuple[str, str], Maker] = {}


def algorithm(operation: str, name: str) -> Callable[[Maker], Maker]:
    """Put a function that returns a schedule into the table of algorithms.

    Parameters
    ----------
    operation
        The operation that the schedule implements.
    name
        Its name within that operation, as used by `build`, `collsim.run` and ``--algorithm``.

    Examples
    --------
    >>> import numpy as np
    >>> from collsim import Collective, algorithms
    >>> from collsim.schedule import ScheduleBuilder
    >>> @algorithms.algorithm("broadcast", "everybody_at_once")
    ... def flat_broadcast(ranks, root=0):
    ...     b = ScheduleBuilder(Collective("broadcast", ranks, root), chunks=1)
    ...     b.copy(root, [r for r in range(ranks) if r != root])
    ...     return b.build()
    >>> "everybody_at_once" in algorithms.available()["broadcast"]
    True
    >>> del algorithms.registry._TABLE["broadcast", "everybody_at_once"]
    """
    one_of("operation", operation, OPERATIONS)

    def register(function: Maker) -> Maker:
        signature = inspect.signature(function)

        @wraps(function)
        def labelled(*given: Any, **named: Any) -> Schedule:
            args = [_plain(value) for value in given]
            kwargs = {key: _plain(value) for key, value in named.items()}
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                raise AlgorithmError(f"{operation} {name}: {error}; expected {function.__name__}{signature}") from None
            if bound.arguments:
                first = next(iter(bound.arguments.values()))
                root = bound.arguments.get("root", 0) if operation in ROOTED else 0
                # before any arithmetic; every rank has a row at least
                refuse_rows(Collective(operation, first, root).ranks)
            schedule = function(*args, **kwargs)
            bound.apply_defaults()
            parameters = {
                key: _label(value)
                for key, value in list(bound.arguments.items())[1:]
                if key != "root" and not (value is None and _default(signature, key) is None)
            }
            return schedule.labelled(name, **parameters)

        _TABLE[operation, name] = labelled
        return labelled

    return register


def _plain(value: Any) -> Any:
    """Python's number for one of NumPy's, whose arithmetic wraps round."""
    return int(value) if isinstance(value, np.integer) else value


def _default(signature: inspect.Signature, key: str) -> Any:
    return signature.parameters[key].default


def _label(value: Any) -> Any:
    """Return what a label says of a parameter: of a machine or a table (links of each pair) only that there was one."""
    return "given" if isinstance(value, Wires) or (isinstance(value, Mapping) and len(value) > FEW) else value


FEW = 4
"""Entries of a table that is written in a label."""


def available() -> dict[str, list[str]]:
    """Return the names of the algorithms of each operation that has any.

    Examples
    --------
    >>> from collsim import algorithms
    >>> "ring" in algorithms.available()["all_reduce"]
    True
    """
    table: dict[str, list[str]] = {}
    for operation in OPERATIONS:
        names = sorted(name for op, name in _TABLE if op == operation)
        if names:
            table[operation] = names
    return table


def find(operation: str, name: str) -> Maker:
    """Return the function of an algorithm.

    Raises
    ------
    AlgorithmError
        With the nearest name, or the operations that have an algorithm of this name.
    """
    one_of("operation", operation, OPERATIONS)
    names = available().get(operation, [])
    if not isinstance(name, str):
        raise AlgorithmError(f"algorithm: {operation} has {', '.join(names) or 'none'}, got {shown(name)}")
    if not names:
        raise AlgorithmError(
            f"algorithm: collsim has none for {operation} yet; it has some for {', '.join(available())}; write your "
            "own and name it as FILE.py:FUNCTION"
        )
    if (operation, name) not in _TABLE:
        elsewhere = [op for op, other in _TABLE if other == name]
        hint = did_you_mean(name, names)
        if elsewhere and not hint:
            hint = f"; {name!r} exists for {', '.join(elsewhere)}"
        raise AlgorithmError(f"algorithm: {operation} has {', '.join(names)}, got {name!r}{hint}")
    return _TABLE[operation, name]


def build(operation: str, name: str, ranks: int, root: int = 0, **parameters: Any) -> Schedule:
    """Build a schedule by the name of its algorithm.

    Parameters
    ----------
    operation, name
        For instance ``"all_reduce"``, ``"ring"``; see `available`.
    ranks
        Number of ranks.
    root
        For operations that have one.
    parameters
        Passed to the algorithm, for instance ``channels=2``.

    Raises
    ------
    AlgorithmError
        If there is no such algorithm, or it has no such parameter.
    InputError
        If ranks or root are not possible.

    Examples
    --------
    >>> from collsim import algorithms
    >>> algorithms.build("all_reduce", "ring", 8)
    <Schedule ring all_reduce ranks=8 chunks=8 steps=14 transfers=112>
    """
    function = find(operation, name)
    collective = Collective(operation, ranks, root)
    if collective.is_rooted:
        parameters["root"] = root
    known = [p for p in inspect.signature(function).parameters if p not in ("ranks",)]
    for key in parameters:
        if key not in known:
            raise AlgorithmError(
                f"{operation} {name}: expected parameters {', '.join(known) or 'none'}, got {key!r}"
                + did_you_mean(key, known)
            )
    return function(ranks, **parameters)


def load_function(reference: str) -> Maker:
    """Return the function that ``path/to/file.py:name`` refers to.

    Raises
    ------
    AlgorithmError
        If the file cannot be run or has no such function.
    """
    path_text, _, name = reference.rpartition(":")
    path = Path(path_text)
    if not path_text or not name:
        raise AlgorithmError(f"{reference}: expected FILE.py:FUNCTION, for instance my_variant.py:bidirectional_ring")
    if not path.is_file():
        raise AlgorithmError(f"{path_text}: expected a Python file, there is none")
    spec = importlib.util.spec_from_file_location(f"collsim_file_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise AlgorithmError(f"{path_text}: expected a Python file whose name ends in .py")
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    # as when Python runs a file: what lies beside it can be imported
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except CollsimError:
        raise
    except (Exception, SystemExit) as error:
        line = line_in(error, str(path)) or 1
        raise AlgorithmError(f"{path_text}:{line}: {type(error).__name__}: {_one_line(error)}") from error
    finally:
        sys.path.remove(folder)
    function = getattr(module, name, None)
    if not callable(function):
        functions = [k for k, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__]
        raise AlgorithmError(
            f"{path_text}: expected a function named {name!r}, found {', '.join(functions) or 'none'}"
            + did_you_mean(name, functions)
        )
    found: Maker = function
    return found


def line_in(error: BaseException, path: str) -> int | None:
    """Last line of a file that an exception went through; None if it never was there."""
    path = os.path.abspath(path)
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno
    line, traceback = None, error.__traceback__
    while traceback is not None:
        if os.path.abspath(traceback.tb_frame.f_code.co_filename) == path:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def _one_line(error: BaseException) -> str:
    text = str(error.msg) if isinstance(error, SyntaxError) else str(error)
    return " ".join(text.split())
