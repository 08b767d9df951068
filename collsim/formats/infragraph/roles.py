"""What components are, by the type that the file gives and by their names: GPUs, switches, NICs, hosts or left out."""

from __future__ import annotations

import re

from collsim.formats.infragraph.document import Component, Device

__all__ = ["LEFT_OUT", "PRIORITY", "role_of", "says_nic", "says_switch"]

LEFT_OUT = "memory"
"""The role of memory and disks, which no message of a collective passes."""

PRIORITY = ("gpu", "nic", "host", "switch", LEFT_OUT)
"""Of components that are one node, the first of these tells what it is."""

_GPU = re.compile(r"(?:gpu|xpu|npu|tpu|accelerator)s?[0-9]*")
_NIC = re.compile(r"(?:\w*nic|hca|dpu|connectx|bluefield|cx[0-9]+\w*|adapter|lom|rnic)s?[0-9]*")
_SWITCH = re.compile(
    r"\w*(?:switch|switches|sw|slot|sl|bridge|endpoint|retimer|hub|crossbar|router|asic|fabric|plx)[0-9]*"
)
_FABRIC = re.compile(r"(?:leaf|leaves|spine|tor|core|rack|tier)\w*[0-9]*")
_STORAGE = re.compile(r"(?:\w*nvme|ssd|storage|disk|drive|hdd|memory|dram|dimm|hbm|ddr[0-9]*)s?[0-9]*")
_HOST = re.compile(r"(?:cpu|processor|host|soc|socket|numa)s?[0-9]*")


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower()[:1000])


def _says(pattern: re.Pattern[str], text: str) -> bool:
    return any(pattern.fullmatch(word) for word in _words(text))


def says_nic(text: str) -> bool:
    """Return whether a text names a network adapter.

    Examples
    --------
    >>> says_nic("server-nic cx5"), says_nic("generic-server"), says_nic("ConnectX-7")
    (True, False, True)
    """
    return _says(_NIC, text) or "network interface" in text.lower()


def says_switch(text: str) -> bool:
    """Return whether a text names a switch.

    Examples
    --------
    >>> says_switch("leafsw generic-switch"), says_switch("spine_0"), says_switch("server"), says_switch("nvlsw")
    (True, True, False, True)
    """
    return _says(_SWITCH, text) or _says(_FABRIC, text)


def role_of(component: Component, device: Device, *, computes: bool) -> str:
    """Return the kind of node that a component is, or `LEFT_OUT`.

    Parameters
    ----------
    component, device
        The component and the device that it is in.
    computes
        Whether the device has xpus, itself or in devices within it. The cpu of one that has none but ports is the chip
        of a switch or of a NIC.
    """
    words = f"{component.name} {component.type}"
    if component.choice == "xpu":
        return "gpu"
    if component.choice in ("nic", "switch"):
        return component.choice
    if component.choice == "memory" or (component.choice == "custom" and _says(_STORAGE, words)):
        return LEFT_OUT
    adapter = not computes and _is_adapter(device)
    if component.choice == "cpu":
        ports = any(other.choice == "port" for other in device.components.values())
        if computes or not ports:
            return "host"
        return "nic" if adapter else "switch"
    if component.choice == "port":
        return "nic" if adapter or computes else "switch"
    for kind, says in (("gpu", _GPU), ("nic", _NIC), ("host", _HOST), ("switch", _SWITCH)):
        if _says(says, words):
            return "nic" if adapter and kind == "switch" else kind
    return "nic" if adapter or says_nic(component.description) else "switch"


def _is_adapter(device: Device) -> bool:
    return says_nic(device.name) or (
        says_nic(device.description) and not says_switch(f"{device.name} {device.description}")
    )
