"""Closed forms of algorithms with switches that add up and copy: a time, its formula, why it is not exact.

With NVLS a rank's port up carries, slice after slice, what is added up (a load, ``T = S beta / k``) and what is copied
(a store, ``t = T/N``); its port down carries the sums of its own shard (t) and what all store (T). In a SHARP tree each
way from a child to its parent is a station of a pipeline. A slice is whole in a switch before it goes on. Sources: as
in `collsim.algorithms.nvls` and `collsim.algorithms.sharp`; the forms follow from queues in a row with equal services,
the largest over all paths of a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.collective import Collective
from collsim.theory.costs import ZERO, Costs, Prediction, Terms, added, times

if TYPE_CHECKING:
    from collsim.topology import Topology

__all__ = ["FORMS", "nvls", "predict_in_network", "sharp"]

Array = npt.NDArray[Any]
CostsOf = Callable[[float], Costs]
Form = tuple[Terms, str, str]
Way = tuple[float, float, float]
"""Latency, how many times ``m beta`` a slice takes, and the seconds of that."""

NOTHING = "0 (one rank)"
TURNS = "loads and stores take turns at a port as they come, which this form only counts"
SENDER = "a sender that takes time for each message changes when slices leave"
STEPS = "slices wait for each other after each step"
_PICO = 1e-12


def nvls(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool,
    slices: int = 64,
    window: int | None = 1,
    **_: object,
) -> Form:
    """Shards by a switch that joins all ranks, in slices; alpha is a hop through it, up and down.

    ``alpha + S beta + m beta`` for an all_gather or a reduce_scatter, with ``m = S/(N k)``. An all_reduce takes
    ``alpha + (N+1)/N S beta`` and the slices that fill the pipeline where messages are large (a store is ready before
    the second next load could go), ``2 alpha + S beta`` and such slices where all loads have gone before the first
    store is ready: exact in both. Between the two the form counts the stores that go before the last load.

    Examples
    --------
    >>> terms, text, why = nvls("all_gather", 8, lambda m: Costs(1e-6, m * 1e-9), 8e6, synchronous=False, slices=10)
    >>> text, round(terms.total * 1e6, 3), why
    ('alpha + S beta + m beta, m = S/(N k), k = 10', 8101.0, '')
    """
    if ranks == 1:
        return ZERO, NOTHING, ""
    k, costs = slices, costs_of(size / (ranks * slices))
    store, load, alpha = costs.wire, costs_of(size / slices).wire, costs.alpha
    cut = f", m = S/(N k), k = {k}"
    why = SENDER if costs.overhead else STEPS if synchronous else ""
    if costs.ports == "none":  # a message waits for nothing but the one before it in its window
        waits = (k - 1) // window if window else 0
        rounds = {"all_gather": (1 + waits, 1), "reduce_scatter": (1, 1 + waits), "all_reduce": (2, 2 + waits)}
        stores, loads = rounds[operation]
        hops = 2 if operation == "all_reduce" else 1
        text = added(times(hops, "alpha"), times(Fraction(loads, k), "S beta"), times(stores, "m beta"))
        return Terms(hops * alpha, stores * store + loads * load), text + cut, why
    if operation != "all_reduce":
        return Terms(alpha, k * load + store), f"alpha + S beta + m beta{cut}", why
    ahead = min(window, k - 1) if window else k - 1  # loads that wait at a port when a store comes
    between = _stores_before_last_load(k, max(ahead, 1), load, store, alpha + store)
    full = Terms(alpha, k * (load + store) + (ahead + 1) * load - ahead * store)
    short = Terms(2 * alpha, (k + 1) * load + (between + 2) * store)
    terms, text = short, added("2 alpha + S beta", times(ranks + between + 2, "m beta"))
    if full.total >= short.total:
        terms, text = full, added("alpha + (N+1)/N S beta", times((ahead + 1) * ranks - ahead, "m beta"))
    exact = alpha + store <= load or alpha + store >= (k - 1) * load
    return terms, text + cut, why or ("" if exact else TURNS)


def _stores_before_last_load(k: int, ahead: int, load: float, store: float, back: float) -> int:
    """Count the stores that go up before the last load, if each is ready ``back`` after its load has gone."""
    ends: list[float] = []
    stores, now = 0, 0.0
    while len(ends) < k:
        ready = ends[len(ends) - ahead] if len(ends) >= ahead else 0.0
        if stores < len(ends) and ends[stores] + back <= ready:
            now = max(now, ends[stores] + back) + store
            stores += 1
        else:
            now = max(now, ready) + load
            ends.append(now)
    return stores


def sharp(
    operation: str,
    ranks: int,
    costs_of: CostsOf,
    size: float,
    *,
    synchronous: bool,
    tree: Any = "",
    slices: int = 64,
    window: int | None = 2,
    **_: object,
) -> Form:
    """Up a tree of switches and down again, d switches on the way of the farthest rank; alpha is one hop of it.

    ``2 d (alpha + m beta) + (k - 1) m beta`` with ``m = S/k``. Exact.

    Examples
    --------
    >>> tree = [["leaf", [0, 1]], ["spine", ["leaf", 2]]]
    >>> form = sharp("all_reduce", 3, lambda m: Costs(1e-6, m * 1e-9), 8e6, synchronous=False, tree=tree, slices=8)
    >>> form[1], round(form[0].total * 1e6, 3), form[2]
    ('4 alpha + 11 m beta, m = S/8', 11004.0, '')
    """
    if ranks == 1:
        return ZERO, NOTHING, ""
    height: dict[Any, int] = {}
    for switch, children in [] if isinstance(tree, str) else tree:
        height[switch] = 1 + max(height.get(child, 0) for child in children)
    hops = 2 * max(height.values(), default=1)
    costs = costs_of(size / slices)
    return _piped([(costs.alpha, 1.0, costs.wire)] * hops, costs, slices, window, synchronous=synchronous)


def _piped(ways: Sequence[Way], costs: Costs, slices: int, window: int | None, *, synchronous: bool) -> Form:
    """Put slices through stations one after the other."""
    slowest, total = max(factor for _, factor, _ in ways), sum(factor for _, factor, _ in ways)
    more = slices - 1
    if costs.ports == "none":
        more, slowest = more // window if window else 0, ways[0][1]
    every = len({factor for _, factor, _ in ways}) == 1
    beta = times(Fraction(total + more * slowest).limit_denominator(1000), "m beta")
    text = added(times(len(ways), "alpha"), beta) + ("" if every else " (of the slowest way)")
    terms = Terms(sum(alpha for alpha, _, _ in ways), (total + more * slowest) * costs.wire)
    return terms, f"{text}, m = S/{slices}", SENDER if costs.overhead else STEPS if synchronous else ""


FORMS: dict[tuple[str, str], Callable[..., Form | None]] = {
    **{(operation, "nvls"): nvls for operation in ("all_reduce", "all_gather", "reduce_scatter")},
    **{(operation, "sharp"): sharp for operation in ("all_reduce", "reduce", "broadcast")},
}
"""Forms by operation and algorithm."""


def predict_in_network(
    algorithm: str,
    collective: Collective,
    size: int,
    topology: Topology,
    nodes: Array,
    ways: Sequence[npt.ArrayLike],
    *,
    synchronous: bool = False,
    network: str = "cut_through",
    parameters: Mapping[str, Any] | None = None,
    equal: bool | None = None,
) -> Prediction | None:
    """Return the time that the closed form of an algorithm with switches gives on a topology.

    Parameters
    ----------
    algorithm, collective, size, topology, synchronous, network, parameters, equal
        As in `collsim.theory.predict`.
    nodes
        Topology node of each endpoint: the ranks, then the switches that take part.
    ways
        Source endpoints, destination endpoints and channels of the transfers (repeats do no harm).

    Returns
    -------
    Prediction or None
        None if there is no closed form. ``holds`` is False, and ``why`` says so, where ways that the form takes as
        equal differ, where different ways share a link, and where the network does not queue in order of arrival.
    """
    form, given = FORMS.get((collective.operation, algorithm)), dict(parameters or {})
    slices, window = given.get("slices", 1), given.get("window")
    if form is None or not isinstance(slices, int) or slices < 1 or not isinstance(window, int | None):
        return None
    if collective.ranks == 1 or not np.size(ways[0]):
        return Prediction.of(ZERO, NOTHING)
    ends = np.unique(np.stack([np.asarray(column, dtype=np.int64).ravel() for column in ways], axis=1), axis=0)
    ptr, links = topology.route_nodes(nodes[ends[:, 0]], nodes[ends[:, 1]], ends[:, 2])
    first, sender = ptr[:-1], nodes[ends[:, 0]]
    overhead = topology.send_overhead[sender] * _PICO
    alpha = np.add.reduceat(topology.link_latency[links], first) * _PICO + overhead
    beta = np.maximum.reduceat(1.0 / topology.link_bandwidth[links].astype(np.float64), first)
    ports = "none" if network == "alpha_beta" else "one"
    ups = ends[:, 1] >= collective.ranks

    def costs_of(message: float) -> Costs:
        return Costs(hop, message * float(beta.max()), 0.0, float(overhead.max()), 1.0, ports)

    why = []
    if algorithm == "nvls":
        up, down = (alpha[ups], alpha[~ups])
        hop = float(up.max() + down.max())
        found = form(collective.operation, collective.ranks, costs_of, float(size), synchronous=synchronous, **given)
        if found is None:
            return None
        for name, columns in (("latency", (up, down)), ("bandwidth", (beta,))):
            if any((column != column[0]).any() for column in columns):
                why.append(f"ways to and from the switch differ in {name}, the slowest is taken")
    else:
        hop = 0.0
        costs = costs_of(size / slices)
        relative = beta / beta.max()
        by_ends = {
            (src, dst): (latency, factor, factor * costs.wire)
            for (src, dst, _), latency, factor in zip(ends.tolist(), alpha.tolist(), relative.tolist(), strict=True)
        }
        paths = _paths(collective, given.get("tree"), topology, nodes, by_ends)
        if not paths:
            return None
        forms = [_piped(path, costs, slices, window, synchronous=synchronous) for path in paths]
        found = max(forms, key=lambda item: item[0].total)
    result = Prediction.of(*found)
    pairs = np.unique(np.stack([links, np.repeat(np.arange(len(ends)), np.diff(ptr))], axis=1), axis=0)[:, 0]
    shared = pairs[:-1][pairs[1:] == pairs[:-1]]
    if len(shared) and ports == "one":
        why.append(f"link {topology.link_name(int(shared[0]))} is shared by several ways")
    if network == "store_and_forward" and (np.diff(ptr) > 1).any():
        why.append("a slice is stored on the way to a switch, which the form does not count")
    if network == "fluid":
        why.append("messages that meet on a link share it in the fluid model; the formula takes them in turn")
    elif ports == "none" and window and (beta > 1.0 / topology.link_bandwidth[links[first]]).any():
        why.append("slices wait until the one before has left the first link, which is not the slowest")
    if topology.channel_bandwidth[sender].any():
        why.append("copy engines of ranks are not counted")
    if equal is False:
        why.append("the message is not cut into equal chunks")
    for reason in why:
        result = result.but(reason)
    return result


def _paths(
    collective: Collective, tree: Any, topology: Topology, nodes: Array, costs: Mapping[tuple[int, int], Way]
) -> list[tuple[Way, ...]] | None:
    """Return the ways from a rank up the tree and down to a rank again; of equally slow ones the latest."""
    ranks, root = collective.ranks, collective.root
    endpoint = {topology.nodes[node]: ranks + i for i, node in enumerate(nodes[ranks:].tolist())}
    parent: dict[int, int] = {}
    for switch, children in [(tree, range(ranks))] if isinstance(tree, str) else tree:
        for child in children:
            parent[endpoint.get(child, -1) if isinstance(child, str) else child] = endpoint.get(switch, -1)

    def chain(rank: int, *, up: bool) -> tuple[Way, ...]:
        found, at = [], rank
        while at in parent:
            ends = (at, parent[at]) if up else (parent[at], at)
            found.append(costs[ends])
            at = parent[at]
        return tuple(found)

    def latest(chosen: Iterable[int], *, up: bool) -> list[tuple[Way, ...]]:
        best: dict[float, tuple[Way, ...]] = {}
        for ways in {chain(rank, up=up) for rank in chosen}:
            slowest = max(factor for _, factor, _ in ways)
            if slowest not in best or _alone(ways) > _alone(best[slowest]):
                best[slowest] = ways
        return list(best.values())

    everyone = range(ranks)
    sources = [root] if collective.operation == "broadcast" else everyone
    sinks = [root] if collective.operation == "reduce" else everyone
    if collective.operation == "broadcast":
        sinks = [rank for rank in everyone if rank != root]
    try:
        return [one + other for one, other in product(latest(sources, up=True), latest(sinks, up=False))]
    except (KeyError, ValueError):  # not the schedule of this tree
        return None


def _alone(ways: Iterable[Way]) -> float:
    """Return the time of one slice that nothing holds up."""
    return sum(alpha + wire for alpha, _, wire in ways)
