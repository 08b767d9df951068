"""Fitting an algorithm to a machine: what it takes from the topology, by the names of its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from collsim import algorithms
from collsim.errors import AlgorithmError, InputError
from collsim.forests import Wires
from collsim.schedule import Schedule
from collsim.topology import Topology, reducing
from collsim.topology.structure import dimension_bandwidths, node_groups, product_dims, rank_routes, torus_dims

__all__ = ["FITTED", "fitted", "schedule_for", "wires_of"]


def schedule_for(operation: str, algorithm: str, topology: Topology, root: int, parameters: dict[str, Any]) -> Schedule:
    """Build a schedule by the name of its algorithm, fitted to a topology.

    Raises
    ------
    AlgorithmError
        If there is no such algorithm, or it cannot take the topology or the parameters.
    InputError
        If the operation or the root is not possible.

    Examples
    --------
    >>> from collsim.topology import torus
    >>> dict(schedule_for("all_reduce", "ring", torus((2, 2)), 0, {}).parameters)
    {'order': [0, 1, 3, 2], 'channels': 1, 'slices': 1}
    """
    if not isinstance(algorithm, str):
        raise InputError(
            f"algorithm: expected the name of an algorithm, got {type(algorithm).__name__}; put @algorithm(...) above "
            "your function, or build the schedule and call simulate"
        )
    function = algorithms.find(operation, algorithm)
    return algorithms.build(operation, algorithm, topology.n_ranks, root, **fitted(function, topology, parameters))


def fitted(function: Callable[..., Schedule], topology: Topology, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a function that makes schedules, with what it takes from the topology filled in.

    Parameters
    ----------
    function
        A shipped algorithm or one of the user. What it takes is told by the names of its parameters: ``order`` (ranks
        in the order of a ring), ``dims`` (sizes of the dimensions of a torus), ``levels`` (the same, or nodes and ranks
        of a node), ``nodes`` (their number, or the ranks of each), ``routes`` (links between neighbours),
        ``bandwidths`` (bytes/s by level), ``wires`` (all nodes and links, as `collsim.forests` takes them), and of
        switches that reduce and multicast ``switch`` (that joins all ranks), ``switches`` (of each node, with its
        ranks), ``tree`` and ``head_trees`` (of switches, over all ranks and over heads of nodes).
    topology
        The machine.
    parameters
        What the caller gave; it wins.

    Raises
    ------
    AlgorithmError
        If the machine does not have what the function takes and has no default for, or one switch that is given for all
        ranks is out of reach of some.

    Examples
    --------
    >>> from collsim.topology import rail_optimized, ring
    >>> def mine(ranks, *, nodes): ...
    >>> fitted(mine, rail_optimized(4, 8), {}), fitted(mine, rail_optimized(4, 8), {"nodes": 2})
    ({'nodes': 4}, {'nodes': 2})
    >>> fitted(mine, ring(8), {})
    Traceback (most recent call last):
    collsim.errors.AlgorithmError: topology 'ring' has no nodes; give -p nodes=2
    """
    found = dict(parameters)
    for name, parameter in inspect.signature(function).parameters.items():
        if name in ONE_FOR_ALL and isinstance(found.get(name), str):
            _refuse_out_of_reach(topology, name, found[name])
        if name not in FITTED or found.get(name) is not None:
            continue
        read, what, remedy = FITTED[name]
        # rates of the machine's own levels say nothing about others
        other = name == "bandwidths" and parameters.get("levels") not in (None, *_as_given(product_dims(topology)))
        value = None if other else read(topology)
        if value is not None:
            found[name] = value
        elif name in REFUSALS and parameter.default is not None:  # a default is for schedules without a machine
            raise AlgorithmError(f"topology {topology.name!r} has {REFUSALS[name](topology)}")
        elif parameter.default is parameter.empty and name != "order":
            raise AlgorithmError(f"topology {topology.name!r} has no {what}; give -p {remedy(topology.n_ranks)}")
    return found


def _refuse_out_of_reach(topology: Topology, name: str, switch: str) -> None:
    """Refuse a switch that stands for all ranks, but that not all of them reach."""
    if switch not in topology.nodes:
        return  # said when the schedule is put on the machine, with what was meant
    reaches = np.arange(topology.n_nodes) == topology.node_index(switch)
    before = 0
    while before != (before := int(reaches.sum())):
        passed = reaches & (topology.forwards | (np.arange(topology.n_nodes) == topology.node_index(switch)))
        reaches[topology.link_src[passed[topology.link_dst]]] = True
    apart = topology.rank_nodes[~reaches[topology.rank_nodes]]
    if len(apart):
        raise AlgorithmError(
            f"{name}: expected {ONE_FOR_ALL[name]}, got {switch!r}, which is out of reach of "
            f"{topology.nodes[apart[0]]!r}"
        )


