"""``collsim bound``: its table, its notes, its JSON, and what it refuses."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

import collsim
from collsim.cli import main
from collsim.collective import OPERATIONS, Collective
from collsim.compiling import NOTICE
from collsim.theory import lower_bound
from collsim.topology import load_topology, rail_optimized


def out_of(capsys, *arguments):
    assert main(["bound", *arguments]) == 0
    out, err = capsys.readouterr()
    assert not err.replace(NOTICE, "").strip()
    assert out.isascii()
    assert max(len(line) for line in out.splitlines() if "collsim " not in line) <= 120
    return out


def rows_of(out):
    return [line.split() for line in out.splitlines() if not line.startswith("#")]


def note(out, label):
    """The text of a note, its lines joined."""
    found, on = [], False
    for line in out.splitlines():
        if on and line.startswith("#  "):
            found.append(line[1:].strip())
        elif on := line.startswith(f"# {label} "):
            found.append(line[2 + len(label) :].strip())
    return " ".join(found)


def error_of(capsys, *arguments):
    try:
        code = main(["bound", *arguments])
    except SystemExit as stop:  # argparse
        code = stop.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("collsim: error: ")
    return err


def test_the_whole_output(capsys):
    out = out_of(capsys, "ring8", "all_gather", "-b", "1K", "-e", "1G", "-f", "1024")
    assert (
        re.sub("into gpu[0-7]:", "into gpu0:", out)  # they are all alike
        == """\
# least time of all_gather on ring8: 8 ranks, cut_through network
#
#       size         count      type   redop    root     time   algbw   busbw  latency  bound
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)      (%)  by
        1024            32     float    none      -1     7.00    0.15    0.13    100.0  latency
     1048576         32768     float    none      -1    19.35   54.19   47.42     36.2  cut
  1073741824      33554432     float    none      -1    18791   57.14   50.00      0.0  cut
