"""Speed and memory of the trace writers: ``python -m benchmarks.traces``.

Prints a table and writes it to ``benchmarks/results/``. Run by hand on a quiet machine; each row runs in a process of
its own, so that its peak memory is its own. A ring all_reduce on 708 ranks is a million transfers; over a switch each
crosses two links.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from benchmarks.machine import own_process, peak_mib, slope, write

RANKS = [71, 224, 708]
ROWS = [
    ("Perfetto, plain", "perfetto.json"),
    ("Perfetto, compressed", "perfetto.json.gz"),
    ("Kineto, compressed", "kineto"),
]


def measure(kind: str, ranks: int) -> dict[str, float]:
    """Run one row in this process."""
    import collsim

    topology = collsim.topology.switch(ranks, bandwidth="50GB/s", latency="500ns", reduce_bandwidth="500GB/s")
    result = collsim.run("all_reduce", topology, ranks * 1_000_000, algorithm="ring", records=True, check=False)
    simulated = peak_mib()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, kind)
        start, cpu = time.perf_counter(), time.process_time()
        if kind == "kineto":
            result.to_kineto(target)
        else:
            result.to_perfetto(target)
        seconds, busy = time.perf_counter() - start, time.process_time() - cpu
        files = list(target.iterdir()) if target.is_dir() else [target]
        written = sum(path.stat().st_size for path in files)
    return {
        "transfers": result.transfers, "seconds": seconds, "cpu": busy, "written": written / 1e6,
        "simulated": simulated, "peak": peak_mib(),
    }  # fmt: skip


def main() -> None:
    """Run all rows and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--row", nargs=2, metavar=("KIND", "RANKS"), help="run one row and print JSON")
    parser.add_argument("--note", default="one core", help="what to say of the machine")
    arguments = parser.parse_args()
    if arguments.row:
        print(json.dumps(measure(arguments.row[0], int(arguments.row[1]))))
        return
    lines = ["| work | transfers | seconds | CPU (s) | written (MB) | peak memory (MiB) | of it before writing (MiB) |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for title, kind in ROWS:
        points = []
        for ranks in RANKS:
            row = own_process("benchmarks.traces", kind, str(ranks))
            points.append((row["transfers"], row["seconds"]))
            line = (
                f"| {title} | {row['transfers']:,} | {row['seconds']:.2f} | {row['cpu']:.2f} | {row['written']:.0f} | "
                f"{row['peak']:.0f} | {row['simulated']:.0f} |"
            )
            lines.append(line)
            print(line, flush=True)
        lines.append(f"| growth: seconds go with transfers to the power of | {slope(points):.2f} | | | | | |")
    write("traces", "Trace writers", arguments.note, lines)


if __name__ == "__main__":
    main()
