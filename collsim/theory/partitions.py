"""Cuts into many parts: what ranks must send to each other if they alone reduce and copy.

**Claim.** Let the ranks be split into k parts, each with a set of nodes X_i that holds its ranks and no rank of another
part, and let the sets share no node. If the ranks do all reducing and copying, an all_reduce of S bytes carries
``2 (k - 1) S`` bytes over the links that leave the sets, and as many over those that come into them; other operations
whose every byte concerns all ranks (all_gather, reduce_scatter, broadcast, reduce) carry ``(k - 1) S``.

**Proof.** Take one byte of the vector, and the messages with it from a rank of one part to a rank of another; each
crosses a link that leaves the sender's set and one that comes into the receiver's. Call a part complete once one of its
nodes has the sum of all ranks, and look at the moment when the first part is. By then each other part has sent its
share on: at least k - 1 messages, of different senders. From then on each of the other k - 1 parts must receive
a message more. So there are 2 (k - 1), of which an operation that only adds up or only spreads needs one half.
Every message is sent by one rank to one, so nothing is counted twice; as a link leaves at most one set and comes into
at most one, neither is a link. Relays and detours only add crossings. (Messages of linear combinations would fall
outside the proof: schedules have none.)

**With switches that take part.** The sets are as good as ranks in the proof: whatever happens inside one of them, it
must send and receive. So a switch that reduces or multicasts does no harm inside a set. One outside may merge many
messages into one on their way, or make many of one: a single message then leaves several senders or comes into several
receivers. Copies made outside do not spare the links into the sets: the k - 1 parts that are not complete receive one
each all the same, and the k - 1 messages before then were received by someone too. Hence the count into the sets holds
if all switches that *reduce* are inside, the count out of them if all that reduce or multicast are.

With parts of one GPU each this is the ``2 (p - 1) S`` over the rate of all GPUs together (Patarasuk and Yuan 2009). For
two parts it is the sum over the two directions of a cut. Which parts are the worst is the attack problem
(Cunningham 1985) on symmetric networks without switches; here the parts that names, bandwidths and switches suggest are
tried, and, on small machines, parts that are joined one by one where they share the most bandwidth.

**Sets of parts.** Nodes that are no ranks join the part that spares the most capacity, as long as that makes it less.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collsim.theory.candidates import candidate_sets, islands
from collsim.topology.structure import node_groups

if TYPE_CHECKING:
    from collsim.topology import Topology

__all__ = ["Parts", "worst_parts"]

Array = npt.NDArray[Any]

ROUNDS = 4
"""How often nodes join parts."""
SIZES = 6
"""Sizes of candidate sets of which parts are made."""
MERGED = 64
"""Ranks up to which parts are joined one by one."""


class Parts(NamedTuple):
    """A cut into parts: by node its part (-1 for none), the direction counted, and what it holds for."""

    label: Array
    into: bool
    ranks_only: bool


class _Wires(NamedTuple):
    """The links that are of use, in the direction that is counted."""

    src: Array
    dst: Array
    rate: Array
    fixed: Array

    def turned(self) -> _Wires:
        return _Wires(self.dst, self.src, self.rate, self.fixed)

    def capacity(self, label: Array) -> int:
        """Capacity that leaves the parts."""
        tail = label[self.src]
        return int(self.rate[(tail >= 0) & (label[self.dst] != tail)].sum())


def worst_parts(topology: Topology, ranks: Array, links: Array, *, every: bool) -> tuple[list[Parts], int]:
    """Return the cuts into parts that leave the least capacity a part, one of each kind, and how many were tried.

    Parameters
    ----------
    topology
        The machine.
    ranks
        Nodes of the ranks that take part.
    links
        Numbers of the links that are of use.
    every
        Whether to try others than each rank for itself: those matter for an all_reduce only, since all other operations
        can be carried out as fast as the cuts by sets allow, unless switches have more bandwidth out than in.
    """
    fixed = np.zeros(topology.n_nodes, dtype=bool)
    fixed[ranks] = True
    columns = (topology.link_src, topology.link_dst, topology.link_bandwidth)
    src, dst, rate = (column[links].astype(np.int64) for column in columns)
    wires = _Wires(src, dst, rate, fixed)
    ways = ((False, wires, topology.reduces | topology.multicasts), (True, wires.turned(), topology.reduces))
    found: dict[tuple[bool, bool], tuple[Fraction, Array]] = {}
    tried = 0
    for label, grows in _labels(topology, ranks, wires, every=every):
        parts_of_ranks = len(np.unique(label[ranks]))
        if parts_of_ranks == 1 or (tried and parts_of_ranks == len(ranks)):
            continue
        tried += 1
        for into, way, helpers in ways:
            for parts in _grown(way, label) if grows else (label,):
                capacity = way.capacity(parts)
                key = (into, bool((helpers & (parts < 0)).any()))
                if capacity and (key not in found or Fraction(parts_of_ranks - 1, capacity) > found[key][0]):
                    found[key] = (Fraction(parts_of_ranks - 1, capacity), parts)
    return [Parts(parts, *key) for key, (_, parts) in found.items()], tried


def _labels(topology: Topology, ranks: Array, wires: _Wires, *, every: bool) -> Iterator[tuple[Array, bool]]:
    """Yield the part of each node, and whether more nodes should join the parts."""
    n = topology.n_nodes
    alone = np.full(n, -1)
    alone[ranks] = np.arange(len(ranks))
    yield alone, True
    if not every:
        return
    for names in _levels(topology, ranks):
        only = np.full(n, -1)
        only[ranks] = names[ranks]
        yield only, True
        yield names, False
    groups = node_groups(topology)
    if groups is not None:
        of_rank = np.empty(topology.n_ranks, dtype=np.int64)
        for number, group in enumerate(groups):
            of_rank[list(group)] = number
        label = np.full(n, -1)
        label[ranks] = of_rank[topology.rank_of_node[ranks]]
        yield label, True
    for label in islands(topology):
        yield _with_ranks(label, ranks), False
    yield from ((label, False) for label in _of_sets(topology, ranks))
    if len(ranks) <= MERGED:
        yield from ((label, False) for label in _merged(wires, alone, len(ranks)))


def _with_ranks(label: Array, ranks: Array) -> Array:
    """Return the parts without those that have no rank."""
    own = np.zeros(int(label.max(initial=0)) + 1, dtype=bool)
    own[label[ranks]] = True
    return np.where((label >= 0) & own[label], label, -1)


def _levels(topology: Topology, ranks: Array) -> Iterator[Array]:
    """Yield the parts by names: ``rack[0]``, then ``rack[0].node[1]``; a rank with a shorter name is its own part."""
    split = [name.split(".") for name in topology.nodes]
    depth = max(len(split[node]) for node in ranks.tolist())
    is_rank = np.zeros(topology.n_nodes, dtype=bool)
    is_rank[ranks] = True
    for level in range(1, depth):
        numbers: dict[tuple[str, ...], int] = {}
        label = np.array(
            [
                numbers.setdefault(tuple(words[:level]), len(numbers)) if len(words) > level or own else -1
                for words, own in zip(split, is_rank.tolist(), strict=True)
            ]
        )
        yield _with_ranks(label, ranks)


def _of_sets(topology: Topology, ranks: Array) -> Iterator[Array]:
    """Yield parts made of candidate sets with equally many ranks: each node is in the first that has it."""
    sets = candidate_sets(topology)
    if not len(sets):
        return
    sizes = np.diff(sets.ptr)
    held = sets.count(topology.rank_of_node >= 0)
    values, counts = np.unique(held, return_counts=True)
    for value in values[np.argsort(-counts, kind="stable")[:SIZES]].tolist():
        of_set = np.repeat(held == value, sizes)
        label = np.full(topology.n_nodes, len(sets) + topology.n_nodes)
        np.minimum.at(label, sets.members[of_set], sets.owners()[of_set])
        left = label == len(sets) + topology.n_nodes
        label[left] = -1
        lost = ranks[left[ranks]]
        label[lost] = len(sets) + np.arange(len(lost))
        yield _with_ranks(label, ranks)


def _merged(wires: _Wires, alone: Array, count: int) -> Iterator[Array]:
    """Yield parts that come from joining the two that share the most bandwidth, again and again."""
    between = np.zeros((count, count), dtype=np.int64)
    tail, head = alone[wires.src], alone[wires.dst]
    both = (tail >= 0) & (head >= 0)
    np.add.at(between, (tail[both], head[both]), wires.rate[both])
    between += between.T
    label = alone
    for _ in range(count - 2):
        np.fill_diagonal(between, 0)
        a, b = sorted(divmod(int(between.argmax()), count))
        if not between[a, b]:
            return
        label = np.where(label == b, a, label)
        between[a] += between[b]
        between[:, a] += between[:, b]
        between[b], between[:, b] = 0, 0
        yield label


def _grown(wires: _Wires, label: Array) -> Iterator[Array]:
    """Yield the parts, and the parts with more nodes if fewer bytes can leave those."""
    first = label
    yield first
    out = np.zeros(len(label), dtype=np.int64)
    np.add.at(out, wires.src, wires.rate)
    count = int(label.max()) + 1
    least, best = wires.capacity(label), label
    for _ in range(ROUNDS):
        tail, head = label[wires.src], label[wires.dst]
        joins = (tail >= 0) & (head < 0)  # a link to a node that may join the part that it comes from
        back = (tail < 0) & (head >= 0)
        key, place = np.unique(
            np.concatenate([wires.dst[joins] * count + tail[joins], wires.src[back] * count + head[back]]),
            return_inverse=True,
        )
        spared = np.zeros(len(key), dtype=np.int64)
        np.add.at(spared, place.reshape(-1), np.concatenate([wires.rate[joins], wires.rate[back]]))
        node, part = np.divmod(key, max(1, count))
        gain = spared - out[node]
        order = np.lexsort((part, -gain, node))
        order = order[np.diff(node[order], prepend=-1) != 0]  # the best part of each node
        order = order[(gain[order] >= 0) & ~wires.fixed[node[order]]]
        if not len(order):
            break
        label = label.copy()
        label[node[order]] = part[order]
        capacity = wires.capacity(label)
        if capacity < least:
            least, best = capacity, label
    if best is not first:
        yield best
