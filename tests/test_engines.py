"""Two engines, one meaning: through the front door."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time

import pytest

import collsim
from collsim import algorithms
from collsim.engine import simulate
from collsim.engine.compiled.run import run_compiled
from collsim.engine.compiled.sweep_kernel import run_rows
from collsim.engine.loops import Loops
from collsim.engine.program import NETWORKS
from collsim.errors import CollsimError, DeadlockError, InputError
from collsim.schedule import Edge
from tests.in_network import without_switches

ALL = without_switches()


def machine(ranks: int, **devices: str) -> collsim.Topology:
    return collsim.topology.switch(ranks, bandwidth="50GB/s", latency="500ns", **devices)


def assert_equal(ours: collsim.Result, theirs: collsim.Result) -> None:
    assert (ours.engine, theirs.engine) == ("compiled", "reference")
    assert ours.time_ps == theirs.time_ps
    for name, column in theirs.records.items():
        assert (ours.records[name] == column).all(), name
    for name, column in theirs.link_records().items():
        assert (ours.link_records()[name] == column).all(), name
    assert (ours.bytes_sent_per_rank == theirs.bytes_sent_per_rank).all()
    assert (ours.link_bytes == theirs.link_bytes).all()
    assert (ours.link_busy_ps == theirs.link_busy_ps).all()
    assert ours.shared == theirs.shared
    assert (ours.link_longest_wait_ps == theirs.link_longest_wait_ps).all()
    assert ours.breakdown_ps == theirs.breakdown_ps
    assert ours.waits == theirs.waits
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("operation", "name"), ALL)
def test_engines_agree_on_every_algorithm(operation, name, network):
    devices = {"send_overhead": "200ns", "reduce_bandwidth": "100GB/s"}
    for ranks, size in ((5, 100_003), (8, 1 << 20)):
        try:
            schedule = algorithms.build(operation, name, ranks)
        except CollsimError:
            continue  # it does not take five ranks
        both = [
            collsim.simulate(schedule, machine(ranks, **devices), size, network=network, engine=engine, check=False)
            for engine in ("compiled", "reference")
        ]
        assert_equal(*both)


@pytest.mark.parametrize("topology", ["dgx-1-v100", "dgx-h100-x4", "torus-4x4", "pcie-4gpu", "fat-tree-16"])
@pytest.mark.parametrize("synchronous", [False, True])
def test_engines_agree_on_shipped_machines(topology, synchronous):
    machine = collsim.load_topology(topology)
    both = [
        collsim.run("all_reduce", machine, 1_000_003, engine=engine, synchronous=synchronous)
        for engine in ("compiled", "reference")
    ]
    assert_equal(*both)


def test_ties_on_the_critical_path_go_to_the_lowest_number():
    topology = collsim.topology.ring(4, "1GB/s", "1ns")
    both = [
        collsim.run("all_reduce", topology, 1, "swing", engine=engine, network="fluid")
        for engine in ("compiled", "reference")
    ]
    assert_equal(*both)
    assert both[0].critical_path == both[1].critical_path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"records": "no"}, "records: expected True, False or None, got str"),
        ({"records": []}, "records: expected True, False or None, got list"),
        ({"records": 2.5}, "records: expected True, False or None, got float"),
        ({"progress": None}, "progress: expected a function of two numbers, got NoneType"),
    ],
)
def test_wrong_types_are_refused(options, message):
    with pytest.raises(InputError, match=f"^{message}$"):
        collsim.run("all_reduce", machine(8), 64, engine="compiled", **options)


def test_a_result_that_was_pickled_runs_the_same_compiled_code():
    result = pickle.loads(pickle.dumps(collsim.run("all_reduce", machine(64), 1 << 20)))
    assert isinstance(result.lowered, Loops)
    assert not result.lowered.route.flags.writeable
    assert run_compiled(result.lowered, "cut_through").makespan == result.time_ps
    assert len(run_rows.signatures) == 1  # not compiled anew for another kind of array


def test_zero_copy_means_the_same():
    schedule = algorithms.ring_all_reduce(6)
    both = [
        collsim.simulate(schedule, machine(6), 60_000, zero_copy=True, engine=engine)
        for engine in ("compiled", "reference")
    ]
    assert_equal(*both)


def test_auto_picks_by_size_and_the_result_says_which():
    small, large = collsim.run("all_reduce", machine(8), 8), collsim.run("all_reduce", machine(64), 64)
    assert (small.engine, small.shortcut) == ("reference", "")
    assert (large.engine, large.shortcut) == ("compiled", "sweep")  # with records every transfer is run
    assert collsim.run("all_reduce", machine(64), 1 << 20, records=False).shortcut == "jump"
    assert collsim.run("all_reduce", machine(64), 1 << 20, records=False, network="fluid").shortcut == ""


def test_without_numba_the_reference_does_it(monkeypatch):
    monkeypatch.setattr(simulate, "find_spec", lambda name: None)
    assert collsim.run("all_reduce", machine(64), 64).engine == "reference"
    with pytest.raises(InputError, match=r"^engine: 'compiled' needs Numba: pip install numba, or use engine='ref"):
        collsim.run("all_reduce", machine(64), 64, engine="compiled")


def test_no_records_above_a_million_transfers_unless_asked():
    schedule = algorithms.ring_all_reduce(708)
    assert schedule.transfers > 1_000_000
    result = collsim.simulate(schedule, machine(708), 708_000, check=False)
    assert not result.has_records
    with pytest.raises(CollsimError, match=r"^records: none were kept of 1,001,112 transfers; expected .*records=True"):
        _ = result.records
    assert result.time == pytest.approx(2 * 707 * (1e-6 + 1000 / 50e9), rel=1e-12)
    assert (result.bytes_sent_per_rank == 2 * 707 * 1000).all()
    assert result.link_bytes.sum() == 2 * 2 * 707 * 708 * 1000  # up to the switch and down
    assert not result.link_longest_wait_ps.any()
    kept = collsim.simulate(schedule, machine(708), 708_000, check=False, records=True)
    assert kept.times.end.max() == result.time_ps
    assert len(kept.records["step"]) == 1_001_112


def test_records_can_be_left_out_of_small_runs():
    result = collsim.run("all_reduce", machine(8), 800, engine="compiled", records=False)
    assert not result.has_records
    assert result.time_ps == collsim.run("all_reduce", machine(8), 800).time_ps


def test_a_deadlock_is_told_in_the_same_words():
    schedule = algorithms.ring_all_reduce(3)
    edges = (Edge(0, 0, 0, 1, 0), Edge(0, 1, 0, 0, 0))
    knotted = collsim.Schedule(schedule.collective, 3, schedule.phases, edges=edges)
    messages = []
    for engine in ("compiled", "reference"):
        with pytest.raises(DeadlockError) as caught:
            collsim.simulate(knotted, machine(3), 300, check=False, engine=engine)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_times_near_the_end_of_64_bits():
    """About 62 days fit; the reference says by how much 124 days do not."""
    slow = collsim.topology.ring(2, bandwidth="1GB/s", latency="1us")
    size = 2 * 2_700_000 * 10**9
    result = collsim.run("all_reduce", slow, size, engine="compiled")
    assert result.time_ps == 2 * (10**6 + size // 2 * 1000)
    assert result.engine == "reference"  # beyond half of 64 bits only Python's integers are safe
    with pytest.raises(InputError, match=r"106 days"):
        collsim.run("all_reduce", slow, 2 * size, engine="compiled")


def test_what_memory_cannot_hold_is_refused_with_the_number(monkeypatch):
    monkeypatch.setattr("collsim.engine.memory.ALWAYS", 0)
    monkeypatch.setattr("collsim.engine.memory.free_memory", lambda: 10**6)
    message = r"^memory: the records of 130,560 transfers need about .* GB, 0\.0 GB are free"
    with pytest.raises(InputError, match=message):
        collsim.run("all_reduce", machine(256), 256, check=False)
    collsim.run("all_reduce", machine(256), 256, check=False, records=False)  # swept: no state a transfer
    loops = collsim.run("all_reduce", machine(256), 256, check=False, records=False).lowered
    with pytest.raises(InputError, match=r"^memory: 130,560 transfers, which have to be run event by event, need"):
        run_compiled(loops, "cut_through", sweep=False)


def test_progress_is_reported_to_the_end():
    seen = []
    collsim.run("all_reduce", machine(64), 64, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (8064, 8064)
    assert seen == sorted(seen)


SLOW = """
import time, collsim
from collsim.engine.compiled.run import run_compiled
from collsim.engine.compiled.sweep_kernel import run_rows
from collsim.engine.loops import Loops
from collsim.engine.lowering.roll import roll

