"""The fluid network model on SimPy: transfers in flight share links max-min fairly.

A transfer first takes the sender of its device, one after the other as in every model. Then all the latencies of its
route pass, and only then is it in flight: over its copy engine and links at once, at a rate that is solved again
whenever a flow that shares with it, directly or through others, starts or ends. The reducer of the destination takes it
when the flow has ended.

A flow is *issued* when it ends, unless a sender came first: the latency passes before the first byte, so the source has
let go of the last one when the flow is over. The `start` of a transfer is when it took the sender, or else when it was
ready; `visit_start` and `visit_end` of its links are the start and the end of the flow.

Where the numbers are rounded: times are integer picoseconds. Rates are whole numbers of a unit of 2^-k bytes/s, with
the largest k for which all bandwidths stay below 2^62 units; a share is rounded down to it (and at least 1). So sums of
rates are exact in any order, and every way to solve them gives the same. Remaining bytes are floats, worked out when
the rate changes, so that two runs, and two engines, are equal. A flow ends at the predicted time rounded up, after
`SLACK` of its size has been taken off, since a float that should have been 800 and is 800.0000001 must not become 801;
and never before its start plus its longest `visit_busy`, so that one that nothing slows ends exactly there, as in the
other models. A flow holds its share until its rounded end, so each end may keep others back by less than 1 ps. The
bytes of a flow are those on the wire, worked out from `visit_busy`: exactly on a route with a link below 1 TB/s, on
faster ones rounded up by what takes less than 1 ps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from collsim.engine.deadlock import deadlock
from collsim.engine.program import COPY, LINK, SENDER, Array, Program, Times
from collsim.engine.reference import Dependencies, agenda, times

__all__ = ["max_min", "run_fluid"]

SLACK = 2**-38
"""Fraction of its size that a flow may lack when it ends: more than the floats err in a thousand changes of rate, and
not the part of 10^12 by which a bandwidth of 10^12/3 bytes/s is rounded."""
SECOND = 10**12


def max_min(routes: Mapping[int, Sequence[int]], capacity: Sequence[int]) -> dict[int, int]:
    """Return the max-min fair rate of each flow, by progressive filling.

    All rates grow together; a link that is full stops the flows that cross it, and the others go on.

    Parameters
    ----------
    routes
        For each flow the links that it crosses, at least one.
    capacity
        By link, in units of rate.

    Returns
    -------
    dict
        Rate by flow, in whole units.

    Examples
    --------
    Flows 1 and 2 share the narrow link 1, and flow 0 has what flow 1 leaves of link 0:

    >>> max_min({0: [0], 1: [0, 1], 2: [1]}, [10, 6])
    {1: 3, 2: 3, 0: 7}
    """
    flows: dict[int, list[int]] = {}
    for flow, links in routes.items():
        for link in links:
            flows.setdefault(link, []).append(flow)
    left = {link: capacity[link] for link in flows}
    growing = {link: len(users) for link, users in flows.items()}
    rates: dict[int, int] = {}
    while len(rates) < len(routes):
        share, full = min((max(1, left[link] // count), link) for link, count in growing.items() if count)
        for flow in flows[full]:
            if flow not in rates:
                rates[flow] = share
                for link in routes[flow]:
                    left[link] -= share
                    growing[link] -= 1
    return rates


@dataclass(slots=True)
class _Flow:
    """A transfer in flight: times in picoseconds, sizes in bytes, rates in units."""

    links: list[int]
    start: int
    alone: int  # duration when nothing slows it
    size: int
    left: float  # what remained at `since`
    since: int
    rate: int = 0

    def change(self, rate: int, now: int, unit: float) -> int:
        """Go on at another rate, of ``unit`` to a byte/ps, and return the predicted end."""
        self.left -= float(self.rate) * float(now - self.since) / unit
        self.rate, self.since = rate, now
        rest = max(0.0, self.left - SLACK * float(self.size)) * unit / float(rate)
        return max(self.start + self.alone, now + ceil(rest))


class _Shares:
    """The flows in flight and the links that they share."""

    def __init__(self, bandwidth: list[int]) -> None:
        self.bandwidth = bandwidth
        units = 1 << max(0, 62 - max(bandwidth, default=1).bit_length())  # of rate, in a byte/s
        self.capacity = [link * units for link in bandwidth]
        self.unit = float(SECOND * units)
        self.flows: dict[int, _Flow] = {}
        self.users: list[set[int]] = [set() for _ in bandwidth]
        self.changed: set[int] = set()  # links that a flow joined or left since rates were solved

    def add(self, number: int, links: list[int], busy: list[int], now: int) -> None:
        size = min(time * self.bandwidth[link] // SECOND for link, time in zip(links, busy, strict=True))
        self.flows[number] = _Flow(links, start=now, alone=max(busy), size=size, left=size, since=now)
        self.changed.update(links)
        for link in links:
            self.users[link].add(number)

    def remove(self, number: int) -> int:
        """Take a flow out and return when it started."""
        flow = self.flows.pop(number)
        self.changed.update(flow.links)
        for link in flow.links:
            self.users[link].discard(number)
        return flow.start

    def solve(self, now: int) -> list[tuple[int, int]]:
        """Solve the rates of all flows that a change can reach; return (number, new end) where a rate is another."""
        reached: set[int] = set()
        links = list(self.changed)
        seen = self.changed
        self.changed = set()
        while links:
            for number in self.users[links.pop()] - reached:
                reached.add(number)
                fresh = [link for link in self.flows[number].links if link not in seen]
                seen.update(fresh)
                links += fresh
        rates = max_min({number: self.flows[number].links for number in sorted(reached)}, self.capacity)
        return [
            (number, self.flows[number].change(rate, now, self.unit))
            for number, rate in rates.items()
            if rate != self.flows[number].rate
        ]


def run_fluid(program: Program) -> Times:
    """Execute a program in the fluid model, by the rules at the top of this module.

    Parameters
    ----------
    program
        What to run.

    Returns
    -------
    Times
        Integer picoseconds, by transfer and by visit of a station.

    Raises
    ------
    InputError
        If the program takes more than 106 days.
    DeadlockError
        If transfers wait for each other; the message names them.
    """
    first, last = program.visit_ptr[:-1].tolist(), program.visit_ptr[1:].tolist()
    station, busy = program.visit_station.tolist(), program.visit_busy.tolist()
    low, high, lead = _flow_ranges(program)
    free = [0] * len(program.station_kind)
    visit_start, visit_end = [0] * len(station), [0] * len(station)

    dependencies = Dependencies(program)
    ready = dependencies.ready
    at = first.copy()  # the next visit of each node; the whole flow counts as one
    begin, end = [0] * program.nodes, [0] * program.nodes
    handled = [False] * program.nodes
    shares = _Shares(program.station_bandwidth.tolist())
    solver = program.nodes  # as if it were a node: after all arrivals of its instant, once
    due = [-1] * (program.nodes + 1)  # an event at another time than this has been overtaken by a change of rates

    def expect(node: int, time: int) -> None:
        if due[node] != time:
            due[node] = time
            put(node, time)

    def send(node: int, time: int) -> None:
        """Put in the next arrival of a node that is done with what lies before ``at[node]``."""
        expect(node, time + lead[node] if at[node] == low[node] else time)

    def issue(node: int, time: int) -> None:
        for successor in dependencies.issued(node, time):
            send(successor, ready[successor])

    def arrive(event: Any) -> None:
        node, now = event.node, event.time
        if due[node] != now:
            return
        due[node] = -1
        if node == solver:
            for number, time in shares.solve(now):
                expect(number, time)
            return
        visit = at[node]
        if visit == first[node]:
            begin[node] = ready[node]
        if visit == low[node] < high[node]:
            if node not in shares.flows:
                started = now
                if any(busy[visit : high[node]]):
                    shares.add(node, station[visit : high[node]], busy[visit : high[node]], now)
                    expect(solver, now)
                    return
            else:
                started = shares.remove(node)
                expect(solver, now)
            for link in range(visit, high[node]):
                visit_start[link], visit_end[link] = started, now
            if visit == first[node]:
                issue(node, now)
            visit = high[node]
        if visit < last[node]:  # the sender or the reducer
            start = max(now, free[station[visit]])
            now = free[station[visit]] = start + busy[visit]
            visit_start[visit], visit_end[visit] = start, now
            if visit == first[node]:
                begin[node] = start
                issue(node, now)
            visit += 1
            if visit < last[node]:
                at[node] = visit
                send(node, now)
                return
        elif first[node] == last[node]:
            issue(node, now)
        end[node] = now
        handled[node] = True
        for successor in dependencies.ended(node, now):
            send(successor, ready[successor])

    env, put = agenda(arrive)
    for node in dependencies.free:
        send(node, 0)
    env.run()
    if not all(handled):
        raise deadlock(program, np.array(handled))
    return times(program, ready, begin, end, visit_start, visit_end)


def _flow_ranges(program: Program) -> tuple[list[int], list[int], list[int]]:
    """Return by node the first visit of its flow, the one after its last, and the latency that passes before it."""
    kind = program.station_kind[program.visit_station]
    sends, carries = kind == SENDER, np.isin(kind, (COPY, LINK))
    low = program.visit_ptr[:-1] + _sums(program, sends)
    latency = _sums(program, np.where(carries, program.visit_latency, 0))
    return low.tolist(), (low + _sums(program, carries)).tolist(), latency.tolist()


def _sums(program: Program, values: Array) -> Array:
    """Return the sum of ``values`` over the visits of each node."""
    total = np.concatenate(([0], np.cumsum(values)))
    return total[program.visit_ptr[1:]] - total[program.visit_ptr[:-1]]
