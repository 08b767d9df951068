"""SimGrid itself as the judge, where it is installed: its routes, and its simulated time of a ring all_reduce.

The program below has the dependencies of our schedule and no others: a rank sends a chunk on when it has received it,
and may send the next one while that is under way. SimGrid's model CM02, with all its factors at 1, shares links evenly
only between flows of equal latency; so the latencies of the links are set to 0, and each message waits for the sum of
them before it starts, which is what they do in CM02 anyway.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import collsim
from collsim import load_topology
from collsim.formats.simgrid import read_simgrid, write_simgrid
from collsim.formats.simgrid.wiring import CONNECTOR
from collsim.topology import Topology

SAMPLES = Path(__file__).parents[2] / "shared" / "samples"

PROGRAM = """
import json
import sys

from simgrid import Actor, Engine, Mailbox, this_actor

path, ranks, sizes, *config = sys.argv[1:]
ranks, sizes = json.loads(ranks), json.loads(sizes)
n, steps = len(ranks), 2 * len(ranks) - 2
engine = Engine(["ring", "--log=root.thresh:critical", *("--cfg=" + option for option in config)])
engine.load_platform(path)
engine.netzone_root.seal()
hosts = [engine.host_by_name(name) for name in ranks]
routes = {}
for a in range(n):
    for b in range(n):
        if a != b:
            links, latency = hosts[a].route_to(hosts[b])
            routes[f"{a} {b}"] = [[[link.name, link.bandwidth] for link in links], latency]
for link in engine.all_links:
    link.set_latency(0)
ends = []


def send(rank, step):
    this_actor.sleep_for(routes[f"{rank} {(rank + 1) % n}"][1])
    Mailbox.by_name(f"{(rank + 1) % n} {step}").put("chunk", sizes[(rank - step) % n])


def run(rank):
    received = [Mailbox.by_name(f"{rank} {step}").get_async() for step in range(steps)]
    for step in range(steps):
        if step:
            received[step - 1][0].wait()
        Actor.create("send", hosts[rank], send, rank, step)
    received[-1][0].wait()
    ends.append(Engine.clock)


for rank in range(n):
    Actor.create(f"rank {rank}", hosts[rank], run, rank)
engine.run()
print(json.dumps({"time": max(ends), "routes": routes, "hosts": [host.name for host in engine.all_hosts]}))
"""

CONFIG = ("network/model:CM02", *(f"network/{factor}:1" for factor in ("bandwidth-factor", "latency-factor")),
          *(f"network/{name}:0" for name in ("weight-S", "crosstraffic", "TCP-gamma")))  # fmt: skip


@cache
def interpreter() -> str | None:
    """Return a Python that has the library."""
    for python in (sys.executable, shutil.which("python3"), "/usr/bin/python3"):
        if python and Path(python).exists():
            probe = subprocess.run([python, "-c", "import simgrid"], capture_output=True, check=False, timeout=60)
            if probe.returncode == 0:
                return python
    return None


def simgrid(path: Path, topology: Topology, sizes: list[int]) -> dict[str, Any]:
    python = interpreter()
    if python is None:
        pytest.skip("no Python here has the library simgrid (Debian: python3-simgrid), so SimGrid was not asked")
    command = [python, "-c", PROGRAM, str(path), json.dumps(topology.ranks), json.dumps(sizes), *CONFIG]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def compare(path: Path, size: int, *, routes: bool = True) -> None:
    topology = read_simgrid(path)
    n = topology.n_ranks
    told = simgrid(path, topology, [size // n + (chunk < size % n) for chunk in range(n)])
    assert sorted(topology.ranks) == told["hosts"]
    options: dict[str, Any] = {"algorithm": "ring", "order": tuple(range(n)), "channels": 1, "network": "fluid"}
    assert collsim.run("all_reduce", topology, size=size, **options).time == pytest.approx(told["time"], rel=0.01)
    if routes:
        same_routes(topology, told["routes"])


def same_routes(topology: Topology, told: dict[str, Any]) -> None:
    """Assert that rates and latencies of each route are SimGrid's, and that the same routes have a link in common."""
    ours: dict[int, set[str]] = {}
    theirs: dict[str, set[str]] = {}
    for a, b in permutations(range(topology.n_ranks), 2):
        links, latency = told[f"{a} {b}"]
        route = list(topology.route(a, b))
        real = [link for link in route if topology.link_kind(link) != CONNECTOR]
        assert sorted(topology.link_bandwidth[real].tolist()) == sorted(round(rate) for _, rate in links), (a, b)
        assert int(topology.link_latency[route].sum()) == pytest.approx(latency * 1e12, abs=1)
        for link in real:
            ours.setdefault(link, set()).add(f"{a} {b}")
        for name, _ in links:
            theirs.setdefault(name, set()).add(f"{a} {b}")
    assert sorted(map(sorted, ours.values())) == sorted(map(sorted, theirs.values()))


