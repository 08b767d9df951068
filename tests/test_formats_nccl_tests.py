"""Measured times out of what nccl-tests and rccl-tests print and write."""

from __future__ import annotations

import json
import math
import os
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collsim.collective import OPERATIONS, Collective
from collsim.errors import InputError
from collsim.formats import read_nccl_tests
from collsim.formats.nccl_tests import Device, NcclTests
from collsim.formats.nccl_tests import model as model_module
from collsim.formats.nccl_tests.text import read_text

SAMPLES = Path(__file__).parents[2] / "shared" / "samples"

BESIDE = "     time   algbw   busbw #wrong"
TITLES = f"#       size         count      type   redop    root{BESIDE}{BESIDE}"
UNITS = "#        (B)    (elements)                               " + "(us)  (GB/s)  (GB/s)            " * 2
PLACES = "#" + " " * 62 + "out-of-place                       in-place          "
SETTINGS = (
    "# nThread 1 nGpus 4 minBytes 1024 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 "
    "validation: 1 graph: 0"
)


def devices(ranks: int = 4) -> list[str]:
    return ["# Using devices"] + [
        f"#  Rank {rank:2d} Group  0 Pid {700 + rank:6d} on    gpu-a device {rank:2d} [0000:0{rank}:00] Some GPU 80GB"
        for rank in range(ranks)
    ]


def row(
    size: int, us: float = 100.0, ranks: int = 4, operation: str = "all_reduce", redop: str = "sum", root: int = -1,
    wrong: str = "0",
) -> str:  # fmt: skip
    """Return a row as nccl-tests prints it: in place everything takes a tenth less."""
    collective = Collective(operation, ranks, max(root, 0))
    count = size // 4 // (ranks if collective.is_blocked else 1)
    text = f"{size:12d}  {count:12d}  {'float':>8s}  {redop:>6s}  {root:6d}"
    for t in (us, us * 0.9):
        algbw = size / t / 1e3
        text += f"  {t:7.2f}  {algbw:6.2f}  {algbw * collective.busbw_factor:6.2f}  {wrong:>5s}"
    return text


ROWS = [row(1 << 10, 12.5), row(1 << 20, 40.0), row(1 << 30, 9000.0)]
LOG = "\n".join(
    [
        "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807",
        "# Collective test starting: all_reduce_perf",
        SETTINGS,
        "#",
        *devices(),
        "NCCL version 2.28.7+cuda12.9",
        "#",
        PLACES,
        TITLES,
        UNITS,
        *ROWS,
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 123.456 ",
        "#",
        "# Collective test concluded: all_reduce_perf",
        "",
    ]
)
NOISE = "gpu-a:700:811 [3] NCCL INFO Channel 00/24 :    0   1   2   3"


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], NcclTests]:
    def reads(text: str) -> NcclTests:
        path = tmp_path / "x.log"
        path.write_text(text)
        return read_nccl_tests(path)

    return reads


def sizes(log: NcclTests) -> list[int]:
    return [int(size) for size in log.columns["size"]]


# -- the whole -------------------------------------------------------------------------------------------------------


def test_all_that_a_log_says(read: Callable[[str], NcclTests]) -> None:
    log = read(LOG)
    assert (log.operation, log.ranks, log.skipped, len(log)) == ("all_reduce", 4, 0, 3)
    assert (log.average_busbw, log.out_of_bounds) == (123.456e9, 0)
    assert log.devices[2] == Device(2, 0, 702, "gpu-a", 2, "0000:02:00", "Some GPU 80GB")
    assert [device.rank for device in log.devices] == [0, 1, 2, 3]
    assert log.header == {
        "nthreads": 1, "ngpus": 4, "minimum_bytes": 1024, "maximum_bytes": 1 << 30, "step_factor": 2, "warmup_iters": 5,
        "iterations": 20, "aggregated_iterations": 1, "validation": 1, "graph": 0,
    }  # fmt: skip
    assert log.versions == {
        "nccl-tests": "2.17.6", "nccl-headers": "22807", "nccl-library": "22807", "nccl": "2.28.7+cuda12.9",
    }  # fmt: skip
    (table,) = log.tables
    assert table.program == "all_reduce_perf"
    columns = log.columns
    assert columns["size"].tolist() == [1 << 10, 1 << 20, 1 << 30]
    assert columns["count"].tolist() == [1 << 8, 1 << 18, 1 << 28]
    assert columns["type"].tolist() == ["float"] * 3
    assert columns["redop"].tolist() == ["sum"] * 3
    assert columns["root"].tolist() == [-1] * 3
    assert columns["time"].tolist() == [12.5e-6, 40e-6, 9e-3], "seconds, to the last bit"
    assert columns["time_in_place"].tolist() == [11.25e-6, 36e-6, 8.1e-3]
    assert columns["algbw"].tolist() == [0.08e9, 26.21e9, 119.30e9]
    assert columns["busbw"].tolist() == [0.12e9, 39.32e9, 178.96e9]
    assert columns["wrong"].tolist() == columns["wrong_in_place"].tolist() == [0] * 3
    assert [LOG.splitlines()[line - 1] for line in columns["line"]] == ROWS
    assert columns["table"].tolist() == [0] * 3
    assert repr(log).endswith("<Table 0 of all_reduce on 4 ranks: 3 rows>>")


