"""Lowering without writing out what repeats: schedule + topology + size -> `Loops`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.engine.loops import Loops, loops_of
from collsim.engine.lowering.lower import lower, refuse_other_ranks, refuse_unequal
from collsim.engine.lowering.parts import Part, Waits, parts_of, waits_of
from collsim.engine.lowering.row_dependencies import Rolled
from collsim.engine.lowering.row_routes import routes_of
from collsim.engine.lowering.stations import INT64_MAX, busy_table, serialisation
from collsim.engine.lowering.written import EMPTY, Written, joined, slices
from collsim.engine.memory import refuse_beyond_memory
from collsim.engine.totals import rates_used
from collsim.schedule import Schedule
from collsim.schedule.dependencies import edge_columns, explicit_edges
from collsim.schedule.model import SCRATCH
from collsim.topology import Topology

__all__ = ["roll"]

Array = npt.NDArray[Any]

FEW = 2**12
"""A table of so many times is made whole."""
MOST_PHASES = 32
"""Of more phases each looks for its writers in all before it."""
FEW_TRANSFERS = 1_000_000
"""Written out, so many take little memory."""
FLAT_BYTES = 600
"""Measured a transfer in the flat lowering."""


def roll(
    schedule: Schedule,
    topology: Topology,
    size: int,
    *,
    element_size: int = 1,
    synchronous: bool = False,
    zero_copy: bool = False,
    keep: bool | None = None,
) -> Loops:
    """Lower a schedule on a topology to a program that keeps its repeats.

    Written out (`Loops.flat`) it is what `collsim.engine.lowering.lower` returns, but for the order of predecessors.

    Parameters
    ----------
    schedule, topology, size, element_size, synchronous, zero_copy
        As in `lower`.
    keep
        Keep repeats where that is possible; if not, all are written out. By default they are kept unless there are so
        many of so few transfers that writing them out is quicker.

    Raises
    ------
    ScheduleError, TopologyError, InputError
        As in `lower`, and if there is not enough memory.

    Examples
    --------
    >>> import collsim
    >>> topology = collsim.topology.switch(64, bandwidth="50GB/s", latency="1us")
    >>> loops = roll(collsim.algorithms.ring_all_reduce(64), topology, 64_000)
    >>> loops.phases, loops.rows, loops.transfers
    (2, 128, 8064)
    """
    loops = None
    if keep is None:
        keep = len(schedule.phases) <= MOST_PHASES or schedule.transfers > FEW_TRANSFERS
    if not zero_copy:  # a write that waits for all reads since the last copy has no closed form
        loops = _roll(schedule, topology, size // element_size, element_size, synchronous, keep)
    if loops is None:
        refuse_beyond_memory(
            schedule.transfers * FLAT_BYTES,
            f"{schedule.transfers:,} transfers, written out,",
            "expected fewer ranks, slices or channels",
        )
        program = lower(
            schedule, topology, size, element_size=element_size, synchronous=synchronous, zero_copy=zero_copy
        )
        loops = loops_of(program)
    return loops


def _roll(
    schedule: Schedule, topology: Topology, elements: int, element_size: int, synchronous: bool, keep: bool
) -> Loops | None:
    """Lower, or return None where chunks of scratch differ in size, or have none yet, which has to be followed."""
    refuse_other_ranks(schedule, topology)
    sizes = schedule.elements(elements)
    if sizes.min() != sizes.max() and _uses_scratch(schedule):
        return None
    parts = parts_of(schedule, sizes, keep)
    class_bytes, size_class, varies = _classes(parts, sizes * element_size, element_size)
    waits = waits_of(schedule, parts)
    if waits is None:
        return None
    ends = {name: joined([_column(part, name) for part in parts]) for name in ("src", "dst", "channel", "reduce")}
    stations, route = routes_of(schedule, topology, parts, **ends)
    rates, rate_of = stations.rates()
    row_ptr = np.concatenate(([0], np.cumsum([part.rows for part in parts], dtype=np.int64)))
    loops = Loops(
        joins=0,
        barrier=synchronous,
        times=np.array([part.times for part in parts], dtype=np.int64),
        row_ptr=row_ptr,
        first_step=np.array([part.first_step for part in parts], dtype=np.int64),
        block_steps=np.array([part.steps for part in parts], dtype=np.int64),
        varies=varies,
        step=joined([_column(part, "step") for part in parts]),
        **ends,
        **_moves(schedule, parts),
        size_class=size_class,
        class_bytes=class_bytes,
        chunk_class=np.searchsorted(class_bytes, sizes * element_size) if varies.any() else EMPTY,
        **_predecessors(schedule, parts, waits, row_ptr),
        route=route,
        route_ptr=stations.route_ptr,
        route_station=stations.route_station,
        route_latency=stations.route_latency,
        route_rate=rate_of[stations.route_station],
        busy=np.zeros((len(class_bytes), len(rates)), dtype=np.int64),
        station_kind=stations.station_kind,
        station_bandwidth=stations.station_bandwidth,
        station_index=stations.station_index,
    )
    slowest = min((rate for rate in rates.tolist() if rate > 0), default=1)
    if loops.busy.size <= FEW and serialisation(int(class_bytes.max(initial=0)), slowest) <= INT64_MAX:
        needed = np.ones(loops.busy.shape, dtype=np.bool_)
    else:
        needed = rates_used(loops)
    return replace(loops, busy=busy_table(class_bytes, rates, needed))


def _uses_scratch(schedule: Schedule) -> bool:
    blocks = [phase.block for phase in schedule.phases if phase.times]
    return any((block.src_buffer == SCRATCH).any() or (block.dst_buffer == SCRATCH).any() for block in blocks)


def _column(part: Part, name: str) -> Array:
    column: Array = getattr(part.form.phase.block if isinstance(part.form, Rolled) else part.form, name)
    return column


def _moves(schedule: Schedule, parts: list[Part]) -> dict[str, Array]:
    """Return the columns that tell the chunks of rows."""
    columns: dict[str, list[Array]] = {"base": [], "rel": [], "shift": [], "window": []}
    for part in parts:
        if isinstance(part.form, Rolled):
            phase = part.form.phase
            window = np.where(np.asarray(phase.window) == 0, schedule.chunks, phase.window)
            window = np.broadcast_to(window, (part.rows,)).astype(np.int32)
            chunk = phase.block.dst_chunk
            rel = chunk % window
            moves = {"base": chunk - rel, "rel": rel, "shift": np.asarray(phase.shift) % window, "window": window}
        else:
            zeros = np.zeros(part.rows, dtype=np.int32)
            moves = {"base": part.form.first_chunk(), "rel": zeros, "shift": zeros, "window": zeros + np.int32(1)}
        for name, column in moves.items():
            columns[name].append(column)
    return {f"chunk_{name}": joined(column) for name, column in columns.items()}


def _classes(parts: list[Part], sizes: Array, element_size: int) -> tuple[Array, Array, Array]:
    """Return the distinct sizes, the class of each row, and whether classes change with the iteration, by part.

    Raises
    ------
    ScheduleError
        If a chunk is copied to one of another size.
    """
    values, class_of_chunk = np.unique(sizes, return_inverse=True)
    class_of_chunk = class_of_chunk.astype(np.int32)
    found: list[tuple[Array, Array]] = []  # distinct sizes of a part, and their number by row
    varies = np.zeros(len(parts), dtype=np.bool_)
    for p, part in enumerate(parts):
        equal = len(values) < 2
        if isinstance(part.form, Rolled):
            varies[p] = not equal
            count = part.form.phase.block.count if equal else np.ones(part.rows, dtype=np.int32)
        else:
            if not equal:
                _refuse_unequal(part, sizes // element_size)
            count = np.diff(part.form.ptr) if len(part.form.ptr) else np.ones(1, dtype=np.int32)
        if varies[p]:
            found.append((values[:1], np.zeros(part.rows, dtype=np.int32)))
        elif (count == 1).all():
            if isinstance(part.form, Written) and not equal:
                found.append((values, class_of_chunk[part.form.first_chunk()]))
            else:
                found.append((values, np.zeros(part.rows, dtype=np.int32)))
        else:
            if isinstance(part.form, Written) and not equal:
                payload = np.add.reduceat(sizes[part.form.src_chunk], part.form.ptr[:-1])
            else:
                payload = count * values[0]
            distinct, number = np.unique(payload, return_inverse=True)
            found.append((distinct, number.astype(np.int32)))
    used = [distinct for distinct, _ in found] + ([values] if varies.any() else [])
    class_bytes = np.unique(np.concatenate([values[:1], *used]))
    numbers = []
    for distinct, number in found:
        place = np.searchsorted(class_bytes, distinct).astype(np.int32)
        same = bool((place == np.arange(len(place))).all())
        numbers.append(number if same else place[number])
    return class_bytes, joined(numbers), varies


def _refuse_unequal(part: Part, sizes: Array) -> None:
    """Refuse a message whose chunks differ in size on its two sides."""
    form = part.form
    assert isinstance(form, Written)
    if form.src_chunk is form.dst_chunk:
        return
    for entries in slices(len(form.src_chunk)):
        src, dst = form.src_chunk[entries], form.dst_chunk[entries]
        refuse_unequal(form, form.owner(entries), src, dst, sizes[src], sizes[dst], part.first_step)


def _predecessors(schedule: Schedule, parts: list[Part], waits: Waits, row_ptr: Array) -> dict[str, Array]:
    """Return the columns of predecessors: those that follow from data and those that are written in the schedule."""
    for first, dep_row in zip(row_ptr.tolist(), waits.dep_row, strict=False):
        dep_row += np.int32(first)
    far = any(len(distance) for distance in waits.dep_distance)
    if far:
        distances = [
            distance if len(distance) else np.zeros(len(row), dtype=np.int32)
            for distance, row in zip(waits.dep_distance, waits.dep_row, strict=True)
        ]
    starts = np.cumsum([0, *(len(row) for row in waits.dep_row)]).tolist()
    ends = [ptr[1:] + start for ptr, start in zip(waits.dep_ptr, starts, strict=False)]
    none = np.zeros(0, dtype=np.bool_)
    columns = {
        "dep_ptr": np.concatenate([np.zeros(1, dtype=np.int64), *ends]), "dep_row": joined(waits.dep_row),
        "dep_distance": joined(distances) if far else EMPTY, "dep_issued": none, "dep_lag": EMPTY,
        "edge_node": waits.node, "edge_pred": waits.pred, "edge_issued": np.zeros(len(waits.node), dtype=np.bool_),
        "edge_lag": np.zeros(len(waits.node), dtype=np.int64),
    }  # fmt: skip
    if schedule.edges and parts:
        _add_written(schedule, parts, row_ptr, columns)
    return columns


def _add_written(schedule: Schedule, parts: list[Part], row_ptr: Array, columns: dict[str, Array]) -> None:
    """Add the edges that are written in the schedule."""
    edges = edge_columns(schedule)
    firsts = np.array([part.first for part in parts], dtype=np.int64)
    written = np.array([isinstance(part.form, Written) for part in parts], dtype=np.bool_)
    times = np.array([phase.times for phase in schedule.phases], dtype=np.int64)
    counts = np.array([phase.transfers for phase in schedule.phases], dtype=np.int64)
    part_of = np.searchsorted(firsts, np.cumsum(counts) - counts, side="right") - 1
    first_row = row_ptr[part_of]
    # in a phase that stays rolled an edge is one between rows
    inside = (edges["phase"] == edges["pred_phase"]) & ~written[part_of[edges["phase"]]]
    near = {name: column[inside & (edges["distance"] < times[edges["phase"]])] for name, column in edges.items()}
    node, pred, issued, lag = explicit_edges(schedule, {name: column[~inside] for name, column in edges.items()})
    home, other = (np.searchsorted(firsts, column, side="right") - 1 for column in (node, pred))
    local = (home == other) & written[home]
    move = (row_ptr[:-1] - firsts)[home[local]]
    start = first_row[near["phase"]]
    extra = {
        "dep_row": np.concatenate([near["pred_row"] + start, pred[local] + move]),
        "dep_distance": np.concatenate([near["distance"], np.zeros(len(move), dtype=np.int64)]),
        "dep_issued": np.concatenate([near["issued"], issued[local]]),
        "dep_lag": np.concatenate([near["lag"], lag[local]]),
    }
    rows = np.concatenate([near["row"] + start, node[local] + move])
    known = len(columns["dep_row"])
    owner = np.repeat(np.arange(row_ptr[-1]), np.diff(columns["dep_ptr"]))
    order = np.argsort(np.concatenate([owner, rows]), kind="stable")
    columns["dep_ptr"] = columns["dep_ptr"] + np.concatenate(
        ([0], np.cumsum(np.bincount(rows, minlength=int(row_ptr[-1]))))
    )
    for name, more in extra.items():
        column = columns[name]
        if name == "dep_row" or len(column) or more.any():
            column = column if len(column) else np.zeros(known, dtype=more.dtype)
            columns[name] = np.concatenate([column, more])[order]
    far = {"node": node, "pred": pred, "issued": issued, "lag": lag}
    order = np.argsort(np.concatenate([columns["edge_node"], node[~local]]), kind="stable")
    for name, more in far.items():
        columns["edge_" + name] = np.concatenate([columns["edge_" + name], more[~local]])[order]
