"""NCCL's constants by version: latencies in microseconds, rates in GB/s (10**9 bytes/s), as NCCL writes them.

Sources, all of NVIDIA's NCCL (Apache-2.0, BSD parts before): ``src/graph/tuning.cc`` (latencies, caps, corrections),
``src/graph/search.cc`` (speeds that the search tries), ``src/include/device.h`` (channels), ``src/transport/nvls.cc``
(GPUs that NVLS needs), of the releases 2.18.3, 2.22.3 and 2.30.7. A release between two of them takes the lower one.
Of 2.18 the hops of CollNetChain are those of 2.22.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from collsim.errors import InputError, shown

__all__ = ["ALGORITHMS", "LATEST", "PROTOCOLS", "TREE_CORRECTION", "VERSIONS", "Tables", "Version", "tables_of"]

Triple = tuple[float, float, float]
Rows = tuple[Triple, Triple, Triple, Triple]
Version = tuple[int, int]

ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
"""In NCCL's order, which decides between equal times."""

PROTOCOLS = ("LL", "LL128", "Simple")

GENERATIONS = ("Volta and before", "Ampere", "Hopper", "Blackwell")
"""What the rows of a table of `Rows` are for; the columns are one node, two nodes, and more."""


@dataclass(frozen=True)
class Tables:
    """What one release of NCCL knows.

    Attributes
    ----------
    version
        Major and minor number of the release.
    source
        The file that the constants are from.
    base
        Microseconds by algorithm, for LL, LL128 and Simple.
    hop
        Microseconds a hop, by kind of link (``nvlink``, ``pci``, ``net``) and algorithm.
    ll
        Most GB/s of LL: a row by GPU on one node; on several the row Volta is for Intel, the row Ampere for AMD.
    ring_ll128, tree_ll128, tree, nvls_tree
        Most GB/s of a channel; 0 is no limit.
    nvls_efficiency
        By generation; None for the older rule, five sixths of channels times speed.
    ring_ll
        Part of the bandwidth that LL leaves to a ring: of all_reduce, reduce and several nodes, and of the others.
    lone_ll128
        Part that LL128 leaves to a ring of less than two GPUs a node; 0.92 otherwise.
    lone_tree_hop
        Whether the network hop is that of the tree where a node has one GPU.
    net_steps
        Network steps of an all_reduce ring are 2(nodes - this).
    nvls_by_rank
        Whether NVLS turns bus into algorithm bandwidth as a ring does.
    channels
        Most channels of a communicator; the search may find half of them.
    nvls_gpus
        Fewest GPUs of a node with which NVLS is set up.
    nvls_heads
        Most heads of NVLS.
    pat
        Whether there is PAT.
    ll128_sm
        Compute capabilities with LL128 by default; None for 7.0 and all later ones.
    intra, inter
        Speeds that the search tries on one and on several nodes: before Hopper, Hopper, Blackwell.
    """

    version: Version
    source: str
    base: Mapping[str, Triple]
    hop: Mapping[str, Mapping[str, Triple]]
    ll: Rows
    ring_ll128: Rows
    tree_ll128: Rows
    tree: Rows
    nvls_tree: Rows
    nvls_efficiency: tuple[float, float, float, float] | None
    ring_ll: tuple[float, float]
    lone_ll128: float
    lone_tree_hop: bool
    net_steps: int
    nvls_by_rank: bool
    channels: int
    nvls_gpus: int
    nvls_heads: int
    pat: bool
    ll128_sm: frozenset[int] | None
    intra: tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]
    inter: tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]

    def speeds(self, sm: int, nodes: int) -> tuple[float, ...]:
        """Return the GB/s a channel that the search tries, the greatest first."""
        lists = self.intra if nodes == 1 else self.inter
        return lists[2 if sm >= 100 else 1 if sm >= 90 else 0]


def _by_algorithm(*rows: Triple) -> Mapping[str, Triple]:
    return MappingProxyType(dict(zip(ALGORITHMS, rows, strict=True)))


def _simple(latency: float) -> Triple:
    return (0.0, 0.0, latency)


