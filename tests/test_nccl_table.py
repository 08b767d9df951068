"""The table is read by what reads the logs of nccl-tests: by a pattern, and by position."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collsim.cli import main

FILES = Path(__file__).parent.parent / "topologies"

# A row of nccl-tests up to the #wrong of the first half, as parsers of its logs have it.
ROW = re.compile(
    r"^\s*(?P<size>\d+)\s+(?P<count>\d+)\s+(?P<type>[a-z]\w*)\s+(?P<redop>sum|prod|min|max|avg|none)\s+(?P<root>-?\d+)"
    r"\s+(?P<time>\d+(?:\.\d+)?)\s+(?P<algbw>\d+\.\d+)\s+(?P<busbw>\d+\.\d+)\s+(?P<wrong>\d+|N/A)\b"
)
# The widths that nccl-tests prints its columns with, each after two blanks (the first has none before it).
WIDTHS = (12, 12, 8, 6, 6, 7, 6, 6, 5)

# Lines of a measured log, as an anchor for the pattern and the positions.
MEASURED = """\
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
   134217728      33554432     float     sum      -1    857.6  156.51  156.51      0    819.6  163.76  163.76      0
   536870912     134217728     float     sum      -1   2789.9  192.43  192.43      0   2793.6  192.18  192.18      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 179.465 
"""  # noqa: W291


def columns(line: str) -> list[str]:
    """The fields of a row by position."""
    found, at = [], 0
    for i, width in enumerate(WIDTHS):
        at += 2 * (i > 0)
        found.append(line[at : at + width])
        at += width
    return found


def table(capsys, *arguments):
    assert main(["run", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def lines(capsys):
    return table(
        capsys, str(FILES / "dgx-h100.yaml"), "all_reduce", "-b", "8", "-e", "1G", "-f", "2", "--algorithm", "ring"
    )


def test_the_pattern_and_the_positions_read_a_measured_log():
    rows = [line for line in MEASURED.splitlines() if not line.startswith("#")]
    for line in rows:
        match = ROW.match(line)
        assert match
        assert [field.strip() for field in columns(line)] == list(match.groups())


def test_rows_are_read_by_pattern(lines):
    rows = [ROW.match(line) for line in lines if not line.startswith("#")]
    assert all(rows)
    assert [int(row["size"]) for row in rows if row] == [2**i for i in range(3, 31)]
    last = rows[-1]
    assert last
    assert (last["count"], last["type"], last["redop"], last["root"], last["wrong"]) == (
        "268435456",
        "float",
        "sum",
        "-1",
        "0",
    )
    assert float(last["algbw"]) == pytest.approx(2**30 / float(last["time"]) / 1e3, rel=1e-3)
    assert float(last["busbw"]) == pytest.approx(float(last["algbw"]) * 1.75, rel=1e-3)


def test_rows_are_read_by_position(lines):
    for line in lines:
        if not line.startswith("#"):
            match = ROW.match(line)
            assert match
            assert [field.strip() for field in columns(line)] == list(match.groups())
            assert len(line.split()) == 13


def test_the_header_is_that_of_nccl_tests_up_to_wrong(lines):
    ours = [line for line in lines if line.startswith(("#       size", "#        (B)"))]
    theirs = MEASURED.splitlines()[:2]
    for our, their in zip(ours, theirs, strict=True):
        assert our[:84] == their[:84]
    # a heading ends where its column ends
    row = next(line for line in lines if not line.startswith("#"))
    ends = [match.end() for match in re.finditer(r"\S+", row)]
    heads = [match.end() for match in re.finditer(r"\S+", ours[0][1:])]
    assert len(heads) == len(ends) == 13
    assert [head + 1 for head in heads[5:8]] == ends[5:8]
    assert [head + 1 for head in heads[9:]] == ends[9:]


def test_other_lines_are_comments(lines):
    assert all(line.startswith("#") or ROW.match(line) for line in lines)
    assert "# Out of bounds values : 0 OK" in lines
    average = next(line for line in lines if line.startswith("# Avg bus bandwidth    : "))
    rows = [ROW.match(line) for line in lines if not line.startswith("#")]
    assert float(average.split(":")[1]) == pytest.approx(
        sum(float(row["busbw"]) for row in rows if row) / len(rows), rel=1e-3
    )


def test_decimals_of_the_time(lines):
    times = {columns(line)[5].strip() for line in lines if not line.startswith("#")}
    assert {"8.40", "73.64", "138.9", "4184.1"} <= times


@pytest.mark.parametrize("operation", ["broadcast", "reduce", "all_gather", "reduce_scatter"])
def test_other_operations(capsys, operation):
    lines = table(capsys, str(FILES / "line8.yaml"), operation, "-b", "1K", "-e", "1G", "-f", "1024", "-d", "half")
    rows = [ROW.match(line) for line in lines if not line.startswith("#")]
    assert len(rows) == 3
    assert all(rows)
    assert {row["root"] for row in rows if row} == {"0" if operation in ("broadcast", "reduce") else "-1"}


def test_long_times_and_no_check_are_read_too(capsys):
    lines = table(
        capsys, str(FILES / "pcie-4gpu.yaml"), "all_reduce", "-b", "256G", "-e", "1024G", "-f", "4", "--no-check"
    )
    rows = [ROW.match(line) for line in lines if not line.startswith("#")]
    assert all(rows)
    assert [row["wrong"] for row in rows if row] == ["N/A", "N/A"]
    assert all(float(row["time"]) > 1e7 for row in rows if row)
