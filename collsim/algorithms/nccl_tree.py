"""NCCL's trees: on each channel a tree over all ranks, by default double binary between nodes and a chain inside them.

Between nodes the first two trees are `double_binary_tree_parents` over the nodes (NCCL, ``src/graph/trees.cc``); inside
a node the ranks are a chain below the one that holds the node's place (``src/graph/connect.cc``). What NCCL built for a
machine, `collsim.formats.read_nccl_log` reads from its log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.algorithms.common import at_least_one, refuse_rows
from collsim.algorithms.double_binary_tree import double_binary_tree_parents
from collsim.algorithms.hierarchical import Nodes, node_grid
from collsim.algorithms.pacing import queued
from collsim.algorithms.registry import algorithm
from collsim.collective import Collective
from collsim.errors import AlgorithmError, shown
from collsim.schedule import Schedule, ScheduleBuilder

__all__ = ["nccl_tree_all_reduce", "nccl_tree_parents"]

Array = npt.NDArray[Any]


def nccl_tree_parents(ranks: int, nodes: Nodes = None) -> tuple[list[int], list[int]]:
    """Parent of each rank in NCCL's two trees (-1 for the root).

    Parameters
    ----------
    ranks
        Any number from 1.
    nodes
        Number of nodes, or the ranks of each, all of one size.

    Examples
    --------
    >>> nccl_tree_parents(4, 1)
    ([-1, 0, 1, 2], [-1, 0, 1, 2])
    >>> nccl_tree_parents(6, 3)
    ([-1, 0, 4, 2, 0, 4], [2, 0, -1, 2, 0, 4])
    """
    grid = node_grid(ranks, nodes)
    first, second = (np.full(ranks, -1, dtype=np.int64) for _ in range(2))
    for parents, between in zip((first, second), double_binary_tree_parents(len(grid)), strict=True):
        parents[grid[:, 1:]] = grid[:, :-1]
        up = np.array(between)
        parents[grid[:, 0]] = np.where(up < 0, -1, grid[up, 0])
    return first.tolist(), second.tolist()


@algorithm("all_reduce", "nccl_tree")
def nccl_tree_all_reduce(
    ranks: int,
    *,
    nodes: Nodes = None,
    parents: Sequence[Sequence[int]] | None = None,
    slices: int = 32,
    window: int | None = None,
) -> Schedule:
    """Reduce up a tree and broadcast down it, on each channel its own tree and its own share of the message.

    Latency of the default trees: about ``2 (N/n - 1 + log2 n)`` hops on n nodes, bandwidth term towards ``2 S/B``.

    Parameters
    ----------
    ranks
        Any number from 1.
    nodes
        Number of nodes of equally many ranks, or the ranks of each (`collsim.run` takes the topology's).
    parents
        For each channel the parent of each rank, -1 at the root; NCCL's two trees over the nodes if not given.
    slices
        Pieces of each tree's share of the message.
    window
        Slices for one peer that may wait in the queue of a rank's port, as in `double_binary_tree_all_reduce`.

    Raises
    ------
    AlgorithmError
        If a list of parents is no tree over all ranks, or the nodes are of different sizes.

    Examples
    --------
    >>> print(nccl_tree_all_reduce(3, parents=[[-1, 0, 1]], slices=1))
    all_reduce ranks=3 chunks=1
    algorithm nccl_tree {"parents": [[-1, 0, 1]], "slices": 1}
    repeat 1
      step 0
        2 => 1  0
      step 1
        1 => 0  0
      step 2
        0 -> 1  0
      step 3
        1 -> 2  0
    """
    at_least_one(slices=slices)
    refuse_rows(4 * ranks * slices)
    trees: Sequence[Sequence[int]] = nccl_tree_parents(ranks, nodes) if parents is None else _given(parents)
    refuse_rows(2 * ranks * slices * len(trees))
    b = ScheduleBuilder(Collective("all_reduce", ranks), len(trees) * slices)
    up = [_parents(tree, ranks, channel) for channel, tree in enumerate(trees)]
    depths = [_depths(tree, channel) for channel, tree in enumerate(up)]
    height = max(int(depth.max()) for depth in depths)
    # a pair of default trees is one channel, as in double_binary_tree; given trees are a channel each
    channels = np.zeros(len(up), dtype=np.int64) if parents is None else np.arange(len(up))
    for number, (tree, depth) in enumerate(zip(up, depths, strict=True)):
        child = np.flatnonzero(tree >= 0)
        edge, part = (a.ravel() for a in np.indices((len(child), slices)))
        who, above, chunk, channel = child[edge], tree[child[edge]], number * slices + part, channels[number]
        b.reduce(who, above, chunk, step=height - depth[who] + part, channel=channel)
        b.copy(above, who, chunk, step=height + depth[who] - 1 + part, channel=channel)
    return queued(b.build(), window)


def _given(parents: object) -> Sequence[Sequence[int]]:
    if not isinstance(parents, (list, tuple)) or not parents:
        raise AlgorithmError(f"parents: expected a list of parents for each channel, got {shown(parents)}")
    return parents


def _parents(tree: Sequence[int], ranks: int, channel: int) -> Array:
    try:
        array = np.asarray(tree)
    except ValueError:  # lists of different lengths
        array = np.zeros(0)
    if array.dtype.kind not in "iu" or array.shape != (ranks,) or array.min() < -1 or array.max() >= ranks:
        raise AlgorithmError(
            f"parents: channel {channel}: expected the parent of each of the {ranks} ranks, -1 at the root, got "
            f"{shown(tree)}"
        )
    roots = np.flatnonzero(array == -1)
    if len(roots) != 1:
        raise AlgorithmError(f"parents: channel {channel}: expected one root (-1), got {len(roots)}")
    return array.astype(np.int64)


def _depths(tree: Array, channel: int) -> Array:
    """Return the number of hops from each rank to the root."""
    depth = np.where(tree < 0, 0, -1)
    level = 0
    while (found := np.flatnonzero((depth < 0) & (depth[tree] == level) & (tree >= 0))).size:
        level += 1
        depth[found] = level
    if (depth < 0).any():
        raise AlgorithmError(
            f"parents: channel {channel}: expected a tree, got a circle through rank {int(np.argmax(depth < 0))}"
        )
    return depth
