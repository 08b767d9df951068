"""`simulate` times a schedule; `run` picks the schedule by name."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from collsim.engine.fit import schedule_for
from collsim.engine.loops import Loops
from collsim.engine.lowering.lower import lower
from collsim.engine.outcome import Outcome, Pulse, TooLongError, no_pulse
from collsim.engine.program import NETWORKS, Program
from collsim.engine.result import Result
from collsim.errors import InputError, one_of
from collsim.schedule import Schedule
from collsim.schedule import check as check_room
from collsim.topology import Topology
from collsim.units import Quantity, parse_size

__all__ = [
    "DTYPES", "ENGINES", "MAX_TRANSFERS", "engine_for", "execute", "refuse_large", "run", "simulate",
]  # fmt: skip

DTYPES = {
    "int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "half": 2, "float": 4, "double": 8,
    "bfloat16": 2,
}  # fmt: skip
"""Element types as nccl-tests spells them, and their bytes."""

ENGINES = ("auto", "reference", "compiled")
FEW_TRANSFERS = 4_000
"""Up to so many, the reference engine has finished before the compiled one is loaded."""
MAX_TRANSFERS = 4_000_000
"""The reference engine holds every transfer in memory."""
KILOBYTES = 2.6
"""Measured a transfer over a switch (benchmarks/reference.py)."""
MOST_RECORDS = 1_000_000
"""Above so many transfers no records are kept unless they are asked for."""


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
    records: bool | None = None,
    progress: Pulse = no_pulse,
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
        ``"reference"`` (event by event in Python), ``"compiled"`` (the same integers, much faster) or ``"auto"``, which
        takes the compiled one above a few thousand transfers; the result says which it was.
    check
        Prove the schedule first.
    synchronous
        Put a barrier between steps, as textbook formulas assume.
    zero_copy
        Let a write wait for every earlier read of its chunk (no receive buffers).
    records
        Keep the times of each transfer: for plots, tables and the critical path. By default up to a million transfers.
    progress
        Called about ten times a second with the number of transfers that are done and of all.

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
    if not isinstance(schedule, Schedule):
        raise InputError(f"schedule: expected a Schedule, got {type(schedule).__name__}")
    if not isinstance(topology, Topology):
        raise InputError(f"topology: expected a Topology (see load_topology), got {type(topology).__name__}")
    one_of("network", network, NETWORKS)
    one_of("dtype", dtype, DTYPES)
    if records not in (None, True, False):
        raise InputError(f"records: expected True, False or None, got {type(records).__name__}")
    if not callable(progress):
        raise InputError(f"progress: expected a function of two numbers, got {type(progress).__name__}")
    size = parse_size(size)
    engine = engine_for(schedule, engine)
    refuse_large(schedule, engine)
    proof = check_room.check(schedule) if check else None
    if records is None:
        records = schedule.transfers <= MOST_RECORDS
    options: dict[str, Any] = {
        "element_size": DTYPES[dtype],
        "synchronous": synchronous,
        "zero_copy": zero_copy,
    }
    lowered: Program | Loops
    if engine == "compiled":
        from collsim.engine.lowering.roll import roll

        lowered = roll(schedule, topology, size, **options)
    else:
        lowered = lower(schedule, topology, size, **options)
    lowered, engine, outcome = execute(schedule, lowered, network, records=records, progress=progress)
    return Result(
        schedule, topology, size, DTYPES[dtype], network, engine, synchronous, zero_copy, lowered, outcome, proof
    )


def execute(
    schedule: Schedule, lowered: Program | Loops, network: str, *, records: bool, progress: Pulse = no_pulse
) -> tuple[Program | Loops, str, Outcome]:
    """Run a lowered schedule in the engine of its form.

    Returns
    -------
    Program or Loops, str, Outcome
        The program that was run, the engine that ran it, and what came out.
    """
    if isinstance(lowered, Loops):
        from collsim.engine.compiled.run import run_compiled

        try:
            return lowered, "compiled", run_compiled(lowered, network, records=records, pulse=progress)
        except TooLongError:  # only the reference counts beyond 64 bits, and says by how much it is too long
            _refuse_long(schedule)
            lowered = lowered.flat()
    return lowered, "reference", _run_reference(lowered, network)


def engine_for(schedule: Schedule, engine: str) -> str:
    """Return the engine that runs a schedule: the one that is named, or for ``"auto"`` the one that suits its size.

    Raises
    ------
    InputError
        If there is no such engine, or the compiled one is asked for without Numba.
    """
    one_of("engine", engine, ENGINES)
    if engine == "auto" and schedule.transfers <= FEW_TRANSFERS:
        return "reference"
    if engine != "reference" and find_spec("numba") is None:
        if engine == "compiled":
            raise InputError("engine: 'compiled' needs Numba: pip install numba, or use engine='reference'")
        return "reference"
    return "reference" if engine == "reference" else "compiled"


def _run_reference(program: Program, network: str) -> Outcome:
    from collsim.engine.reference import run_reference
    from collsim.engine.traffic import longest_waits

    times = run_reference(program, network)
    return Outcome(times.makespan, longest_waits(program, times, network), times, shortcut="")


def _refuse_long(schedule: Schedule) -> None:
    if schedule.transfers > MAX_TRANSFERS:
        raise InputError(
            "simulated time: expected less than 2**62 ps (53 days) for more than "
            f"{MAX_TRANSFERS:,} transfers; use a smaller size"
        )


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
    records: bool | None = None,
    progress: Pulse = no_pulse,
    **parameters: Any,
) -> Result:
    """Simulate a collective by the names of its operation and algorithm.

    Parameters
    ----------
    operation, algorithm
        See `collsim.algorithms.available`.
    topology, size, dtype, network, engine, check, synchronous, zero_copy, records, progress
        As in `simulate`.
    root
        For operations that have one.
    parameters
        Of the algorithm, for instance ``channels=2``. What it takes from the topology (``order``, ``dims``, ``nodes``,
        ``routes``, ``bandwidths``) is filled in where it is not given; see `collsim.engine.fit`.

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
        zero_copy=zero_copy, records=records, progress=progress,
    )  # fmt: skip


def refuse_large(schedule: Schedule, engine: str) -> None:
    """Refuse what the reference engine could not hold in memory, before time is spent on a proof."""
    if engine == "reference" and schedule.transfers > MAX_TRANSFERS:
        raise InputError(
            f"schedule: {schedule.transfers:,} transfers would need about "
            f"{schedule.transfers * KILOBYTES / 1e6:,.0f} GB in the reference engine; expected at most "
            f"{MAX_TRANSFERS:,}; use the compiled engine (pip install numba), or fewer ranks, slices or channels"
        )
