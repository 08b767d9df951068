"""`compare` times all algorithms that fit a machine, over a range of sizes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from collsim import algorithms as room
from collsim.collective import OPERATIONS, Collective
from collsim.engine.fit import fitted
from collsim.engine.loops import Loops
from collsim.engine.lowering.lower import lower
from collsim.engine.lowering.stations import INT64_MAX, serialisation
from collsim.engine.outcome import Pulse, no_pulse
from collsim.engine.program import NETWORKS, SENDER, Array, Program
from collsim.engine.result import Result, frame
from collsim.engine.simulate import DTYPES, execute, refuse_large
from collsim.errors import AlgorithmError, InputError, ProofError, ScheduleError, TopologyError, one_of
from collsim.schedule import Schedule
from collsim.schedule.check import Proof, check
from collsim.topology import Topology
from collsim.units import Quantity, format_size, parse_size

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ALIKE", "Comparison", "compare", "resize"]

check_room = check
Maker = Callable[..., Schedule]

ALIKE = 1e-4
"""Times that differ by less than this part count as equal: chunks that are rounded otherwise make some picoseconds."""
FEW_TRANSFERS = 50_000
"""Up to so many over all algorithms and sizes, the reference engine has finished before the compiled one is loaded."""
FEW_TIMES = 2**12
"""A table of so many times is made anew."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare` found.

    Attributes
    ----------
    operation, topology, network
        What was compared, and on what.
    sizes
        Sizes in bytes, ascending.
    results
        By algorithm, by size. The results hold no records of single transfers.
    unfit
        Algorithms that cannot run here, or not at some of the sizes, with the reason.

    Examples
    --------
    >>> import collsim
    >>> topo = collsim.topology.switch(8, bandwidth="50GB/s", latency="1us")
    >>> found = collsim.compare("all_reduce", topo, ["1KiB", "1GiB"], algorithms=["ring", "tree", "binomial_tree"])
    >>> found
    <Comparison of all_reduce on 'switch': 3 algorithms at 2 sizes>
    >>> [name for name, result in found.ranking("1GiB")]
    ['ring', 'tree', 'binomial_tree']
    >>> found.crossovers()
    [(1024, 1024, 'tree'), (1073741824, 1073741824, 'ring')]
    """

    operation: str
    topology: Topology
    network: str
    sizes: tuple[int, ...]
    results: Mapping[str, Mapping[int, Result]]
    unfit: Mapping[str, str]

    def ranking(self, size: Quantity) -> list[tuple[str, Result]]:
        """Return the algorithms and their results at a size, the fastest first, equal ones by name.

        Raises
        ------
        InputError
            If this size was not compared.
        """
        number = parse_size(size)
        if number not in self.sizes:
            known = ", ".join(map(format_size, self.sizes))
            raise InputError(f"size: expected one of those that were compared, {known}, got {size!r}")
        found = [(name, by_size[number]) for name, by_size in self.results.items() if number in by_size]
        return sorted(found, key=lambda item: (item[1].time_ps, item[0]))

    def best(self, size: Quantity, within: float = ALIKE) -> list[str]:
        """Return the fastest algorithm at a size, and those that take at most a part ``within`` longer."""
        ranking = self.ranking(size)
        return [name for name, result in ranking if result.time_ps <= ranking[0][1].time_ps * (1 + within)]

    def crossovers(self, within: float = ALIKE) -> list[tuple[int, int, str]]:
        """Return which algorithm is the fastest from which size to which: (first size, last size, algorithm).

        Where several are equally fast, up to a part ``within``, it is the one that stays so the longest, so that there
        are as few as possible.
        """
        best = [(size, names) for size in self.sizes if (names := self.best(size, within))]
        found = []
        while best:
            lasting = {name: _lead(name, best) for name in best[0][1]}
            name = max(lasting, key=lambda name: lasting[name])
            found.append((best[0][0], best[lasting[name] - 1][0], name))
            best = best[lasting[name] :]
        return found

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame with a row for each size and algorithm, the fastest first; times in seconds.

        Raises
        ------
        CollsimError
            If pandas is not installed.
        """
        rows = [
            {
                "size": size, "algorithm": name, "time": r.time, "bound": float(r.bound), "efficiency": r.efficiency,
                "algbw": r.algbw, "busbw": r.busbw, "theory": None if r.theory is None else float(r.theory),
                "transfers": r.transfers,
            }
            for size in self.sizes
            for name, r in self.ranking(size)
        ]  # fmt: skip
        return frame(rows)

    def __repr__(self) -> str:
        unfit = f", {len(self.unfit)} unfit" if self.unfit else ""
        return (
            f"<Comparison of {self.operation} on {self.topology.name!r}: {len(self.results)} "
            f"algorithm{'s' * (len(self.results) != 1)} at {len(self.sizes)} size{'s' * (len(self.sizes) != 1)}{unfit}>"
        )


