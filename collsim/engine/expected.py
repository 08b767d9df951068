"""What theory expects of a result: the closed form of its algorithm, and the bound of its machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from collsim import algorithms
from collsim.algorithms.pacing import queued
from collsim.errors import CollsimError
from collsim.theory import Bound, Prediction, lower_bound, predict, predict_in_network

if TYPE_CHECKING:
    from collsim.engine.result import Result

__all__ = ["bound_of", "theory_of"]

OWN_EDGES = ("nccl_p2p", "nvls", "one_shot", "pairwise", "pairwise_xor", "sharp")
"""Algorithms with written edges whose closed form is exact with them."""
MOST_BUILT = 100_000
"""Transfers of a schedule that is built once more to see whether its edges are its own."""
QUEUES = ("cut_through", "store_and_forward")
"""Networks in which messages queue at ports in order of arrival."""


def theory_of(result: Result) -> Prediction | None:
    """Return the closed form of the algorithm; None where there is none.

    Examples
    --------
    >>> import collsim
    >>> result = collsim.run("all_gather", collsim.topology.ring(4, bandwidth="1GB/s", latency="1us"), 4000)
    >>> theory_of(result).formula
    '(N-1) (alpha + m beta), m = S/N'
    """
    schedule, lowered, topology = result.schedule, result.lowered, result.topology
    if any(phase.block.via is not None for phase in schedule.phases):
        return None
    what = schedule.algorithm, schedule.collective, result.size, topology
    ways = lowered.src, lowered.dst, lowered.channel
    options: dict[str, Any] = {
        "synchronous": result.synchronous, "network": result.network, "parameters": schedule.parameters,
        "equal": _cuts_equally(result),
    }  # fmt: skip
    if schedule.places:
        nodes = np.append(topology.rank_nodes, [topology.node_index(name) for name in schedule.places])
        prediction = predict_in_network(*what, nodes, ways, **options)
    else:
        prediction = predict(*what, ways, element_size=result.element_size, **options)
    if prediction is not None and schedule.edges and not (_waits_its_turn(result) or _has_its_own_edges(result)):
        prediction = prediction.but("written edges pace it")
    return prediction


def bound_of(result: Result) -> Bound:
    """Return the least time that any algorithm could take, with the blocks that the schedule cuts.

    Examples
    --------
    >>> import collsim
    >>> result = collsim.run("all_gather", collsim.topology.ring(4, bandwidth="1GB/s", latency="1us"), 4000)
    >>> f"{bound_of(result) * 1e6:.0f} us of {result.time * 1e6:.0f}"
    '4 us of 6'
    """
    collective, schedule = result.schedule.collective, result.schedule
    blocks = None
    if collective.is_blocked and collective.operation != "all_to_all":
        # as this schedule cuts them: with more chunks a rank, a remainder goes to other ranks
        by_place = np.zeros(schedule.chunks, dtype=np.int64)
        by_place[schedule.place_of(np.arange(schedule.chunks))] = schedule.elements(result.size // result.element_size)
        blocks = (by_place.reshape(collective.ranks, -1).sum(axis=1) * result.element_size).tolist()
    return lower_bound(
        collective,
        result.size,
        result.topology,
        network=result.network,
        element_size=result.element_size,
        blocks=blocks,
    )


def _waits_its_turn(result: Result) -> bool:
    """Whether the edges only keep chains and trees in the order in which their messages would queue anyway."""
    schedule, window = result.schedule, result.schedule.parameters.get("window")
    if schedule.algorithm not in ("ring", "tree") or not (result.synchronous or result.network in QUEUES):
        return False
    try:
        return bool(schedule.edges == queued(replace(schedule, edges=()), window).edges)
    except CollsimError:  # an algorithm of a user's own may give the name another meaning
        return False


def _has_its_own_edges(result: Result) -> bool:
    """Whether the edges are those of the algorithm itself, which its form takes into account, and no others."""
    schedule = result.schedule
    if schedule.algorithm not in OWN_EDGES or schedule.transfers > MOST_BUILT:
        return False
    try:
        again = algorithms.build(
            result.operation, schedule.algorithm, schedule.ranks, schedule.collective.root, **schedule.parameters
        )
    except CollsimError:
        return False
    return bool(again.edges == schedule.edges)


def _cuts_equally(result: Result) -> bool:
    elements, rest = divmod(result.size, result.element_size)
    sizes = result.schedule.elements(elements)
    # blocks of all_to_all are all alike: what is left over does not move
    moved = result.operation == "barrier" or int(sizes.sum()) == elements
    return not rest and moved and int(sizes.min()) == int(sizes.max())
