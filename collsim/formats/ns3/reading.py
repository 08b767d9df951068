"""The first line of both formats, and the topology of what follows it."""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.formats.ns3.lines import NUMBER, Head, how_many, links_of, refuse_word, switches_of
from collsim.formats.source import Source, read_source
from collsim.topology.builder import assemble
from collsim.topology.graph import Topology
from collsim.topology.names import MAX_LINKS, MAX_NODES, shown_text

__all__ = ["parse_ns3", "parse_simai", "read_ns3", "read_simai"]

Array = npt.NDArray[Any]

_GPU = re.compile(r"[A-Za-z0-9_.+-]{1,40}")


def read_ns3(path: str | os.PathLike[str]) -> Topology:
    """Read a topology of ASTRA-sim's or HPCC's ns-3 back end.

    Parameters
    ----------
    path
        The file. Nodes are called ``gpu[0]`` and ``switch[16]``, with the numbers that the file has.

    Returns
    -------
    Topology
        GPUs do not forward, as in the simulator; each line is two links, one each way.

    Raises
    ------
    TopologyError
        With the line and column of what is missing, too much, or no number of a node, no rate or no delay.

    Examples
    --------
    >>> read_ns3("no/such.txt")
    Traceback (most recent call last):
    collsim.errors.TopologyError: no/such.txt: expected an ns-3 topology, got no such file
    """
    return parse_ns3(read_source(path, "an ns-3 topology"))


def read_simai(path: str | os.PathLike[str]) -> Topology:
    """Read a topology of SimAI, as its ``gen_Topo_Template.py`` writes them.

    Parameters
    ----------
    path
        The file. Where NVSwitches join the GPUs of one server only, nodes are called ``node[1].gpu[9]`` and
        ``node[1].nvswitch[17]``, so that algorithms know the servers; others ``gpu[9]``, ``nvswitch[17]`` and
        ``switch[18]``. The last number is always the one that the file has.

    Returns
    -------
    Topology
        As that of `read_ns3`; links of NVSwitches are of kind ``nvlink``, others ``ethernet``.

    Raises
    ------
    TopologyError
        As `read_ns3`.

    Examples
    --------
    >>> read_simai("no/such.topo")
    Traceback (most recent call last):
    collsim.errors.TopologyError: no/such.topo: expected a SimAI topology, got no such file
    """
    return parse_simai(read_source(path, "a SimAI topology"))


def parse_ns3(source: Source) -> Topology:
    r"""Return the topology of the text of an ns-3 topology; see `read_ns3`.

    Examples
    --------
    >>> text = "3 1 2\n2\n0 2 100Gbps 1us 0\n1 2 100Gbps 1us 0\n"
    >>> topology = parse_ns3(Source("pair.txt", text))
    >>> topology
    <Topology 'pair': 2 ranks, 3 nodes, 4 links of 12.5GB/s>
    >>> [topology.link_name(link) for link in topology.route(0, 1)]
    ['gpu[0]->switch[2]', 'switch[2]->gpu[1]']
    """
    source = _without_comments(source)
    words, line = _first_line(source, "nodes, switches and links")
    if len(words) != 3:
        hint = "; is it a SimAI topology (--from simai)?" if len(words) in (5, 6) else ""
        refuse_word(source, line, 0, f"expected three numbers (nodes, switches, links), got {how_many(words)}{hint}")
    nodes, switches, links = (_count(source, line, place, word) for place, word in enumerate(words))
    return _topology(source, Head(line, nodes, 0, switches, links), "ns-3")


def parse_simai(source: Source) -> Topology:
    r"""Return the topology of the text of a SimAI topology; see `read_simai`.

    Examples
    --------
    >>> text = "5 2 1 2 4 H100\n2 3 4\n0 2 3600Gbps 25ns 0\n1 2 3600Gbps 25ns 0\n0 3 400Gbps 1us 0\n1 4 400Gbps 1us 0"
    >>> topology = parse_simai(Source("two.topo", text))
    >>> topology.nodes, topology.link_kind(0)
    (('gpu[0]', 'gpu[1]', 'nvswitch[2]', 'switch[3]', 'switch[4]'), 'nvlink')
    """
    source = _without_comments(source)
    words, line = _first_line(source, "nodes, GPUs a server, NVSwitches, switches, links and the type of the GPUs")
    if len(words) not in (5, 6):
        hint = "; is it an ns-3 topology (--from ns3)?" if len(words) == 3 else ""
        expected = "five numbers (nodes, GPUs a server, NVSwitches, switches, links) and a type of GPU"
        refuse_word(source, line, 0, f"expected {expected}, got {how_many(words)}{hint}")
    nodes, per_server, nvswitches, switches, links = (
        _count(source, line, place, word) for place, word in enumerate(words[:5])
    )
    if not per_server:
        refuse_word(source, line, 1, "expected at least one GPU a server, got 0")
    if len(words) == 6 and not _GPU.fullmatch(words[5]):
        refuse_word(source, line, 5, f"expected a type of GPU such as H100, got {shown_text(words[5])}")
    return _topology(source, Head(line, nodes, nvswitches, switches, links, per_server, "".join(words[5:])), "SimAI")