def test_a_frame_and_the_devices(read: Callable[[str], NcclTests]) -> None:
    pytest.importorskip("pandas")
    frame, found = read(LOG)
    assert list(frame.columns[:5]) == ["size", "count", "type", "redop", "root"]
    assert len(frame) == 3
    assert frame["busbw"].max() == 178.96e9
    assert len(found) == 4


def test_the_sample_of_two_a100() -> None:
    path = SAMPLES / "nccl_tests_2xA100.log"
    if not path.exists():
        pytest.skip("the sample is not there")
    log = read_nccl_tests(path)  # indented, in a quote, NCCL's lines between
    assert (log.operation, log.ranks, log.skipped) == ("all_reduce", 2, 0)
    assert sizes(log) == [1 << 27, 1 << 28, 1 << 29]
    assert log.columns["time"].tolist() == [857.6e-6, 1445.2e-6, 2789.9e-6]
    assert log.columns["busbw_in_place"].tolist() == [163.76e9, 186.17e9, 192.18e9]
    assert (log.average_busbw, log.out_of_bounds) == (179.465e9, 0)
    assert [device.bus_id for device in log.devices] == ["0xa4", "0xa9"]
    assert log.devices[1].name == "NVIDIA A100-SXM4-80GB"
    assert log.header["iterations"] == 20
    assert log.versions == {"nccl": "2.20.5+cuda12.4"}
    # the rounded bandwidths agree with the times, so the size is the whole message
    np.testing.assert_allclose(log.columns["size"] / log.columns["time"], log.columns["algbw"], rtol=1e-4)


# -- versions of the table -------------------------------------------------------------------------------------------


def test_columns_of_old_versions(read: Callable[[str], NcclTests]) -> None:
    log = read(
        "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n"
        "     1048576        262144   float     sum    30.50   34.38   51.57  3e-07    30.10   34.84   52.26  1e-02*\n"
    )
    assert log.columns["wrong"].tolist() == [3e-7]
    assert log.columns["wrong_in_place"].tolist() == [1e-2]
    assert log.columns["root"].tolist() == [-1]
    log = read(  # all_gather left the column redop empty, or had none
        "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n"
        "     1048576         16384   float            30.50   34.38   32.23  0e+00    30.10   34.84   32.66    N/A\n"
    )
    assert log.columns["redop"].tolist() == [""]
    assert log.columns["busbw"].tolist() == [32.23e9]
    assert math.isnan(log.columns["wrong_in_place"][0])
    assert (log.ranks, log.operation) == (16, None), "all_gather or all_to_all"
    log = read(
        "#       size         count    type    root     time   algbw   busbw  error     time   algbw   busbw  error\n"
        "    40046416      40046416    int8       3   1268.1   31.58   31.58  0e+00   1279.3   31.30   31.30  0e+00\n"
    )
    assert (log.columns["root"].tolist(), log.operation) == ([3], "broadcast")


def test_columns_of_new_versions(read: Callable[[str], NcclTests]) -> None:
    log = read(
        "#       size         count      type   redop    root"
        + "     time   algbw   busbw  #wrong  #bitdiff    i_min    i_max    i_p99    i_cv%" * 2
        + "          timestamp\n"
        "     1048576        262144     float     sum      -1  1.2e+07  9e-05   26.21       3         0    30.0    50.0"
        "     49.0     1.00    36.00   29.13   43.69     N/A         0     30.0     50.0     49.0     2.00"
        "  2026-01-01 00:00:01\n"
    )
    assert log.columns["time"].tolist() == [12.0]
    assert log.columns["algbw"].tolist() == [pytest.approx(9e4)]
    assert log.columns["wrong"].tolist() == [3]
    assert log.columns["time_in_place"].tolist() == [36e-6]
    assert math.isnan(log.columns["wrong_in_place"][0])


