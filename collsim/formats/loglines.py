"""Lines of logs: read one by one, whatever stands in them, so that a log of any length needs little memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from collsim.errors import InputError, shown

__all__ = ["ESCAPES", "LONGEST", "log_lines"]

LONGEST = 1 << 20
"""Bytes of a line; a longer one is no line of a log."""

ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,40}[A-Za-z]")
"""What moves or colours a terminal."""


def log_lines(path: str | os.PathLike[str], what: str) -> Iterator[tuple[int, str]]:
    r"""Yield the number of each line, from 1, and the line without its end and without the escapes of a terminal.

    Parameters
    ----------
    path
        A regular file in UTF-8. Single bytes that are not are replaced: logs hold what programs printed.
    what
        What it ought to be, for messages.

    Raises
    ------
    InputError
        If there is no such file, it is a directory, a device or a pipe, cannot be read, is no text (a zero byte,
        UTF-16), or a line is longer than ``LONGEST``.

    Examples
    --------
    >>> list(log_lines("no/such.log", "a log of NCCL"))
    Traceback (most recent call last):
    collsim.errors.InputError: no/such.log: expected a log of NCCL, got no such file
    """
    try:
        name = os.fsdecode(path)
        if os.path.isdir(name):
            raise InputError(f"{name}: expected {what}, got a directory; name the file in it")
        if os.path.exists(name) and not os.path.isfile(name):
            raise InputError(f"{name}: expected {what}, got a device or a pipe; save it to a file first")
        with open(name, "rb") as stream:
            number = 0
            while line := stream.readline(LONGEST + 1):
                number += 1
                if len(line) > LONGEST:
                    raise InputError(f"{name}:{number}: expected lines of at most {LONGEST:,} bytes, got a longer one")
                if b"\0" in line or (number == 1 and line[:2] in (b"\xff\xfe", b"\xfe\xff")):
                    raise InputError(
                        f"{name}:{number}: expected {what} in UTF-8, got a zero byte; is it a binary file?"
                    )
                text = line.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace").rstrip("\r\n")
                yield number, ESCAPES.sub("", text) if "\x1b" in text else text
    except FileNotFoundError:
        raise InputError(f"{name}: expected {what}, got no such file") from None
    except OSError as error:
        raise InputError(f"{name}: expected {what}, got an error: {error.strerror}") from None
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"expected the path of {what}, got {shown(path)}") from None
