"""The table of algorithms, and functions of a user's own file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collsim import Collective, Schedule, ScheduleBuilder, algorithms, check, run, topology
from collsim.algorithms import registry
from collsim.errors import AlgorithmError, CollsimError, InputError, one_of, shown
from collsim.topology.structure import rank_routes


@pytest.fixture
def _table() -> Iterator[None]:
    before = dict(registry._TABLE)
    yield
    registry._TABLE.clear()
    registry._TABLE.update(before)


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of a few algorithms, whatever else is there: messages list all names of an operation."""
    few = [
        ("broadcast", "binomial_tree"), ("broadcast", "ring"), ("reduce", "tree"),
        ("all_reduce", "binomial_tree"), ("all_reduce", "ring"), ("all_gather", "ring"),
    ]  # fmt: skip
    monkeypatch.setattr(registry, "_TABLE", {pair: registry._TABLE[pair] for pair in few})


def flat(ranks: int, root: int = 0, *, slices: int = 1, algorithm: str = "x", off: Any = None) -> Schedule:
    b = ScheduleBuilder(Collective("broadcast", ranks, root), slices)
    b.copy(root, [r for r in range(ranks) if r != root], 0, count=slices)
    return b.build()


@pytest.mark.usefixtures("_table")
def test_a_new_algorithm() -> None:
    named = algorithms.algorithm("broadcast", "flat")(flat)
    assert "flat" in algorithms.available()["broadcast"]
    schedule = algorithms.build("broadcast", "flat", 4, 2, slices=3)
    assert schedule == flat(4, 2, slices=3)
    # the labels: its name, and all parameters but ranks and root
    assert (schedule.algorithm, schedule.parameters) == ("flat", {"slices": 3, "algorithm": "x"})
    assert named.__name__ == "flat"
    assert named(3).parameters == {"slices": 1, "algorithm": "x"}
    assert named(ranks=3, root=1) == flat(3, 1)
    assert algorithms.find("broadcast", "flat") is named


@pytest.mark.usefixtures("_few")
def test_operations_without_algorithms_are_left_out() -> None:
    assert "all_to_all" not in algorithms.available()
    with pytest.raises(AlgorithmError, match=r"^algorithm: collsim has none for all_to_all yet; it has some for "):
        algorithms.find("all_to_all", "ring")
    algorithms.algorithm("all_to_all", "mine")(lambda ranks: flat(ranks))
    assert algorithms.available()["all_to_all"] == ["mine"]


