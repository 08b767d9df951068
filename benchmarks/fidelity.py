"""How far predictions are from measured collectives: ``python -m benchmarks.fidelity --file measured.yaml``.

Each case of the file is a machine in words and the times that somebody measured on it. Predictors see the machine, the
environment and the sizes, never a time. The error of a point is |predicted - measured| / measured: a fraction in JSON,
per cent in the table. Points are sorted into bands by size; a case counts once in a band, by the median of its errors.

Up to 64 KiB the times measured in place are taken where there are any: out-of-place ones carry the first use of a
kernel.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.machines import OPERATIONS, Refused, cluster_of, ranks_of, setting_of
from collsim.collective import Collective
from collsim.errors import CollsimError, InputError, did_you_mean, shown
from collsim.nccl import COLLECTIVES, Machine, Setting, choice, machine_of
from collsim.topology.yamltree import parse, read_text

DEFAULT = Path(__file__).parents[2] / "shared" / "truth" / "measured.yaml"
SMALL = 64 * 2**10
BANDS = {"<=64KiB": SMALL, "<=16MiB": 16 * 2**20, "<=512MiB": 512 * 2**20, ">512MiB": None}


@dataclass(frozen=True)
class Point:
    """One measured size: bytes, seconds, and the ranks that took part."""

    size: int
    seconds: float
    ranks: int


@dataclass(frozen=True)
class Case:
    """One case of the file: its name, operation of collsim, hardware block, setting, tool and points.

    Where it cannot be read, `problem` says why, and it is counted as refused.
    """

    name: str
    operation: str
    hardware: Mapping[str, Any]
    setting: Setting
    tool: str
    points: tuple[Point, ...]
    problem: str = ""

    def machine(self, ranks: int) -> Machine:
        """Return the machine on which a number of its ranks took part."""
        return machine_of(cluster_of(self.hardware, ranks))


Predictor = Callable[[Case], list[float]]


def by_formula(case: Case) -> list[float]:
    """Return the seconds that NCCL's own tuning formula predicts for what it would run."""
    if case.operation not in COLLECTIVES:
        raise Refused(f"NCCL's formula has no {case.operation}")
    if "mscclpp" in case.tool:
        raise Refused("kernels of MSCCL++, not of NCCL")
    machines = {ranks: case.machine(ranks) for ranks in {point.ranks for point in case.points}}
    return [choice(machines[p.ranks], case.operation, p.size, case.setting).seconds for p in case.points]


HOP = {"nvlink": 0.6e-6, "pci": 1.0e-6, "net": 2.7e-6}
"""Seconds a step: the hops of LL in NCCL's table (tuning.cc)."""


def by_textbook(case: Case) -> list[float]:
    """Return the seconds of a ring by the alpha-beta model, at the rates that NCCL takes for the links."""
    found = []
    for point in case.points:
        machine = case.machine(point.ranks)
        ranks, operation = machine.ranks, case.operation
        inside = machine.nvlink or (machine.link * sum(machine.mesh[0]) if machine.mesh else machine.pcie)
        many = machine.nodes > 1
        rate = 1e9 * min(inside if machine.gpus > 1 else machine.pcie, machine.nics * machine.nic if many else inside)
        net = 2 * (machine.nodes - 1) if operation == "all_reduce" else machine.nodes - 1
        steps = 2 * (ranks - 1) if operation == "all_reduce" else 1 if operation == "send_recv" else ranks - 1
        kind = "pci" if inside == machine.pcie else "nvlink"
        hops = (steps - min(net, steps)) * HOP[kind] + min(net, steps) * HOP["net"]
        found.append(hops + point.size * Collective(operation, ranks).busbw_factor / rate)
    return found


PREDICTORS: dict[str, Predictor] = {"baseline": by_formula, "alpha_beta": by_textbook}
"""By name. The first is the one whose figures are the result; ``baseline`` is the one to beat."""


