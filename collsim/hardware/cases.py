"""A cluster out of the ``hardware`` block of a file of measurements: words and figures that people wrote down.

Words are taken as broadly as they are unambiguous; what is not stated and cannot be told from the rest is refused in
words, and so are figures that contradict each other or the catalogue. What was taken for granted is in `Cluster.notes`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from collsim.errors import InputError, shown
from collsim.hardware import catalogue
from collsim.hardware.clusters import part
from collsim.hardware.fabrics import adapters
from collsim.hardware.model import Cluster, Gpu, Node
from collsim.hardware.servers import board_of, server_of
from collsim.hardware.words import find_gpu, split_words

__all__ = ["from_case"]

MOST_RANKS = 1_000_000
TOLERANCE = 0.15
"""How far the stated bandwidth of a GPU may be from that of its links (450 and 448, 56.25 and 50)."""

_NOTHING = frozenset({"", "none", "null", "n/a", "na", "-"})
_SHM = re.compile(
    r"\bshm\b|host[ -]memory|no[ -](?:p2p|peer)|p2p[ -](?:off|disabled)|without[ -]p2p|shared[ -]memory|through[ -]host"
)
_PCIE = re.compile(r"pci[ -]?e|\bphb\b|\bpix\b|\bpxb\b|\bnode\b(?! type)|\bsys\b")
_GENERATION = re.compile(r"(?:pci[ -]?e|gen)[ -]*(?:gen)?[ -]*([3-6])(?:\.0)?\b")
_LANES = re.compile(r"\bx([1248]|16)\b")
_SWITCHED = re.compile(r"nv[ -]?switch|nvl(?:ink)?[ -]?(?:72|36|[0-9] nvl72)|\bnvls\b|mnnvl|\bsxm\b")
_BRIDGE = re.compile(r"bridge|pairwise|\bpairs?\b(?!\))")
_CROSSING = re.compile(r"\b(?:per|a|each) pair")
_DIRECT = re.compile(r"all[ -]to[ -]all|fully[ -]connected|quad|point[ -]to[ -]point|direct")
_CUBE = re.compile(r"cube|mesh|dgx-1\b")


def from_case(hardware: Mapping[str, Any]) -> Cluster:
    """Return the cluster that a ``hardware`` block describes.

    Parameters
    ----------
    hardware
        ``gpu`` (words), ``gpus_per_node``, ``nodes``, ``ranks`` (two of them will do), ``intra_link`` (words),
        ``intra_GBps_per_gpu_unidir``, ``nic_count_per_node``, ``nic_Gbps_each``, ``nic_Gbps_per_node`` and ``fabric``
        (words). Other fields are passed over.

    Returns
    -------
    Cluster
        Rates in bytes/s.

    Raises
    ------
    InputError
        With the field: what is not stated, not known, or contradicts the rest.

    Examples
    --------
    >>> cluster = from_case({"gpu": "H100 SXM5 80 GB", "gpus_per_node": 8, "nodes": 2,
    ...                      "intra_link": "NVLink4 + NVSwitch", "nic_count_per_node": 8, "nic_Gbps_each": 400,
    ...                      "fabric": "InfiniBand NDR"})
    >>> str(cluster)
    '2 x hgx-h100 @ 8x400Gb infiniband'
    >>> from_case({"gpu": "H100", "gpus_per_node": 8, "nodes": 2, "intra_link": "NVSwitch", "fabric": "InfiniBand"})
    Traceback (most recent call last):
    collsim.errors.InputError: hardware.nic_count_per_node: expected the number of adapters of a node, got nothing
    """
    if not isinstance(hardware, Mapping):
        raise InputError(f"hardware: expected a mapping with gpu, nodes and ranks, got {shown(hardware)}")
    notes: list[str] = []
    gpu = _gpu(hardware, notes)
    nodes, gpus = _counts(hardware)
    named = _named(hardware, gpu)
    node = named or _node(hardware, gpu, gpus, notes)
    hosts = _hosts(hardware, node, nodes, gpus)
    if hosts > 1:
        nodes, gpus = nodes // hosts, gpus * hosts
        notes.append(f"NVLink joins {hosts} hosts to one {node.name}.")
    if gpus > node.gpus:
        _fail("gpus_per_node", f"expected at most the {node.gpus} GPUs of {node.name}, got {gpus}")
    _check_links(hardware, node, gpus)
    whole = Cluster(node, nodes, node.gpus, node.nic, node.nic_bandwidth, node.nics, node.transport, tuple(notes))
    if nodes == 1:
        return part(whole, gpus)
    return adapters(hardware, replace(whole, gpus=gpus), named is not None, hosts)


def _fail(name: str, message: str) -> NoReturn:
    raise InputError(f"hardware.{name}: {message}")


def _text(hardware: Mapping[str, Any], name: str) -> str:
    value = hardware.get(name)
    text = "" if value is None else str(value).strip().lower()
    return "" if text in _NOTHING else text


def _gpu(hardware: Mapping[str, Any], notes: list[str]) -> Gpu:
    text = hardware.get("gpu")
    if not isinstance(text, str) or not text.strip():
        _fail("gpu", f"expected a GPU such as H100 SXM 80GB, got {'nothing' if text is None else shown(text)}")
    words = split_words(text)
    found = find_gpu(words, catalogue.families())
    if found is None:
        try:
            catalogue.gpu(text)
        except InputError as error:
            _fail("gpu", str(error).removeprefix("gpu: "))
        raise AssertionError("unreachable")  # pragma: no cover
    gpu, left = found
    if gpu.family == "h100" and gpu.form in ("pcie", "nvl") and {"nvl", "pcie"} <= set(words):
        notes.append(f"H100 NVL or PCIe is taken as {gpu.name}.")
    sizes = [word for word in left if re.fullmatch(r"[0-9]+gb", word)]
    if sizes:
        notes.append(f"No {gpu.family} of {sizes[0]} is known; {gpu.name} is taken.")
    return gpu


def _whole(hardware: Mapping[str, Any], name: str) -> int | None:
    """Return a count, or None where none is stated."""
    value = hardware.get(name)
    if value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING):
        return None
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,9}\s*", value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_RANKS:
        _fail(name, f"expected a whole number from 1, got {shown(value)}")
    return value


def _counts(hardware: Mapping[str, Any]) -> tuple[int, int]:
    """Return nodes and GPUs of each, of which one may be told by the other and the ranks."""
    gpus, nodes, ranks = (_whole(hardware, name) for name in ("gpus_per_node", "nodes", "ranks"))
    if gpus is None and nodes is None:
        _fail(
            "gpus_per_node", "expected the number of GPUs used of a node, got nothing, and nodes is not stated either"
        )
    if nodes is None and ranks is None:
        _fail("nodes", "expected the number of nodes, got nothing, and ranks is not stated either")
    if gpus is None and ranks is None:
        _fail(
            "gpus_per_node", "expected the number of GPUs used of a node, got nothing, and ranks is not stated either"
        )
    if gpus is None or nodes is None:
        assert ranks is not None
        known = gpus or nodes or 1
        if ranks % known:
            what = "gpus_per_node" if gpus else "nodes"
            _fail("ranks", f"expected a multiple of {what} = {known}, got {ranks}")
        gpus, nodes = gpus or ranks // known, nodes or ranks // known
    if ranks is not None and ranks != gpus * nodes:
        _fail("ranks", f"expected nodes x gpus_per_node = {nodes} x {gpus} = {nodes * gpus}, got {ranks}")
    if gpus * nodes > MOST_RANKS:
        _fail("nodes", f"expected at most {MOST_RANKS:,} GPUs in all, got {nodes} x {gpus}")
    return nodes, gpus


def _named(hardware: Mapping[str, Any], gpu: Gpu) -> Node | None:
    """Return the system or cloud machine that some words name, if it has this GPU."""
    text = " ".join(_text(hardware, name) for name in ("fabric", "intra_link", "gpu", "note", "system", "instance"))
    words = " ".join(re.findall(r"[a-z0-9.]+", text.replace("_", " ").replace("-", " ")))
    found: tuple[int, Node] | None = None
    for name, node in catalogue.nodes().items():
        spelling = name.replace("-", " ")
        same = node.gpu.family == gpu.family and node.gpu.form[:3] == gpu.form[:3]
        if same and len(spelling) > 1 and _says(words, spelling) and (found is None or len(name) > found[0]):
            found = (len(name), node)
    if found is None:
        return None
    return found[1] if gpu.name == gpu.family else catalogue.with_gpu(found[1], gpu)


def _says(words: str, spelling: str) -> bool:
    if re.fullmatch(r"[a-z]+[0-9]+[a-z]?x[0-9]+|mi[0-9]+x", spelling):  # h100x8 is a way to write, no system
        return False
    return re.search(rf"(?<![a-z0-9.]){re.escape(spelling)}(?![a-z0-9])", words) is not None


def _node(hardware: Mapping[str, Any], gpu: Gpu, gpus: int, notes: list[str]) -> Node:
    """Return the node by the GPU and the words for what joins GPUs."""
    text = _text(hardware, "intra_link")
    board = board_of(gpu)
    slower = _GENERATION.search(text) if "pci" in text else None
    pcie = int(slower[1]) if slower and 3 <= int(slower[1]) <= gpu.pcie else 0
    card = gpu.form in ("pcie", "nvl")
    bridged = _BRIDGE.search(_CROSSING.sub("", text)) is not None and gpu.links > 0 and card
    if not text and gpus > 1 and hardware.get("intra_GBps_per_gpu_unidir") is None:
        _fail("intra_link", "expected words such as NVLink4 + NVSwitch or PCIe Gen4 for what joins GPUs, got nothing")
    if card and _LANES.search(text) and "pci" in text and _LANES.search(text)[1] != "16":  # type: ignore[index]
        _fail("intra_link", f"expected PCIe x16 slots, got {shown(text)}; narrower ones are not known here")
    if _SHM.search(text):
        if not card:
            _fail("intra_link", f"expected NVLink for {gpu.name}, got {shown(text)}")
        return server_of(gpu, gpus, shm=True, pcie=pcie)
    if bridged and re.search(r"4[ -]?way|four", text):
        _fail("intra_link", f"expected bridges that join two GPUs, got {shown(text)}; wider ones are not known here")
    if card and gpu.links and not bridged and re.search(r"nvlink|\bnv[0-9]+\b", text):
        if gpus != 2:
            _fail("intra_link", f"expected which {gpu.name} an NVLink bridge joins, got {shown(text)}")
        bridged = True
    if card:
        if not text or _PCIE.search(text) or bridged:
            return server_of(gpu, gpus, bridge=bridged, pcie=pcie)
        _fail("intra_link", f"expected PCIe or an NVLink bridge for {gpu.name}, got {shown(text)}")
    if board is None:
        _fail("gpu", f"expected a GPU whose platform is known, got {gpu.name}")
    return _platform(text, gpu, gpus, board, notes)


def _platform(text: str, gpu: Gpu, gpus: int, board: Node, notes: list[str]) -> Node:
    """Return the node of a GPU that is sold on platforms only."""
    others = [node for node in catalogue.nodes().values() if node.gpu.family == gpu.family]
    if text and re.search(r"pci", text) and not re.search(r"nvl|xgmi|infinity", text):
        _fail("intra_link", f"expected {board.join} of {gpu.link} for {gpu.name}, got {shown(text)}")
    if _CUBE.search(text):
        others = [node for node in others if node.join == "mesh"]
    elif _SWITCHED.search(text):
        others = [node for node in others if node.join == "nvswitch"]
        if not others and gpu.family == "gh200":
            _fail(
                "intra_link", f"expected gh200 in a quad, got {shown(text)}; NVLink across its hosts is not known here"
            )
    elif _DIRECT.search(text):
        others = [node for node in others if node.join == "full"]
    else:
        if "not stated" in text or not text:
            notes.append(f"The node is not stated; {board.name} is taken.")
        return board
    if not others and all(
        b >= gpus or (a, b) in {pair[:2] for pair in board.links} for b in range(gpus) for a in range(b)
    ):
        return board
    if not others:
        _fail("intra_link", f"expected what joins {gpu.name} ({board.join}), got {shown(text)}")
    if board.join == others[0].join and board.gpus >= gpus:
        return board
    found = next((node for node in others if node.gpus >= gpus), board if board in others else others[0])
    notes.append(f"The node is not named; {found.name} is taken.")
    return found if gpu.name == gpu.family else catalogue.with_gpu(found, gpu)


def _hosts(hardware: Mapping[str, Any], node: Node, nodes: int, gpus: int) -> int:
    """Return how many of the stated nodes are one node of the catalogue, because NVLink goes across hosts."""
    words = " ".join(_text(hardware, name) for name in ("fabric", "intra_link", "gpu"))
    across = re.search(r"nvl[ -]?72|mnnvl|multi[ -]node nvlink|nvlink domain", words)
    if nodes == 1 or gpus > node.per_host or node.per_host == node.gpus or not across:
        return 1
    if re.search(r"partitions|joined by|(?:infiniband|roce|ethernet) only|different racks", words):
        return 1
    if nodes * gpus <= node.gpus:
        return nodes
    most = node.gpus // node.per_host
    if nodes % most:
        _fail("nodes", f"expected a multiple of the {most} hosts of {node.name}, got {nodes}")
    return most


def _check_links(hardware: Mapping[str, Any], node: Node, gpus: int) -> None:
    """Compare the stated bandwidth of a GPU with that of its links."""
    value = hardware.get("intra_GBps_per_gpu_unidir")
    if value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING) or gpus == 1:
        return
    try:
        stated = float(value)
    except (TypeError, ValueError):
        _fail("intra_GBps_per_gpu_unidir", f"expected a number of GB/s, got {shown(value)}")
    gpu = node.gpu
    rated = gpu.links * gpu.link_bandwidth / 10**9
    if node.join == "pcie" and not node.links:
        return
    if not (1 - TOLERANCE) * rated <= stated <= (1 + TOLERANCE) * rated:
        links = f"{gpu.links} links of {gpu.link_bandwidth / 10**9:g} GB/s"
        _fail("intra_GBps_per_gpu_unidir", f"expected about {rated:g} for {gpu.name} ({links}), got {stated:g}")
