"""Places for machines of no known structure: distances on the page as the hops between nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["hops_from", "spread_out"]

Array = npt.NDArray[Any]

ALL_PAIRS = 1200  # nodes up to which the distances of all pairs are looked at
PIVOTS = 48  # nodes that distances are taken from above
MARGIN = 0.04


def spread_out(n: int, src: Array, dst: Array) -> Array:
    """Return places in the unit square for nodes with links, shaped (n, 2).

    Classical scaling of the hops between nodes; on small machines it is improved by majorising stress. Nothing is drawn
    by chance, so that the same machine looks the same.
    """
    from scipy.linalg import eigh

    starts = np.arange(n) if n <= ALL_PAIRS else np.linspace(0, n - 1, PIVOTS).astype(np.int64)
    hops = hops_from(n, src, dst, starts)
    far = hops[np.isfinite(hops)].max(initial=1.0)
    hops = np.where(np.isfinite(hops), hops, far + 2)
    squares = hops**2
    centred = -0.5 * (squares - squares.mean(axis=0) - squares.mean(axis=1, keepdims=True) + squares.mean())
    if n <= ALL_PAIRS:
        values, vectors = eigh(centred, subset_by_index=(max(0, n - 2), n - 1))
        place = vectors[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0))
    else:
        place = centred.T @ np.linalg.svd(centred, full_matrices=False)[0][:, :2]
    place /= max(float(np.abs(place).max()), 1e-12)
    # nodes that scaling cannot tell apart are parted by a little, each in its own direction
    angle = 2 * np.pi * np.arange(n) * 0.618033988749895
    place = place * far / 2 + 0.05 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    if n <= ALL_PAIRS:
        place = _majorised(place, hops, rounds=80 if n <= 400 else 20)
    place -= place.mean(axis=0)
    place *= np.where(place[0] * (-1, 1) < 0, -1, 1)  # the first node top left
    low, high = place.min(axis=0), place.max(axis=0)
    filled: Array = 0.5 + (place - (low + high) / 2) / max(float((high - low).max()), 1e-12) * (1 - 2 * MARGIN)
    return filled


def hops_from(n: int, src: Array, dst: Array, starts: Array) -> Array:
    """Return the hops from some nodes to all, either way along links, shaped (starts, n); infinite without a way."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    graph = coo_array((np.ones(len(src)), (src, dst)), shape=(n, n)).tocsr()
    found: Array = dijkstra(graph, directed=False, indices=starts, unweighted=True)
    return found


def _majorised(place: Array, hops: Array, rounds: int) -> Array:
    """Move all places at once so that distances come nearer to hops, near ones counting more (SMACOF)."""
    n = len(place)
    if n < 3:
        return place
    weight = np.where(hops > 0, 1 / np.maximum(hops, 1) ** 2, 0.0)
    laplacian = np.diag(weight.sum(axis=1)) - weight
    inverse = np.linalg.inv(laplacian + 1 / n) - 1 / n
    for _ in range(rounds):
        apart = np.sqrt(((place[:, None] - place[None]) ** 2).sum(axis=2)) if n <= 400 else _apart(place)
        ratio = weight * hops / np.maximum(apart, 1e-9)
        place = inverse @ (ratio.sum(axis=1)[:, None] * place - ratio @ place)
    return place


def _apart(place: Array) -> Array:
    square = (place**2).sum(axis=1)
    found: Array = np.sqrt(np.maximum(square[:, None] + square[None] - 2 * place @ place.T, 0))
    return found
