"""What traces are made of: numbers, lanes and utilisations; and the checker refuses what is wrong."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collsim.traces.slices import Slices, lanes
from collsim.traces.utilisation import levelled, utilisation
from collsim.traces.writer import BATCH, Rows, Template, in_order
from tests.trace_checker import WrongTraceError, check_text


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
def test_numbers_are_written_as_python_writes_them(values: list[int]) -> None:
    lines = Template('{"a":<n>,"b":<n:us>,"c":<n:percent>,"d":<small:words>}', words=["true", "false"])
    columns = {"n": np.array(values), "small": np.array([value % 2 for value in values])}
    for value, line in zip(values, lines.lines(columns), strict=True):
        found = json.loads(line.tobytes().replace(b"\0", b""), parse_float=Decimal)
        assert found == {"a": value, "b": Decimal(value) / 1000, "c": Decimal(value) / 100, "d": not value % 2}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(0, 5)), max_size=40))
def test_lanes_hold_one_at_a_time_and_are_no_more_than_needed(bars: list[tuple[int, int, int]]) -> None:
    row, start, lasting = (np.array(column, dtype=np.int64) for column in zip(*bars, strict=True)) if bars else 3 * (
        np.empty(0, dtype=np.int64),
    )  # fmt: skip
    end = start + np.maximum(lasting, 1)
    lane = lanes(row, start, start + lasting)
    for one in set(row.tolist()):
        here = row == one
        for number in range(int(lane[here].max()) + 1):
            on = np.flatnonzero(here & (lane == number))
            on = on[np.argsort(start[on])]
            assert (end[on][:-1] <= start[on][1:]).all()
        depth = max(int(((start[here] <= t) & (t < end[here])).sum()) for t in range(30))
        assert int(lane[here].max()) + 1 == depth


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 90), st.integers(1, 40), st.floats(0, 1)), min_size=1))
def test_utilisation_is_the_overlap_with_each_bin(bars: list[tuple[int, int, int, float]]) -> None:
    owner, start, lasting, share = (np.array(column) for column in zip(*bars, strict=True))
    end = np.minimum(start + lasting, 100)
    slices = Slices.of(np.arange(len(owner)), owner, start, end)
    found = utilisation(slices, share * (end - start), 3, 100, 7)
    for one in range(3):
        for number in range(7):
            low, high = number * 100 / 7, (number + 1) * 100 / 7
            inside = np.clip(np.minimum(end, high) - np.maximum(start, low), 0, None)
            assert found[one, number] == pytest.approx((inside * share)[owner == one].sum() / (100 / 7), abs=1e-9)


@given(st.lists(st.lists(st.floats(0, 2), min_size=4, max_size=4), min_size=1, max_size=3))
def test_levelling_keeps_what_there_is(rows: list[list[float]]) -> None:
    share = np.array(rows)
    found = levelled(share)
    assert (found <= 1).all()
    assert found.sum(axis=1) == pytest.approx(np.minimum(share.sum(axis=1), 4))


def test_the_checker_refuses_two_slices_of_one_moment() -> None:
    twice = GOOD.replace('"ts":0.000,"dur":4.000', '"ts":4.000,"dur":0.000').replace('"ts":0.000}', '"ts":4.000}')
    with pytest.raises(WrongTraceError, match="begins together with a slice without duration"):
        check_text(twice.encode())


def test_events_of_one_moment_keep_the_order_of_their_kinds() -> None:
    at = np.zeros(BATCH, dtype=np.int64)
    kinds = [Rows(at, Template(f"{letter}<n> "), lambda some: {"n": some}) for letter in "ab"]
    words = b"".join(in_order(kinds)).split()
    assert words == [f"{letter}{number}".encode() for letter in "ab" for number in range(BATCH)]


GOOD = (
    '{"displayTimeUnit":"ns","traceEvents":[{"ph":"M","name":"process_name","pid":1,"tid":0,"ts":0,"args":{"name":"p"}},'
    '{"ph":"M","name":"thread_name","pid":1,"tid":2,"ts":0,"args":{"name":"t"}},'
    '{"ph":"X","cat":"c","name":"a","pid":1,"tid":2,"ts":0.000,"dur":4.000,"args":{}},'
    '{"ph":"s","cat":"c","name":"flow","id":1,"pid":1,"tid":2,"ts":0.000},'
    '{"ph":"X","cat":"c","name":"b","pid":1,"tid":2,"ts":4.000,"dur":1.000,"args":{}},'
    '{"ph":"f","bp":"e","cat":"c","name":"flow","id":1,"pid":1,"tid":2,"ts":4.000}]}'
)


def test_the_checker_takes_what_is_right() -> None:
    trace = check_text(GOOD.encode())
    assert [(event["name"], event["ts"], event["dur"]) for event in trace.slices] == [("a", 0, 4000), ("b", 4000, 1000)]
    assert [(out["name"], back["name"]) for out, back in trace.flows] == [("a", "b")]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"dur":4.000', '"dur":4.001', "overlaps with"),
        ('"dur":4.000', '"dur":4.0005', "whole number of nanoseconds"),
        ('"dur":4.000', '"dur":-1.000', "minimum"),
        ('"dur":4.000,', "", "'dur' is a required property"),
        ('"dur":4.000', '"dur":NaN', "not JSON"),
        ('"ts":4.000,"dur"', '"ts":5.000,"dur"', "earlier than"),
        ('"id":1,"pid":1,"tid":2,"ts":0.000', '"id":2,"pid":1,"tid":2,"ts":0.000', "no start before it"),
        (',{"ph":"f"', ',{"ph":"s"', "was unexpected"),
        ('"bp":"e",', "", "'bp' is a required property"),
        ('"tid":2,"ts":4.000}', '"tid":3,"ts":4.000}', "without a name"),
        ('"name":"process_name"', '"name":"thread_name"', "without a name"),
        ('"displayTimeUnit":"ns",', "", "displayTimeUnit"),
        ('"ts":4.000}', '"ts":5.001}', "no slice to bind to"),
        ('"ph":"X"', '"ph":"B"', "unknown phase"),
    ],
)
def test_the_checker_refuses_what_is_wrong(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(WrongTraceError, match=message):
        check_text(GOOD.replace(old, new, 1).encode())
