"""Where the nodes of a machine are drawn: plain numbers, by the structure of the machine, the same every time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.plot.levels import boxed, levelled
from collsim.plot.spread import spread_out
from collsim.topology import Topology
from collsim.topology.structure import torus_dims

__all__ = ["Box", "Layout", "layout_of", "node_positions"]

Array = npt.NDArray[Any]

MARGIN = 0.04  # of the unit square, left free on each side
LONGEST_LINE = 32  # nodes of a line that stand in one row; longer ones turn back and forth
MOST_AROUND = 12  # nodes without known structure that stand on a circle


@dataclass(frozen=True)
class Box:
    """A rectangle around the nodes of one module: its name and two opposite corners in the unit square."""

    name: str
    left: float
    bottom: float
    right: float
    top: float


@dataclass(frozen=True, eq=False)
class Layout:
    """Where everything is drawn.

    Attributes
    ----------
    positions
        Shaped (nodes, 2), in the unit square; y goes up.
    boxes
        Around the modules of a cluster.
    """

    positions: Array
    boxes: tuple[Box, ...]


def node_positions(topology: Topology) -> Array:
    """Return where to draw each node of a machine.

    Rings and small machines of direct links are circles (rank 0 on top, clockwise), tori and meshes grids (the first
    rank top left; planes of a third dimension are drawn offset). Machines with switches have levels with the ranks at
    the bottom, or stand around their only switch; the GPUs of a node of a cluster stand around the switch of the node.
    What fits nothing of that is placed by distances.

    Parameters
    ----------
    topology
        The machine.

    Returns
    -------
    numpy.ndarray
        Shaped (nodes, 2): x and y of each node, by its number, in the unit square; y goes up. The same machine gives
        the same numbers.

    Examples
    --------
    >>> import collsim.topology
    >>> node_positions(collsim.topology.ring(4)).round(2).tolist()
    [[0.5, 0.96], [0.96, 0.5], [0.5, 0.04], [0.04, 0.5]]
    """
    return layout_of(topology).positions


def layout_of(topology: Topology) -> Layout:
    """Return where to draw each node of a machine, and the boxes of its modules; see `node_positions`."""
    if "layout" not in topology.cache:
        positions, boxes = _found(topology)
        positions = np.ascontiguousarray(_fitted(positions))
        positions.flags.writeable = False
        topology.cache["layout"] = Layout(positions, tuple(Box(*box) for box in boxes))
    found: Layout = topology.cache["layout"]
    return found


def _found(topology: Topology) -> tuple[Array, Sequence[tuple[str, float, float, float, float]]]:
    kind, n = topology.structure.get("kind"), topology.n_nodes
    ranks, rank = topology.rank_nodes, topology.rank_of_node
    only_ranks = n == topology.n_ranks
    dims = tuple(int(size) for size in topology.structure.get("dims", ())) if kind == "mesh" else torus_dims(topology)
    if only_ranks and dims is not None and math.prod(dims) == n:
        return _placed(n, ranks, _grid(dims, closed=kind != "mesh")), ()
    if only_ranks and kind == "line":
        return _placed(n, ranks, _grid((n,), closed=False)), ()
    if only_ranks and (kind in ("ring", "fully_connected") or n <= MOST_AROUND):
        return _placed(n, ranks, _circle(n)), ()
    modules = _modules(topology)
    if modules:
        return boxed(topology, modules)
    if n == topology.n_ranks + 1 and n > 2:
        around = np.full((n, 2), 0.5)
        around[ranks] = _circle(topology.n_ranks)
        return around, ()
    src, dst = topology.link_src, topology.link_dst
    if only_ranks or bool(((rank[src] >= 0) & (rank[dst] >= 0)).any()):
        return spread_out(n, src, dst), ()
    return levelled(topology), ()


def _fitted(positions: Array) -> Array:
    """Keep rounding from putting anything outside the square."""
    fitted: Array = np.clip(positions, 0.0, 1.0)
    return fitted


def _placed(n: int, nodes: Array, places: Array) -> Array:
    """Return the places by node where they are given by rank."""
    positions = np.zeros((n, 2))
    positions[nodes] = places
    return positions


def _circle(n: int) -> Array:
    """Places on a circle, the first on top, clockwise."""
    if n == 1:
        return np.array([[0.5, 0.5]])
    angle = 2 * np.pi * np.arange(n) / n
    return 0.5 + (0.5 - MARGIN) * np.stack([np.sin(angle), np.cos(angle)], axis=1)


def _grid(dims: tuple[int, ...], *, closed: bool) -> Array:
    """Places of a grid of any number of dimensions, in row-major order; a single closed dimension is a circle."""
    n, sizes = math.prod(dims), [size for size in dims if size > 1]
    if len(sizes) < 2:
        if closed:
            return _circle(n)
        rows = 1 if n <= LONGEST_LINE else max(2, round(math.sqrt(n / 2)))
        across = -(-n // rows)
        row, column = np.divmod(np.arange(n), across)
        column = np.where(row % 2, across - 1 - column, column)  # there and back, so that neighbours stay together
        return _filled(np.stack([column, -row], axis=1).astype(float))
    index = np.indices(sizes).reshape(len(sizes), -1)
    place = np.zeros((n, 2))
    width, height = 1.0, 1.0  # of what the dimensions so far take
    for number, axis in enumerate(range(len(sizes) - 1, -1, -1)):
        size, along = sizes[axis], index[axis][:, None]
        if number == 0:
            step, width = (1.0, 0.0), float(size)
        elif number == 1:
            step, height = (0.0, -1.0), float(size)
        elif number == 2:
            # planes one behind the other, up to two thirds of a cell to the right and up
            step = (0.66 / (size - 1), 0.5 / (size - 1)) if size > 2 else (0.42, 0.34)
        elif width <= height:  # copies of all that side by side, a little askew so that links do not cover each other
            step, width = (width * 1.12, 0.07 * height), width * 1.12 * size
        else:
            step, height = (0.07 * width, -height * 1.12), height * 1.12 * size
        place += along * np.array(step)
    return _filled(place)


def _filled(place: Array) -> Array:
    """Scale places so that they fill the square, all sides alike, but for a margin."""
    low, high = place.min(axis=0), place.max(axis=0)
    span = max(float((high - low).max()), 1e-12)
    filled: Array = 0.5 + (place - (low + high) / 2) / span * (1 - 2 * MARGIN)
    return filled


def _modules(topology: Topology) -> list[tuple[str, list[int]]]:
    """Return the modules that have ranks, with all their nodes; none if all ranks are in one, or each in its own."""
    by_name: dict[str, list[int]] = {}
    for node, name in enumerate(topology.nodes):
        by_name.setdefault(name.rpartition(".")[0], []).append(node)
    homes = dict.fromkeys(name.rpartition(".")[0] for name in topology.ranks)
    if not 1 < len(homes) < topology.n_ranks or "" in homes:
        return []
    return [(home, by_name[home]) for home in homes]
