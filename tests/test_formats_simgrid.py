"""SimGrid platforms read: grammar, routes, sharing, clusters, refusals."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest

import collsim
from collsim.formats import read_simgrid, read_topology
from collsim.formats.simgrid import build, parse_simgrid
from collsim.formats.simgrid.wiring import CONNECTOR
from collsim.formats.source import Source
from collsim.topology import Topology

SAMPLES = Path(__file__).parents[2] / "shared" / "samples"

CLUSTER = 'id="c" prefix="n" suffix=".x" speed="1Gf" bw="125MBps" lat="50us"'
HOSTS = "".join(f'<host id="{name}" speed="1Gf"/>' for name in "abc")


def platform(inside: str, version: str = "4.1") -> Topology:
    text = '<?xml version="1.0"?>\n<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'
    return parse_simgrid(Source("p.xml", f'{text}<platform version="{version}">\n{inside}\n</platform>'))


def full(inside: str, routing: str = "Full") -> Topology:
    return platform(f'<zone id="z" routing="{routing}">{HOSTS}{inside}</zone>')


def cluster(radical: str, more: str = "") -> Topology:
    return platform(f'<cluster {CLUSTER} radical="{radical}" {more}/>')


def link(name: str, rate: str = "1GBps", delay: str = "1us", more: str = "") -> str:
    return f'<link id="{name}" bandwidth="{rate}" latency="{delay}" {more}/>'


def route(src: str, dst: str, *links: str, more: str = "") -> str:
    inside = "".join(f'<link_ctn id="{one.partition(" ")[0]}" {one.partition(" ")[2]}/>' for one in links)
    return f'<route src="{src}" dst="{dst}" {more}>{inside}</route>'


def names(topology: Topology, src: str, dst: str) -> list[str]:
    ranks = topology.ranks
    return [topology.link_name(one) for one in topology.route(ranks.index(src), ranks.index(dst))]


def real(topology: Topology, src: int, dst: int) -> list[int]:
    """Return the links of a route that are the platform's own."""
    return [one for one in topology.route(src, dst) if topology.link_kind(one) != CONNECTOR]


def latency(topology: Topology, src: int, dst: int) -> int:
    return int(topology.link_latency[list(topology.route(src, dst))].sum())


@pytest.mark.skipif(not SAMPLES.exists(), reason="the samples are not here")
def test_sample_torus() -> None:
    topology = read_topology(SAMPLES / "simgrid_cluster_torus.xml")
    assert topology.ranks == tuple(f"node-{i}.simgrid.org" for i in range(12))
    assert topology.n_nodes == 12
    assert topology.n_links == 2 * 3 * 12  # a link up in each dimension for each host, in both directions
    lengths = Counter(len(topology.route(a, b)) for a, b in permutations(range(12), 2))
    assert lengths == {1: 48, 2: 60, 3: 24}  # diameter 3 = 1 + 1 + 1
    # SimGrid 3.32: link_from_2_to_0_DOWN, link_from_2_to_5_UP, link_from_5_to_11_UP
    assert [int(topology.link_dst[one]) for one in topology.route(0, 11)] == [2, 5, 11]
    assert set(topology.link_bandwidth.tolist()) == {125_000_000}
    assert set(topology.link_latency.tolist()) == {50_000_000}


@pytest.mark.skipif(not SAMPLES.exists(), reason="the samples are not here")
def test_sample_small_platform() -> None:
    topology = read_simgrid(SAMPLES / "simgrid_small_platform.xml")
    assert topology.ranks == ("Tremblay", "Jupiter", "Fafard", "Ginette", "Bourassa", "Jacquelin", "Boivin")
    assert len(topology.given_routes) == 42
    for a, b in permutations(range(7), 2):
        there, back = real(topology, a, b), real(topology, b, a)
        assert there == back[::-1]  # symmetrical, and every link is SHARED: the same capacity both ways
    ranks = topology.ranks.index
    boivin, fafard, jupiter = ranks("Boivin"), ranks("Fafard"), ranks("Jupiter")
    assert latency(topology, boivin, fafard) == 51_040_605_000  # 0.051040605 s, as SimGrid 3.32 has it
    assert [topology.link_name(one) for one in real(topology, boivin, jupiter)] == ["47.in->47.out"]
    assert len(real(topology, ranks("Jacquelin"), boivin)) == 10


