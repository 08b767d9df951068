"""Bruck's all_to_all: few messages of many blocks, which are passed on.

Blocks on their way wait in scratch, after each round in places of its own: between two messages of different rounds
into one place there is nothing that makes the second wait for the first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collsim.algorithms.common import at_least_one, refuse_rows
from collsim.algorithms.registry import algorithm
from collsim.collective import Collective
from collsim.errors import AlgorithmError
from collsim.schedule import Block, Repeat, Schedule
from collsim.schedule.block import INPUT, OUTPUT, SCRATCH
from collsim.schedule.model import ChunkLists

__all__ = ["bruck_all_to_all"]

Array = npt.NDArray[Any]


@algorithm("all_to_all", "bruck")
def bruck_all_to_all(ranks: int, *, radix: int = 2) -> Schedule:
    """Few messages of many blocks: in round k a block goes as far as digit k of its distance says.

    With weight ``w = radix^k`` rank r sends to ``r + d w``, for each digit d, all blocks whose remaining way has the
    digit d: those at slots j with ``j // w % radix == d``, where slot j at first holds the block for r+j. They land in
    the same slot; at the end slot j holds the block of r-j. With radix 2 there are ``L = ceil(log2 N)`` rounds of about
    N/2 blocks: ``L alpha + (sum of 1-bits of all j < N) S/(N B)``. Packing and unpacking within a rank is free here.
    (Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all communications in multiport
    message-passing systems", 1997.)

    Parameters
    ----------
    ranks
        Any number from 1.
    radix
        Base of the digits, at least 2: a rank sends up to radix-1 messages side by side in each of
        ``ceil(log_radix N)`` rounds. From N on it is one round, in which every block goes straight to its rank.

    Examples
    --------
    >>> print(bruck_all_to_all(3))
    all_to_all ranks=3 chunks=3 scratch=6 in_place=no
    algorithm bruck {"radix": 2}
    repeat 1
      step 0
        0 -> 0  i{0} > {0}
        1 -> 1  i{1} > {1}
        2 -> 2  i{2} > {2}
        0 -> 0  i{2} > s{2}
        1 -> 1  i{0} > s{2}
        2 -> 2  i{1} > s{2}
        0 -> 1  i{1} > s{4}
        1 -> 2  i{2} > s{4}
        2 -> 0  i{0} > s{4}
      step 1
        0 -> 0  s{4} > {2}
        1 -> 1  s{4} > {0}
        2 -> 2  s{4} > {1}
        0 -> 2  s{2} > {0}
        1 -> 0  s{2} > {1}
        2 -> 1  s{2} > {2}
    """
    at_least_one(radix=radix)
    if radix < 2:
        raise AlgorithmError(f"radix: bruck takes at least 2, got {radix}")
    radix = min(radix, max(ranks, 2))  # from N on all is one round
    refuse_rows(ranks * ranks)  # in the first round or later each rank passes on a block for each other one
    weights = [1]
    while weights[-1] * radix < ranks:
        weights.append(weights[-1] * radix)
    last = len(weights) - 1
    slots = np.arange(ranks)
    digits = [slots // w % radix for w in weights]
    # where in scratch a slot waits: region k + 1 after round k, region 0 before its first
    waits = slots
    moves = [_Move(0, 0, slots[:1])]
    if last:
        moves.append(_Move(0, 0, slots[1:][digits[0][1:] == 0], target=waits))
    for k, w in enumerate(weights):
        if k and k == last:
            moves.append(_Move(k, 0, slots[1:w], source=waits))
        lands = np.where(digits[k] > 0, (k + 1) * ranks + slots, waits)
        for d in range(1, int(digits[k].max()) + 1):
            source, target = waits if k else None, lands if k < last else None
            moves.append(_Move(k, d * w, slots[digits[k] == d], source, target))
        waits = lands
    return _passed_on(ranks, moves, scratch=ranks * (last + 1) if last else 0)


class _Move(NamedTuple):
    """What every rank r sends to r + distance in one message: the blocks of some slots.

    ``source`` and ``target`` give the place of every slot in scratch; None stands for the input and the output.
    """

    step: int
    distance: int
    slots: Array
    source: Array | None = None
    target: Array | None = None


def _passed_on(ranks: int, moves: list[_Move], scratch: int) -> Schedule:
    """Schedule of moves, made of arrays: written as lists the chunks of a thousand ranks would take minutes."""
    refuse_rows(ranks * sum(len(move.slots) for move in moves))
    rank = np.arange(ranks)
    parts: list[Array] = []
    sources, targets, lengths = [], [], [0]
    for move in moves:
        if not len(move.slots):
            continue
        dst = (rank + move.distance) % ranks
        source = (rank[:, None] + move.slots) % ranks if move.source is None else move.source[move.slots]
        target = (dst[:, None] - move.slots) % ranks if move.target is None else move.target[move.slots]
        sources.append(np.broadcast_to(source, (ranks, len(move.slots))).ravel())
        targets.append(np.broadcast_to(target, (ranks, len(move.slots))).ravel())
        lengths += [len(move.slots)] * ranks
        from_buffer, to_buffer = INPUT if move.source is None else SCRATCH, OUTPUT if move.target is None else SCRATCH
        parts.append(np.stack(np.broadcast_arrays(move.step, rank, from_buffer, dst, to_buffer)))
    step, src, src_buffer, dst, dst_buffer = np.concatenate(parts, axis=1)
    none = np.zeros(len(step), dtype=np.int64)
    block = Block(
        step, src, src_buffer, none, dst, dst_buffer, none, none + 1, none + 1, none > 0, none,
        ChunkLists(np.cumsum(lengths), np.concatenate(sources), np.concatenate(targets)),
    )  # fmt: skip
    return Schedule(Collective("all_to_all", ranks), ranks, (Repeat(block),), scratch=scratch, in_place=False)
