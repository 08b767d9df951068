r"""The ``.topo`` files of htsim: fat trees of two or three tiers.

A line is a keyword and a number; capitals do not matter, ``#`` begins a comment. Before the first ``Tier`` stand
``Nodes``, ``Tiers`` (2 or 3) and ``Podsize`` (hosts of a pod), then for each tier of switches (0 ToR, 1 aggregation, 2
core) after ``Tier <k>``:

- ``Downlink_speed_Gbps`` and ``Downlink_Latency_ns`` of the links to the tier below, in each direction;
- ``Radix_Down`` and, but for the highest tier, ``Radix_Up``: links of a switch down and up;
- ``Bundle`` (1): parallel links to the same switch or host of the tier below;
- ``Oversubscribed`` (1): bandwidth down over bandwidth up;
- ``Switch_Latency_ns`` (0): what a message waits in such a switch. Here it is part of the latency of the links that
  leave the switch, so that a route takes as long as in htsim;
- ``Queue_Down``, ``Queue_Up``: sizes of buffers, which are without limit here; passed over.

The switches are wired as htsim does it: each ToR to all aggregation switches of its pod, aggregation switch i of every
pod to the cores i, i + n, i + 2n, ..., n being their number in a pod. With two tiers there is one pod. A radix that
does not fit is refused, unless htsim takes it: with tiers of different speeds it reckons the radix in bandwidth. What
stands of a tier above the highest is passed over. Which of equal paths a message takes, collsim decides, not the file.

Facts from the source of htsim, ``fat_tree_topology.cpp`` of github.com/Broadcom/csg-htsim (BSD-3-Clause).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from collsim.errors import did_you_mean, shown
from collsim.formats.source import Source, read_source
from collsim.topology.builder import assemble
from collsim.topology.graph import Topology
from collsim.topology.names import MAX_LINKS, MAX_NODES
from collsim.units import format_bandwidth

__all__ = ["parse_htsim", "read_htsim"]

Array = npt.NDArray[Any]

HEADER = ("Nodes", "Tiers", "Podsize")
NEEDED = ("Downlink_speed_Gbps", "Radix_Down", "Downlink_Latency_ns")
OPTIONAL = {"Radix_Up": 0, "Bundle": 1, "Oversubscribed": 1, "Switch_Latency_ns": 0, "Queue_Down": 0, "Queue_Up": 0}
KEYWORDS = {key.lower(): key for key in (*HEADER, "Tier", *NEEDED, *OPTIONAL)}
LEAST = {"Switch_Latency_ns": 0, "Downlink_Latency_ns": 0, "Queue_Down": 0, "Queue_Up": 0, "Tier": 0}
MOST = {"Tiers": 3, "Tier": 2, "Nodes": MAX_NODES, "Podsize": MAX_NODES, "Queue_Down": 2**62, "Queue_Up": 2**62}
MANY = 10**9
"""More than any speed in Gb/s, latency in ns or radix: what follows stays far below 64 bits."""

MAX_BYTES = 2**20
"""More than some twenty numbers and comments need."""

MAX_LINE = 1000
"""Letters of a line that are looked at."""

BYTES = 125_000_000
"""Bytes/s of 1 Gb/s."""


@dataclass
class Value:
    """A number with its place."""

    number: int
    line: int
    column: int


@dataclass
class Section:
    """The header, or a tier, as written.

    Attributes
    ----------
    source
        The text.
    title
        What messages call it.
    values
        Numbers by keyword.
    line
        Where it begins.
    """

    source: Source
    title: str
    values: dict[str, Value]
    line: int

    def __getitem__(self, key: str) -> int:
        found = self.values.get(key)
        return OPTIONAL[key] if found is None else found.number

    def fail(self, key: str, message: str) -> NoReturn:
        """Refuse one of the numbers."""
        found = self.values.get(key)
        line, column = (self.line, 1) if found is None else (found.line, found.column)
        self.source.fail(message, line, column, field=f"{self.title}, {key}" if self.title else key)

    def need(self, keys: tuple[str, ...]) -> None:
        """Refuse the section if a number is missing."""
        for key in keys:
            if key not in self.values:
                where = f"in {self.title}" if self.title else "before the first Tier"
                self.source.fail(f"expected {key} {where}, got none", self.line, 1)


def read_htsim(path: str | os.PathLike[str]) -> Topology:
    """Read a fat tree of htsim.

    Parameters
    ----------
    path
        A ``.topo`` file.

    Returns
    -------
    Topology
        Hosts are the ranks, in their order, as nodes of kind ``gpu``. Rates in bytes/s, latencies in ps.

    Raises
    ------
    TopologyError
        Not such a file: an unknown keyword, no number, one missing or given twice, or numbers that are not those of a
        fat tree; with the place.

    Examples
    --------
    >>> read_htsim("no/such.topo")
    Traceback (most recent call last):
    collsim.errors.TopologyError: no/such.topo: expected an htsim topology, got no such file
    """
    return parse_htsim(read_source(path, "an htsim topology", limit=MAX_BYTES))


def parse_htsim(source: Source) -> Topology:
    r"""Return the machine of a text; see `read_htsim`.

    Raises
    ------
    TopologyError
        As `read_htsim`.

    Examples
    --------
    >>> text = '''Nodes 4
    ... Tiers 2
    ... Podsize 4
    ... Tier 0
    ... Downlink_speed_Gbps 400
    ... Radix_Down 2
    ... Radix_Up 2
    ... Downlink_Latency_ns 500
    ... Tier 1
    ... Downlink_speed_Gbps 400
    ... Radix_Down 2
    ... Downlink_Latency_ns 500
    ... Switch_Latency_ns 100
    ... '''
    >>> topology = parse_htsim(Source("small.topo", text))
    >>> [topology.link_name(link) for link in topology.route(0, 3)]
    ['host[0]->tor[0]', 'tor[0]->agg[0]', 'agg[0]->tor[1]', 'tor[1]->host[3]']
    """
    header, tiers = _sections(source)
    counts = _counts(header, tiers)
    return _wired(source, header, tiers, counts)


def _sections(source: Source) -> tuple[Section, list[Section]]:
    header = Section(source, "", {}, 1)
    tiers: dict[int, Section] = {}
    here = header
    last = 1
    for number, line in source.lines():
        words = list(source.words(line.partition("#")[0][:MAX_LINE], number))
        if not words:
            continue
        last = number
        text, _, column = words[0]
        key = KEYWORDS.get(text.lower()) if len(text) <= 60 else None
        if key is None:
            hint = did_you_mean(text[:60], KEYWORDS.values())
            source.fail(f"expected a keyword such as Nodes or Radix_Down, got {shown(text[:60])}{hint}", number, column)
        value = _value(source, key, words, number)
        if key == "Tier":
            here = tiers.setdefault(value.number, Section(source, f"Tier {value.number}", {}, number))
            continue
        if (key in HEADER) != (here is header):
            where = "before the first Tier" if key in HEADER else "after a line such as Tier 0"
            source.fail(f"expected {key} {where}, got it here", number, column)
        if key in here.values:
            first = here.values[key]
            source.fail(f"expected one {key}, got a second one (the first is in line {first.line})", number, column)
        here.values[key] = value
    header.need(HEADER)
    n = header["Tiers"]
    for tier in range(n):
        if tier not in tiers:
            source.fail(f"expected Tier {tier}, Tiers being {n}, got none", last, 1)
    for tier in range(n):
        tiers[tier].need(NEEDED if tier == n - 1 else (*NEEDED, "Radix_Up"))
    if "Radix_Up" in tiers[n - 1].values and n == 3:
        tiers[2].fail("Radix_Up", "expected no links up from the highest tier")
    return header, [tiers[tier] for tier in range(n)]  # what stands of a tier above, htsim does not use


def _value(source: Source, key: str, words: list[tuple[str, int, int]], line: int) -> Value:
    if len(words) == 1:
        source.fail(f"expected a whole number after {key}, got none", line, words[0][2] + len(words[0][0]))
    text, _, column = words[1]
    least, most = LEAST.get(key, 2 if key == "Tiers" else 1), MOST.get(key, MANY)
    if not re.fullmatch(r"\+?[0-9]{1,19}", text) or not least <= int(text) <= most:
        source.fail(
            f"expected a whole number from {least:,} to {most:,}, got {shown(text[:60])}", line, column, field=key
        )
    if len(words) > 2:
        source.fail(f"expected one number after {key}, got {shown(words[2][0][:60])} too", line, words[2][2], field=key)
    return Value(int(text), line, column)


def _counts(header: Section, tiers: list[Section]) -> tuple[int, int, int]:
    """Check the numbers against each other, and return ToRs of a pod, aggregation switches of a pod, and cores."""
    nodes, podsize = header["Nodes"], header["Podsize"]
    tor, agg = tiers[:2]
    if nodes % podsize:
        header.fail("Podsize", f"expected a divisor of the {nodes:,} Nodes, got {podsize:,}")
    pods = nodes // podsize
    if len(tiers) == 2 and pods > 1:
        header.fail("Podsize", f"expected all {nodes:,} Nodes in one pod, there being 2 Tiers, got {podsize:,}")
    if tor["Bundle"] != 1:
        tor.fail("Bundle", f"expected 1, hosts having one link, got {tor['Bundle']:,}")
    if podsize % tor["Radix_Down"]:
        tor.fail("Radix_Down", f"expected a divisor of the Podsize {podsize:,}, got {tor['Radix_Down']:,}")
    for tier, above in pairwise(tiers):
        if tier["Radix_Up"] % above["Bundle"]:
            got = f"got {tier['Radix_Up']:,}"
            tier.fail("Radix_Up", f"expected a multiple of the Bundle {above['Bundle']:,} of {above.title}, {got}")
    tors = podsize // tor["Radix_Down"]
    aggs = tor["Radix_Up"] // agg["Bundle"]
    cores = 0
    if len(tiers) == 3:
        up, bundle = agg["Radix_Up"], tiers[2]["Bundle"]
        cores = aggs * (up // bundle)
    if not _htsim_takes_it(nodes, pods, aggs, cores, tiers):
        _check_radix(agg, tors * agg["Bundle"], f"{tors:,} ToRs of a pod and Bundle {agg['Bundle']:,}")
        if len(tiers) == 3:
            bundle = tiers[2]["Bundle"]
            _check_radix(tiers[2], pods * bundle, f"{pods:,} pods and Bundle {bundle:,}")
        for tier, above in pairwise(tiers):
            _check_ratio(tier, above)
    return tors, aggs, cores


def _htsim_takes_it(nodes: int, pods: int, aggs: int, cores: int, tiers: list[Section]) -> bool:
    """Whether the numbers pass the checks of htsim, which compares bandwidths where tiers differ in speed."""
    tor, agg = tiers[:2]
    if tor["Radix_Down"] // tor["Radix_Up"] != tor["Oversubscribed"]:
        return False
    speeds = [tier["Downlink_speed_Gbps"] for tier in tiers]
    up = Fraction(nodes * speeds[0], speeds[1] * tor["Oversubscribed"])
    if up != aggs * pods * agg["Radix_Down"]:
        return False
    if len(tiers) == 2:
        return True
    return up * speeds[1] == cores * tiers[2]["Radix_Down"] * speeds[2] * agg["Oversubscribed"]


def _check_radix(tier: Section, wired: int, why: str) -> None:
    if tier["Radix_Down"] != wired:
        tier.fail("Radix_Down", f"expected {wired:,}, for {why}, got {tier['Radix_Down']:,}")


def _check_ratio(tier: Section, above: Section) -> None:
    down = tier["Radix_Down"] * tier["Downlink_speed_Gbps"]
    ratio = Fraction(down, tier["Radix_Up"] * above["Downlink_speed_Gbps"])
    links = f"{tier['Radix_Down']:,} x {tier['Downlink_speed_Gbps']:,} Gb/s going down and "
    links += f"{tier['Radix_Up']:,} x {above['Downlink_speed_Gbps']:,} Gb/s up"
    if ratio.denominator != 1:
        tier.fail("Radix_Up", f"expected a whole number of times the bandwidth up to go down, got {links}")
    if ratio != tier["Oversubscribed"]:
        got = f"got {tier['Oversubscribed']:,}" + (
            "" if "Oversubscribed" in tier.values else ", which it is if left out"
        )
        tier.fail("Oversubscribed", f"expected {ratio}, {links}, {got}")


def _wired(source: Source, header: Section, tiers: list[Section], counts: tuple[int, int, int]) -> Topology:
    nodes, pods = header["Nodes"], header["Nodes"] // header["Podsize"]
    tors_in_pod, aggs_in_pod, cores = counts
    tors, aggs = tors_in_pod * pods, aggs_in_pod * pods
    links = nodes + tors * tiers[0]["Radix_Up"] + (aggs * tiers[1]["Radix_Up"] if cores else 0)
    for what, number, most in (("nodes", nodes + tors + aggs + cores, MAX_NODES), ("links", 2 * links, MAX_LINKS)):
        if number > most:
            header.fail("Nodes", f"expected at most {most:,} {what} in all, got {number:,}")
    first_tor, first_agg, first_core = nodes, nodes + tors, nodes + tors + aggs
    host, tor, agg = np.arange(nodes), np.arange(tors), np.arange(aggs)
    ends = [
        (host, first_tor + host // tiers[0]["Radix_Down"]),
        _every(first_tor + tor, first_agg + tor // tors_in_pod * aggs_in_pod, np.arange(aggs_in_pod)),
    ]
    if cores:
        ends.append(_every(first_agg + agg, first_core + agg % aggs_in_pod, np.arange(0, cores, aggs_in_pod)))
    columns = []
    wait_below = 0  # a message leaves a host at once
    for tier, (low, high) in zip(tiers, ends, strict=True):
        low, high = np.repeat(low, tier["Bundle"]), np.repeat(high, tier["Bundle"])
        rate, wire, wait = (tier[key] for key in ("Downlink_speed_Gbps", "Downlink_Latency_ns", "Switch_Latency_ns"))
        for src, dst, leaving in ((low, high, wait_below), (high, low, wait)):
            values = (np.full_like(src, rate * BYTES), np.full_like(src, (wire + leaving) * 1000))
            columns.append(np.stack([src, dst, *values]))
        wait_below = wait
    src, dst, bandwidth, latency = np.concatenate(columns, axis=1)
    names = {"host": nodes, "tor": tors, "agg": aggs, "core": cores}
    return assemble(
        source.title,
        [f"{kind}[{i}]" for kind, count in names.items() for i in range(count)],
        ["gpu"] * nodes + ["switch"] * (tors + aggs + cores),
        src,
        dst,
        bandwidth,
        latency,
        link_kinds=("ethernet",),
        structure={"kind": "fat_tree", "tiers": len(tiers), "pods": pods},
        description=_description(nodes, pods, tors, aggs, cores, tiers),
        source=f"The htsim topology {source.file}, wired as in csg-htsim (fat_tree_topology.cpp).",
        devices={"forwards": np.arange(nodes + tors + aggs + cores) >= nodes},
    )


def _every(low: Array, high: Array, steps: Array) -> tuple[Array, Array]:
    """Join each of the lower nodes to its first upper one and those some steps further on."""
    return np.repeat(low, len(steps)), (high[:, None] + steps).ravel()


def _description(nodes: int, pods: int, tors: int, aggs: int, cores: int, tiers: list[Section]) -> str:
    rates = ", ".join(format_bandwidth(tier["Downlink_speed_Gbps"] * BYTES) for tier in tiers)
    switches = f"{tors:,} ToR" + (
        f", {aggs:,} aggregation and {cores:,} core" if cores else f" and {aggs:,} aggregation"
    )
    text = (
        f"A fat tree of {len(tiers)} tiers: {nodes:,} hosts in {pods:,} pod{'s' if pods != 1 else ''}, {switches} "
        f"switches. Links from the hosts upwards have {rates}. Hosts are the ranks, a GPU each. Buffers are without "
        "limit."
    )
    if any(tier["Switch_Latency_ns"] for tier in tiers):
        text += " The latency of a switch is part of that of the links that leave it."
    return text
