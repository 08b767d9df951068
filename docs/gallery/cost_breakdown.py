"""
Cost breakdown
==============

`collsim.plot.cost_breakdown` draws what the critical path of each run is made of: latency for small messages,
serialisation for large ones, and queueing where transfers stand in each other's way.
"""

import collsim

fat_tree = collsim.load_topology("fat-tree-16")
sizes = ["1KiB", "32KiB", "1MiB", "32MiB", "1GiB"]
collsim.plot.cost_breakdown([collsim.run("all_to_all", fat_tree, size, algorithm="direct") for size in sizes])

# %%
# With ``share=False`` the bars are times; a mapping names them.

names = ["ring", "halving_doubling", "double_binary_tree"]
results = {name: collsim.run("all_reduce", fat_tree, "1MiB", algorithm=name) for name in names}
collsim.plot.cost_breakdown(results, share=False)
