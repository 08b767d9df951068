"""Kernels of the sweep: a program run in program order, row by row and iteration by iteration, without a queue."""

from __future__ import annotations

from collsim.compiling import kernel
from collsim.engine.outcome import LARGEST_TIME
from collsim.engine.program import Array

__all__ = [
    "BARRIER", "CURSOR", "DISORDER", "FREE", "ITERATION", "LAST", "MATCHED", "PEAK", "ROW", "SHIFT", "SLOT", "STEP",
    "STEP_PEAK", "TOO_LONG", "WAIT", "count_crossings", "ring_shift", "run_rows",
]  # fmt: skip

ITERATION, ROW, SLOT, EDGE, WANTED, VISIT, PEAK, STEP, BARRIER, STEP_PEAK, SHIFT, CURSOR = range(12)
"""Places in ``cursor``, and their number: the next iteration and row; the slot of the ring buffer that the iteration
writes; the next entry of the edges, of the nodes that later edges ask for, and of the records of visits; the latest end
since it was last set to 0; the number of the current step, the time before which none of its transfers starts, and its
latest end so far; and by how much the state exceeds the one that it was compared with, or -1."""

LO, ROWS, DEPTH, FIRST, FIRST_STEP, BLOCK_STEPS, VARIES, SYNCHRONOUS, SHARED, RECORDS = range(10)
"""Places in ``phase``: its first row, number of rows, slots of its ring buffer, first node, first step and steps of an
iteration, and four flags: sizes change, each step waits for the one before, stations are shared (not in `alpha_beta`),
records are wanted."""

FREE, LAST, WAIT = range(3)
"""Columns of ``stations``: when it is free, the last arrival, and the longest wait."""

DONE, DISORDER, TOO_LONG, MATCHED = range(4)
"""Answers: budget spent or stop reached; an arrival before an earlier one; a time too large; the state has a shift."""


@kernel
def ring_shift(now: Array, slot: int, then: Array, then_slot: int, rows: int, ages: int, shift: int) -> int:
    """Return ``shift`` if all entries of the last iterations have it, else -1; slots are those written last."""
    depth = len(now) // rows
    for age in range(ages):
        a = (slot - age) % depth * rows
        b = (then_slot - age) % depth * rows
        for r in range(rows):
            if now[a + r] - then[b + r] != shift:
                return -1
    return shift


@kernel
def station_shift(stations: Array, block: Array, then: Array, shift: int) -> int:
    """Return ``shift`` if the free times and last arrivals of all stations of a block have it, else -1."""
    for b in range(len(block)):
        station = block[b]
        if stations[station, FREE] - then[b, FREE] != shift or stations[station, LAST] - then[b, LAST] != shift:
            return -1
    return shift


@kernel
def count_crossings(count: Array, route: Array, route_ptr: Array, route_station: Array) -> None:
    """Count for each station how often the rows cross it."""
    for r in range(len(route)):
        for v in range(route_ptr[route[r]], route_ptr[route[r] + 1]):
            count[route_station[v]] += 1


