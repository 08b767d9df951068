"""The critical path: which transfers determine the time, and what their time goes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.engine.program import COPY, LINK, REDUCER, SENDER, Program, Times

__all__ = ["PARTS", "CriticalPath", "critical_path"]

Array = npt.NDArray[Any]

PARTS = ("latency", "serialisation", "queueing", "reduction", "overhead", "pacing")
"""What time is put down to; ``pacing`` is waiting for written edges other than a predecessor's end."""
CAUSE = {name: number for number, name in enumerate(PARTS)}

OWN = {SENDER: "overhead", COPY: "serialisation", LINK: "serialisation", REDUCER: "reduction"}
"""What the time at a station is, if the message itself or an earlier one of the same sender holds it."""


@dataclass(frozen=True)
class CriticalPath:
    """What determines the simulated time.

    Attributes
    ----------
    transfers
        Numbers of the transfers on the path, first to last. Each one made the next wait: it brought its data, or held a
        station (a link, a sender, a reducer) that the next one needed.
    parts
        Picoseconds for each of `PARTS`; they sum to the simulated time. Waiting for a station while messages of the
        same sender hold it is their serialisation (or overhead, or reduction): a pipeline, or a port that serves
        several peers. While messages of other senders hold it, it is queueing.
    pieces
        Where each piece of the time lies, first to last, as columns; pieces of no time are left out, and each begins
        where the one before ends: ``start_ps``, ``end_ps``; ``cause`` (position in `PARTS`); ``transfer`` whose time it
        is; ``station`` of the program and ``link`` of the topology where it passes (-1 where there is none: the link of
        a sender, or the station of pacing); ``behind``, the transfer that held the station meanwhile (-1 if it is the
        transfer's own time). Where links are shared (``fluid``), queueing lies on that link of the route which carries
        the most.
    """

    transfers: tuple[int, ...]
    parts: dict[str, int]
    pieces: Mapping[str, Array] = field(repr=False, compare=False)


def critical_path(program: Program, times: Times, network: str) -> CriticalPath:
    """Walk back from the transfer that ends last, event by event, to time 0."""
    if not program.transfers:
        return CriticalPath((), dict.fromkeys(PARTS, 0), _columns(program, []))
    walk = _Walk(program, times, network)
    node: int | None = int(np.argmax(times.end))
    while node is not None:
        node = walk.through(node)
    return CriticalPath(tuple(walk.path[::-1]), walk.parts, _columns(program, walk.pieces[::-1]))


def _columns(program: Program, pieces: list[tuple[int, int, int, int, int]]) -> dict[str, Array]:
    """Lay pieces (picoseconds, cause, transfer, station, transfer ahead) one after the other, the first from time 0."""
    took, cause, transfer, station, behind = np.array(pieces, dtype=np.int64).reshape(-1, 5).T
    end = np.cumsum(took)
    link = np.full(len(took), -1, dtype=np.int64)
    on_link = station >= 0
    on_link[on_link] = program.station_kind[station[on_link]] == LINK
    link[on_link] = program.station_index[station[on_link]]
    columns = {
        "start_ps": end - took, "end_ps": end, "cause": cause, "transfer": transfer, "station": station, "link": link,
        "behind": behind,
    }  # fmt: skip
    for column in columns.values():
        column.flags.writeable = False
    return columns


