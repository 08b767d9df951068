"""Random programs in the form of their repeats: small integers, so that ties and zeros abound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from collsim.engine.loops import Loops
from collsim.engine.program import COPY, LINK, REDUCER, SENDER
from tests.programs import BANDWIDTHS, Station, busy

NOTHING = 0
"""Number of the route that crosses nothing."""

small = st.integers(0, 6)
lags = st.sampled_from((0, 0, 2, 9))
chances = st.integers(0, 7)
edges = st.tuples(st.integers(0, 999), st.integers(0, 999), st.booleans(), lags, chances)
shapes = st.tuples(small, small, small, st.integers(-3, 3))
"""Of a window of chunks: base, rel and window before they are fitted in, and the shift."""


class Machine(NamedTuple):
    """Stations, and the routes over them that rows may take; the first crosses nothing."""

    stations: list[Station]
    routes: list[list[int]]


class Row(NamedTuple):
    step: int
    route: int
    size_class: int
    shape: tuple[int, int, int, int]


class Phase(NamedTuple):
    times: int
    steps: int
    varies: bool
    rows: list[Row]
    deps: list[list[tuple[int, int, bool, int]]]
    """By row: (row of the phase, iterations back, issued, lag)."""


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Draw four links and two devices, and routes of all kinds over them."""
    stations = [Station(LINK, *draw(st.tuples(st.sampled_from(BANDWIDTHS), small)), overhead=0) for _ in range(4)]
    engines: list[tuple[list[int], list[int]]] = []
    for _ in range(2):
        sender, engine, reducer = draw(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 2)))
        before, after = [], []
        if sender:
            before.append(len(stations))
            stations.append(Station(SENDER, 0, 0, sender))
        if engine:
            before.append(len(stations))
            stations.append(Station(COPY, BANDWIDTHS[engine], 0, 0))
        if reducer:
            after.append(len(stations))
            stations.append(Station(REDUCER, BANDWIDTHS[reducer], 0, 0))
        engines.append((before, after))
    path = st.lists(st.integers(0, 3), max_size=3, unique=True)
    routes: list[list[int]] = [[]]
    for src, reduces, links in draw(
        st.lists(st.tuples(st.integers(0, 1), st.booleans(), path), min_size=1, max_size=6)
    ):
        routes.append([*engines[src][0], *links, *(engines[1 - src][1] if reduces else [])])
    return Machine(stations, routes)


@st.composite
def phases(draw: st.DrawFn, routes: int, classes: int, forward_only: bool, rows: int, iterations: int) -> Phase:
    """Draw a table of rows that is run a few times."""
    row = st.tuples(st.integers(0, 2), st.integers(0, routes - 1), st.integers(0, classes - 1), shapes)
    table = draw(st.lists(row, min_size=1, max_size=rows))
    step = np.cumsum([moves % 2 for moves, *_ in table])  # ascends, and two of three rows stay in the step
    preds = draw(st.lists(st.lists(edges, max_size=2), min_size=len(table), max_size=len(table)))
    times, more_steps, varies = draw(st.tuples(st.integers(1, iterations), st.integers(1, 2), st.booleans()))
    deps: list[list[tuple[int, int, bool, int]]] = []
    for r, wanted in enumerate(preds):
        deps.append([])
        for pred, back, issued, lag, chance in wanted:
            pred, distance = pred % len(table), back % 4
            if pred >= r and (forward_only or chance):
                distance = max(distance, 1)
            deps[r].append((pred, distance, issued, lag))
    filled = [Row(int(s), *rest) for s, (_, *rest) in zip(step, table, strict=True)]
    return Phase(times, int(step[-1]) + more_steps, varies, filled, deps)


@st.composite
def loops_programs(
    draw: st.DrawFn,
    *,
    forward_only: bool = False,
    barrier: bool | None = None,
    max_phases: int = 3,
    max_rows: int = 6,
    max_iterations: int = 6,
) -> Loops:
    """Draw a program of a few phases that share links, senders, copy engines and reducers.

    Parameters
    ----------
    forward_only
        No edge leads against the numbering, so that there is no deadlock; else a few do.
    barrier
        Whether each step waits for the one before; None leaves it open. Without it there may be joins.
    max_phases, max_rows, max_iterations
        Largest number of phases, of rows of a phase and of its iterations.
    """
    machine = draw(machines())
    synchronous = draw(st.booleans()) if barrier is None else barrier
    sizes = sorted(draw(st.sets(st.integers(0, 12), min_size=1, max_size=4)))
    chunks = draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=6))
    table = phases(len(machine.routes), len(sizes), forward_only, max_rows, max_iterations)
    drawn = draw(st.lists(table, min_size=1, max_size=max_phases))
    joins = 0 if synchronous else _add_joins(drawn, draw(st.lists(st.lists(edges, max_size=3), max_size=2)))
    nodes = sum(phase.times * len(phase.rows) for phase in drawn)
    between = []
    for node, pred, issued, lag, chance in draw(st.lists(edges, max_size=6)):
        low, high = sorted((node % nodes, pred % nodes))
        if low < high:
            against = not chance and not forward_only
            between.append((low, high, issued, lag) if against else (high, low, issued, lag))
    return _pack(machine, sizes, chunks, drawn, sorted(between), joins, synchronous)


