"""Small programs written by hand, hypothesis strategies for random ones, and a plain second engine.

Bandwidths are written in `B`, one byte per picosecond, so that a size is also the picoseconds that it takes there.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from collsim.engine.program import COPY, LINK, REDUCER, SENDER, Program

B = 10**12


class Edge(NamedTuple):
    """Wait for ``node`` to end (or to be issued), plus a lag in picoseconds."""

    node: int
    lag: int = 0
    issued: bool = False


class Station(NamedTuple):
    kind: int
    bandwidth: int
    latency: int
    overhead: int


class Plan:
    """Collects stations, transfers and joins, and builds the `Program`.

    Joins have negative handles, since their numbers follow those of all transfers.
    """

    def __init__(self) -> None:
        self.stations: list[Station] = []
        self.rows: list[dict[str, Any]] = []
        self.routes: list[tuple[Sequence[int], int]] = []
        self.after: list[list[Edge]] = []
        self.joins: list[list[Edge]] = []

    def _station(self, kind: int, bandwidth: int = 0, latency: int = 0, overhead: int = 0) -> int:
        self.stations.append(Station(kind, bandwidth, latency, overhead))
        return len(self.stations) - 1

    def link(self, bandwidth: int = B, latency: int = 0) -> int:
        return self._station(LINK, bandwidth, latency)

    def copy_engine(self, bandwidth: int) -> int:
        return self._station(COPY, bandwidth)

    def reducer(self, bandwidth: int) -> int:
        return self._station(REDUCER, bandwidth)

    def sender(self, overhead: int) -> int:
        return self._station(SENDER, overhead=overhead)

    def transfer(self, size: int, *route: int, after: Sequence[int | Edge] = (), **columns: int) -> int:
        """Add a transfer of ``size`` bytes along stations; its step, src, dst, channel and chunk may be given."""
        reduce = any(self.stations[station].kind == REDUCER for station in route)
        self.rows.append({"step": 0, "src": 0, "dst": 1, "channel": 0, "chunk": 0, "reduce": reduce} | columns)
        self.routes.append((route, size))
        self.after.append([edge if isinstance(edge, Edge) else Edge(edge) for edge in after])
        return len(self.rows) - 1

    def join(self, after: Sequence[int | Edge] = ()) -> int:
        self.joins.append([edge if isinstance(edge, Edge) else Edge(edge) for edge in after])
        return -len(self.joins)

    def wait(self, node: int, edge: Edge) -> None:
        """Add an edge to a transfer that exists, as a cycle needs."""
        self.after[node].append(edge)

    def program(self) -> Program:
        def column(name: str) -> np.ndarray:
            return np.array([row[name] for row in self.rows], dtype=np.bool_ if name == "reduce" else np.int64)

        visits = [(self.stations[station], station, size) for route, size in self.routes for station in route]
        preds = self.after + self.joins
        edges = [edge for node in preds for edge in node]
        number = len(self.rows) - 1  # a handle of -1 is join 0, whose number is that of the transfers
        lengths = [len(route) for route, _ in self.routes] + [0] * len(self.joins)
        return Program(
            **{name: column(name) for name in ("step", "src", "dst", "channel", "chunk", "reduce")},
            bytes=np.array([size for _, size in self.routes], dtype=np.int64),
            joins=len(self.joins),
            pred_ptr=np.cumsum([0] + [len(node) for node in preds]),
            pred=np.array([e.node if e.node >= 0 else number - e.node for e in edges], dtype=np.int64),
            pred_issued=np.array([e.issued for e in edges], dtype=np.bool_),
            pred_lag=np.array([e.lag for e in edges], dtype=np.int64),
            visit_ptr=np.cumsum([0, *lengths]),
            visit_station=np.array([station for _, station, _ in visits], dtype=np.int64),
            visit_busy=np.array([busy(at, size) for at, _, size in visits], dtype=np.int64),
            visit_latency=np.array([at.latency for at, _, _ in visits], dtype=np.int64),
            station_kind=np.array([at.kind for at in self.stations], dtype=np.int64),
            station_bandwidth=np.array([at.bandwidth for at in self.stations], dtype=np.int64),
            station_index=np.arange(len(self.stations)),
        )


def busy(station: Station, size: int) -> int:
    """Return for how many picoseconds a message holds a station: rounded up."""
    return station.overhead if station.kind == SENDER else -(-size * 10**12 // station.bandwidth)


BANDWIDTHS = (B, 2 * B, B // 2, B // 3, B // 7)


@st.composite
def programs(draw: st.DrawFn, transfers: int = 9, hops: int = 3) -> Program:
    """Draw a program without cycles: shared stations of all kinds, edges of both sorts and directions, joins."""
    plan = Plan()
    links = [plan.link(*draw(st.tuples(st.sampled_from(BANDWIDTHS), st.integers(0, 6)))) for _ in range(4)]
    devices = []
    for _ in range(2):
        sender, engine, reducer = draw(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 2)))
        devices.append(
            (
                [plan.sender(sender)] if sender else [],
                [plan.copy_engine(BANDWIDTHS[engine])] if engine else [],
                [plan.reducer(BANDWIDTHS[reducer])] if reducer else [],
            )
        )
    count, joins = draw(st.integers(1, transfers)), draw(st.integers(0, 2))
    order = draw(st.permutations([*range(count), *range(-joins, 0)]))
    edge = st.tuples(st.integers(0, len(order)), st.sampled_from((0, 0, 2, 9)), st.booleans())
    preds: dict[int, list[Edge]] = {}
    for place, node in enumerate(order):
        wanted = draw(st.lists(edge, max_size=2)) if place else []
        preds[node] = [Edge(order[before % place], lag, issued) for before, lag, issued in wanted]
    path_of = st.lists(st.sampled_from(links), max_size=hops, unique=True)
    row = st.tuples(st.integers(0, 12), st.integers(0, 1), st.booleans(), path_of)
    for node in range(count):
        size, src, reduces, path = draw(row)
        send, engine_of, _ = devices[src]
        reducer_of = devices[1 - src][2] if reduces else []
        plan.transfer(size, *send, *engine_of, *path, *reducer_of, after=preds[node], src=src, dst=1 - src)
    for join in range(1, joins + 1):
        plan.join(preds[-join])
    return plan.program()


def twin(program: Program, network: str) -> dict[str, list[int]]:
    """Run a FIFO model: the rule of order once more, on a plain heap and written out station by station."""
    visits = [range(program.visit_ptr[n], program.visit_ptr[n + 1]) for n in range(program.nodes)]
    preds = [range(program.pred_ptr[n], program.pred_ptr[n + 1]) for n in range(program.nodes)]
    kind = [int(program.station_kind[s]) for s in program.visit_station]
    free = {int(s): 0 for s in program.visit_station}
    ready, issued, end = {}, {}, {}
    start_of, end_of = [0] * len(kind), [0] * len(kind)
    progress = [0] * program.nodes
    heap = [(0, n) for n in range(program.nodes) if not preds[n]]
    ready.update((n, 0) for _, n in heap)
    while heap:
        time, n = heapq.heappop(heap)
        if visits[n]:
            v = visits[n][progress[n]]
            progress[n] += 1
            station, hold = int(program.visit_station[v]), int(program.visit_busy[v])
            start_of[v] = start = max(time, free[station])
            free[station] = end_of[v] = start + hold
            head = tail = start + hold
            if kind[v] in (COPY, LINK):
                if v != visits[n][0] and kind[v - 1] != SENDER:
                    end_of[v] = max(end_of[v], end_of[v - 1] + int(program.visit_latency[v - 1]))
                tail = end_of[v] + int(program.visit_latency[v])
                head = start + int(program.visit_latency[v]) if network == "cut_through" else tail
            issued.setdefault(n, start + hold)
            if v != visits[n][-1]:
                heapq.heappush(heap, (tail if kind[v + 1] == REDUCER else head, n))
            else:
                end[n] = tail
        else:
            issued[n] = end[n] = ready[n]
        for m in range(program.nodes):  # slow and plain: look at everybody who is not ready yet
            done = [(issued if program.pred_issued[e] else end).get(int(program.pred[e])) for e in preds[m]]
            if m not in ready and None not in done:
                ready[m] = max(t + int(program.pred_lag[e]) for t, e in zip(done, preds[m], strict=True))
                heapq.heappush(heap, (ready[m], m))
    transfers = range(program.transfers)
    begin = [start_of[visits[n][0]] if visits[n] else ready[n] for n in transfers]
    return {
        "ready": [ready[n] for n in transfers],
        "start": begin,
        "end": [end[n] for n in transfers],
        "visit_start": start_of,
        "visit_end": end_of,
    }
