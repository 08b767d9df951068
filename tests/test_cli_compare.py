"""``collsim compare``: its table, its words and its JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import collsim
from collsim import algorithms
from collsim.cli import main
from collsim.cli.compare import in_words
from collsim.compiling import NOTICE

RING = str(Path(__file__).parent.parent / "topologies" / "ring8.yaml")

OWN = """
from collsim import Collective, ScheduleBuilder
from collsim.algorithms import ring_all_reduce, tree_broadcast
from collsim.errors import AlgorithmError

def mine(ranks):
    print("to stderr")
    return ring_all_reduce(ranks, slices=2)

def star(ranks, root=0):
    b = ScheduleBuilder(Collective("broadcast", ranks, root), chunks=1)
    b.copy(root, [rank for rank in range(ranks) if rank != root], 0)
    return b.build()

def nothing(ranks):
    return ScheduleBuilder(Collective("all_reduce", ranks), chunks=1).build()

def odd(ranks):
    raise AlgorithmError(f"odd: expected an odd number of ranks, got {ranks}")

def grid(ranks, *, dims):
    return ring_all_reduce(ranks)

def breaks(ranks):
    return 1 // 0
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def out_of(capsys, *arguments, code=0):
    assert main(["compare", *arguments]) == code
    out, err = capsys.readouterr()
    assert not err.replace(NOTICE, "").strip()  # a fresh copy compiles the engine, once
    assert out.isascii()
    return out


def error_of(capsys, *arguments, code=2):
    assert main(["compare", *arguments]) == code
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    return err


def test_the_whole_output(capsys):
    names = "ring,tree,double_binary_tree,binomial_tree"
    assert (
        out_of(capsys, "dgx-h100", "all_reduce", "-b", "8", "-e", "1G", "-f", "1024", "-a", names)
        == """\
# all_reduce on dgx-h100: 8 ranks, cut_through network, float; 4 algorithms
#
#   size    bound  fastest                  time  eff.  second                time  eff.  third            time  eff.
#            (us)                           (us)   (%)                        (us)   (%)                   (us)   (%)
      8B     0.60  double_binary_tree +2    3.60  16.7  ring                  8.40   7.1
    8KiB     0.62  double_binary_tree       3.62  17.1  tree                  3.64  17.0  binomial_tree    3.71  16.7
    8MiB    19.24  ring                    41.02  46.9  double_binary_tree   47.20  40.8  tree            70.54  27.3
#
# +n       n more algorithms take the same time, within 0.01 %
# fastest  up to 8KiB: double_binary_tree; from 8MiB: ring
# all      how much longer each of the others takes is shown with --all, everything with --json
"""
    )


def test_each_line_fits_a_terminal_of_120_columns(capsys):
    for machine in ("dgx-h100", "ring8", "torus-4x4"):
        out = out_of(capsys, machine, "all_reduce", "-b", "8", "-e", "1G", "-f", "8", "--all")
        assert max(map(len, out.splitlines())) <= 120
        rows = [line for line in out.splitlines() if line[:8].strip()[:1].isdigit()]
        assert len(rows) == 10
        assert rows[0].split()[0] == "8B"


def test_ties_are_joined(capsys, monkeypatch):
    def twin(ranks):
        return algorithms.ring_all_reduce(ranks)

    algorithms.algorithm("all_reduce", "a_twin")(twin)
    try:
        out = out_of(capsys, RING, "all_reduce", "-b", "1M", "-e", "2M", "-a", "ring,tree,a_twin")
    finally:
        del algorithms.registry._TABLE["all_reduce", "a_twin"]
    assert "a_twin +1" in out
    assert "# +n       n more algorithms take the same time, within 0.01 %" in out
    assert "# fastest  at all sizes: a_twin (and as fast ring)" in out
    assert "third" not in out


def test_crossovers_in_words():
    machine = collsim.topology.switch(8, bandwidth="50GB/s", latency="1us")

    def words(*sizes):
        names = ["ring", "tree", "double_binary_tree"]
        return in_words(collsim.compare("all_reduce", machine, sizes, algorithms=names))

    assert words(1 << 14) == "at 16KiB: double_binary_tree"
    assert words(1 << 14, 1 << 16) == "at all sizes: double_binary_tree"
    assert words(1 << 14, 1 << 30) == "up to 16KiB: double_binary_tree; from 1GiB: ring"

    found = collsim.compare("all_reduce", machine, [1 << 14, 1 << 15, 1 << 16, 1 << 30], algorithms=["ring"])
    times = {"a": [1, 2, 3, 4], "b": [2, 1, 1, 4], "c": [3, 3, 3, 1], "d": [3, 1, 1, 2]}
    results = {
        name: {size: SimpleNamespace(time_ps=ps) for size, ps in zip(found.sizes, column, strict=True)}
        for name, column in times.items()
    }
    assert in_words(replace(found, results=results)) == (
        "up to 16KiB: a; 32KiB to 64KiB: b (and as fast d); from 1GiB: c"
    )


def test_all_shows_how_much_longer_each_takes(capsys):
    out = out_of(capsys, RING, "all_reduce", "-b", "8", "-e", "256M", "-a", "ring,binomial_tree,tree", "--all")
    blocks = out.split("# times the time of the fastest:\n")[1].split("#\n")[0].splitlines()
    assert len(blocks) == 2 * 4  # more sizes than fit side by side
    assert blocks[0].split()[1:4] == ["8", "16", "32"]
    assert blocks[4].split()[-1] == "256M"
    table = {line.split()[0]: line.split()[1:] for line in blocks[5:]}
    assert table["ring"] == ["1"] * 6
    assert all(float(cell) > 1 for cell in table["tree"])
    assert "# all " not in out


