"""Closed forms: what an algorithm takes, written from its formula and never from the engine.

Model: every rank has a port of ``1 / beta`` bytes a second out and one in (or one for each peer); messages that meet at
a port queue in order of arrival; a message of m bytes costs ``alpha + m beta``, and ``m gamma`` more at a receiver that
adds it up before it is passed on. Two regimes: by default a message leaves as soon as its data is there, so a pipeline
pays alpha once a hop; with ``synchronous=True`` all wait for each other after every step, as textbook formulas assume,
and it pays alpha once a step.

Sources: Hockney's model; Chan et al., "Collective communication: theory, practice, and experience" (2007) for ring,
chain and binomial tree; Sanders, Speck, Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan"
(2009). The asynchronous forms follow from queues in a row with equal services.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collsim.collective import Collective
from collsim.errors import InputError
from collsim.theory import all_to_all, butterflies, hierarchical, in_network, rings, rooted, trees
from collsim.theory.costs import PORTS, ZERO, Costs, Prediction, Terms, added, whole

__all__ = ["closed_form", "has_form"]

_GATHERING = ("all_reduce", "reduce_scatter", "all_gather")
_ROOTED = ("broadcast", "reduce")

FORMS: dict[tuple[str, str], Callable[..., tuple[Terms, str, str] | None]] = {
    **butterflies.FORMS,
    **all_to_all.FORMS,
    **rooted.FORMS,
    **in_network.FORMS,
    **{(op, name): form for name, form in hierarchical.FORMS.items() for op in _GATHERING if name != "leader"},
    ("all_reduce", "leader"): hierarchical.leader,
}
"""Forms that work their messages out themselves, by operation and algorithm; those of rings and trees stand below."""


def closed_form(
    algorithm: str,
    collective: Collective,
    size: int,
    alpha: float,
    beta: float,
    gamma: float = 0.0,
    *,
    synchronous: bool = False,
    overhead: float = 0.0,
    ports: str = "one",
    stores: float = 1.0,
    element_size: int = 1,
    channels: int = 1,
    slices: int = 1,
    k: int = 2,
    equal: bool | None = None,
    algorithm_ports: Any = None,
    **parameters: Any,
) -> Prediction | None:
    """Return the time that a formula gives for an algorithm.

    Parameters
    ----------
    algorithm
        Its name, for instance ``"ring"``; see `has_form`.
    collective
        The operation and its ranks. The time does not depend on the root.
    size
        Bytes, as nccl-tests counts them (`Collective`).
    alpha
        Seconds a message, ``overhead`` included.
    beta
        Seconds a byte on a link.
    gamma
        Seconds a byte that is added up.
    synchronous
        Whether a step starts when the one before it has ended everywhere.
    overhead
        The part of alpha for which the sender is busy and sends nothing else.
    ports
        ``"one"``: one port a rank and direction; ``"each"``: one for every peer; ``"none"``: messages never queue.
    stores
        How often a message pays ``m beta``: 2 where a switch stores it before it forwards it.
    element_size
        Bytes of an element; chunks hold whole elements.
    channels, slices, k, parameters
        Parameters of the algorithm, where it has them (a ``window`` paces a double binary tree); others are ignored.
    equal
        Whether the schedule cuts this size into equal chunks; a form assumes that, and rings and trees know it.
    algorithm_ports
        The algorithm's own parameter ``ports``, where it has one.

    Returns
    -------
    Prediction or None
        None if there is no formula for this algorithm and operation.

    Raises
    ------
    InputError
        If the size is no whole number of bytes from 0 to 2**63 - 1, a cost is negative, ``ports`` is unknown, or
        ``channels``, ``slices`` or ``k`` is no whole number of at least 1.

    Examples
    --------
    >>> p = closed_form("ring", Collective("all_reduce", 4), 4_000_000, alpha=1e-6, beta=1e-9)
    >>> print(f"{p * 1e6:.1f} us = {p.formula}")
    6006.0 us = 2(N-1) (alpha + m beta), m = S/N
    >>> p.holds, round(p.latency * 1e6, 3), round(p.bandwidth * 1e6, 3)
    (True, 6.0, 6000.0)
    """
    size, element_size = whole("size", size), whole("element_size", element_size, least=1)
    if min(alpha, beta, gamma, overhead) < 0:
        raise InputError("closed_form: expected costs of at least 0, got a negative one")
    if ports not in PORTS:
        raise InputError(f"ports: expected one of {', '.join(PORTS)}, got {ports!r}")
    counts = (("channels", channels), ("slices", slices), ("k", k))
    channels, slices, k = (whole(name, count, least=1, unit="") for name, count in counts)
    op, ranks = collective.operation, collective.ranks
    form, cut = FORMS.get((op, algorithm)), _cut(algorithm, op, ranks, channels, slices)
    if form is None and cut is None:
        return None
    if ranks == 1:
        return Prediction.of(ZERO, hierarchical.NOTHING)
    if cut is None:
        assert form is not None

        def costs_of(message: float) -> Costs:
            return Costs(alpha, message * beta, message * gamma, overhead, stores, ports)

        options = {**parameters, "channels": channels, "slices": slices, "k": k}
        if algorithm_ports is not None:
            options["ports"] = algorithm_ports
        found = form(op, ranks, costs_of, float(size), synchronous=synchronous, **options)
        if found is None:
            return None
        uneven = f"{size // element_size} elements are not cut into equal chunks"
        return Prediction.of(*found).but(uneven) if equal is False else Prediction.of(*found)
    pieces, cut_text = cut
    message = size / pieces
    costs = Costs(alpha, message * beta, message * gamma, overhead, stores, ports)
    reducing, copying = (0 if op == "all_gather" else ranks - 1), (0 if op == "reduce_scatter" else ranks - 1)
    why = ""
    if algorithm == "ring" and op in _ROOTED:
        terms, text = rings.chain(ranks, channels, slices, costs, reduces=op == "reduce", synchronous=synchronous)
    elif algorithm == "ring":
        terms, text, why = rings.ring(
            reducing, copying, channels * slices, costs, shares_link=True, synchronous=synchronous
        )
    elif algorithm == "bidirectional_ring":
        terms, text, why, cut_text = _bidirectional(ranks, reducing, copying, channels * slices, costs, synchronous)
    else:
        window = parameters.get("window")
        paced = isinstance(window, int) and window > 0
        terms, text, why = _tree(algorithm, op, ranks, k, slices, costs, synchronous, paced)
        text = added(text)
    result = Prediction.of(terms, f"{text}, m = {cut_text}", why)
    if size % (pieces * element_size):
        return result.but(f"{size // element_size} elements cannot be cut into {pieces} equal chunks")
    return result


def has_form(algorithm: str, operation: str) -> bool:
    """Whether there is a formula for an algorithm and an operation.

    Examples
    --------
    >>> has_form("ring", "all_reduce"), has_form("bruck", "all_to_all"), has_form("ring", "all_to_all")
    (True, True, False)
    """
    return (operation, algorithm) in FORMS or _cut(algorithm, operation, 2, 1, 1) is not None


def _cut(algorithm: str, op: str, ranks: int, channels: int, slices: int) -> tuple[int, str] | None:
    """Into how many equal messages the buffer is cut, and how to write one; None if there is no formula."""
    if op in _GATHERING and algorithm in ("ring", "bidirectional_ring"):
        pieces = channels * slices * (1 if algorithm == "ring" else 2)
        return ranks * pieces, "S/N" if pieces == 1 else f"S/(C N), C = {pieces}"
    if op in _ROOTED and algorithm == "ring":
        names = [name for name, count in ((f"C = {channels}", channels), (f"k = {slices}", slices)) if count > 1]
        letters = " ".join(name[0] for name in names)
        over = f"/({letters})" if len(names) > 1 else f"/{letters}" if names else ""
        return channels * slices, ", ".join([f"S{over}", *names])
    if op in ("all_reduce", *_ROOTED):
        if algorithm == "binomial_tree":
            return 1, "S"
        if algorithm == "tree":
            return slices, "S" if slices == 1 else f"S/slices, slices = {slices}"
        if algorithm == "double_binary_tree":
            return 2 * slices, "S/2" if slices == 1 else f"S/(2 slices), slices = {slices}"
    return None


def _bidirectional(
    ranks: int, reducing: int, copying: int, pieces: int, costs: Costs, synchronous: bool
) -> tuple[Terms, str, str, str]:
    # the pieces of both ways share a rank's one port; and two ranks are each other's neighbour on both sides
    one_link = costs.ports == "one" or ranks == 2
    both = rings.ring(reducing, copying, 2 * pieces, costs, shares_link=one_link, synchronous=synchronous)
    both_text = f"S/(C N), C = {2 * pieces}"
    if one_link or pieces == 1:
        return *both, both_text
    way_text = f"S/(2 C N), C = {pieces}"
    way = rings.ring(reducing, copying, pieces, costs, shares_link=True, synchronous=synchronous)
    if not (costs.overhead or (costs.adding and reducing)):
        return *way, way_text
    why = "the two ways share a rank's sender and reducer but not its links"
    if way[0].total > both[0].total:
        return way[0], way[1], why, way_text
    return both[0], both[1], why, both_text


def _tree(
    algorithm: str, op: str, ranks: int, k: int, slices: int, costs: Costs, synchronous: bool, paced: bool
) -> tuple[Terms, str, str]:
    if algorithm == "binomial_tree":
        return trees.binomial(op, ranks, costs, synchronous=synchronous)
    if algorithm == "tree":
        return trees.kary(op, ranks, k, slices, costs, synchronous=synchronous)
    return trees.double_binary(op, ranks, slices, costs, synchronous=synchronous, paced=paced)
