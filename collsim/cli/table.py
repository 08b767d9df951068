"""The table of ``collsim run``: the columns of nccl-tests, then theory, error, bound and efficiency."""

from __future__ import annotations

from dataclasses import dataclass

from collsim.engine.result import Result

__all__ = ["HEADER", "Row", "format_row"]

HEADER = """\
#
#       size         count      type   redop    root     time   algbw   busbw #wrong    theory   error     bound   effic.
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)     (%)      (us)      (%)"""


@dataclass(frozen=True)
class Row:
    """One size of the table.

    Attributes
    ----------
    result
        The simulation.
    dtype
        Element type.
    wrong
        Wrong elements over all ranks; None if nothing was checked.
    wrong_by
        ``"data"`` if the schedule was executed on arrays of this size, ``"proof"`` if it was proven on modular sums.
    """

    result: Result
    dtype: str
    wrong: int | None
    wrong_by: str | None

    @property
    def error(self) -> float | None:
        """Simulated time over theory, minus one."""
        theory = self.result.theory
        return None if theory is None or not theory else self.result.time / float(theory) - 1


def _time(us: float) -> str:
    """Microseconds in seven characters, as nccl-tests prints them."""
    if us >= 10000:
        return f"{us:7.0f}"
    return f"{us:7.1f}" if us >= 100 else f"{us:7.2f}"


def format_row(row: Row) -> str:
    """Return a line of the table."""
    r = row.result
    c = r.schedule.collective
    count = r.size // r.element_size // (c.ranks if c.is_blocked else 1)
    redop = "sum" if c.reduces else "none"
    root = c.root if c.is_rooted else -1
    wrong = "N/A" if row.wrong is None else f"{row.wrong:g}"
    theory = "N/A" if r.theory is None else _time(r.theory * 1e6).strip()
    error = "N/A" if row.error is None else f"{100 * row.error:+.2f}"
    return (
        f"{r.size:>12}  {count:>12}  {row.dtype:>8}  {redop:>6}  {root:>6}  {_time(r.time * 1e6)}  {r.algbw / 1e9:6.2f}  "
        f"{r.busbw / 1e9:6.2f}  {wrong:>5}  {theory:>8}  {error:>6}  {_time(r.bound * 1e6):>8}  {100 * r.efficiency:7.2f}"
    )
