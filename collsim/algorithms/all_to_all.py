"""all_to_all: block d of rank s ends as block s of rank d.

Blocks change places, so input and output are two buffers (nccl-tests does not check all_to_all in place either), and a
rank copies its own block. Sending every block straight to its rank moves the least: (N-1)/N of the size a rank. The
hierarchical algorithm (and Bruck's, in a file of its own) sends fewer messages and passes blocks on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.algorithms.butterfly import choice
from collsim.algorithms.common import refuse_rows, refuse_window
from collsim.algorithms.hierarchical import Nodes, node_grid
from collsim.algorithms.registry import algorithm
from collsim.collective import Collective
from collsim.errors import AlgorithmError
from collsim.schedule import Edge, Schedule, ScheduleBuilder

__all__ = [
    "direct_all_to_all",
    "hierarchical_all_to_all",
    "nccl_p2p_all_to_all",
    "pairwise_all_to_all",
    "pairwise_xor_all_to_all",
]

Array = npt.NDArray[Any]


def _exchanges(peers: Array, *, steps: bool, window: int | None = None) -> Schedule:
    """Every rank sends one block in each round, to ``peers[round, rank]``; every round is a permutation.

    With a window w, a rank begins round i when what it sent and what it received in round ``i - w`` has arrived.
    """
    refuse_window(window)
    rounds, ranks = peers.shape
    b = ScheduleBuilder(Collective("all_to_all", ranks), ranks, in_place=False)
    everyone = np.arange(ranks)
    b.copy(everyone, everyone, everyone, src_buffer="input")
    number, src = (a.ravel() for a in np.indices(peers.shape))
    dst = peers.ravel()
    b.copy(src, dst, dst, dst_chunk=src, src_buffer="input", step=number if steps else 0)
    edges = []
    if window:
        for late in range(window, rounds):
            sender_to = np.argsort(peers[late - window])
            # the rows: the ranks' own blocks, then round after round
            first, before = (1 + late) * ranks, (1 + late - window) * ranks
            for rank in range(ranks):
                edges += [Edge(0, first + rank, 0, before + rank), Edge(0, first + rank, 0, before + sender_to[rank])]
    return b.build(edges)


def _shifts(ranks: int) -> Array:
    """Round i: to the rank that is i + 1 further."""
    refuse_rows(ranks * ranks)
    return (np.arange(1, ranks)[:, None] + np.arange(ranks)) % ranks


@algorithm("all_to_all", "direct")
def direct_all_to_all(ranks: int) -> Schedule:
    """Every rank sends its blocks straight to all others, all at once.

    Rank r sends to r+1, r+2, ... in this order: no two ranks start with the same receiver. On a crossbar with one port
    a rank the messages queue: ``alpha + (N-1)/N S/B``.

    Parameters
    ----------
    ranks
        Any number from 1.

    Examples
    --------
    >>> print(direct_all_to_all(3))
    all_to_all ranks=3 chunks=3 in_place=no
    algorithm direct
    repeat 1
      step 0
        0 -> 0  i0 > 0
        1 -> 1  i1 > 1
        2 -> 2  i2 > 2
        0 -> 1  i1 > 0
        1 -> 2  i2 > 1
        2 -> 0  i0 > 2
        0 -> 2  i2 > 0
        1 -> 0  i0 > 1
        2 -> 1  i1 > 2
    """
    return _exchanges(_shifts(ranks), steps=False)


@algorithm("all_to_all", "pairwise")
def pairwise_all_to_all(ranks: int, *, window: int | None = 1) -> Schedule:
    """In step s rank r sends to r+s and receives from r-s: ``(N-1) (alpha + S/(N B))``.

    MPICH's algorithm for long messages. A rank has one exchange under way, as with a blocking send and receive.

    Parameters
    ----------
    ranks
        Any number from 1.
    window
        Exchanges that a rank has under way; None or 0 for no pacing: all of them. Each makes a rank wait for two
        messages, by written edges.

    Examples
    --------
    >>> print(pairwise_all_to_all(3))
    all_to_all ranks=3 chunks=3 in_place=no
    algorithm pairwise {"window": 1}
    repeat 1
      step 0
        0 -> 0  i0 > 0
        1 -> 1  i1 > 1
        2 -> 2  i2 > 2
        0 -> 1  i1 > 0
        1 -> 2  i2 > 1
        2 -> 0  i0 > 2
      step 1
        0 -> 2  i2 > 0
        1 -> 0  i0 > 1
        2 -> 1  i1 > 2
    edge 0.6 after 0.3
    edge 0.6 after 0.5
    edge 0.7 after 0.4
    edge 0.7 after 0.3
    edge 0.8 after 0.5
    edge 0.8 after 0.4
    """
    return _exchanges(_shifts(ranks), steps=True, window=window)


@algorithm("all_to_all", "pairwise_xor")
def pairwise_xor_all_to_all(ranks: int, *, window: int | None = 1) -> Schedule:
    """In step s ranks r and r xor s swap their blocks: ``(N-1) (alpha + S/(N B))``.

    MPICH's algorithm for long messages between 2^k ranks: both directions of one pair are used at once.

    Parameters
    ----------
    ranks
        A power of two.
    window
        As in `pairwise_all_to_all`.

    Examples
    --------
    >>> pairwise_xor_all_to_all(8)
    <Schedule pairwise_xor all_to_all ranks=8 chunks=8 steps=7 transfers=64>
    """
    if ranks & (ranks - 1):
        raise AlgorithmError(f"ranks: pairwise_xor takes a power of two, got {ranks}; use pairwise")
    refuse_rows(ranks * ranks)
    return _exchanges(np.arange(1, ranks)[:, None] ^ np.arange(ranks), steps=True, window=window)


@algorithm("all_to_all", "nccl_p2p")
def nccl_p2p_all_to_all(ranks: int, *, nodes: Nodes = None, window: int | None = None) -> Schedule:
    """Every rank sends its blocks straight to all others, in the order in which NCCL posts sends and receives.

    Peers come in rounds: to the node ``d`` further, and there to the GPU ``e`` further, where d (outer) and e (inner)
    run through 0, 1, 3, 6, 10, ... modulo the next power of two. The order is the same on all ranks, so the round of a
    send is the round of its receive (NCCL 2.30, the order of point-to-point work). On a crossbar with one port a rank:
    ``alpha + (N-1)/N S/B``.

    Parameters
    ----------
    ranks
        Any number from 1.
    nodes
        Number of nodes, or the ranks of each; one node if not given (`collsim.run` takes the topology's).
    window
        As in `pairwise_all_to_all`; NCCL posts all at once.

    Examples
    --------
    >>> schedule = nccl_p2p_all_to_all(8, nodes=2)
    >>> [t.dst[0].item() for _, t in schedule.iter_steps()][1:]
    [3, 2, 4, 5, 7, 6]
    """
    table = node_grid(ranks, 1 if nodes is None else nodes)
    refuse_rows(ranks * ranks)
    across, inside = (_quadratic(size) for size in table.shape)
    peers = np.empty((ranks, ranks), dtype=np.int64)
    for number, (d, e) in enumerate(zip(np.repeat(across, len(inside)), np.tile(inside, len(across)), strict=True)):
        peers[number, table] = np.roll(table, (-d, -e), axis=(0, 1))
    return _exchanges(peers[1:], steps=True, window=window)


def _quadratic(count: int) -> Array:
    """Each of the numbers below a count once: the triangular numbers modulo a power of two visit all."""
    power = 1 << (count - 1).bit_length()
    k = np.arange(power)
    delta = k * (k + 1) // 2 % power
    return delta[delta < count]


@algorithm("all_to_all", "hierarchical")
def hierarchical_all_to_all(ranks: int, *, nodes: Nodes = None, first: str = "intra") -> Schedule:
    """Two phases: within the nodes, and between the GPUs of equal place in all nodes (a rail).

    With n nodes of g GPUs, intra first: a GPU gives GPU e of its node all n blocks for GPUs e of all nodes; then it
    sends to every GPU of its rail the g blocks for it, in one message. A GPU sends n-1 messages between nodes instead
    of (n-1) g (NCCL's PXN works alike), and bytes stay on their rail. Inter first is the same turned round. Time:
    ``alpha + (g-1)/g S/B`` within nodes and ``alpha + (n-1)/n S/B`` between them.

    Parameters
    ----------
    ranks
        Any number from 1.
    nodes
        Number of nodes, or the ranks of each; if not given (`collsim.run` takes the topology's) the greatest divisor of
        the ranks that is not above their root.
    first
        ``"intra"`` or ``"inter"``: which phase comes first.

    Examples
    --------
    >>> print(hierarchical_all_to_all(4, nodes=2))
    all_to_all ranks=4 chunks=4 scratch=4 in_place=no
    algorithm hierarchical {"nodes": 2, "first": "intra"}
    repeat 1
      step 0
        0 -> 0  i0+2*2 > s0+2*2
        1 -> 1  i1+2*2 > s1+2*2
        2 -> 2  i0+2*2 > s0+2*2
        3 -> 3  i1+2*2 > s1+2*2
        0 -> 1  i1+2*2 > s0+2*2
        1 -> 0  i0+2*2 > s1+2*2
        2 -> 3  i1+2*2 > s0+2*2
        3 -> 2  i0+2*2 > s1+2*2
      step 1
        0 -> 0  s0+2 > 0+2
        1 -> 1  s0+2 > 0+2
        2 -> 2  s2+2 > 2+2
        3 -> 3  s2+2 > 2+2
        0 -> 2  s2+2 > 0+2
        1 -> 3  s2+2 > 0+2
        2 -> 0  s0+2 > 2+2
        3 -> 1  s0+2 > 2+2
    """
    choice("first", first, ("intra", "inter"))
    table = node_grid(ranks, nodes)
    n, g = table.shape
    refuse_rows(ranks * (n + g))
    # chunks are numbered node by node: those of one node follow each other, those of one rail have a stride of g
    b = ScheduleBuilder(
        Collective("all_to_all", ranks), ranks, scratch=ranks, in_place=False, order=table.ravel().tolist()
    )
    number, node, place = (a.ravel() for a in np.indices((g, n, g)))
    peer = (place + number) % g
    within = {"src": table[node, place], "dst": table[node, peer], "chunk": peer, "dst_chunk": place}
    number, node, place = (a.ravel() for a in np.indices((n, n, g)))
    peer = (node + number) % n
    between = {"src": table[node, place], "dst": table[peer, place], "chunk": peer * g, "dst_chunk": node * g}
    phases = [{**within, "count": n, "stride": g}, {**between, "count": g}]
    if first == "inter":
        phases.reverse()
    b.copy(**phases[0], src_buffer="input", dst_buffer="scratch")
    b.copy(**phases[1], src_buffer="scratch", step=1)
    return b.build()
