"""Bucket algorithms: a ring along each dimension of a torus in turn, on ever smaller shares of the data.

A reduce_scatter goes round the rings of one dimension with all data, then round those of the next with what is left of
it; an all_gather is the same backwards (Barnett, Littlefield, Payne and van de Geijn, "Global combine on mesh
architectures with wormhole routing", 1993; Chan et al., 2007, call it bucket). Whatever the order of the dimensions a
rank sends (N-1)/N of the size in each of the two, through one port at a time. With ``ports="all"`` 2D copies of the
algorithm run side by side on 1/(2D) of the data each: they start with another dimension each and go round both ways, so
that all 2D links of a rank are busy (Jain and Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus
interconnects", 2010).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.algorithms.common import refuse_rows
from collsim.algorithms.derive import reverse, then
from collsim.algorithms.registry import algorithm
from collsim.collective import Collective
from collsim.errors import AlgorithmError, shown
from collsim.schedule import Schedule, ScheduleBuilder

__all__ = ["Lane", "bucket", "factors", "sizes", "torus_all_gather", "torus_all_reduce", "torus_reduce_scatter"]

Array = npt.NDArray[Any]

PORTS = ("one", "all")


@dataclass(frozen=True)
class Lane:
    """A share of the data that goes its own way.

    Attributes
    ----------
    visits
        Dimensions in the order in which reduce_scatter goes through them (all_gather: backwards); those of size 1 are
        left out.
    way
        1 to send to the next rank along a dimension, -1 to send to the one before.
    channel
        Deals out parallel links.
    """

    visits: tuple[int, ...]
    way: int = 1
    channel: int = 0


def factors(ranks: int) -> tuple[int, int]:
    """Return two factors of a number that are as near to each other as can be, the smaller one first.

    Examples
    --------
    >>> factors(12), factors(16), factors(7)
    ((3, 4), (4, 4), (1, 7))
    """
    low = next(size for size in range(math.isqrt(ranks), 0, -1) if ranks % size == 0)
    return low, ranks // low


def sizes(ranks: int, dims: Sequence[int] | None, name: str = "dims") -> tuple[int, ...]:
    """Return the sizes of dimensions whose product is the ranks; the two nearest `factors` where none are given.

    Raises
    ------
    AlgorithmError
        If they are no whole numbers of at least 1, or make another product.
    """
    refuse_rows(ranks)
    if dims is None:
        return factors(ranks)
    try:
        given = tuple(dims)
    except TypeError:
        given = ()
    whole = all(isinstance(size, (int, np.integer)) and not isinstance(size, bool) and size >= 1 for size in given)
    if isinstance(dims, str) or not given or not whole or math.prod(map(int, given)) != ranks:
        raise AlgorithmError(
            f"{name}: expected sizes whose product is the {ranks} ranks, such as {factors(ranks)}, got {shown(dims)}"
        )
    return tuple(map(int, given))


def bucket(operation: str, dims: Sequence[int], lanes: Sequence[Lane]) -> Schedule:
    """Return the bucket algorithm on a torus, with a share of the data in each lane.

    Parameters
    ----------
    operation
        all_reduce, reduce_scatter or all_gather.
    dims
        Size of each dimension; ranks are numbered row-major.
    lanes
        What goes which way.

    Notes
    -----
    The chunks of a lane are numbered by the coordinates of the rank that they belong to, the dimension that
    reduce_scatter visits first being the most significant digit. So in the stage of a dimension of d ranks a rank works
    on ``d * rest`` chunks that follow each other: the window. A message has ``rest`` of them, and from one step to the
    next all chunks move on by ``rest``. The stages of all lanes run side by side; where dimensions are unequal the
    longer stages of some lanes go on while others wait in the numbering of steps (not in time).
    """
    if operation == "all_gather":
        return _all_gather(dims, lanes)
    # run backwards, a ring turns round
    backwards = [replace(lane, way=-lane.way) for lane in lanes]
    first = reverse(_all_gather(dims, backwards), "reduce_scatter")
    return first if operation == "reduce_scatter" else then(first, _all_gather(dims, lanes), operation)


def _all_gather(dims: Sequence[int], lanes: Sequence[Lane]) -> Schedule:
    n, count = math.prod(dims), len(lanes)
    refuse_rows(n * count)
    rank = np.arange(n)
    grid = rank.reshape(dims)
    places = np.stack([np.unravel_index(rank, dims)[k] for k in range(len(dims))])
    order = np.empty(count * n, dtype=np.int64)
    stages: list[list[tuple[int, Array, int]]] = []
    for number, lane in enumerate(lanes):
        chunk = np.full(n, number)
        rest = n
        stages.append([])
        for k in lane.visits:
            rest //= dims[k]
            chunk = chunk * dims[k] + places[k]
            stages[-1].append((k, chunk * rest, rest))
        order[chunk] = rank * count + number
    b = ScheduleBuilder(Collective("all_gather", n), count * n, order=order.tolist())
    for stage in range(len(stages[0]) if stages else 0):
        now = [visits[-1 - stage] for visits in stages]
        done = 0
        for until in sorted({dims[k] - 1 for k, _, _ in now}):
            with b.repeat(until - done):
                for lane, (k, chunk, rest) in zip(lanes, now, strict=True):
                    if dims[k] - 1 < until:
                        continue
                    window, shift = dims[k] * rest, -lane.way * rest
                    start = chunk - chunk % window + (chunk % window + done * shift) % window
                    b.copy(
                        rank, np.roll(grid, -lane.way, k).ravel(), start, count=rest, channel=lane.channel,
                        shift=shift, window=window,
                    )  # fmt: skip
            done = until
    return b.build()


def _torus(operation: str, ranks: int, dims: Sequence[int] | None, ports: str) -> Schedule:
    if not isinstance(ports, str) or ports not in PORTS:
        raise AlgorithmError(f"ports: expected one of {', '.join(PORTS)}, got {shown(ports)}")
    found = sizes(ranks, dims)
    visits = tuple(k for k in reversed(range(len(found))) if found[k] > 1)
    if ports == "one" or not visits:
        return bucket(operation, found, [Lane(visits)])
    turned = [visits[j:] + visits[:j] for j in range(len(visits))]
    return bucket(operation, found, [Lane(order, way, way < 0) for order in turned for way in (1, -1)])


@algorithm("all_reduce", "torus")
def torus_all_reduce(ranks: int, *, dims: Sequence[int] | None = None, ports: str = "one") -> Schedule:
    """Bucket all_reduce: reduce_scatter through the dimensions, last one first, then all_gather the way back.

    Time with one port: ``2 sum(d_k - 1) alpha + 2(N-1)/N S/B``, plus ``(N-1)/N S gamma``. With all ports the bandwidth
    term is 2D times smaller if all d_k are equal; otherwise the stages of the copies end at different times, and links
    wait.

    Parameters
    ----------
    ranks
        Any number from 1.
    dims
        Size of each dimension, ranks numbered row-major; their product is ``ranks``. Two sizes as near to each other as
        can be if not given (`collsim.run` takes the topology's). Sizes of 1 are left out. The two neighbours along a
        dimension of 2 are one rank, reached over two parallel links.
    ports
        ``"one"``: one message at a time; ``"all"``: copies for all dimensions and both directions.

    Examples
    --------
    Two rows of three: first along the rows (window of 6, two chunks a message), then between them.

    >>> print(torus_all_reduce(6, dims=(2, 3)))
    all_reduce ranks=6 chunks=6
    algorithm torus {"dims": [2, 3], "ports": "one"}
    repeat 2 shift=-2 window=6
      step 0
        0 => 1  4+2
        1 => 2  0+2
        2 => 0  2+2
        3 => 4  4+2
        4 => 5  0+2
        5 => 3  2+2
    repeat 1 shift=-1 window=2
      step 0
        0 => 3  1
        1 => 4  3
        2 => 5  5
        3 => 0  0
        4 => 1  2
        5 => 2  4
    repeat 1 shift=-1 window=2
      step 0
        0 -> 3  0
        1 -> 4  2
        2 -> 5  4
        3 -> 0  1
        4 -> 1  3
        5 -> 2  5
    repeat 2 shift=-2 window=6
      step 0
        0 -> 1  0+2
        1 -> 2  2+2
        2 -> 0  4+2
        3 -> 4  0+2
        4 -> 5  2+2
        5 -> 3  4+2
    """
    return _torus("all_reduce", ranks, dims, ports)


@algorithm("reduce_scatter", "torus")
def torus_reduce_scatter(ranks: int, *, dims: Sequence[int] | None = None, ports: str = "one") -> Schedule:
    """Bucket reduce_scatter, the last dimension first: ``sum(d_k - 1) alpha + (N-1)/N S (1/B + gamma)``.

    Parameters as in `torus_all_reduce`.

    Examples
    --------
    >>> torus_reduce_scatter(64, dims=(4, 4, 4))
    <Schedule torus reduce_scatter ranks=64 chunks=64 steps=9 transfers=576>
    """
    return _torus("reduce_scatter", ranks, dims, ports)


@algorithm("all_gather", "torus")
def torus_all_gather(ranks: int, *, dims: Sequence[int] | None = None, ports: str = "one") -> Schedule:
    """Bucket all_gather, the first dimension first: ``sum(d_k - 1) alpha + (N-1)/N S/B``.

    Parameters as in `torus_all_reduce`.

    Examples
    --------
    >>> torus_all_gather(16, dims=(4, 4), ports="all")
    <Schedule torus all_gather ranks=16 chunks=64 steps=6 transfers=384>
    """
    return _torus("all_gather", ranks, dims, ports)
