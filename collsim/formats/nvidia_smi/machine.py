"""From the table to the machine: NVLinks and NVSwitches, the PCIe tree, rates."""

from __future__ import annotations

from collections.abc import Iterator

from collsim.formats.gpus import gpu_model, gpu_models, nvlink_bandwidth
from collsim.formats.nccl.rates import LANES, cpu_bandwidth, generation_speed, pcie_bandwidth
from collsim.formats.nvidia_smi.distances import Groups, groups_of
from collsim.formats.nvidia_smi.table import Table
from collsim.hardware.hops import NVLINK, PCIE, SOCKET
from collsim.hardware.model import Gpu
from collsim.topology.builder import TopologyBuilder
from collsim.topology.graph import Topology
from collsim.units import format_bandwidth

__all__ = ["machine"]

# The usual CPUs of a generation of PCIe, as NCCL tells them apart, and how their sockets are joined.
SOCKETS = {
    3: ("Skylake", "upi", cpu_bandwidth("x86_64", "GenuineIntel", 6, 0x55)),
    4: ("AMD", "socket", cpu_bandwidth("x86_64", "AuthenticAMD", 0, 0)),
    5: ("Sapphire Rapids", "upi", cpu_bandwidth("x86_64", "GenuineIntel", 6, 0x8F)),
    6: ("Granite Rapids", "upi", cpu_bandwidth("x86_64", "GenuineIntel", 6, 0xAD)),
}


