"""Numba, imported only here and only when a kernel is needed.

Kernels are compiled for the types that they are called with, once; later processes load them from the cache that lies
beside the source (or where ``NUMBA_CACHE_DIR`` points).
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Timer
from time import perf_counter
from typing import Any, TypeVar, cast

__all__ = ["kernel"]

F = TypeVar("F", bound=Callable[..., Any])

PATIENCE = 1.0
"""Seconds of compilation after which the user is told why nothing happens."""
ROOMS = ("engine", "flows", "forests")
"""Where there are kernels."""
NOTICE = "collsim: compiling a part of collsim, some seconds, once; later runs load it from a cache"


def kernel(function: F) -> F:
    """Compile a function with Numba when it is first called; without a place for the cache it is compiled each time."""
    import numba

    _listen()
    try:
        compiled: Any = numba.njit(cache=True)(function)
        # Numba asks for the file of the function only; a kernel is out of date too when another that it calls has
        # changed, in a file of the same age (as all files of an installed package may be)
        compiled._cache._cache_file._source_stamp = _digest()
        _forgive(compiled._cache)
    except (RuntimeError, AttributeError):  # no folder that can be written; a Numba that keeps its cache in another way
        compiled = numba.njit(function)
    return cast(F, compiled)


def _forgive(stored: Any) -> None:
    """Let a cache that is damaged, or that cannot be written any more, count as empty."""
    load, save = stored.load_overload, stored.save_overload

    def load_if_sound(*arguments: Any) -> Any:
        try:
            return load(*arguments)
        except Exception:  # what a file cut short or overwritten makes of Numba's and LLVM's readers is anybody's guess
            with suppress(Exception):
                stored.flush()
            return None

    def save_if_possible(*arguments: Any) -> None:
        with suppress(Exception):  # a full disk is no reason not to run what has been compiled
            save(*arguments)

    stored.load_overload, stored.save_overload = load_if_sound, save_if_possible


@cache
def _digest() -> str:
    """Return what tells versions of the sources of all kernels apart."""
    digest = hashlib.sha256()
    for room in ROOMS:
        for path in sorted((Path(__file__).parent / room).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _listen() -> None:
    """Have Numba tell when it compiles (not when it loads from the cache)."""
    from numba.core import event

    class Listener(event.Listener):
        """Says so once on stderr when compiling takes over a second in all."""

        depth = 0
        spent = 0.0
        since = 0.0
        timer: Timer | None = None
        said = False

        def on_start(self, event: Any) -> None:
            self.depth += 1
            if self.depth == 1 and not self.said:
                self.since = perf_counter()
                self.timer = Timer(max(0.0, PATIENCE - self.spent), self.say)
                self.timer.daemon = True
                self.timer.start()

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            if self.depth == 0 and self.timer is not None:
                self.timer.cancel()
                self.timer = None
                self.spent += perf_counter() - self.since

        def say(self) -> None:
            if not self.said and sys.stderr is not None:
                self.said = True
                sys.stderr.write(NOTICE + "\n")
                sys.stderr.flush()

    event.register("numba:compile", Listener())  # type: ignore[no-untyped-call]
