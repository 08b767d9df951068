"""Reading network files of ASTRA-sim: the lists, and the machine that they mean."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError, did_you_mean
from collsim.formats.astra_sim.dimension import Dimension, groups_of, places_of
from collsim.formats.source import Source, read_source
from collsim.topology import yamltree
from collsim.topology.builder import assemble
from collsim.topology.graph import Topology
from collsim.topology.names import MAX_LINKS, MAX_NODES, shown_text
from collsim.units import parse_bandwidth, parse_time

__all__ = ["parse_astra_sim", "read_astra_sim"]

Array = npt.NDArray[Any]

KEYS = ("topology", "npus_count", "bandwidth", "latency")
BLOCKS = ("Ring", "FullyConnected", "Switch")
OTHERS = {"mesh": "Ring", "torus": "Ring, Ring", "torus2d": "Ring, Ring", "torus3d": "Ring, Ring, Ring"}
MOST_DIMENSIONS = 20  # of two NPUs each; 2**21 are more than MAX_NODES

_WHOLE = re.compile(r"\+?[0-9]{1,18}")
_NUMBER = re.compile(r"\+?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?")


def read_astra_sim(path: str | os.PathLike[str]) -> Topology:
    """Read a network file of ASTRA-sim's analytical back end.

    Parameters
    ----------
    path
        The YAML file. Keys that ASTRA-sim does not read are refused: they may be a fork's, and change the machine.

    Returns
    -------
    Topology
        NPUs are GPUs that forward. They are called ``gpu[0]`` and so on where there is one dimension, or rings only
        (a torus); else the first dimension is a node of a cluster and they are ``node[1].gpu[0]``. Switches are
        ``switch``, ``node[1].switch`` or, of later dimensions, ``dim[1].switch[0]``.

    Raises
    ------
    TopologyError
        With line and column: a key that is missing or unknown, an unknown block, lists of different lengths, a count
        below 2, a number that is none, or more nodes and links than can be held.

    Examples
    --------
    >>> read_astra_sim("no/such.yml")
    Traceback (most recent call last):
    collsim.errors.TopologyError: no/such.yml: expected an ASTRA-sim network, got no such file
    """
    return parse_astra_sim(read_source(path, "an ASTRA-sim network"))


def parse_astra_sim(source: Source) -> Topology:
    r"""Return the topology of the text of a network file; see `read_astra_sim`.

    Examples
    --------
    >>> text = "topology: [ Switch ]\nnpus_count: [ 8 ]\nbandwidth: [ 400.0 ]\nlatency: [ 936.25 ]\n"
    >>> parse_astra_sim(Source("h100.yml", text))
    <Topology 'h100': 8 ranks, 9 nodes, 16 links of 400GiB/s>
    """
    root = yamltree.parse(source.text, source.name)
    dims = _dimensions(source, root)
    npus = math.prod(dim.size for dim in dims)
    added = [dim.count(npus) for dim in dims]
    for what, total, most in (
        ("nodes", npus + sum(switches for switches, _ in added), MAX_NODES),
        ("links", sum(links for _, links in added), MAX_LINKS),
    ):
        if total > most:
            counts = root.find(("npus_count",))
            text = f"expected at most {most:,} {what} in all, got {total:,}"
            source.fail(text, counts.line, counts.column, field="npus_count")
    return _built(dims, source.title, f"ASTRA-sim network {source.file}")


def _dimensions(source: Source, root: yamltree.Node) -> list[Dimension]:
    if not isinstance(root.value, dict):
        source.fail(f"expected the keys {', '.join(KEYS)}, got something else", root.line, root.column)
    for key, (line, column) in (root.keys or {}).items():
        if key not in KEYS:
            hint = did_you_mean(key[:60], KEYS) or "; leave out what ASTRA-sim's analytical network does not read"
            source.fail(f"expected one of {', '.join(KEYS)}, got {shown_text(key)}{hint}", line, column)
    columns: list[list[yamltree.Node]] = []
    for key in KEYS:
        node = (root.children or {}).get(key)
        if node is None:
            source.fail(f"expected the keys {', '.join(KEYS)}, got no {key}", root.line, root.column)
        if not isinstance(node.value, list):
            hint = f"; write {key}: [ {node.text} ]" if re.fullmatch(r"[\w.+-]{1,40}", node.text) else ""
            _refuse(source, node, key, f"expected a list with a value a dimension, got {_got(node)}{hint}")
        values = list((node.children or {}).values())
        if not 1 <= len(values) <= MOST_DIMENSIONS:
            _refuse(source, node, key, f"expected 1 to {MOST_DIMENSIONS} dimensions, got {len(values)}")
        if columns and len(values) != len(columns[0]):
            expected = f"expected {len(columns[0])} values, as many as in topology"
            _refuse(source, node, key, f"{expected}, got {len(values)}")
        columns.append(values)
    dims = []
    for place, (block, size, bandwidth, latency) in enumerate(zip(*columns, strict=True)):
        name = block.value if isinstance(block.value, str) else block.text
        if name not in BLOCKS:
            hint = f"; write {OTHERS[name.lower()]}" if name.lower() in OTHERS else did_you_mean(name[:60], BLOCKS)
            text = f"expected one of {', '.join(BLOCKS)}, got {_got(block)}{hint}"
            _refuse(source, block, f"topology[{place}]", text)
        if not _WHOLE.fullmatch(size.text) or int(size.text) < 2:
            text = f"expected a whole number of NPUs from 2, got {_got(size)}"
            _refuse(source, size, f"npus_count[{place}]", text)
        dims.append(
            Dimension(
                name,
                int(size.text),
                _quantity(source, bandwidth, f"bandwidth[{place}]", "GiB/s"),
                _quantity(source, latency, f"latency[{place}]", "ns"),
            )
        )
    return dims


def _refuse(source: Source, node: yamltree.Node, field: str, message: str) -> NoReturn:
    source.fail(message, node.line, node.column, field=field)


def _got(node: yamltree.Node) -> str:
    if node.children is None:
        return shown_text(node.text)
    return "a list" if node.keys is None else "a mapping"


def _quantity(source: Source, node: yamltree.Node, field: str, unit: str) -> int:
    what = "GB/s (of 2^30 bytes)" if unit == "GiB/s" else "ns"
    if not _NUMBER.fullmatch(node.text):
        unit_too = re.match(r"[0-9.]{1,40} ?[A-Za-z]", node.text)
        hint = f"; leave out the unit, which is always {what}" if unit_too else ""
        _refuse(source, node, field, f"expected a number of {what}, got {_got(node)}{hint}")
    try:
        return (parse_bandwidth if unit == "GiB/s" else parse_time)(node.text + unit)
    except InputError as error:
        reason = str(error).rpartition(": ")[2]
        _refuse(source, node, field, f"expected a number of {what}, got {shown_text(node.text)}: {reason}")


def _built(dims: Sequence[Dimension], name: str, source: str) -> Topology:
    npus = math.prod(dim.size for dim in dims)
    places = places_of(dims)
    blocks = [_same(dim) for dim in dims]
    node = dims[0].size if len(dims) > 1 and set(blocks) != {"Ring"} else npus
    names = [f"gpu[{i}]" if node == npus else f"node[{i // node}].gpu[{i % node}]" for i in range(npus)]
    columns: list[tuple[Array, Array, Dimension]] = []
    for number, dim in enumerate(dims):
        axis = len(dims) - 1 - number
        columns += [(places.ravel(), np.roll(places, -step, axis).ravel(), dim) for step in dim.steps]
        if dim.block == "Switch":
            groups = groups_of(places, axis)
            centres = np.repeat(np.arange(len(groups)) + len(names), dim.size)
            columns += [(groups.ravel(), centres, dim), (centres, groups.ravel(), dim)]
            own = "node[{}].switch" if node != npus and not number else f"dim[{number}].switch[{{}}]"
            names += [own.format(i) if len(dims) > 1 else "switch" for i in range(len(groups))]
    kinds = {"Ring": "bidirectional_ring", "FullyConnected": "fully_connected", "Switch": "switch"}
    kind = kinds[dims[0].block] if len(dims) == 1 else "torus" if set(blocks) == {"Ring"} else "product"
    sizes = {"dims": tuple(dim.size for dim in reversed(dims))} if len(dims) > 1 else {}
    shape = " x ".join(f"{dim.block} of {dim.size:,}" for dim in dims)
    order = ", the first dimension innermost" if len(dims) > 1 else ""
    return assemble(
        name,
        names,
        ["gpu"] * npus + ["switch"] * (len(names) - npus),
        np.concatenate([src for src, _, _ in columns]),
        np.concatenate([dst for _, dst, _ in columns]),
        np.concatenate([np.full(len(src), dim.bandwidth) for src, _, dim in columns]),
        np.concatenate([np.full(len(src), dim.latency) for src, _, dim in columns]),
        structure={"kind": kind, **sizes},
        description=f"ASTRA-sim network: {shape}{order}. Its GB are 2^30 bytes.",
        source=source,
    )


def _same(dim: Dimension) -> str:
    """Return the block, and one word for those of few NPUs that are the same."""
    return "Ring" if dim.size <= 3 and dim.block == "FullyConnected" else dim.block
