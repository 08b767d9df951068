"""Traces of results, for the viewers and analysers that people already have.

`write_perfetto` writes one file in Chrome's trace format, which https://ui.perfetto.dev and chrome://tracing open;
`write_kineto` one file a rank, as PyTorch's profiler does, for Holistic Trace Analysis.
"""

from __future__ import annotations

from collsim.traces.kineto import write_kineto
from collsim.traces.perfetto import check_trace_path, write_perfetto

__all__ = ["check_trace_path", "write_kineto", "write_perfetto"]
