"""What the environment and the release say: NCCL_ALGO, NCCL_PROTO, NVLS, channel limits, version."""

from __future__ import annotations

import re
from dataclasses import dataclass

from collsim.errors import InputError, did_you_mean, shown
from collsim.nccl.tables import ALGORITHMS, LATEST, PROTOCOLS, Version, tables_of

__all__ = ["FUNCTIONS", "Setting", "parse_setting", "parse_version"]

FUNCTIONS = {
    "broadcast": "broadcast",
    "reduce": "reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "allreduce": "all_reduce",
}
"""NCCL's names of the collectives that the lists know, and ours."""

_MIN = ("NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS")
_MAX = ("NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS")
_SWITCHES = {"NCCL_NVLS_ENABLE": "nvls", "NCCL_COLLNET_ENABLE": "collnet", "NCCL_PAT_ENABLE": "pat"}


@dataclass(frozen=True)
class Setting:
    """What a user asked of NCCL. Without arguments: nothing, of the newest release known.

    Parameters
    ----------
    algo, proto
        The texts of ``NCCL_ALGO`` and ``NCCL_PROTO``: names with commas, ``^`` in front for all but these, and lists
        for single collectives, as ``ring;allreduce:tree,ring``.
    nvls, collnet
        Whether NVLS and CollNet are allowed.
    pat
        Whether PAT is forced on or off; None for NCCL's rule (one GPU a node).
    min_channels, max_channels
        Limits to the channels of a communicator; 0 for none.
    net_overhead
        Microseconds of posting to the network; None for NCCL's rule (2 on AMD, 1 elsewhere).
    version
        Release of NCCL, major and minor.
    ignored
        Variables that were given and change nothing in the model.

    Raises
    ------
    InputError
        If a name in a list is unknown, or a number out of range.

    Examples
    --------
    >>> setting = Setting(algo="^nvls;allgather:ring")
    >>> setting.algorithms("all_gather"), "NVLS" in setting.algorithms("all_reduce")
    (('Ring',), False)
    >>> Setting(algo="rings")
    Traceback (most recent call last):
    collsim.errors.InputError: NCCL_ALGO: expected names of Tree, Ring, ..., PAT, got 'rings'; did you mean 'Ring'?
    """

    algo: str | None = None
    proto: str | None = None
    nvls: bool = True
    collnet: bool = False
    pat: bool | None = None
    min_channels: int = 0
    max_channels: int = 0
    net_overhead: float | None = None
    version: Version = LATEST
    ignored: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _lists("NCCL_ALGO", self.algo, ALGORITHMS)
        _lists("NCCL_PROTO", self.proto, PROTOCOLS)
        tables_of(self.version)
        for name in ("min_channels", "max_channels"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= 1024:
                raise InputError(f"{name}: expected a whole number from 0 (no limit) to 1024, got {shown(value)}")

    def algorithms(self, collective: str) -> tuple[str, ...]:
        """Return the algorithms that the list of ``NCCL_ALGO`` leaves to a collective (``all_reduce``)."""
        return _lists("NCCL_ALGO", self.algo, ALGORITHMS).get(collective, ALGORITHMS)

    def protocols(self, collective: str) -> tuple[str, ...] | None:
        """Return the protocols that ``NCCL_PROTO`` leaves to a collective; None where it says nothing."""
        return _lists("NCCL_PROTO", self.proto, PROTOCOLS).get(collective)


def parse_setting(text: str = "", version: Version | str | None = None) -> Setting:
    """Read variables as a shell takes them: ``NCCL_ALGO=Ring NCCL_MIN_CTAS=24``.

    Parameters
    ----------
    text
        Words ``NAME=value``. Names that the model does not know are kept as `Setting.ignored`.
    version
        Release of NCCL; a text goes through `parse_version`. None for the newest known.

    Raises
    ------
    InputError
        If a word is not ``NAME=value``, a name is given twice, or a value cannot be used.

    Examples
    --------
    >>> found = parse_setting("NCCL_ALGO=Ring NCCL_MIN_CTAS=24 NCCL_IB_QPS_PER_CONNECTION=2", "2.26.2+cuda12.8")
    >>> found.algo, found.min_channels, found.version, found.ignored
    ('Ring', 24, (2, 26), ('NCCL_IB_QPS_PER_CONNECTION',))
    """
    values: dict[str, str] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InputError(f"environment: expected words NAME=value, got {shown(word)}")
        if name in values:
            raise InputError(f"environment: {name} is given twice; leave one out")
        values[name] = value
    switches = {field: _number(name, values[name]) for name, field in _SWITCHES.items() if values.get(name)}
    overhead = values.get("NCCL_NET_OVERHEAD")
    known = {*_MIN, *_MAX, *_SWITCHES, "NCCL_ALGO", "NCCL_PROTO", "NCCL_NET_OVERHEAD"}
    return Setting(
        algo=values.get("NCCL_ALGO") or None,
        proto=values.get("NCCL_PROTO") or None,
        nvls=switches.get("nvls", 2) != 0,
        collnet=switches.get("collnet", 0) != 0,
        pat={0: False, 1: True}.get(switches.get("pat", 2)),
        min_channels=max((_number(name, values[name]) for name in _MIN if values.get(name)), default=0),
        max_channels=min((_number(name, values[name]) for name in _MAX if values.get(name)), default=0),
        net_overhead=_number("NCCL_NET_OVERHEAD", overhead) / 1000 if overhead else None,
        version=parse_version(version) if isinstance(version, str) else version or LATEST,
        ignored=tuple(sorted(set(values) - known)),
    )


def parse_version(text: str) -> Version:
    """Read the release out of a text that names one of NCCL 2.

    Raises
    ------
    InputError
        If there is none.

    Examples
    --------
    >>> parse_version("2.26.2+cuda12.8"), parse_version("~2.4 (2019; not stated)"), parse_version("22602")
    ((2, 26), (2, 4), (2, 26))
    >>> parse_version("newest")
    Traceback (most recent call last):
    collsim.errors.InputError: version: expected a release of NCCL as '2.27.7', got 'newest'
    """
    found = re.search(r"(?<![\d.])2\.(\d{1,2})(?!\d)", text)
    code = re.fullmatch(r"\s*2(\d\d)\d\d\s*", text)  # NCCL_VERSION_CODE
    if found is None and code is None:
        raise InputError(f"version: expected a release of NCCL as '2.27.7', got {shown(text)}")
    return (2, int((found or code)[1]))  # type: ignore[index]


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,6}", text, re.ASCII):
        raise InputError(f"{name}: expected a whole number from 0, got {shown(text)}")
    return int(text)


