"""``collsim bound``: the least time that any algorithm could take on a machine, size by size, and why."""

from __future__ import annotations

import argparse
import json
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from collsim import algorithms
from collsim.cli.run import root_of, sizes
from collsim.collective import OPERATIONS, Collective
from collsim.engine.program import NETWORKS
from collsim.engine.simulate import DTYPES
from collsim.errors import one_of
from collsim.theory import Bound, lower_bound
from collsim.topology import Topology, load_topology, reducing
from collsim.units import format_bandwidth

__all__ = ["bound"]

WIDTH = 114
SMALLEST, LARGEST, FACTOR = "8", "8G", "8"
SECONDS = 1e5
"""A message that takes so long is one for which latency does not count."""
NEARLY_ALL = 0.99
MOST_LISTED = 1024
"""Links, and ranks, of a cut that JSON lists."""

# The columns of nccl-tests, as `collsim run` has them, as far as there are any without a run.
HEADER = """\
#
#       size         count      type   redop    root     time   algbw   busbw  latency  bound
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)      (%)  by\
"""


def bound(arguments: argparse.Namespace) -> int:
    """Bound the times and print a table or JSON."""
    operation = one_of("OPERATION", arguments.operation, OPERATIONS)
    dtype = one_of("-d", arguments.datatype, DTYPES)
    one_of("--network", arguments.network, NETWORKS)
    todo = _sizes(arguments, DTYPES[dtype])
    topology = load_topology(arguments.topology)
    collective = Collective(operation, topology.n_ranks, root_of(arguments.root, topology.n_ranks))
    if operation == "all_to_all" and arguments.minbytes is None and arguments.maxbytes is None:
        # the first size of which each rank has something for each other
        least = topology.n_ranks * DTYPES[dtype]
        todo = [size for size in todo if size >= least] or [least]
    if operation == "barrier":
        todo = [0]
    found = find(collective, topology, arguments.network, DTYPES[dtype], todo)
    if arguments.json:
        print(json.dumps(_document(found, dtype), indent=2, allow_nan=False))
    else:
        _print(found, dtype, arguments.topology)
    return 0


def _sizes(arguments: argparse.Namespace, element_size: int) -> list[int]:
    smallest = SMALLEST if arguments.minbytes is None else arguments.minbytes
    largest = arguments.maxbytes
    if largest is None:
        low = sizes(smallest, smallest, "2", element_size)[0]
        largest = LARGEST if low <= 8 << 30 else smallest
    return sizes(smallest, largest, arguments.stepfactor, element_size)


@dataclass(frozen=True)
class Found:
    """The bounds of an operation on a machine.

    Attributes
    ----------
    collective, topology, network, element_size
        What was asked for.
    rows
        Size and bound.
    endless
        Bytes of a message so large that latency no longer counts, and its bound.
    latency
        The bound if only latency counts.
    """

    collective: Collective
    topology: Topology
    network: str
    element_size: int
    rows: list[tuple[int, Bound]]
    endless: tuple[int, Bound]
    latency: Bound

    @property
    def limit(self) -> Bound | None:
        """The bound of endless messages; None if bandwidth does not limit them."""
        return self.endless[1] if by(self.endless[1]) in ("injection", "cut") else None

    @property
    def without_switches(self) -> float | None:
        """Bytes/s (algbw) at most for large messages if switches do not help; None where that is no less."""
        size, least = self.endless
        return size / least.without_switches if least.without_switches > least * (1 + 1e-9) else None

    @property
    def volume(self) -> Fraction | None:
        """Bytes that must cross the links of the limit, as a multiple of the size."""
        cut = None if self.limit is None else self.limit.binding
        if cut is None or cut.lengths is not None or not cut.volume:
            return None
        return Fraction(cut.volume, self.endless[0]).limit_denominator(10**9)


