"""Memory and timing on the host: buffers are numpy arrays, durations come from a monotonic
clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from time import perf_counter_ns
from typing import Any

import numpy as np

from gemmetry.devices.host_stress import busy_processors, spoiled_heap
from gemmetry.devices.late_work import late_work
from gemmetry.domain.contracts import HostArray
from gemmetry.domain.errors import LaunchError, OutOfMemoryError
from gemmetry.domain.operation import TensorSpec
from gemmetry.domain.units import format_bytes
from gemmetry.hardware.host import free_memory_bytes_lately, last_level_cache_bytes
from gemmetry.numerics.storage import numpy_dtype, same_bytes

RED_ZONE_BYTES = 256
"""Bytes of the red zones before and after every buffer, which catch writes past an output."""

RED_ZONE_PATTERN = 0xFF
"""NaN in every float format: using values from outside a buffer shows in the result."""

ALIGNMENT_BYTES = 64
"""Alignment of a buffer's first byte: a cache line, and the widest vector register (AVX-512)."""

RED_ZONE_ALIGNMENT_BYTES = 256
"""Alignment of such a buffer's first byte, less the requested offset."""

HostBuffer = np.ndarray[Any, np.dtype[Any]]


class HostDevice:
    """The host as a :class:`gemmetry.domain.contracts.Device`.

    A buffer is a C-contiguous array of ``spec.storage_shape``, aligned to a cache line, inside an
    allocation with a red zone on each side.
    """

    alignment_bytes = 1
    """BLAS accepts any address that is aligned to an element."""

    def __init__(self) -> None:
        self.last_level_cache_bytes = last_level_cache_bytes()

    def allocate(self, spec: TensorSpec) -> HostBuffer:
        """Uninitialised memory of ``spec.storage_shape``.

        Raises:
            OutOfMemoryError: the system refused it.
        """
        return _allocate(spec.storage_shape, numpy_dtype(spec.dtype))

    def enter_thread(self) -> None:
        """Nothing to do: see :class:`gemmetry.domain.contracts.ThreadDevice`."""

    def allocate_with_red_zones(
        self, spec: TensorSpec, *, zone_bytes: int, offset_bytes: int = 0
    ) -> HostBuffer:
        """Like :meth:`allocate`, with zones of at least `zone_bytes`; the buffer begins
        `offset_bytes` after a multiple of 256.

        Raises:
            OutOfMemoryError: the system refused it.
        """
        return _allocate(
            spec.storage_shape,
            numpy_dtype(spec.dtype),
            zone_bytes=zone_bytes,
            alignment=RED_ZONE_ALIGNMENT_BYTES,
            offset=offset_bytes,
        )

    def upload(self, array: HostArray, spec: TensorSpec) -> HostBuffer:
        """A new buffer holding `array`, which has ``spec.storage_shape`` and the spec's dtype.

        Raises:
            LaunchError: the array has another shape or dtype.
        """
        buffer = self.allocate(spec)
        self.write(buffer, array, spec)
        return buffer

    def write(self, buffer: HostBuffer, array: HostArray, spec: TensorSpec) -> None:
        """Overwrite the buffer with `array`.

        Raises:
            LaunchError: the array has another shape or dtype.
        """
        if array.shape != buffer.shape or array.dtype != buffer.dtype:
            raise LaunchError(
                f"{spec.role} must be {buffer.dtype} of shape {buffer.shape}, "
                f"not {array.dtype} of shape {array.shape}"
            )
        buffer[...] = array

    def prepared_edit(
        self, buffer: HostBuffer, index: tuple[slice, ...], array: HostArray
    ) -> Callable[[], None]:
        """See :class:`gemmetry.domain.contracts.EditableDevice`."""
        part, contents = buffer[index], np.array(array)
        return lambda: np.copyto(part, contents)

    def fill_repeating(self, buffer: HostBuffer, values: HostArray) -> None:
        """See :class:`gemmetry.domain.contracts.EditableDevice`."""
        flat = buffer.reshape(-1)
        whole = flat.size - flat.size % values.size
        flat[:whole].reshape(-1, values.size)[...] = values
        flat[whole:] = values[: flat.size - whole]

    def same_bytes(self, left: HostBuffer, right: HostBuffer) -> bool:
        """Whether two buffers hold the same bytes."""
        return same_bytes(left, right)

    def download(self, buffer: HostBuffer, spec: TensorSpec) -> HostArray:
        """A copy of the buffer's content."""
        return np.array(buffer, order="C", copy=True)

    def fill_bytes(self, buffer: HostBuffer, pattern: int) -> None:
        """Set every byte of the buffer to `pattern` (0–255); the red zones are unchanged."""
        buffer.reshape(-1).view(np.uint8).fill(pattern)

    def clone(self, buffer: HostBuffer) -> HostBuffer:
        """A copy at another address, with the same alignment as the original."""
        copy = _allocate(buffer.shape, buffer.dtype)
        copy[...] = buffer
        return copy

    def synchronize(self) -> None:
        """Nothing to wait for: every launch on the host ends before it returns."""

    def time_calls(self, calls: Sequence[Callable[[], object]]) -> tuple[list[float], str]:
        """Duration of each call in ns by ``perf_counter_ns`` (on Linux CLOCK_MONOTONIC)."""
        durations: list[float] = []
        for call in calls:
            start = perf_counter_ns()
            call()
            durations.append(float(perf_counter_ns() - start))
        return durations, "wall_clock"

    def free_memory_bytes(self) -> int:
        """Bytes available without swapping, within this process's cgroup limit."""
        return free_memory_bytes_lately()

    def release(self) -> None:
        """Nothing to release: numpy frees an array's memory with the array."""

    def float64_matmul(self) -> Callable[[HostArray, HostArray], HostArray] | None:
        """None: references are computed on the host anyway."""
        return None

    def red_zones_intact(self, buffer: HostBuffer) -> bool:
        """Whether the zones before and after a buffer of this device are unchanged."""
        before, after = red_zones(buffer)
        # The pattern has all bits set, so only that same byte leaves the conjunction unchanged.
        common = np.bitwise_and.reduce(before) & np.bitwise_and.reduce(after)
        return bool(common == RED_ZONE_PATTERN)

    def unordered_work(self, launch: Callable[[], object], output: HostBuffer) -> str:
        """Whether a launch keeps writing after it has returned; see :func:`late_work`."""
        self.fill_bytes(output, RED_ZONE_PATTERN)
        holder = [output]

        def run() -> None:
            result = launch()
            if isinstance(result, np.ndarray):
                holder[0] = result

        return late_work(run, lambda: np.array(holder[0]), same_bytes)

    def spoiled_scratch(self, size_bytes: int) -> AbstractContextManager[None]:
        """See :class:`gemmetry.domain.contracts.StressDevice`."""
        return spoiled_heap(size_bytes, lambda size: np.empty(size, np.uint8))

    def load(self) -> AbstractContextManager[None]:
        """See :class:`gemmetry.domain.contracts.StressDevice`."""
        return busy_processors(self.last_level_cache_bytes)

    def stress_limits(self) -> str:
        """Nothing is left out; see :mod:`gemmetry.devices.host_stress`."""
        return ""


