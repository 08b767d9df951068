"""``collsim run``: its table, its notes and its JSON."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

import collsim
from collsim.cli import main
from collsim.cli.data import count_wrong
from collsim.cli.run import parameters_of, sizes
from collsim.cli.table import Row, format_row

FILES = Path(__file__).parent.parent / "topologies"
RING, DGX1, FAT = (str(FILES / f"{name}.yaml") for name in ("ring8", "dgx-1-v100", "fat-tree-16"))

OWN = """
from collsim import Collective, ScheduleBuilder
from collsim.algorithms import ring_all_reduce
from collsim.errors import AlgorithmError

def star(ranks, root=0, *, order=None, twice=False):
    print("star", ranks, root, order)
    b = ScheduleBuilder(Collective("broadcast", ranks, root), chunks=1)
    b.copy(root, [rank for rank in (order or range(ranks)) if rank != root], 0)
    return b.build()

def my_ring(ranks):
    return ring_all_reduce(ranks)

def nothing(ranks):
    return ScheduleBuilder(Collective("all_reduce", ranks), chunks=1).build()

def odd(ranks):
    raise AlgorithmError(f"odd: expected an odd number of ranks, got {ranks}")
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def out_of(capsys, *arguments, code=0):
    assert main(["run", *arguments]) == code
    out, err = capsys.readouterr()
    assert not err
    assert out.isascii()
    return out


def note(out, label):
    """The paragraph of a note, as one line."""
    lines = iter(out.splitlines())
    text = next(line for line in lines if line.startswith(f"# {label} "))[len("# ") + len(label) :].strip()
    for line in lines:
        if not line.startswith("#          "):
            break
        text += " " + line[1:].strip()
    return text


def results(capsys, *arguments):
    document = json.loads(out_of(capsys, *arguments, "--json"), parse_constant=pytest.fail)
    return document["results"]


def test_the_whole_output_for_a_small_ring(capsys):
    assert (
        out_of(capsys, RING, "all_reduce", "-b", "8", "-e", "8K", "-f", "1024", "--algorithm", "ring")
        == """\
# ring all_reduce on ring8: 8 ranks, cut_through network
# parameters: channels=1 slices=1
#
#       size         count      type   redop    root     time   algbw   busbw #wrong   theory   error    bound  effic.
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)     (%)     (us)     (%)
           8             2     float     sum      -1    14.00    0.00    0.00      0    14.00   +0.01     7.00   50.00
        8192          2048     float     sum      -1    14.29    0.57    1.00      0    14.29   +0.00     7.00   49.00
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.502225
#
# checked  all 8 chunks proven; #wrong was counted by executing on data
# engine   reference: 112 transfers, event by event
# time     14.29 us = latency 14.00 + serialisation 0.29, at 8KiB, along the 14 transfers of the critical path
# theory   14.29 us = latency 14.00 + bandwidth 0.29, from 2(N-1) (alpha + m beta), m = S/N
# bound    7.00 us, whatever the algorithm: latency: gpu0 to gpu7, 7us
# busbw    1.00 GB/s = algbw x 2(N-1)/N: hold it against the rate of the slowest link that is used, 50GB/s
# busiest  gpu0->gpu1 (50GB/s) and 7 more links, busy 2.0 % of the time; 8 of 8 links are used
"""
    )


def test_a_difference_below_a_nanosecond_is_not_called_equal(capsys):
    theory = note(out_of(capsys, RING, "all_reduce", "-b", "8", "-e", "8"), "theory")
    assert "2 elements cannot be cut into 8 equal chunks" in theory
    assert "time - theory = +0.00084 us: serialisation +0.00084" in theory


def test_the_shared_link_of_the_naive_order_is_named(capsys):
    def run(*more):
        return out_of(capsys, DGX1, "all_reduce", "-b", "64M", "-e", "64M", *more)

    along_the_links, naive = run(), run("-p", "order=0,1,2,3,4,5,6,7")
    assert "# parameters: order=0,3,2,1,5,6,7,4 channels=1 slices=1" in along_the_links
    assert "\n# shared" not in along_the_links
    assert "queueing" not in along_the_links
    assert "# parameters: order=0,1,2,3,4,5,6,7 channels=1 slices=1" in naive
    assert note(naive, "shared") == (
        "link gpu[3]->gpu[0]#1 is shared by 3 -> 4, 7 -> 0: 27 transfers waited there, 1190.47 us on average"
    )
    assert "time - theory = +4682.02 us: queueing +4697.62, latency and overhead -15.60" in note(naive, "theory")
    assert "need not be exact here: pairs differ in latency" in note(naive, "theory")


