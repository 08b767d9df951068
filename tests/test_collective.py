"""What the ten operations need before, leave behind, and how large they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collsim import Collective
from collsim.collective import OPERATIONS
from collsim.errors import InputError

# busbw over algbw for 8 ranks, from nccl-tests' doc/PERFORMANCE.md
FACTORS = {
    "all_reduce": 14 / 8, "reduce_scatter": 7 / 8, "all_gather": 7 / 8, "broadcast": 1, "reduce": 1,
    "all_to_all": 7 / 8, "gather": 7 / 8, "scatter": 7 / 8, "send_recv": 1, "barrier": 1,
}  # fmt: skip


def test_busbw_factors() -> None:
    assert {op: Collective(op, 8).busbw_factor for op in OPERATIONS} == FACTORS
    assert Collective("all_reduce", 1).busbw_factor == 0


@pytest.mark.parametrize("number", [np.int8, np.uint8, np.int64])
def test_numpy_integers_are_numbers(number: Any) -> None:
    c = Collective("broadcast", number(100), number(99))
    assert c == Collective("broadcast", 100, 99)
    assert (type(c.ranks), type(c.root)) == (int, int)
    # 2 * 99 does not fit eight bits
    assert Collective("all_reduce", number(100)).busbw_factor == 1.98


@pytest.mark.parametrize("operation", [None, 5, ["all_reduce"]])
def test_what_is_no_operation_is_refused(operation: Any) -> None:
    with pytest.raises(InputError, match=r"^operation: expected one of all_reduce, .*, got (None|5|\['all_reduce'\])"):
        Collective(operation, 2)


def test_properties() -> None:
    assert {op for op in OPERATIONS if Collective(op, 2).is_rooted} == {"broadcast", "reduce", "gather", "scatter"}
    assert {op for op in OPERATIONS if Collective(op, 2).reduces} == {"all_reduce", "reduce_scatter", "reduce"}
    assert {op for op in OPERATIONS if Collective(op, 2).is_blocked} == {
        "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("all_reduc", 2), "operation: expected one of all_reduce, .*, got 'all_reduc'; did you mean 'all_reduce'?"),
        (("all_reduce", 0), "ranks: expected a whole number of at least 1, got 0"),
        (("all_reduce", -1), "ranks: expected a whole number of at least 1, got -1"),
        (("all_reduce", 2.5), "ranks: expected a whole number of at least 1, got 2.5"),
        (("all_reduce", True), "ranks: expected a whole number of at least 1, got True"),
        (("all_reduce", "4"), "ranks: expected a whole number of at least 1, got '4'"),
        (("broadcast", 4, 4), "root: expected a rank from 0 to 3, got 4"),
        (("broadcast", 4, -1), "root: expected a rank from 0 to 3, got -1"),
        (("broadcast", 4, 1.0), r"root: expected a rank \(a whole number\), got 1.0"),
        (("broadcast", 4, True), r"root: expected a rank \(a whole number\), got True"),
        (("all_reduce", 4, 1), "root: all_reduce has no root, got 1; leave it out"),
    ],
)
def test_refusals(args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=r"^" + message.replace("?", r"\?") + "$"):
        Collective(*args)


def test_chunks_must_make_blocks() -> None:
    Collective("all_reduce", 4).check_chunks(3)
    Collective("all_gather", 4).check_chunks(8)
    with pytest.raises(InputError, match=r"^chunks: expected a multiple of the 4 ranks for all_gather, got 6$"):
        Collective("all_gather", 4).check_chunks(6)
    with pytest.raises(InputError, match=r"^chunks: expected at least 1, got 0$"):
        Collective("broadcast", 4).check_chunks(0)


@given(st.sampled_from(OPERATIONS), st.integers(1, 9), st.integers(0, 10**12), st.integers(1, 5))
def test_chunk_elements(operation: str, ranks: int, elements: int, cuts: int) -> None:
    c = Collective(operation, ranks)
    chunks = ranks * cuts
    sizes = c.chunk_elements(elements, chunks).tolist()
    if operation == "barrier":
        assert sizes == [0] * chunks
    elif operation == "all_to_all":
        block = elements // ranks
        assert sizes == [block // cuts + (i < block % cuts) for i in range(cuts)] * ranks
    else:
        assert sizes == [elements // chunks + (i < elements % chunks) for i in range(chunks)]


def held(c: Collective, chunks: int, what: str) -> list[list[int]]:
    rank, place = np.arange(c.ranks)[:, None], np.arange(chunks)[None, :]
    table = np.broadcast_to(getattr(c, what)(rank, place, chunks), (c.ranks, chunks))
    return [np.flatnonzero(row).tolist() for row in table]


ALL, BLOCKS = [[0, 1, 2, 3]] * 2, [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("operation", "before", "after"),
    [
        ("all_reduce", ALL, ALL),
        ("reduce_scatter", ALL, BLOCKS),
        ("all_gather", BLOCKS, ALL),
        ("broadcast", [[], [0, 1, 2, 3]], ALL),
        ("reduce", ALL, [[], [0, 1, 2, 3]]),
        ("all_to_all", ALL, ALL),
        ("gather", BLOCKS, [[], [0, 1, 2, 3]]),
        ("scatter", [[], [0, 1, 2, 3]], BLOCKS),
        ("send_recv", ALL, ALL),
        ("barrier", ALL, ALL),
    ],
)
def test_before_and_after(operation: str, before: list[list[int]], after: list[list[int]]) -> None:
    c = Collective(operation, 2, root=1 if operation in ("broadcast", "reduce", "gather", "scatter") else 0)
    assert held(c, 4, "provides") == before
    assert held(c, 4, "requires") == after


def test_sources() -> None:
    def source(c: Collective, chunks: int) -> list[list[tuple[int, int]]]:
        ranks, places = c.source(np.arange(c.ranks)[:, None], np.arange(chunks)[None, :], chunks)
        return [list(zip(a, b, strict=True)) for a, b in zip(ranks.tolist(), places.tolist(), strict=True)]

    assert source(Collective("broadcast", 2, 1), 2) == [[(1, 0), (1, 1)]] * 2
    assert source(Collective("scatter", 2, 1), 2) == [[(1, 0), (1, 1)]] * 2
    assert source(Collective("all_gather", 2), 4) == [[(0, 0), (0, 1), (1, 2), (1, 3)]] * 2
    assert source(Collective("gather", 2), 4) == [[(0, 0), (0, 1), (1, 2), (1, 3)]] * 2
    assert source(Collective("all_to_all", 2), 4) == [
        [(0, 0), (0, 1), (1, 0), (1, 1)],
        [(0, 2), (0, 3), (1, 2), (1, 3)],
    ]
    assert source(Collective("send_recv", 3), 1) == [[(2, 0)], [(0, 0)], [(1, 0)]]
    with pytest.raises(InputError, match=r"^all_reduce adds up the data of all ranks"):
        Collective("all_reduce", 2).source(np.array(0), np.array(0), 1)
