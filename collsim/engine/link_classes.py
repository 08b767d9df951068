"""Links that are alike, and machines in which some links or devices are faster."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError
from collsim.topology import Topology
from collsim.units import format_bandwidth, format_time

__all__ = ["LinkClass", "faster_devices", "faster_links", "link_classes"]

Array = npt.NDArray[Any]

FASTEST = 2**62
"""Bytes a second that no link is made faster than."""


@dataclass(frozen=True, eq=False)
class LinkClass:
    """Links of one kind, rate and latency between devices of the same sorts, in whichever direction.

    Attributes
    ----------
    topology
        The machine.
    links
        Their numbers.

    Examples
    --------
    >>> import collsim.topology
    >>> for group in link_classes(collsim.topology.rail_optimized(2, 4))[1]:
    ...     print(len(group.links), group.name)
    16 gpu <-> nvswitch (450GB/s, 500ns)
    16 gpu <-> nic (63GB/s, 500ns)
    16 leaf <-> nic (50GB/s, 500ns)
    16 leaf <-> spine (50GB/s, 500ns)
    """

    topology: Topology
    links: Array

    @property
    def bandwidth(self) -> int:
        """Bytes a second of each."""
        return int(self.topology.link_bandwidth[self.links[0]])

    @property
    def latency(self) -> int:
        """Picoseconds of each."""
        return int(self.topology.link_latency[self.links[0]])

    @cached_property
    def ends(self) -> str:
        """What they join: ``gpu <-> leaf``; of one link its name."""
        topology = self.topology
        if len(self.links) == 1:
            return topology.link_name(int(self.links[0]))
        src, dst = (ends[self.links].tolist() for ends in (topology.link_src, topology.link_dst))
        if len(self.links) == 2 and (src[0], dst[0]) == (dst[1], src[1]):
            return f"{topology.nodes[src[0]]} <-> {topology.nodes[dst[0]]}"
        pairs = {(_family(topology, a), _family(topology, b)) for a, b in zip(src, dst, strict=True)}
        one = sorted(pairs)[0]
        return f"{one[0]} {'<->' if len(pairs) > 1 else '->'} {one[1]}"

    @cached_property
    def name(self) -> str:
        """What they join, their rate and their latency."""
        return f"{self.ends} ({format_bandwidth(self.bandwidth)}, {format_time(self.latency)})"


def link_classes(topology: Topology) -> tuple[Array, list[LinkClass]]:
    """Return by link the number of its class, and the classes; found once for a machine."""
    if "link_classes" not in topology.cache:
        topology.cache["link_classes"] = _classes(topology)
    found: tuple[Array, list[LinkClass]] = topology.cache["link_classes"]
    return found


def _classes(topology: Topology) -> tuple[Array, list[LinkClass]]:
    known: dict[str, int] = {}
    family: Array = np.array(
        [known.setdefault(_family(topology, node), len(known)) for node in range(topology.n_nodes)], dtype=np.int64
    )
    ends = np.sort(np.stack([family[topology.link_src], family[topology.link_dst]], axis=1), axis=1)
    columns = [topology.link_kind_codes, topology.link_bandwidth, topology.link_latency, ends[:, 0], ends[:, 1]]
    keys: Array = np.stack(columns, axis=1).astype(np.int64)
    _, number = np.unique(keys, axis=0, return_inverse=True)
    number = number.reshape(-1)  # NumPy 2.0 returns a column
    order = np.argsort(number, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(number[order])) + 1) if len(order) else []
    return number, [LinkClass(topology, group) for group in groups]


def _family(topology: Topology, node: int) -> str:
    """Return the name of a node without its module and its number; its kind if nothing is left."""
    last = topology.nodes[node].rpartition(".")[2]
    return re.sub(r"\[[^\]]*\]", "", last).rstrip("0123456789").rstrip("-_ ") or topology.kinds[node]


def faster_links(topology: Topology, links: Array, *, bandwidth: int = 1, latency: int = 1) -> Topology:
    """Return a machine like this one in which some links are faster.

    Nothing that was found out about the other machine is carried over: routes are looked for anew.

    Parameters
    ----------
    topology
        The machine.
    links
        Numbers of the links.
    bandwidth
        Their bandwidth is multiplied by this.
    latency
        Their latency is divided by this (and rounded down to a picosecond).

    Raises
    ------
    InputError
        If a factor is below 1, or the bandwidth gets beyond 64 bits.

    Examples
    --------
    >>> import numpy as np
    >>> import collsim.topology
    >>> ring = collsim.topology.ring(3, bandwidth="50GB/s", latency="1us")
    >>> faster = faster_links(ring, np.array([1]), bandwidth=2, latency=2)
    >>> faster.link_bandwidth.tolist(), faster.link_latency.tolist()
    ([50000000000, 100000000000, 50000000000], [1000000, 500000, 1000000])
    """
    if min(bandwidth, latency) < 1:
        raise InputError(f"factor: expected at least 1, got {min(bandwidth, latency)}")
    rates, latencies = topology.link_bandwidth.copy(), topology.link_latency.copy()
    if len(links) and int(rates[links].max()) * bandwidth > FASTEST:
        raise InputError(f"bandwidth: {bandwidth} times {format_bandwidth(int(rates[links].max()))} is beyond 64 bits")
    rates[links] *= bandwidth
    latencies[links] //= latency
    return replace(topology, link_bandwidth=rates, link_latency=latencies)


def faster_devices(topology: Topology, what: str) -> Topology:
    """Return a machine like this one whose devices are faster.

    Parameters
    ----------
    topology
        The machine.
    what
        ``"send_overhead"`` (none is left), ``"reduce_bandwidth"`` or ``"channel_bandwidth"`` (doubled).

    Examples
    --------
    >>> import collsim.topology
    >>> ring = collsim.topology.ring(2, bandwidth="50GB/s", latency="1us", reduce_bandwidth="100GB/s")
    >>> faster_devices(ring, "reduce_bandwidth").reduce_bandwidth.tolist()
    [200000000000, 200000000000]
    """
    if what == "send_overhead":
        return replace(topology, send_overhead=topology.send_overhead * 0)
    if what == "reduce_bandwidth":
        return replace(topology, reduce_bandwidth=topology.reduce_bandwidth * 2)
    return replace(topology, channel_bandwidth=topology.channel_bandwidth * 2)
