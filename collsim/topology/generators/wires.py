"""What the generators share: reading sizes, and collecting links as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import TopologyError
from collsim.topology.builder import MAX_LINKS, assemble
from collsim.topology.graph import Topology
from collsim.units import Quantity, parse_bandwidth, parse_time

__all__ = ["MAX_GPUS", "Wires", "whole", "whole_numbers"]

Array = npt.NDArray[Any]

MAX_GPUS = 2**22
"""More GPUs than this are refused before memory is used."""


def whole(generator: str, name: str, value: int, least: int = 1, most: int = MAX_GPUS) -> int:
    """Return a size that a generator was given, or raise `TopologyError`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TopologyError(f"{generator}: {name}: expected a whole number, got {value!r}")
    if not least <= value <= most:
        raise TopologyError(f"{generator}: {name}: expected {least:,} to {most:,}, got {int(value):,}")
    return int(value)


def whole_numbers(generator: str, name: str, values: int | Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of the dimensions of a grid, or raise `TopologyError`."""
    if isinstance(values, Integral):
        values = (int(values),)
    if isinstance(values, str) or not isinstance(values, Sequence) or not 1 <= len(values) <= 16:
        raise TopologyError(f"{generator}: {name}: expected 1 to 16 whole numbers such as (4, 4), got {values!r}")
    sizes = tuple(whole(generator, f"{name}[{i}]", value) for i, value in enumerate(values))
    if math.prod(sizes) > MAX_GPUS:
        raise TopologyError(f"{generator}: {name}: expected at most {MAX_GPUS:,} GPUs, got {math.prod(sizes):,}")
    return sizes


class Wires:
    """Nodes and links of a topology under construction, in arrays."""

    def __init__(self, generator: str) -> None:
        self.generator = generator
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
        if (links := sum(len(part[0]) for part in self._parts)) > MAX_LINKS:
            raise TopologyError(f"{self.generator}: expected at most {MAX_LINKS:,} links, got {links:,} or more")

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