#
# limit     large messages: at most algbw 57.14 GB/s, busbw 50.00 GB/s, as 7/8 of the size must cross 50GB/s
# cut       into gpu0: gpu -> gpu, 1 x 50GB/s for the 7 GPUs outside
# found     by maximum flow: no cut is worse
# latency   gpu0 to gpu7, 7us
# near it   collsim compare ring8 all_gather -b 8 -e 1G -f 8
#           collsim run ring8 all_gather -b 1G -a forest
"""
    )


def test_the_sizes_show_the_turn_from_latency_to_bandwidth(capsys):
    rows = rows_of(out_of(capsys, "dgx-h100-x4", "all_gather"))
    assert [int(row[0]) for row in rows] == [8**k for k in range(1, 12)]
    kinds = [row[-1] for row in rows]
    assert kinds == ["latency"] * kinds.count("latency") + ["cut"] * kinds.count("cut")
    assert kinds.count("latency") >= 3
    assert kinds.count("cut") >= 3
    shares = [float(row[-2]) for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], shares[-1]) == (100, 0)


def test_columns_are_those_of_the_bound(capsys):
    topology = load_topology("dgx-1-v100")
    for operation in set(OPERATIONS) - {"barrier"}:
        collective = Collective(operation, 8)
        for row in rows_of(out_of(capsys, "dgx-1-v100", operation, "-b", "4K", "-e", "256M", "-f", "256")):
            size = int(row[0])
            bound = lower_bound(collective, size, topology, element_size=4, exact=True)
            assert float(row[5]) == pytest.approx(bound * 1e6, rel=1e-2, abs=0.006), operation
            assert float(row[6]) == pytest.approx(size / bound / 1e9, abs=0.006)
            assert float(row[7]) == pytest.approx(size / bound / 1e9 * collective.busbw_factor, abs=0.006)
            assert float(row[8]) == pytest.approx(100 * bound.latency / bound, abs=0.06)
            assert int(row[1]) == size // 4 // (8 if collective.is_blocked else 1)
            assert row[3:5] == ["sum" if collective.reduces else "none", "0" if collective.is_rooted else "-1"]
            if row[9] != "latency":
                assert bound.reason.startswith(row[9] + ": ")
            else:
                assert bound.latency > 0.989 * bound


def test_sizes_can_be_asked_for(capsys):
    def sizes(*arguments):
        return [int(row[0]) for row in rows_of(out_of(capsys, "ring8", "all_reduce", *arguments))]

    assert sizes("-b", "1M", "-e", "4M", "-f", "2") == [2**20, 2**21, 2**22]
    assert sizes("-b", "16G") == [2**34]
    assert sizes("-e", "64") == [8, 64]
    assert sizes("-b", "1G") == [2**30, 2**33]
    assert sizes("-b", "1001", "-e", "1001") == [1000]
    assert sizes("-b", "1001", "-e", "1001", "-d", "int8") == [1001]


def test_an_all_to_all_starts_with_a_block_for_each(capsys):
    out = out_of(capsys, "torus-4x4", "all_to_all")
    assert int(rows_of(out)[0][0]) == 64
    assert note(out, "cut") == "out of gpu0 to gpu7: gpu -> gpu, 8 x 50GB/s to the 8 GPUs outside"
    assert note(out, "found") == "by a linear program: large messages can come as near as you like"
    # asked for, it is shown, and says that nothing has to travel
    assert rows_of(out_of(capsys, "torus-4x4", "all_to_all", "-b", "8", "-e", "8"))[0][5:] == (
        ["0.00", "N/A", "N/A", "N/A", "-"]
    )


def test_the_cut_of_a_cluster(capsys, tmp_path):
    """The sentence of the README: what the GPUs of other nodes need comes in through the adapters of one."""
    out = out_of(capsys, "dgx-h100-x4", "all_to_all")
    assert note(out, "cut") in (
        f"{way} node[{i}]: {ends}, 8 x 50GB/s {to} the 24 GPUs outside"
        for i in range(4)
        for way, ends, to in (("out of", "nic -> leaf", "to"), ("into", "leaf -> nic", "for"))
    )
    assert "algbw 66.67 GB/s, busbw 64.58 GB/s, as 6 times the size must cross 400GB/s" in note(out, "limit")


def test_reducing_switches(capsys):
    out = out_of(capsys, "dgx-h100", "all_reduce")
    assert note(out, "limit") == (
        "large messages: at most algbw 450.00 GB/s, busbw 787.50 GB/s, as the size must cross 450GB/s"
    )
    assert note(out, "switches").endswith("get at most algbw 257.14 GB/s, busbw 450.00 GB/s")
    assert not note(out_of(capsys, "dgx-a100", "all_reduce"), "switches")


def test_roots_and_the_commands_that_come_next(capsys):
    out = out_of(capsys, "line8", "broadcast", "--root", "3", "--network", "fluid")
    assert out.startswith("# least time of broadcast from root 3 on line8: 8 ranks, fluid network\n")
    assert {row[4] for row in rows_of(out)} == {"3"}
    assert note(out, "latency") == "gpu3 to gpu7, 4us"
    assert "collsim compare line8 broadcast --root 3 --network fluid -b 8 -e 1G -f 8" in note(out, "near it")


def test_the_command_that_comes_next_can_be_run(capsys, tmp_path):
    path = tmp_path / "my machine.yaml"
    path.write_text("name: own\ngenerator: {name: ring, n: 3, bandwidth: 1GB/s, latency: 1us}\n")
    out = out_of(capsys, str(path), "all_gather")
    (command,) = re.findall(r"collsim (compare .*)", out)
    assert main(shlex.split(command)) == 0
    assert "all_gather on own: 3 ranks" in capsys.readouterr().out


def test_without_a_limit(capsys):
    out = out_of(capsys, "ring8", "barrier")
    assert rows_of(out) == [["0", "0", "float", "none", "-1", "7.00", "0.00", "0.00", "100.0", "latency"]]
    assert note(out, "limit") == "a barrier moves no data, so only latency counts"
    out = out_of(capsys, "ring8", "all_reduce", "--network", "alpha_beta")
    assert note(out, "limit").startswith("none for large messages: in alpha_beta links are not shared")
    assert {row[5] for row in rows_of(out)} == {"7.00"}
    assert not note(out, "cut")


def test_one_rank(capsys, tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text("name: own\nnodes: [{name: gpu0, kind: gpu}]\n")
    out = out_of(capsys, str(path), "all_reduce", "-b", "1K", "-e", "1K")
    assert rows_of(out)[0][5:] == ["0.00", "N/A", "N/A", "N/A", "-"]
    assert note(out, "limit") == "none: one rank has all that it needs"
    document = json.loads(out_of(capsys, str(path), "all_reduce", "--json"))
    assert document["limit"] is document["binding"] is document["results"][0]["algbw_GBps"] is None


def test_slow_links_and_large_messages(capsys, tmp_path):
    """A petabyte over 1 kB/s takes longer than the clock counts; the limit is right all the same."""
    path = tmp_path / "slow.yaml"
    path.write_text("name: own\ngenerator: {name: ring, n: 4, bandwidth: 1kB/s, latency: 1us}\n")
    document = json.loads(out_of(capsys, str(path), "all_gather", "-b", "4", "-e", "1K", "-f", "16", "--json"))
    assert document["limit"]["algbw_GBps"] == pytest.approx(4 / 3 * 1e-6, rel=1e-9)
    assert document["binding"]["volume_per_size"] == 0.75


def test_json(capsys):
    document = json.loads(out_of(capsys, "dgx-h100-x4", "all_to_all", "-b", "1M", "-e", "1G", "-f", "32", "--json"))
    assert {key: document[key] for key in ("topology", "operation", "network", "ranks", "datatype")} == {
        "topology": "dgx-h100-x4", "operation": "all_to_all", "network": "cut_through", "ranks": 32,
        "datatype": "float",
    }  # fmt: skip
    assert "root" not in document
    assert [row["size"] for row in document["results"]] == [2**20, 2**25, 2**30]
    topology = load_topology("dgx-h100-x4")
    for row in document["results"]:
        bound = lower_bound(Collective("all_to_all", 32), row["size"], topology, element_size=4, exact=True)
        assert row["time_us"] == bound * 1e6
        assert row["algbw_GBps"] == pytest.approx(row["size"] / bound / 1e9, rel=1e-12)
        terms = [row[f"{term}_us"] for term in ("latency", "injection", "cut")]
        assert max(terms) == pytest.approx(row["time_us"], rel=1e-12)
        assert row["reason"] == bound.reason
    assert document["limit"]["algbw_GBps"] == pytest.approx(200 / 3, rel=1e-9)
    binding = document["binding"]
    assert binding["bound_by"] == "cut"
    assert binding["volume_per_size"] == 6
    assert binding["bandwidth_GBps"] == 400
    assert binding["n_links"] == len(binding["links"]) == 8
    # the links that are named are those that leave the ranks inside
    inside = {topology.ranks[rank] for rank in binding["ranks_inside"]}
    assert len(inside) in (8, 24)
    ends = [name.split("#")[0].split("->") for name in binding["links"]]
    assert all(("nic" in tail) != ("nic" in head) for tail, head in ends)
    assert document["latency"] == {
        "time_us": pytest.approx(3.3),
        "reason": "latency: node[0].gpu[0] to node[1].gpu[1], 3.3us",
    }
    rooted = json.loads(out_of(capsys, "line8", "gather", "--root", "2", "--json"))
    assert rooted["root"] == 2


def test_json_of_lengths_and_of_parts(capsys, tmp_path):
    """Of K(2,3) no cut tells all: the lengths of all links do. All GPUs of a ring together are parts."""
    path = tmp_path / "k23.yaml"
    path.write_text(
        "name: k23\nnodes: [{name: 'a[0-1]', kind: gpu}, {name: 'b[0-2]', kind: gpu}]\n"
        "links: [{between: ['a[0-1]', 'b[0-2]'], bandwidth: 1GB/s, latency: 1us}]\n"
    )
    binding = json.loads(out_of(capsys, str(path), "all_to_all", "--json"))["binding"]
    assert binding["lengths"] == [1] * 12
    assert binding["volume_per_size"] is None
    out = out_of(capsys, str(path), "all_to_all")
    # 28 links are crossed by a byte from each to each, of which there are 12: 5 blocks in 7/3 ns a byte
    assert "algbw 2.14 GB/s" in note(out, "limit")
    assert note(out, "cut") == "over 12 links by the distances between ranks"
    parts = json.loads(out_of(capsys, "ring8", "all_reduce", "--json"))["binding"]
    assert parts["words"] == "all 8 ranks together at 400GB/s"
    assert parts["volume_per_size"] == 14
    assert "ranks_inside" not in parts


def test_very_wide_cuts_are_only_counted(capsys, tmp_path, monkeypatch):
    from collsim.cli import bound

    monkeypatch.setattr(bound, "MOST_LISTED", 4)
    binding = json.loads(out_of(capsys, "dgx-h100-x4", "all_to_all", "--json"))["binding"]
    assert binding["n_links"] == 8
    assert "links" not in binding
    assert "ranks_inside" not in binding


def test_a_large_machine_is_named_by_its_modules():
    """1,024 GPUs: the sentence that the issue asks for."""
    bound = lower_bound(Collective("all_to_all", 1024), 2**30, rail_optimized(128, 8))
    assert bound.binding.where in (
        "into node[0]: leaf -> nic, 8 x 50GB/s for the 1,016 GPUs outside",
        "out of node[0]: nic -> leaf, 8 x 50GB/s to the 1,016 GPUs outside",
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "the following arguments are required"),
        (("ring8",), "the following arguments are required: OPERATION"),
        (("ring8", "all_gathr"), "did you mean 'all_gather'?"),
        (("ring9", "all_gather"), "ring9"),
        (("no/such.yaml", "all_gather"), "no/such.yaml"),
        (("ring8", "all_gather", "-b", "0"), "-b: expected a size from 1 byte to 1 PiB"),
        (("ring8", "all_gather", "-b", "-8"), ""),
        (("ring8", "all_gather", "-b", "1MB"), "-b: "),
        (("ring8", "all_gather", "-b", ""), "-b: "),
        (("ring8", "all_gather", "-b", "2", "-d", "double"), "-b: expected at least 8 bytes"),
        (("ring8", "all_gather", "-b", "1M", "-e", "1K"), "-e: expected at least"),
        (("ring8", "all_gather", "-e", "4"), "-e: expected at least the 8 bytes of -b"),
        (("ring8", "all_gather", "-e", "2000000G"), "-e: expected a size from 1 byte to 1 PiB"),
        (("ring8", "all_gather", "-f", "1"), "-f: expected a whole number from 2"),
        (("ring8", "all_gather", "-f", "x"), "-f: expected a whole number from 2"),
        (("ring8", "all_gather", "-d", "flot"), "did you mean 'float'?"),
        (("ring8", "all_gather", "--network", "fluit"), "did you mean 'fluid'?"),
        (("ring8", "broadcast", "--root", "8"), "--root: expected a rank from 0 to 7, got '8'"),
        (("ring8", "broadcast", "--root", "-1"), "--root: expected"),
        (("ring8", "broadcast", "--root", "gpu0"), "--root: expected a rank"),
        (("ring8", "all_gather", "--root", "1"), "all_gather has no root"),
        (("ring8", "all_gather", "-a", "ring"), "unknown: -a ring"),
        (("ring8", "all_gather", "extra"), "unknown: extra"),
        (("ring8", "all_gather", "--jsn"), "did you mean '--json'?"),
        (("ring8\n", "all_gather"), ""),
        (("ring8", "all_gather\n"), "OPERATION: expected one of"),
    ],
)
def test_wrong_calls_are_one_line(capsys, arguments, expected):
    assert expected in error_of(capsys, *arguments)


def test_a_machine_in_two_parts(capsys, tmp_path):
    path = tmp_path / "parts.yaml"
    path.write_text(
        "name: parts\nnodes: [{name: 'gpu[0-1]', kind: gpu}]\n"
        "links: [{from: 'gpu[0]', to: 'gpu[1]', bandwidth: 1GB/s, latency: 0s}]\n"
    )
    assert "no path from gpu[1] to gpu[0], so no all_gather" in error_of(capsys, str(path), "all_gather")


def test_help_names_the_defaults(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["bound", "--help"])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in (
        "smallest size (default 8)",
        "largest size (default 8G, or the smallest)",
        "between sizes (default 8)",
    ):
        assert words in text
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for words in ("(default 32M)", "(default 32M, or the smallest)", "between sizes (default 2)"):
        assert words in text


def test_no_simulated_time_is_below_it(capsys):
    """The bound of a size, from the command line, against a run of the library."""
    topology = load_topology("mi300x")
    for row in rows_of(out_of(capsys, "mi300x", "all_gather", "-b", "1K", "-e", "64M", "-f", "256")):
        result = collsim.run("all_gather", topology, int(row[0]), "ring", dtype="float")
        assert result.time * 1e6 >= float(row[5]) - 0.006


def test_the_table_in_the_documentation_is_what_is_printed(capsys):
    page = Path(__file__).parent.parent / "docs" / "bounds.md"
    if not page.exists():
        pytest.skip("the documentation is not beside the tests")
    text = page.read_text(encoding="utf-8")
    block = re.search(r"^    \$ collsim bound (.*)\n((?:    .*\n)+)", text, re.MULTILINE)
    shown = [line.removeprefix("    ") for line in block[2].splitlines()]
    printed = out_of(capsys, *block[1].split()).splitlines()
    # all nodes are alike: which of them is named, and from which side, is left open
    assert [line for line in shown if not line.startswith("# cut ")] == [
        line for line in printed if not line.startswith("# cut ")
    ]
    assert len(shown) == len(printed)
