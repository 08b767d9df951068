"""Which GPUs take part, in which order, and what a partial file leaves to the name of the GPU."""

from __future__ import annotations

from collections import Counter

from collsim.formats.nccl.parts import Gpu, Host
from collsim.formats.xmltree import Element
from collsim.hardware.model import Gpu as Model

__all__ = ["fill", "in_order", "switched"]

# PCI device numbers of NVIDIA (the PCI ID repository), to name the likely GPU in a message.
_DEVICES = {
    "0x1db1": "v100", "0x1db4": "v100", "0x1db5": "v100", "0x1eb8": "t4", "0x20b0": "a100", "0x20b2": "a100",
    "0x2237": "a10g", "0x2324": "h800", "0x2329": "h20", "0x2330": "h100", "0x2335": "h200", "0x26b9": "l40s",
    "0x2901": "b200", "0x2941": "gb200",
}  # fmt: skip


def fill(root: Element, hosts: list[Host], model: Model | None, without_class: int) -> list[str]:
    """Fill in what the name of the GPU tells, and return sentences about it.

    Raises
    ------
    TopologyError
        There are no GPUs, they are bare and no model was given, or it contradicts the file.
    """
    gpus = [gpu for host in hosts for gpu in host.gpus]
    bare = [gpu for gpu in gpus if gpu.bare]
    if not gpus:
        more = ""
        if without_class:
            more = f' ({without_class} devices say no class; class="0x030200" is a GPU, class="0x020000" an adapter)'
        root.fail(
            f"expected GPUs, got none: neither <gpu> nor a <pci> of class 0x0302{more}; "
            "dump the whole machine with NCCL_TOPO_DUMP_FILE"
        )
    if model is None:
        if len(bare) == len(gpus):
            _refuse_bare(hosts, bare)
        for host in hosts:
            host.gpus = [gpu for gpu in host.gpus if not gpu.bare]
        left = f"{_count(bare, 'device')} of class 0x03 without <gpu> {'is' if len(bare) == 1 else 'are'} left out"
        return [f"{left}, as NCCL does."] if bare else []
    for gpu in gpus:
        if gpu.element.get("vendor", "").strip().lower() == "0x1002":
            gpu.element.fail(
                f"expected a GPU of NVIDIA, as the {model.family} that was given, got one of AMD", "vendor"
            )
        if gpu.gcn or (gpu.sm and gpu.sm != model.sm):
            got = f"gcn {gpu.gcn[:20]!r}" if gpu.gcn else f"sm {gpu.sm}"
            gpu.element.fail(f"expected sm {model.sm}, that of the {model.family} that was given, got {got}", "sm")
        gpu.sm = model.sm
    notes = []
    if bare:
        notes.append(
            f"The file names no GPUs: {_count(bare, 'device')} of class 0x03 are taken for {model.family.upper()}."
        )
    return notes


def _refuse_bare(hosts: list[Host], bare: list[Gpu]) -> None:
    first = bare[0].element
    if first.get("vendor", "").strip().lower() == "0x1002":
        first.fail(
            f"expected GPUs as RCCL dumps them (<gpu> with gcn and <xgmi>), got {_count(bare, 'bare <pci>')} of AMD; "
            "run with NCCL_TOPO_DUMP_FILE on the machine"
        )
    likely = _DEVICES.get(first.get("device", "").strip().lower(), "a100")
    rates = sum(port.element.tag == "pci" for host in hosts for nic in host.nics for port in nic.ports)
    adapters = f", and the speed of {rates} adapter{'s' if rates != 1 else ''}" if rates else ""
    first.fail(
        f"expected GPUs as NCCL dumps them (<gpu> with sm, rank and <nvlink>), got {_count(bare, 'bare <pci>')} of "
        f"class 0x03: their compute capability, order and NVLinks are missing{adapters}; name the GPU: "
        f"gpu=, or collsim convert ... --gpu, such as {likely}"
    )


def _count(things: list[Gpu], noun: str) -> str:
    return f"{len(things)} {noun}{'s' if len(things) != 1 and not noun.endswith('>') else ''}"


def switched(host: Host, model: Model | None) -> tuple[int, str]:
    """Return how many NVLinks each GPU of a host has to an NVSwitch that the file does not show, and a sentence.

    Raises
    ------
    TopologyError
        Which GPUs the NVLinks join cannot be known.
    """
    if model is None or not model.nvlinks or len(host.gpus) < 2 or not all(gpu.bare for gpu in host.gpus):
        return 0, ""  # a dump that names its GPUs has their NVLinks too, if there are any
    name, n = model.family.upper(), len(host.gpus)
    is_board = model.form.startswith("sxm") or model.form == "superchip"  # other forms have bridges
    if is_board and (model.nvlinks >= 8 or (model.family == "v100" and n == 16)):
        return model.nvlinks, (
            f"The file has no NVLinks: all {model.nvlinks} of each {name} are taken to go to NVSwitches, as in machines"
            " that have them."
        )
    if is_board:
        host.gpus[0].element.fail(
            f"expected the NVLinks of {n} {name}, got none, and which GPUs they join cannot be told from PCIe; read "
            "the table of nvidia-smi topo -m, a file of NCCL_TOPO_DUMP_FILE, or use dgx-1-v100"
        )
    return 0, f"The file has no NVLinks, and none are assumed: a {name} has them only where bridges join two."


def in_order(hosts: list[Host]) -> tuple[list[Host], list[tuple[int, int]], list[str]]:
    """Put the GPUs of each host in order, and return the hosts, (host, GPU in it) of each rank, and sentences.

    The order is that of ``rank``. GPUs without one are left out if others have one, as NCCL does; where none has, it is
    that of ``dev``, or of the file. Hosts come in the order of their first rank.

    Raises
    ------
    TopologyError
        Two GPUs of a host have the same rank or device number.
    """
    notes = []
    everyone = [gpu for host in hosts for gpu in host.gpus]
    if (ranked := any(gpu.rank >= 0 for gpu in everyone)) and (left := [gpu for gpu in everyone if gpu.rank < 0]):
        notes.append(
            f"{_count(left, 'GPU')} without a rank {'is' if len(left) == 1 else 'are'} left out, as NCCL does."
        )
        for host in hosts:
            host.gpus = [gpu for gpu in host.gpus if gpu.rank >= 0]
    for host in hosts:
        _sort(host, "rank" if ranked else "dev")
    kept = [host for host in hosts if host.gpus]
    if len(kept) < len(hosts):
        notes.append("Hosts without GPUs are left out.")
    if ranked:
        kept.sort(key=lambda host: host.gpus[0].rank)
    places = [(h, g) for h, host in enumerate(kept) for g in range(len(host.gpus))]
    if ranked:
        ranks = {place: kept[place[0]].gpus[place[1]].rank for place in places}
        if len(set(ranks.values())) == len(ranks):
            places.sort(key=ranks.__getitem__)
        else:
            notes.append("Hosts number their ranks each for itself: here they come one host after the other.")
    return kept, places, notes


def _sort(host: Host, attribute: str) -> None:
    values = [getattr(gpu, attribute) for gpu in host.gpus]
    if min(values, default=-1) < 0:
        return  # the order of the file
    if doubles := [value for value, count in Counter(values).items() if count > 1]:
        second = [gpu for gpu, value in zip(host.gpus, values, strict=True) if value == doubles[0]][1]
        second.element.fail(f"expected each {attribute} once in a host, got {doubles[0]} again", attribute)
    host.gpus.sort(key=lambda gpu: int(getattr(gpu, attribute)))
