"""Writing InfraGraph documents, in the grammar of edges."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import product
from typing import Any, NoReturn

import numpy as np

from collsim.errors import TopologyError, shown
from collsim.formats.infragraph.grouping import CHOICES, Address, Plan, Wire, plan_of, written_name
from collsim.formats.infragraph.machine import forwarding
from collsim.formats.infragraph.roles import PRIORITY
from collsim.outputs import output_path, write_whole
from collsim.topology.graph import Topology
from collsim.topology.writing.ranges import Entry, Names, join_links, side_of
from collsim.topology.writing.yamltext import flow, label, scalar
from collsim.topology.yamltree import MAX_BYTES, MAX_VALUES
from collsim.units import format_bandwidth, format_time

__all__ = ["format_infragraph", "write_infragraph"]

INSTEAD = "write it as YAML of collsim instead"


def write_infragraph(topology: Topology, path: str | os.PathLike[str]) -> None:
    """Write an InfraGraph document.

    Parameters
    ----------
    topology
        Nodes whose names have an owner (``node[0].gpu[3]``) become devices with instances, if all copies are alike;
        others devices of their own, or all one device. Bandwidths and latencies are exact, kinds of links descriptions.
        Parallel links have links of different names; InfraGraph's own service, whose graph is a simple one, keeps one.
        What devices can do (add up, copy, overheads) has no place in the schema and is left out;
        a comment in YAML tells.
    path
        Ends in ``.yaml``, ``.yml`` or ``.json``.

    Raises
    ------
    TopologyError
        If it has links of one direction, given routes, ranks that are not the nodes of kind gpu, or nodes that do not
        forward where a reader would take it that they do: InfraGraph knows none of these.
    InputError
        If the file cannot be written.

    Examples
    --------
    >>> import collsim.topology
    >>> write_infragraph(collsim.topology.torus((4, 4)), "no/such/folder/torus.yaml")
    Traceback (most recent call last):
    collsim.errors.InputError: InfraGraph document: no/such/folder/torus.yaml: no such directory; make it first
    """
    target = output_path(path, "InfraGraph document", (".yaml", ".yml", ".json"))
    as_json = os.fsdecode(path).lower().endswith(".json")
    text = format_infragraph(topology, as_json=as_json)
    write_whole(target, text.encode(), "InfraGraph document")


def format_infragraph(topology: Topology, *, as_json: bool = False) -> str:
    """Return the text of a document; see `write_infragraph`.

    Examples
    --------
    >>> import collsim.topology
    >>> print(format_infragraph(collsim.topology.switch(4, bandwidth="450GB/s", latency="300ns")), end="")
    name: switch
    devices:
      - name: switch
        components:
          - {name: gpu, count: 4, choice: xpu}
          - {name: sw, count: 1, choice: switch}
    ...
    """
    _refuse(topology)
    document = _document(topology, plan_of(topology, list(_wires(topology))))
    values = _count(document)
    if values > MAX_VALUES:
        _refuse_size(topology, f"{MAX_VALUES:,} values", f"{values:,}")
    text = _json(document) if as_json else "\n".join([*_left_out(topology), *_yaml(document)])
    if len(text) > MAX_BYTES:
        _refuse_size(topology, f"{MAX_BYTES // 2**20} MiB", f"{len(text):,} letters")
    return text + "\n"


class _Number:
    """A decimal number as it is to stand in a file."""

    def __init__(self, whole: int, scale: int, places: int) -> None:
        high, low = divmod(whole, scale)
        digits = str(low).rjust(places, "0").rstrip("0")
        self.text = f"{high}.{digits}" if digits else str(high)

    def __repr__(self) -> str:
        return self.text


def _fail(topology: Topology, why: str) -> NoReturn:
    raise TopologyError(f"an InfraGraph document cannot say {shown(topology.name)}: {why}; {INSTEAD}")


def _refuse_size(topology: Topology, most: str, got: str) -> NoReturn:
    _fail(topology, f"expected at most {most} in a document, got {got}")


def _refuse(topology: Topology) -> None:
    """Refuse what would be read as another machine."""
    for node, kind in enumerate(topology.kinds):
        if kind not in CHOICES:
            _fail(topology, f"it knows nodes of kind {', '.join(CHOICES)}, got {shown(kind)} of {topology.nodes[node]}")
    if topology.given_routes:
        src, dst = next(iter(topology.given_routes))
        _fail(topology, f"it has no routes, and one is given from {topology.nodes[src]} to {topology.nodes[dst]}")
    rank = topology.rank_of_node.tolist()
    for node, kind in enumerate(topology.kinds):
        if (kind == "gpu") != (rank[node] >= 0):
            what = "a GPU that is no rank" if kind == "gpu" else f"a rank of kind {kind}"
            _fail(topology, f"its ranks are its xpus, and {topology.nodes[node]} is {what}")
    one_way = topology.link_src < topology.link_dst
    ends = np.stack((topology.link_src[one_way], topology.link_dst[one_way]), axis=1)
    as_read = forwarding(np.array([PRIORITY.index(kind) for kind in topology.kinds]), ends)
    several = np.bincount(topology.link_src, minlength=topology.n_nodes) > 1  # others are on no way
    for node in np.flatnonzero(as_read & ~topology.forwards & several)[:1].tolist():
        _fail(topology, f"what forwards follows from the links, and {topology.nodes[node]}, which does not, would")


def _wires(topology: Topology) -> Iterator[Wire]:
    """Yield the links between any two nodes, those of one direction with those of the other."""
    columns = (
        topology.link_src, topology.link_dst, topology.link_bandwidth, topology.link_latency, topology.link_kind_codes
    )  # fmt: skip
    found: dict[tuple[int, int], tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]] = {}
    for src, dst, rate, latency, kind in zip(*(column.tolist() for column in columns), strict=True):
        ways = found.setdefault((min(src, dst), max(src, dst)), ([], []))
        ways[src > dst].append((rate, latency, kind))
    for (a, b), (there, back) in found.items():
        if sorted(link[:2] for link in there) != sorted(link[:2] for link in back):
            one, other = (topology.nodes[a], topology.nodes[b])
            got = ", ".join(_way(f"{x}->{y}", links) for x, y, links in ((one, other, there), (other, one, back)))
            _fail(topology, f"its links go both ways alike, and these do not: {got}")
        for link in dict.fromkeys(there):
            yield Wire(a, b, link, there.count(link))


def _way(name: str, links: list[tuple[int, int, int]]) -> str:
    if not links:
        return f"no {name}"
    rate, latency, _ = links[0]
    some = f"{name} {format_bandwidth(rate)} {format_time(latency)}"
    return some if len(links) == 1 else f"{len(links)} {some}"


class _Links:
    """Names of links, each for one place in the document and one of the parallel links."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.names: dict[tuple[str, tuple[int, int, int], int], str] = {}
        self.entries: dict[str, list[dict[str, Any]]] = {}
        self.used: dict[str, int] = {}

    def name(self, place: str, link: tuple[int, int, int], parallel: int) -> str:
        """Return the name of a link, entered where it is first asked for."""
        key = (place, link, parallel)
        if key not in self.names:
            kind = self.topology.link_kind_names[link[2]]
            base = written_name(kind, "link").rstrip("0123456789_-") or "link"
            number = self.used[base] = self.used.get(base, 0) + 1
            self.names[key] = base if number == 1 else f"{base}_{number}"
            self.entries.setdefault(place, []).append(self._entry(self.names[key], kind, link))
        return self.names[key]

    def _entry(self, name: str, kind: str, link: tuple[int, int, int]) -> dict[str, Any]:
        rate, time = _Number(link[0], 10**9, 9), _Number(link[1], 10**3, 3)
        described = {"description": kind} if kind else {}
        bandwidth = {"choice": "gigabytes_per_second", "gigabytes_per_second": rate}
        return {
            "name": name,
            **described,
            "physical": {"bandwidth": bandwidth, "latency": {"choice": "ns", "ns": time}},
        }


