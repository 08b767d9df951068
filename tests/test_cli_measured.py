"""``collsim compare --measured``: what a log has beside what is simulated."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import collsim
from collsim.cli import main
from collsim.cli.measured import BANDS, bands_of, spread_of
from collsim.collective import Collective
from collsim.compiling import NOTICE

TITLES = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong"
SIZES = [1 << k for k in range(12, 31, 2)]


def line(
    size: int, us: float, ranks: int = 8, operation: str = "all_reduce", redop: str = "sum", root: int = -1,
    type_: str = "float", wrong: str = "0",
) -> str:  # fmt: skip
    factor = Collective(operation, ranks, max(root, 0)).busbw_factor
    text = f"{size:12d} {size // 4:12d} {type_:>8s} {redop:>6s} {root:6d}"
    for t in (us, us / 2):
        text += f"  {t:.2f}  {size / t / 1e3:.2f}  {size / t / 1e3 * factor:.2f}  {wrong}"
    return text


def log_of(rows: list[str], ranks: int = 8, program: str = "all_reduce_perf") -> str:
    devices = [f"#  Rank {i} Group 0 Pid {i} on host{i // 4} device {i} [0x0{i}] GPU X" for i in range(ranks)]
    settings = f"# nThread 1 nGpus {ranks} minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1"
    head = [f"# Collective test starting: {program}", settings, *devices, "NCCL version 2.28.7+cuda12.9", TITLES]
    return "\n".join([*head, *rows, "# Avg bus bandwidth    : 1", ""])


def simulated(operation: str = "all_reduce", algorithm: str = "ring", **more: object) -> dict[int, float]:
    """Return simulated microseconds by size."""
    found = collsim.compare(operation, collsim.load_topology("ring8"), SIZES, algorithms=[algorithm], **more)
    return {size: result.time * 1e6 for size, result in found.results[algorithm].items()}


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Give a function that writes a log to x.log."""
    monkeypatch.chdir(tmp_path)
    return lambda text: (tmp_path / "x.log").write_text(text)


def out_of(capsys, *arguments, code=0):
    assert main(["compare", *arguments]) == code
    out, err = capsys.readouterr()
    assert not err.replace(NOTICE, "").strip()
    assert out.isascii()
    return out