def _add_joins(drawn: list[Phase], wanted: list[list[tuple[int, int, bool, int, int]]]) -> int:
    """Add joins to the last phase if it is run once; each waits for some rows of it."""
    last = drawn[-1]
    if last.times > 1:
        return 0
    rows = len(last.rows)
    for preds in wanted:
        last.rows.append(Row(last.rows[-1].step, NOTHING, 0, (0, 0, 0, 0)))
        last.deps.append([(pred % rows, 0, issued, lag) for pred, _, issued, lag, _ in preds])
    return len(wanted)


def _pack(
    machine: Machine,
    sizes: list[int],
    chunks: list[int],
    drawn: list[Phase],
    between: Sequence[tuple[int, int, bool, int]],
    joins: int,
    barrier: bool,
) -> Loops:
    stations, routes = machine
    rows = [row for phase in drawn for row in phase.rows]
    row_ptr = np.cumsum([0, *(len(phase.rows) for phase in drawn)])
    deps = [
        [(first + pred, distance, issued, lag) for pred, distance, issued, lag in row]
        for first, phase in zip(row_ptr.tolist(), drawn, strict=False)
        for row in phase.deps
    ]
    dep = np.array([pred for row in deps for pred in row], dtype=np.int64).reshape(-1, 4)
    edge = np.array(between, dtype=np.int64).reshape(-1, 4)
    shape = []
    for row in rows:
        base, rel, window, shift = row.shape
        base %= len(chunks)
        window = 1 + window % (len(chunks) - base)
        shape.append((base, rel % window, shift, window))
    chunk_base, chunk_rel, chunk_shift, chunk_window = np.array(shape).T
    route_station = [station for route in routes for station in route]
    speeds = [(station.overhead, station.bandwidth) for station in stations]  # stations of one speed share a column
    rates = sorted(set(speeds))
    src = np.arange(len(rows)) % 2
    return Loops(
        joins=joins,
        barrier=barrier,
        times=np.array([phase.times for phase in drawn]),
        row_ptr=row_ptr,
        first_step=np.cumsum([0, *(phase.times * phase.steps for phase in drawn)])[:-1],
        block_steps=np.array([phase.steps for phase in drawn]),
        varies=np.array([phase.varies for phase in drawn]),
        step=np.array([row.step for row in rows]),
        src=src,
        dst=1 - src,
        channel=np.zeros(len(rows)),
        reduce=np.array([any(stations[s].kind == REDUCER for s in routes[row.route]) for row in rows]),
        chunk_base=chunk_base,
        chunk_rel=chunk_rel,
        chunk_shift=chunk_shift,
        chunk_window=chunk_window,
        size_class=np.array([row.size_class for row in rows]),
        class_bytes=np.array(sizes),
        chunk_class=np.array(chunks if any(phase.varies for phase in drawn) else []),
        dep_ptr=np.cumsum([0, *(len(row) for row in deps)]),
        dep_row=dep[:, 0],
        **{
            f"dep_{name}": dep[:, i] if dep[:, i].any() else dep[:0, i]
            for i, name in enumerate(("distance", "issued", "lag"), start=1)
        },
        edge_node=edge[:, 0],
        edge_pred=edge[:, 1],
        edge_issued=edge[:, 2],
        edge_lag=edge[:, 3],
        route=np.array([row.route for row in rows]),
        route_ptr=np.cumsum([0, *(len(route) for route in routes)]),
        route_station=np.array(route_station),
        route_latency=np.array([stations[s].latency for s in route_station]),
        route_rate=np.array([rates.index(speeds[s]) for s in route_station]),
        busy=np.array(
            [
                [
                    busy(Station(SENDER if overhead else LINK, bandwidth, 0, overhead), size)
                    for overhead, bandwidth in rates
                ]
                for size in sizes
            ]
        ),
        station_kind=np.array([station.kind for station in stations]),
        station_bandwidth=np.array([station.bandwidth for station in stations]),
        station_index=np.arange(len(stations)),
    )
