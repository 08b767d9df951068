"""collsim: simulate collective communication, prove the data, time the links, compare with theory.

A `Collective` says what every rank holds before and after. An algorithm is a plain function that returns a `Schedule`:
steps of chunk transfers that get there. A `Topology` is a graph of devices and links. `simulate` executes a schedule
event by event and returns a `Result`; theory says what the time ought to be and the least that it could be.

>>> import collsim
>>> topo = collsim.topology.ring(8, bandwidth="50GB/s", latency="1us")
>>> result = collsim.run("all_reduce", topo, size="1GiB", algorithm="ring")
>>> f"{result.time * 1e3:.2f} ms, {result.busbw / 1e9:.1f} GB/s"
'37.59 ms, 50.0 GB/s'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Names are loaded when they are first used, so that importing the package costs nothing (``collsim --help`` is quick).
_HOME = {
    "Collective": "collsim.collective",
    "Comparison": "collsim.engine.compare",
    "Proof": "collsim.schedule.check",
    "Result": "collsim.engine.result",
    "Schedule": "collsim.schedule",
    "ScheduleBuilder": "collsim.schedule",
    "Topology": "collsim.topology",
    "algorithm": "collsim.algorithms",
    "check": "collsim.schedule.check",
    "compare": "collsim.engine.compare",
    "execute": "collsim.schedule.execute",
    "load_topology": "collsim.topology",
    "run": "collsim.engine.simulate",
    "simulate": "collsim.engine.simulate",
    "window": "collsim.schedule.window",
}
_ROOMS = (
    "algorithms", "collective", "engine", "errors", "flows", "forests", "formats", "hardware", "nccl", "player", "plot",
    "report", "schedule", "testing", "theory", "topology", "traces", "units",
)  # fmt: skip

__all__ = [
    "Collective",
    "Comparison",
    "Proof",
    "Result",
    "Schedule",
    "ScheduleBuilder",
    "Topology",
    "algorithm",
    "algorithms",
    "check",
    "compare",
    "execute",
    "load_topology",
    "plot",
    "run",
    "schedule",
    "simulate",
    "theory",
    "topology",
    "window",
]

if TYPE_CHECKING:
    from collsim import algorithms, plot, schedule, theory, topology
    from collsim.algorithms import algorithm
    from collsim.collective import Collective
    from collsim.engine.compare import Comparison, compare
    from collsim.engine.result import Result
    from collsim.engine.simulate import run, simulate
    from collsim.schedule import Schedule, ScheduleBuilder
    from collsim.schedule.check import Proof, check
    from collsim.schedule.execute import execute
    from collsim.schedule.window import window
    from collsim.topology import Topology, load_topology


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    if name in _ROOMS:
        return importlib.import_module(f"collsim.{name}")
    raise AttributeError(f"module 'collsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_ROOMS})
