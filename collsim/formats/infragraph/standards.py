"""What the words of a document say of a link that has no bandwidth: the standards that they name, and their rates.

Rates are those of one link in one direction. Sources:

- PCIe: PCI-SIG's base specifications, 8, 16 and 32 GT/s with 128b/130b (984.6 MB/s a lane of generation 3, 15.75 GB/s
  for 16), 2.5 and 5 GT/s with 8b/10b, 64 GT/s with 242 of 256 bytes of a flit.
- NVLink: NVIDIA's white papers of P100 (20 GB/s a link), V100, A100, H100 (25 GB/s) and B200 (50 GB/s); NVLink-C2C:
  450 GB/s, Grace Hopper white paper. Rated figures, as in the topologies that come with collsim.
- xGMI between GPUs: data sheets of AMD's Instinct MI200, MI300X, MI325X and MI350 series.
- Between CPUs: what NCCL reckons with (``src/graph/topo.h``), for no document says how many links there are.
- InfiniBand and Ethernet: the names of the rates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from collsim.formats.gpus import gpu_models
from collsim.hardware.hops import NVLINK, PCIE, PORT, SOCKET, SPINE, XGMI
from collsim.hardware.model import Gpu
from collsim.units import INT64_MAX, format_bandwidth

__all__ = ["Standard", "gpu_in", "in_bytes", "kind_of", "latency_of", "nvlink_rate", "standard_of", "xgmi_rate"]

GB = 10**9
LANES = 16

_LANES_MB = {1: Fraction(250), 2: Fraction(500), 3: Fraction(15750, 16), 4: Fraction(31500, 16), 5: Fraction(63000, 16)}
_LANES_MB[6] = Fraction(121000, 16)
_TRANSFERS = {Fraction(5, 2): 1, Fraction(5): 2, Fraction(8): 3, Fraction(16): 4, Fraction(32): 5, Fraction(64): 6}
_NVLINK = {1: 20, 2: 25, 3: 25, 4: 25, 5: 50}
_INFINIBAND = {"xdr": 800, "ndr": 400, "hdr": 200, "edr": 100}
_XGMI: dict[str, int | Fraction] = {
    "mi2": 50,
    "mi300": 64,
    "mi325": 64,
    "mi350": Fraction(768, 10),
    "mi355": Fraction(768, 10),
}
_C2C = 450 * GB
_SOCKETS = {
    "upi": (10, "UPI as NCCL has it"),
    "qpi": (6, "QPI as NCCL has it"),
    "xgmi": (16, "AMD's fabric as NCCL has it"),
}

_KINDS = {
    "c2c": r"c2c|chip.to.chip",
    "nvlink": r"nv[ -]?link|nvl(?![a-z])",
    "xgmi": r"xgmi|infinity[ -]?fabric",
    "upi": r"\bupi\b|ultra path",
    "qpi": r"\bqpi\b|quick ?path",
    "infiniband": r"infiniband|\b(?:xdr|ndr|hdr|edr)\b|\bib\b",
    "ethernet": r"ethernet|\broce\b|\beth[0-9]*\b|[0-9] ?gbe\b",
    "pcie": r"pci",
}
_LANES = re.compile(r"\bx ?([0-9]{1,2})\b|\b([0-9]{1,2}) ?lanes")
_GENERATION = re.compile(r"gen(?:eration)?[ ._-]?([1-6])(?![0-9])|(?:pcie|express) ?([1-6])(?![0-9])")  # not pcie_2
_NVLINK_GENERATION = re.compile(r"nv[ -]?link[ -]?(?:v|gen)?[ -]?([1-5])(?:\.[0-9])?\b")
_GIGABITS = re.compile(r"\b([0-9]{1,4}) ?g(?:b|be|bps|b/s|bit/s|bit|e)?\b")
_NAMED = re.compile(r"\b([0-9]{1,5}(?:\.[0-9]{1,3})?) ?(g|t)(b/s|bps|bit/s)\b", re.IGNORECASE)
_BOTH = re.compile(r"both|bi-?dir|aggregat|total|up to")
_MODEL = re.compile(r"[a-z]+[0-9]+[a-z]*")


@dataclass(frozen=True, slots=True)
class Standard:
    """A standard that a link follows.

    Attributes
    ----------
    kind
        As links are called: ``pcie``, ``nvlink``, ...
    rate
        Bytes/s; 0 where it depends on what the link joins, or is not known.
    text
        What it was taken for.
    each
        GB/s of a single NVLink, 0 where the generation is not known.
    """

    kind: str
    rate: int
    text: str
    each: int = 0


def _plain(words: str) -> str:
    return words.lower().replace("_", " ")


def kind_of(words: str) -> str:
    """Return the kind of a link that its words name, empty if none.

    Examples
    --------
    >>> [kind_of(words) for words in ("PCI Express Gen 4", "nvlink_3", "AMD Infinity Fabric", "400G Ethernet", "ic")]
    ['pcie', 'nvlink', 'xgmi', 'ethernet', '']
    """
    plain = _plain(words)
    return next((kind for kind, pattern in _KINDS.items() if re.search(pattern, plain)), "")


def standard_of(words: str) -> Standard | None:
    """Return the standard that the words of a link name, None if none.

    Examples
    --------
    >>> standard_of("PCI Express Gen 4 x8").rate, standard_of("400G Ethernet").rate, standard_of("NVLINK 3.0").each
    (15750000000, 50000000000, 25)
    >>> standard_of("Generic integrated circuitry") is None
    True
    """
    plain = _plain(words)
    kind = kind_of(words)
    if (named := _NAMED.search(words.replace("_", " "))) and not _BOTH.search(plain):
        bits = named[3] != "B/s" and named[3] != "Bps"
        rate = Fraction(named[1]) * (10**12 if named[2].lower() == "t" else GB) / (8 if bits else 1)
        return Standard(kind, round(rate), f"the {named[0]} of its description") if rate >= 1 else None
    if kind == "c2c":
        return Standard("nvlink", _C2C, "NVLink-C2C")
    if kind == "nvlink":
        found = _NVLINK_GENERATION.search(plain)
        return Standard(kind, 0, f"NVLink {found[1]}" if found else "NVLink", _NVLINK[int(found[1])] if found else 0)
    if kind == "pcie":
        found = _GENERATION.search(words.lower())
        if found is None:
            return None
        generation, lanes = int(found[1] or found[2]), _lanes(plain) or LANES
        return Standard(kind, round(_LANES_MB[generation] * lanes * 10**6), f"PCIe {generation}.0 x{lanes}")
    if kind in _SOCKETS:
        return Standard(kind, 0, _SOCKETS[kind][1])  # xGMI of GPUs is told apart by what it joins
    if kind in ("infiniband", "ethernet"):
        gigabits = next((rate for name, rate in _INFINIBAND.items() if re.search(rf"\b{name}\b", plain)), 0)
        if not gigabits and (found := _GIGABITS.search(plain)):
            gigabits = int(found[1])
        name = "InfiniBand" if kind == "infiniband" else "Ethernet"
        return Standard(kind, gigabits * GB // 8, f"{name} of {gigabits} Gb/s") if gigabits else None
    return None


def socket_rate(kind: str) -> int:
    """Return what NCCL reckons with between two CPUs, 0 for what is no link of CPUs."""
    return _SOCKETS[kind][0] * GB if kind in _SOCKETS else 0


def nvlink_rate(standard: Standard, gpu: Gpu | None) -> int:
    """Return bytes/s of a single NVLink by its generation, else by the GPU; 0 if neither says."""
    return standard.each * GB or (gpu.link_bandwidth if gpu is not None else 0)


def xgmi_rate(words: str) -> int:
    """Return bytes/s of a link between two GPUs of AMD, by what their description says; 0 if it does not."""
    found = re.search(r"mi[23][0-9]{2}", words.lower())
    return 0 if found is None else int(next((r for name, r in _XGMI.items() if found[0].startswith(name)), 0) * GB)


def gpu_in(words: str) -> Gpu | None:
    """Return the GPU of NVIDIA that a description names first.

    Examples
    --------
    >>> gpu_in("NVIDIA H100 / H200 SXM5").family, gpu_in("dgx_gb200").family, gpu_in("Generic GPU/XPU")
    ('h100', 'gb200', None)
    """
    known = gpu_models()
    return next((known[word] for word in _MODEL.findall(_plain(words)) if word in known), None)


def in_bytes(unit: str, number: Fraction, words: str) -> tuple[int, str] | None:
    """Return bytes/s of a bandwidth in billions of its unit, and how transfers were reckoned; None if they cannot be.

    A transfer is a bit on each lane: of PCIe with its code left out, and over 16 lanes where nothing says how many.

    Examples
    --------
    >>> in_bytes("bits", Fraction(400), "")[0], in_bytes("transfers", Fraction(16), "pcie x8")
    (50000000000, (15750000000, '16 GT/s as PCIe 4.0 x8'))
    >>> in_bytes("transfers", Fraction(52, 5), "ic") is None
    True
    """
    how = ""
    if unit == "transfers":
        plain = _plain(words)
        kind, lanes = kind_of(words), _lanes(plain)
        generation = _TRANSFERS.get(number) if kind in ("pcie", "") else None
        if generation is not None:
            rate = _LANES_MB[generation] * (lanes or LANES) * 10**6
            how = f"{float(number):g} GT/s as PCIe {generation}.0 x{lanes or LANES}"
        elif lanes or kind in ("upi", "qpi", "xgmi"):  # the latter carry 16 bits of data a transfer
            rate = number * GB * (lanes or LANES) / 8
            how = f"{float(number):g} GT/s as {lanes or LANES} bits a transfer"
        else:
            return None
    else:
        rate = number * GB / (8 if unit == "bits" else 1)
    whole = round(rate)
    return (whole, how) if 1 <= whole <= INT64_MAX else None


def _lanes(plain: str) -> int:
    found = _LANES.search(plain)
    return min(int(found[1] or found[2]), 32) if found else 0


def latency_of(kind: str, between: tuple[str, str]) -> int:
    """Return picoseconds of a link that the file gives none of, as the topologies that come with collsim have them.

    Examples
    --------
    >>> latency_of("nvlink", ("gpu", "switch")), latency_of("nvlink", ("gpu", "gpu"))
    (300000, 600000)
    """
    if between == ("gpu", "gpu") and kind in ("nvlink", "xgmi"):
        return NVLINK if kind == "nvlink" else XGMI
    if kind in ("ethernet", "infiniband"):
        return PORT if "nic" in between else SPINE
    return {"nvlink": NVLINK // 2, "upi": SOCKET, "qpi": SOCKET, "xgmi": SOCKET}.get(kind, PCIE)


def rate_text(rate: int) -> str:
    """Return a rate as a sentence has it."""
    return format_bandwidth(rate).replace("GB/s", " GB/s").replace("MB/s", " MB/s")
