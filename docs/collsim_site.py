"""What the site needs beyond Sphinx and its extensions; loaded by ``docs/conf.py``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.nodes import make_refnode
from sphinx_gallery.scrapers import figure_rst

__all__ = ["pictures", "setup"]

DPI = 150  # sharp on screens of high density


def pictures(block: tuple[Any, ...], block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the figure of the axes that a block of a gallery script ends with, and return the reST that shows them.

    The functions of `collsim.plot` make figures that pyplot does not know, so the usual scraper does not see them.
    """
    figure = getattr(block_vars["example_globals"].get("___"), "figure", None)  # the value of the last line
    if figure is None or hasattr(figure, "is_in_gallery"):
        return ""
    figure.is_in_gallery = True  # the next block may have no value
    path = next(block_vars["image_path_iterator"])
    figure.savefig(path, dpi=DPI)
    return figure_rst([path], gallery_conf["src_dir"])


def links_to_folders(app: Any, docname: str, source: list[str]) -> None:
    """Let links to a folder lead to its README, as they do on GitHub; without one only the text is left."""
    if app.env.doc2path(docname).suffix != ".md":
        return

    def changed(match: re.Match[str]) -> str:
        folder = (app.env.doc2path(docname).parent / match["path"]).resolve()
        if not folder.is_dir():
            return match[0]
        readme = Path(match["path"]) / "README.md"
        return f"[{match['text']}]({readme.as_posix()})" if (folder / "README.md").is_file() else match["text"]

    source[0] = re.sub(r"\[(?P<text>[^\]\n]+)\]\((?P<path>[\w./-]+)\)", changed, source[0])


def last_lines(app: Any, doctree: nodes.document) -> None:
    """Drop the empty last line of a block, which only doctest needs."""
    for block in doctree.findall(nodes.literal_block):
        if len(block) == 1 and isinstance(block[0], nodes.Text):
            block.rawsource = block.astext().rstrip()  # if the two differ, Sphinx does not colour the code
            block[0] = nodes.Text(block.rawsource)


def numpydoc_for_napoleon(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Write what napoleon reads in another way than numpydoc does so that both mean the same; called before napoleon.

    Attributes that share a description (``src, dst``) get one each. The first line of a property is text; napoleon
    would take what is before a colon for its type.
    """
    if what == "property":
        lines[:0] = ["..", ""]  # an empty comment
    if "Attributes" not in lines:
        return
    at = lines.index("Attributes") + 2
    while at < len(lines) and not (at + 1 < len(lines) and re.fullmatch("-{3,}", lines[at + 1])):
        if re.fullmatch(r"\w+(, \w+)+", lines[at]):
            names = lines[at].split(", ")
            below = next((n for n in range(at + 1, len(lines)) if not lines[n].startswith(" ")), len(lines))
            text = lines[at + 1 : below]
            lines[at:below] = [line for one in names for line in (one, *text)]
            at += len(names) * (len(text) + 1)
        else:
            at += 1


def bare_names(app: Any, env: Any, node: Any, contnode: nodes.Element) -> nodes.Element | None:
    """Link a class or function that is named without its module (``Result``), or by the file that it is written in."""
    target = node.get("reftarget") or ""
    if node.get("refdomain") != "py" or not target:
        return None
    objects = env.get_domain("py").objects
    last = target.rpartition(".")[2]
    written_in = target.startswith("collsim.")
    names = [f"collsim.{last if written_in else target}"]
    if last[0].isupper() and (written_in or last == target):
        names += [name for name in objects if name.endswith(f".{last}")]
    name = next((name for name in names if name in objects), None)
    if written_in and contnode.astext() == target:
        contnode[:] = [nodes.Text(last)]
    if name is None:
        return contnode if written_in else None
    found = objects[name]
    return make_refnode(app.builder, node["refdoc"], found.docname, found.node_id, [contnode], name)


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("source-read", links_to_folders)
    app.connect("autodoc-process-docstring", numpydoc_for_napoleon, priority=400)
    app.connect("doctree-read", last_lines)
    app.connect("missing-reference", bare_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
