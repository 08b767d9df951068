"""What all pictures have in common: new axes, colours, units, titles, and writing to files."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.outputs import output_path, write_whole
from collsim.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.figure import Figure

    from collsim.engine.result import Result

__all__ = [
    "DISTINCT",
    "IDLE",
    "check_picture_path",
    "colour_bar",
    "count_of",
    "heading",
    "load_scale",
    "name_rows",
    "new_axes",
    "percent_ticks",
    "points_of",
    "save_picture",
    "scale_of",
    "set_title",
    "unit_of",
    "without",
]

Array = npt.NDArray[Any]

FORMATS = (".pdf", ".png", ".svg")
UNITS = ((10**12, "s"), (10**9, "ms"), (10**6, "us"), (10**3, "ns"), (1, "ps"))
# Okabe and Ito's colours without black: told apart with any kind of colour vision
DISTINCT = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
IDLE = "#D0D0D0"
"""The grey of what is there but does not count."""


def new_axes(width: float, height: float) -> Axes:
    """Axes in a figure of their own, in inches, that pyplot does not keep alive."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    ax = figure.add_subplot()
    # notebooks look for this method; it shows the axes as pyplot would, without pyplot's list of open figures
    ax._repr_png_ = partial(_png, figure)  # type: ignore[attr-defined]
    return ax


def _png(figure: Figure) -> bytes:
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue()


def points_of(ax: Axes) -> tuple[float, float]:
    """Rough width and height of axes in points (a layout may still change them)."""
    points = 72 / ax.figure.dpi
    return ax.bbox.width * points, ax.bbox.height * points


def unit_of(span: int) -> tuple[int, str]:
    """Return the greatest unit of time, in picoseconds, that a span has one of, and its name."""
    return next(((ps, name) for ps, name in UNITS if span >= ps), UNITS[-1])


def heading(result: Result, *notes: str) -> list[str]:
    """Two lines of title: what was run and how long it took; where, and what else is to be said of the picture."""
    schedule = result.schedule
    unit, unit_name = unit_of(max(result.time_ps, 1))
    what = " ".join(filter(None, (schedule.collective.operation, schedule.algorithm)))
    took = f"{format_size(result.size)} in {result.time_ps / unit:.4g} {unit_name}"
    where = f"{count_of(schedule.ranks, 'rank')} on {result.topology.name}, {result.network}"
    return [f"{what}, {took}", ", ".join(filter(None, (where, *notes)))]


