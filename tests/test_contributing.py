"""The recipes of CONTRIBUTING.md, done as they are written, in a copy of the project."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parent.parent


def section(title: str) -> str:
    """The text of a section of CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.split(r"^## ", text.partition(f"\n## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def blocks(title: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", section(title), re.DOTALL | re.MULTILINE)


def commands(title: str, program: str) -> list[list[str]]:
    """Calls of a program in the shell blocks of a section."""
    lines = [shlex.split(line) for block in blocks(title, "bash") for line in block.splitlines()]
    return [line[1:] for line in lines if line[0] == program]


def file_named(title: str, pattern: str) -> str:
    """The file that the text in front of the first block of code says to write."""
    found = re.search(pattern, section(title).partition("\n```")[0])
    assert found
    return found[1]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A copy of the project in which both recipes were followed."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("collsim", "tests", "topologies", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder)
    function, line = blocks("Add an algorithm", "python")
    algorithm = folder / file_named("Add an algorithm", r"as `(collsim/algorithms/\w+\.py)`")
    assert not algorithm.exists()
    algorithm.write_text(function, encoding="utf-8")
    home = algorithm.with_name("__init__.py")
    text, name = home.read_text(encoding="utf-8"), line.split()[-1]
    assert text.count("__all__ = [\n") == 1
    home.write_text(text.replace("__all__ = [\n", f'{line}\n__all__ = [\n    "{name}",\n'), encoding="utf-8")
    machine = folder / file_named("Add a topology", r"This is `(topologies/[\w-]+\.yaml)`")
    assert not machine.exists()
    machine.write_text(blocks("Add a topology", "yaml")[0], encoding="utf-8")
    return SimpleNamespace(folder=folder, algorithm=algorithm, machine=machine)


def run(copy: SimpleNamespace, module: str, *arguments: str) -> str:
    """What a module of the copy prints."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=copy.folder, env={**os.environ, "PYTHONPATH": str(copy.folder), "PYTEST_ADDOPTS": ""},
        capture_output=True, text=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_algorithm(copy: SimpleNamespace) -> None:
    listed, checked, table = (run(copy, "collsim", *words) for words in commands("Add an algorithm", "collsim"))
    assert re.search(
        r"^gather\n(?:  .*\n)*?  direct +Every rank sends its block straight to the root", listed, re.MULTILINE
    )
    lines = [line for line in checked.splitlines() if not line.startswith("#")]
    assert [line.split()[:2] for line in lines] == [[f"N={n}", "ok"] for n in range(1, 34)]
    assert "# direct gather on ring8: 8 ranks" in table
    assert "# Out of bounds values : 0 OK" in table


def test_an_algorithm_in_a_file_of_ones_own(copy: SimpleNamespace) -> None:
    shutil.copy(copy.algorithm, copy.folder / "my_file.py")
    named = re.search(r"`collsim (check my_file\.py:\w+)`", section("Add an algorithm"))
    assert named
    assert run(copy, "collsim", *named[1].split(), "--ranks", "2-5").count(" ok ") == 4


def test_the_algorithm_has_what_the_linters_ask_for(copy: SimpleNamespace) -> None:
    module = ast.parse(copy.algorithm.read_text(encoding="utf-8"))
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    assert ast.get_docstring(module)
    assert functions
    for function in functions:
        assert ast.get_docstring(function)
        assert function.returns is not None
        assert all(argument.annotation for argument in function.args.args)
    run(copy, "doctest", str(copy.algorithm))


def test_a_topology(copy: SimpleNamespace) -> None:
    shown, table = (run(copy, "collsim", *words) for words in commands("Add a topology", "collsim"))
    assert "my-machine" in shown
    assert "# ring all_reduce on my-machine: 8 ranks" in table
    assert "# Out of bounds values : 0 OK" in table


def test_the_schema_is_written_as_told(copy: SimpleNamespace) -> None:
    (line,) = commands("Add a topology", "python")
    assert line[0] == "-m"
    assert line[2] == ">"
    assert run(copy, line[1]) == (copy.folder / line[3]).read_text(encoding="utf-8")


@pytest.mark.slow
def test_no_test_has_to_be_edited(copy: SimpleNamespace) -> None:
    # what reads the tables of algorithms and topologies; the tests of what was there before are left out
    new = (
        "gather-direct or the_table or refusals or without_algorithms or rnig or algorithms_ or my-machine or left_over"
    )
    printed = run(copy, "pytest", "-q", "-p", "no:cacheprovider", "tests", "-k", new)
    passed = re.search(r"^(\d+) passed", printed, re.MULTILINE)
    assert passed, printed
    assert int(passed[1]) > 60
