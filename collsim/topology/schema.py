"""Generators in topology files, and the JSON Schema of the format.

What a generator takes is read from its signature, so a new one needs no line here: its arguments are checked, completed
by editors and written into the schema. ``python -m collsim.topology.schema`` prints what is in
``topologies/topology.schema.json``.
"""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass, replace
from typing import Any

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
from collsim.topology.generators import GENERATORS
from collsim.topology.graph import Topology
from collsim.topology.model import TopologyModel, fail, shown
from collsim.topology.names import shown_text
from collsim.topology.yamltree import Loc, Node

__all__ = ["Argument", "arguments", "generate", "json_schema", "main"]

_EXPECTED = {
    "bandwidth": A_BANDWIDTH,
    "time": A_TIME,
    "whole": "a whole number",
    "wholes": "whole numbers such as [4, 4]",
    "number": "a number",
    "flag": "true or false",
}

_A_SIZE = {"type": "integer", "minimum": 1}
_JSON: dict[str, dict[str, Any]] = {
    "bandwidth": {"$ref": "#/$defs/Bandwidth"},
    "time": {"$ref": "#/$defs/Time"},
    "whole": _A_SIZE,
    "wholes": {"anyOf": [_A_SIZE, {"type": "array", "items": _A_SIZE, "minItems": 1, "maxItems": 16}]},
    "number": {"type": "number", "minimum": 1},
    "flag": {"type": "boolean"},
}
_LEAST = {"dimension": 0}

#: What stands in the place of a generator.
_SECTIONS = ("nodes", "modules", "links", "ranks", "routes")


@dataclass(frozen=True)
class Argument:
    """An argument of a generator: what it takes, and whether it may be left out."""

    kind: str
    required: bool


def arguments(name: str) -> dict[str, Argument]:
    """Return the arguments of a generator as a file gives them.

    Examples
    --------
    >>> arguments("ring")["n"], arguments("ring")["bandwidth"].kind
    (Argument(kind='whole', required=True), 'bandwidth')
    """
    found = {}
    for parameter in inspect.signature(GENERATORS[name]).parameters.values():
        kind = {
            "int": "whole",
            "int | Sequence[int]": "wholes",
            "float": "number",
            "bool": "flag",
            "Quantity": "bandwidth" if parameter.name.endswith("bandwidth") else "time",
        }[str(parameter.annotation).removesuffix(" | None")]
        found[parameter.name] = Argument(kind, parameter.default is inspect.Parameter.empty)
    return found


def generate(model: TopologyModel, root: Node, path: str) -> Topology:
    """Return the topology of a file that names a generator.

    Raises
    ------
    TopologyError
        An unknown generator or argument, or one of the wrong kind, with its place.
    """
    assert model.generator is not None
    name, given = model.generator.name, dict(model.generator.model_extra or {})
    for section in _SECTIONS:
        if section in root.value:
            fail(root, path, (section,), f"expected either a generator or {section}, got both; keep one", key=True)
    if name not in GENERATORS:
        message = f"expected one of {', '.join(sorted(GENERATORS))}, got {shown_text(name)}"
        fail(root, path, ("generator", "name"), message + did_you_mean(name[:60], GENERATORS))
    takes = arguments(name)
    for key in given:
        if key not in takes:
            known = ("name", *takes)
            message = f"expected one of {', '.join(known)}, got {shown_text(key)}{did_you_mean(key[:60], known)}"
            fail(root, path, ("generator", key), message, key=True)
    for key, argument in takes.items():
        if key in given:
            _check(root, path, ("generator", key), argument.kind)
        elif argument.required:
            fail(root, path, ("generator", key), f"expected {_EXPECTED[argument.kind]}, got nothing; {name} needs it")
    try:
        topology = GENERATORS[name](**given)
    except (TopologyError, InputError) as error:
        loc, message = _placed(name, str(error), given)
        fail(root, path, loc, message)
    return replace(topology, name=model.name, description=model.description, source=model.source)


