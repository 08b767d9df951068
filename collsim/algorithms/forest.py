"""Forests: trees that are packed into the machine, from all roots at once, and slices that follow each other down them.

How many bytes a second can go from every rank to every other is decided by the tightest cut of the machine, and trees
exist that reach it (Edmonds 1973; Zhao et al., "ForestColl: throughput-optimal collective communications on
heterogeneous network fabrics", arXiv 2402.06787). `collsim.forests` packs them; here they become schedules. A chunk is
a slice of a unit of a tree, and each message names its path by its links. `collsim.algorithms.branches` has the order.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from collsim.algorithms.branches import WINDOW, Paths, Rows, borders_of, grown, sliced, use_of
from collsim.algorithms.common import at_least_one, refuse_rows
from collsim.algorithms.registry import algorithm
from collsim.collective import Collective
from collsim.errors import AlgorithmError, shown
from collsim.forests import Forest, Wires, turned
from collsim.schedule import Schedule

__all__ = [
    "forest_all_gather",
    "forest_all_reduce",
    "forest_broadcast",
    "forest_reduce",
    "forest_reduce_scatter",
]

Array = npt.NDArray[Any]

LIMIT = 128
"""Ranks up to which a forest is packed, by default."""


def _stars(ranks: int, units: int, up: bool) -> Rows:
    """Return the messages where each two ranks have a link: all units of a root straight to each other rank."""
    refuse_rows(ranks * ranks)
    root, ahead = (a.ravel() for a in np.indices((ranks, ranks - 1)))
    other = (root + ahead + 1) % ranks
    src, dst = (other, root) if up else (root, other)
    none = np.zeros(len(root), dtype=np.int64)
    return Rows(none, src, dst, root * units, none + units, none - 1, none, up)


def _relays(ranks: int, root: int, units: int, up: bool) -> Rows:
    """Return the messages of one root where each two ranks have a link: each unit to one rank, and on to all others."""
    refuse_rows(ranks * units)
    unit, ahead = (a.ravel() for a in np.indices((units, ranks - 1)))
    relay = unit % (ranks - 1) if ranks > 1 else unit
    place = (relay + ahead) % max(1, ranks - 1)
    child = (root + 1 + place) % ranks
    parent = np.where(ahead == 0, root, (root + 1 + relay) % ranks)
    step = (ahead > 0).astype(np.int64)
    if up:
        step = int(step.max(initial=0)) - step
    src, dst = (child, parent) if up else (parent, child)
    none = np.zeros(len(unit), dtype=np.int64)
    return Rows(step, src, dst, unit, none + 1, none - 1, none, up)


_PACKED: WeakKeyDictionary[Wires, dict[Any, Any]] = WeakKeyDictionary()
"""Forests of machines that are still in use: other sizes and operations take them again."""


def _packed(wires: Wires, up: bool, root: int | None, trees: int | None) -> Forest:
    """Return the forest of a machine, of its links turned round for the way up; packed once."""
    known, key = _PACKED.setdefault(wires, {}), (up, root, trees)
    if key not in known:
        from collsim.forests.packing import pack  # flows and their kernels, loaded when first used

        known[key] = pack(turned(wires) if up else wires, root=root, trees=trees)
    found: Forest = known[key]
    return found


def _packed_both(wires: Wires, trees: int | None) -> tuple[Forest, Forest]:
    """Return the forests to reduce up and to broadcast down; packed once."""
    known, key = _PACKED.setdefault(wires, {}), ("both", trees)
    if key not in known:
        from collsim.forests.packing import pack_both

        known[key] = pack_both(wires, trees=trees)
    found: tuple[Forest, Forest] = known[key]
    return found


def _refuse(ranks: int, wires: Wires | None, trees: int | None, limit: int) -> None:
    at_least_one(limit=limit)
    if trees is not None:
        at_least_one(trees=trees)
        refuse_rows(ranks * trees)
    if wires is None:
        return
    if not isinstance(wires, Wires):
        raise AlgorithmError(f"wires: expected a Wires, as collsim.run takes it from the topology, got {shown(wires)}")
    if len(wires.ranks) != ranks:
        raise AlgorithmError(f"wires: expected those of a machine of {ranks} ranks, got {len(wires.ranks)}")
    if ranks > limit:
        raise AlgorithmError(
            f"ranks: to pack trees into a machine of {ranks} ranks would take minutes or hours; expected at most "
            f"{limit}; use rail or hierarchical, or a greater limit"
        )


def _one_way(
    collective: Collective, wires: Wires | None, trees: int | None, slices: int | None, window: int | None, limit: int
) -> Schedule:
    """All_gather or broadcast, or their mirror images."""
    ranks, up, paths = collective.ranks, collective.reduces, Paths()
    _refuse(ranks, wires, trees, limit)
    root = collective.root if collective.is_rooted else None
    if wires is not None:
        forest = _packed(wires, up, root, trees)
        rows = grown(forest, paths, up, borders_of([forest]), use_of([forest], wires))
        return sliced(collective, forest.units, [rows], paths, slices, window)
    units = trees or (1 if root is None else max(1, ranks - 1))
    rows = _stars(ranks, units, up) if root is None else _relays(ranks, root, units, up)
    return sliced(collective, units * (ranks if root is None else 1), [rows], paths, slices, window)


@algorithm("all_gather", "forest")
def forest_all_gather(
    ranks: int, *, wires: Wires | None = None, trees: int | None = None, slices: int | None = None,
    window: int | None = WINDOW, limit: int = LIMIT,
) -> Schedule:  # fmt: skip
    """All_gather down trees that are packed into the machine: for large messages as fast as the tightest cut allows.

    With k trees a root, ``S/N / (k rate)`` and what it takes to fill the pipeline.

    Parameters
    ----------
    ranks
        Any number from 1.
    wires
        The machine (`collsim.run` takes it from the topology); a link between each two ranks if not given.
    trees
        Units a root, each of which takes a tree. Chosen by the packing if not given: enough to come close to the best.
    slices
        Pieces of a unit, which follow each other. If not given, 40 for each level of the deepest tree (16 if there is
        but one), and down to 64 where that makes more than 260,000 transfers.
    window
        Slices of one branch that may wait in the queue of a rank's port (see ``docs/pacing.md``); the branches of a
        rank, and what different ranks have ready from the start, get that many and one ahead of each other. None or 0
        for no pacing.
    limit
        Most ranks, where wires are given: the work grows faster than with their square.

    Examples
    --------
    >>> print(forest_all_gather(2, slices=2, window=0))
    all_gather ranks=2 chunks=4
    algorithm forest {"slices": 2, "window": 0, "limit": 128}
    repeat 2 shift=1 window=2
      step 0
        0 -> 1  0
        1 -> 0  2
    """
    return _one_way(Collective("all_gather", ranks), wires, trees, slices, window, limit)


@algorithm("reduce_scatter", "forest")
def forest_reduce_scatter(
    ranks: int, *, wires: Wires | None = None, trees: int | None = None, slices: int | None = None,
    window: int | None = WINDOW, limit: int = LIMIT,
) -> Schedule:  # fmt: skip
    """Reduce_scatter up trees that are packed into the machine with its links turned round, run backwards.

    Parameters as in `forest_all_gather`.

    Examples
    --------
    >>> forest_reduce_scatter(5, slices=4)
    <Schedule forest reduce_scatter ranks=5 chunks=20 steps=4 transfers=80>
    """
    return _one_way(Collective("reduce_scatter", ranks), wires, trees, slices, window, limit)


@algorithm("all_reduce", "forest")
def forest_all_reduce(
    ranks: int, *, wires: Wires | None = None, trees: int | None = None, slices: int | None = None,
    window: int | None = WINDOW, limit: int = LIMIT,
) -> Schedule:  # fmt: skip
    """Reduce up one tree and broadcast down another from the same root, for each unit.

    The roots are spread over the ranks as suits the machine. A slice turns round as soon as its root has it. Parameters
    as in `forest_all_gather`; ``trees`` is the mean over the roots.

    Examples
    --------
    >>> forest_all_reduce(5, slices=4)
    <Schedule forest all_reduce ranks=5 chunks=20 steps=8 transfers=160>
    """
    _refuse(ranks, wires, trees, limit)
    collective, paths = Collective("all_reduce", ranks), Paths()
    if wires is None:
        units = trees or 1
        both = [_stars(ranks, units, up) for up in (True, False)]
        return sliced(collective, ranks * units, both, paths, slices, window)
    forests = _packed_both(wires, trees)
    borders, use = borders_of(forests), use_of(forests, wires)
    both = [grown(forest, paths, up, borders, use) for forest, up in zip(forests, (True, False), strict=True)]
    return sliced(collective, forests[0].units, both, paths, slices, window)


@algorithm("broadcast", "forest")
def forest_broadcast(
    ranks: int, root: int = 0, *, wires: Wires | None = None, trees: int | None = None, slices: int | None = None,
    window: int | None = WINDOW, limit: int = LIMIT,
) -> Schedule:  # fmt: skip
    """Broadcast down trees that are packed into the machine: for large messages as fast as the tightest cut allows.

    Parameters as in `forest_all_gather`.

    Examples
    --------
    >>> print(forest_broadcast(3, slices=1))
    broadcast ranks=3 chunks=2 root=0
    algorithm forest {"slices": 1, "window": 1, "limit": 128}
    repeat 1 shift=1 window=1
      step 0
        0 -> 1  0
        0 -> 2  1
      step 1
        1 -> 2  0
        2 -> 1  1
    """
    return _one_way(Collective("broadcast", ranks, root), wires, trees, slices, window, limit)


@algorithm("reduce", "forest")
def forest_reduce(
    ranks: int, root: int = 0, *, wires: Wires | None = None, trees: int | None = None, slices: int | None = None,
    window: int | None = WINDOW, limit: int = LIMIT,
) -> Schedule:  # fmt: skip
    """Reduce up trees that are packed into the machine with its links turned round, run backwards.

    Parameters as in `forest_all_gather`.

    Examples
    --------
    >>> forest_reduce(5, 2, slices=4)
    <Schedule forest reduce ranks=5 chunks=16 steps=8 transfers=64>
    """
    return _one_way(Collective("reduce", ranks, root), wires, trees, slices, window, limit)
