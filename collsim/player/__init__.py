"""The step player: one HTML file that shows a run, chunk by chunk, without a network.

Jinja2 is loaded when a page is made, not when this package is imported.
"""

from __future__ import annotations

from collsim.player.limits import check_player_path, refuse_beyond_player
from collsim.player.page import notebook_html, player_html, write_player

__all__ = ["check_player_path", "notebook_html", "player_html", "refuse_beyond_player", "write_player"]
