"""docs/efficiency.md says what is simulated now."""

from __future__ import annotations

import re

import pytest

import collsim
from collsim import algorithms
from collsim.topology import shipped

efficiency = pytest.importorskip("benchmarks.efficiency", reason="the benchmarks are not here, nor is what they wrote")

STALE = "docs/efficiency.md is out of date: run python -m benchmarks.efficiency"


def tables() -> dict[str, dict[str, dict[str, float | None]]]:
    """By operation, algorithm and machine."""
    found: dict[str, dict[str, dict[str, float | None]]] = {}
    for section in efficiency.FILE.read_text().split("\n## ")[1:]:
        rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
        machines = rows[0][1:]
        found[section.splitlines()[0]] = {
            name: {machine: None if cell == "-" else float(cell) for machine, cell in zip(machines, cells, strict=True)}
            for name, *cells in rows[1:]
        }
    return found


def test_it_has_all_pairs_and_none_is_better_than_possible():
    found = tables()
    for operation, names in algorithms.available().items():
        own = [name for name in names if algorithms.find(operation, name).__module__.startswith("collsim.")]
        if operation != "barrier":
            assert set(own) <= set(found[operation]), STALE
    cells = [cell for rows in found.values() for row in rows.values() for cell in row.values()]
    assert all(list(row) == [*shipped()] for rows in found.values() for row in rows.values()), STALE
    assert all(cell is None or 0 < cell <= 100 for cell in cells)
    assert len([cell for cell in cells if cell is not None]) > 100


@pytest.mark.parametrize(
    ("operation", "name", "machine"),
    [
        ("all_reduce", "ring", "dgx-1-v100"),
        ("all_reduce", "ring", "ring8"),
        ("all_reduce", "bidirectional_ring", "torus-4x4"),
        ("all_reduce", "double_binary_tree", "dgx-h100-x4"),
        ("reduce_scatter", "ring", "dgx-a100-x2"),
        ("all_gather", "ring", "gb200-nvl72"),
        ("broadcast", "tree", "mi300x"),
        ("reduce", "binomial_tree", "fat-tree-16"),
    ],
)
def test_some_rows_are_what_is_simulated_now(operation, name, machine):
    result = collsim.run(operation, collsim.load_topology(machine), efficiency.SIZE, name, dtype="float")
    assert tables()[operation][name][machine] == pytest.approx(100 * result.efficiency, abs=0.005001), STALE


def test_the_generator_writes_a_table(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(efficiency, "shipped", lambda: ["ring8", "pcie-4gpu"])
    monkeypatch.setattr(efficiency, "OPERATIONS", ("all_gather", "barrier"))
    monkeypatch.setattr(efficiency, "FILE", tmp_path / "efficiency.md")

    def eight(ranks):
        if ranks != 8:
            raise collsim.errors.AlgorithmError("ranks: expected 8")
        return algorithms.ring_all_gather(ranks)

    monkeypatch.setattr(
        algorithms.registry,
        "_TABLE",
        {("all_gather", "ring"): algorithms.ring_all_gather, ("all_gather", "eight"): eight},
    )
    efficiency.main()
    text = (tmp_path / "efficiency.md").read_text()
    assert text == efficiency.text()
    assert capsys.readouterr().out.endswith("efficiency.md\n")
    assert "| algorithm | ring8 | pcie-4gpu |\n|---|---:|---:|\n" in text
    assert re.search(r"\| eight \| \d+\.\d\d \| - \|\n", text)
    assert "\n- eight on pcie-4gpu: ranks: expected 8\n" in text
    assert "barrier" not in text
