"""Written dependencies: pacing that an author adds to the dependencies that follow from data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from collsim.errors import ScheduleError
from collsim.schedule.block import INT32, items, whole

__all__ = ["MOST_LAG", "Edge", "Edges"]

Array = npt.NDArray[Any]

MOST_LAG = 10**18
"""Picoseconds (eleven days) that an edge can add, and elements of a chunk: sums of some stay within 64 bits."""

FEW = 6
"""So many edges are shown one by one."""
PART = 2**16
"""Edges that are turned into objects at a time."""

KINDS = {
    "phase": np.int32,
    "row": np.int32,
    "pred_phase": np.int32,
    "pred_row": np.int32,
    "distance": np.int32,
    "lag": np.int64,
    "issued": np.bool_,
}
"""Columns of edges."""


@dataclass(frozen=True)
class Edge:
    """A written dependency: iteration k of a row waits for an earlier iteration of another row.

    Parameters
    ----------
    phase, row
        The row that waits: index of the repeat in `Schedule.phases`, row in its block.
    pred_phase, pred_row
        The row that is waited for.
    distance
        Iterations back. Within one phase k waits for ``k - distance``. Iterations are counted on over the border
        of phases: iteration -1 of a phase is the last one of the phase before. Where there is no such iteration the
        edge is absent.
    at
        ``"end"``: until the predecessor has ended; ``"issued"``: until its first station is free again.
    lag
        Picoseconds to add.
    """

    phase: int
    row: int
    pred_phase: int
    pred_row: int
    distance: int = 0
    at: str = "end"
    lag: int = 0

    def __post_init__(self) -> None:
        for name in ("phase", "row", "pred_phase", "pred_row", "distance", "lag"):
            limit = MOST_LAG if name == "lag" else INT32
            object.__setattr__(self, name, whole(f"edge: {name}", getattr(self, name), limit))
        if self.at not in ("end", "issued"):
            raise ScheduleError(f"edge: at: expected 'end' or 'issued', got {self.at!r}")
        if self.pred_phase > self.phase or self.distance < 0 or self.lag < 0:
            raise ScheduleError(
                f"edge: expected a predecessor in this or an earlier phase, distance >= 0, lag >= 0: {self}"
            )


class Edges(Sequence[Edge]):
    """A row of edges that are kept as columns; it reads, compares and adds up like a tuple of `Edge`.

    Parameters
    ----------
    edges
        Any row of edges.

    Attributes
    ----------
    columns
        Read-only arrays, named like the attributes of `Edge`, and ``issued`` for ``at``.

    Examples
    --------
    >>> edges = Edges([Edge(0, 1, 0, 0), Edge(0, 2, 0, 1, at="issued")])
    >>> edges.columns["row"].tolist(), edges[1].at
    ([1, 2], 'issued')
    >>> edges == (Edge(0, 1, 0, 0), Edge(0, 2, 0, 1, at="issued"))
    True
    """

    __slots__ = ("columns",)

    columns: dict[str, Array]

    def __init__(self, edges: Iterable[Edge] = ()) -> None:
        found = items("edges", edges, "a row of Edges")
        for edge in found:
            if not isinstance(edge, Edge):
                raise ScheduleError(f"edges: expected a row of Edges, got {type(edge).__name__}")
        self._keep({name: np.array([_part(edge, name) for edge in found], dtype=kind) for name, kind in KINDS.items()})

    @classmethod
    def of(cls, edges: Iterable[Edge]) -> Edges:
        """Return edges as columns; what is so already is not copied."""
        return edges if isinstance(edges, Edges) else cls(edges)

    @classmethod
    def from_columns(cls, **columns: Any) -> Edges:
        """Return edges from arrays and numbers, by the names of `columns`; they are broadcast together.

        Raises
        ------
        ScheduleError
            As `Edge` does, of the first one that is wrong.

        Examples
        --------
        >>> Edges.from_columns(phase=0, row=[1, 2], pred_phase=0, pred_row=[0, 1])[1]
        Edge(phase=0, row=2, pred_phase=0, pred_row=1, distance=0, at='end', lag=0)
        """
        given = {"distance": 0, "lag": 0, "issued": False, **columns}
        arrays = np.broadcast_arrays(np.zeros(1), *(np.asarray(given[name]) for name in KINDS))[1:]
        found = dict(zip(KINDS, arrays, strict=True))
        bad = (found["pred_phase"] > found["phase"]) | (found["distance"] < 0) | (found["lag"] < 0)
        for name, column in found.items():
            limit = MOST_LAG if name == "lag" else INT32
            bad = bad | (True if column.dtype.kind not in "iub" else (column > limit) | (column < -limit))
        if bad.any():
            first = {name: column[int(np.argmax(bad))].item() for name, column in found.items()}
            Edge(at="issued" if first.pop("issued") else "end", **first)
            raise ScheduleError("edges: expected whole numbers, and True or False for issued")
        made = cls.__new__(cls)
        made._keep(found)
        return made

    @classmethod
    def joined(cls, parts: Iterable[Edges]) -> Edges:
        """Return rows of edges as one."""
        found = [part for part in parts if len(part)]
        if len(found) < 2:
            return found[0] if found else cls()
        return cls.from_columns(**{name: np.concatenate([part.columns[name] for part in found]) for name in KINDS})

    def _keep(self, columns: dict[str, Array]) -> None:
        """Keep columns as narrow as they can be; a number that all edges share is kept once."""
        kept = {}
        for name, kind in KINDS.items():
            column = columns[name]
            if len(column) and (column == column[0]).all():
                column = np.broadcast_to(column[:1].astype(kind).reshape(()), len(column))
            else:
                column = np.array(column, dtype=kind)
                column.flags.writeable = False
            kept[name] = column
        object.__setattr__(self, "columns", kept)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"edges: {name} cannot be set, a schedule is frozen")

    def __reduce__(self) -> Any:
        shared = {name: column[:1] if column.strides == (0,) else column for name, column in self.columns.items()}
        return _edges_again, (len(self), shared)

    def __len__(self) -> int:
        return len(self.columns["row"])

    def __iter__(self) -> Iterator[Edge]:
        names = [name for name in KINDS if name != "issued"]
        for lo in range(0, len(self), PART):
            columns = [self.columns[name][lo : lo + PART].tolist() for name in names]
            marks = self.columns["issued"][lo : lo + PART].tolist()
            for values, issued in zip(zip(*columns, strict=True), marks, strict=True):
                phase, row, pred_phase, pred_row, distance, lag = values
                yield Edge(phase, row, pred_phase, pred_row, distance, "issued" if issued else "end", lag)

    @overload
    def __getitem__(self, index: int) -> Edge: ...

    @overload
    def __getitem__(self, index: slice) -> Edges: ...

    def __getitem__(self, index: int | slice) -> Edge | Edges:
        if isinstance(index, slice):
            return Edges.from_columns(**{name: column[index] for name, column in self.columns.items()})
        values = {name: column[index].item() for name, column in self.columns.items()}
        return Edge(at="issued" if values.pop("issued") else "end", **values)

    def __add__(self, other: Sequence[Edge]) -> Edges:
        return self.joined([self, Edges.of(other)]) if isinstance(other, (Edges, tuple, list)) else NotImplemented

    def __radd__(self, other: Sequence[Edge]) -> Edges:
        return self.joined([Edges.of(other), self]) if isinstance(other, (tuple, list)) else NotImplemented

    def key(self) -> tuple[bytes, ...]:
        """Return bytes that are equal for equal edges."""
        return tuple(column.tobytes() for column in self.columns.values())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Edges):
            return len(self) == len(other) and all(
                np.array_equal(column, other.columns[name]) for name, column in self.columns.items()
            )
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self)) if len(self) <= FEW else f"<{len(self):,} edges>"


def _part(edge: Edge, name: str) -> Any:
    return edge.at == "issued" if name == "issued" else getattr(edge, name)


def _edges_again(length: int, columns: dict[str, Array]) -> Edges:
    return Edges.from_columns(**{name: np.broadcast_to(column, length) for name, column in columns.items()})