NONE = _simple(0.0)
_AMPERE: Triple = (87.7, 22.5, 19.0)
_VOLTA_LL: Triple = (39.0, 39.0, 20.4)
_20: Triple = (20.0, 20.0, 20.0)
_HOPPER_LL128: Triple = (36.7, 36.7, 36.7)
_TREE = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0))
_NO_LIMIT: Rows = (NONE, NONE, NONE, NONE)

_RING = ((0.6, 1.9, 3.4), (1.0, 2.5, 5.7), (2.7, 4.0, 14.0))  # the same in all three releases

_INTRA = (40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0)
_SLOW = (3.0, 2.4, 1.2, 0.24, 0.12)
_INTER = (48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, *_SLOW)
_INTRA_90 = (60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0)
_INTER_90 = (48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, *_SLOW)
_INTRA_90_OLD = (60.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 6.0, 3.0)
_INTER_90_OLD = (48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 20.0, 17.5, 15.0, 12.0, 6.0, *_SLOW)
_INTRA_100 = (90.0, 80.0, 70.0, 60.0, 50.0, 45.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0)
_INTER_100 = (96.0, 86.0, 80.0, 48.0, 45.1, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, *_SLOW)


def _hops(
    tree: tuple[float, float, float],
    direct: tuple[float, float],
    chain: tuple[float, float],
    nvls: float,
    net: tuple[float, float],
) -> Mapping[str, Mapping[str, Triple]]:
    nvlink, pci, wire = _RING
    inside = (_simple(direct[0]), _simple(chain[0]))
    outside = (_simple(direct[1]), _simple(chain[1]))
    switch = (_simple(nvls), _simple(nvls))
    pat = (_simple(4.0), _simple(14.0))
    rows = {
        "nvlink": _by_algorithm((0.6, 1.25, tree[0]), nvlink, *inside, *switch, pat[0]),
        "pci": _by_algorithm((1.0, 1.9, tree[1]), pci, *inside, NONE, NONE, pat[0]),
        "net": _by_algorithm((5.0, 8.5, tree[2]), wire, *outside, _simple(net[0]), _simple(net[1]), pat[1]),
    }
    return MappingProxyType(rows)


_218 = Tables(
    version=(2, 18),
    source="NCCL 2.18.3, src/graph/tuning.cc, search.cc",
    base=_by_algorithm(
        (6.8, 14.0, 0.0), (6.6, 14.0, 8.4), (6.8, 14.0, 0.0), (6.8, 14.0, 0.0), _simple(23.0), _simple(23.0), NONE
    ),
    hop=_hops(tree=(4.0, 6.0, 14.0), direct=(8.0, 10.7), chain=(2.8, 30.0), nvls=0.0, net=(18.0, 19.0)),
    ll=(_VOLTA_LL, _AMPERE, _AMPERE, _AMPERE),
    ring_ll128=(_20, _20, _HOPPER_LL128, _HOPPER_LL128),
    tree_ll128=(_20, _20, (36.7, 36.7, 29.0), (36.7, 36.7, 29.0)),
    tree=(*_TREE, _TREE[2]),
    nvls_tree=_NO_LIMIT,
    nvls_efficiency=None,
    ring_ll=(1 / 4, 1 / 3),
    lone_ll128=0.7,
    lone_tree_hop=False,
    net_steps=0,
    nvls_by_rank=False,
    channels=32,
    nvls_gpus=3,
    nvls_heads=8,
    pat=False,
    ll128_sm=frozenset({70, 80, 90}),
    intra=(_INTRA, _INTRA_90_OLD, _INTRA_90_OLD),
    inter=(_INTER, _INTER_90_OLD, _INTER_90_OLD),
)

