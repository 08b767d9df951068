"""The shape of a topology file as pydantic models, and its errors in the words of the format.

The models know fields and values one by one; what relates fields of different entries (a link to a node that does not
exist, sizes, generators) is in :mod:`collsim.topology.file`. Imported only when a file is read: pydantic is heavy.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from collsim.errors import InputError, TopologyError, did_you_mean
from collsim.topology.file_units import (
    A_BANDWIDTH,
    A_TIME,
    BANDWIDTH_SCHEMA,
    TIME_SCHEMA,
    bandwidth_value,
    time_value,
    unit_remedy,
)
from collsim.topology.names import KINDS, NAME_REGEX, Kind, Pattern, field_text, parse_pattern, shown_text
from collsim.topology.yamltree import Loc, Node

__all__ = [
    "GeneratorModel",
    "LinkModel",
    "ModuleModel",
    "NodeModel",
    "RouteModel",
    "TopologyModel",
    "fail",
    "shown",
    "validate",
]

_A_NAME = 'a name such as "gpu[0-7]"'
_A_SWITCH = "true or false"
_A_COUNT = "a whole number of at least 1"

#: What each place of a file holds, by the names on the way to it; [] is an entry of a list.
_EXPECTED = {
    "": "a mapping with name, nodes and links",
    "name": "a name in one line of text",
    "description": "text",
    "source": "text",
    "nodes": 'a list of nodes such as - {name: "gpu[0-7]", kind: gpu}',
    "nodes[]": 'a node such as {name: "gpu[0-7]", kind: gpu}',
    "nodes.name": _A_NAME,
    "nodes.kind": f"one of {', '.join(KINDS)}",
    "nodes.send_overhead": A_TIME,
    "nodes.reduce_bandwidth": A_BANDWIDTH,
    "nodes.channel_bandwidth": A_BANDWIDTH,
    "nodes.reduces": _A_SWITCH,
    "nodes.multicasts": _A_SWITCH,
    "nodes.forwards": _A_SWITCH,
    "links": "a list of links such as - {between: [a, b], bandwidth: 50GB/s, latency: 1us}",
    "links[]": "a link such as {between: [a, b], bandwidth: 50GB/s, latency: 1us}",
    "links.between": 'two names such as ["gpu[0-7]", sw]',
    "links.between[]": _A_NAME,
    "links.from": _A_NAME,
    "links.to": _A_NAME,
    "links.pairing": "all or zip",
    "links.bandwidth": A_BANDWIDTH,
    "links.latency": A_TIME,
    "links.count": _A_COUNT,
    "links.kind": "a word such as nvlink or pcie",
    "modules": "a list of modules such as - {name: node, count: 4, nodes: [...], links: [...]}",
    "modules[]": "a module such as {name: node, count: 4, nodes: [...], links: [...]}",
    "modules.name": "a plain name such as node",
    "modules.count": _A_COUNT,
    "ranks": "a list of names such as [host0, host1]",
    "ranks[]": _A_NAME,
    "routes": "a list of routes such as - {from: a, to: b, via: [sw1]}",
    "routes[]": "a route such as {from: a, to: b, via: [sw1]}",
    "routes.from": _A_NAME,
    "routes.to": _A_NAME,
    "routes.via": "a list of the nodes on the way such as [sw0, sw1]",
    "routes.via[]": "the name of one node, or of a link such as a->b#1",
    "generator": "a generator such as {name: torus, dims: [4, 4], bandwidth: 50GB/s, latency: 1us}",
    "generator.name": "the name of a generator such as torus",
}


def _stop(message: str) -> NoReturn:
    """Refuse a value with a complete message; any other refusal is worded from ``_EXPECTED``."""
    raise PydanticCustomError("collsim", "{message}", {"message": message})


def _refuse() -> NoReturn:
    raise PydanticCustomError("other", "refused")


def _bandwidth(value: object) -> int:
    if not isinstance(value, str):
        _refuse()
    try:
        return bandwidth_value(value)
    except InputError as error:
        _stop(str(error))


def _time(value: object) -> int:
    if not isinstance(value, str):
        _refuse()
    try:
        return time_value(value)
    except InputError as error:
        _stop(str(error))


def _pattern(value: Any) -> Pattern:
    if not isinstance(value, str):
        _refuse()
    try:
        return parse_pattern(value)
    except InputError as error:
        _stop(str(error))


def _one_name(value: Any) -> Pattern:
    pattern = _pattern(value)
    if pattern.count != 1:
        _stop(f"expected the name of one node, got {shown_text(value)}, which is {pattern.count:,}")
    return pattern


def _stop_on_way(value: Any) -> Pattern | str:
    """Read a node, or a link by its name (as `Topology.link_name` writes it), on the way of a route."""
    link = re.fullmatch(r"([^>]*)->([^>#]*)(#[0-9]{1,9})?", value) if isinstance(value, str) else None
    if link is None:
        return _one_name(value)
    start, end = (_one_name(name).names[0] for name in link.group(1, 2))
    return f"{start}->{end}{link[3] or ''}"


def _module_name(value: Any) -> str:
    pattern = _pattern(value)
    if pattern.parts != (value,):
        _stop(f"expected a plain name such as node, got {shown_text(value)}; give the number of copies as count")
    return pattern.text


def _word(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[\w.:+-]{1,60}", value):
        _refuse()
    return value


def _line(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value.strip()) <= 200 or not value.isprintable():
        _refuse()
    return value


# Copies of the schemas, for pydantic writes into what it is given.
_name_schema = WithJsonSchema({"type": "string", "pattern": NAME_REGEX})
_Bandwidth = Annotated[int, PlainValidator(_bandwidth), WithJsonSchema({**BANDWIDTH_SCHEMA})]
_Time = Annotated[int, PlainValidator(_time), WithJsonSchema({**TIME_SCHEMA})]
_Pattern = Annotated[Pattern, PlainValidator(_pattern), _name_schema]
_Optional = Annotated[Pattern | None, PlainValidator(_pattern), _name_schema]
_NAMES = NAME_REGEX[1:-1]
_Stop = Annotated[
    Pattern | str,
    PlainValidator(_stop_on_way),
    WithJsonSchema({"type": "string", "pattern": f"^{_NAMES}(->{_NAMES}(#[0-9]{{1,9}})?)?$"}),
]
_Word = Annotated[str, PlainValidator(_word), WithJsonSchema({"type": "string", "pattern": r"^[\w.:+-]+$"})]
_ModuleName = Annotated[
    str, PlainValidator(_module_name), WithJsonSchema({"type": "string", "pattern": r"^[A-Za-z_][\w.:/+-]*$"})
]
_Line = Annotated[str, PlainValidator(_line), WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 200})]
_Count = Annotated[int, Field(ge=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=False)


class NodeModel(_Strict):
    """Devices of one kind: ``name`` is one name or many, written with ranges."""

    name: Annotated[_Pattern, Field(description="One name or many: gpu[0-7], gpu[0,2,4-6].")]
    kind: Annotated[Kind, Field(description="gpu is a rank, unless ranks says otherwise.")]
    send_overhead: Annotated[_Time, Field(description="Time that the device spends on each transfer it sends.")] = 0
    reduce_bandwidth: Annotated[_Bandwidth, Field(description="Bytes a second it reduces; left out, no time.")] = 0
    channel_bandwidth: Annotated[_Bandwidth, Field(description="Copy engine of one channel; left out, no limit.")] = 0
    reduces: Annotated[bool, Field(description="A switch that adds what it receives.")] = False
    multicasts: Annotated[bool, Field(description="A switch that copies one chunk to several.")] = False
    forwards: Annotated[bool, Field(description="Whether routes of others may pass through it.")] = True


class LinkModel(_Strict):
    """Links: ``between`` two ends in both directions, or ``from`` one ``to`` the other."""

    between: Annotated[
        list[_Pattern] | None, Field(description="Two names, full duplex.", min_length=2, max_length=2)
    ] = None
    start: Annotated[_Optional, Field(alias="from", description="The sending end of a one-way link.")] = None
    end: Annotated[_Optional, Field(alias="to", description="The receiving end of a one-way link.")] = None
    pairing: Annotated[
        Literal["all", "zip"], Field(description="Ranges on both ends: every pair (all), or first with first (zip).")
    ] = "all"
    bandwidth: Annotated[_Bandwidth, Field(description="Of one link in one direction.")]
    latency: Annotated[_Time, Field(description="Of one link in one direction.")]
    count: Annotated[_Count, Field(description="Number of parallel links.")] = 1
    kind: Annotated[_Word, Field(description="A word such as nvlink, pcie or ethernet.")] = ""

    @model_validator(mode="after")
    def _ends(self) -> LinkModel:
        both, start, end = self.between is not None, self.start is not None, self.end is not None
        if both and (start or end):
            _stop("expected either between: [a, b] or from: and to:, got both; keep one of them")
        if not both and not (start and end):
            got = "only from" if start else "only to" if end else "neither"
            _stop(f"expected between: [a, b], or from: and to:, got {got}")
        return self


class RouteModel(_Strict):
    """A route that is given instead of found."""

    start: Annotated[_Pattern, Field(alias="from", description="Sending nodes.")]
    end: Annotated[_Pattern, Field(alias="to", description="Receiving nodes.")]
    via: Annotated[list[_Stop], Field(description="Nodes or links (a->b#1) on the way, in order.", min_length=1)]


class ModuleModel(_Strict):
    """Nodes and links written once and repeated: node[3].gpu[0] is a node of the fourth copy."""

    name: Annotated[_ModuleName, Field(description="Name of a copy, without its index.")]
    count: Annotated[_Count, Field(description="Number of copies.")]
    nodes: Annotated[list[NodeModel], Field(min_length=1)]
    links: list[LinkModel] = []


class GeneratorModel(BaseModel):
    """A regular topology by the name of its generator and its arguments."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    name: Annotated[str, Field(description="Name of the generator.")]


