"""``collsim run``: simulate a collective over a range of sizes."""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from collsim import algorithms
from collsim.cli.table import HEADER, Row, format_row
from collsim.engine.result import Result
from collsim.engine.simulate import DTYPES, ENGINES, schedule_for, simulate
from collsim.errors import AlgorithmError, InputError, did_you_mean
from collsim.schedule import Schedule
from collsim.schedule.check import Proof, check
from collsim.schedule.execute import execute
from collsim.topology import Topology, load_topology
from collsim.units import format_size, parse_nccl_size

__all__ = ["run", "sizes", "wrong_elements"]

LARGEST = 1 << 50
DATA_BYTES = 64 << 20
"""Executed on data up to this many bytes over all ranks; above, the modular proof counts."""
DATA_TRANSFERS = 20_000


def run(arguments: argparse.Namespace) -> int:
    """Simulate and print a table or JSON."""
    dtype = arguments.datatype
    if dtype not in DTYPES:
        raise InputError(f"-d: expected one of {', '.join(DTYPES)}, got {dtype!r}" + did_you_mean(dtype, DTYPES))
    todo = sizes(arguments.minbytes, arguments.maxbytes, arguments.stepfactor, DTYPES[dtype])
    if arguments.engine not in ENGINES:
        raise InputError(f"--engine: expected one of {', '.join(ENGINES)}, got {arguments.engine!r}")
    if arguments.plot:
        from collsim.plot.timeline import check_picture_path

        check_picture_path(arguments.plot)
    topology = load_topology(arguments.topology)
    schedule = _schedule(arguments, topology)
    proof = None if arguments.no_check else check(schedule)

    def row(size: int) -> Row:
        result = simulate(
            schedule, topology, size, dtype=dtype, network=arguments.network, engine=arguments.engine, check=False,
            synchronous=arguments.synchronous,
        )  # fmt: skip
        wrong, by = (None, None) if proof is None else wrong_elements(schedule, size, dtype, proof)
        return Row(result, dtype, wrong, by)

    largest = row(todo[-1])  # first, so that a size that cannot be run is refused before anything is printed
    rows = (*map(row, todo[:-1]), largest) if arguments.json else None
    if rows is not None:
        print(json.dumps(_document(arguments, topology, rows), indent=2))
    else:
        _print_table(arguments, topology, [*todo], row, largest, proof)
    if arguments.plot:
        from collsim.plot import save_timeline

        save_timeline(largest.result, arguments.plot)
    return 1 if largest.wrong else 0


def sizes(smallest: str | None, largest: str | None, factor: str, element_size: int) -> list[int]:
    """Return the sizes in bytes that ``-b``, ``-e`` and ``-f`` ask for, as nccl-tests steps through them.

    Examples
    --------
    >>> sizes("8", "64", "2", 4)
    [8, 16, 32, 64]
    >>> sizes("1M", None, "2", 4)[0]
    1048576
    """
    low = _size("-b", smallest if smallest is not None else "32M")
    high = _size("-e", largest) if largest is not None else max(low, _size("-e", "32M"))
    if low < element_size:
        raise InputError(f"-b: expected at least {element_size} bytes (one element), got {low}")
    if high < low:
        raise InputError(f"-e: expected at least the {low} bytes of -b, got {high}")
    if not factor.isdecimal() or not 2 <= int(factor) <= LARGEST:
        raise InputError(f"-f: expected a whole number of at least 2, got {factor!r}")
    found = [low]
    while found[-1] * int(factor) <= high:
        found.append(found[-1] * int(factor))
    return [size - size % element_size for size in found]


def _size(flag: str, text: str) -> int:
    try:
        size = parse_nccl_size(text)
    except InputError as error:
        raise InputError(f"{flag}: {error}") from None
    if not 0 < size <= LARGEST:
        raise InputError(f"{flag}: expected a size from 1 byte to 1 PiB, got {text!r}")
    return size


