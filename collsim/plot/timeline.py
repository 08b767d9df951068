"""The timeline of a run: a row a rank or a link, a bar a transfer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError, one_of
from collsim.plot.bars import COPY_HEIGHT, KINDS, REDUCE_HEIGHT, Bars, collect, corners, join, sample
from collsim.plot.common import (
    IDLE,
    check_picture_path,
    colour_bar,
    heading,
    name_rows,
    new_axes,
    points_of,
    save_picture,
    scale_of,
    set_title,
    unit_of,
    without,
)
from collsim.units import Quantity, format_time, parse_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection

    from collsim.engine.result import Result

__all__ = ["COLOURS", "check_picture_path", "save_timeline", "timeline"]

Array = npt.NDArray[Any]

ROWS = ("rank", "link")
COLOURS = ("step", "chunk", "channel", "kind", "critical")
WORDS = {"kind": KINDS, "critical": ("others", "critical path")}

MOST_COLORS = 12  # more values than this are drawn as a continuous scale
MOST_LABELS = 64  # more bars than this carry no numbers
THINNEST = 0.75  # points of a row; of thinner ones some are left out


def timeline(
    result: Result,
    *,
    ax: Axes | None = None,
    rows: str = "rank",
    colour: str = "step",
    start: Quantity | None = None,
    end: Quantity | None = None,
    legend: bool = True,
    **kwargs: Any,
) -> Axes:
    """Draw who sends when: a bar a transfer, tall where the receiver reduces, slim where it copies (rows permitting).

    Parameters
    ----------
    result
        A run with records.
    ax
        Where to draw. Without it a figure of fitting size is made, which pyplot does not know: save it by
        ``ax.figure.savefig(...)``, or let a notebook show the returned axes. For a window pass axes of pyplot.
    rows
        ``"rank"``: a row a rank, with what it sends from start to end (latency included). ``"link"``: a row a link
        that is used, with the time that it is held. Bars that overlap within a row are stacked in lanes.
    colour
        ``"step"``, ``"chunk"`` (the first one of a transfer), ``"channel"``, ``"kind"`` (reduce, copy, or a copy
        within a rank) or ``"critical"`` (the transfers of the critical path stand out). ``color`` does as well.
    start, end
        The part of the time to look at, such as ``"10us"`` (numbers are seconds); all of it if not given.
    legend
        Whether to explain colours and heights.
    **kwargs
        For the `matplotlib.collections.PolyCollection` of all bars, such as ``cmap``, ``alpha`` or ``facecolor``.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into. The horizontal axis is in the unit that its label names.

    Raises
    ------
    InputError
        If there is nothing to draw, ``rows`` or ``colour`` is not one of the above, or ``end`` is not after ``start``.
    CollsimError
        If the run kept no records.

    Notes
    -----
    Above 200,000 bars, neighbours too narrow to be told apart are drawn as one; of rows too thin to be told apart only
    every second, third, ... is drawn. The title says so. Look closer by ``start`` and ``end``.

    Examples
    --------
    >>> import collsim
    >>> topology = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    >>> result = collsim.run("all_reduce", topology, size="1MiB", algorithm="ring")
    >>> ax = timeline(result, colour="chunk")
    >>> [label.get_text() for label in ax.get_yticklabels()] == list(topology.ranks)
    True
    >>> print(*timeline(result, start="10us", end="20us").get_xlim())
    10.0 20.0
    """
    from matplotlib.collections import PolyCollection

    spelled = "colour"
    if isinstance(kwargs.get("color"), str) and (kwargs["color"] in COLOURS or not _is_colour(kwargs["color"])):
        spelled, colour = "color", kwargs.pop("color")
    one_of("timeline: rows", rows, ROWS)
    one_of(f"timeline: {spelled}", colour, COLOURS)
    window = _window(result, start, end)
    bars, names = collect(result, rows, colour, window)
    lanes = np.ones(len(names), dtype=np.int64)
    np.maximum.at(lanes, bars.row, bars.lane + 1)
    if ax is None:
        ax = _new_axes(len(names), float(lanes.mean()))
    wide, high = points_of(ax)
    seen, every = sample(bars, len(names), high / THINNEST, keep=bars.value > 0 if colour == "critical" else None)
    drawn = join(seen, lanes, keep_greatest=colour == "critical")
    if colour == "critical":
        drawn = drawn.take(np.argsort(drawn.value, kind="stable"))  # the path on top

    first, last = (0, max(int(bars.end.max()), result.time_ps, 1)) if window is None else window
    unit, unit_name = unit_of(last - first if window is not None and first else last)
    point = len(names) / high  # height of a point in rows
    thin = point > 0.25
    shapes: Any = corners(drawn, lanes, last - first, unit, point, thin=thin, every=every)
    distinct = np.arange(2) if colour == "critical" else np.unique(drawn.value)
    values = (
        {} if {"color", "facecolor", "facecolors", "fc"} & kwargs.keys() else _scale(drawn, distinct, colour, kwargs)
    )
    few = len(drawn.row) <= 1000 and not thin  # white borders part bars that touch; among many they would hide them
    style = without(kwargs, edgecolors="white" if few else "none", linewidths=0.5 if few else 0.0)
    collection = PolyCollection(shapes, **{**style, **kwargs, **values})
    ax.add_collection(collection, autolim=False)
    ax.set_xlim(first / unit, last / unit)
    ax.set_ylim(len(names) - 0.5, -0.5)

    numbered = legend and _number(ax, collection, drawn, shapes)
    name_rows(ax, names, every)
    ax.set_ylabel("sending rank" if rows == "rank" else "link")
    explained = numbered and wide > 320  # else it would run into the key of the heights
    ax.set_xlabel(f"time ({unit_name})" + (", numbers are chunks" if explained else ""), loc="left")
    joined = "neighbouring bars joined" if len(drawn.row) < len(seen.row) else ""
    some = "" if every == 1 else f"every {_ordinal(every)} of {len(names):,} {rows}s"
    set_title(ax, heading(result, some, joined))
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right"]].set_visible(False)
    if legend:
        if values:
            _colour_key(ax, collection, distinct, colour)
        if not thin and wide > 150:
            _height_key(ax, drawn.reduce)
    return ax


def save_timeline(result: Result, path: str | os.PathLike[str], **kwargs: Any) -> None:
    """Write the timeline of a run to a file, in the format that the suffix names.

    Parameters
    ----------
    result
        A run with records.
    path
        A file that ends in ``.png``, ``.svg`` or ``.pdf``. It is replaced at once or not at all.
    **kwargs
        For `timeline`.

    Raises
    ------
    InputError
        If the suffix is another one, the file cannot be written, or there is nothing to draw.

    Examples
    --------
    >>> save_timeline(None, "timeline.gif")
    Traceback (most recent call last):
        ...
    collsim.errors.InputError: plot: timeline.gif: expected a name that ends in .pdf, .png or .svg
    """
    check_picture_path(path)
    save_picture(timeline(result, **kwargs), path)


def _window(result: Result, start: Quantity | None, end: Quantity | None) -> tuple[int, int] | None:
    """Return the part of the time to draw, in picoseconds; None for all of it."""
    if start is None and end is None:
        return None
    first = 0 if start is None else _time("start", start)
    last = max(result.time_ps, 1) if end is None else _time("end", end)
    if first >= last:
        what = "the end of the run" if end is None else "end"
        raise InputError(f"timeline: start: expected a time before {what} at {format_time(last)}, got {start!r}")
    return first, last


def _time(name: str, value: Quantity) -> int:
    try:
        return parse_time(value)
    except InputError as error:
        raise InputError(f"timeline: {name}: {error}") from None


def _is_colour(text: str) -> bool:
    from matplotlib.colors import is_color_like

    return bool(is_color_like(text))


def _ordinal(number: int) -> str:
    return {1: "", 2: "second", 3: "third"}.get(number, f"{number}th")


def _new_axes(rows: int, lanes: float) -> Axes:
    height = 1.4 + 0.3 * rows * min(max(1.0, 0.5 * lanes), 3.0)
    return new_axes(9.0, min(max(2.6, height), 13.0))


def _scale(bars: Bars, distinct: Array, colour: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the collection properties that colour each bar by its value."""
    from matplotlib import colormaps
    from matplotlib.colors import BoundaryNorm, ListedColormap

    if colour == "critical" and "cmap" not in kwargs:
        return {
            "array": bars.value,
            "cmap": ListedColormap([IDLE, "#D55E00"]),
            "norm": BoundaryNorm([-0.5, 0.5, 1.5], 2),
        }
    if "norm" in kwargs or len(distinct) > MOST_COLORS:
        return {"array": bars.value, "cmap": colormaps.get_cmap(kwargs.get("cmap", "viridis"))}
    return scale_of(bars.value, distinct, kwargs.get("cmap"), ordered=colour == "step")


