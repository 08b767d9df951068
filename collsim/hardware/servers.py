"""GPUs in a usual server, by a name that says what it is: ``l40sx4``, ``rtx2080tix2-bridge``, ``t4x2-shm-gen3``.

There is no one such server, so this is one that could be: up to two GPUs hang on one CPU, three and more on two sockets
with a PCIe switch each. The CPU is of the generation of PCIe. A GPU that is sold on a platform only is on all of
that: ``h100x8`` is ``hgx-h100``, half of it is ``hgx-h100:4``.

=============  ==========================================================================
``-bridge``    NVLink bridges join GPUs 0 and 1, 2 and 3, and so on
``-shm``       GPUs do not reach each other over PCIe, but through host memory
``-gen3``      PCIe of this generation, where the slots are slower than the GPUs
=============  ==========================================================================
"""

from __future__ import annotations

import re

from collsim.errors import InputError
from collsim.hardware.catalogue import cpu, gpus, nodes, with_gpu
from collsim.hardware.model import Gpu, Node

__all__ = ["board_of", "server", "server_of"]

MOST_GPUS = 16
_NAME = re.compile(r"(.+?)x([0-9]{1,3})((?:-(?:bridge|shm|gen[0-9]))*)\Z")
_CPUS = {3: "xeon-skylake-2upi", 4: "epyc-rome", 5: "xeon-sapphire-rapids", 6: "xeon-granite-rapids"}


def server(name: str) -> Node | None:
    """Return the server of a name such as ``l40sx4``; None if the name is not of this form.

    Raises
    ------
    InputError
        So many GPUs, or a bridge that the GPU does not have.

    Examples
    --------
    >>> four = server("l40sx4")
    >>> four.gpu.name, four.sockets, four.switches, four.pcie
    ('l40s', 2, 2, 4)
    >>> server("rtx2080tix2-bridge").links, server("no-such-gpux2") is None
    (((0, 1, 2),), True)
    """
    match = _NAME.match(name)
    model = gpus().get(match[1]) if match else None
    if match is None or model is None:
        return None
    words = match[3].split("-")[1:]
    slower = next((int(word[3:]) for word in words if word.startswith("gen")), model.pcie)
    return server_of(model, int(match[2]), bridge="bridge" in words, shm="shm" in words, pcie=slower)


def server_of(model: Gpu, count: int, *, bridge: bool = False, shm: bool = False, pcie: int = 0) -> Node:
    """Return a server with so many of a GPU.

    Parameters
    ----------
    model, count
        The GPU and their number.
    bridge
        Whether NVLink bridges join pairs of them.
    shm
        Whether GPUs reach each other through host memory only.
    pcie
        Generation of the slots; by default that of the GPU.

    Raises
    ------
    InputError
        So many GPUs, a bridge that the GPU does not have, slots that are faster than the GPU, or a part of a platform.

    Examples
    --------
    >>> from collsim.hardware.catalogue import gpu
    >>> server_of(gpu("h100-nvl"), 4, bridge=True).name
    'h100-nvlx4-bridge'
    """
    pcie = pcie or model.pcie
    name = f"{model.name}x{count}"
    if not 1 <= count <= MOST_GPUS:
        raise InputError(f"node: expected 1 to {MOST_GPUS} GPUs in a PCIe server, got {count} ({name})")
    if bridge and not (model.links and model.form in ("pcie", "nvl")):
        raise InputError(f"node: expected a GPU with an NVLink bridge before -bridge, got {model.name}, which has none")
    if not 3 <= pcie <= model.pcie:
        raise InputError(f"node: expected -gen3 to -gen{model.pcie} for {model.name}, got -gen{pcie}")
    board = board_of(model)
    if board is not None and not (bridge or shm) and pcie == model.pcie:
        if count == board.gpus:
            return board
        remedy = f"write {board.name}:{count}" if count < board.gpus else f"{board.name} has {board.gpus}"
        raise InputError(f"node: expected a whole node, got {name}: {model.name} is on {board.name}; {remedy}")
    shm = shm or not model.p2p
    name += ("-bridge" if bridge else "") + ("-shm" if shm and model.p2p else "")
    name += f"-gen{pcie}" if pcie != model.pcie else ""
    pairs = tuple((2 * i, 2 * i + 1, model.links) for i in range(count // 2)) if bridge else ()
    return Node(
        name=name,
        gpu=model,
        gpus=count,
        join="mesh" if bridge and count == 2 else "pcie",
        sharp=False,
        boards=0,
        trunk=0,
        links=pairs,
        cpu=cpu(_CPUS[pcie]),
        sockets=1 if count <= 2 else 2,
        switches=0 if count <= 2 else 2,
        nic=None,
        nic_bandwidth=0,
        nics=0,
        nics_on_cpu=False,
        transport="",
        network="rails",
        per_host=count,
        pcie=pcie,
        p2p=not shm,
        board=True,
        source=f"a usual server with {model.name}; PCI-SIG for the slots, and {cpu(_CPUS[pcie]).source}",
    )


def board_of(model: Gpu) -> Node | None:
    """Return the platform on which servers have a GPU of this family and form, with this GPU; None if there is none.

    Examples
    --------
    >>> from collsim.hardware.catalogue import gpu
    >>> board_of(gpu("a100-40gb")).name, board_of(gpu("h100-pcie")) is None
    ('hgx-a100[a100-40gb]', True)
    """
    for found in nodes().values():
        if found.board and (found.gpu.family, found.gpu.form) == (model.family, model.form):
            return with_gpu(found, model)
    return None
