"""``collsim report``: its flags, what it writes and says, and what it refuses."""

from __future__ import annotations

import html
import json
import re
import shlex
from pathlib import Path

import pytest

from collsim.cli import main
from collsim.compiling import NOTICE

FILES = Path(__file__).parent.parent / "topologies"
RING = str(FILES / "ring8.yaml")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def out_of(capsys, *arguments, code=0):
    assert main(["report", *arguments]) == code
    out, err = capsys.readouterr()
    assert not err.replace(NOTICE, "").strip()
    return out


def error_of(capsys, *arguments):
    try:
        code = main(["report", *arguments])
    except SystemExit as stop:  # argparse
        code = stop.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert list(Path().iterdir()) == []
    return err


def command_in(path):
    return html.unescape(re.search(r"<code>(.*?)</code>", Path(path).read_text(encoding="utf-8"))[1])


def first_column(path):
    table = re.search(r'<table class="results">(.*?)</table>', Path(path).read_text(encoding="utf-8"), re.S)[1]
    return [int(cell.replace(",", "")) for cell in re.findall(r"<tr><td>([\d,]+)</td>", table)]


def test_defaults(capsys):
    out = out_of(capsys, RING, "all_reduce")
    assert re.fullmatch(r"# report   ring8-all_reduce.html \(0\.\d MB; open it in a browser\)\n", out)
    assert first_column("ring8-all_reduce.html") == [8 * 8**k for k in range(9)] + [2**30]
    assert command_in("ring8-all_reduce.html") == shlex.join(
        ["collsim", "report", RING, "all_reduce", "-a", "ring", "-b", "8", "-e", "1G", "-f", "8", "-d", "float",
         "--network", "cut_through", "-o", "ring8-all_reduce.html"]
    )  # fmt: skip


@pytest.mark.parametrize(
    "flags",
    [
        ["broadcast", "-a", "tree", "-p", "k=1", "-p", "slices=4", "--root", "3", "-b", "1K", "-e", "64K", "-f", "8"],
        ["all_reduce", "-a", "ring,tree", "-b", "1M", "-e", "1M", "--network", "fluid", "--no-check", "-d", "half"],
        ["all_to_all", "-a", "pairwise"],
        ["all_reduce", "-b", "4G"],
        ["barrier", "-a", "tree"],
    ],
)
def test_the_command_in_it_makes_it_again(capsys, flags):
    out_of(capsys, RING, *flags, "-o", "it is.html", "--figures", "some figures")
    before = {path: path.read_bytes() for path in Path().rglob("*.*")}
    words = shlex.split(command_in("it is.html"))
    assert words[:2] == ["collsim", "report"]
    for path in before:
        path.unlink()
    assert main(words[1:]) == 0
    assert {path: path.read_bytes() for path in Path().rglob("*.*")} == before


