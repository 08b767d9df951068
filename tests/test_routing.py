from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim.topology
from collsim.errors import TopologyError
from collsim.topology import TopologyBuilder, hubs, routing
from collsim.topology.search import distances

NVLINKS = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip


def dgx1():
    builder = TopologyBuilder("dgx-1")
    for gpu in range(8):
        builder.add_node(f"gpu{gpu}")
    for (a, b), count in NVLINKS.items():
        builder.add_duplex(f"gpu{a}", f"gpu{b}", 25 * 10**9, 700_000, count=count)
    return builder.build()


def names(topology, route):
    return [topology.link_name(link) for link in route]


def slow_route(topology, src, dst, channel):
    """The rule once more, from its words: all shortest paths are written out and looked at."""
    out_links = {v: [] for v in range(topology.n_nodes)}
    in_links = {v: [] for v in range(topology.n_nodes)}
    for link in range(topology.n_links):
        a, b, key = int(topology.link_src[link]), int(topology.link_dst[link]), int(topology.link_key[link])
        out_links[a].append((b, key, link))
        in_links[b].append((a, key, link))
    paths = [[]] if src == dst else []
    level, seen = [(src, [])], {src}
    while level and not paths:
        reached = []
        for node, path in level:
            if node != src and not topology.forwards[node]:
                continue
            reached += [(b, [*path, link]) for b, _, link in out_links[node] if b not in seen]
        paths = [path for node, path in reached if node == dst]
        seen |= {node for node, _ in reached}
        level = reached
    if not paths:
        return None
    if src == dst:
        return ()
    width = max(min(topology.link_bandwidth[path]) for path in paths)
    paths = [path for path in paths if min(topology.link_bandwidth[path]) == width]
    rank = topology.rank_of_node[dst]
    number, route, node = int(rank if rank >= 0 else dst), [], src
    while node != dst:
        going_on = {path[len(route)] for path in paths if path[: len(route)] == route}
        choices = [entry for entry in sorted(out_links[node]) if entry[2] in going_on]
        node, _, link = choices[(number + channel) % len(choices)]
        channel = 0 if len(choices) > 1 else channel
        route.append(link)
        number = [entry[2] for entry in sorted(in_links[node])].index(link)
    return tuple(route)


@st.composite
def machines(draw):
    n = draw(st.integers(2, 7))
    builder = TopologyBuilder("random")
    for node in range(n):
        builder.add_node(
            f"n{node}", "gpu" if node < 2 or draw(st.booleans()) else "switch", forwards=draw(st.booleans())
        )
    places = st.integers(0, n - 1)
    for a, b, bandwidth, count, duplex in draw(
        st.lists(st.tuples(places, places, st.integers(1, 3), st.integers(1, 3), st.booleans()), max_size=16)
    ):
        if a != b:
            add = builder.add_duplex if duplex else builder.add_link
            add(f"n{a}", f"n{b}", bandwidth, 1, count=count)
    return builder.build()


@pytest.mark.parametrize("hub_degree", [None, 99, 1, 2, 3, 4])
@settings(deadline=None, max_examples=150)
@given(topology=machines(), channel=st.integers(0, 5))
def test_routes_follow_the_rule(hub_degree, topology, channel):
    """From every destination, from both ends, and past hubs: nodes of so many neighbours."""
    n = topology.n_nodes
    wanted = {(a, b): slow_route(topology, a, b, channel) for a in range(n) for b in range(n)}
    linked = np.array([pair for pair, route in wanted.items() if route is not None])
    with pytest.MonkeyPatch.context() as patch:
        if hub_degree is not None:
            patch.setattr(routing, "WHOLE", -1)
            patch.setattr(routing, "MANY", 100)
            patch.setattr(hubs, "DEGREE", hub_degree)
        ptr, links = topology.route_nodes(linked[:, 0], linked[:, 1], channel)
        got = {tuple(p): tuple(links[i:j].tolist()) for p, i, j in zip(linked.tolist(), ptr[:-1], ptr[1:], strict=True)}
        assert got == {pair: route for pair, route in wanted.items() if route is not None}
        for pair, route in wanted.items():
            if route is None:
                with pytest.raises(TopologyError, match=rf"no route from 'n{pair[0]}' to 'n{pair[1]}'"):
                    topology.route_nodes(np.array([pair[0]]), np.array([pair[1]]), channel)


