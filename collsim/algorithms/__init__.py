"""Algorithms: plain functions that return a `Schedule`, one file a family.

To add one, write a function in a file of this folder, put ``@algorithm(operation, name)`` above it, and import it here.
"""

from collsim.algorithms.all_pairs import (
    direct_all_gather,
    direct_reduce_scatter,
    one_shot_all_reduce,
    two_shot_all_reduce,
)
from collsim.algorithms.all_to_all import (
    direct_all_to_all,
    hierarchical_all_to_all,
    nccl_p2p_all_to_all,
    pairwise_all_to_all,
    pairwise_xor_all_to_all,
)
from collsim.algorithms.barrier import (
    dissemination_barrier,
    tree_barrier,
)
from collsim.algorithms.bidirectional_ring import (
    bidirectional_ring_all_gather,
    bidirectional_ring_all_reduce,
    bidirectional_ring_reduce_scatter,
)
from collsim.algorithms.bine import (
    bine_all_gather,
    bine_all_reduce,
    bine_broadcast,
    bine_reduce,
    bine_reduce_scatter,
)
from collsim.algorithms.binomial_tree import (
    binomial_tree_all_reduce,
    binomial_tree_broadcast,
    binomial_tree_reduce,
)
from collsim.algorithms.blueconnect import (
    blueconnect_all_gather,
    blueconnect_all_reduce,
    blueconnect_reduce_scatter,
)
from collsim.algorithms.bruck import (
    bruck_all_gather,
    bruck_all_reduce,
    bruck_reduce_scatter,
)
from collsim.algorithms.bruck_all_to_all import (
    bruck_all_to_all,
)
from collsim.algorithms.circulant import (
    circulant_all_gather,
    circulant_all_reduce,
    circulant_reduce_scatter,
)
from collsim.algorithms.collnet import (
    collnet_chain_all_reduce,
    collnet_direct_all_reduce,
    nvls_collnet_all_reduce,
    nvls_tree_all_reduce,
)
from collsim.algorithms.double_binary_tree import (
    double_binary_tree_all_reduce,
    double_binary_tree_broadcast,
    double_binary_tree_reduce,
)
from collsim.algorithms.forest import (
    forest_all_gather,
    forest_all_reduce,
    forest_broadcast,
    forest_reduce,
    forest_reduce_scatter,
)
from collsim.algorithms.halving_doubling import (
    halving_doubling_all_reduce,
    halving_doubling_reduce_scatter,
)
from collsim.algorithms.hamiltonian import (
    hamiltonian_all_gather,
    hamiltonian_all_reduce,
    hamiltonian_reduce_scatter,
)
from collsim.algorithms.hierarchical import (
    hierarchical_all_gather,
    hierarchical_all_reduce,
    hierarchical_reduce_scatter,
    leader_all_reduce,
    rail_all_gather,
    rail_all_reduce,
    rail_reduce_scatter,
)
from collsim.algorithms.multitree import (
    multitree_all_gather,
    multitree_all_reduce,
    multitree_reduce_scatter,
)
from collsim.algorithms.nccl_tree import (
    nccl_tree_all_reduce,
)
from collsim.algorithms.neighbour_exchange import (
    neighbour_exchange_all_gather,
    neighbour_exchange_all_reduce,
    neighbour_exchange_reduce_scatter,
)
from collsim.algorithms.nvls import (
    nvls_all_gather,
    nvls_all_reduce,
    nvls_reduce_scatter,
)
from collsim.algorithms.pat import (
    pat_all_gather,
    pat_all_reduce,
    pat_reduce_scatter,
)
from collsim.algorithms.recursive_doubling import (
    recursive_doubling_all_gather,
    recursive_doubling_all_reduce,
)
from collsim.algorithms.registry import (
    algorithm,
    available,
    build,
    find,
    load_function,
)
from collsim.algorithms.ring import (
    ring_all_gather,
    ring_all_reduce,
    ring_broadcast,
    ring_reduce,
    ring_reduce_scatter,
)
from collsim.algorithms.rooted import (
    binomial_tree_gather,
    binomial_tree_scatter,
    linear_broadcast,
    linear_gather,
    linear_reduce,
    linear_scatter,
    reduce_scatter_gather_reduce,
    scatter_all_gather_broadcast,
)
from collsim.algorithms.send_recv import (
    ring_send_recv,
)
from collsim.algorithms.sharp import (
    sharp_all_reduce,
    sharp_broadcast,
    sharp_reduce,
)
from collsim.algorithms.swing import (
    swing_all_gather,
    swing_all_reduce,
    swing_reduce_scatter,
)
from collsim.algorithms.themis import (
    themis_all_gather,
    themis_all_reduce,
    themis_reduce_scatter,
)
from collsim.algorithms.torus import (
    torus_all_gather,
    torus_all_reduce,
    torus_reduce_scatter,
)
from collsim.algorithms.tree import (
    tree_all_reduce,
    tree_broadcast,
    tree_reduce,
)

