"""
Topology
========

`collsim.plot.topology` lays a machine out by its structure: rings are circles, tori are grids, and machines with
switches have levels.
"""

import collsim

collsim.plot.topology(collsim.topology.torus((4, 4)))

# %%
# The nodes of a cluster are boxes, with their GPUs around the switch inside.

cluster = collsim.load_topology("dgx-h100-x4")
collsim.plot.topology(cluster)

# %%
# Given a run, links have the colour of the part of the time for which they were held.

fat_tree = collsim.load_topology("fat-tree-16")
result = collsim.run("all_to_all", fat_tree, size="16MiB", algorithm="pairwise")
collsim.plot.topology(result)
