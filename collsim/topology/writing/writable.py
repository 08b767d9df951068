"""Names that a topology file can say: kept where they are such, else changed, always the same way and to no other's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from collsim.topology.names import MAX_INDEX, MAX_LENGTH

__all__ = ["writable_kinds", "writable_names", "writable_title"]

_NAME = re.compile(r"[A-Za-z_](?:[\w.:/+-]|\[(?:0|[1-9][0-9]{0,9})\])*")
_LARGE = re.compile(r"\[([0-9]{10})\]")
_KIND = re.compile(r"[\w.:+-]{1,60}")
_NUMBERS = re.compile(r"\(?((?:0|[1-9][0-9]{0,8})(?:, ?(?:0|[1-9][0-9]{0,8}))*),?\)?")
KEPT = 200
"""Letters that are kept of a name that is changed."""


def writable_names(names: Sequence[str], kinds: Sequence[str]) -> list[str]:
    r"""Return the names of nodes as a topology file says them: the same, but for those that it cannot say.

    Numbers, alone or in a tuple as in the grids of NetworkX, become indices behind the kind of the node; otherwise each
    letter that names do not have becomes ``_``. What is taken already gets a number.

    Examples
    --------
    >>> writable_names(["gpu[0]", "GPU 0", "7", "(0, 1)", "a\nb", "a_b"], ["gpu"] * 6)
    ['gpu[0]', 'GPU_0', 'gpu[7]', 'gpu[0][1]', 'a_b_2', 'a_b']
    """
    return _changed(names, _fits, lambda number: _similar(names[number], kinds[number]))


def writable_kinds(kinds: Sequence[str]) -> list[str]:
    """Return the kinds of links as a topology file says them.

    Examples
    --------
    >>> writable_kinds(["nvlink", "", "PCIe gen 5"])
    ['nvlink', '', 'PCIe_gen_5']
    """

    def fits(kind: str) -> bool:
        return not kind or _KIND.fullmatch(kind) is not None

    return _changed(kinds, fits, lambda number: re.sub(r"[^\w.:+-]", "_", kinds[number])[:50])


def writable_title(name: str) -> str:
    r"""Return the name of a topology as a line of at most 200 letters.

    Examples
    --------
    >>> writable_title("two\tlines\n"), writable_title("")
    ('two lines', 'topology')
    """
    printable = "".join(letter if letter.isprintable() else " " for letter in name)
    fits = printable == name and len(name) <= 200 and name.strip()
    return name if fits else printable.strip()[:200].strip() or "topology"


def _changed(names: Sequence[str], fits: Callable[[str], bool], similar: Callable[[int], str]) -> list[str]:
    written = list(names)
    wrong = [number for number, name in enumerate(names) if not fits(name)]
    if not wrong:
        return written
    taken = {name for name in names if fits(name)}
    next_try: dict[str, int] = {}
    for number in wrong:
        wanted = name = similar(number)
        while name in taken:
            next_try[wanted] = next_try.get(wanted, 1) + 1
            name = f"{wanted}_{next_try[wanted]}"
        taken.add(name)
        written[number] = name
    return written


def _fits(name: str) -> bool:
    if len(name) > MAX_LENGTH or _NAME.fullmatch(name) is None:
        return False
    return all(int(index) <= MAX_INDEX for index in _LARGE.findall(name))


def _similar(name: str, kind: str) -> str:
    if numbers := _NUMBERS.fullmatch(name):
        return kind + "".join(f"[{int(number)}]" for number in _numbers(numbers[1]))
    text = re.sub(r"[^\w.:/+-]", "_", name[:KEPT])
    return text if re.match(r"[A-Za-z_]", text) else f"{kind}_{text}" if text else kind


def _numbers(text: str) -> Iterable[str]:
    return (number.strip() for number in text.split(","))
