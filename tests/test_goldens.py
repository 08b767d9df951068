"""The text of small schedules, to be compared with the literature by eye; ``pytest --update-goldens`` rewrites it."""

from __future__ import annotations

from pathlib import Path

import pytest

from collsim import Schedule, algorithms, check, window

HERE = Path(__file__).parent / "goldens"

GOLDENS: dict[str, Schedule] = {
    "ring_all_reduce_2": algorithms.ring_all_reduce(2),
    "ring_all_reduce_3": algorithms.ring_all_reduce(3),
    "ring_all_reduce_4_order": algorithms.ring_all_reduce(4, order=[0, 2, 1, 3]),
    "ring_all_reduce_3_channels_slices": algorithms.ring_all_reduce(3, channels=2, slices=2),
    "ring_reduce_scatter_4_order": algorithms.ring_reduce_scatter(4, order=[0, 2, 1, 3]),
    "ring_all_gather_5": algorithms.ring_all_gather(5),
    "bidirectional_ring_all_reduce_4": algorithms.bidirectional_ring_all_reduce(4),
    "bidirectional_ring_all_gather_3": algorithms.bidirectional_ring_all_gather(3),
    "ring_broadcast_4": algorithms.ring_broadcast(4, slices=3),
    "ring_reduce_4": algorithms.ring_reduce(4, 1, slices=2),
    "binomial_tree_broadcast_6": algorithms.binomial_tree_broadcast(6),
    "binomial_tree_all_reduce_5": algorithms.binomial_tree_all_reduce(5),
    "tree_broadcast_5": algorithms.tree_broadcast(5, 1, k=2, slices=2),
    "tree_all_reduce_3": algorithms.tree_all_reduce(3, k=2, slices=2),
    "double_binary_tree_all_reduce_4": algorithms.double_binary_tree_all_reduce(4, slices=1),
    "double_binary_tree_broadcast_5": algorithms.double_binary_tree_broadcast(5, slices=1),
    "ring_all_reduce_3_window": window(algorithms.ring_all_reduce(3), 1, at="issued"),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_text(name: str, request: pytest.FixtureRequest) -> None:
    path, schedule = HERE / f"{name}.txt", GOLDENS[name]
    if request.config.getoption("--update-goldens"):
        HERE.mkdir(exist_ok=True)
        path.write_text(f"{schedule}\n", encoding="utf-8")
    golden = path.read_text(encoding="utf-8")
    assert f"{schedule}\n" == golden
    read = Schedule.from_text(golden)
    assert read == schedule
    assert check(read).complete


def test_no_golden_is_left_over() -> None:
    assert {path.stem for path in HERE.glob("*.txt")} == set(GOLDENS)
