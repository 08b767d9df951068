"""Proof before time: that a schedule implements its collective.

The schedule is run on random 64-bit integers modulo 2^64, step by step, without writing out its repeats. A wrong,
missing or doubled contribution goes unnoticed with a probability of about 2^-64 a place. A failure is explained by
counting the contributors of the failing chunk. Beyond the data the proof covers reads of what was never written, writes
that nothing orders, cycles of written edges, and transfers whose data nobody uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import ScheduleError
from collsim.schedule.block import Block
from collsim.schedule.chains import Visits
from collsim.schedule.cycles import refuse_cycles
from collsim.schedule.expand import select
from collsim.schedule.explain import explain, explain_barrier, explain_read, explain_reduce
from collsim.schedule.model import INPUT, OUTPUT, Schedule, refuse_other
from collsim.schedule.moves import Moves, Places, all_moves, moves_of
from collsim.schedule.order import refuse_unordered

__all__ = ["FULL_COST", "SAMPLE", "Proof", "check"]

Array = npt.NDArray[Any]
Steps = Callable[[bool], Iterable[Moves]]

FULL_COST = 40_000_000
"""Up to this many chunk moves a schedule is proven whole (a few seconds); above, on a sample of chunks."""
LONG = 1000
"""Moves of a chunk that are followed in chains, at the least."""
SAMPLE = 64
"""Chunks of a sample, at the most."""
MOST_VISITS = 100_000
"""Visits of one row to one chunk that are followed: a repeat of more only writes over what is there already."""
MOST_WORK = 2_000_000_000
"""Chunk moves that are followed, with 100 for each step: some minutes."""
MOST_ENTRIES = 1 << 26
"""Chunks that the rows of one block move in one run: some gigabytes once they are written out."""
MOST_PLACES = 1 << 28
"""Places (rank, chunk) of a proof: two gigabytes of integers."""
BATCH = 1 << 25
"""Places (rank, chunk) held at once: 256 MiB of integers."""


@dataclass(frozen=True)
class Proof:
    """What was proven of a schedule.

    Attributes
    ----------
    chunks, checked
        Chunks of the schedule, and how many of them were followed.
    moves
        Chunk moves that were executed.
    unused
        Transfers whose data nobody uses, as text (at most ten are listed).
    warnings
        What the proof could not cover.
    """

    chunks: int
    checked: int
    moves: int
    unused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every chunk was followed."""
        return self.checked == self.chunks

    def __str__(self) -> str:
        if self.complete:
            text = f"checked: all {self.chunks:,} chunks"
        else:
            text = f"checked: {self.checked:,} of {self.chunks:,} chunks"
        return "; ".join([text, *self.unused, *self.warnings])


