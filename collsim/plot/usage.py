"""Bars of how busy links were over the whole run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from collsim.plot.common import DISTINCT, heading, name_rows, new_axes, points_of, set_title, without
from collsim.plot.rows import link_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from collsim.engine.result import Result
    from collsim.plot.rows import LinkRows

__all__ = ["utilisation_bars"]

MOST_ROWS = 40


def utilisation_bars(
    result: Result, *, by: str = "auto", most: int = MOST_ROWS, ax: Axes | None = None, **kwargs: Any
) -> Axes:
    """Draw which part of the time links were held, a bar a link; records are not needed.

    Parameters
    ----------
    result
        A run.
    by, most
        As in `link_heatmap`. Bars are in order, the busiest on top.
    ax
        Where to draw; without it a figure of its own is made.
    **kwargs
        For the bars (`matplotlib.axes.Axes.barh`).

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into; widths are parts of the time.

    Raises
    ------
    InputError
        If ``by`` or ``most`` is not possible, or the run uses no links.

    Examples
    --------
    >>> import collsim
    >>> topology = collsim.topology.rail_optimized(2, 4)
    >>> result = collsim.run("all_reduce", topology, size="1MiB", algorithm="ring")
    >>> ax = utilisation_bars(result, by="kind")
    >>> len(ax.patches)
    6
    """
    from matplotlib.ticker import PercentFormatter

    rows = link_rows(result, "utilisation_bars", by, most)
    part = result.link_busy_ps / max(result.time_ps, 1)
    of_row = rows.row >= 0
    width = np.bincount(rows.row[of_row], weights=(part * rows.weight)[of_row], minlength=len(rows.names))
    order = np.argsort(-width, kind="stable")
    names = [rows.names[i] for i in order.tolist()]
    if ax is None:
        ax = new_axes(8.0, min(max(2.2, 1.3 + 0.2 * len(names)), 13.0))
    colours = _colours(result, rows)[order]
    style = without(kwargs, color=[DISTINCT[i] for i in colours % len(DISTINCT)], height=0.8)
    ax.barh(np.arange(len(names)), width[order], **{**style, **kwargs})
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlim(0, max(1.0, float(width.max())))
    ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_xlabel(
        "utilisation" + (" (part of the time that the link is held)" if points_of(ax)[0] > 280 else ""), loc="left"
    )
    ax.set_ylabel(rows.what)
    name_rows(ax, names)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="x", color="0.9")
    ax.set_axisbelow(True)
    set_title(ax, heading(result, rows.note + _rest(part, of_row & (part > 0), by)))
    if "color" in style:
        _key(ax, result, rows)
    return ax


def _rest(part: Any, shown: Any, by: str) -> str:
    """Say how busy the links are that are not drawn."""
    left = (part > 0) & ~shown
    if by not in ("auto", "busiest") or not left.any():
        return ""
    least, greatest = f"{part[left].min():.0%}", f"{part[left].max():.0%}"
    return f" (the others {least if least == greatest else f'{least} to {greatest}'})"


def _colours(result: Result, rows: LinkRows) -> Any:
    """Return the number of the kind of the links of each row."""
    kind = np.zeros(len(rows.names), dtype=np.int64)
    of_row = rows.row >= 0
    if rows.what != "links out of":
        kind[rows.row[of_row]] = result.topology.link_kind_codes[of_row]
    return kind


def _key(ax: Axes, result: Result, rows: LinkRows) -> None:
    """Name the kinds of links that the colours stand for."""
    from matplotlib.patches import Patch

    names = result.topology.link_kind_names
    kinds = np.unique(_colours(result, rows)).tolist()
    if len(kinds) < 2 or rows.what != "link":
        return
    keys = [Patch(color=DISTINCT[kind % len(DISTINCT)], label=names[kind] or "other") for kind in kinds]
    ax.legend(handles=keys, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
