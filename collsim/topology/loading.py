"""Topologies by the name of a file or of a machine that comes with collsim."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from collsim.errors import TopologyError, did_you_mean
from collsim.topology.file import loads
from collsim.topology.graph import Topology
from collsim.topology.names import shown_text
from collsim.topology.yamltree import read_text

__all__ = ["load_topology", "read_file", "shipped"]


def load_topology(path: str | Path, **options: Any) -> Topology:
    """Read a topology file.

    Parameters
    ----------
    path
        A YAML file as described in ``topologies/README.md``, the file of another tool (see `collsim.formats`), or the
        name of a shipped machine such as ``"dgx-h100"`` (a file of that name comes first).
    options
        What the reader of another tool's file takes, such as ``gpu="a100"``; see `collsim.formats`.

    Raises
    ------
    TopologyError
        In one line: ``file:line:column: field: expected ..., got ...; did you mean ...?``.

    Examples
    --------
    >>> load_topology("no/such/file.yaml")
    Traceback (most recent call last):
    ...
    collsim.errors.TopologyError: no/such/file.yaml: expected a topology file, got no such file
    """
    found, machines = Path(path), shipped()
    exists = os.path.exists(path)
    if found.name == str(path) and not found.suffix and not os.path.isfile(path) and not options:
        # A directory called ring8 is no topology, the machine is.
        if found.name in machines:
            return loads(read_text(machines[found.name]), found.name)
        if not exists:
            raise TopologyError(
                f"{shown_text(str(path))[1:-1]}: expected a topology file or a shipped machine "
                f"({', '.join(machines)}), got neither{did_you_mean(found.name[:60], machines)}"
            )
    if not exists and found.suffix in (".yaml", ".yml") and found.stem in machines:
        hint = f"did you mean the shipped machine {found.stem!r}?"
        raise TopologyError(f"expected a topology file, got no such file; {hint}", path=str(path))
    # files of other tools are read in a room above this one
    read_topology = import_module("collsim.formats.registry").read_topology
    return read_topology(path, **options)  # type: ignore[no-any-return]


def read_file(path: str | os.PathLike[str]) -> Topology:
    """Read a file in collsim's own format.

    Raises
    ------
    TopologyError
        As `load_topology`.
    """
    return loads(read_text(Path(path)), str(path))


def shipped() -> dict[str, Path]:
    """Return the files of the machines that come with collsim, by name.

    Examples
    --------
    >>> "dgx-h100" in shipped()
    True
    """
    package = Path(__file__).parents[1]
    # installed they lie in the package, in a checkout beside it
    folders = [package / "_topologies", package.parent / "topologies"]
    folder = next((folder for folder in folders if folder.is_dir()), folders[0])
    return {file.stem: file for file in sorted(folder.glob("*.yaml"), key=lambda file: file.stem)}
