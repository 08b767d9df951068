"""How many rings through all GPUs fit beside each other into a mesh of links."""

from __future__ import annotations

from functools import lru_cache

__all__ = ["cycles"]

BUDGET = 200_000
"""Steps after which the best number found so far stands; NCCL's search has such a limit too."""


@lru_cache(maxsize=256)
def cycles(capacity: tuple[tuple[int, ...], ...]) -> int:
    """Return how many directed rings through all GPUs fit, if pair (i, j) carries ``capacity[i][j]`` of them.

    The search takes rings one after the other and takes back what led nowhere, within a budget of steps.

    Examples
    --------
    >>> cycles(((0, 1, 1), (1, 0, 1), (1, 1, 0)))
    2
    >>> cycles(((0, 2), (2, 0)))
    2
    """
    size = len(capacity)
    if size < 2:
        return 0
    left = [list(row) for row in capacity]
    bound = min(
        min(sum(row) for row in capacity),
        min(sum(capacity[i][j] for i in range(size)) for j in range(size)),
    )
    best = steps = 0

    def search(found: int, path: list[int], visited: int) -> bool:
        """Extend the ring that begins at GPU 0; True ends the search."""
        nonlocal best, steps
        steps += 1
        if steps > BUDGET:
            return True
        last = path[-1]
        if len(path) == size:
            if left[last][0] == 0:
                return False
            left[last][0] -= 1
            best = max(best, found + 1)
            done = best == bound or search(found + 1, [0], 1)
            left[last][0] += 1
            return done
        for following in sorted(range(size), key=lambda gpu: -left[last][gpu]):
            if left[last][following] and not visited >> following & 1:
                left[last][following] -= 1
                done = search(found, [*path, following], visited | 1 << following)
                left[last][following] += 1
                if done:
                    return True
        return False

    if bound:
        search(0, [0], 1)
    return best
