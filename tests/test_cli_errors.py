"""Whatever is wrong with a call: one line on stderr, exit code 2, nothing on stdout, no traceback."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from collsim import algorithms
from collsim.algorithms import registry
from collsim.cli import main

ROOT = Path(__file__).parent.parent
RING = str(ROOT / "topologies" / "ring8.yaml")
DISCONNECTED = """\
name: islands
nodes:
  - {name: "gpu[0-3]", kind: gpu}
links:
  - {between: ["gpu[0]", "gpu[1]"], bandwidth: 10GB/s, latency: 1us}
  - {between: ["gpu[2]", "gpu[3]"], bandwidth: 10GB/s, latency: 1us}
"""
NINES = "9" * 5000


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}


def refused(capsys, *arguments, code=2):
    """The line on stderr of a call that must be refused."""
    try:
        got = main(arguments)
    except SystemExit as end:  # argparse ends the program by itself
        got = end.code
    out, err = capsys.readouterr()
    assert got == code
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("collsim: error: ")
    assert "Traceback" not in err
    assert len(err) < 1000
    return err.removeprefix("collsim: error: ").rstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["all_reduce", "-a", "rnig"], f"all_reduce has {', '.join(algorithms.available()['all_reduce'])}, got "),
        (["all_reduce", "-a", "rnig"], "got 'rnig'; did you mean 'ring'?"),
        (["all_reduce", "-a", ""], "got ''"),
        (["all_reduc"], "OPERATION: expected one of all_reduce, "),
        (["all_reduc"], "got 'all_reduc'; did you mean 'all_reduce'?"),
        (
            ["all_reduce", "--network", "fluit"],
            "--network: expected one of alpha_beta, store_and_forward, cut_through, fluid, got ",
        ),
        (["all_reduce", "--network", "fluit"], "did you mean 'fluid'?"),
        (
            ["all_reduce", "--engine", "refrence"],
            "--engine: expected one of auto, reference, compiled, got 'refrence'; did you mean",
        ),
        (["all_reduce", "-d", "floatt"], "got 'floatt'; did you mean 'float'?"),
        (["all_reduce", "-b", "0"], "-b: expected a size from 1 byte to 1 PiB, got '0'"),
        (["all_reduce", "-b", "-5"], "-b: expected a size from 1 byte to 1 PiB, got '-5'"),
        (["all_reduce", "-b=-5M"], "-b: expected a size from 1 byte to 1 PiB, got '-5M'"),
        (["all_reduce", "-b", "1e30"], "-b: '1e30': expected a size as nccl-tests takes it"),
        (["all_reduce", "-e", "99999999999G"], "-e: '99999999999G': too large"),
        (["all_reduce", "-e", "1048577G"], "-e: expected a size from 1 byte to 1 PiB"),
        (["all_reduce", "-b", NINES], "-b: "),
        (["all_reduce", "-b", "1T"], "-b: '1T': expected a size as nccl-tests takes it"),
        (["all_reduce", "-b", "1.5"], "-b: '1.5': expected a whole number of bytes"),
        (["all_reduce", "-b", "nan"], "-b: 'nan': "),
        (["all_reduce", "-b", ""], "-b: '': "),
        (["all_reduce", "-b", "3"], "-b: expected at least 4 bytes (one element), got 3"),
        (["all_reduce", "-b", "2M", "-e", "1M"], "-e: expected at least the 2,097,152 bytes of -b, got 1,048,576"),
        (["all_reduce", "-f", "1"], "-f: expected a whole number from 2, got '1'"),
        (["all_reduce", "-f", "0"], "-f: expected a whole number from 2, got '0'"),
        (["all_reduce", "-f", "x"], "-f: expected a whole number from 2, got 'x'"),
        (["all_reduce", "-f", "-2"], "-f: expected a whole number from 2, got '-2'"),
        (["all_reduce", "-f", "1.5"], "-f: expected a whole number from 2"),
        (["all_reduce", "-f", "²"], "-f: expected a whole number from 2"),
        (["all_reduce", "-f", NINES], "-f: expected a whole number from 2"),
        (["broadcast", "-r", "8"], "--root: expected a rank from 0 to 7, got '8'"),
        (["broadcast", "-r", "-1"], "--root: expected a rank from 0 to 7, got '-1'"),
        (["broadcast", "-r", "x"], "--root: expected a rank from 0 to 7, got 'x'"),
        (["broadcast", "--root", ""], "--root: expected a rank from 0 to 7, got ''"),
        (["broadcast", "--root", NINES], "--root: expected a rank from 0 to 7"),
        (["all_reduce", "-r", "1"], "root: all_reduce has no root, got 1; leave it out"),
        (
            ["all_reduce", "--algoritm", "ring"],
            "unknown: --algoritm ring; did you mean '--algorithm'?; see collsim run --help",
        ),
        (["all_reduce", "--algo", "ring"], "unknown: --algo ring"),
        (["all_reduce", "--jsn"], "unknown: --jsn; did you mean '--json'?"),
        (["all_reduce", "more"], "unknown: more; see collsim run --help"),
        (["all_reduce", "-b"], "argument -b/--minbytes: expected one argument"),
        (["all_reduce", "--plot", "no/such/folder/x.png"], "no/such/folder/x.png: no such directory"),
        (["all_reduce", "--plot", "x.foo"], "x.foo: expected a name that ends in .pdf, .png or .svg"),
        (["all_reduce", "--plot", ""], "plot: "),
        (["all_reduce", "-p", "x"], "-p: expected NAME=VALUE such as channels=2 or order=0,2,1,3, got 'x'"),
        (["all_reduce", "-p", "="], "-p: expected NAME=VALUE"),
        (["all_reduce", "-p", "channels="], "-p: expected NAME=VALUE"),
        (
            ["all_reduce", "-p", "chanels=2"],
            "expected parameters order, channels, slices, got 'chanels'; did you mean 'channels'?",
        ),
        (["all_reduce", "-p", "channels=0"], "channels: expected a whole number of at least 1, got 0"),
        (["all_reduce", "-p", "channels=a"], "channels: expected a whole number of at least 1, got 'a'"),
        (["all_reduce", "-p", "channels=1.5"], "channels: expected a whole number of at least 1, got 1.5"),
        (["all_reduce", "-p", "channels=NaN"], "channels: expected a whole number of at least 1, got nan"),
        (["all_reduce", "-p", "channels=1,2"], "channels: expected a whole number of at least 1, got [1, 2]"),
        (
            ["all_reduce", "-p", "channels=99999999999"],
            "ranks, channels and slices: 799,999,999,992 rows",
        ),
        (["all_reduce", "-p", "channels=9999", "-p", "slices=9999"], "expected fewer ranks, slices or channels"),
        (["all_reduce", "-p", "channels=" + "[" * 100_000], "channels: expected a whole number of at least 1"),
        (["all_reduce", "-p", "order=0,1"], "order: expected each of the ranks 0 to 7 once, got [0, 1]"),
        (["all_reduce", "-p", "order=5"], "order: expected "),
        (["all_reduce", "-p", "order=0,0,1,2,3,4,5,6"], "order: expected each of the ranks 0 to 7 once"),
        (["all_reduce", "-p", "order=a,b"], "order: expected "),
        (["all_reduce", "-p", "ranks=3"], "-p: ranks is not a parameter: the topology has its own"),
        (["broadcast", "-p", "root=3"], "-p: root is not a parameter: give --root"),
        (["all_reduce", "-a", "tree", "-p", "k=-1"], "k: expected a whole number of at least 1, got -1"),
        (["all_reduce", "-a", "nofile.py:f"], "nofile.py: expected a Python file, there is none"),
        (["all_reduce", "-a", ":f"], ":f: expected FILE.py:FUNCTION"),
    ],
)
def test_run(capsys, arguments, message):
    assert message in refused(capsys, "run", RING, *arguments)


def test_an_operation_without_algorithms(capsys, monkeypatch):
    table = {(operation, name): make for (operation, name), make in registry._TABLE.items() if operation != "gather"}
    monkeypatch.setattr(registry, "_TABLE", table)
    line = refused(capsys, "run", RING, "gather")
    assert "algorithm: collsim has none for gather yet; it has some for all_reduce, " in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json"], "the following arguments are required: COMMAND; see collsim --help"),
        (["run"], "the following arguments are required: TOPOLOGY, OPERATION; see collsim run --help"),
        (["run", RING], "the following arguments are required: OPERATION"),
        (
            ["chek"],
            "COMMAND: expected one of run, compare, bound, explain, report, topology, algorithms, check, "
            "convert, predict, got 'chek'; did you mean 'check'?",
        ),
        (["topology"], "the following arguments are required: WHAT"),
        (["topology", "sho", "x"], "WHAT: expected one of show, list, got 'sho'; did you mean 'show'?"),
        (["topology", "show"], "the following arguments are required: TOPOLOGY; see collsim topology show --help"),
        (["check"], "the following arguments are required: FILE.py:FUNCTION"),
        (
            ["check", "all_reduce:ring", "--ranks", "0"],
            "--ranks: expected numbers from 1 to 10000 such as 2-17 or 2,4,8, got '0'",
        ),
        (["algorithms", "--jso"], "unknown: --jso; did you mean '--json'?; see collsim algorithms --help"),
        (["--verbose"], "COMMAND"),
    ],
)
def test_the_call_itself(capsys, arguments, message):
    assert message in refused(capsys, *arguments)


FILES = {
    "empty.yaml": (b"", "empty.yaml:1:1: expected a topology, got an empty file"),
    "binary.yaml": (bytes(range(128, 256)), "binary.yaml:1:1: expected UTF-8 text, got the byte 0x80"),
    "form.yaml": (b"name: x\nnodes:\n  - name: [\n", "form.yaml:4:1: expected YAML, got a mistake in its form"),
    "field.yaml": (
        b"name: x\nnodes:\n  - {name: a, kind: gpu}\nlinks:\n  - {between: [a, a], bandwith: 1GB/s, latency: 1us}\n",
        "field.yaml:5:23: links[0].bandwith: ",
    ),
    "islands.yaml": (DISCONNECTED.encode(), "no route from 'gpu["),
}


@pytest.mark.parametrize("command", [["run", "FILE", "all_reduce"], ["topology", "show", "FILE"]], ids=["run", "show"])
@pytest.mark.parametrize("name", FILES)
def test_files(capsys, tmp_path, monkeypatch, command, name):
    monkeypatch.chdir(tmp_path)
    content, message = FILES[name]
    Path(name).write_bytes(content)
    if name == "islands.yaml" and command[0] == "topology":
        assert main(["topology", "show", name]) == 0  # a machine in two parts can be looked at
        assert "gpu[0]" in capsys.readouterr().out
        return
    assert message in refused(capsys, *(name if word == "FILE" else word for word in command))


def test_files_that_are_not_there(capsys, tmp_path):
    assert "no such file" in refused(capsys, "run", str(tmp_path / "x.yaml"), "all_reduce")
    assert "got a directory" in refused(capsys, "run", str(tmp_path), "all_reduce")
    assert "did you mean" in refused(capsys, "run", RING.replace("ring8", "rinq8"), "all_reduce")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read and write everything")
def test_files_without_permission(capsys, tmp_path):
    file = tmp_path / "secret.yaml"
    file.write_text("name: x")
    file.chmod(0)
    assert "ermission denied" in refused(capsys, "run", str(file), "all_reduce")
    folder = tmp_path / "locked"
    folder.mkdir(0o500)
    assert "locked/x.png" in refused(capsys, "run", RING, "all_reduce", "-b", "1K", "--plot", str(folder / "x.png"))


def test_a_picture_that_cannot_be_written_in_the_end(capsys, monkeypatch, tmp_path):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    line = refused(capsys, "run", RING, "all_reduce", "-b", "1K", "--plot", str(tmp_path / "x.png"))
    assert "x.png: cannot be written: No space left on device" in line
    assert not list(tmp_path.iterdir())


def test_a_size_whose_time_does_not_fit_is_refused_before_the_first_row(capsys, tmp_path):
    file = tmp_path / "slow.yaml"
    file.write_text("name: slow\ngenerator: {name: ring, n: 4, bandwidth: 1KB/s, latency: 1us}\n")
    assert "over 106 days" in refused(capsys, "run", str(file), "all_reduce", "-b", "8", "-e", "1024G")
    assert "over 106 days" in refused(capsys, "run", str(file), "all_reduce", "-b", "8", "-e", "1024G", "--json")


def test_a_size_that_the_chunks_do_not_divide_is_refused_before_the_first_row(capsys, tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(
        "from collsim import Collective, ScheduleBuilder\n"
        "def detour(ranks):\n"
        "    b = ScheduleBuilder(Collective('broadcast', ranks), chunks=2)\n"
        "    b.copy(0, 2, 1)\n"
        "    b.copy(0, 1, 0, dst_chunk=1)\n"
        "    b.copy(1, 2, 1, dst_chunk=0, step=1)\n"
        "    b.copy(2, 1, 0, count=2, step=2)\n"
        "    return b.build()\n"
    )
    (tmp_path / "three.yaml").write_text("name: three\ngenerator: {name: ring, n: 3, bandwidth: 1GB/s, latency: 1us}\n")
    monkeypatch.chdir(tmp_path)
    arguments = ("run", "three.yaml", "broadcast", "-a", "own.py:detour", "-d", "int8")
    # the largest size would do, one before it would not
    assert "expected a number of elements that the chunks divide" in refused(capsys, *arguments, "-b", "3", "-e", "12")
    assert main([*arguments, "-b", "4", "-e", "16", "--json"]) == 0
    assert [row["wrong"] for row in json.loads(capsys.readouterr().out)["results"]] == [0, 0, 0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", RING, "all_reduce", "-a", "rnig"],
        ["run", "no_such_file.yaml", "all_reduce"],
        ["run", RING, "all_reduce", "-b", "1e30"],
        ["run", RING, "all_reduce", "--jsn"],
    ],
)
def test_as_a_program(arguments):
    run = subprocess.run(
        [sys.executable, "-m", "collsim", *arguments], env=environment(), capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.startswith("collsim: error: ")
    assert run.stderr.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="needs bash and pipes of POSIX")
@pytest.mark.parametrize(
    ("arguments", "first"),
    [(f"run {RING} all_reduce -b 8 -e 1G", "# ring"), ("algorithms", "all_reduce"), ("--help", "usage")],
)
def test_a_reader_that_goes_away_is_no_error(arguments, first):
    # the reader is gone before the first line is flushed, or after it has read one
    command = f"{sys.executable} -m collsim {arguments}; echo code $? >&2"
    gone = subprocess.run(
        ["bash", "-c", f"({command}) | true"], env=environment(), capture_output=True, text=True, check=False
    )
    assert gone.stderr == "code 0\n"
    shell = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"({command}) | head -n 1"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert shell.stdout.startswith(first)
    assert shell.stderr == "code 0\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("argument", ["algorithms", "--help"])
def test_a_full_disk_is_one_line(argument):
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "collsim", argument],
            env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert run.returncode == 2
    assert run.stderr == "collsim: error: output: No space left on device\n"


def test_a_terminal_that_cannot_show_a_name(tmp_path):
    file = tmp_path / "n.yaml"
    text = Path(RING).read_text(encoding="utf-8").replace("ring8", "ringé8")
    file.write_text(text, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "collsim", "run", str(file), "all_reduce", "-b", "1M", "-e", "1M"],
        env={**environment(), "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    assert "ring\\xe98" in run.stdout


def test_ctrl_c(monkeypatch, capsys):
    def interrupted(*arguments, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("collsim.cli.run.simulate", interrupted)
    assert main(["run", RING, "all_reduce", "-b", "1M"]) == 130
    assert capsys.readouterr() == ("", "collsim: interrupted\n")


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("-g", "the topology says how many GPUs there are"),
        ("-n20", "a simulation gives the same time every time, so nothing is repeated"),
        ("--warmup_iters=5", "a simulation gives the same time every time, so nothing is warmed up"),
        ("-c", "results are checked unless --no-check is given"),
        ("-o", "the only reduction is sum"),
        ("-i", "sizes go by a factor: -f"),
    ],
)
def test_flags_of_nccl_tests_that_mean_nothing_here(capsys, flag, hint):
    with pytest.raises(SystemExit) as caught:
        main(["run", RING, "all_reduce", flag, *([] if flag[2:] else ["1"])])
    assert caught.value.code == 2
    assert f"; {hint}; see collsim run --help" in capsys.readouterr().err


def test_one_letter_is_no_basis_for_a_guess(capsys):
    with pytest.raises(SystemExit):
        main(["check", "all_reduce:ring", "-z", "4"])
    assert capsys.readouterr().err == "collsim: error: unknown: -z 4; see collsim check --help\n"


def test_a_parameter_given_twice(capsys):
    assert main(["run", RING, "all_reduce", "-p", "channels=2", "-p", "channels=3"]) == 2
    assert capsys.readouterr().err == "collsim: error: -p: channels is given twice; expected it once\n"


@pytest.mark.skipif(os.name == "nt", reason="needs a shell of POSIX")
def test_closed_output_is_no_traceback():
    command = f"{shlex.quote(sys.executable)} -m collsim run {RING} all_reduce -b 8 -e 8 >&-"
    run = subprocess.run(["sh", "-c", command], env=environment(), capture_output=True, text=True, check=False)
    assert "Traceback" not in run.stderr