@pytest.mark.parametrize(
    "topology",
    [collsim.topology.torus((4, 3, 2)), collsim.topology.fat_tree(16, 4, spines=2, oversubscription=2), dgx1()],
)
def test_many_routes_at_once_are_the_single_ones(topology, monkeypatch):
    n = topology.n_ranks
    src, dst, channel = (column.ravel() for column in np.meshgrid(range(n), range(n), range(2), indexing="ij"))
    rng = np.random.default_rng(1)
    order = rng.permutation(len(src))
    src, dst, channel = src[order], dst[order], channel[order]
    ptr, links = topology.routes(src, dst, channel)
    monkeypatch.setattr(routing, "STATES", 1)  # one search at a time, and pairs halved down to one
    for whole in (routing.WHOLE, 0):
        monkeypatch.setattr(routing, "WHOLE", whole)
        topology.cache.clear()
        again = topology.routes(src, dst, channel)
        assert np.array_equal(again[0], ptr)
        assert np.array_equal(again[1], links)
    for row in range(0, len(src), 17):
        assert tuple(links[ptr[row] : ptr[row + 1]]) == topology.route(src[row], dst[row], channel[row])


def test_lengths_are_those_of_networkx():
    topology = collsim.topology.dragonfly(5, 3, 2)
    expected = dict(nx.all_pairs_shortest_path_length(topology.graph))
    hops = distances(topology, topology.rank_nodes)
    for rank, name in enumerate(topology.ranks):
        assert hops[rank].tolist() == [expected[node][name] for node in topology.nodes]


def test_naive_ring_on_dgx1_shares_a_link():
    topology = dgx1()
    routes = [topology.route(rank, (rank + 1) % 8) for rank in range(8)]
    assert names(topology, routes[3]) == ["gpu3->gpu0#1", "gpu0->gpu4#1"]
    assert names(topology, routes[7]) == ["gpu7->gpu3", "gpu3->gpu0#1"]
    assert all(len(routes[rank]) == 1 for rank in (0, 1, 2, 4, 5, 6))


def test_ring_along_the_nvlinks_of_dgx1_shares_none():
    topology = dgx1()
    order = topology.ring_order()
    links = [link for a, b in zip(order, (*order[1:], order[0]), strict=True) for link in topology.route(a, b)]
    assert len(links) == len(set(links)) == 8


def test_no_route_from_a_rank_to_itself():
    topology = collsim.topology.ring(4)
    assert topology.route(2, 2) == ()
    ptr, links = topology.routes(np.array([1, 1]), np.array([1, 2]), np.array([0, 0]))
    assert ptr.tolist() == [0, 0, 1]
    assert names(topology, links) == ["gpu1->gpu2"]
    assert [len(array) for array in topology.routes(np.array([], int), np.array([], int))] == [1, 0]


def test_fewer_hops_come_before_bandwidth_and_bandwidth_before_dealing():
    builder = TopologyBuilder("choices")
    for name in ("a", "b", "slow", "fast", "far"):
        builder.add_node(name, "gpu" if name in "ab" else "switch")
    for middle, bandwidth in (("slow", 1), ("fast", 2)):
        builder.add_duplex("a", middle, 5, 1)
        builder.add_duplex(middle, "b", bandwidth, 1)
    for one, other in (("a", "far"), ("far", "fast")):
        builder.add_duplex(one, other, 100, 1)
    topology = builder.build()
    for channel in range(4):
        assert names(topology, topology.route(0, 1, channel)) == ["a->fast", "fast->b"]


