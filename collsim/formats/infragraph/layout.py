"""Devices written out once, as arrays: their components in a row, the edges between these, and what is one node.

Ports, and whatever a link without a rate joins to a port, are one node with what is behind them: the wiring inside a
device that nobody measured is no bottleneck of it. So a switch of an ASIC and 64 ports is one node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from collsim.formats.infragraph.document import Component, Device, Document, Instance, Link
from collsim.formats.infragraph.endpoints import Edge, End, Step
from collsim.formats.infragraph.roles import LEFT_OUT, PRIORITY, role_of
from collsim.formats.infragraph.tree import nearest
from collsim.topology.names import MAX_LINKS, MAX_NODES, shown_text

__all__ = ["PORT", "Layout", "Pairs", "Template", "expand", "heads", "join", "once", "repeat"]

Array = npt.NDArray[np.int64]

MAX_NESTING = 16
PORT = len(PRIORITY)
"""Added to the code of a role where it is that of a port."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Edges written out: the components at both ends, the number of the link, and the number of the edge as written."""

    a: Array
    b: Array
    link: Array
    edge: Array


@dataclass(frozen=True, slots=True)
class Template:
    """A device written out; the arrays have an entry a component.

    Attributes
    ----------
    device
        What it was made from.
    offsets, strides
        By name of a component: where its first one is, and how many entries each takes.
    first
        The entry that stands for the node that a component is part of.
    role
        Place in `PRIORITY`, more by `PORT` for ports.
    owner
        Number of the description of a component.
    names
        Name of each, as in ``cx5[0].asic[0]``; empty for the only node of a device.
    pairs
        Edges inside, those of devices in it too.
    """

    device: Device
    offsets: dict[str, int]
    strides: dict[str, int]
    first: Array
    role: Array
    owner: Array
    names: list[str]
    pairs: Pairs

    @property
    def size(self) -> int:
        """How many components there are."""
        return len(self.first)