def check(schedule: Schedule, *, full_cost: int = FULL_COST, seed: int = 0) -> Proof:
    """Prove that a schedule implements its collective.

    Parameters
    ----------
    schedule
        What to prove.
    full_cost
        Chunk moves up to which all chunks are followed; above it a sample of at most `SAMPLE` chunks, drawn with the
        seed (only schedules that keep each chunk in its place can be sampled; others are always proven whole).
    seed
        Seed of the random data and of the sample.

    Returns
    -------
    Proof
        What was covered.

    Raises
    ------
    ProofError
        Naming rank, chunk and step of what is wrong.
    ScheduleError
        If a proof would take more than `MOST_VISITS`, `MOST_ENTRIES`, `MOST_WORK` or `MOST_PLACES`.

    Examples
    --------
    >>> from collsim.algorithms import ring_all_reduce
    >>> print(check(ring_all_reduce(8)))
    checked: all 8 chunks

    The classic mistake, offsets of two variants mixed up:

    >>> import numpy as np
    >>> from collsim import Collective, ScheduleBuilder
    >>> b = ScheduleBuilder(Collective("all_reduce", 3), chunks=3)
    >>> r = np.arange(3)
    >>> with b.repeat(2, shift=-1):
    ...     b.reduce(r, (r + 1) % 3, (r - 1) % 3)
    >>> with b.repeat(2, shift=-1):
    ...     b.copy(r, (r + 1) % 3, (r + 1) % 3)
    >>> check(b.build())
    Traceback (most recent call last):
    collsim.errors.ProofError: rank 0, chunk 0: contribution of rank 0 is missing; last written by step 2, 2 -> 0; ...
    """
    refuse_other(schedule)
    moves = sum(phase.times * _entries(phase.block) for phase in schedule.phases)
    _refuse_rows(schedule)
    if schedule.collective.operation == "barrier":
        # Python's sets: slower and larger than arrays by far
        held = schedule.endpoints * (2 * schedule.chunks + schedule.scratch)
        _refuse_work(schedule, moves, held, MOST_WORK // 16, MOST_PLACES // 64)
        refuse_cycles(schedule)
        explain_barrier(schedule)
        return Proof(schedule.chunks, schedule.chunks, moves)
    # a chunk that keeps its place from the input of one rank to the output of another can be followed alone
    alone = schedule.collective.operation != "all_to_all" and all(p.block.is_aligned for p in schedule.phases)
    rng = np.random.default_rng(seed)
    most_work = max(MOST_WORK, full_cost)  # who asks for more gets it
    everything = np.arange(schedule.chunks)
    places = Places(schedule, everything)
    if not alone or (moves <= full_cost and places.size <= BATCH):
        _refuse_work(schedule, moves, places.size, most_work, MOST_PLACES)
        refuse_cycles(schedule)
        return _prove(places, partial(all_moves, schedule, places), rng, moves)
    per_chunk = max(1, moves // schedule.chunks)
    chosen = everything
    if moves > full_cost:
        # all entries are looked at once for each chunk, ten times as fast as they are followed
        looks = 10 * full_cost // sum(_entries(phase.block) for phase in schedule.phases)
        number = max(1, min(SAMPLE, full_cost // 4 // per_chunk, looks, schedule.chunks))
        chosen = np.sort(rng.choice(schedule.chunks, number, replace=False))
    at_once = max(1, min(BATCH // (schedule.endpoints * 3), full_cost // 4 // per_chunk))
    # what a chunk does one move after the other is followed chunk by chunk, not step by step
    visits = Visits(schedule) if per_chunk >= LONG and per_chunk <= 2 * schedule.steps else None
    if visits is not None:
        at_once = 1
    _refuse_work(schedule, per_chunk * len(chosen), Places(schedule, chosen[:at_once]).size, most_work, MOST_PLACES)
    refuse_cycles(schedule)
    proofs = []
    for lo in range(0, len(chosen), at_once):
        places = Places(schedule, chosen[lo : lo + at_once])
        if visits is not None:
            moves_now = visits.of(int(chosen[lo]), places)
            proofs.append(_prove(places, partial(_in_turn, moves_now), rng, sum(len(m.src) for m in moves_now)))
        else:
            found = select(schedule, places.chunks)
            proofs.append(_prove(places, partial(moves_of, found, places), rng, len(found)))
    return Proof(
        schedule.chunks,
        len(chosen),
        sum(proof.moves for proof in proofs),
        tuple(dict.fromkeys(text for proof in proofs for text in proof.unused))[:10],
        tuple(dict.fromkeys(text for proof in proofs for text in proof.warnings)),
    )


def _refuse_rows(schedule: Schedule) -> None:
    """Refuse rows that move more chunks than can be written out, or that come back to one chunk again and again."""
    for number, phase in enumerate(schedule.phases):
        if _entries(phase.block) > MOST_ENTRIES:
            raise ScheduleError(
                f"phase {number}: its rows move {_entries(phase.block):,} chunks in one run, at most {MOST_ENTRIES:,} "
                "are followed; expected fewer rows or chunks"
            )
        if phase.times <= MOST_VISITS or not len(phase.block):
            continue
        window = np.asarray(phase.window, dtype=np.int64)
        window = np.where(window == 0, schedule.chunks, window)
        period = int((window // np.gcd(np.asarray(phase.shift, dtype=np.int64), window)).min())
        if phase.times > MOST_VISITS * period:
            raise ScheduleError(
                f"phase {number}: a row visits one chunk {-(-phase.times // period):,} times, at most {MOST_VISITS:,} "
                f"are followed; expected fewer repeats than {phase.times:,}, or a shift that visits more chunks"
            )


def _refuse_work(schedule: Schedule, moves: int, places: int, most_work: int, most_places: int) -> None:
    """Refuse a proof that would not end within minutes, or that memory is unlikely to hold, before it begins."""
    steps = min(moves, sum(phase.times * _steps(phase.block) for phase in schedule.phases))
    if moves + 100 * steps > most_work:
        raise ScheduleError(
            f"schedule: the proof would follow {moves:,} chunk moves in {steps:,} steps, at most {most_work:,} with "
            "100 for each step are followed; expected fewer repeats, steps or chunks (or simulate with check=False)"
        )
    if places > most_places:
        raise ScheduleError(
            f"schedule: the proof would hold {places:,} chunks of all ranks at once, at most {most_places:,} are held; "
            "expected fewer chunks, scratch chunks or ranks (or simulate with check=False)"
        )


def _steps(block: Block) -> int:
    """Count the steps of a block that have transfers."""
    return int(np.count_nonzero(np.diff(block.step))) + 1 if len(block) else 0


def _entries(block: Block) -> int:
    if block.lists is None:
        return int(block.count.sum())
    listed = np.diff(block.lists.offsets)
    return int(np.where(listed > 0, listed, block.count).sum())


def _in_turn(moves: list[Moves], backwards: bool) -> list[Moves]:
    return moves[::-1] if backwards else moves


def _prove(places: Places, steps: Steps, rng: np.random.Generator, moves: int) -> Proof:
    schedule, chunks = places.schedule, places.chunks
    c = schedule.collective
    # filled, not np.zeros: memory that is filled gets huge pages, and the accesses are far apart
    values, flags = np.full(places.size, 0, dtype=np.uint64), np.full(places.size, 0, dtype=np.uint8)
    rank, place = np.arange(schedule.ranks)[:, None], schedule.place_of(chunks)[None, :]
    has = c.provides(rank, place, schedule.chunks)
    data = rng.integers(0, 2**64, size=(schedule.ranks, len(chunks)), dtype=np.uint64)
    data *= has
    places.view(values, INPUT)[...] = data
    places.view(flags, INPUT)[...] = has * WRITTEN
    total = data.sum(axis=0, dtype=np.uint64) if c.reduces else None
    run = _Run(places, values, flags, total)
    for moves_now in steps(False):
        run.step(moves_now)
    # the postcondition
    must = c.requires(rank, place, schedule.chunks)
    if total is not None:
        expected = total
    else:
        from_rank, from_place = c.source(rank, place, schedule.chunks)
        if len(chunks) == schedule.chunks:
            by_place = np.empty_like(data)
            by_place[:, place[0]] = data
            expected = by_place[from_rank, from_place]
        else:  # followed alone, so it comes from the same place of another rank
            expected = np.take_along_axis(data, from_rank, axis=0)
    wrong = must & (places.view(values, OUTPUT) != expected)  # what was never written is 0
    if wrong.any():
        # a place that some step wrote says more than one that nothing reached
        touched = wrong & (places.view(flags, OUTPUT) & (REDUCED | COPIED) > 0)
        bad_rank, bad_chunk = np.unravel_index(int(np.argmax(touched if touched.any() else wrong)), wrong.shape)
        explain(schedule, int(bad_rank), int(chunks[bad_chunk]), places_wrong=int(wrong.sum()))
    warnings = refuse_unordered(schedule, run.doubtful)
    return Proof(schedule.chunks, len(chunks), moves, _unused(places, must, steps), warnings)


# what is known of a place, since the last copy into it (or the start)
WRITTEN, READ, REDUCED, LATE, COPIED = 1, 2, 4, 8, 16  # LATE: reduced into after it was read


class _Run:
    """Executes steps on integers and watches for reads of nothing and for writes whose order is in doubt."""

    def __init__(self, places: Places, values: Array, flags: Array, total: Array | None) -> None:
        self.places, self.values, self.flags, self.total = places, values, flags, total
        self.doubtful: set[int] = set()

    def step(self, m: Moves) -> None:
        if m.chain:
            self.chain(m)
            return
        known = self.flags[m.src]
        if not (known & WRITTEN).all():
            explain_read(self.places.schedule, m.transfers(), int(np.argmin(known & WRITTEN)))
        data = self.values[m.src]
        self.flags[m.src] = known | READ
        once = m.distinct or self.all_differ(m.dst)
        if m.kind is not None:
            (self.reduce if m.kind else self.copy)(m, m.dst, data, once, slice(None))
        elif once or not self.both(m.dst[~m.reduce], m.dst[m.reduce]):
            for some, put in ((~m.reduce, self.copy), (m.reduce, self.reduce)):
                put(m, m.dst[some], data[some], once, np.flatnonzero(some))
        else:  # both a copy and a reduction of one place: as written, one after the other
            self.doubtful.update(self.places.chunk(m.dst).tolist())
            for i, adds in enumerate(m.reduce.tolist()):
                (self.reduce if adds else self.copy)(m, m.dst[i : i + 1], data[i : i + 1], True, np.array([i]))

    def chain(self, m: Moves) -> None:
        """Do a chain at once: each move but the first reads what the one before it has left."""
        first = m.src[:1]
        if not self.flags[first[0]] & WRITTEN:
            explain_read(self.places.schedule, m.transfers(), 0)
        self.flags[first] |= READ
        start = self.values[first]
        if m.kind:
            data = np.cumsum(np.concatenate([start, self.values[m.dst[:-1]]]), dtype=np.uint64)
            self.reduce(m, m.dst, data, True, slice(None))
        else:
            self.copy(m, m.dst, np.broadcast_to(start, m.dst.shape), True, slice(None))
        self.flags[m.dst[:-1]] |= READ

    def all_differ(self, dst: Array) -> bool:
        order = np.arange(len(dst), dtype=np.int32)
        self.mark[dst] = order
        return bool((self.mark[dst] == order).all())

    def both(self, copied: Array, added: Array) -> bool:
        """Whether a place is copied into and added to."""
        self.mark[copied], self.mark[added] = 0, 1
        return bool(self.mark[copied].any())

    @cached_property
    def mark(self) -> Array:
        return np.zeros(self.places.size, dtype=np.int32)

    def reduce(self, m: Moves, dst: Array, data: Array, once: bool, entries: Any) -> None:
        known = self.flags[dst]
        if not (known & WRITTEN).all():
            # a switch starts from the identity
            bad = (known & WRITTEN == 0) & (self.places.end(dst) < self.places.schedule.ranks)
            if bad.any():
                explain_reduce(self.places.schedule, m.transfers(), int(np.arange(len(m.dst))[entries][np.argmax(bad)]))
        if once:
            self.values[dst] += data
        else:
            np.add.at(self.values, dst, data)
        again = known & COPIED
        if again.any():
            self.doubtful.update(self.places.chunk(dst[again > 0]).tolist())
        self.flags[dst] = known | (WRITTEN | REDUCED) | ((known & READ) << 2)

    def copy(self, m: Moves, dst: Array, data: Array, once: bool, entries: Any) -> None:
        if not once:
            self.doubtful.update(self.places.chunk(dst).tolist())
        known = self.flags[dst] & (REDUCED | LATE | COPIED)
        if known.any():
            # A copy over reductions is ordered after them if it brings the full sum: the rank's own contribution is in
            # it, and left the place only by reads that waited for the reductions (none came after a read).
            sure = known == REDUCED
            if self.total is None:
                sure[:] = False
            else:
                inside = dst % self.places.per_end
                is_data = inside < self.places.m
                sure &= is_data & (data == self.total[np.where(is_data, inside, 0)])
            doubt = (known > 0) & ~sure
            if doubt.any():
                self.doubtful.update(self.places.chunk(dst[doubt]).tolist())
        self.values[dst] = data
        self.flags[dst] = WRITTEN | COPIED


def _unused(places: Places, must: Array, steps: Steps) -> tuple[str, ...]:
    """Transfers whose data reaches no result: followed backwards from the results."""
    need = np.full(places.size, False)
    places.view(need, OUTPUT)[...] = must
    whole = places.m == places.schedule.chunks
    texts: list[str] = []
    number = 0
    for m in steps(True):
        used = need[m.dst]
        if m.chain:  # what a later move of it needs comes by the earlier ones
            used = np.logical_or.accumulate(used[::-1])[::-1]
            need[m.dst] = used
        if m.kind is not True:
            need[m.dst if m.kind is False else m.dst[~m.reduce]] = False
        if used.all():
            need[m.src[:1] if m.chain else m.src] = True
            continue
        need[m.src[:1][used[:1]] if m.chain else m.src[used]] = True
        rows = np.flatnonzero(~np.logical_or.reduceat(used, m.ptr[:-1]))
        number += len(rows)
        if len(texts) < 9:
            t = m.transfers()
            for row in (rows[::-1] if m.chain else rows)[: 9 - len(texts)].tolist():
                what = "what" if whole else f"chunk {t.dst_chunks[row]} that"
                arrow = "=>" if t.reduce[row] else "->"
                texts.append(f"nobody uses {what} step {t.step[row]}, {t.src[row]} {arrow} {t.dst[row]} moves")
    if number > len(texts):
        texts.append(f"nobody uses {number - len(texts)} more transfers")
    return tuple(texts)
