"""Memory through which the judge and a submission exchange inputs and results.

* *host*: one memory file, for submissions on the CPU.
* *device*: memory of a GPU, which the judge creates; the submission's process gets a descriptor of
  it (CUDA Driver API: cuMemCreate, cuMemExportToShareableHandle, cuMemImportFromShareableHandle).
* *upload*: the memory file, where that is refused. The submission's process copies inputs to its
  GPU, and sees them before the clock starts.

The judge writes inputs to host memory. With *device* it copies them to the same offsets of the
GPU's memory itself, and copies results back itself.
"""

from __future__ import annotations

import math
import mmap
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from gemmetry.domain.errors import OutOfMemoryError, RequestError, WrongResultError
from gemmetry.domain.units import format_bytes
from gemmetry.hardware.host_device import (
    ALIGNMENT_BYTES,
    RED_ZONE_BYTES,
    HostBuffer,
    HostDevice,
)
from gemmetry.judge.tasks import ARENA_BYTES

_ALIGNED = 256

LATE_S = 0.01
"""A result is read once more after this time: nothing may write to it after the reply."""

BUSY_NS = 400_000.0
"""A small kernel of the judge takes longer than this only if it has to wait for others': processes
share a GPU in slices of about a millisecond."""

_PROBES = 7


class Arena(HostDevice):
    """Host memory that the child maps too; a :class:`gemmetry.domain.contracts.Device`.

    Args:
        device: where submissions run; of a GPU, they copy there and back (``upload``).
    """

    def __init__(self, device: str = "cpu", *, transport: str = "host") -> None:
        super().__init__()
        self.device, self.transport = device, transport
        self.size_bytes = ARENA_BYTES
        self.was_idle = False
        """Whether nothing ran on the GPU before a submission did, as far as that can be seen."""
        self.why_not_shared = ""
        """Reason why a GPU's memory is not shared."""
        self.descriptor = os.memfd_create("gemmetry-judge", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, self.size_bytes)
        self._map = mmap.mmap(self.descriptor, self.size_bytes)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._start = self._bytes.ctypes.data
        self._free = [(0, self.size_bytes)]
        self._lock = threading.Lock()

    def setup(self) -> dict[str, Any]:
        """Facts about this memory for the submission's process."""
        return {"transport": self.transport, "device": self.device, "size": self.size_bytes}

    def holds(self, sizes: Iterable[int]) -> int:
        """Number of buffer sets of these sizes in bytes that fit into half of the arena: gaps
        between other buffers take the rest."""
        each = sum(_rounded(size + 2 * RED_ZONE_BYTES + ALIGNMENT_BYTES) for size in sizes)
        return self.size_bytes // 2 // max(each, 1)

    def room(self, size_bytes: int) -> HostBuffer:
        """Bytes of the arena: the first gap that is large enough after the one used last, so that
        addresses change.

        Raises:
            OutOfMemoryError: no gap is large enough.
        """
        size = _rounded(size_bytes)
        with self._lock:
            place = next((i for i, (_, length) in enumerate(self._free) if length >= size), None)
            if place is None:
                raise OutOfMemoryError(
                    f"{format_bytes(size)} do not fit into the {format_bytes(self.size_bytes)} "
                    f"that a submission on {self.device} shares with the judge",
                    hint="Choose a smaller shape.",
                )
            start, length = self._free.pop(place)
            if length > size:
                # Last, so that the next buffers come from elsewhere before this gap is used again.
                self._free.append((start + size, length - size))
        found = self._bytes[start : start + size_bytes]
        weakref.finalize(found, self._release, start, size)
        return found

    def _release(self, start: int, size: int) -> None:
        with self._lock:
            gaps = sorted([*self._free, (start, size)])
            merged: list[tuple[int, int]] = []
            for begin, length in gaps:
                if merged and sum(merged[-1]) == begin:
                    merged[-1] = merged[-1][0], merged[-1][1] + length
                else:
                    merged.append((begin, length))
            self._free = merged

    def offset(self, buffer: HostBuffer) -> int:
        """Offset of a buffer in the arena.

        Raises:
            WrongResultError: the buffer is not in the arena.
        """
        offset = int(buffer.ctypes.data) - self._start
        if not 0 <= offset <= self._bytes.size - buffer.nbytes:
            raise WrongResultError("a buffer outside of the arena was passed on")
        return offset

    def push(self, buffers: Iterable[Any]) -> None:
        """Make what was written to buffers visible to the submission, with their red zones."""

    def pull(self, buffers: Iterable[Any]) -> None:
        """Read what the submission wrote to buffers, and to their red zones."""

    def place(self, pairs: Iterable[tuple[HostBuffer, HostBuffer]]) -> None:
        """Write arrays to buffers, without a look at the red zones; an array may repeat."""
        for buffer, array in pairs:
            buffer[...] = array

    def spoil(self, buffers: Iterable[HostBuffer]) -> None:
        """Fill buffers with NaN."""
        for one in buffers:
            self.fill_bytes(one, 0xFF)

    def freeze(self, buffers: Iterable[HostBuffer]) -> Callable[[], list[HostBuffer]]:
        """Copy buffers as they are now; the copies are on the host when the result is called."""
        copies = [np.array(one) for one in buffers]
        return lambda: copies

    def is_idle(self) -> bool:
        """Whether nothing runs on the GPU; True where that cannot be seen."""
        return True

    def unordered_work(self, launch: Callable[[], object], output: HostBuffer) -> str:
        """Whether the result changes after the launch was over."""
        self.fill_bytes(output, 0xFF)
        launch()
        first = np.array(output)
        time.sleep(LATE_S)
        self.pull([output])
        same = self.same_bytes(first, output)
        return "" if same else f"the result changed within {1e3 * LATE_S:g} ms after the reply"

    def close(self) -> None:
        """Release the memory; buffers must not be used any more."""
        os.close(self.descriptor)


