"""Results of simulations as the rows of nccl-tests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from collsim.engine.simulate import DTYPES
from collsim.errors import InputError, one_of
from collsim.formats.nccl_tests.operations import PROGRAMS
from collsim.formats.nccl_tests_out.layout import (
    Device,
    Half,
    Line,
    Setup,
    format_foot,
    format_head,
    format_line,
)

if TYPE_CHECKING:
    from collsim.collective import Collective
    from collsim.engine.result import Result
    from collsim.topology.graph import Topology

__all__ = [
    "PROGRAMS",
    "count_of",
    "devices",
    "format_nccl_tests",
    "line_of",
    "lines_of",
    "program_of",
    "rounded_size",
    "title_of",
]

ONLY_OUT_OF_PLACE = frozenset({"all_to_all", "send_recv"})
"""Operations whose data nccl-tests checks out of place only: ``#wrong`` in place is N/A."""

ALIGNED = 16
"""Blocks of the operations that have one a rank are rounded down to whole multiples of so many bytes."""

OTHER_MAKERS = frozenset({"xgmi", "ici"})
"""Kinds of links between devices that no GPU of NVIDIA has."""

TYPES = {1: "uint8", 2: "half", 4: "float", 8: "double"}

DEFAULT_STEP = 1 << 20
"""Bytes from size to size, if nothing is said."""


def devices(topology: Topology) -> list[Device]:
    """Return the ranks of a topology as nccl-tests lists them.

    A host is a module of the topology, by the part of a rank's name before its last dot; without modules there is one,
    called as the topology. Names keep letters, digits, points, dashes and underscores, which is what parsers expect.

    Examples
    --------
    >>> from collsim.topology import rail_optimized
    >>> for device in devices(rail_optimized(2, 2)):
    ...     print(device.rank, device.hostname, device.device, device.info)
    0 node0 0 NVIDIA GPU simulated by collsim
    1 node0 1 NVIDIA GPU simulated by collsim
    2 node1 0 NVIDIA GPU simulated by collsim
    3 node1 1 NVIDIA GPU simulated by collsim
    """
    maker = "" if OTHER_MAKERS.intersection(topology.link_kind_names) else "NVIDIA "
    hosts: dict[str, str] = {}
    sizes: dict[str, int] = {}
    taken: set[str] = set()
    found = []
    for rank, name in enumerate(topology.ranks):
        module = name.rpartition(".")[0]
        if module not in hosts:
            host = _hostname(module or topology.name)
            hosts[module] = host if host not in taken else f"{host}-{len(hosts)}"
            taken.add(hosts[module])
        sizes[module] = sizes.get(module, -1) + 1
        found.append(Device(rank, hosts[module], sizes[module], f"{maker}GPU simulated by collsim"))
    return found


def _hostname(name: str) -> str:
    name = re.sub(r"\[(\d+)\]", r"\1", name)
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "host"


def rounded_size(size: int, collective: Collective, element_size: int) -> int:
    """Return the size that nccl-tests makes of one in bytes.

    Whole elements; where the size is that of a block a rank, blocks are whole multiples of 16 bytes, so that a size
    below 16 bytes a rank becomes 0.

    Examples
    --------
    >>> from collsim import Collective
    >>> [rounded_size(size, Collective("all_gather", 8), 4) for size in (8, 128, 1000, 1024)]
    [0, 128, 896, 1024]
    >>> rounded_size(10, Collective("all_reduce", 8), 4)
    8
    """
    if not collective.is_blocked:
        return size - size % element_size
    block = size // element_size // collective.ranks * element_size
    return (block - block % ALIGNED) * collective.ranks


def count_of(result: Result) -> int:
    """Return the number of elements as the operation counts them: those of a block, where there is one a rank."""
    c = result.schedule.collective
    return result.size // result.element_size // (c.ranks if c.is_blocked else 1)


def line_of(result: Result, dtype: str | None = None, wrong: int | None = None) -> Line:
    """Return the row of a result.

    Parameters
    ----------
    result
        The simulation.
    dtype
        Element type; the usual one of its size if not given.
    wrong
        Wrong elements over all ranks; None if they were not counted.

    Examples
    --------
    >>> import collsim
    >>> topology = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    >>> line = line_of(collsim.run("all_to_all", topology, "64KiB", algorithm="direct"), wrong=0)
    >>> line.count, line.redop, line.root, line.out_of_place.wrong, line.in_place.wrong
    (16384, 'none', -1, 0, None)
    """
    c = result.schedule.collective
    # NCCL returns at once where there is nothing to send; our empty messages would have their latency
    time = result.time * 1e6 if result.size else 0.0
    half = Half(time, result.algbw / 1e9, result.busbw / 1e9, wrong)
    return Line(
        result.size,
        count_of(result),
        TYPES[result.element_size] if dtype is None else dtype,
        # nccl-tests' sendrecv prints the operator that it was given and does not use
        "sum" if c.reduces or c.operation == "send_recv" else "none",
        c.root if c.is_rooted else -1,
        half,
        Half(time, half.algbw, half.busbw, None if c.operation in ONLY_OUT_OF_PLACE else wrong),
    )