def test_hosts_are_ranks_in_file_order() -> None:
    topology = cluster("0-11")
    assert topology.ranks == tuple(f"n{i}.x" for i in range(12))
    assert set(topology.kinds[:12]) == {"gpu"}
    result = collsim.run("all_reduce", topology, size=12 * 2**20, algorithm="ring", channels=1, network="fluid")
    assert result.time == pytest.approx(22 * (2**20 / 125e6 + 100e-6), rel=1e-6)


def test_a_shared_link_has_one_capacity_for_both_directions() -> None:
    topology = full(link("l") + route("a", "b", "l") + link("m") + route("b", "c", "m") + route("a", "c", "l", "m"))
    assert names(topology, "a", "b") == ["a->l.in", "l.in->l.out", "l.out->b"]
    assert names(topology, "b", "a") == ["b->l.in", "l.in->l.out", "l.out->a"]
    hosts = HOSTS.partition('<host id="c"')[0]
    pair = platform(f'<zone id="z" routing="Full">{hosts}{link("l")}{route("a", "b", "l")}</zone>')
    assert pair.n_links == 5
    # Both send a million bytes at once, twice, and share 1 GB/s.
    result = collsim.run("all_reduce", pair, size=2 * 10**6, algorithm="ring", channels=1, network="fluid")
    assert result.time == pytest.approx(2 * (2e-3 + 1e-6), rel=1e-6)


def test_a_split_duplex_link_is_two() -> None:
    topology = full(link("l", more='sharing_policy="SPLITDUPLEX"') + route("a", "b", 'l direction="UP"'))
    assert names(topology, "a", "b") == ["a->b"]
    assert names(topology, "b", "a") == ["b->a"]
    old = full(link("l", more='sharing_policy="FULLDUPLEX"') + route("a", "b", 'l direction="DOWN"'))
    assert names(old, "a", "b") == ["a->b"]
    half = full(link("l", more='sharing_policy="SPLITDUPLEX"') + route("a", "b", "l_UP", more='symmetrical="NO"'))
    assert names(half, "a", "b") == ["a->b"]


def test_one_direction_is_one_link() -> None:
    topology = full(link("l") + link("m", "2GBps") + route("a", "b", "l", "m", more='symmetrical="NO"'))
    assert names(topology, "a", "b") == ["a->junction[0]", "junction[0]->b"]
    assert topology.link_bandwidth.tolist() == [10**9, 2 * 10**9]
    assert "no route for 5 pairs" in topology.description


def test_fatpipes_are_not_shared() -> None:
    topology = full(link("l", more='sharing_policy="FATPIPE"') + route("a", "b", "l") + route("a", "c", "l"))
    links = [set(topology.route(0, 1)), set(topology.route(0, 2)), set(topology.route(1, 0))]
    assert not links[0] & links[1]
    assert not links[0] & links[2]
    assert "FATPIPE" in topology.description


def test_loopbacks_and_what_is_no_network_are_passed_over() -> None:
    topology = platform(
        '<config id="x"><prop id="network/model" value="CM02"/></config>'
        '<zone id="z" routing="Full"><prop id="y" value="1"/>'
        '<host id="a" speed="1Gf,2Gf" core="4">'
        '<disk id="d" read_bw="1Bps" write_bw="1Bps"/><prop id="k" value="v"/></host>'
        '<host id="b" speed="nonsense" new="1"/><link id="l" bandwidth="1GBps"/>'
        + route("a", "a", "l") + route("a", "b", "l") + "</zone><actor host='a' function='f'/>"
    )  # fmt: skip
    assert topology.ranks == ("a", "b")
    assert len(real(topology, 0, 1)) == 1
    assert topology.link_latency.sum() == 0


def test_profiles_are_told_of_and_not_opened() -> None:
    topology = full(link("l", more='bandwidth_file="/etc/passwd"') + route("a", "b", "l"))
    assert "Profiles over time are not followed" in topology.description


