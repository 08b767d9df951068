"""The table of ``nvidia-smi topo -m``: which GPUs NVLinks join, and how far GPUs and NICs are apart on PCIe.

The first row names the columns: GPUs, then NICs (``mlx5_0``, or ``NIC0`` with a legend below), then affinities. The
cell of two devices is ``NV<n>`` (n NVLinks), or the farthest that a message between them goes on PCIe: ``PIX`` over one
switch, ``PXB`` several, ``PHB`` a host bridge, ``NODE`` two host bridges of one NUMA node, ``SYS`` (once ``SOC``) two
NUMA nodes. Columns are parted by tabs or blanks. Colours, prompts before the table and text after it are passed over;
cells that ran into each other in a narrow terminal (``NODEPIX``) are taken apart.

What the table does not say, and what is taken instead:

- **Rates.** NVLinks and PCIe have those that NCCL reckons with, as in the reader of NCCL's own files: an NVLink by
  the compute capability of the GPU, PCIe at x16 of the generation of its slot (width * v / 80, so 12, 24 or 48 GB/s).
  Which GPU it is, ``gpu`` tells. Without it only NVLinks that one GPU alone can show are a sign: twelve from each to
  each (A100), six from each to each of five or more (V100), four from each to each of three or four (A100), ones and
  twos, five or six a GPU (V100), ones, four a GPU (P100). Machines without NVLink are taken for PCIe generation 3.
- **NVSwitch.** Where all GPUs that NVLinks join have the same number to each other, and that is all that a GPU has, or
  more than it could have for each, they are behind an NVSwitch: one link a GPU, since the hardware stripes over all
  (``topologies/dgx-h100.yaml``). From sm 90 on it reduces and multicasts. Other NVLinks are parallel links.
- **The PCIe tree** is the smallest that has these distances. Distances that cannot belong to a tree are refused. Where
  NVLinks hide the distance of two GPUs, it is the greatest that the others allow. The x16 link up from a switch has
  the rate of those down. A link between sockets has NCCL's rate for the CPUs of that generation of PCIe: Skylake 10
  GB/s, AMD 16, Sapphire Rapids 22. What joins host bridges inside a NUMA node is no bottleneck.
- **NICs** have the rate of their slot, and no network behind them.

Affinities name the hosts (``cpu[1]`` is NUMA node 1), and tell the sockets of GPUs whose distance stands nowhere.
"""

from __future__ import annotations

import os

from collsim.formats.nvidia_smi.machine import machine
from collsim.formats.nvidia_smi.table import parse_table
from collsim.formats.source import Source, read_source
from collsim.topology.graph import Topology

__all__ = ["parse_nvidia_smi", "read_nvidia_smi"]

MAX_BYTES = 8 * 2**20
"""More than the largest table and a log around it need."""


def read_nvidia_smi(path: str | os.PathLike[str], *, gpu: str | None = None) -> Topology:
    """Read what ``nvidia-smi topo -m`` printed.

    Parameters
    ----------
    path
        A file with the table; it may have other text around it.
    gpu
        The GPU, such as ``"h100"``; found by the NVLinks where only one GPU has such.

    Returns
    -------
    Topology
        Ranks are the GPUs in their order. Rates in bytes/s, latencies in ps.

    Raises
    ------
    TopologyError
        No such table, one with missing, double, wrong or unequal cells, distances that are no tree, NVLinks that
        several GPUs have while ``gpu`` is not given, or that ``gpu`` cannot have; with the place.
    InputError
        There is no such ``gpu``.

    Examples
    --------
    >>> read_nvidia_smi("no/such.txt")
    Traceback (most recent call last):
    collsim.errors.TopologyError: no/such.txt: expected a table of nvidia-smi topo -m, got no such file
    """
    return parse_nvidia_smi(read_source(path, "a table of nvidia-smi topo -m", limit=MAX_BYTES), gpu=gpu)


def parse_nvidia_smi(source: Source, *, gpu: str | None = None) -> Topology:
    r"""Return the machine of a text; see `read_nvidia_smi`.

    Raises
    ------
    TopologyError, InputError
        As `read_nvidia_smi`.

    Examples
    --------
    >>> text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-31\nGPU1\tPHB\t X \t0-31\n"
    >>> topology = parse_nvidia_smi(Source("pair.txt", text), gpu="l40s")
    >>> [topology.link_name(link) for link in topology.route(0, 1)]
    ['GPU0->cpu[0]', 'cpu[0]->GPU1']
    """
    return machine(parse_table(source), gpu)
