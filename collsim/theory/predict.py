"""The closed form of an algorithm on a given topology: costs are read off the routes of the pairs that talk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.collective import Collective
from collsim.theory.closed_forms import closed_form, has_form
from collsim.theory.costs import Prediction
from collsim.topology.search import distinct, spread

if TYPE_CHECKING:
    from collsim.topology import Topology

__all__ = ["predict"]

Array = npt.NDArray[Any]

_PICO = 1e-12
_OPTIONS = ("channels", "slices", "k")
_OWN = (
    "algorithm",
    "collective",
    "algorithm_ports",
    "ports",
    "alpha",
    "beta",
    "gamma",
    "overhead",
    "stores",
    "size",
    "synchronous",
    "element_size",
    "equal",
)
"""What the form takes itself: an algorithm's parameter of such a name means something else."""


@dataclass(frozen=True)
class _Routes:
    """The slowest costs of the routes of the pairs, in seconds, and why they are not the whole truth."""

    alpha: float
    beta: float
    overhead: float
    stores: float
    ports: str
    even: bool
    why: tuple[str, ...]


def predict(
    algorithm: str,
    collective: Collective,
    size: int,
    topology: Topology,
    pairs: Sequence[npt.ArrayLike],
    *,
    synchronous: bool = False,
    network: str = "cut_through",
    parameters: Mapping[str, Any] | None = None,
    element_size: int = 1,
    equal: bool | None = None,
) -> Prediction | None:
    """Return the time that the closed form of an algorithm gives on a topology.

    Parameters
    ----------
    algorithm, collective, size
        As in `closed_form`.
    topology
        The machine.
    pairs
        Source ranks and destination ranks of the transfers (repeats do no harm), and their channels if it matters.
    synchronous
        Whether steps wait for each other.
    network
        Network model that the prediction is compared with.
    parameters
        Parameters of the algorithm; those that the form does not know are ignored.
    element_size
        Bytes of an element.
    equal
        Whether the schedule cuts this size into equal chunks, where that is known.

    Returns
    -------
    Prediction or None
        None if there is no closed form, or if ``channels``, ``slices`` or ``k`` is no whole number of at least 1.
        ``holds`` is False, and ``why`` says so, where links or devices differ (the slowest are taken), where messages
        of different pairs share a link (they are taken as if they did not), and where the network model does not queue
        in order of arrival.

    Examples
    --------
    >>> import collsim.topology
    >>> topology = collsim.topology.ring(4, bandwidth="1GB/s", latency="1us")
    >>> p = predict("ring", Collective("all_gather", 4), 4000, topology, ([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> print(f"{p * 1e6:.1f} us = {p.formula}, holds: {p.holds}")
    6.0 us = (N-1) (alpha + m beta), m = S/N, holds: True
    """
    given: dict[str, Any] = dict(parameters or {})
    options = {name: value for name, value in given.items() if name not in _OWN}
    counts = {name: value for name, value in options.items() if name in _OPTIONS}
    if not has_form(algorithm, collective.operation) or not all(map(_counts, counts.values())):
        return None
    options.update((name, int(count)) for name, count in counts.items())
    if "k" in options:  # no rank has more children than there are other ranks
        options["k"] = min(options["k"], max(1, collective.ranks - 1))
    if collective.ranks == 1 or (np.asarray(pairs[0]) == np.asarray(pairs[1])).all():
        return closed_form(algorithm, collective, size, 0.0, 0.0, element_size=element_size, equal=equal, **options)
    options["algorithm_ports"] = given.get("ports")
    routes = _routes(topology, pairs, network)
    gamma, reducers = _gamma(topology, collective)
    result = closed_form(
        algorithm,
        collective,
        size,
        routes.alpha,
        routes.beta,
        gamma,
        synchronous=synchronous,
        overhead=routes.overhead,
        ports=routes.ports,
        stores=routes.stores,
        element_size=element_size,
        equal=equal,
        **options,
    )
    if result is None:
        return None
    for why in (*routes.why, *reducers):
        result = result.but(why)
    pieces, two = options.get("channels", 1) * options.get("slices", 1), collective.ranks == 2
    # one message at a time on every link
    alone = pieces == 1 and (
        algorithm == "ring"
        or (algorithm == "bidirectional_ring" and routes.ports != "one" and not two)
        or (algorithm in ("binomial_tree", "tree") and two)
    )
    if network == "fluid" and not alone:
        result = result.but("messages that meet on a link share it in the fluid model; the formula takes them in turn")
    if not routes.even and not alone:
        result = result.but("links on the way differ in bandwidth; messages are taken to queue at the slowest")
    return result


