"""Places for machines with switches: levels above the ranks, and boxes for the nodes of a cluster."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.topology import Topology

__all__ = ["boxed", "levelled"]

Array = npt.NDArray[Any]
Rectangle = tuple[float, float, float, float]  # left, bottom, right, top
NamedBox = tuple[str, float, float, float, float]

MARGIN = 0.04
ONE_ROW = 64  # ranks that stand side by side; more are stacked under their switch
ROW_OF_BOXES = 6  # boxes that stand side by side
AROUND = 16  # boxes that stand on a circle where nothing is above them


def levelled(topology: Topology) -> Array:
    """Return places with the ranks at the bottom and switches by their distance from the nearest rank."""
    n, ranks = topology.n_nodes, topology.rank_nodes
    level = _levels(topology, ranks)
    place = np.zeros((n, 2))
    columns, rows = _stacked(topology, level)
    # stacked ranks take more of the height
    bottom = MARGIN + (0.0 if rows.max() == 0 else 0.3)
    place[ranks, 0] = MARGIN + (1 - 2 * MARGIN) * (columns + 0.5) / (columns.max() + 1)
    place[ranks, 1] = bottom if rows.max() == 0 else bottom - 0.3 * rows / rows.max()
    _raise(topology, place, level, bottom, 1 - MARGIN)
    return place


def boxed(topology: Topology, modules: list[tuple[str, list[int]]]) -> tuple[Array, list[NamedBox]]:
    """Return places with each module in a box of its own and what they share in levels above, and the boxes."""
    inside = np.concatenate([np.asarray(nodes) for _, nodes in modules])
    level = _levels(topology, inside)
    top = int(level.max())
    place = np.zeros((topology.n_nodes, 2))
    rectangles = _rectangles(len(modules), top)
    boxes = []
    for (name, nodes), box in zip(modules, rectangles, strict=True):
        within = _module(topology, nodes)
        centre = np.array([box[0] + box[2], box[1] + box[3]]) / 2
        place[nodes] = centre + within * np.array([box[2] - box[0], box[3] - box[1]]) / 2
        boxes.append((name, *box))
    if top:
        highest = max(box[3] for box in rectangles)
        _raise(topology, place, level, highest, 1 - MARGIN)
    return place, boxes


def _levels(topology: Topology, base: Array) -> Array:
    """Hops from the nearest of some nodes, either way along links; what is not joined comes above all."""
    level = np.full(topology.n_nodes, -1)
    level[base] = 0
    src = np.concatenate([topology.link_src, topology.link_dst])
    dst = np.concatenate([topology.link_dst, topology.link_src])
    for now in range(1, topology.n_nodes + 1):
        new = dst[(level[src] == now - 1) & (level[dst] < 0)]
        if not len(new):
            break
        level[new] = now
    return np.where(level < 0, level.max() + 1, level)


def _stacked(topology: Topology, level: Array) -> tuple[Array, Array]:
    """Return column and row of each rank, those of one switch next to each other."""
    n, rank = topology.n_ranks, topology.rank_of_node
    src, dst = topology.link_src, topology.link_dst
    up = (rank[src] >= 0) & (level[dst] == 1)
    anchor = np.full(n, topology.n_nodes)
    np.minimum.at(anchor, rank[src[up]], dst[up])
    names, first, group = np.unique(anchor, return_index=True, return_inverse=True)
    turn = np.argsort(np.argsort(first))[group]  # groups in the order of their first rank
    order = np.lexsort((np.arange(n), turn))
    size = np.bincount(turn, minlength=len(names))
    deep = 1 if n <= ONE_ROW else max(1, min(int(size.max()), round(math.sqrt(n / 4))))
    wide = -(-size // deep)
    within = np.arange(n) - (np.cumsum(size) - size)[turn[order]]
    columns, rows = np.zeros(n), np.zeros(n)
    columns[order] = (np.cumsum(wide) - wide)[turn[order]] + within % wide[turn[order]]
    rows[order] = within // wide[turn[order]]
    return columns, rows


def _raise(topology: Topology, place: Array, level: Array, bottom: float, top: float) -> None:
    """Place what is above level 0: each level in the order of what hangs below it."""
    highest = int(level.max())
    src = np.concatenate([topology.link_src, topology.link_dst])
    dst = np.concatenate([topology.link_dst, topology.link_src])
    for now in range(1, highest + 1):
        here = np.flatnonzero(level == now)
        below = (level[src] == now) & (level[dst] == now - 1)
        total, count = np.zeros(topology.n_nodes), np.zeros(topology.n_nodes)
        np.add.at(total, src[below], place[dst[below], 0])
        np.add.at(count, src[below], 1)
        middle = np.where(count[here] > 0, total[here] / np.maximum(count[here], 1), 0.5)
        order = np.argsort(middle.round(6), kind="stable")
        even = MARGIN + (1 - 2 * MARGIN) * (np.arange(len(here)) + 0.5) / len(here)
        gaps = np.diff(middle[order])
        room = (1 - 2 * MARGIN) / len(here)
        place[here[order], 0] = middle[order] if len(here) == 1 or gaps.min() > 0.6 * room else even
        place[here, 1] = bottom + (top - bottom) * now / highest


def _rectangles(count: int, levels: int) -> list[Rectangle]:
    """Boxes for some modules: in a row or a grid below the levels, around a circle where there are none."""
    if not levels and ROW_OF_BOXES // 2 < count <= AROUND:
        half = 0.48 * math.sin(math.pi / count) / (math.sqrt(2) + math.sin(math.pi / count))  # corners keep apart
        radius = 0.5 - half - 0.02
        angle = [2 * math.pi * i / count for i in range(count)]
        centres = [(0.5 + radius * math.sin(a), 0.5 + radius * math.cos(a)) for a in angle]
        return [(x - half, y - half, x + half, y + half) for x, y in centres]
    high = 1.0 if not levels else 0.72 - 0.06 * min(levels, 3)
    columns = count if count <= ROW_OF_BOXES else math.ceil(math.sqrt(count / high))
    rows = -(-count // columns)
    wide, tall = 1 / columns, min(high / rows, 1.6 / columns)
    gap = 0.06 * min(wide, tall)
    offset = 0.0 if levels else (1 - tall * rows) / 2
    found = []
    for i in range(count):
        row, column = divmod(i, columns)
        left, bottom = column * wide, offset + (rows - 1 - row) * tall
        found.append((left + gap, bottom + gap, left + wide - gap, bottom + tall - gap))
    return found


def _module(topology: Topology, nodes: list[int]) -> Array:
    """Return the places of the nodes of a module in the square from -1 to 1: ranks around switches, ports on top."""
    index = {node: i for i, node in enumerate(nodes)}
    rank = topology.rank_of_node
    ranks = [node for node in nodes if rank[node] >= 0]
    rest = [node for node in nodes if rank[node] < 0]
    near, leaves = _neighbours(topology, index)
    ports = [node for node in rest if leaves[node] and sum(rank[other] >= 0 for other in near[node]) <= 1]
    hubs = [node for node in rest if node not in ports]
    place = np.zeros((len(nodes), 2))
    n = len(ranks)
    if ports:  # half a circle below a row of ports
        angle = np.linspace(np.pi, 0, n) if n > 1 else np.array([np.pi / 2])
        around, centre = np.stack([0.82 * np.cos(angle), 0.95 * np.sin(angle)], axis=1), np.array([0.0, -0.62])
    else:
        angle = np.pi / 2 - 2 * np.pi * np.arange(n) / max(n, 1)
        around, centre = 0.78 * np.stack([np.cos(angle), np.sin(angle)], axis=1), np.zeros(2)
        around = around if n > 1 or hubs else around * 0
    place[[index[node] for node in ranks]] = centre + around
    beside = dict(zip(ranks, angle.tolist(), strict=True))
    for number, node in enumerate(hubs):
        mine = [beside[other] for other in near[node] if other in beside]
        if len(hubs) == 1:
            where = np.zeros(2)
        elif mine and len(mine) < n:
            mean = np.array([np.cos(mine).mean(), np.sin(mine).mean()])
            where = 0.45 * mean / max(float(np.hypot(*mean)), 1e-9)
        else:
            turn = np.pi / 2 - 2 * np.pi * (number + 0.5) / len(hubs)
            where = 0.3 * np.array([np.cos(turn), np.sin(turn)])
        place[index[node]] = centre + where
    if ports:
        owner = [[place[index[other], 0] for other in near[node]] for node in ports]
        order = np.argsort([round(float(np.mean(xs)), 6) if xs else 0.0 for xs in owner], kind="stable")
        across = np.linspace(-0.85, 0.85, len(ports)) if len(ports) > 1 else np.zeros(1)
        for x, number in zip(across.tolist(), order.tolist(), strict=True):
            place[index[ports[number]]] = x, 0.8
    return place


def _neighbours(topology: Topology, index: dict[int, int]) -> tuple[dict[int, list[int]], dict[int, bool]]:
    """Return the neighbours of each node of a module within it, and whether it has any outside."""
    near: dict[int, list[int]] = {node: [] for node in index}
    leaves = dict.fromkeys(index, False)
    for node, others in _links(topology, index).items():
        for other in others:
            if other in index:
                near[node].append(other)
            else:
                leaves[node] = True
    return near, leaves


def _links(topology: Topology, index: dict[int, int]) -> dict[int, list[int]]:
    if "undirected" not in topology.cache:
        ends = np.concatenate([topology.link_src, topology.link_dst]).astype(np.int64) * topology.n_nodes
        ends = np.unique(ends + np.concatenate([topology.link_dst, topology.link_src]))
        src, dst = np.divmod(ends, topology.n_nodes)
        topology.cache["undirected"] = np.searchsorted(src, np.arange(topology.n_nodes + 1)), dst
    first, dst = topology.cache["undirected"]
    return {node: dst[first[node] : first[node + 1]].tolist() for node in index}
