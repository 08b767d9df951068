"""What a file that names no links leaves to the GPU: its NVLinks and the rates that NCCL reckons with.

The GPUs are those of `collsim.hardware`. Source of the rates: NCCL, ``src/graph/topo.h`` (Apache-2.0), GB/s of one
NVLink and direction by compute capability, which is all that a dump says of a GPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from collsim.errors import InputError, did_you_mean, shown
from collsim.hardware.catalogue import families

__all__ = ["Gpu", "gpu_model", "gpu_models", "nvlink_bandwidth"]

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


@cache
def gpu_models() -> dict[str, Gpu]:
    """Return the GPUs of NVIDIA by name, out of the hardware catalogue: of each family the first form.

    Examples
    --------
    >>> gpu_models()["a100"]
    Gpu(name='a100', sm=80, nvlinks=12, pcie=4)
    """
    first = {name: members[0] for name, members in families().items()}
    return {
        name: Gpu(name, gpu.sm, gpu.nvlinks, gpu.pcie)
        for name, gpu in first.items()
        if gpu.vendor == "nvidia" and name == gpu.family
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
    models, known = gpu_models(), None
    if isinstance(name, str) and len(name) <= 100:
        words = re.split(r"[^a-z0-9]+", name.lower())  # "NVIDIA A100-SXM4-40GB" is an A100
        near = ("".join(words), *words, *map("".join, pairwise(words)))
        known = next((models[word] for word in near if word in models), None)
    if known is None:
        hint = did_you_mean(str(name)[:40].lower(), models)
        raise InputError(f"gpu: expected one of {', '.join(models)}, got {shown(name)}{hint}")
    return known
