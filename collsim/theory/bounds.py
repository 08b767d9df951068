"""Lower bounds: the least time that a collective can take on a topology, whatever the algorithm.

Three terms, the greatest of which is the bound. **latency**: data must get from one rank to another. **injection**: a
rank must send or receive so many bytes through its own links, all together so many, and somebody must add them up.
**cut**: so many bytes must cross from one part of the machine to the rest, or between many parts. The last two count
from the first moment at which data can be at a link to the last at which it can leave for its destination.

No time that is simulated with shared links (``store_and_forward``, ``cut_through``, ``fluid``) is below the bound. In
``alpha_beta`` links are not shared, and only the latency is a bound.

What holds whatever switches do, and what only as long as ranks do all the work, is in `collsim.theory.cuts` and
`collsim.theory.partitions`; how the worst cuts are found in `collsim.theory.search`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collsim.collective import Collective
from collsim.errors import InputError, TopologyError
from collsim.theory.costs import whole
from collsim.theory.cuts import Cut, Offers, least_time
from collsim.theory.limits import Limits, limits_of
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
    method
        How the cuts were searched of which the bound is the greatest: ``by maximum flow``, ``best of 34 cuts that were
        tried``. By it you see whether there might be a greater bound.
    binding
        The links that make it so: a `Cut` with ``nodes``, ``links`` and the ``volume`` that must cross; None where it
        is no matter of bandwidth of links.
    rate
        What the bound comes to as the size grows: size over time, in bytes/s (algbw); infinite where only latency
        counts.
    without_switches
        The bound for algorithms that leave it to the ranks to add up and to copy; greater where the machine has
        switches that reduce or multicast.

    Examples
    --------
    >>> import collsim.topology
    >>> topology = collsim.topology.ring(4, bandwidth="1GB/s", latency="1us")
    >>> bound = lower_bound(Collective("all_gather", 4), 4000, topology)
    >>> print(f"{bound * 1e6:.0f} us, {bound.reason}")
    4 us, cut: into gpu0: gpu -> gpu, 1 x 1GB/s for the 3 GPUs outside (by maximum flow)
    >>> bound.binding.volume, len(bound.binding.links), round(bound.rate / 1e9, 3)
    (3000, 1, 1.333)
    """

    latency: float
    injection: float
    cut: float
    method: str
    binding: Cut | None
    rate: float
    without_switches: float
    _reason: str | Callable[[], str]

    @classmethod
    def of(
        cls,
        latency: float,
        injection: float,
        cut: float,
        reason: str | Callable[[], str],
        without_switches: float = 0.0,
        *,
        method: str = "",
        binding: Cut | None = None,
        rate: float = math.inf,
    ) -> Bound:
        """Make the bound that is the greatest of the terms; a reason that is a function is called when asked for."""
        new = cls(max(latency, injection, cut))
        new.latency, new.injection, new.cut, new._reason = latency, injection, cut, reason
        new.without_switches = max(float(new), without_switches)
        new.method, new.binding, new.rate = method, binding, rate
        return new

    @property
    def reason(self) -> str:
        """Which term it is, and where, in one line."""
        if not isinstance(self._reason, str):
            self._reason = self._reason()
        return self._reason

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reason": self.reason}

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
    exact: bool = False,
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
    exact
        Take the time, seconds perhaps, to find the greatest bound of an all_to_all of up to 64 ranks, by a linear
        program (needs SciPy); otherwise it is the best of those that are tried. Other operations are searched by
        maximum flow in any case.

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
    limits = limits_of(collective, topology, network, exact=exact)
    latency, latency_term = _latency(collective, topology, limits, held)
    if network == "alpha_beta" or barrier:
        return Bound.of(latency * _PICO, 0.0, 0.0, latency_term, method="by shortest paths")
    terms = list(_terms(collective, limits, held, used))
    times = [least_time(term.volume, term.offers) for term in terms]
    if network == "fluid":  # a flow may lack 1e-12 of its bytes there, for the sake of its floats
        times = [time - (time >> 39) for time in times]
    best = {"injection": 0, "cut": 0}
    top, greatest = None, -1
    for time, term in zip(times, terms, strict=True):
        if not term.ranks_only:
            best[term.kind] = max(best[term.kind], time)
            if time > greatest:
                top, greatest = term, time
    if top is None or latency > greatest:
        reason: str | Callable[[], str] = latency_term
        method, binding = "by shortest paths", None
    else:
        reason, method, binding = top.words, top.method, top.binding()
    return Bound.of(
        latency * _PICO,
        best["injection"] * _PICO,
        best["cut"] * _PICO,
        reason,
        max(times, default=0) * _PICO,
        method=method,
        binding=binding,
        rate=_rate(collective, limits, exact=exact),
    )


