"""From distances between devices to the tree that has them: groups of groups."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from collsim.formats.nvidia_smi.table import LEVELS, Table

__all__ = ["Groups", "groups_of"]

Array = npt.NDArray[Any]
Groups = list[Any]
"""Groups by NUMA node of groups by host bridge of groups by outer switch of groups by switch of devices."""

PHB = LEVELS.index("PHB") + 1
SYS = LEVELS.index("SYS") + 1


def groups_of(table: Table) -> tuple[Groups, bool]:
    """Return the devices in nested groups, and whether a distance had to be filled in; no groups if none is known.

    Raises
    ------
    TopologyError
        If the distances are not those of a tree: two devices that are near to a third are then far from each other.
    """
    n = len(table.names)
    known = np.array(
        [[LEVELS.index(cell) + 1 if cell in LEVELS else 0 for cell in row] for row in table.cells], dtype=np.int8
    ).reshape(n, n)
    if not known.any():
        return [], False
    hidden = bool(((known == 0).sum(axis=1) > 1).any())
    for level in range(1, SYS + 1):
        label = _components(known, level)
        wrong = np.argwhere((known > level) & (label[:, None] == label[None, :]))
        if len(wrong):
            _refuse(table, known, level, int(wrong[0][0]), int(wrong[0][1]))
    _join(table, known)
    return _nested(known, list(range(n)), SYS - 1), hidden


def _components(known: Array, level: int) -> Array:
    """Return the number of the group of each device, groups being joined by distances of up to a level."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    return np.asarray(connected_components(csr_matrix((known > 0) & (known <= level)), directed=False)[1])


def _nested(known: Array, devices: list[int], level: int) -> Groups:
    """Return the groups of a level among some devices, in the order of their first ones, and in them those below."""
    label = _components(known[np.ix_(devices, devices)], level)
    groups: dict[int, list[int]] = {}
    for device, number in zip(devices, label.tolist(), strict=True):
        groups.setdefault(number, []).append(device)
    return [_nested(known, group, level - 1) if level > 1 else group for group in groups.values()]


def _join(table: Table, known: Array) -> None:
    """Fill in distances between parts of the machine of which none is known: by what CPUs they are near to.

    Parts are joined by one distance each, so that the distances stay those of a tree.
    """
    label = _components(known, SYS)
    cpus = list(zip(table.cpus, table.numas, strict=True))
    for wanted in (PHB, SYS):
        for device in range(len(cpus)):
            for other in range(device):
                if label[other] != label[device] and (wanted == SYS or cpus[other] == cpus[device]):
                    known[device, other] = known[other, device] = wanted
                    label[label == label[device]] = label[other]


def _refuse(table: Table, known: Array, level: int, a: int, b: int) -> NoReturn:
    """Name two devices that are too far apart, and one between them."""
    near = (known > 0) & (known <= level)
    names, cells = table.names, table.cells
    far = f"expected distances that make a tree, got {cells[a][b]} between {names[a]} and {names[b]}, though"
    between = np.flatnonzero(near[a] & near[b])
    if len(between):
        c = int(between[0])
        table.fail(a, b, f"{far} both are nearer to {names[c]} ({cells[a][c]} and {cells[c][b]})")
    # NVLinks hide the distance of some on the way
    c, limit = _first_on_the_way(near, a, b), LEVELS[level - 1]
    table.fail(
        a,
        b,
        f"{far} {names[a]} is nearer to {names[c]} ({cells[a][c]}), and others lead from there to {names[b]} by no "
        f"more than {limit}",
    )


def _first_on_the_way(near: Array, a: int, b: int) -> int:
    """Return the device next to ``a`` on a shortest way to ``b``."""
    first = {int(c): int(c) for c in np.flatnonzero(near[a])}
    todo = list(first)
    for device in todo:
        for other in np.flatnonzero(near[device]).tolist():
            if other not in first and other != a:
                first[other] = first[device]
                todo.append(other)
    return first[b]
