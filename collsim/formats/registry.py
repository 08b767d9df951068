"""The formats by name: which function reads each, which writes it, and how a file tells what it is.

A format is recognised by what stands in the file, not by its name: ``.xml``, ``.yml`` and ``.txt`` say little. The name
decides only where a file is written, and where its content fits nothing.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from collsim.errors import InputError, TopologyError, one_of, shown
from collsim.formats.loglines import ESCAPES
from collsim.outputs import output_path, write_whole
from collsim.topology.graph import Topology

__all__ = [
    "FORMATS",
    "WRITTEN",
    "Format",
    "format_of_path",
    "format_topology",
    "read_topology",
    "sniff",
    "write_topology",
]

HEAD = 1 << 16
"""Bytes at the beginning of a file by which it is recognised."""


@dataclass(frozen=True)
class Format:
    """A format of topologies.

    Attributes
    ----------
    title
        What messages call it.
    suffixes
        Ends of names, in small letters; the first is the usual one.
    reader, writer
        ``module:function`` that reads a path, and that returns a topology as text; empty if there is none.
    leaves_out
        Attributes of devices that the text does not have.
    has_json
        Whether the writer can be told ``as_json``, which a name that ends in ``.json`` does.
    """

    title: str
    suffixes: tuple[str, ...]
    reader: str
    writer: str = ""
    leaves_out: tuple[str, ...] = ()
    has_json: bool = False

    @property
    def read(self) -> Callable[..., Topology]:
        """The function that reads a file of this format."""
        return _function(self.reader)

    @property
    def options(self) -> tuple[str, ...]:
        """What the reader can be told besides the path."""
        parameters = inspect.signature(self.read).parameters.values()
        return tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)


FORMATS = {
    "collsim": Format(
        "a collsim topology",
        (".yaml", ".yml"),
        "collsim.topology.loading:read_file",
        "collsim.topology.writing:format_topology",
    ),
    "nccl": Format("an NCCL topology", (".xml",), "collsim.formats.nccl:read_nccl"),
    "nvidia_smi": Format("a table of nvidia-smi topo -m", (".txt",), "collsim.formats.nvidia_smi:read_nvidia_smi"),
    "infragraph": Format(
        "an InfraGraph document",
        (".infragraph.yaml", ".infragraph.yml", ".infragraph.json"),
        "collsim.formats.infragraph:read_infragraph",
        "collsim.formats.infragraph:format_infragraph",
        ("send_overhead", "reduce_bandwidth", "channel_bandwidth", "reduces", "multicasts"),
        has_json=True,
    ),
    "simai": Format("a SimAI topology", (".simai",), "collsim.formats.ns3:read_simai"),
    "ns3": Format("an ns-3 topology", (".ns3",), "collsim.formats.ns3:read_ns3"),
    "astra_sim": Format(
        "an ASTRA-sim network",
        (".astra.yml", ".astra.yaml"),
        "collsim.formats.astra_sim:read_astra_sim",
        "collsim.formats.astra_sim:format_astra_sim",
        ("reduces", "multicasts"),
    ),
    "simgrid": Format(
        "a SimGrid platform",
        (".simgrid.xml", ".platform.xml", ".xml"),
        "collsim.formats.simgrid:read_simgrid",
        "collsim.formats.simgrid:format_simgrid",
        ("reduces", "multicasts"),
    ),
    "htsim": Format("an htsim topology", (".topo",), "collsim.formats.htsim:read_htsim"),
    "taccl": Format("a TACCL topology", (".json",), "collsim.formats.taccl:read_taccl"),
    "graphml": Format(
        "a GraphML graph",
        (".graphml",),
        "collsim.formats.graphml:read_graphml",
        "collsim.formats.graphml:format_graphml",
    ),
}
"""The formats of topologies by name."""


def read_topology(path: str | os.PathLike[str], format: str | None = None, **options: Any) -> Topology:
    """Read a topology in any format that collsim knows.

    Parameters
    ----------
    path
        The file.
    format
        A name in ``FORMATS``; found by the content of the file if not given.
    options
        What the reader of the format takes besides the path, such as ``gpu="h100"`` for partial NCCL files.

    Raises
    ------
    TopologyError
        If there is no such file, or it is not what it seems to be; with its place.
    InputError
        For an unknown format, or an option that its reader does not take.

    Examples
    --------
    >>> read_topology("no/such.yaml")
    Traceback (most recent call last):
    collsim.errors.TopologyError: no/such.yaml: expected a topology file, got no such file
    """
    if format is None:
        head = _head(path)
        name = sniff_text(head)
        if name is None:
            _refuse_others(head, path)
            name = "collsim"  # whose reader says best what is wrong
    else:
        name = one_of("format", format, FORMATS)
    known = FORMATS[name].options if options else ()
    for option in options:
        if option not in known:
            able = ", ".join(other for other in FORMATS if option in FORMATS[other].options)
            hint = f"that is for {able}" if able else f"it takes {', '.join(known) or 'no options'}"
            raise InputError(f"{option}: {os.fspath(path)} is {FORMATS[name].title}, which has no such option; {hint}")
    return FORMATS[name].read(path, **options)


def write_topology(topology: Topology, path: str | os.PathLike[str], format: str | None = None) -> str:
    """Write a topology in the format that the name of the file asks for, or in the one given, and return its name.

    Raises
    ------
    InputError
        If the name ends in nothing that can be written, or the file cannot be.
    TopologyError
        If the format cannot say what the topology is.

    Examples
    --------
    >>> import collsim.topology
    >>> ring = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    >>> write_topology(ring, "ring.docx")
    Traceback (most recent call last):
    collsim.errors.InputError: ring.docx: expected a name that ends in ... or the format itself (--to), got '.docx'
    """
    name = format_of_path(path) if format is None else one_of("format", format, WRITTEN)
    target = output_path(path, "topology", ("",))  # any name will do where the format is given
    as_json = FORMATS[name].has_json and os.fspath(path).lower().endswith(".json")
    write_whole(target, format_topology(topology, name, as_json=as_json).encode(), "topology")
    return name


def format_topology(topology: Topology, format: str, **options: Any) -> str:
    """Return a topology as the text of a format.

    Raises
    ------
    TopologyError
        If the format cannot say what the topology is.

    Examples
    --------
    >>> import collsim.topology
    >>> print(format_topology(collsim.topology.switch(4, bandwidth="1GiB/s", latency="1us"), "astra_sim"), end="")
    # switch: 4 NPUs
    topology: [ Switch ]
    npus_count: [ 4 ]
    bandwidth: [ 1.0 ]  # GB/s of 2^30 bytes
    latency: [ 1000.0 ]  # ns
    """
    given = {key: value for key, value in options.items() if value}
    return str(_function(FORMATS[one_of("format", format, WRITTEN)].writer)(topology, **given))


WRITTEN = tuple(name for name, format in FORMATS.items() if format.writer)


def format_of_path(path: str | os.PathLike[str]) -> str:
    """Return the format that is written into a file of this name.

    Raises
    ------
    InputError
        If none is.

    Examples
    --------
    >>> format_of_path("torus.graphml"), format_of_path("machine.YAML"), format_of_path("net.astra.yml")
    ('graphml', 'collsim', 'astra_sim')
    """
    name = os.fspath(path).lower()
    ends = {suffix: key for key in WRITTEN for suffix in FORMATS[key].suffixes}
    for suffix in sorted(ends, key=len, reverse=True):
        if name.endswith(suffix):
            return ends[suffix]
    got = shown(Path(name).suffix) if Path(name).suffix else "none of them"
    raise InputError(
        f"{os.fspath(path)}: expected a name that ends in {', '.join(ends)}, or the format itself (--to), got {got}"
    )


def sniff(path: str | os.PathLike[str]) -> str | None:
    """Return the name of the format that a file is in, by its first bytes; None if it is none that is known.

    A file that cannot be read is none that is known: its reader says why.
    """
    return sniff_text(_head(path))


def _head(path: str | os.PathLike[str]) -> str:
    """Return the first bytes of a regular file as text, nothing of any other."""
    try:
        if not os.path.isfile(path):
            return ""
        with open(path, "rb") as stream:
            head = stream.read(HEAD)
    except (OSError, ValueError, TypeError):
        return ""
    return ESCAPES.sub("", head.decode("utf-8-sig", errors="replace")).replace("\r", "\n").lstrip()


def sniff_text(head: str) -> str | None:
    """Return the name of the format of a text, by its beginning.

    Examples
    --------
    >>> sniff_text("<?xml version='1.0'?><!-- ours --><system version='1'>")
    'nccl'
    >>> sniff_text("90 8 2 72 544 A100"), sniff_text("topology: [ Ring ]"), sniff_text("name: ring8")
    ('simai', 'astra_sim', 'collsim')
    """
    if head.startswith("<"):
        return _ROOTS.get(_root(head))
    if head.startswith("{"):
        keys = set(re.findall(r'"([^"\n]{1,60})"\s*:', head))
    else:
        keys = set(re.findall(r"^([A-Za-z_][\w-]*)\s*:", head, re.M))
    ours = keys & {"name", "nodes", "links", "generator", "modules"}
    if not ours and re.search(r"^\W*GPU0\s+(?:GPU1|NIC\d|mlx|CPU|NUMA)", head, re.M):
        return "nvidia_smi"
    words = next((words for words in (line.split("#")[0].split() for line in head.split("\n")) if words), [])
    if len(words) in (3, 5, 6) and all(re.fullmatch(r"[0-9]+", word) for word in words[:5]):
        return "ns3" if len(words) == 3 else "simai"
    if len(words) == 2 and words[0].lower() in ("nodes", "tiers", "podsize"):
        return "htsim"
    if "npus_count" in keys or ("topology" in keys and not ours):
        return "astra_sim"
    if keys & {"infrastructure", "devices", "instances", "components"}:
        return "infragraph"
    if keys & {"gpus_per_node", "node_betas_list", "node_invbws_list"}:
        return "taccl"
    return "collsim" if ours else None


_ROOTS = {"system": "nccl", "platform": "simgrid", "graphml": "graphml"}

_OTHERS = {
    r"<algo\b": "an MSCCL algorithm, which is no topology",
    r"<graphs?\b": "the rings that NCCL chose; the machine is what NCCL_TOPO_DUMP_FILE writes",
    r"(?s:.*?)#\s*nThread \d": "a log of nccl-tests; collsim compare --measured reads it",
    r"num_ranks\s+\d": "a GOAL schedule, which is no topology",
    r'\{[^{}]*"scheduling-policy"': "a system file of ASTRA-sim; the machine is in its network file (.yml)",
    r"(?s:.*?)(?:^|\n)(?:collective_type|all_?reduce|all_?gather|reduce_?scatter|reduce|broadcast),[\w,-]+\n": (
        "a configuration of NCCL's tuner, which is no topology"
    ),
    r"(?:HYBRID|MICRO|DATA|MODEL)\w*\b.*\n\s*\d+\s*\n": "a workload of ASTRA-sim, which is no topology",
    r"/\*.*\*/|(?:strict )?(?:di)?graph\b.*\{": "a DOT graph; NetworkX reads it, and writes GraphML",
    r"[=\s]*ROCm System Management": "a table of rocm-smi; write a topology file as topologies/mi300x.yaml is",
}
"""What files that are no topologies begin with, and what to say of them."""


def _refuse_others(head: str, path: str | os.PathLike[str]) -> None:
    body = head[_start(head) :] if head.startswith("<") else head
    for pattern, what in _OTHERS.items():
        if re.match(pattern, body):
            raise TopologyError(f"expected a topology file, got {what}", path=os.fspath(path))
    if head.startswith("<"):
        got = (
            f"the root <{_root(head)}>"
            if _root(head)
            else "no root element near the beginning; --from names the format"
        )
        raise TopologyError(
            f"expected the XML of an NCCL topology (<system>), a SimGrid platform or a GraphML graph, got {got}",
            path=os.fspath(path),
            line=head.count("\n", 0, _start(head)) + 1,
        )


def _start(head: str) -> int:
    """Return where the root element of an XML text begins, past comments, declarations and a DOCTYPE."""
    start = 0
    while (start := head.find("<", start)) >= 0:
        for opened, closed in (("<!--", "-->"), ("<?", "?>"), ("<!", ">")):
            if head.startswith(opened, start):
                found = head.find(closed, start + len(opened))
                if found < 0:
                    return len(head)
                start = found + len(closed)
                break
        else:
            return start
    return len(head)


def _root(head: str) -> str:
    """Return the name of the root element, without its namespace."""
    root = re.compile(r"<(?:\w{1,50}:)?(\w{1,50})").match(head, _start(head))
    return root[1] if root else ""


def _function(reference: str) -> Callable[..., Any]:
    module, name = reference.split(":")
    return getattr(import_module(module), name)  # type: ignore[no-any-return]
