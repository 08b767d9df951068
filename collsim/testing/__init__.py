"""The test battery of collsim's own algorithms, for yours: one call in a test, or ``collsim check``.

For each number of ranks and root the battery proves the schedule, executes it on arrays and compares with NumPy, in and
out of place and for sizes that the ranks do not divide, and sees to it that no rank sends or receives less than any
algorithm must, that the text form reads back, that the function makes the same schedule twice, that it runs the same
way twice, and that no simulated time beats the lower bound of a few small machines, or of yours.

In a test of yours it is one line::

    def test_my_ring():
        check_algorithm(my_ring, ranks=range(2, 18), topologies=["ring8", "dgx-h100"])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from collsim.engine.fit import fitted
from collsim.engine.program import NETWORKS
from collsim.engine.simulate import simulate
from collsim.errors import AlgorithmError, DeadlockError, InputError, ProofError, ScheduleError
from collsim.schedule import Schedule
from collsim.schedule.check import check
from collsim.schedule.compare import wrong_elements
from collsim.testing.asked import machines, missing, numbers, roots_of, with_order
from collsim.testing.cases import Case, Report, Timing
from collsim.testing.sanity import least_share, refuse_apart, refuse_too_fast, refuse_too_little
from collsim.topology import Topology, bidirectional_ring, fully_connected, load_topology, switch

__all__ = ["Case", "Report", "Timing", "check_algorithm", "check_ranks", "check_topology", "wrong_elements"]

Maker = Callable[..., Schedule]

TOO_MUCH = 2 - 1e-9
"""From this many times the least that a rank must send the battery says so."""
MOST_MOVES = 50_000
"""Schedules of more transfers are proven, but not executed on data, timed or written as text: it would take minutes."""


def check_algorithm(
    function: Maker,
    *,
    ranks: Iterable[int] = range(1, 18),
    roots: Sequence[int] | None = None,
    elements: Sequence[int] | None = None,
    topologies: Topology | str | Iterable[Topology | str] = (),
) -> Report:
    """Put a function that returns schedules through the whole battery.

    Parameters
    ----------
    function
        Called as ``function(n)``, or ``function(n, root=r)`` if it has a parameter ``root``. It may refuse a number of
        ranks by raising `AlgorithmError`. Where it has other parameters without a default all numbers of ranks count as
        refused, and machines that do not have them.
    ranks
        Numbers of ranks to try.
    roots
        Roots to try (those below the number of ranks); every root up to 9 ranks, some above, if not given, and on
        machines the first, the middle and the last one.
    elements
        Numbers of elements to execute on; by default 0, 1, and numbers below, at and above the number of ranks.
    topologies
        A machine to time it on as well, its name, or several, each with the ranks that it has. What the function takes
        from a machine (see `collsim.engine.fit`) is filled in. Where Numba is installed the compiled engine must give
        the times of the reference engine for each transfer.

    Returns
    -------
    Report
        A line for each number of ranks and for each machine.

    Raises
    ------
    ProofError
        Naming N (and the root) of the first schedule that is wrong, and what is wrong with it.
    AlgorithmError
        If the function does not return schedules of N ranks, or refuses every N and every machine.
    InputError
        If what is to be tried cannot be: ranks or roots that are no numbers, no root below some N.

    Examples
    --------
    >>> from collsim import Collective, ScheduleBuilder
    >>> def star_broadcast(ranks, root=0):
    ...     b = ScheduleBuilder(Collective("broadcast", ranks, root), chunks=1)
    ...     b.copy(root, [rank for rank in range(ranks) if rank != root], 0)
    ...     return b.build()
    >>> print(check_algorithm(star_broadcast, ranks=[2, 3]))
    star_broadcast
      N=2     ok            1 chunks       1 steps         1 transfers, a rank sends at most 1 S, 2 roots
      N=3     ok            1 chunks       1 steps         2 transfers, a rank sends at most 2 S (2 times what
      any algorithm must), 3 roots

    >>> def forgets_the_last(ranks, root=0):
    ...     b = ScheduleBuilder(Collective("broadcast", ranks, root), chunks=1)
    ...     b.copy(root, [rank for rank in range(ranks - 1) if rank != root], 0)
    ...     return b.build()
    >>> check_algorithm(forgets_the_last, roots=[0])
    Traceback (most recent call last):
    collsim.errors.ProofError: N=2, root 0: rank 1, chunk 0: ...
    """
    name = getattr(function, "__name__", repr(function))
    todo, named = numbers("ranks", ranks, 1), machines(topologies)
    cases = tuple(check_ranks(function, n, roots=roots, elements=elements) for n in todo)
    timings = tuple(check_topology(function, machine, roots=roots, elements=elements) for machine in named)
    tried = (*cases, *(timing.case for timing in timings))
    if not tried:
        raise InputError("ranks: expected at least one number of ranks, got none")
    if all(case.refused is not None for case in tried):
        raise AlgorithmError(f"{name}: refuses every number of ranks; N={tried[0].ranks}: {tried[0].refused}")
    return Report(name, cases, timings)


def check_ranks(
    function: Maker, ranks: int, *, roots: Sequence[int] | None = None, elements: Sequence[int] | None = None
) -> Case:
    """Put one number of ranks through the battery; parameters and errors as in `check_algorithm`.

    Returns
    -------
    Case
        With the reason in ``refused`` if the function raised `AlgorithmError`.
    """
    (ranks,) = numbers("ranks", [ranks], 1)
    elements = None if elements is None else numbers("elements", elements, 0)
    tried = roots_of(function, ranks, roots, few=False)
    notes: dict[str, None] = {}
    volume: float | None = None
    for root in tried or (0,):
        where = f"N={ranks}" + (f", root {root}" if tried else "")
        arguments = with_order(function, ranks, {"root": root} if tried else {})
        if (why := missing(function, arguments)) is not None:
            return Case(ranks, tried, refused=why)
        try:
            schedule = _made(function, ranks, arguments, where)
        except _Refused as refusal:
            return Case(ranks, tried, refused=str(refusal))
        with _told(where):
            notes |= dict.fromkeys(_right(schedule, function(ranks, **arguments), elements))
            # the machines know nothing of roots: the first and the last one will do
            if root in (*tried[:1], *tried[-1:], 0):
                sent, left_out = _on_machines(schedule)
                volume = volume if sent is None else max(sent, volume or 0.0)
                notes |= dict.fromkeys(left_out)
    least = least_share(schedule.collective)
    excess = volume / least if volume is not None and least and volume >= TOO_MUCH * least else None
    found = (schedule.chunks, schedule.steps, schedule.transfers)
    return Case(ranks, tried, *found, volume, tuple(notes), excess=excess)


def check_topology(
    function: Maker,
    topology: Topology | str,
    *,
    roots: Sequence[int] | None = None,
    elements: Sequence[int] | None = None,
) -> Timing:
    """Put a function through the battery on one machine; parameters and errors as in `check_algorithm`.

    Examples
    --------
    >>> from collsim.algorithms import ring_all_gather
    >>> print(check_topology(ring_all_gather, "ring8"))  # doctest: +ELLIPSIS
    ring8: ok  99.87 % of the bound at 512B, 76.33 % of the bound at 1MiB, 99.97 % of the bound at 1GiB...
    """
    (named,) = machines([topology])
    machine = load_topology(named) if isinstance(named, str) else named
    n = machine.n_ranks
    elements = None if elements is None else numbers("elements", elements, 0)
    tried = roots_of(function, n, roots, few=True)
    efficiency: dict[int, float] = {}
    engines = ("reference", "compiled") if find_spec("numba") is not None else ("reference",)
    notes: dict[str, None] = {}
    for root in tried or (0,):
        where = machine.name + (f", root {root}" if tried else "")
        try:
            arguments = with_order(function, n, fitted(function, machine, {"root": root} if tried else {}))
            if (why := missing(function, arguments)) is not None:
                return Timing(machine.name, Case(n, tried, refused=why), {})
            schedule = _made(function, n, arguments, where)
        except _Misfit:
            raise
        except AlgorithmError as refusal:
            return Timing(machine.name, Case(n, tried, refused=str(refusal)), {})
        with _told(where):
            notes |= _right(schedule, function(n, **arguments), elements)
            if schedule.transfers > MOST_MOVES:
                engines = engines[-1:]
            for size, part in _timed(schedule, machine, engines).items():
                efficiency[size] = min(part, efficiency.get(size, part))
    case = Case(n, tried, schedule.chunks, schedule.steps, schedule.transfers, None, tuple(notes))
    return Timing(machine.name, case, efficiency, engines)


def _timed(schedule: Schedule, machine: Topology, engines: tuple[str, ...]) -> dict[int, float]:
    """Run a schedule on a machine, on all engines; return the efficiency of each size."""
    efficiency = {}
    for size in _sizes(schedule):
        result = simulate(schedule, machine, size, check=False)
        refuse_too_fast(result)
        efficiency[size] = result.efficiency
    for network in NETWORKS:
        size = _sizes(schedule)[0]
        runs = [simulate(schedule, machine, size, network=network, engine=one, check=False) for one in engines]
        refuse_too_fast(runs[0])
        if len(runs) > 1:
            refuse_apart(runs[0], runs[1], f"the engines differ in {network}")
    return efficiency


class _Misfit(AlgorithmError):
    """What the function returns is no schedule for the call."""


class _Refused(AlgorithmError):
    """The function refuses what it was given."""


def _made(function: Maker, ranks: int, arguments: dict[str, Any], where: str) -> Schedule:
    name = getattr(function, "__name__", repr(function))
    try:
        schedule = function(ranks, **arguments)
    except AlgorithmError as refusal:
        raise _Refused(str(refusal)) from refusal
    except ScheduleError as error:
        raise ProofError(f"{where}: {error}") from error
    if not isinstance(schedule, Schedule):
        raise _Misfit(f"{name}: expected it to return a Schedule, got {type(schedule).__name__}")
    got = (schedule.ranks, schedule.collective.root if "root" in arguments else 0)
    if got != (ranks, root := arguments.get("root", 0)):
        raise _Misfit(f"{name}: expected a schedule of {ranks} ranks, root {root}, got {got[0]}, root {got[1]}")
    return schedule


@contextmanager
def _told(where: str) -> Iterator[None]:
    try:
        yield
    except ProofError as error:
        raise ProofError(f"{where}: {error}", rank=error.rank, chunk=error.chunk, step=error.step) from error
    except (ScheduleError, DeadlockError) as error:
        raise ProofError(f"{where}: {error}") from error


def _right(schedule: Schedule, again: Schedule, elements: Sequence[int] | None) -> dict[str, None]:
    """Prove a schedule, compare it with the one of another call and with NumPy; return what there is to say."""
    proof = check(schedule)
    sampled = () if proof.complete else (f"{proof.checked:,} of {proof.chunks:,} chunks were proven",)
    _same_again(schedule, again)
    return dict.fromkeys((*sampled, *proof.unused, *proof.warnings, *_on_data(schedule, elements)))


def _same_again(schedule: Schedule, again: Schedule) -> None:
    if again != schedule:
        raise ProofError("the function makes another schedule when it is called again; expected the same one")
    rows = sum(len(phase.block) for phase in schedule.phases)
    if rows <= MOST_MOVES and Schedule.from_text(str(schedule)) != schedule:
        raise ProofError("the text form does not read back as the same schedule")


def _on_data(schedule: Schedule, elements: Sequence[int] | None) -> tuple[str, ...]:
    """Compare with NumPy; return what was left out."""
    c = schedule.collective
    if schedule.transfers > MOST_MOVES:
        return (f"{schedule.transfers:,} transfers are too many to execute on data",)
    n = c.ranks
    numbers: Sequence[int] = sorted({0, 1, n - 1, n, 4 * n + 1}) if elements is None else elements
    if schedule.layout is not None and elements is None:
        numbers = [sum(count * size for count, size in schedule.layout)]
    if c.operation == "all_to_all":
        numbers = sorted({number - number % n for number in numbers})
    uneven = False
    for number in (*numbers, *([schedule.chunks] if elements is None and schedule.layout is None else [])):
        for in_place in (False, True):
            try:
                wrong = wrong_elements(schedule, number, in_place=in_place)
            except ScheduleError:
                # data that moves between chunks needs chunks of one size; a multiple of them is always tried
                if elements is not None or number % schedule.chunks == 0:
                    raise
                uneven = True
                continue
            if wrong:
                how = "in place" if in_place else "out of place"
                raise ProofError(f"{wrong:,} of the results on {number:,} elements are wrong, executed {how}")
    return (f"takes only sizes that its {schedule.chunks:,} chunks divide",) if uneven else ()


def _on_machines(schedule: Schedule) -> tuple[float | None, tuple[str, ...]]:
    """Time a schedule on small machines; return the most that a rank sends over the size, and what was left out."""
    if schedule.places or schedule.paths:
        return None, ("it names nodes of a machine, so it was not timed on others",)
    if schedule.transfers > MOST_MOVES:
        return None, ()
    size = _sizes(schedule)[0]
    volume = 0.0
    for make in (fully_connected, switch, bidirectional_ring):
        machine = make(schedule.ranks, bandwidth="10GB/s", latency="1us")
        first = simulate(schedule, machine, size, check=False)
        refuse_too_little(first)
        refuse_too_fast(first)
        refuse_apart(first, simulate(schedule, machine, size, check=False), f"two runs on {machine.name!r} differ")
        volume = first.bytes_sent_per_rank.max(initial=0) / size if size else 0.0
    return float(volume), ()


def _sizes(schedule: Schedule) -> list[int]:
    """Sizes in bytes that the chunks divide."""
    if schedule.layout is not None:
        return [sum(count * elements for count, elements in schedule.layout)]
    return [-(-size // schedule.chunks) * schedule.chunks for size in (64 * schedule.chunks, 1 << 20, 1 << 30)]
