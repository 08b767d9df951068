"""Pictures of links: how busy they are over time and in all, and on the machine; at any size of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import collsim
from collsim.errors import CollsimError, InputError
from collsim.plot import link_heatmap, topology, utilisation_bars
from collsim.plot.common import IDLE
from collsim.topology import (
    dragonfly,
    fat_tree,
    fully_connected,
    load_topology,
    rail_optimized,
    ring,
    shipped,
    switch,
    torus,
)


def run(machine: Any = None, operation: str = "all_reduce", algorithm: str = "ring", **kwargs: Any) -> Any:
    return collsim.run(operation, machine or ring(4), "1MiB", algorithm=algorithm, records=True, **kwargs)


def table_of(ax: Any) -> np.ndarray:
    (image,) = ax.images
    return np.asarray(image.get_array())


def labels(ax: Any) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def title(ax: Any) -> str:
    return " ".join(ax.get_title(loc="left").split())


def draw(ax: Any) -> Any:
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    return canvas.get_renderer()


def fits(ax: Any) -> bool:
    """Whether all that is drawn is inside the figure."""
    drawn, (width, height) = ax.figure.get_tightbbox(draw(ax)), ax.figure.get_size_inches()
    return drawn.x0 >= -1e-6 and drawn.y0 >= -1e-6 and drawn.x1 <= width + 1e-6 and drawn.y1 <= height + 1e-6


# -- heat map --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["cut_through", "store_and_forward", "fluid", "alpha_beta"])
@pytest.mark.parametrize("bins", [1, 7, 200])
def test_cells_of_a_link_add_up_to_the_time_that_it_is_held(network: str, bins: int) -> None:
    result = run(fat_tree(8, 4, oversubscription=2), "all_to_all", "direct", network=network)
    table = table_of(link_heatmap(result, bins=bins, by="link"))
    used = np.flatnonzero(result.link_busy_ps)
    assert table.shape == (len(used), bins)
    held = table.sum(axis=1) * result.time_ps / bins
    np.testing.assert_allclose(held, result.link_busy_ps[used], rtol=1e-9)
    if network in ("cut_through", "store_and_forward"):
        assert table.max() <= 1 + 1e-9, "a link is never more than held all the time"


def test_cells_are_what_counting_picoseconds_gives() -> None:
    machine = switch(3, bandwidth="1GB/s", latency="1ns")
    result = collsim.run("all_gather", machine, 30, algorithm="ring", records=True)
    bins = 9
    table = table_of(link_heatmap(result, bins=bins))
    visits, program = result.link_records(), result.program
    assert len(visits["link"]) == len(program.visit_busy), "nothing but links on the way"
    used = np.unique(visits["link"])
    edges = np.linspace(0, result.time_ps, bins + 1)
    for row, link in enumerate(used.tolist()):
        mine = visits["link"] == link
        held = np.zeros(bins)
        for start, busy in zip(visits["start_ps"][mine], program.visit_busy[mine], strict=True):
            for i in range(bins):
                held[i] += max(0, min(start + busy, edges[i + 1]) - max(start, edges[i]))
        np.testing.assert_allclose(table[row], held / (result.time_ps / bins), atol=1e-9)


def test_rows_are_named_and_time_runs_to_the_end() -> None:
    result = run()
    ax = link_heatmap(result)
    assert labels(ax) == [result.topology.link_name(link) for link in range(4)]
    assert ax.get_xlim() == (0, pytest.approx(result.time * 1e6))
    assert ax.get_xlabel() == "time (us)"
    assert ax.get_ylim() == (3.5, -0.5)
    assert title(ax).startswith("all_reduce ring, 1MiB in 37.46 us")
    assert [other.get_ylabel() for other in ax.figure.axes if other is not ax] == ["utilisation"]


def test_of_many_links_the_busiest_are_drawn_and_the_title_says_so() -> None:
    result = run(rail_optimized(8, 8), "all_reduce", "ring")
    ax = link_heatmap(result, most=10)
    busy, rows = result.link_busy_ps, table_of(ax)
    assert rows.shape[0] == 10
    assert f"the 10 busiest of {np.count_nonzero(busy)} links" in title(ax)
    np.testing.assert_allclose(rows.mean(axis=1), np.sort(busy)[::-1][:10] / result.time_ps)
    assert link_heatmap(result, by="link").images[0].get_array().shape[0] == np.count_nonzero(busy)


def test_links_are_taken_together_by_kind_and_by_node() -> None:
    machine = rail_optimized(4, 8)
    result = run(machine)
    ax = link_heatmap(result, by="kind", bins=50)
    assert "nvlink gpu->switch (32)" in labels(ax)
    assert "256 links by kind" in title(ax)
    kinds = {name: row for name, row in zip(labels(ax), table_of(ax), strict=True)}
    at_gpu = [
        link
        for link in range(256)
        if machine.link_kind(link) == "nvlink" and "gpu" in machine.nodes[machine.link_src[link]]
    ]
    assert len(at_gpu) == 32
    mean = result.link_busy_ps[at_gpu].mean() / result.time_ps
    assert kinds["nvlink gpu->switch (32)"].mean() == pytest.approx(mean)
    ax = link_heatmap(result, by="node", bins=50)
    assert labels(ax)[:4] == ["node[0]", "node[1]", "node[2]", "node[3]"]
    assert ax.get_ylabel() == "links out of"


@pytest.mark.parametrize("by", ["auto", "kind", "node"])
def test_a_large_machine_has_few_rows_that_fit(by: str) -> None:
    result = run(rail_optimized(128, 8), "all_reduce", "halving_doubling")
    ax = link_heatmap(result, by=by)
    assert 1 < table_of(ax).shape[0] <= 64
    assert fits(ax)


def test_idle_is_grey_and_busy_is_dark() -> None:
    image = link_heatmap(run()).images[0]
    assert to_hex(image.cmap(image.norm(0.0))).upper() == IDLE
    light, dark = (sum(image.cmap(image.norm(load))[:3]) for load in (0.05, 1.0))
    assert dark < light


def test_keywords_reach_the_image() -> None:
    image = link_heatmap(run(), cmap="cividis", vmax=0.5, alpha=0.4).images[0]
    assert (image.get_cmap().name, image.get_clim()[1], image.get_alpha()) == ("cividis", 0.5, 0.4)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"bins": 0}, "link_heatmap: bins: expected a whole number from 1, got 0"),
        ({"bins": 2.5}, "link_heatmap: bins: expected a whole number from 1, got 2.5"),
        ({"bins": 10**8}, "are more than 20,000,000 cells; expected fewer, or by='busiest'"),
        ({"by": "nodes"}, "link_heatmap: by: expected one of auto, link, busiest, node, kind, got 'nodes'"),
        ({"most": 0}, "link_heatmap: most: expected a whole number of rows from 1, got 0"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        link_heatmap(run(), **kwargs)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_records_there_is_no_heat_map_but_there_are_bars_and_the_machine() -> None:
    result = collsim.compare("all_reduce", ring(4), "1MiB", algorithms="ring").results["ring"][2**20]
    with pytest.raises(CollsimError, match="expected a run with records=True"):
        link_heatmap(result)
    assert len(utilisation_bars(result).patches) == 4
    assert topology(result).collections


@pytest.mark.parametrize("picture", [link_heatmap, utilisation_bars])
def test_a_run_without_links_has_nothing_to_draw(picture: Any) -> None:
    result = run(fully_connected(1))
    with pytest.raises(InputError, match="nothing to draw, the run uses no links"):
        picture(result)


# -- bars ------------------------------------------------------------------------------------------------------------


def test_bars_are_parts_of_the_time_the_busiest_on_top() -> None:
    result = run(load_topology(shipped()["dgx-h100-x4"]))
    ax = utilisation_bars(result, by="link")
    width = [bar.get_width() for bar in ax.patches]
    part = result.link_busy_ps / result.time_ps
    np.testing.assert_allclose(width, np.sort(part[part > 0])[::-1])
    first = result.topology.link_index(labels(ax)[0])
    assert part[first] == width[0]
    assert ax.get_xlim() == (0, 1)
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"nvlink", "pcie", "infiniband"}


def test_bars_of_a_large_machine_say_what_is_left_out() -> None:
    ax = utilisation_bars(run(ring(1024), "all_gather"))
    assert len(ax.patches) == 40
    assert "the 40 busiest of 1,024 links (the others " in title(ax)
    assert fits(ax)


def test_bars_of_kinds_are_means() -> None:
    result = run(rail_optimized(4, 8))
    ax = utilisation_bars(result, by="kind")
    busy = result.link_busy_ps / result.time_ps
    assert sum(
        bar.get_width() * int(name.split("(")[1][:-1]) for bar, name in zip(ax.patches, labels(ax), strict=True)
    ) == (pytest.approx(busy.sum()))


def test_keywords_reach_the_bars() -> None:
    ax = utilisation_bars(run(), color="red", height=0.5)
    assert {(to_hex(bar.get_facecolor()), bar.get_height()) for bar in ax.patches} == {("#ff0000", 0.5)}
    assert ax.get_legend() is None


# -- the machine -----------------------------------------------------------------------------------------------------


def lines_of(ax: Any) -> LineCollection:
    (lines,) = (artist for artist in ax.collections if isinstance(artist, LineCollection))
    return lines


def marks_of(ax: Any) -> dict[str, PathCollection]:
    return {artist.get_label(): artist for artist in ax.collections if isinstance(artist, PathCollection)}


def test_devices_stand_where_the_layout_says_and_links_join_them() -> None:
    machine = load_topology(shipped()["pcie-4gpu"])
    places = collsim.plot.node_positions(machine)
    ax = topology(machine)
    marks = marks_of(ax)
    assert set(marks) == {"gpu", "switch", "host"}
    np.testing.assert_allclose(marks["gpu"].get_offsets(), places[machine.rank_nodes])
    ends = {tuple(sorted((tuple(line[0].round(9)), tuple(line[-1].round(9))))) for line in lines_of(ax).get_segments()}
    pairs = zip(machine.link_src, machine.link_dst, strict=True)
    assert ends == {tuple(sorted((tuple(places[a].round(9)), tuple(places[b].round(9))))) for a, b in pairs}
    assert len(lines_of(ax).get_segments()) == 7, "both directions are one line"
    assert {text.get_text() for text in ax.texts} == set(machine.nodes)


def test_links_of_a_run_are_coloured_by_load_each_direction() -> None:
    result = run(load_topology(shipped()["dgx-1-v100"]), "all_reduce", "tree")
    machine, ax = result.topology, topology(result)
    lines = lines_of(ax)
    places = collsim.plot.node_positions(machine)
    load: dict[Any, float] = {}
    for link, busy in enumerate((result.link_busy_ps / result.time_ps).tolist()):
        ends = tuple(places[machine.link_src[link]].round(9)), tuple(places[machine.link_dst[link]].round(9))
        load[ends] = max(load.get(ends, 0), busy)
    drawn = {
        (tuple(line[0].round(9)), tuple(line[-1].round(9))): value
        for line, value in zip(lines.get_segments(), lines.get_array(), strict=True)
    }
    assert drawn == pytest.approx(load)
    assert min(load.values()) == 0, "some links are not used"
    lines.update_scalarmappable()
    colours = [to_hex(colour).upper() for colour in lines.get_edgecolor()]
    assert [colour == IDLE for colour in colours] == [value == 0 for value in lines.get_array()]
    assert list(lines.get_array()) == sorted(lines.get_array()), "the busiest on top"
    assert [other.get_ylabel() for other in ax.figure.axes if other is not ax] == ["utilisation of links"]


def test_links_that_go_one_way_have_arrows() -> None:
    ax = topology(ring(6))
    (arrows,) = (artist for artist in ax.collections if isinstance(artist, PolyCollection))
    places = collsim.plot.node_positions(ring(6))
    assert len(arrows.get_paths()) == 6
    for path in arrows.get_paths():
        tip, *back = path.vertices[:3]
        ahead = tip - np.mean(back, axis=0)
        along = [float(ahead @ (places[(i + 1) % 6] - places[i])) for i in range(6)]
        near = int(np.argmin([np.hypot(*(tip - (places[i] + places[(i + 1) % 6]) / 2)) for i in range(6)]))
        assert along[near] > 0
    two_way = topology(collsim.topology.bidirectional_ring(6))
    assert not [artist for artist in two_way.collections if isinstance(artist, PolyCollection)]


def test_wrap_around_links_do_not_hide_behind_the_others() -> None:
    machine = torus((5, 5))
    ax = topology(machine)
    places = collsim.plot.node_positions(machine)
    for line in lines_of(ax).get_segments():
        if np.hypot(*(line[-1] - line[0])) > 0.5:
            inner = [np.hypot(*(point - place)) for point in line[1:-1] for place in places]
            assert min(inner) > 0.01


@pytest.mark.parametrize(
    "machine",
    [fat_tree(1024), rail_optimized(128), switch(1024), fully_connected(128), dragonfly(33, 8, 4)],
    ids=lambda machine: machine.name,
)
def test_large_machines_are_drawn_in_groups(machine: Any) -> None:
    ax = topology(machine)
    marks = sum(len(artist.get_offsets()) for artist in marks_of(ax).values())
    assert marks <= 64
    assert len(lines_of(ax).get_segments()) <= 700
    assert " groups of " in title(ax)
    assert title(ax).startswith(machine.name)
    assert fits(ax)


def test_a_line_between_groups_has_the_load_of_its_busiest_link() -> None:
    result = run(fat_tree(1024), "all_reduce", "halving_doubling")
    ax = topology(result)
    assert "a line is its busiest link" in title(ax)
    assert lines_of(ax).get_array().max() == pytest.approx(result.link_busy_ps.max() / result.time_ps)


@pytest.mark.parametrize("machine", [ring(1024), torus((16, 8, 8))], ids=["ring", "torus"])
def test_large_grids_and_circles_are_drawn_as_they_are(machine: Any) -> None:
    ax = topology(machine)
    assert len(marks_of(ax)["gpu"].get_offsets()) == 1024
    assert not ax.texts
    assert fits(ax)


@pytest.mark.parametrize("name", ["dgx-1-v100", "dgx-h100-x4", "gb200-nvl72", "tpu-v4-4x4x4"])
def test_pictures_of_shipped_machines_fit(name: str) -> None:
    assert fits(topology(load_topology(shipped()[name])))


def test_nodes_of_a_cluster_are_boxes() -> None:
    ax = topology(rail_optimized(4, 8))
    (boxes,) = (artist for artist in ax.collections if isinstance(artist, PolyCollection))
    assert len(boxes.get_paths()) == 4


def test_names_are_drawn_as_they_are() -> None:
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(["$x_{", "</script>"], kind="gpu")
    graph.add_edge("$x_{", "</script>", bandwidth=10**9, latency=1e-6)
    graph.add_edge("</script>", "$x_{", bandwidth=10**9, latency=1e-6)
    draw(topology(collsim.topology.from_networkx(graph, name="$a_{")))


def test_keywords_reach_the_lines() -> None:
    lines = lines_of(topology(run(), cmap="cividis", linewidths=5, vmax=2.0))
    assert (lines.get_cmap().name, lines.get_linewidth(), lines.get_clim()[1]) == ("cividis", [5], 2.0)
    lines = lines_of(topology(ring(4), color="red", alpha=0.5))
    assert np.unique(lines.get_edgecolor(), axis=0).tolist() == [[1, 0, 0, 0.5]]


def test_something_else_is_refused() -> None:
    with pytest.raises(InputError, match="topology: expected a Topology or a Result, got str"):
        topology("ring8")  # type: ignore[arg-type]


@pytest.mark.parametrize("picture", [link_heatmap, utilisation_bars, topology])
def test_given_axes_are_drawn_into(picture: Any) -> None:
    figure = Figure(layout="constrained")
    left, right = figure.subplots(1, 2)
    assert picture(run(), ax=right) is right
    assert not left.collections
    assert not left.images
    assert not left.patches
