"""How much of the time a link is in use, in equal parts of the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.traces.slices import Slices

__all__ = ["levelled", "utilisation"]

Array = npt.NDArray[Any]


def utilisation(slices: Slices, busy: Array, owners: int, span: int, bins: int) -> Array:
    """Return the share of each span of time in which each owner is in use, an array (owners, bins).

    The time that the bytes of a transfer need is spread evenly over its slice, so that the mean over all bins is the
    busy time over the span.

    Parameters
    ----------
    slices
        Slices whose owners are numbers below ``owners``.
    busy
        Picoseconds of each slice that its bytes need.
    owners
        Number of owners.
    span
        Picoseconds in all, at least 1.
    bins
        Number of equal parts.

    Examples
    --------
    >>> one = Slices(np.array([0]), np.array([0]), np.array([25]), np.array([75]))
    >>> utilisation(one, np.array([25]), 1, 100, 4).tolist()
    [[0.0, 0.5, 0.5, 0.0]]
    """
    width = span / bins
    rate = busy / np.maximum(slices.end - slices.start, 1)  # without duration there are no bytes
    # the rate of an owner steps up where a slice starts and down where it ends; its integral up to an edge t is the
    # sum of step * (t - when) over the steps before t
    steps, moments = np.zeros(owners * bins), np.zeros(owners * bins)
    for when, sign in ((slices.start, 1), (slices.end, -1)):
        place = when / width
        cell = np.minimum(place.astype(np.int32), bins - 1)
        place = cell + 1 - place  # what is left of its own bin
        place *= rate
        key = slices.owner * np.int64(bins) + cell
        del cell
        steps += sign * np.bincount(key, rate, owners * bins)
        moments += sign * np.bincount(key, place, owners * bins)
    step = steps.reshape(owners, bins)
    before = np.cumsum(step, axis=1) - step  # the rate at the start of each bin
    return np.maximum(before + moments.reshape(owners, bins), 0.0)


def levelled(share: Array) -> Array:
    """Return utilisations of which none is above 1: what is too much for a bin goes to the next that has room.

    In ``fluid`` the rate of a message changes whenever another starts or ends, which is not recorded; spread evenly,
    the bytes of several can be more than the link carries. The mean stays what it is, as long as it is at most 1.

    Examples
    --------
    >>> levelled(np.array([[0.5, 1.25, 0.25], [0.5, 0.5, 1.25]])).tolist()
    [[0.5, 1.0, 0.5], [0.5, 0.75, 1.0]]
    """
    level = share.copy()
    for steps in (range(share.shape[1]), reversed(range(share.shape[1]))):
        over = np.zeros(len(share))
        for place in steps:
            wanted = level[:, place] + over
            level[:, place] = np.minimum(wanted, 1.0)
            over = wanted - level[:, place]
        level[:, place] += over  # at the end of the row: the way back takes it
    return np.minimum(level, 1.0)
