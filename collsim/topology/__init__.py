"""The hardware: devices and links, routes between ranks, generators of machines, and the topology file.

Importing this loads neither NetworkX nor the reader of files.

Examples
--------
>>> import collsim.topology
>>> topology = collsim.topology.switch(8, bandwidth="450GB/s", latency="500ns")
>>> topology.n_ranks, topology.n_links
(8, 16)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collsim.topology.builder import TopologyBuilder
    from collsim.topology.generators import (
        GENERATORS,
        bidirectional_ring,
        dragonfly,
        fat_tree,
        fully_connected,
        hypercube,
        line,
        mesh,
        rail_optimized,
        ring,
        switch,
        torus,
        tree,
    )
    from collsim.topology.graph import Topology
    from collsim.topology.loading import load_topology, shipped
    from collsim.topology.networkx_face import from_networkx
    from collsim.topology.writing import save_topology

__all__ = [
    "GENERATORS",
    "Topology",
    "TopologyBuilder",
    "bidirectional_ring",
    "dragonfly",
    "fat_tree",
    "from_networkx",
    "fully_connected",
    "hypercube",
    "line",
    "load_topology",
    "mesh",
    "rail_optimized",
    "ring",
    "save_topology",
    "shipped",
    "switch",
    "torus",
    "tree",
]

_HOMES = {
    "Topology": "graph",
    "TopologyBuilder": "builder",
    "from_networkx": "networkx_face",
    "load_topology": "loading",
    "save_topology": "writing",
    "shipped": "loading",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'generators')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
