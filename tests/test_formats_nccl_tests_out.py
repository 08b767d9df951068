"""Results as nccl-tests prints them: against a real log, and by what its readers assume."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import collsim
from collsim.collective import OPERATIONS, Collective
from collsim.errors import InputError
from collsim.formats.nccl_tests_out import (
    PROGRAMS,
    Device,
    Half,
    Line,
    Setup,
    count_of,
    devices,
    format_foot,
    format_head,
    format_line,
    format_nccl_tests,
    format_time,
    line_of,
    rounded_size,
    write_nccl_tests,
)
from tests.nccl_tests_readers import read_by_headings, read_by_pattern, read_by_words, read_devices

SAMPLE = Path(__file__).parents[2] / "shared" / "samples" / "nccl_tests_2xA100.log"
RING = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")


def result_of(operation, size="64KiB", topology=RING, dtype="float", **more):
    algorithm = collsim.algorithms.available()[operation][0]
    return collsim.run(operation, topology, size, algorithm=algorithm, dtype=dtype, **more)


def parsed(row):
    """A row of a log as numbers."""
    words = row.split()
    halves = [
        Half(*map(float, words[at : at + 3]), None if words[at + 3] == "N/A" else int(words[at + 3])) for at in (5, 9)
    ]
    return Line(int(words[0]), int(words[1]), words[2], words[3], int(words[4]), *halves)


@pytest.mark.skipif(not SAMPLE.exists(), reason="the sample is not here")
def test_a_real_log_comes_out_of_its_own_numbers_byte_for_byte():
    lines = [line.removeprefix("    ") for line in SAMPLE.read_text().split("\n")]
    rows = [line for line in lines if re.match(r"\d+ +\d+ +float", line)]  # their first blanks went with the margin
    assert len(rows) == 3
    numbers = [parsed(row) for row in rows]
    assert [format_line(line) for line in numbers] == ["   " + row for row in rows]

    head = format_head(Setup(128 << 20, 512 << 20, 2), [Device(0, "node0", 0, "A"), Device(1, "node0", 1, "B")])
    start, *_, blank, places, names, units = head.splitlines()
    assert start.replace("warmup iters: 0 iters: 1 ", "warmup iters: 5 iters: 20 ") in lines
    at = lines.index(places)
    assert lines[at - 1 : at + 3] == [blank, places, names, units]

    foot = format_foot(numbers).splitlines()
    at = lines.index(foot[0])
    assert lines[at : at + 4] == foot
    assert foot[1] == "# Avg bus bandwidth    : 179.465 "  # with the blank


@pytest.mark.parametrize(
    "row",
    [
        # NVIDIA/nccl-tests, issue 214 (sendrecv_perf: nothing is checked in place) and issue 182
        "         256            64     float     sum      -1    34.24    0.01    0.01      0 "
        "   33.65    0.01    0.01    N/A",
        "         128            32     float     sum      -1    47.76    0.00    0.00      0 "
        "   48.64    0.00    0.00      0",
        # sizes that are rounded down to nothing
        "           0             0     float    none      -1     0.27    0.00    0.00      0 "
        "    0.18    0.00    0.00      0",
    ],
)  # fmt: skip
def test_public_rows_come_out_of_their_own_numbers(row):
    assert format_line(parsed(row)) == row


def test_times_have_as_many_decimals_as_their_size_asks_for():
    # %7.2f, from 100 on %7.1f, from 10000 on %7.0f; the borders are those of the number, not of its text
    times = {0: "   0.00", 99.99: "  99.99", 99.999: " 100.00", 100: "  100.0", 9999.9: " 9999.9", 9999.99: "10000.0"}
    times |= {10_000: "  10000", 332863.2: " 332863", 12345678: "12345678"}
    assert {us: format_time(us) for us in times} == times


def test_wrong_elements_are_printed_as_nccl_tests_prints_its_doubles():
    rows = [
        format_line(Line(8, 2, "float", "sum", -1, Half(1, 1, 1, wrong), Half(1, 1, 1, None)))
        for wrong in (0, 7, 123456, 1234567)
    ]
    assert [row.split()[8] for row in rows] == ["0", "7", "123456", "1.23457e+06"]
    assert all(row.endswith("   1.00    1.00    1.00    N/A") for row in rows)


numbers = st.floats(0, 1e9, allow_subnormal=False)
halves = st.builds(Half, numbers, numbers, numbers, st.none() | st.integers(0, 10**12))


@given(
    st.integers(0, 2**50), st.integers(0, 2**50), st.sampled_from(["int8", "bfloat16"]), st.integers(-1, 9999),
    halves, halves,
)  # fmt: skip
def test_any_row_is_thirteen_words_that_read_back(size, count, dtype, root, out, into):
    line = Line(size, count, dtype, "none", root, out, into)
    words = format_line(line).split()
    assert words[:5] == [str(size), str(count), dtype, "none", str(root)]
    for half, found in ((out, words[5:9]), (into, words[9:])):
        assert float(found[0]) == pytest.approx(half.time, rel=5.1e-4, abs=0.005)
        assert [float(word) for word in found[1:3]] == pytest.approx([half.algbw, half.busbw], abs=0.00501)
        assert found[3] == ("N/A" if half.wrong is None else f"{half.wrong:g}")
    assert len(words) == 13


def test_every_operation_but_a_barrier_has_a_program():
    assert set(PROGRAMS) == set(OPERATIONS) - {"barrier"}
    with pytest.raises(InputError, match=r"barrier: nccl-tests has no such test; it has all_reduce, "):
        format_nccl_tests([result_of("barrier")])


@pytest.mark.parametrize(
    ("operation", "count", "redop", "root", "wrong"),
    [
        ("all_reduce", 16384, "sum", "-1", "0"),
        ("reduce_scatter", 4096, "sum", "-1", "0"),
        ("all_gather", 4096, "none", "-1", "0"),
        ("broadcast", 16384, "none", "0", "0"),
        ("reduce", 16384, "sum", "0", "0"),
        ("all_to_all", 4096, "none", "-1", "N/A"),
        ("gather", 4096, "none", "0", "0"),
        ("scatter", 4096, "none", "0", "0"),
        ("send_recv", 16384, "sum", "-1", "N/A"),
    ],
)
def test_operations_are_counted_and_named_as_nccl_tests_does(operation, count, redop, root, wrong):
    result = result_of(operation)
    (row,) = (line for line in format_nccl_tests([result]).splitlines() if not line.startswith("#") and line)
    words = row.split()
    assert words[:5] == ["65536", str(count), "float", redop, root]
    assert words[5:8] == words[9:12]
    assert (words[8], words[12]) == ("0", wrong)
    assert float(words[5]) == pytest.approx(result.time * 1e6, abs=0.005)
    assert float(words[7]) == pytest.approx(result.busbw / 1e9, abs=0.005)


def test_a_root_is_the_root():
    result = collsim.run("broadcast", RING, "64KiB", algorithm="ring", root=3)
    assert line_of(result).root == 3


def test_sizes_are_rounded_as_nccl_tests_rounds_them():
    gather = Collective("all_gather", 8)
    # elements of 4 bytes; 16 bytes a rank are the least
    assert [rounded_size(size, gather, 4) for size in (8, 127, 128, 255, 256, 1 << 33)] == [
        0,
        0,
        128,
        128,
        256,
        1 << 33,
    ]
    three = Collective("all_to_all", 3)
    assert [rounded_size(size, three, width) for size, width in ((100, 1), (100, 8), (144, 2))] == [96, 96, 144]
    assert rounded_size(11, Collective("send_recv", 8), 8) == 8


def test_what_is_rounded_to_nothing_takes_no_time():
    line = line_of(result_of("all_gather", 0), wrong=0)
    assert (line.size, line.count) == (0, 0)
    assert line.out_of_place == line.in_place == Half(0.0, 0.0, 0.0, 0)
    assert line_of(result_of("all_gather", 64)).out_of_place.time > 0


def test_validation_says_whether_anything_was_checked():
    checked, unchecked = result_of("all_reduce"), result_of("all_reduce", check=False)
    text = format_nccl_tests([checked])
    assert " validation: 1 graph: 0\n" in text
    text = format_nccl_tests([unchecked])
    assert " validation: 0 graph: 0\n" in text
    assert re.search(r" N/A +\S+ +\S+ +\S+ +N/A\n# Out of bounds values : 0 OK\n", text)


def test_failed_halves_are_counted_not_elements():
    both, one = result_of("all_reduce"), result_of("all_to_all")
    assert "\n# Out of bounds values : 4 FAILED\n" in format_nccl_tests([both, both, both], wrong=[1000, 0, 3])
    assert "\n# Out of bounds values : 1 FAILED\n" in format_nccl_tests([one, one], wrong=[5, 0])


def test_steps_lead_through_the_sizes():
    def head(*sizes):
        return format_nccl_tests([result_of("all_reduce", size) for size in sizes]).splitlines()[1]

    assert " nGpus 4 minBytes 1024 maxBytes 16384 step: 4(factor) warmup iters: 0 iters: 1 " in head(1024, 4096, 16384)
    assert " minBytes 1024 maxBytes 3072 step: 1024(bytes) " in head(1024, 2048, 3072)[:90]
    assert " minBytes 1024 maxBytes 9216 step: 8192(bytes) " in head(1024, 2048, 9216)
    assert " minBytes 1024 maxBytes 1024 step: 1048576(bytes) " in head(1024)


def test_a_comment_says_first_what_was_simulated():
    result = collsim.run("broadcast", RING, "64KiB", algorithm="ring", network="fluid")
    first, second, *_ = format_nccl_tests([result]).splitlines()
    assert first == "# broadcast_perf simulated by collsim: ring on ring, fluid network"
    assert second.startswith("# nThread 1 nGpus 4 minBytes 65536 ")


def test_hosts_are_modules_and_devices_are_counted_in_them():
    found = devices(collsim.load_topology("dgx-h100-x4"))
    assert len(found) == 32
    assert {(d.hostname, d.device) for d in found} == {(f"node{n}", g) for n in range(4) for g in range(8)}
    assert found[13] == Device(13, "node1", 5, "NVIDIA GPU simulated by collsim")
    assert found[13].bus == "0x05"
    # sixteen GPUs on two planes of switches are one machine
    assert {d.hostname for d in devices(collsim.load_topology("dgx-2"))} == {"dgx-2"}
    assert {d.info for d in devices(collsim.load_topology("mi300x"))} == {"GPU simulated by collsim"}


def test_hosts_have_names_that_readers_take():
    import networkx as nx

    graph = nx.DiGraph(name="two machines")
    names = ["a b.gpu0", "a b.gpu1", "a-b.gpu0", "pod[1].node[2].gpu", "gpu"]
    for name, after in zip(names, names[1:] + names[:1], strict=True):
        graph.add_node(name, kind="gpu")
        graph.add_edge(name, after, bandwidth=1e9, latency=1e-6)
    topology = collsim.Topology.from_networkx(graph, ranks=names, name="my résumé [x] ")
    hosts = [d.hostname for d in devices(topology)]
    assert hosts == ["a-b", "a-b", "a-b-1", "pod1.node2", "my-r-sum-x"]
    text = format_nccl_tests([result_of("all_reduce", topology=topology)])
    assert " nGpus 1 " in text.splitlines()[1]  # not equally many: a process for each
    assert read_devices(text)[:2] == (5, 2)


def test_programs_that_read_logs_find_our_numbers():
    topology = collsim.load_topology("dgx-h100-x4")
    sizes = [8 << (3 * k) for k in range(11)]
    assert sizes[-1] == 8 << 30
    results = [collsim.run("all_reduce", topology, size, algorithm="ring", dtype="float") for size in sizes]
    text = format_nccl_tests(results)
    ours = [(r.size, r.time * 1e6, r.algbw / 1e9, r.busbw / 1e9) for r in results]
    rows, mean = read_by_pattern(text)
    assert mean == pytest.approx(sum(row[3] for row in ours) / len(ours), rel=1e-5)
    for found in (rows, *(read(text, into) for read in (read_by_headings, read_by_words) for into in (False, True))):
        assert len(found) == len(ours)
        for row, own in zip(found, ours, strict=True):
            assert row[0] == own[0]
            assert row[1] == pytest.approx(own[1], rel=5e-4, abs=0.005)
            assert row[2:] == pytest.approx(own[2:], abs=0.00501)
    assert read_devices(text) == (32, 8, "GPU simulated by collsim")
    # grep and awk, as in FlagOpen/FlagPerf: the last word of the line is the mean
    (line,) = (line for line in text.splitlines() if line.startswith("# Avg bus bandwidth"))
    assert float(line.split()[-1]) == mean


@pytest.mark.parametrize(
    ("results", "more", "message"),
    [
        ([], {}, "results: expected at least one, got none"),
        (["all_reduce", "all_gather"], {}, "results: expected those of one operation, root and element size"),
        (["all_reduce"], {"dtype": "flaot"}, "dtype: expected one of int8.*did you mean 'float'"),
        (["all_reduce"], {"dtype": "half"}, "dtype: expected a type of 4 bytes, as in the results, got half"),
        (["all_reduce"], {"wrong": [0, 0]}, "wrong: expected 1 numbers, one a result, got 2"),
    ],
)
def test_results_that_make_no_log_are_refused(tmp_path, results, more, message):
    made = [result_of(operation) for operation in results]
    with pytest.raises(InputError, match=message):
        format_nccl_tests(made, **more)
    with pytest.raises(InputError, match=message):
        write_nccl_tests(made, tmp_path / "out.json", **more)
    assert not list(tmp_path.iterdir())


def test_results_of_two_machines_are_refused():
    other = collsim.topology.ring(4, bandwidth="50GB/s", latency="2us")
    with pytest.raises(InputError, match="expected those of one topology"):
        format_nccl_tests([result_of("all_reduce"), result_of("all_reduce", topology=other)])
    same = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")
    assert format_nccl_tests([result_of("all_reduce"), result_of("all_reduce", topology=same)])


def test_the_json_has_the_keys_and_types_of_nccl_tests(tmp_path):
    path = tmp_path / "result"  # any name will do
    results = [result_of("reduce", size, dtype="half") for size in ("1KiB", "4KiB")]
    write_nccl_tests(results, path, wrong=[0, 3], started=datetime(2026, 1, 2, 3, 4, 5))
    document = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert list(document) == [
        "version", "start_time", "args", "env", "nccl_version", "config", "results", "out_of_bounds",
        "average_bus_bandwidth", "errors", "end_time",
    ]  # fmt: skip
    assert document["start_time"] == "2026-01-02 03:04:05"
    assert datetime.strptime(document["end_time"], "%Y-%m-%d %H:%M:%S")
    call = "reduce_perf -b 1024 -e 4096 -f 4 -g 4 -d half -r 0 -n 1 -w 0 -c 1"
    assert document["args"] == call.split()
    assert document["env"] == []
    config = document["config"]
    assert config.pop("devices")[2] == {
        "rank": 2, "group": 0, "pid": 0, "hostname": "ring", "device": 2, "device_hex": "0x02",
        "device_info": "NVIDIA GPU simulated by collsim",
    }  # fmt: skip
    assert config == {
        "nthreads": 1, "ngpus": 4, "minimum_bytes": 1024, "maximum_bytes": 4096, "step_factor": 4, "warmup_iters": 0,
        "iterations": 1, "aggregated_iterations": 1, "validation": 1, "graph": 0, "blocking_collectives": "false",
        "parallel_init": "false",
    }  # fmt: skip
    first, second = document["results"]
    assert {key: first[key] for key in ("size", "count", "type", "redop", "root")} == {
        "size": 1024, "count": 512, "type": "half", "redop": "sum", "root": "     0",
    }  # fmt: skip
    assert first["out_of_place"] == first["in_place"]
    assert list(first["in_place"]) == ["time", "alg_bw", "bus_bw", "nwrong"]
    assert first["in_place"]["time"] == pytest.approx(results[0].time * 1e6, abs=1e-6)
    assert first["in_place"]["bus_bw"] == pytest.approx(results[0].busbw / 1e9, abs=1e-6)
    assert (first["in_place"]["nwrong"], second["in_place"]["nwrong"]) == (0.0, 3.0)
    assert (first["actual_iterations"], first["experiment_name"][:8]) == (1, "reduce_p")
    assert document["out_of_bounds"] == {"count": 2, "okay": "false"}
    mean = (results[0].busbw + results[1].busbw) / 2e9
    assert document["average_bus_bandwidth"] == {"bandwidth": pytest.approx(mean, abs=1e-6), "okay": "unchecked"}


def test_the_json_says_null_where_nothing_was_counted(tmp_path):
    write_nccl_tests([result_of("all_to_all")], tmp_path / "a.json", setup=Setup(8, 100, 5, False, False))
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["results"][0]["out_of_place"]["nwrong"] == 0
    assert document["results"][0]["in_place"]["nwrong"] is None
    assert document["results"][0]["root"] == "    -1"
    assert document["config"]["step_bytes"] == 5
    assert document["args"][:7] == ["alltoall_perf", "-b", "8", "-e", "100", "-i", "5"]
    assert "-r" not in document["args"]
    assert document["out_of_bounds"] == {"count": 0, "okay": "true"}


def test_count_of_a_size_that_ranks_do_not_divide():
    assert count_of(result_of("all_gather", 100)) == 6