def set_title(ax: Axes, lines: Sequence[str], pad: float | None = None) -> None:
    """Put lines above the axes, the first only where there is little room; lines too long for the axes are broken."""
    import textwrap

    wide, high = points_of(ax)
    broken = [part.replace("$", r"\$") for line in lines for part in textwrap.wrap(line, max(20, int(wide / 5.2)))]
    ax.set_title("\n".join(broken if high > 130 else broken[:1]), loc="left", fontsize="medium", pad=pad)


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 rank``, ``1,024 ranks``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def without(kwargs: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """Return the defaults of properties that a caller did not set, under whatever alias matplotlib knows."""
    return {name: value for name, value in defaults.items() if not ALIASES.get(name, {name}) & kwargs.keys()}


ALIASES = {
    "edgecolors": {"edgecolors", "edgecolor", "ec", "color"},
    "linewidths": {"linewidths", "linewidth", "lw"},
    "linewidth": {"linewidths", "linewidth", "lw"},
    "linestyle": {"linestyle", "ls", "dashes", "linestyles"},
    "color": {"color", "c", "facecolor", "fc"},
    "colors": {"colors", "color"},
    "markersize": {"markersize", "ms"},
}


def name_rows(ax: Axes, names: Sequence[str], every: int = 1) -> None:
    """Name rows 0, 1, 2, ..., leaving names out evenly where they would touch."""
    fits = max(1.0, points_of(ax)[1] / 10)
    while len(names) / every > fits:
        every *= 2
    size = "small" if len(names) > 12 else "medium"
    ax.set_yticks(range(0, len(names), every), labels=[_shortened(name) for name in names[::every]], fontsize=size)


def _shortened(name: str, most: int = 34) -> str:
    """Cut the middle of a long name out; dollars would be read as mathematics."""
    name = name if len(name) <= most else f"{name[: most // 2 - 1]}...{name[-(most // 2 - 2) :]}"
    return name.replace("$", r"\$")


def scale_of(value: Array, distinct: Array, cmap: Any, *, ordered: bool) -> dict[str, Any]:
    """Return the collection properties that colour artists by one of a few values, which a key can name one by one.

    Parameters
    ----------
    value, distinct
        Of each artist; all there are, ascending.
    cmap
        Name of a colour map, or None for the usual ones.
    ordered
        Whether the values follow each other, so that colours should too.
    """
    from matplotlib import colormaps
    from matplotlib.colors import BoundaryNorm, ListedColormap

    if cmap is None and not ordered and len(distinct) <= len(DISTINCT):
        colours: Any = list(DISTINCT[: len(distinct)])  # a pair in a tuple would be read as colour and opacity
    else:
        colours = colormaps.get_cmap(cmap or "viridis")(np.linspace(0, 0.93 if cmap is None else 1, len(distinct)))
    norm = BoundaryNorm(np.arange(len(distinct) + 1) - 0.5, len(distinct))
    return {"array": np.searchsorted(distinct, value), "cmap": ListedColormap(colours), "norm": norm}


def colour_bar(ax: Axes, artist: Any, label: str, names: Sequence[str] | None = None) -> Colorbar:
    """Put a bar of colours beside the axes; it takes its room from them, so is never cut off."""
    from matplotlib.ticker import MaxNLocator

    aspect = max(6.0, points_of(ax)[1] / 9)
    bar = ax.figure.colorbar(artist, ax=ax, label=label, pad=0.02, fraction=0.05, aspect=aspect)
    if names is not None:
        bar.set_ticks(range(len(names)), labels=list(names))
        bar.ax.tick_params(length=0)
        bar.minorticks_off()
    else:
        bar.locator = MaxNLocator(nbins=8)
        bar.update_ticks()
    bar.outline.set_visible(False)
    return bar


def load_scale(kwargs: dict[str, Any], greatest: float) -> dict[str, Any]:
    """Return how loads are coloured unless a caller says otherwise: grey where there is none, the busier the darker."""
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    found: dict[str, Any] = {"cmap": colormaps.get_cmap(kwargs.get("cmap", "viridis_r")).with_extremes(under=IDLE)}
    if "norm" not in kwargs:
        # what is below is idle
        found["norm"] = Normalize(kwargs.get("vmin", 1e-9), kwargs.get("vmax", max(1.0, greatest)))
    return found


def percent_ticks(bar: Colorbar) -> None:
    """Mark parts of a whole on a bar of colours."""
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    bar.locator = MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10])
    bar.formatter = PercentFormatter(1.0, decimals=0)
    bar.update_ticks()


def check_picture_path(path: str | os.PathLike[str]) -> Path:
    """Refuse a path for a picture that cannot be written, before time is spent; see `collsim.outputs.output_path`."""
    return output_path(path, "plot", FORMATS)


def save_picture(ax: Axes, path: str | os.PathLike[str]) -> None:
    """Write the figure of some axes to a file, in the format that the suffix names; at once or not at all.

    Raises
    ------
    InputError
        If the suffix is another than ``.png``, ``.svg`` or ``.pdf``, or the file cannot be written.

    Examples
    --------
    >>> save_picture(new_axes(3, 2), "machine.gif")
    Traceback (most recent call last):
        ...
    collsim.errors.InputError: plot: machine.gif: expected a name that ends in .pdf, .png or .svg
    """
    target = check_picture_path(path)
    picture = io.BytesIO()
    ax.figure.figure.savefig(picture, format=target.suffix.lower()[1:], dpi=150)
    write_whole(path, picture.getbuffer(), "plot")
