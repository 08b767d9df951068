"""From costs to nodes and links."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from collsim.formats.taccl.document import Document, as_written
from collsim.topology.builder import TopologyBuilder
from collsim.topology.graph import Topology
from collsim.topology.names import MAX_LINKS, MAX_NODES, MAX_ROUTES
from collsim.topology.search import distances
from collsim.units import format_bandwidth, format_size

__all__ = ["Cluster"]

FAST = ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7))
SLOW = ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6))
"""Pairs of GPUs of an NDv2 with two NVLinks and with one (generic.py, ndv2)."""

MOST = 1024
"""GPUs, and adapters, of a node."""


class Cluster:
    """The links of a node, and several nodes of them."""

    def __init__(self, document: Document, nodes: int) -> None:
        self.document, self.nodes = document, nodes
        self.alpha = document.latency("alpha")
        self.hub = 0  # rate of a GPU's link to the switch of its node
        self.links: list[tuple[int, int, int, int]] = []  # source, destination, rate, number of links
        self.gpus = document.whole("gpus_per_node", 1, MOST)
        values = document.values
        if "node_betas_list" in values:
            for key in ("links", "betas"):
                if key in values:
                    document.fail(key, "expected either this or 'node_betas_list', got both")
            self._known(document.need("node_betas_list"))
        else:
            self._matrix()
        self.adapters = self.remote = self.remote_alpha = 0
        if nodes > 1:
            self._network()
        in_node = self.gpus + bool(self.hub) + self.adapters
        links = sum(count for *_, count in self.links) + (2 * self.gpus if self.hub else 0)
        links += 2 * len(self._slots()) + 2 * self.adapters
        for what, number, most in (("nodes", nodes * in_node + 1, MAX_NODES), ("links", nodes * links, MAX_LINKS)):
            if number > most:
                document.fail("gpus_per_node", f"expected at most {most:,} {what} in all, got {number:,}")

    def _known(self, betas: object) -> None:
        document = self.document
        if not isinstance(betas, list) or not 1 <= len(betas) <= 2:
            document.fail(
                "node_betas_list", f"expected one or two betas, else 'links' and 'betas', got {as_written(betas)}"
            )
        rates = [document.rate("node_betas_list", beta, place) for place, beta in enumerate(betas)]
        sums = document.values.get("node_invbws_list")
        if sums is not None:
            if not isinstance(sums, list) or len(sums) != len(betas):
                document.fail("node_invbws_list", f"expected as many as betas, {len(betas)}, got {as_written(sums)}")
            alpha = document.cost("alpha", document.need("alpha"))
            for place, (total, beta) in enumerate(zip(sums, betas, strict=True)):
                document.check_sum("node_invbws_list", total, alpha, Fraction(beta), place)
        if len(rates) == 1:
            self.hub = rates[0]
            return
        if self.gpus != 8:
            document.fail("gpus_per_node", f"expected 8, two betas being those of an NDv2, got {self.gpus:,}")
        if rates[0] < rates[1]:
            document.fail("node_betas_list", "expected the faster link first, got the slower one")
        for pairs, rate in ((FAST, rates[0]), (SLOW, rates[1])):
            self.links += [link for a, b in pairs for link in ((a, b, rate, 1), (b, a, rate, 1))]
        self.links.sort()

    def _matrix(self) -> None:
        document, n = self.document, self.gpus
        rows = {key: self._square(key) for key in ("links", "betas")}
        sums = self._square("invbws") if "invbws" in document.values else None
        alpha = document.cost("alpha", document.need("alpha"))
        for dst, src in product(range(n), range(n)):
            count, beta = rows["links"][dst][src], rows["betas"][dst][src]
            if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MAX_LINKS:
                document.fail("links", f"expected a number of links, got {as_written(count)}", dst, src)
            if not count:
                continue
            if dst == src:
                document.fail("links", f"expected 0 from a GPU to itself, got {count:,}", dst, src)
            rate = document.rate("betas", beta, dst, src)
            if sums is not None:
                document.check_sum("invbws", sums[dst][src], alpha, Fraction(beta), dst, src)
            self.links.append((src, dst, rate, count))

    def _square(self, key: str) -> list[list[Any]]:
        rows = self.document.need(key)
        n = self.gpus
        if not isinstance(rows, list) or len(rows) != n:
            got = f"{len(rows)} rows" if isinstance(rows, list) else as_written(rows)
            self.document.fail(key, f"expected {n} rows, one a GPU, got {got}")
        for place, row in enumerate(rows):
            if not isinstance(row, list) or len(row) != n:
                got = f"{len(row)} numbers" if isinstance(row, list) else as_written(row)
                self.document.fail(key, f"expected a row of {n} numbers, one a GPU, got {got}", place)
        return rows

    def _network(self) -> None:
        document = self.document
        for key in ("nics_per_node", "remote_alpha", "remote_beta"):
            if document.values.get(key, -1) == -1:  # what TACCL puts where there is none
                document.source.fail(
                    f"expected {key!r} for {self.nodes:,} nodes, got none; without the network there is only one", 1, 1
                )
        self.adapters = document.whole("nics_per_node", 1, MOST)
        self.remote_alpha = document.latency("remote_alpha")
        self.remote = document.rate("remote_beta", document.values["remote_beta"])
        if document.values.get("remote_invbw", -1) != -1:
            costs = [document.cost(key, document.values[key]) for key in ("remote_alpha", "remote_beta")]
            document.check_sum("remote_invbw", document.values["remote_invbw"], costs[0], costs[1])

    def build(self) -> Topology:
        """Return the machine."""
        source = f"The TACCL topology {self.document.source.file}."
        builder = TopologyBuilder(self.document.name, self._description(), source)
        for node in range(self.nodes):
            self._add_node(builder, f"node[{node}]." if self.nodes > 1 else "")
        if self.nodes == 1:
            return builder.build()
        builder.add_node("network", "switch")
        half = self.remote_alpha // 2
        for node, number in product(range(self.nodes), range(self.adapters)):
            nic = f"node[{node}].nic[{number}]"
            builder.add_link(nic, "network", self.remote, half, kind="network")
            builder.add_link("network", nic, self.remote, self.remote_alpha - half, kind="network")
        return builder.build(routes=self._routes())

    def _add_node(self, builder: TopologyBuilder, prefix: str) -> None:
        for gpu in range(self.gpus):
            builder.add_node(f"{prefix}gpu[{gpu}]", forwards=not self.hub)
        if self.hub:
            builder.add_node(f"{prefix}switch", "switch")
            half = self.alpha // 2
            for gpu in range(self.gpus):
                builder.add_link(f"{prefix}gpu[{gpu}]", f"{prefix}switch", self.hub, half, kind="nvlink")
                builder.add_link(f"{prefix}switch", f"{prefix}gpu[{gpu}]", self.hub, self.alpha - half, kind="nvlink")
        for src, dst, rate, count in self.links:
            builder.add_link(f"{prefix}gpu[{src}]", f"{prefix}gpu[{dst}]", rate, self.alpha, kind="nvlink", count=count)
        for nic in range(self.adapters):
            builder.add_node(f"{prefix}nic[{nic}]", "nic")
        for gpu, nic in self._slots():
            builder.add_duplex(f"{prefix}gpu[{gpu}]", f"{prefix}nic[{nic}]", self.remote, 0, kind="pcie")

    def _slots(self) -> list[tuple[int, int]]:
        """Return which GPU and adapter are joined."""
        if not self.adapters:
            return []
        if self.gpus >= self.adapters:
            return [(gpu, gpu * self.adapters // self.gpus) for gpu in range(self.gpus)]
        return [(nic * self.gpus // self.adapters, nic) for nic in range(self.adapters)]

    def _routes(self) -> dict[tuple[str, str], list[int | str]]:
        """Return the ways inside a node that the shortest-path rule would lead over an adapter that two GPUs share."""
        slots = np.array([nic for _, nic in sorted(dict(self._slots()).items())])
        over = np.where(slots[:, None] == slots[None, :], 2, 4)  # links over an adapter, and over the network
        ways: dict[tuple[int, int], list[str]] = {}
        if self.hub and self.remote >= self.hub:
            pairs = [(a, b) for a, b in np.argwhere(over == 2).tolist() if a != b]
            self._check_ways(len(pairs), 2 * len(pairs))
            ways = {(a, b): [f"gpu[{a}]->switch", f"switch->gpu[{b}]"] for a, b in pairs}
        elif not self.hub and self.links:
            alone = Cluster(self.document, 1).build()
            hops = distances(alone, alone.rank_nodes)[:, alone.rank_nodes]
            self._check_ways(int((hops > over).sum()), int(hops[hops > over].sum()))
            src, dst = np.nonzero(hops >= over)
            ptr, links = alone.routes(src, dst)
            for row, (a, b) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
                route = links[ptr[row] : ptr[row + 1]]
                # as long as the way over the adapters: the wider one is taken
                if hops[a, b] > over[a, b] or alone.link_bandwidth[route].min() <= self.remote:
                    ways[a, b] = [alone.link_name(link) for link in route.tolist()]
            self._check_ways(len(ways), 0)
        return {
            (f"node[{node}].gpu[{a}]", f"node[{node}].gpu[{b}]"): [_in_node(node, link) for link in way]
            for node in range(self.nodes)
            for (a, b), way in ways.items()
        }

    def _check_ways(self, ways: int, links: int) -> None:
        for what, number, most in (("ways", ways, MAX_ROUTES), ("links of ways", links, MAX_ROUTES * 10)):
            if number * self.nodes > most:
                got = f"{number * self.nodes:,}"
                self.document.fail(
                    "nics_per_node",
                    f"expected at most {most:,} {what} that keep off adapters in nodes, got {got}; take fewer nodes",
                )

    def _description(self) -> str:
        document = self.document
        if self.hub:
            text = f"{self.gpus:,} GPUs on a switch at {format_bandwidth(self.hub)} each, no bottleneck itself, "
            text += "alpha parted over the two links of a way."
        else:
            text = f"{self.gpus:,} GPUs with links of their own from one to another."
        size, scale = format_size(document.size), document.scale
        text += f" Costs are taken for a message of {size}" + (
            "." if scale == 1 else f", multiplied by {float(scale):g}."
        )
        if self.nodes > 1:
            text += (
                f" {self.nodes:,} such nodes, with {self.adapters:,} adapter{'s' if self.adapters > 1 else ''} of "
                f"{format_bandwidth(self.remote)} each, on one switch that is no bottleneck; GPUs are dealt out to "
                "them in order, which the file leaves open."
            )
        return text


def _in_node(node: int, link: str) -> str:
    src, _, dst = link.partition("->")
    return f"node[{node}].{src}->node[{node}].{dst}"
