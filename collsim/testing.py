"""The test battery of collsim's own algorithms, for yours: one call in a test, or ``collsim check``.

For each number of ranks and root the battery proves the schedule, executes it on arrays and compares with NumPy, in and
out of place and for sizes that the ranks do not divide, and sees to it that no rank sends or receives less than any
algorithm must, that the text form reads back, that the function makes the same schedule twice, that it runs the same
way twice, and that no simulated time beats the lower bound of a few small machines.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from collsim.collective import Collective
from collsim.engine.result import Result
from collsim.engine.simulate import simulate
from collsim.errors import AlgorithmError, DeadlockError, InputError, ProofError, ScheduleError
from collsim.schedule import Schedule
from collsim.schedule.check import check
from collsim.schedule.compare import wrong_elements
from collsim.topology import bidirectional_ring, fully_connected, switch

__all__ = ["Case", "Report", "check_algorithm", "check_ranks", "wrong_elements"]

Maker = Callable[..., Schedule]

ALL_ROOTS = 9
"""Up to this many ranks every root is tried, above the first two, the middle one and the last."""
MOST_MOVES = 50_000
"""Schedules of more transfers are proven, but not executed on data, timed or written as text: it would take minutes."""


@dataclass(frozen=True)
class Case:
    """What was found for one number of ranks.

    Attributes
    ----------
    ranks
        The number of ranks.
    roots
        Roots that were tried; empty where the function takes none.
    chunks, steps, transfers
        Of the schedule (that of the last root).
    volume
        Most bytes that a rank sends, over the size; None where it was not simulated.
    notes
        What was left out and why, and what the proof has to say beyond "it holds".
    refused
        Why the function refuses this number of ranks; None if it takes it.

    Examples
    --------
    >>> from collsim.algorithms import ring_all_reduce
    >>> print(check_ranks(ring_all_reduce, 8))
    N=8     ok            8 chunks      14 steps       112 transfers, a rank sends at most 1.75 S
    """

    ranks: int
    roots: tuple[int, ...] = ()
    chunks: int = 0
    steps: int = 0
    transfers: int = 0
    volume: float | None = None
    notes: tuple[str, ...] = ()
    refused: str | None = None

    def __str__(self) -> str:
        if self.refused is not None:
            return f"N={self.ranks:<5} refused  {self.refused}"
        text = f"N={self.ranks:<5} ok       {self.chunks:>6,} chunks  {self.steps:>6,} steps "
        text += f"{self.transfers:>9,} transfers"
        text += "" if self.volume is None else f", a rank sends at most {self.volume:.4g} S"
        text += f", {len(self.roots)} root{'s' * (len(self.roots) > 1)}" if self.roots else ""
        return "; ".join([text, *self.notes])


@dataclass(frozen=True)
class Report:
    """What `check_algorithm` found; its text has a line for each number of ranks.

    Attributes
    ----------
    name
        Name of the function.
    cases
        One for each number of ranks.
    """

    name: str
    cases: tuple[Case, ...]

    @property
    def accepted(self) -> tuple[int, ...]:
        """Numbers of ranks that the function takes."""
        return tuple(case.ranks for case in self.cases if case.refused is None)

    def __str__(self) -> str:
        return "\n".join([self.name, *(f"  {case}" for case in self.cases)])


def check_algorithm(
    function: Maker,
    *,
    ranks: Iterable[int] = range(1, 18),
    roots: Sequence[int] | None = None,
    elements: Sequence[int] | None = None,
) -> Report:
    """Put a function that returns schedules through the whole battery.

    Parameters
    ----------
    function
        Called as ``function(n)``, or ``function(n, root=r)`` if it has a parameter ``root``. It may refuse a number of
        ranks by raising `AlgorithmError`.
    ranks
        Numbers of ranks to try.
    roots
        Roots to try (those below the number of ranks); every root up to 9 ranks, some above, if not given.
    elements
        Numbers of elements to execute on; by default 0, 1, and numbers below, at and above the number of ranks.

    Returns
    -------
    Report
        A line for each number of ranks.

    Raises
    ------
    ProofError
        Naming N (and the root) of the first schedule that is wrong, and what is wrong with it.
    AlgorithmError
        If the function does not return schedules of N ranks, or refuses every N.

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
      N=3     ok            1 chunks       1 steps         2 transfers, a rank sends at most 2 S, 3 roots

    >>> def forgets_the_last(ranks, root=0):
    ...     b = ScheduleBuilder(Collective("broadcast", ranks, root), chunks=1)
    ...     b.copy(root, [rank for rank in range(ranks - 1) if rank != root], 0)
    ...     return b.build()
    >>> check_algorithm(forgets_the_last, roots=[0])
    Traceback (most recent call last):
    collsim.errors.ProofError: N=2, root 0: rank 1, chunk 0: ...
    """
    name = getattr(function, "__name__", repr(function))
    cases = tuple(check_ranks(function, n, roots=roots, elements=elements) for n in ranks)
    if not cases:
        raise InputError("ranks: expected at least one number of ranks, got none")
    if all(case.refused is not None for case in cases):
        raise AlgorithmError(f"{name}: refuses every number of ranks; N={cases[0].ranks}: {cases[0].refused}")
    return Report(name, cases)


def check_ranks(
    function: Maker, ranks: int, *, roots: Sequence[int] | None = None, elements: Sequence[int] | None = None
) -> Case:
    """Put one number of ranks through the battery; parameters and errors as in `check_algorithm`.

    Returns
    -------
    Case
        With the reason in ``refused`` if the function raised `AlgorithmError`.
    """
    name = getattr(function, "__name__", repr(function))
    tried: tuple[int, ...] = ()
    if "root" in inspect.signature(function).parameters:
        few = range(ranks) if ranks <= ALL_ROOTS else (0, 1, ranks // 2, ranks - 1)
        tried = tuple(root for root in (few if roots is None else roots) if root < ranks)
    notes: dict[str, None] = {}
    volume: float | None = None
    for root in tried or (0,):
        where = f"N={ranks}" + (f", root {root}" if tried else "")
        arguments = {"root": root} if tried else {}
        try:
            schedule = function(ranks, **arguments)
        except AlgorithmError as refusal:
            return Case(ranks, tried, refused=str(refusal))
        except ScheduleError as error:
            raise ProofError(f"{where}: {error}") from error
        if not isinstance(schedule, Schedule):
            raise AlgorithmError(f"{name}: expected it to return a Schedule, got {type(schedule).__name__}")
        got = (schedule.ranks, schedule.collective.root if tried else 0)
        if got != (ranks, root):
            raise AlgorithmError(
                f"{name}: expected a schedule of {ranks} ranks, root {root}, got {got[0]}, root {got[1]}"
            )
        try:
            proof = check(schedule)
            sampled = () if proof.complete else (f"{proof.checked:,} of {proof.chunks:,} chunks were proven",)
            notes |= dict.fromkeys((*sampled, *proof.unused, *proof.warnings))
            _same_again(schedule, function(ranks, **arguments))
            notes |= dict.fromkeys(_on_data(schedule, elements))
            # the machines know nothing of roots: the first and the last one will do
            if root in (*tried[:1], *tried[-1:], 0):
                sent, left_out = _on_machines(schedule)
                volume = volume if sent is None else max(sent, volume or 0.0)
                notes |= dict.fromkeys(left_out)
        except ProofError as error:
            raise ProofError(f"{where}: {error}", rank=error.rank, chunk=error.chunk, step=error.step) from error
        except (ScheduleError, DeadlockError) as error:
            raise ProofError(f"{where}: {error}") from error
    return Case(ranks, tried, schedule.chunks, schedule.steps, schedule.transfers, volume, tuple(notes))


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
    n = schedule.ranks
    size = 64 * schedule.chunks
    if schedule.layout is not None:
        size = sum(count * elements for count, elements in schedule.layout)
    volume = 0.0
    for make in (fully_connected, switch, bidirectional_ring):
        machine = make(n, bandwidth="10GB/s", latency="1us")
        first = simulate(schedule, machine, size, check=False)
        _not_too_little(first)
        if first.time < float(first.bound) - 1e-12 * (1 + schedule.steps):  # a picosecond of rounding a step
            raise ProofError(
                f"takes {first.time * 1e6:.6f} us on {machine.name!r}, below the bound of {first.bound * 1e6:.6f} us: "
                f"{first.bound.reason}"
            )
        again = simulate(schedule, machine, size, check=False)
        if any((first.records[name] != again.records[name]).any() for name in first.records):
            raise ProofError(f"two runs on {machine.name!r} differ")
        volume = first.bytes_sent_per_rank.max(initial=0) / size if size else 0.0
    return float(volume), ()


def _not_too_little(result: Result) -> None:
    """Refuse a run in which a rank sends or receives fewer bytes than the operation needs."""
    c, program, size = result.schedule.collective, result.program, result.size
    if c.ranks == 1 or c.operation == "barrier":
        return
    received = np.zeros(c.ranks, dtype=np.int64)
    remote = (program.src != program.dst) & (program.dst < c.ranks)
    np.add.at(received, program.dst[remote], program.bytes[remote])
    for rank in range(c.ranks):
        out, into = _least(c, rank, size)
        for verb, got, least in (("sends", result.bytes_sent_per_rank[rank], out), ("receives", received[rank], into)):
            if got < least:
                raise ProofError(
                    f"rank {rank} {verb} {got:,} bytes of {size:,}; no algorithm can do with less than {least:,}",
                    rank=rank,
                )


def _least(c: Collective, rank: int, size: int) -> tuple[int, int]:
    """Least bytes that a rank must send and receive, whatever the algorithm (sizes that the ranks divide)."""
    block = size // c.ranks
    rest = size - block - size % c.ranks
    at_root = rank == c.root
    return {
        "all_reduce": (size, size),
        "reduce_scatter": (rest, block),
        "all_gather": (block, rest),
        "broadcast": (size, 0) if at_root else (0, size),
        "reduce": (0, size) if at_root else (size, 0),
        "all_to_all": (rest, rest),
        "gather": (0, rest) if at_root else (block, 0),
        "scatter": (rest, 0) if at_root else (0, block),
        "send_recv": (size, size),
    }[c.operation]
