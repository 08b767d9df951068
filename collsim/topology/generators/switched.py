"""Machines whose GPUs are joined by switches."""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Real

import numpy as np

from collsim.errors import TopologyError
from collsim.topology.generators.wires import Wires, whole
from collsim.topology.graph import Topology
from collsim.topology.names import MAX_NODES
from collsim.units import Quantity, parse_bandwidth, parse_time

__all__ = ["dragonfly", "fat_tree", "rail_optimized", "switch", "tree"]


def switch(
    n: int,
    bandwidth: Quantity = "50GB/s",
    latency: Quantity = "500ns",
    *,
    reduces: bool = False,
    multicasts: bool = False,
    send_overhead: Quantity = 0,
    reduce_bandwidth: Quantity = 0,
    channel_bandwidth: Quantity = 0,
) -> Topology:
    """Return a crossbar: each GPU has one full-duplex link to the switch ``sw0``, which itself is never a bottleneck.

    Parameters
    ----------
    n
        Number of GPUs.
    bandwidth, latency
        Of each link. From GPU to GPU there are two, so twice the latency.
    reduces, multicasts
        Whether the switch adds up, or copies, what passes it.
    send_overhead, reduce_bandwidth, channel_bandwidth
        Of each GPU; see `collsim.topology.generators`.

    Raises
    ------
    TopologyError, InputError
        A size or a quantity that cannot be used.

    Examples
    --------
    >>> topology = switch(8, bandwidth="450GB/s", latency="500ns")
    >>> [topology.link_name(link) for link in topology.route(0, 5)]
    ['gpu0->sw0', 'sw0->gpu5']
    """
    n = whole("switch", "n", n)
    wires = Wires("switch", n + 1, 2 * n)
    gpus = wires.gpus(n)
    centre = wires.add("switch", ["sw0"])
    wires.duplex(gpus, centre, parse_bandwidth(bandwidth), parse_time(latency))
    return wires.build(
        {},
        send_overhead=send_overhead,
        reduce_bandwidth=reduce_bandwidth,
        channel_bandwidth=channel_bandwidth,
        devices={
            key: np.arange(n + 1) == (n if on else -1) for key, on in (("reduces", reduces), ("multicasts", multicasts))
        },
    )


