"""The topology of a document: instances in a row, the edges between them, kinds, rates and who forwards."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from collsim.formats.infragraph.document import Document
from collsim.formats.infragraph.layout import PORT, Layout, Pairs, heads, join, once, repeat
from collsim.formats.infragraph.prices import Gpus, Prices
from collsim.formats.infragraph.roles import LEFT_OUT, PRIORITY
from collsim.topology.builder import assemble
from collsim.topology.graph import Topology
from collsim.topology.names import MAX_LINKS, MAX_NODES, shown_text

__all__ = ["Machine", "forwarding"]

Array = npt.NDArray[np.int64]

LONGEST = 200
MOST_TOLD = 12
"""Sentences about what the document leaves open."""

GPU, NIC, SWITCH, OUT = (PRIORITY.index(role) for role in ("gpu", "nic", "switch", LEFT_OUT))


class Machine:
    """Puts the instances of a document together."""

    def __init__(self, document: Document, layout: Layout, prices: Prices) -> None:
        self.document, self.layout, self.prices = document, layout, prices
        self.starts: dict[str, int] = {}
        self.size = 0

    def topology(self, name: str, title: str) -> Topology:
        """Return the topology.

        Raises
        ------
        TopologyError
            If there is no GPU, an edge names what there is not, or a link has no bandwidth.
        """
        self._place()
        first, role, owner, inner = self._instances()
        outer, repeated = once(self._between())
        pairs = join([inner, outer])
        nodes = heads(first)
        nodes = nodes[role[nodes] % PORT != OUT]
        if not (role[nodes] == GPU).any():
            self.document.root.fail("expected at least one component of choice xpu, which are the ranks, got none")
        number = np.full(self.size, -1, dtype=np.int64)
        number[nodes] = np.arange(len(nodes))
        ends = np.stack([number[first[pairs.a]], number[first[pairs.b]]], axis=1)
        keep = (ends >= 0).all(axis=1) & (ends[:, 0] != ends[:, 1])
        ends, link = ends[keep], pairs.link[keep]
        roles = role[nodes] % PORT
        gpus = self._gpus(roles, owner[nodes])
        rate, latency = self.prices.of_edges(self.layout.links, link, roles[ends], ends, gpus)
        kinds = [self.prices.kind(found) for found in self.layout.links]
        names = list(dict.fromkeys(kinds)) or [""]
        code = np.array([names.index(kind) for kind in kinds], dtype=np.int64)[link]
        left_out = int((role[heads(first)] % PORT == OUT).sum())
        return assemble(
            name,
            self._names(nodes),
            [PRIORITY[role] for role in roles.tolist()],
            ends.ravel(),
            ends[:, ::-1].ravel(),
            np.repeat(rate, 2),
            np.repeat(latency, 2),
            link_kinds=names,
            link_kind_codes=np.repeat(code, 2),
            description=self._description(repeated + self.layout.repeated, left_out, _planes(roles, ends, kinds, link)),
            source=f"InfraGraph document {title}",
            devices={"forwards": forwarding(roles, ends)},
        )

    def _place(self) -> None:
        """Give each instance its place in a row; nothing is made before all are counted."""
        for instance in self.document.instances.values():
            size = self.layout.size(instance.device) * (instance.count or 0)
            self.starts[instance.name] = self.size
            self.size += size
            if self.size > MAX_NODES:
                instance.where.fail(f"expected at most {MAX_NODES:,} components, got {self.size:,} up to here")

    def _instances(self) -> tuple[Array, Array, Array, Pairs]:
        columns: list[list[Array]] = [[], [], []]
        inner = []
        for instance in self.document.instances.values():
            if not instance.count:
                continue
            template = self.layout.template(instance.device)
            self.layout.spend(instance.count * len(template.pairs.a), instance)
            starts = self.starts[instance.name] + np.arange(instance.count) * template.size
            columns[0].append((starts[:, None] + template.first).ravel())
            columns[1].append(np.tile(template.role, instance.count))
            columns[2].append(np.tile(template.owner, instance.count))
            inner.append(repeat(template.pairs, starts))
        empty = np.zeros(0, dtype=np.int64)
        first, role, owner = (np.concatenate([empty, *column]) for column in columns)
        return first, role, owner, join(inner)

    def _between(self) -> Pairs:
        found = []
        for edge in self.document.edges:
            ends, homes = [], []
            for end in edge.ends:
                step = end[0]
                instance = self.document.instances[step.name]
                homes.append(self.document.devices[instance.device])
                chosen = step.indices(instance.count or 0)
                if len(end) == 1:
                    step.where.fail("expected a component after the instance, got none")
                if not chosen:
                    ends.append(np.zeros(0, dtype=np.int64))
                    continue
                template = self.layout.template(instance.device)
                inside = self.layout.way(end[1:], template)
                if len(chosen) * len(inside) > MAX_NODES:
                    step.where.fail(f"expected at most {MAX_NODES:,} components at an end of an edge, got more")
                starts = self.starts[instance.name] + np.array(chosen, dtype=np.int64) * template.size
                ends.append((starts[:, None] + inside).ravel())
            found.append(self.layout.pairs(edge, ends[0], ends[1], homes))
        pairs = join(found)
        if len(pairs.a) > MAX_LINKS // 2:
            self.document.root.fail(f"expected at most {MAX_LINKS // 2:,} links each way, got {len(pairs.a):,}")
        return pairs

    def _gpus(self, roles: Array, owner: Array) -> Gpus:
        texts = [""] + [
            f"{component.description} {component.name} {device.name} {device.description}"
            for component, device in self.layout.components
        ]
        return Gpus(np.where(roles == GPU, owner + 1, 0), texts)

    def _names(self, nodes: Array) -> list[str]:
        names = []
        for instance in self.document.instances.values():
            if instance.count:
                inside = self.layout.template(instance.device).names
                names += [f"{instance.name}[{i}]{'.' * bool(n)}{n}" for i in range(instance.count) for n in inside]
        chosen = [names[node] for node in nodes.tolist()]
        if longest := next((name for name in chosen if len(name) > LONGEST), None):
            self.document.root.fail(f"expected names of up to {LONGEST} letters, got {shown_text(longest)}")
        return chosen

    def _description(self, repeated: int, left_out: int, switches: int) -> str:
        said = self.document.description
        sentences = [said if said.endswith((".", "!", "?")) else f"{said}."] if 0 < len(said) <= 500 else []
        sentences += self.document.assumed[:MOST_TOLD]
        sentences += self.prices.sentences()
        if switches > 1:
            sentences.append(
                f"A message crosses one of the {switches} switches of a GPU: {switches} channels use them all."
            )
        if left_out:
            sentences.append(f"{left_out:,} components that are memory or disks are left out.")
        if repeated:
            sentences.append(f"Edges that name a pair by the same link again ({repeated:,}) count once.")
        if self.layout.cut:
            sentences.append(f"One to one edges of unlike ends ({self.layout.cut:,}) join as many as the shorter has.")
        return " ".join(sentences)


def _planes(roles: Array, ends: Array, kinds: list[str], link: Array) -> int:
    """Return how many NVSwitches a GPU has links to, at most."""
    nvlink = np.array([kind == "nvlink" for kind in kinds], dtype=bool)[link]
    up = ends[nvlink & (np.sort(roles[ends], axis=1) == (GPU, SWITCH)).all(axis=1)]
    gpus = up[roles[up] == GPU]
    return int(np.bincount(gpus).max()) if len(gpus) else 0


def forwarding(roles: Array, ends: Array) -> npt.NDArray[np.bool_]:
    """Return which nodes forward: all but NICs at the end of a way, and GPUs that none needs to pass.

    GPUs that have direct links do, as those of a torus and of DGX-1, unless each has one to each other.
    """
    forwards: npt.NDArray[np.bool_] = np.asarray(roles != GPU)
    degree = np.bincount(ends.ravel(), minlength=len(roles))
    forwards &= (roles != NIC) | (degree > 1)
    direct = ends[(roles[ends] == GPU).all(axis=1)]
    if len(direct):
        shape = (len(roles), len(roles))
        count, group = connected_components(
            coo_array((np.ones(len(direct), dtype=bool), (direct[:, 0], direct[:, 1])), shape=shape), False
        )
        pairs = np.unique(np.sort(direct, axis=1), axis=0)
        members, joined = np.bincount(group, minlength=count), np.bincount(group[pairs[:, 0]], minlength=count)
        mesh = joined < members * (members - 1) // 2
        forwards[(roles == GPU) & mesh[group] & (members[group] > 1)] = True
    return forwards
