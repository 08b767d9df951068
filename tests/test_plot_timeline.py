"""The timeline from nearer and farther: kinds and the critical path, parts of the time, more rows than fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import collsim
from collsim.errors import CollsimError, InputError
from collsim.plot import bars as bars_module
from collsim.plot import timeline
from tests.test_timeline import US, boxes, color_labels, draw, made_up, row_labels, run

# -- colours ---------------------------------------------------------------------------------------------------------


def test_kinds_of_transfers_have_names() -> None:
    result = run(4)
    ax = timeline(result, colour="kind")
    draw(ax)
    faces = ax.collections[0].get_facecolor()
    reduces = result.records["reduce"]
    assert len(np.unique(faces[reduces], axis=0)) == len(np.unique(faces[~reduces], axis=0)) == 1
    assert (faces[reduces][0] != faces[~reduces][0]).any()
    assert color_labels(ax) == ["reduce", "copy"]
    here = made_up([0, 0], [0, 5], [5, 9], dst=np.array([0, 1]))
    assert color_labels(timeline(here, colour="kind")) == ["copy", "local copy"]


def test_the_critical_path_stands_out_and_is_drawn_last() -> None:
    result = run(4, "all_reduce", "tree", slices=4)
    ax = timeline(result, colour="critical")
    draw(ax)
    faces = [tuple(face) for face in ax.collections[0].get_facecolor()]
    on_path = len(result.critical_path.transfers)
    assert 0 < on_path < result.transfers
    assert faces == [faces[0]] * (result.transfers - on_path) + [faces[-1]] * on_path
    assert faces[0] != faces[-1]
    box, records, path = boxes(ax)[-on_path:], result.records, sorted(result.critical_path.transfers)
    np.testing.assert_allclose(sorted(box[:, 0]), np.sort(records["start_ps"][path]) / US)
    assert color_labels(ax) == ["others", "critical path"]


def test_either_spelling_of_colour_will_do() -> None:
    result = run(4)
    assert color_labels(timeline(result, color="chunk")) == color_labels(timeline(result, colour="chunk"))
    ax = timeline(result, color="red")  # a colour is one for all bars
    assert color_labels(ax) == []
    assert np.unique(ax.collections[0].get_facecolor(), axis=0).tolist() == [[1, 0, 0, 1]]


# -- a part of the time ----------------------------------------------------------------------------------------------


def test_a_window_shows_what_is_under_way_in_it() -> None:
    result = run(4)
    ax = timeline(result, start="10us", end=20e-6)
    assert ax.get_xlim() == (10, 20)
    records = result.records
    inside = (records["start_ps"] < 20 * US) & (records["end_ps"] > 10 * US)
    assert 0 < inside.sum() < result.transfers
    np.testing.assert_allclose(np.sort(boxes(ax)[:, 0]), np.sort(records["start_ps"][inside]) / US)
    assert timeline(result, start="30us").get_xlim() == (30, pytest.approx(result.time * 1e6))
    assert timeline(result, end="30us").get_xlim() == (0, 30)
    assert row_labels(timeline(result, start="30us")) == list(result.topology.ranks), "all rows stay"


def test_a_window_is_in_the_unit_of_its_length() -> None:
    ax = timeline(made_up([0], [0], [5 * 10**9]), start="1ms", end="1.5ms")
    assert ax.get_xlabel().startswith("time (us)")
    assert ax.get_xlim() == (1000, 1500)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"start": "2us", "end": "1us"}, "timeline: start: expected a time before end at 1us, got '2us'"),
        ({"start": "1s"}, "timeline: start: expected a time before the end of the run at "),
        ({"start": "1s", "end": "2s"}, "nothing to draw, no transfer is under way from 1s to 2s (the run takes "),
        ({"end": "soon"}, "timeline: end: 'soon': expected a time such as"),
    ],
)
def test_windows_that_show_nothing(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        timeline(run(4), **kwargs)
    assert message in str(caught.value)


# -- more than fits ---------------------------------------------------------------------------------------------------


def test_of_rows_too_thin_some_are_drawn_and_the_title_says_so() -> None:
    n = 3000
    ax = timeline(made_up(np.arange(n), [0] * n, [US] * n))
    box = boxes(ax)
    every = round(n / len(box))
    assert every > 2
    assert every % 2 == 1
    assert f"every {every}th of 3,000 ranks" in ax.get_title(loc="left")
    np.testing.assert_allclose(np.diff(box[:, 2:].mean(axis=1)), every)
    np.testing.assert_allclose(np.ptp(box[:, 2:], axis=1), every, err_msg="no gaps")
    labels = row_labels(ax)
    assert labels[0] == "gpu0"
    assert all(int(label[3:]) % every == 0 for label in labels)


def test_joined_bars_keep_the_critical_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars_module, "MOST_BARS", 50)
    rank, step = np.divmod(np.arange(2000), 400)
    result = made_up(rank, step * US, (step + 1) * US, step=step, dst=rank + 1)
    result.critical_path = SimpleNamespace(transfers=(3, 1205))
    collection = timeline(result, colour="critical").collections[0]
    assert np.asarray(collection.get_array()).sum() == 2


def test_names_are_not_read_as_mathematics() -> None:
    result = made_up([0], [0], [US])
    result.topology = SimpleNamespace(name="a$b$_{", ranks=("$x_{$",))
    draw(timeline(result))


def test_a_run_without_records_says_how_to_get_them() -> None:
    with pytest.raises(CollsimError, match="expected a run with records=True"):
        timeline(collsim.compare("all_reduce", run(4).topology, "1MiB", algorithms="ring").results["ring"][2**20])
