"""A run as a Chrome trace, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.outputs import output_path
from collsim.traces.slices import NANO, Slices, Tracks, lanes, of_links, of_ranks, ticks
from collsim.traces.utilisation import levelled, utilisation
from collsim.traces.writer import Rows, Template, document, in_order, written_whole

if TYPE_CHECKING:
    from collsim.engine.result import Result

__all__ = ["check_trace_path", "write_perfetto"]

Array = npt.NDArray[Any]

BINS = 200
"""Parts of the time for which the utilisation of each link is given,"""
MOST_COUNTS = 200_000
"""and how many values there may be of it; with many links, fewer parts."""

FACTS = '"transfer":<transfer>,"step":<step>,"chunk":<chunk>,"bytes":<bytes>'
EXACT = '"start_ps":<start_ps>,"end_ps":<end_ps>'
WHERE = '"pid":<pid>,"tid":<tid>,"ts":<ts:us>'
SEND = (
    f',\n{{"ph":"X","cat":"send","name":"chunk <chunk> to <dst>",{WHERE},"dur":<dur:us>,'
    f'"args":{{{FACTS},"reduce":<reduce:bool>,"ready_ps":<ready_ps>,{EXACT}}}}}'
    f',\n{{"ph":"s","cat":"transfer","name":"transfer","id":<transfer>,{WHERE}}}'
)
RECEIVE = (
    f',\n{{"ph":"X","cat":"receive","name":"chunk <chunk> from <src>",{WHERE},"dur":<dur:us>,'
    f'"args":{{{FACTS},{EXACT}}}}}'
    f',\n{{"ph":"f","bp":"e","cat":"transfer","name":"transfer","id":<transfer>,{WHERE}}}'
)
ALONE = f',\n{{"ph":"X","cat":"%s","name":"%s chunk <chunk>",{WHERE},"dur":<dur:us>,"args":{{{FACTS},{EXACT}}}}}'
REDUCE, COPY = (ALONE % (kind, kind) for kind in ("reduce", "copy"))
OVER = (
    f',\n{{"ph":"X","cat":"link","name":"chunk <chunk>, <src> to <dst>",{WHERE},"dur":<dur:us>,'
    f'"args":{{{FACTS},"src":<src>,"dst":<dst>,{EXACT}}}}}'
)
COUNTER = ',\n{"ph":"C","cat":"link","name":"<link:names>","pid":<pid>,"ts":<ts:us>,"args":{"%":<value:percent>}}'


def write_perfetto(result: Result, path: str | os.PathLike[str]) -> None:
    """Write a run as a Chrome trace, for https://ui.perfetto.dev or chrome://tracing.

    A process a rank (and a switch that takes part), with a track for each channel and direction; a process with a
    track for each link that is used, and with the utilisation of each; an arrow from each send to its receive. Slices
    that would overlap on a track have further lanes of it. Times are microseconds in whole nanoseconds; the exact
    picoseconds are in the arguments of each slice.

    Parameters
    ----------
    result
        A run with records.
    path
        A file that ends in ``.json``, or in ``.json.gz`` to be compressed. It is replaced at once or not at all.

    Raises
    ------
    CollsimError
        If the run kept no records.
    InputError
        If the file has another suffix or cannot be written.

    Examples
    --------
    >>> import json, pathlib, tempfile
    >>> import collsim
    >>> topology = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    >>> result = collsim.run("all_gather", topology, size="1MiB", algorithm="ring")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_perfetto(result, pathlib.Path(folder, "ring.json"))
    ...     events = json.loads(pathlib.Path(folder, "ring.json").read_text())["traceEvents"]
    >>> slices = [event for event in events if event["ph"] == "X"]
    >>> slices[0]["name"], slices[0]["ts"], slices[0]["dur"], slices[0]["args"]["bytes"]
    ('chunk 0 to 1', 0.0, 5.242, 262144)
    """
    target = check_trace_path(path)
    groups = of_ranks(result)  # before the file is touched: it refuses results without records
    names, events = _names(result, groups)
    head = {"displayTimeUnit": "ns", "otherData": about(result)}
    with written_whole([target], f"trace: {os.fspath(path)}") as files:
        document(next(files), head, names, events)


def check_trace_path(path: str | os.PathLike[str]) -> Path:
    """Refuse a path for a trace that cannot be written, before time is spent; see `collsim.outputs.output_path`."""
    return output_path(path, "trace", (".json", ".json.gz"))


def about(result: Result) -> dict[str, Any]:
    """Return what was run, for the head of a trace."""
    schedule = result.schedule
    # not as an import: the package itself stands above this room
    version = importlib.import_module("collsim").__version__
    return {
        "tool": f"collsim {version}",
        "topology": result.topology.name,
        "operation": result.operation,
        "algorithm": schedule.algorithm,
        "ranks": schedule.ranks,
        "size": result.size,
        "network": result.network,
        "time_ps": result.time_ps,
    }


def _names(result: Result, groups: tuple[Slices, ...]) -> tuple[list[dict[str, Any]], Iterator[bytes]]:
    """Return the events that name processes and tracks, and the text of all others."""
    schedule, topology, program = result.schedule, result.topology, result.program
    tracks = Tracks.lay(groups, program.channel)
    over, used, busy = of_links(result)
    links = [topology.link_name(int(number)) for number in used]
    counts = _counts(result, over, busy, len(links))
    del busy  # in large runs these columns are most of the memory
    lane = lanes(over.owner, ticks(over.start), ticks(over.end))
    most = int(lane.max(initial=0)) + 1
    of_link = over.owner * np.int64(most) + lane
    link_tracks = np.unique(of_link)
    link_of = np.searchsorted(link_tracks, of_link).astype(np.int32)
    del of_link, lane

    # process 0 is the idle one for Perfetto; threads have numbers of their own in the whole file, since it looks them
    # up by these, and a thread that has the number of its process is its main one
    processes = [f"rank {rank}: {name}" for rank, name in enumerate(topology.ranks)]
    processes += [f"switch {name}" for name in schedule.places]
    link_pid = len(processes) + 1
    processes += ["links"] * bool(links)
    names = [event for pid, name in enumerate(processes, 1) for event in _names_of("process", pid, 0, name, pid)]
    first = link_pid + 1
    for track, tid in enumerate(range(first, first + len(tracks.owner))):
        names += _names_of("thread", int(tracks.owner[track]) + 1, tid, tracks.name(track), tid)
    first_link = first + len(tracks.owner)
    shared = np.bincount(link_tracks // most, minlength=len(links)) > 1
    for tid, (number, place) in enumerate((divmod(track, most) for track in link_tracks.tolist()), first_link):
        further = f", lane {place}" if shared[number] else ""
        names += _names_of("thread", link_pid, tid, links[number] + further, tid)

    facts = {name: getattr(program, name) for name in ("step", "chunk", "bytes", "src", "dst")}
    facts["reduce"] = program.reduce.astype(np.int64)
    facts["ready_ps"] = result.times.ready

    def rows(text: str, slices: Slices, pid: Array, tid: Array) -> Rows:
        def columns(some: Array) -> Mapping[str, Array]:
            part = slices.take(some)
            start, end = ticks(part.start), ticks(part.end)
            found = {name: column[part.transfer] for name, column in facts.items()}
            return {
                **found, "transfer": part.transfer, "pid": pid[some], "tid": tid[some], "ts": start, "dur": end - start,
                "start_ps": part.start, "end_ps": part.end,
            }  # fmt: skip

        return Rows(slices.start, Template(text, bool=("false", "true")), columns)

    kinds = [
        rows(text, group, group.owner + 1, track + first)
        for text, group, track in zip((SEND, RECEIVE, REDUCE, COPY), groups, tracks.of, strict=True)
    ]
    kinds.append(rows(OVER, over, np.broadcast_to(np.int64(link_pid), link_of.shape), link_of + first_link))
    kinds.append(_counters(counts, links, result.time_ps, link_pid))
    return names, in_order(kinds)


def _names_of(what: str, pid: int, tid: int, name: str, place: int) -> Iterator[dict[str, Any]]:
    """Yield the events that name a process or a thread and give its place among the others."""
    for key, value in (("name", name), ("sort_index", place)):
        yield {"ph": "M", "name": f"{what}_{key}", "pid": pid, "tid": tid, "ts": 0, "args": {key: value}}


def _counts(result: Result, slices: Slices, busy: Array, links: int) -> Array:
    """Return the utilisation of each link in hundredths of a per cent, (links, bins), and nothing if no time passed."""
    span = result.time_ps
    if not links or not span:
        return np.zeros((links, 0), dtype=np.int64)
    bins = max(2, min(BINS, MOST_COUNTS // links, span // NANO))
    if result.network == "fluid":
        share = levelled(utilisation(slices, busy, links, span, bins))
    else:  # a link is held for as long as the bytes need, and free when a slow tail still comes
        share = utilisation(replace(slices, end=slices.start + busy), busy, links, span, bins)
    hundredths: Array = np.rint(share * 10_000).astype(np.int64)
    return hundredths


def _counters(counts: Array, links: list[str], span: int, pid: int) -> Rows:
    """Return a value of each counter wherever it changes, and 0 at the end."""
    bins = counts.shape[1]
    share = np.hstack([counts, np.zeros((len(links), min(bins, 1)), dtype=np.int64)])
    changes = np.ones(share.shape, dtype=bool)
    changes[:, 1:] = share[:, 1:] != share[:, :-1]
    link, place = np.nonzero(changes)
    at = np.array([span * number // bins for number in range(bins + 1)] if bins else [], dtype=np.int64)[place]
    names = [json.dumps(f"utilisation of {name}")[1:-1] for name in links]

    def columns(some: Array) -> Mapping[str, Array]:
        return {
            "link": link[some], "pid": np.full(len(some), pid), "ts": ticks(at[some]),
            "value": share[link[some], place[some]],
        }  # fmt: skip

    return Rows(at, Template(COUNTER, names=names), columns)
