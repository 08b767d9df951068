"""Max-min fair rates of flows that share links, solved again only where a change can reach.

Rates are whole numbers of a small unit (`collsim.engine.fluid` says which), so that sums are exact in any order: what a
link has left never drifts, and a part of the flows can be solved again with the same result as all of them.

Progressive filling raises all rates together; the link that is full first, at the least capacity per flow, stops its
flows, and so on. The link that stopped a flow is its *bottleneck*, the rate at which it did is the *level* of the link.
Links are stopped in the order (level, number), which never goes back. So a solution is told by bottleneck and rate of
each flow, and after a change it is the same but for *dirty* links, which filling has to look at again:

- links that a flow has joined or left;
- links of a flow whose rate or bottleneck came out another;
- links of the flows of a dirty bottleneck that turns out not to be full at its old level.

Each of these is found before filling has come to the level of the link, so filling goes through the dirty links only,
and takes flows of clean bottlenecks for stopped once it has passed their level. Where most links turn out dirty, it is
quicker to make all of them dirty at the start that can be reached from the first: then no link is looked at twice. The
result is the same, so the way is chosen by what the solution before had to do.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from collsim.compiling import kernel
from collsim.engine.outcome import LARGEST_TIME
from collsim.engine.program import Array

__all__ = ["ANY_RATE", "DIRTY", "ENDS", "FLYING", "THRESHOLD", "Flows", "Links", "join", "leave", "rise", "set_end",
           "sink", "solve"]  # fmt: skip

DIRTY, ENDS, FLOOD, FLYING, GONE, LIVE, SPARE, STAMP, THRESHOLD, UNUSED = range(10)
"""Numbers in ``cell``: lengths of the lists and heaps, whether to make all links dirty at the start, flows that have
not ended, links that have flows, the last stamp, the level below which nothing
changes, and the first slot that was never used."""

NEVER = LARGEST_TIME
ANY_RATE = 2**62


class Flows(NamedTuple):
    """Flows by slot; slots are used again. Times in picoseconds, sizes in bytes."""

    node: Array
    """Which node it is; -1 when the flow has ended."""
    at: Array
    """Where its links begin in ``route_station``."""
    hops: Array
    start: Array
    least: Array
    """Its end if nothing slows it: it never ends before."""
    slack: Array
    """Bytes that it may lack when it ends."""
    left: Array
    """Bytes that were left at ``since``."""
    since: Array
    rate: Array
    """0 until it is solved for the first time."""
    end: Array
    """Predicted end."""
    stamp: Array
    """`STAMP` of the last solution that stopped it."""
    bottleneck: Array
    spare: Array
    """Slots to be used again."""
    gone: Array
    """Slots that the lists of links still name."""


class Links(NamedTuple):
    """Links and copy engines by station."""

    capacity: Array
    user_ptr: Array
    """Where the list of the flows of each begins: room for all that ever cross it."""
    users: Array
    used: Array
    """Length of that list; flows that have ended are in it until rates are solved again."""
    live: Array
    """Number of its flows that have not ended."""
    joined: Array
    """Whether a flow has joined it since rates were solved."""
    stamp: Array
    """`STAMP` of the last solution in which it was dirty."""
    level: Array
    """0 if it is nobody's bottleneck."""
    left: Array
    """Capacity for the flows that are still growing."""
    growing: Array
    clean: Array
    """Least rate of those of the growing flows whose bottleneck was clean when they were counted."""
    end: Array
    """Least predicted end of the flows of which it is the bottleneck."""
    place: Array
    """Where it stands in ``order``, or -1."""
    order: Array
    """Heap of links by ``end``."""
    dirty: Array
    key: Array
    full: Array
    """Heap of dirty links (``full``) by the level (``key``) at which they will be full, or lower."""


@kernel
def join(
    flows: Flows,
    links: Links,
    cell: Array,
    station: Array,
    column: Array,
    busy: Array,
    wire: Array,
    node: int,
    now: int,
    low: int,
    high: int,
    slack: float,
) -> int:
    """Let a flow start on the links ``station[low:high]``; return its slot, or -1 if there is nothing to carry."""
    alone, size = 0, wire[column[low]]
    for i in range(low, high):
        alone = max(alone, busy[column[i]])
        size = min(size, wire[column[i]])
    if not alone:
        return -1
    if cell[SPARE]:
        cell[SPARE] -= 1
        slot = flows.spare[cell[SPARE]]
    else:
        slot = cell[UNUSED]
        cell[UNUSED] += 1
    cell[FLYING] += 1
    flows.node[slot], flows.at[slot], flows.hops[slot] = node, low, high - low
    flows.start[slot], flows.since[slot], flows.least[slot] = now, now, now + alone
    flows.left[slot], flows.slack[slot], flows.rate[slot] = float(size), slack * float(size), 0
    for i in range(low, high):
        link = station[i]
        links.users[links.user_ptr[link] + links.used[link]] = slot
        links.used[link] += 1
        links.live[link] += 1
        cell[LIVE] += links.live[link] == 1
        links.joined[link] = True
        _soil_later(links.stamp, links.dirty, cell, link)
    return int(slot)