class Layout:
    """All devices of a document as templates.

    Attributes
    ----------
    links
        Every kind of link that an edge names; `Pairs` have their numbers.
    components
        What `Template.owner` counts, with the device of each.
    edges
        Every edge as written; what is refused later is refused there.
    repeated, cut
        How many edges name a pair by the same link again, and how many join unlike numbers one to one.
    """

    def __init__(self, document: Document, rated: Callable[[Link], bool]) -> None:
        self.document, self.rated = document, rated
        self.links: list[Link] = []
        self.components: list[tuple[Component, Device]] = []
        self.edges: list[Edge] = []
        self.repeated = self.cut = self.spent = 0
        self._numbers: dict[tuple[str, str], int] = {}
        self._sizes: dict[str, int] = {}
        self._computes: dict[str, bool] = {}
        self._templates: dict[str, Template] = {}

    def size(self, name: str, within: tuple[str, ...] = ()) -> int:
        """Return how many components a device has, those of devices in it included; none is made for it.

        Raises
        ------
        TopologyError
            If devices contain themselves, or are more or deeper in each other than any machine.
        """
        if name in self._sizes:
            return self._sizes[name]
        device = self.document.devices[name]
        if name in within or len(within) >= MAX_NESTING:
            wrong = "contain itself" if name in within else f"be more than {MAX_NESTING} devices deep"
            device.where.fail(f"expected devices in devices, got {shown_text(name)}, which would {wrong}")
        total, computes = 0, False
        for component in device.components.values():
            each = self.size(component.name, (*within, name)) if component.choice == "device" else 1
            total += (component.count or 0) * each
            computes |= component.choice == "xpu" or (component.choice == "device" and self._computes[component.name])
            if total > MAX_NODES:
                component.where.fail(f"expected at most {MAX_NODES:,} components, got {total:,} up to here")
        self._sizes[name], self._computes[name] = total, computes
        return total

    def template(self, name: str) -> Template:
        """Return a device written out."""
        if name not in self._templates:
            self.size(name)
            self._templates[name] = self._template(self.document.devices[name])
        return self._templates[name]

    def _template(self, device: Device) -> Template:
        offsets: dict[str, int] = {}
        strides: dict[str, int] = {}
        columns: list[list[Array]] = [[], [], []]
        names: list[str] = []
        inner: list[Pairs] = []
        at = 0
        for component in device.components.values():
            count = component.count or 0
            offsets[component.name] = at
            starts = np.arange(count)
            if component.choice == "device" and not count:
                strides[component.name] = 1
            elif component.choice == "device":
                child = self.template(component.name)
                strides[component.name] = child.size
                moved = at + starts * child.size
                columns[0].append((moved[:, None] + child.first).ravel())
                columns[1].append(np.tile(child.role, count))
                columns[2].append(np.tile(child.owner, count))
                names += [f"{component.name}[{i}]{'.' * bool(n)}{n}" for i in range(count) for n in child.names]
                self.spend(count * len(child.pairs.a), component)
                inner.append(repeat(child.pairs, moved))
            else:
                strides[component.name] = 1
                code = PRIORITY.index(role_of(component, device, computes=self._computes[device.name]))
                columns[0].append(at + starts)
                columns[1].append(np.full(count, code + PORT * (component.choice == "port")))
                columns[2].append(np.full(count, len(self.components)))
                names += [f"{component.name}[{i}]" for i in range(count)]
                self.components.append((component, device))
            at += count * strides[component.name]
        first, role, owner = (np.concatenate([*column, np.zeros(0, dtype=np.int64)]) for column in columns)
        template = Template(device, offsets, strides, first, role, owner, names, join(inner))
        own = self._own(template)
        self._merge(template, own)
        nodes = heads(first)
        nodes = nodes[role[nodes] % PORT != PRIORITY.index(LEFT_OUT)]
        if len(nodes) == 1:
            names[int(nodes[0])] = ""
        return Template(device, offsets, strides, first, role, owner, names, join([*inner, own]))

    def _own(self, template: Template) -> Pairs:
        """Write the edges of the device itself out."""
        device = template.device
        found = []
        for edge in device.edges:
            a, b = (self.way(end, template) for end in edge.ends)
            found.append(self.pairs(edge, a, b, (device,)))
        pairs, repeated = once(join(found))
        self.repeated += repeated
        return pairs

    def pairs(self, edge: Edge, a: Array, b: Array, homes: Sequence[Device]) -> Pairs:
        """Return an edge written out between components."""
        self.spend(len(a) + len(b) + (len(a) * len(b) if edge.scheme == "many2many" else 0), edge)
        left, right, cut = expand(edge, a, b)
        self.cut += cut
        link = np.full(len(left), self.link(edge, homes), dtype=np.int64)
        self.edges.append(edge)
        return Pairs(left, right, link, np.full(len(left), len(self.edges) - 1, dtype=np.int64))

    def spend(self, links: int, what: Edge | Component | Instance) -> None:
        """Refuse what would write out more than any machine has, before it is done."""
        self.spent += links
        if self.spent > 2 * MAX_LINKS:
            what.where.fail(f"expected at most {MAX_LINKS:,} links, got more in all edges up to here")

    def link(self, edge: Edge, homes: Sequence[Device]) -> int:
        """Return the number of the link of an edge: one of the infrastructure or of a device at its ends."""
        owners = ["", *(device.name for device in homes)] if len(homes) > 1 else [homes[0].name, ""]
        tables = {"": self.document.links, **{device.name: device.links for device in homes}}
        owner = next((owner for owner in owners if edge.link in tables[owner]), None)
        found = None if owner is None else tables[owner][edge.link]
        key = (edge.link, "" if found is None else found.owner)
        if found is None:  # InfraGraph does without it too
            key = (edge.link, f"no table {owners[0]}")
            found = Link(edge.link, "", owners[0], None, None, edge.where)
        if key not in self._numbers:
            self._numbers[key] = len(self.links)
            self.links.append(found)
        return self._numbers[key]

    def way(self, end: End, template: Template) -> Array:
        """Return the components that an end names, as entries of a device."""
        found = np.zeros(1, dtype=np.int64)
        for place, step in enumerate(end):
            device = template.device
            component = device.components.get(step.name)
            if component is None and place == 0 and len(end) > 1 and step.name == device.name:
                continue  # the name of the device itself may come first
            if component is None:
                self._missing(step, device)
            chosen = step.indices(component.count or 0)
            if len(found) * len(chosen) > MAX_NODES:
                step.where.fail(f"expected at most {MAX_NODES:,} components at an end of an edge, got more")
            moved = template.offsets[step.name] + np.array(chosen, dtype=np.int64) * template.strides[step.name]
            found = (found[:, None] + moved).ravel()
            if not len(found):
                return found
            if component.choice == "device":
                template = self.template(step.name)
                if place == len(end) - 1:
                    return found + self._only(step, template)
            elif place < len(end) - 1:
                step.where.fail(f"expected nothing in component {shown_text(step.name)}, got {step.where.got()}")
        return found

    def _missing(self, step: Step, device: Device) -> NoReturn:
        hint = nearest(step.name, device.components)
        step.where.fail(f"expected a component of device {shown_text(device.name)}, got {shown_text(step.name)}{hint}")

    def _only(self, step: Step, template: Template) -> int:
        nodes = heads(template.first)
        if len(nodes) != 1:
            some = ", ".join(list(template.device.components)[:5])
            step.where.fail(f"expected a component of {shown_text(step.name)} too, such as {some}")
        return int(nodes[0])

    def _merge(self, template: Template, own: Pairs) -> None:
        """Join ports to what they are wired to without a rate, and those that are wired to nothing to each other."""
        first, role, n = template.first, template.role, template.size
        ports = role >= PORT
        used, numbers = np.unique(own.link, return_inverse=True)
        unrated = np.array([not self.rated(self.links[link]) for link in used.tolist()], dtype=bool)
        wires = np.flatnonzero((ports[own.a] | ports[own.b]) & unrated[numbers])
        a, b = first[own.a[wires]], first[own.b[wires]]
        if not self._computes[template.device.name]:
            free, home = self._free(template, own)
            a, b = np.concatenate([a, free]), np.concatenate([b, np.repeat(home, len(free))])
        if not len(a):
            return
        count, group = connected_components(coo_array((np.ones(len(a), dtype=bool), (a, b)), shape=(n, n)), False)
        group = group[first]
        order = np.lexsort((np.arange(n), role, group))  # ports come last
        head = np.zeros(count, dtype=np.int64)
        head[group[order[::-1]]] = order[::-1]
        nodes = heads(first)
        single = nodes[(role[nodes] == PRIORITY.index("gpu")) | (role[nodes] == PRIORITY.index("nic"))]
        crowded = np.bincount(group[single], minlength=count)[group[own.a[wires]]] > 1
        if crowded.any():
            pair = int(wires[np.flatnonzero(crowded)[0]])
            link = self.links[int(own.link[pair])]
            self.edges[int(own.edge[pair])].where.fail(
                f"expected a bandwidth of link {shown_text(link.name)}, which would else join several GPUs or NICs to "
                "one node; write it into the file or give its rate"
            )
        first[:] = head[group]

    def _free(self, template: Template, own: Pairs) -> tuple[Array, Array]:
        """Return the ports of a device itself that nothing in it is wired to, and what they are part of."""
        first, role = template.first, template.role
        loose = np.zeros(template.size, dtype=bool)
        for name, at in template.offsets.items():
            component = template.device.components[name]
            if component.choice == "port":
                loose[at : at + (component.count or 0)] = True
        for pairs in (own, template.pairs):
            loose[pairs.a] = loose[pairs.b] = False
        free = np.flatnonzero(loose)
        nodes = heads(first)
        nodes = nodes[role[nodes] < PRIORITY.index(LEFT_OUT)]
        return free, nodes if len(nodes) == 1 else free[:1]


