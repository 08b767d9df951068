"""How public programs read logs of nccl-tests: their assumptions about the layout, in our own words.

Each reader returns rows as tuples of (size, time, algbw, busbw), out of place unless it says otherwise.
"""

from __future__ import annotations

import re


def read_by_headings(text: str, in_place: bool = False) -> list[tuple[float, ...]]:
    """As microsoft/superbenchmark does (superbench/benchmarks/micro_benchmarks/cuda_nccl_bw_performance.py).

    The table lies between the line with ``out-of-place`` and that with ``Out of bounds values``. A line with ``time``
    and ``busbw`` has the headings, behind one ``#``; columns are counted from the right, because others may be empty
    and the units are on a line of their own. Rows begin with a digit; those of size 0 do not count.
    """
    lines = text.splitlines()
    first = max(i for i, line in enumerate(lines) if "out-of-place" in line)
    last = max(i for i, line in enumerate(lines) if "Out of bounds values" in line)
    table = lines[first + 1 : last]
    headings = next(line for line in table if "time" in line and "busbw" in line)[1:].split()
    backwards = headings[::-1]
    where = {
        name: -1 - backwards.index(name) if in_place else headings.index(name) - len(headings)
        for name in ("time", "algbw", "busbw")
    }
    rows = [line.split() for line in table if line.split() and line.split()[0][0].isdigit()]
    return [
        (int(row[headings.index("size")]), *(float(row[where[name]]) for name in ("time", "algbw", "busbw")))
        for row in rows
        if int(row[0])
    ]


def read_by_words(text: str, in_place: bool = False) -> list[tuple[float, ...]]:
    """As NVIDIA/cloudai does (src/cloudai/workloads/nccl_test/performance_report_generation_strategy.py).

    A row is any line that begins with a digit and has thirteen words, wherever it stands.
    """
    at = 9 if in_place else 5
    rows = [line.split() for line in text.splitlines() if re.match(r"\d", line.strip())]
    return [(int(row[0]), *map(float, row[at : at + 3])) for row in rows if len(row) == 13]


def read_devices(text: str) -> tuple[int, int, str]:
    """Return ranks, devices of a host, and the GPU, as NVIDIA/cloudai does (the same file).

    A device is a line with the words Rank, device and NVIDIA; hosts are letters, digits, dashes and points.
    """
    highest: dict[str, int] = {}
    ranks, gpu = 0, "Unknown"
    for line in text.splitlines():
        if all(word in line for word in ("Rank", "device", "NVIDIA")):
            ranks += 1
            place = re.search(r"on\s+([\w.-]+)\s+device\s+(\d+)", line)
            assert place is not None
            highest[place[1]] = max(highest.get(place[1], -1), int(place[2]))
            name = re.search(r"NVIDIA\s+(\S.*)", line)
            assert name is not None
            gpu = name[1].strip()
    return ranks, max(highest.values(), default=-1) + 1, gpu


def read_by_pattern(text: str) -> tuple[list[tuple[float, ...]], float]:
    """As a converter to CSV among Amazon's samples does (MIT-0, "Complete NCCL to CSV Converter").

    One pattern for a whole row: known types and operators, plain decimals without exponents, ``#wrong`` a whole number
    or N/A. The mean comes from the line of the footer.
    """
    number = r"(\d+\.?\d*)"
    half = rf"{number}\s+{number}\s+{number}\s+(\d+|N/A)"
    row = re.compile(
        rf"\s*(\d+)\s+(\d+)\s+(?:float|double|int|half)\s+(?:sum|prod|max|min|none)\s+(-?\d+)\s+{half}\s+{half}"
    )
    found = [match for match in map(row.match, text.splitlines()) if match]
    mean = re.search(rf"# Avg bus bandwidth\s*:\s*{number}", text)
    assert mean is not None
    return [(int(m[1]), float(m[4]), float(m[5]), float(m[6])) for m in found], float(mean[1])