class DeviceArena(Arena):
    """Memory of a GPU that the child maps too, and host memory of the same layout.

    Raises:
        RuntimeError: the driver refuses the memory. ImportError: there is no cuda-bindings.
    """

    alignment_bytes = 16
    """Alignment for the widest vector load and a tensor map (PTX ISA, ld.v4 and tensormap)."""

    def __init__(self, device: str) -> None:
        import torch

        super().__init__(device, transport="device")
        os.close(self.descriptor)
        self._torch = torch
        self.descriptor, self._device = self._created(index_of(device))
        self._probe = torch.zeros(256, device=self._device.device)
        self.is_idle()  # loads what it launches
        self.was_idle = self.is_idle()

    def _created(self, index: int) -> tuple[int, Any]:
        """Descriptor and bytes of new memory of the GPU."""
        from cuda.bindings import driver

        from gemmetry.hardware.cuda_driver import checked

        _open_context(index)
        kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        wanted = driver.CUmemAllocationProp()
        wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.location = _location(index)
        wanted.requestedHandleTypes = kind
        self._handle = checked(driver.cuMemCreate(self.size_bytes, wanted, 0), "creating memory")
        descriptor = checked(
            driver.cuMemExportToShareableHandle(self._handle, kind, 0), "sharing memory"
        )
        address = _mapped(self._handle, self.size_bytes, index)
        return int(descriptor), tensor_at(address, self.size_bytes, index)

    def _wait(self) -> None:
        self._torch.cuda.synchronize(self._device.device)

    def _ranges(self, buffers: Iterable[Any]) -> list[tuple[Any, Any]]:
        """The bytes of buffers and of their red zones: on the host and on the device."""
        found = []
        for one in buffers:
            if not isinstance(one, np.ndarray) or not one.nbytes:
                continue
            base = one.base if isinstance(one.base, np.ndarray) else one
            start = self.offset(base)
            host = self._torch.from_numpy(self._bytes[start : start + base.nbytes])
            found.append((host, self._device[start : start + base.nbytes]))
        return found

    def push(self, buffers: Iterable[Any]) -> None:
        for host, device in self._ranges(buffers):
            device.copy_(host)
        self._wait()

    def pull(self, buffers: Iterable[Any]) -> None:
        for host, device in self._ranges(buffers):
            host.copy_(device)

    def _bytes_of(self, buffer: HostBuffer) -> Any:
        start = self.offset(buffer)
        return self._device[start : start + buffer.nbytes]

    def place(self, pairs: Iterable[tuple[HostBuffer, HostBuffer]]) -> None:
        uploaded: dict[int, Any] = {}
        for buffer, array in pairs:
            if id(array) not in uploaded:
                flat = np.frombuffer(array.tobytes(), np.uint8).copy()
                uploaded[id(array)] = self._torch.from_numpy(flat).to(self._device.device)
            self._bytes_of(buffer).copy_(uploaded[id(array)])
        self._wait()

    def spoil(self, buffers: Iterable[HostBuffer]) -> None:
        for one in buffers:
            self._bytes_of(one).fill_(0xFF)
        self._wait()

    def freeze(self, buffers: Iterable[HostBuffer]) -> Callable[[], list[HostBuffer]]:
        kept = [(one, self._bytes_of(one).clone()) for one in buffers]
        self._wait()
        return lambda: [copy.cpu().numpy().view(one.dtype).reshape(one.shape) for one, copy in kept]

    def is_idle(self) -> bool:
        took = []
        for _ in range(_PROBES):
            before = time.perf_counter_ns()
            self._probe.add_(1)
            self._wait()
            took.append(time.perf_counter_ns() - before)
        return float(np.median(took)) < BUSY_NS

    def close(self) -> None:
        from cuda.bindings import driver

        from gemmetry.hardware.cuda_driver import checked

        super().close()
        self._wait()
        address = self._device.data_ptr()
        checked(driver.cuMemUnmap(address, self.size_bytes), "unmapping shared memory")
        checked(driver.cuMemAddressFree(address, self.size_bytes), "freeing addresses")
        checked(driver.cuMemRelease(self._handle), "releasing shared memory")


