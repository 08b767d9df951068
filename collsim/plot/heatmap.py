"""The heat map: how busy each link is over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError
from collsim.plot.common import colour_bar, heading, load_scale, name_rows, new_axes, percent_ticks, set_title, unit_of
from collsim.plot.rows import link_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from collsim.engine.result import Result

__all__ = ["link_heatmap", "utilisation"]

Array = npt.NDArray[Any]

MOST_ROWS = 64
MOST_CELLS = 20_000_000


def link_heatmap(
    result: Result, *, bins: int = 200, by: str = "auto", most: int = MOST_ROWS, ax: Axes | None = None, **kwargs: Any
) -> Axes:
    """Draw how busy links are over time: a row a link, a cell a bin of time, its colour the part that the link is held.

    Parameters
    ----------
    result
        A run with records.
    bins
        Parts that the time is cut into.
    by
        ``"link"``: all links that are used. ``"busiest"``: at most ``most`` of them, the busiest on top. ``"node"``:
        the links that leave each node of a cluster together; ``"kind"``: those of each kind together. ``"auto"``: all
        if they are at most ``most``, else the busiest. The title says what was left out or taken together.
    most
        Rows at the most (``"link"`` draws all).
    ax
        Where to draw; without it a figure of its own is made.
    **kwargs
        For the `matplotlib.image.AxesImage`, such as ``cmap`` or ``vmax``.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into. Values are parts of the time: 1 is a link that is never free. In ``alpha_beta``, which
        shares nothing, they may be greater; in ``fluid`` a little, since records tell the mean rate of a message only.

    Raises
    ------
    InputError
        If ``bins``, ``by`` or ``most`` is not possible, or the run uses no links.
    CollsimError
        If the run kept no records.

    Examples
    --------
    >>> import collsim
    >>> topology = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    >>> result = collsim.run("all_reduce", topology, size="1MiB", algorithm="ring")
    >>> ax = link_heatmap(result, bins=50)
    >>> ax.images[0].get_array().shape
    (4, 50)
    """
    if isinstance(bins, bool) or not isinstance(bins, (int, np.integer)) or bins < 1:
        raise InputError(f"link_heatmap: bins: expected a whole number from 1, got {bins!r}")
    rows = link_rows(result, "link_heatmap", by, most)
    if len(rows.names) * int(bins) > MOST_CELLS:
        raise InputError(
            f"link_heatmap: bins: {len(rows.names):,} rows of {bins:,} are more than {MOST_CELLS:,} cells; "
            "expected fewer, or by='busiest'"
        )
    table = utilisation(result, rows.row, rows.weight, len(rows.names), int(bins))
    if ax is None:
        ax = new_axes(9.0, min(max(2.6, 1.4 + 0.17 * len(rows.names)), 13.0))
    unit, unit_name = unit_of(max(result.time_ps, 1))
    last = max(result.time_ps, 1) / unit
    given = {name: value for name, value in kwargs.items() if name not in ("cmap", "vmin", "vmax")}
    greatest = float(table.max()) if result.network == "alpha_beta" else 1.0
    extent = (0, last, len(rows.names) - 0.5, -0.5)
    style = {"aspect": "auto", "interpolation": "nearest", "extent": extent, **load_scale(kwargs, greatest)}
    image = ax.imshow(table, **{**style, **given})
    name_rows(ax, rows.names)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(f"time ({unit_name})", loc="left")
    ax.set_ylabel(rows.what)
    set_title(ax, heading(result, rows.note))
    ax.spines[["top", "right", "left"]].set_visible(False)
    bar = colour_bar(ax, image, "utilisation")
    percent_ticks(bar)
    return ax


def utilisation(result: Result, row: Array, weight: Array, rows: int, bins: int) -> Array:
    """Return which part of each bin of time the links of each row are held, shaped (rows, bins).

    Parameters
    ----------
    result
        A run with records.
    row, weight
        By link of the topology: the row that it belongs to (-1: none) and its share of it.
    rows, bins
        The shape.
    """
    from collsim.engine.program import LINK

    program, times = result.program, result.times
    on_link = np.flatnonzero(program.station_kind[program.visit_station] == LINK)
    link = program.station_index[program.visit_station[on_link]]
    on_link, link = on_link[row[link] >= 0], link[row[link] >= 0]
    start, busy = times.visit_start[on_link], program.visit_busy[on_link].astype(float)
    # where messages share a link, the time that one needs alone is spread over all the time that it takes
    end = times.visit_end[on_link] if result.network == "fluid" else start + program.visit_busy[on_link]
    part = weight[link] * busy / np.maximum(end - start, 1)
    width = max(result.time_ps, 1) / bins
    first = np.minimum((start / width).astype(np.int64), bins - 1)
    last = np.minimum((end / width).astype(np.int64), bins - 1)
    base = row[link].astype(np.int64) * bins
    held = np.zeros(rows * bins)
    inside = np.minimum(end, (first + 1) * width) - start
    np.add.at(held, base + first, part * np.where(first == last, end - start, inside))
    across = last > first
    np.add.at(held, (base + last)[across], (part * (end - last * width))[across])
    # whole bins between the first and the last: where they begin and end
    change = np.zeros(rows * bins + 1)
    np.add.at(change, (base + first)[across] + 1, part[across] * width)
    np.add.at(change, (base + last)[across], -part[across] * width)
    found: Array = (held + np.cumsum(change)[:-1]).reshape(rows, bins) / width
    return np.maximum(found, 0.0)