def format_nccl_tests(
    results: Sequence[Result], *, dtype: str | None = None, wrong: Sequence[int | None] | None = None
) -> str:
    """Return results of one operation on one topology as nccl-tests prints them.

    A comment comes first that says what was simulated: logs of nccl-tests do not name their operation.

    Parameters
    ----------
    results
        At least one, in the order of the rows.
    dtype
        Element type; the usual one of the size of the elements if not given.
    wrong
        Wrong elements of each result. If not given it is 0 for those whose schedule was proven, and not counted (N/A)
        for others.

    Raises
    ------
    InputError
        If there is no result, they are not of one operation, root and topology, nccl-tests has no such operation or
        element type, or there is not a number of wrong elements for each.

    Examples
    --------
    >>> import collsim
    >>> topology = collsim.topology.ring(2, bandwidth="50GB/s", latency="1us")
    >>> sizes = ("1MiB", "2MiB")
    >>> results = [collsim.run("all_reduce", topology, size, algorithm="ring", dtype="float") for size in sizes]
    >>> for line in format_nccl_tests(results).splitlines():
    ...     print(line[:80].rstrip())
    # all_reduce_perf simulated by collsim: ring on ring, cut_through network
    # nThread 1 nGpus 2 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup ite
    #
    # Using devices
    #  Rank  0 Group  0 Pid      0 on       ring device  0 [0x00] NVIDIA GPU simulat
    #  Rank  1 Group  0 Pid      0 on       ring device  1 [0x01] NVIDIA GPU simulat
    #
    #                                                              out-of-place
    #       size         count      type   redop    root     time   algbw   busbw #w
    #        (B)    (elements)                               (us)  (GB/s)  (GB/s)
         1048576        262144     float     sum      -1    22.97   45.65   45.65
         2097152        524288     float     sum      -1    43.94   47.72   47.72
    # Out of bounds values : 0 OK
    # Avg bus bandwidth    : 46.6856
    #
    <BLANKLINE>
    """
    lines, setup = lines_of(results, dtype, wrong)
    rows = "".join(f"{format_line(line)}\n" for line in lines)
    return format_head(setup, devices(results[0].topology), title_of(results[0])) + rows + format_foot(lines)


def lines_of(
    results: Sequence[Result], dtype: str | None, wrong: Sequence[int | None] | None
) -> tuple[list[Line], Setup]:
    """Return the rows of results, as `format_nccl_tests` takes them, and what was asked for."""
    if not results:
        raise InputError("results: expected at least one, got none")
    first = results[0]
    for result in results:
        if result.schedule.collective != first.schedule.collective or result.element_size != first.element_size:
            raise InputError("results: expected those of one operation, root and element size; a log has one test")
        if result.topology is not first.topology and result.topology != first.topology:
            raise InputError("results: expected those of one topology; a log has one machine")
    program_of(first.operation)
    if DTYPES[one_of("dtype", dtype or TYPES[first.element_size], DTYPES)] != first.element_size:
        raise InputError(f"dtype: expected a type of {first.element_size} bytes, as in the results, got {dtype}")
    if wrong is None:
        wrong = [None if result.checked is None else 0 for result in results]
    if len(wrong) != len(results):
        raise InputError(f"wrong: expected {len(results)} numbers, one a result, got {len(wrong)}")
    lines = [line_of(result, dtype, count) for result, count in zip(results, wrong, strict=True)]
    return lines, _setup([line.size for line in lines], any(count is not None for count in wrong))


def _setup(sizes: Sequence[int], checked: bool) -> Setup:
    """Return the setup that leads to the sizes, or, where none does, from the smallest to the largest."""
    low, high = min(sizes), max(sizes)
    pairs = list(pairwise(sizes))
    factor = sizes[1] // low if pairs and low else 0
    if factor > 1 and all(after == before * factor for before, after in pairs):
        return Setup(low, high, factor, True, checked)
    steps = {after - before for before, after in pairs}
    step = steps.pop() if len(steps) == 1 else high - low
    return Setup(low, high, step if step > 0 else DEFAULT_STEP, False, checked)


def title_of(result: Result) -> str:
    """Return what was simulated, in one line, with the name of the program that would measure it."""
    what = f"{result.schedule.algorithm or 'a schedule'} on {result.topology.name}, {result.network} network"
    return " ".join(f"{program_of(result.operation)} simulated by collsim: {what}".split())


def program_of(operation: str) -> str:
    """Return the program of nccl-tests that measures an operation.

    Raises
    ------
    InputError
        If none does.

    Examples
    --------
    >>> program_of("all_to_all")
    'alltoall_perf'
    """
    if operation not in PROGRAMS:
        raise InputError(f"{operation}: nccl-tests has no such test; it has {', '.join(PROGRAMS)}")
    return PROGRAMS[operation]