class TopologyModel(_Strict):
    """A topology file."""

    name: Annotated[_Line, Field(description="Short name, as shown in results.")]
    description: Annotated[str, Field(description="What the system is and what the file leaves out.")] = ""
    source: Annotated[str, Field(description="Where the figures come from.")] = ""
    nodes: list[NodeModel] = []
    modules: list[ModuleModel] = []
    links: list[LinkModel] = []
    ranks: Annotated[
        list[_Pattern] | None,
        Field(
            description="Nodes that are ranks, in order; otherwise the GPUs in file order.",
            json_schema_extra={"minItems": 1},
        ),
    ] = None
    routes: Annotated[list[RouteModel], Field(description="Routes that are not to be found but taken.")] = []
    generator: GeneratorModel | None = None


_MODELS: dict[str, type[BaseModel]] = {
    "": TopologyModel,
    "nodes": NodeModel,
    "links": LinkModel,
    "routes": RouteModel,
    "modules": ModuleModel,
}


def validate(root: Node, path: str) -> TopologyModel:
    """Return the model of a file, or raise its first error.

    Raises
    ------
    TopologyError
        ``file:line:column: field: expected ..., got ...``, and how many more there are.
    """
    try:
        return TopologyModel.model_validate(root.value)
    except ValidationError as error:
        found = [(tuple(e["loc"]), e["type"], e.get("ctx", {})) for e in error.errors(include_url=False)]
    # A misspelt field is two errors, one too many and one missing: the cause is told first, and once where it is plain.
    unknown = [loc for loc, kind, _ in found if kind == "extra_forbidden"]
    misspelt = {(loc[:-1], _nearest(loc)) for loc in unknown[:100]}
    strange = {loc[:-1] for loc in unknown}
    first, more = None, -1
    for loc, kind, context in found:
        if kind == "missing" and (loc[:-1], loc[-1]) in misspelt:
            continue
        more += 1
        if kind == "missing" and loc[:-1] in strange:
            continue
        line, column = _place(root, loc, kind)
        if first is None or (line, column) < first[:2]:
            first = (line, column, loc, _message(root, loc, kind, context))
    assert first is not None
    line, column, loc, message = first
    note = f" (and {more} more)" if more else ""
    raise TopologyError(message + note, path=path, line=line, column=column, field=field_text(loc))


