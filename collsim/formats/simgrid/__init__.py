"""Platforms of SimGrid: the XML of version 4 and 4.1, read and written.

Read are zones in zones with the routing Full, Floyd, Dijkstra, DijkstraCache, None and Cluster; hosts, routers, links,
routes, zone routes, bypass routes inside a zone; clusters that are flat, tori, fat trees or dragonflies, cabinets, host
links and backbones. Refused, in words, are Wi-Fi and Vivaldi, peers, includes, bypasses between zones, and version 3.
Passed over are what is not the network (speeds, cores, disks, loopbacks, deployment, configuration) and unknown
attributes; profiles, which the description mentions.

**Sharing.** SPLITDUPLEX is a link for each direction. SHARED has one capacity for both: where routes cross it in both
directions it stands between two nodes of its own, ``<id>.in`` and ``<id>.out``. FATPIPE is not shared: each pair of
hosts has its own copy. Latencies and rates count as they stand in the file, without the factors of SimGrid's TCP models
(``network/latency-factor`` and the like); the fluid network then takes as long as SimGrid does with factors of 1 and
flows that share evenly (``host/model:ptask_L07``; its model CM02 gives flows of less latency more).

**Routes** are SimGrid's own; see `read_simgrid`. How the graph between the hosts is found is in
`collsim.formats.simgrid.wiring`.

The grammar is that of https://simgrid.org/doc/latest/XML_reference.html.
"""

from __future__ import annotations

from collsim.formats.simgrid.read import parse_simgrid, read_simgrid
from collsim.formats.simgrid.write import format_simgrid, write_simgrid

__all__ = ["format_simgrid", "parse_simgrid", "read_simgrid", "write_simgrid"]