def error_of(capsys, *arguments):
    assert main(["compare", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    return err


def test_the_whole_output(log, capsys):
    times = simulated()
    # what was measured is 30 us more than the simulated ring
    log(log_of([line(size, times[size] + 30) for size in SIZES[::3]]))
    assert (
        out_of(capsys, "ring8", "all_reduce", "--measured", "x.log", "-a", "ring,tree")
        == """\
# all_reduce on ring8: 8 ranks, cut_through network, float; 2 algorithms
#
#   size          measured  fastest                               ring              tree
#             time   busbw              time   error      time   error      time   error
#             (us)  (GB/s)              (us)     (%)      (us)     (%)      (us)     (%)
    4KiB     44.14    0.16  ring       14.14   -68.0     14.14   -68.0     24.34   -44.9
  256KiB     53.18    8.63  ring       23.18   -56.4     23.18   -56.4     60.76   +14.2
   16MiB     631.2   46.51  ring       601.2    -4.8     601.2    -4.8    3402.4  +439.0
    1GiB     37625   49.94  ring       37595    -0.1     37595    -0.1    217438  +477.9
#
# |error| in %, median and 90th percentile of the sizes
#          up to 64KiB, 1 size  to 16MiB, 2 sizes    above, 1 size
  fastest         68.0    68.0       30.6    51.3      0.1     0.1
  ring            68.0    68.0       30.6    51.3      0.1     0.1
  tree            44.9    44.9      226.6   396.6    477.9   477.9
#
# measured x.log: out of place, 8 x GPU X on 2 hosts, NCCL 2.28.7+cuda12.9, float sum, 20 iterations
# error    simulated / measured time - 1: below 0 the simulation is faster
# columns  fastest: whichever that is at each size
# model    simulated times are those of links, latencies and the algorithm: no launch of kernels (some us at any size),
#          no protocols (LL, LL128), no limits of GPUs that the topology does not name; short messages measure mostly
#          those
# fastest  at all sizes: ring
"""
    )


def test_errors_are_simulated_over_measured(log, capsys):
    times = simulated()
    log(log_of([line(size, times[size] * (2 if size < 1 << 20 else 0.8)) for size in SIZES]))
    document = json.loads(out_of(capsys, "ring8", "all_reduce", "--measured", "x.log", "--json"))
    measured = document["measured"]
    assert [row["size"] for row in document["results"]] == [row["size"] for row in measured["results"]] == SIZES
    for row, found in zip(document["results"], measured["results"], strict=True):
        (ring,) = (item for item in row["ranking"] if item["algorithm"] == "ring")
        assert ring["error"] == pytest.approx(ring["time_us"] / found["time_us"] - 1)
        assert ring["error"] == pytest.approx(-0.5 if row["size"] < 1 << 20 else 0.25, abs=2e-3)
        assert found["other_place"]["time_us"] == pytest.approx(found["time_us"] / 2, abs=0.01)
    spread = measured["absolute_errors"]["ring"]
    assert list(spread) == ["up to 64KiB", "to 16MiB", "to 512MiB", "above"]
    assert [band["sizes"] for band in spread.values()] == [3, 4, 2, 1]
    assert spread["up to 64KiB"]["median"] == pytest.approx(0.5, abs=2e-3)
    assert spread["to 512MiB"]["p90"] == pytest.approx(0.25, abs=2e-3)
    assert next(iter(measured["absolute_errors"])) == "fastest"
    assert (measured["ranks"], measured["in_place"], measured["type"], measured["redop"]) == (8, False, "float", "sum")
    assert measured["devices"][7] == {
        "rank": 7, "group": 0, "pid": 7, "host": "host1", "device": 7, "bus_id": "0x07", "name": "GPU X",
    }  # fmt: skip
    assert measured["header"]["iterations"] == 20


def test_without_names_the_nearest_are_shown(log, capsys):
    times = simulated(algorithm="tree")
    log(log_of([line(size, times[size] * 1.01) for size in SIZES]))
    out = out_of(capsys, "ring8", "all_reduce", "--measured", "x.log")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 120
    titles = lines[2].split()
    assert titles[:4] == ["#", "size", "measured", "fastest"]
    assert "tree" in titles[4:7]
    assert "beside it the 3 that come nearest to what was measured" in out
    at = next(i for i, text in enumerate(lines) if text.startswith("# |error|"))
    assert lines[at + 3].split() == ["tree", "1.0", "1.0", "1.0", "1.0", "1.0", "1.0", "1.0", "1.0"]
    assert re.search(r"# and \d+ more that come less near\n", out)
    assert "# unfit    " in out
    everything = out_of(capsys, "ring8", "all_reduce", "--measured", "x.log", "--all")
    assert "come less near" not in everything
    table = everything.split("# error (%):\n")[1].split("#\n")[0].splitlines()
    assert table[0].split() == ["#", "4K", "16K", "64K", "256K", "1M", "4M", "16M", "64M", "256M", "1G"]
    (tree,) = (row.split() for row in table if row.split()[0] == "tree")
    assert all(float(cell) == pytest.approx(-1.0, abs=0.11) for cell in tree[1:])
    assert max(map(len, everything.splitlines())) <= 120


def test_many_names_make_several_blocks(log, capsys):
    log(log_of([line(1 << 20, 80)]))
    names = "ring,tree,double_binary_tree,binomial_tree,neighbour_exchange,bidirectional_ring,recursive_doubling"
    out = out_of(capsys, "ring8", "all_reduce", "--measured", "x.log", "-a", names)
    assert max(map(len, out.splitlines())) <= 120
    assert out.count("#   size          measured") == 2
    assert out.count("    1MiB     80.00   22.94") == 2
    for name in names.split(","):
        assert len(re.findall(rf"\b{name}\b", out)) >= 2


def test_one_algorithm_needs_no_fastest(log, capsys):
    log(log_of([line(1 << 20, 80)]))
    out = out_of(capsys, "ring8", "all_reduce", "--measured", "x.log", "-a", "ring")
    assert "fastest" not in out
    assert max(len(text) for text in out.splitlines()[:8]) < 80


def test_times_in_place(log, capsys):
    log(log_of([line(1 << 20, 80)]))
    out = out_of(capsys, "ring8", "all_reduce", "--measured", "x.log", "-a", "ring", "--in-place")
    assert "    1MiB     40.00   45.88" in out
    assert "# measured x.log: in place" in out
    out_of_place = TITLES.rsplit("  time", 1)[0]
    log(f"#   in-place\n{out_of_place}\n1048576 262144 float sum -1 40.0 26.21 45.88 0\n")
    out = out_of(capsys, "ring8", "all_reduce", "--measured", "x.log", "-a", "ring")
    assert "# measured x.log: in place" in out
    assert "    1MiB     40.00   45.88" in out


def test_sizes_are_those_of_the_log_between_b_and_e(log, capsys):
    log(log_of([line(0, 9), line(2, 9), *(line(size, 80) for size in SIZES), line(1 << 51, 1e9)]))
    every = json.loads(out_of(capsys, "ring8", "all_reduce", "--measured", "x.log", "-a", "ring", "--json"))
    assert [row["size"] for row in every["results"]] == SIZES
    some = json.loads(
        out_of(
            capsys, "ring8", "all_reduce", "--measured", "x.log", "-a", "ring", "--json", "-b", "1M", "-e", "20000000"
        )
    )
    assert [row["size"] for row in some["results"]] == [1 << 20, 1 << 22, 1 << 24]


def test_the_whole_buffer_is_the_size(log, capsys):
    times = simulated("all_gather")
    rows = [line(size, times[size], operation="all_gather", redop="none") for size in SIZES]
    log(log_of(rows, program="all_gather_perf"))
    document = json.loads(out_of(capsys, "ring8", "all_gather", "--measured", "x.log", "-a", "ring", "--json"))
    for row, found in zip(document["results"], document["measured"]["results"], strict=True):
        assert abs(row["ranking"][0]["error"]) < 2e-3
        assert row["ranking"][0]["busbw_GBps"] == pytest.approx(found["busbw_GBps"], rel=2e-3, abs=0.006)


def test_types_reductions_and_roots_are_those_of_the_log(log, capsys):
    log(log_of([line(1 << 20, 80, type_="half"), line(1 << 20, 90, type_="half", redop="max")]))
    document = json.loads(out_of(capsys, "ring8", "all_reduce", "--measured", "x.log", "-a", "ring", "--json"))
    assert (document["datatype"], document["measured"]["type"]) == ("half", "half")
    assert document["measured"]["redop"] == "sum"
    assert document["measured"]["results"][0]["time_us"] == pytest.approx(80)
    log(log_of([line(1 << 20, 80, type_="f8e4m3")]))
    assert json.loads(out_of(capsys, "ring8", "all_reduce", "--measured", "x.log", "--json"))["datatype"] == "uint8"
    log(log_of([line(1 << 20, 80, type_="half"), line(1 << 20, 90, type_="double")]))
    assert "x.log: expected rows of type float, got double, half; give -d" in error_of(
        capsys, "ring8", "all_reduce", "--measured", "x.log"
    )
    assert "double sum" in out_of(capsys, "ring8", "all_reduce", "--measured", "x.log", "-a", "ring", "-d", "double")
    rows = [line(1 << 20, 80, operation="broadcast", redop="none", root=3)]
    log(log_of(rows, program="broadcast_perf"))
    document = json.loads(out_of(capsys, "ring8", "broadcast", "--measured", "x.log", "-a", "tree", "--json"))
    assert document["root"] == 3
    log(log_of([*rows, line(1 << 20, 90, operation="broadcast", redop="none", root=5)], program="broadcast_perf"))
    assert "expected rows of root 0, got 3, 5; give -r" in error_of(capsys, "ring8", "broadcast", "--measured", "x.log")
    out = out_of(capsys, "ring8", "broadcast", "--measured", "x.log", "-a", "tree", "-r", "5")
    assert "# broadcast from root 5 on ring8" in out
    assert "    1MiB     90.00" in out


def test_what_one_should_know_of_the_log(log, capsys):
    rows = [line(1 << 20, us, wrong="3") for us in (80, 100, 1000)] + [line(1 << 22, 300), line(1 << 24, 900)[:60]]
    log(log_of(rows) + "\n$ other\n" + log_of([line(1 << 20, 90)]))
    out = out_of(capsys, "ring8", "all_reduce", "--measured", "x.log", "-a", "ring")
    assert "    1MiB     95.00" in out, "the median"
    assert "#          sizes occur up to 4 times in the log: medians of them\n" in out
    assert "#          1 row of the log left out: other output breaks it\n" in out
    assert "#          the log counts wrong values at 1MiB\n" in out
    log(log_of([line(1 << 20, 80)]).replace("time", "cputime"))
    assert "the CPU took to launch" in out_of(capsys, "ring8", "all_reduce", "--measured", "x.log", "-a", "ring")
    log(f"{TITLES}\n{line(1 << 20, 80, operation='broadcast').replace('262144', '7')}\n")
    out = out_of(capsys, "ring8", "all_reduce", "--measured", "x.log", "-a", "ring")
    assert "#          the log does not say which operation it is of\n" in out
    assert "#          the log does not say how many ranks took part\n" in out


def test_plots(log, capsys, monkeypatch):
    import collsim.plot

    drawn = []

    def spied(found, **more):
        drawn.append((found, more.get("measured")))
        return original(found, **more)

    original = collsim.plot.bandwidth_curve
    monkeypatch.setattr(collsim.plot, "bandwidth_curve", spied)
    log(log_of([line(size, 1000) for size in SIZES[:4]]))
    out = out_of(capsys, "ring8", "all_reduce", "--measured", "x.log", "--plot", "a.png")
    assert out.endswith("# plot     a.png\n")
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    assert len(drawn[0][0]) <= 8, "the nearest and those that are the fastest somewhere"
    assert drawn[0][1] == [(size, pytest.approx(size / 1e-3 * 1.75, abs=6e6)) for size in SIZES[:4]]
    out = out_of(capsys, "ring8", "all_reduce", "--measured", "x.log", "--plot", "b.svg", "-a", "ring,tree", "--json")
    assert json.loads(out)["plot"] == "b.svg"
    assert list(drawn[1][0].results) == ["ring", "tree"]
    out = out_of(capsys, "ring8", "all_reduce", "-b", "1K", "-e", "1M", "-a", "ring", "--plot", "c.pdf")
    assert out.endswith("# plot     c.pdf\n")
    assert Path("c.pdf").read_bytes().startswith(b"%PDF")
    assert drawn[2][1] is None


def test_logs_of_run_are_compared_with_themselves(log, capsys):
    sizes = ("-b", "1K", "-e", "256M", "-f", "8")
    assert main(["run", "ring8", "all_reduce", *sizes, "-a", "ring", "--nccl-tests", "-J", "x.json"]) == 0
    log(capsys.readouterr().out)
    for name in ("x.log", "x.json"):
        document = json.loads(out_of(capsys, "ring8", "all_reduce", "--measured", name, "-a", "ring", "--json"))
        assert len(document["results"]) == 7
        assert all(abs(row["ranking"][0]["error"]) < 2e-3 for row in document["results"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--measured", "none.log"], "none.log: expected a log of nccl-tests, got no such file"),
        (["--measured", "x.log", "-f", "4"], "-f: with --measured the sizes are those of the log; leave it out"),
        (["--measured", "x.log", "-b", "2M", "-e", "1M"], "-e: expected at least the 2,097,152 bytes of -b, got 1,048"),
        (["--measured", "x.log", "-b", "1T"], "-b: "),
        (["--measured", "x.log", "-e", "0"], "-e: expected a size from 1 byte to 1 PiB, got '0'"),
        (["--measured", "x.log", "-b", "1G"], "got none; the sizes of the log go from 1MiB to 1MiB"),
        (["--measured", "x.log", "--plot", "x.gif"], "plot: x.gif: expected a name that ends in"),
        (["--in-place"], "--in-place: expected --measured beside it"),
        (["--plot", "none/x.png"], "plot: none/x.png: no such directory"),
    ],
)
def test_wrong_calls(log, capsys, arguments, message):
    log(log_of([line(1 << 20, 80)]))
    assert message in error_of(capsys, "ring8", "all_reduce", *arguments)


def test_other_machines_and_operations(log, capsys):
    log(log_of([line(1 << 20, 80)]))
    assert (
        "x.log:12: expected 4 ranks, as pcie-4gpu has, got 8; give the topology of the machine that was measured, or a "
        "log of 4 ranks" in error_of(capsys, "pcie-4gpu", "all_reduce", "--measured", "x.log")
    )
    assert "x.log: expected a table of all_gather, got all_reduce (line 12)" in error_of(
        capsys, "ring8", "all_gather", "--measured", "x.log"
    )
    alone = log_of([line(1 << 20, 0.1, ranks=1)], ranks=1)
    log(alone + alone)
    assert "got 1; each process measured by itself: build nccl-tests with MPI=1, or start one with -g" in error_of(
        capsys, "ring8", "all_reduce", "--measured", "x.log"
    )
    # of several tables the one that fits is taken
    log(alone + log_of([line(1 << 20, 80)]) + alone)
    assert "    1MiB     80.00" in out_of(capsys, "ring8", "all_reduce", "--measured", "x.log", "-a", "ring")


def test_too_many_sizes_are_refused(log, capsys):
    log(log_of([line(4096 * i, 80) for i in range(1, 1200)]))
    assert "x.log: expected at most 1,000 sizes, got 1,199; give -b and -e" in error_of(
        capsys, "ring8", "all_reduce", "--measured", "x.log"
    )


def test_bands():
    assert bands_of([1, 1 << 16, (1 << 16) + 1, 1 << 24, 1 << 29, 1 << 30]) == {
        "up to 64KiB": [1, 1 << 16], "to 16MiB": [(1 << 16) + 1, 1 << 24], "to 512MiB": [1 << 29], "above": [1 << 30],
    }  # fmt: skip
    assert [size for size, _ in BANDS] == sorted(size for size, _ in BANDS)
    assert spread_of({1: -0.5, 2: 0.1, 4: 0.3}, [1, 2, 4, 8]) == (0.3, pytest.approx(0.46))
    assert spread_of({}, [1]) is None
