"""Explain a failed proof in words: who contributed to the chunk that is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NoReturn

import numpy as np

from collsim.errors import ProofError
from collsim.schedule.dependencies import locations
from collsim.schedule.expand import iter_steps, select, steps_of
from collsim.schedule.model import BUFFERS, INPUT, OUTPUT, SCRATCH, Schedule, Transfers

__all__ = ["end_name", "explain", "explain_barrier", "explain_read", "explain_reduce", "transfer_name"]

Key = tuple[int, int, int]  # endpoint, buffer, chunk


def end_name(schedule: Schedule, end: int) -> str:
    """Name of an endpoint: ``rank 3``, or ``switch sw0``."""
    return f"rank {end}" if end < schedule.ranks else f"switch {schedule.places[end - schedule.ranks]}"


def transfer_name(t: Transfers, i: int) -> str:
    """Name of a transfer: ``step 4, 0 => 1``."""
    return f"step {t.step[i]}, {t.src[i]} {'=>' if t.reduce[i] else '->'} {t.dst[i]}"


def explain_read(schedule: Schedule, t: Transfers, entry: int) -> NoReturn:
    """Raise for a transfer that reads what was never written."""
    row = int(np.searchsorted(t.ptr, entry, side="right")) - 1
    _nothing(schedule, t, row, "reads", int(t.src[row]), int(t.src_buffer[row]), int(t.src_chunks[entry]))


def explain_reduce(schedule: Schedule, t: Transfers, entry: int) -> NoReturn:
    """Raise for a transfer that adds to what was never written."""
    row = int(np.searchsorted(t.ptr, entry, side="right")) - 1
    _nothing(schedule, t, row, "adds to", int(t.dst[row]), int(t.dst_buffer[row]), int(t.dst_chunks[entry]))


def _nothing(schedule: Schedule, t: Transfers, row: int, does: str, end: int, buffer: int, chunk: int) -> NoReturn:
    it = f"{does} it" if schedule.in_place and buffer != SCRATCH else f"{does} it in its {BUFFERS[buffer]}"
    raise ProofError(
        f"{end_name(schedule, end)}, chunk {chunk}: {transfer_name(t, row)} {it} before anything was written there",
        rank=end,
        chunk=chunk,
        step=int(t.step[row]),
    )


def explain_barrier(schedule: Schedule) -> None:
    """Raise if a rank leaves the barrier without having heard of every rank."""
    ranks, chunks = np.indices((schedule.ranks, schedule.chunks))
    own, output = (locations(schedule, ranks, np.full_like(ranks, buffer), chunks) for buffer in (INPUT, OUTPUT))
    # sets of ranks are numbers with a bit a rank
    heard = {place: 1 << rank for rank, places in enumerate(own.tolist()) for place in places}
    for _, t in iter_steps(schedule):
        owner = np.repeat(np.arange(len(t)), np.diff(t.ptr))
        src = locations(schedule, t.src[owner], t.src_buffer[owner], t.src_chunks).tolist()
        dst = locations(schedule, t.dst[owner], t.dst_buffer[owner], t.dst_chunks).tolist()
        news = [heard.get(place, 0) for place in src]
        for place, reduces, new in zip(dst, t.reduce[owner].tolist(), news, strict=True):
            heard[place] = new | (heard.get(place, 0) if reduces else 0)
    for rank, places in enumerate(output.tolist()):
        known = 1 << rank
        for place in places:
            known |= heard.get(place, 0)
        silent = ~known & ((1 << schedule.ranks) - 1)
        if silent:
            first = (silent & -silent).bit_length() - 1
            raise ProofError(f"rank {rank} leaves the barrier without having heard of rank {first}", rank=rank)


def explain(schedule: Schedule, rank: int, chunk: int, *, places_wrong: int = 1) -> NoReturn:
    """Count the contributors of a chunk and raise a `ProofError` that tells what is missing or counted twice."""
    c = schedule.collective
    aligned = all(phase.block.is_aligned for phase in schedule.phases)
    steps = steps_of(select(schedule, np.array([chunk]))) if aligned else iter_steps(schedule)
    contents, writer = _count(schedule, steps)
    held = contents[contents.key(rank, OUTPUT, chunk)]
    step, last = None, "it is as it was at the start" if held else "nothing was ever written there"
    if contents.key(rank, OUTPUT, chunk) in writer:
        step, text = writer[contents.key(rank, OUTPUT, chunk)]
        last = f"last written by {text}"
    if c.reduces:
        expected = Counter({(r, chunk): 1 for r in range(c.ranks)})
    else:
        place = np.array(schedule.place_of(np.array(chunk)))
        source, source_place = (int(a) for a in c.source(np.array(rank), place, schedule.chunks))
        order = schedule.order
        expected = Counter({(source, source_place if order is None else order.index(source_place)): 1})
    what = _difference(c.reduces, expected, held, chunk)
    more = f"; {places_wrong} places are wrong" if places_wrong > 1 else ""
    raise ProofError(f"rank {rank}, chunk {chunk}: {what}; {last}{more}", rank=rank, chunk=chunk, step=step)


Contributions = Counter[tuple[int, int]]  # how often the chunk of a rank is in a sum


class _Contents(dict[Key, Contributions]):
    """What places hold; what was never written holds what it held at the start."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self.schedule = schedule

    def key(self, end: int, buffer: int, chunk: int) -> Key:
        aliased = buffer == INPUT and self.schedule.in_place
        return (int(end), OUTPUT if aliased else int(buffer), int(chunk))

    def __missing__(self, key: Key) -> Contributions:
        (end, buffer, chunk), s = key, self.schedule
        start = OUTPUT if s.in_place else INPUT
        if buffer != start or end >= s.ranks:
            return Counter()
        place = np.array(s.place_of(np.array(chunk)))
        provided = bool(s.collective.provides(np.array(end), place, s.chunks))
        return Counter({(end, chunk): 1} if provided else {})


