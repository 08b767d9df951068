"""``--nccl-log``: the rings and trees that NCCL built as parameters of the algorithms that run them."""

from __future__ import annotations

from typing import Any

from collsim.errors import InputError
from collsim.formats.nccl_log import read_nccl_log

__all__ = ["built_by_nccl"]

RINGS = ("ring", "bidirectional_ring")


def built_by_nccl(log: str, operation: str, algorithm: str, ranks: int, given: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that make an algorithm run what NCCL built.

    Parameters
    ----------
    log
        Path of NCCL's output.
    operation, algorithm
        What is run.
    ranks
        Ranks of the machine.
    given
        Parameters that the user gave, which a log must not contradict.

    Raises
    ------
    InputError
        If the log cannot be read, is of another number of ranks, or the algorithm has neither rings nor trees.
    """
    graph = read_nccl_log(log)
    if graph.ranks != ranks:
        raise InputError(f"--nccl-log: expected a log of the {ranks} ranks of the topology, got one of {graph.ranks}")
    chained = operation in ("broadcast", "reduce")  # one chain for all channels
    if algorithm in RINGS and not (chained and len(set(graph.rings)) > 1):
        if not graph.rings:
            raise InputError(f"--nccl-log: {log} has no rings; set NCCL_DEBUG_SUBSYS=INIT,GRAPH")
        order = list(graph.rings[0]) if chained else [list(ring) for ring in graph.rings]
        found = {"order": order, "channels": len(graph.rings)}
    elif algorithm == "nccl_tree":
        if not graph.trees:
            raise InputError(f"--nccl-log: {log} has no trees; keep the output of every rank")
        found = {"parents": [list(tree) for tree in graph.trees]}
    else:
        able = "rings that are all one" if algorithm in RINGS else "-a ring or -a nccl_tree"
        raise InputError(f"--nccl-log: expected {able}, got {operation} by {algorithm}")
    for name in found:
        if name in given:
            raise InputError(f"-p: {name} is given, and --nccl-log gives it too; leave one out")
    return found
