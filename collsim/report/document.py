"""The page of a report, put together and written."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collsim.engine.explain import explain
from collsim.engine.outcome import Pulse, no_pulse
from collsim.errors import CollsimError, InputError, one_of
from collsim.outputs import output_path, write_whole
from collsim.player import player_html
from collsim.report import words
from collsim.report.pictures import pictures, save
from collsim.report.runs import Results, runs_of
from collsim.units import format_size

if TYPE_CHECKING:
    from collsim.engine.result import Result

__all__ = ["FORMATS", "check_figures", "check_report_path", "report_html", "write_report"]

SUFFIXES = (".html", ".htm")
FORMATS = ("svg", "png")
LARGEST_PLAYER = 3_000_000
"""Bytes of a player that a report keeps."""
COLUMNS = (
    ("size", "B"), ("count", "elements"), ("type", ""), ("redop", ""), ("root", ""), ("time", "us"), ("algbw", "GB/s"),
    ("busbw", "GB/s"), ("#wrong", ""), ("theory", "us"), ("error", "%"), ("bound", "us"), ("effic.", "%"),
)  # fmt: skip


def write_report(
    results: Results,
    path: str | os.PathLike[str],
    figures: str | os.PathLike[str] | None = None,
    *,
    figure_format: str = "svg",
    command: str | None = None,
    dtype: str | None = None,
    wrong: words.Wrong = words.proven,
    progress: Pulse = no_pulse,
) -> list[str]:
    """Write one HTML file that tells everything about some runs; it needs no other file and no network.

    Parameters
    ----------
    results
        What `collsim.compare` found; or a result; or results of several sizes, told apart by their algorithm; or names
        and the results of each. All of one operation on one machine. What has no records is run once more where its
        transfers are not too many, so that there are pictures.
    path
        A file that ends in ``.html`` or ``.htm``. It is replaced at once or not at all.
    figures
        A directory for the pictures as files of their own; it is made if it is not there.
    figure_format
        ``"svg"`` or ``"png"``.
    command
        The command line that makes the report again.
    dtype
        Name of the element type; without it the table tells its bytes.
    wrong
        Returns how many elements of a result are wrong; if not given, those that were proven have none.
    progress
        Called now and then with the number of transfers of experiments that are done and of all.

    Returns
    -------
    list of str
        The paths of the figures.

    Raises
    ------
    InputError
        If a file cannot be written, or there are no results, or they do not belong together.

    Examples
    --------
    >>> write_report([], "no/such/directory/report.html")
    Traceback (most recent call last):
        ...
    collsim.errors.InputError: report: no/such/directory/report.html: no such directory; make it first
    """
    check_report_path(path)
    one_of("report: figure_format", figure_format, FORMATS)
    if figures is not None:
        check_figures(figures)
    page, drawn = _made(results, command, dtype, wrong, progress)
    saved = []
    if figures is not None:
        _make(figures)
        saved = [save(picture, figures, figure_format) for picture in drawn]
    # a name may have half a letter
    write_whole(path, page.encode(errors="replace"), "report")
    return saved


def report_html(
    results: Results,
    *,
    command: str | None = None,
    dtype: str | None = None,
    wrong: words.Wrong = words.proven,
    progress: Pulse = no_pulse,
) -> str:
    """Return the page that `write_report` writes.

    Parameters
    ----------
    results, command, dtype, wrong, progress
        As there.

    Raises
    ------
    InputError
        If there are no results, or they do not belong together.

    Examples
    --------
    >>> import collsim
    >>> topology = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    >>> page = report_html([collsim.run("all_reduce", topology, size) for size in ("1KiB", "1MiB")])
    >>> "<h1>all_reduce on ring</h1>" in page, page.count("https://")
    (True, 0)
    """
    return _made(results, command, dtype, wrong, progress)[0]


def check_report_path(path: str | os.PathLike[str]) -> Path:
    """Refuse a path for a report that cannot be written, before time is spent; see `collsim.outputs.output_path`."""
    return output_path(path, "report", SUFFIXES)


def check_figures(folder: str | os.PathLike[str]) -> None:
    """Refuse a directory for figures that is something else, or that cannot be made.

    Raises
    ------
    InputError
        If there is a file of that name, or no directory to make it in.
    """
    shown, target = os.fspath(folder), Path(os.path.realpath(folder))
    if target.exists() and not target.is_dir():
        raise InputError(f"figures: {shown}: expected a directory, got a file")
    if not target.exists() and not target.parent.is_dir():
        raise InputError(f"figures: {shown}: no directory to make it in; make that first")


def _make(folder: str | os.PathLike[str]) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise InputError(f"figures: {os.fspath(folder)}: cannot be made: {error.strerror}") from error


def _made(
    results: Results, command: str | None, dtype: str | None, wrong: words.Wrong, progress: Pulse
) -> tuple[str, list[Any]]:
    """Return the page and its pictures."""
    runs = runs_of(results)
    last = runs.largest
    player, why_not = _player(last)
    drawn, missing = pictures(runs, with_timeline=player is None)
    why = explain(last, progress=progress)
    several = len(runs.results) > 1
    styles = _own("report.css")
    # a frame is held to the rules of the page around it, so that has to know the player's script and style as well
    hashes = [f"'sha256-{_hash(styles)}'", *_hashes(player or "")]
    page: str = _template().render(
        title=f"{runs.operation} on {runs.topology.name}",
        subtitle=_subtitle(runs),
        hashes=" ".join(hashes),
        styles=styles,
        key_figures=words.key_figures(runs),
        facts=words.facts(runs, dtype),
        columns=COLUMNS,
        tables=[{"name": name, **words.table(by_size, dtype, wrong)} for name, by_size in runs.results.items()],
        ranking=words.ranking(runs) if several else [],
        name=runs.name,
        several=several,
        size=format_size(last.size),
        pictures=drawn,
        missing=missing,
        why=words.explanation(why),
        bound=words.bound_words(runs),
        player=player,
        why_not=why_not,
        versions=words.versions(),
        command=command,
    )
    return page, list(drawn.values())


def _subtitle(runs: Any) -> str:
    names = list(runs.results)
    what = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    sizes = list(dict.fromkeys([format_size(runs.sizes[0]), format_size(runs.sizes[-1])]))
    return f"{what}: {words.count(runs.topology.n_ranks, 'rank')}, {' to '.join(sizes)}, {runs.network} network"


def _player(result: Result) -> tuple[str | None, str]:
    """Return the page of the player, or why there is none."""
    try:
        page = player_html(result)
    except CollsimError as error:
        return None, str(error)
    if len(page) > LARGEST_PLAYER:
        return None, (
            f"player: {len(page) / 1e6:.1f} MB would be too much within a report; write it to a file of its own: "
            "collsim run ... --html FILE, or result.to_html(FILE) in Python"
        )
    return page, ""


def _hashes(page: str) -> list[str]:
    """Return the hashes by which a page allows its scripts and styles."""
    head = page.partition("</head>")[0]
    return list(dict.fromkeys(re.findall(r"'sha256-[A-Za-z0-9+/]+=*'", head)))


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _own(name: str) -> str:
    return files("collsim.report").joinpath("page", name).read_text(encoding="utf-8")


@cache
def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    # everything is escaped but our own styles; pictures and the player are texts of attributes
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_own("report.html.j2"))
