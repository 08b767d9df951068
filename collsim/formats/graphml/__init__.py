"""GraphML: graphs of NetworkX, Gephi, yEd and igraph as machines, and machines as graphs for those.

What is read is the plain subset (http://graphml.graphdrawing.org/specification.html): keys with defaults, one graph,
nodes and edges with data. Attributes that are not named here, ports, drawings and ids of edges change no machine and
are passed over; nested graphs and hyperedges do and are refused.
"""

from __future__ import annotations

from collsim.formats.graphml.reading import parse_graphml, read_graphml
from collsim.formats.graphml.writing import format_graphml, write_graphml

__all__ = ["format_graphml", "parse_graphml", "read_graphml", "write_graphml"]
