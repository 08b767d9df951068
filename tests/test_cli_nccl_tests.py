"""``collsim run --nccl-tests`` and ``-J``: what nccl-tests prints and writes, from the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import collsim
from collsim.cli import main
from collsim.formats import read_nccl_tests
from collsim.formats.nccl_tests_out import PROGRAMS
from tests.nccl_tests_readers import read_by_headings, read_by_pattern, read_by_words, read_devices

RING = str(Path(__file__).parent.parent / "topologies" / "ring8.yaml")


def out_of(capsys, *arguments, code=0):
    assert main(["run", *arguments]) == code
    out, err = capsys.readouterr()
    assert not err
    return out


def refused(capsys, *arguments):
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    return err


def algorithm_of(operation):
    return collsim.algorithms.available()[operation][0]


HEAD = """\
# all_gather_perf simulated by collsim: ring on ring8, cut_through network
# nThread 1 nGpus 8 minBytes 64 maxBytes 8192 step: 8(factor) \
warmup iters: 0 iters: 1 agg iters: 1 validation: 1 graph: 0
#
# Using devices
"""
DEVICE = "#  Rank  {0} Group  0 Pid      0 on      ring8 device  {0} [0x0{0}] NVIDIA GPU simulated by collsim\n"
TABLE = """\
#
#                                                              out-of-place                       in-place          $
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       $
           0             0     float    none      -1     0.00    0.00    0.00      0     0.00    0.00    0.00      0
         512            16     float    none      -1     7.01    0.07    0.06      0     7.01    0.07    0.06      0
        4096           128     float    none      -1     7.07    0.58    0.51      0     7.07    0.58    0.51      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.190243 $
#

