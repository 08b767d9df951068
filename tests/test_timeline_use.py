"""The timeline keeps to the axes it is given, and its picture is written whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import collsim
from collsim.errors import InputError
from collsim.plot import check_picture_path, save_timeline, timeline


def run(ranks: int) -> Any:
    topology = collsim.topology.ring(ranks, bandwidth="50GB/s", latency="1us")
    return collsim.run("all_reduce", topology, "1MiB", algorithm="ring")


def test_given_axes_are_drawn_into_and_returned() -> None:
    figure = Figure(layout="constrained")
    left, right = figure.subplots(1, 2)
    assert timeline(run(4), ax=right) is right
    assert len(right.collections) == 1
    assert not left.collections
    assert right.figure is figure


def test_pyplot_never_hears_of_it() -> None:
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    for _ in range(25):
        timeline(run(2))
    assert plt.get_fignums() == before


def test_works_in_the_axes_of_pyplot_and_of_a_subfigure() -> None:
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    figure, ax = plt.subplots()
    try:
        timeline(run(4), ax=ax)
        assert plt.gca() is ax, "the colour bar is not made current"
        figure.canvas.draw()
    finally:
        plt.close(figure)
    figure = Figure(layout="constrained")
    part = figure.subfigures(1, 2)[1]
    draw_in = part.subplots()
    timeline(run(4), ax=draw_in)
    FigureCanvasAgg(figure).draw()


def test_notebooks_show_the_axes_as_a_picture() -> None:
    assert timeline(run(4))._repr_png_().startswith(b"\x89PNG")


def test_importing_loads_no_matplotlib() -> None:
    code = "import sys, collsim.plot; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")])
def test_files_are_written_in_the_format_of_their_suffix(tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = tmp_path / f"timeline{suffix}"
    save_timeline(run(4), path, rows="link")
    assert path.read_bytes().startswith(magic)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timeline.gif", "expected a name that ends in .pdf, .png or .svg"),
        ("timeline", "expected a name that ends in .pdf, .png or .svg"),
        ("nowhere/timeline.png", "no such directory; make it first"),
        ("taken.png", "expected a file, got a directory"),
        ("n" * 300 + ".png", "cannot be written: File name too long"),
    ],
)
def test_files_that_cannot_be_written(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "taken.png").mkdir()
    with pytest.raises(InputError) as caught:
        save_timeline(run(2), str(tmp_path / name))
    assert str(caught.value) == f"plot: {tmp_path / name}: {message}"
    assert [path.name for path in tmp_path.iterdir()] == ["taken.png"]


def test_a_wrong_path_is_found_before_anything_runs() -> None:
    with pytest.raises(InputError, match="expected a name that ends in"):
        check_picture_path("timeline.jpeg2")


def test_a_full_disk_leaves_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "timeline.png"
    path.write_bytes(b"old")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", full)
        with pytest.raises(InputError, match=r"timeline\.png: cannot be written: No space left on device"):
            save_timeline(run(2), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(InputError, match="did you mean"):
        save_timeline(run(2), path, rows="ranks")
    assert path.read_bytes() == b"old"


def test_any_axes_can_be_saved_in_the_same_way(tmp_path: Path) -> None:
    from collsim.plot import save_picture, topology

    path = tmp_path / "machine.png"
    save_picture(topology(collsim.topology.torus((4, 4))), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match=r"plot: .*nowhere.*: no such directory; make it first"):
        save_picture(timeline(run(2)), tmp_path / "nowhere" / "machine.png")


def test_colours_can_be_chosen_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from collsim.cli import main

    path = tmp_path / "ring.svg"
    command = ["run", "ring8", "all_reduce", "-b", "1M", "-e", "1M", "--plot", str(path), "--plot-colour"]
    assert main([*command, "critical"]) == 0
    assert "critical path" in path.read_text()
    assert main([*command, "chunks"]) == 2
    assert "--plot-colour: expected one of step, chunk, channel, kind, critical" in capsys.readouterr().err