def _counts(value: object) -> bool:
    """Whether a parameter is a number of things; an algorithm of a user's own may give the name another meaning."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 1


def _routes(topology: Topology, pairs: Sequence[npt.ArrayLike], network: str) -> _Routes:
    columns = [np.asarray(column, dtype=np.int64).ravel() for column in pairs]
    if len(columns) == 2:
        columns.append(np.zeros_like(columns[0]))
    width, depth = topology.n_ranks, int(columns[2].max()) + 1
    codes = distinct((columns[0] * width + columns[1]) * depth + columns[2])
    wires = np.stack([codes // depth // width, codes // depth % width, codes % depth], axis=1)
    wires = wires[wires[:, 0] != wires[:, 1]]
    pointer, links = topology.routes(wires[:, 0], wires[:, 1], wires[:, 2])
    first, sender = pointer[:-1], topology.rank_nodes[wires[:, 0]]
    engine = topology.channel_bandwidth[sender].astype(np.float64)
    seconds = 1.0 / topology.link_bandwidth[links].astype(np.float64)
    copying = np.divide(1.0, engine, out=np.zeros_like(engine), where=engine > 0)
    slowest = np.maximum(np.maximum.reduceat(seconds, first), copying)
    quickest = np.minimum.reduceat(seconds, first)
    overhead = topology.send_overhead[sender]
    alpha = np.add.reduceat(topology.link_latency[links], first) + overhead
    stored = np.add.reduceat(seconds, first) + copying if network == "store_and_forward" else slowest
    why = []
    for name, values in (("latency", alpha), ("bandwidth", slowest), ("overhead", overhead), ("hops", stored)):
        if (values != values[0]).any() and not (name == "hops" and network != "store_and_forward"):
            why.append(f"pairs differ in {name}, the slowest is taken")
            break
    beta = float(slowest.max())
    ports, shared = ("none", []) if network == "alpha_beta" else _sharing(topology, wires, pointer, links)
    # one copy engine for each rank and channel, however many peers
    _, place, several = np.unique(wires[:, 0] * depth + wires[:, 2], return_inverse=True, return_counts=True)
    if ports == "each" and (several[place] > 1)[engine > 0].any():
        shared.append("peers with links of their own share the copy engine of a rank")
    return _Routes(
        alpha=float(alpha.max()) * _PICO,
        beta=beta,
        overhead=float(overhead.max()) * _PICO,
        stores=float(stored.max()) / beta,
        ports=ports,
        even=bool((quickest == slowest).all()),
        why=(*why, *shared),
    )


def _sharing(topology: Topology, wires: Array, pointer: Array, links: Array) -> tuple[str, list[str]]:
    """Whether a rank has one port for all peers or one for each, and what else is shared."""
    n, lengths = topology.n_ranks, np.diff(pointer)
    row, (place, _) = np.repeat(np.arange(len(wires)), lengths), spread(np.zeros_like(lengths), lengths)
    ends = wires[:, 0] * n + wires[:, 1]  # in order: the channels of a pair follow each other
    new = np.append(True, ends[1:] != ends[:-1])
    pairs = ends[new]
    # each pair once for each link that it uses, by link; where a link comes first on the way of all
    users, first = np.unique(links * len(pairs) + (np.cumsum(new) - 1)[row], return_index=True)
    link, pair = np.divmod(users, len(pairs))
    begin = np.flatnonzero(np.append(True, link[1:] != link[:-1]))
    group = np.diff(np.append(begin, len(link)))
    first = np.minimum.reduceat(first, begin)
    users_of = [end[pair] for end in np.divmod(pairs, n)]  # by source, by destination
    alone = [np.minimum.reduceat(end, begin) == np.maximum.reduceat(end, begin) for end in users_of]
    why = []
    mixed = np.flatnonzero(~alone[0] & ~alone[1])
    if len(mixed):
        worst = mixed[first[mixed].argmin()]
        name = topology.link_name(int(link[begin[worst]]))
        why.append(f"link {name} is shared by {group[worst]} pairs that talk")
    if _lanes_differ(np.flatnonzero(~new), pointer, links[np.lexsort((links, row))]):
        why.append("channels of one pair take different links")
    # how many of a rank's pairs cross one link that no other rank uses: its port, if it is all of them
    together, in_step = np.zeros((2, 2, n), dtype=np.int64)
    steady = _steady(topology, place, pointer[row], links)  # of those, the pairs whose way to that link is alike
    peers = np.stack([np.bincount(end, minlength=n) for end in np.divmod(pairs, n)])
    for side in (0, 1):
        for most, some in ((together, alone[side]), (in_step, alone[side] & steady)):
            np.maximum.at(most[side], users_of[side][begin[some]], group[some])
    several = peers > 1
    if several.any() and (together[several] <= 1).all():
        return "each", why
    if (together < peers)[several].any():
        why.append("some messages of a rank share its port and others do not")
    elif (in_step < peers)[several].any():
        why.append("messages of a rank reach the port that they share over ways of different length")
    return "one", why


def _lanes_differ(rows: Array, pointer: Array, links: Array) -> bool:
    """Whether one of the rows crosses other links than the row before it; the links of each row are sorted."""
    lengths = np.diff(pointer)
    before = lengths[rows - 1]
    if (lengths[rows] != before).any():
        return True
    places, owner = spread(pointer[rows], before)
    return bool((links[places] != links[places - before[owner]]).any())


def _steady(topology: Topology, place: Array, start: Array, links: Array) -> Array:
    """Whether all come to a link after as many hops and as much latency, for each link that is used, by number."""
    passed = np.cumsum(topology.link_latency[links]) - topology.link_latency[links]
    order = np.argsort(links, kind="stable")
    link = links[order]
    begin = np.flatnonzero(np.append(True, link[1:] != link[:-1]))
    columns = (place[order], (passed - passed[start])[order])
    same = [np.minimum.reduceat(column, begin) == np.maximum.reduceat(column, begin) for column in columns]
    return np.asarray(same[0] & same[1])


def _gamma(topology: Topology, collective: Collective) -> tuple[float, list[str]]:
    if not collective.reduces:
        return 0.0, []
    rates = topology.reduce_bandwidth[topology.rank_nodes[: collective.ranks]]
    slowest = max((1.0 / rate if rate else 0.0) for rate in np.unique(rates).tolist())
    return slowest, ["ranks differ in reduce_bandwidth, the slowest is taken"] if len(np.unique(rates)) > 1 else []