def _colour_key(ax: Axes, collection: PolyCollection, distinct: Array, colour: str) -> None:
    """Explain the colours beside the axes."""
    from matplotlib.colors import BoundaryNorm
    from matplotlib.ticker import MaxNLocator

    if len(distinct) < 2:
        return
    label = "" if colour in WORDS else colour
    if isinstance(collection.norm, BoundaryNorm) and len(distinct) <= MOST_COLORS:
        words = WORDS.get(colour)
        names = [str(number) if words is None else words[number] for number in distinct.tolist()]
        bar = colour_bar(ax, collection, label, names)
    else:
        bar = colour_bar(ax, collection, label)
        bar.locator = MaxNLocator(nbins=8, integer=True)
        bar.update_ticks()
    bar.ax.invert_yaxis()  # the first step on top, as the first rank


def _height_key(ax: Axes, reduce: Array) -> None:
    """Say which bars are tall and which are slim, in the line of the axis label."""
    if reduce.all() or not reduce.any():
        return
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    keys = [
        Line2D([], [], color="0.45", linewidth=10 * height, solid_capstyle="butt", label=label)
        for label, height in (("reduce", REDUCE_HEIGHT), ("copy", COPY_HEIGHT))
    ]
    below = ScaledTranslation(0, -17 / 72, ax.figure.dpi_scale_trans)
    ax.legend(
        handles=keys, loc="upper right", bbox_to_anchor=(1, 0), bbox_transform=ax.transAxes + below, ncols=2,
        frameon=False, borderaxespad=0, borderpad=0, columnspacing=1.2, handlelength=1.6,
    )  # fmt: skip


def _number(ax: Axes, collection: PolyCollection, bars: Bars, shapes: Array) -> bool:
    """Write the chunk into each bar if there are few and all numbers fit; return whether it was done."""
    if len(bars.row) > MOST_LABELS:
        return False
    width, height = points_of(ax)
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    texts = [str(chunk) for chunk in bars.chunk]
    tall = np.abs(np.ptp(shapes[:, :, 1], axis=1) / (top - bottom)) * height
    wide = np.ptp(shapes[:, :, 0], axis=1) / (right - left) * width
    size = min(9.0, 0.9 * float(tall.min()))
    if size < 5 or any(room < 0.62 * size * len(text) + 3 for room, text in zip(wide, texts, strict=True)):
        return False
    collection.update_scalarmappable()
    faces = np.resize(collection.get_facecolor(), (len(texts), 4))
    for (x, y), text, face in zip(shapes.mean(axis=1), texts, faces, strict=True):
        ink = "white" if float(face[:3] @ (0.299, 0.587, 0.114)) < 0.55 else "black"
        ax.text(x, y, text, ha="center", va="center_baseline", fontsize=size, color=ink, clip_on=True)
    return True
