"""The hardware catalogue: GPUs, network adapters and nodes with their public figures, and machines made of them.

The figures are data files beside this one (``gpus.yaml``, ``nics.yaml``, ``nodes.yaml``), each with its source.

Examples
--------
>>> import collsim.hardware
>>> collsim.hardware.gpu("h100").nvlinks, collsim.hardware.node("p5.48xlarge").nics
(18, 32)
>>> two = collsim.hardware.cluster("2 x dgx-h100 @ 8x400Gb")
>>> two.ranks, str(two)
(16, '2 x dgx-h100 @ 8x400Gb infiniband')
>>> collsim.hardware.machine(two)
<Topology '2 x dgx-h100 @ 8x400Gb infiniband': 16 ranks, 35 nodes, 96 links of 50GB/s to 450GB/s>
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collsim.hardware.cases import from_case
    from collsim.hardware.catalogue import gpu, gpu_names, nic, nic_names, node, node_names
    from collsim.hardware.clusters import cluster, part
    from collsim.hardware.machines import machine
    from collsim.hardware.model import Cluster, Cpu, Gpu, Nic, Node, Slot

__all__ = [
    "Cluster",
    "Cpu",
    "Gpu",
    "Nic",
    "Node",
    "Slot",
    "cluster",
    "from_case",
    "gpu",
    "gpu_names",
    "machine",
    "nic",
    "nic_names",
    "node",
    "node_names",
    "part",
]

_HOMES = {
    "cluster": "clusters",
    "from_case": "cases",
    "gpu": "catalogue",
    "gpu_names": "catalogue",
    "machine": "machines",
    "nic": "catalogue",
    "nic_names": "catalogue",
    "node": "catalogue",
    "node_names": "catalogue",
    "part": "clusters",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'model')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
