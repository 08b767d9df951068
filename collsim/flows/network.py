"""A network of arcs with whole capacities, and its maximum flows and minimum cuts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.flows.arcs import PATIENCE, Arcs, Effort

__all__ = ["Network"]

Array = npt.NDArray[Any]

LARGEST = 2**62
"""Flows at least as great are counted in Python's integers."""


class Network:
    """Arcs between nodes, parallel ones joined, loops dropped.

    Parameters
    ----------
    nodes
        Number of nodes.
    src, dst
        Ends of the arcs, by node number.
    capacity
        Whole numbers of at least 0, such as bytes a second. They are divided by their greatest common divisor, `unit`,
        which changes no cut.
    effort
        What tells when flows are worth compiling; one of its own if not given.

    Attributes
    ----------
    nodes, src, dst, capacity, unit
        The arcs, sorted by their ends.

    Examples
    --------
    >>> net = Network(3, [0, 0, 1], [1, 1, 2], [20, 20, 60])
    >>> net.src.tolist(), net.dst.tolist(), net.capacity.tolist(), net.unit
    ([0, 1], [1, 2], [2, 3], 20)
    >>> flow, inside = net.cut({0: None}, 2)
    >>> flow, inside.tolist(), net.leaving(inside)
    (2, [True, False, False], 2)
    """

    def __init__(self, nodes: int, src: Any, dst: Any, capacity: Any, effort: Effort | None = None) -> None:
        src, dst, capacity = (np.asarray(column, dtype=np.int64) for column in (src, dst, capacity))
        self.nodes = nodes
        self.unit = int(np.gcd.reduce(capacity[capacity > 0], initial=0)) or 1
        keep = (src != dst) & (capacity > 0)
        key, place = np.unique(src[keep] * nodes + dst[keep], return_inverse=True)
        self.src, self.dst = np.divmod(key, max(1, nodes))
        self.capacity = np.zeros(len(key), dtype=np.int64)
        np.add.at(self.capacity, place.reshape(-1), capacity[keep] // self.unit)
        self.effort = Effort() if effort is None else effort
        self._arcs: Arcs | None = None

    def reversed(self) -> Network:
        """Return the same network with all arcs turned round."""
        turned = Network(self.nodes, self.dst, self.src, self.capacity, self.effort)
        turned.unit *= self.unit
        return turned

    def leaving(self, inside: Array) -> int:
        """Return the capacity of the arcs that leave a set of nodes, in units of the network."""
        return int(self.capacity[inside[self.src] & ~inside[self.dst]].sum())

    def cut(
        self, supplies: Mapping[int, int | None] | tuple[Array, Any], sink: int, scale: int = 1, limit: int = -1
    ) -> tuple[int, Array | None]:
        """Return the greatest flow that reaches a node, and a cut of that capacity.

        Parameters
        ----------
        supplies
            Nodes where flow comes from, and how much at most (None: without limit): a mapping, or two arrays.
        sink
            Where it goes.
        scale
            Arcs count for so many times their capacity.
        limit
            Stop once so much has arrived (-1: never).

        Returns
        -------
        flow
            What arrives (exact).
        inside
            By node: the greatest set without the sink whose arcs, with the supplies outside it, carry no more than
            that; None if the limit was reached.
        """
        n, m = self.nodes, len(self.src)
        if self._arcs is None:  # from node n, the super source, an arc leads to each other node
            tails, heads = np.append(self.src, np.full(n, n)), np.append(self.dst, np.arange(n))
            self._arcs = Arcs(n + 1, tails, heads)
            self.effort.looks += PATIENCE * (len(tails) > PATIENCE // 32)  # Python would take long for a single flow
        nodes, amounts = supplies if isinstance(supplies, tuple) else (list(supplies), list(supplies.values()))
        total = int(self.capacity.sum()) * scale
        given = [total + 1 if amount is None else int(amount) for amount in amounts]
        cap: Any = np.zeros(2 * (m + n), dtype=np.int64)
        places = 2 * (m + np.asarray(nodes, dtype=np.int64))
        if total + sum(given) < LARGEST:
            cap[: 2 * m : 2] = self.capacity * scale
            cap[places] = given
        else:
            cap = cap.tolist()
            cap[: 2 * m : 2] = [capacity * scale for capacity in self.capacity.tolist()]
            for place, amount in zip(places.tolist(), given, strict=True):
                cap[place] = amount
        flow, hops = self._arcs.push(cap, n, sink, limit, self.effort)
        return flow, None if 0 <= limit <= flow else hops[:n] < 0
