"""Whether a forest is one of a machine: what the packing promises, looked at branch by branch."""

from __future__ import annotations

from collsim.errors import InputError
from collsim.forests.model import Forest, Wires

__all__ = ["refuse_wrong"]


def refuse_wrong(forest: Forest, wires: Wires) -> None:
    """Refuse a forest that the machine does not have or cannot carry.

    Without spanning all ranks with every unit, and without parents before children, a `Forest` cannot be made at all.

    Parameters
    ----------
    forest, wires
        Of the same ranks.

    Raises
    ------
    InputError
        A path that is none from parent to child, that leads through a node that nothing passes, or a link that carries
        more than its bandwidth.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from collsim.forests import Branch, Tree
    >>> wires = Wires(("a", "b"), [0, 1], [False, False], [0, 1], [1, 0], [10, 20], ("a->b", "b->a"))
    >>> tree = Tree(0, 2, (Branch(0, 1, 0, 2, ("a->b",)),))
    >>> refuse_wrong(Forest(2, (tree,), Fraction(5)), wires)
    >>> refuse_wrong(Forest(2, (tree,), Fraction(6)), wires)
    Traceback (most recent call last):
    collsim.errors.InputError: forest: link 'a->b' carries 2 units of 6 bytes/s; expected at most its 10 bytes/s
    """
    if forest.ranks != len(wires.ranks):
        raise InputError(f"forest: {forest.ranks} ranks, wires of {len(wires.ranks)}; expected as many")
    number = {name: link for link, name in enumerate(wires.links)}
    if len(number) < len(wires.links):
        raise InputError("wires: expected a name of its own for each link, got one twice")
    src, dst, ranks = wires.src.tolist(), wires.dst.tolist(), wires.ranks.tolist()
    for tree in forest.trees:
        for branch in tree.branches:
            where = f"forest: root {tree.root}, branch {branch.parent} -> {branch.child}"
            here = ranks[branch.parent]
            for place, name in enumerate(branch.path):
                if name not in number:
                    raise InputError(f"{where}: no link {name!r}")
                if src[number[name]] != here:
                    raise InputError(
                        f"{where}: link {name!r} does not begin at {wires.nodes[here]!r}, where it has come to"
                    )
                if place and not wires.passes[here]:
                    raise InputError(f"{where}: nothing passes {wires.nodes[here]!r}; expected the path to end there")
                here = dst[number[name]]
            if here != ranks[branch.child]:
                raise InputError(
                    f"{where}: the path ends at {wires.nodes[here]!r}, not at {wires.nodes[ranks[branch.child]]!r}"
                )
    for name, units in forest.load().items():
        bandwidth = int(wires.bandwidth[number[name]])
        if units * forest.rate > bandwidth:
            raise InputError(
                f"forest: link {name!r} carries {units} units of {forest.rate} bytes/s; expected at most its "
                f"{bandwidth} bytes/s"
            )
