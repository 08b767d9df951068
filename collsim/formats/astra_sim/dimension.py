"""What reading and writing share: one dimension of the product, and where its NPUs are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Dimension", "groups_of", "places_of", "printable"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Dimension:
    """One dimension: its block, number of NPUs, bytes/s and picoseconds of each link."""

    block: str
    size: int
    bandwidth: int = 0
    latency: int = 0

    @property
    def steps(self) -> Sequence[int]:
        """To which NPUs of its group each has a link, as differences of the coordinate."""
        if self.block == "Switch":
            return ()
        if self.block == "FullyConnected":
            return range(1, self.size)  # not written out: a file can ask for any size
        return (1, self.size - 1) if self.size > 2 else (1,)

    def count(self, npus: int) -> tuple[int, int]:
        """Return how many switches and how many links it adds."""
        return (npus // self.size, 2 * npus) if self.block == "Switch" else (0, npus * len(self.steps))


def places_of(dims: Sequence[Dimension]) -> Array:
    """Return the numbers of the NPUs with an axis a dimension, the innermost last."""
    sizes = [dim.size for dim in reversed(dims)]
    return np.arange(math.prod(sizes)).reshape(sizes)


def groups_of(places: Array, axis: int) -> Array:
    """Return the NPUs of each group along a dimension, by rows in ASTRA-sim's order."""
    return np.moveaxis(places, axis, -1).reshape(-1, places.shape[axis])


def printable(text: str) -> str:
    """Return a text that can stand in a file and in a message."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[-150:])
