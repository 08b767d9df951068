"""Random loops in which every station belongs to one row of a phase, which crosses it once an iteration."""

from __future__ import annotations

import numpy as np

from collsim.engine.loops import Loops
from collsim.engine.program import COPY, LINK, REDUCER, SENDER


def private_rows(seed: int, iterations: int = 40) -> Loops:
    """Draw two phases; with few numbers to choose from, so that waits, ties, zeros and periods abound.

    The phases share stations, and mostly the second finds them busy: its rows begin when those of the first are issued.
    """
    rng = np.random.default_rng(seed)
    rows, times = rng.integers(1, 7, 2), rng.integers(1, iterations, 2)
    total = int(rows.sum())
    row_ptr = np.array([0, rows[0], total])
    first = np.cumsum([0, *(rows * times)])
    kinds: list[int] = []
    route_ptr = [0]
    pool = int(rows.max()) + 1
    for _ in range(pool):
        hops = int(rng.integers(0, 5)) if rng.random() < 0.9 else 0
        kinds += [SENDER] * int(rng.integers(0, 2)) + [COPY] * int(rng.integers(0, 2)) + [LINK] * hops
        kinds += [REDUCER] * int(rng.integers(0, 2))
        route_ptr.append(len(kinds))
    kind = np.array(kinds, dtype=np.int64)
    route = [rng.permutation(pool)[:n] for n in rows]
    deps: list[tuple[int, int, bool, int]] = []
    dep_ptr = [0]
    plain, paced = rng.random() < 0.4, rng.random() < 0.5
    for p in range(2):
        for r in range(rows[p]):
            for _ in range(1 if plain else int(rng.integers(0, 3))):
                pred = int(rng.integers(0, rows[p]))
                back = 1 if plain else int(rng.integers(pred >= r, 4))
                odd = not plain and rng.random() < 0.3
                issued = paced or (odd and rng.random() < 0.5)
                deps.append((int(row_ptr[p]) + pred, back, issued, 3 * odd))
            dep_ptr.append(len(deps))
    dep = np.array(deps, dtype=np.int64).reshape(-1, 4)
    ends = np.sort(rng.integers(0, first[-1], (int(rng.integers(0, 4)), 2)), axis=1)
    if rng.random() < 0.8:
        same = [*route[0].tolist(), *route[1].tolist()]
        later = [(first[1] - rows[0] + same.index(q) % rows[0], first[1] + r) for r, q in enumerate(route[1].tolist())]
        ends = np.concatenate([ends, later])
    ends = ends[ends[:, 0] < ends[:, 1]]
    ends = ends[np.argsort(ends[:, 1], kind="stable")]
    zeros = np.zeros(total)
    return Loops(
        joins=0,
        barrier=False,
        times=times,
        row_ptr=row_ptr,
        first_step=np.array([0, times[0]]),
        block_steps=np.array([1, 1]),
        varies=np.array([False, False]),
        step=zeros,
        src=zeros,
        dst=zeros + 1,
        channel=zeros,
        reduce=zeros > 0,
        chunk_base=zeros,
        chunk_rel=zeros,
        chunk_shift=zeros,
        chunk_window=zeros + 1,
        size_class=rng.integers(0, 2, total),
        class_bytes=np.array([5, 9]),
        chunk_class=np.zeros(0),
        dep_ptr=np.array(dep_ptr),
        dep_row=dep[:, 0],
        dep_distance=dep[:, 1] if dep[:, 1].any() else dep[:0, 1],
        dep_issued=dep[:, 2] if dep[:, 2].any() else dep[:0, 2],
        dep_lag=dep[:, 3] if dep[:, 3].any() else dep[:0, 3],
        edge_node=ends[:, 1],
        edge_pred=ends[:, 0],
        edge_issued=rng.random(len(ends)) < 0.6,
        edge_lag=rng.integers(0, 30, len(ends)) * (rng.random(len(ends)) < 0.3),
        route=np.concatenate(route),
        route_ptr=np.array(route_ptr),
        route_station=np.arange(len(kind)),
        route_latency=np.where((kind == LINK) & (rng.random(len(kind)) < 0.7), rng.integers(0, 9, len(kind)), 0),
        route_rate=rng.integers(0, 6, len(kind)),
        busy=rng.integers(0, 13, (2, 6)),
        station_kind=kind,
        station_bandwidth=np.ones(len(kind)),
        station_index=np.arange(len(kind)),
    )
