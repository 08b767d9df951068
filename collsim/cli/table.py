"""The table of ``collsim run``: the columns of nccl-tests, then theory, error, bound and efficiency."""

from __future__ import annotations

from dataclasses import dataclass

from collsim.engine.result import Result
from collsim.formats.nccl_tests_out import count_of, format_start, format_time

__all__ = ["HEADER", "Row", "format_row"]

# The first nine columns are those of nccl-tests, to the blank, so that what reads its logs reads ours.
HEADER = """\
#
#       size         count      type   redop    root     time   algbw   busbw #wrong   theory   error    bound  effic.
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)     (%)     (us)     (%)\
"""


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
        """Simulated time over theory, minus one; None without a theory or where it says that no time passes."""
        theory = self.result.theory
        return None if theory is None or not theory else self.result.time / float(theory) - 1


def _fitting(value: float, width: int, sign: str = "") -> str:
    """Two decimals, or as many as fit into the width."""
    for decimals in (2, 1):
        text = f"{value:{sign}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{sign}.0f}"


def format_row(row: Row) -> str:
    """Return a line of the table."""
    r = row.result
    c = r.schedule.collective
    redop = "sum" if c.reduces else "none"
    root = c.root if c.is_rooted else -1
    wrong = "N/A" if row.wrong is None else row.wrong
    # a difference that is the formula's fault, not the machine's, is marked: the notes say why
    is_rough = r.theory is not None and not r.theory.holds and abs(row.error or 0) >= 0.005
    theory = "N/A" if r.theory is None else "~" * is_rough + format_time(r.theory * 1e6).strip()
    # rounded first, so that no error is a negative zero
    error = "N/A" if row.error is None else _fitting(round(100 * row.error, 2) + 0.0, 6, "+")
    return (
        f"{format_start(r.size, count_of(r), row.dtype, redop, root)}  {format_time(r.time * 1e6)}  "
        f"{_fitting(r.algbw / 1e9, 6):>6}  {_fitting(r.busbw / 1e9, 6):>6}  {wrong:>5}  {theory:>7}  {error:>6}  "
        f"{format_time(r.bound * 1e6)}  {_fitting(100 * r.efficiency, 6):>6}"
    )