def test_units_are_exact() -> None:
    rates = {
        "1Bps": 1, "8bps": 1, "1.5kBps": 1500, "10MBps": 10**7, "1GiBps": 2**30, "2Mibps": 2**18, "400Gbps": 5 * 10**10,
        "41.279125MBps": 41_279_125, "1000": 1000, "1e3Bps": 1000, "1TBps": 10**12, "1EBps": 10**18, "1KiBps": 1024,
    }  # fmt: skip
    for text, rate in rates.items():
        assert full(link("l", text) + route("a", "b", "l", more='symmetrical="NO"')).link_bandwidth.tolist() == [rate]
    times = {"0": 0, "1": 10**12, "1m": 60 * 10**12, "29.5890617ms": 29_589_061_700, "1w": 604_800 * 10**12, "7ps": 7}
    for text, delay in times.items():
        topology = full(link("l", delay=text) + route("a", "b", "l", more='symmetrical="NO"'))
        assert topology.link_latency.tolist() == [delay]


def test_flat_cluster() -> None:
    topology = cluster("0-2,7", 'bb_bw="1GBps" bb_lat="10us"')
    assert topology.ranks == ("n0.x", "n1.x", "n2.x", "n7.x")
    assert names(topology, "n0.x", "n7.x") == ["n0.x->c.up", "c.up->c.down", "c.down->n7.x"]
    assert latency(topology, 0, 3) == 110_000_000
    plain = cluster("0-3")
    assert names(plain, "n0.x", "n3.x") == ["n0.x->nc_router.x", "nc_router.x->n3.x"]
    assert not plain.forwards[plain.rank_nodes].any()
    shared = cluster("0-3", 'sharing_policy="SHARED" limiter_link="150MBps"')
    assert sorted(shared.link_bandwidth[real(shared, 0, 1)].tolist()) == [125_000_000] * 2 + [150_000_000] * 2
    assert set(real(shared, 0, 1)) == set(real(shared, 1, 0))


@pytest.mark.parametrize(("dims", "diameter"), [((5,), 2), ((4, 4), 4), ((6, 1, 7), 6), ((2, 2, 2, 2), 4)])
def test_torus(dims: tuple[int, ...], diameter: int) -> None:
    size = 1
    for one in dims:
        size *= one
    topology = cluster(f"0-{size - 1}", f'topology="TORUS" topo_parameters="{",".join(map(str, dims))}"')
    assert (topology.n_ranks, topology.n_links) == (size, 2 * size * sum(one > 1 for one in dims))

    def apart(a: int, b: int) -> int:
        hops = 0
        for one in dims:
            a, x, b, y = a // one, a % one, b // one, b % one
            hops += min((x - y) % one, (y - x) % one)
        return hops

    lengths = [(len(topology.route(a, b)), apart(a, b)) for a, b in permutations(range(size), 2)]
    assert all(length == hops for length, hops in lengths)
    assert max(length for length, _ in lengths) == diameter
    assert topology.forwards.all() or size == 5


def test_torus_takes_the_ways_of_simgrid() -> None:
    def stops(topology: Topology, src: int, dst: int) -> list[int]:
        return [int(topology.link_dst[one]) for one in topology.route(src, dst)]

    topology = cluster("0-11", 'topology="TORUS" topo_parameters="3,2,2"')
    assert stops(topology, 0, 11) == [2, 5, 11]  # the first dimension first, and there the short way round
    assert stops(topology, 11, 0) == [9, 6, 0]
    ring = cluster("0-3", 'topology="TORUS" topo_parameters="4"')
    assert [stops(ring, a, (a + 2) % 4)[0] for a in range(4)] == [1, 2, 1, 0]  # of two ways as long


def test_fat_tree() -> None:
    topology = cluster("0-15", 'topology="FAT_TREE" topo_parameters="2;4,4;1,2;1,2"')
    # Two levels: 4 switches over 4 hosts each, 2 over those, each joined by 2 links.
    assert Counter(topology.kinds) == {"gpu": 16, "switch": 6}
    assert topology.n_links == 2 * (16 + 4 * 2 * 2)
    assert {len(topology.route(0, other)) for other in (1, 2, 3)} == {2}
    assert {len(topology.route(0, other)) for other in range(4, 16)} == {4}
    ups = Counter(topology.route(0, other)[1] for other in range(4, 16))
    assert sorted(ups.values()) == [3, 3, 3, 3]  # D-mod-k deals destinations out evenly
    text = 'topology="FAT_TREE" topo_parameters="3;3,2,3;2,3,2;3,2,1"'
    deep = cluster("0-17", text)
    assert max(len(deep.route(a, b)) for a, b in permutations(range(18), 2)) == 6