def test_the_text_of_rccl_tests(read: Callable[[str], NcclTests]) -> None:
    log = read(
        f"{SETTINGS}\n#\nrccl-tests: Version develop:6405c76\n# Using devices\n"
        "#   Rank  0 Pid 135125 on mi300x device  0 [0000:05:00.0] AMD Instinct MI300X\n"
        "#   Rank  1 Pid 135126 on mi300x device  1 [0000:15:00.0] AMD Instinct MI300X\n"
        "RCCL version : 2.27.7-develop:29e1567\nHIP version  : 7.0.51831-a3e329ad8\nROCm version : 7.0.1.0-42\n"
        f"{PLACES}\n{TITLES}     algo     proto   nchannels\n{UNITS}\n{row(1 << 20)}  Direct    SIMPLE          32\n"
    )
    assert len(log) == 1
    assert log.devices[1] == Device(1, 0, 135126, "mi300x", 1, "0000:15:00.0", "AMD Instinct MI300X")
    assert log.versions["rccl-tests"] == "develop:6405c76"
    assert log.versions["rccl"] == "2.27.7-develop:29e1567"
    assert log.versions["rocm"] == "7.0.1.0-42"
    assert "nccl" not in log.versions


def test_only_one_place_is_measured(read: Callable[[str], NcclTests]) -> None:
    one = "     1048576        262144     float     sum      -1    40.00   26.21   39.32      0\n"
    half = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    log = read(f"#                                                 in-place          \n{half}{one}")
    assert math.isnan(log.columns["time"][0])
    assert log.columns["time_in_place"].tolist() == [40e-6]
    log = read(half + one)
    assert log.columns["time"].tolist() == [40e-6]
    assert math.isnan(log.columns["time_in_place"][0])
    # nccl-tests leaves blanks where it does not measure out of place
    log = read(f"{TITLES}\n{one[:50]}{' ' * 32}{one[50:]}")
    assert math.isnan(log.columns["busbw"][0])
    assert log.columns["busbw_in_place"].tolist() == [39.32e9]


def test_times_of_the_cpu(read: Callable[[str], NcclTests]) -> None:
    assert "report_cputime" not in read(LOG).header
    log = read(LOG.replace("    time", " cputime"))
    assert log.header["report_cputime"] == 1
    assert sizes(log) == [1 << 10, 1 << 20, 1 << 30]
    assert read(json.dumps(document())).header["report_cputime"] == 1


def test_names_have_no_control_characters(read: Callable[[str], NcclTests]) -> None:
    log = read(LOG.replace("Some GPU", "Some\x07 \x1bGPU").replace("all_reduce_perf", "\x07all_reduce_perf"))
    assert log.devices[0].name == "Some GPU 80GB"
    assert log.tables[0].program == "all_reduce_perf"
    assert not read(LOG.replace("gpu-a", "gpu\x07a")).devices


def test_fewer_columns(read: Callable[[str], NcclTests]) -> None:
    log = read("# size time algbw busbw\n1024 12.5 0.08 0.12\nsomething else\n  2048  13.5 0.15 0.23\n")
    assert sizes(log) == [1024, 2048]
    assert log.columns["busbw"].tolist() == [0.12e9, 0.23e9]
    assert log.columns["count"].tolist() == [-1, -1]


# -- what stands around it -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,0]<stdout>:",
        "[prterun-gpu-a-4711@1,0]<stdout>: ",
        "gpu-a: ",
        "0: ",
        " 0: ",
        "> ",
        "    ",
        "\x1b[32m",
        "2024-05-01T12:00:{:02d}.123456789Z ",
        "2024-05-01 12:00:{:02d},123 - INFO - ",
        "[2024-05-01 12:00:{:02d}] ",
        "launcher-7xk | ",
        "big-size-node: ",
        "[job all_reduce_perf version 3] ",
    ],
)
def test_prefixes(read: Callable[[str], NcclTests], prefix: str) -> None:
    log = read("".join(f"{prefix.format(i % 60)}{line}\n" for i, line in enumerate(LOG.splitlines())))
    assert sizes(log) == [1 << 10, 1 << 20, 1 << 30]
    assert (log.operation, log.ranks, len(log.devices), log.skipped) == ("all_reduce", 4, 4, 0)
    assert (log.average_busbw, log.out_of_bounds, log.header["iterations"]) == (123.456e9, 0, 20)


