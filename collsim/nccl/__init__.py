"""NCCL's own model of what is fastest: what its graph search finds for a machine, and the formula by which it chooses.

NCCL predicts a time for every algorithm and protocol and runs the pair with the least. `graph_of` reckons what its
search yields for a machine, `predict` gives its times, `choice` what it would run, and `parse_setting` reads the
variables that change its mind. It is a chooser, not a simulator: good at large sizes, rough at small ones.

Importing this loads none of the parts.

Examples
--------
>>> from collsim.nccl import Machine, choice
>>> node = Machine(sm=90, gpus=8, nvlink=370.8, switch=True, pcie=48.0)
>>> [str(choice(node, "all_reduce", size)) for size in (2**20, 2**21)]
['Ring/LL', 'NVLS/Simple']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collsim.nccl.graph import Graph, Search, graph_of
    from collsim.nccl.machine import Machine
    from collsim.nccl.setting import Setting, parse_setting, parse_version
    from collsim.nccl.tables import ALGORITHMS, PROTOCOLS, Tables, tables_of
    from collsim.nccl.tuning import COLLECTIVES, Cell, Choice, cells, choice, predict
    from collsim.nccl.view import machine_of

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "PROTOCOLS",
    "Cell",
    "Choice",
    "Graph",
    "Machine",
    "Search",
    "Setting",
    "Tables",
    "cells",
    "choice",
    "graph_of",
    "machine_of",
    "parse_setting",
    "parse_version",
    "predict",
    "tables_of",
]

_HOMES = {
    "ALGORITHMS": "tables",
    "COLLECTIVES": "tuning",
    "PROTOCOLS": "tables",
    "Cell": "tuning",
    "Choice": "tuning",
    "Graph": "graph",
    "Machine": "machine",
    "Search": "graph",
    "Setting": "setting",
    "Tables": "tables",
    "cells": "tuning",
    "choice": "tuning",
    "graph_of": "graph",
    "machine_of": "view",
    "parse_setting": "setting",
    "parse_version": "setting",
    "predict": "tuning",
    "tables_of": "tables",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
