"""A run as PyTorch's profiler (Kineto) would write it: one file a rank, for Holistic Trace Analysis."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError, shown
from collsim.traces.perfetto import about
from collsim.traces.slices import DIRECTIONS, NANO, Slices, Tracks, of_ranks, ticks
from collsim.traces.writer import Rows, Template, document, in_order, written_whole

if TYPE_CHECKING:
    from collsim.engine.result import Result

__all__ = ["write_kineto"]

Array = npt.NDArray[Any]

LARGEST = 2**62
"""Picoseconds, scaled, that fit into the numbers that are written."""
HOST = 100_000_000
"""The process of a rank's host is this and the rank; its device is the rank, as files of one machine have it."""
FEW_RANKS = 30
"""Members of a group that PyTorch lists before it cuts the list."""

TYPES = {1: ("u8", "Byte"), 2: ("f16", "Half"), 4: ("f32", "Float"), 8: ("f64", "Double")}
"""By bytes of an element: what NCCL's kernels and PyTorch call the type. (A result knows the bytes only.)"""
KERNELS = {
    "all_reduce": "AllReduce_Sum_{type}", "reduce_scatter": "ReduceScatter_Sum_{type}", "all_gather": "AllGather",
    "broadcast": "Broadcast", "reduce": "Reduce_Sum_{type}", "barrier": "AllReduce_Sum_{type}",
}  # fmt: skip
"""Kernels of NCCL; it does the other operations by sends and receives."""
COLLECTIVES = {
    "all_reduce": "allreduce", "reduce_scatter": "_reduce_scatter_base", "all_gather": "_allgather_base",
    "send_recv": "send",
}  # fmt: skip
"""What PyTorch calls an operation where it is another name."""

WHERE = '"pid":<device>,"tid":<stream>,"ts":<ts:us>,"dur":<dur:us>'
FACTS = (
    '"device":<device>,"stream":<stream>,"correlation":<correlation>,"bytes":<bytes>,"step":<step>,"chunk":<chunk>,'
    '"channel":<channel>,"transfer":<transfer>'
)


def write_kineto(result: Result, folder: str | os.PathLike[str], time_scale: int = 1) -> None:
    """Write a run as PyTorch's profiler would: ``rank0.pt.trace.json.gz`` and so on, for Holistic Trace Analysis.

    Each transfer is a communication kernel of the rank that sends and of the one that receives, each reduction a
    computation kernel; each channel and direction is a stream, or several where kernels overlap. Switches that take
    part have no file.

    Parameters
    ----------
    result
        A run with records.
    folder
        Where to write; it is made if need be. All files are replaced, or none.
    time_scale
        By how much times are stretched, a whole number from 1. Holistic Trace Analysis rounds starts up and ends down
        to whole microseconds, so that shorter transfers come out with no duration, or -1. With 1,000,000 each
        microsecond in the file is a picosecond, and nothing is rounded.

    Raises
    ------
    CollsimError
        If the run kept no records.
    InputError
        If the scale is not such a number, or the files cannot be written, or there are traces of other ranks in the
        folder, which would be read as part of this run.

    Examples
    --------
    >>> import gzip, json, pathlib, tempfile
    >>> import collsim
    >>> topology = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    >>> result = collsim.run("all_reduce", topology, size="1MiB", algorithm="ring", dtype="float")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_kineto(result, folder)
    ...     trace = json.loads(gzip.decompress(pathlib.Path(folder, "rank3.pt.trace.json.gz").read_bytes()))
    >>> trace["distributedInfo"]["rank"]
    3
    >>> next(event["name"] for event in trace["traceEvents"] if event.get("cat") == "kernel")
    'ncclDevKernel_AllReduce_Sum_f32_RING(send)'
    """
    if not isinstance(time_scale, (int, np.integer)) or isinstance(time_scale, bool) or time_scale < 1:
        raise InputError(f"time_scale: expected a whole number from 1, got {shown(time_scale)}")
    groups = of_ranks(result)
    scale = int(time_scale)
    if result.time_ps * scale > LARGEST:
        most = LARGEST // result.time_ps
        raise InputError(f"time_scale: expected at most {most:,} for a run of {result.time:.3g} s, got {scale:,}")
    where = f"kineto: {os.fspath(folder)}"
    target, made = _folder(folder, where)
    paths = [target / f"rank{rank}.pt.trace.json.gz" for rank in range(result.schedule.ranks)]
    try:
        _refuse_strangers(target, {path.name for path in paths}, where)
        with written_whole(paths, where) as files:
            for head, names, events in _ranks(result, groups, scale):
                document(next(files), head, names, events)
    except BaseException:
        if made and not os.listdir(target):
            target.rmdir()
        raise


def _folder(folder: str | os.PathLike[str], where: str) -> tuple[Path, bool]:
    """Return the folder, and whether it had to be made."""
    target = Path(os.path.realpath(folder))
    if os.path.isdir(target):
        return target, False
    if os.path.exists(target):
        raise InputError(f"{where}: expected a folder, got a file")
    try:
        target.mkdir()
    except OSError as error:
        raise InputError(f"{where}: cannot be made: {error.strerror}") from error
    return target, True


def _refuse_strangers(target: Path, ours: set[str], where: str) -> None:
    try:
        others = sorted(name for name in os.listdir(target) if name.lower().endswith((".json", ".gz")))
    except OSError as error:
        raise InputError(f"{where}: cannot be read: {error.strerror}") from error
    for name in others:
        if name not in ours:
            raise InputError(f"{where}: expected a folder without other traces, which would be read too, got {name}")


