"""Why a simulation takes as long as it does, where the bottleneck is, and what would help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.engine.critical import PARTS
from collsim.engine.link_classes import LinkClass, link_classes
from collsim.engine.outcome import Pulse, no_pulse
from collsim.engine.program import COPY, LINK, REDUCER, SENDER
from collsim.engine.stretches import Stretch, stretches
from collsim.engine.what_if import BUDGET, MATTERS, Experiment, Suspects, experiments
from collsim.errors import InputError, shown
from collsim.theory import Bound

if TYPE_CHECKING:
    from collsim.engine.result import Result

__all__ = ["Explanation", "Share", "explain"]

Array = npt.NDArray[Any]

WORTH = 0.01
"""What takes a smaller part of the time is not worth an experiment."""
BUSY = 0.1
"""The same without a critical path, for the part of the time that a link is busy."""
NEARLY = 0.9
"""Links that are busy for this part of the time may limit it, wherever the critical path goes."""
ALONE = 0.3
"""A single link on which so much of the time lies is tried alone, too."""
MOST_CLASSES = 3
"""Classes of links that are tried."""
MOST_BUSY = 16
"""Busiest links that are listed."""
DEVICES = {SENDER: "send_overhead", REDUCER: "reduce_bandwidth", COPY: "channel_bandwidth"}
WORK = {SENDER: "sending on", REDUCER: "reducing on", COPY: "copy engine of"}


@dataclass(frozen=True)
class Share:
    """A part of the time, or the time that a link is busy.

    Attributes
    ----------
    name
        A link (or a class of links), a device, or ``pacing``.
    link
        Number of the link; -1 if it is none.
    ps
        Picoseconds.
    part
        The same as a part of the simulated time.
    """

    name: str
    link: int
    ps: int
    part: float


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a simulation takes as long as it does; as a text what matters of it.

    Attributes
    ----------
    result
        What is explained.
    causes
        Picoseconds of the critical path by cause, the heaviest first; they sum to the simulated time. None if no
        records were kept.
    links
        The same by link, and by device or ``pacing`` where it is no link, the heaviest first. None without records.
    classes
        The same by class of alike links.
    path
        The critical path in a few stretches, in order of time. None without records.
    busiest
        The links that are busy for the longest time, at most 16.
    bound
        The least time that any algorithm could take, and why.
    experiments
        What was tried, the greatest gain first.
    untried
        What was not, with the reason.
    budget
        Transfers that the experiments were allowed.
    """

    result: Result
    causes: Mapping[str, int] | None
    links: tuple[Share, ...] | None
    classes: tuple[Share, ...] | None
    path: tuple[Stretch, ...] | None
    busiest: tuple[Share, ...]
    bound: Bound
    experiments: tuple[Experiment, ...]
    untried: Mapping[str, str]
    budget: int

    @property
    def best(self) -> Experiment | None:
        """The experiment that saves the most; None if none saves more than a thousandth of the time."""
        return next(iter(self.helpful), None)

    @property
    def helpful(self) -> tuple[Experiment, ...]:
        """The experiments that save more than a thousandth of the time, the greatest gain first."""
        return tuple(one for one in self.experiments if one.saved_ps > MATTERS * self.result.time_ps)

    @property
    def advice(self) -> str:
        """What would help most, in a sentence."""
        from collsim.engine.explain_words import advice

        return advice(self)

    def __str__(self) -> str:
        from collsim.engine.explain_words import text

        return text(self)

    def __repr__(self) -> str:
        what = f"{self.result.schedule.algorithm or 'schedule'} {self.result.operation}"
        return f"<Explanation of {what}: {len(self.experiments)} experiments; print it>"


def explain(result: Result, *, budget: int = BUDGET, progress: Pulse = no_pulse) -> Explanation:
    """Explain a result: what its time goes to, where, and what would help.

    What would help is found out by simulating it: links of a kind with twice the bandwidth or half the latency, faster
    devices, other algorithms that fit the machine, other parameters.

    Parameters
    ----------
    result
        A simulation.
    budget
        How many transfers may be simulated for that in all; 0 for none.
    progress
        Called now and then with the number of transfers of experiments that are done and of all.

    Raises
    ------
    InputError
        If the budget is no whole number of at least 0.

    Examples
    --------
    >>> import collsim
    >>> ring = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    >>> why = explain(collsim.run("all_reduce", ring, "1MiB"), budget=1000)
    >>> why.causes
    {'serialisation': 31457280, 'latency': 6000000}
    >>> why.best
    <Experiment twice the bandwidth (100GB/s) of the 4 links gpu -> gpu (50GB/s, 1us): 21.729 us, +15.729 us saved>
    """
    if isinstance(budget, bool) or not isinstance(budget, (int, np.integer)) or budget < 0:
        raise InputError(f"budget: expected a whole number of transfers from 0, got {shown(budget)}")
    number, groups = link_classes(result.topology)
    causes: dict[str, int] | None = None
    links = classes = path = None
    if result.has_records:
        columns, program = result.critical_path.pieces, result.program
        causes = {name: ps for name, ps in _heaviest(Counter(result.breakdown_ps)) if ps}
        links, classes = _by_place(result, columns, number, groups)
        path = tuple(stretches(result.critical_path, program, number))
        suspects = _on_the_path(result, columns, number, groups)
    else:
        suspects = _by_totals(result, number, groups)
    found, untried = experiments(result, suspects, int(budget), progress)
    return Explanation(
        result, causes, links, classes, path, _busiest(result), result.bound, found, untried, int(budget)
    )


