"""Numba, imported only here and only when a kernel is needed.

Kernels are compiled for the types that they are called with, once; later processes load them from the cache that lies
beside the source (or where ``NUMBA_CACHE_DIR`` points).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["kernel"]

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function with Numba when it is first called; without a place for the cache it is compiled each time."""
    import numba

    try:
        compiled: F = numba.njit(cache=True)(function)
    except RuntimeError:  # neither the folder of the source nor the user's cache can be written
        compiled = numba.njit(function)
    return compiled
