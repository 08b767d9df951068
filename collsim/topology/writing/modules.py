"""Nodes and links that repeat, written once: which parts of a machine are copies, by their names and in their order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.topology.writing.ranges import Entry, join_links, join_names, side_of

__all__ = ["Module", "Split", "find_modules"]

Array = npt.NDArray[Any]

_MEMBER = re.compile(r"([A-Za-z_][\w.:/+-]*)\[(0|[1-9][0-9]*)\]\.([A-Za-z_].*)")


@dataclass
class Module:
    """Copies of the same nodes and links.

    Attributes
    ----------
    name, count
        Of a copy, without its index; number of copies.
    first, size
        Node index of the first, and nodes of each copy.
    nodes, links
        Entries of one copy.
    """

    name: str
    count: int
    first: int
    size: int
    nodes: list[Entry]
    links: list[Entry]


@dataclass(frozen=True)
class Split:
    """A machine parted into modules and the rest.

    Attributes
    ----------
    modules
        In file order.
    nodes
        Node indices of those in no module: all before the modules, or all after them.
    first_link
        Links before this one are in the modules.
    """

    modules: list[Module]
    nodes: range
    first_link: int


def find_modules(
    names: Sequence[str],
    devices: Sequence[tuple[Any, ...]],
    shared: Sequence[tuple[Any, ...]],
    src: Array,
    dst: Array,
) -> Split | None:
    """Return the modules of a machine; None where its nodes are not copies in a row, or not all in one row.

    Parameters
    ----------
    names, devices
        Name of each node, and its attributes.
    shared, src, dst
        Attributes and ends of each link.
    """
    members = [_MEMBER.fullmatch(name) for name in names]
    heads = ["" if member is None else member[1] for member in members]
    modules: list[Module] = []
    plain: list[int] = []
    for head, group in groupby(range(len(names)), key=lambda node: heads[node]):
        nodes = list(group)
        module = _module(head, nodes, members, devices) if head else None
        if module is None:
            plain += nodes
        else:
            modules.append(module)
    rest = range(plain[0], plain[-1] + 1) if plain else range(0)
    together = len(rest) == len(plain) and (not plain or rest.start == 0 or rest.stop == len(names))
    if not modules or not together or len({module.name for module in modules}) < len(modules):
        return None
    return Split(modules, rest, _links(modules, names, shared, src, dst))


def _module(
    head: str, nodes: list[int], members: Sequence[re.Match[str] | None], devices: Sequence[tuple[Any, ...]]
) -> Module | None:
    found = [member for node in nodes if (member := members[node]) is not None]
    count = len({member[2] for member in found})
    size, rest = divmod(len(nodes), count)
    if count < 2 or rest:
        return None
    one = [(found[i][3], devices[nodes[i]]) for i in range(size)]
    for place, (node, member) in enumerate(zip(nodes, found, strict=True)):
        copy, local = divmod(place, size)
        if member[2] != str(copy) or (member[3], devices[node]) != one[local]:
            return None
    entries = join_names(Entry(attributes, (side_of(name),)) for name, attributes in one)
    return Module(head, count, nodes[0], size, entries, [])


def _links(
    modules: list[Module], names: Sequence[str], shared: Sequence[tuple[Any, ...]], src: Array, dst: Array
) -> int:
    """Give the modules their links, as far as the order of the links is that of a file, and return how many those are.

    A file has the links of an entry in the first copy, then in the second; so a run of links in the first copy must
    come again in each other one, and be one entry.
    """
    at = 0
    for module in modules:
        low, high, count = module.first, module.first + module.size, module.count
        prefix = len(f"{module.name}[0].")
        local = [side_of(name[prefix:]) for name in names[low:high]]
        shifts = module.size * np.arange(count)[:, None]
        while at < len(src):
            end = at
            while end < len(src) and low <= src[end] < high and low <= dst[end] < high:
                end += 1
            length = end - at
            last = at + length * count
            if not length or last > len(src):
                break
            if any(((ends[at:end] + shifts).reshape(-1) != ends[at:last]).any() for ends in (src, dst)):
                break
            if list(shared[at:last]) != list(shared[at:end]) * count:
                break
            entries = join_links(shared[at:end], src[at:end] - low, dst[at:end] - low, local)
            if len(entries) > 1:
                break
            module.links += entries
            at = last
    return at