def _heaviest(weights: Counter[Any]) -> list[tuple[Any, int]]:
    """Sort by weight, equal ones as they came."""
    return sorted(weights.items(), key=lambda item: -item[1])


def _by_place(
    result: Result, columns: Mapping[str, Array], number: Array, groups: list[LinkClass]
) -> tuple[tuple[Share, ...], tuple[Share, ...]]:
    """Sum up the pieces by link and by class of links; what is on no link is told by its device in both."""
    topology, program = result.topology, result.program
    links: Counter[tuple[str, int]] = Counter()
    classes: Counter[str] = Counter()
    for link, ps in _sums(columns["link"], columns):
        if link >= 0:
            links[topology.link_name(link), link] += ps
            classes[groups[int(number[link])].name] += ps
    off = columns["link"] < 0
    for station, ps in _sums(columns["station"][off], {name: column[off] for name, column in columns.items()}):
        if station < 0:
            name = kind = "pacing"
        else:
            of, index = int(program.station_kind[station]), int(program.station_index[station])
            if of == COPY:
                index = _source(result, int(columns["transfer"][np.argmax(columns["station"] == station)]))
            name, kind = f"{WORK[of]} {topology.nodes[index]}", WORK[of].split(" o")[0]
        links[name, -1] += ps
        classes[kind] += ps
    whole = result.time_ps
    return (
        tuple(Share(name, link, ps, ps / whole) for (name, link), ps in _heaviest(links)),
        tuple(Share(name, -1, ps, ps / whole) for name, ps in _heaviest(classes)),
    )


def _sums(values: Array, columns: Mapping[str, Array]) -> list[tuple[int, int]]:
    """Sum up picoseconds by a value, in ascending order of it."""
    known, inverse = np.unique(values, return_inverse=True)
    sums = np.zeros(len(known), dtype=np.int64)
    np.add.at(sums, inverse, columns["end_ps"] - columns["start_ps"])
    return list(zip(known.tolist(), sums.tolist(), strict=True))


def _source(result: Result, transfer: int) -> int:
    """Return the node that sends a transfer."""
    src, ranks = int(result.program.src[transfer]), result.schedule.ranks
    if src < ranks:
        return int(result.topology.rank_nodes[src])
    return result.topology.node_index(result.schedule.places[src - ranks])


def _on_the_path(result: Result, columns: Mapping[str, Array], number: Array, groups: list[LinkClass]) -> Suspects:
    """Return what takes more than a little of the critical path."""
    least = WORTH * result.time_ps
    is_latency = columns["cause"] == PARTS.index("latency")
    on_link = columns["link"] >= 0
    heavy: dict[bool, list[LinkClass]] = {}
    for latency in (True, False):
        chosen = on_link & (is_latency == latency)
        some = {name: column[chosen] for name, column in columns.items()}
        by_link = _sums(some["link"], some)
        by_class: Counter[int] = Counter()
        for link, ps in by_link:
            by_class[int(number[link])] += ps
        heavy[latency] = [groups[which] for which, ps in _heaviest(by_class)[:MOST_CLASSES] if ps >= least]
        if not latency:
            heavy[False] += [
                LinkClass(result.topology, np.array([link]))
                for link, ps in by_link
                if ps >= ALONE * result.time_ps and len(groups[int(number[link])].links) > 1
            ]
    # what is busy nearly all the time may be the next limit, though the path happens to go elsewhere
    known = {id(group) for group in heavy[False]}
    heavy[False] += [group for group in _busy(result, groups, NEARLY) if id(group) not in known]
    station = columns["station"]
    kind = np.where(station >= 0, result.program.station_kind[station] if station.size else -1, LINK)
    by_kind = Counter(dict(_sums(kind, columns)))
    devices = [DEVICES[of] for of, ps in _heaviest(by_kind) if of in DEVICES and ps >= least]
    return Suspects(heavy[False], heavy[True], devices, result.breakdown_ps["pacing"] >= least)


def _by_totals(result: Result, number: Array, groups: list[LinkClass]) -> Suspects:
    """Return what might take time, where nothing is known but how long each link is busy."""
    topology = result.topology
    used = np.unique(number[result.link_bytes > 0]) if len(number) else np.zeros(0, dtype=np.int64)
    some = [groups[which] for which in used.tolist()]
    slow = _busy(result, groups, BUSY)
    far = sorted((group for group in some if group.latency), key=lambda group: -group.latency)
    nodes = topology.rank_nodes
    devices = [
        name
        for name, costs in (
            ("send_overhead", True),
            ("reduce_bandwidth", result.schedule.collective.reduces),
            ("channel_bandwidth", True),
        )
        if costs and getattr(topology, name)[nodes].any()
    ]  # fmt: skip
    return Suspects(slow[:MOST_CLASSES], far[:MOST_CLASSES], devices, bool(result.schedule.edges))


def _busy(result: Result, groups: list[LinkClass], least: float) -> list[LinkClass]:
    """Return the classes with a link that is busy for a part of the time at least, the busiest first."""
    most = [int(result.link_busy_ps[group.links].max()) for group in groups]
    chosen = sorted((-ps, which) for which, ps in enumerate(most) if ps and ps >= least * result.time_ps)
    return [groups[which] for _, which in chosen]


def _busiest(result: Result) -> tuple[Share, ...]:
    busy = result.link_busy_ps
    order = np.argsort(-busy, kind="stable")[:MOST_BUSY]
    return tuple(
        Share(result.topology.link_name(link), link, int(busy[link]), int(busy[link]) / max(1, result.time_ps))
        for link in order.tolist()
        if busy[link]
    )
