"""The text form: what it looks like, that it reads back, and errors that name the line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim import Collective, Schedule, ScheduleBuilder, algorithms
from collsim.errors import ScheduleError
from collsim.schedule import text as text_module
from collsim.schedule.model import Edge
from tests.strategies import schedules

EVERYTHING = """\
all_reduce ranks=2 chunks=6 scratch=3 in_place=no
algorithm mine {"k": 2}
order 5 4 3 2 1 0
layout 2x10 4x7
path ["gpu0", "sw #1", "gpu1"]
path []
places ["switch \\"A\\""]
repeat 3 shift=-1
  step 0
    0 => 1  i3 > 3
    1 -> 0  0+2*4 channel=1
  step 2
    1 -> 2  i1 > s0 window=3 via=0
    1 -> 1  {0,3} > {1,2} via=1
    0 => 2  i0+3*-1 > s2+3*-1 window=3
repeat 0
repeat 1 window=2
  step 0
    0 -> 1  2+2 > s0+2
edge 0.1 after 0.0
edge 2.0 after 0.4 distance=1 at=issued lag=500"""


def test_everything_reads_back() -> None:
    text = EVERYTHING.replace(" window=3 via=0", " shift=-1 window=3 via=0")
    schedule = Schedule.from_text(text)
    assert (schedule.algorithm, schedule.parameters) == ("mine", {"k": 2})
    assert schedule.order == (5, 4, 3, 2, 1, 0)
    assert schedule.layout == ((2, 10), (4, 7))
    assert schedule.paths == (("gpu0", "sw #1", "gpu1"), ())
    assert schedule.places == ('switch "A"',)
    assert schedule.edges == (Edge(0, 1, 0, 0), Edge(2, 0, 0, 4, 1, "issued", 500))
    assert [len(p.block) for p in schedule.phases] == [5, 0, 1]
    block = schedule.phases[0].block
    assert block.step.tolist() == [0, 0, 2, 2, 2]
    assert block.src_buffer.tolist() == [0, 1, 0, 1, 0]
    assert block.dst_buffer.tolist() == [1, 1, 2, 1, 2]
    assert block.count.tolist() == [1, 2, 1, 1, 3]
    assert block.stride.tolist() == [1, 4, 1, 1, -1]
    assert block.channel.tolist() == [0, 1, 0, 0, 0]
    assert block.via is not None
    assert block.via.tolist() == [-1, -1, 0, 1, -1]
    assert schedule.phases[0].window.tolist() == [0, 0, 3, 0, 3]
    assert Schedule.from_text(str(schedule)) == schedule
    printed = str(schedule).splitlines()
    # windows differ, so each row says its own
    assert printed[:10] == [*EVERYTHING.splitlines()[:9], "    0 => 1  i3 > 3 window=0"]
    assert printed[-6:] == EVERYTHING.splitlines()[-6:]


@given(
    schedules(),
    st.text(max_size=8),
    st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=4), max_size=2),
)
@settings(max_examples=200)
def test_any_schedule_reads_back(schedule: Schedule, name: str, parameters: dict[str, Any]) -> None:
    named = replace(schedule, algorithm=name, parameters=parameters)
    again = Schedule.from_text(str(named))
    assert again == schedule
    assert hash(again) == hash(schedule)
    if named.algorithm:
        assert (again.algorithm, again.parameters) == (named.algorithm, named.parameters)
    assert str(again) == str(named)


def test_places_and_edges_read_back() -> None:
    b = ScheduleBuilder(Collective("all_reduce", 2), 1, scratch=2, places=["sw\n0", "ü # "], layout=[(1, 2**40)])
    b.reduce([0, 1], [2, 2], 0, dst_buffer="scratch", dst_chunk=1)
    schedule = b.build([Edge(0, 1, 0, 0), Edge(0, 1, 0, 1, 3, "issued", 10**15)])
    assert Schedule.from_text(str(schedule)) == schedule


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"channels": np.int64(2)}, '{"channels": 2, "slices": 1}'),
        ({"order": np.array([1, 0])}, '{"order": [1, 0], "channels": 1, "slices": 1}'),
        ({"order": range(2)}, '{"order": [0, 1], "channels": 1, "slices": 1}'),
    ],
)
def test_parameters_from_numpy_print(given: dict[str, Any], text: str) -> None:
    schedule = algorithms.ring_all_reduce(2, **given)
    assert str(schedule).splitlines()[1] == f"algorithm ring {text}"
    assert Schedule.from_text(str(schedule)) == schedule


def test_parameters_of_any_kind_print() -> None:
    schedule = algorithms.ring_all_reduce(2).labelled("ring", what=Collective("barrier", 2))
    assert Schedule.from_text(str(schedule)).parameters == {"what": "Collective(operation='barrier', ranks=2, root=0)"}


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({(1, 2): 3}, {"(1, 2)": 3}),
        ({np.int64(1): 2, np.float64(0.5): 1, None: 0}, {"1": 2, "0.5": 1, "null": 0}),
        ({"a": {np.int8(3): np.array([[1, 2]])}}, {"a": {"3": [[1, 2]]}}),
        (10**5000, hex(10**5000)),
    ],
    ids=["tuple", "numpy", "nested", "large"],
)
def test_any_keys_and_numbers_print(value: Any, read: Any) -> None:
    schedule = algorithms.ring_all_reduce(2).labelled("ring", what=value)
    assert Schedule.from_text(str(schedule)).parameters == {"what": read}


def test_parameters_without_an_end_print() -> None:
    class Silent:
        def __str__(self) -> str:
            raise RuntimeError

    endless: dict[str, Any] = {"k": 1}
    endless["again"] = [endless, endless]
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    schedule = algorithms.ring_all_reduce(2).labelled("ring", a=endless, b=deep, c=Silent())
    read = Schedule.from_text(str(schedule)).parameters
    assert read["a"] == {"k": 1, "again": ["...", "..."]}
    assert str(read["b"]).count("[") == 50
    assert read["c"] == "<Silent>"


def test_comments_and_spaces() -> None:
    text = """
    # a comment
    broadcast  ranks=2\tchunks=1 root=1   # behind
    repeat\t1
    step 0
    1  ->  0 \t 0 # copy
    """
    b = ScheduleBuilder(Collective("broadcast", 2, root=1), chunks=1)
    b.copy(1, 0)
    assert Schedule.from_text(text) == b.build()


HEAD = "all_reduce ranks=2 chunks=2\n"
BODY = HEAD + "repeat 1\nstep 0\n"
ROW = r"a row such as '0 -> 1  3\+2\*4' or '0 => 1  i\{0,3\} > s\{1,2\} channel=1'"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "expected an operation such as 'all_reduce ranks=4 chunks=4', got ''"),
        ("# nothing\n", 1, "expected an operation such as .*"),
        ("all_redcue ranks=2 chunks=2", 1, "expected an operation .*, got 'all_redcue'; did you mean 'all_reduce'[?]"),
        ("all_reduce ranks=2 chunk=2", 1, "expected one of ranks=, .*, got 'chunk=2'; did you mean 'chunks'[?]"),
        ("all_reduce ranks=2 chunks", 1, "expected one of ranks=.*"),
        ("all_reduce ranks=two", 1, "expected a whole number up to 2147483647, got 'two'"),
        ("all_reduce ranks=99999999999", 1, "expected a whole number up to 2147483647, got '99999999999'"),
        ("all_reduce chunks=2", 1, "ranks: expected a whole number of at least 1, got 0"),
        ("\nall_reduce ranks=2 chunks=2 root=1", 2, "root: all_reduce has no root, got 1; leave it out"),
        ("all_reduce ranks=2 chunks=2 in_place=maybe", 1, "expected in_place=yes or in_place=no, got 'maybe'"),
        (HEAD + "algorithm ring {", 2, r"expected 'algorithm NAME \{PARAMETERS\}', got 'ring \{'"),
        (HEAD + "algorithm ring {3}", 2, r"expected JSON, got '\{3\}'"),
        (HEAD + "order 0 x", 2, "expected a whole number up to 2147483647, got 'x'"),
        (HEAD + "layout 2", 2, "expected COUNTxELEMENTS, got '2'"),
        (HEAD + "layout 2x9999999999999999999", 2, "expected a whole number up to 10+, got '9+'"),
        (HEAD + "path gpu0", 2, "expected JSON, got 'gpu0'"),
        (HEAD + "path {}", 2, r"expected a JSON list, got '\{\}'"),
        (HEAD + "places [1]", 2, r"expected a JSON list of names, got '\[1\]'"),
        (HEAD + "\nrepeet 3", 3, "expected a row such as '0 -> 1  3' or one of repeat, .*, got 'repeet 3'"),
        (HEAD + "repeat", 2, "expected a whole number up to 2147483647, got ''"),
        (HEAD + "repeat -1", 2, "expected a repeat of at least 0 times, got '-1'"),
        (HEAD + "repeat 1 shfit=1", 2, "expected one of shift=, window=, got 'shfit=1'; did you mean 'shift'[?]"),
        (HEAD + "step 0", 2, "expected 'repeat' before the first step, got 'step 0'"),
        (HEAD + "repeat 1\nstep -1", 3, "expected a step after -1, got '-1'"),
        (BODY + "step 0", 4, "expected a step after 0, got '0'"),
        (HEAD + "0 -> 1  0", 2, "expected 'repeat' and 'step' before the first row, got '0 -> 1  0'"),
        (HEAD + "repeat 1\n0 -> 1  0", 3, "expected 'repeat' and 'step' before the first row, got '0 -> 1  0'"),
        (BODY + "0 -> 1", 4, f"expected {ROW}, got '0 -> 1'"),
        (BODY + "0 -> 1  0 via", 4, f"expected {ROW}, got '0 -> 1  0 via'"),
        (BODY + "0 -> 1  x0", 4, r"expected chunks such as 3, i0\+2, s0\+2\*4 or \{0,3\}, got 'x0'"),
        (BODY + "0 -> 1  0+2*", 4, r"expected chunks such as 3, i0\+2, .*, got '0\+2\*'"),
        (BODY + "0 -> 1  {}", 4, r"expected chunks such as 3, i0\+2, .*, got '\{\}'"),
        (BODY + "0 -> 1  0+2 > 0", 4, r"expected as many chunks on both sides, .*, got '0 -> 1  0\+2 > 0'"),
        (BODY + "0 -> 1  {0,1} > {0}", 4, "expected as many chunks on both sides, .*"),
        (BODY + "0 -> 1  0 chanel=1", 4, "expected one of channel=, .*, got 'chanel=1'; did you mean 'channel'[?]"),
        (BODY + "0 -> 1  99999999999", 4, "expected a whole number up to 2147483647, got '99999999999'"),
        (BODY + "0 -> 1  0 shift=-99999999999", 4, "expected a whole number up to 2147483647, got '-99999999999'"),
        (BODY + "99999999999 -> 1  0", 4, "expected a whole number up to 2147483647, got '99999999999'"),
        (BODY + "0 -> 1  0\nedge 0.0 before 0.0", 5, "expected 'edge PHASE.ROW after .*', got '0.0 before 0.0'"),
        (BODY + "0 -> 1  0\nedge 0.0 after 0.0 at=begin", 5, "edge: at: expected 'end' or 'issued', got 'begin'"),
        (BODY + "0 -> 1  0\nedge 0.0 after 1.0", 5, "edge: expected a predecessor in this or an earlier phase, .*"),
        (BODY + "0 -> 1  0\nedge 0.0 after 0.0 dist=1", 5, "expected one of .*'dist=1'; did you mean 'distance'[?]"),
    ],
)  # fmt: skip
def test_errors_name_the_line(text: str, line: int, message: str) -> None:
    with pytest.raises(ScheduleError, match=rf"^schedule text, line {line}: {message}$"):
        Schedule.from_text(text)


def test_what_reads_may_still_be_refused() -> None:
    with pytest.raises(
        ScheduleError, match=r"^schedule text, line 5: phase 0, row 1 \(step 0, 1 -> 2\): dst: expected a rank below 2$"
    ):
        Schedule.from_text(BODY + "0 -> 1  0\n1 -> 2  0")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("\nall_reduce ranks=2 chunks=0", 2, "chunks: expected at least 1, got 0"),
        ("\nscatter ranks=2 chunks=3", 2, "chunks: expected a multiple of the 2 ranks for scatter, got 3"),
        ("all_reduce ranks=2 chunks=1 scratch=-1", 1, "scratch: expected at least 0 chunks, got -1"),
        ("all_reduce ranks=2 chunks=1 scratch=99999999", 1, "scratch: expected at most 67108864, got 99999999"),
        ("all_reduce ranks=2 chunks=2147483647\norder 0 1", 1, "chunks: expected at most 67108864, got 2147483647"),
        (
            "all_reduce ranks=2 chunks=2\n\norder 0 0", 3,
            "order: expected each of the places 0 to 1 once, got 2 places without 1",
        ),
        (
            "all_reduce ranks=2 chunks=2\norder", 2,
            "order: expected each of the places 0 to 1 once, got 0 places without 0",
        ),
        ("all_reduce ranks=2 chunks=2\n# why\nlayout 1x5", 3, "layout: expected 2 chunks in all, got ((1, 5),)"),
        (
            "all_reduce ranks=2 chunks=2\nlayout 2x1000000000000000000", 2,
            "layout: expected at most 1000000000000000000 elements in all, got 2000000000000000000",
        ),
        (
            BODY + "0 -> 1  0\nrepeat 1\nstep 0\n\n0 -> 1  9", 8,
            "phase 1, row 0 (step 0, 0 -> 1): src_chunk: beyond the chunks of its buffer",
        ),
        (BODY + "0 -> 1  0\nstep 1\n1 -> 0  0 via=0", 6, "phase 0, row 1 (step 1, 1 -> 0): via: there are 0 paths"),
        (
            BODY + "0 -> 1  0\nedge 0.0 after 0.0 distance=1\nedge 0.1 after 0.0", 6,
            "edge: there is no row 1 in phase 0: "
            "Edge(phase=0, row=1, pred_phase=0, pred_row=0, distance=0, at='end', lag=0)",
        ),
        (
            BODY + "0 -> 1  0+2147483647", 4,
            "phase 0, row 0 (step 0, 0 -> 1): it writes one chunk twice; give each chunk of a message once",
        ),
    ],
)  # fmt: skip
def test_what_only_the_whole_can_tell_names_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Schedule.from_text(text)
    assert str(caught.value) == f"schedule text, line {line}: {message}"


@pytest.mark.parametrize("what", ["path ", 'algorithm x {"a": '])
def test_json_of_too_many_levels_is_refused(what: str) -> None:
    end = "}" if "{" in what else ""
    with pytest.raises(ScheduleError, match=r"^schedule text, line 2: expected JSON, got '.{70,80}\.\.\.$"):
        Schedule.from_text(HEAD + what + "[" * 100_000 + "]" * 100_000 + end)


@pytest.mark.parametrize("text", [None, b"all_reduce ranks=2 chunks=1", 5])
def test_what_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(ScheduleError, match=r"^schedule text: expected a text, got \w+$"):
        Schedule.from_text(text)


def test_comments_take_each_letter_once() -> None:
    # a quote that nothing closes goes to the end of the line, so that no later quote looks for its end again
    comment = text_module.COMMENT
    line = '["' + '\\"' * 1000
    assert [match.span() for match in comment.finditer(line)] == [(1, len(line))]
    assert comment.sub(lambda match: match[1] or "", 'path ["a#b"]  # "c') == 'path ["a#b"]  '


@given(st.text(max_size=30))
def test_garbage_is_refused(text: str) -> None:
    for start in ("", HEAD, BODY):
        try:
            schedule = Schedule.from_text(start + text)
        except ScheduleError:
            continue
        assert replace(schedule) == Schedule.from_text(str(schedule))
