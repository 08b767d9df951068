"""Texts and XML of strangers."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collsim.errors import TopologyError
from collsim.formats.source import Source, read_source
from collsim.formats.xmltree import MAX_DEPTH, Element, parse_xml


def xml(text: str) -> Element:
    return parse_xml(Source("a.xml", text))


def test_elements_have_places_text_and_children_in_order() -> None:
    root = xml('<?xml version="1.0"?>\n<!-- no -->\n<a x="1">\n  one<b/>\n  <c y="0x1F"/>two\n</a>')
    assert [(e.tag, e.line, e.column) for e in root.walk()] == [("a", 3, 1), ("b", 4, 6), ("c", 5, 3)]
    assert root.text.split() == ["one", "two"]
    assert root.children[1].whole("y") == 31
    assert [e.tag for e in root.all("c")] == ["c"]
    assert root.get("x") == "1"
    assert root.get("z", "none") == "none"


def test_names_lose_their_namespace() -> None:
    root = xml('<g:a xmlns:g="http://graphml.graphdrawing.org/xmlns" g:id="x"/>')
    assert (root.tag, root.attributes["id"]) == ("a", "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>", "a.xml:1:25: expected plain XML, got an entity declaration"),
        (
            "<!DOCTYPE lolz [<!ENTITY lol 'lol'><!ENTITY lol2 '&lol;&lol;&lol;'>]><lolz>&lol2;</lolz>",
            "expected plain XML, got an entity declaration",
        ),
        ("<!DOCTYPE a [<!ENTITY % p SYSTEM 'http://127.0.0.1/x'> %p;]><a/>", "got an entity declaration"),
        ("<!DOCTYPE a [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><a>&e;</a>", "got an entity declaration"),
        ("<!DOCTYPE a SYSTEM 'http://127.0.0.1/a.dtd'><a>&x;</a>", "undefined entity"),
        ("<a>" * 100_000, f"expected at most {MAX_DEPTH} levels of elements"),
        ("<a " + " ".join(f"b{i}='1'" for i in range(100)) + "/>", "expected at most 64 attributes, got 100"),
        ("<a b='1' b='2'/>", "a.xml:1:10: expected XML, got a mistake in its form: duplicate attribute"),
        ("<a>\n<b></a>", "a.xml:2:6: expected XML, got a mistake in its form: mismatched tag"),
        ("<a/><b/>", "junk after document element"),
        ("", "a.xml:1:1: expected XML"),
        ("no xml", "a.xml:1:1: expected XML, got a mistake in its form: syntax error"),
    ],
)
def test_what_is_no_plain_xml_is_refused(text: str, message: str) -> None:
    with pytest.raises(TopologyError, match=re.escape(message)) as refused:
        xml(text)
    assert "\n" not in str(refused.value)


def test_a_doctype_is_passed_over_unread() -> None:
    assert xml("<!DOCTYPE platform SYSTEM 'https://simgrid.org/simgrid.dtd'>\n<platform/>").tag == "platform"


def test_too_many_elements_are_refused_early() -> None:
    with pytest.raises(TopologyError, match="expected at most 1,000,000 elements, got more"):
        xml("<a>" + "<b/>" * 1_000_001 + "</a>")


def test_text_in_many_pieces_costs_little() -> None:
    root = xml("<a>" + "x\n" * 2_000_000 + "</a>")
    assert len(root.text) <= 1_000_000


@given(st.text(alphabet=st.sampled_from("<>/=&;'\"ab!-[] \n?%"), max_size=80))
def test_any_text_is_xml_or_refused(text: str) -> None:
    try:
        found: object = xml(text)
    except TopologyError as refused:
        found = refused
    assert isinstance(found, Element) or found.line is not None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("n", "x", "a.xml:1:1: a.n: expected a whole number from 0 to 2,147,483,648, got 'x'"),
        ("n", "-1", "got '-1'"),
        ("n", "9" * 5000, "expected a whole number"),
        ("n", "1.5", "got '1.5'"),
        ("n", "0x", "got '0x'"),
        ("m", "1", "a.xml:1:1: a: expected an attribute 'n', got none"),
    ],
)
def test_attributes_that_are_no_numbers(attribute: str, value: str, message: str) -> None:
    with pytest.raises(TopologyError, match=re.escape(message)):
        xml(f"<a {attribute}='{value}'/>").whole("n")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"abc\xff", "f.txt:1:4: expected a list in UTF-8, got the byte 0xff; is it a binary file?"),
        (b"a\nb\0c", "f.txt:2:2: expected a list in UTF-8, got the character U+0000"),
        ("a".encode("utf-16"), "f.txt:1:1: expected a list in UTF-8, got UTF-16; save it as UTF-8"),
        (b"x" * 101, "f.txt: expected at most 0 MiB, got a larger file"),
    ],
)
def test_bytes_that_are_no_text(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "f.txt"
    path.write_bytes(data)
    with pytest.raises(TopologyError, match=re.escape(message)):
        read_source(path, "a list", limit=100)


def test_lines_end_in_one_way_and_a_mark_at_the_beginning_goes(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n")
    source = read_source(path, "a list")
    assert source.text == "a\nb\nc\n"
    assert [line for _, line in source.lines()] == ["a", "b", "c", ""]
    assert list(source.words(" x  yz", 3)) == [("x", 3, 2), ("yz", 3, 5)]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="got no such file"):
        read_source(tmp_path / "none", "a list")
    with pytest.raises(TopologyError, match="got a directory; name the file in it"):
        read_source(tmp_path, "a list")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TopologyError, match="got a device or a pipe"):
        read_source(tmp_path / "pipe", "a list")
    with pytest.raises(TopologyError, match="expected the path of a list"):
        read_source("a\0b", "a list")
    with pytest.raises(TopologyError, match="expected the path of a list, got 7"):
        read_source(7, "a list")  # type: ignore[arg-type]
