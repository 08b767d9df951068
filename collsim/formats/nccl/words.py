"""What is said of a machine that was read: what was in the file, what was filled in, what was assumed."""

from __future__ import annotations

from collections.abc import Sequence

from collsim.formats.nccl.parts import Host
from collsim.formats.nccl.reading import Reader
from collsim.formats.nccl.wiring import Wired
from collsim.units import format_bandwidth

__all__ = ["describe_machine"]


def describe_machine(
    reader: Reader, hosts: Sequence[Host], wired: Sequence[Wired], nodes: int, notes: Sequence[str], gpu: str | None
) -> str:
    """Return the description: plain sentences."""
    gpus = sum(len(host.gpus) for host in hosts)
    ports = sum(len(host.ports) for host in wired)
    kinds = sorted({f"sm {gpu.sm}" if not gpu.gcn else f"gcn {gpu.gcn[:20]}" for host in hosts for gpu in host.gpus})
    known = [kind for kind in kinds if kind != "sm 0"][:4]
    texts = [
        f"{many(gpus, 'GPU')}{' (' + ', '.join(known) + ')' if known else ''} and {many(ports, 'network port')}"
        f"{f' on {len(hosts)} hosts' if len(hosts) > 1 else ''}.",
        "Rates are those that NCCL reckons with, which lie below the rated ones: PCIe has 3/4 of lanes x GT/s.",
    ]
    texts += notes
    texts += _fabric(wired)
    texts += _network(wired, len(hosts) * nodes, nodes)
    texts += _assumed(reader, wired, hosts, gpu)
    return " ".join(texts)


def _fabric(wired: Sequence[Wired]) -> list[str]:
    texts = []
    groups = {group: 0 for host in wired for group in host.switched}
    for count, rate in sorted(groups)[:4]:
        texts.append(f"{many(count, 'NVLink')} of a GPU go to NVSwitch, as one link of {format_bandwidth(rate)}.")
    if any(host.hidden for host in wired):
        texts.append("The NVSwitches are out of the hosts and join the GPUs of all of them (multi-node NVLink).")
    if direct := sum(host.direct for host in wired):
        as_one = all(host.striped for host in wired if host.direct)
        how = "those of a pair as one" if as_one else "parallel where a pair has several (channels use them)"
        texts.append(f"{many(direct, 'link')} between GPUs, {how}.")
    if any(forwards for host in wired for _, kind, forwards, _ in host.nodes if kind == "gpu"):
        texts.append("GPUs without links to each other are reached through one that has both, as NCCL does.")
    if lost := sum(host.lost for host in wired):
        texts.append(f"Left out: {many(lost, 'link')} of GPUs to others that the file does not have.")
    return texts


def _network(wired: Sequence[Wired], hosts: int, nodes: int) -> list[str]:
    ports = [port for host in wired for port in host.ports]
    if hosts == 1:
        return (
            ["No network is behind the adapters; nodes (--nodes) makes copies of the host with one."] if ports else []
        )
    if not ports:
        return []
    texts = [f"The host is there {nodes} times." if nodes > 1 else ""]
    texts.append(
        "The file has no network: all ports are assumed to be on one switch that is no bottleneck, each at its rate."
    )
    if len({port[3] for port in ports}) > 1:
        texts.append("InfiniBand and Ethernet share it.")
    if all(port[4] for port in ports):
        texts.append("It adds up and copies, since all ports say coll (SHARP).")
    return [text for text in texts if text]


def _assumed(reader: Reader, wired: Sequence[Wired], hosts: Sequence[Host], gpu: str | None) -> list[str]:
    texts = []
    if reader.without_speed:
        links = f"PCI links without a known speed ({reader.without_speed})"
        texts.append(f"{links} have {f'that of the {gpu.upper()}' if gpu else '8 GT/s, as in NCCL'}.")
    if reader.without_rate:
        texts.append(f"Adapters without a speed in the file ({reader.without_rate}) have that of their slot.")
    if reader.without_line_rate:
        texts.append(f"Ports without a speed in the file ({reader.without_line_rate}) have 10 Gb/s, as NCCL assumes.")
    if diverted := sum(host.diverted for host in wired):
        ports = f"Ports without GPU Direct RDMA ({diverted})"
        texts.append(f"{ports} are joined to the CPU, through whose memory their traffic goes.")
    if any(not cpu.known for host in hosts if len(host.cpus) > 1 for cpu in host.cpus):
        texts.append("CPUs that NCCL does not know are joined at 5000 GB/s, as it does.")
    if reader.left_out:
        texts.append(
            f"{many(reader.left_out, 'device')} with keep=0 {'is' if reader.left_out == 1 else 'are'} left out."
        )
    if reader.ignored:
        texts.append(f"Elements that are not known were passed over: {', '.join(list(reader.ignored)[:5])}.")
    return texts


def many(count: int, noun: str) -> str:
    """Return a number and a noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
