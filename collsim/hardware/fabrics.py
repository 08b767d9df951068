"""The network of a ``hardware`` block: its transport out of words, its adapters out of figures that may be missing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, NoReturn

from collsim.errors import InputError, shown
from collsim.hardware import catalogue
from collsim.hardware.model import Cluster, Nic

__all__ = ["adapters", "transport_of"]

_TRANSPORTS = (
    ("tcpxo", r"tcp[ -]?xo|fas[t]?[ -]?trak"),
    ("tcpx", r"tcp[ -]?x\b"),
    ("efa1", r"efa[ -]*(?:v|gen(?:eration)?)?[ -]*1\b"),
    ("efa2", r"efa[ -]*(?:v|gen(?:eration)?)?[ -]*2\b"),
    ("efa3", r"efa[ -]*(?:v|gen(?:eration)?)?[ -]*3\b"),
    ("efa4", r"efa[ -]*(?:v|gen(?:eration)?)?[ -]*4\b"),
    ("efa", r"\befa\b|elastic fabric"),
    ("slingshot", r"sling[ -]?shot|\bss[ -]?1[01]\b|\bcxi\b|cassini"),
    ("omnipath", r"omni[ -]?path|\bopa\b"),
    ("roce", r"\brocev?[12]?\b|rdma.*ethernet|ethernet.*rdma|spectrum-?x"),
    ("infiniband", r"infiniband|\bib\b|\b[hensfx]dr(?:[1248]00)?\b|quantum"),
    ("tcp", r"\btcp\b|sockets?\b|\bena\b|\bgvnic\b|(?<![a-z])g(?:b|ig)?e\b|ethernet"),
)
"""First found, first taken: RoCE of an InfiniBand adapter is RoCE, TCP over Ethernet is TCP."""


def transport_of(text: str) -> str:
    """Return the transport that words speak of; empty where they speak of none, ``efa`` where its version is open.

    Examples
    --------
    >>> transport_of("InfiniBand NDR, ConnectX-7, 8 rails"), transport_of("GCP A3 Mega, GPUDirect-TCPXO (FasTrak)")
    ('infiniband', 'tcpxo')
    >>> transport_of("AWS EFA v2 (p5.48xlarge)"), transport_of("RoCEv2"), transport_of("something")
    ('efa2', 'roce', '')
    """
    text = text.lower()
    return next((name for name, pattern in _TRANSPORTS if re.search(pattern, text)), "")


def adapters(hardware: Mapping[str, Any], cluster: Cluster, named: bool, hosts: int = 1) -> Cluster:
    """Return the cluster with the adapters that a block states, or those of the machine that it names.

    Parameters
    ----------
    hardware
        The block.
    cluster
        Nodes and GPUs, with the adapters of the node in the catalogue.
    named
        Whether the block names that very node, so that its adapters may be taken where none are stated.
    hosts
        How many of the nodes that the block speaks of are one node of the cluster.

    Raises
    ------
    InputError
        With the field: what is not stated, not known, or contradicts the rest.
    """
    each, total = (_rate(hardware, name) for name in ("nic_Gbps_each", "nic_Gbps_per_node"))
    count = _count(hardware)
    if count is not None and total is not None and each is None:
        each = total / count
    if count is None and each is not None and total is not None:
        if (total / each).denominator != 1:
            _fail("nic_Gbps_per_node", f"expected a multiple of nic_Gbps_each = {_shown(each)}, got {_shown(total)}")
        count = int(total / each)
    if count is None and each is None and total is None and named and cluster.node.nics:
        words = transport_of(_text(hardware, "fabric"))
        transport = cluster.node.transport if words in ("", "efa") else words
        return replace(cluster, transport=transport)
    if count is None:
        _fail("nic_count_per_node", "expected the number of adapters of a node, got nothing")
    if each is None:
        _fail("nic_Gbps_each", "expected the rate of an adapter in Gb/s, got nothing")
    if total is not None and abs(total - each * count) > Fraction(2, 100) * total:
        rates = f"{count} x {_shown(each)}"
        _fail("nic_Gbps_per_node", f"expected nic_count_per_node x nic_Gbps_each = {rates}, got {_shown(total)}")
    bandwidth = math.floor(each * 10**9 / 8)
    count *= hosts
    transport = _transport(hardware, cluster, bandwidth, named)
    return replace(
        cluster, nic=_adapter(hardware, cluster, bandwidth, transport), nic_bandwidth=bandwidth, nics=count,
        transport=transport,
    )  # fmt: skip


def _fail(name: str, message: str) -> NoReturn:
    raise InputError(f"hardware.{name}: {message}")


def _text(hardware: Mapping[str, Any], name: str) -> str:
    value = hardware.get(name)
    return "" if value is None else str(value)


def _shown(rate: Fraction) -> str:
    return f"{float(rate):g} Gb/s"


def _rate(hardware: Mapping[str, Any], name: str) -> Fraction | None:
    """Return Gb/s, None where they are not stated."""
    value = hardware.get(name)
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(?:G(?:b(?:ps|/s|it/s)?)?)?\s*", value)
        value = float(match[1]) if match else value
    if value is None or (isinstance(value, str) and value.strip().lower() in ("", "none", "null")):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 10**6:
        _fail(name, f"expected a rate in Gb/s, got {shown(value)}")
    return Fraction(value).limit_denominator(10**6) if value else None


def _count(hardware: Mapping[str, Any]) -> int | None:
    value = hardware.get("nic_count_per_node")
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,4}\s*", value):
        value = int(value)
    if value is None or value == 0:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 1024:
        _fail("nic_count_per_node", f"expected a whole number from 1 to 1024, got {shown(value)}")
    return value


def _transport(hardware: Mapping[str, Any], cluster: Cluster, bandwidth: int, named: bool) -> str:
    text = _text(hardware, "fabric")
    found = transport_of(text)
    if found == "efa":
        if cluster.node.transport.startswith("efa"):
            return cluster.node.transport
        old = cluster.node.gpu.generation in ("volta", "turing", "ampere", "ampere-86")
        return "efa1" if old else {200: "efa3", 400: "efa4"}.get(bandwidth * 8 // 10**9, "efa2")
    if found:
        return found
    if named:
        return cluster.node.transport
    adapter = _word_for_adapter(text)
    if adapter is not None and len(adapter.transports) == 1:
        return adapter.transports[0]
    words = "such as InfiniBand NDR, RoCE, EFA v2, TCPX, Slingshot or TCP"
    _fail("fabric", f"expected words for the network {words}, got {shown(text) if text.strip() else 'nothing'}")


def _word_for_adapter(text: str) -> Nic | None:
    """Return the adapter that words name."""
    words = " ".join(re.findall(r"[a-z0-9]+", re.sub(r"connect-?x[ -]*", "connectx ", text.lower())))
    spellings = {name.replace("-", " "): nic for name, nic in catalogue.nics().items()}
    found = [spelling for spelling in spellings if re.search(rf"\b{re.escape(spelling)}\b", words)]
    return spellings[max(found, key=len)] if found else None


def _adapter(hardware: Mapping[str, Any], cluster: Cluster, bandwidth: int, transport: str) -> Nic | None:
    """Return the adapter that is named, or the node's where it fits what is stated."""
    named = _word_for_adapter(_text(hardware, "fabric"))
    if named is not None and transport in named.transports:
        return named
    own = cluster.node.nic
    if own is not None and transport in own.transports and cluster.node.nic_bandwidth >= bandwidth:
        return own
    return None