def read_cases(path: Path) -> list[Case]:
    """Read a file of measured cases; a case that cannot be read says so itself.

    Raises
    ------
    InputError
        If the file is not a list of cases with an ``id`` each, all different.
    """
    listed = parse(read_text(path), str(path)).value
    if not isinstance(listed, list) or not listed:
        raise InputError(f"{path}: expected a list of cases, got {shown(listed)}")
    cases: dict[str, Case] = {}
    for index, entry in enumerate(listed):
        if not isinstance(entry, dict) or "id" not in entry:
            raise InputError(f"{path}: case {index}: expected a mapping with an id, got {shown(entry)}")
        name = str(entry["id"])
        if name in cases:
            raise InputError(f"{path}: case {index}: id {name!r} is there twice; give each case its own")
        try:
            cases[name] = _case(name, entry)
        except InputError as error:
            cases[name] = Case(name, "", {}, Setting(), "", (), problem=str(error))
    return list(cases.values())


def _case(name: str, entry: Mapping[str, Any]) -> Case:
    operation = OPERATIONS.get(str(entry.get("collective")))
    if operation is None:
        hint = did_you_mean(str(entry.get("collective")), OPERATIONS)
        raise InputError(f"collective: expected one of {', '.join(OPERATIONS)}{hint}")
    for key, kind in (("hardware", dict), ("points", list)):
        if not isinstance(entry.get(key), kind) or not entry[key]:
            raise InputError(f"{key}: expected a {'mapping' if kind is dict else 'list'}, got {shown(entry.get(key))}")
    hardware = {**entry["hardware"], "nccl": entry.get("nccl_version")}
    points = tuple(_point(point, operation, hardware, f"points[{i}]") for i, point in enumerate(entry["points"]))
    return Case(name, operation, hardware, setting_of(entry), str(entry.get("tool") or ""), points)


def _point(point: Any, operation: str, hardware: Mapping[str, Any], where: str) -> Point:
    size = point.get("bytes") if isinstance(point, dict) else None
    if type(size) is not int or size < 1:
        raise InputError(f"{where}: bytes: expected a whole number from 1, got {shown(size)}")
    ranks = point.get("ranks") or hardware.get("ranks") or ranks_of(hardware)
    if type(ranks) is not int or ranks < 2:
        raise InputError(f"{where}: ranks: expected a whole number from 2, got {shown(ranks)}")
    keys = ("inplace_time_us", "time_us") if size <= SMALL else ("time_us", "inplace_time_us")
    time, algbw, busbw = (_positive(point, *names) for names in (keys, ("algbw_GBps",), ("busbw_GBps",)))
    if time:
        return Point(size, time * 1e-6, ranks)
    if algbw or busbw:
        return Point(size, size / ((algbw or busbw / Collective(operation, ranks).busbw_factor) * 1e9), ranks)
    raise InputError(f"{where}: expected time_us, inplace_time_us, algbw_GBps or busbw_GBps, got {', '.join(point)}")


def _positive(point: Mapping[str, Any], *keys: str) -> float:
    """Return the first of some values that is a number above 0; 0 if none is."""
    for value in (point.get(key) for key in keys):
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return float(value)
    return 0.0


def band_of(size: int) -> str:
    """Return the band of a size in bytes."""
    return next(name for name, most in BANDS.items() if most is None or size <= most)


