"""How much memory there is, and refusing what would not fit before any of it is used."""

from __future__ import annotations

import os
from pathlib import Path

from collsim.errors import InputError

__all__ = ["free_memory", "refuse_beyond_memory"]

CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""Where the limit of a container stands, and what it uses (version 2, version 1)."""


ALWAYS = 100_000_000
"""So little is not worth looking up what is free."""


def free_memory() -> int | None:
    """Return the bytes that this process may still take without swapping, or None where the system does not say."""
    found = [_container(limit, usage) for limit, usage in CGROUPS]
    found += [_machine(), _process()]
    known = [value for value in found if value is not None]
    return min(known) if known else None


def _container(limit: str, usage: str) -> int | None:
    try:
        return max(0, int(Path(limit).read_text()) - int(Path(usage).read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        return None


def _machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass  # not Linux
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _process() -> int | None:
    """Return what a limit on the addresses of this process (``ulimit -v``) leaves."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY:
            return None
        return max(0, limit - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize())
    except (ImportError, OSError, ValueError, IndexError):  # not Linux
        return None


def refuse_beyond_memory(needed: int, what: str, remedy: str) -> None:
    """Refuse what needs more bytes than are free.

    Raises
    ------
    InputError
        With both numbers and the remedy.

    Examples
    --------
    >>> refuse_beyond_memory(10**18, "the records of 10**16 transfers", "use records=False")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    collsim.errors.InputError: memory: the records of 10**16 transfers need about 1,000,000,000 GB, ... GB are free; ...
    """
    if needed < ALWAYS:
        return
    free = free_memory()
    if free is not None and needed > free:
        raise InputError(f"memory: {what} need about {_gb(needed)} GB, {_gb(free)} GB are free; {remedy}")


def _gb(size: int) -> str:
    return f"{size / 1e9:,.0f}" if size >= 10**10 else f"{size / 1e9:,.1f}"
