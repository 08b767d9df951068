"""Results written as nccl-tests prints them, and as the JSON that its ``-J`` writes.

Source of the layouts: NVIDIA/nccl-tests. Text: ``src/common.cu`` of 2.13 to 2.17.1, what parsers were written for (from
2.17.8 on lines with versions come first and ``#wrong`` is one column wider, which is the same to whoever splits at
blanks). JSON: ``src/util.cu`` of 2.17.8, version 1 of the document. Counts and sizes: ``src/all_gather.cu`` and the
like.

What a simulation does not have is written so that nobody takes it for a measurement: process 0, bus numbers that are
the numbers of the devices, GPUs "simulated by collsim", no environment, NCCL version 0. A repetition would give the
same time, so there is one iteration and none to warm up. Out of place and in place are the same simulation. One comment
before the first line of nccl-tests says what was simulated.
"""

from __future__ import annotations

from collsim.formats.nccl_tests_out.document import check_nccl_tests_path, write_nccl_tests
from collsim.formats.nccl_tests_out.layout import (
    Device,
    Half,
    Line,
    Setup,
    format_foot,
    format_head,
    format_line,
    format_start,
    format_time,
)
from collsim.formats.nccl_tests_out.lines import (
    PROGRAMS,
    count_of,
    devices,
    format_nccl_tests,
    line_of,
    program_of,
    rounded_size,
    title_of,
)

__all__ = [
    "PROGRAMS",
    "Device",
    "Half",
    "Line",
    "Setup",
    "check_nccl_tests_path",
    "count_of",
    "devices",
    "format_foot",
    "format_head",
    "format_line",
    "format_nccl_tests",
    "format_start",
    "format_time",
    "line_of",
    "program_of",
    "rounded_size",
    "title_of",
    "write_nccl_tests",
]
