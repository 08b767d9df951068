"""What a document says, before it is written out: devices, instances, links and edges."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain

from collsim.errors import did_you_mean
from collsim.formats.infragraph.endpoints import Edge, connection, edge_of
from collsim.formats.infragraph.tree import Value, nearest
from collsim.topology.names import shown_text
from collsim.units import INT64_MAX

__all__ = ["CHOICES", "Component", "Device", "Document", "Instance", "Link", "read_document"]

CHOICES = ("custom", "device", "cpu", "xpu", "nic", "memory", "port", "switch")
OLDER = ("npu", "gpu", "tpu")
"""What versions before ``xpu`` and users call one."""

_BANDWIDTH = re.compile(r"g(?:iga)?_?(bits|bytes|transfers)_per_second")
_LATENCY = {"ms": 10**9, "us": 10**6, "ns": 10**3}


@dataclass(frozen=True, slots=True)
class Link:
    """A kind of link.

    Attributes
    ----------
    name, description
        As in the file.
    owner
        The device that it is listed in, empty for the infrastructure.
    bandwidth
        Unit (``bits``, ``bytes`` or ``transfers``) and billions of them a second, if the file says.
    latency
        Picoseconds, if the file says.
    where
        The value to refuse.
    """

    name: str
    description: str
    owner: str
    bandwidth: tuple[str, Fraction] | None
    latency: int | None
    where: Value

    @property
    def words(self) -> str:
        """Everything that the file says of it, in small letters."""
        return f"{self.description} {self.name}".lower()


@dataclass(slots=True)
class Component:
    """A component of a device; ``count`` is None where the file does not say."""

    name: str
    description: str
    choice: str
    type: str
    count: int | None
    where: Value


@dataclass(slots=True)
class Device:
    """A device; ``external`` where the file only names it."""

    name: str
    description: str
    where: Value
    components: dict[str, Component] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    external: bool = False


@dataclass(slots=True)
class Instance:
    """Devices of one name; ``count`` is None where the file does not say."""

    name: str
    device: str
    count: int | None
    where: Value


@dataclass(slots=True)
class Document:
    """The whole of it.

    Attributes
    ----------
    root
        The value that it stands in.
    name, description
        As in the file, empty where it does not say.
    assumed
        Sentences about what the file leaves open.
    """

    root: Value
    name: str
    description: str
    devices: dict[str, Device] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    instances: dict[str, Instance] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)


def read_document(root: Value) -> Document:
    """Return what a document says: an infrastructure, with or without that key around it, or a device alone.

    Raises
    ------
    TopologyError
        For names that are missing or given twice, values that are not what they ought to be, keys that are likely
        misspelt. Other keys that are not known, annotations among them, are passed over.
    """
    for around in ("infragraph", "infrastructure"):  # what a service returns has both
        inner = root.get(around)
        if inner is not None:
            root = inner.mapping("an infrastructure (devices, instances, links, edges)")
    if root.get("components") is not None and root.get("devices") is None:
        device = _device(root)
        document = Document(root, device.name, device.description, {device.name: device})
        document.instances[device.name] = Instance(device.name, device.name, 1, root)
        return document
    root.check_keys("name", "description", "devices", "links", "instances", "edges", "connections", "annotations")
    name = root.get("name")
    document = Document(root, "" if name is None else name.name(), root.words("description"))
    for value in root.items("devices"):
        device = _device(value)
        if device.name in document.devices:
            value.need("name").fail(f"expected each device once, got {shown_text(device.name)} again")
        document.devices[device.name] = device
    for value in root.items("instances"):
        instance = _instance(value)
        if instance.name in document.instances:
            value.need("name").fail(f"expected each instance once, got {shown_text(instance.name)} again")
        document.instances[instance.name] = instance
    document.links = _links(root, "")
    document.edges = _edges(root, instances=True)
    if not document.devices and not document.instances:
        root.fail(f"expected devices, got none{nearest('devices', root.node.keys or ())}")
    return document


def _edges(value: Value, *, instances: bool) -> list[Edge]:
    dotted = map(connection, value.items("connections"))
    return list(chain(dotted, (edge_of(item, instances=instances) for item in value.items("edges"))))


def _device(value: Value) -> Device:
    value.mapping("a device (name, components, links, edges)")
    value.check_keys("name", "description", "components", "links", "edges", "connections")
    device = Device(value.need("name").name(), value.words("description"), value)
    for item in value.items("components"):
        component = _component(item)
        if component.name in device.components:
            item.need("name").fail(f"expected each component once, got {shown_text(component.name)} again")
        device.components[component.name] = component
    device.links = _links(value, device.name)
    device.edges = _edges(value, instances=False)
    return device


def _component(value: Value) -> Component:
    value.mapping("a component (name, count, choice)")
    value.check_keys("name", "description", "count", "choice", "type", "external", "components", *CHOICES)
    if value.get("components") is not None:
        value.need("components").fail("expected no components in components; make them a device (choice: device)")
    count = value.get("count")
    name = value.need("name").name(".[]:")
    choice, kind = _choice(value)
    return Component(name, value.words("description"), choice, kind, None if count is None else count.whole(), value)


def _choice(value: Value) -> tuple[str, str]:
    """Return the kind of a component, and what a custom one says that it is."""
    chosen, older = value.get("choice"), value.get("type")
    custom = value.get("custom")
    if chosen is None and older is None:
        given = [key for key in (*CHOICES, *OLDER) if key in (value.node.keys or {})]
        if len(given) != 1:
            value.fail(f"expected a 'choice' ({', '.join(CHOICES)}), got none")
        choice = given[0]
    else:
        said = chosen or older
        assert said is not None
        choice = said.name()
        if choice in OLDER:
            return "xpu", choice
        if choice not in CHOICES:
            if chosen is not None:
                said.fail(f"expected one of {', '.join(CHOICES)}, got {said.got()}{did_you_mean(choice, CHOICES)}")
            return "custom", choice  # early versions took any word
    if choice == "custom" and custom is not None:
        kind = custom.mapping("a mapping with a 'type'").get("type")
        return choice, "" if kind is None else kind.name()
    return ("xpu" if choice in OLDER else choice), ""


def _instance(value: Value) -> Instance:
    value.mapping("an instance (name, device, count)")
    value.check_keys("name", "description", "device", "count")
    count = value.get("count")
    name = value.need("name").name(".[]:")
    return Instance(name, value.need("device").name(), None if count is None else count.whole(), value)


def _links(value: Value, owner: str) -> dict[str, Link]:
    links: dict[str, Link] = {}
    for item in value.items("links"):
        item.mapping("a link (name, physical)")
        item.check_keys("name", "description", "physical", "bandwidth", "latency")
        name = item.need("name").name()
        if name in links:
            item.need("name").fail(f"expected each link once, got {shown_text(name)} again")
        physical = item.get("physical") or item  # early versions have both in the link itself
        physical.mapping("bandwidth and latency")
        physical.check_keys("name", "description", "physical", "bandwidth", "latency")
        rate, latency = _bandwidth(physical), _latency(physical)
        links[name] = Link(name, item.words("description"), owner, rate, latency, item)
    return links


def _quantity(physical: Value, key: str, units: str) -> tuple[str, Value] | None:
    """Return the unit that is chosen and its value."""
    found = physical.get(key)
    if found is None or not found.mapping(f"{key} by its unit ({units})").node.keys:
        return None
    choice = found.get("choice")
    if choice is not None:
        unit = choice.name()
        return unit, found.need(unit)
    others = [name for name in found.node.keys or () if name != "choice"]
    if len(others) != 1:
        found.fail(f"expected a 'choice' ({units}), got none")
    return others[0], found.need(others[0])


def _bandwidth(physical: Value) -> tuple[str, Fraction] | None:
    units = "gigabits_per_second, gigabytes_per_second, gigatransfers_per_second"
    chosen = _quantity(physical, "bandwidth", units)
    if chosen is None:
        return None
    unit, value = chosen
    found = _BANDWIDTH.fullmatch(unit)
    if found is None:
        value.fail(f"expected one of {units}, got {shown_text(unit)}{did_you_mean(unit, units.split(', '))}")
    number = value.number()
    if not 0 < number <= INT64_MAX:
        value.fail(f"expected a bandwidth above 0 that 64 bits hold, got {value.got()}")
    return found[1], number


def _latency(physical: Value) -> int | None:
    chosen = _quantity(physical, "latency", "ms, us, ns")
    if chosen is None:
        return None
    unit, value = chosen
    if unit not in _LATENCY:
        value.fail(f"expected one of ms, us, ns, got {shown_text(unit)}")
    time = value.number() * _LATENCY[unit]
    if not 0 <= time <= INT64_MAX:
        value.fail(f"expected a latency from 0 that 64 bits of picoseconds hold, got {value.got()}")
    if time > 0 and round(time) == 0:
        value.fail(f"expected 0 or at least a picosecond, got {value.got()}")
    return round(time)
