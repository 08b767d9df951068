"""
Step player
===========

In a notebook a result shows itself as a player: play, pause, go step by step, point at a transfer.
``result.to_html("ring.html")`` and ``collsim run ... --html ring.html`` write the same as one file that needs no network.
"""

import collsim

ring = collsim.topology.ring(8, bandwidth="50GB/s", latency="1us")
result = collsim.run("all_reduce", ring, size="1MiB", algorithm="ring")
result

# %%
# A still of the same run:

collsim.plot.topology(result)
