"""What is loaded when: start-up must not pay for what a command does not use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RING = str(ROOT / "topologies" / "ring8.yaml")


def loaded(code: str) -> set[str]:
    """Top-level packages in a fresh interpreter after running code."""
    probe = f"import sys\n{code}\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}), file=sys.stderr)"
    run = subprocess.run(
        [sys.executable, "-c", probe],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(run.stderr.split())


def command(*arguments: str) -> str:
    return f"from collsim.cli import main\ntry:\n    main({list(arguments)!r})\nexcept SystemExit:\n    pass"


HEAVY = {"numpy", "matplotlib", "pandas", "numba", "simpy", "pydantic", "networkx", "yaml"}


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["check", "--help"], ["run", "--no-such-flag"], ["--version"]]
)
def test_help_loads_nothing_heavy(arguments):
    modules = loaded(command(*arguments))
    assert "argparse" in modules
    assert not modules & HEAVY


def test_import_loads_nothing_heavy():
    modules = loaded("import collsim")
    assert "collsim" in modules
    assert not modules & HEAVY


def test_a_run_loads_no_plots_and_no_frames():
    modules = loaded(command("run", RING, "all_reduce", "-b", "1K", "-e", "1K"))
    assert {"numpy", "simpy", "yaml"} <= modules
    assert not modules & {"matplotlib", "pandas", "numba"}


def test_a_run_with_a_plot_does(tmp_path):
    modules = loaded(command("run", RING, "all_reduce", "-b", "1K", "-e", "1K", "--plot", str(tmp_path / "p.svg")))
    assert "matplotlib" in modules
    assert (tmp_path / "p.svg").exists()


def test_listing_loads_neither_engine_nor_reader():
    modules = loaded(command("algorithms"))
    assert not modules & {"matplotlib", "pandas", "numba", "simpy", "pydantic", "yaml"}


def test_every_public_name_is_there():
    import collsim

    assert all(getattr(collsim, name) is not None for name in collsim.__all__)
    assert set(collsim.__all__) <= set(dir(collsim))
