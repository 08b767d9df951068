"""What the test battery found: for a number of ranks, on a machine, and all of it."""

from __future__ import annotations

from dataclasses import dataclass

from collsim.units import format_size

__all__ = ["Case", "Report", "Timing"]


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
    excess
        How many times what any algorithm must send the busiest rank sends, where that is twice or more (data that is
        right may have travelled twice by mistake); None where it is less, or was not simulated.

    Examples
    --------
    >>> from collsim.algorithms import ring_all_reduce
    >>> from collsim.testing import check_ranks
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
    excess: float | None = None

    def __str__(self) -> str:
        if self.refused is not None:
            return f"N={self.ranks:<5} refused  {self.refused}"
        text = f"N={self.ranks:<5} ok       {self.chunks:>6,} chunks  {self.steps:>6,} steps "
        text += f"{self.transfers:>9,} transfers"
        text += "" if self.volume is None else f", a rank sends at most {self.volume:.4g} S"
        text += "" if self.excess is None else f" ({self.excess:.3g} times what any algorithm must)"
        text += f", {len(self.roots)} root{'s' * (len(self.roots) > 1)}" if self.roots else ""
        return "; ".join([text, *self.notes])


@dataclass(frozen=True)
class Timing:
    """What was found on one machine.

    Attributes
    ----------
    topology, case
        Its name; what the proof and the data said, as for numbers of ranks, or the refusal.
    efficiency
        By size in bytes: the lower bound over the simulated time (the least of all roots).
    engines
        Engines that were compared, transfer by transfer.
    """

    topology: str
    case: Case
    efficiency: dict[int, float]
    engines: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.case.refused is not None:
            return f"{self.topology}: refused  {self.case.refused}"
        shown = [f"{100 * part:.2f} % of the bound at {format_size(size)}" for size, part in self.efficiency.items()]
        same = [f"{' and '.join(self.engines)} engine agree"] if len(self.engines) > 1 else []
        roots = [f"{len(self.case.roots)} roots"] if self.case.roots else []
        return f"{self.topology}: ok  " + "; ".join([", ".join(shown), *roots, *same, *self.case.notes])


@dataclass(frozen=True)
class Report:
    """What `check_algorithm` found; its text has a line for each number of ranks and each machine.

    Attributes
    ----------
    name
        Name of the function.
    cases, timings
        One for each number of ranks; one for each machine.
    """

    name: str
    cases: tuple[Case, ...]
    timings: tuple[Timing, ...] = ()

    @property
    def accepted(self) -> tuple[int, ...]:
        """Numbers of ranks that the function takes."""
        return tuple(case.ranks for case in self.cases if case.refused is None)

    def __str__(self) -> str:
        return "\n".join([self.name, *(f"  {line}" for line in (*self.cases, *self.timings))])
