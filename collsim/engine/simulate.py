"""`simulate` times a schedule; `run` picks the schedule by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from collsim import algorithms
from collsim.engine.lower import lower
from collsim.engine.program import NETWORKS
from collsim.engine.result import Result
from collsim.errors import InputError, one_of
from collsim.schedule import Schedule
from collsim.schedule import check as check_room
from collsim.topology import Topology
from collsim.units import Quantity, parse_size

__all__ = ["DTYPES", "ENGINES", "MAX_TRANSFERS", "refuse_large", "run", "schedule_for", "simulate", "with_ring_order"]

DTYPES = {
    "int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "half": 2, "float": 4, "double": 8,
    "bfloat16": 2,
}  # fmt: skip
"""Element types as nccl-tests spells them, and their bytes."""

ENGINES = ("auto", "reference")
MAX_TRANSFERS = 4_000_000
"""The reference engine holds every transfer in memory."""
KILOBYTES = 2.6
"""Measured a transfer over a switch (benchmarks/reference.py)."""


def simulate(
    schedule: Schedule,
    topology: Topology,
    size: Quantity,
    *,
    dtype: str = "uint8",
    network: str = "cut_through",
    engine: str = "auto",
    check: bool = True,
    synchronous: bool = False,
    zero_copy: bool = False,
) -> Result:
    """Execute a schedule on a topology, event by event.

    Parameters
    ----------
    schedule
        What to run; it must have as many ranks as the topology.
    topology
        The machine.
    size
        Message size: bytes, or a text such as ``"1GiB"``. For all_gather, reduce_scatter and the like it is the whole
        buffer, ranks times the block, as in nccl-tests.
    dtype
        Type of the elements between which chunks are cut, one of `DTYPES`; bytes by default.
    network
        ``"alpha_beta"`` (links are not shared), ``"store_and_forward"``, ``"cut_through"`` or ``"fluid"``.
    engine
        ``"auto"`` or ``"reference"``.
    check
        Prove the schedule first.
    synchronous
        Put a barrier between steps, as textbook formulas assume.
    zero_copy
        Let a write wait for every earlier read of its chunk (no receive buffers).

    Raises
    ------
    ProofError
        If the schedule does not implement its collective.
    DeadlockError
        If written edges keep it from finishing.
    InputError, ScheduleError, TopologyError
        If the parts do not fit each other.

    Examples
    --------
    >>> import collsim
    >>> topo = collsim.topology.ring(8, bandwidth="50GB/s", latency="1us")
    >>> result = simulate(collsim.algorithms.ring_all_reduce(8), topo, 8_000_000)
    >>> round(result.time * 1e6, 6)  # 2 (N-1) (1 us + 1 MB / 50 GB/s)
    294.0
    """
    from collsim.engine.reference import run_reference

    if not isinstance(schedule, Schedule):
        raise InputError(f"schedule: expected a Schedule, got {type(schedule).__name__}")
    if not isinstance(topology, Topology):
        raise InputError(f"topology: expected a Topology (see load_topology), got {type(topology).__name__}")
    one_of("network", network, NETWORKS)
    one_of("engine", engine, ENGINES)
    one_of("dtype", dtype, DTYPES)
    size = parse_size(size)
    refuse_large(schedule)
    proof = check_room.check(schedule) if check else None
    program = lower(schedule, topology, size, element_size=DTYPES[dtype], synchronous=synchronous, zero_copy=zero_copy)
    times = run_reference(program, network)
    return Result(
        schedule, topology, size, DTYPES[dtype], network, "reference", synchronous, program, times, proof
    )  # fmt: skip


def run(
    operation: str,
    topology: Topology,
    size: Quantity,
    algorithm: str = "ring",
    *,
    root: int = 0,
    dtype: str = "uint8",
    network: str = "cut_through",
    engine: str = "auto",
    check: bool = True,
    synchronous: bool = False,
    zero_copy: bool = False,
    **parameters: Any,
) -> Result:
    """Simulate a collective by the names of its operation and algorithm.

    Parameters
    ----------
    operation, algorithm
        See `collsim.algorithms.available`.
    topology, size, dtype, network, engine, check, synchronous, zero_copy
        As in `simulate`.
    root
        For operations that have one.
    parameters
        Of the algorithm, for instance ``channels=2``. An algorithm that takes an ``order`` of ranks gets the topology's
        ring order unless one is given.

    Examples
    --------
    >>> import collsim
    >>> topo = collsim.topology.switch(8, bandwidth="450GB/s", latency="350ns")
    >>> result = run("broadcast", topo, "1GiB", algorithm="double_binary_tree", root=3)
    >>> result.efficiency > 0.9
    True
    """
    if not isinstance(topology, Topology):
        raise InputError(f"topology: expected a Topology (see load_topology), got {type(topology).__name__}")
    schedule = schedule_for(operation, algorithm, topology, root, parameters)
    return simulate(
        schedule, topology, size, dtype=dtype, network=network, engine=engine, check=check, synchronous=synchronous,
        zero_copy=zero_copy,
    )  # fmt: skip


def refuse_large(schedule: Schedule) -> None:
    """Refuse what the engine could not hold in memory, before time is spent on a proof."""
    if schedule.transfers > MAX_TRANSFERS:
        raise InputError(
            f"schedule: {schedule.transfers:,} transfers would need about "
            f"{schedule.transfers * KILOBYTES / 1e6:,.0f} GB in the reference engine; expected at most "
            f"{MAX_TRANSFERS:,}; use fewer ranks, slices or channels"
        )


def schedule_for(operation: str, algorithm: str, topology: Topology, root: int, parameters: dict[str, Any]) -> Schedule:
    """Build a schedule for a topology: one that takes an order of ranks gets the topology's unless one is given."""
    if not isinstance(algorithm, str):
        raise InputError(
            f"algorithm: expected the name of an algorithm, got {type(algorithm).__name__}; put @algorithm(...) above "
            "your function, or build the schedule and call simulate"
        )
    parameters = with_ring_order(algorithms.find(operation, algorithm), topology, parameters)
    return algorithms.build(operation, algorithm, topology.n_ranks, root, **parameters)


def with_ring_order(
    function: Callable[..., Schedule], topology: Topology, parameters: dict[str, Any]
) -> dict[str, Any]:
    """Add the topology's ring order to the parameters of a function that takes an order and was given none."""
    if parameters.get("order") is not None or "order" not in inspect.signature(function).parameters:
        return parameters
    order = topology.ring_order()
    return parameters if order == tuple(range(topology.n_ranks)) else {**parameters, "order": list(order)}
