"""Many names written as few: runs of nodes and of links joined into names with ranges, in the very order they have.

The reverse of what :mod:`collsim.topology.names` and the reader of files write out. Nothing is sorted: an entry is made
only where writing it out again gives the same nodes, or the same links, one after the other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Entry", "Names", "join_links", "join_names", "side_of"]

Array = npt.NDArray[Any]

LONGEST = 100
"""About so many letters of indices are joined in a name: a longer line is not read by anyone."""

FEW = 4
"""Pairs from which on they are zipped in any order; fewer only where the indices of both ends rise."""

_INDEX = re.compile(r"\[([0-9]+)\]")


class Names(NamedTuple):
    """Names that differ in their indices only: the text between these, and the values of each, the last one fastest."""

    texts: tuple[str, ...]
    values: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """How many names these are."""
        return math.prod(map(len, self.values))

    def __str__(self) -> str:
        pieces = [f"{text}[{_ranges(values)}]" for text, values in zip(self.texts, self.values, strict=False)]
        return "".join(pieces) + self.texts[-1]


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a file: what its nodes or links share, and the names of them.

    Attributes
    ----------
    shared
        Attributes; entries are joined where these are equal.
    sides
        The names of nodes, or of both ends of links.
    pairing
        ``all`` or ``zip`` where several links are joined, ``mesh`` where each node of a set is joined with each other,
        ``""`` for a single link or for nodes.
    """

    shared: tuple[Any, ...]
    sides: tuple[Names, ...]
    pairing: str = ""


def side_of(name: str) -> Names:
    """Return one name as `Names`.

    Examples
    --------
    >>> side_of("node[3].gpu[0]")
    Names(texts=('node', '.gpu', ''), values=((3,), (0,)))
    """
    pieces = _INDEX.split(name)
    return Names(tuple(pieces[::2]), tuple((int(index),) for index in pieces[1::2]))


def join_names(entries: Iterable[Entry]) -> list[Entry]:
    """Return entries of nodes with those joined that follow each other and are alike.

    Examples
    --------
    >>> nodes = ["gpu[0]", "gpu[1]", "gpu[4]", "sw", "a[0].nic[0]", "a[0].nic[1]", "a[1].nic[0]", "a[1].nic[1]"]
    >>> [str(entry.sides[0]) for entry in join_names(Entry((), (side_of(node),)) for node in nodes)]
    ['gpu[0-1,4]', 'sw', 'a[0-1].nic[0-1]']
    """
    return _joined(list(entries), lambda entry, places: "")


def join_links(shared: Sequence[tuple[Any, ...]], src: Array, dst: Array, names: Sequence[Names]) -> list[Entry]:
    """Return the entries that links are written as, in their order.

    Parameters
    ----------
    shared
        Attributes of each link.
    src, dst
        Node indices of its ends.
    names
        By node: its name.

    Returns
    -------
    entries
        With ``(two_way, count, *attributes)`` in `Entry.shared`.

    Examples
    --------
    >>> names = [side_of(f"gpu[{i}]") for i in range(4)]
    >>> ring = join_links([("1GB/s",)] * 4, np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0]), names)
    >>> [(*map(str, entry.sides), entry.pairing, entry.shared) for entry in ring]
    [('gpu[0-3]', 'gpu[1-3,0]', 'zip', (False, 1, '1GB/s'))]
    """
    entries: list[Entry] = []
    links = _pairs(shared, src, dst)
    at = 0
    while at < len(links):
        length, mesh = _mesh(links, at, names)
        if mesh is None:
            entries += [Entry(attributes, (names[a], names[b])) for attributes, a, b in links[at : at + length]]
        else:
            entries.append(mesh)
        at += length
    return _joined(entries, _pairing)


_Link = tuple[tuple[Any, ...], int, int]


def _pairs(shared: Sequence[tuple[Any, ...]], src: Array, dst: Array) -> list[_Link]:
    """Join parallel links, and those that go both ways: ``((two_way, count, *attributes), src, dst)``."""
    if not len(src):
        return []
    codes: dict[tuple[Any, ...], int] = {}
    code = np.array([codes.setdefault(attributes, len(codes)) for attributes in shared])
    new = np.flatnonzero((np.diff(src) != 0) | (np.diff(dst) != 0) | (np.diff(code) != 0)) + 1
    first = np.concatenate(([0], new))
    counts = np.diff(np.concatenate((first, [len(src)]))).tolist()
    runs = list(zip(code[first].tolist(), src[first].tolist(), dst[first].tolist(), counts, strict=True))
    kinds = list(codes)
    links: list[_Link] = []
    at = left = 0  # of the run at `at` so many links were taken already, as ways back
    while at < len(runs):
        kind, a, b, count = runs[at]
        count -= left
        left, back = 0, 0
        if at + 1 < len(runs) and runs[at + 1][:3] == (kind, b, a):
            back = min(count, runs[at + 1][3])
        if count > back:
            links.append(((False, count - back, *kinds[kind]), a, b))
        at += 1
        if back:
            links.append(((True, back, *kinds[kind]), a, b))
            if back == runs[at][3]:
                at += 1
            else:
                left = back
    return links


