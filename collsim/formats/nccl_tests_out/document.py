"""The JSON that ``-J`` of nccl-tests writes."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from collsim.formats.nccl_tests_out.layout import Half, Line, Setup, average_busbw, devices_per_host, failed_halves
from collsim.formats.nccl_tests_out.lines import devices, lines_of, program_of, title_of
from collsim.outputs import output_path, write_whole

if TYPE_CHECKING:
    from collsim.engine.result import Result

__all__ = ["check_nccl_tests_path", "write_nccl_tests"]

WHAT = "nccl-tests JSON"
WHEN = "%Y-%m-%d %H:%M:%S"


def check_nccl_tests_path(path: str | os.PathLike[str]) -> None:
    """Refuse a path that could not be written.

    Raises
    ------
    InputError
        If there is no such directory, nobody may write there, or the path is a directory or a device.

    Examples
    --------
    >>> check_nccl_tests_path("no/such/result.json")
    Traceback (most recent call last):
    collsim.errors.InputError: nccl-tests JSON: no/such/result.json: no such directory; make it first
    """
    output_path(path, WHAT, ("",))


def write_nccl_tests(
    results: Sequence[Result],
    path: str | os.PathLike[str],
    *,
    dtype: str | None = None,
    wrong: Sequence[int | None] | None = None,
    setup: Setup | None = None,
    started: datetime | None = None,
) -> None:
    """Write results of one operation on one topology as the JSON that ``-J`` of nccl-tests writes.

    ``args`` is the call of nccl-tests that would measure the same, which is where readers find the operation;
    ``experiment_name`` says what was simulated. Truth values and roots are texts, as nccl-tests has them. A file that
    is there is replaced.

    Parameters
    ----------
    results, dtype, wrong
        As in `format_nccl_tests`.
    path
        The file, under any name.
    setup
        What was asked for; what leads to the sizes if not given.
    started
        When the simulation began; now if not given.

    Raises
    ------
    InputError
        As in `format_nccl_tests`, or if the file cannot be written.

    Examples
    --------
    >>> import collsim
    >>> topology = collsim.topology.ring(2, bandwidth="50GB/s", latency="1us")
    >>> write_nccl_tests([collsim.run("all_reduce", topology, "1MiB", dtype="float")], "no/such/result.json")
    Traceback (most recent call last):
    collsim.errors.InputError: nccl-tests JSON: no/such/result.json: no such directory; make it first
    """
    check_nccl_tests_path(path)
    lines, derived = lines_of(results, dtype, wrong)
    document = _document(results, lines, setup or derived, started or datetime.now())
    write_whole(path, (json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n").encode(), WHAT)


def _document(results: Sequence[Result], lines: Sequence[Line], setup: Setup, started: datetime) -> dict[str, Any]:
    found, first = devices(results[0].topology), results[0]
    gpus, line = devices_per_host(found), lines[0]
    sizes = ["-b", setup.smallest, "-e", setup.largest, "-f" if setup.by_factor else "-i", setup.step]
    root = [] if line.root < 0 else ["-r", line.root]
    others = ["-g", gpus, "-d", line.dtype, *root, "-n", 1, "-w", 0, "-c", int(setup.checked)]
    failed = failed_halves(lines)
    return {
        "version": 1,
        "start_time": f"{started:{WHEN}}",
        "args": [program_of(first.operation), *map(str, sizes + others)],
        "env": [],
        "nccl_version": 0,
        "config": {
            "nthreads": 1,
            "ngpus": gpus,
            "minimum_bytes": setup.smallest,
            "maximum_bytes": setup.largest,
            "step_factor" if setup.by_factor else "step_bytes": setup.step,
            "warmup_iters": 0,
            "iterations": 1,
            "aggregated_iterations": 1,
            "validation": int(setup.checked),
            "graph": 0,
            "blocking_collectives": "false",
            "parallel_init": "false",
            "devices": [
                {
                    "rank": d.rank, "group": 0, "pid": 0, "hostname": d.hostname, "device": d.device,
                    "device_hex": d.bus, "device_info": d.info,
                }
                for d in found
            ],
        },
        "results": [
            {
                "size": line.size,
                "count": line.count,
                "type": line.dtype,
                "redop": line.redop,
                "root": f"{line.root:6}",
                "out_of_place": _half(line.out_of_place),
                "in_place": _half(line.in_place),
                "actual_iterations": 1,
                "experiment_name": title_of(result),
            }
            for line, result in zip(lines, results, strict=True)
        ],
        "out_of_bounds": {"count": failed, "okay": "false" if failed else "true"},
        "average_bus_bandwidth": {"bandwidth": round(average_busbw(lines), 6), "okay": "unchecked"},
        "errors": [],
        "end_time": f"{datetime.now():{WHEN}}",
    }  # fmt: skip


def _half(half: Half) -> dict[str, float | None]:
    return {
        "time": round(half.time, 6),
        "alg_bw": round(half.algbw, 6),
        "bus_bw": round(half.busbw, 6),
        "nwrong": None if half.wrong is None else float(half.wrong),
    }