def find(collective: Collective, topology: Topology, network: str, element_size: int, todo: Sequence[int]) -> Found:
    """Return the bounds of some sizes, and what goes with them."""

    def of(size: int, model: str = network) -> Bound:
        return lower_bound(collective, size, topology, network=model, element_size=element_size, exact=True)

    rows = [(size, of(size)) for size in todo]
    endless = collective.ranks * element_size
    endless <<= max(0, int(min(of(endless).rate * SECONDS, 2**60) // endless).bit_length() - 1)
    return Found(collective, topology, network, element_size, rows, (endless, of(endless)), of(endless, "alpha_beta"))


def by(found: Bound) -> str:
    """Return what the bound is due to: ``latency``, ``injection`` or ``cut``; ``-`` where nothing has to travel.

    The last two count bytes and the way to and from the links as well; if the way is nearly all, it is the latency.
    """
    if found and found.latency >= NEARLY_ALL * found:
        return "latency"
    kind = found.reason.partition(":")[0]
    return kind if kind in ("injection", "cut") else "-"


def _print(found: Found, dtype: str, name: str) -> None:
    c = found.collective
    ranks = f"{c.ranks:,} rank{'s' * (c.ranks > 1)}"
    root = f" from root {c.root}" if c.is_rooted else ""
    print(f"# least time of {c.operation}{root} on {found.topology.name}: {ranks}, {found.network} network")
    print(HEADER)
    for size, least in found.rows:
        count = size // found.element_size // (c.ranks if c.is_blocked else 1)
        print(
            f"{size:>12}  {count:>12}  {dtype:>8}  {'sum' if c.reduces else 'none':>6}  "
            f"{c.root if c.is_rooted else -1:>6}  {_us(least):>7}  {_rate(size, least):>6}  "
            f"{_rate(size * c.busbw_factor, least):>6}  {_share(least):>7}  {by(least)}"
        )
    print("#")
    for label, text in _notes(found):
        for line in textwrap.wrap(
            text, WIDTH, initial_indent=f"# {label:<9} ", subsequent_indent="#" + " " * 11, break_long_words=False,
            break_on_hyphens=False,
        ):  # fmt: skip
            print(line)
    for i, command in enumerate(_next(found, name)):
        print(f"# {'' if i else 'near it':<9} {command}")


def _notes(found: Found) -> list[tuple[str, str]]:
    c, limit, without = found.collective, found.limit, found.without_switches
    if c.ranks == 1:
        return [("limit", "none: one rank has all that it needs")]
    notes = []
    if limit is not None:
        notes.append(("limit", f"large messages: at most {_both(limit.rate, c)}{_volume(found)}"))
        notes.append((by(limit), _words(limit)))
        notes.append(("found", _method(limit.method)))
    elif found.network == "alpha_beta":
        notes.append(("limit", "none for large messages: in alpha_beta links are not shared, so only latency counts"))
    elif c.operation == "barrier":
        notes.append(("limit", "a barrier moves no data, so only latency counts"))
    notes.append(("latency", found.latency.reason.removeprefix("latency: ")))
    if without is not None:
        text = "that reduce or multicast make that possible; algorithms that leave all to the ranks get at most"
        notes.append(("switches", f"{text} {_both(without, c)}"))
    return notes


def _both(algbw: float, c: Collective) -> str:
    return f"algbw {algbw / 1e9:,.2f} GB/s, busbw {algbw * c.busbw_factor / 1e9:,.2f} GB/s"


def _volume(found: Found) -> str:
    """Say how much has to cross what, from which the limit follows."""
    part, cut = found.volume, None if found.limit is None else found.limit.binding
    if part is None or cut is None:
        return ""
    times = "" if part == 1 else f"{part} of " if part < 1 else f"{float(part):.4g} times "
    return f", as {times}the size must cross {format_bandwidth(cut.capacity)}"


def _words(limit: Bound) -> str:
    """Return the links in words."""
    cut = limit.binding
    if cut is not None and cut.parts is None:
        return cut.where
    return limit.reason.partition(": ")[2].removesuffix(f" ({limit.method})")


def _method(method: str) -> str:
    """Say how the bound was found, and whether there may be a greater one."""
    if method.startswith("best of") or "tried for" in method:
        return f"{method}; there may be a worse one"
    more = {"by maximum flow": "no cut is worse", "by a linear program": "large messages can come as near as you like"}
    return method + (f": {more[method]}" if method in more else "")


def _next(found: Found, name: str) -> list[str]:
    """Return the commands that show what comes near the bound."""
    operation, root = found.collective.operation, found.collective.root
    known = algorithms.available().get(operation, [])
    words = f"{shlex.quote(name)} {operation}"
    words += f" --root {root}" if root else ""
    words += f" --network {found.network}" if found.network != "cut_through" else ""
    sizes_too = " -b 8 -e 1G -f 8" if operation != "barrier" else ""
    commands = [f"collsim compare {words}{sizes_too}"] if known else []
    near = _near(found.topology, known)
    if near and found.limit is not None:
        commands.append(f"collsim run {words} -b 1G -a {near}")
    return commands


def _near(topology: Topology, known: Sequence[str]) -> str:
    """Return the algorithm that comes near for large messages: one that has switches add up and copy where they can."""
    able = topology.reduces.any() and topology.multicasts.any()
    if "nvls" in known and able and reducing.joining_switch(topology) is not None:
        return "nvls"
    in_nodes = reducing.node_switches(topology) is not None and reducing.rail_trees(topology) is not None
    if "nvls_collnet" in known and in_nodes:
        return "nvls_collnet"
    return "forest" if "forest" in known else ""


def _us(seconds: float) -> str:
    """Microseconds in seven characters (more from ten seconds on), as ``run`` prints them."""
    us = seconds * 1e6
    if us >= 9999.95:
        return f"{us:.0f}"
    return f"{us:.1f}" if us >= 99.995 else f"{us:.2f}"


def _rate(size: float, seconds: float) -> str:
    """GB/s in six characters, rounded down where it can be: a limit must not seem higher than it is."""
    if not seconds:
        return "N/A"
    rate = size / seconds / 1e9
    decimals = 2 if rate < 999.995 else 1 if rate < 9999.95 else 0
    return f"{rate:.{decimals}f}"


def _share(least: Bound) -> str:
    """Latency as a part of the bound, in per cent."""
    return f"{100 * least.latency / least:.1f}" if least else "N/A"


def _document(found: Found, dtype: str) -> dict[str, Any]:
    c, limit, without = found.collective, found.limit, found.without_switches
    return {
        "topology": found.topology.name,
        "operation": c.operation,
        "network": found.network,
        "ranks": c.ranks,
        "datatype": dtype,
        **({"root": c.root} if c.is_rooted else {}),
        "results": [_fields(size, least, c) for size, least in found.rows],
        "limit": None if limit is None else _rates(limit.rate, c),
        "limit_without_switches": None if without is None else _rates(without, c),
        "binding": None if limit is None else _binding(found, limit),
        "latency": {"time_us": found.latency * 1e6, "reason": found.latency.reason},
    }


def _rates(algbw: float, c: Collective) -> dict[str, float]:
    return {"algbw_GBps": algbw / 1e9, "busbw_GBps": algbw * c.busbw_factor / 1e9}


def _fields(size: int, least: Bound, c: Collective) -> dict[str, Any]:
    rates = {"algbw_GBps": None, "busbw_GBps": None} if not least else _rates(size / least, c)
    return {
        "size": size,
        "time_us": least * 1e6,
        **rates,
        "bound_by": by(least) if least else None,
        "latency_us": least.latency * 1e6,
        "injection_us": least.injection * 1e6,
        "cut_us": least.cut * 1e6,
        "without_switches_us": least.without_switches * 1e6,
        "reason": least.reason,
    }


def _binding(found: Found, limit: Bound) -> dict[str, Any]:
    """Describe what limits large messages; links and ranks of very large cuts are only counted."""
    document: dict[str, Any] = {"bound_by": by(limit), "words": _words(limit), "method": limit.method}
    cut, topology = limit.binding, found.topology
    if cut is None:
        return document
    document |= {
        "volume_per_size": None if found.volume is None else float(found.volume),
        "bandwidth_GBps": cut.capacity / 1e9,
        "n_links": len(cut.links),
    }
    if len(cut.links) <= MOST_LISTED:
        document["links"] = [topology.link_name(link) for link in cut.links.tolist()]
        if cut.lengths is not None:
            document["lengths"] = cut.lengths.tolist()
    if cut.lengths is None and cut.parts is None and len(cut.inside) <= MOST_LISTED:
        document["ranks_inside"] = [rank for rank, inside in enumerate(cut.inside.tolist()) if inside]
    return document
