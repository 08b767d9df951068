"""LogGOPSim's rules written down once more, event by event, without stations: what `collsim.engine.loggp` must give."""

from __future__ import annotations

import heapq
from collections import defaultdict
from itertools import count

from collsim import Schedule
from collsim.engine.lowering.lower import lower
from collsim.schedule.dependencies import explicit_edges, infer
from collsim.topology import switch


def loggopsim(schedule: Schedule, size: int, L: int, o: int, g: int, G: int, O: int = 0, *, inserted: bool = False):  # noqa: E741
    """When each rank's processor is done for the last time, and whether a receive had to wait for the gap alone.

    A send needs the processor and the sending interface at one time, a receive the processor and the receiving
    interface; what finds one of them taken asks again when both are free. Events at one time are handled in the order
    in which they asked, then by number of the transfer (or, as LogGOPSim does, in the order in which they were put into
    the queue).
    """
    t = schedule.expand()
    m = lower(schedule, switch(schedule.ranks), size).bytes.tolist()
    src, dst = t.src.tolist(), t.dst.tolist()
    local = [a == b for a, b in zip(src, dst, strict=True)]
    ptr, pred = infer(schedule, t)
    edges = [(node, before, False, 0) for node in range(len(t)) for before in pred[ptr[node] : ptr[node + 1]].tolist()]
    edges += zip(*(column.tolist() for column in explicit_edges(schedule)), strict=True)
    starts_after: dict[int, int] = {}  # the sends of a rank leave in their order (GOAL's irequires)
    previous: dict[int, int] = {}
    for node, rank in enumerate(src):
        if not local[node]:
            if rank in previous:
                starts_after[previous[rank]] = node
            previous[rank] = node
    left = [0] * len(t)
    followers = defaultdict(list)
    for node, before, issued, lag in edges:
        left[node] += 1
        followers[before, issued].append((node, lag))
    for node in starts_after.values():
        left[node] += 1

    cpu, out, into = ([0] * schedule.ranks for _ in range(3))
    host = [0] * schedule.ranks
    ready = [0] * len(t)
    near = False
    turn = count()
    heap: list[tuple[int, ...]] = []

    def put(time: int, asked: int, node: int, receives: bool) -> None:
        heapq.heappush(heap, (time, next(turn) if inserted else asked, node, receives))

    def release(node: int, time: int) -> None:
        ready[node] = max(ready[node], time)
        left[node] -= 1
        if not left[node]:
            begin(node)

    def begin(node: int) -> None:
        if local[node]:
            follow(node, True, ready[node])
            follow(node, False, ready[node])
        else:
            put(ready[node], ready[node], node, False)

    def follow(node: int, issued: bool, time: int) -> None:
        for follower, lag in followers[node, issued]:
            release(follower, time + lag)

    for node in [node for node in range(len(t)) if not left[node]]:
        begin(node)
    while heap:
        time, asked, node, receives = heapq.heappop(heap)
        rank = dst[node] if receives else src[node]
        interface = into if receives else out
        more = max(0, m[node] - 1)
        if max(cpu[rank], interface[rank]) > time:
            near |= receives and interface[rank] > max(cpu[rank], time)
            asked = asked if receives else max(asked, interface[rank])
            put(max(cpu[rank], interface[rank]), asked, node, receives)
            continue
        cpu[rank] = time + o + more * (max(O, G) if receives else O)
        interface[rank] = time + g + more * G
        if not receives:  # not sooner than the processor: it changes nothing but who asked first
            interface[rank] = max(interface[rank], cpu[rank])
        host[rank] = max(host[rank], cpu[rank])
        if receives:
            follow(node, False, cpu[rank])
            continue
        arrival = cpu[rank] + L
        put(arrival, arrival, node, True)
        follow(node, True, cpu[rank])
        if node in starts_after:
            release(starts_after[node], time)
    return host, near
