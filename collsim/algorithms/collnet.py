"""In nodes and between them: NCCL's algorithms for nodes of several GPUs on switches that add up.

Every network port of a node has a head, a GPU that talks to other nodes, and heads of one place in all nodes share a
segment of the message. They differ in how the GPUs of a node get a segment to its head and back, and in how heads of
one place add it up.

| algorithm | in a node | between nodes |
|---|---|---|
| `collnet_direct` | all pairs | a tree of switches (SHARP) |
| `collnet_chain` | chains | a tree of switches |
| `nvls_collnet` | a switch that reduces (NVLS) | a tree of switches |
| `nvls_tree` | a switch that reduces | double binary trees of GPUs |

The names are those of ``NCCL_ALGO`` (CollnetDirect, CollnetChain, NVLSTree); NCCL calls both of the NVLS ones with
switches between nodes NVLS. Source: NCCL's ``src/device/all_reduce.h`` and ``src/transport/coll_net.cc``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.algorithms.common import refuse_rows
from collsim.algorithms.double_binary_tree import double_binary_tree_parents
from collsim.algorithms.hierarchical import Nodes, node_grid
from collsim.algorithms.registry import algorithm
from collsim.algorithms.sharp import Tree, Trees
from collsim.algorithms.stages import Stage, pipeline, refuse_slices
from collsim.collective import Collective
from collsim.errors import AlgorithmError, shown
from collsim.schedule import Schedule

__all__ = [
    "collnet_chain_all_reduce", "collnet_direct_all_reduce", "nvls_collnet_all_reduce", "nvls_tree_all_reduce",
]  # fmt: skip

Array = npt.NDArray[Any]
Switches = Sequence[tuple[str, Sequence[int]]] | str
TreesGiven = Sequence[Tree] | str


def _heads(ranks: int, grid: Array, head_trees: TreesGiven, first: int) -> tuple[Array, Trees]:
    """Return the place in its node of the head of each tree, by node and tree, and the trees."""
    n, g = grid.shape
    try:
        given = [head_trees] * g if isinstance(head_trees, str) else list(head_trees)
    except TypeError:
        raise AlgorithmError(
            f"head_trees: expected a tree of switches for each head, got {shown(head_trees)}"
        ) from None
    if len(given) != g and any(isinstance(tree, str) for tree in given):
        raise AlgorithmError(
            f"head_trees: expected a switch for each of the {g} ranks of a node, or one for all, got {len(given)}"
        )
    groups = grid.T.tolist() if len(given) == g else [()] * len(given)
    found = Trees.of("head_trees", given, groups, first, ranks)
    node, place = np.empty((2, ranks), dtype=np.int64)
    node[grid], place[grid] = np.arange(n)[:, None], np.arange(g)[None, :]
    heads = np.empty((n, len(given)), dtype=np.int64)
    for number, members in enumerate(found.ranks):
        own = np.array(members)
        if sorted(node[own].tolist()) != list(range(n)):
            raise AlgorithmError(
                f"head_trees: expected one rank of each of the {n} nodes in a tree, got {shown(members)}"
            )
        heads[node[own], number] = place[own]
    if not given or any(len(set(row)) < len(given) for row in heads.tolist()):
        raise AlgorithmError("head_trees: expected a head of its own in each node for every tree, got one for several")
    return heads, found


def _collnet(
    ranks: int, nodes: Nodes, head_trees: TreesGiven, slices: int, window: int | None, *, chain: bool
) -> Schedule:
    collective, grid = Collective("all_reduce", ranks), node_grid(ranks, nodes)
    refuse_slices(ranks, slices, window)
    if ranks == 1:
        return pipeline(collective, 1, slices, (), window=window)
    n, g = grid.shape
    heads, found = _heads(ranks, grid, head_trees, ranks)
    h = heads.shape[1]
    refuse_rows(2 * n * g * h)
    # by hop, node and tree: a chain goes through the places after its head's and ends there; all pairs go round so
    # that no two begin with one receiver
    hop, node, number = (a.ravel() for a in np.indices((g - 1, n, h)))
    place = heads[node, number] + 1 + hop
    there, head, following = (grid[node, at % g] for at in (place, heads[node, number], place + 1))
    chunk, to = number * slices, following if chain else head
    local = (g - 1 if chain else 1) if g > 1 else 0
    stages = [Stage(step, there[some], to[some], chunk[some], True) for step, some in _by_hop(hop, chain)]
    stages += found.up(local, slices) + found.down(local, slices, h * slices)
    for step, some in _by_hop(hop, chain)[::-1]:
        start = local + 2 * found.steps + local - 1 - step
        stages.append(Stage(start, to[some], there[some], chunk[some]))
    return pipeline(collective, h, slices, stages, window=window, places=found.names)


def _by_hop(hop: Array, chain: bool) -> list[tuple[int, Array]]:
    """Return the rows of each hop of a chain, or all of them together."""
    if chain:
        return [(step, hop == step) for step in np.unique(hop).tolist()]
    return [(0, hop >= 0)] if len(hop) else []


def _nvls(
    ranks: int, switches: Switches, slices: int, window: int | None, head_trees: TreesGiven | None = None
) -> Schedule:
    collective = Collective("all_reduce", ranks)
    names, grid = _nodes(ranks, switches)
    refuse_slices(ranks, slices, window)
    if ranks == 1:
        return pipeline(collective, 1, slices, (), window=window)
    n, g = grid.shape
    if head_trees is None:
        heads, between, places = np.tile(np.arange(g), (n, 1)), None, tuple(names)
    else:
        heads, between = _heads(ranks, grid, head_trees, ranks + n)
        both = set(names) & set(between.names)
        if both:
            raise AlgorithmError(
                f"head_trees: {min(both)} is the switch of a node already; use nvls_tree or collnet_direct"
            )
        places = (*names, *between.names)
    h = heads.shape[1]
    node, number = (a.ravel() for a in np.indices((n, h)))
    head, chunk, below = grid[node, heads[node, number]], number * slices, h * slices
    everyone, switch = grid.ravel(), ranks + np.arange(n).repeat(g)
    all_of: dict[str, Any] = {"count": h, "stride": slices}
    inside: dict[str, Any] = {"src_buffer": "scratch", "dst_buffer": "scratch"}
    stages = [
        Stage(0, everyone, switch, 0, True, {**all_of, "dst_buffer": "scratch"}),
        Stage(1, ranks + node, head, chunk, columns=inside),
    ]
    if between is not None:
        stages += between.up(2, slices, src_buffer="scratch")
        stages += between.down(2, slices, below, dst_buffer="scratch")
        last = 2 + 2 * between.steps
        stages.append(Stage(last, head, ranks + node, chunk + below, columns={**inside, "dst_chunk": chunk + below}))
    else:
        more, last = _double_tree(grid, slices, stages[-1])
        stages += more
    spread = {**all_of, "src_buffer": "scratch", "dst_chunk": 0}
    stages.append(Stage(last + 1, switch, everyone, below, columns=spread))
    return pipeline(collective, h, slices, stages, window=window, places=places)


def _double_tree(grid: Array, slices: int, loads: Stage) -> tuple[list[Stage], int]:
    """Return the stages between nodes on double binary trees, slices by turns, and the step of what follows.

    Sums are in scratch, where ``loads`` has put those of the nodes; what comes down is in the second half of it, but
    for the roots.
    """
    n, g = grid.shape
    below = g * slices
    inside: dict[str, Any] = {"src_buffer": "scratch", "dst_buffer": "scratch"}
    trees = [np.array(parents) for parents in double_binary_tree_parents(n)]
    depths = [_depths(parents) for parents in trees]
    height = max(int(depth.max()) for depth in depths)
    stages = []
    for turn, (parents, depth) in enumerate(zip(trees, depths, strict=True)):
        only = np.arange(turn, slices, 2)
        if not len(only):
            continue
        child, rail = (a.ravel() for a in np.meshgrid(np.flatnonzero(parents >= 0), np.arange(g), indexing="ij"))
        own, above = grid[child, rail], grid[parents[child], rail]
        chunk, down = rail * slices, np.where(depth[parents[child]] > 0, below, 0)
        back = {**inside, "dst_chunk": chunk + below}
        if len(child):
            first = parents[child] * g + rail  # the load of the parent
            stages.append(Stage(2 + height - depth[child], own, above, chunk, True, inside, only, (loads, first)))
            stages.append(Stage(1 + height + depth[child], above, own, chunk + down, False, back, only))
        node, rail = (a.ravel() for a in np.indices((n, g)))
        chunk, held = rail * slices, np.where(depth[node] > 0, below, 0)
        put = {**inside, "dst_chunk": chunk + below}
        stages.append(Stage(2 + 2 * height, grid[node, rail], n * g + node, chunk + held, False, put, only))
    return stages, 2 + 2 * height


def _depths(parents: Array) -> Array:
    depth = np.zeros(len(parents), dtype=np.int64)
    at = parents.copy()
    while (at >= 0).any():
        depth += at >= 0
        at = np.where(at >= 0, parents[at], -1)
    return depth


def _nodes(ranks: int, switches: Switches) -> tuple[list[str], Array]:
    """Return the names of the switches and the ranks that each joins, a row a switch."""
    given = [(switches, range(ranks))] if isinstance(switches, str) else switches
    try:
        pairs = [(name, list(members)) for name, members in given]
    except (TypeError, ValueError):
        pairs = []
    if not pairs or not all(isinstance(name, str) and name for name, _ in pairs):
        raise AlgorithmError(
            f"switches: expected the switch of each node and the ranks it joins, such as [[sw0, [0, 1]], [sw1, [2, 3]]]"
            f", got {shown(switches)}"
        )
    return [name for name, _ in pairs], node_grid(ranks, [members for _, members in pairs])


@algorithm("all_reduce", "collnet_direct")
def collnet_direct_all_reduce(
    ranks: int, *, nodes: Nodes = None, head_trees: TreesGiven = "sw0", slices: int = 16, window: int | None = 2
) -> Schedule:
    """Send all pairs to the heads of each node, up and down trees of switches between nodes, and all pairs back.

    With n nodes of g GPUs, h heads in each: a GPU sends about ``2 (g-1)/g S`` inside its node and a head ``S/h`` to the
    network, where a ring between nodes sends ``2 (n-1)/n S/h``.

    Parameters
    ----------
    ranks
        Any number from 1.
    nodes
        Number of nodes of equally many consecutive ranks, or the ranks of each node, equally many (`collsim.run` takes
        the topology's).
    head_trees
        One tree of switches for each segment, over its heads: one rank of each node. Trees as in `sharp_all_reduce`;
        or the name of one switch that joins all ranks.
    slices, window
        Pieces of each segment, and how many of them for one receiver may wait at a GPU at first; see `nvls_all_reduce`.

    Examples
    --------
    >>> collnet_direct_all_reduce(4, nodes=2, slices=1)
    <Schedule collnet_direct all_reduce ranks=4 chunks=2 steps=4 transfers=16>
    """
    return _collnet(ranks, nodes, head_trees, slices, window, chain=False)


@algorithm("all_reduce", "collnet_chain")
def collnet_chain_all_reduce(
    ranks: int, *, nodes: Nodes = None, head_trees: TreesGiven = "sw0", slices: int = 32, window: int | None = 1
) -> Schedule:
    """Run chains to the heads of each node, up and down trees of switches between nodes, and chains back.

    As many bytes as `collnet_direct_all_reduce`, with ``2 (g-1)`` hops inside nodes in place of two. Parameters as
    there.

    Examples
    --------
    >>> collnet_chain_all_reduce(4, nodes=2, slices=1)
    <Schedule collnet_chain all_reduce ranks=4 chunks=2 steps=4 transfers=16>
    """
    return _collnet(ranks, nodes, head_trees, slices, window, chain=True)


@algorithm("all_reduce", "nvls_collnet")
def nvls_collnet_all_reduce(
    ranks: int, *, switches: Switches = "sw0", head_trees: TreesGiven = "sw1", slices: int = 64, window: int | None = 1
) -> Schedule:
    """Add up by the switch of each node, then up and down trees of switches between nodes, and copy by the node's.

    A GPU sends and receives ``S + S/h`` in its node and a head ``S/h`` in the network. (NCCL: NVLS with CollNet.)

    Parameters
    ----------
    ranks
        Any number from 1.
    switches
        For each node the switch that joins its GPUs, and their ranks, equally many (`collsim.run` takes the
        topology's); or the name of one switch that joins all ranks. They must reduce and multicast.
    head_trees, slices, window
        As in `collnet_direct_all_reduce`.

    Examples
    --------
    >>> nvls_collnet_all_reduce(4, switches=[["a", [0, 1]], ["b", [2, 3]]], head_trees=["leaf", "leaf"], slices=1)
    <Schedule nvls_collnet all_reduce ranks=4 chunks=2 steps=6 transfers=24>
    """
    return _nvls(ranks, switches, slices, window, head_trees)


@algorithm("all_reduce", "nvls_tree")
def nvls_tree_all_reduce(
    ranks: int, *, switches: Switches = "sw0", slices: int = 64, window: int | None = 1
) -> Schedule:
    """Add up by the switch of each node, then on double binary trees between nodes, and copy by the node's switch.

    GPU i of each node has segment i: it sends and receives ``S + S/g`` in its node and about ``2 S/g`` in the network.
    Every second slice goes over the second tree. (NCCL: NVLSTree.)

    Parameters
    ----------
    ranks, switches, slices, window
        As in `nvls_collnet_all_reduce`.

    Examples
    --------
    >>> nvls_tree_all_reduce(4, switches=[["a", [0, 1]], ["b", [2, 3]]], slices=2)
    <Schedule nvls_tree all_reduce ranks=4 chunks=4 steps=7 transfers=40>
    """
    return _nvls(ranks, switches, slices, window)
