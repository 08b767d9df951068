"""``collsim predict``."""

from __future__ import annotations

import json

import pytest

from collsim.cli import main
from collsim.hardware import cluster
from collsim.nccl import choice, machine_of


def test_each_size_has_what_nccl_would_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "2 x dgx-h100 @ 8x400Gb", "all_reduce", "-b", "8", "-e", "8G", "-f", "2"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 118
    rows = [line.split() for line in text.splitlines() if line[:12].strip().isdigit()]
    machine = machine_of(cluster("2 x dgx-h100"))
    assert [int(row[0]) for row in rows] == [8 << i for i in range(31)]
    assert [row[1] for row in rows] == [str(choice(machine, "all_reduce", 8 << i)) for i in range(31)]
    size, seconds = 8 << 30, choice(machine, "all_reduce", 8 << 30).seconds
    assert float(rows[-1][4]) == pytest.approx(size / seconds / 1e9 * 2 * 15 / 16, abs=0.006)


def test_variables_and_releases_count(capsys: pytest.CaptureFixture[str]) -> None:
    call = ["predict", "dgx-h100", "all_reduce", "-b", "1G", "-e", "1G", "--json"]
    assert main(call) == 0
    assert main([*call, "--env", "NCCL_ALGO=Ring", "--env", "NCCL_FOO=1", "--nccl", "2.18"]) == 0
    free, forced = (json.loads(part) for part in capsys.readouterr().out.replace("}\n{", "}\n\0{").split("\0"))
    assert free["results"][0]["formula"][0]["algorithm"] == "NVLS"
    assert {pair["algorithm"] for pair in forced["results"][0]["formula"]} == {"Ring"}
    assert (forced["nccl"], forced["ignored"]) == ("2.18", ["NCCL_FOO"])


def test_releases_without_tables_of_their_own_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    call = ["predict", "dgx-h100", "all_reduce", "-b", "1G", "-e", "1G", "--nccl"]
    assert main([*call, "2.16"]) == 0
    old = capsys.readouterr().out
    assert "NVLS" not in old
    assert "# tables    those of NCCL 2.18, the nearest release whose tables are known" in old
    assert main([*call, "2.22"]) == 0
    assert "tables" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["2 x dgx-h10", "all_reduce"], "did you mean 'dgx-h100'?"),
        (["dgx-h100", "all_to_all"], "OPERATION: expected one of all_reduce, all_gather, reduce_scatter"),
        (["mi300x-8", "all_reduce"], "expected GPUs of NVIDIA"),
        (["dgx-h100:1", "all_reduce"], "rank"),
        (["dgx-h100", "all_reduce", "--env", "NCCL_ALGO=rings"], "did you mean 'Ring'?"),
        (["dgx-h100", "all_reduce", "--nccl", "x"], "NCCL"),
        (["dgx-h100", "all_reduce", "-b", "x"], "-b:"),
    ],
)
def test_wrong_calls(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", *words]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