_222 = Tables(
    version=(2, 22),
    source="NCCL 2.22.3, src/graph/tuning.cc, search.cc",
    base=_by_algorithm((6.8, 14.0, 0.0), (6.6, 14.0, 8.4), NONE, NONE, NONE, NONE, NONE),
    hop=_hops(tree=(28.0, 28.0, 28.0), direct=(3.7, 31.0), chain=(2.8, 30.0), nvls=23.0, net=(18.0, 14.0)),
    ll=(_VOLTA_LL, _AMPERE, (141.0, 45.0, 35.0), (141.0, 45.0, 35.0)),
    ring_ll128=_218.ring_ll128,
    tree_ll128=_218.tree_ll128,
    tree=_218.tree,
    nvls_tree=_NO_LIMIT,
    nvls_efficiency=None,
    ring_ll=(1 / 2, 1 / 2),
    lone_ll128=0.7,
    lone_tree_hop=False,
    net_steps=0,
    nvls_by_rank=False,
    channels=32,
    nvls_gpus=3,
    nvls_heads=32,
    pat=False,
    ll128_sm=frozenset({70, 80, 90}),
    intra=(_INTRA, _INTRA_90_OLD, _INTRA_90_OLD),
    inter=(_INTER, _INTER_90_OLD, _INTER_90_OLD),
)

_230 = Tables(
    version=(2, 30),
    source="NCCL 2.30.7, src/graph/tuning.cc, search.cc",
    base=_by_algorithm((6.8, 14.0, 8.4), (6.6, 14.0, 8.4), NONE, NONE, NONE, NONE, (8.0, 8.0, 8.0)),
    hop=_hops(tree=(4.0, 4.0, 14.0), direct=(3.7, 31.0), chain=(2.8, 30.0), nvls=25.0, net=(18.0, 20.9)),
    ll=(_VOLTA_LL, _AMPERE, (141.0, 45.0, 35.0), (282.0, 90.0, 70.0)),
    ring_ll128=(_20, _20, _HOPPER_LL128, (40.0, 40.0, 40.0)),
    tree_ll128=(_20, _20, (36.7, 36.7, 29.0), (55.6, 31.67, 20.0)),
    tree=(*_TREE, (70.0, 42.8, 24.0)),
    nvls_tree=(_TREE[0], _TREE[1], (0.0, 57.7, 45.5), (0.0, 96.0, 80.0)),
    nvls_efficiency=(0.0, 0.0, 0.85, 0.74),
    ring_ll=(1 / 2, 1 / 2),
    lone_ll128=0.92,
    lone_tree_hop=True,
    net_steps=1,
    nvls_by_rank=True,
    channels=64,
    nvls_gpus=2,
    nvls_heads=32,
    pat=True,
    ll128_sm=None,
    intra=(_INTRA, _INTRA_90, _INTRA_100),
    inter=(_INTER, _INTER_90, _INTER_100),
)

VERSIONS: Mapping[Version, Tables] = MappingProxyType({found.version: found for found in (_218, _222, _230)})
LATEST: Version = max(VERSIONS)

TREE_CORRECTION: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "LL": (1, 1, 1, 1, 0.9, 0.8, *(0.7,) * 4, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1),
        "LL128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, *(0.6,) * 6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1),
        "Simple": (*(0.9,) * 7, 0.8, 0.7, 0.6, 0.6, *(0.5,) * 4, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
    }
)
"""Factors of a tree's bandwidth by size, from 64 bytes up in powers of two (NCCL 2.18 to 2.30, tuning.cc)."""


def tables_of(version: Version = LATEST) -> Tables:
    """Return the constants of a release: its own, else those of the next lower release (the lowest for older ones).

    Raises
    ------
    InputError
        If the version is not two whole numbers of which the first is 2.

    Examples
    --------
    >>> tables_of((2, 30)).base["Tree"], tables_of((2, 26)).version, tables_of((2, 4)).version
    ((6.8, 14.0, 8.4), (2, 22), (2, 18))
    >>> tables_of((3, 0))
    Traceback (most recent call last):
    collsim.errors.InputError: version: expected one of NCCL 2, as (2, 30), got (3, 0)
    """
    ok = isinstance(version, tuple) and len(version) == 2 and all(type(part) is int for part in version)
    if not ok or version[0] != 2 or version[1] < 0:
        raise InputError(f"version: expected one of NCCL 2, as (2, 30), got {shown(version)}")
    return VERSIONS[max((known for known in VERSIONS if known <= version), default=min(VERSIONS))]
