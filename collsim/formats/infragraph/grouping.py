"""What devices a topology is made of, for writing: copies that are alike, and whatever is left."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from collsim.topology.graph import Topology

__all__ = ["CHOICES", "Address", "Group", "Plan", "Wire", "plan_of", "written_name"]

CHOICES = {"gpu": "xpu", "switch": "switch", "nic": "nic", "host": "cpu"}
"""Components of InfraGraph by the kinds of our nodes."""

_OWNED = re.compile(r"([^\[\].]+)\[([0-9]{1,9})\]\.(.+)")
_INDICES = re.compile(r"\[[0-9]+\]")
LONGEST = 60


class Address(NamedTuple):
    """Where a node is in a document."""

    instance: str
    copy: int
    component: str
    number: int


class Wire(NamedTuple):
    """Parallel links between two nodes, each way: bandwidth, latency and number of the kind are one of its link."""

    a: int
    b: int
    link: tuple[int, int, int]
    times: int


@dataclass(slots=True)
class Group:
    """A device and how often it is there.

    Attributes
    ----------
    name
        Of the device and of its instance.
    members
        By copy: nodes by component.
    choices
        By component.
    wires
        Those inside, with the addresses of the first copy; empty where the copies differ.
    """

    name: str
    members: list[dict[str, list[int]]]
    choices: dict[str, str]
    wires: list[Wire] = field(default_factory=list)

    def addresses(self) -> Iterator[tuple[int, Address]]:
        """Yield each node and where it is, in the order in which a reader numbers them."""
        for copy, components in enumerate(self.members):
            for component, nodes in components.items():
                for number, node in enumerate(nodes):
                    yield node, Address(self.name, copy, component, number)


@dataclass(slots=True)
class Plan:
    """All devices, and the wires between them."""

    groups: list[Group]
    address: dict[int, Address]
    wires: list[Wire]


def written_name(text: str, otherwise: str) -> str:
    """Return a name that InfraGraph takes, in which no bracket or dot is taken for part of an address.

    Examples
    --------
    >>> written_name("leaf 1/2", "switch"), written_name("[3]", "xpu")
    ('leaf_1_2', 'xpu')
    """
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", _INDICES.sub("", text)).strip("_")[:LONGEST]
    return name or otherwise


def _base(name: str, choice: str) -> str:
    """Return the name that nodes share which differ by a number: ``gpu[3]`` and ``gpu3`` are of ``gpu``."""
    return written_name(name if "[" in name else name.rstrip("0123456789"), choice)


def plan_of(topology: Topology, wires: list[Wire]) -> Plan:
    """Return the devices that say a topology such that its GPUs are read in the order of its ranks."""
    owned, loose = _owned(topology)
    groups = list(owned)
    if groups:
        groups += _alone(topology, loose, {group.name for group in groups})
    else:
        groups = [_whole(topology, loose, merged=False)]
    rank = topology.rank_of_node.tolist()
    last = topology.n_ranks
    groups.sort(key=lambda group: min((rank[node] for node, _ in group.addresses() if rank[node] >= 0), default=last))
    ranks = [rank[node] for group in groups for node, _ in group.addresses() if rank[node] >= 0]
    if ranks != list(range(topology.n_ranks)):
        groups = [_whole(topology, range(topology.n_nodes), merged=True)]
    address = {node: where for group in groups for node, where in group.addresses()}
    return Plan(groups, address, _inside(groups, address, wires))


def _ranked(topology: Topology, nodes: Iterator[int] | range | list[int]) -> list[int]:
    """Return nodes with the GPUs first, by rank."""
    rank = topology.rank_of_node.tolist()
    return sorted(nodes, key=lambda node: (rank[node] < 0, rank[node], node))


def _owned(topology: Topology) -> tuple[list[Group], list[int]]:
    """Return the nodes whose names have an owner (``node[0].gpu[3]``) by it, if its copies are alike; and others."""
    found: dict[str, dict[int, dict[str, list[int]]]] = {}
    loose = []
    parts = [_OWNED.fullmatch(name) for name in topology.nodes]
    for node in _ranked(topology, range(topology.n_nodes)):
        part = parts[node]
        if part is None:
            loose.append(node)
            continue
        component = _base(part[3], CHOICES[topology.kinds[node]])
        copies = found.setdefault(written_name(part[1], "device"), {}).setdefault(int(part[2]), {})
        copies.setdefault(f"{component} {CHOICES[topology.kinds[node]]}", []).append(node)
    groups = []
    for owner, owned in found.items():
        shape = [{key: len(nodes) for key, nodes in components.items()} for components in owned.values()]
        if sorted(owned) != list(range(len(owned))) or any(one != shape[0] for one in shape):
            loose += [node for components in owned.values() for nodes in components.values() for node in nodes]
            continue
        names = _unique(list(owned[0]))
        members = [{names[key]: owned[copy][key] for key in names} for copy in range(len(owned))]
        groups.append(Group(owner, members, {names[key]: key.split(" ")[1] for key in names}))
    return groups, sorted(loose)


def _unique(keys: list[str]) -> Mapping[str, str]:
    """Return names of components by name and choice: the name alone where that is enough."""
    names: dict[str, str] = {}
    for key in keys:
        name, choice = key.split(" ")
        wanted, number = name, 1
        while name in names.values():
            number += 1
            name = f"{wanted}_{choice}" if number == 2 else f"{wanted}_{choice}_{number}"
        names[key] = name
    return names


def _alone(topology: Topology, loose: list[int], taken: set[str]) -> list[Group]:
    """Return the nodes without an owner as devices of a single component, those of a name together."""
    found: dict[tuple[str, str], list[int]] = {}
    for node in _ranked(topology, loose):
        choice = CHOICES[topology.kinds[node]]
        found.setdefault((_base(topology.nodes[node], choice), choice), []).append(node)
    groups = []
    for (wanted, choice), nodes in found.items():
        name, number = wanted, 1
        while name in taken:
            number += 1
            name = f"{wanted}_{number}"
        taken.add(name)
        groups.append(Group(name, [{choice: [node]} for node in nodes], {choice: choice}))
    return groups


def _whole(topology: Topology, nodes: list[int] | range, *, merged: bool) -> Group:
    """Return everything as one device; merged: components by kind alone, which keeps any order of ranks."""
    found: dict[str, list[int]] = {}
    for node in _ranked(topology, nodes):
        choice = CHOICES[topology.kinds[node]]
        name = choice if merged else _base(topology.nodes[node], choice)
        found.setdefault(f"{name} {choice}", []).append(node)
    names = _unique(list(found))
    members = {names[key]: found[key] for key in found}
    choices = {names[key]: key.split(" ")[1] for key in found}
    return Group(written_name(topology.name, "machine"), [members], choices)


def _inside(groups: list[Group], address: dict[int, Address], wires: list[Wire]) -> list[Wire]:
    """Give groups the wires inside them, if these are the same in each copy, and return the others."""
    inner: dict[str, dict[int, list[Wire]]] = {}
    outer = []
    for wire in wires:
        a, b = address[wire.a], address[wire.b]
        if a[:2] == b[:2]:
            inner.setdefault(a.instance, {}).setdefault(a.copy, []).append(wire)
        else:
            outer.append(wire)
    for group in groups:
        copies = inner.get(group.name, {})
        shapes = [_shape(copies.get(copy, []), address) for copy in range(len(group.members))]
        if all(shape == shapes[0] for shape in shapes):
            group.wires = copies.get(0, [])
        else:
            outer += [wire for wires in copies.values() for wire in wires]
    return outer


def _shape(wires: list[Wire], address: dict[int, Address]) -> list[tuple[object, ...]]:
    return sorted((*sorted((address[wire.a][2:], address[wire.b][2:])), wire.link, wire.times) for wire in wires)
