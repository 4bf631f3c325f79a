"""Loads a plan onto the current device and runs it: per call only the stream and the addresses that
changed are passed on."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from gemmetry.devices.cuda_compiler import Cubin
from gemmetry.devices.cuda_driver import Kernel, PreparedLaunch
from gemmetry.devices.cuda_plans import (
    Argument,
    Boxes,
    Compilation,
    KernelLaunch,
    LaunchPlan,
    Pointer,
    Tiles,
)
from gemmetry.devices.tensor_maps import TensorMap
from gemmetry.domain.errors import LaunchError

_STATIC_BYTES = 48 * 1024
"""Dynamic shared memory that a launch may have without a request (CUDA C++ Programming Guide)."""
_PORTABLE_CLUSTER = 8
"""Blocks of a cluster that every GPU with clusters supports (the same guide)."""
_MAPS_KEPT = 512
"""Tensor maps that one argument keeps; a run rotates through fewer buffers than that."""


class _Update(NamedTuple):
    """An argument that depends on the address of a buffer."""

    launch: PreparedLaunch
    position: int
    buffer: int
    """Its place among the addresses of a call."""
    offset_bytes: int
    alignment: int
    boxes: Boxes | None
    """None: the argument is the address itself."""
    maps: dict[int, TensorMap]
    """By address."""


class LoadedPlan:
    """A plan with its kernels in the current context; it may be used by several threads."""

    def __init__(
        self,
        plan: LaunchPlan,
        buffers: Sequence[str],
        compiled: Callable[[Compilation], Cubin],
        allocate: Callable[[int], int],
        device_index: int = 0,
    ) -> None:
        """
        Args:
            buffers: the names of the buffers whose addresses a call is given, in that order.
            compiled: gives the machine code of a compilation.
            allocate: gives the address of so many bytes of zeros on the device. The caller keeps
                them; calls that overlap on the device must not share them.
            device_index: which device is current.

        Raises:
            CompileError: a source was rejected. CudaError: the driver rejected a kernel.
        """
        self.kernels: list[Kernel] = []
        self._launches: list[PreparedLaunch] = []
        self._updates: list[_Update] = []
        self._last: Sequence[int] = ()
        self._lock = threading.Lock()
        places = {name: index for index, name in enumerate(buffers)}
        workspaces = {name: allocate(size) for name, size in plan.workspaces.items()}
        for launch in plan.launches:
            compilation = launch.compilation
            kernel = _loaded(compiled(compilation), compilation.entry, device_index)
            _permit(kernel, launch)
            prepared = PreparedLaunch(
                kernel, launch.grid, [_initial(one) for one in launch.arguments]
            )
            self.kernels.append(kernel)
            self._launches.append(prepared)
            for position, argument in enumerate(launch.arguments):
                if not isinstance(argument, Pointer | Tiles):
                    continue
                boxes = argument.boxes if isinstance(argument, Tiles) else None
                update = _Update(
                    prepared, position, places.get(argument.buffer, -1), argument.offset_bytes,
                    argument.alignment, boxes, {},
                )  # fmt: skip
                if argument.buffer in places:
                    self._updates.append(update)
                else:
                    _set(update, workspaces[argument.buffer])

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Submit the launches to `stream` (a CUstream's address).

        Args:
            addresses: of the buffers, in the order of their names.

        Raises:
            LaunchError: an address is not aligned as a kernel requires.
            CudaError: the driver rejected a launch or a tensor map.
        """
        with self._lock:
            if addresses != self._last:
                self._last = ()  # In case one of them is refused.
                for update in self._updates:
                    _set(update, addresses[update.buffer])
                self._last = list(addresses)  # a copy: the caller may use its list again
            for launch in self._launches:
                launch(stream)


def _set(update: _Update, buffer_address: int) -> None:
    address = buffer_address + update.offset_bytes
    if address % update.alignment:
        raise LaunchError(
            f"a kernel needs buffers aligned to {update.alignment} bytes, not one at {address:#x}",
            hint="Pass whole allocations, not slices that begin in the middle of one.",
        )
    if update.boxes is None:
        update.launch.arguments[update.position].value = address
        return
    found = update.maps.get(address)
    if found is None:
        if len(update.maps) >= _MAPS_KEPT:
            update.maps.clear()
        found = update.maps[address] = TensorMap(address, update.boxes)
    update.launch.replace(update.position, found.argument)


def _initial(argument: Argument) -> Any:
    """The ctypes object of an argument; those of buffers are set later."""
    if isinstance(argument, tuple):
        return (ctypes.c_int * len(argument))(*argument)
    if isinstance(argument, bytes):
        return ctypes.create_string_buffer(argument, len(argument))
    if isinstance(argument, int):
        return ctypes.c_int(argument)
    return ctypes.c_float(argument) if isinstance(argument, float) else ctypes.c_void_p()


def _permit(kernel: Kernel, launch: KernelLaunch) -> None:
    """Request what a launch needs beyond the defaults."""
    x, y, z = launch.grid.cluster
    if launch.grid.dynamic_bytes > _STATIC_BYTES:
        kernel.allow_shared_memory(launch.grid.dynamic_bytes)
    if x * y * z > _PORTABLE_CLUSTER:
        kernel.allow_large_clusters()


@cache
def _loaded(code: Cubin, entry: str, device_index: int) -> Kernel:
    return Kernel(code, entry)
