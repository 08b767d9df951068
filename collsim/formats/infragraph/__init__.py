"""InfraGraph documents: machines as devices made of components, instances of them, and the edges between these.

Both grammars are read: the edges of today (``ep1: {component: "xpu[0:8]"}``, one2one, many2many) and the dotted
connections of the first versions (``cpu.0.pcie.pciesw.1``); written are edges. Facts about the format come from
InfraGraph's schema (github.com/Keysight/infragraph, MIT), version 3.1.
"""

from __future__ import annotations

from collsim.formats.infragraph.reading import parse_infragraph, read_infragraph
from collsim.formats.infragraph.writing import format_infragraph, write_infragraph

__all__ = ["format_infragraph", "parse_infragraph", "read_infragraph", "write_infragraph"]
