r"""The rings and trees that NCCL built, from what it prints with ``NCCL_DEBUG=INFO``.

Lines of rank 0 give the rings (``Channel 00/24 :  0  1  2 ...``; NCCL prints the first 20 ranks only), lines of every
rank its place in the trees (``Trees [0] 1/-1/-1->0->-1``: children, itself, parent) and, with
``NCCL_DEBUG_SUBSYS=INIT,GRAPH``, in the rings (``Ring 00 : 7 -> 0 -> 1``). Source: NCCL, ``src/init.cc`` and
``src/graph/rings.cc``.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field

from collsim.errors import InputError
from collsim.formats.loglines import log_lines

__all__ = ["NcclGraph", "read_nccl_log"]

PRINTED = 20
"""Ranks of a ring that NCCL prints in one line; the rest is left out."""
MOST_RANKS = 1 << 20
MOST_CHANNELS = 1 << 10
MOST_ENTRIES = 1 << 23

_INFO = " NCCL INFO "
_THREAD = re.compile(r"(\S{1,300}):(\d{1,10}):(\d{1,10}) \[-?\d{1,4}\]$")
_COMM = re.compile(r"(?:\w{1,60} )?comm 0x[0-9a-f]{1,16} rank (\d{1,9}) n[rR]anks (\d{1,9}) ")
_NAME = re.compile(r" commId (0x[0-9a-f]{1,16})| (?:splitCount|childCount) (\d{1,9}) color (-?\d{1,12})")
_RING = re.compile(r"Channel (\d{1,4})(?:/\d{1,4})? : +(\d{1,9}(?: +\d{1,9})*)$")
_PLACE = re.compile(r"Ring (\d{1,4}) : (\d{1,9}) -> (\d{1,9}) -> (\d{1,9})")
_TREE = re.compile(r"\[(\d{1,4})\] (-?\d{1,9})((?:/-?\d{1,9}){0,3})->(\d{1,9})->(-?\d{1,9})(/?)")
"""Channel, children, rank, parent; NCCL 2.4 and 2.5 write the parent first and the children behind the rank."""


@dataclass(frozen=True)
class NcclGraph:
    """What NCCL built for one communicator.

    Attributes
    ----------
    ranks
        Number of ranks.
    rings
        For each channel the ranks in the order in which they send; empty if the log has none.
    trees
        For each channel the parent of each rank, -1 at the root; empty if the log has none.
    version
        NCCL's version as it names itself, or an empty text.
    communicators
        How many communicators the log holds; this is the one with the most ranks, the first of them.

    Examples
    --------
    >>> NcclGraph(2, ((0, 1),), ((-1, 0),), "2.20.5", 1).channels
    1
    """

    ranks: int
    rings: tuple[tuple[int, ...], ...]
    trees: tuple[tuple[int, ...], ...]
    version: str
    communicators: int

    @property
    def channels(self) -> int:
        """Number of channels."""
        return max(len(self.rings), len(self.trees))


@dataclass
class _Communicator:
    """What the log has said of a communicator so far: places are (line number, value)."""

    ranks: int = 0
    line: int = 0
    rings: dict[int, tuple[int, list[int]]] = field(default_factory=dict)
    after: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    parents: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)


def read_nccl_log(path: str | os.PathLike[str]) -> NcclGraph:
    """Return the rings and trees of a log of NCCL.

    Parameters
    ----------
    path
        What a program printed with ``NCCL_DEBUG=INFO``; other lines may stand between, in any number.

    Raises
    ------
    InputError
        If the file cannot be read, has neither rings nor trees, or they contradict each other or have gaps; with the
        line, and what to set so that NCCL prints all.

    Notes
    -----
    ``collsim.run("all_reduce", topology, size="1GiB", algorithm="ring", order=graph.rings, channels=len(graph.rings))``
    runs NCCL's rings, ``algorithm="nccl_tree", parents=graph.trees`` its trees.
    """
    name, version = os.fsdecode(path), ""
    found: dict[str, _Communicator] = {}
    at: dict[tuple[str, str, str], _Communicator] = {}
    anybody = _Communicator()  # lines before any thread has said which communicator it is of
    entries = 0
    for number, line in log_lines(path, "a log of NCCL"):
        if not version and (named := re.search(r"NCCL version (\d[\w.+-]{0,60})", line)):
            version = named[1]
        place = line.find(_INFO)
        match = _THREAD.search(line[max(place - 400, 0) : place]) if place >= 0 else None
        if match is None:
            continue
        thread, text = (match[1], match[2], match[3]), line[place + len(_INFO) :].rstrip()
        size = _COMM.match(text)
        ranks = _within(int(size[2]), MOST_RANKS, "ranks", name, number) if size is not None else 0
        if size is not None and text.endswith("Init START"):
            at[thread] = found.setdefault(_key(text, ranks), _Communicator(ranks, number))
            continue
        comm = at.get(thread, anybody)
        if comm is anybody and ranks:
            comm.ranks, comm.line = max(comm.ranks, ranks), number
        entries += _take(comm, text, name, number)
        if entries > MOST_ENTRIES:
            raise InputError(f"{name}:{number}: expected at most {MOST_ENTRIES:,} places in rings and trees, got more")
    if anybody.rings or anybody.parents or anybody.after:
        found.setdefault("", anybody)
    graphs = [comm for comm in found.values() if comm.rings or comm.parents or comm.after]
    if not graphs:
        raise InputError(
            f"{name}: expected lines of NCCL such as 'Channel 00/24 : 0 1' or 'Trees [0] ...', got none; "
            "set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,GRAPH"
        )
    largest = max(graphs, key=_ranks_of)
    return _graph(largest, name, version, len(graphs))


def _key(text: str, ranks: int) -> str:
    """Return what tells a communicator from others: its name, or which part of which split it is.

    The parent of a split is an address, which differs from rank to rank; old versions name nothing at all.
    """
    name = _NAME.search(text)
    if name is None:
        return f"{ranks} ranks"
    return name[1] or f"{ranks} ranks of colour {name[3]} of split {name[2]}"


def _take(comm: _Communicator, text: str, name: str, number: int) -> int:
    """Keep what a line says of rings and trees, and return how many places it has."""
    if text.startswith("Channel ") and (ring := _RING.match(text)):
        channel, ranks = _channel(ring[1], name, number), [int(rank) for rank in ring[2].split()]
        known = comm.rings.setdefault(channel, (number, ranks))[1]
        if known != ranks:
            raise InputError(
                f"{name}:{number}: expected one ring for channel {channel}, got another one than in line "
                f"{comm.rings[channel][0]}; keep the lines of one run"
            )
        return len(ranks)
    if text.startswith("Ring ") and (place := _PLACE.match(text)):
        _, rank, following = int(place[2]), int(place[3]), int(place[4])
        _once(comm.after, (_channel(place[1], name, number), rank), following, "rank after", name, number)
        return 1
    if text.startswith("Trees "):
        places = list(_TREE.finditer(text))
        for place in places:
            key = (_channel(place[1], name, number), int(place[4]))
            parent = place[2] if place[6] and not place[3] else place[5]
            _once(comm.parents, key, int(parent), "parent of", name, number)
        return len(places)
    return 0


def _once(
    table: dict[tuple[int, int], tuple[int, int]], key: tuple[int, int], value: int, what: str, name: str, number: int
) -> None:
    known = table.setdefault(key, (number, value))
    if known[1] != value:
        raise InputError(
            f"{name}:{number}: expected one {what} rank {key[1]} on channel {key[0]}, got {value} here and {known[1]} "
            f"in line {known[0]}; keep the lines of one run"
        )


def _channel(text: str, name: str, number: int) -> int:
    return _within(int(text), MOST_CHANNELS - 1, "as number of a channel", name, number)


def _within(value: int, most: int, what: str, name: str, number: int) -> int:
    if value > most:
        raise InputError(f"{name}:{number}: expected at most {most:,} {what}, got {value:,}")
    return value


def _ranks_of(comm: _Communicator) -> int:
    """Return the number of ranks: what the log names, or one more than the greatest rank in it."""
    named = [rank for _, ranks in comm.rings.values() for rank in ranks]
    named += [rank for _, rank in (*comm.after, *comm.parents)]
    return max(comm.ranks, max(named, default=-1) + 1)


def _graph(comm: _Communicator, name: str, version: str, communicators: int) -> NcclGraph:
    ranks = _within(_ranks_of(comm), MOST_RANKS, "ranks", name, comm.line)
    rings = _rings(comm, ranks, name)
    trees = _trees(comm, ranks, name)
    return NcclGraph(ranks, rings, trees, version, communicators)


def _rings(comm: _Communicator, ranks: int, name: str) -> tuple[tuple[int, ...], ...]:
    channels = 1 + max([*comm.rings, *(channel for channel, _ in comm.after)], default=-1)
    rings = []
    for channel in range(channels):
        line, ring = comm.rings.get(channel, (comm.line, []))
        if len(ring) != ranks:
            ring = _walked(comm, channel, ranks, line, name)
        if sorted(ring) != list(range(ranks)):
            double = next((rank for rank, times in Counter(ring).items() if times > 1), max(ring))
            raise InputError(
                f"{name}:{line}: expected each of the ranks 0 to {ranks - 1} once in the ring of channel {channel}, "
                f"got {double} {'twice' if ring.count(double) > 1 else 'too'}"
            )
        rings.append(tuple(ring))
    return tuple(rings)


def _walked(comm: _Communicator, channel: int, ranks: int, line: int, name: str) -> list[int]:
    """Return a ring from the neighbours that each rank has named."""
    ring, rank = [0], 0
    for _ in range(ranks - 1):
        if (channel, rank) not in comm.after:
            printed = len(comm.rings.get(channel, (0, []))[1])
            why = f"NCCL prints the first {PRINTED} only; " if printed == PRINTED < ranks else ""
            raise InputError(
                f"{name}:{max(line, 1)}: expected all {ranks} ranks of the ring of channel {channel}, got no 'Ring' "
                f"line of rank {rank}; {why}set NCCL_DEBUG_SUBSYS=INIT,GRAPH and keep the output of every rank"
            )
        rank = comm.after[channel, rank][1]
        ring.append(rank)
    return ring


def _trees(comm: _Communicator, ranks: int, name: str) -> tuple[tuple[int, ...], ...]:
    channels = 1 + max((channel for channel, _ in comm.parents), default=-1)
    trees = []
    for channel in range(channels):
        parents = []
        for rank in range(ranks):
            line, parent = comm.parents.get((channel, rank), (0, -2))
            if parent == -2:
                raise InputError(
                    f"{name}: expected a 'Trees' line of each of the {ranks} ranks, got none of rank {rank} for "
                    f"channel {channel}; keep the output of every rank"
                )
            if not -1 <= parent < ranks or parent == rank:
                raise InputError(
                    f"{name}:{line}: expected a parent from -1 to {ranks - 1}, got {parent} for rank {rank}"
                )
            parents.append(parent)
        if parents.count(-1) != 1:
            raise InputError(
                f"{name}: expected one root in the tree of channel {channel}, got {parents.count(-1)}; keep the "
                "lines of one run"
            )
        trees.append(tuple(parents))
    return tuple(trees)
