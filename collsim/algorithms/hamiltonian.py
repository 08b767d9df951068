"""Two Hamiltonian cycles that share no link of a 2D torus, each used both ways: four rings on all links at once.

On R x C ranks with R a multiple of C, walk C ranks along a row, step to the next row, and so on: that is a Hamiltonian
cycle. The links that it leaves over are a second one if and only if R and C - 1 have no common factor (Bae, AlBdaiwi
and Bose, "Edge-disjoint Hamiltonian cycles in two-dimensional torus", 2004). Swing's authors (De Sensi et al., 2024)
call rings on such cycles the bandwidth-optimal algorithm on 2D tori; the latency grows with N.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.algorithms.common import refuse_rows
from collsim.algorithms.derive import reverse, then
from collsim.algorithms.registry import algorithm
from collsim.algorithms.torus import sizes
from collsim.collective import Collective
from collsim.errors import AlgorithmError
from collsim.schedule import Schedule, ScheduleBuilder

__all__ = [
    "hamiltonian_all_gather",
    "hamiltonian_all_reduce",
    "hamiltonian_cycles",
    "hamiltonian_reduce_scatter",
]

Array = npt.NDArray[Any]


def hamiltonian_cycles(rows: int, columns: int) -> tuple[Array, Array]:
    """Return two cycles through all ranks of a torus, numbered row-major, that use each link once between them.

    Parameters
    ----------
    rows, columns
        Sizes of at least 2, one of them a multiple of the other. Along a size of 2 there are two parallel links.

    Raises
    ------
    AlgorithmError
        If there are no such cycles of this form.

    Examples
    --------
    >>> a, b = hamiltonian_cycles(3, 3)
    >>> a.tolist(), b.tolist()
    ([0, 1, 2, 5, 3, 4, 7, 8, 6], [0, 3, 6, 7, 1, 4, 5, 8, 2])
    """
    if reason := _refusal(rows, columns):
        raise AlgorithmError(f"dims: {reason}")
    if rows % columns:
        place = np.arange(rows * columns).reshape(rows, columns).T.ravel()
        first, second = hamiltonian_cycles(columns, rows)
        return place[first], place[second]
    i = np.arange(rows * columns)
    first = i // columns * columns + (i % columns - i // columns) % columns
    return first, _left_over(first, rows, columns)


def _refusal(rows: int, columns: int) -> str:
    long, short = (rows, columns) if rows % columns == 0 else (columns, rows)
    if short < 2 or long % short:
        return (
            f"expected two sizes of at least 2, one a multiple of the other, got {rows} x {columns}; use torus or "
            "bidirectional_ring"
        )
    if (common := math.gcd(long, short - 1)) != 1:
        return (
            f"expected {long} and {short} - 1 without a common factor, but both are multiples of {common}: what the "
            "first cycle leaves over is no cycle; use torus"
        )
    return ""


def _left_over(first: Array, rows: int, columns: int) -> Array:
    """Walk along the links that the first cycle does not use."""
    n = rows * columns
    rank = np.arange(n)
    x, y = np.divmod(rank, columns)
    # a link is named by its lower end and whether it goes along the row
    ahead = {True: x * columns + (y + 1) % columns, False: (x + 1) % rows * columns + y}
    used: dict[bool, set[int]] = {True: set(), False: set()}
    for i, (a, b) in enumerate(zip(first.tolist(), np.roll(first, -1).tolist(), strict=True)):
        along = i % columns != columns - 1
        used[along].add(a if ahead[along][a] == b else b)
    links: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for along, taken in used.items():
        for a in sorted(set(range(n)) - taken):
            b = int(ahead[along][a])
            link = 2 * a + along
            links[a].append((link, b))
            links[b].append((link, a))
    walk, (by, here) = [0], min(links[0])
    while here:
        walk.append(here)
        by, here = next(option for option in links[here] if option[0] != by)
    return np.array(walk)


def _default(ranks: int) -> tuple[int, int]:
    """Return the two sizes nearest to each other that have such cycles."""
    for low in range(math.isqrt(ranks), 1, -1):
        if ranks % low == 0 and not _refusal(ranks // low, low):
            return ranks // low, low
    raise AlgorithmError(
        f"ranks: hamiltonian takes R x C ranks with R a multiple of C >= 2 and no common factor of R and C - 1, got "
        f"{ranks}; use bidirectional_ring"
    )


def _all_gather(ranks: int, cycles: Sequence[Array], turned: bool) -> Schedule:
    """Rings along cycles, each both ways on a share of its own; ``turned`` swaps the two ways."""
    count = 2 * len(cycles)
    refuse_rows(ranks * count)
    position = np.arange(ranks)
    order = np.concatenate([cycle * count + 2 * i + way for i, cycle in enumerate(cycles) for way in range(2)])
    b = ScheduleBuilder(Collective("all_gather", ranks), count * ranks, order=order.tolist())
    with b.repeat(ranks - 1, window=ranks):
        for i, cycle in enumerate(cycles):
            for lane, way in enumerate((-1, 1) if turned else (1, -1)):
                chunk = (2 * i + lane) * ranks + position
                # the two cycles take different ones of two parallel links
                b.copy(cycle, np.roll(cycle, -way), chunk, channel=i, shift=-way)
    return b.build()


def _hamiltonian(operation: str, ranks: int, dims: Sequence[int] | None) -> Schedule:
    refuse_rows(ranks)
    cycles: tuple[Array, ...] = ()
    if dims is not None or ranks > 1:
        found = _default(ranks) if dims is None else sizes(ranks, dims)
        grid = [size for size in found if size > 1]
        if len(grid) > 2:
            raise AlgorithmError(f"dims: hamiltonian takes a torus of two dimensions, got {found}; use torus")
        if ranks > 1:
            cycles = hamiltonian_cycles(grid[0], grid[1] if len(grid) > 1 else 1)
    if not cycles:
        return ScheduleBuilder(Collective(operation, ranks), ranks).build()
    gather = _all_gather(ranks, cycles, False)
    if operation == "all_gather":
        return gather
    scatter = reverse(_all_gather(ranks, cycles, True), "reduce_scatter")
    return scatter if operation == "reduce_scatter" else then(scatter, gather, operation)


@algorithm("all_reduce", "hamiltonian")
def hamiltonian_all_reduce(ranks: int, *, dims: Sequence[int] | None = None) -> Schedule:
    """Four rings along two cycles that share no link: ``2(N-1) alpha + 2(N-1)/N S/(4 B)``, plus ``(N-1)/N S gamma``.

    Parameters
    ----------
    ranks
        R C for some R that is a multiple of C >= 2 and has no common factor with C - 1 (all squares, and all multiples
        of 4 among them); or 1.
    dims
        The two sizes, ranks numbered row-major. The two nearest to each other that have such cycles if not given
        (`collsim.run` takes the topology's).

    Examples
    --------
    >>> hamiltonian_all_reduce(16, dims=(4, 4))
    <Schedule hamiltonian all_reduce ranks=16 chunks=64 steps=30 transfers=1920>
    >>> hamiltonian_all_reduce(18, dims=(6, 3))
    Traceback (most recent call last):
    ...
    collsim.errors.AlgorithmError: dims: expected 6 and 3 - 1 without a common factor, but both are multiples of 2: ...
    """
    return _hamiltonian("all_reduce", ranks, dims)


@algorithm("reduce_scatter", "hamiltonian")
def hamiltonian_reduce_scatter(ranks: int, *, dims: Sequence[int] | None = None) -> Schedule:
    """Four rings along two cycles that share no link: ``(N-1) alpha + (N-1)/N S (1/(4 B) + gamma)``.

    Parameters as in `hamiltonian_all_reduce`.

    Examples
    --------
    >>> hamiltonian_reduce_scatter(9)
    <Schedule hamiltonian reduce_scatter ranks=9 chunks=36 steps=8 transfers=288>
    """
    return _hamiltonian("reduce_scatter", ranks, dims)


@algorithm("all_gather", "hamiltonian")
def hamiltonian_all_gather(ranks: int, *, dims: Sequence[int] | None = None) -> Schedule:
    """Four rings along two cycles that share no link: ``(N-1) alpha + (N-1)/N S/(4 B)``.

    Parameters as in `hamiltonian_all_reduce`.

    Examples
    --------
    >>> hamiltonian_all_gather(8, dims=(2, 4))
    <Schedule hamiltonian all_gather ranks=8 chunks=32 steps=7 transfers=224>
    """
    return _hamiltonian("all_gather", ranks, dims)
