"""
Timeline
========

`collsim.plot.timeline` draws a row a rank or a link and a bar a transfer. Bars are tall where the receiver reduces
and slim where it copies.
"""

import collsim

ring = collsim.topology.ring(8, bandwidth="50GB/s", latency="1us")
result = collsim.run("all_reduce", ring, size="1MiB", algorithm="ring")
collsim.plot.timeline(result)

# %%
# Coloured by chunk, the way of each chunk round the ring shows as a diagonal.

collsim.plot.timeline(result, colour="chunk")

# %%
# On a machine with a narrow place, ask for the links as rows, and for the transfers that the time hangs on.

tree = collsim.topology.tree(2, 3, bandwidth="50GB/s", latency="1us")
result = collsim.run("all_to_all", tree, size="1MiB", algorithm="pairwise")
collsim.plot.timeline(result, rows="link", colour="critical")

# %%
# Look at a part of the time by ``start`` and ``end``.

collsim.plot.timeline(result, start="50us", end="100us")
