"""``collsim run``: simulate a collective over a range of sizes."""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from collsim import algorithms
from collsim.cli.built import built_by_nccl
from collsim.cli.data import count_wrong
from collsim.cli.notes import notes
from collsim.cli.progress import progress
from collsim.cli.table import HEADER, Row, format_row
from collsim.cli.user import user_function
from collsim.collective import OPERATIONS, Collective
from collsim.engine.fit import fitted, schedule_for
from collsim.engine.lowering.lower import lower
from collsim.engine.lowering.roll import roll
from collsim.engine.program import NETWORKS
from collsim.engine.simulate import (
    DTYPES,
    ENGINES,
    engine_for,
    refuse_large,
    simulate,
)
from collsim.errors import AlgorithmError, InputError, did_you_mean, one_of
from collsim.formats.nccl_tests_out import (
    Line,
    Setup,
    check_nccl_tests_path,
    devices,
    format_foot,
    format_head,
    format_line,
    line_of,
    program_of,
    rounded_size,
    title_of,
    write_nccl_tests,
)
from collsim.schedule import Schedule
from collsim.schedule.check import Proof, check
from collsim.topology import Topology, load_topology
from collsim.units import format_size, parse_nccl_size

__all__ = ["parameters_of", "root_of", "run", "schedule_of", "sizes"]

LARGEST = 1 << 50
MOST_SHOWN = 16


def run(arguments: argparse.Namespace) -> int:
    """Simulate and print a table, the log of nccl-tests or JSON."""
    started = datetime.now()
    # all that can be refused without work is refused before any is done
    one_of("OPERATION", arguments.operation, OPERATIONS)
    dtype = one_of("-d", arguments.datatype, DTYPES)
    one_of("--network", arguments.network, NETWORKS)
    one_of("--engine", arguments.engine, ENGINES)
    todo = sizes(arguments.minbytes, arguments.maxbytes, arguments.stepfactor, DTYPES[dtype])
    parameters = parameters_of(arguments)
    one_of("--plot-rows", arguments.plot_rows, ("rank", "link"))
    one_of("--plot-colour", arguments.plot_colour, ("step", "chunk", "channel", "kind", "critical"))
    if arguments.plot is not None:
        from collsim.plot.timeline import check_picture_path

        check_picture_path(arguments.plot)
    if arguments.html is not None:
        from collsim.player import check_player_path

        check_player_path(arguments.html)
    if arguments.trace is not None:
        from collsim.traces import check_trace_path

        check_trace_path(arguments.trace)
    if arguments.nccl_tests or arguments.output_file is not None:
        program_of(arguments.operation)
    if arguments.nccl_tests and arguments.json:
        raise InputError("--nccl-tests: expected it or --json, got both; -J writes the JSON of nccl-tests")
    if arguments.output_file is not None:
        check_nccl_tests_path(arguments.output_file)
    wanted = any(path is not None for path in (arguments.plot, arguments.html, arguments.trace))
    topology = load_topology(arguments.topology)
    schedule = schedule_of(arguments, topology, parameters)
    if arguments.nccl_tests or arguments.output_file is not None:  # sizes that nccl-tests measures
        todo = [rounded_size(size, schedule.collective, DTYPES[dtype]) for size in todo]
    engine = engine_for(schedule, arguments.engine)
    refuse_large(schedule, engine)
    if arguments.html is not None:
        from collsim.player import refuse_beyond_player

        refuse_beyond_player(schedule, topology)
    proof = None if arguments.no_check else check(schedule)
    low, high = _limits(arguments.minbytes, arguments.maxbytes)
    setup = Setup(low, high, int(arguments.stepfactor), checked=proof is not None)

    def row(size: int) -> Row:
        with progress(format_size(size)) as pulse:
            result = simulate(
                schedule, topology, size, dtype=dtype, network=arguments.network, engine=engine, check=False,
                synchronous=arguments.synchronous, records=wanted or None, progress=pulse,
            )  # fmt: skip
        wrong, by = (None, None) if proof is None else count_wrong(schedule, size, dtype)
        return Row(result, dtype, wrong, by)

    # Nothing is printed before it is known that every size can be run and the picture is written: the largest size
    # shows what does not fit into 64 bits, sizes that the chunks do not divide may not be possible.
    largest = row(todo[-1])
    for size in todo[:-1]:
        if size // DTYPES[dtype] % schedule.chunks:
            (lower if engine == "reference" else roll)(schedule, topology, size, element_size=DTYPES[dtype])
    if arguments.plot is not None:
        from collsim.plot import save_timeline

        save_timeline(largest.result, arguments.plot, rows=arguments.plot_rows, colour=arguments.plot_colour)
    if arguments.html is not None:
        replace(largest.result, checked=proof).to_html(arguments.html)
    if arguments.trace is not None:
        largest.result.to_perfetto(arguments.trace)
    rows: Iterable[Row] = _rows(todo, row, largest)
    if arguments.output_file is not None:
        rows = list(rows)
        results, wrong = [row.result for row in rows], [row.wrong for row in rows]
        write_nccl_tests(results, arguments.output_file, dtype=dtype, wrong=wrong, setup=setup, started=started)
    if arguments.json:
        rows = list(rows)
        print(json.dumps(_document(arguments, topology, rows), indent=2, allow_nan=False))
    elif arguments.nccl_tests:
        rows = _print_nccl_tests(rows, setup, largest)
    else:
        rows = _print_table(arguments, rows, largest, proof)
        if arguments.plot is not None:
            print(f"# plot     {arguments.plot} (the largest size)")
        if arguments.html is not None:
            print(f"# html     {arguments.html} (the largest size; open it in a browser)")
        if arguments.trace is not None:
            print(f"# trace    {arguments.trace} (the largest size; open it at https://ui.perfetto.dev)")
        if arguments.output_file is not None:
            print(f"# json     {arguments.output_file} (as nccl-tests -J writes it)")
    return 1 if any(row.wrong for row in rows) else 0


