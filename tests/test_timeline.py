"""The timeline shows each transfer once, where and when it was, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

import collsim
from collsim.errors import InputError
from collsim.plot import bars as bars_module
from collsim.plot import timeline

US = 10**6


@pytest.fixture(autouse=True)
def _agg() -> Iterator[None]:
    with mpl.rc_context({"backend": "agg"}):
        yield


def run(ranks: int = 4, operation: str = "all_reduce", algorithm: str = "ring", **kwargs: Any) -> Any:
    make = collsim.topology.ring if algorithm == "ring" else collsim.topology.switch
    topology = make(ranks, bandwidth="50GB/s", latency="1us")
    return collsim.run(operation, topology, "1MiB", algorithm=algorithm, **kwargs)


def made_up(src: Any, start: Any, end: Any, **columns: Any) -> Any:
    """A result with the records given, for cases that no small run brings about."""
    src, start, end = (np.asarray(column, dtype=np.int64) for column in (src, start, end))
    names = tuple(f"gpu{i}" for i in range(int(src.max()) + 1))
    zero = np.zeros(len(src), dtype=np.int64)
    records = {"step": zero, "chunk": zero, "channel": zero, "reduce": zero == 1, "dst": zero, **columns}
    records |= {"src": src, "start_ps": start, "end_ps": end}
    collective = SimpleNamespace(operation="all_gather")
    return SimpleNamespace(
        records=records,
        topology=SimpleNamespace(name="fabric", ranks=names),
        schedule=SimpleNamespace(algorithm="", collective=collective, ranks=len(names), places=()),
        size=1,
        time_ps=int(end.max()),
        network="cut_through",
    )


def boxes(ax: Any) -> np.ndarray:
    """Left, right, top and bottom of each bar (data units), in the order drawn."""
    (collection,) = (artist for artist in ax.collections if isinstance(artist, PolyCollection))
    corners = np.array([path.vertices[:4] for path in collection.get_paths()])
    x, y = corners[:, :, 0], corners[:, :, 1]
    return np.stack([x.min(1), x.max(1), y.min(1), y.max(1)], axis=1)


def draw(ax: Any) -> Any:
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    return canvas.get_renderer()


def row_labels(ax: Any) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def color_labels(ax: Any) -> list[str]:
    """Tick labels of the colour bar, if there is one."""
    draw(ax)
    return [label.get_text() for other in ax.figure.axes if other is not ax for label in other.get_yticklabels()]


# -- what is drawn ---------------------------------------------------------------------------------------------------


def test_a_bar_a_transfer_in_the_row_of_its_sender() -> None:
    result = run(4)
    box, records = boxes(timeline(result)), result.records
    assert len(box) == result.transfers == 24
    np.testing.assert_allclose(box[:, 0], records["start_ps"] / US)
    np.testing.assert_allclose(box[:, 1], records["end_ps"] / US)
    np.testing.assert_allclose(box[:, 2:].mean(axis=1), records["src"])
    assert (np.abs(box[:, 2:] - records["src"][:, None]) < 0.5).all()


def test_rows_of_links_show_how_long_a_link_is_held() -> None:
    result = run(4, "broadcast", "binomial_tree")
    visits = result.link_records()
    ax = timeline(result, rows="link")
    used = np.unique(visits["link"])
    assert row_labels(ax) == [result.topology.link_name(link) for link in used]
    box = boxes(ax)
    assert len(box) == len(visits["link"]) > result.transfers  # two hops through the switch
    np.testing.assert_allclose(box[:, 0], visits["start_ps"] / US)
    np.testing.assert_allclose(box[:, 1], visits["end_ps"] / US)
    np.testing.assert_array_equal(used[np.floor(box[:, 2:].mean(axis=1) + 0.5).astype(int)], visits["link"])


def test_the_first_rank_is_on_top_and_time_runs_from_zero_to_the_end() -> None:
    result = run(4)
    ax = timeline(result)
    assert ax.get_ylim() == (3.5, -0.5)
    assert ax.get_xlim() == (0, pytest.approx(result.time_ps / US))
    assert row_labels(ax) == list(result.topology.ranks)


def test_places_that_send_have_rows_of_their_own() -> None:
    result = made_up([0, 1, 2], [0, 0, 5], [5, 5, 9])
    result.topology.ranks, result.schedule.places = ("gpu0", "gpu1"), ("sw",)
    assert row_labels(timeline(result)) == ["gpu0", "gpu1", "sw"]


BARS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 12)), min_size=1, max_size=60)


@given(BARS)
def test_bars_never_cover_each_other_and_use_no_more_lanes_than_needed(bars: list[tuple[int, int, int]]) -> None:
    row, start, duration = np.array(bars).T
    end = start + duration
    lane = bars_module._lanes(row, start, end)
    seen = np.maximum(end, start + 1)  # a bar without duration takes room too
    for i in range(len(row)):
        same = (row == row[i]) & (lane == lane[i]) & (np.arange(len(row)) != i)
        assert not (same & (start < seen[i]) & (start[i] < seen)).any()
    for number in np.unique(row):
        mine = row == number
        depth = max(int((mine & (start <= t) & (t < seen)).sum()) for t in start[mine])
        assert lane[mine].max() + 1 == depth


def test_overlapping_transfers_are_stacked_within_their_row() -> None:
    box = boxes(timeline(made_up([0, 0, 0, 1], [0, 2, 5, 0], [5, 6, 9, 9], reduce=np.ones(4, dtype=bool))))
    first, second, third, alone = box
    assert first[3] <= second[2], "the second starts below the first"
    assert third[2] == first[2], "the third takes the lane that the first has left"
    assert box[:3, 2:].min() > -0.5
    assert box[:3, 2:].max() < 0.5
    assert np.ptp(alone[2:]) > 1.9 * np.ptp(first[2:])


def test_a_picosecond_of_rounding_opens_no_lane() -> None:
    box = boxes(timeline(made_up([0, 0, 0], [0, 9_999, 20_000], [10_000, 20_000, 30_000])))
    assert len(np.unique(box[:, 2])) == 1
    box = boxes(timeline(made_up([0, 0, 0], [0, 9_000, 20_000], [10_000, 20_000, 30_000])))
    assert len(np.unique(box[:, 2])) == 2


def test_transfers_without_duration_can_be_seen() -> None:
    box = boxes(timeline(made_up([0, 0, 0], [0, 0, 0], [0, 0, 1000])))
    assert (box[:, 1] - box[:, 0] > 0).all()
    assert len(np.unique(box[:, 2])) == 3


def test_reductions_are_taller_than_copies_and_the_key_says_so() -> None:
    result = run(4)
    ax = timeline(result)
    height = np.ptp(boxes(ax)[:, 2:], axis=1)
    reduces = result.records["reduce"]
    assert height[reduces].min() > 1.5 * height[~reduces].max()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["reduce", "copy"]
    assert timeline(run(4, "all_gather")).get_legend() is None


# -- colours ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("color", ["step", "chunk", "channel"])
def test_colours_tell_values_apart(color: str) -> None:
    result = run(4, channels=2)
    ax = timeline(result, color=color)
    draw(ax)
    faces = [tuple(face) for face in ax.collections[0].get_facecolor()]
    values = result.records[color].tolist()
    assert len(set(values)) == len(set(faces)) == len(set(zip(values, faces, strict=True))) > 1
    assert color_labels(ax) == [str(value) for value in sorted(set(values))]
    assert not len(ax.figure.axes[1].yaxis.get_minorticklocs()), "marks beside the numbers"


def test_many_values_are_a_continuous_scale() -> None:
    result = run(16)
    ax = timeline(result)
    assert ax.collections[0].get_clim() == (0, 29)
    assert 3 < len(color_labels(ax)) < 12


def test_one_value_needs_no_key() -> None:
    assert color_labels(timeline(run(4), color="channel")) == []


def test_keywords_reach_the_collection() -> None:
    ax = timeline(run(4), facecolor="red", linewidth=2, alpha=0.5, zorder=7)
    draw(ax)
    (collection,) = ax.collections
    assert np.unique(collection.get_facecolor(), axis=0).tolist() == [[1, 0, 0, 0.5]]
    assert (collection.get_linewidth(), collection.get_zorder()) == ([2], 7)
    assert color_labels(ax) == [], "one colour, nothing to explain"
    ax = timeline(run(4), cmap="cividis", norm=mpl.colors.Normalize(0, 100))
    assert (ax.collections[0].get_cmap().name, ax.collections[0].get_clim()) == ("cividis", (0, 100))


def test_without_a_legend_there_are_only_bars() -> None:
    ax = timeline(run(4), legend=False)
    assert (ax.figure.axes, ax.get_legend(), list(ax.texts)) == ([ax], None, [])


# -- words -----------------------------------------------------------------------------------------------------------


def test_title_says_what_was_run_and_how_long_it_took() -> None:
    result = run(4)
    first, second = timeline(result).get_title(loc="left").splitlines()
    assert first == f"all_reduce ring, 1MiB in {result.time * 1e6:.4g} us"
    assert second == f"4 ranks on {result.topology.name}, cut_through"


@pytest.mark.parametrize(("end", "unit"), [(900, "ps"), (10**3, "ns"), (7 * 10**6, "us"), (10**9, "ms"), (10**13, "s")])
def test_time_is_in_a_unit_that_fits_the_span(end: int, unit: str) -> None:
    ax = timeline(made_up([0], [0], [end]))
    assert ax.get_xlabel().startswith(f"time ({unit})")
    assert 1 <= ax.get_xlim()[1] < 1000


def test_few_bars_carry_the_number_of_their_chunk() -> None:
    result = run(4)
    ax = timeline(result)
    assert [text.get_text() for text in ax.texts] == [str(chunk) for chunk in result.records["chunk"]]
    box = boxes(ax)
    for text, (left, right, top, bottom) in zip(ax.texts, box, strict=True):
        assert left < text.get_position()[0] < right
        assert top < text.get_position()[1] < bottom
    assert "numbers are chunks" in ax.get_xlabel()


def test_numbers_are_left_out_where_they_do_not_fit() -> None:
    assert not timeline(run(8)).texts, "112 bars"
    narrow = made_up([0, 0], [0, 10], [10, 10_000], chunk=np.array([0, 1]))
    ax = timeline(narrow)
    assert not ax.texts
    assert "chunks" not in ax.get_xlabel()


@pytest.mark.parametrize(("ranks", "figsize"), [(2, (3, 2)), (8, (4, 3)), (64, (6, 4)), (300, (9, 9)), (300, None)])
def test_row_labels_do_not_touch(ranks: int, figsize: tuple[float, float] | None) -> None:
    result = made_up(np.arange(ranks), np.zeros(ranks), np.full(ranks, US))
    given_ax = figsize and Figure(figsize=figsize, layout="constrained").add_subplot()
    ax = timeline(result, ax=given_ax or None)
    renderer = draw(ax)
    spans = [label.get_window_extent(renderer) for label in ax.get_yticklabels()]
    assert row_labels(ax)[0] == "gpu0"
    assert all(upper.y0 >= lower.y1 - 1 for upper, lower in pairwise(spans))
    assert len(spans) >= min(ranks, 8)


@pytest.mark.parametrize("ranks", [2, 4, 16, 100])
@pytest.mark.parametrize("rows", ["rank", "link"])
def test_nothing_is_cut_off(ranks: int, rows: str) -> None:
    ax = timeline(run(ranks, "broadcast"), rows=rows)
    renderer = draw(ax)
    width, height = ax.figure.get_size_inches()
    drawn = ax.figure.get_tightbbox(renderer)  # in inches
    assert drawn.x0 >= 0
    assert drawn.y0 >= 0
    assert drawn.x1 <= width
    assert drawn.y1 <= height
    assert drawn.width > 0.9 * width


@pytest.mark.parametrize("figsize", [None, (4, 3), (7, 3), (12, 8)])
def test_keys_labels_and_title_keep_clear_of_each_other(figsize: tuple[float, float] | None) -> None:
    given_ax = figsize and Figure(figsize=figsize, layout="constrained").add_subplot()
    ax = timeline(run(4), ax=given_ax or None)
    renderer = draw(ax)
    (key,) = (other for other in ax.figure.axes if other is not ax)
    texts = [
        ax.xaxis.label,
        ax.yaxis.label,
        ax.title,
        *ax.get_xticklabels(),
        *ax.get_legend().get_texts(),
        key.yaxis.label,
    ]
    parts = [ax.get_window_extent(), key.get_window_extent()]
    parts += [text.get_window_extent(renderer) for text in texts if text.get_text()]
    assert len(parts) > 10
    for i, part in enumerate(parts):
        for other in parts[:i]:
            assert (
                min(part.x1, other.x1) - max(part.x0, other.x0) <= 1
                or min(part.y1, other.y1) - max(part.y0, other.y0) <= 1
            )


def test_figures_grow_with_rows_within_reason() -> None:
    heights = [timeline(made_up(np.arange(n), [0] * n, [9] * n)).figure.get_figheight() for n in (1, 16, 32, 1000)]
    assert heights == sorted(heights)
    assert heights[0] >= 2
    assert heights[1] < heights[2] < heights[3] <= 14


# -- many bars -------------------------------------------------------------------------------------------------------


def test_twenty_thousand_bars_are_one_collection() -> None:
    rank, step = np.divmod(np.arange(20_000), 200)
    ax = timeline(made_up(rank, step * US, (step + 1) * US, step=step))
    assert len(ax.collections) == 1
    assert len(ax.collections[0].get_paths()) == 20_000
    assert not ax.patches
    assert not ax.texts
    assert len(ax.lines) == 0


def test_above_the_limit_neighbours_are_joined_and_the_title_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars_module, "MOST_BARS", 100)
    rank, step = np.divmod(np.arange(2000), 400)
    result = made_up(rank, step * US, (step + 1) * US, step=step)
    ax = timeline(result)
    assert ax.get_title(loc="left").endswith("neighbouring bars joined")
    box = boxes(ax)
    assert len(box) == 100
    for row in range(5):
        mine = box[np.round(box[:, 2:].mean(axis=1)) == row]
        assert len(mine) == 20
        np.testing.assert_allclose(mine[1:, 0], mine[:-1, 1], err_msg="no gap where there was none")
        assert (mine[0, 0], mine[-1, 1]) == (0, 400)


def test_rows_of_a_few_points_fill_up_without_stripes_that_are_not_in_the_data() -> None:
    n = 500
    ax = timeline(made_up(np.arange(n), [0] * n, [US] * n, reduce=np.arange(n) % 2 == 0))
    assert ax.get_legend() is None
    ax.figure.set_dpi(70)
    draw(ax)
    middle = np.asarray(ax.figure.canvas.buffer_rgba())[:, 300, :3]
    inside = ax.get_window_extent()
    column = middle[int(len(middle) - inside.y1) + 2 : int(len(middle) - inside.y0) - 2]
    assert len(column) > 700
    assert len(np.unique(column, axis=0)) == 1


def test_no_bar_is_less_than_a_point_tall() -> None:
    n = 2000
    ax = timeline(made_up(np.arange(n), [0] * n, [US] * n))
    assert np.ptp(boxes(ax)[:, 2:], axis=1).min() >= 0.999 * n / (ax.bbox.height / ax.figure.dpi * 72)


def test_result_plot_is_the_timeline() -> None:
    result = run(4)
    ax = result.plot(rows="link", color="chunk")
    assert ax.get_ylabel() == "link"
    np.testing.assert_allclose(boxes(ax), boxes(timeline(result, rows="link", color="chunk")))


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"rows": "links"}, "rows: expected one of rank, link, got 'links'; did you mean 'link'?"),
        (
            {"color": "chunks"},
            "color: expected one of step, chunk, channel, kind, critical, got 'chunks'; did you mean 'chunk'?",
        ),
        ({"color": "zzz"}, "color: expected one of step, chunk, channel, kind, critical, got 'zzz'"),
    ],
)
def test_unknown_words_are_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        timeline(run(2), **kwargs)
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize("rows", ["rank", "link"])
def test_a_run_without_transfers_has_no_timeline(rows: str) -> None:
    topology = collsim.topology.fully_connected(1, bandwidth="1GB/s", latency="1us")
    with pytest.raises(InputError, match="nothing to draw"):
        timeline(collsim.run("all_reduce", topology, 64, algorithm="ring"), rows=rows)