def _check(root: Node, path: str, loc: Loc, kind: str) -> None:
    """Refuse a value of the wrong kind."""
    node = root.find(loc)
    value = node.value
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind in ("bandwidth", "time"):
        if isinstance(value, str):
            try:
                (bandwidth_value if kind == "bandwidth" else time_value)(value)
            except InputError as error:
                fail(root, path, loc, str(error))
            return
        good = False
    elif kind == "wholes" and isinstance(value, list):
        for number in range(len(value)):
            _check(root, path, (*loc, number), "whole")
        return
    elif kind == "number":
        good = whole or isinstance(value, float)
    else:
        good = isinstance(value, bool) if kind == "flag" else whole
    if not good:
        expected = _EXPECTED[kind]
        fail(root, path, loc, f"expected {expected}, got {shown(node)}{unit_remedy(node.text, expected)}")


def _placed(name: str, text: str, given: dict[str, Any]) -> tuple[Loc, str]:
    """Return the argument that a message of a generator is about (``ring: n: expected ...``), and the rest of it."""
    text = text.removeprefix(f"{name}: ")
    match = re.match(r"(\w+)(?:\[(\d+)\])?: (.*)", text)
    if match is None or match[1] not in given:
        return ("generator",), text
    loc: Loc = ("generator", match[1])
    return ((*loc, int(match[2])) if match[2] else loc), match[3]


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a topology file.

    Examples
    --------
    >>> sorted(json_schema()["properties"])[:3]
    ['description', 'generator', 'links']
    """
    schema: dict[str, Any] = _plain(TopologyModel.model_json_schema(by_alias=True))
    schema["$defs"]["GeneratorModel"] = {
        "description": "A regular topology by the name of its generator and its arguments.",
        "oneOf": [_generator_schema(name) for name in sorted(GENERATORS)],
    }
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "collsim topology"
    schema["$defs"] |= {"Bandwidth": BANDWIDTH_SCHEMA, "Time": TIME_SCHEMA}
    some_nodes = [{"required": [key], "properties": {key: {"minItems": 1}}} for key in ("nodes", "modules")]
    schema["oneOf"] = [
        {"required": ["generator"], "not": {"anyOf": [{"required": [key]} for key in _SECTIONS]}},
        {"anyOf": some_nodes, "not": {"required": ["generator"]}},
    ]
    schema["$defs"]["LinkModel"]["oneOf"] = [{"required": ["between"]}, {"required": ["from", "to"]}]
    return schema


def _generator_schema(name: str) -> dict[str, Any]:
    takes = arguments(name)
    fields = {key: _JSON[argument.kind] for key, argument in takes.items()}
    fields |= {key: {**fields[key], "minimum": least} for key, least in _LEAST.items() if key in fields}
    return {
        "type": "object",
        "properties": {"name": {"const": name}, **fields},
        "required": ["name", *(key for key, argument in takes.items() if argument.required)],
        "additionalProperties": False,
    }


def _plain(value: Any) -> Any:
    """Leave out what editors have no use for: titles, null for a field left out, and defaults.

    Releases of pydantic do not agree on the defaults of fields that are read by a function of ours.
    """
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    options = value.get("anyOf")
    if isinstance(options, list) and {"type": "null"} in options:
        rest = [option for option in options if option != {"type": "null"}]
        value = {**{key: item for key, item in value.items() if key != "anyOf"}, **rest[0]}
    plain = {key: _plain(item) for key, item in value.items() if key != "title" or not isinstance(item, str)}
    if "properties" not in plain:
        plain.pop("default", None)
    return plain


def main() -> None:
    """Print the JSON Schema of topology files."""
    print(json.dumps(json_schema(), indent=2, sort_keys=True, ensure_ascii=False))  # noqa: T201


if __name__ == "__main__":
    main()
