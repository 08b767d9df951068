"""The picture of a machine: its devices and links, and how busy the links were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError
from collsim.plot.common import (
    DISTINCT,
    colour_bar,
    count_of,
    heading,
    load_scale,
    new_axes,
    percent_ticks,
    points_of,
    set_title,
    without,
)
from collsim.plot.groups import Groups, groups_of
from collsim.plot.layout import Layout, layout_of
from collsim.topology import Topology
from collsim.units import format_bandwidth

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from collsim.engine.result import Result

__all__ = ["topology"]

Array = npt.NDArray[Any]

MOST_NAMES = 40  # nodes that are named one by one
MOST_ARROWS = 128  # links that show which way they go
BEND = 0.05  # how far links of two directions bend apart, as a part of their length
NODE_COLOURS = {"gpu": "#0072B2", "switch": "#E69F00", "nic": "#56B4E9", "host": "#CC79A7", "node": "#0072B2"}
MARKS = {"gpu": "o", "switch": "s", "nic": "D", "host": "h", "node": "p"}
KEYS = 7


def topology(topology: Topology | Result, *, names: bool | None = None, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Draw a machine, laid out by its structure; of a run, with its links coloured by how busy they were.

    Parameters
    ----------
    topology
        The machine, or a run (records are not needed).
    names
        Whether to write names at the devices; only where there are few if not given.
    ax
        Where to draw; without it a figure of its own is made.
    **kwargs
        For the `matplotlib.collections.LineCollection` of the links, such as ``cmap``, ``linewidths`` or ``alpha``.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into. Parallel links are one line, the wider the more bandwidth they have; its colour is that of
        the busiest of them. Links of a run that nothing crossed are grey and behind the others, and the two directions
        of a link are two lines, each bent to its right.

    Raises
    ------
    InputError
        If it is given something else.

    Notes
    -----
    Of large machines, devices that belong together are drawn as one, and the title says so; a line between them then
    has the colour of the busiest of its links.

    Examples
    --------
    >>> import collsim
    >>> machine = collsim.topology.torus((4, 4))
    >>> ax = topology(machine)
    >>> len(ax.collections[0].get_segments())  # both directions of a link are one line
    32
    """
    from collsim.engine.result import Result

    result = topology if isinstance(topology, Result) else None
    machine = topology.topology if isinstance(topology, Result) else topology
    if not isinstance(machine, Topology):
        raise InputError(f"topology: expected a Topology or a Result, got {type(machine).__name__}")
    layout = layout_of(machine)
    groups = groups_of(machine, layout)
    if ax is None:
        ax = new_axes(7.5, 6.6)
    ax.set_axis_off()
    ax.set_aspect("equal")
    ax.set_xlim(-0.04, 1.04)
    ax.set_ylim(-0.04, 1.04)
    _boxes(ax, layout, groups)
    load = None if result is None else result.link_busy_ps / max(result.time_ps, 1)
    _links(ax, machine, groups, load, kwargs)
    _nodes(ax, machine, groups)
    if names or (names is None and groups.count <= (MOST_NAMES if not groups.note else MOST_NAMES // 2)):
        _names(ax, machine, groups)
    lines = [machine.name, _size(machine)] if result is None else heading(result)
    if groups.note:
        lines[1] += f", {groups.note}" + (", a line is its busiest link" if result is not None else "")
    set_title(ax, lines)
    return ax


def _size(machine: Topology) -> str:
    others = machine.n_nodes - machine.n_ranks
    more = [count_of(others, "other device")] if others else []
    return ", ".join([count_of(machine.n_ranks, "rank"), *more, count_of(machine.n_links, "link")])


def _boxes(ax: Axes, layout: Layout, groups: Groups) -> None:
    """Draw the nodes of a cluster as boxes."""
    from matplotlib.collections import PolyCollection

    if not layout.boxes or groups.note:
        return
    corners = [((b.left, b.bottom), (b.left, b.top), (b.right, b.top), (b.right, b.bottom)) for b in layout.boxes]
    ax.add_collection(PolyCollection(corners, facecolors="#F4F4F4", edgecolors="0.75", linewidths=0.8, zorder=0))


def _links(ax: Axes, machine: Topology, groups: Groups, load: Array | None, kwargs: dict[str, Any]) -> None:
    """Draw the links between groups, those that were busiest on top."""
    from matplotlib.collections import LineCollection

    n = groups.count
    src, dst = groups.of_node[machine.link_src], groups.of_node[machine.link_dst]
    apart = np.flatnonzero(src != dst)
    key, first, row = np.unique(src[apart] * n + dst[apart], return_index=True, return_inverse=True)
    start, end = np.divmod(key, n)
    rate = np.bincount(row, weights=machine.link_bandwidth[apart].astype(float), minlength=len(key))
    busiest = np.zeros(len(key))
    if load is not None:
        np.maximum.at(busiest, row, load[apart])
    kind = machine.link_kind_codes[apart[first]]
    both = np.isin(end * n + start, key)
    # of the two directions of a link without load one line will do
    keep = np.ones(len(key), dtype=bool) if load is not None and len(key) <= 4000 else ~both | (start < end)
    if load is not None:
        back = np.searchsorted(key, end * n + start)
        back = np.where(both, np.minimum(back, max(len(key) - 1, 0)), np.arange(len(key)))
        busiest = busiest if keep.all() else np.maximum(busiest, busiest[back])
    order = np.flatnonzero(keep)
    order = order[np.argsort(busiest[order], kind="stable")]
    bends = both[order] & bool(keep.all()) | _passes(groups.positions, start[order], end[order])
    lines = _curves(groups.positions[start[order]], groups.positions[end[order]], bends)
    width = _widths(rate[order], len(order))
    width = np.where(busiest[order] > 0, np.maximum(width, 0.5), width)
    shapes: Any = lines
    style = {**without(kwargs, linewidths=width, capstyle="round"), "zorder": 1, **kwargs}
    if load is None:
        codes = np.unique(kind).tolist()
        several = len(codes) > 1
        tint = np.array([_kind_colour(codes.index(code)) if several else "0.55" for code in kind[order].tolist()])
        collection = LineCollection(shapes, **{**without(kwargs, colors=tint), **style})
        ax.add_collection(collection, autolim=False)
        _key(ax, machine, groups, {code: _kind_colour(codes.index(code)) for code in codes} if several else {})
    else:
        style = {name: value for name, value in style.items() if name not in ("vmin", "vmax")}
        style |= load_scale(kwargs, float(busiest.max(initial=0)))
        collection = LineCollection(shapes, **style)
        collection.set_array(busiest[order])
        ax.add_collection(collection, autolim=False)
        percent_ticks(colour_bar(ax, collection, "utilisation of links"))
        _key(ax, machine, groups, {})
    if len(order) <= MOST_ARROWS:
        _arrows(ax, lines, collection, keep_both=bool(keep.all()), both=both[order], width=width)


def _widths(rate: Array, lines: int) -> Array:
    """Width of lines in points by their bandwidth."""
    if not lines:
        return np.ones(0)
    scale = 1.0 if lines <= 64 else 0.7 if lines <= 400 else 0.4 if lines <= 1500 else 0.12
    widths: Array = scale * np.clip(3.2 * np.sqrt(rate / rate.max()), 0.9, 3.2)
    return widths


def _passes(place: Array, start: Array, end: Array) -> Array:
    """Say which lines would be drawn straight over another node: the way round of a torus, for one."""
    found = np.zeros(len(start), dtype=bool)
    if len(place) * len(start) > 4_000_000 or not len(start):
        return found
    way = place[end] - place[start]
    length = np.maximum(np.hypot(way[:, 0], way[:, 1]), 1e-12)
    for node in range(len(place)):
        offset = place[node] - place[start]
        along = (offset * way).sum(axis=1) / length**2
        aside = np.abs(way[:, 0] * offset[:, 1] - way[:, 1] * offset[:, 0]) / length
        found |= (along > 1e-3) & (along < 1 - 1e-3) & (aside < 4e-3)
    return found


def _curves(start: Array, end: Array, bends: Array) -> Array:
    """Points of lines from start to end, shaped (lines, points, 2); some are bent to their right."""
    steps = 9 if bends.any() else 2
    t = np.linspace(0, 1, steps)[None, :, None]
    way = end - start
    length = np.hypot(way[:, 0], way[:, 1])[:, None]
    aside = np.stack([way[:, 1], -way[:, 0]], axis=1) * np.where(length > 0.6, 1.4, 1.0)
    bow = 4 * t * (1 - t) * (BEND * aside * bends[:, None])[:, None, :]
    lines: Array = start[:, None] + t * way[:, None] + bow
    return lines


def _arrows(ax: Axes, lines: Array, collection: Any, *, keep_both: bool, both: Array, width: Array) -> None:
    """Mark which way lines go: all where both ways are drawn, else those that go one way only."""
    from matplotlib.collections import PolyCollection

    marked = np.flatnonzero(np.ones(len(both), dtype=bool) if keep_both else ~both)
    if not len(marked):
        return
    middle = lines.shape[1] // 2
    ahead = lines[marked, -1] - lines[marked, 0]
    length = np.maximum(np.hypot(ahead[:, 0], ahead[:, 1]), 1e-12)[:, None]
    tip = lines[marked, 0] + 0.55 * ahead if lines.shape[1] == 2 else lines[marked, middle]
    unit = ahead / length
    size = np.minimum(0.018 * np.clip(width[marked], 0.6, 1.2)[:, None], 0.12 * length)
    side = np.stack([-unit[:, 1], unit[:, 0]], axis=1) * size * 0.62
    shapes: Any = np.stack([tip + unit * size, tip - unit * size + side, tip - unit * size - side], axis=1)
    collection.update_scalarmappable()
    colours = np.resize(collection.get_edgecolor(), (len(lines), 4))[marked]
    ax.add_collection(PolyCollection(shapes, facecolors=colours, edgecolors="none", zorder=1.5), autolim=False)


def _nodes(ax: Axes, machine: Topology, groups: Groups) -> None:
    """Draw devices, a mark a kind; larger ones for several."""
    kinds = list(dict.fromkeys(groups.kinds))
    points = min(points_of(ax))
    several = np.sqrt(groups.size / max(1, int(groups.size.max())))
    for number, kind in enumerate(kinds):
        here = np.flatnonzero(np.array([k == kind for k in groups.kinds]))
        place = groups.positions[here]
        size = float(np.clip(0.7 * points * _nearest(place), 1.2, 20 if groups.note else 13))
        sizes: Any = np.full(len(here), size**2) * (0.3 + 0.7 * several[here] if groups.note else 1)
        ax.scatter(
            place[:, 0], place[:, 1], s=sizes, marker=_mark(kind, number), color=_node_colour(kind, number),
            label=kind, zorder=3, edgecolors="white", linewidths=0.4 if groups.count <= 200 else 0,
        )  # fmt: skip


def _nearest(place: Array) -> float:
    """Return the least distance of two places."""
    if len(place) < 2:
        return 1.0
    from scipy.spatial import cKDTree

    return float(cKDTree(place).query(place, k=2)[0][:, 1].min())


def _mark(kind: str, number: int) -> str:
    return MARKS.get(kind, "v^<>p"[number % 5])


def _node_colour(kind: str, number: int) -> str:
    return NODE_COLOURS.get(kind, DISTINCT[(number + 2) % len(DISTINCT)])


def _names(ax: Axes, machine: Topology, groups: Groups) -> None:
    """Write names below the devices, or outside of a circle of them."""
    few = groups.count <= 20
    for name, (x, y) in zip(groups.names, groups.positions.tolist(), strict=True):
        ax.annotate(
            name.replace("$", r"\$"), (x, y), xytext=(0, -9 if few else -6), textcoords="offset points", ha="center",
            va="top", fontsize=8 if few else 6, color="0.25", zorder=4,
            bbox={"boxstyle": "square,pad=0.05", "facecolor": "white", "alpha": 0.7, "edgecolor": "none"},
        )  # fmt: skip


def _kind_colour(number: int) -> str:
    return ("#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#E69F00", "#0072B2")[number % 6]


def _key(ax: Axes, machine: Topology, groups: Groups, links: dict[int, str]) -> None:
    """Name kinds of devices and of links below the picture."""
    from matplotlib.lines import Line2D

    keys: list[Any] = []
    kinds = list(dict.fromkeys(groups.kinds))
    for number, kind in enumerate(kinds[:KEYS] if len(kinds) > 1 else []):
        colour = _node_colour(kind, number)
        keys.append(Line2D([], [], marker=_mark(kind, number), color=colour, linestyle="none", label=kind))
    for code, colour in list(links.items())[:KEYS]:
        rates = np.unique(machine.link_bandwidth[machine.link_kind_codes == code]).tolist()
        rate = " to ".join(dict.fromkeys(format_bandwidth(rate) for rate in (rates[0], rates[-1])))
        name = machine.link_kind_names[code] or "link"
        keys.append(Line2D([], [], color=colour, linewidth=2.5, label=f"{name} {rate}"))
    if keys:
        ax.legend(
            handles=keys, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=min(len(keys), 4), frameon=False,
            fontsize="small", columnspacing=1.4, handletextpad=0.4,
        )  # fmt: skip