def _without_comments(source: Source) -> Source:
    return Source(source.name, re.sub("#.*", "", source.text))


def _first_line(source: Source, expected: str) -> tuple[list[str], int]:
    for number, line in source.lines():
        if words := line.split(None, 8):  # a few words more than there may be
            return words, number
    source.fail(f"expected {expected}, got an empty file", 1, 1)


def _count(source: Source, line: int, place: int, word: str) -> int:
    if not NUMBER.fullmatch(word):
        refuse_word(source, line, place, f"expected a whole number, got {shown_text(word)}")
    return int(word)


def _topology(source: Source, head: Head, tool: str) -> Topology:
    listed = head.nvswitches + head.switches
    for wrong, text in (
        (head.nodes > MAX_NODES, f"expected at most {MAX_NODES:,} nodes, got {head.nodes:,}"),
        (head.links > MAX_LINKS // 2, f"expected at most {MAX_LINKS // 2:,} links each way, got {head.links:,}"),
        (listed >= head.nodes, f"expected fewer switches than nodes, got {listed:,} of {head.nodes:,}"),
        (
            head.nodes > max(1, 2 * head.links),
            f"expected a link at each of {head.nodes:,} nodes, got {head.links:,} links",
        ),
    ):
        if wrong:
            source.fail(text, head.line, 1)
    lines = source.text.split("\n")
    ids, after = switches_of(source, lines, head, listed)
    ends, bandwidth, latency, lossy = links_of(source, lines, after, head)
    kind = np.zeros(head.nodes, dtype=np.int8)  # 0 GPU, 1 switch, 2 NVSwitch
    kind[ids] = 1
    kind[ids[: head.nvswitches]] = 2
    names, fits = _names(head, kind, ends)
    nvlink = (kind[ends] == 2).any(axis=1)  # in ns-3 files there is none
    return assemble(
        source.title,
        names,
        [("gpu", "switch", "switch")[code] for code in kind.tolist()],
        ends.ravel(),
        ends[:, ::-1].ravel(),
        np.repeat(bandwidth, 2),
        np.repeat(latency, 2),
        link_kinds=("ethernet", "nvlink") if nvlink.any() else ("ethernet",),
        link_kind_codes=np.repeat(nvlink.astype(np.int32), 2),
        description=_description(head, int((kind == 0).sum()), tool, fits, lossy),
        source=f"{tool} topology {source.file}",
        devices={"forwards": kind > 0},
    )


def _description(head: Head, gpus: int, tool: str, fits: bool, lossy: tuple[int, float]) -> str:
    made = f" ({head.gpu_type})" if head.gpu_type else ""
    server = f", {head.gpus_per_server:,} a server" if head.gpus_per_server else ""
    nvswitches = (
        f"{head.nvswitches:,} NVSwitch{'es' if head.nvswitches > 1 else ''} and " if head.nvswitches else "and "
    )
    switches = f"{head.switches:,} switch{'es' if head.switches != 1 else ''}"
    parts = [f"{tool} network: {gpus:,} GPU{'s' if gpus > 1 else ''}{made}{server}, {nvswitches}{switches}."]
    parts.append("GPUs do not forward. Latencies are the propagation of each link; switches add none.")
    if not fits:
        parts.append("Its NVSwitches join GPUs of several servers, so the servers are left out of the names.")
    count, worst = lossy
    if count:
        parts.append(
            f"In the file packets are lost on {count:,} of the links (a share of {worst:g} at most), here none."
        )
    return " ".join(parts)


def _names(head: Head, kind: Array, ends: Array) -> tuple[list[str], bool]:
    """Return the names of the nodes, and whether each NVSwitch joins GPUs of one server only."""
    names = [f"{('gpu', 'switch', 'nvswitch')[code]}[{i}]" for i, code in enumerate(kind.tolist())]
    gpus = np.flatnonzero(kind == 0)
    if not head.nvswitches:
        return names, True
    server = np.full(len(kind), -1)
    server[gpus] = np.arange(len(gpus)) // head.gpus_per_server
    both = np.concatenate([ends, ends[:, ::-1]])
    gpu, nvswitch = both[(kind[both[:, 0]] == 0) & (kind[both[:, 1]] == 2)].T
    server[nvswitch] = server[gpu]
    if (server[nvswitch] != server[gpu]).any():
        return names, False
    if len(gpus) > head.gpus_per_server > 1:
        for node in np.flatnonzero(server >= 0).tolist():
            names[node] = f"node[{server[node]}].{names[node]}"
    return names, True
