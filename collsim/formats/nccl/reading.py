"""From the XML of an NCCL topology to hosts and what is in them."""

from __future__ import annotations

import re
from fractions import Fraction

from collsim.errors import did_you_mean, shown
from collsim.formats.nccl.parts import Cpu, Fabric, Gpu, Host, Nic, Pci, Port
from collsim.formats.nccl.rates import (
    LANES,
    LOCAL,
    UNKNOWN_SPEED,
    broadcom_generation,
    cpu_bandwidth,
    lane_speed,
    pcie_bandwidth,
)
from collsim.formats.xmltree import Element

__all__ = ["MOST", "Reader"]

MOST = 576
"""NCCL has no room for more nodes of a kind in a host (``NCCL_TOPO_MAX_NODES`` of its latest versions)."""
MOST_NVLINKS = 1024
WIDEST = 32
UNKNOWN_WIDTHS = (0, 255)
"""What Linux says of the width of links that it does not know."""

SLOWEST = 10_000
"""Mb/s of an adapter that does not say; NCCL assumes so."""
MBIT = 125_000

_ADDRESS = re.compile(r"[0-9a-fA-F:.]{1,40}")
_SIXTEEN_BITS = re.compile(r"0x[0-9a-fA-F]{1,4}")
_MICROSECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{0,12})?", re.ASCII)
_GPU_CLASSES = ("0x03", "0x12")  # display controllers; processing accelerators, such as MI300
_GPU_VENDORS = ("", "0x10de", "0x1002", "0xffff")  # NVIDIA, AMD, and what AWS writes; a bare VGA chip is no GPU
_KNOWN_TAGS = {"cpu", "pci", "nic"}


