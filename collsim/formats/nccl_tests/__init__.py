"""Measured times: the tables of nccl-tests and rccl-tests, as text, JSON or CSV.

Text is that of all versions: with the columns redop and root or without, with ``#wrong`` or ``error``, with the extra
columns of newer ones, with NCCL's own lines between. Sources: nccl-tests, ``src/common.cu``, ``src/util.cu`` and the
files of the operations; rccl-tests, ``src/common.cu``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import chain

from collsim.errors import InputError
from collsim.formats.loglines import log_lines
from collsim.formats.nccl_tests.model import Device, Drafts, NcclTests, Table
from collsim.formats.nccl_tests.records import is_record, read_csv, read_document, read_records, strict_json
from collsim.formats.nccl_tests.text import read_text

__all__ = ["Device", "NcclTests", "Table", "read_nccl_tests"]

WHAT = "a log of nccl-tests"


def read_nccl_tests(path: str | os.PathLike[str]) -> NcclTests:
    """Return what nccl-tests or rccl-tests measured.

    Parameters
    ----------
    path
        What a program such as ``all_reduce_perf`` printed, with whatever stands around it; or the JSON that it wrote
        with ``-J``; or the CSV or JSON that rccl-tests wrote with ``-x``. Text, CSV and JSON lines are read line by
        line and may be of any length; one JSON document has at most 64 MiB.

    Returns
    -------
    NcclTests
        Times are in seconds, bandwidths in bytes/s. ``frame, devices = read_nccl_tests(path)`` works too, with pandas.

    Raises
    ------
    InputError
        If the file cannot be read, has no table, is damaged JSON or CSV (with the place), or has more than a million
        rows. Rows of text that other output has broken are passed over and counted (``skipped``).

    Notes
    -----
    Sizes of all_gather, reduce_scatter, all_to_all, gather and scatter are those of the whole buffer, as in nccl-tests
    and here. A program that was not built with MPI runs once in each process, and prints as many tables.

    Examples
    --------
    >>> read_nccl_tests("no/such.log")
    Traceback (most recent call last):
    collsim.errors.InputError: no/such.log: expected a log of nccl-tests, got no such file
    """
    return _read(path).finish()


def _read(path: str | os.PathLike[str]) -> Drafts:
    beginning = _beginning(path)
    name = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
    if re.match(rb"\{|\[\s*(\{|\]|$)", beginning):
        return _read_json(path, name)
    lines = log_lines(path, WHAT)
    before = []
    for number, line in lines:
        before.append((number, line))
        if line.strip():
            break
    first = before[-1][1].lower() if before else ""
    if "collective," in first and "busbw," in first:
        return read_csv(chain(before, lines), name)
    return read_text(chain(before, lines), name)


def _beginning(path: str | os.PathLike[str]) -> bytes:
    """Return the first bytes of a file, without blanks; nothing where there is none to read."""
    try:
        if not os.path.isfile(path):
            return b""
        with open(path, "rb") as stream:
            return stream.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    except (OSError, TypeError, ValueError):
        return b""  # whoever reads it says what is wrong


def _read_json(path: str | os.PathLike[str], name: str) -> Drafts:
    """Read JSON: a line for each row (rccl-tests), or a document."""

    def records() -> Iterator[tuple[int, object]]:
        for number, line in log_lines(path, WHAT):
            if line.strip():
                yield number, strict_json(line, name, number)

    try:
        first = next(records(), (0, None))[1]
    except InputError:
        first = None  # a document of several lines, or of one that is too long
    return read_records(records(), name) if is_record(first) else read_document(path, name)
