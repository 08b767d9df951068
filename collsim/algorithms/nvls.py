"""NVLink SHARP: a switch that joins all GPUs adds up what they load and copies what they store.

GPU i loads the sum of shard i through the switch (``multimem.ld_reduce``), for which all GPUs send theirs, its own
too; and it stores a shard to all GPUs at once (``multimem.st``), to itself too. A GPU sends and receives, in bytes:

| operation | up | down |
|---|---|---|
| all_reduce | S + S/N | S/N + S |
| all_gather | S/N | S |
| reduce_scatter | S | S/N |

Each shard is cut in slices, so that what is stored is on its way while more is loaded. One message carries slice j of
all shards that go the same way. Sources: NVIDIA, "Upgrading Multi-GPU Interconnectivity with the Third-Generation
NVIDIA NVSwitch" (2022); NCCL's ``src/transport/nvls.cc`` and ``src/device/all_reduce.h``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collsim.algorithms.registry import algorithm
from collsim.algorithms.stages import Stage, pipeline, refuse_slices
from collsim.collective import Collective
from collsim.errors import AlgorithmError, shown
from collsim.schedule import Schedule

__all__ = ["nvls_all_gather", "nvls_all_reduce", "nvls_reduce_scatter"]


def _nvls(operation: str, ranks: int, switch: str, slices: int, window: int | None) -> Schedule:
    collective = Collective(operation, ranks)
    if not isinstance(switch, str) or not switch:
        raise AlgorithmError(f"switch: expected the name of a switch such as nvswitch, got {shown(switch)}")
    refuse_slices(ranks, slices, window)
    if ranks == 1:
        return pipeline(collective, 1, slices, (), window=window)
    gpu, centre, shards = np.arange(ranks), ranks, ranks * slices
    mine: Any = gpu * slices
    all_of: dict[str, Any] = {"count": ranks, "stride": slices}
    up, down = {"dst_buffer": "scratch"}, {"src_buffer": "scratch"}
    stages = []
    if operation != "all_gather":
        stages.append(Stage(0, gpu, centre, 0, True, {**all_of, **up}))
        # in an all_reduce the sum goes through registers of the GPU
        stages.append(Stage(1, centre, gpu, mine, columns=down | (up if operation == "all_reduce" else {})))
    if operation != "reduce_scatter":
        sums = down if operation == "all_reduce" else {}
        stages.append(Stage(len(stages), gpu, centre, mine, columns={**sums, **up, "dst_chunk": mine + shards}))
        spread = {**all_of, **down, "dst_chunk": 0}
        stages.append(Stage(len(stages), centre, gpu, shards, columns=spread))
    return pipeline(collective, ranks, slices, stages, window=window, places=(switch,))


@algorithm("all_reduce", "nvls")
def nvls_all_reduce(ranks: int, *, switch: str = "sw0", slices: int = 64, window: int | None = 1) -> Schedule:
    """Load each shard as a sum and store it to all: ``2 alpha + (N+1)/N S/B``, and ``2 S/(k B)`` to fill the pipeline.

    alpha is a hop through the switch, k the number of slices. nccl-tests' bus bandwidth may come out above B, up to
    ``2 B (N-1)/(N+1)``.

    Parameters
    ----------
    ranks
        Any number from 1.
    switch
        Name of a switch that joins all ranks (`collsim.run` takes the topology's). It must reduce and multicast.
    slices
        Pieces of each shard.
    window
        Slices to be added up that may wait in the queue of a GPU's port: the next one enters it once the one so many
        before it has left. With 1 a shard that is stored waits for one load at the most. None or 0 for no pacing:
        then all loads go before any store, and a large message takes nearly ``2 S/B``. In the fluid network, where a
        window also limits what is under way, small messages want fewer slices or no window.

    Examples
    --------
    Chunk 0 is the shard of rank 0, chunk 1 that of rank 1; rank 2 is the switch.

    >>> print(nvls_all_reduce(2, slices=1))
    all_reduce ranks=2 chunks=2 scratch=4
    algorithm nvls {"switch": "sw0", "slices": 1, "window": 1}
    places ["sw0"]
    repeat 1
      step 0
        0 => 2  0+2 > s0+2
        1 => 2  0+2 > s0+2
      step 1
        2 -> 0  s0
        2 -> 1  s1
      step 2
        0 -> 2  s0 > s2
        1 -> 2  s1 > s3
      step 3
        2 -> 0  s2+2 > 0+2
        2 -> 1  s2+2 > 0+2
    """
    return _nvls("all_reduce", ranks, switch, slices, window)


@algorithm("all_gather", "nvls")
def nvls_all_gather(ranks: int, *, switch: str = "sw0", slices: int = 64, window: int | None = 1) -> Schedule:
    """Store each block to all ranks at once: ``alpha + S/B``, and ``S/(N k B)`` to fill the pipeline.

    A rank gets its own block back too. Parameters as in `nvls_all_reduce`; the switch must multicast.

    Examples
    --------
    >>> nvls_all_gather(8)
    <Schedule nvls all_gather ranks=8 chunks=512 steps=65 transfers=1024>
    """
    return _nvls("all_gather", ranks, switch, slices, window)


@algorithm("reduce_scatter", "nvls")
def nvls_reduce_scatter(ranks: int, *, switch: str = "sw0", slices: int = 64, window: int | None = 1) -> Schedule:
    """Load each block as a sum: ``alpha + S/B``, and ``S/(N k B)`` to fill the pipeline.

    A rank's own share goes up too. Parameters as in `nvls_all_reduce`; the switch must reduce.

    Examples
    --------
    >>> nvls_reduce_scatter(8)
    <Schedule nvls reduce_scatter ranks=8 chunks=512 steps=65 transfers=1024>
    """
    return _nvls("reduce_scatter", ranks, switch, slices, window)
