"""Reading InfraGraph documents."""

from __future__ import annotations

import os
from collections.abc import Mapping

from collsim.errors import InputError, shown
from collsim.formats.infragraph.counts import complete
from collsim.formats.infragraph.document import Document, Link, read_document
from collsim.formats.infragraph.layout import Layout
from collsim.formats.infragraph.machine import Machine
from collsim.formats.infragraph.prices import Prices, Rates
from collsim.formats.infragraph.tree import load, nearest
from collsim.formats.source import Source, read_source
from collsim.topology.graph import Topology
from collsim.units import Quantity, parse_bandwidth

__all__ = ["parse_infragraph", "read_infragraph"]


def read_infragraph(path: str | os.PathLike[str], *, rates: Mapping[str, Quantity] | None = None) -> Topology:
    """Read an InfraGraph document, in YAML or JSON.

    Parameters
    ----------
    path
        The file: an infrastructure in the edges of today or the dotted connections of the first versions, or a device
        alone.
    rates
        Bandwidths of links by name (``"pcie"``, or ``"server.pcie"`` for that of device ``server`` only), of one edge
        in one direction. They count before those of the file.

    Returns
    -------
    Topology
        Ranks are the xpus, instance after instance, in the order of components. Nodes are called ``server[0].xpu[3]``,
        the only node of a device as its instance is: ``leaf[0]``. A port is one node with what is behind it in its
        device, unless the link between them has a bandwidth. Memory and disks are left out, for no message passes
        them. GPUs forward only where there are direct links between some of them and not between all.

        Each edge is a link each way; one that is listed again by the same link counts once, as in InfraGraph. Links
        without a bandwidth in the file have that of the standard that their name or description says (PCIe with its
        generation, NVLink, Ethernet, InfiniBand; those of CPUs as NCCL reckons with them). The NVLinks of a GPU that
        the file describes (A100, H100, ...) are shared by its edges, for an edge may stand for several. Gigatransfers
        are those of a PCIe lane, over 16 lanes where the file does not say. `Topology.description` tells what was
        assumed, latencies among it.

    Raises
    ------
    TopologyError
        With the place of what is missing or wrong, of a link whose bandwidth nobody knows, of a device that is not in
        the file and neither NIC nor switch.
    InputError
        If a rate is none, or of a link that there is not.

    Examples
    --------
    >>> read_infragraph("no/such.yaml")
    Traceback (most recent call last):
    collsim.errors.TopologyError: no/such.yaml: expected an InfraGraph document, got no such file
    """
    given = _rates(rates)
    return parse_infragraph(read_source(path, "an InfraGraph document"), given)


def parse_infragraph(source: Source, rates: Mapping[str, Quantity] | None = None) -> Topology:
    r"""Return the topology of the text of a document; see `read_infragraph`.

    Examples
    --------
    >>> text = '''
    ... devices:
    ... - name: box
    ...   components:
    ...   - {name: xpu, count: 4, choice: xpu}
    ...   - {name: sw, count: 1, choice: switch}
    ...   links: [{name: nvlink, physical: {bandwidth: {choice: gigabytes_per_second, gigabytes_per_second: 450}}}]
    ...   edges:
    ...   - {ep1: {component: "xpu[0:4]"}, ep2: {component: sw}, scheme: many2many, link: nvlink}
    ... instances: [{name: box, device: box, count: 1}]
    ... name: small
    ... '''
    >>> topology = parse_infragraph(Source("small.yaml", text))
    >>> topology
    <Topology 'small': 4 ranks, 5 nodes, 8 links of 450GB/s>
    >>> [topology.link_name(link) for link in topology.route(0, 3)]
    ['box[0].xpu[0]->box[0].sw[0]', 'box[0].sw[0]->box[0].xpu[3]']
    """
    given = _rates(rates)
    document = read_document(load(source))
    _check_rates(given, document)
    complete(document)
    prices = Prices(given)
    layout = Layout(document, prices.known)
    return Machine(document, layout, prices).topology(document.name or source.title, source.file)


def _rates(rates: Mapping[str, Quantity] | None) -> Rates:
    if rates is None:
        return {}
    if not isinstance(rates, Mapping):
        raise InputError(f"rates: expected bandwidths by the names of links, got {shown(rates)}")
    given: Rates = {}
    for name, rate in rates.items():
        try:
            given[str(name)] = parse_bandwidth(rate)
        except InputError as error:
            raise InputError(f"rates: {shown(name)}: {error}") from None
    return given


def _check_rates(given: Rates, document: Document) -> None:
    edges = [*document.edges, *(edge for device in document.devices.values() for edge in device.edges)]
    known = {edge.link for edge in edges}
    tables: list[Mapping[str, Link]] = [document.links, *(device.links for device in document.devices.values())]
    for table in tables:
        known |= {name for link in table.values() for name in (link.name, f"{link.owner}.{link.name}")}
    for name in given:
        if name not in known:
            hint = nearest(name, known)
            raise InputError(f"rates: expected a link of {document.root.source.name}, got {shown(name)}{hint}")
