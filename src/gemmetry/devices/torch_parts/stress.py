"""Stress for launches on a GPU: uninitialised memory holds NaN, and part of the device is busy.

The parts that need their own kernels (``kernels/stress.cu``) work on CUDA where ``cuda.bindings``
is installed; freed memory and copies work everywhere.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import torch

from gemmetry.devices.host_stress import SPOILED
from gemmetry.domain.errors import CompileError

_SPOILED_WORD = int.from_bytes([SPOILED] * 4, "big")

_GRAIN_BYTES, _SMALL_BYTES = 512, 2**20
"""Rounding of torch's allocator, and the largest request that gets a small block
(c10/cuda/CUDACachingAllocator)."""
_ORDINARY_POOL = (0, 0)
"""The pool that is not private to graphs."""

_SPOIL_THREADS, _SPOIL_ROUNDS = 256, 2
"""THREADS of stress.cu, and iterations of its loop over all registers."""
_WAVES = 4
"""Average number of blocks per multiprocessor, so that none is left out."""

_SLICE_NS = 250_000
"""How long a multiprocessor is occupied at a time."""
_SLICES, _COPIES, _BATCHES_AHEAD = 64, 192, 2
"""Contents of one batch of 16 ms: slices, and copies of twice the L2 cache (on an H200 120 MB in
both directions at 4.3 TB/s, 56 µs)."""
_MOST_LOAD_S = 2.0
"""Time after which no more load is submitted, even if launches do not end."""
_POLL_S = 0.0005

_Pair: TypeAlias = tuple[torch.Tensor, torch.Tensor]
"""Source and destination."""


@dataclass(frozen=True)
class StressKernels:
    """The kernels of ``kernels/stress.cu``, loaded."""

    spoil: Any
    occupy: Any
    shared_bytes: int
    """The most shared memory that a block may have, which leaves none for other blocks."""
    processors: int


class GpuStress:
    """Stress on one GPU.

    Args:
        cuda: replaces ``torch.cuda`` in tests.
    """

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        self._device = device
        self._cuda = cuda

    @property
    def limits(self) -> str:
        """The parts that are left out here, and why; "" if none."""
        return self._kernels_or_reason[1]

    def spoil(self, size_bytes: int, free_bytes: int) -> None:
        """Fill freed memory, shared memory and registers with the byte 0xFF, and wait.

        The freed memory is what torch's allocator returns to the next requests on the current
        stream: all its cached memory, and blocks of up to twice `size_bytes`, if that is an eighth
        of `free_bytes` or less, so that it does not need new memory from the device.

        Raises:
            RuntimeError: whatever torch or the driver raises.
        """
        size = min(2 * max(size_bytes, _SMALL_BYTES), free_bytes // 8)
        sizes = []
        while size >= _GRAIN_BYTES:
            sizes += [size, size]
            size //= 2
        self._fill_and_free(sizes)
        self._fill_and_free(self._kept_sizes())
        self._write_processors(_SPOILED_WORD)

    def clean(self) -> None:
        """Set shared memory and registers to zero, so that their contents do not affect other work.

        Raises:
            RuntimeError: whatever torch or the driver raises.
        """
        self._write_processors(0)

    def _write_processors(self, word: int) -> None:
        """Write `word` to shared memory and registers of all multiprocessors."""
        kernels, _ = self._kernels_or_reason
        if kernels is not None:
            arguments = (
                ctypes.c_uint32(word),
                ctypes.c_uint32(0),
                ctypes.c_int(_SPOIL_ROUNDS),
                ctypes.c_int(kernels.shared_bytes // 4),
            )
            stream = self._cuda.current_stream(self._device).cuda_stream
            blocks = _WAVES * kernels.processors
            kernels.spoil.launch(blocks, _SPOIL_THREADS, kernels.shared_bytes, stream, arguments)
        self._cuda.synchronize(self._device)

    def _fill_and_free(self, sizes: Iterable[int]) -> None:
        blocks = [self._bytes(size) for size in sizes]
        for block in blocks:
            block.fill_(SPOILED)

    def _kept_sizes(self) -> list[int]:
        """Request sizes that together use all free memory cached by the allocator for launches on
        the current stream. Large ones come first: each finds a free block of exactly its size."""
        if self._cuda.get_allocator_backend() != "native":
            return []
        stream = self._cuda.current_stream(self._device).cuda_stream
        sizes = []
        for segment in self._cuda.memory_snapshot():
            place = segment["device"], segment["stream"], tuple(segment["segment_pool_id"])
            if place != (self._device.index, stream, _ORDINARY_POOL):
                continue
            is_small = segment["segment_type"] == "small"
            for block in segment["blocks"]:
                size = block["size"] if block["state"] == "inactive" else 0
                if is_small:  # Larger requests would go elsewhere.
                    sizes += [_SMALL_BYTES] * (size // _SMALL_BYTES)
                    size %= _SMALL_BYTES
                if size and is_small == (size <= _SMALL_BYTES):
                    sizes.append(size)
        return sorted(sizes, reverse=True)

    @contextmanager
    def load(self, copy_bytes: int) -> Iterator[None]:
        """Within the context, other streams copy `copy_bytes` repeatedly and occupy half of the
        multiprocessors, in slices of 0.25 ms. Load is queued ahead, and more is added until the
        work submitted to the current stream meanwhile is done; then the load is cancelled.

        Raises:
            RuntimeError: whatever torch or the driver raises.
        """
        cuda, (copying, _) = self._cuda, self._streams
        stop = _pinned_word()
        with cuda.stream(copying):
            pair = self._bytes(copy_bytes), self._bytes(copy_bytes)
        try:
            batches = deque(self._submit(pair, stop) for _ in range(_BATCHES_AHEAD))
            yield
            self._outlast_launches(batches, pair, stop)
        finally:
            stop.fill_(1)
            for stream in self._streams:
                stream.synchronize()

    def _submit(self, pair: _Pair, stop: torch.Tensor) -> Any:
        """Submit one batch of load. Returns the event of its end."""
        cuda, (copying, occupying) = self._cuda, self._streams
        kernels, _ = self._kernels_or_reason
        if kernels is not None:
            arguments = (ctypes.c_void_p(stop.data_ptr()), ctypes.c_uint64(_SLICE_NS))
            blocks = max(1, kernels.processors // 2)
            for _ in range(_SLICES):
                kernels.occupy.launch(
                    blocks, 32, kernels.shared_bytes, occupying.cuda_stream, arguments
                )
        with cuda.stream(copying):
            for _ in range(_COPIES):
                pair[1].copy_(pair[0], non_blocking=True)
            copying.wait_stream(occupying)
            end = cuda.Event()
            end.record(copying)
        return end

    def _outlast_launches(self, batches: deque[Any], pair: _Pair, stop: torch.Tensor) -> None:
        done = self._cuda.Event()
        done.record(self._cuda.current_stream(self._device))
        began = time.monotonic()
        while not done.query() and time.monotonic() - began < _MOST_LOAD_S:
            if batches[0].query():
                batches.popleft()
                batches.append(self._submit(pair, stop))
            time.sleep(_POLL_S)

    def _bytes(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self._device)

    @cached_property
    def _streams(self) -> tuple[Any, Any]:
        """Streams for copies, and for the kernel that occupies multiprocessors; neither waits for
        others."""
        return self._cuda.Stream(self._device), self._cuda.Stream(self._device)

    @cached_property
    def _kernels_or_reason(self) -> tuple[StressKernels | None, str]:
        without = "only freed memory is spoiled, and only copies are the load"
        if torch.version.hip:
            return None, f"on ROCm {without}"
        try:
            from gemmetry.devices import cuda_driver as driver
            from gemmetry.devices.cuda_compiler import compile_source

            major, minor = self._cuda.get_device_capability(self._device)
            cubin = compile_source("stress", (), f"sm_{major}{minor}")
        except (ImportError, CompileError, RuntimeError) as error:
            # RuntimeError: the bindings do not find the compiler's library.
            line = (str(error).splitlines() or [type(error).__name__])[0]
            return None, f"without cuda-bindings and NVRTC {without} ({line})"
        self._cuda.synchronize(self._device)  # Makes torch's context the current one.
        shared_bytes = driver.device_attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        spoil, occupy = driver.Kernel(cubin, "spoil"), driver.Kernel(cubin, "occupy")
        for kernel in (spoil, occupy):
            kernel.allow_shared_memory(shared_bytes)
        processors = driver.device_attribute("MULTIPROCESSOR_COUNT")
        return StressKernels(spoil, occupy, shared_bytes, processors), ""


def _pinned_word() -> torch.Tensor:
    """A zero in host memory that the device reads at the same address (CUDA C++ Programming Guide,
    unified virtual address space)."""
    return torch.zeros(1, dtype=torch.int32, pin_memory=True)
