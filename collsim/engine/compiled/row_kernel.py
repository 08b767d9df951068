"""Kernels for loops in which each station is crossed by one row, once: no order to check, fewer stations to look at.

What a row keeps. Starts at a station are at least its own ``busy`` apart, and so are the arrivals at the stations after
it, as long as nobody waits in between. A station that is held for no longer than that, and at which the last transfer
did not wait, is free again when the next one arrives, so nobody will ever wait there: the station only adds constants
and is dropped. So a row keeps its first station, those that are held longer than all before them (its records), and
those at which the last transfer did wait.

The tail. The tail leaves a record u at ``start + busy`` of u and no later. If the head went ahead of it, it comes in no
later than the longest ``busy`` before u after the head, which is no longer than that of u; else it comes in with the
head. So all that follows up to the next record is a constant after the start at u, found by running it once from 0. A
row that must also keep a station that is no record keeps all its stations, with their tails.
"""

from __future__ import annotations

from collsim.compiling import kernel
from collsim.engine.compiled.sweep_kernel import FREE, LAST, ring_shift
from collsim.engine.outcome import LARGEST_TIME
from collsim.engine.program import Array

__all__ = ["CUTS", "DELAY", "KEPT", "LANES", "LANE_DELAY", "LANE_OPEN", "OPEN", "PRED", "run_lanes", "shrink_rows"]

HOLD, SPAN, LATENCY, HEAD, CUTS, OPEN, DELAY, KEPT = range(8)
"""Columns of ``kept``, and their number: picoseconds from start until free, from start until the tail is out, from then
until it is at the next station, and from start to the next arrival where the head goes ahead (``CUTS``); when the
station is free; the longest wait."""

PRED, LANE_HOLD, LANE_REACH, LANE_OPEN, LANE_DELAY, LANES = range(6)
"""Rows of ``lanes``, and their number: the predecessor of each row, picoseconds from start until free and until
its end, when its station is free, and the longest wait."""


@kernel
def shrink_rows(
    lo: int, shared: bool,
    dep_ptr: Array, dep_row: Array, dep_distance: Array, dep_issued: Array, dep_lag: Array,
    size_class: Array, route: Array,
    route_ptr: Array, route_station: Array, route_latency: Array, route_rate: Array, route_cuts: Array, busy: Array,
    stations: Array, kept_ptr: Array, kept_station: Array, kept: Array, lanes: Array, others: Array, longest: Array,
) -> int:  # fmt: skip
    """Fill in what each row keeps; return how many rows are ``others``, those that are no lanes.

    A lane is a row with one station left and one predecessor: at its end, one iteration ago, without a lag. The largest
    and the total time that rows can take come out in ``longest``.
    """
    rows = len(route)
    n_others = 0
    at = 0
    for r in range(rows):
        first, last = route_ptr[route[r]], route_ptr[route[r] + 1]
        # which stations are kept: marked in CUTS, for now
        top, records, total = -1, True, 0.0
        for v in range(first, last):
            hold = busy[size_class[r], route_rate[v]]
            station = route_station[v]
            waited = shared and stations[station, FREE] - hold != stations[station, LAST]
            keep = v == first or waited or (shared and hold > top)
            kept[at + v - first, CUTS] = keep
            if keep:
                records &= hold >= top
            top = max(top, hold)
            total += hold + route_latency[v]
        begin = at
        arrival, tail, here = 0, 0, begin
        for v in range(first, last):
            hold = busy[size_class[r], route_rate[v]]
            if not records or kept[begin + v - first, CUTS]:
                here = at  # never ahead of the marks that are still to be read
                at += 1
                arrival, tail = 0, 0
                kept_station[here] = route_station[v]
                kept[here, HOLD] = hold if shared else -LARGEST_TIME
                kept[here, SPAN] = hold
                kept[here, OPEN] = stations[route_station[v], FREE] if shared else 0
                kept[here, DELAY] = 0
            start = arrival
            tail = max(start + hold, tail) + route_latency[v]
            arrival = start + route_latency[v] if route_cuts[v] else tail
            kept[here, LATENCY] = tail - kept[here, SPAN]
            kept[here, HEAD] = arrival
            if not records:
                kept[here, CUTS] = route_cuts[v]
        if records:
            for e in range(begin, at):
                kept[e, CUTS] = 1
        kept_ptr[r + 1] = at
        for d in range(dep_ptr[r], dep_ptr[r + 1]):
            total += dep_lag[d] if len(dep_lag) else 0
        longest[0] = max(longest[0], total)
        longest[1] += total
        d = dep_ptr[r]
        lane = at - begin == 1 and dep_ptr[r + 1] == d + 1 and len(dep_distance) > 0 and len(dep_issued) == 0
        if lane and dep_distance[d] == 1 and (len(dep_lag) == 0 or dep_lag[d] == 0):
            lanes[PRED, r] = dep_row[d] - lo
            lanes[LANE_HOLD, r] = kept[begin, HOLD]
            lanes[LANE_REACH, r] = kept[begin, SPAN] + kept[begin, LATENCY]
            lanes[LANE_OPEN, r] = kept[begin, OPEN]
        else:
            others[n_others] = r
            n_others += 1
            # a lane that is run for nothing, in line with the one before
            pred = lanes[PRED, r - 1] + 1 if r else 0
            lanes[PRED, r] = pred if pred < rows else 0
    return n_others


