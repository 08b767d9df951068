from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from collsim import compiling

SOURCE = """
from collsim.compiling import kernel

@kernel
def successor(x):
    return x + 1
"""


def loaded(path: Path) -> ModuleType:
    """Load a module anew, as another process would."""
    spec = importlib.util.spec_from_file_location("kernels_of_a_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.successor(41) == 42
    return module


def test_a_kernel_is_compiled_once_until_a_source_of_the_engine_changes(tmp_path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "kernels_of_a_test.py"
    path.write_text(SOURCE)
    first, again = loaded(path).successor.stats, loaded(path).successor.stats
    assert sum(first.cache_misses.values()) == 1
    assert (sum(again.cache_misses.values()), sum(again.cache_hits.values())) == (0, 1)
    monkeypatch.setattr(compiling, "_digest", lambda: "another version")
    changed = loaded(path).successor.stats
    assert (sum(changed.cache_misses.values()), sum(changed.cache_hits.values())) == (1, 0)


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_a_damaged_cache_counts_as_empty_and_is_made_anew(tmp_path, damage):
    path = tmp_path / "kernels_of_a_test.py"
    path.write_text(SOURCE)
    loaded(path)
    files = [*tmp_path.rglob("*.nbi"), *tmp_path.rglob("*.nbc")]
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:100] if damage is None else damage)
    damaged, mended = loaded(path).successor.stats, loaded(path).successor.stats
    assert sum(damaged.cache_hits.values()) == 0
    assert sum(mended.cache_hits.values()) == 1


def test_a_cache_that_cannot_be_written_stops_nobody(tmp_path, monkeypatch: pytest.MonkeyPatch):
    from numba.core.caching import IndexDataCacheFile

    def full(self, name, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, "_save_data", full)
    path = tmp_path / "kernels_of_a_test.py"
    path.write_text(SOURCE)
    loaded(path)


def test_without_a_place_for_the_cache_it_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch):
    import numba

    def no_locator(**options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    njit = numba.njit
    monkeypatch.setattr(numba, "njit", lambda *args, **options: no_locator(**options) if options else njit(*args))

    def double(x):
        return 2 * x

    assert compiling.kernel(double)(21) == 42


def test_amounts_of_work_stay_within_64_bits(monkeypatch: pytest.MonkeyPatch):
    from itertools import islice

    from collsim.engine import outcome

    assert max(islice(outcome.budgets(1000), 100)) == outcome.MOST_WORK  # calls that come back at once
    clock = iter(range(1000))
    monkeypatch.setattr(outcome, "perf_counter", lambda: float(next(clock)))
    assert list(islice(outcome.budgets(100_000), 8)) == [100_000, 10_000, 1000, 100, 10, 1, 1, 1]  # slow ones