def _lead(name: str, best: list[tuple[int, list[str]]]) -> int:
    """Return at how many sizes, from the first on, an algorithm is among the best."""
    return next((i for i, (_, names) in enumerate(best) if name not in names), len(best))


def compare(
    operation: str,
    topology: Topology,
    sizes: Quantity | Iterable[Quantity],
    *,
    algorithms: Iterable[str | Maker] | Mapping[str, Maker] | None = None,
    network: str = "cut_through",
    dtype: str = "uint8",
    root: int = 0,
    check: bool = True,
    progress: Pulse = no_pulse,
    stage: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Time all algorithms of an operation that fit a machine.

    Each schedule is built and proven once, and then timed for each size.

    Parameters
    ----------
    operation, topology, network, dtype, root, progress
        As in `collsim.run`.
    sizes
        Message sizes.
    algorithms
        Names, or functions that return schedules (a mapping names them otherwise than they are called); all that
        collsim knows for the operation if not given. Parameters that depend on the machine are filled in, the others
        keep their defaults: for others give a function, such as
        ``{"tree of 8": partial(collsim.algorithms.tree_all_reduce, slices=8)}``.
    check
        Prove the schedules first.
    stage
        Called before each schedule is built, with a text that says which, and with an empty one after the last.

    Returns
    -------
    Comparison
        Algorithms that refuse the machine or that are too large for this computer are listed in it with the reason.

    Raises
    ------
    ProofError
        Naming the algorithm whose schedule does not implement the operation.
    AlgorithmError
        If there is no such algorithm, or a function returns something else than a schedule of this operation.
    InputError
        If the operation, the network, the type, the root or a size is not possible.
    """
    one_of("operation", operation, OPERATIONS)
    if not isinstance(topology, Topology):
        raise InputError(f"topology: expected a Topology (see load_topology), got {type(topology).__name__}")
    one_of("network", network, NETWORKS)
    one_of("dtype", dtype, DTYPES)
    given = [sizes] if isinstance(sizes, str) or not isinstance(sizes, Iterable) else sizes
    todo = sorted({parse_size(size) for size in given})
    if not todo:
        raise InputError("sizes: expected at least one, got none")
    collective = Collective(operation, topology.n_ranks, root)
    makers = _makers(operation, algorithms)
    unfit: dict[str, str] = {}
    schedules: dict[str, tuple[Schedule, Proof | None]] = {}
    compiled = find_spec("numba") is not None
    for number, (name, maker) in enumerate(makers.items(), start=1):
        stage(f"{number} of {len(makers)}: {name}, building" + " and proving" * check)
        try:
            schedule = _build(name, maker, collective, topology)
            refuse_large(schedule, "compiled" if compiled else "reference")
        except _Misfit as error:
            raise AlgorithmError(str(error)) from error
        except (AlgorithmError, InputError, TopologyError) as error:
            unfit[name] = str(error)
            continue
        schedules[name] = schedule, _proven(name, schedule) if check else None
    stage("")
    work = sum(schedule.transfers for schedule, _ in schedules.values()) * len(todo)
    compiled = compiled and work > FEW_TRANSFERS
    results: dict[str, dict[int, Result]] = {}
    done = 0
    for name, (schedule, proof) in schedules.items():
        lowering = _Lowering(schedule, topology, DTYPES[dtype], compiled)
        refused: dict[int, str] = {}
        for size in todo:
            try:
                lowered, engine, outcome = execute(
                    schedule, lowering.at(size), network, records=False, progress=_part(progress, done, work)
                )
            except (InputError, ScheduleError, TopologyError) as error:
                refused[size] = str(error)
            else:
                outcome = replace(outcome, times=None)
                results.setdefault(name, {})[size] = Result(
                    schedule, topology, size, DTYPES[dtype], network, engine, False, False, lowered, outcome, proof
                )
            done += schedule.transfers
            progress(done, work)
        if refused:
            unfit[name] = _reason(refused, name in results)
    return Comparison(operation, topology, network, tuple(todo), results, unfit)


class _Misfit(AlgorithmError):
    """Not a refusal: the function is not one for this comparison."""


def _makers(operation: str, chosen: Iterable[str | Maker] | Mapping[str, Maker] | None) -> dict[str, Maker]:
    if isinstance(chosen, str):
        chosen = [chosen]
    if isinstance(chosen, Mapping):
        return dict(chosen)
    makers: dict[str, Maker] = {}
    for item in room.available().get(operation, []) if chosen is None else chosen:
        maker = room.find(operation, item) if isinstance(item, str) else item
        name = item if isinstance(item, str) else getattr(item, "__name__", None)
        if not callable(maker) or name is None:
            raise InputError(f"algorithms: expected names or functions that have one, got {item!r}")
        if makers.get(name, maker) is not maker:
            raise InputError(f"algorithms: two are called {name!r}; expected a mapping of other names to them")
        makers[name] = maker
    if not makers:
        room.find(operation, "ring")  # says which operations have algorithms
    return makers


def _build(name: str, maker: Maker, collective: Collective, topology: Topology) -> Schedule:
    parameters = fitted(maker, topology, {})
    if collective.is_rooted and "root" in inspect.signature(maker).parameters:
        parameters["root"] = collective.root
    schedule = maker(collective.ranks, **parameters)
    if not isinstance(schedule, Schedule):
        raise _Misfit(f"{name}: expected it to return a Schedule, got {type(schedule).__name__}")
    if schedule.collective != collective:
        raise _Misfit(f"{name}: expected a schedule of {_words(collective)}, got one of {_words(schedule.collective)}")
    return schedule


def _words(c: Collective) -> str:
    return f"{c.operation} on {c.ranks} ranks" + (f" from root {c.root}" if c.is_rooted else "")


def _proven(name: str, schedule: Schedule) -> Proof:
    try:
        return check_room(schedule)
    except ProofError as error:
        raise ProofError(f"{name}: {error}", rank=error.rank, chunk=error.chunk, step=error.step) from error
    except ScheduleError as error:
        raise ScheduleError(f"{name}: {error}") from error


def _part(progress: Pulse, before: int, total: int) -> Pulse:
    return lambda done, _: progress(before + done, total)


def _reason(refused: dict[int, str], is_partly: bool) -> str:
    first, reason = next(iter(refused.items()))
    if not is_partly:
        return reason
    more = f" and {len(refused) - 1} more size{'s' * (len(refused) > 2)}" if len(refused) > 1 else ""
    return f"at {format_size(first)}{more}: {reason}"


class _Lowering:
    """Lowers a schedule for one size after the other; what does not depend on the size is found once."""

    def __init__(self, schedule: Schedule, topology: Topology, element_size: int, compiled: bool) -> None:
        self.schedule, self.topology, self.element_size, self.compiled = schedule, topology, element_size, compiled
        self.known: tuple[Loops, int] | None = None

    def at(self, size: int) -> Program | Loops:
        """Return the program for a size."""
        schedule, topology, element_size = self.schedule, self.topology, self.element_size
        if not self.compiled:
            return lower(schedule, topology, size, element_size=element_size)
        from collsim.engine.lowering.roll import roll

        elements, rest = divmod(size // element_size, schedule.chunks)
        equal = elements > 0 and not rest and schedule.layout is None
        loops = resize(*self.known, elements * element_size) if equal and self.known is not None else None
        if loops is None:
            loops = roll(schedule, topology, size, element_size=element_size)
            if equal:
                self.known = loops, elements * element_size
        return loops


def resize(loops: Loops, before: int, after: int) -> Loops | None:
    """Return a program of equal chunks with chunks of another size; None where it has to be lowered anew.

    Parameters
    ----------
    loops
        The program.
    before, after
        Bytes of each of its chunks, and those that they shall have.
    """
    if loops.busy.size > FEW_TIMES:
        return None
    stations = loops.route_station
    timed = loops.station_kind[stations] != SENDER  # a sender takes as long for any size
    rates: Array = np.zeros(loops.busy.shape[1], dtype=np.int64)
    rates[loops.route_rate[timed]] = loops.station_bandwidth[stations[timed]]
    class_bytes = [number // before * after for number in loops.class_bytes.tolist()]
    busy = loops.busy.copy()
    for j, rate in enumerate(rates.tolist()):
        if rate:
            column = [serialisation(number, rate) for number in class_bytes]
            if max(column, default=0) > INT64_MAX:
                return None
            busy[:, j] = column
    return replace(loops, class_bytes=np.array(class_bytes, dtype=np.int64), busy=busy)