def test_an_identity_order_that_is_given_is_used(capsys):
    given = results(capsys, DGX1, "all_reduce", "-b", "1M", "-e", "1M", "-p", "order=0,1,2,3,4,5,6,7")
    default = results(capsys, DGX1, "all_reduce", "-b", "1M", "-e", "1M")
    topology = collsim.load_topology(DGX1)
    identity = collsim.simulate(collsim.algorithms.ring_all_reduce(8), topology, "1MiB", dtype="float")
    assert given[0]["time_us"] == identity.time * 1e6
    assert default[0]["time_us"] < given[0]["time_us"]


def test_fluid_sharing_and_no_sharing_without_time_lost(capsys):
    fluid = out_of(
        capsys, DGX1, "all_reduce", "-b", "1M", "-e", "1M", "-p", "order=0,1,2,3,4,5,6,7", "--network", "fluid"
    )
    assert note(fluid, "shared") == (
        "link gpu[3]->gpu[0]#1 is shared by 3 -> 4, 7 -> 0: each has a part of its bandwidth, it is busy "
        "96.7 % of the time"
    )
    free = out_of(
        capsys, DGX1, "all_reduce", "-b", "1M", "-e", "1M", "-p", "order=0,1,2,3,4,5,6,7", "--network", "alpha_beta"
    )
    assert "\n# shared" not in free


def test_many_shared_links_are_cut(capsys):
    out = out_of(capsys, FAT, "broadcast", "-b", "1M", "-e", "1M", "--algorithm", "tree")
    shared = note(out, "shared")
    assert shared.count("is shared by") == 3
    assert shared.endswith("more links")
    assert "us: queueing +" in note(out, "theory")


def test_json_has_the_keys_of_the_interface(capsys):
    text = out_of(capsys, RING, "reduce_scatter", "-b", "1M", "-e", "2M", "--json")
    document = json.loads(text)
    assert {key: document[key] for key in ("topology", "operation", "algorithm", "network")} == {
        "topology": "ring8", "operation": "reduce_scatter", "algorithm": "ring", "network": "cut_through",
    }  # fmt: skip
    assert [row["size"] for row in document["results"]] == [2**20, 2**21]
    row = document["results"][0]
    # 7 (1 us + 128 KiB / 50 GB/s)
    assert row["time_us"] == pytest.approx(7 * (1 + 2**17 / 50e3))
    assert row["theory_us"] == pytest.approx(row["time_us"])
    assert row["algbw_GBps"] == pytest.approx(2**20 / row["time_us"] / 1e3)
    assert row["busbw_GBps"] == pytest.approx(row["algbw_GBps"] * 7 / 8)
    assert row["efficiency"] == pytest.approx(row["bound_us"] / row["time_us"])
    assert row["bytes_sent_per_rank"] == [7 * 2**17] * 8
    assert (row["wrong"], row["wrong_by"], row["transfers"], row["engine"]) == (0, "data", 56, "reference")
    assert sum(row["breakdown_us"].values()) == pytest.approx(row["time_us"])


def test_wrong_comes_from_data_where_it_fits_and_from_the_proof_above(capsys):
    arguments = (RING, "all_reduce", "-b", "1M", "-e", "64M", "-f", "8")
    assert [row["wrong_by"] for row in results(capsys, *arguments)] == ["data", "data", "proof"]
    assert "by executing on data up to 8MiB, above it is the proof's" in note(out_of(capsys, *arguments), "checked")
    large = out_of(capsys, RING, "all_reduce", "-b", "64M", "-e", "64M")
    assert "#wrong is the proof's" in note(large, "checked")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "half", "bfloat16", "float", "double"])
def test_data_of_every_type_is_exact(dtype):
    assert count_wrong(collsim.algorithms.binomial_tree_all_reduce(33), 4096, dtype) == (0, "data")


def test_wrong_is_counted_not_assumed():
    # all_gather of two ranks in which rank 1 never gets the block of rank 0
    b = collsim.ScheduleBuilder(collsim.Collective("all_gather", 2), chunks=2)
    b.copy(1, 0, 1)
    wrong, by = count_wrong(b.build(), 80, "int32")
    assert by == "data"
    assert 8 <= wrong <= 10  # ten elements are missing; a random one may be right by chance


