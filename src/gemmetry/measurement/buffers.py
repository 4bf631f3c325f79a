"""Input and output buffers that launches rotate through, so that caches stay cold."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from gemmetry.domain.contracts import Buffer, Device, HostArray, RedZoneDevice
from gemmetry.domain.operation import Operation, TensorSpec
from gemmetry.numerics.changes import InputChange

MAX_SETS = 1024
"""Tiny operations would need tens of thousands of copies to exceed the cache; beyond this number,
creating them takes longer than sampling. Inputs that stay in the cache are marked."""

CLONE_BUDGET_S = 1.0
"""Time after which no further copies are created; the first two sets are always created."""

CACHE_FACTOR = 2
"""The sets together are this many times the last-level cache, as NVIDIA's "GEMM performance
measurement methodology" (CUTLASS documentation) requires."""

FEWEST_SETS = 2
"""Number of sets of inputs and outputs where a single set exceeds the cache. More would add no
information: times vary hardly more between sets than within one
(``benchmarks/process_times.py``)."""

KEPT_PART = 16
"""Inputs are kept on the device where the operation uses at most this share of free memory."""

ZONE_BYTES = 4096
"""Bytes on each side of a timed buffer that a kernel must not write to; the smallest zone that
verification uses too, so that no kernel can distinguish the two by how they are allocated."""

SENTINEL = 0xFF
"""Bytes of an output before its first launch: NaN in every float format, -1 in integers."""


@dataclass(slots=True, eq=False)
class BufferSet:
    """Buffers that one launch reads and writes."""

    inputs: tuple[Buffer, ...]
    output: Buffer
    launched: bool = False
    """Launches since the output was last poisoned."""
    poisoned: bool = False
    """Whether the output is wrong until a launch writes it: it holds a sentinel, or the result of
    other inputs."""
    change: InputChange | None = None
    """The changes that :class:`gemmetry.measurement.renewal.Renewal` made to the inputs."""


class Uploads:
    """Keeps the inputs of the last measured operation on the device: its next dispatch copies them
    there instead of uploading them again (the 256 MB of an 8192³ product take 0.2 s)."""

    def __init__(self) -> None:
        self._device: Device | None = None
        self._inputs: Sequence[HostArray] = ()
        self._buffers: tuple[Buffer, ...] = ()

    def clones(
        self, device: Device, operation: Operation, inputs: Sequence[HostArray]
    ) -> tuple[Buffer, ...]:
        """New buffers holding `inputs`; the kept buffers are never returned."""
        if self._device is not device or self._inputs is not inputs:
            self.clear()
            uploaded = _upload(device, operation, inputs)
            if operation.bytes > device.free_memory_bytes() // KEPT_PART:
                return uploaded
            self._device, self._inputs, self._buffers = device, inputs, uploaded
        return tuple(device.clone(buffer) for buffer in self._buffers)

    def clear(self) -> None:
        """Drop the kept inputs."""
        self._device, self._inputs, self._buffers = None, (), ()


def wanted_sets(operation: Operation, device: Device, *, cold_cache: bool) -> int:
    """The number of sets that keeps caches cold, as far as memory and :data:`MAX_SETS` allow (>=
    1).

    Half of the free memory is left for the workspace of this and other executables.
    """
    if not cold_cache:
        return 1
    bytes_per_set = max(1, operation.bytes)
    for_cache = CACHE_FACTOR * device.last_level_cache_bytes // bytes_per_set + 1
    in_memory = device.free_memory_bytes() // 2 // bytes_per_set
    return max(1, min(max(FEWEST_SETS, for_cache), in_memory, MAX_SETS))


def make_sets(
    device: Device,
    operation: Operation,
    inputs: Sequence[HostArray],
    count: int,
    *,
    rotate_outputs: bool,
    uploads: Uploads | None = None,
) -> list[BufferSet]:
    """Upload `inputs` once, or reuse them from `uploads`, and clone them `count` - 1 times.

    Outputs are filled with a sentinel, which also touches their pages before anything is timed.
    Where the executable allocates its own output (`rotate_outputs` false), all sets share one.
    """
    began = time.perf_counter()
    if uploads is None:
        uploaded = _upload(device, operation, inputs)
    else:
        uploaded = uploads.clones(device, operation, inputs)
    sets = [BufferSet(uploaded, _new_output(device, operation))]
    while len(sets) < count:
        if len(sets) >= FEWEST_SETS and time.perf_counter() - began > CLONE_BUDGET_S:
            break
        output = _new_output(device, operation) if rotate_outputs else sets[0].output
        sets.append(BufferSet(_copies(device, operation, inputs, uploaded, uploads), output))
    device.synchronize()
    return sets


