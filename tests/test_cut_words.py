"""Cuts in words, each sentence read by a person once."""

from __future__ import annotations

import numpy as np
import pytest

import collsim.topology as machines
from collsim.theory.words import cut_words, named

RATE = {"bandwidth": "50GB/s", "latency": "1us"}


def say(topology, *names, outside=False, ranks=None):
    """The cut round the nodes of some names (modules count for all in them), or into them."""
    inside = np.array([any(node == name or node.startswith(name + ".") for name in names) for node in topology.nodes])
    assert inside.any()
    inside ^= outside
    links = np.flatnonzero(inside[topology.link_src] & ~inside[topology.link_dst])
    return cut_words(topology, inside, links, topology.rank_nodes if ranks is None else ranks)


def gpus(*numbers, text="gpu[{}]"):
    return [text.format(number) for number in numbers]


def load(name):
    return machines.load_topology(name)


@pytest.mark.parametrize(
    ("machine", "names", "outside", "expected"),
    [
        ("dgx-h100", gpus(0), False, "out of gpu[0]: gpu -> nvswitch, 1 x 450GB/s to the 7 GPUs outside"),
        ("dgx-h100", gpus(0), True, "into gpu[0]: nvswitch -> gpu, 1 x 450GB/s for the 7 GPUs outside"),
        (
            "dgx-1-v100",
            gpus(*range(4)),
            False,
            "out of gpu[0] to gpu[3]: gpu -> gpu, 6 x 25GB/s to the 4 GPUs outside",
        ),
        ("mi300x", gpus(1, 2), True, "into gpu[1] and gpu[2]: gpu -> gpu, 12 x 64GB/s for the 6 GPUs outside"),
        ("gb200-nvl72", gpus(71), True, "into gpu[71]: nvswitch -> gpu, 1 x 900GB/s for the 71 GPUs outside"),
        (
            "dgx-2",
            [*gpus(*range(8)), "nvswitch[0]"],
            False,
            "out of gpu[0] to gpu[7]: nvswitch -> nvswitch, 8 x 150GB/s to the 8 GPUs outside",
        ),
        (
            "dgx-h100-x4",
            ["node[2].gpu[5]"],
            False,
            "out of node[2].gpu[5]: gpu -> nvswitch, 1 x 450GB/s, and gpu -> nic, 1 x 63GB/s, to the 31 GPUs outside",
        ),
        ("dgx-h100-x4", ["node[1]"], True, "into node[1]: leaf -> nic, 8 x 50GB/s for the 24 GPUs outside"),
        ("dgx-h100-x4", ["node[1]"], False, "out of node[1]: nic -> leaf, 8 x 50GB/s to the 24 GPUs outside"),
        (
            "dgx-h100-x4",
            ["node[0]", "node[3]"],
            False,
            "out of node[0] and node[3]: nic -> leaf, 16 x 50GB/s to the 16 GPUs outside",
        ),
        # on both sides are equally many: named is the one to which the switch between them does not belong
        ("dgx-a100-x2", ["node[0]"], False, "out of node[0]: nic -> leaf, 8 x 25GB/s to the 8 GPUs outside"),
        ("dgx-a100-x2", ["node[0]"], True, "into node[0]: leaf -> nic, 8 x 25GB/s for the 8 GPUs outside"),
        (
            "pcie-4gpu",
            [*gpus(0, 1), "pcisw[0]"],
            False,
            "out of gpu[0] and gpu[1]: pcisw -> cpu, 1 x 15.75GB/s to the 2 GPUs outside",
        ),
        (
            "fat-tree-16",
            ["gpu4", "gpu5", "gpu6", "gpu7", "leaf1"],
            True,
            "into gpu4 to gpu7: spine -> leaf, 2 x 50GB/s for the 12 GPUs outside",
        ),
        ("line8", ["gpu0", "gpu1"], True, "into gpu0 and gpu1: gpu -> gpu, 1 x 50GB/s for the 6 GPUs outside"),
        (
            "torus-4x4",
            gpus(0, 1, 4, 5, text="gpu{}"),
            False,
            "out of gpu0, gpu1, gpu4 and gpu5: gpu -> gpu, 8 x 50GB/s to the 12 GPUs outside",
        ),
        (
            "tpu-v4-4x4x4",
            gpus(*range(0, 64, 4), text="gpu{}"),
            False,
            "out of gpu0, gpu4 and 14 more: gpu -> gpu, 32 x 50GB/s to the 48 GPUs outside",
        ),
    ],
)
def test_shipped_machines(machine, names, outside, expected):
    assert say(load(machine), *names, outside=outside) == expected


