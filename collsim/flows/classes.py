"""Which nodes of a network may be exchanged: colour refinement."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["classes", "mixed"]

Array = npt.NDArray[Any]


def classes(nodes: int, src: Any, dst: Any, label: Any, colour: Any) -> Array:
    """Return a number for each node; nodes that a symmetry exchanges have the same.

    Parameters
    ----------
    nodes
        Number of nodes.
    src, dst, label
        Ends of the arcs and whole numbers that a symmetry must keep (bandwidths); parallel arcs count each.
    colour
        Whole numbers by node to start from.

    Notes
    -----
    Colours are refined by those of the neighbours, and the labels of the arcs to and from them, until their number no
    longer grows (Weisfeiler and Leman 1968). Sets of neighbours are told apart by sums of 64-bit random numbers: two
    that differ pass for one with a chance below 10**-9 for millions of nodes, and to the caller a pair of nodes that is
    not symmetric only means a cut not searched.

    Examples
    --------
    >>> line = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2), (3, 4), (4, 3)]
    >>> classes(5, *zip(*line), [1] * 8, [0] * 5).tolist()
    [0, 1, 2, 1, 0]
    """
    src, dst = np.asarray(src, dtype=np.int64), np.asarray(dst, dtype=np.int64)
    arc = mixed(np.asarray(label, dtype=np.int64).astype(np.uint64))
    name = np.unique(np.asarray(colour, dtype=np.int64), return_inverse=True)[1].reshape(-1)
    count = int(name.max(initial=-1)) + 1
    while True:
        drawn = mixed(name.astype(np.uint64) + np.uint64(1))
        around = mixed(drawn)
        np.add.at(around, src, mixed(arc ^ drawn[dst]))
        np.add.at(around, dst, mixed(~(arc ^ drawn[src])))
        _, first, name = np.unique(around, return_index=True, return_inverse=True)
        name = name.reshape(-1)
        if len(first) <= count:
            break
        count = len(first)
    return _in_order(name)


def _in_order(name: Array) -> Array:
    """Return the classes numbered by their first node."""
    _, first, name = np.unique(name, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.asarray(rank[name.reshape(-1)])


def mixed(numbers: Array, salt: int = 1) -> Array:
    """Return what looks like random numbers, others for another salt (SplitMix64; Steele, Lea and Flood 2014).

    Examples
    --------
    >>> int(mixed(np.zeros(1, dtype=np.uint64))[0]) == 0xE220A8397B1DCDAF
    True
    """
    with np.errstate(over="ignore"):
        x = numbers + np.uint64(salt * 0x9E3779B97F4A7C15 % 2**64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(x ^ (x >> np.uint64(31)))
