"""The lines after the first one: numbers of switches, and links, converted in batches of lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError
from collsim.formats.source import Source
from collsim.topology.names import shown_text
from collsim.units import parse_bandwidth, parse_time

__all__ = ["NUMBER", "Head", "how_many", "links_of", "refuse_word", "switches_of"]

Array = npt.NDArray[Any]

BATCH = 1 << 16
"""Lines that are converted at once."""

MOST_DIFFERENT = 200_000
"""Different rates, delays or error rates in a file; reading more would take minutes, and no machine has them."""

NUMBER = re.compile(r"[0-9]{1,18}")
_BARE = re.compile(r"[0-9]{1,40}(?:\.[0-9]{0,40})?")
_SHARE = re.compile(r"(?:[0-9]{1,20}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True)
class Head:
    """The first line: how many of everything there are."""

    line: int
    nodes: int
    nvswitches: int
    switches: int
    links: int
    gpus_per_server: int = 0
    gpu_type: str = ""


def refuse_word(source: Source, line: int, place: int, message: str) -> NoReturn:
    """Refuse the file at a word of a line (words are counted from 0, lines from 1)."""
    text = next(islice(source.lines(), line - 1, None))[1]
    column = next((column for _, _, column in islice(source.words(text, line), place, None)), len(text) + 1)
    source.fail(message, line, column)


def how_many(words: Sequence[str]) -> str:
    """Return how many words there are, for messages."""
    return "1 word" if len(words) == 1 else f"{len(words)} words" if len(words) < 8 else "more words"


def switches_of(source: Source, lines: list[str], head: Head, listed: int) -> tuple[Array, int]:
    """Return the numbers of the switches in the order of the file, and the index of the line after them."""
    ids: dict[int, int] = {}
    said = f"{head.nvswitches:,} and {head.switches:,}" if head.gpus_per_server else f"{listed:,}"
    expected = f"expected as many switches as line {head.line} says ({said}), got"
    at = head.line
    while len(ids) < listed:
        if at == len(lines):
            _end(source, lines, f"{expected} {len(ids):,}")
        words = lines[at].split(None, max(5, listed - len(ids)))
        at += 1
        if len(words) > 2 and not NUMBER.fullmatch(words[2]) and NUMBER.fullmatch(words[0]):
            refuse_word(source, at, 0, f"{expected} {len(ids):,} before the first link")
        for place, word in enumerate(words):
            if len(ids) == listed:
                refuse_word(source, at, place, f"{expected} more")
            node = _node(word, head.nodes)
            if isinstance(node, str):
                refuse_word(source, at, place, node)
            if node in ids:
                refuse_word(
                    source, at, place, f"expected each switch once, got {node} again (first in line {ids[node]})"
                )
            ids[node] = at
    return np.fromiter(ids, dtype=np.int64, count=listed), at


def _end(source: Source, lines: list[str], message: str) -> NoReturn:
    """Refuse a file that ends too early, at its end."""
    last = next((i for i in range(len(lines), 0, -1) if lines[i - 1].strip()), 1)
    source.fail(f"{message}; the file ends early", last, len(lines[last - 1]) + 1)


def _node(word: str, nodes: int) -> int | str:
    """Return the number of a node, or what is wrong with it."""
    if not NUMBER.fullmatch(word):
        return f"expected the number of a node, got {shown_text(word)}"
    return int(word) if int(word) < nodes else f"expected the number of a node up to {nodes - 1:,}, got {int(word):,}"


def links_of(source: Source, lines: list[str], start: int, head: Head) -> tuple[Array, Array, Array, tuple[int, float]]:
    """Return the ends, rates (bytes/s) and delays (ps) of the links, how many are lossy and the worst error rate."""
    nodes: dict[str, int | str] = {}
    rates: dict[str, int | str] = {}
    delays: dict[str, int | str] = {}
    shares: dict[str, float | str] = {}
    none = np.zeros(0, dtype=np.int64)
    parts: list[tuple[Array, ...]] = [(none.reshape(0, 2), none, none, none)]
    left = head.links
    expected = f"expected as many links as line {head.line} says ({head.links:,}), got"
    for first in range(start, len(lines), BATCH):
        rows: list[list[str]] = []
        numbers: list[int] = []
        for number, line in enumerate(lines[first : first + BATCH], start=first + 1):
            words = line.split(None, 5)
            if not words:
                continue
            if len(rows) == left:
                if NUMBER.fullmatch(words[0]):
                    refuse_word(source, number, 0, f"{expected} more")
                break
            if len(words) != 5:
                got = "more" if len(words) > 5 else how_many(words)
                refuse_word(source, number, 0, f"expected five words (src dst rate delay error_rate), got {got}")
            rows.append(words)
            numbers.append(number)
        else:
            number = 0
        if rows:
            columns = list(zip(*rows, strict=True))
            src, dst = (_converted(source, numbers, columns, i, nodes, lambda w: _node(w, head.nodes)) for i in (0, 1))
            if (same := src == dst).any():
                row = int(np.argmax(same))
                refuse_word(
                    source, numbers[row], 1, f"expected a link between two nodes, got one from {src[row]} to itself"
                )
            parts.append(
                (
                    np.stack([src, dst], axis=1),
                    _converted(source, numbers, columns, 2, rates, _rate),
                    _converted(source, numbers, columns, 3, delays, _delay),
                    _converted(source, numbers, columns, 4, shares, _share),
                )
            )
            left -= len(rows)
        if number:
            break
    if left:
        _end(source, lines, f"{expected} {head.links - left:,}")
    ends, bandwidth, latency, share = (np.concatenate(column) for column in zip(*parts, strict=True))
    return ends, bandwidth, latency, (int((share > 0).sum()), float(share.max(initial=0)))


def _converted(
    source: Source,
    numbers: list[int],
    columns: list[tuple[str, ...]],
    place: int,
    known: dict[str, Any],
    convert: Callable[[str], Any],
) -> Array:
    """Return a column of words as numbers; each different word is converted once."""
    words = columns[place]
    for word in dict.fromkeys(words):
        if word not in known:
            value = convert(word)
            if place > 1 and len(known) == MOST_DIFFERENT:
                what = ("rates", "delays", "error rates")[place - 2]
                value = f"expected at most {MOST_DIFFERENT:,} different {what}, got more"
            if isinstance(value, str):
                refuse_word(source, numbers[words.index(word)], place, value)
            known[word] = value
    dtype = np.float64 if place == 4 else np.int64
    return np.fromiter(map(known.__getitem__, words), dtype=dtype, count=len(words))


def _rate(word: str) -> int | str:
    try:
        return parse_bandwidth(word + "bps" if _BARE.fullmatch(word) else word)
    except InputError as error:
        return f"expected the rate of a link such as 100Gbps: {error}"


def _delay(word: str) -> int | str:
    try:
        return parse_time(word + "s" if _BARE.fullmatch(word) else word)
    except InputError as error:
        return f"expected the delay of a link such as 500ns or 0.0005ms: {error}"


def _share(word: str) -> float | str:
    value = float(word) if _SHARE.fullmatch(word) else -1.0
    return value if 0 <= value <= 1 else f"expected an error rate from 0 to 1, got {shown_text(word)}"
