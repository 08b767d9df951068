"""Which operation a table of nccl-tests is of, and on how many ranks, where the log does not say so."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from collsim.collective import BLOCKED, ROOTED, Collective

__all__ = ["ELEMENTS", "PROGRAM", "PROGRAMS", "operation_of", "possible_operations", "ranks_by_factor"]

ELEMENTS = {
    "int8": 1, "uint8": 1, "char": 1, "int32": 4, "uint32": 4, "int": 4, "int64": 8, "uint64": 8, "half": 2, "float": 4,
    "double": 8, "bfloat16": 2, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1,
}  # fmt: skip
"""Bytes of the types, as nccl-tests and rccl-tests of all versions spell them."""

PROGRAM = re.compile(
    r"(?<![A-Za-z0-9_])((?:all_reduce|all_gather|reduce_scatter|alltoallv?|broadcast|reduce|gather|scatter|sendrecv|"
    r"hypercube|all_reduce_bias)_perf(?:_mpi)?)(?![A-Za-z0-9_])"
)
"""The programs, as command lines name them."""

PROGRAMS = {
    "all_reduce": "all_reduce_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_gather": "all_gather_perf",
    "broadcast": "broadcast_perf",
    "reduce": "reduce_perf",
    "all_to_all": "alltoall_perf",
    "gather": "gather_perf",
    "scatter": "scatter_perf",
    "send_recv": "sendrecv_perf",
}
"""The programs of nccl-tests by operation."""

_OURS = {program.removesuffix("_perf").replace("_", ""): ours for ours, program in PROGRAMS.items()}
_PRINT_A_REDUCTION = ("all_reduce", "reduce_scatter", "reduce", "send_recv")
"""Those whose rows name a reduction (sendrecv_perf prints one though it reduces nothing)."""


def operation_of(program: str) -> str | None:
    """Return our name of what a program measures, or None where we have no such operation.

    Examples
    --------
    >>> operation_of("all_reduce_perf"), operation_of("AlltoAll"), operation_of("./build/sendrecv_perf_mpi")
    ('all_reduce', 'all_to_all', 'send_recv')
    >>> operation_of("hypercube_perf") is operation_of("alltoallv_perf") is None
    True
    """
    name = program.rsplit("/", 1)[-1].lower().removesuffix("_mpi").removesuffix("_perf")
    return _OURS.get(name.replace("_", ""))


def possible_operations(
    *, reduction: bool | None, root: bool | None, blocks: bool | None, ranks: int | None, factor: tuple[float, float]
) -> list[str]:
    """Return the operations that rows could be of.

    Parameters
    ----------
    reduction, root
        Whether rows name a reduction (another than ``none``), and a root; None if there is no such column.
    blocks
        Whether the count is that of a block; None if it is not known, or for one rank.
    ranks
        Number of ranks, where it is known.
    factor
        Bounds of busbw over algbw; (0, infinity) where nothing is known.

    Examples
    --------
    >>> possible_operations(reduction=True, root=False, blocks=None, ranks=8, factor=(1.74, 1.76))
    ['all_reduce']
    >>> possible_operations(reduction=False, root=False, blocks=True, ranks=8, factor=(0.87, 0.88))
    ['all_gather', 'all_to_all']
    """

    def fits(operation: str) -> bool:
        if ranks is not None:
            return factor[0] <= Collective(operation, ranks).busbw_factor <= factor[1]
        if operation == "all_reduce":
            return factor[1] >= 1 and factor[0] < 2
        return factor[0] < 1 if operation in BLOCKED else factor[0] <= 1 <= factor[1]

    return [
        operation
        for operation in _OURS.values()
        if reduction in (None, operation in _PRINT_A_REDUCTION)
        and root in (None, operation in ROOTED)
        and (blocks is None or (operation in BLOCKED) == blocks)  # their count is that of a block
        and fits(operation)
    ]


def ranks_by_factor(operation: str | None, factor: tuple[float, float]) -> int | None:
    """Return the number of ranks that busbw over algbw tells, where only one fits.

    Examples
    --------
    >>> ranks_by_factor("all_reduce", (1.7499, 1.7501)), ranks_by_factor("all_gather", (0.874, 0.876))
    (8, 8)
    >>> ranks_by_factor("broadcast", (0.99, 1.01)) is ranks_by_factor("all_reduce", (1.7, 1.9)) is None
    True
    """

    def candidates(low: float, high: float) -> Iterator[int]:
        if 0 < low <= high < 1:  # (n - 1) / n
            first, last = math.ceil(1 / (1 - low) - 1e-9), math.floor(1 / (1 - high) + 1e-9)
            yield from range(max(first, 1), min(last, first + 1) + 1)

    if operation == "all_reduce":
        found = list(candidates(factor[0] / 2, factor[1] / 2))
    else:
        found = list(candidates(*factor)) if operation in BLOCKED else []
    return found[0] if len(found) == 1 else None
