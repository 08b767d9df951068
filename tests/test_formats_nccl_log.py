"""Rings and trees out of what NCCL prints."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import collsim
from collsim.cli import main
from collsim.errors import InputError
from collsim.formats import read_nccl_log
from collsim.formats.nccl_log import NcclGraph
from collsim.schedule.check import check

SAMPLES = Path(__file__).parents[2] / "shared" / "samples"


def log_of(
    rings: list[list[int]], trees: list[list[int]], *, graph: bool = False, host: str = "n0", comm: str = "0xfeed"
) -> str:
    """Write what NCCL prints for these rings and trees (parents), every rank its own lines."""
    ranks = len((rings or trees)[0])
    lines = ["noise", f"{host}:10:10 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.2<0>", "NCCL version 2.20.5+cuda12.4"]
    for rank in range(ranks):
        who = f"{host}:{10 + rank}:{90 + rank} [{rank}] NCCL INFO"
        lines.append(
            f"{who} comm 0x55ba65abd9d{rank % 10} rank {rank} nranks {ranks} cudaDev {rank} nvmlDev {rank} busId a4000 "
            f"commId {comm} - Init START"
        )
    for rank in range(ranks):
        who = f"{host}:{10 + rank}:{90 + rank} [{rank}] NCCL INFO"
        places = []
        for channel, parents in enumerate(trees):
            down = ([child for child in range(ranks) if parents[child] == rank] + [-1, -1, -1])[:3]
            places.append(f"[{channel}] {'/'.join(map(str, down))}->{rank}->{parents[rank]}")
        if places:
            lines.append(f"{who} Trees {' '.join(places)}")
        if graph:
            for channel, ring in enumerate(rings):
                at = ring.index(rank)
                lines.append(f"{who} Ring {channel:02d} : {ring[at - 1]} -> {rank} -> {ring[(at + 1) % ranks]}")
        if rank == 0:
            for channel, ring in enumerate(rings):
                turned = ring[ring.index(0) :] + ring[: ring.index(0)]
                printed = "".join(f" {r:3d}" for r in turned[:20])
                lines.append(f"{who} Channel {channel:02d}/{len(rings):02d} :{printed}")
    lines.append(f"{host}:10:90 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/direct pointer/read")
    return "\n".join(lines) + "\n"


RINGS = [[0, 1, 2, 3], [0, 3, 2, 1], [0, 2, 1, 3]]
TREES = [[-1, 0, 1, 2], [1, -1, 1, 2]]


def read(tmp_path: Path, text: str) -> NcclGraph:
    path = tmp_path / "nccl.log"
    path.write_text(text)
    return read_nccl_log(path)


@pytest.mark.parametrize("graph", [False, True])
def test_rings_and_trees_come_back(tmp_path: Path, graph: bool) -> None:
    found = read(tmp_path, log_of(RINGS, TREES, graph=graph))
    assert found == NcclGraph(4, tuple(map(tuple, RINGS)), tuple(map(tuple, TREES)), "2.20.5+cuda12.4", 1)
    assert found.channels == 3


def test_they_run(tmp_path: Path) -> None:
    found = read(tmp_path, log_of(RINGS, TREES))
    topology = collsim.topology.switch(4, bandwidth="100GB/s", latency="1us")
    rings = collsim.run("all_reduce", topology, 1 << 20, algorithm="ring", order=found.rings, channels=3)
    trees = collsim.run("all_reduce", topology, 1 << 20, algorithm="nccl_tree", parents=found.trees)
    block = rings.schedule.phases[0].block
    pairs = set(zip(block.channel.tolist(), block.src.tolist(), block.dst.tolist(), strict=True))
    assert (1, 0, 3) in pairs
    assert (2, 0, 2) in pairs
    assert check(trees.schedule)
    assert rings.time > 0 < trees.time


def test_the_command_line_runs_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "nccl.log"
    log.write_text(log_of(RINGS, TREES))
    machine = tmp_path / "machine.yaml"
    collsim.topology.save_topology(collsim.topology.switch(4, bandwidth="100GB/s", latency="1us"), machine)
    for algorithm in ("ring", "nccl_tree"):
        call = ["run", str(machine), "all_reduce", "-a", algorithm, "-b", "1M", "-e", "1M", "--json", "--nccl-log"]
        assert main([*call, str(log)]) == 0
        (row,) = json.loads(capsys.readouterr().out)["results"]
        # 3 rings of 4 ranks in 2 x 3 steps; 2 trees of 3 edges, up and down, in 32 slices
        assert row["transfers"] == (3 * 4 * 6 if algorithm == "ring" else 2 * 3 * 2 * 32)
    assert main(["run", str(machine), "broadcast", "--nccl-log", str(log)]) == 2
    assert "expected rings that are all one, got broadcast by ring" in capsys.readouterr().err
    assert main(["run", str(machine), "all_reduce", "-a", "pat", "--nccl-log", str(log)]) == 2
    assert "expected -a ring or -a nccl_tree, got all_reduce by pat" in capsys.readouterr().err
    assert main(["run", str(machine), "all_reduce", "-p", "channels=3", "--nccl-log", str(log)]) == 2
    assert "channels is given, and --nccl-log gives it too" in capsys.readouterr().err
    assert main(["explain", "ring8", "all_reduce", "--nccl-log", str(log)]) == 2
    assert "expected a log of the 8 ranks of the topology, got one of 4" in capsys.readouterr().err


def test_long_rings_need_the_lines_of_every_rank(tmp_path: Path) -> None:
    ring = [*range(0, 24, 2), *range(23, 0, -2)]
    assert read(tmp_path, log_of([ring], [], graph=True)).rings == (tuple(ring),)
    with pytest.raises(
        InputError, match=r"nccl\.log:\d+: expected all 24 ranks .* first 20 only; set NCCL_DEBUG_SUBSYS"
    ):
        read(tmp_path, log_of([ring], []))


def test_the_largest_communicator_is_taken(tmp_path: Path) -> None:
    small = log_of([[0, 1]], [[-1, 0]], host="m0", comm="0x1")
    found = read(tmp_path, small + log_of(RINGS, TREES))
    assert (found.ranks, found.communicators, found.rings) == (4, 2, tuple(map(tuple, RINGS)))


def test_threads_of_two_communicators_are_kept_apart(tmp_path: Path) -> None:
    one, two = log_of(RINGS, TREES, host="a", comm="0x1"), log_of([[0, 1, 2]], [[-1, 0, 1]], host="b", comm="0x2")
    mixed = [line for pair in zip(one.splitlines(), two.splitlines() + [""] * 99, strict=False) for line in pair]
    assert read(tmp_path, "\n".join(mixed)).rings == tuple(map(tuple, RINGS))


def test_prefixes_escapes_and_other_text_do_no_harm(tmp_path: Path) -> None:
    text = "".join(
        f"[1,0]<stdout>: \x1b[32m2024-01-01T00:00:00Z {line}\x1b[0m\r\n" for line in log_of(RINGS, TREES).splitlines()
    )
    assert read(tmp_path, "\ufeff" + text).trees == tuple(map(tuple, TREES))


def test_without_a_start_line_all_is_one_communicator(tmp_path: Path) -> None:
    text = "\n".join(line for line in log_of(RINGS, TREES).splitlines() if "Init START" not in line)
    assert read(tmp_path, text).rings == tuple(map(tuple, RINGS))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing here\n", "expected lines of NCCL such as"),
        ("", "expected lines of NCCL such as"),
        (
            log_of(RINGS, TREES).replace("Channel 01/03 :   0   3   2   1", "Channel 01/03 :   0   3   2   3"),
            "got 3 twice",
        ),
        (log_of(RINGS, TREES) + log_of([[0, 1, 2, 3]] * 3, TREES), "expected one ring for channel 1, got another"),
        (log_of(RINGS, TREES).replace("->2->1", "->2->9"), "expected a parent from -1 to 3, got 9 for rank 2"),
        (
            log_of(RINGS, TREES).replace("[2] NCCL INFO Trees", "[2] NCCL INFO Boughs"),
            "got none of rank 2 for channel 0",
        ),
        ("h:1:1 [0] NCCL INFO Channel 00/99 : 999999999\n", "expected at most 1,048,576 ranks, got 1,000,000,000"),
        ("h:1:1 [0] NCCL INFO Trees [9999] -1->0->-1\n", "expected at most 1,023 as number of a channel, got 9,999"),
        ("h:1:1 [0] NCCL INFO Trees [0] -1/-1/-1->0->-1\n\0", "is it a binary file?"),
        ("x" * (1 << 20) + "y", "expected lines of at most 1,048,576 bytes"),
    ],
)
def test_what_does_not_hold_together_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=r"nccl\.log") as refused:
        read(tmp_path, text)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got a directory; name the file in it"):
        read_nccl_log(tmp_path)
    with pytest.raises(InputError, match="got no such file"):
        read_nccl_log(tmp_path / "missing.log")


def test_the_first_versions_write_parents_first(tmp_path: Path) -> None:
    rows = [(0, -1, 1), (1, 0, 2), (2, 1, 3), (3, 2, -1)]
    for form in ("{up}->{rank}->{down}/-1/-1", "{up}->{rank}->{down}/-1/-1|{up}->{rank}->{down}/-1/-1"):
        lines = [
            f"h:1:{9 + rank} [0] NCCL INFO Trees [0] {form.format(up=up, rank=rank, down=down)}"
            for rank, up, down in rows
        ]
        lines.append("h:1:9 [0] NCCL INFO Channel 00 :    0   1   2   3")
        found = read(tmp_path, "\n".join(lines))
        assert found.trees == ((-1, 0, 1, 2),)
        assert found.rings == ((0, 1, 2, 3),)


def test_newer_versions_name_the_function(tmp_path: Path) -> None:
    def named(text: str, function: str, tail: str = "") -> str:
        return text.replace("NCCL INFO comm ", f"NCCL INFO {function} comm ").replace(
            " - Init START", f"{tail} - Init START"
        )

    text = named(log_of(RINGS, TREES, comm="0x1"), "ncclCommInitRank")
    text += named(log_of([[0, 1, 2, 3]], [], comm="0x2", host="n1"), "ncclCommInitRankConfig")
    found = read(tmp_path, text)
    assert (found.communicators, found.rings) == (2, tuple(map(tuple, RINGS)))
    halves = ""
    for color, ring in enumerate(([0, 1], [1, 0])):
        half = log_of([ring], [], host=f"h{color}").replace(" commId 0xfeed", "")
        halves += named(half, "ncclCommSplit", f" parent 0x5{color} splitCount 1 color {color} key 0")
    assert read(tmp_path, halves).communicators == 2


def test_trees_with_two_roots_are_refused_by_the_name_of_the_log(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nccl\.log: expected one root in the tree of channel 0, got 2"):
        read(tmp_path, log_of([], [[-1, 0, -1]]))


def test_long_rows_of_digits_take_no_time(tmp_path: Path) -> None:
    for text in ("0" * 3000 + "x", "1 " * 3000 + "x", "comm 0x1 rank 1 nranks 2 " + "- Init " * 20_000, "[" * 9000):
        for line in (f"Channel 00/24 : {text}", f"Trees {text}", text):
            with pytest.raises(InputError, match="expected lines of NCCL"):
                read(tmp_path, f"h:1:1 [0] NCCL INFO {line}\n")


def test_garbage_is_refused_or_read_but_never_breaks(tmp_path: Path) -> None:
    rng, base = random.Random(7), log_of(RINGS, TREES, graph=True).encode()
    path = tmp_path / "nccl.log"
    outcomes = set()
    for _ in range(300):
        data = bytearray(base)
        for _ in range(rng.randint(1, 8)):
            at = rng.randrange(len(data))
            piece = rng.choice(
                [b"", b"0", b"-1", b"99999999999", bytes([rng.randrange(256)]), bytes(data[at : at + 60])]
            )
            data[at : at + rng.randint(0, 40)] = piece
        path.write_bytes(data)
        try:
            found: NcclGraph | str = read_nccl_log(path)
        except InputError as refused:
            found = str(refused)
        outcomes.add(type(found))
        assert isinstance(found, NcclGraph) or found.startswith(str(path))
    assert outcomes == {NcclGraph, str}


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="samples of other tools are not here")
def test_the_sample_of_two_gpus() -> None:
    found = read_nccl_log(SAMPLES / "nccl_tests_2xA100.log")
    assert (found.ranks, found.channels, found.communicators) == (2, 24, 1)
    assert set(found.rings) == {(0, 1)}
    assert [tree.index(-1) for tree in found.trees] == ([0] * 6 + [1] * 6) * 2
