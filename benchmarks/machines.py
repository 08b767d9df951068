"""From the words of a measured case to the machine that NCCL would see: for `benchmarks.fidelity` only.

What a block does not say is taken from the class of hardware that it names, with the source here. A block that leaves
open what no class tells is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from collsim.errors import InputError
from collsim.nccl import Machine, Setting, parse_setting, parse_version
from collsim.nccl.tables import LATEST

OPERATIONS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "send_recv",
    "send_recv": "send_recv",
}

GPUS = (
    # pattern, compute capability, GB/s of all NVLinks (NCCL, topo.h: 20, 20.6, 40.1 a link), generation of PCIe
    (r"P100", 60, 72.0, 3),
    (r"V100 PCIe", 70, 0.0, 3),
    (r"V100", 70, 120.0, 3),
    (r"T4", 75, 0.0, 3),
    (r"RTX 2080 Ti", 75, 40.0, 3),
    (r"A100", 80, 240.0, 4),
    (r"A10G?|A40|RTX 3090", 86, 0.0, 4),
    (r"L4|L40S?|RTX 40\d0( Ti)?( SUPER)?", 89, 0.0, 4),
    (r"H800", 90, 164.8, 5),
    (r"H100 NVL/PCIe|H100 PCIe", 90, 0.0, 5),
    (r"GH200|H100|H200|H20", 90, 370.8, 5),
    (r"GB200|B200", 100, 721.8, 5),
    (r"GB300|B300", 103, 721.8, 5),
)
PCIE = {3: 12.0, 4: 24.0, 5: 48.0}  # GB/s of 16 lanes (NCCL, topo.cc)

# Links of each pair in DGX-1 V100 and its kin (nvidia-smi topo -m; NVIDIA WP-08437).
CUBE = (
    (0, 1, 1, 2, 2, 0, 0, 0),
    (1, 0, 2, 1, 0, 2, 0, 0),
    (1, 2, 0, 2, 0, 0, 1, 0),
    (2, 1, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 1, 1, 2),
    (0, 2, 0, 0, 1, 0, 2, 1),
    (0, 0, 1, 0, 1, 2, 0, 2),
    (0, 0, 0, 1, 2, 1, 2, 0),
)

CPUS = (  # vendors' pages of these nodes
    (r"DGX A100|p5\.48xlarge|ND ?A100|ND ?MI300", "amd"),
    (r"GB200|GB300|GH200|Grace", "arm"),
)

EFA_LATENCY = {"v1": 150.0, "": 75.0}
"""Microseconds that the plug-in declares to NCCL: p3dn 150, p4d, p4de, p5 75 (aws-ofi-nccl, platform-aws)."""

NGC = {"24.01": (2, 19), "25.04": (2, 26)}
"""NCCL of NVIDIA's container images, by their release (NGC framework support matrix)."""


class Refused(Exception):
    """A case that a predictor cannot take, with the reason."""


def machine_of(hardware: Mapping[str, Any], ranks: int) -> Machine:
    """Return NCCL's view of a hardware block.

    Parameters
    ----------
    hardware
        The block, and the release under ``nccl``.
    ranks
        GPUs that took part in all.

    Raises
    ------
    Refused
        If the block names no GPU that NCCL runs on, or leaves out what has to be known.

    Examples
    --------
    >>> block = {"gpu": "H100 SXM 80GB", "nodes": 1, "gpus_per_node": 8, "intra_link": "NVLink4 + NVSwitch"}
    >>> machine_of(block, 8).nvlink
    370.8
    """
    words = " ".join(str(hardware.get(key) or "") for key in ("gpu", "intra_link", "fabric"))
    link, fabric = str(hardware.get("intra_link") or ""), str(hardware.get("fabric") or "")
    if re.search(r"MI\d{3}|xGMI", words) or "RCCL" in str(hardware.get("nccl") or ""):
        raise Refused("a GPU of AMD: RCCL has its own tables")
    sm, nvlink, generation = _gpu(str(hardware.get("gpu") or ""))
    nodes = _whole(hardware, "nodes") or 1
    if re.search(r"NVL\d\d", link) and not hardware.get("nic_count_per_node"):
        nodes = 1  # one NVLink domain, whatever the hosts
    if ranks % nodes:
        raise Refused(f"{ranks} ranks on {nodes} nodes are not dealt out evenly")
    gpus = ranks // nodes
    switch = bool(re.search(r"NVSwitch|NVL\d\d|partition", link)) or (sm >= 90 and link.startswith("NVLink"))
    mesh = None if "NVSwitch" in link else _mesh(link, sm, gpus)
    on_nvlink = link.startswith("NVLink")
    if gpus > 1 and not on_nvlink and not re.search(r"PCIe", link):
        raise Refused(f"intra_link: neither NVLink nor PCIe in {link!r}")
    return Machine(
        sm=sm,
        gpus=gpus,
        nodes=nodes,
        nvlink=nvlink if switch and mesh is None and on_nvlink else 0.0,
        switch=switch and mesh is None and on_nvlink and nvlink > 0,
        mesh=mesh,
        link=20.6 if sm >= 90 else 20.0,
        pcie=PCIE[generation],
        path="PHB",
        cpu=next((vendor for pattern, vendor in CPUS if re.search(pattern, words)), "intel"),
        **(_network(hardware, fabric, gpus) if nodes > 1 else {}),
    )