def test_channels_and_destinations_are_dealt_out():
    topology = collsim.topology.fat_tree(8, 4, spines=4)
    spines = {channel: names(topology, topology.route(0, 4, channel))[1] for channel in range(5)}
    assert spines == {c: f"leaf0->spine{c % 4}" for c in range(5)}
    assert {names(topology, topology.route(0, dst))[1] for dst in range(4, 8)} == {f"leaf0->spine{0}"}
    assert {names(topology, topology.route(src, 4))[1] for src in range(4)} == {f"leaf0->spine{s}" for s in range(4)}


def test_nodes_that_do_not_forward_are_ends_only():
    builder = TopologyBuilder("triangle")
    for name in "abc":
        builder.add_node(name, forwards=name != "b")
    builder.add_duplex("a", "b", 1, 1)
    builder.add_duplex("b", "c", 1, 1)
    topology = builder.build()
    assert names(topology, topology.route(0, 1)) == ["a->b"]
    with pytest.raises(TopologyError, match=r"no route from 'a' to 'c'.*let the nodes between them forward"):
        topology.route(0, 2)
    with pytest.raises(TopologyError, match="route via 'b': the node does not forward"):
        topology.route_via(0, 2, ("b",))


def test_disconnected_machines_name_both_ends():
    builder = TopologyBuilder("apart")
    for gpu in range(4):
        builder.add_node(f"gpu{gpu}")
    builder.add_duplex("gpu0", "gpu1", 1, 1)
    builder.add_link("gpu3", "gpu2", 1, 1)
    topology = builder.build()
    with pytest.raises(
        TopologyError, match="no route from 'gpu0' to 'gpu2': links lead to the latter from 1 of the other 3"
    ):
        topology.route(0, 2)
    with pytest.raises(TopologyError, match="no route from 'gpu2' to 'gpu3'"):
        topology.routes(np.array([0, 1, 2]), np.array([1, 0, 3]))


def test_channels_stay_apart_behind_a_switch():
    builder = TopologyBuilder("two cables")
    for name, kind in (("gpu0", "gpu"), ("gpu1", "gpu"), ("sw", "switch")):
        builder.add_node(name, kind)
    for gpu in ("gpu0", "gpu1"):
        builder.add_duplex(gpu, "sw", 10**9, 1000, count=2)
    topology = builder.build()
    taken = [names(topology, topology.route(0, 1, channel)) for channel in (0, 1)]
    assert taken == [["gpu0->sw#1", "sw->gpu1#1"], ["gpu0->sw#0", "sw->gpu1#0"]]


def test_given_routes_come_first_on_every_channel():
    builder = TopologyBuilder("square")
    for name in "abcd":
        builder.add_node(name)
    for one, other in ("ab", "bc", "cd", "da"):
        builder.add_duplex(one, other, 1, 1)
    detour = ["a->d", "d->c", "c->b"]
    topology = builder.build(routes={("a", "b"): detour, ("b", "a"): [1]})
    for channel in range(3):
        assert names(topology, topology.route(0, 1, channel)) == detour
    ptr, links = topology.routes(np.array([0, 1, 0, 2, 0]), np.array([1, 0, 3, 3, 1]))
    assert np.diff(ptr).tolist() == [3, 1, 1, 1, 3]
    assert names(topology, links) == [*detour, "b->a", "a->d", "c->d", *detour]
    for routes, message in (
        ({("a", "b"): ["b->c"]}, "route from 'a' to 'b': link b->c does not start at 'a'"),
        ({("a", "b"): ["a->d"]}, "its links end at 'd', not at 'b'"),
        ({("a", "b"): ["a->c"]}, "no link 'a->c'"),
        ({("a", "b"): [99]}, "no link 99"),
        ({("a", "b"): []}, "its links end at 'a'"),
        ({("a", "b"): ["a->d", "d->a", "a->b"]}, "route from 'a' to 'b': it comes to 'a' twice"),
        ({("a", "b"): ["a->b", "b->c", "c->b"]}, "route from 'a' to 'b': it comes to 'b' twice"),
        ({("a", "x"): [0]}, "no node 'x'"),
    ):
        with pytest.raises(TopologyError, match=message):
            builder.build(routes=routes)


