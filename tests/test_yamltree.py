"""The strict reader of YAML: values by YAML 1.2, and an error with its place for everything that bites."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim.errors import TopologyError
from collsim.topology import yamltree
from collsim.topology.names import parse_pattern
from collsim.topology.yamltree import parse, read_text


@pytest.fixture(params=["c", "python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both parsers of PyYAML: the one in C, and the one that is always there."""
    if request.param == "c" and not hasattr(yaml, "CSafeLoader"):
        pytest.skip("PyYAML was built without libyaml")
    if request.param == "python":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    return str(request.param)


def fault(text: str) -> str:
    with pytest.raises(TopologyError) as caught:
        parse(text, "f.yaml")
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("22:22", "22:22"),
        ("1:30:00", "1:30:00"),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("1e9", 1e9),
        ("1.5E-3", 1.5e-3),
        ("+3", 3),
        ("-.5", -0.5),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("2024-01-01", "2024-01-01"),
        ("true", True),
        ("False", False),
        ("tRue", "tRue"),
        ("~", None),
        ("null", None),
        ("", None),
        ("'no'", "no"),
        ('"12"', "12"),
        ("-.inf", -math.inf),
        ("=", "="),
        ("<<", "<<"),
        ("1" * 31, float("1" * 31)),
    ],
)
def test_scalars_follow_yaml_1_2(parser: str, text: str, value: object) -> None:
    found = parse(f"key: {text}").value["key"]
    assert found == value
    assert type(found) is type(value)


def test_not_a_number_is_a_number() -> None:
    assert math.isnan(parse("a: .nan").value["a"])


def test_places_count_from_one_and_follow_characters(parser: str) -> None:
    root = parse("a: 1\nµ: {b: [x, 'y', {c: z}]}\n")
    assert (root.line, root.column) == (1, 1)
    node = root.find(("µ", "b", 2, "c"))
    assert (node.text, node.line, node.column) == ("z", 2, 21)
    assert root.keys == {"a": (1, 1), "µ": (2, 1)}


def test_find_stops_at_what_exists() -> None:
    root = parse("a: {b: 1}")
    assert root.find(("a", "missing", 3)) is root.find(("a",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "f.yaml:3:1: expected each key once, got 'a' again (first at 1:1)"),
        ("{a: 1, a: 1}", "f.yaml:1:8: expected each key once, got 'a' again (first at 1:2)"),
        ("1: x", "f.yaml:1:1: expected text as a key, got 1; put it in quotes if it is a name"),
        ("true: x", "f.yaml:1:1: expected text as a key, got true; put it in quotes if it is a name"),
        ("? \n: x", "f.yaml:1:2: expected text as a key, got nothing; put it in quotes if it is a name"),
        ("? [a]\n: b", "f.yaml:1:3: expected text as a key, got a list or a mapping"),
        ("x: &k a\n*k : b", "f.yaml:2:1: expected text as a key, got an alias"),
        ("a: !!str b", "f.yaml:1:4: expected a plain value, got the tag 'tag:yaml.org,2002:str'; leave tags out"),
        ("a: !!python/object:os.system b", "the tag 'tag:yaml.org,2002:python/object:os.system'; leave tags out"),
        ("a: !!int {b: c}", "f.yaml:1:4: expected a plain value, got the tag"),
        ("a: 1\n---\nb: 2", "f.yaml:2:1: expected one document, got a second one after '---'"),
        ("", "f.yaml:1:1: expected a topology, got an empty file"),
        ("# only a comment", "f.yaml:1:1: expected a topology, got an empty file"),
        ("a: *b", "f.yaml:1:4: expected an anchor &b that is complete before it is used, got only *b"),
        ("a: &b [*b]", "f.yaml:1:8: expected an anchor &b that is complete before it is used, got only *b"),
        *(
            (text, 'mistake in its form; a name with [ ] needs quotes inside [ ] and { }: "gpu[0-7]"')
            for text in ("a: [gpu[0], b]", "{name: gpu[0-7], kind: gpu}", "{\n name: gpu[0-7]}", "{gpu[0-7]: a}")
        ),
        ("a: {name: 'gpu[0-7]', b: c", "its form (a { without its }, or a comma is missing)"),
        (
            "a: 1\n<<: {b: 2}",
            "f.yaml:2:1: expected a plain key, got the merge key '<<'; write the fields out, or alias",
        ),
        ("a:\n  - x\n  b: 1", "a mistake in its form (a list goes on with - in the same column"),
        ("a:\n  - {b: 1}\n   - {c: 1}", "a mistake in its form (a list goes on with - in the same column"),
        ("a: x\n b\nc: [d", "a mistake in its form (a [ without its ], or a comma is missing)"),
        ("a:\n  - x\n y", "a mistake in its form (the indentation does not fit the lines above"),
        ("a: @b", "a mistake in its form (text cannot begin with this character; put it in quotes)"),
        ("a:\n\tb: 1", "; indent with spaces instead of tabs"),
        ("a: b: c", "f.yaml:1:5: expected YAML, got a mistake in its form (a ': ' too many; check the indentation"),
        ("a: 'b", "expected YAML, got a mistake in its form (a quote that is not closed)"),
        ("a: x\x00y", "f.yaml:1:5: expected printable text, got the character U+0000; is it a binary file?"),
        ("a: 1\nb: \ud800", "f.yaml:2:4: expected printable text, got the character U+D800"),
    ],
)
def test_faults_have_a_place(parser: str, text: str, message: str) -> None:
    assert message in fault(text)


