"""
Chunk grid
==========

`collsim.plot.chunk_grid` draws a row a rank and a column a chunk after a step of a schedule; the number is how many
ranks contributed. Here a ring all_reduce of eight ranks is half way: each chunk is complete on one rank.
"""

import collsim

schedule = collsim.algorithms.ring_all_reduce(8)
collsim.plot.chunk_grid(schedule, step=6)

# %%
# Several steps side by side, in axes of your own.

import matplotlib.pyplot as plt

schedule = collsim.algorithms.halving_doubling_all_reduce(8)
figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for step, ax in enumerate(axes):
    collsim.plot.chunk_grid(schedule, step=step, ax=ax)
figure