def _rounded(size_bytes: int) -> int:
    return max(_ALIGNED, math.ceil(size_bytes / _ALIGNED) * _ALIGNED)


def open_arena(device: str, transport: str = "") -> Arena:
    """The memory for submissions on `device`: ``cpu`` or ``cuda:0``.

    Args:
        transport: ``device`` or ``upload``; "": the first that works here.

    Raises:
        RequestError: no such device, or `transport` is not possible.
    """
    if device != "cpu":
        from gemmetry.judge.clocks import open_clock

        open_clock(device, (), ())  # raises where there is no such GPU
    if device == "cpu" or transport == "upload":
        return Arena(device, transport=transport or "host")
    try:
        return DeviceArena(device)
    except (RuntimeError, ImportError, OSError) as error:
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if transport:
            hint = "Leave out the transport: inputs are then uploaded by the submission's process."
            raise RequestError(f"memory of {device} cannot be shared: {why}", hint=hint) from error
        found = Arena(device, transport="upload")
        found.why_not_shared = why
        return found


def index_of(device: str) -> int:
    """The number in ``cuda:1``; 0 without one."""
    return int(device.partition(":")[2] or 0)


def imported(setup: Mapping[str, Any], descriptor: int) -> int:
    """The address of the judge's GPU memory, mapped into this process."""
    from cuda.bindings import driver

    from gemmetry.hardware.cuda_driver import checked

    index = index_of(setup["device"])
    _open_context(index)
    kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    handle = checked(
        driver.cuMemImportFromShareableHandle(descriptor, kind), "importing the judge's memory"
    )
    return _mapped(handle, setup["size"], index)


def tensor_at(address: int, size_bytes: int, index: int) -> Any:
    """Bytes of a GPU's memory as a tensor that does not own them."""
    import torch

    class Memory:
        __cuda_array_interface__ = {  # noqa: RUF012
            "data": (address, False), "shape": (size_bytes,), "typestr": "|u1", "version": 3,
        }  # fmt: skip

    return torch.as_tensor(Memory(), device=f"cuda:{index}")


def _open_context(index: int) -> None:
    import torch

    torch.cuda.set_device(index)
    torch.zeros(1, device=f"cuda:{index}")  # makes the device's context current


def _location(index: int) -> Any:
    from cuda.bindings import driver

    found = driver.CUmemLocation()
    found.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    found.id = index
    return found


def _mapped(handle: Any, size_bytes: int, index: int) -> int:
    """The address at which shared memory is mapped into this process."""
    from cuda.bindings import driver

    from gemmetry.hardware.cuda_driver import checked

    address = checked(driver.cuMemAddressReserve(size_bytes, 0, 0, 0), "reserving addresses")
    checked(driver.cuMemMap(address, size_bytes, 0, handle, 0), "mapping shared memory")
    access = driver.CUmemAccessDesc()
    access.location = _location(index)
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    checked(driver.cuMemSetAccess(address, size_bytes, [access], 1), "opening shared memory")
    return int(address)
