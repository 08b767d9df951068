"""SimGrid platforms that are refused, with a place, and what mutations of good ones end in."""

from __future__ import annotations

import random
import re

import pytest

from collsim.errors import TopologyError
from collsim.formats.simgrid import parse_simgrid
from collsim.formats.source import Source
from collsim.topology import Topology

CLUSTER = 'id="c" prefix="n" suffix=".x" speed="1Gf" bw="125MBps" lat="50us"'
HOSTS = "".join(f'<host id="{name}" speed="1Gf"/>' for name in "abc")


def platform(inside: str, version: str = "4.1") -> Topology:
    text = '<?xml version="1.0"?>\n<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'
    return parse_simgrid(Source("p.xml", f'{text}<platform version="{version}">\n{inside}\n</platform>'))


def full(inside: str, routing: str = "Full") -> Topology:
    return platform(f'<zone id="z" routing="{routing}">{HOSTS}{inside}</zone>')


def link(name: str, rate: str = "1GBps", delay: str = "1us", more: str = "") -> str:
    return f'<link id="{name}" bandwidth="{rate}" latency="{delay}" {more}/>'


def route(src: str, dst: str, *links: str, more: str = "") -> str:
    inside = "".join(f'<link_ctn id="{one.partition(" ")[0]}" {one.partition(" ")[2]}/>' for one in links)
    return f'<route src="{src}" dst="{dst}" {more}>{inside}</route>'


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


