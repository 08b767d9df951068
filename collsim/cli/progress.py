"""A progress bar on a terminal, for runs that take a while."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

from collsim.engine.outcome import Pulse, no_pulse

__all__ = ["progress", "stages"]

QUIET = 2.0
"""Seconds without a bar."""


@contextlib.contextmanager
def progress(what: str) -> Iterator[Pulse]:
    """Give a function that engines call with (transfers done, all transfers), and draw a bar after two seconds.

    The bar goes to stderr, only if that is a terminal, and is wiped off at the end, whatever ends the run.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield no_pulse
        return
    bar: Any = None
    task: Any = None
    since = monotonic()

    def pulse(done: int, total: int) -> None:
        nonlocal bar, task
        if bar is None:
            if monotonic() - since < QUIET or done >= total:
                return
            bar = _bar()
            task = bar.add_task(what, total=total)
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield pulse
    finally:
        if bar is not None:
            bar.stop()


@contextlib.contextmanager
def stages() -> Iterator[Callable[[str], None]]:
    """Give a function that shows on a terminal what is being done, after two seconds, in one line that is wiped off."""
    since, shown = monotonic(), False
    terminal = sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None

    def stage(text: str) -> None:
        nonlocal shown
        if terminal is not None and monotonic() - since >= QUIET:
            terminal.write(f"\r\x1b[2K{text[:78]}")
            terminal.flush()
            shown = True

    try:
        yield stage
    finally:
        if terminal is not None and shown:
            terminal.write("\r\x1b[2K")
            terminal.flush()


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("of {task.total:,} transfers"),
        TimeRemainingColumn(), console=Console(stderr=True), transient=True,
    )  # fmt: skip
