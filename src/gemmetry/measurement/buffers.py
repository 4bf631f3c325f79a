"""Input and output buffers that launches rotate through, so that caches stay cold."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from gemmetry.domain.contracts import Buffer, Device, HostArray
from gemmetry.domain.operation import Operation

MAX_SETS = 1024
"""Tiny operations would need tens of thousands of copies to leave the cache; beyond this many,
making them takes longer than sampling. What stays warm is marked."""

CLONE_BUDGET_S = 1.0
"""Time after which no further copy is made; the first two sets are always made."""

CACHE_FACTOR = 2
"""The sets together exceed the last-level cache this many times: what NVIDIA's "GEMM performance
measurement methodology" (CUTLASS documentation) asks for."""

_SENTINEL = 0xFF
"""Bytes of an output before its first launch: NaN in every float format, -1 in integers."""


@dataclass(slots=True)
class BufferSet:
    """What one launch reads and writes."""

    inputs: tuple[Buffer, ...]
    output: Buffer
    launched: bool = False


def wanted_sets(operation: Operation, device: Device, *, cold_cache: bool) -> int:
    """How many sets make the caches cold, as far as memory and :data:`MAX_SETS` allow (>= 1).

    Half of the free memory is left alone: the executable and its neighbours need workspace.
    """
    if not cold_cache:
        return 1
    bytes_per_set = max(1, operation.bytes)
    for_cache = CACHE_FACTOR * device.last_level_cache_bytes // bytes_per_set + 1
    in_memory = device.free_memory_bytes() // 2 // bytes_per_set
    return max(1, min(max(2, for_cache), in_memory, MAX_SETS))


def make_sets(
    device: Device,
    operation: Operation,
    inputs: Sequence[HostArray],
    count: int,
    *,
    rotate_outputs: bool,
) -> list[BufferSet]:
    """Upload `inputs` once and clone them `count` - 1 times.

    Outputs are filled with a sentinel, which also touches their pages before anything is timed.
    Where the executable allocates its own output (`rotate_outputs` false), all sets share one.
    """
    began = time.perf_counter()
    uploaded = tuple(
        device.upload(array, spec) for array, spec in zip(inputs, operation.inputs, strict=True)
    )
    sets = [BufferSet(uploaded, _new_output(device, operation))]
    while len(sets) < count:
        if len(sets) >= 2 and time.perf_counter() - began > CLONE_BUDGET_S:
            break
        copies = tuple(device.clone(buffer) for buffer in uploaded)
        output = _new_output(device, operation) if rotate_outputs else sets[0].output
        sets.append(BufferSet(copies, output))
    device.synchronize()
    return sets


def poison_outputs(device: Device, sets: Sequence[BufferSet]) -> None:
    """Overwrite all outputs, so that what is read later was written by a timed launch."""
    for buffers in sets:
        device.fill_bytes(buffers.output, _SENTINEL)
        buffers.launched = False
    device.synchronize()


def _new_output(device: Device, operation: Operation) -> Buffer:
    output = device.allocate(operation.output)
    device.fill_bytes(output, _SENTINEL)
    return output
