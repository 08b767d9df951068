"""A cluster as one line: ``2 x dgx-h100 @ 8x400Gb``.

====================================  ==========================================================================
``dgx-h100``                          one node
``4 x p4d``                           four, with the adapters that they have
``2 x dgx-a100:4``                    four GPUs of each, the first ones, and the adapters beside them
``2 x dgx-h100 @ 8x400Gb``            other adapters: so many a node, and their rate
``2 x hgx-h100 @ 8x400Gb roce``       and their transport: infiniband, roce, efa1 to efa4, tcpx, tcpxo, slingshot,
                                      omnipath, tcp
``2 x l40sx4 @ 2 x connectx-6 roce``  or which ones, by name
====================================  ==========================================================================

``×`` is as good as ``x``, and blanks round it may be left out.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NoReturn

from collsim.errors import InputError, did_you_mean, shown
from collsim.hardware import catalogue
from collsim.hardware.model import Cluster, Nic, Node
from collsim.units import parse_bandwidth

__all__ = ["cluster", "part"]

MOST_NODES = 200_000
MOST_NICS = 1024
MOST_TEXT = 300

_COUNT = re.compile(r"\s*([0-9][0-9_,]*)\s*[xX×]\s*")
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(G(?:b(?:ps|/s|it/s|it)?)?|[kKMGT]i?B/s|[kKMGT]Bps)(?![\w/])")


def cluster(text: str) -> Cluster:
    """Read a cluster.

    Parameters
    ----------
    text
        ``[NODES x] NODE[:GPUS] [@ [NICS x] RATE or NIC [TRANSPORT]]``, see `collsim.hardware.clusters`.

    Returns
    -------
    Cluster
        Rates in bytes/s.

    Raises
    ------
    InputError
        With the column, what was expected there and what to write.

    Examples
    --------
    >>> cluster("2xdgx-h100@8x400Gb roce").transport, cluster("128 × dgx-a100").ranks
    ('roce', 1024)
    >>> str(cluster("2 x p5")), str(cluster("dgx-a100:4"))
    ('2 x p5.48xlarge @ 32x100Gb efa2', '1 x dgx-a100:4 @ 4x200Gb infiniband')
    >>> cluster("2 x dgx-h10")
    Traceback (most recent call last):
    collsim.errors.InputError: cluster, column 5: expected a node such as dgx-h100, p5 or l40sx4, got 'dgx-h10'; did you
    mean 'dgx-h100'?
    """
    if not isinstance(text, str) or not text.strip() or len(text) > MOST_TEXT:
        raise InputError(f"cluster: expected a text such as '2 x dgx-h100 @ 8x400Gb', got {shown(text)}")
    if text.count("@") > 1:
        _fail(text.rindex("@"), "expected one '@', got a second; all adapters of a node are alike")
    head, at, tail = text.partition("@")
    count, start = _nodes(head)
    node, gpus = _node(head, start)
    if not at:
        return _with_own(node, count, gpus)
    return _with_nics(node, count, gpus, tail, len(head) + 1)


def part(whole: Cluster, gpus: int) -> Cluster:
    """Return a cluster of which fewer GPUs of each node are used: the first ones, with the adapters as they are.

    Raises
    ------
    InputError
        If there are not so many.

    Examples
    --------
    >>> str(part(cluster("dgx-h100"), 2)), part(cluster("2 x p4d"), 4).ranks
    ('1 x dgx-h100:2 @ 2x400Gb infiniband', 8)
    """
    if isinstance(gpus, bool) or not isinstance(gpus, int) or not 1 <= gpus <= whole.node.gpus:
        raise InputError(f"gpus: expected 1 to the {whole.node.gpus} of {whole.node.name}, got {shown(gpus)}")
    if (whole.nics, whole.nic_bandwidth, whole.transport) == _own(whole.node, whole.gpus):
        nics, _, _ = _own(whole.node, gpus)
        return replace(whole, gpus=gpus, nics=nics)
    return replace(whole, gpus=gpus)


def _fail(at: int, message: str) -> NoReturn:
    raise InputError(f"cluster, column {at + 1}: {message}")


def _nodes(head: str) -> tuple[int, int]:
    """Return the number of nodes and where the name of the node begins."""
    match = _COUNT.match(head)
    if match is None:
        number = re.match(r"\s*([0-9]+)\s+(?=[a-zA-Z])", head)
        if number:
            _fail(
                number.end(),
                f"expected 'x' after the number of nodes; write {number[1]} x {head[number.end() :].strip()}",
            )
        return 1, len(head) - len(head.lstrip())
    count = int(re.sub("[_,]", "", match[1])) if len(match[1]) < 20 else MOST_NODES + 1
    if not 1 <= count <= MOST_NODES:
        _fail(match.start(1), f"expected 1 to {MOST_NODES:,} nodes, got {match[1]}")
    return count, match.end()


def _node(head: str, start: int) -> tuple[Node, int]:
    """Return the node and how many of its GPUs are used."""
    slash = head.find("/", start)
    if slash >= 0:
        few = re.search(r"[0-9]+", head[slash:])
        _fail(slash, f"expected '@' or ':', got '/'; GPUs used of a node are written NODE:{few[0] if few else 4}")
    name, colon, few_text = head[start:].partition(":")
    at = start + len(name) + 1
    if not name.strip():
        _fail(start, "expected a node such as dgx-h100, got nothing")
    try:
        node = catalogue.node(name.strip())
    except InputError as error:
        _fail(start, str(error).removeprefix("node: "))
    if not colon:
        return node, node.gpus
    match = re.fullmatch(r"\s*([0-9]{1,6})\s*(?:gpus?)?\s*", few_text)
    if match is None or not 1 <= int(match[1]) <= node.gpus:
        _fail(at, f"expected 1 to the {node.gpus} GPUs of {node.name} after ':', got {shown(few_text.strip())}")
    return node, int(match[1])


def _own(node: Node, gpus: int) -> tuple[int, int, str]:
    """Return number, rate and transport of the adapters that a node has beside some of its GPUs."""
    if not node.nics or node.nics_on_cpu:
        return node.nics, node.nic_bandwidth if node.nics else 0, node.transport if node.nics else ""
    places = node.switches or node.gpus
    used = {gpu * places // node.gpus for gpu in range(gpus)}
    beside = sum(nic * places // node.nics in used for nic in range(node.nics))
    return beside or node.nics, node.nic_bandwidth, node.transport


def _with_own(node: Node, count: int, gpus: int) -> Cluster:
    nics, rate, transport = _own(node, gpus)
    if count > 1 and not nics:
        raise InputError(
            f"cluster: expected adapters to join {count} x {node.name}; add them, such as '@ 1x100Gb roce'"
        )
    return Cluster(node, count, gpus, node.nic if nics else None, rate, nics, transport)


def _with_nics(node: Node, count: int, gpus: int, tail: str, offset: int) -> Cluster:
    """Read what is behind ``@``; ``offset`` is where it begins."""
    if tail.strip().lower() == "none":
        if count > 1:
            _fail(offset + len(tail) - len(tail.lstrip()), f"expected adapters to join {count} nodes, got none")
        return Cluster(node, count, gpus, None, 0, 0, "")
    match = _COUNT.match(tail)
    nics, at = (int(re.sub("[_,]", "", match[1][:12])), match.end()) if match else (1, len(tail) - len(tail.lstrip()))
    if match and not 1 <= nics <= MOST_NICS:
        _fail(offset + match.start(1), f"expected 1 to {MOST_NICS} adapters a node, got {match[1]}")
    rate, adapter, transport = 0, None, ""
    found = _RATE.match(tail, at)
    if found:
        rate = _bandwidth(found, offset)
        at = found.end()
    for word in re.finditer(r"[^\s,]+", tail[at:]):
        here = offset + at + word.start()
        if catalogue.plain(word[0]) in catalogue.transports():
            if transport:
                _fail(here, f"expected one transport, got {shown(word[0])} after {transport}")
            transport = catalogue.transports()[catalogue.plain(word[0])]
            continue
        if adapter is not None or re.match("[0-9]", word[0]):
            _fail(here, f"expected a rate such as 400Gb and a transport, got {shown(word[0])}{_rate_hint(word[0])}")
        adapter = _adapter(word[0], here)
    if not rate and adapter is None:
        _fail(offset + at, "expected the rate of an adapter, such as 8x400Gb, after '@'")
    return _joined(node, count, gpus, nics, rate, adapter, transport, offset)


def _joined(
    node: Node, count: int, gpus: int, nics: int, rate: int, adapter: Nic | None, transport: str, offset: int
) -> Cluster:
    """Return the cluster with what was not said filled in, from the adapter that was named or else from the node's."""
    if adapter is not None:
        transport = transport or (node.transport if node.transport in adapter.transports else adapter.transports[0])
        if transport not in adapter.transports:
            able = ", ".join(adapter.transports)
            _fail(offset, f"expected a transport of {adapter.name} ({able}), got {transport}")
        return Cluster(node, count, gpus, adapter, rate or adapter.bandwidth, nics, transport)
    transport = transport or node.transport
    if not transport:
        _fail(offset, f"expected a transport after the rate, for {node.name} has none; such as '@ 1x100Gb roce'")
    known = node.nic if node.nic is not None and transport in node.nic.transports else None
    return Cluster(node, count, gpus, known, rate, nics, transport)


def _bandwidth(found: re.Match[str], offset: int) -> int:
    unit = "Gbps" if found[2].startswith("Gb") or found[2] == "G" else found[2]
    rate = parse_bandwidth(found[1] + unit) if len(found[1]) < 20 and float(found[1]) else 0
    if not 0 < rate <= 10**15:
        _fail(offset + found.start(), f"expected the rate of an adapter, such as 400Gb, got {found[0]}")
    return rate


def _rate_hint(word: str) -> str:
    number = re.match(r"[0-9]+", word)
    return f"; write {number[0]}Gb" if number else ""


def _adapter(word: str, here: int) -> Nic:
    try:
        return catalogue.nic(word)
    except InputError:
        names = [*catalogue.transports(), *catalogue.nic_names()]
        close = did_you_mean(word[:40].lower(), names)
        _fail(here, f"expected a transport such as infiniband or roce, or an adapter, got {shown(word)}{close}")