def _schedule(arguments: argparse.Namespace, topology: Topology) -> Schedule:
    parameters = dict(map(_parameter, arguments.parameter))
    if not arguments.root.isdecimal():
        raise InputError(f"--root: expected a rank from 0 to {topology.n_ranks - 1}, got {arguments.root!r}")
    root = int(arguments.root)
    name = arguments.algorithm
    if ":" not in name:
        return schedule_for(arguments.operation, name, topology, root, parameters)
    function = algorithms.load_function(name)
    schedule = algorithms.call(function, name, topology.n_ranks, **({"root": root} if root else {}), **parameters)
    if schedule.collective.operation != arguments.operation:
        raise AlgorithmError(f"{name}: expected a schedule of {arguments.operation}, got {schedule.collective.operation}")
    return schedule


def _parameter(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise InputError(f"-p: expected NAME=VALUE such as channels=2, got {text!r}")
    try:
        return name, json.loads(f"[{value}]" if "," in value and not value.startswith("[") else value)
    except ValueError:
        return name, value


def wrong_elements(schedule: Schedule, size: int, dtype: str, proof: Proof) -> tuple[int, str]:
    """Count wrong elements over all ranks: by executing on data where it fits, else by what was proven.

    Returns
    -------
    int, str
        The number, and ``"data"`` or ``"proof"``.
    """
    c = schedule.collective
    if size * c.ranks > DATA_BYTES or schedule.transfers > DATA_TRANSFERS or not c.reduces and c.operation == "barrier":
        return 0, "proof"  # a failed proof has raised
    del proof
    elements = size // DTYPES[dtype]
    elements -= elements % c.ranks if c.operation == "all_to_all" else 0
    # whole numbers so small that sums are exact in any type
    kind = {"half": np.float16, "bfloat16": np.float32, "float": np.float32, "double": np.float64}.get(dtype)
    numpy_type = np.dtype(kind if kind is not None else dtype)
    rng = np.random.default_rng(0)
    full = [rng.integers(0, 4, elements).astype(numpy_type) for _ in range(c.ranks)]
    place = schedule.place_of(np.arange(schedule.chunks))
    held, offsets = schedule.elements(elements), schedule.offsets(elements)
    owner = np.empty(elements, dtype=np.int64)
    for chunk in range(schedule.chunks):
        part = slice(int(offsets[chunk]), int(offsets[chunk] + held[chunk]))
        owner[part] = c.block_of(place[chunk], schedule.chunks) if c.is_blocked else 0
    given: list[Any] = full
    if c.operation in ("all_gather", "gather"):
        given = [full[rank][owner == rank] for rank in range(c.ranks)]
    outputs = execute(schedule, given)
    wrong = 0
    for rank, output in enumerate(outputs):
        if output is None:
            continue
        expected = _expected(schedule, full, owner, rank)
        wrong += int((output != expected).sum()) if output.shape == expected.shape else output.size
    return wrong, "data"


def _expected(schedule: Schedule, full: list[Any], owner: Any, rank: int) -> Any:
    """What a rank must hold at the end, from the definition of the operation."""
    c = schedule.collective
    if c.reduces:
        total = np.sum(full, axis=0, dtype=full[0].dtype)
        return total[owner == rank] if c.operation == "reduce_scatter" else total
    if c.operation == "broadcast":
        return full[c.root]
    if c.operation == "scatter":
        return full[c.root][owner == rank]
    if c.operation == "send_recv":
        return full[(rank - 1) % c.ranks]
    if c.operation == "all_to_all":
        return np.concatenate([array[owner == rank] for array in full])
    return np.concatenate([full[source][owner == source] for source in range(c.ranks)])


def _document(arguments: argparse.Namespace, topology: Topology, rows: tuple[Row, ...]) -> dict[str, Any]:
    return {
        "topology": topology.name,
        "operation": arguments.operation,
        "algorithm": arguments.algorithm,
        "network": arguments.network,
        "results": [_fields(row) for row in rows],
    }


def _fields(row: Row) -> dict[str, Any]:
    r = row.result
    return {
        "size": r.size,
        "time_us": r.time * 1e6,
        "algbw_GBps": r.algbw / 1e9,
        "busbw_GBps": r.busbw / 1e9,
        "wrong": row.wrong,
        "wrong_by": row.wrong_by,
        "theory_us": None if r.theory is None else float(r.theory) * 1e6,
        "bound_us": float(r.bound) * 1e6,
        "efficiency": r.efficiency,
        "transfers": r.transfers,
        "bytes_sent_per_rank": r.bytes_sent_per_rank.tolist(),
        "engine": r.engine,
        "breakdown_us": {name: seconds * 1e6 for name, seconds in r.breakdown.items()},
    }


def _print_table(arguments: argparse.Namespace, topology: Topology, todo: list[int], row: Any, last: Row, proof: Any) -> None:
    c = last.result.schedule.collective
    print(f"# collsim: {arguments.algorithm} {c.operation} on {topology.name}, {c.ranks} ranks, {arguments.network}")
    print(HEADER)
    rows = []
    for size in todo[:-1]:
        rows.append(row(size))
        print(format_row(rows[-1]), flush=True)
    rows.append(last)
    print(format_row(last))
    busbw = sum(r.result.busbw for r in rows) / len(rows) / 1e9
    if proof is not None:
        wrong = sum(r.wrong or 0 for r in rows)
        print(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
    print(f"# Avg bus bandwidth    : {busbw:g}")
    for line in notes(rows, proof):
        print(f"# {line}")


def notes(rows: list[Row], proof: Proof | None) -> list[str]:
    """Return the lines below the table: what was checked, where the time goes, and why it is not the theory's."""
    lines = []
    if proof is None:
        lines.append("nothing was checked (--no-check)")
    else:
        by_data = [r.result.size for r in rows if r.wrong_by == "data"]
        lines.append(f"{proof}; #wrong is counted on data " + _how_far(by_data, len(rows)))
    lines += _explain(rows[-1].result)
    return lines


def _how_far(by_data: list[int], rows: int) -> str:
    if len(by_data) == rows:
        return "in every row"
    if not by_data:
        return "in no row (too large): it is the proof's"
    return f"up to {format_size(max(by_data))}, above it is the proof's"


def _explain(r: Result) -> list[str]:
    parts = [f"{name} {us * 1e6:.2f}" for name, us in r.breakdown.items() if us]
    lines = [f"at {format_size(r.size)}: time {r.time * 1e6:.2f} us = {' + '.join(parts) or '0'} (critical path)"]
    theory = r.theory
    if theory is not None:
        terms = [f"{name} {getattr(theory, name) * 1e6:.2f}" for name in ("latency", "bandwidth", "reduction") if getattr(theory, name)]
        lines.append(f"theory {theory * 1e6:.2f} us = {' + '.join(terms) or '0'}: {theory.formula}")
        difference = r.time - float(theory)
        if not theory.holds:
            lines.append(f"  the formula is not exact here: {theory.why}")
        if abs(difference) > 1e-9 * r.time + 1e-9:
            lines.append(f"  time - theory = {difference * 1e6:+.2f} us: {_difference(r)}")
    lines.append(f"bound {r.bound * 1e6:.2f} us: {r.bound.reason}")
    for name, transfers, waited in r.waits[:3]:
        pairs = dict(r.shared)[name]
        lines.append(f"link {name} is shared by {pairs} pairs of ranks: {transfers} transfers waited {waited * 1e-6:.2f} us")
    return lines


def _difference(r: Result) -> str:
    """Put time minus theory down to terms."""
    theory = r.theory
    assert theory is not None
    parts = r.breakdown
    terms = {
        "latency and overhead": parts["latency"] + parts["overhead"] - theory.latency,
        "serialisation": parts["serialisation"] - theory.bandwidth,
        "reduction": parts["reduction"] - theory.reduction,
        "queueing": parts["queueing"],
        "pacing": parts["pacing"],
    }
    return ", ".join(f"{name} {value * 1e6:+.2f}" for name, value in terms.items() if abs(value) > 1e-12) or "rounding"
