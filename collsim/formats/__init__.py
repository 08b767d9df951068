"""Files of other tools: their descriptions of machines, their logs, and what they read.

One module a format. ``read_x(path)`` returns a noun of collsim, ``write_x(noun, path)`` writes one where that makes
sense; `read_topology` and `write_topology` find the format by content and by suffix. The files come from strangers:
they are read with limits, never executed, and every mistake is told with its place.

Importing this loads none of the readers.

Examples
--------
>>> import collsim.topology
>>> from collsim.formats import write_topology
>>> write_topology(collsim.topology.ring(4, bandwidth="50GB/s", latency="1us"), "no/such/ring.graphml")
Traceback (most recent call last):
collsim.errors.InputError: topology: no/such/ring.graphml: no such directory; make it first
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collsim.formats.astra_sim import read_astra_sim, write_astra_sim
    from collsim.formats.graphml import read_graphml, write_graphml
    from collsim.formats.htsim import read_htsim
    from collsim.formats.infragraph import read_infragraph, write_infragraph
    from collsim.formats.nccl import read_nccl
    from collsim.formats.nccl_log import read_nccl_log
    from collsim.formats.nccl_tests import read_nccl_tests
    from collsim.formats.nccl_tests_out import format_nccl_tests, write_nccl_tests
    from collsim.formats.ns3 import read_ns3, read_simai
    from collsim.formats.nvidia_smi import read_nvidia_smi
    from collsim.formats.registry import FORMATS, read_topology, write_topology
    from collsim.formats.simgrid import read_simgrid, write_simgrid
    from collsim.formats.taccl import read_taccl

__all__ = [
    "FORMATS",
    "format_nccl_tests",
    "read_astra_sim",
    "read_graphml",
    "read_htsim",
    "read_infragraph",
    "read_nccl",
    "read_nccl_log",
    "read_nccl_tests",
    "read_ns3",
    "read_nvidia_smi",
    "read_simai",
    "read_simgrid",
    "read_taccl",
    "read_topology",
    "write_astra_sim",
    "write_graphml",
    "write_infragraph",
    "write_nccl_tests",
    "write_simgrid",
    "write_topology",
]

_HOMES = {
    "FORMATS": "registry",
    "format_nccl_tests": "nccl_tests_out",
    "read_astra_sim": "astra_sim",
    "read_graphml": "graphml",
    "read_htsim": "htsim",
    "read_infragraph": "infragraph",
    "read_nccl": "nccl",
    "read_nccl_log": "nccl_log",
    "read_nccl_tests": "nccl_tests",
    "read_ns3": "ns3",
    "read_nvidia_smi": "nvidia_smi",
    "read_simai": "ns3",
    "read_simgrid": "simgrid",
    "read_taccl": "taccl",
    "read_topology": "registry",
    "write_astra_sim": "astra_sim",
    "write_graphml": "graphml",
    "write_infragraph": "infragraph",
    "write_nccl_tests": "nccl_tests_out",
    "write_simgrid": "simgrid",
    "write_topology": "registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
