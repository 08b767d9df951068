"""Closed forms of rings and of the pipelined chain: a time and its formula."""

from __future__ import annotations

from collsim.theory.costs import Costs, Terms, largest

__all__ = ["chain", "ring"]


def ring(
    reducing: int, copying: int, pieces: int, costs: Costs, *, shares_link: bool, synchronous: bool
) -> tuple[Terms, str, str]:
    """Time of rings whose pieces go round side by side.

    Parameters
    ----------
    reducing, copying
        Rounds that reduce, then rounds that only copy: N - 1 or 0 each.
    pieces
        Messages of a rank in a round: channels times slices, or the two directions of a bidirectional ring.
    costs
        Costs of one message.
    shares_link
        Whether the messages of a rank in a round cross one link.
    synchronous
        Whether a round starts when the one before it has ended everywhere.

    Returns
    -------
    terms, formula, why
        ``why`` is empty where the formula is exact.

    Notes
    -----
    All ranks do the same at the same time, so one rank is looked at: a closed queue of C pieces that visits the
    sender, the link and the reducer once a round. As long as pieces keep their order, its end is the longest path
    through a lattice with two kinds of edges: the same piece a round later (h, or h' where it is only copied) and the
    next piece at the same station (the gap g). In a round either the pieces wait for their own return or the slowest
    station never rests, and the paths below are the corners of that lattice.
    """
    add, copy = costs.reduce, costs.copy
    add_gap = costs.gap(sender=True, link=shares_link, reducer=True)
    gap = costs.gap(sender=True, link=shares_link)
    both = bool(reducing and copying)
    count = "2(N-1)" if both else "(N-1)"
    hop_text, copy_text = costs.text(bool(reducing)), costs.text()
    add_gap_text = costs.gap_text(sender=True, link=shares_link, reducer=True)
    gap_text = costs.gap_text(sender=True, link=shares_link)
    if pieces == 1 or (add_gap if reducing else gap).total == 0:
        text = f"{count} ({copy_text if both else hop_text})"
        return reducing * add + copying * copy, text + (" + (N-1) m gamma" if both and costs.adding else ""), ""
    if synchronous:
        terms = reducing * (add + (pieces - 1) * add_gap) + copying * (copy + (pieces - 1) * gap)
        parts = [f"(N-1) ({_row(hop_text, add_gap_text)})"] if reducing else []
        parts += [f"(N-1) ({_row(copy_text, gap_text)})"] if copying else []
        return terms, " + ".join(parts), ""

    def last(rounds: int, hop: Terms, between: Terms) -> Terms:
        return largest(rounds * hop + (pieces - 1) * between, (rounds * pieces - 1) * between + hop)

    if not both:
        terms = last(reducing, add, add_gap) if reducing else last(copying, copy, gap)
        g = add_gap_text if reducing else gap_text
        return terms, f"max((N-1) h + (C-1) g, ((N-1) C - 1) g + h), h = {hop_text}, g = {g}", ""
    rounds = reducing + copying
    never_rests = (rounds * pieces - 1) * gap + copy
    if add_gap == gap:
        terms = largest(
            reducing * add + copying * copy + (pieces - 1) * gap,
            reducing * add + (copying * pieces - 1) * gap + copy,
            never_rests,
        )
        if not costs.adding:
            return terms, f"max(2(N-1) h + (C-1) g, (2(N-1) C - 1) g + h), h = {copy_text}, g = {gap_text}", ""
        return (
            terms,
            (
                "max((N-1) (h + h') + (C-1) g, (N-1) h + ((N-1) C - 1) g + h', (2(N-1) C - 1) g + h'), "
                f"h = {hop_text}, h' = {copy_text}, g = {gap_text}"
            ),
            "",
        )
    way, known = "(N-1) (h + h') + (C-1) g, ((N-1) C - 1) g + h + (N-1) h'", f"h = {hop_text}, h' = {copy_text}"
    terms = last(reducing, add, add_gap) + copying * copy
    if gap.total == 0:
        return terms, f"max({way}), {known}, g = {add_gap_text}", ""
    why = "reducing is slower than sending, so that pieces that are only copied overtake others"
    text = f"max({way}, (2(N-1) C - 1) g' + h'), {known}, g = {add_gap_text}, g' = {gap_text}"
    return largest(terms, never_rests), text, why


def _row(hop: str, gap: str) -> str:
    """Write what C messages of one step take."""
    return hop if gap == "0" else f"{hop} + (C-1) {gap}"


def chain(
    ranks: int, channels: int, slices: int, costs: Costs, *, reduces: bool, synchronous: bool
) -> tuple[Terms, str]:
    """Time of a broadcast or reduce along a chain in k slices, on C equal chains at once.

    A row of equal stations: the last piece leaves the first station after all others and then meets no queue.
    """
    hop = costs.reduce if reduces else costs.copy
    gap = costs.gap(sender=True, link=True, reducer=reduces)
    hop_text, gap_text = costs.text(reduces), costs.gap_text(sender=True, link=True, reducer=reduces)
    if synchronous:
        step = _row(hop_text, gap_text) if channels > 1 else hop_text
        count = "(N-2+k)" if slices > 1 else "(N-1)"
        return (ranks - 2 + slices) * (hop + (channels - 1) * gap), f"{count} ({step})"
    pieces = channels * slices
    count = " ".join(name for name, number in (("C", channels), ("k", slices)) if number > 1)
    pipeline = "" if pieces == 1 or gap_text == "0" else f" + ({count} - 1) {gap_text}"
    return (ranks - 1) * hop + (pieces - 1) * gap, f"(N-1) ({hop_text}){pipeline}"
