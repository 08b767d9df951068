"""Maximum flow by blocking flows (Dinic 1970), written once for Python's lists and for Numba's arrays.

Arc 2i runs forward and arc 2i + 1 is the same one backwards: ``to[a]`` is the head of arc a, ``to[a ^ 1]`` its tail,
and ``cap[a]`` what it can still carry. The arcs out of node v are ``arcs[first[v]:first[v + 1]]``.
"""

from __future__ import annotations

from typing import Any

__all__ = ["augment"]


def augment(
    first: Any, arcs: Any, to: Any, cap: Any, source: int, sink: int, limit: int, level: Any, at: Any, todo: Any
) -> tuple[int, int]:
    """Push all that goes from a source to a sink, or stop once ``limit`` (-1: none) has arrived.

    ``cap`` becomes what is left. ``level`` is afterwards the hops to the sink over what is left, -1 where there is no
    way (if the limit was not reached, the source is among those). ``at`` and ``todo`` are for the work, a place a node.

    Returns
    -------
    tuple
        What arrived, and how often all arcs were looked at.
    """
    n = len(first) - 1
    total = 0
    rounds = 0
    while limit < 0 or total < limit:
        rounds += 1
        for v in range(n):
            level[v] = -1
        level[sink] = 0
        todo[0] = sink
        head, tail = 0, 1
        while head < tail and level[source] < 0:
            v = todo[head]
            head += 1
            for j in range(first[v], first[v + 1]):
                a = arcs[j]
                if level[to[a]] < 0 and cap[a ^ 1] > 0:
                    level[to[a]] = level[v] + 1
                    todo[tail] = to[a]
                    tail += 1
        if level[source] < 0:
            break
        for v in range(n):
            at[v] = first[v]
        # from the source along arcs that come nearer to the sink; the arcs of the way stand in todo
        depth, v = 0, source
        while True:
            if v == sink:
                least = cap[todo[0]]
                for i in range(1, depth):
                    if cap[todo[i]] < least:
                        least = cap[todo[i]]
                back = -1
                for i in range(depth):
                    a = todo[i]
                    cap[a] -= least
                    cap[a ^ 1] += least
                    if back < 0 and cap[a] == 0:
                        back = i
                total += least
                if 0 <= limit <= total:
                    break
                depth = back
                v = to[todo[depth] ^ 1]
                continue
            found = False
            while at[v] < first[v + 1]:
                a = arcs[at[v]]
                if cap[a] > 0 and level[to[a]] == level[v] - 1:
                    found = True
                    break
                at[v] += 1
            if found:
                todo[depth] = a
                depth += 1
                v = to[a]
            elif v == source:
                break
            else:
                depth -= 1
                v = to[todo[depth] ^ 1]
                at[v] += 1
    return total, rounds
