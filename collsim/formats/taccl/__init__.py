"""The topology files of TACCL (JSON): costs of the links of a node, and of the network between nodes.

=================== ==================================================================================================
``name``            name of the machine
``gpus_per_node``   GPUs of a node
``alpha``           microseconds of a transfer between two GPUs of a node, whatever its size
``links``           number of links, ``links[dst][src]`` from src to dst (the destination comes first)
``betas``           microseconds that such a link takes for the message, ``betas[dst][src]``
``node_betas_list`` instead of the two, for the machines that TACCL knows by name: one beta for GPUs on a switch
                    (HubAndSpoke, DGX2), two for the hybrid cube mesh of the NDv2 of Azure (a DGX-1), the faster first
``nics_per_node``   adapters of a node
``remote_alpha``    the same costs for a message from a GPU to one of another node, over one adapter
``remote_beta``
=================== ==================================================================================================

``invbws``, ``node_invbws_list`` and ``remote_invbw`` are the sums of alpha and beta again, rounded. Sums that are not
are refused; other keys are passed over.

A beta is for **one message**: the file is written for one size, and its betas are microseconds per MB times that size
in MB. TACCL's own files for 32 KB and 1 KB divide by 32 and by 1024, so its MB is 2**20 bytes. They also multiply all
costs by a factor, 10 and 100, since the solver rounds them. Neither stands in the file, so ``size`` and ``scale`` say
it; left out they are 1 MiB and 1, and a name that ends in another size (``NDv2_1KB``) is refused without ``size``.

With ``nodes`` there are several nodes on one switch that is no bottleneck. Each GPU has a link to its adapter (GPU g to
number g * adapters // GPUs; to several where there are more adapters than GPUs). Adapters have the rate of
remote_beta, and remote_alpha is parted over the two links to the switch. Which GPUs shall talk to other nodes is not in
this file but in TACCL's sketch; here all may.

Facts from TACCL (MIT): ``README.md``, ``INPUT_GUIDE.md``, ``taccl/topologies/generic.py``, ``topology.py``,
``taccl/cli/common.py`` and ``taccl/examples/topo`` of github.com/microsoft/taccl.
"""

from __future__ import annotations

import os

from collsim.errors import InputError, shown
from collsim.formats.source import Source, read_source
from collsim.formats.taccl.cluster import Cluster
from collsim.formats.taccl.document import read_document
from collsim.topology.graph import Topology
from collsim.topology.names import MAX_NODES

__all__ = ["parse_taccl", "read_taccl"]

MAX_BYTES = 16 * 2**20
"""More than the matrices of the largest node need."""


def read_taccl(
    path: str | os.PathLike[str], *, nodes: int = 1, size: str | int | None = None, scale: float = 1
) -> Topology:
    """Read a topology file of TACCL.

    Parameters
    ----------
    path
        A JSON file.
    nodes
        Nodes of the cluster; with more than one the file must have the costs of the network.
    size
        Bytes of the message that the costs are for: a number, or a text such as ``"32K"`` (32 KiB); 1 MiB by default.
    scale
        Factor by which all costs were multiplied.

    Returns
    -------
    Topology
        Ranks are the GPUs, node by node. Rates in bytes/s, latencies in ps.

    Raises
    ------
    TopologyError
        Not such a file, with the place; or costs of the network are missing.
    InputError
        An option that cannot be used.

    Examples
    --------
    >>> read_taccl("no/such.json")
    Traceback (most recent call last):
    collsim.errors.TopologyError: no/such.json: expected a TACCL topology, got no such file
    """
    return parse_taccl(read_source(path, "a TACCL topology", limit=MAX_BYTES), nodes=nodes, size=size, scale=scale)


def parse_taccl(source: Source, *, nodes: int = 1, size: str | int | None = None, scale: float = 1) -> Topology:
    """Return the machine of a text; see `read_taccl`.

    Raises
    ------
    TopologyError, InputError
        As `read_taccl`.

    Examples
    --------
    >>> text = '{"name": "pair", "gpus_per_node": 2, "alpha": 1, "links": [[0, 1], [0, 0]], "betas": [[0, 50], [0, 0]]}'
    >>> topology = parse_taccl(Source("pair.json", text))
    >>> topology.link_name(0), int(topology.link_bandwidth[0]), int(topology.link_latency[0])
    ('gpu[1]->gpu[0]', 20971520000, 1000000)
    """
    if isinstance(nodes, bool) or not isinstance(nodes, int) or not 1 <= nodes <= MAX_NODES:
        raise InputError(f"nodes: expected a whole number from 1 to {MAX_NODES:,}, got {shown(nodes)}")
    return Cluster(read_document(source, size, scale), nodes).build()
