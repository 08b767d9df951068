"""From the words of a measured case to its cluster, release and environment: for `benchmarks.fidelity` only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from collsim.errors import InputError
from collsim.hardware import Cluster, from_case, part
from collsim.nccl import Setting, parse_setting, parse_version
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

NGC = {"24.01": (2, 19), "25.04": (2, 26)}
"""NCCL of NVIDIA's container images, by their release (NGC framework support matrix)."""


class Refused(Exception):
    """A case that a predictor cannot take, with the reason."""


def cluster_of(hardware: Mapping[str, Any], ranks: int) -> Cluster:
    """Return the cluster of a hardware block on which a number of GPUs took part.

    Raises
    ------
    Refused
        If they are not dealt out evenly over the nodes.
    InputError
        If the block does not say what has to be known.

    Examples
    --------
    >>> block = {"gpu": "H100 SXM 80GB", "nodes": 1, "gpus_per_node": 8, "intra_link": "NVLink4 + NVSwitch"}
    >>> str(cluster_of(block, 4))
    '1 x hgx-h100:4 @ 4x400Gb infiniband'
    """
    whole = from_case(hardware)
    if ranks == whole.ranks:
        return whole
    if ranks % whole.nodes:
        raise Refused(f"{ranks} ranks on {whole.nodes} nodes are not dealt out evenly")
    return part(whole, ranks // whole.nodes)


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
