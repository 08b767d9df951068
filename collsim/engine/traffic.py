"""Who uses which link, and how long transfers wait for stations."""

from __future__ import annotations

import numpy as np

from collsim.engine.loops import Loops
from collsim.engine.program import COPY, LINK, SENDER, Array, Program, Times

__all__ = ["link_users", "longest_waits", "shared_waits", "visit_waits"]


def link_users(lowered: Program | Loops) -> tuple[Array, Array, Array]:
    """Return the distinct (link of the topology, src, dst) of a program, in order: who uses which link."""
    if isinstance(lowered, Program):
        owner, station = _owner(lowered), lowered.visit_station
    else:
        owner = np.repeat(np.arange(lowered.rows), lowered.row_visits())
        first = np.cumsum(lowered.row_visits()) - lowered.row_visits()
        station = lowered.route_station[np.arange(len(owner)) + (lowered.route_ptr[lowered.route] - first)[owner]]
    on_link = lowered.station_kind[station] == LINK
    link, owner = lowered.station_index[station[on_link]].astype(np.int64), owner[on_link]
    ends = int(max(lowered.src.max(initial=0), lowered.dst.max(initial=0))) + 1
    pair = lowered.src[owner].astype(np.int64) * ends + lowered.dst[owner]
    order = np.lexsort((pair, link))
    link, pair = link[order], pair[order]
    new = np.ones(len(link), dtype=bool)
    new[1:] = (link[1:] != link[:-1]) | (pair[1:] != pair[:-1])
    return link[new], pair[new] // ends, pair[new] % ends


def visit_waits(program: Program, times: Times, network: str) -> Array:
    """Return by visit for how many picoseconds the transfer waited for the station.

    Nothing waits in ``alpha_beta``; in ``fluid`` nothing does at links and copy engines, which are shared.
    """
    waits = np.zeros(len(program.visit_station), dtype=np.int64)
    if network == "alpha_beta" or not len(waits):
        return waits
    owner, kind = _owner(program), program.station_kind[program.visit_station]
    first = np.ones(len(owner), dtype=bool)
    first[1:] = owner[1:] != owner[:-1]
    carries = np.isin(kind, (COPY, LINK))
    leaves = np.where(kind == SENDER, times.visit_start + program.visit_busy, times.visit_end + program.visit_latency)
    if network == "cut_through":
        cuts = carries & np.roll(carries, -1)
        leaves = np.where(cuts, times.visit_start + program.visit_latency, leaves)
    if network == "fluid":
        leaves = np.where(carries, times.visit_end, leaves)  # the latency has passed before
    arrival = np.where(first, times.ready[np.minimum(owner, program.transfers - 1)], np.roll(leaves, 1))
    waits = times.visit_start - arrival
    return np.where(carries, 0, waits) if network == "fluid" else waits


def longest_waits(program: Program, times: Times, network: str) -> Array:
    """Return by station the longest that a transfer waited for it, in picoseconds."""
    longest = np.zeros(len(program.station_kind), dtype=np.int64)
    np.maximum.at(longest, program.visit_station, visit_waits(program, times, network))
    return longest


def shared_waits(program: Program, times: Times, network: str) -> list[tuple[int, int, int]]:
    """Links of more than one pair at which transfers waited: (link, transfers, picoseconds), worst first.

    For the models with queues (``store_and_forward`` and ``cut_through``).
    """
    waits = np.where(program.station_kind[program.visit_station] == LINK, visit_waits(program, times, network), 0)
    links, pairs = np.unique(link_users(program)[0], return_counts=True)
    shared = set(links[pairs > 1].tolist())
    result = []
    late = waits > 0
    for station in np.unique(program.visit_station[late]).tolist():
        link = int(program.station_index[station])
        if link in shared:
            here = late & (program.visit_station == station)
            result.append((link, int(here.sum()), int(waits[here].sum())))
    return sorted(result, key=lambda item: (-item[2], item[0]))


def _owner(program: Program) -> Array:
    """Return the node of each visit."""
    return np.repeat(np.arange(program.nodes), np.diff(program.visit_ptr))
