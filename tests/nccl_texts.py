"""Topologies as NCCL and RCCL write them, made by hand for the tests, and a look at what was read."""

from __future__ import annotations

from collections.abc import Sequence

from collsim.formats.source import Source
from collsim.topology.graph import Topology

INTEL = 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143"'
AMD = 'arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49"'
GEN5 = 'link_speed="32.0 GT/s PCIe" link_width="16"'
GEN3 = 'link_speed="8 GT/s" link_width="16"'
GEN4 = 'link_speed="16.0 GT/s PCIe" link_width="16"'


def system(*cpus: str, version: int = 1) -> Source:
    return Source("machine.xml", f'<system version="{version}">\n' + "\n".join(cpus) + "\n</system>\n")


def cpu(*inside: str, numa: int = 0, host: str = "", make: str = INTEL) -> str:
    known = f' host_hash="{host}"' if host else ""
    return f'<cpu numaid="{numa}"{known} affinity="ffff" {make}>\n' + "\n".join(inside) + "\n</cpu>"


def pci(busid: str, *inside: str, kind: str = "0x060400", link: str = GEN5, more: str = "") -> str:
    return f'<pci busid="{busid}" class="{kind}" {more} {link}>' + "\n".join(inside) + "</pci>"


def nvlinks(*targets: tuple[str, int], kind: str = "0x030200") -> str:
    return "".join(f'<nvlink target="{target}" count="{count}" tclass="{kind}"/>' for target, count in targets)


def gpu(busid: str, rank: int, links: str = "", *, sm: int = 90, link: str = GEN5, more: str = 'gdr="1"') -> str:
    inside = f'<gpu dev="{rank}" sm="{sm}" rank="{rank}" {more}>{links}</gpu>'
    return pci(busid, inside, kind="0x030200", link=link)


def net(name: str, speed: int = 400_000, more: str = 'port="1" gdr="1"') -> str:
    return f'<net name="{name}" speed="{speed}" latency="0.000000" guid="0x1" maxconn="131072" {more}/>'


def nic(busid: str, *nets: str, kind: str = "0x020700", link: str = GEN5) -> str:
    return pci(busid, "<nic>" + "".join(nets) + "</nic>", kind=kind, link=link)


def dgx(
    host: str = "", gpus: int = 8, first: int = 0, switches: Sequence[str] = ("0000:1a:00.0", "0000:1b:00.0")
) -> str:
    """Eight H100 on NVSwitch, two sockets, an adapter below the PCIe switch of each GPU."""
    half = 18 // len(switches)
    links = nvlinks(*((switch, half) for switch in switches), kind="0x068000")
    boxes = [
        pci(
            f"0000:{i}0:00.0",
            gpu(f"0000:{i}1:00.0", first + i, links),
            nic(f"0000:{i}2:00.0", net(f"mlx5_{i}")),
        )
        for i in range(gpus)
    ]
    parts = (boxes[: gpus // 2], boxes[gpus // 2 :])
    return "\n".join(cpu(*part, numa=numa, host=host) for numa, part in enumerate(parts))


def mesh(*pairs: tuple[int, int, int], n: int = 4, sm: int = 70) -> str:
    """GPUs on one CPU, joined directly as the pairs say (GPU, GPU, NVLinks)."""
    near: list[list[tuple[str, int]]] = [[] for _ in range(n)]
    for a, b, count in pairs:
        near[a].append((f"0000:{b}1:00.0", count))
        near[b].append((f"0000:{a}1:00.0", count))
    return cpu(*(gpu(f"0000:{i}1:00.0", i, nvlinks(*near[i]), sm=sm, link=GEN3) for i in range(n)), make=AMD)


def cloud(gpus: int = 4, more: str = "") -> str:
    """A file of a cloud: bare devices, two GPUs and an adapter below a switch that there is not."""
    boxes = [
        f'<pci busid="ffff:ff:0{i}.0" class="0x060400" {GEN3}>'
        f'<pci busid="0000:{i}0:1c.0" class="0x030200" {more} {GEN3}/>'
        f'<pci busid="0000:{i}0:1d.0" class="0x030200" {more} {GEN3}/>'
        f'<pci busid="0000:{i}0:1b.0" class="0x020000" {GEN3}/></pci>'
        for i in range(gpus // 2)
    ]
    return cpu(*boxes)


def rccl(n: int = 4, gcn: str = "gfx942", kind: str = "0x120000") -> Source:
    """AMD GPUs, each joined to each other."""
    boxes = []
    for i in range(n):
        links = "".join(f'<xgmi target="0000:{j}1:00.0" count="1" tclass="{kind}"/>' for j in range(n) if j != i)
        inside = f'<gpu dev="{i}" sm="228" gcn="{gcn}" arch="38911" rank="{i}" gdr="1">{links}</gpu>'
        boxes.append(pci(f"0000:{i}1:00.0", inside, kind=kind))
    return system(cpu(*boxes, make='arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="144"'), version=2)


def way(topology: Topology, src: int, dst: int, channel: int = 0) -> list[str]:
    """Nodes on the route between two ranks, with their ends."""
    links = topology.route(src, dst, channel)
    return [topology.nodes[topology.link_src[links[0]]], *(topology.nodes[topology.link_dst[link]] for link in links)]


def rate(topology: Topology, src: str, dst: str) -> list[float]:
    """GB/s of the links from one node to another."""
    return [topology.link_bandwidth[link] / 10**9 for link in topology.links_between(src, dst)]
