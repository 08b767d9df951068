"""Schedules as values: frozen, comparable, well formed, and refused with the row that is wrong."""

from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collsim import Collective, Schedule, ScheduleBuilder, algorithms
from collsim.errors import ScheduleError
from collsim.schedule import Block, Edge, Repeat
from collsim.schedule.model import ChunkLists
from tests.strategies import schedules

ONE = {
    "step": [0], "src": [0], "src_buffer": [1], "src_chunk": [0], "dst": [1], "dst_buffer": [1], "dst_chunk": [0],
    "count": [1], "stride": [1], "reduce": [True], "channel": [0],
}  # fmt: skip


def block(lists: Any = None, via: Any = None, **columns: Any) -> Block:
    return Block(**{**ONE, **columns}, lists=lists, via=via)


def schedule(phase: Repeat | Block, **more: Any) -> Schedule:
    phases = (phase if isinstance(phase, Repeat) else Repeat(phase),)
    return Schedule(Collective("all_reduce", 2), 4, phases, **more)


def test_numbers() -> None:
    s = algorithms.ring_all_reduce(4, channels=2)
    assert (s.ranks, s.endpoints, s.chunks, s.steps, s.transfers) == (4, 4, 8, 6, 48)
    assert (s.phases[0].steps, s.phases[0].transfers, s.phases[0].block.steps, len(s.phases[0].block)) == (3, 24, 1, 8)
    assert repr(s) == "<Schedule ring all_reduce ranks=4 chunks=8 steps=6 transfers=48>"
    assert repr(schedule(block())) == "<Schedule schedule all_reduce ranks=2 chunks=4 steps=1 transfers=1>"


def test_frozen() -> None:
    columns = {name: np.array(value) for name, value in ONE.items()}
    b = Block(**columns)
    s = schedule(Repeat(b, 2, shift=np.array([1])))
    with pytest.raises(FrozenInstanceError):
        s.chunks = 5  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"read-only"):
        b.src[0] = 1
    key = hash(s)
    columns["src"][0] = 1  # the caller's arrays are the caller's
    assert b.src.tolist() == [0]
    assert hash(s) == key


def test_equal_whatever_the_spelling() -> None:
    s = algorithms.ring_all_reduce(3)
    phase = s.phases[0]
    assert Repeat(phase.block, 2, shift=[-1, -1, -1]).shift == -1
    other = Repeat(phase.block, 2, shift=np.full(3, -1), window=0)  # 0: all chunks
    assert replace(s, phases=(other, s.phases[1])) == s
    assert hash(replace(s, phases=(other, s.phases[1]))) == hash(s)
    assert replace(s, order=range(3)) == s
    assert replace(s, algorithm="mine", parameters={"a": 1}) == s  # labels do not count
    lists = ChunkLists(np.array([0, 0]), np.array([], int), np.array([], int))
    assert schedule(block(lists=lists, via=[-1])) == schedule(block())
    listed = ChunkLists(np.array([0, 2], np.int32), np.array([3, 1]), np.array([0, 2], np.int16))
    assert schedule(block(lists=listed, src_chunk=[0], count=[7])) == schedule(block(lists=listed, stride=[5]))
    assert s != "text"
    assert pickle.loads(pickle.dumps(s)) == s


def test_unequal() -> None:
    s = schedule(Repeat(block(), 2, shift=1), scratch=2, paths=[["a"]], layout=[(4, 2)])
    others = [
        replace(s, scratch=3), replace(s, chunks=8, layout=None), replace(s, in_place=False),
        replace(s, order=(1, 0, 2, 3)), replace(s, layout=[(4, 3)]), replace(s, paths=[["b"]]),
        replace(s, places=["sw"]), replace(s, edges=[Edge(0, 0, 0, 0, 1)]), replace(s, phases=()),
        replace(s, collective=Collective("all_reduce", 3)),
        *(replace(s, phases=(Repeat(b, times, shift, window),)) for b, times, shift, window in (
            (block(), 3, 1, 0), (block(), 2, -1, 0), (block(), 2, 1, 2), (block(reduce=[False]), 2, 1, 0),
            (block(channel=[1]), 2, 1, 0), (block(via=[0]), 2, 1, 0),
            (block(lists=ChunkLists(*map(np.array, ([0, 1], [0], [0])))), 2, 1, 0),
        )),
    ]  # fmt: skip
    assert len({s, *others}) == len(others) + 1
    assert all(other != s for other in others)