def test_dragonfly() -> None:
    topology = cluster("0-119", 'topology="DRAGONFLY" topo_parameters="3,4;4,3;5,1;2"')
    assert Counter(topology.kinds) == {"gpu": 120, "switch": 60}
    # Hosts; routers of a chassis; their likes in a group; groups.
    assert topology.n_links == 2 * (120 + 12 * 10 + 3 * 5 * 6 + 3)
    rates = Counter(topology.link_bandwidth.tolist())
    assert rates == {125_000_000: 2 * (120 + 120), 375_000_000: 2 * 90, 500_000_000: 6}
    lengths = [len(topology.route(a, b)) for a, b in permutations(range(0, 120, 7), 2)]
    assert max(lengths) == 7  # host, two in the group, between groups, two in the other, host
    assert "minimal" in topology.description
    assert names(topology, "n0.x", "n1.x") == ["n0.x->c.router[0][0][0]", "c.router[0][0][0]->n1.x"]


NESTED = (
    '<zone id="w" routing="Full">'
    '<cluster id="A" prefix="a" suffix="" radical="0-2" speed="1Gf" bw="1GBps" lat="1us"/>'
    '<AS id="B" routing="Floyd"><host id="b0" speed="1Gf"/><host id="b1" speed="1Gf"/><router id="r"/>'
    '<link id="x" bandwidth="2GBps" latency="2us" sharing_policy="SPLITDUPLEX"/>'
    '<link id="y" bandwidth="3GBps" latency="3us"/>'
    '<route src="b0" dst="r"><link_ctn id="x" direction="UP"/></route>'
    '<route src="b1" dst="r"><link_ctn id="y"/></route></AS>'
    '<link id="wan" bandwidth="4GBps" latency="4us"/>'
    '<zoneRoute src="A" dst="B" gw_src="aA_router" gw_dst="r"><link_ctn id="wan"/></zoneRoute></zone>'
)


def test_zones_in_zones() -> None:
    topology = platform(NESTED)
    assert topology.ranks == ("a0", "a1", "a2", "b0", "b1")
    assert names(topology, "a0", "b0") == [
        "a0->aA_router",
        "aA_router->wan.in",
        "wan.in->wan.out",
        "wan.out->r",
        "r->b0",
    ]
    assert latency(topology, 0, 3) == 7_000_000
    assert latency(topology, 4, 0) == 8_000_000
    assert latency(topology, 3, 4) == 5_000_000
    assert len(topology.given_routes) == 20


@pytest.mark.parametrize("routing", ["Floyd", "Dijkstra", "DijkstraCache"])
def test_shortest_routes_count_links(routing: str) -> None:
    links = "".join(link(name) for name in "lmnop")
    topology = full(
        '<router id="r"/>' + links + route("a", "b", "l", "m", "n", "o") + route("a", "r", "p") + route("r", "b", "o"),
        routing,
    )
    assert [topology.link_name(one)[0] for one in real(topology, 0, 1)] == ["p", "o"]


def test_cabinets_and_host_links() -> None:
    topology = platform(
        '<zone id="w" routing="Cluster"><host id="q" speed="1Gf"/>'
        + link("u", "2MBps") + link("d", "3MBps")
        + '<cabinet id="k" prefix="k" suffix="x" radical="1-3" speed="1Gf" bw="10MBps" lat="3us"/>'
        '<backbone id="bb" bandwidth="4MBps" latency="7us"/><host_link id="q" up="u" down="d"/></zone>'
    )  # fmt: skip
    assert topology.ranks == ("q", "k1x", "k2x", "k3x")
    assert topology.link_bandwidth[real(topology, 0, 1)].tolist() == [2_000_000, 4_000_000, 10_000_000]
    assert topology.link_bandwidth[real(topology, 1, 0)].tolist() == [10_000_000, 4_000_000, 3_000_000]


def test_bypass_routes() -> None:
    bypass = '<bypassRoute src="a" dst="b"><link_ctn id="m"/></bypassRoute>'
    topology = full(link("l") + link("m", "7GBps") + route("a", "b", "l") + bypass)
    assert topology.link_bandwidth[real(topology, 0, 1)].tolist() == [7 * 10**9]
    assert topology.link_bandwidth[real(topology, 1, 0)].tolist() == [10**9]


