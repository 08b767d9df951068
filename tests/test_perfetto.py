"""The Chrome trace: each event is right, tracks nest, arrows bind, and Perfetto reads what was meant."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest

import collsim
from collsim.cli import main
from collsim.errors import CollsimError, InputError
from collsim.traces import write_perfetto
from collsim.traces.writer import BATCH
from tests.trace_checker import Trace, check_trace
from tests.trace_processor import Ask, missing, trace_processor

NETWORKS = ("alpha_beta", "store_and_forward", "cut_through", "fluid")
MACHINES: dict[str, Any] = {
    "ring": lambda: collsim.topology.ring(5, bandwidth="50GB/s", latency="1us", reduce_bandwidth="200GB/s"),
    "switch": lambda: collsim.topology.switch(6, bandwidth="50GB/s", latency="333ns", send_overhead="1.5us"),
    "tree": lambda: collsim.topology.fat_tree(
        8, gpus_per_leaf=4, oversubscription=2, reduce_bandwidth="90GB/s", channel_bandwidth="30GB/s"
    ),
}
RUNS = [
    ("all_reduce", "ring", "ring", "1MiB"),
    ("all_reduce", "ring", "ring", 20),  # whole transfers within a nanosecond
    ("all_to_all", "pairwise", "switch", "64KiB"),
    ("all_to_all", "direct", "tree", 4096),  # many at once: lanes
    ("all_reduce", "double_binary_tree", "tree", "10MiB"),
    ("broadcast", "ring", "switch", 3),  # chunks without bytes
]


def simulated(operation: str, algorithm: str, machine: str, size: Any, network: str = "cut_through") -> Any:
    return collsim.run(operation, MACHINES[machine](), size=size, algorithm=algorithm, network=network, records=True)


def traced(result: Any, folder: Path, name: str = "trace.json") -> Trace:
    result.to_perfetto(folder / name)
    return check_trace(folder / name)


def kind(trace: Trace, cat: str) -> list[dict[str, Any]]:
    return [event for event in trace.slices if event["cat"] == cat]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("case", RUNS, ids=str)
def test_every_transfer_is_there_and_exact(case: Any, network: str, tmp_path: Path) -> None:
    result = simulated(*case, network)
    trace = traced(result, tmp_path)
    records, links = result.records, result.link_records()
    remote = np.flatnonzero(np.isin(records["transfer"], links["transfer"]))
    sends, receives = kind(trace, "send"), kind(trace, "receive")
    assert sorted(event["args"]["transfer"] for event in sends) == remote.tolist()
    assert sorted(event["args"]["transfer"] for event in receives) == remote.tolist()
    ended = {event["args"]["transfer"]: event["args"]["end_ps"] for event in [*receives, *kind(trace, "copy")]}
    ended.update({event["args"]["transfer"]: event["args"]["end_ps"] for event in kind(trace, "reduce")})
    assert ended == dict(enumerate(records["end_ps"].tolist()))
    for event in sends:
        number = event["args"]["transfer"]
        assert event["args"]["start_ps"] == records["start_ps"][number]
        assert event["args"]["ready_ps"] == records["ready_ps"][number]
        assert event["args"]["bytes"] == records["bytes"][number]
        assert trace.processes[event["pid"]].startswith(f"rank {records['src'][number]}: ")
    for event in receives:
        assert trace.processes[event["pid"]].startswith(f"rank {records['dst'][event['args']['transfer']]}: ")
    assert len(trace.flows) == len(remote)
    for out, back in trace.flows:
        assert (out["cat"], back["cat"]) == ("send", "receive")
        assert out["args"]["transfer"] == back["args"]["transfer"]
    over = sorted((event["args"]["transfer"], event["args"]["start_ps"], event["args"]["end_ps"])
                  for event in kind(trace, "link"))  # fmt: skip
    assert over == sorted(zip(*(links[name].tolist() for name in ("transfer", "start_ps", "end_ps")), strict=True))
    for event in trace.slices:
        start, end = event["args"]["start_ps"], event["args"]["end_ps"]
        assert (event["ts"], event["ts"] + event["dur"]) == (start // 1000, end // 1000)
    assert trace.head["otherData"]["time_ps"] == result.time_ps


def test_times_of_a_ring_by_hand(tmp_path: Path) -> None:
    # 4 ranks, 1 us of latency, 64 KiB a chunk at 50 bytes/ns: 1.31072 us on the link
    topology = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    trace = traced(collsim.run("all_gather", topology, "256KiB", algorithm="ring"), tmp_path)
    sent = [(event["name"], event["ts"], event["dur"]) for event in trace.on("rank 0: gpu0", "channel 0 send")]
    assert sent == [("chunk 0 to 1", 0, 1310), ("chunk 3 to 1", 2310, 1311), ("chunk 2 to 1", 4621, 1311)]
    got = [(event["name"], event["ts"], event["dur"]) for event in trace.on("rank 1: gpu1", "channel 0 receive")]
    assert got == [("chunk 0 from 0", 1000, 1310), ("chunk 3 from 0", 3310, 1311), ("chunk 2 from 0", 5621, 1311)]
    assert [event["name"] for event in trace.on("links", "gpu0->gpu1")] == [
        "chunk 0, 0 to 1", "chunk 3, 0 to 1", "chunk 2, 0 to 1",
    ]  # fmt: skip


def test_a_reduction_has_a_track_and_follows_its_receive(tmp_path: Path) -> None:
    trace = traced(simulated("all_reduce", "ring", "ring", "1MiB"), tmp_path)
    received = {event["args"]["transfer"]: event["args"]["end_ps"] for event in kind(trace, "receive")}
    reduced = kind(trace, "reduce")
    assert len(reduced) == 4 * 5
    assert all(event["args"]["start_ps"] == received[event["args"]["transfer"]] for event in reduced)
    assert {trace.threads[event["pid"], event["tid"]] for event in reduced} == {"channel 0 reduce"}


def test_slices_that_overlap_have_lanes(tmp_path: Path) -> None:
    trace = traced(simulated("all_to_all", "direct", "tree", "1MiB", "fluid"), tmp_path)
    names = [name for (pid, _), name in trace.threads.items() if trace.processes[pid] == "rank 0: gpu0"]
    assert names[:7] == [f"channel 0 send, lane {lane}" for lane in range(7)]  # to seven others at once
    again = traced(simulated("all_to_all", "direct", "tree", "1MiB", "fluid"), tmp_path, "again.json")
    assert again.threads == trace.threads
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "trace.json").read_bytes()


def test_a_copy_within_a_rank_has_no_arrow(tmp_path: Path) -> None:
    builder = collsim.ScheduleBuilder(collsim.Collective("all_gather", 2), chunks=2, scratch=1)
    builder.copy([0, 1], [1, 0], [0, 1])
    builder.copy(0, 0, 0, dst_buffer="scratch", step=1)
    topology = collsim.topology.ring(2, bandwidth="50GB/s")
    trace = traced(collsim.simulate(builder.build(), topology, 1000, check=False), tmp_path)
    assert [event["name"] for event in kind(trace, "copy")] == ["copy chunk 0"]
    assert len(trace.flows) == 2


def test_counters_integrate_to_the_busy_time(tmp_path: Path) -> None:
    for network in ("cut_through", "fluid"):
        result = simulated("all_to_all", "direct", "tree", "1MiB", network)
        trace = traced(result, tmp_path)
        assert {pid for pid, _ in trace.counters} == {pid for pid, name in trace.processes.items() if name == "links"}
        busy = dict(enumerate(result.link_busy_ps.tolist()))
        used = {f"utilisation of {result.topology.link_name(link)} %": ps for link, ps in busy.items() if ps}
        assert {name for _, name in trace.counters} == set(used)
        for (_, name), points in trace.counters.items():
            area = sum(value * (later - at) for (at, value), (later, _) in pairwise(points))
            assert float(area) / 100 * 1000 == pytest.approx(used[name], rel=2e-3)
            assert all(0 <= value <= 100 for _, value in points)
            assert points[-1][1] == 0


def test_no_link_is_more_than_full(tmp_path: Path) -> None:
    # three chunks and one share a link for half of the time, then the three have it alone: spread evenly that would be
    # 3/4 of the rate all the time, and 5/4 while there are both
    builder = collsim.ScheduleBuilder(collsim.Collective("gather", 3, 2), chunks=12)
    builder.copy(0, 2, 0, count=3)
    builder.copy(1, 2, 4)
    topology = collsim.topology.switch(3, bandwidth="1GB/s", latency=0)
    result = collsim.simulate(builder.build(), topology, 12_000, network="fluid", check=False)
    assert result.time_ps == 4_000_000
    trace = traced(result, tmp_path)
    values = next(points for (_, name), points in trace.counters.items() if "sw" in name.split("->")[0])
    assert values == [(0, 100), (4000, 0)]


def test_switches_that_take_part_are_processes(tmp_path: Path) -> None:
    builder = collsim.ScheduleBuilder(collsim.Collective("broadcast", 3), chunks=1, scratch=1, places=("sw0",))
    builder.copy(0, 3, 0, dst_buffer="scratch")
    builder.copy(3, [1, 2], 0, src_buffer="scratch", step=1)
    topology = collsim.topology.switch(3, bandwidth="50GB/s", multicasts=True)
    trace = traced(collsim.simulate(builder.build(), topology, 1000, check=False), tmp_path)
    assert [trace.processes[pid] for pid in sorted(trace.processes)][3:] == ["switch sw0", "links"]
    for number in (0, 1):  # to both ranks at once
        assert len(trace.on("switch sw0", f"channel 0 send, lane {number}")) == 1
    assert len(trace.on("switch sw0", "channel 0 receive")) == 1


def test_one_rank_has_nothing_to_show(tmp_path: Path) -> None:
    topology = collsim.topology.switch(1, bandwidth="50GB/s")
    trace = traced(collsim.run("all_reduce", topology, 100, algorithm="ring"), tmp_path)
    assert trace.slices == []
    assert trace.processes == {1: "rank 0: gpu0"}


def test_packed_by_suffix_and_the_same_every_time(tmp_path: Path) -> None:
    result = simulated("all_reduce", "ring", "ring", "1MiB")
    for name in ("a.json", "a.json.gz", "b.json.gz"):
        write_perfetto(result, tmp_path / name)
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == (tmp_path / "a.json").read_bytes()
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.json.gz", "b.json.gz"]


def test_names_with_markup_stay_text(tmp_path: Path) -> None:
    names = ['</script><script>"', "b\\\n", "Zürich", "<chunk>"]
    graph = networkx.DiGraph()
    for name in names:
        graph.add_node(name)
    for a, b in zip(names, [*names[1:], names[0]], strict=True):
        graph.add_edge(a, b, bandwidth=50e9, latency=1e-6)
    topology = collsim.Topology.from_networkx(graph, ranks=names)
    trace = traced(collsim.run("all_gather", topology, 4096, algorithm="ring"), tmp_path)
    assert [trace.processes[pid] for pid in range(1, 5)] == [f"rank {rank}: {name}" for rank, name in enumerate(names)]
    assert {name for _, name in trace.counters} == {
        f"utilisation of {a}->{b} %" for a, b in zip(names, [*names[1:], names[0]], strict=True)
    }


def test_without_records_it_says_how_to_get_them(tmp_path: Path) -> None:
    topology = collsim.topology.ring(4, bandwidth="50GB/s")
    result = collsim.run("all_reduce", topology, "1MiB", algorithm="ring", engine="compiled", records=False)
    with pytest.raises(CollsimError, match=r"^records: none were kept of 24 transfers; .*records=True$"):
        result.to_perfetto(tmp_path / "trace.json")
    assert not list(tmp_path.iterdir())


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    result = simulated("all_gather", "ring", "ring", 100)
    with pytest.raises(InputError, match=r"expected a name that ends in \.json or \.json\.gz"):
        result.to_perfetto(tmp_path / "trace.html")
    with pytest.raises(InputError, match="no such directory; make it first"):
        result.to_perfetto(tmp_path / "none" / "trace.json")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(InputError, match="expected a file, got a directory"):
        result.to_perfetto(tmp_path / "folder.json")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_full_disk_leaves_the_old_file(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = simulated("all_gather", "ring", "ring", 100)
    target = tmp_path / f"trace{suffix}"
    target.write_bytes(b"old")
    (tmp_path / f".trace{suffix}.{os.getpid()}.part").symlink_to("/dev/full")
    with pytest.raises(InputError, match=rf"trace: .*trace{suffix}: cannot be written: No space left"):
        result.to_perfetto(target)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_an_interrupt_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Iterator[bytes]:
        yield b',\n{"half'
        raise KeyboardInterrupt

    monkeypatch.setattr("collsim.traces.perfetto.in_order", interrupted)
    with pytest.raises(KeyboardInterrupt):
        simulated("all_gather", "ring", "ring", 100).to_perfetto(tmp_path / "trace.json")
    assert not list(tmp_path.iterdir())


def test_many_events_are_written_in_batches(tmp_path: Path) -> None:
    topology = collsim.topology.switch(72, bandwidth="50GB/s", latency="500ns")
    result = collsim.run("all_reduce", topology, "10MB", algorithm="ring", records=True)
    assert result.transfers * 4 > 2 * BATCH
    result.to_perfetto(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == 4 * result.transfers
    times = [event["ts"] for event in events if event["ph"] != "M"]
    assert times == sorted(times)


def test_the_command_writes_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["run", "ring8", "all_reduce", "-b", "1K", "-e", "4K", "--trace", str(tmp_path / "run.json.gz")]
    assert main(call) == 0
    assert "run.json.gz (the largest size; open it at https://ui.perfetto.dev)" in capsys.readouterr().out
    trace = check_trace(tmp_path / "run.json.gz")
    assert trace.head["otherData"]["size"] == 4096
    assert main([*call, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trace"] == str(tmp_path / "run.json.gz")
    assert main([*call[:-1], str(tmp_path / "no" / "run.json")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("collsim: error: trace: ")
    assert error.endswith("no such directory; make it first\n")


def test_a_run_without_a_trace_does_not_load_them() -> None:
    code = "import sys, collsim.cli; collsim.cli.main(['run', 'ring8', 'all_gather', '-b', '1K', '-e', '1K'])"
    probe = f"{code}; sys.exit(any(name.startswith('collsim.traces') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", probe], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    if missing():
        pytest.skip(missing())
    with trace_processor() as ask:
        yield ask


COUNTS = """select (select count(*) from slice), (select count(*) from flow), (select max(depth) from slice),
    (select sum(ts) from slice), (select sum(dur) from slice)"""
TROUBLE = "select name, value from stats where severity in ('error', 'data_loss') and value != 0"
TRACKS = """select p.name, t.name, s.name, s.ts, s.dur from slice s join thread_track on s.track_id = thread_track.id
    join thread t using (utid) join process p using (upid) order by s.ts, p.name, t.name, s.name"""
ARROWS = """select extract_arg(a.arg_set_id, 'args.transfer'), extract_arg(b.arg_set_id, 'args.transfer'),
    a.category, b.category from flow join slice a on slice_out = a.id join slice b on slice_in = b.id"""
VALUES = "select distinct t.name from counter c join process_counter_track t on c.track_id = t.id order by 1"


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("case", RUNS, ids=str)
def test_perfetto_reads_what_was_written(case: Any, network: str, ask: Ask, tmp_path: Path) -> None:
    trace = traced(simulated(*case, network), tmp_path, "trace.json.gz")
    counts, trouble, tracks, arrows, values = ask(
        tmp_path / "trace.json.gz", COUNTS, TROUBLE, TRACKS, ARROWS, VALUES
    )  # fmt: skip
    assert trouble == []
    total = sum(event["ts"] for event in trace.slices), sum(event["dur"] for event in trace.slices)
    assert counts == [(len(trace.slices), len(trace.flows), 0, *total)]
    meant = [(trace.processes[s["pid"]], trace.threads[s["pid"], s["tid"]], s["name"], s["ts"], s["dur"])
             for s in trace.slices]  # fmt: skip
    assert tracks == sorted(meant, key=lambda row: (row[3], *row[:3]))
    assert all(row == (row[0], row[0], "send", "receive") for row in arrows)
    assert sorted(row[0] for row in arrows) == sorted(out["args"]["transfer"] for out, _ in trace.flows)
    assert [name for (name,) in values] == sorted({name for _, name in trace.counters})
