"""What a file that names no links leaves to the GPU: its NVLinks and the rates that NCCL reckons with.

The GPUs are those of `collsim.hardware`. Source of the rates: NCCL, ``src/graph/topo.h`` (Apache-2.0), GB/s of one
NVLink and direction by compute capability, which is all that a dump says of a GPU.
"""

from __future__ import annotations

from functools import cache

from collsim.errors import InputError
from collsim.hardware.catalogue import families, gpu
from collsim.hardware.model import Gpu

__all__ = ["gpu_model", "gpu_models", "nvlink_bandwidth"]

MB = 10**6


@cache
def gpu_models() -> dict[str, Gpu]:
    """Return the GPUs of NVIDIA by family: of each the first form.

    Examples
    --------
    >>> gpu_models()["a100"].nvlinks
    12
    """
    first = {name: members[0] for name, members in families().items()}
    return {name: found for name, found in first.items() if found.vendor == "nvidia" and name == found.family}


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
    """Return a GPU of NVIDIA by its name.

    Raises
    ------
    InputError
        If there is none of this name, or it is of others.

    Examples
    --------
    >>> gpu_model("H100").nvlinks, gpu_model("H100 PCIe").nvlinks, gpu_model("NVIDIA A100-SXM4-40GB").family
    (18, 12, 'a100')
    """
    found = gpu(name)
    if found.vendor != "nvidia":
        raise InputError(f"gpu: expected a GPU of NVIDIA, got {found.name}")
    return found
