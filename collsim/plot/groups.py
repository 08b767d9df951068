"""Devices of large machines that are drawn as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.plot.common import count_of
from collsim.plot.layout import Layout
from collsim.topology import Topology

__all__ = ["Groups", "groups_of"]

Array = npt.NDArray[Any]

MOST_LINES = 700  # of machines with switches or modules that are drawn one by one
MOST_DIRECT = 3500  # of machines of direct links, which are grids and circles
PER_LEVEL = 16
AROUND = 32


@dataclass(frozen=True, eq=False)
class Groups:
    """What is drawn instead of single devices.

    Attributes
    ----------
    of_node
        Group of each node.
    positions
        Of each group.
    kinds, names, size
        Kind of the devices of each group (``node`` for a whole module), what to call it, and its devices.
    note
        What was taken together, for the title; empty if every device is drawn.
    """

    of_node: Array
    positions: Array
    kinds: list[str]
    names: list[str]
    size: Array
    note: str

    @property
    def count(self) -> int:
        """Number of groups."""
        return len(self.kinds)


def groups_of(topology: Topology, layout: Layout) -> Groups:
    """Return each device by itself where they can be told apart, else those that belong together."""
    n = topology.n_nodes
    ends = np.unique(topology.link_src.astype(np.int64) * n + topology.link_dst)
    start, end = np.divmod(ends, n)
    lines = len(np.unique(np.minimum(start, end) * n + np.maximum(start, end)))
    direct = n == topology.n_ranks and not layout.boxes
    if lines <= (MOST_DIRECT if direct else MOST_LINES):
        names = [name.rpartition(".")[2] if layout.boxes else name for name in topology.nodes]
        return Groups(np.arange(n), layout.positions, list(topology.kinds), names, np.ones(n, dtype=np.int64), "")
    key = _keys(topology, layout)
    found, first, of_node = np.unique(key, axis=0, return_index=True, return_inverse=True)
    of_node = of_node.reshape(-1)
    size = np.bincount(of_node)
    place = np.stack([np.bincount(of_node, weights=layout.positions[:, axis]) / size for axis in (0, 1)], axis=1)
    ranks = np.bincount(of_node, weights=topology.rank_of_node >= 0).astype(np.int64)
    kinds = [topology.kinds[node] for node in first.tolist()]
    if layout.boxes:
        modules = np.flatnonzero(found[:, 0] == 0)
        kinds = ["node" if group in modules else kind for group, kind in enumerate(kinds)]
        even = (np.arange(len(modules)) + 0.5) / len(modules)
        if len(modules) < len(found):  # in a row, so that no link to what is above passes another group
            place[modules] = np.stack([0.04 + 0.92 * even, np.full(len(modules), 0.15)], axis=1)
        else:
            place = 0.5 + 0.45 * np.stack([np.sin(2 * np.pi * even), np.cos(2 * np.pi * even)], axis=1)
    names = [
        count_of(held, "rank") if held else f"{number} x {kind}" if number > 1 else topology.nodes[node]
        for held, number, kind, node in zip(ranks.tolist(), size.tolist(), kinds, first.tolist(), strict=True)
    ]
    held = np.unique(ranks[ranks > 0]).tolist()
    each = count_of(held[0], "rank") if len(held) == 1 else f"{held[0]} to {held[-1]} ranks"
    note = f"drawn as {count_of(int((ranks > 0).sum()), 'group')} of {each}"
    return Groups(of_node, place, kinds, names, size, note)


def _keys(topology: Topology, layout: Layout) -> Array:
    """Return what the devices of a group have in common: shaped (nodes, 3); the first is 0 for modules and ranks."""
    n, rank, place = topology.n_nodes, topology.rank_of_node, layout.positions
    key = np.zeros((n, 3), dtype=np.int64)
    if layout.boxes:
        index = {box.name: i for i, box in enumerate(layout.boxes)}
        module = np.array([index.get(name.rpartition(".")[0], -1) for name in topology.nodes])
        key[:, 2] = module * min(PER_LEVEL, len(index)) // len(index)
        outside = module < 0
        key[outside] = _by_level(place[outside])
        return key
    others = rank < 0
    if others.sum() > 1:
        key[others] = _by_level(place[others])
        _, column = np.unique(place[~others, 0].round(6), return_inverse=True)
        key[~others, 2] = column.reshape(-1) * PER_LEVEL // (int(column.max()) + 1)
    else:
        key[others, 0] = 1
        key[~others, 2] = rank[~others] * min(AROUND, topology.n_ranks) // topology.n_ranks
    return key


def _by_level(place: Array) -> Array:
    """Return keys for devices on levels: the level, and parts of it from left to right."""
    heights, level = np.unique(place[:, 1].round(6), return_inverse=True)
    key = np.ones((len(place), 3), dtype=np.int64)
    key[:, 1] = level
    for number in range(len(heights)):
        here = np.flatnonzero(level == number)
        turn = np.argsort(np.argsort(place[here, 0], kind="stable"))
        key[here, 2] = turn * min(PER_LEVEL, len(here)) // len(here)
    return key
