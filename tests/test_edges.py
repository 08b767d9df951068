"""Written edges are kept as columns, and look like a tuple of edges."""

from __future__ import annotations

import pickle
from collections import defaultdict
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collsim import Schedule, algorithms, window
from collsim.errors import ScheduleError
from collsim.schedule import Edge, Edges

ONE = st.builds(
    Edge, st.integers(3, 5), st.integers(0, 9), st.integers(0, 3), st.integers(0, 9), st.integers(0, 4),
    st.sampled_from(["end", "issued"]), st.sampled_from([0, 0, 7, 10**18]),
)  # fmt: skip
ROWS = st.lists(ONE, max_size=6)


@given(ROWS, ROWS)
def test_like_a_tuple(first: list[Edge], second: list[Edge]) -> None:
    edges, other = Edges(first), Edges(second)
    assert (tuple(edges), len(edges), bool(edges)) == (tuple(first), len(first), bool(first))
    assert edges == tuple(first)
    assert tuple(first) == edges
    assert hash(edges) == hash(tuple(first))
    assert (edges == other) == (first == second) == (edges == tuple(second)) == (edges.key() == other.key())
    assert edges != [*first, Edge(0, 0, 0, 0)]
    assert tuple(edges + other) == tuple(edges + tuple(second)) == tuple(tuple(first) + other) == (*first, *second)
    assert [edges[i] for i in range(-len(first), len(first))] == [*first, *first]
    assert edges[1:4] == tuple(first[1:4])
    assert edges[::-2] == tuple(first[::-2])
    assert repr(edges) == repr(tuple(first))
    assert Edges.of(edges) is edges
    for same in (pickle.loads(pickle.dumps(edges)), deepcopy(edges), Edges.joined([Edges(), edges])):
        assert same == edges
    with pytest.raises(IndexError):
        edges[len(first)]


@given(ROWS)
def test_columns_hold_what_the_edges_say(rows: list[Edge]) -> None:
    columns = Edges(rows).columns
    assert [int(lag) for lag in columns["lag"]] == [edge.lag for edge in rows]
    assert columns["issued"].tolist() == [edge.at == "issued" for edge in rows]
    assert Edges.from_columns(**columns) == tuple(rows)
    assert not any(column.flags.writeable for column in columns.values())


def test_what_all_share_is_kept_once_and_of_its_own() -> None:
    row = np.arange(1000)
    edges = Edges.from_columns(phase=0, row=row, pred_phase=0, pred_row=row - 1, issued=True)
    row[:] = 7
    assert edges[3] == Edge(0, 3, 0, 2, at="issued")
    assert sorted(name for name, column in edges.columns.items() if column.strides != (0,)) == ["pred_row", "row"]
    assert len(pickle.dumps(edges)) < 10_000
    assert repr(edges) == "<1,000 edges>"
    with pytest.raises(AttributeError, match="cannot be set"):
        edges.columns = {}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"pred_phase": [0, 1]}, "edge: expected a predecessor in this or an earlier phase, distance >= 0, lag >= 0: "),
        ({"distance": [0, -1]}, "edge: expected a predecessor in this or an earlier phase, distance >= 0, lag >= 0: "),
        ({"lag": 10**19}, "edge: lag: expected a whole number up to 1000000000000000000, got "),
        ({"row": [0, 2**31]}, "edge: row: expected a whole number up to 2147483647, got 2147483648"),
        ({"row": [0.5, 1]}, "edge: row: expected a whole number, got "),
        ({"issued": 0.5}, "edges: expected whole numbers, and True or False for issued"),
    ],
)
def test_columns_are_checked_as_edges_are(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Edges.from_columns(**{"phase": 0, "row": [1, 2], "pred_phase": 0, "pred_row": 0, **columns})
    assert str(caught.value).startswith(message)


def test_the_first_edge_without_a_row_is_named() -> None:
    schedule = window(algorithms.tree_broadcast(3, slices=4), 1)
    with pytest.raises(ScheduleError, match=r"^edge: there is no row 8 in phase 0: Edge\(phase=0, row=8, "):
        replace(schedule, edges=(*schedule.edges, Edge(0, 8, 0, 0), Edge(0, 9, 0, 0)))
    with pytest.raises(ScheduleError, match=r"^edge: there is no row 0 in phase -1: Edge\(phase=0, row=0, "):
        replace(schedule, edges=(*schedule.edges, Edge(0, 0, -1, 0)))


def test_a_large_window_keeps_its_meaning() -> None:
    """Ten thousands of edges: written, read back, compared, copied; and each waits for the one four before it."""
    schedule = window(algorithms.double_binary_tree_all_reduce(64, slices=100), 4, per=("src", "dst", "reduce"))
    assert len(schedule.edges) > 20_000
    for same in (Schedule.from_text(str(schedule)), pickle.loads(pickle.dumps(schedule)), deepcopy(schedule)):
        assert same == schedule
        assert hash(same) == hash(schedule)
    assert schedule != replace(schedule, edges=schedule.edges[1:])
    block = schedule.phases[0].block
    queues: dict[tuple[int, int, bool], list[int]] = defaultdict(list)
    for row, key in enumerate(zip(block.src.tolist(), block.dst.tolist(), block.reduce.tolist(), strict=True)):
        queues[key].append(row)
    wanted = {pair for rows in queues.values() for pair in zip(rows[4:], rows, strict=False)}
    assert {(edge.row, edge.pred_row) for edge in schedule.edges} == wanted
    assert len(wanted) == len(schedule.edges)