@kernel
def run_rows(
    cursor: Array, phase: Array, stop: int, budget: int,
    dep_ptr: Array, dep_row: Array, dep_distance: Array, dep_issued: Array, dep_lag: Array,
    edge_node: Array, edge_slot: Array, edge_issued: Array, edge_lag: Array,
    wanted: Array, wanted_ended: Array, wanted_issued: Array,
    step: Array, route: Array, size_class: Array,
    chunk_base: Array, chunk_rel: Array, chunk_shift: Array, chunk_window: Array, chunk_class: Array,
    route_ptr: Array, route_station: Array, route_latency: Array, route_rate: Array, route_cuts: Array, busy: Array,
    stations: Array, ended: Array, issued: Array,
    watch: bool, block: Array, then_cursor: Array, then_ended: Array, then_issued: Array, then_stations: Array,
    ready_of: Array, start_of: Array, end_of: Array, visit_start: Array, visit_end: Array,
) -> int:  # fmt: skip
    """Run rows of a phase from where the cursor stands to iteration ``stop`` or until the budget of rows is spent.

    Columns by row are those of the phase only. ``chunk_rel`` is moved on. With ``watch`` the state after each iteration
    is compared with an earlier one.
    """
    lo, rows, depth = phase[LO], phase[ROWS], phase[DEPTH]
    varies, synchronous = phase[VARIES] != 0, phase[SYNCHRONOUS] != 0
    shared, records = phase[SHARED] != 0, phase[RECORDS] != 0
    far, some_issued, some_lag = len(dep_distance) > 0, len(issued) > 0, len(dep_lag) > 0
    k, slot, edge, want, visit = cursor[ITERATION], cursor[SLOT], cursor[EDGE], cursor[WANTED], cursor[VISIT]
    peak, begin = cursor[PEAK], cursor[ROW]
    next_edge = edge_node[edge] if edge < len(edge_node) else -1
    next_want = wanted[want] if want < len(wanted) else -1
    answer = DONE
    while k < stop and budget > 0 and answer == DONE:
        node = phase[FIRST] + k * rows + begin
        step_base = phase[FIRST_STEP] + k * phase[BLOCK_STEPS]
        here = slot * rows
        finish = min(rows, begin + budget)
        for r in range(begin, finish):
            if synchronous and step_base + step[r] != cursor[STEP]:
                cursor[STEP] = step_base + step[r]
                cursor[BARRIER] = cursor[STEP_PEAK]
                cursor[STEP_PEAK] = 0
            ready = cursor[BARRIER]
            for d in range(dep_ptr[r], dep_ptr[r + 1]):
                at = here
                if far:
                    back = dep_distance[d]
                    if back > k:
                        continue
                    at = (slot - back if slot >= back else slot - back + depth) * rows
                at += dep_row[d] - lo
                time = issued[at] if some_issued and dep_issued[d] else ended[at]
                if some_lag:
                    time += dep_lag[d]
                ready = max(ready, time)
            while node == next_edge:
                time = wanted_issued[edge_slot[edge]] if edge_issued[edge] else wanted_ended[edge_slot[edge]]
                ready = max(ready, time + edge_lag[edge])
                edge += 1
                next_edge = edge_node[edge] if edge < len(edge_node) else -1
            if varies:
                rel = chunk_rel[r]
                size = chunk_class[chunk_base[r] + rel]
                rel += chunk_shift[r]  # both below the window
                chunk_rel[r] = rel if rel < chunk_window[r] else rel - chunk_window[r]
            else:
                size = size_class[r]
            first, last = route_ptr[route[r]], route_ptr[route[r] + 1]
            arrival, tail, issue = ready, ready, ready
            for v in range(first, last):
                hold = busy[size, route_rate[v]]
                start = arrival
                if shared:
                    station = route_station[v]
                    if arrival < stations[station, LAST]:
                        answer = DISORDER
                        break
                    stations[station, LAST] = arrival
                    free = stations[station, FREE]
                    if free > arrival:
                        start = free
                        stations[station, WAIT] = max(stations[station, WAIT], free - arrival)
                    stations[station, FREE] = start + hold
                if v == first:
                    issue = start + hold
                end = max(start + hold, tail)
                tail = end + route_latency[v]
                arrival = start + route_latency[v] if route_cuts[v] else tail
                if records:
                    if v == first:
                        start_of[node] = start
                    visit_start[visit] = start
                    visit_end[visit] = end
                    visit += 1
                if tail >= LARGEST_TIME:
                    answer = TOO_LONG
                    break
            if tail >= LARGEST_TIME:
                answer = TOO_LONG
            if answer != DONE:
                break
            peak = max(peak, tail)
            ended[here + r] = tail
            if some_issued:
                issued[here + r] = issue
            if synchronous:
                cursor[STEP_PEAK] = max(cursor[STEP_PEAK], tail)
            if node == next_want:
                wanted_ended[want] = tail
                wanted_issued[want] = issue
                want += 1
                next_want = wanted[want] if want < len(wanted) else -1
            if records:
                ready_of[node] = ready
                end_of[node] = tail
                if first == last:
                    start_of[node] = ready
            node += 1
        budget -= finish - begin
        begin = finish
        if begin == rows:
            begin = 0
            k += 1
            if watch and answer == DONE:
                before = (then_cursor[SLOT] - 1) % depth
                shift = ended[here] - then_ended[before * rows]
                ages = max(1, depth - 1)  # what a later iteration may read
                if shift >= 0:
                    shift = ring_shift(ended, slot, then_ended, before, rows, ages, shift)
                if shift >= 0 and some_issued:
                    shift = ring_shift(issued, slot, then_issued, before, rows, ages, shift)
                if shift >= 0 and shared:
                    shift = station_shift(stations, block, then_stations, shift)
                if shift >= 0 and synchronous:
                    for place in (BARRIER, STEP_PEAK):
                        if cursor[place] - then_cursor[place] != shift:
                            shift = -1
                if shift >= 0:
                    cursor[SHIFT] = shift
                    answer = MATCHED
            slot = slot + 1 if slot + 1 < depth else 0
    cursor[ITERATION], cursor[ROW], cursor[SLOT], cursor[EDGE], cursor[WANTED] = k, begin, slot, edge, want
    cursor[VISIT], cursor[PEAK] = visit, peak
    return answer