class Reader:
    """Reads the elements of a file; what has to be said of them collects in the attributes.

    Parameters
    ----------
    speed
        Hundreds of Mb/s of a PCIe lane where the file does not say; None for NCCL's default.

    Attributes
    ----------
    hosts
        By ``host_hash``, in the order of the file.
    without_speed, without_class, without_rate, without_line_rate, left_out, ignored
        Number of PCI links of unknown speed, of devices without class, adapters without speed, devices that the file
        says to leave out; names of elements that are not known.
    """

    def __init__(self, speed: int | None) -> None:
        self.speed = UNKNOWN_SPEED if speed is None else speed
        self.hosts: dict[int, Host] = {}
        self.without_speed = self.without_class = self.without_rate = self.left_out = 0
        self.without_line_rate = 0
        self.ignored: dict[str, None] = {}

    def read(self, root: Element) -> list[Host]:
        """Return the hosts of a file."""
        if root.tag != "system":
            hint = "; that is the rings that NCCL chose, the machine is what NCCL_TOPO_DUMP_FILE writes"
            root.fail(f"expected <system>, got <{root.tag[:60]}>{hint if root.tag == 'graphs' else ''}")
        if (version := root.get("version", "1").strip()) not in ("1", "2"):
            root.fail(f"expected version 1 or 2, got {shown(version)}", "version")
        for element in root.children:
            if element.tag == "cpu":
                self._cpu(element)
            else:
                self._unknown(element, "in <system>", ("pci", "gpu", "nic", "net"))
        if not self.hosts:
            root.fail(f"expected <cpu> elements, got none{did_you_mean('cpu', [c.tag for c in root.children[:50]])}")
        for host in self.hosts.values():
            _flatten(host)
        return list(self.hosts.values())

    def _unknown(self, element: Element, where: str, misplaced: tuple[str, ...]) -> None:
        if element.tag in misplaced:
            element.fail(f"expected no <{element.tag}> {where}; <system> has <cpu>, that <pci>, that <gpu> or <nic>")
        self.ignored[element.tag[:60]] = None

    def _cpu(self, element: Element) -> None:
        host = self.hosts.setdefault(number(element, "host_hash", 0, most=2**64 - 1), Host())
        numa = number(element, "numaid", 0, least=-1)
        arch, vendor = element.get("arch", ""), element.get("vendor", "")
        family, model = (number(element, key, 0, least=-(2**31)) for key in ("familyid", "modelid"))
        rate = cpu_bandwidth(arch, vendor, family, model)
        name = f"cpu[{numa}]" if numa >= 0 else "cpu.-1"
        if any(cpu.name == name for cpu in host.cpus):
            element.fail(f"expected each NUMA node of a host once, got {numa} again", "numaid")
        cpu = Cpu(element, name, rate, vendor.strip() == "GenuineIntel", rate != LOCAL)
        self._count(host.cpus, element)
        host.cpus.append(cpu)
        for child in element.children:
            if child.tag == "pci":
                self._pci(child, cpu, host)
            elif child.tag == "nic":
                self._virtual(child, cpu, host)
            else:
                self._unknown(child, "in <cpu>", ("cpu", "gpu", "net", "nvlink"))

    def _count(self, those: list[Cpu] | list[Pci] | list[Gpu] | list[Nic], element: Element) -> None:
        if len(those) >= MOST:
            element.fail(f"expected at most {MOST} of a kind in a host, as NCCL does, got more")

    def _pci(self, element: Element, above: Pci | Cpu, host: Host) -> None:
        busid = element.get("busid").strip()
        key = address(element, "busid")
        if (twin := host.addresses.get(key)) is not None:
            element.fail(f"expected each address once in a host, got {busid} again (first in line {twin.element.line})")
        pci = Pci(element, busid, key, above, self._rate(element), _device(element))
        host.addresses[key] = pci
        kind = element.get("class", "").strip().lower()
        inside = {child.tag for child in element.children}
        gpus = [child for child in element.children if child.tag == "gpu"]
        if "gpu" in inside or "nic" in inside or kind.startswith((*_GPU_CLASSES, "0x02")):
            if odd := next((c for c in element.children if c.tag == "pci" or (c.tag == "nic" and gpus)), None):
                odd.fail(f"expected nothing else below a {'GPU' if gpus else 'device'}, got <{odd.tag}>")
            if len(gpus) > 1:
                gpus[1].fail("expected one <gpu> in a <pci>, got another")
        if gpus:
            self._gpu(gpus[0], pci, host)
        elif "nic" in inside or kind.startswith("0x02"):
            self._nic(pci, kind, host)
        elif kind.startswith(_GPU_CLASSES):
            if element.get("vendor", "").strip().lower() in _GPU_VENDORS and not _is_left_out(element):
                self._count(host.gpus, element)
                host.gpus.append(Gpu(element, pci, bare=True))
        elif "pci" in inside:
            self._count(host.bridges, element)
            host.bridges.append(pci)
        elif not kind:
            self.without_class += 1
        for child in element.children:
            if child.tag == "pci":
                self._pci(child, pci, host)
            elif child.tag == "pcilink":
                pci.links.append(address(child, "target"))
            elif child.tag not in ("gpu", "nic"):
                self._unknown(child, "in <pci>", ("cpu", "net", "nvlink"))

    def _rate(self, element: Element) -> int:
        lanes = number(element, "link_width", LANES, least=-1, most=255)
        if lanes <= 0 or lanes in UNKNOWN_WIDTHS:
            lanes = LANES
        elif lanes > WIDEST:
            element.fail(f"expected up to {WIDEST} lanes, got {lanes}", "link_width")
        speed = lane_speed(element.get("link_speed", ""))
        if speed is None:
            self.without_speed += 1
        return pcie_bandwidth(lanes, self.speed if speed is None else speed)

    def _gpu(self, element: Element, pci: Pci, host: Host) -> None:
        if _is_left_out(element):
            self.left_out += 1
            return
        gpu = Gpu(element, pci, bare=False, gcn=element.get("gcn", "").strip())
        gpu.sm = number(element, "sm", 0, most=10_000)
        gpu.rank, gpu.dev = number(element, "rank", -1, least=-1), number(element, "dev", -1, least=-1)
        gpu.gdr = number(element, "gdr", 1) != 0
        total = 0
        for child in element.children:
            if child.tag in ("nvlink", "xgmi"):
                gpu.fabric.append(_fabric(child))
                total += gpu.fabric[-1].count
            elif child.tag == "c2c":  # MB/s of one link, and their number
                links = number(child, "count", None, least=1, most=MOST_NVLINKS)
                gpu.c2c += number(child, "bw", None, least=1, most=10**7) * links * 10**6
                total += links
            else:
                self._unknown(child, "in <gpu>", ("cpu", "pci", "nic", "net", "gpu"))
            if total > MOST_NVLINKS:
                child.fail(f"expected at most {MOST_NVLINKS:,} links of a GPU, got {total:,}", "count")
        self._count(host.gpus, element)
        host.gpus.append(gpu)

    def _nic(self, pci: Pci, kind: str, host: Host) -> None:
        """Add an adapter; functions of one device (its address but for the last digit) are one, as in NCCL."""
        ports, named = [], False
        for child in pci.element.children:
            if child.tag == "nic":
                ports += self._ports(child, pci.busid)
                named = named or any(net.tag == "net" for net in child.children)
        if not named and not _is_left_out(pci.element):  # no speed is known: that of its slot
            self.without_rate += 1
            ports = [Port(pci.element, pci.busid, "", "", pci.rate, 0, gdr=True, collectives=False)]
        if not ports:
            return
        for other in host.nics:
            card = other.above
            if isinstance(card, Pci) and card.key >> 4 == pci.key >> 4:
                other.ports += ports
                return
        self._count(host.nics, pci.element)
        host.nics.append(Nic(pci.element, pci, kind.startswith("0x0207"), ports))

    def _virtual(self, element: Element, cpu: Cpu, host: Host) -> None:
        if ports := self._ports(element, "net"):
            self._count(host.nics, element)
            host.nics.append(Nic(element, cpu, False, ports))

    def _ports(self, nic: Element, otherwise: str) -> list[Port]:
        ports = []
        for net in nic.children:
            if net.tag != "net":
                self._unknown(net, "in <nic>", ("cpu", "pci", "gpu", "nic", "nvlink"))
            elif _is_left_out(net) or _is_left_out(nic):
                self.left_out += 1
            else:
                ports.append(_port(net, otherwise))
                self.without_line_rate += number(net, "speed", 0, least=-(2**31)) <= 0
        return ports