def _lists(variable: str, text: str | None, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the names that each collective is left with; nothing where there is no text."""
    found: dict[str, tuple[str, ...]] = {}
    for index, entry in enumerate(text.split(";") if text else ()):
        prefix, colon, listed = entry.rpartition(":")
        if index and not colon:
            raise InputError(f"{variable}: expected a collective before each list but the first, got {shown(entry)}")
        word = prefix.strip().lower()
        if colon and word not in FUNCTIONS:
            hint = did_you_mean(word, FUNCTIONS)
            raise InputError(f"{variable}: expected one of {', '.join(FUNCTIONS)}, got {shown(prefix)}{hint}")
        allowed = _names(variable, listed.strip(), names)
        for collective in [FUNCTIONS[word]] if colon else FUNCTIONS.values():
            found[collective] = allowed
    return found


def _names(variable: str, text: str, names: tuple[str, ...]) -> tuple[str, ...]:
    without = text.startswith("^")
    by_word = {name.lower(): name for name in names}
    listed = [word.strip() for word in text.removeprefix("^").split(",") if word.strip()]
    for word in listed:
        if word.lower() not in by_word:
            hint = did_you_mean(word, names)
            raise InputError(f"{variable}: expected names of {', '.join(names)}, got {shown(word)}{hint}")
    chosen = {by_word[word.lower()] for word in listed}
    return tuple(name for name in names if (name in chosen) != without)
