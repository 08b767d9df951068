"""``collsim report``: one HTML file that tells everything about a collective on a machine."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from collsim import algorithms
from collsim.cli.data import count_wrong
from collsim.cli.progress import progress, stages
from collsim.cli.run import parameters_of, root_of, schedule_of, sizes
from collsim.cli.user import user_function
from collsim.collective import OPERATIONS, ROOTED
from collsim.engine.compare import Comparison, compare
from collsim.engine.program import NETWORKS
from collsim.engine.result import Result
from collsim.engine.simulate import DTYPES, engine_for, refuse_large, simulate
from collsim.errors import AlgorithmError, InputError, one_of
from collsim.report.document import FORMATS, check_figures, check_report_path, write_report
from collsim.schedule.check import check
from collsim.topology import Topology, load_topology
from collsim.units import format_size

__all__ = ["report"]

SMALLEST, LARGEST = "8", "1G"


def report(arguments: argparse.Namespace) -> int:
    """Simulate all sizes and write the report."""
    # all that can be refused without work is refused before any is done
    operation = one_of("OPERATION", arguments.operation, OPERATIONS)
    dtype = one_of("-d", arguments.datatype, DTYPES)
    one_of("--network", arguments.network, NETWORKS)
    one_of("--figure-format", arguments.figure_format, FORMATS)
    if arguments.output is not None:
        check_report_path(arguments.output)
    if arguments.figures is not None:
        check_figures(arguments.figures)
    todo = _sizes(arguments, DTYPES[dtype])
    names = [None] if arguments.algorithm is None else [name.strip() for name in arguments.algorithm.split(",")]
    if "" in names:
        raise InputError(f"-a: expected names such as ring,tree,my_variant.py:mine, got {arguments.algorithm!r}")
    if len(names) > 1 and arguments.parameter:
        raise InputError(f"-p: expected one algorithm, got {len(names)} with -a; parameters are those of one algorithm")
    parameters = parameters_of(arguments)
    topology = load_topology(arguments.topology)
    root_of(arguments.root, topology.n_ranks)
    todo = _possible(arguments, todo, topology, DTYPES[dtype])
    if arguments.output is None:
        arguments.output = (
            f"{re.sub(r'[^A-Za-z0-9._-]+', '-', topology.name).strip('-.')[:80] or 'machine'}-{operation}.html"
        )
        check_report_path(arguments.output)
    results: Comparison | dict[str, list[Result]]
    if len(names) > 1:
        results = _compared(arguments, [str(name) for name in names], topology, todo)
        listed = [result for by_size in results.results.values() for result in by_size.values()]
    else:
        listed = _simulated(arguments, topology, parameters, todo)
        results = {arguments.algorithm: listed}
    # by schedule and size, for results are run again for their records
    wrong = (
        {}
        if arguments.no_check
        else {(id(r.schedule), r.size): count_wrong(r.schedule, r.size, dtype)[0] for r in listed}
    )
    with progress("experiments") as pulse:
        saved = write_report(
            results, arguments.output, arguments.figures, figure_format=arguments.figure_format,
            command=_command(arguments, todo), dtype=dtype,
            wrong=lambda result: wrong.get((id(result.schedule), result.size)), progress=pulse,
        )  # fmt: skip
    written = os.path.getsize(arguments.output)
    print(f"# report   {arguments.output} ({written / 1e6:.1f} MB; open it in a browser)")
    for path in saved:
        print(f"# figure   {path}")
    return 1 if any(wrong.values()) else 0


def _sizes(arguments: argparse.Namespace, element_size: int) -> list[int]:
    largest = arguments.maxbytes if arguments.maxbytes is not None else _largest(arguments, element_size)
    return sizes(arguments.minbytes or SMALLEST, largest, arguments.stepfactor, element_size)


def _largest(arguments: argparse.Namespace, element_size: int) -> str:
    """Return the largest size where none is given."""
    smallest = arguments.minbytes or SMALLEST
    return LARGEST if sizes(smallest, smallest, "2", element_size)[0] <= 1 << 30 else smallest


def _possible(arguments: argparse.Namespace, todo: list[int], topology: Topology, element_size: int) -> list[int]:
    """Return the sizes; unless they were given, those of which each rank has something for each other."""
    if arguments.operation == "barrier":
        return todo[:1]  # no data moves, whatever the size
    if arguments.operation != "all_to_all" or arguments.minbytes is not None:
        return todo
    least = topology.n_ranks * element_size
    return sorted({max(least, size - size % least) for size in todo if size >= least} or {least})


def _simulated(
    arguments: argparse.Namespace, topology: Topology, parameters: dict[str, object], todo: Sequence[int]
) -> list[Result]:
    """Return the results of one algorithm."""
    schedule = schedule_of(arguments, topology, parameters)
    engine = engine_for(schedule, "auto")
    refuse_large(schedule, engine)
    proof = None if arguments.no_check else check(schedule)
    found = []
    for size in todo:
        with progress(format_size(size)) as pulse:
            result = simulate(
                schedule, topology, size, dtype=arguments.datatype, network=arguments.network, engine=engine,
                check=False, records=False, progress=pulse,
            )  # fmt: skip
        found.append(replace(result, checked=proof))
    return found


def _compared(arguments: argparse.Namespace, names: list[str], topology: Topology, todo: Sequence[int]) -> Comparison:
    """Return the results of several algorithms."""
    find = algorithms.find
    makers = {name: user_function(name) if ":" in name else find(arguments.operation, name) for name in names}
    with progress(arguments.operation) as pulse, stages() as stage:
        found = compare(
            arguments.operation, topology, todo, algorithms=makers, network=arguments.network,
            dtype=arguments.datatype, root=int(arguments.root), check=not arguments.no_check, progress=pulse,
            stage=stage,
        )  # fmt: skip
    if not found.results:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in found.unfit.items())
        raise AlgorithmError(f"no algorithm fits {topology.name}: {reasons}")
    return found


def _command(arguments: argparse.Namespace, todo: Sequence[int]) -> str:
    """Return the command line that makes the report again, with what was left to defaults written out."""
    words = ["collsim", "report", arguments.topology, arguments.operation, "-a", arguments.algorithm]
    for parameter in arguments.parameter:
        words += ["-p", parameter]
    if arguments.operation in ROOTED:
        words += ["--root", arguments.root]
    if todo == _sizes(arguments, DTYPES[arguments.datatype]):
        largest = arguments.maxbytes or _largest(arguments, DTYPES[arguments.datatype])
        words += ["-b", arguments.minbytes or SMALLEST, "-e", largest, "-f", arguments.stepfactor]
    words += ["-d", arguments.datatype, "--network", arguments.network]
    words += ["--no-check"] if arguments.no_check else []
    words += ["-o", arguments.output]
    if arguments.figures is not None:
        words += ["--figures", arguments.figures, "--figure-format", arguments.figure_format]
    return shlex.join(words)