def _whole(hardware: Mapping[str, Any], key: str) -> int:
    """Return a whole number, 0 where it is not stated."""
    value = hardware.get(key)
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise Refused(f"{key}: expected a whole number, got {value!r}")
    return value


def _gpu(name: str) -> tuple[int, float, int]:
    for pattern, sm, nvlink, generation in GPUS:
        if re.search(rf"(?<![A-Z0-9])({pattern})(?![0-9])", name):
            return sm, nvlink, generation
    raise Refused(f"gpu: unknown: {name!r}")


def _mesh(link: str, sm: int, gpus: int) -> tuple[tuple[int, ...], ...] | None:
    """Return the links of each pair, where they are not switched."""
    if gpus == 1:
        return None
    each = re.search(r"(\d+) links per pair", link) or re.search(r"bridge, (\d+) links", link)
    if each:
        return tuple(tuple(0 if a == b else int(each[1]) for a in range(gpus)) for b in range(gpus))
    if sm == 70 and link.startswith("NVLink") and gpus <= len(CUBE):
        return tuple(row[:gpus] for row in CUBE[:gpus])
    return None


def _network(hardware: Mapping[str, Any], fabric: str, gpus: int) -> dict[str, Any]:
    count, speed = _whole(hardware, "nic_count_per_node"), hardware.get("nic_Gbps_each")
    if not count or isinstance(speed, bool) or not isinstance(speed, (int, float)) or speed <= 0:
        raise Refused("the rate of the NICs is not stated")
    rate = float(speed)
    efa, sockets = "EFA" in fabric, re.search(r"TCP\b|Ethernet sockets", fabric)
    if efa and count > gpus > 1:  # the plug-in joins the NICs of a GPU to one (aws-ofi-nccl, RDMA protocol)
        count, rate = gpus, rate * count / gpus
    host = sockets or "Slingshot" in fabric or ("EFA v1" in fabric)
    return {
        "nics": count,
        "nic": rate / 8,
        "nic_path": "PHB" if host else "PXB" if efa else "PIX",
        "nic_latency": EFA_LATENCY["v1" if "EFA v1" in fabric else ""] if efa else 0.0,
        "transport": "efa" if efa else "tcp" if sockets else "roce" if "RoCE" in fabric else "ib",
    }


def setting_of(entry: Mapping[str, Any]) -> Setting:
    """Return release and environment of a case: its ``env``, and what was forced besides.

    Raises
    ------
    InputError
        If the environment is no list of variables.
    """
    words = str(entry.get("env") or "").split()
    for variable, key in (("NCCL_ALGO", "forced_algo"), ("NCCL_PROTO", "forced_proto")):
        forced = re.match(r"\w+", str(entry.get(key) or ""))
        if forced and not any(word.startswith(f"{variable}=") for word in words):
            words.append(f"{variable}={forced[0]}")
    return parse_setting(" ".join(words), _version(str(entry.get("nccl_version") or "")))


def ranks_of(hardware: Mapping[str, Any]) -> int | None:
    """Return nodes times GPUs of a node, where the block says them."""
    each, nodes = hardware.get("gpus_per_node"), hardware.get("nodes") or 1
    return each * nodes if isinstance(each, int) and isinstance(nodes, int) else None


def _version(text: str) -> tuple[int, int]:
    """Return the release; the newest known where none is stated."""
    image = re.search(r"NGC (\d\d\.\d\d)", text)
    if image:
        return NGC.get(image[1], LATEST)
    try:
        return parse_version(text)
    except InputError:
        return (2, 18) if re.search(r"20(19|20)", text) else LATEST