def heads(first: Array) -> Array:
    """Return the entries that stand for a node."""
    return np.flatnonzero(first == np.arange(len(first)))


def join(parts: Sequence[Pairs]) -> Pairs:
    """Return edges one after the other."""
    empty = np.zeros(0, dtype=np.int64)
    return Pairs(*(np.concatenate([empty, *(getattr(p, key) for p in parts)]) for key in ("a", "b", "link", "edge")))


def repeat(pairs: Pairs, starts: Array) -> Pairs:
    """Return the edges of copies of a device that begin at these entries."""
    a, b = ((starts[:, None] + side).ravel() for side in (pairs.a, pairs.b))
    return Pairs(a, b, np.tile(pairs.link, len(starts)), np.tile(pairs.edge, len(starts)))


def once(pairs: Pairs) -> tuple[Pairs, int]:
    """Return edges with each pair once by the same link, whichever end comes first, and how many are left out.

    InfraGraph's graph is a simple one. Two links of different names between the same components are two links.
    """
    if not len(pairs.a):
        return pairs, 0
    low, high = np.minimum(pairs.a, pairs.b), np.maximum(pairs.a, pairs.b)
    # below 2^63: MAX_NODES squared, times as many links as a file has values
    keys = (low * (int(high.max()) + 1) + high) * (int(pairs.link.max()) + 1) + pairs.link
    kept = np.sort(np.unique(keys, return_index=True)[1])
    left_out = np.ones(len(keys), dtype=bool)
    left_out[kept] = False
    again = len(np.unique(pairs.edge[left_out]))
    return Pairs(pairs.a[kept], pairs.b[kept], pairs.link[kept], pairs.edge[kept]), again


def expand(edge: Edge, a: Array, b: Array) -> tuple[Array, Array, bool]:
    """Return the pairs that an edge joins, and whether an end had more components than the other one to one.

    Raises
    ------
    TopologyError
        If there would be too many, or the file does not say how they are joined and it matters.
    """
    scheme = edge.scheme
    if not scheme:
        if min(len(a), len(b)) > 1:
            edge.where.fail("expected a scheme (one2one or many2many), got none")
        scheme = "many2many"
    if scheme == "ring":
        if not np.array_equal(a, b):
            edge.where.fail("expected the same components at both ends of a ring, got different ones")
        b = np.roll(a, -1)
    elif scheme == "many2many":
        if len(a) * len(b) > MAX_LINKS // 2:
            edge.where.fail(f"expected at most {MAX_LINKS // 2:,} links each way, got {len(a) * len(b):,}")
        if len(a) > 1 and np.array_equal(a, b):
            i, j = np.triu_indices(len(a), 1)
            return a[i], a[j], False
        a, b = np.repeat(a, len(b)), np.tile(b, len(a))
    size = min(len(a), len(b))
    cut = len(a) != len(b)
    a, b = a[:size], b[:size]
    if scheme != "one2one" and size:
        low, high = np.minimum(a, b), np.maximum(a, b)
        keep = np.sort(np.unique(low * (int(high.max()) + 1) + high, return_index=True)[1])
        a, b = a[keep], b[keep]
    return a[a != b], b[a != b], cut
