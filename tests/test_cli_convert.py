"""``collsim convert``."""

from __future__ import annotations

from pathlib import Path

import pytest

import collsim
from collsim.cli import main

MATRIX = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity
GPU0\t X \tNV1\tNV1\tNV2\t0-19
GPU1\tNV1\t X \tNV2\tNV1\t0-19
GPU2\tNV1\tNV2\t X \tNV1\t0-19
GPU3\tNV2\tNV1\tNV1\t X \t0-19
"""
BARE = """\
<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:10:1c.0" class="0x030200" link_speed="8 GT/s" link_width="16"/>
    <pci busid="0000:10:1d.0" class="0x030200" link_speed="8 GT/s" link_width="16"/>
    <pci busid="0000:10:1e.0" class="0x020700" link_speed="8 GT/s" link_width="16">
      <nic><net name="mlx5_0" dev="0" speed="100000" port="1" guid="0x1" maxconn="1" gdr="1"/></nic>
    </pci>
  </cpu>
</system>
"""


def call(*words: object) -> int:
    return main(["convert", *map(str, words)])


def test_a_table_becomes_a_machine_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matrix, machine = tmp_path / "matrix.txt", tmp_path / "machine.yaml"
    matrix.write_text(MATRIX)
    assert call(matrix, machine, "--gpu", "v100") == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0] == f"# {matrix} (a table of nvidia-smi topo -m) -> {machine} (a collsim topology)"
    assert all(line.startswith("# ") for line in said.splitlines())
    assert all(len(line) <= 118 for line in said.splitlines()[1:-1])
    assert "assumed" in said or "reckons" in said
    assert main(["run", str(machine), "all_reduce", "-b", "1M", "-e", "1M", "--json"]) == 0
    written = capsys.readouterr().out
    assert main(["run", str(matrix), "all_reduce", "-b", "1M", "-e", "1M", "--json"]) == 2
    assert "gpu" in capsys.readouterr().err
    assert '"busbw_GBps"' in written


def test_every_command_takes_files_of_other_tools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.yml"
    path.write_text("topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n")
    for words in (
        ["run", path, "all_reduce", "-b", "1M", "-e", "1M"],
        ["compare", path, "all_reduce", "-b", "1M", "-e", "1M"],
        ["bound", path, "all_reduce"],
        ["explain", path, "all_reduce", "-b", "1M"],
        ["topology", "show", path],
    ):
        assert main(list(map(str, words))) == 0
        assert "net" in capsys.readouterr().out


def test_partial_files_are_filled_and_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "bare.xml", tmp_path / "out.yaml"
    source.write_text(BARE)
    assert call(source, target) == 2
    refused = capsys.readouterr()
    assert refused.out == ""
    assert "--gpu" in refused.err
    assert not target.exists()
    assert call(source, target, "--gpu", "t4", "--nodes", "3") == 0
    topology = collsim.load_topology(target)
    assert topology.n_ranks == 6
    assert topology.kinds.count("nic") == 3


def test_the_screen_is_a_file_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("dgx-h100", "-") == 0
    text = capsys.readouterr().out
    from collsim.topology.file import loads

    assert loads(text) == collsim.load_topology("dgx-h100")
    assert call("torus-4x4", "-", "--to", "graphml") == 0
    assert capsys.readouterr().out.startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ring8", "ring.docx"], "ring.docx: expected a name that ends in"),
        (["ring8", "none/ring.yaml"], "none/ring.yaml: no such directory; make it first"),
        (["none.xml", "ring.yaml"], "none.xml: expected a topology file, got no such file"),
        (["nonsense", "ring.yaml"], "nonsense: expected a topology file or a shipped machine"),
        (
            ["ring8", "ring.yaml", "--to", "nccl"],
            "--to: expected one of collsim, infragraph, astra_sim, simgrid, graphml",
        ),
        (["ring8", "ring.yaml", "--from", "nccll"], "--from: expected one of collsim, nccl,"),
        (["ring8", "ring.yaml", "--from", "nccl"], "ring8: expected an NCCL topology, got no such file"),
        (["ring8", "ring.yaml", "--nodes", "0"], "--nodes: expected a whole number from 1, got '0'"),
        (["ring8", "ring.yaml", "--nodes", "²"], "--nodes: expected a whole number from 1"),
        (["ring8", "ring.yaml", "--nodes", "2"], "nodes: ring8 is a collsim topology, which has no such option"),
        (["ring8", "ring.yaml", "--rate", "pcie"], "--rate: expected NAME=RATE such as pcie=24GB/s, got 'pcie'"),
        (["ring8", "ring.yaml", "--scale", "x"], "--scale: expected a number above 0, got 'x'"),
        (["fat-tree-16", "tree.astra.yml"], "an ASTRA-sim network cannot say"),
    ],
)
def test_wrong_calls_are_one_line_and_leave_nothing(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(*words) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_never_written_over_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ring.yaml"
    collsim.topology.save_topology(collsim.topology.ring(4, bandwidth="1GB/s", latency="1us"), path)
    before = path.read_text()
    assert call(path, tmp_path / "." / "ring.yaml") == 2
    assert "expected another file than the input, got the same" in capsys.readouterr().err
    assert path.read_text() == before