def _rows(todo: Sequence[int], row: Callable[[int], Row], largest: Row) -> Iterator[Row]:
    """Yield the rows of all sizes; that of the largest one is there already."""
    yield from map(row, todo[:-1])
    yield largest


def sizes(smallest: str | None, largest: str | None, factor: str, element_size: int) -> list[int]:
    """Return the sizes in bytes that ``-b``, ``-e`` and ``-f`` ask for, as nccl-tests steps through them.

    Examples
    --------
    >>> sizes("8", "64", "2", 4)
    [8, 16, 32, 64]
    >>> sizes("1M", None, "2", 4)[0]
    1048576
    """
    low, high = _limits(smallest, largest)
    if low < element_size:
        raise InputError(f"-b: expected at least {element_size} bytes (one element), got {low}")
    if high < low:
        raise InputError(f"-e: expected at least the {low:,} bytes of -b, got {high:,}")
    step = _whole(factor)
    if step is None or step < 2:
        raise InputError(f"-f: expected a whole number from 2, got {factor[:40]!r}")
    found = [low]
    while found[-1] * step <= high:
        found.append(found[-1] * step)
    return [size - size % element_size for size in found]


def _limits(smallest: str | None, largest: str | None) -> tuple[int, int]:
    """Return the bytes that ``-b`` and ``-e`` ask for."""
    low = _size("-b", smallest if smallest is not None else "32M")
    return low, _size("-e", largest) if largest is not None else max(low, _size("-e", "32M"))


def _size(flag: str, text: str) -> int:
    if re.fullmatch(r"\s*-[\d.]+\s*\w*", text):
        raise InputError(f"{flag}: expected a size from 1 byte to 1 PiB, got {text!r}")
    try:
        size = parse_nccl_size(text)
    except InputError as error:
        raise InputError(f"{flag}: {error}") from None
    if not 0 < size <= LARGEST:
        raise InputError(f"{flag}: expected a size from 1 byte to 1 PiB, got {text!r}")
    return size


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else None


def root_of(text: str, ranks: int) -> int:
    """Return the rank that ``--root`` names."""
    root = _whole(text)
    if root is None or root >= ranks:
        raise InputError(f"--root: expected a rank from 0 to {ranks - 1}, got {text!r}")
    return root


LISTS_OF_NAMES = ("head_trees",)
"""Parameters that may be names with commas between them; elsewhere nobody knows what a comma means."""


