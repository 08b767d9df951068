"""Latencies of links, in picoseconds, where neither a file nor a maker says them.

The hops of NCCL's model (``tuning.cc``, LL) and of RCCL's: 0.6 us over NVLink, 0.8 us over xGMI, 1 us over a PCIe
switch, 2.7 us over a network, each parted over its links; between sockets and from leaf to spine 0.3 us are an
assumption.
"""

from __future__ import annotations

__all__ = ["NVLINK", "PCIE", "PORT", "SOCKET", "SPINE", "XGMI"]

NVLINK = 600_000
"""From GPU to GPU; half of it to or from a switch."""
XGMI = 800_000
PCIE = 500_000
SOCKET = 300_000
PORT = 850_000
"""From an adapter to its switch."""
SPINE = 300_000
