"""The rates that NCCL and RCCL reckon with, in bytes/s.

Sources: NCCL, ``src/graph/topo.h`` and ``src/graph/topo.cc`` (Apache-2.0); RCCL, the same files. NVLinks are in
`collsim.formats.gpus`.
"""

from __future__ import annotations

import re

__all__ = [
    "LANES",
    "LOCAL",
    "broadcom_generation",
    "cpu_bandwidth",
    "generation_speed",
    "lane_speed",
    "pcie_bandwidth",
    "xgmi_bandwidth",
]

GB = 10**9

LOCAL = 5000 * GB
"""Between things that share a chip, as far as NCCL is concerned."""

LANES = 16
"""Lanes of a slot whose width is not known."""

_LANE_SPEEDS = {"2.5": 15, "5": 30, "8": 60, "16": 120, "32": 240, "64": 480}  # hundreds of Mb/s
_SPEED = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,3})?)\s*GT/s\b", re.ASCII)
_GENERATIONS = {3: 60, 4: 120, 5: 240, 6: 480}
UNKNOWN_SPEED = 60


def lane_speed(text: str) -> int | None:
    """Return NCCL's hundreds of Mb/s of a PCIe lane, by what Linux says of its speed; None where that says nothing.

    Examples
    --------
    >>> lane_speed("8 GT/s"), lane_speed("8.0 GT/s PCIe"), lane_speed("32 GT/s PCIe/s"), lane_speed("Unknown speed")
    (60, 60, 240, None)
    """
    found = _SPEED.match(text)
    if found is None:
        return None
    number = found[1].rstrip("0").rstrip(".") if "." in found[1] else found[1]
    return _LANE_SPEEDS.get(number)


def generation_speed(generation: int) -> int:
    """Return the same by the generation of PCIe."""
    return _GENERATIONS.get(generation, UNKNOWN_SPEED)


def pcie_bandwidth(lanes: int, speed: int) -> int:
    """Return the rate of a PCIe link: GB/s are lanes * speed / 80, some three quarters of what is on the wire.

    Examples
    --------
    >>> [pcie_bandwidth(16, lane_speed(text)) // 10**9 for text in ("8 GT/s", "16 GT/s", "32 GT/s")]
    [12, 24, 48]
    """
    return lanes * speed * GB // 80


def xgmi_bandwidth(gcn: str) -> int:
    """Return the rate of one xGMI link in one direction, by the architecture of the GPU (``gfx942``, or ``942``).

    Examples
    --------
    >>> [xgmi_bandwidth(gcn) // 10**9 for gcn in ("906", "gfx90a", "910", "gfx942", "950")]
    [24, 36, 36, 48, 48]
    """
    name = gcn.strip().lower().partition(":")[0].removeprefix("gfx")
    if name in ("90a", "910"):  # RCCL's archinfo.cc: 910 is the old spelling of gfx90a
        return 36 * GB
    return (48 if name == "942" or name.startswith("95") else 24) * GB


def cpu_bandwidth(arch: str, vendor: str, family: int, model: int) -> int:
    """Return the rate from one CPU to the others of its host; `LOCAL` where NCCL does not know the CPU.

    Examples
    --------
    >>> intel = [cpu_bandwidth("x86_64", "GenuineIntel", 6, model) // 10**9 for model in (79, 85, 143, 207)]
    >>> intel, cpu_bandwidth("x86_64", "AuthenticAMD", 143, 49) // 10**9, cpu_bandwidth("ppc64", "", 0, 0) // 10**9
    ([6, 10, 22, 40], 16, 32)
    >>> [cpu_bandwidth("x86_64", vendor, 7, 0x5B) // 10**9 for vendor in ("  Shanghai  ", "GenuineIntel", "other")]
    [9, 6, 5000]
    """
    if arch == "ppc64":
        return 32 * GB
    if arch == "arm64":
        return 6 * GB
    if arch != "x86_64":
        return LOCAL
    vendor = vendor.strip()
    if vendor == "GenuineIntel":  # Broadwell, Skylake, Sapphire Rapids, Emerald Rapids
        rates = ((0xCF, 40), (0x8F, 22), (0x55, 10))
        return next((rate for least, rate in rates if family == 6 and model >= least), 6) * GB
    if vendor == "AuthenticAMD":
        return 16 * GB
    if vendor in ("CentaurHauls", "Shanghai"):  # Zhaoxin, of which Yongfeng is the faster
        return (9 if (family, model) == (7, 0x5B) else 6) * GB
    return LOCAL


def broadcom_generation(device: int, *, inner: bool) -> int:
    """Return the generation (4, 5) of a Broadcom switch that shows itself as two levels of switches, 0 for others.

    Parameters
    ----------
    device
        Vendor, device, subsystem vendor and subsystem device, 16 bits each.
    inner
        Whether it is asked for the second level.
    """
    family = device >> 12
    if family == 0x1000C0101000A:
        return 4
    return 5 if family == (0x1000C03010001 if inner else 0x1000C03010000) else 0
