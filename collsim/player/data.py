"""What the page is made of: a run as columns of whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

import collsim
from collsim.engine.program import LINK, Array
from collsim.player.contents import Contents, contents_of
from collsim.player.limits import refuse_beyond_player
from collsim.player.waits import waits_of
from collsim.plot.layout import layout_of
from collsim.schedule.model import Transfers
from collsim.topology import Topology
from collsim.units import format_bandwidth, format_size

if TYPE_CHECKING:
    from collsim.engine.result import Result

__all__ = ["player_data"]

LARGEST_DOUBLE = 2**53
"""Whole numbers up to here are exact in JavaScript."""
MOST_RANGES = 6
"""Runs of chunks that are written out."""


def player_data(result: Result) -> dict[str, Any]:
    """Return what the page shows of a run.

    Parameters
    ----------
    result
        A run with records.

    Returns
    -------
    dict
        Plain lists, numbers and texts, ready for JSON. Times are whole numbers of ``tick`` picoseconds; ``start``
        counts from ``ready``, ``end`` and ``enter`` count from ``start``, ``held`` and ``arrive`` from ``enter``.

    Raises
    ------
    InputError
        If the run is larger than the player takes.
    CollsimError
        If no records were kept.

    Examples
    --------
    >>> topology = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    >>> data = player_data(collsim.run("all_reduce", topology, "1MiB", algorithm="ring"))
    >>> len(data["transfers"]["src"]), data["transfers"]["chunks"][:4], data["time"]
    (24, [0, 1, 2, 3], 37457280)
    """
    refuse_beyond_player(result.schedule, result.topology)
    times, program, schedule = result.times, result.program, result.schedule
    tick = 1
    while result.time_ps // tick >= LARGEST_DOUBLE:
        tick *= 1000
    ready, start, end = (_ticks(column, tick) for column in (times.ready, times.start, times.end))
    waits = waits_of(program, times, result.network)
    contents = contents_of(schedule, times.end)
    expanded = schedule.expand()
    texts, chunks = _texts(expanded)
    data = {
        "version": collsim.__version__,
        **_facts(result),
        "time": result.time_ps // tick,
        "tick": tick,
        **_machine(result.topology),
        "ends": [*result.topology.rank_nodes.tolist(), *map(result.topology.node_index, schedule.places)],
        "ranks": schedule.ranks,
        "steps": schedule.steps,
        "chunk_texts": texts,
        "transfers": {
            "step": program.step.tolist(),
            "src": program.src.tolist(),
            "dst": program.dst.tolist(),
            "channel": program.channel.tolist(),
            "reduce": program.reduce.astype(int).tolist(),
            "chunk": program.chunk.tolist(),
            "chunks": chunks,
            "bytes": program.bytes.tolist(),
            "ready": ready.tolist(),
            "start": (start - ready).tolist(),
            "end": (end - start).tolist(),
            "carried": contents.carried,
            "after": waits.after.tolist(),
            "paced": waits.paced.astype(int).tolist(),
            "waited": _ticks(waits.waited, tick).tolist(),
            "behind": waits.behind.tolist(),
            "at": waits.link.tolist(),
        },
        "hops": _hops(result, start, end, tick),
        "critical": sorted(result.critical_path.transfers),
        "contents": _grid(contents),
    }
    return data


def _ticks(column: Array, tick: int) -> Array:
    return np.asarray(column if tick == 1 else column // tick)


def _facts(result: Result) -> dict[str, Any]:
    schedule, theory = result.schedule, result.theory
    if result.checked is None:
        proof = "not proven"
    elif result.checked.complete:
        proof = "proven"
    else:
        proof = f"proven for {result.checked.checked:,} of {result.checked.chunks:,} chunks"
    return {
        "title": " ".join(filter(None, (schedule.algorithm, result.operation))),
        "operation": result.operation,
        "reduces": int(schedule.collective.reduces),
        "topology": result.topology.name,
        "network": result.network + (", a barrier after each step" if result.synchronous else ""),
        "size": format_size(result.size),
        "proof": proof,
        "busbw": f"{result.busbw / 1e9:.4g} GB/s" if result.busbw else "",
        "theory_us": None if theory is None else float(theory) * 1e6,
        "theory_holds": int(theory is not None and theory.holds),
        "bound_us": float(result.bound) * 1e6,
        "efficiency": result.efficiency,
    }


def _machine(topology: Topology) -> dict[str, Any]:
    layout = layout_of(topology)
    rates, rate = np.unique(topology.link_bandwidth, return_inverse=True)
    used = [topology.link_kind(link) for link in range(topology.n_links)]
    return {
        "nodes": {
            "name": list(topology.nodes),
            "kind": list(topology.kinds),
            "rank": topology.rank_of_node.tolist(),
            "x": np.round(layout.positions[:, 0], 4).tolist(),
            "y": np.round(1 - layout.positions[:, 1], 4).tolist(),  # pages count from the top
        },
        "boxes": [
            [box.name, *(round(float(v), 4) for v in (box.left, 1 - box.top, box.right, 1 - box.bottom))]
            for box in layout.boxes
        ],
        "rates": [format_bandwidth(int(value)) for value in rates],
        "links": {
            "src": topology.link_src.tolist(),
            "dst": topology.link_dst.tolist(),
            "key": topology.link_key.tolist(),
            "rate": rate.reshape(-1).tolist(),
            "latency": topology.link_latency.tolist(),
            "kind": used if any(used) else [],
        },
    }


def _hops(result: Result, start: Array, end: Array, tick: int) -> dict[str, Any]:
    """Return the links that transfers cross, how long they are held, and when the message is at the far end."""
    program, times = result.program, result.times
    visitor = np.repeat(np.arange(program.nodes), np.diff(program.visit_ptr))
    on_link = program.station_kind[program.visit_station] == LINK
    owner = visitor[on_link]
    enter = _ticks(times.visit_start[on_link], tick)
    held = _ticks(times.visit_end[on_link], tick)
    arrive = np.minimum(_ticks(times.visit_end[on_link] + program.visit_latency[on_link], tick), end[owner])
    count = np.bincount(owner, minlength=program.transfers)
    return {
        "count": count.tolist(),
        "link": program.station_index[program.visit_station[on_link]].tolist(),
        "enter": (enter - start[owner]).tolist(),
        "held": (held - enter).tolist(),
        "arrive": (arrive - enter).tolist(),
    }


def _texts(transfers: Transfers) -> tuple[list[str], list[int]]:
    """Return the chunks of transfers in words, each once, and which words each transfer has."""
    known: dict[str, int] = {}
    which = []
    borders = transfers.ptr.tolist()
    for lo, hi in pairwise(borders):
        read, written = transfers.src_chunks[lo:hi].tolist(), transfers.dst_chunks[lo:hi].tolist()
        text = _ranges(written) if read == written else f"{_ranges(read)} to {_ranges(written)}"
        which.append(known.setdefault(text, len(known)))
    return list(known), which


def _ranges(chunks: Sequence[int]) -> str:
    """Write chunks as runs.

    Examples
    --------
    >>> _ranges([3]), _ranges([0, 1, 2, 8])
    ('3', '0-2, 8')
    """
    runs: list[list[int]] = []
    for chunk in sorted(chunks):
        if runs and chunk == runs[-1][1] + 1:
            runs[-1][1] = chunk
        else:
            runs.append([chunk, chunk])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:MOST_RANGES]]
    return ", ".join(shown) + (", ..." if len(runs) > MOST_RANGES else "")


def _grid(contents: Contents) -> dict[str, Any]:
    transfer, cell, level, which = zip(*contents.changes, strict=True) if contents.changes else ((), (), (), ())
    return {
        "columns": contents.columns,
        "first": contents.first,
        "scratch": contents.scratch_first,
        "sets": [f"{members:x}" for members in contents.sets],
        "level": [value for value, _ in contents.start],
        "set": [value for _, value in contents.start],
        "goal": contents.goal,
        "changes": {"transfer": transfer, "cell": cell, "level": level, "set": which},
    }
