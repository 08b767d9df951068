"""What a report is about: the results of some algorithms at some sizes, and which of them is looked at closely."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from collsim.engine.compare import Comparison
from collsim.engine.result import Result
from collsim.engine.simulate import execute
from collsim.errors import InputError, shown
from collsim.units import format_size

if TYPE_CHECKING:
    from collsim.topology import Topology

__all__ = ["Results", "Runs", "runs_of"]

MOST_RECORDED = 1_000_000
"""Transfers of all sizes together whose times are kept for pictures."""

Results = Comparison | Result | Iterable[Result] | Mapping[str, Any]
"""What a report can be made of."""


@dataclass(frozen=True, eq=False)
class Runs:
    """What a report is about.

    Attributes
    ----------
    operation, topology, network
        What was simulated, and on what.
    sizes
        Sizes in bytes, ascending.
    results
        By algorithm, by size.
    unfit
        Algorithms that cannot run here, with the reason.
    name
        The algorithm that is looked at closely: the fastest at the largest size.
    detailed
        Its results by size, with the times of transfers where these are not too many.
    """

    operation: str
    topology: Topology
    network: str
    sizes: tuple[int, ...]
    results: Mapping[str, Mapping[int, Result]]
    unfit: Mapping[str, str]
    name: str
    detailed: Mapping[int, Result]

    @property
    def largest(self) -> Result:
        """The result that is looked at closely: the largest size."""
        return self.detailed[max(self.detailed)]

    @property
    def smallest(self) -> Result:
        """The same algorithm at its smallest size."""
        return self.detailed[min(self.detailed)]

    def ranking(self, size: int) -> list[tuple[str, Result]]:
        """Return the algorithms at a size, the fastest first, equal ones by name."""
        found = [(name, by_size[size]) for name, by_size in self.results.items() if size in by_size]
        return sorted(found, key=lambda item: (item[1].time_ps, item[0]))


def runs_of(given: Results) -> Runs:
    """Return what a report is about.

    Parameters
    ----------
    given
        A comparison; a result; several results, told apart by their algorithm; or names and the results of each.

    Raises
    ------
    InputError
        If there are none, or something else, or they are not of one operation, machine and network.

    Examples
    --------
    >>> import collsim
    >>> topology = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    >>> found = runs_of([collsim.run("all_reduce", topology, size) for size in ("1MiB", "1KiB")])
    >>> found.name, found.sizes, found.largest.has_records
    ('ring', (1024, 1048576), True)
    """
    unfit: Mapping[str, str] = {}
    if isinstance(given, Comparison):
        unfit = given.unfit
        given = {name: by_size.values() for name, by_size in given.results.items() if by_size}
    by_name = {name: _by_size(name, some) for name, some in _named(given).items()}
    every = [result for by_size in by_name.values() for result in by_size.values()]
    if not every:
        raise InputError("report: expected at least one result, got none")
    first = every[0]
    for what, values in (
        ("operation", [result.operation for result in every]),
        ("topology", [result.topology.name for result in every]),
        ("network", [result.network for result in every]),
        ("root", [result.schedule.collective.root for result in every]),
    ):
        if len(set(values)) > 1:
            raise InputError(
                f"report: expected results of one {what}, got {', '.join(map(shown, dict.fromkeys(values)))}"
            )
    if any(result.topology is not first.topology for result in every[1:]) and _differ(every):
        raise InputError(
            f"report: expected results of one topology, got several that are called {first.topology.name!r}"
        )
    sizes = tuple(sorted({result.size for result in every}))
    name = min(
        (result.time_ps, list(by_name).index(name), name)
        for name, by_size in by_name.items()
        if (result := by_size.get(sizes[-1])) is not None
    )[2]
    return Runs(first.operation, first.topology, first.network, sizes, by_name, unfit, name, _recorded(by_name[name]))


def _differ(results: list[Result]) -> bool:
    machines = [result.topology for result in results]
    return (
        len({(m.n_nodes, m.n_ranks, m.n_links, m.link_bandwidth.tobytes(), m.link_latency.tobytes()) for m in machines})
        > 1
    )


def _named(given: Any) -> dict[str, list[Any]]:
    """Return the results of each name."""
    if isinstance(given, Result):
        given = [given]
    if isinstance(given, Mapping):
        listed = {}
        for name, some in given.items():
            some = some.values() if isinstance(some, Mapping) else some
            listed[str(name)] = [some] if isinstance(some, Result) or not isinstance(some, Iterable) else list(some)
    else:
        listed = {}
        for result in given if isinstance(given, Iterable) and not isinstance(given, (str, bytes)) else [given]:
            name = result.schedule.algorithm if isinstance(result, Result) else ""
            listed.setdefault(name or "schedule", []).append(result)
    return {name: some for name, some in listed.items() if some}


def _by_size(name: str, results: list[Any]) -> dict[int, Result]:
    """Return the results of a name by ascending size."""
    found: dict[int, Result] = {}
    for result in results:
        if not isinstance(result, Result):
            raise InputError(f"report: expected results, got {type(result).__name__}")
        if result.size in found:
            raise InputError(
                f"report: {name}: expected one result of each size, got two of {format_size(result.size)}; "
                "give a mapping of names to results"
            )
        found[result.size] = result
    return dict(sorted(found.items()))


def _recorded(by_size: Mapping[int, Result]) -> dict[int, Result]:
    """Run again what has no records; where they are too many, only the largest size and some others, evenly chosen."""
    sizes = sorted(by_size)
    fits = min(len(sizes), MOST_RECORDED // max(1, *(result.transfers for result in by_size.values())))
    chosen = {sizes[-1]} if fits == 1 else {sizes[round(i * (len(sizes) - 1) / (fits - 1))] for i in range(fits)}
    found = dict(by_size)
    for size in chosen:
        result = by_size[size]
        if not result.has_records:
            lowered, engine, outcome = execute(result.schedule, result.lowered, result.network, records=True)
            found[size] = replace(result, lowered=lowered, engine=engine, outcome=outcome)
    return found
