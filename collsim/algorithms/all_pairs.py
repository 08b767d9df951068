"""All-pairs (direct) algorithms: every rank sends to every other one at once.

Few hops, many messages: what the kernels for small messages on NVLink do (vLLM's and TensorRT-LLM's custom all_reduce,
NCCL's symmetric kernels, MSCCL's all-pairs). Rank r sends to r+1, r+2, ... in this order, so that no two ranks start
with the same receiver. Real kernels need a barrier before (inputs are ready) and one after (buffers may be used
again); they are not part of the schedule.
"""

from __future__ import annotations

import numpy as np

from collsim.algorithms.common import refuse_rows
from collsim.algorithms.derive import reverse, then
from collsim.algorithms.registry import algorithm
from collsim.collective import Collective
from collsim.schedule import Edge, Schedule, ScheduleBuilder

__all__ = ["direct_all_gather", "direct_reduce_scatter", "one_shot_all_reduce", "two_shot_all_reduce"]


@algorithm("all_gather", "direct")
def direct_all_gather(ranks: int) -> Schedule:
    """Every rank sends its block to all others at once.

    On a crossbar with one port a rank: ``alpha + (N-1)/N S/B``; with a link for each pair: ``alpha + S/(N B)``.

    Parameters
    ----------
    ranks
        Any number from 1.

    Examples
    --------
    >>> print(direct_all_gather(3))
    all_gather ranks=3 chunks=3
    algorithm direct
    repeat 1
      step 0
        0 -> 1  0
        1 -> 2  1
        2 -> 0  2
        0 -> 2  0
        1 -> 0  1
        2 -> 1  2
    """
    refuse_rows(ranks * ranks)
    b = ScheduleBuilder(Collective("all_gather", ranks), ranks)
    number, src = (a.ravel() for a in np.indices((ranks - 1, ranks)))
    b.copy(src, (src + 1 + number) % ranks, src)
    return b.build()


@algorithm("reduce_scatter", "direct")
def direct_reduce_scatter(ranks: int) -> Schedule:
    """Every rank sends each block to its owner, which adds up: the mirror image of the all_gather.

    On a crossbar with one port a rank: ``alpha + (N-1)/N S/B``, plus ``S/N gamma`` for the last message where adding
    is quicker than receiving.

    Parameters
    ----------
    ranks
        Any number from 1.

    Examples
    --------
    >>> print(direct_reduce_scatter(3))
    reduce_scatter ranks=3 chunks=3
    algorithm direct
    repeat 1
      step 0
        0 => 2  2
        0 => 1  1
        1 => 0  0
        1 => 2  2
        2 => 1  1
        2 => 0  0
    """
    return reverse(direct_all_gather(ranks), "reduce_scatter")


@algorithm("all_reduce", "two_shot")
def two_shot_all_reduce(ranks: int) -> Schedule:
    """Direct reduce_scatter, then direct all_gather: ``2 alpha + 2(N-1)/N S/B`` on a crossbar.

    Each chunk is added up by one rank, so all ranks get the same bits.

    Parameters
    ----------
    ranks
        Any number from 1.

    Examples
    --------
    >>> print(two_shot_all_reduce(2))
    all_reduce ranks=2 chunks=2
    algorithm two_shot
    repeat 1
      step 0
        0 => 1  1
        1 => 0  0
    repeat 1
      step 0
        0 -> 1  0
        1 -> 0  1
    """
    return then(direct_reduce_scatter(ranks), direct_all_gather(ranks), "all_reduce")


@algorithm("all_reduce", "one_shot")
def one_shot_all_reduce(ranks: int) -> Schedule:
    """Every rank gets all vectors and adds them up itself: ``alpha + (N-1) S (1/B + gamma)`` on a crossbar.

    One hop, for the smallest messages. The vectors lie in N places of scratch and are added in the order of the ranks
    0, 1, 2, ... on every rank: ranks that began with their own vector would get different bits from each other (Open
    MPI pull request 12258).

    Parameters
    ----------
    ranks
        Any number from 1.

    Examples
    --------
    >>> print(one_shot_all_reduce(3))
    all_reduce ranks=3 chunks=1 scratch=3
    algorithm one_shot
    repeat 1
      step 0
        0 -> 0  0 > s0
        1 -> 1  0 > s1
        2 -> 2  0 > s2
        0 -> 1  0 > s0
        1 -> 2  0 > s1
        2 -> 0  0 > s2
        0 -> 2  0 > s0
        1 -> 0  0 > s1
        2 -> 1  0 > s2
      step 1
        0 => 0  s{1,2} > s{0,0}
        1 => 1  s{1,2} > s{0,0}
        2 => 2  s{1,2} > s{0,0}
      step 2
        0 -> 0  s0 > 0
        1 -> 1  s0 > 0
        2 -> 2  s0 > 0
    edge 0.9 after 0.0
    edge 0.10 after 0.3
    edge 0.11 after 0.6
    """
    refuse_rows(ranks * ranks)
    collective, everyone = Collective("all_reduce", ranks), np.arange(ranks)
    if ranks == 1:
        return ScheduleBuilder(collective, 1).build()
    b = ScheduleBuilder(collective, 1, scratch=ranks)
    number, src = (a.ravel() for a in np.indices((ranks, ranks)))
    b.copy(src, (src + number) % ranks, 0, dst_chunk=src, dst_buffer="scratch")
    others = [range(1, ranks)] * ranks
    zeros = [[0] * (ranks - 1)] * ranks
    b.reduce(everyone, everyone, chunks=others, dst_chunks=zeros, src_buffer="scratch", dst_buffer="scratch", step=1)
    b.copy(everyone, everyone, 0, src_buffer="scratch", step=2)
    # the sum begins with the vector of rank 0, which the rows that add do not read
    return b.build(Edge(0, ranks * ranks + rank, 0, ranks * rank) for rank in range(ranks))