REFUSED = [
    ("<host/>", "expected a SimGrid platform, got the element 'host'"),
    ('<platform version="3"><AS id="a" routing="Full"/></platform>', "got 3; run simgrid_update_xml on the file"),
    ('<platform version="5"><zone id="a" routing="Full"/></platform>', "newer than what collsim knows"),
    ('<platform version="x"/>', "expected the version 4.1, got 'x'"),
    ("<platform/>", "run simgrid_update_xml"),
    ('<platform version="4.1"/>', "expected one zone around all others, got 0"),
    ('<platform version="4.1"><zone id="a" routing="Full"/></platform>', "expected hosts, got a platform without any"),
    ('<platform version="4.1"><zone id="a" routing="Vivaldi"/></platform>', "routing Vivaldi, which collsim does not"),
    ('<platform version="4.1"><zone id="a" routing="Ful"/></platform>', "did you mean 'Full'?"),
    (
        '<platform version="4.1"><zone id="a" routing="Full"><peer id="p"/></zone></platform>',
        "it is for the routing Viv",
    ),
    ('<platform version="4.1"><include file="/etc/passwd"/></platform>', "put what it includes in its place"),
    ('<platform version="4.1"><zone id="a" routing="Full"><hots id="h"/></zone></platform>', "did you mean 'host'?"),
    ('<platform version="4.1"><zone id="a" routing="Full"><host id="a"/></zone></platform>', "a name that is not yet"),
    (
        '<platform version="4.1"><zone id="a" routing="Full"><host id=""/></zone></platform>',
        "1 to 200 printable letters",
    ),
    (f'<platform version="4.1"><zone id="a" routing="Full"><host id="{"x" * 10**6}"/></zone></platform>', "1 to 200"),
    ('<!DOCTYPE p [<!ENTITY a "b">]><platform version="4.1"/>', "expected plain XML, got an entity declaration"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_files_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(TopologyError, match=re.escape(message)) as caught:
        parse_simgrid(Source("p.xml", text))
    assert str(caught.value).startswith("p.xml")


INSIDE = [
    (link("l", "0Bps"), "link.bandwidth: expected from 1Bps"),
    (link("l", "-1MBps"), "expected from 1Bps"),
    (link("l", "nan"), "expected a bandwidth such as 125MBps, got 'nan'"),
    (link("l", "1e400Bps"), "expected from 1Bps to"),
    (link("l", "1e99999Bps"), "expected a bandwidth such as"),
    (link("l", "1" * 100), "expected a bandwidth such as"),
    (link("l", "1GB/s"), "did you mean 'GBps'?"),
    (link("l", "1MBps,2MBps"), "a list of values is for Wi-Fi"),
    (link("l", delay="-1us"), "expected from 0 to 106 days"),
    (link("l", delay="1e9w"), "expected from 0 to 106 days"),
    (link("l", more='sharing_policy="WIFI"'), "got Wi-Fi"),
    (link("l", more='sharing_policy="SHARD"'), "did you mean 'SHARED'?"),
    (link("l") + link("l"), "got the link 'l' again"),
    (link("l", more='sharing_policy="SPLITDUPLEX"') + link("l_UP"), "got the link 'l_UP' again"),
    (link("l", more='sharing_policy="SPLITDUPLEX"') + route("a", "b", "l"), "expected the direction UP or DOWN"),
    (link("long") + route("a", "b", "lng"), "expected a link, got 'lng'; did you mean 'long'?"),
    (link("l") + route("a", "x", "l"), "route.dst: expected a host or router, got 'x'"),
    (link("l") + route("a", "z", "l"), "expected a host or router, got 'z'"),
    (link("l") + route("a", "b", "l") + route("b", "a", "l"), "expected one route from 'b' to 'a', got another"),
    (link("l") + route("a", "b", "l", more='symmetrical="MAYBE"'), "expected YES or NO"),
    (link("l") + route("a", "b", "l", "l"), "cross a link once, got one from 'a' to 'b' over 'l' twice"),
    ('<cabinet id="k" radical="0-3" bw="1Bps" lat="1s"/>', "in a zone with the routing Cluster"),
    ("<route src='a' dst='b'><x/></route>", "expected an element of a platform, got 'x'"),
]


@pytest.mark.parametrize(("text", "message"), INSIDE)
def test_elements_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(TopologyError, match=re.escape(message)) as caught:
        full(text)
    assert str(caught.value).startswith("p.xml")


CLUSTERS = [
    ('radical="0-1000000000000"', "expected numbers and ranges"),
    ('radical="0-999999999"', "expected at most 100,000 hosts"),
    ('radical="5-1"', "write 1-5"),
    ('radical="1,1"', "got 1 twice"),
    ('radical="0-3" topology="TORUS" topo_parameters="3,2"', "expected 6 hosts, as topo_parameters has them, got 4"),
    ('radical="0-3" topology="TORUS" topo_parameters="999999999,999999999"', "expected at most 100,000 hosts"),
    ('radical="0-3" topology="TORUS" topo_parameters="3,0"', "a whole number from 1"),
    ('radical="0-3" topology="TORUS" topo_parameters="٣"', "a whole number from 1"),
    ('radical="0-3" topology="TORUS"', "expected an attribute 'topo_parameters', got none"),
    ('radical="0-3" topology="FAT_TREE" topo_parameters="2;4,4"', "got 2 parts"),
    ('radical="0-3" topology="FAT_TREE" topo_parameters="99;4;4;4"', "got 99 levels"),
    ('radical="0-3" topology="FAT_TREE" topo_parameters="2;4,4;1;1,2"', "parents of each level (2 of them), got 1"),
    ('radical="0-3" topology="FAT_TREE" topo_parameters="1;4;99999;9999"', "expected at most 100,000 hosts"),
    ('radical="0-3" topology="DRAGONFLY" topo_parameters="3,4;4,3;2,1;2"', "as many routers in a chassis as groups"),
    ('radical="0-3" topology="DRAGONFLY" topo_parameters="9,9"', "got 1 parts"),
    ('radical="0-3" topology="STAR"', "expected one of FLAT"),
    ('radical="0-3" bb_lat="1us"', "expected an attribute 'bb_bw', got none"),
]


@pytest.mark.parametrize(("text", "message"), CLUSTERS)
def test_clusters_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(TopologyError, match=re.escape(message)):
        platform(f"<cluster {CLUSTER} {text}/>")


def test_gateways_must_be_inside() -> None:
    with pytest.raises(TopologyError, match=re.escape("zoneRoute.gw_dst: expected a host or router of 'B', got 'a0'")):
        platform(NESTED.replace('gw_dst="r"', 'gw_dst="a0"'))
    inner = '<zone id="B2" routing="None"/></AS>'
    with pytest.raises(TopologyError, match="directly in 'w', got 'B2', which is elsewhere"):
        platform(NESTED.replace("</AS>", inner).replace('dst="B"', 'dst="B2"'))


def test_mutations_end_in_a_topology_or_a_place() -> None:
    rng = random.Random(11)
    texts = [
        f'<platform version="4.1">{NESTED}</platform>',
        f'<platform version="4.1"><cluster {CLUSTER} radical="0-11" topology="TORUS" topo_parameters="3,2,2"/>'
        "</platform>",
        f'<platform version="4.1"><cluster {CLUSTER} radical="0-7" topology="FAT_TREE" topo_parameters="2;4,2;1,2;1,2" '
        'bb_bw="1GBps"/></platform>',
    ]
    words = ["0", "-1", "1e400", "1" + "0" * 30, "nan", "", "x" * 500, "a", "FATPIPE", "SHARED", "<", '"', "&amp;", "٣"]
    for _ in range(300):
        text = rng.choice(texts)
        for _ in range(rng.randint(1, 3)):
            a, b = sorted(rng.sample(range(len(text)), 2))
            match rng.randrange(4):
                case 0:
                    text = text[:a] + text[b:] if b - a < 60 else text[:b]
                case 1:
                    text = text[:b] + text[a:b][:200] + text[b:]
                case 2:
                    text = text[:a] + text[b] + text[a + 1 : b] + text[a] + text[b + 1 :]
                case _:
                    values = list(re.finditer(r'(?<=")[^"]*(?=")', text))
                    value = rng.choice(values) if values else None
                    if value:
                        text = text[: value.start()] + rng.choice(words) + text[value.end() :]
        try:
            assert parse_simgrid(Source("p.xml", text)).n_ranks > 0
        except TopologyError as error:
            assert str(error).startswith("p.xml:")  # noqa: PT017