def loops(n):
    topology = collsim.topology.switch(n, bandwidth="50GB/s", latency="500ns")
    return roll(collsim.algorithms.ring_all_reduce(n), topology, n + 1)  # a remainder: nothing is quick

run_compiled(loops(8), "cut_through", sweep={sweep}, jump=False)
program = loops({n})
print("ready", flush=True)
calls = []
try:
    run_compiled(program, "cut_through", sweep={sweep}, jump=False, pulse=lambda *_: calls.append(time.process_time()))
except KeyboardInterrupt:
    print(max(b - a for a, b in zip(calls, calls[1:])), len(calls))
"""


@pytest.mark.parametrize(("sweep", "n"), [(True, 32768), (False, 4096)])
def test_an_interrupt_is_heard_within_half_a_second(sweep, n):
    """By processor time; twice half a second, since caches are shared with whatever runs beside the test."""
    run = subprocess.Popen([sys.executable, "-c", SLOW.format(n=n, sweep=sweep)], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stdout.readline() == "ready\n"
    time.sleep(1.5)
    assert run.poll() is None, "the run was over before it could be interrupted"
    run.send_signal(signal.SIGINT)
    told, _ = run.communicate(timeout=60)
    longest, calls = told.split()
    assert float(longest) < 1.0
    assert int(calls) >= 2


FINGERPRINT = """
import hashlib, collsim
digest = hashlib.sha256()
for network in ("cut_through", "store_and_forward", "fluid"):
    for name in ("ring", "double_binary_tree", "swing"):
        machine = collsim.load_topology("dgx-h100-x4")
        result = collsim.run("all_reduce", machine, 1_000_003, name, engine="{engine}", network=network)
        for column in result.records.values():
            digest.update(column.astype("<i8").tobytes())
print(digest.hexdigest())
"""


def test_other_processes_and_the_other_engine_give_the_same_records():
    found = set()
    for engine, seed in (("compiled", "1"), ("compiled", "2"), ("reference", "3")):
        call = [sys.executable, "-c", FINGERPRINT.format(engine=engine)]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        found.add(subprocess.run(call, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1, found
    assert len(found.pop()) == 65


def test_compilation_is_announced_once_and_cached(tmp_path):
    code = (
        "import collsim; t = collsim.topology.switch(9); "
        "[collsim.run('all_reduce', t, size, engine='compiled', records=False) for size in (9, 10, 18)]"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stderr.splitlines() == [
        "collsim: compiling a part of collsim, some seconds, once; later runs load it from a cache"
    ]
    assert runs[1].stderr == ""
    assert runs[0].stdout == runs[1].stdout == ""
