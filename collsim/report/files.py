"""Writing a file at once or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from collsim.errors import InputError

__all__ = ["write_whole"]


def write_whole(path: str | os.PathLike[str], data: bytes, what: str) -> None:
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
        ...
    collsim.errors.InputError: report: no/such/directory/report.html: cannot be written: No such file or directory
    """
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{target.name[:100]}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        os.replace(part, target)
    except KeyboardInterrupt:
        part.unlink(missing_ok=True)
        raise
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InputError(f"{what}: {os.fspath(path)}: cannot be written: {error.strerror}") from error
