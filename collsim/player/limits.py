"""What the player takes, and what it refuses before time is spent."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from collsim.errors import InputError
from collsim.outputs import output_path
from collsim.schedule import Schedule
from collsim.topology import Topology

__all__ = [
    "MOST_IN_NOTEBOOK", "MOST_MOVES", "MOST_NODES", "MOST_RANKS", "MOST_TRANSFERS", "check_player_path",
    "refuse_beyond_player",
]  # fmt: skip

MOST_TRANSFERS = 20_000
"""Transfers of a page: it stays fluid, and has some megabytes."""
MOST_RANKS = 256
"""Ranks and places of a page: rows that can still be told apart."""
MOST_NODES = 1_000
"""Nodes of a machine that can be drawn on a screen."""
MOST_MOVES = 400_000
"""Chunks that all transfers move, each counted for itself."""
MOST_HELD = 2_000_000
"""Chunks of all buffers of all ranks."""
MOST_IN_NOTEBOOK = 2_000
"""Transfers of a player that a notebook keeps: a quarter of a megabyte."""
SUFFIXES = (".html", ".htm")


def refuse_beyond_player(schedule: Schedule, topology: Topology) -> None:
    """Refuse a run that the player could not show, before it is simulated.

    Parameters
    ----------
    schedule, topology
        What is to be run, and on what.

    Raises
    ------
    InputError
        If there are more transfers, chunk moves, ranks or nodes than the player takes.

    Examples
    --------
    >>> import collsim
    >>> topology = collsim.topology.ring(1024, bandwidth="50GB/s", latency="1us")
    >>> refuse_beyond_player(collsim.algorithms.ring_all_reduce(1024), topology)
    Traceback (most recent call last):
        ...
    collsim.errors.InputError: player: expected at most 20,000 transfers, got 2,095,104; ...
    """
    fewer = "simulate fewer ranks, chunks or slices, or draw a timeline with plot"
    counts = (
        ("transfers", schedule.transfers, MOST_TRANSFERS, fewer),
        ("ranks and switches that take part", schedule.endpoints, MOST_RANKS, "simulate fewer ranks"),
        ("nodes of the machine", topology.n_nodes, MOST_NODES, "simulate a smaller part of it"),
        ("chunks moved by all transfers", _moves(schedule), MOST_MOVES, fewer),
        ("chunks in all buffers", schedule.endpoints * (2 * schedule.chunks + schedule.scratch), MOST_HELD, fewer),
    )
    for what, got, most, remedy in counts:
        if got > most:
            raise InputError(f"player: expected at most {most:,} {what}, got {got:,}; {remedy}")


def _moves(schedule: Schedule) -> int:
    """Count the chunks that transfers move."""
    total = 0
    for phase in schedule.phases:
        count = phase.block.count.astype(np.int64)
        if phase.block.lists is not None:
            listed = np.diff(phase.block.lists.offsets)
            count = np.where(listed > 0, listed, count)
        total += phase.times * int(count.sum())
    return total


def check_player_path(path: str | os.PathLike[str]) -> Path:
    """Refuse a path for the player that cannot be written, before time is spent; see `collsim.outputs.output_path`."""
    return output_path(path, "player", SUFFIXES)
