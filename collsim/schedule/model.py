"""The schedule: what moves, in what order, and nothing about hardware or time.

A `Block` is a table of transfers sorted by step. A `Repeat` runs a block several times while its chunks move on by a
shift. A `Schedule` is a row of repeats with the collective that it implements. All three are frozen values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.collective import Collective
from collsim.errors import ScheduleError
from collsim.schedule.block import (
    BUFFERS,
    COLUMNS,
    INPUT,
    OUTPUT,
    SCRATCH,
    Block,
    ChunkLists,
    Repeat,
    items,
    names,
    short,
    whole,
)
from collsim.schedule.edges import MOST_LAG, Edge, Edges

__all__ = [
    "BUFFERS",
    "INPUT",
    "MOST_LAG",
    "OUTPUT",
    "SCRATCH",
    "Block",
    "ChunkLists",
    "Edge",
    "Edges",
    "Repeat",
    "Schedule",
    "Transfers",
    "refuse_other",
]

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Transfers:
    """The transfers of a schedule written out, in program order (step, then row).

    ``ptr[i]:ptr[i + 1]`` delimits the chunks of transfer i in ``src_chunks`` and ``dst_chunks``.
    """

    step: Array
    src: Array
    src_buffer: Array
    dst: Array
    dst_buffer: Array
    reduce: Array
    channel: Array
    via: Array
    ptr: Array
    src_chunks: Array
    dst_chunks: Array

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, eq=False)
class Schedule:
    """Steps of chunk transfers that implement a collective; free of sizes and of hardware.

    Parameters
    ----------
    collective
        What the schedule implements.
    chunks
        Number of chunks of the input and output buffers.
    phases
        Repeats, run one after the other (a later phase has later steps).
    scratch
        Number of chunks of each rank's scratch buffer.
    in_place
        Whether ``input`` and ``output`` name the same memory. If so the buffer starts with the input in place; if not,
        the input is read only and the output starts empty.
    edges
        Written dependencies (pacing). Kept as columns, see `Edges`.
    order
        Place of chunk i in the buffer, where it is not i.
    layout
        ``(count, elements)`` runs that fix the elements of the places where they differ by more than one.
    paths
        Paths (names of topology nodes and links on the way, in order) that rows name by ``via``.
    places
        Names of switches that take part with scratch only; place i is endpoint ``ranks + i``.
    algorithm, parameters
        Name and parameters of the algorithm that built it (labels; they do not count in comparisons).

    Examples
    --------
    >>> from collsim.algorithms import ring_all_reduce
    >>> schedule = ring_all_reduce(4)
    >>> schedule.steps, schedule.transfers
    (6, 24)
    >>> Schedule.from_text(str(schedule)) == schedule
    True
    """

    collective: Collective
    chunks: int
    phases: tuple[Repeat, ...]
    scratch: int = 0
    in_place: bool = True
    edges: Edges | tuple[Edge, ...] = ()
    order: tuple[int, ...] | None = None
    layout: tuple[tuple[int, int], ...] | None = None
    paths: tuple[tuple[str, ...], ...] = ()
    places: tuple[str, ...] = ()
    algorithm: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from collsim.schedule.validate import validate

        if not isinstance(self.collective, Collective):
            raise ScheduleError(f"collective: expected a Collective, got {short(self.collective)}")
        if not isinstance(self.in_place, (bool, np.bool_)):
            raise ScheduleError(f"in_place: expected True or False, got {short(self.in_place)}")
        if not isinstance(self.parameters, Mapping):
            raise ScheduleError(f"parameters: expected a dict, got {short(self.parameters)}")
        chunks, order, layout = whole("chunks", self.chunks), self.order, self.layout
        if order is not None:
            order = tuple(whole("order", i) for i in items("order", order, "places of chunks"))
            order = None if len(order) == chunks and order == tuple(range(chunks)) else order
        if layout is not None:
            layout = tuple(_run(run) for run in items("layout", layout, "runs of (count, elements)"))
        frozen = {
            "chunks": chunks,
            "scratch": whole("scratch", self.scratch),
            "in_place": bool(self.in_place),
            "phases": _all_of("phases", self.phases, Repeat),
            "edges": Edges.of(self.edges),
            "order": order,
            "layout": layout,
            "paths": tuple(names("paths", path) for path in items("paths", self.paths, "lists of names")),
            "places": names("places", self.places),
            "parameters": MappingProxyType(dict(self.parameters)),
        }
        for name, value in frozen.items():
            object.__setattr__(self, name, value)
        validate(self)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "parameters": dict(self.parameters)}  # the read-only view cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, parameters=MappingProxyType(state["parameters"]))

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.collective.ranks

    @property
    def endpoints(self) -> int:
        """Number of ranks and places."""
        return self.collective.ranks + len(self.places)

    @property
    def steps(self) -> int:
        """Number of steps."""
        return sum(phase.steps for phase in self.phases)

    @property
    def transfers(self) -> int:
        """Number of transfers (local operations included)."""
        return sum(phase.transfers for phase in self.phases)

    def place_of(self, chunk: Array) -> Array:
        """Place of chunks in the buffer."""
        return chunk if self.order is None else np.asarray(np.asarray(self.order)[chunk])

    def elements(self, elements: int) -> Array:
        """Elements of each chunk (not place) of a buffer of ``elements`` elements.

        Raises
        ------
        ScheduleError
            If the schedule has a ``layout`` for another number of elements.
        """
        if self.layout is None:
            places = self.collective.chunk_elements(elements, self.chunks)
        else:
            places = np.repeat([size for _, size in self.layout], [count for count, _ in self.layout]).astype(np.int64)
            if places.sum() != elements:
                raise ScheduleError(f"layout: made for {places.sum()} elements, got {elements}")
        return places if self.order is None else places[np.asarray(self.order)]

    def offsets(self, elements: int) -> Array:
        """Offset of each chunk (not place) in elements."""
        sizes = self.elements(elements)
        if self.order is None:
            return np.cumsum(sizes) - sizes
        order = np.asarray(self.order)
        by_place = np.empty_like(sizes)
        by_place[order] = sizes
        return np.asarray((np.cumsum(by_place) - by_place)[order])

    def labelled(self, algorithm: str, /, **parameters: Any) -> Schedule:
        """Return the same schedule under the name of the algorithm that built it."""
        return replace(self, algorithm=algorithm, parameters=parameters)

    def expand(self) -> Transfers:
        """Write out all repeats. Memory grows with the number of transfers."""
        from collsim.schedule.expand import expand

        return expand(self)

    def iter_steps(self) -> Iterator[tuple[int, Transfers]]:
        """Yield (step, transfers of that step) without writing out the repeats."""
        from collsim.schedule.expand import iter_steps

        return iter_steps(self)

    def to_text(self) -> str:
        """Return the text form, which `from_text` reads back."""
        from collsim.schedule.text import to_text

        return to_text(self)

    @classmethod
    def from_text(cls, text: str) -> Schedule:
        """Read the text form.

        Raises
        ------
        ScheduleError
            With the number of the line that could not be read.
        """
        from collsim.schedule.text import from_text

        return from_text(text)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        name = self.algorithm or "schedule"
        return (
            f"<Schedule {name} {self.collective.operation} ranks={self.ranks} chunks={self.chunks} "
            f"steps={self.steps} transfers={self.transfers}>"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        blocks = tuple(
            (
                phase.times,
                _key_of(phase.shift, phase.block),
                # 0 stands for all chunks: both spellings are the same schedule
                _key_of(np.where(np.asarray(phase.window) == 0, self.chunks, phase.window), phase.block),
                tuple(getattr(phase.block, name).tobytes() for name in COLUMNS),
                None if phase.block.lists is None else tuple(a.tobytes() for a in vars(phase.block.lists).values()),
                None if phase.block.via is None else phase.block.via.tobytes(),
            )
            for phase in self.phases
        )
        return (
            self.collective, self.chunks, self.scratch, self.in_place, Edges.of(self.edges).key(), self.order,
            self.layout, self.paths, self.places, blocks,
        )  # fmt: skip


def refuse_other(schedule: Any) -> None:
    """Refuse what is not a schedule."""
    if not isinstance(schedule, Schedule):
        raise ScheduleError(f"schedule: expected a Schedule, got {type(schedule).__name__}")


def _all_of(name: str, values: Any, kind: type) -> tuple[Any, ...]:
    """Return a tuple of things of one kind, or refuse it."""
    found = items(name, values, f"a row of {kind.__name__}s")
    for value in found:
        if not isinstance(value, kind):
            raise ScheduleError(f"{name}: expected a row of {kind.__name__}s, got {type(value).__name__}")
    return found


def _run(run: Any) -> tuple[int, int]:
    pair = items("layout", run, "runs of (count, elements)")
    if len(pair) != 2:
        raise ScheduleError(f"layout: expected runs of (count, elements), got {short(run)}")
    return whole("layout", pair[0]), whole("layout", pair[1], MOST_LAG)


def _key_of(value: Any, block: Block) -> bytes:
    """Bytes of a scalar or column, alike for both spellings of the same values."""
    return np.broadcast_to(np.asarray(value, dtype=np.int64), (len(block),)).tobytes()
