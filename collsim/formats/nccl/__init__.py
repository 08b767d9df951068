"""Topologies of NCCL and RCCL: the XML of ``NCCL_TOPO_DUMP_FILE`` and ``NCCL_TOPO_FILE``, versions 1 and 2.

The machine is that of NCCL (``src/graph/topo.cc``), with its rates: the PCI tree from GPUs and adapters over switches
to the CPUs, CPUs of a host joined with each other, GPUs on NVSwitch or joined directly. Broadcom's PCIe switches, which
show two levels, are one. All NVLinks of a GPU to NVSwitches are one link, because the hardware stripes over them; links
between two GPUs are parallel ones.

Unlike NCCL, NVSwitches that a host sees on its PCI join the GPUs of that host only. Those that no host sees join all
hosts of a file: NCCL writes several hosts only for multi-node NVLink.

Elements and attributes that are not known are passed over, since NCCL passes them over too; the description names the
elements. ``guid``, ``maxconn`` and ``affinity`` change nothing here.
"""

from __future__ import annotations

import os

from collsim.errors import InputError, shown
from collsim.formats.gpus import gpu_model
from collsim.formats.nccl.joining import join_hosts
from collsim.formats.nccl.ranking import fill, in_order, switched
from collsim.formats.nccl.rates import generation_speed
from collsim.formats.nccl.reading import Reader
from collsim.formats.nccl.wiring import is_sharp, wire
from collsim.formats.nccl.words import describe_machine
from collsim.formats.source import Source, read_source
from collsim.formats.xmltree import parse_xml
from collsim.topology.graph import Topology

__all__ = ["parse_nccl", "read_nccl"]

MOST_HOSTS = 100_000


def read_nccl(path: str | os.PathLike[str], *, gpu: str | None = None, nodes: int = 1) -> Topology:
    """Read a topology that NCCL or RCCL wrote, or a file that cloud vendors give it.

    Parameters
    ----------
    path
        The file.
    gpu
        The GPU, such as ``"a100"``: fills in what a partial file leaves out (compute capability, NVLinks, PCIe speeds).
        The description says what was filled in.
    nodes
        Copies of the host, on one network switch that is no bottleneck.

    Returns
    -------
    Topology
        Ranks are the GPUs in the order of their ``rank`` (else ``dev``, else of the file). Nodes are called ``gpu[0]``,
        ``nvswitch``, ``nic.mlx5_0``, ``pci.0000:0d:00.0`` and ``cpu[0]``, of several hosts ``node[1].gpu[0]``. Rates in
        bytes/s, latencies in ps.

    Raises
    ------
    TopologyError
        Not such a file, one without GPUs, a partial one without ``gpu``, one that contradicts it or itself, copies of
        several hosts or of one without adapters; with the place.
    InputError
        There is no such ``gpu``, or ``nodes`` is not a whole number from 1.

    Examples
    --------
    >>> read_nccl("no/such.xml")
    Traceback (most recent call last):
    collsim.errors.TopologyError: no/such.xml: expected an NCCL topology, got no such file
    """
    return parse_nccl(read_source(path, "an NCCL topology"), gpu=gpu, nodes=nodes)


def parse_nccl(source: Source, *, gpu: str | None = None, nodes: int = 1) -> Topology:
    '''Return the topology of the text of an NCCL topology; see `read_nccl`.

    Examples
    --------
    >>> text = """<system version="1"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49">
    ...   <pci busid="0000:07:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
    ...     <gpu dev="0" sm="80" rank="0"><nvlink target="0000:0f:00.0" count="4" tclass="0x030200"/></gpu></pci>
    ...   <pci busid="0000:0f:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
    ...     <gpu dev="1" sm="80" rank="1"><nvlink target="0000:07:00.0" count="4" tclass="0x030200"/></gpu></pci>
    ... </cpu></system>"""
    >>> topology = parse_nccl(Source("pair.xml", text))
    >>> topology
    <Topology 'pair': 2 ranks, 3 nodes, 6 links of 24GB/s to 80GB/s>
    >>> topology.nodes
    ('gpu[0]', 'gpu[1]', 'cpu[0]')
    '''
    model = None if gpu is None else gpu_model(gpu)
    if isinstance(nodes, bool) or not isinstance(nodes, int) or not 1 <= nodes <= MOST_HOSTS:
        raise InputError(f"nodes: expected a whole number from 1 to {MOST_HOSTS:,}, got {shown(nodes)}")
    root = parse_xml(source)
    reader = Reader(None if model is None else generation_speed(model.pcie))
    hosts = reader.read(root)
    notes = fill(root, hosts, model, reader.without_class)
    hosts, places, more = in_order(hosts)
    notes += more
    if nodes > 1 and len(hosts) > 1:
        root.fail(f"expected one host to make {nodes} copies of, got {len(hosts)} by their host_hash; leave nodes out")
    fills = [switched(host, model) for host in hosts]
    notes += dict.fromkeys(sentence for _, sentence in fills if sentence)
    wired = [wire(host, filled, len(hosts) > 1) for host, (filled, _) in zip(hosts, fills, strict=True)]
    if len(hosts) * nodes > 1 and not all(host.hidden for host in wired):
        alone = next((host for host, those in zip(hosts, wired, strict=True) if not those.ports), None)
        if alone is not None:
            alone.cpus[0].element.fail(
                "expected a network adapter (<nic> with <net>) to join the host to others, got none"
            )
    return join_hosts(
        root,
        source.title,
        wired,
        places,
        nodes,
        sharp=all(is_sharp(host) for host in hosts),
        description=describe_machine(reader, hosts, wired, nodes, notes, None if model is None else model.family),
        source=(
            f"NCCL topology {source.file}. Rates: NCCL and RCCL "
            "(src/graph/topo.h and topo.cc). Latencies: the hops of NCCL's model (tuning.cc, LL), 0.6 us over NVLink, "
            "1 us over a PCIe switch, 2.7 us over the network, 0.8 us over xGMI (RCCL); 0.3 us between CPUs is assumed."
        ),
    )
