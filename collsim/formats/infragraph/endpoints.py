"""The ends of edges: names with slices such as ``cx5[0:8].port[0]``, and the dotted connections of early versions."""

from __future__ import annotations

import re
from dataclasses import dataclass

from collsim.formats.infragraph.tree import Value
from collsim.topology.names import shown_text

__all__ = ["Edge", "Step", "connection", "edge_of"]

_ELEMENT = re.compile(r"\s*([^\[\].:]+?)\s*(?:\[([^\[\]]*)\])?\s*")
_SLICE = re.compile(r"\s*([0-9]{0,10})\s*:\s*([0-9]{0,10})\s*(?::\s*([0-9]{0,10})\s*)?", re.ASCII)
_INDEX = re.compile(r"\s*([0-9]{1,10})\s*", re.ASCII)
SCHEMES = ("one2one", "many2many", "ring")


@dataclass(frozen=True, slots=True)
class Step:
    """One name on the way to a component, and which of them.

    Attributes
    ----------
    name
        Of an instance or a component.
    start, stop, step
        As in a slice of Python; ``stop`` is None for all that there are.
    where
        The value that says so.
    """

    name: str
    start: int
    stop: int | None
    step: int
    where: Value

    def indices(self, count: int) -> range:
        """Return the indices that are meant, of so many.

        Raises
        ------
        TopologyError
            If there are not as many.
        """
        stop = count if self.stop is None else self.stop
        if stop > count or (self.start >= stop and (self.stop is not None or self.start > 0)):
            got = f"[{self.start}]" if stop == self.start + 1 else f"[{self.start}:{stop}]"
            self.where.fail(f"expected indices of {shown_text(self.name)}, of which there are {count:,}, got {got}")
        return range(self.start, stop, self.step)


End = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge as it is written.

    Attributes
    ----------
    ends
        The ways to the components at both ends; between instances the first step of each is the instance.
    scheme
        ``one2one``, ``many2many``, ``ring``, or empty where none is given.
    link
        Name of the link.
    where
        The value that says so.
    """

    ends: tuple[End, End]
    scheme: str
    link: str
    where: Value


def edge_of(value: Value, *, instances: bool) -> Edge:
    """Return a structured edge: ``ep1``, ``ep2``, ``scheme`` and ``link``.

    Raises
    ------
    TopologyError
        If one of them is missing or not what it ought to be.
    """
    value.mapping("an edge (ep1, ep2, scheme, link)")
    value.check_keys("ep1", "ep2", "scheme", "many2many", "link")
    ends = (_end(value.need("ep1"), instances), _end(value.need("ep2"), instances))
    scheme, old = value.get("scheme"), value.get("many2many")
    found = ""
    if scheme is not None:
        found = scheme.text()
        if found not in SCHEMES:
            scheme.fail(f"expected one of {', '.join(SCHEMES)}, got {scheme.got()}")
    elif old is not None:  # as versions before 0.5 have it
        if not isinstance(old.node.value, bool):
            old.fail(f"expected true or false, got {old.got()}")
        found = "many2many" if old.node.value else "one2one"
    return Edge(ends, found, value.need("link").name(), value)


def _end(value: Value, instances: bool) -> End:
    value.mapping("an end of an edge such as {component: xpu[0:8]}")
    value.check_keys(*(("instance",) if instances else ("device",)), "component")
    steps: list[Step] = []
    outer = value.need("instance") if instances else value.get("device")
    if outer is not None and (outer.node.value != "" or instances):
        steps += _steps(outer)
    return (*steps, *_steps(value.need("component")))


def _steps(value: Value) -> list[Step]:
    text = value.text()
    if len(text) > 1000:
        value.fail("expected a component such as xpu[0:8], got a text of more than 1,000 letters")
    return [_step(piece, value) for piece in text.split(".")]


def _step(piece: str, value: Value) -> Step:
    found = _ELEMENT.fullmatch(piece)
    if found is None or not found[1].isprintable():
        value.fail(f"expected a name with indices such as xpu[0:8] or xpu[3], got {value.got()}")
    if found[2] is None:
        return Step(found[1], 0, None, 1, value)
    if index := _INDEX.fullmatch(found[2]):
        return Step(found[1], int(index[1]), int(index[1]) + 1, 1, value)
    parts = _SLICE.fullmatch(found[2])
    if parts is None or parts[3] == "0":
        value.fail(f"expected an index or a slice that counts up, such as [3], [0:8] or [0:8:2], got {value.got()}")
    stop = int(parts[2]) if parts[2] else None
    return Step(found[1], int(parts[1] or 0), stop, int(parts[3] or 1), value)


def connection(value: Value) -> Edge:
    """Return a dotted connection: ``cpu.0.pcie.pciesw.1``, or ``server.0.nic.0.eth.leaf.0.port.0`` between instances.

    Raises
    ------
    TopologyError
        If it is not names and numbers in turn on both sides of a link.
    """
    text = value.text()
    words = text.split(".") if len(text) <= 1000 else []
    first, at = _pairs(words, 0, value)
    second, end = _pairs(words, at + 1, value)
    if not first or not second or end != len(words) or not words[at].strip():
        value.fail(f"expected a connection such as cpu.0.pcie.pciesw.1 (component, index, link), got {value.got()}")
    return Edge((first, second), "one2one", words[at], value)


def _pairs(words: list[str], at: int, value: Value) -> tuple[End, int]:
    """Return the names with a number from a word on, and the first word that is none."""
    steps: list[Step] = []
    while at + 1 < len(words) and words[at].strip() and words[at].isprintable() and _INDEX.fullmatch(words[at + 1]):
        index = int(words[at + 1])
        steps.append(Step(words[at], index, index + 1, 1, value))
        at += 2
    return tuple(steps), at
