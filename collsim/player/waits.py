"""What each transfer waited for: the one that made it ready, and the one behind which it queued."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collsim.engine.program import COPY, LINK, SENDER, Array, Program, Times
from collsim.engine.traffic import visit_waits

__all__ = ["Waits", "waits_of"]


@dataclass(frozen=True, eq=False)
class Waits:
    """By transfer; -1 stands for none.

    Attributes
    ----------
    after, paced
        The transfer that was the last to make it ready, and whether by a written edge other than its end.
    waited
        Picoseconds in queues (in ``fluid``: by which it took longer than alone).
    behind, link
        The transfer that was served before it where it waited longest, and the link (-1: a device).
    """

    after: Array
    paced: Array
    waited: Array
    behind: Array
    link: Array


def waits_of(program: Program, times: Times, network: str) -> Waits:
    """Find what each transfer waited for.

    Parameters
    ----------
    program, times
        A run with records.
    network
        Network model that it was run with.

    Returns
    -------
    Waits
        Times in picoseconds.
    """
    after, paced = _made_ready(program, times)
    number = program.transfers
    waited = np.zeros(number, dtype=np.int64)
    behind, link = np.full(number, -1), np.full(number, -1)
    owner = np.repeat(np.arange(program.nodes), np.diff(program.visit_ptr))
    if len(owner):
        waits = visit_waits(program, times, network)
        if network == "fluid":
            waited += _slowed(program, times, owner)
        np.add.at(waited, owner, waits)
        order = np.lexsort((owner, program.visit_busy, times.visit_start, program.visit_station))
        station = program.visit_station[order]
        before = np.full(len(order), -1)
        same = station[1:] == station[:-1]
        before[order[1:][same]] = owner[order[:-1][same]]
        # the longest wait of each transfer: sorted by (transfer, wait), it is the last
        late = np.flatnonzero((waits > 0) & (before >= 0))
        late = late[np.lexsort((waits[late], owner[late]))]
        behind[owner[late]] = before[late]
        stations = program.visit_station[late]
        link[owner[late]] = np.where(program.station_kind[stations] == LINK, program.station_index[stations], -1)
    return Waits(after, paced, waited, behind, link)


def _made_ready(program: Program, times: Times) -> tuple[Array, Array]:
    """Return the last predecessor of each transfer, seen through joins, and whether pacing held it back."""
    ends = [*times.end.tolist(), *[0] * program.joins]
    first = program.visit_ptr[: program.transfers]
    issued = times.end.tolist()
    has = np.flatnonzero(np.diff(program.visit_ptr[: program.transfers + 1]))
    for node in has.tolist():
        visit = int(first[node])
        issued[node] = int(times.visit_start[visit]) + int(program.visit_busy[visit])
    ptr, pred = program.pred_ptr.tolist(), program.pred.tolist()
    is_issued, lag = program.pred_issued.tolist(), program.pred_lag.tolist()
    after, paced = [-1] * program.nodes, [False] * program.nodes
    # joins have the highest numbers, and lead from lower joins only
    for node in [*range(program.transfers, program.nodes), *range(program.transfers)]:
        latest = -1
        for edge in range(ptr[node], ptr[node + 1]):
            other = pred[edge]
            asked = (issued[other] if is_issued[edge] else ends[other]) + lag[edge]
            if asked > latest:
                latest = asked
                after[node] = other if other < program.transfers else after[other]
                paced[node] = is_issued[edge] or lag[edge] > 0
        if node >= program.transfers:
            ends[node] = max(latest, 0)
    return np.array(after[: program.transfers]), np.array(paced[: program.transfers], dtype=bool)


def _slowed(program: Program, times: Times, owner: Array) -> Array:
    """Return by how much each message took longer than alone, between the sender and the reducer."""
    kind = program.station_kind[program.visit_station]
    carries = np.isin(kind, (LINK, COPY))
    latency, longest = np.zeros(program.nodes, dtype=np.int64), np.zeros(program.nodes, dtype=np.int64)
    begin, end = times.ready.copy(), np.zeros(program.nodes, dtype=np.int64)
    np.add.at(latency, owner[carries], program.visit_latency[carries])
    np.maximum.at(longest, owner[carries], program.visit_busy[carries])
    np.maximum.at(end, owner[carries], times.visit_end[carries])
    sends = kind == SENDER
    begin[owner[sends]] = times.visit_start[sends] + program.visit_busy[sends]
    moves = end[: program.transfers] > 0
    alone = latency[: program.transfers] + longest[: program.transfers]
    return np.where(moves, np.maximum(end[: program.transfers] - begin - alone, 0), 0)
