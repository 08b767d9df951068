"""``collsim check``: put an algorithm through the battery for many numbers of ranks."""

from __future__ import annotations

import argparse
import re
import sys

from collsim import algorithms
from collsim.cli.user import user_function
from collsim.errors import AlgorithmError, CollsimError, InputError, ProofError
from collsim.testing import check_ranks

__all__ = ["check", "parse_ranks"]

MOST_RANKS = 10_000


def check(arguments: argparse.Namespace) -> int:
    """Check a function's schedules; print a line for each number of ranks."""
    ranks = parse_ranks(arguments.ranks)
    reference = arguments.function
    left, colon, name = reference.rpartition(":")
    shipped = colon and left.isidentifier()  # a file has a dot in its name
    function = algorithms.find(left, name) if shipped else user_function(reference)
    failed = refused = 0
    for n in ranks:
        try:
            case = check_ranks(function, n)
        except ProofError as error:
            failed += 1
            # the error begins with the number of ranks, and with the root if there is one
            where, _, why = str(error).partition(": ")
            root = where.partition(", ")[2]
            print(f"N={n:<5} FAILED   " + " ".join(f"{root}: {why}".removeprefix(": ").split()), flush=True)
            continue
        except AlgorithmError as error:  # not a refusal, which is part of the case
            raise CollsimError(f"with {n} ranks: {error}") from error
        refused += case.refused is not None
        print(case, flush=True)
    if refused == len(ranks):
        raise AlgorithmError(f"{reference}: refuses every number of ranks of {arguments.ranks}")
    if failed:
        print(f"collsim: proof failed for {failed} of {len(ranks)} numbers of ranks", file=sys.stderr)
        return 1
    print("# S is the size. Checked: proof, data against NumPy in and out of place, volumes, text form, bounds.")
    return 0


def parse_ranks(text: str) -> list[int]:
    """Return the numbers that ``2-17`` or ``2,4,8-10`` stands for.

    Examples
    --------
    >>> parse_ranks("2,4,8-10")
    [2, 4, 8, 9, 10]
    """
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part, re.ASCII)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not match or not 1 <= low <= high or high > MOST_RANKS or len(found) + high - low >= MOST_RANKS:
            raise InputError(f"--ranks: expected numbers from 1 to {MOST_RANKS} such as 2-17 or 2,4,8, got {text!r}")
        found += range(low, high + 1)
    return found
