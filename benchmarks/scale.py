"""Speed and memory of the compiled engine: ``python -m benchmarks.scale``.

Prints a table and writes it to ``benchmarks/results/``. Run by hand on a quiet machine; each row runs in a process of
its own, after a small run of the same kind has loaded the compiled code.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import own_process, peak_mib, slope, write

MIB = 1 << 20


def ring(n: int, machine: str, way: str) -> dict[str, Any]:
    """Ring all_reduce of n MiB: lowered, then run by the jump, the sweep or the queue, without records."""
    import collsim
    from collsim.engine.lowering.roll import roll

    topology, order = MACHINES[machine](n)
    schedule = collsim.algorithms.ring_all_reduce(n, order=order)
    topology.routes(np.array(order), np.roll(order, -1))  # finding routes is a row of its own
    lowering, loops = timed(lambda: roll(schedule, topology, n * MIB))
    return engine(loops, lowering, "cut_through", way)


def written_out(n: int, machine: str, way: str) -> dict[str, Any]:
    """Ring all_reduce of n MiB as a program without repeats: every transfer is lowered and queued by itself."""
    import collsim
    from collsim.engine.lowering.roll import roll

    topology, order = MACHINES[machine](n)
    schedule = without_repeats(collsim.algorithms.ring_all_reduce(n, order=order))
    lowering, loops = timed(lambda: roll(schedule, topology, n * MIB))
    return engine(loops, lowering, "cut_through", way)


def double_tree(n: int, machine: str, way: str) -> dict[str, Any]:
    """Double binary tree all_reduce of 64 MiB in 64 slices; building the schedule counts as lowering."""
    import collsim
    from collsim.engine.lowering.roll import roll

    topology, order = MACHINES[machine](n)

    def lowered() -> Any:
        schedule = collsim.algorithms.build("all_reduce", "double_binary_tree", n, slices=64, order=order)
        return roll(schedule, topology, 64 * MIB)

    lowering, loops = timed(lowered)
    return engine(loops, lowering, "cut_through", way)


def contended(n: int, machine: str, way: str) -> dict[str, Any]:
    """n transfers over 2 of 1,000 links each, with random sizes and up to two predecessors among the last 5,000."""
    from collsim.engine.loops import loops_of

    return engine(loops_of(contended_program(n, spread=machine == "random")), 0.0, "cut_through", way)


def all_to_all(n: int, machine: str, way: str) -> dict[str, Any]:
    """Everybody sends 64 KiB to everybody in one step, in the fluid model."""
    from collsim import Collective, ScheduleBuilder
    from collsim.engine.lowering.roll import roll

    topology, _ = MACHINES[machine](n)
    builder = ScheduleBuilder(Collective("all_to_all", n), n * n, in_place=False)
    src, dst = np.nonzero(~np.eye(n, dtype=bool))
    builder.copy(src, dst, src * n + dst, src_buffer="input", dst_chunk=src * n + dst, dst_buffer="output")
    schedule = builder.build()
    lowering, loops = timed(lambda: roll(schedule, topology, n * n * 64 * 1024))
    return engine(loops, lowering, "fluid", way)


def incast(n: int, machine: str, way: str) -> dict[str, Any]:
    """n ranks send messages of different sizes to one, in the fluid model."""
    from collsim import Collective, ScheduleBuilder
    from collsim.engine.lowering.roll import roll

    topology, _ = MACHINES[machine](n + 1)
    layout = [(1, 1000 + 7 * rank) for rank in range(n)]
    builder = ScheduleBuilder(Collective("reduce", n + 1), n, layout=layout)
    builder.reduce(np.arange(1, n + 1), 0, np.arange(n))
    lowering, loops = timed(lambda: roll(builder.build(), topology, sum(size for _, size in layout)))
    return engine(loops, lowering, "fluid", way)


def whole_ring(n: int, machine: str, way: str) -> dict[str, Any]:
    """A process that builds the machine, finds the routes, proves a sample and simulates ring all_reduce of 1 GiB."""
    text = (
        "import collsim, resource; "
        f"topology = collsim.topology.rail_optimized({n // 8}, 8); "
        "result = collsim.run('all_reduce', topology, '1GiB', algorithm='ring'); "
        "print(result.transfers, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    return process([sys.executable, "-c", text])


def command(n: int, machine: str, way: str) -> dict[str, Any]:
    """``collsim run`` on 8 ranks and 28 sizes, as the README's first command."""
    sizes = ["-b", "8", "-e", "1G", "-f", "2"]
    return process([sys.executable, "-m", "collsim", "run", "dgx-h100", "all_reduce", *sizes], transfers=28 * 112)