def test_large_machines():
    machine = machines.rail_optimized(128, 8)
    assert say(machine, "node[0]", outside=True) == ("into node[0]: leaf -> nic, 8 x 50GB/s for the 1,016 GPUs outside")
    nodes = [f"node[{i}]" for i in range(63)]
    assert say(machine, *nodes, outside=True) == (
        "into node[0] to node[62]: leaf -> nic, 504 x 50GB/s for the 520 GPUs outside"
    )
    assert say(machine, *nodes) == "out of node[0] to node[62]: nic -> leaf, 504 x 50GB/s to the 520 GPUs outside"
    assert say(machine, *nodes[::2]) == (
        "out of node[0], node[2] and 30 more: nic -> leaf, 256 x 50GB/s to the 768 GPUs outside"
    )
    # two runs of nodes, and a node of which a GPU is missing
    assert say(machine, *nodes[:4], *nodes[10:20]).startswith("out of node[0] to node[3] and node[10] to node[19]: ")
    part = [f"node[5].gpu[{i}]" for i in range(7)]
    assert say(machine, *part).startswith(
        "out of node[5].gpu[0] to node[5].gpu[6]: gpu -> nvswitch, 7 x 450GB/s, and gpu -> nic, 7 x "
    )
    wide = machines.rail_optimized(512, 32)
    assert say(wide, "node[7]", outside=True) == "into node[7]: leaf -> nic, 32 x 50GB/s for the 16,352 GPUs outside"


def test_generators():
    dragonfly = machines.dragonfly(4, 4, 2, **RATE)
    assert say(dragonfly, "group[1]") == "out of group[1]: router -> router, 3 x 50GB/s to the 24 GPUs outside"
    tree = machines.tree(2, 3, **RATE)
    assert say(tree, "gpu0", "gpu1", "gpu2", "gpu3", "sw1", "sw3", "sw4") == (
        "out of gpu0 to gpu3: sw -> sw, 1 x 50GB/s to the 4 GPUs outside"
    )
    assert say(machines.line(2, **RATE), "gpu0") == "out of gpu0: gpu -> gpu, 1 x 50GB/s to gpu1"
    assert say(machines.switch(2, **RATE), "gpu0", outside=True) == "into gpu0: sw -> gpu, 1 x 50GB/s for gpu1"
    assert say(machines.ring(3, **RATE), "gpu1") == "out of gpu1: gpu -> gpu, 1 x 50GB/s to the 2 GPUs outside"


def odd():
    """Names without numbers, two kinds of ranks, links of many rates."""
    builder = machines.TopologyBuilder("odd")
    for name, kind in (
        ("alice", "gpu"), ("bob", "gpu"), ("carol", "host"), ("w0", "switch"), ("12", "switch"), ("edge-7", "switch"),
    ):  # fmt: skip
        builder.add_node(name, kind)
    for i, name in enumerate(("alice", "bob", "carol")):
        builder.add_duplex(name, "w0", (10 + i) * 10**9, 0)
        builder.add_duplex(name, "12", 25 * 10**9, 0, count=2)
    builder.add_duplex("alice", "bob", 5 * 10**9, 0)
    builder.add_duplex("edge-7", "w0", 10**9, 0)
    builder.add_duplex("edge-7", "12", 10**9, 0)
    return builder.build(ranks=["alice", "bob", "carol"])


def test_names_that_say_nothing():
    """A name of one letter or of digits only, and one that only one GPU has, stand back behind the kind."""
    assert say(odd(), "carol") == "out of carol: host -> switch, 2 x 25GB/s + 1 x 12GB/s to the 2 GPUs outside"
    assert say(odd(), "alice", outside=True) == (
        "into alice: switch -> gpu, 2 x 25GB/s + 1 x 10GB/s, and gpu -> gpu, 1 x 5GB/s, for the 2 ranks outside"
    )
    assert say(odd(), "alice", "bob", "w0", "12") == (
        "into carol: switch -> host, 2 x 25GB/s + 1 x 12GB/s, and switch -> edge, 2 x 1GB/s, for the 2 GPUs outside"
    )