class _Walk:
    """State of one walk back: what was passed, and what its time was put down to."""

    def __init__(self, program: Program, times: Times, network: str) -> None:
        self.program, self.times, self.network = program, times, network
        self.path: list[int] = []
        self.parts = dict.fromkeys(PARTS, 0)
        self.pieces: list[tuple[int, int, int, int, int]] = []  # last to first
        self.waiter: int | None = None  # the transfer that waits at the station whose holders are being passed
        self.kind = program.station_kind[program.visit_station]
        self.owner = np.repeat(np.arange(program.nodes), np.diff(program.visit_ptr))
        self.ends = np.concatenate([times.end, np.zeros(program.joins, dtype=np.int64)])
        for join in range(program.transfers, program.nodes):
            preds = program.pred[program.pred_ptr[join] : program.pred_ptr[join + 1]]
            self.ends[join] = self.ends[preds].max(initial=0)
        self.queues = network in ("store_and_forward", "cut_through")
        if self.queues:
            # who was served before whom; of two that start together the one that held the station for no time was first
            order = np.lexsort((self.owner, program.visit_busy, times.visit_start, program.visit_station))
            station = program.visit_station[order]
            self.before = np.full(len(order), -1, dtype=np.int64)
            same = station[1:] == station[:-1]
            self.before[order[1:][same]] = order[:-1][same]
        else:
            self.carried = np.zeros(len(program.station_kind), dtype=np.int64)
            np.add.at(self.carried, program.visit_station, program.visit_busy)

    def put(self, cause: str, took: int, node: int, visit: int = -1, behind: int = -1) -> None:
        """Put a piece of the time, the one before all that were put so far, down to a cause, a transfer and a visit."""
        self.parts[cause] += took
        if took:
            station = int(self.program.visit_station[visit]) if visit >= 0 else -1
            self.pieces.append((took, CAUSE[cause], node, station, behind))

    def through(self, node: int) -> int | None:
        """Explain the time back from the end of a transfer to where it, or a holder, was ready; return who is next."""
        if node < self.program.transfers:
            self.path.append(node)
            if not self.queues:
                self._whole(node)
            else:
                visit = self._last(node)
                while visit is not None:
                    node = int(self.owner[visit])
                    if self.path[-1] != node:
                        self.path.append(node)
                    visit = self._back(node, visit)
        return self._predecessor(node)

    def _whole(self, node: int) -> None:
        """Account for a message as a whole, where stations are not held one after the other."""
        program, times = self.program, self.times
        now = int(times.ready[node])
        visits = range(int(program.visit_ptr[node]), int(program.visit_ptr[node + 1]))
        way = [v for v in visits if self.kind[v] in (LINK, COPY)]
        found: list[tuple[str, int, int]] = []  # cause, picoseconds, visit; first to last
        for v in visits:
            start, busy = int(times.visit_start[v]), int(program.visit_busy[v])
            if self.kind[v] in (SENDER, REDUCER):
                found += [("queueing", start - now, v), (OWN[int(self.kind[v])], busy, v)]
                now = start + busy
            elif v == way[0]:
                latency = sum(int(program.visit_latency[w]) for w in way)
                slowest = max(way, key=lambda w: int(program.visit_busy[w]))
                fullest = max(way, key=lambda w: int(self.carried[program.visit_station[w]]))
                serial = int(program.visit_busy[slowest])
                # the fluid model pays latency first, so its links end with the message
                last = int(program.visit_latency[way[-1]]) if self.network != "fluid" else 0
                arrival = int(times.visit_end[way[-1]]) + last
                found += [("latency", int(program.visit_latency[w]), w) for w in way]
                found += [
                    ("serialisation", serial, slowest),
                    ("queueing", arrival - now - latency - serial, fullest),
                ]
                now = arrival
        for cause, took, visit in reversed(found):
            self.put(cause, took, node, visit)

    def _last(self, node: int) -> int | None:
        """Go from the end of a transfer to the start of the visit that its end follows from."""
        lo, hi = int(self.program.visit_ptr[node]), int(self.program.visit_ptr[node + 1])
        if lo == hi:
            return None
        if self.kind[hi - 1] == REDUCER:
            self.put("reduction", int(self.program.visit_busy[hi - 1]), node, hi - 1)
            return hi - 1
        return self._wire(node, hi - 1)

    def _wire(self, node: int, last: int) -> int:
        """Go from a message's arrival to the start of the visit whose serialisation it waited for."""
        start, busy, latency = self.times.visit_start, self.program.visit_busy, self.program.visit_latency
        if self.kind[last] == SENDER:
            self.put("overhead", int(busy[last]), node, last)
            return last
        self.put("latency", int(latency[last]), node, last)
        tail = int(self.times.visit_end[last])
        while int(start[last] + busy[last]) != tail:  # its tail came later than its head allowed: a slower link before
            last -= 1
            self.put("latency", int(latency[last]), node, last)
            tail = int(self.times.visit_end[last])
        self.put("serialisation", int(busy[last]), node, last)
        return last

    def _back(self, node: int, visit: int) -> int | None:
        """Go from the start of a visit to the start of the one it waited for; None at the transfer's ready time."""
        program, times = self.program, self.times
        lo = int(program.visit_ptr[node])
        start = int(times.visit_start[visit])
        if visit == lo:
            arrival = int(times.ready[node])
        elif self.kind[visit - 1] == SENDER:
            arrival = int(times.visit_start[visit - 1] + program.visit_busy[visit - 1])
        elif self.kind[visit] != REDUCER and self.network == "cut_through":
            arrival = int(times.visit_start[visit - 1] + program.visit_latency[visit - 1])
        else:
            arrival = int(times.visit_end[visit - 1] + program.visit_latency[visit - 1])
        if start > arrival:
            if self.waiter is None:
                self.waiter = node
            holder = int(self.before[visit])
            ahead = int(self.owner[holder])
            own = program.src[ahead] == program.src[self.waiter]
            cause = OWN[int(self.kind[visit])] if own else "queueing"
            self.put(cause, int(program.visit_busy[holder]), self.waiter, visit, ahead)
            return holder
        self.waiter = None
        if visit == lo:
            return None
        if self.kind[visit - 1] == SENDER:
            self.put("overhead", int(program.visit_busy[visit - 1]), node, visit - 1)
            return visit - 1
        if self.kind[visit] != REDUCER and self.network == "cut_through":
            self.put("latency", int(program.visit_latency[visit - 1]), node, visit - 1)
            return visit - 1
        return self._wire(node, visit - 1)

    def _predecessor(self, node: int) -> int | None:
        """Return the predecessor whose end made a node ready; waiting for other edges is pacing."""
        program = self.program
        edges = np.arange(program.pred_ptr[node], program.pred_ptr[node + 1])
        edges = edges[~program.pred_issued[edges]]
        ready = int(self.times.ready[node]) if node < program.transfers else int(self.ends[node])
        if not len(edges):
            self.put("pacing", ready, node)
            return None
        asked = self.ends[program.pred[edges]] + program.pred_lag[edges]
        found = int(program.pred[edges[asked == asked.max()]].min())  # the lowest, in whatever order they are kept
        self.put("pacing", ready - int(self.ends[found]), node)
        return found
