"""From a forest to a schedule: the messages of one slice, repeated for all, and what each of them waits for.

What is ready from the start (slices at a root, or at a leaf that sends up) would fill the queues on the way before
anything that has to be passed on. Three kinds of edges hold it back. The first two are between messages of one sender,
and wait until one has left, so that they cost no latency of their own:

- A branch sends its slices one by one: the next one enters the queue of the port when the last one has left.
- The branches of a rank keep step. Of those of a level none gets more than two slices ahead of the one that leaves by
  the busiest port, and that one not of the same of the level before. So what leaves by a port with room to spare does
  not run ahead and fill the links behind it, which others need.
- The ranks keep step. Of what is ready from the start nothing gets more than two slices ahead of what has arrived of
  one branch: of those that wait for no other, the one that leaves by the busiest port. Otherwise a rank with a wide
  port, all of whose slices are ready, fills the queue of a switch that slower ones need too. It matters most on the
  way up, where several senders meet at one receiver. Since that one branch waits for none, it costs one latency in all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.algorithms.common import at_least_one, refuse_rows, refuse_window
from collsim.collective import Collective
from collsim.forests import Forest, Wires
from collsim.schedule import Block, Edges, Repeat, Schedule
from collsim.schedule.block import OUTPUT

__all__ = ["WINDOW", "Paths", "Rows", "borders_of", "grown", "sliced", "use_of"]

Array = npt.NDArray[Any]
Paths = dict[tuple[str, ...], int]

WINDOW = 1
"""Slices of a branch that may wait at a port, by default."""
LEAST_SLICES, MOST_SLICES = 16, 1024
SLICES_A_LEVEL = 40
"""Slices for each level, by default: a pipeline that fills level by level is then full for 40 parts of 41."""
TRANSFERS, SLICES_AT_LEAST = 2**18, 64
"""Transfers above which fewer slices are taken by default, down to so many."""
MOST_TRANSFERS = 2**22
"""Transfers that no default goes beyond."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Messages of one slice, a column entry each, in one direction of a forest.

    Attributes
    ----------
    step, src, dst
        As in a `Block`.
    unit, width
        The first unit that goes, and how many.
    path
        Number of the path, -1 for none.
    use
        How busy the link is by which it leaves: units that cross it over its bandwidth (only which is more counts).
    reduce
        Whether they go up, and are added.
    """

    step: Array
    src: Array
    dst: Array
    unit: Array
    width: Array
    path: Array
    use: Array
    reduce: bool

    @property
    def steps(self) -> int:
        """Number of steps that they take."""
        return int(self.step.max(initial=-1)) + 1


def borders_of(forests: Sequence[Forest]) -> Array:
    """Return the first units of what goes the same way in each of some forests of as many units at each root."""
    found = []
    for forest in forests:
        first = np.cumsum(forest.units_of()) - forest.units_of()
        for tree in forest.trees:
            found += [int(first[tree.root]) + part.first for part in tree.parts()]
            first[tree.root] += tree.units
    return np.unique(np.array(found, dtype=np.int64))


def use_of(forests: Sequence[Forest], wires: Wires) -> dict[str, float]:
    """Return how busy the links of a machine are when some forests of as many units use them."""
    bandwidth = dict(zip(wires.links, wires.bandwidth.tolist(), strict=True))
    use: dict[str, float] = {}
    for forest in forests:
        for link, units in forest.load().items():
            use[link] = use.get(link, 0.0) + units / bandwidth[link]
    return use


def grown(forest: Forest, paths: Paths, up: bool, borders: Array, use: Mapping[str, float]) -> Rows:
    """Return the messages of a forest: down from the roots, or up to them.

    Parameters
    ----------
    forest
        Trees; for the way up those of the machine with its links turned round.
    paths
        Numbers of the paths so far; new ones are added.
    up
        Whether messages run backwards, from the leaves to the roots.
    borders
        Where units are parted; see `borders_of`.
    use
        How busy each link is; see `use_of`.
    """
    first = np.cumsum(forest.units_of()) - forest.units_of()
    found: list[tuple[int, ...]] = []
    busy: list[float] = []
    for tree in forest.trees:
        for part in tree.parts():
            level, below = {tree.root: 0}, dict.fromkeys(range(forest.ranks), 0)
            children = dict.fromkeys(range(forest.ranks), 0)
            for branch in part.branches:
                level[branch.child] = level[branch.parent] + 1
            for branch in reversed(part.branches):
                below[branch.parent] = max(below[branch.parent], below[branch.child] + 1)
            for branch in part.branches:
                ends = (branch.child, branch.parent) if up else (branch.parent, branch.child)
                path = branch.path[::-1] if up else branch.path
                number, unit = paths.setdefault(path, len(paths)), int(first[tree.root]) + part.first
                turn = children[branch.parent] if up else 0
                children[branch.parent] += 1
                found.append((level[branch.parent], -below[branch.child], turn, *ends, unit, part.units, number))
                busy.append(use[path[0]])
        first[tree.root] += tree.units
    step, way, place, src, dst, first_unit, width, path_of = np.array(found, dtype=np.int64).reshape(-1, 8).T
    if up:
        step = int(step.max(initial=0)) - step
    # what has the longest way to go is sent first; on the way up not all send to the same receiver at a time
    order = np.lexsort((place, way, step))
    after_unit = first_unit + width
    low, high = np.searchsorted(borders, first_unit[order]), np.searchsorted(borders, after_unit[order])
    row = np.repeat(order, high - low)
    cut = borders[np.arange(len(row)) - np.repeat(np.cumsum(high - low) - high, high - low)]
    after = np.append(borders, np.iinfo(np.int64).max)[np.searchsorted(borders, cut) + 1]
    parts = np.minimum(after, after_unit[row]) - cut
    return Rows(step[row], src[row], dst[row], cut, parts, path_of[row], np.array(busy)[row], up)


def sliced(
    collective: Collective, units: int, phases: Sequence[Rows], paths: Paths, slices: int | None, window: int | None
) -> Schedule:
    """Return the schedule: the messages of all phases as a block that is run once a slice.

    Parameters
    ----------
    collective
        What it implements; in blocked ones the units of a rank follow each other.
    units
        Units of all roots.
    phases
        Messages; those of a later phase have later steps.
    paths
        Paths that they name.
    slices, window
        As in `forest_all_gather`.
    """
    refuse_window(window)
    starts = np.cumsum([0, *(rows.steps for rows in phases)])
    step = np.concatenate([rows.step + start for rows, start in zip(phases, starts, strict=False)])
    if slices is None:
        slices = _enough(int(starts[-1]), len(step))
    at_least_one(slices=slices)
    refuse_rows(max(len(step), units) * slices)
    if not len(step):
        return Schedule(collective, units * slices, ())
    order = np.argsort(step, kind="stable")
    step = step[order]

    def column(name: str) -> Array:
        return np.asarray(np.concatenate([getattr(rows, name) for rows in phases])[order])

    src, dst, unit, width, path = (column(name) for name in ("src", "dst", "unit", "width", "path"))
    # units that go together lie side by side in each slice; their slices are a window, which begins at a multiple of it
    chunk, wraps = unit * slices, 0 if (unit % width).any() else width * slices
    ones = np.ones(len(step), dtype=np.int64)
    reduce = np.concatenate([np.full(len(rows.step), rows.reduce) for rows in phases])[order]
    block = Block(
        step=step, src=src, src_buffer=ones * OUTPUT, src_chunk=chunk, dst=dst, dst_buffer=ones * OUTPUT,
        dst_chunk=chunk, count=width, stride=ones, reduce=reduce, channel=0 * ones, via=path,
    )  # fmt: skip
    edges, use = Edges(), column("use")
    if window and window < slices:
        partner = _partners(step, src, use)
        lead, tied = _followers(src, use, np.array([*map(len, paths), 0])[path], _ready(step, src, dst, unit), partner)
        edges = _paced(partner, lead, tied, int(window))
    return Schedule(collective, units * slices, (Repeat(block, slices, width, wraps),), edges=edges, paths=tuple(paths))


def _enough(levels: int, rows: int) -> int:
    """Return how many slices fill the pipeline well, without more transfers than a simulation does quickly."""
    slices = LEAST_SLICES if levels < 2 else min(MOST_SLICES, SLICES_A_LEVEL * levels)
    slices = min(slices, max(SLICES_AT_LEAST, TRANSFERS // max(1, rows)))
    return max(1, min(slices, MOST_TRANSFERS // max(1, rows)))


def _partners(step: Array, src: Array, use: Array) -> Array:
    """Return the row of the same sender that each row keeps step with, itself if none."""
    row = np.arange(len(step))
    order = np.lexsort((row, -use, step, src))
    same = np.zeros((2, len(step)), dtype=np.bool_)  # as the row before: sender; sender and step
    same[0, 1:] = np.diff(src[order]) == 0
    same[1, 1:] = same[0, 1:] & (np.diff(step[order]) == 0)
    head = np.maximum.accumulate(np.where(same[1], 0, row))  # place of the busiest row of that sender and step
    before = head[np.maximum(row - 1, 0)]
    partner = np.empty_like(row)
    partner[order] = order[np.where(same[1], head, np.where(same[0], before, row))]
    return partner


def _ready(step: Array, src: Array, dst: Array, unit: Array) -> Array:
    """Return which rows send what no earlier step brings: they are ready from the start, in all slices."""
    units = int(unit.max()) + 1
    got, sent = dst * units + unit, src * units + unit
    order = np.lexsort((step, got))
    first = np.minimum(np.searchsorted(got[order], sent), len(got) - 1)
    return np.asarray((got[order][first] != sent) | (step[order][first] >= step))


def _followers(src: Array, use: Array, links: Array, ready: Array, partner: Array) -> tuple[int, Array]:
    """Return the row that ranks keep step with, and those that do so.

    It waits for nothing but its own slices, so that nobody waits in a circle; of those as busy it is one with a short
    way. What goes straight to its receiver meets nobody on the way. Over one switch, ports of equal use cannot outrun
    each other; over several they can, and fill the links between them.
    """
    free = np.flatnonzero(ready & (partner == np.arange(len(src))))
    if not len(free):
        return 0, free
    lead = int(free[np.lexsort((links[free], use[free] < use[free].max() * (1 - 1e-9)))[0]])
    wide = (use < use[lead] * (1 - 1e-9)) | (links.max() > 2)
    return lead, np.flatnonzero(ready & (src != src[lead]) & (links > 1) & wide)


def _paced(partner: Array, lead: int, tied: Array, window: int) -> Edges:
    """Return what rows wait for, some slices back: themselves, those that they keep step with, the one for all."""
    row = np.arange(len(partner))
    follows = np.flatnonzero(partner != row)
    waits, other = np.concatenate([row, follows]), np.concatenate([row, partner[follows]])
    back = np.repeat([window, window + 1], [len(row), len(follows)])
    own = Edges.from_columns(phase=0, row=waits, pred_phase=0, pred_row=other, distance=back, issued=True)
    if not len(tied):
        return own
    ranks = Edges.from_columns(phase=0, row=tied, pred_phase=0, pred_row=lead, distance=window + 1)
    return Edges.joined([own, ranks])
