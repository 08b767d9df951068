"""Kernels of the lowering: dependencies of transfers that are written out, and the numbers of their routes."""

from __future__ import annotations

import numpy as np

from collsim.compiling import kernel
from collsim.engine.program import Array

__all__ = ["FOUND", "LOW", "MET", "OPEN", "SHORT", "follow", "number_routes"]

OPEN, MET = 1, 2
"""What `follow` says of an entry: no copy was found for it; some writer was found for it."""

LOW, HIGH, ROW, WRITES, FOUND, STAMP, SHORT = range(7)
"""The state of `follow`: first and last + 1 row of the step, the next row, whether the step is being written,
predecessors in the buffer, number of the attempt, whether the buffer was too short."""


@kernel
def follow(
    step: Array,
    ptr: Array,
    owner: Array,
    src: Array,
    dst: Array,
    reduce: Array,
    head: Array,
    before: Array,
    seen: Array,
    said: Array,
    dep_ptr: Array,
    dep: Array,
    gone: int,
    state: Array,
    budget: int,
) -> None:
    """Go on through the rows in program order: all of a step read, then all of them write.

    Entry e (a chunk of a message) is row e where ``ptr`` is empty; else ``ptr`` has the entries of a row and ``owner``
    the row of an entry. ``src`` and ``dst`` number places in memory (-1 if never written). ``head`` is the last entry
    that wrote a place, ``before`` the one that counts besides it. ``seen`` marks the rows that the present one waits
    for already. ``gone`` predecessors have left the buffer ``dep``.
    """
    rows, single = len(step), len(ptr) == 0
    low, high, row, found = state[LOW], state[HIGH], state[ROW], state[FOUND]
    state[SHORT] = 0
    work = 0
    while low < rows and work < budget:
        if high <= low:
            row, high = low, low + 1
            while high < rows and step[high] == step[low]:
                high += 1
            state[WRITES] = 0
        while row < high and state[WRITES] == 0 and work < budget:
            first, last = row, row + 1
            if not single:
                first, last = ptr[row], ptr[row + 1]
            start = found
            state[STAMP] += 1
            for e in range(first, last):
                flag = OPEN
                entry = -1
                if src[e] >= 0:
                    entry = head[src[e]]
                while entry >= 0:
                    work += 1
                    pred = entry
                    if not single:
                        pred = owner[entry]
                    flag |= MET
                    if single or seen[pred] != state[STAMP]:
                        if found == len(dep):
                            state[LOW], state[HIGH], state[ROW], state[FOUND], state[SHORT] = low, high, row, start, 1
                            return
                        dep[found] = pred
                        found += 1
                        if not single:
                            seen[pred] = state[STAMP]
                    if not reduce[pred]:
                        flag = MET
                        break
                    entry = before[entry]
                said[e] = flag
            row += 1
            work += 1
            dep_ptr[row] = gone + found
        if row == high and state[WRITES] == 0:
            state[WRITES] = 1
            row = low
        while row < high and state[WRITES] == 1 and work < budget:
            first, last = row, row + 1
            if not single:
                first, last = ptr[row], ptr[row + 1]
            for e in range(first, last):
                before[e] = head[dst[e]] if reduce[row] else -1
                head[dst[e]] = e
            row += 1
            work += 1
        if row == high and state[WRITES] == 1:
            low = high
    state[LOW], state[HIGH], state[ROW], state[FOUND] = low, high, row, found


@kernel
def number_routes(
    src: Array, dst: Array, kind: Array, table: Array, keys: Array, route: Array, state: Array, budget: int
) -> None:
    """Give each distinct (src, dst, kind) a number, in the order in which they come.

    ``table`` is a hash table of numbers + 1, a power of two long; ``keys`` has the row in which each number came first.
    ``state`` is the next row and how many numbers there are; it stops where the table is half full.
    """
    mask = len(table) - 1
    row, known = state[0], state[1]
    many_kinds = len(kind) > 0
    end = min(len(src), row + budget)
    while row < end:
        a, b, c = np.int64(src[row]), np.int64(dst[row]), np.int64(0)
        if many_kinds:
            c = np.int64(kind[row])
        # mixing by odd constants spreads neighbours over the table
        mixed = (a * 0x9E3779B97F4A7C1 + b * 0xC2B2AE3D27D4EB5 + c * 0x165667B19E3779F) ^ (a + b) << 7
        at = (mixed ^ mixed >> 29) & mask
        while True:
            number = table[at] - 1
            if number < 0:
                if 2 * known >= len(table):
                    state[0], state[1] = row, known
                    return
                number = known
                keys[known] = row
                known += 1
                table[at] = number + 1
                break
            first = keys[number]
            if src[first] == a and dst[first] == b and (not many_kinds or kind[first] == c):
                break
            at = (at + 1) & mask
        route[row] = number
        row += 1
    state[0], state[1] = row, known
