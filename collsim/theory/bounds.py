"""Lower bounds: the least time that a collective can take on a topology, whatever the algorithm.

Three terms, the greatest of which is the bound. **latency**: data must get from one rank to another. **injection**: a
rank must send or receive so many bytes through its own links, all together so many, and somebody must add them up.
**cut**: so many bytes must cross from one part of the machine to the rest. The last two count from the first moment at
which data can be at a link to the last at which it can leave for its destination.

No time that is simulated with shared links (``store_and_forward``, ``cut_through``, ``fluid``) is below the bound. In
``alpha_beta`` links are not shared, and only the latency is a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.collective import Collective
from collsim.errors import InputError, TopologyError
from collsim.theory.costs import whole
from collsim.theory.limits import Limits, demand, least_time, limits_of
from collsim.theory.paths import UNREACHED
from collsim.units import format_bandwidth, format_time

if TYPE_CHECKING:
    from collsim.topology import Topology

__all__ = ["Bound", "lower_bound"]

Array = npt.NDArray[Any]

_PICO = 1e-12


class Bound(float):
    """A lower bound of a time, in seconds.

    Attributes
    ----------
    latency, injection, cut
        The terms in seconds; the bound is the greatest.
    reason
        Which term it is, and where.
    without_switches
        The bound for algorithms that leave it to the ranks to add up and to copy; greater where the machine has
        switches that reduce or multicast.

    Examples
    --------
    >>> import collsim.topology
    >>> topology = collsim.topology.ring(4, bandwidth="1GB/s", latency="1us")
    >>> bound = lower_bound(Collective("all_gather", 4), 4000, topology)
    >>> print(f"{bound * 1e6:.0f} us, {bound.reason}")
    4 us, cut: into gpu0 over 1 link of 1GB/s (by maximum flow)
    """

    latency: float
    injection: float
    cut: float
    reason: str
    without_switches: float

    @classmethod
    def of(cls, latency: float, injection: float, cut: float, reason: str, without_switches: float = 0.0) -> Bound:
        """Make the bound that is the greatest of the terms."""
        new = cls(max(latency, injection, cut))
        new.latency, new.injection, new.cut, new.reason = latency, injection, cut, reason
        new.without_switches = max(float(new), without_switches)
        return new

    def __repr__(self) -> str:
        return f"<Bound {float(self):.6g} s, {self.reason}>"


def lower_bound(
    collective: Collective,
    size: int,
    topology: Topology,
    *,
    network: str = "cut_through",
    element_size: int = 1,
    blocks: Sequence[int] | None = None,
) -> Bound:
    """Return the least time that a collective can take.

    Parameters
    ----------
    collective
        The operation; its ranks are the first ones of the topology.
    size
        Bytes, as nccl-tests counts them.
    topology
        The machine. What is searched on it is kept in its ``cache``, so that many sizes cost little more than one.
    network
        Network model of the times that are compared with the bound.
    element_size
        Bytes of an element; blocks hold whole elements.
    blocks
        Bytes of the block of each rank, where the size is no multiple of the ranks and they are not those of
        `Collective.chunk_elements` with one chunk a rank.

    Raises
    ------
    InputError
        If the size is no whole number of bytes from 0 to 2**63 - 1, the topology has too few ranks, or there is not
        one block a rank.
    TopologyError
        If data cannot get from one rank to another that needs it.

    Examples
    --------
    Four ranks joined all to all, 1 GB/s a link: each receives three quarters of the size over three links.

    >>> import collsim.topology
    >>> topology = collsim.topology.fully_connected(4, bandwidth="1GB/s", latency="1us")
    >>> bound = lower_bound(Collective("all_gather", 4), 4_000_000, topology)
    >>> round(bound * 1e6), round(bound.latency * 1e6), round(bound.cut * 1e6)
    (1001, 1, 1001)
    """
    size, element_size = whole("size", size), whole("element_size", element_size, least=1)
    if collective.ranks > topology.n_ranks:
        raise InputError(f"ranks: topology {topology.name!r} has {topology.n_ranks}, got {collective.ranks}")
    barrier = collective.operation == "barrier"
    if collective.ranks == 1 or (size < element_size and not barrier):
        return Bound.of(0.0, 0.0, 0.0, "no data has to travel")
    used = size // element_size * element_size
    held = _blocks(collective, used, element_size, blocks)
    limits = limits_of(collective, topology, network)
    latency, latency_reason = _latency(collective, topology, limits, held)
    if network == "alpha_beta" or barrier:
        return Bound.of(latency * _PICO, 0.0, 0.0, latency_reason)
    takes_part = bool(topology.reduces.any() or topology.multicasts.any())
    injection, injection_reason = _injection(collective, topology, limits, held, used, alone=not takes_part)
    cut, cut_reason = _cut(collective, topology, limits, held, used)
    if network == "fluid":  # a flow may lack 1e-12 of its bytes there, for the sake of its floats
        injection, cut = injection - (injection >> 39), cut - (cut >> 39)
    terms = [(cut, cut_reason), (injection, injection_reason), (latency, latency_reason)]
    without = _injection(collective, topology, limits, held, used, alone=True)[0] if takes_part else 0
    reason = max(terms, key=_time)[1]
    return Bound.of(latency * _PICO, injection * _PICO, cut * _PICO, reason, without * _PICO)


def _blocks(collective: Collective, size: int, element_size: int, blocks: Sequence[int] | None) -> Array:
    if blocks is None:
        return collective.chunk_elements(size // element_size, collective.ranks) * element_size
    given = np.array([whole("blocks", block) for block in blocks], dtype=np.int64)
    if given.shape != (collective.ranks,):
        raise InputError(f"blocks: expected one a rank ({collective.ranks}), got {given.size}")
    return given


def _time(term: tuple[int, str]) -> int:
    return term[0]


def _latency(collective: Collective, topology: Topology, limits: Limits, blocks: Array) -> tuple[int, str]:
    """Greatest of the least latencies between ranks of which one needs what the other holds."""
    op = collective.operation
    wanted = limits.sources != limits.sinks
    if op in ("all_gather", "gather", "all_to_all"):
        wanted &= blocks[limits.sources] > 0
    if op in ("reduce_scatter", "scatter", "all_to_all"):
        wanted &= blocks[limits.sinks] > 0
    if not wanted.any():
        return 0, "no data has to travel"
    farthest = int(np.where(wanted, limits.latencies, -1).argmax())
    time = int(limits.latencies[farthest])
    source, sink = (topology.ranks[int(ends[farthest])] for ends in (limits.sources, limits.sinks))
    if time >= UNREACHED:
        raise TopologyError(f"topology {topology.name!r}: no path from {source} to {sink}, so no {op}")
    return time, f"latency: {source} to {sink}, {format_time(time)}"


def _injection(
    collective: Collective, topology: Topology, limits: Limits, blocks: Array, size: int, *, alone: bool
) -> tuple[int, str]:
    """Least time for what ranks must send and receive; ``alone`` if no switch reduces or multicasts for them."""
    op, ranks, root = collective.operation, collective.ranks, collective.root
    everyone = np.arange(ranks)
    if op in ("all_gather", "gather"):
        sent, received = blocks, blocks.sum() - blocks
    elif op in ("reduce_scatter", "scatter"):
        sent, received = blocks.sum() - blocks, blocks
    elif op == "all_to_all":
        sent = received = blocks * (ranks - 1)
    else:
        sent = received = np.full(ranks, size, dtype=np.int64)
    if op in ("gather", "reduce"):
        sent, received = np.where(everyone == root, 0, sent), np.where(everyone == root, received, 0)
    if op in ("scatter", "broadcast"):
        sent, received = np.where(everyone == root, sent, 0), np.where(everyone == root, 0, received)
    terms: list[tuple[int, str]] = []
    for way, volume, rate, start in (
        ("out of", sent, limits.out_rate, limits.out_start),
        ("into", received, limits.in_rate, limits.in_start),
    ):
        rows, first = np.unique(np.stack([volume, rate, start], axis=1), axis=0, return_index=True)
        each = [least_time(amount, ((since, speed),)) if amount else 0 for amount, speed, since in rows.tolist()]
        worst = int(np.argmax(each))
        where = f"injection: {way} {topology.ranks[int(first[worst])]} at {format_bandwidth(int(rows[worst, 1]))}"
        terms.append((each[worst], where))
    first_use = int(min(limits.out_start.min(), limits.in_start.min()))
    if alone:
        # each transfer serves one rank, so all of them together send this much
        total = sum(received.tolist()) if op != "reduce" else (ranks - 1) * size
        if op in ("all_reduce", "reduce_scatter"):
            total = (ranks - 1) * size * (2 if op == "all_reduce" else 1)
        together = int(min(limits.out_rate.sum(), limits.in_rate.sum()))
        where = f"injection: all {ranks} ranks together at {format_bandwidth(together)}"
        terms.append((least_time(total, ((first_use, together),)) if total else 0, where))
    adding = topology.reduce_bandwidth[topology.rank_nodes[:ranks]]
    if collective.reduces and adding.all() and alone:
        together = int(adding.sum())
        where = f"injection: reduction on all {ranks} ranks together at {format_bandwidth(together)}"
        terms.append((least_time((ranks - 1) * size, ((first_use, together),)), where))
    return max(terms, key=_time)


def _cut(collective: Collective, topology: Topology, limits: Limits, blocks: Array, size: int) -> tuple[int, str]:
    best, worst = 0, None
    for cut in limits.cuts:
        volume = demand(collective, cut.inside, blocks, size)
        if volume and (time := least_time(volume, cut.offers)) > best:
            best, worst = time, cut
    return best, f"cut: {'' if worst is None else worst.where} ({limits.method})"
