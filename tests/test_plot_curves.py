"""Bandwidth against size and what time goes to, held against the results that they show."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex

import collsim
from collsim.errors import CollsimError, InputError
from collsim.formats import read_nccl_tests
from collsim.plot import bandwidth_curve, cost_breakdown
from collsim.plot.common import IDLE
from collsim.topology import fat_tree, ring, switch

SIZES = [2**10, 2**16, 2**20, 2**24, 2**30]
SWITCH = switch(8, bandwidth="50GB/s", latency="1us")

LOG = """\
# nThread 1 nGpus 8 minBytes 1024 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20
node0:12:34 [0] NCCL INFO Bootstrap : Using eth0
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    12.52    0.08    0.14      0    12.40    0.08    0.15      0
     1048576        262144     float     sum      -1    35.10   29.87   52.28      0    35.00   29.96   52.43    N/A
  1073741824     268435456     float     sum      -1   4321.0  248.49  434.86      0   4320.0  248.55  434.96      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 162.5
"""


def compared(**kwargs: Any) -> Any:
    names = ["ring", "tree", "halving_doubling"]
    return collsim.compare("all_reduce", SWITCH, SIZES, **{"algorithms": names, **kwargs})


def legend(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def line(ax: Any, label: str) -> Any:
    (found,) = (line for line in ax.lines if line.get_label() == label)
    return found


def fits(ax: Any) -> bool:
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    drawn, (width, height) = ax.figure.get_tightbbox(canvas.get_renderer()), ax.figure.get_size_inches()
    return drawn.x0 >= -1e-6 and drawn.y0 >= -1e-6 and drawn.x1 <= width + 1e-6 and drawn.y1 <= height + 1e-6


# -- bandwidth -------------------------------------------------------------------------------------------------------


def test_a_line_an_algorithm_with_its_busbw_at_each_size() -> None:
    found = compared()
    ax = bandwidth_curve(found)
    for name, by_size in found.results.items():
        np.testing.assert_array_equal(line(ax, name).get_xdata(), SIZES)
        np.testing.assert_allclose(line(ax, name).get_ydata(), [by_size[size].busbw / 1e9 for size in SIZES])
    assert legend(ax) == ["ring", "tree", "halving_doubling", "not possible"]
    assert ax.get_ylabel() == "bus bandwidth (GB/s)"
    assert ax.get_xscale() == "log"
    assert ax.get_title(loc="left") == "all_reduce, 8 ranks on switch, cut_through"
    ticks = [label.get_text() for label in ax.get_xticklabels()]
    assert ticks[0] == "1KiB"
    assert len(ticks) < 12


def test_above_the_band_is_what_no_algorithm_reaches() -> None:
    found = compared()
    ax = bandwidth_curve(found)
    (band,) = (artist for artist in ax.collections if isinstance(artist, PolyCollection))
    corners = band.get_paths()[0].vertices
    top = ax.get_ylim()[1]
    for size in SIZES:
        result = found.results["ring"][size]
        limit = size / float(result.bound) * 1.75 / 1e9
        here = corners[np.isclose(corners[:, 0], size), 1]
        assert here.min() == pytest.approx(limit)
        assert here.max() == pytest.approx(top)
        assert all(by_size[size].busbw / 1e9 <= limit * (1 + 1e-9) for by_size in found.results.values())


def test_a_bound_far_away_does_not_flatten_the_curves() -> None:
    found = compared(network="alpha_beta")  # which only latency bounds
    highest = max(result.busbw for by_size in found.results.values() for result in by_size.values()) / 1e9
    assert found.results["ring"][2**30].bound < 1e-5
    assert bandwidth_curve(found).get_ylim() == (0, pytest.approx(3.36 * highest))


def test_measured_points_are_on_top_of_everything(tmp_path: Path) -> None:
    path = tmp_path / "all_reduce.log"
    path.write_text(LOG)
    ax = bandwidth_curve(compared(), measured={"H100": path, "mine": [(2**20, 12e9)]})
    points = line(ax, "H100")
    np.testing.assert_allclose(points.get_ydata(), [0.14, 52.28, 434.86])
    np.testing.assert_array_equal(points.get_xdata(), [1024, 2**20, 2**30])
    assert line(ax, "mine").get_ydata() == [12]
    assert points.get_linestyle() == "None"
    assert points.get_zorder() > max(line(ax, name).get_zorder() for name in ("ring", "tree"))
    assert legend(ax)[-3:] == ["H100", "mine", "not possible"]
    assert ax.get_ylim()[1] > 434.86
    assert line(bandwidth_curve(compared(), measured=[(2**20, 12e9)]), "measured").get_ydata() == [12]


def test_of_many_algorithms_those_that_count_have_colours() -> None:
    dear = {"forest", "multitree"}  # to build
    names = [name for name in collsim.algorithms.available()["all_reduce"] if name not in dear]
    found = compared(algorithms=names)
    assert len(found.results) > 12
    ax = bandwidth_curve(found)
    names = legend(ax)
    assert f"{len(found.results) - 8} others" in names
    assert {name for size in SIZES for name, _ in found.ranking(size)[:1]} <= set(names), "whoever wins somewhere"
    grey = [artist for artist in ax.lines if to_hex(artist.get_color()).upper() == IDLE]
    assert len(grey) == len(found.results) - 8
    looks = {(artist.get_color(), artist.get_linestyle()) for artist in ax.lines if artist.get_label() in names[:8]}
    assert len(looks) == 8, "each can be told from the others"
    assert fits(ax)


def test_results_may_come_in_other_ways() -> None:
    results = [collsim.run("all_reduce", SWITCH, size, algorithm="ring") for size in SIZES[::-1]]
    for given in (results, {"ring": results}, {"ring": {result.size: result for result in results}}, iter(results)):
        ax = bandwidth_curve(given)  # type: ignore[arg-type]
        np.testing.assert_array_equal(line(ax, "ring").get_xdata(), SIZES)
    assert len(bandwidth_curve(results[0]).lines) == 2  # type: ignore[arg-type]


def test_curves_of_different_sizes_and_machines_go_together() -> None:
    other = ring(4)
    given = {
        "switch": [collsim.run("all_reduce", SWITCH, size, algorithm="ring") for size in SIZES[:3]],
        "ring": [collsim.run("all_reduce", other, size, algorithm="ring") for size in SIZES[2:]],
    }
    ax = bandwidth_curve(given)
    assert [len(line(ax, name).get_xdata()) for name in given] == [3, 3]
    assert "several machines" in ax.get_title(loc="left")


def test_keywords_reach_the_lines() -> None:
    ax = bandwidth_curve(compared(), linewidth=5, marker="s")
    assert {(line(ax, name).get_linewidth(), line(ax, name).get_marker()) for name in ("ring", "tree")} == {(5, "s")}


@pytest.mark.parametrize(
    ("results", "measured", "message"),
    [
        ([], None, "bandwidth_curve: nothing to draw, there are no results"),
        ([1], None, "bandwidth_curve: expected a Comparison, names and results, or results, got int"),
        ({"ring": [1]}, None, "bandwidth_curve: ring: expected results, got int"),
        (None, [(1, 2, 3)], "measured: measured: expected pairs of bytes and bytes/s, or a log or the path of one"),
        (None, {"x": [(-1, 2)]}, "measured: x: expected pairs of positive bytes and bytes/s, got [(-1, 2)]"),
        (None, [(8, float("nan"))], "expected pairs of positive bytes and bytes/s"),
        (None, "nowhere.log", "nowhere.log: expected a log of nccl-tests, got no such file"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(results: Any, measured: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        bandwidth_curve(compared() if results is None else results, measured=measured)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_operations_are_not_mixed() -> None:
    given = [collsim.run(operation, SWITCH, 2**20, algorithm="ring") for operation in ("all_reduce", "all_gather")]
    with pytest.raises(InputError, match="expected results of one operation, got all_gather, all_reduce"):
        bandwidth_curve(given)


def test_logs_are_taken_as_paths_and_as_values(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(LOG)
    log = read_nccl_tests(path)
    for given in (path, str(path), log, {"measured": log}, log.points("all_reduce")):
        points = line(bandwidth_curve(compared(), measured=given), "measured")
        np.testing.assert_allclose(points.get_ydata(), [0.14, 52.28, 434.86])
        np.testing.assert_array_equal(points.get_xdata(), [1024, 2**20, 2**30])
    # of a log the tables of the operation are shown; what is measured in place only is shown as that
    result = collsim.run("all_gather", SWITCH, "1MiB", algorithm="ring")
    with pytest.raises(InputError, match=r"log: expected a table of all_gather, got all_reduce \(line"):
        bandwidth_curve(result, measured=log)
    path.write_text(
        "#   in-place\n# size count type redop root time algbw busbw #wrong\n"
        "1048576 262144 float sum -1 10 104.9 183.5 0\n"
    )
    assert line(bandwidth_curve(compared(), measured=path), "measured").get_ydata() == [183.5]
    path.write_text("# size time algbw busbw\n0 10 0 0\n")
    with pytest.raises(InputError, match="log: expected rows of all_reduce with a size and a busbw, got none"):
        bandwidth_curve(compared(), measured=path)


# -- what time goes to -----------------------------------------------------------------------------------------------


def runs(**kwargs: Any) -> list[Any]:
    machine = ring(8, reduce_bandwidth="100GB/s", send_overhead="1us")
    return [collsim.run("all_reduce", machine, size, algorithm="ring", records=True, **kwargs) for size in SIZES]


def stacks(ax: Any) -> dict[str, list[Any]]:
    return {container.get_label(): list(container) for container in ax.containers}


def test_bars_are_stacked_parts_that_make_up_the_whole() -> None:
    results = runs()
    ax = cost_breakdown(results[::-1])
    parts = stacks(ax)
    assert list(parts) == ["latency", "serialisation", "reduction", "overhead"]
    for i, result in enumerate(results):
        below = 0.0
        for name, bars in parts.items():
            assert bars[i].get_height() == pytest.approx(result.breakdown_ps[name] / result.time_ps)
            assert bars[i].get_y() == pytest.approx(below)
            below += bars[i].get_height()
        assert below == pytest.approx(1)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1KiB", "64KiB", "1MiB", "16MiB", "1GiB"]
    assert [text.get_text() for text in ax.texts][-1] == f"{results[-1].time * 1e3:.3g} ms"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(parts)[::-1], "as they are stacked"
    assert fits(ax)


def test_bars_may_show_times() -> None:
    results = runs()[:3]
    ax = cost_breakdown(results, share=False)
    total = sum(np.array([bar.get_height() for bar in bars]) for bars in stacks(ax).values())
    np.testing.assert_allclose(total, [result.time * 1e6 for result in results])
    assert ax.get_ylabel() == "time (us)"


def test_algorithms_can_be_set_side_by_side() -> None:
    machine = fat_tree(16, 4, oversubscription=4)
    names = ["ring", "tree", "halving_doubling"]
    results = [collsim.run("all_reduce", machine, "1MiB", algorithm=name, records=True) for name in names]
    ax = cost_breakdown(results)
    assert [label.get_text() for label in ax.get_xticklabels()] == names
    assert "queueing" in stacks(ax)
    assert fits(ax)
    ax = cost_breakdown({"a $": results[0], "b": results[1]})
    assert [label.get_text() for label in ax.get_xticklabels()] == [r"a \$", "b"]
    assert fits(ax)
    assert len(stacks(cost_breakdown(results[0]))["serialisation"]) == 1


def test_labels_of_many_sizes_do_not_touch() -> None:
    machine = ring(4)
    ax = cost_breakdown([collsim.run("all_reduce", machine, 4 * i, algorithm="ring") for i in range(1, 60)])
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    spans = [label.get_window_extent(canvas.get_renderer()) for label in ax.get_xticklabels()]
    assert len(spans) > 10
    assert all(left.x1 <= right.x0 + 1 for left, right in pairwise(spans))
    assert fits(ax)


def test_keywords_reach_the_bars_of_costs() -> None:
    ax = cost_breakdown(runs()[:2], width=0.3, alpha=0.5)
    assert {(round(bar.get_width(), 6), bar.get_alpha()) for bars in stacks(ax).values() for bar in bars} == {
        (0.3, 0.5)
    }


def test_costs_that_cannot_be_drawn() -> None:
    with pytest.raises(InputError, match="cost_breakdown: nothing to draw, there are no results"):
        cost_breakdown([])
    with pytest.raises(InputError, match="cost_breakdown: expected results, got str"):
        cost_breakdown(["ring"])  # type: ignore[list-item]
    with pytest.raises(CollsimError, match="expected a run with records=True"):
        cost_breakdown(compared().results["ring"].values())


def test_what_the_caller_asks_of_the_lines_wins_under_any_name():
    topology = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    results = [collsim.run("all_reduce", topology, size, "ring") for size in ("1KiB", "1MiB")]
    ax = bandwidth_curve(results, lw=5, zorder=7, label="mine", ms=9)
    assert (ax.lines[0].get_linewidth(), ax.lines[0].get_zorder(), ax.lines[0].get_markersize()) == (5, 7, 9)
    assert ax.lines[0].get_label() == "ring"
    bars = cost_breakdown(results, lw=3, label="mine").patches
    assert {bar.get_linewidth() for bar in bars} == {3}


def test_messages_of_no_bytes_have_no_bandwidth():
    topology = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    with pytest.raises(InputError, match="expected sizes of at least 1 byte, got 0"):
        bandwidth_curve([collsim.run("all_reduce", topology, 0, "ring")])
