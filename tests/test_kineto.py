"""The files for Holistic Trace Analysis: each kernel is right, and its analyses give our own numbers."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collsim
from collsim.errors import CollsimError, InputError
from tests.trace_checker import Trace, check_trace

PICO = 1_000_000
"""The scale at which a microsecond of the file is a picosecond."""

RUNS: dict[str, Callable[[], Any]] = {
    "ring": lambda: collsim.run(
        "all_reduce",
        collsim.topology.ring(4, bandwidth="50GB/s", latency="1us", reduce_bandwidth="70GB/s"),
        "1MiB",
        algorithm="ring",
        dtype="float",
    ),
    "channels": lambda: collsim.run(
        "reduce_scatter",
        collsim.topology.switch(6, bandwidth="50GB/s", latency="300ns", reduce_bandwidth="90GB/s"),
        "3MB",
        algorithm="ring",
        channels=2,
    ),
    "tree": lambda: collsim.run(
        "all_reduce",
        collsim.topology.fat_tree(8, gpus_per_leaf=4, oversubscription=2, reduce_bandwidth="90GB/s"),
        "10MiB",
        algorithm="double_binary_tree",
        dtype="half",
    ),
    "fluid": lambda: collsim.run(
        "all_to_all",
        collsim.topology.switch(5, bandwidth="50GB/s", latency="300ns"),
        "1MB",
        algorithm="direct",
        network="fluid",
    ),
    "short": lambda: collsim.run(
        "all_reduce",
        collsim.topology.ring(4, bandwidth="50GB/s", latency="100ns", reduce_bandwidth="70GB/s"),
        20_000,
        algorithm="ring",
        dtype="float",
    ),
}


def name(rank: int) -> str:
    return f"rank{rank}.pt.trace.json.gz"


def read(result: Any, folder: Path, **options: Any) -> list[Trace]:
    result.to_kineto(folder, **options)
    return [check_trace(folder / name(rank)) for rank in range(result.schedule.ranks)]


def union(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge intervals."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def length(intervals: list[tuple[int, int]]) -> int:
    return sum(end - start for start, end in union(intervals))


def own_intervals(result: Any, rank: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return when a rank communicates and when it reduces, from the program and its times alone (picoseconds).

    Copies within a rank cross nothing here, and take no time.
    """
    from collsim.engine.program import LINK, REDUCER

    program, times = result.program, result.times
    talking, working = [], []
    for number in range(program.transfers):
        visits = range(program.visit_ptr[number], program.visit_ptr[number + 1])
        kinds = [int(program.station_kind[program.visit_station[visit]]) for visit in visits]
        links = [visit for visit, kind in zip(visits, kinds, strict=True) if kind == LINK]
        if not links:
            assert times.end[number] == times.start[number]
            continue
        late = 0 if result.network == "fluid" else int(program.visit_latency[links[-1]])
        if program.src[number] == rank:
            talking.append((int(times.start[number]), int(times.visit_end[links[0]])))
        if program.dst[number] == rank:
            talking.append((int(times.visit_start[links[-1]]) + late, int(times.visit_end[links[-1]]) + late))
            if kinds[-1] == REDUCER:
                working.append((int(times.visit_start[visits[-1]]), int(times.visit_end[visits[-1]])))
    return talking, working


