"""What a document leaves open: counts, instances and devices that its edges use and that it does not describe."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

from collsim.formats.infragraph.document import Component, Device, Document, Instance
from collsim.formats.infragraph.endpoints import Edge, End, Step
from collsim.formats.infragraph.roles import says_nic, says_switch
from collsim.formats.infragraph.tree import MAX_COUNT, nearest
from collsim.topology.names import shown_text

__all__ = ["complete"]

MOST_GUESSES = 100_000


def complete(document: Document) -> None:
    """Fill what can be told from the edges, and say so in `Document.assumed`.

    Raises
    ------
    TopologyError
        If an edge or an instance names what is nowhere described.
    """
    _instances(document)
    for instance in document.instances.values():
        if instance.device not in document.devices:
            _external(document, instance.device, f"{instance.name} {instance.device}", instance)
    for device in list(document.devices.values()):
        for component in device.components.values():
            if component.choice == "device" and component.name not in document.devices:
                _external(document, component.name, f"{component.name} {component.description}", component)
    _counts(document)


def _external(document: Document, name: str, words: str, user: Instance | Component) -> None:
    """Add a device that the file only names, if the names say that it passes messages on as a whole."""
    misspelt = get_close_matches(name[:60], [known[:60] for known in islice(document.devices, 1000)], cutoff=0.8)
    if misspelt or not (says_nic(words) or says_switch(words)):
        hint = nearest(name, document.devices)
        user.where.fail(
            f"expected a device that the file describes, got {shown_text(name)}; "
            f"put its components, links and edges under devices{hint}"
        )
    document.devices[name] = Device(name, "", user.where, external=True)
    document.assumed.append(f"Device {name} is not in the file: each is one {'NIC' if says_nic(words) else 'switch'}.")


def _instances(document: Document) -> None:
    """Add the instances that edges name and the file does not list, or without any one of each device."""
    used: dict[str, list[End]] = {}
    for edge in document.edges:
        for end in edge.ends:
            used.setdefault(end[0].name, []).append(end)
    nested = {
        c.name for device in document.devices.values() for c in device.components.values() if c.choice == "device"
    }
    taken = {instance.device for instance in document.instances.values()}
    unlisted = [name for name in used if name not in document.instances]
    for name in unlisted:
        ends = used[name]
        where = ends[0][0].where
        if len(unlisted) * len(document.devices) > MOST_GUESSES:
            where.fail(f"expected instances that the file lists, got {len(unlisted):,} others; add them to instances")
        fitting = [device for device in document.devices.values() if _fits(device, ends)]
        idle = [device for device in fitting if device.name not in taken | nested]
        named = [device for device in fitting if device.name == name]
        choice = named or (idle if len(idle) == 1 else fitting)
        if len(choice) != 1:
            hint = nearest(name, document.instances)
            where.fail(f"expected an instance that the file lists, got {shown_text(name)}{hint}; add it to instances")
        document.instances[name] = Instance(name, choice[0].name, None, where)
        document.assumed.append(f"{name} is not among the instances: taken for device {choice[0].name}.")
    if not document.instances:
        for device in document.devices.values():
            if device.name not in nested:
                document.instances[device.name] = Instance(device.name, device.name, 1, device.where)
        document.assumed.append("The file lists no instances: one of each device.")


def _fits(device: Device, ends: Iterable[End]) -> bool:
    return all(len(end) > 1 and end[1].name in device.components for end in ends)


def _counts(document: Document) -> None:
    """Fill counts with the highest index that is used, one more; give external devices the components that are used."""
    components: dict[tuple[str, str], int] = {}
    instances: dict[str, int] = {}

    def note(device: Device | None, way: Iterable[Step], edge: Edge) -> None:
        for step in way:
            if device is None:
                return
            if device.external and step.name not in device.components:
                device.components[step.name] = Component(step.name, "", "port", "", None, edge.where)
            key = (device.name, step.name)
            components[key] = max(components.get(key, 1), _high(step))
            component = device.components.get(step.name)
            device = document.devices.get(step.name) if component and component.choice == "device" else None

    for device in list(document.devices.values()):
        for edge in device.edges:
            for end in edge.ends:
                note(device, end, edge)
    for edge in document.edges:
        for end in edge.ends:
            first = end[0]
            instances[first.name] = max(instances.get(first.name, 1), _high(first))
            note(document.devices.get(document.instances[first.name].device), end[1:], edge)
    open_counts = False
    for device in document.devices.values():
        if device.external and not device.components:  # no edge touches it
            device.components["port"] = Component("port", "", "port", "", 1, device.where)
        for component in device.components.values():
            if component.count is None:
                component.count = min(components.get((device.name, component.name), 1), MAX_COUNT)
                open_counts |= not device.external
    for instance in document.instances.values():
        if instance.count is None:
            instance.count = min(instances.get(instance.name, 1), MAX_COUNT)
            open_counts = True
    if open_counts:
        document.assumed.append("Where the file gives no count, it is that of the highest index in an edge.")


def _high(step: Step) -> int:
    return step.start + 1 if step.stop is None else max(step.stop, 1)