def peers(n: int, machine: str, way: str) -> dict[str, Any]:
    """``collsim run`` of ring all_reduce of 256 MiB on a ring of 50 GB/s links: what other simulators were timed on."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ring.yaml"
        file.write_text(f"name: ring\ngenerator: {{name: ring, n: {n}, bandwidth: 50GB/s, latency: 1us}}\n")
        call = [
            sys.executable,
            "-m",
            "collsim",
            "run",
            str(file),
            "all_reduce",
            "-b",
            "256M",
            "-e",
            "256M",
            "-d",
            "int8",
        ]
        return process(call, transfers=2 * (n - 1) * n)


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    value = function()
    return time.perf_counter() - start, value


def warm() -> None:
    """Load the compiled code of the lowering."""
    import collsim
    from collsim.engine.lowering.roll import roll

    for keep in (True, False):
        roll(collsim.algorithms.ring_all_reduce(8), collsim.topology.switch(8), 8, keep=keep)


def engine(loops: Any, lowering: float, network: str, way: str) -> dict[str, Any]:
    """Run loops a few times by one way; the first run loads compiled code and does not count."""
    from collsim.engine.compiled.run import run_compiled

    options = {"sweep": way != "queue", "jump": way == "jump"}
    best, outcome = float("inf"), None
    start = time.perf_counter()
    runs = 0
    while runs < 2 or (runs < 5 and time.perf_counter() - start < 5):
        seconds, outcome = timed(lambda: run_compiled(loops, network, **options))
        best = min(best, seconds)
        runs += 1
    assert outcome is not None
    if way in ("sweep", "jump"):
        assert outcome.shortcut == way, outcome.shortcut
    return {
        "transfers": loops.transfers,
        "lower": lowering,
        "seconds": best,
        "mib": peak_mib(),
        "events": loops.visits(),
    }


def process(call: list[str], transfers: int | None = None) -> dict[str, Any]:
    """Time a whole process, the best of three, after one that fills the caches."""
    best, found = float("inf"), ""
    for _ in range(4):
        seconds, done = timed(lambda: subprocess.run(call, capture_output=True, text=True, check=True))
        best, found = min(best, seconds), done.stdout
    if transfers is not None:
        return {"transfers": transfers, "seconds": best}
    count, mib = found.split()
    return {"transfers": int(count), "seconds": best, "mib": float(mib)}


def switch(n: int) -> tuple[Any, list[int]]:
    import collsim

    return collsim.topology.switch(n, bandwidth="50GB/s", latency="500ns"), list(range(n))


def nodes_of_8(n: int) -> tuple[Any, list[int]]:
    import collsim

    topology = collsim.topology.rail_optimized(n // 8, 8)
    return topology, list(topology.ring_order())


def fat_tree(n: int) -> tuple[Any, list[int]]:
    import collsim

    return collsim.topology.fat_tree(n, 16, oversubscription=4), list(range(n))


MACHINES: dict[str, Callable[[int], tuple[Any, list[int]]]] = {
    "switch": switch, "nodes of 8": nodes_of_8, "fat tree 4:1": fat_tree,
}  # fmt: skip


def without_repeats(schedule: Any) -> Any:
    """Write a schedule of repeats as one block."""
    from dataclasses import replace

    from collsim.schedule import Block, Repeat

    t = schedule.expand()
    one = np.ones(len(t), dtype=np.int32)
    block = Block(
        step=t.step, src=t.src, src_buffer=t.src_buffer, src_chunk=t.src_chunks, dst=t.dst, dst_buffer=t.dst_buffer,
        dst_chunk=t.dst_chunks, count=one, stride=one, reduce=t.reduce, channel=t.channel,
    )  # fmt: skip
    return replace(schedule, phases=(Repeat(block),))


def contended_program(n: int, *, spread: bool) -> Any:
    """Return a flat program; without spread sizes are nearly alike, so that events come nearly in order."""
    from collsim.engine.program import LINK, Program

    rng, links = np.random.default_rng(1), 1000
    size = rng.integers(1, 10_000 if spread else 12, n)
    station = rng.integers(0, links, 2 * n)
    node = np.arange(n)
    preds = np.sort(node[:, None] - rng.integers(1, 5000, (n, 2)), axis=1)
    keep = (preds >= 0) & (rng.random((n, 2)) < 0.7)
    zero = np.zeros(n, dtype=np.int64)
    return Program(
        step=node, src=zero, dst=zero + 1, channel=zero, chunk=zero, bytes=size, reduce=zero > 0, joins=0,
        pred_ptr=np.concatenate(([0], np.cumsum(keep.sum(axis=1)))), pred=preds[keep],
        pred_issued=np.zeros(keep.sum(), dtype=bool), pred_lag=np.zeros(keep.sum(), dtype=np.int64),
        visit_ptr=np.arange(n + 1) * 2, visit_station=station, visit_busy=np.repeat(size, 2),
        visit_latency=np.full(2 * n, 1000), station_kind=np.full(links, LINK),
        station_bandwidth=np.full(links, 10**12), station_index=np.arange(links),
    )  # fmt: skip


Row = tuple[str, Callable[[int, str, str], dict[str, Any]], str, str, list[int]]
ROWS: list[Row] = [
    ("ring over a switch, jump", ring, "switch", "jump", [256, 1024, 4096, 16384]),
    ("ring over a switch, swept", ring, "switch", "sweep", [256, 1024, 4096, 16384]),
    ("ring over a switch, queue", ring, "switch", "queue", [256, 1024, 2048]),
    ("the same, written out, queue", written_out, "switch", "queue", [256, 1024]),
    ("ring in nodes of 8, jump", ring, "nodes of 8", "jump", [1024, 16384, 131072]),
    ("ring in nodes of 8, swept", ring, "nodes of 8", "sweep", [1024, 4096, 16384]),
    ("ring in nodes of 8, whole process", whole_ring, "", "", [1024, 16384, 131072]),
    ("double binary tree, 64 slices", double_tree, "switch", "auto", [4096, 16384, 65536]),
    ("contended, random times", contended, "random", "queue", [100_000, 1_000_000]),
    ("contended, nearly in order", contended, "even", "queue", [100_000, 1_000_000]),
    ("all_to_all on a 4:1 fat tree, fluid", all_to_all, "fat tree 4:1", "auto", [128, 256, 512]),
    ("incast of different sizes, fluid", incast, "switch", "auto", [250, 1000]),
    ("collsim run, 8 ranks, 28 sizes", command, "", "", [8]),
    ("collsim run, ring of 256 MiB", peers, "", "", [64, 256, 1024, 2048, 4096]),
]
HEAD = (
    "| work | N | transfers | lowering (s) | time (s) | transfers/s | visits/s | peak memory (MiB) |",
    "|---|---|---|---|---|---|---|---|",
)


def line(title: str, n: int, row: dict[str, Any]) -> str:
    """Return a row of the table."""
    rate = f"{row['transfers'] / row['seconds']:,.0f}"
    visits = f"{row['events'] / row['seconds']:,.0f}" if "events" in row else ""
    lowering = f"{row['lower']:.3f}" if row.get("lower") else ""
    mib = f"{row['mib']:.0f}" if "mib" in row else ""
    seconds = f"{row['seconds']:.4f}"
    return f"| {title} | {n:,} | {row['transfers']:,} | {lowering} | {seconds} | {rate} | {visits} | {mib} |"


def main() -> None:
    """Run all rows, or those whose title contains a text, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="?", default="", help="text that the titles of the rows must contain")
    parser.add_argument("--row", nargs=2, metavar=("INDEX", "N"), help="run one row and print JSON")
    arguments = parser.parse_args()
    if arguments.row:
        index, n = map(int, arguments.row)
        _, work, machine, way, _ = ROWS[index]
        warm()
        print(json.dumps(work(n, machine, way)))
        return
    lines = list(HEAD)
    print(*lines, sep="\n")
    for index, (title, _, _, _, sizes) in enumerate(ROWS):
        if arguments.only not in title:
            continue
        points = []
        for n in sizes:
            row = own_process("benchmarks.scale", str(index), str(n))
            points.append((n, row["seconds"]))
            lines.append(line(title, n, row))
            print(lines[-1], flush=True)
        if len(points) > 1:
            lines.append(f"| growth: time goes with N to the power of | {slope(points):.2f} | | | | | | |")
            print(lines[-1], flush=True)
    if not arguments.only:
        write("scale", "Compiled engine", "one core; best of some runs, without compilation; 1 MiB a rank", lines)


if __name__ == "__main__":
    main()
