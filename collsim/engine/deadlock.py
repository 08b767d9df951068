"""Explain why a program cannot finish: which transfers wait for each other."""

from __future__ import annotations

from collections import deque

import numpy as np

from collsim.engine.program import Array, Program
from collsim.errors import DeadlockError

__all__ = ["deadlock"]

SHOWN = 4
"""Waits that a message spells out; longer cycles are cut."""


def deadlock(program: Program, handled: Array) -> DeadlockError:
    """Return the error for a program of which some nodes never became ready.

    Parameters
    ----------
    program
        The program that ran until no event was left.
    handled
        By node, whether it was. Each of the others waits for at least one of the others, so there is a cycle.

    Returns
    -------
    DeadlockError
        Its message names a cycle by step, ranks and chunk; ``cycle`` has the numbers of its transfers (of its joins
        if there are no transfers in it), each waiting for the next, the lowest first.
    """
    nodes = _cycle(program, handled)
    waits = _waits(program, nodes)
    many = len(waits) > 1
    kind = "transfer" if nodes[0] < program.transfers else "join"
    shown = [
        f"{_name(program, node)} waits for {_name(program, other)} to {'be issued' if issued else 'end'}"
        + (", through a barrier" if barrier else "")
        for node, other, issued, barrier in waits[:SHOWN]
    ]
    if len(waits) > SHOWN:
        shown.append(f"{len(waits) - SHOWN} more")
    stuck = int(np.count_nonzero(~handled[: program.transfers]))
    message = (
        f"deadlock: {len(waits)} {kind}{'s' if many else ''} {'wait for each other' if many else 'waits for itself'}: "
        f"{'; '.join(shown)}; {stuck} of {program.transfers} transfers never start; "
        "dependencies of data cannot do this, so remove or reverse an explicit edge"
    )
    return DeadlockError(message, cycle=tuple(node for node, *_ in waits))


def _cycle(program: Program, handled: Array) -> list[int]:
    """Return a cycle of waiting nodes, the shortest through one of its nodes, the lowest transfer first."""

    def unhandled(node: int) -> list[int]:
        preds = program.pred[program.pred_ptr[node] : program.pred_ptr[node + 1]]
        return preds[~handled[preds]].tolist()  # type: ignore[no-any-return]

    node = int(np.flatnonzero(~handled)[0])
    seen: set[int] = set()
    while node not in seen:
        seen.add(node)
        node = unhandled(node)[0]
    start, came_from = node, {}
    queue = deque([start])
    while start not in came_from:
        node = queue.popleft()
        for other in unhandled(node):
            if other not in came_from:
                came_from[other] = node
                queue.append(other)
    cycle = [start]
    while came_from[cycle[-1]] != start:
        cycle.append(came_from[cycle[-1]])
    cycle.reverse()  # each node now waits for the next, the last for the first
    lowest = cycle.index(min(cycle))
    return cycle[lowest:] + cycle[:lowest]


def _waits(program: Program, nodes: list[int]) -> list[tuple[int, int, bool, bool]]:
    """Return (who, for whom, only until issued, through joins) along a cycle, joins left out if transfers remain."""
    transfers = [node for node in nodes if node < program.transfers] or nodes
    waits = []
    for i, node in enumerate(transfers):
        other = transfers[(i + 1) % len(transfers)]
        place = nodes.index(node)
        following = nodes[(place + 1) % len(nodes)]
        last = nodes[nodes.index(other) - 1]  # the node of the cycle that waits for `other` itself
        waits.append((node, other, _only_issued(program, last, other), following != other))
    return waits


def _only_issued(program: Program, node: int, other: int) -> bool:
    """Return whether ``node`` waits for ``other`` to be issued and not also for its end."""
    edges = slice(program.pred_ptr[node], program.pred_ptr[node + 1])
    return bool(np.all(program.pred_issued[edges][program.pred[edges] == other]))


def _name(program: Program, node: int) -> str:
    if node >= program.transfers:
        return f"join {node - program.transfers}"
    step, src, dst = program.step[node], program.src[node], program.dst[node]
    return f"step {step}, {src} -> {dst} (chunk {program.chunk[node]})"
