"""The report as a page: what it says, that the numbers are those of the results, and what it refuses."""

from __future__ import annotations

import base64
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import collsim
from collsim.errors import InputError
from collsim.report import report_html, runs, write_report
from collsim.report.document import LARGEST_PLAYER
from collsim.topology import TopologyBuilder, load_topology, ring, switch

FILES = Path(__file__).parent.parent / "topologies"
SIZES = (8, 2**10, 2**20, 2**30)
VOID = {"meta", "link", "img", "source", "br", "input"}


class Page(HTMLParser):
    """A page as its tags, its texts by the id of the section, and its tables; tags must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.section, self.texts = "", {}
        self.tables: list[list[list[str]]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "section":
            self.section = dict(attrs).get("id", "")
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag
        if tag == "section":
            self.section = ""

    def handle_data(self, data):
        self.texts[self.section] = self.texts.get(self.section, "") + data
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def picture(address: str) -> bytes:
    return base64.b64decode(address.partition("base64,")[2])


@pytest.fixture(scope="module")
def ring_results():
    machine = ring(4, bandwidth="50GB/s", latency="1us")
    return [collsim.run("all_reduce", machine, size, dtype="float") for size in SIZES]


@pytest.fixture(scope="module")
def ring_page(ring_results):
    return Page(report_html(ring_results, dtype="float", command="collsim report ring.yaml all_reduce"))


def test_the_table_is_that_of_the_results(ring_page, ring_results):
    head, *rows = ring_page.tables[0]
    assert [cell.partition("(")[0] for cell in head] == [
        "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "theory", "error", "bound",
        "effic.",
    ]  # fmt: skip
    assert [int(row[0].replace(",", "")) for row in rows] == list(SIZES)
    for row, result in zip(rows, ring_results, strict=True):
        values = [float(cell.replace(",", "")) for cell in (row[5], row[7], row[9], row[11], row[12])]
        wanted = [
            result.time * 1e6, result.busbw / 1e9, float(result.theory) * 1e6, float(result.bound) * 1e6,
            100 * result.efficiency,
        ]  # fmt: skip
        assert values == pytest.approx(wanted, rel=1e-3, abs=0.006)
        assert (row[2], row[3], row[8], row[10]) == ("float", "sum", "0", "+0.00")


def test_every_section_says_its_part(ring_page, ring_results):
    last = ring_results[-1]
    assert set(ring_page.texts) >= {
        "what", "table", "curves", "costs", "machine", "heat", "explanation", "bound", "player", "made",
    }  # fmt: skip
    assert "4 ranks" in ring_page.texts["what"]
    assert "all 4 chunks proven" in ring_page.texts["what"]
    assert last.explain().advice[1:] in ring_page.texts["explanation"]
    assert str(last.explain()) in ring_page.texts["explanation"]
    assert last.bound.reason in ring_page.texts["bound"]
    assert "collsim report ring.yaml all_reduce" in ring_page.texts["made"]
    for word in (collsim.__version__, "numpy", "matplotlib", "seed 0"):
        assert word in ring_page.texts["made"]
    ids = [attributes["id"] for _, attributes in ring_page.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    links = [attributes["href"] for attributes in ring_page.all("a")]
    assert links
    assert set(links) <= {f"#{name}" for name in ids}


def test_tables_of_the_explanation_sum_to_the_time(ring_page, ring_results):
    causes = next(table for table in ring_page.tables if table[0][0] == "cause")
    assert sum(float(row[2].replace(",", "")) for row in causes[1:]) == pytest.approx(
        ring_results[-1].time * 1e6, rel=1e-3
    )
    path = next(table for table in ring_page.tables if table[0][0] == "from (us)")
    assert sum(int(row[2]) for row in path[1:]) == len(ring_results[-1].critical_path.transfers)


def test_pictures_are_inside_and_have_words(ring_page, ring_results):
    images, sources = ring_page.all("img"), ring_page.all("source")
    assert len(images) == len(sources) == 4
    for image, source in zip(images, sources, strict=True):
        wide, narrow = (ElementTree.fromstring(picture(address)) for address in (image["src"], source["srcset"]))
        assert float(narrow.get("width").removesuffix("pt")) == pytest.approx(4.4 * 72)
        assert float(wide.get("width").removesuffix("pt")) > 4.4 * 72
    words = [image["alt"] for image in images]
    assert words[0].startswith("Bus bandwidth against message size: ring from 0.00 GB/s at 8B to ")
    assert f"{ring_results[-1].busbw / 1e9:.2f} GB/s at 1GiB; the bound allows" in words[0]
    assert "8B: 6.00 us, 100.0 % latency" in words[1]
    assert "with 4 devices and 4 links" in words[2]
    assert "4 links that are used" in words[3]


def test_nothing_is_loaded_from_anywhere(ring_page):
    for tag, attributes in ring_page.tags:
        for name in ("src", "srcset", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, name)
    policy = next(a["content"] for a in ring_page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "img-src data:" in policy
    assert ring_page.all("script") == []


def test_the_player_is_there_and_may_run_its_own_script_only(ring_page):
    (frame,) = ring_page.all("iframe")
    inner = Page(frame["srcdoc"])
    assert len(inner.all("script")) == 2
    rules = [[a["content"] for a in page.all("meta") if "http-equiv" in a] for page in (ring_page, inner)]
    outer, own = (set(re.findall(r"'sha256-[^']+'", rule)) for (rule,) in rules)
    assert own < outer


def test_the_same_results_make_the_same_page(ring_results):
    assert report_html(ring_results) == report_html(ring_results)


def test_several_algorithms_are_ranked_and_the_fastest_is_looked_at():
    machine = switch(8, bandwidth="50GB/s", latency="1us")
    found = collsim.compare("all_reduce", machine, ["1KiB", "1GiB"], algorithms=["ring", "tree", "halving_doubling"])
    page = Page(report_html(found))
    best = found.ranking("1GiB")[0][0]
    ranked = page.tables[0]
    assert ranked[0] == ["size", "bound", "1", "2", "3"]
    for row, size in zip(ranked[1:], found.sizes, strict=True):
        names = [re.match(r"[a-z_]+", cell)[0] for cell in row[2:]]
        assert names == [name for name, _ in found.ranking(size)]
    assert f"Of 3 algorithms {best} is the fastest at 1GiB" in page.texts[""]
    assert f"What the time of {best} goes to" in page.texts["costs"]
    assert len(page.all("img")) == 4  # results of a comparison have no records: they are run once more
    assert page.all("details")[[*found.results].index(best)].keys() == {"open"}


def test_algorithms_that_do_not_fit_are_named_with_the_reason():
    machine = ring(6, bandwidth="50GB/s", latency="1us")
    found = collsim.compare("all_reduce", machine, ["1MiB"], algorithms=["ring", "nvls"])
    page = Page(report_html(found))
    assert f"nvls: {found.unfit['nvls']}" in page.texts["what"]


def test_too_many_transfers_for_the_player():
    machine = ring(128, bandwidth="50GB/s", latency="1us")
    result = collsim.run("all_reduce", machine, "1GiB", "ring", records=True)
    assert result.transfers > 20_000
    page = Page(report_html(result))
    assert page.all("iframe") == []
    assert "There is no player here: player: expected at most 20,000 transfers, got 32,512" in page.texts["player"]
    assert any(image["alt"].startswith("Timeline of ring at 1GiB") for image in page.all("img"))
    assert any(image["src"].startswith("data:image/png") for image in page.all("img"))


def test_a_player_that_is_too_large_is_left_out(monkeypatch, ring_results):
    monkeypatch.setattr("collsim.report.document.LARGEST_PLAYER", 10_000)
    page = Page(report_html(ring_results))
    assert page.all("iframe") == []
    assert re.search(r"no player here: player: 0\.\d MB would be too much within a report", page.texts["player"])
    assert LARGEST_PLAYER > 10_000


def test_too_many_records_leave_pictures_out_and_say_so(monkeypatch):
    machine = switch(32, bandwidth="50GB/s", latency="1us")
    sizes = ["1KiB", "32KiB", "1MiB", "32MiB"]
    results = [collsim.run("all_reduce", machine, s, "ring", engine="compiled", records=False) for s in sizes]
    assert not any(result.has_records for result in results)
    monkeypatch.setattr(runs, "MOST_RECORDED", 2 * results[0].transfers)
    detailed = runs.runs_of(results).detailed
    assert [size for size, result in detailed.items() if result.has_records] == [2**10, 2**25]
    assert [detailed[r.size].time_ps for r in results] == [r.time_ps for r in results]
    assert "Only 2 of 4 sizes are drawn" in report_html(results)
    monkeypatch.setattr(runs, "MOST_RECORDED", 1)
    page = Page(report_html(results))
    assert f"No picture: the times of {results[0].transfers:,} transfers are too many to keep." in page.texts["heat"]
    assert len(page.all("img")) == 2
    assert "no records were kept" in page.texts["explanation"]


def test_a_barrier_and_a_single_rank_have_their_reports():
    barrier = Page(report_html(collsim.run("barrier", switch(4, bandwidth="50GB/s", latency="1us"), 0, "tree")))
    assert "no data moves" in barrier.texts["curves"]
    assert "GB/s" not in barrier.texts[""]
    alone = Page(report_html(collsim.run("all_reduce", ring(1), "1MiB")))
    assert "no transfer is needed" in alone.texts["costs"]
    assert "Nothing has to travel" in alone.texts["bound"]


@pytest.mark.parametrize("network", ["alpha_beta", "store_and_forward", "fluid"])
def test_all_networks(network):
    result = collsim.run("all_reduce", load_topology(FILES / "fat-tree-16.yaml"), "1MiB", network=network)
    page = Page(report_html(result))
    assert f"{network}: " in page.texts["what"]
    assert len(page.all("img")) == 4


def hostile():
    b = TopologyBuilder("</script><script>alert(1)</script>")
    names = "<img src=x onerror=alert(2)>", "$x$ {{ 7*7 }} \"'</iframe>"
    for name in names:
        b.add_node(name)
    b.add_duplex(*names, 10**9, 10**6, kind="<b>bold</b>")
    return b.build()


def test_names_with_markup_stay_text():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = report_html({"<i>mine</i>": collsim.run("all_reduce", hostile(), "1MiB")}, command="x </code><script>")
    page = Page(text)
    assert page.all("script") == []
    assert page.all("i") == []
    assert all(image["src"].startswith("data:") for image in page.all("img"))
    assert "all_reduce on </script><script>alert(1)</script>" in page.texts[""]
    assert "<i>mine</i>" in page.texts["what"]
    assert "x </code><script>" in page.texts["made"]
    assert "7*7" in page.texts["explanation"]
    assert len(Page(page.all("iframe")[0]["srcdoc"]).all("script")) == 2


def test_letters_that_no_font_has():
    b = TopologyBuilder("環 €")
    for name in ("甲", "乙"):
        b.add_node(name)
    b.add_duplex("甲", "乙", 10**9, 10**6)
    page = report_html(collsim.run("all_reduce", b.build(), "1MiB"))
    assert "<h1>all_reduce on 環" in page


def test_the_file_and_the_figures(tmp_path, ring_results):
    path, folder = tmp_path / "report.html", tmp_path / "figures"
    saved = write_report(ring_results, path, figures=folder, figure_format="png")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["figures", "report.html"]
    assert [Path(p).name for p in saved] == ["bandwidth.png", "costs.png", "topology.png", "heatmap.png"]
    assert all(Path(p).read_bytes().startswith(b"\x89PNG") for p in saved)
    assert path.read_text(encoding="utf-8") == report_html(ring_results)
    write_report(ring_results, path, figures=folder)
    assert len(list(folder.iterdir())) == 8


def test_a_large_machine_stays_below_five_megabytes(tmp_path):
    machine = load_topology(FILES / "dgx-h100-x4.yaml")
    found = collsim.compare("all_reduce", machine, ["1KiB", "64MiB"], algorithms=["nvls_tree", "ring", "tree"])
    write_report(found, tmp_path / "report.html")
    assert "<iframe" in (tmp_path / "report.html").read_text(encoding="utf-8")  # of 11,264 transfers
    assert (tmp_path / "report.html").stat().st_size < 5_000_000


def test_what_cannot_be_written(tmp_path, ring_results, monkeypatch):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.html").mkdir()
    for path, words in (
        (tmp_path / "no" / "r.html", "no such directory; make it first"),
        (tmp_path / "folder.html", "expected a file, got a directory"),
        (tmp_path / "r.pdf", "expected a name that ends in .html or .htm"),
    ):
        with pytest.raises(InputError, match=words):
            write_report(ring_results, path)
    with pytest.raises(InputError, match=r"figures: .*file: expected a directory, got a file"):
        write_report(ring_results, tmp_path / "r.html", figures=tmp_path / "file")
    with pytest.raises(InputError, match="figure_format: expected one of svg, png, got 'gif'"):
        write_report(ring_results, tmp_path / "r.html", figures=tmp_path / "f", figure_format="gif")

    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fails)
    with pytest.raises(InputError, match=r"report: .*r.html: cannot be written: No space left on device"):
        write_report(ring_results, tmp_path / "r.html")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.html"]


def test_what_does_not_belong_together(ring_results):
    other = collsim.run("all_gather", ring_results[0].topology, "1KiB")
    elsewhere = collsim.run("all_reduce", ring(8, bandwidth="50GB/s", latency="1us"), "4KiB")
    for given, words in (
        ([], "expected at least one result, got none"),
        (7, "expected results, got int"),
        ("ring", "expected results, got str"),
        ({"ring": [1]}, "expected results, got int"),
        ([ring_results[0], other], "expected results of one operation, got 'all_reduce', 'all_gather'"),
        ([ring_results[0], elsewhere], "expected results of one topology, got several that are called 'ring'"),
        ([ring_results[0], ring_results[0]], "ring: expected one result of each size, got two of 8B"),
    ):
        with pytest.raises(InputError, match=re.escape(words)):
            report_html(given)
