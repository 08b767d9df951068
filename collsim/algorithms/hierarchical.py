"""Two levels: within nodes, and between them on what is left.

Links inside a node are many times faster than those between nodes. A reduce_scatter inside leaves each of g ranks 1/g
of the data; the n ranks of one place (a rail) then share that over the network, and an all_gather inside completes it,
so that the network carries S/g a rank (NCCL's and Horovod's hierarchical all_reduce; Cho, Finkler, Serrano, Kung and
Hunter, "BlueConnect", 2019, for any number of levels). `leader` is the older form, for tiny messages: only one rank of
a node talks to other nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.algorithms.common import at_least_one, rank_order, refuse_rows, refuse_window
from collsim.algorithms.embed import Level, Nest, Part, assemble, embed, named, paced
from collsim.algorithms.registry import algorithm
from collsim.algorithms.torus import factors
from collsim.collective import Collective
from collsim.errors import AlgorithmError, shown
from collsim.schedule import Schedule

__all__ = [
    "hierarchical_all_gather",
    "hierarchical_all_reduce",
    "hierarchical_reduce_scatter",
    "leader_all_reduce",
    "node_grid",
    "rail_all_gather",
    "rail_all_reduce",
    "rail_reduce_scatter",
]

Array = npt.NDArray[Any]

Nodes = int | Sequence[Sequence[int]] | None


def node_grid(ranks: int, nodes: Nodes) -> Array:
    """Return the ranks of each node, one row a node.

    Parameters
    ----------
    ranks
        Number of ranks.
    nodes
        Number of nodes of equally many consecutive ranks, or the ranks of each node in local order. The nearest number
        below the square root that divides the ranks if not given.

    Raises
    ------
    AlgorithmError
        If nodes are unequal, or do not hold each rank once.

    Examples
    --------
    >>> node_grid(6, [[0, 2, 4], [1, 3, 5]]).tolist(), node_grid(6, 3).tolist()
    ([[0, 2, 4], [1, 3, 5]], [[0, 1], [2, 3], [4, 5]])
    """
    refuse_rows(ranks)
    if nodes is None:
        nodes = factors(ranks)[0]
    if isinstance(nodes, (int, np.integer)):
        at_least_one(nodes=nodes)
        if ranks % nodes:
            low = [size for size in range(1, math.isqrt(ranks) + 1) if ranks % size == 0]
            near = max(size for one in low for size in (one, ranks // one) if size <= nodes)
            raise AlgorithmError(f"nodes: expected a divisor of the {ranks} ranks, got {shown(nodes)}; use {near}")
        return np.arange(ranks).reshape(int(nodes), -1)
    try:
        rows = [list(node) for node in nodes]
    except TypeError:
        raise AlgorithmError(f"nodes: expected a number, or the ranks of each node, got {shown(nodes)}") from None
    if not rows or len({len(row) for row in rows}) > 1:
        lengths = ", ".join(map(str, sorted({len(row) for row in rows}))) or "none"
        raise AlgorithmError(
            f"nodes: expected equally many ranks in each node, got {lengths}; use an algorithm of one level, as ring"
        )
    try:
        return rank_order(ranks, [rank for row in rows for rank in row]).reshape(len(rows), -1)
    except AlgorithmError:
        raise AlgorithmError(f"nodes: expected each of the ranks 0 to {ranks - 1} once, got {shown(nodes)}") from None


def _two_levels(operation: str, ranks: int, nodes: Nodes, inner: str, outer: str) -> Schedule:
    grid = node_grid(ranks, nodes)
    n, g = grid.shape
    scatter, gather = "reduce_scatter", "all_gather"
    inside = Level(
        1,
        None if operation == gather else named("inner", scatter, inner, g),
        None if operation == scatter else named("inner", gather, inner, g),
    )
    across = named("outer", operation, outer, n)
    between = Level(0, None, across) if operation == gather else Level(0, across, None)
    return Nest(grid, [inside, between]).build(operation)


@algorithm("all_reduce", "hierarchical")
def hierarchical_all_reduce(ranks: int, *, nodes: Nodes = None, inner: str = "ring", outer: str = "ring") -> Schedule:
    """Reduce_scatter in each node, all_reduce between ranks of one place on S/g, all_gather in each node.

    With rings, n nodes of g ranks: ``2(g-1) alpha_i + 2(g-1)/g S/B_i + 2(n-1) alpha_e + 2(n-1)/n S/(g B_e)``, plus
    ``(N-1)/N S gamma``; i for links inside, e for the network port of a rank.

    Parameters
    ----------
    ranks
        Any number from 1.
    nodes
        Number of nodes of equally many consecutive ranks, or the ranks of each node in local order, equally many. The
        greatest divisor up to the square root if not given (`collsim.run` takes the topology's).
    inner
        Name of the algorithm inside a node; it needs a reduce_scatter and an all_gather.
    outer
        Name of the algorithm between nodes; it needs an all_reduce.

    Examples
    --------
    Chunk 2i + j is sub-block j of the segment of local rank i.

    >>> print(hierarchical_all_reduce(4, nodes=2))
    all_reduce ranks=4 chunks=4
    algorithm hierarchical {"nodes": 2, "inner": "ring", "outer": "ring"}
    repeat 1 shift=-2 window=4
      step 0
        0 => 1  2+2
        1 => 0  0+2
        2 => 3  2+2
        3 => 2  0+2
    repeat 1 shift=-1 window=2
      step 0
        0 => 2  1
        1 => 3  3
        2 => 0  0
        3 => 1  2
    repeat 1 shift=-1 window=2
      step 0
        0 -> 2  0
        1 -> 3  2
        2 -> 0  1
        3 -> 1  3
    repeat 1 shift=-2 window=4
      step 0
        0 -> 1  0+2
        1 -> 0  2+2
        2 -> 3  0+2
        3 -> 2  2+2
    """
    return _two_levels("all_reduce", ranks, nodes, inner, outer)


@algorithm("reduce_scatter", "hierarchical")
def hierarchical_reduce_scatter(
    ranks: int, *, nodes: Nodes = None, inner: str = "ring", outer: str = "ring"
) -> Schedule:
    """Reduce_scatter in each node, then between the ranks of one place.

    With rings: ``(g-1) alpha_i + (g-1)/g S/B_i + (n-1) alpha_e + (n-1)/n S/(g B_e)``, plus ``(N-1)/N S gamma``.
    Parameters as in `hierarchical_all_reduce`; both algorithms need a reduce_scatter.

    Examples
    --------
    >>> hierarchical_reduce_scatter(32, nodes=4)
    <Schedule hierarchical reduce_scatter ranks=32 chunks=32 steps=10 transfers=320>
    """
    return _two_levels("reduce_scatter", ranks, nodes, inner, outer)


@algorithm("all_gather", "hierarchical")
def hierarchical_all_gather(ranks: int, *, nodes: Nodes = None, inner: str = "ring", outer: str = "ring") -> Schedule:
    """All_gather between the ranks of one place, then in each node.

    With rings: ``(n-1) alpha_e + (n-1)/n S/(g B_e) + (g-1) alpha_i + (g-1)/g S/B_i``. Parameters as in
    `hierarchical_all_reduce`; both algorithms need an all_gather.

    Examples
    --------
    >>> hierarchical_all_gather(32, nodes=4)
    <Schedule hierarchical all_gather ranks=32 chunks=32 steps=10 transfers=320>
    """
    return _two_levels("all_gather", ranks, nodes, inner, outer)


@algorithm("all_reduce", "leader")
def leader_all_reduce(
    ranks: int, *, nodes: Nodes = None, inner: str = "binomial_tree", outer: str = "ring"
) -> Schedule:
    """Reduce to the first rank of each node, all_reduce between those, broadcast in each node.

    With a binomial tree inside and a ring between leaders: ``2 log2(g) (alpha_i + S/B_i) + 2(n-1) alpha_e + 2(n-1)/n
    S/B_e``, plus the reductions ``(log2(g) + (n-1)/n) S gamma``. The whole message goes through one port of each node:
    for tiny messages. (Open MPI's han and MVAPICH's two-level collectives have it.)

    Parameters
    ----------
    ranks, nodes
        As in `hierarchical_all_reduce`.
    inner
        Name of the algorithm inside a node; it needs a reduce and a broadcast.
    outer
        Name of the algorithm between leaders; it needs an all_reduce.

    Examples
    --------
    >>> print(leader_all_reduce(4, nodes=2))
    all_reduce ranks=4 chunks=2
    algorithm leader {"nodes": 2, "inner": "binomial_tree", "outer": "ring"}
    repeat 1 window=2
      step 0
        1 => 0  0+2
        3 => 2  0+2
    repeat 1 shift=-1 window=2
      step 0
        0 => 2  1
        2 => 0  0
    repeat 1 shift=-1 window=2
      step 0
        0 -> 2  0
        2 -> 0  1
    repeat 1 window=2
      step 0
        0 -> 1  0+2
        2 -> 3  0+2
    """
    grid = node_grid(ranks, nodes)
    n, g = grid.shape
    up, down = (named("inner", operation, inner, g) for operation in ("reduce", "broadcast"))
    across = named("outer", "all_reduce", outer, n)
    chunks = math.lcm(up.chunks, across.chunks, down.chunks)
    refuse_rows(chunks)
    parts: list[Part] = []
    for schedule, groups in ((up, grid), (across, grid[:, :1].T), (down, grid)):
        pieces = np.arange(chunks).reshape(1, schedule.chunks, -1)
        parts.append(embed(schedule, groups, pieces, None, parts[-1][2] if parts else 0))
    return assemble(Collective("all_reduce", ranks), chunks, parts)


def _rail(operation: str, ranks: int, nodes: Nodes, inner: str, slices: int, window: int | None) -> Schedule:
    at_least_one(slices=slices)
    refuse_window(window)
    grid = node_grid(ranks, nodes)
    n, g = grid.shape
    refuse_rows(ranks * slices)

    def inside(half: str) -> Schedule | None:
        return named("inner", half, inner, g) if operation in ("all_reduce", half) else None

    # on rings the all_reduce of a rail is a reduce_scatter and an all_gather: one level more for the pipeline
    rail = [named("nodes", half, "ring", n) if operation in ("all_reduce", half) else None for half in HALVES]
    nest = Nest(grid, [Level(1, inside("reduce_scatter"), inside("all_gather")), Level(0, rail[0], rail[1])])
    stages = nest.way()
    parts: list[Part] = []
    where: dict[tuple[int, int], int] = {}
    for tick in range(slices + len(stages) - 1):
        for stage in reversed(range(len(stages))):
            if 0 <= tick - stage < slices:
                where[stage, tick - stage] = len(parts)
                scratch = parts[-1][2] if parts else 0
                parts.append(nest.phases(*stages[stage], scratch, (tick - stage) * nest.chunks))
    order = None
    if operation != "all_reduce":
        rank, place = np.divmod(np.array(nest.order()), nest.chunks // ranks)
        order = ((rank * slices + np.arange(slices)[:, None]) * (nest.chunks // ranks) + place).ravel().tolist()
    first = np.cumsum([0, *(len(part[0]) for part in parts)]).tolist()
    phases = [phase for part in parts for phase in part[0]]
    edges = [
        edge
        for (stage, piece), here in where.items()
        if window and piece >= window and parts[here][0]
        for edge in paced(phases, first[where[stage, piece - window] + 1] - 1, first[here])
    ]
    return assemble(Collective(operation, ranks), nest.chunks * slices, parts, order, edges)


HALVES = ("reduce_scatter", "all_gather")


@algorithm("all_reduce", "rail")
def rail_all_reduce(
    ranks: int, *, nodes: Nodes = None, inner: str = "direct", slices: int = 4, window: int | None = 1
) -> Schedule:
    """Run the two levels in a pipeline of slices, whose chunks stay on the rail of their place.

    Each slice of the message goes through `hierarchical_all_reduce` with rings between nodes; while one is on the
    network the next is on the links inside nodes. Rank i of a node only talks to ranks i of other nodes, through the
    one leaf switch that they share. Time, with m = S/slices: ``sum of all stages for m + (slices - 1) (time of the
    slowest stage for m)``, where stages do not share links; reduce_scatter and all_gather inside a node do.

    Parameters
    ----------
    ranks, nodes
        As in `hierarchical_all_reduce`.
    inner
        ``"direct"`` (all pairs in one step), ``"ring"``, or another algorithm with reduce_scatter and all_gather.
    slices
        Pieces of the message that follow each other.
    window
        Slices that a rank has in one stage at a time: a slice starts once the one so many before it has been issued.
        None or 0 for no pacing: then all slices start at once and hold each other up, which is better for small
        messages only.

    Examples
    --------
    >>> rail_all_reduce(32, nodes=4)
    <Schedule rail all_reduce ranks=32 chunks=128 steps=32 transfers=2560>
    """
    return _rail("all_reduce", ranks, nodes, inner, slices, window)


@algorithm("reduce_scatter", "rail")
def rail_reduce_scatter(
    ranks: int, *, nodes: Nodes = None, inner: str = "direct", slices: int = 4, window: int | None = 1
) -> Schedule:
    """Reduce_scatter inside nodes, then along rails, in a pipeline of slices. Parameters as in `rail_all_reduce`.

    Examples
    --------
    >>> rail_reduce_scatter(32, nodes=4, slices=2)
    <Schedule rail reduce_scatter ranks=32 chunks=64 steps=8 transfers=640>
    """
    return _rail("reduce_scatter", ranks, nodes, inner, slices, window)


@algorithm("all_gather", "rail")
def rail_all_gather(
    ranks: int, *, nodes: Nodes = None, inner: str = "direct", slices: int = 4, window: int | None = 1
) -> Schedule:
    """All_gather along rails, then inside nodes, in a pipeline of slices. Parameters as in `rail_all_reduce`.

    Examples
    --------
    >>> rail_all_gather(32, nodes=4, slices=2)
    <Schedule rail all_gather ranks=32 chunks=64 steps=8 transfers=640>
    """
    return _rail("all_gather", ranks, nodes, inner, slices, window)
