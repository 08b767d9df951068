"""``collsim topology show`` and ``collsim algorithms``."""

from __future__ import annotations

import argparse
import inspect
import json
import re
import textwrap

from collsim import algorithms
from collsim.engine.fit import FITTED
from collsim.topology import load_topology, shipped

__all__ = ["list_topologies", "show_algorithms", "show_topology"]


WIDTH = 100


def show_topology(arguments: argparse.Namespace) -> int:
    """Print what a topology file describes."""
    print(load_topology(arguments.topology).describe())
    return 0


def list_topologies() -> int:
    """Print a line for each shipped machine."""
    wide = max(map(len, shipped()))
    for name in shipped():
        topology = load_topology(name)
        sentence = re.split(r"(?<=[.:]) ", " ".join(topology.description.split()))[0].rstrip(".:")
        line = f"{name:<{wide}} {topology.n_ranks:>3} ranks  {sentence}".rstrip()
        print(line if len(line) <= WIDTH else line[: WIDTH - 3].rsplit(" ", 1)[0].rstrip(",") + " ...")
    return 0


def show_algorithms(arguments: argparse.Namespace) -> int:
    """Print the table of algorithms with their parameters."""
    table = algorithms.available()
    if arguments.json:
        print(json.dumps(table, indent=2))
        return 0
    width = max(len(name) for names in table.values() for name in names)
    for operation, names in table.items():
        print(operation)
        for name in names:
            function = algorithms.find(operation, name)
            first_sentence = (inspect.getdoc(function) or "").partition("\n")[0].partition(". ")[0]
            about, indent = first_sentence.rstrip(".").replace("`", ""), " " * (width + 6)
            print(textwrap.fill(f"  {name:<{width}}  {about}".rstrip(), WIDTH + 20, subsequent_indent=indent))
            options = [
                f"{p.name}=..." if p.default in (None, p.empty) else f"{p.name}={p.default}"
                for p in list(inspect.signature(function).parameters.values())[1:]
                if p.name != "root"
            ]
            if options:
                print(textwrap.fill(" ".join(options), WIDTH + 20, initial_indent=indent, subsequent_indent=indent))
    fitted = textwrap.fill(
        f"Parameters are given as -p NAME=VALUE. {', '.join(FITTED)} are taken from the topology, where it has them, "
        "if they are not given.",
        WIDTH,
    )
    print(f"\n{fitted}")
    return 0