def _copies(
    device: Device,
    operation: Operation,
    inputs: Sequence[HostArray],
    uploaded: tuple[Buffer, ...],
    uploads: Uploads | None,
) -> tuple[Buffer, ...]:
    """New buffers with the same contents. On the host a copy costs as much as an upload."""
    if uploads is None and isinstance(device, RedZoneDevice):
        return _upload(device, operation, inputs)
    return tuple(device.clone(buffer) for buffer in uploaded)


def fit_sets(
    device: Device,
    operation: Operation,
    sets: list[BufferSet],
    per_sample: int,
    *,
    rotate_outputs: bool,
) -> int:
    """Add or drop sets so that `sets` is a whole number of graphs of about `per_sample` launches.
    Returns the number of launches per graph.

    With more launches than sets, every graph cycles through all sets several times. Otherwise
    copies are added if they fit into a quarter of the free memory, else sets are dropped.
    """
    count = len(sets)
    if per_sample >= count:
        return -(-per_sample // count) * count
    missing = -count % per_sample
    if missing * operation.bytes <= device.free_memory_bytes() // 4:
        for _ in range(missing):
            copies = tuple(device.clone(buffer) for buffer in sets[0].inputs)
            output = _new_output(device, operation) if rotate_outputs else sets[0].output
            sets.append(BufferSet(copies, output))
        device.synchronize()
    else:
        del sets[count - count % per_sample :]
    return per_sample


def poison(
    device: Device,
    all_sets: Sequence[BufferSet],
    chosen: Sequence[BufferSet],
    *,
    wait: bool = True,
) -> None:
    """Overwrite the outputs of `chosen` and reset which of `all_sets` were launched, so that any
    result read later was written by a later launch. `wait` for it, unless the following work is
    queued behind it anyway."""
    for buffers in all_sets:
        buffers.launched = buffers.poisoned = False
    for buffers in chosen:
        buffers.poisoned = True
    overwrite(device, chosen, wait=wait)


def overwrite(device: Device, sets: Sequence[BufferSet], *, wait: bool = True) -> None:
    """Fill the outputs of `sets` with the sentinel, and wait for the device."""
    for buffers in sets:
        device.fill_bytes(buffers.output, SENTINEL)
    if wait:
        device.synchronize()


def _upload(
    device: Device, operation: Operation, inputs: Sequence[HostArray]
) -> tuple[Buffer, ...]:
    pairs = zip(inputs, operation.inputs, strict=True)
    if not isinstance(device, RedZoneDevice):
        return tuple(device.upload(array, spec) for array, spec in pairs)
    uploaded = []
    for array, spec in pairs:
        uploaded.append(_allocate(device, spec))
        device.write(uploaded[-1], array, spec)
    return tuple(uploaded)


def _new_output(device: Device, operation: Operation) -> Buffer:
    output = _allocate(device, operation.output)
    device.fill_bytes(output, SENTINEL)
    return output


def _allocate(device: Device, spec: TensorSpec) -> Buffer:
    """A buffer that is allocated as verification's are."""
    if isinstance(device, RedZoneDevice):
        return device.allocate_with_red_zones(spec, zone_bytes=ZONE_BYTES)
    return device.allocate(spec)


def damaged(device: Device, operation: Operation, sets: Sequence[BufferSet]) -> tuple[str, ...]:
    """Roles of the tensors of `sets` with memory next to them that was written to."""
    if not isinstance(device, RedZoneDevice):
        return ()
    specs = (*operation.inputs, operation.output)
    found = {
        spec.role: None
        for one in sets
        for spec, buffer in zip(specs, (*one.inputs, one.output), strict=True)
        if not device.red_zones_intact(buffer)
    }
    return tuple(found)
