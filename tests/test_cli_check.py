"""``collsim check``: the battery on functions of the user and on shipped ones."""

from __future__ import annotations

import pytest

from collsim.cli import main
from collsim.cli.check import parse_ranks
from collsim.errors import InputError

OWN = """\
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collsim import Collective, ScheduleBuilder, algorithm
from collsim.errors import AlgorithmError


@dataclass
class Lane:
    way: int


def bidirectional_ring(ranks):
    b = ScheduleBuilder(Collective("all_reduce", ranks), chunks=2 * ranks)
    r = np.arange(ranks)
    for reduces in (True, False):
        with b.repeat(ranks - 1, window=ranks):
            for lane, way in enumerate((Lane(1).way, -1)):
                first = (r - way) % ranks if reduces else r
                (b.reduce if reduces else b.copy)(r, (r + way) % ranks, lane * ranks + first, shift=-way)
    return b.build()


@algorithm("broadcast", "test_star")
def star(ranks, root=0):
    b = ScheduleBuilder(Collective("broadcast", ranks, root), chunks=1)
    b.copy(root, [rank for rank in range(ranks) if rank != root], 0)
    return b.build()


def only_root_0(ranks, root=0):
    return star(ranks, 0)


def forgets_from_4(ranks):
    b = ScheduleBuilder(Collective("all_gather", ranks), chunks=ranks)
    for rank in range(ranks):
        others = [other for other in range(min(ranks, 3)) if other != rank]
        b.copy(rank, others, rank)
    return b.build()


def even(ranks):
    if ranks % 2:
        raise AlgorithmError(f"even: expected an even number of ranks, got {ranks}")
    return bidirectional_ring(ranks)


def divides(ranks):
    return 1 / (ranks - 3)


def breaks_at_3(ranks):
    if ranks == 3:
        return [][ranks]
    return bidirectional_ring(ranks)


def wrong_type(ranks):
    return [ranks]


def wrong_ranks(ranks):
    return bidirectional_ring(ranks + 1)


def takes_nothing():
    return bidirectional_ring(2)


def out_of_range(ranks):
    b = ScheduleBuilder(Collective("all_reduce", ranks), chunks=1)
    b.reduce(0, ranks, 0)
    return b.build()


def misspelt(ranks):
    return ScheduleBuilder(Collective("all_reduc", ranks), chunks=1)


def leaves(ranks):
    raise SystemExit(7)


number = 3
builtin = dict
"""


def line_of(text):
    return 1 + next(i for i, line in enumerate(OWN.splitlines()) if text in line)


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    from collsim.algorithms import registry

    registry._TABLE.pop(("broadcast", "test_star"), None)


def run(capsys, *arguments):
    code = main(["check", *arguments])
    out, err = capsys.readouterr()
    assert err.count("\n") == (code != 0)
    return code, out.splitlines(), err


def test_a_line_for_each_number_of_ranks(capsys):
    code, lines, _ = run(capsys, "own.py:bidirectional_ring", "--ranks", "2-17")
    assert code == 0
    assert lines[:2] == [
        "N=2     ok            4 chunks       2 steps         8 transfers, a rank sends at most 1 S",
        "N=3     ok            6 chunks       4 steps        24 transfers, a rank sends at most 1.333 S",
    ]
    assert [line.split()[:2] for line in lines[:-1]] == [[f"N={n}", "ok"] for n in range(2, 18)]
    assert lines[-1].startswith("# S is the size.")
    assert max(map(len, lines)) <= 120


def test_roots_and_the_decorator(capsys):
    code, lines, _ = run(capsys, "own.py:star", "--ranks", "1,4,20")
    assert code == 0
    assert [line.rpartition(", ")[2] for line in lines[:-1]] == ["1 root", "4 roots", "4 roots"]


def test_shipped_ones(capsys):
    code, lines, _ = run(capsys, "all_reduce:ring", "--ranks", "8")
    assert code == 0
    assert "112 transfers, a rank sends at most 1.75 S" in lines[0]


def test_failures_are_told_for_each_number(capsys):
    code, lines, err = run(capsys, "own.py:forgets_from_4", "--ranks", "2-5")
    assert code == 1
    assert [line.split()[1] for line in lines] == ["ok", "ok", "FAILED", "FAILED"]
    assert lines[2].startswith("N=4     FAILED   rank 3, chunk 0: ")
    assert err == "collsim: proof failed for 2 of 4 numbers of ranks\n"


def test_a_schedule_that_cannot_be_built_fails_with_its_line(capsys):
    code, lines, _ = run(capsys, "own.py:out_of_range", "--ranks", "2")
    assert code == 1
    assert lines[0].startswith(f"N=2     FAILED   own.py:{line_of('b.reduce(0, ranks, 0)') + 1}: ")
    assert "dst: expected a rank below 2" in lines[0]


