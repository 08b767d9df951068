"""What butterflies share: in each step the ranks meet in pairs, and what a pair has in common doubles or halves.

A butterfly is given by its peers: one array a level, ``peer[rank]``, each its own inverse. The first level is the one
that splits the vector in halves; the last one is where two single blocks meet. Blocks are numbered so that what a rank
sends is always a range of chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.algorithms.common import refuse_rows
from collsim.algorithms.derive import lists_of
from collsim.collective import Collective
from collsim.errors import AlgorithmError, did_you_mean, shown
from collsim.schedule import Block, Edge, Repeat, Schedule, ScheduleBuilder
from collsim.schedule.block import COLUMNS, OUTPUT, ChunkLists

__all__ = ["all_gather", "all_reduce", "choice", "folded", "refuse_other_than_powers", "side_by_side", "xor_peers"]

Array = npt.NDArray[Any]
Peers = Sequence[Array]

NO_CHUNKS = np.zeros(0, dtype=np.int64)
FOLDS = ("full", "split")


def choice(name: str, value: object, known: Sequence[str]) -> None:
    """Refuse a word that is not one of those known."""
    if not isinstance(value, str) or value not in known:
        hint = did_you_mean(value, known) if isinstance(value, str) else ""
        raise AlgorithmError(f"{name}: expected {' or '.join(map(repr, known))}, got {shown(value)}{hint}")


def refuse_other_than_powers(ranks: int, what: str, instead: str) -> None:
    """Refuse numbers of ranks that are no powers of two."""
    if ranks & (ranks - 1):
        raise AlgorithmError(f"ranks: {what} takes a power of two, got {ranks}; use {instead}")


def xor_peers(ranks: int, distance: str) -> list[Array]:
    """Peers ``r ^ 1, r ^ 2, r ^ 4, ...`` of a power of two, nearest first (doubling) or farthest first (halving)."""
    refuse_rows(ranks * (ranks - 1).bit_length())
    near = [np.arange(ranks) ^ (1 << level) for level in range((ranks - 1).bit_length())]
    return near if distance == "doubling" else near[::-1]


def _windows(ranks: int, peers: Peers, halvings: int) -> tuple[Array, list[tuple[Array, Array, int]]]:
    """Find numbers for the chunks, and what moves while windows double.

    Returns
    -------
    code, stages
        Chunk that each rank is left with after so many halvings; for each doubling (peer, first chunk, number of
        chunks) of what each rank sends.

    Notes
    -----
    Whoever can be reached over the levels from some level on shares one window there. A window is known by its least
    rank; of the two halves, the one with that rank is the lower one.
    """
    least, code = np.arange(ranks), np.zeros(ranks, dtype=np.int64)
    for level in reversed(range(len(peers))):
        joined = np.minimum(least, least[peers[level]])
        if level < halvings:
            code += (least != joined).astype(np.int64) << (halvings - 1 - level)
        least = joined
    stages = []
    for level in reversed(range(halvings)):
        width = 1 << (halvings - 1 - level)
        stages.append((peers[level], code & -width, width))
    return code, stages


def all_gather(ranks: int, lanes: Sequence[Peers]) -> Schedule:
    """Gather over the levels of butterflies, last level first: each rank sends its peer all that the peer lacks.

    Parameters
    ----------
    ranks
        Where it is not two to the power of the number of levels, blocks that would arrive twice are left out.
    lanes
        Butterflies that run side by side, each with its share of every block.

    Notes
    -----
    Chunks are numbered so that each message is a range, if whoever shares a window on some level shares it with all
    others that do. If not, messages list their chunks.
    """
    rank = np.arange(ranks)
    cuts = len(lanes)
    refuse_rows(ranks * sum(map(len, lanes)))
    built = [_windows(ranks, peers, len(peers)) for peers in lanes]
    if any(1 << len(peers) != ranks for peers in lanes) or any(len(np.unique(code)) < ranks for code, _ in built):
        return _irregular_all_gather(ranks, lanes)
    order = np.zeros(cuts * ranks, dtype=np.int64)
    for lane, (code, _) in enumerate(built):
        order[lane * ranks + code] = rank * cuts + lane
    b = ScheduleBuilder(Collective("all_gather", ranks), cuts * ranks, order=order.tolist())
    for lane, (_, stages) in enumerate(built):
        for step, (peer, first, count) in enumerate(stages):
            b.copy(rank, peer, lane * ranks + first, count=count, step=step, channel=lane)
    return b.build()


def _irregular_all_gather(ranks: int, lanes: Sequence[Peers]) -> Schedule:
    refuse_rows(ranks * ranks * len(lanes))
    columns: list[Array] = []
    lists: list[Array] = []
    for lane, peers in enumerate(lanes):
        held = np.eye(ranks, dtype=bool)
        for step, peer in enumerate(reversed(peers)):
            missing = held & ~held[peer]  # what the peer has got already does not come again
            src, chunk = np.nonzero(missing)
            sender, count = np.unique(src, return_counts=True)
            columns.append(np.array(np.broadcast_arrays(step, lane, sender, peer[sender], count)))
            lists.append(lane * ranks + chunk)
            held |= held[peer]
    table = np.concatenate(columns, axis=1)
    row = np.argsort(table[0], kind="stable")
    chunk, offsets = np.concatenate(lists), np.concatenate(([0], np.cumsum(table[4])))
    step, lane, src, dst = table[:4, row]
    sets = lists_of(ChunkLists(offsets, chunk, chunk), row)
    zero, one, buffer = np.zeros_like(step), np.ones_like(step), np.full_like(step, OUTPUT)
    block = Block(step, src, buffer, zero, dst, buffer, zero, one, one, zero > 0, lane, sets)
    lane_, rank = np.divmod(np.arange(ranks * len(lanes)), ranks)
    order = tuple((rank * len(lanes) + lane_).tolist())
    return Schedule(Collective("all_gather", ranks), ranks * len(lanes), (Repeat(block),), order=order)


def all_reduce(ranks: int, lanes: Sequence[Peers], halvings: int) -> Schedule:
    """Halve the vector over the first levels, exchange what is left over the others, and double again.

    Parameters
    ----------
    ranks
        Two to the power of the number of levels.
    lanes
        Butterflies that run side by side, each with its share of the vector.
    halvings
        Levels that halve; 0: the whole vector is exchanged on every level.
    """
    rank, width = np.arange(ranks), 1 << halvings
    refuse_rows(2 * ranks * sum(map(len, lanes)))
    b = ScheduleBuilder(Collective("all_reduce", ranks), width * len(lanes))
    for lane, peers in enumerate(lanes):
        code, stages = _windows(ranks, peers, halvings)
        step = 0
        for peer, first, count in reversed(stages):  # the doublings turned round
            b.reduce(rank, peer, lane * width + first[peer], count=count, step=step, channel=lane)
            step += 1
        for peer in peers[halvings:]:
            b.reduce(rank, peer, lane * width + code, step=step, channel=lane)
            step += 1
        for peer, first, count in stages:
            b.copy(rank, peer, lane * width + first, count=count, step=step, channel=lane)
            step += 1
    return b.build()


def folded(ranks: int, make: Callable[[int], Schedule], fold: str) -> Schedule:
    """Run an all_reduce of a power of two on any number of ranks: some ranks hand their data to a neighbour.

    Of the first ``2 (N - p)`` ranks, p the greatest power of two up to N, every other one sits the core out and gets
    the result at the end.

    Parameters
    ----------
    ranks
        Number of ranks.
    make
        Makes the core for so many ranks.
    fold
        ``"full"``: the even ones hand all to the odd ones; ``"split"``: both add up half, and the odd ones hand their
        half over.
    """
    choice("fold", fold, FOLDS)
    power = 1 << (ranks.bit_length() - 1)
    rest = ranks - power
    core = make(power)
    if not rest:
        return core
    chunks = core.chunks
    b = ScheduleBuilder(Collective("all_reduce", ranks), chunks)
    even, odd = 2 * np.arange(rest), 2 * np.arange(rest) + 1
    stays, leaves = (odd, even) if fold == "full" else (even, odd)
    if fold == "full":
        b.reduce(even, odd, 0, count=chunks)
    elif chunks < 2:
        raise AlgorithmError("fold: 'split' adds up halves, expected at least one halving; use fold='full'")
    else:
        half = chunks // 2
        b.reduce(odd, even, 0, count=half)
        b.reduce(even, odd, half, count=half)
        b.copy(odd, even, half, count=half, step=1)
    before = b.build()
    name = np.concatenate((stays, np.arange(2 * rest, ranks)))
    middle = tuple(
        replace(phase, block=replace(phase.block, src=name[phase.block.src], dst=name[phase.block.dst]))
        for phase in core.phases
    )
    b = ScheduleBuilder(Collective("all_reduce", ranks), chunks)
    b.copy(stays, leaves, 0, count=chunks)
    edges = _after_the_fold(middle, stays, chunks) if fold == "split" else []
    return replace(before, phases=before.phases + middle + b.build().phases, edges=tuple(edges))


def _after_the_fold(core: Sequence[Repeat], stays: Array, chunks: int) -> list[Edge]:
    """Let additions to the half that a rank gets back wait for it: nothing that is sent leads from one to the other."""
    edges = []
    for number, phase in enumerate(core, start=1):
        block = phase.block
        if block.lists is None:
            last = block.dst_chunk + block.count - 1
        else:
            last = np.maximum.reduceat(block.lists.dst, block.lists.offsets[:-1])
        pair = np.searchsorted(stays, block.dst)
        pair[pair == len(stays)] = 0
        late = block.reduce & (last >= chunks // 2) & (stays[pair] == block.dst)
        # in the phase before all others, the rows behind those that add up halves
        edges += [Edge(number, int(row), 0, 2 * len(stays) + int(pair[row]), number) for row in np.flatnonzero(late)]
    return edges


def side_by_side(first: Schedule, second: Schedule) -> Schedule:
    """Run two schedules of one block each at once, step by step, on the chunks of the first."""
    blocks = [phase.block for schedule in (first, second) for phase in schedule.phases]
    columns = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in COLUMNS}
    lists = [block.lists or ChunkLists(np.zeros(len(block) + 1, int), NO_CHUNKS, NO_CHUNKS) for block in blocks]
    lengths = np.concatenate([np.diff(part.offsets) for part in lists])
    src, dst = (np.concatenate([getattr(part, side) for part in lists]) for side in ("src", "dst"))
    joined = ChunkLists(np.concatenate(([0], np.cumsum(lengths))), src, dst)
    row = np.lexsort((columns["src"], columns["step"]))
    block = Block(**{name: column[row] for name, column in columns.items()}, lists=lists_of(joined, row))
    return replace(first, phases=(Repeat(block),))
