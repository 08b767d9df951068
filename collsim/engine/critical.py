"""The critical path: which transfers determine the time, what their time goes to, and where transfers wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.engine.program import COPY, LINK, REDUCER, SENDER, Program, Times

__all__ = ["PARTS", "critical_path", "pieces", "shared_links", "shared_waits"]

Array = npt.NDArray[Any]

PARTS = ("latency", "serialisation", "queueing", "reduction", "overhead", "pacing")
"""What time is put down to; ``pacing`` is waiting for written edges other than a predecessor's end."""


def critical_path(program: Program, times: Times) -> list[int]:
    """Return the transfers that determine the time, first to last.

    From the transfer that ends last the path goes back to the predecessor whose end made it ready (the one with the
    lowest number where several ended together), through joins.
    """
    if not program.transfers:
        return []
    ends = np.concatenate([times.end, np.zeros(program.joins, dtype=np.int64)])
    for join in range(program.transfers, program.nodes):
        ends[join] = ends[program.pred[program.pred_ptr[join] : program.pred_ptr[join + 1]]].max(initial=0)
    node = int(np.argmax(times.end))
    path = [node]
    while True:
        edges = np.arange(program.pred_ptr[node], program.pred_ptr[node + 1])
        edges = edges[~program.pred_issued[edges]]
        if not len(edges):
            return path[::-1]
        node = int(program.pred[edges[np.argmax(ends[program.pred[edges]] + program.pred_lag[edges])]])
        if node < program.transfers:
            path.append(node)


def pieces(program: Program, times: Times, path: list[int], network: str) -> dict[str, int]:
    """Put the time of a path down to `PARTS`, in picoseconds; they sum to the end of its last transfer.

    Queueing is what a message takes on its way beyond its latencies and its serialisation when alone (the largest one
    of its links, in ``store_and_forward`` the sum), and what it waits at its sender and its reducer.
    """
    parts = dict.fromkeys(PARTS, 0)
    kind = program.station_kind[program.visit_station]
    now = 0
    for node in path:
        ready = int(times.ready[node])
        parts["pacing"] += ready - now
        now = ready
        visits = range(int(program.visit_ptr[node]), int(program.visit_ptr[node + 1]))
        way = [v for v in visits if kind[v] in (LINK, COPY)]
        for v in visits:
            if kind[v] == SENDER:
                parts["overhead"] += int(program.visit_busy[v])
                parts["queueing"] += int(times.visit_start[v]) - now
                now = int(times.visit_start[v] + program.visit_busy[v])
        if way:
            latency = sum(int(program.visit_latency[v]) for v in way)
            busy = [int(program.visit_busy[v]) for v in way]
            serial = sum(busy) if network == "store_and_forward" else max(busy)
            # the fluid model pays latency first, so its links end with the message
            arrival = int(times.visit_end[way[-1]]) + (0 if network == "fluid" else int(program.visit_latency[way[-1]]))
            parts["latency"] += latency
            parts["serialisation"] += serial
            parts["queueing"] += arrival - now - latency - serial
            now = arrival
        for v in visits:
            if kind[v] == REDUCER:
                parts["reduction"] += int(program.visit_busy[v])
                parts["queueing"] += int(times.visit_start[v]) - now
                now = int(times.visit_start[v] + program.visit_busy[v])
    return parts


def shared_links(program: Program) -> list[tuple[int, int]]:
    """Links that more than one pair of ranks uses: (link, pairs), most pairs first."""
    owner, station = _link_visits(program)
    pair = program.src[owner].astype(np.int64) * (int(program.dst.max(initial=0)) + 1) + program.dst[owner]
    used = np.unique(np.stack([station, pair]), axis=1)[0] if len(owner) else np.zeros(0, dtype=np.int64)
    links, pairs = np.unique(used, return_counts=True)
    found = [(int(program.station_index[s]), int(n)) for s, n in zip(links, pairs, strict=True) if n > 1]
    return sorted(found, key=lambda item: (-item[1], item[0]))


def shared_waits(program: Program, times: Times, network: str) -> list[tuple[int, int, int]]:
    """Links of more than one pair at which transfers waited: (link, transfers, picoseconds), worst first.

    For the models with queues (``store_and_forward`` and ``cut_through``).
    """
    owner = np.repeat(np.arange(program.nodes), np.diff(program.visit_ptr))
    kind = program.station_kind[program.visit_station]
    first = np.ones(len(owner), dtype=bool)
    first[1:] = owner[1:] != owner[:-1]
    leaves = np.where(kind == SENDER, times.visit_start + program.visit_busy, times.visit_start + program.visit_latency)
    if network == "store_and_forward":
        leaves = np.where(kind == SENDER, leaves, times.visit_end + program.visit_latency)
    arrival = np.where(first, times.ready[np.minimum(owner, program.transfers - 1)], np.roll(leaves, 1))
    waited = np.where(kind == LINK, times.visit_start - arrival, 0)
    shared = {link for link, _ in shared_links(program)}
    result = []
    late = waited > 0
    for station in np.unique(program.visit_station[late]).tolist():
        link = int(program.station_index[station])
        if link in shared:
            here = late & (program.visit_station == station)
            result.append((link, int(here.sum()), int(waited[here].sum())))
    return sorted(result, key=lambda item: (-item[2], item[0]))


def _link_visits(program: Program) -> tuple[Array, Array]:
    owner = np.repeat(np.arange(program.nodes), np.diff(program.visit_ptr))
    on_link = program.station_kind[program.visit_station] == LINK
    return owner[on_link], program.visit_station[on_link]
