"""MultiTree: one tree for each rank, all grown at once over links that are free.

An all_gather in time slots. In every slot each tree in turn takes one more rank, from one that was in the tree when the
slot began, over a route whose links nobody has taken in this slot; when no tree can take another rank the next slot
begins. Neighbours are taken by their number, or beginning after the sender: whichever takes fewer slots. No link
carries two messages in a slot, on any topology (Huang, Majumder, Kim, Muzahid, Yum and Kim, "Communication
algorithm-architecture co-design for distributed deep learning", 2021). Time of an all_gather: ``slots (alpha + S/(N
B))``; a reduce_scatter is the same on the reversed graph, run backwards.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np

from collsim.algorithms.common import at_least_one, refuse_rows
from collsim.algorithms.derive import reverse, then
from collsim.algorithms.registry import algorithm
from collsim.collective import Collective
from collsim.errors import AlgorithmError, shown
from collsim.schedule import Schedule, ScheduleBuilder

__all__ = ["multitree_all_gather", "multitree_all_reduce", "multitree_reduce_scatter"]

Routes = Mapping[tuple[int, ...], Sequence[Hashable]]


MOST_CHANNELS = 1 << 16
"""Channels of routes are below or at this number."""


class _Way:
    """A route from a rank to a neighbour: where it goes, on which channel, over which links."""

    __slots__ = ("channel", "dst", "links")

    def __init__(self, dst: int, channel: int, links: frozenset[Hashable]) -> None:
        self.dst, self.channel, self.links = dst, channel, links


def _ways(ranks: int, routes: Routes | None, backwards: bool) -> list[list[_Way]]:
    """Routes out of each rank (into it, when going backwards), by neighbour and channel."""
    refuse_rows(ranks * ranks)
    ways: list[list[_Way]] = [[] for _ in range(ranks)]
    if routes is None:
        for a in range(ranks):
            after = ((a + 1 + i) % ranks for i in range(ranks - 1))  # no two ranks begin with the same receiver
            ways[a] = [_Way(b, 0, frozenset([(b, a) if backwards else (a, b)])) for b in after]
        return ways
    if not isinstance(routes, Mapping):
        raise AlgorithmError(f"routes: expected links by (source, destination), got {type(routes).__name__}")
    for key in routes:
        whole = isinstance(key, tuple) and all(isinstance(number, (int, np.integer)) for number in key)
        if not whole or len(key) not in (2, 3) or min(key) < 0 or max(key[:2]) >= ranks or max(key) > MOST_CHANNELS:
            pair = "(source, destination, channel)" if whole and len(key) == 3 else "(source, destination)"
            raise AlgorithmError(f"routes: expected {pair} of ranks 0 to {ranks - 1}, got {shown(key)}")
    for key in sorted(routes):
        try:
            links = frozenset(routes[key])
        except TypeError:  # no series, or something in it that cannot be told from others
            raise AlgorithmError(
                f"routes: expected the names of the links from {key[0]} to {key[1]}, got {shown(routes[key])}"
            ) from None
        a, b = key[1::-1] if backwards else key[:2]
        ways[a].append(_Way(b, key[2] if len(key) == 3 else 0, links))
    for row in ways:
        row.sort(key=lambda way: (way.dst, way.channel))
    return ways


Message = tuple[int, int, int, int, int]
"""Slot, source, destination, tree, channel."""


def _shortest(ranks: int, ways: list[list[_Way]]) -> list[Message]:
    """Grow the trees twice, with neighbours by number or from the next one on, and return what takes fewer slots."""
    turned = [sorted(row, key=lambda way: (way.dst - rank) % ranks) for rank, row in enumerate(ways)]
    return min(_grow(ranks, ways), _grow(ranks, turned), key=lambda messages: messages[-1][0] if messages else 0)


def _grow(ranks: int, ways: list[list[_Way]]) -> list[Message]:
    """Return the messages of trees that take neighbours in the order of the ways."""
    members = [[root] for root in range(ranks)]
    missing = [set(range(ranks)) - {root} for root in range(ranks)]
    # ways that lead on from each member, and the links that all ways out of a rank share
    shared = [frozenset.intersection(*(way.links for way in row)) if row else frozenset() for row in ways]
    messages: list[Message] = []
    slot = 0
    growing = [tree for tree in range(ranks) if missing[tree]]
    while growing:
        busy: set[Hashable] = set()
        candidates = {tree: _candidates(members[tree], missing[tree], ways, shared, busy) for tree in growing}
        active, before = growing, len(messages)
        while active:
            still = []
            for tree in active:
                found = next(candidates[tree], None)
                if found is None:
                    continue
                src, way = found
                busy |= way.links
                missing[tree].discard(way.dst)
                members[tree].append(way.dst)
                messages.append((slot, src, way.dst, tree, way.channel))
                still.append(tree)
            active = still
        if len(messages) == before:
            tree = growing[0]
            raise AlgorithmError(
                f"routes: expected a way from each rank to each other, got none from rank {tree} to rank "
                f"{min(missing[tree])}"
            )
        growing = [tree for tree in growing if missing[tree]]
        slot += 1
    return messages


def _candidates(
    members: list[int],
    missing: set[int],
    ways: list[list[_Way]],
    shared: list[frozenset[Hashable]],
    busy: set[Hashable],
) -> Iterator[tuple[int, _Way]]:
    """Yield (member, way) that can be used now, looking at each but once: what was not free stays so in this slot."""
    for src in tuple(members):  # those that were in the tree when the slot began
        if not busy.isdisjoint(shared[src]):
            continue
        for way in ways[src]:
            if way.dst in missing and busy.isdisjoint(way.links):
                yield src, way


def _all_gather(ranks: int, routes: Routes | None, backwards: bool = False) -> Schedule:
    b = ScheduleBuilder(Collective("all_gather", ranks), ranks)
    messages = _shortest(ranks, _ways(ranks, routes, backwards))
    if messages:
        slot, src, dst, tree, channel = np.array(messages, dtype=np.int64).T
        b.copy(src, dst, tree, step=slot, channel=channel)
    return b.build()


def _multitree(operation: str, ranks: int, routes: Routes | None, limit: int) -> Schedule:
    at_least_one(limit=limit)
    if routes is not None and ranks > limit:
        raise AlgorithmError(
            f"ranks: multitree hands out links one by one, so {ranks} ranks would take minutes or hours; expected at "
            f"most {limit}; use rail or hierarchical, or a greater limit"
        )
    if operation == "all_gather":
        return _all_gather(ranks, routes)
    scatter = reverse(_all_gather(ranks, routes, backwards=True), "reduce_scatter")
    return scatter if operation == "reduce_scatter" else then(scatter, _all_gather(ranks, routes), operation)


@algorithm("all_reduce", "multitree")
def multitree_all_reduce(ranks: int, *, routes: Routes | None = None, limit: int = 256) -> Schedule:
    """Reduce up one tree a rank, then broadcast down another: ``2 slots (alpha + S/(N B))``, plus ``S/N gamma`` a slot.

    Parameters
    ----------
    ranks
        Any number from 1.
    routes
        ``(source, destination)`` to the links that a message between these two ranks crosses, any names; pairs that are
        not there do not talk. ``(source, destination, channel)`` are further routes between two ranks. A link of its
        own for each pair if not given (`collsim.run` takes the topology's neighbours).
    limit
        Most ranks, where routes are given: the work grows faster than with their square.

    Examples
    --------
    A 2 x 2 mesh has no links across:

    >>> pairs = [(0, 1), (0, 2), (1, 3), (2, 3)]
    >>> routes = {way: (way,) for a, b in pairs for way in ((a, b), (b, a))}
    >>> multitree_all_reduce(4, routes=routes)
    <Schedule multitree all_reduce ranks=4 chunks=4 steps=4 transfers=24>
    """
    return _multitree("all_reduce", ranks, routes, limit)


@algorithm("reduce_scatter", "multitree")
def multitree_reduce_scatter(ranks: int, *, routes: Routes | None = None, limit: int = 256) -> Schedule:
    """Reduce up one tree a rank: the trees of all_gather on the reversed graph, run backwards.

    Parameters as in `multitree_all_reduce`.

    Examples
    --------
    >>> multitree_reduce_scatter(4)
    <Schedule multitree reduce_scatter ranks=4 chunks=4 steps=1 transfers=12>
    """
    return _multitree("reduce_scatter", ranks, routes, limit)


@algorithm("all_gather", "multitree")
def multitree_all_gather(ranks: int, *, routes: Routes | None = None, limit: int = 256) -> Schedule:
    """Broadcast down one tree a rank: ``slots (alpha + S/(N B))``. Parameters as in `multitree_all_reduce`.

    Examples
    --------
    On a 2 x 2 mesh two slots, where a ring takes three steps:

    >>> pairs = [(0, 1), (0, 2), (1, 3), (2, 3)]
    >>> routes = {way: (way,) for a, b in pairs for way in ((a, b), (b, a))}
    >>> schedule = multitree_all_gather(4, routes=routes)
    >>> for step, t in schedule.iter_steps():
    ...     print(step, *(f"{a}->{b}:{c}" for a, b, c in zip(t.src, t.dst, t.src_chunks)))
    0 0->1:0 1->0:1 2->0:2 3->1:3 0->2:0 1->3:1 2->3:2 3->2:3
    1 1->3:0 0->2:1 0->1:2 1->0:3
    """
    return _multitree("all_gather", ranks, routes, limit)