@given(st.integers(1, 12), st.integers(0, 100), st.data())
def test_elements_and_offsets(chunks: int, elements: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(chunks)))
    s = Schedule(Collective("broadcast", 1), chunks, (), order=tuple(order))
    sizes, offsets = s.elements(elements).tolist(), s.offsets(elements).tolist()
    start = [sum(elements // chunks + (i < elements % chunks) for i in range(place)) for place in range(chunks + 1)]
    assert offsets == [start[place] for place in order]
    assert sizes == [start[place + 1] - start[place] for place in order]
    assert s.place_of(np.arange(chunks)).tolist() == order


def test_layout() -> None:
    s = Schedule(Collective("broadcast", 1), 4, (), layout=((3, 5), (1, 2)), order=(3, 0, 1, 2))
    assert s.elements(17).tolist() == [2, 5, 5, 5]
    assert s.offsets(17).tolist() == [15, 0, 5, 10]
    with pytest.raises(ScheduleError, match=r"^layout: made for 17 elements, got 16$"):
        s.elements(16)


def test_nvls_like_endpoints() -> None:
    s = schedule(block(dst=[2], dst_buffer=[2]), scratch=1, places=["sw"])
    assert s.endpoints == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: block(src=[0, 1]), r"block: src: expected one value a row \(1\), got \(2,\)"),
        (lambda: block(src=[0.5]), "block: src: expected whole numbers, got float64"),
        (lambda: block(src_chunk=[2**32]), "block: src_chunk: expected numbers that fit int32, got 4294967296"),
        (lambda: block(reduce=[2]), "block: reduce: expected numbers that fit bool, got 2"),
        (lambda: block(step=[-1]), "block: rows must be sorted by step, and steps count from 0; use ScheduleBuilder"),
        (
            lambda: Block(**{k: v * 2 for k, v in ONE.items() if k != "step"}, step=[1, 0]),
            "block: rows must be sorted .*",
        ),
        (lambda: block(via=[0, 1]), r"block: via: expected one value a row \(1\), got \(2,\)"),
        (
            lambda: block(lists=ChunkLists(*map(np.array, ([0, 1, 1], [0], [0])))),
            "block: lists: expected 2 offsets, got 3",
        ),
        (lambda: ChunkLists(*map(np.array, ([0, 2], [0], [0]))), "lists: expected offsets that ascend .*"),
        (lambda: ChunkLists(*map(np.array, ([0, 1], [0], [0, 1]))), "lists: expected offsets that ascend .*"),
        (lambda: ChunkLists(*map(np.array, ([0, 2, 1], [0], [0]))), "lists: expected offsets that ascend .*"),
        (lambda: ChunkLists(*map(np.array, ([], [], []))), "lists: expected offsets that ascend .*"),
        (lambda: Repeat(block(), -1), "repeat: times: expected at least 0, got -1"),
        (lambda: Repeat(block(), 1.5), "repeat: times: expected a whole number, got 1.5"),
        (lambda: Repeat(block(), 1, shift=0.5), "repeat: shift: expected a whole number, got 0.5"),
        (lambda: Repeat(block(), 1, shift=[1, 2]), r"repeat: shift: expected one value a row \(1\), got \(2,\)"),
        (
            lambda: Repeat(block(), 1, window=[2**40]),
            "repeat: window: expected numbers that fit int32, got 1099511627776",
        ),
        (lambda: Edge(0, 0, 0, 0, at="start"), "edge: at: expected 'end' or 'issued', got 'start'"),
        (lambda: Edge(0, 0, 1, 0), "edge: expected a predecessor in this or an earlier phase, .*"),
        (lambda: Edge(0, 0, 0, 0, -1), "edge: expected .*, distance >= 0, .*"),
        (lambda: Edge(0, 0, 0, 0, 1, lag=-1), "edge: expected .*, lag >= 0: .*"),
    ],
)
def test_parts_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ScheduleError, match=rf"^{message}$"):
        make()


WHERE = r"phase 0, row 0 \(step 0, {} -> {}\): "


