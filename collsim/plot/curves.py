"""Bus bandwidth against size: several algorithms, what the machine allows, and what was measured."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError, shown
from collsim.plot.common import DISTINCT, IDLE, count_of, new_axes, set_title, without
from collsim.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from collsim.engine.compare import Comparison
    from collsim.engine.result import Result
    from collsim.formats.nccl_tests import NcclTests

__all__ = ["bandwidth_curve"]

Array = npt.NDArray[Any]
Points = Sequence[tuple[float, float]]
Curves = dict[str, list["Result"]]
Measured = Union[Points, str, "os.PathLike[str]", "NcclTests"]

MOST_CURVES = 8  # algorithms with a colour of their own
MOST_ABOVE = 3  # times the highest point that the axis goes up to the bound
GB = 1e9
DASHES = ("-", "--", ":", "-.")
MEASURED_MARKS = "oD^vP*X"


def bandwidth_curve(
    comparison: Comparison | Mapping[str, Iterable[Result]] | Iterable[Result],
    *,
    measured: Measured | Mapping[str, Measured] | None = None,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Draw bus bandwidth against message size, as nccl-tests reports both.

    Parameters
    ----------
    comparison
        What `collsim.compare` found; or names and the results of each at several sizes; or just results, which are told
        apart by their algorithm. Records are not needed.
    measured
        Points on top: (bytes, bytes a second of busbw), or the path of a log of nccl-tests, or what
        `collsim.formats.read_nccl_tests` returned; or names and such. Of a log the tables of the operation are taken,
        out of place if that was measured.
    ax
        Where to draw; without it a figure of its own is made.
    **kwargs
        For the lines of the algorithms (`matplotlib.lines.Line2D`).

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into: sizes in bytes on a logarithmic scale, GB/s (10^9). Above the lower edge of the grey band
        no algorithm can come: it is the bound of the results. Of more than eight algorithms those that are the fastest
        at some size, or near to it, have colours; the others are grey.

    Raises
    ------
    InputError
        If there are no results, or of different operations, or what was measured cannot be read.

    Examples
    --------
    >>> import collsim
    >>> topology = collsim.topology.switch(8, bandwidth="50GB/s", latency="1us")
    >>> found = collsim.compare("all_reduce", topology, ["1KiB", "1MiB", "1GiB"], algorithms=["ring", "tree"])
    >>> ax = bandwidth_curve(found, measured=[(2**20, 20e9), (2**30, 46e9)])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['ring', 'tree', 'measured', 'not possible']
    """
    curves = _curves(comparison)
    points = _measured(measured, next(iter(curves.values()))[0].operation)
    if any(not result.size for results in curves.values() for result in results):
        raise InputError("bandwidth_curve: expected sizes of at least 1 byte, got 0: such a message has no bandwidth")
    if ax is None:
        ax = new_axes(8.0, 4.6)
    coloured = _leading(curves)
    kwargs.pop("label", None)  # each line has its own
    given = {**without(kwargs, marker="o", markersize=3.5, linewidth=1.6, zorder=3), **kwargs}
    greatest = 0.0
    looks = cycle((colour, dash) for dash in DASHES for colour in DISTINCT[:6])  # yellow lines are hard to see
    handles: list[Any] = []
    others = []
    for name in sorted(curves, key=lambda name: (name not in coloured, list(curves).index(name))):
        results = curves[name]
        sizes = [result.size for result in results]
        rates = [result.busbw / GB for result in results]
        greatest = max(greatest, *rates)
        if name in coloured:
            colour, dash = next(looks)
            look = {**without(kwargs, color=colour, linestyle=dash), **given}
            (line,) = ax.plot(sizes, rates, label=name.replace("$", r"\$"), **look)
            handles.append(line)
        else:
            others += ax.plot(sizes, rates, label="_" + name, color=IDLE, linewidth=1.0, zorder=2)
    if others:
        others[0].set_label(count_of(len(others), "other"))
        handles.append(others[0])
    for (name, found), mark in zip(points.items(), cycle(MEASURED_MARKS), strict=False):
        rates = [rate / GB for _, rate in found]
        greatest = max(greatest, *rates)
        handles += ax.plot(
            [size for size, _ in found], rates, linestyle="none", marker=mark, markersize=6, markerfacecolor="white",
            markeredgecolor="black", markeredgewidth=1.2, label=name, zorder=4,
        )  # fmt: skip
    handles += _band(ax, curves, greatest)
    _axes(ax, curves, points)
    _key(ax, handles)
    return ax


def _curves(given: Any) -> Curves:
    """Return the results of each name by ascending size."""
    from collsim.engine.compare import Comparison
    from collsim.engine.result import Result

    if isinstance(given, Comparison):
        given = {name: by_size.values() for name, by_size in given.results.items()}
    elif isinstance(given, Result):
        given = [given]
    if not isinstance(given, Mapping):
        by_name: dict[str, list[Any]] = {}
        for result in given if isinstance(given, Iterable) else [given]:
            if not isinstance(result, Result):
                raise InputError(
                    "bandwidth_curve: expected a Comparison, names and results, or results, "
                    f"got {type(result).__name__}"
                )
            by_name.setdefault(result.schedule.algorithm or "schedule", []).append(result)
        given = by_name
    curves: Curves = {}
    for name, results in given.items():
        if isinstance(results, Mapping):
            results = results.values()
        listed = [results] if isinstance(results, Result) else list(results)
        for result in listed:
            if not isinstance(result, Result):
                raise InputError(f"bandwidth_curve: {name}: expected results, got {type(result).__name__}")
        if listed:
            curves[str(name)] = sorted(listed, key=lambda result: result.size)
    if not curves:
        raise InputError("bandwidth_curve: nothing to draw, there are no results")
    operations = sorted({result.operation for results in curves.values() for result in results})
    if len(operations) > 1:
        raise InputError(f"bandwidth_curve: expected results of one operation, got {', '.join(operations)}")
    return curves


