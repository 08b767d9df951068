"""The compiled forms; imported when a network is too large for Python."""

from __future__ import annotations

from collsim.compiling import kernel
from collsim.flows.augment import augment

__all__ = ["augment_compiled"]

augment_compiled = kernel(augment)
