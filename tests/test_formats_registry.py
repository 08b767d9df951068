"""Which format a file is in, and what is said of one that is in none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import collsim
from collsim.errors import InputError, TopologyError
from collsim.formats import registry
from collsim.formats.registry import FORMATS, WRITTEN, format_of_path, read_topology, sniff, sniff_text, write_topology

RING = collsim.topology.ring(4, bandwidth="50GB/s", latency="1us")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('<system version="1">', "nccl"),
        (
            "<?xml version='1.0'?>\n<!-- <platform> -->\n<!DOCTYPE platform SYSTEM 'x'>\n<platform version='4.1'>",
            "simgrid",
        ),
        ('<graphml xmlns="http://graphml.graphdrawing.org/xmlns">', "graphml"),
        ("\tGPU0\tGPU1\tCPU Affinity\n", "nvidia_smi"),
        ("$ nvidia-smi topo -m\n    \x1b[4mGPU0    GPU1\x1b[0m\n", "nvidia_smi"),
        ("90 8 2 72 544 A100\n", "simai"),
        ("10 2 16\n8 9\n", "ns3"),
        ("# ours\n\nNodes 8\nTiers 3\n", "htsim"),
        ("topology: [ Ring ]\nnpus_count: [ 4 ]\n", "astra_sim"),
        ("infrastructure:\n  devices: []\n", "infragraph"),
        ('{"infrastructure": {"name": "x"}}', "infragraph"),
        ('{"name": "x", "gpus_per_node": 8}', "taccl"),
        ('{"name": "x", "nodes": [], "links": []}', "collsim"),
        ("name: x\nnodes:\n", "collsim"),
        ("# note\ngenerator: {name: ring}\n", "collsim"),
        ("<unknown/>", None),
        ("", None),
        ("<!-- never closed", None),
    ],
)
def test_the_beginning_tells_the_format(tmp_path: Path, text: str, name: str | None) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    assert sniff(path) == name


def test_every_shipped_machine_is_our_own() -> None:
    assert {sniff(path) for path in collsim.topology.shipped().values()} == {"collsim"}


@given(st.text(max_size=60) | st.text(alphabet="<!->?[]%\n ab", max_size=60))
def test_any_text_has_a_format_or_none(text: str) -> None:
    assert sniff_text(text) in (None, *FORMATS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<algo name='x'>", "got an MSCCL algorithm, which is no topology"),
        ("<graphs version='1'>", "the machine is what NCCL_TOPO_DUMP_FILE writes"),
        ("noise\n# nThread 1 nGpus 2 minBytes 8\n", "got a log of nccl-tests; collsim compare --measured reads it"),
        ("num_ranks 4\nrank 0 {\n}\n", "got a GOAL schedule"),
        ('{"scheduling-policy": "LIFO"}', "got a system file of ASTRA-sim"),
        ("# tuner\nallreduce,0,65536,tree,simple,2,1,-1\n", "got a configuration of NCCL's tuner"),
        ("MICRO\n1\nlayer -1 0 NONE 0\n", "got a workload of ASTRA-sim"),
        ("digraph g {\n a -> b\n}", "got a DOT graph; NetworkX reads it"),
        ("<html></html>", "got the root <html>"),
        ("<!-- a -->", "got no root element near the beginning; --from names the format"),
    ],
)
def test_other_files_are_called_by_their_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    with pytest.raises(TopologyError, match=re.escape(message)) as refused:
        collsim.load_topology(path)
    assert str(refused.value).startswith(str(path))


def test_every_format_has_its_functions() -> None:
    for format in FORMATS.values():
        assert callable(format.read)
        if format.writer:
            assert callable(registry._function(format.writer))
    assert set(WRITTEN) == {"collsim", "infragraph", "astra_sim", "simgrid", "graphml"}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_is_recognised_and_read_again(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"ring{FORMATS[name].suffixes[0]}"
    one_way = name not in ("astra_sim", "infragraph")  # which cannot say a ring of one direction
    topology = RING if one_way else collsim.topology.switch(4, bandwidth="50GB/s", latency="1us")
    assert write_topology(topology, path) == name
    assert sniff(path) == name
    again = collsim.load_topology(path)
    sizes = [collsim.run("all_reduce", machine, "1MiB", algorithm="ring").time for machine in (topology, again)]
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-6)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a.yaml", "collsim"),
        ("A.YML", "collsim"),
        ("x/net.astra.yml", "astra_sim"),
        ("m.infragraph.yaml", "infragraph"),
        ("p.xml", "simgrid"),
        ("g.graphml", "graphml"),
    ],
)
def test_the_name_tells_what_is_written(path: str, name: str) -> None:
    assert format_of_path(path) == name


def test_names_and_options_that_there_are_not(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"ring\.png: expected a name that ends in .*, or the format itself \(--to\), got '.png'"
    ):
        write_topology(RING, "ring.png")
    with pytest.raises(InputError, match="got none of them"):
        format_of_path("machine")
    with pytest.raises(InputError, match=r"format: expected one of .*; did you mean 'simgrid'"):
        read_topology("x", "simgird")
    path = tmp_path / "a.yaml"
    path.write_text("name: a\n")
    with pytest.raises(InputError, match=r"gpu: .* is a collsim topology, which has no such option; that is for nccl"):
        read_topology(path, gpu="h100")


@pytest.mark.parametrize(
    "text",
    [
        "name: m\ndescription: |-\n  Two.\n  GPU0 GPU1 are the masters.\nnodes: [{name: GPU0, kind: gpu}]\n",
        "name: m\nnodes:\n  - {name: GPU0, kind: gpu}\n  - {name: GPU1, kind: gpu}\nlinks:\n"
        "  - {between: [GPU0, GPU1], bandwidth: 1GB/s, latency: 1us}\nranks:\n  - GPU0\n  - GPU1\n",
    ],
)
def test_names_of_gpus_at_the_beginning_of_a_line_are_no_table(text: str) -> None:
    assert sniff_text(text) == "collsim"


def test_machines_that_are_too_large_to_write_are_refused_before_they_are_joined(tmp_path: Path) -> None:
    small = tmp_path / "large.yml"
    small.write_text("topology: [ Ring ]\nnpus_count: [ 600000 ]\nbandwidth: [ 5 ]\nlatency: [ 5 ]\n")
    topology = read_topology(small)
    for name, message in (("out.yaml", "expected at most 1,000,000 links in a file"), ("out.graphml", "nothing reads")):
        with pytest.raises(TopologyError, match=message):
            write_topology(topology, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_a_format_that_is_given_may_have_any_name(tmp_path: Path) -> None:
    for format in WRITTEN:
        path = tmp_path / "machine.of.mine"
        topology = collsim.topology.switch(4, bandwidth="50GB/s", latency="1us")
        assert write_topology(topology, path, format) == format
        assert read_topology(path, format).n_ranks == 4
