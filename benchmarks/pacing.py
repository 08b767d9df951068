"""What a window does to pipelined algorithms: ``python -m benchmarks.pacing``.

Writes ``docs/pacing.md``. Nothing is measured: the same code gives the same file.
"""

from __future__ import annotations

from pathlib import Path

import collsim
from collsim.topology import load_topology

FILE = Path(__file__).parents[1] / "docs" / "pacing.md"
MACHINES = ("dgx-h100", "fat-tree-16")
SIZES = ("64KiB", "1MiB", "1GiB")
WINDOWS = (1, 2, 4, 8, 16)
CASES = (
    ("reduce", "double_binary_tree"),
    ("all_reduce", "double_binary_tree"),
    ("broadcast", "double_binary_tree"),
    ("all_reduce", "tree"),
    ("reduce", "ring"),
)
NETWORKS = ("cut_through", "fluid")
HEAD = """\
# Pacing

Pipelined algorithms cut the message in slices. All slices of a rank that has them from the start (a leaf of a tree that
reduces, the root of a broadcast) are ready at time 0, and unless something holds them back they all enter the queue of
their link at once. What has to be passed on by others comes later and waits behind them, although it is wanted first.
Real libraries hold slices back, by credits or by a buffer of a few slots.

## The parameter

`tree` and `double_binary_tree` (all their operations), and `broadcast` and `reduce` of `ring`, take a `window`: how
many slices for one peer may wait in the queue of a rank's port. The next one enters it once the one so many before it
has left. What goes up a tree and what goes down it have a window each.

    collsim run dgx-h100 reduce -a double_binary_tree -b 1GiB -e 1GiB -p window=1

From Python it is `collsim.run(..., window=1)`. For other limits, on any schedule, there is `collsim.window(schedule, n,
per=..., at=...)`. `rail` and `themis` have a window of another kind, which is on by default.

Without the parameter (`None`, or 0) there is no pacing. That is the default, because no window is right everywhere:

- In `cut_through` and `store_and_forward` a window of 1 is best: the peers of a rank get their slices in turn. It
  takes a sixth to a third off the time of a large reduce or all_reduce on double binary trees, and costs nothing on the
  machines below, at any size. Chains, and trees that go one way only, keep their order anyway: a window changes
  nothing, and their closed forms stay exact.
- In `fluid` messages do not queue but share a link, so that without a window all slices creep side by side and nobody
  can pass anything on before nearly all has come. Large messages are up to ten times faster with a window. But there a
  message has left only when it has arrived, so that a window also limits what is under way: with few bytes in a slice a
  rank waits for the latency again and again. In 32 slices take 1 for 1 GiB, between 2 and 16
  for 1 MiB, 16 or none for less: the table below has each.
- Where GPUs forward for others (`dgx-1-v100`) a window of 1 can cost up to a tenth of the time.
- A window writes an edge for nearly each transfer: a simulation of a million of them takes two to three times as long.

Slices may also be held back until earlier ones have *arrived* (`at="end"`). For large messages that is as good (2 or 4
at a time), and a little better for an all_reduce on one tree, but it costs small messages a multiple of their time in
every network.

"""
TABLE = """\
## Forests, and switches that add up

`forest` has its window on by default (1). Its branches leave a rank by several ports, some with room to spare, and
what runs ahead there fills links behind a switch that others need. So the branches of a rank keep step too: none gets
more than two slices ahead of the one that leaves by the busiest port. All that is waited for is that a message of the
same sender has left, so that it costs no latency in `cut_through` and `store_and_forward`. In `fluid` it does, as
above: take fewer slices there for messages below some MiB.

On the way up several ranks send to one, and meet at a link behind the switch. A rank with a wide port, whose slices
are all ready at time 0, would fill the queue there, and those of a narrow port come too late for the sum to go on. So
the ranks keep step too: of what is ready from the start, nothing gets more than two slices ahead of what has
*arrived* of one branch, the one that leaves by the busiest port. This holds for what crosses several links: over one
switch for ports that are less busy than that one, and in machines of several switches for all. Since that branch
waits for none, it costs one latency in all and not one a slice. Five GPUs of 1, 1, 1, 3 and 3 GB/s on a switch reduce
16 GiB at 0.99 of the bound with it, at 0.78 without. On `fat-tree-16` it brings a reduce of 1 GiB from 0.92 to 0.97
and an all_gather from 0.94 to 0.99; 64 KiB take up to a fifth longer there, on `dgx-a100-x2` and on `dgx-h100-x4`. On
`dgx-h100-x4` a reduce stays at 0.93: to get 0.99 there, what is ready has to wait for what is passed on later, and 64
KiB then take thirty times as long.

`nvls` and `nvls_collnet` hold back what is loaded through the switch (window 1), so that what is stored finds room
between it; `sharp` and `collnet_direct` have a window of 2, `collnet_chain` of 1.

## What it does

Time without a window in us, and the time with one as a multiple of it, with the other parameters at their defaults (32
slices, trees of two children).

"""
TAIL = "Written by `python -m benchmarks.pacing`.\n"


def row(operation: str, algorithm: str, machine: str, size: str, network: str) -> tuple[float, list[float]]:
    """Return the time without a window in seconds, and what it is multiplied by with each window.

    Examples
    --------
    >>> time, factors = row("reduce", "ring", "ring8", "1MiB", "cut_through")
    >>> round(time * 1e6, 1), factors
    (31.9, [1.0, 1.0, 1.0, 1.0, 1.0])
    """
    topology = load_topology(machine)
    times = [
        collsim.run(operation, topology, size, algorithm, network=network, dtype="float", window=window).time
        for window in (None, *WINDOWS)
    ]
    return times[0], [time / times[0] for time in times[1:]]


def text() -> str:
    """Return the whole document."""
    parts = [HEAD, TABLE]
    for network in NETWORKS:
        parts.append(f"### {network}\n\n| algorithm | machine | size | no window, us |")
        parts.append("".join(f" {window} |" for window in WINDOWS) + "\n|---|---|---:|---:|" + "---:|" * len(WINDOWS))
        for operation, algorithm in CASES:
            for machine in MACHINES:
                for size in SIZES:
                    time, factors = row(operation, algorithm, machine, size, network)
                    cells = "".join(f" {factor:.2f} |" for factor in factors)
                    parts.append(f"\n| {algorithm} {operation} | {machine} | {size} | {time * 1e6:.1f} |{cells}")
        parts.append("\n\n")
    return "".join([*parts, TAIL])


def main() -> None:
    """Write the document."""
    FILE.write_text(text())
    print(FILE)


if __name__ == "__main__":
    main()
