"""What the generators share: reading sizes, and collecting links as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import TopologyError
from collsim.topology.builder import assemble
from collsim.topology.graph import Topology
from collsim.topology.names import MAX_LINKS, MAX_NODES
from collsim.units import Quantity, parse_bandwidth, parse_time

__all__ = ["Wires", "whole", "whole_numbers"]

Array = npt.NDArray[Any]


def whole(generator: str, name: str, value: int, least: int = 1, most: int = MAX_NODES) -> int:
    """Return a size that a generator was given, or raise `TopologyError`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TopologyError(f"{generator}: {name}: expected a whole number, got {_shown(value)}")
    if not least <= value <= most:
        raise TopologyError(f"{generator}: {name}: expected {least:,} to {most:,}, got {int(value):,}")
    return int(value)


def whole_numbers(generator: str, name: str, values: int | Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of the dimensions of a grid (a NumPy array will do too), or raise `TopologyError`."""
    given: object = values.tolist() if isinstance(values, np.ndarray) else values
    if isinstance(given, Integral):
        given = (given,)
    if isinstance(given, str) or not isinstance(given, Sequence) or not 1 <= len(given) <= 16:
        raise TopologyError(f"{generator}: {name}: expected 1 to 16 whole numbers such as (4, 4), got {_shown(values)}")
    sizes = tuple(whole(generator, f"{name}[{i}]", value) for i, value in enumerate(given))
    if math.prod(sizes) > MAX_NODES:
        raise TopologyError(f"{generator}: {name}: expected at most {MAX_NODES:,} GPUs, got {math.prod(sizes):,}")
    return sizes


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


class Wires:
    """Nodes and links of a topology under construction, in arrays.

    How many there will be is said first: what is too large is refused before any memory is used.
    """

    def __init__(self, generator: str, n_nodes: int, n_links: int) -> None:
        for what, number, most in (("nodes", n_nodes, MAX_NODES), ("links", n_links, MAX_LINKS)):
            if number > most:
                raise TopologyError(f"{generator}: expected at most {most:,} {what} in all, got {number:,}")
        self.generator = generator
        self.sizes = n_nodes, n_links
        self.nodes: list[str] = []
        self.kinds: list[str] = []
        self.link_kinds: list[str] = []
        self._parts: list[tuple[Array, Array, int, int, int]] = []

    def add(self, kind: str, names: Sequence[str]) -> Array:
        """Add nodes of one kind and return their indices."""
        first = len(self.nodes)
        self.nodes.extend(names)
        self.kinds.extend([kind] * len(names))
        return np.arange(first, len(self.nodes))

    def gpus(self, count: int) -> Array:
        """Add ``gpu0`` to ``gpu{count - 1}``."""
        return self.add("gpu", [f"gpu{i}" for i in range(count)])

    def link(self, src: Array, dst: Array, bandwidth: int, latency: int, kind: str = "") -> None:
        """Add a link from each ``src`` to the ``dst`` of the same place."""
        src, dst = np.broadcast_arrays(src, dst)
        if kind not in self.link_kinds:
            self.link_kinds.append(kind)
        self._parts.append((src.ravel(), dst.ravel(), bandwidth, latency, self.link_kinds.index(kind)))

    def duplex(self, a: Array, b: Array, bandwidth: int, latency: int, kind: str = "") -> None:
        """Add links in both directions."""
        self.link(a, b, bandwidth, latency, kind)
        self.link(b, a, bandwidth, latency, kind)

    def build(
        self,
        structure: dict[str, Any],
        *,
        send_overhead: Quantity = 0,
        reduce_bandwidth: Quantity = 0,
        channel_bandwidth: Quantity = 0,
        devices: dict[str, Array] | None = None,
    ) -> Topology:
        """Return the topology, named after the generator; the device attributes are those of the GPUs."""
        assert self.sizes == (len(self.nodes), sum(len(part[0]) for part in self._parts)), "counted wrongly beforehand"
        gpus = np.array([kind == "gpu" for kind in self.kinds])
        rates = {"reduce_bandwidth": reduce_bandwidth, "channel_bandwidth": channel_bandwidth}
        values = {key: 0 if rate == 0 else parse_bandwidth(rate) for key, rate in rates.items()}
        values["send_overhead"] = parse_time(send_overhead)

        def joined(column: int) -> Array:
            parts = [np.broadcast_to(np.asarray(part[column], dtype=np.int64), len(part[0])) for part in self._parts]
            return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

        return assemble(
            self.generator,
            self.nodes,
            self.kinds,
            *(joined(column) for column in range(4)),
            link_kinds=self.link_kinds or [""],
            link_kind_codes=joined(4),
            structure={"kind": self.generator, **structure},
            devices={key: np.where(gpus, value, 0) for key, value in values.items()} | (devices or {}),
        )
