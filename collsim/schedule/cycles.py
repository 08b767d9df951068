"""Written edges can wait in a circle; dependencies from data cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import ProofError, ScheduleError
from collsim.schedule.dependencies import edge_columns, explicit_edges, infer
from collsim.schedule.explain import transfer_name
from collsim.schedule.model import Schedule, Transfers

__all__ = ["all_predecessors", "find_cycle", "refuse_cycles"]

Array = npt.NDArray[Any]


MOST_TRANSFERS = 20_000_000
"""Transfers of a schedule with written edges that are searched for cycles: some gigabytes of lists."""


def all_predecessors(schedule: Schedule, transfers: Transfers, *, ended: bool = False) -> tuple[Array, Array]:
    """Return the predecessors of each transfer, from data and from written edges, in CSR form.

    With ``ended`` only those that are waited for until they have ended.
    """
    n = len(transfers)
    ptr, pred = infer(schedule, transfers)
    if not schedule.edges:
        return ptr, pred
    later, earlier, issued, _ = explicit_edges(schedule)
    if ended:
        later, earlier = later[~issued], earlier[~issued]
    owner = np.concatenate([np.repeat(np.arange(n), np.diff(ptr)), later])
    pred = np.concatenate([pred, earlier])
    order = np.argsort(owner, kind="stable")
    ptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=n), out=ptr[1:])
    return ptr, pred[order]


def find_cycle(ptr: Array, pred: Array) -> list[int]:
    """Return numbers that wait for each other in a circle (each for the next), or an empty list."""
    n = len(ptr) - 1
    starts, preds = ptr.tolist(), pred.tolist()
    successors: list[list[int]] = [[] for _ in range(n)]
    waiting = [starts[i + 1] - starts[i] for i in range(n)]
    for i in range(n):
        for p in preds[starts[i] : starts[i + 1]]:
            successors[p].append(i)
    ready = [i for i in range(n) if not waiting[i]]
    done = 0
    while ready:
        i = ready.pop()
        done += 1
        for s in successors[i]:
            waiting[s] -= 1
            if not waiting[s]:
                ready.append(s)
    if done == n:
        return []
    # every transfer that is left waits for one that is left: walk until one comes again
    seen: dict[int, int] = {}
    path: list[int] = []
    i = next(i for i in range(n) if waiting[i] > 0)
    while i not in seen:
        seen[i] = len(path)
        path.append(i)
        i = next(p for p in preds[starts[i] : starts[i + 1]] if waiting[p] > 0)
    return path[seen[i] :]


def refuse_cycles(schedule: Schedule) -> None:
    """Raise if written edges make transfers wait for each other.

    Raises
    ------
    ProofError
        Naming the transfers of the circle.
    ScheduleError
        If there are more than `MOST_TRANSFERS` to search.
    """
    # an edge to an earlier iteration, row or phase runs along the program order, as data does
    e = edge_columns(schedule)
    if ((e["pred_phase"] < e["phase"]) | (e["distance"] > 0) | (e["pred_row"] < e["row"])).all():
        return
    if schedule.transfers > MOST_TRANSFERS:
        raise ScheduleError(
            f"edges: {schedule.transfers:,} transfers are too many to look for cycles of written edges, at most "
            f"{MOST_TRANSFERS:,} are searched; expected fewer transfers, or edges to earlier rows only"
        )
    t = schedule.expand()
    cycle = find_cycle(*all_predecessors(schedule, t))
    if cycle:
        names = [transfer_name(t, i) for i in cycle]
        shown = " waits for ".join([*names[:6], *(["..."] if len(names) > 6 else []), names[0]])
        raise ProofError(f"cycle: {shown}; remove one of the written edges", step=int(t.step[cycle[0]]))