def tree(
    branching: int,
    height: int,
    bandwidth: Quantity = "50GB/s",
    latency: Quantity = "500ns",
    *,
    send_overhead: Quantity = 0,
    reduce_bandwidth: Quantity = 0,
    channel_bandwidth: Quantity = 0,
) -> Topology:
    """Return a tree of switches with GPUs as its leaves, all links alike (so it narrows towards the root).

    Parameters
    ----------
    branching
        Children of each switch.
    height
        Levels of links: there are ``branching ** height`` GPUs. Switches are numbered from the root (``sw0``), level by
        level.
    bandwidth, latency
        Of each link.
    send_overhead, reduce_bandwidth, channel_bandwidth
        Of each GPU; see `collsim.topology.generators`.

    Raises
    ------
    TopologyError, InputError
        A size or a quantity that cannot be used.

    Examples
    --------
    >>> topology = tree(2, 3)
    >>> topology.n_ranks, topology.n_nodes, len(topology.route(0, 7))
    (8, 15, 6)
    """
    branching = whole("tree", "branching", branching, most=4096)
    height = whole("tree", "height", height, most=32)
    if branching**height > MAX_NODES:
        raise TopologyError(f"tree: expected at most {MAX_NODES:,} GPUs, got {branching}**{height}")
    inner = sum(branching**level for level in range(height))
    wires = Wires("tree", branching**height + inner, 2 * (branching**height + inner - 1))
    gpus = wires.gpus(branching**height)
    # In breadth-first order the parent of node i > 0 is (i - 1) // branching; the GPUs are the last level.
    places = np.concatenate([wires.add("switch", [f"sw{i}" for i in range(inner)]), gpus])
    children = np.arange(1, len(places))
    wires.duplex(places[children], places[(children - 1) // branching], parse_bandwidth(bandwidth), parse_time(latency))
    return wires.build(
        {"branching": branching, "height": height},
        send_overhead=send_overhead,
        reduce_bandwidth=reduce_bandwidth,
        channel_bandwidth=channel_bandwidth,
    )


def fat_tree(
    gpus: int,
    gpus_per_leaf: int = 8,
    bandwidth: Quantity = "50GB/s",
    latency: Quantity = "500ns",
    *,
    spines: int | None = None,
    oversubscription: float = 1,
    send_overhead: Quantity = 0,
    reduce_bandwidth: Quantity = 0,
    channel_bandwidth: Quantity = 0,
) -> Topology:
    """Return a fat tree of two levels: GPUs on leaf switches, every leaf on every spine switch.

    A leaf has ``gpus_per_leaf / oversubscription`` links up, dealt out evenly over the spines: parallel links where
    there are fewer spines. All links have the same bandwidth.

    Parameters
    ----------
    gpus
        Number of GPUs, a multiple of ``gpus_per_leaf``.
    gpus_per_leaf
        Ports of a leaf that go down.
    bandwidth, latency
        Of each link. A route is two links within a leaf, four between leaves.
    spines
        Number of spines, a divisor of the links up; by default as many as there are links up.
    oversubscription
        Bandwidth down over bandwidth up: 1 is non-blocking, 2 has half as many links up.
    send_overhead, reduce_bandwidth, channel_bandwidth
        Of each GPU; see `collsim.topology.generators`.

    Raises
    ------
    TopologyError, InputError
        Sizes that do not divide each other, or a quantity that cannot be used.

    Examples
    --------
    >>> topology = fat_tree(16, 4, spines=2, oversubscription=2)
    >>> [kind for kind in topology.kinds].count("switch"), len(topology.links_between("leaf0", "spine1"))
    (6, 1)
    >>> [topology.link_name(link) for link in topology.route(0, 15)]
    ['gpu0->leaf0', 'leaf0->spine0', 'spine0->leaf3', 'leaf3->gpu15']
    """
    gpus, gpus_per_leaf = whole("fat_tree", "gpus", gpus), whole("fat_tree", "gpus_per_leaf", gpus_per_leaf)
    if gpus % gpus_per_leaf:
        raise TopologyError(f"fat_tree: gpus: expected a multiple of gpus_per_leaf = {gpus_per_leaf}, got {gpus}")
    uplinks = _uplinks("fat_tree", "gpus_per_leaf", gpus_per_leaf, oversubscription)
    spines = uplinks if spines is None else _spines("fat_tree", spines, uplinks)
    n_leaves = gpus // gpus_per_leaf
    wires = Wires("fat_tree", gpus + n_leaves + spines, 2 * (gpus + n_leaves * uplinks))
    devices = wires.gpus(gpus)
    leaves = wires.add("switch", [f"leaf{i}" for i in range(n_leaves)])
    tops = wires.add("switch", [f"spine{i}" for i in range(spines)])
    rate, delay = parse_bandwidth(bandwidth), parse_time(latency)
    wires.duplex(devices, leaves[devices // gpus_per_leaf], rate, delay)
    wires.duplex(leaves[:, None], np.repeat(tops, uplinks // spines)[None, :], rate, delay)
    return wires.build(
        {"gpus_per_leaf": gpus_per_leaf, "leaves": len(leaves), "spines": spines, "uplinks_per_leaf": uplinks},
        send_overhead=send_overhead,
        reduce_bandwidth=reduce_bandwidth,
        channel_bandwidth=channel_bandwidth,
    )


def rail_optimized(
    nodes: int,
    gpus: int = 8,
    bandwidth: Quantity = "450GB/s",
    latency: Quantity = "500ns",
    *,
    nic_bandwidth: Quantity = "400Gbps",
    nic_latency: Quantity = "500ns",
    pcie_bandwidth: Quantity = "63GB/s",
    pcie_latency: Quantity = "500ns",
    spines: int | None = None,
    oversubscription: float = 1,
    send_overhead: Quantity = 0,
    reduce_bandwidth: Quantity = 0,
    channel_bandwidth: Quantity = 0,
) -> Topology:
    """Return a cluster of nodes with NVSwitch inside, one NIC a GPU, and a leaf switch for each place of GPU (a rail).

    GPU g of node i is ``node[i].gpu[g]``. It has a link to ``node[i].nvswitch`` and a PCIe link to ``node[i].nic[g]``,
    which has a link to ``leaf{g}``. Every leaf has ``nodes / oversubscription`` links up, dealt out evenly over
    the spines. GPUs of the same place in two nodes are four links apart (PCIe, NIC, NIC, PCIe).

    Parameters
    ----------
    nodes, gpus
        Number of nodes, and of GPUs in each.
    bandwidth, latency
        Of a GPU's link to the NVSwitch.
    nic_bandwidth, nic_latency
        Of the links between NIC, leaf and spine.
    pcie_bandwidth, pcie_latency
        Of the link between GPU and NIC (63GB/s is PCIe 5.0 x16).
    spines
        Number of spines, a divisor of the links up of a leaf; by default the greatest common divisor of those and
        ``gpus``.
    oversubscription
        Bandwidth down over bandwidth up of a leaf.
    send_overhead, reduce_bandwidth, channel_bandwidth
        Of each GPU; see `collsim.topology.generators`.

    Raises
    ------
    TopologyError, InputError
        Sizes that do not divide each other, or a quantity that cannot be used.

    Examples
    --------
    >>> topology = rail_optimized(4, 8)
    >>> topology
    <Topology 'rail_optimized': 32 ranks, 80 nodes, 256 links of 50GB/s to 450GB/s>
    >>> [topology.link_name(link) for link in topology.route(0, 8)][:2]
    ['node[0].gpu[0]->node[0].nic[0]', 'node[0].nic[0]->leaf0']
    """
    nodes, gpus = whole("rail_optimized", "nodes", nodes), whole("rail_optimized", "gpus", gpus, most=1024)
    whole("rail_optimized", "nodes x gpus", nodes * gpus)
    uplinks = _uplinks("rail_optimized", "nodes", nodes, oversubscription)
    spines = math.gcd(uplinks, gpus) if spines is None else _spines("rail_optimized", spines, uplinks)
    wires = Wires("rail_optimized", nodes * (2 * gpus + 1) + gpus + spines, 2 * gpus * (3 * nodes + uplinks))
    members = [*(f"gpu[{g}]" for g in range(gpus)), *(f"nic[{g}]" for g in range(gpus)), "nvswitch"]
    kinds = ["gpu"] * gpus + ["nic"] * gpus + ["switch"]
    # Nodes are filled in module by module, and each module has its members in the same places.
    wires.add("", [f"node[{i}].{member}" for i in range(nodes) for member in members])
    wires.kinds[:] = kinds * nodes
    base = np.arange(nodes)[:, None] * len(members)
    places = np.arange(gpus)
    leaves = wires.add("switch", [f"leaf{g}" for g in range(gpus)])
    tops = wires.add("switch", [f"spine{i}" for i in range(spines)])
    wire_rate, wire_delay = parse_bandwidth(nic_bandwidth), parse_time(nic_latency)
    wires.duplex(base + places, base + 2 * gpus, parse_bandwidth(bandwidth), parse_time(latency), "nvlink")
    wires.duplex(base + places, base + gpus + places, parse_bandwidth(pcie_bandwidth), parse_time(pcie_latency), "pcie")
    wires.duplex(base + gpus + places, leaves, wire_rate, wire_delay, "network")
    wires.duplex(leaves[:, None], np.repeat(tops, uplinks // spines)[None, :], wire_rate, wire_delay, "network")
    return wires.build(
        {"modules": nodes, "ranks_per_module": gpus, "spines": spines, "uplinks_per_leaf": uplinks},
        send_overhead=send_overhead,
        reduce_bandwidth=reduce_bandwidth,
        channel_bandwidth=channel_bandwidth,
    )


def dragonfly(
    groups: int,
    routers: int,
    gpus_per_router: int = 1,
    bandwidth: Quantity = "50GB/s",
    latency: Quantity = "500ns",
    *,
    global_bandwidth: Quantity | None = None,
    global_latency: Quantity | None = None,
    send_overhead: Quantity = 0,
    reduce_bandwidth: Quantity = 0,
    channel_bandwidth: Quantity = 0,
) -> Topology:
    """Return a dragonfly: groups of routers that are fully connected, and one link between any two groups.

    Each group has its links to the groups that follow it (in the order of their distance) dealt out over its routers in
    blocks of ``ceil((groups - 1) / routers)``: the relative arrangement. A route is at most GPU, router, router of
    the global link, router there, router, GPU: five links.

    Parameters
    ----------
    groups, routers, gpus_per_router
        Number of groups, of routers in each, and of GPUs on each router. GPUs are ``group[i].gpu[j]``.
    bandwidth, latency
        Of the links from GPU to router and between the routers of a group.
    global_bandwidth, global_latency
        Of the links between groups; by default the same.
    send_overhead, reduce_bandwidth, channel_bandwidth
        Of each GPU; see `collsim.topology.generators`.

    Raises
    ------
    TopologyError, InputError
        A size or a quantity that cannot be used.

    Examples
    --------
    >>> topology = dragonfly(5, 2, 2)
    >>> topology.n_ranks, max(len(topology.route(0, rank)) for rank in range(20))
    (20, 5)
    """
    groups, routers = (
        whole("dragonfly", key, value, most=4096) for key, value in (("groups", groups), ("routers", routers))
    )
    gpus_per_router = whole("dragonfly", "gpus_per_router", gpus_per_router, most=4096)
    size = routers * gpus_per_router
    whole("dragonfly", "groups x routers x gpus_per_router", groups * size)
    wires = Wires(
        "dragonfly",
        groups * (size + routers),
        2 * groups * size + groups * routers * (routers - 1) + groups * (groups - 1),
    )
    gpus = wires.add("gpu", [f"group[{i}].gpu[{j}]" for i in range(groups) for j in range(size)])
    names = [f"group[{i}].router[{j}]" for i in range(groups) for j in range(routers)]
    centres = wires.add("switch", names).reshape(groups, routers)
    rate, delay = parse_bandwidth(bandwidth), parse_time(latency)
    wires.duplex(gpus, centres.ravel()[gpus // gpus_per_router], rate, delay, "local")
    low, high = np.triu_indices(routers, 1)
    wires.duplex(centres[:, low], centres[:, high], rate, delay, "local")
    one, other = np.triu_indices(groups, 1)
    block = max(1, math.ceil((groups - 1) / routers))
    ahead = other - one - 1  # place of `other` among the groups after `one`; seen from there it is groups - 2 - ahead
    wires.duplex(
        centres[one, ahead // block],
        centres[other, (groups - 2 - ahead) // block],
        rate if global_bandwidth is None else parse_bandwidth(global_bandwidth),
        delay if global_latency is None else parse_time(global_latency),
        "global",
    )
    return wires.build(
        {"modules": groups, "ranks_per_module": size, "routers": routers},
        send_overhead=send_overhead,
        reduce_bandwidth=reduce_bandwidth,
        channel_bandwidth=channel_bandwidth,
    )


def _uplinks(generator: str, what: str, down: int, oversubscription: float) -> int:
    """Return the links up of a leaf with so many down."""
    good = isinstance(oversubscription, Real) and not isinstance(oversubscription, bool)
    if not good or not 1 <= oversubscription <= down:
        raise TopologyError(f"{generator}: oversubscription: expected 1 to {what} = {down}, got {oversubscription!r}")
    up = down / Fraction(oversubscription).limit_denominator(10**6)
    if up.denominator != 1:
        raise TopologyError(
            f"{generator}: oversubscription: expected {what} = {down} to be a multiple of it, got {oversubscription!r}"
        )
    return int(up)


def _spines(generator: str, spines: int, uplinks: int) -> int:
    """Check that the links up of a leaf can be dealt out evenly."""
    if uplinks % whole(generator, "spines", spines):
        raise TopologyError(
            f"{generator}: spines: expected a divisor of the {uplinks} links up of a leaf, got {spines}"
        )
    return spines
