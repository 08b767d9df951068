"""``collsim algorithms``, ``collsim topology show`` and the helps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import collsim
from collsim.cli import main, parser
from collsim.topology import shipped

FILES = Path(__file__).parent.parent / "topologies"


def test_algorithms_lists_every_one_with_a_line_and_its_parameters(capsys):
    assert main(["algorithms"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert out.isascii()
    assert max(map(len, lines)) <= 120
    listed: dict[str, list[str]] = {}
    for line in lines[: lines.index("")]:
        if not line.startswith(" "):
            listed[line] = []
        elif not line.startswith("   "):
            name, _, about = line.strip().partition("  ")
            assert about.strip()[0].isupper()  # a sentence, whatever the docstring looks like
            assert "`" not in about
            assert not about.endswith(".")
            listed[list(listed)[-1]].append(name)
    assert listed == collsim.algorithms.available()
    ring = lines[next(i for i, line in enumerate(lines) if line.startswith("  ring ")) + 1]
    assert ring.split() == ["order=...", "channels=1", "slices=1"]


def test_algorithms_as_json(capsys):
    assert main(["algorithms", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == collsim.algorithms.available()


@pytest.mark.parametrize("file", sorted(FILES.glob("*.yaml")), ids=lambda file: file.stem)
def test_topology_show(capsys, file):
    assert main(["topology", "show", str(file)]) == 0
    out = capsys.readouterr().out
    topology = collsim.load_topology(file)
    assert out == topology.describe() + "\n"
    assert out.isascii()
    assert f"{topology.n_ranks}: " in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["run", "topology", "algorithms", "check", "exit codes: 0"]),
        (
            ["run"],
            ["TOPOLOGY OPERATION", "--algorithm", "--minbytes", "--maxbytes", "--stepfactor", "--datatype", "--root",
             "--parameter", "--network", "--engine", "--synchronous", "--no-check", "--json", "--plot"],
        ),
        (["check"], ["FILE.py:FUNCTION", "--ranks", "exit codes: 0"]),
        (["topology"], ["show"]),
        (["topology", "show"], ["TOPOLOGY"]),
        (["algorithms"], ["--json"]),
    ],
)  # fmt: skip
def test_help(capsys, arguments, words):
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--help"])
    assert end.value.code == 0
    out, err = capsys.readouterr()
    assert not err
    assert out.isascii()
    assert all(word in out for word in words)
    assert max(map(len, out.splitlines())) <= 100


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"collsim {collsim.__version__}\n"


def test_the_shipped_machines_are_listed_and_run_by_name(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # their names are known everywhere
    assert main(["topology", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(shipped())
    assert f"{'dgx-h100':<17}   8 ranks  NVIDIA DGX H100, one node" in lines
    assert main(["run", "ring8", "all_reduce", "-b", "8K"]) == 0
    assert capsys.readouterr().out.startswith("# ring all_reduce on ring8: 8 ranks")
    # a file of the same name comes first
    (tmp_path / "ring8").write_text("name: mine\ngenerator: {name: ring, n: 3, bandwidth: 1GB/s, latency: 1us}")
    assert main(["topology", "show", "ring8"]) == 0
    assert "3 gpu" in capsys.readouterr().out


def test_a_machine_that_is_not_shipped(capsys):
    assert main(["topology", "show", "ring9"]) == 2
    assert capsys.readouterr().err.endswith("got neither; did you mean 'ring8'?\n")


def test_nothing_at_all_shows_the_help(capsys):
    assert main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == parser().format_help()
