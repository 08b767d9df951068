"""Two writes of one chunk must be ordered by dependencies, unless both reduce."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import ProofError
from collsim.schedule.cycles import all_predecessors
from collsim.schedule.dependencies import locations
from collsim.schedule.explain import end_name, transfer_name
from collsim.schedule.model import Schedule

__all__ = ["MAX_TRANSFERS", "refuse_unordered"]

Array = npt.NDArray[Any]

MAX_TRANSFERS = 2_000_000
"""Larger schedules are not searched for an order of doubtful writes; the proof says so."""
MAX_VISITS = 20_000_000
"""Transfers looked at in all searches together."""


def refuse_unordered(schedule: Schedule, doubtful: set[int]) -> tuple[str, ...]:
    """Search the dependency graph for the order of writes of chunks that are in doubt.

    Returns
    -------
    tuple of str
        What could not be covered.

    Raises
    ------
    ProofError
        Naming two writes that nothing orders.
    """
    if not doubtful:
        return ()
    if schedule.transfers > MAX_TRANSFERS:
        return (f"the order of writes of {len(doubtful)} chunks was not checked (over {MAX_TRANSFERS:,} transfers)",)
    t = schedule.expand()
    ptr, pred = all_predecessors(schedule, t, ended=True)
    graph = _Graph(ptr, pred, forward_only=not schedule.edges)
    owner = np.repeat(np.arange(len(t)), np.diff(t.ptr))
    is_doubtful = np.isin(t.dst_chunks, np.fromiter(doubtful, dtype=np.int64))
    place = locations(schedule, t.dst[owner], t.dst_buffer[owner], t.dst_chunks)
    copies: dict[int, int] = {}
    reductions: dict[int, list[int]] = {}
    reduce = t.reduce.tolist()
    entries = np.flatnonzero(is_doubtful)
    for transfer, where, chunk in zip(
        owner[entries].tolist(), place[entries].tolist(), t.dst_chunks[entries].tolist(), strict=True
    ):
        before = [copies[where]] if where in copies else []
        if reduce[transfer]:
            reductions.setdefault(where, []).append(transfer)
        else:
            before += reductions.pop(where, [])
            copies[where] = transfer
        for write in before:
            ordered = graph.leads_to(write, transfer)
            if ordered is None:
                return (f"the order of writes of {len(doubtful)} chunks was checked in part only",)
            if not ordered:
                end, one, other = int(t.dst[transfer]), transfer_name(t, write), transfer_name(t, transfer)
                raise ProofError(
                    f"{end_name(schedule, end)}, chunk {chunk}: nothing orders two writes: {one} and {other}; "
                    "let the second one depend on the first",
                    rank=end,
                    chunk=chunk,
                    step=int(t.step[transfer]),
                )
    return ()


class _Graph:
    """Searches backwards along predecessors."""

    def __init__(self, ptr: Array, pred: Array, *, forward_only: bool) -> None:
        self.ptr, self.pred = ptr.tolist(), pred.tolist()
        self.forward_only = forward_only
        self.visits = 0

    def leads_to(self, first: int, second: int) -> bool | None:
        """Whether the second waits for the first (None if the budget is spent)."""
        seen = {second}
        todo = [second]
        while todo:
            i = todo.pop()
            self.visits += 1
            if self.visits > MAX_VISITS:
                return None
            for p in self.pred[self.ptr[i] : self.ptr[i + 1]]:
                if p == first:
                    return True
                # without written edges predecessors come earlier in program order
                if p not in seen and (p > first or not self.forward_only):
                    seen.add(p)
                    todo.append(p)
        return False
