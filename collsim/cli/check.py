"""``collsim check``: prove an algorithm for many numbers of ranks."""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from typing import Any

from collsim import algorithms
from collsim.cli.run import wrong_elements
from collsim.collective import OPERATIONS
from collsim.errors import AlgorithmError, InputError, ProofError
from collsim.schedule.check import check as prove

__all__ = ["check", "parse_ranks"]

MOST_RANKS = 10_000
MOST_ROOTS = 9


def check(arguments: argparse.Namespace) -> int:
    """Prove a function's schedules and execute them on data; print a line for each number of ranks."""
    ranks = parse_ranks(arguments.ranks)
    left, _, name = arguments.function.rpartition(":")
    function = algorithms.find(left, name) if left in OPERATIONS else algorithms.load_function(arguments.function)
    rooted = "root" in _parameters(function)
    failed = refused = 0
    for n in ranks:
        roots: list[dict[str, int]] = [{"root": r} for r in range(min(n, MOST_ROOTS))] if rooted else [{}]
        try:
            for root in roots:
                schedule = algorithms.call(function, arguments.function, n, **root)
                if schedule.ranks != n:
                    raise AlgorithmError(f"{arguments.function}: expected a schedule for {n} ranks, got {schedule.ranks}")
                proof = prove(schedule)
                # few elements, a number that the ranks do not divide, and fewer than ranks
                for elements in (4 * n + 1, max(1, n - 1)):
                    wrong, _ = wrong_elements(schedule, 4 * elements, "int32", proof)
                    if wrong:
                        raise ProofError(f"{wrong} of the results on {elements} elements are wrong")
        except ProofError as error:
            failed += 1
            print(f"N={n:<6} FAILED {root or ''} {error}".replace("  ", " "))
            continue
        except AlgorithmError as error:
            if "Error:" in str(error):  # it did not refuse, it broke
                raise
            refused += 1
            print(f"N={n:<6} refused: {error}")
            continue
        about = f"{schedule.chunks:,} chunks, {schedule.steps:,} steps, {schedule.transfers:,} transfers"
        print(f"N={n:<6} ok: {about}; {proof}" + (f"; {len(roots)} roots" if rooted else ""))
    if refused == len(ranks):
        raise AlgorithmError(f"{arguments.function}: refuses all of the numbers of ranks {arguments.ranks}")
    if failed:
        print(f"collsim: proof failed for {failed} of {len(ranks)} numbers of ranks", file=sys.stderr)
    return 1 if failed else 0


def _parameters(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def parse_ranks(text: str) -> list[int]:
    """Return the numbers that ``2-17`` or ``2,4,8-10`` stands for.

    Examples
    --------
    >>> parse_ranks("2,4,8-10")
    [2, 4, 8, 9, 10]
    """
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not match or not 1 <= low <= high or high > MOST_RANKS or len(found) + high - low >= MOST_RANKS:
            raise InputError(f"--ranks: expected numbers from 1 to {MOST_RANKS} such as 2-17 or 2,4,8, got {text!r}")
        found += range(low, high + 1)
    return found
