"""Schedules that can stay rolled, and a machine with all sorts of stations."""

from __future__ import annotations

from dataclasses import fields, replace
from math import gcd

from hypothesis import strategies as st

from collsim import Collective, Schedule, ScheduleBuilder
from collsim.schedule.block import Block, Repeat
from collsim.schedule.model import Edge
from collsim.topology import Topology, TopologyBuilder


def star(ranks: int, lanes: int = 1) -> Topology:
    """Ranks of different sorts around a switch, some with parallel links."""
    b = TopologyBuilder("star")
    for rank in range(ranks):
        b.add_node(
            f"gpu{rank}", send_overhead=300 * (rank % 2), reduce_bandwidth=10**9 * (rank % 3 > 0),
            channel_bandwidth=2 * 10**9 * (rank % 3 == 1),
        )  # fmt: skip
    b.add_node("sw", kind="switch", reduces=True, multicasts=True)
    b.add_node("side", kind="switch")
    for rank in range(ranks):
        for _ in range(1 + rank % lanes):
            b.add_duplex(f"gpu{rank}", "sw", 10**9 * (1 + rank % 2), 1000)
        b.add_duplex(f"gpu{rank}", "side", 10**9, 1000)
    return b.build(ranks=[f"gpu{rank}" for rank in range(ranks)])


def without_paths(schedule: Schedule) -> Schedule:
    phases = [
        Repeat(
            Block(**{f.name: getattr(p.block, f.name) for f in fields(Block) if f.name != "via"}),
            p.times, p.shift, p.window,
        )
        for p in schedule.phases
    ]  # fmt: skip
    return replace(schedule, phases=tuple(phases), paths=())


@st.composite
def uniform_repeats(draw: st.DrawFn) -> Schedule:
    """Phases whose rows mostly share shift and window, so that they can stay rolled, on few chunks of few ranks."""
    width, frames = draw(st.sampled_from([2, 3, 4, 5, 6, 8])), draw(st.integers(1, 2))
    ranks, in_place = draw(st.integers(1, 3)), draw(st.booleans())
    scratch = draw(st.sampled_from([0, 0, 0, width]))
    chunks = width * frames
    b = ScheduleBuilder(Collective("all_reduce", ranks), chunks=chunks, in_place=in_place, scratch=scratch)
    sources = ["input", "output", *(["scratch"] if scratch else [])]
    targets = ["output", *(["scratch"] if scratch else [])]
    where: list[tuple[int, int]] = []
    for _ in range(draw(st.integers(1, 3))):
        shift = draw(st.integers(-width, width))
        other = draw(st.sampled_from([shift] * 6 + [-shift]))
        count = draw(st.sampled_from([1, 1, 1, 2]))
        stride = draw(st.sampled_from([1, -1, width // count]))
        period = width // gcd(shift, width) + draw(st.sampled_from([0, 0, 0, 1]))
        times, rows = draw(st.integers(min(2, period), period)), draw(st.integers(1, 5))
        with b.repeat(times, shift=shift, window=width):
            for _ in range(rows):
                put = draw(st.sampled_from([b.copy, b.reduce]))
                buffers = draw(st.sampled_from(sources)), draw(st.sampled_from(targets))
                frame = 0 if "scratch" in buffers else width * draw(st.integers(0, frames - 1))
                unit = count if draw(st.integers(0, 9)) else 1
                places = [draw(st.integers(0, width - 1)) // unit * unit % width + frame for _ in range(2)]
                if draw(st.booleans()):
                    places[1] = places[0]
                put(
                    draw(st.integers(0, ranks - 1)), draw(st.integers(0, ranks - 1)), places[0], dst_chunk=places[1],
                    src_buffer=buffers[0], dst_buffer=buffers[1], step=draw(st.integers(0, 2)), count=count,
                    stride=stride, channel=draw(st.integers(0, 1)), shift=draw(st.sampled_from([shift, shift, other])),
                )  # fmt: skip
        where.append((times, rows))
    edges = []
    for _ in range(draw(st.integers(0, 3))):
        phase = draw(st.integers(0, len(where) - 1))
        pred = draw(st.integers(0, phase))
        edges.append(
            Edge(
                phase, draw(st.integers(0, where[phase][1] - 1)), pred, draw(st.integers(0, where[pred][1] - 1)),
                draw(st.integers(0, 5)), draw(st.sampled_from(["end", "issued"])), draw(st.sampled_from([0, 7])),
            )
        )  # fmt: skip
    return b.build(edges)
