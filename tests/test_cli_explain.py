"""``collsim explain``: its text, its JSON, its flags, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import collsim
from collsim.cli import main
from collsim.compiling import NOTICE
from collsim.engine.explain import explain

ROOT = Path(__file__).parent.parent


def out_of(capsys, *arguments):
    assert main(["explain", *arguments]) == 0
    out, err = capsys.readouterr()
    assert not err.replace(NOTICE, "").strip()
    assert out.isascii()
    assert max(map(len, out.splitlines())) <= 120 or arguments[-1] == "--json"
    return out


def json_of(capsys, *arguments):
    return json.loads(out_of(capsys, *arguments, "--json"))


def error_of(capsys, *arguments):
    try:
        code = main(["explain", *arguments])
    except SystemExit as stop:  # argparse
        code = stop.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("collsim: error: ")
    return err


def test_the_text_is_that_of_python(capsys):
    out = out_of(capsys, "ring8", "all_reduce", "-b", "1M", "--budget", "2000")
    result = collsim.run("all_reduce", collsim.load_topology("ring8"), "1MiB", dtype="float")
    assert out == f"{explain(result, budget=2000)}\n"
    assert [line.split()[0] for line in out.splitlines()[1:] if not line.startswith(" ")] == [
        "why", "where", "path", "busiest", "bound", "theory", "helps",
    ]  # fmt: skip


def test_the_default_is_a_ring_of_32_mebibytes(capsys):
    out = out_of(capsys, "ring8", "all_reduce", "--budget", "0")
    assert out.startswith("ring all_reduce of 32MiB on ring8, cut_through network: ")


def test_flags_reach_the_simulation(capsys):
    what = ["line8", "broadcast", "-b", "64K", "-a", "tree", "-p", "k=1", "-p", "slices=4", "-r", "3", "-d", "double"]
    how = ["--network", "fluid", "--engine", "reference", "--synchronous", "--no-check", "--budget", "1000"]
    found = json_of(capsys, *what, *how)
    result = collsim.run(
        "broadcast", collsim.load_topology("line8"), 2**16, "tree", k=1, slices=4, root=3, dtype="double",
        network="fluid", synchronous=True,
    )  # fmt: skip
    assert found["time_us"] == result.time * 1e6
    assert (found["algorithm"], found["network"], found["size"]) == ("tree", "fluid", 65536)
    assert any(one["kind"] == "barrier" for one in found["experiments"])


def test_json_has_all_that_was_found_out(capsys):
    found = json_of(capsys, "fat-tree-16", "all_to_all", "-a", "direct", "-b", "1M")
    for shares in ("links", "classes"):
        assert sum(one["time_us"] for one in found[shares]) == pytest.approx(found["time_us"])
        assert sum(one["part"] for one in found[shares]) == pytest.approx(1)
    assert sum(found["causes_us"].values()) == pytest.approx(found["time_us"])
    assert sum(one["time_us"] for one in found["critical_path"]) == pytest.approx(found["time_us"])
    assert found["critical_path"][0]["start_us"] == 0
    assert found["links"][0]["name"].startswith("leaf")
    assert found["busiest"][0]["part"] > 0.9
    assert found["bound"]["reason"].startswith("cut: out of gpu0 to gpu3: leaf -> spine")
    best = found["experiments"][0]
    assert best["kind"] == "bandwidth"
    assert best["time_us"] + best["saved_us"] == pytest.approx(found["time_us"])
    assert best["what"] in found["advice"]
    assert found["records"] is True
    assert "multitree instead of direct" not in found["untried"]


def test_without_records_json_has_nulls_and_the_flag_helps(capsys):
    words = ["ring8", "all_reduce", "-b", "8", "-p", "slices=9000", "--budget", "0", "--no-check"]
    found = json_of(capsys, *words)
    assert found["transfers"] > 1_000_000
    assert [found[name] for name in ("records", "causes_us", "links", "classes", "critical_path")] == [
        False, None, None, None, None,
    ]  # fmt: skip
    assert "(on the command line --records) keeps them" in " ".join(out_of(capsys, *words).split())


def test_records_can_be_asked_for(capsys, monkeypatch):
    monkeypatch.setattr("collsim.engine.simulate.MOST_RECORDS", 10)
    words = ["ring8", "all_reduce", "-b", "1M", "--budget", "0"]
    assert json_of(capsys, *words, "--engine", "compiled")["records"] is False
    assert json_of(capsys, *words, "--engine", "compiled", "--records")["causes_us"]["latency"] == pytest.approx(14)


def test_a_function_of_ones_own(capsys, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from collsim import Collective\nfrom collsim.schedule import ScheduleBuilder\n"
        "def star(ranks, root=0):\n"
        "    b = ScheduleBuilder(Collective('broadcast', ranks, root), chunks=1)\n"
        "    b.copy(root, [r for r in range(ranks) if r != root])\n"
        "    return b.build()\n"
    )
    found = json_of(capsys, "ring8", "broadcast", "-a", f"{mine}:star", "-b", "1M", "--budget", "5000")
    assert found["algorithm"] is None
    assert any(one["what"] == "ring instead of this schedule" for one in found["experiments"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ring8", "all_reduse"], "OPERATION: expected one of all_reduce"),
        (["ring8", "all_reduce", "-a", "rign"], "did you mean 'ring'?"),
        (["ring8", "all_reduce", "-p", "channels"], "-p: expected NAME=VALUE"),
        (["ring8", "all_reduce", "-p", "channels=1", "-p", "channels=2"], "-p: channels is given twice"),
        (["ring8", "broadcast", "-r", "8"], "--root: expected a rank from 0 to 7, got '8'"),
        (["ring8", "all_reduce", "-b", "many"], "-b: "),
        (["ring8", "all_reduce", "-b", "0"], "-b: expected a size from 1 byte"),
        (["ring8", "all_reduce", "-b", "1M", "-e", "2M"], "unknown: -e 2M"),
        (["ring8", "all_reduce", "--network", "flued"], "did you mean 'fluid'?"),
        (["ring8", "all_reduce", "--engine", "warp"], "--engine: expected one of auto"),
        (["ring8", "all_reduce", "--budget", "-1"], "--budget"),
        (["ring8", "all_reduce", "--budget", "1e6"], "--budget: expected a whole number of transfers from 0 to"),
        (["no-such-machine", "all_reduce"], "no-such-machine"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(capsys, arguments, message):
    assert message in error_of(capsys, *arguments)


def test_help_loads_nothing_heavy_and_names_every_flag():
    code = "import sys\nfrom collsim.cli import main\ntry:\n main(['explain', '--help'])\nexcept SystemExit:\n pass\n"
    code += "print(*sorted(name.partition('.')[0] for name in sys.modules), file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"numpy", "matplotlib", "numba", "simpy", "networkx", "pydantic"} & set(run.stderr.split())
    for flag in ("-a", "-p", "-r", "-b", "-d", "--network", "--engine", "--synchronous", "--records", "--budget"):
        assert f" {flag}" in run.stdout