def test_given_routes_stay_off_nodes_that_do_not_forward():
    """Data on its way through such a node would not wait for its overhead, and would be faster than the bound."""
    builder = TopologyBuilder("ring")
    for name in "abc":
        builder.add_node(name, forwards=False, send_overhead=10**7)
    for one, other in ("ab", "bc", "ca"):
        builder.add_link(one, other, 10**9, 10**6)
    assert builder.build(routes={("a", "b"): ["a->b"]}).given_routes == {(0, 1): (0,)}
    with pytest.raises(TopologyError, match="route from 'a' to 'c': 'b' does not forward; take links past it"):
        builder.build(routes={("a", "c"): ["a->b", "b->c"]})


def test_routes_by_way_of_named_nodes():
    topology = dgx1()
    via = topology.route_via(3, 4, ("gpu7",))
    assert names(topology, via)[0] == "gpu3->gpu7"
    assert names(topology, via)[1] in ("gpu7->gpu4#0", "gpu7->gpu4#1")
    assert topology.route_via(3, 4, ()) == topology.route(3, 4)
    assert len(topology.route_via(3, 4, (), 1)) == 2
    with pytest.raises(TopologyError, match="no node 'gpu9'"):
        topology.route_via(3, 4, ("gpu9",))


def test_ranks_are_whole_numbers():
    topology = collsim.topology.line(4)
    assert topology.route(np.int64(0), np.uint8(3), np.int32(1)) == topology.route(0, 3, 1) == topology.route(0, 3)
    for ends, message in (
        (("gpu0", "gpu9"), r"expected a rank \(a whole number\), got 'gpu0'; 'gpu0' is rank 0"),
        ((0, "gpu9"), r"expected a rank \(a whole number\), got 'gpu9'$"),
        ((0.0, 1), r"expected a rank \(a whole number\), got 0.0$"),
        ((0, None), r"expected a rank \(a whole number\), got None$"),
        ((0, np.array([1, 2])), r"expected a rank \(a whole number\), got array\(\[1, 2\]\)$"),
        ((0, 1, 0.5), "channel: expected a whole number, got 0.5"),
        ((0, 4), "no rank 4"),
        ((-1, 0), "no rank -1"),
    ):
        with pytest.raises(TopologyError, match=message):
            topology.route(*ends)
    for ranks in (np.array([0.0]), ["gpu0"], [True]):
        with pytest.raises(TopologyError, match=r"expected ranks \(whole numbers\), got "):
            topology.routes(ranks, [1])
    assert topology.routes([], [])[0].tolist() == [0]
    with pytest.raises(TopologyError, match=r"no node 5 in"):
        topology.node_index(5)


def test_what_is_kept_is_bounded_and_read_only(monkeypatch):
    monkeypatch.setattr(routing, "KEPT_LINKS", 500)
    topology = collsim.topology.ring(16)
    for rank in range(16):
        _, links = topology.routes(np.array([rank]), np.array([(rank + 3) % 16]))
        with pytest.raises(ValueError, match="read-only"):
            links[0] = 0
    assert 1 < len(topology.cache["routes"]) < 16
    first = topology.routes(np.array([15]), np.array([2]))
    assert topology.routes(np.array([15]), np.array([2])) is first


def test_routes_of_single_pairs_are_bounded_too(monkeypatch):
    monkeypatch.setattr(routing, "KEPT_LINKS", 1000)
    topology = collsim.topology.ring(16)
    for rank in range(16):
        assert len(topology.route(rank, (rank + 3) % 16)) == 3
    assert len(topology.cache["routes"]) < 16
    assert not any(isinstance(key, tuple) for key in topology.cache)