"""
"""With a dollar behind the blanks at ends of lines. 512 bytes: 7 (1 us + 64 bytes at 50 GB/s) = 7.00896 us."""


def test_the_whole_output_for_a_small_ring(capsys):
    out = out_of(capsys, RING, "all_gather", "-b", "64", "-e", "8K", "-f", "8", "--nccl-tests")
    assert out == HEAD + "".join(map(DEVICE.format, range(8))) + TABLE.replace("$", "")


@pytest.mark.parametrize("operation", PROGRAMS)
def test_public_readers_and_ours_find_the_numbers_of_the_table(capsys, tmp_path, operation):
    asked = ("dgx-h100-x4", operation, "-a", algorithm_of(operation), "-b", "8", "-e", "8G", "-f", "16")
    document = tmp_path / "result.json"
    text = out_of(capsys, *asked, "--nccl-tests", "-J", str(document))
    log = tmp_path / "result.log"
    log.write_text(text)
    # the same sizes, simulated one by one: those below 16 bytes a rank are nothing where the size is of a block a rank
    blocked = operation in ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter")
    sizes = [8 << (4 * k) for k in range(8)]
    if blocked:
        sizes = [size if size >= 512 else 0 for size in sizes]
    topology = collsim.load_topology("dgx-h100-x4")
    ours = []
    for size in sizes:
        r = collsim.run(operation, topology, size, algorithm=algorithm_of(operation), dtype="float", check=False)
        ours.append((size, r.time * 1e6 if size else 0, r.algbw / 1e9, r.busbw / 1e9))

    def agree(found, expected):
        assert [row[0] for row in found] == [row[0] for row in expected]
        for row, own in zip(found, expected, strict=True):
            assert row[1] == pytest.approx(own[1], rel=5e-4, abs=0.005)
            assert row[2:] == pytest.approx(own[2:], abs=0.00501)

    for in_place in (False, True):
        agree(read_by_words(text, in_place), ours)
        agree(read_by_headings(text, in_place), [row for row in ours if row[0]])
    rows, mean = read_by_pattern(text)
    agree(rows, ours)
    assert mean == pytest.approx(sum(row[3] for row in ours) / len(ours), rel=1e-5)
    assert read_devices(text) == (32, 8, "GPU simulated by collsim")

    for path, exactly in ((log, 5e-4), (document, 1e-5)):
        found = read_nccl_tests(path)
        assert (found.operation, found.ranks, found.skipped) == (operation, 32, 0)
        assert found.average_busbw == pytest.approx(mean * 1e9, rel=1e-4)
        assert found.header["iterations"] == 1
        assert found.header["step_factor"] == 16
        assert found.columns["size"].tolist() == sizes
        assert found.columns["wrong"].tolist() == [0] * len(sizes)
        for place in ("", "_in_place"):
            times = [row[1] / 1e6 for row in ours]
            assert found.columns["time" + place].tolist() == pytest.approx(times, rel=exactly, abs=5.1e-9)
        assert [(d.rank, d.host, d.device, d.bus_id) for d in found.devices][9] == (9, "node1", 1, "0x01")


def test_unchecked_rows_say_so(capsys):
    out = out_of(capsys, RING, "all_reduce", "-b", "1M", "-e", "1M", "--nccl-tests", "--no-check")
    assert " validation: 0 " in out
    (row,) = (line.split() for line in out.splitlines() if line[:1] == " ")
    assert (row[8], row[12]) == ("N/A", "N/A")
    assert "# Out of bounds values : 0 OK\n" in out


def test_wrong_elements_fail(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("collsim.cli.run.count_wrong", lambda *_: (5, "data"))
    path = tmp_path / "result.json"
    out = out_of(capsys, RING, "all_reduce", "-b", "1K", "-e", "2K", "--nccl-tests", "-J", str(path), code=1)
    assert "# Out of bounds values : 4 FAILED\n" in out
    assert json.loads(path.read_text())["out_of_bounds"] == {"count": 4, "okay": "false"}


def test_types_are_those_that_were_asked_for(capsys, tmp_path):
    path = tmp_path / "result.json"
    for dtype in ("bfloat16", "int32", "uint64"):
        out = out_of(capsys, RING, "reduce", "-b", "1K", "-e", "1K", "-d", dtype, "--nccl-tests", "-J", str(path))
        assert next(line.split()[2] for line in out.splitlines() if line[:1] == " ") == dtype
        assert json.loads(path.read_text())["results"][0]["type"] == dtype


def test_limits_are_those_that_were_asked_for(capsys):
    out = out_of(capsys, RING, "all_reduce", "-b", "10", "-e", "1000", "-f", "3", "-d", "half", "--nccl-tests")
    assert " minBytes 10 maxBytes 1000 step: 3(factor) " in out
    assert [row[0] for row in read_by_words(out)] == [10, 30, 90, 270, 810]
    out = out_of(capsys, RING, "all_reduce", "-b", "64M", "--nccl-tests")
    assert " minBytes 67108864 maxBytes 67108864 " in out


def test_the_json_goes_with_the_other_outputs(capsys, tmp_path):
    path = tmp_path / "result.json"
    asked = (RING, "reduce", "-r", "3", "-b", "1M", "-e", "4M", "--output_file", str(path))
    out = out_of(capsys, *asked)
    assert out.splitlines()[0].startswith("# ring reduce on ring8")
    assert out.splitlines()[-1] == f"# json     {path} (as nccl-tests -J writes it)"
    document = json.loads(path.read_text())
    path.unlink()
    ours = json.loads(out_of(capsys, *asked, "--json"))
    assert ours["output_file"] == str(path)
    assert [row["in_place"]["time"] for row in document["results"]] == pytest.approx(
        [row["time_us"] for row in ours["results"]], abs=1e-6
    )
    assert document["args"][0] == "reduce_perf"
    assert document["results"][0]["root"].strip() == "3"
    assert document["config"]["maximum_bytes"] == 4 << 20
    again = json.loads(path.read_text())
    for name in ("start_time", "end_time"):
        del again[name], document[name]
    assert again == document


def test_other_outputs_are_not_mentioned_in_a_log(capsys, tmp_path):
    trace = tmp_path / "trace.json"
    out = out_of(capsys, RING, "all_reduce", "-b", "1K", "-e", "1K", "--nccl-tests", "--trace", str(trace))
    assert trace.exists()
    assert out.endswith("\n#\n\n")
    assert "trace" not in out


def test_what_cannot_be_is_refused_before_any_work(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("collsim.cli.run.load_topology", pytest.fail)
    path = str(tmp_path / "result.json")
    err = refused(capsys, "run", RING, "barrier", "--nccl-tests")
    assert "barrier: nccl-tests has no such test; it has all_reduce, " in err
    assert "barrier: nccl-tests has no such test" in refused(capsys, "run", RING, "barrier", "-J", path)
    err = refused(capsys, "run", RING, "all_reduce", "--nccl-tests", "--json")
    assert "--nccl-tests: expected it or --json, got both; -J writes the JSON of nccl-tests" in err
    err = refused(capsys, "run", RING, "all_reduce", "-J", str(tmp_path / "no" / "result.json"))
    assert "result.json: no such directory; make it first" in err
    assert "expected a file, got a directory" in refused(capsys, "run", RING, "all_reduce", "-J", str(tmp_path))
    assert "expected a file, got a device" in refused(capsys, "run", RING, "all_reduce", "-J", os.devnull)
    assert not list(tmp_path.iterdir())


def test_a_run_that_fails_writes_nothing(capsys, tmp_path):
    path = tmp_path / "result.json"
    refused(capsys, "run", RING, "all_reduce", "-a", "rnig", "-J", str(path))
    assert not list(tmp_path.iterdir())


def test_other_commands_say_who_has_the_flag(capsys):
    with pytest.raises(SystemExit):
        main(["compare", RING, "all_reduce", "-J", "x.json"])
    assert "unknown: -J" in (err := capsys.readouterr().err)
    assert "collsim run has it, here --json prints JSON" in err
    with pytest.raises(SystemExit):
        main(["run", RING, "all_reduce", "-n", "20"])
    assert "nothing is repeated" in capsys.readouterr().err
