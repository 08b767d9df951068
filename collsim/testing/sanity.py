"""What every run must satisfy, whatever the algorithm."""

from __future__ import annotations

import numpy as np

from collsim.collective import Collective
from collsim.engine.result import Result
from collsim.errors import ProofError

__all__ = ["least_share", "refuse_apart", "refuse_too_fast", "refuse_too_little"]


def refuse_too_fast(result: Result) -> None:
    """Refuse a run that took less than the lower bound."""
    if result.time < float(result.bound) - 1e-12 * (1 + result.schedule.steps):  # a picosecond of rounding a step
        raise ProofError(
            f"takes {result.time * 1e6:.6f} us on {result.topology.name!r}, below the bound of "
            f"{result.bound * 1e6:.6f} us: {result.bound.reason}"
        )


def refuse_apart(one: Result, other: Result, otherwise: str) -> None:
    """Refuse two runs that differ in any record."""
    if any((one.records[name] != other.records[name]).any() for name in one.records):
        raise ProofError(otherwise)


def refuse_too_little(result: Result) -> None:
    """Refuse a run in which a rank sends or receives fewer bytes than the operation needs."""
    c, program, size = result.schedule.collective, result.program, result.size
    if c.ranks == 1 or c.operation == "barrier":
        return
    received = np.zeros(c.ranks, dtype=np.int64)
    remote = (program.src != program.dst) & (program.dst < c.ranks)
    np.add.at(received, program.dst[remote], program.bytes[remote])
    for rank in range(c.ranks):
        out, into = _least(c, rank, size)
        for verb, got, least in (("sends", result.bytes_sent_per_rank[rank], out), ("receives", received[rank], into)):
            if got < least:
                raise ProofError(
                    f"rank {rank} {verb} {got:,} bytes of {size:,}; no algorithm can do with less than {least:,}",
                    rank=rank,
                )


def least_share(c: Collective) -> float:
    """Return what the busiest rank must send over the size, whatever the algorithm (0 where nothing must be sent)."""
    n = c.ranks
    if n == 1 or c.operation == "barrier":
        return 0.0
    return {"all_reduce": 2 * (n - 1) / n, "broadcast": 1.0, "reduce": 1.0, "send_recv": 1.0, "gather": 1 / n}.get(
        c.operation, (n - 1) / n
    )


def _least(c: Collective, rank: int, size: int) -> tuple[int, int]:
    """Least bytes that a rank must send and receive, whatever the algorithm (sizes that the ranks divide)."""
    block = size // c.ranks
    rest = size - block - size % c.ranks
    at_root = rank == c.root
    return {
        "all_reduce": (size, size),
        "reduce_scatter": (rest, block),
        "all_gather": (block, rest),
        "broadcast": (size, 0) if at_root else (0, size),
        "reduce": (0, size) if at_root else (size, 0),
        "all_to_all": (rest, rest),
        "gather": (0, rest) if at_root else (block, 0),
        "scatter": (rest, 0) if at_root else (0, block),
        "send_recv": (size, size),
    }[c.operation]
