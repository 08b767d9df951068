"""
Bars of utilisation
===================

`collsim.plot.utilisation_bars` draws which part of the time each link was held, the busiest on top. It needs no
records, so that it works for runs of any length.
"""

import collsim

fat_tree = collsim.load_topology("fat-tree-16")
result = collsim.run("all_to_all", fat_tree, size="16MiB", algorithm="pairwise")
collsim.plot.utilisation_bars(result, most=24)

# %%
# Links of a kind can be taken together. The phases of a hierarchical all_reduce take turns, so that each kind is idle
# for more than half of the time.

cluster = collsim.load_topology("dgx-h100-x4")
result = collsim.run("all_reduce", cluster, size="16MiB", algorithm="hierarchical")
collsim.plot.utilisation_bars(result, by="kind")
