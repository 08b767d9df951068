"""A program: schedule, topology and size lowered to flat arrays that an engine can run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["COPY", "LINK", "NETWORKS", "REDUCER", "SENDER", "Program", "Times"]

Array = npt.NDArray[Any]

NETWORKS = ("alpha_beta", "store_and_forward", "cut_through", "fluid")

SENDER, COPY, LINK, REDUCER = range(4)
"""Kinds of stations: the sender of a device (overhead), a channel's copy engine, a link, the reducer of a device."""


@dataclass(frozen=True, eq=False)
class Program:
    """Nodes 0..transfers-1 are transfers in program order; the rest are joins (no stations, no duration).

    All times are integer picoseconds, all sizes bytes.

    Attributes
    ----------
    step, src, dst, channel, chunk, bytes, reduce
        Columns of the transfers (``chunk`` is the first destination chunk, ``bytes`` the payload).
    pred_ptr, pred, pred_issued, pred_lag
        Predecessors of each node in CSR form: wait for the end of ``pred`` (or, where ``pred_issued``, until its first
        station is free again; a node without stations is issued when it ends), plus the lag.
    visit_ptr, visit_station, visit_busy, visit_latency
        The stations on the route of each node in order (CSR): which one, how long it is held, and the latency after it
        (links only). A route is: the sender if the device has an overhead, the copy engine if the device has a
        channel bandwidth, the links, the reducer if the transfer reduces on a device with a reduction rate.
    station_kind, station_bandwidth, station_index
        By station: its kind (`SENDER` ...), its bandwidth in bytes/s (0 for senders) and what it is: node of the
        topology (sender, reducer), link of the topology, or number of the copy engine.
    """

    step: Array
    src: Array
    dst: Array
    channel: Array
    chunk: Array
    bytes: Array
    reduce: Array
    joins: int
    pred_ptr: Array
    pred: Array
    pred_issued: Array
    pred_lag: Array
    visit_ptr: Array
    visit_station: Array
    visit_busy: Array
    visit_latency: Array
    station_kind: Array
    station_bandwidth: Array
    station_index: Array

    @property
    def transfers(self) -> int:
        """Number of transfers."""
        return len(self.step)

    @property
    def nodes(self) -> int:
        """Number of transfers and joins."""
        return len(self.step) + self.joins


@dataclass(frozen=True, eq=False)
class Times:
    """What an engine returns: integer picoseconds.

    Attributes
    ----------
    ready, start, end
        By transfer: all predecessors done; first station taken (or ready, without stations); reduced at the
        destination.
    visit_start, visit_end
        By visit (the CSR positions of `Program.visit_ptr`): the station is taken (head), and the tail has left it. In
        ``alpha_beta`` stations are not shared and these are the times as if each were alone.
    """

    ready: Array
    start: Array
    end: Array
    visit_start: Array
    visit_end: Array

    @property
    def makespan(self) -> int:
        """Latest end in picoseconds (0 without transfers)."""
        return int(np.max(self.end, initial=0))
