"""What a file that names no links leaves to the GPU: its NVLinks and the rates that NCCL reckons with.

Source of the rates: NCCL, ``src/graph/topo.h`` (Apache-2.0), GB/s of one NVLink and direction by compute capability;
number of NVLinks: NVIDIA's data sheets and white papers of each GPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from collsim.errors import InputError, did_you_mean, shown

__all__ = ["GPUS", "Gpu", "gpu_model", "nvlink_bandwidth"]

MB = 10**6


@dataclass(frozen=True)
class Gpu:
    """A GPU as far as a topology file needs to know it.

    Attributes
    ----------
    name
        In small letters, as the user gives it.
    sm
        Compute capability, 90 for 9.0.
    nvlinks
        Number of NVLinks of one GPU; 0 for none.
    pcie
        Generation of its PCIe x16 slot.
    """

    name: str
    sm: int
    nvlinks: int
    pcie: int


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("p100", 60, 4, 3),
        Gpu("v100", 70, 6, 3),
        Gpu("t4", 75, 0, 3),
        Gpu("a100", 80, 12, 4),
        Gpu("a800", 80, 8, 4),
        Gpu("a30", 80, 4, 4),
        Gpu("a10", 86, 0, 4),
        Gpu("a10g", 86, 0, 4),
        Gpu("a40", 86, 0, 4),
        Gpu("rtx3090", 86, 4, 4),
        Gpu("rtx4090", 89, 0, 4),
        Gpu("l4", 89, 0, 4),
        Gpu("l40", 89, 0, 4),
        Gpu("l40s", 89, 0, 4),
        Gpu("h100", 90, 18, 5),
        Gpu("h200", 90, 18, 5),
        Gpu("h20", 90, 18, 5),
        Gpu("h800", 90, 8, 5),
        Gpu("b200", 100, 18, 5),
        Gpu("gb200", 100, 18, 5),
        Gpu("b300", 103, 18, 5),
        Gpu("gb300", 103, 18, 5),
    )
}

_NVLINK = ((100, 40_100), (90, 20_600), (87, 20_000), (86, 12_000), (70, 20_000), (60, 18_000), (0, 20_000))
"""Least compute capability and MB/s, as NCCL decides."""


def nvlink_bandwidth(sm: int) -> int:
    """Return the bytes per second that one NVLink moves in one direction, by compute capability.

    Examples
    --------
    >>> nvlink_bandwidth(90), nvlink_bandwidth(86)
    (20600000000, 12000000000)
    """
    return next(rate for least, rate in _NVLINK if sm >= least) * MB


def gpu_model(name: str) -> Gpu:
    """Return a GPU by its name.

    Raises
    ------
    InputError
        If there is none of this name.

    Examples
    --------
    >>> gpu_model("H100").nvlinks, gpu_model("NVIDIA A100-SXM4-40GB").name, gpu_model("RTX 3090").name
    (18, 'a100', 'rtx3090')
    """
    known = None
    if isinstance(name, str) and len(name) <= 100:
        words = re.split(r"[^a-z0-9]+", name.lower())  # "NVIDIA A100-SXM4-40GB" is an A100
        near = ("".join(words), *words, *map("".join, pairwise(words)))
        known = next((GPUS[word] for word in near if word in GPUS), None)
    if known is None:
        hint = did_you_mean(str(name)[:40].lower(), GPUS)
        raise InputError(f"gpu: expected one of {', '.join(GPUS)}, got {shown(name)}{hint}")
    return known
