"""Run a schedule on real NumPy arrays, one a rank."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from collsim.errors import InputError, ScheduleError, one_of
from collsim.schedule.dependencies import locations
from collsim.schedule.explain import end_name
from collsim.schedule.model import OUTPUT, SCRATCH, Schedule, refuse_other

__all__ = ["OPERATORS", "execute"]

Array = npt.NDArray[Any]

OPERATORS: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def execute(
    schedule: Schedule, arrays: Sequence[Any], *, op: str = "sum", in_place: bool = False
) -> list[npt.NDArray[Any] | None]:
    """Run a schedule on data.

    Parameters
    ----------
    schedule
        What to run.
    arrays
        One array a rank, of any dtype and shape (they are read in flat order): what the rank holds before. For
        all_gather and gather it is the rank's block, with ``in_place`` the whole buffer with the block in its place.
        Ranks that hold nothing before (all but the root in broadcast and scatter) may give None out of place.
    op
        How to reduce: ``"sum"``, ``"prod"``, ``"max"`` or ``"min"``.
    in_place
        Whether results are written into the arrays, which then are buffers of the whole size; otherwise the arrays are
        left as they are. In place no two arrays may share memory.

    Returns
    -------
    list of ndarray or None
        What each rank holds after: the whole buffer; its own block for reduce_scatter and scatter; None where the
        operation leaves a rank with nothing. In place they are views of the given arrays: flat for the blocks of
        reduce_scatter and scatter, in the shape of the root's array (rank 0 where there is no root) for the others.

    Raises
    ------
    InputError
        If the arrays do not fit each other or the operation, or share memory in place.

    Examples
    --------
    >>> import numpy as np
    >>> from collsim.algorithms import ring_all_reduce
    >>> execute(ring_all_reduce(2), [np.array([1, 2, 3]), np.array([10, 20, 30])])
    [array([11, 22, 33]), array([11, 22, 33])]
    """
    refuse_other(schedule)
    one_of("op", op, OPERATORS)
    given = _checked(schedule, arrays, in_place)
    operation, ranks = schedule.collective.operation, schedule.ranks
    elements, shape, dtype = _size(schedule, given, in_place)
    sizes, offsets = schedule.elements(elements), schedule.offsets(elements)
    blocks = [_block(schedule, rank, sizes, offsets) for rank in range(ranks)]
    buffers: list[Array] = []
    for rank in range(ranks):
        buffers.append(_buffer(schedule, rank, given[rank], elements, dtype, blocks[rank], in_place))
    memory = _Memory(schedule, buffers, sizes, offsets, dtype)
    for _, transfers in schedule.iter_steps():
        memory.step(transfers, OPERATORS[op])
    outputs = memory.outputs
    results: list[Array | None] = []
    for rank in range(ranks):
        if operation in ("reduce", "gather") and rank != schedule.collective.root:
            results.append(None)
            continue
        if in_place and operation != "barrier":
            target = given[rank]
            assert target is not None
            flat = target.reshape(-1)
            flat[:] = outputs[rank]
            result = flat
        else:
            result = outputs[rank]
        if operation in ("reduce_scatter", "scatter"):
            result = result[blocks[rank][0] : blocks[rank][1]]
        elif shape is not None:
            result = result.reshape(shape)
        results.append(result)
    return results


def _checked(schedule: Schedule, arrays: Sequence[Any], in_place: bool) -> list[Array | None]:
    try:
        arrays = list(arrays)
    except TypeError:
        raise InputError(f"arrays: expected one array a rank, got {type(arrays).__name__}") from None
    if len(arrays) != schedule.ranks:
        raise InputError(f"arrays: expected one array a rank, {schedule.ranks} in all, got {len(arrays)}")
    may_be_none = schedule.collective.operation in ("broadcast", "scatter") and not in_place
    given: list[Array | None] = []
    for rank, array in enumerate(arrays):
        if array is None:
            if not may_be_none or rank == schedule.collective.root:
                raise InputError(f"arrays: rank {rank}: expected an array, got None")
            given.append(None)
            continue
        if in_place and not isinstance(array, np.ndarray):
            raise InputError(f"arrays: rank {rank}: in place expects a NumPy array, got {type(array).__name__}")
        try:
            value = np.asarray(array)
        except ValueError:  # lists of different lengths
            raise InputError(f"arrays: rank {rank}: expected an array, got rows of different lengths") from None
        if in_place and not (value.flags.c_contiguous and value.flags.writeable):
            raise InputError(f"arrays: rank {rank}: in place expects a contiguous array that can be written to")
        if value.dtype.kind not in "biufc":
            raise InputError(f"arrays: rank {rank}: expected numbers, got {value.dtype}")
        given.append(value)
    if in_place:
        _refuse_shared(given)
    return given


def _refuse_shared(given: list[Array | None]) -> None:
    """Refuse contiguous arrays of which two share memory: each would overwrite what the other has to hold."""
    spans = sorted(
        (array.__array_interface__["data"][0], array.nbytes, rank)
        for rank, array in enumerate(given)
        if array is not None and array.nbytes
    )
    for (start, length, rank), (following, _, other) in pairwise(spans):
        if following < start + length:
            one, two = sorted((rank, other))
            raise InputError(
                f"arrays: ranks {one} and {two}: in place expects memory of its own for each rank, these arrays share "
                "some; copy one of them"
            )


def _size(
    schedule: Schedule, given: list[Array | None], in_place: bool
) -> tuple[int, tuple[int, ...] | None, np.dtype[Any]]:
    """Elements of the whole buffer, the shape that results take (None: flat), and the dtype."""
    operation, root = schedule.collective.operation, schedule.collective.root
    present = [(rank, array) for rank, array in enumerate(given) if array is not None]
    dtypes = {array.dtype for _, array in present}
    if len(dtypes) > 1:
        raise InputError(f"arrays: expected one dtype, got {', '.join(sorted(map(str, dtypes)))}")
    gathers = operation in ("all_gather", "gather") and not in_place
    if gathers:
        elements = sum(array.size for _, array in present)
        sizes = schedule.elements(elements)
        for rank, array in present:
            lo, hi = _block(schedule, rank, sizes, schedule.offsets(elements))
            if array.size != hi - lo:
                raise InputError(
                    f"arrays: rank {rank}: expected {hi - lo} of the {elements} elements as its block, got {array.size}"
                )
        return elements, None, present[0][1].dtype
    reference = given[root]
    assert reference is not None
    for rank, array in present:
        if array.size != reference.size:
            raise InputError(
                f"arrays: rank {rank}: expected {reference.size} elements as rank {root} has, got {array.size}"
            )
    if operation == "all_to_all" and reference.size % schedule.ranks:
        raise InputError(
            f"arrays: all_to_all expects a multiple of the {schedule.ranks} ranks, got {reference.size} elements"
        )
    return reference.size, reference.shape, reference.dtype


def _block(schedule: Schedule, rank: int, sizes: Array, offsets: Array) -> tuple[int, int]:
    """First and last + 1 element of a rank's block (the whole buffer for operations without blocks)."""
    if not schedule.collective.is_blocked:
        return 0, int(sizes.sum())
    chunks = np.arange(schedule.chunks)
    mine = schedule.collective.block_of(schedule.place_of(chunks), schedule.chunks) == rank
    lo = int(offsets[mine].min())
    return lo, lo + int(sizes[mine].sum())