@pytest.mark.parametrize(
    ("columns", "more", "message"),
    [
        ({"src": [-1]}, {}, WHERE.format(-1, 1) + "src: expected a rank below 2"),
        ({"dst": [2]}, {}, WHERE.format(0, 2) + "dst: expected a rank below 2"),
        ({"src_buffer": [3]}, {}, WHERE.format(0, 1) + "src_buffer: expected 0, 1 or 2"),
        ({"dst_buffer": [-1]}, {}, WHERE.format(0, 1) + "dst_buffer: expected 0, 1 or 2"),
        ({"src_chunk": [4]}, {}, WHERE.format(0, 1) + "src_chunk: beyond the chunks of its buffer"),
        ({"dst_chunk": [-1]}, {}, WHERE.format(0, 1) + "dst_chunk: beyond the chunks of its buffer"),
        ({"dst_buffer": [2]}, {}, WHERE.format(0, 1) + "dst_chunk: beyond the chunks of its buffer"),
        ({"dst_buffer": [2], "dst_chunk": [1]}, {"scratch": 1}, WHERE.format(0, 1) + "dst_chunk: beyond .*"),
        ({"count": [0]}, {}, WHERE.format(0, 1) + "count: expected at least 1"),
        ({"dst_buffer": [0]}, {"in_place": False}, WHERE.format(0, 1) + "dst_buffer: the input is read only when .*"),
        ({"via": [0]}, {}, WHERE.format(0, 1) + "via: there are 0 paths"),
        ({"via": [-2]}, {"paths": [["a"]]}, WHERE.format(0, 1) + "via: there are 1 paths"),
        ({"dst": [2]}, {"places": ["sw"]}, WHERE.format(0, 2) + "dst: a switch has a scratch buffer only"),
        (
            {"lists": ChunkLists(*map(np.array, ([0, 2], [0, 4], [0, 1])))}, {},
            WHERE.format(0, 1) + "src_chunk: beyond the chunks of its buffer",
        ),
        (
            {"lists": ChunkLists(*map(np.array, ([0, 2], [0, 1], [0, -1])))}, {},
            WHERE.format(0, 1) + "dst_chunk: beyond the chunks of its buffer",
        ),
        ({}, {"scratch": -1}, "scratch: expected at least 0 chunks, got -1"),
        ({}, {"order": (0, 1, 2)}, "order: expected each of the places 0 to 3 once, got 3 places without 3"),
        ({}, {"order": (0, 1, 3, 3)}, "order: expected each of the places 0 to 3 once, got 4 places without 2"),
        ({}, {"order": (0, 1, 2, 3, 3)}, "order: expected each of the places 0 to 3 once, got 5 places"),
        ({}, {"order": (0, 1, 2, 3.0)}, "order: expected a whole number, got 3.0"),
        ({}, {"layout": ((3, 1),)}, r"layout: expected 4 chunks in all, got \(\(3, 1\),\)"),
        ({}, {"layout": ((5, 1), (-1, 2))}, "layout: expected runs of .* at least 0, got .*"),
        ({}, {"layout": ((4, -1),)}, "layout: expected runs of .* at least 0, got .*"),
        ({}, {"edges": [Edge(0, 1, 0, 0, 1)]}, r"edge: there is no row 1 in phase 0: Edge\(.*\)"),
        ({}, {"edges": [Edge(1, 0, 0, 0, 1)]}, r"edge: there is no row 0 in phase 1: Edge\(.*\)"),
        ({}, {"edges": [Edge(0, 0, 0, -1, 1)]}, r"edge: there is no row -1 in phase 0: Edge\(.*\)"),
    ],
)  # fmt: skip
def test_schedules_are_refused(columns: dict[str, Any], more: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError, match=rf"^{message}$"):
        schedule(block(**columns), **more)


def test_chunks_are_refused() -> None:
    with pytest.raises(ScheduleError, match=r"^chunks: expected a multiple of the 3 ranks for all_gather, got 4$"):
        Schedule(Collective("all_gather", 3), 4, ())
    with pytest.raises(ScheduleError, match=r"^chunks: expected a whole number, got 4.5$"):
        Schedule(Collective("all_reduce", 3), 4.5, ())  # type: ignore[arg-type]


BEYOND = "^" + WHERE.format(0, 1) + "src_chunk: its window reaches beyond its buffer; give a smaller window$"
LISTED = ChunkLists(*map(np.array, ([0, 2], [0, 3], [0, 0])))