class _Term(NamedTuple):
    """Bytes that must cross links, or be added up, and what can do it."""

    kind: str
    volume: int
    offers: Offers
    words: Callable[[], str]
    method: str
    ranks_only: bool = False
    cut: Callable[[], Cut] | None = None

    def binding(self) -> Cut | None:
        """Return the cut with its volume."""
        return None if self.cut is None else replace(self.cut(), volume=self.volume)


def _blocks(collective: Collective, size: int, element_size: int, blocks: Sequence[int] | None) -> Array:
    if blocks is None:
        return collective.chunk_elements(size // element_size, collective.ranks) * element_size
    given = np.array([whole("blocks", block) for block in blocks], dtype=np.int64)
    if given.shape != (collective.ranks,):
        raise InputError(f"blocks: expected one a rank ({collective.ranks}), got {given.size}")
    return given


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


def _terms(collective: Collective, limits: Limits, blocks: Array, size: int) -> Iterator[_Term]:
    """Yield all that takes time for lack of bandwidth; of equal times the first one is told."""
    topology, ranks = limits.topology, collective.ranks
    method = limits.cuts[0].method if limits.cuts else ""
    for cut in limits.cuts + limits.parts:
        volume = cut.demand(collective, blocks, size)
        if not volume:
            continue
        if cut.parts is not None and cut.part_count == ranks:
            kind, words = (
                "injection",
                partial(str, f"injection: all {ranks} ranks together at {format_bandwidth(cut.capacity)}"),
            )
        else:
            kind, words = "cut", partial(_cut_text, cut)
        yield _Term(kind, volume, cut.offers, words, cut.method, cut.ranks_only, partial(_same, cut))
    sent, received = _ports(collective, blocks, size)
    for into, volumes, rate, start in (
        (False, sent, limits.out_rate, limits.out_start),
        (True, received, limits.in_rate, limits.in_start),
    ):
        rows, first = np.unique(np.stack([volumes, rate, start], axis=1), axis=0, return_index=True)
        for (volume, speed, since), rank in zip(rows.tolist(), first.tolist(), strict=True):
            if volume and speed:
                words = partial(_port_text, topology, rank, into, speed)
                alone = partial(limits.alone, rank, into=into)
                yield _Term("injection", volume, ((since, speed),), words, method, cut=alone)
    adding = topology.reduce_bandwidth[topology.rank_nodes[:ranks]]
    if collective.reduces and adding.all():
        together = sum(adding.tolist())
        first_use = int(min(limits.out_start.min(), limits.in_start.min()))
        words = partial(str, f"injection: reduction on all {ranks} ranks together at {format_bandwidth(together)}")
        volume = (ranks - 1) * size
        yield _Term("injection", volume, ((first_use, together),), words, "by counting", bool(topology.reduces.any()))


def _same(cut: Cut) -> Cut:
    return cut


def _cut_text(cut: Cut) -> str:
    return f"cut: {cut.where} ({cut.method})"


def _port_text(topology: Topology, rank: int, into: bool, rate: int) -> str:
    return f"injection: {'into' if into else 'out of'} {topology.ranks[rank]} at {format_bandwidth(rate)}"


def _ports(collective: Collective, blocks: Array, size: int) -> tuple[Array, Array]:
    """Return the bytes that each rank must send, and receive, at the least."""
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
    return sent, received


def _rate(collective: Collective, limits: Limits, *, exact: bool) -> float:
    """Return size over bound for endless sizes, from equal blocks of as many bytes as there are ranks."""
    cache, key = limits.topology.cache, ("rate", collective, exact)
    if key not in cache:
        count = collective.ranks
        rates = [
            Fraction(count**2 * sum(rate for _, rate in term.offers), term.volume)
            for term in _terms(collective, limits, np.full(count, count, dtype=np.int64), count**2)
            if not term.ranks_only
        ]
        cache[key] = float(min(rates)) if rates else math.inf
    return cache[key]  # type: ignore[no-any-return]