def _difference(reduces: bool, expected: Contributions, held: Contributions, chunk: int) -> str:
    if not reduces:
        (who, which) = next(iter(expected))
        if not held:
            return f"chunk {which} of rank {who} is missing"
        got = ", ".join(
            f"chunk {k[1]} of rank {k[0]}" + (f" {n} times" if n > 1 else "") for k, n in sorted(held.items())[:4]
        )
        return f"expected chunk {which} of rank {who}, got {got}"
    foreign = sorted(key for key in held if key not in expected)
    if foreign:
        return f"holds chunk {foreign[0][1]} of rank {foreign[0][0]} instead of chunk {chunk}"
    double = sorted(key for key, n in held.items() if n > 1)
    missing = sorted(key[0] for key in expected if key not in held)
    parts = []
    if missing:
        names = ", ".join(map(str, missing[:6])) + (", ..." if len(missing) > 6 else "")
        many = len(missing) > 1
        parts.append(f"contribution{'s of ranks' if many else ' of rank'} {names} {'are' if many else 'is'} missing")
    if double:
        parts.append(f"contribution of rank {double[0][0]} counts {held[double[0]]} times")
    return " and ".join(parts) or "is wrong"


def _count(schedule: Schedule, steps: Iterable[tuple[int, Transfers]]) -> tuple[_Contents, dict[Key, tuple[int, str]]]:
    """Run steps on multisets of contributions; also who wrote each place last."""
    contents = _Contents(schedule)
    writer: dict[Key, tuple[int, str]] = {}
    for step, t in steps:
        owner = np.repeat(np.arange(len(t)), np.diff(t.ptr)).tolist()
        moved = [
            contents[contents.key(t.src[row], t.src_buffer[row], t.src_chunks[entry])]
            for entry, row in enumerate(owner)
        ]
        for entry, row in enumerate(owner):
            key = contents.key(t.dst[row], t.dst_buffer[row], t.dst_chunks[entry])
            # counters are never changed in place
            contents[key] = contents[key] + moved[entry] if t.reduce[row] else moved[entry]
            writer[key] = (step, transfer_name(t, row))
    return contents, writer
