"""The jump: iterations that repeat an earlier stretch, only later, are not run one by one."""

from __future__ import annotations

from typing import Protocol, TypeVar

__all__ = ["Track", "jump_ahead"]

S = TypeVar("S")


class Track(Protocol[S]):
    """A loop that is being run: all that its next iterations depend on is its state, a set of times.

    An iteration takes maxima of times of the state and adds constants. So where one state is another with D added to
    each time, all that follows is the same with D added.
    """

    @property
    def iteration(self) -> int:
        """Number of the next iteration."""

    def snapshot(self) -> S:
        """Return a copy of the state."""

    def run(self, stop: int, then: S | None) -> int:
        """Run up to an iteration, or until the state is ``then`` with some D >= 0 added; return D, or -1."""

    def skip(self, iterations: int, shift: int) -> None:
        """Take iterations as done, adding ``shift`` to the state; they repeat those since the last snapshot."""


def jump_ahead(track: Track[S], horizon: int, patience: int) -> bool:
    """Look for a period, and skip all whole periods before iteration ``horizon``; return whether there is one.

    Periods of any length are found (Brent): the state is compared after each iteration with a copy that is taken anew
    after 1, 2, 4, 8, ... iterations. One more iteration is run and compared, then the rest is skipped.

    Parameters
    ----------
    track
        The loop. Nothing but its state may reach the iterations from the present one to the horizon, and nobody may
        ask for their times later on.
    horizon
        The first iteration that must be run.
    patience
        Iterations after which the search is given up.

    Examples
    --------
    >>> class Clock:
    ...     iteration, hand, ran = 0, 0, 0
    ...     def snapshot(self):
    ...         return self.hand
    ...     def run(self, stop, then):
    ...         while self.iteration < stop:
    ...             self.hand += 5 if self.iteration < 9 else 3
    ...             self.iteration += 1
    ...             self.ran += 1
    ...             if then is not None:
    ...                 return self.hand - then
    ...     def skip(self, iterations, shift):
    ...         self.iteration += iterations
    ...         self.hand += shift
    >>> clock = Clock()
    >>> clock.iteration = 9
    >>> jump_ahead(clock, 1000, 100)
    True
    >>> clock.iteration, clock.hand, clock.ran
    (1000, 2973, 2)
    """
    first, power = track.iteration, 1
    while track.iteration < horizon and track.iteration - first < patience:
        begin = track.iteration
        then = track.snapshot()
        shift = track.run(begin + 1, then)
        witness = track.snapshot()
        if shift < 0:
            shift = track.run(min(begin + power, horizon), then)
        power *= 2
        if shift < 0 or track.iteration == horizon:
            continue
        period = track.iteration - begin
        if track.run(track.iteration + 1, witness) == shift:
            periods = (horizon - track.iteration) // period
            track.skip(periods * period, periods * shift)
            return True
    return False
