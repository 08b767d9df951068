"""The result of a simulation: times in integer picoseconds inside, SI units at the border."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from collsim.engine.critical import CriticalPath, critical_path
from collsim.engine.expected import bound_of, theory_of
from collsim.engine.loops import Loops
from collsim.engine.memory import refuse_beyond_memory
from collsim.engine.outcome import Outcome
from collsim.engine.program import LINK, Array, Program, Times
from collsim.engine.totals import sent_per_rank, station_totals
from collsim.engine.traffic import link_users, shared_waits
from collsim.errors import CollsimError
from collsim.schedule import Schedule
from collsim.schedule.check import Proof
from collsim.theory import Bound, Prediction
from collsim.topology import Topology
from collsim.units import format_size

if TYPE_CHECKING:
    import os

    import pandas as pd
    from matplotlib.axes import Axes

    from collsim.engine.explain import Explanation

__all__ = ["Result"]

PICO = 1e-12
WRITTEN_OUT = 250
"""Bytes of a transfer that is written out, with its edges and visits."""


def frame(data: Any) -> pd.DataFrame:
    """Return data as a pandas frame.

    Raises
    ------
    CollsimError
        If pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise CollsimError("to_frame: expected pandas to be installed: pip install 'collsim[pandas]'") from None
    return pd.DataFrame(data)