def _document(topology: Topology, plan: Plan) -> dict[str, Any]:
    links = _Links(topology)
    devices, instances = [], []
    for group in plan.groups:
        edges = _edges(group.wires, plan, links, group.name)
        devices.append(
            {
                "name": group.name,
                "components": [
                    {"name": name, "count": len(nodes), "choice": group.choices[name]}
                    for name, nodes in group.members[0].items()
                ],
                "links": links.entries.get(group.name, []),
                "edges": edges,
            }
        )
        instances.append({"name": group.name, "device": group.name, "count": len(group.members)})
    edges = _edges(plan.wires, plan, links, "")
    document: dict[str, Any] = {"name": written_name(topology.name, "machine")}
    if topology.description:
        document["description"] = topology.description
    document |= {"devices": devices, "instances": instances}
    if edges:
        document |= {"links": links.entries[""], "edges": edges}
    return document


def _edges(wires: list[Wire], plan: Plan, links: _Links, place: str) -> list[dict[str, Any]]:
    """Return wires as edges, those joined that slices can say together."""
    if not wires:
        return []
    ends: dict[int, int] = {}
    names: list[Names] = []
    for node in (node for wire in wires for node in wire[:2]):
        if node not in ends:
            ends[node] = len(names)
            names.append(side_of(_text(plan.address[node], place)))
    src, dst, shared = [], [], []
    for wire in wires:
        a, b = ends[wire.a], ends[wire.b]
        src += [a] * wire.times + [b] * wire.times
        dst += [b] * wire.times + [a] * wire.times
        shared += [wire.link] * (2 * wire.times)
    found = []
    for entry in join_links(shared, np.array(src), np.array(dst), names):
        _, count, *link = entry.shared
        for one, other, scheme in _schemes(entry):
            for parallel in range(count):
                name = links.name(place, (link[0], link[1], link[2]), parallel)
                found.append({"ep1": _end(one), "ep2": _end(other), "scheme": scheme, "link": name})
    return found


