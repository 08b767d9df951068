"""Network files of ASTRA-sim's analytical back end: a product of rings, full meshes and switches.

::

    topology:   [ Ring, Switch ]     # a block a dimension, the first one innermost
    npus_count: [ 8, 4 ]             # 2 or more each; their product is the number of NPUs
    bandwidth:  [ 50.0, 12.5 ]       # GB/s with GB = 2^30 bytes, of one link in one direction
    latency:    [ 500.0, 2000.0 ]    # ns of one link

What each block means is read from astra-network-analytical (MIT licence): ``common/network-parser/NetworkParser.cc``
knows the three names (in this spelling) and checks the lists, ``common/NetworkFunction.cc`` has the 2^30, and
``congestion_aware/`` lays the links:

- NPU ``i`` has the coordinates ``i % n0``, ``i // n0 % n1``, ...: the first dimension changes fastest
  (``MultiDimTopology.cc``). Each NPU has links of its own in each dimension.
- ``Ring`` is bidirectional: a link to the next and to the last NPU, each with the whole bandwidth and latency
  (``Ring.cc``, ``bidirectional = true``). Of two NPUs it is one link each way: connecting a pair again replaces the
  link (``Device.cc``).
- ``FullyConnected``: a link from each to each other NPU of the group, each with the whole bandwidth. Of two or three
  NPUs it is the same as ``Ring``.
- ``Switch``: a node for each group, a link up and a link down a NPU; a message crosses both, so it pays the latency
  twice.
- A message goes dimension by dimension, the first one first, through NPUs on its way. collsim's routes have the same
  number of hops; where several orders of the dimensions are equally short it deals them out instead.

The congestion-unaware model takes the same numbers and shares nothing (collsim's ``alpha_beta`` is the nearest).
"""

from collsim.formats.astra_sim.reading import parse_astra_sim, read_astra_sim
from collsim.formats.astra_sim.writing import format_astra_sim, write_astra_sim

__all__ = ["format_astra_sim", "parse_astra_sim", "read_astra_sim", "write_astra_sim"]
