"""Stress for launches on the host: memory from malloc is filled with NaN, and processors are
busy.

Memory and timing on the host: buffers are numpy arrays, durations come from a monotonic
clock.

Reads and sets the number of threads of numpy's BLAS through the library's own functions.

Environment variables such as OPENBLAS_NUM_THREADS are read when the library loads, which is before
a provider is created; the functions work at any time.
"""

from __future__ import annotations

import ctypes
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gemmetry.domain.contracts import HostArray
from gemmetry.domain.errors import LaunchError, OutOfMemoryError
from gemmetry.domain.operation import TensorSpec
from gemmetry.domain.units import format_bytes
from gemmetry.hardware.host import free_memory_bytes_lately, last_level_cache_bytes, usable_cores
from gemmetry.hardware.opening import late_work
from gemmetry.numerics.storage import numpy_dtype, same_bytes

SPOILED = 0xFF
"""NaN in every float format, -1 in integers."""

_M_PERTURB = -6
"""Constant of malloc.h of the GNU C library."""
_FILL_WITH_FF = 0x100
"""mallopt(3), M_PERTURB: unless the value is 0, allocated memory is filled with the complement of
its lowest byte, freed memory with the byte itself."""

_PROBE_BYTES = 8192
"""More than what numpy and malloc cache for small arrays, whose content they do not overwrite."""
_BLOCKS = 3

_SMALLEST_COPY_BYTES, _LARGEST_COPY_BYTES = 4 * 2**20, 256 * 2**20
_MOST_THREADS = 16

Empty = Callable[[int], Any]
"""Allocates uninitialised memory of a given number of bytes, as an array or tensor of uint8."""


@contextmanager
def spoiled_heap(size_bytes: int, empty: Empty) -> Iterator[None]:
    """Within the context, allocations above about 1 KiB are filled with the byte :data:`SPOILED`,
    in every thread; calloc still returns zeros.

    The GNU C library does that itself. With other libraries, a few blocks of `size_bytes` are
    filled and freed, and most allocators return them again.
    """
    perturb = _perturb()
    perturb(_FILL_WITH_FF)
    try:
        if not bool((empty(_PROBE_BYTES) == SPOILED).all()):
            blocks = [empty(size_bytes) for _ in range(_BLOCKS)]
            while blocks:
                blocks.pop()[...] = SPOILED  # and frees it
        yield
    finally:
        perturb(0)


@cache
def _perturb() -> Callable[[int], object]:
    """Sets M_PERTURB; does nothing where the C library does not have it."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # TypeError: Windows requires a name
        return lambda value: None
    return lambda value: mallopt(_M_PERTURB, value)


@contextmanager
def busy_processors(cache_bytes: int) -> Iterator[None]:
    """Within the context, half of the processors that this process may use, at least one and at
    most 16, copy memory back and forth, which takes processors, caches and bandwidth from others.

    Args:
        cache_bytes: size of the last-level cache; twice that is copied, up to 512 MiB.
    """
    size = min(max(cache_bytes, _SMALLEST_COPY_BYTES), _LARGEST_COPY_BYTES)
    count = max(1, min(_MOST_THREADS, usable_cores() // 2))
    halves = (np.ones(size, np.uint8), np.ones(size, np.uint8))
    parts = zip(*(np.array_split(half, count) for half in halves), strict=True)
    copied, ended = threading.Semaphore(0), threading.Event()

    def copy(source: Any, target: Any) -> None:
        while not ended.is_set():
            np.copyto(target, source)  # releases the GIL
            copied.release()

    threads = [threading.Thread(target=copy, args=pair, daemon=True) for pair in parts]
    try:
        for thread in threads:
            thread.start()
        for _ in threads:
            copied.acquire()
        yield
    finally:
        ended.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()


def time_on_host(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Duration of each call in ns by the host's monotonic clock."""
    durations = []
    clock = time.perf_counter_ns
    for call in calls:
        before = clock()
        call()
        durations.append(float(clock() - before))
    return durations


def first_line(error: BaseException) -> str:
    """The first line of an exception's text that is not empty, else its class."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)


RED_ZONE_BYTES = 256
"""Bytes of the red zones before and after every buffer, which catch writes past an output."""

RED_ZONE_PATTERN = 0xFF
"""NaN in every float format: using values from outside a buffer shows in the result."""

ALIGNMENT_BYTES = 64
"""Alignment of a buffer's first byte: a cache line, and the widest vector register (AVX-512)."""

