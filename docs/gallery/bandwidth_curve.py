"""
Bandwidth curve
===============

`collsim.plot.bandwidth_curve` draws bus bandwidth against size, as nccl-tests reports both. No algorithm can come into
the grey: that is the bound of the machine.
"""

import collsim

server = collsim.load_topology("dgx-h100")
sizes = [2**power for power in range(10, 31, 2)]
found = collsim.compare("all_reduce", server, sizes, algorithms=["ring", "double_binary_tree", "one_shot", "nvls"])
collsim.plot.bandwidth_curve(found)

# %%
# Points that were measured go on top: pairs of bytes and bytes a second, or the path of a log of nccl-tests. These are
# made up.

points = [(2**20, 22e9), (2**24, 170e9), (2**28, 395e9), (2**30, 430e9)]
collsim.plot.bandwidth_curve(found, measured={"made up": points})