def _buffer(
    schedule: Schedule,
    rank: int,
    array: Array | None,
    elements: int,
    dtype: Any,
    block: tuple[int, int],
    in_place: bool,
) -> Array:
    """Return the input buffer of a rank, as a copy."""
    if array is None:
        return np.zeros(elements, dtype=dtype)
    if schedule.collective.operation in ("all_gather", "gather") and not in_place:
        buffer = np.zeros(elements, dtype=dtype)
        buffer[block[0] : block[1]] = array.reshape(-1)
        return buffer
    return array.reshape(-1).copy()


class _Memory:
    """Buffers of all ranks; chunks are views. Scratch chunks take the size of what is written into them."""

    def __init__(self, schedule: Schedule, buffers: list[Array], sizes: Array, offsets: Array, dtype: Any) -> None:
        self.schedule = schedule
        self.lo, self.hi = offsets.tolist(), (offsets + sizes).tolist()
        self.inputs = buffers
        self.outputs = buffers if schedule.in_place else [np.zeros_like(buffer) for buffer in buffers]
        self.scratch: dict[int, Array] = {}

    def view(self, end: int, buffer: int, chunk: int) -> Array:
        memory = self.outputs if buffer == OUTPUT else self.inputs
        return memory[end][self.lo[chunk] : self.hi[chunk]]

    def step(self, transfers: Any, operator: Any) -> None:
        owner = np.repeat(np.arange(len(transfers)), np.diff(transfers.ptr))
        places = locations(
            self.schedule, transfers.dst[owner], transfers.dst_buffer[owner], transfers.dst_chunks
        ).tolist()
        from_places = locations(self.schedule, transfers.src[owner], transfers.src_buffer[owner], transfers.src_chunks)
        written = set(places)
        moves = []
        rows = zip(
            from_places.tolist(), transfers.src[owner].tolist(), transfers.src_buffer[owner].tolist(),
            transfers.src_chunks.tolist(), strict=True,
        )  # fmt: skip
        for place, end, buffer, chunk in rows:
            if buffer == SCRATCH:
                if place not in self.scratch:
                    raise ScheduleError(
                        f"{end_name(self.schedule, end)}, chunk {chunk}: it is read in its scratch before anything was "
                        "written there"
                    )
                data = self.scratch[place]
            else:
                data = self.view(end, buffer, chunk)
            # all transfers of a step read the state before the step
            moves.append(data.copy() if place in written else data)
        targets = zip(
            places, transfers.dst[owner].tolist(), transfers.dst_buffer[owner].tolist(), transfers.dst_chunks.tolist(),
            transfers.reduce[owner].tolist(), moves, strict=True,
        )  # fmt: skip
        for place, end, buffer, chunk, reduces, data in targets:
            if buffer == SCRATCH:
                if not reduces or place not in self.scratch:  # it takes any size; a switch starts from the identity
                    self.scratch[place] = data.copy()
                    continue
                target = self.scratch[place]
            else:
                target = self.view(end, buffer, chunk)
            if target.size != data.size:
                raise ScheduleError(
                    f"{end_name(self.schedule, end)}, chunk {chunk} has {target.size} elements and gets {data.size}; "
                    "expected a number of elements that the chunks divide"
                )
            if reduces:
                operator(target, data, out=target)
            else:
                target[:] = data