def test_the_table_has_the_numbers_of_run(capsys):
    out_of(capsys, RING, "all_gather", "-b", "1K", "-e", "1M", "-f", "32", "-o", "r.html")
    assert main(["run", RING, "all_gather", "-b", "1K", "-e", "1M", "-f", "32", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    text = Path("r.html").read_text(encoding="utf-8")
    rows = re.findall(r"<tr>(.*?)</tr>", re.search(r'<table class="results">(.*?)</table>', text, re.S)[1])[1:]
    cells = [[cell.replace(",", "") for cell in re.findall(r"<td>(.*?)</td>", row)] for row in rows]
    assert len(cells) == len(results) == 3
    for row, found in zip(cells, results, strict=True):
        assert int(row[0]) == found["size"]
        for column, name in ((5, "time_us"), (6, "algbw_GBps"), (7, "busbw_GBps"), (11, "bound_us")):
            assert float(row[column]) == pytest.approx(found[name], rel=1e-3, abs=0.006)
        assert int(row[8]) == found["wrong"] == 0


def test_without_a_check_nothing_is_said_to_be_right(capsys):
    out_of(capsys, RING, "all_reduce", "-b", "1M", "-e", "1M", "--no-check", "-o", "r.html")
    text = Path("r.html").read_text(encoding="utf-8")
    assert "<td>N/A</td>" in text
    assert "nothing was checked" in text


def test_an_algorithm_of_ones_own_beside_a_shipped_one(capsys):
    Path("mine.py").write_text(
        "from collsim.algorithms import ring_all_reduce\n\ndef mine(ranks):\n    return ring_all_reduce(ranks)\n"
    )
    out_of(capsys, RING, "all_reduce", "-a", "mine.py:mine,tree", "-b", "1M", "-e", "1M", "-o", "r.html")
    text = Path("r.html").read_text(encoding="utf-8")
    assert "Of 2 algorithms mine.py:mine is the fastest at 1MiB" in text


def test_figures(capsys):
    out = out_of(
        capsys, RING, "all_reduce", "-b", "1M", "-e", "1M", "-o", "r.html", "--figures", "f", "--figure-format", "png"
    )
    names = ["bandwidth.png", "costs.png", "topology.png", "heatmap.png"]
    assert re.findall(r"# figure   f/(.*)", out) == names
    assert sorted(path.name for path in Path("f").iterdir()) == sorted(names)


def test_a_name_that_is_no_file_name(capsys):
    text = (FILES / "ring8.yaml").read_text(encoding="utf-8")
    Path("t.yaml").write_text(re.sub(r"(?m)^name: .*$", 'name: "../</script> x"', text, count=1))
    out_of(capsys, "t.yaml", "all_reduce", "-b", "1M", "-e", "1M")
    assert sorted(path.name for path in Path().iterdir()) == ["script-x-all_reduce.html", "t.yaml"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["all_redcue"], "OPERATION: expected one of all_reduce"),
        (["all_reduce", "-o", "no/such/r.html"], "report: no/such/r.html: no such directory; make it first"),
        (["all_reduce", "-o", "r.pdf"], "report: r.pdf: expected a name that ends in .html or .htm"),
        (["all_reduce", "-o", "/dev/null/r.html"], "report: /dev/null/r.html: no such directory"),
        (["all_reduce", "--figures", "no/such/f"], "figures: no/such/f: no directory to make it in"),
        (["all_reduce", "--figure-format", "gif"], "--figure-format: expected one of svg, png, got 'gif'"),
        (["all_reduce", "-a", "ring,tree", "-p", "k=1"], "-p: expected one algorithm, got 2 with -a"),
        (["all_reduce", "-a", "ring,"], "-a: expected names such as ring,tree,my_variant.py:mine, got 'ring,'"),
        (["all_reduce", "-a", "rnig"], "did you mean 'ring'?"),
        (["all_reduce", "-a", "nvls,sharp"], "no algorithm fits ring8: nvls: "),
        (["all_reduce", "-b", "0"], "-b: expected a size from 1 byte to 1 PiB, got '0'"),
        (["all_reduce", "-d", "flaot"], "-d: expected one of"),
        (["all_reduce", "--network", "fludi"], "--network: expected one of"),
        (["broadcast", "--root", "8"], "--root: expected a rank from 0 to 7, got '8'"),
        (["all_reduce", "--htlm", "x"], "unknown: --htlm x"),
    ],
)
def test_what_is_refused_in_one_line(capsys, flags, words):
    assert words in error_of(capsys, RING, *flags)


def test_a_wrong_algorithm_has_no_report(capsys):
    Path("mine.py").write_text(
        "from collsim.schedule import ScheduleBuilder\nfrom collsim.collective import Collective\n\n"
        "def mine(ranks):\n    return ScheduleBuilder(Collective('all_reduce', ranks), chunks=1).build()\n"
    )
    assert main(["report", RING, "all_reduce", "-a", "mine.py:mine"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("collsim: proof failed: ")
    assert [path.name for path in Path().iterdir() if path.suffix == ".html"] == []