def _measured(given: Any, operation: str) -> dict[str, list[tuple[float, float]]]:
    """Return what was measured by name."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        given = {"measured": given}
    found = {}
    for name, points in given.items():
        points = _of_log(points, operation)
        try:
            listed = [(float(size), float(rate)) for size, rate in points]
        except (TypeError, ValueError):
            what = "pairs of bytes and bytes/s, or a log or the path of one"
            raise InputError(f"measured: {name}: expected {what}, got {shown(points)}") from None
        if not listed or not all(size > 0 and 0 <= rate < float("inf") for size, rate in listed):
            raise InputError(f"measured: {name}: expected pairs of positive bytes and bytes/s, got {shown(points)}")
        found[str(name)] = sorted(listed)
    return found


def _of_log(given: Any, operation: str) -> Any:
    """Return the points of a log or of the path of one, and anything else as it is."""
    from collsim.formats.nccl_tests import NcclTests, read_nccl_tests

    log = read_nccl_tests(given) if isinstance(given, (str, os.PathLike)) else given
    if not isinstance(log, NcclTests):
        return given
    points = log.points(operation) or log.points(operation, in_place=True)
    if not points:
        raise InputError(f"{log.name}: expected rows of {operation} with a size and a busbw, got none")
    return points


def _leading(curves: Curves) -> set[str]:
    """Return the names that get a colour: the fastest at some size, then those that come nearest to the fastest."""
    if len(curves) <= MOST_CURVES:
        return set(curves)
    best: dict[int, int] = {}
    for results in curves.values():
        for result in results:
            best[result.size] = min(best.get(result.size, result.time_ps), result.time_ps)

    def merit(name: str) -> tuple[bool, float, str]:
        parts = [best[result.size] / max(result.time_ps, 1) for result in curves[name]]
        return (max(parts) < 1, -sum(parts) / len(parts), name)

    return set(sorted(curves, key=merit)[:MOST_CURVES])


def _band(ax: Axes, curves: Curves, greatest: float) -> list[Any]:
    """Shade what no algorithm can reach."""
    least: dict[int, float] = {}
    factor = 0.0
    for results in curves.values():
        for result in results:
            # the same for all but blocked operations, whose blocks schedules cut in different ways
            if result.size not in least or result.schedule.collective.is_blocked:
                least[result.size] = min(least.get(result.size, float("inf")), float(result.bound))
            factor = result.schedule.collective.busbw_factor
    sizes = sorted(size for size, time in least.items() if time > 0)
    limit = np.array([size / least[size] * factor / GB for size in sizes])
    # a bound far away, such as that of a network that shares nothing, must not flatten the curves
    top = 1.12 * max(greatest, min(float(limit.max(initial=0)), MOST_ABOVE * greatest), 1e-9)
    ax.set_ylim(0, top)
    if not sizes:
        return []
    band = ax.fill_between(
        sizes,
        limit,
        max(top, float(limit.max())),  # as the line of the bound, also where it leaves the axes
        facecolor="0.9",
        edgecolor="0.75",
        hatch="///",
        linewidth=0,
        label="not possible",
        zorder=0,
    )
    ax.plot(sizes, limit, color="0.5", linewidth=1.0, label="_bound", zorder=1)
    return [band]


def _axes(ax: Axes, curves: Curves, points: Mapping[str, Points]) -> None:
    sizes = sorted({result.size for results in curves.values() for result in results})
    every = sorted({*sizes, *(int(size) for found in points.values() for size, _ in found)})
    ax.set_xscale("log", base=2)
    if len(every) > 1:
        margin = (every[-1] / every[0]) ** 0.02
        ax.set_xlim(every[0] / margin, every[-1] * margin)
    first, last = np.log2(every[0]), np.log2(every[-1])
    step = max(1, int(np.ceil((last - first) / 9)))
    ticks = 2.0 ** np.arange(np.ceil(first), np.floor(last) + 1, step) if last > first else np.array(every, dtype=float)
    ax.set_xticks(ticks, labels=[format_size(round(tick)) for tick in ticks.tolist()])
    ax.minorticks_off()
    ax.set_xlabel("message size")
    ax.set_ylabel("bus bandwidth (GB/s)")
    ax.grid(color="0.92")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    results = [result for found in curves.values() for result in found]
    where = list(dict.fromkeys(result.topology.name for result in results))
    networks = list(dict.fromkeys(result.network for result in results))
    ranks = sorted({result.schedule.ranks for result in results})
    on = f"{count_of(ranks[0], 'rank')} on {where[0]}" if len(where) == len(ranks) == 1 else "several machines"
    set_title(ax, [f"{results[0].operation}, {on}, {' and '.join(networks)}"])


def _key(ax: Axes, handles: list[Any]) -> None:
    """Explain the lines: within the axes if they are few, else beside them."""
    if len(handles) <= 6:
        ax.legend(handles=handles, loc="best", framealpha=0.9, fontsize="small")
    else:
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
