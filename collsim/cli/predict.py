"""``collsim predict``: what NCCL would run on a cluster, and how long by its own formula."""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import Any

from collsim.cli.run import sizes
from collsim.collective import Collective
from collsim.errors import one_of
from collsim.hardware import Cluster, cluster
from collsim.nccl import COLLECTIVES, Graph, Setting, graph_of, machine_of, parse_setting
from collsim.nccl import predict as by_formula

__all__ = ["predict"]

WIDTH = 118
SHOWN = 3
"""Pairs of algorithm and protocol in a row."""


def predict(arguments: argparse.Namespace) -> int:
    """Print a row a size with the pairs that NCCL's formula finds fastest, or JSON."""
    operation = one_of("OPERATION", arguments.operation, COLLECTIVES)
    todo = sizes(arguments.minbytes or "8", arguments.maxbytes or "8G", arguments.stepfactor, 1)
    setting = parse_setting(" ".join(arguments.env), arguments.nccl)
    where = cluster(arguments.cluster)
    machine = machine_of(where)
    graph = graph_of(machine, setting)
    rows = []
    for size in todo:
        found = by_formula(graph, operation, size, setting)
        rows.append((size, sorted(found.items(), key=lambda item: item[1])))
    if arguments.json:
        print(json.dumps(_document(arguments, where, rows, setting), indent=2, allow_nan=False))
        return 0
    factor = Collective(operation, where.ranks).busbw_factor
    release = ".".join(map(str, setting.version))
    print(f"# {operation} on {where}: {where.ranks} ranks, NCCL {release}, by NCCL's own formula")
    later = f"  {'next':<16}{'time':>10}" * (SHOWN - 1)
    print(f"#\n#       size  {'NCCL runs':<16}      time   algbw   busbw{later}")
    print(f"#        (B)  {'':<16}      (us)  (GB/s)  (GB/s)" + f"{'(us)':>28}" * (SHOWN - 1))
    for size, pairs in rows:
        name, seconds = "/".join(pairs[0][0]), pairs[0][1]
        algbw = size / seconds / 1e9
        others = "".join(f"  {'/'.join(pair):<16}{_us(time):>10}" for pair, time in pairs[1:SHOWN])
        print(f"{size:>12}  {name:<16}{_us(seconds):>10}  {algbw:>6.2f}  {algbw * factor:>6.2f}{others}".rstrip())
    print("#")
    _note("channels", _words(graph))
    rough = "times are those by which NCCL chooses: good for large messages, rough for small ones; nothing is simulated"
    _note("formula", rough)
    if graph.version != setting.version:
        _note(
            "tables", f"those of NCCL {'.'.join(map(str, graph.version))}, the nearest release whose tables are known"
        )
    for note in where.notes:
        _note("assumed", note)
    if setting.ignored:
        _note("ignored", f"{', '.join(setting.ignored)}: variables that change nothing here")
    return 0


def _words(graph: Graph) -> str:
    ring = graph.ring
    text = f"{graph.channels} for rings and trees, found at {ring.channels} x {ring.intra:g} GB/s inside a node"
    if graph.machine.nodes > 1:
        text += f" and {ring.inter:g} GB/s between nodes"
    return text + (f"; {graph.nvls_channels} for NVLS" if graph.nvls_channels else "")


def _us(seconds: float) -> str:
    us = seconds * 1e6
    return f"{us:.0f}" if us >= 9999.95 else f"{us:.1f}" if us >= 99.995 else f"{us:.2f}"


def _note(label: str, text: str) -> None:
    lines = textwrap.wrap(text, WIDTH - 12, break_long_words=False, break_on_hyphens=False)
    for number, line in enumerate(lines):
        print(f"# {label:<10}{line}" if number == 0 else f"#{' ' * 11}{line}")


def _document(
    arguments: argparse.Namespace, where: Cluster, rows: list[tuple[int, Any]], setting: Setting
) -> dict[str, Any]:
    return {
        "cluster": str(where),
        "operation": arguments.operation,
        "ranks": where.ranks,
        "nccl": ".".join(map(str, setting.version)),
        "assumed": list(where.notes),
        "ignored": list(setting.ignored),
        "results": [
            {
                "size": size,
                "formula": [
                    {"algorithm": algorithm, "protocol": protocol, "time_us": seconds * 1e6}
                    for (algorithm, protocol), seconds in pairs
                ],
            }
            for size, pairs in rows
        ],
    }
