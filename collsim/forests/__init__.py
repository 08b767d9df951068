"""Forests: trees packed into a machine, out of plain arrays. Nothing here knows topologies or schedules."""

from __future__ import annotations

from collsim.forests.check import refuse_wrong
from collsim.forests.model import Branch, Forest, Part, Tree, Wires, turned
from collsim.forests.packing import pack, pack_both

__all__ = ["Branch", "Forest", "Part", "Tree", "Wires", "pack", "pack_both", "refuse_wrong", "turned"]
