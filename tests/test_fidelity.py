"""The score of predictions against measured files."""

from __future__ import annotations

import json

import pytest

from benchmarks import fidelity
from benchmarks.machines import Refused, cluster_of
from collsim.nccl import Machine, choice, machine_of

H100 = Machine(sm=90, gpus=8, nvlink=370.8, switch=True, pcie=48.0)
NODE = {"gpu": "H100 SXM 80GB", "gpus_per_node": 8, "nodes": 1, "ranks": 8, "intra_link": "NVLink4 + NVSwitch"}


def case(name, points, **more):
    """Return a case as a file has it."""
    return {"id": name, "collective": "all_reduce", "hardware": NODE, "nccl_version": None, "points": points, **more}


def written(path, *cases):
    """Write cases as YAML, which JSON is."""
    path.write_text(json.dumps(cases))
    return path


def us(size):
    return choice(H100, "all_reduce", size).seconds * 1e6


@pytest.fixture
def measured(tmp_path):
    times = (
        {"bytes": 1024, "time_us": 9 * us(1024), "inplace_time_us": us(1024) / 1.5},
        {"bytes": 65536, "time_us": us(65536)},
        {"bytes": 65537, "time_us": us(65537) / 1.25, "inplace_time_us": 1.0},
        {"bytes": 2**30, "algbw_GBps": 2**30 / us(2**30) / 1e3 * 1.1, "busbw_GBps": 1.0},
    )
    other = ({"bytes": 2**30, "busbw_GBps": 2**30 / us(2**30) / 1e3 * 1.75 * 1.3},)
    amd = {"gpu": "MI300X", "gpus_per_node": 8, "nodes": 1, "ranks": 8, "intra_link": "xGMI"}
    return written(
        tmp_path / "measured.yaml",
        case("first", times),
        case("second", other),
        case("amd", other, hardware=amd),
        case("to_all", other, collective="alltoall"),
        case("nothing", []),
        case("odd", other, env="NCCL_ALGO=Rung"),
    )


def test_errors_in_bands(measured):
    found = fidelity.score(fidelity.read_cases(measured), fidelity.by_formula)
    small = found["bands"]["<=64KiB"]  # in place where there is one: 0.5, out of place: 0
    assert small["median"] == small["median_points"] == pytest.approx(0.25)
    assert small["p90"] == pytest.approx(0.45)
    assert (small["points"], small["cases"]) == (2, 1)
    assert found["bands"]["<=16MiB"]["median"] == pytest.approx(0.25)  # out of place
    assert found["bands"]["<=512MiB"] == {"median": None, "p90": None, "points": 0, "median_points": None, "cases": 0}
    assert found["bands"][">512MiB"]["median"] == pytest.approx(0.2)  # of 0.1 and 0.3
    assert found["cases"]["second"] == {
        "bands": {">512MiB": {"median": pytest.approx(0.3), "p90": pytest.approx(0.3), "points": 1}}
    }


def test_refusals_are_counted_with_their_reason(measured):
    found = fidelity.score(fidelity.read_cases(measured), fidelity.by_formula)
    reasons = {name: entry["refused"] for name, entry in found["cases"].items() if "refused" in entry}
    assert found["refused"] == len(reasons) == 4
    assert "expected GPUs of NVIDIA" in reasons["amd"]
    assert reasons["to_all"] == "NCCL's formula has no all_to_all"
    assert reasons["nothing"] == "points: expected a list, got []"
    assert "did you mean 'Ring'" in reasons["odd"]
    assert "refused" not in fidelity.score(fidelity.read_cases(measured), fidelity.by_textbook)["cases"]["to_all"]


def test_a_case_counts_once_however_many_points_it_has(tmp_path):
    def points(factor, sizes):
        return [{"bytes": size, "time_us": us(size) / factor} for size in sizes]

    path = written(
        tmp_path / "m.yaml",
        case("many", points(2, range(2**20, 2**20 + 9))),
        case("one", points(1.1, [2**20])),
        case("another", points(1.2, [2**20])),
    )
    found = fidelity.score(fidelity.read_cases(path), fidelity.by_formula)["bands"]["<=16MiB"]
    assert (found["median"], found["median_points"]) == (pytest.approx(0.2), pytest.approx(1.0))


def test_json_and_table(measured, capsys):
    assert fidelity.main(["--file", str(measured), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["bands"]) == ["<=64KiB", "<=16MiB", "<=512MiB", ">512MiB"]
    assert {"median", "p90", "points"} <= set(found["bands"]["<=64KiB"])
    assert found["baseline"]["bands"] == found["bands"]
    assert set(found["cases"]) == {"first", "second", "amd", "to_all", "nothing", "odd"}
    assert fidelity.main(["--file", str(measured)]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 120
    assert "25.0 / 45.0" in text
    assert "expected GPUs of NVIDIA" in text
    assert text.endswith("baseline: 2 cases, 4 refused\n")


def test_a_point_without_a_time_is_said(tmp_path):
    path = written(tmp_path / "m.yaml", case("none", [{"bytes": 8, "time_us": "fast"}]), case("size", [{"bytes": 0}]))
    problems = [found.problem for found in fidelity.read_cases(path)]
    assert problems[0] == "points[0]: expected time_us, inplace_time_us, algbw_GBps or busbw_GBps, got bytes, time_us"
    assert problems[1] == "points[0]: bytes: expected a whole number from 1, got 0"


def test_one_case(measured, capsys):
    assert fidelity.main(["--file", str(measured), "--case", "second", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["cases"]) == ["second"]
    assert fidelity.main(["--file", str(measured), "--case", "secund"]) == 2
    assert "got 'secund'; did you mean 'second'?" in capsys.readouterr().err


def test_files_that_cannot_be_read(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fidelity, "DEFAULT", tmp_path / "none.yaml")
    assert fidelity.main([]) == 2
    assert capsys.readouterr().err == (
        "error: --file: expected a file of measured cases, got none and there is no default here; name one\n"
    )
    for text, message in (("{}", "expected a list of cases"), ("[{}]", "case 0: expected a mapping with an id")):
        (tmp_path / "m.yaml").write_text(text)
        assert fidelity.main(["--file", str(tmp_path / "m.yaml")]) == 2
        assert message in capsys.readouterr().err
    twice = written(tmp_path / "twice.yaml", case("a", []), case("a", []))
    assert fidelity.main(["--file", str(twice)]) == 2
    assert "id 'a' is there twice" in capsys.readouterr().err


def test_fewer_ranks_are_the_first_of_each_node():
    two = {**NODE, "nodes": 2, "ranks": 16, "nic_count_per_node": 8, "nic_Gbps_each": 400, "fabric": "InfiniBand NDR"}
    assert machine_of(cluster_of(two, 8)).gpus == 4
    with pytest.raises(Refused, match="7 ranks on 2 nodes are not dealt out evenly"):
        cluster_of(two, 7)


@pytest.mark.skipif(not fidelity.DEFAULT.exists(), reason="no measured file here")
def test_the_baseline_on_the_measured_file():
    found = fidelity.report(fidelity.read_cases(fidelity.DEFAULT))
    medians = [found["baseline"]["bands"][band]["median"] for band in fidelity.BANDS]
    assert medians == pytest.approx([0.40, 0.37, 0.125, 0.055], abs=0.05)
    assert len(found["cases"]) - found["refused"] >= 40