@pytest.mark.parametrize(
    ("args", "parameters", "error", "message"),
    [
        (
            ("all_reduce", "rnig", 4), {}, AlgorithmError,
            "algorithm: all_reduce has binomial_tree, ring, got 'rnig'; did you mean 'ring'?",
        ),
        (
            ("all_gather", "binomial_tree", 4), {}, AlgorithmError,
            "algorithm: all_gather has ring, got 'binomial_tree'; 'binomial_tree' exists for broadcast, all_reduce",
        ),
        (
            ("all_redcue", "ring", 4), {}, InputError,
            "operation: expected one of all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all, gather, "
            "scatter, send_recv, barrier, got 'all_redcue'; did you mean 'all_reduce'?",
        ),
        (
            ("all_reduce", "ring", 4), {"channel": 2}, AlgorithmError,
            "all_reduce ring: expected parameters order, channels, slices, got 'channel'; did you mean 'channels'?",
        ),
        (("all_reduce", "ring", 4, 1), {}, InputError, "root: all_reduce has no root, got 1; leave it out"),
        (("broadcast", "ring", 4, 4), {}, InputError, "root: expected a rank from 0 to 3, got 4"),
        (("broadcast", "ring", 4, -1), {}, InputError, "root: expected a rank from 0 to 3, got -1"),
        (("broadcast", "ring", 4, True), {}, InputError, "root: expected a rank (a whole number), got True"),
        *(
            (("reduce", "tree", ranks), {}, InputError, f"ranks: expected a whole number of at least 1, got {ranks!r}")
            for ranks in (0, -1, 2.5, True, "4")
        ),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("_few")
def test_refusals(args: tuple[Any, ...], parameters: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        algorithms.build(*args, **parameters)
    assert str(caught.value) == message


def test_calls_are_refused() -> None:
    with pytest.raises(AlgorithmError) as caught:
        algorithms.ring_all_reduce(4, chanels=2)  # type: ignore[call-arg]
    assert str(caught.value).startswith(
        "all_reduce ring: got an unexpected keyword argument 'chanels'; expected ring_all_reduce("
    )
    with pytest.raises(
        AlgorithmError, match=r"^all_reduce ring: missing a required argument: 'ranks'; expected ring_all_reduce"
    ):
        algorithms.ring_all_reduce()  # type: ignore[call-arg]
    with pytest.raises(InputError, match=r"^operation: expected one of .*, got 'broadcats'; did you mean 'broadcast'?"):
        algorithms.algorithm("broadcats", "x")


# a user's own file

GOOD = """
from __future__ import annotations
from dataclasses import dataclass
from collsim import Collective, ScheduleBuilder
from collsim.errors import InputError

@dataclass
class Config:
    step: int = 0

def direct(ranks, root=0):
    b = ScheduleBuilder(Collective("broadcast", ranks, root), 1)
    if ranks > 1:
        b.copy(0, list(range(1, ranks)), step=Config().step)
    return b.build()

def broken(ranks):
    x = [
        1,
    ]
    return x[ranks]

def nothing(ranks):
    return None

def refuses(ranks):
    raise InputError("ranks: expected an even number")

def out_of_range(ranks):
    b = ScheduleBuilder(Collective("broadcast", ranks), 1)
    b.copy(0, ranks)
    return b.build()

constant = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own.py").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "own.py"


@pytest.mark.parametrize("relative", [False, True])
def test_a_function_of_a_file(own: Path, relative: bool) -> None:
    path = "own.py" if relative else str(own)
    assert algorithms.load_function(f"{path}:direct")(4, root=0) == flat(4)


def test_a_file_may_import_what_lies_beside_it(own: Path) -> None:
    own.with_name("beside_own.py").write_text("CHUNKS = 3")
    own.write_text("from beside_own import CHUNKS\n\ndef chunks(ranks):\n    return CHUNKS\n")
    before = list(sys.path)
    assert algorithms.load_function(f"{own}:chunks")(4) == 3
    assert sys.path == before


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("own.py", "own.py: expected FILE.py:FUNCTION, for instance my_variant.py:bidirectional_ring"),
        ("own.py:", "own.py:: expected FILE.py:FUNCTION, for instance my_variant.py:bidirectional_ring"),
        ("none.py:f", "none.py: expected a Python file, there is none"),
        (".:f", ".: expected a Python file, there is none"),
        (
            "own.py:dirct",
            "own.py: expected a function named 'dirct', found direct, broken, nothing, refuses, out_of_range; "
            "did you mean 'direct'?",
        ),
        (
            "own.py:constant",
            "own.py: expected a function named 'constant', found direct, broken, nothing, refuses, out_of_range",
        ),
        ("notes.txt:f", "notes.txt: expected a Python file whose name ends in .py"),
        ("empty.py:f", "empty.py: expected a function named 'f', found none"),
        ("syntax.py:f", "syntax.py:2: SyntaxError: invalid syntax"),
        ("name.py:f", "name.py:3: NameError: name 'y' is not defined"),
        ("quits.py:f", "quits.py:2: SystemExit: 3"),
    ],
)
def test_files_that_cannot_be_used(reference: str, message: str) -> None:
    Path("notes.txt").write_text("f")
    Path("empty.py").write_text("")
    Path("syntax.py").write_text("x = 1\ndef f(:\n")
    Path("name.py").write_text("x = 1\n\nx = y\n")
    Path("quits.py").write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(AlgorithmError) as caught:
        algorithms.load_function(reference)
    assert str(caught.value) == message


def test_errors_of_the_library_pass_through(tmp_path: Path) -> None:
    path = tmp_path / "early.py"
    path.write_text("from collsim import algorithms\nalgorithms.build('all_reduce', 'ring', 0)\n")
    with pytest.raises(InputError, match=r"^ranks: expected a whole number of at least 1, got 0$"):
        algorithms.load_function(f"{path}:f")


# numbers of any kind and size

PAIRS = [
    *((operation, "ring") for operation in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce")),
    *((operation, "bidirectional_ring") for operation in ("all_reduce", "reduce_scatter", "all_gather")),
    *product(("all_reduce", "broadcast", "reduce"), ("binomial_tree", "double_binary_tree", "tree")),
]


@pytest.mark.parametrize(("operation", "name"), PAIRS)
@pytest.mark.parametrize("number", [np.int8, np.int64])
def test_numpy_integers_make_the_same_schedule(operation: str, name: str, number: Any) -> None:
    plain = algorithms.build(operation, name, 9, 0)
    assert algorithms.build(operation, name, number(9), number(0)) == plain
    small = {key: 5 for key in ("slices", "channels", "k") if key in plain.parameters}
    made = algorithms.build(operation, name, number(9), **{key: number(value) for key, value in small.items()})
    assert made == algorithms.build(operation, name, 9, **small)
    assert str(made) == str(algorithms.build(operation, name, 9, **small))
    assert {type(made.parameters[key]) for key in small} <= {int}


def test_numpy_integers_do_not_wrap_round() -> None:
    schedule = algorithms.ring_all_reduce(np.int8(100), channels=np.int8(2), slices=np.int8(100))
    assert (schedule.chunks, schedule.steps) == (20_000, 198)
    assert algorithms.tree_broadcast(3, slices=np.int8(100), k=np.int8(2)).chunks == 100


@pytest.mark.parametrize("make", [algorithms.tree_all_reduce, algorithms.tree_broadcast, algorithms.tree_reduce])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_more_children_than_ranks_are_a_star(make: Any, ranks: int) -> None:
    star = make(ranks, k=max(1, ranks - 1), slices=3)
    assert check(star).complete
    for k in (ranks, 2**31, 2**63, 10**20):
        assert make(ranks, k=k, slices=3) == star
        assert make(ranks, k=k, slices=3).parameters["k"] == k


@pytest.mark.parametrize(("operation", "name"), PAIRS)
def test_ranks_beyond_memory_are_refused(operation: str, name: str) -> None:
    with pytest.raises(
        AlgorithmError, match=r"^ranks, channels and slices: [\d,]{17,} rows are more than the 67,108,864 "
    ):
        algorithms.build(operation, name, 2**40)


# labels


@pytest.mark.usefixtures("_table")
def test_none_is_a_label_where_it_is_not_the_default() -> None:
    def unpaced(ranks: int, root: int = 0, *, window: Any = 1, off: Any = None) -> Schedule:
        return flat(ranks, root)

    make = algorithms.algorithm("broadcast", "unpaced")(unpaced)
    assert make(3).parameters == {"window": 1}
    assert make(3, window=None).parameters == {"window": None}
    assert make(3, off=0).parameters == {"window": 1, "off": 0}


def test_theory_sees_that_nothing_is_paced() -> None:
    for window in (None, 0):
        result = run("all_to_all", topology.switch(8), 1 << 10, "pairwise", window=window)
        assert result.schedule.parameters == {"window": window}
        assert result.theory is not None
        assert result.theory.holds
        assert float(result.theory) == pytest.approx(result.time, rel=1e-9)


def test_large_tables_are_labelled_by_a_word() -> None:
    routes = rank_routes(topology.ring(16))
    assert routes is not None
    schedule = algorithms.multitree_all_reduce(16, routes=routes)
    assert schedule.parameters == {"routes": "given", "limit": 256}
    text = str(schedule)
    assert max(map(len, text.splitlines())) < 120
    read = Schedule.from_text(text)
    assert (read, read.parameters) == (schedule, schedule.parameters)
    assert algorithms.multitree_all_reduce(4).parameters == {"limit": 256}
    short = {(0, 1): ("a",), (1, 0): ("b",)}
    assert algorithms.multitree_all_reduce(2, routes=short).parameters["routes"] == short


@pytest.mark.parametrize("name", [2, ["ring"], None, (), np.array("ring")])
def test_names_that_are_no_text(name: Any) -> None:
    with pytest.raises(AlgorithmError, match=r"^algorithm: send_recv has ring, got ") as caught:
        algorithms.build("send_recv", name, 4)
    assert str(caught.value).endswith(f"got {name!r}")


# messages


def test_messages_are_one_line() -> None:
    table = np.arange(4).reshape(2, 2)
    assert len(repr(table).splitlines()) == 2
    assert shown(table) == "array([[0, 1], [2, 3]])"
    assert str(CollsimError("a\n  b")) == "a b"
    assert str(CollsimError("a  b")) == "a  b"
    with pytest.raises(InputError) as caught:
        algorithms.build("all_reduce", "ring", table)  # type: ignore[arg-type]
    assert str(caught.value) == "ranks: expected a whole number of at least 1, got array([[0, 1], [2, 3]])"


def test_values_are_shown_however_odd_they_are() -> None:
    assert shown(10**5000) == "<int>"
    assert (len(shown("x" * 1000)), shown("x" * 1000)[-4:]) == (200, "x...")
    for value, text in ((10**5000, "<int>"), ([2], "[2]"), (None, "None"), (b"a", "b'a'")):
        with pytest.raises(InputError) as caught:
            one_of("word", value, ("a", "b"))
        assert str(caught.value) == f"word: expected one of a, b, got {text}"
