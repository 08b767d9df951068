"""The documentation site has all pages, notebooks and kinds of picture."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from inspect import signature
from pathlib import Path

import pytest

import collsim.plot
import collsim.theory

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
if not (DOCS / "index.md").exists():
    pytest.skip("the documentation is not beside the tests", allow_module_level=True)


def entries(page: Path) -> list[str]:
    """Return what the toctrees of a page name, as paths from the top folder without suffix."""
    text = page.read_text(encoding="utf-8")
    found = []
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line and not line.startswith(":"):
                target = re.sub(r".*<(.*)>", r"\1", line)
                path = (page.parent / target).resolve().relative_to(ROOT)
                found.append(path.as_posix())
    return found


def test_every_page_and_notebook_is_in_a_table_of_contents():
    listed = [entry for page in DOCS.glob("*.md") for entry in entries(page)]
    pages = [path for path in DOCS.glob("*.md") if path.stem != "index"]
    pages += [
        *(ROOT / "notebooks").glob("*.ipynb"),
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
    ]
    for path in pages:
        name = path.relative_to(ROOT).with_suffix("").as_posix()
        assert any(fnmatch(name, pattern) for pattern in listed), f"{name} is in no toctree of docs/"


def test_every_kind_of_picture_is_in_the_gallery():
    scripts = {path.stem for path in (DOCS / "gallery").glob("*.py")}
    functions = {name: getattr(collsim.plot, name) for name in collsim.plot.__all__}
    pictures = {name for name, function in functions.items() if "ax" in signature(function).parameters}
    pictures -= {"save_picture"}  # takes axes, makes none
    assert {"timeline", "topology", "bandwidth_curve"} <= pictures
    assert pictures <= scripts, f"docs/gallery/ lacks {sorted(pictures - scripts)}"
    for name in pictures:
        assert f"collsim.plot.{name}(" in (DOCS / "gallery" / f"{name}.py").read_text(encoding="utf-8")


def test_every_room_of_the_reference_can_be_loaded_and_names_what_is_public():
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    rooms = re.findall(r"^   (collsim[\w.]*)$", text, re.MULTILINE)
    assert {"collsim", "collsim.plot", "collsim.theory", "collsim.forests"} <= set(rooms)
    for room in rooms:
        assert __import__(room, fromlist=["__all__"]).__all__


def test_no_room_is_missing_from_the_reference():
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (ROOT / "collsim").glob("*/__init__.py")}
    packages -= {"cli"}  # described by its own --help
    assert {"plot", "report", "schedule"} <= packages
    for package in packages:
        assert re.search(rf"^   collsim\.{package}(\.\w+)?$", text, re.MULTILINE), f"docs/api.md lacks {package}"
