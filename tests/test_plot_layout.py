"""Where devices are drawn: by structure, apart from each other, within the unit square, the same every time."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

import collsim
from collsim.plot import node_positions
from collsim.plot.layout import layout_of
from collsim.topology import (
    bidirectional_ring,
    dragonfly,
    fat_tree,
    fully_connected,
    hypercube,
    line,
    load_topology,
    mesh,
    rail_optimized,
    ring,
    shipped,
    switch,
    torus,
    tree,
)


def odd(nodes: int, links: int) -> Any:
    """A machine of direct links without any structure."""
    graph = nx.gnm_random_graph(nodes, links, seed=3)
    graph.add_edges_from((i, i + 1) for i in range(nodes - 1))
    nx.set_node_attributes(graph, "gpu", "kind")
    nx.set_edge_attributes(graph, 10**9, "bandwidth")
    nx.set_edge_attributes(graph, 1e-6, "latency")
    return collsim.topology.from_networkx(nx.relabel_nodes(graph, {i: f"gpu{i}" for i in graph}))


MACHINES = {
    "one": lambda: switch(1), "ring4": lambda: ring(4), "ring64": lambda: ring(64), "ring1024": lambda: ring(1024),
    "both ways": lambda: bidirectional_ring(6), "line8": lambda: line(8), "line1000": lambda: line(1000),
    "full64": lambda: fully_connected(64), "switch8": lambda: switch(8), "switch1024": lambda: switch(1024),
    "torus4x4": lambda: torus((4, 4)), "torus64": lambda: torus((4, 4, 4)), "torus1024": lambda: torus((16, 8, 8)),
    "torus of one": lambda: torus((1, 5, 1)), "mesh": lambda: mesh((3, 5)), "cube": lambda: hypercube(6),
    "cube1024": lambda: hypercube(10), "tree": lambda: tree(3, 3), "fat16": lambda: fat_tree(16, 4),
    "fat64": lambda: fat_tree(64), "fat1024": lambda: fat_tree(1024), "rail2": lambda: rail_optimized(2, 2),
    "rail64": lambda: rail_optimized(8), "rail1024": lambda: rail_optimized(128),
    "dragonfly": lambda: dragonfly(5, 4, 2),
    "dragonfly1056": lambda: dragonfly(33, 8, 4), "odd4": lambda: odd(4, 4), "odd64": lambda: odd(64, 90),
    "odd1000": lambda: odd(1000, 1200), "odd1500": lambda: odd(1500, 2000),
}  # fmt: skip


@pytest.mark.parametrize("name", [*MACHINES, *shipped()])
def test_every_device_has_a_place_of_its_own_in_the_square(name: str) -> None:
    machine = MACHINES[name]() if name in MACHINES else load_topology(shipped()[name])
    places = node_positions(machine)
    assert places.shape == (machine.n_nodes, 2)
    assert np.isfinite(places).all()
    assert places.min() >= 0
    assert places.max() <= 1
    assert len(np.unique(places.round(7), axis=0)) == machine.n_nodes
    if machine.n_nodes > 1:
        assert np.ptp(places, axis=0).max() > 0.6, "the square is used"


@pytest.mark.parametrize("name", ["odd64", "odd1500", "rail64", "fat64", "cube"])
def test_the_same_machine_looks_the_same(name: str) -> None:
    np.testing.assert_array_equal(node_positions(MACHINES[name]()), node_positions(MACHINES[name]()))


def test_places_are_kept_and_cannot_be_changed() -> None:
    machine = ring(4)
    places = node_positions(machine)
    assert node_positions(machine) is places
    with pytest.raises(ValueError, match="read-only"):
        places[0] = 0


@pytest.mark.parametrize("make", [ring, bidirectional_ring, fully_connected, switch])
def test_circles_start_on_top_and_go_clockwise(make: Any) -> None:
    machine = make(16)
    places = node_positions(machine)[machine.rank_nodes] - 0.5
    np.testing.assert_allclose(np.hypot(*places.T), 0.46)
    angle = np.arctan2(places[:, 0], places[:, 1]) % (2 * np.pi)
    np.testing.assert_allclose(angle, 2 * np.pi * np.arange(16) / 16, atol=1e-12)


def test_a_switch_stands_in_the_middle_of_its_ranks() -> None:
    machine = switch(8)
    np.testing.assert_allclose(node_positions(machine)[machine.node_index("sw0")], 0.5)


def test_grids_are_row_major_from_the_top_left() -> None:
    places = node_positions(torus((3, 4))).reshape(3, 4, 2)
    assert (np.ptp(places[..., 1], axis=1) == 0).all(), "a row is level"
    np.testing.assert_allclose(np.ptp(places[..., 0], axis=0), 0, atol=1e-12)
    assert (np.diff(places[..., 0], axis=1) > 0).all()
    assert (np.diff(places[..., 1], axis=0) < 0).all()
    np.testing.assert_allclose(np.diff(places[..., 0], axis=1), -np.diff(places[..., 1], axis=0)[0, 0], atol=1e-12)


def test_planes_of_a_third_dimension_are_offset_by_less_than_a_cell() -> None:
    places = node_positions(torus((4, 4, 4))).reshape(4, 4, 4, 2)
    cell = places[0, 0, 1, 0] - places[0, 0, 0, 0]
    offset = places[3] - places[0]
    np.testing.assert_allclose(offset, offset[0, 0] * np.ones((4, 4, 1)))
    assert (offset > 0.1 * cell).all()
    assert (offset < cell).all()


def test_a_long_line_turns_back_and_forth_so_that_neighbours_stay_together() -> None:
    places = node_positions(line(1000))
    steps = np.hypot(*np.diff(places, axis=0).T)
    np.testing.assert_allclose(steps, steps[0])
    assert np.ptp(places, axis=0).min() > 0.3


def test_fat_trees_have_levels() -> None:
    machine = fat_tree(16, 4)
    heights = node_positions(machine)[:, 1]
    of = {
        kind: heights[[i for i, name in enumerate(machine.nodes) if name.startswith(kind)]] for kind in ("gpu", "leaf")
    }
    of["spine"] = heights[[i for i, name in enumerate(machine.nodes) if name.startswith("spine")]]
    assert all(np.ptp(level) == 0 for level in of.values())
    assert of["gpu"][0] < of["leaf"][0] < of["spine"][0]


def test_leaves_stand_above_their_own_ranks_at_any_size() -> None:
    for machine in (fat_tree(64, 8), fat_tree(1024, 8)):
        places = node_positions(machine)
        leaves = [i for i, name in enumerate(machine.nodes) if name.startswith("leaf")]
        below = places[machine.rank_nodes, 0].reshape(len(leaves), 8).mean(axis=1)
        np.testing.assert_allclose(places[leaves, 0], below, atol=0.02)


def test_binary_trees_do_not_cross_their_links() -> None:
    machine = tree(2, 4)
    places = node_positions(machine)
    for height in np.unique(places[:, 1])[1:]:
        here = np.flatnonzero(places[:, 1] == height)
        middle = []
        for node in here.tolist():
            below = machine.link_dst[(machine.link_src == node) & (places[machine.link_dst, 1] < height)]
            middle.append(places[below, 0].mean())
        np.testing.assert_allclose(places[here, 0], middle)


@pytest.mark.parametrize("count", [2, 8, 40])
def test_nodes_of_a_cluster_are_boxes_around_all_their_devices(count: int) -> None:
    machine = rail_optimized(count, 8)
    layout = layout_of(machine)
    assert [box.name for box in layout.boxes] == [f"node[{i}]" for i in range(count)]
    for box in layout.boxes:
        inside = [box.left < x < box.right and box.bottom < y < box.top for x, y in layout.positions.tolist()]
        named = [name.startswith(box.name + ".") for name in machine.nodes]
        assert inside == named
    for i, box in enumerate(layout.boxes):
        for other in layout.boxes[:i]:
            assert (
                box.left >= other.right or other.left >= box.right or box.bottom >= other.top or other.bottom >= box.top
            )


def test_gpus_stand_around_the_switch_of_their_node() -> None:
    machine = load_topology(shipped()["dgx-h100-x4"])
    places = node_positions(machine)
    hub = places[machine.node_index("node[1].nvswitch")]
    around = places[machine.rank_nodes[8:16]] - hub
    assert (around[:, 1] > -1e-9).all(), "below the adapters, so around the upper half"
    angle = np.arctan2(around[:, 1], around[:, 0])
    assert (np.diff(angle) < 0).all()
    adapters = [machine.node_index(f"node[1].nic[{i}]") for i in range(8)]
    assert (np.diff(places[adapters, 0]) > 0).all(), "in the order of their GPUs"
    spine = places[machine.node_index("spine")]
    assert spine[1] > places[adapters, 1].max()


def test_groups_without_switches_above_them_stand_on_a_circle() -> None:
    machine = dragonfly(5, 4, 2)
    boxes = layout_of(machine).boxes
    centres = np.array([((b.left + b.right) / 2 - 0.5, (b.bottom + b.top) / 2 - 0.5) for b in boxes])
    np.testing.assert_allclose(np.hypot(*centres.T), np.hypot(*centres[0]))


def test_without_structure_near_devices_are_drawn_near() -> None:
    machine = odd(64, 90)
    places = node_positions(machine)
    direct = np.hypot(*(places[machine.link_src] - places[machine.link_dst]).T)
    every = np.hypot(*(places[:, None] - places[None]).reshape(-1, 2).T)
    assert direct.mean() < 0.6 * every[every > 0].mean()
