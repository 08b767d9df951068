"""``collsim convert``: read a machine in the format of one tool, write it in that of another."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import textwrap
from typing import Any

from collsim.errors import InputError, one_of
from collsim.formats.registry import (
    FORMATS,
    WRITTEN,
    format_of_path,
    format_topology,
    read_topology,
    sniff,
    write_topology,
)
from collsim.outputs import output_path
from collsim.topology import Topology, load_topology

__all__ = ["convert"]

WIDTH = 118


def convert(arguments: argparse.Namespace) -> int:
    """Read, write, and say in a few lines what the machine is and what was assumed."""
    to_screen = arguments.output == "-"
    # what can be refused without reading is refused first
    if arguments.source is not None:
        one_of("--from", arguments.source, FORMATS)
    if arguments.target is not None:
        target = one_of("--to", arguments.target, WRITTEN)
    else:
        target = "collsim" if to_screen else format_of_path(arguments.output)
    if not to_screen:
        output_path(arguments.output, "output", [""])
        if os.path.exists(arguments.input) and os.path.realpath(arguments.input) == os.path.realpath(arguments.output):
            raise InputError(f"output: {arguments.output}: expected another file than the input, got the same")
    topology, read_as = _read(arguments)
    if to_screen:
        print(format_topology(topology, target), end="")
        return 0
    write_topology(topology, arguments.output, target)
    source, written = _clean(arguments.input), _clean(arguments.output)
    print(f"# {source} ({FORMATS[read_as].title}) -> {written} ({FORMATS[target].title})")
    _say(str(repr(topology))[1:-1])
    _say(topology.description)
    if left := [name for name in FORMATS[target].leaves_out if getattr(topology, name).any()]:
        _say(f"left out: {', '.join(left)} of devices, which {FORMATS[target].title} cannot say")
    if target == "collsim":
        print(f"# next: collsim run {shlex.quote(written)} all_reduce -b 1M -e 1G")
    return 0


def _say(text: str) -> None:
    for line in textwrap.wrap(_clean(text), WIDTH - 2, break_long_words=False, break_on_hyphens=False):
        print(f"# {line}")


def _clean(text: str) -> str:
    """Return text without what would move or colour a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _read(arguments: argparse.Namespace) -> tuple[Topology, str]:
    options: dict[str, Any] = {key: text for key in ("gpu", "size") if (text := getattr(arguments, key)) is not None}
    if arguments.nodes is not None:
        if not re.fullmatch(r"[0-9]{1,6}", arguments.nodes) or int(arguments.nodes) < 1:
            raise InputError(f"--nodes: expected a whole number from 1, got {arguments.nodes[:40]!r}")
        options["nodes"] = int(arguments.nodes)
    if arguments.scale is not None:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", arguments.scale) or not float(arguments.scale):
            raise InputError(f"--scale: expected a number above 0, got {arguments.scale[:40]!r}")
        options["scale"] = float(arguments.scale)
    if arguments.rate:
        options["rates"] = dict(_rate(text) for text in arguments.rate)
    if not options and arguments.source is None:
        return load_topology(arguments.input), sniff(arguments.input) or "collsim"  # shipped machines too
    name = arguments.source or sniff(arguments.input) or "collsim"
    return read_topology(arguments.input, arguments.source, **options), name


def _rate(text: str) -> tuple[str, str]:
    name, given, rate = text.rpartition("=")
    if not given or not name or not rate:
        raise InputError(f"--rate: expected NAME=RATE such as pcie=24GB/s, got {text[:60]!r}")
    return name, rate
