"""Pictures of results: functions that draw into given axes (or make some) and return them; nothing is shown.

matplotlib is loaded when a function is called, not when this package is imported.
"""

from __future__ import annotations

from collsim.plot.common import check_picture_path, save_picture
from collsim.plot.contributions import chunk_grid
from collsim.plot.costs import cost_breakdown
from collsim.plot.curves import bandwidth_curve
from collsim.plot.heatmap import link_heatmap
from collsim.plot.layout import node_positions
from collsim.plot.machine import topology
from collsim.plot.timeline import save_timeline, timeline
from collsim.plot.usage import utilisation_bars

__all__ = [
    "bandwidth_curve",
    "check_picture_path",
    "chunk_grid",
    "cost_breakdown",
    "link_heatmap",
    "node_positions",
    "save_picture",
    "save_timeline",
    "timeline",
    "topology",
    "utilisation_bars",
]
