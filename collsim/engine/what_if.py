"""What would help: changes of the machine, of the algorithm and of its parameters, each simulated."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from collsim import algorithms
from collsim.engine.fit import FITTED, fitted, schedule_for
from collsim.engine.link_classes import LinkClass, faster_devices, faster_links
from collsim.engine.loops import Loops
from collsim.engine.lowering.lower import lower
from collsim.engine.outcome import Pulse, no_pulse
from collsim.engine.program import Program
from collsim.engine.simulate import execute
from collsim.errors import CollsimError
from collsim.schedule import Schedule
from collsim.schedule.check import check
from collsim.topology import Topology
from collsim.units import format_bandwidth, format_time

if TYPE_CHECKING:
    from collsim.engine.result import Result

__all__ = ["BUDGET", "MATTERS", "OTHERS", "OVER_BUDGET", "Experiment", "Suspects", "experiments"]

BUDGET = 4_000_000
"""Transfers that experiments may take in all."""
OVER_BUDGET = " are more than is left of the budget"
"""How the reason ends if an experiment is left out because of the budget."""
OTHERS = "other algorithms"
"""What is untried if none of them is tried."""
SLOW = 20
"""So many times as long a transfer takes without the compiled engine."""
FLUID = 4
"""So many times as long it takes in the fluid model."""
MATTERS = 1e-3
"""A smaller part of the time is not worth a word."""
MOST_STEPS = 20_000
"""Schedules of so many steps are proven before anybody is told to use them; of more it takes long."""
FEW_LINKS, SAMPLED = 4, 64
"""A transfer that crosses more links counts for more; so many rows of a phase are looked at."""
FEW_TRANSFERS = 50_000
"""Up to so many over all experiments, the reference engine has finished before the compiled one is loaded."""
MOST_RANKS = 512
"""Other algorithms are tried up to so many ranks: some have a transfer for each pair of them."""
MOST_SEARCHED = 64
"""Algorithms that search the machine are tried up to so many ranks."""
SEARCHES = {"wires", "routes"}
"""Parameters of algorithms that search the machine."""
MACHINE = ("bandwidth", "latency", "overhead", "reduction", "copy engines")
"""Kinds of experiments that change the machine; the others change what is run on it."""


@dataclass(frozen=True, eq=False)
class Experiment:
    """Something that was changed, and the time with it.

    ``simulate(schedule, topology, size, ...)`` with everything else as in the result gives the same time.

    Attributes
    ----------
    kind
        ``bandwidth``, ``latency``, ``overhead``, ``reduction`` or ``copy engines`` (changes of the machine),
        ``algorithm``, ``parameter``, ``barrier`` or ``pacing`` (changes of what is run on it).
    what
        The change in words.
    schedule, topology, synchronous
        What was simulated.
    time_ps
        How long it takes, in picoseconds.
    saved_ps
        By how much that is less than without the change; negative if it is more.
    """

    kind: str
    what: str
    schedule: Schedule
    topology: Topology
    synchronous: bool
    time_ps: int
    saved_ps: int

    @property
    def on_the_machine(self) -> bool:
        """Whether the machine was changed, not what is run on it."""
        return self.kind in MACHINE

    @property
    def time(self) -> float:
        """How long it takes, in seconds."""
        return self.time_ps * 1e-12

    def __repr__(self) -> str:
        return f"<Experiment {self.what}: {self.time * 1e6:.3f} us, {self.saved_ps * 1e-6:+.3f} us saved>"


@dataclass(frozen=True, eq=False)
class Suspects:
    """What the time goes to, so that it is worth to change it, the heaviest first.

    Attributes
    ----------
    bandwidth, latency
        Classes of links, or parts of them.
    devices
        Of ``send_overhead``, ``reduce_bandwidth`` and ``channel_bandwidth`` those that take time.
    pacing
        Whether transfers wait for written edges.
    """

    bandwidth: Sequence[LinkClass]
    latency: Sequence[LinkClass]
    devices: Sequence[str]
    pacing: bool


@dataclass(frozen=True, eq=False)
class _Trial:
    kind: str
    what: str
    schedule: Schedule
    topology: Topology
    synchronous: bool
    cost: int


def experiments(
    result: Result, suspects: Suspects, budget: int = BUDGET, progress: Pulse = no_pulse
) -> tuple[tuple[Experiment, ...], dict[str, str]]:
    """Try what might help.

    Parameters
    ----------
    result
        What is to become faster.
    suspects
        What its time goes to.
    budget
        Transfers that may be simulated. Without the compiled engine one counts for `SLOW`, in ``fluid`` for `FLUID`.
    progress
        As in `collsim.simulate`.

    Returns
    -------
    experiments, untried
        What was tried, the greatest gain first; and what was not, with the reason.
    """
    untried: dict[str, str] = {}
    if budget <= 0 or not result.time_ps:
        return (), untried
    trials = [
        *_machines(result, suspects),
        *_ways(result, suspects, untried),
        *sorted(_algorithms(result, untried), key=lambda trial: (trial.cost, trial.what)),
    ]
    price = (1 if find_spec("numba") is not None else SLOW) * (FLUID if result.network == "fluid" else 1)
    chosen, left = [], budget
    for trial in trials:
        if trial.cost * price > left:
            untried[trial.what] = f"{trial.cost:,} transfers{OVER_BUDGET}"
        else:
            left -= trial.cost * price
            chosen.append(trial)
    found, done, total = [], 0, sum(trial.cost for trial in chosen)
    lab = _Lab(result, total)
    for trial in chosen:
        try:
            time_ps = lab.time_ps(trial)
        except CollsimError as error:
            untried[trial.what] = str(error)
        else:
            found.append(
                Experiment(
                    trial.kind, trial.what, trial.schedule, trial.topology, trial.synchronous, time_ps,
                    result.time_ps - time_ps,
                )
            )  # fmt: skip
        done += trial.cost
        progress(done, total)
    found.sort(key=lambda one: -one.saved_ps)  # of equals the one that was tried first
    return tuple(_proven(found, untried)), untried


def _proven(found: list[Experiment], untried: dict[str, str]) -> list[Experiment]:
    """Leave out other schedules that turn out to be wrong, as far as anybody would be told to use them."""
    while True:
        best = next((one for one in found if not one.on_the_machine), None)
        if best is None or best.saved_ps <= 0 or best.schedule.steps > MOST_STEPS:
            return found
        try:
            check(best.schedule)
        except CollsimError as error:
            untried[best.what] = str(error)
            found.remove(best)
        else:
            return found


class _Lab:
    """Runs schedules on machines as the result was run."""

    def __init__(self, result: Result, work: int) -> None:
        self.result = result
        compiled = isinstance(result.lowered, Loops) or work > FEW_TRANSFERS
        self.compiled = compiled and find_spec("numba") is not None

    def time_ps(self, trial: _Trial) -> int:
        """Return how long a trial takes."""
        result = self.result
        options: dict[str, Any] = {
            "element_size": result.element_size, "synchronous": trial.synchronous, "zero_copy": result.zero_copy
        }  # fmt: skip
        lowered = _lowered(self.compiled, trial.schedule, trial.topology, result.size, **options)
        return execute(trial.schedule, lowered, result.network, records=False)[2].makespan


def _lowered(compiled: bool, schedule: Schedule, topology: Topology, size: int, **options: Any) -> Program | Loops:
    if compiled:
        from collsim.engine.lowering.roll import roll

        return roll(schedule, topology, size, **options)
    return lower(schedule, topology, size, **options)


def _cost(result: Result) -> int:
    """Transfers that a run of the same schedule takes, without those that are skipped because a period came again."""
    return max(1, int((result.transfers - result.outcome.jumped) * _length(result.schedule, result.topology)))


def _work(schedule: Schedule, topology: Topology) -> int:
    """Return the transfers of a schedule, long ones counted for more."""
    return int(schedule.transfers * _length(schedule, topology))


def _length(schedule: Schedule, topology: Topology) -> float:
    """Return for how many a transfer counts: for 1, or more if it crosses more than a few links, as some rows do."""
    hops = rows = 0.0
    for phase in schedule.phases:
        block = phase.block
        some = np.unique(np.linspace(0, len(block) - 1, SAMPLED).astype(np.int64))
        some = some[np.maximum(block.src[some], block.dst[some]) < schedule.ranks]
        if not len(some):
            continue
        if block.via is None:
            links = int(topology.routes(block.src[some], block.dst[some], block.channel[some])[0][-1])
        else:
            links = sum(len(schedule.paths[path]) if path >= 0 else 1 for path in block.via[some].tolist())
        hops += links / len(some) * phase.transfers
        rows += phase.transfers
    return max(1.0, hops / max(1.0, rows) / FEW_LINKS)


def _machines(result: Result, suspects: Suspects) -> Iterator[_Trial]:
    """Yield the same schedule on better machines."""
    schedule, topology, cost = result.schedule, result.topology, _cost(result)

    def trial(kind: str, what: str, machine: Topology) -> _Trial:
        return _Trial(kind, what, schedule, machine, result.synchronous, cost)

    for group in suspects.bandwidth:
        what = f"twice the bandwidth ({format_bandwidth(2 * group.bandwidth)}) of {_links(group)}"
        yield trial("bandwidth", what, faster_links(topology, group.links, bandwidth=2))
    for kind, links in _kinds(result, suspects):
        what = f"twice the bandwidth of all {len(links):,} {kind} links"
        yield trial("bandwidth", what, faster_links(topology, links, bandwidth=2))
    for group in suspects.latency:
        what = f"half the latency ({format_time(group.latency // 2)}) of {_links(group)}"
        yield trial("latency", what, faster_links(topology, group.links, latency=2))
    for device in suspects.devices:
        kind, what = {
            "send_overhead": ("overhead", "no send overhead on any device"),
            "reduce_bandwidth": ("reduction", "twice the rate of reduction on all devices"),
            "channel_bandwidth": ("copy engines", "twice the rate of the copy engines of all devices"),
        }[device]
        yield trial(kind, what, faster_devices(topology, device))


def _kinds(result: Result, suspects: Suspects) -> Iterator[tuple[str, Any]]:
    """Yield kinds of which suspects are a part, with all links of the kind: one class of them may hide the next."""
    topology, used = result.topology, result.link_bytes > 0
    groups: dict[int, LinkClass] = {}
    for group in suspects.bandwidth:  # the largest of each kind
        code = int(topology.link_kind_codes[group.links[0]])
        groups[code] = max(groups.get(code, group), group, key=lambda one: len(one.links))
    for code, group in groups.items():
        of_kind = topology.link_kind_codes == code
        if topology.link_kind_names[code] and np.setdiff1d(np.flatnonzero(of_kind & used), group.links).size:
            yield topology.link_kind_names[code], np.flatnonzero(of_kind)


def _links(group: LinkClass) -> str:
    if len(group.links) == 1:
        return f"the link {group.name}"
    return f"the {len(group.links):,} links {group.name}"


def _ways(result: Result, suspects: Suspects, untried: dict[str, str]) -> Iterator[_Trial]:
    """Yield the same algorithm, run in another way or with other parameters."""
    schedule, topology, cost = result.schedule, result.topology, _cost(result)
    if result.synchronous:
        yield _Trial("barrier", "no barriers between steps", schedule, topology, False, cost)
    if suspects.pacing and schedule.edges:
        free = replace(schedule, edges=())
        yield _Trial("pacing", "no pacing (no written edges)", free, topology, result.synchronous, cost)
    for name, value, before in _parameters(result):
        what = f"{name}={_short(value)} instead of {_short(before)}"
        if value is None:
            what = f"no {name} given instead of {_short(before)}"
        elif name in FITTED:
            what = f"the machine's own {name} ({_short(value)}) instead of {_short(before)}"
        try:
            other = _rebuilt(result, name, value)
        except CollsimError as error:
            untried[what] = str(error)
        else:
            yield _Trial("parameter", what, other, topology, result.synchronous, _work(other, topology))


def _parameters(result: Result) -> Iterator[tuple[str, Any, Any]]:
    """Yield parameters with another value and the present one."""
    schedule = result.schedule
    try:
        function = algorithms.find(result.operation, schedule.algorithm)
        if _rebuilt(result) != schedule:
            return  # changed afterwards, or not by the algorithm that has this name
    except CollsimError:
        return
    known, given = inspect.signature(function).parameters, schedule.parameters
    own = fitted(function, result.topology, {})
    for name in given:
        if name in FITTED and given[name] != "given" and not _same(given[name], own.get(name)):
            yield name, own.get(name), given[name]
    for name in ("channels", "slices"):
        value = given.get(name)
        if isinstance(value, int) and value > 0:
            yield name, 2 * value, value
            if value > 1:
                yield name, value // 2, value
    if "window" in known:
        value = given.get("window")
        if isinstance(value, int) and value > 0:
            yield "window", 2 * value, value
        elif value is None:
            yield "window", 1, None


def _same(a: Any, b: Any) -> bool:
    """Whether two values are equal, tuples and lists alike."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