def _parameter(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier() or not value:
        raise InputError(f"-p: expected NAME=VALUE such as channels=2 or order=0,2,1,3, got {text!r}")
    try:
        return name, json.loads(f"[{value}]" if "," in value and not value.startswith("[") else value)
    except (ValueError, RecursionError):
        pass
    names = re.split(r",(?![^\[]*\])", value)  # commas in brackets belong to a name
    if name in LISTS_OF_NAMES and len(names) > 1 and all(names) and not value.startswith("["):
        return name, names
    return name, value


def parameters_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters that ``-p`` gives, and fill in the algorithm if ``-a`` gives none."""
    parameters: dict[str, Any] = {}
    for key, value in map(_parameter, arguments.parameter):
        if key in parameters:
            raise InputError(f"-p: {key} is given twice; expected it once")
        parameters[key] = value
    if arguments.algorithm is None:
        arguments.algorithm = _default_algorithm(arguments.operation)
    return parameters


def schedule_of(arguments: argparse.Namespace, topology: Topology, parameters: dict[str, Any]) -> Schedule:
    """Return the schedule that ``-a``, ``-p`` and ``--root`` ask for, fitted to a topology."""
    operation, name, ranks = arguments.operation, arguments.algorithm, topology.n_ranks
    root = root_of(arguments.root, ranks)
    collective = Collective(operation, ranks, root)
    for reserved in {"ranks", "root"} & set(parameters):
        hint = "give --root" if reserved == "root" else "the topology has its own"
        raise InputError(f"-p: {reserved} is not a parameter: {hint}")
    if (log := getattr(arguments, "nccl_log", None)) is not None:
        parameters = {**parameters, **built_by_nccl(log, operation, name, ranks, parameters)}
    try:
        if ":" not in name:
            return schedule_for(operation, name, topology, root, parameters)
        return _own_schedule(name, collective, topology, parameters)
    except (TypeError, ValueError, ArithmeticError) as error:
        if isinstance(error, InputError) or not parameters:
            raise
        given = " ".join(f"{key}={value}" for key, value in parameters.items())
        raise AlgorithmError(f"-p: {operation} {name} cannot take {given}: {error}") from error


def _own_schedule(name: str, collective: Collective, topology: Topology, parameters: dict[str, Any]) -> Schedule:
    """Call a function of the user as a shipped one is called."""
    function = user_function(name)
    known = [p for p in inspect.signature(function).parameters if p != "ranks"]
    for key in parameters:
        if key not in known:
            expected = ", ".join(p for p in known if p != "root") or "no parameters"
            raise AlgorithmError(f"-p: {name}: expected {expected}, got {key!r}" + did_you_mean(key, known))
    if "root" in known and collective.is_rooted:
        parameters = {**parameters, "root": collective.root}
    schedule = function(topology.n_ranks, **fitted(function, topology, parameters))
    if schedule.collective != collective:
        raise AlgorithmError(
            f"{name}: expected a schedule of {_words(collective)}, got one of {_words(schedule.collective)}"
        )
    return schedule


def _words(c: Collective) -> str:
    return f"{c.operation} on {c.ranks} ranks" + (f" from root {c.root}" if c.is_rooted else "")


def _default_algorithm(operation: str) -> str:
    """``ring``, or the only algorithm that the operation has."""
    names = algorithms.available().get(operation, [])
    return names[0] if len(names) == 1 else "ring"


def _document(arguments: argparse.Namespace, topology: Topology, rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "topology": topology.name,
        "operation": arguments.operation,
        "algorithm": arguments.algorithm,
        "network": arguments.network,
        **({} if arguments.plot is None else {"plot": arguments.plot}),
        **({} if arguments.html is None else {"html": arguments.html}),
        **({} if arguments.trace is None else {"trace": arguments.trace}),
        **({} if arguments.output_file is None else {"output_file": arguments.output_file}),
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
        "theory_holds": None if r.theory is None else r.theory.holds,
        "bound_us": float(r.bound) * 1e6,
        "efficiency": r.efficiency,
        "transfers": r.transfers,
        "bytes_sent_per_rank": r.bytes_sent_per_rank.tolist(),
        "engine": r.engine,
        "shortcut": r.shortcut or None,
        "breakdown_us": {name: s * 1e6 for name, s in r.breakdown.items()} if r.has_records else None,
    }


def _print_nccl_tests(found: Iterable[Row], setup: Setup, last: Row) -> list[Row]:
    """Print what nccl-tests prints, and no notes: its readers may trip over more."""
    print(format_head(setup, devices(last.result.topology), title_of(last.result)), end="")
    rows: list[Row] = []
    lines: list[Line] = []
    for row in found:
        rows.append(row)
        lines.append(line_of(row.result, row.dtype, row.wrong))
        print(format_line(lines[-1]), flush=True)
    print(format_foot(lines), end="")
    return rows


def _print_table(arguments: argparse.Namespace, found: Iterable[Row], last: Row, proof: Proof | None) -> list[Row]:
    r = last.result
    ranks = f"{r.schedule.ranks} rank{'s' * (r.schedule.ranks > 1)}"
    synchronous = ", a barrier after each step" if r.synchronous else ""
    print(f"# {arguments.algorithm} {r.operation} on {r.topology.name}: {ranks}, {r.network} network{synchronous}")
    if r.schedule.parameters:
        print(f"# parameters: {' '.join(f'{key}={_short(value)}' for key, value in r.schedule.parameters.items())}")
    print(HEADER)
    rows = []
    for row in found:
        rows.append(row)
        print(format_row(row), flush=True)
    if proof is not None:
        wrong = sum(row.wrong or 0 for row in rows)
        print(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
    print(f"# Avg bus bandwidth    : {sum(row.result.busbw for row in rows) / len(rows) / 1e9:g}")
    print("#")
    for line in notes(rows, proof):
        print(f"# {line}")
    return rows


def _short(value: Any) -> str:
    """Write a parameter as ``-p`` takes it, cut where it is long."""
    if isinstance(value, Mapping):
        return f"(of {len(value):,} pairs)"
    if isinstance(value, (list, tuple)):
        if not all(isinstance(item, (int, str)) for item in value):
            return f"({len(value):,} given)"
        return ",".join(map(str, value[:MOST_SHOWN])) + (",..." if len(value) > MOST_SHOWN else "")
    return str(value)
