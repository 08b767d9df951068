"""The proof: what it finds, what it says, and that it agrees with counting contributions one by one."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collsim import Collective, Schedule, ScheduleBuilder, algorithms, check
from collsim.errors import ProofError
from collsim.schedule import check as check_module
from collsim.schedule.block import Repeat
from collsim.schedule.chains import Visits, _pieces
from collsim.schedule.model import Edge
from collsim.schedule.moves import Places
from tests.strategies import changed, make, naive_rows, naive_unused, naive_verdict, refused, schedule_of
from tests.test_execute import (
    bruck_all_gather,
    direct_reduce_scatter,
    dissemination_barrier,
    linear_gather,
    pairwise_all_to_all,
    switch_all_reduce,
)


def ring(ranks: int, reduce_offset: int, copy_offset: int, *, copies: bool = True) -> Schedule:
    """Ring all_reduce that starts with chunk r - offset in its two phases."""
    b = ScheduleBuilder(Collective("all_reduce", ranks), ranks)
    r = np.arange(ranks)
    with b.repeat(ranks - 1, shift=-1):
        b.reduce(r, (r + 1) % ranks, (r - reduce_offset) % ranks)
    with b.repeat(ranks - 1, shift=-1):
        (b.copy if copies else b.reduce)(r, (r + 1) % ranks, (r - copy_offset) % ranks)
    return b.build()


# the two variants of the ring, and the classic mistake of mixing them


def test_both_variants_of_the_ring_are_right() -> None:
    assert check(ring(5, 1, 0)).complete
    assert check(ring(5, 0, -1)).complete  # the textbook's


def test_offsets_mixed_up() -> None:
    refused(
        ring(5, 1, -1),
        "rank 0, chunk 0: contribution of rank 0 is missing; last written by step 4, 4 -> 0; 25 places are wrong",
        rank=0, chunk=0, step=4,
    )  # fmt: skip
    refused(
        ring(3, 0, 0),
        # a place that a step wrote comes before those that are as they were
        "rank 0, chunk 1: contributions of ranks 0, 2 are missing; last written by step 3, 2 -> 0; 9 places are wrong",
        rank=0, chunk=1, step=3,
    )  # fmt: skip


def test_copy_instead_of_reduce() -> None:
    schedule = make("all_reduce", 3, 1, "0 => 1 0; 1 -> 2 0; 2 -> 1 0; 1 -> 0 0")
    refused(
        schedule,
        "rank 0, chunk 0: contribution of rank 2 is missing; last written by step 3, 1 -> 0; 3 places are wrong",
        rank=0, chunk=0, step=3,
    )  # fmt: skip


def test_reduce_instead_of_copy() -> None:
    refused(
        ring(3, 1, 0, copies=False),
        "rank 0, chunk 1: contribution of rank 0 counts 2 times; last written by step 3, 2 => 0; 6 places are wrong",
    )  # fmt: skip


def test_double_reduce() -> None:
    schedule = make("reduce", 3, 2, "1 => 0 0+2 & 2 => 0 0+2; 2 => 0 1")
    refused(
        schedule,
        "rank 0, chunk 1: contribution of rank 2 counts 2 times; last written by step 1, 2 => 0",
        rank=0, chunk=1, step=1,
    )  # fmt: skip


def test_a_set_would_hide_duplicates() -> None:
    """Recursive doubling on 6 ranks without folding: as sets all are there, but some count twice (tilelang 2611)."""
    b = ScheduleBuilder(Collective("all_reduce", 6), 1)
    r = np.arange(6)
    for step in range(3):
        b.reduce(r, (r + 2**step) % 6, step=step)
    refused(
        b.build(),
        "rank 0, chunk 0: contribution of rank 0 counts 2 times; last written by step 2, 2 => 0; 6 places are wrong",
    )


def test_missing_chunk() -> None:
    schedule = make("broadcast", 3, 3, "0 -> 1 0+3; 1 -> 2 0+2", root=0)
    refused(
        schedule,
        "rank 2, chunk 2: chunk 2 of rank 0 is missing; nothing was ever written there",
        rank=2, chunk=2, step=None,
    )  # fmt: skip


def test_missing_contribution_where_nothing_was_written() -> None:
    schedule = make("reduce", 3, 2, "1 => 0 0+2; 2 => 0 0", root=0)
    refused(
        schedule,
        "rank 0, chunk 1: contribution of rank 2 is missing; last written by step 0, 1 => 0",
        rank=0, chunk=1, step=0,
    )  # fmt: skip
    refused(
        make("all_reduce", 9, 1, "1 => 0 0"),
        "rank 0, chunk 0: contributions of ranks 2, 3, 4, 5, 6, 7, ... are missing; last written by step 0, 1 => 0; "
        "9 places are wrong",
    )
    refused(
        make("all_reduce", 2, 2, "0 => 1 0+2; 1 -> 0 0"),
        "rank 0, chunk 1: contribution of rank 1 is missing; it is as it was at the start",
    )


def test_wrong_chunk() -> None:
    refused(
        make("all_gather", 2, 2, "0 -> 1 0 & 1 -> 0 1; 0 -> 1 0 > 1"),
        "rank 1, chunk 1: expected chunk 1 of rank 1, got chunk 0 of rank 0; last written by step 1, 0 -> 1",
    )
    refused(
        make("all_reduce", 2, 2, "0 => 1 0+2; 1 -> 0 0+2; 1 => 0 0 > 1"),
        "rank 0, chunk 1: holds chunk 0 of rank 0 instead of chunk 1; last written by step 2, 1 => 0",
    )
    refused(
        make("send_recv", 2, 1, "0 -> 1 0"),
        "rank 0, chunk 0: expected chunk 0 of rank 1, got chunk 0 of rank 0; it is as it was at the start",
    )
    refused(
        make("all_to_all", 1, 1, "0 => 0 0"),
        "rank 0, chunk 0: expected chunk 0 of rank 0, got chunk 0 of rank 0 2 times; last written by step 0, 0 => 0",
    )


def test_the_order_of_chunks_counts() -> None:
    """In ring order the chunks of a reduce_scatter have to be those of the ranks."""
    right = algorithms.ring_reduce_scatter(4, order=[0, 2, 1, 3])
    assert check(right).complete
    refused(
        replace(right, order=None),
        "rank 2, chunk 2: contribution of rank 1 is missing; last written by step 1, 0 => 2; 2 places are wrong",
    )  # fmt: skip


# reads and sums of nothing


def test_reading_nothing() -> None:
    refused(
        make("all_gather", 2, 4, "0 -> 1 0+3 & 1 -> 0 2+2"),
        "rank 0, chunk 2: step 0, 0 -> 1 reads it before anything was written there",
        rank=0, chunk=2, step=0,
    )  # fmt: skip
    refused(
        make("all_reduce", 2, 1, "0 -> 1 0", head="in_place=no"),
        "rank 0, chunk 0: step 0, 0 -> 1 reads it in its output before anything was written there",
    )
    refused(
        make("all_reduce", 2, 1, "0 -> 1 s1 > 0", head="scratch=2"),
        "rank 0, chunk 1: step 0, 0 -> 1 reads it in its scratch before anything was written there",
    )


def test_a_step_cannot_read_what_it_writes() -> None:
    refused(
        make("broadcast", 3, 1, "0 -> 1 0 & 1 -> 2 0"),
        "rank 1, chunk 0: step 0, 1 -> 2 reads it before anything was written there",
    )


def test_adding_to_nothing() -> None:
    refused(
        make("all_gather", 2, 2, "1 -> 0 1 & 0 => 1 0"),
        "rank 1, chunk 0: step 0, 0 => 1 adds to it before anything was written there",
        rank=1, chunk=0, step=0,
    )  # fmt: skip
    refused(
        make("all_reduce", 2, 1, "0 => 1 i0 > 0", head="in_place=no"),
        "rank 1, chunk 0: step 0, 0 => 1 adds to it in its output before anything was written there",
    )


def test_switches_start_from_nothing_but_must_be_written() -> None:
    assert check(switch_all_reduce(3)).complete
    b = ScheduleBuilder(Collective("all_reduce", 2), 1, scratch=2, places=["sw0"])
    b.reduce([0, 1], 2, dst_buffer="scratch")
    b.copy(2, [0, 1], 1, dst_chunk=0, src_buffer="scratch", step=1)
    refused(b.build(), "switch sw0, chunk 1: step 1, 2 -> 0 reads it in its scratch before anything was written there")


# transfers that nobody needs


def test_unused_transfers_are_reported() -> None:
    schedule = make("reduce", 3, 2, "1 => 0 0+2; 2 -> 1 0+2 & 2 => 0 0+2; 1 => 2 1")
    proof = check(schedule)
    assert proof.complete
    assert proof.unused == ("nobody uses what step 2, 1 => 2 moves", "nobody uses what step 1, 2 -> 1 moves")
    assert str(proof) == "checked: all 2 chunks; " + "; ".join(proof.unused)


def test_what_is_overwritten_is_unused() -> None:
    schedule = make("broadcast", 2, 1, "0 -> 1 0; 0 -> 1 0", edges=[Edge(0, 1, 0, 0)])
    assert check(schedule).unused == ("nobody uses what step 0, 0 -> 1 moves",)


def test_a_message_is_used_if_one_of_its_chunks_is() -> None:
    assert check(make("scatter", 2, 2, "0 -> 1 0+2")).unused == ()


def test_many_unused_transfers_are_counted() -> None:
    b = ScheduleBuilder(Collective("reduce", 2), 1, scratch=15)
    b.reduce(1, 0)
    b.copy(1, 1, 0, dst_chunk=np.arange(15), dst_buffer="scratch")
    proof = check(b.build())
    assert proof.unused[0] == "nobody uses what step 0, 1 -> 1 moves"
    assert proof.unused[9:] == ("nobody uses 6 more transfers",)


# barriers


def test_barriers() -> None:
    for ranks in range(1, 18):
        assert check(dissemination_barrier(ranks)).complete
    refused(dissemination_barrier(5, 2), "rank 0 leaves the barrier without having heard of rank 1", rank=0)
    refused(
        make("barrier", 3, 2, "1 => 0 1; 0 => 2 1; 2 => 1 0"),
        "rank 0 leaves the barrier without having heard of rank 2",
    )
    assert check(make("barrier", 3, 2, "1 => 0 1; 2 => 0 0; 0 => 1 0+2 & 0 => 2 0+2")).complete


# against counting


CORRECT = [
    algorithms.ring_all_reduce(3),
    algorithms.bidirectional_ring_all_reduce(3),
    algorithms.binomial_tree_all_reduce(4),
    algorithms.double_binary_tree_all_reduce(3, slices=1),
    algorithms.tree_all_reduce(4, slices=2),
    algorithms.ring_reduce_scatter(3, order=[0, 2, 1]),
    algorithms.bidirectional_ring_all_gather(3),
    algorithms.ring_broadcast(3, 1, slices=2),
    algorithms.tree_reduce(4, 2, slices=2),
    linear_gather(3, 1),
    pairwise_all_to_all(2, True),
    pairwise_all_to_all(2, False),
    bruck_all_gather(3),
    switch_all_reduce(3, 2),
    direct_reduce_scatter(1),
]


VERDICTS = [
    (r"reads it .*before anything", "read"),
    ("adds to it .*before anything", "add"),
    ("nothing orders", "order"),
]


def verdict(schedule: Schedule, **options: Any) -> str:
    try:
        check(schedule, **options)
    except ProofError as error:
        message = str(error)
        assert re.match(r"(rank \d|switch \w+), chunk \d+: ", message)
        return next((kind for pattern, kind in VERDICTS if re.search(pattern, message)), "data")
    return ""


@given(st.data(), st.sampled_from(CORRECT), st.integers(0, 2))
@settings(max_examples=500)
def test_agrees_with_counting(data: st.DataObject, start: Schedule, changes: int) -> None:
    rows = naive_rows(start)
    for _ in range(changes):
        rows = changed(data.draw, rows, start) or rows
    schedule = schedule_of(start, rows)
    expected = naive_verdict(schedule, rows)
    assert verdict(schedule) == expected
    if not expected:
        texts = check(schedule).unused
        unused = naive_unused(schedule, rows)
        assert len(texts) == min(len(unused), 10)
        arrows = {False: "->", True: "=>"}
        named = [f"step {row.step}, {row.src} {arrows[row.reduce]} {row.dst}" for row in (rows[i] for i in unused)]
        assert set(texts[:9]) <= {f"nobody uses what {name} moves" for name in named}


@given(st.sampled_from(CORRECT), st.integers(0, 2**32))
def test_any_seed_proves(schedule: Schedule, seed: int) -> None:
    assert check(schedule, seed=seed).complete


# samples and batches


def test_a_sample_says_how_many() -> None:
    schedule = algorithms.ring_all_reduce(16, slices=8)
    proof = check(schedule, full_cost=2000)
    assert (proof.chunks, proof.checked, proof.complete) == (128, 16, False)
    assert str(proof) == "checked: 16 of 128 chunks"
    assert proof.moves == 16 * 30
    assert check(schedule, full_cost=1).checked == 1
    assert check(schedule, full_cost=128 * 30).complete


def test_large_schedules_are_sampled_by_default() -> None:
    proof = check(algorithms.ring_all_reduce(2048, channels=5))
    assert str(proof) == "checked: 64 of 10,240 chunks"


@pytest.mark.parametrize("seed", range(4))
def test_a_sample_finds_what_is_wrong_everywhere(seed: int) -> None:
    with pytest.raises(ProofError) as caught:
        check(ring(8, 0, 0), full_cost=40, seed=seed)
    assert re.fullmatch(
        r"rank 0, chunk \d: contributions of ranks [\d, .]+ are missing; (last written by step \d+, 7 -> 0|it is as it "
        r"was at the start); 8 places are wrong", str(caught.value),
    )  # fmt: skip


def test_a_sample_names_the_chunk_that_nobody_uses() -> None:
    schedule = make("reduce", 3, 4, "1 => 0 0+4; 2 -> 1 0+4 & 2 => 0 0+4")
    assert check(schedule).unused == ("nobody uses what step 1, 2 -> 1 moves",)
    (text,) = check(schedule, full_cost=8, seed=0).unused
    assert re.fullmatch(r"nobody uses chunk \d that step 1, 2 -> 1 moves", text)


def test_a_copy_and_a_reduction_of_one_place_are_done_as_written() -> None:
    """Rank 1 gets a sum that is too large, and then the right one over it; but nothing orders the two."""
    refused(
        make("all_reduce", 3, 1, "0 => 2 0; 1 => 2 0; 0 => 1 0 & 2 -> 1 0; 2 -> 0 0"),
        "rank 1, chunk 0: nothing orders two writes: step 2, 0 => 1 and step 2, 2 -> 1; let the second one depend on "
        "the first",
    )


def test_what_cannot_be_followed_alone_is_proven_whole() -> None:
    assert check(bruck_all_gather(5), full_cost=1).complete
    assert check(switch_all_reduce(5), full_cost=1).complete
    # all_to_all that leaves every chunk where it is: each chunk alone looks right
    schedule = make("all_to_all", 2, 2, "0 -> 1 0 & 1 -> 0 1")
    for full_cost in (1, 1000):
        with pytest.raises(
            ProofError, match=r"^rank 0, chunk 1: expected chunk 0 of rank 1, got chunk 1 of rank 1; last "
        ):
            check(schedule, full_cost=full_cost)


ALIGNED = [schedule for schedule in CORRECT if all(phase.block.is_aligned for phase in schedule.phases)]


@given(st.data(), st.sampled_from(ALIGNED), st.integers(0, 2), st.integers(1, 40))
@settings(max_examples=200)
def test_batches_agree_with_the_whole(data: st.DataObject, start: Schedule, changes: int, batch: int) -> None:
    rows = naive_rows(start)
    for _ in range(changes):
        rows = [
            row._replace(chunks=tuple((b, b) for _, b in row.chunks)) for row in changed(data.draw, rows, start) or rows
        ]
    schedule = schedule_of(start, rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check_module, "BATCH", batch)
        found = verdict(schedule)
        if not found:
            assert check(schedule).complete
    expected = naive_verdict(schedule, rows)
    assert bool(found) == bool(expected)


@st.composite
def walks(draw: Any) -> Schedule:
    """Moves of two chunks, most of which start where the one before ended: chains, and what breaks them."""
    ranks = draw(st.integers(2, 5))
    operation = draw(st.sampled_from(["all_reduce", "reduce", "broadcast"]))
    scratch = draw(st.booleans())
    b = ScheduleBuilder(Collective(operation, ranks), 2, in_place=draw(st.booleans()), scratch=2 * scratch)
    rank = st.integers(0, ranks - 1)
    buffers = st.sampled_from(["output", "output", "output", "scratch"] if scratch else ["output"])
    step = 0
    for _ in range(draw(st.integers(1, 3))):
        adds, around, buffer = draw(st.booleans()), draw(st.sampled_from([None, None, 1, -1])), draw(buffers)
        times = draw(st.integers(1, 2 * ranks))
        here = draw(rank)
        for _ in range(times):
            there = draw(rank) if around is None else (here + around) % ranks
            add = b.reduce if adds and there != here else b.copy
            add(here, there, draw(st.sampled_from([0, 0, 1])), step=step, src_buffer=buffer, dst_buffer=buffer)
            step += draw(st.sampled_from([0, 1, 1, 1, 1]))
            here = there
    return b.build()


def outcome(schedule: Schedule, **options: Any) -> Any:
    try:
        return check(schedule, **options)
    except ProofError as error:
        return str(error), error.rank, error.chunk, error.step


@given(st.one_of(walks(), st.sampled_from(CORRECT)), st.integers(1, 12))
@settings(max_examples=250)
def test_chains_are_what_steps_are(schedule: Schedule, full_cost: int) -> None:
    """The same proof, or the same words, whether a chunk is followed in chains or step by step."""
    found = []
    for least in (0, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(check_module, "LONG", least)
            patch.setattr(check_module, "BATCH", 1)  # chunk by chunk
            found += [outcome(schedule), outcome(schedule, full_cost=full_cost)]
    assert found[:2] == found[2:]


@given(walks(), st.integers(2, 4), st.integers(0, 3))
@settings(max_examples=100)
def test_chains_over_repeats(start: Schedule, times: int, shift: int) -> None:
    """A chunk that comes to the same rows again and again."""
    schedule = replace(start, phases=tuple(Repeat(p.block, times, shift % 2, 2) for p in start.phases))
    found = []
    for least in (0, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(check_module, "LONG", least)
            patch.setattr(check_module, "BATCH", 1)
            found.append(outcome(schedule))
    assert found[0] == found[1]


@given(st.integers(2, 7), st.lists(st.integers(1, 6), min_size=1, max_size=60))
def test_a_way_is_cut_before_it_comes_back(places: int, moves: list[int]) -> None:
    way = [0]
    for move in moves:
        way.append((way[-1] + 1 + move % (places - 1)) % places)
    cuts = _pieces(np.array(way))
    assert (cuts[0], cuts[-1]) == (0, len(way) - 1)
    for start, end in pairwise(cuts):
        piece = way[start : end + 1]
        assert len(set(piece)) == len(piece) > 1
        if end < len(way) - 1:  # and it is as long as it can be
            assert way[end + 1] in piece


def test_a_long_ring_is_followed_in_few_pieces() -> None:
    schedule = algorithms.ring_all_reduce(2000)
    moves = Visits(schedule).of(7, Places(schedule, np.array([7])))
    assert [(len(m.src), m.kind, m.chain) for m in moves] == [(1999, True, True), (1999, False, True)]
    with pytest.raises(
        ProofError, match=r"^rank 0, chunk (\d+): contribution of rank \1 is missing; last written by step "
    ):
        check(ring(2000, 1, -1), full_cost=20_000)
    proof = check(ring(2000, 1, 0), full_cost=20_000)
    assert str(proof) == "checked: 1 of 2,000 chunks"
    assert proof.moves == 2 * 1999


def test_a_chain_that_nobody_uses_is_named_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    b = ScheduleBuilder(Collective("reduce", 4), 2)
    b.reduce([1, 2, 3], 0, 0, step=[0, 1, 2])
    b.reduce([1, 2, 3], 0, 1, step=[0, 1, 2])
    for step in range(3):
        b.copy(step, step + 1, 0, step=3 + step)
    monkeypatch.setattr(check_module, "LONG", 0)
    monkeypatch.setattr(check_module, "BATCH", 1)
    assert check(b.build()).unused == tuple(
        f"nobody uses chunk 0 that step {3 + step}, {step} -> {step + 1} moves" for step in (2, 1, 0)
    )


@pytest.mark.parametrize("in_chains", [True, False])
def test_what_a_chain_reads_on_its_way_is_remembered(monkeypatch: pytest.MonkeyPatch, in_chains: bool) -> None:
    """Reductions into a chunk that was sent on already: the copy of the sum over it need not come after them."""
    monkeypatch.setattr(check_module, "LONG", 0 if in_chains else 10**9)
    monkeypatch.setattr(check_module, "BATCH", 1)
    for late, rank in (("1 => 0", 0), ("0 => 1", 1)):
        rest = "2 -> 0 0+2; 0 -> 1 0+2" if rank == 0 else "2 -> 1 0+2; 1 -> 0 0+2"
        refused(
            make("all_reduce", 3, 2, f"0 => 1 0+2; 1 => 2 0+2; {late} 0+2; {rest}"),
            f"rank {rank}, chunk 0: nothing orders two writes: step 2, {late} and step 3, 2 -> {rank}; let the second "
            "one depend on the first",
        )
    into_its_middle = make("reduce", 4, 2, "3 => 1 0+2; 0 => 1 0+2; 1 => 2 0+2", root=2)
    assert check(into_its_middle).unused == ()


def test_a_sample_with_scratch_of_its_own() -> None:
    """Moves inside scratch keep their place too; they are followed, and nobody uses them."""
    b = ScheduleBuilder(Collective("all_reduce", 2), 2, scratch=3)
    b.reduce(0, 1, [0, 1])
    b.copy(1, 0, [0, 1], step=1)
    b.copy(0, 1, 2, src_buffer="scratch", dst_buffer="scratch", step=2)
    refused(b.build(), "rank 0, chunk 2: step 2, 0 -> 1 reads it in its scratch before anything was written there")
    assert check(b.build(), full_cost=4).checked == 1


@example(algorithms.ring_all_reduce(1))
@given(st.sampled_from(CORRECT))
def test_proofs_are_values(schedule: Schedule) -> None:
    assert check(schedule) == check(schedule)
    assert check(schedule).moves == sum(len(row.chunks) for row in naive_rows(schedule))
