from __future__ import annotations

from pathlib import Path

import pytest

import collsim
from collsim.engine import memory
from collsim.errors import InputError


def test_what_is_free_is_known_and_sane():
    free = memory.free_memory()
    assert free is None or 10**6 < free < 10**16


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "max").write_text("5000000\n")
    (tmp_path / "current").write_text("2000000\n")
    monkeypatch.setattr(memory, "CGROUPS", ((str(tmp_path / "max"), str(tmp_path / "current")),))
    assert memory.free_memory() == 3_000_000
    (tmp_path / "max").write_text("max\n")
    assert memory.free_memory() == memory._machine()


def test_too_much_is_refused_with_both_numbers_and_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 3 * 10**9)
    memory.refuse_beyond_memory(3 * 10**9, "they", "buy more")
    with pytest.raises(InputError, match=r"^memory: they need about 42 GB, 3\.0 GB are free; buy more$"):
        memory.refuse_beyond_memory(42 * 10**9, "they", "buy more")


def test_an_unknown_amount_refuses_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory, "free_memory", lambda: None)
    memory.refuse_beyond_memory(10**30, "they", "buy more")


def test_a_limit_on_the_process_counts(monkeypatch: pytest.MonkeyPatch):
    resource = pytest.importorskip("resource")
    if memory._machine() is None or not Path("/proc/self/statm").exists():
        pytest.skip("only Linux says how much of its limit a process uses")
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1 << 50, 1 << 50))
    used = (1 << 50) - (memory._process() or 0)
    assert 10**6 < used < 10**13
    monkeypatch.setattr(resource, "getrlimit", lambda what: (used + 1_000_000, 1 << 50))
    free = memory.free_memory()
    assert free is not None
    assert free <= 100_000_000
    monkeypatch.setattr(resource, "getrlimit", lambda what: (resource.RLIM_INFINITY,) * 2)
    assert memory._process() is None


def test_routes_that_memory_could_not_hold_are_refused_before_they_are_searched(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 10**9)
    ring = collsim.topology.ring(512, bandwidth="50GB/s", latency="1us")
    with pytest.raises(InputError, match=r"routes of 262,144 pairs, over some \d+ links each, need about [\d.]+ GB"):
        collsim.run("all_to_all", ring, 512 * 512, "direct", check=False)