def test_refusals_are_no_failure_unless_there_is_nothing_else(capsys):
    code, lines, _ = run(capsys, "own.py:even", "--ranks", "2-4")
    assert code == 0
    assert lines[1] == "N=3     refused  even: expected an even number of ranks, got 3"
    code, _, err = run(capsys, "own.py:even", "--ranks", "3,5")
    assert code == 2
    assert err == "collsim: error: own.py:even: refuses every number of ranks of 3,5\n"


@pytest.mark.parametrize(
    ("function", "place", "message"),
    [
        ("divides", None, "expected it to return a Schedule, got float"),
        ("breaks_at_3", "[][ranks]", "with 3 ranks: IndexError: list index out of range"),
        ("wrong_type", "def wrong_type", "wrong_type: expected it to return a Schedule, got list"),
        (
            "takes_nothing",
            "def takes_nothing",
            "TypeError: takes_nothing() takes 0 positional arguments but 1 was given",
        ),
        ("misspelt", '"all_reduc"', "expected one of all_reduce, "),
        ("leaves", "raise SystemExit", "with 2 ranks: SystemExit: 7"),
        ("Lane", None, "expected it to return a Schedule, got Lane"),
    ],
)
def test_what_goes_wrong_in_a_function_is_one_line_with_its_place(capsys, function, place, message):
    code, _, err = run(capsys, f"own.py:{function}", "--ranks", "2-3")
    assert code == 2
    assert err.startswith("collsim: error: own.py:" if place is None else f"collsim: error: own.py:{line_of(place)}: ")
    assert message in err


def test_schedules_for_other_ranks_or_roots(capsys):
    code, _, err = run(capsys, "own.py:wrong_ranks", "--ranks", "2")
    assert code == 2
    assert err == "collsim: error: with 2 ranks: wrong_ranks: expected a schedule of 2 ranks, root 0, got 3, root 0\n"
    code, _, err = run(capsys, "own.py:only_root_0", "--ranks", "2")
    assert code == 2
    assert "expected a schedule of 2 ranks, root 1, got 2, root 0" in err


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("imports.py", "\nimport no_such_module_at_all\n", "imports.py:2: ModuleNotFoundError: No module named"),
        ("syntax.py", "x = 1\ny = 2\ndef f(:\n", "syntax.py:3: SyntaxError: "),
        ("leaves.py", "import sys\n\nsys.exit(4)\n", "leaves.py:3: SystemExit: 4"),
        (
            "library.py",
            "import collsim\n\ncollsim.algorithms.ring_all_reduce(0)\n",
            "library.py:3: ranks: expected a whole",
        ),
    ],
)
def test_files_that_cannot_be_imported(capsys, own, name, text, message):
    (own / name).write_text(text)
    code, lines, err = run(capsys, f"{name}:f")
    assert (code, lines) == (2, [])
    assert err.startswith(f"collsim: error: {message}")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("missing.py:f", "missing.py: expected a Python file, there is none"),
        ("own.py", "own.py: expected FILE.py:FUNCTION"),
        ("own.py:", "expected FILE.py:FUNCTION"),
        (":f", "expected FILE.py:FUNCTION"),
        ("own.py:number", "expected a function named 'number', found bidirectional_ring, star"),
        ("own.py:builtin", "own.py: builtin: expected a function, got <class 'dict'>"),
        ("own.py:bidirectional_rng", "did you mean 'bidirectional_ring'?"),
        ("all_reduce:rnig", "did you mean 'ring'?"),
        ("all_reduc:ring", "did you mean 'all_reduce'?"),
    ],
)
def test_references_that_lead_nowhere(capsys, reference, message):
    code, lines, err = run(capsys, reference)
    assert (code, lines) == (2, [])
    assert message in err


def test_what_a_function_prints_does_not_mix_with_the_table(capsys, own):
    (own / "loud.py").write_text(
        OWN + "\nprint('loading')\n\ndef loud(ranks):\n    print('building')\n    return star(ranks)\n"
    )
    assert main(["check", "loud.py:loud", "--ranks", "2"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("N=2     ok")
    assert err == "loading\n" + 2 * "building\n"  # twice, to see that it makes the same schedule again


@pytest.mark.parametrize("text", ["", "0", "2-", "-3", "3-2", "a", "1-99999999", "9" * 5000, "2,,3", "1.5", "²"])
def test_ranks_that_are_none(text):
    with pytest.raises(InputError, match="--ranks: expected numbers from 1 to 10000"):
        parse_ranks(text)