def test_wrong_elements_end_with_1_and_are_printed(capsys, monkeypatch):
    # the proof would have ended the run; the data has the last word
    monkeypatch.setattr("collsim.cli.run.count_wrong", lambda schedule, size, dtype: (7 * (size == 1024), "data"))
    arguments = (RING, "all_reduce", "-b", "1K", "-e", "2K")
    out = out_of(capsys, *arguments, code=1)
    assert [line.split()[8] for line in out.splitlines() if not line.startswith("#")] == ["7", "0"]
    assert "# Out of bounds values : 7 FAILED" in out
    assert [row["wrong"] for row in json.loads(out_of(capsys, *arguments, "--json", code=1))["results"]] == [7, 0]


def test_no_check(capsys):
    arguments = (RING, "all_reduce", "-b", "1M", "-e", "1M", "--no-check")
    out = out_of(capsys, *arguments)
    assert out.splitlines()[5].split()[8] == "N/A"
    assert "Out of bounds" not in out
    assert note(out, "checked").startswith("nothing (--no-check)")
    row = results(capsys, *arguments)[0]
    assert row["wrong"] is None
    assert row["wrong_by"] is None


def test_one_rank(capsys, tmp_path):
    file = tmp_path / "one.yaml"
    file.write_text("name: one\nnodes:\n  - name: gpu0\n    kind: gpu\nlinks: []\n")
    for operation in ("all_reduce", "reduce_scatter", "broadcast"):
        row = results(capsys, str(file), operation, "-b", "1K", "-e", "1K")[0]
        assert (row["time_us"], row["algbw_GBps"], row["efficiency"], row["transfers"]) == (0, 0, 1, 0)
    out = out_of(capsys, str(file), "all_reduce", "-b", "1K", "-e", "1K")
    assert ": 1 rank," in out
    assert note(out, "time") == "no transfer is needed"


def test_rooted_operations_print_their_root(capsys):
    out = out_of(capsys, RING, "broadcast", "-b", "1K", "-e", "1K", "-r", "3")
    assert out.splitlines()[5].split()[2:5] == ["float", "none", "3"]
    assert results(capsys, RING, "reduce", "-b", "1K", "-e", "1K", "--root", "7")[0]["wrong"] == 0


def test_count_is_that_of_a_block_where_the_size_is_of_all_blocks(capsys):
    out = out_of(capsys, RING, "all_gather", "-b", "1K", "-e", "1K", "-d", "double")
    assert out.splitlines()[5].split()[:3] == ["1024", "16", "double"]


def test_parameters_reach_the_algorithm(capsys):
    plain = results(capsys, RING, "broadcast", "-b", "1M", "-e", "1M", "-a", "tree")[0]
    sliced = results(capsys, RING, "broadcast", "-b", "1M", "-e", "1M", "-a", "tree", "-p", "k=1", "-p", "slices=4")[0]
    assert plain["transfers"] == 7 * 32
    assert sliced["transfers"] == 7 * 4


def test_names_of_switches_with_commas_between_them(capsys):
    arguments = ["dgx-h100-x4", "all_reduce", "-a", "collnet_direct", "-p", "slices=1", "-b", "8", "-e", "8"]
    assert main(["run", *arguments, "-p", "head_trees=leaf[0],leaf[1]"]) == 2
    message = "head_trees: expected a switch for each of the 8 ranks of a node, or one for all, got 2"
    assert capsys.readouterr().err == f"collsim: error: {message}\n"
    parameters = parse(["head_trees=a[0,1],b", "text=a,b", "order=0,1", "names=a"])
    assert parameters == {"head_trees": ["a[0,1]", "b"], "text": "a,b", "order": [0, 1], "names": "a"}


def parse(given):
    return parameters_of(argparse.Namespace(parameter=given, algorithm="ring"))


def test_synchronous_is_said(capsys):
    line = str(FILES / "line8.yaml")
    out = out_of(capsys, line, "all_gather", "-b", "1K", "-e", "1K", "--synchronous")
    assert out.startswith("# ring all_gather on line8: 8 ranks, cut_through network, a barrier after each step\n")
    slow, quick = (
        results(capsys, line, "all_gather", "-b", "1K", "-e", "1K", *more)[0] for more in (["--synchronous"], [])
    )
    assert slow["time_us"] > quick["time_us"]


