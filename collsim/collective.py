"""What every rank holds before and after: the ten operations, their sizes and their busbw factors.

Sizes follow nccl-tests (its ``doc/PERFORMANCE.md``): for all_gather, reduce_scatter, all_to_all, gather and scatter the
size is the whole buffer, ranks times the block; for the others it is the vector of one rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError, one_of

__all__ = ["OPERATIONS", "Collective"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

OPERATIONS = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "reduce",
    "all_to_all",
    "gather",
    "scatter",
    "send_recv",
    "barrier",
)
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
REDUCING = frozenset({"all_reduce", "reduce_scatter", "reduce"})
BLOCKED = frozenset({"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"})


@dataclass(frozen=True)
class Collective:
    """One collective operation on a number of ranks.

    Parameters
    ----------
    operation
        One of `OPERATIONS`.
    ranks
        Number of ranks, at least 1.
    root
        The root of broadcast, reduce, gather and scatter; 0 for the others.

    Raises
    ------
    InputError
        If the operation is unknown, there is no rank, or the root is not a rank.

    Examples
    --------
    >>> Collective("all_reduce", 8).busbw_factor
    1.75
    >>> Collective("all_gather", 8).busbw_factor
    0.875
    >>> Collective("broadcast", 8, root=3).is_rooted
    True
    """

    operation: str
    ranks: int
    root: int = 0

    def __post_init__(self) -> None:
        one_of("operation", self.operation, OPERATIONS)
        if not isinstance(self.ranks, (int, np.integer)) or isinstance(self.ranks, bool) or self.ranks < 1:
            raise InputError(f"ranks: expected a whole number of at least 1, got {self.ranks!r}")
        if not isinstance(self.root, (int, np.integer)) or isinstance(self.root, bool):
            raise InputError(f"root: expected a rank (a whole number), got {self.root!r}")
        # NumPy's integers wrap round (and know no bit_length): only Python's go on from here
        object.__setattr__(self, "ranks", int(self.ranks))
        object.__setattr__(self, "root", int(self.root))
        if not 0 <= self.root < self.ranks:
            raise InputError(f"root: expected a rank from 0 to {self.ranks - 1}, got {self.root}")
        if self.root and not self.is_rooted:
            raise InputError(f"root: {self.operation} has no root, got {self.root}; leave it out")

    @property
    def is_rooted(self) -> bool:
        """Whether the operation has a root."""
        return self.operation in ROOTED

    @property
    def reduces(self) -> bool:
        """Whether the operation adds up the data of several ranks."""
        return self.operation in REDUCING

    @property
    def is_blocked(self) -> bool:
        """Whether the size is that of a buffer of one block a rank."""
        return self.operation in BLOCKED

    @property
    def busbw_factor(self) -> float:
        """Bus bandwidth over algorithm bandwidth, as nccl-tests defines it (0 for one rank where it is (N-1)/N)."""
        if self.operation == "all_reduce":
            return 2 * (self.ranks - 1) / self.ranks
        if self.is_blocked:
            return (self.ranks - 1) / self.ranks
        return 1.0

    def check_chunks(self, chunks: int) -> None:
        """Refuse a number of chunks that cannot be dealt out to the ranks in blocks."""
        if chunks < 1:
            raise InputError(f"chunks: expected at least 1, got {chunks}")
        if self.is_blocked and chunks % self.ranks:
            raise InputError(
                f"chunks: expected a multiple of the {self.ranks} ranks for {self.operation}, got {chunks}"
            )

    def chunk_elements(self, elements: int, chunks: int) -> IntArray:
        """Elements of each place (chunk position) of a buffer of ``elements``.

        Place i has ``n // C + (i < n % C)`` elements. Blocks of all_to_all change places, so there every block gets
        ``n // ranks`` elements, cut alike (nccl-tests rounds down in the same way).

        Examples
        --------
        >>> Collective("all_reduce", 4).chunk_elements(10, 4).tolist()
        [3, 3, 2, 2]
        >>> Collective("all_to_all", 2).chunk_elements(7, 4).tolist()
        [2, 1, 2, 1]
        """
        if self.operation == "all_to_all":
            block, cuts = elements // self.ranks, chunks // self.ranks
            one = block // cuts + (np.arange(cuts, dtype=np.int64) < block % cuts)
            return np.tile(one, self.ranks)
        if self.operation == "barrier":
            return np.zeros(chunks, dtype=np.int64)
        sizes: IntArray = elements // chunks + (np.arange(chunks, dtype=np.int64) < elements % chunks)
        return sizes

    def block_of(self, place: Any, chunks: int) -> Any:
        """Rank whose block holds a place (only for blocked operations)."""
        return place // (chunks // self.ranks)

    def provides(self, rank: IntArray, place: IntArray, chunks: int) -> BoolArray:
        """Whether a rank holds data of its own at a place of its input before the start."""
        op = self.operation
        if op in ("broadcast", "scatter"):
            return np.asarray(rank == self.root)
        if op in ("all_gather", "gather"):
            return np.asarray(self.block_of(place, chunks) == rank)
        return np.ones(np.broadcast(rank, place).shape, dtype=bool)

    def requires(self, rank: IntArray, place: IntArray, chunks: int) -> BoolArray:
        """Whether a rank must hold a result at a place of its output at the end."""
        op = self.operation
        if op in ("reduce", "gather"):
            return np.asarray(rank == self.root)
        if op in ("reduce_scatter", "scatter"):
            return np.asarray(self.block_of(place, chunks) == rank)
        return np.ones(np.broadcast(rank, place).shape, dtype=bool)

    def source(self, rank: IntArray, place: IntArray, chunks: int) -> tuple[IntArray, IntArray]:
        """For operations that only copy: the (rank, place) of the input that must end at this (rank, place)."""
        op = self.operation
        rank, place = np.broadcast_arrays(np.asarray(rank, np.int64), np.asarray(place, np.int64))
        if op in ("broadcast", "scatter"):
            return np.full_like(rank, self.root), place
        if op in ("all_gather", "gather"):
            return np.asarray(self.block_of(place, chunks)), place
        if op == "all_to_all":
            cuts = chunks // self.ranks
            return place // cuts, rank * cuts + place % cuts
        if op == "send_recv":
            return (rank - 1) % self.ranks, place
        raise InputError(f"{op} adds up the data of all ranks; it has no single source")
