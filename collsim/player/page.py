"""The page itself: one HTML file with its styles, its script and its data inside."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from collsim.errors import CollsimError
from collsim.outputs import write_whole
from collsim.player.data import player_data
from collsim.player.limits import MOST_IN_NOTEBOOK, check_player_path

if TYPE_CHECKING:
    from collsim.engine.result import Result

__all__ = ["notebook_html", "player_html", "write_player"]

SCRIPTS = ("model.js", "machine.js", "grid.js", "timeline.js", "words.js", "main.js")
"""Parts of the script, in the order in which they are joined."""
UNSAFE = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&"}
"""Letters that could end a script; in JSON they only stand in texts. All beyond ASCII is written so anyway."""
FRAME = 760
"""Height of the player in a notebook, in pixels."""


def player_html(result: Result) -> str:
    """Return a page that plays a run: the machine, chunks on their way, what every rank holds, and the timeline.

    Parameters
    ----------
    result
        A run with records, of at most 20,000 transfers.

    Returns
    -------
    str
        HTML that needs nothing else: no network, no other file.

    Raises
    ------
    InputError
        If the run is larger than the player takes.
    CollsimError
        If no records were kept.

    Examples
    --------
    >>> import collsim
    >>> topology = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    >>> page = player_html(collsim.run("all_reduce", topology, "1MiB", algorithm="ring"))
    >>> page.startswith("<!DOCTYPE html>"), "https://" in page
    (True, False)
    """
    data = player_data(result)
    page: str = _template().render(
        title=f"{data['title']}, {data['size']} on {data['topology']}",
        script=_script(),
        script_hash=_hash(_script()),
        styles=_own("player.css"),
        styles_hash=_hash(_own("player.css")),
        data=_json(data),
    )
    return page


def write_player(result: Result, path: str | os.PathLike[str]) -> None:
    """Write the page that plays a run.

    Parameters
    ----------
    result
        A run with records, of at most 20,000 transfers.
    path
        A file that ends in ``.html`` or ``.htm``. It is replaced at once or not at all.

    Raises
    ------
    InputError
        If the file cannot be written, or the run is larger than the player takes.
    CollsimError
        If no records were kept.

    Examples
    --------
    >>> write_player(None, "no/such/directory/ring.html")
    Traceback (most recent call last):
        ...
    collsim.errors.InputError: player: no/such/directory/ring.html: no such directory; make it first
    """
    check_player_path(path)
    page = player_html(result).encode(errors="replace")  # a name may have half a letter
    write_whole(path, page, "player")


def notebook_html(result: Result) -> str:
    """Return the player as a frame for a notebook, or a short text if there is none of this run.

    Parameters
    ----------
    result
        Any run. Above 2,000 transfers a notebook would grow too large: the text says how to write a file.

    Returns
    -------
    str
        A piece of HTML.

    Examples
    --------
    >>> import collsim
    >>> topology = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    >>> notebook_html(collsim.run("all_reduce", topology, "1MiB", algorithm="ring"))[:7]
    '<iframe'
    """
    if result.transfers > MOST_IN_NOTEBOOK:
        why = f"{result.transfers:,} transfers are too many for a notebook (at most {MOST_IN_NOTEBOOK:,})"
        return _text(result, f'{why}; to_html("run.html") writes the player to a file of its own')
    try:
        page = player_html(result)
    except CollsimError as error:
        return _text(result, str(error))
    return (
        f'<iframe title="collsim player" sandbox="allow-scripts" srcdoc="{html.escape(page)}" '
        f'style="width: 100%; height: {FRAME}px; border: 0"></iframe>'
    )


def _text(result: Result, why: str) -> str:
    return f"<pre>{html.escape(repr(result))}</pre><p>No player: {html.escape(why)}</p>"


def _json(data: dict[str, Any]) -> str:
    """Write data so that it can stand inside a script element, whatever the names are."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(UNSAFE)


def _hash(text: str) -> str:
    """Name a script or style to the browser, which then runs no other."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _own(name: str) -> str:
    return files("collsim.player").joinpath("page", name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    parts = "\n".join(_own(name) for name in SCRIPTS)
    return f'\n"use strict";\n(() => {{\n{parts}\n}})();\n'


@cache
def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    # everything is escaped but our own script and styles, and the data, which is escaped as JSON
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_own("player.html.j2"))