@kernel
def run_lanes(
    state: Array, lo: int, iterations: int,
    stretch: Array, offset: Array, lanes: Array, others: Array,
    dep_ptr: Array, dep_row: Array, dep_distance: Array, dep_issued: Array, dep_lag: Array,
    kept_ptr: Array, kept: Array, ended: Array, issued: Array,
    watch: bool, then_state: Array, then_ended: Array, then_issued: Array, then_lanes: Array, then_kept: Array,
) -> bool:  # fmt: skip
    """Run whole iterations; ``state`` is the iteration, the slot and the shift. Return whether a shift was found.

    Lanes ``stretch[i]`` to ``stretch[i + 1]`` have predecessors at a fixed ``offset[i]``; without offsets each has its
    own. All rows are run as lanes, then the others again as what they are.
    """
    rows = lanes.shape[1]
    depth = len(ended) // rows
    lane_hold, lane_reach = lanes[LANE_HOLD], lanes[LANE_REACH]
    lane_open, lane_delay = lanes[LANE_OPEN], lanes[LANE_DELAY]
    far, some_issued, some_lag = len(dep_distance) > 0, len(issued) > 0, len(dep_lag) > 0
    for _ in range(iterations):
        slot = state[1]
        now = ended[slot * rows : (slot + 1) * rows]
        before = (slot - 1) % depth * rows
        if len(others) < rows:
            if len(offset):
                for i in range(len(offset)):
                    a, b = stretch[i], stretch[i + 1]
                    past = ended[before + a + offset[i] : before + b + offset[i]]
                    hold, reach, free, delay, end = (
                        lane_hold[a:b], lane_reach[a:b], lane_open[a:b], lane_delay[a:b], now[a:b],
                    )  # fmt: skip
                    for j in range(b - a):
                        arrival = past[j]
                        start = max(arrival, free[j])
                        delay[j] = max(delay[j], start - arrival)
                        free[j] = start + hold[j]
                        end[j] = start + reach[j]
            else:
                for r in range(rows):
                    arrival = ended[before + lanes[PRED, r]]
                    start = max(arrival, lane_open[r])
                    lane_delay[r] = max(lane_delay[r], start - arrival)
                    lane_open[r] = start + lane_hold[r]
                    now[r] = start + lane_reach[r]
        for r in others:
            ready = 0
            for d in range(dep_ptr[r], dep_ptr[r + 1]):
                back = dep_distance[d] if far else 0
                at = (slot - back if slot >= back else slot - back + depth) * rows + dep_row[d] - lo
                time = issued[at] if some_issued and dep_issued[d] else ended[at]
                if some_lag:
                    time += dep_lag[d]
                ready = max(ready, time)
            first = kept_ptr[r]
            arrival, tail, issue = ready, ready, ready
            for e in range(first, kept_ptr[r + 1]):
                start = max(arrival, kept[e, OPEN])
                kept[e, DELAY] = max(kept[e, DELAY], start - arrival)
                kept[e, OPEN] = start + kept[e, HOLD]
                if e == first:
                    issue = start + kept[e, SPAN]
                tail = max(start + kept[e, SPAN], tail) + kept[e, LATENCY]
                arrival = start + kept[e, HEAD] if kept[e, CUTS] else tail
            now[r] = tail
            if some_issued:
                issued[slot * rows + r] = issue
        state[0] += 1
        state[1] = slot + 1 if slot + 1 < depth else 0
        if watch:
            then_slot = (then_state[1] - 1) % depth
            shift = now[0] - then_ended[then_slot * rows]
            ages = max(1, depth - 1)
            if shift >= 0:
                shift = ring_shift(ended, slot, then_ended, then_slot, rows, ages, shift)
            if shift >= 0 and some_issued:
                shift = ring_shift(issued, slot, then_issued, then_slot, rows, ages, shift)
            if shift >= 0:
                shift = _open_shift(lanes, others, then_lanes, kept_ptr, kept, then_kept, shift)
            if shift >= 0:
                state[2] = shift
                return True
    return False


@kernel
def _open_shift(
    lanes: Array, others: Array, then_lanes: Array, kept_ptr: Array, kept: Array, then_kept: Array, shift: int
) -> int:
    """Return ``shift`` if the times at which stations are free have it, else -1."""
    o = 0
    for r in range(lanes.shape[1]):
        if o < len(others) and others[o] == r:
            o += 1
            for e in range(kept_ptr[r], kept_ptr[r + 1]):
                if kept[e, HOLD] >= 0 and kept[e, OPEN] - then_kept[e, OPEN] != shift:
                    return -1
        elif lanes[LANE_HOLD, r] >= 0 and lanes[LANE_OPEN, r] - then_lanes[LANE_OPEN, r] != shift:
            return -1
    return shift