def _device(element: Element) -> int:
    """Return vendor, device and those of the subsystem as one number; what is no number counts as none."""
    device = 0
    for name in ("vendor", "device", "subsystem_vendor", "subsystem_device"):
        text = element.get(name, "").strip()
        device = device << 16 | (int(text, 16) if _SIXTEEN_BITS.fullmatch(text) else 0)
    return device


def _is_left_out(element: Element) -> bool:
    return element.get("keep", "1").strip() == "0"


def number(element: Element, attribute: str, otherwise: int | None, *, least: int = 0, most: int = 2**31) -> int:
    """Return an attribute as a whole number; one that is blank is as good as none (NCCL writes such)."""
    if otherwise is not None and not element.get(attribute, "").strip():
        return otherwise
    return element.whole(attribute, least=least, most=most)


def address(element: Element, attribute: str) -> int:
    """Return a bus address as a number, as NCCL does: its hexadecimal digits, whatever stands between."""
    text = element.get(attribute).strip()
    digits = text.replace(":", "").replace(".", "")
    if not _ADDRESS.fullmatch(text) or not 1 <= len(digits) <= 16:
        element.fail(f"expected a bus address such as 0000:0d:00.0, got {shown(text)}", attribute)
    return int(digits, 16)


def _fabric(element: Element) -> Fabric:
    count = number(element, "count", None, least=1, most=MOST_NVLINKS)
    kind = element.get("tclass", "").strip().lower()
    digits = set(element.get("target", "").strip().lower()) - set(":.")
    hidden = len(digits) < 2 and digits <= {
        "f",
        "0",
    }  # what NVML says of a switch that it does not see: fffffff:ffff:ff
    if kind.startswith(_GPU_CLASSES) or not (kind or hidden):
        return Fabric(element, "gpu" if kind else "", address(element, "target"), count, hidden)
    # NCCL takes every other class than that of the bridges of POWER9 for NVSwitches
    return Fabric(element, "cpu" if kind == "0x068001" else "switch", 0, count, hidden)


def _port(net: Element, otherwise: str) -> Port:
    name = net.get("name", "").strip() or otherwise
    if len(name) > 120 or not name.isprintable():
        net.fail(f"expected a printable name of up to 120 letters, got {shown(name)}", "name")
    speed = number(net, "speed", 0, least=-(2**31))
    latency = net.get("latency", "").strip() or "0"
    if not _MICROSECONDS.fullmatch(latency):
        net.fail(f"expected microseconds such as 0.000000, got {shown(latency)}", "latency")
    return Port(
        net,
        name,
        net.get("port", "").strip()[:20],
        net.get("dev", "").strip()[:20],
        (speed if speed > 0 else SLOWEST) * MBIT,
        round(Fraction(latency) * 10**6 / 2),
        gdr=number(net, "gdr", 1) != 0,
        collectives=number(net, "coll", 0) != 0,
    )


def _flatten(host: Host) -> None:
    """Join the two levels that Broadcom's PCIe switches show into one, as NCCL does: they sustain all their ports.

    What is left of the inner level has nothing below it.
    """
    below: dict[Pci, list[Pci]] = {}
    for pci in host.addresses.values():
        if isinstance(pci.above, Pci):
            below.setdefault(pci.above, []).append(pci)
    bridges = set(host.bridges)
    for switch in host.bridges:
        generation = broadcom_generation(switch.device, inner=False)
        if not generation:
            continue
        kept: list[Pci] = []
        for inner in below.get(switch, []):
            if inner not in bridges or broadcom_generation(inner.device, inner=True) != generation:
                kept.append(inner)
                continue
            for pci in below.pop(inner, []):
                pci.above = switch
                kept.append(pci)
            switch.links += inner.links
            host.addresses[inner.key] = switch
        below[switch] = kept
