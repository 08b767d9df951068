"""The step player, Python's side: the page, its escaping and its size, refusals, notebooks, the command."""

from __future__ import annotations

import html
import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

import collsim
from collsim import Collective, ScheduleBuilder
from collsim.cli import main
from collsim.errors import CollsimError, InputError
from collsim.player import check_player_path, notebook_html, player_html, refuse_beyond_player, write_player
from collsim.topology import TopologyBuilder, ring

MEAN = "</script><script>alert(1)</script>"


def ring_result(ranks: int = 4, size: str = "1MiB", **more: Any) -> Any:
    return collsim.run("all_reduce", ring(ranks, bandwidth="50GB/s", latency="1us"), size, "ring", **more)


def data_of(page: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1]
    )
    return found


def mean_result() -> Any:
    b = TopologyBuilder(name=MEAN)
    names = "<img src=x onerror=alert(2)>", "a&b\u2028'\"</script>"
    for name in names:
        b.add_node(name)
    b.add_duplex(*names, 10**9, 10**6, kind="<b>")
    return collsim.run("all_reduce", b.build(), "1MiB", "ring")


def test_names_with_markup_do_no_harm():
    result = mean_result()
    page = player_html(result)
    assert "<img" not in page
    assert "alert(1)</script>" not in page
    assert "\u2028" not in page
    assert page.count("<script") == 2  # the data and our own
    assert page.count("</script") == 2
    assert f"<title>ring all_reduce, 1MiB on {html.escape(MEAN)}</title>" in page
    data = data_of(page)
    assert data["topology"] == MEAN
    assert data["nodes"]["name"] == list(result.topology.nodes)


def test_the_script_sets_no_markup():
    # names become text, never HTML
    page = player_html(ring_result())
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert word not in page


def test_the_page_stands_alone():
    page = player_html(ring_result())
    assert not re.search(r"https?:|src=|@import|url\(|fetch\(|XMLHttp|WebSocket", page)
    assert "default-src 'none'" in page
    assert page.isascii() or "charset" in page


def test_sixty_four_ranks_stay_small():
    page = player_html(ring_result(64))
    assert len(data_of(page)["transfers"]["src"]) == 8064
    assert len(page) < 1_500_000


def test_refusals_say_the_limit_and_what_to_do():
    many = "^player: expected at most 20,000 transfers, got 79,600; simulate fewer ranks, chunks or slices, or"
    with pytest.raises(InputError, match=many):
        ring_result(200).to_html("never.html")
    with pytest.raises(InputError, match=r"at most 256 ranks and switches .*, got 300"):
        refuse_beyond_player(collsim.algorithms.build("broadcast", "binomial_tree", 300), ring(300))
    with pytest.raises(InputError, match=r"at most 1,000 nodes .*, got 1,001"):
        refuse_beyond_player(collsim.algorithms.build("broadcast", "linear", 2), ring(1001))
    b = ScheduleBuilder(Collective("broadcast", 2), chunks=500_000)
    b.copy(0, 1, 0, count=500_000)
    with pytest.raises(InputError, match=r"at most 400,000 chunks moved .*, got 500,000"):
        refuse_beyond_player(b.build(), ring(2))
    b = ScheduleBuilder(Collective("broadcast", 2), chunks=1_000_000)
    b.copy(0, 1, 0)
    with pytest.raises(InputError, match=r"at most 2,000,000 chunks in all buffers, got 4,000,000"):
        refuse_beyond_player(b.build(), ring(2))
    assert not Path("never.html").exists()


def test_without_records_it_says_how_to_get_them(tmp_path):
    with pytest.raises(CollsimError, match="expected a run with records=True"):
        ring_result(records=False, engine="compiled").to_html(tmp_path / "a.html")


def test_paths_that_cannot_be_written(tmp_path):
    result = ring_result()
    with pytest.raises(InputError, match=r"^player: .*ring.txt: expected a name that ends in .html or .htm$"):
        result.to_html(tmp_path / "ring.txt")
    with pytest.raises(InputError, match="no such directory; make it first"):
        result.to_html(tmp_path / "no" / "ring.html")
    (tmp_path / "dir.html").mkdir()
    with pytest.raises(InputError, match="expected a file, got a directory"):
        result.to_html(tmp_path / "dir.html")
    with pytest.raises(InputError, match=r"cannot be written: .+"):
        write_player(result, tmp_path / ("x" * 300 + ".html"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dir.html"]


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "ring.HTML"
    path.write_text("old")
    ring_result().to_html(str(path))
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_ISREG(path.stat().st_mode)
    assert check_player_path(path) == path.resolve()


def test_notebooks_show_the_same_player():
    result = ring_result()
    shown = result._repr_html_()
    page = html.unescape(re.search(r'srcdoc="([^"]*)"', shown)[1])
    assert page == player_html(result)
    assert 'sandbox="allow-scripts"' in shown
    assert notebook_html(result) == shown


def test_notebooks_get_a_short_text_where_there_is_no_player():
    text = ring_result(40)._repr_html_()
    assert "3,120 transfers are too many for a notebook (at most 2,000)" in text
    assert "to_html" in text
    assert "&lt;Result ring all_reduce" in text
    assert "records=True" in ring_result(records=False, engine="compiled")._repr_html_()
    b = TopologyBuilder(name=MEAN)
    for i in range(40):
        b.add_node(f"n{i}")
    for i in range(40):
        b.add_duplex(f"n{i}", f"n{(i + 1) % 40}", 10**9, 10**6)
    assert "<script" not in collsim.run("all_reduce", b.build(), "1MiB", "ring")._repr_html_()


def test_the_command_writes_the_largest_size(capsys, tmp_path):
    path = tmp_path / "ring.html"
    call = ["run", "ring8", "all_reduce", "-b", "1M", "-e", "2M", "--html", str(path)]
    assert main(call) == 0
    assert f"# html     {path} (the largest size; open it in a browser)" in capsys.readouterr().out
    data = data_of(path.read_text())
    assert data["size"] == "2MiB"
    assert data["proof"] == "proven"
    assert main([*call, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["html"] == str(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--html", "ring.txt"], "player: ring.txt: expected a name that ends in .html or .htm"),
        (["--html", "no/ring.html"], "player: no/ring.html: no such directory; make it first"),
        (["--html", "ring.html", "-p", "slices=1000"], "player: expected at most 20,000 transfers, got 112,000;"),
    ],
)
def test_the_command_refuses_before_it_runs(capsys, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "ring8", "all_reduce", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    assert f"collsim: error: {words}" in err
    assert not list(tmp_path.iterdir())
