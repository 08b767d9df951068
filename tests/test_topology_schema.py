"""The JSON Schema of topology files: generated, committed, and of one mind with the reader."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from collsim.errors import TopologyError
from collsim.topology.file import loads
from collsim.topology.file_units import BANDWIDTH_SCHEMA, TIME_SCHEMA
from collsim.topology.generators import GENERATORS
from collsim.topology.model import TopologyModel
from collsim.topology.schema import arguments, json_schema
from collsim.topology.yamltree import parse
from collsim.units import BANDWIDTHS, TIMES

FILES = Path(__file__).parent.parent / "topologies"


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json.loads((FILES / "topology.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_committed_schema_is_the_generated_one() -> None:
    committed = (FILES / "topology.schema.json").read_text(encoding="utf-8")
    assert json.loads(committed) == json_schema(), (
        "the models have changed: python -m collsim.topology.schema > topologies/topology.schema.json"
    )
    printed = subprocess.run(
        [sys.executable, "-m", "collsim.topology.schema"], check=True, capture_output=True, text=True, encoding="utf-8"
    )
    assert printed.stdout == committed
    assert printed.stderr == ""


@pytest.mark.parametrize("file", sorted(FILES.glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_files_are_valid(file: Path, validator: Any) -> None:
    validator.validate(parse(file.read_text(encoding="utf-8")).value)


def test_examples_of_the_readme_are_valid(validator: Any) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", (FILES / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) >= 4
    for example in examples:
        validator.validate(parse(example).value)


NODES = "name: x\nnodes: [{name: a, kind: gpu}, {name: b, kind: gpu}]\n"


@pytest.mark.parametrize(
    "text",
    [
        "nodes: [{name: a, kind: gpu}]",
        "name: x",
        "name: x\nnodes: [{name: a, kind: cpu}]",
        "name: x\nnodes: [{name: 'a[0-', kind: gpu}]",
        "name: x\nnodes: [{name: a}]",
        NODES + "colour: red",
        NODES + "links: [{between: [a, b], bandwith: 1GB/s, latency: 1us}]",
        NODES + "links: [{between: [a, b], bandwidth: 450, latency: 1us}]",
        NODES + "links: [{between: [a, b], bandwidth: '450', latency: 1us}]",
        NODES + "links: [{between: [a, b], bandwidth: 1GB/s}]",
        NODES + "links: [{between: [a], bandwidth: 1GB/s, latency: 1us}]",
        NODES + "links: [{from: a, bandwidth: 1GB/s, latency: 1us}]",
        NODES + "links: [{between: [a, b], from: a, to: b, bandwidth: 1GB/s, latency: 1us}]",
        NODES + "links: [{between: [a, b], count: 0, bandwidth: 1GB/s, latency: 1us}]",
        NODES + "links: [{between: [a, b], pairing: any, bandwidth: 1GB/s, latency: 1us}]",
        NODES + "generator: {name: ring, n: 8}",
        "name: x\ngenerator: {name: rnig, n: 8}",
        "name: x\ngenerator: {name: ring}",
        "name: x\ngenerator: {name: ring, n: 8, bandwith: 1GB/s}",
        "name: x\ngenerator: {name: torus, dims: [4, x]}",
        "name: x\ngenerator: {name: switch, n: 4, reduces: 1}",
        NODES + "links: [{between: [a, b], bandwidth: 16us, latency: 1us}]",
        NODES + "links: [{between: [a, b], bandwidth: 16GB/s, latency: 1GB/s}]",
        NODES + "links: [{between: [a, b], bandwidth: 16gbps, latency: 1us}]",
        NODES + "links: [{between: [a, b], bandwidth: 0GB/s, latency: 1us}]",
        NODES + "links: [{between: [a, b], bandwidth: 1GB/s, latency: -1us}]",
        NODES + "ranks: []",
        "name: x\nnodes: []\nmodules: []",
        "name: x\ngenerator: {name: ring, n: 0}",
        "name: x\ngenerator: {name: torus, dims: []}",
        "name: x\ngenerator: {name: torus, dims: 0}",
        "name: x\ngenerator: {name: ring, n: 8, bandwidth: 16us}",
        "name: x\ngenerator: {name: fat_tree, gpus: 8, oversubscription: 0.5}",
        *(f"name: x\ngenerator: {{name: ring, n: 8}}\n{key}: []" for key in ("nodes", "links", "ranks", "routes")),
        "name: x\ngenerator: {name: ring, n: 8}\nranks: [gpu0]",
    ],
)
def test_the_schema_and_the_reader_refuse_the_same(text: str, validator: Any) -> None:
    assert not validator.is_valid(parse(text).value)
    with pytest.raises(TopologyError):
        loads(text)


@pytest.mark.parametrize(
    "text",
    [
        *(f"{{name: ring, n: 8, bandwidth: '{text}'}}" for text in ("+50GB/s", " 5e1 GB/s ", ".5GB/s", "50.Gbit/s")),
        *(f"{{name: ring, n: 8, latency: '{text}'}}" for text in ("+1us", "0s", "1µs", "1μs", "1.5e2 ns")),
        "{name: hypercube, dimension: 0}",
        "{name: torus, dims: 4}",
        "{name: torus, dims: [4]}",
    ],
)
def test_the_schema_and_the_reader_take_the_same(text: str, validator: Any) -> None:
    text = f"name: x\ngenerator: {text}"
    assert validator.is_valid(parse(text).value)
    assert loads(text).n_ranks >= 1


def test_patterns_have_the_units_of_the_tables() -> None:
    for known, others, schema in ((BANDWIDTHS, TIMES, BANDWIDTH_SCHEMA), (TIMES, BANDWIDTHS, TIME_SCHEMA)):
        assert all(re.search(schema["pattern"], f"5{unit}") for unit in known)
        assert not any(re.search(schema["pattern"], f"5{unit}") for unit in [*others, "", "x", "GB"])


def test_the_schema_does_not_depend_on_the_release_of_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    """2.7 gives the defaults of fields that a function of ours reads, and writes them into our patterns; 2.14 not."""
    expected = json_schema()
    assert '"default"' not in json.dumps(expected)
    described = TopologyModel.model_json_schema

    def as_in_2_7(**options: Any) -> dict[str, Any]:
        schema = described(**options)
        for definition in schema["$defs"].values():
            for field in definition.get("properties", {}).values():
                field["default"] = 0
        return schema

    monkeypatch.setattr(TopologyModel, "model_json_schema", as_in_2_7)
    assert json_schema() == expected
    assert "default" not in BANDWIDTH_SCHEMA | TIME_SCHEMA


def test_every_generator_can_be_completed_and_called(validator: Any) -> None:
    """An argument of a kind that files cannot give would fail here."""
    samples = {"whole": "4", "wholes": "[2, 4]", "number": "1.0", "flag": "true", "bandwidth": "1GB/s", "time": "1us"}
    for name in GENERATORS:
        given = {key: samples[argument.kind] for key, argument in arguments(name).items()}
        text = f"name: x\ngenerator: {{name: {name}, {', '.join(f'{key}: {value}' for key, value in given.items())}}}"
        validator.validate(parse(text).value)
        assert loads(text).n_ranks > 1


def test_fields_are_described_for_editors() -> None:
    definitions = json_schema()["$defs"]
    for model in ("NodeModel", "LinkModel", "RouteModel"):
        assert all("description" in field for field in definitions[model]["properties"].values()), model
    assert "title" not in definitions["LinkModel"]["properties"]["bandwidth"]