@dataclass(frozen=True, eq=False)
class Result:
    """One simulated collective.

    Attributes
    ----------
    schedule, topology
        What was run, and on what.
    size
        Message size in bytes, as nccl-tests counts it.
    element_size
        Bytes of an element.
    network, engine
        Network model; engine that ran it (``"reference"`` or ``"compiled"``).
    synchronous
        Whether steps waited for each other.
    zero_copy
        Whether writes waited for reads.
    lowered, outcome
        The program as the engine ran it, and what came out.
    checked
        What was proven of the schedule; None if it was not checked.

    Examples
    --------
    >>> import collsim
    >>> topo = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    >>> result = collsim.run("all_reduce", topo, size="1MiB", algorithm="ring")
    >>> result  # doctest: +ELLIPSIS
    <Result ring all_reduce of 1MiB on 'ring': 37.457 us, theory 37.457 us, efficiency ... %>
    >>> result.breakdown["serialisation"] == result.time - 6e-6
    True
    """

    schedule: Schedule
    topology: Topology
    size: int
    element_size: int
    network: str
    engine: str
    synchronous: bool
    zero_copy: bool
    lowered: Program | Loops
    outcome: Outcome
    checked: Proof | None

    @property
    def shortcut(self) -> str:
        """How the compiled engine came to the time without an event queue: ``"sweep"``, ``"jump"``, or ``""``.

        A sweep runs the program in program order, which is exact as long as no transfer overtakes another at a station;
        a jump skips whole periods of a program that repeats itself. The integers are those of the event queue.
        """
        return self.outcome.shortcut

    @property
    def has_records(self) -> bool:
        """Whether the times of each transfer were kept."""
        return self.outcome.times is not None

    @cached_property
    def program(self) -> Program:
        """The program written out, a column entry for each transfer."""
        if isinstance(self.lowered, Program):
            return self.lowered
        loops = self.lowered
        refuse_beyond_memory(
            loops.transfers * WRITTEN_OUT, f"{loops.transfers:,} transfers, written out,", "expected a smaller run"
        )
        return loops.flat()

    @property
    def times(self) -> Times:
        """Times of the transfers.

        Raises
        ------
        CollsimError
            If no records were kept.
        """
        if self.outcome.times is None:
            raise CollsimError(
                f"records: none were kept of {self.transfers:,} transfers; expected a run with records=True"
            )
        return self.outcome.times

    @property
    def operation(self) -> str:
        """Name of the operation."""
        return self.schedule.collective.operation

    @property
    def time_ps(self) -> int:
        """Simulated time in picoseconds."""
        return self.outcome.makespan

    @property
    def time(self) -> float:
        """Simulated time in seconds."""
        return self.time_ps * PICO

    @property
    def algbw(self) -> float:
        """Algorithm bandwidth in bytes/s: size over time (0 if no time passed)."""
        return self.size / self.time if self.time_ps else 0.0

    @property
    def busbw(self) -> float:
        """Bus bandwidth in bytes/s: algbw times the operation's factor, as nccl-tests defines it."""
        return self.algbw * self.schedule.collective.busbw_factor

    @cached_property
    def theory(self) -> Prediction | None:
        """Closed form of the algorithm in seconds, with its terms.

        None where there is none, and for schedules that no form describes, such as those with paths of their own.
        """
        return theory_of(self)

    @cached_property
    def bound(self) -> Bound:
        """Least time that any algorithm could take on this topology, in seconds, with what makes it so."""
        return bound_of(self)

    @property
    def efficiency(self) -> float:
        """Bound over simulated time (1 is the best there can be)."""
        return float(self.bound) / self.time if self.time_ps else 1.0

    @property
    def transfers(self) -> int:
        """Number of transfers."""
        return self.lowered.transfers

    @cached_property
    def bytes_sent_per_rank(self) -> Array:
        """Payload bytes that each rank sends to others."""
        if isinstance(self.lowered, Loops):
            return sent_per_rank(self.lowered, self.schedule.ranks)
        program = self.lowered
        remote = (program.src != program.dst) & (program.src < self.schedule.ranks)
        sent = np.zeros(self.schedule.ranks, dtype=np.int64)
        np.add.at(sent, program.src[remote], program.bytes[remote])
        return sent

    @cached_property
    def records(self) -> dict[str, Array]:
        """One row a transfer, in program order; times in integer picoseconds."""
        program, times = self.program, self.times
        columns = {
            name: getattr(program, name) for name in ("step", "channel", "src", "dst", "chunk", "bytes", "reduce")
        }
        return {
            "transfer": np.arange(program.transfers),
            **columns,
            "ready_ps": times.ready,
            "start_ps": times.start,
            "end_ps": times.end,
        }

    def link_records(self) -> dict[str, Array]:
        """One row for each link that a transfer crosses: when its head enters and its tail leaves (picoseconds)."""
        program = self.program
        visitor = np.repeat(np.arange(program.nodes), np.diff(program.visit_ptr))
        on_link = program.station_kind[program.visit_station] == LINK
        return {
            "transfer": visitor[on_link],
            "link": program.station_index[program.visit_station[on_link]],
            "start_ps": self.times.visit_start[on_link],
            "end_ps": self.times.visit_end[on_link],
        }

    def to_frame(self) -> pd.DataFrame:
        """Return the records as a pandas frame, times in seconds.

        Raises
        ------
        CollsimError
            If pandas is not installed.
        """
        columns = dict(self.records)
        for name in ("ready", "start", "end"):
            columns[name] = columns.pop(f"{name}_ps") * PICO
        return frame(columns)

    @cached_property
    def critical_path(self) -> CriticalPath:
        """Transfers that determine the simulated time, and what their time goes to."""
        return critical_path(self.program, self.times, self.network)

    @property
    def breakdown_ps(self) -> dict[str, int]:
        """The simulated time put down to what happens on the critical path, in picoseconds (they sum to `time_ps`)."""
        return self.critical_path.parts

    @property
    def breakdown(self) -> dict[str, float]:
        """The simulated time put down to latency, serialisation, queueing, reduction and overhead, in seconds."""
        return {name: value * PICO for name, value in self.breakdown_ps.items()}

    @cached_property
    def waits(self) -> list[tuple[str, int, int]]:
        """Links of several pairs of ranks at which transfers queue: (name, transfers that waited, ps), worst first.

        Empty in ``alpha_beta`` and ``fluid``, which have no queues at links.
        """
        if self.network in ("alpha_beta", "fluid"):
            return []
        found = shared_waits(self.program, self.times, self.network)
        return [(self.topology.link_name(link), n, ps) for link, n, ps in found]

    @property
    def shared(self) -> list[tuple[str, int]]:
        """Links that more than one pair of ranks uses: (name, pairs), most pairs first."""
        links, pairs = np.unique(link_users(self.lowered)[0], return_counts=True)
        found = [(int(link), int(number)) for link, number in zip(links, pairs, strict=True) if number > 1]
        return [(self.topology.link_name(link), n) for link, n in sorted(found, key=lambda item: (-item[1], item[0]))]

    @cached_property
    def _link_totals(self) -> tuple[Array, Array]:
        """Bytes and busy picoseconds by link."""
        if isinstance(self.lowered, Loops):
            by_station = station_totals(self.lowered)
        else:
            program, stations = self.lowered, len(self.lowered.station_kind)
            visitor = np.repeat(np.arange(program.nodes), np.diff(program.visit_ptr))
            by_station = np.zeros(stations, dtype=np.int64), np.zeros(stations, dtype=np.int64)
            np.add.at(by_station[0], program.visit_station, program.bytes[visitor])
            np.add.at(by_station[1], program.visit_station, program.visit_busy)
        return self._by_link(by_station[0]), self._by_link(by_station[1])

    def _by_link(self, by_station: Array) -> Array:
        found = np.zeros(self.topology.n_links, dtype=np.int64)
        on_link = self.lowered.station_kind == LINK
        found[self.lowered.station_index[on_link]] = by_station[on_link]
        return found

    @property
    def link_bytes(self) -> Array:
        """Payload bytes that cross each link of the topology (by link number)."""
        return self._link_totals[0]

    @property
    def link_busy_ps(self) -> Array:
        """Picoseconds that each link of the topology spends on the bytes that cross it (by link number)."""
        return self._link_totals[1]

    @cached_property
    def link_longest_wait_ps(self) -> Array:
        """Longest that a transfer waited for each link (by link number), in picoseconds.

        0 in ``alpha_beta`` and ``fluid``, which have no queues at links.
        """
        return self._by_link(self.outcome.longest_wait)

    def explain(self, *, budget: int | None = None) -> Explanation:
        """Say why it takes so long, where the bottleneck is and what would help; see `collsim.engine.explain`.

        Parameters
        ----------
        budget
            How many transfers may be simulated to find out what would help; 4 million if not given, 0 for none.
        """
        from collsim.engine.explain import explain

        return explain(self) if budget is None else explain(self, budget=budget)

    # Pictures, pages and traces know the engine, not the other way round: their names are looked up when asked for.

    def plot(self, **kwargs: Any) -> Axes:
        """Draw the timeline; see `collsim.plot.timeline`."""
        axes: Axes = import_module("collsim.plot").timeline(self, **kwargs)
        return axes

    def to_perfetto(self, path: str | os.PathLike[str]) -> None:
        """Write a trace for https://ui.perfetto.dev; see `collsim.traces.write_perfetto`."""
        import_module("collsim.traces").write_perfetto(self, path)

    def to_kineto(self, folder: str | os.PathLike[str], time_scale: int = 1) -> None:
        """Write a trace a rank for Holistic Trace Analysis; see `collsim.traces.write_kineto`."""
        import_module("collsim.traces").write_kineto(self, folder, time_scale)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a page that plays the run in a browser; see `collsim.player.write_player`."""
        import_module("collsim.player").write_player(self, path)

    def _repr_html_(self) -> str:
        """Return what notebooks show: the player, or a short text if there are too many transfers."""
        shown: str = import_module("collsim.player").notebook_html(self)
        return shown

    def __repr__(self) -> str:
        theory = "none" if self.theory is None else f"{self.theory * 1e6:.3f} us"
        return (
            f"<Result {self.schedule.algorithm or 'schedule'} {self.operation} of {format_size(self.size)} on "
            f"{self.topology.name!r}: {self.time * 1e6:.3f} us, theory {theory}, efficiency {self.efficiency:.1%}>"
        ).replace("%>", " %>")
