"""The timeline of a run: a row a rank or a link, a bar a transfer."""

from __future__ import annotations

import io
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError, one_of
from collsim.plot.bars import COPY_HEIGHT, REDUCE_HEIGHT, Bars, collect, corners, join
from collsim.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    from collsim.engine.result import Result

__all__ = ["check_picture_path", "save_timeline", "timeline"]

Array = npt.NDArray[Any]

ROWS = ("rank", "link")
COLORS = ("step", "chunk", "channel")
FORMATS = (".pdf", ".png", ".svg")

MOST_COLORS = 12  # more values than this are drawn as a continuous scale
MOST_LABELS = 64  # more bars than this carry no numbers
UNITS = ((10**12, "s"), (10**9, "ms"), (10**6, "us"), (10**3, "ns"), (1, "ps"))
# Okabe and Ito's colours without black: told apart with any kind of colour vision
DISTINCT = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")


def timeline(
    result: Result,
    *,
    ax: Axes | None = None,
    rows: str = "rank",
    color: str = "step",
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
    color
        ``"step"``, ``"chunk"`` (the first one of a transfer) or ``"channel"``.
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
        If there is nothing to draw, or ``rows`` or ``color`` is not one of the above.

    Notes
    -----
    Above 200,000 bars, neighbours too narrow to be told apart are drawn as one, and the title says so.

    Examples
    --------
    >>> import collsim
    >>> topology = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    >>> result = collsim.run("all_reduce", topology, size="1MiB", algorithm="ring")
    >>> ax = timeline(result, color="chunk")
    >>> [label.get_text() for label in ax.get_yticklabels()] == list(topology.ranks)
    True
    """
    from matplotlib.collections import PolyCollection

    one_of("timeline: rows", rows, ROWS)
    one_of("timeline: color", color, COLORS)
    bars, names = collect(result, rows, color)
    lanes = np.ones(len(names), dtype=np.int64)
    np.maximum.at(lanes, bars.row, bars.lane + 1)
    drawn = join(bars, lanes)

    if ax is None:
        ax = _new_axes(len(names), float(lanes.mean()))
    span = max(int(bars.end.max()), result.time_ps, 1)
    unit, unit_name = next(((ps, name) for ps, name in UNITS if span >= ps), UNITS[-1])
    wide, high = _points(ax)
    point = len(names) / high  # height of a point in rows
    thin = point > 0.25
    shapes: Any = corners(drawn, lanes, span, unit, point, thin=thin)
    values = {} if {"color", "facecolor", "facecolors", "fc"} & kwargs.keys() else _scale(drawn.value, color, kwargs)
    few = len(drawn.row) <= 1000 and not thin  # white borders part bars that touch; among many they would hide them
    style: dict[str, Any] = {"edgecolors": "white" if few else "none", "linewidths": 0.5 if few else 0.0}
    style = {name: value for name, value in style.items() if not _ALIASES[name] & kwargs.keys()}
    collection = PolyCollection(shapes, **{**style, **kwargs, **values})
    ax.add_collection(collection, autolim=False)
    ax.set_xlim(0, span / unit)
    ax.set_ylim(len(names) - 0.5, -0.5)

    numbered = legend and _number(ax, collection, drawn, shapes)
    _name_rows(ax, names)
    ax.set_ylabel("sending rank" if rows == "rank" else "link")
    explained = numbered and wide > 320  # else it would run into the key of the heights
    ax.set_xlabel(f"time ({unit_name})" + (", numbers are chunks" if explained else ""), loc="left")
    lines = _title(result, unit, unit_name, joined=len(drawn.row) < len(bars.row))
    ax.set_title("\n".join(lines if high > 130 else lines[:1]), loc="left", fontsize="medium")
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right"]].set_visible(False)
    if legend:
        if values:
            _color_key(ax, collection, drawn.value, color)
        if not thin:
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
    target = check_picture_path(path)
    ax = timeline(result, **kwargs)
    picture = io.BytesIO()
    ax.figure.figure.savefig(picture, format=target.suffix.lower()[1:], dpi=150)
    partial_file = target.with_name(f".{os.getpid()}.part")
    try:
        partial_file.write_bytes(picture.getbuffer())
        os.replace(partial_file, target)
    except KeyboardInterrupt:
        partial_file.unlink(missing_ok=True)
        raise
    except OSError as error:
        partial_file.unlink(missing_ok=True)
        raise InputError(f"plot: {path}: cannot be written: {error.strerror}") from error


def check_picture_path(path: str | os.PathLike[str]) -> Path:
    """Refuse a path that `save_timeline` could not write, before time is spent on a run.

    Parameters
    ----------
    path
        The file to write.

    Returns
    -------
    pathlib.Path
        The file that is meant (links followed).

    Raises
    ------
    InputError
        If the suffix is not a known one, or there is no such directory, or the path is one.

    Examples
    --------
    >>> check_picture_path("timeline.svg").name
    'timeline.svg'
    """
    target = Path(os.path.realpath(path))
    if Path(path).suffix.lower() not in FORMATS:
        raise InputError(f"plot: {os.fspath(path)}: expected a name that ends in .pdf, .png or .svg")
    if not os.path.isdir(target.parent):
        raise InputError(f"plot: {os.fspath(path)}: no such directory; make it first")
    if os.path.isdir(target):
        raise InputError(f"plot: {os.fspath(path)}: expected a file, got a directory")
    return target


_ALIASES = {
    "edgecolors": {"edgecolors", "edgecolor", "ec", "color"},
    "linewidths": {"linewidths", "linewidth", "lw"},
}


def _new_axes(rows: int, lanes: float) -> Axes:
    """Axes in a figure of their own that pyplot does not keep alive."""
    from matplotlib.figure import Figure

    height = 1.4 + 0.3 * rows * min(max(1.0, 0.5 * lanes), 3.0)
    figure = Figure(figsize=(9.0, min(max(2.6, height), 13.0)), layout="constrained")
    ax = figure.add_subplot()
    # notebooks look for this method; it shows the axes as pyplot would, without pyplot's list of open figures
    ax._repr_png_ = partial(_png, figure)  # type: ignore[attr-defined]
    return ax


def _png(figure: Figure) -> bytes:
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue()


def _scale(value: Array, color: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the collection properties that colour each bar by its value."""
    from matplotlib import colormaps
    from matplotlib.colors import BoundaryNorm, ListedColormap

    distinct = np.unique(value)
    cmap: Colormap = colormaps.get_cmap(kwargs.get("cmap", "viridis"))
    if "norm" in kwargs or len(distinct) > MOST_COLORS:
        return {"array": value, "cmap": cmap}
    if "cmap" not in kwargs and color != "step" and len(distinct) <= len(DISTINCT):
        colors: Any = list(DISTINCT[: len(distinct)])  # a pair in a tuple would be read as colour and opacity
    else:
        colors = cmap(np.linspace(0, 1 if "cmap" in kwargs else 0.93, len(distinct)))
    norm = BoundaryNorm(np.arange(len(distinct) + 1) - 0.5, len(distinct))
    return {"array": np.searchsorted(distinct, value), "cmap": ListedColormap(colors), "norm": norm}


def _color_key(ax: Axes, collection: PolyCollection, value: Array, color: str) -> None:
    """Put a bar of colours beside the axes; it takes its room from them, so is never cut off."""
    from matplotlib.colors import BoundaryNorm
    from matplotlib.ticker import MaxNLocator

    distinct = np.unique(value)
    if len(distinct) < 2:
        return
    height = _points(ax)[1]
    bar = ax.figure.colorbar(collection, ax=ax, label=color, pad=0.02, fraction=0.05, aspect=max(6.0, height / 9))
    if isinstance(collection.norm, BoundaryNorm) and len(distinct) <= MOST_COLORS:
        bar.set_ticks(range(len(distinct)), labels=[str(number) for number in distinct])
        bar.ax.tick_params(length=0)
        bar.minorticks_off()
    else:
        bar.locator = MaxNLocator(nbins=8, integer=True)
        bar.update_ticks()
    bar.ax.invert_yaxis()  # the first step on top, as the first rank
    bar.outline.set_visible(False)


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


def _points(ax: Axes) -> tuple[float, float]:
    """Rough width and height of the axes in points (a layout may still change them)."""
    points = 72 / ax.figure.dpi
    return ax.bbox.width * points, ax.bbox.height * points


def _number(ax: Axes, collection: PolyCollection, bars: Bars, shapes: Array) -> bool:
    """Write the chunk into each bar if there are few and all numbers fit; return whether it was done."""
    if len(bars.row) > MOST_LABELS:
        return False
    width, height = _points(ax)
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


def _name_rows(ax: Axes, names: list[str]) -> None:
    """Name the rows, leaving names out evenly where they would touch."""
    fits = max(1.0, _points(ax)[1] / 10)
    every = 1
    while len(names) / every > fits:
        every *= 2
    size = "small" if len(names) > 12 else "medium"
    ax.set_yticks(range(0, len(names), every), labels=names[::every], fontsize=size)


def _title(result: Result, unit: int, unit_name: str, *, joined: bool) -> tuple[str, str]:
    schedule = result.schedule
    what = " ".join(filter(None, (schedule.collective.operation, schedule.algorithm)))
    where = f"{schedule.ranks} ranks on {result.topology.name}, {result.network}"
    took = f"{format_size(result.size)} in {result.time_ps / unit:.4g} {unit_name}"
    return f"{what}, {took}", where + (", neighbouring bars joined" if joined else "")
