"""Rows of pictures about links: single links, the busiest of them, or links taken together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError, one_of
from collsim.plot.common import count_of

if TYPE_CHECKING:
    from collsim.engine.result import Result
    from collsim.topology import Topology

__all__ = ["BY", "LinkRows", "check_most", "link_rows"]

Array = npt.NDArray[Any]

BY = ("auto", "link", "busiest", "node", "kind")


@dataclass(frozen=True, eq=False)
class LinkRows:
    """Rows and what they show.

    Attributes
    ----------
    names
        Of the rows, the first on top.
    row
        By link of the topology: its row, or -1.
    weight
        By link: its share of the row; those of a row sum to 1.
    what
        What a row is, for the axis.
    note
        What was left out or taken together, for the title; empty if nothing.
    """

    names: list[str]
    row: Array
    weight: Array
    what: str
    note: str


def check_most(picture: str, most: object) -> int:
    """Return a number of rows that a caller asks for."""
    if isinstance(most, bool) or not isinstance(most, (int, np.integer)) or most < 1:
        raise InputError(f"{picture}: most: expected a whole number of rows from 1, got {most!r}")
    return int(most)


def link_rows(result: Result, picture: str, by: str, most: int) -> LinkRows:
    """Return which rows to draw of the links of a run.

    Parameters
    ----------
    result
        The run.
    picture
        Who asks, for errors.
    by
        ``"link"``: all links that are used. ``"busiest"``: at most ``most`` of them, the busiest first. ``"node"``: the
        links that leave each node of a cluster (each device where there are no nodes) taken together, ``"kind"``: the
        links of each kind between each two kinds of devices; a row is then their mean, by bandwidth. ``"auto"``: all
        used links if they are at most ``most``, else the busiest.
    most
        Rows at the most.
    """
    one_of(f"{picture}: by", by, BY)
    most = check_most(picture, most)
    topology, busy = result.topology, result.link_busy_ps
    used = np.flatnonzero((busy > 0) | (result.link_bytes > 0))
    if not len(used):
        raise InputError(f"{picture}: nothing to draw, the run uses no links ({result.schedule!r})")
    if by == "auto":
        by = "link" if len(used) <= most else "busiest"
    if by in ("link", "busiest"):
        chosen = used
        if by == "busiest":
            chosen = used[np.lexsort((used, -busy[used]))][:most]
        row = np.full(topology.n_links, -1)
        row[chosen] = np.arange(len(chosen))
        names = [topology.link_name(link) for link in chosen.tolist()]
        note = "" if len(chosen) == len(used) else f"the {len(chosen)} busiest of {len(used):,} links"
        return LinkRows(names, row, (row >= 0).astype(float), "link", note)
    names, row = _nodes(topology) if by == "node" else _kinds(topology)
    rate = topology.link_bandwidth.astype(float)
    total = np.bincount(row, weights=rate, minlength=len(names))
    load = np.bincount(row, weights=rate * busy, minlength=len(names)) / np.maximum(total, 1)
    shown = np.flatnonzero(load > 0)
    note = f"{count_of(topology.n_links, 'link')} by {by}"
    if len(shown) > most:
        note += f", the {most} busiest of {len(shown):,}"
        shown = shown[np.lexsort((shown, -load[shown]))][:most]
    place = np.full(len(names), -1)
    place[shown] = np.arange(len(shown))
    what = "links out of" if by == "node" else "kind of link"
    return LinkRows([names[i] for i in shown.tolist()], place[row], rate / total[row], what, note)


def _nodes(topology: Topology) -> tuple[list[str], Array]:
    """Name each node of the cluster, or device, and say from which each link starts."""
    homes = [name.rpartition(".")[0] or name for name in topology.nodes]
    index = {name: i for i, name in enumerate(dict.fromkeys(homes))}
    home = np.array([index[name] for name in homes])
    return list(index), home[topology.link_src]


def _kinds(topology: Topology) -> tuple[list[str], Array]:
    """Name each kind of link between two kinds of devices, and say which each link is of."""
    kinds = list(dict.fromkeys(topology.kinds))
    of_node = np.array([kinds.index(kind) for kind in topology.kinds])
    key = of_node[topology.link_src] * len(kinds) + of_node[topology.link_dst]
    key = key * len(topology.link_kind_names) + topology.link_kind_codes
    _, first, row = np.unique(key, return_index=True, return_inverse=True)
    names = []
    for link, number in zip(first.tolist(), np.bincount(row).tolist(), strict=True):
        ends = f"{topology.kinds[topology.link_src[link]]}->{topology.kinds[topology.link_dst[link]]}"
        names.append(" ".join(filter(None, (topology.link_kind(link), ends, f"({number:,})"))))
    return names, row.reshape(-1)
