"""The builder: numbers and arrays broadcast, rows sort by step, and mistakes are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collsim import Collective, Schedule, ScheduleBuilder
from collsim.errors import ScheduleError
from collsim.schedule.model import COLUMNS, Edge


def builder(**more: Any) -> ScheduleBuilder:
    return ScheduleBuilder(Collective("all_reduce", 4), chunks=8, **more)


def text(schedule: Schedule) -> list[str]:
    return [line.strip() for line in str(schedule).splitlines()[1:]]


def test_scalars_and_arrays_broadcast() -> None:
    b = builder()
    b.reduce(np.arange(4), (np.arange(4) + 1) % 4, [0, 2, 4, 6], step=[1, 0, 1, 0], count=2, channel=3)
    schedule = b.build()
    assert text(schedule) == [
        "repeat 1",
        "step 0", "1 => 2  2+2 channel=3", "3 => 0  6+2 channel=3",
        "step 1", "0 => 1  0+2 channel=3", "2 => 3  4+2 channel=3",
    ]  # fmt: skip
    block = schedule.phases[0].block
    assert {name: getattr(block, name).dtype.type for name in COLUMNS} == COLUMNS


def test_rows_of_a_step_keep_the_order_of_calls() -> None:
    b = builder()
    b.copy([3, 2], 1, step=1)
    b.copy(0, 1, step=0)
    b.reduce(1, 0, step=1)
    assert text(b.build()) == ["repeat 1", "step 0", "0 -> 1  0", "step 1", "3 -> 1  0", "2 -> 1  0", "1 => 0  0"]


def test_repeats_and_what_is_between() -> None:
    b = builder()
    b.copy(0, 1, 7)
    with b.repeat(3, shift=-1, window=4):
        b.copy(0, 1, step=[0, 1])
        b.copy(1, 2, 4, shift=2, window=2)
    with b.repeat(0):
        b.copy(0, 1)
    b.copy(2, 3, 1, step=5)
    b.copy(1, 0, 1)
    with b.repeat(2):
        pass
    assert text(b.build()) == [
        "repeat 1", "step 0", "0 -> 1  7",
        "repeat 3", "step 0", "0 -> 1  0 shift=-1 window=4", "1 -> 2  4 shift=2 window=2", "step 1",
        "0 -> 1  0 shift=-1 window=4",
        "repeat 1", "step 0", "1 -> 0  1", "step 5", "2 -> 3  1",
    ]  # fmt: skip
    assert b.build() == b.build()


def test_two_sides() -> None:
    b = builder(scratch=3, in_place=False)
    b.copy(0, 1, 5, dst_chunk=[1, 2], src_buffer="input", dst_buffer="scratch", step=[0, 1])
    assert text(b.build()) == ["repeat 1", "step 0", "0 -> 1  i5 > s1", "step 1", "0 -> 1  i5 > s2"]


def test_lists() -> None:
    b = builder()
    b.copy(0, 1, chunks=[0, 3, 7], step=1)
    b.copy([1, 2], 3, chunks=[[1, 2], [5]], dst_chunks=[[2, 1], [6]])
    b.copy(0, 1, 4)
    b.copy(0, 1, chunks=np.array([1, 4]), step=[2])
    assert text(b.build()) == [
        "repeat 1",
        "step 0", "1 -> 3  {1,2} > {2,1}", "2 -> 3  {5} > {6}", "0 -> 1  4",
        "step 1", "0 -> 1  {0,3,7}",
        "step 2", "0 -> 1  {1,4}",
    ]  # fmt: skip
    assert Schedule.from_text(str(b.build())) == b.build()


def test_paths_are_numbered_once() -> None:
    b = builder()
    for via in (("a", "b"), ("c",), ("a", "b"), None):
        b.copy(0, [1, 2], via=via)
    schedule = b.build()
    assert schedule.paths == (("a", "b"), ("c",))
    assert schedule.phases[0].block.via is not None
    assert schedule.phases[0].block.via.tolist() == [0, 0, 1, 1, 0, 0, -1, -1]


def test_options_go_through() -> None:
    b = builder(scratch=1, order=range(7, -1, -1), layout=[[8, 3]], places=["sw"])
    b.reduce(0, 4, dst_buffer="scratch")
    schedule = b.build([Edge(0, 0, 0, 0, 1)])
    assert (schedule.scratch, schedule.order, schedule.layout) == (1, (7, 6, 5, 4, 3, 2, 1, 0), ((8, 3),))
    assert (schedule.places, schedule.edges) == (("sw",), (Edge(0, 0, 0, 0, 1),))


def test_nothing_to_do() -> None:
    b = builder()
    b.copy([], [], [])
    assert b.build().phases == ()


def test_a_failed_repeat_leaves_nothing_behind() -> None:
    b = builder()

    def fails() -> None:
        with b.repeat(2):
            b.copy(0, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert b.build().phases == ()


BUFFERS = "one of input, output, scratch"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"chnnel": 1}, "builder: no column 'chnnel'; did you mean 'channel'?"),
        ({"dst_buffer": "outptu"}, f"builder: dst_buffer: expected {BUFFERS}, got 'outptu'; did you mean 'output'?"),
        ({"src_buffer": 1}, f"builder: src_buffer: expected {BUFFERS}, got 1"),
        ({"step": [[0]]}, "builder: step: expected a number or a row of them, got (1, 1); use ravel()"),
        ({"step": [0, 1], "channel": [1, 2, 3]}, "builder: expected rows of one length, got step 2, channel 3"),
        ({"channel": 0.5}, "block: channel: expected whole numbers, got float64"),
        ({"chunk": 2**35}, "block: src_chunk: expected numbers that fit int32, got 34359738368"),
        ({"chunk": 8}, "phase 0, row 0 (step 0, 0 -> 1): src_chunk: beyond the chunks of its buffer"),
        ({"chunks": []}, "builder: chunks: expected at least one chunk a row"),
        ({"chunks": [[0], []]}, "builder: chunks: expected at least one chunk a row"),
        ({"chunks": [0.5]}, "builder: chunks: expected a whole number, got 0.5"),
        ({"chunks": [[0], [1]]}, "builder: chunks: expected 1 lists, of equal lengths on both sides"),
        ({"chunks": [0, 1], "dst_chunks": [0]}, "builder: chunks: expected 1 lists, of equal lengths on both sides"),
        ({"chunks": [0], "count": 2, "dst_chunk": 1}, "builder: chunks: expected lists only, got count, dst_chunk too"),
        ({"dst_chunks": [0]}, "builder: dst_chunks: expected chunks too, for the side of the sender"),
    ],
)  # fmt: skip
def test_refusals(call: dict[str, Any], message: str) -> None:
    def build() -> Schedule:
        b = builder()
        b.copy(0, 1, **call)
        return b.build()

    with pytest.raises(ScheduleError) as caught:
        build()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"times": -1}, "repeat: times: expected at least 0, got -1"),
        ({"times": 1.5}, "repeat: times: expected a whole number, got 1.5"),
        ({"times": 1, "shift": [1]}, "repeat: shift: expected a whole number, got [1]"),
        ({"times": 1, "window": None}, "repeat: window: expected a whole number, got None"),
    ],
)
def test_repeats_are_refused(options: dict[str, Any], message: str) -> None:
    def build() -> None:
        b = builder()
        with b.repeat(**options):
            b.copy(0, 1)

    with pytest.raises(ScheduleError) as caught:
        build()
    assert str(caught.value) == message


def test_repeats_do_not_nest() -> None:
    b = builder()
    with (
        pytest.raises(ScheduleError, match=r"^repeat: repeats do not nest; write the inner one out$"),
        b.repeat(2),
        b.repeat(2),
    ):
        pass  # pragma: no cover


def test_chunks_must_be_whole() -> None:
    with pytest.raises(ScheduleError, match=r"^chunks: expected a whole number, got 2\.5$"):
        ScheduleBuilder(Collective("all_reduce", 4), chunks=2.5).build()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"chunks": 3}, "builder: chunks: expected a list of chunks, or one a row, got 3"),
        ({"chunks": "ab"}, "builder: chunks: expected a list of chunks, or one a row, got 'ab'"),
        ({"chunks": [0], "dst_chunks": 5}, "builder: chunks: expected a list of chunks, or one a row, got 5"),
        ({"chunks": [[0], 0]}, "builder: chunks: expected a list of chunks, or one a row, got 0"),
        ({"chunks": [2**40]}, "builder: chunks: expected a whole number up to 2147483647, got 1099511627776"),
        ({"chunks": [10**5000]}, "builder: chunks: expected a whole number up to 2147483647, got <int>"),
        ({"via": 5}, "builder: via: expected a list of names, got 5"),
        ({"via": "sw"}, "builder: via: expected a list of names, got 'sw'"),
        ({"via": [["a"]]}, "builder: via: expected names of nodes, got ['a']"),
        (
            {"src_buffer": np.array(["input", "output"])},
            "builder: src_buffer: expected one of input, output, scratch, got array(['input', 'output'], dtype='<U6'); "
            "did you mean 'output'?",
        ),
        ({"step": None}, "builder: step: expected a number or a row of them, got None"),
        ({"count": [[1], [1, 2]]}, "builder: count: expected a number or a row of them, got [[1], [1, 2]]"),
    ],
)
def test_columns_are_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        builder().copy([0, 1], [1, 0], **columns)
    assert str(caught.value) == message


def test_none_is_no_rank() -> None:
    with pytest.raises(ScheduleError, match=r"^builder: src: expected a number or a row of them, got None$"):
        builder().copy(None, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"in_place": "no"}, "in_place: expected True or False, got 'no'"),
        ({"in_place": None}, "in_place: expected True or False, got None"),
        ({"order": 5}, "order: expected places of chunks, got 5"),
        ({"places": 5}, "places: expected a list of names, got 5"),
        ({"places": "sw"}, "places: expected a list of names, got 'sw'"),
        ({"places": (5,)}, "places: expected names of nodes, got 5"),
        ({"layout": 5}, "layout: expected runs of (count, elements), got 5"),
        ({"layout": ((1,),)}, "layout: expected runs of (count, elements), got (1,)"),
        (
            {"layout": ((8, 2**70),)},
            "layout: expected a whole number up to 1000000000000000000, got 1180591620717411303424",
        ),
        ({"scratch": 2**40}, "scratch: expected a whole number up to 2147483647, got 1099511627776"),
    ],
)
def test_buffers_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        builder(**options).build()
    assert str(caught.value) == message


def test_iterators_last_for_two_builds() -> None:
    b = builder(order=iter(range(7, -1, -1)), layout=iter([(8, 3)]), places=iter(["sw"]))
    assert b.build() == b.build()
    assert (b.build().order, b.build().layout, b.build().places) == ((7, 6, 5, 4, 3, 2, 1, 0), ((8, 3),), ("sw",))


@pytest.mark.parametrize(
    "columns",
    [
        {"chunks": [3, 1, 3]},
        {"chunks": [0, 1], "dst_chunks": [2, 2]},
        {"count": 9},
        {"count": 2, "stride": 0},
        {"count": 3, "stride": 4},
        {"count": 3, "stride": -4},
        {"chunk": 4, "count": 3, "window": 2},
    ],
)
@pytest.mark.parametrize("adds", [False, True])
def test_a_row_writes_a_chunk_once(columns: dict[str, Any], adds: bool) -> None:
    b = builder()
    b.copy(0, 2, 0)
    (b.reduce if adds else b.copy)(0, 1, **columns, step=1)
    if adds and "dst_chunks" in columns:
        b.build()  # different chunks may be added to one: partial sums of it
        return
    with pytest.raises(ScheduleError) as caught:
        b.build()
    assert str(caught.value) == (
        "phase 0, row 1 (step 1, 0 -> 1): it writes one chunk twice; give each chunk of a message once"
    )


@pytest.mark.parametrize("columns", [{"count": 8}, {"count": 2, "stride": 4}, {"chunk": 4, "count": 2, "window": 2}])
def test_a_row_may_fill_its_window(columns: dict[str, Any]) -> None:
    b = builder()
    b.copy(0, 1, **columns)
    assert len(set(b.build().expand().dst_chunks.tolist())) == columns["count"]