def _mesh(links: list[_Link], at: int, names: Sequence[Names]) -> tuple[int, Entry | None]:
    """Return the links from here on that join each node of a set with each other, as one entry, and how many they are.

    Where they do not, None and the number of links that start here: a mesh that began within these would be rare.
    """
    shared, start, _ = links[at]
    row = at
    while row < len(links) and links[row][1] == start and links[row][0] == shared:
        row += 1
    n = row - at + 1
    two_way = shared[0]
    total = n * (n - 1) // 2 if two_way else n * (n - 1)
    if n < 3 or at + total > len(links):
        return row - at, None
    nodes = [start, *(link[2] for link in links[at:row])]
    place = row
    for i in range(1, n):
        for j in range(i + 1 if two_way else 0, n):
            if i != j:
                if links[place] != (shared, nodes[i], nodes[j]):
                    return row - at, None
                place += 1
    side = _product([names[node] for node in nodes])
    return (row - at, None) if side is None else (total, Entry(shared, (side, side), "mesh"))


def _product(names: list[Names]) -> Names | None:
    """Return single names in a row as one, if they are one."""
    texts = names[0].texts
    if any(name.texts != texts for name in names):
        return None
    rows = [tuple(value[0] for value in name.values) for name in names]
    found = Names(texts, tuple(tuple(dict.fromkeys(column)) for column in zip(*rows, strict=True)))
    if found.size != len(names) or sum(map(_letters, found.values)) > LONGEST:
        return None
    return found if rows == list(product(*found.values)) else None


def _pairing(entry: Entry, places: tuple[int, ...]) -> str | None:
    """Return the pairing of links that are joined along these indices of their ends (-1: the end is the same)."""
    src = entry.sides[0]
    if entry.pairing == "mesh":
        return None
    if places[0] >= 0 and places[1] >= 0:
        return "zip" if entry.pairing in ("", "zip") else None
    if entry.pairing == "zip" or (places[1] >= 0 and src.size > 1):  # sources run slowest in a file
        return None
    return "all"


def _joined(entries: list[Entry], pairing: Callable[[Entry, tuple[int, ...]], str | None]) -> list[Entry]:
    """Join entries that follow each other, one index after the other until nothing is left to join."""
    while True:
        joined: list[Entry] = []
        at = 0
        while at < len(entries):
            length, entry = _run(entries, at, pairing)
            joined.append(entry)
            at += length
        if len(joined) == len(entries):
            return joined
        entries = joined


def _run(entries: list[Entry], at: int, pairing: Callable[[Entry, tuple[int, ...]], str | None]) -> tuple[int, Entry]:
    """Return how many entries from here on are one, and that one."""
    first = entries[at]
    places = _places(first, entries[at + 1]) if at + 1 < len(entries) else None
    kind = None if places is None else pairing(first, places)
    if places is None or kind is None:
        return 1, first
    values = [list(side.values[p]) if p >= 0 else [] for side, p in zip(first.sides, places, strict=True)]
    seen = [set(column) for column in values]
    letters = [_letters(column) for column in values]
    rising = end = at + 1
    while end < len(entries):
        entry = entries[end]
        if end > at + 1 and _places(first, entry) != places:
            break
        more = [side.values[p] if p >= 0 else () for side, p in zip(entry.sides, places, strict=True)]
        if any(not s.isdisjoint(m) for s, m in zip(seen, more, strict=True)):
            break
        grown = [n + _letters(m, *v[-1:]) for n, v, m in zip(letters, values, more, strict=True)]
        if max(grown) > LONGEST:
            break
        letters = grown
        if rising == end and all(new[0] > column[-1] for column, new in zip(values, more, strict=True) if new):
            rising += 1
        for column, known, new in zip(values, seen, more, strict=True):
            column.extend(new)
            known.update(new)
        end += 1
    if kind == "zip" and end < at + FEW:
        end = rising
    if end == at + 1:
        return 1, first
    sides = list(first.sides)
    for number, p in enumerate(places):
        if p >= 0:
            old = sides[number].values
            run = tuple(value for entry in entries[at:end] for value in entry.sides[number].values[p])
            sides[number] = sides[number]._replace(values=(*old[:p], run, *old[p + 1 :]))
    return end - at, replace(first, sides=tuple(sides), pairing=kind)


def _places(one: Entry, other: Entry) -> tuple[int, ...] | None:
    """Return by side the index in which two entries differ, -1 if in none; None if they cannot be joined."""
    if one.shared != other.shared or one.pairing != other.pairing:
        return None
    places = []
    for a, b in zip(one.sides, other.sides, strict=True):
        if a.texts != b.texts:
            return None
        differ = [p for p, (x, y) in enumerate(zip(a.values, b.values, strict=True)) if x != y]
        # the joined index runs slowest of those that run
        if len(differ) > 1 or (differ and any(len(values) > 1 for values in a.values[: differ[0]])):
            return None
        places.append(differ[0] if differ else -1)
    return tuple(places) if max(places) >= 0 else None


def _letters(values: Sequence[int], before: int = -2) -> int:
    """Return about how many letters indices take after another one."""
    starts = [value for last, value in pairwise([before, *values]) if value != last + 1]
    return sum(2 * len(str(value)) + 2 for value in starts)


def _ranges(values: Sequence[int]) -> str:
    """Return indices as a file has them.

    Examples
    --------
    >>> _ranges([0, 1, 2, 5, 7, 8, 3])
    '0-2,5,7-8,3'
    """
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
