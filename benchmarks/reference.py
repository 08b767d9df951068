"""Speed of the reference engine, the proof and the builder: ``python -m benchmarks.reference``.

Prints a table and writes it to ``benchmarks/results/``. Run by hand on a quiet machine; each row runs in a process of
its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import math
import time

from benchmarks.machine import own_process, peak_mib, slope, write

ROWS = [
    ("engine, ring all_reduce over a switch, cut_through", "simulate", [64, 128, 256, 512], "cut_through"),
    ("engine, ring all_reduce over a switch, store_and_forward", "simulate", [256], "store_and_forward"),
    ("engine, ring all_reduce over a switch, alpha_beta", "simulate", [256], "alpha_beta"),
    ("engine, ring all_reduce over a switch, fluid", "simulate", [32, 64, 128], "fluid"),
    ("proof of ring all_reduce, whole", "check", [256, 1024, 4096], ""),
    ("proof of ring all_reduce, a sample", "check", [16384, 100_000], ""),
    ("building ring all_reduce", "build", [1_000, 10_000, 100_000], ""),
]


def measure(kind: str, n: int, network: str) -> dict[str, float]:
    """Run one row in this process: best of a few runs, seconds, transfers and the memory that the work added."""
    import collsim
    from collsim.engine.lowering.lower import lower
    from collsim.engine.reference import run_reference

    schedule = collsim.algorithms.ring_all_reduce(n if kind != "build" else 8)
    transfers = collsim.algorithms.ring_all_reduce(n).transfers if kind != "build" else 2 * (n - 1) * n
    topo = collsim.topology.switch(n if kind == "simulate" else 8, bandwidth="50GB/s", latency="500ns")
    if kind == "simulate":
        run_reference(lower(collsim.algorithms.ring_all_reduce(8), collsim.topology.switch(8), 8), network)  # imports
    before = peak_mib()
    best, parts = math.inf, {}
    for _ in range(3 if n < 10_000 or kind == "build" else 1):
        start = time.perf_counter()
        if kind == "simulate":
            program = lower(schedule, topo, n * 1_000_000)
            lowered = time.perf_counter()
            times = run_reference(program, network)
            done = time.perf_counter()
            assert times.makespan > 0
            if done - start < best:
                parts = {"lower": lowered - start, "run": done - lowered}
        elif kind == "check":
            assert collsim.check(schedule).moves > 0
        else:
            assert collsim.algorithms.ring_all_reduce(n).transfers == transfers
        best = min(best, time.perf_counter() - start)
    return {"n": n, "transfers": transfers, "seconds": best, "added_mib": peak_mib() - before, **parts}


def main() -> None:
    """Run all rows and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--row", nargs=3, metavar=("KIND", "N", "NETWORK"), help="run one row and print JSON")
    arguments = parser.parse_args()
    if arguments.row:
        kind, n, network = arguments.row
        print(json.dumps(measure(kind, int(n), network)))
        return
    lines = ["| work | N | transfers | seconds | of it lowering | transfers/s | added memory (MiB) |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for title, kind, sizes, network in ROWS:
        points = []
        for n in sizes:
            row = own_process("benchmarks.reference", kind, str(n), network)
            points.append((row["transfers"], row["seconds"]))
            lowering = f"{row['lower']:.3f}" if "lower" in row else ""
            # repeats and samples do not touch every transfer: a rate would flatter
            rate = f"{row['transfers'] / row['seconds']:,.0f}" if kind == "simulate" or "whole" in title else ""
            line = (
                f"| {title} | {n:,} | {row['transfers']:,} | {row['seconds']:.4f} | {lowering} | {rate} | "
                f"{row['added_mib']:.0f} |"
            )
            lines.append(line)
            print(line, flush=True)
        if len(points) > 1:
            power = slope(points)
            lines.append(f"| growth: seconds go with transfers to the power of | {power:.2f} | | | | | |")
    write("reference", "Reference engine", "one core; best of three", lines)


if __name__ == "__main__":
    main()