CLUSTER = 'prefix="n" suffix=".x" speed="1Gf" bw="125MBps" lat="50us"'


def flat(name: str, radical: str, more: str = "") -> str:
    return f'<cluster id="{name}" radical="{radical}" {CLUSTER} {more}/>'


def shape(kind: str, parameters: str, hosts: int, more: str = "") -> str:
    return flat("c", f"0-{hosts - 1}", f'topology="{kind}" topo_parameters="{parameters}" {more}')


def zone(routing: str) -> str:
    """Return hosts on a chain of routers with a short cut, over links of different rates, shared in both directions."""
    points = "".join(f'<host id="h{i}" speed="1Gf"/>' for i in range(5)) + '<router id="r"/><router id="s"/>'
    wires = [("h0", "r"), ("h1", "r"), ("h2", "s"), ("h3", "s"), ("r", "s"), ("h4", "s"), ("h4", "r"), ("h1", "h2")]
    links = "".join(
        f'<link id="l{i}" bandwidth="{10 + 7 * i}MBps" latency="{3 * i}us"/>'
        if i % 3
        else f'<link id="l{i}" bandwidth="{10 + 7 * i}MBps" latency="{3 * i}us" sharing_policy="SPLITDUPLEX"/>'
        for i in range(len(wires))
    )
    routes = "".join(
        f'<route src="{a}" dst="{b}"><link_ctn id="l{i}" direction="{"NONE" if i % 3 else "UP"}"/></route>'
        for i, (a, b) in enumerate(wires)
    )
    return f'<zone id="z" routing="{routing}">{points}{links}{routes}</zone>'


TRIANGLE = (
    '<zone id="z" routing="Full">'
    + "".join(f'<host id="{name}" speed="1Gf"/>' for name in "abc")
    + '<link id="l" bandwidth="10MBps" latency="3us"/><link id="m" bandwidth="20MBps" latency="50us"/>'
    '<link id="d" bandwidth="15MBps" latency="1ms" sharing_policy="SPLITDUPLEX"/>'
    '<route src="a" dst="b"><link_ctn id="l"/></route>'
    '<route src="b" dst="c"><link_ctn id="l"/><link_ctn id="m"/></route>'
    '<route src="c" dst="a"><link_ctn id="d" direction="DOWN"/><link_ctn id="m"/></route></zone>'
)

NESTED = (
    '<zone id="w" routing="Floyd"><zone id="A" routing="Full">'
    '<zone id="A1" routing="None"><host id="a1" speed="1Gf"/></zone>'
    + flat("A2", "0-3")
    + '<link id="a" bandwidth="77MBps" latency="3us"/><zoneRoute src="A1" dst="A2" gw_src="a1" gw_dst="nA2_router.x">'
    '<link_ctn id="a"/></zoneRoute></zone>'
    + flat("B", "10-15", 'topology="TORUS" topo_parameters="2,3"')
    + flat("C", "20-22", 'bb_bw="60MBps" bb_lat="1us"')
    + '<link id="ab" bandwidth="1GBps" latency="1ms" sharing_policy="SPLITDUPLEX"/><link id="bc" bandwidth="90MBps" '
    'latency="2ms"/><zoneRoute src="A" dst="B" gw_src="nA2_router.x" gw_dst="n12.x"><link_ctn id="ab" direction="UP"/>'
    '</zoneRoute><zoneRoute src="C" dst="B" gw_src="nC_router.x" gw_dst="n14.x"><link_ctn id="bc"/></zoneRoute></zone>'
)

