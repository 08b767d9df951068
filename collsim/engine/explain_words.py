"""An explanation as a text: short, plain, what weighs most first."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from collsim.engine.link_classes import link_classes
from collsim.engine.stretches import Stretch
from collsim.engine.what_if import MATTERS, OTHERS, OVER_BUDGET, Experiment
from collsim.units import format_bandwidth, format_size

if TYPE_CHECKING:
    from collsim.engine.explain import Explanation

__all__ = ["advice", "text"]

WIDTH = 116
LABEL = 9
MOST_PLACES = 4
MOST_KINDS = 3
MOST_OTHERS = 4
ALIKE = 0.99
"""Links that are busy nearly as long as the busiest."""

CAUSES = {
    "latency": "the way along links",
    "serialisation": "bytes going through links",
    "queueing": "waiting for messages of other senders",
    "reduction": "adding up what has come",
    "overhead": "of devices that send a message",
    "pacing": "held back by the schedule until earlier messages have left",
}
UNIT = re.compile(r"(?<=\d) (?=%|us\b|GB/s)|(?<=<) (?=\d)|(?<=\d) (?=->)|(?<=->) (?=\d)")
SHARED = {**CAUSES, "queueing": "what messages take longer because they share links"}


def us(ps: int) -> str:
    """Write picoseconds as microseconds.

    Examples
    --------
    >>> us(1_500_000), us(42), us(0)
    ('1.50', '0.000042', '0')
    """
    value = ps * 1e-6
    if not ps:
        return "0"
    return f"{value:,.2f}" if abs(value) >= 0.005 else f"{value:.6f}".rstrip("0")


def percent(part: float) -> str:
    """Write a part in per cent.

    Examples
    --------
    >>> percent(0.4567), percent(0.0001)
    ('45.7 %', '< 0.1 %')
    """
    return "< 0.1 %" if 0 < part < 0.0005 else f"{100 * part:.1f} %"


def text(why: Explanation) -> str:
    """Return the whole text."""
    r = why.result
    name = f"{r.schedule.algorithm or 'a schedule'} {r.operation} of {format_size(r.size)} on {r.topology.name}"
    rate = f", busbw {r.busbw / 1e9:,.2f} GB/s" if r.busbw else ""
    lines = [f"{name}, {r.network} network: {us(r.time_ps)} us{rate}"]
    for label, body in (
        ("why", _why(why)), ("where", _where(why)), ("path", _path(why)), ("busiest", _busiest(why)),
        ("bound", _bound(why)), ("theory", _theory(why)), ("helps", _helps(why)),
    ):  # fmt: skip
        for i, paragraph in enumerate(body):
            # lines of the path are a table
            indent = " " * (LABEL + (13 if label == "path" and i else 0))
            first = f"{'' if i else label:<{LABEL}}"
            kept = UNIT.sub("\xa0", paragraph)  # a number and its unit stay together
            wrapped = textwrap.wrap(
                kept, WIDTH, initial_indent=first, subsequent_indent=indent, break_long_words=False,
                break_on_hyphens=False,
            )  # fmt: skip
            lines += [line.replace("\xa0", " ") for line in wrapped]
    return "\n".join(lines)


def _why(why: Explanation) -> list[str]:
    r = why.result
    if not r.transfers:
        return ["no transfer is needed"]
    if why.causes is None:
        return [
            f"no records were kept of the {r.transfers:,} transfers, so it is not known what was waited for; "
            "records=True (on the command line --records) keeps them"
        ]
    if not why.causes:
        return ["no transfer takes any time here"]
    words = SHARED if r.network == "fluid" else CAUSES
    return [
        ", ".join(f"{percent(ps / r.time_ps)} {name} ({us(ps)} us, {words[name]})" for name, ps in why.causes.items())
    ]


def _where(why: Explanation) -> list[str]:
    if not why.classes or not why.links:
        return []
    most = why.links[0]
    shown = _cut(
        [f"{percent(one.part)} {'' if one.name == 'pacing' else 'on '}{one.name}" for one in why.classes], MOST_PLACES
    )
    alone = f"; the most on one link: {percent(most.part)} on {most.name}" if len(why.links) > 1 else ""
    return [", ".join(shown) + (alone if most.link >= 0 else "")]


def _cut(words: Sequence[str], most: int) -> list[str]:
    return [*words[:most], f"and {len(words) - most:,} more"] if len(words) > most else list(words)


def _path(why: Explanation) -> list[str]:
    if not why.path:
        return []
    count = len(why.result.critical_path.transfers)
    some = f"the {count:,} transfers that determine the time, one after the other" if count > 1 else "one transfer"
    lines = [f"{some} (from, takes):"]
    for one in why.path:
        lines.append(f"{us(one.start_ps):>9} {us(one.ps):>9} us  {_stretch(why, one)}")
    return lines


def _stretch(why: Explanation, one: Stretch) -> str:
    """Say what happens in a stretch, and what its time goes to."""
    if one.times > 1:
        what = f"{one.times:,} times " + ", then ".join(_what(why, part, part.count // one.times) for part in one.parts)
    elif one.parts:
        kinds = [f"{_what(why, part, part.count)} ({us(part.ps)} us)" for part in one.parts]
        what = f"{one.count:,} transfers of several sorts, most time goes to " + ", ".join(_cut(kinds, MOST_KINDS))
    else:
        what = _what(why, one, one.count) + f", {_ends(why, one)}"
    return f"{what}: {_causes(why, one)}"


def _what(why: Explanation, one: Stretch, count: int) -> str:
    if not one.count:
        return "a barrier"
    low, high = one.bytes
    size = format_size(low) if low == high else f"{format_size(low)} to {format_size(high)}"
    adding = "reducing " if one.reduces else ""
    noun = f"a {adding}transfer" if count == 1 else f"{count:,} {adding}transfers"
    over = [link_classes(why.result.topology)[1][number].ends for number in _links(one)]
    return f"{noun} of {size}" + (f" over {', '.join(_cut(over, 2))}" if over else "")


def _links(one: Stretch) -> list[int]:
    """Return the classes of links on which it spends time, the heaviest first."""
    return [number for number, _ in sorted(one.places.items(), key=lambda item: (-item[1], item[0])) if number >= 0]


def _ends(why: Explanation, one: Stretch) -> str:
    program = why.result.program
    if one.first >= program.transfers:
        return "between steps"
    first = _pair(why, int(program.src[one.first]), int(program.dst[one.first]))
    if one.count == 1 or one.last >= program.transfers:
        return first
    last = _pair(why, int(program.src[one.last]), int(program.dst[one.last]))
    return f"{first} ... {last}" if first != last else f"{first} first and last"


def _pair(why: Explanation, src: int, dst: int) -> str:
    ranks, places = why.result.schedule.ranks, why.result.schedule.places
    a, b = (str(end) if end < ranks else places[end - ranks] for end in (src, dst))
    return f"{a} -> {b}"


def _causes(why: Explanation, one: Stretch) -> str:
    """Say what the time of a stretch goes to, and behind whom it queued."""
    words = []
    for name, ps in sorted(one.causes.items(), key=lambda item: -item[1]):
        word = f"{name} {us(ps)}"
        if name == "queueing" and one.behind:
            pairs = [_pair(why, *pair) for pair, _ in Counter(one.behind).most_common()]
            word += f" behind {', '.join(_cut(pairs, 2))}"
        words.append(word)
    if one.own:
        ahead = f"{one.ahead:,} earlier message{'s' * (one.ahead > 1)}"
        words.append(f"of which {us(one.own)} for {ahead} of the same sender")
    return ", ".join(words)


def _busiest(why: Explanation) -> list[str]:
    """Name the links that are busy most of the time."""
    r = why.result
    if not why.busiest or r.network == "alpha_beta":  # nothing is shared there
        return []
    busy, top = r.link_busy_ps, why.busiest[0]
    alike = int((busy >= ALIKE * top.ps).sum()) - 1
    name = f"{top.name} ({format_bandwidth(int(r.topology.link_bandwidth[top.link]))})"
    more = f" and {alike:,} more link{'s' * (alike > 1)}" if alike else ""
    used = int((busy > 0).sum())
    line = f"{name}{more}, busy {percent(top.part)} of the time; {used:,} of {len(busy):,} links are used"
    following = next((int(link) for link in np.argsort(-busy, kind="stable") if busy[link] < ALIKE * top.ps), None)
    if following is not None and busy[following]:
        line += f", the next busiest is {r.topology.link_name(following)} with {percent(busy[following] / r.time_ps)}"
    return [line]


def _bound(why: Explanation) -> list[str]:
    r = why.result
    if not why.bound:
        return []
    return [
        f"{us(round(why.bound * 1e12))} us at least, whatever the algorithm, which is {percent(r.efficiency)} of the "
        f"time: {why.bound.reason}"
    ]


def _theory(why: Explanation) -> list[str]:
    theory = why.result.theory
    if theory is None or not why.result.transfers:
        return []
    holds = "" if theory.holds else f", which need not be exact here: {theory.why}"
    return [f"{us(round(theory * 1e12))} us, from {theory.formula}{holds}"]


def _helps(why: Explanation) -> list[str]:
    if not why.result.time_ps:
        return []
    lines = [advice(why)]
    told = _told(why)
    others = [one for one in why.helpful if one not in told]
    kinds = {one.kind for one in told}
    best = [one for i, one in enumerate(others) if one.kind not in kinds | {other.kind for other in others[:i]}]
    chosen = [*best, *(one for one in others if one not in best)][:MOST_OTHERS]
    others = [one for one in others if one in chosen]
    if others:
        lines.append("also: " + "; ".join(f"{one.what}, {_change(why, one)}" for one in others))
    if OTHERS in why.untried:
        lines.append(f"{OTHERS}: {why.untried[OTHERS]}")
    large = [what for what, reason in why.untried.items() if reason.endswith(OVER_BUDGET)]
    if large:
        lines.append(
            f"not tried, for the budget of {why.budget:,} transfers was used up: {'; '.join(_cut(large, MOST_OTHERS))}"
        )
    return lines


def _told(why: Explanation) -> list[Experiment]:
    """Return the best experiment, and the best one of the other sort: what is run, or the machine."""
    best = why.best
    if best is None:
        return []
    return [best, *[one for one in why.helpful if one.on_the_machine != best.on_the_machine][:1]]


def advice(why: Explanation) -> str:
    """Return what would help most, in a sentence or two."""
    r, count = why.result, len(why.experiments)
    if not count:
        return "nothing was tried" if r.time_ps else "no time can be saved"
    told = _told(why)
    if not told:
        return f"none of {count:,} changes that were simulated makes it faster by more than {100 * MATTERS:g} %"
    best = told[0]
    words = (
        f"of {count:,} changes that were simulated the best is {best.what}: {us(best.time_ps)} us, which is "
        f"{us(best.saved_ps)} us or {percent(best.saved_ps / r.time_ps)} less"
    )
    if len(told) > 1:
        where = "of the machine" if told[1].on_the_machine else "on this machine as it is"
        words += f"; {where}, {told[1].what}: {us(told[1].time_ps)} us, {percent(told[1].saved_ps / r.time_ps)} less"
    return words


def _change(why: Explanation, one: Experiment) -> str:
    return f"{us(one.time_ps)} us ({percent(one.saved_ps / why.result.time_ps)} less)"
