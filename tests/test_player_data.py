"""What the step player shows: columns of transfers, what every rank holds, what transfers waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collsim
from collsim import Collective, ScheduleBuilder
from collsim.errors import AlgorithmError
from collsim.player.contents import OTHER, WHOLE, contents_of
from collsim.player.data import player_data
from collsim.player.waits import waits_of
from collsim.topology import load_topology, ring, switch

FILES = Path(__file__).parent.parent / "topologies"


def ring_result(ranks: int = 4, size: str = "1MiB", **more: Any) -> Any:
    return collsim.run("all_reduce", ring(ranks, bandwidth="50GB/s", latency="1us"), size, "ring", **more)


def final(data: dict[str, Any]) -> list[int]:
    """Levels of all cells after the last change."""
    grid = data["contents"]
    levels = list(grid["level"])
    for cell, level in zip(grid["changes"]["cell"], grid["changes"]["level"], strict=True):
        levels[cell] = level
    return levels


def incomplete(data: dict[str, Any]) -> list[int]:
    return [
        cell
        for cell, (goal, at) in enumerate(zip(data["contents"]["goal"], final(data), strict=True))
        if goal and at != WHOLE
    ]


@pytest.mark.parametrize("network", ["cut_through", "store_and_forward", "alpha_beta", "fluid"])
def test_the_columns_are_those_of_the_records(network):
    result = collsim.run(
        "all_reduce", load_topology(FILES / "fat-tree-16.yaml"), "3MB", "halving_doubling", network=network
    )
    data, records, links = player_data(result), result.records, result.link_records()
    columns = data["transfers"]
    for name in ("step", "src", "dst", "chunk", "bytes", "channel"):
        assert columns[name] == records[name].tolist()
    ready = np.array(columns["ready"])
    start = ready + columns["start"]
    end = start + columns["end"]
    assert data["tick"] == 1
    assert ready.tolist() == records["ready_ps"].tolist()
    assert start.tolist() == records["start_ps"].tolist()
    assert end.tolist() == records["end_ps"].tolist()
    assert data["time"] == result.time_ps == end.max()
    hops = data["hops"]
    owner = np.repeat(np.arange(len(ready)), hops["count"])
    enter = start[owner] + hops["enter"]
    assert owner.tolist() == links["transfer"].tolist()
    assert hops["link"] == links["link"].tolist()
    assert enter.tolist() == links["start_ps"].tolist()
    assert (enter + hops["held"]).tolist() == links["end_ps"].tolist()
    arrive = enter + hops["arrive"]
    last = np.cumsum(hops["count"]) - 1
    assert (arrive <= end[owner]).all()
    assert arrive[last].tolist() == end.tolist()  # nothing is reduced at a rate here: the last link is the end


def test_nodes_links_and_facts():
    topology = load_topology(FILES / "dgx-1-v100.yaml")
    data = player_data(collsim.run("broadcast", topology, "1MiB", "binomial_tree", root=3))
    assert data["nodes"]["name"] == list(topology.nodes)
    assert data["nodes"]["rank"] == list(range(8))
    assert data["ends"] == topology.rank_nodes.tolist()
    assert data["links"]["src"] == topology.link_src.tolist()
    assert [data["rates"][rate] for rate in data["links"]["rate"]] == ["25GB/s"] * topology.n_links
    assert set(data["links"]["kind"]) == {"nvlink"}
    assert all(0 <= value <= 1 for axis in "xy" for value in data["nodes"][axis])
    assert data["title"] == "binomial_tree broadcast"
    assert data["proof"] == "proven"
    assert set(data["critical"]) <= set(range(7))


def test_very_long_runs_are_told_in_larger_ticks():
    result = collsim.run("all_reduce", ring(3, bandwidth="1kB/s"), "30MB", "ring")
    data = player_data(result)
    assert result.time_ps > 2**53
    assert data["tick"] == 1000
    assert data["time"] == result.time_ps // 1000
    assert max(data["transfers"]["ready"]) < 2**53


def test_what_ranks_of_a_ring_hold_by_hand():
    # chunk c leaves rank c + 1 and is whole after three reductions, at rank c; it goes round in three copies
    data = player_data(ring_result(4))
    grid = data["contents"]
    assert grid["columns"] == 4
    assert grid["goal"] == [1] * 16
    assert grid["level"] == [250] * 16
    assert [grid["sets"][i] for i in grid["set"]] == [f"{1 << rank:x}" for rank in range(4) for _ in range(4)]
    changes = grid["changes"]
    assert len(changes["cell"]) == 24
    assert sorted(changes["level"]) == [500] * 4 + [750] * 4 + [1000] * 16
    steps = [data["transfers"]["step"][transfer] for transfer in changes["transfer"]]
    assert steps == sorted(steps)
    assert incomplete(data) == []


def contributions_by_time(result: Any) -> list[tuple[int, int, int]]:
    """What cells hold, found by reading at the time at which each transfer is ready: (transfer, cell, set)."""
    schedule, records = result.schedule, result.records
    written_out, chunks = schedule.expand(), schedule.chunks
    holds = {(rank, chunk): 1 << rank for rank in range(schedule.ranks) for chunk in range(chunks)}
    events = [(time, 1, i) for i, time in enumerate(records["ready_ps"].tolist())]
    events += [(time, 0, i) for i, time in enumerate(records["end_ps"].tolist())]
    brought: dict[tuple[int, int], int] = {}
    found = []
    for _, reads, i in sorted(events):
        for chunk in written_out.dst_chunks[written_out.ptr[i] : written_out.ptr[i + 1]].tolist():
            src, dst = int(written_out.src[i]), int(written_out.dst[i])
            if reads:
                brought[i, chunk] = holds[src, chunk]
            else:
                before = holds[dst, chunk] if written_out.reduce[i] else 0
                holds[dst, chunk] = before | brought[i, chunk]
                found.append((i, dst * chunks + chunk, holds[dst, chunk]))
    return found


@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling", "double_binary_tree", "swing", "bidirectional_ring"])
@pytest.mark.parametrize("network", ["cut_through", "fluid"])
def test_what_ranks_hold_against_a_replay_by_the_clock(algorithm, network):
    topology = load_topology(FILES / "dgx-1-v100.yaml")
    result = collsim.run("all_reduce", topology, "1000kB", algorithm, network=network)
    data = player_data(result)
    changes, sets = data["contents"]["changes"], data["contents"]["sets"]
    ours = list(zip(changes["transfer"], changes["cell"], [int(sets[i], 16) for i in changes["set"]], strict=True))
    # a step back and forth of transfers that end together does not matter
    assert sorted(ours) == sorted(contributions_by_time(result))


def every_algorithm() -> list[tuple[str, str]]:
    return [(operation, name) for operation, names in collsim.algorithms.available().items() for name in names]


@pytest.mark.parametrize(("operation", "name"), every_algorithm())
def test_every_algorithm_ends_with_all_that_must_be_there(operation, name):
    size = "0B" if operation == "barrier" else "1MiB"
    try:
        result = collsim.run(operation, load_topology(FILES / "dgx-h100.yaml"), size, name)
    except AlgorithmError:  # it needs switches between nodes that add
        result = collsim.run(operation, load_topology(FILES / "dgx-h100-x4-sharp.yaml"), size, name)
    if result.transfers > 20_000:
        pytest.skip("too many transfers for a page")
    data = player_data(result)
    grid = data["contents"]
    assert any(grid["goal"])
    assert incomplete(data) == []
    end = np.cumsum([data["transfers"][column] for column in ("ready", "start", "end")], axis=0)[-1]
    assert (np.diff(end[list(grid["changes"]["transfer"])]) >= 0).all()
    assert all(level in range(OTHER, WHOLE + 1) for level in grid["changes"]["level"])


def test_a_contribution_that_is_missing_or_counts_twice_is_never_complete():
    def two_ranks(*rows: tuple[int, int]) -> Any:
        b = ScheduleBuilder(Collective("all_reduce", 3), chunks=1)
        for step, (src, dst) in enumerate(rows):
            b.reduce(src, dst, 0, step=step)
        return player_data(collsim.simulate(b.build(), switch(3, bandwidth="1GB/s"), 8, check=False))

    missing = two_ranks((0, 1))
    assert final(missing) == [333, 666, 333]
    assert missing["proof"] == "not proven"
    twice = two_ranks((0, 1), (0, 1), (2, 1))
    assert final(twice)[1] == OTHER


def test_blocks_of_an_all_to_all_in_place_are_other_data_until_they_come():
    # rank r holds the blocks that it sends; only its own is a part of its result
    b = ScheduleBuilder(Collective("all_to_all", 2), chunks=2)
    b.copy([0, 1], [1, 0], [1, 0], dst_chunk=[0, 1], step=0)
    data = player_data(collsim.simulate(b.build(), switch(2, bandwidth="1GB/s"), 8))
    assert data["contents"]["level"] == [WHOLE, OTHER, OTHER, WHOLE]
    assert final(data) == [WHOLE] * 4
    assert data["chunk_texts"] == ["1 to 0", "0 to 1"]


def test_switches_that_take_part_have_rows():
    result = collsim.run(
        "all_reduce", switch(3, bandwidth="1GB/s", reduces=True, multicasts=True), "1MiB", "sharp", slices=2
    )
    data = player_data(result)
    grid = data["contents"]
    assert data["ends"][3:] == [result.topology.node_index("sw0")]
    assert len(grid["goal"]) == 4 * grid["columns"]
    of_switch = [
        level
        for cell, level in zip(grid["changes"]["cell"], grid["changes"]["level"], strict=True)
        if cell >= 3 * grid["columns"]
    ]
    assert of_switch[:1] == [333]  # a third of the sum is there
    assert WHOLE in of_switch
    assert not any(grid["goal"][3 * grid["columns"] :])


def test_many_chunks_are_put_together():
    result = collsim.run("broadcast", ring(3, bandwidth="1GB/s"), "3MB", "tree", k=1, slices=100)
    data = player_data(result)
    grid = data["contents"]
    assert grid["columns"] == 64
    assert grid["first"][0] == 0
    assert grid["first"][-1] == 100
    assert sorted(set(np.diff(grid["first"]).tolist())) == [1, 2]
    pairs = [cell for cell in range(64, 128) if np.diff(grid["first"])[cell - 64] == 2]
    levels = [
        level for cell, level in zip(grid["changes"]["cell"], grid["changes"]["level"], strict=True) if cell == pairs[0]
    ]
    assert levels == [500, 1000]
    assert all(grid["set"][cell] == -1 for cell in pairs)
    assert incomplete(data) == []


def test_a_barrier_has_one_column_of_who_was_heard():
    result = collsim.run("barrier", switch(5, bandwidth="1GB/s", latency="1us"), "0B", "dissemination")
    grid = player_data(result)["contents"]
    assert grid["columns"] == 1
    assert grid["level"] == [200] * 5
    assert sorted(grid["changes"]["level"]) == [400] * 5 + [800] * 5 + [1000] * 5


def test_the_first_change_counts_what_ends_first_not_what_is_written_first():
    # rank 0 sends a long chunk in step 0 and a short one in step 1: on links of their own the short one is there first
    b = ScheduleBuilder(Collective("broadcast", 3), chunks=2, layout=[(1, 999), (1, 1)])
    b.copy(0, 1, 0, step=0)
    b.copy(0, 2, 1, step=1)
    b.copy(0, 1, 1, step=2)
    b.copy(1, 2, 0, step=3)
    schedule = b.build()
    ends = np.array([999, 1, 1000, 1998])
    assert [change[0] for change in contents_of(schedule, ends).changes] == [1, 0, 2, 3]


def incast(network: str = "cut_through") -> Any:
    b = ScheduleBuilder(Collective("reduce", 3), chunks=1)
    b.reduce([1, 2], 0, 0, step=0)
    return collsim.simulate(b.build(), switch(3, bandwidth="1GB/s", latency="1us"), 1_000_000, network=network)


def test_queueing_names_the_link_and_who_was_first():
    result = incast()
    waits = waits_of(result.program, result.times, result.network)
    assert waits.behind.tolist() == [-1, 0]
    assert waits.waited.tolist() == [0, 10**9]  # a million bytes at 1 GB/s
    assert result.topology.link_name(int(waits.link[1])) == "sw0->gpu0"
    assert waits.after.tolist() == [-1, -1]


def test_sharing_in_fluid_is_the_time_beyond_that_alone():
    result = incast("fluid")
    waits = waits_of(result.program, result.times, result.network)
    assert waits.waited.tolist() == [10**9, 10**9]  # both have half the link all the way
    assert waits.behind.tolist() == [-1, -1]


def test_readiness_is_put_down_to_the_last_predecessor_also_through_barriers():
    result = ring_result(3)
    waits = waits_of(result.program, result.times, result.network)
    records = result.records
    for i, before in enumerate(waits.after.tolist()):
        assert (before == -1) == (records["step"][i] == 0)
        if before >= 0:
            assert records["end_ps"][before] == records["ready_ps"][i]
            assert records["dst"][before] == records["src"][i]
            assert records["chunk"][before] == records["chunk"][i]
    assert not waits.paced.any()
    apart = ring_result(3, synchronous=True)
    after = waits_of(apart.program, apart.times, apart.network).after
    assert (apart.records["end_ps"][after[3:]] == apart.records["ready_ps"][3:]).all()
    assert (apart.records["step"][after[3:]] == apart.records["step"][3:] - 1).all()


def test_pacing_is_told_apart():
    b = ScheduleBuilder(Collective("broadcast", 2), chunks=2)
    b.copy(0, 1, [0, 1], step=[0, 1])
    schedule = collsim.window(b.build(), 1, at="issued")
    result = collsim.simulate(schedule, ring(2, bandwidth="1GB/s", latency="1us"), 2000)
    waits = waits_of(result.program, result.times, result.network)
    assert waits.after.tolist() == [-1, 0]
    assert waits.paced.tolist() == [False, True]
