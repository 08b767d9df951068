"""What every rank holds after a step: how many contributions are in each of its chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError
from collsim.plot.common import count_of, name_rows, new_axes, points_of, set_title
from collsim.schedule.block import Block
from collsim.schedule.expand import iter_steps
from collsim.schedule.model import INPUT, OUTPUT, Schedule
from collsim.schedule.moves import Places

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from collsim.engine.result import Result

__all__ = ["Held", "chunk_grid", "held_after"]

Array = npt.NDArray[Any]

MOST_MOVES = 40_000_000  # as far as the proof follows every chunk
MOST_PLACES = 40_000_000
MOST_CELLS = 512  # along a side; more are taken together
MOST_TEXTS = 20  # chunks or ranks up to which numbers are written
COMPLETE = "#E69F00"


@dataclass(frozen=True, eq=False)
class Held:
    """What ranks hold, shaped (ranks, chunks).

    Attributes
    ----------
    count
        Contributions that are in the chunk (of an operation that adds nothing up: 1 where there is data).
    complete
        Whether it is what the rank must hold in the end, or would have to if it needed the chunk.
    steps
        Steps that were done.
    full
        Contributions of a complete chunk.
    """

    count: Array
    complete: Array
    steps: int
    full: int


def held_after(schedule: Schedule, step: int | None = None) -> Held:
    """Return what is in every rank's output after a step; there is no clock, all of a step happens at once.

    Parameters
    ----------
    schedule
        Any but a barrier's, which moves no data.
    step
        The last step that is done, counting from 0; -1 is before the first; the last of all if not given.

    Raises
    ------
    InputError
        If there is no such step, or too much would have to be followed.

    Examples
    --------
    >>> from collsim.algorithms import ring_all_reduce
    >>> held_after(ring_all_reduce(3), 0).count.tolist()
    [[1, 2, 1], [1, 1, 2], [2, 1, 1]]
    >>> bool(held_after(ring_all_reduce(3)).complete.all())
    True
    """
    c, ranks, chunks = schedule.collective, schedule.ranks, schedule.chunks
    last = schedule.steps - 1 if step is None else step
    if isinstance(last, bool) or not isinstance(last, (int, np.integer)) or not -1 <= last < schedule.steps:
        raise InputError(
            f"chunk_grid: step: expected one from 0 to {schedule.steps - 1}, or -1 for the start, got {step!r}"
        )
    if c.operation == "barrier":
        raise InputError("chunk_grid: a barrier moves no data, so there is nothing to count")
    moves = sum(_moves(phase.block) * phase.times for phase in schedule.phases)
    places = Places(schedule, np.arange(chunks))
    if moves > MOST_MOVES or places.size > MOST_PLACES:
        raise InputError(
            f"chunk_grid: {moves:,} moves of chunks between {places.size:,} places are more than the "
            f"{MOST_MOVES:,} that are followed; expected fewer ranks or chunks"
        )
    rank, place = np.arange(ranks)[:, None], schedule.place_of(np.arange(chunks))[None, :]
    has = c.provides(rank, place, chunks)
    count, value = np.zeros(places.size, dtype=np.int64), np.zeros(places.size, dtype=np.uint64)
    # random numbers stand for data: what adds up to the right number is complete
    data = np.random.default_rng(0).integers(1, 2**64, size=(ranks, chunks), dtype=np.uint64) * has
    places.view(count, INPUT)[...] = has
    places.view(value, INPUT)[...] = data
    for now, t in iter_steps(schedule):
        if now > last:
            break
        owner = np.repeat(np.arange(len(t)), np.diff(t.ptr))
        src = places.of(t.src[owner], t.src_buffer[owner], t.src_chunks)
        dst = places.of(t.dst[owner], t.dst_buffer[owner], t.dst_chunks)
        adds = t.reduce[owner]
        for state in (count, value):
            moved = state[src]  # all of a step read what was there before it
            state[dst[~adds]] = moved[~adds]
            np.add.at(state, dst[adds], moved[adds])
    if c.reduces:
        wanted: Array = np.broadcast_to(data.sum(axis=0, dtype=np.uint64), data.shape)
    else:
        from_rank, from_place = c.source(rank, place, chunks)
        by_place = np.empty_like(data)
        by_place[:, place[0]] = data
        wanted = by_place[from_rank, from_place]
    found = places.view(count, OUTPUT).copy()
    complete = (places.view(value, OUTPUT) == wanted) & (found > 0)
    return Held(found, complete, int(last) + 1, ranks if c.reduces else 1)


def _moves(block: Block) -> int:
    """Count the chunks that the rows of a block move."""
    if block.lists is None:
        return int(block.count.sum())
    listed = np.diff(block.lists.offsets)
    return int(np.where(listed > 0, listed, block.count).sum())


def chunk_grid(schedule: Schedule | Result, *, step: int | None = None, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Draw what every rank holds after a step: a row a rank, a column a chunk, the colour how much is in it.

    Parameters
    ----------
    schedule
        The schedule, or a run of it. Only the schedule counts: there is no clock, all of a step happens at once.
    step
        The last step that is done, counting from 0; -1 is before the first; the last of all if not given.
    ax
        Where to draw; without it a figure of its own is made.
    **kwargs
        For the `matplotlib.image.AxesImage`, such as ``cmap``.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into. Orange is complete: all contributions, or the data that belongs there. White is empty.

    Raises
    ------
    InputError
        If there is no such step, there is no data (a barrier), or it would be too large to follow.

    Notes
    -----
    Above 512 ranks or chunks, cells are the mean of several, and the title says of how many.

    Examples
    --------
    >>> from collsim.algorithms import ring_all_reduce
    >>> ax = chunk_grid(ring_all_reduce(4), step=2)
    >>> [text.get_text() for text in ax.texts[:4]]
    ['4', '3', '2', '1']
    """
    from matplotlib.colors import ListedColormap

    from collsim.engine.result import Result

    plan = schedule.schedule if isinstance(schedule, Result) else schedule
    if not isinstance(plan, Schedule):
        raise InputError(f"chunk_grid: expected a Schedule or a Result, got {type(plan).__name__}")
    held = held_after(plan, step)
    ranks, chunks = held.count.shape
    tall, wide = -(-ranks // MOST_CELLS), -(-chunks // MOST_CELLS)
    part, complete = _means(held.count / held.full, tall, wide), _means(held.complete, tall, wide)
    if ax is None:
        # cells are about square unless that would make the picture too flat or too tall
        across, down = part.shape[1], part.shape[0]
        ax = new_axes(min(max(3.6, 1.7 + 0.42 * across), 7.5), min(max(2.6, 1.3 + 0.36 * down), 6.6))
    # below 0 is empty, 0 to 1 partial; complete cells are drawn over
    shown = np.where(part > 0, part, -1.0)
    cmap, given = _partial(kwargs)
    extent = (-0.5, chunks - 0.5, ranks - 0.5, -0.5)
    style: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest", "extent": extent}
    image = ax.imshow(shown, **{**style, "cmap": cmap, "vmin": 0.0, "vmax": 1.0, **given})
    over = np.ma.masked_less(complete, 1.0)
    ax.imshow(over, **style, cmap=ListedColormap([COMPLETE]), vmin=0.0, vmax=1.0, alpha=given.get("alpha"))
    if max(ranks, chunks) <= MOST_TEXTS and points_of(ax)[0] / chunks > 9 and points_of(ax)[1] / ranks > 8:
        _write(ax, held, image)
    _label(ax, plan, held, tall, wide)
    _key(ax, held)
    return ax


def _partial(kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    if "cmap" in kwargs:
        cmap = colormaps.get_cmap(kwargs["cmap"])
    else:
        # from light to dark blue
        cmap = ListedColormap(colormaps["Blues"](np.linspace(0.15, 1.0, 256)))
    return cmap.with_extremes(under="white"), {name: value for name, value in kwargs.items() if name != "cmap"}


def _means(values: Array, tall: int, wide: int) -> Array:
    """Return the means of blocks of cells; those at the border may be smaller."""
    if tall == wide == 1:
        return values.astype(float)
    rows, columns = np.arange(0, values.shape[0], tall), np.arange(0, values.shape[1], wide)
    total = np.add.reduceat(np.add.reduceat(values.astype(float), rows, axis=0), columns, axis=1)
    high = np.diff(np.append(rows, values.shape[0]))[:, None]
    found: Array = total / (high * np.diff(np.append(columns, values.shape[1]))[None, :])
    return found


def _write(ax: Axes, held: Held, image: Any) -> None:
    """Write how many contributions are in each cell."""
    room = min(points_of(ax)[0] / held.count.shape[1] / 1.5, points_of(ax)[1] / held.count.shape[0] / 1.3)
    for (rank, chunk), count in np.ndenumerate(held.count):
        done = bool(held.complete[rank, chunk])
        shade = image.cmap(image.norm(count / held.full))
        light = done or not count or float(np.dot(shade[:3], (0.299, 0.587, 0.114))) > 0.55
        ax.text(
            chunk, rank, str(count) if count else "", ha="center", va="center_baseline", fontsize=min(9.0, room),
            color="black" if light else "white", fontweight="bold" if done else "normal",
        )  # fmt: skip


def _label(ax: Axes, schedule: Schedule, held: Held, tall: int, wide: int) -> None:
    ranks, chunks = held.count.shape
    name_rows(ax, [str(rank) for rank in range(ranks)])
    step = next(size for size in (10**k * m for k in range(10) for m in (1, 2, 5)) if chunks / size <= 10)
    ax.set_xticks(range(0, chunks, step))
    ax.set_xlabel("chunk")
    ax.set_ylabel("rank")
    what = " ".join(filter(None, (schedule.collective.operation, schedule.algorithm)))
    when = "before the first step" if not held.steps else f"after step {held.steps - 1}"
    when += ", the last" if held.steps == schedule.steps else f" (the last is {schedule.steps - 1})"
    done = f"{np.count_nonzero(held.complete):,} of {count_of(held.complete.size, 'chunk')} complete"
    blocks = f", a cell is the mean of {tall} x {wide}" if tall * wide > 1 else ""
    set_title(ax, [f"{what}, {count_of(ranks, 'rank')}, {when}", done + blocks])


def _key(ax: Axes, held: Held) -> None:
    """Explain the colours below the axes."""
    from matplotlib.patches import Patch

    keys = [Patch(facecolor=COMPLETE, label="complete")]
    unfinished = bool(((held.count > 0) & ~held.complete).any())
    if unfinished and held.full > 1:
        keys.append(Patch(facecolor="#6BAED6", label="part of the sum"))
    elif unfinished:
        keys.append(Patch(facecolor="#08306B", label="other data"))
    if not held.count.all():
        keys.append(Patch(facecolor="white", edgecolor="0.7", label="empty"))
    ax.legend(
        handles=keys, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small", handlelength=1.2
    )