@pytest.mark.parametrize(
    "make",
    [
        lambda: schedule(Repeat(block(src_chunk=[3]), 2, shift=1, window=3)),
        lambda: schedule(Repeat(block(src_chunk=[3], count=[2]), 1, window=3)),
        lambda: schedule(Repeat(block(lists=LISTED), 2, shift=1, window=3)),
        lambda: schedule(Repeat(block(src_buffer=[2]), 2, shift=1), scratch=3),
    ],
)
def test_windows_must_fit(make: Any) -> None:
    with pytest.raises(ScheduleError, match=BEYOND):
        make()


def test_windows_need_not_fit_what_stays() -> None:
    schedule(Repeat(block(src_chunk=[3]), 5, shift=0, window=3))
    schedule(Repeat(block(src_chunk=[3]), 1, shift=1, window=3))
    schedule(Repeat(block(lists=LISTED), 1, shift=1, window=3))


def test_negative_window() -> None:
    with pytest.raises(ScheduleError, match=r"window: expected at least 1, or 0 for all chunks$"):
        schedule(Repeat(block(), 1, window=-1))


@given(schedules())
def test_random_schedules_compare(schedule: Schedule) -> None:
    twin = Schedule(
        schedule.collective, schedule.chunks,
        tuple(Repeat(p.block, p.times, np.broadcast_to(p.shift, (len(p.block),)), p.window) for p in schedule.phases),
        scratch=schedule.scratch, in_place=schedule.in_place, order=schedule.order, paths=schedule.paths,
    )  # fmt: skip
    assert twin == schedule
    assert hash(twin) == hash(schedule)


def test_the_builder_is_one_spelling() -> None:
    b = ScheduleBuilder(Collective("all_reduce", 2), chunks=4)
    b.reduce(0, 1, 0)
    assert b.build() == schedule(block())


# what is no part of a schedule


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"collective": "all_reduce"}, "collective: expected a Collective, got 'all_reduce'"),
        ({"phases": None}, "phases: expected a row of Repeats, got None"),
        ({"phases": (block(),)}, "phases: expected a row of Repeats, got Block"),
        ({"edges": ((0, 0, 0, 0, 1),)}, "edges: expected a row of Edges, got tuple"),
        ({"edges": 5}, "edges: expected a row of Edges, got 5"),
        ({"paths": 5}, "paths: expected lists of names, got 5"),
        ({"paths": ("ab",)}, "paths: expected a list of names, got 'ab'"),
        ({"parameters": 5}, "parameters: expected a dict, got 5"),
    ],
)
def test_parts_of_another_kind_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        replace(schedule(block()), **changes)
    assert str(caught.value) == message


def test_a_repeat_repeats_a_block() -> None:
    with pytest.raises(ScheduleError, match=r"^repeat: block: expected a Block, got NoneType$"):
        Repeat(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"distance": 1.5}, "edge: distance: expected a whole number, got 1.5"),
        ({"lag": 1.5}, "edge: lag: expected a whole number, got 1.5"),
        ({"row": "0"}, "edge: row: expected a whole number, got '0'"),
        (
            {"lag": 2**80},
            "edge: lag: expected a whole number up to 1000000000000000000, got 1208925819614629174706176",
        ),
    ],
)
def test_edges_of_no_numbers_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Edge(**{"phase": 0, "row": 0, "pred_phase": 0, "pred_row": 0, "distance": 1, **fields})
    assert str(caught.value) == message


def test_edges_hold_plain_numbers() -> None:
    edge = Edge(*np.zeros(4, dtype=np.int8), distance=np.int8(1), lag=np.int64(5))
    assert edge == Edge(0, 0, 0, 0, 1, lag=5)
    assert {type(value) for value in vars(edge).values()} == {int, str}


def test_parameters_cannot_be_changed() -> None:
    given = {"k": 1}
    s = replace(schedule(block()), algorithm="mine", parameters=given)
    given["k"] = 2
    with pytest.raises(TypeError):
        s.parameters["k"] = 3  # type: ignore[index]
    for same in (s, pickle.loads(pickle.dumps(s)), deepcopy(s), replace(s, algorithm="mine")):
        assert same == s
        assert (same.algorithm, same.parameters) == ("mine", {"k": 1})
        with pytest.raises(TypeError):
            same.parameters["k"] = 3