__all__ = [
    "algorithm",
    "available",
    "bidirectional_ring_all_gather",
    "bidirectional_ring_all_reduce",
    "bidirectional_ring_reduce_scatter",
    "bine_all_gather",
    "bine_all_reduce",
    "bine_broadcast",
    "bine_reduce",
    "bine_reduce_scatter",
    "binomial_tree_all_reduce",
    "binomial_tree_broadcast",
    "binomial_tree_gather",
    "binomial_tree_reduce",
    "binomial_tree_scatter",
    "blueconnect_all_gather",
    "blueconnect_all_reduce",
    "blueconnect_reduce_scatter",
    "bruck_all_gather",
    "bruck_all_reduce",
    "bruck_all_to_all",
    "bruck_reduce_scatter",
    "build",
    "circulant_all_gather",
    "circulant_all_reduce",
    "circulant_reduce_scatter",
    "collnet_chain_all_reduce",
    "collnet_direct_all_reduce",
    "direct_all_gather",
    "direct_all_to_all",
    "direct_reduce_scatter",
    "dissemination_barrier",
    "double_binary_tree_all_reduce",
    "double_binary_tree_broadcast",
    "double_binary_tree_reduce",
    "find",
    "forest_all_gather",
    "forest_all_reduce",
    "forest_broadcast",
    "forest_reduce",
    "forest_reduce_scatter",
    "halving_doubling_all_reduce",
    "halving_doubling_reduce_scatter",
    "hamiltonian_all_gather",
    "hamiltonian_all_reduce",
    "hamiltonian_reduce_scatter",
    "hierarchical_all_gather",
    "hierarchical_all_reduce",
    "hierarchical_all_to_all",
    "hierarchical_reduce_scatter",
    "leader_all_reduce",
    "linear_broadcast",
    "linear_gather",
    "linear_reduce",
    "linear_scatter",
    "load_function",
    "multitree_all_gather",
    "multitree_all_reduce",
    "multitree_reduce_scatter",
    "nccl_p2p_all_to_all",
    "nccl_tree_all_reduce",
    "neighbour_exchange_all_gather",
    "neighbour_exchange_all_reduce",
    "neighbour_exchange_reduce_scatter",
    "nvls_all_gather",
    "nvls_all_reduce",
    "nvls_collnet_all_reduce",
    "nvls_reduce_scatter",
    "nvls_tree_all_reduce",
    "one_shot_all_reduce",
    "pairwise_all_to_all",
    "pairwise_xor_all_to_all",
    "pat_all_gather",
    "pat_all_reduce",
    "pat_reduce_scatter",
    "rail_all_gather",
    "rail_all_reduce",
    "rail_reduce_scatter",
    "recursive_doubling_all_gather",
    "recursive_doubling_all_reduce",
    "reduce_scatter_gather_reduce",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_broadcast",
    "ring_reduce",
    "ring_reduce_scatter",
    "ring_send_recv",
    "scatter_all_gather_broadcast",
    "sharp_all_reduce",
    "sharp_broadcast",
    "sharp_reduce",
    "swing_all_gather",
    "swing_all_reduce",
    "swing_reduce_scatter",
    "themis_all_gather",
    "themis_all_reduce",
    "themis_reduce_scatter",
    "torus_all_gather",
    "torus_all_reduce",
    "torus_reduce_scatter",
    "tree_all_reduce",
    "tree_barrier",
    "tree_broadcast",
    "tree_reduce",
    "two_shot_all_reduce",
]