def score(cases: Sequence[Case], predictor: Predictor) -> dict[str, Any]:
    """Return a predictor's errors, as fractions, by band and by case.

    Returns
    -------
    dict
        ``bands``: for each band ``median`` (over cases, of the median error of a case), ``p90`` and ``median_points``
        (over all points), ``points`` and ``cases``; ``cases``: for each case the same by band, or why it was refused;
        ``refused``: how many were.
    """
    errors: dict[str, dict[str, list[float]]] = {}
    by_case: dict[str, Any] = {}
    for case in cases:
        try:
            if case.problem:
                raise Refused(case.problem)
            times = predictor(case)
        except (Refused, CollsimError) as error:
            by_case[case.name] = {"refused": str(error)}
            continue
        found: dict[str, list[float]] = {}
        for point, time in zip(case.points, times, strict=True):
            found.setdefault(band_of(point.size), []).append(abs(time - point.seconds) / point.seconds)
        errors[case.name] = found
        by_case[case.name] = {"bands": {band: _summary(found[band]) for band in BANDS if band in found}}
    bands = {}
    for band in BANDS:
        medians = [median(found[band]) for found in errors.values() if band in found]
        points = [error for found in errors.values() for error in found.get(band, [])]
        summary = {**_summary(points), "median_points": median(points) if points else None}
        bands[band] = {**summary, "median": median(medians) if medians else None, "cases": len(medians)}
    refused = sum("refused" in found for found in by_case.values())
    return {"bands": bands, "cases": by_case, "refused": refused}


def _summary(errors: list[float]) -> dict[str, Any]:
    if not errors:
        return {"median": None, "p90": None, "points": 0}
    return {"median": median(errors), "p90": float(np.percentile(errors, 90)), "points": len(errors)}


def report(cases: Sequence[Case]) -> dict[str, Any]:
    """Return the scores of all predictors: the first one's at the top, each under its own name."""
    scores = {name: score(cases, predictor) for name, predictor in PREDICTORS.items()}
    return {"predictor": next(iter(scores)), **next(iter(scores.values())), **scores}


def text_of(found: Mapping[str, Any]) -> str:
    """Return a report as text of at most 120 columns."""
    first = found["predictor"]
    head = f"{'error of ' + first + ', %, median / p90':<44}" + "".join(f"{band:>18}" for band in BANDS)
    lines = [head, "-" * len(head)]
    reasons: list[str] = []
    for name, case in found["cases"].items():
        if "refused" in case:
            reasons.append(f"refused  {name}: {case['refused']}"[:120])
            continue
        lines.append(f"{name[:43]:<44}" + "".join(_cell(case["bands"].get(band)) for band in BANDS))
    lines += ["-" * len(head), *reasons, ""]
    lines.append(f"{'median over cases / p90 over points':<44}" + "".join(f"{band:>18}" for band in BANDS))
    for name in PREDICTORS:
        lines.append(f"{name:<44}" + "".join(_cell(found[name]["bands"][band]) for band in BANDS))
    lines.append(f"{'cases / points of ' + first:<44}" + "".join(_counts(found["bands"][band]) for band in BANDS))
    done = len(found["cases"]) - found["refused"]
    return "\n".join([*lines, f"{first}: {done} cases, {found['refused']} refused"])


def _cell(summary: Mapping[str, Any] | None) -> str:
    if summary is None or summary["median"] is None:
        return f"{'-':>18}"
    both = f"{100 * summary['median']:.1f} / {100 * summary['p90']:.1f}"
    return f"{both:>18}"


def _counts(summary: Mapping[str, Any]) -> str:
    both = f"{summary['cases']} / {summary['points']}"
    return f"{both:>18}"


def main(words: Sequence[str] | None = None) -> int:
    """Read the command line, score, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity", description="Score predictions.")
    parser.add_argument("--file", type=Path, help="measured cases, a YAML list (default: shared/truth beside this)")
    parser.add_argument("--case", action="append", metavar="ID", help="only this case; may be given several times")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(words)
    try:
        if given.file is None and not DEFAULT.exists():
            raise InputError(
                "--file: expected a file of measured cases, got none and there is no default here; name one"
            )
        cases = read_cases(given.file or DEFAULT)
        names = [case.name for case in cases]
        for name in given.case or ():
            if name not in names:
                raise InputError(f"--case: expected an id of the file, got {name!r}{did_you_mean(name, names)}")
        found = report([case for case in cases if not given.case or case.name in given.case])
    except CollsimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found, indent=1) if given.json else text_of(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