RED_ZONE_ALIGNMENT_BYTES = 256
"""Alignment of a buffer's first byte where it is requested with an offset, less that; the minimum
of cudaMalloc (CUDA C++ Programming Guide, device memory accesses)."""

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
            OutOfMemoryError: the system refused the allocation.
        """
        return self._allocate(spec.storage_shape, numpy_dtype(spec.dtype))

    def room(self, size_bytes: int) -> HostBuffer:
        """Uninitialised bytes, from which buffers are cut; devices of other memory override it.

        Raises:
            MemoryError: there is not enough.
        """
        return np.empty(size_bytes, np.uint8)

    def enter_thread(self) -> None:
        """Nothing to do: see :class:`gemmetry.domain.contracts.ThreadDevice`."""

    def allocate_with_red_zones(
        self, spec: TensorSpec, *, zone_bytes: int, offset_bytes: int = 0
    ) -> HostBuffer:
        """Allocate as :meth:`allocate` does, with zones of at least `zone_bytes`; the buffer begins
        `offset_bytes` after a multiple of 256.

        Raises:
            OutOfMemoryError: the system refused the allocation.
        """
        return self._allocate(spec.storage_shape, numpy_dtype(spec.dtype), zone_bytes=zone_bytes,
                              alignment=RED_ZONE_ALIGNMENT_BYTES, offset=offset_bytes)  # fmt: skip

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
        copy = self._allocate(buffer.shape, buffer.dtype)
        copy[...] = buffer
        return copy

    def synchronize(self) -> None:
        """Nothing to wait for: every launch on the host ends before it returns."""

    def time_calls(self, calls: Sequence[Callable[[], object]]) -> tuple[list[float], str]:
        """Duration of each call in ns by ``perf_counter_ns`` (on Linux CLOCK_MONOTONIC)."""
        return time_on_host(calls), "wall_clock"

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

        def look(returned: object) -> HostBuffer:
            return np.array(returned if isinstance(returned, np.ndarray) else output)

        return late_work(launch, look, same_bytes)

    def spoiled_scratch(self, size_bytes: int) -> AbstractContextManager[None]:
        """See :class:`gemmetry.domain.contracts.StressDevice`."""
        return spoiled_heap(size_bytes, lambda size: np.empty(size, np.uint8))

    def load(self) -> AbstractContextManager[None]:
        """See :class:`gemmetry.domain.contracts.StressDevice`."""
        return busy_processors(self.last_level_cache_bytes)

    def stress_limits(self) -> str:
        """Nothing is left out; see :mod:`gemmetry.hardware.host_device`."""
        return ""

    def _allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], *, zone_bytes: int = RED_ZONE_BYTES,
        alignment: int = ALIGNMENT_BYTES, offset: int = 0,
    ) -> HostBuffer:  # fmt: skip
        size = math.prod(shape) * dtype.itemsize
        try:
            room = self.room(size + 2 * zone_bytes + alignment + offset)
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


_FUNCTIONS = (
    # (set, get) of OpenBLAS as numpy's wheels, distributions and its own builds name them,
    # of MKL and of BLIS.
    ("scipy_openblas_set_num_threads64_", "scipy_openblas_get_num_threads64_"),
    ("scipy_openblas_set_num_threads", "scipy_openblas_get_num_threads"),
    ("openblas_set_num_threads64_", "openblas_get_num_threads64_"),
    ("openblas_set_num_threads", "openblas_get_num_threads"),
    ("MKL_Set_Num_Threads", "MKL_Get_Max_Threads"),
    ("bli_thread_set_num_threads", "bli_thread_get_num_threads"),
)
_LIBRARY_WORDS = re.compile("openblas|mkl_rt|blis")


def blas_name() -> str:
    """Name and version of the BLAS that numpy was built with, e.g. ``scipy-openblas 0.3.31``."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{blas['name']} {blas['version']}".strip()


def blas_threads() -> int | None:
    """Number of threads that the BLAS uses now; None where it does not report it."""
    functions = _thread_functions()
    return None if functions is None else functions[1]()


def set_blas_threads(count: int) -> bool:
    """Make the BLAS of this process use `count` threads; False where it cannot be set."""
    if (functions := _thread_functions()) is None:
        return False
    functions[0](count)
    return functions[1]() == count


@cache
def _thread_functions() -> tuple[Callable[[int], None], Callable[[], int]] | None:
    for path in _loaded_libraries():
        try:
            # Already loaded: this is a handle to the same library, not a second copy.
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for setter_name, getter_name in _FUNCTIONS:
            if hasattr(library, setter_name) and hasattr(library, getter_name):
                setter, getter = getattr(library, setter_name), getattr(library, getter_name)
                setter.argtypes, setter.restype = [ctypes.c_int], None
                getter.argtypes, getter.restype = [], ctypes.c_int
                return setter, getter
    return None


def _loaded_libraries(maps: Path = Path("/proc/self/maps")) -> list[str]:
    """Files of BLAS libraries in this process, numpy's own first."""
    try:
        paths = {line.split(None, 5)[5] for line in maps.read_text().splitlines() if "/" in line}
    except (OSError, IndexError):
        return []
    found = (path.strip() for path in paths if _LIBRARY_WORDS.search(Path(path).name.lower()))
    return sorted(found, key=lambda path: ("numpy" not in path, path))
