"""Topologies of the ns-3 back ends: of HPCC and ASTRA-sim (`read_ns3`), and of SimAI (`read_simai`).

A text of numbers. The first line counts what follows, then come the numbers of the switches (over as many lines as they
take), then a line for each link: ``src dst rate delay error_rate``, units attached as ns-3 writes them::

    ns-3     6 1 6                      nodes, switches, links
    SimAI    20 8 2 2 32 A100           nodes, GPUs a server, NVSwitches, other switches, links, type of the GPUs

Nodes are numbered from 0; in SimAI's second line NVSwitches come first. What is no switch is a GPU, and the GPUs in
the order of their numbers are the ranks. Facts that the meaning rests on, each from the code of the simulators:

- A link is full duplex: rate and delay hold for each direction, and the delay is the propagation one way (HPCC and
  SimAI install each line as one ``QbbChannel``). A repeated line is another link beside the first.
- GPUs never forward: HPCC's and SimAI's search for routes goes on from switches only (``CalculateRoute`` in HPCC's
  ``simulation/scratch/third.cc`` and SimAI's ``common.h``). Of ways with equally many hops SimAI takes the one through
  an NVSwitch; collsim takes the widest, which comes to the same.
- A rate without a unit is in bit/s, a delay without one in seconds (``DataRate`` and ``Time`` of ns-3).
- An error rate is the share of packets that are lost. collsim loses none, and says so in the description.
- What stands after the last link is not read by the simulators; HPCC's own files explain themselves there. Here too,
  but another line of numbers is refused: then the first line counts wrongly.

From ``#`` to the end of the line is a comment. Lines are converted in batches: millions of links take seconds.
"""

from collsim.formats.ns3.reading import parse_ns3, parse_simai, read_ns3, read_simai

__all__ = ["parse_ns3", "parse_simai", "read_ns3", "read_simai"]
