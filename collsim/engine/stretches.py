"""The critical path as a short list: runs of alike transfers in one line, patterns that come again told once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.engine.critical import PARTS, CriticalPath
from collsim.engine.program import Program

__all__ = ["Stretch", "stretches"]

Array = npt.NDArray[Any]

MOST = 12
"""Lines that the list has at most."""
KEPT = 5
"""Where there are more, so many of the longest are kept, and what lies between them becomes one line each."""
PERIOD = 16
"""Lines of the longest pattern that is looked for."""


@dataclass(frozen=True)
class Stretch:
    """Some transfers that follow each other on the critical path.

    Attributes
    ----------
    start_ps, end_ps
        From when to when; the next one begins where this one ends.
    count
        Number of transfers.
    first, last
        Numbers of the first and of the last of them; the number of a barrier (a join of the program) if that is first.
    reduces
        Whether they are added to what is there.
    bytes
        Payload of the smallest and of the largest.
    causes
        Picoseconds for each cause that is not 0; they sum to ``end_ps - start_ps``.
    places
        Picoseconds by number of a class of links (-1: not on a link).
    own, ahead
        Picoseconds in which earlier messages of the same sender held what they needed, and how many such messages.
    behind
        Pairs ``(src, dst)`` of those for whose messages they queued, and how often.
    parts
        What a pattern that comes again consists of, or the heaviest kinds in a mixture; empty for transfers that are
        alike.
    times
        How often the pattern comes; 1 for a mixture or for transfers that are alike.
    """

    start_ps: int
    end_ps: int
    count: int
    first: int
    last: int
    reduces: bool
    bytes: tuple[int, int]
    causes: dict[str, int]
    places: dict[int, int]
    own: int
    ahead: int
    behind: dict[tuple[int, int], int]
    parts: tuple[Stretch, ...] = ()
    times: int = 1
    key: tuple[Any, ...] = field(default=(), repr=False)

    @property
    def ps(self) -> int:
        """How long it takes in picoseconds."""
        return sum(self.causes.values())


def stretches(path: CriticalPath, program: Program, number: Array) -> list[Stretch]:
    """Return the pieces of a critical path joined to at most a dozen stretches, in order of time, without gaps.

    Parameters
    ----------
    path
        The critical path.
    program
        Its program.
    number
        Number of the class of each link of the topology.
    """
    found = _runs(_transfers(path, program, number), lambda item: item.key, _alike)
    if len(found) > MOST:
        found = _patterns(found)
    if len(found) > MOST:
        kept = set(sorted(range(len(found)), key=lambda i: (-found[i].ps, i))[:KEPT])
        numbered = list(enumerate(found))
        found = _runs(
            numbered, lambda item: (item[0] if item[0] in kept else -1,), lambda some: _mixture([s for _, s in some])
        )
    return found


def _transfers(path: CriticalPath, program: Program, number: Array) -> Iterator[Stretch]:
    """Yield a stretch for each transfer of the path that takes time."""
    columns = path.pieces
    transfer = columns["transfer"]
    place = np.where(columns["link"] >= 0, number[columns["link"]] if len(number) else -1, -1)
    border = np.flatnonzero(np.diff(transfer)) + 1
    names = ("start_ps", "end_ps", "cause", "behind")
    start, end, cause, behind = (columns[name].tolist() for name in names)
    places: list[int] = place.tolist()
    low = 0
    for high in [*border.tolist(), len(transfer)] if len(transfer) else []:
        node = int(transfer[low])
        causes: Counter[str] = Counter()
        where: Counter[int] = Counter()
        queue: Counter[tuple[int, int]] = Counter()
        own, ahead, shape = 0, 0, []
        for i in range(low, high):
            took, name = end[i] - start[i], PARTS[cause[i]]
            causes[name] += took
            where[places[i]] += took
            queues = behind[i] >= 0 and name == "queueing"
            if queues:
                queue[int(program.src[behind[i]]), int(program.dst[behind[i]])] += 1
            elif behind[i] >= 0:
                own += took
                ahead += 1
            shape.append((cause[i], places[i], behind[i] >= 0))
        real = node < program.transfers
        reduces = bool(real and program.reduce[node])
        size = int(program.bytes[node]) if real else 0
        key = (reduces, real, *dict.fromkeys(shape))
        yield Stretch(
            start[low], end[high - 1], int(real), node, node, reduces, (size, size), dict(causes), dict(where), own,
            ahead, dict(queue), key=key,
        )  # fmt: skip
        low = high


def _runs(items: Any, key: Callable[[Any], Any], join: Callable[[list[Any]], Stretch]) -> list[Stretch]:
    """Join neighbours of equal key."""
    found: list[Stretch] = []
    run: list[Any] = []
    for item in items:
        if run and key(run[0]) != key(item):
            found.append(join(run))
            run = []
        run.append(item)
    return [*found, join(run)] if run else found


def _alike(some: Sequence[Stretch], **changes: Any) -> Stretch:
    """Sum up stretches that follow each other."""
    causes: Counter[str] = Counter()
    places: Counter[int] = Counter()
    behind: Counter[tuple[int, int]] = Counter()
    for one in some:
        causes.update(one.causes)
        places.update(one.places)
        behind.update(one.behind)
    values: dict[str, Any] = {"key": some[0].key, "reduces": some[0].reduces}
    return Stretch(
        start_ps=some[0].start_ps, end_ps=some[-1].end_ps, count=sum(one.count for one in some), first=some[0].first,
        last=some[-1].last, bytes=(min(one.bytes[0] for one in some), max(one.bytes[1] for one in some)),
        causes=dict(causes), places=dict(places), own=sum(one.own for one in some),
        ahead=sum(one.ahead for one in some), behind=dict(behind), **(values | changes),
    )  # fmt: skip


def _patterns(found: list[Stretch]) -> list[Stretch]:
    """Tell patterns of some lines that come again at once."""
    known: dict[Any, int] = {}
    ids = np.array([known.setdefault((one.key, one.count), len(known)) for one in found])
    # by period: how many lines from here on are as those one period later
    same = []
    for period in range(1, PERIOD + 1):
        run = [0] * (len(ids) + 1)
        equal = ids[period:] == ids[:-period]
        for i in range(len(equal) - 1, -1, -1):
            run[i] = run[i + 1] + 1 if equal[i] else 0
        same.append(run)
    result, i = [], 0
    while i < len(found):
        times, period = 1, 1
        for length, run in enumerate(same, start=1):
            again = 1 + run[i] // length
            if again > 1 and again * length > times * period:
                times, period = again, length
        some = found[i : i + times * period]
        if times == 1:
            result += some
        else:
            parts = tuple(_alike(some[j::period]) for j in range(period))
            result.append(_alike(some, parts=parts, times=times, key=(), reduces=all(one.reduces for one in parts)))
        i += times * period
    return result


def _mixture(some: Sequence[Stretch]) -> Stretch:
    """Sum up whatever follows each other; its kinds are kept, the heaviest first."""
    if len(some) == 1:
        return some[0]
    kinds: dict[Any, list[Stretch]] = {}
    for one in some:
        for part in one.parts or (one,):
            kinds.setdefault(part.key, []).append(part)
    parts = sorted(map(_alike, kinds.values()), key=lambda one: (-sum(one.causes.values()), one.first))
    return _alike(some, parts=tuple(parts), key=(), reduces=all(one.reduces for one in parts))
