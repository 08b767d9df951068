"""Generators of topologies: sizes first, then ``bandwidth`` and ``latency`` of a link as text or in SI units.

All take the device attributes of their GPUs as keywords: ``send_overhead`` (a time, per transfer sent),
``reduce_bandwidth`` and ``channel_bandwidth`` (bandwidths; 0 = reducing costs nothing, no copy engine). Bandwidth is
that of one link in one direction. Where GPUs are joined by switches a hop from GPU to GPU is two links or more, and
each has the latency: give half of what you measure between two GPUs.

Large machines are filled in as arrays: 131,072 GPUs take about a second, no Python object a link.
"""

from __future__ import annotations

from collections.abc import Callable

from collsim.topology.generators.direct import (
    bidirectional_ring,
    fully_connected,
    hypercube,
    line,
    mesh,
    ring,
    torus,
)
from collsim.topology.generators.switched import dragonfly, fat_tree, rail_optimized, switch, tree
from collsim.topology.graph import Topology

__all__ = [
    "GENERATORS",
    "bidirectional_ring",
    "dragonfly",
    "fat_tree",
    "fully_connected",
    "hypercube",
    "line",
    "mesh",
    "rail_optimized",
    "ring",
    "switch",
    "torus",
    "tree",
]

GENERATORS: dict[str, Callable[..., Topology]] = {
    generator.__name__: generator
    for generator in (
        ring,
        bidirectional_ring,
        line,
        fully_connected,
        switch,
        mesh,
        torus,
        hypercube,
        tree,
        fat_tree,
        rail_optimized,
        dragonfly,
    )
}
"""The generators by name, as a topology file names them."""
