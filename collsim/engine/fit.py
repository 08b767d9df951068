"""Fitting an algorithm to a machine: what it takes from the topology, by the names of its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from collsim import algorithms
from collsim.errors import AlgorithmError, InputError
from collsim.schedule import Schedule
from collsim.topology import Topology
from collsim.topology.structure import dimension_bandwidths, node_groups, product_dims, rank_routes, torus_dims

__all__ = ["FITTED", "fitted", "schedule_for"]


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
        of a node), ``nodes`` (their number, or the ranks of each), ``routes`` (links between neighbours) and
        ``bandwidths`` (bytes/s by level).
    topology
        The machine.
    parameters
        What the caller gave; it wins.

    Raises
    ------
    AlgorithmError
        If the machine does not have what the function takes and has no default for.

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
        if name not in FITTED or found.get(name) is not None:
            continue
        read, what, remedy = FITTED[name]
        # rates of the machine's own levels say nothing about others
        other = name == "bandwidths" and parameters.get("levels") not in (None, *_as_given(product_dims(topology)))
        value = None if other else read(topology)
        if value is not None:
            found[name] = value
        elif parameter.default is parameter.empty and name != "order":
            raise AlgorithmError(f"topology {topology.name!r} has no {what}; give -p {remedy(topology.n_ranks)}")
    return found


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
}
"""By parameter: how it is read from a topology, what is missing if it is not there, and what may be given instead."""
