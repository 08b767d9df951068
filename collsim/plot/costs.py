"""What the time goes to, size by size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from collsim.errors import InputError
from collsim.plot.common import count_of, new_axes, points_of, set_title, unit_of, without
from collsim.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from collsim.engine.result import Result

__all__ = ["cost_breakdown"]

COLOURS = {
    "latency": "#56B4E9", "serialisation": "#0072B2", "queueing": "#D55E00", "reduction": "#009E73",
    "overhead": "#E69F00", "pacing": "#CC79A7",
}  # fmt: skip
MOST_ON_A_LINE = 6  # bars whose times have their unit beside them
HATCHES = {"queueing": "//", "pacing": ".."}


def cost_breakdown(
    results: Result | Iterable[Result] | Mapping[Any, Result],
    *,
    share: bool = True,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Draw what the time of each run goes to along its critical path: a stacked bar a size.

    Parameters
    ----------
    results
        Runs with records, of several sizes or algorithms; a mapping names the bars.
    share
        Whether bars show parts of the time, with the time above each; else they show the time.
    ax
        Where to draw; without it a figure of its own is made.
    **kwargs
        For the bars (`matplotlib.axes.Axes.bar`).

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into. What no run spends time on is left out.

    Raises
    ------
    InputError
        If there are no results.
    CollsimError
        If a run kept no records.

    Examples
    --------
    >>> import collsim
    >>> topology = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    >>> results = [collsim.run("all_reduce", topology, size, algorithm="ring") for size in ("1KiB", "1MiB", "1GiB")]
    >>> ax = cost_breakdown(results)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['serialisation', 'latency']
    """
    runs, names = _named(results)
    parts = {name: np.array([run.breakdown_ps[name] for run in runs], dtype=float) for name in COLOURS}
    total = np.array([max(run.time_ps, 1) for run in runs], dtype=float)
    if ax is None:
        ax = new_axes(min(max(4.5, 1.6 + 0.62 * len(runs)), 14.0), 4.2)
    unit, unit_name = unit_of(int(total.max()))
    scale = total if share else np.full(len(runs), float(unit))
    place, below = np.arange(len(runs)), np.zeros(len(runs))
    shown = [name for name, values in parts.items() if values.any()]
    for name in shown:
        height = parts[name] / scale
        look = without(
            kwargs, color=COLOURS[name], hatch=HATCHES.get(name), edgecolor="white", linewidth=0.5, width=0.8
        )
        ax.bar(place, height, bottom=below, label=name, **look, **{k: v for k, v in kwargs.items() if k != "label"})
        below += height
    longest = max(map(_width, names))
    every = max(1, -(-len(runs) // max(1, int(points_of(ax)[0] / (9 + 4.6 * longest)))))
    turned = every > 1 and longest > 8  # names of algorithms; of sizes some can be left out
    every = 1 if turned else every
    turn: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if turned else {}
    small = len(runs) > 10 or turned
    ax.set_xticks(place[::every], labels=names[::every], fontsize="small" if small else "medium", **turn)
    ax.set_xlim(-0.6, len(runs) - 0.4)
    if share:
        _shares(ax, runs, every)
    else:
        ax.set_ylabel(f"time ({unit_name})")
        ax.set_ylim(0, 1.05 * float(total.max()) / unit)
    ax.set_xlabel("message size" if len({run.size for run in runs}) > 1 else "")
    ax.tick_params(axis="x", length=0)
    ax.spines[["top", "right"]].set_visible(False)
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        ax.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, reverse=True)
    set_title(ax, [_title(runs)], pad=(32 if len(runs) > MOST_ON_A_LINE else 20) if share else None)
    return ax


def _named(given: Any) -> tuple[list[Result], list[str]]:
    """Return the runs, by size if they differ in that, and what to call each."""
    from collsim.engine.result import Result

    if isinstance(given, Result):
        given = [given]
    mapped = isinstance(given, Mapping)
    pairs = list(given.items()) if mapped else [(None, run) for run in given if given is not None]
    for _, run in pairs:
        if not isinstance(run, Result):
            raise InputError(f"cost_breakdown: expected results, got {type(run).__name__}")
    if not pairs:
        raise InputError("cost_breakdown: nothing to draw, there are no results")
    if mapped:
        return [run for _, run in pairs], [str(name).replace("$", r"\$") for name, _ in pairs]
    runs = sorted((run for _, run in pairs), key=lambda run: run.size)
    sizes, algorithms = [format_size(run.size) for run in runs], [run.schedule.algorithm or "schedule" for run in runs]
    if len(set(algorithms)) == 1:
        return runs, sizes
    if len(set(sizes)) == 1:
        return runs, algorithms
    return runs, [f"{algorithm}\n{size}" for algorithm, size in zip(algorithms, sizes, strict=True)]


def _width(name: str) -> int:
    return max(map(len, name.split("\n")))


def _shares(ax: Axes, runs: list[Result], every: int) -> None:
    """Mark parts of a whole, with the time of each run above its bar."""
    from matplotlib.ticker import PercentFormatter

    ax.set_ylim(0, 1.0)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_ylabel("part of the time")
    for i, run in list(enumerate(runs))[::every]:
        unit, unit_name = unit_of(max(run.time_ps, 1))
        text = (
            f"{run.time_ps / unit:.3g}\n{unit_name}"
            if len(runs) > MOST_ON_A_LINE
            else f"{run.time_ps / unit:.3g} {unit_name}"
        )
        ax.annotate(
            text, (i, 1.0), xytext=(0, 3), textcoords="offset points", ha="center", va="bottom", fontsize="small",
            annotation_clip=False,
        )  # fmt: skip


def _title(runs: list[Result]) -> str:
    first = runs[0]
    algorithms = list(dict.fromkeys(run.schedule.algorithm for run in runs))
    what = " ".join(filter(None, (first.operation, algorithms[0] if len(algorithms) == 1 else "")))
    size = f" of {format_size(first.size)}" if len({run.size for run in runs}) == 1 else ""
    machines = list(dict.fromkeys((run.topology.name, run.schedule.ranks) for run in runs))
    where = f"{count_of(machines[0][1], 'rank')} on {machines[0][0]}" if len(machines) == 1 else "several machines"
    return f"{what}{size}, {where}, {' and '.join(dict.fromkeys(run.network for run in runs))}"
