"""The notebooks run from top to bottom, and what they print is what is stored in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from collsim import Collective, ScheduleBuilder, simulate
from collsim.algorithms import bidirectional_ring_all_reduce
from collsim.topology import bidirectional_ring

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def printed(notebook: Any) -> list[str]:
    """What each cell of code printed."""
    return [
        "".join(output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def pictures(notebook: Any) -> list[int]:
    """Number of pictures that each cell of code shows."""
    return [
        sum("image/png" in output.get("data", {}) for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_the_notebooks_are_there() -> None:
    names = [path.name for path in NOTEBOOKS]
    assert names == [
        "01-first-all-reduce.ipynb",
        "02-write-your-own-algorithm.ipynb",
        "03-ring-tree-halving-doubling.ipynb",
        "04-congestion.ipynb",
        "05-reading-a-timeline.ipynb",
        "06-a-cluster-of-dgx-h100.ipynb",
        "15-what-your-machine-could-do.ipynb",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_lead_to_files_and_the_notebook_stays_small(path: Path) -> None:
    text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert [link for link in links if not (FOLDER / link).is_file()] == []
    assert path.stat().st_size < 1_000_000


def test_the_function_of_the_second_notebook_is_the_shipped_one() -> None:
    cells = read(FOLDER / "02-write-your-own-algorithm.ipynb").cells
    (source,) = (cell.source for cell in cells if cell.cell_type == "code" and "def two_way_ring" in cell.source)
    function = source.partition("\n\n\n")[0]
    assert len(function.splitlines()) <= 10
    names = {"np": np, "Collective": Collective, "ScheduleBuilder": ScheduleBuilder}
    exec(function, names)
    for ranks in range(1, 12):
        mine, shipped = names["two_way_ring"](ranks), bidirectional_ring_all_reduce(ranks)
        assert (mine.steps, mine.transfers) == (shipped.steps, shipped.transfers)
        machine = bidirectional_ring(ranks, bandwidth="50GB/s", latency="1us")
        size = 64 * mine.chunks
        assert simulate(mine, machine, size).time_ps == simulate(shipped, machine, size).time_ps


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_and_prints_what_is_stored(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))  # history and connection files go with the test
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel chooses the one that shows pictures in the notebook
    stored, fresh = read(path), read(path)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(fresh, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}})
    client.execute()  # raises with the traceback of a cell that fails
    assert printed(fresh) == printed(stored), "run `jupyter execute --inplace` on the notebook and look at what changed"
    assert pictures(fresh) == pictures(stored)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_reads_well_without_running_it(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    # a first run may say on stderr that it compiles; what is stored has none of that
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert sum(pictures(notebook)) >= 1
    assert sum(map(bool, printed(notebook))) >= len(cells) / 2
    assert any("assert " in cell.source for cell in cells)