@pytest.mark.parametrize("end", ["\r\n", "\n", "\n\n"])
def test_ends_of_lines_marks_and_bytes_that_are_not_utf8(tmp_path: Path, end: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xef\xbb\xbf" + LOG.replace("Some", "\u00e9").replace("\n", end).encode("latin-1"))
    assert sizes(read_nccl_tests(path)) == [1 << 10, 1 << 20, 1 << 30]


def test_lines_of_nccl_between_and_within_rows(read: Callable[[str], NcclTests]) -> None:
    first, second = ROWS[0], ROWS[1]
    middle = first.index("12.50") - 3
    end = first.index("0.12") + 10
    for broken in (
        [first[:middle] + NOISE, NOISE, first[middle:]],  # before the first number: glued to the root
        [first[:end] + "  " + NOISE, NOISE, "", "some text", first[end:]],
        [first[:middle] + "[2024-05-01 12:00:00] " + NOISE, first[middle:end] + NOISE, first[end:]],
        [first[:middle] + "10-0-0-1:7:8 [0] misc/socket.cc:12 NCCL WARN oh".replace("10", " 10", 1), first[middle:]],
        [first + NOISE],
        [NOISE + "  " + first],
    ):
        text = LOG.replace(first, "\n".join(broken))
        log = read(text)
        if broken[0].startswith("gpu-a"):  # no end of line between: the row is behind what NCCL printed
            assert log.skipped == 0
            assert sizes(log) == [1 << 20, 1 << 30]
            continue
        assert sizes(log) == [1 << 10, 1 << 20, 1 << 30]
        assert log.columns["time"].tolist() == [12.5e-6, 40e-6, 9e-3], broken
        assert log.columns["busbw_in_place"].tolist()[0] == 0.14e9
        assert log.columns["line"].tolist()[0] == text[: text.index(first[:middle])].count("\n") + 1
        assert log.skipped == 0
    # no rest comes, or something else is in the midst
    assert read(LOG.replace(first, first[:end] + NOISE)).skipped == 1
    assert read(LOG.replace("39.32", "39.ERROR: lost")).skipped == 1
    log = read(LOG.replace(second, second[:end]).replace("# Out of", "gpu-a: Test failure common.cu:1\n# Out of"))
    assert (sizes(log), log.skipped) == ([1 << 10, 1 << 30], 1)
    log = read(LOG.replace(ROWS[2], ROWS[2][:60]))
    assert (sizes(log), log.skipped) == ([1 << 10, 1 << 20], 1)


def test_processes_without_mpi_print_a_table_each(read: Callable[[str], NcclTests]) -> None:
    alone = LOG.replace("nGpus 4", "nGpus 1").splitlines()
    alone = [line for line in alone if "Rank" not in line or "Rank  0" in line]
    lines = [f"[1,{process}]<stdout>:{line}" for line in alone for process in range(3)]
    log = read("\n".join(lines))
    assert [(table.operation, table.ranks, len(table)) for table in log.tables] == [("all_reduce", 1, 3)] * 3
    assert (log.operation, log.ranks, len(log)) == ("all_reduce", 1, 9)
    # without a prefix nobody can tell them apart: one table in which each size is thrice
    log = read("\n".join(line for line in alone for _ in range(3)))
    assert (len(log.tables), log.ranks, sizes(log)[:3]) == (1, 1, [1 << 10] * 3)


def test_several_tables(read: Callable[[str], NcclTests]) -> None:
    gather = [row(1 << 20, operation="all_gather", redop="none"), row(1 << 21, operation="all_gather", redop="none")]
    other = LOG.replace("all_reduce_perf", "all_gather_perf").replace("123.456", "99")
    other = other.replace(ROWS[0], gather[0]).replace(ROWS[1], gather[1]).replace(ROWS[2] + "\n", "")
    log = read(LOG + "\n$ ./next\n" + other + LOG)
    assert [(table.operation, table.ranks, len(table), table.number) for table in log.tables] == [
        ("all_reduce", 4, 3, 0), ("all_gather", 4, 2, 1), ("all_reduce", 4, 3, 2),
    ]  # fmt: skip
    assert [table.average_busbw for table in log.tables] == [123.456e9, 99e9, 123.456e9]
    assert log.operation is None
    assert log.ranks == 4
    assert log.columns["table"].tolist() == [0] * 3 + [1] * 2 + [2] * 3
    assert len(log.tables_of("all_reduce")) == 2
    assert log.points("all_gather", in_place=True) == [(1 << 20, 8.74e9), (1 << 21, 17.48e9)]
    with pytest.raises(
        InputError, match=r"expected a table of broadcast, got all_reduce \(line 13\), all_gather \(line"
    ):
        log.tables_of("broadcast")


def test_cycles_go_on_in_one_table(read: Callable[[str], NcclTests]) -> None:
    text = LOG.replace("# Out of", "\n".join(["# Testing 2 cycle.", *ROWS, "# Out of"]))
    assert sizes(read(text)) == [1 << 10, 1 << 20, 1 << 30] * 2


# -- which operation, how many ranks ---------------------------------------------------------------------------------


def bare(operation: str, redop: str = "none", root: int = -1, ranks: int = 4, text: str = "", us: float = 40.0) -> str:
    block = 16 * ranks  # to which nccl-tests rounds sizes that blocks are cut of
    body = [row((1 << k) // block * block, us * 2 ** (k - 20), ranks, operation, redop, root) for k in (20, 24, 28)]
    return "\n".join([text, TITLES, *body])


@pytest.mark.parametrize(
    ("operation", "redop", "root"),
    [
        ("all_reduce", "sum", -1),
        ("reduce_scatter", "max", -1),
        ("broadcast", "none", 0),
        ("reduce", "sum", 2),
        ("all_gather", "none", -1),
        ("all_to_all", "none", -1),
        ("gather", "none", 1),
        ("scatter", "none", 1),
        ("send_recv", "sum", -1),
    ],
)
def test_operations_that_the_log_does_not_name(
    read: Callable[[str], NcclTests], operation: str, redop: str, root: int
) -> None:
    for ranks in (3, 4, 8, 16):
        for what in ("", "\n".join(devices(ranks))):
            log = read(bare(operation, redop, root, ranks, what))
            certain = operation in ("all_reduce", "reduce_scatter", "broadcast", "reduce")
            certain = certain or (operation == "send_recv" and what != "")  # it could be an all_reduce of two
            assert log.operation == (operation if certain else None), (ranks, what)
            blocked = Collective(operation, ranks, max(root, 0)).is_blocked
            assert log.ranks == (ranks if what or blocked or operation == "all_reduce" else None)
        program = {"all_to_all": "alltoall", "send_recv": "sendrecv"}.get(operation, operation)
        log = read(bare(operation, redop, root, ranks, f"$ mpirun -np {ranks} ./build/{program}_perf -b 1M -e 256M"))
        assert (log.operation, log.tables[0].program) == (operation, f"{program}_perf")
    # on two ranks an all_reduce is not told from a sendrecv
    if operation in ("all_reduce", "send_recv"):
        assert read(bare(operation, redop, root, 2, "\n".join(devices(2)))).operation is None


def test_command_lines_that_contradict_the_table_are_not_believed(read: Callable[[str], NcclTests]) -> None:
    assert read(bare("all_reduce", "sum", text="$ ./all_gather_perf -g 4")).operation == "all_reduce"
    both = "$ ls\nall_gather_perf alltoall_perf\n"
    assert read(bare("all_gather", text=both)).operation is None
    log = read(bare("all_gather", text="$ ./hypercube_perf"))
    assert (log.operation, log.tables[0].program) == (None, "hypercube_perf")
    with pytest.raises(InputError, match="expected a table of all_gather, got hypercube_perf"):
        log.tables_of("all_gather")


def test_ranks_of_processes_with_several_gpus_and_of_groups(read: Callable[[str], NcclTests]) -> None:
    cut = [line for line in LOG.splitlines() if "Rank  3" not in line]  # long lists of a process are cut
    assert read("\n".join(cut)).ranks == 4
    split = LOG.replace("Rank  1 Group  0", "Rank  1 Group  1").replace("Rank  3 Group  0", "Rank  3 Group  1")
    assert read(split.replace("Collective", "")).ranks == 2


@given(st.sampled_from(OPERATIONS[:9]), st.integers(2, 64), st.floats(1e-3, 1e6))
def test_whatever_is_printed_is_read(operation: str, ranks: int, us: float) -> None:
    root = 0 if operation in ("broadcast", "reduce", "gather", "scatter") else -1
    redop = "sum" if operation in ("all_reduce", "reduce_scatter", "reduce", "send_recv") else "none"
    size = ranks * 4096
    line = row(size, us, ranks, operation, redop, root)
    log = read_text(enumerate([TITLES, line], start=1), "x").finish()
    assert sizes(log) == [size]
    assert log.columns["time"][0] == pytest.approx(us * 1e-6, rel=1e-2, abs=5.1e-9)
    assert log.ranks in (ranks, None)
    assert log.operation in (operation, None)


# -- JSON and CSV ----------------------------------------------------------------------------------------------------


def document(**changes: Any) -> dict[str, Any]:
    place = {"time": 40.5, "alg_bw": 25.890765, "bus_bw": 38.836148, "nwrong": 0.0}
    return {
        "version": 3,
        "start_time": "2026-01-01 00:00:00",
        "args": ["./build/all_reduce_perf", "-J", "out.json"],
        "env": ["HOME=/root"],
        "nccl_version": 22807,
        "config": {
            "nthreads": 1, "ngpus": 2, "minimum_bytes": 8, "maximum_bytes": 1 << 20, "step_factor": 2, "iterations": 20,
            "blocking_collectives": "false",
            "devices": [
                {"rank": rank, "group": 0, "pid": 7, "hostname": "a", "device": rank, "device_hex": "0000:01:00",
                 "device_info": "GPU"}
                for rank in (0, 2)  # the first of each process
            ],
        },
        "results": [
            {"size": 1 << 20, "count": 1 << 18, "type": "float", "redop": "sum", "root": "    -1",
             "out_of_place": place, "in_place": {**place, "time": "nan", "nwrong": None},
             "out_of_place_per_iter": {"times_us": [1.0]}, "actual_iterations": 20, "experiment_name": "AllReduce"},
            {"size": 2 << 20, "count": 2 << 18, "type": "float", "redop": "sum", "root": "    -1",
             "out_of_place": None, "in_place": {"cpu_time": 80, "alg_bw": 26, "bus_bw": 39, "nwrong": 2}},
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 38.836148, "okay": "unchecked"},
        "errors": [],
        **changes,
    }  # fmt: skip


def test_the_json_of_nccl_tests(read: Callable[[str], NcclTests]) -> None:
    for text in (json.dumps(document()), "\n " + json.dumps(document(), indent=1), json.dumps([document()])):
        log = read(text)
        assert (log.operation, log.ranks, len(log.devices)) == ("all_reduce", 4, 2)
        assert log.columns["time"].tolist()[0] == 40.5e-6
        assert log.columns["busbw"].tolist()[0] == pytest.approx(38.836148e9)
        assert math.isnan(log.columns["time_in_place"][0])
        assert math.isnan(log.columns["wrong_in_place"][0])
        assert math.isnan(log.columns["time"][1])
        assert log.columns["time_in_place"].tolist()[1] == 80e-6
        assert log.columns["wrong_in_place"].tolist()[1] == 2
        assert log.versions == {"nccl": "2.28.7"}
        assert (log.average_busbw, log.out_of_bounds) == (pytest.approx(38.836148e9), 0)
        assert log.header["step_factor"] == 2
        assert log.columns["line"].tolist() == [0, 0]
    assert read(json.dumps(document(args=["python"]))).operation is None
    named = document(args=[])
    named["results"][1]["experiment_name"] = "AllReduce"
    assert read(json.dumps(named)).operation == "all_reduce"


def records(**changes: Any) -> list[dict[str, Any]]:
    """Return rows as rccl-tests writes them: of reduce_scatter the size of what one rank receives."""
    base = {
        "name": "ReduceScatter", "nodes": 1, "ranks": 4, "ranksPerNode": 4, "gpusPerRank": 2, "size": 131072,
        "type": "float", "redop": "sum", "inPlace": 0, "time": 40.0, "algBw": 26.2144, "busBw": 22.9376, "wrong": "0",
        **changes,
    }  # fmt: skip
    return [base, {**base, "inPlace": 1, "time": 36.0, "algBw": 29.127111, "busBw": 25.486222, "wrong": "N/A"}]


def test_the_json_of_rccl_tests(read: Callable[[str], NcclTests]) -> None:
    rows = [*records(), *records(numCycle=1), *records(name="AllReduce", inPlace=1)[:1]]
    lines = "\n".join(map(json.dumps, rows))
    for text in (lines, json.dumps(rows), "[\n" + lines.replace("\n", ",\n") + "\n]"):
        log = read(text)
        assert [(table.operation, table.ranks, len(table)) for table in log.tables] == [
            ("reduce_scatter", 8, 2), ("all_reduce", 8, 1),
        ]  # fmt: skip
        columns = log.tables[0].columns
        assert columns["size"].tolist() == [1 << 20] * 2, "of the whole, as the bandwidth tells"
        assert columns["time"].tolist() == [40e-6] * 2
        assert columns["time_in_place"].tolist() == [36e-6] * 2
        assert columns["wrong"].tolist() == [0, 0]
        assert np.isnan(columns["wrong_in_place"]).all()
        assert math.isnan(log.tables[1].columns["time"][0])
        assert log.tables[1].columns["size"].tolist() == [131072]
    assert read(lines).tables[0].columns["line"].tolist() == [1, 3]
    assert read(json.dumps({**records()[0], "size": 1 << 20})).columns["size"].tolist() == [1 << 20]


def test_the_csv_of_rccl_tests(read: Callable[[str], NcclTests]) -> None:
    head = "collective, ranks, rankspernode, gpusperrank, size, type, redop, inplace, time, algbw, busbw, #wrong\n"
    rows = (  # with the nodes, which the line of names has not
        '"AllReduce", 1, 4, 4, 1, 1048576, "float", "sum", 0, 40.000000, 26.214400, 39.321600, "0"\n'
        '"AllReduce", 1, 4, 4, 1, 1048576, "float", "sum", 1, 36.000000, 29.127111, 43.690667, "N/A"\n'
    )
    log = read(head + rows)
    assert (log.operation, log.ranks, len(log)) == ("all_reduce", 4, 1)
    assert log.columns["time"].tolist() == [40e-6]
    assert log.columns["busbw_in_place"].tolist() == [43.690667e9]
    assert log.columns["line"].tolist() == [2]
    log = read(
        head.replace("ranks, rankspernode, gpusperrank", "gpus")
        + '"AllReduce", 8, 1024, "half", "sum", 0, 4.0, 0.256, 0.448, "0"\n'
    )
    assert (log.ranks, log.columns["type"].tolist()) == (8, ["half"])


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.log: expected a table of nccl-tests (a line that names the columns, size to busbw, and rows below it)"),
        ("1024 1 2 3\n", "got none; keep what the program prints on its standard output"),
        ("# a log line that tells of size and busbw\n 1 2 3\n", "got none"),
        (f"\n{TITLES}\n", "x.log:2:1: expected a table of nccl-tests"),
        (
            f"{TITLES}\n{ROWS[0][:60]}\n",
            "x.log:2:1: expected a table of nccl-tests (a line that names the columns, size",
        ),
        (f"{TITLES}\n99999999999999999999 1 float sum -1 1 1 1 0 1 1 1 0", "x.log:1:1: expected a table"),
        (f"{TITLES}\n9999999999999999999 1 float sum -1 1 1 1 0 1 1 1 0", "x.log:2:1: expected a table"),
        ("a\0b", "x.log:1: expected a log of nccl-tests in UTF-8, got a zero byte"),
        ("x" * (1 << 20) + "y", "x.log:1: expected lines of at most 1,048,576 bytes, got a longer one"),
        ("{}", "x.log: expected a document of nccl-tests, with the field 'results', got {}"),
        ("[]", "x.log: expected a table of nccl-tests"),
        ('{"a": 1}', "x.log: expected a document of nccl-tests, with the field 'results', got {'fields': \"'a'\"}"),
        ('{"results": [}', "x.log:1:14: expected JSON"),
        ('{"results": [],\n"version": NaN}', "expected finite numbers, got NaN"),
        ('{"results": [], "results": []}', "x.log:1:1: expected each name once in an object, got 'results' twice"),
        ('[{"a":' * 100_000, "x.log:1:1: expected JSON, got"),
        ("{" + '"a":{' * 100_000, "x.log:1:1: expected JSON, got"),
        ('{"results": ' + "9" * 5000 + "}", "x.log:1:1: expected JSON, got a number of thousands of digits"),
        ('{"results": 3}', "x.log: results: expected a list, got 3"),
        ('{"results": [3]}', "x.log: results[0]: expected an object, got 3"),
        ('{"results": [{}]}', "x.log: results[0].size: expected a whole number from 0, got None"),
        ('{"results": [{"size": -1}]}', "x.log: results[0].size: expected a whole number from 0, got -1"),
        ('{"results": [{"size": 8, "in_place": {"time": -1}}]}', "results[0].in_place.time: expected a number from 0"),
        ('{"results": [{"size": 8, "in_place": {"time": 1e400}}]}', "in_place.time: expected a number from 0, got inf"),
        (json.dumps(records()[0]) + "\n" + '{"size": 1', "x.log:2:11: expected JSON"),
        (json.dumps(records()[0]) + "\n" + '{"size": 1}', "x.log:2:1: inPlace: expected a whole number from 0"),
        (json.dumps({**records()[0], "ranks": 0}), "x.log:1:1: ranks: expected a whole number from 1, got 0"),
        ("collective, busbw, time\n", "x.log:1:1: expected the columns collective, ..., size, type"),
        (
            "collective, gpus, size, type, redop, inplace, time, algbw, busbw, #wrong\nAllReduce, 8, 1\n",
            "x.log:2:1: expected 10 columns, got 3",
        ),
        (
            "collective, gpus, size, type, redop, inplace, time, algbw, busbw, #wrong\na, 8, 8, f, s, 0, x, 1, 1, 0\n",
            "x.log:2:1: time: expected a number from 0, got 'x'",
        ),
    ],
)
def test_what_is_no_log(read: Callable[[str], NcclTests], text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_paths_that_are_no_log(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, message in (
        (tmp_path, "expected a log of nccl-tests, got a directory"),
        (tmp_path / "none", "expected a log of nccl-tests, got no such file"),
        (tmp_path / "pipe", "got a device or a pipe"),
        ("a\0b", "expected the path of a log of nccl-tests"),
        (3.5, "expected the path of a log of nccl-tests, got 3.5"),
    ):
        with pytest.raises(InputError, match=message):
            read_nccl_tests(path)  # type: ignore[arg-type]


def test_rows_and_devices_are_limited(read: Callable[[str], NcclTests], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_module, "MOST_ROWS", 2)
    with pytest.raises(InputError, match=r"x\.log:17:1: expected at most 2 rows, got more; keep the table of one run"):
        read(LOG)
    monkeypatch.undo()
    monkeypatch.setattr(model_module, "MOST_DEVICES", 3)
    with pytest.raises(InputError, match="expected at most 3 ranks, got more"):
        read(LOG)
    monkeypatch.undo()
    with pytest.raises(InputError, match="expected at most 1,048,576 ranks, got more"):
        read(LOG.replace("Rank  3", "Rank  999999999"))
    assert len(read(f"{TITLES}\n" * 50 + LOG).tables) == 1


def test_long_logs_need_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    with path.open("w") as stream:
        for line in LOG.splitlines():
            stream.write((f"{NOISE}\n" * 10_000) + line + "\n")
    assert path.stat().st_size > 12_000_000
    tracemalloc.start()
    try:
        log = read_nccl_tests(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(log) == 3
    assert peak < 2_000_000


@pytest.mark.parametrize(
    "line",
    [
        "1 " * 500_000,
        "1" * 1_000_000,
        " " * 1_000_000 + "x",
        "a" * 1_000_000 + " NCCL INFO x",
        "a:1:1 [0] " * 90_000 + " NCCL INFO x",
        "Rank " * 200_000,
        "size busbw " * 90_000,
        "all_reduce_perf " * 60_000,
        "1 1 float " * 90_000,
        "2024-05-01 12:00:00 " * 50_000 + ROWS[0],
        "Rank 1 Pid 1 on x device 1 [" * 35_000,
    ],
)
def test_long_lines_take_no_time(line: str) -> None:
    log = read_text(enumerate([TITLES, ROWS[0], line, line], start=1), "x").finish()
    assert log.columns["size"][0] == 1 << 10


PIECES = [
    "0",
    "-1",
    "1e400",
    "1" + "0" * 30,
    "nan",
    "inf",
    "N/A",
    "\u0663",
    "x" * 5000,
    "",
    "\0",
    "\x1b[",
    '"',
    "{",
    "[",
]


def mutated(text: str, dice: random.Random) -> str:
    """Return a text with one to four mistakes."""
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(text) + 1)
        to = min(len(text), at + dice.choice([1, 2, 10, 100, 1000]))
        kind = dice.randrange(6)
        if kind == 0:
            text = text[:at] + text[to:]
        elif kind == 1:
            text = text[:to] + text[at:]
        elif kind == 2:
            text = text[:at] + dice.choice(PIECES) + text[to:]
        elif kind == 3:
            numbers = [i for i, c in enumerate(text) if c.isdigit()]
            if numbers:
                at = dice.choice(numbers)
                text = text[:at] + dice.choice(PIECES) + text[at + 1 :]
        elif kind == 4:
            text = text[:at]
        else:
            words = text.split(" ")
            dice.shuffle(words[: dice.randrange(len(words) + 1)])
            text = " ".join(words)
    return text


@pytest.mark.parametrize("kind", ["text", "json", "lines", "csv"])
def test_damaged_logs(tmp_path: Path, kind: str) -> None:
    text = {
        "text": LOG.replace(ROWS[1], NOISE + "\n" + ROWS[1][:60] + NOISE + "\n" + ROWS[1][60:]),
        "json": json.dumps(document()),
        "lines": "\n".join(map(json.dumps, records())),
        "csv": "collective, gpus, size, type, redop, inplace, time, algbw, busbw, #wrong\n"
        + '"AllReduce", 8, 1024, "half", "sum", 0, 4.0, 0.256, 0.448, "0"\n' * 3,
    }[kind]
    path, dice, fine = tmp_path / "x.log", random.Random(8), 0
    for _ in range(200):
        path.write_text(mutated(text, dice))
        try:
            log = read_nccl_tests(path)
        except InputError as refusal:
            message = str(refusal)
        else:
            message = "x.log"
            fine += 1
            assert len(log.columns["time"]) == len(log) > 0
            assert not (log.columns["size"] < 0).any()
            assert repr(log)
        assert "x.log" in message
        assert "\n" not in message
    assert fine > 10


ROW = "   134217728      33554432     float     sum      -1    857.6  156.51  156.51      0  858.0  156.43  156.43    0"
INFO = "node0:880:887 [0] NCCL INFO Connected all trees"


@pytest.mark.parametrize("at", range(1, len(ROW)))
def test_a_row_that_other_text_cuts_is_right_or_left_out(read: Callable[[str], NcclTests], at: int) -> None:
    whole = ROW.replace("134217728", "268435456").replace("857.6", "1715.").replace("858.0", "1716.")
    log = read(f"{SETTINGS}\n{PLACES}\n{TITLES}\n{UNITS}\n{whole}\n{ROW[:at]}{INFO}\n{ROW[at:]}\n")
    times = dict(zip(log.columns["size"].tolist(), log.columns["time"].tolist(), strict=True))
    assert times.pop(268435456) == pytest.approx(1715e-6)
    assert all(size == 134217728 and time == pytest.approx(857.6e-6) for size, time in times.items())


def test_a_table_is_only_of_operations_that_its_numbers_allow(read: Callable[[str], NcclTests]) -> None:
    log = read(f"{TITLES}\n{UNITS}\n{ROW.replace('156.51  156.51', '156.51  273.89')}\n")
    assert len(log.tables_of("all_reduce")) == 1
    with pytest.raises(InputError, match="expected a table of reduce_scatter, got all_reduce"):
        log.tables_of("reduce_scatter")