def _rebuilt(result: Result, changed: str | None = None, value: Any = None) -> Schedule:
    """Build the schedule of a result once more, with another value of a parameter."""
    schedule = result.schedule
    given = {name: old for name, old in schedule.parameters.items() if name != changed and old != "given"}
    if changed is not None and value is not None:
        given[changed] = value
    return schedule_for(result.operation, schedule.algorithm, result.topology, schedule.collective.root, given)


def _short(value: Any) -> str:
    """Write a value as ``-p`` takes it, cut where it is long."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value[:8])) + (",..." if len(value) > 8 else "")
    return "none" if value is None else str(value)


def _algorithms(result: Result, untried: dict[str, str]) -> Iterator[_Trial]:
    """Yield the other algorithms that fit the machine."""
    own, topology = result.schedule, result.topology
    if float(result.bound) >= result.time * (1 - MATTERS):
        untried[OTHERS] = f"none can be faster by more than {100 * MATTERS:g} %, for that is all that the bound leaves"
        return
    names = [name for name in algorithms.available().get(result.operation, []) if name != own.algorithm]
    if names and topology.n_ranks > MOST_RANKS:
        untried[OTHERS] = f"they are tried up to {MOST_RANKS} ranks"
        return
    for name in names:
        what = f"{name} instead of {own.algorithm or 'this schedule'}"
        maker = algorithms.find(result.operation, name)
        if topology.n_ranks > MOST_SEARCHED and SEARCHES & set(inspect.signature(maker).parameters):
            untried[what] = f"it searches the machine, which is tried up to {MOST_SEARCHED} ranks"
            continue
        try:
            schedule = schedule_for(result.operation, name, topology, own.collective.root, {})
        except (CollsimError, TypeError, ValueError, ArithmeticError) as error:  # of a user's own, perhaps
            untried[what] = str(error)
        else:
            yield _Trial("algorithm", what, schedule, topology, result.synchronous, _work(schedule, topology))
