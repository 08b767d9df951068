"""Bandwidth and latency of each edge: what the user gives, what the file says, what its words mean."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collsim.formats.infragraph.document import Link
from collsim.formats.infragraph.roles import PRIORITY
from collsim.formats.infragraph.standards import (
    Standard,
    gpu_in,
    in_bytes,
    kind_of,
    latency_of,
    nvlink_rate,
    rate_text,
    socket_rate,
    standard_of,
    xgmi_rate,
)
from collsim.hardware.model import Gpu
from collsim.topology.names import shown_text
from collsim.units import format_time

__all__ = ["Gpus", "Prices", "Rates"]

Array = npt.NDArray[np.int64]
Rates = dict[str, int]

_WORD = re.compile(r"[\w.:+-]{1,60}")

MOST_TOLD = 12
"""Links that a description tells of."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """What the file says of each GPU.

    Attributes
    ----------
    number
        By node: place in ``texts``.
    texts
        Descriptions; the first is empty, for what is no GPU.
    """

    number: Array
    texts: list[str]


class Prices:
    """Rates of links.

    Attributes
    ----------
    given
        Bytes/s by name of a link, or by device and link.
    told
        What was assumed, a phrase by link.
    latencies
        Latencies that were assumed, by kind.
    """

    def __init__(self, given: Rates) -> None:
        self.given = given
        self.told: dict[str, str] = {}
        self.latencies: dict[str, int] = {}

    def known(self, link: Link) -> bool:
        """Return whether anything says a bandwidth of a link."""
        return bool(self.fixed(link)) or standard_of(link.words) is not None

    def fixed(self, link: Link) -> int:
        """Return bytes/s that the user or the file gives, 0 if none does."""
        for name in (f"{link.owner}.{link.name}", link.name):
            if name in self.given:
                return self.given[name]
        if link.bandwidth is None:
            return 0
        unit, number = link.bandwidth
        found = in_bytes(unit, number, link.words)
        if found is None:
            if unit == "transfers":
                link.where.fail(
                    "expected a bandwidth in gigabytes_per_second, or the lanes ('x16') in the description, got "
                    "transfers, which are no bytes"
                )
            link.where.fail("expected a bandwidth of 1 byte/s to 2^63 - 1, got another")
        if found[1]:
            self._tell(link, found[1], found[0])
        return found[0]

    def kind(self, link: Link) -> str:
        """Return what the links are called: by the standard, else by their name."""
        found = kind_of(link.words)
        if found:
            return "nvlink" if found == "c2c" else found
        if _WORD.fullmatch(link.description):
            return link.description
        base = link.name.rstrip("0123456789").rstrip("-_ ")
        return "" if base.lower() in ("link", "links", "") else base

    def of_edges(self, links: list[Link], number: Array, roles: Array, ends: Array, gpus: Gpus) -> tuple[Array, Array]:
        """Return bytes/s and picoseconds of each edge.

        Parameters
        ----------
        links
            Kinds of links.
        number
            Of the link, by edge.
        roles
            Places in `PRIORITY` of both ends, by edge.
        ends
            Nodes at both ends, by edge.
        gpus
            What the file says of the GPUs.

        Raises
        ------
        TopologyError
            If nobody says a bandwidth.
        """
        rate, latency = np.zeros(len(number), dtype=np.int64), np.zeros(len(number), dtype=np.int64)
        pairs = np.sort(roles, axis=1)
        keys = (number * len(PRIORITY) + pairs[:, 0]) * len(PRIORITY) + pairs[:, 1]
        nvlinks: list[Array] = []
        missing: dict[str, Link] = {}
        for group in _groups(keys):
            link = links[int(number[group[0]])]
            between = (PRIORITY[int(pairs[group[0], 0])], PRIORITY[int(pairs[group[0], 1])])
            fixed = self.fixed(link)
            standard = None if fixed else standard_of(link.words)
            latency[group] = self._latency(link, between)
            # a chip-to-chip link ends at no switch: what a file calls so there are NVLinks of the GPU
            if standard and standard.kind == "nvlink" and (not standard.rate or between == ("gpu", "switch")):
                nvlinks.append(group)
                continue
            found = fixed or (0 if standard is None else standard.rate)
            if standard and not found:
                texts = np.unique(gpus.number[ends[group]]).tolist()
                found = self._joined(standard.kind, between, [gpus.texts[text] for text in texts])
            if standard and found:
                self._tell(link, "a link between GPUs" if between == ("gpu", "gpu") else standard.text, found)
            rate[group] = found
            if not found:
                missing.setdefault(link.name, link)
        if nvlinks:
            self._nvlinks(links, number, ends, gpus, np.sort(np.concatenate(nvlinks)), rate, missing)
        if missing:
            self._refuse(list(missing.values()))
        return rate, latency

    def _joined(self, kind: str, between: tuple[str, str], words: list[str]) -> int:
        """Return what a link of CPUs has, or one of xGMI between GPUs."""
        if kind == "xgmi" and between == ("gpu", "gpu"):
            return min(map(xgmi_rate, words))
        return socket_rate(kind) if between == ("host", "host") else 0

    def _nvlinks(
        self,
        links: list[Link],
        number: Array,
        ends: Array,
        gpus: Gpus,
        edges: Array,
        rate: Array,
        missing: dict[str, Link],
    ) -> None:
        """Share the NVLinks of each GPU among its edges; what joins none that is known is one NVLink."""
        degree = np.bincount(ends[edges].ravel(), minlength=len(gpus.number))
        most = int(degree.max()) + 1
        kinds, kind = np.unique(gpus.number * most + degree, return_inverse=True)
        sides = np.sort(kind.reshape(-1)[ends[edges]], axis=1)
        for group in _groups((number[edges] * len(kinds) + sides[:, 0]) * len(kinds) + sides[:, 1]):
            link = links[int(number[edges[group[0]]])]
            known = [divmod(int(kinds[side]), most) for side in sides[group[0]].tolist()]
            found = self._nvlink(link, [(gpu_in(gpus.texts[text]), shared) for text, shared in known])
            if not found:
                missing.setdefault(link.name, link)
            rate[edges[group]] = found

    def _nvlink(self, link: Link, ends: list[tuple[Gpu | None, int]]) -> int:
        standard = standard_of(link.words) or Standard("nvlink", 0, "NVLink")
        known = [(gpu, degree) for gpu, degree in ends if gpu is not None and gpu.nvlinks]
        each = nvlink_rate(standard, known[0][0] if known else None)
        if not each:
            return 0
        if not known:
            self._tell(link, f"one {standard.text} an edge", each)
            return each
        shares = [(nvlink_rate(standard, gpu) * gpu.nvlinks // degree, gpu, degree) for gpu, degree in known]
        rate, gpu, degree = min(shares, key=lambda share: share[0])
        text = f"the {gpu.nvlinks} NVLinks of {gpu.family.upper()} shared by {degree} edges"
        self._tell(link, text, rate)
        return rate

    def _latency(self, link: Link, between: tuple[str, str]) -> int:
        if link.latency is not None:
            return link.latency
        kind = self.kind(link)
        if kind not in ("nvlink", "pcie", "ethernet", "infiniband", "upi", "qpi", "xgmi"):
            kind = "other links" if link.owner else "ethernet"  # between instances is the network
        found = latency_of(kind, between)
        name = "network" if kind in ("ethernet", "infiniband") else kind
        self.latencies[f"{name} between {between[0]} and {between[1]}" if name in ("network", "xgmi") else name] = found
        return found

    def _tell(self, link: Link, text: str, rate: int) -> None:
        self.told.setdefault(f"{link.name} is {text}, {rate_text(rate)}", "")

    def _refuse(self, links: list[Link]) -> None:
        link = links[0]
        others = ", ".join(shown_text(other.name) for other in links[1:6])
        also = f"; the same goes for {others}" if others else ""
        link.where.fail(
            f"expected a bandwidth of link {shown_text(link.name)} (physical), got none, nor a standard with its "
            f"generation in its description; give it: "
            f"--rate{'=' if link.name.startswith('-') else ' '}{shlex.quote(f'{link.name}=50GB/s')}{also}"
        )

    def sentences(self) -> list[str]:
        """Return what was assumed."""
        told = list(self.told)
        found = []
        if told:
            more = f" and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
            found.append(f"Bandwidths that the file does not give in bytes: {'; '.join(told[:MOST_TOLD])}{more}.")
        if self.latencies:
            times = ", ".join(f"{kind} {format_time(time)}" for kind, time in sorted(self.latencies.items()))
            found.append(f"Latencies are assumed where the file gives none: {times}.")
        return found


def _groups(keys: Array) -> list[Array]:
    """Return where equal keys are, by key."""
    if not len(keys):
        return []
    order = np.argsort(keys, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)
