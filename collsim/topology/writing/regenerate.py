"""Which generator a topology came from, and with which arguments; known only where it makes the same again."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from collsim.errors import InputError, TopologyError
from collsim.topology.generators import GENERATORS
from collsim.topology.graph import Topology
from collsim.units import format_bandwidth, format_time

__all__ = ["generator_of"]


def generator_of(topology: Topology) -> dict[str, Any] | None:
    """Return the generator and its arguments as a topology file names them; None if none makes this topology.

    Examples
    --------
    >>> from collsim.topology import torus
    >>> generator_of(torus((4, 4)))
    {'name': 'torus', 'dims': [4, 4], 'bandwidth': '50GB/s', 'latency': '1us'}
    """
    name = topology.structure.get("kind")
    if not isinstance(name, str) or name not in GENERATORS:
        return None
    try:
        given = _sizes(name, topology) | _links(name, topology) | _devices(name, topology)
        again = GENERATORS[name](**given)
    except (TopologyError, InputError, LookupError, TypeError, ValueError, ArithmeticError):
        return None  # the structure tells something else than nodes and links do
    return {"name": name, **given} if again == topology else None


def _sizes(name: str, topology: Topology) -> dict[str, Any]:
    known, n = topology.structure, topology.n_ranks
    if name in ("mesh", "torus"):
        return {"dims": [int(size) for size in known["dims"]]}
    if name == "hypercube":
        return {"dimension": len(known["dims"])}
    if name == "tree":
        return {key: int(known[key]) for key in ("branching", "height")}
    if name == "fat_tree":
        per_leaf, up = int(known["gpus_per_leaf"]), int(known["uplinks_per_leaf"])
        return {"gpus": n, "gpus_per_leaf": per_leaf, "spines": int(known["spines"]), **_oversubscription(per_leaf, up)}
    if name == "rail_optimized":
        nodes, up = int(known["modules"]), int(known["uplinks_per_leaf"])
        sizes = {"nodes": nodes, "gpus": int(known["ranks_per_module"]), "spines": int(known["spines"])}
        return sizes | _oversubscription(nodes, up)
    if name == "dragonfly":
        groups, routers = int(known["modules"]), int(known["routers"])
        return {"groups": groups, "routers": routers, "gpus_per_router": int(known["ranks_per_module"]) // routers}
    return {"n": n}


def _oversubscription(down: int, up: int) -> dict[str, Any]:
    ratio = Fraction(down, up)
    if ratio == 1:
        return {}
    return {"oversubscription": int(ratio) if ratio.denominator == 1 else float(ratio)}


def _links(name: str, topology: Topology) -> dict[str, Any]:
    """Return the rates and latencies that arguments give: of the first link of each kind."""
    prefixes = {
        "rail_optimized": {"nvlink": "", "network": "nic_", "pcie": "pcie_"},
        "dragonfly": {"local": "", "global": "global_"},
    }.get(name, {"": ""})
    found = {}
    for code, kind in enumerate(topology.link_kind_names):
        links = np.flatnonzero(topology.link_kind_codes == code)
        if len(links) and kind in prefixes:
            found[prefixes[kind] + "bandwidth"] = format_bandwidth(int(topology.link_bandwidth[links[0]]))
            found[prefixes[kind] + "latency"] = format_time(int(topology.link_latency[links[0]]))
    same = found.get("global_bandwidth") == found.get("bandwidth")
    if same and found.get("global_latency") == found.get("latency"):
        found = {key: value for key, value in found.items() if not key.startswith("global_")}
    return found


def _devices(name: str, topology: Topology) -> dict[str, Any]:
    gpu = topology.kinds.index("gpu")
    found: dict[str, Any] = {}
    if name == "switch":
        found = {key: True for key in ("reduces", "multicasts") if getattr(topology, key)[-1]}
    if topology.send_overhead[gpu]:
        found["send_overhead"] = format_time(int(topology.send_overhead[gpu]))
    for key in ("reduce_bandwidth", "channel_bandwidth"):
        if rate := int(getattr(topology, key)[gpu]):
            found[key] = format_bandwidth(rate)
    return found
