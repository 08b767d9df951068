"""What GraphML says of a machine: the attributes of graph, nodes and edges."""

from __future__ import annotations

__all__ = ["KEYS", "RATES", "SWITCHES", "TIMES", "is_name"]

LONGEST = 200
"""Letters of a name."""

TIMES = ("send_overhead",)
RATES = ("reduce_bandwidth", "channel_bandwidth")
SWITCHES = {"reduces": False, "multicasts": False, "forwards": True}
"""Attributes of devices, and what switches are where nothing is said."""

KEYS = {
    "graph": {"name": "string", "description": "string", "source": "string"},
    "node": {
        "kind": "string",
        "rank": "long",
        "send_overhead": "string",
        "reduce_bandwidth": "long",
        "channel_bandwidth": "long",
        "reduces": "boolean",
        "multicasts": "boolean",
        "forwards": "boolean",
    },
    "edge": {"bandwidth": "long", "latency": "string", "kind": "string", "index": "long"},
}
"""What is written, and its type: times are texts with their unit, because seconds as a double are not exact."""


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a node, or of a kind of links."""
    return 0 < len(text) <= LONGEST and text.isprintable()
