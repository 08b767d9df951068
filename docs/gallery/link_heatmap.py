"""
Heat map
========

`collsim.plot.link_heatmap` draws a row a link and a cell a part of the time; the darker, the longer the link was held.
"""

import collsim

torus = collsim.topology.torus((4, 4), bandwidth="50GB/s", latency="1us")
result = collsim.run("all_reduce", torus, size="4MiB", algorithm="torus")
collsim.plot.link_heatmap(result)

# %%
# A cluster has too many links for that. Those that leave each node can be taken together, or those of each kind.

cluster = collsim.load_topology("dgx-h100-x4")
result = collsim.run("all_reduce", cluster, size="16MiB", algorithm="hierarchical")
collsim.plot.link_heatmap(result, by="kind")
