"""A cut in words: which part of the machine, which way, over which links, for how many others."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.units import format_bandwidth

if TYPE_CHECKING:
    from collsim.topology import Topology

__all__ = ["cut_words", "named"]

Array = npt.NDArray[Any]

MOST_NAMES = 4
"""So many names, or ranges of names, are written out."""
MOST_RATES = 3
MOST_PAIRS = 2


def cut_words(topology: Topology, inside: Array, links: Array, ranks: Array) -> str:
    """Return what a cut is, from the side that has fewer ranks (if they are equal, fewer nodes).

    Parameters
    ----------
    topology
        The machine.
    inside
        By node, whether it is in the set that sends.
    links
        Numbers of the links that leave the set and are of use.
    ranks
        Nodes of the ranks that take part, or by node whether it is one.

    Examples
    --------
    >>> import numpy as np
    >>> import collsim.topology
    >>> machine = collsim.topology.rail_optimized(128, 8)
    >>> outside = np.array([not name.startswith("node[0].") for name in machine.nodes])
    >>> links = np.flatnonzero(outside[machine.link_src] & ~outside[machine.link_dst])
    >>> cut_words(machine, outside, links, machine.rank_nodes)
    'into node[0]: leaf -> nic, 8 x 50GB/s for the 1,016 GPUs outside'
    >>> ring = collsim.topology.ring(8, bandwidth="50GB/s", latency="1us")
    >>> cut_words(ring, np.arange(8) == 0, np.array([0]), ring.rank_nodes)
    'out of gpu0: gpu -> gpu, 1 x 50GB/s to the 7 GPUs outside'
    """
    inside, ranks = np.asarray(inside), np.asarray(ranks)
    nodes = np.flatnonzero(ranks) if ranks.dtype == bool else ranks
    sides = [nodes[inside[nodes]], nodes[~inside[nodes]]]
    if not all(map(len, sides)):  # switches among themselves
        nodes = np.arange(topology.n_nodes)
        sides = [side if len(side) else np.flatnonzero(inside == (i == 0)) for i, side in enumerate(sides)]
    # of sides with equally many ranks the one without the switches between them
    sizes = [(len(side), int((inside == (i == 0)).sum())) for i, side in enumerate(sides)]
    sends = sizes[0] <= sizes[1]
    near, far = sides if sends else sides[::-1]
    what = _over(topology, np.asarray(links))
    what += "," if what.count(" -> ") > 1 else ""
    way, to = ("out of", "to") if sends else ("into", "for")
    return f"{way} {named(topology, near, nodes)}: {what} {to} {_others(topology, far)}"


def named(topology: Topology, group: Array, ranks: Array) -> str:
    """Return a name for some of the ranks, given as nodes: modules where they are whole ones, else the first names.

    Examples
    --------
    >>> import numpy as np
    >>> import collsim.topology
    >>> machine = collsim.topology.rail_optimized(4, 8)
    >>> for chosen in (range(8), range(8, 32), range(4), (0, 1, 9), range(0, 32, 4)):
    ...     print(named(machine, machine.rank_nodes[list(chosen)], machine.rank_nodes))
    node[0]
    node[1] to node[3]
    node[0].gpu[0] to node[0].gpu[3]
    node[0].gpu[0], node[0].gpu[1] and node[1].gpu[1]
    node[0].gpu[0], node[0].gpu[4] and 6 more
    """
    names = [topology.nodes[node] for node in group.tolist()]
    if len(names) > 1:
        names = _modules(names, [topology.nodes[node] for node in ranks.tolist()]) or names
    ranges = _ranges(names)
    if len(ranges) <= MOST_NAMES:
        return " and ".join([", ".join(ranges[:-1]), ranges[-1]] if len(ranges) > 1 else ranges)
    return f"{names[0]}, {names[1]} and {len(names) - 2:,} more"


def _modules(names: Sequence[str], everyone: Sequence[str]) -> list[str]:
    """Return the modules that the names are all of, the largest ones that fit; none if they are not whole modules."""
    for depth in range(1, 1 + max(name.count(".") for name in names)):
        inner = [".".join(parts[:depth]) for parts in (name.split(".") for name in names) if len(parts) > depth]
        if len(inner) < len(names):
            break
        held = Counter(inner)
        whole = Counter(".".join(name.split(".")[:depth]) for name in everyone if name.count(".") >= depth)
        if all(whole[module] == number for module, number in held.items()):
            return list(held)
    return []


def _ranges(names: Sequence[str]) -> list[str]:
    """Join three or more names whose last number counts up: ``gpu0 to gpu7``."""
    runs: list[list[str]] = []
    last: tuple[str, int, str] | None = None
    for name in names:
        match = re.fullmatch(r"(.*?)(\d{1,18})(\]?)", name, re.ASCII | re.DOTALL)
        place = (match[1], int(match[2]), match[3]) if match else None
        if place and last and place == (last[0], last[1] + 1, last[2]):
            runs[-1].append(name)
        else:
            runs.append([name])
        last = place
    return [text for run in runs for text in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else run)]


def _over(topology: Topology, links: Array) -> str:
    """Return the kinds of ends and the rates of links: ``leaf -> nic, 8 x 50GB/s``."""
    rates = topology.link_bandwidth[links].tolist()
    if not rates:
        return "no links"
    ends = (topology.link_src[links].tolist(), topology.link_dst[links].tolist())
    for word in (_family, _kind):
        words = {node: word(topology, node) for side in ends for node in set(side)}
        pairs: dict[tuple[str, str], list[int]] = defaultdict(list)
        for src, dst, rate in zip(*ends, rates, strict=True):
            pairs[words[src], words[dst]].append(rate)
        if len(pairs) <= MOST_PAIRS:
            widest = sorted(pairs.items(), key=lambda item: (-sum(item[1]), item[0]))
            return ", and ".join(f"{src} -> {dst}, {_rates(some)}" for (src, dst), some in widest)
    return _rates(rates)


def _rates(rates: Sequence[int]) -> str:
    counts = sorted(Counter(rates).items(), reverse=True)
    if len(counts) > MOST_RATES:
        return f"{len(rates):,} links of {format_bandwidth(sum(rates))} in all"
    return " + ".join(f"{number:,} x {format_bandwidth(rate)}" for rate, number in counts)


def _family(topology: Topology, node: int) -> str:
    """Return the name of a node without its module and its number; its kind if that says too little."""
    last = topology.nodes[node].rpartition(".")[2]
    family = re.sub(r"\[[^\]]*\]", "", last).rstrip("0123456789").rstrip("-_ ")
    alone = family == last and topology.rank_of_node[node] >= 0  # a rank that has a name of its own
    return family if len(family) > 1 and not alone else _kind(topology, node)


def _kind(topology: Topology, node: int) -> str:
    return topology.kinds[node] or "node"


def _others(topology: Topology, nodes: Array) -> str:
    if len(nodes) == 1:
        return topology.nodes[int(nodes[0])]
    kinds = {topology.kinds[node] for node in nodes.tolist()}
    noun = kinds.pop() if len(kinds) == 1 else "rank"
    noun = {"gpu": "GPU"}.get(noun, noun) or "node"
    return f"the {len(nodes):,} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'} outside"