def test_plot_is_written_before_anything_is_printed(capsys, tmp_path):
    picture = tmp_path / "timeline.png"
    results(capsys, RING, "reduce_scatter", "-b", "1M", "-e", "1M", "--plot", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_own_function(own, capsys):
    assert main(["run", RING, "all_reduce", "-b", "1M", "-e", "1M", "--algorithm", "own.py:my_ring"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# own.py:my_ring all_reduce on ring8: 8 ranks, cut_through network\n")
    assert "2(N-1) (alpha + m beta)" in note(out, "theory")  # it is the shipped ring, which says so itself
    assert main(["run", RING, "broadcast", "-b", "1K", "-e", "1K", "-a", "own.py:star", "-r", "2"]) == 0
    out, err = capsys.readouterr()
    assert err == "star 8 2 None\n"  # what the function prints is kept out of the table
    assert note(out, "theory") == "there is no formula for an algorithm of your own"
    row = next(line for line in out.splitlines() if not line.startswith("#")).split()
    assert row[8:11] == ["0", "N/A", "N/A"]
    assert main(["run", RING, "broadcast", "-b", "1K", "-e", "1K", "-a", "own.py:star", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["algorithm"] == "own.py:star"
    assert document["results"][0]["theory_us"] is None


def test_own_function_gets_the_ring_order_of_the_topology(own, capsys):
    assert main(["run", DGX1, "broadcast", "-b", "1K", "-e", "1K", "-a", "own.py:star"]) == 0
    assert capsys.readouterr().err == "star 8 0 [0, 3, 2, 1, 5, 6, 7, 4]\n"
    assert (
        main(["run", DGX1, "broadcast", "-b", "1K", "-e", "1K", "-a", "own.py:star", "-p", "order=0,1,2,3,4,5,6,7"])
        == 0
    )
    assert capsys.readouterr().err == "star 8 0 [0, 1, 2, 3, 4, 5, 6, 7]\n"


def test_a_wrong_schedule_ends_with_1(own, capsys):
    assert main(["run", RING, "all_reduce", "-b", "1M", "-a", "own.py:nothing"]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("collsim: proof failed: rank 0, chunk 0: contribution")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("function", "operation", "more", "message"),
    [
        (
            "star",
            "all_reduce",
            [],
            "expected a schedule of all_reduce on 8 ranks, got one of broadcast on 8 ranks from root 0",
        ),
        (
            "star",
            "broadcast",
            ["-p", "twic=1"],
            "-p: own.py:star: expected order, twice, got 'twic'; did you mean 'twice'?",
        ),
        ("odd", "all_reduce", [], "odd: expected an odd number of ranks, got 8"),
    ],
)
def test_own_functions_that_do_not_fit(own, capsys, function, operation, more, message):
    assert main(["run", RING, operation, "-b", "1M", "-a", f"own.py:{function}", *more]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err


def test_sizes_as_nccl_tests_steps_through_them():
    assert sizes("8", "1K", "4", 4) == [8, 32, 128, 512]
    assert sizes(None, None, "2", 4) == [32 << 20]
    assert sizes("64M", None, "2", 4) == [64 << 20]
    assert sizes("1g", "3G", "2", 4) == [1 << 30, 1 << 31]
    assert sizes("10", "50", "2", 4) == [8, 20, 40]  # whole elements


def test_large_values_do_not_run_into_each_other():
    topology = collsim.topology.switch(2, bandwidth="1MB/s", latency="1s")
    result = collsim.run("all_reduce", topology, "1TiB", dtype="float")
    line = format_row(Row(result, "float", 123456, "data"))
    assert len(line.split()) == 13
    fast = collsim.topology.switch(4, bandwidth="123456GB/s", latency="1ps")
    fields = format_row(Row(collsim.run("all_gather", fast, "64GiB"), "uint8", 0, "data")).split()
    assert len(fields) == 13
    assert float(fields[6]) > 10_000


def test_error_is_never_a_negative_zero(capsys, monkeypatch):
    out = out_of(capsys, str(FILES / "dgx-h100.yaml"), "all_reduce", "-b", "8", "-e", "1G", "-f", "2")
    errors = [line.split()[10] for line in out.splitlines() if not line.startswith("#")]
    assert len(errors) == 28
    assert set(errors) == {"+0.00"}
    result = collsim.run("all_reduce", collsim.load_topology(RING), "1KiB")
    monkeypatch.setattr(Row, "error", property(lambda row: -1e-9))
    assert format_row(Row(result, "int8", 0, "data")).split()[10] == "+0.00"


@pytest.mark.parametrize("file", sorted(FILES.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_shipped_machine_prints_a_table(capsys, file):
    out = out_of(capsys, str(file), "all_reduce", "-b", "1M", "-e", "1M")
    assert "# Out of bounds values : 0 OK" in out
    assert max(map(len, out.splitlines())) <= 120
    time, bound = (float(next(line for line in out.splitlines() if line[0] != "#").split()[i]) for i in (5, 11))
    assert bound <= time


def test_a_formula_that_does_not_fit_is_marked_in_the_table(capsys):
    naive = out_of(capsys, DGX1, "all_reduce", "-b", "64M", "-e", "64M", "-p", "order=0,1,2,3,4,5,6,7")
    assert "  ~4714.4  +99.31  " in naive
    assert "which need not be exact here: pairs differ in latency" in note(naive, "theory")
    assert "~" not in out_of(capsys, RING, "all_reduce", "-b", "8", "-e", "8K", "-f", "2")


def test_busbw_is_explained_against_the_links(capsys):
    def busbw(*more):
        return note(out_of(capsys, *more, "-b", "8M", "-e", "8M"), "busbw")

    assert busbw(RING, "all_gather") == (
        "47.72 GB/s = algbw x (N-1)/N: hold it against the rate of the slowest link that is used, 50GB/s"
    )
    assert "= algbw x 1: hold it" in busbw(RING, "broadcast")
    several = busbw(DGX1, "all_reduce", "-p", "channels=2")
    assert several.endswith("the slowest link that is used, 25GB/s, of which several are used side by side")
    free = busbw("dgx-h100", "broadcast", "-a", "double_binary_tree", "--network", "alpha_beta")
    assert free.endswith("that is used, 450GB/s, which in alpha_beta every message has for itself")


def test_the_busiest_link_is_named(capsys):
    out = out_of(capsys, "dgx-h100-x4", "all_reduce", "-b", "64M", "-e", "64M")
    assert note(out, "busiest") == (
        "leaf[0]->node[0].nic[0] (50GB/s) and 7 more links, busy 99.9 % of the time; 72 of 256 links are used; "
        "`collsim compare` shows whether others use more of them"
    )


def test_what_switches_that_reduce_are_worth(capsys):
    out = out_of(capsys, "dgx-h100", "all_reduce", "-b", "1G", "-e", "1G")
    assert note(out, "bound").endswith(
        "switches that reduce or multicast make that possible, without their help it is 4176.26 us (efficiency 99.8 %)"
    )
    assert "switches" not in note(out_of(capsys, RING, "all_reduce", "-b", "1M", "-e", "1M"), "bound")


def test_the_plot_is_mentioned_and_may_have_a_row_a_link(capsys, tmp_path):
    path = tmp_path / "links.svg"
    out = out_of(capsys, RING, "all_reduce", "-b", "1M", "-e", "1M", "--plot", str(path), "--plot-rows", "link")
    assert out.endswith(f"# plot     {path} (the largest size)\n")
    assert "gpu0-&gt;gpu1" in path.read_text()
    assert main(["run", RING, "all_reduce", "--plot", str(path), "--plot-rows", "links"]) == 2
    assert "--plot-rows: expected one of rank, link, got 'links'; did you mean 'link'?" in capsys.readouterr().err


def test_json_says_where_the_plot_is(capsys, tmp_path):
    path = tmp_path / "ring.png"
    assert main(["run", RING, "all_reduce", "-b", "1M", "-e", "1M", "--plot", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plot"] == str(path)
    assert main(["run", RING, "all_reduce", "-b", "1M", "-e", "1M", "--json"]) == 0
    assert "plot" not in json.loads(capsys.readouterr().out)


def test_parameters_that_are_tables_are_counted(capsys):
    assert main(["run", "dgx-h100-x4-sharp", "all_reduce", "-a", "nvls_collnet", "-b", "64K", "-p", "slices=2"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line == "# parameters: switches=(4 given) head_trees=(8 given) slices=2 window=1"
