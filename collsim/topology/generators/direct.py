"""Machines whose GPUs are joined by links without switches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral

import numpy as np

from collsim.errors import TopologyError
from collsim.topology.generators.wires import Wires, whole, whole_numbers
from collsim.topology.graph import Topology
from collsim.units import Quantity, parse_bandwidth, parse_time

__all__ = ["bidirectional_ring", "fully_connected", "hypercube", "line", "mesh", "ring", "torus"]


def ring(
    n: int,
    bandwidth: Quantity = "50GB/s",
    latency: Quantity = "1us",
    *,
    send_overhead: Quantity = 0,
    reduce_bandwidth: Quantity = 0,
    channel_bandwidth: Quantity = 0,
) -> Topology:
    """Return a ring of one direction: a link from each GPU to the next, and from the last to the first.

    Parameters
    ----------
    n
        Number of GPUs; with one there is no link.
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
    >>> topology = ring(8, bandwidth="50GB/s", latency="1us")
    >>> [topology.link_name(link) for link in topology.route(7, 1)]
    ['gpu7->gpu0', 'gpu0->gpu1']
    """
    n = whole("ring", "n", n)
    wires = Wires("ring", n, n if n > 1 else 0)
    gpus = wires.gpus(n)
    if n > 1:
        wires.link(gpus, np.roll(gpus, -1), parse_bandwidth(bandwidth), parse_time(latency))
    return wires.build(
        {},
        send_overhead=send_overhead,
        reduce_bandwidth=reduce_bandwidth,
        channel_bandwidth=channel_bandwidth,
    )


def bidirectional_ring(
    n: int,
    bandwidth: Quantity = "50GB/s",
    latency: Quantity = "1us",
    *,
    send_overhead: Quantity = 0,
    reduce_bandwidth: Quantity = 0,
    channel_bandwidth: Quantity = 0,
) -> Topology:
    """Return a ring of both directions; two GPUs have two parallel links each way (see `ring` for the parameters).

    Examples
    --------
    >>> bidirectional_ring(8)
    <Topology 'bidirectional_ring': 8 ranks, 8 nodes, 16 links of 50GB/s>
    """
    n = whole("bidirectional_ring", "n", n)
    wires = Wires("bidirectional_ring", n, 2 * n if n > 1 else 0)
    gpus = wires.gpus(n)
    if n > 1:
        wires.duplex(gpus, np.roll(gpus, -1), parse_bandwidth(bandwidth), parse_time(latency))
    return wires.build(
        {},
        send_overhead=send_overhead,
        reduce_bandwidth=reduce_bandwidth,
        channel_bandwidth=channel_bandwidth,
    )


def line(
    n: int,
    bandwidth: Quantity = "50GB/s",
    latency: Quantity = "1us",
    *,
    send_overhead: Quantity = 0,
    reduce_bandwidth: Quantity = 0,
    channel_bandwidth: Quantity = 0,
) -> Topology:
    """Return a line of GPUs, full duplex between neighbours (see `ring` for the parameters).

    Examples
    --------
    >>> len(line(8).route(0, 7))
    7
    """
    n = whole("line", "n", n)
    wires = Wires("line", n, 2 * (n - 1))
    gpus = wires.gpus(n)
    wires.duplex(gpus[:-1], gpus[1:], parse_bandwidth(bandwidth), parse_time(latency))
    return wires.build(
        {},
        send_overhead=send_overhead,
        reduce_bandwidth=reduce_bandwidth,
        channel_bandwidth=channel_bandwidth,
    )


def fully_connected(
    n: int,
    bandwidth: Quantity = "50GB/s",
    latency: Quantity = "1us",
    *,
    send_overhead: Quantity = 0,
    reduce_bandwidth: Quantity = 0,
    channel_bandwidth: Quantity = 0,
) -> Topology:
    """Return GPUs with a link of their own from each to each other (see `ring` for the parameters).

    Examples
    --------
    >>> fully_connected(8).n_links
    56
    """
    n = whole("fully_connected", "n", n)
    wires = Wires("fully_connected", n, n * (n - 1))
    gpus = wires.gpus(n)
    src, dst = np.divmod(np.arange(n * n), n)
    apart = src != dst
    wires.link(gpus[src[apart]], gpus[dst[apart]], parse_bandwidth(bandwidth), parse_time(latency))
    return wires.build(
        {},
        send_overhead=send_overhead,
        reduce_bandwidth=reduce_bandwidth,
        channel_bandwidth=channel_bandwidth,
    )


def mesh(
    dims: int | Sequence[int],
    bandwidth: Quantity = "50GB/s",
    latency: Quantity = "1us",
    *,
    send_overhead: Quantity = 0,
    reduce_bandwidth: Quantity = 0,
    channel_bandwidth: Quantity = 0,
) -> Topology:
    """Return a grid of any number of dimensions, full duplex between neighbours (see `ring` for the rest).

    Parameters
    ----------
    dims
        Size of each dimension, the last one moving fastest: GPU 1 of ``(2, 3)`` is at (0, 1), GPU 3 at (1, 0).
    bandwidth, latency
        Of each link.
    send_overhead, reduce_bandwidth, channel_bandwidth
        Of each GPU.

    Examples
    --------
    >>> topology = mesh((2, 3))
    >>> topology.n_links, len(topology.route(0, 5))
    (14, 3)
    """
    return _grid(
        "mesh",
        _dims("mesh", dims, bandwidth, latency),
        bandwidth,
        latency,
        send_overhead=send_overhead,
        reduce_bandwidth=reduce_bandwidth,
        channel_bandwidth=channel_bandwidth,
    )


def torus(
    dims: int | Sequence[int],
    bandwidth: Quantity = "50GB/s",
    latency: Quantity = "1us",
    *,
    send_overhead: Quantity = 0,
    reduce_bandwidth: Quantity = 0,
    channel_bandwidth: Quantity = 0,
) -> Topology:
    """Return a torus: a `mesh` whose dimensions close to rings (the parameters are those of `mesh`).

    A dimension of size 2 has two parallel links each way between its two GPUs, as its ring has; one of size 1 has none.

    Examples
    --------
    >>> topology = torus((4, 4, 4), bandwidth="50GB/s", latency="1us")
    >>> topology.n_links // topology.n_ranks, max(len(topology.route(0, rank)) for rank in range(64))
    (6, 6)
    """
    return _grid(
        "torus",
        _dims("torus", dims, bandwidth, latency),
        bandwidth,
        latency,
        send_overhead=send_overhead,
        reduce_bandwidth=reduce_bandwidth,
        channel_bandwidth=channel_bandwidth,
    )


def hypercube(
    dimension: int,
    bandwidth: Quantity = "50GB/s",
    latency: Quantity = "1us",
    *,
    send_overhead: Quantity = 0,
    reduce_bandwidth: Quantity = 0,
    channel_bandwidth: Quantity = 0,
) -> Topology:
    """Return 2**dimension GPUs, full duplex between those whose numbers differ in one bit (see `ring` for the rest).

    Parameters
    ----------
    dimension
        Number of bits, 0 to 16.
    bandwidth, latency
        Of each link.
    send_overhead, reduce_bandwidth, channel_bandwidth
        Of each GPU.

    Examples
    --------
    >>> topology = hypercube(3)
    >>> topology.n_ranks, topology.n_links, len(topology.route(0, 7))
    (8, 24, 3)
    """
    dims = (2,) * whole("hypercube", "dimension", dimension, 0, 16)
    return _grid(
        "hypercube",
        dims,
        bandwidth,
        latency,
        send_overhead=send_overhead,
        reduce_bandwidth=reduce_bandwidth,
        channel_bandwidth=channel_bandwidth,
    )


def _dims(generator: str, dims: int | Sequence[int], bandwidth: Quantity, latency: Quantity) -> tuple[int, ...]:
    """Return the sizes of a grid, refusing ``torus(4, 4)``: its second number would be a bandwidth of 4 bytes/s."""
    sizes = whole_numbers(generator, "dims", dims)
    if isinstance(dims, Integral) and _like_a_size(bandwidth):
        meant = (*sizes, bandwidth, latency) if _like_a_size(latency) else (*sizes, bandwidth)
        raise TopologyError(
            f"{generator}: dims: expected all sizes in one list, got {bandwidth} as the bandwidth; write "
            f"{generator}(({', '.join(map(str, meant))}), ...), or bandwidth='{bandwidth}B/s' if that is meant"
        )
    return sizes


def _like_a_size(value: Quantity) -> bool:
    # A size of a dimension has few digits; links slower than 100kB/s are not given as bare numbers by anyone.
    return isinstance(value, Integral) and not isinstance(value, bool) and 0 < value < 100_000


def _grid(
    generator: str,
    dims: tuple[int, ...],
    bandwidth: Quantity,
    latency: Quantity,
    *,
    send_overhead: Quantity,
    reduce_bandwidth: Quantity,
    channel_bandwidth: Quantity,
) -> Topology:
    n = math.prod(dims)
    along = (n if generator == "torus" else n // size * (size - 1) for size in dims if size > 1)
    wires = Wires(generator, n, 2 * sum(along))
    places = wires.gpus(n).reshape(dims)
    rate, delay = parse_bandwidth(bandwidth), parse_time(latency)
    for axis, size in enumerate(dims):
        if size == 1:
            continue
        here, there = places, np.roll(places, -1, axis)
        if generator != "torus":
            here, there = (np.take(grid, range(size - 1), axis) for grid in (here, there))
        wires.duplex(here, there, rate, delay)
    return wires.build(
        {"dims": dims},
        send_overhead=send_overhead,
        reduce_bandwidth=reduce_bandwidth,
        channel_bandwidth=channel_bandwidth,
    )
