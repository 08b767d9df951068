"""``collsim topology show`` and ``collsim algorithms``."""

from __future__ import annotations

import argparse
import inspect
import json

from collsim import algorithms
from collsim.topology import load_topology

__all__ = ["show_algorithms", "show_topology"]


def show_topology(arguments: argparse.Namespace) -> int:
    """Print what a topology file describes."""
    print(load_topology(arguments.topology).describe())
    return 0


def show_algorithms(arguments: argparse.Namespace) -> int:
    """Print the table of algorithms with their parameters."""
    table = algorithms.available()
    if arguments.json:
        print(json.dumps(table, indent=2))
        return 0
    for operation, names in table.items():
        print(operation)
        for name in names:
            function = algorithms.find(operation, name)
            first = (inspect.getdoc(function) or "").splitlines()[0].rstrip(".")
            options = [
                f"{p.name}={p.default}"
                for p in inspect.signature(function).parameters.values()
                if p.name not in ("ranks", "root", "order")
            ]
            print(f"  {name:<20} {first}" + (f" [{', '.join(options)}]" if options else ""))
    return 0