def _ranks(
    result: Result, groups: tuple[Slices, ...], scale: int
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]], Iterator[bytes]]]:
    """Yield for each rank the fields beside the events, the first events and the text of the others."""
    program, ranks = result.program, result.schedule.ranks
    tracks = Tracks.lay(groups, program.channel, scale)
    # the slices of each rank stand together
    orders = [np.argsort(group.owner, kind="stable") for group in groups]
    edges = np.arange(ranks + 1)
    borders = [np.searchsorted(group.owner[order], edges) for group, order in zip(groups, orders, strict=True)]
    lows = np.searchsorted(tracks.owner, edges)
    facts = {name: getattr(program, name) for name in ("step", "chunk", "channel", "bytes", "src", "dst")}
    facts["elements"] = program.bytes // result.element_size
    templates = [Template(text) for text in _kernels(result)]

    for rank in range(ranks):
        low = int(lows[rank])

        def rows(direction: int, rank: int = rank, low: int = low) -> Rows:
            which = orders[direction][borders[direction][rank] : borders[direction][rank + 1]]
            mine, track = groups[direction].take(which), tracks.of[direction][which]

            def columns(some: Array) -> Mapping[str, Array]:
                part = mine.take(some)
                start, end = ticks(part.start, scale), ticks(part.end, scale)
                found = {name: column[part.transfer] for name, column in facts.items()}
                return {
                    **found, "transfer": part.transfer, "ts": start, "dur": end - start,
                    "device": np.full(len(some), rank), "stream": track[some] - low + 1,
                    # a number for each kernel of the rank: a transfer can be sent, received and reduced by one
                    "correlation": part.transfer * len(DIRECTIONS) + direction + 1,
                }  # fmt: skip

            return Rows(mine.start, templates[direction], columns)

        kinds = [rows(direction) for direction in range(len(DIRECTIONS))]
        yield _head(result, rank, scale), _first(result, rank, tracks, low, int(lows[rank + 1]), scale), in_order(kinds)


def _kernels(result: Result) -> list[str]:
    """Return the text of a kernel for each direction."""
    schedule = result.schedule
    kind, dtype = TYPES[result.element_size]
    name = KERNELS.get(result.operation, "SendRecv").format(type=kind)
    how = re.sub(r"\W+", "_", schedule.algorithm or "", flags=re.ASCII).strip("_").upper()
    kernel = "_".join(filter(None, ("ncclDevKernel", name, how)))
    group = (
        f'"Collective name":"{_collective(result)}","In msg nelems":<elements>,"Out msg nelems":<elements>,'
        f'"Group size":{schedule.ranks},"dtype":"{dtype}","Process Group Name":"0"'
    )

    def event(cat: str, title: str, more: str = "") -> str:
        return f',\n{{"ph":"X","cat":"{cat}","name":"{title}",{WHERE},"args":{{{FACTS}{more}}}}}'

    return [
        event("kernel", f"{kernel}(send)", f',{group},"Dst Rank":<dst>'),
        event("kernel", f"{kernel}(receive)", f',{group},"Src Rank":<src>'),
        event("kernel", f"reduce_sum_{kind}"),
        event("gpu_memcpy", "Memcpy DtoD (Device -> Device)"),
    ]


def _collective(result: Result) -> str:
    return COLLECTIVES.get(result.operation, result.operation)


def _head(result: Result, rank: int, scale: int) -> dict[str, Any]:
    ranks = result.schedule.ranks
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": ranks,
             "ranks": list(range(ranks)) if ranks <= FEW_RANKS else []}  # fmt: skip
    return {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks, "pg_count": 1, "pg_config": [group]},
        "deviceProperties": [{"id": rank, "name": result.topology.ranks[rank]}],
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "traceName": f"rank{rank}.pt.trace.json",
        "collsim": {**about(result), "time_scale": scale},
    }


def _first(result: Result, rank: int, tracks: Tracks, low: int, high: int, scale: int) -> list[dict[str, Any]]:
    """Return the names of processes and streams, and what the host did: it called the collective."""
    host, schedule = HOST + rank, result.schedule
    elements = result.size // result.element_size
    share = elements // schedule.ranks
    sizes = {"all_gather": (share, elements), "reduce_scatter": (elements, share)}.get(result.operation)
    sent, got = sizes or (elements, elements)
    members = ", ".join(map(str, range(min(schedule.ranks, FEW_RANKS)))) + ", ..." * (schedule.ranks > FEW_RANKS)
    call = {
        "Collective name": _collective(result), "In msg nelems": sent, "Out msg nelems": got,
        "Group size": schedule.ranks, "dtype": TYPES[result.element_size][1], "In split size": "[]",
        "Out split size": "[]", "Process Group Name": "0", "Process Group Description": "default_pg",
        "Process Group Ranks": f"[{members}]", "Seq": 1,
    }  # fmt: skip

    def meta(pid: int, tid: int, what: str, **args: Any) -> dict[str, Any]:
        return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0.0, "args": args}

    events = [
        meta(host, 0, "process_name", name="python"),
        meta(host, 0, "process_labels", labels="CPU"),
        meta(host, host, "thread_name", name="thread 0 (python)"),
        meta(rank, 0, "process_name", name=f"rank {rank}: {result.topology.ranks[rank]}"),
        meta(rank, 0, "process_labels", labels=f"GPU {rank}"),
    ]
    for track in range(low, high):
        stream = track - low + 1
        events.append(meta(rank, stream, "thread_name", name=f"stream {stream} ({tracks.name(track)})"))
    whole = {"ph": "X", "pid": host, "tid": host, "ts": 0.0, "dur": result.time_ps * scale // NANO / 1000}
    events.append({**whole, "cat": "cpu_op", "name": "record_param_comms", "args": call})
    events.append({**whole, "cat": "user_annotation", "name": f"nccl:{result.operation}", "args": call})
    return events