def test_large_clusters_take_the_shortest_paths() -> None:
    topology = cluster("0-299")
    assert not topology.given_routes
    assert "need not be SimGrid's" in topology.description
    assert len(topology.route(0, 299)) == 2
    torus = cluster("0-399", 'topology="TORUS" topo_parameters="20,20"')
    assert torus.n_links == 1600
    assert len(torus.route(0, 210)) == 20
    backbone = cluster("0-299", 'bb_bw="1GBps" bb_sharing_policy="FATPIPE"')
    assert int(backbone.link_bandwidth[real(backbone, 0, 1)[1]]) == 300 * 10**9
    zone = "".join(f'<host id="h{i}" speed="1Gf"/>' for i in range(250))
    wires = "".join(link(f"l{i}") + route(f"h{i}", f"h{i + 1}", f"l{i}") for i in range(249))
    listed = platform(f'<zone id="z" routing="Full">{zone}{wires}{route("h0", "h0", "l0")}</zone>')
    assert len(listed.given_routes) == 498
    assert len(real(listed, 3, 4)) == 1


def test_a_budget_of_links_bounds_all_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "MAX_LENGTH", 100)
    topology = cluster("0-19", 'topology="TORUS" topo_parameters="20"')
    assert not topology.given_routes
    assert len(topology.route(0, 5)) == 5


def test_a_direction_named_by_itself_is_one_link_both_ways() -> None:
    text = (
        '<platform version="4.1"><zone id="w" routing="Full"><host id="a" speed="1f"/><host id="b" speed="1f"/>'
        '<link id="l" bandwidth="1GBps" latency="1us" sharing_policy="SPLITDUPLEX"/>'
        '<route src="a" dst="b"><link_ctn id="%s"%s/></route></zone></platform>'
    )
    half, whole = (parse_simgrid(Source("p.xml", text % which)) for which in (("l_UP", ""), ("l", ' direction="UP"')))
    both = [
        {half.link_name(link) for link in route if half.link_bandwidth[link] == 10**9}
        for route in (half.route(0, 1), half.route(1, 0))
    ]
    assert both[0] == both[1] != set()
    assert set(whole.route(0, 1)).isdisjoint(whole.route(1, 0))


@pytest.mark.parametrize("last", [197, 198])
def test_hosts_that_are_gateways_pass_routes_however_many_there_are(last: int) -> None:
    topology = parse_simgrid(
        Source(
            "p.xml",
            '<platform version="4.1"><zone id="w" routing="Full"><zone id="A" routing="Full"><host id="a1" speed="1f"/>'
            '<host id="a2" speed="1f"/><link id="l" bandwidth="1GBps" latency="1us"/><route src="a1" dst="a2">'
            f'<link_ctn id="l"/></route></zone><cluster id="c" prefix="n" suffix="" radical="0-{last}" speed="1f" '
            'bw="1GBps" lat="1us" router_id="r"/><link id="x" bandwidth="1GBps" latency="1us"/>'
            '<zoneRoute src="A" dst="c" gw_src="a1" gw_dst="r"><link_ctn id="x"/></zoneRoute></zone></platform>',
        )
    )
    far = topology.ranks.index("n0")
    # l, x and the link of the host, whatever stands between them
    assert topology.link_latency[list(topology.route(1, far))].sum() == 3 * 10**6


def test_zones_that_take_too_long_are_left_to_the_shortest_path() -> None:
    zones = "".join(
        f'<zone id="z{z}" routing="Floyd">'
        + "".join(f'<router id="r{z}_{i}"/>' for i in range(900))
        + f'<host id="h{z}" speed="1f"/><link id="k{z}" bandwidth="1GBps" latency="1us"/>'
        + "".join(f'<route src="r{z}_{i}" dst="r{z}_{i + 1}"><link_ctn id="k{z}"/></route>' for i in range(2))
        + f'<route src="h{z}" dst="r{z}_0"><link_ctn id="k{z}"/></route></zone>'
        for z in range(6)
    )
    links = '<link id="b" bandwidth="1GBps" latency="1us"/>'
    ways = "".join(
        f'<zoneRoute src="z{a}" dst="z{b}" gw_src="r{a}_0" gw_dst="r{b}_0"><link_ctn id="b"/></zoneRoute>'
        for a in range(6)
        for b in range(a)
    )
    text = f'<platform version="4.1"><zone id="w" routing="Full">{zones}{links}{ways}</zone></platform>'
    assert "too many routes between hosts" in parse_simgrid(Source("p.xml", text)).description