PLATFORMS = {
    "flat": flat("c", "0-5"),
    "flat with backbone": flat("c", "0-5", 'bb_bw="300MBps" bb_lat="10us"'),
    "flat, half duplex, limited": flat("c", "0-3,8", 'sharing_policy="SHARED" limiter_link="150MBps"'),
    "torus": shape("TORUS", "3,2,2", 12),
    "torus, even and odd": shape("TORUS", "4,1,5", 20),
    "torus, half duplex": shape("TORUS", "5,3", 15, 'sharing_policy="SHARED"'),
    "torus, limited": shape("TORUS", "3,4", 12, 'limiter_link="150MBps"'),
    "fat tree": shape("FAT_TREE", "2;4,4;1,2;1,2", 16),
    "fat tree of three levels": shape("FAT_TREE", "3;2,2,3;1,2,2;2,2,3", 12),
    "fat tree, half duplex": shape("FAT_TREE", "3;3,2,3;2,3,2;3,2,1", 18, 'sharing_policy="SHARED"'),
    "dragonfly": shape("DRAGONFLY", "3,4;1,1;5,2;2", 30),
    "dragonfly, half duplex": shape("DRAGONFLY", "2,1;1,1;3,1;2", 12, 'sharing_policy="SHARED"'),
    "Full with shared links": TRIANGLE,
    "Floyd": zone("Floyd"),
    "Dijkstra": zone("Dijkstra"),
    "zones in zones": NESTED,
}


def written(folder: Path, inside: str) -> Path:
    path = folder / "platform.xml"
    doctype = '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'  # without it SimGrid refuses the file
    path.write_text(f'<?xml version="1.0"?>\n{doctype}\n<platform version="4.1">{inside}</platform>\n')
    return path


@pytest.mark.parametrize("name", PLATFORMS)
@pytest.mark.parametrize("chunk", [1000, 2**20])
def test_platforms(name: str, chunk: int, tmp_path: Path) -> None:
    path = written(tmp_path, PLATFORMS[name])
    compare(path, chunk * read_simgrid(path).n_ranks + 3)


@pytest.mark.parametrize("name", ["simgrid_cluster_torus.xml", "simgrid_small_platform.xml"])
@pytest.mark.parametrize("size", [10_000, 100 * 2**20])
def test_samples(name: str, size: int) -> None:
    if not SAMPLES.exists():
        pytest.skip("the samples are not here")
    compare(SAMPLES / name, size)


@pytest.mark.parametrize("name", ["dgx-1-v100", "dgx-h100-x4", "pcie-4gpu"])
def test_machines_written(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.xml"
    write_simgrid(load_topology(name), path)
    compare(path, 64 * 2**20)


def test_fatpipes_bind_each_message_alone(tmp_path: Path) -> None:
    path = written(tmp_path, flat("c", "0-5", 'bb_bw="50MBps" bb_lat="10us" bb_sharing_policy="FATPIPE"'))
    compare(path, 6 * 2**20, routes=False)


def test_dragonfly_differs_where_simgrid_counts_links_that_do_not_join(tmp_path: Path) -> None:
    # From the second chassis of a group to another router of it, SimGrid goes on as from the first chassis.
    path = written(tmp_path, shape("DRAGONFLY", "3,4;2,3;3,1;2", 36))
    topology = read_simgrid(path)
    told = simgrid(path, topology, [1000] * 36)["routes"]
    differ = set()
    for a, b in permutations(range(36), 2):
        rates = sorted(topology.link_bandwidth[list(topology.route(a, b))].tolist())
        if rates != sorted(round(rate) for _, rate in told[f"{a} {b}"][0]):
            differ.add((a, b))
    same_group = {(a, b) for a, b in permutations(range(36), 2) if a // 12 == b // 12}
    assert differ == {(a, b) for a, b in same_group if a // 6 % 2 and a // 2 % 3 != b // 2 % 3}
    words = [name for name in told["6 8"][0] if re.match("black", name[0])]
    assert len(words) == 1  # although both are in the same chassis