def test_json_holds_everything(capsys):
    text = out_of(
        capsys, RING, "broadcast", "-b", "1K", "-e", "1M", "-f", "32", "-r", "3", "--json", "--network", "fluid"
    )
    document = json.loads(text, parse_constant=pytest.fail)
    assert {key: document[key] for key in ("topology", "operation", "network", "ranks", "datatype", "root")} == {
        "topology": "ring8", "operation": "broadcast", "network": "fluid", "ranks": 8, "datatype": "float", "root": 3,
    }  # fmt: skip
    assert [row["size"] for row in document["results"]] == [1024, 32768, 1048576]
    names = set(algorithms.available()["broadcast"])
    for row in document["results"]:
        assert {entry["algorithm"] for entry in row["ranking"]} | set(document["unfit"]) == names
        times = [entry["time_us"] for entry in row["ranking"]]
        assert times == sorted(times)
        assert all(0 < entry["efficiency"] <= 1 + 1e-9 for entry in row["ranking"])
    assert document["parameters"]["tree"]["k"] >= 1
    spans = document["crossovers"]
    assert spans[0]["first"] == 1024
    assert spans[-1]["last"] == 1048576
    assert spans[0]["algorithm"] in [entry["algorithm"] for entry in document["results"][0]["ranking"][:2]]


def test_times_are_those_of_run(capsys):
    sizes = ("-b", "1K", "-e", "1M", "-f", "32")
    compared = json.loads(out_of(capsys, "dgx-1-v100", "all_reduce", *sizes, "-a", "ring,tree", "--json"))["results"]
    assert main(["run", "dgx-1-v100", "all_reduce", *sizes, "-a", "tree", "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)["results"]
    for row, entry in zip(compared, alone, strict=True):
        (mine,) = (item for item in row["ranking"] if item["algorithm"] == "tree")
        assert {key: mine[key] for key in ("time_us", "busbw_GBps", "bound_us", "theory_us")} == {
            key: entry[key] for key in ("time_us", "busbw_GBps", "bound_us", "theory_us")
        }


def test_functions_of_the_user_take_part(own, capsys):
    assert main(["compare", RING, "all_reduce", "-b", "1M", "-e", "1M", "-a", "ring, own.py:mine,own.py:odd"]) == 0
    out, err = capsys.readouterr()
    assert err == "to stderr\n"
    assert "# fastest  at 1MiB: " in out
    assert "own.py:mine" in out
    assert "# unfit    own.py:odd: odd: expected an odd number of ranks, got 8" in out
    out = out_of(capsys, RING, "all_reduce", "-b", "1M", "-e", "1M", "-a", "ring,own.py:grid")
    assert "# unfit    own.py:grid: topology 'ring8' has no dimensions; give -p dims=2,4" in out
    assert out_of(capsys, "torus-4x4", "all_reduce", "-b", "1M", "-e", "1M", "-a", "own.py:grid")
    assert "from root 5 on ring8" in out_of(
        capsys, RING, "broadcast", "-b", "1M", "-e", "1M", "-r", "5", "-a", "own.py:star"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ring9", "all_reduce"], "ring9"),
        ([RING, "all_redcue"], "OPERATION: expected one of .*; did you mean 'all_reduce'"),
        ([RING, "all_reduce", "-a", "rnig"], "got 'rnig'; did you mean 'ring'"),
        ([RING, "all_reduce", "-a", "ring,"], "-a: expected names such as ring,tree,my_variant.py:mine, got 'ring,'"),
        ([RING, "all_reduce", "-a", "own.py:mien"], "did you mean 'mine'"),
        ([RING, "all_reduce", "-a", "own.py:breaks"], "own.py:25: with 8 ranks: ZeroDivisionError"),
        (
            [RING, "all_reduce", "-a", "own.py:star"],
            "expected a schedule of all_reduce on 8 ranks, got one of broadcast",
        ),
        ([RING, "all_reduce", "-a", "own.py:odd"], "no algorithm fits ring8: own.py:odd: odd: expected an odd number"),
        ([RING, "broadcast", "-r", "8"], "--root: expected a rank from 0 to 7, got '8'"),
        ([RING, "all_reduce", "--network", "flued"], "did you mean 'fluid'"),
        ([RING, "all_reduce", "-d", "int"], "-d: expected one of"),
        ([RING, "all_reduce", "-b", "2M", "-e", "1M"], "-e: expected at least"),
    ],
)
def test_wrong_calls_are_told_in_one_line(own, capsys, arguments, message):
    assert re.search(message, error_of(capsys, *arguments))


def test_a_wrong_schedule_is_told(own, capsys):
    assert "proof failed: own.py:nothing: rank " in error_of(capsys, RING, "all_reduce", "-a", "own.py:nothing", code=1)
    assert out_of(capsys, RING, "all_reduce", "-a", "own.py:nothing", "--no-check")


def test_ctrl_c_ends_it(capsys, monkeypatch):
    def interrupted(*arguments, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("collsim.engine.compare.execute", interrupted)
    assert error_of(capsys, RING, "all_reduce", code=130) == "collsim: interrupted\n"


def test_help_names_the_flags(capsys):
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    out = capsys.readouterr().out
    assert all(
        flag in out for flag in ("--algorithm", "--root", "--minbytes", "--network", "--no-check", "--all", "--json")
    )


def test_algorithms_that_do_not_fit_for_the_same_reason_share_a_line(capsys):
    assert main(["compare", "ring8", "all_reduce", "-b", "1K", "-a", "ring,collnet_direct,collnet_chain,nvls"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# unfit")]
    assert len(lines) == 2
    assert lines[0].startswith("# unfit    collnet_direct, collnet_chain: topology 'ring8' has no ")
