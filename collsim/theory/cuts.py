"""Cuts of a machine: links, what they can carry, and what an operation must carry over them.

A `Cut` is the proof of a lower bound, and any of them is one:

**A set of nodes X.** What is in X and needed outside crosses the links that leave X, of capacity B+(X). It holds
whatever ranks and switches do on the way. A switch that multicasts spares the links behind it, but a byte that is
wanted outside leaves X at least once (all_gather, broadcast, scatter, gather, all_to_all). A switch that reduces
spares links too, but the sum over the ranks in X is as long as a vector, and it must leave X wherever it was formed
(all_reduce, reduce, and for each block that belongs outside X in a reduce_scatter).

**Parts.** See `collsim.theory.partitions`: only where no switch outside the parts reduces or multicasts.

**Lengths of links.** However a byte gets from one rank to another, it takes up the bandwidth of the links on its way;
the sum of their lengths is at least the distance of the two. So the sum of bytes times distances is no more than the
sum over links of length times bandwidth times the time. A set X is the case of length 1 for the links that leave it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.collective import Collective
from collsim.theory.paths import UNREACHED
from collsim.theory.words import cut_words, named
from collsim.units import format_bandwidth

if TYPE_CHECKING:
    from collsim.topology import Topology

__all__ = ["CROSSINGS", "Cut", "Offers", "demand", "demand_of_parts", "least_time", "leaving", "offers_of"]

Array = npt.NDArray[Any]
Offers = tuple[tuple[int, int], ...]

CROSSINGS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 1, "reduce": 1}
"""How often each byte of the buffer must cross between parts, for each part but one, if the ranks do all the work."""


@dataclass(frozen=True, eq=False)
class Cut:
    """Links, what they can carry, and what is needed over them.

    Attributes
    ----------
    topology
        The machine.
    nodes
        By node, whether it is in the set that the links leave: of a cut into parts, whether it is in some part; of
        lengths, all nodes.
    links
        Numbers of the links that leave the set and are of use.
    inside
        By rank, whether it is in the set.
    offers
        ``(picoseconds, bytes a second)``: from when on, counted together with the time that the last byte needs to get
        from the link to a rank that wants it (in ``fluid`` all of the time before the first byte), a part of the links
        can carry data. A link counts for its length times its bandwidth.
    lengths
        Length of each of the ``links``, a whole number; None if all are 1.
    parts
        By node the number of its part, -1 for none; None if this is no cut into parts.
    into
        Of a cut into parts: whether the links are those that come into the parts, not those that leave them.
    ranks_only
        Whether it holds only for algorithms that leave it to the ranks to add up and to copy.
    distance
        Sum of the distances between all ordered pairs of ranks that talk, by the lengths.
    volume
        Bytes that must cross (bytes times distances, if links have lengths) in the case that it bounds; 0 before.
    method
        How it was found.
    """

    topology: Topology
    nodes: Array
    links: Array
    inside: Array
    offers: Offers
    lengths: Array | None = None
    parts: Array | None = None
    into: bool = False
    ranks_only: bool = False
    distance: int = 0
    volume: int = 0
    method: str = ""

    @property
    def capacity(self) -> int:
        """Bytes a second that the links can carry together, each times its length."""
        return sum(rate for _, rate in self.offers)

    def demand(self, collective: Collective, blocks: Array, size: int) -> int:
        """Return the bytes (times distances) that must cross; arguments as those of `demand`."""
        if self.lengths is not None:
            return self.distance * (int(blocks[0]) if collective.operation == "all_to_all" else size)
        if self.parts is not None:
            return demand_of_parts(collective, self.part_count, blocks, size)
        return demand(collective, self.inside, blocks, size)

    @cached_property
    def part_count(self) -> int:
        """Number of parts."""
        assert self.parts is not None
        return len(np.unique(self.parts[self.parts >= 0]))

    @cached_property
    def where(self) -> str:
        """What it is in words: ``into node[0]: leaf -> nic, 8 x 50GB/s for the 1,016 GPUs outside``."""
        ranks = self.topology.rank_nodes[: len(self.inside)]
        if self.lengths is not None:
            low, high = int(self.lengths.min()), int(self.lengths.max())
            each = "" if low == high else f" of lengths {low:,} to {high:,}"
            return f"over {len(self.links):,} links{each} by the distances between ranks"
        if self.parts is not None:
            first = named(self.topology, ranks[self.parts[ranks] == self.parts[ranks[0]]], ranks)
            others = f"{self.part_count - 1:,} other part{'s' * (self.part_count > 2)}"
            return f"between {first} and {others}, {format_bandwidth(self.capacity)} in all"
        return cut_words(self.topology, self.nodes, self.links, ranks)


def leaving(topology: Topology, inside: Array) -> Array:
    """Return the links that leave a set of nodes.

    Parameters
    ----------
    topology
        The machine.
    inside
        Boolean, by node.

    Examples
    --------
    >>> import numpy as np
    >>> import collsim.topology
    >>> topology = collsim.topology.ring(4, bandwidth="1GB/s", latency="1us")
    >>> leaving(topology, np.array([True, True, False, False])).tolist()
    [1]
    """
    return np.flatnonzero(inside[topology.link_src] & ~inside[topology.link_dst])


def offers_of(topology: Topology, links: Array, offered: Array, lengths: Array | None = None) -> Offers:
    """Return what links offer: those of one start together, exactly.

    Parameters
    ----------
    topology
        The machine.
    links
        Their numbers.
    offered
        By link of the machine, its start in picoseconds.
    lengths
        Length of each of the links (None: 1).
    """
    rates = topology.link_bandwidth[links]
    starts, place = np.unique(offered[links], return_inverse=True)
    totals = [0] * len(starts)
    if lengths is not None:
        for i, rate, length in zip(place.reshape(-1).tolist(), rates.tolist(), lengths.tolist(), strict=True):
            totals[i] += rate * length
    else:  # two halves, so that no sum outgrows 64 bits
        for shift, part in ((31, rates >> 31), (0, rates & (2**31 - 1))):
            sums = np.zeros(len(starts), dtype=np.int64)
            np.add.at(sums, place.reshape(-1), part)
            totals = [total + (more << shift) for total, more in zip(totals, sums.tolist(), strict=True)]
    return tuple(zip(starts.tolist(), totals, strict=True))


def least_time(volume: int, offers: Offers) -> int:
    """Return the least time in picoseconds, rounded down, in which links can carry a number of bytes.

    The link group with offer (c, B) carries at most ``B (T - c)`` bytes by the time T.

    Examples
    --------
    >>> least_time(1000, ((10, 10**12),))
    1010
    >>> least_time(1000, ((10, 10**12), (400, 10**12)))
    705
    """
    carried = rate = 0
    best = UNREACHED
    for start, bandwidth in sorted(offers):
        if start >= best:
            break
        rate += bandwidth
        carried += bandwidth * start
        best = (volume * 10**12 + carried) // rate
    return best


def demand(collective: Collective, inside: Array, blocks: Array, size: int) -> int:
    """Return the bytes that must leave a set of ranks.

    Parameters
    ----------
    collective
        The operation.
    inside
        By rank, whether it is in the set.
    blocks
        Bytes of the block of each rank (all_to_all: for each rank), for operations that have blocks.
    size
        Bytes of the buffer.
    """
    op, ranks, root = collective.operation, collective.ranks, collective.root
    within = int(inside.sum())
    if not 0 < within < ranks:
        return 0
    if op == "all_gather":
        return int(blocks[inside].sum())
    if op == "reduce_scatter":
        return int(blocks[~inside].sum())
    if op == "all_reduce":
        return size
    if op == "broadcast":
        return size if inside[root] else 0
    if op == "reduce":
        return 0 if inside[root] else size
    if op == "gather":
        return 0 if inside[root] else int(blocks[inside].sum())
    if op == "scatter":
        return int(blocks[~inside].sum()) if inside[root] else 0
    if op == "all_to_all":
        return int(blocks[0]) * within * (ranks - within)
    if op == "send_recv":
        return size * int((inside & ~np.roll(inside, -1)).sum())
    return 0


def demand_of_parts(collective: Collective, parts: int, blocks: Array, size: int) -> int:
    """Return the bytes that must cross between parts of the ranks, if the ranks do all the work.

    See `collsim.theory.partitions`. Arguments as those of `demand`.
    """
    if collective.operation in ("all_gather", "reduce_scatter"):
        size = sum(blocks.tolist())
    return CROSSINGS.get(collective.operation, 0) * (parts - 1) * size
