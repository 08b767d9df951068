"""Writing network files of ASTRA-sim: what product a topology is, found by its links, and the lists that say so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import TopologyError
from collsim.formats.astra_sim.dimension import Dimension, groups_of, places_of, printable
from collsim.outputs import output_path, write_whole
from collsim.topology.graph import Topology
from collsim.units import format_bandwidth, format_time

__all__ = ["format_astra_sim", "write_astra_sim"]

Array = npt.NDArray[Any]

GB = 2**30


def write_astra_sim(topology: Topology, path: str | os.PathLike[str]) -> None:
    """Write a network file of ASTRA-sim's analytical back end.

    Parameters
    ----------
    topology
        One that is a product of bidirectional rings, full meshes and single switches, its ranks numbered with the first
        dimension innermost; found by its links, whoever made it. Names, kinds of links and what devices can do (to
        add up, to copy, overheads) have no place in the file; of the latter a comment tells.
    path
        Ends in ``.yml`` or ``.yaml``.

    Raises
    ------
    TopologyError
        If it is no such product, and why.
    InputError
        If the file cannot be written.

    Examples
    --------
    >>> import collsim.topology
    >>> write_astra_sim(collsim.topology.torus((4, 4)), "no/such/folder/torus.yml")
    Traceback (most recent call last):
    collsim.errors.InputError: ASTRA-sim network: no/such/folder/torus.yml: no such directory; make it first
    """
    target = output_path(path, "ASTRA-sim network", (".yml", ".yaml"))
    write_whole(target, format_astra_sim(topology).encode(), "ASTRA-sim network")


def format_astra_sim(topology: Topology) -> str:
    """Return the text of a network file; see `write_astra_sim`.

    Ten decimals of a GB/s tell apart any two whole numbers of bytes/s.

    Examples
    --------
    >>> import collsim.topology
    >>> print(format_astra_sim(collsim.topology.torus((2, 4), bandwidth="50GiB/s", latency="1us")))
    Traceback (most recent call last):
    collsim.errors.TopologyError: an ASTRA-sim network cannot say 'torus': gpu4 has 2 links to gpu0, where ...
    >>> print(format_astra_sim(collsim.topology.torus((3, 4), bandwidth="50GiB/s", latency="1us")))
    # torus: 12 NPUs
    topology: [ Ring, Ring ]
    npus_count: [ 4, 3 ]
    bandwidth: [ 50.0, 50.0 ]  # GB/s of 2^30 bytes
    latency: [ 1000.0, 1000.0 ]  # ns
    """
    for name in ("send_overhead", "reduce_bandwidth", "channel_bandwidth"):
        if getattr(topology, name).any():  # times would not be the same
            raise TopologyError(
                f"an ASTRA-sim network cannot say {printable(topology.name)!r}: devices have a {name}; write it as "
                "YAML or GraphML instead"
            )
    dims = _recognised(topology)
    lines = [f"# {printable(topology.name)}: {topology.n_ranks:,} NPUs"]
    if left := [name for name in ("reduces", "multicasts") if getattr(topology, name).any()]:
        lines.append(f"# left out, for want of a place: {', '.join(left)}")
    rates = [_decimal(Fraction(dim.bandwidth, GB), 10) for dim in dims]
    latencies = [_decimal(Fraction(dim.latency, 1000), 3) for dim in dims]
    lines += [
        f"topology: [ {', '.join(dim.block for dim in dims)} ]",
        f"npus_count: [ {', '.join(str(dim.size) for dim in dims)} ]",
        f"bandwidth: [ {', '.join(rates)} ]  # GB/s of 2^30 bytes",
        f"latency: [ {', '.join(latencies)} ]  # ns",
    ]
    return "\n".join(lines) + "\n"


def _decimal(value: Fraction, places: int) -> str:
    whole, rest = divmod(round(value * 10**places), 10**places)
    return f"{whole}.{str(rest).rjust(places, '0').rstrip('0') or '0'}"


class _Refusal(Exception):
    """Why a topology is no product."""


def _recognised(topology: Topology) -> list[Dimension]:
    """Return the dimensions of a topology, innermost first, or say why there are none."""
    try:
        return _Machine(topology).dimensions()
    except _Refusal as why:
        instead = "write it as YAML, SimGrid or GraphML instead"
        raise TopologyError(f"an ASTRA-sim network cannot say {printable(topology.name)!r}: {why}; {instead}") from None


class _Machine:
    """The links of a topology by ranks, and the search for the product that they are."""

    def __init__(self, topology: Topology) -> None:
        self.topology, self.n = topology, topology.n_ranks
        self._check_nodes()
        rank = topology.rank_of_node
        self.src, self.dst = topology.link_src.astype(np.int64), topology.link_dst.astype(np.int64)
        self.a, self.b = rank[self.src], rank[self.dst]
        self._check_links()
        self.direct = (self.a >= 0) & (self.b >= 0)
        self.keys = np.sort(self.a[self.direct] * self.n + self.b[self.direct])
        self.ahead = self.keys[: np.searchsorted(self.keys, self.n)].tolist()  # neighbours of rank 0
        self.switches = self._switches()

    def name(self, node: int) -> str:
        return printable(self.topology.nodes[node])

    def link(self, link: int) -> str:
        return printable(self.topology.link_name(link))

    def _check_nodes(self) -> None:
        topology, rank = self.topology, self.topology.rank_of_node
        if self.n < 2:
            raise _Refusal("it has one rank, where ASTRA-sim takes two or more")
        for node in np.flatnonzero(rank < 0).tolist():
            if (kind := topology.kinds[node]) != "switch":
                raise _Refusal(
                    f"{self.name(node)} is a {kind} that is no rank, where ASTRA-sim has NPUs and switches only"
                )
            if not topology.forwards[node]:
                raise _Refusal(f"{self.name(node)} does not forward")
        if topology.given_routes:
            raise _Refusal("it has routes of its own, where ASTRA-sim goes dimension by dimension")

    def _check_links(self) -> None:
        n_nodes = self.topology.n_nodes
        inner = np.flatnonzero((self.a < 0) & (self.b < 0))
        if len(inner):
            raise _Refusal(f"{self.link(inner[0])} joins two switches, where a switch of a dimension has NPUs only")
        double = np.flatnonzero(self.topology.link_key > 0)
        if len(double):
            src, dst = int(self.src[double[0]]), int(self.dst[double[0]])
            count = len(self.topology.links_between(self.topology.nodes[src], self.topology.nodes[dst]))
            names = f"{self.name(src)} has {count} links to {self.name(dst)}"
            raise _Refusal(f"{names}, where a dimension has one")
        there, back = self.src * n_nodes + self.dst, self.dst * n_nodes + self.src
        alone = np.flatnonzero(~np.isin(there, back))
        if len(alone):
            hint = "; a bidirectional_ring could be said" if self.topology.structure.get("kind") == "ring" else ""
            raise _Refusal(f"{self.link(alone[0])} has no link back, where ASTRA-sim's go both ways{hint}")

    def _switches(self) -> dict[tuple[int, int], Array]:
        """Return the links from ranks to switches by (stride, size) of the groups that they make."""
        up = np.flatnonzero((self.a >= 0) & (self.b < 0))
        used = np.bincount(self.dst[up], minlength=self.topology.n_nodes)
        idle = np.flatnonzero((used == 0) & (self.topology.rank_of_node < 0))
        if len(idle):
            raise _Refusal(f"{self.name(idle[0])} joins no NPUs")
        up = up[np.lexsort((self.a[up], self.dst[up]))]
        sizes = used[used > 0]
        if (sizes < 2).any():
            alone = int(np.flatnonzero(used == 1)[0])
            raise _Refusal(f"{self.name(alone)} joins one NPU only")
        first = np.cumsum(sizes) - sizes
        strides = self.a[up[first + 1]] - self.a[up[first]] if len(first) else sizes
        found: dict[tuple[int, int], Array] = {}
        for stride, size in np.unique(np.stack([strides, sizes], axis=1), axis=0).tolist():
            own = first[(strides == stride) & (sizes == size)]
            found[stride, size] = rows = up[own[:, None] + np.arange(size)]
            groups = self.a[rows]
            order = np.lexsort(groups.T)
            again = np.flatnonzero((groups[order][1:] == groups[order][:-1]).all(axis=1))
            if len(again):
                one, two = sorted(self.dst[rows[order[again[0] : again[0] + 2], 0]].tolist())
                same = f"{self.name(one)} and {self.name(two)} join the same NPUs"
                raise _Refusal(f"{same}, where a dimension has one switch for them")
        return found

    def dimensions(self) -> list[Dimension]:
        chain = next(filter(self._verified, self._chains(1)), None)
        if chain is None:
            ends = self.topology.structure.get("kind") in ("line", "mesh")
            hint = " (a mesh has ends, its rings have none)" if ends else ""
            product = "product of bidirectional rings, full meshes and single switches"
            raise _Refusal(f"its links are no {product} in the order of the ranks{hint}")
        still = self.topology.rank_nodes[~self.topology.forwards[self.topology.rank_nodes]]
        if len(still) and (len(chain) > 1 or (chain[0].block == "Ring" and chain[0].size > 3)):
            raise _Refusal(f"{self.name(still[0])} does not forward, where messages pass through NPUs")
        return self._rated(chain)

    def _chains(self, stride: int) -> Iterator[list[Dimension]]:
        """Yield dimensions from a stride on that have the links of rank 0, and no others."""
        if stride == self.n:
            yield []
            return
        for size in range(2, self.n // stride + 1):
            if (self.n // stride) % size:
                continue
            inside = [place for place in self.ahead if stride <= place < stride * size]
            for block in self._blocks(size):
                dim = Dimension(block, size)
                switched = (stride, size) in self.switches
                if inside == [stride * step for step in dim.steps] and switched == (block == "Switch"):
                    for outer in self._chains(stride * size):
                        yield [dim, *outer]

    def _blocks(self, size: int) -> tuple[str, ...]:
        if size > 3:
            return ("Ring", "FullyConnected", "Switch")
        # Of two or three NPUs ring and full mesh are the same.
        meshed = self.topology.structure.get("kind") == "fully_connected"
        return ("FullyConnected" if meshed else "Ring", "Switch")

    def _verified(self, chain: list[Dimension]) -> bool:
        """Return whether the links are those of the dimensions, for every rank."""
        links = sum(dim.count(self.n)[1] for dim in chain)
        if links != self.topology.n_links or sum(dim.block == "Switch" for dim in chain) != len(self.switches):
            return False
        places, stride = places_of(chain), 1
        keys = [np.zeros(0, dtype=np.int64)]
        for number, dim in enumerate(chain):
            axis = len(chain) - 1 - number
            keys += [(places * self.n + np.roll(places, -step, axis)).ravel() for step in dim.steps]
            if dim.block == "Switch":
                rows = self.a[self.switches[stride, dim.size]]
                if not np.array_equal(rows[np.argsort(rows[:, 0])], groups_of(places, axis)):
                    return False
            stride *= dim.size
        return bool(np.array_equal(np.sort(np.concatenate(keys)), self.keys))

    def _rated(self, chain: list[Dimension]) -> list[Dimension]:
        """Return the dimensions with their rates and latencies, which must be the same for all of their links."""
        strides = np.cumprod([1, *(dim.size for dim in chain)])
        number = np.searchsorted(strides, np.abs(self.a - self.b), side="right") - 1  # of direct links
        of_switch = np.zeros(self.topology.n_nodes, dtype=np.int64)
        for (stride, _), up in self.switches.items():
            of_switch[self.dst[up]] = np.searchsorted(strides, stride)
        number = np.where(self.direct, number, np.where(self.a < 0, of_switch[self.src], of_switch[self.dst]))
        rated = []
        for place, dim in enumerate(chain):
            own = np.flatnonzero(number == place)
            values = []
            for what, column, text in (
                ("bandwidth", self.topology.link_bandwidth, format_bandwidth),
                ("latency", self.topology.link_latency, format_time),
            ):
                first = int(column[own[0]])
                if len(other := own[column[own] != first]):
                    pair = f"{self.link(own[0])} has {text(first)} and {self.link(other[0])} {text(column[other[0]])}"
                    raise _Refusal(f"{pair}, where a dimension has one {what}")
                values.append(first)
            rated.append(replace(dim, bandwidth=values[0], latency=values[1]))
        return rated