@kernel
def leave(flows: Flows, links: Links, cell: Array, station: Array, slot: int) -> None:
    """Take a flow off its links; its slot is used again when the lists of the links are clean."""
    for i in range(flows.at[slot], flows.at[slot] + flows.hops[slot]):
        link = station[i]
        links.live[link] -= 1
        cell[LIVE] -= links.live[link] == 0
        _soil_later(links.stamp, links.dirty, cell, link)
    cell[THRESHOLD] = min(cell[THRESHOLD], flows.rate[slot])
    flows.node[slot] = -1
    flows.gone[cell[GONE]] = slot
    cell[GONE] += 1
    cell[FLYING] -= 1


@kernel
def _soil_later(stamps: Array, dirty: Array, cell: Array, link: int) -> None:
    if stamps[link] != cell[STAMP] + 1:  # it is dirty in the next solution
        stamps[link] = cell[STAMP] + 1
        dirty[cell[DIRTY]] = link
        cell[DIRTY] += 1


@kernel
def solve(flows: Flows, links: Links, cell: Array, station: Array, now: int, unit: float) -> int:
    """Solve rates after flows have joined and left, and predict ends.

    Parameters
    ----------
    flows, links, cell
        The state, which is changed.
    station
        Links of the routes.
    now
        Picoseconds.
    unit
        Picoseconds in a second times units of rate in a byte/s.

    Returns
    -------
    int
        A measure of the work.
    """
    # one loop over columns, since taking a column out of a tuple costs as much as looking at some flows
    at, hops, rate, stopped, bottleneck = flows.at, flows.hops, flows.rate, flows.stamp, flows.bottleneck
    bytes_left, since, slack, least, end = flows.left, flows.since, flows.slack, flows.least, flows.end
    node, users, user_ptr, used, levels = flows.node, links.users, links.user_ptr, links.used, links.level
    stamps, dirty, left, growing, clean = links.stamp, links.dirty, links.left, links.growing, links.clean
    ends, order, place, key, full = links.end, links.order, links.place, links.key, links.full
    capacity, flood = links.capacity, cell[FLOOD]
    cell[STAMP] += 1
    stamp = cell[STAMP]
    level, point = _threshold(links, cell), -1  # how far filling has come
    looked, size, changed, work = 0, 0, 0, 0
    while True:
        work += 1
        fresh = looked < cell[DIRTY]
        if fresh:
            link = dirty[looked]
            looked += 1
        elif size:
            level, link = key[0], full[0]
            point = link
        else:
            break
        first = user_ptr[link]
        last = first + used[link]
        if fresh or clean[link] <= level:  # count who is still growing, and what is left for them
            room, still, lowest, kept = capacity[link], 0, ANY_RATE, first
            for i in range(first, last):
                slot = users[i]
                if node[slot] < 0:
                    continue
                users[kept] = slot
                kept += 1
                its = rate[slot]
                if flood:  # all that can be reached is counted before the first link is full
                    passed = 0 < its < level
                elif stopped[slot] == stamp:
                    passed = True
                elif its and stamps[bottleneck[slot]] != stamp:
                    passed = its < level or (its == level and bottleneck[slot] < point)
                    if not passed:
                        lowest = min(lowest, its)
                else:
                    passed = False
                if passed:
                    room -= its
                    continue
                still += 1
                if flood:
                    for j in range(at[slot], at[slot] + hops[slot]):
                        if stamps[station[j]] != stamp:
                            stamps[station[j]] = stamp
                            dirty[cell[DIRTY]] = station[j]
                            cell[DIRTY] += 1
            work += last - first
            last = kept
            used[link], left[link], growing[link], clean[link] = kept - first, room, still, lowest
        share = max(1, left[link] // growing[link]) if growing[link] else 0
        if fresh:
            set_end(ends, order, place, cell, link, NEVER)
        elif share <= level:
            size -= 1
            sink(key, full, size, 0, key[size], full[size])
        if not share:  # all its flows were stopped by others
            levels[link] = 0
            continue
        if fresh or share > level:
            if fresh:
                rise(key, full, size, share, link)
                size += 1
            else:
                sink(key, full, size, 0, share, link)
            if not flood and 0 < levels[link] < share:  # it is not full at its old level, so its flows grow beyond that
                levels[link] = 0
                for i in range(first, last):
                    slot = users[i]
                    if bottleneck[slot] == link and stopped[slot] != stamp and rate[slot]:
                        _soil(stamps, dirty, cell, station, at[slot], at[slot] + hops[slot])
                work += last - first
            continue
        soonest, other = NEVER, 0
        for i in range(first, last):  # the link is full: stop its flows
            slot = users[i]
            its, by = rate[slot], bottleneck[slot]
            if stopped[slot] == stamp or (
                its and stamps[by] != stamp and (its < level or (its == level and by < link))
            ):
                continue
            stopped[slot] = stamp
            for j in range(at[slot], at[slot] + hops[slot]):
                left[station[j]] -= level  # of no account where the link is clean
                growing[station[j]] -= 1
            if its != level:
                bytes_left[slot] -= float(its) * float(now - since[slot]) / unit
                since[slot], rate[slot] = now, level
                lasts = max(0.0, bytes_left[slot] - slack[slot]) * unit / float(level)
                then = NEVER if lasts >= float(NEVER) else min(NEVER, now + ceil(lasts))
                end[slot] = max(least[slot], then)
            if its != level or by != link:
                other = 1
                bottleneck[slot] = link
                if not flood:
                    _soil(stamps, dirty, cell, station, at[slot], at[slot] + hops[slot])
            soonest = min(soonest, end[slot])
        work += last - first
        changed += other
        levels[link] = level
        set_end(ends, order, place, cell, link, soonest)
    cell[FLOOD] = 16 * changed > cell[DIRTY] if flood else 4 * cell[DIRTY] > cell[LIVE]
    for i in range(cell[GONE]):
        flows.spare[cell[SPARE] + i] = flows.gone[i]
    cell[SPARE] += cell[GONE]
    cell[GONE], cell[DIRTY], cell[THRESHOLD] = 0, 0, ANY_RATE
    return work


@kernel
def _threshold(links: Links, cell: Array) -> int:
    """Return the level below which nothing changes."""
    threshold = cell[THRESHOLD]  # lower ones were passed before any of the flows that left was stopped
    for i in range(cell[DIRTY]):
        link = links.dirty[i]
        if links.joined[link]:
            links.joined[link] = False
            if links.live[link]:  # no link is full before its fair share
                threshold = min(threshold, max(1, links.capacity[link] // links.live[link]))
    return int(threshold)


@kernel
def _soil(stamps: Array, dirty: Array, cell: Array, station: Array, first: int, last: int) -> None:
    """Make the links of a flow dirty."""
    stamp = cell[STAMP]
    for j in range(first, last):
        link = station[j]
        if stamps[link] != stamp:
            stamps[link] = stamp
            dirty[cell[DIRTY]] = link
            cell[DIRTY] += 1


@kernel
def rise(key: Array, item: Array, size: int, new_key: int, new_item: int) -> None:
    """Put (key, item) into a heap of this size; the least is on top."""
    place = size
    while place:
        parent = (place - 1) >> 1
        if key[parent] < new_key or (key[parent] == new_key and item[parent] < new_item):
            break
        key[place], item[place] = key[parent], item[parent]
        place = parent
    key[place], item[place] = new_key, new_item


@kernel
def sink(key: Array, item: Array, size: int, place: int, new_key: int, new_item: int) -> None:
    """Put (key, item) at a place of a heap or below; the least is on top."""
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (key[right] < key[child] or (key[right] == key[child] and item[right] < item[child])):
            child = right
        if new_key < key[child] or (new_key == key[child] and new_item < item[child]):
            break
        key[place], item[place] = key[child], item[child]
        place = child
    key[place], item[place] = new_key, new_item


@kernel
def set_end(ends: Array, heap: Array, place: Array, cell: Array, link: int, end: int) -> None:
    """Move a link in the heap of ends; `NEVER` takes it out."""
    at = place[link]
    ends[link] = end
    if end == NEVER:
        if at < 0:
            return
        place[link] = -1
        cell[ENDS] -= 1
        link = heap[cell[ENDS]]
        if at == cell[ENDS]:
            return
        end = ends[link]
    elif at < 0:
        at = cell[ENDS]
        cell[ENDS] += 1
    size = cell[ENDS]
    while at and end < ends[heap[(at - 1) >> 1]]:
        parent = (at - 1) >> 1
        heap[at] = heap[parent]
        place[heap[at]] = at
        at = parent
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and ends[heap[child + 1]] < ends[heap[child]]:
            child += 1
        if end <= ends[heap[child]]:
            break
        heap[at] = heap[child]
        place[heap[at]] = at
        at = child
    heap[at] = link
    place[link] = at
