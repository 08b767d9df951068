"""The data files, read once, and looking things up in them by name."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Any

from collsim.errors import InputError, did_you_mean, shown
from collsim.hardware.model import Cpu, Gpu, Nic, Node
from collsim.hardware.words import find_gpu, split_words
from collsim.topology.yamltree import parse, read_text
from collsim.units import parse_bandwidth, parse_size, parse_time

__all__ = [
    "families",
    "gpu",
    "gpu_names",
    "gpus",
    "nic",
    "nic_names",
    "nics",
    "node",
    "node_names",
    "nodes",
    "plain",
    "transports",
    "with_gpu",
]


def gpu(name: str) -> Gpu:
    """Return a GPU by its name.

    Parameters
    ----------
    name
        Of the catalogue (``a100-40gb``), or as it is written elsewhere: ``A100``, ``NVIDIA A100-SXM4-40GB``,
        ``H100 PCIe``. A family alone is its first GPU: the one with NVLink, in its largest memory.

    Returns
    -------
    Gpu
        Rates in bytes/s, times in ps.

    Raises
    ------
    InputError
        If there is none of this name.

    Examples
    --------
    >>> gpu("H100").nvlinks, gpu("h100-pcie").sms, gpu("NVIDIA A100-SXM4-40GB").name
    (18, 114, 'a100-40gb')
    >>> gpu("h10")
    Traceback (most recent call last):
    collsim.errors.InputError: gpu: expected a GPU such as h100 or a100-40gb, got 'h10'; did you mean 'h100'?
    """
    if isinstance(name, str):
        exact = gpus().get(plain(name))
        if exact is not None:
            return exact
        found = find_gpu(split_words(name), families())
        if found is not None and not found[1]:
            return found[0]
    close = did_you_mean(plain(name)[:40], [*gpus(), *families()]) if isinstance(name, str) else ""
    raise InputError(f"gpu: expected a GPU such as h100 or a100-40gb, got {shown(name)}{close}")


def nic(name: str) -> Nic:
    """Return a network adapter by its name.

    Raises
    ------
    InputError
        If there is none of this name.

    Examples
    --------
    >>> nic("ConnectX-7").bandwidth, nic("cx7").transports[0], nic("efa-v2").latency
    (50000000000, 'infiniband', 75000000)
    """
    known = nics()
    found = known.get(plain(name)) if isinstance(name, str) else None
    if found is None:
        close = did_you_mean(plain(name)[:40], known) if isinstance(name, str) else ""
        raise InputError(f"nic: expected an adapter such as connectx-7 or efa-v2, got {shown(name)}{close}")
    return found


def node(name: str) -> Node:
    """Return a node by its name.

    Parameters
    ----------
    name
        Of the catalogue or another name of it (``dgx-h100``, ``p5.48xlarge``, ``h100x8``), or GPUs in a PCIe server
        such as ``l40sx4`` (see `collsim.hardware.servers`). ``dgx-a100[a100-40gb]`` has another GPU of the family.

    Raises
    ------
    InputError
        If there is none of this name.

    Examples
    --------
    >>> node("p5").name, node("h100x8").name, node("DGX A100").gpu.name, node("rtx4090x2").join
    ('p5.48xlarge', 'hgx-h100', 'a100', 'pcie')
    >>> node("dgx-h10")
    Traceback (most recent call last):
    collsim.errors.InputError: node: expected a node such as dgx-h100, p5 or l40sx4, got 'dgx-h10'; did you mean
    'dgx-h100'?
    """
    from collsim.hardware.servers import server

    base, bracket, other = name.partition("[") if isinstance(name, str) else ("", "", "")
    found = nodes().get(plain(base))
    if found is None and isinstance(name, str):
        found = server(plain(name))
    elif found is not None and bracket:
        found = with_gpu(found, gpu(other.rstrip().removesuffix("]")))
    if found is None:
        close = did_you_mean(plain(name)[:40], nodes()) if isinstance(name, str) else ""
        raise InputError(f"node: expected a node such as dgx-h100, p5 or l40sx4, got {shown(name)}{close}")
    return found


def with_gpu(base: Node, other: Gpu) -> Node:
    """Return a node with another GPU of the same family, such as one of less memory.

    Raises
    ------
    InputError
        If it is of another family or form.

    Examples
    --------
    >>> with_gpu(node("dgx-1-v100"), gpu("v100-16gb")).name
    'dgx-1-v100[v100-16gb]'
    """
    if (other.family, other.form[:3], other.links) != (base.gpu.family, base.gpu.form[:3], base.gpu.links):
        raise InputError(f"node: expected a GPU like the {base.gpu.name} of {base.name}, got {other.name}")
    return base if other == base.gpu else replace(base, gpu=other, name=f"{base.name}[{other.name}]")


def gpu_names() -> tuple[str, ...]:
    """Return the names of all GPUs, in the order of the file.

    Examples
    --------
    >>> "h100-pcie" in gpu_names()
    True
    """
    return tuple(gpus())


def nic_names() -> tuple[str, ...]:
    """Return the names of all adapters, in the order of the file.

    Examples
    --------
    >>> "connectx-7" in nic_names(), "cx7" in nic_names()
    (True, False)
    """
    return tuple(name for name, value in nics().items() if value.name == name)


def node_names() -> tuple[str, ...]:
    """Return the names of all nodes, in the order of the file.

    Examples
    --------
    >>> "dgx-h100" in node_names(), "p5" in node_names()
    (True, False)
    """
    return tuple(name for name, value in nodes().items() if value.name == name)


def plain(name: str) -> str:
    """Return a name in the spelling of the catalogue: small letters, hyphens.

    Examples
    --------
    >>> plain(" DGX H100 "), plain("a2_highgpu_8g")
    ('dgx-h100', 'a2-highgpu-8g')
    """
    return "-".join(name.lower().replace("_", " ").replace("-", " ").split())


@cache
def gpus() -> dict[str, Gpu]:
    """Return all GPUs by name."""
    data = _read("gpus")
    return {name: _gpu(name, entry, data["generations"][entry["generation"]]) for name, entry in data["gpus"].items()}


@cache
def families() -> dict[str, list[Gpu]]:
    """Return the GPUs of each family, also by the other names of a family or GPU."""
    found: dict[str, list[Gpu]] = {}
    for name, entry in _read("gpus")["gpus"].items():
        found.setdefault(entry["family"], []).append(gpus()[name])
        for other in entry.get("also", ()):
            found.setdefault(other, []).append(gpus()[name])
    return found


@cache
def nodes() -> dict[str, Node]:
    """Return all nodes, by name and by their other names."""
    data = _read("nodes")
    cpus = {name: _cpu(name, entry) for name, entry in data["cpus"].items()}
    found = {name: _node(name, entry, cpus) for name, entry in data["nodes"].items()}
    others = {other: found[name] for name, entry in data["nodes"].items() for other in entry.get("aliases", ())}
    return found | others


@cache
def cpu(name: str) -> Cpu:
    """Return a CPU of the catalogue."""
    return _cpu(name, _read("nodes")["cpus"][name])


@cache
def transports() -> dict[str, str]:
    """Return the class of transport that each word means."""
    return {word: name for name, entry in _read("nics")["transports"].items() for word in (name, *entry["words"])}


@cache
def nics() -> dict[str, Nic]:
    """Return all adapters, by name and by their other names."""
    entries = _read("nics")["nics"]
    found = {name: _nic(name, entry) for name, entry in entries.items()}
    return found | {other: found[name] for name, entry in entries.items() for other in entry.get("aliases", ())}


@cache
def _read(name: str) -> Any:
    path = Path(__file__).with_name(f"{name}.yaml")
    return parse(read_text(path), path.name).value


def _rate(entry: Any, key: str) -> int:
    return parse_bandwidth(entry[key]) if key in entry else 0


def _gpu(name: str, entry: Any, generation: Any) -> Gpu:
    link = generation.get("link", {})
    links = entry["links"]
    launch = entry.get("launch", generation.get("launch"))
    return Gpu(
        name=name,
        family=entry["family"],
        vendor=generation["vendor"],
        generation=entry["generation"],
        form=entry["form"],
        sm=entry.get("sm", 0),
        gfx=entry.get("gfx", ""),
        sms=entry.get("sms", 0),
        memory=parse_size(entry["memory"]),
        memory_bandwidth=_rate(entry, "memory_bandwidth"),
        link=link["kind"] if links else "",
        links=links,
        link_bandwidth=_rate(link, "rate") if links else 0,
        link_effective=_rate(link, "effective") if links else 0,
        pcie=entry["pcie"],
        peak_flops=MappingProxyType({key: round(value * 10**12) for key, value in entry.get("tflops", {}).items()}),
        ll128_channel=_rate(generation, "ll128_channel"),
        sm_copy=_rate(generation, "sm_copy"),
        sm_reduce=_rate(generation, "sm_reduce"),
        nvls_bandwidth=_rate(generation, "nvls"),
        launch=0 if launch is None else parse_time(launch),
        p2p=entry.get("p2p", True),
        sources=MappingProxyType({**generation.get("source", {}), "": entry["source"]}),
    )


def _nic(name: str, entry: Any) -> Nic:
    return Nic(
        name=name,
        bandwidth=parse_bandwidth(entry["rate"]),
        transports=tuple(entry["transports"]),
        latency=parse_time(entry["latency"]) if "latency" in entry else 0,
        pcie=entry.get("pcie", 0),
        lanes=entry.get("lanes", 16 if "pcie" in entry else 0),
        source=entry["source"],
    )


def _cpu(name: str, entry: Any) -> Cpu:
    return Cpu(name, entry["vendor"], entry["arch"], entry["model"], _rate(entry, "socket"), entry["source"])


def _node(name: str, entry: Any, cpus: dict[str, Cpu]) -> Node:
    model, count = gpus()[entry["gpu"]], entry["gpus"]
    adapter = nic(entry["nic"]) if "nic" in entry else None
    return Node(
        name=name,
        gpu=model,
        gpus=count,
        join=entry["join"],
        sharp=entry.get("sharp", False),
        boards=entry.get("boards", 1 if entry["join"] == "nvswitch" else 0),
        trunk=entry.get("trunk", 0),
        links=_links(entry),
        cpu=cpus[entry["cpu"]] if "cpu" in entry else None,
        sockets=entry.get("sockets", 1),
        switches=entry.get("switches", 0),
        nic=adapter,
        nic_bandwidth=_rate(entry, "nic_rate") or (adapter.bandwidth if adapter else 0),
        nics=entry.get("nics", 0),
        nics_on_cpu=entry.get("nics_on") == "cpu",
        transport=entry.get("transport", adapter.transports[0] if adapter else ""),
        network=entry["network"],
        per_host=entry.get("per_host", count),
        pcie=entry.get("pcie", model.pcie),
        p2p=model.p2p,
        board=entry.get("board", False),
        source=entry["source"],
    )


def _links(entry: Any) -> tuple[tuple[int, int, int], ...]:
    """Return the direct links of a mesh as it is written, or of all pairs."""
    if "per_pair" in entry:
        return tuple((a, b, entry["per_pair"]) for a, b in combinations(range(entry["gpus"]), 2))
    found = []
    for pair in entry.get("links", "").split():
        ends, _, many = pair.partition("*")
        a, _, b = ends.partition("-")
        found.append((int(a), int(b), int(many or 1)))
    return tuple(found)
