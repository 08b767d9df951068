"""Tables and sentences of a report, as plain values for the template."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

import collsim
from collsim import algorithms
from collsim.errors import CollsimError
from collsim.units import format_bandwidth, format_size

if TYPE_CHECKING:
    from collsim.engine.explain import Explanation
    from collsim.engine.result import Result
    from collsim.report.runs import Runs

__all__ = [
    "Wrong", "bound_words", "count", "explanation", "facts", "key_figures", "percent", "proven", "ranking", "table",
    "us", "versions",
]  # fmt: skip

Wrong = Callable[["Result"], int | None]
"""How many elements of a result are wrong; None if nothing was checked."""

NETWORKS = {
    "alpha_beta": "each pair of ranks has its way for itself: a latency and a bandwidth, nothing is shared",
    "store_and_forward": "links are shared, messages queue at them, and go on when they have arrived whole",
    "cut_through": "links are shared, messages queue at them, and go on while they still arrive",
    "fluid": "links are shared by all messages that cross them at a time, in equal parts as far as they can use them",
}
HOW = {
    "": "event by event",
    "sweep": "swept in program order, since no transfer overtook another at a station",
    "jump": "swept in program order, repeating periods skipped",
}
MEANING = {
    "latency": "the way along links",
    "serialisation": "bytes going through links",
    "queueing": "waiting for messages of other senders",
    "reduction": "adding up what has come",
    "overhead": "of devices that send a message",
    "pacing": "held back by the schedule until earlier messages have left",
}
PACKAGES = ("numpy", "scipy", "networkx", "simpy", "numba", "matplotlib", "jinja2")
MOST_SHOWN = 16
MOST_ROWS = 8
ROUGH = 0.005
"""A smaller difference from a formula that need not hold is not worth a mark."""


def us(seconds: float) -> str:
    """Write seconds as microseconds, as ``collsim run`` does.

    Examples
    --------
    >>> us(1.5e-6), us(0.0416102), us(42e-12), us(0)
    ('1.50', '41,610', '0.000042', '0')
    """
    value = seconds * 1e6
    if not round(value, 6):
        return "0"
    if abs(value) < 0.005:
        return f"{value:.6f}".rstrip("0")
    return f"{value:,.0f}" if value >= 9999.95 else f"{value:,.1f}" if value >= 99.995 else f"{value:.2f}"


def percent(part: float) -> str:
    """Write a part in per cent.

    Examples
    --------
    >>> percent(0.4567), percent(0.0001), percent(1.0)
    ('45.7 %', '< 0.1 %', '100.0 %')
    """
    return "< 0.1 %" if 0 < part < 0.0005 else f"{100 * part:.1f} %"


def count(number: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> count(1, "rank"), count(1024, "link")
    ('1 rank', '1,024 links')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def proven(result: Result) -> int | None:
    """Return 0 wrong elements for a schedule that was proven, None for one that was not."""
    return None if result.checked is None else 0


def table(results: Mapping[int, Result], dtype: str | None, wrong: Wrong) -> dict[str, Any]:
    """Return the rows of the table of ``collsim run``, and what is to be said below it."""
    rows, notes = [], []
    for result in results.values():
        c, theory = result.schedule.collective, result.theory
        error = None if theory is None or not theory else result.time / float(theory) - 1
        rough = theory is not None and not theory.holds and abs(error or 0) >= ROUGH
        number = wrong(result)
        rows.append(
            [
                f"{result.size:,}",
                f"{result.size // result.element_size // (c.ranks if c.is_blocked else 1):,}",
                dtype or f"{result.element_size} B",
                "sum" if c.reduces else "none",
                str(c.root if c.is_rooted else -1),
                us(result.time),
                f"{result.algbw / 1e9:,.2f}",
                f"{result.busbw / 1e9:,.2f}",
                "N/A" if number is None else f"{number:,}",
                "N/A" if theory is None else "~" * rough + us(float(theory)),
                "N/A" if error is None else f"{round(100 * error, 2) + 0.0:+,.2f}",
                us(float(result.bound)),
                f"{100 * result.efficiency:,.2f}",
            ]
        )
    theory = results[max(results)].theory
    if theory is None:
        notes.append("There is no closed form for this algorithm with these parameters, so theory is N/A.")
    else:
        holds = "" if theory.holds else f", which need not be exact here (~): {theory.why}"
        notes.append(f"Theory: {theory.formula}{holds}.")
    return {"rows": rows, "notes": notes, "wrong": sum(wrong(result) or 0 for result in results.values())}


def ranking(runs: Runs) -> list[dict[str, Any]]:
    """Return for each size the algorithms with their times, the fastest first."""
    rows = []
    for size in runs.sizes:
        found = runs.ranking(size)
        best = max(1, found[0][1].time_ps)
        rows.append(
            {
                "size": format_size(size),
                "bound": us(float(found[0][1].bound)),
                "places": [
                    {"name": name, "time": us(r.time), "factor": f"{r.time_ps / best:.2f}"}
                    for name, r in found[:MOST_ROWS]
                ],
            }
        )
    return rows


def key_figures(runs: Runs) -> list[tuple[str, str]]:
    """Return the few numbers that stand on top."""
    first, last = runs.smallest, runs.largest
    large = format_size(last.size)
    found = [(f"time at {large}", f"{us(last.time)} us")]
    if last.busbw and runs.operation != "barrier":
        found.append((f"bus bandwidth at {large}", f"{last.busbw / 1e9:,.2f} GB/s"))
    found.append((f"of what is possible at {large}", percent(last.efficiency)))
    if first is not last:
        found.append((f"time at {format_size(first.size)}", f"{us(first.time)} us"))
    return found


def facts(runs: Runs, dtype: str | None) -> list[tuple[str, list[str]]]:
    """Return what was simulated: a label and some paragraphs each."""
    result, machine = runs.largest, runs.topology
    c = result.schedule.collective
    others = machine.n_nodes - machine.n_ranks
    parts = [count(machine.n_ranks, "rank"), *([count(others, "other device")] if others else [])]
    kinds = f"{', '.join(parts)}, {count(machine.n_links, 'link')} (one for each direction)"
    what = f"{c.operation} on {count(c.ranks, 'rank')}" + (f" from root {c.root}" if c.is_rooted else "")
    found: list[tuple[str, list[str]]] = [
        ("operation", [what + (", the reduction is sum" if c.reduces else "")]),
        ("machine", [f"{machine.name}: {kinds}", *filter(None, [" ".join(machine.description.split())])]),
    ]
    if machine.source:
        found.append(("source", [" ".join(machine.source.split())]))
    for name, by_size in runs.results.items():
        schedule = by_size[max(by_size)].schedule
        about = _about(runs.operation, name)
        lines = [
            f"{name}{': ' + about if about else ''}; {count(schedule.steps, 'step')}, "
            f"{count(schedule.transfers, 'transfer')}, {count(schedule.chunks, 'chunk')}"
        ]
        if schedule.parameters:
            given = ", ".join(f"{key}={_short(value)}" for key, value in schedule.parameters.items())
            lines.append(f"parameters: {given}")
        found.append(("algorithm", lines))
    for name, reason in runs.unfit.items():
        found.append(("does not fit", [f"{name}: {reason}"]))
    sizes = format_size(runs.sizes[0])
    if len(runs.sizes) > 1:
        sizes = f"{len(runs.sizes)} from {sizes} to {format_size(runs.sizes[-1])}"
    barrier = "; a barrier after each step" if result.synchronous else ""
    found += [
        ("network", [f"{runs.network}: {NETWORKS[runs.network]}{barrier}"]),
        ("sizes", [f"{sizes}, in elements of {dtype or count(result.element_size, 'byte')}"]),
        ("engine", [f"{result.engine} (at {format_size(result.size)}): {HOW[result.shortcut]}"]),
        ("proof", _proofs(runs)),
    ]
    return found


def _about(operation: str, name: str) -> str:
    """Return the first sentence of what is said of a shipped algorithm."""
    try:
        function = algorithms.find(operation, name)
    except CollsimError:
        return ""
    return (inspect.getdoc(function) or "").partition("\n")[0].partition(". ")[0].rstrip(".").replace("`", "")


def _short(value: Any) -> str:
    """Write a parameter, cut where it is long."""
    if isinstance(value, Mapping):
        return f"(of {count(len(value), 'pair')})"
    if isinstance(value, (list, tuple)):
        if not all(isinstance(item, (int, str)) for item in value):
            return f"({len(value):,} given)"
        return ",".join(map(str, value[:MOST_SHOWN])) + (",..." if len(value) > MOST_SHOWN else "")
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _proofs(runs: Runs) -> list[str]:
    lines = []
    for name, by_size in runs.results.items():
        who = f"{name}: " if len(runs.results) > 1 else ""
        proof = by_size[max(by_size)].checked
        if proof is None:
            lines.append(f"{who}nothing was checked")
        else:
            some = "all" if proof.complete else f"{proof.checked:,} of"
            lines.append(
                "; ".join([f"{who}{some} {count(proof.chunks, 'chunk')} proven", *proof.unused, *proof.warnings])
            )
    return lines


def explanation(why: Explanation) -> dict[str, Any]:
    """Return the tables of an explanation."""
    r = why.result
    causes = [] if why.causes is None else list(why.causes.items())
    words = MEANING | (
        {"queueing": "what messages take longer because they share links"} if r.network == "fluid" else {}
    )
    return {
        "advice": _sentence(why.advice),
        "causes": [(name, words.get(name, ""), us(ps * 1e-12), percent(ps / r.time_ps)) for name, ps in causes],
        "places": [(one.name, us(one.ps * 1e-12), percent(one.part)) for one in (why.classes or ())[:MOST_ROWS]],
        "busiest": [] if r.network == "alpha_beta" else [
            (one.name, format_bandwidth(int(r.topology.link_bandwidth[one.link])), percent(one.part))
            for one in why.busiest[:MOST_ROWS]
        ],
        "path": [_stretch(why, one) for one in why.path or ()],
        "hops": len(r.critical_path.transfers) if r.has_records else 0,
        "experiments": [
            (one.what, us(one.time), us(one.saved_ps * 1e-12), percent(one.saved_ps / r.time_ps))
            for one in why.helpful[:MOST_ROWS]
        ],
        "tried": len(why.experiments),
        "helpful": len(why.helpful),
        "text": str(why),
    }  # fmt: skip


def _stretch(why: Explanation, one: Any) -> tuple[str, str, str, str, str]:
    program, schedule = why.result.program, why.result.schedule

    def pair(transfer: int) -> str:
        if transfer >= program.transfers:
            return "a barrier"
        ends = int(program.src[transfer]), int(program.dst[transfer])
        return " -> ".join(str(e) if e < schedule.ranks else schedule.places[e - schedule.ranks] for e in ends)

    ends = dict.fromkeys([pair(one.first), pair(one.last)])
    causes = sorted(one.causes.items(), key=lambda item: -item[1])
    words = [f"{name} {us(ps * 1e-12)}" for name, ps in causes]
    if one.own:
        words.append(f"of which {us(one.own * 1e-12)} for {count(one.ahead, 'earlier message')} of the same sender")
    takes = us(one.ps * 1e-12)
    return us(one.start_ps * 1e-12), takes, f"{one.count:,}", " ... ".join(ends), ", ".join(words)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def bound_words(runs: Runs) -> dict[str, Any]:
    """Return the bound by size, and what makes it, in words."""
    last = runs.largest
    bound, factor = last.bound, last.schedule.collective.busbw_factor
    rows = [
        (format_size(r.size), us(float(r.bound)), us(r.bound.latency), us(r.bound.injection), us(r.bound.cut), _by(r))
        for r in runs.detailed.values()
    ]
    lines = []
    if bound:
        lines.append(
            f"At {format_size(last.size)} no algorithm can take less than {us(float(bound))} us. That is due to the "
            f"{bound.reason}."
        )
    if bound and np.isfinite(bound.rate) and bound.rate:
        algbw, busbw = bound.rate / 1e9, bound.rate * factor / 1e9
        lines.append(f"As sizes grow, it allows at most algbw {algbw:,.2f} GB/s, busbw {busbw:,.2f} GB/s.")
    if bound.without_switches > bound * (1 + 1e-9):
        part = bound.without_switches / last.time if last.time_ps else 1.0
        lines.append(
            "Switches that reduce or multicast make that possible; where all is left to the ranks, it takes at least "
            f"{us(bound.without_switches)} us, which is {percent(part)} of the time."
        )
    first = runs.smallest
    if first is not last and first.bound and first.bound.reason != bound.reason:
        lines.append(
            f"At {format_size(first.size)} it is {us(float(first.bound))} us, due to the {first.bound.reason}."
        )
    return {"rows": rows, "lines": lines or ["Nothing has to travel, so there is no bound."]}


def _by(result: Result) -> str:
    return result.bound.reason.partition(":")[0] if result.bound else "-"


def versions() -> list[tuple[str, str]]:
    """Return the programs that made the report, with their versions."""
    found = [("collsim", collsim.__version__), ("Python", ".".join(map(str, sys.version_info[:3])))]
    for name in PACKAGES:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            found.append((name, "not installed"))
    return found
