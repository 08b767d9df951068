"""What ranks hold after a step, counted by the schedule and drawn cell by cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import collsim
from collsim import Collective, ScheduleBuilder
from collsim.algorithms import available, build, ring_all_reduce
from collsim.errors import CollsimError, InputError
from collsim.plot import chunk_grid
from collsim.plot.contributions import held_after
from collsim.schedule.expand import iter_steps
from collsim.schedule.explain import _Contents, _count
from collsim.schedule.model import OUTPUT


def text_of(ax: Any) -> list[list[str]]:
    """The numbers in the cells, by rank."""
    ranks = 1 + max(round(text.get_position()[1]) for text in ax.texts)
    rows: list[list[str]] = [[] for _ in range(ranks)]
    for text in ax.texts:
        rows[round(text.get_position()[1])].append(text.get_text())
    return rows


def test_a_ring_adds_one_contribution_a_step() -> None:
    schedule = ring_all_reduce(4)
    for step in range(3):
        held = held_after(schedule, step)
        assert sorted(held.count[0].tolist()) == [1] * (3 - step) + list(range(2, step + 3))
        assert held.complete.sum() == (4 if step == 2 else 0)
    assert held_after(schedule, -1).count.tolist() == [[1] * 4] * 4
    assert [int(held_after(schedule, step).complete.sum()) for step in range(6)] == [0, 0, 4, 8, 12, 16]


@pytest.mark.parametrize(
    ("operation", "name"), [(o, n) for o, names in available().items() for n in names if o != "barrier"]
)
def test_the_counts_are_those_of_the_proof(operation: str, name: str) -> None:
    ranks = 2 if operation == "send_recv" else 4
    try:
        schedule = build(operation, name, ranks)
    except (CollsimError, TypeError):
        pytest.skip("needs a machine")
    for step in {0, schedule.steps // 2, schedule.steps - 1}:
        held = held_after(schedule, step)
        contents: _Contents
        contents, _ = _count(schedule, [(now, t) for now, t in iter_steps(schedule) if now <= step])
        counted = [
            [sum(contents[contents.key(rank, OUTPUT, chunk)].values()) for chunk in range(schedule.chunks)]
            for rank in range(ranks)
        ]
        assert held.count.tolist() == counted
        assert held.steps == step + 1
    held = held_after(schedule)
    place = schedule.place_of(np.arange(schedule.chunks))[None, :]
    needed = schedule.collective.requires(np.arange(ranks)[:, None], place, schedule.chunks)
    assert held.complete[np.broadcast_to(needed, held.complete.shape)].all(), "in the end all have what they need"


def test_full_counts_of_the_wrong_data_are_not_complete() -> None:
    b = ScheduleBuilder(Collective("all_reduce", 2), chunks=2)
    b.reduce([0, 1], [1, 0], [0, 0])
    b.copy([0, 1], [1, 0], [1, 1])
    held = held_after(b.build())
    assert held.count.tolist() == [[2, 1], [2, 1]]
    assert held.complete.tolist() == [[True, False], [True, False]]
    again = ScheduleBuilder(Collective("all_reduce", 2), chunks=1)
    again.reduce(0, 1, 0)
    again.reduce(0, 1, 0)
    held = held_after(again.build())
    assert held.count.tolist() == [[1], [3]], "rank 0 counts twice"
    assert not held.complete.any()


def test_cells_show_the_counts_and_complete_ones_are_marked() -> None:
    schedule = ring_all_reduce(4)
    ax = chunk_grid(schedule, step=2)
    held = held_after(schedule, 2)
    assert text_of(ax) == [[str(count) for count in row] for row in held.count.tolist()]
    below, over = ax.images
    np.testing.assert_allclose(below.get_array(), held.count / 4)
    np.testing.assert_array_equal(np.ma.getmaskarray(over.get_array()), ~held.complete)
    assert [text.get_fontweight() == "bold" for text in ax.texts] == held.complete.ravel().tolist()
    title = ax.get_title(loc="left").replace("\n", " ")
    assert "after step 2 (the last is 5)" in title
    assert title.endswith("4 of 16 chunks complete")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["complete", "part of the sum"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("chunk", "rank")


def test_the_end_is_shown_by_default_and_results_will_do() -> None:
    result = collsim.run("all_gather", collsim.topology.ring(4), 4096, algorithm="ring")
    ax = chunk_grid(result)
    assert "after step 2, the last" in ax.get_title(loc="left").replace("\n", " ")
    assert not np.ma.getmaskarray(ax.images[1].get_array()).any()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["complete"]
    start = chunk_grid(result, step=-1)
    assert "before the first step" in start.get_title(loc="left").replace("\n", " ")
    assert [text.get_text() for text in start.get_legend().get_texts()] == ["complete", "empty"]


@pytest.mark.parametrize("ranks", [4, 64, 1024])
def test_grids_of_any_size_fit_their_figure(ranks: int) -> None:
    schedule = ring_all_reduce(ranks)
    ax = chunk_grid(schedule, step=ranks // 2)
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    drawn, (width, height) = ax.figure.get_tightbbox(canvas.get_renderer()), ax.figure.get_size_inches()
    assert drawn.x0 >= 0
    assert drawn.y0 >= 0
    assert drawn.x1 <= width
    assert drawn.y1 <= height
    assert max(ax.images[0].get_array().shape) <= 512
    assert bool(ax.texts) == (ranks <= 20)
    assert len(ax.get_yticklabels()) <= 64


def test_cells_of_large_grids_are_means_and_the_title_says_so() -> None:
    schedule = ring_all_reduce(1024)
    ax = chunk_grid(schedule, step=700)
    held = held_after(schedule, 700)
    mean = (held.count / 1024).reshape(512, 2, 512, 2).mean(axis=(1, 3))
    np.testing.assert_allclose(ax.images[0].get_array(), mean)
    assert "a cell is the mean of 2 x 2" in ax.get_title(loc="left").replace("\n", " ")


def test_keywords_reach_the_image() -> None:
    image = chunk_grid(ring_all_reduce(4), cmap="cividis", alpha=0.5).images[0]
    assert (image.get_cmap().name, image.get_alpha()) == ("cividis", 0.5)


@pytest.mark.parametrize("step", [6, -2, 1.5, True, "last"])
def test_steps_that_there_are_not(step: Any) -> None:
    with pytest.raises(InputError, match="chunk_grid: step: expected one from 0 to 5, or -1 for the start, got"):
        chunk_grid(ring_all_reduce(4), step=step)


def test_what_has_no_grid() -> None:
    with pytest.raises(InputError, match="a barrier moves no data"):
        chunk_grid(build("barrier", available()["barrier"][0], 4))
    with pytest.raises(InputError, match="chunk_grid: expected a Schedule or a Result, got int"):
        chunk_grid(3)  # type: ignore[arg-type]
    with pytest.raises(
        InputError, match="are more than the 40,000,000 that are followed; expected fewer ranks or chunks"
    ):
        chunk_grid(ring_all_reduce(20_000))
