"""What all benchmarks share: the class of the machine, rows in processes of their own, growth."""

from __future__ import annotations

import json
import math
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def machine() -> str:
    """Return the class of machine, without names."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def peak_mib() -> float:
    """Return the most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def own_process(module: str, *row: str) -> dict[str, Any]:
    """Run one row of a benchmark in a process of its own, so that its peak memory is its own."""
    command = [sys.executable, "-m", module, "--row", *row]
    found: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return found


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the power with which y grows with x: the slope of a least-squares line through the logarithms."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


def write(name: str, title: str, note: str, lines: Sequence[str]) -> None:
    """Write a table to the results, with the date and the class of the machine."""
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{name}-{date.today().isoformat()}.md"
    head = [f"# {title}, {date.today().isoformat()}", "", f"Machine: {machine()}; {note}.", ""]
    target.write_text("\n".join([*head, *lines]) + "\n")
    print(f"written to {target.name}")
