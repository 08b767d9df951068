"""The reference engine: a program executed event by event on SimPy, in integer picoseconds.

An event is the arrival of a node (a transfer or a join) at its next station. Events are handled in the order (time,
number of the node), so that every run, and every other engine that keeps to the rule, gives the same integers. A
station is one number, the time at which it is free; there is no SimPy process and no `Resource` a transfer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from collsim.engine.deadlock import deadlock
from collsim.engine.program import COPY, LINK, NETWORKS, Array, Program, Times
from collsim.errors import InputError, one_of

if TYPE_CHECKING:
    from simpy import Environment

__all__ = ["Dependencies", "agenda", "run_reference", "times"]

LATEST = 2**63 - 1
"""The latest time that is recorded: about 106 days in picoseconds."""


def run_reference(program: Program, network: str) -> Times:
    """Execute a program under one of the network models.

    Parameters
    ----------
    program
        What to run.
    network
        ``"alpha_beta"``, ``"store_and_forward"``, ``"cut_through"`` or ``"fluid"``.

    Returns
    -------
    Times
        Integer picoseconds, by transfer and by visit of a station.

    Raises
    ------
    InputError
        If there is no such network model, or if the program takes more than 106 days.
    DeadlockError
        If transfers wait for each other; the message names them.

    Notes
    -----
    With ``t`` the arrival, ``tail`` the time at which the whole message has arrived and ``free`` of the station::

        start = max(t, free);  free = start + busy;  end = max(free, tail);  tail' = end + latency

    The next arrival is at ``start + latency`` where `cut_through` goes from a link (or copy engine) to a link, and at
    ``tail'`` everywhere else: after the overhead of the sender, before the reducer, and in `store_and_forward`. Under
    `alpha_beta` every visit has a station of its own. `fluid` is `collsim.engine.fluid`.

    Examples
    --------
    A message of 5 ps on a link with a latency of 2 ps:

    >>> import numpy as np
    >>> from collsim.engine.program import LINK, Program
    >>> one, none = np.array([1]), np.array([], dtype=np.int64)
    >>> program = Program(
    ...     step=one, src=one, dst=one, channel=one, chunk=one, bytes=5 * one, reduce=one < 0, joins=0,
    ...     pred_ptr=np.array([0, 0]), pred=none, pred_issued=none, pred_lag=none,
    ...     visit_ptr=np.array([0, 1]), visit_station=0 * one, visit_busy=5 * one, visit_latency=2 * one,
    ...     station_kind=LINK * one, station_bandwidth=10**12 * one, station_index=0 * one,
    ... )
    >>> run_reference(program, "cut_through").end.tolist()
    [7]
    """
    one_of("network", network, NETWORKS)
    if network == "fluid":
        from collsim.engine.fluid import run_fluid

        return run_fluid(program)
    return _run_stations(program, network)


def _run_stations(program: Program, network: str) -> Times:
    """Execute a program in one of the models in which a station serves one transfer after the other."""
    first, last = program.visit_ptr[:-1].tolist(), program.visit_ptr[1:].tolist()
    if network == "alpha_beta":  # nothing is shared: a station for each visit
        station = list(range(len(program.visit_station)))
        free = [0] * len(station)
    else:
        station = program.visit_station.tolist()
        free = [0] * len(program.station_kind)
    busy, latency = program.visit_busy.tolist(), program.visit_latency.tolist()
    cuts = _cuts_through(program, network)
    visit_start, visit_end = [0] * len(station), [0] * len(station)

    dependencies = Dependencies(program)
    issued, ended = dependencies.issued, dependencies.ended
    ready = dependencies.ready
    at = first.copy()  # the next visit of each node
    begin = [0] * program.nodes
    tail = [0] * program.nodes  # when the whole message is there
    handled = [False] * program.nodes

    def arrive(event: Any) -> None:
        node = event.node
        visit = at[node]
        if visit == last[node]:  # a join, or a transfer that crosses nothing
            begin[node] = tail[node] = ready[node]
            for successor in issued(node, ready[node]):
                put(successor, ready[successor])
        else:
            start = max(event.time, free[station[visit]])
            end = start + busy[visit]
            free[station[visit]] = end
            if visit == first[node]:
                begin[node] = start
                for successor in issued(node, end):
                    put(successor, ready[successor])
            end = max(end, tail[node])
            visit_start[visit], visit_end[visit] = start, end
            tail[node] = end + latency[visit]
            at[node] = visit = visit + 1
            if visit < last[node]:
                put(node, start + latency[visit - 1] if cuts[visit - 1] else tail[node])
                return
        handled[node] = True
        for successor in ended(node, tail[node]):
            put(successor, ready[successor])

    env, put = agenda(arrive)
    for node in dependencies.free:
        put(node, 0)
    env.run()
    if not all(handled):
        raise deadlock(program, np.array(handled))
    return times(program, ready, begin, tail, visit_start, visit_end)


def _cuts_through(program: Program, network: str) -> list[bool]:
    """Return for each visit whether the head goes on to the next station before the tail has arrived."""
    carries = np.isin(program.station_kind[program.visit_station], (COPY, LINK))
    cuts = np.zeros(len(carries), dtype=np.bool_)
    if network != "store_and_forward":
        cuts[:-1] = carries[:-1] & carries[1:]
    return cuts.tolist()  # true across the border of two nodes, where nobody asks


def times(
    program: Program, ready: list[int], start: list[int], end: list[int], visit_start: list[int], visit_end: list[int]
) -> Times:
    """Pack Python integers into a `Times`, refusing what does not fit in 64 bits."""
    if max(end, default=0) > LATEST:
        raise InputError(
            f"simulated time: expected at most 2**63 - 1 ps (106 days), got {max(end)} ps; use a smaller size"
        )
    by_node = (np.array(column[: program.transfers], dtype=np.int64) for column in (ready, start, end))
    by_visit = (np.array(column, dtype=np.int64) for column in (visit_start, visit_end))
    return Times(*by_node, *by_visit)


def agenda(arrive: Callable[[Any], None]) -> tuple[Environment, Callable[[int, int], None]]:
    """Return an environment and ``put(node, time)``, after which ``arrive`` gets an event with both.

    SimPy sorts by time and priority, so a priority that is the number of the node is all that the rule of order needs.
    """
    from simpy import Environment, Event
    from simpy.events import EventPriority

    class Arrival(Event):
        """Triggered from the start, like a `Timeout`, with its number as priority."""

        _ok = True
        _value = None

        def __init__(self, node: int, time: int) -> None:
            self.callbacks = callbacks
            self.node = node
            self.time = time

    def put(node: int, time: int) -> None:
        # 0 and 1 are SimPy's own priorities
        schedule(Arrival(node, time), EventPriority(2 + node), time - env.now)

    env = Environment()
    schedule = env.schedule
    callbacks = [arrive]
    return env, put


class Dependencies:
    """The edges of a program, counted down while predecessors are handled.

    Attributes
    ----------
    free
        Nodes without predecessors.
    ready
        For each node the latest time that its predecessors have asked for so far, in picoseconds.
    """

    def __init__(self, program: Program) -> None:
        count = np.diff(program.pred_ptr)
        successor = np.repeat(np.arange(program.nodes), count)
        at_issue = program.pred_issued.astype(np.bool_)
        self.free: list[int] = np.flatnonzero(count == 0).tolist()
        self.ready = [0] * program.nodes
        self._waiting: list[int] = count.tolist()
        self._at_end = _by_predecessor(program, successor, ~at_issue)
        self._at_issue = _by_predecessor(program, successor, at_issue)

    def ended(self, node: int, time: int) -> list[int]:
        """Return the nodes that waited for nothing but the end of ``node``, now known."""
        return self._release(self._at_end, node, time)

    def issued(self, node: int, time: int) -> list[int]:
        """Return the nodes that waited for nothing but the issue of ``node``, now known."""
        return self._release(self._at_issue, node, time)

    def _release(self, edges: tuple[list[int], list[int], list[int]], node: int, time: int) -> list[int]:
        pointer, successors, lags = edges
        ready, waiting = self.ready, self._waiting
        released = []
        for i in range(pointer[node], pointer[node + 1]):
            successor = successors[i]
            if time + lags[i] > ready[successor]:
                ready[successor] = time + lags[i]
            waiting[successor] -= 1
            if not waiting[successor]:
                released.append(successor)
        return released


def _by_predecessor(program: Program, successor: Array, chosen: Array) -> tuple[list[int], list[int], list[int]]:
    """Return the chosen edges in CSR form by predecessor: pointer, successors, lags."""
    pred = program.pred[chosen]
    order = np.argsort(pred, kind="stable")
    pointer = np.searchsorted(pred[order], np.arange(program.nodes + 1))
    return pointer.tolist(), successor[chosen][order].tolist(), program.pred_lag[chosen][order].tolist()