def test_anchors_and_aliases_work_within_reason(parser: str) -> None:
    root = parse("a: &x {b: [1, 2]}\nc: *x\nd: [*x, *x]\n")
    assert root.value == {"a": {"b": [1, 2]}, "c": {"b": [1, 2]}, "d": [{"b": [1, 2]}] * 2}
    assert root.find(("d", 1, "b", 0)).line == 1
    # mapping, {b: [1, 2]} four times, list d
    assert root.size == 1 + 4 * 4 + 1


def test_an_alias_bomb_is_refused_where_it_goes_off(parser: str) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    message = fault("\n".join(lines))
    assert message.startswith("f.yaml:6:")
    assert f"expected at most {yamltree.MAX_VALUES:,} values, got more" in message


def test_too_many_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yamltree, "MAX_VALUES", 20)
    assert parse(f"[{'a, ' * 19}]").size == 20
    assert "f.yaml:1:62: expected at most 20 values, got more" in fault(f"[{'a, ' * 20}]")


@pytest.mark.parametrize("bracket", ["[", "- ", "{a: ", "? "])
def test_depth_is_limited(parser: str, bracket: str) -> None:
    message = fault(bracket * (2_000 if parser == "c" else 100))
    # libyaml has a limit of its own for brackets, which it meets while it looks ahead.
    assert re.search("levels of nesting, got more|maximum nesting depth|as a key, got a list or a mapping", message)


def test_aliases_do_not_hide_depth() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 40)]
    assert f"expected at most {yamltree.MAX_DEPTH} levels of nesting, got more" in fault("\n".join(lines))


def test_long_words_are_cut_in_messages() -> None:
    word = "x" * 5_000
    for text in (f"{word}: 1\n{word}: 2", f"a: *{word}", f"a: !<{word}> b", f"{'9' * 5_000}: a"):
        assert len(fault(text)) < 300


plain_text = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | plain_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(plain_text, inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_json_reads_as_it_does_in_json(value: object) -> None:
    # JSON is YAML 1.2, so the values of any JSON text are a reference that is not ours.
    text = json.dumps(value, ensure_ascii=False)
    assert parse(text).value == json.loads(text)


@settings(max_examples=300)
@given(st.text(st.sampled_from("ab[]{}:,-&*!'\"|>?#%@ \n\t0~<=\x00é"), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    message = "<text>: expected nothing, got nothing"
    try:
        parse(text)
    except TopologyError as error:
        message = str(error)
    assert re.fullmatch(r"<text>(:\d+:\d+)?: expected .*, got .*", message)


def test_read_text_takes_a_byte_order_mark_and_any_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert parse(read_text(file)).value == {"a": 1, "b": 2}


def test_unreadable_files_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(path: Path) -> str:
        with pytest.raises(TopologyError) as caught:
            read_text(path)
        message = str(caught.value)
        assert message.startswith(f"{path}: ") or f"{path}:" in message
        assert "\n" not in message
        return message.removeprefix(str(path))

    (tmp_path / "ring8.yaml").write_text("name: x")
    missing = refusal(tmp_path / "ring9.yaml")
    assert missing == ": expected a topology file, got no such file; did you mean 'ring8.yaml'?"
    assert refusal(tmp_path / "no" / "ring8.yaml") == ": expected a topology file, got no such file"
    assert refusal(tmp_path) == ": expected a file, got a directory; name the .yaml file in it"
    (tmp_path / "binary").write_bytes(b"name: x\nb: \x89PNG")
    assert refusal(tmp_path / "binary") == ":2:4: expected UTF-8 text, got the byte 0x89; is it a binary file?"
    assert "expected" in refusal(Path("nul\0name"))
    monkeypatch.setattr(yamltree, "MAX_BYTES", 6)
    assert "got a larger file; use ranges, modules or a generator" in refusal(tmp_path / "ring8.yaml")
    with pytest.raises(TopologyError, match="of text, got more"):
        parse("name: x")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    assert refusal(tmp_path / "ring8.yaml") == ": expected a readable file, got one without permission to read"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_named_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(TopologyError, match="expected a regular file, got a device or pipe"):
        read_text(tmp_path / "pipe.yaml")


@pytest.mark.parametrize(
    "text", ["gpu[0-7]", "gpu[0,2,4-6]", "a", "node[0-3].nic[2]", "x[10-12][0, 5]", "r[3-3]", "a/b:c+d"]
)
def test_any_name_of_a_pattern_can_be_had_alone(text: str) -> None:
    pattern = parse_pattern(text)
    assert tuple(pattern.name(number) for number in range(pattern.count)) == pattern.names
    assert len(set(pattern.names)) == pattern.count
    # The name of one node is a pattern for itself.
    assert all(parse_pattern(name).names == (name,) for name in pattern.names)


def test_ranges_run_with_the_last_fastest() -> None:
    assert parse_pattern("n[0,2].g[1-2]").names == ("n[0].g[1]", "n[0].g[2]", "n[2].g[1]", "n[2].g[2]")
