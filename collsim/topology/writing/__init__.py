"""The topology file of a topology: short, exact, and made to be read and edited.

The reverse of :mod:`collsim.topology.file`. Nodes and links stand in the order that they have, joined into ranges,
pairs and modules only where reading them gives that very order again: it decides ties and the numbers of ranks and of
parallel links.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import TopologyError, did_you_mean, shown
from collsim.outputs import output_path, write_whole
from collsim.topology.graph import Topology
from collsim.topology.names import KINDS, MAX_LINKS, MAX_NODES, MAX_ROUTES
from collsim.topology.writing.modules import Split, find_modules
from collsim.topology.writing.ranges import Entry, Names, join_links, join_names, side_of
from collsim.topology.writing.regenerate import generator_of
from collsim.topology.writing.writable import writable_kinds, writable_names, writable_title
from collsim.topology.writing.yamltext import WIDTH, flow, label, scalar
from collsim.topology.yamltree import MAX_BYTES, MAX_VALUES
from collsim.units import format_bandwidth, format_time

__all__ = ["format_topology", "save_topology"]

Array = npt.NDArray[Any]

HEADER = "# yaml-language-server: $schema=topology.schema.json"
MOST_LINKS = 1_000_000
"""Links that are joined into entries; more take minutes and gigabytes, and are hardly read by anybody."""
MOST_CHANGES = 20
"""Changed names that the comment at the top of a file lists."""

_DEVICE: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "send_overhead": (format_time, 0),
    "reduce_bandwidth": (format_bandwidth, 0),
    "channel_bandwidth": (format_bandwidth, 0),
    "reduces": (bool, False),
    "multicasts": (bool, False),
    "forwards": (bool, True),
}
"""Attributes of nodes: how a file says them, and what it leaves out."""


def format_topology(topology: Topology) -> str:
    """Return the topology file of a topology.

    Reading it gives an equal topology: the same nodes, links (in the same order), devices, ranks and given routes, to
    the byte a second and the picosecond. What a generator made is written as that generator; what is in copies with
    names such as ``node[0].gpu[3]`` as modules, if the order of nodes and links is that of modules.

    Only names that a file cannot say are changed, as the comment at its top tells: numbers become indices (``7`` is
    ``gpu[7]``), other letters than those of names ``_``, and what is taken gets a number. `Topology.structure` is kept
    by generators and modules alone.

    Parameters
    ----------
    topology
        Any topology whose nodes are of the kinds that files know.

    Raises
    ------
    TopologyError
        A kind of node that files do not have, or more than a reader takes (``MAX_BYTES`` and ``MAX_VALUES`` of
        `collsim.topology.yamltree`, ``MAX_NODES``, ``MAX_LINKS`` and ``MAX_ROUTES`` of `collsim.topology.names`).

    Examples
    --------
    >>> from collsim.topology import TopologyBuilder, torus
    >>> print(format_topology(torus((4, 4), bandwidth="50GB/s", latency="1us")), end="")
    # yaml-language-server: $schema=topology.schema.json
    name: torus
    generator: {name: torus, dims: [4, 4], bandwidth: 50GB/s, latency: 1us}
    >>> builder = TopologyBuilder("small")
    >>> for i in range(4):
    ...     builder.add_node(f"gpu[{i}]", forwards=False)
    >>> builder.add_node("sw", "switch")
    >>> for i in range(4):
    ...     builder.add_duplex(f"gpu[{i}]", "sw", 450 * 10**9, 300_000, kind="nvlink")
    >>> print(format_topology(builder.build()), end="")
    # yaml-language-server: $schema=topology.schema.json
    name: small
    nodes:
      - {name: "gpu[0-3]", kind: gpu, forwards: false}
      - {name: sw, kind: switch}
    links:
      - {between: ["gpu[0-3]", sw], bandwidth: 450GB/s, latency: 300ns, kind: nvlink}
    """
    _refuse(topology)
    names = writable_names(topology.nodes, topology.kinds)
    kinds = writable_kinds(topology.link_kind_names)
    lines = [HEADER, *_changes("names of nodes", topology.nodes, names)]
    lines += _changes("kinds of links", topology.link_kind_names, kinds)
    lines.append(label("name", writable_title(topology.name)))
    lines += [label(key, text) for key in ("description", "source") if (text := getattr(topology, key))]
    generator = generator_of(topology)
    if generator is None and topology.n_links > MOST_LINKS:  # before minutes are spent on joining them
        _refuse_size(topology, f"{MOST_LINKS:,} links in a file of what no generator makes", f"{topology.n_links:,}")
    sections = {"generator": generator} if generator is not None else _sections(topology, names, kinds)
    values = _count(sections) + 4
    if values > MAX_VALUES:
        _refuse_size(topology, f"{MAX_VALUES:,} values in a file", f"{values:,}")
    for key, content in sections.items():
        lines += _section(key, content)
    text = "\n".join(lines) + "\n"
    if (size := len(text.encode())) > MAX_BYTES:
        _refuse_size(topology, f"{MAX_BYTES // 2**20} MiB in a file", f"{size:,} bytes")
    return text


def save_topology(topology: Topology, path: str | os.PathLike[str]) -> None:
    """Write a topology file; see `format_topology` for what is kept.

    Parameters
    ----------
    topology
        Any topology.
    path
        A name that ends in ``.yaml`` or ``.yml``. What is there is replaced, at once or not at all.

    Raises
    ------
    TopologyError
        As `format_topology`.
    InputError
        If the path cannot be written.

    Examples
    --------
    >>> from collsim.topology import ring
    >>> save_topology(ring(8), "ring8.txt")
    Traceback (most recent call last):
    collsim.errors.InputError: topology: ring8.txt: expected a name that ends in .yaml or .yml
    """
    target = output_path(path, "topology", (".yaml", ".yml"))
    write_whole(target, format_topology(topology).encode(), "topology")


def _refuse(topology: Topology) -> None:
    """Refuse what no file can say."""
    for node, kind in enumerate(topology.kinds):
        if kind not in KINDS:
            hint = did_you_mean(str(kind)[:60], KINDS) or "; 'host' passes messages on as it is"
            raise TopologyError(
                f"topology {shown(topology.name)}: a file knows nodes of kind {', '.join(KINDS)}, got {shown(kind)} of "
                f"{shown(topology.nodes[node])}{hint}"
            )
    sizes = ((topology.n_nodes, MAX_NODES), (topology.n_links, MAX_LINKS), (len(topology.given_routes), MAX_ROUTES))
    for what, (number, most) in zip(("nodes", "links", "given routes"), sizes, strict=True):
        if number > most:
            _refuse_size(topology, f"{most:,} {what} in a file", f"{number:,}")
    if 4 * len(topology.given_routes) > MAX_VALUES:  # each is a mapping of two names and a list
        _refuse_size(topology, f"{MAX_VALUES // 4:,} given routes in a file", f"{len(topology.given_routes):,}")


def _refuse_size(topology: Topology, most: str, got: str) -> None:
    raise TopologyError(
        f"topology {shown(topology.name)}: expected at most {most}, got {got}; nodes and links in the order of ranges "
        "(names such as 'gpu[0]', not 'gpu0') join, and what a generator makes is a line"
    )


def _changes(what: str, names: Sequence[str], written: Sequence[str]) -> list[str]:
    """Return the comment that tells which names are not those of the topology."""
    changed = [(old, new) for old, new in zip(names, written, strict=True) if old != new]
    if not changed:
        return []
    letters = "letters, digits, _ . : / + -" if what.startswith("names") else "letters, digits, _ . : + -"
    lines = [
        f"# Changed {what}, which a file cannot say ({letters}; others are _ here, numbers alone are indices):",
        *(
            f"#   {scalar(old[:100] + '...' * (len(old) > 100))} is {scalar(new)}"
            for old, new in changed[:MOST_CHANGES]
        ),
    ]
    more = len(changed) - MOST_CHANGES
    return [*lines, f"#   and {more:,} more"] if more > 0 else lines


def _sections(topology: Topology, names: list[str], kinds: list[str]) -> dict[str, Any]:
    """Return nodes, links, ranks and routes as a file has them."""
    sides = [side_of(name) for name in names]
    columns = [getattr(topology, key).tolist() for key in _DEVICE]
    devices = list(zip(topology.kinds, *columns, strict=True))
    wires = (topology.link_bandwidth, topology.link_latency, topology.link_kind_codes)
    shared = list(zip(*(column.tolist() for column in wires), strict=True))
    src, dst = topology.link_src, topology.link_dst

    def written(nodes: Sequence[int], first_link: int) -> dict[str, Any]:
        entries = join_names(Entry(devices[node], (sides[node],)) for node in nodes)
        links = join_links(shared[first_link:], src[first_link:], dst[first_link:], sides)
        found = {"nodes": [_node(entry) for entry in entries], "links": [_link(entry, kinds) for entry in links]}
        return {key: content for key, content in found.items() if content}

    plain = written(range(topology.n_nodes), 0)
    split = find_modules(names, devices, shared, src, dst)
    if split is not None:
        rest, modules = written(split.nodes, split.first_link), _modules(split, kinds)
        asked = topology.structure.get("kind") == "modules"
        if asked or _lines(rest) + 2 * len(modules) + sum(map(_lines, modules)) < _lines(plain):
            before = split.nodes.start == 0 and bool(split.nodes)
            plain = {"nodes": rest.pop("nodes")} if before else {}
            plain |= {"modules": modules, **rest}
    gpus = [node for node, kind in enumerate(topology.kinds) if kind == "gpu"]
    if topology.rank_nodes.tolist() != gpus:
        plain["ranks"] = list(_joined(topology.rank_nodes.tolist(), sides))
    if topology.given_routes:
        plain["routes"] = _routes(topology, names, sides)
    return plain


def _lines(sections: dict[str, Any]) -> int:
    return sum(len(content) for content in sections.values() if isinstance(content, list))


def _node(entry: Entry) -> dict[str, Any]:
    kind, *values = entry.shared
    attributes = {
        key: say(value)
        for (key, (say, otherwise)), value in zip(_DEVICE.items(), values, strict=True)
        if value != otherwise
    }
    return {"name": str(entry.sides[0]), "kind": kind, **attributes}


def _link(entry: Entry, kinds: list[str]) -> dict[str, Any]:
    two_way, count, bandwidth, latency, kind = entry.shared
    one, other = map(str, entry.sides)
    found: dict[str, Any] = {"between": [one, other]} if two_way else {"from": one, "to": other}
    if entry.pairing == "zip":
        found["pairing"] = "zip"
    found |= {"bandwidth": format_bandwidth(bandwidth), "latency": format_time(latency)}
    if count > 1:
        found["count"] = count
    if kinds[kind]:
        found["kind"] = kinds[kind]
    return found


def _modules(split: Split, kinds: list[str]) -> list[dict[str, Any]]:
    found = []
    for module in split.modules:
        entry: dict[str, Any] = {"name": module.name, "count": module.count}
        entry["nodes"] = [_node(node) for node in module.nodes]
        if module.links:
            entry["links"] = [_link(link, kinds) for link in module.links]
        found.append(entry)
    return found


def _joined(nodes: Sequence[int], sides: Sequence[Names]) -> Iterator[str]:
    """Yield nodes in a row as names with ranges."""
    for entry in join_names(Entry((), (sides[node],)) for node in nodes):
        yield str(entry.sides[0])


def _routes(topology: Topology, names: list[str], sides: list[Names]) -> list[dict[str, Any]]:
    """Return the given routes: past the nodes on the way, and over links by name where others would be found.

    Routes that pass the same are one entry as far as it joins each node of one set with each of another.
    """
    by_way: dict[tuple[str, ...], dict[int, list[int]]] = {}
    for (src, dst), way in zip(topology.given_routes, _ways(topology, names), strict=True):
        by_way.setdefault(way, {}).setdefault(src, []).append(dst)
    found = []
    for way, targets in by_way.items():
        alike: dict[tuple[int, ...], list[int]] = {}
        for src, dsts in sorted(targets.items()):
            alike.setdefault(tuple(sorted(dsts)), []).append(src)
        for ends, starts in alike.items():
            for start in _joined(starts, sides):
                found += [{"from": start, "to": end, "via": list(way)} for end in _joined(ends, sides)]
    return found


def _ways(topology: Topology, names: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield what each given route passes."""
    src, dst = topology.link_src.tolist(), topology.link_dst.tolist()
    links = np.unique([link for way in topology.given_routes.values() for link in way])
    bare = replace(topology, given_routes={})
    # Between neighbours the shortest way is one link; which one, where there are several, is dealt out.
    ptr, found = bare.route_nodes(topology.link_src[links], topology.link_dst[links])
    taken = set(links[found[ptr[:-1]] == links].tolist())

    def called(link: int) -> str:
        number = f"#{topology.link_key[link]}" if topology._parallels[link] > 1 else ""
        return f"{names[src[link]]}->{names[dst[link]]}{number}"

    for way in topology.given_routes.values():
        stops = []
        for place, link in enumerate(way):
            if link not in taken:
                stops.append(called(link))
            elif place + 1 < len(way) and way[place + 1] in taken:
                stops.append(names[dst[link]])
        yield tuple(stops) or (called(way[0]),)


def _count(value: Any) -> int:
    """Return how many values a reader finds in a value."""
    if isinstance(value, dict):
        return 1 + sum(map(_count, value.values()))
    return 1 + sum(map(_count, value)) if isinstance(value, list) else 1


def _section(key: str, content: Any) -> list[str]:
    """Return the lines of a section."""
    if key == "modules":
        lines = ["modules:"]
        for module in content:
            lines += [f"  - name: {scalar(module['name'])}", f"    count: {module['count']}"]
            for part in ("nodes", "links"):
                if part in module:
                    lines += [f"    {part}:", *(f"      - {flow(entry)}" for entry in module[part])]
        return lines
    if key in ("generator", "ranks"):
        line = f"{key}: {flow(content)}"
        if len(line) <= WIDTH or key == "generator":
            return [line]
    return [f"{key}:", *(f"  - {flow(entry)}" for entry in content)]
