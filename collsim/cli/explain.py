"""``collsim explain``: why a collective takes as long as it does, and what would help."""

from __future__ import annotations

import argparse
import json
import re
from typing import Any

from collsim.cli.progress import progress
from collsim.cli.run import parameters_of, schedule_of, sizes
from collsim.collective import OPERATIONS
from collsim.engine.explain import Explanation, Share
from collsim.engine.explain import explain as explain_result
from collsim.engine.program import NETWORKS
from collsim.engine.simulate import DTYPES, ENGINES, simulate
from collsim.engine.stretches import Stretch
from collsim.engine.what_if import BUDGET, Experiment
from collsim.errors import InputError, one_of
from collsim.topology import load_topology
from collsim.units import format_size

__all__ = ["explain"]

MOST_LISTED = 1024
"""Links that JSON lists."""
LARGEST_BUDGET = 10**12


def explain(arguments: argparse.Namespace) -> int:
    """Simulate one size and print the explanation, or JSON."""
    one_of("OPERATION", arguments.operation, OPERATIONS)
    dtype = one_of("-d", arguments.datatype, DTYPES)
    one_of("--network", arguments.network, NETWORKS)
    one_of("--engine", arguments.engine, ENGINES)
    budget = _budget(arguments.budget)
    # one size only: the largest is the smallest
    size = sizes(arguments.minbytes, arguments.minbytes, "2", DTYPES[dtype])[0]
    parameters = parameters_of(arguments)
    topology = load_topology(arguments.topology)
    schedule = schedule_of(arguments, topology, parameters)
    with progress(format_size(size)) as pulse:
        result = simulate(
            schedule, topology, size, dtype=dtype, network=arguments.network, engine=arguments.engine,
            check=not arguments.no_check, synchronous=arguments.synchronous, records=arguments.records or None,
            progress=pulse,
        )  # fmt: skip
    with progress("experiments") as pulse:
        why = explain_result(result, budget=budget, progress=pulse)
    print(json.dumps(document(why), indent=2, allow_nan=False) if arguments.json else why)
    return 0


def _budget(text: str | None) -> int:
    if text is None:
        return BUDGET
    if not re.fullmatch(r"\d{1,13}", text, re.ASCII) or int(text) > LARGEST_BUDGET:
        raise InputError(
            f"--budget: expected a whole number of transfers from 0 to {LARGEST_BUDGET}, got {text[:40]!r}"
        )
    return int(text)


def document(why: Explanation) -> dict[str, Any]:
    """Return an explanation as plain values for JSON, times in microseconds."""
    r = why.result
    return {
        "topology": r.topology.name,
        "operation": r.operation,
        "algorithm": r.schedule.algorithm or None,
        "network": r.network,
        "size": r.size,
        "time_us": r.time * 1e6,
        "transfers": r.transfers,
        "records": r.has_records,
        "causes_us": None if why.causes is None else {name: ps * 1e-6 for name, ps in why.causes.items()},
        "links": None if why.links is None else [_share(one) for one in why.links[:MOST_LISTED]],
        "classes": None if why.classes is None else [_share(one) for one in why.classes],
        "critical_path": None if why.path is None else [_stretch(one) for one in why.path],
        "busiest": [_share(one) for one in why.busiest],
        "bound": {"time_us": why.bound * 1e6, "reason": why.bound.reason, "efficiency": r.efficiency},
        "advice": why.advice,
        "experiments": [_experiment(one) for one in why.experiments],
        "untried": dict(why.untried),
    }


def _share(one: Share) -> dict[str, Any]:
    return {"name": one.name, "time_us": one.ps * 1e-6, "part": one.part}


def _stretch(one: Stretch) -> dict[str, Any]:
    return {
        "start_us": one.start_ps * 1e-6,
        "time_us": one.ps * 1e-6,
        "transfers": one.count,
        "first": one.first,
        "last": one.last,
        "causes_us": {name: ps * 1e-6 for name, ps in one.causes.items()},
        "behind": [[*pair, number] for pair, number in one.behind.items()],
        "times": one.times,
    }


def _experiment(one: Experiment) -> dict[str, Any]:
    return {"kind": one.kind, "what": one.what, "time_us": one.time * 1e6, "saved_us": one.saved_ps * 1e-6}
