"""``collsim algorithms``, ``collsim topology show`` and the helps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import collsim
from collsim.cli import main

FILES = Path(__file__).parent.parent / "topologies"


def test_algorithms_lists_every_one_with_a_line_and_its_parameters(capsys):
    assert main(["algorithms"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert out.isascii()
    assert max(map(len, lines)) <= 120
    listed: dict[str, list[str]] = {}
    for line in lines[:-2]:
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