@pytest.mark.parametrize("case", RUNS)
def test_every_kernel_is_there(case: str, tmp_path: Path) -> None:
    result = RUNS[case]()
    records = result.records
    for rank, trace in enumerate(read(result, tmp_path, time_scale=PICO)):
        talking, working = own_intervals(result, rank)
        kernels = [event for event in trace.slices if event["cat"] == "kernel"]
        spoken = [event for event in kernels if event["name"].startswith("ncclDevKernel_")]
        found = [(event["ts"] // 1000, (event["ts"] + event["dur"]) // 1000) for event in spoken]
        assert sorted(found) == sorted(talking)
        reduced = [event for event in kernels if event not in spoken]
        assert sorted((e["ts"] // 1000, (e["ts"] + e["dur"]) // 1000) for e in reduced) == sorted(working)
        for event in kernels:
            number, args = event["args"]["transfer"], event["args"]
            assert args["bytes"] == records["bytes"][number]
            assert (args["device"], args["stream"]) == (event["pid"], event["tid"])
            assert event["pid"] == rank
        for event in spoken:
            number, args = event["args"]["transfer"], event["args"]
            assert args["In msg nelems"] == records["bytes"][number] // result.element_size
            peer = args["Dst Rank"] if event["name"].endswith("(send)") else args["Src Rank"]
            assert peer == (records["dst"] if event["name"].endswith("(send)") else records["src"])[number]
        assert len({event["args"]["correlation"] for event in kernels}) == len(kernels)


def test_the_form_is_that_of_the_profiler(tmp_path: Path) -> None:
    trace = read(RUNS["ring"](), tmp_path)[2]
    info = trace.head["distributedInfo"]
    assert (info["backend"], info["rank"], info["world_size"]) == ("nccl", 2, 4)
    assert trace.head["schemaVersion"] == 1
    assert trace.head["deviceProperties"] == [{"id": 2, "name": "gpu2"}]
    call = next(event for event in trace.slices if event["name"] == "record_param_comms")
    assert (call["cat"], call["dur"]) == ("cpu_op", RUNS["ring"]().time_ps // 1000)
    assert call["args"] == {
        "Collective name": "allreduce", "In msg nelems": 262144, "Out msg nelems": 262144, "Group size": 4,
        "dtype": "Float", "In split size": "[]", "Out split size": "[]", "Process Group Name": "0",
        "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1, 2, 3]", "Seq": 1,
    }  # fmt: skip
    assert any((event["cat"], event["name"]) == ("user_annotation", "nccl:all_reduce") for event in trace.slices)
    names = {event["name"] for event in trace.slices if event["cat"] == "kernel"}
    assert names == {
        "ncclDevKernel_AllReduce_Sum_f32_RING(send)", "ncclDevKernel_AllReduce_Sum_f32_RING(receive)",
        "reduce_sum_f32",
    }  # fmt: skip
    assert trace.threads[2, 1] == "stream 1 (channel 0 send)"
    assert trace.processes[2] == "rank 2: gpu2"


@pytest.mark.parametrize(
    ("operation", "kernel", "collective", "sent", "got"),
    [
        ("all_gather", "ncclDevKernel_AllGather_RING", "_allgather_base", 64, 256),
        ("reduce_scatter", "ncclDevKernel_ReduceScatter_Sum_f32_RING", "_reduce_scatter_base", 256, 64),
        ("broadcast", "ncclDevKernel_Broadcast_RING", "broadcast", 256, 256),
        ("all_to_all", "ncclDevKernel_SendRecv_DIRECT", "all_to_all", 256, 256),
    ],
)
def test_operations_have_the_names_of_nccl_and_pytorch(
    operation: str, kernel: str, collective: str, sent: int, got: int, tmp_path: Path
) -> None:
    topology = collsim.topology.ring(4, bandwidth="50GB/s")
    algorithm = "direct" if operation == "all_to_all" else "ring"
    trace = read(collsim.run(operation, topology, 1024, algorithm=algorithm, dtype="float"), tmp_path)[0]
    names = {event["name"].partition("(")[0] for event in trace.slices if event["cat"] == "kernel"}
    assert names == {kernel}
    args = next(event["args"] for event in trace.slices if event["name"] == "record_param_comms")
    assert (args["Collective name"], args["In msg nelems"], args["Out msg nelems"]) == (collective, sent, got)


def test_long_groups_are_cut_as_pytorch_cuts_them(tmp_path: Path) -> None:
    topology = collsim.topology.ring(32, bandwidth="50GB/s")
    trace = read(collsim.run("all_gather", topology, 3200, algorithm="ring"), tmp_path)[31]
    args = next(event["args"] for event in trace.slices if event["name"] == "record_param_comms")
    assert args["Process Group Ranks"].endswith("28, 29, ...]")


def test_a_name_of_any_kind_is_a_kernel_name(tmp_path: Path) -> None:
    schedule = collsim.algorithms.ring_all_gather(2)
    schedule = replace(schedule, algorithm='my "own"</script> Ring-2')
    topology = collsim.topology.ring(2, bandwidth="50GB/s")
    trace = read(collsim.simulate(schedule, topology, 1000), tmp_path)[0]
    names = {event["name"] for event in trace.slices if event["cat"] == "kernel"}
    assert "ncclDevKernel_AllGather_MY_OWN_SCRIPT_RING_2(send)" in names


def test_the_same_every_time_and_replaced(tmp_path: Path) -> None:
    result = RUNS["ring"]()
    result.to_kineto(tmp_path / "a")
    result.to_kineto(tmp_path / "b")
    before = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    assert sorted(before) == [name(rank) for rank in range(4)]
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    result.to_kineto(tmp_path / "a", time_scale=2)
    assert all(path.read_bytes() != before[path.name] for path in (tmp_path / "a").iterdir())


def test_traces_of_another_run_are_not_mixed_in(tmp_path: Path) -> None:
    RUNS["tree"]().to_kineto(tmp_path)
    with pytest.raises(InputError, match=r"without other traces, which would be read too, got rank4\.pt"):
        RUNS["ring"]().to_kineto(tmp_path)
    assert len(list(tmp_path.iterdir())) == 8


@pytest.mark.parametrize("scale", [0, -1, 1.5, True, "2", None])
def test_scales_that_are_none(scale: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="time_scale: expected a whole number from 1, got"):
        RUNS["ring"]().to_kineto(tmp_path / "new", time_scale=scale)
    assert not (tmp_path / "new").exists()


def test_a_scale_that_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"time_scale: expected at most [\d,]+ for a run of \S+ s, got"):
        RUNS["ring"]().to_kineto(tmp_path, time_scale=10**15)


def test_without_records_it_says_how_to_get_them(tmp_path: Path) -> None:
    topology = collsim.topology.ring(4, bandwidth="50GB/s")
    result = collsim.run("all_reduce", topology, "1MiB", algorithm="ring", engine="compiled", records=False)
    with pytest.raises(CollsimError, match=r"^records: none were kept of 24 transfers; .*records=True$"):
        result.to_kineto(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_had(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"kineto: .*file: expected a folder, got a file"):
        RUNS["ring"]().to_kineto(tmp_path / "file")
    with pytest.raises(InputError, match=r"kineto: .*deeper: cannot be made: No such file or directory"):
        RUNS["ring"]().to_kineto(tmp_path / "not" / "deeper")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_leaves_all_files_as_they_were(tmp_path: Path) -> None:
    RUNS["ring"]().to_kineto(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / f".{name(3)}.{os.getpid()}.part").symlink_to("/dev/full")
    with pytest.raises(InputError, match="cannot be written: No space left"):
        RUNS["ring"]().to_kineto(tmp_path, time_scale=3)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.fixture
def analysis() -> Callable[[Path], Any]:
    pytest.importorskip("hta", reason="traceinsight is not installed")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from hta.common.trace import Trace as Parsed
        from hta.trace_analysis import TraceAnalysis

    def analysed(folder: Path) -> Any:
        parsed = Parsed(trace_dir=str(folder))
        parsed.load_traces(use_multiprocessing=False, use_memory_profiling=False)
        found = TraceAnalysis.__new__(TraceAnalysis)
        found.t = parsed
        return found

    return analysed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", RUNS)
def test_holistic_trace_analysis_gives_our_numbers(case: str, analysis: Callable[[Path], Any], tmp_path: Path) -> None:
    result = RUNS[case]()
    result.to_kineto(tmp_path, time_scale=PICO)
    hta = analysis(tmp_path)
    ranks = range(result.schedule.ranks)
    assert sorted(hta.t.traces) == list(ranks)
    own = [own_intervals(result, rank) for rank in ranks]

    overlap = hta.get_comm_comp_overlap(visualize=False).set_index("rank")["comp_comm_overlap_pctg"]
    temporal = hta.get_temporal_breakdown(visualize=False).set_index("rank")
    for rank, (talking, working) in enumerate(own):
        both = length(talking) + length(working) - length(talking + working)
        assert overlap[rank] == pytest.approx(100 * both / length(talking), abs=0.006)
        whole = union(talking + working)
        assert temporal["kernel_time(us)"][rank] == whole[-1][1] - whole[0][0]
        assert temporal["idle_time(us)"][rank] == whole[-1][1] - whole[0][0] - length(whole)
        assert temporal["compute_time(us)"][rank] == length(working)

    kinds, kernels = hta.get_gpu_kernel_breakdown(visualize=False, num_kernels=10)
    talked, worked = (sum(length(intervals[what]) for intervals in own) for what in (0, 1))
    spent = dict(zip(kinds["kernel_type"], kinds["sum"], strict=True))
    for what, times in (("COMMUNICATION", talked), ("COMPUTATION", worked)):
        assert sum(ps for kind, ps in spent.items() if what in kind) == times  # alone, or overlapping the other
    for rank, (talking, _) in enumerate(own):
        mine = kernels[(kernels["rank"] == rank) & (kernels["kernel_type"] == "COMMUNICATION")]
        assert mine["sum (us)"].sum() == sum(end - start for start, end in talking)

    idle = hta.get_idle_time_breakdown(ranks=list(ranks), visualize=False)[0]
    for rank, trace in enumerate(check_trace(tmp_path / name(rank)) for rank in ranks):
        gaps = 0
        for pid, tid in trace.threads:
            of = [(event["ts"], event["ts"] + event["dur"]) for event in trace.slices
                  if (event["pid"], event["tid"]) == (pid, tid) and event["cat"] == "kernel"]  # fmt: skip
            gaps += sum(later[0] - earlier[1] for earlier, later in pairwise(of))
        assert idle[idle["rank"] == rank]["idle_time"].sum() == gaps // 1000


@pytest.mark.filterwarnings("ignore")
def test_without_a_scale_short_kernels_are_lost_in_rounding(analysis: Callable[[Path], Any], tmp_path: Path) -> None:
    result = RUNS["short"]()  # 100 ns a transfer
    result.to_kineto(tmp_path)
    frame = analysis(tmp_path).t.traces[0]
    kernels = frame[frame["stream"] >= 0]
    assert (kernels["dur"] <= 0).all()
    talking = own_intervals(result, 0)[0]
    assert np.ptp(talking) > 0
    with gzip.open(tmp_path / name(0)) as file:
        events = json.load(file)["traceEvents"]
    assert all(event["dur"] > 0 for event in events if event.get("cat") == "kernel")
