"""Algorithms that need switches that reduce: tables of all algorithms on machines without such switches leave them out.

They have their own tests: test_nvls, test_sharp and test_in_network_theory.
"""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np

from collsim import algorithms
from collsim.engine.fit import REFUSALS
from collsim.topology import Topology

__all__ = ["able", "needs_switches", "without_switches"]


def needs_switches(operation: str, name: str) -> bool:
    """Whether an algorithm takes switches from the topology."""
    return not REFUSALS.keys().isdisjoint(inspect.signature(algorithms.find(operation, name)).parameters)


def without_switches() -> list[tuple[str, str]]:
    """Return (operation, name) of all algorithms that run on any switch."""
    table = algorithms.available()
    return [(op, name) for op, names in table.items() for name in names if not needs_switches(op, name)]


def able(topology: Topology, *, reduces: bool = True, multicasts: bool = True) -> Topology:
    """Return the machine with switches that reduce and multicast."""
    switch = np.array([kind == "switch" for kind in topology.kinds])
    return replace(topology, reduces=switch & reduces, multicasts=switch & multicasts)