def _as_given(dims: tuple[int, ...] | None) -> list[Any]:
    return [] if dims is None else [dims, list(dims)]


def _order(topology: Topology) -> list[int] | None:
    order = list(topology.ring_order())
    return None if order == list(range(topology.n_ranks)) else order


def _nodes(topology: Topology) -> int | list[list[int]] | None:
    """Read the nodes: their number where it says all."""
    groups = node_groups(topology)
    if groups is None:
        return None
    equal = len({len(group) for group in groups}) == 1
    in_order = [rank for group in groups for rank in group] == list(range(topology.n_ranks))
    return len(groups) if equal and in_order else [list(group) for group in groups]


def wires_of(topology: Topology) -> Wires:
    """Return the machine as `collsim.forests` sees it; made once.

    Examples
    --------
    >>> from collsim.topology import switch
    >>> wires = wires_of(switch(4))
    >>> wires, wires.links[:2], wires.passes.tolist()
    (<Wires: 4 ranks, 5 nodes, 8 links>, ('gpu0->sw0', 'gpu1->sw0'), [False, False, False, False, True])
    """
    if "wires" not in topology.cache:
        topology.cache["wires"] = Wires(
            topology.nodes,
            topology.rank_nodes,
            topology.forwards & (topology.rank_of_node < 0),
            topology.link_src,
            topology.link_dst,
            topology.link_bandwidth,
            tuple(map(topology.link_name, range(topology.n_links))),
        )
    found: Wires = topology.cache["wires"]
    return found


def _some_divisor(ranks: int) -> int:
    return next((size for size in range(2, ranks) if ranks % size == 0), ranks)


def _some_sizes(ranks: int) -> str:
    size = _some_divisor(ranks)
    return f"{size},{ranks // size}"


FITTED: dict[str, tuple[Callable[[Topology], Any], str, Callable[[int], str]]] = {
    "order": (_order, "order", lambda ranks: "order=" + ",".join(map(str, range(ranks)))),
    "dims": (torus_dims, "dimensions", lambda ranks: f"dims={_some_sizes(ranks)}"),
    "levels": (product_dims, "levels", lambda ranks: f"levels={_some_sizes(ranks)}"),
    "nodes": (_nodes, "nodes", lambda ranks: f"nodes={_some_divisor(ranks)}"),
    "routes": (rank_routes, "routes", lambda ranks: "routes=..."),
    "bandwidths": (dimension_bandwidths, "levels", lambda ranks: "bandwidths=... with levels=..."),
    "wires": (wires_of, "links", lambda ranks: "wires=..."),
    "switch": (reducing.joining_switch, "switch", lambda ranks: "switch=..."),
    "switches": (reducing.node_switches, "switches", lambda ranks: "switches=..."),
    "tree": (reducing.rank_tree, "tree", lambda ranks: "tree=..."),
    "head_trees": (reducing.rail_trees, "head_trees", lambda ranks: "head_trees=..."),
}
"""By parameter: how it is read from a topology, what is missing if it is not there, and what may be given instead."""

_TREE = "such as [[leaf0, [0, 1]], [leaf1, [2, 3]], [spine, [leaf0, leaf1]]]"
ONE_FOR_ALL = {
    "switch": "a switch that joins all ranks",
    "switches": "the switch of each node and the ranks it joins, such as [[sw0, [0, 1]], [sw1, [2, 3]]], or one switch "
    "that joins all ranks",
    "tree": f"a tree of switches {_TREE}, or one switch that joins all ranks",
    "head_trees": f"a tree of switches for each head, {_TREE}, or one switch that joins all ranks",
}
"""What is expected of a parameter that may be the name of one switch, for all ranks."""

REFUSALS: dict[str, Callable[[Topology], str]] = {
    "switch": reducing.why_not_joined,
    "switches": reducing.why_not_nodes,
    "tree": reducing.why_not_tree,
    "head_trees": reducing.why_not_tree,
}
"""What a machine has instead of a parameter that nothing else can stand for."""
