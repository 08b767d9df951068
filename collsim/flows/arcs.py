"""Arcs laid out for maximum flow, which is found in Python or by the compiled form, whichever pays."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.flows.augment import augment

__all__ = ["Arcs", "Effort"]

Array = npt.NDArray[Any]

PATIENCE = 1_000_000
"""Looks at arcs in Python, some tenths of a second, after which the compiled form is worth loading."""


class Effort:
    """How much a search has cost so far, which tells when compiled flows pay; shared by what belongs together.

    Attributes
    ----------
    looks
        Looks at arcs, in Python.
    """

    def __init__(self) -> None:
        self.looks = 0

    @property
    def pays(self) -> bool:
        """Whether flows had better be compiled."""
        return self.looks > PATIENCE and find_spec("numba") is not None


class Arcs:
    """Arcs by node, each with the same one backwards beside it: what arc i can carry stands at place 2i of `push`.

    Parameters
    ----------
    nodes
        Number of nodes.
    tails, heads
        Ends of the arcs.

    Examples
    --------
    >>> import numpy as np
    >>> arcs = Arcs(3, np.array([0, 1]), np.array([1, 2]))
    >>> flow, hops = arcs.push(np.array([7, 0, 4, 0]), 0, 2, -1, Effort())
    >>> flow, hops.tolist()
    (4, [-1, -1, 0])
    """

    def __init__(self, nodes: int, tails: Array, heads: Array) -> None:
        self.nodes = nodes
        self.to = np.empty(2 * len(tails), dtype=np.int64)
        self.to[::2], self.to[1::2] = heads, tails
        start = np.empty_like(self.to)
        start[::2], start[1::2] = tails, heads
        self.arcs = np.argsort(start, kind="stable")
        self.first = np.searchsorted(start[self.arcs], np.arange(nodes + 1))
        self._lists: tuple[Any, Any, Any] | None = None

    def push(self, cap: Any, source: int, sink: int, limit: int, effort: Effort) -> tuple[int, Array]:
        """Return the flow that arrives, and the hops to the sink over what is then left (-1 where there is no way).

        Parameters
        ----------
        cap
            What each arc can carry, and its fellow backwards: an array, or a list of Python's integers where sums may
            go beyond 64 bits. It may be changed.
        source, sink
            Nodes.
        limit
            Enough: stop once so much has arrived (-1: never).
        effort
            What tells whether the compiled form pays.
        """
        if isinstance(cap, np.ndarray) and effort.pays:
            from collsim.flows.kernels import augment_compiled

            level, at, todo = (np.zeros(self.nodes, dtype=np.int64) for _ in range(3))
            flow, _ = augment_compiled(self.first, self.arcs, self.to, cap, source, sink, limit, level, at, todo)
            return int(flow), level
        first, arcs, to = self._lists or (self.first.tolist(), self.arcs.tolist(), self.to.tolist())
        self._lists = first, arcs, to
        left = cap.tolist() if isinstance(cap, np.ndarray) else cap
        levels, at_node, work = ([0] * self.nodes for _ in range(3))
        flow, rounds = augment(first, arcs, to, left, source, sink, limit, levels, at_node, work)
        effort.looks += len(left) * (rounds + 1)
        return flow, np.array(levels)
