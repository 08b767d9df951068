"""The report in a real browser: it loads alone, fits windows of all widths, and its player plays."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

import collsim
from collsim.report import write_report
from collsim.topology import rail_optimized

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("no chromium, chromium-browser or google-chrome is installed", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

HEADINGS = [
    "What was simulated",
    "Table",
    "Bus bandwidth against size",
    "What the time of hierarchical goes to",
    "The machine and its load at 64MiB",
    "How busy links are over time at 64MiB",
    "Why it takes so long at 64MiB, and what would help",
    "The least time that there can be",
    "Step by step at 64MiB",
    "How this report was made",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as tools:
        running = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    found = collsim.compare("all_reduce", rail_optimized(2, 4), ["1KiB", "64MiB"], algorithms=["ring", "hierarchical"])
    write_report(found, path, command="collsim report " + "x" * 300)
    return path.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_it_loads_alone_and_can_be_read(browser, address, scheme, width):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address)
    assert page.locator("h1").all_text_contents() == ["all_reduce on rail_optimized"]
    assert page.locator("h2").all_text_contents() == HEADINGS
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for image in page.locator("img").all():
        # there, of the right kind for the window, and not shrunk to where letters cannot be read
        natural, shown = image.evaluate("i => [i.naturalWidth, i.getBoundingClientRect().width]")
        assert image.evaluate("i => i.complete")
        assert shown > 0.75 * min(natural, 430)
        assert (natural < 450) == (width == 400) or natural < 500
        assert shown <= width
    for part in page.locator("p, dd, td, h2").all()[:60]:
        assert part.evaluate("e => parseFloat(getComputedStyle(e).fontSize)") >= 13
    ink, back = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.querySelector('section')).backgroundColor]"
        ".map(c => c.match(/\\d+/g).slice(0, 3).reduce((sum, n) => sum + Number(n), 0) / 3)"
    )
    assert abs(ink - back) > 150
    assert (ink > back) == (scheme == "dark")
    page.locator("nav a", has_text="Player").click()
    frame = page.frame_locator("iframe")
    frame.locator("#last").click()
    assert frame.locator("#progress").text_content().endswith("8 of 8 ranks complete")
    page.locator("summary", has_text="as the text").click()
    assert page.locator("pre", has_text="busiest").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "about:"))] == []
    assert sum(url.startswith("file:") for url in requests) == 1
    context.close()
