"""Machines out of the topology files of TACCL."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import collsim
from collsim.errors import InputError, TopologyError
from collsim.formats.source import Source
from collsim.formats.taccl import parse_taccl, read_taccl
from collsim.topology import Topology

SAMPLE = Path(__file__).parents[2] / "shared" / "samples" / "taccl_topo.json"

NDV2: dict[str, Any] = {
    "name": "mesh", "gpus_per_node": 8, "nics_per_node": 1, "alpha": 0.7, "node_betas_list": [23, 46],
    "node_invbws_list": [23, 46], "remote_alpha": 1.7, "remote_beta": 106, "remote_invbw": 107,
}  # fmt: skip
HUB: dict[str, Any] = {
    **NDV2, "name": "hub", "gpus_per_node": 16, "nics_per_node": 8, "node_betas_list": [8], "node_invbws_list": [8],
}  # fmt: skip
RING: dict[str, Any] = {
    "name": "ring", "gpus_per_node": 3, "alpha": 1, "links": [[0, 0, 1], [2, 0, 0], [0, 1, 0]],
    "betas": [[0, 0, 10], [20, 0, 0], [0, 40, 0]],
}  # fmt: skip
"""From 2 to 0, twice from 0 to 1, from 1 to 2."""


def text_of(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=1)


def read(values: dict[str, Any] | str, **options: Any) -> Topology:
    return parse_taccl(Source("x.json", values if isinstance(values, str) else text_of(values)), **options)


def fault(values: dict[str, Any] | str, **options: Any) -> str:
    with pytest.raises(TopologyError) as caught:
        read(values, **options)
    assert caught.value.line is not None
    return str(caught.value)


def links_of(topology: Topology) -> dict[tuple[str, str], list[int]]:
    links: dict[tuple[str, str], list[int]] = {}
    for link in range(topology.n_links):
        ends = topology.nodes[topology.link_src[link]], topology.nodes[topology.link_dst[link]]
        links.setdefault(ends, []).append(int(topology.link_bandwidth[link]))
    return links


def test_destination_comes_first() -> None:
    topology = read(RING)
    mib_per_us = 2**20 * 10**6
    assert links_of(topology) == {
        ("gpu[2]", "gpu[0]"): [round(Fraction(mib_per_us, 10))],
        ("gpu[0]", "gpu[1]"): [round(Fraction(mib_per_us, 20))] * 2,
        ("gpu[1]", "gpu[2]"): [round(Fraction(mib_per_us, 40))],
    }
    assert set(topology.link_latency.tolist()) == {1_000_000}
    assert [topology.link_name(link) for link in topology.route(0, 2)] == ["gpu[0]->gpu[1]#0", "gpu[1]->gpu[2]"]


@given(st.integers(1, 6), st.data())
def test_every_number_of_a_matrix_is_where_it_was_written(n: int, data: st.DataObject) -> None:
    betas = [[data.draw(st.decimals("0.001", "5000", places=3)) for _ in range(n)] for _ in range(n)]
    links = [[0 if a == b else data.draw(st.integers(0, 3)) for a in range(n)] for b in range(n)]
    values = {"name": "m", "gpus_per_node": n, "alpha": 0.25, "links": links, "betas": "BETAS"}
    rows = ", ".join("[" + ", ".join(str(beta) for beta in row) + "]" for row in betas)
    topology = read(text_of(values).replace('"BETAS"', f"[{rows}]"))
    wanted = {
        (f"gpu[{src}]", f"gpu[{dst}]"): [round(2**20 * 10**6 / Fraction(betas[dst][src]))] * links[dst][src]
        for src in range(n)
        for dst in range(n)
        if links[dst][src]
    }
    assert links_of(topology) == wanted
    assert set(topology.link_latency.tolist()) <= {250_000}


def test_hybrid_cube_mesh() -> None:
    topology = read(NDV2)
    links = links_of(topology)
    fast, slow = round(Fraction(2**20 * 10**6, 23)), round(Fraction(2**20 * 10**6, 46))
    assert Counter(rate for rates in links.values() for rate in rates) == {fast: 16, slow: 16}
    assert all(links[a, b] == links[b, a] for a, b in links)
    # six NVLinks a GPU, the fast links being two
    for gpu in topology.nodes:
        assert sorted(rates[0] for (a, _), rates in links.items() if a == gpu) == [slow, slow, fast, fast]
    shipped = collsim.load_topology("dgx-1-v100")
    for machine in (topology, shipped):  # numbered otherwise, the same graph
        hops = np.diff(machine.routes(*np.divmod(np.arange(64), 8))[0])
        assert Counter(hops.tolist()) == {0: 8, 1: 32, 2: 24}
    result = collsim.run("all_reduce", topology, size="64MiB", algorithm="ring")
    assert result.busbw == pytest.approx(fast, rel=0.01)  # a ring over the eight fast pairs
    assert topology.forwards.all()


def test_gpus_on_a_switch() -> None:
    topology = read(HUB)
    assert topology.n_nodes == 17
    assert set(topology.link_bandwidth.tolist()) == {131_072_000_000}
    assert int(topology.link_latency[list(topology.route(3, 4))].sum()) == 700_000
    assert not topology.forwards[topology.rank_nodes].any()
    odd = read({**HUB, "alpha": 0.000001})
    assert int(odd.link_latency[list(odd.route(3, 4))].sum()) == 1


@pytest.mark.skipif(not SAMPLE.exists(), reason="no samples here")
def test_the_sample() -> None:
    topology = read_taccl(SAMPLE)
    assert topology.name == json.loads(SAMPLE.read_text())["name"]
    assert topology.n_ranks == 8
    assert sorted({round(rate / 1e9) for rate in topology.link_bandwidth.tolist()}) == [23, 46]
    assert set(topology.link_latency.tolist()) == {300_000}
    assert topology.ring_order() == (0, 1, 3, 2, 6, 7, 5, 4)


def test_several_nodes() -> None:
    topology = read(NDV2, nodes=3)
    assert topology.n_ranks == 24
    assert topology.kinds.count("nic") == 3
    route = list(topology.route(2, 21))
    assert [topology.link_name(link) for link in route] == [
        "node[0].gpu[2]->node[0].nic[0]", "node[0].nic[0]->network", "network->node[2].nic[0]",
        "node[2].nic[0]->node[2].gpu[5]",
    ]  # fmt: skip
    assert int(topology.link_latency[route].sum()) == 1_700_000
    assert set(topology.link_bandwidth[route].tolist()) == {round(Fraction(2**20 * 10**6, 106))}
    for a in range(8):
        for b in range(8):
            assert all("nic" not in topology.link_name(link) for link in topology.route(8 + a, 8 + b))
    assert "3 such nodes, with 1 adapter of" in topology.description
    assert read(NDV2).description.count("nodes") == 0


def test_adapters_are_dealt_out_in_order() -> None:
    def slots(values: dict[str, Any]) -> set[tuple[int, int]]:
        pairs = [re.fullmatch(r"node\[0\]\.gpu\[(\d+)\] node\[0\]\.nic\[(\d+)\]", " ".join(ends))
                 for ends in links_of(read(values, nodes=2))]  # fmt: skip
        return {(int(found[1]), int(found[2])) for found in pairs if found}

    assert slots(HUB) == {(gpu, gpu // 2) for gpu in range(16)}
    assert slots({**HUB, "gpus_per_node": 2, "nics_per_node": 4}) == {(0, 0), (0, 1), (1, 2), (1, 3)}


@pytest.mark.parametrize("remote", [500, 20, 10, 1])
def test_a_shared_adapter_is_no_way_inside_a_node(remote: float) -> None:
    n = 9
    links = [[int((dst - src) % n in (1, n - 1)) for src in range(n)] for dst in range(n)]
    ring = {**NDV2, "gpus_per_node": n, "links": links, "betas": [[10 * x for x in row] for row in links]}
    for key in ("node_betas_list", "node_invbws_list", "remote_invbw"):
        del ring[key]
    for values in (ring, {**HUB, "remote_beta": remote, "remote_invbw": remote + 2}):
        topology = read({**values, "remote_beta": remote}, nodes=2)
        n = int(values["gpus_per_node"])
        for a in range(n):
            for b in range(n):
                names = [topology.link_name(link) for link in topology.route(n + a, n + b)]
                assert all("nic" not in name and "node[0]" not in name for name in names)
        assert len(topology.route(0, n)) == 4


def test_size_and_scale() -> None:
    # TACCL's files for one machine: 32 KB ten times and 1 KB a hundred times as much
    small = {**NDV2, "name": "NDv2_32KB", "alpha": 7, "node_betas_list": [7.1875, 14.375], "node_invbws_list": [14, 21]}
    tiny = {**NDV2, "name": "NDv2_1KB", "alpha": 70, "node_betas_list": [2.24609375, 4.4921875],
            "node_invbws_list": [72, 74]}  # fmt: skip
    assert read(small, size="32K", scale=10) == read(NDV2) == read(tiny, size=1024, scale=100)
    assert read({**NDV2, "name": "NDv2_1MB"}) == read(NDV2)
    assert fault(small) == (
        "x.json:2:2: name: expected to be told of which message these are the costs, since the name ends in 32KB; give "
        "size=32768 and, if all costs were multiplied by a factor as in TACCL's own files, scale"
    )
    assert "32KiB, multiplied by 10" in read(small, size="32KiB", scale=10).description


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 0}, "nodes: expected a whole number from 1 to 2,000,000, got 0"),
        ({"nodes": "2"}, "nodes: expected a whole number from 1 to 2,000,000, got '2'"),
        ({"size": 0}, "size: expected 1 to "),
        ({"size": "1MB"}, "'1MB': expected a size as nccl-tests takes it"),
        ({"size": [1]}, "size: expected bytes or a text such as '32K', got [1]"),
        ({"scale": 0}, "scale: expected a number above 0, got 0"),
        ({"scale": float("nan")}, "scale: expected a number above 0, got nan"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        read(NDV2, **options)


@pytest.mark.parametrize(
    ("base", "change", "message"),
    [
        (NDV2, {"name": None}, "2:2: name: expected a name of up to 200 printable letters, got null"),
        (NDV2, {"name": "\ud800"}, "2:2: name: expected a name of up to 200 printable letters"),
        (NDV2, {"gpus_per_node": 8.5}, "3:2: gpus_per_node: expected a whole number from 1 to 1,024, got 8.5"),
        (NDV2, {"gpus_per_node": 10**12},
         "3:2: gpus_per_node: expected a whole number from 1 to 1,024, got 1000000000000"),
        (NDV2, {"gpus_per_node": True}, "3:2: gpus_per_node: expected a whole number from 1 to 1,024, got true"),
        (NDV2, {"gpus_per_node": 4}, "3:2: gpus_per_node: expected 8, two betas being those of an NDv2, got 4"),
        (NDV2, {"alpha": -1}, "5:2: alpha: expected microseconds, 0 or more, got -1"),
        (NDV2, {"alpha": [1]}, "5:2: alpha: expected microseconds, 0 or more, got a list of 1"),
        (NDV2, {"alpha": 1e20}, "5:2: alpha: expected at most 2,305,843 seconds, got more"),
        (NDV2, {"node_betas_list": [46, 23], "node_invbws_list": [46, 23]},
         "6:2: node_betas_list: expected the faster link first, got the slower one"),
        (NDV2, {"node_betas_list": [23, 0]},
         "6:2: node_betas_list[1]: expected the microseconds of a message of 1MiB, got 0"),
        (NDV2, {"node_betas_list": [1e-30, 46]},
         "6:2: node_betas_list[0]: expected the microseconds of a message of 1MiB, got 1e-30, which is beyond 64 bits"),
        (NDV2, {"node_betas_list": [23, 1e30]},
         "6:2: node_betas_list[1]: expected the microseconds of a message of 1MiB, got 1e+30, which is under 1 byte/s"),
        (NDV2, {"node_betas_list": [1, 2, 3]},
         "6:2: node_betas_list: expected one or two betas, else 'links' and 'betas', got a list of 3"),
        (NDV2, {"node_invbws_list": [46, 46]},
         "10:2: node_invbws_list[0]: expected alpha and beta, 23.7, got 46"),
        (NDV2, {"node_invbws_list": 3}, "10:2: node_invbws_list: expected as many as betas, 2, got 3"),
        (NDV2, {"links": []}, "17:2: links: expected either this or 'node_betas_list', got both"),
        (RING, {"links": [[0, 0, 1]]}, "5:2: links: expected 3 rows, one a GPU, got 1 rows"),
        (RING, {"links": [[0, 0, 1], [0, 0], [0, 1, 0]]},
         "5:2: links[1]: expected a row of 3 numbers, one a GPU, got 2 numbers"),
        (RING, {"links": [[1, 0, 1], [1, 0, 0], [0, 1, 0]]},
         "5:2: links[0][0]: expected 0 from a GPU to itself, got 1"),
        (RING, {"links": [[0, 0, -1], [1, 0, 0], [0, 1, 0]]}, "5:2: links[0][2]: expected a number of links, got -1"),
        (RING, {"betas": [[0, 0, 0], [20, 0, 0], [0, 40, 0]]},
         "22:2: betas[0][2]: expected the microseconds of a message of 1MiB, got 0"),
        (RING, {"invbws": [[0, 0, 11], [21, 0, 0], [0, 90, 0]]},
         "39:2: invbws[2][1]: expected alpha and beta, 41, got 90"),
        (RING, {"links": [[0, 0, 20_000_000], [20_000_000, 0, 0], [0, 1, 0]]},
         "3:2: gpus_per_node: expected at most 20,000,000 links in all, got 40,000,001"),
        (RING, {"switches": []}, "39:2: switches: expected the links of each GPU ('links'), which is what TACCL reads"),
        (RING, {"msccl_type": "topology"}, "1:1: expected a TACCL topology, got an SCCL object"),
    ],
)  # fmt: skip
def test_mistakes(base: dict[str, Any], change: dict[str, Any], message: str) -> None:
    assert fault({**base, **change}).startswith(f"x.json:{message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1:1: expected JSON, got a mistake in its form: Expecting value"),
        ("[1]", "1:1: expected a TACCL topology in { }, got something else"),
        ("{}", "1:1: expected 'name', got none"),
        ('{"name": "a",\n "alhpa": 1, "gpus_per_node": 1}', "1:1: expected 'alpha', got none; did you mean 'alhpa'?"),
        ('{"name": "a",\n "alpha": NaN}', "2:11: expected a number, got NaN"),
        ('{"name": "a",\n "alpha": -Infinity}', "2:11: expected a number, got -Infinity"),
        ('{"name": "a",\n "name": "b"}', "2:2: expected each key once, got 'name' twice"),
        ('{"name": "a",\n "alpha": 1e99999}', "2:11: expected a number of up to 40 digits, got '1e99999'"),
        ('{"name": "a",\n "alpha": ' + "9" * 10_000 + "}", "2:11: expected a number of up to 40 digits, got '999"),
        ('{"name": "a",\n "alpha": 0x1}', "2:12: expected JSON, got a mistake in its form: Expecting ',' delimiter"),
        ("[" * 100_000, "1:1: expected JSON, got values in each other a thousand deep"),
    ],
)
def test_what_is_no_json(text: str, message: str) -> None:
    assert fault(text).startswith(f"x.json:{message}")


def test_a_network_that_is_missing() -> None:
    assert fault(RING, nodes=2) == (
        "x.json:1:1: expected 'nics_per_node' for 2 nodes, got none; without the network there is only one"
    )
    assert "expected 'remote_beta' for 4 nodes" in fault({**NDV2, "remote_beta": -1}, nodes=4)
    assert "remote_invbw: expected alpha and beta, 107.7, got 50" in fault({**NDV2, "remote_invbw": 50}, nodes=2)
    assert "expected at most 2,000,000 nodes in all" in fault(NDV2, nodes=1_000_000)
    assert read({**NDV2, "nics_per_node": -1, "remote_beta": -1}).n_ranks == 8


def ring_of(n: int) -> dict[str, Any]:
    """Return a node of GPUs in a ring, where long ways would be shorter over adapters."""
    links = [[int((dst - src) % n in (1, n - 1)) for src in range(n)] for dst in range(n)]
    betas = [[10 * count for count in row] for row in links]
    return {"name": "ring", "gpus_per_node": n, "alpha": 1, "links": links, "betas": betas, "nics_per_node": 2,
            "remote_alpha": 1, "remote_beta": 100}  # fmt: skip


def test_sizes_are_refused_before_they_are_made(tmp_path: Path) -> None:
    assert "expected at most 200,000 ways that keep off adapters in nodes, got 202,392" in fault(ring_of(64), nodes=54)
    assert "expected at most 2,000,000 links of ways that keep off adapters in nodes" in fault(ring_of(256), nodes=2)
    path = tmp_path / "large.json"
    path.write_text(" " * (17 * 2**20))
    with pytest.raises(TopologyError, match="expected at most 16 MiB, got a larger file"):
        read_taccl(path)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "topo.json"
    path.write_text(text_of(NDV2).replace("\n", "\n\t"))
    assert read_taccl(path, nodes=2) == read(NDV2, nodes=2)
    assert read_taccl(path).name == "mesh"


ODD = (
    "0",
    "-1",
    "1e400",
    "1e-300",
    "9" * 30,
    "9" * 5000,
    "NaN",
    "null",
    "true",
    "{",
    "[",
    '"' + "n" * 10**6 + '"',
    "1.5",
)


def mutated(text: str, dice: random.Random) -> str:
    """Cut, double, swap or replace something."""
    words = re.split(r"([\s,:]+)", text)
    for _ in range(dice.randint(1, 3)):
        kind, place = dice.randrange(6), dice.randrange(len(words))
        if kind == 0:
            words = words[:place] if dice.random() < 0.3 and place else words[:place] + words[place + 1 :]
        elif kind == 1:
            words[place:place] = words[place : place + dice.randint(1, 12)]
        elif kind == 2:
            other = dice.randrange(len(words))
            words[place], words[other] = words[other], words[place]
        elif re.fullmatch(r"[\d.]+", words[place]) or kind == 3:
            words[place] = dice.choice(ODD)
        words = words or [""]
    return "".join(words)


def attempt(text: str, nodes: int) -> TopologyError | None:
    """Read a text; return why it was refused."""
    try:
        assert read(text, nodes=nodes).n_ranks
    except TopologyError as error:
        return error
    return None


def test_garbage_is_refused_with_its_place() -> None:
    dice = random.Random(7)
    seeds = [text_of(values) for values in (NDV2, HUB, {**RING, **{key: NDV2[key] for key in NDV2 if "remote" in key}})]
    errors = [attempt(mutated(seeds[n % 3], dice), dice.choice((1, 2))) for n in range(500)]
    refused = [error for error in errors if error is not None]
    assert all(error.line is not None and len(str(error)) < 500 for error in refused)
    assert 200 < len(refused) < 490
