"""Algorithms: plain functions that return a `Schedule`, one file a family.

To add one, write a function in a file of this folder, put ``@algorithm(operation, name)`` above it, and import it here.
"""

from collsim.algorithms.bidirectional_ring import (
    bidirectional_ring_all_gather,
    bidirectional_ring_all_reduce,
    bidirectional_ring_reduce_scatter,
)
from collsim.algorithms.binomial_tree import (
    binomial_tree_all_reduce,
    binomial_tree_broadcast,
    binomial_tree_reduce,
)
from collsim.algorithms.double_binary_tree import (
    double_binary_tree_all_reduce,
    double_binary_tree_broadcast,
    double_binary_tree_reduce,
)
from collsim.algorithms.registry import algorithm, available, build, find, load_function
from collsim.algorithms.ring import (
    ring_all_gather,
    ring_all_reduce,
    ring_broadcast,
    ring_reduce,
    ring_reduce_scatter,
)
from collsim.algorithms.tree import tree_all_reduce, tree_broadcast, tree_reduce

__all__ = [
    "algorithm",
    "available",
    "bidirectional_ring_all_gather",
    "bidirectional_ring_all_reduce",
    "bidirectional_ring_reduce_scatter",
    "binomial_tree_all_reduce",
    "binomial_tree_broadcast",
    "binomial_tree_reduce",
    "build",
    "double_binary_tree_all_reduce",
    "double_binary_tree_broadcast",
    "double_binary_tree_reduce",
    "find",
    "load_function",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_broadcast",
    "ring_reduce",
    "ring_reduce_scatter",
    "tree_all_reduce",
    "tree_broadcast",
    "tree_reduce",
]
