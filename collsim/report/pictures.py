"""The pictures of a report, each for wide and for narrow windows, with a text that says what is to be seen."""

from __future__ import annotations

import base64
import io
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collsim import plot
from collsim.outputs import write_whole
from collsim.plot.common import new_axes
from collsim.report.words import count, percent, us
from collsim.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from collsim.engine.result import Result
    from collsim.report.runs import Runs

__all__ = ["Picture", "pictures", "save"]

LARGEST_SVG = 200_000
"""Bytes above which a picture is written as pixels if that is smaller."""
DPI = 150
NARROW = 4.4
"""Inches of a picture for narrow windows."""
MOST_TICKS = 6
"""Sizes that fit along the axis of such a picture."""
MOST_LINKS = 32
"""Rows of the heat map."""
MOST_THEORIES = 4
"""Algorithms whose theory is drawn."""


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture of a report.

    Attributes
    ----------
    name
        What it is called in files and in the page.
    alt
        What is to be seen, for those who cannot see it.
    wide, narrow
        The picture as ``data:`` addresses.
    axes
        The axes of the wide one.
    """

    name: str
    alt: str
    wide: str
    narrow: str
    axes: Axes


def pictures(runs: Runs, *, with_timeline: bool) -> tuple[dict[str, Picture], dict[str, str]]:
    """Return the pictures by name, and of those that cannot be drawn why not.

    Parameters
    ----------
    runs
        What the report is about.
    with_timeline
        Whether to draw the timeline.
    """
    last = runs.largest
    found: dict[str, Picture] = {}
    missing: dict[str, str] = {}
    curves = {name: [r for r in by_size.values() if r.size] for name, by_size in runs.results.items()}
    curves = {name: results for name, results in curves.items() if results}
    if runs.operation != "barrier" and any(result.busbw for results in curves.values() for result in results):
        theory = _theories(curves)

        def curve(ax: Axes | None) -> Axes:
            return plot.bandwidth_curve(curves, measured=theory or None, ax=ax)

        found["bandwidth"] = _picture("bandwidth", curve, _curve_words(runs))
    else:
        missing["bandwidth"] = "no data moves, so there is no bandwidth to draw"
    recorded = [result for result in runs.detailed.values() if result.has_records]
    few = f"the times of {count(last.transfers, 'transfer')} are too many to keep"
    if recorded and last.transfers:
        found["costs"] = _picture("costs", lambda ax: plot.cost_breakdown(recorded, ax=ax), _cost_words(recorded))
        if len(recorded) < len(runs.detailed):
            missing["costs"] = (
                f"Only {len(recorded)} of {len(runs.detailed)} sizes are drawn, since the times of more "
                "transfers are too many to keep"
            )
    else:
        missing["costs"] = few if last.transfers else "no transfer is needed"
    found["topology"] = _picture("topology", lambda ax: plot.topology(last, ax=ax), _machine_words(last))
    if not last.has_records:
        missing["heatmap"] = few
    elif not last.link_bytes.any():
        missing["heatmap"] = "no bytes cross a link"
    else:
        found["heatmap"] = _picture(
            "heatmap", lambda ax: plot.link_heatmap(last, most=MOST_LINKS, ax=ax), _heat_words(last)
        )
    if with_timeline and last.has_records and last.transfers:
        where = f"{runs.name} at {format_size(last.size)}"
        words = f"Timeline of {where}: a row a sending rank, a bar a transfer, coloured by step."
        found["timeline"] = _picture("timeline", lambda ax: plot.timeline(last, ax=ax), words)
    return found, missing


def save(picture: Picture, folder: str | os.PathLike[str], suffix: str) -> str:
    """Write a picture beside the report, and return its path."""
    path = os.path.join(folder, f"{picture.name}.{suffix}")
    write_whole(path, _saved(picture.axes.figure.figure, suffix), "figures")
    return path


def _picture(name: str, draw: Callable[[Axes | None], Axes], alt: str) -> Picture:
    ax = draw(None)
    height = float(ax.figure.figure.get_size_inches()[1])
    rows = name in ("heatmap", "timeline")
    small = draw(new_axes(NARROW, height if rows else min(height, 4.6)))
    _slim(small, rows=rows)
    return Picture(name, alt, _encode(ax), _encode(small), ax)


def _slim(ax: Axes, *, rows: bool) -> None:
    """Make room where there is little: smaller names of rows without a title, or fewer sizes along the axis."""
    if rows:
        ax.tick_params(axis="y", labelsize=6)
        ax.set_ylabel("")
        ax.set_title("", loc="left")
        return
    ax.tick_params(axis="x", labelsize=8)
    ticks, labels = ax.get_xticks(), [label.get_text() for label in ax.get_xticklabels()]
    if len(ticks) > MOST_TICKS:
        ax.set_xticks(ticks[::2], labels=labels[::2])


def _encode(ax: Axes) -> str:
    """Return a picture as an address that holds it: as lines, or as pixels where those are fewer bytes."""
    kind, data = "svg+xml", _saved(ax.figure.figure, "svg")
    if len(data) > LARGEST_SVG:
        pixels = _saved(ax.figure.figure, "png")
        if len(pixels) < len(data):
            kind, data = "png", pixels
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _saved(figure: Any, kind: str) -> bytes:
    import matplotlib

    # no date and no random names: the same run makes the same file
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {}
    out = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "collsim"}), warnings.catch_warnings():
        # letters that the font does not have are boxes, and names may be as long as they like
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="constrained_layout not applied")
        figure.savefig(out, format=kind, dpi=DPI, metadata=metadata)
    return out.getvalue()


def _theories(curves: dict[str, list[Result]]) -> dict[str, list[tuple[float, float]]]:
    """Return the points of theory of each algorithm that has a closed form."""
    found = {}
    for name, results in curves.items():
        points = [
            (float(r.size), r.size / float(r.theory) * r.schedule.collective.busbw_factor)
            for r in results
            if r.theory is not None and r.theory
        ]
        if points:
            found["theory" if len(curves) == 1 else f"theory of {name}"] = points
    return found if len(found) <= MOST_THEORIES else {}


def _curve_words(runs: Runs) -> str:
    words = []
    for name, by_size in runs.results.items():
        first, last = by_size[min(by_size)], by_size[max(by_size)]
        words.append(
            f"{name} from {first.busbw / 1e9:.2f} GB/s at {format_size(first.size)} to {last.busbw / 1e9:.2f} GB/s at "
            f"{format_size(last.size)}"
        )
    last = runs.largest
    limit = (
        f"; the bound allows {last.busbw * last.time / float(last.bound) / 1e9:.2f} GB/s at {format_size(last.size)}"
        if last.bound
        else ""
    )
    return f"Bus bandwidth against message size: {'; '.join(words)}{limit}."


def _cost_words(results: list[Result]) -> str:
    def one(result: Result) -> str:
        parts = sorted(((ps, name) for name, ps in result.breakdown_ps.items() if ps), reverse=True)
        shares = ", ".join(f"{percent(ps / result.time_ps)} {name}" for ps, name in parts) or "no time passes"
        return f"{format_size(result.size)}: {us(result.time)} us, {shares}"

    return f"What the time goes to along the critical path. {'; '.join(map(one, results))}."


def _machine_words(result: Result) -> str:
    machine, busy = result.topology, result.link_busy_ps
    what = f"The machine {machine.name} with {count(machine.n_nodes, 'device')} and {count(machine.n_links, 'link')}"
    if not busy.any():
        return f"{what}; no link is used."
    top = int(busy.argmax())
    return (
        f"{what}, coloured by how busy they are: {np.count_nonzero(busy):,} are used, the busiest is "
        f"{machine.link_name(top)} with {percent(int(busy[top]) / max(1, result.time_ps))} of the time."
    )


def _heat_words(result: Result) -> str:
    busy = result.link_busy_ps[result.link_bytes > 0] / max(1, result.time_ps)
    least, half, most = (percent(float(part)) for part in np.quantile(busy, (0, 0.5, 1)))
    return (
        f"How busy links are over the {us(result.time)} us of {format_size(result.size)}: a row a link, a column a bit "
        f"of time. Over the whole time {count(len(busy), 'link')} that are used are busy {least} to {most}, "
        f"half of them at least {half}."
    )