def fail(root: Node, path: str, loc: Loc, message: str, *, key: bool = False) -> NoReturn:
    """Raise an error about the value (or the key) at ``loc``."""
    line, column = _place(root, loc, "extra_forbidden" if key else "value")
    raise TopologyError(message, path=path, line=line, column=column, field=field_text(loc))


def _place(root: Node, loc: Loc, kind: str) -> tuple[int, int]:
    if kind == "extra_forbidden" and loc:
        around = root.find(loc[:-1])
        if around.keys and loc[-1] in around.keys:
            return around.keys[str(loc[-1])]
    node = root.find(loc)
    return node.line, node.column


def _message(root: Node, loc: Loc, kind: str, context: dict[str, Any]) -> str:
    """Return the words for one error of pydantic, never pydantic's own."""
    if kind == "collsim":
        return str(context["message"])
    if kind == "extra_forbidden":
        fields, word = _fields(loc[:-1]), str(loc[-1])
        return f"expected one of {', '.join(fields)}, got {shown_text(word)}{did_you_mean(word[:60], fields)}"
    expected = _EXPECTED.get(_path(loc), "another value")
    if kind == "missing":
        return f"expected {expected}, got nothing"
    node = root.find(loc)
    return f"expected {expected}, got {shown(node)}{_remedy(node, loc, expected)}"


def _remedy(node: Node, loc: Loc, expected: str) -> str:
    if isinstance(node.value, str) and _path(loc) == "nodes.kind":
        return did_you_mean(node.value[:60], KINDS)
    if expected in (A_BANDWIDTH, A_TIME):
        return unit_remedy(node.text, expected)
    if expected.startswith(("a name", "a plain name", "the name", "text")) and node.text:
        return "; put it in quotes"
    return ""


def shown(node: Node) -> str:
    """Return a value as a message names it: as it stands in the file if it is short."""
    if node.keys is not None:
        return "a mapping"
    if node.children is not None:
        return f"a list of {len(node.value)}"
    if node.value is None:
        return "nothing"
    return shown_text(node.text) if isinstance(node.value, str) else shown_text(node.text)[1:-1]


def _path(loc: Loc) -> str:
    """Return the key of ``_EXPECTED`` for a place: no indices, and modules hold nodes and links as a file does."""
    words = [step for step in loc if isinstance(step, str)]
    if len(words) > 1 and words[0] == "modules" and words[1] in ("nodes", "links"):
        words = words[1:]
    return ".".join(words) + ("[]" if loc and isinstance(loc[-1], int) else "")


def _fields(loc: Loc) -> list[str]:
    model = _MODELS.get(_path(loc).removesuffix("[]"), TopologyModel)
    return [field.alias or name for name, field in model.model_fields.items()]


def _nearest(loc: Loc) -> str:
    hint = did_you_mean(str(loc[-1])[:60], _fields(loc[:-1]))
    return hint.split("'")[1] if hint else ""
