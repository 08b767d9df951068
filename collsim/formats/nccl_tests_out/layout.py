"""The layout of a log of nccl-tests: pure functions of numbers, so that it can be held against real logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "Device",
    "Half",
    "Line",
    "Setup",
    "average_busbw",
    "devices_per_host",
    "failed_halves",
    "format_foot",
    "format_head",
    "format_line",
    "format_start",
    "format_time",
]

_BOTH = "   time   algbw   busbw #wrong  "
_UNITS = "   (us)  (GB/s)  (GB/s)       "
COLUMNS = (
    "#",
    f"# {'':50}           out-of-place                       in-place          ",
    f"#       size         count      type   redop    root  {_BOTH}{_BOTH}".rstrip(),
    f"#        (B)    (elements)                            {_UNITS}  {_UNITS}",
)
"""The lines between devices and rows; the blanks at their ends are nccl-tests' own."""


@dataclass(frozen=True)
class Half:
    """One half of a row: out of place, or in place.

    Attributes
    ----------
    time
        Microseconds.
    algbw, busbw
        GB/s (10**9 bytes/s).
    wrong
        Wrong elements over all ranks; None if they were not counted.
    """

    time: float
    algbw: float
    busbw: float
    wrong: int | None


@dataclass(frozen=True)
class Line:
    """A row of the table.

    Attributes
    ----------
    size, count
        Bytes, and elements as the operation counts them (those of a block where there is one a rank).
    dtype, redop, root
        Element type; ``"none"`` if nothing is reduced; -1 if there is no root.
    out_of_place, in_place
        The two halves.
    """

    size: int
    count: int
    dtype: str
    redop: str
    root: int
    out_of_place: Half
    in_place: Half


@dataclass(frozen=True)
class Setup:
    """What was asked for, as the head of a log has it.

    Attributes
    ----------
    smallest, largest
        Bytes.
    step
        Factor from size to size, or the bytes between them.
    by_factor
        Which of the two it is.
    checked
        Whether results were checked.
    """

    smallest: int
    largest: int
    step: int
    by_factor: bool = True
    checked: bool = True


@dataclass(frozen=True)
class Device:
    """A rank as the list of devices has it."""

    rank: int
    hostname: str
    device: int
    info: str

    @property
    def bus(self) -> str:
        """The number of its bus, which is that of the device here."""
        return f"0x{self.device:02x}"


def devices_per_host(devices: Sequence[Device]) -> int:
    """Return how many devices each host has; 1, as with a process a device, where they are not equally many."""
    counts = set(Counter(device.hostname for device in devices).values())
    return counts.pop() if len(counts) == 1 else 1


def format_head(setup: Setup, devices: Sequence[Device], title: str = "") -> str:
    """Return the lines above the rows, the title in a comment before those of nccl-tests."""
    step = f"{setup.step}({'factor' if setup.by_factor else 'bytes'})"
    lines = [
        *([f"# {title}"] if title else []),
        f"# nThread 1 nGpus {devices_per_host(devices)} minBytes {setup.smallest} maxBytes {setup.largest} "
        f"step: {step} warmup iters: 0 iters: 1 agg iters: 1 validation: {int(setup.checked)} graph: 0",
        "#",
        "# Using devices",
        *(
            f"#  Rank {d.rank:2} Group  0 Pid      0 on {d.hostname:>10} device {d.device:2} [{d.bus}] {d.info}"
            for d in devices
        ),
    ]
    return "".join(f"{line}\n" for line in (*lines, *COLUMNS))


def format_time(us: float) -> str:
    """Return microseconds as nccl-tests prints them, in at least seven characters.

    Examples
    --------
    >>> [format_time(us) for us in (1.5, 99.994, 819.64, 2789.94, 185004.6)]
    ['   1.50', '  99.99', '  819.6', ' 2789.9', ' 185005']
    """
    return f"{us:7.{0 if us >= 10_000 else 1 if us >= 100 else 2}f}"


def format_start(size: int, count: int, dtype: str, redop: str, root: int) -> str:
    """Return the first five columns of a row.

    Examples
    --------
    >>> format_start(1024, 256, "float", "sum", -1)
    '        1024           256     float     sum      -1'
    """
    return f"{size:12}  {count:12}  {dtype:>8}  {redop:>6}  {root:6}"


def format_line(line: Line) -> str:
    """Return a row, without the end of the line.

    Examples
    --------
    >>> half = Half(2.5, 0.4096, 0.7168, 0)
    >>> format_line(Line(1024, 256, "float", "sum", -1, half, half))[52:]
    '     2.50    0.41    0.72      0     2.50    0.41    0.72      0'
    """
    halves = (
        f"  {format_time(half.time)}  {half.algbw:6.2f}  {half.busbw:6.2f}  "
        + (f"{'N/A':>5}" if half.wrong is None else f"{half.wrong:5g}")
        for half in (line.out_of_place, line.in_place)
    )
    return format_start(line.size, line.count, line.dtype, line.redop, line.root) + "".join(halves)


def format_foot(lines: Sequence[Line]) -> str:
    r"""Return the lines below the rows; the last, empty one is that of NCCL's last error.

    Examples
    --------
    >>> half = Half(857.6, 156.51, 156.51, 0)
    >>> print(format_foot([Line(134217728, 33554432, "float", "sum", -1, half, half)]).replace(" \n", "$\n"))
    # Out of bounds values : 0 OK
    # Avg bus bandwidth    : 156.51$
    #
    <BLANKLINE>
    <BLANKLINE>
    """
    failed, average = failed_halves(lines), average_busbw(lines)
    return (
        f"# Out of bounds values : {failed} {'FAILED' if failed else 'OK'}\n"
        f"# Avg bus bandwidth    : {average:g} \n#\n\n"
    )


def failed_halves(lines: Sequence[Line]) -> int:
    """Return how many halves have wrong elements: nccl-tests counts those, not the elements."""
    return sum(bool(half.wrong) for line in lines for half in (line.out_of_place, line.in_place))


def average_busbw(lines: Sequence[Line]) -> float:
    """Return the mean bus bandwidth of all halves, in GB/s."""
    return sum(line.out_of_place.busbw + line.in_place.busbw for line in lines) / (2 * len(lines))
