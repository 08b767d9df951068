"""The lines below the table: what was checked, where the time goes, and why it is not what theory says."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np

from collsim.cli.table import Row
from collsim.engine.result import Result
from collsim.engine.traffic import link_users
from collsim.schedule.check import Proof
from collsim.units import format_bandwidth, format_size

__all__ = ["notes"]

WIDTH = 114
MOST_LINKS = 3
MOST_PAIRS = 4


def notes(rows: Sequence[Row], proof: Proof | None) -> list[str]:
    """Return lines about the rows; all but the first are about the last row, which is the largest size."""
    result = rows[-1].result
    paragraphs = [
        ("checked", _checked(rows, proof)),
        *_engine(result),
        *_time(result),
        *_theory(result),
        *_bound(result),
        *_busbw(result),
        *_busiest(result),
        *_shared(result),
    ]
    lines: list[str] = []
    for label, text in paragraphs:
        lines += textwrap.wrap(
            text, WIDTH, initial_indent=f"{label:<8} ", subsequent_indent=" " * 9, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
    return lines


def us(seconds: float) -> str:
    """Microseconds in plain text.

    Examples
    --------
    >>> us(1.5e-6), us(4.2e-11), us(-0.0)
    ('1.50', '0.000042', '0')
    """
    value = seconds * 1e6
    if not round(value, 6):
        return "0"
    return f"{value:.2f}" if abs(value) >= 0.005 else f"{value:.6f}".rstrip("0")


def _checked(rows: Sequence[Row], proof: Proof | None) -> str:
    if proof is None:
        return "nothing (--no-check): #wrong is N/A"
    if proof.complete:
        chunks = "the only chunk" if proof.chunks == 1 else f"all {proof.chunks:,} chunks"
    else:
        chunks = f"{proof.checked:,} of {proof.chunks:,} chunks (a sample)"
    by_data = [row.result.size for row in rows if row.wrong_by == "data"]
    if len(by_data) == len(rows):
        how = "#wrong was counted by executing on data"
    elif by_data:
        how = f"#wrong was counted by executing on data up to {format_size(max(by_data))}, above it is the proof's"
    else:
        how = "#wrong is the proof's (too much to execute on data)"
    return "; ".join([f"{chunks} proven", how, *proof.unused, *proof.warnings])


HOW = {
    "": "event by event",
    "sweep": "swept in program order, since no transfer overtook another at a station",
    "jump": "swept in program order, and where a period came round again skipped to its end",
}


def _engine(r: Result) -> list[tuple[str, str]]:
    """Say which engine it was, and how it came to the time: short cuts are exact but not plain."""
    return [("engine", f"{r.engine}: {r.transfers:,} transfer{'s' * (r.transfers != 1)}, {HOW[r.shortcut]}")]


def _time(r: Result) -> list[tuple[str, str]]:
    if not r.has_records:
        why = "no records were kept, so there is no critical path (in Python records=True keeps them)"
        return [("time", f"{us(r.time)} us at {format_size(r.size)}; {why}")]
    hops = len(r.critical_path.transfers)
    if not hops:
        return [("time", "no transfer is needed")]
    where = f"at {format_size(r.size)}, along the {hops:,} transfer{'s' * (hops > 1)} of the critical path"
    queueing = "; queueing is waiting for messages of other senders" if r.breakdown_ps["queueing"] else ""
    return [("time", f"{us(r.time)} us{_sum(r.breakdown)}, {where}{queueing}")]


def _theory(r: Result) -> list[tuple[str, str]]:
    theory = r.theory
    if theory is None:
        return [("theory", f"there is no formula for {r.schedule.algorithm or 'an algorithm of your own'}")]
    terms = {name: getattr(theory, name) for name in ("latency", "bandwidth", "reduction")}
    lines = [("theory", f"{us(theory)} us{_sum(terms)}, from {theory.formula}")]
    difference = r.time - float(theory)
    # every message may be rounded up to a picosecond
    apart = abs(difference) > 1e-12 * (1 + 2 * r.schedule.steps + r.time)
    if not theory.holds:
        lines.append(("", f"which need not be exact here: {theory.why}"))
    if apart:
        why = f": {_difference(r)}" if r.has_records else ""
        lines.append(("", f"time - theory = {'+' * (difference > 0)}{us(difference)} us{why}"))
    return lines


def _bound(r: Result) -> list[tuple[str, str]]:
    if not r.bound:
        return []
    text = f"{us(r.bound)} us, whatever the algorithm: {r.bound.reason}"
    without = r.bound.without_switches
    if us(without) != us(r.bound):
        text += (
            f"; switches that reduce or multicast make that possible, without their help it is {us(without)} us "
            f"(efficiency {100 * without / r.time:.1f} %)"
        )
    return [("bound", text)]


FACTORS = {"all_reduce": "2(N-1)/N"}


def _busbw(r: Result) -> list[tuple[str, str]]:
    """Say what the bus bandwidth is, and what to hold it against."""
    used = np.flatnonzero(r.link_busy_ps)
    if not len(used) or not r.busbw:
        return []
    c = r.schedule.collective
    factor = FACTORS.get(c.operation, "(N-1)/N" if c.is_blocked else "1")
    rate = int(r.topology.link_bandwidth[used].min())
    text = (
        f"{r.busbw / 1e9:.2f} GB/s = algbw x {factor}: hold it against the rate of the "
        f"slowest link that is used, {format_bandwidth(rate)}"
    )
    if r.schedule.places and r.busbw > 1.001 * rate and r.network != "alpha_beta":
        most = c.busbw_factor * r.size / (int(r.link_busy_ps.max()) * 1e-12)
        limit = " = 2B(N-1)/(N+1)" if (c.operation, r.schedule.algorithm) == ("all_reduce", "nvls") else ""
        text = (
            f"{r.busbw / 1e9:.2f} GB/s = algbw x {factor}, more than the {format_bandwidth(rate)} of the slowest link "
            "that is used: the factor counts what ranks alone would have to send, and here switches add up and copy "
            f"for them. The bytes of this algorithm allow at most {most / 1e9:.2f} GB/s{limit}"
        )
    elif r.busbw > rate and r.network == "alpha_beta":
        text += ", which in alpha_beta every message has for itself"
    elif r.busbw > 1.001 * rate:
        text += ", of which several are used side by side"
    return [("busbw", text)]


def _busiest(r: Result) -> list[tuple[str, str]]:
    """Name the link that is busy most of the time, and say how many others do nothing."""
    busy = r.link_busy_ps
    if not busy.any() or r.network == "alpha_beta":
        return []
    top = int(busy.argmax())
    rate = format_bandwidth(int(r.topology.link_bandwidth[top]))
    used = int((busy > 0).sum())
    hint = (
        "; `collsim compare` shows whether others use more of them"
        if r.efficiency < 0.5 and 2 * used < len(busy)
        else ""
    )
    alike = int((busy >= 0.99 * busy[top]).sum()) - 1
    text = f"{r.topology.link_name(top)} ({rate})" + (f" and {alike} more link{'s' * (alike > 1)}" if alike else "")
    return [
        (
            "busiest",
            f"{text}, busy {100 * int(busy[top]) / r.time_ps:.1f} % of the time; "
            f"{used:,} of {len(busy):,} links are used{hint}",
        )
    ]


def _shared(r: Result) -> list[tuple[str, str]]:
    """Links that pairs of ranks share, if time is lost by it."""
    if not r.has_records:
        return _longest(r)
    pairs = _pairs(r)
    if r.network == "fluid" and r.breakdown_ps["queueing"]:
        busy = {r.topology.link_name(link): int(ps) for link, ps in enumerate(r.link_busy_ps) if ps}
        found = [
            (name, f"each has a part of its bandwidth, it is busy {100 * busy[name] / r.time_ps:.1f} % of the time")
            for name, _ in sorted(r.shared, key=lambda item: -busy[item[0]])
        ]
    else:
        found = [
            (name, f"{number:,} transfer{'s' * (number > 1)} waited there, {us(ps * 1e-12 / number)} us on average")
            for name, number, ps in r.waits
        ]
    lines = []
    for name, what in found[:MOST_LINKS]:
        users = pairs[name]
        some = ", ".join(users[:MOST_PAIRS]) + (
            f" and {len(users) - MOST_PAIRS} more" if len(users) > MOST_PAIRS else ""
        )
        lines.append(("", f"link {name} is shared by {some}: {what}"))
    if len(found) > MOST_LINKS:
        more = len(found) - MOST_LINKS
        lines.append(("", f"and {more:,} more link{'s' * (more > 1)}"))
    return [("shared", text) if i == 0 else (label, text) for i, (label, text) in enumerate(lines)]


def _longest(r: Result) -> list[tuple[str, str]]:
    """Links at which transfers waited, where only the longest wait of each is known."""
    waits = r.link_longest_wait_ps
    late = int((waits > 0).sum())
    if not late:
        return []
    top = int(waits.argmax())
    text = f"at {late:,} link{'s' * (late > 1)} transfers waited; the longest wait is {us(waits[top] * 1e-12)} us"
    return [("waits", f"{text}, at {r.topology.link_name(top)}")]


def _pairs(r: Result) -> dict[str, list[str]]:
    """Pairs of ranks whose transfers cross each link, as ``3 -> 4``."""
    found: dict[str, list[str]] = {}
    for link, src, dst in zip(*(column.tolist() for column in link_users(r.lowered)), strict=True):
        found.setdefault(r.topology.link_name(link), []).append(f"{src} -> {dst}")
    return found


def _sum(parts: dict[str, float]) -> str:
    """`` = latency 1.00 + bandwidth 2.00``: the parts that are not 0."""
    shown = [f"{name} {us(value)}" for name, value in parts.items() if us(value) != "0"]
    return f" = {' + '.join(shown)}" if shown else ""


def _difference(r: Result) -> str:
    """Put time minus theory down to terms, the largest first."""
    theory, parts = r.theory, r.breakdown
    assert theory is not None
    terms = {
        "latency and overhead": parts["latency"] + parts["overhead"] - theory.latency,
        "serialisation": parts["serialisation"] - theory.bandwidth,
        "reduction": parts["reduction"] - theory.reduction,
        "queueing": parts["queueing"],
        "pacing": parts["pacing"],
    }
    largest_first = sorted(terms.items(), key=lambda item: -abs(item[1]))
    shown = [f"{name} {'+' * (value > 0)}{us(value)}" for name, value in largest_first if us(value) != "0"]
    return ", ".join(shown) or "rounding"
