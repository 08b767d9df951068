"""A network of arcs with whole capacities, and its maximum flows and minimum cuts."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.flows.augment import augment

__all__ = ["Network"]

Array = npt.NDArray[Any]

LARGEST = 2**62
"""Flows at least as great are counted in Python's integers."""
PATIENCE = 1_000_000
"""Looks at arcs in Python, some tenths of a second, after which the compiled form is worth loading."""


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

    def __init__(self, nodes: int, src: Any, dst: Any, capacity: Any) -> None:
        src, dst, capacity = (np.asarray(column, dtype=np.int64) for column in (src, dst, capacity))
        self.nodes = nodes
        self.unit = int(np.gcd.reduce(capacity[capacity > 0], initial=0)) or 1
        keep = (src != dst) & (capacity > 0)
        key, place = np.unique(src[keep] * nodes + dst[keep], return_inverse=True)
        self.src, self.dst = np.divmod(key, max(1, nodes))
        self.capacity = np.zeros(len(key), dtype=np.int64)
        np.add.at(self.capacity, place.reshape(-1), capacity[keep] // self.unit)
        self._looks = 0
        self._made: tuple[Array, Array, Array] | None = None

    def reversed(self) -> Network:
        """Return the same network with all arcs turned round."""
        turned = Network(self.nodes, self.dst, self.src, self.capacity)
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
        first, arcs, to = self._structure()
        nodes, amounts = supplies if isinstance(supplies, tuple) else (list(supplies), list(supplies.values()))
        total = int(self.capacity.sum()) * scale
        unlimited = total + 1
        given = [unlimited if amount is None else int(amount) for amount in amounts]
        at_most = total + sum(given)
        looked = 2 * (m + n)
        compiled = at_most < LARGEST and self._looks > PATIENCE and find_spec("numba") is not None
        if compiled:
            from collsim.flows.kernels import augment_compiled

            cap = np.zeros(2 * (m + n), dtype=np.int64)
            cap[: 2 * m : 2] = self.capacity * scale
            cap[2 * (m + np.asarray(nodes, dtype=np.int64))] = given
            level, at, todo = (np.zeros(n + 1, dtype=np.int64) for _ in range(3))
            flow, _ = augment_compiled(first, arcs, to, cap, n, sink, limit, level, at, todo)
        else:
            left = [0] * (2 * (m + n))
            left[: 2 * m : 2] = [capacity * scale for capacity in self.capacity.tolist()]
            for node, amount in zip(np.asarray(nodes).tolist(), given, strict=True):
                left[2 * (m + node)] = amount
            levels, at_list, todo_list = ([0] * (n + 1) for _ in range(3))
            rows = (first.tolist(), arcs.tolist(), to.tolist())
            flow, rounds = augment(*rows, left, n, sink, limit, levels, at_list, todo_list)
            self._looks += looked * (rounds + 1)
            level = np.array(levels)
        if 0 <= limit <= flow:
            return int(flow), None
        return int(flow), level[:n] < 0

    def _structure(self) -> tuple[Array, Array, Array]:
        """Return the arcs by node; from node ``nodes``, the super source, one leads to each other node."""
        if self._made is None:
            n = self.nodes
            tails = np.concatenate([self.src, np.full(n, n)])
            heads = np.concatenate([self.dst, np.arange(n)])
            to = np.empty(2 * len(tails), dtype=np.int64)
            to[::2], to[1::2] = heads, tails
            start = np.empty_like(to)
            start[::2], start[1::2] = tails, heads
            arcs = np.argsort(start, kind="stable")
            first = np.searchsorted(start[arcs], np.arange(n + 2))
            self._made = first, arcs, to
            self._looks += PATIENCE * (len(to) > PATIENCE // 16)  # Python would take long for a single flow
        return self._made