def machine(table: Table, gpu: str | None) -> Topology:
    """Return the machine of a table.

    Raises
    ------
    TopologyError
        If the distances are no tree, or the NVLinks do not fit a GPU or fit several.
    InputError
        There is no such ``gpu``.
    """
    source, names = table.source, table.names
    model, guessed = _model(table, gpu)
    switched, direct = _nvlinks(table, model)
    groups, hidden = groups_of(table)
    builder = TopologyBuilder(source.title)
    taken = set(names)
    forwarding = {gpu for part in direct for gpu in _between(table, part)}
    gpus = set(table.gpus)
    for index in table.gpus:
        builder.add_node(names[index], forwards=index in forwarding)
    nvlink = nvlink_bandwidth(model.sm) if model is not None else 0
    sharp = model is not None and model.sm >= 90  # the third generation of NVSwitch
    for number, (part, count) in enumerate(switched):
        switch = _free(taken, f"nvswitch[{number}]" if len(switched) > 1 else "nvswitch")
        builder.add_node(switch, "switch", reduces=sharp, multicasts=sharp)
        for index in part:
            builder.add_duplex(names[index], switch, count * nvlink, NVLINK // 2, kind="nvlink")
    for part in direct:
        # the hardware stripes over links of one pair; in a mesh of unequal pairs NCCL's rings take one link each
        striped = len({count for _, _, count in _pairs(table, part)}) == 1
        for a, b, count in _pairs(table, part):
            rate, count = (count * nvlink, 1) if striped else (nvlink, count)
            builder.add_duplex(names[a], names[b], rate, NVLINK, kind="nvlink", count=count)
    for index, name in enumerate(names):
        if index not in gpus:
            builder.add_node(name, "nic", forwards=False)
    generation = model.pcie if model is not None else 3
    if groups:
        _Tree(builder, table, generation, taken).plant(groups)
    builder.description = _description(table, model, guessed, switched, direct, bool(groups), hidden)
    builder.source = (
        f"The table of nvidia-smi topo -m in {source.file}. Rates: NCCL (src/graph/topo.h and topo.cc). "
        "Latencies: the hops of NCCL's model (tuning.cc, LL), 0.6 us over NVLink and 1 us over a PCIe switch; 0.3 us "
        "between sockets is assumed."
    )
    return builder.build(ranks=[names[index] for index in table.gpus])


def _free(taken: set[str], name: str) -> str:
    """Return a name that no device of the table has."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


# NVLinks


def _count(table: Table, a: int, b: int) -> int:
    cell = table.cells[a][b]
    return int(cell[2:]) if cell.startswith("NV") else 0


def _pairs(table: Table, part: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the pairs of some GPUs that NVLinks join, and how many."""
    for place, b in enumerate(part):
        for a in part[:place]:
            if count := _count(table, a, b):
                yield a, b, count


def _complete(table: Table, part: list[int]) -> bool:
    return sum(1 for _ in _pairs(table, part)) == len(part) * (len(part) - 1) // 2


def _between(table: Table, part: list[int]) -> list[int]:
    """Return the GPUs that join two others which have no NVLinks to each other: NCCL goes through one such GPU."""
    near = {a: {b for b in part if _count(table, a, b)} for a in part}
    return [a for a in part if any(near[a] - near[b] - {b} for b in near[a])]


def _parts(table: Table) -> list[list[int]]:
    """Return the sets of GPUs that NVLinks join, two or more in each."""
    left, parts = set(table.gpus), []
    for gpu in table.gpus:
        if gpu not in left:
            continue
        left.discard(gpu)
        part = [gpu]
        for a in part:
            more = sorted(b for b in left if _count(table, a, b))
            left.difference_update(more)
            part += more
        if len(part) > 1:
            parts.append(sorted(part))
    return parts


def _nvlinks(table: Table, model: Gpu | None) -> tuple[list[tuple[list[int], int]], list[list[int]]]:
    """Part the sets of GPUs into those behind an NVSwitch, with the NVLinks of each GPU, and those joined directly."""
    if model is None:
        return [], []
    switched, direct = [], []
    parts = _parts(table)
    for part in parts:
        counts = {count for _, _, count in _pairs(table, part)}
        most = max(counts)
        alone = len(parts) == 1 and len(part) == len(table.gpus)
        # two with all their NVLinks between them are joined by bridges or by an NVSwitch, at the same rate; since the
        # H100 bridges have fewer
        whole = most == model.nvlinks and (len(part) > 2 or (alone and model.sm >= 90))
        if len(counts) == 1 and _complete(table, part) and (whole or most * (len(part) - 1) > model.nvlinks):
            switched.append((part, most))
            continue
        for a in part:
            total = sum(_count(table, a, b) for b in part)
            if total > model.nvlinks:
                b = next(b for b in part if _count(table, a, b))
                table.fail(
                    a,
                    b,
                    f"expected at most {model.nvlinks} NVLinks of {table.names[a]}, a {model.family}, got {total}",
                )
        direct.append(part)
    return switched, direct


def _model(table: Table, gpu: str | None) -> tuple[Gpu | None, bool]:
    """Return the GPU and whether it was found by its NVLinks; none if there are no NVLinks and it was not given."""
    given = gpu_model(gpu) if gpu is not None else None
    pairs = list(_pairs(table, table.gpus))
    if given is not None:
        for a, b, count in pairs:
            if count > given.nvlinks:
                has = f"{given.nvlinks} NVLinks" if given.nvlinks else "no NVLink"
                table.fail(b, a, f"expected the NVLinks of a {given.family}, which has {has}, got NV{count}")
        return given, False
    if not pairs:
        return None, False
    n, counts = len(table.gpus), {count for _, _, count in pairs}
    totals = {a: sum(_count(table, a, b) for b in table.gpus) for a in table.gpus}
    neighbours = max(sum(1 for b in table.gpus if _count(table, a, b)) for a in table.gpus)
    most, complete = max(totals.values()), len(pairs) == n * (n - 1) // 2
    name = None
    if complete and len(counts) == 1 and n > 2:
        # six each among three or four GPUs may be four H100 without NVSwitch
        name = {12: "a100", 6: "v100" if n > 4 else None, 4: "a100" if n <= 4 else None}.get(max(counts))
    if name is None and neighbours > 1 and counts <= {1, 2} and most in (5, 6):
        name = "v100"  # a P100 has four, and later GPUs are joined by four links or six
    if name is None and counts == {1} and most == 4:
        name = "p100"
    if name is None:
        a, b, count = max(pairs, key=lambda pair: pair[2])
        able = [
            known.family for known in gpu_models().values() if known.nvlinks >= (count if complete and n > 2 else most)
        ]
        table.fail(
            b,
            a,
            f"expected to be told which GPU this is, since several can have NV{count} here; name it with gpu=, or "
            f"collsim convert ... --gpu, one of {', '.join(able) or 'none that is known'}",
        )
    return gpu_models()[name], True


# PCIe


def _slot(generation: int) -> int:
    return pcie_bandwidth(LANES, generation_speed(generation))


class _Tree:
    """Plants the PCIe tree: a switch for devices that are near to each other, none for those that are alone."""

    def __init__(self, builder: TopologyBuilder, table: Table, generation: int, taken: set[str]) -> None:
        self.builder, self.table, self.taken = builder, table, taken
        self.gpus = set(table.gpus)
        self.rate = _slot(generation)
        _, self.socket_kind, self.between = SOCKETS[generation]
        self.switches = 0

    def plant(self, groups: Groups) -> None:
        cpus: list[str] = []
        for label, bridges in zip(self._labels(groups), groups, strict=True):
            cpu = self._host(f"cpu[{label}]")
            for number, outer in enumerate(bridges):
                bridge = self._host(f"bridge[{label},{number}]") if len(bridges) > 1 else cpu
                for switches in outer:
                    self._below(switches, bridge)
                if bridge != cpu:  # inside a CPU: as wide as all that comes from below
                    self.builder.add_duplex(bridge, cpu, self.rate * len(outer), SOCKET, kind="pcie")
            for other in cpus:
                self.builder.add_duplex(other, cpu, self.between, SOCKET, kind=self.socket_kind)
            cpus.append(cpu)

    def _below(self, switches: list[list[int]], host: str) -> None:
        if len(switches) > 1:
            outer = self._switch()
            self._join(outer, host)
            for devices in switches:
                self._leaf(devices, outer)
        elif len(switches[0]) > 1:
            self._leaf(switches[0], host)
        else:
            self._device(switches[0][0], host)

    def _leaf(self, devices: list[int], above: str) -> None:
        switch = self._switch()
        self._join(switch, above)
        for device in devices:
            self._device(device, switch)

    def _device(self, device: int, above: str) -> None:
        self._join(self.table.names[device], above, PCIE if device in self.gpus else 0)

    def _join(self, below: str, above: str, latency: int = PCIE) -> None:
        self.builder.add_duplex(below, above, self.rate, latency, kind="pcie")

    def _switch(self) -> str:
        name = _free(self.taken, f"pcisw[{self.switches}]")
        self.switches += 1
        self.builder.add_node(name, "switch")
        return name

    def _host(self, name: str) -> str:
        name = _free(self.taken, name)
        self.builder.add_node(name, "host")
        return name

    def _labels(self, groups: Groups) -> list[int]:
        """Return a number for each NUMA node: that of the affinity of its GPUs, where that is one and its own."""
        found: list[int | None] = []
        for bridges in groups:
            devices = [device for outer in bridges for switches in outer for group in switches for device in group]
            numas = {self.table.numas[device] for device in devices} - {""}
            text = numas.pop() if len(numas) == 1 else ""
            found.append(int(text) if text.isdigit() and len(text) <= 4 else None)
        found = [number if found.count(number) == 1 else None for number in found]
        free = (number for number in range(len(groups) * 2) if number not in found)
        return [number if number is not None else next(free) for number in found]


# Words


def _description(
    table: Table,
    model: Gpu | None,
    guessed: bool,
    switched: list[tuple[list[int], int]],
    direct: list[list[int]],
    planted: bool,
    hidden: bool,
) -> str:
    nics = len(table.names) - len(table.gpus)
    texts = [f"{_many(len(table.gpus), 'GPU')}" + (f" and {_many(nics, 'NIC')}" if nics else "") + " of one machine."]
    generation = model.pcie if model is not None else 3
    if model is not None and guessed:
        texts.append(f"The GPUs are taken for {model.family.upper()} by their NVLinks.")
    elif model is not None:
        texts.append(f"The GPUs are {model.family.upper()}, as was given.")
    if model is not None and (switched or direct):
        rate = nvlink_bandwidth(model.sm)
        texts.append(f"An NVLink moves {format_bandwidth(rate)} in one direction, as NCCL reckons.")
        for count in sorted({count for _, count in switched}):
            texts.append(
                f"GPUs with NV{count} to each other are behind an NVSwitch, {count} NVLinks as one link of "
                f"{format_bandwidth(count * rate)}."
            )
    if planted:
        cpu, _, between = SOCKETS[generation]
        slot = f"PCIe is generation {generation} x16, {format_bandwidth(_slot(generation))}"
        slot += " (assumed, since the GPU was not given)" if model is None else ""
        texts.append(f"{slot}; between sockets {format_bandwidth(between)} are assumed ({cpu}).")
        if hidden:
            texts.append("Where NVLinks hide how near two GPUs are on PCIe, they are as far as the others allow.")
    else:
        texts.append("PCIe is left out, since the table shows nothing of it.")
    if nics:
        texts.append("The table has no speed of NICs: they have that of their slot, and no network is behind them.")
    return " ".join(texts)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("s" if count != 1 else "")