def test_too_many_kinds_of_links_are_summed_up():
    rates = [1, 2, 3, 5]
    builder = machines.TopologyBuilder("rates")
    for name in ("hub", *(f"gpu{i}" for i in range(4))):
        builder.add_node(name, "gpu" if name != "hub" else "switch")
    for i, rate in enumerate(rates):
        builder.add_duplex(f"gpu{i}", "hub", rate * 10**9, 0)
    topology = builder.build()
    assert say(topology, "hub", "gpu0") == (
        "out of gpu0: hub -> gpu, 1 x 5GB/s + 1 x 3GB/s + 1 x 2GB/s to the 3 GPUs outside"
    )
    assert say(topology, "hub") == "out of hub: hub -> gpu, 4 links of 11GB/s in all to the 4 GPUs outside"
    mixed = machines.TopologyBuilder("mixed")
    for name, kind in (("gpu0", "gpu"), ("gpu1", "gpu"), ("nic0", "nic"), ("sw0", "switch"), ("cpu0", "host")):
        mixed.add_node(name, kind)
    for name in ("nic0", "sw0", "cpu0"):
        mixed.add_duplex("gpu0", name, 10**9, 0)
        mixed.add_duplex("gpu1", name, 10**9, 0)
    assert say(mixed.build(), "gpu0") == "out of gpu0: 3 x 1GB/s to gpu1"


def test_sets_without_ranks_on_one_side():
    topology = load("dgx-a100-x2")
    assert say(topology, "leaf") == "out of leaf: leaf -> nic, 16 x 25GB/s to the 16 GPUs outside"
    assert say(topology, "leaf", outside=True) == "into leaf: nic -> leaf, 16 x 25GB/s for the 16 GPUs outside"
    ring = machines.ring(4, **RATE)
    assert cut_words(ring, np.arange(4) == 0, np.zeros(0, dtype=int), ring.rank_nodes) == (
        "out of gpu0: no links to the 3 GPUs outside"
    )


def test_only_the_ranks_that_take_part_are_counted():
    machine = machines.rail_optimized(4, 8)
    ranks = machine.rank_nodes[:12]
    by_node = np.zeros(machine.n_nodes, dtype=bool)
    by_node[ranks] = True
    # of node[1] four GPUs take part: they are all that counts of it, so it is the smaller side
    for given in (ranks, by_node):
        assert say(machine, "node[0]", ranks=given) == "into node[1]: nic -> leaf, 8 x 50GB/s for the 8 GPUs outside"


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (range(8), "node[0]"),
        (range(8, 32), "node[1] to node[3]"),
        (range(32), "node[0] to node[3]"),
        (range(16), "node[0] and node[1]"),
        (range(2), "node[0].gpu[0] and node[0].gpu[1]"),
        (range(9), "node[0].gpu[0] to node[0].gpu[7] and node[1].gpu[0]"),
        ((0, 8, 16, 24), "node[0].gpu[0], node[1].gpu[0], node[2].gpu[0] and node[3].gpu[0]"),
        ((0, 2, 4, 6, 8), "node[0].gpu[0], node[0].gpu[2] and 3 more"),
    ],
)
def test_names_of_groups(chosen, expected):
    machine = machines.rail_optimized(4, 8)
    assert named(machine, machine.rank_nodes[list(chosen)], machine.rank_nodes) == expected


def test_modules_of_modules():
    builder = machines.TopologyBuilder("pods")
    for pod in range(2):
        for node in range(3):
            for gpu in range(2):
                builder.add_node(f"pod[{pod}].node[{node}].gpu[{gpu}]", "gpu")
    for name in (names := [f"pod[{p}].node[{n}].gpu[{g}]" for p in range(2) for n in range(3) for g in range(2)])[1:]:
        builder.add_duplex(names[0], name, 10**9, 0)
    topology = builder.build()
    assert say(topology, "pod[1]").startswith("out of pod[1]: gpu -> gpu, 6 x 1GB/s to the 6 ")
    assert say(topology, "pod[1].node[0]", "pod[1].node[1]").startswith("out of pod[1].node[0] and pod[1].node[1]: ")
    assert say(topology, "pod[1].node[0]", "pod[0].node[2].gpu[0]").startswith(
        "out of pod[0].node[2].gpu[0], pod[1].node[0].gpu[0] and pod[1].node[0].gpu[1]: "
    )
