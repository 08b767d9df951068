"""A topology in words and figures."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.topology.graph import Topology
from collsim.topology.search import distances
from collsim.units import format_bandwidth, format_time

__all__ = ["describe"]

SAMPLED = 256
"""Ranks from which the diameter is looked at; with more ranks it is said to be sampled."""

WORK = 2**24
"""Nodes and links that the search for the diameter may look at, about."""

WIDTH = 90


def describe(topology: Topology) -> str:
    """Return a text of some lines: devices, links, bandwidth of a GPU, diameter, ring order.

    Examples
    --------
    >>> from collsim.topology import torus
    >>> print(describe(torus((4, 4), bandwidth="50GB/s", latency="1us")))
    torus
      structure  torus, 4 x 4
      nodes      16: 16 gpu
      ranks      16: gpu0 to gpu15
      links      64 in one direction
                 64 x 50GB/s 1us
      injection  200GB/s out of and 200GB/s into every rank
      diameter   4 hops
      ring       0 1 2 3 7 6 5 9 10 11 15 14 13 12 8 4
    """
    lines = [topology.name]
    labels = (("about", topology.description), ("source", topology.source), ("structure", _structure(topology)))
    for label, text in labels:
        if text:
            lines += _paragraph(label, " ".join(text.split()))
    kinds = Counter(topology.kinds)
    lines += _paragraph(
        "nodes", f"{topology.n_nodes:,}: " + ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    )
    names = topology.ranks
    lines += _paragraph("ranks", f"{len(names):,}: {names[0]}" + (f" to {names[-1]}" if len(names) > 1 else ""))
    lines += _links(topology)
    if topology.n_links:
        lines += _paragraph("injection", _injection(topology))
        lines += _paragraph("diameter", _diameter(topology))
    lines += _devices(topology)
    if topology.given_routes:
        count = len(topology.given_routes)
        lines += _paragraph("routes", f"{count:,} given in the file")
    order = topology.ring_order()
    if order != tuple(range(topology.n_ranks)):
        shown = " ".join(map(str, order[:64])) + (f" ... ({len(order):,} ranks)" if len(order) > 64 else "")
        lines += _paragraph("ring", shown)
    return "\n".join(lines)


def _structure(topology: Topology) -> str:
    parts = []
    for key, value in topology.structure.items():
        if key in ("kind", "dims"):
            parts.append(" x ".join(map(str, value)) if key == "dims" else str(value))
        elif key == "count":
            parts.append(f"{value:,} x {topology.structure.get('module', 'module')}")
        elif isinstance(value, int):
            parts.append(f"{value:,} {key.replace('_', ' ')}")
    return ", ".join(part for part in parts if part)


def _paragraph(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"  {label:<10} ",
        subsequent_indent=" " * 13,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _links(topology: Topology) -> list[str]:
    columns = np.stack([topology.link_kind_codes.astype(np.int64), topology.link_bandwidth, topology.link_latency])
    groups, first, counts = np.unique(columns, axis=1, return_index=True, return_counts=True)
    parallel = int(topology.link_key.max(initial=0)) + 1
    text = f"{topology.n_links:,} in one direction" + (f", up to {parallel:,} in parallel" if parallel > 1 else "")
    lines = _paragraph("links", text)
    rows = [
        (
            f"{counts[i]:,} x",
            topology.link_kind_names[groups[0, i]],
            format_bandwidth(int(groups[1, i])),
            format_time(int(groups[2, i])),
        )
        for i in np.argsort(first)
    ]
    sizes = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    for count, kind, bandwidth, latency in rows:
        shown = [count.rjust(sizes[0]), kind.ljust(sizes[1]), bandwidth.rjust(sizes[2]), latency.rjust(sizes[3])]
        lines.append(" " * 13 + " ".join(part for part, size in zip(shown, sizes, strict=True) if size))
    return lines


def _injection(topology: Topology) -> str:
    def rates(ends: npt.NDArray[Any]) -> str:
        total = np.zeros(topology.n_nodes, dtype=np.int64)
        np.add.at(total, ends, topology.link_bandwidth)
        low, high = (format_bandwidth(int(rate)) for rate in np.sort(total[topology.rank_nodes])[[0, -1]])
        return low if low == high else f"{low} to {high}"

    return f"{rates(topology.link_src)} out of and {rates(topology.link_dst)} into every rank"


def _diameter(topology: Topology) -> str:
    nodes = topology.rank_nodes
    most = max(1, min(SAMPLED, WORK // (topology.n_nodes + topology.n_links)))
    sample = nodes if len(nodes) <= most else nodes[np.linspace(0, len(nodes) - 1, most).astype(np.int64)]
    hops = distances(topology, sample)[:, nodes]
    text = f"{hops.max()} hop{'' if hops.max() == 1 else 's'}"
    if (hops < 0).any():
        text += "; not every rank has a route to every other"
    return text if len(sample) == len(nodes) else f"{text} at least (from all to {len(sample):,} ranks)"


def _devices(topology: Topology) -> list[str]:
    lines = []
    rows: tuple[tuple[str, npt.NDArray[Any], Callable[[int], str]], ...] = (
        ("overhead", topology.send_overhead, lambda value: f"{format_time(value)} to send a transfer"),
        ("reduction", topology.reduce_bandwidth, lambda value: f"{format_bandwidth(value)} reduced"),
        ("channel", topology.channel_bandwidth, lambda value: f"{format_bandwidth(value)} a channel"),
        ("reduces", topology.reduces, lambda _: "sums in the network"),
        ("multicasts", topology.multicasts, lambda _: "copies in the network"),
        ("ends", ~topology.forwards, lambda _: "no route passes through"),
    )
    for label, column, show in rows:
        for value in np.unique(column[column != 0]).tolist():
            count = int((column == value).sum())
            lines += _paragraph(label, f"{show(value)} ({count:,} node{'' if count == 1 else 's'})")
    return lines
