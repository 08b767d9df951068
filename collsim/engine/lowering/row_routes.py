"""Routes of rows: numbered by a compiled pass, found once each."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.engine.lowering.parts import Part, chunks_read
from collsim.engine.lowering.row_dependencies import Rolled
from collsim.engine.lowering.stations import Stations, bind_places, stations_of
from collsim.engine.lowering.written import EMPTY, PART, frozen, joined
from collsim.engine.outcome import budgets
from collsim.schedule import Schedule
from collsim.topology import Topology

__all__ = ["routes_of"]

Array = npt.NDArray[Any]


def routes_of(
    schedule: Schedule, topology: Topology, parts: list[Part], src: Array, dst: Array, channel: Array, reduce: Array
) -> tuple[Stations, Array]:
    """Return the distinct routes of the rows of all parts, and the number of the route of each row.

    Raises
    ------
    TopologyError
        If a route is missing, or a place cannot do what the schedule asks of it.
    """
    node_of = topology.rank_nodes
    if schedule.places:
        node_of = bind_places(
            schedule,
            topology,
            lambda place: bool((reduce & (dst == place)).any()),
            lambda place: _sends_twice(schedule, parts, place),
        )
    via = joined([_via(part) for part in parts])
    kind = _kinds(topology, channel, via, reduce)
    number, first = _number(src, dst, kind)
    stations = stations_of(
        schedule, topology, node_of, src[first], dst[first], channel[first].astype(np.int64), via[first], reduce[first]
    )
    return stations, number


def _via(part: Part) -> Array:
    via = part.form.phase.block.via if isinstance(part.form, Rolled) else part.form.via
    return np.broadcast_to(np.int32(-1), (part.rows,)) if via is None or not len(via) else via


def _kinds(topology: Topology, channel: Array, via: Array, reduce: Array) -> Array:
    """Tell apart the routes between two ends; empty where there is but one."""
    columns = [column for column in (channel, via) if len(column) and column.min() != column.max()]
    if topology.reduce_bandwidth.any() and reduce.any() and not reduce.all():
        columns.append(reduce)
    kind = EMPTY.astype(np.int64)
    for column in columns:
        low, span = int(column.min()), int(column.max()) - int(column.min()) + 1
        kind = (kind * span if len(kind) else 0) + (column.astype(np.int64) - low)
    return kind


def _number(src: Array, dst: Array, kind: Array) -> tuple[Array, Array]:
    """Return the number of the (src, dst, kind) of each row, and a row of each number."""
    from collsim.engine.lowering.last_writer import number_routes

    rows, length = len(src), 2**12
    number = np.empty(rows, dtype=np.int32)
    while True:
        table, keys, state = np.zeros(length, np.int32), np.zeros(length // 2 + 1, np.int64), np.zeros(2, np.int64)
        before = -1
        for budget in budgets(PART):
            number_routes(frozen(src), frozen(dst), frozen(kind), table, keys, number, state, budget)
            if state[0] in (rows, before):
                break
            before = int(state[0])
        if state[0] == rows:
            return number, keys[: state[1]]
        length *= 8  # more of them than half the table: again with a longer one


def _sends_twice(schedule: Schedule, parts: list[Part], place: int) -> bool:
    """Whether a chunk is sent from a place more than once."""
    sent = [EMPTY]
    for part in parts:
        if isinstance(part.form, Rolled):
            phase = part.form.phase
            rows = np.flatnonzero(phase.block.src == place)
            if int(phase.block.count[rows].sum()) * phase.times > schedule.scratch:
                return True  # more than it has
            row, k = np.repeat(rows, phase.times), np.tile(np.arange(phase.times), len(rows))
            sent.append(chunks_read(schedule, phase, row, k)[1])
        else:
            sent.append(part.form.src_chunk[part.form.src[part.form.owner(slice(None))] == place])
    chunks = np.concatenate(sent)
    return len(np.unique(chunks)) != len(chunks)