def _text(address: Address, place: str) -> str:
    inside = f"{address.component}[{address.number}]"
    return inside if place else f"{address.instance}[{address.copy}].{inside}"


Slices = tuple[tuple[str, str], ...]


def _end(side: Slices) -> dict[str, str]:
    keys = ("component",) if len(side) == 1 else ("instance", "component")
    return {key: f"{name}{indices}" for key, (name, indices) in zip(keys, side, strict=True)}


def _schemes(entry: Entry) -> Iterator[tuple[Slices, Slices, str]]:
    """Yield the ends and the scheme of the edges that say an entry."""
    one, other = entry.sides
    runs = [[_runs(values) for values in side.values] for side in entry.sides]
    simple = all(len(found) == 1 for side in runs for found in side)
    if entry.pairing == "mesh" and not simple:
        names = list(_singles(one))
        for i, name in enumerate(names):
            for peer in names[i + 1 :]:
                yield name, peer, "one2one"
    elif entry.pairing == "zip":
        lengths = [[len(values) for values in side.values if len(values) > 1] for side in entry.sides]
        if simple and lengths[0] == lengths[1]:
            yield _sliced(one, [r[0] for r in runs[0]]), _sliced(other, [r[0] for r in runs[1]]), "one2one"
        else:
            for pair in zip(_singles(one), _singles(other), strict=True):
                yield (*pair, "one2one")
    elif entry.pairing == "":
        yield next(_singles(one)), next(_singles(other)), "one2one"
    else:
        for left in product(*runs[0]):
            for right in product(*runs[1]):
                yield _sliced(one, list(left)), _sliced(other, list(right)), "many2many"


def _runs(values: tuple[int, ...]) -> list[str]:
    """Return indices as slices.

    Examples
    --------
    >>> _runs((0, 1, 2, 5, 7, 9)), _runs((3,)), _runs((2, 1))
    (['[0:3]', '[5:10:2]'], ['[3]'], ['[2]', '[1]'])
    """
    found = []
    at = 0
    while at < len(values):
        end, step = at + 1, values[at + 1] - values[at] if at + 1 < len(values) else 0
        while step > 0 and end < len(values) and values[end] - values[end - 1] == step:
            end += 1
        low, high = values[at], values[end - 1]
        by = f":{step}" if step > 1 else ""
        found.append(f"[{low}]" if low == high else f"[{low}:{high + 1}{by}]")
        at = end
    return found


def _sliced(side: Names, slices: list[str]) -> Slices:
    return tuple((text.removeprefix("."), indices) for text, indices in zip(side.texts, slices, strict=False))


def _singles(side: Names) -> Iterator[Slices]:
    for values in product(*side.values):
        yield _sliced(side, [f"[{value}]" for value in values])


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_count, value.values()))
    return 1 + sum(map(_count, value)) if isinstance(value, list) else 1


def _left_out(topology: Topology) -> list[str]:
    attributes = ("send_overhead", "reduce_bandwidth", "channel_bandwidth", "reduces", "multicasts")
    left = [name for name in attributes if getattr(topology, name).any()]
    return [f"# left out, for want of a place: {', '.join(left)}"] if left else []


def _yaml(document: dict[str, Any]) -> Iterator[str]:
    for key, value in document.items():
        if isinstance(value, str):
            yield label(key, value)
            continue
        yield f"{key}:"
        for entry in value:
            if key != "devices":
                yield f"  - {flow(entry)}"
                continue
            yield f"  - name: {scalar(entry['name'])}"
            for part in ("components", "links", "edges"):
                yield f"    {part}:" if entry[part] else f"    {part}: []"
                yield from (f"      - {flow(item)}" for item in entry[part])


def _json(value: Any, indent: str = "") -> str:
    inner = indent + "  "
    if isinstance(value, dict) and any(isinstance(item, list) for item in value.values()):
        items = [f"{inner}{json.dumps(key)}: {_json(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        lines = ",\n".join(inner + _json(item, inner) for item in value)
        return f"[\n{lines}\n{indent}]" if value else "[]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
