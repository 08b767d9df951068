"""Pictures of results: functions that draw into given axes (or make some) and return them; nothing is shown.

matplotlib is loaded when a function is called, not when this package is imported.
"""

from __future__ import annotations

from collsim.plot.timeline import check_picture_path, save_timeline, timeline

__all__ = ["check_picture_path", "save_timeline", "timeline"]
