"""Files that collsim writes: refused before time is spent on what goes into them, and written at once or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from collsim.errors import InputError, shown

__all__ = ["output_path", "part_of", "write_whole"]

LONGEST = 100
"""Bytes of a name that the name of the unfinished file has, which must not get too long."""


def output_path(path: str | os.PathLike[str], what: str, suffixes: Sequence[str]) -> Path:
    """Refuse a path that could not be written, and return the file that is meant (links followed).

    Parameters
    ----------
    path
        The file to write.
    what
        What messages call it.
    suffixes
        Ends that its name may have, in small letters.

    Raises
    ------
    InputError
        If it is no path, the suffix is none of these, there is no such directory or nobody may write there, or the path
        is a directory.

    Examples
    --------
    >>> output_path("ring.HTML", "player", (".html", ".htm")).name
    'ring.HTML'
    >>> output_path("ring.png", "player", (".html", ".htm"))
    Traceback (most recent call last):
    collsim.errors.InputError: player: ring.png: expected a name that ends in .html or .htm
    """
    try:
        name = os.fsdecode(path)
        target = Path(os.path.realpath(name))
        is_folder, is_other = os.path.isdir(target), os.path.exists(target) and not os.path.isfile(target)
    except (TypeError, ValueError):  # no path, or one with characters that no file can have
        raise InputError(f"{what}: expected the path of a file, got {shown(path)}") from None
    if not name.lower().endswith(tuple(suffixes)):
        ends = " or ".join([", ".join(suffixes[:-1]), suffixes[-1]]) if len(suffixes) > 1 else suffixes[0]
        raise InputError(f"{what}: {name}: expected a name that ends in {ends}")
    if not os.path.isdir(target.parent):
        raise InputError(f"{what}: {name}: no such directory; make it first")
    if is_folder:
        raise InputError(f"{what}: {name}: expected a file, got a directory")
    if is_other:  # it would be replaced
        raise InputError(f"{what}: {name}: expected a file, got a device or a pipe")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"{what}: {name}: cannot be written: no permission for the directory")
    return target


def part_of(target: Path) -> Path:
    """Return the name beside a file under which it is written before it takes its place.

    Examples
    --------
    >>> part_of(Path("x" * 240 + ".json")).name.startswith(".xxx")
    True
    """
    name = os.fsencode(target.name)[:LONGEST].decode(errors="ignore")  # cut within a letter, the rest of it goes
    return target.with_name(f".{name}.{os.getpid()}.part")


def write_whole(path: str | os.PathLike[str], data: bytes | memoryview, what: str) -> None:
    """Write a file beside its place, then put it there, so that nobody ever finds half of it.

    Parameters
    ----------
    path
        The file; links are followed.
    data
        What it shall hold.
    what
        What messages call it.

    Raises
    ------
    InputError
        If it cannot be written; what was there before is still there then.

    Examples
    --------
    >>> write_whole("no/such/directory/report.html", b"", "report")
    Traceback (most recent call last):
    collsim.errors.InputError: report: no/such/directory/report.html: cannot be written: No such file or directory
    """
    target = Path(os.path.realpath(os.fsdecode(path)))
    part = part_of(target)
    try:
        part.write_bytes(data)
        if target.is_file():
            shutil.copymode(target, part)
        os.replace(part, target)
    except OSError as error:
        raise InputError(f"{what}: {os.fsdecode(path)}: cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):  # it is gone if all went well
            part.unlink()
