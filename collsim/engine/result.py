"""The result of a simulation: times in integer picoseconds inside, SI units at the border."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.engine.critical import CriticalPath, critical_path, shared_links, shared_waits
from collsim.engine.program import LINK, Program, Times
from collsim.errors import CollsimError
from collsim.schedule import Schedule
from collsim.schedule.check import Proof
from collsim.theory import Bound, Prediction, lower_bound, predict
from collsim.topology import Topology
from collsim.units import format_size

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["Result"]

Array = npt.NDArray[Any]

PICO = 1e-12


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
        Network model; engine that ran it.
    synchronous
        Whether steps waited for each other.
    program, times
        The lowered program and the times of its transfers.
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
    program: Program
    times: Times
    checked: Proof | None

    @property
    def operation(self) -> str:
        """Name of the operation."""
        return self.schedule.collective.operation

    @property
    def time_ps(self) -> int:
        """Simulated time in picoseconds."""
        return self.times.makespan

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

        None where there is none, and for schedules that no form describes: with places, or with paths of their own.
        """
        schedule, program = self.schedule, self.program
        if schedule.places or any(phase.block.via is not None for phase in schedule.phases):
            return None
        prediction = predict(
            schedule.algorithm,
            schedule.collective,
            self.size,
            self.topology,
            (program.src, program.dst, program.channel),
            synchronous=self.synchronous,
            network=self.network,
            parameters=dict(schedule.parameters),
            element_size=self.element_size,
        )
        if prediction is not None and schedule.edges:
            prediction = prediction.but("written edges pace it")
        return prediction

    @cached_property
    def bound(self) -> Bound:
        """Least time that any algorithm could take on this topology, in seconds, with what makes it so."""
        collective, schedule = self.schedule.collective, self.schedule
        blocks = None
        if collective.is_blocked and collective.operation != "all_to_all":
            # as this schedule cuts them: with more chunks a rank, a remainder goes to other ranks
            by_place = np.zeros(schedule.chunks, dtype=np.int64)
            by_place[schedule.place_of(np.arange(schedule.chunks))] = schedule.elements(self.size // self.element_size)
            blocks = (by_place.reshape(collective.ranks, -1).sum(axis=1) * self.element_size).tolist()
        return lower_bound(
            collective,
            self.size,
            self.topology,
            network=self.network,
            element_size=self.element_size,
            blocks=blocks,
        )

    @property
    def efficiency(self) -> float:
        """Bound over simulated time (1 is the best there can be)."""
        return float(self.bound) / self.time if self.time_ps else 1.0

    @property
    def transfers(self) -> int:
        """Number of transfers."""
        return self.program.transfers

    @cached_property
    def bytes_sent_per_rank(self) -> Array:
        """Payload bytes that each rank sends to others."""
        program = self.program
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
        try:
            import pandas as pd
        except ImportError:
            raise CollsimError("to_frame: expected pandas to be installed: pip install 'collsim[pandas]'") from None
        columns = dict(self.records)
        for name in ("ready", "start", "end"):
            columns[name] = columns.pop(f"{name}_ps") * PICO
        return pd.DataFrame(columns)

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
        return [(self.topology.link_name(link), pairs) for link, pairs in shared_links(self.program)]

    @cached_property
    def link_busy_ps(self) -> Array:
        """Picoseconds that each link of the topology spends on the bytes that cross it (by link number)."""
        program = self.program
        on_link = program.station_kind[program.visit_station] == LINK
        busy = np.zeros(self.topology.n_links, dtype=np.int64)
        np.add.at(busy, program.station_index[program.visit_station[on_link]], program.visit_busy[on_link])
        return busy

    def plot(self, **kwargs: Any) -> Axes:
        """Draw the timeline; see `collsim.plot.timeline`."""
        import importlib

        # the plots know the engine, not the other way round: the name is looked up when a picture is asked for
        axes: Axes = importlib.import_module("collsim.plot").timeline(self, **kwargs)
        return axes

    def __repr__(self) -> str:
        theory = "none" if self.theory is None else f"{self.theory * 1e6:.3f} us"
        return (
            f"<Result {self.schedule.algorithm or 'schedule'} {self.operation} of {format_size(self.size)} on "
            f"{self.topology.name!r}: {self.time * 1e6:.3f} us, theory {theory}, efficiency {self.efficiency:.1%}>"
        ).replace("%>", " %>")
