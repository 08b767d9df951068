"""The compiled engine: the same integers as the reference, by the quickest way that is exact.

1. The *sweep* runs the program in program order without an event queue, and checks that at every station no transfer
   arrives earlier than the one before; then FIFO order is program order. Inside it the *jump* skips whole periods.
2. Where an arrival is out of order, or an edge leads against the numbering, the *queue* handles event by event.
3. `fluid` has a queue of its own, of predicted ends.
"""

from __future__ import annotations

from collsim.engine.loops import Loops
from collsim.engine.memory import refuse_beyond_memory
from collsim.engine.outcome import SINGLE_TIME, Outcome, Pulse, TooLongError, no_pulse

__all__ = ["run_compiled"]

QUEUE_BYTES = 48
FLOW_BYTES = 150
"""A node, in the queue and in the queue of flows: its state, and the successors by predecessor."""
RECORD_BYTES = 24
VISIT_BYTES = 16


def run_compiled(
    loops: Loops,
    network: str,
    *,
    records: bool = False,
    sweep: bool = True,
    jump: bool = True,
    pulse: Pulse = no_pulse,
) -> Outcome:
    """Execute a program under one of the network models.

    Parameters
    ----------
    loops
        What to run.
    network
        ``"alpha_beta"``, ``"store_and_forward"``, ``"cut_through"`` or ``"fluid"``.
    records
        Whether to keep the times of each transfer and visit.
    sweep, jump
        Whether the short cuts may be taken; the integers are the same with and without.
    pulse
        Called about ten times a second with the transfers done and all.

    Raises
    ------
    TooLongError
        If a time comes near the end of 64 bits.
    DeadlockError
        If transfers wait for each other.
    InputError
        If there is not enough memory.
    """
    longest = max(int(column.max(initial=0)) for column in (loops.busy, loops.route_latency, loops.dep_lag))
    if max(longest, int(loops.edge_lag.max(initial=0))) >= SINGLE_TIME:
        raise TooLongError
    needed = loops.transfers * RECORD_BYTES + loops.visits() * VISIT_BYTES if records else 0
    refuse_beyond_memory(
        needed, f"the records of {loops.transfers:,} transfers", "expected a smaller run, or no records"
    )
    if network == "fluid":
        from collsim.engine.compiled.flow import run_flow

        _refuse_large(loops, FLOW_BYTES, needed)
        return run_flow(loops, records=records, pulse=pulse)
    if sweep:
        from collsim.engine.compiled.sweep import run_sweep

        outcome = run_sweep(loops, network, records=records, jump=jump, pulse=pulse)
        if outcome is not None:
            return outcome
    from collsim.engine.compiled.queue import run_queue

    _refuse_large(loops, QUEUE_BYTES, needed)
    return run_queue(loops, network, records=records, pulse=pulse)


def _refuse_large(loops: Loops, each: int, records: int) -> None:
    """Refuse what the queue could not hold: it has a state for every transfer."""
    refuse_beyond_memory(
        loops.nodes * each + records,
        f"{loops.nodes:,} transfers, which have to be run event by event,",
        "expected fewer ranks, slices or channels, or a machine with equal links, where no queue is needed",
    )