def _allocate(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    zone_bytes: int = RED_ZONE_BYTES,
    alignment: int = ALIGNMENT_BYTES,
    offset: int = 0,
) -> HostBuffer:
    size = math.prod(shape) * dtype.itemsize
    try:
        room = np.empty(size + 2 * zone_bytes + alignment + offset, np.uint8)
    except (MemoryError, ValueError):  # ValueError: more bytes than an address can count
        raise OutOfMemoryError(
            f"the host has no {format_bytes(size)} left for an array of {dtype} {shape}",
            hint="Choose a smaller shape, or use a machine with more memory.",
        ) from None
    left_out = -(room.ctypes.data + zone_bytes) % alignment + offset
    # Created from a memoryview, so that numpy reports this array as the buffer's base, and not
    # `room`.
    memory = np.frombuffer(room.data, np.uint8, size + 2 * zone_bytes, left_out)
    end = zone_bytes + size
    memory[:zone_bytes] = RED_ZONE_PATTERN
    memory[end:] = RED_ZONE_PATTERN
    return memory[zone_bytes:end].view(dtype).reshape(shape)


def red_zones(buffer: HostBuffer) -> tuple[HostBuffer, HostBuffer]:
    """The writable bytes before and after a buffer of :class:`HostDevice`.

    Raises:
        ValueError: the buffer was not allocated by it.
    """
    memory = buffer.base
    if not isinstance(memory, np.ndarray) or memory.dtype != np.uint8:
        raise ValueError("this array is not a buffer of HostDevice")
    size = (memory.nbytes - buffer.nbytes) // 2
    return memory[:size], memory[size + buffer.nbytes :]
