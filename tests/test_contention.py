"""Contention: bytes that the most loaded link of a ring or torus carries, counted step by step."""

from __future__ import annotations

import importlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from collsim import Schedule, ScheduleBuilder, algorithms, simulate
from collsim.topology import bidirectional_ring

for module in (
    "recursive_doubling", "halving_doubling", "circulant", "bruck", "pat", "neighbour_exchange", "swing",
):  # fmt: skip
    importlib.import_module(f"collsim.algorithms.{module}")  # puts its algorithms into the table


def contention(schedule: Schedule, dims: tuple[int, ...]) -> Fraction:
    """Sum over the steps of what the most loaded directed link carries, in units of the vector.

    On a torus (a ring has one dimension) with ranks row by row, links both ways; messages cross one dimension after
    the other, the last one first, the shorter way, or half of them each way where both are as long.
    """
    t = schedule.expand()
    src, dst = (np.array(np.unravel_index(ranks, dims)) for ranks in (t.src, t.dst))
    weight = np.diff(t.ptr)
    total = 0
    for step in range(schedule.steps):
        load = np.zeros((len(dims), 2, schedule.ranks), dtype=np.int64)
        for i in np.flatnonzero(t.step == step):
            at = src[:, i].copy()
            for axis in reversed(range(len(dims))):
                off = int(dst[axis, i] - at[axis]) % dims[axis]
                back = dims[axis] - off
                ways = [(1, off, 1), (-1, off, 1)] if off == back else [(1, off, 2) if off < back else (-1, back, 2)]
                for way, hops, halves in ways if off else []:
                    place = at.copy()
                    for _ in range(hops):
                        load[axis, (way + 1) // 2, np.ravel_multi_index(place, dims)] += halves * weight[i]
                        place[axis] = (place[axis] + way) % dims[axis]
                at[axis] = dst[axis, i]
        total += int(load.max())
    return Fraction(total, 2 * schedule.chunks)


COLUMNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ring": ("all_reduce", "ring", {}),
    "both ways": ("all_reduce", "bidirectional_ring", {}),
    "doubling": ("all_reduce", "recursive_doubling", {}),
    "near first": ("all_reduce", "halving_doubling", {}),
    "far first": ("all_reduce", "halving_doubling", {"distance": "halving"}),
    "circulant": ("all_reduce", "circulant", {}),
    "swing": ("all_reduce", "swing", {}),
    "bruck": ("all_gather", "bruck", {}),
    "pat": ("all_gather", "pat", {}),
    "neighbours": ("all_gather", "neighbour_exchange", {}),
}
ON_A_RING = {
    4: "1.5 .75 2 1.5 1.5 1.5 1.5 .75 .75 .75",
    8: "1.75 .875 5 2.5 3.25 3.25 2.0 1.625 1.25 .875",
    16: "1.875 .9375 11 3.5 6.625 6.625 2.375 3.3125 1.75 .9375",
    32: "1.9375 .96875 23 4.5 13.3125 13.3125 2.75 6.65625 2.25 .96875",
    64: "1.96875 .984375 47 5.5 26.65625 26.65625 3.09375 13.328125 2.75 .984375",
}


@pytest.mark.parametrize("ranks", ON_A_RING)
def test_contention_on_a_ring(ranks: int) -> None:
    found = [
        contention(algorithms.build(operation, name, ranks, **parameters), (ranks,))
        for operation, name, parameters in COLUMNS.values()
    ]
    assert found == [Fraction(text) for text in ON_A_RING[ranks].split()]


def halved(schedule: Schedule) -> Schedule:
    """Cut each message into halves on channels of their own, which take the two ways round that are equally long."""
    t = schedule.expand()
    builder = ScheduleBuilder(schedule.collective, 2 * schedule.chunks)
    for half in (0, 1):
        for reduce in (False, True):
            rows = np.flatnonzero(t.reduce == reduce)
            lists = [(2 * t.dst_chunks[t.ptr[i] : t.ptr[i + 1]] + half).tolist() for i in rows]
            if lists:
                add = builder.reduce if reduce else builder.copy
                add(t.src[rows], t.dst[rows], chunks=lists, step=t.step[rows], channel=half)
    return builder.build()


@pytest.mark.parametrize("network", ["cut_through", "fluid"])
@pytest.mark.parametrize("ranks", [4, 8, 16, 32])
def test_the_engine_takes_the_time_of_the_table(ranks: int, network: str) -> None:
    """Without latency, with a barrier after each step, time is what the most loaded link of each step carries."""
    ring = bidirectional_ring(ranks, bandwidth="1GB/s", latency=0)
    for (operation, name, parameters), expected in zip(COLUMNS.values(), ON_A_RING[ranks].split(), strict=True):
        schedule = halved(algorithms.build(operation, name, ranks, **parameters))
        size = 1000 * schedule.chunks
        result = simulate(schedule, ring, size, network=network, synchronous=True, check=False)
        assert result.time_ps == Fraction(expected) * size * 1000, name


def test_contention_has_closed_forms() -> None:
    for levels in range(2, 7):
        ranks = 1 << levels
        doubling, near, far, swing = (
            contention(algorithms.build(operation, name, ranks, **parameters), (ranks,))
            for operation, name, parameters in (COLUMNS[c] for c in ("doubling", "near first", "far first", "swing"))
        )
        assert doubling == Fraction(3 * ranks, 4) - 1
        assert near == levels - Fraction(1, 2)
        assert far == 2 * (Fraction(ranks, 8) + sum(Fraction(ranks, 4**k) for k in range(2, levels + 1)))
        hops = [abs((1 - (-2) ** (s + 1)) // 3) for s in range(levels)]
        assert swing == 2 * sum(Fraction(hop + 1, 1 << (s + 2)) for s, hop in enumerate(hops))


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        ((64,), "1.00 .50 23.9 2.79 13.5 13.5 1.57 13.5 2.79 1.0"),
        ((8, 8), "1.00 .50 5.08 1.43 1.86 1.86 1.05 1.86 1.43 1.0"),
    ],
)
def test_contention_against_the_least_that_one_port_can(dims: tuple[int, ...], text: str) -> None:
    snake = [8 * row + (column if row % 2 == 0 else 7 - column) for row in range(8) for column in range(8)]
    for (operation, name, parameters), ratio in zip(COLUMNS.values(), text.split(), strict=True):
        more = dict(parameters)
        if name == "swing":
            more |= {"dims": dims, "ports": 1}
        if name == "bidirectional_ring" and len(dims) == 2:
            # on a Hamiltonian cycle: the snake, closed by the way back to the first row
            more["order"] = snake
        least = Fraction((2 if operation == "all_reduce" else 1) * 63, 64)
        found = contention(algorithms.build(operation, name, 64, **more), dims) / least
        assert float(found) == pytest.approx(float(ratio), rel=5e-3)
